/* SPDX-License-Identifier: BSD-3-Clause */
/* Hand-overs at the edge of a ring. Debug builds stamp the owner and stop at a packet that already has one; release builds do
 * nothing. */
#ifndef PV_RING_OWN_H
#define PV_RING_OWN_H

#include "pkt/pkt.h"

pv_inline void pv_ring_take(struct pv_pkt *p)
{
#ifdef PV_DEBUG
	if (p->owner != PV_OWNER_STACK && p->owner != PV_OWNER_APP)
		__builtin_trap();
	p->owner = PV_OWNER_RING;
#else
	(void)p;
#endif
}

pv_inline void pv_ring_give(struct pv_pkt *p)
{
#ifdef PV_DEBUG
	if (p->owner != PV_OWNER_RING)
		__builtin_trap();
	p->owner = PV_OWNER_STACK;
#else
	(void)p;
#endif
}

/* The first `n` of a queue, or as many as there are. */
pv_inline uint32_t pv_ring_give_first(struct pv_pktq *q, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && q->count; i++) {
		pkts[i] = pv_pktq_pop(q);
		pkts[i]->next = NULL;
		pv_ring_give(pkts[i]);
	}
	return i;
}

/* Back to the pool: what close does with every packet still inside. */
pv_inline void pv_ring_drop(struct pv_pkt *p)
{
	pv_ring_give(p);
	pv_pkt_put(p);
}

#endif
