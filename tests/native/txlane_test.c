/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send lanes: by which of the ring's queues each sender's frames go, that they keep their order whatever is moved, and that queues come
 * back. Queues are told apart by what waits in them before the wire takes it; one that a test slows down shows who overtakes.
 */
#include "net/txlane.h"

#include "base/rng.h"
#include "net/txq.h"
#include "tcp_world.h"

#define MS PV_NS_PER_MS
#define US PV_NS_PER_US
#define PORT 7000
#define MOVES 10000u
#define KEYS 4u

/* What the stack calls a sender's user. */
struct sender {
	struct world *w;
	uint64_t key;
	uint32_t asked;
	struct pv_addr src;
};

static uint32_t most = PV_TXLANE_MAX;

static uint32_t lane_get(struct world *w, uint64_t key)
{
	return pv_txlane_get(w->host[0].net, &(struct pv_txlane_key){ .value = key, .logic = 10 }, most);
}

static uint32_t lane_of(void *user, const struct pv_addr *src)
{
	struct sender *s = user;

	s->asked++;
	s->src = *src;
	return lane_get(s->w, s->key);
}

static void open_world(struct world *w, struct world_cfg c)
{
	c.net.lane = lane_of;
	c.udp.sockets_hint = 8;
	tcp_world_open(w, &c);
	most = PV_TXLANE_MAX;
	/* Neighbours are known from here on. */
	for (int family = 4; family <= 6; family += 2) {
		struct pv_udp *u = sock_open(w, 1, family == 4 ? PV_AF_INET : PV_AF_INET6);
		struct pv_endpoint to = ep(host_addr(family, 1), PORT);

		CHECK_EQ(sock_send(w, u, &to, "", 0), 0);
		world_run(w, MS);
		pv_udp_close(u);
	}
	world_run(w, MS);
}

static struct pv_udp *sender_open(struct world *w, struct sender *s, uint64_t key)
{
	struct pv_udp *u;

	*s = (struct sender){ .w = w, .key = key };
	CHECK_EQ(pv_udp_open(w->host[0].udp, PV_AF_INET, s, &u), 0);
	return u;
}

static uint32_t queues_open(const struct world *w)
{
	return w->host[0].ring->stat->tx_queues;
}

/* By which queue the frames go that `u` sends now; they wait there until the wire moves. */
static uint32_t by_which(struct world *w, struct pv_udp *u, const struct pv_endpoint *to, uint32_t len)
{
	struct pv_ring *r = w->host[0].ring;
	static uint8_t buf[9000];
	uint32_t found = 0, frames = 0, was[16], all = r->tx_pending;

	for (uint32_t q = 1; q < 16; q++)
		was[q] = pv_ring_txq_pending(r, q);
	CHECK_EQ(sock_send(w, u, to, buf, len), len);
	for (uint32_t q = 1; q < 16; q++) {
		uint32_t n = pv_ring_txq_pending(r, q) - was[q];

		CHECK(!n || !found);
		found = n ? q : found;
		frames += n;
	}
	/* All of them, or none. */
	CHECK_EQ(frames, found ? r->tx_pending - all : 0);
	return found;
}

TEST(senders_of_a_key_share_a_queue)
{
	struct pv_endpoint to = ep(host_addr(4, 2), PORT);
	struct pv_txlane_info info;
	struct sender s[5];
	struct pv_udp *u[5];
	struct world w;

	open_world(&w, (struct world_cfg){ .txqs = 3 });
	for (uint32_t i = 0; i < 5; i++)
		u[i] = sender_open(&w, &s[i], i / 2);
	CHECK_EQ(queues_open(&w), 0);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 5; i++) {
			CHECK_EQ(by_which(&w, u[i], &to, 100), i / 2 + 1);
			world_run(&w, MS);
		}
	}
	for (uint32_t i = 0; i < 5; i++)
		CHECK_EQ(s[i].asked, 1);
	CHECK(pv_addr_eq(&s[0].src, &(struct pv_addr){ 0 }) == false);
	CHECK(pv_txlane_info(w.host[0].net, pv_udp_lane(u[1]), w.host[0].iface, &info));
	CHECK(info.key.value == 0 && info.queue == 1 && info.senders == 2);
	CHECK_EQ(queues_open(&w), 3);
	/* The last of a key gives its queue back, and the next key has it. */
	pv_udp_close(u[2]);
	CHECK_EQ(queues_open(&w), 3);
	pv_udp_close(u[3]);
	CHECK_EQ(queues_open(&w), 2);
	u[2] = sender_open(&w, &s[2], 77);
	CHECK_EQ(by_which(&w, u[2], &to, 100), 2);
	/* Fragments, and what is sent to ourselves. */
	u[3] = sender_open(&w, &s[3], 77);
	CHECK_EQ(by_which(&w, u[3], &to, 4000), 2);
	to.addr = host_addr(4, 1);
	CHECK_EQ(by_which(&w, u[3], &to, 100), 0);
	for (uint32_t i = 0; i < 5; i++)
		pv_udp_close(u[i]);
	CHECK_EQ(queues_open(&w), 0);
	world_close(&w);
}

