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

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pyvma runs on little-endian machines"
#endif

#endif
