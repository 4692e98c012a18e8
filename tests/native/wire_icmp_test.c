/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/icmp4.h"
#include "wire/icmp6.h"

#include "vectors.h"

static const uint8_t mac_a[6] = { 2, 0, 0, 0, 0, 0xa }, mac_b[6] = { 2, 0, 0, 0, 0, 0xb };
static const uint8_t a6[16] = { 0xfd, 0, 0, 0x99, [15] = 1 }, b6[16] = { 0xfd, 0, 0, 0x99, [15] = 2 };

TEST(icmp4_echo)
{
	struct vec v = vec_get("icmp4_echo", 0);
	struct pv_wire_icmp4 m;
	uint8_t out[12];

	CHECK_EQ(pv_wire_icmp4_parse(v.p, v.len, &m), 0);
	CHECK(m.type == PV_ICMP4_ECHO && m.code == 0 && m.id == 0x77 && m.seq == 5 && m.body_len == 4 &&
	      !memcmp(m.body, "ping", 4));
	CHECK(!pv_wire_icmp4_is_error(m.type));
	CHECK(pv_cksum_ok(pv_cksum_add(v.p, v.len, 0)));
	pv_wire_icmp4_emit(out, PV_ICMP4_ECHO, 0, 0x00770005);
	memcpy(out + 8, "ping", 4);
	pv_wire_icmp4_csum_fill(out, 12);
	CHECK(!memcmp(out, v.p, 12));
	for (uint32_t n = 0; n < 8; n++)
		CHECK_EQ(pv_wire_icmp4_parse(v.p, n, &m), -EBADMSG);
	vec_free(&v);
}

TEST(icmp4_errors_quote_the_packet)
{
	struct vec v = vec_get("icmp4_port", 0), w = vec_get("icmp4_frag_needed", 0), x = vec_get("icmp4_later_fragment", 0);
	struct pv_wire_icmp4 m;
	struct pv_wire_quote4 q;

	CHECK_EQ(pv_wire_icmp4_parse(v.p, v.len, &m), 0);
	CHECK(m.type == PV_ICMP4_UNREACH && m.code == PV_ICMP4_UNREACH_PORT && pv_wire_icmp4_is_error(m.type));
	CHECK_EQ(pv_wire_icmp4_quote(m.body, m.body_len, &q), 0);
	CHECK(q.src_port == 40000 && q.dst_port == 9000 && q.ip.proto == 17 && q.l4_len == m.body_len - 20);
	for (uint32_t n = 0; n < m.body_len; n++) {
		struct vec cut = vec_cut(v, 8, n);

		CHECK_EQ(pv_wire_icmp4_quote(cut.p, n, &q), n < 28 ? -EBADMSG : 0);
		CHECK(n < 28 || q.l4_len == n - 20);
		vec_free(&cut);
	}
	CHECK_EQ(pv_wire_icmp4_parse(w.p, w.len, &m), 0);
	CHECK(m.code == PV_ICMP4_UNREACH_FRAG && m.mtu == 1300);
	CHECK_EQ(pv_wire_icmp4_quote(m.body, m.body_len, &q), 0);
	CHECK(q.ip.total_len == 1500 && q.l4_len == 8 && q.src_port == 1 && q.dst_port == 2);
	CHECK_EQ(pv_wire_icmp4_parse(x.p, x.len, &m), 0);
	CHECK_EQ(pv_wire_icmp4_quote(m.body, m.body_len, &q), -EBADMSG);
	vec_free(&v);
	vec_free(&w);
	vec_free(&x);
}

TEST(icmp6_echo)
{
	struct vec v = vec_get("icmp6_echo", 40);
	struct pv_wire_icmp6 m;
	uint8_t out[12];

	CHECK_EQ(pv_wire_icmp6_parse(v.p, v.len, &m), 0);
	CHECK(m.type == PV_ICMP6_ECHO && m.id == 0x77 && m.seq == 5 && m.body_len == 4 && !pv_wire_icmp6_is_error(m.type));
	pv_wire_icmp6_emit(out, PV_ICMP6_ECHO, 0, 0x00770005);
	memcpy(out + 8, "ping", 4);
	pv_wire_icmp6_csum_fill(out, 12, a6, b6);
	CHECK(!memcmp(out, v.p, 12));
	CHECK_EQ(pv_wire_icmp6_parse(v.p, 7, &m), -EBADMSG);
	vec_free(&v);
}

TEST(icmp6_errors_quote_the_packet)
{
	struct vec v = vec_get("icmp6_too_big", 40), w = vec_get("icmp6_port_ext", 40), f = vec_get("ip6_frag_last", 0);
	struct pv_wire_icmp6 m;
	struct pv_wire_quote6 q;

	CHECK_EQ(pv_wire_icmp6_parse(v.p, v.len, &m), 0);
	CHECK(m.type == PV_ICMP6_TOO_BIG && m.word == 1400 && pv_wire_icmp6_is_error(m.type));
	CHECK_EQ(pv_wire_icmp6_quote(m.body, m.body_len, &q), 0);
	CHECK(q.proto == 17 && q.src_port == 40000 && q.dst_port == 9000 && !memcmp(q.ip.dst, b6, 16));
	CHECK_EQ(pv_wire_icmp6_parse(w.p, w.len, &m), 0);
	CHECK(m.code == PV_ICMP6_UNREACH_PORT);
	CHECK_EQ(pv_wire_icmp6_quote(m.body, m.body_len, &q), 0);
	CHECK(q.proto == 17 && q.dst_port == 9000);
	for (uint32_t n = 0; n < m.body_len; n++) {
		struct vec cut = vec_cut(w, 8, n);

		CHECK_EQ(pv_wire_icmp6_quote(cut.p, n, &q), n < 56 ? -EBADMSG : 0);
		vec_free(&cut);
	}
	CHECK_EQ(pv_wire_icmp6_quote(f.p, f.len, &q), -EBADMSG);
	vec_free(&v);
	vec_free(&w);
	vec_free(&f);
}

