/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The delivery rate of TCP_INFO (draft-cheng-iccrg-delivery-rate-estimation): what was delivered between two moments, by the longer of the
 * times that it took to send it and to acknowledge it, so that neither bursts nor acknowledgements that come together make it too high.
 *
 * One segment at a time is watched, from when it is sent until it or something later is delivered: a sample a round trip. Times are ticks
 * of 1,024 ns, which 32 bits tell apart for more than an hour. Single messages with nothing else under way are not watched: the best of
 * their samples is one segment in the shortest round trip.
 */
#include "tcp/recovery.h"

pv_inline uint32_t ticks(int64_t ns)
{
	return (uint32_t)((uint64_t)ns >> PV_TCP_RATE_SHIFT);
}

void pv_tcp_rate_watch(struct pv_tcp *c, const struct pv_tcp_seg *s, bool idle, int64_t now_ns)
{
	c->rate_watch = true;
	c->rate_watch_limited = c->app_limited != 0;
	c->rate_seq = pv_seg_end(s);
	c->rate_prior = c->delivered;
	c->rate_prior_tick = idle ? ticks(now_ns) : c->delivered_tick;
	/* Since what was delivered last had been sent. */
	c->rate_send_ticks = idle || !c->rack_tx_ns ? 0 : ticks(PV_MAX(now_ns - c->rack_tx_ns, 0));
}

void pv_tcp_rate_sample(struct pv_tcp *c)
{
	uint32_t interval = PV_MAX(c->rate_send_ticks, c->delivered_tick - c->rate_prior_tick), n = c->delivered - c->rate_prior;

	c->rate_watch = false;
	if (c->app_limited && (int32_t)(c->delivered - c->app_limited) > 0)
		c->app_limited = 0;
	/* Less than any round trip took: the acknowledgement was of an earlier copy. */
	if (!n || ((int64_t)interval + 1) << PV_TCP_RATE_SHIFT < c->min_rtt_ns)
		return;
	interval = PV_MAX(interval, 1u);
	/* What an application gave us too little for says something only when it is more than we knew. */
	if (c->rate_watch_limited && (uint64_t)n * c->rate_ticks < (uint64_t)c->rate_delivered * interval)
		return;
	c->rate_delivered = n;
	c->rate_ticks = interval;
	c->rate_limited = c->rate_watch_limited;
}

uint64_t pv_tcp_rate(const struct pv_tcp *c)
{
	uint64_t rate = 0;

	/* 10^9 / 1024 ticks a second; a window has too few segments for an overflow. */
	if (c->rate_ticks)
		rate = (uint64_t)c->rate_delivered * c->mss * 1953125 / ((uint64_t)c->rate_ticks * 2);
	if ((!c->rate_ticks || c->rate_limited) && c->delivered && c->min_rtt_ns != PV_NEVER)
		rate = PV_MAX(rate, (uint64_t)c->mss * (uint64_t)PV_NS_PER_S / (uint64_t)PV_MAX(c->min_rtt_ns, 1));
	return rate;
}
