/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a leg leaves behind. A frame that it completed has left, or never will; one that it still holds, or gave back as flushed, may have left
 * or not. A second copy of a TCP segment does no harm (RFC 9293 3.10.7.4), and one that is lost costs a round trip at least: those go
 * again. Of all else a second copy would be delivered twice: it is lost, and counted.
 *
 * A ring that closes gives its packets to their pool. To get those that it still had, they are marked as kept (PV_PKT_KEPT) before, as a
 * transport would that means to send them again: the pool then hands them on.
 */
#include "ring/bond_priv.h"

#include <errno.h>

#include "base/cksum.h"

/* A leg may have begun the sum that it was asked for. */
static bool is_tcp(struct pv_pkt *p)
{
	struct pv_bond_headers h;

	pv_bond_headers(p->data, p->len, &h);
	if (h.proto != 6 || !h.l4 || p->len < h.l4 + 20)
		return false;
	if (p->flags & PV_PKT_TX_L4_CSUM)
		pv_cksum_put(p->data + h.l4 + 16, 0);
	return true;
}

static void lose(struct bond *b, struct pv_pkt *p)
{
	b->mine.tx_lost++;
	pv_bond_done(b, p);
}

/* False: its leg is full. */
static bool send_again(struct bond *b, struct pv_pkt *p)
{
	bool counted = !bond_bit(b->own, p);
	struct bond_leg *l;

	while ((l = pv_bond_leg_of(b, p))) {
		if (pv_bond_post_one(b, l, p)) {
			b->mine.tx_moved += counted;
			return true;
		}
		if (l->ring->caps.link_up || !l->up)
			return false;
		pv_bond_look(b);
	}
	lose(b, p);
	return true;
}

void pv_bond_again(struct bond *b)
{
	struct pv_pkt *p;

	/* A leg found dead on the way begins this again from within. */
	if (b->moving || !b->again.count)
		return;
	b->moving = true;
	while ((p = pv_pktq_pop(&b->again))) {
		p->next = NULL;
		pv_ring_give(p);
		/* What a queue was given leaves, though it is closed by now. */
		if (p->flags & PV_PKT_TX_QUEUE && !b->txq[pv_pkt_txq(p)].open)
			p->flags &= ~PV_PKT_TX_QUEUE;
		if (!is_tcp(p)) {
			lose(b, p);
			continue;
		}
		if (!send_again(b, p)) {
			pv_ring_take(p);
			pv_pktq_unpop(&b->again, p);
			break;
		}
	}
	b->moving = false;
	for (uint32_t i = 0; i < b->nlegs; i++)
		if (b->leg[i]->dirty && !b->leg[i]->gone)
			b->leg[i]->dirty = pv_ring_tx_kick(b->leg[i]->ring) == -EAGAIN;
}

/* ---- a leg that goes --------------------------------------------------------------------------------------------------- */

static void reap_all(struct bond *b, struct bond_leg *l)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	uint32_t n;

	while ((n = pv_ring_tx_reap(l->ring, pkts, PV_RING_BATCH_MAX))) {
		n = pv_bond_leg_reap(b, l, pkts, n);
		for (uint32_t i = 0; i < n; i++)
			bond_hold(&b->done, pkts[i]);
	}
}

/* The packets that the leg still has, in the order of their indices: how many they are. */
static uint32_t each_out(const struct bond *b, const struct bond_leg *l)
{
	struct bond_left *left = b->left_by;
	uint32_t n = 0;

	for (uint32_t w = 0; w < b->bits_bytes / sizeof(uint64_t); w++) {
		for (uint64_t bits = l->out[w]; bits; bits &= bits - 1) {
			uint32_t index = w * 64 + (uint32_t)__builtin_ctzll(bits);
			struct pv_pkt *head = pv_pool_pkt(b->ring.pool, index);

			for (struct pv_pkt *p = head; p; p = p->frag, n++) {
				left[n] = (struct bond_left){ .p = p, .kept = p->flags & PV_PKT_KEPT, .first = p == head };
				p->flags |= PV_PKT_KEPT;
			}
		}
	}
	return n;
}

static void put_together(struct bond *b, const struct bond_leg *l, uint32_t n)
{
	const struct bond_left *left = b->left_by;

	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p = left[i].p;

		p->frag = i + 1 < n && !left[i + 1].first ? left[i + 1].p : NULL;
		if (left[i].kept)
			p->flags |= PV_PKT_KEPT;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p = left[i].p;

		if (!left[i].first)
			continue;
		if (p->flags & PV_PKT_TX_QUEUE)
			pv_pkt_set_txq(p, l->txq_back[pv_pkt_txq(p)]);
		bond_hold(&b->again, p);
	}
}

static void close_ring(struct bond *b, struct pv_ring *r)
{
	struct pv_ring_counters c;

	pv_ring_counters(r, &c);
	c.dm_alloc = 0;
	pv_bond_add_up(&b->left, &c);
	pv_ring_close(r);
}

void pv_bond_reap_leg(struct bond *b, struct bond_leg *l)
{
	if (!l->gone && l->ring->caps.link_up)
		(void)pv_ring_tx_kick(l->ring);
	reap_all(b, l);
}

void pv_bond_close_leg(struct bond *b, struct bond_leg *l)
{
	uint32_t n = each_out(b, l);

	close_ring(b, l->ring);
	put_together(b, l, n);
}