static void check_cuts(struct vec v, uint32_t fixed)
{
	struct pv_wire_nd nd;

	for (uint32_t n = 0; n < v.len; n++) {
		struct vec cut = vec_cut(v, 0, n);
		int rc = pv_wire_nd_parse(cut.p, n, &nd);

		CHECK(rc == -EBADMSG || (n >= fixed && (n - fixed) % 8 == 0));
		vec_free(&cut);
	}
}

TEST(solicitations)
{
	struct vec v = vec_get("nd_ns", 40), w = vec_get("nd_ns_dad", 40), r = vec_get("nd_rs", 40);
	uint8_t out[PV_ND_EMIT_MAX], group[16], rs_src[16] = { 0xfe, 0x80, [15] = 1 }, all_routers[16] = { 0xff, 2, [15] = 2 };
	struct pv_wire_nd nd;

	CHECK_EQ(pv_wire_nd_parse(v.p, v.len, &nd), 0);
	CHECK(nd.type == PV_ICMP6_NS && !memcmp(nd.target, b6, 16) && pv_mac_eq(nd.src_lla, mac_a) && !nd.tgt_lla);
	pv_wire_nd_solicited_node(group, b6);
	CHECK_EQ(pv_wire_nd_ns_emit(out, b6, mac_a), v.len);
	pv_wire_icmp6_csum_fill(out, v.len, a6, group);
	CHECK(!memcmp(out, v.p, v.len));
	check_cuts(v, 24);
	CHECK_EQ(pv_wire_nd_parse(w.p, w.len, &nd), 0);
	CHECK(!nd.src_lla);
	CHECK_EQ(pv_wire_nd_ns_emit(out, b6, NULL), w.len);
	/* A group is no target; a code is not 0; an option of length 0. */
	w.p[8] = 0xff;
	CHECK_EQ(pv_wire_nd_parse(w.p, w.len, &nd), -EBADMSG);
	v.p[1] = 1;
	CHECK_EQ(pv_wire_nd_parse(v.p, v.len, &nd), -EBADMSG);
	v.p[1] = 0;
	v.p[25] = 0;
	CHECK_EQ(pv_wire_nd_parse(v.p, v.len, &nd), -EBADMSG);
	CHECK_EQ(pv_wire_nd_parse(r.p, r.len, &nd), 0);
	CHECK(nd.type == PV_ICMP6_RS && pv_mac_eq(nd.src_lla, mac_a) && !nd.target);
	CHECK_EQ(pv_wire_nd_rs_emit(out, mac_a), r.len);
	pv_wire_icmp6_csum_fill(out, r.len, rs_src, all_routers);
	CHECK(!memcmp(out, r.p, r.len));
	vec_free(&v);
	vec_free(&w);
	vec_free(&r);
}

TEST(advertisements)
{
	struct vec v = vec_get("nd_na", 40), r = vec_get("nd_ra", 40);
	static const uint8_t prefix[16] = { 0xfd, 0, 0, 0x99 };
	uint8_t out[PV_ND_EMIT_MAX];
	struct pv_wire_nd nd;

	CHECK_EQ(pv_wire_nd_parse(v.p, v.len, &nd), 0);
	CHECK(nd.type == PV_ICMP6_NA && nd.flags == (PV_ND_NA_SOLICITED | PV_ND_NA_OVERRIDE) && pv_mac_eq(nd.tgt_lla, mac_a));
	CHECK_EQ(pv_wire_nd_na_emit(out, a6, nd.flags, mac_a), v.len);
	pv_wire_icmp6_csum_fill(out, v.len, a6, b6);
	CHECK(!memcmp(out, v.p, v.len));
	check_cuts(v, 24);

	CHECK_EQ(pv_wire_nd_parse(r.p, r.len, &nd), 0);
	CHECK(nd.hop_limit == 64 && nd.flags == 0x80 && nd.lifetime_s == 1800 && nd.reachable_ms == 30000 && nd.retrans_ms == 1000);
	CHECK(nd.mtu == 1480 && pv_mac_eq(nd.src_lla, mac_b) && nd.prefixes == 1);
	CHECK(nd.prefix[0].len == 64 && nd.prefix[0].onlink && !nd.prefix[0].autoconf && nd.prefix[0].valid_s == 7200);
	CHECK(nd.prefix[0].preferred_s == 3600 && !memcmp(nd.prefix[0].prefix, prefix, 16));
	check_cuts(r, 16);
	vec_free(&v);
	vec_free(&r);
}

TEST(many_prefixes)
{
	uint8_t p[16 + 32 * 6] = { PV_ICMP6_RA };
	struct pv_wire_nd nd;

	for (int i = 0; i < 6; i++) {
		p[16 + 32 * i] = 3;
		p[17 + 32 * i] = 4;
		p[18 + 32 * i] = (uint8_t)(i == 0 ? 129 : 60 + i);
	}
	CHECK_EQ(pv_wire_nd_parse(p, sizeof(p), &nd), 0);
	CHECK_EQ(nd.prefixes, PV_ND_PREFIX_MAX);
	CHECK_EQ(nd.prefix[0].len, 61);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
