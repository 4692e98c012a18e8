/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets: handles (struct pyvma_sock, one an fd) over shared sockets (struct pv_sock, one a kernel socket and at most one UDP
 * socket of the stack).
 *
 * Memory of both is never given back to the system, only reused, so that a thread which still holds the handle of a socket that
 * another one closes finds a closed or a new socket, never freed memory: the same race, with the same outcome, as with fds.
 */
#ifndef PV_SOCK_SOCK_H
#define PV_SOCK_SOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "base/list.h"
#include "pyvma.h"

struct pv_udp;

enum pv_sock_mode {
	PV_SOCK_UNDECIDED, /* may become either; so far the kernel's */
	PV_SOCK_KERNEL,
	PV_SOCK_CORE, /* the stack's; the kernel socket beneath is its other leg, or only keeps the fd */
};

/* An open file in the registry. */
struct pv_sock_id {
	struct pv_list node;
	dev_t dev;
	ino_t ino;
	struct pv_sock *so;
};

struct pv_sock {
	struct pv_udp *u; /* engine lock; NULL: no UDP socket in the stack */
	_Atomic(uint8_t) mode; /* enum pv_sock_mode; written under the engine lock */
	_Atomic(bool) nonblock;
	bool candidate; /* a UDP socket that may be offloaded */
	int family, type, proto;
	_Atomic(int) kfd; /* the kernel socket: a handle's fd, or one of our own (`own_kfd`) */
	bool own_kfd; /* registry lock */
	uint32_t refs; /* registry lock: handles, and one for a detached fd */
	char reason[96]; /* why the kernel; registry lock */
	struct pv_sock_id id[2]; /* kernel socket, exported fd */
	struct pv_sock *next; /* free list */
};

/* The handle. `so` is NULL while the memory waits for reuse. */
struct pyvma_sock {
	_Atomic(struct pv_sock *) so;
	_Atomic(int) fd;
	struct pyvma_sock *next; /* free list */
};

pv_inline struct pv_sock *pv_handle_sock(const struct pyvma_sock *h)
{
	return atomic_load_explicit(&h->so, memory_order_acquire);
}

pv_inline int pv_sock_kfd(const struct pv_sock *so)
{
	return atomic_load_explicit(&so->kfd, memory_order_relaxed);
}

pv_inline enum pv_sock_mode pv_sock_mode(const struct pv_sock *so)
{
	return (enum pv_sock_mode)atomic_load_explicit(&so->mode, memory_order_acquire);
}

#endif
