/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules. A rule is an attribute block followed by one specification per layer, each with a mask, the outermost first; every rule
 * names the MAC, because NICs steer by it first. A rule for untagged frames says nothing of VLANs: verbs cannot say "no tag", and the
 * network layer looks at the tag anyway.
 *
 * Priorities. Devices do not promise which of two matching rules of one priority takes a frame, so the tighter rule has the lower
 * number. mlx5 has 16 of them.
 *
 * Over several queues one rule of ours may be several of the device's, since a device spreads one kind of packets by one set of fields.
 */
#include <errno.h>

#include "base/bytes.h"
#include "ring/frame.h"
#include "ring/verbs_priv.h"

#define PRIORITY_MAX 15

struct rule {
	struct ibv_flow_attr attr;
	uint8_t spec[512] pv_aligned(4);
	uint32_t len;
};

/* The specifications must follow the attributes without a gap. */
_Static_assert(offsetof(struct rule, spec) == sizeof(struct ibv_flow_attr), "specifications follow the attributes");
/* The longest there is. */
_Static_assert(2 * (sizeof(struct ibv_flow_spec_eth) + sizeof(struct ibv_flow_spec_ipv6) + sizeof(struct ibv_flow_spec_tcp_udp)) +
		       sizeof(struct ibv_flow_spec_tunnel) <=
		   sizeof(((struct rule *)0)->spec),
	       "specifications fit");

static void *add_spec(struct rule *rule, uint32_t type, size_t size)
{
	struct ibv_flow_spec_eth *head = (void *)(rule->spec + rule->len);

	memset(head, 0, size);
	head->type = (enum ibv_flow_spec_type)type;
	head->size = (uint16_t)size;
	rule->len += (uint32_t)size;
	rule->attr.num_of_specs++;
	return head;
}

