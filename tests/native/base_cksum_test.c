/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/cksum.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "test.h"

/* RFC 1071 4.1 as it is written there: 16-bit big-endian words, end-around carry. */
static uint16_t naive(const uint8_t *p, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i += 2) {
		sum += (uint32_t)p[i] << 8 | (i + 1 < len ? p[i + 1] : 0);
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return (uint16_t)sum;
}

static uint16_t folded(uint64_t partial)
{
	uint16_t v = pv_cksum_fold(partial);

	return pv_get16(&v);
}

static void fill(struct pv_rng *r, uint8_t *p, size_t len, int kind)
{
	for (size_t i = 0; i < len; i++)
		p[i] = kind == 0 ? 0xff : kind == 1 ? 0 : (uint8_t)pv_rng_u64(r);
}

TEST(every_length_and_alignment)
{
	static uint8_t buf[512 + 16], copy[512 + 32];
	struct pv_rng r;

	pv_rng_seed(&r, 1);
	for (size_t len = 0; len <= 512; len++) {
		for (size_t align = 0; align < 16; align++) {
			size_t to = pv_rng_below(&r, 16);
			uint8_t *p = buf + align;

			fill(&r, p, len, (int)pv_rng_below(&r, 6));
			CHECK_EQ(folded(pv_cksum_add(p, len, 0)), naive(p, len));
			memset(copy, 0xa5, sizeof(copy));
			CHECK_EQ(folded(pv_cksum_copy(copy + to, p, len, 0)), naive(p, len));
			CHECK(!memcmp(copy + to, p, len) && copy[to + len] == 0xa5 && (!to || copy[to - 1] == 0xa5));
		}
	}
}

TEST(carries_out_of_the_top)
{
	uint8_t ones[4096];

	memset(ones, 0xff, sizeof(ones));
	for (size_t len = 0; len <= sizeof(ones); len += 2) {
		CHECK_EQ(pv_cksum_fold(pv_cksum_add(ones, len, UINT64_MAX)), 0xffff);
		CHECK_EQ(pv_cksum_fold(pv_cksum_copy(ones, ones + len, 0, UINT64_MAX)), 0xffff);
	}
	for (int i = 0; i < 64; i++)
		CHECK(pv_cksum_fold(UINT64_C(1) << i) != 0);
	CHECK_EQ(pv_cksum_fold(0), 0);
	CHECK_EQ(pv_cksum_fold(UINT64_MAX), 0xffff);
	CHECK_EQ(pv_cksum_fold(UINT64_C(0xfffffffffffeffff)), 0xfffe);
}

TEST(pieces_of_any_length_add_up)
{
	uint8_t buf[3000];
	struct pv_rng r;

	pv_rng_seed(&r, 2);
	for (int round = 0; round < 2000; round++) {
		size_t len = 1 + pv_rng_below(&r, sizeof(buf)), off = 0;
		uint64_t sum = 0;

		fill(&r, buf, len, 2);
		while (off < len) {
			size_t n = 1 + pv_rng_below(&r, len - off);

			sum = pv_cksum_merge(sum, pv_cksum_at(pv_cksum_add(buf + off, n, 0), off));
			off += n;
		}
		CHECK_EQ(folded(sum), naive(buf, len));
	}
}

TEST(pseudo_headers)
{
	struct pv_rng r;

	pv_rng_seed(&r, 3);
	for (int i = 0; i < 10000; i++) {
		uint8_t h[40] = { 0 };
		struct pv_addr src, dst;
		uint8_t proto = (uint8_t)pv_rng_u64(&r);
		uint16_t len = (uint16_t)pv_rng_u64(&r);

		fill(&r, h, 8, 2);
		src = pv_addr_from4(h);
		dst = pv_addr_from4(h + 4);
		h[8] = 0;
		h[9] = proto;
		pv_put16(h + 10, len);
		CHECK_EQ(folded(pv_cksum_pseudo(&src, &dst, proto, len)), naive(h, 12));

		fill(&r, h, 32, 2 + (i & 1));
		src = pv_addr_from6(h);
		dst = pv_addr_from6(h + 16);
		pv_put32(h + 32, 70000u + len);
		h[36] = h[37] = h[38] = 0;
		h[39] = proto;
		CHECK_EQ(folded(pv_cksum_pseudo(&src, &dst, proto, 70000u + len)), naive(h, 40));
	}
}

TEST(a_known_ip_header)
{
	/* 20 bytes whose checksum, b861, is worked out in many textbooks. */
	uint8_t h[20] = { 0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7 };

	CHECK(pv_cksum_ok(pv_cksum_ip4_header(h)));
	CHECK(pv_cksum_ok(pv_cksum_add(h, 20, 0)));
	h[19] ^= 1;
	CHECK(!pv_cksum_ok(pv_cksum_ip4_header(h)));
	h[19] ^= 1;
	pv_cksum_put(h + 10, 0);
	pv_cksum_put(h + 10, pv_cksum_finish(pv_cksum_ip4_header(h)));
	CHECK_EQ(pv_get16(h + 10), 0xb861);
}

TEST(udp_never_sends_zero)
{
	CHECK_EQ(pv_cksum_finish(0xffff), 0);
	CHECK_EQ(pv_cksum_finish_udp(0xffff), 0xffff);
	CHECK_EQ(pv_cksum_finish_udp(0x1234), pv_cksum_finish(0x1234));
}

TEST(incremental_update)
{
	struct pv_rng r;
	uint8_t h[20];

	pv_rng_seed(&r, 4);
	for (int i = 0; i < 20000; i++) {
		size_t at = 2 * pv_rng_below(&r, 10);
		uint16_t from, to = (uint16_t)(i % 7 ? pv_rng_u64(&r) : i % 2 ? 0 : 0xffff);

		if (at == 10)
			continue;
		fill(&r, h, sizeof(h), 2);
		h[0] |= 1;
		pv_cksum_put(h + 10, 0);
		pv_cksum_put(h + 10, pv_cksum_finish(pv_cksum_ip4_header(h)));
		from = pv_cksum_get(h + at);
		pv_cksum_put(h + at, to);
		pv_cksum_put(h + 10, pv_cksum_adjust(pv_cksum_get(h + 10), from, to));
		CHECK(pv_cksum_ok(pv_cksum_ip4_header(h)));
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
