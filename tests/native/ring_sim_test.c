/* SPDX-License-Identifier: BSD-3-Clause */
/* The sim ring: the contract suite, with and without offloads, with latency and rate; then what only a sim has. */
#include "ring_sim_rig.h"

static void open_plain(struct rig *rig)
{
	rig_sim_open_as(rig, 0);
}

static void open_far(struct rig *rig)
{
	const struct pv_sim_impair imp = { .latency_ns = 50000, .jitter_ns = 20000, .rate_kbps = 1000000 };

	rig_sim_open(rig);
	pv_sim_wire_impair(rig->wire, &imp);
}

static const struct rig_kind sim = { .name = "sim",
				     .must = RIG_FLOWS | RIG_TX_CSUM | RIG_RX_CSUM | RIG_STAMPS | RIG_TXQ | RIG_PACING | RIG_TSO,
				     .open = rig_sim_open,
				     .close = rig_sim_close,
				     .settle = rig_sim_settle,
				     .set_link = rig_sim_set_link,
				     .vanish = rig_sim_vanish };
static const struct rig_kind plain = { .name = "sim without offloads",
				       .must = RIG_FLOWS | RIG_STAMPS,
				       .open = open_plain,
				       .close = rig_sim_close,
				       .settle = rig_sim_settle,
				       .set_link = rig_sim_set_link,
				       .vanish = rig_sim_vanish };
static const struct rig_kind far = { .name = "sim with latency, jitter and rate",
				     .must = RIG_FLOWS | RIG_TX_CSUM | RIG_RX_CSUM | RIG_STAMPS | RIG_TXQ | RIG_PACING | RIG_TSO,
				     .open = open_far,
				     .close = rig_sim_close,
				     .settle = rig_sim_settle,
				     .set_link = rig_sim_set_link,
				     .vanish = rig_sim_vanish };

#define SIM(id) CONTRACT_CASE(sim, id)
CONTRACT_LIST(SIM)
#define PLAIN(id) CONTRACT_CASE(plain, id)
CONTRACT_LIST(PLAIN)
#define FAR(id) CONTRACT_CASE(far, id)
CONTRACT_LIST(FAR)

/* ---- the wire ---------------------------------------------------------------------------------------------------------- */

TEST(a_frame_waits_for_the_kick)
{
	struct rig rig;
	struct pv_pkt *p;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	rig_post(&rig, 0, rig_frame(&rig, 0, 64, 1));
	CHECK_EQ(rig_reap(&rig, 0), 0);
	CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
	rig_kick(&rig, 0);
	CHECK_EQ(rig_reap(&rig, 0), 1);
	rig_expect(&rig, 1, 64, 1);
	rig_close(&rig);
}

TEST(latency_is_exact)
{
	const struct pv_sim_impair imp = { .latency_ns = 12345 };
	struct rig rig;
	struct pv_pkt *p;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	CHECK_EQ(pv_sim_wire_deadline(rig.wire), PV_NEVER);
	pv_sim_wire_impair(rig.wire, &imp);
	pv_sim_wire_advance(rig.wire, 1000);
	rig_send(&rig, 0, 64, 1);
	CHECK_EQ(pv_sim_wire_deadline(rig.wire), 13345);
	pv_sim_wire_advance(rig.wire, 13344);
	CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
	pv_sim_wire_advance(rig.wire, 13345);
	p = rig_recv(&rig, 1);
	CHECK_EQ(p->tstamp, 13345);
	pv_pkt_put(p);
	CHECK_EQ(pv_sim_wire_deadline(rig.wire), PV_NEVER);
	/* Time never goes back. */
	pv_sim_wire_advance(rig.wire, 10);
	rig_send(&rig, 0, 64, 2);
	CHECK_EQ(pv_sim_wire_deadline(rig.wire), 13345 + 12345);
	rig_close(&rig);
}

