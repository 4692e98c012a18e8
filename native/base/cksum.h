/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Internet checksum (RFC 1071).
 *
 * A partial sum is a 64-bit ones' complement sum of the data as it stands in memory (words are never byte-swapped, RFC 1071 2(B)),
 * so folded sums are stored and compared as they are: pv_cksum_put writes one, pv_cksum_get reads one. Sums of pieces may be
 * added with pv_cksum_merge; a piece that follows an odd number of bytes is turned first (pv_cksum_at). Any thread.
 */
#ifndef PV_BASE_CKSUM_H
#define PV_BASE_CKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/addr.h"
#include "base/compiler.h"

/* `partial` plus the sum of `len` bytes at any alignment; an odd last byte is padded with zero. */
uint64_t pv_cksum_add(const void *p, size_t len, uint64_t partial);
/* The same and a copy to `dst`, which does not overlap `src`. */
uint64_t pv_cksum_copy(void *dst, const void *src, size_t len, uint64_t partial);

pv_inline uint64_t pv_cksum_merge(uint64_t a, uint64_t b)
{
	a += b;
	return a + (a < b);
}

pv_inline uint64_t pv_cksum_word(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

pv_inline uint64_t pv_cksum_add32(const uint8_t *p, uint64_t sum)
{
#if defined(__x86_64__)
	__asm__("addq 0(%1), %0\n\t"
		"adcq 8(%1), %0\n\t"
		"adcq 16(%1), %0\n\t"
		"adcq 24(%1), %0\n\t"
		"adcq $0, %0"
		: "+r"(sum)
		: "r"(p), "m"(*(const uint8_t(*)[32])p)
		: "cc");
	return sum;
#else
	uint64_t a = pv_cksum_merge(pv_cksum_word(p), pv_cksum_word(p + 8));
	uint64_t b = pv_cksum_merge(pv_cksum_word(p + 16), pv_cksum_word(p + 24));

	return pv_cksum_merge(sum, pv_cksum_merge(a, b));
#endif
}

/* On x86-64 one add-with-carry chain takes 64 bytes in nine instructions, which compilers do not find by themselves. */
pv_inline uint64_t pv_cksum_add64(const uint8_t *p, uint64_t sum)
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
	return pv_cksum_add32(p + 32, pv_cksum_add32(p, sum));
#endif
}

/* The last len % 8 of at least 8 bytes, whose last 8 are `word`. */
pv_inline uint64_t pv_cksum_end(uint64_t word, size_t len)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "the bytes in front of them are shifted out at the low end"
#endif
	return word >> 8 >> (56 - (len & 7) * 8);
}

/* pv_cksum_add without a call, for where each packet passes, of 8 to 127 bytes. No loop: a power of two after the other, as in Linux's
 * csum_partial. */
pv_inline bool pv_cksum_is_short(size_t len)
{
	return len - 8 < 120;
}

pv_inline uint64_t pv_cksum_short(const uint8_t *p, size_t len, uint64_t sum)
{
	sum = pv_cksum_merge(sum, pv_cksum_end(pv_cksum_word(p + len - 8), len));
	if (len & 64) {
		sum = pv_cksum_add64(p, sum);
		p += 64;
	}
	if (len & 32) {
		sum = pv_cksum_add32(p, sum);
		p += 32;
	}
	if (len & 16) {
		sum = pv_cksum_merge(pv_cksum_merge(sum, pv_cksum_word(p)), pv_cksum_word(p + 8));
		p += 16;
	}
	return len & 8 ? pv_cksum_merge(sum, pv_cksum_word(p)) : sum;
}

/* The sum of a piece that starts `offset` bytes into the data: bytes swap places after an odd offset (RFC 1071 2(B)). */
pv_inline uint64_t pv_cksum_at(uint64_t partial, size_t offset)
{
	return offset & 1 ? (partial << 8) | (partial >> 56) : partial;
}

/* 16-bit ones' complement sum, not complemented; 0 only for the sum of nothing but zeros. */
pv_inline uint16_t pv_cksum_fold(uint64_t partial)
{
	uint32_t s;

	/* Each half added to the other: the upper one gets the lower one's carry. */
	partial += partial << 32 | partial >> 32;
	s = (uint32_t)(partial >> 32);
	s += s << 16 | s >> 16;
	return (uint16_t)(s >> 16);
}

/* The value for a checksum field. */
pv_inline uint16_t pv_cksum_finish(uint64_t partial)
{
	return (uint16_t)~pv_cksum_fold(partial);
}

/* The value for a UDP checksum field, where 0 means "none" and is sent as all ones (RFC 768). */
pv_inline uint16_t pv_cksum_finish_udp(uint64_t partial)
{
	uint16_t v = pv_cksum_finish(partial);

	return v ? v : UINT16_MAX;
}

/* True when data that includes its checksum field, and the pseudo-header if there is one, sums up to all ones. */
pv_inline bool pv_cksum_ok(uint64_t partial)
{
	return pv_cksum_fold(partial) == UINT16_MAX;
}

pv_inline void pv_cksum_put(void *field, uint16_t v)
{
	memcpy(field, &v, sizeof(v));
}

pv_inline uint16_t pv_cksum_get(const void *field)
{
	uint16_t v;

	memcpy(&v, field, sizeof(v));
	return v;
}

/* Field after 16 bits of the data changed from `from` to `to`, all three as they stand in memory (RFC 1624 eqn. 3). */
pv_inline uint16_t pv_cksum_adjust(uint16_t field, uint16_t from, uint16_t to)
{
	return pv_cksum_finish((uint64_t)(uint16_t)~field + (uint16_t)~from + to);
}

/* An IPv4 header without options: five words. */
pv_inline uint64_t pv_cksum_ip4_header(const void *h)
{
	uint32_t w[5];

	memcpy(w, h, sizeof(w));
	return (uint64_t)w[0] + w[1] + w[2] + w[3] + w[4];
}

/* Pseudo-header of RFC 793 3.1 and RFC 768; the addresses as they stand on the wire, `len` of the L4 header and payload. */
pv_inline uint64_t pv_cksum_pseudo4(uint32_t src, uint32_t dst, uint8_t proto, uint32_t len)
{
	return (uint64_t)src + dst + __builtin_bswap32(len + ((uint32_t)proto << 16));
}

/* Pseudo-header of RFC 8200 8.1; 16-byte addresses. */
pv_inline uint64_t pv_cksum_pseudo6(const void *src, const void *dst, uint8_t proto, uint32_t len)
{
	uint64_t a[2], b[2];
	uint64_t s;

	memcpy(a, src, sizeof(a));
	memcpy(b, dst, sizeof(b));
	s = pv_cksum_merge(pv_cksum_merge(a[0], a[1]), pv_cksum_merge(b[0], b[1]));
	return pv_cksum_merge(s, (uint64_t)__builtin_bswap32(len) + __builtin_bswap32(proto));
}

/* The pseudo-header of whichever family `src` is; both are of the same. */
pv_inline uint64_t pv_cksum_pseudo(const struct pv_addr *src, const struct pv_addr *dst, uint8_t proto, uint32_t len)
{
	return pv_addr_is4(src) ? pv_cksum_pseudo4(src->w[3], dst->w[3], proto, len) : pv_cksum_pseudo6(src->b, dst->b, proto, len);
}

#endif
