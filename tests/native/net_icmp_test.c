/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP and ICMPv6: echo, errors in (with Linux's errno of each type and code) and errors out. */
#include "net_util.h"

TEST(icmp_echo_is_answered)
{
	struct bench *b = bench_open(NULL);

	bench_neighbours(b);
	CHECK_EQ(rx(b, "rx_echo4"), PV_RX_CONSUMED);
	check_sent(b, "tx_echo4");
	CHECK_EQ(rx(b, "rx_echo6"), PV_RX_CONSUMED);
	check_sent(b, "tx_echo6");
	CHECK_EQ(rx(b, "rx_echo4_bcast"), PV_RX_CONSUMED);
	CHECK_EQ(sent_count(b), 0);
	/* To all nodes: from our own address. */
	CHECK_EQ(rx(b, "rx_echo6_mcast"), PV_RX_CONSUMED);
	check_sent(b, "tx_echo6_mcast");
	CHECK_EQ(ctr(b)->rx_icmp, 4);
	CHECK_EQ(ctr(b)->tx_icmp, 3);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
}

/* ping -s 65507: comes in fragments, is answered in fragments, byte for byte. */
static void big_echo(bool v4, uint32_t data, uint32_t peer_step)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .pool = 1024 });
	uint32_t hlen = v4 ? 20 : 48, total = data + 8, mine = ((1500 - hlen) & ~7u), pieces = 0;
	uint8_t *msg = calloc(1, total), *back = calloc(1, total), frame[2048];
	struct pv_addr src = ip(v4 ? "10.0.0.2" : "fd00::2"), dst = ip(v4 ? "10.0.0.1" : "fd00::1");
	struct pv_path path = { .src = src, .dst = dst };
	struct pv_tx_opts o = { .proto = v4 ? PV_PROTO_ICMP : PV_PROTO_ICMP6, .ttl = 64 };
	uint64_t sum;

	bench_neighbours(b);
	for (uint32_t i = 0; i < data; i++)
		msg[8 + i] = (uint8_t)(i * 7 + i / 256);
	if (v4)
		pv_wire_icmp4_emit(msg, PV_ICMP4_ECHO, 0, 0x00030004);
	else
		pv_wire_icmp6_emit(msg, PV_ICMP6_ECHO, 0, 0x00030004);
	sum = pv_cksum_add(msg, total, 0);
	if (!v4)
		sum = pv_cksum_merge(sum, pv_cksum_pseudo6(src.b, dst.b, PV_PROTO_ICMP6, total));
	pv_cksum_put(msg + 2, pv_cksum_finish(sum));
	for (uint32_t off = 0; off < total; off += peer_step) {
		uint32_t n = PV_MIN(peer_step, total - off);
		bool more = off + n < total;

		pv_wire_eth_emit(frame, b->fake[0]->ring.caps.mac, peer_mac, 0, v4 ? 0x0800 : 0x86dd);
		if (v4) {
			pv_tx_emit4(frame + 14, &path, &o, n + 20, 77u << 16 | (more ? PV_IP4_MF : 0) | off / 8);
			pv_wire_ip4_csum_fill(frame + 14, 20);
		} else {
			pv_tx_emit6(frame + 14, &path, &o, n + 8, PV_IP6_NEXT_FRAG);
			pv_wire_ip6_frag_emit(frame + 54, PV_PROTO_ICMP6, off, more, 77);
		}
		memcpy(frame + 14 + hlen, msg + off, n);
		CHECK_EQ(rx_raw(b, 0, frame, 14 + hlen + n, 0), PV_RX_CONSUMED);
	}
	CHECK_EQ(ctr(b)->reass_done, 1);
	CHECK_EQ(sent_count(b), (total + mine - 1) / mine);
	while (sent_count(b)) {
		struct frame *f = sent(b);
		uint32_t off = v4 ? (pv_get16(f->p + 20) & PV_IP4_OFFSET) * 8u : pv_get16(f->p + 56) & 0xfff8u;

		CHECK_EQ(off, pieces * mine);
		CHECK(off + f->len - 14 - hlen <= total);
		memcpy(back + off, f->p + 14 + hlen, f->len - 14 - hlen);
		pieces++;
	}
	CHECK_EQ(back[0], v4 ? PV_ICMP4_ECHO_REPLY : PV_ICMP6_ECHO_REPLY);
	CHECK_EQ(memcmp(back + 4, msg + 4, total - 4), 0);
	sum = pv_cksum_add(back, total, 0);
	if (!v4)
		sum = pv_cksum_merge(sum, pv_cksum_pseudo6(src.b, dst.b, PV_PROTO_ICMP6, total));
	CHECK(pv_cksum_ok(sum));
	CHECK_EQ(bench_out(b, 0), 0);
	free(msg);
	free(back);
	bench_close(b);
}

