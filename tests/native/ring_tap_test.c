/* SPDX-License-Identifier: BSD-3-Clause */
/* Taps come and go while a ring is in use, and leave it as it was. */
#include "ring/tap.h"
#include "ring_contract.h"
#include "ring_sim_rig.h"

static const struct rig_kind plain = { .name = "plain",
				       .must = RIG_FLOWS | RIG_TX_CSUM | RIG_RX_CSUM | RIG_STAMPS,
				       .open = rig_sim_open,
				       .close = rig_sim_close,
				       .settle = rig_sim_settle,
				       .set_link = rig_sim_set_link,
				       .vanish = rig_sim_vanish };

struct witness {
	struct pv_tap tap;
	uint32_t rx, tx, gone, gone_forked;
};

static void frames(struct pv_tap *t, struct pv_pkt *const *pkts, uint32_t n, enum pv_dir dir)
{
	struct witness *w = pv_container_of(t, struct witness, tap);

	CHECK(n > 0 && n <= PV_RING_BATCH_MAX);
	for (uint32_t i = 0; i < n; i++)
		CHECK(pkts[i]->len >= 60);
	*(dir == PV_DIR_RX ? &w->rx : &w->tx) += n;
}

static void gone(struct pv_tap *t, struct pv_ring *ring)
{
	struct witness *w = pv_container_of(t, struct witness, tap);

	w->gone++;
	w->gone_forked += !ring;
}

static struct witness new_witness(void)
{
	return (struct witness){ .tap = { .frames = frames, .gone = gone } };
}

static void exchange(struct rig *rig, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int from = (int)(i & 1);

		rig_send(rig, from, 60 + i, i);
		rig_expect(rig, 1 - from, 60 + i, i);
		rig_reap(rig, from);
		rig_fill(rig, 1 - from);
	}
}

TEST(taps_see_both_directions_until_they_are_off)
{
	struct witness a = new_witness(), b = new_witness(), c = new_witness();
	const struct pv_ring_ops *own;
	struct rig rig;

	rig_open(&rig, &plain);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	own = rig.ring[0]->ops;
	exchange(&rig, 10);
	CHECK_EQ(pv_tap_add(&a.tap, rig.ring[0], &rig.mem.mem), 0);
	CHECK(rig.ring[0]->ops != own);
	exchange(&rig, 10);
	CHECK_EQ(pv_tap_add(&b.tap, rig.ring[0], &rig.mem.mem), 0);
	CHECK_EQ(pv_tap_add(&c.tap, rig.ring[1], &rig.mem.mem), 0);
	exchange(&rig, 10);
	pv_tap_del(&a.tap); /* the first of two: the other goes on */
	pv_tap_del(&a.tap);
	exchange(&rig, 10);
	pv_tap_del(&b.tap);
	CHECK(rig.ring[0]->ops == own);
	exchange(&rig, 10);
	CHECK_EQ(a.tx, 10);
	CHECK_EQ(a.rx, 10);
	CHECK_EQ(b.tx, 10);
	CHECK_EQ(b.rx, 10);
	CHECK_EQ(c.tx + c.rx, 30);
	CHECK_EQ(a.gone + b.gone + c.gone, 0);
	rig_close(&rig);
	CHECK_EQ(c.gone, 1); /* it was on when the ring closed */
	CHECK_EQ(c.gone_forked, 0);
	CHECK(!c.tap.ring);
}

TEST(a_tap_without_memory_changes_nothing)
{
	struct witness a = new_witness();
	const struct pv_ring_ops *own;
	struct rig rig;

	rig_open(&rig, &plain);
	own = rig.ring[0]->ops;
	rig.mem.fail_in = 0;
	CHECK_EQ(pv_tap_add(&a.tap, rig.ring[0], &rig.mem.mem), -ENOMEM);
	rig.mem.fail_in = -1;
	CHECK(rig.ring[0]->ops == own);
	CHECK(!a.tap.ring);
	pv_tap_del(&a.tap);
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
