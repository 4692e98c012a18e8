/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a connection, segment by segment: how it begins, what it does not believe, how it ends. */
#include "tcp_peer.h"

static struct peer p;

#define S PV_NS_PER_S
#define MS PV_NS_PER_MS

static const struct pv_tcp_counters *count(void)
{
	return pv_tcp_table_counters(p.w.host[0].tcp);
}

static uint32_t in_state(enum pv_tcp_state s)
{
	return pv_tcp_count(p.w.host[0].tcp, s);
}

static int dial(void)
{
	struct pv_endpoint e = ep(p.addr, p.port);

	return pv_tcp_connect(p.c, &e, p.w.now);
}

static void shut(uint32_t how)
{
	CHECK_EQ(pv_tcp_shutdown(p.c, how, p.w.now), 0);
	peer_run(&p, 0);
}

static void close_conn(void)
{
	pv_tcp_close(p.c, p.w.now);
	p.c = NULL;
	peer_run(&p, 0);
}

static struct pv_tcp *conn(void)
{
	CHECK_EQ(pv_tcp_open(p.w.host[0].tcp, peer_family(&p), NULL, &p.c), 0);
	return p.c;
}

/* ---- the beginning ----------------------------------------------------------------------------------------------------- */

TEST(active_open)
{
	for (int family = 4; family <= 6; family += 2) {
		const struct peer_seg *s;

		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_connect(&p);
		CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
		CHECK_EQ(pv_tcp_ready_bits(p.c), 0);
		CHECK_EQ(dial(), -EALREADY);
		s = peer_expect(&p, "S", 0, 0, 0);
		CHECK_EQ(s->opt.mss, family == 4 ? 1460 : 1440);
		CHECK(s->opt.has_ts && s->opt.sack_ok && s->opt.has_wscale && s->opt.ts_ecr == 0);
		peer_agree(&p, s);
		peer_syn_ack(&p);
		peer_expect(&p, ".", 1, 1, 0);
		CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
		CHECK_EQ(pv_tcp_ready_bits(p.c), PV_EV_OUT);
		CHECK_EQ(dial(), 0);
		CHECK_EQ(dial(), -EISCONN);
		CHECK_EQ(pv_tcp_error(p.c), 0);
		peer_write(&p, 100);
		peer_expect(&p, "P.", 1, 1, 100);
		peer_ack(&p, 101);
		peer_expect_none(&p);
		peer_send(&p, "P.", 1, 101, 50);
		peer_read(&p, 50);
		peer_close(&p);
	}
}

TEST(passive_open)
{
	for (int family = 4; family <= 6; family += 2) {
		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_passive(&p);
		peer_send(&p, "P.", 1, 1, 50);
		peer_read(&p, 50);
		peer_skip(&p);
		peer_write(&p, 100);
		peer_expect(&p, "P.", 1, 51, 100);
		peer_ack(&p, 101);
		peer_close(&p);
	}
}

TEST(refused)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_connect(&p);
	peer_skip(&p);
	peer_send(&p, "R", 0, 1, 0); /* without ACK it says nothing */
	CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
	peer_send(&p, "R.", 0, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_ready_bits(p.c), PV_EV_ERR | PV_EV_HUP | PV_EV_IN | PV_EV_OUT | PV_EV_RDHUP);
	CHECK_EQ(pv_tcp_error(p.c), ECONNREFUSED);
	CHECK_EQ(pv_tcp_error(p.c), 0);
	/* As Linux: whoever asks afterwards hears ECONNABORTED once, then the socket is as good as new. */
	CHECK_EQ(dial(), -ECONNABORTED);
	CHECK_EQ(dial(), -EINPROGRESS);
	peer_run(&p, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
	CHECK_EQ(peer_next(&p)->bits, PV_TH_SYN);
	peer_close(&p);
}

