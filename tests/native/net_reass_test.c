/* SPDX-License-Identifier: BSD-3-Clause */
/* Reassembly: every order, duplicates, overlaps, limits, time; a reference that fills a byte array says what is right. */
#include "net_util.h"

/* `n` payload bytes at `off` of datagram `id`, taken from `data`. */
static enum pv_rx_verdict piece(struct bench *b, bool v4, const uint8_t *data, uint32_t off, uint32_t n, bool more, uint32_t id)
{
	struct pv_path path = { .src = ip(v4 ? "10.0.0.2" : "fd00::2"), .dst = ip(v4 ? "10.0.0.1" : "fd00::1") };
	struct pv_tx_opts o = { .proto = PV_PROTO_UDP, .ttl = 64 };
	uint32_t hlen = v4 ? 20 : 48;
	uint8_t frame[2048];

	CHECK(n <= sizeof(frame) - 14 - hlen);
	pv_wire_eth_emit(frame, b->fake[0]->ring.caps.mac, peer_mac, 0, v4 ? 0x0800 : 0x86dd);
	if (v4) {
		pv_tx_emit4(frame + 14, &path, &o, n + 20, id << 16 | (more ? PV_IP4_MF : 0) | off / 8);
		pv_wire_ip4_csum_fill(frame + 14, 20);
	} else {
		pv_tx_emit6(frame + 14, &path, &o, n + 8, PV_IP6_NEXT_FRAG);
		pv_wire_ip6_frag_emit(frame + 54, PV_PROTO_UDP, off, more, id);
	}
	memcpy(frame + 14 + hlen, data + off, n);
	return rx_raw(b, 0, frame, 14 + hlen + n, 0);
}

static void check_whole(struct bench *b, const uint8_t *data, uint32_t len)
{
	uint32_t off = 0;

	CHECK_EQ(b->pkt->total, len);
	for (struct pv_pkt *p = b->pkt; p; p = p->frag) {
		CHECK(off + p->len <= len);
		CHECK_EQ(memcmp(p->data, data + off, p->len), 0);
		off += p->len;
	}
	CHECK_EQ(off, len);
}

TEST(reass_scapys_fragments_in_every_order)
{
	static const uint8_t order[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	struct bench *b = bench_open(NULL);
	struct pv_rx_info info;
	char name[32];

	for (uint32_t i = 0; i < 6; i++) {
		for (uint32_t k = 0; k < 3; k++) {
			snprintf(name, sizeof(name), "rx_frag6_%u", order[i][k]);
			CHECK_EQ(rx(b, name), k == 2 ? PV_RX_UDP : PV_RX_CONSUMED);
		}
		CHECK_EQ(b->pkt->total, 3008);
		CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
		pv_net_rx_info(b->net, b->pkt, &info);
		CHECK_EQ(pv_get16(b->pkt->buf + b->pkt->l4_off), 7000);
		rx(b, "rx_frag4_3");
		for (uint32_t k = 0; k < 3; k++) {
			snprintf(name, sizeof(name), "rx_frag4_%u", order[i][k]);
			CHECK_EQ(rx(b, name), k == 2 ? PV_RX_UDP : PV_RX_CONSUMED);
		}
		CHECK_EQ(b->pkt->total, 3008);
		CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
		b->pkt->frag->data[5] ^= 1;
		CHECK(!pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	}
	CHECK_EQ(ctr(b)->reass_done, 12);
	CHECK_EQ(ctr(b)->reass_fragments, 42);
	bench_close(b);
}

/* Random cuts, orders and repetitions. */
TEST(reass_random_cuts)
{
	struct bench *b = bench_open(NULL);
	struct pv_rng rng;
	uint8_t data[20000];

	pv_rng_seed(&rng, 7);
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)pv_rng_u32(&rng);
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t len = 16 + (uint32_t)pv_rng_below(&rng, sizeof(data) - 16), n = 0, off = 0;
		bool v4 = round & 1, done = false;
		struct {
			uint32_t off, len;
		} cut[200], t;

		while (off < len) {
			cut[n].off = off;
			cut[n].len = 8 * (1 + (uint32_t)pv_rng_below(&rng, 170));
			cut[n].len = PV_MIN(len - off, cut[n].len);
			if (n == 150)
				len = off + cut[n].len;
			off += cut[n++].len;
		}
		if (n < 2)
			continue;
		for (uint32_t i = n - 1; i > 0; i--) {
			uint32_t k = (uint32_t)pv_rng_below(&rng, i + 1);

			t = cut[i];
			cut[i] = cut[k];
			cut[k] = t;
		}
		for (uint32_t i = 0; i < n; i++) {
			CHECK(!done);
			if (i + 1 < n && pv_rng_below(&rng, 4) == 0)
				CHECK_EQ(piece(b, v4, data, cut[i].off, cut[i].len, cut[i].off + cut[i].len < len, round),
					 PV_RX_CONSUMED);
			done = piece(b, v4, data, cut[i].off, cut[i].len, cut[i].off + cut[i].len < len, round) == PV_RX_UDP;
		}
		CHECK(done);
		check_whole(b, data, len);
	}
	CHECK_EQ(ctr(b)->reass_bad, 0);
	bench_put(b);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(reass_overlap_gives_up_the_datagram)
{
	static const uint8_t data[4096];
	struct bench *b = bench_open(NULL);

	for (int v4 = 0; v4 < 2; v4++) {
		uint32_t id = 100;

		/* Across the end of one that is there, across its start, around it. */
		static const uint32_t bad[3][2] = { { 800, 800 }, { 400, 800 }, { 400, 1600 - 8 } };

		for (uint32_t i = 0; i < 3; i++, id++) {
			CHECK_EQ(piece(b, v4, data, 600, 800, true, id), PV_RX_CONSUMED);
			CHECK_EQ(piece(b, v4, data, bad[i][0], PV_MIN(bad[i][1], 1400), true, id), PV_RX_CONSUMED);
			CHECK_EQ(bench_out(b, 0), 0);
		}
	}
	CHECK_EQ(ctr(b)->reass_bad, 6);
	/* IPv6: what still comes of it is refused (RFC 5722). */
	CHECK_EQ(piece(b, false, data, 0, 600, true, 100), PV_RX_CONSUMED);
	CHECK_EQ(ctr(b)->reass_bad, 7);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_timers(b, 31 * SEC);
	CHECK_EQ(ctr(b)->reass_timeout, 0);
	bench_close(b);
}

TEST(reass_repetitions_are_harmless)
{
	static uint8_t data[4096];
	struct bench *b = bench_open(NULL);

	memset(data, 5, sizeof(data));
	for (int v4 = 0; v4 < 2; v4++) {
		CHECK_EQ(piece(b, v4, data, 0, 800, true, 5), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 0, 800, true, 5), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 800, 800, true, 5), PV_RX_CONSUMED);
		/* Within one that is there, and within two that touch (as Linux). */
		CHECK_EQ(piece(b, v4, data, 160, 80, true, 5), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 400, 800, true, 5), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 1600, 100, false, 5), PV_RX_UDP);
		check_whole(b, data, 1700);
	}
	CHECK_EQ(ctr(b)->reass_bad, 0);
	bench_close(b);
}

