/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets that are held to a rate, by the stack: when each datagram leaves, in virtual time. */
#include "base/rng.h"
#include "pace_line.h"

/* Each leaves exactly when the one before it has had its time. */
static void each(uint64_t rate, uint32_t len, uint32_t n)
{
	struct line l;
	int64_t begin;

	line_open(&l, &(struct world_cfg){ .seed = rate });
	pace(&l, rate, 0);
	begin = l.w.now;
	for (uint32_t i = 0; i < n; i++) {
		int64_t rc = put(&l, len);

		if (rc == -EAGAIN) {
			world_run(&l.w, span(len + WIRE, rate) + 1);
			take(&l);
			i--;
			continue;
		}
		CHECK_EQ(rc, len);
	}
	while (l.got < n) {
		uint32_t before = l.got;

		world_run(&l.w, span(len + WIRE, rate));
		take(&l);
		CHECK(l.got <= before + 2);
		CHECK(l.w.now < begin + 2 * span((uint64_t)n * (len + WIRE), rate) + SEC);
	}
	/* To the nanosecond that a division costs each. */
	CHECK(l.last - begin >= span((uint64_t)(n - 1) * (len + WIRE), rate) - n);
	CHECK(l.last - begin <= span((uint64_t)(n - 1) * (len + WIRE), rate) + n);
	line_close(&l);
}

TEST(each_datagram_has_its_time)
{
	each(125, 100, 20);
	each(125000, 1472, 100);
	each(12500000, 1472, 500);
	each(250000000, 64, 3000);
	each(250000000, 1472, 3000);
}

/* The send buffer is what waits: a send finds it full, room is told when half of it is free. */
TEST(the_send_buffer_bounds_what_waits)
{
	struct pv_event ev[4];
	struct line l;
	uint32_t n = 0, held;
	int64_t rc;

	line_open(&l, &(struct world_cfg){ .seed = 1 });
	pv_udp_options(l.a)->sndbuf = 20000;
	pv_udp_options_changed(l.a);
	pace(&l, 100000, 0);
	CHECK(pv_udp_writable(l.a));
	while ((rc = put(&l, 1000)) == 1000)
		n++;
	CHECK_EQ(rc, -EAGAIN);
	CHECK(!pv_udp_writable(l.a));
	CHECK(pv_udp_held(l.a));
	/* One has left; the last one may go over the limit, as in Linux. */
	held = 20000 / (1000 + WIRE + 704) + 1;
	CHECK_EQ(n, held + 1);
	CHECK_EQ(pv_udp_counters(l.a)->tx_errors, 0);
	(void)pv_udp_events(l.w.host[0].udp, ev, 4);
	world_run(&l.w, span(1000 + WIRE, 100000));
	CHECK_EQ(put(&l, 1000), 1000);
	CHECK_EQ(put(&l, 1000), -EAGAIN);
	CHECK_EQ(pv_udp_events(l.w.host[0].udp, ev, 4), 0);
	world_run(&l.w, 7 * span(1000 + WIRE, 100000));
	CHECK_EQ(pv_udp_events(l.w.host[0].udp, ev, 4), 1);
	CHECK(ev[0].bits & PV_EV_OUT);
	CHECK(pv_udp_writable(l.a));
	world_run(&l.w, SEC);
	take(&l);
	CHECK_EQ(l.got, l.sent);
	line_close(&l);
}

/* A caller that comes late makes up for a millisecond at most. */
TEST(late_turns)
{
	struct line l;

	line_open(&l, &(struct world_cfg){ .seed = 3 });
	pace(&l, 1000000, 0);
	for (int i = 0; i < 60; i++)
		CHECK_EQ(put(&l, 58), 58);
	/* A frame of 100 bytes takes 100 us. Nobody turns for 20 ms. */
	l.w.now += 20 * MS;
	pv_sim_wire_advance(l.w.wire, l.w.now);
	world_run(&l.w, 1);
	take(&l);
	CHECK_EQ(l.got, 1 + 11);
	world_run(&l.w, MS);
	take(&l);
	CHECK_EQ(l.got, 1 + 11 + 10);
	world_run(&l.w, SEC);
	take(&l);
	CHECK_EQ(l.got, 60);
	line_close(&l);
}