TEST(refused_is_the_answer_of_connect)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_connect(&p);
	peer_skip(&p);
	peer_send(&p, "R.", 0, 1, 0);
	CHECK_EQ(dial(), -ECONNREFUSED);
	CHECK_EQ(pv_tcp_error(p.c), 0);
	peer_close(&p);
}

TEST(syn_sent_rejects_what_it_did_not_send)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_connect(&p);
	peer_expect(&p, "S", 0, 0, 0);
	peer_send(&p, "S.", 0, 0, 0);
	peer_expect(&p, "R", 0, 0, 0);
	peer_send(&p, ".", 0, 77, 0);
	peer_expect(&p, "R", 77, 0, 0);
	peer_send(&p, "R.", 0, 77, 0);
	peer_send(&p, ".", 0, 1, 0);
	peer_send(&p, "F.", 0, 1, 0);
	peer_expect_none(&p);
	CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
	peer_send_seg(&p, &(struct peer_seg){
			      .flags = "S.", .ack = 1, .no_ts = true, .opt = { .has_ts = true, .ts_val = 1, .ts_ecr = 12345 } });
	peer_expect(&p, "R", 1, 0, 0);
	peer_syn_ack(&p);
	peer_expect(&p, ".", 1, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	peer_close(&p);
}

TEST(syn_is_repeated_and_given_up)
{
	peer_open(&p, &(struct peer_cfg){ .tcp = { .syn_retries = 3 } });
	peer_connect(&p);
	peer_expect(&p, "S", 0, 0, 0);
	for (uint32_t i = 0; i < 5; i++)
		peer_expect_in(&p, 1 * S, 1 * S + 20 * MS, "S", 0, 0, 0);
	for (int64_t wait = 2; wait <= 4; wait *= 2)
		peer_expect_in(&p, wait * S, wait * S + 20 * MS, "S", 0, 0, 0);
	peer_run(&p, 7900 * MS);
	CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
	peer_run(&p, 200 * MS);
	peer_expect_none(&p);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	CHECK_EQ(count()->open_failed, 1);
	peer_close(&p);
}

/* RFC 9293 figure 8, and both ways in which the second answer may look. */
TEST(simultaneous_open)
{
	for (int way = 0; way < 2; way++) {
		peer_open(&p, &(struct peer_cfg){ 0 });
		peer_connect(&p);
		peer_agree(&p, peer_expect(&p, "S", 0, 0, 0));
		peer_syn(&p);
		CHECK_EQ(peer_state(&p), PV_TCP_SYN_RCVD);
		peer_expect(&p, "S.", 0, 1, 0);
		if (way)
			peer_send(&p, ".", 1, 1, 0);
		else
			peer_syn_ack(&p);
		CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
		peer_skip(&p);
		peer_write(&p, 10);
		peer_expect(&p, "P.", 1, 1, 10);
		peer_send(&p, "P.", 1, 11, 20);
		peer_read(&p, 20);
		peer_close(&p);
	}
}

TEST(syn_rcvd_reset_and_bad_ack)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_connect(&p);
	peer_agree(&p, peer_expect(&p, "S", 0, 0, 0));
	peer_syn(&p);
	peer_expect(&p, "S.", 0, 1, 0);
	peer_send(&p, ".", 1, 5, 0);
	peer_expect(&p, "R", 5, 0, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_SYN_RCVD);
	peer_expect_in(&p, 1 * S, 1020 * MS, "S.", 0, 1, 0);
	peer_send(&p, "R", 1, 0, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ECONNRESET);
	peer_close(&p);
}

/* RFC 9293 3.10.4: closed before it was open. */
TEST(close_in_syn_rcvd)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_connect(&p);
	peer_agree(&p, peer_expect(&p, "S", 0, 0, 0));
	peer_syn(&p);
	peer_expect(&p, "S.", 0, 1, 0);
	close_conn();
	peer_expect_none(&p);
	peer_expect_in(&p, 990 * MS, 1020 * MS, "S.", 0, 1, 0);
	peer_send(&p, ".", 1, 1, 0);
	peer_expect(&p, "F.", 1, 1, 0);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_1), 1);
	peer_send(&p, "F.", 1, 2, 0);
	peer_expect(&p, ".", 2, 2, 0);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	peer_close(&p);
}

