/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deadlines in O(1): a hierarchical timing wheel (Varghese, Lauck 1987) of intrusive timers. For many timers that are nearly always
 * moved before they come due. A timer never comes due early; it comes due at most one tick of the lowest level late.
 *
 * The wheel does not own the timers: whoever frees one disarms it first. One thread at a time. Nothing allocates after init.
 */
#ifndef PV_BASE_WHEEL_H
#define PV_BASE_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

#define PV_WHEEL_BITS 8u
#define PV_WHEEL_SLOTS (1u << PV_WHEEL_BITS)
#define PV_WHEEL_LEVELS 5u
/* A tick of the lowest level: 2^14 ns, 16 us. The highest level spans 208 days; what is later waits there. */
#define PV_WHEEL_TICK_SHIFT 14u

struct pv_wtimer {
	struct pv_list link;
	int64_t deadline_ns; /* PV_NEVER: not armed. Zeroed memory is no timer: pv_wtimer_init */
};

struct pv_wheel {
	uint64_t now_tick; /* every slot before it is empty */
	uint32_t count; /* timers armed */
	uint64_t used[PV_WHEEL_LEVELS][PV_WHEEL_SLOTS / 64]; /* which slots hold timers */
	struct pv_list slot[PV_WHEEL_LEVELS][PV_WHEEL_SLOTS];
	struct pv_list due; /* came due and not popped yet, in order */
};

void pv_wheel_init(struct pv_wheel *w, int64_t now_ns);
/* Arms or moves; PV_NEVER disarms. O(1). */
void pv_wheel_set(struct pv_wheel *w, struct pv_wtimer *t, int64_t deadline_ns);
void pv_wheel_del(struct pv_wheel *w, struct pv_wtimer *t);
/* Disarms and returns a timer that is due, or NULL. Those of one tick come in the order in which they were armed. */
struct pv_wtimer *pv_wheel_pop_due(struct pv_wheel *w, int64_t now_ns);
/* When to call pv_wheel_pop_due next: the tick in which the first timer comes due, or earlier by at most the span of its slot; never a
 * time at which it has been called already in vain. PV_NEVER: no timer. Looks at the bitmaps only. */
int64_t pv_wheel_deadline(const struct pv_wheel *w);

pv_inline void pv_wtimer_init(struct pv_wtimer *t)
{
	pv_list_init(&t->link);
	t->deadline_ns = PV_NEVER;
}

pv_inline bool pv_wtimer_armed(const struct pv_wtimer *t)
{
	return t->deadline_ns != PV_NEVER;
}

#endif
