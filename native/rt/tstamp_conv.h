/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How ticks of a device become nanoseconds: a line of two pieces, followed by whoever samples clocks and read by whoever has a stamp.
 *
 * The newest piece begins where the one before it ends, so that stamps stay in order across an update, and a packet stamped before the
 * update converts as it would have before. Only a step of a clock leaves a gap. The newer piece bends towards what the samples say instead of jumping there.
 *
 * No clock is read here but by the functions that a caller passes.
 */
#ifndef PV_RT_TSTAMP_CONV_H
#define PV_RT_TSTAMP_CONV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "ring/ring.h"

/* From tick `raw` on: ns + (ticks * mult + frac) / 2^shift. */
struct pv_tseg {
	uint64_t raw;
	int64_t ns;
	uint64_t frac, mult, shift;
};

struct pv_tline {
	struct pv_tseg cur, prev;
	uint64_t mask; /* of the counter */
	uint64_t half; /* ticks beyond this lie behind a piece's beginning; UINT64_MAX: none do */
};

#define PV_TLINE_WORDS (sizeof(struct pv_tline) / sizeof(uint64_t))

/* A line that one thread writes and any reads, without a lock. A sequence lock over two copies: the one that `seq` names by its lowest bit
 * is whole while the other is being written, so that a reader never waits for a writer that sleeps. */
struct pv_tconv {
	_Atomic(uint32_t) seq; /* 0: there is no line yet */
	_Atomic(uint64_t) word[2][PV_TLINE_WORDS];
};

int64_t pv_tline_ns(const struct pv_tline *l, uint64_t raw);
/* Ticks of a clock of `khz` that count from 0, as they are. */
void pv_tline_raw(struct pv_tline *l, uint64_t khz);
/* Nanoseconds already. */
void pv_tline_same(struct pv_tline *l);
/* As the driver disciplines the counter. True: the clock stepped (or this is the first). */
bool pv_tline_info(struct pv_tline *l, const struct pv_ring_clock_info *info);

void pv_tconv_publish(struct pv_tconv *c, const struct pv_tline *l); /* one writer at a time */
void pv_tconv_clear(struct pv_tconv *c); /* no reader may be inside */
bool pv_tconv_ns(const struct pv_tconv *c, uint64_t raw, int64_t *ns); /* false: no line */

/* ---- sampling ---------------------------------------------------------------------------------------------------------- */

/* The counter read `raw` when the reference clock was at ns, give or take width_ns / 2. */
struct pv_tsample {
	uint64_t raw, width_ns;
	int64_t ns;
};

struct pv_tpair {
	int (*raw)(void *ctx, uint64_t *raw); /* 0 or -errno */
	int64_t (*ref_ns)(void *ctx); /* 0: it cannot be read */
	void *ctx;
};

/* Of so many readings between two of the reference the tightest. 0, what `raw` said, -EIO (no reference), -EAGAIN. */
int pv_tsample_take(struct pv_tsample *out, const struct pv_tpair *pair, uint32_t tries);

/* ---- the sync converter ------------------------------------------------------------------------------------------------ */

#define PV_TSYNC_WINDOW 12u

/*
 * Follows a reference clock by samples. Frequency: over the samples of the last seconds. Offset: what the line is off by is made up for
 * until the next sample. A sample that no drift explains is a step of either clock: the line jumps there at once, and is sampled sooner.
 */
struct pv_tsync {
	struct pv_tline line; /* in force after an update */
	uint64_t khz, mask;
	uint64_t nominal, mult; /* ns a tick, PV_TSYNC_SHIFT fraction bits: as documented, as measured */
	uint64_t last_raw;
	int64_t last_ticks; /* counted without wrapping */
	struct {
		int64_t ticks, ns;
		uint64_t width_ns;
	} sample[PV_TSYNC_WINDOW]; /* oldest first */
	uint32_t n;
	uint32_t round; /* updates since the start or the last step */
	uint32_t skipped; /* poor samples in a row */
	uint64_t best_width_ns;
	bool known; /* the frequency was measured, over */
	int64_t mult_span_ns;
	uint64_t error_bound_ns;
	uint64_t samples, steps;
};

#define PV_TSYNC_SHIFT 40u

/* `mask`: bits that the counter counts with. */
void pv_tsync_init(struct pv_tsync *s, uint64_t khz, uint64_t mask);
/* Takes a sample in; ns until the next is wanted. */
int64_t pv_tsync_update(struct pv_tsync *s, const struct pv_tsample *sample);

#endif
