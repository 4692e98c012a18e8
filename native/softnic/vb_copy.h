/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of frame size without a call or a loop: the first and the last piece of half the size class, which may overlap. A frame of
 * 64 bytes payload is eight vector moves.
 */
#ifndef SN_VB_COPY_H
#define SN_VB_COPY_H

#include <string.h>

#include "base/compiler.h"

/* Of constant size: the compiler makes it loads, then stores. */
pv_inline void vb_copy_ends(uint8_t *to, const uint8_t *from, uint32_t len, const uint32_t piece)
{
	memcpy(to, from, piece);
	memcpy(to + len - piece, from + len - piece, piece);
}

pv_inline void vb_copy(uint8_t *to, const uint8_t *from, uint32_t len)
{
	if (pv_likely(len > 64 && len <= 128))
		vb_copy_ends(to, from, len, 64);
	else if (len >= 32 && len <= 64)
		vb_copy_ends(to, from, len, 32);
	else
		memcpy(to, from, len);
}

#endif
