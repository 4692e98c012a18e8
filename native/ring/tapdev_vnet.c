/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header in front of each frame, as virtio 1.2, 5.1.6 has it, in the host's byte order (TUNSETVNETLE is not asked for).
 *
 * Sent: a checksum that the kernel is to finish holds the sum of the pseudo-header, of the whole when the frame is to be cut. The
 * kernel computes nothing for a receiver on the same host. Received: what is unfinished was never on a wire, and is good.
 */
#include "ring/tapdev_priv.h"

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

uint32_t pv_tapdev_rx_flags(const struct virtio_net_hdr *h)
{
	return h->flags & (VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID) ? PV_PKT_L4_OK : 0;
}

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

/* Where the transport's header is, and the sum of its pseudo-header. Only what the stack sends itself: no extension headers. */
static bool find_l4(const uint8_t *data, uint32_t len, uint32_t *l4, uint8_t *proto, uint64_t *sum)
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

static void fill_ip4(uint8_t *data, uint32_t len)
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

bool pv_tapdev_tx_header(struct pv_pkt *p, struct virtio_net_hdr *h)
{
	uint32_t l4, field;
	uint64_t sum;
	uint8_t proto;

	*h = (struct virtio_net_hdr){ .gso_type = VIRTIO_NET_HDR_GSO_NONE };
	if (p->flags & PV_PKT_TX_TSO)
		put_length(p->data, p->total);
	if (p->flags & (PV_PKT_TX_L3_CSUM | PV_PKT_TX_TSO))
		fill_ip4(p->data, p->len);
	if (!(p->flags & (PV_PKT_TX_L4_CSUM | PV_PKT_TX_TSO)))
		return true;
	if (pv_unlikely(!find_l4(p->data, p->len, &l4, &proto, &sum))) {
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

/* ---- datagrams that came as one ------------------------------------------------------------------------------------------ */

bool pv_tapdev_udp_parse(const uint8_t *data, uint32_t len, uint32_t total, const struct virtio_net_hdr *h, struct tapdev_udp *out)
{
	uint32_t l4, ip_len;
	uint64_t sum;
	uint8_t proto;

	if (len < 14 || !h->gso_size || !find_l4(data, len, &l4, &proto, &sum) || proto != PROTO_UDP)
		return false;
	out->l3 = pv_get16(data + 12) == ETHERTYPE_VLAN ? 18 : 14;
	out->headers = l4 + 8;
	ip_len = data[out->l3] >> 4 == 4 ? pv_get16(data + out->l3 + 2) : 40u + pv_get16(data + out->l3 + 4);
	if (out->l3 + ip_len > total || out->l3 + ip_len <= out->headers || out->headers > TAPDEV_UDP_HEADERS)
		return false;
	out->payload = out->l3 + ip_len - out->headers;
	out->gso = h->gso_size;
	out->parts = (out->payload + out->gso - 1) / out->gso;
	return out->parts <= TAPDEV_UDP_PARTS;
}

/* Lengths and identification as Linux's __udp_gso_segment writes them. The checksum is left begun: it was good, and the packet says so. */
uint32_t pv_tapdev_udp_part(const struct pv_pkt *p, const struct tapdev_udp *u, uint32_t i, uint8_t *out)
{
	uint32_t off = i * u->gso, n = PV_MIN(u->gso, u->payload - off), l4_len, l4;
	uint8_t *ip = out + u->l3, *udp = out + u->headers - 8;
	uint64_t sum;
	uint8_t proto;

	memcpy(out, p->data, u->headers);
	pv_frame_gather(p, u->headers + off, out + u->headers, n);
	l4_len = 8 + n;
	if (ip[0] >> 4 == 4) {
		pv_put16(ip + 2, (uint16_t)(u->headers - 8 - u->l3 + l4_len));
		pv_put16(ip + 4, (uint16_t)(pv_get16(ip + 4) + i));
		fill_ip4(out, u->headers);
	} else {
		pv_put16(ip + 4, (uint16_t)l4_len);
	}
	pv_put16(udp + 4, (uint16_t)l4_len);
	if (find_l4(out, u->headers + n, &l4, &proto, &sum))
		pv_cksum_put(udp + 6, pv_cksum_fold(sum));
	return u->headers + n;
}
