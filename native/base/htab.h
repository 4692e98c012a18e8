/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Intrusive chained hash table: a power of two of buckets, nodes embedded in what they index. The caller hashes (hash.h) and
 * compares. Adding may grow the bucket array through pv_mem (allocates: not on the data path); when memory is short chains get
 * longer and nothing fails. Lookups never write.
 *
 * The table does not own the nodes. One thread at a time. A chain is in last-in first-out order, until the table grows.
 */
#ifndef PV_BASE_HTAB_H
#define PV_BASE_HTAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mem.h"

struct pv_hnode {
	struct pv_hnode *next;
	uint32_t hash;
};

struct pv_htab {
	struct pv_hnode **bucket;
	uint32_t mask; /* buckets - 1 */
	uint32_t count; /* nodes */
	const struct pv_mem *mem;
};

/* 0 or -ENOMEM. `hint`: nodes expected. `mem` stays the caller's and outlives the table. */
int pv_htab_init(struct pv_htab *t, const struct pv_mem *mem, uint32_t hint);
/* Frees the buckets; nodes still in it are forgotten. */
void pv_htab_fini(struct pv_htab *t);
/* The same node must not be in the table already; equal keys are the caller's business. */
void pv_htab_add(struct pv_htab *t, struct pv_hnode *n, uint32_t hash);
/* Adds without ever growing: for the data path. */
void pv_htab_add_fixed(struct pv_htab *t, struct pv_hnode *n, uint32_t hash);
/* False when the node was not there. Walks one chain. */
bool pv_htab_del(struct pv_htab *t, struct pv_hnode *n);
/* Every node in turn: NULL gives the first. The table must not grow meanwhile; to delete the one in hand, fetch its successor first. */
struct pv_hnode *pv_htab_next(const struct pv_htab *t, const struct pv_hnode *after);

/* First node with that hash at or after `n` in its chain. */
pv_inline struct pv_hnode *pv_htab_match(struct pv_hnode *n, uint32_t hash)
{
	while (n && n->hash != hash)
		n = n->next;
	return n;
}

pv_inline struct pv_hnode *pv_htab_find(const struct pv_htab *t, uint32_t hash)
{
	return pv_htab_match(t->bucket[hash & t->mask], hash);
}

#define pv_htab_entry(node, type, member) pv_container_of(node, type, member)
/* All nodes with that hash; the one in hand must not be deleted inside. */
#define pv_htab_for_each(it, tab, hash_)                                                                                           \
	for (struct pv_hnode *it = pv_htab_find(tab, hash_); it; it = pv_htab_match(it->next, hash_))

#endif
