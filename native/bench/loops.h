/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops of the roles, the same for every transport. A transport's .c file defines before it includes this:
 *
 *   struct tr                                                       its state
 *   uint8_t *tr_slot(struct tr *, uint32_t i)                       where message i of the next batch is written
 *   int tr_flush(struct tr *, uint32_t n)                           sends slots 0..n-1; how many left (0: no room now), -errno
 *   int tr_recv(struct tr *, bool wait, uint8_t **msg, uint32_t *len)   one message: 1, 0 (none yet), -errno
 *   int tr_recv_batch(struct tr *, uint32_t max)                    waits for the first; how many, 0, -errno
 *   uint8_t *tr_msg(struct tr *, uint32_t i, uint32_t *len)         message i of that batch
 *   int tr_reply(struct tr *, int i, uint8_t *msg, uint32_t len)    sends it back (-1: the one of tr_recv)
 *   void tr_done(struct tr *, uint32_t n)                           those of the last receive may be overwritten
 *
 * All are static inline, so that a loop is compiled with its transport in it. -EINTR and -EAGAIN count as "none yet".
 */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#include <errno.h>
#include <time.h>

#include "bench/bench.h"

#define PACED_FIRST 16u

static inline bool later(int rc)
{
	return rc == -EAGAIN || rc == -EINTR || rc == -ECONNREFUSED;
}

static inline int send_one(struct tr *t, uint64_t seq, uint16_t flags, uint32_t size)
{
	int rc;

	msg_put(tr_slot(t, 0), seq, flags, size);
	do {
		rc = tr_flush(t, 1);
	} while (pv_unlikely(rc == 0 || later(rc)) && !bench_stop);
	return rc < 0 ? rc : 0;
}

/* Waits for the reply to `seq`. 1, 0 when it was given up, -errno. */
static inline int await_reply(struct tr *t, bool block, uint64_t seq, uint64_t deadline, struct bench_result *r)
{
	for (uint32_t turn = 1;; turn++) {
		uint8_t *m = NULL;
		uint32_t len = 0;
		int rc = tr_recv(t, block, &m, &len);

		if (pv_likely(rc > 0)) {
			bool whole = len >= MSG_HLEN;
			uint64_t got = whole ? msg_seq(m) : 0;

			tr_done(t, 1);
			if (pv_unlikely(!whole))
				continue;
			r->received++;
			seen_add(&r->seen, got);
			if (pv_likely(got == seq))
				return 1;
			continue;
		}
		if (rc < 0 && !later(rc))
			return rc;
		if (pv_unlikely((block || turn % 64 == 0) && (bench_stop || bench_ticks() > deadline)))
			return 0;
		if (!block)
			pv_cpu_relax();
	}
}

/* The peer is there: message 1 is answered. Tries for twenty seconds. */
static inline int handshake(struct tr *t, const struct bench_opts *o, struct bench_result *r)
{
	uint64_t step = (uint64_t)((double)BENCH_LOST_NS / bench_tick_ns());

	for (int i = 0; i < 20 && !bench_stop; i++) {
		int rc = send_one(t, 1, MSG_CLIENT | MSG_PONG, o->size);

		if (!rc)
			rc = await_reply(t, o->block, 1, bench_ticks() + step, r);
		if (rc > 0)
			return 0;
		if (rc < 0)
			return bench_fail("handshake", rc);
	}
	return bench_fail("no answer from the server", 0);
}

