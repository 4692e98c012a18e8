/* SPDX-License-Identifier: BSD-3-Clause */
/* At most one node a bucket on average; growth moves every node at once, which its callers (bind, join, neighbour made) can bear. */
#include "base/htab.h"

#include <errno.h>
#include <string.h>

#define BUCKETS_MIN 16u
#define BUCKETS_MAX (1u << 28)

static struct pv_hnode **buckets_get(const struct pv_mem *mem, uint32_t n)
{
	return mem->alloc(mem->ctx, (size_t)n * sizeof(struct pv_hnode *));
}

static void buckets_put(const struct pv_mem *mem, struct pv_hnode **b, uint32_t n)
{
	mem->free(mem->ctx, b, (size_t)n * sizeof(struct pv_hnode *));
}

int pv_htab_init(struct pv_htab *t, const struct pv_mem *mem, uint32_t hint)
{
	uint32_t n = BUCKETS_MIN;

	while (n < hint && n < BUCKETS_MAX)
		n *= 2;
	memset(t, 0, sizeof(*t));
	t->bucket = buckets_get(mem, n);
	if (!t->bucket)
		return -ENOMEM;
	t->mem = mem;
	t->mask = n - 1;
	return 0;
}

void pv_htab_fini(struct pv_htab *t)
{
	if (t->bucket)
		buckets_put(t->mem, t->bucket, t->mask + 1);
	memset(t, 0, sizeof(*t));
}

static void grow(struct pv_htab *t)
{
	uint32_t n = t->mask + 1;
	struct pv_hnode **bigger;

	if (n >= BUCKETS_MAX)
		return;
	bigger = buckets_get(t->mem, 2 * n);
	if (!bigger)
		return;
	for (uint32_t i = 0; i < n; i++) {
		struct pv_hnode *node = t->bucket[i];

		while (node) {
			struct pv_hnode *next = node->next, **b = &bigger[node->hash & (2 * n - 1)];

			node->next = *b;
			*b = node;
			node = next;
		}
	}
	buckets_put(t->mem, t->bucket, n);
	t->bucket = bigger;
	t->mask = 2 * n - 1;
}

void pv_htab_add_fixed(struct pv_htab *t, struct pv_hnode *n, uint32_t hash)
{
	struct pv_hnode **b = &t->bucket[hash & t->mask];

	n->hash = hash;
	n->next = *b;
	*b = n;
	t->count++;
}

void pv_htab_add(struct pv_htab *t, struct pv_hnode *n, uint32_t hash)
{
	if (t->count > t->mask)
		grow(t);
	pv_htab_add_fixed(t, n, hash);
}

bool pv_htab_del(struct pv_htab *t, struct pv_hnode *n)
{
	for (struct pv_hnode **b = &t->bucket[n->hash & t->mask]; *b; b = &(*b)->next)
		if (*b == n) {
			*b = n->next;
			n->next = NULL;
			t->count--;
			return true;
		}
	return false;
}

struct pv_hnode *pv_htab_next(const struct pv_htab *t, const struct pv_hnode *after)
{
	uint32_t i = 0;

	if (after) {
		if (after->next)
			return after->next;
		i = (after->hash & t->mask) + 1;
	}
	for (; i <= t->mask; i++)
		if (t->bucket[i])
			return t->bucket[i];
	return NULL;
}
