/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order that matters: pv_lock_put stores `held` = 0 and then loads `waiters`; a waiter counts itself and then loads `held`. Were
 * both loads to run before both stores are seen, the waiter would sleep on a free lock. Usually a full fence on both sides prevents
 * that. Here the side that runs millions of times a second has none: the waiter, before it sleeps, runs membarrier(2), which puts a
 * fence into every thread of the process. After it, either our load sees the free lock, or the holder has not loaded `waiters` yet
 * and will see us. Where the kernel has no membarrier a sleep lasts at most a millisecond.
 */
#include "rt/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_TURNS 100
#define YIELD_TURNS 2000
#define YIELD_SCHED 50

static _Atomic(bool) have_membarrier;

static long futex(_Atomic(uint32_t) *word, int op, uint32_t val, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, val, timeout, NULL, 0);
}

void pv_lock_setup(void)
{
	atomic_store_explicit(&have_membarrier, syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0,
			      memory_order_relaxed);
}

void pv_lock_init(struct pv_lock *l)
{
	atomic_store(&l->held, 0);
	atomic_store(&l->waiters, 0);
	atomic_store(&l->handed, 0);
}

void pv_lock_wake(struct pv_lock *l)
{
	futex(&l->held, FUTEX_WAKE, 1, NULL);
}

static bool fence_all(void)
{
	return atomic_load_explicit(&have_membarrier, memory_order_relaxed) &&
	       syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void sleep_on(struct pv_lock *l)
{
	struct timespec ms = { .tv_nsec = PV_NS_PER_MS };

	futex(&l->held, FUTEX_WAIT, 1, fence_all() ? NULL : &ms);
}

/* Nothing stays in a processor's store buffer for that long. */
void pv_lock_barrier(void)
{
	struct timespec ms = { .tv_nsec = PV_NS_PER_MS };

	atomic_thread_fence(memory_order_seq_cst);
	if (!fence_all())
		(void)nanosleep(&ms, NULL);
}

void pv_lock_get_slow(struct pv_lock *l)
{
	atomic_fetch_add_explicit(&l->waiters, 1, memory_order_seq_cst);
	for (unsigned int turn = 0;; turn++) {
		if (!atomic_load_explicit(&l->held, memory_order_relaxed) && pv_lock_try(l))
			break;
		if (turn < SPIN_TURNS)
			pv_cpu_relax();
		else
			sleep_on(l);
	}
	atomic_fetch_sub_explicit(&l->waiters, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&l->handed, 1, memory_order_relaxed);
}

/* Bounded: the waiter may have been stopped by a debugger, or be one that found the lock free by itself. */
void pv_lock_yield(struct pv_lock *l)
{
	uint32_t handed = atomic_load_explicit(&l->handed, memory_order_relaxed);

	pv_lock_put(l);
	for (unsigned int turn = 0; turn < YIELD_TURNS + YIELD_SCHED; turn++) {
		if (!pv_lock_wanted(l) || atomic_load_explicit(&l->handed, memory_order_relaxed) != handed)
			break;
		if (turn < YIELD_TURNS)
			pv_cpu_relax();
		else
			sched_yield();
	}
	pv_lock_get(l);
}
