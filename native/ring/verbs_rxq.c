/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive queues beside the first ones: queues of work requests with buffers of their own, to which single rules are led. All complete
 * into the ring's one completion queue, which is made long enough at open: a poll costs the same however many there are, one
 * notification tells of all, and stamps, arming and moderation are the ring's as ever.
 *
 * Moving a rule. The device's new rule has the same match and another priority: so there is no moment without a rule, and none in which
 * two of them take a frame twice. One that leads to queues of its own alternates between the two steps above its kind's, where no rule
 * of the same match stands that did not move, as a socket's, which would share its frames. Before and after the completion queue is emptied into `early`, what comes by
 * the new queues behind all other: that is the order in which the frames came, though a device may not keep it between queues.
 *
 * Buffers. A queue is filled by the ring when it opens, and from then on by what the owner posts for frames that it took. A queue that is
 * closed is given up (IBV_WQS_ERR), which completes every buffer of it, and ends when the last has come back: not before, for the device
 * may write to it until then. Nor while a rule leads there that the device did not take back; it is asked again with every sweep. The
 * owner posts a buffer for each frame of that queue, too: `surplus` of them go back to the pool.
 */
#include <errno.h>

#include "ring/verbs_priv.h"

#define SPREAD_TABLE 64u /* entries of a table over several queues: even within an eighth for up to eight of them */

static struct verbs_beside *find(struct verbs_ring *v, uint32_t number)
{
	struct verbs_beside *q = number && number <= PV_RING_RXQ_MAX ? &v->rxqs->q[number] : NULL;

	return q && q->wq && !q->closing ? q : NULL;
}

/* Of a packet's `txq`: the number; 0: a first one. */
static uint32_t number_of(const struct verbs_ring *v, uint32_t txq)
{
	return txq >= v->ring.caps.queues ? PV_MIN(txq + 1 - v->ring.caps.queues, PV_RING_RXQ_MAX) : 0;
}

static int last_error(void)
{
	return errno ? -errno : -EOPNOTSUPP;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------------- */

/* The device gave this buffer back; `counted`: the owner will post another for it. The queue may be gone with a device that is. */
static void came_back(struct verbs_ring *v, const struct pv_pkt *p, bool counted)
{
	uint32_t number = number_of(v, p->txq);

	if (number) {
		struct verbs_beside *q = &v->rxqs->q[number];

		if (q->stat)
			q->stat->buffers--;
		v->rxqs->surplus += counted && q->closing;
	} else if (v->rss) {
		v->rss->q[p->txq].out--;
	} else {
		v->rxqs->out--;
	}
}

/* A frame in it. */
static void received(struct verbs_ring *v, struct pv_pkt *p)
{
	uint32_t number = number_of(v, p->txq);
	struct pv_rxq_stat *s = number ? v->rxqs->q[number].stat : NULL;

	if (s) {
		s->packets++;
		s->bytes += p->total;
	}
	came_back(v, p, true);
	p->flags |= PV_PKT_QUEUE;
}

void pv_verbs_rxq_lost(struct verbs_ring *v, const struct pv_pkt *p, bool counted)
{
	came_back(v, p, counted);
}

static uint32_t post_to(struct verbs_ring *v, uint32_t number, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_beside *q = &v->rxqs->q[number];
	uint32_t k = q->wq && !q->closing ? PV_MIN(n, v->ring.caps.rxq_depth - q->stat->buffers) : 0;

	if (!k)
		return 0;
	for (uint32_t i = 0; i < k; i++)
		pkts[i]->txq = (uint8_t)(v->ring.caps.queues - 1 + number);
	k = pv_verbs_rx_post_by(v, q->wq, pkts, k);
	q->stat->buffers += k;
	return k;
}

static uint32_t post_first(struct verbs_ring *v, struct pv_pkt **pkts, uint32_t n)
{
	if (v->rss)
		return n ? pv_verbs_rss_rx_post(&v->ring, pkts, n) : 0;
	n = PV_MIN(n, v->ring.caps.rx_depth - v->rxqs->out);
	if (!n)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		pkts[i]->txq = 0;
	n = pv_verbs_rx_post_by(v, NULL, pkts, n);
	v->rxqs->out += n;
	return n;
}

/* Buffers go where they are missed, a different queue first each time: none is left out when they are short. */
uint32_t pv_verbs_rxq_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_rxqs *x = v->rxqs;
	uint32_t done = 0, number = x->next;

	n = PV_MIN(n, r->caps.batch);
	if (pv_unlikely(v->gone))
		return 0;
	for (; pv_unlikely(x->surplus) && done < n; done++, x->surplus--)
		pv_pkt_put(pkts[done]);
	for (uint32_t seen = 0; seen < x->open && done < n;) {
		number = number % PV_RING_RXQ_MAX + 1;
		if (!find(v, number))
			continue;
		done += post_to(v, number, pkts + done, n - done);
		seen++;
	}
	x->next = number;
	return done + post_first(v, pkts + done, n - done);
}