TEST(the_rate_changes_and_goes)
{
	struct line l;

	line_open(&l, &(struct world_cfg){ .seed = 4 });
	pace(&l, 100000, 0);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(put(&l, 958), 958);
	world_run(&l.w, 100 * MS + 1000);
	take(&l);
	CHECK_EQ(l.got, 11);
	pace(&l, 1000000, 0);
	world_run(&l.w, 20 * MS);
	take(&l);
	CHECK(l.got >= 11 + 19 && l.got <= 11 + 21);
	/* All that waits goes at once, before what is sent from then on. */
	pace(&l, UINT64_MAX, 0);
	CHECK_EQ(put(&l, 958), 958);
	world_run(&l.w, MS);
	take(&l);
	CHECK_EQ(l.got, 101);
	CHECK_EQ(pv_net_paced(l.w.host[0].net), 0);
	/* 0 is unlimited, too; and back. */
	pace(&l, 1000, 0);
	CHECK_EQ(put(&l, 958), 958);
	CHECK_EQ(put(&l, 958), 958);
	pace(&l, 0, 0);
	world_run(&l.w, MS);
	take(&l);
	CHECK_EQ(l.got, 103);
	line_close(&l);
}

TEST(fragments_and_groups_and_neighbours_wait_too)
{
	struct pv_endpoint group = ep(ip4(239, 1, 2, 3), 7000), other = ep(ip4(10, 0, 0, 3), 7000);
	struct pv_addr ga = ip4(239, 1, 2, 3);
	struct pv_txq_info q;
	struct line l;
	struct pv_udp *c;

	line_open(&l, &(struct world_cfg){ .seed = 5, .hosts = 3 });
	pace(&l, 1000000, 0);
	/* Eleven fragments, one of them at once. */
	CHECK_EQ(put(&l, 15000), 15000);
	CHECK_EQ(put(&l, 100), 100);
	CHECK(pv_udp_pacing_info(l.a, 0, &q));
	CHECK_EQ(q.by, PV_TXQ_SOFTWARE);
	CHECK_EQ(q.why, PV_TXQ_NO_PACING);
	CHECK_EQ(q.load.frames, 11);
	CHECK(!pv_udp_pacing_info(l.a, 1, &q));
	world_run(&l.w, 10 * MS);
	take(&l);
	CHECK_EQ(l.got, 0);
	world_run(&l.w, 6 * MS);
	take(&l);
	CHECK_EQ(l.got, 2);
	CHECK_EQ(pv_udp_join(l.b, l.w.host[1].iface, &ga, NULL, l.w.now), 0);
	world_run(&l.w, SEC);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(sock_send(&l.w, l.a, &group, "0123", 4), 4);
	world_run(&l.w, 1000);
	CHECK_EQ(pv_udp_queued(l.b), 1);
	world_run(&l.w, 9 * 46000);
	CHECK_EQ(pv_udp_queued(l.b), 10);
	/* A neighbour who is not known yet: they are paced once it is. */
	world_run(&l.w, MS);
	c = sock_bound(&l.w, 2, PV_AF_INET, any4(), 7000);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(sock_send(&l.w, l.a, &other, "0123", 4), 4);
	world_run(&l.w, 1000);
	CHECK_EQ(pv_udp_queued(c), 1);
	world_run(&l.w, MS);
	CHECK_EQ(pv_udp_queued(c), 10);
	pv_udp_close(c);
	line_close(&l);
}

/* What waits leaves after the socket is closed, and the queue goes with it. */
TEST(close_lets_them_leave)
{
	struct line l;

	line_open(&l, &(struct world_cfg){ .seed = 6 });
	pace(&l, 100000, 0);
	for (int i = 0; i < 50; i++)
		CHECK_EQ(put(&l, 958), 958);
	pv_udp_close(l.a);
	l.a = NULL;
	CHECK_EQ(pv_net_paced(l.w.host[0].net), 1);
	world_run(&l.w, 250 * MS);
	take(&l);
	CHECK_EQ(l.got, 26);
	world_run(&l.w, 250 * MS);
	take(&l);
	CHECK_EQ(l.got, 50);
	CHECK_EQ(pv_net_paced(l.w.host[0].net), 0);
	line_close(&l);
}

