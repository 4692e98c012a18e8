/* SPDX-License-Identifier: BSD-3-Clause */
/* Which socket gets a datagram: Linux's order of tables and scores, SO_REUSEPORT, ICMP errors back to the right socket. */
#include "base/bytes.h"
#include "base/cksum.h"
#include "world.h"

static struct pv_udp *bound(struct world *w, enum pv_family af, struct pv_addr a, bool share)
{
	struct pv_udp *u = sock_open(w, 1, af);
	struct pv_endpoint e = ep(a, 7000);

	pv_udp_options(u)->reuse_addr = share;
	pv_udp_options_changed(u);
	CHECK_EQ(pv_udp_bind(u, &e), 0);
	return u;
}

static void hit(struct world *w, struct pv_udp *from, struct pv_addr to, struct pv_udp *want)
{
	struct pv_endpoint e = ep(to, 7000);
	struct pv_udp_recv msg;
	char buf[8];

	CHECK_EQ(sock_send(w, from, &e, "x", 1), 1);
	world_run(w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(want), 1);
	CHECK_EQ(sock_recv(want, buf, sizeof(buf), &msg), 1);
}

TEST(exact_before_address_before_wildcard)
{
	struct pv_endpoint peer = ep(ip4(10, 0, 0, 1), 5000), other = ep(ip4(10, 0, 0, 1), 5001);
	struct pv_udp *from, *any, *addr, *conn, *second;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 1 });
	from = sock_bound(&w, 0, PV_AF_INET, any4(), 5000);
	any = bound(&w, PV_AF_INET, any4(), true);
	hit(&w, from, ip4(10, 0, 0, 2), any);
	addr = bound(&w, PV_AF_INET, ip4(10, 0, 0, 2), true);
	hit(&w, from, ip4(10, 0, 0, 2), addr);
	conn = bound(&w, PV_AF_INET, any4(), true);
	CHECK_EQ(pv_udp_connect(conn, &peer, w.now), 0);
	hit(&w, from, ip4(10, 0, 0, 2), conn);
	/* Connected elsewhere: takes no part. */
	CHECK_EQ(pv_udp_connect(conn, &other, w.now), 0);
	hit(&w, from, ip4(10, 0, 0, 2), addr);
	CHECK_EQ(pv_udp_connect(conn, NULL, w.now), 0);
	/* Of equals the one that was bound last; after the dissolution `conn` is a wildcard again. */
	hit(&w, from, ip4(10, 0, 0, 2), addr);
	second = bound(&w, PV_AF_INET, ip4(10, 0, 0, 2), true);
	hit(&w, from, ip4(10, 0, 0, 2), second);
	pv_udp_close(second);
	hit(&w, from, ip4(10, 0, 0, 2), addr);
	pv_udp_close(addr);
	hit(&w, from, ip4(10, 0, 0, 2), conn);
	pv_udp_close(conn);
	hit(&w, from, ip4(10, 0, 0, 2), any);
	pv_udp_close(any);
	pv_udp_close(from);
	world_close(&w);
}

TEST(families)
{
	struct pv_udp *from4, *from6, *dual, *four, *only6;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 2 });
	from4 = sock_open(&w, 0, PV_AF_INET);
	from6 = sock_open(&w, 0, PV_AF_INET6);
	four = bound(&w, PV_AF_INET, any4(), true);
	dual = bound(&w, PV_AF_INET6, any6(), true);
	/* AF_INET is preferred for IPv4, though the dual-stack socket is newer. */
	hit(&w, from4, ip4(10, 0, 0, 2), four);
	hit(&w, from6, ip6(2), dual);
	pv_udp_close(four);
	hit(&w, from4, ip4(10, 0, 0, 2), dual);
	only6 = sock_open(&w, 1, PV_AF_INET6);
	pv_udp_options(only6)->v6only = true;
	pv_udp_options(only6)->reuse_addr = true;
	pv_udp_options_changed(only6);
	CHECK_EQ(pv_udp_bind(only6, &(struct pv_endpoint){ .port = 7000 }), 0);
	hit(&w, from6, ip6(2), only6);
	hit(&w, from4, ip4(10, 0, 0, 2), dual);
	pv_udp_close(dual);
	CHECK_EQ(sock_send(&w, from4, &(struct pv_endpoint){ ip4(10, 0, 0, 2), 7000, 0 }, "x", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(only6), 0);
	/* A wildcard written ::ffff:0.0.0.0 is IPv4's alone. */
	dual = bound(&w, PV_AF_INET6, any4(), true);
	hit(&w, from4, ip4(10, 0, 0, 2), dual);
	hit(&w, from6, ip6(2), only6);
	pv_udp_close(dual);
	pv_udp_close(only6);
	pv_udp_close(from4);
	pv_udp_close(from6);
	world_close(&w);
}

