/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners, their queues and cookies; ports and who may have them; TIME_WAIT. */
#include "tcp_peer.h"

static struct peer p;

#define S PV_NS_PER_S
#define MS PV_NS_PER_MS

static const struct pv_tcp_counters *count(void)
{
	return pv_tcp_table_counters(p.w.host[0].tcp);
}

static struct pv_tcp_table *table(void)
{
	return p.w.host[0].tcp;
}

/* The script is another peer from now on. */
static void as(uint16_t port)
{
	p.port = port;
	p.seq_max = 0;
	p.ts_recent = 0;
	p.ts_on = false;
	peer_skip(&p);
}

static void handshake(uint16_t port)
{
	as(port);
	peer_syn(&p);
	peer_agree(&p, peer_expect(&p, "S.", 0, 1, 0));
	peer_send(&p, ".", 1, 1, 0);
}

static struct pv_tcp *accepted(void)
{
	struct pv_tcp *c;

	CHECK_EQ(pv_tcp_accept(p.l, &c), 0);
	return c;
}

static void close_it(struct pv_tcp *c)
{
	pv_tcp_options(c)->linger = true;
	pv_tcp_close(c, p.w.now);
	peer_run(&p, 0);
	peer_skip(&p);
}

/* ---- the handshake ------------------------------------------------------------------------------------------------------- */

TEST(record_until_the_third_segment)
{
	for (int family = 4; family <= 6; family += 2) {
		const struct peer_seg *s;
		struct pv_tcp *none;

		peer_open(&p, &(struct peer_cfg){ .family = family });
		CHECK(sizeof(struct pv_tcp_seg) <= 64);
		peer_listen(&p, 8);
		peer_syn(&p);
		s = peer_expect(&p, "S.", 0, 1, 0);
		CHECK_EQ(s->opt.mss, family == 4 ? 1460 : 1440);
		CHECK(s->opt.has_ts && s->opt.sack_ok && s->opt.has_wscale);
		CHECK_EQ(table()->nconns, 1);
		CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 1);
		CHECK_EQ(pv_tcp_accept(p.l, &none), -EAGAIN);
		CHECK_EQ(pv_tcp_ready_bits(p.l), 0);
		peer_agree(&p, s);
		peer_send(&p, ".", 1, 1, 0);
		CHECK_EQ(table()->nconns, 2);
		CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 0);
		CHECK_EQ(pv_tcp_accept_queue(p.l), 1);
		CHECK_EQ(pv_tcp_ready_bits(p.l), PV_EV_IN);
		p.c = accepted();
		CHECK_EQ(pv_tcp_ready_bits(p.c), PV_EV_OUT);
		CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
		CHECK(p.c->srtt_ns > 0);
		peer_close(&p);
	}
}

TEST(events)
{
	struct pv_event ev[4];
	int listener, connection;

	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	pv_tcp_set_user(p.l, &listener);
	handshake(4000);
	CHECK(pv_tcp_ready(table()));
	CHECK_EQ(pv_stack_events(p.w.host[0].stack, ev, 4), 1);
	CHECK(ev[0].user == &listener && ev[0].bits == PV_EV_IN);
	p.c = accepted();
	peer_send(&p, "P.", 1, 1, 5);
	CHECK_EQ(pv_stack_events(p.w.host[0].stack, ev, 4), 0);
	pv_tcp_set_user(p.c, &connection);
	CHECK_EQ(pv_stack_events(p.w.host[0].stack, ev, 4), 1);
	CHECK(ev[0].user == &connection && ev[0].bits == (PV_EV_IN | PV_EV_OUT));
	peer_send(&p, "F.", 6, 1, 0);
	CHECK_EQ(pv_stack_events(p.w.host[0].stack, ev, 4), 1);
	CHECK(ev[0].bits & PV_EV_RDHUP);
	peer_close(&p);
}

TEST(data_and_fin_with_the_third_segment)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	peer_syn(&p);
	peer_agree(&p, peer_expect(&p, "S.", 0, 1, 0));
	peer_send(&p, "PF.", 1, 1, 77);
	p.c = accepted();
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSE_WAIT);
	peer_read(&p, 77);
	CHECK_EQ(peer_try_read(&p, 1, 0), 0);
	peer_close(&p);
}

