/* SPDX-License-Identifier: BSD-3-Clause */
/* What a spinning receiver does, without calls: sn_rxq_look and sn_rxq_drop are sn_rxq_peek and sn_rxq_pop of fabric.h. */
#ifndef SN_FAB_INLINE_H
#define SN_FAB_INLINE_H

#include "softnic/fab.h"

/* True: nothing is there. False: perhaps; now and then also to have it looked whether the next slot's sender has died. */
pv_inline bool sn_rxq_idle(struct sn_rxq *q)
{
	if (pv_unlikely(sn_get(&q->slot[q->pos & q->mask].seq) == (uint32_t)q->pos) ||
	    pv_unlikely((q->idle + 1) % SN_IDLE_CHECK == 0))
		return false;
	q->idle++;
	return true;
}

pv_inline bool sn_rxq_look(struct sn_rxq *q, struct sn_frame *out)
{
	const struct sn_slot *slot = &q->slot[q->pos & q->mask];
	uint32_t len;

	if (pv_unlikely(sn_get(&slot->seq) != (uint32_t)q->pos))
		return sn_rxq_peek(q, out);
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

/* `rss_hash` of the frame that sn_rxq_look showed. */
pv_inline uint32_t sn_rxq_hash(const struct sn_rxq *q)
{
	return q->slot[q->pos & q->mask].hash;
}

pv_inline void sn_rxq_drop(struct sn_rxq *q)
{
	if (pv_unlikely(q->pos + q->n - q->told >= q->quarter))
		sn_rxq_pop(q);
	else
		q->pos += q->n;
}

#endif