/* Both the socket's queue and one that was closed: what they hold is dropped, and counted. */
TEST(the_interface_goes)
{
	struct line l;
	struct pv_udp *c;

	line_open(&l, &(struct world_cfg){ .seed = 7 });
	c = sock_open(&l.w, 0, PV_AF_INET);
	CHECK_EQ(pv_udp_set_pacing(c, &(struct pv_pacing){ .rate = 1000 }, l.w.now), 0);
	pace(&l, 1000, 0);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(put(&l, 100), 100);
		CHECK_EQ(sock_send(&l.w, c, &l.to, "0123", 4), 4);
	}
	pv_udp_close(c);
	CHECK_EQ(pv_stack_iface_del(l.w.host[0].stack, l.w.host[0].iface), 0);
	CHECK_EQ(pv_net_paced(l.w.host[0].net), 0);
	CHECK_EQ(pv_net_counters(l.w.host[0].net)->tx_pace_dropped, 8);
	CHECK_EQ(put(&l, 100), -ENETUNREACH);
	line_close(&l);
}

/* A full ring delays, it does not lose. */
TEST(a_full_ring)
{
	struct line l;

	line_open(&l, &(struct world_cfg){ .seed = 8, .tx_depth = 4 });
	pace(&l, 100000, 0);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(put(&l, 58), 58);
	pace(&l, 0, 0);
	world_run(&l.w, SEC);
	take(&l);
	CHECK_EQ(l.got, 100);
	line_close(&l);
}

/* Many who wait leave packets for those who do not. */
TEST(a_small_pool)
{
	struct pv_udp *many[40];
	struct pv_udp_recv msg;
	struct line l;
	uint32_t held = 0;

	line_open(&l, &(struct world_cfg){ .seed = 9, .pool = 1024, .rx_depth = 64 });
	for (uint32_t i = 0; i < pv_array_size(many); i++) {
		many[i] = sock_open(&l.w, 0, PV_AF_INET);
		CHECK_EQ(pv_udp_set_pacing(many[i], &(struct pv_pacing){ .rate = 1000 }, l.w.now), 0);
		for (int k = 0; k < 50; k++) {
			int64_t rc = sock_send(&l.w, many[i], &l.to, &l.got, 4);

			CHECK(rc == 4 || rc == -EAGAIN);
			held += rc == 4;
		}
	}
	CHECK(held > 200 && held < 1024);
	world_run(&l.w, 1000);
	while (sock_recv(l.b, NULL, 0, &msg) >= 0)
		;
	/* Somebody who is not paced finds some. */
	for (int i = 0; i < 50; i++)
		CHECK_EQ(put(&l, 100), 100);
	for (uint32_t i = 0; i < pv_array_size(many); i++)
		pv_udp_close(many[i]);
	line_close(&l);
}

TEST(to_ourselves_nothing_waits)
{
	struct pv_endpoint self = ep(ip4(10, 0, 0, 1), 7000);
	struct pv_txq_info q;
	struct line l;
	struct pv_udp *c;

	line_open(&l, &(struct world_cfg){ .seed = 10 });
	c = sock_bound(&l.w, 0, PV_AF_INET, any4(), 7000);
	pace(&l, 1000, 0);
	for (int i = 0; i < 50; i++)
		CHECK_EQ(sock_send(&l.w, l.a, &self, "0123", 4), 4);
	CHECK(!pv_udp_pacing_info(l.a, 0, &q));
	world_run(&l.w, 1000);
	CHECK_EQ(pv_udp_queued(c), 50);
	pv_udp_close(c);
	line_close(&l);
}

/* ---- by the device ----------------------------------------------------------------------------------------------------- */

static const struct world_cfg device = {
	.seed = 20, .txqs = 3, .pacing_min_kbps = 100, .pacing_max_kbps = 1000000, .pacing_burst = true
};

static struct pv_txq_info queue_of(const struct pv_udp *u)
{
	struct pv_txq_info q;

	CHECK(pv_udp_pacing_info(u, 0, &q));
	return q;
}

static void send_one(struct line *l, struct pv_udp *u)
{
	CHECK_EQ(sock_send(&l->w, u, &l->to, &l->sent, 4), 4);
}