TEST(rate_spaces_frames_and_limits_the_queue)
{
	/* 1000 bytes at 8 Mbit/s: one millisecond each. */
	const struct pv_sim_impair imp = { .rate_kbps = 8000, .queue_limit = 10 };
	struct rig rig;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	pv_sim_wire_impair(rig.wire, &imp);
	for (uint32_t i = 0; i < 20; i++)
		rig_send(&rig, 0, 1000, i);
	CHECK_EQ(rig_reap(&rig, 0), 20);
	for (uint32_t i = 0; i < 10; i++) {
		struct pv_pkt *p;

		pv_sim_wire_advance(rig.wire, (i + 1) * PV_NS_PER_MS - 1);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
		pv_sim_wire_advance(rig.wire, (i + 1) * PV_NS_PER_MS);
		rig_expect(&rig, 1, 1000, i);
	}
	pv_sim_wire_advance(rig.wire, PV_NS_PER_S);
	rig_expect_only(&rig, 1, 77);
	rig_close(&rig);
}

/* Statistics of 20000 frames under all impairments: each happens about as often as asked. */
TEST(impairments_happen_as_often_as_asked)
{
	const struct pv_sim_impair imp = {
		.loss_ppm = 100000, .duplicate_ppm = 50000, .reorder_ppm = 50000, .latency_ns = 1000, .jitter_ns = 500
	};
	uint32_t seen = 0, late = 0, newest = 0;
	struct rig rig;
	uint32_t total = 20000;

	rig_open(&rig, &sim);
	pv_sim_wire_impair(rig.wire, &imp);
	for (uint32_t i = 1; i <= total; i++) {
		struct pv_pkt *p;

		rig_fill(&rig, 1);
		rig_send(&rig, 0, 64, i);
		rig_reap(&rig, 0);
		pv_sim_wire_advance(rig.wire, (int64_t)i * 1000);
		while (pv_ring_rx_poll(rig.ring[1], &p, 1)) {
			uint32_t number = rig_number(p);

			rig_check(p, 0, 64, number);
			late += number < newest;
			newest = PV_MAX(newest, number);
			seen++;
			pv_pkt_put(p);
		}
	}
	/* 0.9 arrive, 1.05 times. Bounds are ten standard deviations wide. */
	CHECK(seen > total * 0.9 * 1.05 - 600 && seen < total * 0.9 * 1.05 + 600);
	CHECK(late > 500 && late < 1700);
	rig_close(&rig);
}

TEST(corruption_is_one_bit)
{
	const struct pv_sim_impair imp = { .corrupt_ppm = 1000000 };
	struct rig rig;

	rig_open(&rig, &sim);
	pv_sim_wire_impair(rig.wire, &imp);
	for (uint32_t i = 0; i < 500; i++) {
		struct pv_pkt *p;
		uint8_t want[200];
		uint32_t bits = 0;

		rig_fill(&rig, 1);
		rig_send(&rig, 0, sizeof(want), i);
		rig_reap(&rig, 0);
		p = rig_recv(&rig, 1);
		rig_write(want, sizeof(want), 0, i);
		CHECK_EQ(p->len, sizeof(want));
		for (uint32_t k = 0; k < sizeof(want); k++)
			bits += (uint32_t)__builtin_popcount(want[k] ^ p->data[k]);
		CHECK_EQ(bits, 1);
		pv_pkt_put(p);
	}
	rig_close(&rig);
}

