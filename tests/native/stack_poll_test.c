/* SPDX-License-Identifier: BSD-3-Clause */
/* A turn of the engine: budgets, fairness between rings, refill, growth, events, interfaces that come and go. */
#include "base/cksum.h"
#include "world.h"

static void flood(struct world *w, struct pv_udp *from, const struct pv_endpoint *to, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(sock_send(w, from, to, "x", 1), 1);
		pv_net_kick(w->host[0].net);
	}
}

TEST(a_turn_keeps_to_its_budget)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_udp *a, *b;
	struct world w;
	uint32_t before;

	world_open(&w, &(struct world_cfg){ .seed = 1 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	flood(&w, a, &to, 1);
	world_run(&w, PV_NS_PER_MS);
	flood(&w, a, &to, 150);
	before = pv_udp_queued(b);
	CHECK_EQ(pv_stack_poll(w.host[1].stack, w.now, 0), 0);
	CHECK_EQ(pv_stack_poll(w.host[1].stack, w.now, 1), 1);
	CHECK_EQ(pv_udp_queued(b), before + 1);
	CHECK_EQ(pv_stack_poll(w.host[1].stack, w.now, 33), 33);
	CHECK_EQ(pv_stack_poll(w.host[1].stack, w.now, 100), 100);
	CHECK_EQ(pv_stack_poll(w.host[1].stack, w.now, 100), 16);
	CHECK_EQ(pv_stack_poll(w.host[1].stack, w.now, 100), 0);
	CHECK_EQ(pv_udp_queued(b), before + 150);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(events_name_each_socket_once)
{
	struct pv_udp *from, *u[3];
	struct pv_event ev[8];
	struct world w;
	int name[3];

	world_open(&w, &(struct world_cfg){ .seed = 2 });
	from = sock_open(&w, 0, PV_AF_INET);
	for (uint16_t i = 0; i < 3; i++) {
		struct pv_endpoint any = ep(any4(), (uint16_t)(7000 + i));

		CHECK_EQ(pv_udp_open(w.host[1].udp, PV_AF_INET, &name[i], &u[i]), 0);
		CHECK_EQ(pv_udp_bind(u[i], &any), 0);
	}
	for (uint16_t i = 0; i < 9; i++) {
		struct pv_endpoint to = ep(ip4(10, 0, 0, 2), (uint16_t)(7000 + i % 3));

		CHECK_EQ(sock_send(&w, from, &to, "x", 1), 1);
	}
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_stack_events(w.host[1].stack, ev, 2), 2);
	CHECK(ev[0].user == &name[0] && ev[1].user == &name[1]);
	CHECK_EQ(ev[0].bits, PV_EV_IN);
	/* A socket that is closed says nothing any more. */
	pv_udp_close(u[2]);
	CHECK_EQ(pv_stack_events(w.host[1].stack, ev, 8), 0);
	/* Said already, and nothing new: silent, though there is data. */
	CHECK(pv_udp_readable(u[0]));
	flood(&w, from, &(struct pv_endpoint){ ip4(10, 0, 0, 2), 7000, 0 }, 2);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_stack_events(w.host[1].stack, ev, 8), 1);
	CHECK(ev[0].user == &name[0]);
	CHECK_EQ(pv_udp_shutdown(u[1], 3), -ENOTCONN);
	CHECK_EQ(pv_stack_events(w.host[1].stack, ev, 8), 1);
	CHECK_EQ(ev[0].bits, PV_EV_IN | PV_EV_OUT | PV_EV_RDHUP | PV_EV_HUP);
	pv_udp_close(u[0]);
	pv_udp_close(u[1]);
	pv_udp_close(from);
	world_close(&w);
}

