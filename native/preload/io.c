/* SPDX-License-Identifier: BSD-3-Clause */
/* The read and write families. */
#include <unistd.h>

#include "preload/preload.h"

PL_EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(read)(fd, buf, len) : pl_result(pyvma_sock_recv(h, buf, len, 0, -1));
}

PL_EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(write)(fd, buf, len) : pl_result(pyvma_sock_send(h, buf, len, 0, -1));
}

PL_EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	pyvma_sock *h = pl_sock(fd);
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };

	if (!h)
		return PL_REAL(readv)(fd, iov, n);
	return n < 0 || n > 1024 ? pl_result(-EINVAL) : pl_result(pyvma_sock_recvmsg(h, &msg, 0, -1));
}

PL_EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	pyvma_sock *h = pl_sock(fd);
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };

	if (!h)
		return PL_REAL(writev)(fd, iov, n);
	return n < 0 || n > 1024 ? pl_result(-EINVAL) : pl_result(pyvma_sock_sendmsg(h, &msg, 0, -1));
}

PL_EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(recv)(fd, buf, len, flags) : pl_result(pyvma_sock_recv(h, buf, len, flags, -1));
}

PL_EXPORT ssize_t recvfrom(int fd, void *restrict buf, size_t len, int flags, struct sockaddr *restrict addr,
			   socklen_t *restrict alen)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(recvfrom)(fd, buf, len, flags, addr, alen)
			       : pl_result(pyvma_sock_recvfrom(h, buf, len, flags, addr, alen, -1));
}

PL_EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(send)(fd, buf, len, flags) : pl_result(pyvma_sock_send(h, buf, len, flags, -1));
}

PL_EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t alen)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(sendto)(fd, buf, len, flags, addr, alen)
			       : pl_result(pyvma_sock_sendto(h, buf, len, flags, addr, alen, -1));
}