/* The largest MTU there is, and copies of each of the wire's sizes. */
TEST(frames_of_64_kib)
{
	const struct pv_pool_cfg big = { .buf_size = 65728, .headroom = 128, .count = 40, .max = 40 };
	struct rig rig = { .kind = &sim };
	struct pv_sim_wire *w;

	CHECK_EQ(pv_sim_wire_open(&w, testmem_init(&rig.mem), 1), 0);
	rig.wire = w;
	for (int i = 0; i < 2; i++) {
		struct pv_sim_ring_cfg cfg = { .mtu = 65521, .rx_depth = 8, .tx_depth = 8 };

		rig_mac(i, cfg.mac);
		CHECK_EQ(pv_pool_open(&rig.pool[i], &rig.mem.mem, &big), 0);
		CHECK_EQ(pv_sim_open(&rig.ring[i], w, rig.pool[i], &cfg), 0);
		rig_fill(&rig, i);
	}
	for (uint32_t i = 0; i < 40; i++) {
		static const uint32_t lens[] = { 60, 2048, 2049, 10240, 10241, 65521 + 14 };
		uint32_t len = lens[i % pv_array_size(lens)];
		struct pv_pkt *p;
		static uint8_t want[65536];

		rig_send(&rig, 0, len, i);
		rig_reap_all(&rig, 0, 1);
		p = rig_recv(&rig, 1);
		rig_write(want, len, 0, i);
		CHECK_EQ(p->len, len);
		CHECK(!memcmp(p->data, want, len));
		pv_pkt_put(p);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

TEST(jitter_alone_keeps_the_order)
{
	const struct pv_sim_impair imp = { .latency_ns = 1000, .jitter_ns = 100000 };
	struct rig rig;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	pv_sim_wire_impair(rig.wire, &imp);
	for (uint32_t i = 0; i < RIG_DEPTH; i++)
		rig_send(&rig, 0, 64, i);
	for (uint32_t i = 0; i < RIG_DEPTH; i++)
		rig_expect(&rig, 1, 64, i);
	rig_close(&rig);
}

/* Three taps: unicast to its owner, groups and unknown ones to both others, never back. */
TEST(a_wire_switches_by_mac)
{
	static const uint8_t macs[][PV_ETH_ALEN] = { { 0x02, 0, 0, 0, 0, 3 },
						     { 0x02, 0, 0, 0, 0, 99 },
						     { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
						     { 0x01, 0, 0x5e, 1, 2, 3 } };
	static const bool at1[] = { false, true, true, true }, at2[] = { true, true, true, true };
	const struct pv_pool_cfg pool_cfg = { .buf_size = 2048, .headroom = 128, .count = 64, .max = 64 };
	struct pv_sim_ring_cfg cfg = { .mac = { 0x02, 0, 0, 0, 0, 3 } };
	struct pv_pool *pool;
	struct pv_ring *third;
	struct pv_pkt *p;
	struct rig rig;

	rig_open(&rig, &sim);
	CHECK_EQ(pv_pool_open(&pool, &rig.mem.mem, &pool_cfg), 0);
	CHECK_EQ(pv_sim_open(&third, rig.wire, pool, &cfg), 0);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < pv_array_size(macs); i++) {
		struct pv_pkt *out = rig_frame(&rig, 0, 64, 1), *buf = pv_pkt_get(pool);

		CHECK_EQ(pv_ring_rx_post(third, &buf, 1), 1);
		memcpy(out->data, macs[i], PV_ETH_ALEN);
		rig_post(&rig, 0, out);
		rig_kick(&rig, 0);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[0], &p, 1), 0);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), at1[i]);
		if (at1[i])
			pv_pkt_put(p);
		CHECK_EQ(pv_ring_rx_poll(third, &p, 1), at2[i]);
		if (at2[i])
			pv_pkt_put(p);
	}
	pv_ring_close(third);
	CHECK_EQ(pv_pool_close(pool), 0);
	rig_close(&rig);
}

TEST(frames_of_a_closed_ring_still_arrive)
{
	const struct pv_sim_impair imp = { .latency_ns = 1000, .rate_kbps = 1000 };
	struct rig rig;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	pv_sim_wire_impair(rig.wire, &imp);
	for (uint32_t i = 0; i < 5; i++)
		rig_send(&rig, 0, 64, i);
	rig_close_side(&rig, 0);
	for (uint32_t i = 0; i < 5; i++)
		rig_expect(&rig, 1, 64, i);
	rig_close(&rig);
}