uint32_t pv_verbs_rxq_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	struct pv_pktq *early = &v->rxqs->early;
	uint32_t got, first;

	n = PV_MIN(n, r->caps.batch);
	/* What arming found was counted then, and what is early when it was taken. */
	got = verbs_rx_stashed(v, pkts, n);
	while (pv_unlikely(early->count) && got < n) {
		pkts[got] = pv_pktq_pop(early);
		pkts[got++]->next = NULL;
	}
	if (got == n)
		return got;
	first = got;
	got += v->rxqs->rx_poll(r, pkts + got, n - got);
	for (uint32_t i = first; i < got; i++)
		received(v, pkts[i]);
	return got;
}

#define FIRST UINT64_C(1) /* the first queues, in a set for pull() */

/* Everything that the completion queue has becomes early, what came by the queues of `set` last. */
static void pull(struct verbs_ring *v, uint64_t set)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX], *p;
	struct verbs_rxqs *x = v->rxqs;
	struct pv_pktq late;
	uint32_t was, n;

	pv_pktq_init(&late);
	if (v->stash)
		pv_pktq_unpop(&x->early, v->stash);
	v->stash = NULL;
	do {
		was = v->rx_outstanding;
		n = x->rx_poll(&v->ring, pkts, PV_RING_BATCH_MAX);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t number = number_of(v, pkts[i]->txq);

			received(v, pkts[i]);
			pv_pktq_push(set & UINT64_C(1) << number ? &late : &x->early, pkts[i]);
		}
	} while (v->rx_outstanding != was);
	while ((p = pv_pktq_pop(&late)))
		pv_pktq_push(&x->early, p);
}

/* ---- life -------------------------------------------------------------------------------------------------------------- */

uint32_t pv_verbs_rxq_plan(struct verbs_ring *v, const struct ibv_device_attr_ex *attr, uint32_t asked)
{
	const struct ibv_rss_caps *rss = &attr->rss_caps;
	struct pv_ring_caps *caps = &v->ring.caps;
	uint32_t n = PV_MIN(asked, PV_RING_RXQ_MAX), room;

	if (!(rss->supported_qpts & 1u << IBV_QPT_RAW_PACKET) || !(rss->rx_hash_function & IBV_RX_HASH_FUNC_TOEPLITZ))
		return 0;
	caps->rxq_depth = PV_MIN(caps->rx_depth, VERBS_RXQ_DEPTH);
	room = (uint32_t)PV_MAX(attr->orig_attr.max_cqe, 0);
	room = room > caps->rx_depth ? (room - caps->rx_depth) / caps->rxq_depth : 0;
	return PV_MIN(PV_MIN(n, room), attr->max_wq_type_rq > VERBS_RXQ_MAX ? attr->max_wq_type_rq - VERBS_RXQ_MAX : 0);
}