/* A receiver that keeps every packet starves its ring; when it lets go, the ring is filled again. */
TEST(buffers_come_back_to_the_ring)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_pool_stats st;
	struct pv_udp *a, *b;
	struct world w;
	char buf[8];
	struct pv_udp_recv msg;

	world_open(&w, &(struct world_cfg){ .seed = 3, .pool = 96 });
	pv_pool_get_stats(w.host[1].pool, &st);
	/* A quarter is left for sending. */
	CHECK(st.free >= 96 / 4 - 8);
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	for (uint32_t i = 0; i < 400; i++) {
		CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
		world_run(&w, PV_NS_PER_US);
	}
	CHECK(pv_udp_queued(b) >= 80 && pv_udp_queued(b) <= 96);
	pv_pool_get_stats(w.host[1].pool, &st);
	CHECK(st.free <= 1);
	while (pv_udp_queued(b))
		CHECK_EQ(sock_recv(b, buf, sizeof(buf), &msg), 1);
	for (uint32_t i = 0; i < 400; i++) {
		world_run(&w, PV_NS_PER_US);
		CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
		world_run(&w, PV_NS_PER_US);
		CHECK_EQ(sock_recv(b, buf, sizeof(buf), &msg), 1);
	}
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

static const struct pv_ring_ops *real;

/* What comes fails: its buffer is the pool's again, and the poll brings nothing. */
static uint32_t failing_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t got = real->rx_poll(r, pkts, n);

	for (uint32_t i = 0; i < got; i++)
		pv_pkt_put(pkts[i]);
	r->rx_more += got;
	return 0;
}

/* More receives in a row fail than the ring has buffers, with no frame between them: it hears what comes then. */
TEST(failed_receives_do_not_make_a_ring_deaf)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_ring_ops failing;
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 3, .pool = 96 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	flood(&w, a, &to, 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), 1);
	real = w.host[1].ring->ops;
	failing = *real;
	failing.rx_poll = failing_poll;
	w.host[1].ring->ops = &failing;
	for (uint32_t i = 0; i < 400; i++) {
		flood(&w, a, &to, 1);
		world_run(&w, PV_NS_PER_US);
	}
	CHECK_EQ(pv_udp_queued(b), 1);
	w.host[1].ring->ops = real;
	flood(&w, a, &to, 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), 2);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

/* A device that wants its doorbell rung twice (need-wakeup rings do). */
static uint32_t rung;

static int reluctant_kick(struct pv_ring *r)
{
	return ++rung % 3 ? -EAGAIN : real->tx_kick(r);
}

TEST(a_doorbell_is_rung_until_it_is_heard)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_ring_ops reluctant;
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 7 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	flood(&w, a, &to, 1);
	world_run(&w, 10 * PV_NS_PER_S);
	real = w.host[0].ring->ops;
	reluctant = *real;
	reluctant.tx_kick = reluctant_kick;
	w.host[0].ring->ops = &reluctant;
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
	CHECK_EQ(pv_net_kick(w.host[0].net), -EAGAIN);
	CHECK(pv_stack_deadline(w.host[0].stack) <= w.now);
	CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK_EQ(rung, 2);
	CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK_EQ(rung, 3);
	CHECK(pv_stack_deadline(w.host[0].stack) > w.now);
	CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK_EQ(rung, 3);
	w.host[0].ring->ops = real;
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), 2);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

static uint32_t asked;

static uint32_t slow_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	(void)r;
	(void)pkts;
	(void)n;
	asked++;
	return 0;
}

/* Completions: asked for once after a send, then every sixteenth idle turn; not at all when nothing is outstanding. */
TEST(a_slow_device_is_not_asked_every_turn)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_ring_ops slow;
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 8 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	flood(&w, a, &to, 1);
	world_run(&w, 10 * PV_NS_PER_S);
	real = w.host[0].ring->ops;
	slow = *real;
	slow.tx_reap = slow_reap;
	w.host[0].ring->ops = &slow;
	for (uint32_t i = 0; i < 100; i++)
		CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK_EQ(asked, 0);
	flood(&w, a, &to, 1);
	CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK_EQ(asked, 1);
	for (uint32_t i = 0; i < 160; i++)
		CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK(asked == 11);
	flood(&w, a, &to, 1);
	CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK_EQ(asked, 12);
	w.host[0].ring->ops = real;
	for (uint32_t i = 0; i < 16; i++)
		CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 0);
	CHECK_EQ(w.host[0].ring->tx_pending, 0);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), 3);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

