/* SPDX-License-Identifier: BSD-3-Clause */
/* Server and client of `pyvma-bench connections`; what they say to each other goes by the first connection. */
#include "bench/conns.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Ports of the server, beginning with the one given: one has as many peers from one address as that has ephemeral ports. */
#define PORTS 8u
#define MSG_SIZE 64u
#define WARM_UP 2000u
#define END_MAX_NS (20 * PV_NS_PER_S)
#define NAP_AFTER_NS (2 * PV_NS_PER_MS)

enum order { PING, OPEN, CHURN, CLOSE, MEMORY };

/* A message of the first connection; the reply has the sender's values. */
struct msg {
	uint32_t order, n, window, pad;
	uint64_t value[6];
};
_Static_assert(sizeof(struct msg) == MSG_SIZE, "the message is what is measured");

struct bench_conns {
	const struct conns_ops *ops;
	struct sockaddr_storage at[PORTS];
	conns_t listener[PORTS], busy;
	conns_t *conn; /* those that are kept */
	size_t n, max;
	uint32_t next; /* port of the next one */
};

/* ---- this process ------------------------------------------------------------------------------------------------------ */

static uint64_t status_kb(const char *file, const char *name)
{
	FILE *f = fopen(file, "r");
	unsigned long long kb = 0;
	char line[256];
	size_t len = strlen(name);

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':' && sscanf(line + len + 1, "%llu", &kb) != 1)
			kb = 0;
	if (f)
		fclose(f);
	return kb;
}

static uint64_t fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint64_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Resident of the file of statistics, in which the engine's objects lie. */
static uint64_t shown_kb(void)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	uint64_t sum = 0;
	bool ours = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		/* "ADDRESS-ADDRESS rw-s ... PATH", then its fields, which begin with a capital. */
		if (line[0] < 'A' || line[0] > 'Z')
			ours = strstr(line, "/pyvma-stats.") != NULL;
		else if (ours && !strncmp(line, "Rss:", 4))
			sum += strtoull(line + 4, NULL, 10);
	}
	if (f)
		fclose(f);
	return sum;
}

/* The process's own memory, anonymous or shown to readers, and all that is resident, the kernel's slabs, in bytes; open fds. */
static void measure(struct msg *m)
{
	m->value[0] = (status_kb("/proc/self/status", "RssAnon") + shown_kb()) * 1024;
	m->value[1] = status_kb("/proc/self/status", "VmRSS") * 1024;
	m->value[2] = status_kb("/proc/meminfo", "Slab") * 1024;
	m->value[3] = fds();
}

/* ---- both -------------------------------------------------------------------------------------------------------------- */

static int keep(struct bench_conns *b, conns_t c)
{
	if (b->n == b->max) {
		size_t max = b->max ? 2 * b->max : 1024;
		conns_t *more = realloc(b->conn, max * sizeof(*more));

		if (!more)
			return -ENOMEM;
		b->conn = more;
		b->max = max;
	}
	b->conn[b->n++] = c;
	return 0;
}

static int close_kept(struct bench_conns *b)
{
	int rc = 0;

	while (b->n && !rc)
		rc = b->ops->close(b->conn[--b->n]);
	return rc;
}

static int recv_msg(const struct bench_conns *b, conns_t c, struct msg *m)
{
	size_t got = 0;

	while (got < sizeof(*m)) {
		ssize_t n = b->ops->recv(c, (char *)m + got, sizeof(*m) - got, true);

		if (n <= 0)
			return n ? (int)n : -ECONNRESET;
		got += (size_t)n;
	}
	return 0;
}

static int recv_end(const struct bench_conns *b, conns_t c)
{
	char byte;
	ssize_t n = b->ops->recv(c, &byte, 1, true);

	return n < 0 ? (int)n : n ? -EPROTO : 0;
}

static void addresses(struct bench_conns *b, const struct sockaddr_storage *first)
{
	for (uint32_t i = 0; i < PORTS; i++) {
		struct sockaddr_in *in = (struct sockaddr_in *)(void *)&b->at[i];

		/* The port is at the same place for both families. */
		b->at[i] = *first;
		in->sin_port = htons((uint16_t)(ntohs(in->sin_port) + i));
	}
}

/* ---- server ------------------------------------------------------------------------------------------------------------ */

static int serve_open(struct bench_conns *b, uint32_t n)
{
	struct msg m;
	conns_t c;
	int rc = 0;

	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = b->ops->accept(b->listener[b->next++ % PORTS], true, &c);
		if (!rc)
			rc = recv_msg(b, c, &m);
		if (!rc)
			rc = b->ops->send(c, &m, sizeof(m));
		if (!rc)
			rc = keep(b, c);
	}
	return rc;
}

