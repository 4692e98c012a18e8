/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of frame size without a call: a short frame is four to eight vector moves, the last of which may overlap the one before. */
#ifndef SN_VB_COPY_H
#define SN_VB_COPY_H

#include <string.h>

#include "base/compiler.h"

#define VB_COPY_SHORT 256u

pv_inline void vb_copy16(uint8_t *to, const uint8_t *from)
{
	memcpy(to, from, 16); /* of constant size: one load, one store */
}

pv_inline void vb_copy(uint8_t *to, const uint8_t *from, uint32_t len)
{
	if (pv_unlikely(len < 16 || len > VB_COPY_SHORT)) {
		memcpy(to, from, len);
		return;
	}
	for (uint32_t at = 0; at < len - 16; at += 16)
		vb_copy16(to + at, from + at);
	vb_copy16(to + len - 16, from + len - 16);
}

#endif