/* ---- a stack of several interfaces ------------------------------------------------------------------------------------- */

struct twin {
	struct testmem mem;
	struct pv_sim_wire *wire[2];
	struct pv_pool *pool[2], *peer_pool[2];
	struct pv_ring *ring[2], *peer[2];
	struct pv_stack *s;
	int index[2];
};

static void twin_open(struct twin *t, uint32_t chunk)
{
	struct pv_stack_cfg cfg = { .seed = 4 };

	*t = (struct twin){ 0 };
	cfg.mem = testmem_init(&t->mem);
	CHECK_EQ(pv_stack_open(&t->s, &cfg), 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct pv_pool_cfg pc = {
			.buf_size = 2048, .headroom = PV_NET_HEADROOM, .count = 256, .chunk = chunk, .max = 1024
		};
		struct pv_sim_ring_cfg rc = { .mac = { 2, 0, 0, 0, (uint8_t)i, 1 } };
		struct pv_iface_cfg ic = { .name = { 'e', (char)('0' + i) }, .naddr = 1 };

		CHECK_EQ(pv_pool_open(&t->pool[i], cfg.mem, &pc), 0);
		CHECK_EQ(pv_pool_open(&t->peer_pool[i], cfg.mem, &pc), 0);
		CHECK_EQ(pv_sim_wire_open(&t->wire[i], cfg.mem, i), 0);
		CHECK_EQ(pv_sim_open(&t->ring[i], t->wire[i], t->pool[i], &rc), 0);
		rc.mac[5] = 2;
		CHECK_EQ(pv_sim_open(&t->peer[i], t->wire[i], t->peer_pool[i], &rc), 0);
		ic.ring = t->ring[i];
		ic.addr[0] = (struct pv_ifaddr){ ip4(10, (uint8_t)i, 0, 1), 24 };
		t->index[i] = pv_stack_iface_add(t->s, &ic);
		CHECK(t->index[i] > 0);
		/* One interface a ring, one name an interface. */
		ic.name[0] = 'f';
		CHECK_EQ(pv_stack_iface_add(t->s, &ic), -EBUSY);
	}
	/* What is announced at the start. */
	while (pv_stack_poll(t->s, 1, 64))
		;
}

static void twin_close(struct twin *t)
{
	pv_stack_close(t->s);
	for (uint32_t i = 0; i < 2; i++) {
		pv_ring_close(t->ring[i]);
		pv_ring_close(t->peer[i]);
		CHECK_EQ(pv_pool_close(t->pool[i]), 0);
		CHECK_EQ(pv_pool_close(t->peer_pool[i]), 0);
		pv_sim_wire_close(t->wire[i]);
	}
	CHECK_EQ(t->mem.blocks, 0);
}

/* UDP without checksum from the far end of wire `i` to port 7000. */
static void twin_feed(struct twin *t, uint32_t i, uint32_t n)
{
	while (n--) {
		struct pv_pkt *p = pv_pkt_get(t->peer_pool[i]), *back[4];
		uint8_t frame[] = { 2,  0,          0,  0, (uint8_t)i, 1, 2,    0,    0,  0, (uint8_t)i, 2,  8,          0, 0x45,
				    0,  0,          29, 0, 7,          0, 0,    64,   17, 0, 0,          10, (uint8_t)i, 0, 9,
				    10, (uint8_t)i, 0,  1, 0,          9, 0x1b, 0x58, 0,  9, 0,          0,  'x' };

		CHECK(p != NULL);
		pv_cksum_put(frame + 24, pv_cksum_finish(pv_cksum_ip4_header(frame + 14)));
		memcpy(p->data, frame, sizeof(frame));
		p->len = p->total = sizeof(frame);
		CHECK_EQ(pv_ring_tx_post(t->peer[i], &p, 1), 1);
		CHECK_EQ(pv_ring_tx_kick(t->peer[i]), 0);
		if (pv_ring_tx_reap(t->peer[i], back, 1))
			pv_pkt_put(back[0]);
	}
}

