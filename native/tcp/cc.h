/* SPDX-License-Identifier: BSD-3-Clause */
/* What the congestion controls share (RFC 5681 3.1, with appropriate byte counting in segments, RFC 3465). */
#ifndef PV_TCP_CC_H
#define PV_TCP_CC_H

#include "tcp/recovery.h"

/* Up to ssthresh; returns how many of `acked` are left for congestion avoidance. */
uint32_t pv_cc_slow_start(struct pv_tcp *c, uint32_t acked);
/* One segment more for each `w` acknowledged. */
void pv_cc_additive(struct pv_tcp *c, uint32_t w, uint32_t acked);

pv_inline bool pv_cc_in_slow_start(const struct pv_tcp *c)
{
	return c->cwnd < c->ssthresh;
}

/* Growth, which needs a cwnd that was in use whole (RFC 7661). */
pv_inline void pv_cc_acked(struct pv_tcp *c, uint32_t acked, int64_t rtt_ns, int64_t now_ns)
{
	struct pv_tcp_ack_sample s = { .rtt_ns = rtt_ns, .acked = acked };

	if (pv_tcp_cwnd_limited(c))
		c->cc->acked(c, &s, now_ns);
}

#endif
