/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every parser of native/wire over the same bytes, and what follows from what it says: views must lie inside, emitters must give
 * back what was parsed.
 *
 *   cmake --preset fuzz && ninja -C build/fuzz fuzz_wire
 *   tools/run_fuzz.py --only fuzz_wire --seconds 600
 *
 * The first byte of an input says which parser. Seeds: the packets of tests/data/make_wire.py.
 */
#include "fuzz.h"
#include "wire/arp.h"
#include "wire/eth.h"
#include "wire/icmp4.h"
#include "wire/icmp6.h"
#include "wire/igmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

static void inside(const uint8_t *p, uint32_t len, const void *view, size_t n)
{
	const uint8_t *v = view;

	REQUIRE(v >= p && n <= len && v + n <= p + len);
	for (size_t i = 0; i < n; i++)
		__asm__ volatile("" ::"r"(v[i]));
}

static void ethernet(const uint8_t *p, uint32_t len)
{
	struct pv_wire_eth e;
	int hlen = pv_wire_eth_parse(p, len, &e);
	uint8_t out[18];

	if (hlen < 0)
		return;
	REQUIRE(hlen == 14 + 4 * e.tags && (uint32_t)hlen <= len);
	inside(p, len, e.src, 6);
	if (e.tags == 0) {
		pv_wire_eth_emit(out, e.dst, e.src, 0, e.type);
		REQUIRE(!memcmp(out, p, 14));
	}
}

static void arp(const uint8_t *p, uint32_t len)
{
	struct pv_wire_arp a;
	uint8_t out[PV_ARP_LEN];

	if (pv_wire_arp_parse(p, len, &a))
		return;
	pv_wire_arp_emit(out, &a);
	REQUIRE(!memcmp(out, p, PV_ARP_LEN));
}

static void ip4(const uint8_t *p, uint32_t len)
{
	struct pv_wire_ip4 ip;
	struct pv_wire_ip4_opts o;
	struct pv_wire_udp u;
	uint8_t bad, out[40];
	int hlen = pv_wire_ip4_parse(p, len, &ip);

	if (hlen < 0)
		return;
	REQUIRE(hlen >= 20 && hlen <= ip.total_len && ip.total_len <= len);
	(void)pv_wire_ip4_csum_ok(p, (uint32_t)hlen);
	if (pv_wire_ip4_options(p, (uint32_t)hlen, &o, &bad))
		REQUIRE(bad >= 20 && bad < hlen);
	else
		REQUIRE(pv_wire_ip4_options_for_frag(out, p + 20, (uint32_t)hlen - 20) <= 40);
	if (pv_wire_udp_parse(p + hlen, len - (uint32_t)hlen, len - (uint32_t)hlen, &u) == 8)
		REQUIRE(u.len >= 8 && u.len <= len - (uint32_t)hlen);
}

static void ip6(const uint8_t *p, uint32_t len)
{
	struct pv_wire_ip6 ip;
	struct pv_wire_ip6_ext x;
	uint8_t out[40];
	int rc;

	if (pv_wire_ip6_parse(p, len, &ip) < 0)
		return;
	pv_wire_ip6_emit(out, &ip);
	REQUIRE(!memcmp(out, p, 40));
	len = 40u + ip.payload_len;
	rc = pv_wire_ip6_walk(p, len, &x);
	if (rc == -EPROTO)
		REQUIRE(x.bad_off >= 40 && x.bad_off < len);
	if (rc)
		return;
	REQUIRE(x.l4_off >= 40 && x.l4_off <= len && x.frag_hdr_off < len && x.frag_prev_off < len);
	REQUIRE(!x.frag || (x.l4_off == x.frag_hdr_off + 8 && p[x.frag_prev_off] == PV_IP6_NEXT_FRAG));
}

static void icmp4(const uint8_t *p, uint32_t len)
{
	struct pv_wire_icmp4 m;
	struct pv_wire_quote4 q;

	if (pv_wire_icmp4_parse(p, len, &m))
		return;
	inside(p, len, m.body, m.body_len);
	if (!pv_wire_icmp4_quote(m.body, m.body_len, &q)) {
		REQUIRE(q.l4_len >= 8);
		inside(p, len, q.l4, q.l4_len);
	}
}

static void icmp6(const uint8_t *p, uint32_t len)
{
	struct pv_wire_icmp6 m;
	struct pv_wire_quote6 q;
	struct pv_wire_mld mld;
	struct pv_wire_nd nd;

	if (!pv_wire_icmp6_parse(p, len, &m)) {
		inside(p, len, m.body, m.body_len);
		if (!pv_wire_icmp6_quote(m.body, m.body_len, &q)) {
			REQUIRE(q.l4_len >= 8);
			inside(p, len, q.l4, q.l4_len);
		}
	}
	if (!pv_wire_mld_parse(p, len, &mld)) {
		inside(p, len, mld.group, 16);
		if (mld.sources)
			inside(p, len, mld.sources, 16u * mld.nsources);
	}
	if (!pv_wire_nd_parse(p, len, &nd)) {
		const uint8_t *views[] = { nd.target, nd.dest };

		for (size_t i = 0; i < 2; i++)
			if (views[i])
				inside(p, len, views[i], 16);
		if (nd.src_lla)
			inside(p, len, nd.src_lla, 6);
		if (nd.tgt_lla)
			inside(p, len, nd.tgt_lla, 6);
		REQUIRE(nd.prefixes <= PV_ND_PREFIX_MAX);
		for (uint32_t i = 0; i < nd.prefixes; i++) {
			REQUIRE(nd.prefix[i].len <= 128);
			inside(p, len, nd.prefix[i].prefix, 16);
		}
	}
}

static void igmp(const uint8_t *p, uint32_t len)
{
	struct pv_wire_igmp m;

	if (!pv_wire_igmp_parse(p, len, &m) && m.sources)
		inside(p, len, m.sources, 4u * m.nsources);
}

/* Report emitters: record shapes from the input, into a block of exactly the size given. */
static void reports(const uint8_t *p, uint32_t len)
{
	struct pv_addr src[16] = { { .b = { 0 } } };
	struct pv_wire_grec rec[8];
	uint32_t n = 0, size, done, got;
	uint8_t *out;

	if (len < 2)
		return;
	size = p[0] * 2u;
	for (; n < 8 && n + 1 < len; n++)
		rec[n] = (struct pv_wire_grec){ PV_GREC_ALLOW, src[0], src, p[n + 1] % 17u };
	out = malloc(size ? size : 1);
	REQUIRE(out);
	for (int v6 = 0; v6 < 2; v6++) {
		got = v6 ? pv_wire_mld2_emit(out, size, rec, n, &done) : pv_wire_igmp3_emit(out, size, rec, n, &done);
		REQUIRE(got <= size && done <= n && (got != 0) == (done != 0));
	}
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const targets[])(const uint8_t *, uint32_t) = { ethernet, arp, ip4, ip6, icmp4, icmp6, igmp, reports };
	uint8_t *copy;

	if (!size)
		return 0;
	/* A block of exactly the packet's size: the fuzzer's own buffer has the selector in front. */
	copy = malloc(size);
	REQUIRE(copy);
	memcpy(copy, data + 1, size - 1);
	copy = realloc(copy, size > 1 ? size - 1 : 1);
	REQUIRE(copy);
	targets[data[0] % pv_array_size(targets)](copy, (uint32_t)(size - 1));
	free(copy);
	return 0;
}
