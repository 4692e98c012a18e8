/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments that one batch brought, put in together: what a run is and what ends it; and that a connection is afterwards what it would be
 * had they come one by one, whatever is among them.
 */
#include "base/rng.h"
#include "tcp_peer.h"

#define MSS 1448u
#define MS PV_NS_PER_MS

static uint64_t merged(const struct peer *p)
{
	return pv_tcp_table_counters(peer_table(p))->rx_merged;
}

/* What was sent since p->hold was set, in one batch. Returns how many were put in with one before. */
static uint64_t batch(struct peer *p)
{
	uint64_t was = merged(p);

	p->hold = false;
	peer_run(p, 0);
	return merged(p) - was;
}

static void hold_segments(struct peer *p, uint32_t seq, uint32_t n, uint32_t len)
{
	p->hold = true;
	for (uint32_t i = 0; i < n; i++)
		peer_send(p, ".", seq + i * len, 1, len);
}

/* ---- what a run is ----------------------------------------------------------------------------------------------------------- */

TEST(one_pass_and_one_acknowledgement)
{
	for (int family = 4; family <= 6; family += 2) {
		for (int ts = 0; ts < 2; ts++) {
			struct pv_tcp_info info;
			struct peer p;

			peer_begin(&p, (struct peer_cfg){ .family = family, .no_ts = !ts });
			hold_segments(&p, 1, 20, 1200);
			CHECK_EQ(batch(&p), 19);
			peer_expect(&p, ".", 1, 1 + 20 * 1200, 0);
			peer_expect_none(&p);
			pv_tcp_get_info(p.c, &info, p.w.now);
			/* The third one of the handshake, too. */
			CHECK_EQ(info.segs_in, 22);
			CHECK_EQ(info.data_segs_in, 20);
			CHECK_EQ(info.bytes_received, 20 * 1200);
			CHECK_EQ(info.rcv_mss, 1200);
			CHECK_EQ(p.c->rcvq.count, 20);
			peer_read(&p, 20 * 1200);
			peer_close(&p);
		}
	}
}

TEST(small_ones_share_buffers)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	hold_segments(&p, 1, 30, 40);
	CHECK_EQ(batch(&p), 29);
	CHECK(p.c->rcvq.count <= 2);
	CHECK_EQ(pv_tcp_inq(p.c), 1200);
	peer_read(&p, 1200);
	peer_close(&p);
}

TEST(turned_off)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ .tcp.no_gro = true });
	hold_segments(&p, 1, 20, MSS);
	CHECK_EQ(batch(&p), 0);
	peer_expect(&p, ".", 1, 1 + 20 * MSS, 0);
	peer_read(&p, 20 * MSS);
	peer_close(&p);
}

/* Host 0 sends by both connections in turn; with room for one flow each ends the other's run. */
TEST(flows_that_alternate)
{
	for (uint32_t streams = 0; streams < 2; streams++) {
		struct world_cfg cfg = { .seed = 3, .tcp.gro_streams = streams };
		static uint8_t data[MSS], in[16 * MSS];
		struct pv_tcp *a[2], *b[2];
		struct world w;

		tcp_world_open(&w, &cfg);
		tcp_pair(&w, 4, 7000, a);
		tcp_pair(&w, 4, 7001, b);
		pv_net_hold(w.host[0].net, true);
		for (uint32_t i = 0; i < 8; i++) {
			struct pv_iov iov = { data, MSS };

			data[0] = (uint8_t)i;
			/* Without it each has PSH. */
			CHECK_EQ(pv_tcp_send(a[0], &iov, 1, PV_TCP_MSG_MORE, w.now), MSS);
			CHECK_EQ(pv_tcp_send(b[0], &iov, 1, PV_TCP_MSG_MORE, w.now), MSS);
		}
		pv_net_hold(w.host[0].net, false);
		world_run(&w, MS);
		CHECK_EQ(pv_tcp_table_counters(w.host[1].tcp)->rx_merged, streams ? 0 : 14);
		for (uint32_t k = 0; k < 2; k++) {
			CHECK_EQ(tcp_read(&w, k ? b[1] : a[1], in, sizeof(in)), 8 * MSS);
			for (uint32_t i = 0; i < 8; i++)
				CHECK_EQ(in[i * MSS], i);
		}
		for (int i = 0; i < 2; i++) {
			pv_tcp_close(a[i], w.now);
			pv_tcp_close(b[i], w.now);
		}
		tcp_fade(&w);
		world_close(&w);
	}
}

