/* SPDX-License-Identifier: BSD-3-Clause */
/* Timeouts, F-RTO, reneging, giving up; ECN; what cwnd does while it is not used; round trips and TCP_INFO. */
#include "tcp_rec.h"

/* ---- timeout --------------------------------------------------------------------------------------------------------------- */

/* RFC 6298 5: doubled each time; kept, after an acknowledgement that may be of either copy (Karn), until there is a sample. */
TEST(rto_backoff)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_tlp = true });
	rec_write(&p, 1);
	rec_sent(&p, 1);
	rec_sent_in(&p, 299 * MS, 302 * MS, 1);
	rec_sent_in(&p, 599 * MS, 602 * MS, 1);
	rec_sent_in(&p, 1199 * MS, 1202 * MS, 1);
	CHECK_EQ(p.c->cwnd, 1);
	CHECK_EQ(p.c->ssthresh, 7);
	CHECK_EQ(p.c->backoff, 3);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 2);
	CHECK_EQ(p.c->backoff, 3);
	CHECK_EQ(p.c->retransmits, 0);
	rec_write(&p, 1);
	rec_sent(&p, 2);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 3);
	CHECK_EQ(p.c->backoff, 0);
	CHECK_EQ(p.c->srtt_ns, 100 * MS);
	rec_close(&p);
}

/* All is lost: one, then slow start up to ssthresh, in order. */
TEST(rto_slow_start)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_tlp = true });
	rec_write(&p, 10);
	peer_skip(&p);
	rec_sent_in(&p, 299 * MS, 302 * MS, 1);
	CHECK_EQ(p.c->ca, PV_CA_LOSS);
	CHECK_EQ(p.c->lost, 10);
	CHECK_EQ(p.c->cwnd, 1);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 2);
	rec_sent(&p, 2, 3);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 4);
	rec_sent(&p, 4, 5, 6, 7);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 8);
	rec_sent(&p, 8, 9, 10);
	rec_ack(&p, 11);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK_EQ(p.c->total_retrans, 10);
	rec_close(&p);
}

/* RFC 8985 6.3: what was sent a moment before the timeout is not lost by it. */
TEST(rto_spares_recent)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_tlp = true });
	rec_write(&p, 2);
	rec_sent(&p, 1, 2);
	peer_run(&p, 250 * MS);
	rec_write(&p, 2);
	rec_sent(&p, 3, 4);
	/* A round trip by RACK is needed for that. */
	p.c->rack_rtt_ns = 100 * MS;
	rec_sent_in(&p, 45 * MS, 55 * MS, 1);
	CHECK_EQ(p.c->lost, 2);
	CHECK_EQ(pv_tcp_pipe(p.c), 3);
	rec_close(&p);
}

/* RFC 5682 2.1: the acknowledgement after the timeout moves on, so two new ones go; the next one moves on, too: needless. */
TEST(frto_spurious)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_sack = true });
	rec_write(&p, 30);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	rec_sent_in(&p, 299 * MS, 302 * MS, 1);
	CHECK_EQ(p.c->cwnd, 1);
	rec_ack(&p, 2);
	rec_sent(&p, 11, 12);
	rec_ack(&p, 3);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK_EQ(p.c->lost, 0);
	CHECK(p.c->cwnd >= 10);
	CHECK_EQ(p.c->ssthresh, PV_TCP_SSTHRESH_INF);
	CHECK_EQ(p.c->t->c.rto_spurious, 1);
	CHECK_EQ(p.c->total_retrans, 1);
	rec_close(&p);
}

/* ... or it is a duplicate: the loss was real, and is repaired in slow start. */
TEST(frto_real)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_sack = true });
	rec_write(&p, 30);
	peer_skip(&p);
	rec_sent_in(&p, 299 * MS, 302 * MS, 1);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 2);
	rec_sent(&p, 11, 12);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 2);
	rec_sent(&p, 2);
	CHECK_EQ(p.c->ca, PV_CA_LOSS);
	CHECK_EQ(p.c->t->c.rto_spurious, 0);
	rec_close(&p);
}

