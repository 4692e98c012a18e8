/* SPDX-License-Identifier: BSD-3-Clause */
/* ARP for IPv4 over Ethernet (RFC 826, RFC 5227). */
#ifndef PV_WIRE_ARP_H
#define PV_WIRE_ARP_H

#include <stdint.h>

#include "base/addr.h"

#define PV_ARP_LEN 28u
#define PV_ARP_REQUEST 1u
#define PV_ARP_REPLY 2u

struct pv_wire_arp {
	uint16_t op;
	uint8_t sha[PV_ETH_ALEN], tha[PV_ETH_ALEN];
	uint32_t spa, tpa; /* as on the wire */
};

/* 0, or -EBADMSG: short, not Ethernet and IPv4, operation neither request nor reply, or a group as sender's hardware address. */
int pv_wire_arp_parse(const uint8_t *p, uint32_t len, struct pv_wire_arp *out);
/* Writes PV_ARP_LEN bytes. */
uint32_t pv_wire_arp_emit(uint8_t *p, const struct pv_wire_arp *arp);

#endif