/* ---- what ends one --------------------------------------------------------------------------------------------------------------- */

/* Ten segments, of which the fifth is another; in runs before and after it, or with it as well. */
struct odd {
	struct peer_seg seg; /* seq and len are filled in */
	uint32_t shorter;
	uint64_t merged;
	bool lost; /* is not taken, and with it all that follow */
};

static void with_an_odd_one(const struct odd *o, int family)
{
	struct peer_seg s = o->seg;
	struct peer p;
	uint32_t len = 1000 - o->shorter, end = 1 + 9 * 1000 + len;

	peer_begin(&p, (struct peer_cfg){ .family = family, .ecn = true, .tcp.ecn = 3 });
	hold_segments(&p, 1, 4, 1000);
	s.seq = 4001;
	s.ack = 1;
	s.len = len;
	peer_send_seg(&p, &s);
	hold_segments(&p, 4001 + len, 5, 1000);
	if (batch(&p) != o->merged || (o->lost && p.c->rcv_nxt.v != p.iss + 4001))
		fprintf(stderr, "the odd one: flags %s tos %u wnd %u\n", s.flags, s.tos, s.wnd);
	CHECK_EQ(merged(&p), o->merged);
	if (o->lost) {
		CHECK_EQ(p.c->rcv_nxt.v, p.iss + 4001);
		peer_read(&p, 4000);
	} else {
		CHECK_EQ(p.c->rcv_nxt.v, p.iss + end);
		peer_read(&p, end - 1);
	}
	peer_close(&p);
}

TEST(what_ends_a_run)
{
	static const uint8_t nops[12] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	static const struct odd odd[] = {
		{ .seg.flags = ".", .merged = 9 },
		{ .seg.flags = "P.", .merged = 8 },
		{ .seg.flags = ".", .shorter = 1, .merged = 8 },
		{ .seg.flags = ".", .shorter = 900, .merged = 8 },
		{ .seg = { .flags = ".", .tos = 3 }, .merged = 7 },
		{ .seg = { .flags = ".", .tos = 2 }, .merged = 7 },
		{ .seg.flags = ".E", .merged = 7 },
		{ .seg.flags = ".W", .merged = 7 },
		/* Those behind it change the window back, which is not expected. */
		{ .seg = { .flags = ".", .wnd = 60000 }, .merged = 3 },
		{ .seg = { .flags = ".", .raw_opts = nops, .raw_len = 12 }, .merged = 7 },
		{ .seg = { .flags = ".", .raw_opts = nops, .raw_len = 8 }, .merged = 7 },
		{ .seg = { .flags = ".", .no_ts = true }, .merged = 7 },
		{ .seg = { .flags = ".", .opt = { .has_ts = true, .ts_val = 1 } }, .lost = true, .merged = 3 },
		{ .seg = { .flags = ".", .bad_csum = true }, .lost = true, .merged = 3 },
	};

	for (uint32_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		for (int family = 4; family <= 6; family += 2)
			with_an_odd_one(&odd[i], family);
}

TEST(urgent_data_and_the_end)
{
	struct pv_iov iov;
	uint8_t byte;
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	hold_segments(&p, 1, 4, 1000);
	peer_send_seg(&p, &(struct peer_seg){ .flags = "U.", .seq = 4001, .ack = 1, .len = 1000, .urp = 10 });
	hold_segments(&p, 5001, 4, 1000);
	/* While a mark is ahead of the reader nothing is predicted. */
	CHECK_EQ(batch(&p), 3);
	peer_read(&p, 4009);
	iov = (struct pv_iov){ &byte, 1 };
	CHECK_EQ(pv_tcp_recv(p.c, &iov, 1, PV_TCP_MSG_OOB, p.w.now), 1);
	CHECK_EQ(byte, peer_byte(4010));
	p.read++;
	peer_read(&p, 4990);
	hold_segments(&p, 9001, 4, 1000);
	peer_send(&p, "F.", 13001, 1, 1000);
	CHECK_EQ(batch(&p), 3);
	peer_read(&p, 5000);
	CHECK_EQ(peer_try_read(&p, 10, 0), 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSE_WAIT);
	peer_close(&p);
}

TEST(a_reset_behind_data)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	hold_segments(&p, 1, 5, 1000);
	peer_send(&p, "R", 5001, 0, 0);
	CHECK_EQ(batch(&p), 4);
	CHECK_EQ(pv_tcp_error(p.c), ECONNRESET);
	peer_close(&p);
}

