/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which frames a capture wants, in words that tcpdump knows: terms that must all hold, with "and" between them or nothing.
 *	[not] ip | ip6 | arp | tcp | udp | icmp | icmp6
 *	[not] [src | dst] host ADDRESS
 *	[not] [src | dst] net ADDRESS/PREFIX
 *	[not] [src | dst] port NUMBER
 *	[not] vlan [ID]
 * No state but the caller's, any thread.
 */
#ifndef PV_RT_FILTER_H
#define PV_RT_FILTER_H

#include <stdbool.h>

#include "base/addr.h"
#include "pkt/pkt.h"

#define PV_FILTER_TERMS 16
#define PV_FILTER_TEXT_MAX 512

enum pv_filter_what { PV_FILTER_TYPE, PV_FILTER_PROTO, PV_FILTER_NET, PV_FILTER_PORT, PV_FILTER_VLAN };

#define PV_FILTER_SRC 1u
#define PV_FILTER_DST 2u

struct pv_filter_term {
	enum pv_filter_what what;
	bool negate;
	uint8_t side; /* PV_FILTER_SRC, PV_FILTER_DST, or both: either may match */
	uint8_t version; /* of an IP protocol: 4, 6; 0: any */
	uint8_t prefix_len; /* of the mapped address, 0..128 */
	uint16_t number; /* ethertype, protocol, port, VLAN id (0: any) */
	struct pv_addr addr;
};

struct pv_filter {
	uint32_t n; /* 0: every frame */
	struct pv_filter_term term[PV_FILTER_TERMS];
};

/* 0; -EINVAL, -E2BIG with a text (rt/error.h). */
int pv_filter_parse(const char *text, struct pv_filter *out);
/* Looks at the first piece of the packet only; what is cut short before a field does not have it. */
bool pv_filter_match(const struct pv_filter *f, const struct pv_pkt *pkt);

#endif
