/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface entries of the setting `interfaces`: RING:key=value,key=value;RING:... Parsing only, nothing is opened.
 * The first pair may be the value alone, of `fabric`, `name` (tap) or `device`: xdp:eth0,mode=native.
 *   softnic: fabric=NAME port=0..63 mac=XX:XX:XX:XX:XX:XX
 *   verbs:   device=NAME port=1..255 lib=PATH
 *   xdp:     device=NAME queues=1..256 mode=auto|native|generic rx_metadata=off|auto tx_csum=stack|auto|kernel|software busy_poll=US
 *   tap:     name=NAME (the device's, too) queues=1..16 mac=XX:XX:XX:XX:XX:XX
 *   bond:    device=NAME legs=verbs|xdp; verbs: lib=PATH fabric=NAME; xdp: queues, mode as above
 *   all:     addr=ADDRESS/PREFIX (up to 16) gw=ADDRESS (one a family) name mtu vlan rx_depth tx_depth
 *
 * Without addr= the interface is the kernel's: that of `device` (xdp, and bond always), or the one that netdev=NAME says the ring belongs to.
 */
#ifndef PV_RT_IFSPEC_H
#define PV_RT_IFSPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/net.h"

enum pv_ifspec_ring { PV_IFSPEC_SOFTNIC, PV_IFSPEC_VERBS, PV_IFSPEC_XDP, PV_IFSPEC_TAP, PV_IFSPEC_BOND };

enum pv_ifspec_mode { PV_IFSPEC_AUTO, PV_IFSPEC_NATIVE, PV_IFSPEC_GENERIC };

enum pv_ifspec_csum { PV_IFSPEC_CSUM_STACK, PV_IFSPEC_CSUM_AUTO, PV_IFSPEC_CSUM_KERNEL, PV_IFSPEC_CSUM_SOFTWARE };

struct pv_ifspec {
	enum pv_ifspec_ring ring;
	char fabric[33]; /* softnic; bond: legs' devices are the software NIC's, of this one */
	char device[PV_RING_NAME_MAX]; /* verbs, xdp, tap, bond */
	char netdev
	    [16]; /* the kernel's interface whose addresses, routes and neighbours are in force; empty: those of the entry are */
	char lib[257]; /* verbs, bond; empty: the setting verbs_lib */
	uint32_t port;
	uint32_t queues, busy_poll_us; /* xdp: 0: all, off; tap: 0: one */
	enum pv_ifspec_mode mode; /* xdp */
	bool rx_metadata; /* xdp: what the driver tells of frames is asked for */
	bool xdp_legs; /* bond: legs are AF_XDP rings of the interfaces beneath, with `queues` and `mode` */
	enum pv_ifspec_csum tx_csum; /* xdp */
	bool have_port, have_mac;
	uint8_t mac[PV_ETH_ALEN];
	char name[PV_IFNAME_MAX];
	uint32_t mtu, vlan, rx_depth, tx_depth; /* 0: not given */
	struct pv_egress egress;
	struct pv_ifaddr addr[PV_IFACE_ADDR_MAX];
	uint32_t naddr;
	struct pv_addr gateway4, gateway6; /* any: none */
};

/* The entries of `text` into `out`. Their number, 0 for an empty text; -EINVAL (with a text that names entry, key, value and what is
 * allowed), -E2BIG (more than `max`). */
int pv_ifspec_parse(const char *text, struct pv_ifspec *out, uint32_t max);
/* One entry of which the device counts: it needs no address. 0, -EINVAL with a text. */
int pv_ifspec_parse_device(const char *text, struct pv_ifspec *out);
/* softnic, verbs, xdp, tap, bond */
const char *pv_ifspec_kind(const struct pv_ifspec *s);
/* ADDRESS, "a.b.c.d" or "x:y::z". */
bool pv_ifspec_addr(const char *text, struct pv_addr *out);

#endif
