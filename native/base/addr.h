/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Network addresses. An IPv4 address is kept IPv4-mapped (::ffff:a.b.c.d, RFC 4291 2.5.5.2), so that tables, comparisons and
 * dual-stack sockets know one kind of address only.
 */
#ifndef PV_BASE_ADDR_H
#define PV_BASE_ADDR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define PV_ETH_ALEN 6

struct pv_addr {
	union {
		uint8_t b[16];
		uint32_t w[4]; /* network byte order */
		uint64_t q[2];
	};
};

/* 0x0000ffff in network byte order: word 2 of a mapped IPv4 address. */
#define PV_ADDR_MAPPED_W2 UINT32_C(0xffff0000)

/* `v4` points at the 4 bytes as they stand on the wire. Stored by halves, as it is compared and hashed: a load of what two stores have just
 * written waits until they are in the cache. */
pv_inline struct pv_addr pv_addr_from4(const void *v4)
{
	uint32_t w;

	memcpy(&w, v4, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (struct pv_addr){ .q = { 0, (uint64_t)w << 32 | PV_ADDR_MAPPED_W2 } };
#else
	return (struct pv_addr){ .q = { 0, (uint64_t)PV_ADDR_MAPPED_W2 << 32 | w } };
#endif
}

pv_inline struct pv_addr pv_addr_from6(const void *v6)
{
	struct pv_addr a;

	memcpy(a.b, v6, 16);
	return a;
}

pv_inline bool pv_addr_is4(const struct pv_addr *a)
{
	return a->q[0] == 0 && a->w[2] == PV_ADDR_MAPPED_W2;
}

pv_inline bool pv_addr_eq(const struct pv_addr *a, const struct pv_addr *b)
{
	return ((a->q[0] ^ b->q[0]) | (a->q[1] ^ b->q[1])) == 0;
}

/* 0.0.0.0 (mapped) or ::. */
pv_inline bool pv_addr_is_any(const struct pv_addr *a)
{
	return a->q[0] == 0 && a->w[3] == 0 && (a->w[2] == 0 || a->w[2] == PV_ADDR_MAPPED_W2);
}

pv_inline bool pv_addr_is_mcast(const struct pv_addr *a)
{
	return pv_addr_is4(a) ? (a->b[12] & 0xf0) == 0xe0 : a->b[0] == 0xff;
}

pv_inline bool pv_addr_is_bcast(const struct pv_addr *a)
{
	return pv_addr_is4(a) && a->w[3] == UINT32_MAX;
}

/* fe80::/10 or ff02::/16: needs an interface to mean anything (RFC 4007). */
pv_inline bool pv_addr_is_linklocal6(const struct pv_addr *a)
{
	return (a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80) || (a->b[0] == 0xff && (a->b[1] & 0x0f) <= 2);
}

pv_inline bool pv_mac_eq(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, PV_ETH_ALEN) == 0;
}

/* MAC of an IP group: RFC 1112 6.4 (01:00:5e and 23 bits), RFC 2464 7 (33:33 and 32 bits). */
pv_inline void pv_mac_of_group(uint8_t *mac, const struct pv_addr *group)
{
	if (pv_addr_is4(group)) {
		mac[0] = 0x01;
		mac[1] = 0x00;
		mac[2] = 0x5e;
		mac[3] = group->b[13] & 0x7f;
		mac[4] = group->b[14];
		mac[5] = group->b[15];
	} else {
		mac[0] = mac[1] = 0x33;
		memcpy(mac + 2, group->b + 12, 4);
	}
}

#endif
