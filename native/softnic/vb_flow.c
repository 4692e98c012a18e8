/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules: a list of verbs specifications becomes one match of the fabric.
 *
 * What cannot be matched is refused, never ignored: a rule that matches too much would take other programs' frames.
 */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"

/* Each kind of header once, each layer once; what is done with the frame may stand anywhere. */
enum {
	LAYER_ETH = 0x1,
	LAYER_IP = 0x2,
	LAYER_L4 = 0x4,
	LAYER_TUNNEL = 0x8,
	LAYER_INNER_ETH = 0x10,
	LAYER_INNER_IP = 0x20,
	LAYER_INNER_L4 = 0x40,
	LAYERS = 0x7f,
	ACTION_TAG = 0x100,
	ACTION_DROP = 0x200
};
#define INNER_SHIFT 4

static bool any_set(const void *p, size_t len)
{
	const uint8_t *b = p;

	while (len--) {
		if (*b++)
			return true;
	}
	return false;
}

static void take_eth(struct sn_match *m, const struct ibv_flow_eth_filter *f)
{
	memcpy(m->dst_mac, f->dst_mac, 6);
	memcpy(m->src_mac, f->src_mac, 6);
	m->ethertype = f->ether_type;
	m->vlan_tci = f->vlan_tag;
}

static void take_ip6(struct sn_match *m, const struct ibv_flow_ipv6_filter *f)
{
	memcpy(m->src_ip, f->src_ip, 16);
	memcpy(m->dst_ip, f->dst_ip, 16);
	m->flow_label = f->flow_label;
	m->ip_proto = f->next_hdr;
	m->tos = f->traffic_class;
	m->ttl = f->hop_limit;
}

static void take_ip4(struct sn_match *m, const struct ibv_flow_ipv4_ext_filter *f)
{
	m->src_ip[0] = f->src_ip;
	m->dst_ip[0] = f->dst_ip;
	m->ip_proto = f->proto;
	m->tos = f->tos;
	m->ttl = f->ttl;
}

/* The headers that a specification speaks of: the frame's, or those of the frame inside a tunnel. */
struct level {
	struct sn_match *value, *mask;
};

static void ip_version(const struct level *l, uint8_t version)
{
	l->value->ip_version = version;
	l->mask->ip_version = 0xff;
}

static int spec_eth(const struct level *l, const struct ibv_flow_spec_eth *s)
{
	take_eth(l->value, &s->val);
	take_eth(l->mask, &s->mask);
	return 0;
}

static int spec_ip4(const struct level *l, const struct ibv_flow_spec_ipv4 *s)
{
	const struct ibv_flow_ipv4_ext_filter val = { .src_ip = s->val.src_ip, .dst_ip = s->val.dst_ip };
	const struct ibv_flow_ipv4_ext_filter mask = { .src_ip = s->mask.src_ip, .dst_ip = s->mask.dst_ip };

	take_ip4(l->value, &val);
	take_ip4(l->mask, &mask);
	ip_version(l, 4);
	return 0;
}

static int spec_ip4_ext(const struct level *l, const struct ibv_flow_spec_ipv4_ext *s)
{
	if (s->mask.flags)
		return EOPNOTSUPP;
	take_ip4(l->value, &s->val);
	take_ip4(l->mask, &s->mask);
	ip_version(l, 4);
	return 0;
}

/* A label has 20 bits. */
static int spec_ip6(const struct level *l, const struct ibv_flow_spec_ipv6 *s)
{
	if ((be32toh(s->val.flow_label) | be32toh(s->mask.flow_label)) >> 20)
		return EINVAL;
	take_ip6(l->value, &s->val);
	take_ip6(l->mask, &s->mask);
	ip_version(l, 6);
	return 0;
}

static int spec_l4(const struct level *l, const struct ibv_flow_spec_tcp_udp *s)
{
	uint8_t proto = (s->type & ~(unsigned int)IBV_FLOW_SPEC_INNER) == IBV_FLOW_SPEC_UDP ? 17 : 6;

	if (l->mask->ip_proto && (l->value->ip_proto & l->mask->ip_proto) != (proto & l->mask->ip_proto))
		return EINVAL;
	l->value->ip_proto = proto;
	l->mask->ip_proto = 0xff;
	l->value->src_port = s->val.src_port;
	l->value->dst_port = s->val.dst_port;
	l->mask->src_port = s->mask.src_port;
	l->mask->dst_port = s->mask.dst_port;
	return 0;
}

