/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers. The owner posts as many as the legs it began with take, and one for each frame it gets. They go to the leg that misses most.
 * A leg that comes later is filled from the pool by the bond, and one that goes gives its buffers back there: the owner need not know. What
 * no leg needs goes to the pool as well.
 */
#include "ring/bond_priv.h"

static void set_key(const struct bond_leg *l, struct pv_pkt *p)
{
	if (l->binder)
		p->key = pv_pool_key(p, l->binder);
}

static uint32_t give(struct bond_leg *l, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t k;

	for (uint32_t i = 0; l->binder && i < n; i++)
		set_key(l, pkts[i]);
	k = pv_ring_rx_post(l->ring, pkts, n);
	l->rx_out += k;
	return k;
}

static uint32_t missing(const struct bond_leg *l)
{
	uint32_t depth = l->ring->caps.rx_depth;

	return l->gone || l->rx_out >= depth ? 0 : depth - l->rx_out;
}

/* The leg that misses most. Buffers that a device failed with are in nobody's count: every leg is asked in the end. */
static struct bond_leg *neediest(const struct bond *b, uint32_t asked)
{
	struct bond_leg *best = NULL;

	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];

		if (!(asked >> i & 1) && !l->gone && (!best || missing(l) > missing(best)))
			best = l;
	}
	return best;
}

static uint32_t number(const struct bond *b, const struct bond_leg *l)
{
	uint32_t i = 0;

	while (b->leg[i] != l)
		i++;
	return i;
}

static uint32_t spread(struct bond *b, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t done = 0, asked = 0;
	struct bond_leg *l;

	while (done < n && (l = neediest(b, asked))) {
		uint32_t want = PV_MAX(missing(l), 1u), k = give(l, pkts + done, PV_MIN(n - done, want));

		done += k;
		if (!k)
			asked |= 1u << number(b, l);
	}
	return done;
}

uint32_t pv_bond_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct bond *b = bond(r);
	uint32_t room = r->caps.rx_depth - PV_MIN(b->posted, r->caps.rx_depth), k;

	b->started = true;
	n = PV_MIN(n, r->caps.batch);
	k = b->nlegs == 1 && !b->leg[0]->gone ? give(b->leg[0], pkts, n) : spread(b, pkts, n);
	for (; k < n && k < room; k++)
		pv_pkt_put(pkts[k]);
	b->posted = PV_MIN(b->posted + k, r->caps.rx_depth);
	return k;
}

void pv_bond_rx_fill(struct bond *b, struct bond_leg *l)
{
	struct pv_pool *pool = b->ring.pool;

	/* A quarter of the pool stays for sending. */
	l->short_of = false;
	for (uint32_t n = missing(l); n; n--) {
		struct pv_pkt *p = pool->nfree > pool->total / 4 ? pv_pkt_get(pool) : NULL;

		l->short_of = !p;
		if (!p)
			return;
		if (!give(l, &p, 1)) {
			pv_pkt_put(p);
			return;
		}
	}
}

void pv_bond_rx_top_up(struct bond *b)
{
	for (uint32_t i = 0; i < b->nlegs; i++)
		if (b->leg[i]->short_of)
			pv_bond_rx_fill(b, b->leg[i]);
}

/* ---- frames ------------------------------------------------------------------------------------------------------------ */

/* What a backup brings: its buffer goes back to it. */
static void unheard(struct bond *b, struct bond_leg *l, struct pv_pkt **pkts, uint32_t n)
{
	b->mine.rx_backup += n;
	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p = pkts[i];

		if (p->frag)
			pv_pkt_put(p->frag);
		p->frag = NULL;
		p->data = p->buf + b->ring.pool->headroom;
		p->len = p->total = p->flags = 0;
		if (!give(l, &p, 1))
			pv_pkt_put(p);
	}
}

static uint32_t take(struct bond *b, struct bond_leg *l, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t got = pv_ring_rx_poll(l->ring, pkts, n), more = l->ring->rx_more;

	if (pv_likely(!(got | more)))
		return 0;
	l->ring->rx_more = 0;
	l->rx_out -= PV_MIN(l->rx_out, got + more);
	if (pv_unlikely(l->deaf)) {
		l->short_of |= more != 0;
		unheard(b, l, pkts, got);
		return 0;
	}
	b->ring.rx_more += more;
	b->posted -= PV_MIN(b->posted, got + more);
	for (uint32_t i = 0; b->rx_stamps && l != b->stamp_leg && i < got; i++)
		pkts[i]->flags &= ~PV_PKT_TSTAMP;
	return got;
}

/* Each call begins with the next leg. */
uint32_t pv_bond_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct bond *b = bond(r);
	uint32_t got = 0, at;

	if (pv_unlikely(b->held.count))
		got = pv_ring_give_first(&b->held, pkts, PV_MIN(n, r->caps.batch));
	if (pv_unlikely(b->again.count))
		pv_bond_again(b);
	if (pv_likely(b->nlegs == 1))
		return got + take(b, b->leg[0], pkts + got, n - got);
	if (!b->nlegs)
		return got;
	at = b->turn++ % b->nlegs;
	for (uint32_t i = 0; i < b->nlegs && got < n; i++) {
		got += take(b, b->leg[at], pkts + got, n - got);
		at = at + 1 < b->nlegs ? at + 1 : 0;
	}
	return got;
}

void pv_bond_rx_drain(struct bond *b, struct bond_leg *l)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	uint32_t n;

	/* No more than it has buffers for: it gets none meanwhile. */
	for (uint32_t most = l->ring->caps.rx_depth; most; most -= PV_MIN(most, n)) {
		n = take(b, l, pkts, PV_RING_BATCH_MAX);
		if (!n)
			return;
		/* By the time they are looked at the clock is another leg's. */
		for (uint32_t i = 0; i < n; i++) {
			pkts[i]->flags &= ~PV_PKT_TSTAMP;
			bond_hold(&b->held, pkts[i]);
		}
	}
}