/* Who finds none goes by the first queue, and stays there. */
TEST(more_keys_than_queues)
{
	struct pv_endpoint to = ep(host_addr(4, 2), PORT);
	struct sender s[4];
	struct pv_udp *u[4];
	struct world w;

	for (uint32_t limited = 0; limited < 2; limited++) {
		open_world(&w, (struct world_cfg){ .txqs = limited ? 8 : 2 });
		most = limited ? 2 : PV_TXLANE_MAX;
		for (uint32_t i = 0; i < 4; i++) {
			u[i] = sender_open(&w, &s[i], i);
			CHECK_EQ(by_which(&w, u[i], &to, 10), i < 2 ? i + 1 : 0);
		}
		CHECK_EQ(pv_udp_lane(u[3]) == PV_TXLANE_NONE, limited);
		world_run(&w, MS);
		pv_udp_close(u[0]);
		CHECK_EQ(by_which(&w, u[3], &to, 10), 0);
		u[0] = sender_open(&w, &s[0], 99);
		CHECK_EQ(by_which(&w, u[0], &to, 10), 1);
		for (uint32_t i = 0; i < 4; i++)
			pv_udp_close(u[i]);
		world_close(&w);
	}
	open_world(&w, (struct world_cfg){ 0 });
	u[0] = sender_open(&w, &s[0], 1);
	CHECK_EQ(by_which(&w, u[0], &to, 10), 0);
	pv_udp_close(u[0]);
	world_close(&w);
}

/* A frame that waits for its neighbour when its socket is closed goes by the first queue. */
TEST(what_waits_for_a_neighbour_outlives_its_lane)
{
	struct pv_endpoint to = ep(host_addr(4, 2), PORT);
	struct pv_udp *u, *b;
	struct sender s;
	struct world w;

	tcp_world_open(&w, &(struct world_cfg){ .txqs = 2, .net = { .lane = lane_of } });
	b = sock_bound(&w, 1, PV_AF_INET, any4(), PORT);
	u = sender_open(&w, &s, 5);
	CHECK_EQ(sock_send(&w, u, &to, "waits", 5), 5);
	CHECK_EQ(queues_open(&w), 1);
	pv_udp_close(u);
	CHECK_EQ(queues_open(&w), 0);
	world_run(&w, 10 * MS);
	sock_expect(b, "waits");
	CHECK_EQ(w.host[0].ring->stat->c.tx_errors, 0);
	pv_udp_close(b);
	world_close(&w);
}

/* ---- order --------------------------------------------------------------------------------------------------------------- */

struct stream {
	struct world w;
	struct pv_rng rng;
	struct pv_udp *a, *b, *keep[KEYS];
	struct sender s, keeps[KEYS];
	struct pv_endpoint to;
	uint32_t sent, got, late;
};

