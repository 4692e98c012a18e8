/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The next definition of every call that the preload library interposes: PL_REAL(read)(fd, buf, len). They are looked up when the library is
 * loaded, or by the first call, should that come before.
 */
#ifndef PV_PRELOAD_REAL_H
#define PV_PRELOAD_REAL_H

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/compiler.h"

/* X(type, name, parameters) */
#define PL_REAL_CALLS(X)                                                                                                           \
	X(int, socket, (int, int, int))                                                                                            \
	X(int, bind, (int, const struct sockaddr *, socklen_t))                                                                    \
	X(int, connect, (int, const struct sockaddr *, socklen_t))                                                                 \
	X(int, listen, (int, int))                                                                                                 \
	X(int, accept, (int, struct sockaddr *, socklen_t *))                                                                      \
	X(int, accept4, (int, struct sockaddr *, socklen_t *, int))                                                                \
	X(int, shutdown, (int, int))                                                                                               \
	X(int, getsockname, (int, struct sockaddr *, socklen_t *))                                                                 \
	X(int, getpeername, (int, struct sockaddr *, socklen_t *))                                                                 \
	X(int, getsockopt, (int, int, int, void *, socklen_t *))                                                                   \
	X(int, setsockopt, (int, int, int, const void *, socklen_t))                                                               \
	X(ssize_t, read, (int, void *, size_t))                                                                                    \
	X(ssize_t, readv, (int, const struct iovec *, int))                                                                        \
	X(ssize_t, write, (int, const void *, size_t))                                                                             \
	X(ssize_t, writev, (int, const struct iovec *, int))                                                                       \
	X(ssize_t, recv, (int, void *, size_t, int))                                                                               \
	X(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *))                                           \
	X(ssize_t, recvmsg, (int, struct msghdr *, int))                                                                           \
	X(int, recvmmsg, (int, struct mmsghdr *, unsigned int, int, struct timespec *))                                            \
	X(ssize_t, send, (int, const void *, size_t, int))                                                                         \
	X(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t))                                   \
	X(ssize_t, sendmsg, (int, const struct msghdr *, int))                                                                     \
	X(int, sendmmsg, (int, struct mmsghdr *, unsigned int, int))                                                               \
	X(ssize_t, preadv2, (int, const struct iovec *, int, off_t, int))                                                          \
	X(ssize_t, pwritev2, (int, const struct iovec *, int, off_t, int))                                                         \
	X(ssize_t, sendfile, (int, int, off_t *, size_t))                                                                          \
	X(ssize_t, splice, (int, off64_t *, int, off64_t *, size_t, unsigned int))                                                 \
	X(ssize_t, tee, (int, int, size_t, unsigned int))                                                                          \
	X(FILE *, fdopen, (int, const char *))                                                                                     \
	X(int, fileno, (FILE *))                                                                                                   \
	X(int, vdprintf, (int, const char *, va_list))                                                                             \
	X(void, _exit, (int))                                                                                                      \
	X(int, execve, (const char *, char *const[], char *const[]))                                                               \
	X(int, execvpe, (const char *, char *const[], char *const[]))                                                              \
	X(int, fexecve, (int, char *const[], char *const[]))                                                                       \
	X(int, execveat, (int, const char *, char *const[], char *const[], int))                                                   \
	X(int, posix_spawn,                                                                                                        \
	  (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]))    \
	X(int, posix_spawnp,                                                                                                       \
	  (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]))    \
	X(int, posix_spawn_file_actions_init, (posix_spawn_file_actions_t *))                                                      \
	X(int, posix_spawn_file_actions_destroy, (posix_spawn_file_actions_t *))                                                   \
	X(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t *, int, int))                                         \
	X(int, posix_spawn_file_actions_addclose, (posix_spawn_file_actions_t *, int))                                             \
	X(int, posix_spawn_file_actions_addopen, (posix_spawn_file_actions_t *, int, const char *, int, mode_t))                   \
	X(int, posix_spawn_file_actions_addclosefrom_np, (posix_spawn_file_actions_t *, int))                                      \
	X(int, system, (const char *))                                                                                             \
	X(FILE *, popen, (const char *, const char *))                                                                             \
	X(int, close_range, (unsigned int, unsigned int, int))                                                                     \
	X(int, prctl, (int, ...))                                                                                                  \
	X(long, syscall, (long, ...))                                                                                              \
	X(int, close, (int))                                                                                                       \
	X(int, dup, (int))                                                                                                         \
	X(int, dup2, (int, int))                                                                                                   \
	X(int, dup3, (int, int, int))                                                                                              \
	X(int, fcntl, (int, int, ...))                                                                                             \
	X(int, ioctl, (int, unsigned long, ...))                                                                                   \
	X(void *, dlopen, (const char *, int))                                                                                     \
	X(int, pthread_cancel, (pthread_t))                                                                                        \
	X(int, sigaction, (int, const struct sigaction *, struct sigaction *))                                                     \
	X(sighandler_t, signal, (int, sighandler_t))                                                                               \
	X(sighandler_t, __sysv_signal, (int, sighandler_t))                                                                        \
	X(void, siglongjmp, (struct __jmp_buf_tag *, int))                                                                         \
	X(void, __longjmp_chk, (struct __jmp_buf_tag *, int))                                                                      \
	X(pid_t, fork, (void))                                                                                                     \
	X(int, poll, (struct pollfd *, nfds_t, int))                                                                               \
	X(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))                                        \
	X(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *))                                                      \
	X(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))                            \
	X(int, epoll_create, (int))                                                                                                \
	X(int, epoll_create1, (int))                                                                                               \
	X(int, epoll_ctl, (int, int, int, struct epoll_event *))                                                                   \
	X(int, epoll_wait, (int, struct epoll_event *, int, int))                                                                  \
	X(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *))                                               \
	X(int, epoll_pwait2, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *))

#define PL_REAL_FIELD(type, name, params) type(*name) params;
extern struct pl_real {
	PL_REAL_CALLS(PL_REAL_FIELD)
} pl_real;

void pl_real_find(void);
#define PL_REAL(name) (pv_likely(pl_real.name) ? pl_real.name : (pl_real_find(), pl_real.name))

#endif
