/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A dropped frame's buffer is posted again, so that the ring beneath never runs dry of what its owner believes it has. A duplicate
 * is a second packet of the pool and waits in `ready` when the caller's array is full.
 */
#include "ring/fault.h"

#include <errno.h>

#include "base/rng.h"
#include "ring/own.h"

struct fault_ring {
	struct pv_ring ring;
	struct pv_ring *lower;
	const struct pv_mem *mem;
	struct pv_fault_cfg cfg;
	struct pv_rng rng;
	struct pv_pktq ready; /* received, for the next rx_poll */
	struct pv_pktq tx_done; /* dropped, to be reaped */
	bool flapped; /* we said LINK_DOWN, LINK_UP is due */
	bool broken; /* we said ERROR */
	struct pv_fault_stats stats;
};

static struct fault_ring *fault(struct pv_ring *r)
{
	return pv_container_of(r, struct fault_ring, ring);
}

static bool chance(struct fault_ring *f, uint32_t ppm)
{
	return ppm && pv_rng_below(&f->rng, 1000000) < ppm;
}

static uint32_t fault_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct fault_ring *f = fault(r);

	if (n && chance(f, f->cfg.rx_post_short_ppm)) {
		f->stats.rx_post_short++;
		n = (uint32_t)pv_rng_below(&f->rng, n);
	}
	return n ? pv_ring_rx_post(f->lower, pkts, n) : 0;
}

static void hold(struct pv_pktq *q, struct pv_pkt *p)
{
	pv_ring_take(p);
	pv_pktq_push(q, p);
}

static struct pv_pkt *copy_of(const struct pv_pkt *p)
{
	struct pv_pkt *c = p->frag ? NULL : pv_pkt_get(p->pool);

	if (!c)
		return NULL;
	if (pv_pkt_tailroom(c) < p->len) {
		pv_pkt_put(c);
		return NULL;
	}
	memcpy(c->data, p->data, p->len);
	c->len = c->total = p->len;
	c->flags = p->flags;
	c->vlan_tci = p->vlan_tci;
	c->tstamp = p->tstamp;
	c->rss_hash = p->rss_hash;
	c->txq = p->txq;
	return c;
}

static void change(struct fault_ring *f, struct pv_pkt *p)
{
	const uint32_t verdicts = PV_PKT_L3_OK | PV_PKT_L3_BAD | PV_PKT_L4_OK | PV_PKT_L4_BAD | PV_PKT_L4_PARTIAL;

	if (p->len && chance(f, f->cfg.rx_corrupt_ppm)) {
		uint64_t bit = pv_rng_below(&f->rng, p->len * 8u);

		p->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		p->flags &= ~verdicts;
		f->stats.rx_corrupted++;
	}
	if (p->len && chance(f, f->cfg.rx_truncate_ppm)) {
		p->len = p->total = (uint32_t)pv_rng_below(&f->rng, p->len);
		if (p->frag)
			pv_pkt_put(p->frag);
		p->frag = NULL;
		p->flags &= ~verdicts;
		f->stats.rx_truncated++;
	}
}

static uint32_t fault_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct fault_ring *f = fault(r);
	uint32_t got = pv_ring_give_first(&f->ready, pkts, PV_MIN(n, r->caps.batch)), end, kept = got;

	end = got + pv_ring_rx_poll(f->lower, pkts + got, PV_MIN(n, r->caps.batch) - got);
	r->rx_more += f->lower->rx_more;
	f->lower->rx_more = 0;
	for (uint32_t i = got; i < end; i++) {
		struct pv_pkt *p = pkts[i], *twin;

		if (f->flapped || f->broken || chance(f, f->cfg.rx_drop_ppm)) {
			f->stats.rx_drops++;
			if (p->frag)
				pv_pkt_put(p->frag);
			p->frag = NULL;
			p->len = p->total = p->flags = 0;
			if (!pv_ring_rx_post(f->lower, &p, 1))
				pv_pkt_put(p);
			continue;
		}
		change(f, p);
		if (chance(f, f->cfg.rx_duplicate_ppm) && (twin = copy_of(p))) {
			f->stats.rx_duplicates++;
			hold(&f->ready, twin);
		}
		pkts[kept++] = p;
	}
	return kept;
}

