/* SPDX-License-Identifier: BSD-3-Clause */
/* A sender, a receiver, and flow rules put together from specifications. */
#ifndef SOFTNIC_VERBS_RULE_H
#define SOFTNIC_VERBS_RULE_H

#include "softnic_verbs.h"

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[256];
};

static struct side tx, rx;
static uint8_t frame[2048];

static void pair_open(void)
{
	side_open(&tx, 0);
	side_open(&rx, 1);
}

static void pair_close(void)
{
	side_close(&tx);
	side_close(&rx);
}

static void rule_init(struct rule *r)
{
	memset(r, 0, sizeof(*r));
	r->attr.port = 1;
	r->attr.size = sizeof(r->attr);
}

static void rule_add(struct rule *r, const void *spec, size_t size)
{
	memcpy((uint8_t *)r + r->attr.size, spec, size);
	r->attr.size = (uint16_t)(r->attr.size + size);
	r->attr.num_of_specs++;
}

static struct ibv_flow *rule_make(struct ibv_qp *qp, const struct rule *r)
{
	/* As programs do it: anywhere in memory, but aligned as the attribute needs. */
	struct rule *copy = malloc(sizeof(*r));
	struct ibv_flow *flow;

	memcpy(copy, r, sizeof(*r));
	errno = 0;
	flow = ibv_create_flow(qp, &copy->attr);
	free(copy);
	return flow;
}

static const struct udp4 base4 = {
	.src = IP(10, 1, 2, 3), .dst = IP(10, 4, 5, 6), .sport = 1111, .dport = 2222, .tos = 0x10, .ttl = 33
};

static int refused(const struct rule *r)
{
	struct ibv_flow *flow = rule_make(rx.qp, r);

	CHECK(!flow);
	return errno;
}

#define RULE1(a)                                                                                                                   \
	rule_init(&r);                                                                                                             \
	rule_add(&r, &(a), sizeof(a))
#define RULE2(a, b)                                                                                                                \
	RULE1(a);                                                                                                                  \
	rule_add(&r, &(b), sizeof(b))

#endif