/* RFC 5682 2.1 step 2a: nothing new may be sent: retransmissions as ever. */
TEST(frto_nothing_new)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_sack = true });
	rec_write(&p, 4);
	peer_skip(&p);
	rec_sent_in(&p, 299 * MS, 302 * MS, 1);
	rec_ack(&p, 2);
	rec_sent(&p, 2, 3);
	rec_close(&p);
}

/* RFC 5682 3.1: with SACK any original tells at once. */
TEST(frto_sack)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_tlp = true });
	rec_write(&p, 30);
	peer_skip(&p);
	rec_sent_in(&p, 299 * MS, 302 * MS, 1);
	rec_sack(&p, 1, 5, 6);
	CHECK(p.c->ca <= PV_CA_DISORDER);
	CHECK_EQ(p.c->t->c.rto_spurious, 1);
	CHECK_EQ(p.c->ssthresh, PV_TCP_SSTHRESH_INF);
	CHECK(p.c->cwnd >= 10);
	rec_close(&p);
}

/* RFC 2018 8: the receiver has forgotten what it SACKed. */
TEST(reneging)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 6);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 7);
	rec_sent(&p, 1);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 2);
	rec_sent(&p);
	rec_sent_in(&p, 49 * MS, 52 * MS, 2);
	CHECK_EQ(p.c->sacked, 0);
	CHECK_EQ(p.c->lost, 5);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 3);
	rec_sent(&p, 3, 4);
	rec_close(&p);
}

/* retries2 by time: after 0.2 + 0.4 + 0.8 + 1.6 s from the first timeout. */
TEST(gives_up)
{
	int64_t start;
	struct peer p;

	rec_open(&p, &(struct rec){ .no_tlp = true, .retries2 = 3 });
	rec_write(&p, 1);
	peer_skip(&p);
	start = p.w.now + 300 * MS;
	while (peer_state(&p) == PV_TCP_ESTABLISHED) {
		peer_run(&p, 10 * MS);
		CHECK(p.w.now < start + 30 * PV_NS_PER_S);
	}
	CHECK(p.w.now >= start + 3000 * MS);
	CHECK(p.w.now <= start + 6100 * MS);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	peer_skip(&p);
	rec_close(&p);
}

TEST(user_timeout)
{
	int64_t start;
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	pv_tcp_options(p.c)->user_timeout_ms = 2000;
	pv_tcp_options_changed(p.c, p.w.now);
	rec_write(&p, 1);
	peer_skip(&p);
	start = p.w.now;
	while (peer_state(&p) == PV_TCP_ESTABLISHED) {
		peer_run(&p, 10 * MS);
		CHECK(p.w.now < start + 30 * PV_NS_PER_S);
	}
	CHECK(p.w.now >= start + 2000 * MS);
	CHECK(p.w.now <= start + 2700 * MS);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	peer_skip(&p);
	rec_close(&p);
}

/* ---- ECN, cwnd use --------------------------------------------------------------------------------------------------------- */

/* RFC 3168 6.1.2: once a round trip, and the next new data says so. */
TEST(ecn)
{
	const struct peer_seg *s;
	struct peer p;

	rec_open(&p, &(struct rec){ .ecn = true });
	rec_write(&p, 40);
	for (uint32_t i = 1; i <= 10; i++) {
		s = peer_expect(&p, ".", rec_seq(i), 1, REC_LEN);
		CHECK_EQ(s->tos & 3, 2);
	}
	peer_run(&p, 100 * MS);
	peer_send(&p, ".E", p.seq_max, rec_seq(3), 0);
	CHECK_EQ(p.c->ca, PV_CA_CWR);
	CHECK_EQ(p.c->ssthresh, 7);
	peer_expect(&p, ".W", rec_seq(11), 1, REC_LEN);
	for (uint32_t i = 4; i <= 11; i++)
		peer_send(&p, ".E", p.seq_max, rec_seq(i), 0);
	CHECK_EQ(p.c->ssthresh, 7);
	CHECK_EQ(p.c->cwnd, 7);
	while ((s = peer_next(&p)))
		CHECK(!(s->bits & PV_TH_CWR));
	peer_run(&p, 100 * MS);
	rec_ack(&p, 12);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK(p.c->delivered_ce >= 8);
	CHECK_EQ(p.c->total_retrans, 0);
	rec_close(&p);
}

