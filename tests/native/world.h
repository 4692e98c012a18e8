/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts on one simulated wire in virtual time. Host i has MAC 02:00:00:00:00:(i+1), 10.0.0.(i+1)/24 and fd00::(i+1)/64 and its
 * link-local fe80::(i+1); a test may add addresses. world_close checks that every packet and every byte came back.
 * With cfg.bond each host's ring is a bond of two legs, ids 1 and 2, the second one by a wire of its own.
 */
#ifndef WORLD_H
#define WORLD_H

#include <errno.h>

#include "ring/bond.h"
#include "ring/sim.h"
#include "stack/stack.h"
#include "test.h"
#include "testmem.h"

#define WORLD_HOSTS 4
#define WORLD_LEGS 2
#define WORLD_START_NS INT64_C(1000000000)

struct world_cfg {
	uint64_t seed;
	uint32_t hosts; /* 0: 2 */
	uint32_t mtu; /* 0: 1500 */
	uint32_t pool; /* packets a host; 0: 1024 */
	uint32_t store; /* so many more for what waits to be read: pv_pool_cfg.fixed */
	uint32_t rx_depth, tx_depth; /* 0: 256 */
	uint32_t rx_csum, tx_csum;
	uint32_t tso_max;
	uint32_t txqs, pacing_min_kbps, pacing_max_kbps; /* of the rings */
	bool pacing_burst;
	enum pv_bond_mode bond; /* 0: none */
	uint32_t policy; /* of the bond's hash */
	bool plain_fallback; /* the bond's second leg has no checksums, segmentation or queues */
	uint32_t extra4; /* further addresses 10.0.0.(i+1+100k) of each host */
	struct pv_udp_cfg udp;
	struct pv_tcp_cfg tcp;
	struct pv_net_cfg net;
};

struct host {
	struct pv_pool *pool;
	struct pv_ring *ring;
	struct pv_ring *leg[WORLD_LEGS]; /* of a bond; NULL: not there */
	struct pv_stack *stack;
	struct pv_net *net;
	struct pv_udp_table *udp;
	struct pv_tcp_table *tcp; /* set by tcp_world_open */
	uint32_t iface;
};

struct world {
	struct testmem mem;
	struct pv_sim_wire *wire, *wire2; /* wire2: of the bonds' second legs; NULL: no bonds */
	struct world_cfg cfg;
	struct host host[WORLD_HOSTS];
	uint32_t nhosts;
	int64_t now;
	void (*check)(const struct host *h, int64_t now_ns); /* what must hold of a host after each of its turns; may be NULL */
};

static inline struct pv_addr ip4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	uint8_t v[4] = { a, b, c, d };

	return pv_addr_from4(v);
}

/* fd00::n */
static inline struct pv_addr ip6(uint8_t n)
{
	return (struct pv_addr){ .b = { 0xfd, [15] = n } };
}

static inline struct pv_addr ll6(uint8_t n)
{
	return (struct pv_addr){ .b = { 0xfe, 0x80, [15] = n } };
}

static inline struct pv_addr any4(void)
{
	return ip4(0, 0, 0, 0);
}

static inline struct pv_addr any6(void)
{
	return (struct pv_addr){ 0 };
}

static inline struct pv_endpoint ep(struct pv_addr a, uint16_t port)
{
	return (struct pv_endpoint){ .addr = a, .port = port };
}

/* Family 4 or 6, host number from 1. */
static inline struct pv_addr host_addr(int family, uint8_t n)
{
	return family == 4 ? ip4(10, 0, 0, n) : ip6(n);
}

static inline struct pv_sim_ring_cfg world_ring_cfg(const struct world_cfg *c, uint32_t i)
{
	return (struct pv_sim_ring_cfg){ .mac = { 2, 0, 0, 0, 0, (uint8_t)(i + 1) },
					 .mtu = c->mtu ? c->mtu : 1500,
					 .rx_depth = c->rx_depth,
					 .tx_depth = c->tx_depth,
					 .rx_csum = c->rx_csum,
					 .tx_csum = c->tx_csum,
					 .tso_max = c->tso_max,
					 .txqs = c->txqs,
					 .pacing_min_kbps = c->pacing_min_kbps,
					 .pacing_max_kbps = c->pacing_max_kbps,
					 .pacing_burst = c->pacing_burst };
}

static inline void world_leg_add(struct world *w, uint32_t host, uint32_t leg)
{
	const struct world_cfg *c = &w->cfg;
	struct pv_sim_ring_cfg cfg = world_ring_cfg(c, host);
	struct pv_bond_leg_cfg lc = { .id = leg + 1,
				      .active = !leg || c->bond == PV_BOND_XOR || c->bond == PV_BOND_8023AD,
				      .fallback = leg == 1 && c->bond == PV_BOND_NETVSC };
	struct host *h = &w->host[host];

	if (leg && c->plain_fallback)
		cfg.tx_csum = cfg.rx_csum = cfg.tso_max = cfg.txqs = cfg.pacing_min_kbps = cfg.pacing_max_kbps = 0;
	CHECK_EQ(pv_sim_open(&h->leg[leg], leg ? w->wire2 : w->wire, h->pool, &cfg), 0);
	CHECK_EQ(pv_bond_leg_add(h->ring, h->leg[leg], &lc), 0);
}

