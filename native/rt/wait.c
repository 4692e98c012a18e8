/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leader and followers (rt/engine.h).
 *
 * Signals. A thread that sleeps is interrupted by ppoll. A thread that spins makes no system calls that a signal could interrupt, yet
 * Python's handlers run only when the call returns. So a spin that lasts longer than 10 us blocks the thread's signals, which is what
 * makes them visible: every 2 ms, if one is pending, a ppoll of nothing with the thread's own mask lets its handler run and tells that one did.
 * Signals that report a fault of the thread itself are never blocked. Of those for the process the first thread has the choice (rt/pending.h).
 *
 * Which handler ran, and so whether the call is one that starts again (SA_RESTART), cannot be seen afterwards. A face that wants to know
 * (pyvma_wait_exact) has signals blocked while it sleeps, too: a signalfd wakes it, and what is pending is looked at before it is let in.
 * What ran before they were blocked it tells itself (`signalled`).
 */
#include "rt/wait.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "pyvma.h"
#include "rt/host.h"
#include "rt/pending.h"

#define MASK_AFTER_NS (10 * PV_NS_PER_US)
/* A wait that is over soon makes no system call: a look at the kernel's socket takes a tenth of a round trip. */
#define KERNEL_AFTER_NS (10 * PV_NS_PER_US)
#define SIGNALS_EVERY_NS (2 * PV_NS_PER_MS)
#define FOLLOWER_TURNS 32 /* between looks at the clock */
#define LEADER_TURNS 4 /* the same: reading it takes as long as a look at a ring that is empty */
#define LAST_POLLS 8 /* of a follower whose time is over: a handshake on one machine takes three */
#define EVENTS_EVERY 16u /* sleeps of the engine's, where frames end them all */

/* ---- this thread's fd -------------------------------------------------------------------------------------------------- */

static pthread_key_t efd_key;
static pthread_once_t efd_once = PTHREAD_ONCE_INIT;
static _Thread_local int efd_fd = -1, sig_fd = -1; /* the second is a signalfd */
static _Thread_local pid_t efd_pid, sig_pid;

/* Threads of a face that cancels them. */
static struct pv_list threads = { &threads, &threads };
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct self {
	struct pyvma_thread face;
	struct pv_list on_threads;
	pthread_t id;
	_Atomic(int) efd; /* -1: none; follows efd_fd while the thread is known */
	bool known;
} self = { .efd = -1 };

static void efd_close(void *value)
{
	int cancel;

	(void)value;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* it ends already */
	if (self.known) {
		pthread_mutex_lock(&threads_lock);
		pv_list_del(&self.on_threads);
		atomic_store(&self.efd, -1);
		self.known = false;
		pthread_mutex_unlock(&threads_lock);
	}
	if (efd_fd >= 0)
		close(efd_fd);
	if (sig_fd >= 0)
		close(sig_fd);
	efd_fd = sig_fd = -1;
	pthread_setcancelstate(cancel, NULL);
}

static void efd_key_make(void)
{
	pthread_key_create(&efd_key, efd_close);
}

int pv_wait_efd(void)
{
	/* After fork the number still leads to the parent's counter. */
	if (efd_fd >= 0 && efd_pid == getpid())
		return efd_fd;
	pthread_once(&efd_once, efd_key_make);
	efd_fd = pv_ownfd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	if (efd_fd < 0)
		return -errno;
	efd_pid = getpid();
	atomic_store(&self.efd, efd_fd);
	pthread_setspecific(efd_key, &efd_fd);
	return efd_fd;
}

void pv_wait_forked(void)
{
	bool was = self.known;

	pthread_mutex_init(&threads_lock, NULL);
	pv_list_init(&threads);
	pv_list_init(&self.on_threads);
	efd_close(NULL);
	pv_pending_forked();
	if (was)
		(void)pyvma_thread_get();
}

int pyvma_own_fd(unsigned int first, unsigned int last)
{
	return pv_ownfd_next(first, last);
}

/* A handler that comes in the middle of it finds the thread busy. */
struct pyvma_thread *pyvma_thread_get(void)
{
	if (self.known || self.face.busy)
		return &self.face;
	self.face.busy = 1;
	pthread_once(&efd_once, efd_key_make);
	pthread_mutex_lock(&threads_lock);
	self.id = pthread_self();
	pv_list_init(&self.on_threads);
	pv_list_add(&threads, &self.on_threads);
	self.known = true;
	pthread_mutex_unlock(&threads_lock);
	pthread_setspecific(efd_key, &efd_fd);
	self.face.busy = 0;
	return &self.face;
}