TEST(connect_to_self)
{
	for (int family = 4; family <= 6; family += 2) {
		struct pv_endpoint e;
		char buf[8];

		peer_open(&p, &(struct peer_cfg){ .family = family });
		conn();
		e = ep(p.stack_addr, 7777);
		CHECK_EQ(pv_tcp_bind(p.c, &e), 0);
		CHECK_EQ(pv_tcp_connect(p.c, &e, p.w.now), -EINPROGRESS);
		peer_run(&p, 10 * MS);
		CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
		CHECK_EQ(tcp_write(&p.w, p.c, "echo", 4), 4);
		peer_run(&p, 10 * MS);
		CHECK_EQ(tcp_read(&p.w, p.c, buf, sizeof(buf)), 4);
		CHECK(!memcmp(buf, "echo", 4));
		shut(2);
		peer_run(&p, 100 * MS);
		CHECK_EQ(tcp_read(&p.w, p.c, buf, sizeof(buf)), 0);
		peer_close(&p);
	}
}

TEST(ecn_is_agreed_on)
{
	/* asked for: tcp_ecn = 1 */
	peer_open(&p, &(struct peer_cfg){ .ecn = true, .tcp = { .ecn = 1 } });
	peer_connect(&p);
	peer_agree(&p, peer_expect(&p, "SEW", 0, 0, 0));
	peer_syn_ack(&p);
	CHECK(p.c->flags & PV_TF_ECN);
	peer_close(&p);
	/* refused */
	peer_open(&p, &(struct peer_cfg){ .tcp = { .ecn = 1 } });
	peer_connect(&p);
	peer_agree(&p, peer_expect(&p, "SEW", 0, 0, 0));
	peer_expect_in(&p, 1 * S, 1020 * MS, "S", 0, 0, 0); /* the second time without */
	peer_syn_ack(&p);
	CHECK(!(p.c->flags & PV_TF_ECN));
	peer_close(&p);
	/* granted: 2, as by default; not: 3 */
	for (uint8_t ecn = 2; ecn <= 3; ecn++) {
		peer_open(&p, &(struct peer_cfg){ .ecn = true, .tcp = { .ecn = ecn } });
		peer_listen(&p, 4);
		peer_syn(&p);
		peer_agree(&p, peer_expect(&p, ecn == 2 ? "S.E" : "S.", 0, 1, 0));
		peer_send(&p, ".", 1, 1, 0);
		CHECK_EQ(pv_tcp_accept(p.l, &p.c), 0);
		CHECK_EQ(!!(p.c->flags & PV_TF_ECN), ecn == 2);
		peer_close(&p);
	}
}

TEST(options_that_the_peer_does_not_have)
{
	peer_open(&p, &(struct peer_cfg){ .no_mss = true, .no_sack = true, .no_ts = true, .no_wscale = true });
	peer_active(&p);
	CHECK_EQ(p.c->mss, PV_TCP_MSS_DEFAULT);
	CHECK(!(p.c->flags & (PV_TF_SACK | PV_TF_TS | PV_TF_WS)));
	CHECK_EQ(p.c->rcv_wscale, 0);
	peer_write(&p, 1000);
	peer_expect(&p, ".", 1, 1, 536);
	peer_expect(&p, "P.", 537, 1, 464);
	peer_ack(&p, 1001);
	peer_close(&p);
}

/* ---- what is not believed ------------------------------------------------------------------------------------------------ */

