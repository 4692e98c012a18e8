/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream sockets (SOCK_STREAM of AF_INET and AF_INET6) over the stack's TCP. The calls of pyvma.h come here once they know that the
 * socket is one; arguments and results are theirs.
 *
 * On an address of an interface of our own the stack has the socket alone. A socket bound to all addresses is bound in both, the stack
 * and the kernel; listening it listens in both and accept takes from either; connecting it becomes the one's or the other's.
 */
#ifndef PV_SOCK_STREAM_H
#define PV_SOCK_STREAM_H

#include "sock/sock.h"

int pv_stream_bind(struct pyvma_sock *h, struct pv_sock *so, const struct sockaddr *addr, socklen_t len);
int pv_stream_connect(struct pyvma_sock *h, struct pv_sock *so, const struct sockaddr *addr, socklen_t len, int64_t timeout_ns);
int pv_stream_shutdown(struct pyvma_sock *h, struct pv_sock *so, int how);
int pv_stream_getsockname(struct pyvma_sock *h, struct pv_sock *so, struct sockaddr *addr, socklen_t *len);
int pv_stream_getpeername(struct pyvma_sock *h, struct pv_sock *so, struct sockaddr *addr, socklen_t *len);
/* -ENOPROTOOPT: the kernel socket answers. */
int pv_stream_ioctl(struct pyvma_sock *h, struct pv_sock *so, unsigned long request, void *arg);
int pv_stream_setsockopt(struct pyvma_sock *h, struct pv_sock *so, int level, int name, const void *val, socklen_t len);
int pv_stream_getsockopt(struct pyvma_sock *h, struct pv_sock *so, int level, int name, void *val, socklen_t *len);
int64_t pv_stream_send(struct pyvma_sock *h, struct pv_sock *so, const struct msghdr *msg, int flags, int64_t timeout_ns);
int64_t pv_stream_recv(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg, int flags, int64_t timeout_ns);
/* The same with one buffer, no name and no ancillary data. */
int64_t pv_stream_write(struct pyvma_sock *h, struct pv_sock *so, const void *buf, size_t len, int flags, int64_t timeout_ns);
int64_t pv_stream_read(struct pyvma_sock *h, struct pv_sock *so, void *buf, size_t len, int flags, int64_t timeout_ns);
/* Zero copy: waits for the first piece of the stream, lends what is there up to `n` pieces. 0 at the end of the stream. */
int64_t pv_stream_lend(struct pyvma_sock *h, struct pv_sock *so, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns);

/* stream_opt.c; the lock is held. */
void pv_stream_import(struct pv_sock *so);

/* With the lock. */
void pv_stream_close(struct pv_sock *so);
/* What poll(2) shows of it, kernel's half of a listener included. */
int pv_stream_revents(struct pv_sock *so);

/* As pv_sock_lock, for a socket that has a TCP socket. */
pv_inline int pv_stream_lock(const struct pyvma_sock *h, struct pv_sock *so)
{
	pv_lock_get(&pv_engine.lock);
	if (pv_likely(pv_handle_sock(h) == so && so->tc))
		return 0;
	return pv_sock_lock_failed(h, so);
}

#endif