TEST(a_wire_that_closes_first_leaves_dead_rings)
{
	struct testmem m;
	struct pv_sim_wire *w;
	struct pv_pool *pool;
	struct pv_ring *r;
	const struct pv_pool_cfg pool_cfg = { .buf_size = 2048, .headroom = 128, .count = 64, .max = 64 };
	const struct pv_sim_ring_cfg cfg = { .mac = { 2 } };

	testmem_init(&m);
	CHECK_EQ(pv_pool_open(&pool, &m.mem, &pool_cfg), 0);
	CHECK_EQ(pv_sim_wire_open(&w, &m.mem, 1), 0);
	CHECK_EQ(pv_sim_open(&r, w, pool, &cfg), 0);
	pv_sim_wire_close(w);
	CHECK_EQ(pv_ring_event(r), PV_RING_EV_GONE);
	CHECK_EQ(pv_ring_tx_kick(r), -ENODEV);
	pv_ring_close(r);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(m.blocks, 0);
}

TEST(open_refuses_what_cannot_work)
{
	struct testmem m;
	struct pv_sim_wire *w;
	struct pv_pool *pool;
	struct pv_ring *r;
	const struct pv_pool_cfg pool_cfg = { .buf_size = 1024, .headroom = 128, .count = 4, .max = 4 };
	struct pv_sim_ring_cfg cfg = { .mac = { 2 } };

	testmem_init(&m);
	CHECK_EQ(pv_pool_open(&pool, &m.mem, &pool_cfg), 0);
	CHECK_EQ(pv_sim_wire_open(&w, &m.mem, 1), 0);
	CHECK_EQ(pv_sim_open(&r, w, pool, &cfg), -EINVAL);
	cfg.mtu = 67;
	CHECK_EQ(pv_sim_open(&r, w, pool, &cfg), -EINVAL);
	cfg.mtu = 65522;
	CHECK_EQ(pv_sim_open(&r, w, pool, &cfg), -EINVAL);
	cfg.mtu = 800;
	m.fail_in = 0;
	CHECK_EQ(pv_sim_open(&r, w, pool, &cfg), -ENOMEM);
	m.fail_in = -1;
	CHECK_EQ(pv_sim_open(&r, w, pool, &cfg), 0);
	pv_ring_close(r);
	pv_sim_wire_close(w);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(m.blocks, 0);
}

/* ---- determinism ------------------------------------------------------------------------------------------------------- */

/* A run of 3000 frames both ways under every impairment; what the application does depends on what arrived. */
static uint64_t run(uint64_t seed, uint32_t *arrived)
{
	const struct pv_sim_impair imp = { .loss_ppm = 50000,
					   .duplicate_ppm = 50000,
					   .corrupt_ppm = 50000,
					   .reorder_ppm = 50000,
					   .latency_ns = 5000,
					   .jitter_ns = 5000,
					   .rate_kbps = 1000000,
					   .queue_limit = 50 };
	struct rig rig;
	uint64_t hash;

	rig_open(&rig, &sim);
	pv_sim_wire_close(rig.wire);
	CHECK_EQ(pv_ring_event(rig.ring[0]), PV_RING_EV_GONE);
	for (int i = 0; i < 2; i++)
		pv_ring_close(rig.ring[i]);
	{
		struct pv_sim_wire *w;

		CHECK_EQ(pv_sim_wire_open(&w, &rig.mem.mem, seed), 0);
		rig.wire = w;
		for (int i = 0; i < 2; i++) {
			struct pv_sim_ring_cfg cfg = { .rx_depth = RIG_DEPTH };

			rig_mac(i, cfg.mac);
			CHECK_EQ(pv_sim_open(&rig.ring[i], w, rig.pool[i], &cfg), 0);
		}
	}
	pv_sim_wire_impair(rig.wire, &imp);
	*arrived = 0;
	for (uint32_t i = 0; i < 3000; i++) {
		struct pv_pkt *p;
		int from = (int)(i & 1);

		rig_fill(&rig, 1 - from);
		rig_send(&rig, from, 18 + (i * 37 + *arrived) % 1400, i);
		rig_reap(&rig, from);
		pv_sim_wire_advance(rig.wire, (int64_t)i * 2000);
		while (pv_ring_rx_poll(rig.ring[1 - from], &p, 1)) {
			(*arrived)++;
			pv_pkt_put(p);
		}
	}
	hash = pv_sim_wire_trace(rig.wire);
	rig_close(&rig);
	return hash;
}

