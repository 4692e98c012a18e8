/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls about addresses and connections. */
#include "contract.h"

#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

static void connect_port(int fd, int port)
{
	struct sockaddr_storage a;
	socklen_t len = peer(port, &a);

	if (rc("rc", connect(fd, (void *)&a, len)) < 0 && errno == EINPROGRESS && strcmp(state->name, "connecting")) {
		int error = -1;

		settle(fd, 4);
		len = sizeof(error);
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
		say(" then=%s", strerrorname_np(error) ? strerrorname_np(error) : "0");
	}
}

static void connect_(int fd)
{
	connect_port(fd, ECHO);
}

static void connect_refused(int fd)
{
	connect_port(fd, CLOSED);
}

static void connect_bad(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = peer(ECHO, &a);

	rc("short", connect(fd, (void *)&a, 6));
	rc("none", connect(fd, (void *)&a, 0));
	rc("huge", connect(fd, (void *)&a, sizeof(a) + 1));
	a.ss_family = AF_UNIX;
	rc("unix", connect(fd, (void *)&a, len));
	a.ss_family = kind->family == AF_INET ? AF_INET6 : AF_INET;
	rc("other", connect(fd, (void *)&a, len));
}

static void connect_nobody(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = any(&a);

	a.ss_family = AF_UNSPEC;
	rc("rc", connect(fd, (void *)&a, len));
	a.ss_family = 0;
	rc("peer", getpeername(fd, (void *)&a, &len));
}

static void connect_again(int fd)
{
	connect_port(fd, ECHO);
	connect_port(fd, ECHO);
}

static void bind_(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = any(&a);

	rc("rc", bind(fd, (void *)&a, len));
	rc("again", bind(fd, (void *)&a, len));
	rc("short", bind(fd, (void *)&a, 6));
	peer(0, &a);
	rc("not ours", bind(fd, (void *)&a, len));
	a.ss_family = AF_UNIX;
	rc("unix", bind(fd, (void *)&a, len));
}

static void listen_(int fd)
{
	rc("rc", listen(fd, 5));
	rc("again", listen(fd, -1));
}

static void accept_(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int conn;

	memset(&a, 0, sizeof(a));
	conn = accept(fd, (void *)&a, &len);
	if (conn < 0) {
		rc("rc", conn);
		return;
	}
	say(" rc=fd");
	address(&a, len);
	close(conn);
	conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
	rc("again", conn < 0 ? conn : 0);
	if (conn >= 0)
		close(conn);
}

static void accept_bad(int fd)
{
	rc("flags", accept4(fd, NULL, NULL, 1));
}

static void names(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	memset(&a, 0, sizeof(a));
	if (!rc("own", getsockname(fd, (void *)&a, &len)))
		address(&a, len);
	len = sizeof(a);
	memset(&a, 0, sizeof(a));
	if (!rc("peer", getpeername(fd, (void *)&a, &len)))
		address(&a, len);
	len = 5;
	memset(&a, 0xee, sizeof(a));
	if (!rc("short", getsockname(fd, (void *)&a, &len)))
		say(" len=%u next=%02x", len, ((uint8_t *)&a)[5]);
	len = (socklen_t)-1;
	rc("negative", getsockname(fd, (void *)&a, &len));
	len = (socklen_t)-1;
	rc("negative", getpeername(fd, (void *)&a, &len));
}

/* Until nothing comes from the peer any more. */
static void ended(int fd)
{
	struct tcp_info info = { 0 };

	for (int i = 0; i < 2000 && info.tcpi_state != TCP_CLOSE && info.tcpi_state != TCP_TIME_WAIT; i++) {
		socklen_t len = sizeof(info);

		if (i)
			usleep(1000);
		if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
			return;
	}
}

static void shutdown_one(int fd, int how)
{
	char c;

	rc("rc", shutdown(fd, how));
	if (kind->type == SOCK_STREAM && how != SHUT_RD && state->peer & ENDS)
		ended(fd);
	rc("again", shutdown(fd, how));
	rc("recv", recv(fd, &c, 1, MSG_DONTWAIT));
	rc("send", send(fd, "x", 1, MSG_DONTWAIT));
}

static void shutdown_rd(int fd)
{
	shutdown_one(fd, SHUT_RD);
}

static void shutdown_wr(int fd)
{
	shutdown_one(fd, SHUT_WR);
}

static void shutdown_both(int fd)
{
	shutdown_one(fd, SHUT_RDWR);
}

static void shutdown_bad(int fd)
{
	rc("rc", shutdown(fd, 3));
	rc("rc", shutdown(fd, -1));
}

static void opens(int fd)
{
	(void)fd;
	rc("family", socket(-1, kind->type, 0));
	rc("type", socket(kind->family, 77, 0));
	rc("protocol", socket(kind->family, kind->type, kind->type == SOCK_DGRAM ? IPPROTO_TCP : IPPROTO_UDP));
	rc("flags", socket(kind->family, kind->type | 0x10000, 0));
	rc("pair", socketpair(kind->family, kind->type, 0, (int[2]){ 0 }));
}

const struct call name_calls[] = {
	CALL(connect_, BOTH),      CALL(connect_refused, BOTH), CALL(connect_bad, BOTH), CALL(connect_nobody, BOTH),
	CALL(connect_again, BOTH), CALL(bind_, BOTH),           CALL(listen_, BOTH),     CALL(accept_, BOTH),
	CALL(accept_bad, BOTH),    CALL(names, BOTH),           CALL(shutdown_rd, BOTH), CALL(shutdown_wr, BOTH),
	CALL(shutdown_both, BOTH), CALL(shutdown_bad, BOTH),    CALL(opens, BOTH),       { NULL, 0, NULL, 0 },
};
