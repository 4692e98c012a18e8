/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of event loops. Such a loop sleeps in a poll of its own, on the set's fd among others, and calls pyvma_epoll_turn when that is
 * readable.
 *
 * Were the fd told of events by the progress thread alone, every message would wake two threads, which then want the same lock. So the
 * kernel's set has the rings' fds as well: a frame wakes the loop's thread and that one polls. Nothing is missed: a turn that finds
 * nothing arms the rings and looks once more, all under the lock; what others find later for the set rings its bell, since it is `armed`.
 * Between a turn that told of something and the next one nobody sleeps, and no bell is needed.
 *
 * The progress thread hears of frames, too, but gives the loop a moment, and takes the rings over only if it does not come
 * (rt/progress.c). Timers are kept by that thread while the loop sleeps.
 *
 * Rings come and go with their interfaces. A closed fd leaves the kernel's set by itself; a new one is added by the next turn, and until
 * then the progress thread has it.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rt/wait.h"
#include "sock/epoll.h"

#define ARM_TRIES 8
#define OTHER_TURNS 16 /* of a spin between looks at the loop's other fds */

static struct pv_list loops = { &loops, &loops }; /* engine lock */

/* A forked child has its parent's stack still, and must not touch it. */
static bool runs(const struct pv_engine *e)
{
	return pv_likely(e->stack && pv_engine_state() == PV_ENGINE_RUNNING);
}

static void rings_sync(struct pyvma_epoll *set)
{
	struct epoll_event ev = { .events = EPOLLIN, .data = { .u64 = PV_EPOLL_RING } };
	struct pv_engine *e = &pv_engine;

	/* A number that was closed may be another file's by now, but that one is not in this set. */
	for (uint32_t i = 0; i < set->nring; i++)
		epoll_ctl(set->kep, EPOLL_CTL_DEL, set->ring_fd[i], NULL);
	set->nring = 0;
	for (uint32_t i = 0; i < e->nports; i++) {
		int fd = e->ports[i].notify_fd;

		if (fd >= 0 && epoll_ctl(set->kep, EPOLL_CTL_ADD, fd, &ev) == 0)
			set->ring_fd[set->nring++] = fd;
	}
	set->ports_gen = e->ports_gen;
}

/* A dead device's descriptor may be readable for ever. */
static void ring_leave(struct pyvma_epoll *set, int fd)
{
	for (uint32_t i = 0; i < set->nring; i++) {
		if (set->ring_fd[i] != fd)
			continue;
		epoll_ctl(set->kep, EPOLL_CTL_DEL, fd, NULL);
		set->ring_fd[i] = set->ring_fd[--set->nring];
		return;
	}
}

/* True: whatever comes from now on makes the set's fd readable. */
static bool arm(struct pyvma_epoll *set)
{
	struct pv_engine *e = &pv_engine;

	if (!runs(e))
		return true;
	if (pv_unlikely(set->ports_gen != e->ports_gen))
		rings_sync(set);
	pv_stack_grow(e->stack);
	for (uint32_t i = 0; i < e->nports; i++) {
		int rc = e->ports[i].notify_fd < 0 ? 0 : pv_ring_arm(e->ports[i].ring);

		if (rc > 0)
			pv_ports_events(e); /* an event that nobody takes would be a reason for ever */
		if (rc > 0 || rc == -EAGAIN)
			return false;
		if (rc < 0)
			ring_leave(set, e->ports[i].notify_fd);
	}
	/* What is to be sent at once, nobody else would send at once. */
	return pv_stack_deadline(e->stack) > 0;
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* After a turn that found nothing; true: look again. `seen`: the latest time that is known. */
static bool spin_on(struct pyvma_epoll *set, int64_t until, uint32_t turn, int other, int64_t *seen)
{
	struct pv_engine *e = &pv_engine;

	if (!runs(e) || (other >= 0 && turn % OTHER_TURNS == 0 && readable(other)))
		return false;
	if (pv_unlikely(pv_lock_wanted(&e->lock)))
		pv_lock_yield(&e->lock);
	pv_cpu_relax();
	*seen = pv_clock_now(&e->clock);
	return *seen < until && !set->closed;
}

static int spin_locked(struct pyvma_epoll *set, struct pyvma_event *out, int n, int64_t spin_ns, int other)
{
	struct pv_engine *e = &pv_engine;
	int64_t begun = runs(e) ? pv_clock_now(&e->clock) : 0, seen = begun, until = spin_ns && begun ? begun + spin_ns : 0;
	uint32_t turn = 0;
	int got;

	do {
		if (runs(e))
			pv_engine_poll(e, seen);
		got = pv_epoll_collect(set, out, n, !spin_ns && pv_list_empty(&set->ready));
	} while (!got && until && spin_on(set, until, ++turn, other, &seen));
	set->st->polling_ns += (uint64_t)(seen - begun);
	if (runs(e))
		e->stat->polling_ns += (uint64_t)(seen - begun);
	return got;
}

static int sleep_locked(struct pyvma_epoll *set, struct pyvma_event *out, int n)
{
	struct pv_engine *e = &pv_engine;

	for (uint32_t tries = 0;; tries++) {
		int got;

		if (runs(e))
			pv_engine_poll(e, pv_clock_now(&e->clock));
		got = pv_epoll_collect(set, out, n, pv_list_empty(&set->ready));
		if (got)
			return got;
		if (pv_likely(arm(set)))
			break;
		if (tries == ARM_TRIES) {
			/* There is always something: the loop shall see to its other fds, and come back. */
			set->armed = true;
			pv_epoll_ring_bell(set);
			return 0;
		}
	}
	set->armed = true;
	if (runs(e))
		pv_engine_timers(e);
	return 0;
}

int pyvma_epoll_turn(pyvma_epoll *set, struct pyvma_event *events, int n, int64_t spin_ns, int other)
{
	int rc;

	if (n <= 0)
		return -EINVAL;
	pv_lock_get(&pv_engine.lock);
	if (set->closed) {
		pv_lock_put(&pv_engine.lock);
		return -EBADF;
	}
	set->users++;
	set->armed = false;
	rc = spin_ns < 0 ? sleep_locked(set, events, n) : spin_locked(set, events, n, spin_ns, other);
	pv_epoll_count(set, rc);
	pv_epoll_put(set);
	return rc;
}

int pyvma_epoll_loop_fd(pyvma_epoll *set)
{
	struct pv_engine *e = &pv_engine;

	pv_lock_get(&e->lock);
	if (!set->looped) {
		set->looped = set->armed = true;
		pv_list_add(&loops, &set->on_loops);
		e->loops++;
		rings_sync(set);
		pv_epoll_ring_bell(set); /* the first turn arms */
		if (e->have_thread)
			pv_engine_wake(&e->progress);
	}
	pv_lock_put(&e->lock);
	return set->kep;
}

void pv_loop_close(struct pyvma_epoll *set)
{
	if (!set->looped)
		return;
	set->looped = set->armed = false;
	pv_list_del(&set->on_loops);
	pv_engine.loops -= pv_engine.loops > 0;
}

/* The child shares the kernel's sets with its parent, whose they are: it gets empty ones under the same numbers. */
void pv_loops_forked(void)
{
	pv_list_for_each_safe(it, tmp, &loops) {
		struct pyvma_epoll *set = pv_list_entry(it, struct pyvma_epoll, on_loops);
		int own = epoll_create1(EPOLL_CLOEXEC);

		if (own >= 0) {
			dup3(own, set->kep, O_CLOEXEC);
			close(own);
		}
		set->nring = 0;
		set->closed = true;
		pv_loop_close(set);
	}
}
