/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/arp.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

#include "vectors.h"

static const uint8_t mac_a[6] = { 2, 0, 0, 0, 0, 0xa }, mac_b[6] = { 2, 0, 0, 0, 0, 0xb };
static const uint8_t a4[4] = { 10, 99, 0, 1 }, b4[4] = { 10, 99, 0, 2 };

TEST(ethernet)
{
	static const char *const names[] = { "eth_udp4", "eth_vlan", "eth_qinq" };
	struct pv_wire_eth e;

	for (int i = 0; i < 3; i++) {
		struct vec v = vec_get(names[i], 0);
		int hlen = pv_wire_eth_parse(v.p, v.len, &e);
		uint8_t out[18];

		CHECK_EQ(hlen, 14 + 4 * i);
		CHECK_EQ(e.type, PV_ETHERTYPE_IP4);
		CHECK_EQ(e.tags, i);
		CHECK(pv_mac_eq(e.dst, mac_b) && pv_mac_eq(e.src, mac_a));
		if (i == 1)
			CHECK_EQ(e.tci[0], 5 << 13 | 100);
		if (i == 2)
			CHECK(e.tci[0] == 200 && e.tci[1] == 100);
		if (i < 2) {
			CHECK_EQ(pv_wire_eth_emit(out, mac_b, mac_a, i ? e.tci[0] : 0, PV_ETHERTYPE_IP4), hlen);
			CHECK(!memcmp(out, v.p, (size_t)hlen));
		}
		for (uint32_t n = 0; n < (uint32_t)hlen; n++) {
			struct vec cut = vec_cut(v, 0, n);

			CHECK_EQ(pv_wire_eth_parse(cut.p, n, &e), -EBADMSG);
			vec_free(&cut);
		}
		vec_free(&v);
	}
}

TEST(three_tags_are_too_many)
{
	uint8_t f[64] = { 0 };

	for (int i = 0; i < 3; i++)
		pv_put16(f + 12 + 4 * i, PV_ETHERTYPE_VLAN);
	CHECK_EQ(pv_wire_eth_parse(f, sizeof(f), &(struct pv_wire_eth){ 0 }), -EBADMSG);
}

TEST(group_macs)
{
	struct pv_addr g4 = pv_addr_from4("\xef\x81\x02\x03");
	struct pv_addr g6 = { .b = { 0xff, 2, [12] = 0xff, 1, 2, 3 } };
	uint8_t mac[6];

	pv_mac_of_group(mac, &g4);
	CHECK(pv_mac_eq(mac, (const uint8_t *)"\x01\x00\x5e\x01\x02\x03") && pv_mac_is_group(mac) && !pv_mac_is_broadcast(mac));
	pv_mac_of_group(mac, &g6);
	CHECK(pv_mac_eq(mac, (const uint8_t *)"\x33\x33\xff\x01\x02\x03"));
	memset(mac, 0xff, 6);
	CHECK(pv_mac_is_broadcast(mac) && pv_mac_is_group(mac));
}

TEST(arp)
{
	struct vec v = vec_get("arp_request", 0), w = vec_get("arp_reply", 0);
	struct pv_wire_arp a;
	uint8_t out[28];

	CHECK_EQ(pv_wire_arp_parse(v.p, v.len, &a), 0);
	CHECK(a.op == PV_ARP_REQUEST && pv_mac_eq(a.sha, mac_a) && !memcmp(&a.spa, a4, 4) && !memcmp(&a.tpa, b4, 4));
	CHECK_EQ(pv_wire_arp_emit(out, &a), 28);
	CHECK(!memcmp(out, v.p, 28));
	CHECK_EQ(pv_wire_arp_parse(w.p, w.len, &a), 0);
	CHECK(a.op == PV_ARP_REPLY && pv_mac_eq(a.tha, mac_a));
	pv_wire_arp_emit(out, &a);
	CHECK(!memcmp(out, w.p, 28));
	for (uint32_t n = 0; n < 28; n++) {
		struct vec cut = vec_cut(v, 0, n);

		CHECK_EQ(pv_wire_arp_parse(cut.p, n, &a), -EBADMSG);
		vec_free(&cut);
	}
	/* Hardware, protocol, lengths, operation, a group as sender. */
	for (uint32_t i = 0; i < 9; i++) {
		v.p[i] ^= i == 8 ? 1 : 0x40;
		CHECK_EQ(pv_wire_arp_parse(v.p, v.len, &a), -EBADMSG);
		v.p[i] ^= i == 8 ? 1 : 0x40;
	}
	vec_free(&v);
	vec_free(&w);
}