/* RFC 5961 3.2 */
TEST(resets)
{
	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_send(&p, "R", 0, 0, 0); /* to the left of the window */
	peer_send(&p, "R", 1u << 30, 0, 0);
	peer_expect_none(&p);
	peer_send(&p, "R", 2, 0, 0);
	peer_expect(&p, ".", 1, 1, 0);
	CHECK_EQ(count()->rx_challenge, 1);
	peer_send(&p, "R", 3, 0, 0);
	peer_expect_none(&p); /* one each half second */
	peer_run(&p, 600 * MS);
	peer_send(&p, "R.", 3, 1, 0);
	peer_expect(&p, ".", 1, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	peer_send(&p, "P.", 1, 1, 30);
	peer_send(&p, "R", 31, 0, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(count()->rx_resets, 1);
	/* What came before it is there still, as with Linux. */
	peer_read(&p, 30);
	CHECK_EQ(peer_try_read(&p, 1, 0), -ECONNRESET);
	CHECK_EQ(peer_try_read(&p, 1, 0), 0);
	CHECK_EQ(peer_try_write(&p, 1, 0), -EPIPE);
	peer_close(&p);
}

TEST(reset_behind_a_hole)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_passive(&p);
	peer_send(&p, "P.", 101, 1, 100);
	peer_send(&p, "R", 201, 0, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ECONNRESET);
	peer_close(&p);
}

/* RFC 5961 4.2 */
TEST(syn_on_a_connection)
{
	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_send(&p, "S", 1, 0, 0);
	peer_expect(&p, ".", 1, 1, 0);
	peer_run(&p, 1 * S);
	peer_send(&p, "S", 1u << 30, 0, 0);
	peer_expect(&p, ".", 1, 1, 0);
	peer_run(&p, 1 * S);
	peer_send(&p, "S.", 0, 1, 0);
	peer_expect(&p, ".", 1, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	CHECK_EQ(count()->rx_challenge, 3);
	peer_close(&p);
}

/* RFC 5961 5.2 */
TEST(acks_of_nothing)
{
	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_send(&p, "P.", 1, 1000, 10);
	peer_expect(&p, ".", 1, 1, 0);
	peer_run(&p, 1 * S);
	peer_send(&p, "P.", 1, 0u - 70000000u, 10);
	peer_expect(&p, ".", 1, 1, 0);
	CHECK_EQ(count()->rx_old_ack, 2);
	CHECK_EQ(pv_tcp_inq(p.c), 0);
	peer_run(&p, 1 * S);
	peer_send(&p, "P.", 1, 0u - 1000u, 10); /* old, but within a window: its data counts */
	CHECK_EQ(pv_tcp_inq(p.c), 10);
	peer_close(&p);
}

TEST(outside_the_window)
{
	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_send(&p, "P.", 1u << 24, 1, 10);
	peer_expect(&p, ".", 1, 1, 0);
	peer_send(&p, "P.", 1, 1, 100);
	peer_run(&p, 100 * MS);
	peer_skip(&p);
	/* All of it was here already: RFC 2883. */
	peer_send(&p, "P.", 1, 1, 50);
	{
		const struct peer_seg *s = peer_expect(&p, ".", 1, 101, 0);

		CHECK_EQ(s->opt.nsack, 1);
		CHECK_EQ(s->opt.sack[0].start, 1);
		CHECK_EQ(s->opt.sack[0].end, 51);
	}
	CHECK_EQ(count()->rx_out_of_window, 2);
	/* A keepalive */
	peer_run(&p, 1 * S);
	peer_send(&p, ".", 100, 1, 0);
	peer_expect(&p, ".", 1, 101, 0);
	peer_send(&p, ".", 100, 1, 0);
	peer_expect_none(&p);
	CHECK_EQ(pv_tcp_inq(p.c), 100);
	peer_close(&p);
}

/* RFC 7323 5.3, 5.5 */
TEST(old_timestamps)
{
	struct pv_wire_tcp_opts o = { .has_ts = true };
	uint32_t ts;

	peer_begin(&p, (struct peer_cfg){ 0 });
	ts = peer_ts_now(&p);
	o.ts_val = ts - 10;
	o.ts_ecr = p.ts_recent;
	peer_send_seg(&p, &(struct peer_seg){ .flags = "P.", .seq = 1, .ack = 1, .len = 10, .opt = o });
	peer_expect(&p, ".", 1, 1, 0);
	CHECK_EQ(count()->rx_paws, 1);
	CHECK_EQ(pv_tcp_inq(p.c), 0);
	peer_run(&p, 24 * 24 * 3600 * S - 10 * S);
	peer_skip(&p);
	peer_send_seg(&p, &(struct peer_seg){ .flags = "P.", .seq = 1, .ack = 1, .len = 10, .opt = o });
	CHECK_EQ(pv_tcp_inq(p.c), 0);
	/* The peer was silent for so long that its clock may have gone round. */
	peer_run(&p, 20 * S);
	peer_send_seg(&p, &(struct peer_seg){ .flags = "P.", .seq = 1, .ack = 1, .len = 10, .opt = o });
	CHECK_EQ(pv_tcp_inq(p.c), 10);
	peer_skip(&p);
	/* A reset is not held up by it. */
	o.ts_val -= 100;
	peer_send_seg(&p, &(struct peer_seg){ .flags = "R", .seq = 11, .opt = o });
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	peer_close(&p);
}

/* Or one forged segment would have everything else refused as old. */
TEST(no_timestamp_from_an_impossible_acknowledgement)
{
	struct pv_wire_tcp_opts o = { .has_ts = true };

	peer_begin(&p, (struct peer_cfg){ 0 });
	o.ts_val = peer_ts_now(&p) + 1000000;
	o.ts_ecr = p.ts_recent;
	peer_send_seg(&p, &(struct peer_seg){ .flags = ".", .seq = 1, .ack = 9999, .opt = o });
	CHECK_EQ(peer_expect(&p, ".", 1, 1, 0)->opt.ts_ecr, peer_ts_now(&p));
	peer_send(&p, "P.", 1, 1, 10);
	CHECK_EQ(count()->rx_paws, 0);
	CHECK_EQ(pv_tcp_inq(p.c), 10);
	peer_close(&p);
}

TEST(flags_that_make_no_sense)
{
	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_send(&p, "P", 1, 0, 10);
	peer_send(&p, "F", 1, 0, 0);
	peer_send(&p, "", 1, 0, 10);
	peer_expect_none(&p);
	CHECK_EQ(count()->rx_bad_flags, 3);
	CHECK_EQ(pv_tcp_inq(p.c), 0);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	peer_close(&p);
}

TEST(nobody_there)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	p.irs = 5000; /* of nothing */
	peer_send_seg(&p, &(struct peer_seg){ .flags = "S", .seq = 0 });
	peer_expect(&p, "R.", 0u - 5000u, 1, 0);
	peer_send_seg(&p, &(struct peer_seg){ .flags = "P", .seq = 9, .len = 11 });
	peer_expect(&p, "R.", 0u - 5000u, 20, 0);
	peer_send_seg(&p, &(struct peer_seg){ .flags = "P.", .seq = 9, .ack = 33, .len = 11 });
	peer_expect(&p, "R", 33, 0, 0);
	peer_send_seg(&p, &(struct peer_seg){ .flags = "R", .seq = 9 });
	peer_send_seg(&p, &(struct peer_seg){ .flags = "S", .bad_csum = true });
	peer_expect_none(&p);
	CHECK_EQ(count()->rx_no_socket, 4);
	CHECK_EQ(count()->rx_bad_csum, 1);
	peer_close(&p);
}

/* ---- the end --------------------------------------------------------------------------------------------------------------- */

/* Half close, TIME_WAIT, and its end. */
TEST(active_close)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	shut(2);
	peer_expect(&p, "F.", 1, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_FIN_WAIT_1);
	CHECK_EQ(peer_try_write(&p, 1, 0), -EPIPE);
	peer_ack(&p, 2);
	CHECK_EQ(peer_state(&p), PV_TCP_FIN_WAIT_2);
	peer_send(&p, "P.", 1, 2, 40);
	peer_read(&p, 40);
	peer_run(&p, 100 * MS);
	peer_skip(&p);
	peer_run(&p, 1000 * S); /* it is not an orphan: no limit */
	CHECK_EQ(peer_state(&p), PV_TCP_FIN_WAIT_2);
	peer_send(&p, "F.", 41, 2, 0);
	peer_expect(&p, ".", 2, 42, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	CHECK_EQ(peer_try_read(&p, 1, 0), 0);
	CHECK_EQ(pv_tcp_ready_bits(p.c), PV_EV_IN | PV_EV_OUT | PV_EV_HUP | PV_EV_RDHUP);
	peer_run(&p, 30 * S);
	peer_send(&p, "F.", 41, 2, 0);
	peer_expect(&p, ".", 2, 42, 0);
	peer_send(&p, "R", 42, 0, 0); /* RFC 1337 */
	peer_run(&p, 59 * S);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	peer_run(&p, 2 * S);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 0);
	peer_send(&p, "F.", 41, 2, 0);
	peer_expect(&p, "R", 2, 0, 0);
	peer_close(&p);
}

