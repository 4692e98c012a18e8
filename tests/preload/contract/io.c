/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that move data. */
#include "contract.h"

#include <fcntl.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

static char buf[200000];

static void got(long n)
{
	bytes(buf, rc("rc", n));
}

#define RECEIVE(name, call)                                                                                                        \
	static void name(int fd)                                                                                                   \
	{                                                                                                                          \
		memset(buf, 0, 64);                                                                                                \
		got(call);                                                                                                         \
	}

RECEIVE(recv10, recv(fd, buf, 10, 0))
RECEIVE(recv3, recv(fd, buf, 3, 0))
RECEIVE(recv_nothing, recv(fd, buf, 0, 0))
RECEIVE(recv_dontwait, recv(fd, buf, 10, MSG_DONTWAIT))
RECEIVE(recv_peek, recv(fd, buf, 10, MSG_PEEK))
RECEIVE(recv_trunc, recv(fd, buf, 2, MSG_TRUNC | MSG_DONTWAIT))
RECEIVE(recv_waitall, recv(fd, buf, 3, MSG_WAITALL))
RECEIVE(recv_oob, recv(fd, buf, 10, MSG_OOB))
RECEIVE(recv_errqueue, recv(fd, buf, 10, MSG_ERRQUEUE))
RECEIVE(recv_cmsg_cloexec, recv(fd, buf, 10, MSG_CMSG_CLOEXEC | MSG_DONTWAIT))
RECEIVE(read10, read(fd, buf, 10))
RECEIVE(read_nothing, read(fd, buf, 0))
RECEIVE(pread_, pread(fd, buf, 10, 0))
RECEIVE(read_dup, (fd = dup(fd), read(fd, buf, 10)) + close(fd))

static void recv_twice(int fd)
{
	got(recv(fd, buf, 10, 0));
	got(recv(fd, buf, 10, 0));
}

static void peek_then_recv(int fd)
{
	got(recv(fd, buf, 2, MSG_PEEK | MSG_DONTWAIT));
	got(recv(fd, buf, 10, MSG_DONTWAIT));
}

static void recvfrom_(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	long n;

	memset(&a, 0, sizeof(a));
	n = recvfrom(fd, buf, 10, 0, (void *)&a, &len);
	got(n);
	if (n >= 0)
		address(&a, len);
}

static void recvfrom_short(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = 6;
	long n;

	memset(&a, 0xee, sizeof(a));
	n = recvfrom(fd, buf, 10, MSG_DONTWAIT, (void *)&a, &len);
	got(n);
	if (n >= 0)
		say(" len=%u next=%02x", len, ((uint8_t *)&a)[6]);
}

static void readv_(int fd)
{
	struct iovec iov[3] = { { buf, 2 }, { buf + 2, 0 }, { buf + 2, 10 } };

	got(readv(fd, iov, 3));
}

static void preadv_(int fd)
{
	struct iovec iov = { buf, 10 };

	got(preadv(fd, &iov, 1, 0));
	got(preadv2(fd, &iov, 1, 5, 0));
	got(pwritev(fd, &iov, 1, 0));
	got(preadv2(fd, &iov, 1, -1, RWF_NOWAIT));
}

static void iov_counts(int fd)
{
	static struct iovec iov[1100];

	rc("none", readv(fd, iov, 0));
	rc("less", readv(fd, iov, -1));
	rc("many", readv(fd, iov, 1025));
	rc("none", writev(fd, iov, 0));
	rc("less", writev(fd, iov, -1));
	rc("many", writev(fd, iov, 1025));
}

static void iov_many(int fd)
{
	static struct iovec iov[1024];
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 1025 };

	for (int i = 0; i < 1024; i++)
		iov[i] = (struct iovec){ buf + i, 1 };
	rc("msg", sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
	rc("msg", recvmsg(fd, &m, MSG_DONTWAIT));
	rc("rc", writev(fd, iov, 1024));
}

static void message(int fd, int flags, size_t room)
{
	struct sockaddr_storage a;
	char control[256];
	struct iovec iov[2] = { { buf, 2 }, { buf + 2, 8 } };
	struct msghdr m = { .msg_name = &a,
			    .msg_namelen = sizeof(a),
			    .msg_iov = iov,
			    .msg_iovlen = 2,
			    .msg_control = control,
			    .msg_controllen = room };
	long n;

	memset(&a, 0, sizeof(a));
	n = recvmsg(fd, &m, flags);
	got(n);
	if (n < 0)
		return;
	say(" flags=%x", m.msg_flags);
	address(&a, m.msg_namelen);
	say(" control=%zu", m.msg_controllen);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		say(" [%d %d %zu]", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
}

static void recvmsg_(int fd)
{
	message(fd, 0, 256);
}

static void recvmsg_peek_trunc(int fd)
{
	message(fd, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT, 0);
}

/* What is there already has no such messages: asked for too late. What comes now does. */
static void ancillary(int fd, size_t room)
{
	int on = 1;

	if (kind->family == AF_INET) {
		rc("pktinfo", setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)));
		rc("ttl", setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof(on)));
		rc("tos", setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)));
	} else {
		rc("pktinfo", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)));
		rc("hops", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof(on)));
		rc("class", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof(on)));
	}
	if (kind->type == SOCK_DGRAM) {
		/* Segments of a stream that are there already may have times all the same: somebody else may have wanted them. */
		rc("stamp", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)));
		while (recv(fd, buf, 10, MSG_DONTWAIT) > 0)
			;
		if (send(fd, "again", 5, MSG_NOSIGNAL) == 5 && state->peer & ANSWERS)
			arrive(fd, 0, 5);
	}
	message(fd, MSG_DONTWAIT, room);
}

