/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending, against a scripted peer: what goes when, in which segments, and what the timers do when nothing comes back. */
#include "tcp_peer.h"

#define MS PV_NS_PER_MS
#define SEC PV_NS_PER_S
#define MSS 1448u /* of Ethernet over IPv4, timestamps taken off */

static const struct pv_tcp_counters *counters(struct peer *p)
{
	return pv_tcp_table_counters(peer_table(p));
}

static uint64_t doorbells(struct peer *p)
{
	struct pv_ring_counters rc;

	pv_ring_counters(p->w.host[0].ring, &rc);
	return rc.doorbells;
}

/* A pure acknowledgement with a window of its own, in bytes. */
static void ack_wnd(struct peer *p, uint32_t ack, uint32_t wnd)
{
	struct peer_seg s = { .flags = ".", .seq = p->seq_max, .ack = ack, .wnd = (uint16_t)(wnd >> 7), .zero_wnd = !wnd };

	CHECK_EQ(wnd & 127, 0);
	peer_send_seg(p, &s);
}

/* A write that leaves the ring's doorbell alone: what is posted stays with the ring. */
static int64_t try_quiet(struct peer *p, uint32_t n)
{
	static uint8_t buf[65536];
	struct pv_iov iov = { buf, n };

	for (uint32_t i = 0; i < n; i++)
		buf[i] = peer_byte(p->written + i);
	p->written += n;
	return pv_tcp_send(p->c, &iov, 1, 0, p->w.now);
}

/* ---- segments ------------------------------------------------------------------------------------------------------------ */

TEST(a_small_message_is_one_packet)
{
	struct peer p;
	struct pv_pool_stats before, after;
	uint64_t bells;
	uint32_t segs;

	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 64);
	peer_expect(&p, "P.", 1, 1, 64);
	peer_ack(&p, 65);
	peer_run(&p, SEC);
	bells = doorbells(&p);
	segs = peer_table(&p)->nfree_seg;
	pv_pool_get_stats(p.w.host[0].pool, &before);
	CHECK_EQ(try_quiet(&p, 64), 64);
	pv_pool_get_stats(p.w.host[0].pool, &after);
	CHECK_EQ(doorbells(&p), bells + 1);
	CHECK_EQ(peer_table(&p)->nfree_seg, segs - 1);
	CHECK_EQ(after.free, before.free - 1);
	peer_run(&p, 0);
	peer_expect(&p, "P.", 65, 1, 64);
	peer_expect_none(&p);
	peer_ack(&p, 129);
	CHECK_EQ(peer_table(&p)->nfree_seg, segs);
	CHECK_EQ(p.c->snd_mem, 0);
	peer_close(&p);
}

TEST(many_segments_one_doorbell)
{
	struct peer p;
	uint64_t bells;

	peer_begin(&p, (struct peer_cfg){ 0 });
	bells = doorbells(&p);
	peer_write(&p, 10 * MSS);
	CHECK_EQ(doorbells(&p), bells + 1);
	for (uint32_t i = 0; i < 10; i++)
		CHECK_EQ(peer_expect(&p, ".", 1 + i * MSS, 1, MSS)->bits & PV_TH_PSH, i == 9 ? PV_TH_PSH : 0);
	peer_expect_none(&p);
	peer_close(&p);
}

