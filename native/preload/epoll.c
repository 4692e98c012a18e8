/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epoll. A set of the program's is one of the engine's, and the fd is the kernel's set inside that one: pollable, and in other sets. That it
 * may be polled costs each event a bell, and a progress thread that never stands by, so it is shown when the program first does so.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "preload/preload.h"

#define EVENTS_ON_STACK 256

struct pl_set {
	pyvma_epoll *ep;
	_Atomic(uint32_t) fds; /* numbers that lead to it */
	_Atomic(bool) shown; /* somebody polls its number, or has it in a set */
	_Atomic(bool) left; /* it is the kernel's, or about to be: its numbers leave the table */
	struct pl_set *next; /* free list: the memory stays */
};

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pl_set *free_sets;

void pl_epoll_forked(void)
{
	pthread_mutex_init(&free_lock, NULL);
}

static struct pl_set *set_new(pyvma_epoll *ep)
{
	struct pl_set *set;

	pthread_mutex_lock(&free_lock);
	set = free_sets;
	if (set)
		free_sets = set->next;
	pthread_mutex_unlock(&free_lock);
	if (!set)
		set = malloc(sizeof(*set));
	if (!set)
		return NULL;
	set->ep = ep;
	atomic_store_explicit(&set->fds, 1, memory_order_relaxed);
	atomic_store_explicit(&set->left, false, memory_order_relaxed);
	atomic_store_explicit(&set->shown, false, memory_order_relaxed);
	return set;
}

void pl_set_show(struct pl_set *set)
{
	if (!atomic_load_explicit(&set->shown, memory_order_relaxed) && PL_IN(pyvma_epoll_fileno(set->ep)) >= 0)
		atomic_store_explicit(&set->shown, true, memory_order_relaxed);
}

void pl_set_get(struct pl_set *set)
{
	atomic_fetch_add(&set->fds, 1);
}

void pl_set_put(struct pl_set *set, int fd)
{
	int kep;

	/* Whoever opens something gets this number next, and others lead to the set still. */
	if (atomic_load(&set->fds) > 1)
		pyvma_epoll_leave(set->ep, fd);
	if (atomic_fetch_sub(&set->fds, 1) > 1) {
		(void)PL_REAL(close)(fd);
		return;
	}
	kep = pyvma_epoll_number(set->ep);
	pyvma_epoll_close(set->ep);
	if (kep != fd)
		(void)PL_REAL(close)(fd);
	pthread_mutex_lock(&free_lock);
	set->next = free_sets;
	free_sets = set;
	pthread_mutex_unlock(&free_lock);
}

void pl_set_retreat(struct pl_set *set)
{
	int kep;

	if (atomic_exchange(&set->left, true))
		return;
	kep = pyvma_epoll_retreat(set->ep);
	/* The program has closed the first of its numbers, and the set's is one of its own since (pl_set_put). */
	if (pl_set_of(pl_get(kep)) != set)
		(void)PL_REAL(close)(kep);
}

static int create(int flags)
{
	pyvma_epoll *ep;
	struct pl_set *set;
	int fd, rc;

	if (flags & ~EPOLL_CLOEXEC || !pl_on())
		return PL_REAL(epoll_create1)(flags);
	rc = (int)PL_IN(pyvma_epoll_open(&ep));
	if (rc)
		return (int)pl_result(rc);
	fd = pyvma_epoll_number(ep);
	set = set_new(ep);
	if (!set || !pl_put(fd, (pl_word)set + PL_SET)) {
		(void)PL_IN((pyvma_epoll_close(ep), 0));
		return (int)pl_result(-ENOMEM);
	}
	if (!(flags & EPOLL_CLOEXEC))
		(void)PL_REAL(ioctl)(fd, FIONCLEX);
	return fd;
}

PL_EXPORT int epoll_create1(int flags)
{
	return create(flags);
}

PL_EXPORT int epoll_create(int size)
{
	return size > 0 ? create(0) : PL_REAL(epoll_create)(size);
}

/* The kernel is asked once the set's number leads there. */
static pv_noinline bool left_to_kernel(int ep, const struct pl_set *set)
{
	if (!atomic_load(&set->left))
		return false;
	while (pl_set_of(pl_get(ep)) == set)
		sched_yield();
	return true;
}

/* While a thread was in it (retreat.c)? */
pv_inline bool became_kernels(int ep, const struct pl_set *set, int rc)
{
	return pv_unlikely(rc == -EBADF) && left_to_kernel(ep, set);
}

PL_EXPORT int epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	struct pl_set *set = pl_set_of(pl_get(ep));
	struct pyvma_event e = { 0 };
	pl_word w = pl_get(fd);
	int rc;

	if (pv_unlikely(pl_set_of(w) != NULL))
		pl_set_show(pl_set_of(w));
	if (!set)
		return PL_REAL(epoll_ctl)(ep, op, fd, ev);
	if (w == PL_LATE && op == EPOLL_CTL_ADD)
		(void)pl_use(fd);
	if (ev)
		e = (struct pyvma_event){ .events = ev->events, .data = ev->data.u64 };
	rc = (int)PL_IN(pyvma_epoll_ctl(set->ep, op, fd, ev ? &e : NULL));
	return became_kernels(ep, set, rc) ? PL_REAL(epoll_ctl)(ep, op, fd, ev) : (int)pl_result(rc);
}

