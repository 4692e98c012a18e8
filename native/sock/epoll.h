/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of sockets and fds that are waited for together: epoll(7).
 *
 * Every entry hangs on its set, and an entry for a socket of ours on that socket as well. Events of the stack move it to the set's
 * ready list; what it says is found out when somebody asks, so a wait costs as much as there is ready and nothing for those that are
 * not. Whatever the kernel knows about (its own fds, sockets that are the kernel's so far, kernel legs) is in one epoll set of the
 * kernel's, which is looked at every so many calls, and before sleeping.
 *
 * Locks: entries of sockets are added and removed under the registry's and the engine's lock, everything else under the engine's.
 */
#ifndef PV_SOCK_EPOLL_H
#define PV_SOCK_EPOLL_H

#include "sock/sock.h"

/* Of one socket or fd in one set. */
struct pv_entry {
	struct pyvma_epoll *set;
	struct pv_sock *so; /* NULL: the kernel's alone */
	struct pv_list on_sock, on_ready;
	uint64_t data;
	uint32_t events; /* as asked for */
	uint32_t kernel_bits; /* found by this wait */
	uint32_t index, gen; /* what the kernel's set calls it */
	int key; /* the fd it was added by; -1: by its handle */
	int kfd; /* in the kernel's set; -1: not */
	int leg; /* of what `kfd` is, or is a duplicate */
	bool used, spent; /* spent: EPOLLONESHOT, and told */
	bool twin; /* `kfd` is a duplicate, and the entry's own */
};

struct epoll_event;

struct pyvma_epoll {
	struct pv_watch watch; /* who waits here */
	struct pv_list ready, unused; /* entries */
	struct pv_entry **chunk; /* of entries; they do not move */
	uint32_t nchunk;
	uint32_t *by_fd; /* entry's number + 1; 0: none */
	uint32_t nby_fd;
	struct epoll_event *told; /* by the kernel */
	uint32_t ntold;
	uint32_t nkernel, nsock; /* entries in the kernel's set, and of sockets */
	uint32_t users; /* threads inside */
	uint32_t sleepers; /* of them in the kernel's epoll_wait */
	uint32_t turns; /* since the kernel's set was looked at */
	int64_t looked_ns; /* when that was */
	pid_t pid; /* whose it is: a forked child has the same set of the kernel's */
	int kep, bell; /* the kernel's set; an eventfd in it that is readable while something of ours may be ready */
	bool exported, rung, closed;
	bool exclusive; /* something was added with EPOLLEXCLUSIVE */
	bool slept; /* the wait under way has */
	bool passed_over; /* what the kernel alone has filled a call, and something of ours was ready */
	/* Of an event loop (turn.c): `armed`: it may sleep, and what becomes ready rings the bell. */
	bool looped, armed;
	struct pv_list on_loops;
	uint32_t nring, ports_gen;
	int ring_fd[PV_IFACE_MAX]; /* in the kernel's set */
	struct pv_epoll_stat *st; /* what it counts and shows: the memory's, as struct pv_sock's */
	struct pyvma_epoll *next; /* free list */
};

/* All with the engine's lock. */
/* Wakes those who wait in the set, and rings its bell where that is due. */
void pv_epoll_alarm(struct pyvma_epoll *set);
/* There may be something to tell of the entry. */
pv_inline void pv_entry_ready(struct pv_entry *en)
{
	struct pyvma_epoll *set = en->set;

	if (pv_unlikely(en->spent))
		return;
	if (pv_list_empty(&en->on_ready))
		pv_list_add(&set->ready, &en->on_ready);
	if (pv_unlikely(!pv_list_empty(&set->watch.waiters) || (set->sleepers | set->exported | set->armed)))
		pv_epoll_alarm(set);
}
/* An event of the stack's; PV_EV_*. */
pv_inline void pv_epoll_event(struct pv_sock *so, uint32_t bits)
{
	bits |= pv_ready_norm(bits);
	pv_list_for_each(it, &so->entries) {
		struct pv_entry *en = pv_list_entry(it, struct pv_entry, on_sock);

		if (bits & (en->events | PV_EV_ERR | PV_EV_HUP))
			pv_entry_ready(en);
	}
}
/* The stack took the socket over, or left it to the kernel. */
void pv_epoll_moved(struct pv_sock *so);
/* The socket is gone. Takes the lock itself; the registry's is held. */
void pv_epoll_gone(struct pv_sock *so);

/* For turn.c. What is ready goes to `out`; `kernel`: the kernel's set is looked at in any case. */
int pv_epoll_collect(struct pyvma_epoll *set, struct pyvma_event *out, int n, bool kernel);
/* The same of `n` events that the kernel's set told. */
int pv_epoll_take(struct pyvma_epoll *set, const struct epoll_event *ev, int n, struct pyvma_event *out);
/* The end of a wait that came to `rc`. */
void pv_epoll_count(struct pyvma_epoll *set, int rc);
void pv_epoll_ring_bell(struct pyvma_epoll *set);
void pv_epoll_put_closed(struct pyvma_epoll *set);
/* The end of a call that counted itself in `users`: gives the lock back. */
pv_inline void pv_epoll_put(struct pyvma_epoll *set)
{
	if (pv_unlikely(set->closed)) {
		pv_epoll_put_closed(set);
		return;
	}
	set->users--;
	pv_lock_put(&pv_engine.lock);
}
/* Does the kernel know of any of its entries? Others may have added to it by its fd. */
pv_inline bool pv_epoll_has_kernel(const struct pyvma_epoll *set)
{
	return set->nkernel || set->exported;
}
/* What the kernel's set calls the fds of the rings, and of threads that wait in it. */
#define PV_EPOLL_RING (UINT64_MAX - 1)

/* epoll_kernel.c. epoll_ctl of what the kernel's set calls the entry; out of it; in line with what the entry is now. 0 or -errno. */
int pv_entry_ctl(struct pv_entry *en, int op, int fd, uint32_t events);
void pv_entry_drop(struct pv_entry *en);
int pv_entry_sync(struct pv_entry *en);

/* turn.c: the set is closed; this is a forked child. */
void pv_loop_close(struct pyvma_epoll *set);
void pv_loops_forked(void);

/* What poll(2) would show of a socket of ours; `kernel`: its kernel leg included. */
uint32_t pv_sock_revents(struct pv_sock *so, uint32_t events, bool kernel);

#endif
