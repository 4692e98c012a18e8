/* SPDX-License-Identifier: BSD-3-Clause */
/* What the transports have in common towards the socket layer. */
#ifndef PV_NET_ENDPOINT_H
#define PV_NET_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

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

/* Readiness records, read out with pv_stack_events: edges, each socket once. */
enum pv_event_bits { PV_EV_IN = 1, PV_EV_OUT = 4, PV_EV_ERR = 8, PV_EV_HUP = 16, PV_EV_RDHUP = 0x2000, PV_EV_PRI = 2 };
struct pv_event {
	void *user;
	uint32_t bits;
};

#endif
