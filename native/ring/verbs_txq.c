/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send queues beside the first: queue pairs that only send, each with a completion queue of its own and a rate, over the memory
 * that the ring registered. Every WR of theirs is signalled, so that what has left is known to the frame; the first queue's data
 * path sees of all this one test of a list.
 *
 * `dirty` are the queues that the next kick rings for, `busy` those with WRs outstanding: a reap looks at some of them in turn. A
 * queue that was closed stays until it is empty.
 */
#include <errno.h>

#include "ring/verbs_priv.h"

#define POLL_QUEUES 8u /* queues that one reap looks at */

static struct verbs_txq *of_busy(struct pv_list *n)
{
	return pv_list_entry(n, struct verbs_txq, busy);
}

/* ---- rates ------------------------------------------------------------------------------------------------------------- */

static int answer(int rc)
{
	return rc > 0 ? -rc : rc;
}

/* On a queue pair in RTS. */
static int rate_set(struct verbs_ring *v, struct ibv_qp *qp, const struct pv_ring_rate *rate)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .rate_limit = (uint32_t)rate->kbps };
	struct ibv_qp_rate_limit_attr limit = { .rate_limit = (uint32_t)rate->kbps };

	/* A usual length without a burst is refused by some, and so is either without a rate. */
	if (rate->kbps && rate->burst_bytes) {
		limit.max_burst_sz = rate->burst_bytes;
		limit.typical_pkt_sz = rate->typical_len;
	}
	switch (v->rate_way) {
	case VERBS_RATE_LIMIT:
		return answer(ibv_modify_qp_rate_limit(qp, &limit));
	case VERBS_RATE_RTS:
		return answer(v->lib.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT));
	default:
		return -EOPNOTSUPP;
	}
}

/* Starts a queue pair that keeps to a rate. */
static int start(struct verbs_ring *v, struct ibv_qp *qp, const struct pv_ring_rate *rate)
{
	bool on_the_way = v->rate_way == VERBS_RATE_TRANSITION;
	int rc = pv_verbs_qp_start(v, qp, on_the_way ? (uint32_t)rate->kbps : 0);

	return rc || on_the_way || !rate->kbps ? rc : rate_set(v, qp, rate);
}

/* What the device says of rates is tried on a queue pair that nobody uses: how they are set, and whether bursts are heeded. */
void pv_verbs_rate_probe(struct verbs_ring *v)
{
	struct pv_ring_caps *caps = &v->ring.caps;
	const struct pv_ring_rate plain = { .kbps = PV_MAX(caps->pacing_min_kbps, PV_MIN(1000u, caps->pacing_max_kbps)) };
	const struct pv_ring_rate burst = { .kbps = plain.kbps, .burst_bytes = 2 * (caps->mtu + 18), .typical_len = 100 };
	struct verbs_qp_ask ask = { .send_cq = v->tx.cq, .recv_cq = v->tx.cq, .send_wr = 1, .sge = 1 };
	static const enum verbs_rate_way ways[] = { VERBS_RATE_LIMIT, VERBS_RATE_RTS, VERBS_RATE_TRANSITION };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp *qp;

	if (!caps->pacing_max_kbps)
		return;
	qp = pv_verbs_qp_create(v, &ask);
	for (size_t i = 0; qp && i < pv_array_size(ways); i++) {
		v->rate_way = ways[i];
		if (!start(v, qp, &plain))
			break;
		v->rate_way = VERBS_RATE_NONE;
		if (v->lib.modify_qp(qp, &reset, IBV_QP_STATE))
			break;
	}
	caps->pacing_burst = v->rate_way == VERBS_RATE_LIMIT && !rate_set(v, qp, &burst);
	if (qp)
		v->lib.destroy_qp(qp);
	if (v->rate_way == VERBS_RATE_NONE)
		caps->pacing_min_kbps = caps->pacing_max_kbps = 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------------- */

/* The device's part of it. */
static void shut(struct verbs_ring *v, struct verbs_txq *q)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (q->qpx && q->batch)
		ibv_wr_abort(q->qpx);
	if (q->qp) {
		v->lib.modify_qp(q->qp, &attr, IBV_QP_STATE);
		v->lib.destroy_qp(q->qp);
	}
	if (q->cq)
		v->lib.destroy_cq(q->cq);
	q->qp = NULL;
	q->qpx = NULL;
	q->cq = NULL;
}

