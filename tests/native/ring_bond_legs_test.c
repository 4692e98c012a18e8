/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Legs that come, go, lose their link or their device, under every mode and transmit hash policy: who sends, what happens to frames in
 * flight, rules, queues, buffers, sums and segments.
 */
#include "ring_bond_flows.h"

/* ---- the matrix -------------------------------------------------------------------------------------------------------- */

enum failure { LINK, GONE, REMOVED, FAILURES };

static const struct rig_kind kind = { .name = "bond", .rx_queues = 2, .settle = bond_rig_nic_settle, .close = bond_rig_nic_close };
static enum pv_bond_mode the_mode;
static uint32_t the_policy;

static void open_matrix(struct rig *rig)
{
	static const struct pv_flow all = { .kind = PV_FLOW_ALL };

	bond_rig_begin(rig, 2, the_mode, the_policy);
	for (uint32_t leg = 0; leg < 2; leg++) {
		devices(bond_rig(rig)->names[leg], "");
		for (int i = 0; i < 2; i++)
			bond_rig_add(rig, i, leg, bond_rig_nic_leg(rig, i, leg), bond_rig_active(the_mode, leg));
	}
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_ring_flow_add(rig->ring[i], &all, &rig->all_rule[i]), 0);
}

static void plug(struct rig *rig, uint32_t leg, bool in)
{
	int (*softnic_plug)(const char *, int) =
	    (int (*)(const char *, int))dlsym(dlopen(SOFTNIC_LIB, RTLD_NOW | RTLD_LOCAL), "softnic_plug");

	CHECK(softnic_plug != NULL);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(softnic_plug(bond_rig(rig)->names[leg][i], in), 0);
}

static void break_leg(struct rig *rig, uint32_t leg, enum failure how)
{
	if (how == LINK)
		for (int i = 0; i < 2; i++)
			CHECK_EQ(nic.set_link(bond_rig(rig)->names[leg][i], 0), 0);
	if (how == GONE)
		plug(rig, leg, false);
	for (int i = 0; i < 2 && how == REMOVED; i++)
		del(rig, i, leg);
	events(rig);
	for (int i = 0; i < 2 && how == GONE; i++) {
		struct pv_bond_leg_cfg cfg = { 0 };

		for (uint32_t at = 0; cfg.id != leg + 1; at++)
			CHECK(pv_bond_leg(rig->ring[i], at, &cfg) != NULL);
		CHECK(cfg.gone && !cfg.sends);
		del(rig, i, leg);
	}
}

static void mend_leg(struct rig *rig, uint32_t leg, enum failure how)
{
	if (how == LINK) {
		for (int i = 0; i < 2; i++)
			CHECK_EQ(nic.set_link(bond_rig(rig)->names[leg][i], 1), 0);
		events(rig);
		return;
	}
	if (how == GONE)
		plug(rig, leg, true);
	for (int i = 0; i < 2; i++)
		bond_rig_add(rig, i, leg, bond_rig_nic_leg(rig, i, leg), bond_rig_active(the_mode, leg));
	events(rig);
}

/* Frames posted and not kicked when the leg fails. What is UDP's comes once or is counted, what is TCP's comes, when the bond knows that
 * the leg has not sent it; a device without a link drops what it is given, and says nothing. */
static void in_flight(struct rig *rig, uint32_t leg, enum failure how, uint32_t totals[2])
{
	struct pv_ring_counters before = count(rig, 0), after;
	uint32_t seen[FLOWS] = { 0 }, lost = 0;

	for (uint32_t i = 0; i < FLOWS; i++) {
		struct contract_ip d = flow(i, 600);
		struct pv_pkt *p = contract_ip_frame(rig, 0, &d);

		CHECK_EQ(pv_ring_tx_post(rig->ring[0], &p, 1), 1);
	}
	break_leg(rig, leg, how);
	rig_kick(rig, 0);
	rig_reap_all(rig, 0, FLOWS);
	receive(rig, seen);
	after = count(rig, 0);
	for (uint32_t i = 0; i < FLOWS; i++) {
		CHECK(seen[i] <= 1);
		CHECK(how == LINK || is_udp(i) || seen[i] == 1);
		lost += !seen[i];
	}
	if (how != LINK)
		CHECK_EQ(after.tx_lost - before.tx_lost, lost);
	totals[0] += lost;
	totals[1] += (uint32_t)(after.tx_moved - before.tx_moved);
}

