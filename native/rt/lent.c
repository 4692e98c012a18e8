/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/lent.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rt/log.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* One piece of a pool's memory, of which something is lent. */
struct area {
	struct area *next;
	void *base;
	size_t size;
	struct piece *pieces;
};

struct piece {
	struct piece *next;
	void *at;
	uint32_t len;
	uint8_t bytes[];
};

static struct area *saved;

static struct area *area_of(const struct pv_pool *pool, const void *at)
{
	struct area *a;
	size_t size;
	void *base;

	for (a = saved; a; a = a->next)
		if ((uintptr_t)at - (uintptr_t)a->base < a->size)
			return a;
	for (uint32_t i = 0; pv_pool_chunk(pool, i, &base, &size); i++) {
		if ((uintptr_t)at - (uintptr_t)base >= size)
			continue;
		a = malloc(sizeof(*a));
		if (a) {
			*a = (struct area){ .next = saved, .base = base, .size = size };
			saved = a;
		}
		return a;
	}
	return NULL;
}

static bool save(const struct pv_pool *pool, const struct pv_pkt *pkt)
{
	struct area *a = area_of(pool, pkt->data);
	struct piece *p = a ? malloc(sizeof(*p) + pkt->len) : NULL;

	if (!p)
		return false;
	p->at = pkt->data;
	p->len = pkt->len;
	memcpy(p->bytes, pkt->data, pkt->len);
	p->next = a->pieces;
	a->pieces = p;
	return true;
}

static bool save_pool(struct pv_pool *pool)
{
	bool all = !pool->store || save_pool(pool->store);

	for (uint32_t i = 0; i < pool->total; i++) {
		const struct pv_pkt *pkt = pv_pool_pkt(pool, i);

		if (pkt->flags & PV_PKT_LENT)
			all &= save(pool, pkt);
	}
	return all;
}

void pv_lent_save(const struct pv_engine *e)
{
	bool all = true;

	if (!e->stat->lent)
		return;
	for (uint32_t i = 0; i < e->nports; i++)
		all &= save_pool(e->ports[i].pool);
	for (uint32_t i = 0; i < e->nlimbo; i++)
		all &= save_pool(e->limbo[i]);
	if (!all)
		pv_log(PV_LOG_WARN, "fork: no memory to copy the lent buffers; the child has not all of them");
}

void pv_lent_drop(void)
{
	while (saved) {
		struct area *a = saved;

		while (a->pieces) {
			struct piece *p = a->pieces;

			a->pieces = p->next;
			free(p);
		}
		saved = a->next;
		free(a);
	}
}

void pv_lent_restore(void)
{
	for (struct area *a = saved; a; a = a->next) {
		/* Where the pool was is a hole; what the pieces do not touch costs nothing. */
		void *p = mmap(a->base, a->size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

		if (p != a->base) {
			if (p != MAP_FAILED)
				munmap(p, a->size); /* a kernel before 4.17 takes the address for a wish */
			pv_log(PV_LOG_WARN, "fork: this process has no copy of the lent buffers");
			continue;
		}
		for (const struct piece *piece = a->pieces; piece; piece = piece->next)
			memcpy(piece->at, piece->bytes, piece->len);
	}
	pv_lent_drop();
}
