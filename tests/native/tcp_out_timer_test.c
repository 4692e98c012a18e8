/* SPDX-License-Identifier: BSD-3-Clause */
/* The sender's timers, against a scripted peer that does not answer as it should: SYN, user timeout, keepalive, FIN_WAIT_2, pacing. */
#include "tcp_peer.h"

#define MS PV_NS_PER_MS
#define SEC PV_NS_PER_S
#define MSS 1448u

static void close_window(struct peer *p)
{
	peer_send_seg(p, &(struct peer_seg){ .flags = ".", .seq = p->seq_max, .ack = 1, .zero_wnd = true });
}

/* ---- timers ---------------------------------------------------------------------------------------------------------------------------- */

TEST(syn_goes_again_and_times_out)
{
	struct peer p;
	struct peer_cfg cfg = { 0 };

	peer_open(&p, &cfg);
	CHECK_EQ(pv_tcp_open(peer_table(&p), PV_AF_INET, NULL, &p.c), 0);
	pv_tcp_options(p.c)->syncnt = 3;
	CHECK_EQ(pv_tcp_connect(p.c, &(struct pv_endpoint){ .addr = p.addr, .port = p.port }, p.w.now), -EINPROGRESS);
	{
		struct pv_endpoint e;

		pv_tcp_local(p.c, &e);
		p.stack_port = e.port;
	}
	peer_run(&p, 0);
	peer_expect(&p, "S", 0, 0, 0);
	for (uint32_t i = 0; i < 5; i++)
		peer_expect_in(&p, SEC, SEC + MS, "S", 0, 0, 0);
	peer_expect_in(&p, 2 * SEC - MS, 2 * SEC + MS, "S", 0, 0, 0);
	peer_expect_in(&p, 4 * SEC - MS, 4 * SEC + MS, "S", 0, 0, 0);
	peer_run(&p, 8 * SEC - 2 * MS);
	CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
	CHECK_EQ(peer_try_write(&p, 1, 0), -EAGAIN);
	peer_run(&p, 4 * MS);
	peer_expect_none(&p);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	peer_close(&p);
}

/* As Linux 6.18: how long, and after how many SYNs more, a connect ends that nobody answers. */
TEST(ends_of_connects)
{
	static const struct {
		uint8_t syncnt;
		uint32_t user_ms;
		int64_t ms;
		uint32_t syns;
	} cases[] = {
		{ 0, 0, 131000, 10 }, { 1, 0, 3000, 2 },   { 2, 0, 7000, 5 },    { 3, 0, 19000, 7 },   { 4, 0, 35000, 8 },
		{ 8, 0, 371000, 12 }, { 0, 100, 1002, 1 }, { 0, 1500, 1500, 1 }, { 0, 2500, 2500, 2 }, { 0, 10000, 10000, 6 }
	};

	for (uint32_t i = 0; i < pv_array_size(cases); i++) {
		struct peer p;
		struct peer_cfg cfg = { 0 };

		peer_open(&p, &cfg);
		CHECK_EQ(pv_tcp_open(peer_table(&p), PV_AF_INET, NULL, &p.c), 0);
		pv_tcp_options(p.c)->syncnt = cases[i].syncnt;
		pv_tcp_options(p.c)->user_timeout_ms = cases[i].user_ms;
		CHECK_EQ(pv_tcp_connect(p.c, &(struct pv_endpoint){ .addr = p.addr, .port = p.port }, p.w.now), -EINPROGRESS);
		peer_run(&p, (cases[i].ms - 1) * MS);
		CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
		peer_run(&p, 20 * MS);
		CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
		CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
		CHECK_EQ(p.c->total_retrans, cases[i].syns);
		peer_skip(&p);
		peer_close(&p);
	}
}

TEST(user_timeout_of_data_and_of_closed_windows)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->user_timeout_ms = 5000;
	peer_write(&p, 100);
	peer_run(&p, 4900 * MS);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	peer_run(&p, 700 * MS);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	peer_skip(&p);
	peer_close(&p);
	/* Also while the peer answers every probe. */
	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->user_timeout_ms = 5000;
	close_window(&p);
	peer_write(&p, 100);
	for (int i = 0; i < 49; i++) {
		peer_run(&p, 100 * MS);
		if (peer_next(&p))
			close_window(&p);
		CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	}
	peer_run(&p, 110 * MS);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	peer_skip(&p);
	peer_close(&p);
}

static void keepalive(struct peer *p)
{
	struct pv_tcp_opts *o;

	peer_begin(p, (struct peer_cfg){ 0 });
	o = pv_tcp_options(p->c);
	o->keepalive = true;
	o->keepidle_s = 10;
	o->keepintvl_s = 2;
	o->keepcnt = 3;
	pv_tcp_options_changed(p->c, p->w.now);
}

