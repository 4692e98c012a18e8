/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums are taken over 64-bit words with the carry added back in: ones' complement addition does not care how wide the words are
 * (RFC 1071 2(C)).
 */
#include "base/cksum.h"

/* Fewer than 8 bytes, as the low bytes of a word: zeros pad the rest. */
pv_inline uint64_t load_few(const uint8_t *p, size_t len)
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

static pv_noinline uint64_t add_any(const uint8_t *p, size_t len, uint64_t sum)
{
	for (; len >= 128; len -= 128, p += 128)
		sum = pv_cksum_add64(p + 64, pv_cksum_add64(p, sum));
	return pv_cksum_is_short(len) ? pv_cksum_short(p, len, sum) : pv_cksum_merge(sum, load_few(p, len));
}

uint64_t pv_cksum_add(const void *data, size_t len, uint64_t sum)
{
	return pv_likely(pv_cksum_is_short(len)) ? pv_cksum_short(data, len, sum) : add_any(data, len, sum);
}

/* The copy is what is summed: the source may be an application's buffer that another thread writes to. */
pv_inline uint64_t copy64(uint8_t *d, const uint8_t *p, uint64_t sum)
{
	memcpy(d, p, 64);
	return pv_cksum_add64(d, sum);
}

pv_inline uint64_t copy8(uint8_t *d, const uint8_t *p, uint64_t sum)
{
	uint64_t v = pv_cksum_word(p);

	memcpy(d, &v, sizeof(v));
	return pv_cksum_merge(sum, v);
}

pv_inline uint64_t copy_short(uint8_t *d, const uint8_t *p, size_t len, uint64_t sum)
{
	uint64_t end = pv_cksum_word(p + len - 8);

	/* The last bytes first, with some that are copied once more: those are summed as they are then. */
	memcpy(d + len - 8, &end, sizeof(end));
	sum = pv_cksum_merge(sum, pv_cksum_end(end, len));
	if (len & 64) {
		sum = copy64(d, p, sum);
		p += 64;
		d += 64;
	}
	if (len & 32) {
		memcpy(d, p, 32);
		sum = pv_cksum_add32(d, sum);
		p += 32;
		d += 32;
	}
	if (len & 16) {
		sum = copy8(d + 8, p + 8, copy8(d, p, sum));
		p += 16;
		d += 16;
	}
	return len & 8 ? copy8(d, p, sum) : sum;
}

static pv_noinline uint64_t copy_any(uint8_t *d, const uint8_t *p, size_t len, uint64_t sum)
{
	for (; len >= 128; len -= 128, p += 128, d += 128)
		sum = copy64(d + 64, p + 64, copy64(d, p, sum));
	if (pv_cksum_is_short(len))
		return copy_short(d, p, len, sum);
	for (size_t i = 0; i < len; i++)
		d[i] = p[i];
	return pv_cksum_merge(sum, load_few(d, len));
}

uint64_t pv_cksum_copy(void *restrict dst, const void *restrict src, size_t len, uint64_t sum)
{
	return pv_likely(pv_cksum_is_short(len)) ? copy_short(dst, src, len, sum) : copy_any(dst, src, len, sum);
}