TEST(a_turn_takes_so_many_segments)
{
	struct peer p;
	uint8_t buf[5 * MSS];
	struct pv_iov iov = { buf, sizeof(buf) };

	peer_begin(&p, (struct peer_cfg){ 0 });
	for (uint32_t i = 0; i < sizeof(buf); i++)
		buf[i] = peer_byte(1 + i);
	/* It is pushed like the end of a write: nobody knows when the rest comes. */
	CHECK_EQ(pv_tcp_send(p.c, &iov, 1, PV_TCP_MSG_TURN(2) | PV_TCP_MSG_MORE, p.w.now), 2 * MSS);
	CHECK(!pv_tcp_no_room(p.c));
	peer_run(&p, 0);
	peer_expect(&p, ".", 1, 1, MSS);
	peer_expect(&p, "P.", 1 + MSS, 1, MSS);
	peer_expect_none(&p);
	/* What is within the turn is as without. */
	iov = (struct pv_iov){ buf + 2 * MSS, MSS + 10 };
	CHECK_EQ(pv_tcp_send(p.c, &iov, 1, PV_TCP_MSG_TURN(2) | PV_TCP_MSG_MORE, p.w.now), MSS + 10);
	peer_run(&p, 0);
	peer_expect(&p, ".", 1 + 2 * MSS, 1, MSS);
	peer_expect_none(&p);
	iov = (struct pv_iov){ buf + 3 * MSS + 10, 2 * MSS - 10 };
	CHECK_EQ(pv_tcp_send(p.c, &iov, 1, PV_TCP_MSG_TURN(32), p.w.now), 2 * MSS - 10);
	peer_run(&p, 0);
	peer_expect(&p, ".", 1 + 3 * MSS, 1, MSS);
	peer_expect(&p, "P.", 1 + 4 * MSS, 1, MSS);
	peer_expect_none(&p);
	peer_close(&p);
}

TEST(gathers_from_many_pieces)
{
	struct peer p;
	uint8_t buf[5000];
	struct pv_iov iov[5] = { { buf, 1 }, { buf, 0 }, { buf + 1, 1446 }, { buf + 1447, 3 }, { buf + 1450, 3000 } };

	peer_begin(&p, (struct peer_cfg){ .family = 6 });
	for (uint32_t i = 0; i < sizeof(buf); i++)
		buf[i] = peer_byte(1 + i);
	CHECK_EQ(pv_tcp_send(p.c, iov, 5, 0, p.w.now), 4450);
	peer_run(&p, 0);
	for (uint32_t i = 0; i < 3; i++)
		peer_expect(&p, ".", 1 + i * 1428, 1, 1428);
	peer_expect(&p, "P.", 1 + 3 * 1428, 1, 166);
	CHECK_EQ(pv_tcp_send(p.c, iov, 0, 0, p.w.now), 0);
	CHECK_EQ(pv_tcp_send(p.c, iov + 1, 1, 0, p.w.now), 0);
	peer_expect_none(&p);
	peer_close(&p);
}

TEST(nagle_with_minshalls_change)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	/* A short segment behind full ones goes; one behind a short one waits, and grows meanwhile. */
	peer_write(&p, MSS + 100);
	peer_expect(&p, ".", 1, 1, MSS);
	peer_expect(&p, "P.", 1 + MSS, 1, 100);
	peer_write(&p, 10);
	peer_write(&p, 20);
	peer_expect_none(&p);
	peer_ack(&p, 1 + MSS);
	peer_expect_none(&p);
	peer_ack(&p, 101 + MSS);
	peer_expect(&p, "P.", 101 + MSS, 1, 30);
	/* A full one goes whatever is out. */
	peer_write(&p, MSS - 1);
	peer_expect_none(&p);
	peer_write(&p, 1);
	peer_expect(&p, "P.", 131 + MSS, 1, MSS);
	peer_close(&p);
}

TEST(nodelay_sends_at_once)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 10);
	peer_write(&p, 20);
	peer_expect(&p, "P.", 1, 1, 10);
	peer_expect_none(&p);
	pv_tcp_options(p.c)->nodelay = true;
	pv_tcp_nodelay_set(p.c, p.w.now);
	pv_tcp_options_changed(p.c, p.w.now);
	peer_run(&p, 0);
	peer_expect(&p, "P.", 11, 1, 20);
	for (uint32_t i = 0; i < 5; i++) {
		peer_write(&p, 7);
		peer_expect(&p, "P.", 31 + 7 * i, 1, 7);
	}
	peer_close(&p);
}

