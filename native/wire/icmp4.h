/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP (RFC 792, RFC 1122 3.2.2, RFC 1191). */
#ifndef PV_WIRE_ICMP4_H
#define PV_WIRE_ICMP4_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/ipv4.h"

#define PV_ICMP4_HLEN 8u
#define PV_ICMP4_ECHO_REPLY 0u
#define PV_ICMP4_UNREACH 3u
#define PV_ICMP4_SOURCE_QUENCH 4u
#define PV_ICMP4_REDIRECT 5u
#define PV_ICMP4_ECHO 8u
#define PV_ICMP4_TIME_EXCEEDED 11u
#define PV_ICMP4_PARAM_PROBLEM 12u

#define PV_ICMP4_UNREACH_NET 0u
#define PV_ICMP4_UNREACH_HOST 1u
#define PV_ICMP4_UNREACH_PROTO 2u
#define PV_ICMP4_UNREACH_PORT 3u
#define PV_ICMP4_UNREACH_FRAG 4u

struct pv_wire_icmp4 {
	uint8_t type, code;
	uint16_t id, seq; /* of an echo; host order */
	uint16_t mtu; /* of "fragmentation needed"; 0: an old router that does not tell (RFC 1191 5) */
	uint8_t pointer; /* of a parameter problem */
	const uint8_t *body; /* behind the 8 bytes: echo data, or the packet an error is about */
	uint32_t body_len;
};

/* 0, or -EBADMSG when shorter than 8 bytes. The checksum is not looked at: sum the whole message with pv_cksum_add. */
int pv_wire_icmp4_parse(const uint8_t *p, uint32_t len, struct pv_wire_icmp4 *out);

/* True for the types that carry a packet of ours and are errors. */
bool pv_wire_icmp4_is_error(uint8_t type);

/* The packet that an error quotes: at least its IP header and 8 bytes (RFC 792). */
struct pv_wire_quote4 {
	struct pv_wire_ip4 ip; /* total_len as it was sent: more than is quoted */
	const uint8_t *l4;
	uint32_t l4_len; /* quoted bytes of it */
	uint16_t src_port, dst_port; /* UDP and TCP, host order; else 0 */
};
/* 0, or -EBADMSG: no IPv4 header, fewer than 8 bytes behind it, or a later fragment (its ports are not there). */
int pv_wire_icmp4_quote(const uint8_t *body, uint32_t len, struct pv_wire_quote4 *out);

/* Writes the 8-byte header with checksum 0: `rest` is the second word in host order (echo: id << 16 | seq; MTU; pointer << 24). */
uint32_t pv_wire_icmp4_emit(uint8_t *p, uint8_t type, uint8_t code, uint32_t rest);
/* Sums `len` bytes from the ICMP header on and stores the checksum. */
void pv_wire_icmp4_csum_fill(uint8_t *p, uint32_t len);

#endif