TEST(syn_ack_is_repeated_and_given_up)
{
	peer_open(&p, &(struct peer_cfg){ .tcp = { .synack_retries = 3 } });
	peer_listen(&p, 8);
	peer_syn(&p);
	peer_expect(&p, "S.", 0, 1, 0);
	for (int64_t wait = 1; wait <= 4; wait *= 2)
		peer_expect_in(&p, wait * S, wait * S + 20 * MS, "S.", 0, 1, 0);
	peer_run(&p, 7900 * MS);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 1);
	peer_run(&p, 200 * MS);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 0);
	peer_expect_none(&p);
	CHECK_EQ(count()->open_failed, 1);
	peer_close(&p);
}

TEST(what_a_record_answers)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	peer_syn(&p);
	peer_expect(&p, "S.", 0, 1, 0);
	peer_syn(&p);
	peer_expect(&p, "S.", 0, 1, 0); /* ours got lost */
	peer_send(&p, ".", 1, 7, 0);
	peer_expect(&p, "R", 7, 0, 0);
	peer_send(&p, ".", 1u << 20, 1, 0);
	peer_expect(&p, ".", 1, 1, 0);
	peer_send(&p, "R", 1u << 20, 0, 0);
	peer_expect_none(&p);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 1);
	peer_send(&p, "R", 1, 0, 0);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 0);
	peer_syn(&p);
	peer_expect(&p, "S.", 0, 1, 0);
	peer_icmp(&p, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_HOST, 0, 5);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 1);
	peer_icmp(&p, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_HOST, 0, 0);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 0);
	peer_close(&p);
}

/* RFC 9293 3.10.7.2 */
TEST(what_a_listener_answers)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	p.irs = 1000;
	peer_send(&p, "R", 0, 0, 0);
	peer_send(&p, "P", 0, 0, 10);
	peer_send(&p, "SF", 0, 0, 0);
	peer_expect_none(&p);
	peer_send(&p, ".", 5, 42, 0);
	peer_expect(&p, "R", 42, 0, 0);
	peer_send(&p, "S.", 5, 42, 0);
	peer_expect(&p, "R", 42, 0, 0);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 0);
	peer_close(&p);
}

TEST(a_listener_that_goes_resets_what_nobody_accepted)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	handshake(4000);
	as(4001);
	peer_syn(&p);
	peer_skip(&p);
	pv_tcp_close(p.l, p.w.now);
	p.l = NULL;
	peer_run(&p, 0);
	CHECK(peer_next(&p)->bits & PV_TH_RST);
	peer_expect_none(&p);
	CHECK_EQ(table()->nconns, 0);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 0);
	peer_close(&p);
}

TEST(shutdown_of_a_listener)
{
	struct pv_tcp *c;

	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	handshake(4000);
	CHECK_EQ(pv_tcp_shutdown(p.l, 2, p.w.now), 0);
	CHECK_EQ(pv_tcp_state(p.l), PV_TCP_LISTEN);
	CHECK_EQ(pv_tcp_shutdown(p.l, 1, p.w.now), 0);
	CHECK_EQ(pv_tcp_state(p.l), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_accept(p.l, &c), -EINVAL);
	peer_run(&p, 0);
	peer_expect(&p, "R.", 1, 1, 0);
	/* The port is its still. */
	CHECK_EQ(pv_tcp_listen(p.l, 3), 0);
	handshake(4001);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 1);
	peer_close(&p);
}

TEST(reset_on_the_accept_queue)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	handshake(4000);
	peer_send(&p, "R", 1, 0, 0);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 1);
	p.c = accepted();
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(peer_try_read(&p, 1, 0), -ECONNRESET);
	peer_close(&p);
}

/* ---- queues ------------------------------------------------------------------------------------------------------------------- */