TEST(a_device_counts_more_than_a_family)
{
	struct pv_udp *from, *plain, *dev, *wrong;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 3 });
	from = sock_open(&w, 0, PV_AF_INET);
	dev = sock_open(&w, 1, PV_AF_INET6);
	pv_udp_options(dev)->bound_iface = w.host[1].iface;
	pv_udp_options(dev)->reuse_addr = true;
	pv_udp_options_changed(dev);
	CHECK_EQ(pv_udp_bind(dev, &(struct pv_endpoint){ .port = 7000 }), 0);
	plain = bound(&w, PV_AF_INET, any4(), true);
	wrong = sock_open(&w, 1, PV_AF_INET);
	pv_udp_options(wrong)->bound_iface = w.host[1].iface + 1;
	pv_udp_options_changed(wrong);
	CHECK_EQ(pv_udp_bind(wrong, &(struct pv_endpoint){ any4(), 7000, 0 }), -EADDRINUSE);
	pv_udp_options(wrong)->reuse_addr = true;
	CHECK_EQ(pv_udp_bind(wrong, &(struct pv_endpoint){ any4(), 7000, 0 }), 0);
	hit(&w, from, ip4(10, 0, 0, 2), dev);
	pv_udp_close(dev);
	hit(&w, from, ip4(10, 0, 0, 2), plain);
	pv_udp_close(plain);
	CHECK_EQ(sock_send(&w, from, &(struct pv_endpoint){ ip4(10, 0, 0, 2), 7000, 0 }, "x", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(wrong), 0);
	CHECK_EQ(pv_udp_table_counters(w.host[1].udp)->rx_no_port, 1);
	pv_udp_close(wrong);
	pv_udp_close(from);
	world_close(&w);
}

TEST(connected_to_port_zero_takes_the_whole_peer)
{
	struct pv_endpoint peer = ep(ip4(10, 0, 0, 1), 0);
	struct pv_udp *from, *conn, *any;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 4, .hosts = 3 });
	conn = bound(&w, PV_AF_INET, any4(), true);
	CHECK_EQ(pv_udp_connect(conn, &peer, w.now), 0);
	any = bound(&w, PV_AF_INET, any4(), true);
	from = sock_open(&w, 0, PV_AF_INET);
	hit(&w, from, ip4(10, 0, 0, 2), conn);
	pv_udp_close(from);
	from = sock_open(&w, 2, PV_AF_INET);
	hit(&w, from, ip4(10, 0, 0, 2), any);
	pv_udp_close(from);
	pv_udp_close(conn);
	pv_udp_close(any);
	world_close(&w);
}

