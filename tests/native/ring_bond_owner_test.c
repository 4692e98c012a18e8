/* SPDX-License-Identifier: BSD-3-Clause */
/* What a bond's owner says of its legs and is told of them, and what the bond does when something is short: memory, buffers, room. */
#include "ring_bond_flows.h"

static void add_at(struct rig *rig, uint32_t leg, uint32_t at)
{
	const struct pv_bond_leg_cfg cfg = { .id = leg + 1, .active = true, .at = at };

	bond_rig(rig)->leg[0][leg] = bond_rig_sim_leg(rig, 0, leg);
	CHECK_EQ(pv_bond_leg_add(rig->ring[0], bond_rig(rig)->leg[0][leg], &cfg), 0);
}

/* A slave whose leg opens late is where the kernel has it, and so the hash sends by the same one. */
TEST(legs_are_in_the_order_of_slaves)
{
	struct pv_bond_leg_cfg cfg;
	struct rig rig;

	begin(&rig, open_sim_xor);
	for (uint32_t k = 0; k < 2; k++)
		del(&rig, 0, k);
	add_at(&rig, 1, 1);
	add_at(&rig, 0, 0);
	for (uint32_t k = 0; k < 2; k++) {
		CHECK(pv_bond_leg(rig.ring[0], k, &cfg) != NULL);
		CHECK_EQ(cfg.id, k + 1);
		CHECK_EQ(cfg.at, k);
	}
	all_flows(&rig, PV_BOND_XOR, 1, true);
	/* The first slave was released, and enslaved again behind the other. */
	CHECK_EQ(pv_bond_leg_place(rig.ring[0], 1, 2), 0);
	CHECK(pv_bond_leg(rig.ring[0], 0, &cfg) != NULL);
	CHECK_EQ(cfg.id, 2);
	CHECK_EQ(pv_bond_leg_place(rig.ring[0], 1, 0), 0);
	all_flows(&rig, PV_BOND_XOR, 1, true);
	CHECK_EQ(pv_bond_leg_place(rig.ring[0], 9, 0), -ENOENT);
	rig_close(&rig);
}

/* While a slave that is up has no leg, or one that is gone, not all that comes to the bond comes to us. */
TEST(a_leg_that_should_be_there)
{
	struct rig rig;

	begin(&rig, open_sim_xor);
	CHECK(!rig.ring[0]->caps.rx_partial);
	pv_bond_expect(rig.ring[0], 2);
	CHECK(!rig.ring[0]->caps.rx_partial);
	pv_sim_vanish(bond_rig(&rig)->leg[0][1]);
	events(&rig);
	CHECK(rig.ring[0]->caps.rx_partial);
	del(&rig, 0, 1);
	CHECK(rig.ring[0]->caps.rx_partial);
	add_at(&rig, 1, 1);
	CHECK(!rig.ring[0]->caps.rx_partial);
	del(&rig, 0, 0);
	CHECK(rig.ring[0]->caps.rx_partial);
	pv_bond_expect(rig.ring[0], 1);
	CHECK(!rig.ring[0]->caps.rx_partial);
	rig_close(&rig);
}

/* With fail_over_mac 1 the owner sees that its address is another one by what the kernel says: the bond's stays. */
TEST(the_address_stays)
{
	struct pv_bond_cfg cfg = { .mode = PV_BOND_ACTIVE_BACKUP, .fail_over_mac = 1, .mtu = RIG_MTU };
	struct pv_bond_leg_cfg lc = { .id = 1, .active = true };
	struct pv_sim_ring_cfg sc = { .mtu = RIG_MTU, .rx_depth = RIG_DEPTH, .tx_depth = RIG_DEPTH };
	struct pv_ring *r, *leg;
	struct rig rig;
	char err[128];

	begin(&rig, open_sim_backup);
	for (uint32_t k = 0; k < 2; k++)
		del(&rig, 0, k);
	rig_mac(0, cfg.mac);
	CHECK_EQ(pv_bond_open(&r, &rig.mem.mem, rig.pool[0], &cfg, err, sizeof(err)), 0);
	for (; lc.id <= 2; lc.id++, lc.active = false) {
		rig_mac((int)lc.id - 1, sc.mac);
		CHECK_EQ(pv_sim_open(&leg, bond_rig(&rig)->wire[lc.id - 1], rig.pool[0], &sc), 0);
		CHECK_EQ(pv_bond_leg_add(r, leg, &lc), 0);
	}
	CHECK_EQ(pv_bond_leg_set(r, 2, true), 0);
	CHECK(pv_mac_eq(r->caps.mac, cfg.mac));
	pv_ring_close(r);
	rig_close(&rig);
}