static void add_eth(struct rule *rule, const struct pv_flow *flow, const uint8_t mac[PV_ETH_ALEN])
{
	struct ibv_flow_spec_eth *eth = add_spec(rule, IBV_FLOW_SPEC_ETH, sizeof(*eth));

	memcpy(eth->val.dst_mac, mac, PV_ETH_ALEN);
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

/* Addresses, of the frame or (`level` IBV_FLOW_SPEC_INNER) of the one inside it. */
static void add_ip4(struct rule *rule, uint32_t level, const struct pv_addr *dst, const struct pv_addr *src,
		    const struct pv_flow *by)
{
	/* The longer kind is younger than some kernels, and needed for the type of service alone. */
	if (by && by->match & PV_FLOW_BY_TOS) {
		struct ibv_flow_spec_ipv4_ext *ip = add_spec(rule, IBV_FLOW_SPEC_IPV4_EXT | level, sizeof(*ip));

		ip->val.dst_ip = dst->w[3];
		ip->mask.dst_ip = UINT32_MAX;
		ip->val.src_ip = src ? src->w[3] : 0;
		ip->mask.src_ip = src ? UINT32_MAX : 0;
		ip->val.tos = by->tos & by->tos_mask;
		ip->mask.tos = by->tos_mask;
	} else {
		struct ibv_flow_spec_ipv4 *ip = add_spec(rule, IBV_FLOW_SPEC_IPV4 | level, sizeof(*ip));

		ip->val.dst_ip = dst->w[3];
		ip->mask.dst_ip = UINT32_MAX;
		ip->val.src_ip = src ? src->w[3] : 0;
		ip->mask.src_ip = src ? UINT32_MAX : 0;
	}
}

static void add_ip6(struct rule *rule, uint32_t level, const struct pv_addr *dst, const struct pv_addr *src,
		    const struct pv_flow *by)
{
	struct ibv_flow_spec_ipv6 *ip = add_spec(rule, IBV_FLOW_SPEC_IPV6 | level, sizeof(*ip));

	memcpy(ip->val.dst_ip, dst->b, 16);
	memset(ip->mask.dst_ip, 0xff, 16);
	if (src) {
		memcpy(ip->val.src_ip, src->b, 16);
		memset(ip->mask.src_ip, 0xff, 16);
	}
	if (by && by->match & PV_FLOW_BY_TOS) {
		ip->val.traffic_class = by->tos & by->tos_mask;
		ip->mask.traffic_class = by->tos_mask;
	}
	if (by && by->match & PV_FLOW_BY_LABEL) {
		pv_put32(&ip->val.flow_label, by->flow_label);
		pv_put32(&ip->mask.flow_label, 0xfffff);
	}
}

static void add_ip(struct rule *rule, uint32_t level, const struct pv_addr *dst, const struct pv_addr *src,
		   const struct pv_flow *by)
{
	if (pv_addr_is4(dst))
		add_ip4(rule, level, dst, src, by);
	else
		add_ip6(rule, level, dst, src, by);
}

/* A port of 0: any. */
static void add_l4(struct rule *rule, uint32_t level, uint8_t proto, uint16_t dst_port, uint16_t src_port)
{
	uint32_t type = proto == 6 ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP;
	struct ibv_flow_spec_tcp_udp *l4 = add_spec(rule, type | level, sizeof(*l4));

	pv_put16(&l4->val.dst_port, dst_port);
	l4->mask.dst_port = dst_port ? UINT16_MAX : 0;
	pv_put16(&l4->val.src_port, src_port);
	l4->mask.src_port = src_port ? UINT16_MAX : 0;
}

static void add_vxlan(struct rule *rule, const struct pv_flow *flow)
{
	static const uint8_t any[PV_ETH_ALEN];
	const struct pv_flow_inner *in = &flow->inner;
	struct ibv_flow_spec_tunnel *tunnel = add_spec(rule, IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(*tunnel));

	pv_put32(&tunnel->val.tunnel_id, flow->vni);
	pv_put32(&tunnel->mask.tunnel_id, 0xffffff);
	if (in->kind >= PV_FLOW_ETHER && !pv_mac_eq(in->dst_mac, any)) {
		struct ibv_flow_spec_eth *eth = add_spec(rule, IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, sizeof(*eth));

		memcpy(eth->val.dst_mac, in->dst_mac, PV_ETH_ALEN);
		memset(eth->mask.dst_mac, 0xff, PV_ETH_ALEN);
	}
	if (in->kind >= PV_FLOW_IP)
		add_ip(rule, IBV_FLOW_SPEC_INNER, &in->dst, in->kind == PV_FLOW_5TUPLE ? &in->src : NULL, NULL);
	if (in->kind >= PV_FLOW_3TUPLE)
		add_l4(rule, IBV_FLOW_SPEC_INNER, in->l4_proto, in->dst_port, in->kind == PV_FLOW_5TUPLE ? in->src_port : 0);
}

/* `proto` narrows a rule for an address to one protocol. */
static uint16_t priority(const struct pv_flow *flow, uint8_t proto)
{
	static const uint8_t of_kind[PV_FLOW_KINDS] = {
		[PV_FLOW_ETHER] = 14, [PV_FLOW_IP] = 12, [PV_FLOW_3TUPLE] = 8, [PV_FLOW_5TUPLE] = 4
	};
	int p = of_kind[flow->kind];

	p -= flow->kind == PV_FLOW_ETHER ? flow->ethertype != 0 : proto != 0;
	/* Between a rule by ports and a tighter one there are two steps for rules that were moved (verbs_rxq.c). */
	p -= !(flow->match & (PV_FLOW_BY_TOS | PV_FLOW_BY_LABEL)) ? 0 : flow->kind >= PV_FLOW_3TUPLE ? 3 : 2;
	p -= flow->match & PV_FLOW_IN_VXLAN ? 1 + (int)flow->inner.kind : 0;
	return (uint16_t)PV_MAX(p, 0);
}

static void build(const struct verbs_ring *v, const struct pv_flow *flow, uint8_t proto, struct rule *rule)
{
	memset(rule, 0, sizeof(*rule));
	rule->attr.port = v->port;
	if (flow->kind == PV_FLOW_ALL) {
		rule->attr.type = flow->match & PV_FLOW_SNIFFER ? IBV_FLOW_ATTR_SNIFFER : IBV_FLOW_ATTR_ALL_DEFAULT;
	} else {
		const struct pv_addr *src = flow->kind == PV_FLOW_5TUPLE ? &flow->src : NULL;
		uint8_t mac[PV_ETH_ALEN];

		rule->attr.type = IBV_FLOW_ATTR_NORMAL;
		rule->attr.priority = priority(flow, proto);
		pv_frame_flow_mac(flow, v->ring.caps.mac, mac);
		add_eth(rule, flow, mac);
		if (flow->kind >= PV_FLOW_IP)
			add_ip(rule, 0, &flow->dst, src, flow);
		if (flow->kind >= PV_FLOW_3TUPLE)
			add_l4(rule, 0, flow->l4_proto, flow->dst_port, src ? flow->src_port : 0);
		else if (proto)
			add_l4(rule, 0, proto, 0, 0);
		if (flow->match & PV_FLOW_IN_VXLAN)
			add_vxlan(rule, flow);
	}
	rule->attr.size = (uint16_t)(sizeof(rule->attr) + rule->len);
}

bool pv_verbs_flow_same(const struct verbs_ring *v, const struct pv_flow *a, const struct pv_flow *b)
{
	struct rule one, other;

	if (a->dst_port != b->dst_port || a->src_port != b->src_port)
		return false;
	build(v, a, 0, &one);
	build(v, b, 0, &other);
	return !memcmp(&one, &other, sizeof(one));
}

static int create(struct verbs_ring *v, struct ibv_qp *qp, struct rule *rule, struct ibv_flow **out)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, ibv_create_flow);

	if (!vctx || !verbs_get_ctx_op(v->ctx, ibv_destroy_flow))
		return -EOPNOTSUPP;
	errno = 0;
	*out = vctx->ibv_create_flow(qp, &rule->attr);
	if (!*out)
		return errno ? -errno : -EINVAL;
	return 0;
}