/* ---- acknowledgements -------------------------------------------------------------------------------------------------------------- */

TEST(acknowledgements_that_advance)
{
	struct pv_tcp_info info;
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 10 * MSS);
	/* Slow start counts each. */
	p.hold = true;
	peer_ack(&p, 1 + MSS);
	peer_ack(&p, 1 + 2 * MSS);
	CHECK_EQ(batch(&p), 0);
	CHECK_EQ(p.c->cwnd, 12);
	p.c->ssthresh = 5;
	p.hold = true;
	for (uint32_t i = 3; i <= 9; i++)
		peer_ack(&p, 1 + i * MSS);
	CHECK_EQ(batch(&p), 6);
	CHECK_EQ(pv_tcp_in_flight(p.c), 1);
	pv_tcp_get_info(p.c, &info, p.w.now);
	CHECK_EQ(info.bytes_acked, 9 * MSS);
	CHECK_EQ(info.delivered, 1 + 9);
	CHECK_EQ(info.snd_cwnd, 12);
	/* A window that changes. */
	peer_skip(&p);
	peer_write(&p, 9 * MSS);
	p.hold = true;
	peer_ack(&p, 1 + 10 * MSS);
	peer_ack(&p, 1 + 11 * MSS);
	peer_send_seg(&p, &(struct peer_seg){ .flags = ".", .seq = 1, .ack = 1 + 12 * MSS, .wnd = 1000 });
	peer_send_seg(&p, &(struct peer_seg){ .flags = ".", .seq = 1, .ack = 1 + 13 * MSS, .wnd = 1000 });
	CHECK_EQ(batch(&p), 1);
	CHECK_EQ(p.c->snd_wnd, 1000u << 7);
	peer_close(&p);
}

/* Without SACK the duplicates are all that tells of a loss. */
TEST(duplicates_count_one_by_one)
{
	struct peer p;

	peer_begin(&p, (struct peer_cfg){ .no_sack = true });
	p.c->ssthresh = 5;
	peer_write(&p, 10 * MSS);
	peer_skip(&p);
	p.hold = true;
	peer_ack(&p, 1 + MSS);
	peer_ack(&p, 1 + 2 * MSS);
	for (uint32_t i = 0; i < 3; i++)
		peer_ack(&p, 1 + 2 * MSS);
	CHECK_EQ(batch(&p), 1);
	peer_expect(&p, ".", 1 + 2 * MSS, 1, MSS);
	CHECK_EQ(p.c->ca, PV_CA_RECOVERY);
	/* Nor are partial ones put together. */
	peer_skip(&p);
	p.hold = true;
	peer_ack(&p, 1 + 4 * MSS);
	peer_ack(&p, 1 + 5 * MSS);
	CHECK_EQ(batch(&p), 0);
	peer_close(&p);
}

/* ---- as if one by one -------------------------------------------------------------------------------------------------------------- */

struct twins {
	struct peer p[2]; /* the second one's stack gathers nothing */
	struct pv_rng rng;
	bool timeless; /* acknowledgements differ within a batch: fewer round trips are measured, and time stands still */
};

static uint32_t below(struct twins *t, uint32_t n)
{
	return (uint32_t)pv_rng_below(&t->rng, n);
}

static bool one_in(struct twins *t, uint32_t n)
{
	return !below(t, n);
}

