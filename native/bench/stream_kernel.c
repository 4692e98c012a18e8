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

static inline ssize_t conn_send(struct conn *c, const void *p, size_t n, bool wait)
{
	ssize_t k = send(c->fd, p, n, wait ? MSG_NOSIGNAL : MSG_NOSIGNAL | MSG_DONTWAIT);

	return k < 0 ? -errno : k;
}

static inline ssize_t conn_recv(struct conn *c, void *p, size_t n, bool wait)
{
	ssize_t k = recv(c->fd, p, n, wait ? 0 : MSG_DONTWAIT);

	return k < 0 ? -errno : k;
}

static int accept_all(struct conn *c, uint32_t n, const struct bench_opts *o)
{
	int l = socket(o->local.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rc = 0;

	if (l < 0)
		return -errno;
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (const struct sockaddr *)&o->local, bench_addr_len(&o->local)) || listen(l, 8))
		rc = -errno;
	else
		bench_ready(o, NULL);
	for (uint32_t i = 0; i < n && !rc; i++) {
		do {
			c[i].fd = accept(l, NULL, NULL);
			rc = c[i].fd < 0 ? -errno : 0;
		} while (rc == -EINTR && !bench_stop);
	}
	close(l);
	return rc;
}

static int connect_all(struct conn *c, uint32_t n, const struct bench_opts *o)
{
	for (uint32_t i = 0; i < n; i++) {
		c[i].fd = socket(o->remote.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (c[i].fd < 0 || connect(c[i].fd, (const struct sockaddr *)&o->remote, bench_addr_len(&o->remote)))
			return -errno;
	}
	return 0;
}

static int conn_open(struct conn *c, uint32_t n, const struct bench_opts *o)
{
	int one = 1, rc = o->role == ROLE_SERVER ? accept_all(c, n, o) : connect_all(c, n, o);

	for (uint32_t i = 0; i < n && !rc; i++)
		setsockopt(c[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return rc;
}

static void conn_close(struct conn *c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		close(c[i].fd);
}

#include "bench/stream.h"

int bench_run_kernel_tcp(const struct bench_opts *o, struct bench_result *r)
{
	return stream_run(o, r, o->block);
}
