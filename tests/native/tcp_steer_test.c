/* SPDX-License-Identifier: BSD-3-Clause */
/* Which flow rules TCP's ports have on an interface of the kernel's: those of what lives on them, no longer than that. */
#include "steer.h"
#include "tcp/conn.h"

static struct pv_tcp_table *table;

static struct bench *steer_open(void)
{
	struct bench *b = steer_bench(1u << PV_FLOW_3TUPLE | 1u << PV_FLOW_5TUPLE);
	struct pv_tcp_cfg tc = { .seed = 1 };

	CHECK_EQ(pv_tcp_table_open(&table, b->net, &b->mem.mem, &tc), 0);
	pv_tcp_steer_changed(table);
	return b;
}

static void steer_close(struct bench *b)
{
	CHECK_EQ(live(b), 0);
	pv_tcp_table_close(table);
	bench_close(b);
}

static uint32_t count(const struct bench *b, enum pv_flow_kind kind, const char *dst, uint16_t port)
{
	struct pv_addr d = ip(dst), peer = ip("10.0.0.2");
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->fake[0]->nflow; i++) {
		const struct pv_flow *f = &b->fake[0]->flow[i];

		n += b->fake[0]->flow_on[i] && f->kind == kind && f->l4_proto == PV_PROTO_TCP && pv_addr_eq(&f->dst, &d) &&
		     f->dst_port == port && pv_mac_eq(f->dst_mac, b->fake[0]->ring.caps.mac) &&
		     (kind == PV_FLOW_3TUPLE || (pv_addr_eq(&f->src, &peer) && f->src_port == 80));
	}
	return n;
}

/* A listener's rule for that address and port. */
static bool has(const struct bench *b, const char *dst, uint16_t port)
{
	uint32_t n = count(b, PV_FLOW_3TUPLE, dst, port);

	CHECK(n <= 1);
	return n;
}

/* A connection's, with port 80 of the peer. */
static bool flow(const struct bench *b, const char *dst, uint16_t port)
{
	uint32_t n = count(b, PV_FLOW_5TUPLE, dst, port);

	CHECK(n <= 1);
	return n;
}

static struct pv_tcp *listener(enum pv_family family, const char *local, uint16_t port)
{
	struct pv_endpoint e = { .addr = ip(local), .port = port };
	struct pv_tcp *c;

	CHECK_EQ(pv_tcp_open(table, family, NULL, &c), 0);
	CHECK_EQ(pv_tcp_bind(c, &e), 0);
	CHECK_EQ(pv_tcp_listen(c, 5), 0);
	return c;
}

TEST(listeners)
{
	struct bench *b = steer_open();
	struct pv_tcp *one = listener(PV_AF_INET, "10.0.0.1", 7), *any4 = listener(PV_AF_INET, "0.0.0.0", 8);
	struct pv_tcp *any6 = listener(PV_AF_INET6, "::", 9);

	CHECK(has(b, "10.0.0.1", 7) && has(b, "10.0.0.1", 8) && has(b, "10.0.0.1", 9) && has(b, "fd00::1", 9));
	CHECK_EQ(live(b), 4);
	pv_tcp_close(any4, 0);
	CHECK_EQ(live(b), 3);
	/* The socket keeps its port, but it listens no more. */
	CHECK_EQ(pv_tcp_shutdown(one, 1, 0), 0);
	CHECK_EQ(live(b), 2);
	CHECK_EQ(pv_tcp_listen(one, 5), 0);
	CHECK_EQ(live(b), 3);
	pv_tcp_close(one, 0);
	pv_tcp_close(any6, 0);
	steer_close(b);
}

