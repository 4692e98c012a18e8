/* SPDX-License-Identifier: BSD-3-Clause */
/* What the transports have in common towards the socket layer. */
#ifndef PV_NET_ENDPOINT_H
#define PV_NET_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/list.h"

enum pv_family { PV_AF_INET = 2, PV_AF_INET6 = 10 };

struct pv_endpoint {
	struct pv_addr addr;
	uint16_t port; /* host order */
	uint32_t iface; /* scope; 0: none */
};

struct pv_iov {
	const void *base;
	size_t len;
};

/* Readiness records, taken off the tables' lists by whoever runs the stack (pv_teller_take, pv_stack_events): edges, each socket once. */
enum pv_event_bits { PV_EV_IN = 1, PV_EV_OUT = 4, PV_EV_ERR = 8, PV_EV_HUP = 16, PV_EV_RDHUP = 0x2000, PV_EV_PRI = 2 };
struct pv_event {
	void *user;
	uint32_t bits;
};

/* A socket's: what it has to tell, on its table's list as long as that is anything; and whom. */
struct pv_teller {
	struct pv_list on_ready;
	uint32_t bits; /* PV_EV_* */
	int err; /* pending, positive */
	void *user;
};

pv_inline void pv_teller_add(struct pv_list *ready, struct pv_teller *t, uint32_t bits)
{
	if (pv_list_empty(&t->on_ready))
		pv_list_add(ready, &t->on_ready);
	t->bits |= bits;
}

/* Of a list that is not empty. */
pv_inline struct pv_event pv_teller_take(struct pv_list *ready)
{
	struct pv_teller *t = pv_list_entry(ready->next, struct pv_teller, on_ready);
	struct pv_event ev = { t->user, t->bits };

	t->bits = 0;
	pv_list_del(&t->on_ready);
	return ev;
}

pv_inline uint32_t pv_teller_take_some(struct pv_list *ready, struct pv_event *out, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && !pv_list_empty(ready))
		out[i++] = pv_teller_take(ready);
	return i;
}

#endif
