/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of pyvma.h. */
#include <errno.h>

#include "bench/conns.h"
#include "pyvma.h"

static pyvma_sock *sock(conns_t c)
{
	return (pyvma_sock *)c;
}

static int start(const struct bench_opts *o)
{
	return bench_engine_start(o, false);
}

static int open_listener(const struct sockaddr_storage *at, conns_t *out)
{
	pyvma_sock *s;
	int rc = pyvma_sock_open(at->ss_family, SOCK_STREAM, 0, &s);

	if (!rc)
		rc = pyvma_sock_bind(s, (const struct sockaddr *)at, bench_addr_len(at));
	if (!rc)
		rc = pyvma_sock_listen(s, 4096);
	*out = (conns_t)s;
	return rc;
}

static int accept_one(conns_t listener, bool wait, conns_t *out)
{
	pyvma_sock *s;
	int rc;

	do {
		rc = pyvma_sock_accept(sock(listener), NULL, NULL, 0, wait ? -1 : 0, &s);
	} while (rc == -EINTR && !bench_stop);
	*out = (conns_t)s;
	return rc;
}

static int begin(const struct sockaddr_storage *to, conns_t *out)
{
	pyvma_sock *s;
	int rc = pyvma_sock_open(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0, &s);

	if (rc)
		return rc;
	rc = pyvma_sock_connect(s, (const struct sockaddr *)to, bench_addr_len(to), 0);
	*out = (conns_t)s;
	return rc == -EINPROGRESS ? 0 : rc;
}

static ssize_t receive(conns_t c, void *p, size_t n, bool wait)
{
	int64_t k;

	do {
		k = pyvma_sock_recv(sock(c), p, n, 0, 0);
	} while (k == -EAGAIN && wait && !bench_stop);
	return (ssize_t)k;
}

/* A call that does not wait looks at the ring only when it has nothing: so a connect that is under way is looked after by a receive. */
static int transmit(conns_t c, const void *p, size_t n)
{
	int64_t k;

	while ((k = pyvma_sock_send(sock(c), p, n, MSG_NOSIGNAL, 0)) == -EAGAIN && !bench_stop)
		(void)pyvma_sock_poll(sock(c), 0, 0);
	return k < 0 ? (int)k : k == (int64_t)n ? 0 : -EMSGSIZE;
}

static int end(conns_t c)
{
	return pyvma_sock_close(sock(c));
}

const struct conns_ops conns_engine = { start, open_listener, accept_one, begin, transmit, receive, end };
