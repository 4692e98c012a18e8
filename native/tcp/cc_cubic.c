/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUBIC (RFC 9438) with HyStart++ (RFC 9406) in its initial slow start. Integers only: windows in segments with 10 or 20 bits of
 * fraction, time in ticks of 1/1024 s, so that the cube of a time has 30 bits of fraction. C = 0.4 and beta = 0.7, as the RFC has them.
 */
#include "tcp/cc.h"

#include <string.h>

#define FP 10u
#define FINE 20u
#define TICKS_MAX (1u << 17) /* 128 s: the cube fits, and growth is bounded otherwise long before */

#define HS_MIN_NS (4 * PV_NS_PER_MS) /* RFC 9406 4.3 */
#define HS_MAX_NS (16 * PV_NS_PER_MS)
#define HS_SAMPLES 8u
#define HS_GROWTH_DIVISOR 4u
#define HS_CSS_ROUNDS 5u
#define HS_LIMIT 8u /* segments for one acknowledgement, not paced */

struct epoch {
	int64_t start_ns; /* of this congestion avoidance; 0: not begun */
	uint32_t w_max; /* FP */
	uint32_t k; /* ticks until the curve is at the plateau */
	uint32_t origin; /* FP: the plateau */
};

struct cubic {
	struct epoch e, undo;
	uint64_t w_est; /* FINE: what Reno would have (RFC 9438 4.3) */
	uint32_t cwnd_prior; /* at the last reduction */
	/* Growth for each segment acknowledged, FINE, valid for one tick and one cwnd. */
	uint32_t grow, tick, for_cwnd;
	/* HyStart++; us, UINT32_MAX: none */
	uint32_t last_us, round_us, base_us;
	pv_seq round_end;
	uint8_t samples, css_rounds;
	bool in_round, css;
};
_Static_assert(sizeof(struct cubic) <= sizeof(((struct pv_tcp *)0)->cc_priv), "fits");
_Static_assert(offsetof(struct cubic, e.start_ns) == 0, "0 in cc_priv[0]: nothing is to be known of pauses");

static struct cubic *cubic(struct pv_tcp *c)
{
	return (struct cubic *)(void *)c->cc_priv;
}

static void cubic_init(struct pv_tcp *c)
{
	struct cubic *q = cubic(c);

	memset(q, 0, sizeof(*q));
	q->last_us = q->round_us = q->base_us = UINT32_MAX;
	c->cwnd_cnt = 0;
}

/* ---- HyStart++ ------------------------------------------------------------------------------------------------------------- */

/* Has the round trip grown? Between 4 and 16 ms, an eighth of the last round's least. */
static bool delay_grew(const struct cubic *q)
{
	uint32_t eta = q->last_us / 8;

	if (q->last_us == UINT32_MAX || q->round_us == UINT32_MAX)
		return false;
	eta = PV_MAX(eta, (uint32_t)(HS_MIN_NS / 1000));
	eta = PV_MIN(eta, (uint32_t)(HS_MAX_NS / 1000));
	return q->round_us >= q->last_us + eta;
}

static void round_begin(struct pv_tcp *c, struct cubic *q)
{
	q->last_us = q->round_us;
	q->round_us = UINT32_MAX;
	q->samples = 0;
	q->round_end = c->snd_max;
}

