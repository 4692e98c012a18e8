/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sender under test with a scripted receiver: segments of 1,000 bytes, counted from 1, a path of 100 ms unless told otherwise.
 *
 *   rec_open(&p, &(struct rec){..})     a connection that has measured its round trip; nothing is out
 *   rec_write(&p, n)                    n segments are written
 *   rec_sent(&p, 3, 4, 1)               exactly these segments have been sent since, in this order; rec_sent(&p) means none
 *   rec_ack(&p, n)                      all below segment n is acknowledged
 *   rec_sack(&p, n, a, b, c, d)         ... and segments a..b-1 and c..d-1 are SACKed, most recent first
 */
#ifndef TCP_REC_H
#define TCP_REC_H

#include "tcp/recovery.h"
#include "tcp_peer.h"

#define MS PV_NS_PER_MS
#define REC_LEN 1000u

struct rec {
	int64_t rtt_ns; /* 0: 100 ms */
	const char *cc; /* NULL: cubic */
	uint32_t cwnd; /* 0: as it is */
	bool no_sack, ts, ecn, no_tlp;
	uint32_t retries2;
};

/* First byte of segment n; the round trip was measured with one before segment 1. */
static inline uint32_t rec_seq(uint32_t n)
{
	return 1 + n * REC_LEN;
}

static inline void rec_open(struct peer *p, const struct rec *r)
{
	struct peer_cfg cfg = { .no_sack = r->no_sack,
				.no_ts = !r->ts,
				.ecn = r->ecn,
				.mss = REC_LEN + (r->ts ? 12 : 0),
				.tcp = { .no_recovery_tlp = r->no_tlp, .ecn = r->ecn ? 1 : 3, .retries2 = r->retries2 } };
	int64_t rtt = r->rtt_ns ? r->rtt_ns : 100 * MS;
	const struct peer_seg *s;

	if (r->cc)
		strcpy(cfg.tcp.congestion, r->cc);
	peer_open(p, &cfg);
	peer_listen(p, 4);
	peer_syn(p);
	s = peer_next(p);
	CHECK(s);
	peer_agree(p, s);
	peer_run(p, rtt);
	peer_skip(p);
	peer_send(p, ".", 1, 1, 0);
	CHECK_EQ(pv_tcp_accept(p->l, &p->c), 0);
	pv_tcp_options(p->c)->sndbuf = 1u << 20;
	peer_write(p, REC_LEN);
	peer_expect(p, ".", 1, 1, REC_LEN);
	peer_run(p, rtt);
	peer_ack(p, rec_seq(1));
	CHECK_EQ(p->c->srtt_ns, rtt);
	CHECK_EQ(p->c->min_rtt_ns, rtt);
	CHECK_EQ(p->c->cwnd, PV_TCP_INIT_CWND);
	CHECK_EQ(p->c->mss, REC_LEN);
	if (r->cwnd)
		p->c->cwnd = r->cwnd;
}

static inline void rec_close(struct peer *p)
{
	if (p->c)
		(void)pv_tcp_disconnect(p->c, p->w.now);
	peer_run(p, 0);
	peer_skip(p);
	peer_close(p);
}

static inline void rec_write(struct peer *p, uint32_t n)
{
	peer_write(p, n * REC_LEN);
}

static inline void rec_match(struct peer *p, uint32_t n, const uint32_t *segs)
{
	for (uint32_t i = 0; i < n; i++)
		(void)peer_match(p, ".", rec_seq(segs[i]), p->seq_max, REC_LEN);
	peer_empty(p);
}

#define rec_sent(p, ...)                                                                                                           \
	(peer_at(__FILE__, __LINE__),                                                                                              \
	 rec_match(p, (uint32_t)(sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t)), (const uint32_t[]){ __VA_ARGS__ }))

static inline void rec_ack(struct peer *p, uint32_t n)
{
	peer_ack(p, rec_seq(n));
}

static inline void rec_sack_blocks(struct peer *p, uint32_t ack, uint32_t n, const uint32_t *segs)
{
	uint32_t edges[8];

	for (uint32_t i = 0; i < n; i++)
		edges[i] = rec_seq(segs[i]);
	peer_sack(p, rec_seq(ack), n / 2, edges);
}

#define rec_sack(p, ack, ...)                                                                                                      \
	rec_sack_blocks(p, ack, (uint32_t)(sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t)),                                \
			(const uint32_t[]){ __VA_ARGS__ })

/* Segment n goes again between `min` and `max` from now, and nothing before it. */
#define rec_sent_in(p, min_ns, max_ns, n) peer_expect_in(p, min_ns, max_ns, ".", rec_seq(n), (p)->seq_max, REC_LEN)

#endif
