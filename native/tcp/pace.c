/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pacing (SO_MAX_PACING_RATE): each segment has a time before which it does not go, the one of the segment before it and what that takes
 * at the rate. The wheel comes up to a tick late, and a busy application later still; what time was lost while segments waited is made up
 * for, at most a millisecond of it, as Linux's fq does. Time in which nothing waited gives no credit.
 */
#include "tcp/tcp_int.h"

#define CREDIT_NS PV_NS_PER_MS

/* What the link carries besides the payload, roughly: Linux paces whole frames, too. */
pv_inline uint32_t on_wire(const struct pv_tcp *c, uint32_t len)
{
	return len + (c->path.is4 ? 20u : 40u) + PV_TCP_HLEN + (c->flags & PV_TF_TS ? 12u : 0u) + c->path.l2_len;
}

void pv_tcp_pace_changed(struct pv_tcp *c, int64_t now_ns)
{
	uint64_t rate = c->opts.pacing_rate ? c->opts.pacing_rate : UINT64_MAX;

	if (rate == c->pacing_rate)
		return;
	c->pacing_rate = rate;
	c->pace_next_ns = now_ns;
	pv_tcp_timer_set(c, PV_TT_PACE, PV_NEVER);
}

void pv_tcp_pace_begin(struct pv_tcp *c, bool late, int64_t now_ns)
{
	int64_t first = late || c->deadline_ns[PV_TT_PACE] != PV_NEVER ? now_ns - CREDIT_NS : now_ns;

	c->pace_next_ns = PV_MAX(c->pace_next_ns, first);
}

bool pv_tcp_pace_wait(struct pv_tcp *c, int64_t now_ns)
{
	if (c->pace_next_ns <= now_ns)
		return false;
	pv_tcp_timer_set(c, PV_TT_PACE, c->pace_next_ns);
	return true;
}

/* One, or, where several leave as one packet, what goes in a millisecond, as by Linux's tcp_tso_autosize. */
uint32_t pv_tcp_pace_burst(const struct pv_tcp *c)
{
	uint64_t segs = c->path.joins ? (c->pacing_rate >> 10) / c->mss : 1;

	return (uint32_t)PV_MIN(PV_MAX(segs, UINT64_C(1)), (uint64_t)UINT32_MAX);
}

void pv_tcp_pace_sent(struct pv_tcp *c, uint32_t len)
{
	/* A segment of 64 KiB at a byte a second: still no overflow. */
	uint64_t ns = (uint64_t)on_wire(c, len) * (uint64_t)PV_NS_PER_S / c->pacing_rate;

	c->pace_next_ns += (int64_t)ns;
}
