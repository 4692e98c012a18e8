/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments out: headers, checksums, fragments, MTU rules, full rings, own addresses. */
#include "net_util.h"

static void check_udp(struct bench *b, const char *dst, const char *name)
{
	struct pv_path p = path_to(b, dst);

	/* The first send fills the path, the second takes the short way. */
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(send_text(b, &p), 0);
		check_sent(b, name);
		CHECK(p.l2_ready);
	}
}

TEST(tx_udp_headers_and_checksums)
{
	uint32_t csum[] = { 0, PV_CSUM_UDP, PV_CSUM_UDP | PV_CSUM_IP4 };

	for (uint32_t i = 0; i < 3; i++) {
		struct bench *b = bench_open(&(struct bench_cfg){ .tx_csum = csum[i] });

		bench_neighbours(b);
		check_udp(b, "10.0.0.2", "tx_udp4");
		CHECK_EQ(b->fake[0]->log[b->fake[0]->tail - 1].flags & PV_PKT_TX_L4_CSUM, csum[i] ? PV_PKT_TX_L4_CSUM : 0);
		check_udp(b, "fd00::2", "tx_udp6");
		check_udp(b, "239.1.2.3", "tx_udp4_mcast");
		check_udp(b, "ff15::1:3", "tx_udp6_mcast");
		check_udp(b, "10.0.0.255", "tx_udp4_bcast");
		CHECK_EQ(ctr(b)->tx_packets, 10 + ctr(b)->tx_arp + ctr(b)->tx_nd + ctr(b)->tx_igmp);
		bench_close(b);
	}
}

/* A path keeps the headers of the last segment: what it sends must be what a path made anew sends. */
TEST(tx_kept_headers)
{
	static const char *const to[] = { "10.0.0.2", "fd00::2", "239.1.2.3", "ff15::1:3", "192.0.2.9", "10.0.0.255" };
	uint32_t csum[] = { 0, PV_CSUM_UDP, PV_CSUM_IP4, PV_CSUM_UDP | PV_CSUM_IP4 };
	static uint8_t data[1600];
	struct pv_rng rng;

	pv_rng_seed(&rng, 11);
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i % 251);
	for (uint32_t c = 0; c < 8; c++) {
		struct bench *b = bench_open(&(struct bench_cfg){ .tx_csum = csum[c % 4], .vlan = c < 4 ? 0 : 7 });

		bench_neighbours(b);
		for (uint32_t i = 0; i < 6; i++) {
			struct pv_path kept = path_to(b, to[i]);
			struct pv_tx_opts o = udp_opts;

			for (uint32_t n = 0; n < 60; n++) {
				struct pv_path fresh = path_to(b, to[i]);
				uint32_t len = (uint32_t)pv_rng_below(&rng, 1480);
				struct frame *x, *y;

				if (pv_rng_below(&rng, 4) == 0) {
					o.ttl = (uint8_t)pv_rng_below(&rng, 256);
					o.tos = (uint8_t)pv_rng_below(&rng, 256);
					o.pmtudisc = PV_PMTU_WANT + (uint8_t)pv_rng_below(&rng, 2);
					o.flow_label = (uint32_t)pv_rng_below(&rng, 1 << 20);
				}
				reap_all(b->fake[0]);
				if (pv_net_tx(b->net, &kept, &o, segment(b, data, len, 0), b->now)) {
					CHECK_EQ(pv_net_tx(b->net, &fresh, &o, segment(b, data, len, 0), b->now), -EMSGSIZE);
					continue;
				}
				while (sent_count(b) > 1)
					sent(b);
				x = sent(b);
				CHECK_EQ(pv_net_tx(b->net, &fresh, &o, segment(b, data, len, 0), b->now), 0);
				while (sent_count(b) > 1)
					sent(b);
				y = sent(b);
				if (len > 1400) /* may be fragments, each datagram with an identification of its own */
					continue;
				CHECK_EQ(x->len, y->len);
				CHECK_EQ(x->flags, y->flags);
				CHECK_EQ(memcmp(x->p, y->p, x->len), 0);
			}
		}
		bench_close(b);
	}
}

TEST(tx_vlan)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .vlan = 100 });

	bench_neighbours(b);
	check_udp(b, "10.0.0.2", "tx_udp4_vlan");
	bench_close(b);
}

