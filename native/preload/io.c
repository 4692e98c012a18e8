/* SPDX-License-Identifier: BSD-3-Clause */
/* The read and write families. What has an offset a socket refuses: those calls are the kernel's. */
#include <sys/uio.h>
#include <unistd.h>

#include "preload/preload.h"

#define IOV_LIMIT 1024

PL_EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	/* Without room nothing is asked of the socket (sock_read_iter in Linux), not even whether it has failed. */
	PL_CALL(fd, SO_RCVTIMEO, pv_likely(len) ? pyvma_sock_recv(h, buf, len, 0, -1) : 0);
	return PL_REAL(read)(fd, buf, len);
}

PL_EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	PL_CALL(fd, SO_SNDTIMEO, pyvma_sock_send(h, buf, len, 0, -1));
	return PL_REAL(write)(fd, buf, len);
}

/* Vectors without a byte are nothing to a socket (do_iter_readv_writev in Linux). */
static bool has_room(const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++)
		if (iov[i].iov_len)
			return true;
	return false;
}

int64_t pl_read_to(pyvma_sock *h, const struct iovec *iov, int n, int flags)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };

	if (n < 0 || n > IOV_LIMIT)
		return -EINVAL;
	if (pv_unlikely(!iov && n))
		return -EFAULT;
	return has_room(iov, n) ? pyvma_sock_recvmsg(h, &msg, flags, -1) : 0;
}

int64_t pl_write_from(pyvma_sock *h, const struct iovec *iov, int n, int flags)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };

	if (n < 0 || n > IOV_LIMIT)
		return -EINVAL;
	if (pv_unlikely(!iov && n))
		return -EFAULT;
	return has_room(iov, n) ? pyvma_sock_sendmsg(h, &msg, flags, -1) : 0;
}

PL_EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	PL_CALL(fd, SO_RCVTIMEO, pl_read_to(h, iov, n, 0));
	return PL_REAL(readv)(fd, iov, n);
}

PL_EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	PL_CALL(fd, SO_SNDTIMEO, pl_write_from(h, iov, n, 0));
	return PL_REAL(writev)(fd, iov, n);
}

/* At no offset they are readv and writev with flags; any other a socket refuses, and flags that it does not know. */
static bool plain(off_t at, int flags)
{
	return at == -1 && !(flags & ~(RWF_NOWAIT | RWF_HIPRI));
}

PL_EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	if (plain(at, flags))
		PL_CALL(fd, SO_RCVTIMEO, pl_read_to(h, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0));
	return PL_REAL(preadv2)(fd, iov, n, at, flags);
}

PL_EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	if (plain(at, flags))
		PL_CALL(fd, SO_SNDTIMEO, pl_write_from(h, iov, n, flags & RWF_NOWAIT ? MSG_DONTWAIT : 0));
	return PL_REAL(pwritev2)(fd, iov, n, at, flags);
}

PL_EXPORT ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off_t at, int flags) __attribute__((alias("preadv2")));
PL_EXPORT ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off_t at, int flags) __attribute__((alias("pwritev2")));

PL_EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	PL_CALL(fd, SO_RCVTIMEO, pyvma_sock_recv(h, buf, len, flags, -1));
	return PL_REAL(recv)(fd, buf, len, flags);
}

static pv_noinline int64_t recv_unnamed(pyvma_sock *h, void *buf, size_t len, int flags, int bad)
{
	int64_t rc = pyvma_sock_recv(h, buf, len, flags, -1);

	return rc < 0 ? rc : bad;
}

pv_inline int64_t recv_from(pyvma_sock *h, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *alen)
{
	int bad = pl_no_len(addr, alen);

	if (pv_unlikely(bad))
		return recv_unnamed(h, buf, len, flags, bad);
	return pyvma_sock_recvfrom(h, buf, len, flags, addr, alen, -1);
}

int64_t pl_recv_from(pyvma_sock *h, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *alen)
{
	return recv_from(h, buf, len, flags, addr, alen);
}

PL_EXPORT ssize_t recvfrom(int fd, void *restrict buf, size_t len, int flags, struct sockaddr *restrict addr,
			   socklen_t *restrict alen)
{
	PL_CALL(fd, SO_RCVTIMEO, recv_from(h, buf, len, flags, addr, alen));
	return PL_REAL(recvfrom)(fd, buf, len, flags, addr, alen);
}

PL_EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	PL_CALL(fd, SO_SNDTIMEO, pyvma_sock_send(h, buf, len, flags, -1));
	return PL_REAL(send)(fd, buf, len, flags);
}

PL_EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t alen)
{
	PL_CALL(fd, SO_SNDTIMEO, addr && pl_too_long(alen) ? -EINVAL : pyvma_sock_sendto(h, buf, len, flags, addr, alen, -1));
	return PL_REAL(sendto)(fd, buf, len, flags, addr, alen);
}

/* ---- what _FORTIFY_SOURCE makes of them -------------------------------------------------------------------------------- */

PL_EXPORT ssize_t __read_chk(int fd, void *buf, size_t len, size_t size);
PL_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t len, size_t size, int flags);
PL_EXPORT ssize_t __recvfrom_chk(int fd, void *restrict buf, size_t len, size_t size, int flags, struct sockaddr *restrict addr,
				 socklen_t *restrict alen);
_Noreturn void __chk_fail(void);

ssize_t __read_chk(int fd, void *buf, size_t len, size_t size)
{
	if (len > size)
		__chk_fail();
	return read(fd, buf, len);
}

ssize_t __recv_chk(int fd, void *buf, size_t len, size_t size, int flags)
{
	if (len > size)
		__chk_fail();
	return recv(fd, buf, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *restrict buf, size_t len, size_t size, int flags, struct sockaddr *restrict addr,
		       socklen_t *restrict alen)
{
	if (len > size)
		__chk_fail();
	return recvfrom(fd, buf, len, flags, addr, alen);
}