TEST(accept_queue_full)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 1);
	/* As Linux: one more than the backlog says. */
	handshake(4000);
	handshake(4001);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 2);
	as(4002);
	peer_syn(&p);
	peer_expect_none(&p);
	CHECK_EQ(count()->accept_overflow, 1);
	close_it(accepted());
	/* One whose SYN was let in while there was room. */
	as(4003);
	peer_syn(&p);
	peer_agree(&p, peer_expect(&p, "S.", 0, 1, 0));
	p.cfg.wnd = 65535;
	{
		uint32_t irs = p.irs, ts_recent = p.ts_recent;

		handshake(4004);
		CHECK_EQ(pv_tcp_accept_queue(p.l), 2);
		as(4003);
		p.irs = irs;
		p.ts_recent = ts_recent;
		p.ts_on = true;
	}
	peer_send(&p, ".", 1, 1, 0);
	peer_expect_none(&p);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 2);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 1);
	close_it(accepted());
	/* The peer thinks that it is connected; what it sends next does it. */
	peer_send(&p, "P.", 1, 1, 10);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 2);
	close_it(accepted());
	p.c = accepted();
	peer_read(&p, 10);
	peer_close(&p);
}

TEST(listen_again_changes_the_backlog)
{
	peer_open(&p, &(struct peer_cfg){ .tcp = { .somaxconn = 2 } });
	peer_listen(&p, 0);
	handshake(4000);
	as(4001);
	peer_syn(&p);
	peer_expect_none(&p);
	CHECK_EQ(pv_tcp_listen(p.l, -1), 0);
	handshake(4001);
	handshake(4002);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 3);
	as(4003);
	peer_syn(&p);
	peer_expect_none(&p);
	peer_close(&p);
}

/* ---- cookies (RFC 4987) -------------------------------------------------------------------------------------------------------- */

static void fill_queue(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		as((uint16_t)(20000 + i));
		peer_syn(&p);
		peer_expect(&p, "S.", 0, 1, 0);
	}
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), n);
}

TEST(cookies)
{
	for (int way = 0; way < 8; way++) {
		bool ts = way & 1, six = way & 2, ws = way & 4;
		const struct peer_seg *s;

		peer_open(&p, &(struct peer_cfg){ .family = six ? 6 : 4, .no_ts = !ts, .no_wscale = !ws, .tcp = { .ecn = 2 } });
		p.cfg.wscale = 5;
		peer_listen(&p, 4);
		fill_queue(4);
		as(4000);
		peer_syn(&p);
		s = peer_expect(&p, "S.", 0, 1, 0);
		peer_agree(&p, s);
		CHECK_EQ(count()->cookies_sent, 1);
		CHECK_EQ(pv_tcp_count(table(), PV_TCP_SYN_RCVD), 4);
		CHECK_EQ(s->opt.has_wscale, ts && ws);
		CHECK_EQ(s->opt.sack_ok, ts);
		peer_run(&p, 500 * MS);
		peer_skip(&p);
		peer_send(&p, ".", 1, 1, 0);
		CHECK_EQ(count()->cookies_ok, 1);
		p.c = accepted();
		CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
		CHECK_EQ(!!(p.c->flags & PV_TF_SACK), ts);
		CHECK_EQ(!!(p.c->flags & PV_TF_WS), ts && ws);
		CHECK_EQ(p.c->snd_wscale, ts && ws ? 5 : 0);
		CHECK_EQ(p.c->srtt_ns, 0);
		CHECK_EQ(p.c->rto_ns, 1 * S);
		CHECK_EQ(p.c->mss, (six ? 1440 : 1460) - (ts ? 12 : 0));
		peer_write(&p, 100);
		peer_expect(&p, "P.", 1, 1, 100);
		peer_send(&p, "P.", 1, 101, 10);
		peer_read(&p, 10);
		peer_close(&p);
	}
}

