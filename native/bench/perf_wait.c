/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for many fds as programs do it: select, poll or epoll, each with the work a program has with it before and after the call. */
#include "bench/perf.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

static enum perf_style style;
static int set = -1;
static int fds[PERF_SOCKS_MAX]; /* by number; -1: none */
static uint32_t top; /* numbers are below it */
static struct pollfd polled[PERF_SOCKS_MAX];
static uint32_t polled_number[PERF_SOCKS_MAX], n_polled;
static fd_set selected;
static int selected_max = -1;

int perf_wait_open(enum perf_style wanted)
{
	style = wanted;
	for (uint32_t i = 0; i < PERF_SOCKS_MAX; i++)
		fds[i] = -1;
	FD_ZERO(&selected);
	set = style == PERF_EPOLL ? epoll_create1(EPOLL_CLOEXEC) : -1;
	return style == PERF_EPOLL && set < 0 ? -errno : 0;
}

/* What poll and select are given changes with the sockets, not with every call. */
static void list_again(void)
{
	FD_ZERO(&selected);
	selected_max = -1;
	n_polled = 0;
	for (uint32_t i = 0; i < top; i++) {
		if (fds[i] < 0)
			continue;
		if (fds[i] < FD_SETSIZE)
			FD_SET(fds[i], &selected);
		selected_max = PV_MAX(selected_max, fds[i]);
		polled[n_polled] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
		polled_number[n_polled++] = i;
	}
}

int perf_wait_add(int fd, uint32_t number)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = number };

	if (fd < 0)
		return fd;
	if (style == PERF_SELECT && fd >= FD_SETSIZE)
		return -EMFILE;
	fds[number] = fd;
	top = PV_MAX(top, number + 1);
	list_again();
	return style == PERF_EPOLL && epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

void perf_wait_del(int fd, uint32_t number)
{
	fds[number] = -1;
	list_again();
	if (style == PERF_EPOLL)
		epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
}

static int wait_epoll(uint32_t *numbers, int timeout_ms)
{
	struct epoll_event ev[PERF_BATCH];
	int n = epoll_wait(set, ev, PERF_BATCH, timeout_ms);

	for (int i = 0; i < n; i++)
		numbers[i] = ev[i].data.u32;
	return n < 0 ? -errno : n;
}

static int wait_poll(uint32_t *numbers, int timeout_ms)
{
	int n = poll(polled, n_polled, timeout_ms), found = 0;

	for (uint32_t i = 0; found < n && i < n_polled; i++)
		if (polled[i].revents)
			numbers[found++] = polled_number[i];
	return n < 0 ? -errno : found;
}

static int wait_select(uint32_t *numbers, int timeout_ms)
{
	struct timeval limit = { .tv_usec = timeout_ms * 1000 };
	fd_set now = selected;
	int n = select(selected_max + 1, &now, NULL, NULL, &limit), found = 0;

	for (uint32_t i = 0; found < n && i < top; i++)
		if (fds[i] >= 0 && FD_ISSET(fds[i], &now))
			numbers[found++] = i;
	return n < 0 ? -errno : found;
}

int perf_wait(uint32_t *numbers, bool wait)
{
	int timeout_ms = wait ? (int)(PERF_LOOK_NS / PV_NS_PER_MS) : 0;

	if (style == PERF_EPOLL)
		return wait_epoll(numbers, timeout_ms);
	return style == PERF_POLL ? wait_poll(numbers, timeout_ms) : wait_select(numbers, timeout_ms);
}

static void on_tick(int sig)
{
	(void)sig;
}

void perf_tick_start(void)
{
	struct sigaction sa = { .sa_handler = on_tick };
	struct itimerval every = { { 0, PERF_LOOK_NS / 1000 }, { 0, PERF_LOOK_NS / 1000 } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}
