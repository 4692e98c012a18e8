/* SPDX-License-Identifier: BSD-3-Clause */
/* Which flow rules sockets have on an interface of the kernel's: after every change exactly those that they need. */
#include "base/rng.h"
#include "steer.h"
#include "udp/udp_int.h"

#define TUPLES (1u << PV_FLOW_3TUPLE | 1u << PV_FLOW_5TUPLE)

static struct pv_udp_table *table;

static struct bench *steer_open(uint32_t flow_kinds)
{
	struct bench *b = steer_bench(flow_kinds);
	struct pv_udp_cfg uc = { .seed = 1 };

	CHECK_EQ(pv_udp_table_open(&table, b->net, &b->mem.mem, &uc), 0);
	pv_udp_steer_changed(table);
	return b;
}

static void steer_close(struct bench *b)
{
	CHECK_EQ(table->rules.count, 0);
	pv_udp_table_close(table);
	bench_close(b);
}

/* "10.0.0.1:7" or "10.0.0.1:7<10.0.0.2:9"; the count of rules that are so. */
static bool has(const struct bench *b, const char *dst, uint16_t port, const char *src, uint16_t sport)
{
	struct pv_addr d = ip(dst), s = src ? ip(src) : (struct pv_addr){ 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->fake[0]->nflow; i++) {
		const struct pv_flow *f = &b->fake[0]->flow[i];

		n += b->fake[0]->flow_on[i] && f->kind == (src ? PV_FLOW_5TUPLE : PV_FLOW_3TUPLE) && f->l4_proto == 17 &&
		     pv_addr_eq(&f->dst, &d) && f->dst_port == port && pv_addr_eq(&f->src, &s) && f->src_port == sport;
	}
	CHECK(n <= 1);
	return n;
}

static struct pv_udp *sock(enum pv_family family, const char *local, uint16_t port, bool reuse)
{
	struct pv_endpoint ep = { .addr = ip(local), .port = port };
	struct pv_udp *u;

	CHECK_EQ(pv_udp_open(table, family, NULL, &u), 0);
	pv_udp_options(u)->reuse_port = reuse;
	if (port)
		CHECK_EQ(pv_udp_bind(u, &ep), 0);
	return u;
}

static void set_addrs(struct bench *b, const char *const *text, uint32_t n)
{
	struct pv_ifaddr a[PV_IFACE_ADDR_MAX];
	struct pv_iface_state st = { .name = "a", .addr = a, .naddr = n, .mtu = 1500, .link_up = true };

	for (uint32_t i = 0; i < n; i++)
		a[i] = (struct pv_ifaddr){ .addr = ip(text[i]), .prefix_len = 24 };
	CHECK_EQ(pv_net_iface_set(b->net, b->iface[0], &st), 0);
	pv_udp_steer_changed(table);
}

TEST(bound_sockets)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *one = sock(PV_AF_INET, "10.0.0.1", 7, false), *any4 = sock(PV_AF_INET, "0.0.0.0", 8, false);
	struct pv_udp *any6 = sock(PV_AF_INET6, "::", 9, false), *bcast = sock(PV_AF_INET, "10.0.0.255", 10, false);
	struct pv_udp *none = sock(PV_AF_INET, "0.0.0.0", 0, false);
	int err;

	CHECK(has(b, "10.0.0.1", 7, NULL, 0) && has(b, "10.0.0.1", 8, NULL, 0));
	CHECK(has(b, "10.0.0.1", 9, NULL, 0) && has(b, "fd00::1", 9, NULL, 0)); /* both families */
	CHECK_EQ(live(b), 4);
	CHECK_EQ(pv_udp_steered(any6, &err), 2);
	CHECK_EQ(pv_udp_steered(bcast, &err), 0); /* broadcasts are everybody's */
	CHECK_EQ(pv_udp_steered(none, &err), 0);
	CHECK(pv_mac_eq(b->fake[0]->flow[0].dst_mac, b->fake[0]->ring.caps.mac));
	pv_udp_close(one);
	CHECK(!has(b, "10.0.0.1", 7, NULL, 0));
	pv_udp_close(any4);
	pv_udp_close(any6);
	pv_udp_close(bcast);
	pv_udp_close(none);
	steer_close(b);
}

TEST(v6only_takes_no_ipv4)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u = sock(PV_AF_INET6, "::", 0, false);
	struct pv_endpoint ep = { .addr = ip("::"), .port = 9 };

	pv_udp_options(u)->v6only = true;
	pv_udp_options_changed(u);
	CHECK_EQ(pv_udp_bind(u, &ep), 0);
	CHECK(has(b, "fd00::1", 9, NULL, 0));
	CHECK_EQ(live(b), 1);
	pv_udp_close(u);
	steer_close(b);
}

