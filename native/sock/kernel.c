/* SPDX-License-Identifier: BSD-3-Clause */
#include "sock/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <time.h>

#include "base/compiler.h"
#include "rt/wait.h"

static int64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

/* When a call with that timeout gives up; an end of time that cannot be said is never reached. */
static int64_t deadline_of(int64_t timeout_ns)
{
	int64_t deadline;

	if (timeout_ns <= 0)
		return 0;
	return __builtin_add_overflow(mono_ns(), timeout_ns, &deadline) ? INT64_MAX : deadline;
}

int pv_kernel_poll(int fd, int events, int64_t timeout_ns)
{
	struct pollfd p = { .fd = fd, .events = (short)events };
	struct timespec ts = { .tv_sec = timeout_ns / PV_NS_PER_S, .tv_nsec = timeout_ns % PV_NS_PER_S };
	int n = pv_wait_ppoll(&p, 1, timeout_ns < 0 ? NULL : &ts);

	if (n < 0)
		return n;
	if (n && (p.revents & POLLNVAL))
		return -EBADF;
	return n ? p.revents : 0;
}

/* After a call that would have blocked: 0 to try again, -EAGAIN when the time is over, -EINTR. */
static int wait_again(int fd, int events, int64_t deadline)
{
	int64_t left = deadline - mono_ns();
	int rc = left > 0 ? pv_kernel_poll(fd, events, left) : 0;

	return rc > 0 ? 0 : rc < 0 ? rc : -EAGAIN;
}

static bool would_block(int64_t rc)
{
	return rc == -EAGAIN || rc == -EWOULDBLOCK;
}

int64_t pv_kernel_sendmsg(int fd, const struct msghdr *msg, int flags, int64_t timeout_ns)
{
	int64_t deadline = deadline_of(timeout_ns);

	for (;;) {
		int64_t n = sendmsg(fd, msg, timeout_ns < 0 ? flags : flags | MSG_DONTWAIT);
		int rc = n < 0 ? -errno : 0;

		if (n >= 0)
			return n;
		if (timeout_ns <= 0 || !would_block(rc) || (flags & MSG_DONTWAIT))
			return rc;
		rc = wait_again(fd, POLLOUT, deadline);
		if (rc)
			return rc;
	}
}

int64_t pv_kernel_recvmsg(int fd, struct msghdr *msg, int flags, int64_t timeout_ns)
{
	int64_t deadline = deadline_of(timeout_ns);

	for (;;) {
		int64_t n = recvmsg(fd, msg, timeout_ns < 0 ? flags : flags | MSG_DONTWAIT);
		int rc = n < 0 ? -errno : 0;

		if (n >= 0)
			return n;
		if (timeout_ns <= 0 || !would_block(rc) || (flags & (MSG_DONTWAIT | MSG_ERRQUEUE)))
			return rc;
		rc = wait_again(fd, POLLIN, deadline);
		if (rc)
			return rc;
	}
}

/* An fd that does not block cannot be interrupted half way: the connection goes on and SO_ERROR tells its end. */
static int connect_wait(int fd, int64_t deadline)
{
	int err = 0, rc;
	socklen_t len = sizeof(err);

	rc = wait_again(fd, POLLOUT, deadline);
	if (rc)
		return rc;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return -errno;
	return -err;
}

int pv_kernel_connect(int fd, const struct sockaddr *addr, socklen_t len, int64_t timeout_ns)
{
	int64_t deadline = deadline_of(timeout_ns);
	int fl = timeout_ns >= 0 ? fcntl(fd, F_GETFL) : 0;
	bool blocking = timeout_ns >= 0 && fl >= 0 && !(fl & O_NONBLOCK);
	int rc;

	if (fl < 0)
		return -errno;
	if (blocking)
		fcntl(fd, F_SETFL, fl | O_NONBLOCK);
	rc = connect(fd, addr, len) < 0 ? -errno : 0;
	if (rc == -EINPROGRESS && timeout_ns > 0)
		rc = connect_wait(fd, deadline);
	if (blocking)
		fcntl(fd, F_SETFL, fl);
	return rc;
}
