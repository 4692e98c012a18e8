/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/frame.h"

#include "base/bytes.h"
#include "base/cksum.h"

#define ETH_HLEN 14u
#define ETHERTYPE_IP4 0x0800
#define ETHERTYPE_IP6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define PROTO_TCP 6
#define PROTO_UDP 17

/* RFC 8200 4: headers that a NIC steps over to find the transport. */
#define IP6_HOPOPTS 0
#define IP6_ROUTING 43
#define IP6_FRAGMENT 44
#define IP6_DSTOPTS 60

static bool parse_ip4(const uint8_t *ip, uint32_t room, struct pv_frame *f, uint32_t *hlen, uint32_t *total)
{
	if (room < 20 || ip[0] >> 4 != 4)
		return false;
	*hlen = (ip[0] & 0x0fu) * 4u;
	*total = pv_get16(ip + 2);
	if (*hlen < 20 || *total < *hlen || *total > room)
		return false;
	f->ip_version = 4;
	f->proto = ip[9];
	f->src = pv_addr_from4(ip + 12);
	f->dst = pv_addr_from4(ip + 16);
	f->fragment = (pv_get16(ip + 6) & 0x3fff) != 0;
	return true;
}

static bool parse_ip6(const uint8_t *ip, uint32_t room, struct pv_frame *f, uint32_t *hlen, uint32_t *total)
{
	uint32_t off = 40;

	if (room < 40 || ip[0] >> 4 != 6)
		return false;
	*total = 40u + pv_get16(ip + 4);
	if (*total > room)
		return false;
	f->ip_version = 6;
	f->src = pv_addr_from6(ip + 8);
	f->dst = pv_addr_from6(ip + 24);
	f->proto = ip[6];
	for (;;) {
		if (f->proto == IP6_FRAGMENT) {
			if (off + 8 > *total)
				break;
			f->fragment = (pv_get16(ip + off + 2) & 0xfff9) != 0;
			f->proto = ip[off];
			off += 8;
			if (f->fragment)
				break;
		} else if (f->proto == IP6_HOPOPTS || f->proto == IP6_ROUTING || f->proto == IP6_DSTOPTS) {
			if (off + 8 > *total)
				break;
			f->proto = ip[off];
			off += (ip[off + 1] + 1u) * 8u;
		} else {
			break;
		}
	}
	*hlen = off;
	return off <= *total;
}

bool pv_frame_parse(const uint8_t *data, uint32_t len, struct pv_frame *f)
{
	uint32_t off = ETH_HLEN, hlen, total;
	bool ok;

	memset(f, 0, sizeof(*f));
	if (len < ETH_HLEN)
		return false;
	f->ethertype = pv_get16(data + 12);
	if (f->ethertype == ETHERTYPE_VLAN && len >= ETH_HLEN + 4) {
		f->vlan = pv_get16(data + 14) & 0x0fff;
		f->ethertype = pv_get16(data + 16);
		off += 4;
	}
	f->l3_off = (uint16_t)off;
	if (f->ethertype == ETHERTYPE_IP4)
		ok = parse_ip4(data + off, len - off, f, &hlen, &total);
	else if (f->ethertype == ETHERTYPE_IP6)
		ok = parse_ip6(data + off, len - off, f, &hlen, &total);
	else
		return true;
	if (!ok) {
		f->ip_version = 0;
		f->proto = 0;
		return true;
	}
	if (f->fragment || (f->proto != PROTO_UDP && f->proto != PROTO_TCP))
		return true;
	if (total - hlen < (f->proto == PROTO_UDP ? 8u : 20u))
		return true;
	f->l4_off = (uint16_t)(off + hlen);
	f->l4_len = total - hlen;
	f->src_port = pv_get16(data + f->l4_off);
	f->dst_port = pv_get16(data + f->l4_off + 2);
	return true;
}

void pv_frame_flow_mac(const struct pv_flow *flow, const uint8_t *port, uint8_t mac[PV_ETH_ALEN])
{
	static const uint8_t none[PV_ETH_ALEN];

	if (!pv_mac_eq(flow->dst_mac, none))
		memcpy(mac, flow->dst_mac, PV_ETH_ALEN);
	else if (flow->kind >= PV_FLOW_IP && pv_addr_is_mcast(&flow->dst))
		pv_mac_of_group(mac, &flow->dst);
	else
		memcpy(mac, port, PV_ETH_ALEN);
}

bool pv_frame_match(const uint8_t *data, const struct pv_frame *f, const struct pv_flow *flow)
{
	if (flow->kind == PV_FLOW_ALL)
		return true;
	if (f->vlan != flow->vlan || !pv_mac_eq(flow->dst_mac, data))
		return false;
	if (flow->kind == PV_FLOW_ETHER)
		return !flow->ethertype || flow->ethertype == f->ethertype;
	if (!f->ip_version || !pv_addr_eq(&f->dst, &flow->dst))
		return false;
	if (flow->kind == PV_FLOW_IP)
		return true;
	if (!f->l4_off || f->proto != flow->l4_proto || f->dst_port != flow->dst_port)
		return false;
	return flow->kind == PV_FLOW_3TUPLE || (pv_addr_eq(&f->src, &flow->src) && f->src_port == flow->src_port);
}

static uint64_t sum_l4(const uint8_t *data, const struct pv_frame *f)
{
	uint64_t sum = f->ip_version == 4 ? pv_cksum_pseudo4(f->src.w[3], f->dst.w[3], f->proto, f->l4_len)
					  : pv_cksum_pseudo6(f->src.b, f->dst.b, f->proto, f->l4_len);

	return pv_cksum_add(data + f->l4_off, f->l4_len, sum);
}

