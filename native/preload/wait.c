/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * poll, select and their kin. What is ready is asked of each socket of ours and, in one call, of the kernel for the rest. To wait the thread
 * has a set of the engine's, which is kept as it is while the program waits for the same again; what it tells is only that it is time to ask.
 * A handler that interrupts such a wait, and waits itself, has a set of its own for that.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "preload/preload.h"

#define PIECE 64 /* fds or events on the stack */
#define LONGEST_S (INT64_C(1) << 32)

/* ---- the thread's set -------------------------------------------------------------------------------------------------- */

struct waiter {
	pyvma_epoll *ep;
	struct pollfd *in; /* what it was asked for; `revents` is what the set has of each, where one socket is there twice */
	nfds_t n, max;
	enum pyvma_waits waits; /* as the set says */
	bool busy; /* a wait is under way */
	pyvma_epoll **lent; /* where the set is left to a loan; NULL: the thread's own */
};

static pthread_key_t waiter_key;
static pthread_once_t waiter_once = PTHREAD_ONCE_INIT;

/* Within the engine. */
static int waiter_close(struct waiter *w)
{
	if (w->ep)
		pyvma_epoll_close(w->ep);
	w->ep = NULL;
	return 0;
}

static void waiter_free(void *arg)
{
	struct waiter *w = arg;

	(void)PL_IN(waiter_close(w));
	free(w->in);
	free(w);
}

static void waiter_key_make(void)
{
	pthread_key_create(&waiter_key, waiter_free);
}

/* A handler that waited before this was within the engine has made it. */
static int waiter_new(void)
{
	struct waiter *w = pthread_getspecific(waiter_key) ? NULL : calloc(1, sizeof(*w));

	if (w)
		pthread_setspecific(waiter_key, w);
	return 0;
}

/* Memory is asked for as if by the engine: a jump out of a handler that interrupts malloc would leave its lock behind. */
static struct waiter *waiter_get(void)
{
	struct waiter *w;

	pthread_once(&waiter_once, waiter_key_make);
	w = pthread_getspecific(waiter_key);
	if (!w) {
		(void)PL_IN(waiter_new());
		w = pthread_getspecific(waiter_key);
	}
	return w;
}

/* The thread's set is, in the kernel, its parent's too: what is put into it here would wake that. Where a handler has forked the wait that it
 * interrupted needs the set until it ends; the next one finds it filled with nothing. */