TEST(rings_share_the_budget)
{
	struct pv_udp *u[2];
	struct twin t;

	twin_open(&t, 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct pv_endpoint e = ep(ip4(10, (uint8_t)i, 0, 1), 7000);

		CHECK_EQ(pv_udp_open(pv_stack_udp(t.s), PV_AF_INET, NULL, &u[i]), 0);
		CHECK_EQ(pv_udp_bind(u[i], &e), 0);
	}
	/* One is flooded, the other gets little: that little waits for nobody. */
	twin_feed(&t, 0, 150);
	twin_feed(&t, 1, 3);
	CHECK_EQ(pv_stack_poll(t.s, 1, 67), 67);
	CHECK_EQ(pv_udp_queued(u[1]), 3);
	CHECK_EQ(pv_udp_queued(u[0]), 64);
	/* Both flooded: half and half, whoever is asked first. */
	twin_feed(&t, 1, 100);
	CHECK_EQ(pv_stack_poll(t.s, 2, 128), 128);
	CHECK_EQ(pv_udp_queued(u[0]), 64 + 64);
	CHECK_EQ(pv_udp_queued(u[1]), 3 + 64);
	while (pv_stack_poll(t.s, 3, 64))
		;
	CHECK_EQ(pv_udp_queued(u[0]), 150);
	CHECK_EQ(pv_udp_queued(u[1]), 103);
	pv_udp_close(u[0]);
	pv_udp_close(u[1]);
	twin_close(&t);
}

TEST(what_came_by_an_interface_outlives_it)
{
	struct pv_addr group = ip4(239, 1, 2, 3);
	struct pv_endpoint any = ep(any4(), 7000), peer = ep(ip4(10, 0, 0, 9), 9);
	struct pv_udp_recv msg;
	struct pv_udp *u;
	struct twin t;
	char buf[8];

	twin_open(&t, 0);
	CHECK_EQ(pv_udp_open(pv_stack_udp(t.s), PV_AF_INET, NULL, &u), 0);
	CHECK_EQ(pv_udp_bind(u, &any), 0);
	CHECK_EQ(pv_udp_join(u, (uint32_t)t.index[0], &group, NULL, 0), 0);
	CHECK_EQ(pv_udp_join(u, (uint32_t)t.index[1], &group, NULL, 0), 0);
	twin_feed(&t, 0, 5);
	twin_feed(&t, 1, 2);
	twin_feed(&t, 0, 5);
	while (pv_stack_poll(t.s, 1, 64))
		;
	CHECK_EQ(pv_udp_queued(u), 12);
	CHECK_EQ(pv_udp_connect(u, &peer, 1), 0);
	CHECK_EQ(pv_stack_iface_del(t.s, (uint32_t)t.index[0]), 0);
	CHECK_EQ(pv_stack_iface_del(t.s, (uint32_t)t.index[0]), -ENODEV);
	CHECK_EQ(pv_udp_queued(u), 12); /* what has come is still to be read */
	CHECK_EQ(pv_udp_leave(u, (uint32_t)t.index[0], &group, NULL, 1), -EADDRNOTAVAIL);
	CHECK_EQ(pv_udp_leave(u, (uint32_t)t.index[1], &group, NULL, 1), 0);
	/* The path that went with it is looked up again and is not there. */
	{
		struct pv_iov iov = { "x", 1 };
		struct pv_udp_send send = { .iov = &iov, .iovcnt = 1, .ttl = -1, .tos = -1 };

		CHECK(pv_udp_send(u, &send, 1) < 0);
	}
	CHECK_EQ(pv_udp_connect(u, NULL, 1), 0);
	twin_feed(&t, 1, 1);
	CHECK_EQ(pv_stack_poll(t.s, 2, 64), 1);
	for (uint32_t i = 0, seen[2] = { 10, 3 }; i < 13; i++) {
		CHECK_EQ(sock_recv(u, buf, sizeof(buf), &msg), 1);
		CHECK(msg.iface == 0 || msg.iface == (uint32_t)t.index[1]);
		CHECK(seen[msg.iface != 0]-- > 0);
	}
	CHECK_EQ(sock_recv(u, buf, sizeof(buf), &msg), -EAGAIN);
	pv_udp_close(u);
	twin_close(&t);
}