static void matrix(enum pv_bond_mode mode)
{
	uint32_t totals[2] = { 0 }, runs = 0;

	the_mode = mode;
	for (the_policy = 0; the_policy <= 4; the_policy++) {
		for (uint32_t how = LINK; how < FAILURES; how++) {
			struct rig_kind k = kind;
			struct rig rig;

			k.open = open_matrix;
			rig_open(&rig, &k);
			rig_fill(&rig, 0);
			rig_fill(&rig, 1);
			all_flows(&rig, mode, the_policy, true);
			for (uint32_t leg = 0; leg < 2; leg++, runs++) {
				in_flight(&rig, leg, how, totals);
				all_flows(&rig, mode, the_policy, false);
				mend_leg(&rig, leg, how);
				/* Legs are in the order in which they came. */
				all_flows(&rig, mode, the_policy, how == LINK);
			}
			rig_close(&rig);
		}
	}
	printf("mode %d: %u failures; of frames in flight %u lost, %u sent again\n", (int)mode, runs, totals[0], totals[1]);
}

TEST(matrix_active_backup)
{
	matrix(PV_BOND_ACTIVE_BACKUP);
}

TEST(matrix_xor)
{
	matrix(PV_BOND_XOR);
}

TEST(matrix_8023ad)
{
	matrix(PV_BOND_8023AD);
}

TEST(matrix_netvsc)
{
	matrix(PV_BOND_NETVSC);
}

/* The device is found gone by the doorbell for frames that it was given: it has not sent them, and what is TCP's goes by the other leg. */
TEST(a_doorbell_that_is_refused)
{
	uint32_t seen[FLOWS] = { 0 };
	struct rig_kind k = kind;
	struct rig rig;

	the_mode = PV_BOND_NETVSC;
	the_policy = 1;
	k.open = open_matrix;
	rig_open(&rig, &k);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < FLOWS; i++) {
		struct contract_ip d = flow(i, 600);
		struct pv_pkt *p = contract_ip_frame(&rig, 0, &d);

		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
	}
	plug(&rig, 0, false);
	(void)pv_ring_tx_kick(rig.ring[0]);
	rig_reap_all(&rig, 0, FLOWS);
	rig_kick(&rig, 0);
	CHECK_EQ(receive(&rig, seen), FLOWS / 2);
	for (uint32_t i = 0; i < FLOWS; i++)
		CHECK_EQ(seen[i], !is_udp(i));
	CHECK_EQ(count(&rig, 0).tx_moved, FLOWS / 2);
	CHECK_EQ(count(&rig, 0).tx_lost, FLOWS / 2);
	plug(&rig, 0, true);
	rig_close(&rig);
}

static const struct pv_ring_ops *sim_ops;
static uint32_t frames_wait;

/* As AF_XDP's: without a link what was posted waits, and with one not all of it leaves by one call. */
static int waiting_kick(struct pv_ring *r)
{
	if (!r->caps.link_up)
		return -EAGAIN;
	if (frames_wait) {
		frames_wait--;
		return -EAGAIN;
	}
	return sim_ops->tx_kick(r);
}

/* A doorbell that is in vain until the link is back is nothing to stay awake for: the bond rings it then. */
TEST(frames_wait_for_the_link)
{
	struct pv_ring_ops ops;
	struct pv_ring *leg;
	struct rig rig;

	begin(&rig, open_sim_backup);
	leg = bond_rig(&rig)->leg[0][0];
	sim_ops = leg->ops;
	ops = *sim_ops;
	ops.tx_kick = waiting_kick;
	leg->ops = &ops;
	rig_post(&rig, 0, rig_frame(&rig, 0, 100, 1));
	leg->caps.link_up = false;
	/* Not noticed yet. */
	CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), -EAGAIN);
	events(&rig);
	CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), 0);
	CHECK_EQ(leg->stat->c.tx_packets, 0);
	/* The other one's are as ever. */
	rig_post(&rig, 0, rig_frame(&rig, 0, 100, 2));
	CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), 0);
	CHECK_EQ(bond_rig(&rig)->leg[0][1]->stat->c.tx_packets, 1);
	CHECK_EQ(leg->stat->c.tx_packets, 0);
	frames_wait = 3;
	leg->caps.link_up = true;
	events(&rig);
	CHECK_EQ(frames_wait, 0);
	CHECK_EQ(leg->stat->c.tx_packets, 1);
	rig_expect(&rig, 1, 100, 1);
	rig_reap_all(&rig, 0, 2);
	leg->ops = sim_ops;
	rig_close(&rig);
}

