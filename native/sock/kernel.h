/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernel sockets with this library's rules of waiting: a timeout a call, -errno, a signal ends the wait with -EINTR. Any thread.
 * timeout_ns: -1 as the fd itself waits (O_NONBLOCK, SO_RCVTIMEO), else so long, 0 not at all: -EAGAIN then.
 */
#ifndef PV_SOCK_KERNEL_H
#define PV_SOCK_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

int64_t pv_kernel_sendmsg(int fd, const struct msghdr *msg, int flags, int64_t timeout_ns);
int64_t pv_kernel_recvmsg(int fd, struct msghdr *msg, int flags, int64_t timeout_ns);
int pv_kernel_connect(int fd, const struct sockaddr *addr, socklen_t len, int64_t timeout_ns);
/* revents, 0 at the timeout, -errno. timeout_ns < 0: for ever. */
int pv_kernel_poll(int fd, int events, int64_t timeout_ns);

#endif
