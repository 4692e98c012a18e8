/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Out-of-order data, and the blocks that tell the peer of it (RFC 2018, RFC 2883).
 *
 * The queue is a list of ranges, each a list of packets that follow each other without a gap. What arrives nearly always belongs to the
 * last range (more data behind a hole) or to the first (a hole was filled): both are found at once. Else the search starts at the nearer
 * end, and a limit on the number of ranges bounds it: a peer that sends every other byte gains nothing.
 *
 * Of two that overlap the one that came first stays, as in Linux; only what a packet covers entirely makes place for it.
 */
#include "tcp/rcv.h"

#define RANGES_MAX 512u

static void set_last(struct pv_pkt *first, struct pv_pkt *last)
{
	first->priv[1] = (uintptr_t)last;
}

static void set_next(struct pv_pkt *first, struct pv_pkt *next)
{
	first->priv[2] = (uintptr_t)next;
}

static void set_prev(struct pv_pkt *first, struct pv_pkt *prev)
{
	first->priv[3] = (uintptr_t)prev;
}

static pv_seq range_end(const struct pv_pkt *first)
{
	return pv_rcv_end(pv_ooo_last(first));
}

/* ---- blocks to report -------------------------------------------------------------------------------------------------- */

static void sack_remove(struct pv_tcp *c, uint32_t i)
{
	c->nsack--;
	for (; i < c->nsack; i++)
		c->sack[i] = c->sack[i + 1];
}

/* A range has become this; it is reported first (RFC 2018 4). */
static void sack_newest(struct pv_tcp *c, pv_seq start, pv_seq end)
{
	for (uint32_t i = 0; i < c->nsack;) {
		if (pv_seq_le(c->sack[i].start, end) && pv_seq_ge(c->sack[i].end, start))
			sack_remove(c, i);
		else
			i++;
	}
	if (c->nsack < PV_TCP_SACK_MAX)
		c->nsack++;
	for (uint32_t i = c->nsack - 1u; i > 0; i--)
		c->sack[i] = c->sack[i - 1];
	c->sack[0].start = start;
	c->sack[0].end = end;
}

/* Blocks are sent whenever there is something behind a hole, also when all that were news have been passed (RFC 2018 4, SHOULD). */
static void sack_refill(struct pv_tcp *c)
{
	for (const struct pv_pkt *r = c->ooo.head; r && c->nsack < PV_TCP_SACK_MAX; r = pv_ooo_next(r)) {
		c->sack[c->nsack].start = pv_rcv_seq(r);
		c->sack[c->nsack].end = range_end(r);
		c->nsack++;
	}
}

void pv_ooo_sack_advance(struct pv_tcp *c)
{
	for (uint32_t i = 0; i < c->nsack;) {
		if (pv_seq_le(c->sack[i].end, c->rcv_nxt))
			sack_remove(c, i);
		else
			i++;
	}
	if (!c->nsack)
		sack_refill(c);
}

/* Nothing from `cut` on is there any more. */
static void sack_cut(struct pv_tcp *c, pv_seq cut)
{
	for (uint32_t i = 0; i < c->nsack;) {
		if (pv_seq_ge(c->sack[i].start, cut)) {
			sack_remove(c, i);
			continue;
		}
		c->sack[i].end = pv_seq_min(c->sack[i].end, cut);
		i++;
	}
	if (!c->nsack)
		sack_refill(c);
}

void pv_ooo_dsack(struct pv_tcp *c, pv_seq start, pv_seq end)
{
	if (!(c->flags & PV_TF_SACK) || !pv_seq_lt(start, end))
		return;
	if (pv_seq_eq(c->dsack.start, c->dsack.end)) {
		c->dsack.start = start;
		c->dsack.end = end;
	} else if (pv_seq_le(start, c->dsack.end) && pv_seq_ge(end, c->dsack.start)) {
		c->dsack.start = pv_seq_min(c->dsack.start, start);
		c->dsack.end = pv_seq_max(c->dsack.end, end);
	}
}

static void block(struct pv_tcp *c, struct pv_wire_tcp_opts *opt, pv_seq start, pv_seq end)
{
	/* A FIN has no packet of its own: it is there as soon as what leads up to it is. */
	if ((c->flags & PV_TF_FIN_SEEN) && pv_seq_eq(end, c->fin_seq))
		end = pv_seq_add(end, 1);
	opt->sack[opt->nsack].start = start.v;
	opt->sack[opt->nsack].end = end.v;
	opt->nsack++;
}

