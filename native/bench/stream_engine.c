/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP sockets of pyvma.h. */
#include <errno.h>
#include <netinet/tcp.h>

#include "bench/bench.h"
#include "pyvma.h"

struct conn {
	pyvma_sock *s;
};

static inline ssize_t conn_send(struct conn *c, const void *p, size_t n)
{
	return (ssize_t)pyvma_sock_send(c->s, p, n, MSG_NOSIGNAL, -1);
}

static inline ssize_t conn_recv(struct conn *c, void *p, size_t n, bool wait)
{
	return (ssize_t)pyvma_sock_recv(c->s, p, n, wait ? 0 : MSG_DONTWAIT, BENCH_LOST_NS);
}

static socklen_t len_of(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int accept_one(struct conn *c, const struct bench_opts *o)
{
	pyvma_sock *l = c->s;
	int rc = pyvma_sock_bind(l, (const struct sockaddr *)&o->local, len_of(&o->local));

	if (!rc)
		rc = pyvma_sock_listen(l, 8);
	if (rc)
		return rc;
	bench_ready(o, NULL);
	do {
		rc = pyvma_sock_accept(l, NULL, NULL, SOCK_CLOEXEC, -1, &c->s);
	} while (rc == -EINTR && !bench_stop);
	pyvma_sock_close(l);
	return rc;
}

/* 0, -errno, or 1 when it has said what is wrong. */
static int conn_open(struct conn *c, const struct bench_opts *o)
{
	int family = o->local.ss_family ? o->local.ss_family : o->remote.ss_family, one = 1, rc;
	char text[128];

	rc = o->interfaces ? pyvma_config_set("interfaces", o->interfaces) : 0;
	if (!rc)
		rc = pyvma_config_set("rx_poll", o->block ? "0" : "-1");
	if (!rc)
		rc = pyvma_start();
	if (rc)
		return bench_fail(pyvma_last_error(), 0);
	rc = pyvma_sock_open(family, SOCK_STREAM | SOCK_CLOEXEC, 0, &c->s);
	if (!rc && o->role == ROLE_SERVER)
		rc = accept_one(c, o);
	else if (!rc)
		rc = pyvma_sock_connect(c->s, (const struct sockaddr *)&o->remote, len_of(&o->remote), 10 * PV_NS_PER_S);
	if (rc)
		return rc;
	if (pyvma_sock_offload(c->s, text, sizeof(text)) != PYVMA_OFFLOADED) {
		fprintf(stderr, "pyvma-bench: the socket is not offloaded: %s\n", text);
		return 1;
	}
	return pyvma_sock_setsockopt(c->s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void conn_close(struct conn *c)
{
	pyvma_sock_close(c->s);
}

#include "bench/stream.h"

int bench_run_engine_tcp(const struct bench_opts *o, struct bench_result *r)
{
	/* Either way the waiting is the engine's: it sleeps, or spins with rx_poll = -1. */
	return stream_run(o, r, true);
}
