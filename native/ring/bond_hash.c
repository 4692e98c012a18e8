/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linux's bonding.rst has the formulas (xmit_hash_policy); what it leaves open is what the driver does: addresses and ports are combined
 * as they lie in memory, Ethernet's part as numbers; ICMP that tells of another packet is hashed as that one, ICMP with an
 * identifier by it; a frame whose headers end too early is hashed by Ethernet's alone. Policies 3 and 4 look as deep as the kernel's
 * flow dissector: behind VLAN tags, IPv6 extension headers, IP in IP and GRE, and not into UDP tunnels (VXLAN, Geneve), whose outer
 * source port stands for the flow within.
 *
 * One VLAN tag is not there for the driver: its devices keep it beside the frame.
 */
#include "ring/bond_hash.h"

#include <string.h>

#include "base/bytes.h"

#define ETH_HLEN 14u
#define TYPE_IP4 0x0800u
#define TYPE_IP6 0x86ddu
#define TYPE_ARP 0x0806u
#define TYPE_RARP 0x8035u
#define TYPE_VLAN 0x8100u
#define TYPE_QINQ 0x88a8u
#define TYPE_TEB 0x6558u /* Ethernet in GRE (RFC 1701) */

#define PROTO_HOPOPTS 0u
#define PROTO_ICMP 1u
#define PROTO_IPIP 4u
#define PROTO_TCP 6u
#define PROTO_UDP 17u
#define PROTO_DCCP 33u
#define PROTO_IPV6 41u
#define PROTO_ROUTING 43u
#define PROTO_FRAGMENT 44u
#define PROTO_GRE 47u
#define PROTO_ESP 50u
#define PROTO_AH 51u
#define PROTO_ICMP6 58u
#define PROTO_DSTOPTS 60u
#define PROTO_SCTP 132u
#define PROTO_UDPLITE 136u

#define HEADERS_MAX 15u /* that the flow dissector steps over */

/* RFC 2784, 2890 */
#define GRE_CSUM 0x8000u
#define GRE_ROUTING 0x4000u
#define GRE_KEY 0x2000u
#define GRE_SEQ 0x1000u
#define GRE_VERSION 0x0007u

struct flow {
	uint32_t addrs; /* source and destination, combined */
	uint32_t ports; /* as they lie there */
	uint32_t icmp; /* type, code and identifier; 0: it has no identifier */
};

struct cursor {
	const uint8_t *data;
	uint32_t len, off;
	uint32_t type; /* what stands at `off`: an Ethernet type while `proto` is NONE, */
	uint32_t proto; /* else an IP protocol */
	uint32_t headers;
};
#define NONE UINT32_MAX

static bool room(const struct cursor *c, uint32_t n)
{
	return c->off <= c->len && c->len - c->off >= n;
}

static uint32_t word(const uint8_t *p)
{
	uint32_t w;

	memcpy(&w, p, 4);
	return w;
}

static uint32_t ports_of(const struct cursor *c)
{
	uint32_t at = c->off;

	switch (c->proto) {
	case PROTO_AH:
		at += 4;
		break;
	case PROTO_TCP:
	case PROTO_UDP:
	case PROTO_DCCP:
	case PROTO_ESP:
	case PROTO_SCTP:
	case PROTO_UDPLITE:
		break;
	default:
		return 0;
	}
	return at <= c->len && c->len - at >= 4 ? word(c->data + at) : 0;
}

/* Type, code and identifier in the order of the kernel's structure; an identifier of 0 counts as 1. */
static uint32_t icmp_of(const struct cursor *c)
{
	const uint8_t *p = c->data + c->off;
	uint16_t id;
	uint8_t key[4];

	if (!room(c, 8))
		return 0;
	switch (p[0]) {
	case 0: /* echo reply */
	case 8: /* echo */
	case 13: /* timestamp */
	case 14: /* timestamp reply */
	case 128: /* ICMPv6 echo */
	case 129: /* ICMPv6 echo reply */
		break;
	default:
		return 0;
	}
	id = pv_get16(p + 4);
	id = id ? id : 1;
	key[0] = p[0];
	key[1] = p[1];
	memcpy(key + 2, &id, 2);
	return word(key);
}

static bool icmp_tells_of_another(uint32_t proto, uint8_t type)
{
	if (proto == PROTO_ICMP)
		return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
	return !(type & 0x80);
}

