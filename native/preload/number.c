/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests on fds that programs make by number, through syscall(), though the C library has calls for them: libuv closes, receives
 * and sends its datagrams so. To the kernel they would be of the socket beneath, and a close would leave the connection, its peer
 * and the table as if there had been none.
 *
 * They are no cancellation points, which is why they are made so: what is ours is asked by PL_IN, and what is not goes on by
 * number. Those that only look (getsockopt, getpeername, F_GETFD) stay the kernel's.
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

/* PL_CALL without its cancellation point; nothing comes behind it. */
#define ASKED(timeo, call)                                                                                                         \
	for (pyvma_sock *h = pl_sock(fd); h; h = pl_sock(fd)) {                                                                    \
		int64_t told = PL_IN(call);                                                                                        \
                                                                                                                                   \
		if (told >= 0 || !pl_again(fd, h, told, timeo)) {                                                                  \
			*rc = pl_result(told);                                                                                     \
			return true;                                                                                               \
		}                                                                                                                  \
	}                                                                                                                          \
	return false

static bool receives(long number, int fd, const long *a, long *rc)
{
	void *at = (void *)a[1];

	switch (number) {
	case SYS_read:
		ASKED(SO_RCVTIMEO, a[2] ? pyvma_sock_recv(h, at, (size_t)a[2], 0, -1) : 0);
	case SYS_readv:
		ASKED(SO_RCVTIMEO, pl_read_to(h, at, (int)a[2], 0));
	case SYS_recvfrom:
		ASKED(SO_RCVTIMEO, pl_recv_from(h, at, (size_t)a[2], (int)a[3], (struct sockaddr *)a[4], (socklen_t *)a[5]));
	case SYS_recvmsg:
		ASKED(SO_RCVTIMEO, pl_recv_msg(h, at, (int)a[2]));
	case SYS_recvmmsg:
		ASKED(SO_RCVTIMEO, pl_recv_many(h, at, (unsigned int)a[2], (int)a[3], (struct timespec *)a[4]));
	case SYS_accept:
		ASKED(SO_RCVTIMEO, pl_accept_by(h, at, (socklen_t *)a[2], 0));
	case SYS_accept4:
		ASKED(SO_RCVTIMEO, pl_accept_by(h, at, (socklen_t *)a[2], (int)a[3]));
	}
	return false;
}

static bool sends(long number, int fd, const long *a, long *rc)
{
	void *at = (void *)a[1];

	switch (number) {
	case SYS_write:
		ASKED(SO_SNDTIMEO, pyvma_sock_send(h, at, (size_t)a[2], 0, -1));
	case SYS_writev:
		ASKED(SO_SNDTIMEO, pl_write_from(h, at, (int)a[2], 0));
	case SYS_sendto:
		ASKED(SO_SNDTIMEO,
		      a[4] && pl_too_long((socklen_t)a[5])
			  ? -EINVAL
			  : pyvma_sock_sendto(h, at, (size_t)a[2], (int)a[3], (const struct sockaddr *)a[4], (socklen_t)a[5], -1));
	case SYS_sendmsg:
		ASKED(SO_SNDTIMEO, pl_send_msg(h, at, (int)a[2]));
	case SYS_sendmmsg:
		ASKED(SO_SNDTIMEO, pl_send_many(h, at, (unsigned int)a[2], (int)a[3]));
	}
	return false;
}

/* By a local socket, whatever has numbers of ours in it. */
static bool passes_on(long number, const long *a, long *rc)
{
	unsigned int n = number == SYS_sendmmsg ? (unsigned int)a[2] : 0;
	const struct mmsghdr *many = (const struct mmsghdr *)a[1];
	const struct msghdr *one = (const struct msghdr *)a[1];
	bool may = number != SYS_sendmsg || !one || !one->msg_control || pl_pass_on(one);

	for (unsigned int i = 0; many && i < n && may; i++)
		may = !many[i].msg_hdr.msg_control || pl_pass_on(&many[i].msg_hdr);
	if (!may)
		*rc = pl_result(-EAGAIN);
	return !may;
}

static bool changes(long number, int fd, const long *a, long *rc)
{
	int closed;

	switch (number) {
	case SYS_close:
		/* Those of the engine's own are not spared here: the software NIC closes its so. */
		closed = pl_close(fd);
		*rc = closed < 0 ? pl_result(closed) : 0;
		return closed != 0;
	case SYS_close_range:
		*rc = close_range((unsigned int)a[0], (unsigned int)a[1], (int)a[2]);
		return true;
	case SYS_dup:
		*rc = dup(fd);
		return true;
#ifdef SYS_dup2
	case SYS_dup2:
		*rc = dup2(fd, (int)a[1]);
		return true;
#endif
	case SYS_dup3:
		*rc = dup3(fd, (int)a[1], (int)a[2]);
		return true;
	case SYS_shutdown:
		*rc = shutdown(fd, (int)a[1]);
		return true;
	case SYS_fcntl: /* a lock would be a cancellation point */
		if ((int)a[1] != F_DUPFD && (int)a[1] != F_DUPFD_CLOEXEC && (int)a[1] != F_SETFL)
			return false;
		*rc = fcntl(fd, (int)a[1], a[2]);
		return true;
	}
	return false;
}

/* With memory, numbers and a stack of its own. Elsewhere the order of the arguments is not this one. */
static bool forks(long number, const long *a)
{
#if defined(__x86_64__) || defined(__aarch64__)
#ifdef SYS_fork
	if (number == SYS_fork)
		return true;
#endif
	return number == SYS_clone && !(a[0] & (CLONE_VM | CLONE_FILES | CLONE_THREAD)) && !a[1];
#else
	(void)number;
	(void)a;
	return false;
#endif
}

bool pl_by_number(long number, const long *a, long *rc)
{
	static const long plain[6] = { SIGCHLD };

	if (pv_unlikely(forks(number, a))) {
		*rc = pl_fork_by(number == SYS_clone ? a : plain);
		return true;
	}
	return receives(number, (int)a[0], a, rc) || sends(number, (int)a[0], a, rc) || passes_on(number, a, rc) ||
	       changes(number, (int)a[0], a, rc);
}