TEST(simultaneous_close)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	shut(2);
	peer_expect(&p, "F.", 1, 1, 0);
	peer_send(&p, "F.", 1, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSING);
	peer_run(&p, 50 * MS);
	peer_expect(&p, ".", 2, 2, 0);
	peer_ack(&p, 2);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	peer_close(&p);
}

TEST(fin_and_ack_of_fin_together)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	close_conn();
	peer_expect(&p, "F.", 1, 1, 0);
	peer_send(&p, "F.", 1, 2, 0);
	peer_expect(&p, ".", 2, 2, 0);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	CHECK_EQ(p.w.host[0].tcp->orphans, 0);
	peer_close(&p);
}

TEST(passive_close)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	peer_send(&p, "PF.", 1, 1, 25);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSE_WAIT);
	CHECK_EQ(pv_tcp_ready_bits(p.c), PV_EV_IN | PV_EV_OUT | PV_EV_RDHUP);
	peer_read(&p, 25);
	CHECK_EQ(peer_try_read(&p, 1, 0), 0);
	peer_run(&p, 100 * MS);
	peer_expect(&p, ".", 1, 27, 0);
	peer_skip(&p);
	peer_send(&p, "F.", 26, 1, 0); /* our acknowledgement got lost */
	peer_expect(&p, ".", 1, 27, 0);
	peer_write(&p, 33); /* the other half still works */
	peer_expect(&p, "P.", 1, 27, 33);
	close_conn();
	peer_expect(&p, "F.", 34, 27, 0);
	CHECK_EQ(in_state(PV_TCP_LAST_ACK), 1);
	peer_ack(&p, 34);
	CHECK_EQ(in_state(PV_TCP_LAST_ACK), 1);
	peer_ack(&p, 35);
	CHECK_EQ(in_state(PV_TCP_LAST_ACK), 0);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 0);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_close(&p);
}

