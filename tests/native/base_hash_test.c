/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hash.h"
#include "base/siphash.h"
#include "test.h"

TEST(siphash_vectors)
{
	/* Key 00..0f, message 00..n-1: the paper's appendix A (15 bytes) and its reference implementation; checked against OpenSSL. */
	static const struct {
		size_t len;
		uint64_t hash;
	} v[] = { { 0, 0x726fdb47dd0e0e31 }, { 1, 0x74f839c593dc67fd },  { 2, 0x0d6c8009d9a94f5a }, { 7, 0xab0200f58b01d137 },
		  { 8, 0x93f5f5799a932462 }, { 15, 0xa129ca6149be45e5 }, { 63, 0x958a324ceb064572 } };
	struct pv_siphash_key key = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };
	uint8_t msg[64];

	for (unsigned int i = 0; i < sizeof(msg); i++)
		msg[i] = (uint8_t)i;
	for (size_t i = 0; i < pv_array_size(v); i++)
		CHECK(pv_siphash(&key, msg, v[i].len) == v[i].hash);
}

TEST(siphash_unaligned)
{
	struct pv_siphash_key key = pv_siphash_key(9);
	uint8_t buf[80], msg[64];

	for (unsigned int i = 0; i < sizeof(msg); i++)
		msg[i] = (uint8_t)(i * 37);
	for (size_t len = 0; len < sizeof(msg); len++)
		for (size_t at = 0; at < 8; at++) {
			memcpy(buf + at, msg, len);
			CHECK(pv_siphash(&key, buf + at, len) == pv_siphash(&key, msg, len));
		}
}

TEST(generators_vectors)
{
	/* xoshiro256** from state {1,2,3,4}, splitmix64 from 1234567: the authors' programs. */
	struct pv_rng r = { { 1, 2, 3, 4 } };
	uint64_t s = 1234567;

	CHECK(pv_rng_u64(&r) == 11520);
	CHECK(pv_rng_u64(&r) == 0);
	CHECK(pv_rng_u64(&r) == 1509978240);
	CHECK(pv_rng_u64(&r) == UINT64_C(1215971899390074240));
	CHECK(pv_splitmix64(&s) == UINT64_C(6457827717110365317));
	CHECK(pv_splitmix64(&s) == UINT64_C(3203168211198807973));
	CHECK(pv_splitmix64(&s) == UINT64_C(9817491932198370423));
}

TEST(below_is_uniform)
{
	uint32_t seen[7] = { 0 };
	struct pv_rng r;

	pv_rng_seed(&r, 5);
	for (int i = 0; i < 70000; i++) {
		uint64_t v = pv_rng_below(&r, 7);

		CHECK(v < 7);
		seen[v]++;
	}
	for (int i = 0; i < 7; i++)
		CHECK(seen[i] > 9500 && seen[i] < 10500);
	CHECK_EQ(pv_rng_below(&r, 1), 0);
}

/* 64 Ki keys into 64 Ki buckets: a random function leaves the fullest with about nine. Mean square of the loads is 2. */
static void check_spread(const uint32_t *hash, size_t n, const char *what)
{
	static uint16_t low[65536], high[65536];
	double sl = 0, sh = 0;

	memset(low, 0, sizeof(low));
	memset(high, 0, sizeof(high));
	for (size_t i = 0; i < n; i++) {
		low[hash[i] & 0xffff]++;
		high[hash[i] >> 16]++;
	}
	for (int i = 0; i < 65536; i++) {
		sl += (double)low[i] * low[i] / 65536;
		sh += (double)high[i] * high[i] / 65536;
		if (low[i] > 14 || high[i] > 14) {
			fprintf(stderr, "%s: %u keys in one bucket\n", what, (unsigned int)PV_MAX(low[i], high[i]));
			exit(1);
		}
	}
	CHECK(sl > 1.9 && sl < 2.1 && sh > 1.9 && sh < 2.1);
}

TEST(flows_spread)
{
	static uint32_t h[65536];
	struct pv_addr local = pv_addr_from4("\x0a\x63\x00\x01"), remote = pv_addr_from4("\x0a\x63\x00\x02"),
		       v6 = { .b = { 0x20, 1 } };

	for (uint64_t seed = 0; seed < 4; seed++) {
		struct pv_hash_key k = pv_hash_key(seed);

		for (uint32_t i = 0; i < 65536; i++)
			h[i] = pv_hash_flow(&k, &local, &remote, 9000, (uint16_t)i, 17);
		check_spread(h, 65536, "remote port");
		for (uint32_t i = 0; i < 65536; i++)
			h[i] = pv_hash_addr(&k, &local, i);
		check_spread(h, 65536, "extra");
		for (uint32_t i = 0; i < 65536; i++) {
			remote.w[3] = __builtin_bswap32(0x0a000000 + i);
			h[i] = pv_hash_flow(&k, &local, &remote, 9000, 9000, 17);
		}
		check_spread(h, 65536, "remote address");
		for (uint32_t i = 0; i < 65536; i++) {
			memcpy(v6.b + 14, &(uint16_t){ (uint16_t)i }, 2);
			h[i] = pv_hash_addr(&k, &v6, 53);
		}
		check_spread(h, 65536, "IPv6 host part");
		for (uint32_t i = 0; i < 65536; i++)
			h[i] = pv_hash_u64(&k, i);
		check_spread(h, 65536, "counter");
		for (uint32_t i = 0; i < 65536; i++)
			h[i] = pv_hash_u128(&k, i % 256, i / 256);
		check_spread(h, 65536, "pair");
	}
}

TEST(keys_and_inputs_matter)
{
	struct pv_hash_key a = pv_hash_key(1), b = pv_hash_key(2);
	struct pv_addr x = pv_addr_from4("\x01\x02\x03\x04"), y = pv_addr_from4("\x01\x02\x03\x05");
	uint32_t h = pv_hash_flow(&a, &x, &y, 1, 2, 17);

	CHECK(h != pv_hash_flow(&b, &x, &y, 1, 2, 17));
	CHECK(h != pv_hash_flow(&a, &y, &x, 1, 2, 17));
	CHECK(h != pv_hash_flow(&a, &x, &y, 2, 1, 17));
	CHECK(h != pv_hash_flow(&a, &x, &y, 1, 2, 6));
	CHECK(h == pv_hash_flow(&a, &x, &y, 1, 2, 17));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
