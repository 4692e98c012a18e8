/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: receive queues beside an interface's first ones (rxq_open in ring/ring.h) to which sockets are led, by a key. Sockets of one key
 * share a queue. A key is chosen by the setting ring_logic_rx when the socket gets its names, or by the program; nothing changes it but the program.
 *
 * A placed socket has a rule for each address that it receives at, or for its flow, which leads to the queue of its key; sockets that receive
 * the same share the rule, over whose queues the device spreads flows then, and each member of a SO_REUSEPORT group gets those of its own.
 * A ring that opens no more queues folds: further keys share the queue that has the fewest, and each keeps it as long as it has a socket.
 *
 * All with the engine's lock.
 */
#ifndef PV_SOCK_LANE_H
#define PV_SOCK_LANE_H

#include "sock/sock.h"

/* The socket got its names, joined a group, or interfaces changed: it is placed if the setting or the program said so, and otherwise led as
 * it was. Whatever fails leaves it at the first queues. */
void pv_lane_update_slow(struct pv_sock *so);
pv_inline void pv_lane_update(struct pv_sock *so)
{
	if (pv_unlikely(so->lane || pv_engine.cfg->ring_logic_rx))
		pv_lane_update_slow(so);
}

/* SO_INCOMING_CPU says what the program said of it now: that goes before what placing made of it, until it says that any queue will do. */
void pv_lane_said_slow(struct pv_sock *so);
pv_inline void pv_lane_said(struct pv_sock *so)
{
	if (so->lane)
		pv_lane_said_slow(so);
}

/* The stack lets go of the socket; what the program said of it stays. */
void pv_lane_end_slow(struct pv_sock *so);
pv_inline void pv_lane_end(struct pv_sock *so)
{
	if (pv_unlikely(so->lane != NULL))
		pv_lane_end_slow(so);
}

void pv_lane_free(struct pv_sock *so); /* the socket is over; no engine is needed */

/* In a forked child, which has none of the rings. */
void pv_lane_forget_slow(struct pv_sock *so);
pv_inline void pv_lane_forget(struct pv_sock *so)
{
	if (so->lane)
		pv_lane_forget_slow(so);
}

/* ---- of sending (lane_send.c) ------------------------------------------------------------------------------------------ */

/* pv_engine_hooks.lane */
uint32_t pv_lane_of_sender(void *user, const struct pv_addr *src);
/* pyvma_sock_place with PYVMA_PLACE_SEND; pyvma_sock_sends_by. */
int pv_lane_place_sender(struct pv_sock *so, uint64_t value, unsigned int how);
int pv_lane_sender(const struct pv_sock *so, unsigned int i, struct pyvma_place *out);
/* What a key is made of, for both ways: enum pv_ring_logic, but for addresses. */
uint64_t pv_lane_value(uint32_t logic, const struct pv_sock *so);
/* An IPv4 address is in the second half. */
pv_inline uint64_t pv_lane_of_address(const struct pv_addr *a)
{
	return a->q[1] ^ a->q[0];
}
/* A turn of the stack, by which no ring is closed. */
void pv_lane_turn(void);

/* ---- for rules of the program's (steer.c) ------------------------------------------------------------------------------- */

/* A queue that nobody is led to: one that was left and is still open, or a new one. Its number, or what pv_ring_rxq_open says. */
int pv_lane_open(const struct pv_port *p);
/* Somebody is led there, and not any more. */
void pv_lane_use(const struct pv_port *p, uint32_t queue);
void pv_lane_leave(const struct pv_port *p, uint32_t queue);
/* pv_ring_flow_move, with turns of the stack while a queue waits for buffers. */
int pv_lane_move(struct pv_ring *ring, uint64_t handle, uint64_t set);
/* Why the interface has no such queues. -EOPNOTSUPP. */
int pv_lane_none(const struct pv_port *p);

#endif
