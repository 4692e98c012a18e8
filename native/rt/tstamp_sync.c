/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sync converter. What an update does is of the kind that NTP calls a frequency-locked loop: the rate is the slope between the
 * oldest and the newest sample of a window of some seconds, and the remaining offset is spread over the time until the next sample.
 */
#include <string.h>

#include "rt/tstamp_conv.h"

#define PERIOD_NS PV_NS_PER_S
#define FIRST_NS (100 * PV_NS_PER_MS) /* twice after the start and after a step */
#define WINDOW_NS (8 * PV_NS_PER_S)
#define LEAD_NS PV_NS_PER_MS /* a new piece begins so far ahead, where no stamp has been converted by the old one yet */
#define DRIFT_PPM 1000 /* of a crystal at worst, and of a reference that NTP slews; more is another kind of fault */
#define WANDER_PPM 2 /* that a measured frequency may be off by: what is beyond is a step, or another frequency */
#define TRUST_NS (500 * PV_NS_PER_MS) /* samples so far apart tell the frequency well, closer ones only better than none */
#define SLEW_PPM 2000 /* to make up for an offset; what is more is jumped */
#define POOR_MAX 3u /* samples that are passed over in a row */

typedef __int128 wide;

#define ONE ((wide)1 << PV_TSYNC_SHIFT)

void pv_tsync_init(struct pv_tsync *s, uint64_t khz, uint64_t mask)
{
	*s = (struct pv_tsync){ .khz = khz, .mask = mask, .best_width_ns = UINT64_MAX, .error_bound_ns = UINT64_MAX };
	s->nominal = s->mult = (uint64_t)(((wide)1000000 << PV_TSYNC_SHIFT) / khz);
}

static int64_t ticks_of(const struct pv_tsync *s, int64_t ns)
{
	return (int64_t)((wide)ns * (wide)s->khz / 1000000);
}

static wide ns_of(const struct pv_tsync *s, wide ticks)
{
	return (ticks * (wide)s->nominal) >> PV_TSYNC_SHIFT;
}

/* The line begins anew at the sample; what was stamped before it is taken for stamped after the step. */
static void jump(struct pv_tsync *s, const struct pv_tsample *x)
{
	s->line.cur = (struct pv_tseg){ .raw = x->raw, .ns = x->ns, .mult = s->mult, .shift = PV_TSYNC_SHIFT };
	s->line.prev = s->line.cur;
	s->line.mask = s->mask;
	s->line.half = s->mask >> 1;
}

static void forget(struct pv_tsync *s)
{
	s->n = 0;
	s->round = 0;
}

static void remember(struct pv_tsync *s, const struct pv_tsample *x)
{
	uint32_t drop = s->n == PV_TSYNC_WINDOW;

	/* The oldest goes when the others span the window without it. */
	while (s->n - drop > 2 && x->ns - s->sample[drop + 1].ns >= WINDOW_NS)
		drop++;
	memmove(s->sample, s->sample + drop, (s->n - drop) * sizeof(s->sample[0]));
	s->n -= drop;
	s->sample[s->n].ticks = s->last_ticks;
	s->sample[s->n].ns = x->ns;
	s->sample[s->n++].width_ns = x->width_ns;
}

static int64_t span_ns(const struct pv_tsync *s)
{
	return s->sample[s->n - 1].ns - s->sample[0].ns;
}

/* ns a tick, from the oldest sample to the newest; 0: no clock runs like that. */
static uint64_t slope(const struct pv_tsync *s)
{
	int64_t ticks = (int64_t)((uint64_t)s->sample[s->n - 1].ticks - (uint64_t)s->sample[0].ticks);
	wide mult, off;

	if (ticks <= 0)
		return 0;
	mult = (wide)span_ns(s) * ONE / ticks;
	off = mult - (wide)s->nominal;
	return off * 1000000 > (wide)s->nominal * DRIFT_PPM || -off * 1000000 > (wide)s->nominal * DRIFT_PPM ? 0 : (uint64_t)mult;
}

/* A frequency that was measured over longer is not given up for one that was measured over a moment. */
static void measure(struct pv_tsync *s)
{
	uint64_t mult = slope(s);

	if (!mult || (s->known && span_ns(s) < PV_MIN(s->mult_span_ns, TRUST_NS)))
		return;
	s->mult = mult;
	s->mult_span_ns = span_ns(s);
	s->known = true;
}

static int64_t period(const struct pv_tsync *s)
{
	int64_t ns = s->round < 2 ? FIRST_NS : PERIOD_NS;

	/* A narrow counter must not come round to where it looks like the past. */
	if (s->mask != UINT64_MAX)
		ns = PV_MIN(ns, (int64_t)(((wide)s->mask * (wide)s->nominal) >> (PV_TSYNC_SHIFT + 2)));
	return PV_MAX(ns, PV_NS_PER_MS);
}