/* ---- frames in flight, one by one -------------------------------------------------------------------------------------- */

static struct pv_pkt *in_pieces(struct rig *rig, struct pv_pkt *whole, uint32_t piece)
{
	struct pv_pkt *head = NULL, **at = &head;

	for (uint32_t off = 0; off < whole->len; off += piece) {
		struct pv_pkt *p = pv_pkt_get(rig->pool[0]);
		uint32_t n = PV_MIN(piece, whole->len - off);

		CHECK(p != NULL);
		memcpy(p->data, whole->data + off, n);
		p->len = n;
		*at = p;
		at = &p->frag;
	}
	head->total = whole->len;
	head->flags = whole->flags;
	pv_pkt_put(whole);
	return head;
}

/* What waits in a slow queue when its leg is deleted: TCP's goes by the other leg, pieces together; UDP's is lost and counted. */
TEST(a_queue_that_is_deleted_with_its_leg)
{
	const struct pv_ring_rate slow = { .kbps = 100 };
	struct pv_pkt *kept = NULL;
	uint32_t seen[FLOWS] = { 0 };
	struct rig rig;
	int txq;

	begin(&rig, open_sim_netvsc);
	txq = pv_ring_txq_open(rig.ring[0], &slow);
	CHECK_EQ(txq, 1);
	for (uint32_t i = 0; i < 12; i++) {
		struct contract_ip d = flow(i, 600);
		struct pv_pkt *p = contract_ip_frame(&rig, 0, &d);

		if (i == 6)
			p = in_pieces(&rig, p, 133);
		if (i == 7)
			kept = p;
		p->flags |= i == 7 ? PV_PKT_KEPT : 0;
		pv_pkt_set_txq(p, (uint32_t)txq);
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
	}
	CHECK(pv_ring_txq_pending(rig.ring[0], (uint32_t)txq) > 0);
	/* No kick has been: the first one would leave at once. */
	pv_sim_set_link(bond_rig(&rig)->leg[0][0], false);
	del(&rig, 0, 0);
	CHECK(kept->flags & PV_PKT_KEPT);
	rig_kick(&rig, 0);
	CHECK_EQ(receive(&rig, seen), 6);
	for (uint32_t i = 0; i < 12; i++)
		CHECK_EQ(seen[i], !is_udp(i));
	CHECK_EQ(count(&rig, 0).tx_moved, 6);
	CHECK_EQ(count(&rig, 0).tx_lost, 6);
	CHECK_EQ(count(&rig, 0).plug_outs, 1);
	rig_reap_all(&rig, 0, 12);
	CHECK(!(kept->flags & PV_PKT_KEPT));
	pv_pkt_put(kept);
	CHECK_EQ(pv_ring_txq_close(rig.ring[0], (uint32_t)txq), 0);
	rig_close(&rig);
}

/* While a leg's device is being shut the bond gets more rules than it had room for, and one queue takes another's number. */
TEST(changes_while_a_leg_is_shut)
{
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .dst = contract_addr4(1), .l4_proto = 17 };
	const struct pv_ring_rate slow = { .kbps = 100 };
	struct contract_ip d = flow(1, 600);
	struct pv_ring *leg;
	struct pv_pkt *p;
	uint64_t handle;
	struct rig rig;
	int txq;

	begin(&rig, open_sim_netvsc);
	f.dst_port = 1000;
	CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &handle), 0);
	txq = pv_ring_txq_open(rig.ring[0], &slow);
	CHECK_EQ(txq, 1);
	for (uint32_t i = 0; is_udp(i); i++)
		d = flow(i + 1, 600);
	p = contract_ip_frame(&rig, 0, &d);
	pv_pkt_set_txq(p, (uint32_t)txq);
	CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
	/* No kick has been: what was posted is still the leg's. */
	pv_sim_set_link(bond_rig(&rig)->leg[0][0], false);
	leg = pv_bond_leg_part(rig.ring[0], 1);
	CHECK(leg == bond_rig(&rig)->leg[0][0]);
	for (uint32_t i = 1; i < 200; i++) {
		f.dst_port = (uint16_t)(1000 + i);
		CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &handle), 0);
	}
	CHECK_EQ(pv_ring_txq_close(rig.ring[0], 1), 0);
	CHECK_EQ(pv_ring_txq_open(rig.ring[0], &slow), 1);
	pv_ring_shut(leg);
	pv_bond_leg_end(rig.ring[0], leg);
	bond_rig(&rig)->leg[0][0] = NULL;
	/* Of the first queue now. */
	CHECK_EQ(pv_pkt_txq(p), 0);
	CHECK_EQ(pv_ring_txq_pending(rig.ring[0], 1), 0);
	rig_kick(&rig, 0);
	rig_reap_all(&rig, 0, 1);
	CHECK_EQ(count(&rig, 0).tx_moved, 1);
	rig_close(&rig);
}