static inline int run_ping_pong(struct tr *t, const struct bench_opts *o, struct bench_result *r)
{
	double tick_ns = bench_tick_ns();
	uint64_t lost_after = (uint64_t)((double)BENCH_LOST_NS / tick_ns), warm, end, t0, seq = 1;

	r->seen.next = r->seen.first = 1;
	if (handshake(t, o, r))
		return 1;
	t0 = r->start = bench_ticks();
	end = t0 + (uint64_t)(o->seconds * 1e9 / tick_ns);
	/* The first tenth only warms up. */
	warm = t0 + (end - t0) / 10;
	while (t0 < end && !bench_stop) {
		uint64_t now;
		int rc = send_one(t, ++seq, MSG_CLIENT | MSG_PONG, o->size);

		if (!rc)
			rc = await_reply(t, o->block, seq, t0 + lost_after, r);
		if (pv_unlikely(rc < 0))
			return bench_fail("ping-pong", rc);
		now = bench_ticks();
		if (pv_unlikely(rc == 0))
			r->timeouts++;
		else if (now >= warm)
			hist_add(&r->rtt, now - t0);
		t0 = now;
	}
	r->end = t0;
	r->sent = seq;
	r->lost = seq - r->seen.unique;
	return 0;
}

/* Takes the replies that are there. */
static inline int take_acks(struct tr *t, uint64_t *acked, struct bench_result *r)
{
	for (;;) {
		uint8_t *m = NULL;
		uint32_t len = 0;
		int rc = tr_recv(t, false, &m, &len);

		if (rc <= 0)
			return rc == 0 || later(rc) ? 0 : rc;
		if (len >= MSG_HLEN && msg_seq(m) > *acked)
			*acked = msg_seq(m);
		tr_done(t, 1);
		r->received++;
	}
}

static inline int send_batch(struct tr *t, const struct bench_opts *o, uint64_t *seq, uint32_t n)
{
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t s = *seq + 1 + i;

		msg_put(tr_slot(t, i), s, o->window && s % o->reply_every == 0 ? MSG_CLIENT | MSG_PONG : MSG_CLIENT, o->size);
	}
	rc = tr_flush(t, n);
	if (rc > 0)
		*seq += (uint64_t)rc;
	return later(rc) ? 0 : rc;
}

/* The last message asks for a reply: when that is here, the receiver has seen all that will come. */
static inline int drain(struct tr *t, const struct bench_opts *o, uint64_t *seq, uint64_t acked, struct bench_result *r)
{
	uint64_t deadline = bench_ticks() + (uint64_t)((double)BENCH_LOST_NS / bench_tick_ns());
	int rc = send_one(t, ++*seq, MSG_CLIENT | MSG_PONG, o->size);

	while (!rc && acked < *seq && bench_ticks() < deadline && !bench_stop) {
		rc = take_acks(t, &acked, r);
		pv_cpu_relax();
	}
	return rc;
}

static inline int run_throughput(struct tr *t, const struct bench_opts *o, struct bench_result *r)
{
	double tick_ns = bench_tick_ns();
	uint64_t stall_after = (uint64_t)((double)BENCH_LOST_NS / tick_ns), acked, seq = 1, end, now, moved;
	/* A stream is flow-controlled: without a window of messages, too, all that is sent comes. */
	bool acks = o->window || o->tcp;

	r->seen.next = r->seen.first = 1;
	if (acks && handshake(t, o, r))
		return 1;
	acked = seq;
	now = moved = r->start = bench_ticks();
	end = now + (uint64_t)(o->seconds * 1e9 / tick_ns);
	for (; now < end && !bench_stop; now = bench_ticks()) {
		uint64_t before = acked;
		int rc = o->window ? take_acks(t, &acked, r) : 0;

		if (rc < 0)
			return bench_fail("throughput", rc);
		if (acked != before)
			moved = now;
		if (o->window && seq - acked + o->batch > o->window) {
			/* Messages or their replies are gone: the receiver's count will tell, go on. */
			if (now - moved > stall_after) {
				acked = seq;
				moved = now;
				r->timeouts++;
			}
			pv_cpu_relax();
			continue;
		}
		rc = send_batch(t, o, &seq, o->batch);
		if (rc < 0)
			return bench_fail("throughput", rc);
	}
	r->end = now;
	if (acks && drain(t, o, &seq, acked, r))
		return bench_fail("throughput", 0);
	r->sent = seq;
	return 0;
}