static bool is_fragment4(const uint8_t *ip)
{
	return (pv_get16(ip + 6) & 0x3fff) != 0;
}

/* ---- policies 1 and 2 -------------------------------------------------------------------------------------------------- */

/* Steps over an IP header; the ports behind it, if they are there. */
static bool ip_header(struct cursor *c, struct flow *f, bool ports)
{
	const uint8_t *ip = c->data + c->off;

	if (c->type == TYPE_IP4) {
		if (!room(c, 20))
			return false;
		f->addrs = word(ip + 12) ^ word(ip + 16);
		c->off += (ip[0] & 0x0fu) * 4u;
		if (!is_fragment4(ip))
			c->proto = ip[9];
	} else if (c->type == TYPE_IP6) {
		if (!room(c, 40))
			return false;
		f->addrs = 0;
		for (uint32_t i = 8; i < 40; i += 4)
			f->addrs ^= word(ip + i);
		c->off += 40;
		c->proto = ip[6];
	} else {
		return false;
	}
	if (ports && c->proto != NONE)
		f->ports = ports_of(c);
	return true;
}

static bool plain(struct cursor *c, struct flow *f, bool ports)
{
	uint8_t type;

	if (!ip_header(c, f, ports))
		return false;
	if (c->proto != PROTO_ICMP && c->proto != PROTO_ICMP6)
		return true;
	f->icmp = icmp_of(c);
	type = room(c, 8) ? c->data[c->off] : 0;
	if (!icmp_tells_of_another(c->proto, type))
		return true;
	c->off += 8;
	return ip_header(c, f, ports);
}

/* ---- policies 3 and 4 -------------------------------------------------------------------------------------------------- */

/* ON: the next header, which is not counted; AGAIN: which is. */
enum step { GOOD, BAD, ON, AGAIN };

static enum step dissect_ip4(struct cursor *c, struct flow *f, bool *fragment)
{
	const uint8_t *ip = c->data + c->off;

	if (!room(c, 20) || (ip[0] & 0x0f) < 5)
		return BAD;
	c->proto = ip[9];
	f->addrs = word(ip + 12) ^ word(ip + 16);
	c->off += (ip[0] & 0x0fu) * 4u;
	*fragment = is_fragment4(ip);
	return *fragment ? GOOD : ON;
}

static enum step dissect_ip6(struct cursor *c, struct flow *f)
{
	const uint8_t *ip = c->data + c->off;

	if (!room(c, 40))
		return BAD;
	c->proto = ip[6];
	f->addrs = 0;
	for (uint32_t i = 8; i < 40; i += 4)
		f->addrs ^= word(ip + i);
	c->off += 40;
	return ON;
}

static enum step dissect_type(struct cursor *c, struct flow *f, bool *fragment)
{
	switch (c->type) {
	case TYPE_IP4:
		return dissect_ip4(c, f, fragment);
	case TYPE_IP6:
		return dissect_ip6(c, f);
	case TYPE_VLAN:
	case TYPE_QINQ:
		if (!room(c, 4))
			return BAD;
		c->type = pv_get16(c->data + c->off + 2);
		c->off += 4;
		return AGAIN;
	case TYPE_ARP:
	case TYPE_RARP:
		return GOOD;
	default:
		return BAD;
	}
}

static enum step dissect_gre(struct cursor *c)
{
	uint32_t flags;

	if (!room(c, 4))
		return BAD;
	flags = pv_get16(c->data + c->off);
	/* Version 1 is PPTP's, whose frames we do not send. */
	if (flags & (GRE_ROUTING | GRE_VERSION))
		return GOOD;
	c->type = pv_get16(c->data + c->off + 2);
	c->off += 4u + (flags & GRE_CSUM ? 4 : 0) + (flags & GRE_KEY ? 4 : 0) + (flags & GRE_SEQ ? 4 : 0);
	if (c->type == TYPE_TEB) {
		if (!room(c, ETH_HLEN))
			return BAD;
		c->type = pv_get16(c->data + c->off + 12);
		c->off += ETH_HLEN;
	}
	c->proto = NONE;
	return AGAIN;
}