/* No leg is left: all is lost, done, and nothing leaks. */
TEST(the_last_leg_goes)
{
	uint32_t seen[FLOWS] = { 0 };
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	del(&rig, 0, 1);
	for (uint32_t i = 0; i < 8; i++) {
		struct contract_ip d = flow(i, 600);
		struct pv_pkt *p = contract_ip_frame(&rig, 0, &d);

		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
	}
	pv_sim_vanish(bond_rig(&rig)->leg[0][0]);
	rig_kick(&rig, 0);
	rig_reap_all(&rig, 0, 8);
	CHECK_EQ(count(&rig, 0).tx_lost, 8);
	CHECK(!rig.ring[0]->caps.link_up);
	del(&rig, 0, 0);
	for (uint32_t i = 0; i < 8; i++) {
		struct contract_ip d = flow(i, 600);
		struct pv_pkt *p = contract_ip_frame(&rig, 0, &d);

		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
	}
	rig_reap_all(&rig, 0, 8);
	CHECK_EQ(count(&rig, 0).tx_errors, 16);
	CHECK_EQ(receive(&rig, seen), 0);
	/* One comes again. */
	bond_rig_add(&rig, 0, 1, bond_rig_sim_leg(&rig, 0, 1), true);
	rig_send(&rig, 0, 100, 5);
	rig_expect(&rig, 1, 100, 5);
	rig_reap_all(&rig, 0, 1);
	rig_close(&rig);
}

/* Frames that came before the leg went are received. */
TEST(what_was_received_is_kept)
{
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	for (uint32_t i = 0; i < 20; i++)
		rig_send(&rig, 0, 100, i);
	rig.kind->settle(&rig);
	del(&rig, 1, 0);
	for (uint32_t i = 0; i < 20; i++)
		rig_expect(&rig, 1, 100, i);
	rig_reap_all(&rig, 0, 20);
	rig_close(&rig);
}

/* A backup is not heard, the fallback of NetVSC is; and a leg that becomes the active one is heard from then on. */
TEST(who_is_heard)
{
	struct pv_pkt *p;
	struct rig rig;

	begin(&rig, open_sim_backup);
	CHECK_EQ(pv_bond_leg_set(rig.ring[0], 2, true), 0);
	for (uint32_t i = 0; i < 3 * RIG_DEPTH; i++) {
		rig_send(&rig, 0, 100, i);
		rig.kind->settle(&rig);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
		rig_reap(&rig, 0);
	}
	CHECK_EQ(count(&rig, 1).rx_backup, 3 * RIG_DEPTH);
	CHECK_EQ(pv_bond_leg_set(rig.ring[1], 2, true), 0);
	rig_expect_only(&rig, 1, 7);
	CHECK_EQ(pv_bond_leg_set(rig.ring[1], 9, true), -ENOENT);
	rig_close(&rig);

	begin(&rig, open_sim_netvsc);
	CHECK_EQ(pv_bond_leg_set(rig.ring[0], 1, false), 0);
	rig_expect_only(&rig, 1, 8);
	CHECK_EQ(bond_rig(&rig)->leg[0][1]->stat->c.tx_packets, 1);
	CHECK_EQ(count(&rig, 1).rx_backup, 0);
	rig_close(&rig);
}

/* ---- what is asked for is asked of all --------------------------------------------------------------------------------- */

