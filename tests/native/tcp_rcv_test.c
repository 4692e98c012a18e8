/* SPDX-License-Identifier: BSD-3-Clause */
/* The receive side towards a scripted peer: what is acknowledged when, with which window and blocks, and what the application reads. */
#include "tcp_peer.h"

#define MSS 1448u /* with timestamps */
#define MS PV_NS_PER_MS

static struct peer peer;

static struct peer *open_peer(const struct peer_cfg *cfg)
{
	peer_begin(&peer, *cfg);
	return &peer;
}

#define OPEN(...) open_peer(&(struct peer_cfg){ __VA_ARGS__ })

/* Past the start, where every segment is acknowledged at once; and no segment is half acknowledged. */
static void warm_up(struct peer *p)
{
	pv_tcp_options(p->c)->rcvbuf_locked = true;
	for (uint32_t i = 0; i < 64; i++) {
		peer_send(p, "P.", p->seq_max, 1, MSS);
		peer_read(p, MSS);
	}
	peer_run(p, 100 * MS);
	peer_skip(p);
}

/* ---- when to acknowledge ----------------------------------------------------------------------------------------------- */

TEST(quick_at_the_start_then_delayed)
{
	struct peer *p = OPEN(.tcp = { .quickack_segs = 4 });
	uint32_t at = 1;

	for (uint32_t i = 0; i < 4; i++, at += 100) {
		peer_send(p, ".", at, 1, 100);
		peer_expect(p, ".", 1, at + 100, 0);
	}
	peer_send(p, ".", at, 1, 100);
	peer_expect_none(p);
	peer_expect_in(p, 39 * MS, 41 * MS, ".", 1, at + 100, 0);
	CHECK_EQ(pv_tcp_table_counters(p->w.host[0].tcp)->delayed_acks, 1);
	peer_close(p);
}

TEST(every_second_full_segment)
{
	struct peer *p = OPEN(0);
	uint32_t at;

	warm_up(p);
	at = p->seq_max;
	for (uint32_t i = 0; i < 4; i++, at += 2 * MSS) {
		peer_send(p, ".", at, 1, MSS);
		peer_read(p, MSS);
		peer_expect_none(p);
		peer_send(p, ".", at + MSS, 1, MSS);
		peer_expect(p, ".", 1, at + 2 * MSS, 0);
		peer_read(p, MSS);
	}
	/* When nobody reads the window could not move on: the reader will acknowledge. */
	peer_send(p, ".", at, 1, MSS);
	peer_send(p, ".", at + MSS, 1, MSS);
	peer_expect_none(p);
	peer_read(p, 2 * MSS);
	peer_expect(p, ".", 1, at + 2 * MSS, 0);
	peer_expect_none(p);
	peer_close(p);
}

/* The reader's acknowledgement: a short segment with PSH that empties the buffer, unless the application answers as a rule. */
TEST(read_of_a_pushed_segment)
{
	struct peer *p = OPEN(0);
	uint32_t at;

	warm_up(p);
	at = p->seq_max;
	peer_send(p, "P.", at, 1, 100);
	peer_expect_none(p);
	peer_read(p, 50);
	peer_expect_none(p);
	peer_read(p, 50);
	peer_expect(p, ".", 1, at + 100, 0);
	/* An answer in time: from now on acknowledgements ride on answers. */
	peer_send(p, "P.", at + 100, 1, 100);
	peer_read(p, 100);
	peer_expect(p, ".", 1, at + 200, 0);
	peer_write(p, 10);
	peer_expect(p, "P.", 1, at + 200, 10);
	peer_send(p, "P.", at + 200, 11, 100);
	peer_read(p, 100);
	peer_expect_none(p);
	CHECK(!pv_tcp_is_quickack(p->c));
	peer_write(p, 10);
	peer_expect(p, "P.", 11, at + 300, 10);
	/* Nothing to ride on: the timer, and acknowledgements do not wait for answers any more. */
	peer_send(p, "P.", at + 300, 21, 100);
	peer_read(p, 100);
	peer_expect_in(p, 39 * MS, 41 * MS, ".", 21, at + 400, 0);
	CHECK(pv_tcp_is_quickack(p->c));
	peer_close(p);
}

