/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel's end of calls.c (peer.h). It says "ready", and ends with its standard input. */
#include "peer.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int bound(int type, int port)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	int fd = socket(AF_INET6, type, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || (type == SOCK_STREAM && listen(fd, 64) < 0)) {
		perror("peer");
		exit(1);
	}
	return fd;
}

static void echo(int fd)
{
	static char buf[65536];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t done = 0, sent; done < n; done += sent)
			if ((sent = write(fd, buf + done, (size_t)(n - done))) <= 0)
				return;
}

static void obey(int from)
{
	struct order o;
	int fd;

	if (recv(from, &o, sizeof(o), MSG_WAITALL) != sizeof(o))
		return;
	usleep(o.delay_ms * 1000);
	fd = socket(AF_INET6, o.kind == 'c' ? SOCK_STREAM : SOCK_DGRAM, 0);
	if (connect(fd, (struct sockaddr *)&o.to, sizeof(o.to)) < 0 || write(fd, o.text, strlen(o.text)) < 0)
		perror("order");
	else if (o.kind == 'c')
		echo(fd);
}

static void serve(int listener, void (*work)(int fd))
{
	int fd = accept(listener, NULL, NULL);

	if (fork() == 0) {
		work(fd);
		_exit(0);
	}
	close(fd);
}

int main(void)
{
	struct pollfd p[] = { { .fd = 0, .events = POLLIN },
			      { .fd = bound(SOCK_DGRAM, PEER_PORT), .events = POLLIN },
			      { .fd = bound(SOCK_STREAM, PEER_PORT), .events = POLLIN },
			      { .fd = bound(SOCK_STREAM, PEER_PORT + 1), .events = POLLIN } };

	signal(SIGCHLD, SIG_IGN);
	puts("ready");
	fflush(stdout);
	while (poll(p, 4, -1) >= 0 && !p[0].revents) {
		if (p[1].revents) {
			char buf[65536];
			struct sockaddr_in6 who;
			socklen_t len = sizeof(who);
			ssize_t n = recvfrom(p[1].fd, buf, sizeof(buf), 0, (struct sockaddr *)&who, &len);

			if (n >= 0 && sendto(p[1].fd, buf, (size_t)n, 0, (struct sockaddr *)&who, len) < 0)
				perror("echo");
		}
		if (p[2].revents)
			serve(p[2].fd, echo);
		if (p[3].revents)
			serve(p[3].fd, obey);
	}
	return 0;
}