TEST(the_device_keeps_the_rate)
{
	struct pv_txq_info q;
	struct line l;
	int64_t begin;

	line_open(&l, &device);
	pace(&l, 125000, 0);
	begin = l.w.now;
	for (int i = 0; i < 50; i++)
		CHECK_EQ(put(&l, 958), 958);
	q = queue_of(l.a);
	CHECK_EQ(q.by, PV_TXQ_DEVICE);
	CHECK_EQ(q.why, PV_TXQ_OK);
	CHECK(q.number > 0);
	CHECK_EQ(pv_net_counters(l.w.host[0].net)->tx_paced, 0);
	world_run(&l.w, 25 * span(1000, 125000));
	take(&l);
	CHECK(l.got >= 24 && l.got <= 28);
	world_run(&l.w, SEC);
	take(&l);
	CHECK_EQ(l.got, 50);
	CHECK(l.last - begin >= 47 * span(1000, 125000) && l.last - begin <= 51 * span(1000, 125000));
	line_close(&l);
}

/* What the device has counts, too: a send buffer is not emptied by giving it away. */
TEST(the_send_buffer_bounds_what_the_device_has)
{
	struct pv_event ev[4];
	struct line l;
	uint32_t n = 0;

	line_open(&l, &device);
	pv_udp_options(l.a)->sndbuf = 20000;
	pv_udp_options_changed(l.a);
	pace(&l, 100000, 0);
	while (put(&l, 1000) == 1000)
		n++;
	CHECK(n >= 12 && n <= 15);
	CHECK(!pv_udp_writable(l.a));
	(void)pv_udp_events(l.w.host[0].udp, ev, 4);
	world_run(&l.w, 10 * span(1000 + WIRE, 100000));
	CHECK_EQ(pv_udp_events(l.w.host[0].udp, ev, 4), 1);
	CHECK(ev[0].bits & PV_EV_OUT);
	CHECK(pv_udp_writable(l.a));
	CHECK_EQ(put(&l, 1000), 1000);
	world_run(&l.w, SEC);
	take(&l);
	CHECK_EQ(l.got, l.sent);
	line_close(&l);
}

TEST(what_the_device_cannot_do_the_stack_does)
{
	static const struct {
		uint64_t rate;
		uint32_t burst;
		enum pv_txq_why why;
	} cases[] = {
		{ 125000, 0, PV_TXQ_OK },           { 12499, 0, PV_TXQ_BELOW },          { 12500, 0, PV_TXQ_OK },
		{ 125000000, 0, PV_TXQ_OK },        { 126000000, 0, PV_TXQ_ABOVE },      { 12560, 0, PV_TXQ_OK },
		{ 125000, 10000, PV_TXQ_NO_BURST }, { UINT64_MAX - 1, 0, PV_TXQ_ABOVE },
	};
	struct world_cfg cfg = device;
	struct pv_ring_caps caps = { .pacing_min_kbps = 1, .pacing_max_kbps = 1000 };
	struct line l;

	cfg.pacing_burst = false;
	line_open(&l, &cfg);
	for (size_t i = 0; i < pv_array_size(cases); i++) {
		struct pv_txq_info q;

		pace(&l, cases[i].rate, cases[i].burst);
		CHECK_EQ(put(&l, 100), 100);
		q = queue_of(l.a);
		CHECK_EQ(q.why, cases[i].why);
		CHECK_EQ(q.by, cases[i].why ? PV_TXQ_SOFTWARE : PV_TXQ_DEVICE);
		world_run(&l.w, SEC);
		take(&l);
		CHECK_EQ(l.got, l.sent);
	}
	line_close(&l);
	/* Nothing is rounded to unlimited, or by more than one per cent. */
	CHECK_EQ(pv_txq_check(&caps, &(struct pv_pacing){ .rate = 124 }), PV_TXQ_BELOW);
	CHECK_EQ(pv_txq_check(&caps, &(struct pv_pacing){ .rate = 125 }), PV_TXQ_OK);
	CHECK_EQ(pv_txq_check(&caps, &(struct pv_pacing){ .rate = 180 }), PV_TXQ_STEP);
	CHECK_EQ(pv_txq_check(&caps, &(struct pv_pacing){ .rate = 125001 }), PV_TXQ_OK);
	CHECK_EQ(pv_txq_check(&caps, &(struct pv_pacing){ .rate = 0 }), PV_TXQ_OK);
}