/* Returns what of `acked` lets cwnd grow. */
static uint32_t hystart(struct pv_tcp *c, struct cubic *q, int64_t rtt_ns, uint32_t acked)
{
	if (c->pacing_rate == UINT64_MAX)
		acked = PV_MIN(acked, HS_LIMIT);
	if (!q->in_round) {
		q->in_round = true;
		round_begin(c, q);
	} else if (pv_seq_ge(c->snd_una, q->round_end)) {
		round_begin(c, q);
		if (q->css && ++q->css_rounds >= HS_CSS_ROUNDS) {
			c->ssthresh = c->cwnd;
			return 0;
		}
	}
	if (rtt_ns >= 0) {
		q->round_us = PV_MIN(q->round_us, (uint32_t)PV_MIN(rtt_ns / 1000, (int64_t)UINT32_MAX / 2));
		if (q->samples < HS_SAMPLES)
			q->samples++;
		if (q->samples >= HS_SAMPLES) {
			if (!q->css && delay_grew(q)) {
				q->css = true;
				q->css_rounds = 0;
				q->base_us = q->round_us;
			} else if (q->css && q->round_us < q->base_us) {
				/* The queue went away again: it had not been the limit. */
				q->css = false;
				q->base_us = UINT32_MAX;
			}
		}
	}
	if (!q->css)
		return acked;
	/* Conservative: a quarter, what is left over is kept for the next. */
	c->cwnd_cnt += acked;
	acked = c->cwnd_cnt / HS_GROWTH_DIVISOR;
	c->cwnd_cnt %= HS_GROWTH_DIVISOR;
	return acked;
}

/* ---- the curve ------------------------------------------------------------------------------------------------------------- */

/* Integer cube root, rounded down: Newton from above. */
static uint32_t cube_root(uint64_t a)
{
	uint64_t x, y;

	if (a < 2)
		return (uint32_t)a;
	x = UINT64_C(1) << ((63 - __builtin_clzll(a)) / 3 + 1);
	while ((y = (2 * x + a / (x * x)) / 3) < x)
		x = y;
	return (uint32_t)x;
}

static uint32_t ticks(int64_t ns)
{
	/* 1024 / 10^9 */
	return ns <= 0 ? 0 : (uint32_t)PV_MIN((uint64_t)ns * 2 / 1953125, (uint64_t)TICKS_MAX);
}

/* W_cubic, FP, at `t` ticks after the start (RFC 9438 4.2). */
static uint32_t curve(const struct epoch *e, uint32_t t)
{
	uint64_t d = t < e->k ? e->k - t : t - e->k;
	uint64_t delta = (d * d * d / 5 * 2) >> (30 - FP);

	if (t < e->k)
		return delta < e->origin ? e->origin - (uint32_t)delta : 0;
	return (uint32_t)PV_MIN(e->origin + delta, (uint64_t)PV_TCP_CWND_MAX << FP);
}

static void epoch_begin(struct pv_tcp *c, struct cubic *q, int64_t now_ns)
{
	uint32_t cwnd = c->cwnd << FP;

	q->e.start_ns = now_ns;
	q->w_est = (uint64_t)c->cwnd << FINE;
	q->for_cwnd = 0;
	if (cwnd >= q->e.w_max) {
		q->e.k = 0;
		q->e.origin = cwnd;
	} else {
		/* K^3 = (w_max - cwnd) / C, with 30 bits of fraction */
		q->e.k = PV_MIN(cube_root(((uint64_t)(q->e.w_max - cwnd) * 5 / 2) << (30 - FP)), TICKS_MAX);
		q->e.origin = q->e.w_max;
	}
}

/* How much cwnd grows for one segment, FINE, at this tick. */
static uint32_t growth(const struct pv_tcp *c, const struct cubic *q, int64_t elapsed_ns)
{
	uint32_t cwnd = c->cwnd << FP, target;

	/* Reno would be further (RFC 9438 4.3): to there. */
	if (((uint64_t)curve(&q->e, ticks(elapsed_ns)) << (FINE - FP)) < q->w_est) {
		target = (uint32_t)(q->w_est >> (FINE - FP));
		return target <= cwnd ? 0 : UINT32_MAX;
	}
	target = curve(&q->e, ticks(elapsed_ns + c->srtt_ns));
	if (target <= cwnd)
		return 0;
	target = PV_MIN(target, cwnd + cwnd / 2);
	return (uint32_t)(((uint64_t)(target - cwnd) << (FINE - FP)) / c->cwnd);
}