TEST(cork_holds_short_segments_for_200_ms_at_most)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->cork = true;
	pv_tcp_options_changed(p.c, p.w.now);
	peer_write(&p, 100);
	peer_expect_none(&p);
	peer_write(&p, MSS);
	peer_expect(&p, ".", 1, 1, MSS);
	peer_ack(&p, 1 + MSS);
	peer_expect_none(&p);
	pv_tcp_options(p.c)->cork = false;
	pv_tcp_cork_set(p.c, p.w.now);
	pv_tcp_options_changed(p.c, p.w.now);
	peer_run(&p, 0);
	peer_expect(&p, "P.", 1 + MSS, 1, 100);
	peer_ack(&p, 101 + MSS);
	pv_tcp_options(p.c)->cork = true;
	pv_tcp_options_changed(p.c, p.w.now);
	peer_write(&p, 50);
	peer_expect_in(&p, 190 * MS, 250 * MS, "P.", 101 + MSS, 1, 50);
	peer_close(&p);
}

/* Once, whatever TCP_CORK and MSG_MORE say. */
TEST(nodelay_pushes_what_is_held)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->cork = true;
	pv_tcp_options_changed(p.c, p.w.now);
	peer_write(&p, 100);
	peer_expect_none(&p);
	pv_tcp_options(p.c)->nodelay = true;
	pv_tcp_nodelay_set(p.c, p.w.now);
	pv_tcp_options_changed(p.c, p.w.now);
	peer_run(&p, 0);
	peer_expect(&p, "P.", 1, 1, 100);
	peer_ack(&p, 101);
	peer_write(&p, 50);
	peer_expect_none(&p);
	/* It is set already. */
	pv_tcp_nodelay_set(p.c, p.w.now);
	pv_tcp_options_changed(p.c, p.w.now);
	peer_run(&p, 0);
	peer_expect(&p, "P.", 101, 1, 50);
	peer_close(&p);
}

TEST(more_and_eor)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	CHECK_EQ(peer_try_write(&p, 100, PV_TCP_MSG_MORE), 100);
	CHECK_EQ(peer_try_write(&p, 100, PV_TCP_MSG_MORE), 100);
	peer_expect_none(&p);
	/* Another option does not let it go. */
	pv_tcp_options(p.c)->keepalive = true;
	pv_tcp_options_changed(p.c, p.w.now);
	peer_run(&p, 0);
	peer_expect_none(&p);
	CHECK_EQ(peer_try_write(&p, 50, 0), 50);
	peer_expect(&p, "P.", 1, 1, 250);
	peer_ack(&p, 251);
	/* Nothing joins a record that has ended. */
	peer_write(&p, 1);
	peer_expect(&p, "P.", 251, 1, 1);
	CHECK_EQ(peer_try_write(&p, 30, PV_TCP_MSG_EOR), 30);
	CHECK_EQ(peer_try_write(&p, 40, 0), 40);
	/* Not the last any more, so Nagle does not hold it. */
	peer_expect(&p, "P.", 252, 1, 30);
	peer_ack(&p, 282);
	peer_expect(&p, "P.", 282, 1, 40);
	peer_close(&p);
}

TEST(fin_rides_with_the_last_data)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 10);
	peer_write(&p, 20);
	peer_expect(&p, "P.", 1, 1, 10);
	CHECK_EQ(pv_tcp_shutdown(p.c, 2, p.w.now), 0);
	peer_run(&p, 0);
	peer_expect(&p, "FP.", 11, 1, 20);
	CHECK_EQ(peer_try_write(&p, 1, 0), -EPIPE);
	peer_ack(&p, 32);
	CHECK_EQ(peer_state(&p), PV_TCP_FIN_WAIT_2);
	peer_close(&p);
	peer_begin(&p, (struct peer_cfg){ 0 });
	CHECK_EQ(pv_tcp_shutdown(p.c, 2, p.w.now), 0);
	peer_run(&p, 0);
	peer_expect(&p, "F.", 1, 1, 0);
	peer_close(&p);
}

TEST(urgent_pointer)
{
	struct peer p;
	const struct peer_seg *s;

	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 10);
	peer_expect(&p, "P.", 1, 1, 10);
	/* Urgent data does not wait for Nagle. */
	CHECK_EQ(peer_try_write(&p, 5, PV_TCP_MSG_OOB), 5);
	s = peer_expect(&p, "PU.", 11, 1, 5);
	CHECK_EQ(s->urp, 5);
	peer_ack(&p, 16);
	peer_write(&p, 5);
	peer_expect(&p, "P.", 16, 1, 5);
	peer_close(&p);
}

