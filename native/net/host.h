/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host's network beneath ours: who decides for interfaces that the kernel owns (PV_STEER_SOCKET).
 *
 * Their addresses, MTU and link are told by pv_net_iface_set, their neighbours by pv_net_neigh_set and pv_net_neigh_fail, and any
 * other change of the host's routing by pv_net_host_changed. What cannot be told in advance is asked for through these functions:
 * a route when a path is looked up, a neighbour when a packet waits for it. Neither is called for every packet; both may be slow.
 */
#ifndef PV_NET_HOST_H
#define PV_NET_HOST_H

#include "net/net.h"

struct pv_host_query {
	struct pv_addr dst, src; /* src any: choose one */
	uint32_t kernel_index; /* 0: by any interface */
	/* For rules that look at them; 0: not known. */
	uint16_t src_port, dst_port; /* host order */
	uint8_t proto, tos;
};

struct pv_host_route {
	uint32_t kernel_index; /* where it leaves */
	struct pv_addr src;
	struct pv_addr gateway; /* any: on link */
	uint32_t mtu; /* of the route, what the host learned of the path taken into account; 0: the interface's */
	bool local; /* the destination is the host itself */
	bool broadcast;
};

struct pv_host_ops {
	/* 0, or the error with which the host refuses: -ENETUNREACH, -EHOSTUNREACH, -EACCES, -EINVAL; -EXDEV when it could not be asked. */
	int (*route)(void *ctx, const struct pv_host_query *q, struct pv_host_route *out);
	/* A packet waits for this neighbour, or it should be confirmed. The answer comes by pv_net_neigh_set or pv_net_neigh_fail, maybe
	 * before this returns. */
	void (*resolve)(void *ctx, uint32_t kernel_index, const struct pv_addr *addr);
};

/* What may change of an interface while it is there. */
struct pv_iface_state {
	char name[PV_IFNAME_MAX];
	const struct pv_ifaddr *addr;
	uint32_t naddr;
	uint32_t mtu; /* what is above the ring's is cut to it */
	bool link_up; /* false: nothing is sent by it, paths answer -EXDEV */
};

/* The whole state anew. 0, -ENODEV, -EINVAL (not an interface of the kernel's, an address that is none, more than
 * PV_IFACE_ADDR_MAX), -EEXIST (name); nothing has changed then. */
int pv_net_iface_set(struct pv_net *net, uint32_t index, const struct pv_iface_state *state);
/* The interface that the kernel numbers so, or 0. */
uint32_t pv_net_iface_of_kernel(const struct pv_net *net, uint32_t kernel_index);

/* News of a neighbour on an interface of the kernel's. `mac` NULL: the kernel has forgotten it. Neighbours to whom we never sent are
 * not kept: -ESRCH. 0, -ENODEV, -EINVAL (a group's MAC). */
int pv_net_neigh_set(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, const uint8_t *mac, int64_t now_ns);
/* It does not answer: what waits is dropped and its senders hear -EHOSTUNREACH. 0, -ENODEV, -ESRCH. */
int pv_net_neigh_fail(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, int64_t now_ns);

/* News of neighbours were lost: each is asked for again when it is next needed. */
void pv_net_neigh_doubt(struct pv_net *net);

/* Routes or rules changed: every path is looked up again. `by_ports`: the host's answers may depend on ports and protocol. */
void pv_net_host_changed(struct pv_net *net, bool by_ports);
/* A path MTU that the host was told: as if the ICMP message had come to us. Below the least plausible value the path is locked. */
void pv_net_pmtu_set(struct pv_net *net, const struct pv_addr *dst, uint32_t mtu, int64_t now_ns);

#endif
