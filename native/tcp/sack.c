/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scoreboard: SACK blocks (RFC 2018), D-SACK (RFC 2883), and what takes their place with peers that know neither.
 *
 * A block is mostly one that was there before, grown by what came last. So what the blocks of the last acknowledgement marked is cut off
 * from those of the next, and the search for what is left starts where the last one ended: a window of any size costs a step or two.
 */
#include "tcp/recovery.h"

struct block {
	pv_seq start, end;
};

void pv_tcp_reordered(struct pv_tcp *c, pv_seq low, pv_seq fack)
{
	uint32_t metric;

	if (pv_seq_ge(low, fack) || !c->mss)
		return;
	metric = (pv_seq_dist(low, fack) + c->mss - 1) / c->mss;
	if (metric > c->reordering)
		c->reordering = PV_MIN(metric, PV_TCP_REORDERING_MAX);
	c->reord_seen++;
	c->rack_reo_seen = true;
}

/* ---- marking ------------------------------------------------------------------------------------------------------------ */

static void mark_sacked(struct pv_tcp *c, struct pv_tcp_acking *a, struct pv_tcp_seg *s, pv_seq end)
{
	pv_tcp_rack_advance(c, s, end, a->now_ns);
	if (!(s->board & PV_SEG_EVER_RETRANS)) {
		if (pv_seq_lt(s->seq, a->prior_fack) && pv_seq_lt(s->seq, a->reord))
			a->reord = s->seq;
		if (pv_seq_le(end, c->high_seq))
			a->flags |= PV_ACK_ORIG;
		if (a->first_sack_ns < 0)
			a->first_sack_ns = s->tx_ns;
		a->last_sack_ns = s->tx_ns;
	}
	if (s->board & PV_SEG_RETRANS)
		c->retrans--;
	if (s->board & PV_SEG_LOST)
		c->lost--;
	s->board = (uint8_t)((s->board & ~(PV_SEG_LOST | PV_SEG_RETRANS)) | PV_SEG_SACKED);
	c->sacked++;
	c->delivered++;
	a->flags |= PV_ACK_SACKED;
	pv_list_del(&s->by_time);
	c->fack = pv_seq_max(c->fack, end);
}

/* The first segment that ends after `start`; NULL: it was never sent. */
static struct pv_tcp_seg *seek(struct pv_tcp *c, pv_seq start)
{
	struct pv_tcp_seg *s = c->sack_hint;
	struct pv_list *it;

	if (!s || pv_seq_dist(c->snd_una, start) < (uint32_t)PV_MAX(pv_seq_diff(s->seq, start), 0))
		s = pv_tcp_first(c);
	for (it = &s->link; it->prev != &c->sndq && pv_seq_gt(pv_tcp_seg_at(it)->seq, start);)
		it = it->prev;
	for (; it != &c->sndq; it = it->next) {
		s = pv_tcp_seg_at(it);
		if (!(s->board & PV_SEG_SENT))
			return NULL;
		if (pv_seq_gt(pv_seg_end(s), start))
			return s;
	}
	return NULL;
}

/* Marks what lies whole in the block, looking from `from` to `to`, which are within it. */
static void mark_part(struct pv_tcp *c, struct pv_tcp_acking *a, const struct block *b, pv_seq from, pv_seq to)
{
	struct pv_tcp_seg *s;

	if (pv_seq_ge(from, to) || !(s = seek(c, from)))
		return;
	for (struct pv_list *it = &s->link; it != &c->sndq; it = it->next) {
		pv_seq end;

		s = pv_tcp_seg_at(it);
		end = pv_seg_end(s);
		if (!(s->board & PV_SEG_SENT) || pv_seq_ge(s->seq, to) || pv_seq_gt(end, b->end))
			break;
		c->sack_hint = s;
		if (pv_seq_ge(s->seq, b->start) && !(s->board & PV_SEG_SACKED) && pv_seq_gt(end, c->snd_una))
			mark_sacked(c, a, s, end);
	}
}

/* ---- D-SACK ------------------------------------------------------------------------------------------------------------- */

/* What of a D-SACK is still in the queue: segments sent again, whose both copies have come. */
static uint32_t dsack_queued(struct pv_tcp *c, const struct block *b)
{
	struct pv_tcp_seg *s = seek(c, b->start);
	uint32_t n = 0;

	if (!s)
		return 0;
	for (struct pv_list *it = &s->link; it != &c->sndq; it = it->next) {
		s = pv_tcp_seg_at(it);
		if (!(s->board & PV_SEG_SENT) || pv_seq_gt(pv_seg_end(s), b->end))
			break;
		n += (s->board & PV_SEG_EVER_RETRANS) != 0;
	}
	return n;
}

