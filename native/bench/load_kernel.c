/* SPDX-License-Identifier: BSD-3-Clause */
/* The load over kernel sockets. It never sleeps: a wake-up is work that the server's CPU would have to do. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "bench/load.h"

static int fd[LOAD_MAX], set = -1;

static int start(const struct bench_opts *o)
{
	(void)o;
	set = epoll_create1(EPOLL_CLOEXEC);
	return set < 0 ? -errno : 0;
}

static int begin(const struct bench_opts *o, uint32_t number)
{
	int s = socket(o->remote.ss_family, o->tcp ? SOCK_STREAM : SOCK_DGRAM, 0), one = 1;

	if (s < 0 || connect(s, (const struct sockaddr *)&o->remote, bench_addr_len(&o->remote)) < 0)
		return -errno;
	fd[number] = s;
	if (o->tcp)
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return epoll_ctl(set, EPOLL_CTL_ADD, s, &(struct epoll_event){ .events = EPOLLIN, .data.u32 = number }) < 0 ? -errno : 0;
}

static ssize_t transmit(uint32_t number, const void *p, size_t n)
{
	ssize_t k = send(fd[number], p, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	return k < 0 ? -errno : k;
}

static ssize_t receive(uint32_t number, void *p, size_t n)
{
	ssize_t k = recv(fd[number], p, n, MSG_DONTWAIT);

	return k < 0 ? -errno : k;
}

static int wait_ready(uint32_t *numbers, int n)
{
	struct epoll_event ev[LOAD_MAX];
	int have = epoll_wait(set, ev, n, 0);

	for (int i = 0; i < have; i++)
		numbers[i] = ev[i].data.u32;
	return have < 0 ? -errno : have;
}

const struct load_ops load_kernel = { start, begin, transmit, receive, wait_ready };
