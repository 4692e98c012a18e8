/* SPDX-License-Identifier: BSD-3-Clause */
/* The two calls that a spinning receiver makes, without a call: the same as sn_rxq_peek and sn_rxq_pop of fabric.h. */
#ifndef SN_FAB_INLINE_H
#define SN_FAB_INLINE_H

#include "softnic/fab.h"

pv_inline bool sn_rxq_look(struct sn_rxq *q, struct sn_frame *out)
{
	const struct sn_slot *slot = &q->slot[q->pos & q->mask];
	uint32_t len;

	if (pv_likely(sn_get(&slot->seq) != (uint32_t)q->pos)) {
		/* Now and then it is looked whether the next slot's sender has died. */
		if (pv_unlikely((q->idle + 1) % SN_IDLE_CHECK == 0))
			return sn_rxq_peek(q, out);
		q->idle++;
		return false;
	}
	len = slot->len;
	if (pv_unlikely(len - 1 >= SN_SLOT_DATA))
		return sn_rxq_peek(q, out);
	pv_prefetch(&slot->data[SN_SLOT_LINE]);
	out->len = len;
	out->flags = slot->flags;
	out->tstamp_ns = (uint64_t)slot->tstamp_hi << 32 | slot->tstamp_lo;
	out->seg[0] = slot->data;
	out->seg_len[0] = len;
	out->nseg = 1;
	q->n = 1;
	return true;
}

pv_inline void sn_rxq_drop(struct sn_rxq *q)
{
	if (pv_unlikely(q->pos + q->n - q->told >= q->quarter))
		sn_rxq_pop(q);
	else
		q->pos += q->n;
}

#endif
