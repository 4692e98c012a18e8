/* SPDX-License-Identifier: BSD-3-Clause */
/* Stamps of what is sent, over a wire in virtual time: which come, when, in which order, what they are charged with, and that nothing of
 * them is left when sockets go, whatever is still under way. */
#include "base/rng.h"
#include "world.h"

#define ALL (PV_STAMP_TX_SW | PV_STAMP_TX_SCHED)
#define FRAME_HEAD (14u + 20u + 8u)

struct pair {
	struct world w;
	struct pv_udp *a, *b;
	struct pv_endpoint to;
};

static void open_pair(struct pair *p, const struct world_cfg *cfg)
{
	world_open(&p->w, cfg);
	for (uint32_t i = 0; i < p->w.nhosts; i++) {
		CHECK_EQ(pv_ring_set_stamps(p->w.host[i].ring, true, true), 0);
		pv_net_stamps_hw(p->w.host[i].net, true);
	}
	p->to = ep(host_addr(4, 2), 7000);
	p->a = sock_open(&p->w, 0, PV_AF_INET);
	p->b = sock_bound(&p->w, 1, PV_AF_INET, host_addr(4, 2), 7000);
	/* Neighbours know each other. */
	CHECK_EQ(sock_send(&p->w, p->a, &p->to, "first", 5), 5);
	world_run(&p->w, PV_NS_PER_MS);
	sock_expect(p->b, "first");
}

static void close_pair(struct pair *p)
{
	pv_udp_close(p->a);
	pv_udp_close(p->b);
	world_run(&p->w, PV_NS_PER_MS);
	world_close(&p->w);
}

static void done(struct pv_stamp *s)
{
	if (s->pkt)
		pv_pkt_put(s->pkt);
}

static void expect(struct pv_udp *u, enum pv_stamp_type type, uint32_t key, struct pv_stamp *s)
{
	CHECK(pv_stampq_get(pv_udp_stamps(u), s));
	CHECK_EQ(s->type, type);
	CHECK_EQ(s->key, key);
}

TEST(software_at_once_and_device_when_it_left)
{
	struct world_cfg cfg = { .seed = 1 };
	struct pv_stamp s;
	struct pair p;

	open_pair(&p, &cfg);
	CHECK_EQ(pv_udp_stamps_set(p.a, ALL | PV_STAMP_TX_HW | PV_STAMP_OPT_ID | PV_STAMP_OPT_TX_SWHW), 0);
	for (uint32_t key = 0; key < 3; key++) {
		int64_t now = p.w.now;

		CHECK_EQ(sock_send(&p.w, p.a, &p.to, "hello", 5), 5);
		CHECK(pv_udp_failed(p.a));
		expect(p.a, PV_STAMP_SCHED, key, &s);
		CHECK(s.ns == now && !s.is_raw && s.frame && s.pkt->total == FRAME_HEAD + 5);
		CHECK(!memcmp(s.pkt->data + FRAME_HEAD, "hello", 5));
		done(&s);
		expect(p.a, PV_STAMP_SND, key, &s);
		CHECK(s.ns == now && !s.is_raw);
		done(&s);
		CHECK(!pv_stampq_get(pv_udp_stamps(p.a), &s));
		CHECK(pv_net_stamps_due(p.w.host[0].net, p.w.now));
		world_run(&p.w, 10 * PV_NS_PER_MS);
		CHECK(!pv_net_stamps_due(p.w.host[0].net, p.w.now));
		expect(p.a, PV_STAMP_SND, key, &s);
		CHECK(s.is_raw && !s.ns && s.iface == p.w.host[0].iface);
		CHECK((int64_t)s.raw >= now && (int64_t)s.raw <= p.w.now);
		CHECK(!memcmp(s.pkt->data + FRAME_HEAD, "hello", 5));
		done(&s);
		CHECK(!pv_udp_failed(p.a));
		sock_expect(p.b, "hello");
	}
	/* Without that option the device's is enough. */
	CHECK_EQ(pv_udp_stamps_set(p.a, ALL | PV_STAMP_TX_HW | PV_STAMP_OPT_TSONLY), 0);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "x", 1), 1);
	world_run(&p.w, 10 * PV_NS_PER_MS);
	expect(p.a, PV_STAMP_SCHED, 0, &s);
	CHECK(!s.pkt);
	expect(p.a, PV_STAMP_SND, 0, &s);
	CHECK(s.is_raw && !s.pkt);
	CHECK(!pv_stampq_get(pv_udp_stamps(p.a), &s));
	/* Nor is it asked while nobody can read what it says. */
	pv_net_stamps_hw(p.w.host[0].net, false);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "y", 1), 1);
	expect(p.a, PV_STAMP_SCHED, 0, &s);
	expect(p.a, PV_STAMP_SND, 0, &s);
	CHECK(!s.is_raw);
	close_pair(&p);
}

