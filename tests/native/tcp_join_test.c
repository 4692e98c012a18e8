/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several segments as one packet, on a ring that cuts it (TSO): the wire sees the same frames at the same nanosecond as without, on good
 * wires and bad ones; and what is not to be joined is not.
 */
#include "base/rng.h"
#include "tcp_peer.h"

#define MS PV_NS_PER_MS
#define MSS 1448u
#define TSO 65536u

static uint64_t tso_packets(struct world *w, uint32_t host)
{
	struct pv_ring_counters n;

	pv_ring_counters(w->host[host].ring, &n);
	CHECK_EQ(n.tx_errors, 0);
	return n.tso_packets;
}

/* ---- the same frames ----------------------------------------------------------------------------------------------------- */

struct plan {
	int family;
	uint32_t mtu, tso_max;
	bool no_ts, no_sack, nodelay;
	uint8_t ecn;
	struct pv_sim_impair imp;
	uint64_t seed;
};

struct outcome {
	uint64_t trace, cut, segments, retransmits;
	int64_t ended;
};

#define BYTES (600u << 10)

/* Host 0 sends, and host 1 a little now and then; writes and reads of all sizes, by the seed. */
static struct outcome transfer(const struct plan *p)
{
	static uint8_t out[BYTES], in[BYTES];
	struct world_cfg cfg = {
		.seed = p->seed, .mtu = p->mtu, .tso_max = p->tso_max, .pool = 4096, .tx_depth = 2048, .rx_depth = 2048
	};
	struct outcome o = { 0 };
	struct pv_tcp *pair[2];
	struct pv_rng rng;
	struct world w;
	uint32_t sent = 0, got = 0, back = 0;

	cfg.tcp.no_timestamps = p->no_ts;
	cfg.tcp.no_sack = p->no_sack;
	cfg.tcp.ecn = p->ecn;
	pv_rng_seed(&rng, p->seed);
	for (uint32_t i = 0; i < BYTES; i++)
		out[i] = (uint8_t)pv_rng_u64(&rng);
	tcp_world_open(&w, &cfg);
	tcp_pair(&w, p->family, 7000, pair);
	pv_tcp_options(pair[0])->nodelay = p->nodelay;
	pv_tcp_options_changed(pair[0], w.now);
	pv_sim_wire_impair(w.wire, &p->imp);
	while (got < BYTES) {
		uint32_t n = 1 + (uint32_t)pv_rng_below(&rng, 1u << pv_rng_below(&rng, 18));
		int64_t rc = sent < BYTES ? tcp_write(&w, pair[0], out + sent, PV_MIN(n, BYTES - sent)) : 0;

		sent += rc > 0 ? (uint32_t)rc : 0;
		world_run(&w, (int64_t)pv_rng_below(&rng, 300) * 1000);
		rc = tcp_read(&w, pair[1], in + got, PV_MIN((uint32_t)pv_rng_below(&rng, 100000) + 1, BYTES - got));
		got += rc > 0 ? (uint32_t)rc : 0;
		if (!pv_rng_below(&rng, 20)) {
			CHECK_EQ(tcp_write(&w, pair[1], out, 10), 10);
			back += 10;
		}
		CHECK(w.now < 3600 * PV_NS_PER_S);
	}
	CHECK(!memcmp(in, out, BYTES));
	for (uint32_t n = 0; n < back; n += 10)
		for (int i = 0; tcp_read(&w, pair[0], in, 10) != 10; i++) {
			CHECK(i < 10000);
			world_run(&w, 10 * MS);
		}
	pv_tcp_close(pair[0], w.now);
	pv_tcp_close(pair[1], w.now);
	tcp_fade(&w);
	o.trace = pv_sim_wire_trace(w.wire);
	o.cut = tso_packets(&w, 0);
	o.segments = pv_tcp_table_counters(w.host[0].tcp)->tx_segments;
	o.retransmits = pv_tcp_table_counters(w.host[0].tcp)->tx_retransmits;
	CHECK_EQ(w.host[0].ring->stat->retransmits, o.retransmits);
	o.ended = w.now;
	world_close(&w);
	return o;
}

/* The trace is a sum over each frame's bytes, ring and time. */
static struct outcome same_frames(struct plan p)
{
	struct outcome with, without;

	p.tso_max = 0;
	without = transfer(&p);
	p.tso_max = TSO;
	with = transfer(&p);
	CHECK_EQ(with.trace, without.trace);
	CHECK_EQ(with.segments, without.segments);
	CHECK_EQ(with.retransmits, without.retransmits);
	CHECK_EQ(with.ended, without.ended);
	CHECK_EQ(without.cut, 0);
	/* Most went in packets of several. */
	CHECK(with.cut > 8 && with.cut < with.segments / 3);
	return with;
}

