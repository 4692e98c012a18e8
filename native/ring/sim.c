/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames under way are copies in a heap ordered by (time due, number): ties go to the earlier frame, so a run depends on nothing
 * but its seed and its calls. With a rate set a frame is in the heap twice in turn: until its last bit has left (it occupies the
 * sender's queue), then until it arrives.
 */
#include <errno.h>

#include "ring/own.h"
#include "ring/sim_priv.h"

#define DEFAULT_DEPTH 256u
#define DEFAULT_QUEUE 1000u
#define SLAB_FRAMES 32u
#define FRAMES_MAX 65536u /* under way on one wire; more are lost like on a full queue */
#define ETH_OVERHEAD 18u /* header and one VLAN tag */
#define MTU_MAX 65521u
#define TSO_PIECES 48u
#define REORDER_NS (20 * PV_NS_PER_US)

/* Copies come in three sizes, so that small frames do not cost jumbo memory. */
static const uint32_t class_size[SIM_CLASSES] = { 2048, 10240, MTU_MAX + ETH_OVERHEAD };

static bool chance(struct pv_sim_wire *w, uint32_t ppm)
{
	return ppm && pv_rng_below(&w->rng, 1000000) < ppm;
}

/* ---- frames under way -------------------------------------------------------------------------------------------------- */

static bool before(const struct frame *a, const struct frame *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->seq < b->seq;
}

static bool heap_reserve(struct pv_sim_wire *w)
{
	uint32_t cap = w->heap_cap ? w->heap_cap * 2 : 256;
	struct frame **heap;

	if (w->heap_len < w->heap_cap)
		return true;
	heap = w->mem->alloc(w->mem->ctx, cap * sizeof(*heap));
	if (!heap)
		return false;
	if (w->heap) {
		memcpy(heap, w->heap, w->heap_len * sizeof(*heap));
		w->mem->free(w->mem->ctx, w->heap, w->heap_cap * sizeof(*heap));
	}
	w->heap = heap;
	w->heap_cap = cap;
	return true;
}

static void heap_push(struct pv_sim_wire *w, struct frame *f)
{
	uint32_t i = w->heap_len++;

	while (i && before(f, w->heap[(i - 1) / 2])) {
		w->heap[i] = w->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap[i] = f;
}

static struct frame *heap_pop(struct pv_sim_wire *w)
{
	struct frame *top = w->heap[0], *last = w->heap[--w->heap_len];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < w->heap_len) {
		if (child + 1 < w->heap_len && before(w->heap[child + 1], w->heap[child]))
			child++;
		if (!before(w->heap[child], last))
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = last;
	return top;
}

static bool slab_add(struct pv_sim_wire *w, uint8_t cls)
{
	size_t step = (sizeof(struct frame) + class_size[cls] + 7) & ~(size_t)7;
	size_t size = sizeof(struct slab) + SLAB_FRAMES * step;
	struct slab *s = w->mem->alloc(w->mem->ctx, size);

	if (!s)
		return false;
	s->size = size;
	s->next = w->slabs;
	w->slabs = s;
	for (uint32_t i = 0; i < SLAB_FRAMES; i++) {
		struct frame *f = (struct frame *)(void *)(s->mem + i * step);

		f->cls = cls;
		f->next = w->free[cls];
		w->free[cls] = f;
	}
	return true;
}

static struct frame *frame_get(struct pv_sim_wire *w, uint32_t len)
{
	uint8_t cls = 0;
	struct frame *f;

	while (class_size[cls] < len)
		cls++;
	if (w->frames >= FRAMES_MAX || !heap_reserve(w) || (!w->free[cls] && !slab_add(w, cls)))
		return NULL;
	f = w->free[cls];
	w->free[cls] = f->next;
	w->frames++;
	f->len = len;
	f->leaving = false;
	f->seq = w->seq++;
	return f;
}

static void frame_put(struct pv_sim_wire *w, struct frame *f)
{
	f->next = w->free[f->cls];
	w->free[f->cls] = f;
	w->frames--;
}

/* ---- arrival ----------------------------------------------------------------------------------------------------------- */

static void trace(struct pv_sim_wire *w, const void *data, uint32_t len)
{
	const uint8_t *p = data;

	for (uint32_t i = 0; i < len; i++)
		w->trace = (w->trace ^ p[i]) * UINT64_C(0x100000001b3);
}

static bool rules_take(const struct sim_ring *s, const struct frame *f)
{
	struct pv_frame parsed;

	if (!s->rules)
		return true;
	if (!pv_frame_parse(f->data, f->len, &parsed))
		return false;
	for (const struct rule *r = s->rules; r; r = r->next)
		if (pv_frame_match(f->data, &parsed, &r->flow))
			return true;
	return false;
}

static void arrive_at(struct sim_ring *s, const struct frame *f)
{
	struct pv_ring_counters *c = &s->ring.stat->c;
	struct pv_pkt *p;

	if (!s->ring.caps.link_up || !rules_take(s, f))
		return;
	if (f->len > s->ring.caps.mtu + ETH_OVERHEAD) {
		c->rx_errors++;
		return;
	}
	p = pv_pktq_pop(&s->rx_free);
	if (!p) {
		c->rx_no_buf++;
		return;
	}
	/* A buffer that is too short is spent on the frame and posted again, as a receive queue would complete it with an error. */
	if (p->size - pv_pkt_headroom(p) < f->len) {
		c->rx_errors++;
		pv_pktq_push(&s->rx_free, p);
		return;
	}
	memcpy(p->data, f->data, f->len);
	p->len = p->total = f->len;
	p->tstamp = (uint64_t)f->due_ns;
	p->flags = (s->rx_stamps ? PV_PKT_TSTAMP : 0) | pv_frame_check_csum(f->data, f->len, s->ring.caps.rx_csum);
	pv_pktq_push(&s->rx_done, p);
	c->rx_packets++;
	c->rx_bytes += f->len;
	trace(s->wire, &f->due_ns, sizeof(f->due_ns));
	trace(s->wire, &s->number, sizeof(s->number));
	trace(s->wire, f->data, f->len);
}

static void arrive(struct pv_sim_wire *w, const struct frame *f)
{
	bool known = false;

	if (!(f->data[0] & 1))
		pv_list_for_each(it, &w->rings)
			known |= pv_mac_eq(pv_list_entry(it, struct sim_ring, link)->ring.caps.mac, f->data);
	pv_list_for_each(it, &w->rings) {
		struct sim_ring *s = pv_list_entry(it, struct sim_ring, link);

		if (s != f->src && (!known || pv_mac_eq(s->ring.caps.mac, f->data)))
			arrive_at(s, f);
	}
}

void pv_sim_run(struct pv_sim_wire *w)
{
	while (w->heap_len && w->heap[0]->due_ns <= w->now_ns) {
		struct frame *f = heap_pop(w);

		if (f->leaving) {
			f->leaving = false;
			if (f->src)
				f->src->queued--;
			f->due_ns = f->arrive_ns;
			heap_push(w, f);
			continue;
		}
		arrive(w, f);
		frame_put(w, f);
	}
}

/* ---- departure --------------------------------------------------------------------------------------------------------- */

static int64_t sent_ns(struct sim_ring *s, uint32_t len)
{
	const struct pv_sim_wire *w = s->wire;
	uint64_t rate = w->imp.rate_kbps;

	if (!rate)
		return w->now_ns;
	s->free_ns = PV_MAX(s->free_ns, w->now_ns) + (int64_t)(((uint64_t)len * 8 * 1000000 + rate - 1) / rate);
	return s->free_ns;
}

/* Puts one copy of a frame under way: the packet, whose pieces have been checked, or part `i` of what is to be cut. When its last bit leaves;
 * -1: it does not. */
static int64_t launch(struct sim_ring *s, const struct pv_pkt *p, uint32_t i, uint32_t len, bool corrupt)
{
	struct pv_sim_wire *w = s->wire;
	struct frame *f = frame_get(w, len);
	uint32_t off = 0;
	int64_t left_ns;

	if (!f)
		return -1;
	if (p->flags & PV_PKT_TX_TSO) {
		f->len = pv_frame_cut(p, i, f->data);
	} else {
		for (const struct pv_pkt *seg = p; seg; seg = seg->frag) {
			memcpy(f->data + off, seg->data, seg->len);
			off += seg->len;
		}
		if (p->flags & (PV_PKT_TX_L3_CSUM | PV_PKT_TX_L4_CSUM))
			pv_frame_fill_csum(f->data, len, p->flags);
	}
	len = f->len;
	if (corrupt) {
		uint64_t bit = pv_rng_below(&w->rng, len * 8u);

		f->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	f->src = s;
	f->due_ns = left_ns = sent_ns(s, len);
	f->arrive_ns = f->due_ns + w->imp.latency_ns;
	if (w->imp.jitter_ns)
		f->arrive_ns += (int64_t)pv_rng_below(&w->rng, (uint64_t)w->imp.jitter_ns + 1);
	if (chance(w, w->imp.reorder_ppm)) {
		int64_t hold = w->imp.latency_ns + REORDER_NS;

		f->arrive_ns += hold + (int64_t)pv_rng_below(&w->rng, (uint64_t)hold);
	} else {
		s->last_ns = f->arrive_ns = PV_MAX(f->arrive_ns, s->last_ns);
	}
	if (f->due_ns > w->now_ns) {
		f->leaving = true;
		s->queued++;
	} else {
		f->due_ns = f->arrive_ns;
	}
	heap_push(w, f);
	return left_ns;
}

/* How many frames a packet becomes, and the length of the longest; 0: it cannot be sent. */
uint32_t pv_sim_frames_of(const struct sim_ring *s, const struct pv_pkt *p, uint32_t *len)
{
	const struct pv_ring_caps *caps = &s->ring.caps;
	uint32_t n;

	if (!(p->flags & PV_PKT_TX_TSO)) {
		*len = pv_frame_len(p, caps->mtu, caps->max_sge);
		return caps->link_up && *len;
	}
	n = pv_frame_cuts(p, caps->mtu, caps->tso_max, caps->max_sge);
	*len = (uint32_t)p->gso_hdr + p->gso_size;
	return caps->link_up ? n : 0;
}

void pv_sim_count(struct sim_ring *s, const struct pv_pkt *p, uint32_t n, uint32_t len)
{
	struct pv_ring_counters *c = &s->ring.stat->c;

	if (!n) {
		c->tx_errors++;
		return;
	}
	c->tx_packets++;
	c->tx_bytes += p->flags & PV_PKT_TX_TSO ? p->total : len;
	c->tso_packets += (p->flags & PV_PKT_TX_TSO) != 0;
}

/* Frame `i` of a packet. When it has left; -1: nobody knows. */
int64_t pv_sim_transmit(struct sim_ring *s, struct pv_pkt *p, uint32_t i, uint32_t len)
{
	struct pv_sim_wire *w = s->wire;
	uint32_t limit = w->imp.queue_limit ? w->imp.queue_limit : DEFAULT_QUEUE;
	int64_t left_ns = -1;

	if (chance(w, w->imp.loss_ppm))
		return w->now_ns;
	for (uint32_t copies = chance(w, w->imp.duplicate_ppm) ? 2 : 1; copies && s->queued < limit; copies--) {
		int64_t ns = launch(s, p, i, len, chance(w, w->imp.corrupt_ppm));

		left_ns = left_ns < 0 ? ns : left_ns;
	}
	return left_ns;
}

/* When all of it has left; -1: nobody knows. */
static int64_t transmit(struct sim_ring *s, struct pv_pkt *p)
{
	uint32_t len, n = pv_sim_frames_of(s, p, &len);
	int64_t left_ns = -1;

	pv_sim_count(s, p, n, len);
	for (uint32_t i = 0; i < n; i++) {
		int64_t ns = pv_sim_transmit(s, p, i, len);

		left_ns = PV_MAX(left_ns, ns);
	}
	return left_ns;
}

/* A packet whose stamp is wanted is done when that time has come, any other when the frame was copied. */
void pv_sim_transmitted(struct sim_ring *s, struct pv_pkt *p, int64_t left_ns)
{
	if (p->flags & PV_PKT_TX_TSTAMP)
		p->flags &= ~PV_PKT_TSTAMP;
	if (!(p->flags & PV_PKT_TX_TSTAMP) || !s->tx_stamps || left_ns < 0) {
		pv_pktq_push(&s->tx_done, p);
		return;
	}
	p->flags |= PV_PKT_TSTAMP;
	p->tstamp = (uint64_t)left_ns;
	pv_pktq_push(&s->tx_timed, p);
}

static void tx_come_due(struct sim_ring *s)
{
	struct pv_pktq rest;
	struct pv_pkt *p;

	pv_pktq_init(&rest);
	while ((p = pv_pktq_pop(&s->tx_timed)))
		pv_pktq_push(!s->wire || (int64_t)p->tstamp <= s->wire->now_ns ? &s->tx_done : &rest, p);
	while ((p = pv_pktq_pop(&rest)))
		pv_pktq_push(&s->tx_timed, p);
}

/* ---- ring operations --------------------------------------------------------------------------------------------------- */

static uint32_t sim_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct sim_ring *s = sim(r);
	uint32_t held = s->rx_free.count + s->rx_done.count, i;

	if (!s->wire)
		return 0;
	n = PV_MIN(n, r->caps.batch);
	for (i = 0; i < n && held + i < r->caps.rx_depth; i++) {
		pv_ring_take(pkts[i]);
		pv_pktq_push(&s->rx_free, pkts[i]);
	}
	return i;
}

static uint32_t sim_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	return pv_ring_give_first(&sim(r)->rx_done, pkts, PV_MIN(n, r->caps.batch));
}

/* Some of them go by queues of their own. */
static pv_noinline uint32_t tx_post_queues(struct sim_ring *s, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t held = s->tx_wait.count + s->tx_timed.count + s->tx_done.count, most = PV_MIN(n, s->ring.caps.batch), i = 0;

	for (; s->wire && i < most; i++) {
		if (sim_goes_aside(s, pkts[i])) {
			if (!pv_sim_txq_post(s, pkts[i]))
				break;
			continue;
		}
		if (held++ >= s->ring.caps.tx_depth)
			break;
		pv_ring_take(pkts[i]);
		pv_pktq_push(&s->tx_wait, pkts[i]);
	}
	s->ring.stat->c.tx_full += i < n;
	return i;
}

static uint32_t sim_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct sim_ring *s = sim(r);
	uint32_t held = s->tx_wait.count + s->tx_timed.count + s->tx_done.count, offered = n, i;

	if (pv_unlikely(s->txq != NULL))
		return tx_post_queues(s, pkts, n);
	n = s->wire ? PV_MIN(n, r->caps.batch) : 0;
	for (i = 0; i < n && held + i < r->caps.tx_depth; i++) {
		pv_ring_take(pkts[i]);
		pv_pktq_push(&s->tx_wait, pkts[i]);
	}
	s->ring.stat->c.tx_full += i < offered;
	return i;
}

