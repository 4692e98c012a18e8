/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums are taken over 64-bit words with the carry added back in: ones' complement addition does not care how wide the words are
 * (RFC 1071 2(C)). On x86-64 one add-with-carry chain takes 64 bytes in nine instructions, which compilers do not find by
 * themselves; elsewhere the portable form is used.
 */
#include "base/cksum.h"

pv_inline uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* 64 bytes. */
pv_inline uint64_t add_block(const uint8_t *p, uint64_t sum)
{
#if defined(__x86_64__)
	__asm__("addq 0(%1), %0\n\t"
		"adcq 8(%1), %0\n\t"
		"adcq 16(%1), %0\n\t"
		"adcq 24(%1), %0\n\t"
		"adcq 32(%1), %0\n\t"
		"adcq 40(%1), %0\n\t"
		"adcq 48(%1), %0\n\t"
		"adcq 56(%1), %0\n\t"
		"adcq $0, %0"
		: "+r"(sum)
		: "r"(p), "m"(*(const uint8_t(*)[64])p)
		: "cc");
	return sum;
#else
	uint64_t a = pv_cksum_merge(load64(p), load64(p + 8));
	uint64_t b = pv_cksum_merge(load64(p + 16), load64(p + 24));
	uint64_t c = pv_cksum_merge(load64(p + 32), load64(p + 40));
	uint64_t d = pv_cksum_merge(load64(p + 48), load64(p + 56));

	return pv_cksum_merge(sum, pv_cksum_merge(pv_cksum_merge(a, b), pv_cksum_merge(c, d)));
#endif
}

/* Fewer than 8 bytes, as the low bytes of a word: zeros pad the rest. */
pv_inline uint64_t load_tail(const uint8_t *p, size_t len)
{
	uint64_t v = 0;

	if (len & 4) {
		uint32_t w;

		memcpy(&w, p, 4);
		v = w;
		p += 4;
	}
	if (len & 2) {
		uint16_t w;

		memcpy(&w, p, 2);
		v |= (uint64_t)w << ((len & 4) * 8);
		p += 2;
	}
	if (len & 1)
		v |= (uint64_t)*p << ((len & 6) * 8);
	return v;
}

uint64_t pv_cksum_add(const void *data, size_t len, uint64_t sum)
{
	const uint8_t *p = data;

	for (; len >= 64; p += 64, len -= 64)
		sum = add_block(p, sum);
	for (; len >= 8; p += 8, len -= 8)
		sum = pv_cksum_merge(sum, load64(p));
	return len ? pv_cksum_merge(sum, load_tail(p, len)) : sum;
}

uint64_t pv_cksum_copy(void *restrict dst, const void *restrict src, size_t len, uint64_t sum)
{
	const uint8_t *p = src;
	uint8_t *d = dst;

	/* The copy is what is summed: the source may be an application's buffer that another thread writes to. */
	for (; len >= 64; p += 64, d += 64, len -= 64) {
		memcpy(d, p, 64);
		sum = add_block(d, sum);
	}
	for (; len >= 8; p += 8, d += 8, len -= 8) {
		uint64_t v = load64(p);

		memcpy(d, &v, sizeof(v));
		sum = pv_cksum_merge(sum, v);
	}
	if (!len)
		return sum;
	memcpy(d, p, len);
	return pv_cksum_merge(sum, load_tail(p, len));
}
