/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's network by rtnetlink (rtnetlink(7)), through libmnl: links, addresses, neighbours, their changes, and what the kernel's
 * own routing decides for a destination, policy rules and source selection included.
 *
 * One thread at a time. libmnl is loaded at run time.
 */
#ifndef PV_RT_NETLINK_H
#define PV_RT_NETLINK_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

struct pv_nl;

enum pv_nl_kind { PV_NL_LINK, PV_NL_ADDR, PV_NL_NEIGH, PV_NL_ROUTE };

/* One object of the kernel's, or a change of one. PV_NL_ROUTE stands for routes, nexthops and policy rules alike: it says only that
 * something changed, since decisions are asked for (pv_nl_route_get), not made again here. */
struct pv_nl_msg {
	enum pv_nl_kind kind;
	bool deleted;
	uint32_t ifindex;
	/* PV_NL_LINK */
	char name[IFNAMSIZ];
	uint8_t mac[PV_ETH_ALEN];
	uint32_t mtu;
	bool up, running, loopback;
	bool vrf; /* it belongs to one */
	/* PV_NL_ADDR, PV_NL_NEIGH */
	struct pv_addr addr;
	uint8_t prefix_len; /* of the family */
	bool usable; /* address: not tentative, not a failed duplicate; neighbour: `mac` may be used */
	bool failed; /* neighbour: the kernel gave up */
	bool permanent; /* neighbour: written by hand */
	bool rule; /* PV_NL_ROUTE: it was a policy rule */
};

typedef void (*pv_nl_fn)(void *ctx, const struct pv_nl_msg *msg);

/* 0 or -errno with a text. */
int pv_nl_open(struct pv_nl **out, char *err, size_t errsize);
void pv_nl_close(struct pv_nl *nl);
/* Readable when there are changes. */
int pv_nl_fd(const struct pv_nl *nl);
/* All objects of a kind, one call of `fn` each. 0 or -errno; -EINTR: they changed meanwhile, and what `fn` was told is a mixture: to be
 * forgotten and asked for again. Not for PV_NL_ROUTE. */
int pv_nl_dump(struct pv_nl *nl, enum pv_nl_kind kind, pv_nl_fn fn, void *ctx);
/* The changes that have come, at most a few dozen packets of them unless some were lost; never waits. Number of messages, or -ENOBUFS:
 * some were lost, and `fn` heard all that were not; dump everything anew. */
int pv_nl_read(struct pv_nl *nl, pv_nl_fn fn, void *ctx);

struct pv_nl_query {
	struct pv_addr dst, src; /* src any: choose */
	uint32_t oif; /* 0: any */
	uint32_t mark;
	uint8_t tos, proto;
	uint16_t src_port, dst_port;
};
struct pv_nl_answer {
	uint32_t oif;
	struct pv_addr gateway; /* any: on link */
	struct pv_addr src;
	uint32_t mtu; /* the route's or its learned path MTU; 0: the interface's */
	bool local, broadcast, multicast;
};
/* What the kernel would do now. 0, -ENETUNREACH, -EHOSTUNREACH, -EACCES (prohibit), -EINVAL (blackhole, wrong source), ... */
int pv_nl_route_get(struct pv_nl *nl, const struct pv_nl_query *q, struct pv_nl_answer *out);
/* The kernel tells of a change of links while it holds the lock that questions about routes wait for. Returns when it has let go of it. Any
 * thread, one at a time, beside all the others. */
void pv_nl_pass(struct pv_nl *nl);
/* Whether the answer may depend on ports or the protocol: 1 when a policy rule looks at them, or equal routes are chosen from by them; 0: not.
 * -errno. */
int pv_nl_route_by_ports(struct pv_nl *nl);
/* What the kernel knows of one neighbour. 0, -ENOENT, ... */
int pv_nl_neigh_get(struct pv_nl *nl, uint32_t ifindex, const struct pv_addr *addr, struct pv_nl_msg *out);
/* Asks the kernel to resolve a neighbour, as if it had traffic for it; the answer comes as a change. */
int pv_nl_neigh_use(struct pv_nl *nl, uint32_t ifindex, const struct pv_addr *addr);

/* The parser beneath read and dump, for tests: any bytes in, messages out. Number of messages, or -EBADMSG. */
int pv_nl_parse(const void *buf, size_t len, pv_nl_fn fn, void *ctx);
/* The same of pv_nl_route_get's answer, one message. 0 or -EBADMSG. */
int pv_nl_parse_route(const void *buf, size_t len, struct pv_nl_answer *out);

#endif
