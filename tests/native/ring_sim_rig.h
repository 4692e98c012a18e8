/* SPDX-License-Identifier: BSD-3-Clause */
/* Two sim rings on one wire, for the contract suite. */
#ifndef RING_SIM_RIG_H
#define RING_SIM_RIG_H

#include "ring/sim.h"
#include "ring_contract.h"

static inline struct pv_sim_wire *rig_wire(struct rig *rig)
{
	return rig->wire;
}

/* With checksums all that hangs on them, too: devices do not cut segments whose sums they cannot fill. */
static inline void rig_sim_open_as(struct rig *rig, uint32_t csum)
{
	struct pv_sim_wire *w;

	CHECK_EQ(pv_sim_wire_open(&w, &rig->mem.mem, 1), 0);
	rig->wire = w;
	for (int i = 0; i < 2; i++) {
		struct pv_sim_ring_cfg cfg = { .mtu = RIG_MTU,
					       .rx_depth = RIG_DEPTH,
					       .tx_depth = RIG_DEPTH,
					       .rx_csum = csum,
					       .tx_csum = csum,
					       .tso_max = csum ? 65535 : 0,
					       .txqs = csum ? 5 : 0,
					       .pacing_min_kbps = csum ? 100 : 0,
					       .pacing_max_kbps = csum ? 100000000 : 0,
					       .pacing_burst = csum != 0 };

		rig_mac(i, cfg.mac);
		CHECK_EQ(pv_sim_open(&rig->ring[i], w, rig->pool[i], &cfg), 0);
		rig->other[i] = rig->ring[i];
	}
}

static inline void rig_sim_open(struct rig *rig)
{
	rig_sim_open_as(rig, PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP);
}

static inline void rig_sim_close(struct rig *rig)
{
	pv_sim_wire_close(rig->wire);
}

static inline void rig_sim_settle(struct rig *rig)
{
	int64_t due;

	while ((due = pv_sim_wire_deadline(rig->wire)) != PV_NEVER)
		pv_sim_wire_advance(rig->wire, due);
}

/* `other` keeps the sim rings when a middleware stands in front. */
static inline void rig_sim_set_link(struct rig *rig, int side, bool up)
{
	pv_sim_set_link(rig->other[side], up);
}

static inline void rig_sim_vanish(struct rig *rig, int side)
{
	pv_sim_vanish(rig->other[side]);
}

#endif
