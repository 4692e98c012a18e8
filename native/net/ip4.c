/* SPDX-License-Identifier: BSD-3-Clause */
/* IPv4 input (RFC 791, RFC 1122 3.2.1). */
#include "net/internal.h"

/* RFC 1122 3.2.1.3: groups, broadcast, loopback and "this network" send nothing; nor do we, but by the loop. */
static bool source_ok(const struct pv_net *net, const struct pv_pkt *pkt, uint32_t src, uint8_t proto)
{
	uint8_t first = (uint8_t)src;
	const struct pv_local *l;
	struct pv_addr a;

	/* Hosts without an address ask by IGMP and DHCP (RFC 3376 4.2.13). */
	if (src == 0)
		return proto == PV_PROTO_IGMP || proto == PV_PROTO_UDP;
	if (first == 0 || first == 127 || (first & 0xf0) == 0xe0 || src == UINT32_MAX)
		return false;
	a = pv_addr_from4(&src);
	l = pv_local_find(net, &a, pkt->iface);
	return !l || (l->kind == PV_LOCAL_UNICAST && (pkt->flags & PV_PKT_LOOPED));
}

/* Marks what is not for one host alone. */
static bool dst_ok(const struct pv_net *net, const struct pv_iface *ifp, struct pv_pkt *pkt, uint32_t dst)
{
	struct pv_addr a = pv_addr_from4(&dst);
	const struct pv_local *l;

	if (!dst)
		return false;
	if (dst == ifp->ip4)
		return true;
	if (pv_addr_is_mcast(&a) || dst == UINT32_MAX) {
		pkt->flags |= PV_PKT_GROUP;
		return dst == UINT32_MAX || pv_group_find(net, ifp->index, &a) != NULL;
	}
	l = pv_local_find(net, &a, ifp->index);
	if (l && l->kind == PV_LOCAL_BCAST)
		pkt->flags |= PV_PKT_GROUP;
	return l != NULL;
}

/* NULL: go on; else the counter under which to drop. */
static uint64_t *ip4_check(struct pv_net *net, const struct pv_iface *ifp, struct pv_pkt *pkt, struct pv_wire_ip4 *ip,
			   int64_t now_ns)
{
	int rc = pv_wire_ip4_parse(pkt->data, pkt->total, ip);
	struct pv_wire_ip4_opts opts;
	uint8_t bad = 0;

	if (rc == -EMSGSIZE || (rc > 0 && pkt->len < (uint32_t)rc))
		return &net->c.rx_short;
	if (rc < 0)
		return &net->c.rx_ip_header;
	if ((pkt->flags & PV_PKT_L3_BAD) || (!(pkt->flags & PV_PKT_L3_OK) && !pv_wire_ip4_csum_ok(pkt->data, ip->hdr_len)))
		return &net->c.rx_ip_csum;
	if (!source_ok(net, pkt, ip->src, ip->proto))
		return &net->c.rx_ip_src;
	if (!dst_ok(net, ifp, pkt, ip->dst))
		return &net->c.rx_not_ours;
	if (ip->hdr_len == PV_IP4_HLEN)
		return NULL;
	if (pv_wire_ip4_options(pkt->data, ip->hdr_len, &opts, &bad)) {
		pv_icmp_error(net, pkt, PV_ICMP4_PARAM_PROBLEM, 0, (uint32_t)bad << 24, now_ns);
		return &net->c.rx_ip_options;
	}
	/* Source routes are how packets get where they should not (RFC 7126 4.3): refused, as Linux does on hosts. */
	return opts.source_route ? &net->c.rx_ip_options : NULL;
}

static enum pv_rx_verdict ip4_deliver(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, uint8_t proto, int64_t now_ns)
{
	switch (proto) {
	case PV_PROTO_UDP:
		net->c.rx_delivered++;
		return PV_RX_UDP;
	case PV_PROTO_TCP:
		net->c.rx_delivered++;
		return PV_RX_TCP;
	case PV_PROTO_ICMP:
		return pv_icmp4_rx(net, ifp, pkt, now_ns);
	case PV_PROTO_IGMP:
		return pv_igmp_rx(net, ifp, pkt, now_ns);
	default:
		pv_icmp_error(net, pkt, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_PROTO, 0, now_ns);
		return pv_net_drop(net, pkt, &net->c.rx_proto);
	}
}

enum pv_rx_verdict pv_ip4_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt **pktp, int64_t now_ns)
{
	struct pv_pkt *pkt = *pktp;
	struct pv_wire_ip4 ip;
	uint64_t *drop;

	pkt->l3_off = (uint16_t)(pkt->data - pkt->buf);
	drop = ip4_check(net, ifp, pkt, &ip, now_ns);
	if (drop)
		return pv_net_drop(net, pkt, drop);
	if (!pkt->frag)
		pkt->len = ip.total_len; /* what is behind it is padding */
	pkt->l4_off = (uint16_t)(pkt->l3_off + ip.hdr_len);
	pkt->data += ip.hdr_len;
	pkt->len -= ip.hdr_len;
	pkt->total = (uint32_t)ip.total_len - ip.hdr_len;
	if (pv_wire_ip4_is_frag(&ip)) {
		struct pv_frag_info fi = {
			.src = pv_addr_from4(&ip.src),
			.dst = pv_addr_from4(&ip.dst),
			.id = ip.id,
			.off = (ip.frag & PV_IP4_OFFSET) * 8u,
			.more = ip.frag & PV_IP4_MF,
			.proto = ip.proto,
		};

		pkt = *pktp = pv_reass_rx(net, ifp, &fi, pkt, now_ns);
		if (!pkt)
			return PV_RX_CONSUMED;
	}
	return ip4_deliver(net, ifp, pkt, ip.proto, now_ns);
}