TEST(reuseport_spreads_flows_and_keeps_them)
{
	enum { GROUP = 8, FLOWS = 400 };
	struct pv_udp *g[GROUP], *from;
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 5, .pool = 2048 });
	for (uint32_t i = 0; i < GROUP; i++) {
		g[i] = sock_open(&w, 1, PV_AF_INET);
		pv_udp_options(g[i])->reuse_port = true;
		pv_udp_options_changed(g[i]);
		CHECK_EQ(pv_udp_bind(g[i], &(struct pv_endpoint){ any4(), 7000, 0 }), 0);
	}
	for (uint32_t i = 0; i < FLOWS; i++) {
		uint32_t before[GROUP], went = GROUP;

		from = sock_bound(&w, 0, PV_AF_INET, any4(), (uint16_t)(10000 + i));
		for (uint32_t k = 0; k < GROUP; k++)
			before[k] = pv_udp_queued(g[k]);
		for (uint32_t n = 0; n < 2; n++) {
			CHECK_EQ(sock_send(&w, from, &to, "x", 1), 1);
			world_run(&w, 100 * PV_NS_PER_US);
		}
		for (uint32_t k = 0; k < GROUP; k++) {
			if (pv_udp_queued(g[k]) == before[k])
				continue;
			CHECK_EQ(pv_udp_queued(g[k]), before[k] + 2);
			CHECK_EQ(went, GROUP);
			went = k;
		}
		CHECK(went < GROUP);
		pv_udp_close(from);
	}
	/* Each of the eight within a factor of two of its share of 50 flows. */
	for (uint32_t k = 0; k < GROUP; k++)
		CHECK(pv_udp_queued(g[k]) >= 50 && pv_udp_queued(g[k]) <= 200);
	for (uint32_t k = 0; k < GROUP; k++)
		pv_udp_close(g[k]);
	world_close(&w);
}

TEST(a_connected_socket_leaves_its_reuseport_group)
{
	struct pv_endpoint peer = ep(ip4(10, 0, 0, 1), 5000);
	struct pv_udp *g[2], *from, *flow;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 6 });
	for (uint32_t i = 0; i < 2; i++) {
		g[i] = sock_open(&w, 1, PV_AF_INET);
		pv_udp_options(g[i])->reuse_port = true;
		pv_udp_options_changed(g[i]);
		CHECK_EQ(pv_udp_bind(g[i], &(struct pv_endpoint){ any4(), 7000, 0 }), 0);
	}
	CHECK_EQ(pv_udp_connect(g[1], &peer, w.now), 0);
	flow = sock_bound(&w, 0, PV_AF_INET, any4(), 5000);
	hit(&w, flow, ip4(10, 0, 0, 2), g[1]);
	for (uint16_t i = 0; i < 20; i++) {
		from = sock_bound(&w, 0, PV_AF_INET, any4(), (uint16_t)(6000 + i));
		hit(&w, from, ip4(10, 0, 0, 2), g[0]);
		pv_udp_close(from);
	}
	CHECK_EQ(pv_udp_connect(g[1], NULL, w.now), 0);
	pv_udp_close(g[0]);
	hit(&w, flow, ip4(10, 0, 0, 2), g[1]);
	pv_udp_close(g[1]);
	pv_udp_close(flow);
	world_close(&w);
}