/* But for the window, which opens by other steps. */
static void same_answers(struct twins *t)
{
	for (;;) {
		const struct peer_seg *a = peer_next(&t->p[0]), *b = peer_next(&t->p[1]);

		CHECK_EQ(!a, !b);
		if (!a)
			return;
		CHECK_EQ(a->bits, b->bits);
		CHECK_EQ(a->seq, b->seq);
		CHECK_EQ(a->ack, b->ack);
		CHECK_EQ(a->len, b->len);
		CHECK_EQ(a->urp, b->urp);
		CHECK_EQ(a->at_ns, b->at_ns);
		CHECK_EQ(a->opt.ts_val, b->opt.ts_val);
		CHECK_EQ(a->opt.ts_ecr, b->opt.ts_ecr);
		CHECK_EQ(a->opt.nsack, b->opt.nsack);
		for (uint32_t i = 0; i < a->opt.nsack; i++) {
			CHECK_EQ(a->opt.sack[i].start, b->opt.sack[i].start);
			CHECK_EQ(a->opt.sack[i].end, b->opt.sack[i].end);
		}
	}
}

static void same_state(struct twins *t)
{
	const struct pv_tcp_counters *n = pv_tcp_table_counters(peer_table(&t->p[0]));
	struct pv_tcp_counters m = *pv_tcp_table_counters(peer_table(&t->p[1]));
	struct pv_tcp_info a, b;

	CHECK_EQ(m.rx_merged, 0);
	m.rx_merged = n->rx_merged;
	m.rx_predicted = n->rx_predicted;
	CHECK(!memcmp(n, &m, sizeof(m)));
	pv_tcp_get_info(t->p[0].c, &a, t->p[0].w.now);
	pv_tcp_get_info(t->p[1].c, &b, t->p[1].w.now);
	b.rcv_ssthresh = a.rcv_ssthresh;
	b.rcv_wnd = a.rcv_wnd;
	b.rcv_rtt_us = a.rcv_rtt_us; /* taken where a window ends, which is now at the end of a run */
	b.rcv_space = a.rcv_space;
	if (t->timeless) {
		b.rto_us = a.rto_us;
		b.rtt_us = a.rtt_us;
		b.rttvar_us = a.rttvar_us;
		b.delivery_rate = a.delivery_rate;
		b.rate_app_limited = a.rate_app_limited;
	}
	CHECK(!memcmp(&a, &b, sizeof(a)));
	CHECK_EQ(pv_tcp_inq(t->p[0].c), pv_tcp_inq(t->p[1].c));
	CHECK_EQ(t->p[0].c->ack_pend, t->p[1].c->ack_pend);
	CHECK_EQ(t->p[0].c->rcv_mem, t->p[1].c->rcv_mem);
	CHECK_EQ(t->p[0].c->ato_us, t->p[1].c->ato_us);
	CHECK_EQ(t->p[0].c->deadline_ns[PV_TT_DELACK], t->p[1].c->deadline_ns[PV_TT_DELACK]);
}

static void send_both(struct twins *t, const struct peer_seg *s)
{
	for (int i = 0; i < 2; i++)
		peer_send_seg(&t->p[i], s);
}

static struct peer_seg any_segment(struct twins *t, uint32_t *seq, uint32_t *ack, uint32_t len)
{
	static const uint8_t flags[] = { PV_TH_ACK | PV_TH_PSH,
					 PV_TH_ACK | PV_TH_PSH,
					 PV_TH_ACK | PV_TH_PSH,
					 PV_TH_ACK | PV_TH_ECE,
					 PV_TH_ACK | PV_TH_CWR,
					 PV_TH_ACK | PV_TH_URG,
					 PV_TH_PSH,
					 PV_TH_SYN | PV_TH_ACK };
	const struct pv_tcp *c = t->p[0].c;
	struct peer_seg s = { .bits = PV_TH_ACK, .len = len };
	uint32_t out = pv_seq_dist(c->snd_una, c->snd_max);

