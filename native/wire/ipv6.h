/* SPDX-License-Identifier: BSD-3-Clause */
/* IPv6 and its extension headers (RFC 8200). */
#ifndef PV_WIRE_IPV6_H
#define PV_WIRE_IPV6_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/addr.h"
#include "base/bytes.h"

#define PV_IP6_HLEN 40u
#define PV_IP6_FRAG_HLEN 8u
#define PV_IP6_MIN_MTU 1280u
#define PV_IP6_EXT_MAX 8u /* extension headers in one packet at most (RFC 8504 5.3) */

#define PV_IP6_NEXT_HOP 0u
#define PV_IP6_NEXT_ROUTING 43u
#define PV_IP6_NEXT_FRAG 44u
#define PV_IP6_NEXT_NONE 59u
#define PV_IP6_NEXT_DEST 60u

struct pv_wire_ip6 {
	const uint8_t *src, *dst; /* into the packet */
	uint32_t flow; /* flow label, 20 bits */
	uint16_t payload_len; /* behind the fixed header; the frame may be longer */
	uint8_t tclass, next, hops;
};

/* 40, or -EMSGSIZE (fewer bytes than the header or its length say), -EBADMSG (version). */
pv_inline int pv_wire_ip6_parse(const uint8_t *p, uint32_t len, struct pv_wire_ip6 *out)
{
	uint32_t w;

	if (pv_unlikely(len < PV_IP6_HLEN))
		return -EMSGSIZE;
	w = pv_get32(p);
	out->tclass = (uint8_t)(w >> 20);
	out->flow = w & 0xfffff;
	out->payload_len = pv_get16(p + 4);
	out->next = p[6];
	out->hops = p[7];
	out->src = p + 8;
	out->dst = p + 24;
	if (pv_unlikely(w >> 28 != 6))
		return -EBADMSG;
	if (pv_unlikely(out->payload_len > len - PV_IP6_HLEN))
		return -EMSGSIZE;
	return (int)PV_IP6_HLEN;
}

/* Writes 40 bytes; src and dst must not overlap them. */
pv_inline uint32_t pv_wire_ip6_emit(uint8_t *p, const struct pv_wire_ip6 *ip)
{
	pv_put32(p, 0x60000000u | (uint32_t)ip->tclass << 20 | (ip->flow & 0xfffff));
	pv_put16(p + 4, ip->payload_len);
	p[6] = ip->next;
	p[7] = ip->hops;
	memcpy(p + 8, ip->src, 16);
	memcpy(p + 24, ip->dst, 16);
	return PV_IP6_HLEN;
}

/* Result of walking the extension headers. Offsets count from the first byte of the fixed header. */
struct pv_wire_ip6_ext {
	uint8_t proto; /* the upper layer's number; of the fragmented part when `frag` */
	bool frag; /* a fragment: the walk ends behind its fragment header, l4_off is there */
	bool more;
	bool router_alert; /* RFC 2711: MLD */
	bool jumbo; /* a jumbo payload option was there; not supported, see below */
	uint16_t l4_off;
	uint16_t frag_off; /* of this fragment's data in the original, bytes */
	uint16_t frag_hdr_off; /* where its fragment header stands; 0: there was none */
	uint16_t frag_prev_off; /* the Next Header field that names the fragment header */
	uint16_t next_off; /* the Next Header field that names `proto`; set by the slow walk */
	uint32_t frag_id;
	/* when it failed with -EPROTO */
	uint8_t icmp_code; /* of a Parameter Problem: 0 bad field, 1 unknown next header, 2 unknown option */
	bool icmp_send; /* an answer is due, even (icmp_mcast) when the packet was to a group (RFC 8200 4.2) */
	bool icmp_mcast;
	uint16_t bad_off; /* its pointer */
};

/*
 * Walks hop-by-hop options, routing, destination options and fragment headers of a packet of `len` bytes (fixed header included,
 * padding cut off). A fragment header of offset 0 without "more" (an atomic fragment, RFC 6946) is passed over as if whole.
 *   0          `proto` at `l4_off` (<= len)
 *   -EMSGSIZE  a header runs past the end
 *   -EBADMSG   more than PV_IP6_EXT_MAX headers, or hop-by-hop options not in first place
 *   -EPROTO    must be dropped as the unknown option, routing header with segments left, or jumbo option demands
 */
int pv_wire_ip6_walk_slow(const uint8_t *p, uint32_t len, struct pv_wire_ip6_ext *out);

/* The same, without a call for packets that have no extension header. */
pv_inline int pv_wire_ip6_walk(const uint8_t *p, uint32_t len, struct pv_wire_ip6_ext *out)
{
	uint8_t next = p[6];

	if (pv_likely(next == 17 || next == 6 || next == 58)) {
		memset(out, 0, sizeof(*out));
		out->proto = next;
		out->l4_off = PV_IP6_HLEN;
		return 0;
	}
	return pv_wire_ip6_walk_slow(p, len, out);
}

/* Fragment header, 8 bytes. `off` in bytes, a multiple of 8. */
pv_inline uint32_t pv_wire_ip6_frag_emit(uint8_t *p, uint8_t next, uint32_t off, bool more, uint32_t id)
{
	p[0] = next;
	p[1] = 0;
	pv_put16(p + 2, (uint16_t)((off & 0xfff8u) | more));
	pv_put32(p + 4, id);
	return PV_IP6_FRAG_HLEN;
}

#endif
