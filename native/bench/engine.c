/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets of pyvma.h, as a C program uses them: one call a message, or batches with the payloads lent in place. */
#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "pyvma.h"

struct tr {
	pyvma_sock *s;
	bool connected;
	int64_t wait_ns;
	uint32_t size, stride;
	uint8_t *tx, *rx;
	struct sockaddr_storage from;
	socklen_t from_len;
	struct pyvma_msg out[BENCH_BATCH_MAX], in[BENCH_BATCH_MAX];
	uint8_t reply[BENCH_SIZE_MAX];
};

static inline uint8_t *tr_slot(struct tr *t, uint32_t i)
{
	return t->tx + (size_t)i * t->stride;
}

static inline int tr_flush(struct tr *t, uint32_t n)
{
	int64_t rc;

	if (n > 1)
		rc = pyvma_sock_send_batch(t->s, t->out, n, MSG_DONTWAIT, 0);
	else
		rc = pyvma_sock_send(t->s, t->tx, t->size, 0, -1);
	if (rc < 0)
		return rc == -ENOBUFS ? 0 : (int)rc;
	return n > 1 ? (int)rc : 1;
}

static inline int tr_recv(struct tr *t, bool wait, uint8_t **msg, uint32_t *len)
{
	int flags = wait ? 0 : MSG_DONTWAIT;
	int64_t n;

	if (t->connected) {
		n = pyvma_sock_recv(t->s, t->rx, t->stride, flags, t->wait_ns);
	} else {
		t->from_len = sizeof(t->from);
		n = pyvma_sock_recvfrom(t->s, t->rx, t->stride, flags, (struct sockaddr *)&t->from, &t->from_len, t->wait_ns);
	}
	if (n < 0)
		return (int)n;
	*msg = t->rx;
	*len = (uint32_t)n;
	return 1;
}

static inline int tr_recv_batch(struct tr *t, uint32_t max)
{
	return pyvma_sock_recv_lent(t->s, t->in, max, 0, t->wait_ns);
}

/* Lent payloads are read-only: the server writes its flag into a copy, which only every so many messages need. */
static inline uint8_t *tr_msg(struct tr *t, uint32_t i, uint32_t *len)
{
	uint8_t *m = t->in[i].base;

	*len = t->in[i].len;
	if (*len >= MSG_HLEN && (m[9] & MSG_PONG)) {
		memcpy(t->reply, m, *len);
		return t->reply;
	}
	return m;
}

static inline int tr_reply(struct tr *t, int i, uint8_t *msg, uint32_t len)
{
	int64_t rc;

	if (t->connected)
		rc = pyvma_sock_send(t->s, msg, len, 0, -1);
	else if (i < 0)
		rc = pyvma_sock_sendto(t->s, msg, len, 0, (const struct sockaddr *)&t->from, t->from_len, -1);
	else
		rc = pyvma_sock_sendto(t->s, msg, len, 0, (const struct sockaddr *)&t->in[i].addr, t->in[i].addrlen, -1);
	return rc < 0 ? (int)rc : 0;
}

static inline void tr_done(struct tr *t, uint32_t n)
{
	/* Those that came by the kernel are not lent; one of a batch may be and another not. */
	if (n > 1 || t->in[0].lent)
		pyvma_batch_release(t->in, n);
}

#include "bench/loops.h"

int bench_engine_start(const struct bench_opts *o, bool block)
{
	int rc = o->interfaces ? pyvma_config_set("interfaces", o->interfaces) : 0;

	if (!rc && o->preset)
		rc = pyvma_config_set("preset", o->preset);
	if (!rc)
		rc = pyvma_config_set("rx_poll", block ? "0" : "-1");
	if (!rc)
		rc = pyvma_start();
	return rc ? bench_fail(pyvma_last_error(), 0) : 0;
}

/* 0, -errno, or 1 when it has said what is wrong. */
static int open_socket(struct tr *t, const struct bench_opts *o)
{
	int family = o->local.ss_family ? o->local.ss_family : o->remote.ss_family, bytes = 4 << 20, rc;
	char text[128];

	if (bench_engine_start(o, o->block))
		return 1;
	rc = pyvma_sock_open(family, SOCK_DGRAM, 0, &t->s);
	if (rc)
		return rc;
	pyvma_sock_setsockopt(t->s, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (o->local.ss_family)
		rc = pyvma_sock_bind(t->s, (const struct sockaddr *)&o->local, bench_addr_len(&o->local));
	if (!rc && o->remote.ss_family)
		rc = pyvma_sock_connect(t->s, (const struct sockaddr *)&o->remote, bench_addr_len(&o->remote), -1);
	if (!rc && pyvma_sock_offload(t->s, text, sizeof(text)) != PYVMA_OFFLOADED) {
		fprintf(stderr, "pyvma-bench: the socket is not offloaded: %s\n", text);
		return 1;
	}
	t->connected = o->remote.ss_family != 0;
	return rc;
}

int bench_run_engine(const struct bench_opts *opts, struct bench_result *r)
{
	static struct tr t;
	struct bench_opts waits = *opts, *o = &waits;
	int rc;

	t.size = o->size;
	t.wait_ns = opts->block ? -1 : BENCH_LOST_NS;
	t.stride = o->role == ROLE_SERVER ? BENCH_SIZE_MAX + 1 : (o->size + 63) & ~63u;
	t.tx = calloc(BENCH_BATCH_MAX, t.stride);
	t.rx = calloc(1, t.stride);
	rc = t.tx && t.rx ? open_socket(&t, opts) : -ENOMEM;
	if (rc)
		return rc < 0 ? bench_fail("socket", rc) : rc;
	/* Either way the waiting is the engine's: it sleeps, or spins with rx_poll = -1. */
	waits.block = true;
	for (uint32_t i = 0; i < BENCH_BATCH_MAX; i++) {
		t.out[i].base = t.tx + (size_t)i * t.stride;
		t.out[i].len = o->size;
	}
	if (o->role == ROLE_SERVER)
		bench_ready(o, NULL);
	if (opts->block)
		bench_tick();
	rc = run_role(&t, o, r);
	pyvma_sock_close(t.s);
	free(t.tx);
	free(t.rx);
	return rc;
}
