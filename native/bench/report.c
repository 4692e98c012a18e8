/* SPDX-License-Identifier: BSD-3-Clause */
/* One JSON object on stdout for whoever started us. Latencies are half round trips, as sockperf's. */
#include <errno.h>
#include <math.h>

#include "bench/bench.h"

static const double ladder[] = { 25, 50, 75, 90, 99, 99.9, 99.99, 99.999 };

int bench_fail(const char *what, int rc)
{
	if (rc < 0)
		fprintf(stderr, "pyvma-bench: %s: %s\n", what, strerror(-rc));
	else if (rc > 0)
		fprintf(stderr, "pyvma-bench: %s: %d\n", what, rc);
	else
		fprintf(stderr, "pyvma-bench: %s\n", what);
	return 1;
}

void bench_ready(const struct bench_opts *o, const uint8_t *mac)
{
	(void)o;
	printf("{\"ready\": true");
	if (mac)
		printf(", \"mac\": \"%02x:%02x:%02x:%02x:%02x:%02x\"", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
	printf("}\n");
	fflush(stdout);
}

static void print_latency(const struct hist *h, double half_us)
{
	double n = (double)h->count, mean = h->sum / n, var = h->sum_sq / n - mean * mean;

	printf(", \"observations\": %llu, \"avg_us\": %.4f, \"stddev_us\": %.4f, \"min_us\": %.4f, \"max_us\": %.4f",
	       (unsigned long long)h->count, mean * half_us, sqrt(PV_MAX(var, 0)) * half_us, (double)h->min * half_us,
	       (double)h->max * half_us);
	for (size_t i = 0; i < pv_array_size(ladder); i++)
		printf(", \"p%g_us\": %.4f", ladder[i], hist_quantile(h, ladder[i] / 100) * half_us);
}

/* Pairs of a half round trip in nanoseconds, the middle of its slot, and how many there were; the shortest first. */
static void print_histogram(const struct hist *h, double half_ns)
{
	const char *before = "";

	printf(", \"histogram_ns\": [");
	for (uint32_t i = 0; i < HIST_SLOTS; i++) {
		double v = PV_MIN(PV_MAX(hist_value(i), (double)h->min), (double)h->max);

		if (!h->slot[i])
			continue;
		printf("%s[%.1f, %llu]", before, v * half_ns, (unsigned long long)h->slot[i]);
		before = ", ";
	}
	printf("]");
}

void bench_report(const struct bench_opts *o, const struct bench_result *r)
{
	double tick_ns = bench_tick_ns(), seconds = (double)(r->end - r->start) * tick_ns / 1e9;
	uint64_t lost = o->role == ROLE_SERVER ? seen_lost(&r->seen) : r->lost;

	printf("{\"sent\": %llu, \"received\": %llu, \"unique\": %llu, \"lost\": %llu, \"duplicated\": %llu, \"reordered\": %llu, "
	       "\"timeouts\": %llu, \"seconds\": %.6f, \"size\": %u",
	       (unsigned long long)r->sent, (unsigned long long)r->received, (unsigned long long)r->seen.unique,
	       (unsigned long long)lost, (unsigned long long)r->seen.duplicated, (unsigned long long)r->seen.reordered,
	       (unsigned long long)r->timeouts, seconds, o->size);
	if (o->mixed)
		printf(", \"bytes\": %llu", (unsigned long long)r->bytes);
	if (r->rtt.count)
		print_latency(&r->rtt, tick_ns / 2000);
	if (r->rtt.count && o->histogram)
		print_histogram(&r->rtt, tick_ns / 2);
	if (r->wake.count)
		printf(", \"wake_observations\": %llu, \"wake_min_us\": %.3f, \"wake_p50_us\": %.3f, \"wake_p99_us\": %.3f",
		       (unsigned long long)r->wake.count, (double)r->wake.min / 1e3, hist_quantile(&r->wake, 0.5) / 1e3,
		       hist_quantile(&r->wake, 0.99) / 1e3);
	printf("}\n");
	fflush(stdout);
}