TEST(cookies_that_are_none)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 4);
	fill_queue(4);
	as(4000);
	peer_syn(&p);
	peer_agree(&p, peer_expect(&p, "S.", 0, 1, 0));
	peer_send(&p, ".", 1, 2, 0);
	peer_expect(&p, "R", 2, 0, 0);
	peer_send(&p, ".", 100, 1, 0);
	peer_expect(&p, "R", 1, 0, 0);
	CHECK_EQ(count()->cookies_bad, 2);
	/* Two minutes later it is not good any more. */
	peer_run(&p, 125 * S);
	peer_skip(&p);
	peer_send(&p, ".", 1, 1, 0);
	peer_expect(&p, "R", 1, 0, 0);
	CHECK_EQ(count()->cookies_ok, 0);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 0);
	peer_close(&p);
	/* Without any having been sent, nobody looks. */
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 4);
	p.irs = 1000;
	peer_send(&p, ".", 1, 1, 0);
	peer_expect(&p, "R", 1, 0, 0);
	CHECK_EQ(count()->cookies_bad, 0);
	peer_close(&p);
	/* Turned off, the queue's end is the end. */
	peer_open(&p, &(struct peer_cfg){ .tcp = { .no_syn_cookies = true } });
	peer_listen(&p, 4);
	fill_queue(4);
	as(4000);
	peer_syn(&p);
	peer_expect_none(&p);
	CHECK_EQ(count()->syn_overflow, 1);
	peer_close(&p);
}

/* ---- TCP_DEFER_ACCEPT --------------------------------------------------------------------------------------------------------------- */

TEST(defer_accept)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 4);
	pv_tcp_options(p.l)->defer_accept_s = 3;
	handshake(4000);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 0);
	peer_send(&p, "P.", 1, 1, 10);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 1);
	p.c = accepted();
	peer_read(&p, 10);
	/* Without data: asked once more at the end of the time, and then taken as it is. */
	handshake(4001);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 0);
	peer_expect_in(&p, 2900 * MS, 3100 * MS, "S.", 0, 1, 0);
	peer_send(&p, ".", 1, 1, 0);
	CHECK_EQ(pv_tcp_accept_queue(p.l), 1);
	peer_close(&p);
}

/* ---- ports -------------------------------------------------------------------------------------------------------------------------- */

struct want {
	int family; /* 4, 6; 60: v6only */
	uint8_t host; /* of the address; 0: any; 100: an address more */
	bool addr, port, listen; /* SO_REUSEADDR, SO_REUSEPORT */
};

static struct pv_tcp *open_want(struct world *w, const struct want *x)
{
	struct pv_tcp *c = tcp_sock(w, 0, x->family == 4 ? 4 : 6);

	pv_tcp_options(c)->reuse_addr = x->addr;
	pv_tcp_options(c)->reuse_port = x->port;
	pv_tcp_options(c)->v6only = x->family == 60;
	pv_tcp_options_changed(c, w->now);
	return c;
}

static int bind_want(struct pv_tcp *c, const struct want *x, uint16_t port)
{
	struct pv_addr a = x->family == 4 ? (x->host ? ip4(10, 0, 0, x->host) : any4()) : (x->host ? ip6(x->host) : any6());
	struct pv_endpoint e = ep(a, port);

	return pv_tcp_bind(c, &e);
}

