/* SPDX-License-Identifier: BSD-3-Clause */
/* Loss recovery against scripted acknowledgements: what goes, when, and what becomes of cwnd. */
#include "tcp_rec.h"

/* ---- fast retransmit and PRR -------------------------------------------------------------------------------------------- */

/* One of ten is lost. Two more by limited transmit, the third SACK retransmits; PRR brings ten down to seven. */
TEST(sack_recovery)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 40);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 3);
	rec_sent(&p, 11);
	CHECK_EQ(p.c->ca, PV_CA_DISORDER);
	rec_sack(&p, 1, 2, 4);
	rec_sent(&p, 12);
	rec_sack(&p, 1, 2, 5);
	rec_sent(&p, 1);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	CHECK_EQ(p.c->ssthresh, 7);
	/* ceil(7 delivered / 10) less what went */
	rec_sack(&p, 1, 2, 6);
	rec_sent(&p, 13);
	rec_sack(&p, 1, 2, 7);
	rec_sent(&p, 14);
	rec_sack(&p, 1, 2, 8);
	rec_sent(&p);
	rec_sack(&p, 1, 2, 9);
	rec_sent(&p);
	CHECK_EQ(pv_tcp_pipe(p.c), 7);
	/* At ssthresh: one for one. */
	rec_sack(&p, 1, 2, 10);
	rec_sent(&p, 15);
	rec_sack(&p, 1, 2, 11);
	rec_sent(&p, 16);
	peer_run(&p, 90 * MS);
	rec_sack(&p, 1, 2, 12);
	rec_sent(&p, 17);
	rec_ack(&p, 13);
	rec_sent(&p, 18, 19);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK_EQ(p.c->cwnd, 7);
	CHECK_EQ(p.c->t->c.recoveries, 1);
	CHECK_EQ(p.c->t->c.rto, 0);
	CHECK_EQ(p.c->total_retrans, 1);
	rec_close(&p);
}

/* RFC 6937 3.1, first example: twenty out, the first is lost, ssthresh is half. Every other acknowledgement sends. */
TEST(prr_one_loss)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .cc = "reno", .cwnd = 20 });
	rec_write(&p, 60);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20);
	peer_run(&p, 100 * MS);
	for (uint32_t ack = 1; ack <= 19; ack++) {
		rec_sack(&p, 1, 2, 2 + ack);
		if (ack <= 2)
			rec_sent(&p, 20 + ack);
		else if (ack == 3)
			rec_sent(&p, 1);
		else if (ack & 1 && ack < 19)
			rec_sent(&p, 23 + (ack - 5) / 2);
		else
			rec_sent(&p);
	}
	CHECK_EQ(pv_tcp_pipe(p.c), 10);
	CHECK_EQ(p.c->ssthresh, 10);
	peer_run(&p, 90 * MS);
	rec_ack(&p, 23);
	CHECK_EQ(p.c->cwnd, 10);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	rec_close(&p);
}

/* The second: fifteen of twenty are lost, far more than the reduction. One for one, and with each partial acknowledgement one more
 * (slow start reduction bound), but never above ssthresh. */
TEST(prr_burst_loss)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .cc = "reno", .cwnd = 20 });
	rec_write(&p, 60);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 16, 17);
	rec_sent(&p, 21);
	rec_sack(&p, 1, 16, 18);
	rec_sent(&p, 22);
	rec_sack(&p, 1, 16, 19);
	rec_sent(&p, 1);
	CHECK_EQ(p.c->lost, 15);
	rec_sack(&p, 1, 16, 20);
	rec_sent(&p, 2);
	rec_sack(&p, 1, 16, 21);
	rec_sent(&p, 3);
	peer_run(&p, 99 * MS);
	rec_sack(&p, 1, 16, 22);
	rec_sent(&p, 4);
	rec_sack(&p, 1, 16, 23);
	rec_sent(&p, 5);
	peer_run(&p, MS);
	rec_sack(&p, 2, 16, 23);
	rec_sent(&p, 6, 7);
	rec_sack(&p, 3, 16, 23);
	rec_sent(&p, 8, 9);
	rec_sack(&p, 4, 16, 23);
	rec_sent(&p, 10, 11);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 5, 16, 23);
	rec_sent(&p, 12, 13);
	rec_sack(&p, 6, 16, 23);
	rec_sent(&p, 14, 15);
	CHECK_EQ(pv_tcp_pipe(p.c), 10);
	rec_sack(&p, 7, 16, 23);
	rec_sent(&p, 23);
	CHECK_EQ(pv_tcp_pipe(p.c), 10);
	CHECK_EQ(p.c->t->c.recoveries, 1);
	rec_close(&p);
}