TEST(timestamps_tick_in_milliseconds)
{
	struct peer p;
	uint32_t first, ecr;

	peer_begin(&p, (struct peer_cfg){ .seed = 3 });
	peer_write(&p, 10);
	first = peer_expect(&p, "P.", 1, 1, 10)->opt.ts_val;
	peer_ack(&p, 11);
	peer_run(&p, 1234 * MS);
	peer_write(&p, 10);
	ecr = peer_expect(&p, "P.", 11, 1, 10)->opt.ts_val;
	CHECK_EQ(ecr - first, 1234);
	/* RFC 7323 5.4: from the table's clock, but not the same number. */
	CHECK(first != (uint32_t)(p.w.now / MS));
	peer_close(&p);
}

TEST(sizes_follow_the_mss)
{
	struct peer p;

	/* No timestamps; the peer's MSS. */
	peer_begin(&p, (struct peer_cfg){ .mss = 1000, .no_ts = true });
	peer_write(&p, 2500);
	peer_expect(&p, ".", 1, 1, 1000);
	peer_expect(&p, ".", 1001, 1, 1000);
	peer_expect(&p, "P.", 2001, 1, 500);
	peer_close(&p);
	/* What waits is cut when the MSS has become less, and what was sent when it goes again. */
	peer_begin(&p, (struct peer_cfg){ 0 });
	ack_wnd(&p, 1, 0);
	peer_write(&p, 2 * MSS);
	peer_expect_none(&p);
	pv_tcp_mss_sync(p.c, 1052);
	ack_wnd(&p, 1, 65536);
	peer_expect(&p, ".", 1, 1, 1000);
	peer_expect(&p, ".", 1001, 1, 448);
	peer_expect(&p, ".", 1449, 1, 1000);
	peer_expect(&p, "P.", 2449, 1, 448);
	peer_close(&p);
	/* Two segments fit into the widest window that the peer ever offered. */
	peer_begin(&p, (struct peer_cfg){ .no_wscale = true, .wnd = 1000, .no_ts = true });
	peer_write(&p, 2000);
	peer_expect(&p, ".", 1, 1, 500);
	peer_expect(&p, ".", 501, 1, 500);
	peer_expect_none(&p);
	peer_close(&p);
}

/* ---- windows and probes ------------------------------------------------------------------------------------------------------- */

TEST(the_window_is_not_overrun)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	/* Less of a window is believed only of a later segment, or when it is none at all. */
	ack_wnd(&p, 1, 0);
	ack_wnd(&p, 1, 4096);
	peer_write(&p, 8000);
	peer_expect(&p, ".", 1, 1, MSS);
	peer_expect(&p, ".", 1 + MSS, 1, MSS);
	peer_expect_none(&p); /* the third would end at 4344 */
	ack_wnd(&p, 1 + 2 * MSS, 65536);
	peer_expect(&p, ".", 1 + 2 * MSS, 1, MSS);
	peer_expect(&p, ".", 1 + 3 * MSS, 1, MSS);
	peer_expect(&p, ".", 1 + 4 * MSS, 1, MSS);
	peer_expect(&p, "P.", 1 + 5 * MSS, 1, 8000 - 5 * MSS);
	peer_close(&p);
}

TEST(a_closed_window_is_probed_for_ever_while_it_answers)
{
	struct peer p;
	int64_t wait = 200 * MS;

	peer_begin(&p, (struct peer_cfg){ .tcp = { .retries2 = 4, .rto_max_ns = 10 * SEC } });
	ack_wnd(&p, 1, 0);
	peer_write(&p, 100);
	peer_expect_none(&p);
	for (int i = 0; i < 30; i++) {
		peer_expect_in(&p, wait, wait + MS, ".", 0, 1, 0);
		ack_wnd(&p, 1, 0);
		wait = i < 4 ? PV_MIN(2 * wait, 10 * SEC) : wait;
	}
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	CHECK_EQ(counters(&p)->tx_probes, 30);
	ack_wnd(&p, 1, 65536);
	peer_expect(&p, "P.", 1, 1, 100);
	peer_ack(&p, 101);
	peer_run(&p, 60 * SEC);
	peer_expect_none(&p);
	peer_close(&p);
}