/* A window that is not used does not grow. */
TEST(cwnd_unused)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	for (uint32_t i = 1; i < 100; i++) {
		rec_write(&p, 1);
		rec_sent(&p, i);
		peer_run(&p, 100 * MS);
		rec_ack(&p, i + 1);
	}
	CHECK_EQ(p.c->cwnd, 10);
	rec_close(&p);
}

/* One that was used once and is not any more shrinks to what is, half the way a timeout (RFC 2861). */
TEST(cwnd_decays)
{
	struct peer p;
	uint32_t was = 80;

	rec_open(&p, &(struct rec){ .cwnd = 80 });
	for (uint32_t i = 1; i <= 30; i++) {
		rec_write(&p, 1);
		rec_sent(&p, i);
		CHECK(p.c->cwnd == was || p.c->cwnd == (was + 10) / 2);
		was = p.c->cwnd;
		peer_run(&p, 100 * MS);
		rec_ack(&p, i + 1);
	}
	CHECK(was >= 10 && was <= 11);
	CHECK_EQ(p.c->ssthresh, PV_TCP_SSTHRESH_INF);
	rec_close(&p);
}

/* Slow start doubles a window that is. */
TEST(cwnd_used)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 150);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	peer_run(&p, 100 * MS);
	for (uint32_t i = 3; i <= 11; i += 2)
		rec_ack(&p, i);
	rec_ack(&p, 11);
	CHECK_EQ(p.c->cwnd, 20);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	for (uint32_t i = 13; i <= 31; i += 2)
		rec_ack(&p, i);
	CHECK_EQ(p.c->cwnd, 40);
	rec_close(&p);
}

/* RFC 5681 4.1, as Linux: half for each timeout of silence, down to the initial window. */
TEST(idle_restart)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .cwnd = 80 });
	p.c->ssthresh = 60;
	peer_run(&p, 700 * MS);
	rec_write(&p, 30);
	CHECK_EQ(p.c->cwnd, 20);
	CHECK_EQ(p.c->ssthresh, 60);
	CHECK_EQ(p.c->in_flight, 20);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 31);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 31);
	peer_run(&p, 10 * PV_NS_PER_S);
	p.c->cwnd = 6;
	rec_write(&p, 1);
	CHECK_EQ(p.c->cwnd, 6);
	rec_close(&p);
}

/* No congestion control: everything goes, losses are repaired, and cwnd never moves. */
TEST(unlimited)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	CHECK_EQ(pv_tcp_congestion_set(p.c, "none"), 0);
	rec_write(&p, 60);
	CHECK_EQ(p.c->in_flight, 60);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 5);
	rec_sent(&p, 1);
	rec_sack(&p, 1, 7, 61, 2, 5);
	rec_sent(&p, 5, 6);
	CHECK_EQ(p.c->cwnd, PV_TCP_CWND_MAX);
	rec_sent_in(&p, 200 * MS, 500 * MS, 1);
	CHECK_EQ(p.c->cwnd, PV_TCP_CWND_MAX);
	rec_close(&p);
}

/* ---- round trips --------------------------------------------------------------------------------------------------------- */