TEST(connections)
{
	struct bench *b = steer_open();
	struct pv_endpoint to = { .addr = ip("10.0.0.2"), .port = 80 }, local;
	struct pv_tcp *c, *d;

	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, &c), 0);
	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, &d), 0);
	local = (struct pv_endpoint){ .addr = ip("0.0.0.0"), .port = 99 };
	CHECK_EQ(pv_tcp_bind(d, &local), 0);
	CHECK_EQ(live(b), 0);
	CHECK_EQ(pv_tcp_connect(d, &to, 1), -EINPROGRESS);
	CHECK(flow(b, "10.0.0.1", 99));
	CHECK_EQ(pv_tcp_connect(c, &to, 1), -EINPROGRESS);
	pv_tcp_local(c, &local);
	CHECK(flow(b, "10.0.0.1", local.port));
	CHECK_EQ(live(b), 2);
	pv_tcp_close(c, 1);
	CHECK_EQ(live(b), 1);
	pv_tcp_close(d, 1);
	steer_close(b);
}

TEST(addresses_come_and_go)
{
	struct bench *b = steer_open();
	struct pv_tcp *any = listener(PV_AF_INET, "0.0.0.0", 8);
	struct pv_ifaddr a[2] = { { ip("10.0.0.1"), 24 }, { ip("10.0.0.5"), 24 } };
	struct pv_iface_state st = { .name = "a", .addr = a, .naddr = 2, .mtu = 1500, .link_up = true };

	CHECK_EQ(pv_net_iface_set(b->net, b->iface[0], &st), 0);
	pv_tcp_steer_changed(table);
	CHECK(has(b, "10.0.0.1", 8) && has(b, "10.0.0.5", 8));
	st.addr = &a[1];
	st.naddr = 1;
	CHECK_EQ(pv_net_iface_set(b->net, b->iface[0], &st), 0);
	pv_tcp_steer_changed(table);
	CHECK(!has(b, "10.0.0.1", 8) && has(b, "10.0.0.5", 8));
	pv_tcp_iface_gone(table, b->iface[0]);
	CHECK_EQ(live(b), 0);
	pv_tcp_close(any, 0);
	steer_close(b);
}

/* A listener on port 7, and a connection of the same address and port. */
static void listen_and_connect(struct pv_tcp **l, struct pv_tcp **c)
{
	struct pv_endpoint to = { .addr = ip("10.0.0.2"), .port = 80 }, local = { .addr = ip("10.0.0.1"), .port = 7 };

	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, c), 0);
	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, l), 0);
	pv_tcp_options(*c)->reuse_addr = pv_tcp_options(*l)->reuse_addr = true;
	CHECK_EQ(pv_tcp_bind(*c, &local), 0);
	CHECK_EQ(pv_tcp_bind(*l, &local), 0);
	CHECK_EQ(pv_tcp_listen(*l, 5), 0);
	CHECK_EQ(pv_tcp_connect(*c, &to, 1), -EINPROGRESS);
}

/* While a listener's rule brings it a connection needs none of its own, and it has one before that rule goes. */
TEST(a_listener_leaves_its_connections)
{
	struct bench *b = steer_open();
	struct pv_tcp *c, *l;

	listen_and_connect(&l, &c);
	CHECK(has(b, "10.0.0.1", 7) && !flow(b, "10.0.0.1", 7));
	pv_tcp_close(l, 1);
	CHECK(!has(b, "10.0.0.1", 7) && flow(b, "10.0.0.1", 7));
	/* The address goes: what the connection has left is its flow. */
	CHECK_EQ(pv_net_iface_set(b->net, b->iface[0], &(struct pv_iface_state){ .name = "a", .mtu = 1500, .link_up = true }), 0);
	pv_tcp_steer_changed(table);
	CHECK(flow(b, "10.0.0.1", 7));
	CHECK_EQ(live(b), 1);
	pv_tcp_close(c, 1);
	steer_close(b);
}

/* Who is busy has a rule of its own beside the listener's, once. */
TEST(busy_connections)
{
	struct bench *b = steer_open();
	struct pv_tcp *c, *l;

	listen_and_connect(&l, &c);
	pv_tcp_steer_busy(c);
	CHECK_EQ(live(b), 1);
	pv_tcp_set_state(c, PV_TCP_ESTABLISHED);
	for (int i = 0; i < 2; i++) {
		pv_tcp_steer_busy(c);
		CHECK(has(b, "10.0.0.1", 7) && flow(b, "10.0.0.1", 7));
		CHECK_EQ(live(b), 2);
	}
	pv_tcp_abort(c, ECONNRESET);
	CHECK_EQ(live(b), 1);
	pv_tcp_close(c, 1);
	pv_tcp_close(l, 1);
	steer_close(b);
}