static int destroy(struct verbs_ring *v, struct ibv_flow *flow)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, ibv_destroy_flow);

	return vctx ? -vctx->ibv_destroy_flow(flow) : -EOPNOTSUPP;
}

int pv_verbs_flow_create(struct verbs_ring *v, const struct pv_flow *flow, struct ibv_qp *qp, uint32_t level, struct ibv_flow **out)
{
	struct rule rule;

	build(v, flow, 0, &rule);
	rule.attr.priority = (uint16_t)(rule.attr.priority - PV_MIN(level, rule.attr.priority));
	return create(v, qp, &rule, out);
}

int pv_verbs_flow_destroy(struct verbs_ring *v, struct ibv_flow *flow)
{
	return destroy(v, flow);
}

static int destroy_all(struct verbs_ring *v, struct verbs_flow *f)
{
	int rc = 0;

	while (f->n) {
		int one = destroy(v, f->flow[--f->n]);

		rc = rc ? rc : one;
	}
	return rc;
}

/* The device's rule of `flow` for one protocol, or (0) for all. */
static int add_one(struct verbs_ring *v, const struct pv_flow *flow, uint8_t proto, struct verbs_flow *f)
{
	struct ibv_qp *qp = v->qp;
	struct rule rule;
	int rc;

	if (v->rss) {
		rc = pv_verbs_rss_qp(v, flow, proto, &qp);
		if (rc)
			return rc;
	}
	build(v, flow, proto, &rule);
	rc = create(v, qp, &rule, &f->flow[f->n]);
	f->n += !rc;
	return rc;
}

static int add_parts(struct verbs_ring *v, const struct pv_flow *flow, struct verbs_flow *f)
{
	int rc = add_one(v, flow, 0, f);

	if (!rc && pv_verbs_rss_splits(v, flow)) {
		rc = add_one(v, flow, 17, f);
		if (!rc)
			rc = add_one(v, flow, 6, f);
		if (rc)
			destroy_all(v, f);
	}
	return rc;
}