TEST(by_message)
{
	struct pv_iov iov = { "m", 1 };
	struct pv_udp_send msg = { .iov = &iov, .iovcnt = 1, .ttl = -1, .tos = -1 };
	struct world_cfg cfg = { .seed = 2 };
	struct pv_stamp s;
	struct pair p;

	open_pair(&p, &cfg);
	msg.to = &p.to;
	/* A socket that never asked. */
	msg.stamp = PV_UDP_STAMP_MSG | PV_STAMP_TX_SW;
	CHECK_EQ(pv_udp_send(p.a, &msg, p.w.now), 1);
	expect(p.a, PV_STAMP_SND, 0, &s);
	done(&s);
	CHECK_EQ(pv_udp_stamps_set(p.a, PV_STAMP_TX_SW | PV_STAMP_OPT_ID | PV_STAMP_OPT_TSONLY), 0);
	msg.stamp = PV_UDP_STAMP_MSG;
	CHECK_EQ(pv_udp_send(p.a, &msg, p.w.now), 1);
	CHECK(!pv_stampq_get(pv_udp_stamps(p.a), &s));
	msg.stamp = PV_UDP_STAMP_KEY;
	msg.stamp_key = 99;
	CHECK_EQ(pv_udp_send(p.a, &msg, p.w.now), 1);
	expect(p.a, PV_STAMP_SND, 99, &s);
	msg.stamp = 0;
	CHECK_EQ(pv_udp_send(p.a, &msg, p.w.now), 1);
	expect(p.a, PV_STAMP_SND, 0, &s);
	/* What is refused has no number. */
	iov.len = 66000;
	CHECK_EQ(pv_udp_send(p.a, &msg, p.w.now), -EMSGSIZE);
	iov.len = 1;
	CHECK_EQ(pv_udp_send(p.a, &msg, p.w.now), 1);
	expect(p.a, PV_STAMP_SND, 1, &s);
	close_pair(&p);
}

TEST(fragments)
{
	static const uint8_t data[9000];
	struct world_cfg cfg = { .seed = 3 };
	struct pv_stamp s;
	struct pair p;

	open_pair(&p, &cfg);
	CHECK_EQ(pv_udp_stamps_set(p.a, ALL | PV_STAMP_TX_HW | PV_STAMP_OPT_TX_SWHW), 0);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, data, sizeof(data)), sizeof(data));
	world_run(&p.w, 10 * PV_NS_PER_MS);
	for (int i = 0; i < 3; i++) {
		expect(p.a, i ? PV_STAMP_SND : PV_STAMP_SCHED, 0, &s);
		CHECK(s.pkt && s.pkt->total == 1514);
		CHECK_EQ(s.is_raw, i == 2);
		done(&s);
	}
	CHECK(!pv_stampq_get(pv_udp_stamps(p.a), &s));
	close_pair(&p);
}

/* Linux charges the queue to the receive buffer, and so do we: what is over is lost, and what is read makes room. */
TEST(bounded)
{
	struct world_cfg cfg = { .seed = 4 };
	struct pv_stamp s;
	struct pair p;
	uint32_t n = 0;

	open_pair(&p, &cfg);
	pv_udp_options(p.a)->rcvbuf = 10000;
	pv_udp_options_changed(p.a);
	CHECK_EQ(pv_udp_stamps_set(p.a, PV_STAMP_TX_SW | PV_STAMP_OPT_ID), 0);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(sock_send(&p.w, p.a, &p.to, "x", 1), 1);
		world_run(&p.w, PV_NS_PER_MS);
		sock_expect(p.b, "x");
	}
	CHECK_EQ(pv_udp_queued_bytes(p.a), 0);
	while (pv_stampq_get(pv_udp_stamps(p.a), &s)) {
		CHECK_EQ(s.key, n);
		n++;
		done(&s);
	}
	CHECK(n >= 10 && n < 20);
	CHECK_EQ(pv_net_counters(p.w.host[0].net)->tx_stamps_lost, 100 - n);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "x", 1), 1);
	expect(p.a, PV_STAMP_SND, 100, &s);
	done(&s);
	close_pair(&p);
}

