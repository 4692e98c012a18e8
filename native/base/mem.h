/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the core gets memory. It asks only while something opens or grows, never on the data path; the runtime implements the
 * table (heap, huge pages), tests implement it with limits.
 */
#ifndef PV_BASE_MEM_H
#define PV_BASE_MEM_H

#include <stddef.h>

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
	void *ctx;
};

#endif