static enum step dissect_proto(struct cursor *c, struct flow *f, bool *fragment)
{
	switch (c->proto) {
	case PROTO_GRE:
		return dissect_gre(c);
	case PROTO_IPIP:
	case PROTO_IPV6:
		c->type = c->proto == PROTO_IPIP ? TYPE_IP4 : TYPE_IP6;
		c->proto = NONE;
		return AGAIN;
	case PROTO_HOPOPTS:
	case PROTO_ROUTING:
	case PROTO_DSTOPTS:
		if (c->type != TYPE_IP6)
			return GOOD;
		if (!room(c, 2))
			return BAD;
		c->proto = c->data[c->off];
		c->off += (c->data[c->off + 1] + 1u) * 8u;
		return AGAIN;
	case PROTO_FRAGMENT:
		if (c->type != TYPE_IP6)
			return GOOD;
		if (!room(c, 8))
			return BAD;
		*fragment = true;
		return GOOD;
	case PROTO_ICMP:
	case PROTO_ICMP6:
		f->icmp = icmp_of(c);
		return GOOD;
	default:
		return GOOD;
	}
}

static bool deep(struct cursor *c, struct flow *f)
{
	bool fragment = false;
	enum step s;

	do {
		s = c->proto == NONE ? dissect_type(c, f, &fragment) : dissect_proto(c, f, &fragment);
	} while (s == ON || (s == AGAIN && ++c->headers <= HEADERS_MAX));
	if (s == BAD)
		return false;
	if (!fragment && c->proto != NONE)
		f->ports = ports_of(c);
	return true;
}

/* ---- the hash ---------------------------------------------------------------------------------------------------------- */

static uint32_t fold(uint32_t hash, const struct flow *f, bool ports)
{
	hash ^= f->addrs;
	hash ^= hash >> 16;
	hash ^= hash >> 8;
	/* Ports are even more often than not. */
	return ports ? hash >> 1 : hash;
}

/* Behind Ethernet's header and one VLAN tag. */
static struct cursor begin(const uint8_t *data, uint32_t len)
{
	struct cursor c = { .data = data, .len = len, .off = ETH_HLEN, .type = pv_get16(data + 12), .proto = NONE };

	if ((c.type == TYPE_VLAN || c.type == TYPE_QINQ) && len >= ETH_HLEN + 4) {
		c.type = pv_get16(data + 16);
		c.off += 4;
	}
	return c;
}

uint32_t pv_bond_hash(const uint8_t *data, uint32_t len, uint32_t policy)
{
	bool ports = policy == PV_BOND_HASH_L34 || policy == PV_BOND_HASH_ENCAP34, known;
	struct flow f = { 0 };
	struct cursor c;
	uint32_t eth;

	if (len < ETH_HLEN)
		return 0;
	c = begin(data, len);
	eth = (uint32_t)data[5] ^ data[11] ^ c.type;
	if (policy == PV_BOND_HASH_L2)
		return eth;
	if (policy == PV_BOND_HASH_ENCAP23 || policy == PV_BOND_HASH_ENCAP34)
		known = deep(&c, &f);
	else
		known = plain(&c, &f, ports);
	if (!known)
		return eth;
	if (!ports)
		return fold(eth, &f, false);
	return fold(f.icmp ? f.icmp : f.ports, &f, true);
}

void pv_bond_headers(const uint8_t *data, uint32_t len, struct pv_bond_headers *out)
{
	struct cursor c;
	struct flow f;
	bool fragment = false;

	*out = (struct pv_bond_headers){ 0 };
	if (len < ETH_HLEN)
		return;
	c = begin(data, len);
	out->l3 = c.off;
	if ((c.type != TYPE_IP4 && c.type != TYPE_IP6) || dissect_type(&c, &f, &fragment) == BAD)
		return;
	out->version = c.type == TYPE_IP4 ? 4 : 6;
	while (!fragment && c.type == TYPE_IP6 && ++c.headers <= HEADERS_MAX &&
	       (c.proto == PROTO_HOPOPTS || c.proto == PROTO_ROUTING || c.proto == PROTO_DSTOPTS))
		if (dissect_proto(&c, &f, &fragment) == BAD)
			return;
	if (c.proto == PROTO_FRAGMENT && c.type == TYPE_IP6)
		fragment = true;
	out->proto = (uint8_t)c.proto;
	if (!fragment && c.off < len)
		out->l4 = c.off;
}