/* What Linux 6.x says of the second bind, and of the second listen. */
static const struct {
	struct want a, b;
	int bind, listen;
} conflicts[] = {
	{ { 4, 0, 0, 0, 0 }, { 4, 0, 0, 0, 0 }, -EADDRINUSE, 0 }, { { 4, 0, 1, 0, 0 }, { 4, 0, 0, 0, 0 }, -EADDRINUSE, 0 },
	{ { 4, 0, 0, 0, 0 }, { 4, 0, 1, 0, 0 }, -EADDRINUSE, 0 }, { { 4, 0, 1, 0, 0 }, { 4, 0, 1, 0, 0 }, 0, 0 },
	{ { 4, 0, 1, 0, 1 }, { 4, 0, 1, 0, 0 }, -EADDRINUSE, 0 }, { { 4, 0, 0, 1, 1 }, { 4, 0, 0, 1, 0 }, 0, 0 },
	{ { 4, 0, 0, 1, 1 }, { 4, 0, 0, 0, 0 }, -EADDRINUSE, 0 }, { { 4, 0, 1, 1, 1 }, { 4, 0, 1, 0, 0 }, -EADDRINUSE, 0 },
	{ { 4, 1, 0, 0, 1 }, { 4, 101, 0, 0, 0 }, 0, 0 },         { { 4, 1, 0, 0, 0 }, { 4, 0, 0, 0, 0 }, -EADDRINUSE, 0 },
	{ { 4, 1, 1, 0, 1 }, { 4, 0, 1, 0, 0 }, -EADDRINUSE, 0 }, { { 6, 0, 0, 0, 0 }, { 4, 0, 0, 0, 0 }, -EADDRINUSE, 0 },
	{ { 60, 0, 0, 0, 1 }, { 4, 0, 0, 0, 0 }, 0, 0 },          { { 4, 1, 0, 0, 0 }, { 6, 0, 0, 0, 0 }, -EADDRINUSE, 0 },
	{ { 4, 1, 0, 0, 0 }, { 60, 0, 0, 0, 0 }, 0, 0 },          { { 6, 1, 0, 0, 0 }, { 4, 0, 0, 0, 0 }, 0, 0 },
	{ { 6, 1, 0, 0, 0 }, { 6, 0, 0, 0, 0 }, -EADDRINUSE, 0 },
};

TEST(bind_conflicts)
{
	struct world w;

	tcp_world_open(&w, &(struct world_cfg){ .extra4 = 1 });
	for (size_t i = 0; i < sizeof(conflicts) / sizeof(conflicts[0]); i++) {
		struct pv_tcp *a = open_want(&w, &conflicts[i].a), *b = open_want(&w, &conflicts[i].b);
		int rc;

		CHECK_EQ(bind_want(a, &conflicts[i].a, 555), 0);
		if (conflicts[i].a.listen)
			CHECK_EQ(pv_tcp_listen(a, 1), 0);
		rc = bind_want(b, &conflicts[i].b, 555);
		if (rc != conflicts[i].bind)
			fprintf(stderr, "row %zu\n", i);
		CHECK_EQ(rc, conflicts[i].bind);
		if (!rc)
			CHECK_EQ(pv_tcp_listen(b, 1), conflicts[i].listen);
		/* Both of SO_REUSEADDR may bind, one may listen. */
		if (!rc && !conflicts[i].a.listen && conflicts[i].a.addr)
			CHECK_EQ(pv_tcp_listen(a, 1), -EADDRINUSE);
		pv_tcp_close(a, w.now);
		pv_tcp_close(b, w.now);
	}
	world_close(&w);
}

TEST(bind_errors)
{
	struct world w;
	struct pv_tcp *c;
	struct pv_endpoint e = ep(ip4(10, 0, 0, 9), 1);

	tcp_world_open(&w, &(struct world_cfg){ 0 });
	c = tcp_sock(&w, 0, 4);
	CHECK_EQ(pv_tcp_bind(c, &e), -EADDRNOTAVAIL);
	e = ep(ip6(1), 1);
	CHECK_EQ(pv_tcp_bind(c, &e), -EAFNOSUPPORT);
	e = ep(any4(), 0);
	CHECK_EQ(pv_tcp_bind(c, &e), 0);
	pv_tcp_local(c, &e);
	CHECK(e.port >= 32768 && e.port <= 60999);
	CHECK_EQ(pv_tcp_bind(c, &e), -EINVAL);
	pv_tcp_close(c, w.now);
	c = tcp_sock(&w, 0, 6);
	e = ep(ll6(1), 1);
	CHECK_EQ(pv_tcp_bind(c, &e), -EINVAL);
	e.iface = 9;
	CHECK_EQ(pv_tcp_bind(c, &e), -ENODEV);
	e.iface = w.host[0].iface;
	CHECK_EQ(pv_tcp_bind(c, &e), 0);
	CHECK_EQ(pv_tcp_listen(c, 1), 0);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -EISCONN);
	pv_tcp_close(c, w.now);
	CHECK_EQ(pv_tcp_open(w.host[0].tcp, (enum pv_family)7, NULL, &c), -EAFNOSUPPORT);
	world_close(&w);
}