TEST(rules_are_there_when_a_leg_comes)
{
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .dst = contract_addr4(1), .l4_proto = 17 };
	uint64_t handle[200];
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	del(&rig, 1, 0);
	for (uint32_t i = 0; i < 200; i++) {
		f.dst_port = (uint16_t)(1000 + i);
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &handle[i]), 0);
	}
	for (uint32_t i = 0; i < 200; i += 2)
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle[i]), 0);
	CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle[0]), -ENOENT);
	bond_rig_add(&rig, 1, 0, bond_rig_sim_leg(&rig, 1, 0), true);
	for (uint32_t i = 0; i < 200; i++) {
		struct contract_ip d = {
			.src = contract_addr4(2), .dst = contract_addr4(1), .src_port = 1, .dst_port = 0, .proto = 17
		};
		struct pv_pkt *p;

		d.dst_port = (uint16_t)(1000 + i);
		rig_post(&rig, 0, contract_ip_frame(&rig, 0, &d));
		rig_kick(&rig, 0);
		rig.kind->settle(&rig);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), i & 1);
		if (i & 1)
			pv_pkt_put(p);
		rig_fill(&rig, 1);
		rig_reap(&rig, 0);
	}
	for (uint32_t i = 1; i < 200; i += 2)
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle[i]), 0);
	CHECK_EQ(count(&rig, 1).rules_refused, 0);
	rig_close(&rig);
}

/* A leg that cannot take a rule is counted; when none can, the rule is refused. */
TEST(rules_that_a_leg_refuses)
{
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .dst = contract_addr4(1), .l4_proto = 17, .dst_port = 9 };
	uint64_t handle;
	struct rig rig;

	begin(&rig, open_sim_backup);
	rig.mem.fail_in = 2; /* the table and one leg's rule; the other has no memory */
	CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &handle), -ENOMEM);
	rig.mem.fail_in = -1;
	CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &handle), 0);
	CHECK_EQ(pv_ring_flow_del(rig.ring[0], handle), 0);
	rig.mem.fail_in = 1;
	CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &handle), 0);
	rig.mem.fail_in = -1;
	CHECK_EQ(count(&rig, 0).rules_refused, 1);
	CHECK_EQ(pv_ring_flow_del(rig.ring[0], handle), 0);
	rig.mem.fail_in = 0;
	CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &handle), -ENOMEM);
	rig.mem.fail_in = -1;
	rig_close(&rig);
}

/* Every allocation of a leg's coming fails in turn: it stays the caller's, and the bond is as it was. */
TEST(no_memory_for_a_leg)
{
	struct pv_flow f = { .kind = PV_FLOW_ETHER };
	const struct pv_bond_leg_cfg cfg = { .id = 1, .active = true };
	struct pv_ring *leg;
	uint64_t handle;
	struct rig rig;
	int rc = -1;

	begin(&rig, open_sim_netvsc);
	CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &handle), 0);
	del(&rig, 0, 0);
	leg = bond_rig_sim_leg(&rig, 0, 0);
	for (int i = 0; i < 3; i++) {
		rig.mem.fail_in = i;
		rc = pv_bond_leg_add(rig.ring[0], leg, &cfg);
		CHECK_EQ(rc, -ENOMEM);
	}
	rig.mem.fail_in = -1;
	CHECK_EQ(pv_bond_leg_add(rig.ring[0], leg, &cfg), 0);
	CHECK_EQ(pv_bond_leg_add(rig.ring[0], leg, &cfg), -EEXIST);
	CHECK_EQ(pv_bond_leg_del(rig.ring[0], 7), -ENOENT);
	rig_expect_only(&rig, 1, 1);
	rig_close(&rig);
}