static void stream_open(struct stream *t, uint64_t seed)
{
	const struct pv_ring_rate slow[] = { { .kbps = 20000 }, { .kbps = 100000 }, { .kbps = 800000 }, { .kbps = 3000 } };

	*t = (struct stream){ .to = ep(host_addr(4, 2), PORT) };
	pv_rng_seed(&t->rng, seed);
	open_world(
	    &t->w,
	    (struct world_cfg){
		.seed = seed, .txqs = KEYS, .pool = 4096, .tx_depth = 512, .pacing_min_kbps = 1, .pacing_max_kbps = 1000000 });
	t->w.check = NULL; /* it knows of TCP's packets only */
	t->b = sock_bound(&t->w, 1, PV_AF_INET, any4(), PORT);
	pv_udp_options(t->b)->rcvbuf = 1 << 30;
	pv_udp_options_changed(t->b);
	/* Somebody of each key, so that its queue stays, and is as slow as it is. */
	for (uint32_t i = 0; i < KEYS; i++) {
		t->keep[i] = sender_open(&t->w, &t->keeps[i], i);
		CHECK_EQ(sock_send(&t->w, t->keep[i], &(struct pv_endpoint){ .addr = t->to.addr, .port = 9 }, "", 0), 0);
		CHECK_EQ(pv_ring_set_rate(t->w.host[0].ring, i + 1, &slow[i]), 0);
	}
	world_run(&t->w, 10 * MS);
	t->a = sender_open(&t->w, &t->s, 0);
}

static void stream_close(struct stream *t)
{
	pv_udp_close(t->a);
	pv_udp_close(t->b);
	for (uint32_t i = 0; i < KEYS; i++)
		pv_udp_close(t->keep[i]);
	world_close(&t->w);
}

static void some(struct stream *t, uint32_t n)
{
	uint32_t number[300] = { 0 };

	while (n--) {
		*number = t->sent++;
		CHECK_EQ(sock_send(&t->w, t->a, &t->to, number, 4 + 4 * (uint32_t)pv_rng_below(&t->rng, 299)) >= 4, 1);
	}
}

static void take(struct stream *t)
{
	uint32_t number[300];
	struct pv_udp_recv msg;

	while (sock_recv(t->b, number, sizeof(number), &msg) >= 4) {
		t->late += *number < t->got;
		t->got = PV_MAX(t->got, *number + 1);
	}
}

static int move(struct stream *t, uint64_t key, bool hurry)
{
	uint32_t lane = key < KEYS ? lane_get(&t->w, key) : PV_TXLANE_NONE;
	int rc = pv_udp_set_lane(t->a, lane, hurry);

	if (rc)
		pv_txlane_put(t->w.host[0].net, lane);
	return rc;
}

/* As the runtime does it: asks again while time passes. */
static void move_settled(struct stream *t)
{
	uint64_t key = pv_rng_below(&t->rng, KEYS + 1);
	int rc;

	while ((rc = move(t, key, false))) {
		CHECK_EQ(rc, -EAGAIN);
		world_run(&t->w, 5 * US);
	}
}

TEST(no_move_changes_the_order)
{
	struct stream t;
	uint32_t waited = 0;

	stream_open(&t, 11);
	for (uint32_t i = 0; i < MOVES; i++) {
		some(&t, 1 + (uint32_t)pv_rng_below(&t.rng, 4));
		waited += pv_udp_lane(t.a) != PV_TXLANE_NONE && move(&t, KEYS, false) == -EAGAIN;
		move_settled(&t);
		if (pv_rng_below(&t.rng, 4) == 0)
			world_run(&t.w, (int64_t)pv_rng_below(&t.rng, 100) * US);
		take(&t);
	}
	world_run(&t.w, 1000 * MS);
	take(&t);
	CHECK_EQ(t.got, t.sent);
	CHECK_EQ(t.late, 0);
	CHECK_EQ(pv_udp_counters(t.b)->rx_datagrams, t.sent);
	/* The queues were such that each had to be waited for. */
	CHECK(waited > MOVES / 2);
	stream_close(&t);
}

/* And without waiting it does: the test above would see it. */
TEST(a_hurried_move_may_change_it)
{
	struct stream t;

	stream_open(&t, 12);
	for (uint32_t i = 0; i < 100; i++) {
		some(&t, 4);
		CHECK_EQ(move(&t, pv_rng_below(&t.rng, KEYS + 1), true), 0);
		world_run(&t.w, 5 * US);
		take(&t);
	}
	world_run(&t.w, 1000 * MS);
	take(&t);
	CHECK(t.late > 10);
	stream_close(&t);
}