/* Every port of the range once for bind; connect shares them between peers. */
TEST(ephemeral_ports)
{
	struct world w;
	struct pv_tcp *c[20], *bound;
	struct pv_endpoint e, any = ep(any4(), 0), busy;

	tcp_world_open(&w, &(struct world_cfg){ .tcp = { .port_lo = 40000, .port_hi = 40009 } });
	for (int i = 0; i < 20; i++) {
		c[i] = tcp_sock(&w, 0, 4);
		e = ep(host_addr(4, 2), (uint16_t)(i < 10 ? 80 : 81));
		CHECK_EQ(pv_tcp_connect(c[i], &e, w.now), -EINPROGRESS);
		for (int k = i < 10 ? 0 : 10; k < i; k++)
			CHECK(c[k]->lport != c[i]->lport);
	}
	bound = tcp_sock(&w, 0, 4);
	e = ep(host_addr(4, 2), 80);
	CHECK_EQ(pv_tcp_connect(bound, &e, w.now), -EADDRNOTAVAIL);
	CHECK_EQ(pv_tcp_bind(bound, &any), -EADDRINUSE);
	pv_tcp_local(c[3], &busy);
	pv_tcp_close(c[3], w.now);
	CHECK_EQ(pv_tcp_bind(bound, &(struct pv_endpoint){ .addr = any4(), .port = busy.port }), -EADDRINUSE);
	CHECK_EQ(pv_tcp_connect(bound, &e, w.now), -EINPROGRESS);
	CHECK_EQ(bound->lport, busy.port);
	pv_tcp_close(bound, w.now);
	for (int i = 0; i < 20; i++)
		if (i != 3)
			pv_tcp_close(c[i], w.now);
	CHECK_EQ(w.host[0].tcp->ports.count, 0);
	world_close(&w);
}

TEST(a_flow_exists_once)
{
	struct world w;
	struct pv_tcp *a, *b;
	struct pv_endpoint local = ep(host_addr(4, 1), 500), remote = ep(host_addr(4, 2), 80);

	tcp_world_open(&w, &(struct world_cfg){ 0 });
	a = open_want(&w, &(struct want){ .family = 4, .addr = true });
	b = open_want(&w, &(struct want){ .family = 4, .addr = true });
	CHECK_EQ(pv_tcp_bind(a, &local), 0);
	CHECK_EQ(pv_tcp_bind(b, &local), 0);
	CHECK_EQ(pv_tcp_connect(a, &remote, w.now), -EINPROGRESS);
	CHECK_EQ(pv_tcp_connect(b, &remote, w.now), -EADDRNOTAVAIL);
	remote.port = 81;
	CHECK_EQ(pv_tcp_connect(b, &remote, w.now), -EINPROGRESS);
	pv_tcp_close(a, w.now);
	pv_tcp_close(b, w.now);
	world_close(&w);
}

TEST(connect_errors)
{
	struct world w;
	struct pv_tcp *c;
	struct pv_endpoint e;

	tcp_world_open(&w, &(struct world_cfg){ 0 });
	c = tcp_sock(&w, 0, 4);
	e = ep(ip6(2), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -EAFNOSUPPORT);
	e = ep(ip4(8, 8, 8, 8), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -ENETUNREACH);
	e = ep(ip4(224, 0, 0, 5), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -ENETUNREACH);
	e = ep(ip4(10, 0, 0, 255), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -ENETUNREACH);
	pv_tcp_local(c, &e);
	CHECK(pv_addr_is_any(&e.addr) && !e.port);
	/* No neighbour: the attempt ends when that is known. */
	e = ep(ip4(10, 0, 0, 77), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -EINPROGRESS);
	world_run(&w, 10 * S);
	CHECK_EQ(pv_tcp_state(c), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(c), EHOSTUNREACH);
	pv_tcp_close(c, w.now);
	c = tcp_sock(&w, 0, 6);
	pv_tcp_options(c)->v6only = true;
	e = ep(ip4(10, 0, 0, 2), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -ENETUNREACH);
	e = ep(ll6(2), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -EINVAL);
	pv_tcp_close(c, w.now);
	world_close(&w);
}

