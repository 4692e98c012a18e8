/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * poll, select and their kin. What is ready is asked of each socket of ours and, in one call, of the kernel for the rest. To wait the thread
 * has a set of the engine's, which is kept as it is while the program waits for the same again; what it tells is only that it is time to ask.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "preload/preload.h"

#define FDS_ON_STACK 64
#define LONGEST_S (INT64_C(1) << 32)

/* ---- the thread's set -------------------------------------------------------------------------------------------------- */

struct waiter {
	pyvma_epoll *ep;
	struct pollfd *in; /* as the set has it */
	nfds_t n, max;
};

static pthread_key_t waiter_key;
static pthread_once_t waiter_once = PTHREAD_ONCE_INIT;

static void waiter_free(void *arg)
{
	struct waiter *w = arg;

	if (w->ep)
		pyvma_epoll_close(w->ep);
	free(w->in);
	free(w);
}

static void waiter_key_make(void)
{
	pthread_key_create(&waiter_key, waiter_free);
}

static struct waiter *waiter_get(void)
{
	struct waiter *w;

	pthread_once(&waiter_once, waiter_key_make);
	w = pthread_getspecific(waiter_key);
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (w)
			pthread_setspecific(waiter_key, w);
	}
	return w;
}

static void waiter_clear(struct waiter *w)
{
	if (w->ep)
		pyvma_epoll_close(w->ep);
	w->ep = NULL;
	w->n = 0;
}

static bool same(const struct waiter *w, const struct pollfd *fds, nfds_t n)
{
	if (!w->ep || w->n != n)
		return false;
	for (nfds_t i = 0; i < n; i++)
		if (w->in[i].fd != fds[i].fd || w->in[i].events != fds[i].events)
			return false;
	return true;
}

/* The set has the fds, each once, for all events that are asked of it. */
static int waiter_fill(struct waiter *w, const struct pollfd *fds, nfds_t n)
{
	int rc;

	waiter_clear(w);
	if (n > w->max) {
		struct pollfd *grown = realloc(w->in, n * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		w->in = grown;
		w->max = n;
	}
	rc = pyvma_epoll_open(&w->ep);
	for (nfds_t i = 0; i < n && !rc; i++) {
		struct pyvma_event ev = { .events = (uint16_t)fds[i].events, .data = (uint64_t)fds[i].fd };

		w->in[i] = fds[i];
		if (fds[i].fd < 0)
			continue;
		rc = pyvma_epoll_ctl(w->ep, EPOLL_CTL_ADD, fds[i].fd, &ev);
		if (rc == -EEXIST) {
			for (nfds_t j = 0; j < i; j++)
				if (fds[j].fd == fds[i].fd)
					ev.events |= (uint16_t)fds[j].events;
			rc = pyvma_epoll_ctl(w->ep, EPOLL_CTL_MOD, fds[i].fd, &ev);
		}
		/* What cannot be in a set is always ready, or no fd at all: poll has said so. */
		if (rc == -EPERM || rc == -EBADF)
			rc = 0;
	}
	w->n = n;
	if (rc)
		waiter_clear(w);
	return rc;
}

/* ---- time -------------------------------------------------------------------------------------------------------------- */

int64_t pl_timespec_ns(const struct timespec *ts)
{
	if (!ts)
		return -1;
	if (ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec >= PL_NS_PER_S)
		return -EINVAL;
	return PV_MIN((int64_t)ts->tv_sec, LONGEST_S) * PL_NS_PER_S + ts->tv_nsec;
}

/* ---- poll -------------------------------------------------------------------------------------------------------------- */

/* `theirs` is room for n: those that are the kernel's. How many are ready, or -errno. `last`: it is the only look, and pending signals that
 * `mask` lets in are told. */
static int look(struct pollfd *fds, nfds_t n, struct pollfd *theirs, const sigset_t *mask, bool last)
{
	struct timespec zero = { 0 };
	int ready = 0, rc, others = 0;

	for (nfds_t i = 0; i < n; i++) {
		pyvma_sock *h = fds[i].fd >= 0 ? pl_sock(fds[i].fd) : NULL;

		theirs[i] = fds[i];
		fds[i].revents = 0;
		if (h) {
			rc = pyvma_sock_poll(h, fds[i].events, 0);
			/* Closed or left to the kernel meanwhile: that knows. */
			if (rc == -EBADF) {
				others++;
				continue;
			}
			theirs[i].fd = -1;
			fds[i].revents = (short)(rc < 0 ? POLLERR : rc);
			ready += rc != 0;
		} else {
			others += fds[i].fd >= 0;
		}
	}
	if (!others && !last)
		return ready;
	rc = PL_REAL(ppoll)(theirs, n, &zero, mask);
	if (rc < 0)
		return ready ? ready : -errno;
	for (nfds_t i = 0; i < n; i++) {
		if (theirs[i].fd >= 0 && theirs[i].revents) {
			fds[i].revents = theirs[i].revents;
			ready++;
		}
	}
	return ready;
}

/* Until something is, or may be, ready. */
static int sleep_for(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask, bool again)
{
	struct waiter *w = waiter_get();
	struct pyvma_event ev[FDS_ON_STACK];
	int rc;

	if (!w)
		return -ENOMEM;
	/* What woke us and was nothing may be an fd that was closed and is open by another number still. */
	rc = again || !same(w, fds, n) ? waiter_fill(w, fds, n) : 0;
	if (rc)
		return rc;
	pyvma_wait_mask(mask);
	rc = pyvma_epoll_wait(w->ep, ev, FDS_ON_STACK, timeout_ns);
	pyvma_wait_mask(NULL);
	return rc;
}

int pl_poll(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask)
{
	struct pollfd some[FDS_ON_STACK], *theirs = n > FDS_ON_STACK ? malloc(n * sizeof(*theirs)) : some;
	int64_t until = timeout_ns > 0 ? pl_now_ns() + timeout_ns : 0;
	bool again = false;
	int rc;

	if (!theirs)
		return -ENOMEM;
	for (;;) {
		if (timeout_ns > 0 && again)
			timeout_ns = PV_MAX(until - pl_now_ns(), INT64_C(0));
		rc = look(fds, n, theirs, mask, timeout_ns == 0);
		if (rc || timeout_ns == 0)
			break;
		rc = sleep_for(fds, n, timeout_ns, mask, again);
		if (rc < 0 || (rc == 0 && timeout_ns > 0))
			break;
		again = true;
	}
	if (theirs != some)
		free(theirs);
	return rc;
}

/* Is one of them a socket that is, or may become, the stack's? */
static bool any_ours(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		pl_word w = pl_get(fds[i].fd);

		if (pv_unlikely(w && !pl_set_of(w)))
			return true;
	}
	return false;
}

PL_EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (!fds || !any_ours(fds, n))
		return PL_REAL(poll)(fds, n, ms);
	return (int)pl_result(pl_poll(fds, n, ms < 0 ? -1 : ms * INT64_C(1000000), NULL));
}

PL_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	int64_t timeout_ns = pl_timespec_ns(ts);

	if (!fds || timeout_ns < -1 || !any_ours(fds, n))
		return PL_REAL(ppoll)(fds, n, ts, mask);
	return (int)pl_result(pl_poll(fds, n, timeout_ns, mask));
}

PL_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size);
PL_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask, size_t size);
_Noreturn void __chk_fail(void);

int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size)
{
	if (size / sizeof(*fds) < n)
		__chk_fail();
	return poll(fds, n, ms);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask, size_t size)
{
	if (size / sizeof(*fds) < n)
		__chk_fail();
	return ppoll(fds, n, ts, mask);
}
