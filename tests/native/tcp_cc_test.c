/* SPDX-License-Identifier: BSD-3-Clause */
/* Congestion control by itself: a connection that only has windows is fed acknowledgements, beside a model in floating point. */
#include <math.h>

#include "tcp/cc.h"
#include "test.h"

#define MS PV_NS_PER_MS

struct flow {
	struct pv_tcp c;
	int64_t now, rtt;
	uint32_t seq; /* rounds are told by sequence numbers: a segment counts 1 */
};

static void flow_open(struct flow *f, const struct pv_cc_ops *cc, uint32_t cwnd, int64_t rtt_ns)
{
	memset(f, 0, sizeof(*f));
	f->c.cc = cc;
	f->c.cwnd = cwnd;
	f->c.ssthresh = PV_TCP_SSTHRESH_INF;
	f->c.mss = 1;
	f->c.pacing_rate = UINT64_MAX;
	f->c.srtt_ns = rtt_ns;
	f->rtt = rtt_ns;
	f->now = 1000 * MS;
	cc->init(&f->c);
}

/* `n` segments are acknowledged at once; cwnd is always in use. */
static void flow_ack(struct flow *f, uint32_t n)
{
	struct pv_tcp_ack_sample s = { .rtt_ns = f->rtt, .acked = n };

	f->seq += n;
	f->c.snd_una = pv_seq_of(f->seq);
	f->c.snd_max = pv_seq_of(f->seq + f->c.cwnd);
	f->c.cc->acked(&f->c, &s, f->now);
}

/* One round trip: every segment of the window is acknowledged, `each` by an acknowledgement, evenly in time. */
static void flow_round(struct flow *f, uint32_t each)
{
	int64_t start = f->now;
	uint32_t n = f->c.cwnd;

	for (uint32_t i = 0; i < n; i += each) {
		f->now = start + f->rtt * (i + each) / n;
		flow_ack(f, PV_MIN(each, n - i));
	}
	f->now = start + f->rtt;
}

static void flow_loss(struct flow *f)
{
	f->c.prior_cwnd = f->c.cwnd;
	f->c.prior_ssthresh = pv_tcp_current_ssthresh(&f->c);
	f->c.ssthresh = f->c.cc->ssthresh(&f->c);
	f->c.cwnd = f->c.ssthresh;
	f->c.cwnd_cnt = 0;
}

/* ---- RFC 9438 in double precision -------------------------------------------------------------------------------------- */

struct model {
	double cwnd, w_max, w_est, k, start, prior;
};

static void model_loss(struct model *m)
{
	m->prior = m->cwnd;
	m->w_max = m->cwnd < m->w_max ? m->cwnd * 1.7 / 2 : m->cwnd;
	m->cwnd = floor(m->cwnd * 0.7);
	m->start = -1;
}

static void model_ack(struct model *m, double t, double rtt, uint32_t acked)
{
	for (uint32_t i = 0; i < acked; i++) {
		double w, target;

		if (m->start < 0) {
			m->start = t;
			m->w_est = m->cwnd;
			m->k = m->w_max > m->cwnd ? cbrt((m->w_max - m->cwnd) / 0.4) : 0;
			if (m->w_max < m->cwnd)
				m->w_max = m->cwnd;
		}
		m->w_est += (m->w_est < m->prior ? 3 * 0.3 / 1.7 : 1) / m->cwnd;
		w = 0.4 * pow(t - m->start - m->k, 3) + m->w_max;
		if (w < m->w_est) {
			m->cwnd = fmax(m->cwnd, m->w_est);
			continue;
		}
		target = fmin(fmax(0.4 * pow(t + rtt - m->start - m->k, 3) + m->w_max, m->cwnd), 1.5 * m->cwnd);
		m->cwnd += (target - m->cwnd) / m->cwnd;
	}
}

/* Both from `cwnd` on, a loss, and then `rounds` round trips side by side: never more than a segment and 2 % apart. */
static void compare(uint32_t cwnd, int64_t rtt_ns, uint32_t rounds, uint32_t each, uint32_t losses)
{
	struct model m = { .cwnd = cwnd };
	struct flow f;

	flow_open(&f, &pv_cc_cubic, cwnd, rtt_ns);
	for (uint32_t k = 0; k < losses; k++) {
		flow_loss(&f);
		model_loss(&m);
		m.cwnd = f.c.cwnd;
		for (uint32_t r = 0; r < rounds; r++) {
			int64_t start = f.now;
			uint32_t n = f.c.cwnd;

			for (uint32_t i = 0; i < n; i += each) {
				uint32_t acked = PV_MIN(each, n - i);

				f.now = start + f.rtt * (i + each) / n;
				flow_ack(&f, acked);
				model_ack(&m, (double)f.now / 1e9, (double)rtt_ns / 1e9, acked);
			}
			f.now = start + f.rtt;
			if (fabs(m.cwnd - f.c.cwnd) > 1.5 + 0.02 * m.cwnd)
				fprintf(stderr, "loss %u round %u: model %.2f, cwnd %u\n", k, r, m.cwnd, f.c.cwnd);
			CHECK(fabs(m.cwnd - f.c.cwnd) <= 1.5 + 0.02 * m.cwnd);
		}
	}
}

