/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive, from the Ethernet header on. What nearly every frame is (a whole UDP datagram or TCP segment without IP options, to our
 * first address)
 * is recognised here by a dozen comparisons; anything that does not match takes the
 * full parsers of ip4.c and ip6.c, which decide again from the start.
 */
#include "net/internal.h"

#define MAC_MASK UINT64_C(0x0000ffffffffffff)

pv_inline uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

pv_inline uint32_t load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

pv_inline uint16_t load16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

pv_inline enum pv_rx_verdict rx_up(struct pv_net *net, struct pv_pkt *pkt, uint32_t hlen, uint32_t payload, uint8_t proto)
{
	uint32_t l3 = (uint32_t)(pkt->data - pkt->buf) + PV_ETH_HLEN;

	pkt->l3_off = (uint16_t)l3;
	pkt->l4_off = (uint16_t)(l3 + hlen);
	pkt->data += PV_ETH_HLEN + hlen;
	pkt->len = payload;
	pkt->total = payload;
	net->c.rx_delivered++;
	return proto == PV_PROTO_UDP ? PV_RX_UDP : PV_RX_TCP;
}

/* By the ring's word, or by five additions. */
pv_inline bool ip4_csum_ok(const struct pv_pkt *pkt, const uint8_t *f)
{
	return (pkt->flags & PV_PKT_L3_OK) || (!(pkt->flags & PV_PKT_L3_BAD) && pv_cksum_ok(pv_cksum_ip4_header(f + PV_ETH_HLEN)));
}

pv_inline bool plain_proto(uint8_t proto)
{
	return pv_likely(proto == PV_PROTO_UDP) || proto == PV_PROTO_TCP;
}

/* 42 bytes are there. IPv4, 20 bytes of header, UDP or TCP, not a fragment, from a source that can be one. */
pv_inline bool plain4(const struct pv_iface *ifp, const struct pv_pkt *pkt, const uint8_t *f, uint32_t payload)
{
	uint32_t src = load32(f + 26);

	return f[14] == 0x45 && plain_proto(f[23]) && (load16(f + 20) & __builtin_bswap16(PV_IP4_MF | PV_IP4_OFFSET)) == 0 &&
	       load32(f + 30) == ifp->ip4 && ifp->ip4 && (uint8_t)(f[26] - 1) < 223 && f[26] != 127 && src != ifp->ip4 &&
	       src != ifp->bcast4 && payload - 8 <= pkt->len - (PV_ETH_HLEN + PV_IP4_HLEN + 8); /* 8 at least: less is very much */
}

pv_inline bool plain6(const struct pv_iface *ifp, const struct pv_pkt *pkt, const uint8_t *f, uint32_t payload)
{
	const uint64_t *own = ifp->ip6.q;

	/* A global unicast source (2000::/3) or a unique local one (fc00::/7) needs no further look; our own comes by loop only. */
	return pkt->len >= PV_ETH_HLEN + PV_IP6_HLEN + 8 && f[14] >> 4 == 6 && plain_proto(f[20]) && own[0] &&
	       load64(f + 38) == own[0] && load64(f + 46) == own[1] && ((f[22] & 0xe0) == 0x20 || (f[22] & 0xfe) == 0xfc) &&
	       (load64(f + 22) != own[0] || load64(f + 30) != own[1]) && payload >= 8 &&
	       payload <= pkt->len - (PV_ETH_HLEN + PV_IP6_HLEN);
}

/* Takes the tag off, so that the Ethernet header always is the 14 bytes in front of the IP header. */
static void untag(struct pv_pkt *pkt)
{
	pkt->vlan_tci = pv_get16(pkt->data + PV_ETH_HLEN);
	pkt->flags |= PV_PKT_VLAN;
	memmove(pkt->data + PV_VLAN_HLEN, pkt->data, 2 * PV_ETH_ALEN);
	pkt->data += PV_VLAN_HLEN;
	pkt->len -= PV_VLAN_HLEN;
	pkt->total -= PV_VLAN_HLEN;
}

static pv_noinline enum pv_rx_verdict rx_slow(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt **pktp, int64_t now_ns)
{
	struct pv_pkt *pkt = *pktp;
	uint16_t type, vid = 0;

	net->now_ns = now_ns;
	if (pkt->len < PV_ETH_HLEN)
		return pv_net_drop(net, pkt, &net->c.rx_short);
	if (!pv_mac_eq(pkt->data, ifp->mac) && !pv_mac_is_group(pkt->data))
		return pv_net_drop(net, pkt, &net->c.rx_not_ours);
	type = pv_get16(pkt->data + 12);
	if (type == PV_ETHERTYPE_VLAN && !(pkt->flags & PV_PKT_VLAN)) {
		if (pkt->len < PV_ETH_HLEN + PV_VLAN_HLEN)
			return pv_net_drop(net, pkt, &net->c.rx_short);
		untag(pkt);
		type = pv_get16(pkt->data + 12);
	}
	if (pkt->flags & PV_PKT_VLAN)
		vid = pkt->vlan_tci & 0xfff; /* 0: a priority only */
	if ((vid != ifp->vlan && !(pkt->flags & PV_PKT_LOOPED)) || type == PV_ETHERTYPE_VLAN || type == PV_ETHERTYPE_QINQ)
		return pv_net_drop(net, pkt, &net->c.rx_vlan);
	pkt->data += PV_ETH_HLEN;
	pkt->len -= PV_ETH_HLEN;
	pkt->total -= PV_ETH_HLEN;
	switch (type) {
	case PV_ETHERTYPE_IP4:
		return pv_ip4_rx(net, ifp, pktp, now_ns);
	case PV_ETHERTYPE_IP6:
		return pv_ip6_rx(net, ifp, pktp, now_ns);
	case PV_ETHERTYPE_ARP:
		return pv_arp_rx(net, ifp, pkt, now_ns);
	default:
		return pv_net_drop(net, pkt, &net->c.rx_ethertype);
	}
}

