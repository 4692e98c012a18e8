/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the bond ring: bond.c has legs, capabilities and events, bond_tx.c sending, bond_move.c what a leg leaves behind, bond_rx.c
 * receiving, bond_rules.c rules, queues and stamps, bond_hash.c the transmit hash. */
#ifndef PV_RING_BOND_PRIV_H
#define PV_RING_BOND_PRIV_H

#include <pthread.h>

#include "ring/bond.h"
#include "ring/bond_hash.h"
#include "ring/own.h"

/* A packet that a leg which closes still has. */
struct bond_left {
	struct pv_pkt *p;
	bool kept, first; /* by its owner; of a chain */
};

struct bond_leg {
	struct pv_ring *ring;
	struct bond_leg *next; /* of those parted with */
	struct pv_bond_leg_cfg cfg;
	uint32_t aside; /* PV_PKT_TX_*: what a packet may ask for that this leg is not simply given */
	uint32_t binder; /* the pool has several: keys are set packet by packet; 0: no need */
	bool up; /* has a link, and works */
	bool gone; /* its device does not answer any more: waits for pv_bond_leg_del */
	bool deaf; /* what comes by it is dropped */
	bool dirty; /* wants a kick */
	bool short_of; /* buffers: the pool had too few when it came */
	uint32_t rx_out; /* buffers that it should have */
	uint64_t *out; /* bit per packet index: posted to it, and not reaped */
	uint64_t *handle; /* by slot of the bond's rules; 0: it has none */
	uint8_t txq[PV_RING_TXQ_MAX + 1]; /* by the bond's number: its own; 0: none */
	uint8_t txq_back[PV_RING_TXQ_MAX + 1]; /* by its own number: the bond's */
};

/* A rule that was asked for; a slot of a table that grows. */
struct bond_rule {
	struct pv_flow flow;
	uint32_t generation, next_free;
	bool used;
	bool own_mac; /* its destination is the bond's own MAC */
};

struct bond_txq {
	struct pv_ring_rate rate;
	bool open;
};

struct bond {
	struct pv_ring ring;

	/* hot */
	struct bond_leg *only; /* all is sent by this leg; NULL: by the hash, or there is none */
	uint32_t nlegs, nusable, turn;
	struct bond_leg *leg[PV_BOND_LEGS_MAX];
	struct bond_leg *usable[PV_BOND_LEGS_MAX]; /* by which the hash sends, in the order of the legs */
	uint32_t posted; /* buffers that the owner has posted and not got back */
	uint32_t own_out; /* frames out that are the bond's own */
	struct pv_pktq held; /* received by a leg that went away */
	struct pv_pktq done; /* to be reaped */
	struct pv_pktq again; /* to be posted by another leg */

	/* cold */
	const struct pv_mem *mem;
	struct pv_bond_cfg cfg;
	struct bond_leg *parted; /* taken out, and not closed yet */
	struct bond_leg *clock_leg; /* whose clock is the bond's; NULL: none */
	struct bond_leg *stamp_leg; /* the same, once set_stamps has been called for it: whose stamps are told */
	pthread_mutex_t clock_lock; /* clocks are asked by any thread: as long as one asks, the leg stays */
	uint32_t sender_id, nsenders; /* the first of the legs by which traffic went, and how many they were */
	uint64_t *own; /* bit per packet index: a part of what was cut, nobody's but ours */
	size_t bits_bytes; /* of a table of bits */
	struct bond_left *left_by; /* room for all packets: a leg that goes needs no memory */
	struct bond_rule *rule;
	uint32_t nrules, rules_room, free_rule;
	struct bond_txq *txq; /* by number, the first with its own rate */
	struct pv_ring_counters left; /* of legs that went away */
	struct pv_ring_counters mine; /* what legs do not count */
	uint32_t tso_most, sge_most; /* that the bond ever said it takes: such a packet may still come */
	uint32_t events; /* bit per enum pv_ring_event not yet told */
	int epoll_fd;
	uint32_t expected; /* legs that there should be */
	bool elsewhere; /* bonding's choice is no leg */
	bool sent; /* there was a leg to send by */
	bool moving; /* pv_bond_again is at work */
	bool started; /* its owner posts buffers: those of new legs come from the pool */
	bool rx_stamps, tx_stamps;
	bool forgotten;
	char device[PV_RING_NAME_MAX];
};