TEST(more_sockets_than_queues)
{
	struct pv_udp *u[5];
	struct line l;

	line_open(&l, &device);
	for (int i = 0; i < 5; i++) {
		u[i] = sock_open(&l.w, 0, PV_AF_INET);
		CHECK_EQ(pv_udp_set_pacing(u[i], &(struct pv_pacing){ .rate = 125000 }, l.w.now), 0);
		send_one(&l, u[i]);
		CHECK_EQ(queue_of(u[i]).by, i < 3 ? PV_TXQ_DEVICE : PV_TXQ_SOFTWARE);
		CHECK_EQ(queue_of(u[i]).why, i < 3 ? PV_TXQ_OK : PV_TXQ_NO_QUEUE);
	}
	/* A queue comes back when what is in it has left. */
	for (int k = 0; k < 100; k++)
		send_one(&l, u[0]);
	pv_udp_close(u[0]);
	CHECK_EQ(pv_udp_set_pacing(u[3], &(struct pv_pacing){ .rate = 250000 }, l.w.now), 0);
	CHECK_EQ(queue_of(u[3]).why, PV_TXQ_NO_QUEUE);
	world_run(&l.w, SEC);
	CHECK_EQ(pv_udp_queued(l.b), 105);
	CHECK_EQ(pv_udp_set_pacing(u[3], &(struct pv_pacing){ .rate = 125000 }, l.w.now), 0);
	CHECK_EQ(queue_of(u[3]).by, PV_TXQ_DEVICE);
	for (int i = 1; i < 5; i++)
		pv_udp_close(u[i]);
	world_run(&l.w, SEC);
	CHECK_EQ(pv_net_paced(l.w.host[0].net), 0);
	line_close(&l);
}

/* Whoever keeps the rate, however often that changes: all arrive, in the order in which they were sent. */
TEST(a_flow_that_moves_keeps_its_order)
{
	static const uint64_t rates[] = { 0, 125000, 12000, 12500000, UINT64_MAX, 130000000, 50000000, 1000000 };
	struct pv_rng rng;
	struct line l;

	pv_rng_seed(&rng, 11);
	line_open(&l, &device);
	for (int i = 0; i < 3000; i++) {
		if (pv_rng_below(&rng, 8) == 0)
			pace(&l, rates[pv_rng_below(&rng, pv_array_size(rates))], pv_rng_below(&rng, 4) ? 0 : 4000);
		(void)put(&l, 4 + pv_rng_below(&rng, 1400));
		if (pv_rng_below(&rng, 3) == 0)
			world_run(&l.w, pv_rng_below(&rng, 5000000));
		take(&l);
	}
	pace(&l, 0, 0);
	world_run(&l.w, 100 * SEC);
	take(&l);
	CHECK_EQ(l.got, l.sent);
	CHECK(l.sent > 1000);
	CHECK_EQ(put(&l, 4), 4);
	CHECK_EQ(pv_net_paced(l.w.host[0].net), 0);
	line_close(&l);
}

/* The interface goes and comes back: the next datagram finds a queue with the rate there. */
TEST(the_rate_survives_the_interface)
{
	struct pv_iface_cfg iface = { .name = "sim1", .steer = PV_STEER_ADDRESS, .naddr = 1 };
	struct host *h;
	struct line l;
	int rc;

	line_open(&l, &device);
	h = &l.w.host[0];
	pace(&l, 125000, 0);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(put(&l, 100), 100);
	CHECK_EQ(queue_of(l.a).by, PV_TXQ_DEVICE);
	CHECK_EQ(pv_stack_iface_del(h->stack, h->iface), 0);
	CHECK(!pv_udp_pacing_info(l.a, 0, &(struct pv_txq_info){ 0 }));
	world_run(&l.w, SEC);
	iface.ring = h->ring;
	iface.addr[0] = (struct pv_ifaddr){ ip4(10, 0, 0, 1), 24 };
	rc = pv_stack_iface_add(h->stack, &iface);
	CHECK(rc > 0);
	h->iface = (uint32_t)rc;
	CHECK_EQ(put(&l, 100), 100);
	CHECK_EQ(queue_of(l.a).by, PV_TXQ_DEVICE);
	CHECK_EQ(queue_of(l.a).pacing.rate, 125000);
	line_close(&l);
}