/* Ends the present piece a little ahead and begins one that meets the samples when the next is due. False: it was off too far for that. */
static bool bend(struct pv_tsync *s, const struct pv_tsample *x, int64_t until_ns)
{
	uint64_t at = (x->raw + (uint64_t)ticks_of(s, PV_MIN(LEAD_NS, until_ns / 4))) & s->mask;
	const struct pv_tseg *cur = &s->line.cur;
	uint64_t gone = (at - cur->raw) & s->mask;
	wide from = (wide)gone * cur->mult + cur->frac;
	wide should = (wide)((at - x->raw) & s->mask) * s->mult;
	struct pv_tseg next = { .raw = at, .shift = PV_TSYNC_SHIFT };
	int64_t ticks = PV_MAX(ticks_of(s, until_ns), INT64_C(1));
	wide off;

	next.ns = (int64_t)((uint64_t)cur->ns + (uint64_t)(from >> PV_TSYNC_SHIFT));
	next.frac = (uint64_t)(from & (ONE - 1));
	off = ((wide)x->ns - next.ns) * ONE + should - (wide)next.frac;
	if (gone > s->line.half || off * 1000000 > (wide)s->nominal * ticks * SLEW_PPM ||
	    -off * 1000000 > (wide)s->nominal * ticks * SLEW_PPM) {
		jump(s, x);
		return false;
	}
	next.mult = (uint64_t)((wide)s->mult + off / ticks);
	s->line.prev = *cur;
	s->line.cur = next;
	return true;
}

/* What conversion is off by at most until the next update: where the samples may lie, what is being made up for, and how well the frequency
 * is known. */
static void bound(struct pv_tsync *s, wide off_ns, int64_t until_ns)
{
	uint64_t width = s->sample[s->n - 1].width_ns / 2, off = (uint64_t)(off_ns < 0 ? -off_ns : off_ns);
	wide drift = s->known ? (wide)(2 * width) * until_ns / s->mult_span_ns : (wide)until_ns * DRIFT_PPM / 1000000;

	s->error_bound_ns = width + off + (uint64_t)drift + 1;
}

/* The best of the tries was a bad one: this thread was kept from running between all its readings. The next will do. */
static bool poor(struct pv_tsync *s, const struct pv_tsample *x)
{
	s->best_width_ns = PV_MIN(s->best_width_ns, x->width_ns);
	if (x->width_ns <= 4 * s->best_width_ns + (uint64_t)PV_NS_PER_US || s->skipped >= POOR_MAX) {
		s->skipped = 0;
		return false;
	}
	s->skipped++;
	return true;
}

/* Is a sample further off the line than the clocks' drifting apart since the last explains? */
static bool beyond(const struct pv_tsync *s, const struct pv_tsample *x, wide off_ns, wide ticks)
{
	wide since = ns_of(s, ticks < 0 ? -ticks : ticks), ppm = s->known ? WANDER_PPM : DRIFT_PPM;
	wide may = since * ppm / 1000000 + (x->width_ns + s->sample[s->n - 1].width_ns) / 2 + 1;

	return off_ns > may || off_ns < -may;
}

/*
 * A surprise is a step or another frequency, and one sample does not tell which: the line goes there, and the frequency stays. If the next
 * sample, soon after, is off again, then these two tell the new frequency.
 */
static void surprise(struct pv_tsync *s, const struct pv_tsample *x)
{
	uint64_t mult;

	if (s->round == 0) {
		remember(s, x);
		mult = slope(s);
		if (mult) {
			s->mult = mult;
			s->mult_span_ns = span_ns(s);
		}
	}
	forget(s);
}

int64_t pv_tsync_update(struct pv_tsync *s, const struct pv_tsample *x)
{
	uint64_t d = (x->raw - s->last_raw) & s->mask;
	wide ticks = d <= s->mask >> 1 ? (wide)d : -(wide)((s->last_raw - x->raw) & s->mask), off_ns = 0;
	int64_t until;

	if (s->samples && poor(s, x))
		return FIRST_NS;
	s->best_width_ns = PV_MIN(s->best_width_ns, x->width_ns);
	s->last_raw = x->raw;
	if (!s->samples++) {
		remember(s, x);
		jump(s, x);
	} else {
		s->last_ticks = (int64_t)((uint64_t)s->last_ticks + (uint64_t)ticks);
		off_ns = (wide)x->ns - pv_tline_ns(&s->line, x->raw);
		if (beyond(s, x, off_ns, ticks))
			surprise(s, x);
		else
			s->round++;
		remember(s, x);
		measure(s);
		if (!bend(s, x, period(s))) {
			s->steps++;
			off_ns = 0;
		}
	}
	until = period(s);
	bound(s, off_ns, until);
	return until;
}