TEST(connected_sockets_take_their_flow)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u = sock(PV_AF_INET, "0.0.0.0", 7, false), *fresh = sock(PV_AF_INET, "0.0.0.0", 0, false);
	struct pv_endpoint to = { .addr = ip("10.0.0.2"), .port = 99 }, local;

	CHECK_EQ(pv_udp_connect(u, &to, b->now), 0);
	CHECK(has(b, "10.0.0.1", 7, "10.0.0.2", 99));
	CHECK_EQ(live(b), 1);
	to.port = 98;
	CHECK_EQ(pv_udp_connect(u, &to, b->now), 0);
	CHECK(has(b, "10.0.0.1", 7, "10.0.0.2", 98));
	CHECK_EQ(live(b), 1);
	CHECK_EQ(pv_udp_connect(u, NULL, b->now), 0);
	CHECK(has(b, "10.0.0.1", 7, NULL, 0));
	CHECK_EQ(live(b), 1);
	/* To no port: from any port of the peer. */
	to.port = 0;
	CHECK_EQ(pv_udp_connect(u, &to, b->now), 0);
	CHECK(has(b, "10.0.0.1", 7, NULL, 0));
	to.port = 97;
	CHECK_EQ(pv_udp_connect(fresh, &to, b->now), 0);
	pv_udp_local(fresh, &local);
	CHECK(has(b, "10.0.0.1", local.port, "10.0.0.2", 97));
	CHECK_EQ(live(b), 2);
	CHECK_EQ(pv_udp_connect(fresh, NULL, b->now), 0); /* its port goes with the association */
	CHECK_EQ(live(b), 1);
	pv_udp_close(u);
	pv_udp_close(fresh);
	steer_close(b);
}

TEST(ring_without_5_tuples)
{
	struct bench *b = steer_open(1u << PV_FLOW_3TUPLE);
	struct pv_udp *u = sock(PV_AF_INET, "10.0.0.1", 7, false);
	struct pv_endpoint to = { .addr = ip("10.0.0.2"), .port = 99 };

	CHECK_EQ(pv_udp_connect(u, &to, b->now), 0);
	CHECK(has(b, "10.0.0.1", 7, NULL, 0));
	CHECK_EQ(b->fake[0]->nflow, 1); /* it never left */
	pv_udp_close(u);
	steer_close(b);
}

TEST(sockets_share_a_rule)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u[50];

	for (int i = 0; i < 50; i++)
		u[i] = sock(PV_AF_INET, i % 2 ? "10.0.0.1" : "0.0.0.0", 7, true);
	CHECK_EQ(b->fake[0]->nflow, 1);
	for (int i = 0; i < 49; i++)
		pv_udp_close(u[i]);
	CHECK_EQ(live(b), 1);
	pv_udp_close(u[49]);
	steer_close(b);
}

TEST(addresses_change)
{
	static const char *const more[] = { "10.0.0.1", "10.0.0.2", "fd00::1" }, *const other[] = { "10.0.0.3" };
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *any = sock(PV_AF_INET6, "::", 7, false), *one = sock(PV_AF_INET, "10.0.0.1", 8, false);
	uint32_t made = b->fake[0]->nflow;

	set_addrs(b, more, 3);
	CHECK(has(b, "10.0.0.2", 7, NULL, 0));
	CHECK_EQ(b->fake[0]->nflow, made + 1); /* the others stayed as they were */
	CHECK_EQ(live(b), 4);
	set_addrs(b, other, 1);
	CHECK(has(b, "10.0.0.3", 7, NULL, 0));
	CHECK_EQ(live(b), 1);
	set_addrs(b, NULL, 0);
	CHECK_EQ(live(b), 0);
	set_addrs(b, more, 3);
	CHECK(has(b, "10.0.0.1", 8, NULL, 0));
	CHECK_EQ(live(b), 4);
	pv_udp_close(any);
	pv_udp_close(one);
	steer_close(b);
}