/* The one acknowledgement of a flight says both what came in order and what is missing: nothing else comes to send the rest by. */
TEST(losses_told_by_one_acknowledgement)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 10);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	peer_run(&p, 10 * MS);
	rec_sack(&p, 2, 7, 11, 4, 5);
	rec_sent(&p, 2, 3, 5, 6);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	CHECK_EQ(p.c->ssthresh, 7);
	rec_ack(&p, 11);
	CHECK_EQ(p.c->t->c.rto, 0);
	rec_close(&p);
}

/* An acknowledgement that was overtaken tells what came, all the same. */
TEST(sack_of_an_old_acknowledgement)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 20);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	peer_run(&p, 10 * MS);
	rec_sack(&p, 4, 9, 10);
	peer_run(&p, 5 * MS);
	peer_skip(&p);
	CHECK_EQ(p.c->sacked, 1);
	rec_sack(&p, 3, 5, 8);
	CHECK_EQ(p.c->sacked, 4);
	CHECK_EQ(p.c->delivered, 1 + 3 + 4);
	rec_close(&p);
}

/* A retransmission that is lost, too, is found by what was sent after it (RFC 8985 3.1), without a timeout. */
TEST(lost_retransmission)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 40);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 5);
	rec_sent(&p, 1);
	peer_run(&p, 1 * MS);
	rec_sack(&p, 1, 2, 11);
	rec_sent(&p, 11, 12, 13, 14, 15, 16);
	peer_run(&p, 101 * MS);
	/* Sent a millisecond after the retransmission, and here. */
	rec_sack(&p, 1, 2, 12);
	rec_sent(&p, 1, 17);
	CHECK_EQ(p.c->total_retrans, 2);
	CHECK_EQ(p.c->t->c.rto, 0);
	rec_close(&p);
}

/* ---- RACK ---------------------------------------------------------------------------------------------------------------- */

/* Less than three SACKs: a quarter of the least round trip is left for reordering. */
TEST(rack_timer)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 3);
	rec_sent(&p);
	rec_sent_in(&p, 25 * MS, 26 * MS, 1);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	CHECK_EQ(p.c->total_retrans, 1);
	rec_close(&p);
}

/* Once reordering has been seen, three SACKs do not mean a loss any more; the time does. */
TEST(rack_reordering)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 4);
	CHECK(!p.c->rack_reo_seen);
	rec_ack(&p, 4);
	CHECK(p.c->rack_reo_seen);
	CHECK_EQ(p.c->reord_seen, 1);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	rec_ack(&p, 11);
	rec_sent(&p);
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 11, 12, 19);
	rec_sent(&p);
	rec_sent_in(&p, 25 * MS, 26 * MS, 11);
	rec_close(&p);
}

/* RFC 8985 6.2 step 4: a D-SACK in a round doubles the reordering window; its first recovery is undone. */
TEST(rack_dsack_window)
{
	struct peer p;
	uint32_t cwnd;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 4);
	rec_ack(&p, 4);
	rec_ack(&p, 11);
	cwnd = p.c->cwnd;
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 11, 12, 19);
	rec_sent_in(&p, 25 * MS, 26 * MS, 11);
	CHECK(p.c->cwnd < cwnd);
	/* The original, late; then the copy. */
	rec_ack(&p, 21);
	rec_sent(&p);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK_EQ(p.c->rack_reo_mult, 1);
	rec_sack(&p, 21, 11, 12);
	CHECK_EQ(p.c->rack_reo_mult, 2);
	CHECK_EQ(p.c->rack_reo_persist, 16);
	CHECK_EQ(p.c->cwnd, cwnd);
	CHECK_EQ(p.c->t->c.undone, 1);
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 21, 22, 29);
	rec_sent_in(&p, 50 * MS, 51 * MS, 21);
	rec_close(&p);
}

