/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP sockets of pyvma.h. */
#include <errno.h>
#include <netinet/tcp.h>

#include "bench/bench.h"
#include "pyvma.h"

struct conn {
	pyvma_sock *s;
};

static inline ssize_t conn_send(struct conn *c, const void *p, size_t n, bool wait)
{
	return (ssize_t)pyvma_sock_send(c->s, p, n, wait ? MSG_NOSIGNAL : MSG_NOSIGNAL | MSG_DONTWAIT, -1);
}

static inline ssize_t conn_recv(struct conn *c, void *p, size_t n, bool wait)
{
	return (ssize_t)pyvma_sock_recv(c->s, p, n, wait ? 0 : MSG_DONTWAIT, BENCH_LOST_NS);
}

static int accept_all(struct conn *c, uint32_t n, const struct bench_opts *o)
{
	pyvma_sock *l;
	int rc = pyvma_sock_open(o->local.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0, &l);

	if (rc)
		return rc;
	rc = pyvma_sock_bind(l, (const struct sockaddr *)&o->local, bench_addr_len(&o->local));
	if (!rc)
		rc = pyvma_sock_listen(l, 8);
	if (!rc)
		bench_ready(o, NULL);
	for (uint32_t i = 0; i < n && !rc; i++) {
		do {
			rc = pyvma_sock_accept(l, NULL, NULL, SOCK_CLOEXEC, -1, &c[i].s);
		} while (rc == -EINTR && !bench_stop);
	}
	pyvma_sock_close(l);
	return rc;
}

static int connect_all(struct conn *c, uint32_t n, const struct bench_opts *o)
{
	int rc = 0;

	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = pyvma_sock_open(o->remote.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0, &c[i].s);
		if (!rc)
			rc = pyvma_sock_connect(c[i].s, (const struct sockaddr *)&o->remote, bench_addr_len(&o->remote),
						10 * PV_NS_PER_S);
	}
	return rc;
}

/* 0, -errno, or 1 when it has said what is wrong. */
static int conn_open(struct conn *c, uint32_t n, const struct bench_opts *o)
{
	char text[128];
	int one = 1, rc;

	if (bench_engine_start(o, o->block))
		return 1;
	rc = o->role == ROLE_SERVER ? accept_all(c, n, o) : connect_all(c, n, o);
	for (uint32_t i = 0; i < n && !rc; i++) {
		if (pyvma_sock_offload(c[i].s, text, sizeof(text)) != PYVMA_OFFLOADED) {
			fprintf(stderr, "pyvma-bench: the socket is not offloaded: %s\n", text);
			return 1;
		}
		rc = pyvma_sock_setsockopt(c[i].s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	return rc;
}

static void conn_close(struct conn *c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		pyvma_sock_close(c[i].s);
}

#include "bench/stream.h"

int bench_run_engine_tcp(const struct bench_opts *o, struct bench_result *r)
{
	/* Either way the waiting is the engine's: it sleeps, or spins with rx_poll = -1. */
	return stream_run(o, r, true);
}
