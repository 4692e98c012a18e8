/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load of a server: so many connections (or connected UDP sockets), on each a request whenever the reply to the last one is there.
 * A reply to a message is the message. To an HTTP request it is as long as the first one was, whose Content-Length says how long.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <sys/types.h>

#include "bench/bench.h"

#define LOAD_MAX 1024u

struct load_ops {
	int (*start)(const struct bench_opts *o);
	/* Connected; its readiness will be told under that number. */
	int (*connect)(const struct bench_opts *o, uint32_t number);
	/* Neither waits: -EAGAIN. */
	ssize_t (*send)(uint32_t number, const void *p, size_t n);
	ssize_t (*recv)(uint32_t number, void *p, size_t n);
	/* Up to n numbers of those that have something to read, 0 when there is none; it may wait for some milliseconds. */
	int (*wait)(uint32_t *numbers, int n);
};

extern const struct load_ops load_engine, load_kernel;

int bench_load(const struct bench_opts *o, const struct load_ops *ops);

#endif