TEST(ip4_fields)
{
	struct vec v = vec_get("eth_udp4", 14);
	struct pv_wire_ip4 ip;
	struct pv_wire_udp u;
	uint64_t sum;
	uint8_t out[60];

	CHECK_EQ(pv_wire_ip4_parse(v.p, v.len, &ip), 20);
	CHECK(ip.tos == 0x2e && ip.id == 7 && ip.ttl == 9 && ip.proto == 17 && ip.frag == PV_IP4_DF && ip.total_len == v.len);
	CHECK(!memcmp(&ip.src, a4, 4) && !memcmp(&ip.dst, b4, 4) && !pv_wire_ip4_is_frag(&ip));
	CHECK(pv_wire_ip4_csum_ok(v.p, 20));
	CHECK_EQ(pv_wire_ip4_emit(out, &ip), 20);
	pv_wire_ip4_csum_fill(out, 20);
	CHECK(!memcmp(out, v.p, 20));

	CHECK_EQ(pv_wire_udp_parse(v.p + 20, v.len - 20, v.len - 20, &u), 8);
	CHECK(u.src_port == 40000 && u.dst_port == 9000 && u.len == v.len - 20);
	sum = pv_cksum_pseudo4(ip.src, ip.dst, 17, u.len);
	CHECK(pv_cksum_ok(pv_cksum_add(v.p + 20, u.len, sum)));
	pv_wire_udp_emit(out, 40000, 9000, u.len);
	CHECK(!memcmp(out, v.p + 20, 6) && !pv_get16(out + 6));
	pv_cksum_put(v.p + 26, 0);
	CHECK_EQ(pv_cksum_finish_udp(pv_cksum_add(v.p + 20, u.len, sum)), u.csum);

	for (uint32_t n = 0; n < v.len; n++) {
		struct vec cut = vec_cut(v, 0, n);

		CHECK_EQ(pv_wire_ip4_parse(cut.p, n, &ip), -EMSGSIZE);
		vec_free(&cut);
	}
	/* Version 5; a header of 16 bytes; a header longer than the packet; shorter than its header. */
	v.p[0] = 0x55;
	CHECK_EQ(pv_wire_ip4_parse(v.p, v.len, &ip), -EBADMSG);
	v.p[0] = 0x44;
	CHECK_EQ(pv_wire_ip4_parse(v.p, v.len, &ip), -EBADMSG);
	v.p[0] = 0x4f;
	CHECK_EQ(pv_wire_ip4_parse(v.p, v.len, &ip), -EBADMSG);
	v.p[0] = 0x45;
	pv_put16(v.p + 2, 19);
	CHECK_EQ(pv_wire_ip4_parse(v.p, v.len, &ip), -EBADMSG);
	/* Padding behind the packet is no fault. */
	pv_put16(v.p + 2, 28);
	CHECK_EQ(pv_wire_ip4_parse(v.p, v.len, &ip), 20);
	CHECK_EQ(ip.total_len, 28);
	vec_free(&v);
}

TEST(ip4_fragments)
{
	struct vec v = vec_get("ip4_frag_first", 0), w = vec_get("ip4_frag_last", 0);
	struct pv_wire_ip4 ip;

	CHECK_EQ(pv_wire_ip4_parse(v.p, v.len, &ip), 20);
	CHECK(pv_wire_ip4_is_frag(&ip) && (ip.frag & PV_IP4_MF) && !(ip.frag & PV_IP4_OFFSET) && ip.id == 0x1234);
	CHECK_EQ(pv_wire_ip4_parse(w.p, w.len, &ip), 20);
	CHECK(pv_wire_ip4_is_frag(&ip) && !(ip.frag & PV_IP4_MF) && (ip.frag & PV_IP4_OFFSET) == 8);
	vec_free(&v);
	vec_free(&w);
}

