/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbour discovery messages (RFC 4861 4). Options that are too short for what they claim make the whole message invalid (6.1, 7.1);
 * unknown ones are skipped.
 */
#include <string.h>

#include "wire/eth.h"
#include "wire/icmp6.h"

#define OPT_SRC_LLA 1u
#define OPT_TGT_LLA 2u
#define OPT_PREFIX 3u
#define OPT_MTU 5u

/* Bytes before the options. 0: not a message of neighbour discovery. */
static uint32_t fixed_len(uint8_t type)
{
	switch (type) {
	case PV_ICMP6_RS:
		return 8;
	case PV_ICMP6_RA:
		return 16;
	case PV_ICMP6_NS:
	case PV_ICMP6_NA:
		return 24;
	case PV_ICMP6_REDIRECT:
		return 40;
	default:
		return 0;
	}
}

static void prefix(const uint8_t *o, struct pv_wire_nd *out)
{
	if (out->prefixes == PV_ND_PREFIX_MAX || o[2] > 128)
		return;
	out->prefix[out->prefixes++] = (struct pv_wire_nd_prefix){
		.prefix = o + 16,
		.valid_s = pv_get32(o + 4),
		.preferred_s = pv_get32(o + 8),
		.len = o[2],
		.onlink = o[3] & 0x80,
		.autoconf = o[3] & 0x40,
	};
}

static int options(const uint8_t *p, uint32_t len, struct pv_wire_nd *out)
{
	for (uint32_t off = 0; off < len;) {
		const uint8_t *o = p + off;
		uint32_t olen;

		if (len - off < 8)
			return -EBADMSG;
		olen = o[1] * 8u;
		if (!olen || olen > len - off)
			return -EBADMSG;
		if (o[0] == OPT_SRC_LLA)
			out->src_lla = o + 2;
		else if (o[0] == OPT_TGT_LLA)
			out->tgt_lla = o + 2;
		else if (o[0] == OPT_MTU)
			out->mtu = pv_get32(o + 4);
		else if (o[0] == OPT_PREFIX && olen == 32)
			prefix(o, out);
		off += olen;
	}
	return 0;
}

int pv_wire_nd_parse(const uint8_t *p, uint32_t len, struct pv_wire_nd *out)
{
	uint32_t fixed;

	memset(out, 0, sizeof(*out));
	fixed = len ? fixed_len(p[0]) : 0;
	if (!fixed || len < fixed || p[1])
		return -EBADMSG;
	out->type = p[0];
	if (fixed >= 24)
		out->target = p + 8;
	if ((out->type == PV_ICMP6_NS || out->type == PV_ICMP6_NA) && out->target[0] == 0xff)
		return -EBADMSG;
	if (out->type == PV_ICMP6_REDIRECT)
		out->dest = p + 24;
	if (out->type == PV_ICMP6_NA)
		out->flags = p[4];
	if (out->type == PV_ICMP6_RA) {
		out->hop_limit = p[4];
		out->flags = p[5];
		out->lifetime_s = pv_get16(p + 6);
		out->reachable_ms = pv_get32(p + 8);
		out->retrans_ms = pv_get32(p + 12);
	}
	return options(p + fixed, len - fixed, out);
}

static uint32_t lla_emit(uint8_t *p, uint8_t type, const uint8_t *lla)
{
	if (!lla)
		return 0;
	p[0] = type;
	p[1] = 1;
	memcpy(p + 2, lla, PV_ETH_ALEN);
	return 8;
}

uint32_t pv_wire_nd_ns_emit(uint8_t *p, const void *target, const uint8_t *lla)
{
	pv_wire_icmp6_emit(p, PV_ICMP6_NS, 0, 0);
	memcpy(p + 8, target, 16);
	return 24 + lla_emit(p + 24, OPT_SRC_LLA, lla);
}

uint32_t pv_wire_nd_na_emit(uint8_t *p, const void *target, uint8_t flags, const uint8_t *lla)
{
	pv_wire_icmp6_emit(p, PV_ICMP6_NA, 0, (uint32_t)flags << 24);
	memcpy(p + 8, target, 16);
	return 24 + lla_emit(p + 24, OPT_TGT_LLA, lla);
}

uint32_t pv_wire_nd_rs_emit(uint8_t *p, const uint8_t *lla)
{
	pv_wire_icmp6_emit(p, PV_ICMP6_RS, 0, 0);
	return 8 + lla_emit(p + 8, OPT_SRC_LLA, lla);
}

void pv_wire_nd_solicited_node(uint8_t *out, const void *addr)
{
	static const uint8_t prefix_[13] = { 0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff };

	memcpy(out, prefix_, sizeof(prefix_));
	memcpy(out + 13, (const uint8_t *)addr + 13, 3);
}