int pv_verbs_rxq_init(struct verbs_ring *v)
{
	if (!v->ring.caps.rxqs)
		return 0;
	v->rxqs = v->mem->alloc(v->mem->ctx, sizeof(*v->rxqs));
	if (!v->rxqs)
		return -ENOMEM;
	memset(v->rxqs, 0, sizeof(*v->rxqs));
	pv_pktq_init(&v->rxqs->early);
	return 0;
}

/* The device has nothing of it any more, or is dead. */
static void destroy(struct verbs_ring *v, struct verbs_beside *q)
{
	if (!v->forgotten) {
		if (q->qp)
			v->lib.destroy_qp(q->qp);
		if (q->table)
			ibv_destroy_rwq_ind_table(q->table);
		if (q->wq)
			ibv_destroy_wq(q->wq);
	}
	if (q->stat) {
		pv_mem_hide(v->mem, q->stat->shown);
		pv_mem_free_shown(v->mem, q->stat, sizeof(*q->stat));
	}
	memset(q, 0, sizeof(*q));
}

void pv_verbs_rxq_clear(struct verbs_ring *v)
{
	for (uint32_t i = 1; v->rxqs && i <= PV_RING_RXQ_MAX; i++)
		destroy(v, &v->rxqs->q[i]);
}

static void count_rules(struct verbs_ring *v, uint64_t set, int by)
{
	for (; set; set &= set - 1)
		v->rxqs->q[__builtin_ctzll(set)].stat->rules += (uint32_t)by;
}

static void way_end(struct verbs_ring *v, struct verbs_way *way)
{
	if (way->qp && !v->forgotten)
		v->lib.destroy_qp(way->qp);
	if (way->table && !v->forgotten)
		ibv_destroy_rwq_ind_table(way->table);
	if (way->set)
		count_rules(v, way->set, -1);
	memset(way, 0, sizeof(*way));
}

/* 0: the device has taken the rule's former one back by now. */
static int end_stale(struct verbs_ring *v, struct verbs_flow *f)
{
	if (f->stale && pv_verbs_flow_destroy(v, f->stale))
		return -EBUSY;
	f->stale = NULL;
	way_end(v, &f->stale_way);
	return 0;
}

void pv_verbs_rxq_sweep(struct verbs_ring *v)
{
	for (struct verbs_flow *f = v->flows; f; f = f->next)
		if (f->stale)
			(void)end_stale(v, f);
	for (uint32_t i = 1; i <= PV_RING_RXQ_MAX; i++) {
		struct verbs_beside *q = &v->rxqs->q[i];

		if (!q->closing || q->stat->rules || (q->stat->buffers && !v->gone))
			continue;
		destroy(v, q);
		v->rxqs->closing--;
	}
}

static int create(struct verbs_ring *v, struct verbs_beside *q, uint32_t number)
{
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = 0, .ind_tbl = &q->wq };
	static const struct pv_flow any = { .kind = PV_FLOW_ALL };

	q->stat = pv_mem_alloc_shown(v->mem, sizeof(*q->stat));
	if (!q->stat)
		return -ENOMEM;
	*q->stat = (struct pv_rxq_stat){
		.ring = v->ring.stat, .number = number, .queue = v->ring.caps.queues - 1 + number, .depth = v->ring.caps.rxq_depth
	};
	q->stat->shown = pv_mem_show(v->mem, &pv_rxq_stat_type, q->stat);
	errno = 0;
	q->wq = pv_verbs_wq_open(v, v->ring.caps.rxq_depth);
	q->table = q->wq ? ibv_create_rwq_ind_table(v->ctx, &init) : NULL;
	q->qp = q->table ? pv_verbs_rss_over(v, q->table, &any, false) : NULL;
	return q->qp ? 0 : last_error();
}

