/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goodput by loss, delay and the bottleneck's queue, beside what the theory of the congestion control allows, and how evenly flows share
 * a bottleneck. tests/data/tcp_goodput.txt keeps the figures: a change of more than a tenth must be looked at.
 *
 *   tcp_goodput_test print   writes the table as that file has it
 *
 * Theory. No loss: the line's rate. Random loss p: Reno MSS/RTT * sqrt(3/(2p)) (Mathis et al. 1997); CUBIC, RFC 9438 5.1 with C 0.4 and
 * beta 0.7, MSS/RTT * 1.054 * (RTT/p)^(3/4), but not less than Reno's. The line bounds all. Neither counts slow start nor the timeouts of
 * losses that come together, and both take one acknowledgement a segment.
 */
#include <math.h>

#include "tcp_world.h"

#define RATE_KBPS 20000
#define MSS 1448
#define SECONDS 10
#define FLOWS_MAX 16

struct cell {
	const char *cc;
	uint32_t loss_ppm, rtt_ms, queue;
};

static uint8_t junk[1 << 18];

static void net_open(struct world *w, const struct cell *c, uint64_t seed)
{
	struct world_cfg cfg = { .seed = seed, .pool = 4096, .rx_depth = 1024, .tx_depth = 1024 };

	strcpy(cfg.tcp.congestion, c->cc);
	tcp_world_open(w, &cfg);
	w->check = NULL; /* thousands of segments a turn: tcp_random_test looks at them */
	pv_sim_wire_impair(
	    w->wire,
	    &(struct pv_sim_impair){ .latency_ns = c->rtt_ms * PV_NS_PER_MS / 2, .rate_kbps = RATE_KBPS, .queue_limit = c->queue });
}

static void set_loss(struct world *w, const struct cell *c)
{
	pv_sim_wire_impair(w->wire, &(struct pv_sim_impair){ .loss_ppm = c->loss_ppm,
							     .latency_ns = c->rtt_ms * PV_NS_PER_MS / 2,
							     .rate_kbps = RATE_KBPS,
							     .queue_limit = c->queue });
}

/* Greedy senders for some seconds; adds up what each receiver reads. */
static void pump(struct world *w, struct pv_tcp *pair[][2], uint32_t n, int64_t ns, uint64_t *bytes)
{
	int64_t end = w->now + ns;

	while (w->now < end) {
		for (uint32_t i = 0; i < n; i++) {
			int64_t rc;

			while (tcp_write(w, pair[i][0], junk, 65536) > 0)
				;
			while ((rc = tcp_read(w, pair[i][1], junk, sizeof(junk))) > 0)
				bytes[i] += (uint64_t)rc;
			CHECK_EQ(rc, -EAGAIN);
		}
		world_run(w, 2 * PV_NS_PER_MS);
	}
}

static void net_close(struct world *w, struct pv_tcp *pair[][2], uint32_t n)
{
	pv_sim_wire_impair(w->wire, &(struct pv_sim_impair){ 0 });
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < 2; k++) {
			pv_tcp_options(pair[i][k])->linger = true;
			pv_tcp_close(pair[i][k], w->now);
		}
	}
	tcp_fade(w);
	world_close(w);
}

static uint32_t goodput_kbps(const struct cell *c)
{
	struct world w;
	struct pv_tcp *pair[1][2];
	uint64_t bytes = 0;

	net_open(&w, c, 1);
	tcp_pair(&w, 4, 7000, pair[0]);
	set_loss(&w, c);
	pump(&w, pair, 1, SECONDS * PV_NS_PER_S, &bytes);
	net_close(&w, pair, 1);
	return (uint32_t)(bytes * 8 / SECONDS / 1000);
}

static double theory_kbps(const struct cell *c)
{
	/* Preamble, FCS and gap are not on this line. */
	double line = RATE_KBPS * (double)MSS / (MSS + 12 + 20 + 20 + 14), p = c->loss_ppm / 1e6, rtt = c->rtt_ms / 1e3;
	double reno = sqrt(1.5 / p), cubic = 1.054 * pow(rtt / p, 0.75), wnd;

	if (!c->loss_ppm)
		return line;
	wnd = strcmp(c->cc, "reno") ? fmax(reno, cubic) : reno;
	return fmin(line, wnd * MSS * 8 / rtt / 1000 * (1 - p));
}

/* Jain's index of the flows' shares, in thousandths: 1000 is even. */
static uint32_t fairness(const char *cc, uint32_t n, uint32_t *sum_kbps)
{
	struct cell c = { cc, 0, 20, 100 };
	struct world w;
	struct pv_tcp *pair[FLOWS_MAX][2];
	uint64_t bytes[FLOWS_MAX] = { 0 };
	double sum = 0, squares = 0;

	net_open(&w, &c, 2);
	for (uint32_t i = 0; i < n; i++)
		tcp_pair(&w, 4, (uint16_t)(7000 + i), pair[i]);
	pump(&w, pair, n, 5 * PV_NS_PER_S, bytes);
	memset(bytes, 0, sizeof(bytes));
	pump(&w, pair, n, 20 * PV_NS_PER_S, bytes);
	for (uint32_t i = 0; i < n; i++) {
		sum += (double)bytes[i];
		squares += (double)bytes[i] * (double)bytes[i];
	}
	net_close(&w, pair, n);
	*sum_kbps = (uint32_t)(sum * 8 / 20 / 1000);
	return (uint32_t)(1000 * sum * sum / (n * squares));
}

