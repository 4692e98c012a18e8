/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending. What a packet asks for is in its flags, and of those that its leg is not simply given (bond_leg.aside) there are none in the usual
 * case: then the leg gets what the bond was given, run by run. The rest is done here first: sums that the leg does not fill, segments that it
 * does not cut, queues that it calls otherwise.
 */
#include "ring/bond_priv.h"

#include <errno.h>

#include "base/cksum.h"
#include "ring/frame.h"

void pv_bond_tx_plan(struct bond *b)
{
	const uint32_t l4 = PV_CSUM_UDP | PV_CSUM_TCP;

	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];
		uint32_t csum = l->ring->caps.tx_csum;

		l->aside = PV_PKT_TX_QUEUE | PV_PKT_TX_TSO;
		if (!(csum & PV_CSUM_IP4))
			l->aside |= PV_PKT_TX_L3_CSUM;
		if ((csum & l4) != l4)
			l->aside |= PV_PKT_TX_L4_CSUM;
	}
}

/* ---- what a leg does not do -------------------------------------------------------------------------------------------- */

static uint64_t chain_sum(const struct pv_pkt *p, uint32_t off)
{
	uint64_t sum = 0;
	uint32_t at = 0;

	for (; p; p = p->frag) {
		uint32_t skip = PV_MIN(off, p->len), n = p->len - skip;

		sum = pv_cksum_merge(sum, pv_cksum_at(n ? pv_cksum_add(p->data + skip, n, 0) : 0, at));
		at += n;
		off -= skip;
	}
	return sum;
}

static uint64_t pseudo(const uint8_t *ip, const struct pv_bond_headers *h, uint32_t len)
{
	uint32_t src, dst;

	if (h->version == 6)
		return pv_cksum_pseudo6(ip + 8, ip + 24, h->proto, len);
	memcpy(&src, ip + 12, 4);
	memcpy(&dst, ip + 16, 4);
	return pv_cksum_pseudo4(src, dst, h->proto, len);
}

/* The sums that `flags` ask for, in place. The headers are in the first piece. */
static void fill_sums(struct pv_pkt *p, uint32_t flags)
{
	struct pv_bond_headers h;
	uint32_t total = 0, len;
	uint8_t *ip, *field;
	uint64_t sum;

	pv_bond_headers(p->data, p->len, &h);
	if (!h.version)
		return;
	for (const struct pv_pkt *f = p; f; f = f->frag)
		total += f->len;
	ip = p->data + h.l3;
	if (flags & PV_PKT_TX_L3_CSUM && h.version == 4) {
		pv_cksum_put(ip + 10, 0);
		pv_cksum_put(ip + 10, pv_cksum_finish(pv_cksum_add(ip, (ip[0] & 0x0fu) * 4u, 0)));
	}
	if (!(flags & PV_PKT_TX_L4_CSUM) || !h.l4 || (h.proto != 6 && h.proto != 17) || p->len < h.l4 + (h.proto == 6 ? 20u : 8u))
		return;
	/* Padding behind the packet is no part of it. */
	len = (h.version == 4 ? pv_get16(ip + 2) : pv_get16(ip + 4) + 40u) + h.l3 - h.l4;
	if (len != total - h.l4 && (p->frag || len > total - h.l4))
		return;
	field = p->data + h.l4 + (h.proto == 17 ? 6 : 16);
	pv_cksum_put(field, 0);
	sum = p->frag ? chain_sum(p, h.l4) : pv_cksum_add(p->data + h.l4, len, 0);
	sum = pv_cksum_merge(sum, pseudo(ip, &h, len));
	pv_cksum_put(field, h.proto == 17 ? pv_cksum_finish_udp(sum) : pv_cksum_finish(sum));
}

void pv_bond_done(struct bond *b, struct pv_pkt *p)
{
	if (pv_likely(!b->own_out) || !bond_bit(b->own, p)) {
		bond_hold(&b->done, p);
		return;
	}
	bond_bit_clear(b->own, p);
	b->own_out--;
	pv_pkt_put(p);
}

/* Taken, counted, reaped: it does not leave. */
static void refuse(struct bond *b, struct pv_pkt *p)
{
	b->mine.tx_errors++;
	pv_bond_done(b, p);
}

/* Parts are packets of our own, and the whole is done at once. Those that the leg does not take now go later. */
static void cut(struct bond *b, struct pv_pkt *p)
{
	uint32_t n = pv_frame_cuts(p, b->ring.caps.mtu, b->tso_most, b->sge_most), keep = p->flags & PV_PKT_TX_QUEUE;
	struct pv_pkt *part = n ? pv_pkt_get_bulk(b->ring.pool, n) : NULL, *next;

	if (!part) {
		refuse(b, p);
		return;
	}
	for (uint32_t i = 0; i < n; i++, part = next) {
		next = part->next;
		part->len = part->total = pv_frame_cut(p, i, part->data);
		part->flags = keep;
		bond_bit_set(b->own, part);
		b->own_out++;
		bond_hold(&b->again, part);
	}
	pv_bond_done(b, p);
}

/* ---- posting ----------------------------------------------------------------------------------------------------------- */

static void set_keys(const struct bond_leg *l, struct pv_pkt *p)
{
	for (; p; p = p->frag)
		p->key = pv_pool_key(p, l->binder);
}

static uint32_t post_plain(struct bond_leg *l, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t k;

	for (uint32_t i = 0; pv_unlikely(l->binder) && i < n; i++)
		set_keys(l, pkts[i]);
	k = pv_ring_tx_post(l->ring, pkts, n);
	for (uint32_t i = 0; i < k; i++)
		bond_bit_set(l->out, pkts[i]);
	l->dirty |= k != 0;
	return k;
}

