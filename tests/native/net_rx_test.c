/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in: what is delivered with which offsets, and what is dropped under which counter. */
#include "net_util.h"

static void check_delivered(struct bench *b, const char *src, const char *dst)
{
	struct pv_addr s = ip(src), d = ip(dst);
	struct pv_rx_info info;

	pv_net_rx_info(b->net, b->pkt, &info);
	CHECK(pv_addr_eq(&info.src, &s));
	CHECK(pv_addr_eq(&info.dst, &d));
	CHECK_EQ(info.iface, b->iface[0]);
	CHECK_EQ(b->pkt->len, 30);
	CHECK_EQ(b->pkt->total, 30);
	CHECK(b->pkt->data == b->pkt->buf + b->pkt->l4_off);
	CHECK_EQ(pv_get16(b->pkt->data), 7000);
	CHECK_EQ(memcmp(b->pkt->data + 8, datagram, 22), 0);
}

TEST(rx_delivers_udp4)
{
	/* The header checksum by computing it and by the ring's word: the result is the same. */
	uint32_t flags[] = { 0, PV_PKT_L3_OK, PV_PKT_L3_OK | PV_PKT_L4_OK };

	for (uint32_t i = 0; i < 3; i++) {
		struct bench *b = bench_open(NULL);
		struct pv_rx_info info;

		CHECK_EQ(rx_flags(b, "rx_udp4", flags[i]), PV_RX_UDP);
		check_delivered(b, "10.0.0.2", "10.0.0.1");
		pv_net_rx_info(b->net, b->pkt, &info);
		CHECK_EQ(info.ttl, 9);
		CHECK_EQ(info.tos, 0x2e);
		CHECK(!info.dst_is_mcast && !info.dst_is_bcast);
		CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
		CHECK_EQ(ctr(b)->rx_delivered, 1);
		bench_close(b);
	}
}

TEST(rx_delivers_udp6)
{
	struct bench *b = bench_open(NULL);
	struct pv_rx_info info;

	CHECK_EQ(rx(b, "rx_udp6"), PV_RX_UDP);
	check_delivered(b, "fd00::2", "fd00::1");
	pv_net_rx_info(b->net, b->pkt, &info);
	CHECK_EQ(info.ttl, 9);
	CHECK_EQ(info.tos, 0x2e);
	CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	CHECK_EQ(rx(b, "rx_udp6_ext"), PV_RX_UDP);
	check_delivered(b, "fd00::2", "fd00::1");
	CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	CHECK_EQ(rx(b, "rx_udp6_atomic"), PV_RX_UDP);
	check_delivered(b, "fd00::2", "fd00::1");
	CHECK_EQ(rx(b, "rx_tcp6"), PV_RX_TCP);
	CHECK_EQ(b->pkt->len, 20);
	bench_close(b);
}

TEST(rx_delivers_options_tcp_groups_broadcasts)
{
	struct bench *b = bench_open(NULL);
	struct pv_addr g4 = ip("239.1.2.3"), g6 = ip("ff15::1:3");
	struct pv_rx_info info;

	CHECK_EQ(rx(b, "rx_udp4_opts"), PV_RX_UDP);
	check_delivered(b, "10.0.0.2", "10.0.0.1");
	CHECK_EQ(rx(b, "rx_tcp4"), PV_RX_TCP);
	CHECK_EQ(rx(b, "rx_udp4_bcast"), PV_RX_UDP);
	check_delivered(b, "10.0.0.2", "255.255.255.255");
	pv_net_rx_info(b->net, b->pkt, &info);
	CHECK(info.dst_is_bcast);
	CHECK_EQ(rx(b, "rx_udp4_from_any"), PV_RX_UDP); /* how DHCP starts */
	CHECK_EQ(rx(b, "rx_udp4_subnet"), PV_RX_UDP);
	pv_net_rx_info(b->net, b->pkt, &info);
	CHECK(info.dst_is_bcast && !info.dst_is_mcast);
	CHECK_EQ(rx(b, "rx_udp4_mcast"), PV_RX_CONSUMED);
	CHECK_EQ(rx(b, "rx_udp6_mcast"), PV_RX_CONSUMED);
	CHECK_EQ(ctr(b)->rx_not_ours, 2);
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g4, NULL, b->now), 0);
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g6, NULL, b->now), 0);
	CHECK_EQ(rx(b, "rx_udp4_mcast"), PV_RX_UDP);
	pv_net_rx_info(b->net, b->pkt, &info);
	CHECK(info.dst_is_mcast);
	CHECK_EQ(rx(b, "rx_udp6_mcast"), PV_RX_UDP);
	pv_net_rx_info(b->net, b->pkt, &info);
	CHECK(info.dst_is_mcast);
	bench_close(b);
}

