/* SPDX-License-Identifier: BSD-3-Clause */
/* What host.c (following the kernel) and host_ask.c (questions about it) share. */
#ifndef PV_RT_HOST_PRIV_H
#define PV_RT_HOST_PRIV_H

#include "rt/host.h"
#include "rt/netlink.h"

struct host_entry {
	struct pv_ifspec spec; /* as in the settings: the name by which a new interface is found */
	struct pv_host_state state; /* kernel_index 0: it is not there */
	char name[IFNAMSIZ]; /* now */
	bool lost; /* it was deleted since, even if there is one of that name or number again */
	bool retry; /* a ring that could not be opened may be by now */
	bool more; /* addresses than we can have; told once */
	int64_t taken_ns; /* since when its queues or hook were found taken; 0: not so */
	int64_t again_ns, fails_ns; /* when a bond without legs is asked for them again, since when it has none; 0: not so */
	uint32_t iface; /* the stack's; 0: no ring */
	const char *reason; /* why there is none */
};

struct pv_host {
	struct pv_nl *nl; /* NULL: no rtnetlink, nothing is offloaded */
	struct host_entry entry[PV_IFACE_MAX];
	uint32_t n;
	bool links, addrs, routes, rules; /* changed since the last round */
	bool fresh; /* so did routes, since the progress thread began to wait for the kernel */
	bool by_ports; /* routes may depend on them */
	bool bonds; /* some entry has several devices beneath */
	bool legs; /* links changed that may be such */
	int64_t legs_ns; /* when they are looked at again in any case */
	bool moved; /* interfaces were changed by this round */
	int64_t again_ns; /* when the next ring that could not be had is tried again, or the tables are */
	bool blind; /* the kernel's tables could not be read yet: any address may be of an entry */
};

#endif
