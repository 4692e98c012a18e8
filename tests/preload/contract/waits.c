/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that wait, or ask how ready a socket is. */
#include "contract.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

static void poll_(int fd)
{
	static const short asked[] = {
		0, POLLIN, POLLOUT, POLLIN | POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND, -1
	};

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		struct pollfd p = { .fd = fd, .events = asked[i] };

		rc("rc", poll(&p, 1, 0));
		say(":%x", p.revents);
	}
}

static void poll_several(int fd)
{
	int p[2], closed = dup(fd);
	struct pollfd set[4];

	if (pipe(p) || write(p[1], "x", 1) != 1)
		return;
	close(closed);
	set[0] = (struct pollfd){ .fd = p[0], .events = POLLIN };
	set[1] = (struct pollfd){ .fd = fd, .events = POLLIN };
	set[2] = (struct pollfd){ .fd = -1, .events = POLLIN };
	set[3] = (struct pollfd){ .fd = closed, .events = POLLIN };
	rc("rc", poll(set, 4, 100));
	for (int i = 0; i < 4; i++)
		say(" %x", set[i].revents);
	rc("none", poll(NULL, 0, 1));
	close(p[0]);
	close(p[1]);
}

static void ppoll_(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec t = { .tv_nsec = 2000000 }, bad = { .tv_nsec = 2000000000 };
	sigset_t mask;

	sigfillset(&mask);
	rc("rc", ppoll(&p, 1, &t, &mask));
	say(":%x", p.revents);
	rc("bad", ppoll(&p, 1, &bad, NULL));
}

/* Sets have no room for numbers as large as those of a program with many fds. */
static int low(int fd)
{
	return dup2(fd, LOW_FD);
}

static void select_(int fd)
{
	fd_set r, w, x;
	struct timeval t = { .tv_usec = 2000 }, bad = { .tv_sec = -1 };

	fd = low(fd);
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_ZERO(&x);
	FD_SET(fd, &r);
	FD_SET(fd, &w);
	FD_SET(fd, &x);
	rc("rc", select(fd + 1, &r, &w, &x, &t));
	say(":%d%d%d", FD_ISSET(fd, &r), FD_ISSET(fd, &w), FD_ISSET(fd, &x));
	rc("bad", select(fd + 1, &r, &w, &x, &bad));
	rc("less", select(-1, &r, &w, &x, &t));
	t = (struct timeval){ 0 };
	FD_ZERO(&r);
	FD_SET(fd, &r);
	rc("read", select(fd + 1, &r, NULL, NULL, &t));
	FD_ZERO(&r);
	FD_SET(fd, &r);
	close(fd);
	rc("closed", select(fd + 1, &r, NULL, NULL, &t));
	hold(fd);
}

static void pselect_(int fd)
{
	fd_set r;
	struct timespec t = { .tv_nsec = 2000000 };

	fd = low(fd);
	FD_ZERO(&r);
	FD_SET(fd, &r);
	rc("rc", pselect(fd + 1, &r, NULL, NULL, &t, NULL));
	say(":%d", !!FD_ISSET(fd, &r));
	say(" t=%ld", t.tv_nsec);
	close(fd);
	hold(fd);
}

static void told(int ep)
{
	struct epoll_event e = { 0 };
	int n = epoll_wait(ep, &e, 1, 0);

	rc("wait", n);
	if (n == 1)
		say(":%x/%lu", e.events, (unsigned long)e.data.u64);
}

static void watch(int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = 42 };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	rc("add", epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
	told(ep);
	told(ep);
	e.data.u64 = 43;
	rc("mod", epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e));
	told(ep);
	rc("del", epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL));
	told(ep);
	close(ep);
}

static void epoll_level(int fd)
{
	watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI);
}