TEST(reset_in_close_wait)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	peer_send(&p, "F.", 1, 1, 0);
	peer_send(&p, "R", 1, 0, 0); /* the number of its FIN, as some send it */
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), EPIPE);
	peer_close(&p);
}

/* RFC 2525 2.17 */
TEST(close_with_unread_data_resets)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	peer_send(&p, "P.", 1, 1, 25);
	peer_skip(&p);
	close_conn();
	peer_expect(&p, "R.", 1, 26, 0);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_close(&p);
}

TEST(linger_of_zero_resets)
{
	const struct peer_seg *s;

	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	pv_tcp_options(p.c)->linger = true;
	close_conn();
	s = peer_expect(&p, "R.", 1, 1, 0);
	CHECK(s->opt.has_ts && s->opt.ts_ecr == peer_ts_now(&p));
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_close(&p);
}

TEST(what_is_queued_is_sent_before_the_fin)
{
	peer_open(&p, &(struct peer_cfg){ .wnd = 1000, .no_wscale = true });
	peer_active(&p);
	peer_write(&p, 1500);
	peer_run(&p, 0);
	close_conn();
	peer_skip(&p);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_1), 1);
	for (int i = 0; i < 10; i++) {
		peer_ack(&p, 1 + PV_MIN(500u * (uint32_t)(i + 1), 1500u));
		peer_run(&p, 10 * MS);
	}
	peer_ack(&p, 1502);
	peer_skip(&p);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	peer_send(&p, "F.", 1, 1502, 0);
	peer_expect(&p, ".", 1502, 2, 0);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	peer_close(&p);
}