pv_inline int wait_epoll(pyvma_epoll *ep, struct pyvma_event *ev, int n, int64_t timeout_ns, const sigset_t *mask)
{
	int rc;

	if (pv_unlikely(mask != NULL))
		pyvma_wait_mask(mask);
	rc = pyvma_epoll_wait(ep, ev, n, timeout_ns);
	if (pv_unlikely(mask != NULL))
		pyvma_wait_mask(NULL);
	return rc;
}

int pl_wait_epoll(pyvma_epoll *ep, struct pyvma_event *ev, int n, int64_t timeout_ns, const sigset_t *mask)
{
	return wait_epoll(ep, ev, n, timeout_ns, mask);
}

/*
 * Of `n` that a call has room for. Threads may add while it waits, and others to the kernel's set by a number that was shown: for those
 * there is what the stack has.
 */
static int most_told(struct pl_set *set, int n)
{
	return PV_MIN(n, PV_MAX(pyvma_epoll_entries(set->ep), EVENTS_ON_STACK));
}

pv_inline void tell(struct epoll_event *ev, const struct pyvma_event *told, int n)
{
	for (int i = 0; i < n; i++)
		ev[i] = (struct epoll_event){ .events = told[i].events, .data = { .u64 = told[i].data } };
}

static pv_noinline int wait_for_many(struct pl_set *set, struct epoll_event *ev, int n, int64_t timeout_ns, const sigset_t *mask)
{
	struct pyvma_event some[EVENTS_ON_STACK], *told = some;
	void *more PL_LENT = NULL;
	int rc, room = most_told(set, n);

	if (room > EVENTS_ON_STACK) {
		rc = pl_lend(&more, (size_t)room * sizeof(*told));
		if (rc)
			room = EVENTS_ON_STACK;
		else
			told = more;
	}
	rc = (int)PL_POINT(pl_wait_epoll(set->ep, told, room, timeout_ns, mask));
	tell(ev, told, rc);
	return rc;
}

/* timeout_ns -1: for ever. */
pv_inline int wait_for_some(struct pl_set *set, struct epoll_event *ev, int n, int64_t timeout_ns, const sigset_t *mask)
{
	struct pyvma_event told[EVENTS_ON_STACK];
	int rc;

	if (pv_unlikely(n > EVENTS_ON_STACK))
		return wait_for_many(set, ev, n, timeout_ns, mask);
	if (pv_unlikely(n <= 0))
		return -EINVAL;
	rc = (int)PL_POINT(wait_epoll(set->ep, told, n, timeout_ns, mask));
	tell(ev, told, rc);
	return rc;
}

PL_EXPORT int epoll_wait(int ep, struct epoll_event *ev, int n, int ms)
{
	struct pl_set *set = pl_set_of(pl_get(ep));
	int rc;

	if (pv_unlikely(!set))
		return PL_REAL(epoll_wait)(ep, ev, n, ms);
	rc = wait_for_some(set, ev, n, ms < 0 ? -1 : ms * INT64_C(1000000), NULL);
	if (pv_likely(rc >= 0))
		return rc;
	return became_kernels(ep, set, rc) ? PL_REAL(epoll_wait)(ep, ev, n, ms) : (int)pl_result(rc);
}

static pv_noinline int wait_for(struct pl_set *set, struct epoll_event *ev, int n, int64_t timeout_ns, const sigset_t *mask)
{
	return wait_for_some(set, ev, n, timeout_ns, mask);
}

PL_EXPORT int epoll_pwait(int ep, struct epoll_event *ev, int n, int ms, const sigset_t *mask)
{
	struct pl_set *set = pl_set_of(pl_get(ep));
	int rc;

	if (!set)
		return PL_REAL(epoll_pwait)(ep, ev, n, ms, mask);
	rc = wait_for(set, ev, n, ms < 0 ? -1 : ms * INT64_C(1000000), mask);
	return became_kernels(ep, set, rc) ? PL_REAL(epoll_pwait)(ep, ev, n, ms, mask) : (int)pl_result(rc);
}

PL_EXPORT int epoll_pwait2(int ep, struct epoll_event *ev, int n, const struct timespec *ts, const sigset_t *mask)
{
	struct pl_set *set = pl_set_of(pl_get(ep));
	int64_t timeout_ns;
	int rc;

	if (!set)
		return PL_REAL(epoll_pwait2)(ep, ev, n, ts, mask);
	timeout_ns = pl_timespec_ns(ts);
	rc = timeout_ns < -1 ? (int)timeout_ns : wait_for(set, ev, n, timeout_ns, mask);
	return became_kernels(ep, set, rc) ? PL_REAL(epoll_pwait2)(ep, ev, n, ts, mask) : (int)pl_result(rc);
}