static uint32_t ip4_hlen(const uint8_t *ip)
{
	return (ip[0] & 0x0fu) * 4u;
}

void pv_frame_fill_csum(uint8_t *data, uint32_t len, uint32_t flags)
{
	struct pv_frame f;
	uint8_t *ip, *field;
	uint64_t sum;

	if (!pv_frame_parse(data, len, &f) || !f.ip_version)
		return;
	ip = data + f.l3_off;
	if (flags & PV_PKT_TX_L3_CSUM && f.ip_version == 4) {
		pv_cksum_put(ip + 10, 0);
		pv_cksum_put(ip + 10, pv_cksum_finish(pv_cksum_add(ip, ip4_hlen(ip), 0)));
	}
	if (flags & PV_PKT_TX_L4_CSUM && f.l4_off) {
		field = data + f.l4_off + (f.proto == PROTO_UDP ? 6 : 16);
		pv_cksum_put(field, 0);
		sum = sum_l4(data, &f);
		pv_cksum_put(field, f.proto == PROTO_UDP ? pv_cksum_finish_udp(sum) : pv_cksum_finish(sum));
	}
}

uint32_t pv_frame_check_csum(const uint8_t *data, uint32_t len, uint32_t csum)
{
	struct pv_frame f;
	uint32_t flags = 0;

	if (!pv_frame_parse(data, len, &f) || !f.ip_version)
		return 0;
	if (f.ip_version == 4 && csum & PV_CSUM_IP4) {
		const uint8_t *ip = data + f.l3_off;

		flags |= pv_cksum_ok(pv_cksum_add(ip, ip4_hlen(ip), 0)) ? PV_PKT_L3_OK : PV_PKT_L3_BAD;
	}
	if (f.l4_off && csum & (f.proto == PROTO_UDP ? PV_CSUM_UDP : PV_CSUM_TCP)) {
		const uint8_t *l4 = data + f.l4_off;

		/* RFC 768: none was sent, or it covers another length than IP says: nothing to say about it. */
		if (f.proto == PROTO_UDP && (!pv_get16(l4 + 6) || pv_get16(l4 + 4) != f.l4_len))
			return flags;
		flags |= pv_cksum_ok(sum_l4(data, &f)) ? PV_PKT_L4_OK : PV_PKT_L4_BAD;
	}
	return flags;
}

/* ---- segmentation ------------------------------------------------------------------------------------------------------ */

uint32_t pv_frame_cuts(const struct pv_pkt *p, uint32_t mtu, uint32_t tso_max, uint32_t max_sge)
{
	uint32_t len = 0, nsge = 0, hdr = p->gso_hdr;

	for (const struct pv_pkt *f = p; f; f = f->frag, nsge++)
		len += f->len;
	if (len > tso_max || nsge > max_sge || !p->gso_size || hdr < ETH_HLEN + 20 + 20 || p->len < hdr || len <= hdr ||
	    hdr + p->gso_size > mtu + (pv_get16(p->data + 12) == 0x8100 ? 18 : 14))
		return 0;
	return (len - hdr + p->gso_size - 1) / p->gso_size;
}

void pv_frame_gather(const struct pv_pkt *p, uint32_t off, uint8_t *out, uint32_t len)
{
	while (p && off >= p->len) {
		off -= p->len;
		p = p->frag;
	}
	for (; p && len; p = p->frag, off = 0) {
		uint32_t n = PV_MIN(p->len - off, len);

		memcpy(out, p->data + off, n);
		out += n;
		len -= n;
	}
}

/* Lengths and numbers of part `i`, as Linux's tcp_gso_segment: FIN and PSH are the last one's, CWR is the first one's. An IPv4
 * identification counts up, unless nobody is to fragment anyhow (RFC 6864 4.1). */
static void header_of_part(uint8_t *h, uint32_t len, const struct pv_pkt *p, uint32_t i, bool last)
{
	uint32_t l3 = pv_get16(h + 12) == 0x8100 ? 18 : 14;
	uint8_t *ip = h + l3, *tcp;

	if (ip[0] >> 4 == 4) {
		tcp = ip + ip4_hlen(ip);
		pv_put16(ip + 2, (uint16_t)(len - l3));
		if (!(ip[6] & 0x40))
			pv_put16(ip + 4, (uint16_t)(pv_get16(ip + 4) + i));
	} else {
		tcp = ip + 40;
		pv_put16(ip + 4, (uint16_t)(len - l3 - 40));
	}
	pv_put32(tcp + 4, pv_get32(tcp + 4) + i * p->gso_size);
	if (!last)
		tcp[13] &= (uint8_t)~0x09u;
	if (i)
		tcp[13] &= (uint8_t)~0x80u;
}

uint32_t pv_frame_cut(const struct pv_pkt *p, uint32_t i, uint8_t *out)
{
	uint32_t hdr = p->gso_hdr, off = i * p->gso_size, total = 0, n;

	for (const struct pv_pkt *f = p; f; f = f->frag)
		total += f->len;
	n = PV_MIN(total - hdr - off, (uint32_t)p->gso_size);
	memcpy(out, p->data, hdr);
	pv_frame_gather(p, hdr + off, out + hdr, n);
	header_of_part(out, hdr + n, p, i, hdr + off + n == total);
	pv_frame_fill_csum(out, hdr + n, PV_PKT_TX_L3_CSUM | PV_PKT_TX_L4_CSUM);
	return hdr + n;
}