TEST(icmp_echo_in_fragments)
{
	big_echo(true, 65507, 1480);
	big_echo(true, 65507, 552);
	big_echo(true, 5001, 1480);
	big_echo(false, 65507, 1448);
	big_echo(false, 4000, 1232);
}

static const struct pv_net_error *check_error(struct bench *b, const char *name, int err, bool hard)
{
	const struct pv_net_error *e;
	struct pv_addr far4 = ip("192.0.2.9"), far6 = ip("2001:db8::9"), us4 = ip("10.0.0.1"), us6 = ip("fd00::1");

	if (rx(b, name) != PV_RX_ERROR) {
		fprintf(stderr, "%s: %s gave no error\n", test_current, name);
		exit(1);
	}
	e = pv_net_rx_error(b->net);
	if (e->err != err || e->hard != hard) {
		fprintf(stderr, "%s: %s: errno %d hard %d\n", test_current, name, e->err, e->hard);
		exit(1);
	}
	CHECK(pv_addr_eq(&e->remote, &far4) || pv_addr_eq(&e->remote, &far6));
	CHECK(pv_addr_eq(&e->local, &us4) || pv_addr_eq(&e->local, &us6));
	CHECK_EQ(e->local_port, 9000);
	CHECK_EQ(e->remote_port, 7000);
	CHECK_EQ(e->proto, PV_PROTO_UDP);
	bench_put(b);
	return e;
}

TEST(icmp_errors_have_linux_errno)
{
	/* icmp_err_convert and icmpv6_err_convert of Linux, by code. */
	static const struct {
		int code, err;
		bool hard;
	} v4[] = {
		{ 0, ENETUNREACH, false },   { 1, EHOSTUNREACH, false }, { 2, ENOPROTOOPT, true },    { 3, ECONNREFUSED, true },
		{ 5, EOPNOTSUPP, false },    { 6, ENETUNREACH, true },	 { 7, EHOSTDOWN, true },      { 8, ENONET, true },
		{ 9, ENETUNREACH, true },    { 10, EHOSTUNREACH, true }, { 11, ENETUNREACH, false },  { 12, EHOSTUNREACH, false },
		{ 13, EHOSTUNREACH, true },  { 14, EHOSTUNREACH, true }, { 15, EHOSTUNREACH, true },
	}, v6[] = {
		{ 0, ENETUNREACH, false }, { 1, EACCES, true }, { 2, EHOSTUNREACH, false }, { 3, EHOSTUNREACH, false },
		{ 4, ECONNREFUSED, true }, { 5, EACCES, true }, { 6, EACCES, true },	    { 77, EPROTO, true },
	};
	struct pv_addr hop4 = ip("198.51.100.1"), hop6 = ip("2001:db8::1");
	struct bench *b = bench_open(NULL);
	char name[32];

	for (uint32_t i = 0; i < pv_array_size(v4); i++) {
		snprintf(name, sizeof(name), "rx_unreach4_%d", v4[i].code);
		CHECK(pv_addr_eq(&check_error(b, name, v4[i].err, v4[i].hard)->offender, &hop4));
		CHECK_EQ(pv_net_rx_error(b->net)->code, v4[i].code);
	}
	for (uint32_t i = 0; i < pv_array_size(v6); i++) {
		snprintf(name, sizeof(name), "rx_unreach6_%d", v6[i].code);
		CHECK(pv_addr_eq(&check_error(b, name, v6[i].err, v6[i].hard)->offender, &hop6));
	}
	check_error(b, "rx_ttl4", EHOSTUNREACH, false);
	check_error(b, "rx_ttl6", EHOSTUNREACH, false);
	check_error(b, "rx_param4", EPROTO, true);
	check_error(b, "rx_param6", EPROTO, true);
	CHECK_EQ(ctr(b)->rx_icmp_error, pv_array_size(v4) + pv_array_size(v6) + 4);
	/* Handled, but nothing to say to anybody: no such code, and source quench (RFC 6633). */
	CHECK_EQ(rx(b, "rx_unreach4_99"), PV_RX_CONSUMED);
	CHECK_EQ(rx(b, "rx_quench4"), PV_RX_CONSUMED);
	CHECK_EQ(ctr(b)->rx_icmp_bad, 0);
	bench_close(b);
}

