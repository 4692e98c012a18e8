/* SPDX-License-Identifier: BSD-3-Clause */
/* No congestion control: the peer's window alone limits. For networks that are known not to drop. Losses are still repaired. */
#include "tcp/cc.h"

static void none_init(struct pv_tcp *c)
{
	c->cwnd = PV_TCP_CWND_MAX;
	c->ssthresh = PV_TCP_SSTHRESH_INF;
}

static uint32_t none_ssthresh(struct pv_tcp *c)
{
	(void)c;
	return PV_TCP_SSTHRESH_INF;
}

static void none_acked(struct pv_tcp *c, const struct pv_tcp_ack_sample *s, int64_t now_ns)
{
	(void)c;
	(void)s;
	(void)now_ns;
}

const struct pv_cc_ops pv_cc_none = {
	.name = "none", .kind = PV_CC_NONE, .unlimited = true, .init = none_init, .ssthresh = none_ssthresh, .acked = none_acked
};
