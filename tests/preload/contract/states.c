/* SPDX-License-Identifier: BSD-3-Clause */
/* States that a socket can be in when a call is made. Each is reached before the call, whatever that takes. */
#include "contract.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int bound(void)
{
	struct sockaddr_storage a;
	socklen_t len = any(&a);
	int fd = fresh();

	return fd < 0 || !bind(fd, (void *)&a, len) ? fd : -1;
}

static int connected_to(int port)
{
	struct sockaddr_storage a;
	socklen_t len = peer(port, &a);
	int fd = fresh();

	if (fd >= 0 && connect(fd, (void *)&a, len)) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

static int connected(void)
{
	return connected_to(ECHO);
}

/* "hello" is there to read. */
static int greeted(void)
{
	int fd = connected_to(GREET);

	if (fd >= 0 && kind->type == SOCK_DGRAM && send(fd, "?", 1, 0) != 1)
		return -1;
	if (fd >= 0)
		settle(fd, POLLIN);
	return fd;
}

/* Two datagrams are, "one" and the empty one, to a socket that is not connected. */
static int queued(void)
{
	struct sockaddr_storage a;
	socklen_t len = peer(ECHO, &a);
	int fd = fresh(), other;
	char one[4];

	if (fd < 0 || sendto(fd, "one", 3, 0, (void *)&a, len) != 3)
		return -1;
	settle(fd, POLLIN);
	if (recv(fd, one, sizeof(one), MSG_PEEK) != 3 || sendto(fd, "", 0, 0, (void *)&a, len) != 0)
		return -1;
	/* What is answered behind it comes behind it. */
	other = fresh();
	if (other < 0 || sendto(other, "two", 3, 0, (void *)&a, len) != 3)
		return -1;
	settle(other, POLLIN);
	close(other);
	return fd;
}

static int refused(void)
{
	int fd = connected_to(CLOSED);

	if (fd >= 0) {
		send(fd, "?", 1, 0);
		settle(fd, 0);
	}
	return fd;
}

/* The peer has sent "bye" and closed. */
static int closed_by_peer(void)
{
	int fd = connected_to(BYE);

	if (fd >= 0)
		settle(fd, POLLRDHUP);
	return fd;
}

static int reset_by_peer(void)
{
	int fd = connected_to(RESET);

	if (fd >= 0)
		settle(fd, 0);
	return fd;
}

static int shut(int how)
{
	int fd = connected();

	if (fd >= 0)
		shutdown(fd, how);
	return fd;
}

static int shut_rd(void)
{
	return shut(SHUT_RD);
}

/* Of a stream the peer, who echoes, has closed then, too. */
static int shut_wr(void)
{
	int fd = shut(SHUT_WR);

	if (fd >= 0 && kind->type == SOCK_STREAM)
		settle(fd, POLLIN);
	return fd;
}

/* Nothing can be sent: the peer does not read. */
static int full(void)
{
	static char block[65536];
	int fd = connected_to(SILENT), small = 4096;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	/* Nothing is under way, and there is no room: what is left waits for a window. */
	for (int quiet = 0; quiet < 3;) {
		struct tcp_info info = { 0 };
		socklen_t len = sizeof(info);

		if (send(fd, block, sizeof(block), MSG_DONTWAIT) > 0) {
			quiet = 0;
			continue;
		}
		getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
		quiet = info.tcpi_unacked ? 0 : quiet + 1;
		usleep(1000);
	}
	return fd;
}

static int listening(void)
{
	int fd = bound();

	return fd >= 0 && listen(fd, 8) ? -1 : fd;
}

/* The peer connects to us, and says "knock"; the connection to it that keeps it doing so is left open. */
static int knocker = -1;

static int knocked(void)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int fd = listening();
	char text[32];

	if (knocker >= 0)
		close(knocker);
	if (fd < 0 || getsockname(fd, (void *)&a, &len) || (knocker = connected_to(KNOCK)) < 0)
		return -1;
	snprintf(text, sizeof(text), "%d\n", ntohs(((struct sockaddr_in *)(void *)&a)->sin_port));
	if (send(knocker, text, strlen(text), 0) < 0)
		return -1;
	settle(fd, POLLIN);
	return fd;
}

static int accepted(void)
{
	int fd = knocked(), conn;

	if (fd < 0)
		return fd;
	conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	close(fd);
	if (conn >= 0)
		settle(conn, POLLIN);
	return conn;
}

/* Under way to nobody. */
static int connecting(void)
{
	struct sockaddr_storage a;
	socklen_t len = peer(ECHO, &a);
	int fd = fresh();

	if (kind->family == AF_INET)
		((uint8_t *)&((struct sockaddr_in *)(void *)&a)->sin_addr)[3] = 99;
	else
		((struct sockaddr_in6 *)(void *)&a)->sin6_addr.s6_addr[15] = 0x99;
	fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
	if (connect(fd, (void *)&a, len) == 0 || errno != EINPROGRESS)
		return -1;
	fcntl(fd, F_SETFL, O_RDWR);
	return fd;
}

static int urgent(void)
{
	int fd = connected_to(URGENT);

	if (fd >= 0)
		settle(fd, POLLPRI);
	return fd;
}

/* A duplicate of one whose first number is closed. */
static int duplicate(void)
{
	int fd = greeted(), other = fd < 0 ? -1 : dup(fd);

	if (fd >= 0)
		close(fd);
	return other;
}

const struct state states[] = {
	{ "fresh", BOTH, fresh, 0 },
	{ "bound", BOTH, bound, 0 },
	{ "connected", BOTH, connected, ANSWERS | ENDS },
	{ "greeted", BOTH, greeted, ANSWERS | ENDS },
	{ "duplicate", BOTH, duplicate, ANSWERS | ENDS },
	{ "queued", UDP, queued, 0 },
	{ "refused", UDP, refused, 0 },
	{ "closed_by_peer", TCP, closed_by_peer, ENDS },
	{ "reset_by_peer", TCP, reset_by_peer, 0 },
	{ "shut_rd", BOTH, shut_rd, ANSWERS | ENDS },
	{ "shut_wr", BOTH, shut_wr, ENDS },
	{ "full", TCP, full, SLOW },
	{ "listening", TCP, listening, 0 },
	{ "knocked", TCP, knocked, 0 },
	{ "accepted", TCP, accepted, ANSWERS | ENDS },
	{ "connecting", TCP, connecting, 0 },
	{ "urgent", TCP, urgent, ENDS },
	{ NULL, 0, NULL, 0 },
};
