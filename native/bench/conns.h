/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many connections: a server that keeps what it is told to, and a client that takes orders from its standard input and prints a JSON
 * object for each:
 *
 *   open N          N more connections, a message there and back on each
 *   ping SECONDS    round trips on the first one, beside all others
 *   churn N WINDOW  N connections opened, used for one message and closed, WINDOW at a time
 *   memory          what both processes hold
 *   close           all but the first
 *   quit
 *
 * When the client leaves with connections open the server prints how many have ended, and how soon.
 *
 * A transport gives the calls. A connection is a number to this header: an fd, or a handle's address.
 */
#ifndef BENCH_CONNS_H
#define BENCH_CONNS_H

#include <sys/types.h>

#include "bench/bench.h"

typedef intptr_t conns_t;

struct conns_ops {
	int (*start)(const struct bench_opts *o);
	int (*listen)(const struct sockaddr_storage *at, conns_t *out);
	/* wait: spins until there is one, else -EAGAIN. -EINTR once bench_stop is set. */
	int (*accept)(conns_t listener, bool wait, conns_t *out);
	/* Begun, and perhaps not ended. */
	int (*connect)(const struct sockaddr_storage *to, conns_t *out);
	/* All of it or none: spins while there is no connection yet. */
	int (*send)(conns_t c, const void *p, size_t n);
	ssize_t (*recv)(conns_t c, void *p, size_t n, bool wait);
	int (*close)(conns_t c);
};

extern const struct conns_ops conns_engine, conns_kernel;

int bench_conns(const struct bench_opts *o, const struct conns_ops *ops);

#endif