/* One that is held to a rate has a queue of its own for so long, behind what it sent before, and keeps its lane. */
TEST(paced_ones_keep_their_own)
{
	struct pv_pacing pacing = { .rate = 250000 };
	struct pv_txq_info info;
	struct stream t;

	stream_open(&t, 13);
	pv_udp_close(t.keep[2]);
	pv_udp_close(t.keep[3]);
	CHECK_EQ(queues_open(&t.w), 2);
	some(&t, 40); /* some 10 ms of them */
	CHECK_EQ(pv_ring_txq_pending(t.w.host[0].ring, 1), 40);
	CHECK_EQ(pv_udp_set_pacing(t.a, &pacing, t.w.now), 0);
	for (uint32_t i = 0; i < 20; i++) {
		some(&t, 1);
		world_run(&t.w, MS / 2);
		take(&t);
	}
	CHECK(pv_udp_pacing_info(t.a, 0, &info));
	CHECK(info.by == PV_TXQ_DEVICE && info.number == 3);
	CHECK_EQ(queues_open(&t.w), 3);
	CHECK_EQ(move(&t, 1, false), -EBUSY);
	CHECK_EQ(pv_udp_set_pacing(t.a, &(struct pv_pacing){ 0 }, t.w.now), 0);
	world_run(&t.w, 1000 * MS);
	some(&t, 1);
	CHECK_EQ(queues_open(&t.w), 2);
	world_run(&t.w, 10 * MS);
	CHECK_EQ(by_which(&t.w, t.a, &t.to, 4), 1);
	world_run(&t.w, 10 * MS);
	take(&t);
	CHECK_EQ(t.late, 1); /* by_which's own, a number 0 */
	CHECK_EQ(t.got, t.sent);
	t.keep[2] = sender_open(&t.w, &t.keeps[2], 2);
	t.keep[3] = sender_open(&t.w, &t.keeps[3], 3);
	stream_close(&t);
}

/* Room is where the socket's frames go: the ring's other queues have some all the while. */
TEST(a_full_queue_of_its_own_is_waited_for)
{
	const struct pv_ring_rate slow = { .kbps = 8 }; /* a byte in a millisecond */
	struct pv_endpoint to = ep(host_addr(4, 2), PORT);
	struct pv_event ev[4];
	char data[58] = { 0 }; /* with its headers 100 bytes */
	struct pv_udp *u, *first;
	struct sender s, sf;
	struct world w;
	int64_t rc;

	open_world(&w, (struct world_cfg){ .txqs = 2, .tx_depth = 16, .pacing_min_kbps = 1, .pacing_max_kbps = 1000000 });
	u = sender_open(&w, &s, 1);
	CHECK_EQ(by_which(&w, u, &to, 10), 1);
	most = 1;
	first = sender_open(&w, &sf, 2);
	CHECK_EQ(by_which(&w, first, &to, 10), 0);
	world_run(&w, MS);
	CHECK_EQ(pv_ring_set_rate(w.host[0].ring, 1, &slow), 0);
	while ((rc = sock_send(&w, u, &to, data, sizeof(data))) > 0)
		;
	CHECK_EQ(rc, -ENOBUFS);
	CHECK(!pv_udp_writable(u));
	(void)pv_udp_events(w.host[0].udp, ev, 4);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK_EQ(sock_send(&w, first, &to, data, sizeof(data)), sizeof(data));
		world_run(&w, MS / 10);
		CHECK(!pv_udp_writable(u));
		CHECK_EQ(pv_udp_events(w.host[0].udp, ev, 4), 0);
	}
	world_run(&w, 120 * MS);
	CHECK(pv_udp_writable(u));
	CHECK_EQ(pv_udp_events(w.host[0].udp, ev, 4), 1);
	CHECK(ev[0].bits & PV_EV_OUT);
	CHECK_EQ(sock_send(&w, u, &to, data, sizeof(data)), sizeof(data));
	pv_udp_close(u);
	pv_udp_close(first);
	world_run(&w, 10000 * MS);
	world_close(&w);
}

/* A move waits for what waits for a neighbour, also for one to which nothing was sent since. */
TEST(a_move_waits_for_neighbours)
{
	struct pv_endpoint to = ep(host_addr(4, 2), PORT), nobody = ep(host_addr(4, 77), PORT);
	struct pv_udp *u, *other;
	struct sender s, so;
	struct world w;

	open_world(&w, (struct world_cfg){ .txqs = 2 });
	u = sender_open(&w, &s, 1);
	other = sender_open(&w, &so, 2);
	CHECK_EQ(sock_send(&w, u, &nobody, "", 0), 0);
	CHECK_EQ(by_which(&w, u, &to, 10), 1);
	CHECK_EQ(by_which(&w, other, &to, 10), 2);
	world_run(&w, MS);
	CHECK_EQ(pv_udp_set_lane(u, PV_TXLANE_NONE, false), -EAGAIN);
	CHECK_EQ(pv_udp_set_lane(other, PV_TXLANE_NONE, false), 0);
	world_run(&w, 5 * PV_NS_PER_S); /* nobody answers */
	CHECK_EQ(pv_udp_set_lane(u, PV_TXLANE_NONE, false), 0);
	pv_udp_close(u);
	pv_udp_close(other);
	world_close(&w);
}

