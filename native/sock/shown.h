/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What readers of the statistics file see of a socket (struct pv_sock_stat). The block is the shared socket's for as long as its memory
 * is, which is for ever: a call that comes late counts where the next socket does, never in freed memory.
 */
#ifndef PV_SOCK_SHOWN_H
#define PV_SOCK_SHOWN_H

#include "sock/sock.h"

/* `so` is being made, or gone. The engine's lock is not held. 0 or -ENOMEM. */
int pv_shown_open(struct pv_sock *so);
void pv_shown_close(struct pv_sock *so);
/* Who has the socket may have changed; the engine's lock is held, or nobody else knows the socket. */
void pv_shown_update(struct pv_sock *so);
/* Why it is the kernel's; in the text `addr` comes first when it is not NULL. Likewise. */
void pv_shown_reason(struct pv_sock *so, const char *reason, const struct pv_addr *addr);
/* NULL: none is known. Likewise. */
pv_inline const char *pv_shown_reason_text(const struct pv_sock *so)
{
	return so->st->reason ? so->st->reason->text : NULL;
}

/* What a call of the kernel's came to; any thread. */
pv_inline void pv_shown_failed(struct pv_sock_failed *way, int64_t rc)
{
	pv_stat_add(rc == -EAGAIN ? &way->eagain : &way->errors, 1);
}

/* What a call of the stack's came to that failed, unless for its socket or the engine being gone. The engine's lock is held. */
pv_inline void pv_shown_refused(struct pv_sock_failed *way, int64_t rc)
{
	bool gone = rc == -EBADF || rc == -ENETDOWN;

	way->eagain += rc == -EAGAIN;
	way->errors += rc != -EAGAIN && !gone;
}

/* What the kernel does for it is counted there, from the first call on. Any thread. */
struct pv_kernel_stat *pv_shown_kernel_make(struct pv_sock *so);
pv_inline struct pv_kernel_stat *pv_shown_kernel(struct pv_sock *so)
{
	struct pv_kernel_stat *k = atomic_load_explicit(&so->st->kernel, memory_order_acquire);

	return pv_likely(k != NULL) ? k : pv_shown_kernel_make(so);
}

pv_inline int64_t pv_shown_kernel_rx(struct pv_sock *so, int64_t n, int flags)
{
	struct pv_kernel_stat *k = pv_shown_kernel(so);

	if (n < 0) {
		pv_shown_failed(&k->rx_failed, n);
	} else if (!(flags & (MSG_PEEK | MSG_ERRQUEUE))) {
		pv_stat_add(&k->rx, 1);
		pv_stat_add(&k->rx_bytes, (uint64_t)n);
	}
	return n;
}

pv_inline int64_t pv_shown_kernel_tx(struct pv_sock *so, int64_t n)
{
	struct pv_kernel_stat *k = pv_shown_kernel(so);

	if (n < 0) {
		pv_shown_failed(&k->tx_failed, n);
	} else {
		pv_stat_add(&k->tx, 1);
		pv_stat_add(&k->tx_bytes, (uint64_t)n);
	}
	return n;
}

pv_inline void pv_shown_receives(struct pv_sock *so)
{
	__atomic_store_n(&so->st->rx_thread, pv_stat_thread(), __ATOMIC_RELAXED);
}

pv_inline void pv_shown_sends(struct pv_sock *so)
{
	__atomic_store_n(&so->st->tx_thread, pv_stat_thread(), __ATOMIC_RELAXED);
}

#endif