/* A network's number has 24 bits, and its tunnel is UDP. */
static int spec_vxlan(struct sn_rule *r, const struct ibv_flow_spec_tunnel *s)
{
	uint32_t val = be32toh(s->val.tunnel_id), mask = be32toh(s->mask.tunnel_id);

	if ((val | mask) >> 24 || (r->mask.ip_proto && r->value.ip_proto != 17))
		return EINVAL;
	r->vxlan = true;
	r->inner_value.vni = htobe32(val << 8);
	r->inner_mask.vni = htobe32(mask << 8);
	return 0;
}

/* As in a completion of mlx5: 24 bits. */
static int spec_tag(struct sn_rule *r, const struct ibv_flow_spec_action_tag *s)
{
	if (s->tag_id >> 24)
		return EINVAL;
	r->tagged = true;
	r->tag = s->tag_id;
	return 0;
}

struct spec_kind {
	enum ibv_flow_spec_type type;
	uint32_t layer;
	size_t size;
};

/* Of those up to UDP and TCP there is the inner kind, too. */
static const struct spec_kind kinds[] = {
	{ IBV_FLOW_SPEC_ETH, LAYER_ETH, sizeof(struct ibv_flow_spec_eth) },
	{ IBV_FLOW_SPEC_IPV4, LAYER_IP, sizeof(struct ibv_flow_spec_ipv4) },
	{ IBV_FLOW_SPEC_IPV4_EXT, LAYER_IP, sizeof(struct ibv_flow_spec_ipv4_ext) },
	{ IBV_FLOW_SPEC_IPV6, LAYER_IP, sizeof(struct ibv_flow_spec_ipv6) },
	{ IBV_FLOW_SPEC_UDP, LAYER_L4, sizeof(struct ibv_flow_spec_tcp_udp) },
	{ IBV_FLOW_SPEC_TCP, LAYER_L4, sizeof(struct ibv_flow_spec_tcp_udp) },
	{ IBV_FLOW_SPEC_VXLAN_TUNNEL, LAYER_TUNNEL, sizeof(struct ibv_flow_spec_tunnel) },
	{ IBV_FLOW_SPEC_ACTION_TAG, ACTION_TAG, sizeof(struct ibv_flow_spec_action_tag) },
	{ IBV_FLOW_SPEC_ACTION_DROP, ACTION_DROP, sizeof(struct ibv_flow_spec_action_drop) },
};

