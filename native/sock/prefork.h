/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listeners that several processes accept from, of which one has the ring (doc/preload.md).
 *
 * Of processes that each serve one connection at a time the one with the ring must take a connection only when it is about to serve it, or
 * it waits behind another while its siblings idle. So its listeners' rules get a gate, which is open while it waits for them, lets in one
 * connection and is shut behind it; the others are the kernel's, and of whoever accepts first. What serves several at once shows that by
 * waiting for more while it has one: then there is no gate any more, but while no epoll set has the listener. Workers that take turns (nginx
 * with accept_mutex) have it in theirs for as long as their turn is, and sleep in it.
 */
#ifndef PV_SOCK_PREFORK_H
#define PV_SOCK_PREFORK_H

#include "sock/epoll.h"

/* After a fork, in both. */
void pv_prefork_own(void);
/* May another process have listeners of this one's? */
bool pv_prefork_shared(void);

/* ---- all with the engine's lock ---------------------------------------------------------------------------------------- */

void pv_prefork_forked(void); /* in the child */
/* A listener that was there before is ours; or this process has no ring. */
void pv_prefork_listens(struct pv_sock *so);
void pv_prefork_kernels(void);
/* What pv_prefork_listens gave to the extra fd's set is readable. False: `ptr` is none of that. */
bool pv_prefork_readable(const void *ptr);

extern uint32_t pv_prefork_gates, pv_prefork_several;

/* Is there a sibling without the ring, and a listener here that may have a gate? Asked before the calls below. */
pv_inline bool pv_prefork_is(void)
{
	return pv_unlikely(pv_prefork_gates != 0);
}

/* The kernel has a connection for a listener, which a sibling may take before us: then accept4(2) waits for another one, if it may. PV_HANDED:
 * it may, nothing comes by the stack meanwhile; -EAGAIN: one of the stack's is about to come; 0: no siblings. */
int pv_prefork_hand_over(void);
/* Is a connection of the stack's there, or about to be? */
bool pv_prefork_expects(void);
/* The same for this listener, or another one that is waited for together with it. */
bool pv_prefork_comes(const struct pv_sock *so);
/* A wait for it begins; for one that is not such a listener nothing happens. */
void pv_prefork_wait(struct pv_sock *so);
void pv_prefork_wait_set(const struct pyvma_epoll *set);
/* A connection was accepted, the stack's or the kernel's. Then which socket it is, if it is the stack's. */
void pv_prefork_taken(void);
void pv_prefork_serves(struct pv_sock *so);
/* Asked if pv_prefork_several: a first set has it from now on, or none has it any more. */
void pv_prefork_watched(struct pv_sock *so, bool by_any);

#endif
