/* SPDX-License-Identifier: BSD-3-Clause */
/* The header in front of each frame that came (ring/vnet.h): what is unfinished was never on a wire, and is good. */
#include "ring/tapdev_priv.h"

#include <string.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "ring/frame.h"
#include "ring/vnet.h"

#define ETHERTYPE_VLAN 0x8100u
#define PROTO_UDP 17

uint32_t pv_tapdev_rx_flags(const struct virtio_net_hdr *h)
{
	return h->flags & (VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID) ? PV_PKT_L4_OK : 0;
}

/* ---- datagrams that came as one ------------------------------------------------------------------------------------------ */

bool pv_tapdev_udp_parse(const uint8_t *data, uint32_t len, uint32_t total, const struct virtio_net_hdr *h, struct tapdev_udp *out)
{
	uint32_t l4, ip_len;
	uint64_t sum;
	uint8_t proto;

	if (len < 14 || !h->gso_size || !pv_vnet_find_l4(data, len, &l4, &proto, &sum) || proto != PROTO_UDP)
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
		pv_vnet_fill_ip4(out, u->headers);
	} else {
		pv_put16(ip + 4, (uint16_t)l4_len);
	}
	pv_put16(udp + 4, (uint16_t)l4_len);
	if (pv_vnet_find_l4(out, u->headers + n, &l4, &proto, &sum))
		pv_cksum_put(udp + 6, pv_cksum_fold(sum));
	return u->headers + n;
}
