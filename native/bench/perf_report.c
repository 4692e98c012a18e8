/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's result as JSON, in the words of the other reports, and its messages one by one in the columns of sockperf's full log. */
#include "bench/perf_client.h"

static const char *const modes[] = { "ping-pong", "under-load", "throughput", "playback" };

static int write_log(const struct perf_client *c)
{
	/* Seconds since the clock's zero, as far as this program knows it. */
	double zero = (double)bench_now_ns() - (double)bench_ticks() * c->tick_ns, per = c->o->full_rtt ? 1 : 2;
	FILE *f = fopen(c->o->full_log, "we");
	bool failed;

	if (!f)
		return bench_fail(c->o->full_log, -errno);
	fprintf(f, "packet, txTime(sec), rxTime(sec), %s(usec)\n", c->o->full_rtt ? "rtt" : "latency");
	for (uint64_t i = 0; i < c->logged; i++) {
		double tx = zero + (double)c->log[i].tx * c->tick_ns, rx = zero + (double)c->log[i].rx * c->tick_ns;

		fprintf(f, "%llu, %.9f, %.9f, %.3f\n", (unsigned long long)i, tx / 1e9, rx / 1e9, (rx - tx) / 1e3 / per);
	}
	failed = ferror(f) != 0;
	return fclose(f) || failed ? bench_fail(c->o->full_log, -EIO) : 0;
}

static void print_run(const struct perf_client *c, double tick_ns, double valid_s)
{
	const struct perf_opts *o = c->o;
	double seconds = (double)(c->ended - c->start) * tick_ns / 1e9;
	uint64_t lost = c->requested - PV_MIN(c->seen.unique, c->requested);

	printf(
	    "{\"mode\": \"%s\", \"sent\": %llu, \"received\": %llu, \"unique\": %llu, \"lost\": %llu, \"duplicated\": %llu, "
	    "\"reordered\": %llu, \"timeouts\": %llu, \"corrupt\": %llu, \"malformed\": %llu, \"refused\": %llu, \"seconds\": %.6f",
	    modes[o->mode], (unsigned long long)c->seq, (unsigned long long)(c->received + c->acks),
	    (unsigned long long)c->seen.unique, (unsigned long long)lost, (unsigned long long)c->seen.duplicated,
	    (unsigned long long)c->seen.reordered, (unsigned long long)c->timeouts, (unsigned long long)c->corrupt,
	    (unsigned long long)c->bad, (unsigned long long)c->refused, seconds);
	printf(", \"size\": %u, \"range\": %u, \"burst\": %u, \"reply_every\": %u, \"mps\": ", o->size, o->range, o->burst,
	       o->reply_every);
	if (o->mps > 0)
		printf("%.0f", o->mps);
	else
		printf("\"max\"");
	printf(", \"sockets\": %u, \"rate_mps\": %.3f, \"warmup_ms\": %.0f, \"cooldown_ms\": %.0f", c->n,
	       valid_s > 0 ? (double)c->valid_sent / valid_s : 0.0, o->warmup_s * 1e3, o->cooldown_s * 1e3);
}

int perf_report(const struct perf_client *c)
{
	double tick_ns = bench_tick_ns(), per = c->o->full_rtt ? 1 : 2;
	/* Of a file: all of it, whatever it lasts. */
	uint64_t to = PV_MIN(c->valid_to, c->ended);
	double valid_s = to > c->valid_from ? (double)(to - c->valid_from) * tick_ns / 1e9 : 0;

	print_run(c, tick_ns, valid_s);
	printf(", \"valid_seconds\": %.6f, \"valid_sent\": %llu", valid_s, (unsigned long long)c->valid_sent);
	if (c->o->reply_every) {
		printf(", \"figures\": \"%s\", \"valid_received\": %llu, \"dropped\": %llu",
		       c->o->full_rtt ? "round trip" : "half round trip", (unsigned long long)c->valid_received,
		       (unsigned long long)(c->valid_requested - PV_MIN(c->valid_received, c->valid_requested)));
	}
	if (c->rtt.count) {
		bench_print_latency("", &c->rtt, tick_ns / 1e3 / per);
		if (c->o->histogram)
			bench_print_histogram("", &c->rtt, tick_ns / per);
	}
	if (c->from_due.count) {
		bench_print_latency("due_", &c->from_due, tick_ns / 1e3 / per);
		if (c->o->histogram)
			bench_print_histogram("due_", &c->from_due, tick_ns / per);
	}
	printf("}\n");
	fflush(stdout);
	return c->o->full_log ? write_log(c) : 0;
}
