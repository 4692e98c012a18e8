/* SPDX-License-Identifier: BSD-3-Clause */
/* IPv4 options: RFC 791 3.1 for their form, RFC 1122 3.2.1.8 for what a host does with them. */
#include "wire/ipv4.h"

#define OPT_END 0u
#define OPT_NOP 1u
#define OPT_RECORD_ROUTE 7u
#define OPT_TIMESTAMP 68u
#define OPT_LOOSE_ROUTE 131u
#define OPT_STRICT_ROUTE 137u
#define OPT_ROUTER_ALERT 148u
#define OPT_COPIED 0x80u

/* One option of `len` bytes at `o`, of a type that has a length byte. */
static bool option_ok(const uint8_t *o, uint32_t len, struct pv_wire_ip4_opts *out)
{
	switch (o[0]) {
	case OPT_RECORD_ROUTE:
	case OPT_LOOSE_ROUTE:
	case OPT_STRICT_ROUTE:
		/* The pointer counts from the option's first byte, which is 1, and steps by whole addresses. */
		if (len < 3 || o[2] < 4 || (o[2] <= len && (uint32_t)o[2] + 3 > len))
			return false;
		if (o[0] != OPT_RECORD_ROUTE) {
			if (out->source_route)
				return false;
			out->source_route = true;
			out->route_left = o[2] <= len;
		}
		return true;
	case OPT_TIMESTAMP:
		return len >= 4 && o[2] >= 5;
	case OPT_ROUTER_ALERT:
		out->router_alert = len == 4;
		return len == 4;
	default:
		return true;
	}
}

int pv_wire_ip4_options(const uint8_t *p, uint32_t hdr_len, struct pv_wire_ip4_opts *out, uint8_t *bad_off)
{
	uint32_t i = PV_IP4_HLEN;

	*out = (struct pv_wire_ip4_opts){ 0 };
	*bad_off = 0;
	while (i < hdr_len && p[i] != OPT_END) {
		uint32_t len = 1;

		if (p[i] != OPT_NOP) {
			len = hdr_len - i >= 2 ? p[i + 1] : 0;
			if (len < 2 || len > hdr_len - i || !option_ok(p + i, len, out)) {
				*bad_off = (uint8_t)i;
				return -EPROTO;
			}
		}
		i += len;
	}
	return 0;
}

uint32_t pv_wire_ip4_options_for_frag(uint8_t *dst, const uint8_t *opts, uint32_t len)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < len && opts[i] != OPT_END;) {
		uint32_t olen = opts[i] == OPT_NOP ? 1 : opts[i + 1];

		if (opts[i] & OPT_COPIED) {
			memcpy(dst + n, opts + i, olen);
			n += olen;
		}
		i += olen;
	}
	while (n % 4)
		dst[n++] = OPT_END;
	return n;
}