TEST(quickack_option)
{
	struct peer *p = OPEN(0);
	uint32_t at;

	warm_up(p);
	at = p->seq_max;
	peer_send(p, ".", at, 1, 100);
	peer_expect_none(p);
	pv_tcp_quickack(p->c, true, p->w.now);
	peer_run(p, 0);
	peer_expect(p, ".", 1, at + 100, 0);
	CHECK(pv_tcp_is_quickack(p->c));
	/* What comes later is delayed all the same: Linux has it for once. */
	peer_send(p, ".", at + 100, 1, 100);
	peer_expect_none(p);
	pv_tcp_quickack(p->c, false, p->w.now);
	CHECK(!pv_tcp_is_quickack(p->c));
	peer_expect_in(p, 39 * MS, 41 * MS, ".", 1, at + 200, 0);
	peer_send(p, ".", at + 200, 1, 100);
	peer_expect_none(p);
	peer_expect_in(p, 39 * MS, 41 * MS, ".", 1, at + 300, 0);
	peer_close(p);
}

/* The FIN's acknowledgement may ride on our own one, as in Linux. */
TEST(fin_is_acknowledged_with_ours)
{
	struct peer *p = OPEN(0);

	warm_up(p);
	peer_send(p, "F.", p->seq_max, 1, 0);
	peer_expect_none(p);
	CHECK_EQ(peer_state(p), PV_TCP_CLOSE_WAIT);
	CHECK_EQ(peer_try_read(p, 10, 0), 0);
	pv_tcp_close(p->c, p->w.now);
	p->c = NULL;
	peer_run(p, 0);
	peer_expect(p, "F.", 1, p->seq_max, 0);
	peer_ack(p, 2);
	peer_close(p);
}

/* Before any data there is no measure of how long to wait: as in Linux it is a tick. */
TEST(fin_without_data_is_acknowledged_soon)
{
	struct peer *p = OPEN(0);

	peer_send(p, "F.", 1, 1, 0);
	peer_expect_none(p);
	peer_expect_in(p, 500 * PV_NS_PER_US, 2 * MS, ".", 1, 2, 0);
	peer_close(p);
}

/* ---- holes ------------------------------------------------------------------------------------------------------------- */

static void sack_is(const struct peer_seg *s, uint32_t n, const uint32_t *edges)
{
	if (s->opt.nsack != n)
		peer_say(s);
	CHECK_EQ(s->opt.nsack, n);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(s->opt.sack[i].start, edges[2 * i]);
		CHECK_EQ(s->opt.sack[i].end, edges[2 * i + 1]);
	}
}

#define SACK(s, ...) sack_is(s, sizeof((uint32_t[]){ __VA_ARGS__ }) / 8, (uint32_t[]){ __VA_ARGS__ })

