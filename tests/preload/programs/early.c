/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library whose constructor talks by sockets: before the program's main, and before the constructors of what was preloaded. To itself by
 * loopback, by TCP and UDP, and with the calls that wait.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#define WANT(cond)                                                                                                                 \
	do {                                                                                                                       \
		if (!(cond)) {                                                                                                     \
			perror(#cond);                                                                                             \
			_exit(1);                                                                                                  \
		}                                                                                                                  \
	} while (0)

int early_done;

static int bound(int type, struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, type, 0);

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	WANT(fd >= 0 && bind(fd, (struct sockaddr *)at, len) == 0);
	WANT(getsockname(fd, (struct sockaddr *)at, &len) == 0);
	return fd;
}

static void waits(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC);
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	WANT(poll(&p, 1, 10000) == 1);
	WANT(select(fd + 1, &set, NULL, NULL, NULL) == 1);
	WANT(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0 && epoll_wait(ep, &ev, 1, 10000) == 1);
	WANT(close(ep) == 0);
}

__attribute__((constructor)) static void early(void)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	int listener = bound(SOCK_STREAM, &at), to = socket(AF_INET, SOCK_STREAM, 0), on, copy;
	char buf[8];
	FILE *file;

	WANT(listen(listener, 1) == 0);
	WANT(connect(to, (struct sockaddr *)&at, sizeof(at)) == 0);
	on = accept(listener, (struct sockaddr *)&at, &len);
	WANT(on >= 0 && send(to, "one", 3, 0) == 3);
	waits(on);
	WANT(recv(on, buf, sizeof(buf), 0) == 3);
	copy = dup(on);
	WANT(copy >= 0 && fcntl(copy, F_SETFD, FD_CLOEXEC) == 0);
	file = fdopen(copy, "w");
	WANT(file && fprintf(file, "four") == 4 && fclose(file) == 0);
	WANT(read(to, buf, sizeof(buf)) == 4 && !memcmp(buf, "four", 4));
	WANT(shutdown(to, SHUT_WR) == 0 && read(on, buf, sizeof(buf)) == 0);
	WANT(close(on) == 0 && close(to) == 0 && close(listener) == 0);
	on = bound(SOCK_DGRAM, &at);
	WANT(sendto(on, "x", 1, 0, (struct sockaddr *)&at, sizeof(at)) == 1);
	waits(on);
	WANT(recvfrom(on, buf, sizeof(buf), 0, NULL, NULL) == 1 && close(on) == 0);
	early_done = 1;
}
