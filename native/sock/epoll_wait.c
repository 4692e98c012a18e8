/* SPDX-License-Identifier: BSD-3-Clause */
/* epoll_wait(2) on a set: where something of ours is in it the engine waits, else the kernel. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/ownfd.h"
#include "rt/stats.h"
#include "rt/wait.h"
#include "sock/epoll.h"
#include "sock/prefork.h"

#define TAKEN 64 /* by a wait in the kernel's set */

static int sleep_poll(int kep, int efd, int64_t left)
{
	struct timespec ts = { .tv_sec = left / PV_NS_PER_S, .tv_nsec = left % PV_NS_PER_S };
	struct pollfd p[2] = { { .fd = kep, .events = POLLIN }, { .fd = efd, .events = POLLIN } };
	int n = pv_wait_ppoll(p, 2, left < 0 ? NULL : &ts);

	/* A cancelled thread's that does not end by it. */
	if (n > 0 && p[1].revents)
		pv_wait_efd_clear(efd);
	/* What wakes it may be nothing that there is to tell, and still be there. */
	return n < 0 ? n : n == 0 || left == 0 ? -ETIMEDOUT : 0;
}

/* How many events are in `ev`. */
static int sleep_in(int kep, struct epoll_event *ev, int n, int64_t left)
{
	int rc = pv_wait_epoll(kep, ev, n, left < 0 ? -1 : (int)PV_MIN(left / PV_NS_PER_MS, (int64_t)INT_MAX));

	/* The number is another's by now (pyvma_epoll_leave). */
	return rc == -EBADF || rc == -EINVAL ? 0 : rc;
}

/*
 * Nothing of ours in it: the kernel waits. 0: look, and perhaps wait, again. Of sets that have a number with EPOLLEXCLUSIVE the kernel wakes one,
 * if somebody waits in it: those who poll it are woken all.
 */
static int wait_kernel(struct pyvma_epoll *set, struct pyvma_event *out, int n, int64_t deadline)
{
	int64_t left = deadline == PV_NEVER ? -1 : PV_MAX(deadline - pv_clock_kernel_ns(), INT64_C(0));
	struct epoll_event own = { .events = EPOLLIN, .data = { .u64 = PV_EPOLL_RING } }, ev[TAKEN];
	bool in = set->exclusive && (left < 0 || left >= PV_NS_PER_MS);
	int efd = pv_wait_efd(), kep = set->kep, rc, got;

	if (in)
		(void)epoll_ctl(kep, EPOLL_CTL_ADD, efd, &own);
	set->sleepers++;
	set->slept = true;
	pv_lock_put(&pv_engine.lock);
	rc = in ? sleep_in(kep, ev, PV_MIN(n, TAKEN), left) : sleep_poll(kep, efd, left);
	pv_lock_get(&pv_engine.lock);
	set->sleepers--;
	if (in)
		(void)epoll_ctl(set->kep, EPOLL_CTL_DEL, efd, NULL);
	got = rc > 0 ? pv_epoll_take(set, ev, rc, out) : rc;
	if (in && !got)
		pv_wait_efd_clear(efd);
	return got;
}

static int wait_ours(struct pyvma_epoll *set, struct pyvma_event *out, int n, int64_t timeout_ns)
{
	struct pv_engine *e = &pv_engine;
	struct pv_wait w;
	int got = 0, rc = 0;

	pv_wait_init(&w, &set->watch, timeout_ns);
	while (!got && !rc && !set->closed && e->stack && pv_engine_state() == PV_ENGINE_RUNNING) {
		w.kfd = pv_epoll_has_kernel(set) ? set->kep : -1;
		w.kevents = POLLIN;
		pv_engine_timers(e);
		rc = pv_wait(e, &w);
		got = set->closed ? 0 : pv_epoll_collect(set, out, n, rc != 0 || w.sleeps);
	}
	pv_wait_fini(e, &w);
	set->st->polling_ns += (uint64_t)PV_MAX(w.polled_ns, INT64_C(0));
	set->slept |= w.sleeps != 0;
	return got ? got : rc;
}

/* A forked child has its parent's stack still, and must not touch it: its sockets are the kernel's. */
static int wait_locked(struct pyvma_epoll *set, struct pyvma_event *out, int n, int64_t timeout_ns)
{
	int64_t deadline = timeout_ns < 0 ? PV_NEVER : timeout_ns ? pv_clock_kernel_ns() + timeout_ns : 0;
	int rc = 0, got;

	for (;;) {
		bool ours = set->nsock && pv_engine.stack && pv_engine_state() == PV_ENGINE_RUNNING;

		if (set->closed)
			return -EBADF;
		if (ours)
			pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
		got = pv_epoll_collect(set, out, n, rc || timeout_ns == 0 || !ours || pv_prefork_is());
		if (got || timeout_ns == 0)
			return got;
		if (rc)
			return rc == -ETIMEDOUT ? 0 : rc;
		if (pv_prefork_is())
			pv_prefork_wait_set(set);
		if (ours)
			rc =
			    wait_ours(set, out, n, deadline == PV_NEVER ? -1 : PV_MAX(deadline - pv_clock_kernel_ns(), INT64_C(0)));
		else
			rc = wait_kernel(set, out, n, deadline);
		if (rc > 0)
			return rc;
	}
}

static pv_noinline void count_other(struct pv_epoll_stat *st, int rc, bool slept)
{
	st->errors += rc < 0;
	st->timeouts += rc == 0;
	st->misses += slept;
}

void pv_epoll_count(struct pyvma_epoll *set, int rc)
{
	struct pv_epoll_stat *st = set->st;

	st->waits++;
	if (pv_likely(rc > 0 && !set->slept))
		st->hits++;
	else
		count_other(st, rc, set->slept);
	st->thread = pv_stat_thread();
	st->sockets = set->nsock;
	st->kernel_fds = set->nkernel;
}

int pyvma_epoll_wait(pyvma_epoll *set, struct pyvma_event *events, int n, int64_t timeout_ns)
{
	int rc;

	if (n <= 0)
		return -EINVAL;
	pv_lock_get(&pv_engine.lock);
	if (set->closed) { /* it may be nobody's by now */
		pv_lock_put(&pv_engine.lock);
		return -EBADF;
	}
	set->users++;
	set->slept = false;
	rc = wait_locked(set, events, n, timeout_ns);
	pv_epoll_count(set, rc);
	pv_epoll_put(set);
	return rc;
}

/* Without the lock: it is a hint. */
int pyvma_epoll_entries(const pyvma_epoll *set)
{
	return (int)(__atomic_load_n(&set->nsock, __ATOMIC_RELAXED) + __atomic_load_n(&set->nkernel, __ATOMIC_RELAXED));
}

void pyvma_epoll_leave(pyvma_epoll *set, int fd)
{
	int own;

	pv_lock_get(&pv_engine.lock);
	own = !set->closed && set->kep == fd ? pv_ownfd(fcntl(fd, F_DUPFD_CLOEXEC, 0)) : -1;
	if (own >= 0) {
		set->kep = own;
		/* Who sleeps does so on the old number. */
		pv_list_for_each(it, &set->watch.waiters)
			pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
		if (set->sleepers)
			pv_epoll_ring_bell(set);
	}
	pv_lock_put(&pv_engine.lock);
}