TEST(blocks_newest_first)
{
	struct peer *p = OPEN(0);
	struct pv_tcp_info info;

	peer_send(p, ".", 101, 1, 100);
	SACK(peer_expect(p, ".", 1, 1, 0), 101, 201);
	peer_send(p, ".", 301, 1, 100);
	SACK(peer_expect(p, ".", 1, 1, 0), 301, 401, 101, 201);
	peer_send(p, ".", 501, 1, 100);
	SACK(peer_expect(p, ".", 1, 1, 0), 501, 601, 301, 401, 101, 201);
	/* Beside timestamps there is room for three. */
	peer_send(p, ".", 701, 1, 100);
	SACK(peer_expect(p, ".", 1, 1, 0), 701, 801, 501, 601, 301, 401);
	peer_send(p, ".", 201, 1, 50);
	SACK(peer_expect(p, ".", 1, 1, 0), 101, 251, 701, 801, 501, 601);
	/* Two become one. */
	peer_send(p, ".", 401, 1, 100);
	SACK(peer_expect(p, ".", 1, 1, 0), 301, 601, 101, 251, 701, 801);
	/* A part of a gap is filled: acknowledged at once, and what is left is told. */
	peer_send(p, ".", 1, 1, 100);
	SACK(peer_expect(p, ".", 1, 251, 0), 301, 601, 701, 801);
	peer_send(p, ".", 601, 1, 100);
	SACK(peer_expect(p, ".", 1, 251, 0), 301, 801);
	peer_send(p, ".", 251, 1, 50);
	CHECK_EQ(peer_expect(p, ".", 1, 801, 0)->opt.nsack, 0);
	pv_tcp_get_info(p->c, &info, p->w.now);
	CHECK_EQ(info.rcv_ooopack, 7);
	CHECK_EQ(info.ato_us, 40000);
	peer_read(p, 800);
	peer_close(p);
}

/* RFC 2883 4: a block below the acknowledgement, or within another one, is a duplicate; it is told once. */
TEST(duplicates_are_told)
{
	struct peer *p = OPEN(0);

	peer_send(p, ".", 1, 1, 500);
	peer_expect(p, ".", 1, 501, 0);
	peer_send(p, ".", 1, 1, 500);
	SACK(peer_expect(p, ".", 1, 501, 0), 1, 501);
	/* Half of it is new. */
	peer_send(p, ".", 251, 1, 500);
	SACK(peer_expect(p, ".", 1, 751, 0), 251, 501);
	peer_send(p, ".", 1001, 1, 500);
	SACK(peer_expect(p, ".", 1, 751, 0), 1001, 1501);
	peer_send(p, ".", 1101, 1, 100);
	SACK(peer_expect(p, ".", 1, 751, 0), 1101, 1201, 1001, 1501);
	peer_send(p, ".", 1401, 1, 200);
	SACK(peer_expect(p, ".", 1, 751, 0), 1401, 1501, 1001, 1601);
	/* Below, while something waits behind a hole. */
	peer_send(p, ".", 1, 1, 100);
	SACK(peer_expect(p, ".", 1, 751, 0), 1, 101, 1001, 1601);
	peer_send(p, ".", 751, 1, 250);
	CHECK_EQ(peer_expect(p, ".", 1, 1601, 0)->opt.nsack, 0);
	peer_read(p, 1600);
	CHECK_EQ(pv_tcp_table_counters(p->w.host[0].tcp)->rx_duplicate, 2);
	CHECK_EQ(pv_tcp_table_counters(p->w.host[0].tcp)->rx_out_of_window, 1); /* left of all that is not acknowledged */
	peer_close(p);
}

/* Without SACK each segment behind a hole answers once, with the window as it was. */
TEST(duplicate_acks_without_sack)
{
	struct peer *p = OPEN(.no_sack = true);
	uint16_t wnd;

	peer_send(p, ".", 1, 1, 100);
	wnd = peer_expect(p, ".", 1, 101, 0)->wnd;
	for (uint32_t i = 2; i < 8; i++) {
		const struct peer_seg *s;

		peer_send(p, ".", 1 + 100 * i, 1, 100);
		s = peer_expect(p, ".", 1, 101, 0);
		CHECK_EQ(s->opt.nsack, 0);
		CHECK_EQ(s->wnd, wnd);
	}
	peer_send(p, ".", 101, 1, 100);
	peer_expect(p, ".", 1, 801, 0);
	peer_read(p, 800);
	peer_close(p);
}