/* The list's lock is held. NULL: it has made no call yet. */
static struct self *thread_of(unsigned long thread)
{
	pv_list_for_each(it, &threads) {
		struct self *s = pv_list_entry(it, struct self, on_threads);

		if (pthread_equal(s->id, (pthread_t)thread))
			return s;
	}
	return NULL;
}

/* Either the thread finds itself cancelled before it sleeps, or its fd is found here. */
static void end_wait(struct self *s)
{
	uint64_t one = 1;
	int efd;

	__atomic_store_n(&s->face.cancelled, 1, __ATOMIC_SEQ_CST);
	efd = atomic_load(&s->efd);
	if (efd >= 0 && write(efd, &one, sizeof(one)) < 0)
		return; /* full: it is awake */
}

int pyvma_thread_ask(unsigned long thread)
{
	struct self *s;
	int open = 0;

	pthread_mutex_lock(&threads_lock);
	s = thread_of(thread);
	if (s) {
		/* Before the look: a call that is found open, and is over by the next instruction, finds that it may be asked, and waits for
		 * the lock to know. */
		__atomic_store_n(&s->face.asked, 1, __ATOMIC_RELAXED);
		pv_lock_barrier();
		open = __atomic_load_n(&s->face.open, __ATOMIC_RELAXED);
		if (open)
			end_wait(s);
		else
			__atomic_store_n(&s->face.asked, 0, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&threads_lock);
	return open;
}

int pyvma_thread_asked(void)
{
	int asked;

	pthread_mutex_lock(&threads_lock);
	asked = __atomic_exchange_n(&self.face.asked, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&threads_lock);
	return asked;
}

void pyvma_thread_cancel(unsigned long thread)
{
	struct self *s;

	pthread_mutex_lock(&threads_lock);
	s = thread_of(thread);
	if (s)
		end_wait(s);
	pthread_mutex_unlock(&threads_lock);
}

static _Thread_local const sigset_t *asked_mask; /* for this thread's waits; NULL: its own */

/* In an open call nobody has asked the C library yet. Where cancellation is off the wait goes on: made anew it would last as long again. */
static pv_noinline bool ends(void)
{
	int was;

	if (self.face.cancellable == PYVMA_THREAD_ENDS && self.face.open) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
		pthread_setcancelstate(was, NULL);
		if (was != PTHREAD_CANCEL_ENABLE)
			self.face.cancellable = 0;
	}
	return self.face.cancellable == PYVMA_THREAD_ENDS;
}

static bool cancelled(void)
{
	return pv_unlikely(self.face.leaving) || (pv_unlikely(__atomic_load_n(&self.face.cancelled, __ATOMIC_SEQ_CST)) && ends());
}

/* Around what lets signals' handlers in; no lock is held. What they wait for is not under the mask of the wait that they interrupt. */
struct rests {
	int busy;
	const sigset_t *mask;
};

static struct rests rest(void)
{
	struct rests was = { self.face.busy, asked_mask };

	asked_mask = NULL;
	self.face.resting = self.face.resting + 1;
	self.face.busy = 0;
	if (pv_unlikely(self.face.deferred != NULL))
		self.face.deferred();
	return was;
}

static void rested(struct rests was)
{
	asked_mask = was.mask;
	self.face.busy = was.busy;
	self.face.resting = self.face.resting - 1;
}