/* Something must be done first. False: the leg is full. */
static bool post_aside(struct bond *b, struct bond_leg *l, struct pv_pkt *p)
{
	const struct pv_ring_caps *caps = &l->ring->caps;
	uint32_t flags = p->flags, sums = flags & l->aside & (PV_PKT_TX_L3_CSUM | PV_PKT_TX_L4_CSUM);
	uint32_t txq = pv_pkt_txq(p);

	if (txq) {
		if (!b->txq[txq].open) {
			refuse(b, p);
			return true;
		}
		pv_pkt_set_txq(p, l->txq[txq]);
	}
	if (flags & PV_PKT_TX_TSO && !pv_frame_cuts(p, caps->mtu, caps->tso_max, caps->max_sge)) {
		p->flags = flags;
		cut(b, p);
		return true;
	}
	/* A leg that cuts fills the sums of what it cuts. */
	if (sums && !(flags & PV_PKT_TX_TSO)) {
		fill_sums(p, sums);
		p->flags &= ~sums;
	}
	if (post_plain(l, &p, 1))
		return true;
	pv_pkt_set_txq(p, txq);
	return false;
}

/* All by one leg, which may be full before the last. */
static uint32_t post_by(struct bond *b, struct bond_leg *l, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t i = 0;

	while (i < n) {
		uint32_t run = 0, k;

		while (i + run < n && !(pkts[i + run]->flags & l->aside))
			run++;
		if (!run) {
			if (!post_aside(b, l, pkts[i]))
				return i;
			i++;
			continue;
		}
		k = post_plain(l, pkts + i, run);
		i += k;
		if (k < run)
			return i;
	}
	return i;
}

struct bond_leg *pv_bond_leg_of(const struct bond *b, const struct pv_pkt *p)
{
	if (b->nusable <= 1)
		return b->only;
	return b->usable[pv_bond_hash(p->data, p->len, b->cfg.hash_policy) % b->nusable];
}

/* Several legs, or none, or one that has no link any more. */
static pv_noinline uint32_t post_each(struct bond *b, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t i = 0;

	while (i < n) {
		struct bond_leg *l = pv_bond_leg_of(b, pkts[i]);

		if (!l) {
			refuse(b, pkts[i++]);
			continue;
		}
		if (pv_unlikely(!l->ring->caps.link_up && l->up)) {
			pv_bond_look(b);
			continue;
		}
		if (!post_by(b, l, &pkts[i], 1)) {
			/* A device that is found dead with this is not full. */
			if (l->ring->caps.link_up || !l->up)
				break;
			continue;
		}
		i++;
	}
	return i;
}

bool pv_bond_post_one(struct bond *b, struct bond_leg *l, struct pv_pkt *p)
{
	return post_by(b, l, &p, 1) == 1;
}

uint32_t pv_bond_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct bond *b = bond(r);
	struct bond_leg *l;
	uint32_t k = 0;

	n = PV_MIN(n, r->caps.batch);
	if (pv_unlikely(b->again.count))
		pv_bond_again(b);
	l = b->only;
	if (pv_likely(l && l->ring->caps.link_up))
		k = post_by(b, l, pkts, n);
	if (pv_unlikely(k < n) && (!l || !l->ring->caps.link_up))
		k += post_each(b, pkts + k, n - k);
	if (pv_unlikely(b->again.count))
		pv_bond_again(b);
	return k;
}

int pv_bond_tx_kick(struct pv_ring *r)
{
	struct bond *b = bond(r);
	int all = 0;

	if (pv_unlikely(b->again.count))
		pv_bond_again(b);
	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];
		int rc = l->gone ? 0 : pv_ring_tx_kick(l->ring);

		l->dirty = rc == -EAGAIN;
		/* Without a link that is in vain until it is back, when the bond does it (settle). */
		if (rc == -EAGAIN && l->up)
			all = rc;
		else if (rc == -ENODEV)
			pv_bond_lost(b, l, false);
	}
	return all;
}

/* ---- completions ------------------------------------------------------------------------------------------------------- */

/* What the leg gave back; those that the owner gets stay in the array. */
uint32_t pv_bond_leg_reap(struct bond *b, struct bond_leg *l, struct pv_pkt **pkts, uint32_t n)
{
	bool flushed = false;
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p = pkts[i];

		bond_bit_clear(l->out, p);
		if (pv_unlikely(p->flags & PV_PKT_TX_QUEUE))
			pv_pkt_set_txq(p, l->txq_back[pv_pkt_txq(p)]);
		if (pv_unlikely(p->flags & PV_PKT_TX_TSTAMP) && l != b->stamp_leg)
			p->flags &= ~PV_PKT_TSTAMP;
		if (pv_unlikely(p->flags & PV_PKT_TX_FLUSHED)) {
			p->flags &= ~PV_PKT_TX_FLUSHED;
			flushed = true;
			bond_hold(&b->again, p);
		} else if (pv_unlikely(b->own_out) && bond_bit(b->own, p)) {
			bond_bit_clear(b->own, p);
			b->own_out--;
			pv_pkt_put(p);
		} else {
			pkts[k++] = p;
		}
	}
	if (flushed)
		pv_bond_lost(b, l, true);
	return k;
}

uint32_t pv_bond_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct bond *b = bond(r);
	uint32_t got;

	n = PV_MIN(n, r->caps.batch);
	got = pv_ring_give_first(&b->done, pkts, n);
	for (uint32_t i = 0; i < b->nlegs && got < n; i++) {
		struct bond_leg *l = b->leg[i];
		uint32_t k = l->ring->tx_pending ? pv_ring_tx_reap(l->ring, pkts + got, n - got) : 0;

		if (k)
			got += pv_bond_leg_reap(b, l, pkts + got, k);
	}
	if (pv_unlikely(b->again.count))
		pv_bond_again(b);
	return got;
}
