/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops over TCP connections. A .c file defines before it includes this:
 *
 *   struct conn                                                            its state
 *   ssize_t conn_send(struct conn *, const void *, size_t, bool wait)      some bytes, at least one; -EAGAIN, -errno
 *   ssize_t conn_recv(struct conn *, void *, size_t, bool wait)            some bytes, 0 at the end, -EAGAIN, -errno
 *   int conn_open(struct conn *, uint32_t n, const struct bench_opts *)    n connected ones; a server's are accepted from the client
 *                                                                          that comes, in its order
 *   void conn_close(struct conn *, uint32_t n)
 *
 * Messages follow each other; each says its length, as in sockperf.
 */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench.h"

#define IN_SIZE (256u << 10)

struct tr {
	struct conn c;
	uint32_t size;
	bool server;
	uint8_t *tx, *in;
	uint32_t head, tail; /* of what is in `in` */
	uint32_t at[BENCH_BATCH_MAX], len[BENCH_BATCH_MAX];
};

static inline uint8_t *tr_slot(struct tr *t, uint32_t i)
{
	return t->tx + (size_t)i * t->size;
}

static inline int send_all(struct tr *t, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t k = conn_send(&t->c, p, n, true);

		if (k == -EAGAIN || k == -EINTR) {
			if (bench_stop)
				return (int)k;
			continue;
		}
		if (k < 0)
			return (int)k;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static inline int tr_flush(struct tr *t, uint32_t n)
{
	int rc = send_all(t, t->tx, (size_t)n * t->size);

	return rc ? rc : (int)n;
}

/* Length of the message at the head; 0: it is not whole yet. */
static inline uint32_t whole(const struct tr *t)
{
	uint32_t len;

	if (t->tail - t->head < MSG_HLEN)
		return 0;
	len = pv_get32(t->in + t->head + 10);
	return len >= MSG_HLEN && t->tail - t->head >= len ? len : 0;
}

static inline int fill(struct tr *t, bool wait)
{
	uint32_t have = t->tail - t->head, need = have < MSG_HLEN ? MSG_HLEN : pv_get32(t->in + t->head + 10);
	ssize_t n;

	if (need > BENCH_SIZE_MAX)
		return -EBADMSG;
	if (!have)
		t->head = t->tail = 0;
	/* Before a message that would not fit behind the others. */
	if (IN_SIZE - t->head < need) {
		memmove(t->in, t->in + t->head, t->tail - t->head);
		t->tail -= t->head;
		t->head = 0;
	}
	n = conn_recv(&t->c, t->in + t->tail, PV_MIN(IN_SIZE - t->tail, BENCH_SIZE_MAX), wait);
	if (n > 0)
		t->tail += (uint32_t)n;
	/* The client leaves first; a server's result is asked for by a signal. */
	while (n == 0 && t->server && !bench_stop)
		nanosleep(&(struct timespec){ .tv_nsec = PV_NS_PER_MS }, NULL);
	return n ? (int)n : t->server ? -EINTR : -ECONNRESET;
}

static inline int tr_recv(struct tr *t, bool wait, uint8_t **msg, uint32_t *len)
{
	int rc = 1;

	while (!(*len = whole(t)) && rc > 0)
		rc = fill(t, wait);
	if (!*len)
		return rc;
	*msg = t->in + t->head;
	t->head += *len;
	return 1;
}

static inline int tr_recv_batch(struct tr *t, uint32_t max)
{
	uint32_t n = 0;
	int rc = 1;

	while (!whole(t) && rc > 0)
		rc = fill(t, true);
	for (; n < max && (t->len[n] = whole(t)); n++) {
		t->at[n] = t->head;
		t->head += t->len[n];
	}
	return n ? (int)n : rc;
}

static inline uint8_t *tr_msg(struct tr *t, uint32_t i, uint32_t *len)
{
	*len = t->len[i];
	return t->in + t->at[i];
}

static inline int tr_reply(struct tr *t, int i, uint8_t *msg, uint32_t len)
{
	(void)i;
	return send_all(t, msg, len);
}

static inline void tr_done(struct tr *t, uint32_t n)
{
	(void)t;
	(void)n;
}

#include "bench/loops.h"
#include "bench/mixed.h"

static int mixed_run(const struct bench_opts *o, struct bench_result *r)
{
	struct conn c[MIXED_CONNS];
	int rc;

	if (o->size > MIXED_MSG_MAX)
		return bench_fail("mixed: a request has 4096 bytes at most", 0);
	rc = conn_open(c, MIXED_CONNS, o);
	if (rc)
		return rc < 0 ? bench_fail("connections", rc) : rc;
	rc = o->role == ROLE_SERVER ? mixed_server(c, o, r) : mixed_client(c, o, r);
	conn_close(c, MIXED_CONNS);
	return rc;
}

static int stream_run(const struct bench_opts *opts, struct bench_result *r, bool block)
{
	static struct tr t;
	struct bench_opts o = *opts;
	int rc;

	if (o.mixed)
		return mixed_run(&o, r);
	o.block = block;
	t.size = o.size;
	t.server = o.role == ROLE_SERVER;
	t.tx = calloc(BENCH_BATCH_MAX, o.size);
	t.in = calloc(1, IN_SIZE);
	rc = t.tx && t.in ? conn_open(&t.c, 1, opts) : -ENOMEM;
	if (rc)
		return rc < 0 ? bench_fail("connection", rc) : rc;
	rc = run_role(&t, &o, r);
	conn_close(&t.c, 1);
	free(t.tx);
	free(t.in);
	return rc;
}

#endif
