/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress thread runs the stack while the application does not.
 *
 * It has three states. Running: asleep on the rings' fds and the next deadline, awake only for frames and timers. Standing by: calls of
 * the application poll (somebody leads, or polls were counted since the last look), so it only looks again after progress_interval;
 * otherwise each frame would wake two threads. Parked: no leader has left for many looks; no more of them until one leaves and says so.
 * Leaders that leave with each message must not find this thread parked: they would wake it up each time, and share their processor
 * and the lock with it before they have the message. An idle process costs nothing in the first state and nothing in the third.
 *
 * Event loops sleep on the rings' fds without being in a call of ours (sock/turn.c). Frames are theirs: this thread hears of them, too,
 * and gives the loops an interval to come; only if none does it takes the rings over, until one is seen again. Standing by while loops
 * turn, it looks every millisecond, so that a deadline which none of their turns meets is late by no more than that; once they rest it
 * runs, and keeps the deadlines exactly.
 *
 * While an fd is exported (fileno) nobody may be waiting in a call of ours, so a non-blocking reader does not make it stand by.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "pyvma.h"
#include "rt/agent.h"
#include "rt/control.h"
#include "rt/engine.h"
#include "rt/error.h"
#include "rt/host.h"
#include "rt/port_leg.h"
#include "rt/tstamp_engine.h"

/* Looks in a row without a leader that leaves. */
#define PARK_LOOKS 30
/* How long the end of a process waits for this thread to take notice, then to be done. */
#define LEAVE_BEGIN_NS (300 * PV_NS_PER_MS)
#define LEAVE_MAX_NS (3 * PV_NS_PER_S)
#define LEAVE_LOOK_NS 100000
#define OWN_FDS 5
/* Turns of a busy stack between looks at the control socket. */
#define CONTROL_TURNS 1024

struct standby {
	uint64_t seen; /* e->stat->polls at the last look */
	uint64_t leaves; /* e->leaves then */
	uint32_t stays; /* looks in a row that found a leader, and none that had left */
	bool away; /* event loops did not come when there was something for them */
};

/* Clocks that are due are looked at on the way, without the lock: who waits sleeps on, and a leader that spins is not disturbed. */
static int doze(struct pollfd *fds, nfds_t n, int64_t until, struct pv_tstamp *stamps)
{
	for (;;) {
		int64_t due = pv_tstamp_deadline(stamps), to = PV_MIN(until, due);
		struct timespec ts = pv_clock_left(to);
		int rc = ppoll(fds, n, to == PV_NEVER ? NULL : &ts, NULL);

		if (due != PV_NEVER && pv_clock_kernel_ns() >= due)
			pv_tstamp_tick(stamps);
		if (rc || due >= until)
			return rc;
	}
}

static bool own_ready(const struct pollfd *fds)
{
	short any = 0;

	for (int i = 0; i < OWN_FDS; i++)
		any |= fds[i].revents;
	return any;
}

/* Sleeps without the lock until `until`, a wake-up or one of the fds; fds[0] is ours, fds[1] the socket layer's set, fds[2] the
 * kernel's changes, fds[3] the control socket, fds[4] pyvmad's connection. After one of the others it goes on for `grace_ns` on those;
 * true: and nothing happened meanwhile. */