TEST(groups)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u = sock(PV_AF_INET, "0.0.0.0", 7, false), *g = sock(PV_AF_INET, "239.1.1.1", 8, false);
	struct pv_udp *one = sock(PV_AF_INET, "10.0.0.1", 9, false), *late = sock(PV_AF_INET, "0.0.0.0", 0, false);
	struct pv_addr group = ip("239.1.1.1"), src = ip("10.0.0.9");
	struct pv_endpoint ep = { .addr = ip("0.0.0.0"), .port = 10 };
	uint32_t iface = b->iface[0];

	CHECK_EQ(live(b), 2);
	CHECK_EQ(pv_udp_join(u, iface, &group, NULL, b->now), 0);
	CHECK(has(b, "239.1.1.1", 7, NULL, 0));
	CHECK_EQ(pv_udp_join(g, iface, &group, &src, b->now), 0);
	CHECK(has(b, "239.1.1.1", 8, NULL, 0));
	CHECK_EQ(pv_udp_join(one, iface, &group, NULL, b->now), 0); /* bound to another address: gets none */
	CHECK_EQ(pv_udp_join(late, iface, &group, NULL, b->now), 0); /* before it has a port */
	CHECK_EQ(live(b), 4);
	CHECK_EQ(pv_udp_bind(late, &ep), 0);
	CHECK(has(b, "239.1.1.1", 10, NULL, 0));
	CHECK_EQ(live(b), 6);
	CHECK_EQ(pv_udp_leave(u, iface, &group, NULL, b->now), 0);
	CHECK_EQ(pv_udp_leave(g, iface, &group, &src, b->now), 0);
	CHECK(!has(b, "239.1.1.1", 7, NULL, 0) && !has(b, "239.1.1.1", 8, NULL, 0));
	/* Closing leaves its groups, too. */
	pv_udp_close(u);
	pv_udp_close(g);
	pv_udp_close(one);
	pv_udp_close(late);
	CHECK_EQ(live(b), 0);
	steer_close(b);
}

TEST(left_to_the_kernel_and_bound_elsewhere)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u = sock(PV_AF_INET, "10.0.0.1", 7, false);

	pv_udp_steer_off(u, true);
	CHECK_EQ(live(b), 0);
	pv_udp_steer_off(u, false);
	CHECK_EQ(live(b), 1);
	pv_udp_options(u)->bound_iface = 20;
	pv_udp_options_changed(u);
	CHECK_EQ(live(b), 0);
	pv_udp_options(u)->bound_iface = b->iface[0];
	pv_udp_options_changed(u);
	CHECK_EQ(live(b), 1);
	pv_udp_close(u);
	steer_close(b);
}

TEST(interface_goes_and_comes)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u = sock(PV_AF_INET, "0.0.0.0", 7, false);
	struct pv_addr group = ip("239.1.1.1");
	struct pv_iface_cfg again = *pv_iface_config(pv_net_iface(b->net, b->iface[0]));

	CHECK_EQ(pv_udp_join(u, b->iface[0], &group, NULL, b->now), 0);
	CHECK_EQ(live(b), 2);
	pv_udp_iface_gone(table, b->iface[0]);
	CHECK_EQ(live(b), 0);
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[0]), 0);
	CHECK_EQ(pv_net_iface_add(b->net, &again), b->iface[0]);
	pv_udp_steer_changed(table);
	CHECK(has(b, "10.0.0.1", 7, NULL, 0));
	CHECK_EQ(live(b), 1); /* memberships ended with the interface */
	pv_udp_close(u);
	steer_close(b);
}

/* The next interface of its number is another one. */
TEST(bound_to_an_interface_that_goes)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u = sock(PV_AF_INET, "0.0.0.0", 7, false);
	struct pv_iface_cfg again = *pv_iface_config(pv_net_iface(b->net, b->iface[0]));

	pv_udp_options(u)->bound_iface = b->iface[0];
	pv_udp_options(u)->mcast_iface4 = b->iface[0];
	pv_udp_options_changed(u);
	CHECK_EQ(live(b), 1);
	pv_udp_iface_gone(table, b->iface[0]);
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[0]), 0);
	CHECK_EQ(pv_net_iface_add(b->net, &again), b->iface[0]);
	pv_udp_steer_changed(table);
	CHECK_EQ(live(b), 0);
	CHECK_EQ(pv_udp_options(u)->bound_iface, PV_UDP_IFACE_GONE);
	CHECK_EQ(pv_udp_options(u)->mcast_iface4, PV_UDP_IFACE_GONE);
	pv_udp_options(u)->bound_iface = 0;
	pv_udp_options_changed(u);
	CHECK_EQ(live(b), 1);
	pv_udp_close(u);
	steer_close(b);
}

TEST(rules_that_cannot_be_had)
{
	struct bench *b = steer_open(TUPLES);
	struct pv_udp *u;
	int err;

	b->fake[0]->flow_rc = -ENOSPC;
	u = sock(PV_AF_INET, "10.0.0.1", 7, false);
	CHECK_EQ(pv_udp_steered(u, &err), 0);
	CHECK_EQ(err, -ENOSPC);
	b->fake[0]->flow_rc = 0;
	pv_udp_steer_changed(table);
	CHECK_EQ(pv_udp_steered(u, &err), 1);
	CHECK_EQ(err, 0);
	/* Without memory neither. */
	for (long fail = 1; fail < 6; fail++) {
		struct pv_endpoint ep = { .addr = ip("0.0.0.0"), .port = (uint16_t)(100 + fail) };
		struct pv_udp *v = sock(PV_AF_INET, "0.0.0.0", 0, false);

		b->mem.fail_in = fail - 1;
		(void)pv_udp_bind(v, &ep);
		b->mem.fail_in = -1;
		pv_udp_close(v);
	}
	CHECK_EQ(live(b), 1);
	pv_udp_close(u);
	steer_close(b);
}