TEST(fin_behind_a_hole)
{
	struct peer *p = OPEN(0);

	peer_send(p, "FP.", 101, 1, 100);
	SACK(peer_expect(p, ".", 1, 1, 0), 101, 202); /* the FIN is there, too */
	CHECK_EQ(peer_state(p), PV_TCP_ESTABLISHED);
	CHECK_EQ(peer_try_read(p, 10, 0), -EAGAIN);
	peer_send(p, ".", 1, 1, 100);
	CHECK_EQ(peer_state(p), PV_TCP_CLOSE_WAIT);
	peer_expect(p, ".", 1, 202, 0);
	peer_read(p, 200);
	CHECK_EQ(peer_try_read(p, 10, 0), 0);
	CHECK_EQ(peer_try_read(p, 10, 0), 0);
	/* Data behind it is nobody's. */
	peer_send(p, ".", 202, 1, 100);
	peer_run(p, 50 * MS);
	CHECK_EQ(peer_try_read(p, 10, 0), 0);
	peer_skip(p);
	peer_close(p);
}

TEST(bare_fin_behind_a_hole)
{
	struct peer *p = OPEN(0);

	peer_send(p, "F.", 101, 1, 0);
	peer_expect(p, ".", 1, 1, 0);
	CHECK_EQ(peer_state(p), PV_TCP_ESTABLISHED);
	peer_send(p, ".", 1, 1, 100);
	CHECK_EQ(peer_state(p), PV_TCP_CLOSE_WAIT);
	peer_read(p, 100);
	CHECK_EQ(peer_try_read(p, 10, 0), 0);
	peer_skip(p);
	peer_close(p);
}

/* ---- window ------------------------------------------------------------------------------------------------------------ */

static uint32_t window(const struct peer *p, const struct peer_seg *s)
{
	return (uint32_t)s->wnd << p->c->rcv_wscale;
}

/* Nobody reads: the window closes without its edge ever moving back; probes are answered; reading opens it. */
static void closes_and_opens(struct peer *p)
{
	uint32_t edge = 0, sent = 0, got;

	for (uint32_t i = 0; i < 5000; i++) {
		const struct peer_seg *s;

		peer_send(p, ".", p->seq_max, 1, 1000);
		peer_run(p, 50 * MS);
		s = peer_next(p);
		CHECK(s && (int32_t)(s->ack + window(p, s) - edge) >= 0);
		edge = s->ack + window(p, s);
		sent = s->ack - 1;
		if (!s->wnd)
			break;
	}
	CHECK_EQ(edge, sent + 1);
	CHECK_EQ(pv_tcp_inq(p->c), sent);
	peer_skip(p);
	/* A probe of one byte. */
	peer_send(p, ".", edge, 1, 1);
	CHECK_EQ(peer_expect(p, ".", 1, edge, 0)->wnd, 0);
	CHECK_EQ(pv_tcp_inq(p->c), sent);
	/* A little room is not worth a segment; half of it is. */
	peer_read(p, 100);
	peer_expect_none(p);
	for (got = 100; !peer.c->rcvq.head || p->head == p->tail; got += 500)
		peer_read(p, 500);
	CHECK(got >= 1000 && got <= sent);
	CHECK(window(p, peer_expect(p, ".", 1, edge, 0)) >= 536);
	peer_read(p, sent - got);
	peer_skip(p);
	peer_send(p, ".", edge, 1, 100);
	peer_read(p, 100);
	peer_run(p, 50 * MS);
	peer_skip(p);
}

TEST(window_closes_and_opens)
{
	struct peer *p = OPEN(.tcp = { .rcvbuf_max = 131072 });

	closes_and_opens(p);
	peer_close(p);
}

TEST(window_without_scaling)
{
	struct peer *p = OPEN(.no_wscale = true, .tcp = { .rcvbuf = 32768, .rcvbuf_max = 32768 });

	CHECK_EQ(p->c->rcv_wscale, 0);
	closes_and_opens(p);
	peer_close(p);
}