TEST(reass_impossible_pieces)
{
	static const uint8_t data[66000];
	struct bench *b = bench_open(NULL);

	bench_neighbours(b);
	for (int v4 = 0; v4 < 2; v4++) {
		uint64_t before = ctr(b)->reass_bad;

		/* Not a multiple of 8 with more to come; past 64 KiB; empty; two different ends; data behind the end. */
		CHECK_EQ(piece(b, v4, data, 0, 801, true, 1), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 65528, 16, false, 2), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 800, 0, true, 3), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 800, 100, false, 4), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 1600, 100, false, 4), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 1600, 80, true, 5), PV_RX_CONSUMED);
		CHECK_EQ(piece(b, v4, data, 800, 100, false, 5), PV_RX_CONSUMED);
		CHECK_EQ(ctr(b)->reass_bad, before + 5);
		CHECK_EQ(bench_out(b, 0), 0);
		/* IPv6 tells the sender which field it was (RFC 8200 4.5). */
		CHECK_EQ(sent_count(b), v4 ? 0 : 2);
		if (!v4) {
			struct frame *f = sent(b);

			CHECK_EQ(f->p[54], PV_ICMP6_PARAM_PROBLEM);
			CHECK_EQ(pv_get32(f->p + 58), 4);
			f = sent(b);
			CHECK_EQ(pv_get32(f->p + 58), 42);
		}
	}
	bench_close(b);
}

