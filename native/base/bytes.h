/* SPDX-License-Identifier: BSD-3-Clause */
/* Unaligned big-endian loads and stores: the only way bytes of a frame are read or written. */
#ifndef PV_BASE_BYTES_H
#define PV_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

pv_inline uint16_t pv_get16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

pv_inline uint32_t pv_get32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

pv_inline void pv_put16(void *p, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(p, &v, sizeof(v));
}

pv_inline void pv_put32(void *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, sizeof(v));
}

/*
 * A payload to where the program wants it, which is nowhere near. Of a memcpy whose length varies compilers make `rep movs`, which takes longer
 * to begin than all of a short copy: some words, and the last ones up to the end, wherever that is.
 */
pv_inline void pv_copy(void *to, const void *from, size_t n)
{
	typedef uint64_t words __attribute__((vector_size(16)));
	const uint8_t *src = from, *end = src + n;
	uint8_t *dst = to, *dst_end = dst + n;
	words w[4];

	if (pv_likely(n >= 32 && n <= 64)) {
		memcpy(&w[0], src, 16);
		memcpy(&w[1], src + 16, 16);
		memcpy(&w[2], end - 32, 16);
		memcpy(&w[3], end - 16, 16);
		memcpy(dst, &w[0], 16);
		memcpy(dst + 16, &w[1], 16);
		memcpy(dst_end - 32, &w[2], 16);
		memcpy(dst_end - 16, &w[3], 16);
	} else {
		memcpy(to, from, n);
	}
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pyvma runs on little-endian machines"
#endif

#endif