static int options_of(struct vec *v, struct pv_wire_ip4_opts *o, uint8_t *bad)
{
	struct pv_wire_ip4 ip;
	int hlen = pv_wire_ip4_parse(v->p, v->len, &ip);

	CHECK(hlen > 20);
	return pv_wire_ip4_options(v->p, (uint32_t)hlen, o, bad);
}

TEST(ip4_options_of_each_kind)
{
	struct vec ra = vec_get("ip4_router_alert", 0), rr = vec_get("ip4_rr_ts", 0);
	struct vec left = vec_get("ip4_lsrr_left", 0), done = vec_get("ip4_ssrr_done", 0);
	struct pv_wire_ip4_opts o;
	uint8_t bad, copy[40];

	CHECK_EQ(options_of(&ra, &o, &bad), 0);
	CHECK(o.router_alert && !o.source_route);
	CHECK(pv_wire_ip4_csum_ok(ra.p, 24));
	CHECK_EQ(pv_wire_ip4_options_for_frag(copy, ra.p + 20, 4), 4);
	CHECK(!memcmp(copy, ra.p + 20, 4));
	CHECK_EQ(options_of(&rr, &o, &bad), 0);
	CHECK(!o.router_alert && !o.source_route);
	CHECK_EQ(pv_wire_ip4_options_for_frag(copy, rr.p + 20, 28), 0);
	CHECK_EQ(options_of(&left, &o, &bad), 0);
	CHECK(o.source_route && o.route_left);
	CHECK_EQ(pv_wire_ip4_options_for_frag(copy, left.p + 20, 8), 8);
	CHECK(!memcmp(copy, left.p + 20, 7) && copy[7] == 0);
	CHECK_EQ(options_of(&done, &o, &bad), 0);
	CHECK(o.source_route && !o.route_left);
	vec_free(&ra);
	vec_free(&rr);
	vec_free(&left);
	vec_free(&done);
}

TEST(ip4_options_that_cannot_be)
{
	static const struct {
		const char *bytes;
		uint8_t len, bad;
	} c[] = {
		{ "\x44", 1, 20 }, /* a timestamp that ends after its type: at the very end of the header */
		{ "\x01\x01\x01\x07", 4, 23 }, /* no room for a length */
		{ "\x07\x00\x04\x00", 4, 20 }, /* length 0 */
		{ "\x07\x01\x04\x00", 4, 20 }, /* length 1 */
		{ "\x01\x07\x04\x04", 4, 21 }, /* longer than the header */
		{ "\x07\x07\x03\x00\x00\x00\x00\x00", 8, 20 }, /* pointer into the option's head */
		{ "\x07\x07\x05\x00\x00\x00\x00\x00", 8, 20 }, /* pointer leaves less than an address */
		{ "\x44\x08\x04\x00\x00\x00\x00\x00", 8, 20 }, /* timestamp pointer */
		{ "\x94\x03\x00\x00", 4, 20 }, /* router alert of three bytes */
		{ "\x83\x03\x04\x83\x03\x04\x00\x00", 8, 23 }, /* two source routes */
		{ "\x83\x02\x00\x00", 4, 20 }, /* no room for the pointer */
	};
	struct pv_wire_ip4_opts o;
	uint8_t bad;

	for (size_t i = 0; i < pv_array_size(c); i++) {
		uint8_t *h = malloc(20u + c[i].len);

		CHECK(h != NULL);
		memset(h, 0, 20);
		memcpy(h + 20, c[i].bytes, c[i].len);
		CHECK_EQ(pv_wire_ip4_options(h, 20u + c[i].len, &o, &bad), -EPROTO);
		CHECK_EQ(bad, c[i].bad);
		free(h);
	}
}

