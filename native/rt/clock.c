/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rate comes from the kernel's own clock over the time since the previous fit, so adjustments by NTP are followed and no
 * calibration delays the start: until 20 ms have passed every reading asks the kernel.
 */
#include "rt/clock.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define FIRST_FIT_NS (20 * PV_NS_PER_MS)
#define FIT_NS (100 * PV_NS_PER_MS)

static bool counter_is_constant(void)
{
#if defined(__x86_64__)
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)); /* invariant TSC */
#else
	return false;
#endif
}

int64_t pv_clock_kernel_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

/* One reading: of two the later may be behind what the earlier was before, and ppoll refuses a negative time. */
struct timespec pv_clock_left(int64_t until_ns)
{
	int64_t now = pv_clock_kernel_ns(), left = until_ns > now && until_ns != PV_NEVER ? until_ns - now : 0;

	return (struct timespec){ .tv_sec = left / PV_NS_PER_S, .tv_nsec = left % PV_NS_PER_S };
}

int64_t pv_clock_realtime_offset_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * PV_NS_PER_S + ts.tv_nsec - pv_clock_kernel_ns();
}

void pv_clock_init(struct pv_clock *c)
{
	*c = (struct pv_clock){ .usable = counter_is_constant() };
	c->ns0 = c->last = pv_clock_kernel_ns();
	c->tsc0 = pv_clock_tsc();
}

int64_t pv_clock_fit(struct pv_clock *c)
{
	int64_t now = pv_clock_kernel_ns();
	uint64_t tsc = pv_clock_tsc(), ticks = tsc - c->tsc0;
	int64_t passed = now - c->ns0;

	if (!c->usable) {
		c->last = PV_MAX(now, c->last);
		return c->last;
	}
	/* What the present fit may have given out just before this reading. */
	if (c->span && ticks < 2 * c->span)
		c->last = c->ns0 + (int64_t)((ticks * c->mult) >> 32);
	now = PV_MAX(now, c->last);
	c->last = now;
	if (passed < FIRST_FIT_NS)
		return now;
	/* A counter that stood still or ran backwards is not one to trust. */
	if (!ticks || ticks >> 63) {
		c->usable = false;
		c->span = 0;
		return now;
	}
	c->mult = (uint64_t)(((unsigned __int128)(uint64_t)passed << 32) / ticks);
	c->span = c->mult ? (uint64_t)(((unsigned __int128)FIT_NS << 32) / c->mult) : 0;
	c->tsc0 = tsc;
	c->ns0 = now;
	return now;
}
