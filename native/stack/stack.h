/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stack: network layer, transports and the rings beneath, driven by one owner at a time.
 *
 * The owner calls pv_stack_poll as often as it likes and at the latest at pv_stack_deadline; each call does a bounded piece of
 * work. Events are read out as records.
 */
#ifndef PV_STACK_STACK_H
#define PV_STACK_STACK_H

#include "net/host.h"
#include "net/stamp.h"
#include "tcp/tcp.h"
#include "udp/udp.h"

struct pv_stack;

struct pv_stack_cfg {
	const struct pv_mem *mem;
	uint64_t seed;
	struct pv_net_cfg net; /* mem and seed are taken from above */
	struct pv_udp_cfg udp;
	struct pv_tcp_cfg tcp; /* seed is made from the one above */
	uint32_t rx_batch; /* frames taken from a ring at once; 0: 32 */
};

int pv_stack_open(struct pv_stack **out, const struct pv_stack_cfg *cfg);
/* All sockets must be closed. Interfaces are removed; rings stay open and are the caller's to close. */
void pv_stack_close(struct pv_stack *s);

struct pv_net *pv_stack_net(struct pv_stack *s);
struct pv_udp_table *pv_stack_udp(struct pv_stack *s);
struct pv_tcp_table *pv_stack_tcp(struct pv_stack *s);

/* As pv_net_iface_add; also fills the ring's receive queue from its pool. */
int pv_stack_iface_add(struct pv_stack *s, const struct pv_iface_cfg *cfg);
int pv_stack_iface_del(struct pv_stack *s, uint32_t index);
/* As pv_net_iface_set (net/host.h), and the sockets' rules follow the addresses. */
int pv_stack_iface_set(struct pv_stack *s, uint32_t index, const struct pv_iface_state *state);

/* Its ring works no more: what leaves by it meets -ENETDOWN, and unless it is the kernel's, whose sockets have another way, the sockets
 * that are bound to it, or connected by it, hear of that once. 0, -ENODEV. */
int pv_stack_iface_fail(struct pv_stack *s, uint32_t index);
/* What its ring had in flight may be lost, and what that can do has changed (PV_RING_EV_MOVED of a bond): connections with something in flight
 * send at once instead of waiting for their timers, a few in each turn. -ENODEV. */
int pv_stack_iface_moved(struct pv_stack *s, uint32_t index, int64_t now_ns);

/* Receives at most `rx_budget` frames over all rings (fair between them), finishes sends, refills, runs due timers and kicks
 * what that posted. Returns the number of frames and timers handled; 0: nothing to do now. */
uint32_t pv_stack_poll(struct pv_stack *s, int64_t now_ns, uint32_t rx_budget);
/* Another number of frames at once, as pv_stack_cfg has it. */
void pv_stack_set_rx_batch(struct pv_stack *s, uint32_t rx_batch);
/* When pv_stack_poll has timer work next; PV_NEVER: none. */
int64_t pv_stack_deadline(const struct pv_stack *s);
uint32_t pv_stack_events(struct pv_stack *s, struct pv_event *out, uint32_t n);
/* Grows pools that run low (allocates: between data-path calls). Returns how many grew. */
uint32_t pv_stack_grow(struct pv_stack *s);

/* From now on the recorder of cfg.net.trace has the packets' stations within the stack, too (base/trace.h); without one: nothing. */
void pv_stack_trace_packets(struct pv_stack *s, bool on);

#endif