/* ---- TCP ----------------------------------------------------------------------------------------------------------------- */

/* Bytes of a connection from host 0 arrive, by the queue of its lane. */
static void flow(struct world *w, struct pv_tcp *from, struct pv_tcp *to, uint32_t queue, uint32_t bytes)
{
	static uint8_t buf[65536];
	struct pv_ring *r = w->host[0].ring;
	uint32_t sent = 0, got = 0, seen = 0;

	while (got < bytes) {
		int64_t n;

		/* What a call sends waits for the doorbell until it was looked at. */
		pv_net_hold(w->host[0].net, true);
		n = sent < bytes ? tcp_write(w, from, buf, PV_MIN(bytes - sent, (uint32_t)sizeof(buf))) : 0;

		sent += n > 0 ? (uint32_t)n : 0;
		for (uint32_t q = 1; q < 16; q++) {
			uint32_t out = pv_ring_txq_pending(r, q);

			CHECK(!out || q == queue);
			seen += out;
		}
		pv_net_hold(w->host[0].net, false);
		world_run(w, 50 * US);
		while ((n = tcp_read(w, to, buf, sizeof(buf))) > 0)
			got += (uint32_t)n;
	}
	CHECK_EQ(got, bytes);
	CHECK(!queue || seen > 0);
	world_run(w, 100 * MS); /* all is acknowledged */
}

static struct pv_tcp *accept_one(struct world *w, struct pv_tcp *l)
{
	struct pv_tcp *c;

	world_run(w, 10 * MS);
	CHECK_EQ(pv_tcp_accept(l, &c), 0);
	pv_tcp_close(l, w->now);
	return c;
}