TEST(probes_without_an_answer_end_the_connection)
{
	struct peer p;
	uint32_t probes = 0;

	peer_begin(&p, (struct peer_cfg){ .tcp = { .retries2 = 5 } });
	ack_wnd(&p, 1, 0);
	peer_write(&p, 100);
	for (int i = 0; i < 100 && peer_state(&p) == PV_TCP_ESTABLISHED; i++) {
		peer_run(&p, SEC);
		for (; peer_next(&p); probes++)
			;
	}
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(probes, 5);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	CHECK_EQ(pv_tcp_error(p.c), 0);
	CHECK_EQ(peer_try_write(&p, 1, 0), -EPIPE);
	peer_close(&p);
}

/* RFC 9293 3.8.6.2.1: a window smaller than the segment is used only when nothing else moves. */
TEST(silly_windows_are_avoided)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	ack_wnd(&p, 1, 0);
	ack_wnd(&p, 1, 640);
	peer_write(&p, 2000);
	peer_expect_none(&p);
	peer_expect_in(&p, 200 * MS, 202 * MS, "P.", 1, 1, 640);
	ack_wnd(&p, 641, 65536);
	peer_expect(&p, ".", 641, 1, MSS - 640);
	peer_expect(&p, "P.", 1 + MSS, 1, 2000 - MSS);
	peer_close(&p);
}

TEST(a_window_that_is_taken_back)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 3 * MSS);
	peer_expect(&p, ".", 1, 1, MSS);
	peer_expect(&p, ".", 1 + MSS, 1, MSS);
	peer_expect(&p, "P.", 1 + 2 * MSS, 1, MSS);
	/* Retransmissions keep to what is left of it; the first segment probes a closed one. */
	ack_wnd(&p, 1 + MSS, 1024);
	CHECK_EQ(pv_tcp_retransmit(p.c, pv_list_entry(p.c->sndq.prev, struct pv_tcp_seg, link), p.w.now), -EAGAIN);
	CHECK_EQ(pv_tcp_retransmit(p.c, pv_list_entry(p.c->sndq.next, struct pv_tcp_seg, link), p.w.now), 0);
	peer_run(&p, 0);
	peer_expect(&p, ".", 1 + MSS, 1, 1024);
	peer_close(&p);
}

/* ---- when packets and rings are short ------------------------------------------------------------------------------------------- */

TEST(a_full_ring_is_waited_for)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ .tx_depth = 4 });
	peer_write(&p, 10 * MSS);
	for (uint32_t i = 0; i < 10; i++)
		peer_expect(&p, ".", 1 + i * MSS, 1, MSS);
	peer_expect_none(&p);
	peer_close(&p);
}

/* What waited for a neighbour that does not answer becomes an error to ourselves; the connection keeps its packets and goes on later. */
TEST(a_neighbour_that_falls_silent)
{
	for (int family = 4; family <= 6; family += 2) {
		struct world w;
		struct world_cfg cfg = { 0 };
		struct pv_tcp *pair[2];
		char out[5000], in[5000];
		uint32_t got = 0;

		memset(out, 'x', sizeof(out));
		tcp_world_open(&w, &cfg);
		tcp_pair(&w, family, 99, pair);
		pv_sim_set_link(w.host[1].ring, false);
		world_run(&w, 120 * SEC);
		CHECK_EQ(tcp_write(&w, pair[0], out, sizeof(out)), sizeof(out));
		world_run(&w, 30 * SEC);
		CHECK(pv_net_counters(w.host[0].net)->tx_no_neigh > 0);
		CHECK_EQ(pv_tcp_state(pair[0]), PV_TCP_ESTABLISHED);
		pv_sim_set_link(w.host[1].ring, true);
		for (int i = 0; i < 300 && got < sizeof(in); i++) {
			int64_t n;

			world_run(&w, SEC);
			n = tcp_read(&w, pair[1], in + got, sizeof(in) - got);
			got += n > 0 ? (uint32_t)n : 0;
		}
		CHECK_EQ(got, sizeof(in));
		CHECK(!memcmp(in, out, sizeof(in)));
		pv_tcp_close(pair[0], w.now);
		pv_tcp_close(pair[1], w.now);
		tcp_fade(&w);
		world_close(&w);
	}
}