TEST(the_wire_sees_the_same_frames)
{
	for (uint32_t i = 0; i < 32; i++) {
		same_frames((struct plan){ .family = i & 1 ? 6 : 4,
					   .mtu = i & 2 ? 1500 : 1357,
					   .no_ts = i & 4,
					   .no_sack = i & 8,
					   .nodelay = i & 16,
					   .ecn = i % 3 ? 0 : 3,
					   .imp = { .latency_ns = 20000, .rate_kbps = i & 1 ? 10000000 : 0 },
					   .seed = 100 + i });
	}
}

TEST(the_wire_sees_the_same_frames_when_it_loses_some)
{
	uint64_t again = 0;

	for (uint32_t i = 0; i < 24; i++) {
		struct plan p = { .family = i & 1 ? 6 : 4,
				  .no_ts = i & 2,
				  .no_sack = i & 4,
				  .imp = { .loss_ppm = 8000 * (i % 4),
					   .reorder_ppm = i & 8 ? 5000 : 0,
					   .duplicate_ppm = i & 16 ? 5000 : 0,
					   .corrupt_ppm = i % 5 ? 0 : 2000,
					   .latency_ns = 200000,
					   .jitter_ns = 50000,
					   .rate_kbps = 2000000,
					   .queue_limit = 400 },
				  .seed = 200 + i };

		again += same_frames(p).retransmits;
	}
	CHECK(again > 60);
}

/* ---- what is in one packet ------------------------------------------------------------------------------------------------- */

static uint64_t cut(struct peer *p)
{
	return tso_packets(&p->w, 0);
}

static void begin(struct peer *p, struct peer_cfg cfg)
{
	cfg.tso_max = cfg.tso_max ? cfg.tso_max : TSO;
	peer_begin(p, cfg);
	/* One message, so that the path has its headers. */
	peer_write(p, 1);
	peer_expect(p, "P.", 1, 1, 1);
	peer_ack(p, 2);
	CHECK_EQ(cut(p), 0);
}

TEST(push_and_fin_are_the_last_ones)
{
	for (int family = 4; family <= 6; family += 2) {
		struct peer p;
		uint32_t mss = family == 4 ? MSS : MSS - 20;

		begin(&p, (struct peer_cfg){ .family = family });
		peer_write(&p, 3 * mss + 100);
		for (uint32_t i = 0; i < 3; i++) {
			const struct peer_seg *s = peer_expect(&p, ".", 2 + i * mss, 1, mss);

			CHECK(!(s->bits & PV_TH_PSH));
		}
		peer_expect(&p, "P.", 2 + 3 * mss, 1, 100);
		CHECK_EQ(cut(&p), 1);
		peer_ack(&p, 2 + 3 * mss + 100);
		pv_tcp_options(p.c)->cork = true;
		peer_write(&p, 2 * mss);
		peer_skip(&p);
		peer_ack(&p, 2 + 5 * mss + 100);
		pv_tcp_options(p.c)->cork = false;
		peer_close(&p);
	}
}

TEST(a_chain_has_as_many_pieces_and_bytes_as_the_ring_takes)
{
	/* Ethernet, IPv4 and TCP with timestamps: 66 bytes; two segments fit, three do not. */
	struct peer p;

	begin(&p, (struct peer_cfg){ .tso_max = 66 + 3 * MSS - 1 });
	peer_write(&p, 6 * MSS);
	for (uint32_t i = 0; i < 6; i++)
		peer_expect(&p, ".", 2 + i * MSS, 1, MSS);
	CHECK_EQ(cut(&p), 3);
	peer_ack(&p, 2 + 6 * MSS);
	/* No two: one by one, as if it could not. */
	peer_close(&p);
	begin(&p, (struct peer_cfg){ .tso_max = 66 + 2 * MSS - 1 });
	peer_write(&p, 4 * MSS);
	for (uint32_t i = 0; i < 4; i++)
		peer_expect(&p, ".", 2 + i * MSS, 1, MSS);
	CHECK_EQ(cut(&p), 0);
	peer_close(&p);
}