TEST(connections)
{
	for (uint32_t tso = 0; tso < 2; tso++) {
		struct pv_tcp *l, *c[2], *a[2];
		struct sender s[2];
		struct world w;
		uint32_t lane;
		char buf[16];

		open_world(&w, (struct world_cfg){ .txqs = 3, .pool = 4096, .tso_max = tso ? 65536 : 0, .tx_csum = tso ? 7 : 0 });
		s[0] = (struct sender){ .w = &w, .key = 0 };
		s[1] = (struct sender){ .w = &w, .key = 1 };
		/* One that connects has it from its first segment on. */
		l = tcp_listener(&w, 1, 4, 80, 4);
		CHECK_EQ(pv_tcp_open(w.host[0].tcp, PV_AF_INET, &s[0], &c[0]), 0);
		pv_net_hold(w.host[0].net, true);
		CHECK_EQ(pv_tcp_connect(c[0], &(struct pv_endpoint){ .addr = host_addr(4, 2), .port = 80 }, w.now), -EINPROGRESS);
		CHECK_EQ(pv_ring_txq_pending(w.host[0].ring, 1), 1);
		pv_net_hold(w.host[0].net, false);
		c[1] = accept_one(&w, l);
		flow(&w, c[0], c[1], 1, 1000000);
		CHECK_EQ(s[0].asked, 1);
		CHECK_EQ(w.host[0].ring->stat->c.tso_packets > 0, tso);
		/* One that is accepted by whoever has it then. */
		l = tcp_listener(&w, 0, 4, 80, 4);
		a[0] = tcp_dial(&w, 1, 4, 0, 80);
		a[1] = accept_one(&w, l);
		CHECK_EQ(pv_tcp_lane(a[1]), PV_TXLANE_UNKNOWN);
		flow(&w, a[1], a[0], 0, 10000);
		pv_tcp_set_user(a[1], &s[1]);
		pv_tcp_lane_ask(a[1]);
		flow(&w, a[1], a[0], 2, 1000000);
		/* A move waits for what is out. */
		lane = lane_get(&w, 2);
		pv_net_hold(w.host[0].net, true);
		CHECK_EQ(tcp_write(&w, a[1], "bytes", 5), 5);
		CHECK_EQ(pv_tcp_set_lane(a[1], lane, false), -EAGAIN);
		pv_net_hold(w.host[0].net, false);
		world_run(&w, MS);
		CHECK_EQ(pv_tcp_set_lane(a[1], lane, false), 0);
		CHECK_EQ(tcp_read(&w, a[0], buf, 5), 5);
		CHECK_EQ(queues_open(&w), 2);
		flow(&w, a[1], a[0], 2, 1000000);
		/* Its end, and an orphan's last bytes, go there, too, before the queue goes back. */
		pv_net_hold(w.host[0].net, true);
		CHECK_EQ(tcp_write(&w, c[0], "bytes", 5), 5);
		pv_tcp_close(c[0], w.now);
		CHECK_EQ(pv_ring_txq_pending(w.host[0].ring, 1), 2);
		CHECK_EQ(queues_open(&w), 2);
		pv_net_hold(w.host[0].net, false);
		world_run(&w, MS);
		CHECK_EQ(queues_open(&w), 1); /* of its end only a record is left */
		pv_tcp_close(c[1], w.now);
		pv_tcp_options(a[1])->linger = true;
		pv_tcp_options(a[1])->linger_s = 0;
		CHECK_EQ(tcp_write(&w, a[1], "bytes", 5), 5);
		pv_tcp_close(a[1], w.now);
		CHECK_EQ(queues_open(&w), 0);
		world_run(&w, 100 * MS);
		CHECK_EQ(tcp_read(&w, a[0], buf, sizeof(buf)), 5); /* the reset did not overtake it */
		CHECK_EQ(tcp_read(&w, a[0], buf, 1), -ECONNRESET);
		pv_tcp_close(a[0], w.now);
		tcp_fade(&w);
		CHECK_EQ(queues_open(&w), 0);
		CHECK_EQ(pv_tcp_table_counters(w.host[0].tcp)->tx_retransmits +
			     pv_tcp_table_counters(w.host[1].tcp)->rx_out_of_order,
			 0);
		world_close(&w);
	}
}

/* One that was accepted with a rate, and asked for its queue before it had a lane, goes by its lane all the same. */
TEST(a_connection_that_inherits_a_rate)
{
	struct pv_txq_info info;
	struct pv_tcp *l, *c, *a;
	struct sender s;
	struct world w;

	open_world(&w, (struct world_cfg){ .txqs = 3 });
	s = (struct sender){ .w = &w, .key = 1 };
	l = tcp_listener(&w, 0, 4, 80, 4);
	pv_tcp_options(l)->pacing_rate = 100000000;
	pv_tcp_options(l)->pacing_burst = 30000;
	c = tcp_dial(&w, 1, 4, 0, 80);
	world_run(&w, 10 * MS);
	CHECK_EQ(tcp_write(&w, c, "bytes", 5), 5);
	a = accept_one(&w, l);
	CHECK(pv_tcp_pacing_info(a, &info));
	CHECK_EQ(info.by, PV_TXQ_SOFTWARE);
	pv_tcp_set_user(a, &s);
	pv_tcp_lane_ask(a);
	flow(&w, a, c, 1, 100000);
	CHECK(pv_tcp_pacing_info(a, &info));
	CHECK_EQ(info.by, PV_TXQ_SOFTWARE);
	pv_tcp_close(a, w.now);
	pv_tcp_close(c, w.now);
	tcp_fade(&w);
	CHECK_EQ(queues_open(&w), 0);
	world_close(&w);
}

/* ---- interfaces ---------------------------------------------------------------------------------------------------------- */

/* Once more, with another ring. */
static void iface_comes(struct world *w)
{
	struct pv_sim_ring_cfg ring = world_ring_cfg(&w->cfg, 0);
	struct pv_iface_cfg iface = { .name = "sim0", .steer = PV_STEER_ADDRESS, .naddr = 1 };
	int rc;

	pv_ring_close(w->host[0].ring);
	CHECK_EQ(pv_sim_open(&w->host[0].ring, w->wire, w->host[0].pool, &ring), 0);
	iface.ring = w->host[0].ring;
	iface.addr[0] = (struct pv_ifaddr){ ip4(10, 0, 0, 1), 24 };
	rc = pv_stack_iface_add(w->host[0].stack, &iface);
	CHECK(rc > 0);
	w->host[0].iface = (uint32_t)rc;
}

