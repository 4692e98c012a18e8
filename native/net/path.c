/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a destination to everything the headers need: interface, source address, next hop, MTU. Done once per flow; the result
 * is good until the generation changes.
 */
#include "net/internal.h"

static const uint8_t mac_broadcast[PV_ETH_ALEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

/* ---- source address ------------------------------------------------------------------------------------------------------ */

static uint32_t common_bits(const struct pv_addr *a, const struct pv_addr *b)
{
	for (uint32_t i = 0; i < 16; i++) {
		uint8_t x = a->b[i] ^ b->b[i];

		if (x)
			return i * 8 + (uint32_t)__builtin_clz(x) - 24;
	}
	return 128;
}

/* RFC 4291 2.7 scopes: link-local 2, site-local 5 (unicast: deprecated, not told apart), global 14. */
static uint32_t scope6(const struct pv_addr *a)
{
	if (a->b[0] == 0xff)
		return a->b[1] & 0x0f;
	return pv_addr_is_unicast_ll6(a) ? 2 : 14;
}

/* RFC 6724 5, rule 2: the smallest scope that is not smaller than the destination's; any smaller one is worse. */
static uint32_t scope_cost(uint32_t source, uint32_t dst)
{
	return source >= dst ? source - dst : 16 + dst - source;
}

static const struct pv_addr *source6(const struct pv_iface *ifp, const struct pv_addr *dst)
{
	const struct pv_addr *best = NULL;
	uint32_t best_cost = 0, best_bits = 0;

	for (uint32_t i = 0; i < ifp->cfg.naddr; i++) {
		const struct pv_addr *a = &ifp->cfg.addr[i].addr;
		uint32_t cost, bits;

		if (pv_addr_is4(a))
			continue;
		if (pv_addr_eq(a, dst))
			return a;
		cost = scope_cost(scope6(a), scope6(dst));
		bits = common_bits(a, dst);
		if (!best || cost < best_cost || (cost == best_cost && bits > best_bits)) {
			best = a;
			best_cost = cost;
			best_bits = bits;
		}
	}
	return best;
}

/* IPv4: the address whose subnet the next hop is in, else the first (RFC 1122 3.3.4.3). NULL: the interface has none. */
const struct pv_addr *pv_iface_source(const struct pv_iface *ifp, const struct pv_addr *dst, const struct pv_addr *nexthop)
{
	const struct pv_ifaddr *on;

	if (!pv_addr_is4(dst))
		return source6(ifp, dst);
	on = pv_iface_onlink(ifp, nexthop);
	if (on)
		return &on->addr;
	for (uint32_t i = 0; i < ifp->cfg.naddr; i++)
		if (pv_addr_is4(&ifp->cfg.addr[i].addr))
			return &ifp->cfg.addr[i].addr;
	return NULL;
}

/* ---- lookup -------------------------------------------------------------------------------------------------------------- */

static uint16_t tag(const struct pv_iface *ifp, uint32_t prio, uint32_t tos)
{
	const struct pv_egress *e = &ifp->cfg.egress;
	uint32_t pcp = e->by_tos ? tos >> 5 : 0;

	if (!ifp->vlan)
		return 0;
	if (prio < pv_array_size(e->pcp) && (e->named >> prio & 1))
		pcp = e->pcp[prio];
	return (uint16_t)(ifp->vlan | pcp << 13);
}

void pv_path_l2(struct pv_path *path, const struct pv_iface *ifp, const uint8_t *dst_mac)
{
	uint16_t type = pv_addr_is4(&path->dst) ? PV_ETHERTYPE_IP4 : PV_ETHERTYPE_IP6;

	path->l2_len = (uint8_t)pv_wire_eth_emit(path->l2, dst_mac, ifp->mac, tag(ifp, path->prio, path->tos), type);
}

uint32_t pv_net_group_iface(const struct pv_net *net, const struct pv_addr *group)
{
	const struct pv_route *r = pv_route_find(net, group, 0);
	bool v4 = pv_addr_is4(group);
	uint32_t first = 0;

	if (r)
		return r->iface;
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = net->iface[i];

		if (ifp && pv_iface_is_hosts(net, ifp))
			continue;
		for (uint32_t k = 0; ifp && k < ifp->cfg.naddr; k++) {
			if (pv_addr_is4(&ifp->cfg.addr[k].addr) != v4)
				continue;
			if (ifp->ring->caps.link_up && !ifp->failed)
				return i;
			first = first ? first : i;
		}
	}
	return first || !net->cfg.host ? first : pv_host_group_iface(net, group);
}

