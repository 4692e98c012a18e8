/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's messages and replies; see perf_client.h. */
#include "bench/perf_client.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LOG_ROWS (UINT64_C(1) << 22)

uint64_t perf_ticks(const struct perf_client *c, double ns)
{
	return (uint64_t)(ns / c->tick_ns);
}

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

static void note_request(struct perf_client *c, uint64_t id, uint64_t due)
{
	struct perf_request *r = &c->request[id % PERF_REQUESTS];
	uint64_t now;

	__atomic_store_n(&r->id, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&r->intended, due, __ATOMIC_RELAXED);
	now = bench_ticks();
	__atomic_store_n(&r->tx, now, __ATOMIC_RELAXED);
	__atomic_store_n(&r->id, id, __ATOMIC_RELEASE);
	c->requested = id;
	if (now >= c->valid_from && now <= c->valid_to)
		c->valid_requested++;
}

/* All of it. Who also receives goes on with that meanwhile: the peer may have stopped reading until its answers are taken. */
static int transmit(struct perf_client *c, struct perf_sock *s, uint32_t size, bool takes)
{
	/* As sockperf does: a stream's peer is named, too, and read by the kernel for nothing. */
	const struct sockaddr_storage *to = c->o->connect && !s->group ? NULL : &s->end->addr;
	uint32_t done = 0;

	while (done < size) {
		ssize_t n = c->ops->send(s->h, c->out + done, size - done, to, !takes);

		if (pv_likely(n >= 0)) {
			done += (uint32_t)n;
			continue;
		}
		if (!perf_later(n))
			return (int)n;
		c->refused += n == -ECONNREFUSED;
		n = takes ? perf_take(c, false) : 0;
		if (n < 0 || bench_stop)
			return n < 0 ? (int)n : -EINTR;
	}
	return 0;
}

int perf_send_plain(struct perf_client *c, uint32_t k, uint64_t seq, uint16_t flags)
{
	msg_put(c->out, seq, flags, c->o->size);
	return transmit(c, &c->sock[k], c->o->size, false);
}

int perf_send(struct perf_client *c, uint32_t k, uint32_t size, uint64_t due)
{
	const struct perf_opts *o = c->o;
	uint64_t seq = c->seq + 1;
	bool ask = o->reply_every && seq % o->reply_every == 0;
	int rc;

	__atomic_store_n(&c->seq, seq, __ATOMIC_RELAXED);
	msg_put(c->out, seq, ask ? MSG_CLIENT | MSG_PONG : MSG_CLIENT, size);
	if (o->integrity)
		perf_fill(c->out, seq, size);
	if (ask)
		note_request(c, seq / o->reply_every, due);
	rc = transmit(c, &c->sock[k], size, !c->two_threads && c->o->mode != PERF_THROUGHPUT);
	if (pv_unlikely(rc))
		__atomic_store_n(&c->seq, seq - 1, __ATOMIC_RELAXED);
	return rc;
}

/* ---- receiving --------------------------------------------------------------------------------------------------------- */

static void note_times(struct perf_client *c, uint64_t tx, uint64_t due, uint64_t now)
{
	c->valid_received++;
	hist_add(&c->rtt, now - tx);
	if (c->cycle > 0 || c->o->mode == PERF_PLAYBACK)
		hist_add(&c->from_due, now > due ? now - due : 0);
	if (c->logged < c->log_size)
		c->log[c->logged++] = (struct perf_times){ tx, now };
}

/* One message that came at `now`: 1 when it is a reply to us. */
static int take(struct perf_client *c, const uint8_t *m, uint32_t len, uint64_t now)
{
	uint64_t seq = msg_seq(m), id, unique, tx, due;
	uint16_t flags = pv_get16(m + 8);
	struct perf_request *r;

	/* Of a group there are also our own, and others'. */
	if (flags & (MSG_CLIENT | MSG_WARMUP))
		return 0;
	if (!c->o->reply_every) {
		c->acks++;
		return 1;
	}
	id = seq / c->o->reply_every;
	if (pv_unlikely(seq % c->o->reply_every || !id || seq > __atomic_load_n(&c->seq, __ATOMIC_RELAXED))) {
		c->bad++;
		return 0;
	}
	unique = c->seen.unique;
	if (pv_likely(id == c->seen.next))
		seen_add(&c->seen, id);
	else
		seen_other(&c->seen, id); /* of several sockets the first reply may be a late one: nobody starts again here */
	if (c->seen.unique == unique)
		return 0;
	c->received++;
	if (c->o->integrity && !perf_intact(m, seq, len))
		c->corrupt++;
	r = &c->request[id % PERF_REQUESTS];
	tx = __atomic_load_n(&r->tx, __ATOMIC_RELAXED);
	due = __atomic_load_n(&r->intended, __ATOMIC_RELAXED);
	if (__atomic_load_n(&r->id, __ATOMIC_ACQUIRE) == id && tx >= c->valid_from && tx <= c->valid_to)
		note_times(c, tx, due, now);
	return 1;
}

