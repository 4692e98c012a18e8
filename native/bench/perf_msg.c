/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages as they come from anybody: nothing in here trusts a byte of them. */
#include "bench/perf.h"

#include <stdlib.h>

#define STREAM_SIZE (64u << 10)
/* No less is read at a time, so that many short messages cost one call. */
#define STREAM_READ (16u << 10)

/* Of the message at the head; its header's length when that is not there yet. */
static uint32_t want(const struct perf_stream *s)
{
	return s->tail - s->head < MSG_HLEN ? MSG_HLEN : pv_get32(s->buf + s->head + 10);
}

uint8_t *perf_stream_room(struct perf_stream *s, uint32_t *n)
{
	uint32_t need = PV_MAX(PV_MIN(want(s), PERF_MSG_MAX), s->tail - s->head + STREAM_READ);

	if (s->head == s->tail)
		s->head = s->tail = 0;
	if (s->size - s->head < need && s->head) {
		memmove(s->buf, s->buf + s->head, s->tail - s->head);
		s->tail -= s->head;
		s->head = 0;
	}
	if (s->size < need) {
		uint32_t size = PV_MAX(need, STREAM_SIZE);
		uint8_t *p = realloc(s->buf, size);

		if (!p)
			return NULL;
		s->buf = p;
		s->size = size;
	}
	*n = s->size - s->tail;
	return s->buf + s->tail;
}

int perf_stream_next(struct perf_stream *s, uint8_t **msg, uint32_t *len)
{
	uint32_t have = s->tail - s->head, n;

	if (have < MSG_HLEN)
		return 0;
	n = pv_get32(s->buf + s->head + 10);
	if (n < MSG_HLEN || n > PERF_MSG_MAX)
		return -EBADMSG;
	if (have < n)
		return 0;
	*msg = s->buf + s->head;
	*len = n;
	s->head += n;
	return 1;
}

void perf_stream_fini(struct perf_stream *s)
{
	free(s->buf);
	memset(s, 0, sizeof(*s));
}

uint32_t perf_datagram(const uint8_t *m, size_t n)
{
	return n >= MSG_HLEN && pv_get32(m + 10) == n ? (uint32_t)n : 0;
}

enum perf_verdict perf_judge(uint8_t *m)
{
	uint16_t flags = pv_get16(m + 8);

	if (!(flags & MSG_CLIENT))
		return PERF_IGNORED;
	if (flags & MSG_WARMUP)
		return PERF_WARMUP;
	if (!(flags & MSG_PONG))
		return PERF_COUNTED;
	pv_put16(m + 8, (uint16_t)(flags & ~MSG_CLIENT));
	return PERF_ANSWER;
}

/* Word `i` of message `seq`: neighbours in either differ. */
static uint64_t word(uint64_t seq, uint32_t i)
{
	uint64_t x = (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xbf58476d1ce4e5b9);

	return x ^ (x >> 29);
}

void perf_fill(uint8_t *m, uint64_t seq, uint32_t len)
{
	for (uint32_t at = MSG_HLEN; at < len; at += 8) {
		uint64_t w = word(seq, at);

		memcpy(m + at, &w, PV_MIN(len - at, 8u));
	}
}

bool perf_intact(const uint8_t *m, uint64_t seq, uint32_t len)
{
	for (uint32_t at = MSG_HLEN; at < len; at += 8) {
		uint64_t w = word(seq, at);

		if (memcmp(m + at, &w, PV_MIN(len - at, 8u)) != 0)
			return false;
	}
	return true;
}