uint32_t pv_tcp_sack_fill(struct pv_tcp *c, struct pv_wire_tcp_opts *opt, uint32_t room)
{
	uint32_t max = room < 12 ? 0 : PV_MIN((room - 4) / 8, PV_WIRE_SACK_MAX);

	opt->nsack = 0;
	if (!(c->flags & PV_TF_SACK) || !max)
		return 0;
	if (!pv_seq_eq(c->dsack.start, c->dsack.end)) {
		opt->sack[0].start = c->dsack.start.v;
		opt->sack[0].end = c->dsack.end.v;
		opt->nsack = 1;
		c->dsack.end = c->dsack.start; /* reported once (RFC 2883 4) */
	}
	for (uint32_t i = 0; i < c->nsack && opt->nsack < max; i++)
		block(c, opt, c->sack[i].start, c->sack[i].end);
	return opt->nsack;
}

/* ---- ranges ------------------------------------------------------------------------------------------------------------ */

/* The last range that starts at or before `seq`; NULL: all start behind it. */
static struct pv_pkt *find(const struct pv_tcp *c, pv_seq seq)
{
	struct pv_pkt *r = c->ooo.tail;

	if (!r || pv_seq_le(pv_rcv_seq(r), seq))
		return r;
	if (pv_seq_lt(seq, pv_rcv_seq(c->ooo.head)))
		return NULL;
	if (pv_seq_dist(seq, pv_rcv_seq(r)) < pv_seq_dist(pv_rcv_seq(c->ooo.head), seq)) {
		while (pv_seq_gt(pv_rcv_seq(r), seq))
			r = pv_ooo_prev(r);
		return r;
	}
	r = c->ooo.head;
	while (pv_seq_le(pv_rcv_seq(pv_ooo_next(r)), seq))
		r = pv_ooo_next(r);
	return r;
}

static void link_after(struct pv_tcp *c, struct pv_pkt *at, struct pv_pkt *first)
{
	struct pv_pkt *next = at ? pv_ooo_next(at) : c->ooo.head;

	set_prev(first, at);
	set_next(first, next);
	if (at)
		set_next(at, first);
	else
		c->ooo.head = first;
	if (next)
		set_prev(next, first);
	else
		c->ooo.tail = first;
	c->ooo.ranges++;
}

static void unlink_range(struct pv_tcp *c, struct pv_pkt *first)
{
	struct pv_pkt *prev = pv_ooo_prev(first), *next = pv_ooo_next(first);

	if (prev)
		set_next(prev, next);
	else
		c->ooo.head = next;
	if (next)
		set_prev(next, prev);
	else
		c->ooo.tail = prev;
	c->ooo.ranges--;
}

static void account(struct pv_tcp *c, const struct pv_pkt *pkt, bool in)
{
	uint32_t n = in ? 1u : UINT32_MAX;

	c->ooo.count += n;
	c->ooo.mem += n * pkt->size;
	c->rcv_mem += n * pkt->size;
	c->ooo_bytes += n * pkt->len;
}

/* A list of packets back to their pools. */
static void put_list(struct pv_tcp *c, struct pv_pkt *pkt)
{
	while (pkt) {
		struct pv_pkt *next = pkt->next;

		account(c, pkt, false);
		pv_pkt_put(pkt);
		pkt = next;
	}
}

/* What follows `r` (or is first) and `pkt` reaches: ranges that it covers go, and it ends where the next one begins. Returns the range to
 * join with; NULL: none. */
static struct pv_pkt *meet_next(struct pv_tcp *c, struct pv_pkt *r, struct pv_pkt *pkt)
{
	struct pv_pkt *next = r ? pv_ooo_next(r) : c->ooo.head;

	while (next && pv_seq_ge(pv_rcv_end(pkt), range_end(next))) {
		struct pv_pkt *gone = next;

		next = pv_ooo_next(gone);
		c->t->c.rx_duplicate++;
		pv_ooo_dsack(c, pv_rcv_seq(gone), range_end(gone));
		unlink_range(c, gone);
		put_list(c, gone);
	}
	if (!next || pv_seq_lt(pv_rcv_end(pkt), pv_rcv_seq(next)))
		return NULL;
	pv_ooo_dsack(c, pv_rcv_seq(next), pv_rcv_end(pkt));
	pkt->len = pv_seq_dist(pv_rcv_seq(pkt), pv_rcv_seq(next));
	return next;
}

static void append(struct pv_tcp *c, struct pv_pkt *r, struct pv_pkt *pkt)
{
	struct pv_pkt *last = pv_ooo_last(r);
	uint32_t len = pkt->len;

	if (pv_rcv_coalesce(last, pkt)) {
		c->ooo_bytes += len;
		return;
	}
	account(c, pkt, true);
	last->next = pkt;
	set_last(r, pkt);
}