/* Any order of changes: afterwards each socket's rules are those that one made anew would have. */
TEST(random_changes)
{
	static const char *const addrs[] = { "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1" };

	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct bench *b = steer_open(TUPLES);
		struct pv_udp *u[8] = { NULL };
		struct pv_addr group = ip("239.1.1.1");
		struct pv_rng rng;

		pv_rng_seed(&rng, seed);
		for (int i = 0; i < 60; i++) {
			uint32_t k = (uint32_t)pv_rng_below(&rng, 8);
			struct pv_endpoint to = { .addr = ip("10.0.0.50"), .port = (uint16_t)(1 + pv_rng_below(&rng, 2)) };
			uint32_t all = 0;
			int err;

			if (b->fake[0]->nflow > FLOW_LOG - 20)
				break;
			if (!u[k])
				u[k] =
				    sock(PV_AF_INET, pv_rng_below(&rng, 2) ? "0.0.0.0" : "10.0.0.1", (uint16_t)(7 + k / 2), true);
			switch (pv_rng_below(&rng, 6)) {
			case 0:
				set_addrs(b, addrs, 1 + (uint32_t)pv_rng_below(&rng, 4));
				break;
			case 1:
				(void)pv_udp_connect(u[k], pv_rng_below(&rng, 2) ? &to : NULL, b->now);
				break;
			case 2:
				(void)pv_udp_join(u[k], b->iface[0], &group, NULL, b->now);
				break;
			case 3:
				(void)pv_udp_leave(u[k], b->iface[0], &group, NULL, b->now);
				break;
			case 4:
				pv_udp_close(u[k]);
				u[k] = NULL;
				break;
			}
			for (k = 0; k < 8; k++) {
				uint32_t n = u[k] ? pv_udp_steered(u[k], &err) : 0;

				all += n;
				if (!u[k])
					continue;
				CHECK_EQ(err, 0);
				pv_udp_steer_off(u[k], true);
				CHECK_EQ(pv_udp_steered(u[k], &err), 0);
				pv_udp_steer_off(u[k], false);
				CHECK_EQ(pv_udp_steered(u[k], &err), n);
			}
			CHECK(live(b) <= all && live(b) == table->rules.count);
		}
		for (uint32_t k = 0; k < 8; k++)
			if (u[k])
				pv_udp_close(u[k]);
		CHECK_EQ(live(b), 0);
		steer_close(b);
	}
}

static uint32_t routed_by;

static int a_route(void *ctx, const struct pv_host_query *q, struct pv_host_route *out)
{
	int rc = any_route(ctx, q, out);

	out->kernel_index = routed_by;
	return rc;
}

static uint32_t live_on(const struct fake *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->nflow; i++)
		n += f->flow_on[i];
	return n;
}

/* The next datagram goes where the route leads by then: the rule for what the peer answers is there, and readers see that interface. */
TEST(a_route_that_changes)
{
	static const struct pv_host_ops ops = { .route = a_route, .resolve = no_resolve };
	const struct bench_cfg cfg = { .net = { .host = &ops }, .steer = PV_STEER_SOCKET, .flow_kinds = TUPLES, .second = true };
	struct pv_endpoint to = { .addr = ip("10.9.0.2"), .port = 99 };
	struct pv_iov iov = { .base = "x", .len = 1 };
	struct pv_udp_send msg = { .iov = &iov, .iovcnt = 1, .ttl = -1, .tos = -1 };
	struct bench *b = bench_open(&cfg);
	struct pv_udp_cfg uc = { .seed = 1 };
	struct pv_udp *u;

	for (uint32_t i = 0; i < 2; i++)
		b->net->iface[b->iface[i]]->cfg.kernel_index = 7 + i;
	routed_by = 7;
	CHECK_EQ(pv_udp_table_open(&table, b->net, &b->mem.mem, &uc), 0);
	pv_udp_steer_changed(table);
	u = sock(PV_AF_INET, "10.0.0.1", 7, false);
	CHECK_EQ(pv_udp_connect(u, &to, b->now), 0);
	CHECK_EQ(pv_udp_peer_iface(u), b->iface[0]);
	CHECK_EQ(live_on(b->fake[1]), 0);
	for (uint32_t turn = 0; turn < 4; turn++) {
		uint32_t by = (turn + 1) % 2;

		routed_by = 7 + by;
		pv_net_host_changed(b->net, false);
		CHECK_EQ(pv_udp_send(u, &msg, b->now), 1);
		CHECK_EQ(pv_udp_peer_iface(u), b->iface[by]);
		CHECK_EQ(live_on(b->fake[0]), 1);
		CHECK_EQ(live_on(b->fake[1]), by);
	}
	pv_udp_close(u);
	steer_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
