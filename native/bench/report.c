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

void bench_print_latency(const char *prefix, const struct hist *h, double us)
{
	double n = (double)h->count, mean = h->sum / n, var = h->sum_sq / n - mean * mean;

	printf(", \"%sobservations\": %llu, \"%savg_us\": %.4f, \"%sstddev_us\": %.4f, \"%smin_us\": %.4f, \"%smax_us\": %.4f",
	       prefix, (unsigned long long)h->count, prefix, mean * us, prefix, sqrt(PV_MAX(var, 0)) * us, prefix,
	       (double)h->min * us, prefix, (double)h->max * us);
	for (size_t i = 0; i < pv_array_size(ladder); i++)
		printf(", \"%sp%g_us\": %.4f", prefix, ladder[i], hist_quantile(h, ladder[i] / 100) * us);
}

void bench_print_histogram(const char *prefix, const struct hist *h, double ns)
{
	const char *before = "";

	printf(", \"%shistogram_ns\": [", prefix);
	for (uint32_t i = 0; i < HIST_SLOTS; i++) {
		double v = PV_MIN(PV_MAX(hist_value(i), (double)h->min), (double)h->max);

		if (!h->slot[i])
			continue;
		printf("%s[%.1f, %llu]", before, v * ns, (unsigned long long)h->slot[i]);
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
		bench_print_latency("", &r->rtt, tick_ns / 2000);
	if (r->rtt.count && o->histogram)
		bench_print_histogram("", &r->rtt, tick_ns / 2);
	if (r->wake.count)
		printf(", \"wake_observations\": %llu, \"wake_min_us\": %.3f, \"wake_p50_us\": %.3f, \"wake_p99_us\": %.3f",
		       (unsigned long long)r->wake.count, (double)r->wake.min / 1e3, hist_quantile(&r->wake, 0.5) / 1e3,
		       hist_quantile(&r->wake, 0.99) / 1e3);
	printf("}\n");
	fflush(stdout);
}