/* All of its buffers: a pool that is short grows. How many it misses. */
static uint32_t fill(struct verbs_ring *v, uint32_t number)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	uint32_t missing = v->ring.caps.rxq_depth, k = 1;

	while (v->ring.pool->nfree < missing + v->ring.pool->total / 8)
		if (pv_pool_grow(v->ring.pool))
			return missing;
	while (missing && k) {
		uint32_t n = PV_MIN(missing, PV_RING_BATCH_MAX);

		for (uint32_t i = 0; i < n; i++)
			pkts[i] = pv_pkt_get(v->ring.pool);
		k = post_to(v, number, pkts, n);
		for (uint32_t i = k; i < n; i++)
			pv_pkt_put(pkts[i]);
		missing -= k;
	}
	return missing;
}

/* Every buffer of it completes now. */
static void give_up(struct verbs_ring *v, struct verbs_beside *q)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_ERR };

	q->closing = true;
	v->rxqs->surplus += v->ring.caps.rxq_depth - q->stat->buffers;
	v->rxqs->closing++;
	v->rxqs->open--;
	pull(v, 0); /* before that what it received */
	if (ibv_modify_wq(q->wq, &attr))
		v->events |= 1u << PV_RING_EV_ERROR;
	pull(v, 0);
	pv_verbs_rxq_sweep(v);
}

int pv_verbs_rxq_open(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_rxqs *x = v->rxqs;
	uint32_t number = 1, missing;
	int rc;

	if (v->gone)
		return -ENODEV;
	pv_verbs_rxq_sweep(v);
	while (number <= r->caps.rxqs && x->q[number].wq)
		number++;
	if (number > r->caps.rxqs)
		return -ENOSPC;
	rc = create(v, &x->q[number], number);
	if (rc) {
		destroy(v, &x->q[number]);
		return rc;
	}
	x->open++;
	missing = fill(v, number);
	if (!missing)
		return (int)number;
	give_up(v, &x->q[number]);
	x->surplus -= missing; /* those it never had */
	return v->gone ? -ENODEV : -ENOBUFS;
}

/* By a rule of ours, that is: one that the device did not take back is in another's shade, and brings nothing. */
static bool is_led_to(const struct verbs_ring *v, uint32_t number)
{
	for (const struct verbs_flow *f = v->flows; f; f = f->next)
		if (f->way.set >> number & 1)
			return true;
	return false;
}

int pv_verbs_rxq_close(struct pv_ring *r, uint32_t rxq)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_beside *q = find(v, rxq);

	if (!q)
		return -ENOENT;
	if (is_led_to(v, rxq))
		return -EBUSY;
	give_up(v, q);
	return 0;
}

/* ---- rules ------------------------------------------------------------------------------------------------------------- */

static int way_over(struct verbs_ring *v, const struct pv_flow *flow, struct verbs_way *way)
{
	struct ibv_wq *list[SPREAD_TABLE];
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = (uint32_t)__builtin_ctz(SPREAD_TABLE), .ind_tbl = list };
	uint64_t left = 0;

	for (uint32_t i = 0; i < SPREAD_TABLE; i++) {
		left = left ? left : way->set;
		list[i] = v->rxqs->q[__builtin_ctzll(left)].wq;
		left &= left - 1;
	}
	errno = 0;
	way->table = ibv_create_rwq_ind_table(v->ctx, &init);
	way->qp = way->table ? pv_verbs_rss_over(v, way->table, flow, true) : NULL;
	return way->qp ? 0 : last_error();
}

/* The queue pair that leads to a set. */
static int way_get(struct verbs_ring *v, const struct pv_flow *flow, uint64_t set, struct verbs_way *way, struct ibv_qp **qp)
{
	int rc;

	*way = (struct verbs_way){ .set = set };
	count_rules(v, set, 1);
	*qp = v->qp;
	if (!set)
		return v->rss ? pv_verbs_rss_qp(v, flow, 0, qp) : 0;
	if (!(set & (set - 1))) {
		*qp = v->rxqs->q[__builtin_ctzll(set)].qp;
		return 0;
	}
	rc = way_over(v, flow, way);
	*qp = way->qp;
	return rc;
}