enum pv_ooo_verdict pv_ooo_insert(struct pv_tcp *c, struct pv_pkt *pkt)
{
	struct pv_pkt *r = find(c, pv_rcv_seq(pkt)), *next;
	bool joins = r && pv_seq_le(pv_rcv_seq(pkt), range_end(r));

	if (joins && pv_seq_le(pv_rcv_end(pkt), range_end(r))) {
		pv_ooo_dsack(c, pv_rcv_seq(pkt), pv_rcv_end(pkt));
		sack_newest(c, pv_rcv_seq(r), range_end(r));
		pv_pkt_put(pkt);
		return PV_OOO_DUPLICATE;
	}
	if (joins && pv_seq_lt(pv_rcv_seq(pkt), range_end(r))) {
		pv_ooo_dsack(c, pv_rcv_seq(pkt), range_end(r));
		pv_rcv_trim_front(pkt, pv_seq_dist(pv_rcv_seq(pkt), range_end(r)));
	}
	if (!joins && c->ooo.ranges >= RANGES_MAX) {
		pv_pkt_put(pkt);
		return PV_OOO_FULL;
	}
	pkt->next = NULL;
	next = meet_next(c, r, pkt);
	if (joins) {
		append(c, r, pkt);
	} else {
		account(c, pkt, true);
		set_last(pkt, pkt);
		link_after(c, r, pkt);
		r = pkt;
	}
	if (next) {
		unlink_range(c, next);
		pv_ooo_last(r)->next = next;
		set_last(r, pv_ooo_last(next));
	}
	sack_newest(c, pv_rcv_seq(r), range_end(r));
	return joins || next ? PV_OOO_QUEUED : PV_OOO_NEW_RANGE;
}

struct pv_pkt *pv_ooo_pull(struct pv_tcp *c)
{
	struct pv_pkt *pkt;

	while ((pkt = c->ooo.head) && pv_seq_le(pv_rcv_seq(pkt), c->rcv_nxt)) {
		struct pv_pkt *rest = pkt->next;
		uint32_t old = pv_seq_dist(pv_rcv_seq(pkt), c->rcv_nxt);

		unlink_range(c, pkt);
		if (rest) {
			set_last(rest, pv_ooo_last(pkt));
			link_after(c, NULL, rest);
		}
		account(c, pkt, false);
		if (old)
			pv_ooo_dsack(c, pv_rcv_seq(pkt), pv_seq_min(pv_rcv_end(pkt), c->rcv_nxt));
		if (old < pkt->len) {
			pv_rcv_trim_front(pkt, old);
			return pkt;
		}
		pv_pkt_put(pkt);
	}
	return NULL;
}

void pv_ooo_drop(struct pv_tcp *c)
{
	while (c->ooo.head) {
		struct pv_pkt *r = c->ooo.head;

		unlink_range(c, r);
		put_list(c, r);
	}
	c->nsack = 0;
}

/* Looked for from the front, as a range has no way back from its last packet: linear, but so much goes at once that it is rare. */
void pv_ooo_prune(struct pv_tcp *c, uint32_t goal, pv_seq keep)
{
	uint32_t left = c->ooo.mem > goal ? c->ooo.mem - goal : 0, mem = 0, count;
	struct pv_pkt *r = c->ooo.head, *prev = NULL, *pkt = r;
	pv_seq cut;

	if (!r || pv_seq_le(range_end(c->ooo.tail), keep))
		return;
	while (r) {
		prev = NULL;
		for (pkt = r; pkt; prev = pkt, pkt = pkt->next) {
			mem += pkt->size;
			if (mem > left && pv_seq_ge(pv_rcv_seq(pkt), keep))
				break;
		}
		if (pkt)
			break;
		r = pv_ooo_next(r);
	}
	if (!r)
		return;
	cut = pv_rcv_seq(pkt);
	count = c->ooo.count;
	while (c->ooo.tail != r) {
		struct pv_pkt *last = c->ooo.tail;

		unlink_range(c, last);
		put_list(c, last);
	}
	if (prev) {
		prev->next = NULL;
		set_last(r, prev);
	} else {
		unlink_range(c, r);
	}
	put_list(c, pkt);
	sack_cut(c, cut);
	c->t->c.rx_ooo_dropped += count - c->ooo.count;
}

void pv_ooo_compact(struct pv_tcp *c)
{
	uint32_t mem = c->ooo.mem;

	for (struct pv_pkt *r = c->ooo.head; r; r = pv_ooo_next(r))
		set_last(r, pv_rcv_compact(r, &c->ooo.count, &c->ooo.mem));
	c->rcv_mem -= mem - c->ooo.mem;
}
