/* SPDX-License-Identifier: BSD-3-Clause */
/* MLD: a query of exactly 24 bytes is of version 1, of 28 or more of version 2 (RFC 3810 8.1). */
#include <string.h>

#include "wire/icmp6.h"

int pv_wire_mld_parse(const uint8_t *p, uint32_t len, struct pv_wire_mld *out)
{
	memset(out, 0, sizeof(*out));
	if (len < 24 || p[1])
		return -EBADMSG;
	out->type = p[0];
	out->version = 1;
	out->group = p + 8;
	out->max_resp_ms = pv_get16(p + 4);
	if (out->type == PV_ICMP6_MLD_REPORT || out->type == PV_ICMP6_MLD_DONE)
		return 0;
	if (out->type != PV_ICMP6_MLD_QUERY || (len > 24 && len < 28))
		return -EBADMSG;
	if (len == 24)
		return 0;
	out->version = 2;
	out->max_resp_ms = pv_wire_group_code(pv_get16(p + 4), 16);
	out->nsources = pv_get16(p + 26);
	out->sources = p + 28;
	return out->nsources > (len - 28) / 16 ? -EBADMSG : 0;
}

uint32_t pv_wire_mld1_emit(uint8_t *p, uint8_t type, const void *group)
{
	pv_wire_icmp6_emit(p, type, 0, 0);
	memcpy(p + 8, group, 16);
	return 24;
}

uint32_t pv_wire_mld2_emit(uint8_t *p, uint32_t size, const struct pv_wire_grec *rec, uint32_t n, uint32_t *done)
{
	uint32_t len = PV_ICMP6_HLEN;

	*done = 0;
	while (*done < n && *done < UINT16_MAX) {
		const struct pv_wire_grec *r = &rec[*done];
		uint32_t room = len <= size && size - len >= 20 ? (size - len - 20) / 16 : 0;
		uint32_t k = PV_MIN(r->nsources, PV_MIN(room, UINT16_MAX));

		if (size < len + 20 || (k < r->nsources && *done))
			break;
		p[len] = (uint8_t)r->type;
		p[len + 1] = 0;
		pv_put16(p + len + 2, (uint16_t)k);
		memcpy(p + len + 4, r->group.b, 16);
		for (uint32_t i = 0; i < k; i++)
			memcpy(p + len + 20 + 16 * i, r->sources[i].b, 16);
		len += 20 + 16 * k;
		++*done;
	}
	if (!*done)
		return 0;
	pv_wire_icmp6_emit(p, PV_ICMP6_MLD2_REPORT, 0, *done);
	return len;
}