static int take_stream(struct perf_client *c, struct perf_sock *s, bool wait)
{
	uint32_t room, len;
	uint8_t *at = perf_stream_room(&s->in, &room), *m;
	uint64_t now;
	ssize_t n = at ? c->ops->recv(s->h, at, room, NULL, wait) : -ENOMEM;
	int got = 0, rc;

	if (n <= 0)
		return n == 0 ? -ECONNRESET : perf_later(n) ? 0 : (int)n;
	now = bench_ticks();
	s->in.tail += (uint32_t)n;
	while ((rc = perf_stream_next(&s->in, &m, &len)) > 0)
		got += take(c, m, len, now);
	return rc < 0 ? rc : got;
}

static int take_batch(struct perf_client *c, struct perf_sock *s, bool wait)
{
	static struct perf_in in[PERF_BATCH];
	int n = c->ops->recv_batch(s->h, in, wait), got = 0;
	uint64_t now = bench_ticks();

	for (int i = 0; i < n; i++) {
		uint32_t len = perf_datagram(in[i].base, in[i].len);

		if (len)
			got += take(c, in[i].base, len, now);
		else
			c->bad++;
	}
	return n >= 0 ? got : perf_later(n) ? 0 : n;
}

static int take_one(struct perf_client *c, struct perf_sock *s, bool wait)
{
	uint64_t now;
	uint32_t len;
	ssize_t n;

	if (s->tcp)
		return take_stream(c, s, wait);
	if (c->o->style == PERF_RECV_BATCH)
		return take_batch(c, s, wait);
	n = c->ops->recv(s->h, c->in, PERF_UDP_MAX + 1, NULL, wait);
	if (n < 0)
		return perf_later(n) ? 0 : (int)n;
	now = bench_ticks();
	len = perf_datagram(c->in, (size_t)n);
	if (pv_likely(len))
		return take(c, c->in, len, now);
	c->bad++;
	return 0;
}

int perf_take(struct perf_client *c, bool wait)
{
	uint32_t ready[PERF_SOCKS_MAX];
	int n = (int)c->n, got = 0;

	if (c->n == 1 && c->o->style <= PERF_RECV_BATCH)
		return take_one(c, &c->sock[0], wait);
	if (c->o->style > PERF_RECV_BATCH)
		n = c->ops->ready(ready, wait);
	if (n < 0)
		return perf_later(n) ? 0 : n;
	for (int i = 0; i < n; i++) {
		int rc = take_one(c, &c->sock[c->o->style > PERF_RECV_BATCH ? ready[i] : (uint32_t)i], false);

		if (rc < 0)
			return rc;
		got += rc;
	}
	return got;
}

/* ---- the run ----------------------------------------------------------------------------------------------------------- */

/* Touched before the run: a page fault would be in the figures. */
static void *pages(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int allocate(struct perf_client *c)
{
	uint32_t most = PV_MIN(c->o->size + c->o->range, PERF_MSG_MAX);

	for (uint32_t i = 0; i < c->o->n_plays; i++)
		most = PV_MAX(most, c->o->plays[i].size);
	c->sock = calloc(c->n, sizeof(*c->sock));
	c->out = calloc(1, most);
	c->in = calloc(1, PERF_UDP_MAX + 1);
	c->request = pages(PERF_REQUESTS * sizeof(*c->request));
	if (c->o->full_log) {
		c->log_size = LOG_ROWS;
		if (c->o->mps > 0 && c->o->reply_every)
			c->log_size = PV_MIN(LOG_ROWS, (uint64_t)(c->o->seconds * c->o->mps) / c->o->reply_every + c->o->burst + 1);
		c->log = pages(c->log_size * sizeof(*c->log));
	}
	return c->sock && c->out && c->in && c->request && (c->log || !c->o->full_log) ? 0 : -ENOMEM;
}

static int open_all(struct perf_client *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		struct perf_sock *s = &c->sock[i];
		int rc;

		s->number = i;
		if (perf_sock_open(s, c->o, c->ops, &c->o->ends[i]))
			return 1;
		rc = c->o->style > PERF_RECV_BATCH ? c->ops->watch(s->h, i) : 0;
		if (rc)
			return bench_fail("watch", rc);
	}
	return 0;
}

/* A socket may be decided upon with its first message only: what that means is worth a sentence before the figures. */
static int check_offload(struct perf_client *c)
{
	char why[256];

	for (uint32_t i = 0; c->ops == &perf_engine && i < c->n && i < c->seq; i++) {
		if (!c->ops->offloaded(c->sock[i].h, why, sizeof(why))) {
			fprintf(stderr, "pyvma-bench: the socket is not offloaded: %s\n", why);
			return 1;
		}
	}
	return 0;
}

int perf_client(const struct perf_opts *o, const struct perf_ops *ops)
{
	static struct perf_client c;
	int rc;

	c.o = o;
	c.ops = ops;
	c.n = o->n_ends;
	c.random = 1;
	c.tick_ns = bench_tick_ns();
	hist_init(&c.rtt);
	hist_init(&c.from_due);
	seen_init(&c.seen);
	rc = allocate(&c);
	if (rc)
		return bench_fail("client", rc);
	rc = open_all(&c);
	if (!rc) {
		rc = perf_run_mode(&c);
		rc = rc && rc != -EINTR ? bench_fail("client", rc) : 0;
	}
	rc = rc || check_offload(&c);
	if (!rc && o->reply_every && c.requested && !c.received)
		rc = bench_fail("no answer from the server", 0);
	rc = rc || perf_report(&c);
	for (uint32_t i = 0; i < c.n; i++)
		perf_sock_close(&c.sock[i], ops);
	return rc;
}