/* The ring has not seen the doorbell: its packet must not change under its hands. */
TEST(a_packet_that_is_out_is_copied_to_be_sent_again)
{
	struct peer p;
	struct pv_tcp_seg *s;
	const struct pv_pkt *first;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->cork = true;
	CHECK_EQ(try_quiet(&p, 300), 300);
	pv_tcp_options(p.c)->cork = false;
	pv_tcp_output(p.c, p.w.now);
	s = pv_list_entry(p.c->sndq.next, struct pv_tcp_seg, link);
	first = s->pkt;
	CHECK(first->flags & PV_PKT_KEPT);
	CHECK_EQ(pv_tcp_retransmit(p.c, s, p.w.now), 0);
	CHECK(s->pkt != first && !(first->flags & PV_PKT_KEPT));
	peer_run(&p, 0);
	peer_expect(&p, "P.", 1, 1, 300);
	peer_expect(&p, "P.", 1, 1, 300);
	/* Back from the ring it goes again itself. */
	first = s->pkt;
	CHECK_EQ(pv_tcp_retransmit(p.c, s, p.w.now), 0);
	CHECK(s->pkt == first);
	peer_run(&p, 0);
	peer_expect(&p, "P.", 1, 1, 300);
	peer_ack(&p, 301);
	peer_close(&p);
}

TEST(an_acknowledgement_while_the_packet_is_out)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->cork = true;
	CHECK_EQ(try_quiet(&p, 300), 300);
	pv_tcp_options(p.c)->cork = false;
	pv_tcp_output(p.c, p.w.now);
	/* It goes to its pool when it comes back: peer_close counts. */
	pv_tcp_sndq_drop(p.c);
	pv_tcp_abort(p.c, 0);
	peer_run(&p, 0);
	peer_close(&p);
}

TEST(what_was_acknowledged_alone_is_not_sent_again)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 1000);
	peer_expect(&p, "P.", 1, 1, 1000);
	peer_ack(&p, 301);
	peer_run(&p, 0);
	peer_skip(&p);
	CHECK_EQ(pv_tcp_retransmit(p.c, pv_list_entry(p.c->sndq.next, struct pv_tcp_seg, link), p.w.now), 0);
	peer_run(&p, 0);
	peer_expect(&p, "P.", 301, 1, 700);
	CHECK_EQ(pv_tcp_outq(p.c), 700);
	peer_ack(&p, 1001);
	CHECK_EQ(pv_tcp_outq(p.c), 0);
	peer_close(&p);
}

/* ---- the send buffer -------------------------------------------------------------------------------------------------------------- */

TEST(the_send_buffer_fills_and_empties)
{
	struct peer p;
	struct pv_event ev[4];
	int64_t n;
	uint32_t charge;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->sndbuf = 20000;
	pv_tcp_options(p.c)->sndbuf_locked = true;
	ack_wnd(&p, 1, 0);
	CHECK(pv_tcp_ready_bits(p.c) & PV_EV_OUT);
	(void)pv_tcp_events(peer_table(&p), ev, 4);
	n = peer_try_write(&p, 100000, 0);
	CHECK(n > 10000 && n < 20000);
	CHECK_EQ(n % MSS, 0);
	CHECK_EQ(peer_try_write(&p, 1, 0), -EAGAIN);
	CHECK(!(pv_tcp_ready_bits(p.c) & PV_EV_OUT));
	CHECK_EQ(pv_tcp_sndbuf_room(p.c), 0);
	charge = p.c->snd_mem;
	CHECK(charge >= 20000);
	ack_wnd(&p, 1, 65536);
	CHECK_EQ(pv_tcp_events(peer_table(&p), ev, 4), 0);
	/* One acknowledged: not a third yet. */
	ack_wnd(&p, 1 + MSS, 65536);
	CHECK_EQ(pv_tcp_events(peer_table(&p), ev, 4), 0);
	CHECK(!(pv_tcp_ready_bits(p.c) & PV_EV_OUT));
	ack_wnd(&p, 1 + 5 * MSS, 65536);
	CHECK(p.c->snd_mem * 3 <= 40000);
	CHECK(pv_tcp_ready_bits(p.c) & PV_EV_OUT);
	peer_skip(&p);
	peer_close(&p);
}