/* A bond that takes its MTU of its first leg has packets that hold its frames, or does not take it. */
TEST(packets_too_small_for_a_leg)
{
	const struct pv_bond_cfg cfg = { .mode = PV_BOND_ACTIVE_BACKUP };
	const struct pv_bond_leg_cfg lc = { .id = 1 };
	struct pv_sim_ring_cfg sc = { .mtu = RIG_MTU, .rx_depth = RIG_DEPTH, .tx_depth = RIG_DEPTH };
	struct pv_ring *r, *leg;
	struct rig rig;
	char err[128];

	begin(&rig, open_sim_backup);
	del(&rig, 0, 0);
	CHECK_EQ(pv_bond_open(&r, &rig.mem.mem, rig.pool[0], &cfg, err, sizeof(err)), 0);
	CHECK_EQ(pv_sim_open(&leg, bond_rig(&rig)->wire[0], rig.pool[0], &sc), 0);
	leg->caps.mtu = 9000;
	CHECK_EQ(pv_bond_leg_add(r, leg, &lc), -EINVAL);
	pv_ring_close(leg);
	pv_ring_close(r);
	rig_close(&rig);
}

/* ---- what the owner is told -------------------------------------------------------------------------------------------- */

static struct pv_ring_ops counting_ops;
static uint32_t counts;

static void counting(struct pv_ring *r, struct pv_ring_counters *out)
{
	counts++;
	*out = r->stat->c;
}

/* Who sleeps, and who looks for events, asks no leg for counters that cost it a system call; who reads the statistics does. */
TEST(counters_are_asked_for_by_readers)
{
	struct pv_ring *leg;
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	leg = bond_rig(&rig)->leg[0][0];
	counting_ops = *leg->ops;
	counting_ops.counters = counting;
	leg->ops = &counting_ops;
	counts = 0;
	rig_expect_only(&rig, 1, 1);
	(void)pv_ring_arm(rig.ring[0]);
	events(&rig);
	CHECK_EQ(counts, 0);
	CHECK_EQ(rig.ring[0]->stat->c.tx_packets, 1);
	CHECK_EQ(count(&rig, 0).tx_packets, 1);
	CHECK_EQ(counts, 1);
	rig_close(&rig);
}

/* A backup that had nothing out moves nothing, and is found gone all the same. */
TEST(a_backup_is_lost)
{
	struct pv_bond_leg_cfg cfg;
	enum pv_ring_event ev;
	struct rig rig;

	begin(&rig, open_sim_backup);
	events(&rig);
	pv_sim_vanish(bond_rig(&rig)->leg[0][1]);
	rig_kick(&rig, 0);
	CHECK_EQ(pv_ring_arm(rig.ring[0]), 1);
	while ((ev = pv_ring_event(rig.ring[0])) != PV_RING_EV_NONE)
		CHECK(ev != PV_RING_EV_MOVED);
	CHECK(pv_bond_leg(rig.ring[0], 1, &cfg) != NULL);
	CHECK(cfg.gone);
	CHECK(pv_ring_arm(rig.ring[0]) != 1);
	CHECK_EQ(count(&rig, 0).moves, 0);
	rig_close(&rig);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