static int hop_group(struct pv_net *net, const struct pv_path_query *q, struct pv_hop *h)
{
	h->iface = q->iface;
	/* As Linux: a source address names the interface when nothing else does. */
	if (!h->iface && !pv_addr_is_any(&q->src))
		h->iface = pv_net_addr_owner(net, &q->src);
	if (!h->iface)
		h->iface = pv_net_group_iface(net, &q->dst);
	h->next = q->dst;
	return h->iface ? 0 : -ENETUNREACH;
}

static int hop_unicast(struct pv_net *net, const struct pv_path_query *q, struct pv_hop *h)
{
	uint32_t bound = q->iface;
	const struct pv_route *r;

	if (!bound && pv_addr_is_unicast_ll6(&q->dst) && !pv_addr_is_any(&q->src))
		bound = pv_net_addr_owner(net, &q->src);
	r = pv_route_find(net, &q->dst, bound);
	h->next = q->dst;
	if (r) {
		h->iface = r->iface;
		h->mtu = r->mtu;
		if (!pv_addr_is_any(&r->gateway))
			h->next = r->gateway;
		return 0;
	}
	/* Bound to a device without a route there: Linux takes an IPv4 destination to be on the link. */
	if (!q->iface || !pv_addr_is4(&q->dst))
		return -ENETUNREACH;
	h->iface = q->iface;
	return 0;
}

static int path_source(struct pv_net *net, const struct pv_path_query *q, const struct pv_hop *h, struct pv_path *out)
{
	const struct pv_addr *src;

	if (!pv_addr_is_any(&q->src)) {
		out->src = q->src;
		return 0;
	}
	if (out->is_local) {
		out->src = q->dst;
		return 0;
	}
	src = pv_iface_source(net->iface[h->iface], &q->dst, &h->next);
	for (uint32_t i = 1; !src && i <= PV_IFACE_MAX; i++)
		if (net->iface[i] && !pv_iface_is_hosts(net, net->iface[i]))
			src = pv_iface_source(net->iface[i], &q->dst, &h->next);
	if (!src)
		return -EADDRNOTAVAIL;
	out->src = *src;
	return 0;
}

static uint8_t ring_joins(const struct pv_ring *ring)
{
	const struct pv_pool_cfg *pool = pv_pool_config(ring->pool);

	if (ring->caps.tso_max)
		return PV_JOIN_TSO;
	return ring->caps.max_sge > 1 && ring->caps.mtu > pool->buf_size - pool->headroom ? PV_JOIN_PIECES : 0;
}

