/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP sequence numbers (RFC 9293 3.4): modulo 2^32, compared within half the space. A struct, so that `<` does not compile. */
#ifndef PV_BASE_SEQ_H
#define PV_BASE_SEQ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

typedef struct {
	uint32_t v;
} pv_seq;

pv_inline pv_seq pv_seq_of(uint32_t v)
{
	return (pv_seq){ v };
}

pv_inline pv_seq pv_seq_add(pv_seq s, uint32_t n)
{
	return (pv_seq){ s.v + n };
}

/* How far `a` is ahead of `b`; negative: behind. */
pv_inline int32_t pv_seq_diff(pv_seq a, pv_seq b)
{
	return (int32_t)(a.v - b.v);
}

/* Bytes from `from` to `to`, which is known not to be before it. */
pv_inline uint32_t pv_seq_dist(pv_seq from, pv_seq to)
{
	return to.v - from.v;
}

pv_inline bool pv_seq_eq(pv_seq a, pv_seq b)
{
	return a.v == b.v;
}

pv_inline bool pv_seq_lt(pv_seq a, pv_seq b)
{
	return pv_seq_diff(a, b) < 0;
}

pv_inline bool pv_seq_le(pv_seq a, pv_seq b)
{
	return pv_seq_diff(a, b) <= 0;
}

pv_inline bool pv_seq_gt(pv_seq a, pv_seq b)
{
	return pv_seq_diff(a, b) > 0;
}

pv_inline bool pv_seq_ge(pv_seq a, pv_seq b)
{
	return pv_seq_diff(a, b) >= 0;
}

pv_inline pv_seq pv_seq_max(pv_seq a, pv_seq b)
{
	return pv_seq_lt(a, b) ? b : a;
}

pv_inline pv_seq pv_seq_min(pv_seq a, pv_seq b)
{
	return pv_seq_lt(a, b) ? a : b;
}

#endif
