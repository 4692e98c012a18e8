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

/* ---- what is short ----------------------------------------------------------------------------------------------------- */

/* A leg that cuts nothing, has queues, and room for `depth` frames. */
static void small_leg(struct rig *rig, uint32_t leg, uint32_t depth)
{
	struct pv_sim_ring_cfg cfg = { .mtu = RIG_MTU,
				       .rx_depth = RIG_DEPTH,
				       .tx_depth = depth,
				       .txqs = 2,
				       .pacing_min_kbps = 100,
				       .pacing_max_kbps = 100000000 };
	struct pv_ring *ring;

	rig_mac(0, cfg.mac);
	CHECK_EQ(pv_sim_open(&ring, bond_rig(rig)->wire[leg], rig->pool[0], &cfg), 0);
	bond_rig_add(rig, 0, leg, ring, false);
}

/* Parts of a segment that a full leg has not taken yet are the queue's, leave when it was closed, and are nobody's to reap but the bond's. */
TEST(parts_of_a_queue_that_is_closed)
{
	const struct contract_tso d = { .gso = 1000, .payload = 3000, .piece = 1000, .df = true };
	struct pv_pkt *p, *out[8];
	struct pv_ring *small;
	struct rig rig;
	int txq;

	begin(&rig, open_sim_netvsc);
	del(&rig, 0, 1);
	small_leg(&rig, 1, 2);
	small = bond_rig(&rig)->leg[0][1];
	txq = pv_ring_txq_open(rig.ring[0], NULL);
	CHECK(txq > 0);
	p = contract_tso_packet(&rig, &d);
	CHECK_EQ(pv_bond_leg_set(rig.ring[0], 1, false), 0);
	pv_pkt_set_txq(p, (uint32_t)txq);
	rig_post(&rig, 0, p);
	CHECK_EQ(small->tx_pending, 2);
	CHECK_EQ(pv_ring_txq_pending(rig.ring[0], (uint32_t)txq), pv_ring_txq_pending(small, 1) + 1);
	CHECK_EQ(pv_ring_txq_close(rig.ring[0], (uint32_t)txq), 0);
	for (uint32_t i = 0, reaped = 0; i < 3; i++) {
		rig_kick(&rig, 0);
		p = rig_recv(&rig, 1);
		CHECK_EQ(pv_frame_check_csum(p->data, p->len, PV_CSUM_IP4 | PV_CSUM_TCP), PV_PKT_L3_OK | PV_PKT_L4_OK);
		pv_pkt_put(p);
		for (uint32_t n = pv_ring_tx_reap(rig.ring[0], out, 8); n; n--, reaped++)
			pv_pkt_put(out[n - 1]);
		CHECK_EQ(reaped, 1);
	}
	CHECK_EQ(rig.ring[0]->tx_pending, 0);
	CHECK_EQ(count(&rig, 0).tx_errors, 0);
	rig_close(&rig);
}

/* A leg that goes needs no memory: what it had is lost, counted, and its owner's again. */
TEST(no_memory_while_a_leg_goes)
{
	const struct pv_ring_rate slow = { .kbps = 100 };
	struct rig rig;
	int txq;

	begin(&rig, open_sim_netvsc);
	del(&rig, 0, 1);
	txq = pv_ring_txq_open(rig.ring[0], &slow);
	CHECK(txq > 0);
	for (uint32_t i = 0; i < 8; i++) {
		struct pv_pkt *p = contract_queued(&rig, (uint32_t)txq, 100, i);

		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
	}
	pv_sim_set_link(bond_rig(&rig)->leg[0][0], false);
	rig.mem.fail_in = 0;
	del(&rig, 0, 0);
	rig.mem.fail_in = -1;
	CHECK_EQ(count(&rig, 0).tx_lost, 8);
	CHECK_EQ(rig.ring[0]->tx_pending, 8);
	rig_reap_all(&rig, 0, 8);
	CHECK_EQ(rig.ring[0]->tx_pending, 0);
	rig_close(&rig);
}

/* A leg that comes while the pool is short has its buffers once it is not. */
TEST(buffers_for_a_leg_come_later)
{
	struct pv_pkt *p[RIG_PACKETS];
	struct pv_pool *pool;
	uint32_t n = 0, was;
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	pool = rig.pool[1];
	del(&rig, 1, 0);
	while ((p[n] = pv_pkt_get(pool)))
		n++;
	bond_rig_add(&rig, 1, 0, bond_rig_sim_leg(&rig, 1, 0), true);
	events(&rig);
	while (n)
		pv_pkt_put(p[--n]);
	was = pool->nfree;
	events(&rig);
	CHECK_EQ(was - pool->nfree, RIG_DEPTH);
	was = pool->nfree;
	events(&rig);
	CHECK_EQ(was, pool->nfree);
	for (uint32_t i = 0; i < RIG_DEPTH; i++) {
		rig_send(&rig, 0, 100, i);
		rig_expect(&rig, 1, 100, i);
		rig_reap(&rig, 0);
	}
	CHECK_EQ(bond_rig(&rig)->leg[1][0]->stat->c.rx_packets, RIG_DEPTH);
	rig_close(&rig);
}

/* Nothing is sent by a backup while bonding's choice is no leg, and it goes on by that when it is one. */
TEST(a_choice_that_is_no_leg)
{
	struct pv_bond_leg_cfg cfg;
	struct rig rig;

	begin(&rig, open_sim_backup);
	pv_bond_elsewhere(rig.ring[0], true);
	for (uint32_t i = 0; pv_bond_leg(rig.ring[0], i, &cfg); i++)
		CHECK(!cfg.sends);
	pv_bond_elsewhere(rig.ring[0], false);
	CHECK(pv_bond_leg(rig.ring[0], 0, &cfg) && cfg.sends);
	all_flows(&rig, PV_BOND_ACTIVE_BACKUP, 0, true);
	rig_close(&rig);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
