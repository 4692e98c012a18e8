/* SPDX-License-Identifier: BSD-3-Clause */
/* RFC 826 packet: hardware 1 (Ethernet), protocol 0x0800, lengths 6 and 4. A group can never be a station's own address. */
#include "wire/arp.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/eth.h"

int pv_wire_arp_parse(const uint8_t *p, uint32_t len, struct pv_wire_arp *out)
{
	if (len < PV_ARP_LEN || pv_get16(p) != 1 || pv_get16(p + 2) != PV_ETHERTYPE_IP4 || p[4] != PV_ETH_ALEN || p[5] != 4)
		return -EBADMSG;
	out->op = pv_get16(p + 6);
	memcpy(out->sha, p + 8, PV_ETH_ALEN);
	memcpy(&out->spa, p + 14, 4);
	memcpy(out->tha, p + 18, PV_ETH_ALEN);
	memcpy(&out->tpa, p + 24, 4);
	if ((out->op != PV_ARP_REQUEST && out->op != PV_ARP_REPLY) || pv_mac_is_group(out->sha))
		return -EBADMSG;
	return 0;
}

uint32_t pv_wire_arp_emit(uint8_t *p, const struct pv_wire_arp *arp)
{
	pv_put16(p, 1);
	pv_put16(p + 2, PV_ETHERTYPE_IP4);
	p[4] = PV_ETH_ALEN;
	p[5] = 4;
	pv_put16(p + 6, arp->op);
	memcpy(p + 8, arp->sha, PV_ETH_ALEN);
	memcpy(p + 14, &arp->spa, 4);
	memcpy(p + 18, arp->tha, PV_ETH_ALEN);
	memcpy(p + 24, &arp->tpa, 4);
	return PV_ARP_LEN;
}