/* RFC 6298 2, as Linux does it: 4 x deviation with a floor of 200 ms, which grows at once and falls by a quarter a round trip. */
TEST(rtt_estimate)
{
	struct peer p;
	struct pv_tcp *c;

	rec_open(&p, &(struct rec){ 0 });
	c = p.c;
	c->srtt_ns = 0;
	pv_tcp_rtt_sample(c, 80 * MS);
	CHECK_EQ(c->srtt_ns, 80 * MS);
	CHECK_EQ(c->rttvar_ns, 200 * MS);
	CHECK_EQ(c->rto_ns, 280 * MS);
	c->srtt_ns = 0;
	pv_tcp_rtt_sample(c, 400 * MS);
	CHECK_EQ(c->rttvar_ns, 800 * MS);
	CHECK_EQ(c->rto_ns, 1200 * MS);
	/* 7/8 and 1/8; 3/4 of the deviation and 1/4 of the difference, four times. */
	pv_tcp_rtt_sample(c, 480 * MS);
	CHECK_EQ(c->srtt_ns, 410 * MS);
	CHECK_EQ(c->mdev_ns, 680 * MS);
	CHECK_EQ(c->rttvar_ns, 800 * MS);
	/* A shorter one makes the deviation grow an eighth as much. */
	c->mdev_ns = 40 * MS;
	pv_tcp_rtt_sample(c, 250 * MS);
	CHECK_EQ(c->srtt_ns, 390 * MS);
	CHECK_EQ(c->mdev_ns, 40 * MS + (160 - 10) * MS / 8);
	rec_close(&p);
}

/* The least of five minutes, not of all times: paths change. */
TEST(min_rtt_window)
{
	struct peer p;
	uint32_t n = 1;

	rec_open(&p, &(struct rec){ .rtt_ns = 20 * MS });
	CHECK_EQ(p.c->min_rtt_ns, 20 * MS);
	for (int64_t start = p.w.now; p.w.now < start + 299 * PV_NS_PER_S; n++) {
		rec_write(&p, 1);
		peer_skip(&p);
		peer_run(&p, 50 * MS);
		rec_ack(&p, n + 1);
		peer_run(&p, 20 * PV_NS_PER_S);
		if (p.w.now < start + 149 * PV_NS_PER_S)
			CHECK_EQ(p.c->min_rtt_ns, 20 * MS);
	}
	for (int i = 0; i < 3; i++, n++) {
		rec_write(&p, 1);
		peer_skip(&p);
		peer_run(&p, 50 * MS);
		rec_ack(&p, n + 1);
		peer_run(&p, 20 * PV_NS_PER_S);
	}
	CHECK_EQ(p.c->min_rtt_ns, 50 * MS);
	rec_close(&p);
}

/* The acknowledgement of a segment sent long ago, that a later one provoked: its own got lost. */
TEST(rtt_of_lost_acks)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .ts = true });
	rec_write(&p, 2);
	peer_skip(&p);
	peer_run(&p, 180 * MS);
	rec_write(&p, 1);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	/* The echo is of the third. */
	rec_ack(&p, 4);
	CHECK(p.c->srtt_ns >= 99 * MS && p.c->srtt_ns <= 101 * MS);
	rec_close(&p);
}

/* ---- TCP_INFO --------------------------------------------------------------------------------------------------------------- */

TEST(info)
{
	struct pv_tcp_info i;
	struct peer p;

	rec_open(&p, &(struct rec){ .ts = true });
	rec_write(&p, 12);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.state, PV_TCP_ESTABLISHED);
	CHECK_EQ(i.options, 7);
	CHECK_EQ(i.ca_state, PV_CA_OPEN);
	CHECK_EQ(i.unacked, 10);
	CHECK_EQ(i.notsent_bytes, 2 * REC_LEN);
	CHECK_EQ(i.snd_mss, REC_LEN);
	CHECK_EQ(i.snd_cwnd, 10);
	CHECK_EQ(i.snd_ssthresh, PV_TCP_SSTHRESH_INF);
	CHECK(i.rtt_us >= 99000 && i.rtt_us <= 101000);
	CHECK(i.min_rtt_us >= 99000 && i.min_rtt_us <= 100000);
	CHECK(i.rto_us >= 290000 && i.rto_us <= 310000);
	CHECK_EQ(i.reordering, 3);
	CHECK_EQ(i.bytes_acked, REC_LEN);
	CHECK_EQ(i.bytes_sent, 11 * REC_LEN);
	CHECK_EQ(i.data_segs_out, 11);
	CHECK_EQ(i.delivered, 2);
	CHECK_EQ(i.last_data_sent_ms, 100);
	CHECK_EQ(i.snd_wscale, 7);
	rec_sack(&p, 1, 2, 6);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.ca_state, PV_CA_RECOVERY);
	CHECK_EQ(i.sacked, 4);
	CHECK_EQ(i.lost, 1);
	CHECK_EQ(i.retrans, 1);
	CHECK_EQ(i.total_retrans, 1);
	CHECK_EQ(i.bytes_retrans, REC_LEN);
	CHECK_EQ(i.delivered, 6);
	CHECK_EQ(i.snd_ssthresh, 7);
	rec_close(&p);
}