static enum pv_txq_by kept_by(const struct line *l)
{
	struct pv_txq_info info;

	CHECK(pv_udp_pacing_info(l->a, 0, &info));
	return info.by;
}

/* A bond's leg keeps the rate, then goes, and the one that is left has no queues: the stack keeps it, and the leg again when it is back. */
TEST(who_keeps_the_rate_changes_with_the_leg)
{
	const struct world_cfg cfg = { .seed = 1,
				       .bond = PV_BOND_NETVSC,
				       .plain_fallback = true,
				       .txqs = 4,
				       .pacing_min_kbps = 100,
				       .pacing_max_kbps = 100000000 };
	struct pv_ring_counters c;
	struct line l;
	uint32_t got;

	line_open(&l, &cfg);
	pace(&l, 1250000, 0);
	for (uint32_t i = 0; i < 100; i++)
		CHECK(put(&l, 1250 - WIRE) > 0);
	CHECK_EQ(kept_by(&l), PV_TXQ_DEVICE);
	/* One a millisecond. */
	world_run(&l.w, 20 * MS);
	world_leg_del(&l.w, 0, 0);
	world_leg_del(&l.w, 1, 0);
	CHECK_EQ(world_bond_events(&l.w), 2);
	CHECK_EQ(kept_by(&l), PV_TXQ_SOFTWARE);
	pv_ring_counters(l.w.host[0].ring, &c);
	got = 0;
	for (struct pv_udp_recv msg; sock_recv(l.b, NULL, 0, &msg) >= 0;)
		got++;
	CHECK_EQ(got + c.tx_lost, 100);
	CHECK(got >= 19 && got <= 22);
	for (uint32_t i = 0; i < 40; i++)
		CHECK(put(&l, 1250 - WIRE) > 0);
	world_run(&l.w, 20 * MS);
	got = 0;
	for (struct pv_udp_recv msg; sock_recv(l.b, NULL, 0, &msg) >= 0;)
		got++;
	CHECK(got >= 19 && got <= 23);
	world_leg_add(&l.w, 0, 0);
	world_leg_add(&l.w, 1, 0);
	CHECK_EQ(world_bond_events(&l.w), 2);
	CHECK_EQ(kept_by(&l), PV_TXQ_DEVICE);
	world_run(&l.w, 50 * MS);
	for (struct pv_udp_recv msg; sock_recv(l.b, NULL, 0, &msg) >= 0;)
		got++;
	CHECK_EQ(got, 40);
	line_close(&l);
}

/* How long, from the time that the caller has, not from the one that the layer heard of last. */
TEST(the_wait_is_from_now)
{
	struct pv_path_query query = { .dst = ip4(10, 0, 0, 2) };
	const struct pv_tx_opts opts = { .proto = PV_PROTO_UDP, .ttl = 64, .l4_csum_off = UINT32_MAX };
	struct pv_txq_cfg cfg;
	struct pv_txq *q;
	struct line l;

	line_open(&l, &(struct world_cfg){ .seed = 14 });
	cfg = (struct pv_txq_cfg){ .iface = l.w.host[0].iface };
	CHECK_EQ(pv_txq_open(l.w.host[0].net, &cfg, &q), 0);
	pv_txq_set(q, &(struct pv_pacing){ .rate = 10000 }, l.w.now);
	for (int i = 0; i < 2; i++) {
		struct pv_pkt *pkt = pv_pkt_get(l.w.host[0].pool);
		struct pv_path path;

		CHECK_EQ(pv_net_path(l.w.host[0].net, &query, l.w.now, &path), 0);
		pkt->data += PV_NET_HEADROOM;
		pkt->len = pkt->total = 100 - 34;
		memset(pkt->data, 0, pkt->len);
		pv_txq_mark(q, &path, pkt);
		CHECK_EQ(pv_net_tx(l.w.host[0].net, &path, &opts, pkt, l.w.now), 0);
	}
	/* The first has gone, and takes 10 ms. */
	CHECK_EQ(pv_txq_wait_ns(q, 1, l.w.now), 10 * MS);
	CHECK_EQ(pv_txq_wait_ns(q, 1, l.w.now + 7 * MS), 3 * MS);
	pv_txq_close(q, l.w.now);
	world_run(&l.w, SEC);
	line_close(&l);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