static void control_messages(int fd)
{
	ancillary(fd, 256);
}

static void control_short(int fd)
{
	ancillary(fd, 40);
}

static void recvmmsg_(int fd)
{
	struct iovec iov[3] = { { buf, 8 }, { buf + 8, 8 }, { buf + 16, 8 } };
	struct mmsghdr m[3];
	struct timespec no = { 0, 0 };

	memset(m, 0, sizeof(m));
	for (int i = 0; i < 3; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_iov = &iov[i], .msg_iovlen = 1 };
	rc("none", recvmmsg(fd, m, 0, 0, NULL));
	rc("rc", recvmmsg(fd, m, 3, MSG_WAITFORONE, NULL));
	for (int i = 0; i < 3; i++)
		say(" %u", m[i].msg_len);
	rc("timed", recvmmsg(fd, m, 2, MSG_DONTWAIT, &no));
	no.tv_nsec = -1;
	rc("bad", recvmmsg(fd, m, 2, MSG_DONTWAIT, &no));
}

#define SEND(name, call)                                                                                                           \
	static void name(int fd)                                                                                                   \
	{                                                                                                                          \
		rc("rc", call);                                                                                                    \
	}

SEND(send3, send(fd, "abc", 3, 0))
SEND(send_nothing, send(fd, "", 0, 0))
SEND(send_nosignal, send(fd, "abc", 3, MSG_NOSIGNAL))
SEND(send_dontwait, send(fd, "abc", 3, MSG_DONTWAIT))
SEND(send_more, send(fd, "abc", 3, MSG_MORE) + send(fd, "def", 3, 0))
SEND(send_oob, send(fd, "a", 1, MSG_OOB))
SEND(send_confirm, send(fd, "a", 1, MSG_CONFIRM))
SEND(send_dontroute, send(fd, "a", 1, MSG_DONTROUTE))
SEND(write3, write(fd, "abc", 3))
SEND(write_nothing, write(fd, "", 0))
SEND(pwrite_, pwrite(fd, "abc", 3, 0))

/* Streams take what there is room for, which differs. */
static void send_long(int fd)
{
	long n = send(fd, buf, 70000, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (kind->type == SOCK_STREAM && n > 0)
		say(" sent");
	else
		rc("rc", n);
}

static void sendto_(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = peer(ECHO, &a);

	rc("to", sendto(fd, "abc", 3, 0, (void *)&a, len));
	rc("short", sendto(fd, "abc", 3, 0, (void *)&a, 4));
	rc("none", sendto(fd, "abc", 3, 0, (void *)&a, 0));
	rc("null", sendto(fd, "abc", 3, 0, NULL, 0));
	rc("long", sendto(fd, "abc", 3, 0, (void *)&a, sizeof(a)));
	rc("huge", sendto(fd, "abc", 3, 0, (void *)&a, sizeof(a) + 1));
	a.ss_family = AF_UNIX;
	rc("unix", sendto(fd, "abc", 3, 0, (void *)&a, len));
	peer(0, &a);
	rc("port0", sendto(fd, "abc", 3, 0, (void *)&a, len));
}

static void sendmsg_(int fd)
{
	struct iovec iov[2] = { { (void *)"ab", 2 }, { (void *)"cde", 3 } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct cmsghdr *c;

	rc("rc", sendmsg(fd, &m, 0));
	m.msg_control = control;
	m.msg_controllen = sizeof(control);
	c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){ .cmsg_len = 4, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	rc("short", sendmsg(fd, &m, MSG_NOSIGNAL));
	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = 9999 };
	rc("unknown", sendmsg(fd, &m, MSG_NOSIGNAL));
	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TTL };
	*(int *)(void *)CMSG_DATA(c) = 9;
	if (kind->family == AF_INET)
		rc("ttl", sendmsg(fd, &m, MSG_NOSIGNAL));
	*(int *)(void *)CMSG_DATA(c) = 999;
	if (kind->family == AF_INET)
		rc("badttl", sendmsg(fd, &m, MSG_NOSIGNAL));
}

