/* SPDX-License-Identifier: BSD-3-Clause */
/* IPv4 (RFC 791, RFC 1122 3.2.1). */
#ifndef PV_WIRE_IPV4_H
#define PV_WIRE_IPV4_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "base/cksum.h"

#define PV_IP4_HLEN 20u
#define PV_IP4_HLEN_MAX 60u
#define PV_IP4_DF 0x4000u
#define PV_IP4_MF 0x2000u
#define PV_IP4_OFFSET 0x1fffu
#define PV_IP4_MIN_MTU 576u /* what every host must be able to receive whole */
#define PV_IP4_LEAST_MTU 68u /* what every link must carry: the longest header and eight bytes (RFC 791 3.2) */

struct pv_wire_ip4 {
	uint32_t src, dst; /* as on the wire */
	uint16_t total_len; /* header and payload; the frame may be longer (padding) */
	uint16_t id;
	uint16_t frag; /* PV_IP4_DF, PV_IP4_MF and offset in units of 8 bytes, host order */
	uint8_t hdr_len; /* 20..60 */
	uint8_t tos, ttl, proto;
};

/*
 * Length of the header, or
 *   -EMSGSIZE  fewer bytes than the header or its total length say,
 *   -EBADMSG   version, header length or total length impossible.
 * Checksum and options are not looked at: pv_wire_ip4_csum_ok, and pv_wire_ip4_options when the length is not 20.
 */
pv_inline int pv_wire_ip4_parse(const uint8_t *p, uint32_t len, struct pv_wire_ip4 *out)
{
	uint32_t hlen;

	if (pv_unlikely(len < PV_IP4_HLEN))
		return -EMSGSIZE;
	hlen = (p[0] & 0x0fu) * 4u;
	out->hdr_len = (uint8_t)hlen;
	out->tos = p[1];
	out->total_len = pv_get16(p + 2);
	out->id = pv_get16(p + 4);
	out->frag = pv_get16(p + 6);
	out->ttl = p[8];
	out->proto = p[9];
	memcpy(&out->src, p + 12, 4);
	memcpy(&out->dst, p + 16, 4);
	if (pv_unlikely(p[0] != 0x45 && (p[0] >> 4 != 4 || hlen < PV_IP4_HLEN)))
		return -EBADMSG;
	if (pv_unlikely(out->total_len < hlen))
		return -EBADMSG;
	if (pv_unlikely(out->total_len > len))
		return -EMSGSIZE;
	return (int)hlen;
}

pv_inline bool pv_wire_ip4_is_frag(const struct pv_wire_ip4 *ip)
{
	return (ip->frag & (PV_IP4_MF | PV_IP4_OFFSET)) != 0;
}

pv_inline bool pv_wire_ip4_csum_ok(const uint8_t *p, uint32_t hdr_len)
{
	return pv_cksum_ok(pv_likely(hdr_len == PV_IP4_HLEN) ? pv_cksum_ip4_header(p) : pv_cksum_add(p, hdr_len, 0));
}

/* Computes and stores the header checksum, whatever the field holds. */
pv_inline void pv_wire_ip4_csum_fill(uint8_t *p, uint32_t hdr_len)
{
	pv_cksum_put(p + 10, 0);
	pv_cksum_put(p + 10, pv_cksum_finish(hdr_len == PV_IP4_HLEN ? pv_cksum_ip4_header(p) : pv_cksum_add(p, hdr_len, 0)));
}

/* Writes 20 bytes from the fields (hdr_len is taken as 20), checksum field 0. */
pv_inline uint32_t pv_wire_ip4_emit(uint8_t *p, const struct pv_wire_ip4 *ip)
{
	p[0] = 0x45;
	p[1] = ip->tos;
	pv_put16(p + 2, ip->total_len);
	pv_put16(p + 4, ip->id);
	pv_put16(p + 6, ip->frag);
	p[8] = ip->ttl;
	p[9] = ip->proto;
	pv_put16(p + 10, 0);
	memcpy(p + 12, &ip->src, 4);
	memcpy(p + 16, &ip->dst, 4);
	return PV_IP4_HLEN;
}

/* What the options say (RFC 791 3.1, RFC 2113). */
struct pv_wire_ip4_opts {
	bool router_alert;
	bool source_route; /* loose or strict */
	bool route_left; /* and not yet at its end: the packet is not for us */
};

/* `p` is the header of `hdr_len` bytes. 0, or -EPROTO when an option's length or pointer is impossible; then `bad_off` is its offset
 * in the header (ICMP parameter problem, RFC 1122 3.2.1.8). Neither pointer may be NULL. */
int pv_wire_ip4_options(const uint8_t *p, uint32_t hdr_len, struct pv_wire_ip4_opts *out, uint8_t *bad_off);

/* Header options of a later fragment: copies those with the copied bit (RFC 791 3.1), padded to words. `dst` has room for 40 bytes;
 * returns the length. `opts` have passed pv_wire_ip4_options. */
uint32_t pv_wire_ip4_options_for_frag(uint8_t *dst, const uint8_t *opts, uint32_t len);

#endif
