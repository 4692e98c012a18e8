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

#include <poll.h>

#include "sock/shown.h"
#include "sock/sock.h"

/* What sendto(2) was given. */
struct pv_sendto {
	struct pv_iov iov;
	const struct sockaddr *addr;
	socklen_t addrlen;
};

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
int64_t pv_stream_sendto(struct pyvma_sock *h, const struct pv_sendto *m, int flags, int64_t timeout_ns);
int64_t pv_stream_read_as(struct pyvma_sock *h, struct pv_sock *so, void *buf, size_t len, int flags, int64_t timeout_ns);
/* Likewise, with the lock held before and not after, and the socket looked at. */
int64_t pv_stream_read_on(struct pyvma_sock *h, struct pv_sock *so, void *buf, size_t len, int flags, int64_t timeout_ns);
/* Zero copy: waits for the first piece of the stream, lends what is there up to `n` pieces. 0 at the end of the stream. */
int64_t pv_stream_lend(struct pyvma_sock *h, struct pv_sock *so, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns);

/* stream_opt.c; the lock is held. */
void pv_stream_import(struct pv_sock *so);
void pv_stream_stopped(void); /* the engine is about to close */
int pv_stream_info(const struct pv_sock *so, void *out, socklen_t *len); /* TCP_INFO; stream_info.c */
/* The socket's options in force, set on its kernel socket; those that leaving TCP_REPAIR would undo are for `after`. */
void pv_stream_options_to(struct pv_sock *so, int fd, bool after);

/* Before the last close: SO_LINGER waits until the peer has everything (sk_stream_wait_close). Takes the lock. */
void pv_stream_linger(struct pyvma_sock *h, struct pv_sock *so);
/* With the lock. */
int pv_stream_open(struct pv_sock *so); /* a TCP socket in the stack, with the kernel socket's options. 0 or -ENOMEM */
void pv_stream_drop(struct pv_sock *so); /* takes it away */
void pv_stream_decide(struct pv_sock *so, bool kernel_leg); /* it is the stack's; as a listener perhaps the kernel's too */
void pv_stream_close(struct pv_sock *so); /* the program's close: as that, and connections that are not over keep their port */
/* What poll(2) shows of it but for a listener's kernel half; that it can be written only where `events` asks. */
pv_inline uint32_t pv_stream_bits(const struct pv_sock *so, uint32_t events)
{
	/* The stack's bits are poll's (epoll.c asserts it). */
	uint32_t bits = pv_tcp_ready_of(so->tc, events & (POLLOUT | POLLWRNORM) ? PV_EV_OUT | PV_EV_ERR : PV_EV_ERR);

	return bits | pv_ready_norm(bits);
}

/* ---- stream_host.c: on interfaces of the kernel's; all with the lock ---------------------------------------------------- */

/* `ep`: an address of such an interface, or all. 0 also when the socket was left to the kernel; else -errno. */
int pv_stream_host_bind(struct pv_sock *so, const struct pv_endpoint *ep);
/* An address that is the kernel's alone; `ep` is what `addr` says. */
int pv_stream_host_bind_kernel(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len);
/* In the stack; the kernel's is the caller's. 0 also when the socket was left to the kernel. */
int pv_stream_host_listen(struct pv_sock *so, int backlog);
/* The socket is the kernel's; `addr`, if any, stands in the text before the reason. Any stream that is not decided yet. */
void pv_stream_give(struct pv_sock *so, const char *reason, const struct pv_addr *addr);
/* 0: pv_stream_host_connect would be tried; 1: the socket is the kernel's; -errno: strict mode forbids that. */
int pv_stream_host_would(struct pv_sock *so, const struct pv_endpoint *to);
/* Before the stack connects. 1: it may, the port is reserved; 0: the socket is the kernel's; -errno: strict mode forbids that. */
int pv_stream_host_connect(struct pv_sock *so, const struct pv_endpoint *to);
/* What the stack's connect said: as it is; or 1: it could not, and the socket is the kernel's now. */
int pv_stream_host_refused(struct pv_sock *so, const struct pv_endpoint *to, int rc);
/* hold.c: a name for a stream that has none, to connect by that path. 0; -EAGAIN: by its own kernel socket; what the ring said of the rule. */
int pv_stream_host_reserved(struct pv_sock *so, const struct pv_endpoint *to, const struct pv_path *path);
/* The socket is closed, what the stack still has of the port `local` keeps it. */
void pv_stream_host_keep(struct pv_sock *so, const struct pv_endpoint *local);
void pv_stream_hold_end(struct pv_sock *so, uint16_t port); /* the stack gives up its connection of that port, which lives on */
void pv_stream_port_free(void *hold);
bool pv_stream_port_idle(void *hold);
void pv_stream_holds_forked(void); /* in a forked child */

/* As pv_sock_lock, for a socket that has a TCP socket. */
pv_inline int pv_stream_lock(const struct pyvma_sock *h, struct pv_sock *so)
{
	pv_lock_get(&pv_engine.lock);
	if (pv_likely(pv_handle_sock(h) == so && so->tc))
		return 0;
	return pv_sock_lock_failed(h, so);
}

/* As pv_stream_read_as. What there is for a read that asks for nothing else, as most do, is had here, without what only a wait needs. */
pv_inline int64_t pv_stream_read(struct pyvma_sock *h, struct pv_sock *so, void *buf, size_t len, int flags, int64_t timeout_ns)
{
	int64_t n;

	if (pv_unlikely(flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)))
		return pv_stream_read_as(h, so, buf, len, flags, timeout_ns);
	n = pv_stream_lock(h, so);
	if (pv_unlikely(n))
		return n;
	n = pv_tcp_recv_now(so->tc, buf, len, pv_clock_now(&pv_engine.clock));
	if (pv_unlikely(n <= 0))
		return pv_stream_read_on(h, so, buf, len, flags, timeout_ns);
	pv_shown_receives(so);
	pv_engine_timers(&pv_engine);
	pv_ready_update(so);
	pv_sock_unlock();
	return n;
}

/* The same for one that may have none yet. */
pv_inline int pv_stream_lock_any(const struct pyvma_sock *h, struct pv_sock *so)
{
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) == so && !so->dead && pv_sock_mode(so) != PV_SOCK_KERNEL)
		return 0;
	return pv_sock_lock_failed(h, so);
}

#endif
