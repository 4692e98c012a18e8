/* SPDX-License-Identifier: BSD-3-Clause */
/* RFC 4443: the common header, echo, and what an error quotes. */
#include "wire/icmp6.h"

#include "base/cksum.h"

int pv_wire_icmp6_parse(const uint8_t *p, uint32_t len, struct pv_wire_icmp6 *out)
{
	if (len < PV_ICMP6_HLEN)
		return -EBADMSG;
	out->type = p[0];
	out->code = p[1];
	out->word = pv_get32(p + 4);
	out->id = (uint16_t)(out->word >> 16);
	out->seq = (uint16_t)out->word;
	out->body = p + PV_ICMP6_HLEN;
	out->body_len = len - PV_ICMP6_HLEN;
	return 0;
}

int pv_wire_icmp6_quote(const uint8_t *body, uint32_t len, struct pv_wire_quote6 *out)
{
	struct pv_wire_ip6_ext ext;
	int rc = pv_wire_ip6_parse(body, len, &out->ip);

	/* Cut short is what a quoted packet is; the walk looks at what there is. */
	if (rc == -EBADMSG || len < PV_IP6_HLEN)
		return -EBADMSG;
	len = PV_MIN(len, (uint32_t)out->ip.payload_len + PV_IP6_HLEN);
	rc = pv_wire_ip6_walk(body, len, &ext);
	if (rc || ext.frag_off || len < (uint32_t)ext.l4_off + 8)
		return -EBADMSG;
	out->proto = ext.proto;
	out->l4 = body + ext.l4_off;
	out->l4_len = len - ext.l4_off;
	out->src_port = out->dst_port = 0;
	if (out->proto == 17 || out->proto == 6) {
		out->src_port = pv_get16(out->l4);
		out->dst_port = pv_get16(out->l4 + 2);
	}
	return 0;
}

uint32_t pv_wire_icmp6_emit(uint8_t *p, uint8_t type, uint8_t code, uint32_t rest)
{
	p[0] = type;
	p[1] = code;
	pv_cksum_put(p + 2, 0);
	pv_put32(p + 4, rest);
	return PV_ICMP6_HLEN;
}

void pv_wire_icmp6_csum_fill(uint8_t *p, uint32_t len, const void *src, const void *dst)
{
	pv_cksum_put(p + 2, 0);
	pv_cksum_put(p + 2, pv_cksum_finish(pv_cksum_add(p, len, pv_cksum_pseudo6(src, dst, 58, len))));
}