/* ---- the table ----------------------------------------------------------------------------------------------------------------- */

static const char *const algorithms[] = { "cubic", "reno" };
static const uint32_t losses[] = { 0, 1000, 10000, 50000 };
static const uint32_t rtts[] = { 2, 20, 100 };
static const uint32_t queues[] = { 20, 300 };
static const uint32_t flows[] = { 2, 4, 16 };

#define EACH(i, array) (uint32_t i = 0; i < sizeof(array) / sizeof(array[0]); i++)

typedef void (*line_fn)(const char *line);

static void all_cells(line_fn out)
{
	char line[128];

	for
		EACH(a, algorithms)
		for
			EACH(l, losses)
			for
				EACH(d, rtts)
				for
					EACH(q, queues)
					{
						struct cell c = { algorithms[a], losses[l], rtts[d], queues[q] };

						snprintf(line, sizeof(line), "goodput %s %u %u %u %u %.0f", c.cc, c.loss_ppm,
							 c.rtt_ms, c.queue, goodput_kbps(&c), theory_kbps(&c));
						out(line);
					}
	for
		EACH(a, algorithms)
		for
			EACH(n, flows)
			{
				uint32_t kbps, index = fairness(algorithms[a], flows[n], &kbps);

				snprintf(line, sizeof(line), "fairness %s %u %u %u", algorithms[a], flows[n], index, kbps);
				out(line);
			}
}

static FILE *golden;
static uint32_t off;

static void check_goodput(const char *line, const char *want)
{
	uint32_t loss, rtt, queue, got, was;
	double theory, theory_was;
	char cc[16];

	CHECK_EQ(sscanf(line, "goodput %15s %u %u %u %u %lf", cc, &loss, &rtt, &queue, &got, &theory), 6);
	CHECK_EQ(sscanf(want, "goodput %*s %u %u %u %u %lf", &loss, &rtt, &queue, &was, &theory_was), 5);
	/* What the line cannot carry, nobody gets. */
	CHECK(got <= RATE_KBPS);
	if (got * 10 < was * 9 || got * 10 > was * 11) {
		fprintf(stderr, "%s: %u was expected\n", line, was);
		off++;
	}
	/* A clean line with room for a round trip is full; one that loses is used as well as theory says it can be, within what the
	 * timeouts of many losses at once cost. */
	if ((!loss && queue >= 300 && got < 0.9 * theory) || (loss && loss <= 10000 && got < 0.6 * theory)) {
		fprintf(stderr, "%s: far below theory\n", line);
		off++;
	}
}

static void check_fairness(const char *line, const char *want)
{
	uint32_t n, index, kbps, index_was, kbps_was;

	CHECK_EQ(sscanf(line, "fairness %*s %u %u %u", &n, &index, &kbps), 3);
	CHECK_EQ(sscanf(want, "fairness %*s %u %u %u", &n, &index_was, &kbps_was), 3);
	if (index < 850 || index + 80 < index_was || kbps < RATE_KBPS * 85 / 100) {
		fprintf(stderr, "%s: index %u and %u kbit/s were expected\n", line, index_was, kbps_was);
		off++;
	}
}

static void against_golden(const char *line)
{
	char want[128];
	size_t same;

	do
		CHECK(fgets(want, sizeof(want), golden));
	while (want[0] == '#');
	/* The same cell. */
	same = strcspn(line, " ");
	same += 1 + strcspn(line + same + 1, " ");
	CHECK(!strncmp(line, want, same));
	if (line[0] == 'g')
		check_goodput(line, want);
	else
		check_fairness(line, want);
}

TEST(goodput_and_fairness_are_what_they_were)
{
	golden = fopen(TEST_DATA "/tcp_goodput.txt", "r");
	CHECK(golden);
	all_cells(against_golden);
	fclose(golden);
	CHECK_EQ(off, 0);
}

static void say(const char *line)
{
	puts(line);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "print")) {
		test_current = "print";
		printf("# By tcp_goodput_test print: a line of %u kbit/s, %u s.\n", RATE_KBPS, SECONDS);
		printf("# goodput ALGORITHM LOSS_PPM RTT_MS QUEUE_FRAMES KBPS THEORY_KBPS\n# fairness ALGORITHM FLOWS INDEX/1000 "
		       "SUM_KBPS\n");
		all_cells(say);
		return 0;
	}
	return test_main(argc, argv);
}