void pl_wait_forked(void)
{
	struct waiter *w;

	pthread_once(&waiter_once, waiter_key_make);
	w = pthread_getspecific(waiter_key);
	if (w && w->busy)
		w->n = 0;
	else if (w)
		(void)PL_IN(waiter_close(w));
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

/* Sockets of ours need no number in the set. */
static int ctl(struct waiter *w, int op, const struct pollfd *p)
{
	struct pyvma_event ev = { .events = (uint16_t)p->revents, .data = (uint64_t)p->fd };
	pyvma_sock *h = pl_peek(p->fd);

	return h ? pyvma_epoll_ctl_sock(w->ep, op, h, &ev) : pyvma_epoll_ctl(w->ep, op, p->fd, &ev);
}

/* By two numbers, or asked for twice: both have the events of both. */
static int merge(struct waiter *w, nfds_t i)
{
	pyvma_sock *h = pl_peek(w->in[i].fd);

	for (nfds_t j = 0; j < i; j++) {
		if (w->in[j].fd != w->in[i].fd && (!h || pl_peek(w->in[j].fd) != h))
			continue;
		w->in[i].revents |= w->in[j].revents;
		w->in[j].revents = w->in[i].revents;
	}
	return ctl(w, EPOLL_CTL_MOD, &w->in[i]);
}

/* The number may have been closed and be another file's since the set was filled; then the set has lost it. */
static int enter(struct waiter *w, nfds_t i, bool known)
{
	int rc = known ? ctl(w, EPOLL_CTL_MOD, &w->in[i]) : -ENOENT;

	if (rc == -ENOENT)
		rc = ctl(w, EPOLL_CTL_ADD, &w->in[i]);
	if (rc == -EEXIST)
		rc = merge(w, i);
	/* What cannot be in a set is always ready, or no fd at all: that was found before. */
	return rc == -EPERM || rc == -EBADF ? 0 : rc;
}

static int waiter_room(struct waiter *w, nfds_t n)
{
	struct pollfd *grown = realloc(w->in, n * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	w->in = grown;
	w->max = n;
	return 0;
}

static int waiter_open(struct waiter *w, const struct pollfd *fds, nfds_t n)
{
	int rc = n > w->max ? waiter_room(w, n) : 0;

	(void)waiter_close(w);
	if (rc)
		return rc;
	for (nfds_t i = 0; i < n; i++)
		w->in[i] = (struct pollfd){ .fd = fds[i].fd, .events = fds[i].events, .revents = fds[i].events };
	w->n = n;
	w->waits = PYVMA_WAITS_EPOLL;
	return pyvma_epoll_open(&w->ep);
}

/* The set has the fds, and no handler sees it with some of them. `anew`: something is in it that is none of them. */
static int waiter_fill(struct waiter *w, const struct pollfd *fds, nfds_t n, bool anew)
{
	bool known = !anew && same(w, fds, n);
	int rc = known ? 0 : waiter_open(w, fds, n);

	for (nfds_t i = 0; i < n && !rc; i++)
		if (fds[i].fd >= 0)
			rc = enter(w, i, known);
	if (rc)
		(void)waiter_close(w);
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

/* A look: `last`, it is the only one, and pending signals that `mask` lets in are told. */
struct looks {
	const sigset_t *mask;
	bool last;
};

/* At up to PIECE of them, the last of all if `how` is given. How many are ready with those before, or -errno. */
static int look_at(struct pollfd *fds, nfds_t n, int ready, const struct looks *how)
{
	struct pollfd theirs[PIECE];
	struct timespec zero = { 0 };
	int rc, others = 0;

	for (nfds_t i = 0; i < n; i++) {
		pyvma_sock *h = fds[i].fd >= 0 ? pl_sock(fds[i].fd) : NULL;

		theirs[i] = fds[i];
		fds[i].revents = 0;
		if (h) {
			rc = (int)PL_IN(pyvma_sock_poll(h, fds[i].events, 0));
			/* The kernel's looks do not wait, and say so all the same when a signal comes. */
			if (rc == -EINTR && !ready)
				return rc;
			rc = rc == -EAGAIN || rc == -EINTR ? 0 : rc;
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
	if (!others && !(how && how->last))
		return ready;
	rc = PL_REAL(ppoll)(theirs, n, &zero, how ? how->mask : NULL);
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

/* By pieces: memory for all is nothing that a handler could ask for, or jump away from. */
static int look(struct pollfd *fds, nfds_t n, const struct looks *how)
{
	int ready = 0;

	for (nfds_t at = 0; at < n && ready >= 0; at += PIECE)
		ready = look_at(fds + at, PV_MIN(n - at, (nfds_t)PIECE), ready, n - at > PIECE ? NULL : how);
	return ready;
}

/* A signal ends the call at whatever time since it began, as it does one of the kernel's: a look is several calls, and what the set told may be
 * nothing. What the call's mask keeps out does not count. 0 or -EINTR. */
static int signalled(const struct pl_wait *how)
{
	uint64_t out = 0;

	if (how->mask)
		memcpy(&out, how->mask, sizeof(out)); /* the kernel's part of it */
	return pl_handled & ~out ? -EINTR : 0;
}

/* Within the engine, so that no handler fills the set with something else in between. */
static int fill_and_wait(struct waiter *w, const struct pollfd *fds, nfds_t n, int64_t timeout_ns, const struct pl_wait *how,
			 bool anew)
{
	struct pyvma_event ev[PIECE];
	int rc;

	w->busy = true;
	rc = waiter_fill(w, fds, n, anew);
	if (w->lent)
		*w->lent = w->ep;
	if (!rc && w->waits != how->waits) {
		w->waits = how->waits;
		pyvma_epoll_waits(w->ep, w->waits);
	}
	rc = rc ? rc : signalled(how);
	if (!rc)
		rc = pl_wait_epoll(w->ep, ev, PIECE, timeout_ns, how->mask);
	w->busy = false;
	return rc;
}

/* Until something is, or may be, ready. */
static int sleep_for(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const struct pl_wait *how, bool anew)
{
	struct waiter *w = waiter_get();
	void *lent PL_LENT = NULL;
	int rc;

	if (!w)
		return pl_busy() ? -EAGAIN : -ENOMEM;
	if (w->busy) {
		rc = pl_lend(&lent, sizeof(*w) + n * sizeof(*fds));
		if (rc)
			return rc;
		w = lent;
		*w = (struct waiter){ .in = (struct pollfd *)(w + 1), .max = n, .lent = pl_lent_set(lent) };
	}
	return (int)PL_POINT(fill_and_wait(w, fds, n, timeout_ns, how, anew));
}

static int wait_sock(pyvma_sock *h, short events, int64_t timeout_ns, const sigset_t *mask)
{
	int rc;

	if (pv_unlikely(mask != NULL))
		pyvma_wait_mask(mask);
	rc = pyvma_sock_poll(h, events, timeout_ns);
	if (pv_unlikely(mask != NULL))
		pyvma_wait_mask(NULL);
	return rc;
}

/* One socket of ours needs no set. -EBADF: it is none. */
static int poll_alone(struct pollfd *fds, int64_t timeout_ns, const sigset_t *mask)
{
	pyvma_sock *h = pl_sock(fds->fd);
	int rc;

	if (!h)
		return -EBADF;
	rc = (int)PL_POINT(wait_sock(h, fds->events, timeout_ns, mask));
	fds->revents = (short)PV_MAX(rc, 0);
	return rc > 0 ? 1 : rc;
}

static int poll_many(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const struct pl_wait *how)
{
	int64_t until = timeout_ns > 0 ? pl_now_ns() + timeout_ns : 0;

	pl_handled = 0;
	for (unsigned int vain = 0;; vain++) {
		int rc;

		if (timeout_ns > 0 && vain)
			timeout_ns = PV_MAX(until - pl_now_ns(), INT64_C(0));
		rc = look(fds, n, &(struct looks){ how->mask, timeout_ns == 0 });
		if (!rc && vain)
			rc = signalled(how);
		if (rc || timeout_ns == 0)
			return rc;
		/* What wakes us again and again and is nothing is a file that was closed by its number, and has another one. */
		rc = sleep_for(fds, n, timeout_ns, how, vain > 1);
		if (rc < 0 || (rc == 0 && timeout_ns > 0))
			return rc;
	}
}

int pl_poll(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const struct pl_wait *how)
{
	int rc = n == 1 ? poll_alone(fds, timeout_ns, how->mask) : -EBADF;
	struct rlimit most;

	if (rc != -EBADF)
		return rc;
	/* Linux says so of all, and is asked by pieces here. */
	if (n > PIECE && how->waits == PYVMA_WAITS_POLL && getrlimit(RLIMIT_NOFILE, &most) == 0 && n > most.rlim_cur)
		return -EINVAL;
	return poll_many(fds, n, timeout_ns, how);
}

bool pl_polls_ours(int fd)
{
	pl_word w = pl_get(fd);

	if (pv_likely(!w))
		return false;
	if (!pl_set_of(w))
		return true;
	pl_set_show(pl_set_of(w));
	return false;
}

static bool any_ours(const struct pollfd *fds, nfds_t n)
{
	bool any = false;

	for (nfds_t i = 0; i < n; i++)
		any |= pl_polls_ours(fds[i].fd);
	return any;
}

PL_EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (!fds || !any_ours(fds, n))
		return PL_REAL(poll)(fds, n, ms);
	return (int)pl_result(pl_poll(fds, n, ms < 0 ? -1 : ms * INT64_C(1000000), &(struct pl_wait){ PYVMA_WAITS_POLL, NULL }));
}

PL_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const sigset_t *mask)
{
	int64_t timeout_ns = pl_timespec_ns(ts);

	if (!fds || timeout_ns < -1 || !any_ours(fds, n))
		return PL_REAL(ppoll)(fds, n, ts, mask);
	return (int)pl_result(pl_poll(fds, n, timeout_ns, &(struct pl_wait){ PYVMA_WAITS_POLL, mask }));
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