TEST(cubic_curve_long_path)
{
	compare(1000, 100 * MS, 200, 1, 1);
	compare(1000, 100 * MS, 200, 2, 1);
	compare(200, 50 * MS, 300, 1, 1);
	compare(20000, 200 * MS, 30, 16, 1);
	/* The curve is followed a round trip ahead. */
	compare(400, 1000 * MS, 30, 1, 1);
}

TEST(cubic_curve_friendly)
{
	/* Short round trips: Reno is faster, and CUBIC goes with it (RFC 9438 4.3). */
	compare(20, 5 * MS, 400, 1, 1);
	compare(100, 10 * MS, 400, 2, 1);
}

TEST(cubic_curve_losses)
{
	/* With fast convergence from the second on. */
	compare(1000, 100 * MS, 40, 1, 4);
	compare(300, 30 * MS, 100, 2, 5);
}

TEST(cubic_reduction)
{
	struct flow f;

	flow_open(&f, &pv_cc_cubic, 1000, 100 * MS);
	CHECK_EQ(pv_cc_cubic.ssthresh(&f.c), 700);
	f.c.cwnd = 2;
	CHECK_EQ(pv_cc_cubic.ssthresh(&f.c), 2);
	f.c.cwnd = 10;
	CHECK_EQ(pv_cc_cubic.ssthresh(&f.c), 7);
}

/* The plateau is where the loss was, and K = cbrt(W_max (1 - beta) / C) after it. */
TEST(cubic_plateau)
{
	double k = cbrt(1000 * 0.3 / 0.4);
	struct flow f;
	uint32_t at_k = 0;

	flow_open(&f, &pv_cc_cubic, 1000, 50 * MS);
	flow_loss(&f);
	for (int64_t end = f.now + (int64_t)(k * 1e9); f.now < end; at_k = f.c.cwnd)
		flow_round(&f, 1);
	CHECK(at_k >= 990 && at_k <= 1001);
	for (int i = 0; i < 20; i++)
		flow_round(&f, 1);
	CHECK(f.c.cwnd <= 1003);
	/* Then it probes, faster and faster. */
	for (int64_t end = f.now + (int64_t)(k * 1e9); f.now < end;)
		flow_round(&f, 1);
	CHECK(f.c.cwnd > 1200);
}

/* However far the curve has gone, a round trip adds half at most, as far as acknowledgements see it. */
TEST(cubic_bound)
{
	struct flow f;

	flow_open(&f, &pv_cc_cubic, 1000, 50 * MS);
	flow_loss(&f);
	flow_round(&f, 1);
	f.now += 100 * PV_NS_PER_S;
	for (int i = 0; i < 4; i++) {
		uint32_t was = f.c.cwnd;

		flow_round(&f, 1);
		CHECK(f.c.cwnd >= was + was / 2 - 1 && f.c.cwnd <= was + was * 2 / 3);
	}
}

/* RFC 9438 4.9: as if nothing had been. */
TEST(cubic_undo)
{
	struct flow f, g;

	flow_open(&f, &pv_cc_cubic, 1000, 50 * MS);
	flow_loss(&f);
	for (int i = 0; i < 60; i++)
		flow_round(&f, 1);
	g = f;
	flow_loss(&g);
	CHECK(g.c.cwnd < f.c.cwnd);
	g.c.cwnd = g.c.prior_cwnd;
	g.c.ssthresh = g.c.prior_ssthresh;
	pv_cc_cubic.undo(&g.c);
	for (int i = 0; i < 200; i++) {
		flow_round(&f, 1);
		flow_round(&g, 1);
		CHECK(abs((int)f.c.cwnd - (int)g.c.cwnd) <= 1);
	}
	CHECK(f.c.cwnd > 1000);
}