/* Stamped messages, each after a pause in which a sleeping receiver has gone to sleep. The first only make neighbours known. */
static inline int run_paced(struct tr *t, const struct bench_opts *o, struct bench_result *r)
{
	struct timespec gap = { .tv_sec = o->gap_us / 1000000, .tv_nsec = (long)(o->gap_us % 1000000) * 1000 };
	uint64_t count = (uint64_t)(o->seconds * 1e6) / o->gap_us, seq;

	if (o->size < MSG_STAMP_LEN)
		return bench_fail("paced: a message needs room for a stamp", 0);
	r->start = bench_ticks();
	for (seq = 1; seq <= count && !bench_stop; seq++) {
		uint8_t *m = tr_slot(t, 0);
		uint64_t now;
		int rc;

		msg_put(m, seq, seq > PACED_FIRST ? MSG_CLIENT | MSG_STAMP : MSG_CLIENT, o->size);
		now = (uint64_t)bench_now_ns();
		memcpy(m + MSG_HLEN, &now, sizeof(now));
		rc = tr_flush(t, 1);
		if (rc < 0 && !later(rc))
			return bench_fail("paced", rc);
		nanosleep(&gap, NULL);
	}
	r->sent = seq - 1;
	r->end = bench_ticks();
	return 0;
}

static inline void note_stamp(const uint8_t *m, uint32_t len, struct bench_result *r)
{
	uint64_t then, now = (uint64_t)bench_now_ns();

	if (len < MSG_STAMP_LEN)
		return;
	memcpy(&then, m + MSG_HLEN, sizeof(then));
	hist_add(&r->wake, now > then ? now - then : 0);
}

/* One message at a server; `i` for tr_reply. */
static inline int serve(struct tr *t, int i, uint8_t *m, uint32_t len, struct bench_result *r)
{
	uint16_t flags;

	if (pv_unlikely(len < MSG_HLEN))
		return 0;
	flags = pv_get16(m + 8);
	if (pv_unlikely(!(flags & MSG_CLIENT) || (flags & MSG_WARMUP)))
		return 0;
	if (pv_unlikely(flags & MSG_STAMP))
		note_stamp(m, len, r);
	r->received++;
	seen_add(&r->seen, msg_seq(m));
	if (!(flags & MSG_PONG))
		return 0;
	m[9] = (uint8_t)(flags & ~MSG_CLIENT);
	r->sent++;
	return tr_reply(t, i, m, len);
}

/* `r->start` and `r->end`: first message and the last poll that brought one. */
static inline int run_server(struct tr *t, const struct bench_opts *o, struct bench_result *r)
{
	while (!bench_stop) {
		uint32_t len = 0;
		int n = o->batch > 1 ? tr_recv_batch(t, o->batch) : 0, rc = 0;

		if (o->batch == 1) {
			uint8_t *m = NULL;

			n = tr_recv(t, o->block, &m, &len);
			if (pv_likely(n > 0))
				rc = serve(t, -1, m, len, r);
		}
		for (int i = 0; o->batch > 1 && i < n && !rc; i++) {
			uint8_t *m = tr_msg(t, (uint32_t)i, &len);

			rc = serve(t, i, m, len, r);
		}
		if (n > 0) {
			if (o->batch > 1) {
				r->end = bench_ticks();
				if (pv_unlikely(!r->start))
					r->start = r->end;
			}
			tr_done(t, (uint32_t)n);
		} else if (pv_unlikely(n < 0 && !later(n))) {
			return bench_fail("receive", n);
		} else if (!o->block) {
			pv_cpu_relax();
		}
		if (pv_unlikely(rc < 0 && !later(rc)))
			return bench_fail("reply", rc);
	}
	return 0;
}

static inline int run_role(struct tr *t, const struct bench_opts *o, struct bench_result *r)
{
	if (o->role == ROLE_SERVER)
		return run_server(t, o, r);
	if (o->role == ROLE_PACED)
		return run_paced(t, o, r);
	return o->role == ROLE_PING_PONG ? run_ping_pong(t, o, r) : run_throughput(t, o, r);
}

#endif