/* A late stamp of a socket that is gone finds nobody, nor the one that has its place. */
TEST(closed_before_the_stamp)
{
	struct world_cfg cfg = { .seed = 5 };
	struct pv_udp *next;
	struct pv_stamp s;
	struct pair p;

	open_pair(&p, &cfg);
	for (int i = 0; i < 50; i++) {
		struct pv_udp *u = sock_open(&p.w, 0, PV_AF_INET);

		CHECK_EQ(pv_udp_stamps_set(u, PV_STAMP_TX_HW | (i & 1 ? PV_STAMP_OPT_TSONLY : 0)), 0);
		CHECK_EQ(sock_send(&p.w, u, &p.to, "gone", 4), 4);
		pv_udp_close(u);
		next = sock_open(&p.w, 0, PV_AF_INET);
		CHECK_EQ(pv_udp_stamps_set(next, PV_STAMP_TX_HW), 0);
		world_run(&p.w, 10 * PV_NS_PER_MS);
		CHECK(!pv_stampq_get(pv_udp_stamps(next), &s));
		pv_udp_close(next);
		sock_expect(p.b, "gone");
	}
	/* And one whose frames are with the ring when everything ends. */
	CHECK_EQ(pv_udp_stamps_set(p.a, PV_STAMP_TX_HW | ALL), 0);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "last", 4), 4);
	pv_udp_close(p.a);
	pv_udp_close(p.b);
	world_close(&p.w);
}

TEST(no_memory)
{
	struct world_cfg cfg = { .seed = 6 };
	struct pv_stamp s;
	struct pair p;

	open_pair(&p, &cfg);
	p.w.mem.fail_in = 0;
	CHECK_EQ(pv_udp_stamps_set(p.a, PV_STAMP_TX_SW), -ENOMEM);
	p.w.mem.fail_in = 1;
	CHECK_EQ(pv_udp_stamps_set(p.a, PV_STAMP_TX_SW), -ENOMEM);
	p.w.mem.fail_in = 2;
	CHECK_EQ(pv_udp_stamps_set(p.a, PV_STAMP_TX_SW), 0);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "x", 1), 1);
	CHECK(!pv_stampq_get(pv_udp_stamps(p.a), &s));
	p.w.mem.fail_in = -1;
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "y", 1), 1);
	expect(p.a, PV_STAMP_SND, 0, &s);
	done(&s);
	close_pair(&p);
}

TEST(purged_with_its_pool)
{
	struct world_cfg cfg = { .seed = 7 };
	struct pv_stamp s;
	struct pair p;

	open_pair(&p, &cfg);
	CHECK_EQ(pv_udp_stamps_set(p.a, PV_STAMP_TX_SW), 0);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "x", 1), 1);
	pv_net_stamps_purge(p.w.host[0].net, p.w.host[1].pool);
	expect(p.a, PV_STAMP_SND, 0, &s);
	CHECK(s.pkt);
	done(&s);
	CHECK_EQ(sock_send(&p.w, p.a, &p.to, "x", 1), 1);
	pv_net_stamps_purge(p.w.host[0].net, p.w.host[0].pool);
	expect(p.a, PV_STAMP_SND, 0, &s);
	CHECK(!s.pkt && s.ns);
	close_pair(&p);
}

#define SOCKS 12

struct state {
	struct pv_udp *u[SOCKS];
	uint32_t next[SOCKS]; /* the number that its next stamp of either kind cannot be below */
};

static void step(struct pair *p, struct state *st, struct pv_rng *rng)
{
	uint32_t i = pv_rng_u32(rng) % SOCKS, what = pv_rng_u32(rng);
	struct pv_stamp s;

	if (!st->u[i]) {
		st->u[i] = sock_open(&p->w, 0, PV_AF_INET);
		st->next[i] = 0;
		CHECK_EQ(pv_udp_stamps_set(st->u[i], (what & (ALL | PV_STAMP_TX_HW | PV_STAMP_OPT_TSONLY | PV_STAMP_OPT_TX_SWHW)) |
							 PV_STAMP_OPT_ID),
			 0);
		pv_udp_options(st->u[i])->rcvbuf = 2000 + what % 20000;
		pv_udp_options_changed(st->u[i]);
		return;
	}
	switch (what % 8) {
	case 0:
		pv_udp_close(st->u[i]);
		st->u[i] = NULL;
		break;
	case 1:
	case 2:
		while (pv_udp_stamps(st->u[i]) && pv_stampq_get(pv_udp_stamps(st->u[i]), &s)) {
			/* Of each kind in order; a device's may come behind a later one of ours. */
			CHECK(s.is_raw || s.key >= st->next[i]);
			if (!s.is_raw)
				st->next[i] = s.key;
			done(&s);
		}
		break;
	case 3:
		world_run(&p->w, what % PV_NS_PER_MS);
		break;
	default:
		(void)sock_send(&p->w, st->u[i], &p->to, (const char[3000]){ 0 }, what % 3000);
	}
}

TEST(random)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct world_cfg cfg = { .seed = seed, .pool = 256, .tx_depth = 32 };
		struct state st = { .next = { 0 } };
		struct pv_rng rng;
		struct pair p;

		pv_rng_seed(&rng, seed);
		open_pair(&p, &cfg);
		for (int i = 0; i < 2000; i++)
			step(&p, &st, &rng);
		for (int i = 0; i < SOCKS; i++)
			if (st.u[i])
				pv_udp_close(st.u[i]);
		close_pair(&p);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
