/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests beside a bulk stream: two connections in one process and one thread, as an event loop has them, which asks each in turn and
 * waits for none. The client times its requests from the send to the reply; the server counts what comes of the stream.
 */
#ifndef BENCH_MIXED_H
#define BENCH_MIXED_H

enum { MIXED_REQUESTS, MIXED_BULK, MIXED_CONNS };

#define MIXED_MSG_MAX 4096u
#define MIXED_READ 65536u

/* A message of one size on its way in. */
struct mixed_in {
	uint8_t buf[MIXED_MSG_MAX];
	uint32_t have;
};

/* 1 when it is whole, 0 when nothing more is there, -ECONNRESET at the end, -errno. */
static inline int mixed_take(struct conn *c, struct mixed_in *in, uint32_t size)
{
	ssize_t n = conn_recv(c, in->buf + in->have, size - in->have, false);

	if (n <= 0)
		return n && later((int)n) ? 0 : n ? (int)n : -ECONNRESET;
	in->have += (uint32_t)n;
	if (in->have < size)
		return 0;
	in->have = 0;
	return 1;
}

/* A request is short, and nothing else is under way on its connection: there is room for it. */
static inline int mixed_put(struct conn *c, const uint8_t *p, uint32_t n)
{
	ssize_t k = conn_send(c, p, n, true);

	return k == (ssize_t)n ? 0 : k < 0 ? (int)k : -EMSGSIZE;
}

/* Bytes taken, 0 for none now, -errno. */
static inline ssize_t mixed_bulk(ssize_t n)
{
	return n < 0 && later((int)n) ? 0 : n ? n : -ECONNRESET;
}

static inline int mixed_turn(struct conn *c, const struct bench_opts *o, uint8_t *bulk, struct mixed_in *in, struct bench_result *r)
{
	ssize_t n = o->gap_us ? mixed_take(&c[MIXED_REQUESTS], in, o->size) : 0;

	if (n > 0) {
		r->received++;
		r->sent++;
		n = mixed_put(&c[MIXED_REQUESTS], in->buf, o->size);
	}
	if (n < 0 || !o->chunk)
		return (int)n;
	n = mixed_bulk(conn_recv(&c[MIXED_BULK], bulk, MIXED_READ, false));
	if (n < 0)
		return (int)n;
	if (n > 0) {
		r->bytes += (uint64_t)n;
		r->end = bench_ticks();
		if (pv_unlikely(!r->start))
			r->start = r->end;
	}
	return 0;
}

static inline int mixed_server(struct conn *c, const struct bench_opts *o, struct bench_result *r)
{
	static struct mixed_in in;
	uint8_t *bulk = calloc(1, MIXED_READ);
	int rc = bulk ? 0 : -ENOMEM;

	while (!rc && !bench_stop)
		rc = mixed_turn(c, o, bulk, &in, r);
	free(bulk);
	if (rc && rc != -ECONNRESET)
		return bench_fail("mixed", rc);
	/* The client leaves first; the result is asked for by a signal. */
	while (!bench_stop)
		nanosleep(&(struct timespec){ .tv_nsec = PV_NS_PER_MS }, NULL);
	return 0;
}

/* When the requests are due and which one is out. */
struct mixed_clock {
	uint64_t gap, due, sent_at, warm;
	bool out;
};

static inline int mixed_request(struct conn *c, const struct bench_opts *o, struct mixed_clock *k, struct mixed_in *in,
				struct bench_result *r)
{
	uint64_t now = bench_ticks();
	uint8_t msg[MIXED_MSG_MAX];
	int rc;

	if (k->out) {
		rc = mixed_take(c, in, o->size);
		if (rc <= 0)
			return rc;
		now = bench_ticks();
		k->out = false;
		r->received++;
		if (now >= k->warm)
			hist_add(&r->rtt, now - k->sent_at);
		k->due = PV_MAX(k->due + k->gap, now);
	}
	if (now < k->due)
		return 0;
	memset(msg, 0, o->size);
	msg_put(msg, ++r->sent, MSG_CLIENT | MSG_PONG, o->size);
	k->sent_at = bench_ticks();
	k->out = true;
	return mixed_put(c, msg, o->size);
}

static inline int mixed_client(struct conn *c, const struct bench_opts *o, struct bench_result *r)
{
	static struct mixed_in in;
	struct mixed_clock k = { .gap = (uint64_t)(o->gap_us * 1e3 / bench_tick_ns()) };
	uint64_t end, now = r->start = k.due = bench_ticks();
	uint8_t *bulk = calloc(1, PV_MAX(o->chunk, 1u));
	ssize_t n = bulk ? 0 : -ENOMEM;

	end = now + (uint64_t)(o->seconds * 1e9 / bench_tick_ns());
	k.warm = now + (end - now) / 10;
	while (n >= 0 && now < end && !bench_stop) {
		n = o->gap_us ? mixed_request(&c[MIXED_REQUESTS], o, &k, &in, r) : 0;
		if (n >= 0 && o->chunk) {
			n = mixed_bulk(conn_send(&c[MIXED_BULK], bulk, o->chunk, false));
			r->bytes += (uint64_t)PV_MAX(n, 0);
		}
		now = bench_ticks();
	}
	r->end = now;
	free(bulk);
	return n < 0 ? bench_fail("mixed", (int)n) : 0;
}

#endif
