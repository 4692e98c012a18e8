/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines, and reading them without a lock. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "rt/tstamp_conv.h"

typedef __int128 wide;

_Static_assert(sizeof(struct pv_tline) == PV_TLINE_WORDS * sizeof(uint64_t), "a line is words and nothing between them");

/* Rounded down, so that one tick more is never a nanosecond less, on either side of the beginning. */
pv_inline int64_t seg_ns(const struct pv_tseg *s, wide ticks)
{
	return (int64_t)((uint64_t)s->ns + (uint64_t)((ticks * s->mult + s->frac) >> s->shift));
}

pv_inline int64_t line_ns(const struct pv_tline *l, uint64_t raw)
{
	uint64_t d = (raw - l->cur.raw) & l->mask;

	if (pv_likely(d <= l->half))
		return seg_ns(&l->cur, d);
	d = (raw - l->prev.raw) & l->mask;
	if (d <= l->half)
		return seg_ns(&l->prev, d);
	return seg_ns(&l->prev, -(wide)((l->prev.raw - raw) & l->mask));
}

int64_t pv_tline_ns(const struct pv_tline *l, uint64_t raw)
{
	return line_ns(l, raw);
}

void pv_tline_raw(struct pv_tline *l, uint64_t khz)
{
	uint64_t shift = 56;

	/* As fine as a product with any 64 bits allows. */
	while (shift && ((wide)1000000 << shift) / khz >> 62)
		shift--;
	*l = (struct pv_tline){ .mask = UINT64_MAX, .half = UINT64_MAX };
	l->cur.mult = (uint64_t)(((wide)1000000 << shift) / khz);
	l->cur.shift = shift;
}

void pv_tline_same(struct pv_tline *l)
{
	*l = (struct pv_tline){ .cur = { .mult = 1 }, .mask = UINT64_MAX, .half = UINT64_MAX };
}

/* The driver's own pieces join to the nanosecond; a gap is a clock that was set. */
bool pv_tline_info(struct pv_tline *l, const struct pv_ring_clock_info *info)
{
	const struct pv_tseg seg = { .raw = info->cycles,
				     .ns = (int64_t)info->nsec,
				     .frac = info->frac,
				     .mult = info->mult,
				     .shift = PV_MIN(info->shift, 63u) };
	bool first = !l->cur.mult || l->mask != info->mask;
	int64_t gap;

	if (!first && !memcmp(&seg, &l->cur, sizeof(seg)))
		return false;
	if (first || __builtin_sub_overflow(line_ns(l, seg.raw), seg.ns, &gap) || gap < -PV_NS_PER_US || gap > PV_NS_PER_US) {
		*l = (struct pv_tline){ .cur = seg, .prev = seg, .mask = info->mask, .half = info->mask >> 1 };
		return true;
	}
	l->prev = l->cur;
	l->cur = seg;
	return false;
}

/* Each store stays behind the last change of `seq`, which took readers of this copy away, and each load before the second look at it:
 * whoever reads a mixture sees that it changed. */
void pv_tconv_publish(struct pv_tconv *c, const struct pv_tline *l)
{
	uint32_t seq = atomic_load_explicit(&c->seq, memory_order_relaxed) + 1;
	uint64_t word[PV_TLINE_WORDS];

	seq = seq ? seq : 2; /* of 0's parity */
	memcpy(word, l, sizeof(word));
	for (uint32_t i = 0; i < PV_TLINE_WORDS; i++)
		atomic_store_explicit(&c->word[seq & 1][i], word[i], memory_order_release);
	atomic_store_explicit(&c->seq, seq, memory_order_release);
}

/* A word of the copy at `w`; `cur` at `prev`, too, when that is where `w` points. */
#define WORD(w, member) atomic_load_explicit(&(w)[offsetof(struct pv_tline, member) / sizeof(uint64_t)], memory_order_acquire)

void pv_tconv_clear(struct pv_tconv *c)
{
	atomic_store_explicit(&c->seq, 0, memory_order_release);
}

/* Only the words that it takes: a piece's five, and what tells which piece. */
bool pv_tconv_ns(const struct pv_tconv *c, uint64_t raw, int64_t *ns)
{
	uint64_t d, from, frac, mult, shift;
	uint32_t seq;
	bool behind;

	do {
		const _Atomic(uint64_t) *w;
		uint64_t mask, half;

		seq = atomic_load_explicit(&c->seq, memory_order_acquire);
		if (pv_unlikely(!seq))
			return false;
		w = c->word[seq & 1];
		mask = WORD(w, mask);
		half = WORD(w, half);
		d = (raw - WORD(w, cur.raw)) & mask;
		behind = false;
		if (pv_unlikely(d > half)) {
			w += offsetof(struct pv_tline, prev) / sizeof(uint64_t);
			d = (raw - WORD(w, cur.raw)) & mask;
			behind = d > half;
			if (behind)
				d = (WORD(w, cur.raw) - raw) & mask;
		}
		from = WORD(w, cur.ns);
		frac = WORD(w, cur.frac);
		mult = WORD(w, cur.mult);
		shift = WORD(w, cur.shift);
	} while (pv_unlikely(atomic_load_explicit(&c->seq, memory_order_relaxed) != seq));
	if (pv_likely(!behind))
		*ns = (int64_t)(from + (uint64_t)(((unsigned __int128)d * mult + frac) >> shift));
	else
		*ns = (int64_t)(from + (uint64_t)((-(wide)d * mult + frac) >> shift));
	return true;
}

int pv_tsample_take(struct pv_tsample *out, const struct pv_tpair *pair, uint32_t tries)
{
	out->width_ns = UINT64_MAX;
	for (uint32_t i = 0; i < tries; i++) {
		int64_t before = pair->ref_ns(pair->ctx), after;
		uint64_t raw;
		int rc = pair->raw(pair->ctx, &raw);

		if (rc)
			return rc;
		after = pair->ref_ns(pair->ctx);
		if (!before || !after)
			return -EIO;
		/* The reference was set back in between. */
		if (after < before || (uint64_t)(after - before) >= out->width_ns)
			continue;
		*out =
		    (struct pv_tsample){ .raw = raw, .width_ns = (uint64_t)(after - before), .ns = before + (after - before) / 2 };
	}
	return out->width_ns == UINT64_MAX ? -EAGAIN : 0;
}
