/* SPDX-License-Identifier: BSD-3-Clause */
/* Flows over two bonds, and what becomes of their legs. */
#ifndef RING_BOND_FLOWS_H
#define RING_BOND_FLOWS_H

#include "ring/bond_hash.h"
#include "ring/frame.h"
#include "ring_bond_rig.h"

#define FLOWS 24u

static inline struct pv_ring_counters count(struct rig *rig, int side)
{
	struct pv_ring_counters c;

	pv_ring_counters(rig->ring[side], &c);
	return c;
}

/* ---- flows ------------------------------------------------------------------------------------------------------------- */

/* Flow `i`: IPv4 and IPv6, TCP and UDP in turn. */
static inline struct contract_ip flow(uint32_t i, uint32_t payload)
{
	uint8_t host = (uint8_t)(1 + i / 4);
	bool six = i & 1;

	return (struct contract_ip){ .src = six ? contract_addr6(1) : contract_addr4(1),
				     .dst = six ? contract_addr6((uint8_t)(100 + host)) : contract_addr4((uint8_t)(100 + host)),
				     .src_port = (uint16_t)(40000 + 7 * i),
				     .dst_port = (uint16_t)(100 + i),
				     .proto = i & 2 ? 6 : 17,
				     .payload = payload };
}

static inline bool is_udp(uint32_t i)
{
	return !(i & 2);
}

/* By which leg it should go when both are there. */
static inline uint32_t leg_for(enum pv_bond_mode mode, uint32_t policy, const struct pv_pkt *p)
{
	return mode == PV_BOND_XOR || mode == PV_BOND_8023AD ? pv_bond_hash(p->data, p->len, policy) % 2 : 0;
}

static inline uint32_t flow_of(const struct pv_pkt *p)
{
	struct pv_frame f;

	CHECK(pv_frame_parse(p->data, p->len, &f));
	CHECK(f.dst_port >= 100 && f.dst_port < 100 + FLOWS);
	CHECK(!(pv_frame_check_csum(p->data, p->len, PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP) & (PV_PKT_L3_BAD | PV_PKT_L4_BAD)));
	return f.dst_port - 100u;
}

/* What came, by flow. */
static inline uint32_t receive(struct rig *rig, uint32_t seen[FLOWS])
{
	struct pv_pkt *p[PV_RING_BATCH_MAX];
	uint32_t n, all = 0;

	do {
		rig->kind->settle(rig);
		n = pv_ring_rx_poll(rig->ring[1], p, PV_RING_BATCH_MAX);
		for (uint32_t i = 0; i < n; i++) {
			seen[flow_of(p[i])]++;
			pv_pkt_put(p[i]);
		}
		all += n;
		rig_fill(rig, 1);
	} while (n);
	return all;
}

/* One frame of each flow; where `policy` is known they must go by the legs that it says. */
static inline void all_flows(struct rig *rig, enum pv_bond_mode mode, uint32_t policy, bool both)
{
	uint32_t seen[FLOWS] = { 0 }, want[BOND_RIG_LEGS] = { 0 };
	struct pv_ring_counters before[BOND_RIG_LEGS], after;
	struct bond_rig *br = bond_rig(rig);

	for (uint32_t k = 0; k < 2; k++)
		if (br->leg[0][k])
			pv_ring_counters(br->leg[0][k], &before[k]);
	for (uint32_t i = 0; i < FLOWS; i++) {
		struct contract_ip d = flow(i, 600);
		struct pv_pkt *p = contract_ip_frame(rig, 0, &d);

		want[leg_for(mode, policy, p)]++;
		rig_post(rig, 0, p);
	}
	rig_kick(rig, 0);
	CHECK_EQ(receive(rig, seen), FLOWS);
	for (uint32_t i = 0; i < FLOWS; i++)
		CHECK_EQ(seen[i], 1);
	for (uint32_t k = 0; both && k < 2; k++) {
		pv_ring_counters(br->leg[0][k], &after);
		CHECK_EQ(after.tx_packets - before[k].tx_packets, want[k]);
	}
	rig_reap_all(rig, 0, FLOWS);
}

/* ---- legs -------------------------------------------------------------------------------------------------------------- */

static inline void events(struct rig *rig)
{
	for (int i = 0; i < 2; i++)
		while (pv_ring_event(rig->ring[i]) != PV_RING_EV_NONE)
			;
}

static inline void del(struct rig *rig, int side, uint32_t leg)
{
	CHECK_EQ(pv_bond_leg_del(rig->ring[side], leg + 1), 0);
	bond_rig(rig)->leg[side][leg] = NULL;
}

static const struct rig_kind sim_kind = {
	.name = "bond", .rx_queues = 2, .settle = bond_rig_sim_settle, .close = bond_rig_sim_close
};

static inline void open_sim_netvsc(struct rig *rig)
{
	bond_rig_sim(rig, 2, PV_BOND_NETVSC);
}

static inline void open_sim_backup(struct rig *rig)
{
	bond_rig_sim(rig, 2, PV_BOND_ACTIVE_BACKUP);
}

static inline void begin(struct rig *rig, void (*open)(struct rig *rig))
{
	static struct rig_kind k;

	k = sim_kind;
	k.open = open;
	rig_open(rig, &k);
	rig_fill(rig, 0);
	rig_fill(rig, 1);
}

static inline void open_sim_xor(struct rig *rig)
{
	bond_rig_sim(rig, 2, PV_BOND_XOR);
}

#endif