static inline struct bond *bond(struct pv_ring *r)
{
	return pv_container_of(r, struct bond, ring);
}

static inline bool bond_bit(const uint64_t *bits, const struct pv_pkt *p)
{
	return bits[p->index / 64] >> p->index % 64 & 1;
}

static inline void bond_bit_set(uint64_t *bits, const struct pv_pkt *p)
{
	bits[p->index / 64] |= UINT64_C(1) << p->index % 64;
}

static inline void bond_bit_clear(uint64_t *bits, const struct pv_pkt *p)
{
	bits[p->index / 64] &= ~(UINT64_C(1) << p->index % 64);
}

static inline void bond_hold(struct pv_pktq *q, struct pv_pkt *p)
{
	pv_ring_take(p);
	pv_pktq_push(q, p);
}

/* bond.c */
/* Looks at all legs' links: who is sent by from now on. */
void pv_bond_look(struct bond *b);
bool pv_bond_needs_no_rules(const struct bond_leg *l);
/* The leg does not answer any more; `flushed`: it gave back frames that may not have left. */
void pv_bond_lost(struct bond *b, struct bond_leg *l, bool flushed);
void pv_bond_add_up(struct pv_ring_counters *to, const struct pv_ring_counters *from);

/* bond_tx.c */
uint32_t pv_bond_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
int pv_bond_tx_kick(struct pv_ring *r);
uint32_t pv_bond_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
/* The packet is done with: its owner reaps it, and a part of our own goes to the pool. */
void pv_bond_done(struct bond *b, struct pv_pkt *p);
/* What a leg must be given with care, by its capabilities. */
void pv_bond_tx_plan(struct bond *b);
/* The leg that the packet goes by; NULL: none. */
struct bond_leg *pv_bond_leg_of(const struct bond *b, const struct pv_pkt *p);
/* False: the leg takes no more. */
bool pv_bond_post_one(struct bond *b, struct bond_leg *l, struct pv_pkt *p);
/* What the leg gave back: how many of it are the owner's, who gets them; the first of the array. */
uint32_t pv_bond_leg_reap(struct bond *b, struct bond_leg *l, struct pv_pkt **pkts, uint32_t n);

/* bond_move.c */
/* Sends what waits in `again`: parts of what was cut, and of frames that may not have left those that are TCP's. The others are lost. */
void pv_bond_again(struct bond *b);
/* Kicks what the leg has, and reaps it. */
void pv_bond_reap_leg(struct bond *b, struct bond_leg *l);
/* Closes the leg, and leaves what may not have left to pv_bond_again. */
void pv_bond_close_leg(struct bond *b, struct bond_leg *l);

/* bond_rx.c */
uint32_t pv_bond_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
uint32_t pv_bond_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
/* Buffers for a leg that came later, out of the pool. */
void pv_bond_rx_fill(struct bond *b, struct bond_leg *l);
/* More for those that came while the pool was short. */
void pv_bond_rx_top_up(struct bond *b);
/* What it has received by now is received, whatever becomes of it. */
void pv_bond_rx_drain(struct bond *b, struct bond_leg *l);

/* bond_rules.c */
int pv_bond_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle);
int pv_bond_flow_del(struct pv_ring *r, uint64_t handle);
int pv_bond_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate);
int pv_bond_txq_close(struct pv_ring *r, uint32_t txq);
int pv_bond_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate);
uint32_t pv_bond_txq_pending(struct pv_ring *r, uint32_t txq);
int pv_bond_set_stamps(struct pv_ring *r, bool rx, bool tx);
int pv_bond_clock(struct pv_ring *r, uint64_t *now);
int pv_bond_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out);
/* All that was asked for, of a leg that has just come: 0 or -ENOMEM. */
int pv_bond_rules_catch_up(struct bond *b, struct bond_leg *l);
void pv_bond_rules_free_leg(struct bond *b, struct bond_leg *l);
void pv_bond_rules_free(struct bond *b);

#endif