enum pv_rx_verdict pv_net_rx(struct pv_net *net, uint32_t iface, struct pv_pkt **pktp, int64_t now_ns)
{
	struct pv_pkt *pkt = *pktp;
	struct pv_iface *ifp = net->iface[iface];
	const uint8_t *f = pkt->data;
	uint32_t payload;

	net->c.rx_frames++;
	pkt->iface = (uint8_t)iface;
	if (pv_likely(pkt->len >= PV_ETH_HLEN + PV_IP4_HLEN + 8 && (load64(f) & MAC_MASK) == ifp->mac64 &&
		      !(pkt->flags & (PV_PKT_VLAN | PV_PKT_LOOPED)))) {
		if (pv_likely(load16(f + 12) == __builtin_bswap16(PV_ETHERTYPE_IP4))) {
			payload = (uint32_t)pv_get16(f + 16) - PV_IP4_HLEN;
			if (pv_likely(ip4_csum_ok(pkt, f) && plain4(ifp, pkt, f, payload)))
				return rx_up(net, pkt, PV_IP4_HLEN, payload, f[23]);
		} else if (load16(f + 12) == __builtin_bswap16(PV_ETHERTYPE_IP6)) {
			payload = pv_get16(f + 18);
			if (pv_likely(plain6(ifp, pkt, f, payload)))
				return rx_up(net, pkt, PV_IP6_HLEN, payload, f[20]);
		}
	}
	return rx_slow(net, ifp, pktp, now_ns);
}

/* ---- what the transports ask about a packet --------------------------------------------------------------------------------- */

void pv_net_rx_info(const struct pv_net *net, const struct pv_pkt *pkt, struct pv_rx_info *out)
{
	const uint8_t *h = pkt->buf + pkt->l3_off;

	out->iface = pkt->iface;
	if (pv_likely(h[0] >> 4 == 4)) {
		out->src = pv_addr_from4(h + 12);
		out->dst = pv_addr_from4(h + 16);
		out->ttl = h[8];
		out->tos = h[1];
		out->dst_is_mcast = (h[16] & 0xf0) == 0xe0;
		out->dst_is_bcast = false;
		if (pv_unlikely(out->dst.w[3] != net->iface[pkt->iface]->ip4 && !out->dst_is_mcast))
			out->dst_is_bcast = pv_net_is_broadcast(net, &out->dst);
	} else {
		out->src = pv_addr_from6(h + 8);
		out->dst = pv_addr_from6(h + 24);
		out->ttl = h[7];
		out->tos = (uint8_t)(pv_get16(h) >> 4);
		out->dst_is_mcast = h[24] == 0xff;
		out->dst_is_bcast = false;
	}
}

static pv_noinline bool sum_ok(const struct pv_pkt *pkt, uint64_t sum)
{
	return pv_cksum_ok(pkt->frag ? pv_cksum_merge(sum, pv_net_chain_sum(pkt)) : pv_cksum_add(pkt->data, pkt->len, sum));
}

/* `sum`: of the pseudo-header; `off`: where the field is. */
pv_inline bool l4_ok(const struct pv_pkt *pkt, uint8_t proto, uint32_t off, bool v4, uint64_t sum)
{
	if (pv_likely(pkt->len >= off + 2)) {
		uint16_t field = pv_cksum_get(pkt->buf + pkt->l4_off + off);

		/* RFC 768: none was computed. IPv6 does not allow that (RFC 8200 8.1). */
		if (proto == PV_PROTO_UDP && pv_unlikely(!field))
			return v4;
		/* What its sender left to the hardware, and none came: nobody could have damaged it unseen. */
		if (pkt->flags & PV_PKT_L4_PARTIAL && pv_unlikely(field == pv_cksum_fold(sum)))
			return true;
	}
	if (pv_unlikely(pkt->frag || !pv_cksum_is_short(pkt->len)))
		return sum_ok(pkt, sum);
	return pv_cksum_ok(pv_cksum_short(pkt->data, pkt->len, sum));
}

pv_inline bool l4_ok4(const struct pv_pkt *pkt, const uint8_t *h, uint8_t proto, uint32_t off)
{
	return l4_ok(pkt, proto, off, true, pv_cksum_pseudo4(load32(h + 12), load32(h + 16), proto, pkt->total));
}

static pv_noinline bool l4_ok6(const struct pv_pkt *pkt, const uint8_t *h, uint8_t proto, uint32_t off)
{
	return l4_ok(pkt, proto, off, false, pv_cksum_pseudo6(h + 8, h + 24, proto, pkt->total));
}

bool pv_net_rx_tcp_sum_ok(const struct pv_pkt *pkt)
{
	const uint8_t *h = pkt->buf + pkt->l3_off;

	return pv_likely(h[0] >> 4 == 4) ? l4_ok4(pkt, h, PV_PROTO_TCP, 16) : l4_ok6(pkt, h, PV_PROTO_TCP, 16);
}

bool pv_net_rx_udp_sum_ok(const struct pv_pkt *pkt)
{
	const uint8_t *h = pkt->buf + pkt->l3_off;

	return pv_likely(h[0] >> 4 == 4) ? l4_ok4(pkt, h, PV_PROTO_UDP, 6) : l4_ok6(pkt, h, PV_PROTO_UDP, 6);
}