TEST(link_local_addresses_carry_their_interface)
{
	struct pv_endpoint to = ep(ll6(2), 7000), back;
	struct pv_udp *a, *b;
	struct pv_udp_recv msg;
	struct world w;
	char buf[8];

	world_open(&w, &(struct world_cfg){ .seed = 7 });
	a = sock_open(&w, 0, PV_AF_INET6);
	b = sock_bound(&w, 1, PV_AF_INET6, any6(), 7000);
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), -EINVAL);
	CHECK_EQ(pv_udp_connect(a, &to, w.now), -EINVAL);
	to.iface = w.host[0].iface;
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(sock_recv(b, buf, sizeof(buf), &msg), 1);
	CHECK(pv_addr_eq(&msg.from.addr, &(struct pv_addr){ .b = { 0xfe, 0x80, [15] = 1 } }));
	CHECK_EQ(msg.from.iface, w.host[1].iface);
	back = msg.from;
	CHECK_EQ(sock_send(&w, b, &back, "y", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	sock_expect(a, "y");
	/* Connecting ties the socket to the interface, dissolving unties it. */
	CHECK_EQ(pv_udp_connect(a, &to, w.now), 0);
	CHECK_EQ(pv_udp_options(a)->bound_iface, w.host[0].iface);
	CHECK(pv_udp_remote(a, &back));
	CHECK_EQ(back.iface, w.host[0].iface);
	to.iface++;
	CHECK_EQ(pv_udp_connect(a, &to, w.now), -EINVAL);
	CHECK_EQ(pv_udp_connect(a, NULL, w.now), 0);
	CHECK_EQ(pv_udp_options(a)->bound_iface, 0);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(thousands_of_sockets)
{
	enum { N = 5000 };
	static struct pv_udp *u[N];
	struct pv_udp *from;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 8 });
	from = sock_open(&w, 0, PV_AF_INET);
	for (uint32_t i = 0; i < N; i++)
		u[i] = sock_bound(&w, 1, PV_AF_INET, i % 2 ? any4() : ip4(10, 0, 0, 2), (uint16_t)(1000 + i));
	for (uint32_t i = 0; i < N; i += 7) {
		struct pv_endpoint to = ep(ip4(10, 0, 0, 2), (uint16_t)(1000 + i));

		CHECK_EQ(sock_send(&w, from, &to, "x", 1), 1);
		world_run(&w, 10 * PV_NS_PER_US);
		CHECK_EQ(pv_udp_queued(u[i]), i || w.now > WORLD_START_NS ? 1 : 0);
		sock_expect(u[i], "x");
	}
	for (uint32_t i = 0; i < N; i++) {
		CHECK_EQ(pv_udp_queued(u[i]), 0);
		pv_udp_close(u[i]);
	}
	/* As many again, all on one port, each connected to a peer of its own. */
	for (uint32_t i = 0; i < N; i++) {
		struct pv_endpoint peer = ep(ip4(10, 0, 0, 1), (uint16_t)(1000 + i));

		u[i] = bound(&w, PV_AF_INET, ip4(10, 0, 0, 2), true);
		CHECK_EQ(pv_udp_connect(u[i], &peer, w.now), 0);
	}
	pv_udp_close(from);
	from = sock_bound(&w, 0, PV_AF_INET, any4(), 1000 + 4321);
	hit(&w, from, ip4(10, 0, 0, 2), u[4321]);
	for (uint32_t i = 0; i < N; i++)
		pv_udp_close(u[i]);
	pv_udp_close(from);
	world_close(&w);
}

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

TEST(port_unreachable_reaches_a_connected_socket)
{
	for (int family = 4; family <= 6; family += 2) {
		enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;
		struct pv_endpoint to = ep(host_addr(family, 2), 7000);
		struct pv_udp *conn, *open;
		struct pv_event ev[4];
		struct pv_udp_recv msg;
		struct world w;
		char buf[8];

		world_open(&w, &(struct world_cfg){ .seed = 9 });
		conn = sock_open(&w, 0, af);
		open = sock_open(&w, 0, af);
		CHECK_EQ(sock_send(&w, open, &to, "x", 1), 1);
		world_run(&w, PV_NS_PER_MS);
		CHECK_EQ(pv_udp_error(open), 0);
		CHECK_EQ(pv_udp_connect(conn, &to, w.now), 0);
		for (uint32_t i = 0; i < 3; i++) {
			CHECK_EQ(sock_send(&w, conn, NULL, "x", 1), 1);
			world_run(&w, PV_NS_PER_S);
			CHECK(pv_udp_readable(conn));
			CHECK_EQ(pv_stack_events(w.host[0].stack, ev, 4), 1);
			CHECK(ev[0].bits & PV_EV_ERR);
			/* It is told once: by receiving, by sending, or as SO_ERROR. */
			if (i == 0)
				CHECK_EQ(sock_recv(conn, buf, sizeof(buf), &msg), -ECONNREFUSED);
			else if (i == 1)
				CHECK_EQ(sock_send(&w, conn, NULL, "x", 1), -ECONNREFUSED);
			else
				CHECK_EQ(pv_udp_error(conn), ECONNREFUSED);
			CHECK_EQ(sock_recv(conn, buf, sizeof(buf), &msg), -EAGAIN);
			CHECK(!pv_udp_readable(conn));
		}
		CHECK_EQ(pv_udp_table_counters(w.host[1].udp)->rx_no_port, 4);
		pv_udp_close(conn);
		pv_udp_close(open);
		world_close(&w);
	}
}