TEST(tx_kick_rings_once)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p;
	uint32_t before;

	bench_neighbours(b);
	CHECK_EQ(pv_net_kick(b->net), 0);
	before = b->fake[0]->kicks;
	CHECK_EQ(pv_net_kick(b->net), 0);
	CHECK_EQ(b->fake[0]->kicks, before);
	p = path_to(b, "10.0.0.2");
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(pv_net_kick(b->net), 0);
	CHECK_EQ(b->fake[0]->kicks, before + 1);
	/* What has not left is kicked again. */
	CHECK_EQ(send_text(b, &p), 0);
	b->fake[0]->kick_rc = -EAGAIN;
	CHECK_EQ(pv_net_kick(b->net), -EAGAIN);
	b->fake[0]->kick_rc = 0;
	CHECK_EQ(pv_net_kick(b->net), 0);
	CHECK_EQ(b->fake[0]->kicks, before + 3);
	bench_close(b);
}

TEST(tx_full_ring)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p;
	uint64_t full;

	bench_neighbours(b);
	p = path_to(b, "10.0.0.2");
	CHECK_EQ(send_text(b, &p), 0);
	reap_all(b->fake[0]);
	b->fake[0]->depth = 2;
	/* Completed frames are reaped to make room. */
	for (int i = 0; i < 10; i++)
		CHECK_EQ(send_text(b, &p), 0);
	b->fake[0]->stuck = true;
	while (b->fake[0]->held.count < 2)
		CHECK_EQ(send_text(b, &p), 0);
	full = ctr(b)->tx_ring_full;
	CHECK_EQ(send_text(b, &p), -ENOBUFS);
	CHECK_EQ(ctr(b)->tx_ring_full, full + 1);
	b->fake[0]->ring.caps.link_up = false;
	CHECK_EQ(send_text(b, &p), -ENETDOWN);
	b->fake[0]->kick_rc = -ENODEV;
	CHECK_EQ(send_text(b, &p), -ENODEV);
	CHECK_EQ(bench_out(b, 0), 0);
	b->fake[0]->kick_rc = 0;
	bench_close(b);
}

/* A datagram of 3000 bytes: the fragments that scapy makes, from a chain cut at fragment length and from others. */
static void check_fragments(const char *dst, const char *stem, uint32_t piece)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p;
	struct pv_pool_stats before, after;
	struct pv_pkt *pkt;
	uint8_t data[3000];
	char name[32];

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i % 251);
	bench_neighbours(b);
	p = path_to(b, dst);
	if (piece == UINT32_MAX)
		piece = pv_path_frag_len(&p);
	pkt = segment(b, data, sizeof(data), piece);
	pv_pool_get_stats(b->pool[0], &before);
	CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, pkt, b->now), 0);
	pv_pool_get_stats(b->pool[0], &after);
	if (piece == pv_path_frag_len(&p))
		CHECK_EQ(before.free, after.free); /* nothing was copied */
	CHECK_EQ(sent_count(b), 3);
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%s_%d", stem, i);
		check_sent(b, name);
	}
	CHECK_EQ(ctr(b)->tx_fragments, 3);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(tx_fragments_in_place)
{
	check_fragments("10.0.0.2", "tx_frag4", UINT32_MAX);
	check_fragments("fd00::2", "tx_frag6", UINT32_MAX);
}

TEST(tx_fragments_copied)
{
	uint32_t pieces[] = { 0, 9, 100, 1400, 1500 };

	for (uint32_t i = 0; i < pv_array_size(pieces); i++) {
		check_fragments("10.0.0.2", "tx_frag4", pieces[i]);
		check_fragments("fd00::2", "tx_frag6", pieces[i]);
	}
}

