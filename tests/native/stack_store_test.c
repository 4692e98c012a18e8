/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring whose pool cannot grow, and receivers that do not read: the others go on, and nothing is lost (pv_pool_cfg.fixed). */
#include "tcp_world.h"

#define MS PV_NS_PER_MS
#define FLOWS 40u
#define SOCKETS 30u
#define EACH 200u /* datagrams that nobody reads */
#define PORT 7000
#define PERIOD 4093u

static uint8_t text[PERIOD + 65536], got[65536];

static const uint8_t *from(uint64_t at)
{
	for (uint32_t i = 0; !text[1] && i < sizeof(text); i++)
		text[i] = (uint8_t)(i % PERIOD * 31 + (i % PERIOD >> 8) * 7);
	return text + at % PERIOD;
}

static const struct world_cfg cfg = { .seed = 1, .store = 16384, .tcp = { .sndbuf_max = 16384 } };

/* What senders and a ring need is there all the time. */
static void enough(const struct host *h, int64_t now_ns)
{
	(void)now_ns;
	CHECK(h->pool->nfree > h->pool->total >> 3);
}

struct streams {
	struct world w;
	struct pv_tcp *pair[FLOWS][2];
	uint64_t sent[FLOWS], got[FLOWS];
};

static void write_all(struct streams *s)
{
	for (uint32_t i = 0; i < FLOWS; i++) {
		int64_t rc = tcp_write(&s->w, s->pair[i][0], from(i + s->sent[i]), 8192);

		s->sent[i] += rc > 0 ? (uint64_t)rc : 0;
	}
}

static void read_all(struct streams *s, uint32_t i)
{
	int64_t rc;

	while ((rc = tcp_read(&s->w, s->pair[i][1], got, sizeof(got))) > 0) {
		CHECK(!memcmp(got, from(i + s->got[i]), (size_t)rc));
		s->got[i] += (uint64_t)rc;
	}
	CHECK_EQ(rc, -EAGAIN);
}

static void talk(struct world *w, struct pv_tcp *const pair[2], uint32_t len)
{
	uint32_t back = 0;
	int64_t rc;

	CHECK_EQ(tcp_write(w, pair[0], from(5), len), len);
	for (int i = 0; i < 40 && back < len; i++) {
		world_run(w, MS / 20);
		rc = tcp_read(w, pair[1], got, sizeof(got));
		if (rc > 0) {
			CHECK(!memcmp(got, from(5 + back), (size_t)rc));
			back += (uint32_t)rc;
		}
	}
	CHECK_EQ(back, len);
}

static void streams(uint32_t lost_ppm)
{
	static struct streams streams;
	struct streams *s = &streams;
	const struct pv_tcp_counters *c;
	struct pv_tcp *live[2];
	uint64_t held = 0;

	memset(s, 0, sizeof(*s));
	tcp_world_open(&s->w, &cfg);
	for (uint32_t i = 0; i < FLOWS; i++)
		tcp_pair(&s->w, i & 1 ? 6 : 4, (uint16_t)(PORT + i), s->pair[i]);
	tcp_pair(&s->w, 4, PORT + FLOWS, live);
	pv_sim_wire_impair(s->w.wire, &(struct pv_sim_impair){ .latency_ns = MS / 50, .rate_kbps = 2000000, .loss_ppm = lost_ppm });
	s->w.check = lost_ppm ? NULL : enough;
	for (uint32_t round = 0; round < 600; round++) {
		write_all(s);
		world_run(&s->w, MS / 4);
	}
	for (uint32_t i = 0; i < FLOWS; i++)
		held += s->pair[i][1]->rcv_mem;
	/* More than the ring has by far. */
	CHECK(held > UINT64_C(2) * s->w.host[1].pool->total * pv_pool_config(s->w.host[1].pool)->buf_size);
	CHECK(s->w.host[1].pool->stored > 1024 && s->w.host[1].pool->store->total > 1024);
	c = pv_tcp_table_counters(s->w.host[1].tcp);
	CHECK_EQ(c->rx_no_room + c->rx_ooo_dropped, 0);
	if (!lost_ppm) {
		talk(&s->w, live, 1);
		talk(&s->w, live, 12000);
	}
	for (uint32_t round = 0; round < 4000; round++) {
		uint64_t missing = 0;

		for (uint32_t i = 0; i < FLOWS; i++) {
			read_all(s, i);
			missing += s->sent[i] - s->got[i];
		}
		if (!missing)
			break;
		world_run(&s->w, MS);
	}
	for (uint32_t i = 0; i < FLOWS; i++) {
		CHECK_EQ(s->got[i], s->sent[i]);
		pv_tcp_close(s->pair[i][0], s->w.now);
		pv_tcp_close(s->pair[i][1], s->w.now);
	}
	pv_tcp_close(live[0], s->w.now);
	pv_tcp_close(live[1], s->w.now);
	tcp_fade(&s->w);
	CHECK_EQ(s->w.host[1].pool->store->nfree, s->w.host[1].pool->store->total);
	world_close(&s->w);
}

