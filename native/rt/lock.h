/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lock of a stack. A free lock is taken by one compare-and-swap and given back by one store; a thread that does not get it
 * spins shortly, then sleeps on a futex. A thread that holds it for long (a spinning receiver) looks at pv_lock_wanted every turn and
 * calls pv_lock_yield, which lets a waiter in before it takes the lock again.
 */
#ifndef PV_RT_LOCK_H
#define PV_RT_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

struct pv_lock {
	_Atomic(uint32_t) held;
	_Atomic(uint32_t) waiters; /* threads in the slow half of pv_lock_get */
	_Atomic(uint32_t) handed; /* times that the slow half got the lock */
} pv_aligned(PV_CACHELINE);

/* Once in the process: lets a sleeper order itself with pv_lock_put's plain store. */
void pv_lock_setup(void);
/* Every other thread of the process has passed a full barrier when this returns: it has made visible what it stored before, or will see what
 * is stored here. For what is asked rarely, beside one that is answered often. */
void pv_lock_barrier(void);
void pv_lock_init(struct pv_lock *l);
void pv_lock_get_slow(struct pv_lock *l);
void pv_lock_wake(struct pv_lock *l);
/* Held before and after. */
void pv_lock_yield(struct pv_lock *l);

pv_inline bool pv_lock_try(struct pv_lock *l)
{
	uint32_t zero = 0;

	return atomic_compare_exchange_strong_explicit(&l->held, &zero, 1, memory_order_acquire, memory_order_relaxed);
}

pv_inline void pv_lock_get(struct pv_lock *l)
{
	if (pv_unlikely(!pv_lock_try(l)))
		pv_lock_get_slow(l);
}

pv_inline bool pv_lock_wanted(const struct pv_lock *l)
{
	return atomic_load_explicit(&l->waiters, memory_order_relaxed) != 0;
}

pv_inline void pv_lock_put(struct pv_lock *l)
{
	atomic_store_explicit(&l->held, 0, memory_order_release);
	/* The compiler must not swap the two; what the processor may do is pv_lock_get_slow's concern. */
	atomic_signal_fence(memory_order_seq_cst);
	if (pv_unlikely(pv_lock_wanted(l)))
		pv_lock_wake(l);
}

#endif
