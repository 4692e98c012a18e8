/* SPDX-License-Identifier: BSD-3-Clause */
/* An interface of the kernel's that steers by flow rules, for tests of who wants which. */
#ifndef STEER_H
#define STEER_H

#include "net_util.h"

static inline int any_route(void *ctx, const struct pv_host_query *q, struct pv_host_route *out)
{
	(void)ctx;
	*out = (struct pv_host_route){ .kernel_index = 7, .src = pv_addr_is4(&q->dst) ? ip("10.0.0.1") : ip("fd00::1") };
	return 0;
}

static inline void no_resolve(void *ctx, uint32_t kernel_index, const struct pv_addr *addr)
{
	(void)ctx;
	(void)kernel_index;
	(void)addr;
}

static const struct pv_host_ops steer_ops = { .route = any_route, .resolve = no_resolve };

static inline struct bench *steer_bench(uint32_t flow_kinds)
{
	struct bench *b =
	    bench_open(&(struct bench_cfg){ .net = { .host = &steer_ops }, .steer = PV_STEER_SOCKET, .flow_kinds = flow_kinds });

	b->net->iface[b->iface[0]]->cfg.kernel_index = 7;
	return b;
}

/* Rules that the interface has now. */
static inline uint32_t live(const struct bench *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->fake[0]->nflow; i++)
		n += b->fake[0]->flow_on[i];
	return n;
}

#endif