TEST(smallest_buffer)
{
	struct peer *p = &peer;

	peer_open(p, &(struct peer_cfg){ 0 });
	peer_listen(p, 4);
	pv_tcp_options(p->l)->rcvbuf = 2304;
	pv_tcp_options(p->l)->rcvbuf_locked = true;
	peer_passive(p);
	peer_skip(p);
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t at = p->seq_max;
		int64_t n;

		peer_send(p, ".", at, 1, 500);
		n = pv_tcp_inq(p->c);
		CHECK(n > 0 && n <= 500);
		peer_read(p, (uint32_t)n);
		peer_run(p, 50 * MS);
		p->seq_max = p->read;
	}
	CHECK_EQ(p->c->opts.rcvbuf, 2304);
	peer_skip(p);
	peer_close(p);
}

/* What lies beyond the edge is cut off, a FIN there with it. */
TEST(beyond_the_window)
{
	struct peer *p = OPEN(.tcp = { .rcvbuf = 4096, .rcvbuf_max = 4096 });
	uint32_t edge = p->c->rcv_adv.v - p->c->rcv_nxt.v + 1;

	peer_send(p, "F.", edge - 1000, 1, 1400);
	SACK(peer_expect(p, ".", 1, 1, 0), edge - 1000, edge);
	peer_send(p, ".", edge + 100, 1, 100);
	CHECK_EQ(p->c->ooo_bytes, 1000);
	CHECK(!(p->c->flags & PV_TF_FIN_SEEN));
	peer_skip(p);
	peer_close(p);
}

/* A fast reader gets a buffer for what it reads in a round trip; a locked buffer stays. */
static uint32_t tuned(bool locked)
{
	struct peer *p = OPEN(0);
	uint32_t rcvbuf;

	pv_tcp_options(p->c)->rcvbuf_locked = locked;
	for (uint32_t round = 0; round < 12; round++) {
		uint32_t first = p->seq_max, n = 0, room = p->c->rcv_adv.v - p->c->rcv_nxt.v;

		for (; n + MSS <= room; n += MSS) {
			peer_send(p, ".", first + n, 1, MSS);
			peer_read(p, MSS);
			peer_skip(p);
		}
		peer_run(p, 20 * MS);
		peer_skip(p);
	}
	rcvbuf = p->c->opts.rcvbuf;
	CHECK(p->c->rcv_adv.v - p->c->rcv_nxt.v <= rcvbuf);
	peer_close(p);
	return rcvbuf;
}

TEST(auto_tuning)
{
	CHECK(tuned(false) >= 1u << 20);
	CHECK_EQ(tuned(true), 131072);
}