static int sim_tx_kick(struct pv_ring *r)
{
	struct sim_ring *s = sim(r);
	struct pv_pkt *p;

	if (!s->wire)
		return -ENODEV;
	if (!s->tx_wait.count && !s->wire->paced)
		return 0;
	s->ring.stat->c.doorbells++;
	while ((p = pv_pktq_pop(&s->tx_wait)))
		pv_sim_transmitted(s, p, transmit(s, p));
	pv_sim_run_until(s->wire, s->wire->now_ns);
	return 0;
}

static uint32_t sim_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	if (sim(r)->tx_timed.count)
		tx_come_due(sim(r));
	return pv_ring_give_first(&sim(r)->tx_done, pkts, PV_MIN(n, r->caps.batch));
}

static int sim_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	struct sim_ring *s = sim(r);
	struct rule *rule;

	if (!s->wire)
		return -ENODEV;
	rule = s->mem->alloc(s->mem->ctx, sizeof(*rule));
	if (!rule)
		return -ENOMEM;
	rule->flow = *flow;
	pv_frame_flow_mac(flow, r->caps.mac, rule->flow.dst_mac);
	rule->handle = *handle = ++s->next_handle;
	rule->next = s->rules;
	s->rules = rule;
	return 0;
}

static int sim_flow_del(struct pv_ring *r, uint64_t handle)
{
	struct sim_ring *s = sim(r);

	for (struct rule **at = &s->rules; *at; at = &(*at)->next) {
		struct rule *rule = *at;

		if (rule->handle != handle)
			continue;
		*at = rule->next;
		s->mem->free(s->mem->ctx, rule, sizeof(*rule));
		return 0;
	}
	return -ENOENT;
}

