/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the core gets memory. It asks only while something opens or grows, never on the data path; the runtime implements the
 * table (heap, huge pages), tests implement it with limits.
 */
#ifndef PV_BASE_MEM_H
#define PV_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct pv_stat_type;

struct pv_mem {
	/* Zeroed memory aligned to at least a cache line, or NULL. */
	void *(*alloc)(void *ctx, size_t size);
	void (*free)(void *ctx, void *p, size_t size);
	/* Page-aligned zeroed memory fit for registration with a device, or NULL. `size` is a multiple of 4096. */
	void *(*alloc_dma)(void *ctx, size_t size);
	void (*free_dma)(void *ctx, void *p, size_t size);
	/* As alloc, of an object that other processes may read (base/stats.h); NULL functions: alloc and free serve. */
	void *(*alloc_shown)(void *ctx, size_t size);
	void (*free_shown)(void *ctx, void *p, size_t size);
	/* From now on readers find `obj`, which lies in such memory and is one of `type`; what hide takes. 0: nobody is shown anything. With alloc_shown only. */
	uint32_t (*show)(void *ctx, const struct pv_stat_type *type, const void *obj);
	void (*hide)(void *ctx, uint32_t id);
	void *ctx;
};

pv_inline void *pv_mem_alloc_shown(const struct pv_mem *mem, size_t size)
{
	return (mem->alloc_shown ? mem->alloc_shown : mem->alloc)(mem->ctx, size);
}

pv_inline void pv_mem_free_shown(const struct pv_mem *mem, void *p, size_t size)
{
	(mem->free_shown ? mem->free_shown : mem->free)(mem->ctx, p, size);
}

pv_inline uint32_t pv_mem_show(const struct pv_mem *mem, const struct pv_stat_type *type, const void *obj)
{
	return mem->show ? mem->show(mem->ctx, type, obj) : 0;
}

pv_inline void pv_mem_hide(const struct pv_mem *mem, uint32_t id)
{
	if (mem->hide)
		mem->hide(mem->ctx, id);
}

#endif