TEST(what_is_sent_again_goes_alone)
{
	struct peer p;

	begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 8 * MSS);
	for (uint32_t i = 0; i < 8; i++)
		peer_expect(&p, ".", 2 + i * MSS, 1, MSS);
	CHECK_EQ(cut(&p), 1);
	/* The third is missing. */
	peer_run(&p, 2 * MS);
	peer_sack(&p, 2 + 2 * MSS, 1, (uint32_t[]){ 2 + 3 * MSS, 2 + 8 * MSS });
	peer_expect(&p, ".", 2 + 2 * MSS, 1, MSS);
	peer_expect_none(&p);
	CHECK_EQ(cut(&p), 1);
	peer_ack(&p, 2 + 8 * MSS);
	peer_close(&p);
}

/* All of a chain is with the ring still: the segment is copied, and the chain comes back to whom its parts belong. */
TEST(a_part_of_what_is_out_is_sent_again)
{
	static uint8_t buf[4 * MSS];
	struct pv_iov iov = { buf, sizeof(buf) };
	struct pv_tcp_seg *s;
	const struct pv_pkt *was;
	struct peer p;

	begin(&p, (struct peer_cfg){ 0 });
	for (uint32_t i = 0; i < sizeof(buf); i++)
		buf[i] = peer_byte(p.written + i);
	p.written += sizeof(buf);
	pv_net_hold(p.w.host[0].net, true);
	CHECK_EQ(pv_tcp_send(p.c, &iov, 1, 0, p.w.now), sizeof(buf));
	s = pv_list_entry(p.c->sndq.next->next, struct pv_tcp_seg, link);
	was = s->pkt;
	CHECK(was->flags & PV_PKT_KEPT);
	CHECK_EQ(pv_tcp_retransmit(p.c, s, p.w.now), 0);
	CHECK(s->pkt != was && !(was->flags & PV_PKT_KEPT));
	pv_net_hold(p.w.host[0].net, false);
	peer_run(&p, 0);
	for (uint32_t i = 0; i < 4; i++)
		peer_expect(&p, ".", 2 + i * MSS, 1, MSS);
	peer_expect(&p, ".", 2 + MSS, 1, MSS);
	CHECK_EQ(cut(&p), 1);
	/* Back from the ring, each is single again. */
	pv_list_for_each(it, &p.c->sndq) {
		s = pv_list_entry(it, struct pv_tcp_seg, link);
		CHECK(!s->pkt->frag && !(s->pkt->flags & PV_PKT_KEPT));
	}
	s = pv_list_entry(p.c->sndq.next, struct pv_tcp_seg, link);
	was = s->pkt;
	CHECK_EQ(pv_tcp_retransmit(p.c, s, p.w.now), 0);
	CHECK(s->pkt == was);
	peer_run(&p, 0);
	peer_expect(&p, ".", 2, 1, MSS);
	peer_ack(&p, 2 + 4 * MSS);
	peer_close(&p);
}

TEST(an_acknowledgement_of_what_is_out)
{
	static uint8_t buf[4 * MSS];
	struct pv_iov iov = { buf, sizeof(buf) };
	struct peer p;

	begin(&p, (struct peer_cfg){ 0 });
	pv_net_hold(p.w.host[0].net, true);
	CHECK_EQ(pv_tcp_send(p.c, &iov, 1, 0, p.w.now), sizeof(buf));
	/* The packets go to their pool when they come back: peer_close counts. */
	pv_tcp_sndq_drop(p.c);
	pv_tcp_abort(p.c, 0);
	pv_net_hold(p.w.host[0].net, false);
	peer_run(&p, 0);
	peer_skip(&p);
	peer_close(&p);
}

TEST(urgent_data_and_sack_blocks_are_said_once)
{
	struct peer p;
	static uint8_t buf[3 * MSS];
	struct pv_iov iov = { buf, sizeof(buf) };

	begin(&p, (struct peer_cfg){ 0 });
	for (uint32_t i = 0; i < sizeof(buf); i++)
		buf[i] = peer_byte(p.written + i);
	p.written += sizeof(buf);
	CHECK_EQ(pv_tcp_send(p.c, &iov, 1, PV_TCP_MSG_OOB, p.w.now), sizeof(buf));
	peer_run(&p, 0);
	for (uint32_t i = 0; i < 3; i++) {
		const struct peer_seg *s = peer_expect(&p, "U.", 2 + i * MSS, 1, MSS);

		CHECK_EQ(s->urp, (3 - i) * MSS);
	}
	peer_ack(&p, 2 + 3 * MSS);
	/* Data behind a hole: its block is in whatever has room. */
	peer_send(&p, "P.", 100, 2 + 3 * MSS, 10);
	peer_skip(&p);
	peer_write(&p, 2 * MSS + 50);
	CHECK_EQ(peer_expect(&p, ".", 2 + 3 * MSS, 1, MSS)->opt.nsack, 0);
	CHECK_EQ(peer_expect(&p, ".", 2 + 4 * MSS, 1, MSS)->opt.nsack, 0);
	CHECK_EQ(peer_expect(&p, "P.", 2 + 5 * MSS, 1, 50)->opt.nsack, 1);
	CHECK_EQ(cut(&p), 0);
	peer_close(&p);
}