TEST(mapped_and_link_local_peers)
{
	struct world w;
	struct pv_tcp *l, *c, *a;
	struct pv_endpoint e;

	tcp_world_open(&w, &(struct world_cfg){ 0 });
	l = tcp_listener(&w, 1, 6, 80, 4);
	c = tcp_sock(&w, 0, 6);
	e = ep(ip4(10, 0, 0, 2), 80);
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -EINPROGRESS);
	world_run(&w, 1 * S);
	CHECK_EQ(pv_tcp_accept(l, &a), 0);
	CHECK(pv_tcp_remote(a, &e) && pv_addr_is4(&e.addr));
	pv_tcp_close(c, w.now);
	pv_tcp_close(a, w.now);
	c = tcp_sock(&w, 0, 6);
	e = ep(ll6(2), 80);
	e.iface = w.host[0].iface;
	CHECK_EQ(pv_tcp_connect(c, &e, w.now), -EINPROGRESS);
	world_run(&w, 1 * S);
	CHECK_EQ(pv_tcp_accept(l, &a), 0);
	CHECK(pv_tcp_remote(a, &e));
	CHECK_EQ(e.iface, w.host[1].iface);
	CHECK_EQ(tcp_write(&w, a, "x", 1), 1);
	world_run(&w, 1 * S);
	CHECK_EQ(pv_tcp_inq(c), 1);
	pv_tcp_close(c, w.now);
	pv_tcp_close(a, w.now);
	pv_tcp_close(l, w.now);
	world_close(&w);
}

TEST(reuseport_spreads)
{
	struct pv_tcp *l[4];
	uint32_t got[4] = { 0 };

	peer_open(&p, &(struct peer_cfg){ 0 });
	for (int i = 0; i < 4; i++) {
		struct want x = { .family = 4, .port = true };

		l[i] = open_want(&p.w, &x);
		CHECK_EQ(bind_want(l[i], &x, 80), 0);
		CHECK_EQ(pv_tcp_listen(l[i], 100), 0);
	}
	for (uint16_t i = 0; i < 100; i++)
		handshake((uint16_t)(5000 + i));
	for (int i = 0; i < 4; i++)
		got[i] = pv_tcp_accept_queue(l[i]);
	CHECK_EQ(got[0] + got[1] + got[2] + got[3], 100);
	for (int i = 0; i < 4; i++) {
		CHECK(got[i] > 5);
		pv_tcp_close(l[i], p.w.now);
	}
	peer_close(&p);
}

/* ---- TIME_WAIT ------------------------------------------------------------------------------------------------------------------------ */

static void into_time_wait(void)
{
	peer_passive(&p);
	pv_tcp_close(p.c, p.w.now);
	p.c = NULL;
	peer_run(&p, 0);
	peer_skip(&p);
	peer_send(&p, "F.", 1, 2, 0);
	peer_expect(&p, ".", 2, 2, 0);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_TIME_WAIT), 1);
}

static void syn_with(uint32_t seq, bool ts, uint32_t ts_val)
{
	struct pv_wire_tcp_opts o = { .mss = 1460, .has_ts = ts, .ts_val = ts_val };

	peer_send_seg(&p, &(struct peer_seg){ .flags = "S", .seq = seq, .opt = o, .no_ts = true });
}

/* RFC 6191, RFC 1122 4.2.2.13 */
TEST(time_wait_gives_way)
{
	for (int way = 0; way < 2; way++) {
		uint32_t last;

		peer_open(&p, &(struct peer_cfg){ .no_ts = !way });
		into_time_wait();
		last = p.irs + 2;
		if (way) {
			/* An old number with an old timestamp, then with a newer one. */
			syn_with(0, true, peer_ts_now(&p) - 5);
			peer_expect(&p, ".", 2, 2, 0);
			peer_run(&p, 1 * S);
			syn_with(0u - 1000u, true, peer_ts_now(&p));
		} else {
			syn_with(0, false, 0);
			peer_expect(&p, ".", 2, 2, 0);
			syn_with(70000, false, 0);
		}
		CHECK_EQ(pv_tcp_count(table(), PV_TCP_TIME_WAIT), 0);
		CHECK_EQ(count()->time_wait_reused, 1);
		CHECK_EQ(peer_next(&p)->bits, PV_TH_SYN | PV_TH_ACK);
		CHECK((int32_t)(p.irs - last) > 65535);
		peer_close(&p);
	}
}

