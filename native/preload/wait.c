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
#define NS_PER_S INT64_C(1000000000)

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

/* ---- poll -------------------------------------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* `theirs` is room for n: those that are the kernel's. How many are ready, or -errno. */
static int look(struct pollfd *fds, nfds_t n, struct pollfd *theirs)
{
	int ready = 0, rc, others = 0;

	for (nfds_t i = 0; i < n; i++) {
		pyvma_sock *h = fds[i].fd >= 0 ? pl_sock(fds[i].fd) : NULL;

		theirs[i] = fds[i];
		fds[i].revents = 0;
		if (h) {
			rc = pyvma_sock_poll(h, fds[i].events, 0);
			if (rc < 0)
				rc = POLLNVAL;
			theirs[i].fd = -1;
			fds[i].revents = (short)rc;
			ready += rc != 0;
		} else {
			others += fds[i].fd >= 0;
		}
	}
	if (!others)
		return ready;
	rc = PL_REAL(poll)(theirs, n, 0);
	if (rc < 0)
		return -errno;
	for (nfds_t i = 0; i < n; i++) {
		if (theirs[i].fd >= 0 && theirs[i].revents) {
			fds[i].revents = theirs[i].revents;
			ready++;
		}
	}
	return ready;
}

static int poll_ours(struct pollfd *fds, nfds_t n, int64_t timeout_ns)
{
	struct pollfd some[FDS_ON_STACK], *theirs = n > FDS_ON_STACK ? malloc(n * sizeof(*theirs)) : some;
	int64_t until = timeout_ns > 0 ? now_ns() + timeout_ns : 0;
	struct waiter *w = waiter_get();
	struct pyvma_event ev[FDS_ON_STACK];
	bool again = false;
	int rc;

	if (!theirs || !w)
		return -ENOMEM;
	for (;;) {
		rc = look(fds, n, theirs);
		if (rc || timeout_ns == 0)
			break;
		if (timeout_ns > 0) {
			timeout_ns = PV_MAX(until - now_ns(), INT64_C(0));
			if (!timeout_ns)
				break;
		}
		/* What woke us and was nothing may be an fd that was closed and is open by another number still. */
		rc = again || !same(w, fds, n) ? waiter_fill(w, fds, n) : 0;
		if (!rc)
			rc = pyvma_epoll_wait(w->ep, ev, FDS_ON_STACK, timeout_ns);
		if (rc < 0)
			break;
		again = rc > 0;
	}
	if (theirs != some)
		free(theirs);
	return rc;
}

static bool any_ours(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (pv_unlikely(fds[i].fd >= 0 && pl_get(fds[i].fd) & ~PL_SET && !pl_set_of(pl_get(fds[i].fd))))
			return true;
	return false;
}

PL_EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (!any_ours(fds, n))
		return PL_REAL(poll)(fds, n, ms);
	return (int)pl_result(poll_ours(fds, n, ms < 0 ? -1 : ms * INT64_C(1000000)));
}
