/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for a socket: spin, then sleep. The caller holds the engine's lock, tries, and as long as that says -EAGAIN calls pv_wait,
 * which may let go of the lock meanwhile and returns with it held:
 *
 *	pv_wait_init(&w, &watch, timeout_ns);
 *	while ((n = try()) == -EAGAIN && !(rc = pv_wait(e, &w)))
 *		(check that the socket is still the same);
 *	pv_wait_fini(e, &w);
 */
#ifndef PV_RT_WAIT_H
#define PV_RT_WAIT_H

#include <poll.h>
#include <signal.h>

#include "rt/engine.h"

struct epoll_event;

struct pv_wait {
	struct pv_waiter waiter;
	struct pv_watch *watch;
	int64_t timeout_ns; /* < 0: for ever */
	int64_t nap_ns; /* a sleep is no longer than this: for what no ring interrupts, room to send; PV_NEVER: any */
	int64_t deadline, spin_until, signals_at;
	int64_t polls_since, seen_ns; /* it polls since then; the latest time that the stack was told, once it has begun */
	int64_t polled_ns; /* how long it polled, sleeps left out */
	int kfd; /* a kernel socket to watch too; -1: none */
	short kevents;
	bool kwatched; /* another thread is asleep on it, and would wake this one: so a sleep has one fd less */
	bool kready; /* that is why the last pv_wait returned, as far as it looked */
	bool begun, masked;
	bool interrupted; /* its last sleep, which something else ended as well */
	uint32_t turns, sleeps;
	sigset_t saved; /* the mask under which this waits, while `masked` */
	sigset_t before; /* the thread's own then */
};

pv_inline void pv_wait_init(struct pv_wait *w, struct pv_watch *watch, int64_t timeout_ns)
{
	w->watch = watch;
	w->timeout_ns = timeout_ns;
	w->nap_ns = PV_NEVER;
	w->kfd = -1;
	w->kevents = 0;
	w->kwatched = false;
	w->kready = false;
	w->begun = false;
	w->polled_ns = 0;
	w->masked = false;
	w->turns = 0;
	w->sleeps = 0;
}

/* 0: something may have changed, try again; -ETIMEDOUT; -EINTR: a signal's handler ran; -EMFILE and the like when no fd can be had. */
int pv_wait(struct pv_engine *e, struct pv_wait *w);
/* Must follow, before the lock is let go, whatever pv_wait returned. */
void pv_wait_end(struct pv_engine *e, struct pv_wait *w);

pv_inline void pv_wait_fini(struct pv_engine *e, struct pv_wait *w)
{
	if (w->begun)
		pv_wait_end(e, w);
}

/* ppoll(2), under the mask of pyvma_wait_mask if there is one. -errno. */
int pv_wait_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts);
/* epoll_wait(2), the same way. */
int pv_wait_epoll(int ep, struct epoll_event *ev, int n, int ms);

/* This thread's wake-up fd, made at first use and closed when the thread ends; -errno. Not inherited by a forked child. */
int pv_wait_efd(void);
/* It is not readable any more. */
void pv_wait_efd_clear(int fd);
/* In a forked child: the numbers of this thread's are closed, before the program's own can have them. */
void pv_wait_forked(void);

#endif