/* An error that the transport had a flow for. */
static void check_pmtu(struct bench *b, const char *name, uint32_t want)
{
	CHECK_EQ(pv_net_error_pmtu(b->net, check_error(b, name, EMSGSIZE, true), b->now), want);
}

TEST(icmp_too_big_moves_the_path_mtu)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p4, p6, other;

	bench_neighbours(b);
	p4 = path_to(b, "192.0.2.9");
	p6 = path_to(b, "2001:db8::9");
	CHECK_EQ(p4.mtu, 1500);
	/* What claims less than it quotes is not believed. */
	CHECK_EQ(rx(b, "rx_frag_needed_fits"), PV_RX_CONSUMED);
	CHECK_EQ(rx(b, "rx_too_big_fits"), PV_RX_CONSUMED);
	CHECK(pv_path_valid(b->net, &p4));
	/* Nor what the transport knows nothing of. */
	CHECK_EQ(check_error(b, "rx_frag_needed", EMSGSIZE, true)->mtu, 1300);
	CHECK_EQ(check_error(b, "rx_too_big", EMSGSIZE, true)->mtu, 1300);
	CHECK(pv_path_valid(b->net, &p4));
	check_pmtu(b, "rx_frag_needed", 1300);
	check_pmtu(b, "rx_too_big", 1300);
	CHECK(!pv_path_valid(b->net, &p4));
	p4 = path_to(b, "192.0.2.9");
	p6 = path_to(b, "2001:db8::9");
	other = path_to(b, "192.0.2.10");
	CHECK_EQ(p4.mtu, 1300);
	CHECK_EQ(p6.mtu, 1300);
	CHECK_EQ(p4.iface_mtu, 1500);
	CHECK_EQ(other.mtu, 1500);
	/* Below what is plausible: the least value, and IPv4 without DF from then on, as Linux. */
	check_pmtu(b, "rx_frag_needed_small", 552);
	check_pmtu(b, "rx_too_big_small", 1280);
	p4 = path_to(b, "192.0.2.9");
	p6 = path_to(b, "2001:db8::9");
	CHECK_EQ(p4.mtu, 552);
	CHECK(p4.mtu_locked);
	CHECK_EQ(p6.mtu, 1280);
	CHECK_EQ(send_text(b, &p4), 0);
	CHECK_EQ(pv_get16(sent(b)->p + 20), 0);
	/* Never up again by a message, but by time. */
	check_pmtu(b, "rx_frag_needed", 552);
	bench_timers(b, 599 * SEC);
	CHECK(pv_path_valid(b->net, &p4));
	bench_timers(b, 2 * SEC);
	CHECK(!pv_path_valid(b->net, &p4));
	CHECK_EQ(path_to(b, "192.0.2.9").mtu, 1500);
	CHECK_EQ(path_to(b, "2001:db8::9").mtu, 1500);
	bench_close(b);
}

