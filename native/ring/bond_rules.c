/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What legs are asked for and remember by themselves: flow rules, transmit queues with their rates, stamps. The bond keeps its own list
 * of each, so that a leg that comes later is asked as well. A leg that has no rules at all gets its frames without (a TAP device: what the
 * host sends into it is ours).
 */
#include "ring/bond_priv.h"

#include <errno.h>

#include "ring/frame.h"

#define RULES_FIRST 64u

/* ---- rules ------------------------------------------------------------------------------------------------------------- */

static void *grown(const struct pv_mem *mem, void *old, size_t had, size_t want)
{
	void *p = mem->alloc(mem->ctx, want);

	if (p && had)
		memcpy(p, old, had);
	return p;
}

/* Twice as many slots, of the bond and of all legs, or nothing changes. */
static int grow(struct bond *b)
{
	uint32_t had = b->rules_room, want = had ? had * 2 : RULES_FIRST;
	const struct pv_mem *mem = b->mem;
	uint64_t *handle[PV_BOND_LEGS_MAX] = { NULL };
	struct bond_rule *rule = grown(mem, b->rule, had * sizeof(*rule), want * sizeof(*rule));
	bool all = rule != NULL;

	for (uint32_t i = 0; i < b->nlegs; i++) {
		handle[i] = grown(mem, b->leg[i]->handle, had * sizeof(uint64_t), want * sizeof(uint64_t));
		all &= handle[i] != NULL;
	}
	for (uint32_t i = 0; i < b->nlegs; i++) {
		uint64_t *old = all ? b->leg[i]->handle : handle[i];

		if (old)
			mem->free(mem->ctx, old, (all ? had : want) * sizeof(uint64_t));
		if (all)
			b->leg[i]->handle = handle[i];
	}
	if (!all) {
		if (rule)
			mem->free(mem->ctx, rule, want * sizeof(*rule));
		return -ENOMEM;
	}
	if (b->rule)
		mem->free(mem->ctx, b->rule, had * sizeof(*rule));
	b->rule = rule;
	b->rules_room = want;
	for (uint32_t i = want; i-- > had;) {
		rule[i].next_free = b->free_rule;
		b->free_rule = i;
	}
	return 0;
}

/* 0, or why the leg has it not. */
static int rule_on(struct bond *b, struct bond_leg *l, uint32_t slot)
{
	struct pv_flow flow = b->rule[slot].flow;
	int rc;

	if (l->gone || (pv_bond_needs_no_rules(l) && !(l->ring->caps.flow_kinds >> flow.kind & 1)))
		return 0;
	/* With fail_over_mac 1 each leg keeps its own address, and the bond has that of the leg that sends. */
	if (b->rule[slot].own_mac && b->cfg.fail_over_mac)
		memset(flow.dst_mac, 0, sizeof(flow.dst_mac));
	rc = pv_ring_flow_add(l->ring, &flow, &l->handle[slot]);
	if (rc) {
		l->handle[slot] = 0;
		b->mine.rules_refused++;
	}
	return rc;
}

static void rule_off(struct bond_leg *l, uint32_t slot)
{
	if (l->handle[slot] && !l->gone)
		(void)pv_ring_flow_del(l->ring, l->handle[slot]);
	l->handle[slot] = 0;
}

static bool is_own_mac(const struct bond *b, const struct pv_flow *flow)
{
	static const uint8_t none[PV_ETH_ALEN];

	if (pv_mac_eq(flow->dst_mac, none))
		return !(flow->kind >= PV_FLOW_IP && pv_addr_is_mcast(&flow->dst));
	return pv_mac_eq(flow->dst_mac, b->ring.caps.mac);
}

static void slot_free(struct bond *b, uint32_t slot)
{
	b->rule[slot].used = false;
	b->rule[slot].next_free = b->free_rule;
	b->free_rule = slot;
	b->nrules--;
}