TEST(error_queue_on_request)
{
	for (int family = 4; family <= 6; family += 2) {
		enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;
		struct pv_endpoint to = ep(host_addr(family, 2), 7000);
		struct pv_addr offender = host_addr(family, 2);
		struct pv_udp_errq e;
		struct pv_udp *u;
		struct world w;

		world_open(&w, &(struct world_cfg){ .seed = 10 });
		u = sock_open(&w, 0, af);
		CHECK_EQ(pv_udp_errq_get(u, &e), -EAGAIN);
		if (family == 4)
			pv_udp_options(u)->recverr4 = true;
		else
			pv_udp_options(u)->recverr6 = true;
		pv_udp_options_changed(u);
		CHECK_EQ(pv_udp_errq_get(u, &e), -EAGAIN);
		for (uint32_t i = 0; i < 2; i++) {
			to.port = (uint16_t)(7000 + i);
			(void)pv_udp_error(u);
			CHECK_EQ(sock_send(&w, u, &to, "x", 1), 1);
			world_run(&w, PV_NS_PER_S);
		}
		CHECK_EQ(pv_udp_errq_count(u), 2);
		CHECK(pv_udp_readable(u));
		for (uint32_t i = 0; i < 2; i++) {
			CHECK_EQ(pv_udp_errq_get(u, &e), 0);
			CHECK_EQ(e.err.err, ECONNREFUSED);
			CHECK_EQ(e.to.port, 7000 + i);
			CHECK(pv_addr_eq(&e.to.addr, &to.addr));
			CHECK(pv_addr_eq(&e.err.offender, &offender));
			CHECK(!e.local);
			/* The next in the queue is the pending error, none when it is empty. */
			CHECK_EQ(pv_udp_error(u), i ? 0 : ECONNREFUSED);
		}
		CHECK_EQ(pv_udp_errq_get(u, &e), -EAGAIN);
		CHECK(!pv_udp_readable(u));
		/* Bounded: the latest stay. */
		for (uint32_t i = 0; i < PV_UDP_ERRQ_MAX + 5; i++) {
			to.port = (uint16_t)(8000 + i);
			(void)pv_udp_error(u);
			CHECK_EQ(sock_send(&w, u, &to, "x", 1), 1);
			world_run(&w, PV_NS_PER_S);
		}
		CHECK_EQ(pv_udp_errq_count(u), PV_UDP_ERRQ_MAX);
		CHECK_EQ(pv_udp_errq_get(u, &e), 0);
		CHECK_EQ(e.to.port, 8005);
		pv_udp_close(u);
		world_close(&w);
	}
}

TEST(too_long_for_the_path)
{
	static uint8_t data[4000];

	for (int family = 4; family <= 6; family += 2) {
		enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;
		uint32_t fit = 1500 - (family == 4 ? 28 : 48);
		struct pv_endpoint to = ep(host_addr(family, 2), 7000);
		struct pv_udp_opts *o;
		struct pv_udp_errq e;
		struct pv_udp *a, *b;
		struct world w;

		world_open(&w, &(struct world_cfg){ .seed = 11 });
		a = sock_open(&w, 0, af);
		b = sock_bound(&w, 1, af, host_addr(family, 2), 7000);
		o = pv_udp_options(a);
		o->pmtudisc4 = o->pmtudisc6 = PV_PMTU_DO;
		o->recverr4 = o->recverr6 = true;
		pv_udp_options_changed(a);
		CHECK_EQ(sock_send(&w, a, &to, data, fit), fit);
		CHECK_EQ(sock_send(&w, a, &to, data, fit + 1), -EMSGSIZE);
		CHECK_EQ(pv_udp_errq_get(a, &e), 0);
		CHECK(e.local);
		CHECK_EQ(e.err.err, EMSGSIZE);
		CHECK_EQ(e.err.mtu, 1500);
		CHECK_EQ(e.to.port, 7000);
		o->pmtudisc4 = o->pmtudisc6 = PV_PMTU_WANT;
		pv_udp_options_changed(a);
		CHECK_EQ(sock_send(&w, a, &to, data, fit + 1), fit + 1);
		world_run(&w, PV_NS_PER_MS);
		CHECK_EQ(pv_udp_queued(b), 2);
		CHECK_EQ(pv_udp_table_counters(w.host[0].udp)->tx_errors, 1);
		pv_udp_close(a);
		pv_udp_close(b);
		world_close(&w);
	}
}