TEST(icmp_unreachable_is_sent)
{
	struct bench *b = bench_open(NULL);
	struct pv_addr g = ip("239.1.2.3"), g6 = ip("ff15::1:3");
	static const char *const silent[] = { "rx_udp4_bcast", "rx_udp4_subnet", "rx_udp4_mcast", "rx_udp6_mcast" };

	bench_neighbours(b);
	CHECK_EQ(rx(b, "rx_udp4"), PV_RX_UDP);
	pv_net_rx_unreachable(b->net, b->pkt, b->now);
	b->pkt = NULL;
	check_sent(b, "tx_port4");
	CHECK_EQ(rx(b, "rx_udp6"), PV_RX_UDP);
	/* The transport may have moved on in the packet. */
	b->pkt->data += 8;
	b->pkt->len -= 8;
	pv_net_rx_unreachable(b->net, b->pkt, b->now);
	b->pkt = NULL;
	check_sent(b, "tx_port6");
	CHECK_EQ(rx(b, "rx_proto4"), PV_RX_CONSUMED);
	check_sent(b, "tx_proto4");
	CHECK_EQ(rx(b, "rx_proto6"), PV_RX_CONSUMED);
	check_sent(b, "tx_proto6");
	CHECK_EQ(rx(b, "rx_proto6_ext"), PV_RX_CONSUMED);
	check_sent(b, "tx_proto6_ext");
	CHECK_EQ(rx(b, "rx_badopt6"), PV_RX_CONSUMED);
	check_sent(b, "tx_badopt6");
	CHECK_EQ(ctr(b)->tx_icmp, 6);
	/* Never about what went to many. */
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, NULL, b->now), 0);
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g6, NULL, b->now), 0);
	bench_forget(b);
	for (uint32_t i = 0; i < pv_array_size(silent); i++) {
		CHECK_EQ(rx(b, silent[i]), PV_RX_UDP);
		pv_net_rx_unreachable(b->net, b->pkt, b->now);
		b->pkt = NULL;
	}
	CHECK_EQ(sent_count(b), 0);
	CHECK_EQ(ctr(b)->tx_icmp, 6);
	bench_close(b);
}

TEST(icmp_not_to_a_unicast_packet_in_a_broadcast_frame)
{
	struct bench *b = bench_open(NULL);
	struct frame f = vec_frame("rx_udp4");

	bench_neighbours(b);
	memset(f.p, 0xff, 6);
	CHECK_EQ(rx_raw(b, 0, f.p, f.len, 0), PV_RX_UDP);
	pv_net_rx_unreachable(b->net, b->pkt, b->now);
	b->pkt = NULL;
	CHECK_EQ(sent_count(b), 0);
	free(f.p);
	bench_close(b);
}

/* Nobody at our own port: the error comes back the way the datagram went, between two interfaces too. */
TEST(icmp_unreachable_to_ourselves)
{
	static const char *const own[] = { "10.0.0.1", "10.1.0.1", "fd00::1", "fd01::1" };
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });

	for (uint32_t i = 0; i < 4; i++) {
		struct pv_path_query q = { .dst = ip(own[i]), .src = ip(i < 2 ? "10.0.0.1" : "fd00::1") };
		struct pv_path p;
		struct pv_pkt *pkt;
		uint32_t iface;

		CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
		pkt = segment(b, "x", 1, 0);
		if (p.ring != &b->fake[0]->ring) {
			pv_pkt_put(pkt);
			pkt = pv_pkt_get(b->pool[1]);
			memset(pkt->data, 0, 16);
			pv_put16(pkt->data, 9000);
			pv_put16(pkt->data + 2, 7000);
			pkt->len = pkt->total = 16;
		}
		CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, pkt, b->now), 0);
		pkt = pv_net_loop_get(b->net, &iface);
		CHECK_EQ(pv_net_rx(b->net, iface, &pkt, b->now), PV_RX_UDP);
		pv_net_rx_unreachable(b->net, pkt, b->now);
		pkt = pv_net_loop_get(b->net, &iface);
		CHECK(pkt != NULL);
		CHECK_EQ(pv_net_rx(b->net, iface, &pkt, b->now), PV_RX_ERROR);
		CHECK_EQ(pv_net_rx_error(b->net)->err, ECONNREFUSED);
		CHECK_EQ(pv_net_rx_error(b->net)->local_port, 9000);
		pv_pkt_put(pkt);
	}
	bench_close(b);
}