static inline void world_leg_del(struct world *w, uint32_t host, uint32_t leg)
{
	CHECK_EQ(pv_bond_leg_del(w->host[host].ring, leg + 1), 0);
	w->host[host].leg[leg] = NULL;
}

static inline void world_bond_open(struct world *w, uint32_t i)
{
	struct pv_bond_cfg cfg = { .mode = w->cfg.bond,
				   .hash_policy = w->cfg.policy,
				   .mac = { 2, 0, 0, 0, 0, (uint8_t)(i + 1) },
				   .mtu = w->cfg.mtu ? w->cfg.mtu : 1500,
				   .name = "sim" };
	char err[128];

	CHECK_EQ(pv_bond_open(&w->host[i].ring, &w->mem.mem, w->host[i].pool, &cfg, err, sizeof(err)), 0);
	for (uint32_t leg = 0; leg < WORLD_LEGS; leg++)
		world_leg_add(w, i, leg);
}

/* As the engine does: what bonds say of their legs reaches the stacks. How often traffic went over to another leg. */
static inline uint32_t world_bond_events(struct world *w)
{
	enum pv_ring_event ev;
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->nhosts; i++) {
		while ((ev = pv_ring_event(w->host[i].ring)) != PV_RING_EV_NONE) {
			if (ev != PV_RING_EV_MOVED)
				continue;
			CHECK_EQ(pv_stack_iface_moved(w->host[i].stack, w->host[i].iface, w->now), 0);
			n++;
		}
	}
	return n;
}

static inline void world_advance(struct world *w)
{
	pv_sim_wire_advance(w->wire, w->now);
	if (w->wire2)
		pv_sim_wire_advance(w->wire2, w->now);
}

static inline void world_host_open(struct world *w, uint32_t i, const struct world_cfg *c)
{
	struct host *h = &w->host[i];
	uint32_t mtu = c->mtu ? c->mtu : 1500;
	struct pv_pool_cfg pool = { .buf_size = PV_NET_HEADROOM + mtu + 18,
				    .headroom = PV_NET_HEADROOM,
				    .count = c->pool ? c->pool : 1024 };
	struct pv_sim_ring_cfg ring = world_ring_cfg(c, i);
	struct pv_stack_cfg stack = { .mem = &w->mem.mem, .seed = c->seed + i, .udp = c->udp, .tcp = c->tcp, .net = c->net };
	struct pv_iface_cfg iface = { .name = "sim0", .steer = PV_STEER_ADDRESS };
	int rc;

	pool.max = pool.count + c->store;
	pool.chunk = c->store ? 256 : 0;
	pool.fixed = c->store;
	CHECK_EQ(pv_pool_open(&h->pool, &w->mem.mem, &pool), 0);
	if (c->bond)
		world_bond_open(w, i);
	else
		CHECK_EQ(pv_sim_open(&h->ring, w->wire, h->pool, &ring), 0);
	CHECK_EQ(pv_stack_open(&h->stack, &stack), 0);
	h->net = pv_stack_net(h->stack);
	h->udp = pv_stack_udp(h->stack);
	iface.ring = h->ring;
	iface.addr[iface.naddr++] = (struct pv_ifaddr){ ip4(10, 0, 0, (uint8_t)(i + 1)), 24 };
	iface.addr[iface.naddr++] = (struct pv_ifaddr){ ip6((uint8_t)(i + 1)), 64 };
	iface.addr[iface.naddr++] = (struct pv_ifaddr){ ll6((uint8_t)(i + 1)), 64 };
	for (uint32_t k = 1; k <= c->extra4; k++)
		iface.addr[iface.naddr++] = (struct pv_ifaddr){ ip4(10, 0, 0, (uint8_t)(i + 1 + 100 * k)), 24 };
	rc = pv_stack_iface_add(h->stack, &iface);
	CHECK(rc > 0);
	h->iface = (uint32_t)rc;
}

static inline void world_open(struct world *w, const struct world_cfg *c)
{
	*w = (struct world){ .now = WORLD_START_NS, .nhosts = c->hosts ? c->hosts : 2, .cfg = *c };
	testmem_init(&w->mem);
	CHECK_EQ(pv_sim_wire_open(&w->wire, &w->mem.mem, c->seed), 0);
	if (c->bond)
		CHECK_EQ(pv_sim_wire_open(&w->wire2, &w->mem.mem, c->seed + 1), 0);
	world_advance(w);
	for (uint32_t i = 0; i < w->nhosts; i++)
		world_host_open(w, i, c);
}

