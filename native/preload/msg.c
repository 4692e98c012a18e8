/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, one and many. */
#include <string.h>
#include <time.h>

#include "preload/preload.h"

#define MSGS_LIMIT 1024u

/* copy_msghdr_from_user of Linux: before anything else is looked at. */
pv_inline int bad_header(const struct msghdr *msg)
{
	return pv_unlikely(!msg) ? -EFAULT : msg->msg_name && pv_unlikely((int)msg->msg_namelen < 0) ? -EINVAL : 0;
}

int64_t pl_recv_msg(pyvma_sock *h, struct msghdr *msg, int flags)
{
	int rc = bad_header(msg);

	return pv_likely(!rc) ? pyvma_sock_recvmsg(h, msg, flags, -1) : rc;
}

int64_t pl_send_msg(pyvma_sock *h, const struct msghdr *msg, int flags)
{
	int rc = bad_header(msg);

	if (pv_unlikely(!rc && !msg->msg_control && msg->msg_controllen))
		rc = -EFAULT;
	return pv_likely(!rc) ? pyvma_sock_sendmsg(h, msg, flags, -1) : rc;
}

PL_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	PL_CALL(fd, SO_RCVTIMEO, pl_recv_msg(h, msg, flags));
	return PL_REAL(recvmsg)(fd, msg, flags);
}

/* As CMSG_OK of Linux, for which it is EINVAL. */
static bool well_formed(struct msghdr *msg)
{
	const char *end = (const char *)msg->msg_control + msg->msg_controllen;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_len < sizeof(*c) || c->cmsg_len > (size_t)(end - (const char *)c))
			return false;
	return true;
}

/* Whoever gets the fd of a connection by a local socket has the kernel's. */
bool pl_pass_on(const struct msghdr *msg)
{
	struct msghdr own = { .msg_control = msg->msg_control, .msg_controllen = msg->msg_controllen };

	if (!well_formed(&own))
		return true;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&own); c; c = CMSG_NXTHDR(&own, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd, rc = 0;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (pl_set_of(pl_get(fd)))
				pl_set_show(pl_set_of(pl_get(fd)));
			if (pl_peek(fd))
				rc = (int)PL_IN(pyvma_hand_back_fd(fd, 1));
			if (rc == -EAGAIN)
				return false;
			if (rc < 0)
				pl_say(pyvma_last_error(), "who is passed this socket cannot use it");
		}
	}
	return true;
}

PL_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	PL_CALL(fd, SO_SNDTIMEO, pl_send_msg(h, msg, flags));
	if (msg && msg->msg_control && !pl_pass_on(msg))
		return pl_result(-EAGAIN);
	return PL_REAL(sendmsg)(fd, msg, flags);
}

/* ---- sendmmsg ---------------------------------------------------------------------------------------------------------- */

/* All but the last leave the doorbell to those behind them. How many were sent, or the error of the first. */
int64_t pl_send_many(pyvma_sock *h, struct mmsghdr *msgs, unsigned int n, int flags)
{
	n = PV_MIN(n, MSGS_LIMIT);
	if (pv_unlikely(!msgs && n))
		return -EFAULT;
	for (unsigned int i = 0; i < n; i++) {
		int64_t rc = pl_send_msg(h, &msgs[i].msg_hdr, i + 1 < n ? flags | PYVMA_MSG_BATCH : flags);

		if (rc < 0) {
			pyvma_flush();
			return i ? (int64_t)i : rc;
		}
		msgs[i].msg_len = (unsigned int)rc;
	}
	return n;
}

PL_EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags)
{
	PL_CALL(fd, SO_SNDTIMEO, pl_send_many(h, msgs, n, flags));
	for (unsigned int i = 0; msgs && i < n; i++)
		if (msgs[i].msg_hdr.msg_control && !pl_pass_on(&msgs[i].msg_hdr))
			return (int)pl_result(-EAGAIN);
	return PL_REAL(sendmmsg)(fd, msgs, n, flags);
}

/* ---- recvmmsg ---------------------------------------------------------------------------------------------------------- */

/* As __sys_recvmmsg: the time is looked at between messages only, and what is left of it is told. */
int64_t pl_recv_many(pyvma_sock *h, struct mmsghdr *msgs, unsigned int n, int flags, struct timespec *ts)
{
	int64_t until = 0, left;
	unsigned int i = 0;
	int error = 0;
	socklen_t len = sizeof(error);

	if (ts) {
		if (ts->tv_sec < 0 || ts->tv_nsec < 0 || ts->tv_nsec >= PL_NS_PER_S)
			return -EINVAL;
		until = pl_now_ns() + PV_MIN((int64_t)ts->tv_sec, INT64_C(1) << 32) * PL_NS_PER_S + ts->tv_nsec;
	}
	/* An error that waits is told before anything is received, even if nothing is to be. */
	if (!pyvma_sock_getsockopt(h, SOL_SOCKET, SO_ERROR, &error, &len) && error)
		return -error;
	n = PV_MIN(n, MSGS_LIMIT);
	if (pv_unlikely(!msgs && n))
		return -EFAULT;
	while (i < n) {
		int64_t rc = pl_recv_msg(h, &msgs[i].msg_hdr, flags & ~MSG_WAITFORONE);

		if (rc < 0)
			return i ? (int64_t)i : rc;
		msgs[i++].msg_len = (unsigned int)rc;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (ts) {
			left = PV_MAX(until - pl_now_ns(), INT64_C(0));
			ts->tv_sec = left / PL_NS_PER_S;
			ts->tv_nsec = left % PL_NS_PER_S;
			if (!left)
				break;
		}
		if (msgs[i - 1].msg_hdr.msg_flags & MSG_OOB)
			break;
	}
	return i;
}

PL_EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags, struct timespec *ts)
{
	PL_CALL(fd, SO_RCVTIMEO, pl_recv_many(h, msgs, n, flags, ts));
	return PL_REAL(recvmmsg)(fd, msgs, n, flags, ts);
}