static int sim_set_stamps(struct pv_ring *r, bool rx, bool tx)
{
	sim(r)->rx_stamps = rx;
	sim(r)->tx_stamps = tx;
	return sim(r)->wire ? 0 : -ENODEV;
}

static int sim_clock(struct pv_ring *r, uint64_t *now)
{
	if (!sim(r)->wire)
		return -ENODEV;
	*now = (uint64_t)sim(r)->wire->now_ns;
	return 0;
}

/* The virtual time is the time of the day as well. */
static int sim_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out)
{
	uint64_t now = 0;
	int rc = sim_clock(r, &now);

	*out = (struct pv_ring_clock_info){ .cycles = now, .nsec = now, .mask = UINT64_MAX, .mult = 1 };
	return rc;
}

static enum pv_ring_event sim_event(struct pv_ring *r)
{
	struct sim_ring *s = sim(r);

	for (uint32_t ev = PV_RING_EV_LINK_UP; ev <= PV_RING_EV_ERROR; ev++) {
		if (s->events & 1u << ev) {
			s->events &= ~(1u << ev);
			return (enum pv_ring_event)ev;
		}
	}
	return PV_RING_EV_NONE;
}

/* Takes the ring off its wire: frames of it that are under way still arrive, but belong to nobody. */
static void detach(struct sim_ring *s)
{
	struct pv_sim_wire *w = s->wire;

	if (!w)
		return;
	for (uint32_t i = 0; i < w->heap_len; i++)
		if (w->heap[i]->src == s)
			w->heap[i]->src = NULL;
	for (uint32_t i = 0; s->txq && i <= s->ring.caps.txqs; i++)
		w->paced -= s->txq[i].wait.count;
	pv_list_del(&s->link);
	s->wire = NULL;
	s->ring.caps.link_up = false;
}