static int spec_take(struct sn_rule *r, const struct ibv_flow_spec *s)
{
	bool inner = s->hdr.type & IBV_FLOW_SPEC_INNER;
	const struct level l = {
		.value = inner ? &r->inner_value.match : &r->value,
		.mask = inner ? &r->inner_mask.match : &r->mask,
	};

	switch (s->hdr.type & ~(unsigned int)IBV_FLOW_SPEC_INNER) {
	case IBV_FLOW_SPEC_ETH:
		return spec_eth(&l, &s->eth);
	case IBV_FLOW_SPEC_IPV4:
		return spec_ip4(&l, &s->ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return spec_ip4_ext(&l, &s->ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return spec_ip6(&l, &s->ipv6);
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
		return spec_vxlan(r, &s->tunnel);
	case IBV_FLOW_SPEC_ACTION_TAG:
		return spec_tag(r, &s->flow_tag);
	case IBV_FLOW_SPEC_ACTION_DROP:
		r->drop = true;
		return 0;
	default:
		return spec_l4(&l, &s->tcp_udp);
	}
}

/* NVGRE is GRE with a key; for Geneve verbs have no specification at all. */
static bool known_but_unsupported(enum ibv_flow_spec_type type)
{
	switch (type & ~(unsigned int)IBV_FLOW_SPEC_INNER) {
	case IBV_FLOW_SPEC_ESP:
	case IBV_FLOW_SPEC_GRE:
	case IBV_FLOW_SPEC_MPLS:
	case IBV_FLOW_SPEC_ACTION_HANDLE:
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return true;
	default:
		return false;
	}
}

static const struct spec_kind *find_kind(enum ibv_flow_spec_type type, uint32_t *layer)
{
	bool inner = type & IBV_FLOW_SPEC_INNER;

	for (size_t i = 0; i < pv_array_size(kinds); i++) {
		const struct spec_kind *k = &kinds[i];

		if (k->type != (type & ~(unsigned int)IBV_FLOW_SPEC_INNER) || (inner && k->layer > LAYER_L4))
			continue;
		*layer = inner ? k->layer << INNER_SHIFT : k->layer;
		return k;
	}
	return NULL;
}

/* Whether `layer` may follow: headers from the outermost inwards, as a frame is, the inner ones behind a tunnel. */
static bool in_order(uint32_t layers, uint32_t layer)
{
	if (layer > LAYERS)
		return !(layers & layer);
	return (layers & LAYERS) < layer && (layer <= LAYER_TUNNEL || layers & LAYER_TUNNEL);
}

static int specs_take(struct sn_rule *r, const struct ibv_flow_attr *a)
{
	const uint8_t *at = (const uint8_t *)(a + 1);
	/* pyverbs gives the size without the specifications; what counts is what each says of itself. */
	size_t left = a->size > sizeof(*a) ? a->size - sizeof(*a) : SIZE_MAX;
	uint32_t layers = 0, layer;

	for (uint32_t i = 0; i < a->num_of_specs; i++) {
		const struct spec_kind *k;
		struct ibv_flow_spec s; /* a copy: behind an attribute of 20 bytes it is not aligned */
		int err;

		if (left < sizeof(s.hdr))
			return EINVAL;
		memcpy(&s.hdr, at, sizeof(s.hdr));
		if (s.hdr.size > left)
			return EINVAL;
		k = find_kind(s.hdr.type, &layer);
		if (!k)
			return known_but_unsupported(s.hdr.type) ? EOPNOTSUPP : EINVAL;
		if (s.hdr.size != k->size || !in_order(layers, layer))
			return EINVAL;
		layers |= layer;
		memcpy(&s, at, k->size);
		err = spec_take(r, &s);
		if (err)
			return err;
		at += k->size;
		left -= left == SIZE_MAX ? 0 : k->size;
	}
	return 0;
}

int vb_flow_parse(struct sn_rule *r, const struct ibv_flow_attr *a)
{
	int err;

	if (a->comp_mask || a->port != 1)
		return EINVAL;
	if (a->flags)
		return EOPNOTSUPP;
	memset(r, 0, sizeof(*r));
	r->priority = a->priority;
	err = specs_take(r, a);
	if (err)
		return err;
	switch (a->type) {
	case IBV_FLOW_ATTR_NORMAL:
		return 0; /* without a specification it matches everything, as on mlx5 */
	case IBV_FLOW_ATTR_ALL_DEFAULT:
		r->all_default = true;
		break;
	case IBV_FLOW_ATTR_MC_DEFAULT:
		r->mc_default = true;
		break;
	case IBV_FLOW_ATTR_SNIFFER:
		r->sniffer = true;
		break;
	default:
		return EINVAL;
	}
	/* These three match by kind alone, and deliver. */
	return any_set(&r->mask, sizeof(r->mask)) || r->vxlan || r->tagged || r->drop ? EINVAL : 0;
}

struct ibv_flow *vb_create_flow(struct ibv_qp *ibv, struct ibv_flow_attr *a)
{
	struct vb_qp *qp = vb_qp(ibv);
	struct vb_ctx *ctx = vb_ctx(ibv->context);
	struct sn_rxq *queues[1u << VB_MAX_IND_LOG];
	struct vb_flow *flow;
	struct sn_rule rule;
	int err = ctx->gone ? ENODEV : vb_flow_parse(&rule, a);

	if (!err && !qp->ind_table && !qp->has_rq)
		err = EINVAL;
	if (err)
		return vb_fail(err);
	rule.queues = queues;
	if (qp->ind_table) {
		rule.nqueues = qp->ind_table->size;
		for (uint32_t i = 0; i < rule.nqueues; i++)
			queues[i] = qp->ind_table->wqs[i]->rq.rxq;
		rule.rss_fields = qp->rss_fields;
		memcpy(rule.rss_key, qp->rss_key, sizeof(rule.rss_key));
	} else {
		rule.nqueues = 1;
		queues[0] = qp->rq.rxq;
	}
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return vb_fail(ENOMEM);
	err = -sn_rule_add(qp->port ? qp->port : ctx->port, &rule, &flow->handle);
	if (err) {
		free(flow);
		return vb_fail(err == ENOSPC ? ENOMEM : err);
	}
	flow->ibv.context = ibv->context;
	flow->ibv.handle = (uint32_t)flow->handle;
	flow->qp = qp;
	atomic_fetch_add(&qp->uses, 1);
	pthread_mutex_lock(&ctx->lock);
	pv_list_add(&ctx->flows, &flow->node);
	pthread_mutex_unlock(&ctx->lock);
	return &flow->ibv;
}

int vb_destroy_flow(struct ibv_flow *ibv)
{
	struct vb_flow *flow = (struct vb_flow *)ibv;
	struct vb_ctx *ctx = vb_ctx(ibv->context);

	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&flow->node);
	pthread_mutex_unlock(&ctx->lock);
	if (!ctx->gone)
		sn_rule_del(flow->qp->port ? flow->qp->port : ctx->port, flow->handle);
	atomic_fetch_sub(&flow->qp->uses, 1);
	free(flow);
	return 0;
}