TEST(tx_fragments_without_packets)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .pool = 16 });
	static uint8_t data[9000];
	struct pv_path p;
	struct pv_pkt *pkt, *hold[16];
	uint32_t n = 0;

	bench_neighbours(b);
	reap_all(b->fake[0]);
	p = path_to(b, "10.0.0.2");
	pkt = segment(b, data, sizeof(data), 0);
	while (n < 16 && (hold[n] = pv_pkt_get(b->pool[0])))
		n++;
	CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, pkt, b->now), -ENOBUFS);
	CHECK_EQ(ctr(b)->tx_no_buf, 1);
	CHECK_EQ(sent_count(b), 0);
	while (n)
		pv_pkt_put(hold[--n]);
	/* The ring fills up in the middle: what is left goes back to the pool. */
	b->fake[0]->depth = 1;
	b->fake[0]->stuck = true;
	pkt = segment(b, data, 4000, pv_path_frag_len(&p));
	CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, pkt, b->now), -ENOBUFS);
	CHECK_EQ(bench_out(b, 0), 0);
	reap_all(b->fake[0]);
	b->fake[0]->stuck = true;
	pkt = segment(b, data, 4000, 0);
	CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, pkt, b->now), -ENOBUFS);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(tx_mtu_discovery_modes)
{
	static const struct {
		uint8_t mode;
		uint32_t len; /* UDP payload; the MTU is 1500 */
		int rc;
		bool df;
	} cases[] = {
		{ PV_PMTU_DONT, 1472, 0, false },      { PV_PMTU_DONT, 1473, 0, false },
		{ PV_PMTU_WANT, 1472, 0, true },       { PV_PMTU_WANT, 1473, 0, false },
		{ PV_PMTU_DO, 1472, 0, true },         { PV_PMTU_DO, 1473, -EMSGSIZE, false },
		{ PV_PMTU_PROBE, 1472, 0, true },      { PV_PMTU_PROBE, 1473, -EMSGSIZE, false },
		{ PV_PMTU_INTERFACE, 1472, 0, false }, { PV_PMTU_INTERFACE, 1473, -EMSGSIZE, false },
		{ PV_PMTU_OMIT, 1472, 0, false },      { PV_PMTU_OMIT, 1473, 0, false },
	};
	static uint8_t data[2000];
	struct bench *b = bench_open(NULL);
	struct pv_path p;

	bench_neighbours(b);
	p = path_to(b, "10.0.0.2");
	for (uint32_t i = 0; i < pv_array_size(cases); i++) {
		struct pv_tx_opts o = udp_opts;
		struct frame *f;

		o.pmtudisc = cases[i].mode;
		bench_forget(b);
		reap_all(b->fake[0]);
		CHECK_EQ(pv_net_tx(b->net, &p, &o, segment(b, data, cases[i].len, 0), b->now), cases[i].rc);
		if (cases[i].rc)
			continue;
		f = sent(b);
		CHECK_EQ(pv_get16(f->p + 20) & PV_IP4_DF, cases[i].df ? PV_IP4_DF : 0);
		CHECK_EQ(sent_count(b), cases[i].len > 1472 ? 1 : 0);
	}
	CHECK_EQ(ctr(b)->tx_too_big, 3);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(tx_longer_than_ip)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .pool = 128 });
	static uint8_t data[65600];
	struct pv_path p4, p6;

	bench_neighbours(b);
	p4 = path_to(b, "10.0.0.2");
	p6 = path_to(b, "fd00::2");
	CHECK_EQ(pv_net_tx(b->net, &p4, &udp_opts, segment(b, data, 65507, 0), b->now), 0);
	reap_all(b->fake[0]);
	CHECK_EQ(pv_net_tx(b->net, &p4, &udp_opts, segment(b, data, 65508, 0), b->now), -EMSGSIZE);
	CHECK_EQ(pv_net_tx(b->net, &p6, &udp_opts, segment(b, data, 65527, 0), b->now), 0);
	reap_all(b->fake[0]);
	CHECK_EQ(pv_net_tx(b->net, &p6, &udp_opts, segment(b, data, 65528, 0), b->now), -EMSGSIZE);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(tx_chain_goes_as_it_is_when_the_ring_gathers)
{
	/* A jumbo frame in buffers of 2 KiB: one frame of several pieces; a ring that cannot gather gets a copy. */
	struct bench *b = bench_open(&(struct bench_cfg){ .ring_mtu = 9000, .max_sge = 8 });
	struct bench *c = bench_open(&(struct bench_cfg){ .ring_mtu = 9000, .buf = 10240, .pool = 64 });
	static uint8_t data[8000];
	struct pv_path p;

	bench_neighbours(b);
	p = path_to(b, "fd00::2");
	CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, segment(b, data, sizeof(data), 0), b->now), 0);
	CHECK_EQ(sent_count(b), 1);
	CHECK_EQ(sent(b)->pieces, 5);
	bench_neighbours(c);
	p = path_to(c, "10.0.0.2");
	CHECK_EQ(pv_net_tx(c->net, &p, &udp_opts, segment(c, data, sizeof(data), 3000), c->now), 0);
	CHECK_EQ(sent_count(c), 1);
	CHECK_EQ(sent(c)->len, 14 + 20 + 8 + 8000);
	bench_close(b);
	bench_close(c);
}

TEST(tx_stale_path_is_looked_up_again)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	struct pv_route r = { .dst = ip("192.0.2.0"), .prefix_len = 24, .iface = b->iface[0] };
	struct pv_path p, zero = { 0 };

	bench_neighbours(b);
	p = path_to(b, "10.0.0.2");
	CHECK(pv_path_valid(b->net, &p));
	CHECK_EQ(pv_net_route_add(b->net, &r), 0);
	CHECK(!pv_path_valid(b->net, &p));
	CHECK_EQ(send_text(b, &p), 0);
	CHECK(pv_path_valid(b->net, &p));
	check_sent(b, "tx_udp4");
	/* The interface is gone: refused, and the packet is back. */
	p = path_to(b, "10.1.0.9");
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[1]), 0);
	CHECK_EQ(send_text(b, &p), -EADDRNOTAVAIL);
	CHECK_EQ(send_text(b, &zero), -ENETUNREACH);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

