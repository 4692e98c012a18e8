/* SPDX-License-Identifier: BSD-3-Clause */
#include "tcp/cc.h"

#include <string.h>

static const struct pv_cc_ops *const controls[] = { &pv_cc_cubic, &pv_cc_reno, &pv_cc_none };

const struct pv_cc_ops *pv_cc_find(const char *name)
{
	if (!*name)
		return &pv_cc_cubic;
	for (uint32_t i = 0; i < pv_array_size(controls); i++)
		if (!strcmp(controls[i]->name, name))
			return controls[i];
	return NULL;
}

int pv_tcp_congestion_set(struct pv_tcp *c, const char *name)
{
	const struct pv_cc_ops *cc = *name ? pv_cc_find(name) : NULL;
	bool was_unlimited = c->cc->unlimited;

	if (!cc)
		return -ENOENT;
	if (cc == c->cc)
		return 0;
	pv_tcp_set_cc(c, cc);
	if (cc->unlimited != was_unlimited) {
		c->cwnd = pv_tcp_initial_cwnd(c);
		c->ssthresh = PV_TCP_SSTHRESH_INF;
	}
	c->cwnd_cnt = 0;
	cc->init(c);
	return 0;
}

const char *pv_tcp_congestion(const struct pv_tcp *c)
{
	return c->cc->name;
}

uint32_t pv_cc_slow_start(struct pv_tcp *c, uint32_t acked)
{
	uint32_t cwnd = PV_MIN(c->cwnd + acked, c->ssthresh);

	acked -= cwnd - c->cwnd;
	c->cwnd = PV_MIN(cwnd, PV_TCP_CWND_MAX);
	return acked;
}

void pv_cc_additive(struct pv_tcp *c, uint32_t w, uint32_t acked)
{
	c->cwnd_cnt += acked;
	if (c->cwnd_cnt < w)
		return;
	c->cwnd = PV_MIN(c->cwnd + c->cwnd_cnt / w, PV_TCP_CWND_MAX);
	c->cwnd_cnt %= w;
}
