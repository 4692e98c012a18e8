/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernel sockets: a receive blocks in the kernel, or is asked again and again. */
#include "bench/perf.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static bool block;
static struct mmsghdr batch[PERF_BATCH];
static struct iovec batch_iov[PERF_BATCH];
static uint8_t *batch_buf;

static int start(const struct perf_opts *o)
{
	block = o->block;
	/* Nothing but a signal ends a receive that sleeps. */
	if (block)
		perf_tick_start();
	if (o->style == PERF_RECV_BATCH) {
		batch_buf = calloc(PERF_BATCH, PERF_UDP_MAX + 1);
		if (!batch_buf)
			return bench_fail("start", -ENOMEM);
	}
	return perf_wait_open(o->style) ? bench_fail("start", -EMFILE) : 0;
}

static int sock_open(int family, bool tcp, perf_t *out)
{
	int fd = socket(family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);

	*out = fd;
	return fd < 0 ? -errno : 0;
}

static void sock_close(perf_t s)
{
	close((int)s);
}

static int setopt(perf_t s, int level, int name, const void *p, socklen_t len)
{
	return setsockopt((int)s, level, name, p, len) ? -errno : 0;
}

static int sock_bind(perf_t s, const struct sockaddr_storage *at)
{
	return bind((int)s, (const struct sockaddr *)at, bench_addr_len(at)) ? -errno : 0;
}

/* A signal does not end a connect: it goes on, and how it ended is told by the socket. */
static int sock_connect(perf_t s, const struct sockaddr_storage *to)
{
	struct pollfd p = { .fd = (int)s, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int error = 0, rc = connect((int)s, (const struct sockaddr *)to, bench_addr_len(to)) ? -errno : 0;

	if (rc != -EINTR)
		return rc;
	while (poll(&p, 1, -1) < 0 && errno == EINTR && !bench_stop)
		;
	if (bench_stop)
		return -EINTR;
	return getsockopt((int)s, SOL_SOCKET, SO_ERROR, &error, &len) ? -errno : -error;
}

static int sock_listen(perf_t s)
{
	return listen((int)s, 64) ? -errno : 0;
}

static int sock_accept(perf_t s, bool wait, perf_t *out)
{
	struct pollfd p = { .fd = (int)s, .events = POLLIN };
	int fd;

	if (!wait && poll(&p, 1, 0) != 1)
		return -EAGAIN;
	fd = accept4((int)s, NULL, NULL, SOCK_CLOEXEC);
	*out = fd;
	return fd < 0 ? -errno : 0;
}

static ssize_t transmit(perf_t s, const void *p, size_t n, const struct sockaddr_storage *to, bool wait)
{
	int flags = wait ? MSG_NOSIGNAL : MSG_NOSIGNAL | MSG_DONTWAIT;
	ssize_t k = sendto((int)s, p, n, flags, (const struct sockaddr *)to, to ? bench_addr_len(to) : 0);

	return k < 0 ? -errno : k;
}

static ssize_t receive(perf_t s, void *p, size_t n, struct sockaddr_storage *from, bool wait)
{
	socklen_t len = sizeof(*from);
	ssize_t k = recvfrom((int)s, p, n, wait && block ? 0 : MSG_DONTWAIT, (struct sockaddr *)from, from ? &len : NULL);

	return k < 0 ? -errno : k;
}

static int receive_batch(perf_t s, struct perf_in *in, bool wait)
{
	int n;

	for (uint32_t i = 0; i < PERF_BATCH; i++) {
		batch_iov[i] = (struct iovec){ batch_buf + (size_t)i * (PERF_UDP_MAX + 1), PERF_UDP_MAX + 1 };
		batch[i].msg_hdr = (struct msghdr){
			.msg_iov = &batch_iov[i], .msg_iovlen = 1, .msg_name = &in[i].from, .msg_namelen = sizeof(in[i].from)
		};
	}
	n = recvmmsg((int)s, batch, PERF_BATCH, wait && block ? MSG_WAITFORONE : MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		in[i].base = batch_iov[i].iov_base;
		in[i].len = batch[i].msg_len;
	}
	return n < 0 ? -errno : n;
}

static int watch(perf_t s, uint32_t number)
{
	return perf_wait_add((int)s, number);
}

static void unwatch(perf_t s, uint32_t number)
{
	perf_wait_del((int)s, number);
}

static int ready(uint32_t *numbers, bool wait)
{
	return perf_wait(numbers, wait && block);
}

static bool offloaded(perf_t s, char *why, size_t size)
{
	(void)s;
	snprintf(why, size, "a kernel socket");
	return false;
}

const struct perf_ops perf_kernel = {
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