	if (one_in(t, 20))
		s.bits = flags[below(t, sizeof(flags))];
	if (one_in(t, 30))
		s.len = below(t, MSS);
	if (one_in(t, 60))
		*seq += below(t, 3000) - 1500; /* a hole, or what was there already */
	if (t->timeless && one_in(t, 3))
		*ack = c->snd_una.v - t->p[0].irs + below(t, out + 1);
	if (t->timeless && one_in(t, 60))
		*ack += 100000;
	if (one_in(t, 60))
		s.wnd = (uint16_t)(20000 + below(t, 40000));
	s.tos = one_in(t, 60) ? (uint8_t)below(t, 4) : 0;
	s.urp = (uint16_t)below(t, 100);
	s.bad_csum = one_in(t, 40);
	if (one_in(t, 60) && !t->p[0].cfg.no_ts) {
		s.opt.has_ts = true;
		s.opt.ts_val = peer_ts_now(&t->p[0]) - below(t, 3);
		s.opt.ts_ecr = t->p[0].ts_recent - below(t, 2);
	}
	if (one_in(t, 60) && out && !t->p[0].cfg.no_sack) {
		s.opt.nsack = 1;
		s.opt.sack[0].start = c->snd_una.v - t->p[0].irs + below(t, out);
		s.opt.sack[0].end = s.opt.sack[0].start + 1 + below(t, out);
	}
	s.seq = *seq;
	s.ack = *ack;
	*seq += s.len;
	return s;
}

static void both_batches(struct twins *t)
{
	const struct pv_tcp *c = t->p[0].c;
	uint32_t seq = c->rcv_nxt.v - t->p[0].iss, n = 1 + below(t, 30);
	uint32_t ack = c->snd_una.v - t->p[0].irs + below(t, pv_seq_dist(c->snd_una, c->snd_max) + 1);
	uint32_t len = one_in(t, 4) ? 0 : one_in(t, 2) ? 1 + below(t, 600) : MSS - 20;

	for (int i = 0; i < 2; i++)
		t->p[i].hold = true;
	while (n--) {
		struct peer_seg s = any_segment(t, &seq, &ack, len);

		send_both(t, &s);
	}
	for (int i = 0; i < 2; i++)
		(void)batch(&t->p[i]);
}

/* How many were put in together. */
static uint64_t one_by_one_or_not(struct twins *t, uint64_t seed)
{
	uint64_t together;

	struct peer_cfg cfg = {
		.family = seed & 1 ? 6 : 4,
		.seed = seed,
		.no_ts = seed & 2,
		.no_sack = seed & 4,
		.ecn = seed & 8,
		.pool = 2048,
		/* The rules ask whether the window may move on after each segment, or once after all: with room it always may. */
		.tcp = { .ecn = 1, .rcvbuf = 4 << 20, .quickack_segs = 1 + seed % 5 }
	};

	pv_rng_seed(&t->rng, seed);
	t->timeless = seed & 16;
	for (int i = 0; i < 2; i++) {
		cfg.tcp.no_gro = i;
		peer_begin(&t->p[i], cfg);
		pv_tcp_options(t->p[i].c)->oobinline = true;
	}
	for (uint32_t step = 0; step < 60 && peer_state(&t->p[0]) == PV_TCP_ESTABLISHED; step++) {
		uint32_t what = pv_tcp_inq(t->p[0].c) > 100000 ? 0 : below(t, 5),
			 n = what ? 1 + below(t, 1u << below(t, 17)) : 1u << 20;
		int64_t rc[2], ns = (int64_t)n * 1000;

		if (what > 2)
			both_batches(t);
		for (int i = 0; i < 2; i++) {
			if (what == 0)
				rc[i] = peer_try_read(&t->p[i], n, 0);
			else if (what == 1)
				rc[i] = peer_try_write(&t->p[i], n, 0);
			else
				peer_run(&t->p[i], what == 2 && !t->timeless ? ns : 0);
		}
		if (what < 2)
			CHECK_EQ(rc[0], rc[1]);
		same_answers(t);
		same_state(t);
	}
	together = merged(&t->p[0]);
	for (int i = 0; i < 2; i++)
		peer_close(&t->p[i]);
	return together;
}

TEST(a_connection_cannot_tell)
{
	static struct twins t;
	uint64_t together = 0;

	for (uint64_t seed = 1; seed <= 200; seed++)
		together += one_by_one_or_not(&t, seed);
	CHECK(together > 5000);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
