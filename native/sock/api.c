/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls on sockets: the kernel's for now. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

#include "sock/kernel.h"
#include "sock/sock.h"

#define FD(h) pyvma_sock_fd(h)
#define RC(call) ((call) < 0 ? -errno : 0)

int pyvma_sock_bind(pyvma_sock *s, const struct sockaddr *addr, socklen_t len)
{
	return RC(bind(FD(s), addr, len));
}
int pyvma_sock_connect(pyvma_sock *s, const struct sockaddr *addr, socklen_t len, int64_t timeout_ns)
{
	return pv_kernel_connect(FD(s), addr, len, timeout_ns);
}
int pyvma_sock_getsockname(pyvma_sock *s, struct sockaddr *addr, socklen_t *len)
{
	return RC(getsockname(FD(s), addr, len));
}
int pyvma_sock_getpeername(pyvma_sock *s, struct sockaddr *addr, socklen_t *len)
{
	return RC(getpeername(FD(s), addr, len));
}
int pyvma_sock_shutdown(pyvma_sock *s, int how)
{
	return RC(shutdown(FD(s), how));
}
int pyvma_sock_setsockopt(pyvma_sock *s, int level, int name, const void *val, socklen_t len)
{
	return RC(setsockopt(FD(s), level, name, val, len));
}
int pyvma_sock_getsockopt(pyvma_sock *s, int level, int name, void *val, socklen_t *len)
{
	return RC(getsockopt(FD(s), level, name, val, len));
}
int pyvma_sock_ioctl(pyvma_sock *s, unsigned long request, void *arg)
{
	int rc = ioctl(FD(s), request, arg);

	return rc < 0 ? -errno : rc;
}
int pyvma_sock_set_nonblock(pyvma_sock *s, int on)
{
	return RC(ioctl(FD(s), FIONBIO, &on));
}
int64_t pyvma_sock_send(pyvma_sock *s, const void *buf, size_t len, int flags, int64_t timeout_ns)
{
	return pv_kernel_sendto(FD(s), buf, len, flags, NULL, 0, timeout_ns);
}
int64_t pyvma_sock_recv(pyvma_sock *s, void *buf, size_t len, int flags, int64_t timeout_ns)
{
	return pv_kernel_recvfrom(FD(s), buf, len, flags, NULL, NULL, timeout_ns);
}
int64_t pyvma_sock_sendto(pyvma_sock *s, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t addrlen,
			  int64_t timeout_ns)
{
	return pv_kernel_sendto(FD(s), buf, len, flags, addr, addrlen, timeout_ns);
}
int64_t pyvma_sock_recvfrom(pyvma_sock *s, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addrlen,
			    int64_t timeout_ns)
{
	return pv_kernel_recvfrom(FD(s), buf, len, flags, addr, addrlen, timeout_ns);
}
int64_t pyvma_sock_sendmsg(pyvma_sock *s, const struct msghdr *msg, int flags, int64_t timeout_ns)
{
	return pv_kernel_sendmsg(FD(s), msg, flags, timeout_ns);
}
int64_t pyvma_sock_recvmsg(pyvma_sock *s, struct msghdr *msg, int flags, int64_t timeout_ns)
{
	return pv_kernel_recvmsg(FD(s), msg, flags, timeout_ns);
}
int pyvma_sock_poll(pyvma_sock *s, int events, int64_t timeout_ns)
{
	return pv_kernel_poll(FD(s), events, timeout_ns);
}
int pyvma_sock_send_batch(pyvma_sock *s, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	int done = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct pyvma_msg *m = &msgs[i];
		int64_t rc = pv_kernel_sendto(FD(s), m->base, m->len, flags, m->addrlen ? (void *)&m->addr : NULL, m->addrlen,
					      done ? 0 : timeout_ns);

		if (rc < 0)
			return done ? done : (int)rc;
		done++;
	}
	return done;
}
int pyvma_sock_recv_batch(pyvma_sock *s, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	int done = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct pyvma_msg *m = &msgs[i];
		struct iovec iov = { .iov_base = m->base, .iov_len = m->len };
		struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1, .msg_name = &m->addr, .msg_namelen = sizeof(m->addr) };
		int64_t rc = pv_kernel_recvmsg(FD(s), &h, flags, done ? 0 : timeout_ns);

		if (rc < 0)
			return done ? done : (int)rc;
		m->len = (uint32_t)rc;
		m->flags = (uint32_t)h.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
		m->addrlen = h.msg_namelen;
		m->lent = NULL;
		done++;
	}
	return done;
}
int pyvma_sock_recv_lent(pyvma_sock *s, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	(void)s, (void)msgs, (void)n, (void)flags, (void)timeout_ns;
	return -EOPNOTSUPP;
}
void pyvma_batch_release(struct pyvma_msg *msgs, uint32_t n)
{
	(void)msgs, (void)n;
}
int pyvma_sock_stats(pyvma_sock *s, struct pyvma_sock_stats *out)
{
	(void)s;
	memset(out, 0, sizeof(*out));
	return 0;
}
int pyvma_start(void)
{
	return 0;
}
void pyvma_stop(void)
{
}
int pyvma_interface_get(unsigned int index, struct pyvma_interface *out)
{
	(void)index, (void)out;
	return -ENOENT;
}
int pyvma_counter_get(unsigned int i, struct pyvma_counter *out)
{
	(void)i, (void)out;
	return -ENOENT;
}