/* The server closes first: the client's port is free for the next connection, and the TIME_WAIT is here. */
static int serve_churn(struct bench_conns *b, uint32_t n, uint32_t window)
{
	conns_t c[BENCH_BATCH_MAX];
	struct msg m;
	int rc = 0;

	for (uint32_t done = 0; done < n && !rc; done += window) {
		for (uint32_t i = 0; i < window && !rc; i++)
			rc = b->ops->accept(b->listener[b->next++ % PORTS], true, &c[i]);
		for (uint32_t i = 0; i < window && !rc; i++) {
			rc = recv_msg(b, c[i], &m);
			if (!rc)
				rc = b->ops->send(c[i], &m, sizeof(m));
			if (!rc)
				rc = b->ops->close(c[i]);
		}
	}
	return rc;
}

/* Between orders the CPU is for others. */
static int next_order(struct bench_conns *b, struct msg *m)
{
	int64_t idle_since = bench_now_ns();
	size_t got = 0;

	while (got < sizeof(*m)) {
		ssize_t n = b->ops->recv(b->busy, (char *)m + got, sizeof(*m) - got, false);

		if (n == -EAGAIN && bench_now_ns() - idle_since > NAP_AFTER_NS)
			nanosleep(&(struct timespec){ .tv_nsec = PV_NS_PER_MS }, NULL);
		if (n == -EAGAIN && !bench_stop)
			continue;
		if (n <= 0)
			return n && n != -ECONNRESET ? (int)n : -ESHUTDOWN;
		got += (size_t)n;
	}
	return 0;
}

static int obey(struct bench_conns *b, struct msg *m)
{
	switch ((enum order)m->order) {
	case OPEN:
		return serve_open(b, m->n);
	case CHURN:
		return serve_churn(b, m->n, m->window);
	case CLOSE:
		for (size_t i = 0; i < b->n; i++) {
			int rc = recv_end(b, b->conn[i]);

			if (rc)
				return rc;
		}
		return close_kept(b);
	case MEMORY:
		measure(m);
		break;
	case PING:
		break;
	}
	return 0;
}

/* The client is gone, as it is when its process ends: how long until all that it had open has ended? */
static void watch_the_end(struct bench_conns *b)
{
	int64_t start = bench_now_ns();
	size_t kept = b->n, left = kept, again;
	uint32_t resets = 0;
	char byte;

	for (; left && bench_now_ns() - start < END_MAX_NS; left = again) {
		again = 0;
		for (size_t i = 0; i < left; i++) {
			ssize_t n = b->ops->recv(b->conn[i], &byte, 1, false);

			resets += n < 0 && n != -EAGAIN;
			if (n == -EAGAIN)
				b->conn[again++] = b->conn[i];
		}
	}
	printf("{\"kept\": %zu, \"ended\": %zu, \"resets\": %u, \"seconds\": %.6f}\n", kept, kept - left, resets,
	       (double)(bench_now_ns() - start) / 1e9);
}

static int serve(struct bench_conns *b, const struct bench_opts *o)
{
	struct msg m;
	int rc = 0;

	addresses(b, &o->local);
	for (uint32_t i = 0; i < PORTS && !rc; i++)
		rc = b->ops->listen(&b->at[i], &b->listener[i]);
	if (rc)
		return bench_fail("listen", rc);
	bench_ready(o, NULL);
	rc = b->ops->accept(b->listener[0], true, &b->busy);
	while (!rc) {
		rc = next_order(b, &m);
		if (!rc)
			rc = obey(b, &m);
		if (!rc)
			rc = b->ops->send(b->busy, &m, sizeof(m));
	}
	if (rc == -ESHUTDOWN || bench_stop)
		watch_the_end(b);
	return rc == -ESHUTDOWN || bench_stop ? 0 : bench_fail("server", rc);
}

/* ---- client ------------------------------------------------------------------------------------------------------------ */

static int connect_next(struct bench_conns *b, conns_t *out)
{
	return b->ops->connect(&b->at[b->next++ % PORTS], out);
}

static int order(struct bench_conns *b, struct msg *m)
{
	return b->ops->send(b->busy, m, sizeof(*m));
}

static int do_open(struct bench_conns *b, uint32_t n)
{
	struct msg m = { .order = OPEN, .n = n }, back;
	int64_t start = bench_now_ns();
	int rc = order(b, &m);
	conns_t c;

	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = connect_next(b, &c);
		if (!rc)
			rc = b->ops->send(c, &m, sizeof(m));
		if (!rc)
			rc = recv_msg(b, c, &back);
		if (!rc)
			rc = keep(b, c);
	}
	if (!rc)
		rc = recv_msg(b, b->busy, &back);
	if (!rc)
		printf("{\"kept\": %zu, \"seconds\": %.6f}\n", b->n, (double)(bench_now_ns() - start) / 1e9);
	return rc;
}

