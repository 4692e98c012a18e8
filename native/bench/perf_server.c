/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers whoever asks, over any number of sockets, until a signal. What is counted of lost, repeated and late messages is right for one
 * client at a time, over any number of sockets: its numbers run through all of them.
 */
#include "bench/perf.h"

#include <sched.h>
#include <stdlib.h>

struct server {
	const struct perf_opts *o;
	const struct perf_ops *ops;
	struct perf_sock *sock; /* PERF_SOCKS_MAX; connections behind the endpoints */
	uint32_t top; /* numbers in use are below it */
	struct bench_result r;
	uint64_t bad, accepted, closed, kernel, unanswered;
	uint8_t *in;
	struct sockaddr_storage from;
};

static void count(struct server *v, const uint8_t *m)
{
	v->r.received++;
	v->r.end = bench_ticks();
	if (pv_unlikely(!v->r.start))
		v->r.start = v->r.end;
	seen_add(&v->r.seen, msg_seq(m));
}

/* ---- answers ----------------------------------------------------------------------------------------------------------- */

/* To the group that was asked, at the port it was asked from, or to who asked. */
static const struct sockaddr_storage *answer_to(const struct server *v, const struct perf_sock *s,
						const struct sockaddr_storage *from, struct sockaddr_storage *group)
{
	if (!s->group || v->o->unicast_reply)
		return from;
	*group = s->end->addr;
	/* The port is at the same place in both kinds. */
	((struct sockaddr_in *)(void *)group)->sin_port = ((const struct sockaddr_in *)(const void *)from)->sin_port;
	return group;
}

/* All of it within BENCH_LOST_NS: somebody who asks and does not read must not keep the others waiting for ever. */
static int transmit(struct server *v, struct perf_sock *s, const uint8_t *p, uint32_t size, const struct sockaddr_storage *to)
{
	int64_t began = 0;

	while (size) {
		ssize_t n = v->ops->send(s->h, p, size, to, false);

		if (pv_likely(n >= 0)) {
			p += n;
			size -= (uint32_t)n;
			continue;
		}
		if (!perf_later(n) || bench_stop)
			return (int)n;
		if (!began)
			began = bench_now_ns();
		if (bench_now_ns() - began > BENCH_LOST_NS)
			return -ETIMEDOUT;
		sched_yield();
	}
	return 0;
}

static int answer(struct server *v, struct perf_sock *s, uint8_t *m, uint32_t len, const struct sockaddr_storage *from)
{
	struct sockaddr_storage group;
	int rc;

	if (v->o->dont_reply)
		return 0;
	rc = transmit(v, s, m, len, s->tcp ? NULL : answer_to(v, s, from, &group));
	if (rc)
		v->unanswered++;
	else
		v->r.sent++;
	return rc;
}

static int serve(struct server *v, struct perf_sock *s, uint8_t *m, uint32_t len, const struct sockaddr_storage *from)
{
	enum perf_verdict verdict = perf_judge(m);

	/* A client's first words: it numbers its messages from 1. */
	if (verdict == PERF_WARMUP || (s->fresh && msg_seq(m) == 1))
		seen_restart(&v->r.seen);
	s->fresh = false;
	if (verdict <= PERF_WARMUP)
		return 0;
	count(v, m);
	return verdict == PERF_ANSWER ? answer(v, s, m, len, from) : 0;
}

/* A datagram that cannot be answered concerns nobody but who sent it. */
static void serve_datagram(struct server *v, struct perf_sock *s, uint8_t *m, size_t n, const struct sockaddr_storage *from)
{
	uint32_t len = perf_datagram(m, n);

	if (pv_likely(len))
		(void)serve(v, s, m, len, from);
	else
		v->bad++;
}

/* ---- sockets ----------------------------------------------------------------------------------------------------------- */

static bool watched(const struct server *v)
{
	return v->o->style > PERF_RECV_BATCH;
}

static int udp(struct server *v, struct perf_sock *s, bool wait)
{
	static struct perf_in in[PERF_BATCH];
	ssize_t n;

	if (v->o->style == PERF_RECV_BATCH) {
		n = v->ops->recv_batch(s->h, in, wait);
		for (ssize_t i = 0; i < n; i++)
			serve_datagram(v, s, in[i].base, in[i].len, &in[i].from);
	} else {
		n = v->ops->recv(s->h, v->in, PERF_UDP_MAX + 1, &v->from, wait);
		if (n >= 0)
			serve_datagram(v, s, v->in, (size_t)n, &v->from);
	}
	return n >= 0 || perf_later(n) ? 0 : (int)n;
}

static void drop(struct server *v, struct perf_sock *s)
{
	if (watched(v))
		v->ops->unwatch(s->h, s->number);
	perf_sock_close(s, v->ops);
	v->closed++;
	while (v->top > v->o->n_ends && !v->sock[v->top - 1].open)
		v->top--;
}

/* One receive, and all messages that are whole then. The connection goes with its peer, or when that talks nonsense. */
static void stream(struct server *v, struct perf_sock *s, bool wait)
{
	uint32_t room, len;
	uint8_t *at = perf_stream_room(&s->in, &room), *m;
	ssize_t n = at ? v->ops->recv(s->h, at, room, NULL, wait) : -ENOMEM;
	int rc = 0;

	if (n < 0 && perf_later(n))
		return;
	if (n <= 0) {
		drop(v, s);
		return;
	}
	s->in.tail += (uint32_t)n;
	while (!rc && (rc = perf_stream_next(&s->in, &m, &len)) > 0)
		rc = serve(v, s, m, len, NULL);
	v->bad += rc == -EBADMSG;
	if (rc < 0)
		drop(v, s);
}

