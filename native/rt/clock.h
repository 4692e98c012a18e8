/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The time that the stack is given: CLOCK_MONOTONIC, read from the CPU's time stamp counter where that runs at a constant rate, and
 * fitted to the kernel's clock again every tenth of a second or so. A reading costs a few nanoseconds. Never goes backwards.
 */
#ifndef PV_RT_CLOCK_H
#define PV_RT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/compiler.h"

/* One owner at a time: the holder of the engine's lock. */
struct pv_clock {
	uint64_t tsc0; /* counter and time of the last fit */
	int64_t ns0;
	uint64_t mult; /* nanoseconds a tick, 32 fraction bits */
	uint64_t span; /* ticks until the next fit; 0: not fitted yet, or no usable counter */
	int64_t last; /* latest time given out by pv_clock_fit */
	bool usable; /* the counter's rate is constant */
};

void pv_clock_init(struct pv_clock *c);
/* Asks the kernel, fits again; the slow half of pv_clock_now. */
int64_t pv_clock_fit(struct pv_clock *c);
/* clock_gettime(CLOCK_MONOTONIC); any thread. */
int64_t pv_clock_kernel_ns(void);
/* What is left until then, as ppoll takes it: nothing when it has passed, or for PV_NEVER; any thread. */
struct timespec pv_clock_left(int64_t until_ns);
/* CLOCK_REALTIME minus CLOCK_MONOTONIC now; any thread. */
int64_t pv_clock_realtime_offset_ns(void);

pv_inline uint64_t pv_clock_tsc(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

pv_inline int64_t pv_clock_now(struct pv_clock *c)
{
	uint64_t d = pv_clock_tsc() - c->tsc0;

	if (pv_unlikely(d >= c->span))
		return pv_clock_fit(c);
	return c->ns0 + (int64_t)((d * c->mult) >> 32);
}

#endif
