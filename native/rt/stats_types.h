/* SPDX-License-Identifier: BSD-3-Clause */
/* What the runtime and the socket layer show of themselves (rt/stats.h): structures of their own, since their objects must stay usable in
 * a forked child. The numbers are kept here and nowhere else. */
#ifndef PV_RT_STATS_TYPES_H
#define PV_RT_STATS_TYPES_H

#include "base/compiler.h"
#include "base/stats_table.h"

struct pv_engine_stat {
	uint64_t polls, sleeps, wakeups, polling_ns;
	int64_t started_ns, spin_ns;
	uint64_t huge_bytes;
	uint32_t kernel_ratio, lent, nports, progress_tid;
	uint32_t shown;
};

enum pv_sock_shown_state { PV_SHOWN_UNDECIDED, PV_SHOWN_OFFLOADED, PV_SHOWN_KERNEL, PV_SHOWN_LOST };

struct pv_reason_stat {
	uint32_t shown;
	char text[124];
};

enum pv_sock_shown_stamps { PV_SHOWN_STAMPS_NONE, PV_SHOWN_STAMPS_SOFTWARE, PV_SHOWN_STAMPS_DEVICE, PV_SHOWN_STAMPS_BOTH };

/* Of one direction: calls that ended with EAGAIN, and those that were refused otherwise. */
struct pv_sock_failed {
	uint64_t eagain, errors;
};

/* Written by whoever calls, perhaps several at once: pv_stat_add. */
struct pv_kernel_stat {
	uint64_t rx, rx_bytes, tx, tx_bytes;
	struct pv_sock_failed rx_failed, tx_failed;
};

struct pv_sock_stat {
	/* What calls write that go through the stack, in a line of its own. */
	uint64_t hits, misses, sleeps;
	struct pv_sock_failed rx, tx;
	uint32_t rx_thread, tx_thread;
	const void *transport;
	_Atomic(struct pv_kernel_stat *) kernel; /* NULL: no call went there yet */
	_Atomic(struct pv_kernel_stat *) kernel_block; /* where it points: made once for all sockets of this memory */
	struct pv_reason_stat *reason;
	int64_t created_ns;
	uint32_t kernel_id; /* pv_stats_show */
	int32_t fd;
	uint32_t tsflags;
	uint8_t family, type;
	uint8_t state; /* enum pv_sock_shown_state */
	uint8_t stamps; /* enum pv_sock_shown_stamps */
	bool nonblock;
	uint16_t proto;
};
_Static_assert(offsetof(struct pv_sock_stat, transport) == PV_CACHELINE && sizeof(struct pv_sock_stat) <= 2 * PV_CACHELINE,
	       "each socket has one");

struct pv_epoll_stat {
	uint64_t waits, events_ours, events_kernel, hits, misses, timeouts, errors, polling_ns;
	uint32_t sockets, kernel_fds, thread, shown;
	int32_t fd;
	uint8_t kind; /* enum pyvma_waits */
};

extern const struct pv_stat_type pv_engine_stat_type, pv_sock_stat_type, pv_epoll_stat_type, pv_reason_stat_type,
    pv_kernel_stat_type;

/* One more; any thread. */
pv_inline void pv_stat_add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* The calling thread's number, as gettid tells it. */
extern _Thread_local uint32_t pv_stat_tid __attribute__((tls_model("initial-exec")));
uint32_t pv_stat_tid_ask(void);
pv_inline uint32_t pv_stat_thread(void)
{
	return pv_likely(pv_stat_tid != 0) ? pv_stat_tid : pv_stat_tid_ask();
}

#endif