/* A packet never changes pools: when the way now leads to another ring it is refused, and the next one is of the right pool. */
TEST(tx_way_moves_to_another_ring)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	struct pv_route r = { .dst = ip("192.0.2.0"), .prefix_len = 24, .iface = b->iface[1], .gateway = ip("10.1.0.9") };
	struct pv_path p;

	bench_neighbours(b);
	p = path_to(b, "192.0.2.9");
	CHECK_EQ(p.iface, b->iface[0]);
	CHECK_EQ(pv_net_route_add(b->net, &r), 0);
	CHECK_EQ(send_text(b, &p), -ENODEV);
	CHECK_EQ(path_to(b, "192.0.2.9").iface, b->iface[1]);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(tx_long_datagram_to_a_group)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p = path_to(b, "239.1.2.3");
	static const uint8_t data[3000];

	CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, segment(b, data, sizeof(data), 0), b->now), 0);
	CHECK_EQ(sent_count(b), 3);
	while (sent_count(b))
		CHECK(pv_mac_is_group(sent(b)->p));
	bench_close(b);
}

/* To ourselves: not on the ring, whole however long, with the interface that has the address. */
TEST(tx_own_address_loops)
{
	static const char *const own[] = { "10.0.0.1", "fd00::1", "fe80::ff:fe00:1" };
	struct bench *b = bench_open(NULL);
	static uint8_t data[40000];
	uint32_t iface = 0;

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i % 251);
	for (uint32_t i = 0; i < 3; i++) {
		struct pv_path p = path_to(b, own[i]);
		struct pv_addr a = ip(own[i]);
		struct pv_rx_info info;
		struct pv_pkt *pkt;
		uint32_t off = 0;

		CHECK(p.is_local);
		CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, segment(b, data, sizeof(data), 0), b->now), 0);
		CHECK_EQ(pv_net_deadline(b->net), 0);
		pkt = pv_net_loop_get(b->net, &iface);
		CHECK(pkt != NULL);
		CHECK_EQ(iface, b->iface[0]);
		CHECK_EQ(pv_net_rx(b->net, iface, &pkt, b->now), PV_RX_UDP);
		pv_net_rx_info(b->net, pkt, &info);
		CHECK(pv_addr_eq(&info.src, &a) && pv_addr_eq(&info.dst, &a));
		CHECK_EQ(pkt->total, sizeof(data) + 8);
		CHECK(pv_net_rx_l4_csum_ok(pkt, PV_PROTO_UDP));
		for (struct pv_pkt *s = pkt; s; s = s->frag) {
			uint32_t skip = s == pkt ? 8 : 0;

			CHECK_EQ(memcmp(s->data + skip, data + off, s->len - skip), 0);
			off += s->len - skip;
		}
		CHECK_EQ(off, sizeof(data));
		pv_pkt_put(pkt);
	}
	CHECK(pv_net_loop_get(b->net, &iface) == NULL);
	CHECK_EQ(sent_count(b), 0);
	bench_close(b);
}

TEST(tx_own_address_of_an_interface_that_goes)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	struct pv_path p = path_to(b, "10.0.0.1");
	struct pv_path_query q = { .dst = ip("10.1.0.1") };
	struct pv_path other;
	struct pv_pkt *pkt;
	uint32_t iface;

	CHECK_EQ(pv_net_path(b->net, &q, b->now, &other), 0);
	CHECK_EQ(send_text(b, &p), 0);
	pkt = pv_pkt_get(b->pool[1]);
	memset(pkt->data, 0, 8);
	pkt->len = pkt->total = 8;
	CHECK_EQ(pv_net_tx(b->net, &other, &udp_opts, pkt, b->now), 0);
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[1]), 0);
	CHECK_EQ(bench_out(b, 1), 0);
	for (int i = 0; i < 2; i++) {
		pkt = pv_net_loop_get(b->net, &iface);
		CHECK_EQ(iface, b->iface[0]);
		pv_pkt_put(pkt);
	}
	CHECK(pv_net_loop_get(b->net, &iface) == NULL);
	bench_close(b);
}

TEST(tx_own_address_is_bounded)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .pool = 2048 });
	struct pv_path p = path_to(b, "10.0.0.1");
	uint32_t n = 0, iface;
	struct pv_pkt *pkt;

	while (n < 3000 && send_text(b, &p) == 0)
		n++;
	CHECK_EQ(n, PV_LOOP_MAX);
	CHECK_EQ(ctr(b)->tx_ring_full, 1);
	pkt = pv_net_loop_get(b->net, &iface);
	pv_pkt_put(pkt);
	CHECK_EQ(send_text(b, &p), 0);
	/* The rest is given back when the interface goes. */
	bench_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
