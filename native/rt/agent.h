/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process's side of pyvmad: the daemon that makes TAP devices, attaches XDP programs and keeps redirect rules for processes that may
 * not do so themselves.
 *
 * Requests are made where sockets are bound and rings opened, never on the data path; each waits for its answer a bounded time. What
 * was got by them is remembered: when the daemon was started anew, the agent connects again and registers all of it again, by the
 * progress thread. Meanwhile rules that are in force stay.
 *
 * All with the engine's lock. `err` gets one line for the user when a call fails; NULL: nobody wants it.
 */
#ifndef PV_RT_AGENT_H
#define PV_RT_AGENT_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/ring.h"

#define PV_AGENT_QUEUES_MAX 16u

struct pv_agent;
struct pv_engine;
struct pv_xdp_cfg;

struct pv_agent_tap {
	uint32_t ifindex; /* of the TAP device, the kernel's number */
	char name[IFNAMSIZ];
	int fd[PV_AGENT_QUEUES_MAX]; /* its queues: the caller's to close; with the last one the device goes */
	uint32_t nfds;
};

struct pv_agent_xdp {
	int link_fd; /* the program stays attached as long as anybody has it open */
	int sock_fd
	    [PV_AGENT_QUEUES_MAX]; /* an AF_XDP socket a queue, in the program's map, without UMEM and rings; the caller's to close */
	uint32_t queues; /* asked for, and had */
	uint32_t mode; /* asked for: enum pv_xdp_mode */
	bool native;
};

/* The process's agent, by the setting `daemon`: made at the first call. NULL: `daemon` is `none`, or there is no memory. Nobody is asked
 * for anything yet. */
struct pv_agent *pv_agent_get(struct pv_engine *e);
/* The engine starts: where peers are to be told of a crash, the daemon hears of it now. */
void pv_agent_start(struct pv_engine *e);
/* With the engine; what it made ends with the connection. */
void pv_agent_stop(struct pv_engine *e);
/* In a forked child: what the parent has stays the parent's. */
void pv_agent_forget(struct pv_engine *e);

/* Is the daemon there, and does it let us? 0, or -ENOENT, -ECONNREFUSED, -EACCES, -EPROTO, -ETIMEDOUT, ... Connects when it is not yet. */
int pv_agent_connect(struct pv_agent *a, char *err, size_t errsize);

/* A TAP device of `queues` queues, up, with vnet headers. `ifindex` not 0: with the MAC and the MTU of that interface, and what is sent into
 * it goes out there. 0 or -errno. */
int pv_agent_tap(struct pv_agent *a, uint32_t ifindex, uint32_t queues, struct pv_agent_tap *out, char *err, size_t errsize);
/* The caller has closed, or is about to close, the queues: it and its rules are not registered again, and the daemon
 * deletes them with the device. */
void pv_agent_tap_drop(struct pv_agent *a, uint32_t tap);

/* The XDP program on an interface, and sockets for its first `out->queues` queues, in `out->mode`. 0 or -errno: -EBUSY (somebody has the
 * hook), ... */
int pv_agent_xdp(struct pv_agent *a, uint32_t ifindex, struct pv_agent_xdp *out, char *err, size_t errsize);
/* The same as a ring; `cfg` as for pv_xdp_open. */
int pv_agent_xdp_open(struct pv_agent *a, struct pv_ring **out, struct pv_pool *pool, struct pv_xdp_cfg *cfg, char *err,
		      size_t errsize);
void pv_agent_xdp_drop(struct pv_agent *a, uint32_t ifindex);

/* What comes to the interface `ifindex` for a 3-tuple or 5-tuple goes to the TAP device `tap`; 0: to the AF_XDP sockets of the interface.
 * A kernel socket of this process that is bound to the address and port proves that it may ask. 0, -EACCES (no such socket), -EEXIST
 * (another process has it), -ENOSPC, -EAGAIN (the daemon is away: it gets the rule when it is back), ... */
int pv_agent_flow_add(struct pv_agent *a, uint32_t ifindex, uint32_t tap, const struct pv_flow *flow, char *err, size_t errsize);
/* Does not wait for the answer. 0, or -ENOENT: never added. */
int pv_agent_flow_del(struct pv_agent *a, uint32_t ifindex, uint32_t tap, const struct pv_flow *flow);

/* The kernel is to resolve a neighbour, which takes privileges to ask for. Does not wait. */
void pv_agent_neigh(struct pv_agent *a, uint32_t ifindex, const struct pv_addr *addr);

/* An fd that is readable when the daemon went, or said something that nobody waits for; -1: not connected. */
int pv_agent_fd(const struct pv_agent *a);
/* When the daemon is to be looked for again; PV_NEVER: connected, or nobody needs it. */
int64_t pv_agent_deadline(const struct pv_agent *a);
/* After either: reads, connects again, registers everything again. True: the daemon is back, or is there for the first time. */
bool pv_agent_serve(struct pv_agent *a);
/* The same of the engine's agent, where there is one; interfaces that could not be offloaded without the daemon are tried again. */
void pv_agent_tick(struct pv_engine *e);

/* agent_proof.c: a descriptor of this process that is bound to the flow's address (or any) and port; -1: none. */
int pv_agent_proof(const struct pv_flow *flow);

#endif
