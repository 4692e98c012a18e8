/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Into the engine and out of it.
 *
 * A call of the engine's has locks, and lists that lead to the thread's stack. So nothing may end the thread in there: a wait that
 * pthread_cancel finds asleep comes back as if interrupted, with -ECANCELED; out of the engine the thread is cancelled. To switch
 * cancellation off and on again takes as long as a tenth of a short call. As long as nobody has called pthread_cancel, which is ours, calls
 * are `open` instead, and whoever cancels a thread in such a one leaves it to that to do so itself on its way out.
 *
 * And nothing may begin in there what waits for the same locks: a signal's handler that interrupts a call finds its thread busy, and is
 * answered EAGAIN; what it closes or shuts down is done when the call it interrupted lets go, and so is its jump (jump.c). Asleep a thread
 * is not busy.
 */
#include <stdlib.h>
#include <string.h>

#include "preload/preload.h"

#define DEFERRED_MAX 16

_Thread_local struct pyvma_thread *pl_me, *pl_known;
_Atomic(bool) pl_cancels;

/* By handlers that found this thread busy: no other thread's. */
static _Thread_local struct deferred {
	pyvma_sock *h;
	int fd, how; /* how -1: close */
} deferred[DEFERRED_MAX];
static _Thread_local volatile unsigned int ndeferred, ndone;
/* What was deferred; OFF: by a thread that can be cancelled, and cannot meanwhile. */
enum { DOING = 1, DOING_OFF };
static _Thread_local volatile int doing;

struct pyvma_thread *pl_register(bool point)
{
	struct pyvma_thread *me = pl_known;

	if (!me) {
		sigset_t all, own;

		/* A handler that jumped out of this would leave a lock behind. */
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &own);
		me = pyvma_thread_get();
		me->err = &errno;
		pl_known = me;
		pthread_sigmask(SIG_SETMASK, &own, NULL);
	}
	/* A handler that came first is told that this thread is busy. And pthread_cancel may have come before there was a thread to tell:
	 * it is known for good at its first cancellation point, which asks the C library. */
	if (!point || me->busy)
		return me;
	pthread_testcancel();
	pl_me = me;
	return me;
}

static void shut(struct pl_mark *m, bool point)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &m->cancel);
	m->me->cancellable = m->cancel != PTHREAD_CANCEL_ENABLE ? 0 : point ? PYVMA_THREAD_ENDS : PYVMA_THREAD_ENABLED;
}

/* pthread_cancel was called for this thread: it ends, or its wait is not ended by that any more. The test comes back where cancellation is
 * off, or the thread ends already: what its cleanup handlers wait for is waited for, as in the kernel. */
static void end(struct pl_mark *m)
{
	(void)pl_leave(m, -ECANCELED);
	m->me->busy = 1;
	m->cancellable = m->me->cancellable;
	shut(m, false);
}

void pl_shut(struct pl_mark *m, bool point)
{
	if (m->cancel == PL_FIRST) {
		m->cancel = PL_OPEN;
		m->open = m->cancellable = 0;
	}
	/* A handler's call, and the one that it has interrupted is open: whoever cancels knows. */
	if (m->open) {
		m->me->cancellable = 0;
		return;
	}
	__atomic_store_n(&m->me->open, 0, __ATOMIC_RELAXED);
	shut(m, point);
	if (point && __atomic_load_n(&m->me->cancelled, __ATOMIC_RELAXED))
		end(m);
}

void pl_enter_within(struct pl_mark *m, bool point)
{
	struct pyvma_thread *me = m->me;

	m->cancel = PL_OPEN;
	m->open = me->open;
	__atomic_store_n(&me->open, 1, __ATOMIC_RELAXED);
	/* As in pl_enter. */
	atomic_signal_fence(memory_order_seq_cst);
	m->cancellable = me->cancellable;
	if (pv_likely(!atomic_load_explicit(&pl_cancels, memory_order_relaxed)))
		me->cancellable = me->resting ? 0 : point ? PYVMA_THREAD_ENDS : PYVMA_THREAD_ENABLED;
	else
		pl_shut(m, point);
}