/* RFC 2883 4: the first block is one when it lies below the acknowledgement or inside the second. */
static bool dsack_check(struct pv_tcp *c, struct pv_tcp_acking *a, const struct block *b, uint32_t n)
{
	uint32_t len, dups = 1;

	if (pv_seq_ge(b[0].start, a->in->ack) && (n < 2 || pv_seq_gt(b[0].end, b[1].end) || pv_seq_lt(b[0].start, b[1].start)))
		return false;
	len = pv_seq_dist(b[0].start, b[0].end);
	/* Longer than any window of the peer's: nothing that we sent. What lies above snd_max is none either. */
	if (pv_seq_ge(b[0].start, b[0].end) || len > c->max_window || pv_seq_gt(b[0].end, c->snd_max))
		return true;
	if (len > c->mss)
		dups = (len + c->mss - 1) / c->mss;
	else if ((c->flags & PV_TF_TLP) && pv_seq_eq(b[0].end, c->tlp_high_seq))
		a->flags |= PV_ACK_DSACK_TLP;
	c->dsack_dups += dups;
	c->t->c.dsacks++;
	/* More than we ever sent again: the network duplicates, and that says nothing about us (RFC 3708 3). */
	if (c->dsack_dups > c->total_retrans)
		return true;
	a->flags |= PV_ACK_DSACK;
	a->dsacked = dups;
	if (!(c->flags & PV_TF_UNDO) || c->undo_retrans <= 0 || pv_seq_le(b[0].end, c->recover))
		return true;
	if (pv_seq_gt(b[0].end, c->snd_una))
		dups = c->in_flight ? dsack_queued(c, &b[0]) : 0;
	c->undo_retrans = PV_MAX(c->undo_retrans - (int32_t)dups, 0);
	return true;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------- */

/* Inside of what was sent and is not acknowledged; a block at snd_una would be an acknowledgement. */
static bool block_valid(const struct pv_tcp *c, const struct block *b)
{
	return pv_seq_lt(b->start, b->end) && pv_seq_le(b->end, c->snd_max) && pv_seq_gt(b->start, c->snd_una);
}

/* Ascending; there are four at most. */
static void insert(struct block *list, uint32_t n, struct block b)
{
	for (; n && pv_seq_gt(list[n - 1].start, b.start); n--)
		list[n] = list[n - 1];
	list[n] = b;
}

/* Marks what of `b` the last acknowledgement had not said. */
static void mark_news(struct pv_tcp *c, struct pv_tcp_acking *a, const struct block *b)
{
	pv_seq at = b->start;

	for (uint32_t i = 0; i < c->nsack_seen; i++) {
		pv_seq s = c->sack_seen[i].start, e = c->sack_seen[i].end;

		if (pv_seq_ge(at, e) || pv_seq_le(b->end, s))
			continue;
		mark_part(c, a, b, at, s);
		at = e;
	}
	mark_part(c, a, b, at, b->end);
}

void pv_tcp_sack_blocks(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	uint32_t n = PV_MIN((uint32_t)a->in->opt.nsack, PV_TCP_SACK_MAX), k = 0, i = 0;
	struct block in[PV_TCP_SACK_MAX], list[PV_TCP_SACK_MAX];

	for (uint32_t j = 0; j < n; j++)
		in[j] = (struct block){ pv_seq_of(a->in->opt.sack[j].start), pv_seq_of(a->in->opt.sack[j].end) };
	if (dsack_check(c, a, in, n))
		i = 1;
	for (; i < n; i++)
		if (block_valid(c, &in[i]))
			insert(list, k++, in[i]);
	if (!c->in_flight) {
		c->nsack_seen = 0;
		return;
	}
	for (i = 0; i < k; i++)
		mark_news(c, a, &list[i]);
	for (i = 0; i < k; i++) {
		c->sack_seen[i].start = list[i].start;
		c->sack_seen[i].end = list[i].end;
	}
	c->nsack_seen = k;
	if (pv_seq_lt(a->reord, a->prior_fack))
		pv_tcp_reordered(c, a->reord, c->fack);
}

/* ---- without SACK -------------------------------------------------------------------------------------------------------- */

/* No more can have arrived than is out, less one hole. True: that limit was met, so more than reordering allows came twice. */
static bool reno_limit(struct pv_tcp *c)
{
	uint32_t holes = PV_MIN(PV_MAX(c->lost, 1u), c->in_flight);

	if (c->sacked + holes <= c->in_flight)
		return false;
	c->sacked = c->in_flight - holes;
	return true;
}

static void reno_reordering(struct pv_tcp *c, uint32_t addend)
{
	if (!reno_limit(c))
		return;
	c->reordering = PV_MIN(c->in_flight + addend, PV_TCP_REORDERING_MAX);
	c->reord_seen++;
}

void pv_tcp_reno_add(struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	uint32_t was = c->sacked;

	if (!a->dup)
		return;
	c->sacked += a->dup;
	reno_reordering(c, 0);
	if (c->sacked > was)
		c->delivered += c->sacked - was;
}

void pv_tcp_reno_remove(struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	uint32_t was = c->sacked;

	if (a->freed) {
		/* One was the hole; the others had told of themselves by duplicates. */
		c->delivered += a->freed > was + 1 ? a->freed - was : 1;
		c->sacked = a->freed - 1 >= was ? 0 : was - (a->freed - 1);
	}
	reno_reordering(c, a->freed);
	(void)reno_limit(c);
}