static struct perf_sock *unused(struct server *v)
{
	for (uint32_t i = v->o->n_ends; i < PERF_SOCKS_MAX; i++) {
		if (v->sock[i].open)
			continue;
		v->sock[i].number = i;
		v->top = PV_MAX(v->top, i + 1);
		return &v->sock[i];
	}
	return NULL;
}

/* NULL: there is none. */
static struct perf_sock *take_connection(struct server *v, const struct perf_sock *listener, bool wait)
{
	struct perf_sock *s = unused(v);
	char why[256];
	perf_t h;

	if (v->ops->accept(listener->h, wait, &h))
		return NULL;
	if (!s || (watched(v) && v->ops->watch(h, s->number))) {
		v->ops->close(h);
		return NULL;
	}
	(void)perf_sock_nodelay(h, v->o, v->ops);
	s->h = h;
	s->end = listener->end;
	s->open = s->tcp = s->fresh = true;
	v->accepted++;
	v->kernel += !v->ops->offloaded(h, why, sizeof(why));
	return s;
}

/* ---- loops ------------------------------------------------------------------------------------------------------------- */

static int handle(struct server *v, uint32_t number)
{
	struct perf_sock *s = &v->sock[number];

	if (!s->open)
		return 0;
	if (s->listener)
		(void)take_connection(v, s, false);
	else if (s->tcp)
		stream(v, s, false);
	else
		return udp(v, s, false);
	return 0;
}

static int run_watched(struct server *v)
{
	uint32_t ready[PERF_SOCKS_MAX];
	int rc = 0;

	while (!bench_stop && !rc) {
		int n = v->ops->ready(ready, true);

		if (n < 0 && !perf_later(n))
			return n;
		for (int i = 0; i < n && !rc; i++)
			rc = handle(v, ready[i]);
	}
	return rc;
}

/* One socket needs nobody to say which: datagrams, or one connection after the other. */
static int run_one(struct server *v)
{
	struct perf_sock *s = &v->sock[0];
	int rc = 0;

	while (!bench_stop && !rc) {
		if (!s->listener) {
			rc = udp(v, s, true);
			continue;
		}
		struct perf_sock *c = take_connection(v, s, true);

		while (c && c->open && !bench_stop)
			stream(v, c, true);
	}
	return rc;
}

/* Many without asking which: each in turn. */
static int run_round(struct server *v)
{
	int rc = 0;

	while (!bench_stop && !rc)
		for (uint32_t i = 0; i < v->top && !rc; i++)
			rc = handle(v, i);
	return rc;
}

static int open_all(struct server *v)
{
	char why[256];

	for (uint32_t i = 0; i < v->o->n_ends; i++) {
		struct perf_sock *s = &v->sock[i];
		int rc;

		s->number = i;
		if (perf_sock_open(s, v->o, v->ops, &v->o->ends[i]))
			return 1;
		v->top = i + 1;
		rc = watched(v) ? v->ops->watch(s->h, i) : 0;
		if (rc)
			return bench_fail("watch", rc);
		if (v->ops == &perf_engine && !s->tcp && !v->ops->offloaded(s->h, why, sizeof(why))) {
			fprintf(stderr, "pyvma-bench: the socket is not offloaded: %s\n", why);
			return 1;
		}
	}
	return 0;
}

static void report(const struct server *v)
{
	static const char *const styles[] = { "recvfrom", "recv_batch", "select", "poll", "epoll" };
	const struct bench_result *r = &v->r;

	printf("{\"mode\": \"server\", \"style\": \"%s\", \"sent\": %llu, \"received\": %llu, \"unique\": %llu, \"lost\": %llu, "
	       "\"duplicated\": %llu, \"reordered\": %llu, \"timeouts\": %llu, \"malformed\": %llu, \"connections\": %llu, "
	       "\"kernel_connections\": %llu, \"seconds\": %.6f, \"size\": %u}\n",
	       styles[v->o->style], (unsigned long long)r->sent, (unsigned long long)r->received,
	       (unsigned long long)r->seen.unique, (unsigned long long)seen_lost(&r->seen), (unsigned long long)r->seen.duplicated,
	       (unsigned long long)r->seen.reordered, (unsigned long long)v->unanswered, (unsigned long long)v->bad,
	       (unsigned long long)v->accepted, (unsigned long long)v->kernel, (double)(r->end - r->start) * bench_tick_ns() / 1e9,
	       v->o->size);
	fflush(stdout);
}

int perf_server(const struct perf_opts *o, const struct perf_ops *ops)
{
	static struct server v;
	int rc;

	v.o = o;
	v.ops = ops;
	seen_init(&v.r.seen);
	v.sock = calloc(PERF_SOCKS_MAX, sizeof(*v.sock));
	v.in = calloc(1, PERF_UDP_MAX + 1);
	rc = v.sock && v.in ? open_all(&v) : bench_fail("server", -ENOMEM);
	if (rc)
		return rc;
	bench_ready(NULL, NULL);
	if (watched(&v))
		rc = run_watched(&v);
	else
		rc = o->n_ends == 1 ? run_one(&v) : run_round(&v);
	if (rc)
		return bench_fail("server", rc);
	report(&v);
	for (uint32_t i = 0; i < v.top; i++)
		perf_sock_close(&v.sock[i], ops);
	free(v.sock);
	free(v.in);
	return 0;
}
