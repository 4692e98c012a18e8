/* SPDX-License-Identifier: BSD-3-Clause */
/* RFC 792; which types are errors: RFC 1122 3.2.2. Source quench is gone (RFC 6633), redirects are not followed. */
#include "wire/icmp4.h"

#include <errno.h>

int pv_wire_icmp4_parse(const uint8_t *p, uint32_t len, struct pv_wire_icmp4 *out)
{
	if (len < PV_ICMP4_HLEN)
		return -EBADMSG;
	out->type = p[0];
	out->code = p[1];
	out->pointer = p[4];
	out->id = pv_get16(p + 4);
	out->seq = pv_get16(p + 6);
	out->mtu = out->seq;
	out->body = p + PV_ICMP4_HLEN;
	out->body_len = len - PV_ICMP4_HLEN;
	return 0;
}

bool pv_wire_icmp4_is_error(uint8_t type)
{
	return type == PV_ICMP4_UNREACH || type == PV_ICMP4_SOURCE_QUENCH || type == PV_ICMP4_REDIRECT ||
	       type == PV_ICMP4_TIME_EXCEEDED || type == PV_ICMP4_PARAM_PROBLEM;
}

int pv_wire_icmp4_quote(const uint8_t *body, uint32_t len, struct pv_wire_quote4 *out)
{
	int hlen = pv_wire_ip4_parse(body, len, &out->ip);

	/* -EMSGSIZE is the rule here, the packet being cut; its own length is not to be believed beyond what was quoted. */
	if (hlen == -EBADMSG || len < PV_IP4_HLEN)
		return -EBADMSG;
	hlen = out->ip.hdr_len;
	if (len < (uint32_t)hlen + 8 || (out->ip.frag & PV_IP4_OFFSET))
		return -EBADMSG;
	out->l4 = body + hlen;
	out->l4_len = PV_MIN(len, (uint32_t)PV_MAX(out->ip.total_len, (uint32_t)hlen + 8)) - (uint32_t)hlen;
	out->src_port = out->dst_port = 0;
	if (out->ip.proto == 17 || out->ip.proto == 6) {
		out->src_port = pv_get16(out->l4);
		out->dst_port = pv_get16(out->l4 + 2);
	}
	return 0;
}

uint32_t pv_wire_icmp4_emit(uint8_t *p, uint8_t type, uint8_t code, uint32_t rest)
{
	p[0] = type;
	p[1] = code;
	pv_cksum_put(p + 2, 0);
	pv_put32(p + 4, rest);
	return PV_ICMP4_HLEN;
}

void pv_wire_icmp4_csum_fill(uint8_t *p, uint32_t len)
{
	pv_cksum_put(p + 2, 0);
	pv_cksum_put(p + 2, pv_cksum_finish(pv_cksum_add(p, len, 0)));
}