/* ---- delivery rate ------------------------------------------------------------------------------------------------------- */

static bool rate_is(struct peer *p, uint64_t bytes_per_s, bool limited)
{
	struct pv_tcp_info i;

	pv_tcp_get_info(p->c, &i, p->w.now);
	CHECK_EQ(i.rate_app_limited, limited);
	/* Ticks are a microsecond. */
	return i.delivery_rate >= bytes_per_s - bytes_per_s / 1000 && i.delivery_rate <= bytes_per_s + bytes_per_s / 1000;
}

TEST(delivery_rate)
{
	struct peer p;

	/* One segment in a round trip of 100 ms, which says nothing of the path. */
	rec_open(&p, &(struct rec){ .cc = "reno" });
	CHECK(rate_is(&p, REC_LEN * 10, true));
	rec_write(&p, 50);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 11);
	CHECK(rate_is(&p, 10 * REC_LEN * 10, true));
	/* Twenty, and more is there. */
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 31);
	CHECK(rate_is(&p, 20 * REC_LEN * 10, false));
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 51);
	CHECK(rate_is(&p, 20 * REC_LEN * 10, false));
	/* Two, because there were no more: less is not believed. */
	rec_write(&p, 2);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 53);
	CHECK(rate_is(&p, 20 * REC_LEN * 10, false));
	rec_close(&p);
}

/* ---- undo ---------------------------------------------------------------------------------------------------------------- */

TEST(undo_by_dsack)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 6);
	rec_sent(&p, 1);
	CHECK_EQ(p.c->ssthresh, 7);
	/* Everything was only late; while in recovery the copy is reported. */
	rec_sack(&p, 6, 1, 2);
	CHECK_EQ(p.c->cwnd, 11); /* and slow start goes on */
	CHECK_EQ(p.c->ssthresh, PV_TCP_SSTHRESH_INF);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK_EQ(p.c->t->c.undone, 1);
	CHECK_EQ(p.c->dsack_dups, 1);
	rec_close(&p);
}

/* A cwnd of which little was in use does not grow because a recovery that was none had clamped it to that. */
TEST(undo_of_what_was_not_in_use)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .cwnd = 100 });
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t first = 1 + 20 * i;

		rec_write(&p, 10);
		peer_skip(&p);
		peer_run(&p, 100 * MS);
		rec_sack(&p, first, first + 1, first + 10);
		peer_run(&p, 80 * MS);
		rec_sent(&p, first);
		CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
		rec_write(&p, 10);
		peer_skip(&p);
		CHECK_EQ(pv_tcp_pipe(p.c), p.c->cwnd);
		/* It was only late, and so its copy comes again. */
		rec_sack(&p, first + 10, first, first + 1);
		CHECK_EQ(p.c->t->c.undone, i + 1);
		CHECK_EQ(p.c->cwnd, 100);
		peer_skip(&p);
		rec_ack(&p, first + 20);
		CHECK_EQ(p.c->cwnd, 100);
	}
	rec_close(&p);
}

/* Two were sent again, one of them for good reason: that stays a loss. */
TEST(undo_needs_all)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 3, 8);
	rec_sent(&p, 1, 2);
	rec_sack(&p, 1, 3, 11);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 11, 1, 2);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK_EQ(p.c->cwnd, 7);
	CHECK_EQ(p.c->t->c.undone, 0);
	rec_close(&p);
}

