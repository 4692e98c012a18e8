/* SPDX-License-Identifier: BSD-3-Clause */
/* RFC 3376 7.1: a query of 8 bytes is version 1 when its response code is 0, else version 2; of 12 or more it is version 3. */
#include "wire/igmp.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cksum.h"

uint32_t pv_wire_group_code(uint32_t code, uint32_t bits)
{
	uint32_t mant_bits = bits - 4, mant = code & ((1u << mant_bits) - 1), exp = (code >> mant_bits) & 7;

	if (code < 1u << (bits - 1))
		return code;
	return (mant | 1u << mant_bits) << (exp + 3);
}

static int query(const uint8_t *p, uint32_t len, struct pv_wire_igmp *out)
{
	if (len < 12) {
		/* Between 8 and 12 bytes no version is meant: such a query is ignored. */
		if (len > PV_IGMP_HLEN)
			return -EBADMSG;
		out->version = p[1] ? 2 : 1;
		out->max_resp_ms = p[1] ? p[1] * 100u : 10000u;
		return 0;
	}
	out->version = 3;
	out->max_resp_ms = pv_wire_group_code(p[1], 8) * 100u;
	out->nsources = pv_get16(p + 10);
	out->sources = p + 12;
	return out->nsources > (len - 12) / 4 ? -EBADMSG : 0;
}

int pv_wire_igmp_parse(const uint8_t *p, uint32_t len, struct pv_wire_igmp *out)
{
	memset(out, 0, sizeof(*out));
	if (len < PV_IGMP_HLEN)
		return -EBADMSG;
	out->type = p[0];
	memcpy(&out->group, p + 4, 4);
	switch (out->type) {
	case PV_IGMP_QUERY:
		return query(p, len, out);
	case PV_IGMP_V1_REPORT:
		out->version = 1;
		return 0;
	case PV_IGMP_V2_REPORT:
	case PV_IGMP_V2_LEAVE:
		out->version = 2;
		return 0;
	case PV_IGMP_V3_REPORT:
		out->version = 3;
		out->group = 0;
		return 0;
	default:
		return -EBADMSG;
	}
}

static uint32_t header(uint8_t *p, uint8_t type, uint32_t len)
{
	p[0] = type;
	p[1] = 0;
	pv_cksum_put(p + 2, 0);
	pv_cksum_put(p + 2, pv_cksum_finish(pv_cksum_add(p, len, 0)));
	return len;
}

uint32_t pv_wire_igmp_emit(uint8_t *p, uint8_t type, uint32_t group)
{
	memcpy(p + 4, &group, 4);
	return header(p, type, PV_IGMP_HLEN);
}

uint32_t pv_wire_igmp3_emit(uint8_t *p, uint32_t size, const struct pv_wire_grec *rec, uint32_t n, uint32_t *done)
{
	uint32_t len = PV_IGMP_HLEN;

	*done = 0;
	while (*done < n && *done < UINT16_MAX) {
		const struct pv_wire_grec *r = &rec[*done];
		uint32_t room = len <= size && size - len >= 8 ? (size - len - 8) / 4 : 0;
		uint32_t k = PV_MIN(r->nsources, PV_MIN(room, UINT16_MAX));

		/* A record that is not the first waits for the next report rather than being cut. */
		if (size < len + 8 || (k < r->nsources && *done))
			break;
		p[len] = (uint8_t)r->type;
		p[len + 1] = 0;
		pv_put16(p + len + 2, (uint16_t)k);
		memcpy(p + len + 4, &r->group.w[3], 4);
		for (uint32_t i = 0; i < k; i++)
			memcpy(p + len + 8 + 4 * i, &r->sources[i].w[3], 4);
		len += 8 + 4 * k;
		++*done;
	}
	if (!*done)
		return 0;
	pv_put32(p + 4, *done);
	return header(p, PV_IGMP_V3_REPORT, len);
}
