/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP header and its options (RFC 9293 3.1, 7323, 2018). */
#ifndef PV_WIRE_TCP_H
#define PV_WIRE_TCP_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cksum.h"

#define PV_TCP_HLEN 20u
#define PV_TCP_HLEN_MAX 60u
#define PV_TCP_OPT_MAX 40u
#define PV_TCP_CSUM_OFF 16u

#define PV_TH_FIN 0x01u
#define PV_TH_SYN 0x02u
#define PV_TH_RST 0x04u
#define PV_TH_PSH 0x08u
#define PV_TH_ACK 0x10u
#define PV_TH_URG 0x20u
#define PV_TH_ECE 0x40u
#define PV_TH_CWR 0x80u

struct pv_wire_tcp {
	uint16_t src_port, dst_port; /* host order */
	uint32_t seq, ack;
	uint16_t wnd, urp;
	uint8_t hlen; /* bytes, options included: 20..60 */
	uint8_t flags; /* PV_TH_* */
};

#define PV_WIRE_SACK_MAX 4u
struct pv_wire_tcp_opts {
	bool has_ts, has_wscale, sack_ok; /* sack_ok: SACK permitted, of a SYN */
	uint8_t wscale;
	uint8_t nsack;
	uint16_t mss; /* 0: none */
	uint32_t ts_val, ts_ecr;
	struct {
		uint32_t start, end;
	} sack[PV_WIRE_SACK_MAX];
};

/* Length of the header, or -EMSGSIZE (fewer bytes than it says), -EBADMSG (data offset below 5). `len`: bytes of the first buffer. */
pv_inline int pv_wire_tcp_parse(const uint8_t *p, uint32_t len, struct pv_wire_tcp *out)
{
	uint32_t hlen;

	if (pv_unlikely(len < PV_TCP_HLEN))
		return -EMSGSIZE;
	hlen = (uint32_t)(p[12] >> 4) * 4;
	if (pv_unlikely(hlen < PV_TCP_HLEN))
		return -EBADMSG;
	if (pv_unlikely(hlen > len))
		return -EMSGSIZE;
	out->src_port = pv_get16(p);
	out->dst_port = pv_get16(p + 2);
	out->seq = pv_get32(p + 4);
	out->ack = pv_get32(p + 8);
	out->hlen = (uint8_t)hlen;
	out->flags = p[13];
	out->wnd = pv_get16(p + 14);
	out->urp = pv_get16(p + 18);
	return (int)hlen;
}

/* Options of a header of `hlen` bytes at `p`. Unknown ones are skipped; 0, or -EBADMSG when a length cannot be (what came before it is
 * in `out`). Options that belong to a SYN are taken from any segment: the caller looks at the flag. */
int pv_wire_tcp_opts_parse(const uint8_t *p, uint32_t hlen, struct pv_wire_tcp_opts *out);
/* At most 40 bytes, a multiple of 4, laid out as Linux does (the peers' predicted paths like that). Returns the length. */
uint32_t pv_wire_tcp_opts_emit(uint8_t *p, const struct pv_wire_tcp_opts *opt);
uint32_t pv_wire_tcp_opts_len(const struct pv_wire_tcp_opts *opt);
/* The header without options and with checksum field 0; hlen goes into the data offset. */
pv_inline void pv_wire_tcp_emit(uint8_t *p, const struct pv_wire_tcp *h)
{
	pv_put16(p, h->src_port);
	pv_put16(p + 2, h->dst_port);
	pv_put32(p + 4, h->seq);
	pv_put32(p + 8, h->ack);
	p[12] = (uint8_t)(h->hlen / 4 << 4);
	p[13] = h->flags;
	pv_put16(p + 14, h->wnd);
	pv_cksum_put(p + PV_TCP_CSUM_OFF, 0);
	pv_put16(p + 18, h->urp);
}

#endif
