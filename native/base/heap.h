/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines: a 4-ary heap of intrusive timers. Places are reserved when the timer's owner is made (pv_heap_reserve allocates), so
 * that arming never does. Equal deadlines come out in an order that depends on the calls only, never on addresses.
 *
 * The heap does not own the timers: whoever frees one disarms it first. One thread at a time.
 */
#ifndef PV_BASE_HEAP_H
#define PV_BASE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mem.h"

struct pv_timer {
	int64_t deadline_ns;
	uint32_t pos; /* place in the heap from 1; 0: not armed. Zeroed memory is a disarmed timer */
};

struct pv_heap_slot {
	int64_t deadline_ns; /* copy: comparing needs no look at the timer */
	struct pv_timer *timer;
};

struct pv_heap {
	struct pv_heap_slot *slot; /* slot[1] is the first to come due; slot[0] is not used */
	uint32_t count, cap;
	const struct pv_mem *mem;
};

/* 0 or -ENOMEM. `mem` stays the caller's and outlives the heap. */
int pv_heap_init(struct pv_heap *h, const struct pv_mem *mem, uint32_t cap);
/* Timers still armed are forgotten: their `pos` is left as it is. */
void pv_heap_fini(struct pv_heap *h);
/* Room for `cap` timers in all; grows at least twofold, never shrinks. 0 or -ENOMEM (then nothing changed). Allocates. */
int pv_heap_reserve(struct pv_heap *h, uint32_t cap);

/* Arms or moves; PV_NEVER disarms. 0, or -ENOSPC when no place was reserved. O(log n). */
int pv_heap_set(struct pv_heap *h, struct pv_timer *t, int64_t deadline_ns);
/* Disarms; harmless when not armed. O(log n). */
void pv_heap_del(struct pv_heap *h, struct pv_timer *t);

pv_inline bool pv_timer_armed(const struct pv_timer *t)
{
	return t->pos != 0;
}

/* The next to come due, or NULL. */
pv_inline struct pv_timer *pv_heap_min(const struct pv_heap *h)
{
	return h->count ? h->slot[1].timer : NULL;
}

/* Its time, or PV_NEVER. */
pv_inline int64_t pv_heap_deadline(const struct pv_heap *h)
{
	return h->count ? h->slot[1].deadline_ns : PV_NEVER;
}

/* Disarms and returns the first timer that is due, or NULL. */
pv_inline struct pv_timer *pv_heap_pop_due(struct pv_heap *h, int64_t now_ns)
{
	struct pv_timer *t;

	if (pv_heap_deadline(h) > now_ns)
		return NULL;
	t = pv_heap_min(h);
	if (t)
		pv_heap_del(h, t);
	return t;
}

#endif