TEST(orphans_end)
{
	/* data to nobody */
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	close_conn();
	peer_expect(&p, "F.", 1, 1, 0);
	peer_ack(&p, 2);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0); /* a record is left of it */
	peer_send(&p, "P.", 1, 2, 10);
	peer_expect(&p, "R", 2, 0, 0);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_close(&p);
	/* no FIN from the peer */
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	close_conn();
	peer_expect(&p, "F.", 1, 1, 0);
	peer_ack(&p, 2);
	peer_run(&p, 59 * S);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	peer_run(&p, 2 * S);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_close(&p);
	/* TCP_LINGER2 < 0 */
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	pv_tcp_options(p.c)->linger2_s = -1;
	close_conn();
	peer_expect(&p, "F.", 1, 1, 0);
	peer_ack(&p, 2);
	peer_expect(&p, "R.", 2, 1, 0);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	/* its FIN is never acknowledged */
	conn();
	peer_close(&p);
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	close_conn();
	for (int i = 0; i < 400 && p.w.host[0].tcp->nconns; i++) {
		peer_run(&p, 1 * S);
		peer_skip(&p);
	}
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_close(&p);
}

TEST(shutdown_of_reading)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	shut(1);
	CHECK_EQ(pv_tcp_ready_bits(p.c), PV_EV_IN | PV_EV_OUT | PV_EV_RDHUP);
	CHECK_EQ(peer_try_read(&p, 1, 0), 0);
	CHECK_EQ(pv_tcp_shutdown(p.c, 0, p.w.now), -EINVAL);
	CHECK_EQ(pv_tcp_shutdown(p.c, 4, p.w.now), -EINVAL);
	peer_close(&p);
}

TEST(shutdown_while_connecting)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	conn();
	CHECK_EQ(pv_tcp_shutdown(p.c, 2, p.w.now), -ENOTCONN);
	pv_tcp_close(p.c, p.w.now);
	peer_connect(&p);
	shut(2);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ECONNRESET);
	peer_close(&p);
}

TEST(disconnect)
{
	struct pv_endpoint e;

	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	peer_write(&p, 10);
	peer_skip(&p);
	CHECK_EQ(pv_tcp_disconnect(p.c, p.w.now), 0);
	peer_run(&p, 0);
	peer_expect(&p, "R.", 11, 1, 0);
	pv_tcp_local(p.c, &e);
	/* The number stays, the port does not. */
	CHECK(pv_addr_is_any(&e.addr) && e.port == p.stack_port && !pv_tcp_has_port(p.c));
	CHECK(!pv_tcp_remote(p.c, &e));
	CHECK_EQ(pv_tcp_shutdown(p.c, 3, p.w.now), -ENOTCONN);
	CHECK_EQ(pv_tcp_ready_bits(p.c) & PV_EV_ERR, PV_EV_ERR); /* ECONNRESET, until the next attempt */
	CHECK_EQ(dial(), -EINPROGRESS);
	pv_tcp_local(p.c, &e);
	p.stack_port = e.port;
	p.ts_on = false;
	p.seq_max = 0;
	peer_run(&p, 0);
	peer_agree(&p, peer_expect(&p, "S", 0, 0, 0));
	peer_syn_ack(&p);
	peer_expect(&p, ".", 1, 1, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	CHECK_EQ(pv_tcp_error(p.c), 0);
	peer_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