static void drain(struct pv_pktq *q)
{
	struct pv_pkt *p;

	while ((p = pv_pktq_pop(q))) {
		p->next = NULL;
		pv_ring_drop(p);
	}
}

static void sim_close(struct pv_ring *r)
{
	struct sim_ring *s = sim(r);

	detach(s);
	drain(&s->rx_free);
	drain(&s->rx_done);
	drain(&s->tx_wait);
	drain(&s->tx_timed);
	drain(&s->tx_done);
	for (uint32_t i = 0; s->txq && i <= r->caps.txqs; i++)
		drain(&s->txq[i].wait);
	if (s->txq)
		s->mem->free(s->mem->ctx, s->txq, (r->caps.txqs + 1) * sizeof(*s->txq));
	while (s->rules)
		sim_flow_del(r, s->rules->handle);
	pv_ring_stat_close(r, s->mem);
	s->mem->free(s->mem->ctx, s, sizeof(*s));
}

static const struct pv_ring_ops sim_ops = {
	.kind = "sim",
	.close = sim_close,
	.rx_post = sim_rx_post,
	.rx_poll = sim_rx_poll,
	.tx_post = sim_tx_post,
	.tx_kick = sim_tx_kick,
	.tx_reap = sim_tx_reap,
	.flow_add = sim_flow_add,
	.flow_del = sim_flow_del,
	.set_stamps = sim_set_stamps,
	.txq_open = pv_sim_txq_open,
	.txq_close = pv_sim_txq_close,
	.set_rate = pv_sim_set_rate,
	.txq_pending = pv_sim_txq_pending,
	.clock = sim_clock,
	.clock_info = sim_clock_info,
	.event = sim_event,
	.forget = sim_close, /* memory only: nothing that a child shares with its parent */
};

