/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/vnet.h"

#include <string.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "ring/frame.h"

#define ETHERTYPE_IP4 0x0800u
#define ETHERTYPE_IP6 0x86ddu
#define ETHERTYPE_VLAN 0x8100u
#define PROTO_TCP 6
#define PROTO_UDP 17
#define TCP_CWR 0x80

bool pv_vnet_find_l4(const uint8_t *data, uint32_t len, uint32_t *l4, uint8_t *proto, uint64_t *sum)
{
	uint32_t l3 = 14, type = pv_get16(data + 12), total, hlen, src, dst;
	const uint8_t *ip;

	if (type == ETHERTYPE_VLAN && len >= 18) {
		type = pv_get16(data + 16);
		l3 = 18;
	}
	ip = data + l3;
	if (type == ETHERTYPE_IP4 && len >= l3 + 20 && ip[0] >> 4 == 4) {
		hlen = (ip[0] & 15u) * 4u;
		total = pv_get16(ip + 2);
		if (hlen < 20 || total < hlen || pv_get16(ip + 6) & 0x3fff)
			return false;
		*proto = ip[9];
		memcpy(&src, ip + 12, sizeof(src));
		memcpy(&dst, ip + 16, sizeof(dst));
		*sum = pv_cksum_pseudo4(src, dst, *proto, total - hlen);
	} else if (type == ETHERTYPE_IP6 && len >= l3 + 40 && ip[0] >> 4 == 6) {
		hlen = 40;
		*proto = ip[6];
		*sum = pv_cksum_pseudo6(ip + 8, ip + 24, *proto, pv_get16(ip + 4));
	} else {
		return false;
	}
	*l4 = l3 + hlen;
	return (*proto == PROTO_TCP && len >= *l4 + 20) || (*proto == PROTO_UDP && len >= *l4 + 8);
}

void pv_vnet_fill_ip4(uint8_t *data, uint32_t len)
{
	uint32_t l3 = pv_get16(data + 12) == ETHERTYPE_VLAN ? 18 : 14, hlen;
	uint8_t *ip = data + l3;

	if (len < l3 + 20 || pv_get16(ip - 2) != ETHERTYPE_IP4)
		return;
	hlen = (ip[0] & 15u) * 4u;
	if (hlen < 20 || len < l3 + hlen)
		return;
	pv_cksum_put(ip + 10, 0);
	pv_cksum_put(ip + 10, pv_cksum_finish(pv_likely(hlen == 20) ? pv_cksum_ip4_header(ip) : pv_cksum_add(ip, hlen, 0)));
}

/* The length of the whole, which is what the kernel cuts. */
static void put_length(uint8_t *data, uint32_t total)
{
	uint32_t l3 = pv_get16(data + 12) == ETHERTYPE_VLAN ? 18 : 14;

	if (data[l3] >> 4 == 4)
		pv_put16(data + l3 + 2, (uint16_t)(total - l3));
	else
		pv_put16(data + l3 + 4, (uint16_t)(total - l3 - 40));
}

bool pv_vnet_tx_header(struct pv_pkt *p, struct virtio_net_hdr *h)
{
	uint32_t l4, field;
	uint64_t sum;
	uint8_t proto;

	*h = (struct virtio_net_hdr){ .gso_type = VIRTIO_NET_HDR_GSO_NONE };
	if (p->flags & PV_PKT_TX_TSO)
		put_length(p->data, p->total);
	if (p->flags & (PV_PKT_TX_L3_CSUM | PV_PKT_TX_TSO))
		pv_vnet_fill_ip4(p->data, p->len);
	if (!(p->flags & (PV_PKT_TX_L4_CSUM | PV_PKT_TX_TSO)))
		return true;
	if (pv_unlikely(!pv_vnet_find_l4(p->data, p->len, &l4, &proto, &sum))) {
		if (p->frag || p->flags & PV_PKT_TX_TSO)
			return false;
		pv_frame_fill_csum(p->data, p->len, PV_PKT_TX_L4_CSUM);
		return true;
	}
	field = proto == PROTO_UDP ? 6 : 16;
	pv_cksum_put(p->data + l4 + field, pv_cksum_fold(sum));
	h->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	h->csum_start = (uint16_t)l4;
	h->csum_offset = (uint16_t)field;
	if (!(p->flags & PV_PKT_TX_TSO))
		return true;
	if (proto != PROTO_TCP)
		return false;
	/* The kernel refuses to cut what is one segment already. */
	if (p->total - p->gso_hdr <= p->gso_size)
		return true;
	h->gso_type = p->data[pv_get16(p->data + 12) == ETHERTYPE_VLAN ? 18 : 14] >> 4 == 4 ? VIRTIO_NET_HDR_GSO_TCPV4
											    : VIRTIO_NET_HDR_GSO_TCPV6;
	if (p->data[l4 + 13] & TCP_CWR)
		h->gso_type |= VIRTIO_NET_HDR_GSO_ECN;
	h->hdr_len = p->gso_hdr;
	h->gso_size = p->gso_size;
	return true;
}