static uint32_t freed;

static void port_free(void *ctx, void *hold)
{
	CHECK(ctx == &freed && hold == &table);
	freed++;
}

/* What is kept with a port comes back once nobody has it. */
TEST(ports_keep_what_is_theirs)
{
	struct bench *b = steer_open();
	struct pv_endpoint to = { .addr = ip("10.0.0.2"), .port = 80 }, local = { .addr = ip("10.0.0.1"), .port = 7 };
	struct pv_tcp *c, *d;

	table->cfg.port_free = port_free;
	table->cfg.port_free_ctx = &freed;
	CHECK(!pv_tcp_port_hold(table, 7));
	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, &c), 0);
	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, &d), 0);
	pv_tcp_options(c)->reuse_addr = pv_tcp_options(d)->reuse_addr = true;
	CHECK_EQ(pv_tcp_bind(c, &local), 0);
	CHECK_EQ(pv_tcp_bind(d, &local), 0);
	pv_tcp_name_chosen(d, true, true);
	*pv_tcp_port_hold(table, 7) = &table;
	pv_tcp_close(c, 1);
	CHECK_EQ(freed, 0);
	/* A port that the program did not choose goes with the attempt, but for its number. */
	CHECK_EQ(pv_tcp_connect(d, &to, 1), -EINPROGRESS);
	pv_tcp_port_brief(table, 7);
	CHECK_EQ(pv_tcp_disconnect(d, 2), 0);
	CHECK_EQ(freed, 1);
	pv_tcp_local(d, &local);
	CHECK(local.port == 7 && !pv_tcp_has_port(d) && pv_addr_is_any(&local.addr));
	pv_tcp_close(d, 2);
	steer_close(b);
}

static bool keep_idle;

static bool port_idle(void *ctx, void *hold)
{
	CHECK(ctx == &freed && hold == &table);
	return keep_idle;
}

/* Connected to that peer by a reserved port: the port. `fresh`: by a new one. */
static uint16_t reserved(struct pv_tcp **c, const char *peer, bool fresh)
{
	struct pv_endpoint to = { .addr = ip(peer), .port = 80 }, local = { .addr = ip("10.0.0.1") };
	void *hold = NULL;

	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, c), 0);
	CHECK_EQ(pv_tcp_bind_reserved(*c, &local.addr, &to, &hold), fresh ? -EADDRNOTAVAIL : 0);
	if (fresh) {
		CHECK_EQ(pv_tcp_bind(*c, &local), 0);
		CHECK_EQ(pv_tcp_reserve(*c, &table, 0), 0);
		CHECK_EQ(pv_tcp_reserve(*c, &table, 0), -EADDRINUSE);
	} else {
		CHECK(hold == &table);
	}
	pv_tcp_name_chosen(*c, true, true);
	CHECK_EQ(pv_tcp_connect(*c, &to, table->head.now_ns), -EINPROGRESS);
	pv_tcp_local(*c, &local);
	return local.port;
}

static struct bench *reserve_open(void)
{
	struct bench *b = steer_open();

	table->cfg.port_free = port_free;
	table->cfg.port_idle = port_idle;
	table->cfg.port_free_ctx = &freed;
	table->cfg.reserve_max = 2;
	table->head.now_ns = PV_NS_PER_S;
	freed = 0;
	keep_idle = true;
	return b;
}