/* What the network doubled is not what we sent twice. */
TEST(dsack_of_the_network)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 5, 3, 4);
	rec_sack(&p, 5, 4, 5);
	CHECK_EQ(p.c->dsack_dups, 2);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	rec_sack(&p, 5, 6, 9);
	rec_sent(&p, 5);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	rec_sack(&p, 5, 10, 11, 6, 9);
	rec_sent(&p, 9);
	rec_sack(&p, 9, 10, 11);
	/* Two were sent again; two more that were not came twice. */
	rec_sack(&p, 9, 6, 7, 10, 11);
	rec_sack(&p, 9, 7, 8, 10, 11);
	CHECK_EQ(p.c->dsack_dups, 4);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	CHECK_EQ(p.c->t->c.undone, 0);
	rec_close(&p);
}

/* Eifel (RFC 3522, 4015): the echo tells that the original was acknowledged. */
TEST(undo_by_timestamp)
{
	struct peer_seg s = { .flags = ".", .opt = { .has_ts = true } };
	struct peer p;
	uint32_t first;

	rec_open(&p, &(struct rec){ .ts = true });
	rec_write(&p, 10);
	first = p.ts_recent;
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 6);
	rec_sent(&p, 1);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	peer_run(&p, 2 * MS);
	s.seq = 1;
	s.ack = rec_seq(6);
	s.opt.ts_val = peer_ts_now(&p);
	s.opt.ts_ecr = first;
	peer_send_seg(&p, &s);
	/* The retransmission is out still: what was seen is taken for reordering, and recovery waits for it. */
	CHECK(p.c->reord_seen > 0);
	s.ack = rec_seq(11);
	peer_send_seg(&p, &s);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK(p.c->cwnd >= 10);
	CHECK_EQ(p.c->ssthresh, PV_TCP_SSTHRESH_INF);
	CHECK_EQ(p.c->t->c.undone, 1);
	rec_sent(&p);
	rec_close(&p);
}

/* ... of everything at once. */
TEST(undo_by_timestamp_whole)
{
	struct peer_seg s = { .flags = ".", .seq = 1, .opt = { .has_ts = true } };
	struct peer p;

	rec_open(&p, &(struct rec){ .ts = true });
	rec_write(&p, 10);
	s.opt.ts_ecr = p.ts_recent;
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 2, 6);
	rec_sent(&p, 1);
	peer_run(&p, 2 * MS);
	s.ack = rec_seq(11);
	s.opt.ts_val = peer_ts_now(&p);
	peer_send_seg(&p, &s);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK(p.c->cwnd >= 10);
	CHECK_EQ(p.c->t->c.undone, 1);
	rec_close(&p);
}

/* ---- without SACK ------------------------------------------------------------------------------------------------------- */

/* RFC 6582: two holes. Limited transmit (RFC 3042) for the first two duplicates, the third retransmits; a partial acknowledgement brings
 * the second hole. */
TEST(newreno)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .cc = "reno", .no_sack = true });
	rec_write(&p, 40);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 1);
	rec_sent(&p, 11);
	rec_ack(&p, 1);
	rec_sent(&p, 12);
	rec_ack(&p, 1);
	rec_sent(&p, 1);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	CHECK_EQ(p.c->ssthresh, 5);
	for (int i = 0; i < 5; i++)
		rec_ack(&p, 1);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 5);
	{
		const struct peer_seg *s = peer_next(&p);

		CHECK(s && s->seq == rec_seq(5));
	}
	peer_skip(&p);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 13);
	/* high_seq exactly: the state is held, or late duplicates would start it anew (step 1 of 3.2). */
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	peer_skip(&p);
	for (int i = 0; i < 5; i++)
		rec_ack(&p, 13);
	CHECK_EQ(p.c->total_retrans, 2);
	peer_run(&p, 50 * MS);
	rec_ack(&p, 14);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK_EQ(p.c->cwnd, 5);
	CHECK_EQ(p.c->t->c.recoveries, 1);
	CHECK_EQ(p.c->t->c.rto, 0);
	rec_close(&p);
}