void pv_verbs_rxq_unuse(struct verbs_ring *v, struct verbs_flow *f)
{
	if (f->stale && !v->forgotten)
		(void)pv_verbs_flow_destroy(v, f->stale);
	f->stale = NULL;
	way_end(v, &f->stale_way);
	way_end(v, &f->way);
}

/* Does one of the queues wait for buffers? Frames may wait behind it, where a device lets them. */
static bool starved(const struct verbs_ring *v, uint64_t set)
{
	const struct verbs_rxqs *x = v->rxqs;

	for (uint32_t i = 0; !set && v->rss && i < v->rss->n; i++)
		if (!v->rss->q[i].out)
			return true;
	if (!set && !v->rss)
		return !x->out;
	for (; set; set &= set - 1)
		if (!x->q[__builtin_ctzll(set)].stat->buffers)
			return true;
	return false;
}

static int move(struct verbs_ring *v, struct verbs_flow *f, uint64_t set)
{
	uint32_t level = !set ? 0 : f->level == 1 ? 2 : 1;
	bool down = level < f->level;
	struct ibv_flow *flow;
	struct verbs_way way;
	struct ibv_qp *qp;
	int rc = end_stale(v, f); /* its priority may be the one that the new rule would have */

	if (rc)
		return rc;
	pull(v, set ? set : FIRST);
	if (starved(v, f->way.set))
		return -EAGAIN;
	rc = way_get(v, &f->of, set, &way, &qp);
	if (!rc)
		rc = pv_verbs_flow_create(v, &f->of, qp, level, &flow);
	if (rc) {
		way_end(v, &way);
		return rc;
	}
	/* One of the two is in the other's shade now. If that is the new one, it counts once the old one is gone. */
	rc = down ? pv_verbs_flow_destroy(v, f->flow[0]) : 0;
	if (rc) {
		f->stale = flow;
		f->stale_way = way;
		(void)end_stale(v, f);
		return rc;
	}
	if (!down)
		f->stale = f->flow[0];
	f->stale_way = f->way;
	f->flow[0] = flow;
	f->way = way;
	f->level = level;
	(void)end_stale(v, f);
	pull(v, set ? set : FIRST);
	return 0;
}

void pv_verbs_rxq_drain(struct verbs_ring *v)
{
	pull(v, FIRST);
}

/* Two rules of one match on those two steps: the device would give each of them every frame. */
static bool has_twin(const struct verbs_ring *v, const struct verbs_flow *f)
{
	for (const struct verbs_flow *o = v->flows; o; o = o->next)
		if (o != f && (o->way.set || o->stale) && pv_verbs_flow_same(v, &o->of, &f->of))
			return true;
	return false;
}

/* Could the rule lead to these queues? */
static int check(struct verbs_ring *v, const struct verbs_flow *f, uint64_t set)
{
	if (f->of.kind < PV_FLOW_3TUPLE || f->of.match)
		return -EOPNOTSUPP;
	if (set & FIRST)
		return -ENOENT;
	for (uint64_t left = set; left; left &= left - 1)
		if (!find(v, (uint32_t)__builtin_ctzll(left)))
			return -ENOENT;
	return set && !f->way.set && has_twin(v, f) ? -EEXIST : 0;
}

int pv_verbs_rxq_lead(struct verbs_ring *v, struct verbs_flow *f, uint64_t set)
{
	int rc = check(v, f, set);

	if (!rc)
		rc = move(v, f, set);
	f->n = !rc;
	return rc;
}

int pv_verbs_flow_move(struct pv_ring *r, uint64_t handle, uint64_t set)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_flow *f = pv_verbs_flow_find(v, handle);

	int rc;

	if (v->gone)
		return -ENODEV;
	if (!f)
		return -ENOENT;
	rc = f->n == 1 ? check(v, f, set) : -EOPNOTSUPP;
	return rc || set == f->way.set ? rc : move(v, f, set);
}