/* The writer, and whoever waits, that there is room. */
static void told(struct peer *p)
{
	struct pv_event ev[4];

	CHECK_EQ(pv_tcp_events(peer_table(p), ev, 4), 1);
	CHECK(ev[0].bits & PV_EV_OUT);
	CHECK(!pv_tcp_no_room(p->c));
	CHECK(pv_tcp_ready_bits(p->c) & PV_EV_OUT);
}

TEST(what_waits_before_the_peer_holds_back)
{
	struct peer p;
	struct pv_event ev[4];
	struct pv_tcp_info info;

	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_connect(&p);
	pv_tcp_set_user(p.c, &p);
	peer_agree(&p, peer_next(&p));
	peer_run(&p, 10 * PV_NS_PER_US);
	peer_syn_ack(&p);
	peer_skip(&p);
	pv_tcp_get_info(p.c, &info, p.w.now);
	CHECK_EQ(info.min_rtt_us, 10);
	CHECK(!pv_tcp_holds_back(p.c, p.w.now)); /* nothing is under way */
	peer_write(&p, 4 * MSS);
	peer_run(&p, 80 * PV_NS_PER_US);
	CHECK(!pv_tcp_holds_back(p.c, p.w.now));
	CHECK(!pv_tcp_no_room(p.c));
	peer_run(&p, PV_NS_PER_US);
	(void)pv_tcp_events(peer_table(&p), ev, 4);
	CHECK(pv_tcp_ready_bits(p.c) & PV_EV_OUT);
	CHECK(pv_tcp_holds_back(p.c, p.w.now));
	CHECK(pv_tcp_no_room(p.c));
	CHECK(!(pv_tcp_ready_bits(p.c) & PV_EV_OUT));
	/* Told by the first that the peer has taken. */
	peer_ack(&p, 1 + MSS);
	told(&p);
	/* Half a millisecond is a queue, more than a whole one is not known to be: whoever writes then tells the others. */
	peer_run(&p, 500 * PV_NS_PER_US);
	CHECK(pv_tcp_holds_back(p.c, p.w.now));
	peer_run(&p, 500 * PV_NS_PER_US);
	CHECK(!pv_tcp_holds_back(p.c, p.w.now));
	CHECK_EQ(pv_tcp_events(peer_table(&p), ev, 4), 0);
	peer_write(&p, MSS);
	told(&p);
	/* Of a peer that says nothing a probe tells, and where there are none a timeout. */
	for (int i = 0; i < 2; i++) {
		p.c->flags &= i ? ~PV_TF_SACK : ~0u;
		peer_ack(&p, p.written);
		peer_write(&p, 2 * MSS);
		peer_run(&p, 500 * PV_NS_PER_US);
		CHECK(pv_tcp_holds_back(p.c, p.w.now));
		peer_run(&p, i ? 150 * MS : MS);
		CHECK(!(pv_tcp_ready_bits(p.c) & PV_EV_OUT));
		peer_run(&p, i ? 100 * MS : 2 * MS);
		told(&p);
	}
	/* Sending is to say why it does not. */
	peer_ack(&p, p.written);
	peer_write(&p, MSS);
	peer_run(&p, 500 * PV_NS_PER_US);
	CHECK(pv_tcp_holds_back(p.c, p.w.now));
	CHECK_EQ(pv_tcp_shutdown(p.c, 2, p.w.now), 0);
	CHECK(!pv_tcp_holds_back(p.c, p.w.now));
	peer_skip(&p);
	peer_close(&p);
}