static void sendmmsg_(int fd)
{
	struct iovec iov[2] = { { (void *)"ab", 2 }, { (void *)"cde", 3 } };
	struct mmsghdr m[2] = { { .msg_hdr = { .msg_iov = &iov[0], .msg_iovlen = 1 } },
				{ .msg_hdr = { .msg_iov = &iov[1], .msg_iovlen = 1 } } };

	rc("none", sendmmsg(fd, m, 0, 0));
	rc("rc", sendmmsg(fd, m, 2, MSG_NOSIGNAL));
	say(" %u %u", m[0].msg_len, m[1].msg_len);
}

static void writev_(int fd)
{
	struct iovec iov[3] = { { (void *)"ab", 2 }, { NULL, 0 }, { (void *)"cde", 3 } };

	rc("rc", writev(fd, iov, 3));
}

static void segments(int fd)
{
	int size = 1000;

	rc("set", setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)));
	rc("rc", send(fd, buf, 2500, MSG_NOSIGNAL));
}

static int file(void)
{
	char name[] = "/tmp/calls.XXXXXX";
	int fd = mkstemp(name);

	unlink(name);
	if (write(fd, "0123456789", 10) != 10)
		abort();
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static void sendfile_(int fd)
{
	int from = file();
	off_t at = 2;

	rc("rc", sendfile(fd, from, NULL, 4));
	say(" at=%ld", (long)lseek(from, 0, SEEK_CUR));
	rc("offset", sendfile(fd, from, &at, 4));
	say(" at=%ld", (long)at);
	rc("end", sendfile(fd, from, &at, 100));
	rc("end", sendfile(fd, from, &at, 100));
	rc("from", sendfile(from, fd, NULL, 10));
	rc("bad", sendfile(fd, -1, NULL, 10));
	close(from);
}

static void splice_(int fd)
{
	int p[2];

	if (pipe(p) || write(p[1], "pipe", 4) != 4)
		abort();
	rc("in", splice(fd, NULL, p[1], NULL, 10, SPLICE_F_NONBLOCK));
	rc("out", splice(p[0], NULL, fd, NULL, 4, SPLICE_F_NONBLOCK));
	rc("neither", splice(fd, NULL, fd, NULL, 10, SPLICE_F_NONBLOCK));
	close(p[0]);
	close(p[1]);
}

/* There and back. */
static void echo(int fd)
{
	int before = kind->type == SOCK_STREAM ? unread(fd) : 0;

	if (rc("send", send(fd, "ping", 4, MSG_NOSIGNAL)) == 4 && state->peer & ANSWERS)
		arrive(fd, before, 4);
	got(recv(fd, buf, 10, MSG_DONTWAIT));
}

const struct call io_calls[] = {
	CALL(recv10, BOTH),
	CALL(recv3, BOTH),
	CALL(recv_nothing, BOTH),
	CALL(recv_dontwait, BOTH),
	CALL(recv_peek, BOTH),
	CALL(recv_trunc, BOTH),
	CALL(recv_waitall, BOTH),
	CALL(recv_oob, BOTH),
	CALL(recv_errqueue, BOTH),
	CALL(recv_cmsg_cloexec, BOTH),
	CALL(read10, BOTH),
	CALL(read_nothing, BOTH),
	CALL(pread_, BOTH),
	CALL(read_dup, BOTH),
	CALL(recv_twice, BOTH),
	CALL(peek_then_recv, BOTH),
	CALL(recvfrom_, BOTH),
	CALL(recvfrom_short, BOTH),
	CALL(readv_, BOTH),
	CALL(preadv_, BOTH),
	CALL(iov_counts, BOTH),
	CALL(iov_many, BOTH),
	CALL(recvmsg_, BOTH),
	CALL(recvmsg_peek_trunc, BOTH),
	CALL(control_messages, BOTH),
	CALL(control_short, BOTH),
	CALL(recvmmsg_, BOTH),
	CALL(send3, BOTH),
	CALL(send_nothing, BOTH),
	CALL(send_nosignal, BOTH),
	CALL(send_dontwait, BOTH),
	CALL(send_more, BOTH),
	CALL(send_oob, BOTH),
	CALL(send_confirm, BOTH),
	CALL(send_dontroute, BOTH),
	CALL(write3, BOTH),
	CALL(write_nothing, BOTH),
	CALL(pwrite_, BOTH),
	CALL(send_long, BOTH),
	CALL(sendto_, BOTH),
	CALL(sendmsg_, BOTH),
	CALL(sendmmsg_, BOTH),
	CALL(writev_, BOTH),
	CALL(segments, UDP),
	CALL(sendfile_, BOTH),
	CALL(splice_, BOTH),
	CALL(echo, BOTH),
	{ NULL, 0, NULL, 0 },
};
