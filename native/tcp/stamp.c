/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stamps of streams (SO_TIMESTAMPING). What is asked for belongs to the last byte of a write, as in Linux (tcp_tx_timestamp): a list of
 * such bytes in the order of the stream, from the write until they are acknowledged, and PV_SEG_STAMP in segments that may have one of
 * them. Each transmission of the segment is stamped; a segment is not stamped for two of them: the later write has it.
 */
#include "tcp/tcp_int.h"

#include <string.h>

#define FIRST_WANTS 16u
#define WANTS_MAX 8192u

static void tell(void *owner)
{
	pv_tcp_tell(owner, PV_EV_ERR);
}

static struct pv_tcp_stamps *get(struct pv_tcp *c)
{
	struct pv_tcp_table *t = c->t;
	struct pv_tcp_stamps *st = c->stamps ? c->stamps : t->mem->alloc(t->mem->ctx, sizeof(*st));

	if (!st || c->stamps)
		return st;
	*st = (struct pv_tcp_stamps){ .q = { .net = t->net,
					     .used = &st->used,
					     .limit = &c->opts.rcvbuf,
					     .tell = tell,
					     .stats = pv_tcp_stamp_stats,
					     .owner = c } };
	if (pv_stampq_open(&st->q)) {
		t->mem->free(t->mem->ctx, st, sizeof(*st));
		return NULL;
	}
	c->stamps = st;
	return st;
}

int pv_tcp_stamps_set(struct pv_tcp *c, uint32_t flags)
{
	struct pv_tcp_stamps *st = flags ? get(c) : c->stamps;

	if (!st)
		return flags ? -ENOMEM : 0;
	if (flags & ~st->q.flags & PV_STAMP_OPT_ID)
		st->q.base = flags & PV_STAMP_OPT_ID_TCP ? c->write_seq.v : c->snd_una.v;
	st->q.flags = flags;
	return 0;
}

struct pv_stampq *pv_tcp_stamps(const struct pv_tcp *c)
{
	return c->stamps ? &c->stamps->q : NULL;
}

void pv_tcp_stamps_close(struct pv_tcp *c)
{
	const struct pv_mem *mem = c->t->mem;
	struct pv_tcp_stamps *st = c->stamps;

	if (!st)
		return;
	c->stamps = NULL;
	pv_stampq_close(&st->q);
	if (st->want)
		mem->free(mem->ctx, st->want, st->cap * sizeof(*st->want));
	mem->free(mem->ctx, st, sizeof(*st));
}

void pv_tcp_stamps_forget(struct pv_tcp *c)
{
	if (c->stamps)
		c->stamps->count = 0;
}

/* ---- what is asked for ------------------------------------------------------------------------------------------------------ */

static struct pv_tcp_want *nth(const struct pv_tcp_stamps *st, uint32_t i)
{
	return &st->want[(st->head + i) & (st->cap - 1)];
}

static bool grow(const struct pv_tcp *c, struct pv_tcp_stamps *st)
{
	const struct pv_mem *mem = c->t->mem;
	uint32_t cap = st->cap ? 2 * st->cap : FIRST_WANTS;
	struct pv_tcp_want *grown = cap <= WANTS_MAX ? mem->alloc(mem->ctx, cap * sizeof(*grown)) : NULL;

	if (!grown)
		return false;
	for (uint32_t i = 0; i < st->count; i++)
		grown[i] = *nth(st, i);
	if (st->want)
		mem->free(mem->ctx, st->want, st->cap * sizeof(*grown));
	st->want = grown;
	st->cap = cap;
	st->head = 0;
	return true;
}

void pv_tcp_stamp_mark(struct pv_tcp *c, struct pv_tcp_seg *s, uint32_t what)
{
	struct pv_tcp_stamps *st = get(c);
	pv_seq last = pv_seq_add(s->seq, s->len - 1u);
	struct pv_tcp_want *w;

	if (!st || !s->len)
		return;
	w = st->count ? nth(st, st->count - 1) : NULL;
	if (!w || pv_seq_lt(w->last, s->seq)) {
		if (st->count == st->cap && !grow(c, st))
			return;
		w = nth(st, st->count++);
		w->what = 0;
	}
	w->last = last;
	w->what |= what;
	s->flags |= PV_SEG_STAMP;
}

void pv_tcp_stamp_last(struct pv_tcp *c, uint32_t what)
{
	if (c->unsent && what)
		pv_tcp_stamp_mark(c, pv_list_entry(c->sndq.prev, struct pv_tcp_seg, link), what);
}

static uint32_t key_of(const struct pv_stampq *q, pv_seq last)
{
	return q->flags & PV_STAMP_OPT_ID ? last.v - q->base : 0;
}

bool pv_tcp_stamp_ask(const struct pv_tcp *c, pv_seq start, pv_seq end, struct pv_stamp_ask *ask)
{
	struct pv_tcp_stamps *st = c->stamps;
	const struct pv_tcp_want *w;
	uint32_t low = 0, high = st ? st->count : 0, count = high;

	/* They are in the order of the stream. */
	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (pv_seq_lt(nth(st, mid)->last, start))
			low = mid + 1;
		else
			high = mid;
	}
	if (low == count)
		return false;
	w = nth(st, low);
	if (pv_seq_ge(w->last, end))
		return false;
	*ask = (struct pv_stamp_ask){ .q = &st->q, .what = w->what & PV_STAMP_TX_POST, .key = key_of(&st->q, w->last) };
	return ask->what;
}

static void tell_acked(struct pv_tcp *c, const struct pv_tcp_seg *s, pv_seq last, const struct pv_tcp_in *in)
{
	struct pv_tcp_stamps *st = c->stamps;

	st->acked = s;
	st->by = in;
	pv_stampq_acked(&st->q, key_of(&st->q, last), pv_seg_data(s), s->len, s->pkt->pool, c->t->head.now_ns);
	st->acked = NULL;
	st->by = NULL;
}

void pv_tcp_stamp_acked(struct pv_tcp *c, const struct pv_tcp_seg *s, const struct pv_tcp_in *in)
{
	struct pv_tcp_stamps *st = c->stamps;
	pv_seq end = pv_seg_end(s);

	/* What else the peer has acknowledged is of the segments behind. */
	if (pv_seq_gt(end, c->snd_una))
		end = c->snd_una;
	while (st && st->count) {
		const struct pv_tcp_want w = *nth(st, 0);

		if (pv_seq_ge(w.last, end))
			return;
		st->head = (st->head + 1) & (st->cap - 1);
		st->count--;
		if (w.what & PV_STAMP_TX_ACK && s->pkt)
			tell_acked(c, s, w.last, in);
	}
}

/* ---- received --------------------------------------------------------------------------------------------------------------- */

void pv_tcp_rx_stamp_note(struct pv_tcp *c, const struct pv_pkt *pkt)
{
	struct pv_tcp_stamps *st = get(c);

	if (st)
		st->rx = (struct pv_tcp_rx_stamp){ .ns = (int64_t)PV_TCP_PKT_NS(pkt),
						   .raw = pkt->tstamp,
						   .iface = pkt->iface,
						   .is_raw = pkt->flags & PV_PKT_TSTAMP };
}

bool pv_tcp_rx_stamp(struct pv_tcp *c, struct pv_tcp_rx_stamp *out)
{
	if (!c->stamps || !c->stamps->rx.ns)
		return false;
	*out = c->stamps->rx;
	c->stamps->rx.ns = 0;
	return true;
}
