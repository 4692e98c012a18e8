/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules. A rule is an attribute block followed by one specification per layer, each with a mask; every rule names the MAC,
 * because NICs steer by it first. A rule for untagged frames says nothing of VLANs: verbs cannot say "no tag", and the network
 * layer looks at the tag anyway.
 */
#include <errno.h>

#include "base/bytes.h"
#include "ring/frame.h"
#include "ring/verbs_priv.h"

struct rule {
	struct ibv_flow_attr attr;
	uint8_t spec[3 * 128] pv_aligned(4);
	uint32_t len;
};

static void *add_spec(struct rule *rule, enum ibv_flow_spec_type type, uint16_t size)
{
	struct ibv_flow_spec_eth *head = (void *)(rule->spec + rule->len);

	memset(head, 0, size);
	head->type = type;
	head->size = size;
	rule->len += size;
	rule->attr.num_of_specs++;
	return head;
}

static void add_eth(const struct verbs_ring *v, struct rule *rule, const struct pv_flow *flow)
{
	struct ibv_flow_spec_eth *eth = add_spec(rule, IBV_FLOW_SPEC_ETH, sizeof(*eth));

	pv_frame_flow_mac(flow, v->ring.caps.mac, eth->val.dst_mac);
	memset(eth->mask.dst_mac, 0xff, PV_ETH_ALEN);
	if (flow->kind == PV_FLOW_ETHER && flow->ethertype) {
		pv_put16(&eth->val.ether_type, flow->ethertype);
		eth->mask.ether_type = UINT16_MAX;
	}
	if (flow->vlan) {
		pv_put16(&eth->val.vlan_tag, flow->vlan);
		pv_put16(&eth->mask.vlan_tag, 0x0fff);
	}
}

static void add_ip(struct rule *rule, const struct pv_flow *flow)
{
	bool source = flow->kind == PV_FLOW_5TUPLE;

	if (pv_addr_is4(&flow->dst)) {
		struct ibv_flow_spec_ipv4 *ip = add_spec(rule, IBV_FLOW_SPEC_IPV4, sizeof(*ip));

		ip->val.dst_ip = flow->dst.w[3];
		ip->mask.dst_ip = UINT32_MAX;
		ip->val.src_ip = source ? flow->src.w[3] : 0;
		ip->mask.src_ip = source ? UINT32_MAX : 0;
	} else {
		struct ibv_flow_spec_ipv6 *ip = add_spec(rule, IBV_FLOW_SPEC_IPV6, sizeof(*ip));

		memcpy(ip->val.dst_ip, flow->dst.b, 16);
		memset(ip->mask.dst_ip, 0xff, 16);
		if (source) {
			memcpy(ip->val.src_ip, flow->src.b, 16);
			memset(ip->mask.src_ip, 0xff, 16);
		}
	}
}

static void add_l4(struct rule *rule, const struct pv_flow *flow)
{
	enum ibv_flow_spec_type type = flow->l4_proto == 6 ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
	struct ibv_flow_spec_tcp_udp *l4 = add_spec(rule, type, sizeof(*l4));

	pv_put16(&l4->val.dst_port, flow->dst_port);
	l4->mask.dst_port = UINT16_MAX;
	if (flow->kind == PV_FLOW_5TUPLE) {
		pv_put16(&l4->val.src_port, flow->src_port);
		l4->mask.src_port = UINT16_MAX;
	}
}

static void build(const struct verbs_ring *v, const struct pv_flow *flow, struct rule *rule)
{
	memset(rule, 0, sizeof(*rule));
	rule->attr.port = v->port;
	if (flow->kind == PV_FLOW_ALL) {
		rule->attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	} else {
		rule->attr.type = IBV_FLOW_ATTR_NORMAL;
		add_eth(v, rule, flow);
		if (flow->kind >= PV_FLOW_IP)
			add_ip(rule, flow);
		if (flow->kind >= PV_FLOW_3TUPLE)
			add_l4(rule, flow);
	}
	rule->attr.size = (uint16_t)(sizeof(rule->attr) + rule->len);
}

/* The specifications must follow the attributes without a gap. */
_Static_assert(offsetof(struct rule, spec) == sizeof(struct ibv_flow_attr), "specifications follow the attributes");

static int create(struct verbs_ring *v, struct rule *rule, struct ibv_flow **out)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, ibv_create_flow);

	if (!vctx || !verbs_get_ctx_op(v->ctx, ibv_destroy_flow))
		return -EOPNOTSUPP;
	errno = 0;
	*out = vctx->ibv_create_flow(v->qp, &rule->attr);
	if (!*out)
		return errno ? -errno : -EINVAL;
	return 0;
}

int pv_verbs_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_flow *f;
	struct rule rule;
	int rc;

	if (v->gone)
		return -ENODEV;
	build(v, flow, &rule);
	f = v->mem->alloc(v->mem->ctx, sizeof(*f));
	if (!f)
		return -ENOMEM;
	rc = create(v, &rule, &f->flow);
	if (rc) {
		v->mem->free(v->mem->ctx, f, sizeof(*f));
		return rc;
	}
	f->handle = *handle = ++v->next_handle;
	f->next = v->flows;
	v->flows = f;
	return 0;
}

static int destroy(struct verbs_ring *v, struct ibv_flow *flow)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, ibv_destroy_flow);

	return vctx ? -vctx->ibv_destroy_flow(flow) : -EOPNOTSUPP;
}

int pv_verbs_flow_del(struct pv_ring *r, uint64_t handle)
{
	struct verbs_ring *v = verbs_ring(r);

	for (struct verbs_flow **at = &v->flows; *at; at = &(*at)->next) {
		struct verbs_flow *f = *at;
		int rc;

		if (f->handle != handle)
			continue;
		*at = f->next;
		rc = destroy(v, f->flow);
		v->mem->free(v->mem->ctx, f, sizeof(*f));
		return rc;
	}
	return -ENOENT;
}

void pv_verbs_flow_clear(struct verbs_ring *v)
{
	while (v->flows) {
		struct verbs_flow *f = v->flows;

		v->flows = f->next;
		if (!v->forgotten)
			destroy(v, f->flow);
		v->mem->free(v->mem->ctx, f, sizeof(*f));
	}
}

/* Bits of the kinds that the provider takes, tried with addresses that nobody has (RFC 5737, RFC 3849). The catch-all is not
 * tried, it could take another's frames for a moment: who has rules at all is asked for it when it is wanted. */
uint32_t pv_verbs_flow_kinds(struct verbs_ring *v)
{
	static const uint8_t mac[PV_ETH_ALEN] = { 0x02, 0x00, 0x5e, 0x00, 0x53, 0x01 };
	struct pv_flow flow = { .l4_proto = 17, .dst_port = 9, .src_port = 9 };
	uint32_t kinds = 0;

	memcpy(flow.dst_mac, mac, sizeof(mac));
	flow.dst = pv_addr_from4((const uint8_t[]){ 192, 0, 2, 1 });
	flow.src = pv_addr_from4((const uint8_t[]){ 192, 0, 2, 2 });
	for (uint32_t kind = PV_FLOW_ETHER; kind < PV_FLOW_KINDS; kind++) {
		struct ibv_flow *f;
		struct rule rule;

		flow.kind = (enum pv_flow_kind)kind;
		build(v, &flow, &rule);
		if (create(v, &rule, &f))
			continue;
		destroy(v, f);
		kinds |= 1u << kind;
	}
	return kinds ? kinds | 1u << PV_FLOW_ALL : 0;
}
