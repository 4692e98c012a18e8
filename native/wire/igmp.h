/* SPDX-License-Identifier: BSD-3-Clause */
/* IGMP versions 1 (RFC 1112), 2 (RFC 2236) and 3 (RFC 3376), and the group records that version 3 shares with MLDv2. */
#ifndef PV_WIRE_IGMP_H
#define PV_WIRE_IGMP_H

#include <stdint.h>

#include "base/addr.h"

#define PV_IGMP_HLEN 8u
#define PV_IGMP_QUERY 0x11u
#define PV_IGMP_V1_REPORT 0x12u
#define PV_IGMP_V2_REPORT 0x16u
#define PV_IGMP_V2_LEAVE 0x17u
#define PV_IGMP_V3_REPORT 0x22u

/* Record types (RFC 3376 4.2.12, RFC 3810 5.2.12). */
enum pv_grec_type {
	PV_GREC_IS_INCLUDE = 1,
	PV_GREC_IS_EXCLUDE = 2,
	PV_GREC_TO_INCLUDE = 3,
	PV_GREC_TO_EXCLUDE = 4,
	PV_GREC_ALLOW = 5,
	PV_GREC_BLOCK = 6,
};

struct pv_wire_grec {
	enum pv_grec_type type;
	struct pv_addr group;
	const struct pv_addr *sources;
	uint32_t nsources;
};

struct pv_wire_igmp {
	uint8_t type;
	uint8_t version; /* 1, 2 or 3 */
	uint32_t group; /* as on the wire; 0: general query */
	uint32_t max_resp_ms; /* version 1: 10 s */
	const uint8_t *sources; /* version 3 query: 4 bytes each */
	uint16_t nsources;
};

/* Queries and v1/v2 reports and leaves; of a v3 report only type and version. 0, or -EBADMSG: too short, unknown type, more sources
 * than bytes. The checksum (pv_cksum_add over the message) is the caller's to check. */
int pv_wire_igmp_parse(const uint8_t *p, uint32_t len, struct pv_wire_igmp *out);
/* v1 or v2 report, v2 leave: 8 bytes with checksum. */
uint32_t pv_wire_igmp_emit(uint8_t *p, uint8_t type, uint32_t group);
/* v3 report of as many of the records as fit into `size` bytes, with checksum. Stores how many records went in (a record with too many
 * sources is cut at what fits, RFC 3376 4.2.16) and returns the length, 0 when not even one fits. */
uint32_t pv_wire_igmp3_emit(uint8_t *p, uint32_t size, const struct pv_wire_grec *rec, uint32_t n, uint32_t *done);

/* Value of the floating-point codes of RFC 3376 4.1.1 (bits 8) and RFC 3810 5.1.3 (bits 16). */
uint32_t pv_wire_group_code(uint32_t code, uint32_t bits);

#endif
