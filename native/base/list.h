/* SPDX-License-Identifier: BSD-3-Clause */
/* Intrusive circular doubly linked list. A removed node points at itself, so removing twice is harmless. */
#ifndef PV_BASE_LIST_H
#define PV_BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct pv_list {
	struct pv_list *next, *prev;
};

pv_inline void pv_list_init(struct pv_list *l)
{
	l->next = l->prev = l;
}

pv_inline bool pv_list_empty(const struct pv_list *l)
{
	return l->next == l;
}

/* Before `at`: at the tail when `at` is the head of the list. */
pv_inline void pv_list_add(struct pv_list *at, struct pv_list *n)
{
	n->next = at;
	n->prev = at->prev;
	at->prev->next = n;
	at->prev = n;
}

pv_inline void pv_list_del(struct pv_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	pv_list_init(n);
}

#define pv_list_entry(node, type, member) pv_container_of(node, type, member)
#define pv_list_for_each(it, head) for (struct pv_list *it = (head)->next; it != (head); it = it->next)
#define pv_list_for_each_safe(it, tmp, head)                                                                                       \
	for (struct pv_list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)

#endif
