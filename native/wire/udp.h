/* SPDX-License-Identifier: BSD-3-Clause */
/* The UDP header (RFC 768). */
#ifndef PV_WIRE_UDP_H
#define PV_WIRE_UDP_H

#include <errno.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cksum.h"

#define PV_UDP_HLEN 8u

struct pv_wire_udp {
	uint16_t src_port, dst_port; /* host order */
	uint16_t len; /* header and payload; the IP payload may be longer (RFC 768 says nothing against it) */
	uint16_t csum; /* as in memory; 0: none was computed */
};

/* 8, or -EMSGSIZE (fewer bytes than the header or its length say), -EBADMSG (length below 8). `len` may be that of the first buffer
 * of a chain: then give the length of the whole in `total`. */
pv_inline int pv_wire_udp_parse(const uint8_t *p, uint32_t len, uint32_t total, struct pv_wire_udp *out)
{
	if (pv_unlikely(len < PV_UDP_HLEN))
		return -EMSGSIZE;
	out->src_port = pv_get16(p);
	out->dst_port = pv_get16(p + 2);
	out->len = pv_get16(p + 4);
	out->csum = pv_cksum_get(p + 6);
	if (pv_unlikely(out->len < PV_UDP_HLEN))
		return -EBADMSG;
	if (pv_unlikely(out->len > total))
		return -EMSGSIZE;
	return (int)PV_UDP_HLEN;
}

/* 8 bytes, checksum field 0. `len` of header and payload. */
pv_inline uint32_t pv_wire_udp_emit(uint8_t *p, uint16_t src_port, uint16_t dst_port, uint16_t len)
{
	pv_put16(p, src_port);
	pv_put16(p + 2, dst_port);
	pv_put16(p + 4, len);
	pv_cksum_put(p + 6, 0);
	return PV_UDP_HLEN;
}

#endif