TEST(connections_outlive_an_interface)
{
	struct pv_tcp *l, *peer, *late, *waits, *has;
	struct sender s;
	struct world w;

	open_world(&w, (struct world_cfg){ .txqs = 2 });
	s = (struct sender){ .w = &w, .key = 1 };
	l = tcp_listener(&w, 0, 4, 80, 4);
	peer = tcp_dial(&w, 1, 4, 0, 80);
	has = accept_one(&w, l);
	pv_tcp_set_user(has, &s);
	pv_tcp_lane_ask(has);
	CHECK_EQ(queues_open(&w), 1);
	l = tcp_listener(&w, 0, 4, 81, 4);
	late = tcp_dial(&w, 1, 4, 0, 81);
	world_run(&w, 10 * MS);
	CHECK_EQ(pv_stack_iface_del(w.host[0].stack, w.host[0].iface), 0);
	/* One that is accepted only now, and one that the program moves. */
	CHECK_EQ(pv_tcp_accept(l, &waits), 0);
	pv_tcp_set_user(waits, &s);
	pv_tcp_lane_ask(waits);
	CHECK_EQ(pv_tcp_set_lane(has, lane_get(&w, 2), true), 0);
	pv_tcp_close(waits, w.now);
	pv_tcp_close(has, w.now);
	pv_tcp_close(l, w.now);
	pv_tcp_close(peer, w.now);
	pv_tcp_close(late, w.now);
	iface_comes(&w);
	tcp_fade(&w);
	CHECK_EQ(queues_open(&w), 0);
	world_close(&w);
}

TEST(an_interface_that_goes_takes_its_queues)
{
	struct pv_endpoint to = ep(host_addr(4, 2), PORT);
	struct pv_udp *u;
	struct sender s;
	struct world w;

	open_world(&w, (struct world_cfg){ .txqs = 2 });
	u = sender_open(&w, &s, 1);
	CHECK_EQ(by_which(&w, u, &to, 10), 1);
	world_run(&w, MS);
	CHECK_EQ(pv_stack_iface_del(w.host[0].stack, w.host[0].iface), 0);
	iface_comes(&w);
	CHECK_EQ(pv_ring_txq_open(w.host[0].ring, NULL), 1); /* somebody else is first */
	CHECK_EQ(sock_send(&w, u, &to, "", 0), 0);
	world_run(&w, 10 * MS);
	CHECK_EQ(by_which(&w, u, &to, 10), 2);
	pv_udp_close(u);
	CHECK_EQ(queues_open(&w), 0);
	world_close(&w);
}

/* The bond's number stays whatever its legs do, also over one that has no queues. */
TEST(a_bond_whose_legs_come_and_go)
{
	struct pv_endpoint to = ep(host_addr(4, 2), PORT);
	struct pv_udp *u, *b;
	struct sender s;
	struct world w;
	uint32_t number, got = 0;

	open_world(&w, (struct world_cfg){ .txqs = 2, .pool = 4096, .bond = PV_BOND_NETVSC, .plain_fallback = true });
	b = sock_bound(&w, 1, PV_AF_INET, any4(), PORT);
	u = sender_open(&w, &s, 1);
	for (number = 0; number < 400; number++) {
		struct pv_udp_recv msg;
		uint32_t came;

		if (number % 100 == 50)
			for (uint32_t i = 0; i < 2; i++)
				world_leg_del(&w, i, 0);
		if (number % 100 == 90)
			for (uint32_t i = 0; i < 2; i++)
				world_leg_add(&w, i, 0);
		(void)world_bond_events(&w);
		CHECK_EQ(sock_send(&w, u, &to, &number, sizeof(number)), sizeof(number));
		world_run(&w, 10 * MS);
		while (sock_recv(b, &came, sizeof(came), &msg) == sizeof(came)) {
			CHECK(came >= got);
			got = came + 1;
		}
		CHECK_EQ(got, number + 1);
	}
	CHECK_EQ(queues_open(&w), 1);
	CHECK_EQ(s.asked, 1);
	pv_udp_close(u);
	pv_udp_close(b);
	CHECK_EQ(queues_open(&w), 0);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
