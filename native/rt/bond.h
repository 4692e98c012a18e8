/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an interface of the kernel's is made of, by sysfs: NetVSC (Hyper-V's synthetic interface, a VF beneath it comes and goes), a bond and
 * its slaves, or one device. Everything is read below a root, "/sys" unless tests have a tree of their own; no file of it is trusted: what is
 * missing, empty, too long or not what the kernel writes counts as not said. No state; any thread.
 */
#ifndef PV_RT_BOND_H
#define PV_RT_BOND_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/bond.h"

enum pv_bond_kind { PV_BOND_KIND_PLAIN, PV_BOND_KIND_BOND, PV_BOND_KIND_NETVSC };

/* A device beneath: a slave, a VF, or the interface's own. */
struct pv_bond_slave {
	char ifname[IFNAMSIZ];
	uint32_t ifindex; /* the kernel's number; 0: not said */
	char device[PV_RING_NAME_MAX]; /* the verbs device, or its own name; empty: it has none, or not yet */
	uint8_t port; /* of that, from 1 */
	bool have_mac;
	uint8_t mac[PV_ETH_ALEN];
	bool down; /* operstate says so: down, lowerlayerdown, notpresent, dormant */
	bool backup; /* bonding says that it is not to be sent by: not the active slave, not of the active aggregator */
};

struct pv_bond_info {
	enum pv_bond_kind kind;
	enum pv_bond_mode mode; /* PV_BOND_KIND_BOND, _NETVSC */
	uint32_t fail_over_mac, hash_policy;
	bool lag; /* RoCE LAG: one verbs device stands for the bond, and is the only slave told of */
	uint32_t n;
	struct pv_bond_slave slave[PV_BOND_LEGS_MAX]; /* in the order of bonding; a NetVSC has one or none */
};

/* `netdevs`: not verbs devices are beneath it, but the interfaces themselves, each its own `device`. 0, -ENODEV (there is no such interface),
 * -EOPNOTSUPP (a bond that cannot be offloaded), with a text in `err`. */
int pv_bond_read(const char *root, const char *ifname, bool netdevs, struct pv_bond_info *out, char *err, size_t errsize);
/* "NetVSC", "bond", "RoCE LAG", "plain". */
const char *pv_bond_kind_text(const struct pv_bond_info *info);

/* ---- for tests: texts as the kernel writes them ------------------------------------------------------------------------------- */

/* "active-backup 1", "layer3+4 1", "1": the number, or that of the name in `names` (pairs of name and number end with NULL); -1: neither. */
struct pv_bond_word {
	const char *name;
	int number;
};
int pv_bond_parse_word(const char *text, const struct pv_bond_word *names);
/* The names of interfaces in a list with spaces: their number, at most `max`. A name that no interface can have is passed over. */
uint32_t pv_bond_parse_slaves(const char *text, char (*out)[IFNAMSIZ], uint32_t max);
bool pv_bond_parse_mac(const char *text, uint8_t mac[PV_ETH_ALEN]);

#endif