TEST(the_same_seed_gives_the_same_trace)
{
	uint32_t a, b, c;
	uint64_t one = run(7, &a), two = run(7, &b), other = run(8, &c);

	CHECK(a > 2000);
	CHECK_EQ(a, b);
	CHECK(one == two);
	CHECK(one != other);
}

/* ---- queues with rates ------------------------------------------------------------------------------------------------- */

static void at_rate(struct rig *rig, uint32_t txq, uint32_t len, uint32_t number)
{
	rig_post(rig, 0, contract_queued(rig, txq, len, number));
	rig_kick(rig, 0);
}

/* The next frame comes at that time, not a nanosecond before. */
static void comes_at(struct rig *rig, int64_t ns, uint32_t len, uint32_t number)
{
	struct pv_pkt *p;

	CHECK_EQ(pv_sim_wire_deadline(rig->wire), ns);
	pv_sim_wire_advance(rig->wire, ns - 1);
	CHECK_EQ(pv_ring_rx_poll(rig->ring[1], &p, 1), 0);
	pv_sim_wire_advance(rig->wire, ns);
	p = rig_recv(rig, 1);
	CHECK_EQ(p->tstamp, ns);
	rig_check(p, 0, len, number);
	pv_pkt_put(p);
}

TEST(a_rate_is_kept_to_the_nanosecond)
{
	struct pv_ring_rate rate = { .kbps = 100000 }; /* 1000 bytes in 80 us */
	struct pv_pkt *p;
	struct rig rig;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	pv_ring_set_stamps(rig.ring[1], true, false);
	pv_sim_wire_advance(rig.wire, 1000000);
	CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), 1);
	for (uint32_t i = 0; i < 10; i++)
		at_rate(&rig, 1, 1000, i);
	CHECK_EQ(pv_ring_txq_pending(rig.ring[0], 1), 9);
	rig_expect(&rig, 1, 1000, 0);
	for (uint32_t i = 1; i < 5; i++)
		comes_at(&rig, 1000000 + i * 80000, 1000, i);
	/* The first queue does not wait for the second. */
	rig_send(&rig, 0, 500, 100);
	rig_expect(&rig, 1, 500, 100);
	/* Twice as fast: what left already was paid for at the old rate. */
	rate.kbps = 200000;
	CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &rate), 0);
	for (uint32_t i = 5; i < 8; i++)
		comes_at(&rig, 1400000 + (i - 5) * 40000, 1000, i);
	/* None: the rest leaves with the next doorbell. */
	CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, NULL), 0);
	CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), 0);
	rig_expect(&rig, 1, 1000, 8);
	rig_expect(&rig, 1, 1000, 9);
	CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
	rig_reap_all(&rig, 0, 11);
	rig_close(&rig);
}