/* Frames of one call leave in runs between those that are lost. */
static uint32_t fault_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct fault_ring *f = fault(r);
	uint32_t i = 0;

	if (n && chance(f, f->cfg.tx_post_short_ppm)) {
		f->stats.tx_post_short++;
		n = (uint32_t)pv_rng_below(&f->rng, n);
	}
	if (!f->cfg.tx_drop_ppm && !f->flapped && !f->broken)
		return n ? pv_ring_tx_post(f->lower, pkts, n) : 0;
	n = PV_MIN(n, r->caps.batch);
	for (; i < n && f->tx_done.count < r->caps.tx_depth; i++) {
		if (f->flapped || f->broken || chance(f, f->cfg.tx_drop_ppm)) {
			f->stats.tx_drops++;
			hold(&f->tx_done, pkts[i]);
		} else if (!pv_ring_tx_post(f->lower, &pkts[i], 1)) {
			break;
		}
	}
	return i;
}

static int fault_tx_kick(struct pv_ring *r)
{
	struct fault_ring *f = fault(r);

	if (chance(f, f->cfg.kick_again_ppm)) {
		f->stats.kick_again++;
		return -EAGAIN;
	}
	return pv_ring_tx_kick(f->lower);
}

static uint32_t fault_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct fault_ring *f = fault(r);
	uint32_t got;

	if (chance(f, f->cfg.reap_none_ppm)) {
		f->stats.reap_none++;
		return 0;
	}
	n = PV_MIN(n, r->caps.batch);
	got = pv_ring_give_first(&f->tx_done, pkts, n);
	return got + (got < n ? pv_ring_tx_reap(f->lower, pkts + got, n - got) : 0);
}

static int fault_arm(struct pv_ring *r)
{
	return fault(r)->ready.count ? 1 : pv_ring_arm(fault(r)->lower);
}

static int fault_notify_fd(struct pv_ring *r)
{
	return pv_ring_notify_fd(fault(r)->lower);
}

static int fault_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	return pv_ring_flow_add(fault(r)->lower, flow, handle);
}

static int fault_flow_del(struct pv_ring *r, uint64_t handle)
{
	return pv_ring_flow_del(fault(r)->lower, handle);
}

static int fault_rxq_open(struct pv_ring *r)
{
	return pv_ring_rxq_open(fault(r)->lower);
}

static int fault_rxq_close(struct pv_ring *r, uint32_t rxq)
{
	return pv_ring_rxq_close(fault(r)->lower, rxq);
}

static int fault_flow_gate(struct pv_ring *r, uint64_t handle, bool gated)
{
	return pv_ring_flow_gate(fault(r)->lower, handle, gated);
}

static int fault_gate(struct pv_ring *r, bool open)
{
	return pv_ring_gate(fault(r)->lower, open);
}

static int fault_flow_move(struct pv_ring *r, uint64_t handle, uint64_t set)
{
	return pv_ring_flow_move(fault(r)->lower, handle, set);
}

static int fault_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate)
{
	return pv_ring_txq_open(fault(r)->lower, rate);
}

static int fault_txq_close(struct pv_ring *r, uint32_t txq)
{
	return pv_ring_txq_close(fault(r)->lower, txq);
}

static int fault_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate)
{
	return pv_ring_set_rate(fault(r)->lower, txq, rate);
}

static uint32_t fault_txq_pending(struct pv_ring *r, uint32_t txq)
{
	return pv_ring_txq_pending(fault(r)->lower, txq);
}

static int fault_set_stamps(struct pv_ring *r, bool rx, bool tx)
{
	return pv_ring_set_stamps(fault(r)->lower, rx, tx);
}

