/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets that are held to a rate and may be ahead of it by so many bytes: by no more, whatever comes between. */
#include "base/rng.h"
#include "pace_line.h"

/* Without a burst idle time gives nothing; with one, that many bytes leave at once, and not one more. */
TEST(bursts)
{
	for (uint32_t burst = 0; burst <= 20000; burst += 2500) {
		struct pv_event ev[4];
		struct line l;
		uint32_t at_once;

		line_open(&l, &(struct world_cfg){ .seed = burst });
		pace(&l, 125000, burst);
		for (int round = 0; round < 3; round++) {
			world_run(&l.w, SEC);
			for (int i = 0; i < 40; i++)
				CHECK_EQ(put(&l, 958), 958);
			world_run(&l.w, 1000);
			at_once = l.got;
			take(&l);
			at_once = l.got - at_once;
			CHECK_EQ(at_once, PV_MAX(burst / 1000, 1u));
			world_run(&l.w, 39 * span(1000, 125000));
			take(&l);
			CHECK_EQ(l.got, l.sent);
		}
		(void)pv_udp_events(l.w.host[0].udp, ev, 4);
		line_close(&l);
	}
}

/* Bytes ahead of a rate, as frames come. */
struct meter {
	uint64_t rate;
	double level;
	int64_t last_ns;
};

static double meter_add(struct meter *m, uint32_t len, int64_t at_ns)
{
	double drained = (double)(at_ns - m->last_ns) * (double)m->rate / (double)SEC;

	m->level = (m->level > drained ? m->level - drained : 0) + len;
	m->last_ns = at_ns;
	return m->level;
}

static const struct world *clock_world;
static int64_t behind_ns; /* so long ago the turn read its clock */

static int64_t clock_now(void)
{
	return clock_world->now + behind_ns;
}

/* Frames of all lengths, some of which leave later than their turn began: never more than the burst, and all of them leave. */
TEST(a_burst_counts_from_when_frames_leave)
{
	static uint8_t buf[2048];
	struct pv_rng rng;

	pv_rng_seed(&rng, 7);
	for (uint32_t seed = 0; seed < 20; seed++) {
		struct meter m = { .rate = 12500000 };
		struct pv_udp_recv msg;
		struct line l;
		int64_t n;

		clock_world = &l.w;
		behind_ns = 0;
		line_open(&l, &(struct world_cfg){ .seed = seed, .net = { .clock = clock_now } });
		pace(&l, m.rate, 6000);
		for (int step = 0; step < 300; step++) {
			behind_ns = pv_rng_below(&rng, 2) ? pv_rng_below(&rng, 400000) : 0;
			for (uint32_t i = pv_rng_below(&rng, 8); i; i--)
				(void)put(&l, 4 + pv_rng_below(&rng, 1469));
			l.w.now += behind_ns;
			behind_ns = 0;
			pv_sim_wire_advance(l.w.wire, l.w.now);
			world_run(&l.w, 1 + pv_rng_below(&rng, 600000));
			while ((n = sock_recv(l.b, buf, sizeof(buf), &msg)) >= 0) {
				CHECK(meter_add(&m, (uint32_t)n + WIRE, msg.arrival_ns) <= 6000.1);
				l.got++;
				l.bytes += (uint64_t)n + WIRE;
			}
		}
		world_run(&l.w, SEC);
		while (sock_recv(l.b, buf, sizeof(buf), &msg) >= 0)
			l.got++;
		CHECK_EQ(l.got, l.sent);
		line_close(&l);
	}
}

/* A batch rings once, however many queues with a burst are in it, and their frames count from then. */
TEST(a_batch_rings_once)
{
	struct meter m = { .rate = 1250000 };
	struct pv_ring_counters c;
	struct pv_udp_recv msg;
	struct pv_udp *other;
	struct line l;
	uint64_t before;

	clock_world = &l.w;
	behind_ns = 0;
	line_open(&l, &(struct world_cfg){ .seed = 12, .net = { .clock = clock_now } });
	other = sock_open(&l.w, 0, PV_AF_INET);
	CHECK_EQ(pv_udp_set_pacing(other, &(struct pv_pacing){ .rate = 1000000, .burst = 1000 }, l.w.now), 0);
	pace(&l, m.rate, 6000);
	pv_ring_counters(l.w.host[0].ring, &c);
	before = c.doorbells;
	/* Six, in time for which the bucket would have drained if the first ones had left. */
	for (int i = 0; i < 12; i++) {
		(void)put(&l, 1000 - WIRE);
		if (i < 2)
			CHECK_EQ(sock_send(&l.w, other, &l.to, "0123", 4), 4);
		l.w.now += 400000;
	}
	pv_ring_counters(l.w.host[0].ring, &c);
	CHECK_EQ(c.doorbells, before);
	pv_sim_wire_advance(l.w.wire, l.w.now);
	CHECK_EQ(pv_net_kick(l.w.host[0].net), 0);
	pv_ring_counters(l.w.host[0].ring, &c);
	CHECK_EQ(c.doorbells, before + 1);
	world_run(&l.w, 0);
	CHECK_EQ(pv_udp_queued(l.b), 6 + 2);
	world_run(&l.w, SEC);
	for (int64_t n; (n = sock_recv(l.b, NULL, 0, &msg)) >= 0;)
		if (msg.full_len > 4)
			CHECK(meter_add(&m, (uint32_t)msg.full_len + WIRE, msg.arrival_ns) <= 6000.1);
	pv_udp_close(other);
	line_close(&l);
}

/* What the leg let go counts: the burst is not had once more by the way that follows it. */
TEST(a_burst_is_one_burst_over_both_legs)
{
	static const struct world_cfg cfg = { .seed = 13,
					      .bond = PV_BOND_NETVSC,
					      .plain_fallback = true,
					      .txqs = 4,
					      .pacing_min_kbps = 100,
					      .pacing_max_kbps = 100000000,
					      .pacing_burst = true };
	struct meter m = { .rate = 1250000 };
	struct pv_udp_recv msg;
	struct pv_txq_info q;
	struct line l;

	line_open(&l, &cfg);
	pace(&l, m.rate, 6000);
	for (uint32_t i = 0; i < 6; i++)
		CHECK(put(&l, 1000 - WIRE) > 0);
	world_run(&l.w, 1000);
	CHECK(pv_udp_pacing_info(l.a, 0, &q));
	CHECK_EQ(q.by, PV_TXQ_DEVICE);
	CHECK_EQ(pv_udp_queued(l.b), 6);
	world_leg_del(&l.w, 0, 0);
	world_leg_del(&l.w, 1, 0);
	CHECK_EQ(world_bond_events(&l.w), 2);
	CHECK(pv_udp_pacing_info(l.a, 0, &q));
	CHECK_EQ(q.by, PV_TXQ_SOFTWARE);
	for (uint32_t i = 0; i < 20; i++)
		CHECK(put(&l, 1000 - WIRE) > 0);
	world_run(&l.w, SEC);
	for (uint32_t i = 0; i < 26; i++) {
		CHECK_EQ(sock_recv(l.b, NULL, 0, &msg), 0);
		CHECK(meter_add(&m, (uint32_t)msg.full_len + WIRE, msg.arrival_ns) <= 6000.1);
	}
	line_close(&l);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