TEST(rx_padding_is_cut)
{
	struct bench *b = bench_open(NULL);
	struct frame f = vec_frame("rx_udp4");
	uint8_t padded[128] = { 0 };

	memcpy(padded, f.p, f.len);
	CHECK_EQ(rx_raw(b, 0, padded, 100, 0), PV_RX_UDP);
	check_delivered(b, "10.0.0.2", "10.0.0.1");
	CHECK_EQ(rx_raw(b, 0, padded, 100, PV_PKT_L3_OK), PV_RX_UDP);
	check_delivered(b, "10.0.0.2", "10.0.0.1");
	free(f.p);
	bench_close(b);
}

TEST(rx_l4_checksum_by_computing_and_by_verdict)
{
	struct bench *b = bench_open(NULL);

	CHECK_EQ(rx(b, "rx_udp4_badcsum"), PV_RX_UDP);
	CHECK(!pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	CHECK_EQ(rx_flags(b, "rx_udp4_badcsum", PV_PKT_L4_OK), PV_RX_UDP);
	CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	CHECK_EQ(rx_flags(b, "rx_udp4_badcsum", PV_PKT_L4_PARTIAL), PV_RX_UDP);
	CHECK(!pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	CHECK_EQ(rx_flags(b, "rx_udp4", PV_PKT_L4_BAD), PV_RX_UDP);
	CHECK(!pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	CHECK_EQ(rx(b, "rx_udp4_nocsum"), PV_RX_UDP);
	CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	CHECK_EQ(rx(b, "rx_udp6_nocsum"), PV_RX_UDP);
	CHECK(!pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
	bench_close(b);
}

/* A virtual link hands over what the sender's kernel left to the hardware: the pseudo-header's sum, not complemented (Linux's
 * CHECKSUM_PARTIAL). Nothing but that, or a whole checksum that is right, is taken. */
TEST(rx_partial_checksum_is_exact)
{
	static const char *const names[] = { "rx_udp4", "rx_udp6" };
	struct bench *b = bench_open(NULL);

	for (size_t i = 0; i < pv_array_size(names); i++) {
		struct frame f = vec_frame(names[i]);
		uint8_t *ip_at = f.p + 14, *udp = ip_at + (i ? 40 : 20);
		uint32_t len = pv_get16(udp + 4);
		struct pv_addr src = i ? pv_addr_from6(ip_at + 8) : pv_addr_from4(ip_at + 12);
		struct pv_addr dst = i ? pv_addr_from6(ip_at + 24) : pv_addr_from4(ip_at + 16);
		uint16_t half = pv_cksum_fold(pv_cksum_pseudo(&src, &dst, PV_PROTO_UDP, len)), whole = pv_cksum_get(udp + 6);

		CHECK(half != whole);
		CHECK_EQ(rx_raw(b, 0, f.p, f.len, PV_PKT_L4_PARTIAL), PV_RX_UDP);
		CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
		pv_cksum_put(udp + 6, half);
		CHECK_EQ(rx_raw(b, 0, f.p, f.len, PV_PKT_L4_PARTIAL), PV_RX_UDP);
		CHECK(pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
		CHECK_EQ(rx_raw(b, 0, f.p, f.len, 0), PV_RX_UDP);
		CHECK(!pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
		pv_cksum_put(udp + 6, (uint16_t)~half);
		CHECK_EQ(rx_raw(b, 0, f.p, f.len, PV_PKT_L4_PARTIAL), PV_RX_UDP);
		CHECK(!pv_net_rx_l4_csum_ok(b->pkt, PV_PROTO_UDP));
		free(f.p);
	}
	bench_close(b);
}

TEST(rx_vlan)
{
	struct bench *plain = bench_open(NULL), *tagged = bench_open(&(struct bench_cfg){ .vlan = 100 });
	struct frame f = vec_frame("rx_udp4");
	struct pv_pkt *pkt;

	CHECK_EQ(rx(plain, "rx_udp4_vlan"), PV_RX_CONSUMED);
	CHECK_EQ(rx(plain, "rx_udp4_qinq"), PV_RX_CONSUMED);
	CHECK_EQ(ctr(plain)->rx_vlan, 2);
	CHECK_EQ(rx(plain, "rx_udp4_prio"), PV_RX_UDP);
	check_delivered(plain, "10.0.0.2", "10.0.0.1");
	CHECK_EQ(rx(tagged, "rx_udp4_vlan"), PV_RX_UDP);
	check_delivered(tagged, "10.0.0.2", "10.0.0.1");
	CHECK_EQ(rx(tagged, "rx_udp4"), PV_RX_CONSUMED);
	CHECK_EQ(ctr(tagged)->rx_vlan, 1);
	/* A tag that the ring took off. */
	bench_put(tagged);
	for (uint16_t vid = 100; vid <= 101; vid++) {
		pkt = pv_pkt_get(tagged->pool[0]);
		memcpy(pkt->data, f.p, f.len);
		pkt->len = pkt->total = f.len;
		pkt->flags = PV_PKT_VLAN | PV_PKT_L3_OK;
		pkt->vlan_tci = (uint16_t)(0xe000 | vid);
		CHECK_EQ(pv_net_rx(tagged->net, tagged->iface[0], &pkt, tagged->now), vid == 100 ? PV_RX_UDP : PV_RX_CONSUMED);
		if (vid == 100)
			pv_pkt_put(pkt);
	}
	CHECK_EQ(ctr(tagged)->rx_vlan, 2);
	free(f.p);
	bench_close(plain);
	bench_close(tagged);
}

TEST(rx_drops_have_their_counter)
{
	static const struct {
		const char *name;
		size_t counter;
		uint32_t sent; /* ICMP errors that it costs us */
	} cases[] = {
#define AT(c) offsetof(struct pv_net_counters, c)
		{ "rx_not_ours_mac", AT(rx_not_ours), 0 },
		{ "rx_not_ours_ip", AT(rx_not_ours), 0 },
		{ "rx_not_ours_ip6", AT(rx_not_ours), 0 },
		{ "rx_ethertype", AT(rx_ethertype), 0 },
		{ "rx_version4", AT(rx_ip_header), 0 },
		{ "rx_ihl4", AT(rx_ip_header), 0 },
		{ "rx_csum4", AT(rx_ip_csum), 0 },
		{ "rx_src_loop4", AT(rx_ip_src), 0 },
		{ "rx_src_mcast4", AT(rx_ip_src), 0 },
		{ "rx_src_self4", AT(rx_ip_src), 0 },
		{ "rx_src_bcast4", AT(rx_ip_src), 0 },
		{ "rx_src_mcast6", AT(rx_ip_src), 0 },
		{ "rx_src_self6", AT(rx_ip_src), 0 },
		{ "rx_src_loop6", AT(rx_ip_src), 0 },
		{ "rx_tcp4_from_any", AT(rx_ip_src), 0 },
		{ "rx_dst_any4", AT(rx_not_ours), 0 },
		{ "rx_dst_any6", AT(rx_not_ours), 0 },
		{ "rx_version6", AT(rx_ip_header), 0 },
		{ "rx_udp6_none", AT(rx_proto), 0 },
		{ "rx_lsrr", AT(rx_ip_options), 0 },
		{ "rx_badopt4", AT(rx_ip_options), 1 },
		{ "rx_badopt6", AT(rx_ip_options), 1 },
		{ "rx_badopt6_mcast", AT(rx_ip_options), 0 },
		{ "rx_proto4", AT(rx_proto), 1 },
		{ "rx_proto6", AT(rx_proto), 1 },
		{ "rx_proto6_ext", AT(rx_proto), 1 },
		{ "rx_echo4_badcsum", AT(rx_icmp_bad), 0 },
		{ "rx_echo6_badcsum", AT(rx_icmp_bad), 0 },
		{ "rx_error4_short", AT(rx_icmp_bad), 0 },
		{ "rx_error4_foreign", AT(rx_icmp_bad), 0 },
		{ "rx_error6_foreign", AT(rx_icmp_bad), 0 },
		{ "rx_arp_bad_op", AT(rx_arp_bad), 0 },
		{ "rx_arp_bad_src", AT(rx_arp_bad), 0 },
		{ "rx_ns_hops", AT(rx_nd_bad), 0 },
		{ "rx_ns_dad_lla", AT(rx_nd_bad), 0 },
		{ "rx_na_mcast_solicited", AT(rx_nd_bad), 0 },
		{ "rx_ra_global", AT(rx_nd_bad), 0 },
		{ "rx_igmp_badcsum", AT(rx_icmp_bad), 0 },
		{ "rx_mld_query_no_alert", AT(rx_icmp_bad), 0 },
	};

	for (uint32_t i = 0; i < pv_array_size(cases); i++) {
		struct bench *b = bench_open(NULL);

		bench_neighbours(b);
		if (rx(b, cases[i].name) != PV_RX_CONSUMED || *(const uint64_t *)((const char *)ctr(b) + cases[i].counter) != 1 ||
		    sent_count(b) != cases[i].sent) {
			fprintf(stderr, "%s: %s is not dropped as it should be (%u sent)\n", test_current, cases[i].name,
				sent_count(b));
			exit(1);
		}
		CHECK_EQ(bench_out(b, 0), 0);
		bench_close(b);
	}
}

/* Every frame of the file cut at every length: nothing may crash or leak, and no more may be delivered than the frame has. */
TEST(rx_truncated_at_every_byte)
{
	static const char *const names[] = { "rx_udp4",       "rx_udp4_opts",  "rx_udp4_vlan", "rx_udp6",    "rx_udp6_ext",
					     "rx_echo4",      "rx_echo6",      "rx_ns",        "rx_na",      "rx_arp_request",
					     "rx_unreach4_3", "rx_unreach6_4", "rx_frag4_0",   "rx_frag6_1", "rx_igmp_query3",
					     "rx_mld_query2", "rx_tcp4",       "rx_proto6_ext" };
	struct bench *b = bench_open(&(struct bench_cfg){ .net = { .reass_timeout_ns = SEC } });
	uint64_t shorts;

	bench_neighbours(b);
	for (uint32_t i = 0; i < pv_array_size(names); i++) {
		struct frame f = vec_frame(names[i]);

		for (uint32_t len = 0; len < f.len; len++) {
			rx_raw(b, 0, f.p, len, 0);
			reap_all(b->fake[0]);
			if (b->fake[0]->tail > LOG_MAX / 2)
				break;
		}
		free(f.p);
	}
	shorts = ctr(b)->rx_short;
	CHECK(shorts > 500);
	bench_put(b);
	bench_timers(b, 60 * SEC);
	reap_all(b->fake[0]);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

TEST(rx_bad_l3_verdict)
{
	struct bench *b = bench_open(NULL);

	CHECK_EQ(rx_flags(b, "rx_udp4", PV_PKT_L3_BAD), PV_RX_CONSUMED);
	CHECK_EQ(ctr(b)->rx_ip_csum, 1);
	bench_close(b);
}

TEST(rx_weak_host)
{
	/* Our address of another interface is ours on this one too, as in Linux; its link-local address is not. */
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	struct frame f = vec_frame("rx_udp4"), g = vec_frame("rx_udp6");
	struct pv_addr other = ip("10.1.0.1"), ll = ip("fe80::ff:fe00:101");

	memcpy(f.p + 30, &other.w[3], 4);
	pv_wire_ip4_csum_fill(f.p + 14, 20);
	CHECK_EQ(rx_raw(b, 0, f.p, f.len, 0), PV_RX_UDP);
	CHECK_EQ(pv_net_addr_owner(b->net, &ll), b->iface[1]);
	memcpy(g.p + 38, ll.b, 16);
	CHECK_EQ(rx_raw(b, 0, g.p, g.len, 0), PV_RX_CONSUMED);
	CHECK_EQ(ctr(b)->rx_not_ours, 1);
	free(f.p);
	free(g.p);
	bench_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
