/* SPDX-License-Identifier: BSD-3-Clause */
/* NewReno (RFC 5681, 6582). */
#include "tcp/cc.h"

static void reno_init(struct pv_tcp *c)
{
	c->cwnd_cnt = 0;
}

static uint32_t reno_ssthresh(struct pv_tcp *c)
{
	return PV_MAX(c->cwnd / 2, 2u);
}

static void reno_acked(struct pv_tcp *c, const struct pv_tcp_ack_sample *s, int64_t now_ns)
{
	uint32_t acked = s->acked;

	(void)now_ns;
	if (pv_cc_in_slow_start(c)) {
		acked = pv_cc_slow_start(c, acked);
		if (!acked)
			return;
	}
	pv_cc_additive(c, c->cwnd, acked);
}

const struct pv_cc_ops pv_cc_reno = {
	.name = "reno", .kind = PV_CC_RENO, .init = reno_init, .ssthresh = reno_ssthresh, .acked = reno_acked
};