TEST(cubic_timeout)
{
	struct flow f;

	flow_open(&f, &pv_cc_cubic, 1000, 50 * MS);
	flow_loss(&f);
	flow_round(&f, 1);
	f.c.ssthresh = pv_cc_cubic.ssthresh(&f.c);
	pv_cc_cubic.event(&f.c, PV_CC_RTO, f.now);
	f.c.cwnd = 1;
	f.c.cwnd_cnt = 0;
	/* Slow start, which no HyStart++ looks after: doubles each round trip. */
	for (int i = 1; i <= 8; i++) {
		flow_round(&f, 1);
		CHECK_EQ(f.c.cwnd, 1u << i);
	}
	while (f.c.cwnd < f.c.ssthresh)
		flow_round(&f, 1);
	/* The curve begins at its plateau there (RFC 9438 4.8): flat for a while. */
	CHECK(f.c.cwnd < f.c.ssthresh + 8);
	for (int i = 0; i < 10; i++)
		flow_round(&f, 1);
	CHECK(f.c.cwnd < f.c.ssthresh + 16);
}

/* Time in which nothing was sent does not count. */
TEST(cubic_idle)
{
	struct flow f, g;

	flow_open(&f, &pv_cc_cubic, 1000, 50 * MS);
	flow_loss(&f);
	for (int i = 0; i < 40; i++)
		flow_round(&f, 1);
	g = f;
	g.c.last_data_sent_ns = g.now;
	g.now += 60 * PV_NS_PER_S;
	pv_cc_cubic.event(&g.c, PV_CC_START, g.now);
	for (int i = 0; i < 40; i++) {
		flow_round(&f, 1);
		flow_round(&g, 1);
		CHECK(abs((int)f.c.cwnd - (int)g.c.cwnd) <= 1);
	}
}

TEST(not_limited_no_growth)
{
	static const struct pv_cc_ops *const all[] = { &pv_cc_cubic, &pv_cc_reno, &pv_cc_none };
	struct flow f;

	for (uint32_t i = 0; i < pv_array_size(all); i++) {
		uint32_t was;

		for (uint32_t ssthresh = 5; ssthresh < 200; ssthresh += 150) {
			flow_open(&f, all[i], 10, 50 * MS);
			f.c.ssthresh = ssthresh;
			was = f.c.cwnd;
			for (int k = 0; k < 100; k++)
				pv_cc_acked(&f.c, 10, MS, f.now += 10 * MS);
			CHECK_EQ(f.c.cwnd, was);
		}
	}
}

/* ---- HyStart++ (RFC 9406) ----------------------------------------------------------------------------------------------- */

TEST(hystart_steady)
{
	struct flow f;

	flow_open(&f, &pv_cc_cubic, 10, 50 * MS);
	/* Round trips that vary by less than 1/8 do not matter. */
	for (int i = 0; i < 8; i++) {
		f.rtt = i & 1 ? 50 * MS : 54 * MS;
		flow_round(&f, 1);
	}
	CHECK_EQ(f.c.cwnd, 10u << 8);
	CHECK_EQ(f.c.ssthresh, PV_TCP_SSTHRESH_INF);
}

/* At most eight segments for one acknowledgement, unless paced. */
TEST(hystart_burst)
{
	struct flow f;

	flow_open(&f, &pv_cc_cubic, 100, 50 * MS);
	flow_ack(&f, 50);
	CHECK_EQ(f.c.cwnd, 108);
	f.c.pacing_rate = 1000000;
	flow_ack(&f, 50);
	CHECK_EQ(f.c.cwnd, 158);
}

TEST(hystart_exit)
{
	struct flow f;
	uint32_t cwnd;

	flow_open(&f, &pv_cc_cubic, 10, 80 * MS);
	for (int i = 0; i < 4; i++)
		flow_round(&f, 1);
	CHECK_EQ(f.c.cwnd, 160);
	/* The queue grows: 12 ms more are more than an eighth of 80. */
	f.rtt = 92 * MS;
	flow_round(&f, 1);
	cwnd = f.c.cwnd;
	CHECK(cwnd < 320 && cwnd > 160);
	CHECK_EQ(f.c.ssthresh, PV_TCP_SSTHRESH_INF);
	/* Conservative slow start: a quarter of the growth, for five rounds; then congestion avoidance. */
	for (int i = 0; i < 3; i++) {
		uint32_t was = f.c.cwnd;

		flow_round(&f, 1);
		CHECK(f.c.cwnd >= was + was / 5 && f.c.cwnd <= was + was / 3);
	}
	CHECK_EQ(f.c.ssthresh, PV_TCP_SSTHRESH_INF);
	for (int i = 0; i < 3; i++)
		flow_round(&f, 1);
	CHECK(f.c.ssthresh != PV_TCP_SSTHRESH_INF);
	cwnd = f.c.cwnd;
	flow_round(&f, 1);
	CHECK(f.c.cwnd <= cwnd + 10);
}

