/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP options. Linux's order when they are written (SACK permitted in front of timestamps instead of padding, blocks at the end), since
 * peers predict headers that look like that. When they are read any order will do (RFC 9293 3.1).
 */
#include "wire/tcp.h"

#include <string.h>

#define OPT_END 0u
#define OPT_NOP 1u
#define OPT_MSS 2u
#define OPT_WSCALE 3u
#define OPT_SACK_OK 4u
#define OPT_SACK 5u
#define OPT_TS 8u

#define LEN_MSS 4u
#define LEN_WSCALE 3u
#define LEN_SACK_OK 2u
#define LEN_TS 10u
#define LEN_BLOCK 8u

#define WSCALE_MAX 14u /* RFC 7323 2.3: what asks for more gets this */

static void take_sack(const uint8_t *p, uint32_t len, struct pv_wire_tcp_opts *out)
{
	if (len < 2 + LEN_BLOCK || (len - 2) % LEN_BLOCK)
		return;
	out->nsack = 0;
	for (uint32_t off = 2; off < len; off += LEN_BLOCK) {
		out->sack[out->nsack].start = pv_get32(p + off);
		out->sack[out->nsack].end = pv_get32(p + off + 4);
		out->nsack++;
	}
}

/* One option of `len` bytes; a known kind with a length that it never has is skipped, as Linux does. */
static void take(const uint8_t *p, uint32_t len, struct pv_wire_tcp_opts *out)
{
	switch (p[0]) {
	case OPT_MSS:
		if (len == LEN_MSS)
			out->mss = pv_get16(p + 2);
		break;
	case OPT_WSCALE:
		if (len == LEN_WSCALE) {
			out->has_wscale = true;
			out->wscale = (uint8_t)PV_MIN(p[2], WSCALE_MAX);
		}
		break;
	case OPT_SACK_OK:
		if (len == LEN_SACK_OK)
			out->sack_ok = true;
		break;
	case OPT_SACK:
		take_sack(p, len, out);
		break;
	case OPT_TS:
		if (len == LEN_TS) {
			out->has_ts = true;
			out->ts_val = pv_get32(p + 2);
			out->ts_ecr = pv_get32(p + 6);
		}
		break;
	default:
		break;
	}
}

int pv_wire_tcp_opts_parse(const uint8_t *p, uint32_t hlen, struct pv_wire_tcp_opts *out)
{
	uint32_t off = PV_TCP_HLEN;

	memset(out, 0, sizeof(*out));
	while (off < hlen) {
		uint32_t len;

		if (p[off] == OPT_END)
			return 0;
		if (p[off] == OPT_NOP) {
			off++;
			continue;
		}
		if (hlen - off < 2)
			return -EBADMSG;
		len = p[off + 1];
		if (len < 2 || len > hlen - off)
			return -EBADMSG;
		take(p + off, len, out);
		off += len;
	}
	return 0;
}

/* Everything but the blocks. */
static uint32_t fixed_len(const struct pv_wire_tcp_opts *opt)
{
	uint32_t len = opt->mss ? LEN_MSS : 0;

	if (opt->has_ts)
		len += 2 + LEN_TS; /* SACK permitted takes the place of the padding */
	else if (opt->sack_ok)
		len += 2 + LEN_SACK_OK;
	if (opt->has_wscale)
		len += 1 + LEN_WSCALE;
	return len;
}

/* Blocks that fit behind `len` bytes. */
static uint32_t blocks(const struct pv_wire_tcp_opts *opt, uint32_t len)
{
	uint32_t room = PV_TCP_OPT_MAX - len;

	return room < 4 + LEN_BLOCK ? 0 : PV_MIN(opt->nsack, (room - 4) / LEN_BLOCK);
}

uint32_t pv_wire_tcp_opts_len(const struct pv_wire_tcp_opts *opt)
{
	uint32_t len = fixed_len(opt), n = blocks(opt, len);

	return n ? len + 4 + n * LEN_BLOCK : len;
}

uint32_t pv_wire_tcp_opts_emit(uint8_t *p, const struct pv_wire_tcp_opts *opt)
{
	uint32_t n = blocks(opt, fixed_len(opt));
	uint8_t *at = p;

	if (opt->mss) {
		pv_put32(at, OPT_MSS << 24 | LEN_MSS << 16 | opt->mss);
		at += 4;
	}
	if (opt->has_ts) {
		uint32_t lead = opt->sack_ok ? OPT_SACK_OK << 24 | LEN_SACK_OK << 16 : OPT_NOP << 24 | OPT_NOP << 16;

		pv_put32(at, lead | OPT_TS << 8 | LEN_TS);
		pv_put32(at + 4, opt->ts_val);
		pv_put32(at + 8, opt->ts_ecr);
		at += 12;
	} else if (opt->sack_ok) {
		pv_put32(at, OPT_NOP << 24 | OPT_NOP << 16 | OPT_SACK_OK << 8 | LEN_SACK_OK);
		at += 4;
	}
	if (opt->has_wscale) {
		pv_put32(at, OPT_NOP << 24 | OPT_WSCALE << 16 | LEN_WSCALE << 8 | opt->wscale);
		at += 4;
	}
	if (n) {
		pv_put32(at, OPT_NOP << 24 | OPT_NOP << 16 | OPT_SACK << 8 | (2 + n * LEN_BLOCK));
		at += 4;
		for (uint32_t i = 0; i < n; i++, at += LEN_BLOCK) {
			pv_put32(at, opt->sack[i].start);
			pv_put32(at + 4, opt->sack[i].end);
		}
	}
	return (uint32_t)(at - p);
}
