/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mixed serve PORT | mixed talk HOST PORT: a server that echoes by TCP and UDP, and a client of many threads that opens and closes connections
 * all the time, each of them known by every byte. The other side may be stopped, killed and started again, and the link may fail: that ends
 * connections, and is counted; a byte that is another one ends the program with status 3. SIGUSR1 asks for a line: exchanges, errors, connections
 * that are open. SIGUSR2 makes the client pause, with nothing open, or go on. SIGTERM: the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define THREADS 8
#define PIECE 65536
#define FDS 512
#define PATIENCE_S 2

static _Atomic(long) exchanges, failures, live;
static _Atomic(bool) paused;

static void line(void)
{
	printf("%ld %ld %ld\n", exchanges, failures, live);
}

static void *signals(void *arg)
{
	sigset_t *set = arg;
	int sig;

	for (;;) {
		if (sigwait(set, &sig))
			continue;
		if (sig == SIGTERM)
			exit(0);
		if (sig == SIGUSR2)
			paused = !paused;
		else
			line();
	}
	return NULL;
}

static _Noreturn void corrupt(const char *what)
{
	printf("CORRUPT %s\n", what);
	_exit(3);
}

static int opened(const struct addrinfo *to, int type)
{
	struct timeval limit = { .tv_sec = PATIENCE_S };
	int fd = socket(to->ai_family, type, 0), one = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return fd;
}

/* ---- the server -------------------------------------------------------------------------------------------------------- */

struct conn {
	int fd;
	size_t have, done;
	char buf[PIECE];
};

static int epfd;

static void drop(struct conn *c)
{
	close(c->fd);
	free(c);
	live--;
}

static void admit(int listener)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1, two = 2;
	struct conn *c;

	if (fd < 0)
		return;
	/* Those whose other end went while the link was down. */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &two, sizeof(two));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &two, sizeof(two));
	two = 3000;
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &two, sizeof(two));
	c = calloc(1, sizeof(*c));
	c->fd = fd;
	ev.data.ptr = c;
	live++;
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev))
		drop(c);
}

/* What could not be sent waits for EPOLLOUT, and nothing is read meanwhile. */
static void echo(struct conn *c)
{
	struct epoll_event ev = { .data.ptr = c };
	ssize_t n;

	if (c->done == c->have) {
		n = recv(c->fd, c->buf, sizeof(c->buf), 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			drop(c);
			return;
		}
		c->have = (size_t)n;
		c->done = 0;
	}
	n = send(c->fd, c->buf + c->done, c->have - c->done, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		failures++;
		drop(c);
		return;
	}
	c->done += n > 0 ? (size_t)n : 0;
	exchanges++;
	ev.events = c->done == c->have ? EPOLLIN : EPOLLOUT;
	epoll_ctl(epfd, EPOLL_CTL_MOD, c->fd, &ev);
}

static int serve(const struct addrinfo *at)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL }, got[64];
	int listener = opened(at, SOCK_STREAM), udp = opened(at, SOCK_DGRAM);
	struct sockaddr_storage from;
	static char buf[PIECE];

	if (bind(listener, at->ai_addr, at->ai_addrlen) || listen(listener, 128) || bind(udp, at->ai_addr, at->ai_addrlen)) {
		perror("bind");
		return 1;
	}
	epfd = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &ev);
	ev.data.ptr = &udp;
	epoll_ctl(epfd, EPOLL_CTL_ADD, udp, &ev);
	line();
	for (;;) {
		int n = epoll_wait(epfd, got, 64, -1);

		for (int i = 0; i < n; i++) {
			if (!got[i].data.ptr) {
				admit(listener);
			} else if (got[i].data.ptr == &udp) {
				socklen_t len = sizeof(from);
				ssize_t size = recvfrom(udp, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

				if (size >= 0)
					sendto(udp, buf, (size_t)size, MSG_DONTWAIT, (struct sockaddr *)&from, len);
			} else {
				echo(got[i].data.ptr);
			}
		}
	}
}