/* The path became narrower between posting and sending again. */
TEST(path_mtu)
{
	struct peer p;

	begin(&p, (struct peer_cfg){ 0 });
	peer_write(&p, 4 * MSS);
	for (uint32_t i = 0; i < 4; i++)
		peer_expect(&p, ".", 2 + i * MSS, 1, MSS);
	CHECK_EQ(cut(&p), 1);
	peer_icmp(&p, PV_ICMP4_UNREACH, 4, 1000, 2);
	/* Each in two; what follows is as long as the path now takes. */
	for (uint32_t at = 0; at < 4 * MSS;) {
		const struct peer_seg *s = peer_next(&p);

		if (!s) {
			peer_ack(&p, 2 + at);
			peer_run(&p, PV_NS_PER_S);
			continue;
		}
		CHECK(s->len <= 948);
		at = PV_MAX(at, s->seq + s->len - 2);
	}
	peer_ack(&p, 2 + 4 * MSS);
	peer_skip(&p);
	peer_write(&p, 4 * 948);
	for (uint32_t i = 0; i < 4; i++)
		peer_expect(&p, ".", 2 + 4 * MSS + i * 948, 1, 948);
	CHECK_EQ(cut(&p), 2);
	peer_close(&p);
}

/* Paced by us: what goes at once is what goes in a millisecond. */
TEST(paced)
{
	static const struct {
		uint64_t rate;
		uint32_t most;
	} cases[] = { { 100000, 1 }, { 8000000, 5 }, { 100000000, 16 } };

	for (uint32_t i = 0; i < pv_array_size(cases); i++) {
		struct peer p;
		uint32_t at = 2, end = 2 + 32 * MSS;
		int64_t start;

		begin(&p, (struct peer_cfg){ 0 });
		p.c->cwnd = 32;
		pv_tcp_options(p.c)->pacing_rate = cases[i].rate;
		pv_tcp_options_changed(p.c, p.w.now);
		start = p.w.now;
		peer_write(&p, 32 * MSS);
		while (at < end) {
			const struct peer_seg *s = peer_next(&p);

			if (!s) {
				peer_ack(&p, at);
				peer_run(&p, PV_NS_PER_MS);
				continue;
			}
			if (s->seq == at)
				at += s->len;
		}
		CHECK(cut(&p) <= 32 / PV_MIN(cases[i].most, 2u) &&
		      (cases[i].most == 1 ? !cut(&p) : cut(&p) >= 32 / cases[i].most / 2));
		/* The rate is of whole frames. */
		CHECK(p.w.now - start >= (int64_t)(30 * MSS * (uint64_t)PV_NS_PER_S / cases[i].rate) - 2 * PV_NS_PER_MS);
		peer_ack(&p, end);
		peer_close(&p);
	}
}

/* The ring has no room for anything for a while. */
TEST(a_full_ring)
{
	static uint8_t out[300000], in[sizeof(out)];
	struct world_cfg cfg = { .tso_max = TSO, .tx_depth = 2, .pool = 1024 };
	struct pv_tcp *pair[2];
	struct world w;
	uint32_t sent = 0, got = 0;

	for (uint32_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7 + (i >> 9));
	tcp_world_open(&w, &cfg);
	tcp_pair(&w, 4, 7000, pair);
	while (got < sizeof(in)) {
		int64_t n;

		pv_net_hold(w.host[0].net, true);
		n = sent < sizeof(out) ? tcp_write(&w, pair[0], out + sent, sizeof(out) - sent) : 0;
		pv_net_hold(w.host[0].net, false);
		sent += n > 0 ? (uint32_t)n : 0;
		world_run(&w, MS);
		n = tcp_read(&w, pair[1], in + got, sizeof(in) - got);
		got += n > 0 ? (uint32_t)n : 0;
		CHECK(w.now < 600 * PV_NS_PER_S);
	}
	CHECK(!memcmp(in, out, sizeof(in)));
	CHECK(tso_packets(&w, 0) > 0);
	pv_tcp_close(pair[0], w.now);
	pv_tcp_close(pair[1], w.now);
	tcp_fade(&w);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