static int walk(const char *name, struct pv_wire_ip6 *ip, struct pv_wire_ip6_ext *x)
{
	struct vec v = vec_get(name, 0);
	int rc;

	CHECK_EQ(pv_wire_ip6_parse(v.p, v.len, ip), 40);
	rc = pv_wire_ip6_walk(v.p, v.len, x);
	CHECK(x->l4_off <= v.len);
	/* Every shorter packet: an error, or (cut behind the headers) the same answer. Never a read past the end. */
	for (uint32_t n = 40; n < v.len; n++) {
		struct vec cut = vec_cut(v, 0, n);
		struct pv_wire_ip6_ext y;
		int rc2 = pv_wire_ip6_walk(cut.p, n, &y);

		CHECK(rc2 == -EMSGSIZE || (rc2 == rc && (rc || (y.l4_off == x->l4_off && y.l4_off <= n))));
		vec_free(&cut);
	}
	vec_free(&v);
	return rc;
}

TEST(ip6_fields)
{
	struct vec v = vec_get("ip6_udp", 0);
	struct pv_wire_ip6 ip;
	struct pv_wire_udp u;
	struct pv_wire_ip6_ext x;
	uint8_t out[40];

	CHECK_EQ(pv_wire_ip6_parse(v.p, v.len, &ip), 40);
	CHECK(ip.tclass == 0x2e && ip.flow == 0xabcde && ip.hops == 9 && ip.next == 17 && ip.payload_len == v.len - 40);
	CHECK_EQ(pv_wire_ip6_emit(out, &ip), 40);
	CHECK(!memcmp(out, v.p, 40));
	CHECK_EQ(pv_wire_ip6_walk(v.p, v.len, &x), 0);
	CHECK(x.proto == 17 && x.l4_off == 40 && !x.frag && !x.frag_hdr_off);
	CHECK_EQ(pv_wire_udp_parse(v.p + 40, v.len - 40, v.len - 40, &u), 8);
	CHECK(pv_cksum_ok(pv_cksum_add(v.p + 40, u.len, pv_cksum_pseudo6(ip.src, ip.dst, 17, u.len))));
	for (uint32_t n = 0; n < v.len; n++) {
		struct vec cut = vec_cut(v, 0, n);

		CHECK_EQ(pv_wire_ip6_parse(cut.p, n, &ip), -EMSGSIZE);
		vec_free(&cut);
	}
	v.p[0] = 0x42;
	CHECK_EQ(pv_wire_ip6_parse(v.p, v.len, &ip), -EBADMSG);
	vec_free(&v);
}

TEST(ip6_extension_headers)
{
	struct pv_wire_ip6_ext x;
	struct pv_wire_ip6 ip;

	CHECK_EQ(walk("ip6_hbh_ra", &ip, &x), 0);
	CHECK(x.proto == 58 && x.l4_off == 48 && x.router_alert);
	CHECK_EQ(walk("ip6_chain", &ip, &x), 0);
	CHECK(x.proto == 17 && x.l4_off == 72 && !x.router_alert && !x.frag);
	CHECK_EQ(walk("ip6_none", &ip, &x), 0);
	CHECK(x.proto == PV_IP6_NEXT_NONE && x.l4_off == 40);
	CHECK_EQ(walk("ip6_unknown_skip", &ip, &x), 0);
	CHECK(x.proto == 17 && x.l4_off == 48);
}