/* ---- the client -------------------------------------------------------------------------------------------------------- */

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void fill(char *buf, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(next(&seed) >> 3);
}

/* True: all of it came back. */
static bool exchange(int fd, size_t len, uint32_t seed, char *out, char *in)
{
	size_t sent = 0, got = 0;

	fill(out, len, seed);
	while (got < len) {
		ssize_t n = sent < len ? send(fd, out + sent, len - sent, MSG_NOSIGNAL) : 0;

		if (n < 0)
			return false;
		sent += (size_t)n;
		n = recv(fd, in + got, len - got, 0);
		if (n <= 0)
			return false;
		if (memcmp(in + got, out + got, (size_t)n))
			corrupt("stream");
		got += (size_t)n;
	}
	return true;
}

static void one_connection(const struct addrinfo *to, uint32_t *state, char *out, char *in)
{
	struct linger reset = { .l_onoff = 1 };
	int fd = opened(to, SOCK_STREAM);
	bool well = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0;
	unsigned int rounds = next(state) % 20 + 1;

	live++;
	for (unsigned int i = 0; well && i < rounds && !paused; i++) {
		well = exchange(fd, next(state) % (i % 4 ? 2000 : 30000) + 1, next(state), out, in);
		exchanges += well;
	}
	failures += !well;
	if (next(state) % 3 == 0)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	else if (well && next(state) % 2 && shutdown(fd, SHUT_WR) == 0 && recv(fd, in, 1, 0) > 0)
		corrupt("behind the end");
	close(fd);
	live--;
	if (!well)
		usleep(20000);
}

/* Datagrams may be lost, and come late, but are what was sent. */
static void some_datagrams(const struct addrinfo *to, uint32_t *state, char *out, char *in)
{
	struct timeval soon = { .tv_usec = 100000 };
	int fd = opened(to, SOCK_DGRAM);

	live++;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
		for (unsigned int i = 0; i < 20 && !paused; i++) {
			uint32_t head[2] = { next(state) % 1300 + 8, next(state) };
			ssize_t n;

			memcpy(out, head, sizeof(head));
			fill(out + 8, head[0] - 8, head[1]);
			if (send(fd, out, head[0], 0) != (ssize_t)head[0] || (n = recv(fd, in, PIECE, 0)) < 8)
				continue;
			memcpy(head, in, sizeof(head));
			fill(out + 8, head[0] - 8 < 1300 ? head[0] - 8 : 0, head[1]);
			if ((size_t)n != head[0] || memcmp(out + 8, in + 8, (size_t)n - 8))
				corrupt("datagram");
			exchanges++;
		}
	close(fd);
	live--;
}

struct talker {
	const struct addrinfo *to;
	uint32_t seed;
	bool datagrams;
};

static void *talk(void *arg)
{
	struct talker *t = arg;
	char *out = malloc(PIECE), *in = malloc(PIECE);

	for (;;) {
		if (paused)
			usleep(1000);
		else if (t->datagrams)
			some_datagrams(t->to, &t->seed, out, in);
		else
			one_connection(t->to, &t->seed, out, in);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, *at;
	/* What leaks is missed soon. */
	struct rlimit few = { FDS, FDS };
	bool serves = argc == 3 && !strcmp(argv[1], "serve");
	pthread_t thread;
	sigset_t set;

	if (!serves && argc != 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	setrlimit(RLIMIT_NOFILE, &few);
	hints.ai_family = serves ? AF_INET6 : AF_UNSPEC;
	if (getaddrinfo(serves ? NULL : argv[2], argv[argc - 1], &hints, &at))
		return 2;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_create(&thread, NULL, signals, &set);
	if (serves)
		return serve(at);
	line();
	for (unsigned int i = 0; i < THREADS; i++) {
		struct talker *t = malloc(sizeof(*t));

		*t = (struct talker){ at, i, i == 0 };
		pthread_create(&thread, NULL, talk, t);
	}
	for (;;)
		pause();
}