TEST(icmp_of_other_protocols_and_kinds)
{
	static const char *const quiet[] = { "rx_unreach4_icmp", "rx_unreach6_icmp", "rx_echo_reply4",
					     "rx_echo_reply6",   "rx_redirect4",     "rx_type6_200",
					     "rx_udp6_none",     "rx_icmp4_short",   "rx_icmp6_short" };
	struct bench *b = bench_open(NULL);

	bench_neighbours(b);
	for (uint32_t i = 0; i < pv_array_size(quiet); i++)
		CHECK_EQ(rx(b, quiet[i]), PV_RX_CONSUMED);
	CHECK_EQ(sent_count(b), 0);
	CHECK_EQ(ctr(b)->rx_icmp_bad, 2);
	CHECK_EQ(ctr(b)->rx_icmp, 6);
	CHECK_EQ(ctr(b)->rx_icmp_error, 0);
	/* An error of a type that we do not know goes up (RFC 4443 2.4 (a)). */
	CHECK_EQ(rx(b, "rx_type6_100"), PV_RX_ERROR);
	CHECK_EQ(pv_net_rx_error(b->net)->err, EPROTO);
	CHECK(!pv_net_rx_error(b->net)->hard);
	bench_close(b);
}

TEST(icmp_errors_are_rate_limited)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .net = { .icmp_rate = 100 } });
	uint64_t first;

	bench_neighbours(b);
	for (int i = 0; i < 200; i++)
		rx(b, "rx_proto4");
	CHECK_EQ(ctr(b)->tx_icmp, 50);
	CHECK_EQ(ctr(b)->tx_icmp_limited, 150);
	first = ctr(b)->tx_icmp;
	/* A hundred a second: ten in a tenth of one. */
	b->now += SEC / 10;
	for (int i = 0; i < 50; i++)
		rx(b, "rx_proto4");
	CHECK_EQ(ctr(b)->tx_icmp, first + 10);
	bench_close(b);
}

TEST(icmp_long_packets_are_quoted_in_part)
{
	struct bench *b = bench_open(NULL);
	struct frame f = vec_frame("rx_udp4"), g = vec_frame("rx_udp6");
	uint8_t big[1514] = { 0 };

	bench_neighbours(b);
	memcpy(big, f.p, f.len);
	pv_put16(big + 16, 1500);
	pv_wire_ip4_csum_fill(big + 14, 20);
	CHECK_EQ(rx_raw(b, 0, big, 1514, 0), PV_RX_UDP);
	pv_net_rx_unreachable(b->net, b->pkt, b->now);
	b->pkt = NULL;
	CHECK_EQ(sent(b)->len, 14 + 576);
	memcpy(big, g.p, g.len);
	pv_put16(big + 18, 1460);
	CHECK_EQ(rx_raw(b, 0, big, 1514, 0), PV_RX_UDP);
	pv_net_rx_unreachable(b->net, b->pkt, b->now);
	b->pkt = NULL;
	CHECK_EQ(sent(b)->len, 14 + 1280);
	free(f.p);
	free(g.p);
	bench_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