/* Segments with data, or with another window, are no duplicates (RFC 5681 2). */
TEST(not_duplicates)
{
	struct peer p;

	rec_open(&p, &(struct rec){ .no_sack = true });
	rec_write(&p, 10);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	for (uint32_t i = 0; i < 6; i++)
		peer_send_seg(
		    &p, &(struct peer_seg){ .flags = ".", .seq = p.seq_max, .ack = rec_seq(1), .wnd = (uint16_t)(60000 + i) });
	for (uint32_t i = 0; i < 6; i++)
		peer_send(&p, ".", p.seq_max, rec_seq(1), 10);
	CHECK_EQ(p.c->total_retrans, 0);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	rec_close(&p);
}

/* ---- tail loss probe ----------------------------------------------------------------------------------------------------- */

/* RFC 8985 7.2: two round trips (and 2 ms); the last segment again; what it brings to light is repaired at once. */
TEST(tlp_retransmits)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 3);
	rec_sent(&p, 1, 2, 3);
	rec_sent_in(&p, 200 * MS, 204 * MS, 3);
	CHECK_EQ(p.c->t->c.tlp, 1);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 1, 3, 4);
	rec_sent(&p, 1);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 2, 3, 4);
	rec_sent(&p, 2);
	CHECK_EQ(p.c->t->c.rto, 0);
	rec_close(&p);
}

/* New data, if there is some, though cwnd is full. */
TEST(tlp_new_data)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 20);
	rec_sent(&p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	rec_sent_in(&p, 200 * MS, 204 * MS, 11);
	CHECK_EQ(p.c->in_flight, 11);
	/* One probe at a time; then the timeout, a whole one after it. */
	rec_sent_in(&p, 290 * MS, 310 * MS, 1);
	CHECK_EQ(p.c->t->c.tlp, 1);
	CHECK_EQ(p.c->t->c.rto, 1);
	rec_close(&p);
}

/* One segment out: its acknowledgement may be held back, so the probe takes the timeout's place, which comes after it. */
TEST(tlp_single)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 1);
	rec_sent(&p, 1);
	rec_sent_in(&p, 290 * MS, 320 * MS, 1);
	CHECK_EQ(p.c->t->c.tlp, 1);
	CHECK_EQ(p.c->t->c.rto, 0);
	rec_sent_in(&p, 290 * MS, 320 * MS, 1);
	CHECK_EQ(p.c->t->c.rto, 1);
	rec_close(&p);
}

/* RFC 8985 7.4.2: the probe repaired the loss, and nothing else tells of it: cwnd does. */
TEST(tlp_loss)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 3);
	peer_skip(&p);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 3);
	rec_sent_in(&p, 290 * MS, 410 * MS, 3);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 4);
	CHECK_EQ(p.c->cwnd, 10);
	rec_write(&p, 1);
	rec_sent(&p, 4);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 5);
	CHECK_EQ(p.c->cwnd, 7);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	rec_close(&p);
}

/* Both came, and the D-SACK says so: no loss. */
TEST(tlp_needless)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 3);
	peer_skip(&p);
	rec_sent_in(&p, 200 * MS, 204 * MS, 3);
	rec_ack(&p, 4);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 4, 3, 4);
	rec_write(&p, 1);
	rec_sent(&p, 4);
	peer_run(&p, 100 * MS);
	rec_ack(&p, 5);
	CHECK_EQ(p.c->cwnd, 10);
	CHECK_EQ(p.c->ssthresh, PV_TCP_SSTHRESH_INF);
	rec_close(&p);
}

/* ... also when it comes together with what is newer than the probe. */
TEST(tlp_needless_late)
{
	struct peer p;

	rec_open(&p, &(struct rec){ 0 });
	rec_write(&p, 3);
	peer_skip(&p);
	rec_sent_in(&p, 200 * MS, 204 * MS, 3);
	rec_ack(&p, 4);
	rec_write(&p, 1);
	rec_sent(&p, 4);
	peer_run(&p, 100 * MS);
	rec_sack(&p, 5, 3, 4);
	CHECK_EQ(p.c->cwnd, 10);
	CHECK_EQ(p.c->ssthresh, PV_TCP_SSTHRESH_INF);
	rec_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