static void avoid(struct pv_tcp *c, struct cubic *q, uint32_t acked, int64_t now_ns)
{
	uint32_t alpha =
	    (uint32_t)(q->w_est >> FINE) < q->cwnd_prior ? (9u << FINE) / 17 : 1u << FINE; /* 3 (1 - beta) / (1 + beta) */
	uint32_t tick;
	uint64_t cnt;

	if (!q->e.start_ns)
		epoch_begin(c, q, now_ns);
	q->w_est += (uint64_t)alpha * acked / c->cwnd;
	tick = ticks(now_ns - q->e.start_ns);
	if (tick != q->tick || c->cwnd != q->for_cwnd) {
		q->grow = growth(c, q, now_ns - q->e.start_ns);
		q->tick = tick;
		q->for_cwnd = c->cwnd;
	}
	if (q->grow == UINT32_MAX) {
		c->cwnd = PV_MIN((uint32_t)(q->w_est >> FINE), PV_TCP_CWND_MAX);
		c->cwnd_cnt = 0;
		return;
	}
	cnt = c->cwnd_cnt + (uint64_t)q->grow * acked;
	c->cwnd = PV_MIN(c->cwnd + (uint32_t)(cnt >> FINE), PV_TCP_CWND_MAX);
	c->cwnd_cnt = (uint32_t)cnt & ((1u << FINE) - 1);
}

/* ---- interface ------------------------------------------------------------------------------------------------------------- */

static void cubic_acked(struct pv_tcp *c, const struct pv_tcp_ack_sample *s, int64_t now_ns)
{
	struct cubic *q = cubic(c);
	uint32_t acked = s->acked;

	if (pv_cc_in_slow_start(c)) {
		/* HyStart++ is for the first slow start, that knows of no limit. */
		if (c->ssthresh == PV_TCP_SSTHRESH_INF)
			acked = hystart(c, q, s->rtt_ns, acked);
		acked = pv_cc_slow_start(c, acked);
		if (!acked || pv_cc_in_slow_start(c))
			return;
		c->cwnd_cnt = 0;
	}
	avoid(c, q, acked, now_ns);
}

static uint32_t cubic_ssthresh(struct pv_tcp *c)
{
	struct cubic *q = cubic(c);
	uint32_t cwnd = c->cwnd << FP;

	q->undo = q->e;
	/* Fast convergence (RFC 9438 4.7): less room than last time, so some for the newcomer. */
	q->e.w_max = cwnd < q->e.w_max ? (uint32_t)((uint64_t)cwnd * 17 / 20) : cwnd;
	q->e.start_ns = 0;
	q->cwnd_prior = c->cwnd;
	return PV_MAX((uint32_t)((uint64_t)c->cwnd * 7 / 10), 2u);
}

static void cubic_undo(struct pv_tcp *c)
{
	struct cubic *q = cubic(c);

	q->e = q->undo;
	q->for_cwnd = 0;
}

static void cubic_event(struct pv_tcp *c, enum pv_cc_event what, int64_t now_ns)
{
	struct cubic *q = cubic(c);

	if (what == PV_CC_RTO) {
		/* RFC 9438 4.8: congestion avoidance after a timeout begins at its plateau. */
		q->e.w_max = 0;
		q->css = q->in_round = false;
		return;
	}
	/* Time in which nothing was sent is none of the curve's (RFC 9438 4.2). */
	if (q->e.start_ns)
		q->e.start_ns = PV_MIN(q->e.start_ns + now_ns - c->last_data_sent_ns, now_ns);
}

const struct pv_cc_ops pv_cc_cubic = { .name = "cubic",
				       .kind = PV_CC_CUBIC,
				       .init = cubic_init,
				       .ssthresh = cubic_ssthresh,
				       .acked = cubic_acked,
				       .undo = cubic_undo,
				       .event = cubic_event };