void pv_wait_efd_clear(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

/* ---- signals ----------------------------------------------------------------------------------------------------------- */

static _Atomic(bool) exact;
static _Thread_local bool restarts; /* the handler that ended its last wait has SA_RESTART */

void pyvma_wait_exact(void)
{
	atomic_store_explicit(&exact, true, memory_order_relaxed);
}

void pyvma_wait_mask(const void *mask)
{
	asked_mask = mask;
}

int pyvma_wait_restarts(void)
{
	bool was = restarts;

	restarts = false;
	return was;
}

static bool is_exact(void)
{
	return atomic_load_explicit(&exact, memory_order_relaxed);
}

/* A handler ran since this call began, and no wait was ended by that. */
static int signalled(void)
{
	int how = self.face.signalled;

	if (pv_likely(!how))
		return 0;
	restarts = how == PYVMA_SIGNALLED_RESTART;
	return -EINTR;
}

/* A call of the kernel's that waits, and the mask that it has meanwhile. */
struct call {
	struct rests was;
	sigset_t own;
	const sigset_t *mask;
	bool closed;
};

/* 0, or why it is not made. */
static int call_begin(struct call *c, bool sleeps)
{
	sigset_t all;
	int rc;

	c->closed = sleeps && is_exact();
	/* Between the look and the sleep no handler may say that the thread is to leave. */
	if (c->closed) {
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &c->own);
	}
	restarts = false;
	/* Before what handlers left to do is done, by calls of its own. */
	rc = c->closed && !asked_mask ? signalled() : 0;
	c->was = rest();
	c->mask = c->was.mask || !c->closed ? c->was.mask : &c->own;
	return cancelled() ? -ECANCELED : rc;
}

static int call_end(struct call *c, int rc)
{
	rc = rc == -1 ? -errno : rc;
	rested(c->was);
	if (c->closed)
		pv_pending_unmask(&c->own);
	return rc;
}

int pv_wait_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts)
{
	struct call c;
	int rc = call_begin(&c, !ts || ts->tv_sec || ts->tv_nsec);

	return call_end(&c, rc ? rc : ppoll(fds, n, ts, c.mask));
}

int pv_wait_epoll(int ep, struct epoll_event *ev, int n, int ms)
{
	struct call c;
	int rc = call_begin(&c, ms != 0);

	return call_end(&c, rc ? rc : epoll_pwait(ep, ev, n, ms, c.mask));
}

static void mask_signals(struct pv_wait *w)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF };
	sigset_t set;

	sigfillset(&set);
	for (size_t i = 0; i < pv_array_size(own); i++)
		sigdelset(&set, own[i]);
	pthread_sigmask(SIG_BLOCK, &set, &w->before);
	w->saved = asked_mask ? *asked_mask : w->before;
	w->masked = true;
	pv_pending_masked(&w->saved);
}

/* Of the signals that wait to be let in the kernel takes the lowest number first, and goes by its handler's flag. */
static bool pending_restarts(const sigset_t *mask)
{
	struct sigaction sa;
	sigset_t pending;

	if (sigpending(&pending) < 0)
		return false;
	for (int sig = 1; sig <= SIGRTMAX; sig++) {
		if (sigismember(&pending, sig) != 1 || sigismember(mask, sig) == 1 || sigaction(sig, NULL, &sa) < 0)
			continue;
		/* The two that are no handlers are the same in both members of the union. */
		if (sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN)
			return (sa.sa_flags & SA_RESTART) != 0;
	}
	return false;
}

/* Lets in what is pending; signals are masked, no lock is held. 0, or -EINTR: a handler ran. */
static int let_in(struct pv_wait *w)
{
	struct timespec zero = { 0 };
	struct rests was;
	sigset_t mask;
	bool some = pv_pending(&w->saved, &mask), again = some && is_exact() && pending_restarts(&mask);
	int rc = 0;

	was = rest();
	if (some)
		rc = ppoll(NULL, 0, &zero, &mask) ? -errno : 0;
	rested(was);
	if (rc)
		restarts = again;
	return rc;
}

/* Called every turn once signals_at has come. The lock is not held while handlers run. */
static int look_for_signals(struct pv_engine *e, struct pv_wait *w, int64_t now)
{
	int rc;

	w->signals_at = now + SIGNALS_EVERY_NS;
	if (!w->masked) {
		mask_signals(w);
		return signalled();
	}
	if (e)
		pv_lock_put(&e->lock);
	rc = let_in(w);
	if (e) {
		pv_lock_get(&e->lock);
		w->seen_ns = pv_clock_now(&e->clock);
	}
	return rc;
}

static bool has_restart(int sig)
{
	struct sigaction sa;

	return sigaction(sig, NULL, &sa) == 0 && (sa.sa_flags & SA_RESTART);
}

