/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Four children a node: the children of one node lie in one or two cache lines, and the tree is half as deep as a binary one.
 * Children of i (from 1) are 4i-2 .. 4i+1.
 */
#include "base/heap.h"

#include <errno.h>
#include <string.h>

static void place(struct pv_heap *h, uint32_t pos, struct pv_heap_slot s)
{
	h->slot[pos] = s;
	s.timer->pos = pos;
}

static void sift_up(struct pv_heap *h, uint32_t pos, struct pv_heap_slot s)
{
	while (pos > 1) {
		uint32_t parent = (pos + 2) / 4;

		if (h->slot[parent].deadline_ns <= s.deadline_ns)
			break;
		place(h, pos, h->slot[parent]);
		pos = parent;
	}
	place(h, pos, s);
}

static void sift_down(struct pv_heap *h, uint32_t pos, struct pv_heap_slot s)
{
	for (;;) {
		uint64_t first = 4 * (uint64_t)pos - 2, last = PV_MIN(first + 3, (uint64_t)h->count);
		uint32_t best;

		if (first > h->count)
			break;
		best = (uint32_t)first;
		for (uint32_t i = best + 1; i <= last; i++)
			if (h->slot[i].deadline_ns < h->slot[best].deadline_ns)
				best = i;
		if (h->slot[best].deadline_ns >= s.deadline_ns)
			break;
		place(h, pos, h->slot[best]);
		pos = best;
	}
	place(h, pos, s);
}

int pv_heap_init(struct pv_heap *h, const struct pv_mem *mem, uint32_t cap)
{
	memset(h, 0, sizeof(*h));
	h->mem = mem;
	return pv_heap_reserve(h, PV_MAX(cap, 15u));
}

void pv_heap_fini(struct pv_heap *h)
{
	if (h->slot)
		h->mem->free(h->mem->ctx, h->slot, ((size_t)h->cap + 1) * sizeof(*h->slot));
	memset(h, 0, sizeof(*h));
}

int pv_heap_reserve(struct pv_heap *h, uint32_t cap)
{
	struct pv_heap_slot *slot;

	if (cap <= h->cap)
		return 0;
	if (cap > UINT32_MAX / 4)
		return -ENOMEM;
	cap = PV_MAX(cap, 2 * h->cap + 1);
	slot = h->mem->alloc(h->mem->ctx, ((size_t)cap + 1) * sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	if (h->slot) {
		memcpy(slot, h->slot, ((size_t)h->count + 1) * sizeof(*slot));
		h->mem->free(h->mem->ctx, h->slot, ((size_t)h->cap + 1) * sizeof(*slot));
	}
	h->slot = slot;
	h->cap = cap;
	return 0;
}

int pv_heap_set(struct pv_heap *h, struct pv_timer *t, int64_t deadline_ns)
{
	struct pv_heap_slot s = { deadline_ns, t };
	int64_t before = t->deadline_ns;

	if (deadline_ns == PV_NEVER) {
		pv_heap_del(h, t);
		return 0;
	}
	if (!t->pos && h->count == h->cap)
		return -ENOSPC;
	t->deadline_ns = deadline_ns;
	if (!t->pos)
		sift_up(h, ++h->count, s);
	else if (deadline_ns < before)
		sift_up(h, t->pos, s);
	else
		sift_down(h, t->pos, s);
	return 0;
}

void pv_heap_del(struct pv_heap *h, struct pv_timer *t)
{
	uint32_t pos = t->pos;
	struct pv_heap_slot last;

	if (!pos)
		return;
	t->pos = 0;
	last = h->slot[h->count--];
	if (last.timer == t)
		return;
	if (last.deadline_ns < t->deadline_ns)
		sift_up(h, pos, last);
	else
		sift_down(h, pos, last);
}