TEST(streams_that_nobody_reads)
{
	streams(0);
}

/* What waits behind a hole does so there as well. */
TEST(streams_with_holes)
{
	streams(5000);
}

TEST(datagrams_that_nobody_reads)
{
	struct pv_udp *from_all, *live, *u[SOCKETS];
	struct pv_endpoint sender;
	struct world w;

	world_open(&w, &cfg);
	from_all = sock_bound(&w, 0, PV_AF_INET, ip4(10, 0, 0, 1), 4000);
	sender = ep(ip4(10, 0, 0, 1), 4000);
	live = sock_bound(&w, 1, PV_AF_INET, ip4(10, 0, 0, 2), PORT - 1);
	for (uint32_t i = 0; i < SOCKETS; i++) {
		u[i] = sock_bound(&w, 1, PV_AF_INET, ip4(10, 0, 0, 2), (uint16_t)(PORT + i));
		pv_udp_options(u[i])->rcvbuf = 1 << 20;
		pv_udp_options_changed(u[i]);
	}
	w.check = enough;
	for (uint32_t k = 0; k < EACH; k++) {
		for (uint32_t i = 0; i < SOCKETS; i++) {
			struct pv_endpoint to = ep(ip4(10, 0, 0, 2), (uint16_t)(PORT + i));
			/* Some come in fragments. */
			uint32_t len = k % 20 == 7 ? 4000 + i : 100 + k;

			CHECK_EQ(sock_send(&w, from_all, &to, from(k + i), len), len);
		}
		world_run(&w, MS);
	}
	for (uint32_t k = 0; k < 10; k++) {
		struct pv_endpoint to = ep(ip4(10, 0, 0, 2), PORT - 1);
		struct pv_udp_recv m;

		CHECK_EQ(sock_send(&w, from_all, &to, from(k), 1000), 1000);
		world_run(&w, MS);
		CHECK_EQ(sock_recv(live, got, sizeof(got), &m), 1000);
	}
	CHECK(w.host[1].pool->stored > 1024);
	for (uint32_t i = 0; i < SOCKETS; i++) {
		for (uint32_t k = 0; k < EACH; k++) {
			uint32_t len = k % 20 == 7 ? 4000 + i : 100 + k;
			struct pv_udp_recv m;

			CHECK_EQ(sock_recv(u[i], got, sizeof(got), &m), len);
			CHECK(!memcmp(got, from(k + i), len));
			CHECK(pv_addr_eq(&m.from.addr, &sender.addr) && m.from.port == sender.port);
			CHECK_EQ(m.ttl, 64);
		}
		pv_udp_close(u[i]);
	}
	pv_udp_close(live);
	pv_udp_close(from_all);
	world_close(&w);
}

/* No more than the store has, and a datagram for each who reads. */
TEST(a_store_that_is_full)
{
	struct world_cfg small = cfg;
	struct pv_udp *a, *live, *u[SOCKETS];
	struct pv_udp_recv m;
	struct world w;
	uint64_t lost = 0;

	small.store = 512;
	world_open(&w, &small);
	a = sock_open(&w, 0, PV_AF_INET);
	live = sock_bound(&w, 1, PV_AF_INET, ip4(10, 0, 0, 2), PORT - 1);
	for (uint32_t i = 0; i < SOCKETS; i++) {
		u[i] = sock_bound(&w, 1, PV_AF_INET, ip4(10, 0, 0, 2), (uint16_t)(PORT + i));
		pv_udp_options(u[i])->rcvbuf = 1 << 20;
		pv_udp_options_changed(u[i]);
	}
	for (uint32_t k = 0; k < EACH; k++) {
		for (uint32_t i = 0; i < SOCKETS; i++) {
			struct pv_endpoint to = ep(ip4(10, 0, 0, 2), (uint16_t)(PORT + i));

			CHECK_EQ(sock_send(&w, a, &to, from(k + i), 100), 100);
		}
		world_run(&w, MS);
	}
	CHECK_EQ(w.host[1].pool->store->total, 512);
	for (uint32_t k = 0; k < 10; k++) {
		struct pv_endpoint to = ep(ip4(10, 0, 0, 2), PORT - 1);

		CHECK_EQ(sock_send(&w, a, &to, from(k), 1000), 1000);
		world_run(&w, MS);
		CHECK_EQ(sock_recv(live, got, sizeof(got), &m), 1000);
	}
	for (uint32_t i = 0; i < SOCKETS; i++) {
		lost += pv_udp_counters(u[i])->rx_queue_full;
		pv_udp_close(u[i]);
	}
	CHECK(lost > 0);
	pv_udp_close(live);
	pv_udp_close(a);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