TEST(what_a_bond_is_not)
{
	static const struct pv_bond_cfg bad[] = {
		{ .mode = (enum pv_bond_mode)0, .mtu = 1500 },
		{ .mode = (enum pv_bond_mode)6, .mtu = 1500 },
		{ .mode = PV_BOND_XOR, .hash_policy = 5, .mtu = 1500 },
		{ .mode = PV_BOND_ACTIVE_BACKUP, .fail_over_mac = 2, .mtu = 1500 },
		{ .mode = PV_BOND_ACTIVE_BACKUP, .mtu = 9000 },
	};
	const struct pv_bond_cfg good = { .mode = PV_BOND_ACTIVE_BACKUP };
	struct pv_ring *r;
	struct rig rig;
	char err[128];

	begin(&rig, open_sim_netvsc);
	for (uint32_t i = 0; i < pv_array_size(bad); i++) {
		err[0] = 0;
		CHECK(pv_bond_open(&r, &rig.mem.mem, rig.pool[0], &bad[i], err, sizeof(err)) < 0);
		CHECK(err[0]);
	}
	for (int i = 0; i < 5; i++) {
		rig.mem.fail_in = i;
		CHECK_EQ(pv_bond_open(&r, &rig.mem.mem, rig.pool[0], &good, err, sizeof(err)), -ENOMEM);
	}
	rig.mem.fail_in = -1;
	rig_close(&rig);
}

/* ---- what a leg does not do -------------------------------------------------------------------------------------------- */

static void plain_leg(struct rig *rig, int side, uint32_t leg)
{
	struct pv_sim_ring_cfg cfg = { .mtu = RIG_MTU, .rx_depth = RIG_DEPTH, .tx_depth = RIG_DEPTH };
	struct pv_ring *ring;

	rig_mac(side, cfg.mac);
	CHECK_EQ(pv_sim_open(&ring, bond_rig(rig)->wire[leg], rig->pool[side], &cfg), 0);
	bond_rig_add(rig, side, leg, ring, false);
}

/* Whole frames and frames in odd pieces, padded ones, with all sums left to a leg that fills none. */
TEST(sums_for_a_leg_that_fills_none)
{
	uint32_t seen[FLOWS] = { 0 };
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	del(&rig, 0, 1);
	plain_leg(&rig, 0, 1);
	del(&rig, 0, 0);
	for (uint32_t i = 0; i < FLOWS; i++) {
		struct contract_ip d = flow(i, i & 4 ? 301 + i : 1 + i);
		struct pv_pkt *p;

		d.offload = true;
		p = contract_ip_frame(&rig, 0, &d);
		p->flags = PV_PKT_TX_L4_CSUM | (i & 1 ? 0 : PV_PKT_TX_L3_CSUM);
		if (i & 8)
			p = in_pieces(&rig, p, 77 + i);
		rig_post(&rig, 0, p);
	}
	rig_kick(&rig, 0);
	CHECK_EQ(receive(&rig, seen), FLOWS);
	rig_reap_all(&rig, 0, FLOWS);
	rig_close(&rig);
}

/* A segment that was built for one leg and goes by another that does not cut. */
TEST(segments_for_a_leg_that_cuts_none)
{
	const struct contract_tso d = { .gso = 1000, .payload = 3000, .piece = 1000, .df = true };
	struct pv_pkt *p, *in;
	uint32_t got = 0;
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	del(&rig, 0, 1);
	plain_leg(&rig, 0, 1);
	CHECK(rig.ring[0]->caps.tso_max > 0);
	CHECK_EQ(pv_bond_leg_set(rig.ring[0], 1, false), 0);
	CHECK_EQ(rig.ring[0]->caps.tso_max, 0);
	p = contract_tso_packet(&rig, &d);
	rig_post(&rig, 0, p);
	rig_kick(&rig, 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct pv_frame f;

		in = rig_recv(&rig, 1);
		CHECK(pv_frame_parse(in->data, in->len, &f));
		CHECK_EQ(f.proto, 6);
		CHECK_EQ(pv_frame_check_csum(in->data, in->len, PV_CSUM_IP4 | PV_CSUM_TCP), PV_PKT_L3_OK | PV_PKT_L4_OK);
		got += f.l4_len - 20;
		pv_pkt_put(in);
	}
	CHECK_EQ(got, 3000);
	rig_reap_all(&rig, 0, 1);
	rig_close(&rig);
}