static void name_ring(struct pv_ring_caps *caps, uint32_t number)
{
	char digits[10];
	uint32_t n = 0, at = 4;

	memcpy(caps->name, "sim:", 4);
	do {
		digits[n++] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	while (n)
		caps->name[at++] = digits[--n];
	memcpy(caps->mode, "virtual time", sizeof("virtual time"));
}

static void fill_caps(struct pv_ring_caps *caps, const struct pv_sim_ring_cfg *cfg, uint32_t number)
{
	caps->mtu = cfg->mtu ? cfg->mtu : 1500;
	caps->rx_buf_min = caps->mtu + ETH_OVERHEAD;
	caps->rx_depth = cfg->rx_depth ? cfg->rx_depth : DEFAULT_DEPTH;
	caps->tx_depth = cfg->tx_depth ? cfg->tx_depth : DEFAULT_DEPTH;
	caps->batch = cfg->batch ? PV_MIN(cfg->batch, (uint32_t)PV_RING_BATCH_MAX) : PV_RING_BATCH_MAX;
	caps->max_sge = cfg->tso_max ? TSO_PIECES : 8;
	caps->tso_max = cfg->tso_max;
	caps->txqs = PV_MIN(cfg->txqs, (uint32_t)PV_RING_TXQ_MAX);
	caps->pacing_min_kbps = cfg->pacing_min_kbps;
	caps->pacing_max_kbps = cfg->pacing_max_kbps;
	caps->pacing_burst = cfg->pacing_burst;
	caps->rx_csum = cfg->rx_csum;
	caps->tx_csum = cfg->tx_csum;
	caps->tstamp = PV_TSTAMP_RAW;
	caps->tstamp_khz = 1000000;
	caps->tstamp_mask = UINT64_MAX;
	caps->tx_tstamp = true;
	caps->flow_kinds = (1u << PV_FLOW_KINDS) - 1;
	caps->queues = 1;
	caps->link_up = true;
	memcpy(caps->mac, cfg->mac, PV_ETH_ALEN);
	name_ring(caps, number);
}

int pv_sim_open(struct pv_ring **out, struct pv_sim_wire *w, struct pv_pool *pool, const struct pv_sim_ring_cfg *cfg)
{
	const struct pv_pool_cfg *pc = pv_pool_config(pool);
	struct sim_ring *s;

	if ((cfg->mtu && cfg->mtu < 68) || cfg->mtu > MTU_MAX)
		return -EINVAL;
	if (pc->buf_size - pc->headroom < (cfg->mtu ? cfg->mtu : 1500) + ETH_OVERHEAD)
		return -EINVAL;
	s = w->mem->alloc(w->mem->ctx, sizeof(*s));
	if (!s)
		return -ENOMEM;
	if (pv_ring_stat_open(&s->ring, w->mem)) {
		w->mem->free(w->mem->ctx, s, sizeof(*s));
		return -ENOMEM;
	}
	s->ring.ops = &sim_ops;
	s->ring.pool = pool;
	s->wire = w;
	s->mem = w->mem;
	if (cfg->txqs) {
		uint32_t n = PV_MIN(cfg->txqs, (uint32_t)PV_RING_TXQ_MAX) + 1;

		s->txq = w->mem->alloc(w->mem->ctx, n * sizeof(*s->txq));
		if (!s->txq) {
			pv_ring_stat_close(&s->ring, w->mem);
			w->mem->free(w->mem->ctx, s, sizeof(*s));
			return -ENOMEM;
		}
		for (uint32_t i = 0; i < n; i++)
			pv_pktq_init(&s->txq[i].wait);
		s->txq[0].open = true;
	}
	s->number = w->nrings++;
	fill_caps(&s->ring.caps, cfg, s->number);
	pv_pktq_init(&s->rx_free);
	pv_pktq_init(&s->rx_done);
	pv_pktq_init(&s->tx_wait);
	pv_pktq_init(&s->tx_timed);
	pv_pktq_init(&s->tx_done);
	pv_list_add(&w->rings, &s->link);
	*out = &s->ring;
	return 0;
}

/* ---- the wire ---------------------------------------------------------------------------------------------------------- */

int pv_sim_wire_open(struct pv_sim_wire **out, const struct pv_mem *mem, uint64_t seed)
{
	struct pv_sim_wire *w = mem->alloc(mem->ctx, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->mem = mem;
	pv_rng_seed(&w->rng, seed);
	w->trace = UINT64_C(0xcbf29ce484222325);
	pv_list_init(&w->rings);
	*out = w;
	return 0;
}

void pv_sim_wire_close(struct pv_sim_wire *w)
{
	const struct pv_mem *mem = w->mem;

	while (!pv_list_empty(&w->rings))
		pv_sim_vanish(&pv_list_entry(w->rings.next, struct sim_ring, link)->ring);
	while (w->slabs) {
		struct slab *s = w->slabs;

		w->slabs = s->next;
		mem->free(mem->ctx, s, s->size);
	}
	if (w->heap)
		mem->free(mem->ctx, w->heap, w->heap_cap * sizeof(struct frame *));
	mem->free(mem->ctx, w, sizeof(*w));
}

void pv_sim_wire_impair(struct pv_sim_wire *w, const struct pv_sim_impair *imp)
{
	w->imp = *imp;
}

void pv_sim_wire_advance(struct pv_sim_wire *w, int64_t now_ns)
{
	pv_sim_run_until(w, PV_MAX(now_ns, w->now_ns));
}

int64_t pv_sim_wire_deadline(const struct pv_sim_wire *w)
{
	struct sim_ring *s;
	struct sim_txq *q;
	int64_t next = pv_sim_txq_next(w, &s, &q);

	return w->heap_len ? PV_MIN(w->heap[0]->due_ns, next) : next;
}

uint64_t pv_sim_wire_trace(const struct pv_sim_wire *w)
{
	return w->trace;
}

void pv_sim_set_link(struct pv_ring *r, bool up)
{
	struct sim_ring *s = sim(r);

	if (!s->wire || r->caps.link_up == up)
		return;
	r->caps.link_up = up;
	/* Only the latest state is worth telling. */
	s->events &= ~(1u << PV_RING_EV_LINK_UP | 1u << PV_RING_EV_LINK_DOWN);
	s->events |= 1u << (up ? PV_RING_EV_LINK_UP : PV_RING_EV_LINK_DOWN);
}

static void fail_all(struct sim_ring *s, struct pv_pktq *q)
{
	struct pv_pkt *p;

	while ((p = pv_pktq_pop(q))) {
		s->ring.stat->c.tx_errors++;
		p->flags |= PV_PKT_TX_FLUSHED;
		pv_pktq_push(&s->tx_done, p);
	}
}

void pv_sim_vanish(struct pv_ring *r)
{
	struct sim_ring *s = sim(r);

	if (!s->wire)
		return;
	detach(s);
	fail_all(s, &s->tx_wait);
	for (uint32_t i = 0; s->txq && i <= r->caps.txqs; i++)
		fail_all(s, &s->txq[i].wait);
	s->events |= 1u << PV_RING_EV_GONE;
}
