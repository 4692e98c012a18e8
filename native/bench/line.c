/* SPDX-License-Identifier: BSD-3-Clause */
/* The floor under everything here: two CPUs hand one cache line to each other, and nothing else. */
#include <pthread.h>

#include "bench/bench.h"

struct shared {
	uint64_t word pv_aligned(2 * PV_CACHELINE);
	int cpu;
} pv_aligned(2 * PV_CACHELINE);

#define LINE_STOP UINT64_MAX

static void *echo(void *arg)
{
	struct shared *s = arg;
	uint64_t want = 1;

	if (bench_pin(s->cpu))
		return NULL;
	for (;;) {
		uint64_t v = __atomic_load_n(&s->word, __ATOMIC_ACQUIRE);

		if (v == LINE_STOP)
			return NULL;
		if (v == want) {
			__atomic_store_n(&s->word, v + 1, __ATOMIC_RELEASE);
			want += 2;
		} else {
			pv_cpu_relax();
		}
	}
}

int bench_line(int cpu_a, int cpu_b, double seconds)
{
	static struct shared s;
	static struct hist h;
	uint64_t t0, end, v = 1;
	double tick_ns = bench_tick_ns();
	pthread_t other;

	s.cpu = cpu_b;
	hist_init(&h);
	if (bench_pin(cpu_a))
		return 1;
	if (pthread_create(&other, NULL, echo, &s))
		return bench_fail("no thread", 0);
	t0 = bench_ticks();
	end = t0 + (uint64_t)(seconds * 1e9 / tick_ns);
	while (t0 < end && !bench_stop) {
		uint64_t now;

		__atomic_store_n(&s.word, v, __ATOMIC_RELEASE);
		while (__atomic_load_n(&s.word, __ATOMIC_ACQUIRE) == v && !bench_stop)
			pv_cpu_relax();
		v += 2;
		now = bench_ticks();
		hist_add(&h, now - t0);
		t0 = now;
	}
	__atomic_store_n(&s.word, LINE_STOP, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	tick_ns = bench_tick_ns();
	printf("{\"line_us\": %.4f, \"p99_us\": %.4f, \"observations\": %llu}\n", hist_quantile(&h, 0.5) * tick_ns / 2000,
	       hist_quantile(&h, 0.99) * tick_ns / 2000, (unsigned long long)h.count);
	return 0;
}
