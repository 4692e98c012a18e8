/* SPDX-License-Identifier: BSD-3-Clause */
/* The load over pyvma.h. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include "bench/load.h"
#include "pyvma.h"

static pyvma_sock *sock[LOAD_MAX];
static pyvma_epoll *set;

static int start(const struct bench_opts *o)
{
	return bench_engine_start(o, false) ? 1 : pyvma_epoll_open(&set);
}

static int begin(const struct bench_opts *o, uint32_t number)
{
	pyvma_sock *s;
	int rc = pyvma_sock_open(o->remote.ss_family, o->tcp ? SOCK_STREAM : SOCK_DGRAM, 0, &s), one = 1;

	if (rc)
		return rc;
	rc = pyvma_sock_connect(s, (const struct sockaddr *)&o->remote, bench_addr_len(&o->remote), 5 * PV_NS_PER_S);
	if (rc)
		return rc;
	sock[number] = s;
	if (o->tcp)
		pyvma_sock_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return pyvma_epoll_ctl_sock(set, EPOLL_CTL_ADD, s, &(struct pyvma_event){ EPOLLIN, number });
}

static ssize_t transmit(uint32_t number, const void *p, size_t n)
{
	return (ssize_t)pyvma_sock_send(sock[number], p, n, MSG_NOSIGNAL, 0);
}

static ssize_t receive(uint32_t number, void *p, size_t n)
{
	return (ssize_t)pyvma_sock_recv(sock[number], p, n, 0, 0);
}

static int wait_ready(uint32_t *numbers, int n)
{
	struct pyvma_event ev[LOAD_MAX];
	int have = pyvma_epoll_wait(set, ev, n, 10 * PV_NS_PER_MS);

	for (int i = 0; i < have; i++)
		numbers[i] = (uint32_t)ev[i].data;
	return have;
}

const struct load_ops load_engine = { start, begin, transmit, receive, wait_ready };
