/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract suite over bonds of one and two legs, of sim rings and of the software NIC's. */
#include "ring_bond_rig.h"

#define SIM_MUST (RIG_FLOWS | RIG_TX_CSUM | RIG_RX_CSUM | RIG_STAMPS | RIG_TXQ | RIG_PACING | RIG_TSO)
#define NIC_MUST (RIG_FLOWS | RIG_TXQ | RIG_PACING | RIG_TSO | RIG_TX_CSUM | RIG_RX_CSUM | RIG_ARM)

static void open_sim1(struct rig *rig)
{
	bond_rig_sim(rig, 1, PV_BOND_ACTIVE_BACKUP);
}

static void open_sim2(struct rig *rig)
{
	bond_rig_sim(rig, 2, PV_BOND_ACTIVE_BACKUP);
}

static void open_xor(struct rig *rig)
{
	bond_rig_sim(rig, 2, PV_BOND_XOR);
}

static void open_nic1(struct rig *rig)
{
	bond_rig_nic(rig, 1, PV_BOND_NETVSC);
}

static void open_nic2(struct rig *rig)
{
	bond_rig_nic(rig, 2, PV_BOND_ACTIVE_BACKUP);
}

#define BOND(id, opener, closer, settler, linker, legs, needs)                                                                     \
	static const struct rig_kind id = {                                                                                        \
		.name = #id,                                                                                                       \
		.must = needs,                                                                                                     \
		.rx_queues = legs,                                                                                                 \
		.open = opener,                                                                                                    \
		.close = closer,                                                                                                   \
		.settle = settler,                                                                                                 \
		.set_link = linker,                                                                                                \
	}

BOND(sim1, open_sim1, bond_rig_sim_close, bond_rig_sim_settle, bond_rig_sim_link, 0, SIM_MUST);
BOND(sim2, open_sim2, bond_rig_sim_close, bond_rig_sim_settle, bond_rig_sim_link, 2, SIM_MUST);
BOND(xor, open_xor, bond_rig_sim_close, bond_rig_sim_settle, bond_rig_sim_link, 2, SIM_MUST);
BOND(nic1, open_nic1, bond_rig_nic_close, bond_rig_nic_settle, bond_rig_nic_link, 0, NIC_MUST);
BOND(nic2, open_nic2, bond_rig_nic_close, bond_rig_nic_settle, bond_rig_nic_link, 2, NIC_MUST);

#define SIM1(id) CONTRACT_CASE(sim1, id)
CONTRACT_LIST(SIM1)
#define SIM2(id) CONTRACT_CASE(sim2, id)
CONTRACT_LIST(SIM2)
/* Frames of two flows, which may go by two legs, are in no order: the cases that send several at once are not for such a bond. */
#define XOR_LIST(X)                                                                                                                \
	X(frames_of_all_sizes)                                                                                                     \
	X(frames_it_cannot_carry)                                                                                                  \
	X(gather)                                                                                                                  \
	X(rx_depth)                                                                                                                \
	X(tx_depth)                                                                                                                \
	X(both_directions)                                                                                                         \
	X(no_buffers)                                                                                                              \
	X(close_with_everything_outstanding)                                                                                       \
	X(counters)                                                                                                                \
	X(flow_errors)                                                                                                             \
	X(checksums_sent)                                                                                                          \
	X(checksums_received)                                                                                                      \
	X(checksums_and_padding)                                                                                                   \
	X(pool_growth)                                                                                                             \
	X(link)                                                                                                                    \
	X(forget)                                                                                                                  \
	X(txq_life)                                                                                                                \
	X(txq_unknown)                                                                                                             \
	X(txq_mixed)                                                                                                               \
	X(txq_full)                                                                                                                \
	X(rate_range)                                                                                                              \
	X(rate_held)                                                                                                               \
	X(rate_close)                                                                                                              \
	X(tso_frames)                                                                                                              \
	X(tso_unsound)
#define XOR(id) CONTRACT_CASE(xor, id)
XOR_LIST(XOR)
#define NIC1(id) CONTRACT_CASE(nic1, id)
CONTRACT_LIST(NIC1)
#define NIC2(id) CONTRACT_CASE(nic2, id)
CONTRACT_LIST(NIC2)

int main(int c, char **v)
{
	return test_main(c, v);
}