TEST(pools_grow_between_turns)
{
	struct pv_endpoint any = ep(any4(), 7000);
	struct pv_pool_stats st;
	struct pv_udp *u;
	struct twin t;
	uint32_t grew = 0;

	twin_open(&t, 256);
	CHECK_EQ(pv_udp_open(pv_stack_udp(t.s), PV_AF_INET, NULL, &u), 0);
	pv_udp_options(u)->rcvbuf = 1 << 30;
	pv_udp_options_changed(u);
	CHECK_EQ(pv_udp_bind(u, &any), 0);
	CHECK_EQ(pv_stack_grow(t.s), 0);
	for (uint32_t i = 0; i < 900; i++) {
		twin_feed(&t, 0, 1);
		pv_stack_poll(t.s, 1, 64);
		grew += pv_stack_grow(t.s);
	}
	CHECK_EQ(grew, 3);
	pv_pool_get_stats(t.pool[0], &st);
	CHECK_EQ(st.total, 1024);
	pv_pool_get_stats(t.pool[1], &st);
	CHECK_EQ(st.total, 256);
	CHECK(pv_udp_queued(u) >= 760);
	pv_udp_close(u);
	twin_close(&t);
}

TEST(bad_interfaces_are_refused)
{
	struct pv_pool_cfg pc = { .buf_size = 2048, .headroom = 64, .count = 16, .max = 16 };
	struct pv_sim_ring_cfg rc = { .mac = { 2, 0, 0, 0, 0, 9 } };
	struct pv_iface_cfg ic = { .name = "e9", .naddr = 1 };
	struct pv_ring *ring;
	struct pv_pool *pool;
	struct twin t;

	twin_open(&t, 0);
	CHECK_EQ(pv_stack_iface_add(t.s, &ic), -EINVAL);
	/* Headers would not fit in front. */
	CHECK_EQ(pv_pool_open(&pool, &t.mem.mem, &pc), 0);
	CHECK_EQ(pv_sim_open(&ring, t.wire[0], pool, &rc), 0);
	ic.ring = ring;
	CHECK_EQ(pv_stack_iface_add(t.s, &ic), -EINVAL);
	pv_ring_close(ring);
	CHECK_EQ(pv_pool_close(pool), 0);
	twin_close(&t);
}

TEST(open_fails_cleanly_without_memory)
{
	struct testmem mem;
	struct pv_stack_cfg cfg = { .seed = 5 };
	struct pv_stack *s;
	uint32_t n;

	cfg.mem = testmem_init(&mem);
	for (n = 0;; n++) {
		int rc;

		mem.fail_in = (long)n;
		rc = pv_stack_open(&s, &cfg);
		if (!rc)
			break;
		CHECK_EQ(rc, -ENOMEM);
		CHECK_EQ(mem.blocks, 0);
		CHECK(n < 1000);
	}
	CHECK(n > 5);
	pv_stack_close(s);
	CHECK_EQ(mem.blocks, 0);
}

/* What we send to ourselves is bounded a turn as well. */
TEST(loops_take_turns)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 1), 7000);
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 6 });
	world_run(&w, 10 * PV_NS_PER_S);
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 0, PV_AF_INET, any4(), 7000);
	for (uint32_t i = 0; i < 50; i++)
		CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
	CHECK_EQ(pv_udp_queued(b), 0);
	CHECK(pv_stack_deadline(w.host[0].stack) <= w.now);
	CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 32);
	CHECK_EQ(pv_udp_queued(b), 32);
	CHECK_EQ(pv_stack_poll(w.host[0].stack, w.now, 64), 18);
	CHECK_EQ(pv_udp_queued(b), 50);
	CHECK(pv_stack_deadline(w.host[0].stack) > w.now);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