int pv_bond_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	struct bond *b = bond(r);
	struct bond_rule *rule;
	uint32_t slot, refused = 0;
	int rc, why = 0;

	if (b->free_rule == UINT32_MAX && (rc = grow(b)))
		return rc;
	slot = b->free_rule;
	rule = &b->rule[slot];
	b->free_rule = rule->next_free;
	rule->flow = *flow;
	rule->own_mac = is_own_mac(b, flow);
	rule->used = true;
	rule->generation++;
	b->nrules++;
	/* A leg's own MAC need not be the bond's: which one is meant is said in full. */
	pv_frame_flow_mac(flow, r->caps.mac, rule->flow.dst_mac);
	for (uint32_t i = 0; i < b->nlegs; i++) {
		rc = rule_on(b, b->leg[i], slot);
		refused += rc != 0;
		why = rc ? rc : why;
	}
	if (refused && refused == b->nlegs) {
		b->mine.rules_refused -= refused;
		slot_free(b, slot);
		return why;
	}
	*handle = (uint64_t)rule->generation << 32 | (slot + 1);
	return 0;
}

int pv_bond_flow_del(struct pv_ring *r, uint64_t handle)
{
	struct bond *b = bond(r);
	uint32_t slot = (uint32_t)handle - 1;

	if (slot >= b->rules_room || !b->rule[slot].used || b->rule[slot].generation != handle >> 32)
		return -ENOENT;
	for (uint32_t i = 0; i < b->nlegs; i++)
		rule_off(b->leg[i], slot);
	slot_free(b, slot);
	return 0;
}

/* ---- queues ------------------------------------------------------------------------------------------------------------ */

/* 0, or why the leg has it not. */
static int txq_on(const struct bond *b, struct bond_leg *l, uint32_t n)
{
	int q = l->gone ? -ENODEV : pv_ring_txq_open(l->ring, &b->txq[n].rate);

	if (q < 0)
		return q;
	l->txq[n] = (uint8_t)q;
	l->txq_back[q] = (uint8_t)n;
	return 0;
}

static void txq_off(struct bond_leg *l, uint32_t n)
{
	if (l->txq[n] && !l->gone)
		(void)pv_ring_txq_close(l->ring, l->txq[n]);
	/* What it gives back from now on is of the first queue: the bond's number may be another's soon. */
	l->txq_back[l->txq[n]] = 0;
	l->txq[n] = 0;
}

/* A leg that has none sends such frames by its first queue, at no rate: the caps say so, and whoever wants a rate keeps it himself. */
int pv_bond_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate)
{
	struct bond *b = bond(r);
	uint32_t n = 1, got = 0;
	int why = -EOPNOTSUPP;

	while (n <= PV_RING_TXQ_MAX && b->txq[n].open)
		n++;
	if (n > PV_RING_TXQ_MAX)
		return -ENOSPC;
	b->txq[n].rate = *rate;
	for (uint32_t i = 0; i < b->nlegs; i++) {
		int rc = txq_on(b, b->leg[i], n);

		got += !rc;
		if (rc && (why == -EOPNOTSUPP || b->leg[i]->up))
			why = rc;
	}
	if (!got)
		return why;
	b->txq[n].open = true;
	return (int)n;
}

int pv_bond_txq_close(struct pv_ring *r, uint32_t txq)
{
	struct bond *b = bond(r);

	if (!txq || txq > PV_RING_TXQ_MAX || !b->txq[txq].open)
		return -ENOENT;
	for (uint32_t i = 0; i < b->nlegs; i++)
		txq_off(b->leg[i], txq);
	/* Another thread may be inside of that one's ring. */
	for (struct bond_leg *l = b->parted; l; l = l->next)
		l->txq_back[l->txq[txq]] = 0;
	for (struct pv_pkt *p = b->again.head; p; p = p->next)
		if (pv_pkt_txq(p) == txq)
			p->flags &= ~PV_PKT_TX_QUEUE;
	b->txq[txq] = (struct bond_txq){ 0 };
	return 0;
}

