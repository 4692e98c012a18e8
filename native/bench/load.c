/* SPDX-License-Identifier: BSD-3-Clause */
/* A fixed load for servers that are compared: see load.h. */
#include "bench/load.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define REPLY_MAX 65536u
/* A datagram that is not answered by then is lost, and sent again. */
#define AGAIN_NS (200 * PV_NS_PER_MS)

static const char http_request[] = "GET /plaintext HTTP/1.1\r\nHost: server\r\nUser-Agent: pyvma-bench\r\nAccept: */*\r\n"
				   "Connection: keep-alive\r\n\r\n";

struct load {
	const struct bench_opts *o;
	const struct load_ops *ops;
	char request[BENCH_SIZE_MAX];
	uint32_t request_len, reply_len;
	uint32_t have[LOAD_MAX]; /* bytes of the reply that are here */
	uint64_t sent_at[LOAD_MAX]; /* ticks */
	uint64_t requests, lost, from, now; /* counted from the tick `from` on */
	struct hist took;
};

static int ask(struct load *l, uint32_t number)
{
	ssize_t n = l->ops->send(number, l->request, l->request_len);

	l->sent_at[number] = bench_ticks();
	return n == (ssize_t)l->request_len ? 0 : n < 0 ? (int)n : -EMSGSIZE;
}

/* The first reply of all, alone: how long replies are. */
static int first_reply(struct load *l)
{
	static char text[REPLY_MAX + 1];
	uint64_t until = (uint64_t)bench_now_ns() + 5 * PV_NS_PER_S;
	size_t have = 0;

	while ((uint64_t)bench_now_ns() < until && !bench_stop) {
		ssize_t n = l->ops->recv(0, text + have, REPLY_MAX - have);
		char *end, *length;

		if (n == -EAGAIN)
			continue;
		if (n <= 0)
			return n ? (int)n : -ECONNRESET;
		have += (size_t)n;
		text[have] = 0;
		if (!l->o->http) {
			l->reply_len = l->request_len;
			if (have >= l->reply_len)
				return have == l->reply_len ? 0 : -EPROTO;
			continue;
		}
		end = strstr(text, "\r\n\r\n");
		length = strcasestr(text, "\r\ncontent-length:");
		if (!end)
			continue;
		if (!length || length > end || strncmp(text, "HTTP/1.1 200", 12) != 0)
			return -EPROTO;
		l->reply_len = (uint32_t)(end + 4 - text) + (uint32_t)strtoul(length + 17, NULL, 10);
		if (have >= l->reply_len)
			return have == l->reply_len ? 0 : -EPROTO;
	}
	return bench_stop ? -EINTR : -ETIMEDOUT;
}

/* Of one connection that has something. */
static int take(struct load *l, uint32_t number)
{
	static char text[REPLY_MAX];
	ssize_t n = l->ops->recv(number, text, sizeof(text));

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n ? (int)n : -ECONNRESET;
	l->have[number] += (uint32_t)n;
	if (l->have[number] < l->reply_len)
		return 0;
	/* Of a datagram that was sent again both replies may come. */
	if (l->have[number] > l->reply_len)
		return -EPROTO;
	l->have[number] = 0;
	l->now = bench_ticks();
	if (l->now >= l->from) {
		l->requests++;
		hist_add(&l->took, l->now - l->sent_at[number]);
	}
	return ask(l, number);
}

static int again(struct load *l, uint64_t age)
{
	for (uint32_t i = 0; i < l->o->connections; i++) {
		if (l->now - l->sent_at[i] < age)
			continue;
		l->lost++;
		int rc = ask(l, i);
		if (rc)
			return rc;
	}
	return 0;
}

static int turn(struct load *l, uint64_t age)
{
	uint32_t ready[LOAD_MAX];
	int n = l->ops->wait(ready, LOAD_MAX), rc = 0;

	if (n < 0)
		return n == -EINTR ? 0 : n;
	for (int i = 0; i < n && !rc; i++)
		rc = take(l, ready[i]);
	l->now = bench_ticks();
	return rc || n || l->o->tcp ? rc : again(l, age);
}

static int open_all(struct load *l)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->o->connections && !rc; i++)
		rc = l->ops->connect(l->o, i);
	if (!rc)
		rc = ask(l, 0);
	if (!rc)
		rc = first_reply(l);
	for (uint32_t i = 0; i < l->o->connections && !rc; i++)
		rc = ask(l, i);
	return rc;
}

static void report(const struct load *l)
{
	double tick_ns = bench_tick_ns(), seconds = (double)(l->now - l->from) * tick_ns / 1e9, us = tick_ns / 1e3;

	printf("{\"connections\": %u, \"requests\": %llu, \"lost\": %llu, \"seconds\": %.6f, \"requests_per_s\": %.1f, "
	       "\"reply_bytes\": %u, \"p50_us\": %.2f, \"p99_us\": %.2f}\n",
	       l->o->connections, (unsigned long long)l->requests, (unsigned long long)l->lost, seconds,
	       seconds > 0 ? (double)l->requests / seconds : 0.0, l->reply_len, hist_quantile(&l->took, 0.5) * us,
	       hist_quantile(&l->took, 0.99) * us);
}

int bench_load(const struct bench_opts *o, const struct load_ops *ops)
{
	struct load *l = calloc(1, sizeof(*l));
	uint64_t start, ticks;
	int rc = l ? ops->start(o) : -ENOMEM;

	if (rc > 0 || !l) {
		free(l);
		return rc > 0 ? rc : bench_fail("load", rc);
	}
	l->o = o;
	l->ops = ops;
	l->request_len = o->http ? sizeof(http_request) - 1 : o->size;
	if (o->http)
		memcpy(l->request, http_request, l->request_len);
	else
		msg_put((uint8_t *)l->request, 1, MSG_CLIENT | MSG_PONG, o->size);
	hist_init(&l->took);
	if (!rc)
		rc = open_all(l);
	ticks = (uint64_t)(1e9 / bench_tick_ns());
	start = l->now = bench_ticks();
	l->from = start + (uint64_t)(o->seconds * (double)ticks / 10);
	while (!rc && !bench_stop && l->now - start < (uint64_t)(o->seconds * (double)ticks))
		rc = turn(l, ticks / (PV_NS_PER_S / AGAIN_NS));
	if (!rc)
		report(l);
	free(l);
	return rc ? bench_fail("load", rc) : 0;
}