TEST(reass_more_pieces_than_anybody_needs)
{
	static const uint8_t data[8192];
	struct bench *b = bench_open(NULL);
	uint32_t i;

	for (i = 0; i < 400 && !ctr(b)->reass_bad; i++)
		CHECK_EQ(piece(b, true, data, i * 16, 8, true, 9), PV_RX_CONSUMED);
	CHECK_EQ(i, 257);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(reass_times_out_and_says_so)
{
	static const uint8_t data[4096];
	struct bench *b = bench_open(NULL);

	bench_neighbours(b);
	CHECK_EQ(piece(b, true, data, 0, 800, true, 1), PV_RX_CONSUMED);
	CHECK_EQ(piece(b, true, data, 800, 800, true, 2), PV_RX_CONSUMED);
	CHECK_EQ(piece(b, false, data, 0, 800, true, 1), PV_RX_CONSUMED);
	bench_timers(b, 30 * SEC - 1);
	CHECK_EQ(sent_count(b), 0);
	CHECK_EQ(bench_out(b, 0), 3);
	bench_timers(b, 1);
	CHECK_EQ(ctr(b)->reass_timeout, 3);
	/* Only where the first piece is there to be quoted. */
	CHECK_EQ(sent_count(b), 2);
	CHECK_EQ(pv_get16(sent(b)->p + 34), PV_ICMP4_TIME_EXCEEDED << 8 | 1);
	CHECK_EQ(pv_get16(sent(b)->p + 54), PV_ICMP6_TIME_EXCEEDED << 8 | 1);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(reass_limits)
{
	static const uint8_t data[4096];
	struct bench *count = bench_open(&(struct bench_cfg){ .net = { .reass_max = 4 } });
	struct bench *bytes = bench_open(&(struct bench_cfg){ .net = { .reass_bytes = 10 * 2048 } });
	struct bench *pool = bench_open(&(struct bench_cfg){ .pool = 16 });

	for (uint32_t id = 0; id < 10; id++)
		CHECK_EQ(piece(count, true, data, 0, 800, true, id), PV_RX_CONSUMED);
	CHECK_EQ(ctr(count)->reass_full, 6);
	CHECK_EQ(bench_out(count, 0), 4);
	/* The oldest went: the newest still comes together. */
	CHECK_EQ(piece(count, true, data, 800, 100, false, 9), PV_RX_UDP);
	CHECK_EQ(piece(count, true, data, 800, 100, false, 0), PV_RX_CONSUMED);
	for (uint32_t id = 0; id < 20; id++)
		CHECK_EQ(piece(bytes, true, data, 0, 800, true, id), PV_RX_CONSUMED);
	CHECK_EQ(ctr(bytes)->reass_full, 10);
	CHECK_EQ(bench_out(bytes, 0), 10);
	/* One datagram larger than all memory gives up itself. */
	for (uint32_t off = 0; off < 12; off++)
		CHECK_EQ(piece(bytes, true, data, off * 80, 80, true, 99), PV_RX_CONSUMED);
	CHECK_EQ(ctr(bytes)->reass_full, 10 + 11);
	/* What waits here is missing in the ring: the last packet of the pool drives the oldest out. */
	reap_all(pool->fake[0]);
	for (uint32_t id = 0; id < 40; id++)
		CHECK_EQ(piece(pool, true, data, 0, 800, true, id), PV_RX_CONSUMED);
	CHECK(ctr(pool)->reass_full > 0);
	bench_close(count);
	bench_close(bytes);
	bench_close(pool);
}

TEST(reass_options_and_headers_in_the_first_piece)
{
	/* Destination options behind the fragment header are walked once the datagram is whole. */
	struct bench *b = bench_open(NULL);
	uint8_t data[64] = { 0 }, frame[256];
	struct pv_path path = { .src = ip("fd00::2"), .dst = ip("fd00::1") };
	struct pv_tx_opts o = { .ttl = 64 };

	data[0] = PV_PROTO_UDP;
	data[2] = 1; /* PadN of 4 */
	data[3] = 4;
	pv_put16(data + 8, 7000);
	pv_put16(data + 10, 9000);
	pv_put16(data + 12, 56);
	for (uint32_t i = 0; i < 2; i++) {
		pv_wire_eth_emit(frame, b->fake[0]->ring.caps.mac, peer_mac, 0, 0x86dd);
		pv_tx_emit6(frame + 14, &path, &o, 40, PV_IP6_NEXT_FRAG);
		pv_wire_ip6_frag_emit(frame + 54, PV_IP6_NEXT_DEST, i * 32, i == 0, 4);
		memcpy(frame + 62, data + i * 32, 32);
		CHECK_EQ(rx_raw(b, 0, frame, 94, 0), i ? PV_RX_UDP : PV_RX_CONSUMED);
	}
	CHECK_EQ(b->pkt->total, 56);
	CHECK_EQ(pv_get16(b->pkt->data), 7000);
	CHECK_EQ(pv_get16(b->pkt->buf + b->pkt->l4_off), 7000);
	/* Headers that go on into the second piece are refused (RFC 7112). */
	data[1] = 4;
	for (uint32_t i = 0; i < 2; i++) {
		pv_wire_eth_emit(frame, b->fake[0]->ring.caps.mac, peer_mac, 0, 0x86dd);
		pv_tx_emit6(frame + 14, &path, &o, 40, PV_IP6_NEXT_FRAG);
		pv_wire_ip6_frag_emit(frame + 54, PV_IP6_NEXT_DEST, i * 32, i == 0, 5);
		memcpy(frame + 62, data + i * 32, 32);
		CHECK_EQ(rx_raw(b, 0, frame, 94, 0), PV_RX_CONSUMED);
	}
	CHECK_EQ(ctr(b)->rx_short + ctr(b)->rx_ip_options, 1);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(reass_interface_goes)
{
	static const uint8_t data[4096];
	struct bench *b = bench_open(NULL);

	CHECK_EQ(piece(b, true, data, 0, 800, true, 1), PV_RX_CONSUMED);
	CHECK_EQ(piece(b, false, data, 0, 800, true, 1), PV_RX_CONSUMED);
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[0]), 0);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