TEST(time_wait_without_a_listener_stays)
{
	peer_open(&p, &(struct peer_cfg){ .no_ts = true });
	into_time_wait();
	pv_tcp_close(p.l, p.w.now);
	p.l = NULL;
	syn_with(70000, false, 0);
	peer_expect(&p, ".", 2, 2, 0);
	CHECK_EQ(pv_tcp_count(table(), PV_TCP_TIME_WAIT), 1);
	peer_close(&p);
}

/* A server that was started again: SO_REUSEADDR is what it needs. */
TEST(time_wait_holds_the_port)
{
	for (int reuse = 0; reuse < 2; reuse++) {
		struct pv_tcp *l;
		struct pv_endpoint e = ep(any4(), PEER_STACK_PORT);

		peer_open(&p, &(struct peer_cfg){ 0 });
		CHECK_EQ(pv_tcp_open(table(), PV_AF_INET, NULL, &p.l), 0);
		pv_tcp_options(p.l)->reuse_addr = reuse;
		CHECK_EQ(pv_tcp_bind(p.l, &e), 0);
		CHECK_EQ(pv_tcp_listen(p.l, 4), 0);
		into_time_wait();
		pv_tcp_close(p.l, p.w.now);
		p.l = NULL;
		l = tcp_sock(&p.w, 0, 4);
		pv_tcp_options(l)->reuse_addr = true;
		CHECK_EQ(pv_tcp_bind(l, &e), reuse ? 0 : -EADDRINUSE);
		peer_run(&p, 61 * S);
		if (!reuse)
			CHECK_EQ(pv_tcp_bind(l, &e), 0);
		pv_tcp_close(l, p.w.now);
		CHECK_EQ(table()->ports.count, 0);
		peer_close(&p);
	}
}

/* ---- several connections ------------------------------------------------------------------------------------------------- */

/* A piece comes for the connection and is read. */
static void piece(struct pv_tcp *c, uint16_t port, uint32_t irs, uint32_t seq)
{
	char buf[20];

	p.port = port;
	p.irs = irs;
	peer_send(&p, "P.", seq, 1, 10);
	CHECK_EQ(pv_tcp_recv(c, &(struct pv_iov){ buf, sizeof(buf) }, 1, 0, p.w.now), 10);
}

TEST(whose_news_it_was)
{
	struct pv_tcp *one, *other;
	uint32_t irs[2], since;

	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_listen(&p, 8);
	handshake(5001);
	one = accepted();
	irs[0] = p.irs;
	handshake(5002);
	other = accepted();
	irs[1] = p.irs;
	since = pv_tcp_news(table());
	CHECK(!pv_tcp_news_of_others(table(), one, since));
	for (uint32_t i = 0; i < 3; i++)
		piece(one, 5001, irs[0], 1 + i * 10);
	CHECK_EQ(pv_tcp_news(table()), since + 3);
	CHECK(!pv_tcp_news_of_others(table(), one, since));
	CHECK(pv_tcp_news_of_others(table(), other, since));
	/* The other's among them, whoever was last. */
	piece(other, 5002, irs[1], 1);
	CHECK(pv_tcp_news_of_others(table(), one, since));
	CHECK(!pv_tcp_news_of_others(table(), other, since + 3));
	piece(one, 5001, irs[0], 31);
	CHECK(pv_tcp_news_of_others(table(), one, since + 3));
	CHECK(!pv_tcp_news_of_others(table(), one, since + 4));
	CHECK(pv_tcp_news_of_others(table(), other, since + 4));
	CHECK(!pv_tcp_news_of_others(table(), other, since + 5));
	close_it(one);
	close_it(other);
	peer_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