TEST(keepalive_probes_and_gives_up)
{
	struct peer p;

	keepalive(&p);
	/* An answer starts all over. */
	peer_expect_in(&p, 10 * SEC, 10 * SEC + MS, ".", 0, 1, 0);
	peer_ack(&p, 1);
	peer_expect_in(&p, 10 * SEC, 10 * SEC + MS, ".", 0, 1, 0);
	peer_expect_in(&p, 2 * SEC - MS, 2 * SEC + MS, ".", 0, 1, 0);
	peer_ack(&p, 1);
	peer_expect_in(&p, 10 * SEC - MS, 10 * SEC + MS, ".", 0, 1, 0);
	peer_expect_in(&p, 2 * SEC - MS, 2 * SEC + MS, ".", 0, 1, 0);
	peer_expect_in(&p, 2 * SEC - MS, 2 * SEC + MS, ".", 0, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	peer_run(&p, 2 * SEC + MS);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK(peer_next(&p)->bits & PV_TH_RST);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	peer_close(&p);
}

TEST(keepalive_is_quiet_while_there_is_traffic)
{
	struct peer p;

	keepalive(&p);
	for (uint32_t i = 0; i < 10; i++) {
		peer_run(&p, 6 * SEC);
		peer_write(&p, 10);
		peer_expect(&p, "P.", 1 + 10 * i, 1, 10);
		peer_ack(&p, 11 + 10 * i);
	}
	pv_tcp_options(p.c)->keepalive = false;
	pv_tcp_options_changed(p.c, p.w.now);
	peer_run(&p, 100 * SEC);
	peer_expect_none(&p);
	peer_close(&p);
}

TEST(fin_wait_2_of_orphans_ends)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ .tcp = { .fin_timeout_ns = 5 * SEC } });
	pv_tcp_close(p.c, p.w.now);
	p.c = NULL;
	peer_run(&p, 0);
	peer_expect(&p, "F.", 1, 1, 0);
	peer_ack(&p, 2);
	CHECK_EQ(pv_tcp_count(peer_table(&p), PV_TCP_FIN_WAIT_2), 1);
	peer_run(&p, 4900 * MS);
	CHECK_EQ(pv_tcp_count(peer_table(&p), PV_TCP_FIN_WAIT_2), 1);
	peer_run(&p, 200 * MS);
	CHECK_EQ(pv_tcp_count(peer_table(&p), PV_TCP_FIN_WAIT_2), 0);
	peer_close(&p);
}

/* ---- pacing ------------------------------------------------------------------------------------------------------------------------------ */

/* Writes and reads all, acknowledging at once; every segment's time against the rate. */
static void paced(uint64_t rate, uint32_t total)
{
	struct peer p;
	int64_t start = 0, last = 0;
	uint32_t got = 1, before = 0, wire = 14 + 20 + 32;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->pacing_rate = rate;
	pv_tcp_options_changed(p.c, p.w.now);
	for (int i = 0; i < 1000000 && got < total + 1; i++) {
		const struct peer_seg *s;

		if (p.written < total + 1)
			(void)peer_try_write(&p, total + 1 - p.written, 0);
		peer_run_until(&p, p.w.now + 20 * SEC, 0);
		while ((s = peer_next(&p))) {
			CHECK_EQ(s->seq, got);
			if (got == 1)
				start = s->at_ns;
			/* Never early: what went before this one has had its time. */
			CHECK(s->at_ns - start >= (int64_t)((uint64_t)before * (uint64_t)SEC / rate) - 1000);
			before += s->len + wire;
			got += s->len;
			last = s->at_ns;
		}
		peer_ack(&p, got);
	}
	CHECK_EQ(got, total + 1);
	/* Nor late: ticks of the wheel do not add up. */
	CHECK(last - start <= (int64_t)((uint64_t)before * (uint64_t)SEC / rate) + MS);
	peer_close(&p);
}

TEST(pacing)
{
	paced(1000, 10000);
	paced(1000000, 300000);
	paced(100000000, 1000000);
}

TEST(pacing_gives_no_credit_for_idle_time)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->pacing_rate = 151400;
	pv_tcp_options_changed(p.c, p.w.now);
	peer_run(&p, 10 * SEC);
	peer_write(&p, 3 * MSS);
	peer_expect(&p, ".", 1, 1, MSS);
	peer_expect_none(&p);
	peer_expect_in(&p, 10 * MS - 20000, 10 * MS + 50000, ".", 1 + MSS, 1, MSS);
	peer_expect_in(&p, 10 * MS - 50000, 10 * MS + 50000, "P.", 1 + 2 * MSS, 1, MSS);
	pv_tcp_options(p.c)->pacing_rate = UINT64_MAX;
	pv_tcp_options_changed(p.c, p.w.now);
	peer_write(&p, 3 * MSS);
	peer_expect(&p, ".", 1 + 3 * MSS, 1, MSS);
	peer_expect(&p, ".", 1 + 4 * MSS, 1, MSS);
	peer_expect(&p, ".", 1 + 5 * MSS, 1, MSS);
	peer_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
