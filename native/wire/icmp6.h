/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMPv6 (RFC 4443), neighbour discovery (RFC 4861), MLDv1 (RFC 2710) and MLDv2 (RFC 3810). Addresses are views of 16 bytes. */
#ifndef PV_WIRE_ICMP6_H
#define PV_WIRE_ICMP6_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/igmp.h"
#include "wire/ipv6.h"

#define PV_ICMP6_HLEN 8u
#define PV_ICMP6_UNREACH 1u
#define PV_ICMP6_TOO_BIG 2u
#define PV_ICMP6_TIME_EXCEEDED 3u
#define PV_ICMP6_PARAM_PROBLEM 4u
#define PV_ICMP6_ECHO 128u
#define PV_ICMP6_ECHO_REPLY 129u
#define PV_ICMP6_MLD_QUERY 130u
#define PV_ICMP6_MLD_REPORT 131u
#define PV_ICMP6_MLD_DONE 132u
#define PV_ICMP6_RS 133u
#define PV_ICMP6_RA 134u
#define PV_ICMP6_NS 135u
#define PV_ICMP6_NA 136u
#define PV_ICMP6_REDIRECT 137u
#define PV_ICMP6_MLD2_REPORT 143u

#define PV_ICMP6_UNREACH_NOROUTE 0u
#define PV_ICMP6_UNREACH_ADMIN 1u
#define PV_ICMP6_UNREACH_ADDR 3u
#define PV_ICMP6_UNREACH_PORT 4u

struct pv_wire_icmp6 {
	uint8_t type, code;
	uint16_t id, seq; /* of an echo; host order */
	uint32_t word; /* second word, host order: MTU of "packet too big", pointer of a parameter problem */
	const uint8_t *body; /* behind the 8 bytes: echo data, or the packet an error is about */
	uint32_t body_len;
};

/* 0, or -EBADMSG when shorter than 8 bytes. The checksum is not looked at: pseudo-header and whole message, pv_cksum_pseudo6. */
int pv_wire_icmp6_parse(const uint8_t *p, uint32_t len, struct pv_wire_icmp6 *out);

/* Error messages have types below 128 (RFC 4443 2.1). */
pv_inline bool pv_wire_icmp6_is_error(uint8_t type)
{
	return type < 128;
}

struct pv_wire_quote6 {
	struct pv_wire_ip6 ip; /* payload_len as it was sent: more than is quoted */
	uint8_t proto;
	const uint8_t *l4;
	uint32_t l4_len; /* quoted bytes of it */
	uint16_t src_port, dst_port; /* UDP and TCP, host order; else 0 */
};
/* 0, or -EBADMSG: no IPv6 header, extension headers beyond what is quoted, fewer than 8 bytes behind them, or a later fragment. */
int pv_wire_icmp6_quote(const uint8_t *body, uint32_t len, struct pv_wire_quote6 *out);

/* Writes the 8-byte header with checksum 0; `rest`: the second word in host order. */
uint32_t pv_wire_icmp6_emit(uint8_t *p, uint8_t type, uint8_t code, uint32_t rest);
/* Sums pseudo-header and `len` bytes from the ICMPv6 header on and stores the checksum. */
void pv_wire_icmp6_csum_fill(uint8_t *p, uint32_t len, const void *src, const void *dst);

/* ---- neighbour discovery ----------------------------------------------------------------------------------------------- */

#define PV_ND_PREFIX_MAX 4u
#define PV_ND_NA_ROUTER 0x80u
#define PV_ND_NA_SOLICITED 0x40u
#define PV_ND_NA_OVERRIDE 0x20u

struct pv_wire_nd_prefix {
	const uint8_t *prefix;
	uint32_t valid_s, preferred_s;
	uint8_t len;
	bool onlink, autoconf;
};

/* NS, NA, RS, RA and redirect, whichever `type` says; what a message does not have is zero. */
struct pv_wire_nd {
	uint8_t type;
	uint8_t flags; /* NA: PV_ND_NA_*; RA: managed 0x80, other 0x40 */
	const uint8_t *target; /* NS, NA, redirect */
	const uint8_t *dest; /* redirect */
	const uint8_t *src_lla, *tgt_lla; /* MAC of the option, or NULL */
	uint32_t mtu; /* option; 0: none */
	/* RA */
	uint8_t hop_limit;
	uint16_t lifetime_s;
	uint32_t reachable_ms, retrans_ms;
	struct pv_wire_nd_prefix prefix[PV_ND_PREFIX_MAX]; /* further ones are skipped */
	uint8_t prefixes;
};

/* The whole ICMPv6 message. 0, or -EBADMSG: type, code not 0, too short, an option of length 0 or past the end (RFC 4861 6.1, 7.1),
 * a group as NS or NA target. What needs the IP header (hop limit 255, destination) is the caller's to check. */
int pv_wire_nd_parse(const uint8_t *p, uint32_t len, struct pv_wire_nd *out);

/* The longest of what these three write; checksum 0. `lla` NULL: without the link-layer address option. Return the length. */
#define PV_ND_EMIT_MAX 32u
uint32_t pv_wire_nd_ns_emit(uint8_t *p, const void *target, const uint8_t *lla);
uint32_t pv_wire_nd_na_emit(uint8_t *p, const void *target, uint8_t flags, const uint8_t *lla);
uint32_t pv_wire_nd_rs_emit(uint8_t *p, const uint8_t *lla);

/* Solicited-node group of an address (RFC 4291 2.7.1): 16 bytes to `out`. */
void pv_wire_nd_solicited_node(uint8_t *out, const void *addr);

/* ---- multicast listener discovery ---------------------------------------------------------------------------------------- */

/* A query, or an MLDv1 report or done (type in `type`). */
struct pv_wire_mld {
	uint8_t type;
	uint8_t version; /* 1 or 2 */
	const uint8_t *group; /* all zero: general query */
	uint32_t max_resp_ms;
	const uint8_t *sources; /* version 2 query: 16 bytes each */
	uint16_t nsources;
};
/* 0 or -EBADMSG. */
int pv_wire_mld_parse(const uint8_t *p, uint32_t len, struct pv_wire_mld *out);
/* MLDv1 report or done: 24 bytes, checksum 0. */
uint32_t pv_wire_mld1_emit(uint8_t *p, uint8_t type, const void *group);
/* MLDv2 report of as many of the records as fit into `size` bytes; checksum 0. Stores how many records went in (a record with too
 * many sources is cut at what fits, RFC 3810 5.2.15) and returns the length, 0 when not even one fits. */
uint32_t pv_wire_mld2_emit(uint8_t *p, uint32_t size, const struct pv_wire_grec *rec, uint32_t n, uint32_t *done);

#endif