static int do_churn(struct bench_conns *b, uint32_t n, uint32_t window)
{
	struct msg m = { .order = CHURN, .n = n - n % window, .window = window }, back;
	conns_t c[BENCH_BATCH_MAX];
	int64_t start;
	int rc = order(b, &m);

	start = bench_now_ns();
	for (uint32_t done = 0; done < m.n && !rc; done += window) {
		for (uint32_t i = 0; i < window && !rc; i++)
			rc = connect_next(b, &c[i]);
		for (uint32_t i = 0; i < window && !rc; i++)
			rc = b->ops->send(c[i], &m, sizeof(m));
		for (uint32_t i = 0; i < window && !rc; i++) {
			rc = recv_msg(b, c[i], &back);
			if (!rc)
				rc = recv_end(b, c[i]);
			if (!rc)
				rc = b->ops->close(c[i]);
		}
	}
	if (!rc)
		rc = recv_msg(b, b->busy, &back);
	if (!rc)
		printf("{\"connections\": %u, \"seconds\": %.6f}\n", m.n, (double)(bench_now_ns() - start) / 1e9);
	return rc;
}

static int do_ping(struct bench_conns *b, double seconds)
{
	static struct hist h;
	struct msg m = { .order = PING }, back;
	int64_t end = 0;
	double half_us;
	int rc = 0;

	hist_init(&h);
	for (uint32_t i = 0; !rc && (i < WARM_UP || (i % 64) || bench_now_ns() < end); i++) {
		uint64_t at = bench_ticks();

		rc = order(b, &m);
		if (!rc)
			rc = recv_msg(b, b->busy, &back);
		if (i >= WARM_UP)
			hist_add(&h, bench_ticks() - at);
		if (i == WARM_UP - 1)
			end = bench_now_ns() + (int64_t)(seconds * 1e9);
	}
	if (rc)
		return rc;
	half_us = bench_tick_ns() / 2000;
	printf(
	    "{\"round_trips\": %llu, \"avg_us\": %.4f, \"p50_us\": %.4f, \"p90_us\": %.4f, \"p99_us\": %.4f, \"p99.9_us\": %.4f}\n",
	    (unsigned long long)h.count, h.sum / (double)h.count * half_us, hist_quantile(&h, 0.5) * half_us,
	    hist_quantile(&h, 0.9) * half_us, hist_quantile(&h, 0.99) * half_us, hist_quantile(&h, 0.999) * half_us);
	return 0;
}

static void print_memory(const char *who, const struct msg *m)
{
	printf("\"%s\": {\"anon\": %llu, \"resident\": %llu, \"slab\": %llu, \"fds\": %llu}", who, (unsigned long long)m->value[0],
	       (unsigned long long)m->value[1], (unsigned long long)m->value[2], (unsigned long long)m->value[3]);
}

static int do_memory(struct bench_conns *b)
{
	struct msg m = { .order = MEMORY }, mine;
	int rc = order(b, &m);

	if (!rc)
		rc = recv_msg(b, b->busy, &m);
	if (rc)
		return rc;
	measure(&mine);
	printf("{");
	print_memory("client", &mine);
	printf(", ");
	print_memory("server", &m);
	printf("}\n");
	return 0;
}

static int do_close(struct bench_conns *b)
{
	struct msg m = { .order = CLOSE };
	int64_t start = bench_now_ns();
	size_t n = b->n;
	int rc = order(b, &m);

	if (!rc)
		rc = close_kept(b);
	if (!rc)
		rc = recv_msg(b, b->busy, &m);
	if (!rc)
		printf("{\"closed\": %zu, \"seconds\": %.6f}\n", n, (double)(bench_now_ns() - start) / 1e9);
	return rc;
}

static int act(struct bench_conns *b, const char *line)
{
	unsigned int n, window;
	double seconds;

	if (sscanf(line, "open %u", &n) == 1)
		return do_open(b, n);
	if (sscanf(line, "ping %lf", &seconds) == 1)
		return do_ping(b, seconds);
	if (sscanf(line, "churn %u %u", &n, &window) == 2 && window && window <= BENCH_BATCH_MAX)
		return do_churn(b, n, window);
	if (!strncmp(line, "memory", 6))
		return do_memory(b);
	if (!strncmp(line, "close", 5))
		return do_close(b);
	return -EINVAL;
}

static int command(struct bench_conns *b, const struct bench_opts *o)
{
	char line[128];
	int rc;

	addresses(b, &o->remote);
	rc = b->ops->connect(&b->at[0], &b->busy);
	while (!rc && fgets(line, sizeof(line), stdin) && strncmp(line, "quit", 4)) {
		rc = act(b, line);
		fflush(stdout);
	}
	return rc ? bench_fail("client", rc) : 0;
}

int bench_conns(const struct bench_opts *o, const struct conns_ops *ops)
{
	static struct bench_conns b;
	int rc = ops->start(o);

	if (rc)
		return rc < 0 ? bench_fail("start", rc) : rc;
	b.ops = ops;
	return o->remote.ss_family ? command(&b, o) : serve(&b, o);
}
