/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernel TCP sockets: blocking or spinning on MSG_DONTWAIT. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "bench/bench.h"

struct conn {
	int fd;
};

static inline ssize_t conn_send(struct conn *c, const void *p, size_t n)
{
	ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);

	return k < 0 ? -errno : k;
}

static inline ssize_t conn_recv(struct conn *c, void *p, size_t n, bool wait)
{
	ssize_t k = recv(c->fd, p, n, wait ? 0 : MSG_DONTWAIT);

	return k < 0 ? -errno : k;
}

static socklen_t len_of(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int conn_open(struct conn *c, const struct bench_opts *o)
{
	int family = o->local.ss_family ? o->local.ss_family : o->remote.ss_family, one = 1, l;

	c->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return -errno;
	setsockopt(c->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (o->role != ROLE_SERVER)
		return connect(c->fd, (const struct sockaddr *)&o->remote, len_of(&o->remote)) ? -errno : 0;
	if (bind(c->fd, (const struct sockaddr *)&o->local, len_of(&o->local)) || listen(c->fd, 8))
		return -errno;
	bench_ready(o, NULL);
	l = c->fd;
	do {
		c->fd = accept(l, NULL, NULL);
	} while (c->fd < 0 && errno == EINTR && !bench_stop);
	close(l);
	if (c->fd < 0)
		return -errno;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return 0;
}

static void conn_close(struct conn *c)
{
	close(c->fd);
}

#include "bench/stream.h"

int bench_run_kernel_tcp(const struct bench_opts *o, struct bench_result *r)
{
	return stream_run(o, r, o->block);
}
