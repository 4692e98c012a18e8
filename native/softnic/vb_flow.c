/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules: a list of verbs specifications becomes one match of the fabric.
 *
 * What cannot be matched is refused, never ignored: a rule that matches too much would take other programs' frames.
 */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"

/* Each kind of header once, each layer once. */
enum { LAYER_ETH = 1, LAYER_IP = 2, LAYER_L4 = 4 };

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

static void ip_version(struct sn_rule *r, uint8_t version)
{
	r->value.ip_version = version;
	r->mask.ip_version = 0xff;
}

static int spec_ip4(struct sn_rule *r, const struct ibv_flow_spec_ipv4 *s)
{
	const struct ibv_flow_ipv4_ext_filter val = { .src_ip = s->val.src_ip, .dst_ip = s->val.dst_ip };
	const struct ibv_flow_ipv4_ext_filter mask = { .src_ip = s->mask.src_ip, .dst_ip = s->mask.dst_ip };

	take_ip4(&r->value, &val);
	take_ip4(&r->mask, &mask);
	ip_version(r, 4);
	return 0;
}

static int spec_ip4_ext(struct sn_rule *r, const struct ibv_flow_spec_ipv4_ext *s)
{
	if (s->mask.flags)
		return EOPNOTSUPP;
	take_ip4(&r->value, &s->val);
	take_ip4(&r->mask, &s->mask);
	ip_version(r, 4);
	return 0;
}

static int spec_l4(struct sn_rule *r, const struct ibv_flow_spec_tcp_udp *s)
{
	uint8_t proto = s->type == IBV_FLOW_SPEC_UDP ? 17 : 6;

	if (r->mask.ip_proto && (r->value.ip_proto & r->mask.ip_proto) != (proto & r->mask.ip_proto))
		return EINVAL;
	r->value.ip_proto = proto;
	r->mask.ip_proto = 0xff;
	r->value.src_port = s->val.src_port;
	r->value.dst_port = s->val.dst_port;
	r->mask.src_port = s->mask.src_port;
	r->mask.dst_port = s->mask.dst_port;
	return 0;
}

struct spec_kind {
	enum ibv_flow_spec_type type;
	uint32_t layer;
	size_t size;
};

static const struct spec_kind kinds[] = {
	{ IBV_FLOW_SPEC_ETH, LAYER_ETH, sizeof(struct ibv_flow_spec_eth) },
	{ IBV_FLOW_SPEC_IPV4, LAYER_IP, sizeof(struct ibv_flow_spec_ipv4) },
	{ IBV_FLOW_SPEC_IPV4_EXT, LAYER_IP, sizeof(struct ibv_flow_spec_ipv4_ext) },
	{ IBV_FLOW_SPEC_IPV6, LAYER_IP, sizeof(struct ibv_flow_spec_ipv6) },
	{ IBV_FLOW_SPEC_UDP, LAYER_L4, sizeof(struct ibv_flow_spec_tcp_udp) },
	{ IBV_FLOW_SPEC_TCP, LAYER_L4, sizeof(struct ibv_flow_spec_tcp_udp) },
};

static int spec_take(struct sn_rule *r, const struct ibv_flow_spec *s)
{
	switch (s->hdr.type) {
	case IBV_FLOW_SPEC_ETH:
		take_eth(&r->value, &s->eth.val);
		take_eth(&r->mask, &s->eth.mask);
		return 0;
	case IBV_FLOW_SPEC_IPV4:
		return spec_ip4(r, &s->ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return spec_ip4_ext(r, &s->ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		take_ip6(&r->value, &s->ipv6.val);
		take_ip6(&r->mask, &s->ipv6.mask);
		ip_version(r, 6);
		return 0;
	default:
		return spec_l4(r, &s->tcp_udp);
	}
}

static bool known_but_unsupported(enum ibv_flow_spec_type type)
{
	switch (type & ~(unsigned int)IBV_FLOW_SPEC_INNER) {
	case IBV_FLOW_SPEC_ESP:
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
	case IBV_FLOW_SPEC_GRE:
	case IBV_FLOW_SPEC_MPLS:
	case IBV_FLOW_SPEC_ACTION_TAG:
	case IBV_FLOW_SPEC_ACTION_DROP:
	case IBV_FLOW_SPEC_ACTION_HANDLE:
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return true;
	default:
		return type & IBV_FLOW_SPEC_INNER;
	}
}

static int specs_take(struct sn_rule *r, const struct ibv_flow_attr *a)
{
	const uint8_t *at = (const uint8_t *)(a + 1);
	/* pyverbs gives the size without the specifications; what counts is what each says of itself. */
	size_t left = a->size > sizeof(*a) ? a->size - sizeof(*a) : SIZE_MAX;
	uint32_t layers = 0;

	for (uint32_t i = 0; i < a->num_of_specs; i++) {
		const struct spec_kind *k = NULL;
		struct ibv_flow_spec s; /* a copy: behind an attribute of 20 bytes it is not aligned */
		int err;

		if (left < sizeof(s.hdr))
			return EINVAL;
		memcpy(&s.hdr, at, sizeof(s.hdr));
		if (s.hdr.size > left)
			return EINVAL;
		for (size_t j = 0; j < pv_array_size(kinds); j++) {
			if (kinds[j].type == s.hdr.type)
				k = &kinds[j];
		}
		if (!k)
			return known_but_unsupported(s.hdr.type) ? EOPNOTSUPP : EINVAL;
		/* From the outermost header inwards, as a frame is. */
		if (s.hdr.size != k->size || layers >= k->layer)
			return EINVAL;
		layers |= k->layer;
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
	/* These three match by kind alone. */
	return any_set(&r->mask, sizeof(r->mask)) ? EINVAL : 0;
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
