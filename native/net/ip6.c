/* SPDX-License-Identifier: BSD-3-Clause */
/* IPv6 input (RFC 8200). */
#include "net/internal.h"

static bool is_loopback6(const struct pv_addr *a)
{
	return a->q[0] == 0 && a->w[2] == 0 && a->w[3] == __builtin_bswap32(1);
}

/* Groups, loopback and mapped addresses send nothing; :: only what asks for an address (RFC 4291 2.5.2). */
static bool source_ok(const struct pv_net *net, const struct pv_pkt *pkt, const struct pv_addr *src)
{
	const struct pv_local *l;

	if (src->b[0] == 0xff || is_loopback6(src) || pv_addr_is4(src))
		return false;
	l = pv_local_find(net, src, pkt->iface);
	return !l || (pkt->flags & PV_PKT_LOOPED);
}

static bool dst_ok(const struct pv_net *net, const struct pv_iface *ifp, const struct pv_addr *dst)
{
	if (pv_addr_is_any(dst) || pv_addr_is4(dst))
		return false;
	if (pv_addr_eq(dst, &ifp->ip6))
		return true;
	if (dst->b[0] == 0xff)
		return pv_group_find(net, ifp->index, dst) != NULL;
	return pv_local_find(net, dst, ifp->index) != NULL;
}

/* The packet's headers are whole in its first buffer (RFC 7112). */
static enum pv_rx_verdict ip6_deliver(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt,
				      const struct pv_wire_ip6_ext *ext, int64_t now_ns)
{
	switch (ext->proto) {
	case PV_PROTO_UDP:
		net->c.rx_delivered++;
		return PV_RX_UDP;
	case PV_PROTO_TCP:
		net->c.rx_delivered++;
		return PV_RX_TCP;
	case PV_PROTO_ICMP6:
		return pv_icmp6_rx(net, ifp, pkt, ext->router_alert, now_ns);
	case PV_IP6_NEXT_NONE:
		return pv_net_drop(net, pkt, &net->c.rx_proto);
	default:
		/* RFC 4443 3.4: the pointer tells which Next Header field; extension headers in front are rare, so are unknown protocols. */
		pv_icmp_error(net, pkt, PV_ICMP6_PARAM_PROBLEM, 1, ext->next_off, now_ns);
		return pv_net_drop(net, pkt, &net->c.rx_proto);
	}
}

static enum pv_rx_verdict ip6_bad_ext(struct pv_net *net, struct pv_pkt *pkt, const struct pv_wire_ip6_ext *ext, int rc,
				      int64_t now_ns)
{
	if (rc == -EPROTO && ext->icmp_send && (ext->icmp_mcast || pkt->buf[pkt->l3_off + 24] != 0xff))
		pv_icmp_error(net, pkt, PV_ICMP6_PARAM_PROBLEM, ext->icmp_code, ext->bad_off, now_ns);
	return pv_net_drop(net, pkt, rc == -EMSGSIZE ? &net->c.rx_short : &net->c.rx_ip_options);
}

/* RFC 8200 4.5: what makes a fragment impossible is told to its sender. */
static bool frag_ok(struct pv_net *net, struct pv_pkt *pkt, const struct pv_wire_ip6_ext *ext, uint32_t len, int64_t now_ns)
{
	if (ext->more && len % 8)
		pv_icmp_error(net, pkt, PV_ICMP6_PARAM_PROBLEM, 0, 4, now_ns);
	else if (ext->frag_off + len > UINT16_MAX)
		pv_icmp_error(net, pkt, PV_ICMP6_PARAM_PROBLEM, 0, ext->frag_hdr_off + 2u, now_ns);
	else
		return true;
	return false;
}

/* Moves `data` to the byte at `off` of the packet that starts at l3_off. */
static void seek(struct pv_pkt *pkt, uint32_t off)
{
	uint8_t *to = pkt->buf + pkt->l3_off + off;
	uint32_t skip = (uint32_t)(to - pkt->data);

	pkt->data = to;
	pkt->len -= skip;
	pkt->total -= skip;
	pkt->l4_off = (uint16_t)(pkt->l3_off + off);
}

/* A fragment: NULL until the datagram is whole; then its first buffer, walked on behind the fragment header. */
static struct pv_pkt *ip6_fragment(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, struct pv_wire_ip6_ext *ext,
				   int64_t now_ns)
{
	const uint8_t *h = pkt->data;
	struct pv_frag_info fi = {
		.src = pv_addr_from6(h + 8),
		.dst = pv_addr_from6(h + 24),
		.id = ext->frag_id,
		.off = ext->frag_off,
		.more = ext->more,
	};
	uint8_t *fh = pkt->data + ext->frag_hdr_off;
	int rc;

	if (!frag_ok(net, pkt, ext, pkt->total - ext->l4_off, now_ns)) {
		pv_net_drop(net, pkt, &net->c.reass_bad);
		return NULL;
	}
	/* From here on the header says "atomic": the second walk passes over it. */
	pv_put16(fh + 2, 0);
	seek(pkt, ext->l4_off);
	pkt = pv_reass_rx(net, ifp, &fi, pkt, now_ns);
	if (!pkt)
		return NULL;
	rc = pv_wire_ip6_walk_slow(pkt->buf + pkt->l3_off, (uint32_t)(pkt->data + pkt->len - (pkt->buf + pkt->l3_off)), ext);
	if (rc) {
		ip6_bad_ext(net, pkt, ext, rc, now_ns);
		return NULL;
	}
	seek(pkt, ext->l4_off);
	return pkt;
}

enum pv_rx_verdict pv_ip6_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt **pktp, int64_t now_ns)
{
	struct pv_pkt *pkt = *pktp;
	struct pv_wire_ip6_ext ext;
	struct pv_addr src, dst;
	struct pv_wire_ip6 ip;
	int rc = pv_wire_ip6_parse(pkt->data, pkt->total, &ip);

	if (rc == -EMSGSIZE)
		return pv_net_drop(net, pkt, &net->c.rx_short);
	if (rc < 0)
		return pv_net_drop(net, pkt, &net->c.rx_ip_header);
	pkt->l3_off = (uint16_t)(pkt->data - pkt->buf);
	src = pv_addr_from6(ip.src);
	dst = pv_addr_from6(ip.dst);
	if (!source_ok(net, pkt, &src))
		return pv_net_drop(net, pkt, &net->c.rx_ip_src);
	if (!dst_ok(net, ifp, &dst))
		return pv_net_drop(net, pkt, &net->c.rx_not_ours);
	if (dst.b[0] == 0xff)
		pkt->flags |= PV_PKT_GROUP;
	pkt->total = PV_IP6_HLEN + ip.payload_len;
	if (!pkt->frag)
		pkt->len = pkt->total; /* what is behind it is padding */
	rc = pv_wire_ip6_walk(pkt->data, pkt->len, &ext);
	if (rc)
		return ip6_bad_ext(net, pkt, &ext, rc, now_ns);
	if (ext.frag) {
		pkt = *pktp = ip6_fragment(net, ifp, pkt, &ext, now_ns);
		if (!pkt)
			return PV_RX_CONSUMED;
	} else {
		seek(pkt, ext.l4_off);
	}
	return ip6_deliver(net, ifp, pkt, &ext, now_ns);
}