int pv_verbs_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_flow *f;
	int rc;

	if (v->gone)
		return -ENODEV;
	f = v->mem->alloc(v->mem->ctx, sizeof(*f));
	if (!f)
		return -ENOMEM;
	memset(f, 0, sizeof(*f));
	f->of = *flow;
	rc = flow->rxqs ? pv_verbs_rxq_lead(v, f, flow->rxqs) : add_parts(v, flow, f);
	if (rc) {
		v->mem->free(v->mem->ctx, f, sizeof(*f));
		return rc;
	}
	f->handle = *handle = ++v->next_handle;
	f->next = v->flows;
	v->flows = f;
	return 0;
}

struct verbs_flow *pv_verbs_flow_find(struct verbs_ring *v, uint64_t handle)
{
	struct verbs_flow *f = v->flows;

	while (f && f->handle != handle)
		f = f->next;
	return f;
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
		if (f->way.set && !v->gone)
			pv_verbs_rxq_drain(v);
		rc = destroy_all(v, f);
		if (f->way.set && !v->gone)
			pv_verbs_rxq_drain(v);
		pv_verbs_rxq_unuse(v, f);
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
			destroy_all(v, f);
		pv_verbs_rxq_unuse(v, f);
		v->mem->free(v->mem->ctx, f, sizeof(*f));
	}
}

static bool try(struct verbs_ring *v, const struct pv_flow *flow)
{
	struct verbs_flow f = { .n = 0 };

	if (add_parts(v, flow, &f))
		return false;
	destroy_all(v, &f);
	return true;
}

/* What the provider takes, tried with addresses that nobody has (RFC 5737, RFC 3849). Catch-all and sniffer are not tried, they could
 * take another's frames for a moment, or ours: who has rules at all is asked for them when they are wanted. */
void pv_verbs_flow_probe(struct verbs_ring *v)
{
	static const uint8_t mac[PV_ETH_ALEN] = { 0x02, 0x00, 0x5e, 0x00, 0x53, 0x01 };
	static const uint8_t none6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 };
	struct pv_flow base = { .l4_proto = 17, .dst_port = 9, .src_port = 9 }, flow;
	struct pv_ring_caps *caps = &v->ring.caps;

	memcpy(base.dst_mac, mac, sizeof(mac));
	base.dst = pv_addr_from4((const uint8_t[]){ 192, 0, 2, 1 });
	base.src = pv_addr_from4((const uint8_t[]){ 192, 0, 2, 2 });
	base.tos = base.tos_mask = 0xfc;
	base.vni = 1;
	for (uint32_t kind = PV_FLOW_ETHER; kind < PV_FLOW_KINDS; kind++) {
		base.kind = (enum pv_flow_kind)kind;
		caps->flow_kinds |= try(v, &base) ? 1u << kind : 0;
	}
	if (!caps->flow_kinds)
		return;
	caps->flow_kinds |= 1u << PV_FLOW_ALL;
	flow = base;
	flow.kind = PV_FLOW_3TUPLE;
	caps->flow_match = PV_FLOW_SNIFFER;
	flow.match = PV_FLOW_BY_TOS;
	caps->flow_match |= try(v, &flow) ? flow.match : 0;
	flow.match = PV_FLOW_IN_VXLAN;
	flow.dst_port = PV_VXLAN_PORT;
	flow.inner = (struct pv_flow_inner){
		.kind = PV_FLOW_5TUPLE, .l4_proto = 6, .dst = base.dst, .src = base.src, .dst_port = 9, .src_port = 9
	};
	caps->flow_match |= try(v, &flow) ? flow.match : 0;
	flow = base;
	flow.kind = PV_FLOW_IP;
	flow.dst = pv_addr_from6(none6);
	flow.match = PV_FLOW_BY_LABEL;
	caps->flow_match |= try(v, &flow) ? flow.match : 0;
}
