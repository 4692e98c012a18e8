/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The chain of extension headers (RFC 8200 4). A host walks it once, front to back; each header must lie inside the packet, and
 * there is a limit on how many it will look at (RFC 8504 5.3), so that nobody makes it walk for long.
 */
#include "wire/ipv6.h"

#define OPT_PAD1 0x00u
#define OPT_ROUTER_ALERT 0x05u
#define OPT_JUMBO 0xc2u

static int problem(struct pv_wire_ip6_ext *out, uint8_t code, uint32_t off)
{
	out->icmp_code = code;
	out->icmp_send = true;
	out->bad_off = (uint16_t)off;
	return -EPROTO;
}

/* The two top bits of an option we do not know say what becomes of the packet (RFC 8200 4.2). */
static int unknown_option(struct pv_wire_ip6_ext *out, uint8_t type, uint32_t off)
{
	if (type >> 6 == 0)
		return 0;
	out->icmp_code = 2;
	out->bad_off = (uint16_t)off;
	out->icmp_send = type >> 6 != 1;
	out->icmp_mcast = type >> 6 == 2;
	return -EPROTO;
}

/* Options of a hop-by-hop or destination header, at off .. end. */
static int options(const uint8_t *p, uint32_t off, uint32_t end, bool hop, struct pv_wire_ip6_ext *out)
{
	while (off < end) {
		uint8_t type = p[off];
		int rc = 0;

		if (type == OPT_PAD1) {
			off++;
			continue;
		}
		if (end - off < 2 || p[off + 1] > end - off - 2)
			return -EMSGSIZE;
		if (hop && type == OPT_ROUTER_ALERT && p[off + 1] == 2) {
			out->router_alert = true;
		} else if (hop && type == OPT_JUMBO) {
			/* RFC 2675: no link here carries more than 64 KiB, and with a payload length it is an error anyway. */
			out->jumbo = true;
			rc = problem(out, 0, off);
		} else if (type != 1) {
			rc = unknown_option(out, type, off);
		}
		if (rc)
			return rc;
		off += 2u + p[off + 1];
	}
	return 0;
}

/* A fragment header: true ends the walk (RFC 8200 4.5; an atomic fragment does not, RFC 6946). */
static bool fragment(const uint8_t *p, uint32_t off, uint32_t prev, struct pv_wire_ip6_ext *out)
{
	uint16_t w = pv_get16(p + off + 2);

	out->frag_hdr_off = (uint16_t)off;
	out->frag_prev_off = (uint16_t)prev;
	out->frag_off = w & 0xfff8u;
	out->more = w & 1;
	out->frag_id = pv_get32(p + off + 4);
	out->frag = out->more || out->frag_off;
	return out->frag;
}

/* The length of the header at `off`, or the error its contents call for; 0 when `next` is no extension header. */
static int header(const uint8_t *p, uint32_t len, uint32_t off, uint8_t next, struct pv_wire_ip6_ext *out)
{
	uint32_t hlen;
	int rc = 0;

	if (next != PV_IP6_NEXT_HOP && next != PV_IP6_NEXT_DEST && next != PV_IP6_NEXT_ROUTING && next != PV_IP6_NEXT_FRAG)
		return 0;
	if (len - off < 8)
		return -EMSGSIZE;
	hlen = next == PV_IP6_NEXT_FRAG ? PV_IP6_FRAG_HLEN : ((uint32_t)p[off + 1] + 1) * 8;
	if (hlen > len - off)
		return -EMSGSIZE;
	if (next == PV_IP6_NEXT_HOP || next == PV_IP6_NEXT_DEST)
		rc = options(p, off + 2, off + hlen, next == PV_IP6_NEXT_HOP, out);
	else if (next == PV_IP6_NEXT_ROUTING && p[off + 3])
		rc = problem(out, 0, off + 2); /* we route for nobody: RFC 8200 4.4, RFC 5095 */
	return rc ? rc : (int)hlen;
}

int pv_wire_ip6_walk_slow(const uint8_t *p, uint32_t len, struct pv_wire_ip6_ext *out)
{
	uint32_t off = PV_IP6_HLEN, prev = 6;

	memset(out, 0, sizeof(*out));
	for (uint32_t n = 0;; n++) {
		uint8_t next = p[prev];
		int hlen = header(p, len, off, next, out);

		if (hlen < 0)
			return hlen;
		if (hlen && (n == PV_IP6_EXT_MAX || (next == PV_IP6_NEXT_HOP && n > 0)))
			return -EBADMSG;
		if (!hlen || (next == PV_IP6_NEXT_FRAG && fragment(p, off, prev, out))) {
			out->proto = hlen ? p[off] : next;
			out->l4_off = (uint16_t)(off + (uint32_t)hlen);
			out->next_off = (uint16_t)(hlen ? off : prev);
			return 0;
		}
		prev = off;
		off += (uint32_t)hlen;
	}
}