TEST(a_longer_send_buffer_is_told)
{
	struct peer p;
	struct pv_event ev[4];

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_set_user(p.c, &p);
	pv_tcp_options(p.c)->sndbuf = 20000;
	pv_tcp_options(p.c)->sndbuf_locked = true;
	ack_wnd(&p, 1, 0);
	while (peer_try_write(&p, 100000, 0) > 0)
		;
	(void)pv_tcp_events(peer_table(&p), ev, 4);
	pv_tcp_options(p.c)->sndbuf = 100000;
	pv_tcp_options_changed(p.c, p.w.now);
	told(&p);
	peer_skip(&p);
	peer_close(&p);
}

TEST(the_send_buffer_grows_with_the_window)
{
	struct peer p;
	uint32_t acked = 1, first;

	peer_begin(&p, (struct peer_cfg){ .pool = 4096 });
	CHECK_EQ(pv_tcp_options(p.c)->sndbuf_locked, false);
	first = (uint32_t)peer_try_write(&p, 1000000, 0);
	/* Twice the initial window, as Linux counts: 87040 bytes. */
	CHECK_EQ(p.c->opts.sndbuf, 87040);
	CHECK(first > 20 * MSS && first < 87040);
	for (int i = 0; i < 12; i++) {
		const struct peer_seg *s;

		peer_run(&p, 10 * MS);
		while ((s = peer_next(&p)))
			acked = PV_MAX(acked, s->seq + s->len);
		peer_ack(&p, acked);
		(void)peer_try_write(&p, 300000, 0);
	}
	CHECK(p.c->opts.sndbuf > 4 * 87040);
	CHECK(p.c->opts.sndbuf <= 4194304);
	peer_close(&p);
}

TEST(not_sent_low_water_mark)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	pv_tcp_options(p.c)->notsent_lowat = 3000;
	ack_wnd(&p, 1, 0);
	CHECK_EQ(peer_try_write(&p, 100000, 0), 3 * MSS);
	CHECK_EQ(peer_try_write(&p, 1, 0), -EAGAIN);
	CHECK(!(pv_tcp_ready_bits(p.c) & PV_EV_OUT));
	ack_wnd(&p, 1, 65536);
	CHECK(pv_tcp_ready_bits(p.c) & PV_EV_OUT);
	CHECK_EQ(pv_tcp_outq_nsd(p.c), 0);
	peer_close(&p);
}

/* ---- own addresses ------------------------------------------------------------------------------------------------------------------------ */

TEST(to_ourselves)
{
	struct world w;
	struct world_cfg cfg = { .hosts = 1 };
	struct pv_tcp *l, *a, *b;
	static uint8_t out[100000], in[100000];
	size_t sent = 0, got = 0;

	tcp_world_open(&w, &cfg);
	l = tcp_listener(&w, 0, 4, 77, 4);
	a = tcp_dial(&w, 0, 4, 0, 77);
	for (int i = 0; pv_tcp_accept(l, &b); i++) {
		CHECK(i < 100);
		world_run(&w, 10 * MS);
	}
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = peer_byte((uint32_t)i);
	for (int i = 0; i < 10000 && got < sizeof(in); i++) {
		int64_t n = sent < sizeof(out) ? tcp_write(&w, a, out + sent, sizeof(out) - sent) : 0;

		sent += n > 0 ? (size_t)n : 0;
		/* What is under way waits for our own polls, and for no peer that is behind. */
		CHECK(i || pv_tcp_in_flight(a));
		CHECK(!pv_tcp_holds_back(a, w.now + MS / 2));
		world_run(&w, MS);
		n = tcp_read(&w, b, in + got, sizeof(in) - got);
		got += n > 0 ? (size_t)n : 0;
	}
	CHECK_EQ(got, sizeof(in));
	CHECK(!memcmp(in, out, sizeof(in)));
	pv_tcp_close(a, w.now);
	pv_tcp_close(b, w.now);
	pv_tcp_close(l, w.now);
	tcp_fade(&w);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