static bool sleep_on(struct pv_engine *e, struct pollfd *fds, nfds_t n, int64_t until, int64_t grace_ns)
{
	struct pv_tstamp *stamps = e->tstamp;
	bool graced = false;
	uint64_t count;

	if (pv_legs_due(e) || pv_host_routes_due(e))
		return false;

	until = PV_MIN(until, pv_host_deadline(e));
	if (e->agent)
		until = PV_MIN(until, pv_agent_deadline(e->agent));
	fds[0] = (struct pollfd){ .fd = e->progress.efd, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = e->extra_fd, .events = POLLIN };
	fds[2] = (struct pollfd){ .fd = pv_host_fd(e), .events = POLLIN };
	fds[3] = (struct pollfd){ .fd = pv_control_fd(e), .events = POLLIN };
	fds[4] = (struct pollfd){ .fd = e->agent ? pv_agent_fd(e->agent) : -1, .events = POLLIN };
	e->stat->sleeps++;
	pv_lock_put(&e->lock);
	if (doze(fds, n, until, stamps) > 0 && grace_ns && !own_ready(fds))
		graced = doze(fds, OWN_FDS, PV_MIN(until, pv_clock_kernel_ns() + grace_ns), stamps) == 0;
	pv_lock_get(&e->lock);
	if (fds[0].revents && read(e->progress.efd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return false;
	if (fds[1].revents && e->extra_fd >= 0 && pv_engine_hooks())
		pv_engine_hooks()->extra();
	if (fds[2].revents || pv_host_due(e))
		pv_host_read(e);
	if (fds[3].revents)
		pv_control_serve(e);
	pv_agent_tick(e);
	return graced;
}

static void stand_by(struct pv_engine *e, struct standby *s)
{
	struct pollfd fds[OWN_FDS];
	int64_t until;
	bool keeps = !e->leader && e->loops;

	/* A leader says when it leaves; other callers just stay away. */
	s->stays = e->leader && e->leaves == s->leaves ? s->stays + 1 : 0;
	s->leaves = e->leaves;
	e->progress_parked = s->stays >= PARK_LOOKS;
	until = e->progress_parked ? PV_NEVER : pv_clock_kernel_ns() + e->cfg->progress_interval * PV_NS_PER_MS;
	s->away = false;
	s->seen = e->stat->polls;
	e->progress.asleep = true;
	/* Each message has a deadline, and none must wake this thread: those that the loops do not come to are seen a little late. */
	if (keeps)
		until = PV_MIN(until, pv_clock_kernel_ns() + PV_NS_PER_MS);
	e->progress.until = INT64_MIN; /* deadlines are the leader's */
	sleep_on(e, fds, OWN_FDS, until, 0);
	e->progress.asleep = false;
	e->sleeper = e->leader && e->leader->asleep;
	e->progress_parked = false;
	pv_stack_grow(e->stack);
	pv_ports_events(e);
}

/* Polls until nothing is left; false when the application wants the stack. */
static bool drain(struct pv_engine *e)
{
	for (uint32_t turn = 1; pv_engine_poll(e, pv_clock_now(&e->clock)); turn++) {
		if (turn % CONTROL_TURNS == 0)
			pv_control_serve(e);
		if (pv_lock_wanted(&e->lock))
			pv_lock_yield(&e->lock);
		if (e->leader || e->progress_stop)
			return false;
	}
	return true;
}

static void run(struct pv_engine *e, struct standby *s)
{
	struct pollfd fds[PV_IFACE_MAX + OWN_FDS];
	nfds_t n = OWN_FDS;
	int64_t grace_ns = e->loops && !e->exports && !s->away ? e->cfg->progress_interval * PV_NS_PER_MS : 0;

	s->stays = 0;
	if (!drain(e))
		return;
	pv_stack_grow(e->stack);
	pv_ports_events(e);
	for (uint32_t i = 0; i < e->nports; i++) {
		int armed;

		if (e->ports[i].notify_fd < 0)
			continue;
		armed = pv_ring_arm(e->ports[i].ring);
		if (armed > 0) {
			pv_control_serve(e); /* frames that never end would keep it waiting */
			return;
		}
		/* A dead device's descriptor may be readable for ever. */
		if (armed < 0)
			continue;
		fds[n++] = (struct pollfd){ .fd = e->ports[i].notify_fd, .events = POLLIN };
	}
	s->seen = e->stat->polls;
	e->progress.until = pv_stack_deadline(e->stack);
	e->progress.asleep = true;
	e->sleeper = true;
	s->away |= sleep_on(e, fds, n, e->progress.until, grace_ns) && e->stat->polls == s->seen;
	e->progress.asleep = false;
	e->sleeper = e->leader && e->leader->asleep;
}

/* ---- the end of the process -------------------------------------------------------------------------------------------- */

static void leave(struct pv_engine *e)
{
	atomic_store(&e->leaving, PV_LEAVE_BEGUN);
	if (pv_engine_hooks())
		pv_engine_hooks()->stop();
	atomic_store(&e->leaving, PV_LEFT);
}

static bool wait_leaving(struct pv_engine *e, uint32_t stage, int64_t limit_ns)
{
	int64_t until = pv_clock_kernel_ns() + limit_ns;

	while (atomic_load(&e->leaving) < stage) {
		if (pv_clock_kernel_ns() >= until)
			return false;
		(void)nanosleep(&(struct timespec){ .tv_nsec = LEAVE_LOOK_NS }, NULL);
	}
	return true;
}

/* The calling thread may be in a signal's handler and hold any lock: another one does it, or nobody. */
void pyvma_leave(void)
{
	struct pv_engine *e = &pv_engine;
	uint32_t staying = PV_STAYING;
	uint64_t one = 1;

	if (pv_engine_state() != PV_ENGINE_RUNNING || !e->have_thread ||
	    !atomic_compare_exchange_strong(&e->leaving, &staying, PV_LEAVE_ASKED))
		return;
	if (write(e->progress.efd, &one, sizeof(one)) == sizeof(one) && wait_leaving(e, PV_LEAVE_BEGUN, LEAVE_BEGIN_NS))
		(void)wait_leaving(e, PV_LEFT, LEAVE_MAX_NS);
}

static void *progress_main(void *arg)
{
	struct pv_engine *e = arg;
	struct standby s = { 0 };

	pv_lock_get(&e->lock);
	e->stat->progress_tid = pv_stat_thread();
	s.seen = e->stat->polls;
	while (!e->progress_stop) {
		if (pv_unlikely(atomic_load_explicit(&e->leaving, memory_order_relaxed) == PV_LEAVE_ASKED))
			leave(e);
		if (pv_legs_due(e))
			pv_legs_work(e);
		if (pv_host_routes_due(e))
			pv_host_routes(e);
		if (e->leader || (e->stat->polls != s.seen && !e->exports))
			stand_by(e, &s);
		else
			run(e, &s);
	}
	pv_lock_put(&e->lock);
	return NULL;
}

int pv_progress_start(struct pv_engine *e)
{
	sigset_t all, old;
	int rc;

	atomic_store(&e->leaving, PV_STAYING);
	e->progress_stop = false;
	e->progress.asleep = false;
	e->progress.efd = pv_ownfd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	if (e->progress.efd < 0)
		return pv_error(-errno, "no wake-up fd for the progress thread: %s", strerror(errno));
	/* The application's signals are its own threads' business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&e->thread, NULL, progress_main, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		close(e->progress.efd);
		return pv_error(-rc, "the progress thread cannot be started: %s", strerror(rc));
	}
	pthread_setname_np(e->thread, "pyvma");
	e->have_thread = true;
	return 0;
}

void pv_progress_stop(struct pv_engine *e)
{
	if (!e->have_thread)
		return;
	pv_lock_get(&e->lock);
	e->progress_stop = true;
	pv_engine_wake(&e->progress);
	pv_lock_put(&e->lock);
	pthread_join(e->thread, NULL);
	close(e->progress.efd);
	e->progress.efd = -1;
	pv_lock_get(&e->lock);
	e->have_thread = false; /* from now on whoever polls does its work */
	e->progress_stop = false;
	pv_lock_put(&e->lock);
}