static void epoll_edge(int fd)
{
	watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

static void epoll_once(int fd)
{
	watch(fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT);
}

static void epoll_in(int fd)
{
	watch(fd, EPOLLIN);
}

static void epoll_none(int fd)
{
	watch(fd, 0);
}

static void epoll_errors(int fd)
{
	struct epoll_event e = { .events = EPOLLIN };
	int ep = epoll_create(1), closed = dup(fd), normal = dup(ep);

	close(closed);
	rc("create", epoll_create(0));
	rc("create1", epoll_create1(1));
	rc("mod", epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e));
	rc("del", epoll_ctl(ep, EPOLL_CTL_DEL, fd, &e));
	rc("add", epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
	rc("add", epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
	rc("self", epoll_ctl(ep, EPOLL_CTL_ADD, ep, &e));
	rc("op", epoll_ctl(ep, 99, fd, &e));
	rc("closed", epoll_ctl(ep, EPOLL_CTL_ADD, closed, &e));
	rc("not a set", epoll_ctl(fd, EPOLL_CTL_ADD, ep, &e));
	rc("wait", epoll_wait(fd, &e, 1, 0));
	rc("none", epoll_wait(ep, &e, 0, 0));
	rc("less", epoll_wait(ep, &e, -1, 0));
	e.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
	rc("exclusive", epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e));
	close(normal);
	close(ep);
}

/* A set in a set, and in poll. */
static void epoll_nested(int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 1 };
	int inner = epoll_create1(0), outer = epoll_create1(0);
	struct pollfd p = { .fd = inner, .events = POLLIN };

	rc("add", epoll_ctl(inner, EPOLL_CTL_ADD, fd, &e));
	e.data.u64 = 2;
	rc("add", epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e));
	usleep(1000);
	rc("poll", poll(&p, 1, 0));
	say(":%x", p.revents);
	told(outer);
	told(inner);
	close(inner);
	close(outer);
}

/* The same socket in two sets, by two numbers in one of them. */
static void epoll_twice(int fd)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT, .data.u64 = 1 }, all[4];
	int one = epoll_create1(0), two = epoll_create1(0), other = dup(fd);

	rc("add", epoll_ctl(one, EPOLL_CTL_ADD, fd, &e));
	e.data.u64 = 2;
	rc("add", epoll_ctl(one, EPOLL_CTL_ADD, other, &e));
	rc("add", epoll_ctl(two, EPOLL_CTL_ADD, fd, &e));
	rc("wait", epoll_wait(one, all, 4, 0));
	told(two);
	close(other);
	close(one);
	told(two);
	close(two);
}

static void epoll_more(int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 1 };
	struct timespec t = { .tv_nsec = 1000000 };
	int ep = epoll_create1(0);

	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	rc("pwait", epoll_pwait(ep, &e, 1, 1, NULL));
	rc("pwait2", epoll_pwait2(ep, &e, 1, &t, NULL));
	t.tv_nsec = -1;
	rc("bad", epoll_pwait2(ep, &e, 1, &t, NULL));
	close(ep);
}

/* An edge for each arrival. */
static void epoll_edges(int fd)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET, .data.u64 = 7 };
	int ep = epoll_create1(0);
	char c[100];

	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
	for (int i = 0; i < 2; i++) {
		while (recv(fd, c, sizeof(c), MSG_DONTWAIT) > 0)
			;
		told(ep);
		if (send(fd, "abc", 3, MSG_NOSIGNAL | MSG_DONTWAIT) == 3 && state->peer & ANSWERS)
			arrive(fd, 0, 3);
		told(ep);
		told(ep);
	}
	close(ep);
}

const struct call wait_calls[] = {
	CALL(poll_, BOTH),       CALL(poll_several, BOTH), CALL(ppoll_, BOTH),       CALL(select_, BOTH),
	CALL(pselect_, BOTH),    CALL(epoll_level, BOTH),  CALL(epoll_edge, BOTH),   CALL(epoll_once, BOTH),
	CALL(epoll_in, BOTH),    CALL(epoll_none, BOTH),   CALL(epoll_errors, BOTH), CALL(epoll_nested, BOTH),
	CALL(epoll_twice, BOTH), CALL(epoll_more, BOTH),   CALL(epoll_edges, BOTH),  { NULL, 0, NULL, 0 },
};