/* "Too big" about a datagram of host 0 to host 1's port 7000, as a router between them sends it (RFC 1191 4, RFC 4443 3.2). */
static void too_big(struct world *w, int family, uint16_t port, uint16_t mtu)
{
	struct pv_pkt *p = pv_pkt_get(w->host[1].pool);
	struct pv_addr src = host_addr(family, 2), dst = host_addr(family, 1);
	uint8_t *ip = p->data + 14, *icmp, *quote;
	uint32_t hlen = family == 4 ? 20 : 40, len = 8 + hlen + 8;

	memset(p->data, 0, 14 + hlen + len);
	memcpy(p->data, (uint8_t[]){ 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2 }, 12);
	pv_put16(p->data + 12, family == 4 ? 0x0800 : 0x86dd);
	icmp = ip + hlen;
	quote = icmp + 8;
	if (family == 4) {
		memcpy(ip, (uint8_t[]){ 0x45, 0, 0, (uint8_t)(20 + len), 0, 1, 0, 0, 64, 1 }, 10);
		memcpy(ip + 12, &src.w[3], 4);
		memcpy(ip + 16, &dst.w[3], 4);
		pv_cksum_put(ip + 10, pv_cksum_finish(pv_cksum_add(ip, 20, 0)));
		icmp[0] = 3;
		icmp[1] = 4;
		pv_put16(icmp + 6, mtu);
		memcpy(quote, (uint8_t[]){ 0x45, 0, 5, 0xb4, 0, 1, 0x40, 0, 63, 17 }, 10);
		memcpy(quote + 12, &dst.w[3], 4);
		memcpy(quote + 16, &src.w[3], 4);
	} else {
		memcpy(ip, (uint8_t[]){ 0x60, 0, 0, 0, 0, (uint8_t)len, 58, 255 }, 8);
		memcpy(ip + 8, &src, 16);
		memcpy(ip + 24, &dst, 16);
		icmp[0] = 2;
		pv_put16(icmp + 6, mtu);
		memcpy(quote, (uint8_t[]){ 0x60, 0, 0, 0, 5, 0x8c, 17, 63 }, 8);
		memcpy(quote + 8, &dst, 16);
		memcpy(quote + 24, &src, 16);
	}
	pv_put16(quote + hlen, port);
	pv_put16(quote + hlen + 2, 7000);
	pv_put16(quote + hlen + 4, 1420);
	pv_cksum_put(icmp + 2, pv_cksum_finish(pv_cksum_merge(pv_cksum_add(icmp, len, 0),
							      family == 4 ? 0 : pv_cksum_pseudo6(ip + 8, ip + 24, 58, len))));
	p->len = p->total = 14 + hlen + len;
	CHECK_EQ(pv_ring_tx_post(w->host[1].ring, &p, 1), 1);
	CHECK_EQ(pv_ring_tx_kick(w->host[1].ring), 0);
	world_run(w, PV_NS_PER_MS);
}

