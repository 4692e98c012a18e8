/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbour discovery (RFC 4861): solicitations and advertisements. Interfaces are configured, so router advertisements and
 * redirects are checked and then not followed.
 */
#include "net/internal.h"

#define ND_HOPS 255 /* proves that the sender is on the link (RFC 4861 11.2) */
#define DEFEND_NS (10 * PV_NS_PER_S)

static const struct pv_addr all_nodes = { .b = { 0xff, 0x02, [15] = 1 } };

static void nd_send(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, const struct pv_addr *src,
		    const struct pv_addr *dst, int64_t now_ns)
{
	struct pv_path_query q = { .dst = *dst, .src = *src, .iface = ifp->index, .answer = true };
	struct pv_tx_opts o = { .proto = PV_PROTO_ICMP6, .ttl = ND_HOPS, .pmtudisc = PV_PMTU_INTERFACE, .l4_csum_off = UINT32_MAX };

	pkt->total = pkt->len;
	pv_wire_icmp6_csum_fill(pkt->data, pkt->len, src->b, dst->b);
	net->c.tx_nd++;
	pv_tx_control(net, &q, &o, pkt, now_ns);
}

void pv_nd_solicit(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *target, const struct pv_addr *src, bool unicast,
		   int64_t now_ns)
{
	const struct pv_local *l = pv_local_find(net, src, ifp->index);
	struct pv_addr dst = *target;
	struct pv_pkt *pkt;

	/* RFC 4861 7.2.2: the address of the packet that asks, when it is of this interface. */
	if (!l || l->iface != ifp->index)
		src = pv_iface_source(ifp, target, target);
	pkt = src ? pv_net_pkt(net, ifp->ring) : NULL;
	if (!pkt)
		return;
	if (!unicast)
		pv_wire_nd_solicited_node(dst.b, target->b);
	pkt->len = pv_wire_nd_ns_emit(pkt->data, target->b, ifp->mac);
	nd_send(net, ifp, pkt, src, &dst, now_ns);
}

static void nd_advertise(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *target, const struct pv_addr *dst,
			 uint8_t flags, int64_t now_ns)
{
	struct pv_pkt *pkt = pv_net_pkt(net, ifp->ring);

	if (!pkt)
		return;
	pkt->len = pv_wire_nd_na_emit(pkt->data, target->b, flags, ifp->mac);
	nd_send(net, ifp, pkt, target, dst, now_ns);
}

/* RFC 4861 7.2.6 */
void pv_nd_announce(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *addr)
{
	nd_advertise(net, ifp, addr, &all_nodes, PV_ND_NA_OVERRIDE, net->now_ns);
}

/* RFC 4861 7.1.1, 7.2.3 */
static bool nd_solicitation(struct pv_net *net, struct pv_icmp6_in *in, const struct pv_wire_nd *nd, int64_t now_ns)
{
	struct pv_addr target = pv_addr_from6(nd->target), snma;
	struct pv_iface *ifp = in->ifp;

	pv_wire_nd_solicited_node(snma.b, nd->target);
	if (pv_addr_is_any(&in->src)) {
		if (nd->src_lla || !pv_addr_eq(&in->dst, &snma))
			return false;
		/* Somebody wants to take an address (RFC 4862 5.4): when it is ours, everybody hears so. */
		if (pv_iface_owns(net, ifp, &target))
			nd_advertise(net, ifp, &target, &all_nodes, PV_ND_NA_OVERRIDE, now_ns);
		return true;
	}
	if (!pv_iface_owns(net, ifp, &target) || pv_iface_owns(net, ifp, &in->src))
		return true;
	if (nd->src_lla && !pv_mac_is_group(nd->src_lla)) {
		struct pv_neigh *n = pv_neigh_find(net, ifp->index, &in->src);

		if (!n && pv_iface_onlink(ifp, &in->src))
			n = pv_neigh_get(net, ifp->index, &in->src, false);
		if (n)
			pv_neigh_heard(net, n, nd->src_lla, false, true, now_ns);
	}
	nd_advertise(net, ifp, &target, &in->src, PV_ND_NA_SOLICITED | PV_ND_NA_OVERRIDE, now_ns);
	return true;
}

/* RFC 4861 7.1.2, 7.2.5 */
static bool nd_advertisement(struct pv_net *net, struct pv_icmp6_in *in, const struct pv_wire_nd *nd, int64_t now_ns)
{
	struct pv_addr target = pv_addr_from6(nd->target);
	bool solicited = nd->flags & PV_ND_NA_SOLICITED;
	struct pv_iface *ifp = in->ifp;
	struct pv_neigh *n;

	if (solicited && pv_addr_is_mcast(&in->dst))
		return false;
	if (pv_iface_owns(net, ifp, &target)) {
		if (now_ns - ifp->defended_ns >= DEFEND_NS) {
			ifp->defended_ns = now_ns;
			pv_nd_announce(net, ifp, &target);
		}
		return true;
	}
	n = pv_neigh_find(net, ifp->index, &target);
	if (!n || (nd->tgt_lla && pv_mac_is_group(nd->tgt_lla)))
		return true;
	if (nd->tgt_lla)
		pv_neigh_heard(net, n, nd->tgt_lla, solicited, nd->flags & PV_ND_NA_OVERRIDE, now_ns);
	else if (solicited && n->state >= PV_NEIGH_STALE)
		pv_neigh_heard(net, n, n->mac, true, false, now_ns);
	return true;
}

enum pv_rx_verdict pv_nd_rx(struct pv_net *net, struct pv_icmp6_in *in, int64_t now_ns)
{
	struct pv_wire_nd nd;
	bool good = true;

	if (in->hops != ND_HOPS || pv_wire_nd_parse(in->pkt->data, in->pkt->len, &nd))
		return pv_net_drop(net, in->pkt, &net->c.rx_nd_bad);
	if (in->ifp->resolves && nd.type == PV_ICMP6_NS)
		good = nd_solicitation(net, in, &nd, now_ns);
	else if (in->ifp->resolves && nd.type == PV_ICMP6_NA)
		good = nd_advertisement(net, in, &nd, now_ns);
	else if ((nd.type == PV_ICMP6_RA || nd.type == PV_ICMP6_REDIRECT) && !pv_addr_is_unicast_ll6(&in->src))
		good = false; /* RFC 4861 6.1.2, 8.1 */
	if (!good)
		return pv_net_drop(net, in->pkt, &net->c.rx_nd_bad);
	pv_pkt_put(in->pkt);
	return PV_RX_CONSUMED;
}