void pl_restore(const struct pl_mark *m)
{
	bool first = m->cancel == PL_FIRST;
	struct pyvma_thread *me = m->me;

	if (m->cancel != PL_OPEN && !first)
		pthread_setcancelstate(m->cancel, NULL);
	/* In the order of pl_leave. */
	me->cancellable = first ? 0 : m->cancellable;
	__atomic_store_n(&me->open, first ? 0 : m->open, __ATOMIC_RELAXED);
	atomic_signal_fence(memory_order_seq_cst);
	if (__atomic_load_n(&me->asked, __ATOMIC_RELAXED))
		pl_asked(m);
}

void pl_finish(const struct pl_mark *m)
{
	m->me->deferred();
	pl_jump(m);
}

/* Within the engine, where cancellation is off: a handler's jump does not come between the two. */
static int cancel_itself(void)
{
	return pyvma_thread_asked() ? PL_REAL(pthread_cancel)(pthread_self()) : 0;
}

void pl_asked(const struct pl_mark *m)
{
	if (m->cancel == PL_FIRST || !m->open)
		(void)PL_IN(cancel_itself());
}

/* By a cleanup attribute: `at` is where the pointer is. */
void pl_free(void *at)
{
	void *p;

	memcpy(&p, at, sizeof(p));
	free(p);
}

static int do_one(void)
{
	struct deferred d = deferred[ndone % DEFERRED_MAX];

	if (d.how >= 0) {
		(void)pyvma_sock_shutdown(d.h, d.how);
	} else {
		(void)pyvma_sock_close(d.h);
		(void)pl_change(d.fd, PL_CLOSING, 0);
	}
	ndone = ndone + 1;
	return 0;
}

/* Handlers only add while this thread is busy, within the calls below; between those they may jump. */
static void run_deferred(void)
{
	struct pyvma_thread *me = pl_known;
	int saved = errno, leaving = me->leaving;

	if (doing)
		return;
	doing = me->cancellable && !me->open ? DOING_OFF : DOING;
	me->deferred = NULL;
	me->leaving = 0; /* these have their time */
	while (ndone != ndeferred)
		(void)PL_IN(do_one());
	if (leaving)
		me->leaving = 1;
	if (me->leaving)
		me->deferred = run_deferred;
	doing = 0;
	errno = saved;
}

bool pl_doing(void)
{
	return doing;
}

void pl_jumps(void)
{
	struct pyvma_thread *me = pl_known;
	struct pl_mark m = { .me = me, .cancel = PL_OPEN };

	if (!me ||
	    pv_likely(!me->cancellable && !me->open && !__atomic_load_n(&me->asked, __ATOMIC_RELAXED) && !me->leaving && !doing))
		return;
	if (!me->open && (me->cancellable || doing == DOING_OFF))
		m.cancel = PTHREAD_CANCEL_ENABLE;
	me->cancellable = m.cancel == PTHREAD_CANCEL_ENABLE ? PYVMA_THREAD_ENABLED : 0;
	/* A jump that was to come is overtaken by this one. */
	me->leaving = 0;
	doing = 0;
	if (ndone != ndeferred)
		me->deferred = run_deferred;
	(void)pl_leave(&m, 0);
}

bool pl_busy(void)
{
	return pl_me ? pl_me->busy : pl_register(false)->busy;
}

int pl_defer(int fd, pyvma_sock *h, int how)
{
	if (ndeferred - ndone == DEFERRED_MAX)
		return -EAGAIN;
	if (how < 0 && !pl_change(fd, (pl_word)h, PL_CLOSING))
		return -EBADF;
	deferred[ndeferred % DEFERRED_MAX] = (struct deferred){ .h = h, .fd = fd, .how = how };
	ndeferred = ndeferred + 1;
	pl_known->deferred = run_deferred;
	return 0;
}

void pl_leave_soon(void)
{
	pl_known->leaving = 1;
	pl_known->deferred = run_deferred;
}

/* It may be this thread's own, which must not end with the list of them held; busy, it does not end. */
static int asks(pthread_t thread)
{
	int rc = (int)PL_IN(pyvma_thread_ask((unsigned long)thread));

	return rc == -EAGAIN ? pyvma_thread_ask((unsigned long)thread) : rc;
}

PL_EXPORT int pthread_cancel(pthread_t thread)
{
	int rc;

	atomic_store(&pl_cancels, true);
	if (asks(thread))
		return 0;
	rc = PL_REAL(pthread_cancel)(thread);
	/* A wait is woken after there is something to find. */
	if (!rc && PL_IN((pyvma_thread_cancel((unsigned long)thread), 0)))
		pyvma_thread_cancel((unsigned long)thread);
	return rc;
}