/* This thread's signalfd for all that `w` lets in; -1: there is none, and handlers run as they come. */
static int signals_fd(struct pv_wait *w)
{
	static _Thread_local sigset_t without;
	sigset_t set;

	if (!is_exact())
		return -1;
	if (!w->masked)
		mask_signals(w);
	if (sig_fd >= 0 && sig_pid != getpid())
		sig_fd = -1;
	if (sig_fd >= 0 && !memcmp(&w->saved, &without, sizeof(without)))
		return sig_fd;
	sigfillset(&set);
	for (int sig = 1; sig <= SIGRTMAX; sig++)
		if (sigismember(&w->saved, sig) == 1)
			sigdelset(&set, sig);
	pthread_once(&efd_once, efd_key_make);
	sig_fd = pv_ownfd(signalfd(sig_fd, &set, SFD_NONBLOCK | SFD_CLOEXEC));
	sig_pid = getpid();
	without = w->saved;
	pthread_setspecific(efd_key, &efd_fd);
	return sig_fd;
}

/* Without the lock: ppoll that signals end. `fds` has room for one more. */
static int sleep_fds(struct pv_wait *w, struct pollfd *fds, nfds_t n, const struct timespec *ts)
{
	int signals = signals_fd(w), rc = signalled();
	struct rests was;

	if (pv_unlikely(rc))
		return rc;
	was = rest();

	if (signals >= 0)
		fds[n++] = (struct pollfd){ .fd = signals, .events = POLLIN };
	rc = cancelled() ? -ECANCELED : ppoll(fds, n, ts, signals < 0 && w->masked ? &w->saved : NULL);
	rc = rc == -1 ? -errno : rc;
	rested(was);
	if (rc == 1 && signals >= 0 && fds[n - 1].revents)
		return let_in(w);
	if (rc >= 0 || rc == -ECANCELED)
		return rc;
	/* One of those that are never blocked; a profiler's is the one that is not the end. */
	restarts = is_exact() && has_restart(SIGPROF);
	return rc;
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------------- */

static void watch_add(struct pv_engine *e, struct pv_wait *w)
{
	atomic_store_explicit(&w->waiter.woken, false, memory_order_relaxed);
	pv_list_add(&w->watch->waiters, &w->waiter.on_watch);
	e->interest++;
}

static void watch_del(struct pv_engine *e, struct pv_wait *w)
{
	pv_list_del(&w->waiter.on_watch);
	e->interest--;
}

/* Lets go of the lock, sleeps until `until`, takes it again. The waiter is on its watch, fds[0] is its own, behind the others there is room
 * for one. */
static int sleep_on(struct pv_engine *e, struct pv_wait *w, struct pollfd *fds, nfds_t n, int64_t until)
{
	struct timespec ts = pv_clock_left(until);
	int rc;

	w->waiter.asleep = true;
	w->sleeps++;
	e->stat->sleeps++;
	pv_lock_put(&e->lock);
	rc = sleep_fds(w, fds, n, until == PV_NEVER ? NULL : &ts);
	pv_lock_get(&e->lock);
	w->waiter.asleep = false;
	w->kready = rc > 0 && fds[1].revents;
	/* The waker wrote under the lock, so what it wrote is there by now even if ppoll ended for another reason. And what was written to the
	 * wait that this one's handler interrupted would keep this one awake; that one knows by `woken`. */
	if ((rc > 0 && fds[0].revents) || atomic_load_explicit(&w->waiter.woken, memory_order_relaxed) || cancelled())
		pv_wait_efd_clear(w->waiter.efd);
	return rc;
}

/* It was asleep from `from` to `to`. */
static void was_asleep(struct pv_wait *w, int64_t from, int64_t to)
{
	w->polled_ns += from - w->polls_since;
	w->polls_since = w->seen_ns = to;
}

static nfds_t own_fds(struct pv_wait *w, struct pollfd *fds)
{
	fds[0] = (struct pollfd){ .fd = w->waiter.efd, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = w->kwatched ? -1 : w->kfd, .events = w->kevents }; /* ppoll passes over fd -1 */
	return 2;
}

/* What a sleep that ended means to the caller. A signal matters only when nothing else happened, which the caller finds out: it may have
 * been woken for nothing, to lead. In a child that the handler forked nothing did. */
static int slept(struct pv_wait *w, int rc)
{
	w->interrupted =
	    rc == -EINTR && atomic_load_explicit(&w->waiter.woken, memory_order_relaxed) && pv_engine_state() == PV_ENGINE_RUNNING;
	return w->interrupted || rc > 0 ? 0 : rc;
}

static int lead_sleep(struct pv_engine *e, struct pv_wait *w, int64_t now)
{
	struct pollfd fds[PV_IFACE_MAX + 4];
	/* Each fd makes waking up a quarter of a microsecond longer: the progress thread is asleep on the host's as well. */
	bool host = !e->have_thread; /* is this thread's to watch */
	int64_t until;
	nfds_t n;
	int rc;

	if (now >= w->deadline)
		return -ETIMEDOUT;
	if (w->waiter.efd < 0 && (w->waiter.efd = pv_wait_efd()) < 0)
		return w->waiter.efd;
	pv_stack_grow(e->stack);
	n = own_fds(w, fds);
	if (host)
		fds[n++] = (struct pollfd){ .fd = pv_host_fd(e), .events = POLLIN };
	for (uint32_t i = 0; i < e->nports; i++) {
		if (e->ports[i].notify_fd < 0)
			continue;
		rc = pv_ring_arm(e->ports[i].ring);
		if (rc > 0) {
			pv_ports_events(e); /* an event that nobody takes would be a reason for ever */
			pv_engine_poll(e, now);
			return 0;
		}
		/* A dead device's descriptor may be readable for ever. */
		if (rc < 0)
			continue;
		fds[n++] = (struct pollfd){ .fd = e->ports[i].notify_fd, .events = POLLIN };
	}
	until = PV_MIN(w->deadline, pv_stack_deadline(e->stack));
	until = PV_MIN(until, pv_host_deadline(e));
	if (w->nap_ns != PV_NEVER)
		until = PV_MIN(until, now + w->nap_ns);
	watch_add(e, w);
	w->waiter.until = until;
	e->sleeper = true;
	rc = sleep_on(e, w, fds, n, until);
	e->sleeper = e->progress.asleep;
	watch_del(e, w);
	was_asleep(w, now, pv_clock_now(&e->clock));
	/* Stopped meanwhile: the caller's socket is gone. Or forked by a handler, and this is the child: the rings are its parent's. */
	if (pv_unlikely(!e->stack || pv_engine_state() != PV_ENGINE_RUNNING))
		return slept(w, rc);
	if (pv_host_due(e) || (host && fds[2].revents))
		pv_host_read(e);
	/* Frames first: what devices tell may take a system call. Without a progress thread nobody else asks. */
	if (!pv_engine_poll(e, w->seen_ns) || host || e->stat->sleeps % EVENTS_EVERY == 0)
		pv_ports_events(e);
	return slept(w, rc);
}

/* ---- the two ways to wait ---------------------------------------------------------------------------------------------- */

static bool kernel_readable(struct pv_wait *w)
{
	struct pollfd p = { .fd = w->kfd, .events = w->kevents };

	w->kready = poll(&p, 1, 0) > 0;
	return w->kready;
}

static int lead(struct pv_engine *e, struct pv_wait *w)
{
	int64_t now = 0;

	for (uint32_t turn = 0;; turn++) {
		if (turn % LEADER_TURNS == 0)
			now = w->seen_ns = pv_clock_now(&e->clock);
		if (pv_engine_poll(e, now))
			return 0;
		if (pv_unlikely(pv_lock_wanted(&e->lock))) {
			pv_lock_yield(&e->lock);
			w->seen_ns = pv_clock_now(&e->clock);
			return 0;
		}
		if (pv_unlikely(now >= w->spin_until))
			return lead_sleep(e, w, now);
		if (pv_unlikely(w->kfd >= 0) && e->kernel_ratio && ++w->turns >= e->kernel_ratio &&
		    now - w->polls_since >= KERNEL_AFTER_NS) {
			w->turns = 0;
			if (kernel_readable(w))
				return 0;
		}
		if (pv_unlikely(now >= w->signals_at))
			return look_for_signals(e, w, now); /* the lock was let go: look again */
		pv_cpu_relax();
	}
}

/* Without the lock: until woken, spin_until, or a signal. */
static int follow_spin(struct pv_engine *e, struct pv_wait *w)
{
	uint32_t ratio = w->kfd >= 0 ? e->kernel_ratio : 0;
	int rc = 0;

	pv_lock_put(&e->lock);
	for (uint32_t turn = 1; !rc && !atomic_load_explicit(&w->waiter.woken, memory_order_relaxed); turn++) {
		pv_cpu_relax();
		if (turn % FOLLOWER_TURNS)
			continue;
		int64_t now = w->seen_ns = pv_clock_kernel_ns();

		if (now >= w->spin_until)
			break;
		if (ratio && turn % (FOLLOWER_TURNS * ratio) == 0 && kernel_readable(w))
			break;
		if (now >= w->signals_at)
			rc = cancelled() ? -ECANCELED : look_for_signals(NULL, w, now);
	}
	pv_lock_get(&e->lock);
	return rc;
}

/* A follower's time is over. What it waits for may have come, and only the leader has had no CPU since. */
static int last_look(struct pv_engine *e, const struct pv_wait *w, int64_t now)
{
	bool runs = e->stack && pv_engine_state() == PV_ENGINE_RUNNING;

	for (int i = 0; i < LAST_POLLS && runs && pv_engine_poll(e, now); i++)
		if (atomic_load_explicit(&w->waiter.woken, memory_order_relaxed))
			return 0;
	return -ETIMEDOUT;
}

static int follow(struct pv_engine *e, struct pv_wait *w)
{
	struct pollfd fds[3];
	int rc;

	if (w->waiter.efd < 0 && (w->waiter.efd = pv_wait_efd()) < 0)
		return w->waiter.efd;
	watch_add(e, w);
	pv_list_add(&e->followers, &w->waiter.on_engine);
	rc = follow_spin(e, w);
	if (!rc && !atomic_load_explicit(&w->waiter.woken, memory_order_relaxed)) {
		int64_t now = pv_clock_kernel_ns();

		if (now >= w->deadline)
			rc = last_look(e, w, now);
		else if (now >= w->spin_until) {
			rc = sleep_on(e, w, fds, own_fds(w, fds), w->deadline);
			was_asleep(w, now, pv_clock_kernel_ns());
		}
	}
	pv_list_del(&w->waiter.on_engine);
	watch_del(e, w);
	w->seen_ns = pv_clock_now(&e->clock);
	return slept(w, rc);
}

static void begin(struct pv_engine *e, struct pv_wait *w)
{
	int64_t now = pv_clock_now(&e->clock);

	w->begun = true;
	w->polls_since = w->seen_ns = now;
	w->deadline = w->timeout_ns < 0 || w->timeout_ns > PV_NEVER - now ? PV_NEVER : now + w->timeout_ns;
	w->spin_until = e->spin_ns == PV_NEVER ? PV_NEVER : now + e->spin_ns;
	w->spin_until = PV_MIN(w->spin_until, w->deadline);
	w->signals_at = now + MASK_AFTER_NS;
	pv_list_init(&w->waiter.on_watch);
	pv_list_init(&w->waiter.on_engine);
	atomic_init(&w->waiter.woken, false);
	w->waiter.asleep = false;
	w->waiter.efd = -1;
	w->waiter.thread = &self;
	restarts = false;
	w->interrupted = false;
	if (pv_unlikely(asked_mask != NULL)) {
		mask_signals(w);
		self.face.signalled = 0; /* what came before the mask was the thread's own to let in */
		w->signals_at = now; /* what that lets in may be pending already */
	}
}

int pv_wait(struct pv_engine *e, struct pv_wait *w)
{
	if (!w->begun)
		begin(e, w);
	w->kready = false;
	if (cancelled())
		return -ECANCELED;
	if (pv_unlikely(w->interrupted))
		return -EINTR;
	/* A handler that interrupted the leader's sleep leads in its stead. */
	if (e->leader && e->leader != &w->waiter && e->leader->thread != &self)
		return follow(e, w);
	e->leader = &w->waiter;
	return lead(e, w);
}

void pv_wait_end(struct pv_engine *e, struct pv_wait *w)
{
	w->polled_ns += w->seen_ns - w->polls_since;
	e->stat->polling_ns += (uint64_t)PV_MAX(w->polled_ns, INT64_C(0));
	if (e->leader == &w->waiter) {
		e->leader = NULL;
		e->leaves++;
	}
	/* Whoever leaves while nobody leads passes that on: it may be the very one that was told to lead, and had its datagram by then. */
	if (!e->leader) {
		if (!pv_list_empty(&e->followers))
			pv_engine_wake(pv_list_entry(e->followers.next, struct pv_waiter, on_engine));
		/* Whoever was told may be in a signal's handler. */
		if (pv_unlikely(e->progress_parked))
			pv_engine_wake(&e->progress);
	}
	if (w->masked)
		pv_pending_unmask(&w->before);
}