static int fault_clock(struct pv_ring *r, uint64_t *now)
{
	return pv_ring_clock(fault(r)->lower, now);
}

static int fault_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out)
{
	return pv_ring_clock_info(fault(r)->lower, out);
}

static void fault_counters(struct pv_ring *r, struct pv_ring_counters *out)
{
	pv_ring_counters(fault(r)->lower, out);
}

static enum pv_ring_event fault_event(struct pv_ring *r)
{
	struct fault_ring *f = fault(r);
	enum pv_ring_event ev;

	if (f->flapped) {
		f->flapped = false;
		r->caps.link_up = true;
		return PV_RING_EV_LINK_UP;
	}
	/* Between events the state is the owner's to set, who may know more of the link. */
	ev = pv_ring_event(f->lower);
	if (ev != PV_RING_EV_NONE)
		r->caps.link_up = f->lower->caps.link_up;
	if (ev == PV_RING_EV_NONE && r->caps.link_up && chance(f, f->cfg.link_flap_ppm)) {
		f->stats.link_flaps++;
		f->flapped = true;
		r->caps.link_up = false;
		ev = PV_RING_EV_LINK_DOWN;
	}
	if (ev == PV_RING_EV_NONE && !f->broken && chance(f, f->cfg.error_ppm)) {
		f->stats.errors++;
		f->broken = true;
		ev = PV_RING_EV_ERROR;
	}
	return ev;
}

static void drain(struct pv_pktq *q)
{
	struct pv_pkt *p;

	while ((p = pv_pktq_pop(q))) {
		p->next = NULL;
		pv_ring_drop(p);
	}
}

static void fault_free(struct fault_ring *f)
{
	drain(&f->ready);
	drain(&f->tx_done);
	f->mem->free(f->mem->ctx, f, sizeof(*f));
}

static void fault_close(struct pv_ring *r)
{
	pv_ring_close(fault(r)->lower);
	fault_free(fault(r));
}

static void fault_forget(struct pv_ring *r)
{
	pv_ring_forget(fault(r)->lower);
	fault_free(fault(r));
}

static const struct pv_ring_ops fault_ops = {
	.kind = "fault",
	.close = fault_close,
	.rx_post = fault_rx_post,
	.rx_poll = fault_rx_poll,
	.tx_post = fault_tx_post,
	.tx_kick = fault_tx_kick,
	.tx_reap = fault_tx_reap,
	.arm = fault_arm,
	.notify_fd = fault_notify_fd,
	.flow_add = fault_flow_add,
	.flow_del = fault_flow_del,
	.flow_gate = fault_flow_gate,
	.gate = fault_gate,
	.rxq_open = fault_rxq_open,
	.rxq_close = fault_rxq_close,
	.flow_move = fault_flow_move,
	.txq_open = fault_txq_open,
	.txq_close = fault_txq_close,
	.set_rate = fault_set_rate,
	.txq_pending = fault_txq_pending,
	.set_stamps = fault_set_stamps,
	.clock = fault_clock,
	.clock_info = fault_clock_info,
	.counters = fault_counters,
	.event = fault_event,
	.forget = fault_forget,
};

int pv_fault_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_ring *lower, const struct pv_fault_cfg *cfg)
{
	struct fault_ring *f = mem->alloc(mem->ctx, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->mem = mem;
	f->lower = lower;
	f->cfg = *cfg;
	pv_rng_seed(&f->rng, cfg->seed);
	pv_pktq_init(&f->ready);
	pv_pktq_init(&f->tx_done);
	f->ring.ops = &fault_ops;
	f->ring.pool = lower->pool;
	f->ring.stat = lower->stat;
	f->ring.caps = lower->caps;
	f->ring.binder = lower->binder;
	*out = &f->ring;
	return 0;
}

void pv_fault_set(struct pv_ring *r, const struct pv_fault_cfg *cfg)
{
	fault(r)->cfg = *cfg;
}

void pv_fault_get_stats(struct pv_ring *r, struct pv_fault_stats *out)
{
	*out = fault(r)->stats;
}