/* One rule that stays, for one connection after the other. */
TEST(reserved_ports)
{
	struct bench *b = reserve_open();
	struct pv_tcp *c, *d;
	uint16_t port = reserved(&c, "10.0.0.2", true);

	CHECK(has(b, "10.0.0.1", port) && !flow(b, "10.0.0.1", port));
	pv_tcp_close(c, table->head.now_ns);
	CHECK(has(b, "10.0.0.1", port));
	CHECK_EQ(freed, 0);
	CHECK_EQ(table->nidle, 1);
	/* Not for the peer of the last connection, which had no timestamps. */
	CHECK(reserved(&c, "10.0.0.2", true) != port);
	CHECK_EQ(reserved(&d, "10.0.0.3", false), port);
	CHECK_EQ(live(b), 2);
	CHECK_EQ(table->nidle, 0);
	/* One that does not share is in the way while it is used, and only then. */
	CHECK(!pv_tcp_reserve_give_up(table, port));
	pv_tcp_close(d, table->head.now_ns);
	CHECK(pv_tcp_reserve_give_up(table, port));
	CHECK(!has(b, "10.0.0.1", port));
	CHECK_EQ(freed, 1);
	pv_tcp_close(c, table->head.now_ns);
	CHECK_EQ(table->nidle, 1);
	CHECK(pv_tcp_reserve_give_up(table, 0));
	CHECK(!pv_tcp_reserve_give_up(table, 0));
	CHECK_EQ(freed, 2);
	steer_close(b);
}

/* The same peer's again, once its TIME_WAIT can tell the new connection from the old by the timestamp. */
TEST(reserved_ports_rest)
{
	struct bench *b = reserve_open();
	struct pv_tcp *c;
	uint16_t port = reserved(&c, "10.0.0.2", true);

	c->port->reserve->last_ts = true;
	pv_tcp_close(c, table->head.now_ns);
	CHECK(reserved(&c, "10.0.0.2", true) != port);
	pv_tcp_close(c, table->head.now_ns);
	table->head.now_ns += 2 * PV_NS_PER_MS;
	CHECK_EQ(reserved(&c, "10.0.0.2", false), port);
	pv_tcp_close(c, table->head.now_ns);
	CHECK_EQ(table->nidle, 2);
	/* Each has its two seconds. */
	CHECK_EQ(pv_tcp_reserve_deadline(table), 3 * PV_NS_PER_S);
	pv_tcp_timers(table, 3 * PV_NS_PER_S, 100);
	CHECK_EQ(table->nidle, 1);
	CHECK(has(b, "10.0.0.1", port));
	pv_tcp_timers(table, 3 * PV_NS_PER_S + 2 * PV_NS_PER_MS, 100);
	CHECK_EQ(table->nidle, 0);
	CHECK_EQ(freed, 2);
	steer_close(b);
}

/* One that two peers had is as one for the same peer: either may have a connection of it in TIME_WAIT. */
static void two_peers(bool first_ts, bool second_ts)
{
	struct pv_tcp *c;
	uint16_t port = reserved(&c, "10.0.0.2", true);

	c->port->reserve->last_ts = first_ts;
	pv_tcp_close(c, table->head.now_ns);
	CHECK_EQ(reserved(&c, "10.0.0.3", false), port);
	c->port->reserve->last_ts = second_ts;
	pv_tcp_close(c, table->head.now_ns);
	table->head.now_ns += PV_NS_PER_MS;
	CHECK(reserved(&c, "10.0.0.2", true) != port);
	table->head.now_ns += PV_NS_PER_MS;
	if (first_ts && second_ts) {
		pv_tcp_close(c, table->head.now_ns);
		CHECK_EQ(reserved(&c, "10.0.0.2", false), port);
	}
	pv_tcp_close(c, table->head.now_ns);
	pv_tcp_reserve_flush(table);
}

TEST(reserved_ports_of_many_peers)
{
	struct bench *b = reserve_open();

	two_peers(true, true);
	two_peers(true, false);
	two_peers(false, true);
	two_peers(false, false);
	steer_close(b);
}

