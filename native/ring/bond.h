/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bond ring: several rings ("legs") as one. Legs come and go while it is open; what it was asked for (flow rules, transmit queues
 * and their rates, stamps) it asks of every leg that can, now and when one comes later.
 *
 * Receiving takes from every leg that is up. Sending goes by the active leg, or by the leg that the transmit hash policy says. A leg that
 * goes away gives back what it held: frames that certainly left are reaped as ever; those that may not have left are posted once more by
 * another leg if they are TCP's (a receiver drops what it has already), and counted lost otherwise: nothing is delivered twice.
 *
 * All legs share the bond's pool; a leg is open, with that pool, when it is added, and is the bond's from then on.
 */
#ifndef PV_RING_BOND_H
#define PV_RING_BOND_H

#include "ring/ring.h"

#define PV_BOND_LEGS_MAX 10u

enum pv_bond_mode {
	PV_BOND_ACTIVE_BACKUP = 1, /* the kernel's numbers (bonding.rst) */
	PV_BOND_XOR = 2,
	PV_BOND_8023AD = 4,
	PV_BOND_NETVSC = 100, /* a leg that is always there (TAP) and one that is preferred while it is there (VF) */
};

/* xmit_hash_policy, the kernel's numbers: 0 layer2, 1 layer3+4, 2 layer2+3, 3 encap2+3, 4 encap3+4 */

struct pv_bond_cfg {
	enum pv_bond_mode mode;
	uint32_t
	    fail_over_mac; /* 0: legs have the bond's MAC; 1: each keeps its own, and the bond has had the active one's when it was opened */
	uint32_t hash_policy;
	uint8_t mac[PV_ETH_ALEN];
	uint32_t mtu;
	const char *name;
};

struct pv_bond_leg_cfg {
	uint32_t id; /* the caller's; the kernel's ifindex of the leg's interface */
	bool active; /* may be sent by, and is the one where only one is (active-backup, NetVSC) */
	bool fallback; /* PV_BOND_NETVSC: the TAP leg */
	uint32_t at; /* its place among the slaves: legs are in this order whenever they come, equal ones as they came */
	/* pv_bond_leg says, pv_bond_leg_add does not look: */
	bool gone; /* its device does not answer any more: nothing goes or comes by it, and it waits for pv_bond_leg_del */
	bool sends; /* it is sent by */
};

/* 0, or with a text in `err`: -EOPNOTSUPP (a mode, hash policy or fail_over_mac that is the kernel's alone), -EINVAL (the pool's packets do not
 * hold frames of this MTU), -ENOMEM, -EMFILE, -ENFILE. */
int pv_bond_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_bond_cfg *cfg, char *err,
		 size_t errsize);
/* The leg's rules, queues and stamps are in force when this returns. 0; -EINVAL (another pool, an MTU below the bond's, packets too small for
 * its own where the bond was given none), -EEXIST, -ENOSPC, -ENOMEM, or what epoll says: `leg` is still the caller's then. */
int pv_bond_leg_add(struct pv_ring *bond, struct pv_ring *leg, const struct pv_bond_leg_cfg *cfg);
/* Closes the leg; its traffic goes by what is left before this returns. 0 or -ENOENT. */
int pv_bond_leg_del(struct pv_ring *bond, uint32_t id);
/* The same without waiting for the leg's device, for who holds a lock: the leg is taken out, and what it had completed by now is reaped; then
 * any thread calls pv_ring_shut for it, and what it still held is the bond's with the second call, which closes it. NULL: there is none. */
struct pv_ring *pv_bond_leg_part(struct pv_ring *bond, uint32_t id);
void pv_bond_leg_end(struct pv_ring *bond, struct pv_ring *leg);
/* What bonding says of a leg: link state, active slave. 0 or -ENOENT. */
int pv_bond_leg_set(struct pv_ring *bond, uint32_t id, bool active);
/* Its place among the slaves is another one by now. 0 or -ENOENT. */
int pv_bond_leg_place(struct pv_ring *bond, uint32_t id, uint32_t at);
/* How many legs there should be that are heard: while there are fewer that work, caps.rx_partial is set. 0, as it begins: any number will do. */
void pv_bond_expect(struct pv_ring *bond, uint32_t legs);
/* Active-backup: bonding's choice is no leg, so that none is sent by, or heard, until it is. */
void pv_bond_elsewhere(struct pv_ring *bond, bool elsewhere);
/* The leg `i`, from 0; NULL: no more. */
struct pv_ring *pv_bond_leg(struct pv_ring *bond, uint32_t i, struct pv_bond_leg_cfg *out);

#endif