/* Timeouts, the recoveries that they begin, and how long those take. */
TEST(info_timeouts)
{
	struct pv_tcp_info i;
	struct peer p;

	rec_open(&p, &(struct rec){ .no_tlp = true });
	rec_write(&p, 1);
	rec_sent(&p, 1);
	rec_sent_in(&p, 299 * MS, 302 * MS, 1);
	rec_sent_in(&p, 599 * MS, 602 * MS, 1);
	peer_run(&p, 100 * MS);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.total_rto, 2);
	CHECK_EQ(i.rto_recoveries, 1);
	CHECK(i.rto_time_ms >= 698 && i.rto_time_ms <= 704);
	rec_ack(&p, 2);
	peer_run(&p, PV_NS_PER_S);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.ca_state, PV_CA_OPEN);
	CHECK(i.rto_time_ms >= 698 && i.rto_time_ms <= 704);
	rec_write(&p, 1);
	rec_sent(&p, 2);
	rec_sent_in(&p, 599 * MS, 1202 * MS, 2);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.total_rto, 3);
	CHECK_EQ(i.rto_recoveries, 2);
	rec_close(&p);
}

/* Busy from sending to acknowledgement; limited by the peer while its window is what holds back the rest. */
TEST(info_busy)
{
	struct peer_seg s = { .flags = ".", .seq = 1 };
	struct pv_tcp_info i;
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	peer_run(&p, PV_NS_PER_S);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.busy_time_us, 100000);
	CHECK_EQ(i.rwnd_limited_us, 0);
	rec_write(&p, 12);
	peer_run(&p, 100 * MS);
	s.ack = rec_seq(11);
	s.wnd = 2000 >> 7;
	peer_send_seg(&p, &s);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.busy_time_us, 200000);
	CHECK_EQ(i.rwnd_limited_us, 0);
	/* The last segment is beyond the window. */
	CHECK_EQ(p.c->in_flight, 1);
	peer_run(&p, 50 * MS);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.busy_time_us, 250000);
	CHECK_EQ(i.rwnd_limited_us, 50000);
	s.ack = rec_seq(12);
	s.wnd = 1000;
	peer_send_seg(&p, &s);
	s.ack = rec_seq(13);
	peer_send_seg(&p, &s);
	peer_run(&p, PV_NS_PER_S);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.busy_time_us, 250000);
	CHECK_EQ(i.rwnd_limited_us, 50000);
	rec_close(&p);
}

/* A closed window: from the write on, although nothing is out. */
TEST(info_busy_with_nothing_out)
{
	struct peer_seg s = { .flags = ".", .seq = 1, .ack = rec_seq(1), .zero_wnd = true };
	struct pv_tcp_info was, i;
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	peer_send_seg(&p, &s);
	pv_tcp_get_info(p.c, &was, p.w.now);
	rec_write(&p, 1);
	CHECK_EQ(p.c->in_flight, 0);
	peer_run(&p, 100 * MS);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.busy_time_us - was.busy_time_us, 100000);
	CHECK_EQ(i.rwnd_limited_us, 100000);
	s.zero_wnd = false;
	s.wnd = 1000;
	peer_send_seg(&p, &s);
	rec_sent(&p, 1);
	peer_run(&p, 50 * MS);
	rec_ack(&p, 2);
	peer_run(&p, 100 * MS);
	pv_tcp_get_info(p.c, &i, p.w.now);
	CHECK_EQ(i.busy_time_us - was.busy_time_us, 150000);
	CHECK_EQ(i.rwnd_limited_us, 100000);
	rec_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
