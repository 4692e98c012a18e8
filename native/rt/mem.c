/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "rt/stats.h"

#define HUGE_PAGE ((size_t)2 << 20)

static _Atomic(size_t) huge_bytes;

static void *heap_alloc(void *ctx, size_t size)
{
	size_t rounded = (size + PV_CACHELINE - 1) & ~(size_t)(PV_CACHELINE - 1);
	void *p = size && rounded >= size ? aligned_alloc(PV_CACHELINE, rounded) : NULL;

	(void)ctx;
	return p ? memset(p, 0, rounded) : NULL;
}

static void heap_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	(void)size;
	free(p);
}

/* A huge page is not started for less than half of one: a small engine stays small. */
static size_t huge_size(size_t size)
{
	return (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
}

static void *map(size_t size, int flags)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_DONTFORK);
	return p;
}

static void *dma_alloc(void *ctx, size_t size)
{
	(void)ctx;
	return size ? map(size, 0) : NULL;
}

static void dma_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	munmap(p, size);
}

/* Sizes are rounded to whole huge pages whichever kind is there, so that free need not know; pages never touched cost nothing. */
static void *huge_alloc(void *ctx, size_t size)
{
	if (size < HUGE_PAGE / 2)
		return dma_alloc(ctx, size);
	size_t whole = huge_size(size);
	void *p = map(whole, MAP_HUGETLB);

	if (p) {
		atomic_fetch_add(&huge_bytes, whole);
		return p;
	}
	return map(whole, 0);
}

static void huge_free(void *ctx, void *p, size_t size)
{
	dma_free(ctx, p, size < HUGE_PAGE / 2 ? size : huge_size(size));
}

size_t pv_mem_huge_bytes(void)
{
	return atomic_load(&huge_bytes);
}

const struct pv_mem *pv_mem_system(bool huge_pages)
{
#define OBJECTS                                                                                                                    \
	.alloc = heap_alloc, .free = heap_free, .alloc_shown = pv_stats_alloc, .free_shown = pv_stats_free, .show = pv_stats_show, \
	.hide = pv_stats_hide
	static const struct pv_mem plain = { OBJECTS, .alloc_dma = dma_alloc, .free_dma = dma_free };
	static const struct pv_mem huge = { OBJECTS, .alloc_dma = huge_alloc, .free_dma = huge_free };
#undef OBJECTS

	return huge_pages ? &huge : &plain;
}
