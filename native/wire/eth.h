/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ethernet II with up to two VLAN tags (IEEE 802.1Q, 802.1ad).
 *
 * As everywhere in wire/: parsers read within `len` only, keep no pointer but views into the bytes they were given, and return a
 * length >= 0 or -errno; emitters write what they say and return its length. Any thread.
 */
#ifndef PV_WIRE_ETH_H
#define PV_WIRE_ETH_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/addr.h"
#include "base/bytes.h"

#define PV_ETH_HLEN 14u
#define PV_VLAN_HLEN 4u
#define PV_ETH_FRAME_MIN 60u /* without FCS; what is shorter is padded by whoever sends */

#define PV_ETHERTYPE_IP4 0x0800u
#define PV_ETHERTYPE_ARP 0x0806u
#define PV_ETHERTYPE_VLAN 0x8100u
#define PV_ETHERTYPE_IP6 0x86ddu
#define PV_ETHERTYPE_QINQ 0x88a8u

struct pv_wire_eth {
	const uint8_t *dst, *src; /* into the frame */
	uint16_t type; /* of the payload, behind all tags; below 0x0600 it is an 802.3 length */
	uint16_t tci[2]; /* tags from the outside in, host order: priority, DEI, VLAN id */
	uint8_t tags; /* how many: 0..2 */
};

/* Length of the header (14, 18 or 22), or -EBADMSG when the frame ends inside it. */
pv_inline int pv_wire_eth_parse(const uint8_t *p, uint32_t len, struct pv_wire_eth *out)
{
	uint32_t hlen = PV_ETH_HLEN;

	if (pv_unlikely(len < PV_ETH_HLEN))
		return -EBADMSG;
	out->dst = p;
	out->src = p + PV_ETH_ALEN;
	out->type = pv_get16(p + 12);
	out->tags = 0;
	while (pv_unlikely(out->type == PV_ETHERTYPE_VLAN || out->type == PV_ETHERTYPE_QINQ)) {
		if (len < hlen + PV_VLAN_HLEN || out->tags == 2)
			return -EBADMSG;
		out->tci[out->tags++] = pv_get16(p + hlen);
		out->type = pv_get16(p + hlen + 2);
		hlen += PV_VLAN_HLEN;
	}
	return (int)hlen;
}

/* `tci` 0: untagged. Writes 14 or 18 bytes and returns how many. */
pv_inline uint32_t pv_wire_eth_emit(uint8_t *p, const uint8_t *dst, const uint8_t *src, uint16_t tci, uint16_t type)
{
	memcpy(p, dst, PV_ETH_ALEN);
	memcpy(p + PV_ETH_ALEN, src, PV_ETH_ALEN);
	if (!tci) {
		pv_put16(p + 12, type);
		return PV_ETH_HLEN;
	}
	pv_put16(p + 12, PV_ETHERTYPE_VLAN);
	pv_put16(p + 14, tci);
	pv_put16(p + 16, type);
	return PV_ETH_HLEN + PV_VLAN_HLEN;
}

pv_inline bool pv_mac_is_group(const uint8_t *mac)
{
	return mac[0] & 1;
}

pv_inline bool pv_mac_is_broadcast(const uint8_t *mac)
{
	return (mac[0] & mac[1] & mac[2] & mac[3] & mac[4] & mac[5]) == 0xff;
}

#endif