/* A leg that comes without queues: frames of a queue go by its first, and rates are those of whoever sends. */
TEST(queues_for_a_leg_that_has_none)
{
	const struct pv_ring_rate rate = { .kbps = 1000000 };
	struct pv_pkt *p;
	struct rig rig;
	int txq;

	begin(&rig, open_sim_netvsc);
	del(&rig, 0, 1);
	plain_leg(&rig, 0, 1);
	txq = pv_ring_txq_open(rig.ring[0], &rate);
	CHECK(txq > 0);
	CHECK(rig.ring[0]->caps.pacing_max_kbps > 0);
	del(&rig, 0, 0);
	CHECK_EQ(rig.ring[0]->caps.pacing_max_kbps, 0);
	CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), -EOPNOTSUPP);
	p = contract_queued(&rig, (uint32_t)txq, 100, 3);
	rig_post(&rig, 0, p);
	rig_kick(&rig, 0);
	rig_expect(&rig, 1, 100, 3);
	rig_reap_all(&rig, 0, 1);
	CHECK_EQ(pv_ring_txq_pending(rig.ring[0], (uint32_t)txq), 0);
	bond_rig_add(&rig, 0, 0, bond_rig_sim_leg(&rig, 0, 0), true);
	p = contract_queued(&rig, (uint32_t)txq, 100, 4);
	rig_post(&rig, 0, p);
	rig_kick(&rig, 0);
	rig_expect(&rig, 1, 100, 4);
	rig_reap_all(&rig, 0, 1);
	CHECK_EQ(pv_ring_txq_close(rig.ring[0], (uint32_t)txq), 0);
	rig_close(&rig);
}

/* Stamps are those of the leg that sends, and of no other; its clock is the bond's. */
TEST(stamps_are_of_one_clock)
{
	struct bond_rig *br;
	uint64_t now;
	struct pv_pkt *p;
	struct rig rig;

	begin(&rig, open_sim_netvsc);
	br = bond_rig(&rig);
	pv_sim_wire_advance(br->wire[1], 777);
	CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
	rig_send(&rig, 0, 100, 1);
	p = rig_recv(&rig, 1);
	CHECK(p->flags & PV_PKT_TSTAMP);
	pv_pkt_put(p);
	CHECK_EQ(pv_bond_leg_set(rig.ring[0], 1, false), 0);
	rig_send(&rig, 0, 100, 2);
	p = rig_recv(&rig, 1);
	CHECK(!(p->flags & PV_PKT_TSTAMP));
	pv_pkt_put(p);
	CHECK_EQ(pv_ring_clock(rig.ring[1], &now), 0);
	CHECK(now != 777);
	CHECK_EQ(pv_bond_leg_set(rig.ring[1], 1, false), 0);
	CHECK_EQ(pv_ring_clock(rig.ring[1], &now), 0);
	CHECK_EQ(now, 777);
	/* Until the owner has asked anew it would take them for those of the clock before. */
	rig_send(&rig, 0, 100, 3);
	p = rig_recv(&rig, 1);
	CHECK(!(p->flags & PV_PKT_TSTAMP));
	pv_pkt_put(p);
	CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
	rig_send(&rig, 0, 100, 3);
	p = rig_recv(&rig, 1);
	CHECK(p->flags & PV_PKT_TSTAMP);
	CHECK_EQ(p->tstamp, 777);
	pv_pkt_put(p);
	/* It had no link for a while, which moved nothing. */
	del(&rig, 1, 0);
	for (int up = 0; up < 2; up++) {
		pv_sim_set_link(br->leg[1][1], up);
		events(&rig);
	}
	rig_send(&rig, 0, 100, 3);
	p = rig_recv(&rig, 1);
	CHECK(p->flags & PV_PKT_TSTAMP);
	pv_pkt_put(p);
	bond_rig_add(&rig, 1, 0, bond_rig_sim_leg(&rig, 1, 0), false);
	/* A leg that comes stamps, too, once it is the one. */
	del(&rig, 1, 0);
	bond_rig_add(&rig, 1, 0, bond_rig_sim_leg(&rig, 1, 0), true);
	CHECK_EQ(pv_bond_leg_set(rig.ring[0], 1, true), 0);
	CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
	rig_send(&rig, 0, 100, 4);
	p = rig_recv(&rig, 1);
	CHECK(p->flags & PV_PKT_TSTAMP);
	pv_pkt_put(p);
	rig_reap_all(&rig, 0, 6);
	del(&rig, 1, 0);
	del(&rig, 1, 1);
	CHECK_EQ(rig.ring[1]->caps.tstamp, PV_TSTAMP_NONE);
	CHECK_EQ(pv_ring_clock(rig.ring[1], &now), -EOPNOTSUPP);
	rig_close(&rig);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