/* All interfaces that have the address have the rule, or none. */
TEST(reserved_ports_all_or_none)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .net = { .host = &steer_ops },
							  .steer = PV_STEER_SOCKET,
							  .flow_kinds = 1u << PV_FLOW_3TUPLE | 1u << PV_FLOW_5TUPLE,
							  .second = true });
	struct pv_endpoint local = { .addr = ip("10.0.0.1") };
	struct pv_tcp_cfg tc = { .seed = 1, .port_free = port_free, .port_free_ctx = &freed };
	struct pv_tcp *c;

	CHECK_EQ(pv_tcp_table_open(&table, b->net, &b->mem.mem, &tc), 0);
	pv_tcp_steer_changed(table);
	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, &c), 0);
	CHECK_EQ(pv_tcp_bind(c, &local), 0);
	b->fake[1]->flow_rc = -ENOSPC;
	CHECK_EQ(pv_tcp_reserve(c, &table, b->iface[1]), -ENOSPC);
	CHECK_EQ(live(b), 0);
	b->fake[1]->flow_rc = 0;
	CHECK_EQ(pv_tcp_reserve(c, &table, b->iface[1]), 0);
	CHECK_EQ(live(b), 1);
	pv_tcp_close(c, 1);
	steer_close(b);
}

/* What is not kept: more than there may be, one that the caller does not want, and none when interfaces change. */
TEST(reserved_ports_end)
{
	struct bench *b = reserve_open();
	struct pv_tcp *c[3];
	uint16_t port[3];

	for (int i = 0; i < 3; i++)
		port[i] = reserved(&c[i], "10.0.0.2", true);
	for (int i = 0; i < 3; i++)
		pv_tcp_close(c[i], table->head.now_ns);
	CHECK_EQ(table->nidle, 2);
	CHECK_EQ(freed, 1);
	CHECK(!has(b, "10.0.0.1", port[2]));
	pv_tcp_steer_changed(table);
	CHECK_EQ(freed, 3);
	port[0] = reserved(&c[0], "10.0.0.2", true);
	pv_tcp_steer_changed(table);
	CHECK(has(b, "10.0.0.1", port[0]));
	keep_idle = false;
	pv_tcp_close(c[0], table->head.now_ns);
	CHECK_EQ(freed, 4);
	keep_idle = true;
	/* Its rule went with the interface. */
	(void)reserved(&c[0], "10.0.0.2", true);
	pv_tcp_steer_gone(table, b->iface[0]);
	CHECK_EQ(live(b), 0);
	pv_tcp_close(c[0], table->head.now_ns);
	CHECK_EQ(freed, 5);
	/* No rule, no port. */
	b->fake[0]->flow_rc = -ENOSPC;
	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, &c[0]), 0);
	CHECK_EQ(pv_tcp_bind(c[0], &(struct pv_endpoint){ .addr = ip("10.0.0.1") }), 0);
	CHECK_EQ(pv_tcp_reserve(c[0], &table, 0), -ENOSPC);
	b->fake[0]->flow_rc = 0;
	pv_tcp_close(c[0], table->head.now_ns);
	/* An idle one is the table's to end. */
	(void)reserved(&c[0], "10.0.0.2", true);
	pv_tcp_close(c[0], table->head.now_ns);
	CHECK_EQ(table->nidle, 1);
	pv_tcp_table_close(table);
	CHECK_EQ(freed, 6);
	CHECK_EQ(live(b), 0);
	bench_close(b);
}

TEST(no_rule_no_socket)
{
	struct bench *b = steer_open();
	struct pv_endpoint to = { .addr = ip("10.0.0.2"), .port = 80 }, local = { .addr = ip("0.0.0.0"), .port = 8 };
	struct pv_tcp *c;

	CHECK_EQ(pv_tcp_open(table, PV_AF_INET, NULL, &c), 0);
	b->fake[0]->flow_rc = -ENOSPC;
	CHECK_EQ(pv_tcp_connect(c, &to, 1), -ENOSPC);
	CHECK_EQ(table->ports.count, 0);
	CHECK_EQ(pv_tcp_bind(c, &local), 0);
	CHECK_EQ(pv_tcp_listen(c, 1), -ENOSPC);
	CHECK_EQ(pv_tcp_state(c), PV_TCP_CLOSED);
	b->fake[0]->flow_rc = 0;
	CHECK_EQ(pv_tcp_listen(c, 1), 0);
	pv_tcp_close(c, 1);
	steer_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