TEST(hystart_resumes)
{
	struct flow f;
	uint32_t was;

	flow_open(&f, &pv_cc_cubic, 10, 80 * MS);
	for (int i = 0; i < 4; i++)
		flow_round(&f, 1);
	f.rtt = 95 * MS;
	flow_round(&f, 1);
	flow_round(&f, 1);
	/* It was somebody else's burst. */
	f.rtt = 80 * MS;
	flow_round(&f, 1);
	was = f.c.cwnd;
	flow_round(&f, 1);
	CHECK_EQ(f.c.cwnd, 2 * was);
	for (int i = 0; i < 3; i++)
		flow_round(&f, 1);
	CHECK_EQ(f.c.ssthresh, PV_TCP_SSTHRESH_INF);
}

/* More than 16 ms is always taken for one, an eighth or not. */
TEST(hystart_long_path)
{
	struct flow f;

	flow_open(&f, &pv_cc_cubic, 10, 400 * MS);
	for (int i = 0; i < 4; i++)
		flow_round(&f, 1);
	f.rtt = 418 * MS;
	flow_round(&f, 1);
	CHECK(f.c.cwnd < 320);
}

/* Below 4 ms nothing is taken for a queue. */
TEST(hystart_short_path)
{
	struct flow f;

	flow_open(&f, &pv_cc_cubic, 10, MS / 10);
	for (int i = 0; i < 8; i++) {
		f.rtt += MS / 3;
		flow_round(&f, 1);
	}
	CHECK_EQ(f.c.cwnd, 10u << 8);
}

/* ---- Reno, none ---------------------------------------------------------------------------------------------------------- */

TEST(reno)
{
	struct flow f;

	flow_open(&f, &pv_cc_reno, 10, 50 * MS);
	f.c.ssthresh = 40;
	flow_round(&f, 1);
	CHECK_EQ(f.c.cwnd, 20);
	flow_round(&f, 2);
	CHECK_EQ(f.c.cwnd, 40);
	/* One segment a round trip. */
	for (uint32_t i = 1; i <= 30; i++) {
		flow_round(&f, 2);
		CHECK(f.c.cwnd + 1 >= 40 + i && f.c.cwnd <= 40 + i);
	}
	f.c.cwnd = 71;
	CHECK_EQ(pv_cc_reno.ssthresh(&f.c), 35);
	f.c.cwnd = 3;
	CHECK_EQ(pv_cc_reno.ssthresh(&f.c), 2);
	/* An acknowledgement that ends slow start counts for both. */
	f.c.cwnd = 8;
	f.c.cwnd_cnt = 0;
	f.c.ssthresh = 10;
	flow_ack(&f, 12);
	CHECK_EQ(f.c.cwnd, 11);
}

TEST(none)
{
	struct flow f;

	flow_open(&f, &pv_cc_none, 10, 50 * MS);
	CHECK_EQ(f.c.cwnd, PV_TCP_CWND_MAX);
	flow_ack(&f, 100);
	CHECK_EQ(f.c.cwnd, PV_TCP_CWND_MAX);
	CHECK_EQ(pv_cc_none.ssthresh(&f.c), PV_TCP_SSTHRESH_INF);
}

TEST(names)
{
	struct flow f;

	CHECK(pv_cc_find("cubic") == &pv_cc_cubic);
	CHECK(pv_cc_find("reno") == &pv_cc_reno);
	CHECK(pv_cc_find("none") == &pv_cc_none);
	CHECK(pv_cc_find("") == &pv_cc_cubic);
	CHECK(!pv_cc_find("cubi"));
	CHECK(!pv_cc_find("bbr"));
	flow_open(&f, &pv_cc_cubic, 33, 50 * MS);
	CHECK_EQ(pv_tcp_congestion_set(&f.c, "vegas"), -ENOENT);
	CHECK_EQ(pv_tcp_congestion_set(&f.c, ""), -ENOENT);
	CHECK(!strcmp(pv_tcp_congestion(&f.c), "cubic"));
	CHECK_EQ(pv_tcp_congestion_set(&f.c, "reno"), 0);
	CHECK(!strcmp(pv_tcp_congestion(&f.c), "reno"));
	CHECK_EQ(f.c.cwnd, 33);
	CHECK_EQ(pv_tcp_congestion_set(&f.c, "none"), 0);
	CHECK_EQ(f.c.cwnd, PV_TCP_CWND_MAX);
	CHECK_EQ(pv_tcp_congestion_set(&f.c, "cubic"), 0);
	CHECK_EQ(f.c.cwnd, PV_TCP_INIT_CWND);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
