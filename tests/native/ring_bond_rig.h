/* SPDX-License-Identifier: BSD-3-Clause */
/* Two bonds, joined leg by leg: leg k of one by a wire, or a fabric, of its own with leg k of the other. */
#ifndef RING_BOND_RIG_H
#define RING_BOND_RIG_H

#include "ring/bond.h"
#include "ring/sim.h"
#include "ring_verbs_rig.h"

#define BOND_RIG_LEGS 2u

struct bond_rig {
	uint32_t legs;
	struct pv_sim_wire *wire[BOND_RIG_LEGS];
	struct pv_ring *leg[2][BOND_RIG_LEGS];
	char names[BOND_RIG_LEGS][2][PV_RING_NAME_MAX];
};

static inline struct bond_rig *bond_rig(struct rig *rig)
{
	return rig->wire;
}

static inline void bond_rig_begin(struct rig *rig, uint32_t legs, enum pv_bond_mode mode, uint32_t policy)
{
	struct bond_rig *br = calloc(1, sizeof(*br));

	CHECK(br != NULL);
	br->legs = legs;
	rig->wire = br;
	for (int i = 0; i < 2; i++) {
		struct pv_bond_cfg cfg = { .mode = mode, .hash_policy = policy, .mtu = RIG_MTU, .name = "test" };
		char err[128];

		rig_mac(i, cfg.mac);
		CHECK_EQ(pv_bond_open(&rig->ring[i], &rig->mem.mem, rig->pool[i], &cfg, err, sizeof(err)), 0);
	}
}

static inline void bond_rig_add(struct rig *rig, int side, uint32_t leg, struct pv_ring *ring, bool active)
{
	const struct pv_bond_leg_cfg cfg = { .id = leg + 1, .active = active, .fallback = leg == 1 };

	bond_rig(rig)->leg[side][leg] = ring;
	CHECK_EQ(pv_bond_leg_add(rig->ring[side], ring, &cfg), 0);
}

/* Which legs are active at the beginning. */
static inline bool bond_rig_active(enum pv_bond_mode mode, uint32_t leg)
{
	return mode == PV_BOND_XOR || mode == PV_BOND_8023AD || !leg;
}

/* ---- sim --------------------------------------------------------------------------------------------------------------- */

static inline struct pv_ring *bond_rig_sim_leg(struct rig *rig, int side, uint32_t leg)
{
	const uint32_t csum = PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP;
	struct pv_sim_ring_cfg cfg = { .mtu = RIG_MTU,
				       .rx_depth = RIG_DEPTH,
				       .tx_depth = RIG_DEPTH,
				       .rx_csum = csum,
				       .tx_csum = csum,
				       .tso_max = 65535,
				       .txqs = 5,
				       .pacing_min_kbps = 100,
				       .pacing_max_kbps = 100000000,
				       .pacing_burst = true };
	struct pv_ring *ring;

	rig_mac(side, cfg.mac);
	CHECK_EQ(pv_sim_open(&ring, bond_rig(rig)->wire[leg], rig->pool[side], &cfg), 0);
	return ring;
}

static inline void bond_rig_sim(struct rig *rig, uint32_t legs, enum pv_bond_mode mode)
{
	bond_rig_begin(rig, legs, mode, 1);
	for (uint32_t leg = 0; leg < legs; leg++) {
		CHECK_EQ(pv_sim_wire_open(&bond_rig(rig)->wire[leg], &rig->mem.mem, leg + 1), 0);
		for (int i = 0; i < 2; i++)
			bond_rig_add(rig, i, leg, bond_rig_sim_leg(rig, i, leg), bond_rig_active(mode, leg));
	}
}

static inline void bond_rig_sim_close(struct rig *rig)
{
	struct bond_rig *br = bond_rig(rig);

	for (uint32_t i = 0; i < br->legs; i++)
		pv_sim_wire_close(br->wire[i]);
	free(br);
}

static inline void bond_rig_sim_settle(struct rig *rig)
{
	struct bond_rig *br = bond_rig(rig);
	int64_t due;

	for (uint32_t i = 0; i < br->legs; i++)
		while ((due = pv_sim_wire_deadline(br->wire[i])) != PV_NEVER)
			pv_sim_wire_advance(br->wire[i], due);
}

static inline void bond_rig_sim_link(struct rig *rig, int side, bool up)
{
	struct bond_rig *br = bond_rig(rig);

	for (uint32_t i = 0; i < br->legs; i++)
		pv_sim_set_link(br->leg[side][i], up);
}

/* ---- the software NIC -------------------------------------------------------------------------------------------------- */

static inline struct pv_ring *bond_rig_nic_leg(struct rig *rig, int side, uint32_t leg)
{
	struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB,
				    .device = bond_rig(rig)->names[leg][side],
				    .rx_interrupts = true,
				    .rx_depth = RIG_DEPTH,
				    .tx_depth = RIG_DEPTH };
	struct pv_ring *ring;
	char err[256];
	int rc = pv_verbs_open(&ring, &rig->mem.mem, rig->pool[side], &cfg, err, sizeof(err));

	if (rc)
		fprintf(stderr, "%s\n", err);
	CHECK_EQ(rc, 0);
	return ring;
}

static inline void bond_rig_nic(struct rig *rig, uint32_t legs, enum pv_bond_mode mode)
{
	static const struct pv_flow all = { .kind = PV_FLOW_ALL };

	bond_rig_begin(rig, legs, mode, 1);
	for (uint32_t leg = 0; leg < legs; leg++) {
		devices(bond_rig(rig)->names[leg], "");
		for (int i = 0; i < 2; i++)
			bond_rig_add(rig, i, leg, bond_rig_nic_leg(rig, i, leg), bond_rig_active(mode, leg));
	}
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_ring_flow_add(rig->ring[i], &all, &rig->all_rule[i]), 0);
}

static inline void bond_rig_nic_close(struct rig *rig)
{
	free(rig->wire);
}

static inline void bond_rig_nic_settle(struct rig *rig)
{
	(void)rig; /* the fabric delivers within the doorbell */
}

static inline void bond_rig_nic_link(struct rig *rig, int side, bool up)
{
	struct bond_rig *br = bond_rig(rig);

	for (uint32_t i = 0; i < br->legs; i++)
		CHECK_EQ(nic.set_link(br->names[i][side], up), 0);
}

#endif
