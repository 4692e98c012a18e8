/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets of pyvma.h. select and poll are the kernel's, on the fds that follow a socket's readiness: what a program pays that keeps them. */
#include "bench/perf.h"

#include <stdlib.h>
#include <sys/epoll.h>

#include "pyvma.h"

static enum perf_style style;
static pyvma_epoll *set;
static bool block;
static struct pyvma_msg batch[PERF_BATCH];
static int batched;
static uint8_t *copies;

static pyvma_sock *sock(perf_t s)
{
	return (pyvma_sock *)s;
}

static const struct sockaddr *plain(const struct sockaddr_storage *a)
{
	return (const struct sockaddr *)a;
}

static int start(const struct perf_opts *o)
{
	struct bench_opts engine = { .interfaces = o->interfaces };
	int rc;

	style = o->style;
	block = o->block;
	if (bench_engine_start(&engine, o->block))
		return 1;
	if (style == PERF_RECV_BATCH && !(copies = calloc(PERF_BATCH, PERF_UDP_MAX + 1)))
		return bench_fail("start", -ENOMEM);
	rc = style == PERF_EPOLL ? pyvma_epoll_open(&set) : perf_wait_open(style);
	return rc ? bench_fail("start", rc) : 0;
}

static int sock_open(int family, bool tcp, perf_t *out)
{
	pyvma_sock *s = NULL;
	int rc = pyvma_sock_open(family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0, &s);

	*out = (perf_t)s;
	return rc;
}

static void sock_close(perf_t s)
{
	pyvma_sock_close(sock(s));
}

static int setopt(perf_t s, int level, int name, const void *p, socklen_t len)
{
	return pyvma_sock_setsockopt(sock(s), level, name, p, len);
}

static int sock_bind(perf_t s, const struct sockaddr_storage *at)
{
	return pyvma_sock_bind(sock(s), plain(at), bench_addr_len(at));
}

static int sock_connect(perf_t s, const struct sockaddr_storage *to)
{
	return pyvma_sock_connect(sock(s), plain(to), bench_addr_len(to), 10 * PV_NS_PER_S);
}

static int sock_listen(perf_t s)
{
	return pyvma_sock_listen(sock(s), 64);
}

static int sock_accept(perf_t s, bool wait, perf_t *out)
{
	pyvma_sock *got = NULL;
	int rc = pyvma_sock_accept(sock(s), NULL, NULL, SOCK_CLOEXEC, wait ? PERF_LOOK_NS : 0, &got);

	*out = (perf_t)got;
	return rc < 0 ? rc : 0;
}

static ssize_t transmit(perf_t s, const void *p, size_t n, const struct sockaddr_storage *to, bool wait)
{
	int64_t limit = wait ? PERF_LOOK_NS : 0;

	if (!to)
		return (ssize_t)pyvma_sock_send(sock(s), p, n, MSG_NOSIGNAL, limit);
	return (ssize_t)pyvma_sock_sendto(sock(s), p, n, MSG_NOSIGNAL, plain(to), bench_addr_len(to), limit);
}

static ssize_t receive(perf_t s, void *p, size_t n, struct sockaddr_storage *from, bool wait)
{
	socklen_t len = sizeof(*from);
	int64_t limit = wait ? PERF_LOOK_NS : 0;

	if (!from)
		return (ssize_t)pyvma_sock_recv(sock(s), p, n, 0, limit);
	return (ssize_t)pyvma_sock_recvfrom(sock(s), p, n, 0, (struct sockaddr *)from, &len, limit);
}

/* Lent payloads are read only: an answer is made in a copy. */
static int receive_batch(perf_t s, struct perf_in *in, bool wait)
{
	int n;

	if (batched)
		pyvma_batch_release(batch, (uint32_t)batched);
	batched = 0;
	n = pyvma_sock_recv_lent(sock(s), batch, PERF_BATCH, 0, wait ? PERF_LOOK_NS : 0);
	for (int i = 0; i < n; i++) {
		uint8_t *m = batch[i].base, *copy = copies + (size_t)i * (PERF_UDP_MAX + 1);

		in[i].len = batch[i].len;
		in[i].base = m;
		if (in[i].len >= MSG_HLEN && (m[9] & MSG_PONG))
			in[i].base = memcpy(copy, m, in[i].len);
		in[i].from = batch[i].addr;
	}
	batched = PV_MAX(n, 0);
	return n;
}

static int watch(perf_t s, uint32_t number)
{
	if (style != PERF_EPOLL)
		return perf_wait_add(pyvma_sock_fileno(sock(s)), number);
	return pyvma_epoll_ctl_sock(set, EPOLL_CTL_ADD, sock(s), &(struct pyvma_event){ EPOLLIN, number });
}

static void unwatch(perf_t s, uint32_t number)
{
	if (style != PERF_EPOLL)
		perf_wait_del(pyvma_sock_fileno(sock(s)), number);
	else
		pyvma_epoll_ctl_sock(set, EPOLL_CTL_DEL, sock(s), NULL);
}

static int ready(uint32_t *numbers, bool wait)
{
	struct pyvma_event ev[PERF_BATCH];
	int n;

	if (style != PERF_EPOLL)
		return perf_wait(numbers, wait && block);
	n = pyvma_epoll_wait(set, ev, PERF_BATCH, wait ? PERF_LOOK_NS : 0);
	for (int i = 0; i < n; i++)
		numbers[i] = (uint32_t)ev[i].data;
	return n;
}

static bool offloaded(perf_t s, char *why, size_t size)
{
	return pyvma_sock_offload(sock(s), why, size) == PYVMA_OFFLOADED;
}

const struct perf_ops perf_engine = {
	.start = start,
	.open = sock_open,
	.close = sock_close,
	.setopt = setopt,
	.bind = sock_bind,
	.connect = sock_connect,
	.listen = sock_listen,
	.accept = sock_accept,
	.send = transmit,
	.recv = receive,
	.recv_batch = receive_batch,
	.watch = watch,
	.unwatch = unwatch,
	.ready = ready,
	.offloaded = offloaded,
};