TEST(ip6_fragments)
{
	struct pv_wire_ip6_ext x;
	struct pv_wire_ip6 ip;
	uint8_t out[8];
	struct vec v;

	CHECK_EQ(walk("ip6_frag_first", &ip, &x), 0);
	CHECK(x.frag && x.more && !x.frag_off && x.frag_id == 0xcafe && x.proto == 17 && x.l4_off == 48);
	CHECK(x.frag_hdr_off == 40 && x.frag_prev_off == 6);
	CHECK_EQ(walk("ip6_frag_last", &ip, &x), 0);
	CHECK(x.frag && !x.more && x.frag_off == 64 && x.proto == 17 && x.l4_off == 56);
	CHECK(x.frag_hdr_off == 48 && x.frag_prev_off == 40);
	v = vec_get("ip6_frag_last", 0);
	pv_wire_ip6_frag_emit(out, 17, 64, false, 0xcafe);
	CHECK(!memcmp(out, v.p + 48, 8));
	vec_free(&v);
	CHECK_EQ(walk("ip6_frag_atomic", &ip, &x), 0);
	CHECK(!x.frag && x.frag_hdr_off == 40 && x.proto == 17 && x.l4_off == 48);
}

TEST(ip6_what_must_be_dropped)
{
	struct pv_wire_ip6_ext x;
	struct pv_wire_ip6 ip;

	CHECK_EQ(walk("ip6_routing_left", &ip, &x), -EPROTO);
	CHECK(x.icmp_code == 0 && x.icmp_send && !x.icmp_mcast && x.bad_off == 42);
	CHECK_EQ(walk("ip6_unknown_drop", &ip, &x), -EPROTO);
	CHECK(!x.icmp_send);
	CHECK_EQ(walk("ip6_unknown_icmp", &ip, &x), -EPROTO);
	CHECK(x.icmp_code == 2 && x.icmp_send && x.icmp_mcast && x.bad_off == 42);
	CHECK_EQ(walk("ip6_unknown_unicast", &ip, &x), -EPROTO);
	CHECK(x.icmp_code == 2 && x.icmp_send && !x.icmp_mcast);
	CHECK_EQ(walk("ip6_jumbo", &ip, &x), -EPROTO);
	CHECK(x.jumbo && x.icmp_send && x.bad_off == 42);
}

TEST(ip6_chains_end)
{
	uint8_t p[40 + 8 * 16] = { 0x60 };
	struct pv_wire_ip6_ext x;

	p[6] = PV_IP6_NEXT_DEST;
	for (uint32_t n = 1; n < 16; n++) {
		for (uint32_t i = 0; i < n; i++) {
			p[40 + 8 * i] = i + 1 < n ? PV_IP6_NEXT_DEST : 17;
			p[41 + 8 * i] = 0;
			p[42 + 8 * i] = 1;
			p[43 + 8 * i] = 4;
		}
		CHECK_EQ(pv_wire_ip6_walk(p, 40 + 8 * n, &x), n <= PV_IP6_EXT_MAX ? 0 : -EBADMSG);
	}
	/* Hop-by-hop options anywhere but in front. */
	p[40] = PV_IP6_NEXT_HOP;
	p[48] = 17;
	CHECK_EQ(pv_wire_ip6_walk(p, 56, &x), -EBADMSG);
	/* An option longer than its header. */
	p[40] = 17;
	p[43] = 5;
	CHECK_EQ(pv_wire_ip6_walk(p, 56, &x), -EMSGSIZE);
	/* A header that says it is 2048 bytes. */
	p[43] = 4;
	p[41] = 255;
	CHECK_EQ(pv_wire_ip6_walk(p, 56, &x), -EMSGSIZE);
}

TEST(udp_lengths)
{
	uint8_t p[20];
	struct pv_wire_udp u;

	pv_wire_udp_emit(p, 1, 2, 20);
	CHECK_EQ(pv_wire_udp_parse(p, 20, 20, &u), 8);
	CHECK_EQ(pv_wire_udp_parse(p, 20, 30, &u), 8);
	CHECK_EQ(pv_wire_udp_parse(p, 8, 20, &u), 8);
	CHECK_EQ(pv_wire_udp_parse(p, 19, 19, &u), -EMSGSIZE);
	CHECK_EQ(pv_wire_udp_parse(p, 7, 20, &u), -EMSGSIZE);
	pv_wire_udp_emit(p, 1, 2, 7);
	CHECK_EQ(pv_wire_udp_parse(p, 20, 20, &u), -EBADMSG);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