TEST(window_clamp)
{
	struct peer *p = OPEN(0);
	uint32_t edge;

	pv_tcp_options(p->c)->window_clamp = 4096;
	pv_tcp_rcv_opts_changed(p->c, p->w.now);
	edge = p->c->rcv_adv.v - p->c->rcv_nxt.v;
	for (uint32_t i = 0; i < 100; i++) {
		peer_send(p, ".", p->seq_max, 1, MSS);
		peer_read(p, MSS);
	}
	CHECK(edge > 4096 + 128);
	CHECK(p->c->rcv_adv.v - p->c->rcv_nxt.v <= 4096 + 128);
	peer_run(p, 50 * MS);
	peer_skip(p);
	peer_close(p);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

TEST(peek_discard_scatter)
{
	struct peer *p = OPEN(0);
	uint8_t a[7], b[600];
	struct pv_iov iov[4] = { { a, 3 }, { NULL, 0 }, { a + 3, 4 }, { b, sizeof(b) } };

	peer_send(p, ".", 1, 1, 500);
	peer_send(p, ".", 501, 1, 500);
	CHECK_EQ(peer_try_read(p, 800, PV_TCP_MSG_PEEK), 800);
	CHECK_EQ(pv_tcp_inq(p->c), 1000);
	CHECK_EQ(peer_try_read(p, 100, PV_TCP_MSG_TRUNC), 100);
	CHECK_EQ(peer_try_read(p, 2000, PV_TCP_MSG_PEEK | PV_TCP_MSG_TRUNC), 900);
	CHECK_EQ(pv_tcp_recv(p->c, iov, 4, 0, p->w.now), 607);
	for (uint32_t i = 0; i < 607; i++)
		CHECK_EQ(i < 7 ? a[i] : b[i - 7], peer_byte(101 + i));
	p->read += 607;
	CHECK_EQ(pv_tcp_recv(p->c, iov, 2, 0, p->w.now), 3);
	p->read += 3;
	CHECK_EQ(peer_try_read(p, 0, 0), 0);
	peer_read(p, 290);
	CHECK_EQ(peer_try_read(p, 0, 0), -EAGAIN);
	CHECK_EQ(peer_try_read(p, 10, PV_TCP_MSG_PEEK), -EAGAIN);
	peer_run(p, 50 * MS);
	peer_skip(p);
	peer_close(p);
}

TEST(take)
{
	struct peer *p = OPEN(0);
	struct pv_pkt *pkt;
	int64_t rc = 1;

	CHECK(!pv_tcp_take(p->c, p->w.now, &rc));
	CHECK_EQ(rc, -EAGAIN);
	peer_send(p, ".", 1, 1, 1000);
	peer_send(p, ".", 1001, 1, 1000);
	peer_read(p, 100);
	for (uint32_t want = 900; want <= 1000; want += 100) {
		pkt = pv_tcp_take(p->c, p->w.now, &rc);
		CHECK(pkt && rc == want && pkt->len == want && pkt->total == want);
		for (uint32_t i = 0; i < want; i++)
			CHECK_EQ(pkt->data[i], peer_byte(p->read + i));
		p->read += want;
		pv_pkt_put(pkt);
	}
	CHECK_EQ(p->c->rcv_mem, 0);
	peer_send(p, "F.", 2001, 1, 0);
	CHECK(!pv_tcp_take(p->c, p->w.now, &rc));
	CHECK_EQ(rc, 0);
	peer_skip(p);
	peer_close(p);
}

static uint32_t told(struct peer *p)
{
	struct pv_event ev[4];
	uint32_t n = pv_tcp_events(p->w.host[0].tcp, ev, 4), bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= ev[i].bits;
	return bits;
}

TEST(low_water_mark)
{
	struct peer *p = OPEN(0);

	pv_tcp_set_user(p->c, p);
	(void)told(p);
	pv_tcp_options(p->c)->rcvlowat = 250;
	pv_tcp_rcv_opts_changed(p->c, p->w.now);
	peer_send(p, ".", 1, 1, 100);
	peer_send(p, ".", 101, 1, 100);
	CHECK_EQ(told(p) & PV_EV_IN, 0);
	CHECK_EQ(pv_tcp_ready_bits(p->c) & PV_EV_IN, 0);
	peer_send(p, ".", 201, 1, 100);
	CHECK_EQ(told(p) & PV_EV_IN, PV_EV_IN);
	CHECK_EQ(pv_tcp_ready_bits(p->c) & PV_EV_IN, PV_EV_IN);
	peer_read(p, 200); /* a read takes what there is */
	CHECK_EQ(pv_tcp_ready_bits(p->c) & PV_EV_IN, 0);
	peer_send(p, "F.", 301, 1, 0);
	CHECK_EQ(told(p) & (PV_EV_IN | PV_EV_RDHUP), PV_EV_IN | PV_EV_RDHUP);
	peer_skip(p);
	peer_close(p);
}

/* Linux: after SHUT_RD reads do not wait, but what comes is still there to be read. */
TEST(shut_for_reading)
{
	struct peer *p = OPEN(0);

	CHECK_EQ(pv_tcp_shutdown(p->c, 1, p->w.now), 0);
	CHECK_EQ(peer_try_read(p, 10, 0), 0);
	peer_send(p, "P.", 1, 1, 100);
	peer_expect(p, ".", 1, 101, 0);
	peer_read(p, 100);
	CHECK_EQ(peer_try_read(p, 10, 0), 0);
	peer_skip(p);
	peer_close(p);
}

/* ---- urgent data ------------------------------------------------------------------------------------------------------- */

static int64_t read_oob(struct peer *p, uint32_t flags, uint8_t *byte)
{
	struct pv_iov iov = { byte, 1 };

	return pv_tcp_recv(p->c, &iov, 1, PV_TCP_MSG_OOB | flags, p->w.now);
}

static void send_urgent(struct peer *p, uint32_t seq, uint32_t len, uint16_t urp)
{
	peer_send_seg(p, &(struct peer_seg){ .flags = "PU.", .seq = seq, .ack = 1, .len = len, .urp = urp });
}

TEST(urgent_byte)
{
	struct peer *p = OPEN(0);
	uint8_t byte = 0;

	pv_tcp_set_user(p->c, p);
	(void)told(p);
	CHECK_EQ(read_oob(p, 0, &byte), -EINVAL);
	send_urgent(p, 1, 100, 61); /* byte 61 of 1..100 */
	CHECK_EQ(told(p) & PV_EV_PRI, PV_EV_PRI);
	CHECK_EQ(pv_tcp_ready_bits(p->c) & PV_EV_PRI, PV_EV_PRI);
	CHECK_EQ(pv_tcp_inq(p->c), 60);
	CHECK_EQ(read_oob(p, PV_TCP_MSG_PEEK, &byte), 1);
	CHECK_EQ(byte, peer_byte(61));
	CHECK_EQ(read_oob(p, 0, &byte), 1);
	CHECK_EQ(read_oob(p, 0, &byte), -EINVAL);
	CHECK(!pv_tcp_at_mark(p->c));
	CHECK_EQ(peer_try_read(p, 500, PV_TCP_MSG_PEEK), 60);
	CHECK_EQ(peer_try_read(p, 500, 0), 60); /* to the mark */
	CHECK(pv_tcp_at_mark(p->c));
	p->read++;
	CHECK_EQ(peer_try_read(p, 500, 0), 39); /* without that byte */
	CHECK(!pv_tcp_at_mark(p->c));
	CHECK_EQ(read_oob(p, 0, &byte), -EINVAL);
	peer_run(p, 50 * MS);
	peer_skip(p);
	peer_close(p);
}

/* Two in a row, nothing read between: the first is in the stream again, unless it was next to be read. As the kernel does. */
TEST(urgent_twice)
{
	struct peer *p = OPEN(0);
	uint8_t byte = 0;

	peer_send(p, "P.", 1, 1, 10);
	send_urgent(p, 11, 1, 1);
	peer_send(p, "P.", 12, 1, 5);
	send_urgent(p, 17, 1, 1);
	CHECK_EQ(pv_tcp_inq(p->c), 16);
	peer_read(p, 16);
	CHECK(pv_tcp_at_mark(p->c));
	CHECK_EQ(read_oob(p, 0, &byte), 1);
	CHECK_EQ(byte, peer_byte(17));
	CHECK_EQ(peer_try_read(p, 10, 0), -EAGAIN);
	p->read++;
	send_urgent(p, 18, 1, 1);
	CHECK(pv_tcp_at_mark(p->c));
	send_urgent(p, 19, 1, 1);
	p->read++;
	CHECK(pv_tcp_at_mark(p->c)); /* the byte before is gone */
	CHECK_EQ(pv_tcp_inq(p->c), 0);
	CHECK_EQ(read_oob(p, 0, &byte), 1);
	CHECK_EQ(byte, peer_byte(19));
	peer_run(p, 50 * MS);
	peer_skip(p);
	peer_close(p);
}

TEST(urgent_inline)
{
	struct peer *p = OPEN(0);
	uint8_t byte;

	pv_tcp_options(p->c)->oobinline = true;
	send_urgent(p, 1, 100, 61);
	CHECK_EQ(pv_tcp_inq(p->c), 100);
	CHECK_EQ(read_oob(p, 0, &byte), -EINVAL);
	CHECK_EQ(peer_try_read(p, 500, 0), 60);
	CHECK(pv_tcp_at_mark(p->c));
	CHECK_EQ(peer_try_read(p, 500, 0), 40);
	CHECK(!pv_tcp_at_mark(p->c));
	peer_run(p, 50 * MS);
	peer_skip(p);
	peer_close(p);
}

/* The pointer runs ahead of its byte; a later one takes its place. */
TEST(urgent_pointer_ahead)
{
	struct peer *p = OPEN(0);
	uint8_t byte = 0;

	send_urgent(p, 1, 100, 161);
	CHECK_EQ(read_oob(p, 0, &byte), -EAGAIN);
	CHECK_EQ(pv_tcp_inq(p->c), 100);
	peer_send(p, "P.", 101, 1, 100);
	CHECK_EQ(pv_tcp_inq(p->c), 160);
	CHECK_EQ(read_oob(p, 0, &byte), 1);
	CHECK_EQ(byte, peer_byte(161));
	send_urgent(p, 201, 10, 10); /* byte 210; the old one is in the stream again */
	CHECK_EQ(pv_tcp_inq(p->c), 209);
	CHECK_EQ(peer_try_read(p, 500, 0), 209);
	CHECK(pv_tcp_at_mark(p->c));
	CHECK_EQ(pv_tcp_ready_bits(p->c) & PV_EV_IN, 0); /* the urgent byte alone does not make it readable */
	CHECK_EQ(peer_try_read(p, 500, 0), -EAGAIN);
	CHECK_EQ(read_oob(p, 0, &byte), -EINVAL);
	peer_run(p, 50 * MS);
	peer_skip(p);
	peer_close(p);
}

TEST(urgent_and_take)
{
	struct peer *p = OPEN(0);
	struct pv_pkt *pkt;
	int64_t rc;

	send_urgent(p, 1, 1000, 401);
	pkt = pv_tcp_take(p->c, p->w.now, &rc);
	CHECK(pkt && rc == 400 && pkt->len == 400 && pkt->data[399] == peer_byte(400));
	pv_pkt_put(pkt);
	CHECK(pv_tcp_at_mark(p->c));
	pkt = pv_tcp_take(p->c, p->w.now, &rc);
	CHECK(pkt && rc == 599 && pkt->len == 599 && pkt->data[0] == peer_byte(402));
	pv_pkt_put(pkt);
	CHECK_EQ(p->c->rcv_mem, 0);
	peer_run(p, 50 * MS);
	peer_skip(p);
	peer_close(p);
}

/* ---- ECN --------------------------------------------------------------------------------------------------------------- */

/* RFC 3168 6.1.3: the mark is echoed on every acknowledgement until the peer says that it has reduced. */
TEST(congestion_experienced)
{
	struct peer *p = OPEN(.ecn = true);

	CHECK(p->c->flags & PV_TF_ECN);
	peer_send_seg(p, &(struct peer_seg){ .flags = ".", .seq = 1, .ack = 1, .len = 100, .tos = 2 });
	peer_expect(p, ".", 1, 101, 0);
	peer_send_seg(p, &(struct peer_seg){ .flags = ".", .seq = 101, .ack = 1, .len = 100, .tos = 3 });
	peer_expect(p, ".E", 1, 201, 0);
	peer_send_seg(p, &(struct peer_seg){ .flags = ".", .seq = 201, .ack = 1, .len = 100, .tos = 2 });
	peer_expect(p, ".E", 1, 301, 0);
	peer_send_seg(p, &(struct peer_seg){ .flags = "W.", .seq = 301, .ack = 1, .len = 100, .tos = 2 });
	peer_expect(p, ".", 1, 401, 0);
	peer_read(p, 400);
	peer_skip(p);
	peer_close(p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