int pv_path_fill(struct pv_net *net, const struct pv_path_query *q, const struct pv_hop *h, int64_t now_ns, struct pv_path *out)
{
	struct pv_iface *ifp = net->iface[h->iface];
	const struct pv_pmtu *pmtu;
	uint8_t mac[PV_ETH_ALEN];

	if (pv_unlikely(ifp->failed && !out->is_local))
		return -ENETDOWN;
	out->dst = q->dst;
	out->is4 = pv_addr_is4(&q->dst);
	out->bound = (uint16_t)q->iface;
	out->prio = (uint8_t)PV_MIN(q->prio, (uint32_t)UINT8_MAX);
	out->tos = q->tos;
	out->iface = ifp->index;
	out->ring = ifp->ring;
	out->tx_csum = (uint8_t)ifp->ring->caps.tx_csum;
	out->joins = ring_joins(ifp->ring);
	out->iface_mtu = ifp->cfg.mtu;
	out->mtu = ifp->cfg.mtu;
	if (h->mtu)
		out->mtu = PV_MIN(PV_MAX(h->mtu, out->is4 ? PV_IP4_LEAST_MTU : PV_IP6_MIN_MTU), out->mtu);
	out->gen = net->head.gen;
	if (out->is_local) {
		/* Never on a wire: as large as IP can say. */
		out->mtu = out->iface_mtu = out->is4 ? UINT16_MAX : UINT16_MAX + PV_IP6_HLEN;
		pv_path_l2(out, ifp, ifp->mac);
	} else if (out->is_mcast) {
		pv_mac_of_group(mac, &q->dst);
		pv_path_l2(out, ifp, mac);
		out->l2_ready = true;
	} else if (out->is_bcast) {
		pv_path_l2(out, ifp, mac_broadcast);
		out->l2_ready = true;
	} else {
		pmtu = pv_pmtu_find(net, &q->dst, now_ns);
		if (pmtu) {
			out->mtu = PV_MIN(out->mtu, pmtu->mtu);
			out->mtu_locked = pmtu->locked;
		}
		out->neigh = pv_neigh_get(net, h->iface, &h->next, !q->answer);
		if (!out->neigh)
			return -ENOBUFS;
		/* Making room may have dropped another entry. */
		out->gen = net->head.gen;
		out->l2_ready = out->neigh->state >= PV_NEIGH_STALE;
		pv_path_l2(out, ifp, out->neigh->mac);
	}
	return 0;
}

int pv_net_path(struct pv_net *net, const struct pv_path_query *query, int64_t now_ns, struct pv_path *out)
{
	struct pv_path_query q = *query;
	const struct pv_local *l;
	struct pv_hop h = { 0 };
	int rc;

	memset(out, 0, sizeof(*out));
	net->now_ns = now_ns;
	if (q.iface && !pv_net_iface(net, q.iface))
		return -ENODEV;
	if (pv_unlikely(net->cfg.host != NULL) && pv_path_is_hosts(net, &q))
		return pv_path_host(net, &q, now_ns, out);
	if (!pv_addr_is_any(&q.src)) {
		if (pv_addr_is4(&q.src) != pv_addr_is4(&q.dst))
			return -EAFNOSUPPORT;
		l = pv_local_find(net, &q.src, q.iface);
		if (!l || l->kind != PV_LOCAL_UNICAST)
			return -EADDRNOTAVAIL;
		/* "This host" as a destination is the host itself (Linux: the source, else loopback, which is not ours). */
		if (pv_addr_is_any(&q.dst))
			q.dst = q.src;
	}
	if (pv_addr_is_any(&q.dst))
		return -ENETUNREACH;
	l = pv_local_find(net, &q.dst, q.iface);
	out->is_mcast = pv_addr_is_mcast(&q.dst);
	out->is_bcast = pv_addr_is_bcast(&q.dst) || (l && l->kind == PV_LOCAL_BCAST && (!q.iface || l->iface == q.iface));
	out->is_local = l && l->kind == PV_LOCAL_UNICAST;
	if (out->is_mcast || pv_addr_is_bcast(&q.dst)) {
		rc = hop_group(net, &q, &h);
	} else if (out->is_local || out->is_bcast) {
		h.iface = l->iface;
		h.next = q.dst;
		rc = 0;
	} else {
		rc = hop_unicast(net, &q, &h);
	}
	if (!rc)
		rc = path_source(net, &q, &h, out);
	if (!rc)
		rc = pv_path_fill(net, &q, &h, now_ns, out);
	if (rc)
		memset(out, 0, sizeof(*out));
	return rc;
}