TEST(a_burst_leaves_at_once_and_must_be_earned_again)
{
	const struct pv_ring_rate rate = { .kbps = 8000, .burst_bytes = 3000 }; /* 1000 bytes in 1 ms */
	struct rig rig;
	int64_t idle;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	pv_ring_set_stamps(rig.ring[1], true, false);
	pv_sim_wire_advance(rig.wire, PV_NS_PER_S);
	CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), 1);
	for (uint32_t i = 0; i < 8; i++)
		at_rate(&rig, 1, 1000, i);
	for (uint32_t i = 0; i < 3; i++)
		rig_expect(&rig, 1, 1000, i);
	for (uint32_t i = 3; i < 8; i++)
		comes_at(&rig, PV_NS_PER_S + (i - 2) * 1000000, 1000, i);
	/* Two frames' time: two of the three are earned. */
	idle = PV_NS_PER_S + 8000000;
	pv_sim_wire_advance(rig.wire, idle);
	for (uint32_t i = 0; i < 4; i++)
		at_rate(&rig, 1, 1000, i);
	CHECK_EQ(pv_ring_txq_pending(rig.ring[0], 1), 1);
	for (uint32_t i = 0; i < 3; i++)
		rig_expect(&rig, 1, 1000, i);
	comes_at(&rig, idle + 1000000, 1000, 3);
	rig_close(&rig);
}

/* Frames that the device cut are held apart like any others; the packet is done when the last has left. */
TEST(a_long_segment_keeps_its_rate)
{
	const struct contract_tso t = { .gso = 946, .payload = 9460, .piece = 1900, .txq = 2 }; /* frames of 1000 bytes */
	const struct pv_ring_rate rate = { .kbps = 100000 }, other = { .kbps = 50000 };
	struct pv_pkt *in, *out;
	struct rig rig;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	pv_ring_set_stamps(rig.ring[1], true, false);
	CHECK_EQ(pv_ring_txq_open(rig.ring[0], &other), 1);
	CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), 2);
	rig_post(&rig, 0, contract_tso_packet(&rig, &t));
	at_rate(&rig, 1, 1000, 0);
	for (uint32_t i = 0; i < 10; i++) {
		pv_sim_wire_advance(rig.wire, i * 80000);
		CHECK_EQ(pv_ring_txq_pending(rig.ring[0], 2), i < 9);
		while (pv_ring_rx_poll(rig.ring[1], &in, 1)) {
			CHECK_EQ(in->tstamp, i * 80000);
			CHECK_EQ(in->len, 1000);
			pv_pkt_put(in);
		}
	}
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(pv_ring_tx_reap(rig.ring[0], &out, 1), 1);
		pv_pkt_put(out);
	}
	CHECK_EQ(pv_ring_tx_reap(rig.ring[0], &out, 1), 0);
	rig_close(&rig);
}

/* Two queues and the first, each with a rate of its own, on one wire: nobody's frames move another's. */
TEST(rates_of_queues_do_not_touch_each_other)
{
	static const uint64_t kbps[3] = { 40000, 80000, 160000 };
	uint32_t seen[3] = { 0 };
	struct pv_pkt *in;
	struct rig rig;

	rig_open(&rig, &sim);
	rig_fill(&rig, 1);
	pv_ring_set_stamps(rig.ring[1], true, false);
	for (uint32_t q = 0; q < 3; q++) {
		const struct pv_ring_rate rate = { .kbps = kbps[q] };

		if (q)
			CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), (int)q);
		else
			CHECK_EQ(pv_ring_set_rate(rig.ring[0], 0, &rate), 0);
	}
	for (uint32_t i = 0; i < 15; i++)
		for (uint32_t q = 0; q < 3; q++)
			rig_post(&rig, 0, q ? contract_queued(&rig, q, 1000, q) : rig_frame(&rig, 0, 1000, 0));
	rig_kick(&rig, 0);
	rig_sim_settle(&rig);
	for (uint32_t i = 0; i < 45; i++) {
		uint32_t q;

		in = rig_recv(&rig, 1);
		q = rig_number(in);
		CHECK_EQ(in->tstamp, seen[q]++ * (8000000000 / kbps[q]));
		pv_pkt_put(in);
	}
	rig_reap_all(&rig, 0, 45);
	rig_close(&rig);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
