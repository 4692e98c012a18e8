/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages. */
#include "preload/preload.h"

PL_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(recvmsg)(fd, msg, flags) : pl_result(pyvma_sock_recvmsg(h, msg, flags, -1));
}

PL_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	pyvma_sock *h = pl_sock(fd);

	return pv_unlikely(!h) ? PL_REAL(sendmsg)(fd, msg, flags) : pl_result(pyvma_sock_sendmsg(h, msg, flags, -1));
}
