/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of libc that the preload library interposes and the engine makes itself, by X(type, call, parameters, arguments). libpyvma.so is
 * linked with --wrap for each, so that they never come back to the preload library (doc/preload.md). Those with a variable number of
 * arguments are written out in libc.c. What is closed is no fd of the engine's any more.
 */
#ifndef PV_RT_LIBC_H
#define PV_RT_LIBC_H

#include <stdbool.h>

#include "base/ownfd.h"

/* Is the preload library in the process? By the dynamic linker's names: true also before its constructors have run. */
bool pv_libc_preloaded(void);

#define PV_LIBC_CALLS(X)                                                                                                           \
	X(int, accept, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))                                           \
	X(int, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags), (fd, addr, len, flags))                        \
	X(int, bind, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))                                        \
	X(int, close, (int fd), (pv_ownfd_not(fd)))                                                                                \
	X(int, connect, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))                                     \
	X(int, dup, (int fd), (fd))                                                                                                \
	X(int, dup2, (int fd, int to), (fd, to))                                                                                   \
	X(int, dup3, (int fd, int to, int flags), (fd, to, flags))                                                                 \
	X(int, epoll_create1, (int flags), (flags))                                                                                \
	X(int, epoll_ctl, (int ep, int op, int fd, struct epoll_event *ev), (ep, op, fd, ev))                                      \
	X(int, epoll_wait, (int ep, struct epoll_event *ev, int n, int ms), (ep, ev, n, ms))                                       \
	X(int, epoll_pwait, (int ep, struct epoll_event *ev, int n, int ms, const sigset_t *mask), (ep, ev, n, ms, mask))          \
	X(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))                                      \
	X(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))                                      \
	X(int, getsockopt, (int fd, int level, int name, void *val, socklen_t *len), (fd, level, name, val, len))                  \
	X(int, listen, (int fd, int backlog), (fd, backlog))                                                                       \
	X(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))                                                        \
	X(int, ppoll, (struct pollfd * fds, nfds_t n, const struct timespec *ts, const sigset_t *mask), (fds, n, ts, mask))        \
	X(ssize_t, pread, (int fd, void *buf, size_t len, off_t at), (fd, buf, len, at))                                           \
	X(ssize_t, pwrite, (int fd, const void *buf, size_t len, off_t at), (fd, buf, len, at))                                    \
	X(ssize_t, read, (int fd, void *buf, size_t len), (fd, buf, len))                                                          \
	X(ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n))                                                  \
	X(ssize_t, recv, (int fd, void *buf, size_t len, int flags), (fd, buf, len, flags))                                        \
	X(ssize_t, recvfrom, (int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *alen),                   \
	  (fd, buf, len, flags, addr, alen))                                                                                       \
	X(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags))                                             \
	X(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned int n, int flags, struct timespec *ts), (fd, msgs, n, flags, ts)) \
	X(ssize_t, send, (int fd, const void *buf, size_t len, int flags), (fd, buf, len, flags))                                  \
	X(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags))                                       \
	X(int, sendmmsg, (int fd, struct mmsghdr *msgs, unsigned int n, int flags), (fd, msgs, n, flags))                          \
	X(ssize_t, sendto, (int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t alen),          \
	  (fd, buf, len, flags, addr, alen))                                                                                       \
	X(int, setsockopt, (int fd, int level, int name, const void *val, socklen_t len), (fd, level, name, val, len))             \
	X(int, shutdown, (int fd, int how), (fd, how))                                                                             \
	X(int, sigaction, (int sig, const struct sigaction *act, struct sigaction *old), (sig, act, old))                          \
	X(int, socket, (int family, int type, int proto), (family, type, proto))                                                   \
	X(int, socketpair, (int family, int type, int proto, int pair[2]), (family, type, proto, pair))                            \
	X(ssize_t, write, (int fd, const void *buf, size_t len), (fd, buf, len))                                                   \
	X(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n))

#endif