int pv_bond_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate)
{
	struct bond *b = bond(r);
	uint32_t got = 0;
	int why = -EOPNOTSUPP;

	if (txq > PV_RING_TXQ_MAX || (txq && !b->txq[txq].open))
		return -ENOENT;
	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];
		int rc = l->gone || (txq && !l->txq[txq]) ? -EOPNOTSUPP : pv_ring_set_rate(l->ring, txq ? l->txq[txq] : 0, rate);

		got += !rc;
		if (rc && (why == -EOPNOTSUPP || l->up))
			why = rc;
	}
	if (!got)
		return why;
	b->txq[txq].rate = *rate;
	return 0;
}

uint32_t pv_bond_txq_pending(struct pv_ring *r, uint32_t txq)
{
	struct bond *b = bond(r);
	uint32_t n = 0;

	if (txq > PV_RING_TXQ_MAX)
		return 0;
	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];

		if (!l->gone && (!txq || l->txq[txq]))
			n += pv_ring_txq_pending(l->ring, txq ? l->txq[txq] : 0);
	}
	for (const struct pv_pkt *p = b->again.head; p; p = p->next)
		n += !txq || pv_pkt_txq(p) == txq;
	return n;
}

/* ---- stamps ------------------------------------------------------------------------------------------------------------ */

static int stamps_on(const struct bond *b, struct bond_leg *l)
{
	const struct pv_ring_caps *caps = &l->ring->caps;

	return pv_ring_set_stamps(l->ring, b->rx_stamps && caps->tstamp != PV_TSTAMP_NONE, b->tx_stamps && caps->tx_tstamp);
}

int pv_bond_set_stamps(struct pv_ring *r, bool rx, bool tx)
{
	struct bond *b = bond(r);
	int rc = 0;

	b->rx_stamps = rx;
	b->tx_stamps = tx;
	for (uint32_t i = 0; i < b->nlegs; i++) {
		int one = b->leg[i]->gone ? 0 : stamps_on(b, b->leg[i]);

		if (b->leg[i] == b->clock_leg)
			rc = one;
	}
	b->stamp_leg = b->clock_leg;
	return rc;
}

int pv_bond_clock(struct pv_ring *r, uint64_t *now)
{
	struct bond *b = bond(r);
	int rc;

	pthread_mutex_lock(&b->clock_lock);
	rc = b->clock_leg ? pv_ring_clock(b->clock_leg->ring, now) : -EOPNOTSUPP;
	pthread_mutex_unlock(&b->clock_lock);
	return rc;
}

int pv_bond_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out)
{
	struct bond *b = bond(r);
	int rc;

	pthread_mutex_lock(&b->clock_lock);
	rc = b->clock_leg ? pv_ring_clock_info(b->clock_leg->ring, out) : -EOPNOTSUPP;
	pthread_mutex_unlock(&b->clock_lock);
	return rc;
}

/* ---- legs that come and go --------------------------------------------------------------------------------------------- */

int pv_bond_rules_catch_up(struct bond *b, struct bond_leg *l)
{
	if (b->rules_room && !l->handle) {
		l->handle = b->mem->alloc(b->mem->ctx, b->rules_room * sizeof(*l->handle));
		if (!l->handle)
			return -ENOMEM;
	}
	if (b->rx_stamps || b->tx_stamps)
		(void)stamps_on(b, l);
	for (uint32_t n = 1; n <= PV_RING_TXQ_MAX; n++)
		if (b->txq[n].open)
			(void)txq_on(b, l, n);
	if (b->txq[0].rate.kbps)
		(void)pv_ring_set_rate(l->ring, 0, &b->txq[0].rate);
	for (uint32_t slot = 0; slot < b->rules_room; slot++)
		if (b->rule[slot].used)
			(void)rule_on(b, l, slot);
	return 0;
}

void pv_bond_rules_free_leg(struct bond *b, struct bond_leg *l)
{
	if (l->handle)
		b->mem->free(b->mem->ctx, l->handle, b->rules_room * sizeof(*l->handle));
	l->handle = NULL;
}

void pv_bond_rules_free(struct bond *b)
{
	if (b->rule)
		b->mem->free(b->mem->ctx, b->rule, b->rules_room * sizeof(*b->rule));
	if (b->txq)
		b->mem->free(b->mem->ctx, b->txq, (PV_RING_TXQ_MAX + 1) * sizeof(*b->txq));
}