static void destroy(struct verbs_ring *v, struct verbs_txq *q)
{
	pv_list_del(&q->busy);
	if (!v->forgotten)
		shut(v, q);
	pv_verbs_txq_reclaim(q);
	pv_verbs_txq_fini(v, q);
	v->nbeside--;
	v->mem->free(v->mem->ctx, q, sizeof(*q));
}

static struct verbs_txq *create(struct verbs_ring *v, const struct pv_ring_rate *rate, int *err)
{
	struct verbs_txq *q = v->mem->alloc(v->mem->ctx, sizeof(*q));
	struct verbs_qp_ask ask = v->ask;

	*err = -ENOMEM;
	if (!q)
		return NULL;
	v->nbeside++;
	pv_list_init(&q->busy);
	if (pv_verbs_txq_init(v, q, PV_MIN(v->ring.caps.tx_depth, VERBS_TXQ_DEPTH)))
		goto fail;
	q->signal_every = 1;
	q->rate = *rate;
	errno = 0;
	q->cq = pv_verbs_create_cq(v, q->depth, NULL, &q->cqx);
	ask.send_cq = ask.recv_cq = q->cq;
	ask.send_wr = q->depth;
	ask.recv_wr = 0;
	q->qp = q->cq ? pv_verbs_qp_create(v, &ask) : NULL;
	if (!q->qp) {
		*err = errno ? -errno : -ENOMEM;
		goto fail;
	}
	if (ask.extended)
		q->qpx = v->lib.qp_to_qp_ex(q->qp);
	*err = start(v, q->qp, rate);
	if (!*err)
		return q;
fail:
	destroy(v, q);
	return NULL;
}

static bool drained(struct verbs_ring *v, struct verbs_txq *q)
{
	if (!v->gone && q->sq_head != q->sq_kicked)
		pv_verbs_tx_poll(v, q);
	return q->sq_head == q->sq_tail && !q->dirty;
}

/* Ends the closed queues that are empty by now. */
void pv_verbs_txq_sweep(struct verbs_ring *v)
{
	for (struct verbs_txq **at = &v->closing; *at;) {
		struct verbs_txq *q = *at;

		if (!drained(v, q)) {
			at = &q->next;
			continue;
		}
		*at = q->next;
		if (v->beside[q->number] == q)
			v->beside[q->number] = NULL;
		destroy(v, q);
	}
}

/* The queue takes nothing more; its number goes to another at once, or to none until it is empty. */
static void retire_queue(struct verbs_ring *v, struct verbs_txq *q, struct verbs_txq *heir)
{
	q->closing = true;
	q->next = v->closing;
	v->closing = q;
	if (heir)
		v->beside[q->number] = heir;
}

static struct verbs_txq *find(struct verbs_ring *v, uint32_t txq)
{
	struct verbs_txq *q = txq && txq <= PV_RING_TXQ_MAX ? v->beside[txq] : NULL;

	return q && !q->closing ? q : NULL;
}

int pv_verbs_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t number = 1;
	int rc;

	if (v->gone)
		return -ENODEV;
	pv_verbs_txq_sweep(v);
	while (number <= r->caps.txqs && v->beside[number])
		number++;
	if (number > r->caps.txqs)
		return -ENOSPC;
	v->beside[number] = create(v, rate, &rc);
	if (rc)
		return rc;
	v->beside[number]->number = (uint8_t)number;
	return (int)number;
}

int pv_verbs_txq_close(struct pv_ring *r, uint32_t txq)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_txq *q = find(v, txq);

	if (!q)
		return -ENOENT;
	retire_queue(v, q, NULL);
	pv_verbs_txq_sweep(v);
	return 0;
}

