/* SPDX-License-Identifier: BSD-3-Clause */
/* Clock, histogram, bookkeeping of sequence numbers. */
#include <math.h>
#include <sched.h>
#include <time.h>

#include "bench/bench.h"

static uint64_t start_ticks;
static int64_t start_ns;

int64_t bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

void bench_clock_start(void)
{
	start_ns = bench_now_ns();
	start_ticks = bench_ticks();
}

double bench_tick_ns(void)
{
	int64_t now;

	do {
		now = bench_now_ns();
	} while (now - start_ns < 10 * PV_NS_PER_MS);
	return (double)(now - start_ns) / (double)(bench_ticks() - start_ticks);
}

int bench_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return 0;
	CPU_ZERO(&set);
	CPU_SET((unsigned int)cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? bench_fail("no such CPU", cpu) : 0;
}

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

double hist_value(uint32_t slot)
{
	uint32_t octave = slot >> HIST_BITS;
	double width;

	if (octave < 2)
		return slot;
	width = ldexp(1, (int)octave - 1);
	return (double)((slot & ((1u << HIST_BITS) - 1)) + (1u << HIST_BITS)) * width + (width - 1) / 2;
}

double hist_quantile(const struct hist *h, double q)
{
	uint64_t rank = (uint64_t)ceil(q * (double)h->count), seen = 0;

	if (!h->count)
		return 0;
	rank = PV_MAX(rank, UINT64_C(1));
	for (uint32_t i = 0; i < HIST_SLOTS; i++) {
		seen += h->slot[i];
		if (seen >= rank)
			return PV_MIN(PV_MAX(hist_value(i), (double)h->min), (double)h->max);
	}
	return (double)h->max;
}

void seen_init(struct seen *s)
{
	memset(s, 0, sizeof(*s));
	s->next = s->first = 1;
}

void seen_restart(struct seen *s)
{
	s->old_lost = seen_lost(s);
	s->unique = 0;
	memset(s->here, 0, sizeof(s->here));
	s->next = s->first = 1;
}

/* A hole before it, a late or a repeated one. */
void seen_other(struct seen *s, uint64_t seq)
{
	if (seq >= s->next) {
		uint64_t gap = PV_MIN(seq - s->next, (uint64_t)SEEN_WINDOW);

		for (uint64_t i = 1; i <= gap; i++)
			s->here[(seq - i) % SEEN_WINDOW] = 0;
		s->next = seq + 1;
	} else if (s->next - seq > SEEN_WINDOW || s->here[seq % SEEN_WINDOW]) {
		s->duplicated++;
		return;
	} else {
		s->reordered++;
	}
	s->here[seq % SEEN_WINDOW] = 1;
	s->unique++;
}

void seen_late(struct seen *s, uint64_t seq)
{
	if (seq == 1 && s->next > 64)
		seen_restart(s);
	seen_other(s, seq);
}

uint64_t seen_lost(const struct seen *s)
{
	return s->old_lost + (s->next - s->first) - s->unique;
}