TEST(a_router_says_too_big)
{
	static uint8_t data[1400];

	for (int family = 4; family <= 6; family += 2) {
		enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;
		struct pv_endpoint to = ep(host_addr(family, 2), 7000);
		struct pv_udp_opts *o;
		struct pv_udp_errq e;
		struct pv_udp *a, *b;
		struct world w;
		uint32_t gen;

		world_open(&w, &(struct world_cfg){ .seed = 13 });
		a = sock_open(&w, 0, af);
		b = sock_bound(&w, 1, af, host_addr(family, 2), 7000);
		o = pv_udp_options(a);
		o->recverr4 = o->recverr6 = true;
		o->pmtudisc4 = o->pmtudisc6 = PV_PMTU_DO;
		pv_udp_options_changed(a);
		CHECK_EQ(pv_udp_connect(a, &to, w.now), 0);
		CHECK_EQ(sock_send(&w, a, NULL, data, 1400), 1400);
		world_run(&w, PV_NS_PER_MS);
		too_big(&w, family, sock_port(a), 1300);
		CHECK_EQ(pv_udp_errq_get(a, &e), 0);
		CHECK_EQ(e.err.err, EMSGSIZE);
		CHECK_EQ(e.err.mtu, 1300);
		CHECK(!e.local);
		/* The path is known to be narrow now: refused here, and cut to fit once that is allowed. */
		CHECK_EQ(sock_send(&w, a, NULL, data, 1400), -EMSGSIZE);
		CHECK_EQ(pv_udp_errq_get(a, &e), 0);
		CHECK_EQ(e.err.mtu, 1300);
		CHECK(e.local);
		o->pmtudisc4 = o->pmtudisc6 = PV_PMTU_WANT;
		pv_udp_options_changed(a);
		CHECK_EQ(sock_send(&w, a, NULL, data, 1400), 1400);
		world_run(&w, PV_NS_PER_MS);
		CHECK_EQ(pv_udp_queued(b), 2);
		CHECK_EQ(pv_net_counters(w.host[0].net)->tx_fragments, 2);
		/* Another port's business is not ours, and about a port that nobody has nothing is believed. */
		gen = pv_net_gen_of(w.host[0].net);
		too_big(&w, family, (uint16_t)(sock_port(a) + 1), 1290);
		CHECK_EQ(pv_udp_errq_get(a, &e), -EAGAIN);
		CHECK_EQ(pv_net_gen_of(w.host[0].net), gen);
		/* Who lets others cut his datagrams hears nothing, and they are cut here. */
		o->pmtudisc4 = o->pmtudisc6 = PV_PMTU_DONT;
		o->recverr6 = false;
		pv_udp_options_changed(a);
		too_big(&w, family, sock_port(a), 1290);
		CHECK_EQ(pv_udp_errq_get(a, &e), -EAGAIN);
		CHECK(pv_net_gen_of(w.host[0].net) != gen);
		pv_udp_close(a);
		pv_udp_close(b);
		world_close(&w);
	}
}

/* What the network layer says of an ICMP error, told to the table directly: which sockets listen. */
TEST(errors_by_kind)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_net_error err = {
		.local = ip4(10, 0, 0, 1), .remote = ip4(10, 0, 0, 2), .remote_port = 7000, .proto = PV_PROTO_UDP
	};
	struct pv_udp *u;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 12 });
	u = sock_open(&w, 0, PV_AF_INET);
	CHECK_EQ(pv_udp_connect(u, &to, w.now), 0);
	err.local_port = sock_port(u);
	err.err = EHOSTUNREACH;
	pv_udp_rx_error(w.host[0].udp, &err);
	CHECK_EQ(pv_udp_error(u), 0);
	err.hard = true;
	pv_udp_rx_error(w.host[0].udp, &err);
	CHECK_EQ(pv_udp_error(u), EHOSTUNREACH);
	err.hard = false;
	err.err = EMSGSIZE;
	err.mtu = 1400;
	pv_udp_rx_error(w.host[0].udp, &err);
	CHECK_EQ(pv_udp_error(u), EMSGSIZE);
	pv_udp_options(u)->pmtudisc4 = PV_PMTU_DONT;
	pv_udp_options_changed(u);
	pv_udp_rx_error(w.host[0].udp, &err);
	CHECK_EQ(pv_udp_error(u), 0);
	/* About another flow: not ours. */
	err.err = ECONNREFUSED;
	err.hard = true;
	err.remote_port = 7001;
	pv_udp_rx_error(w.host[0].udp, &err);
	CHECK_EQ(pv_udp_error(u), 0);
	/* With IP_RECVERR also the soft ones, connected or not. */
	CHECK_EQ(pv_udp_connect(u, NULL, w.now), 0);
	pv_udp_close(u);
	u = sock_bound(&w, 0, PV_AF_INET, any4(), err.local_port);
	err.err = EHOSTUNREACH;
	err.hard = false;
	pv_udp_rx_error(w.host[0].udp, &err);
	CHECK_EQ(pv_udp_error(u), 0);
	pv_udp_options(u)->recverr4 = true;
	pv_udp_options_changed(u);
	pv_udp_rx_error(w.host[0].udp, &err);
	CHECK_EQ(pv_udp_error(u), EHOSTUNREACH);
	pv_udp_close(u);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
