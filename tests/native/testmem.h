/* SPDX-License-Identifier: BSD-3-Clause */
/* struct pv_mem for tests: counts what is out, and refuses after a number of allocations. */
#ifndef TESTMEM_H
#define TESTMEM_H

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct testmem {
	struct pv_mem mem;
	size_t bytes; /* out now */
	long blocks; /* out now */
	long fail_in; /* allocations until one fails; -1: never */
};

static inline void *testmem_get(struct testmem *m, size_t align, size_t size)
{
	void *p;

	if (m->fail_in == 0 || posix_memalign(&p, align, size ? size : 1))
		return NULL;
	if (m->fail_in > 0)
		m->fail_in--;
	m->blocks++;
	m->bytes += size;
	return memset(p, 0, size);
}

static inline void *testmem_alloc(void *ctx, size_t size)
{
	return testmem_get(ctx, 64, size);
}

static inline void *testmem_alloc_dma(void *ctx, size_t size)
{
	return size % 4096 ? NULL : testmem_get(ctx, 4096, size);
}

static inline void testmem_free(void *ctx, void *p, size_t size)
{
	struct testmem *m = ctx;

	m->blocks--;
	m->bytes -= size;
	free(p);
}

static inline const struct pv_mem *testmem_init(struct testmem *m)
{
	*m = (struct testmem){ .mem = { .alloc = testmem_alloc,
					.free = testmem_free,
					.alloc_dma = testmem_alloc_dma,
					.free_dma = testmem_free,
					.ctx = m },
			       .fail_in = -1 };
	return &m->mem;
}

#endif