/* All that can happen at this instant; then time jumps to the next thing due, until `ns` have passed. */
static inline void world_run(struct world *w, int64_t ns)
{
	int64_t end = w->now + ns;
	uint32_t turns = 0;

	for (;;) {
		int64_t next = PV_NEVER;
		uint32_t busy = 0;

		for (uint32_t i = 0; i < w->nhosts; i++)
			(void)pv_net_kick(w->host[i].net);
		for (uint32_t i = 0; i < w->nhosts; i++) {
			busy += pv_stack_poll(w->host[i].stack, w->now, 64);
			if (w->check)
				w->check(&w->host[i], w->now);
		}
		CHECK(++turns < 10000000);
		if (busy)
			continue;
		for (uint32_t i = 0; i < w->nhosts; i++)
			next = PV_MIN(next, pv_stack_deadline(w->host[i].stack));
		next = PV_MIN(next, pv_sim_wire_deadline(w->wire));
		if (w->wire2)
			next = PV_MIN(next, pv_sim_wire_deadline(w->wire2));
		if (next > end)
			break;
		w->now = PV_MAX(w->now, next);
		world_advance(w);
	}
	w->now = end;
	world_advance(w);
}

/* For whoever looks at a failed test. */
static inline void __attribute__((unused)) world_dump(const struct world *w)
{
	for (uint32_t i = 0; i < w->nhosts; i++) {
		const struct pv_net_counters *n = pv_net_counters(w->host[i].net);
		const struct pv_udp_counters *u = pv_udp_table_counters(w->host[i].udp);

		fprintf(stderr, "host %u:", i);
#define WORLD_SAY_NET(name, kind, unit, help)                                                                                      \
	if (n->name)                                                                                                               \
		fprintf(stderr, " net." #name "=%" PRIu64, n->name);
#define WORLD_SAY_UDP(name, kind, unit, help)                                                                                      \
	if (u->name)                                                                                                               \
		fprintf(stderr, " udp." #name "=%" PRIu64, u->name);
		PV_NET_COUNTERS(WORLD_SAY_NET)
		PV_UDP_COUNTERS(WORLD_SAY_UDP)
		fprintf(stderr, "\n");
	}
}

/* Sockets are the test's to close first. */
static inline void world_close(struct world *w)
{
	for (uint32_t i = 0; i < w->nhosts; i++) {
		struct host *h = &w->host[i];

		pv_stack_close(h->stack);
		pv_ring_close(h->ring);
		CHECK_EQ(pv_pool_close(h->pool), 0);
	}
	pv_sim_wire_close(w->wire);
	if (w->wire2)
		pv_sim_wire_close(w->wire2);
	CHECK_EQ(w->mem.blocks, 0);
	CHECK_EQ(w->mem.bytes, 0);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------------- */

static inline struct pv_udp *sock_open(struct world *w, uint32_t host, enum pv_family family)
{
	struct pv_udp *u;

	CHECK_EQ(pv_udp_open(w->host[host].udp, family, NULL, &u), 0);
	return u;
}

static inline struct pv_udp *sock_bound(struct world *w, uint32_t host, enum pv_family family, struct pv_addr addr, uint16_t port)
{
	struct pv_udp *u = sock_open(w, host, family);
	struct pv_endpoint e = ep(addr, port);

	CHECK_EQ(pv_udp_bind(u, &e), 0);
	return u;
}

static inline uint16_t sock_port(const struct pv_udp *u)
{
	struct pv_endpoint e;

	pv_udp_local(u, &e);
	return e.port;
}

static inline int64_t sock_send(struct world *w, struct pv_udp *u, const struct pv_endpoint *to, const void *data, size_t len)
{
	struct pv_iov iov = { data, len };
	struct pv_udp_send msg = { .iov = &iov, .iovcnt = 1, .to = to, .ttl = -1, .tos = -1 };

	return pv_udp_send(u, &msg, w->now);
}

static inline int64_t sock_recv(struct pv_udp *u, void *data, size_t len, struct pv_udp_recv *msg)
{
	struct pv_iov iov = { data, len };

	*msg = (struct pv_udp_recv){ .iov = &iov, .iovcnt = 1 };
	return pv_udp_recv(u, msg);
}

/* The datagram at the head is exactly this text. */
static inline void sock_expect(struct pv_udp *u, const char *text)
{
	char buf[256];
	struct pv_udp_recv msg;

	CHECK_EQ(sock_recv(u, buf, sizeof(buf), &msg), strlen(text));
	CHECK(!memcmp(buf, text, strlen(text)));
}

static inline void sock_expect_none(struct pv_udp *u)
{
	char buf[16];
	struct pv_udp_recv msg;

	CHECK_EQ(sock_recv(u, buf, sizeof(buf), &msg), -EAGAIN);
}

#endif