int pv_verbs_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_txq *q = find(v, txq), *heir;
	int rc;

	if (v->gone)
		return -ENODEV;
	if (txq && !q)
		return -ENOENT;
	if (v->rate_way != VERBS_RATE_TRANSITION || !q) {
		rc = rate_set(v, q ? q->qp : v->qp, rate);
		if (!rc && q)
			q->rate = *rate;
		return rc;
	}
	/* Only a queue pair that starts can be given one: another takes the number, and what this one has still leaves. */
	heir = create(v, rate, &rc);
	if (!heir)
		return rc;
	heir->number = q->number;
	retire_queue(v, q, heir);
	pv_verbs_txq_sweep(v);
	return 0;
}

uint32_t pv_verbs_txq_pending(struct pv_ring *r, uint32_t txq)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_txq *q = !txq ? &v->tx : txq <= PV_RING_TXQ_MAX ? v->beside[txq] : NULL;
	uint32_t left;

	if (!q)
		return 0;
	drained(v, q);
	left = q->sq_tail - q->sq_head;
	for (q = v->closing; q; q = q->next)
		if (txq && q->number == txq && q != v->beside[txq])
			left += drained(v, q) ? 0 : q->sq_tail - q->sq_head;
	return left;
}

/* ---- the data path ----------------------------------------------------------------------------------------------------- */

/* The queue that a packet names, with room for it; NULL and what to answer to its owner: it is to be offered again, or is taken and
 * has failed. */
struct verbs_txq *pv_verbs_txq_use(struct verbs_ring *v, const struct pv_pkt *p, bool *again)
{
	struct verbs_txq *q = find(v, pv_pkt_txq(p));

	*again = false;
	if (!q)
		return NULL;
	/* The queue that had the number before goes first. */
	for (struct verbs_txq *c = v->closing; c; c = c->next) {
		if (c->number == q->number && !drained(v, c)) {
			*again = true;
			return NULL;
		}
	}
	if (q->sq_tail - q->sq_head >= q->depth) {
		pv_verbs_tx_poll(v, q);
		if (q->sq_tail - q->sq_head >= q->depth) {
			*again = true;
			return NULL;
		}
	}
	if (!q->dirty) {
		q->dirty = true;
		q->next_dirty = v->dirty;
		v->dirty = q;
	}
	if (pv_list_empty(&q->busy))
		pv_list_add(&v->busy, &q->busy);
	return q;
}

int pv_verbs_txq_kick(struct verbs_ring *v, int (*kick)(struct verbs_ring *v, struct verbs_txq *q))
{
	int rc = 0;

	while (v->dirty && !rc) {
		struct verbs_txq *q = v->dirty;

		v->dirty = q->next_dirty;
		q->dirty = false;
		rc = kick(v, q);
	}
	return rc;
}

void pv_verbs_txq_poll(struct verbs_ring *v)
{
	const struct pv_list *last = v->busy.prev;
	bool end = false;

	/* Each one once: a busy one is put behind the last. */
	for (uint32_t i = 0; !end && i < POLL_QUEUES && !v->gone && !pv_list_empty(&v->busy); i++) {
		struct verbs_txq *q = of_busy(v->busy.next);

		end = &q->busy == last;
		pv_verbs_tx_poll(v, q);
		pv_list_del(&q->busy);
		if (q->sq_head != q->sq_tail)
			pv_list_add(&v->busy, &q->busy);
	}
}

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

void pv_verbs_txq_all(struct verbs_ring *v, void (*each)(struct verbs_ring *v, struct verbs_txq *q))
{
	for (uint32_t i = 1; i <= PV_RING_TXQ_MAX; i++)
		if (v->beside[i] && !v->beside[i]->closing)
			each(v, v->beside[i]);
	for (struct verbs_txq *q = v->closing, *next; q; q = next) {
		next = q->next;
		each(v, q);
	}
}

void pv_verbs_txq_shut(struct verbs_ring *v)
{
	pv_verbs_txq_all(v, shut);
}

void pv_verbs_txq_clear(struct verbs_ring *v)
{
	pv_verbs_txq_all(v, destroy);
	v->closing = v->dirty = NULL;
	memset(v->beside, 0, sizeof(v->beside));
}
