/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces of the kernel's in the network layer. The kernel here is a small one of the test's own: a table of routes with longest
 * prefix match and a table of neighbours that answers at once, later or never.
 */
#include "net_util.h"

#include "base/rng.h"

#define KERNEL_A 7u /* the kernel's numbers of our interfaces */
#define KERNEL_OTHER 99u /* of one that is not ours */

struct kernel_route {
	struct pv_addr dst, gateway, src;
	uint32_t plen, oif, mtu;
	bool local, broadcast;
	int rc;
};

static struct {
	struct kernel_route route[16];
	uint32_t nroute;
	struct pv_host_query last;
	uint32_t asked, resolved;
	struct pv_addr wanted; /* the last neighbour asked for */
	uint32_t wanted_on;
	const uint8_t *at_once; /* MAC that resolve answers with */
	struct bench *b;
} kernel;

static int kernel_route(void *ctx, const struct pv_host_query *q, struct pv_host_route *out)
{
	const struct kernel_route *best = NULL;

	CHECK(ctx == &kernel);
	kernel.asked++;
	kernel.last = *q;
	for (uint32_t i = 0; i < kernel.nroute; i++) {
		const struct kernel_route *r = &kernel.route[i];
		uint32_t plen = pv_addr_plen(&r->dst, r->plen);

		if (pv_addr_is4(&r->dst) != pv_addr_is4(&q->dst) || !pv_addr_in(&q->dst, &r->dst, plen))
			continue;
		if (q->kernel_index && r->oif != q->kernel_index)
			continue;
		if (!best || plen > pv_addr_plen(&best->dst, best->plen))
			best = r;
	}
	if (!best)
		return -ENETUNREACH;
	if (best->rc)
		return best->rc;
	*out = (struct pv_host_route){ .kernel_index = best->oif,
				       .src = best->src,
				       .gateway = best->gateway,
				       .mtu = best->mtu,
				       .local = best->local,
				       .broadcast = best->broadcast };
	return 0;
}

static void kernel_resolve(void *ctx, uint32_t kernel_index, const struct pv_addr *addr)
{
	CHECK(ctx == &kernel);
	kernel.resolved++;
	kernel.wanted = *addr;
	kernel.wanted_on = kernel_index;
	if (kernel.at_once)
		pv_net_neigh_set(kernel.b->net, kernel.b->iface[0], addr, kernel.at_once, kernel.b->now);
}

static const struct pv_host_ops kernel_ops = { .route = kernel_route, .resolve = kernel_resolve };

static struct kernel_route *route(const char *dst, uint32_t plen, const char *src, uint32_t oif)
{
	struct kernel_route *r = &kernel.route[kernel.nroute++];

	CHECK(kernel.nroute <= pv_array_size(kernel.route));
	*r = (struct kernel_route){ .dst = ip(dst), .plen = plen, .oif = oif };
	if (src)
		r->src = ip(src);
	return r;
}

/* 10.0.0.1/24 and fd00::1/64 on an interface of the kernel's. */
static struct bench *host_open_cfg(struct bench_cfg cfg)
{
	struct bench *b;

	memset(&kernel, 0, sizeof(kernel));
	cfg.net.host = &kernel_ops;
	cfg.net.host_ctx = &kernel;
	cfg.steer = PV_STEER_SOCKET;
	b = bench_open(&cfg);
	b->net->iface[b->iface[0]]->cfg.kernel_index = KERNEL_A;
	kernel.b = b;
	route("10.0.0.0", 24, "10.0.0.1", KERNEL_A);
	route("fd00::", 64, "fd00::1", KERNEL_A);
	route("10.0.0.1", 32, "10.0.0.1", 1)->local = true;
	route("127.0.0.0", 8, "127.0.0.1", 1)->local = true;
	route("10.0.0.255", 32, "10.0.0.1", KERNEL_A)->broadcast = true;
	route("224.0.0.0", 4, "10.0.0.1", KERNEL_A);
	return b;
}

static struct bench *host_open(void)
{
	return host_open_cfg((struct bench_cfg){ .mtu = 0 });
}

static int ask(struct bench *b, const char *dst, const char *src, uint32_t iface, struct pv_path *p)
{
	struct pv_path_query q = { .dst = ip(dst), .iface = iface, .proto = 17, .tos = 0x10, .src_port = 1, .dst_port = 2 };
	int rc;

	if (src)
		q.src = ip(src);
	rc = pv_net_path(b->net, &q, b->now, p);
	CHECK_EQ(p->gen != 0, rc == 0);
	return rc;
}

static int asked(struct bench *b, const char *dst, const char *src, uint32_t iface)
{
	struct pv_path p;

	return ask(b, dst, src, iface, &p);
}

static bool is(const struct pv_addr *a, const char *text)
{
	struct pv_addr want = ip(text);

	return pv_addr_eq(a, &want);
}

static int set(struct bench *b, const char *addr, uint32_t mtu, bool up)
{
	struct pv_ifaddr a = { .prefix_len = 24 };
	struct pv_iface_state st = { .name = "eth0", .addr = &a, .naddr = addr != NULL, .mtu = mtu, .link_up = up };

	if (addr)
		a.addr = ip(addr);
	return pv_net_iface_set(b->net, b->iface[0], &st);
}

TEST(host_route_is_taken_as_it_is)
{
	struct bench *b = host_open();
	struct kernel_route *r = route("0.0.0.0", 0, "10.0.0.1", KERNEL_A);
	struct pv_path p;

	r->gateway = ip("10.0.0.254");
	r->mtu = 1300;
	CHECK_EQ(ask(b, "8.8.8.8", NULL, 0, &p), 0);
	CHECK(is(&p.src, "10.0.0.1") && is(&p.neigh->addr, "10.0.0.254") && p.iface == b->iface[0]);
	CHECK(p.mtu == 1300 && p.iface_mtu == 1500 && !p.is_local && !p.is_mcast && !p.is_bcast && !p.l2_ready);
	CHECK(is(&kernel.last.dst, "8.8.8.8") && pv_addr_is_any(&kernel.last.src) && kernel.last.kernel_index == 0);
	CHECK(kernel.last.proto == 17 && kernel.last.tos == 0x10 && kernel.last.src_port == 1 && kernel.last.dst_port == 2);
	/* Bound to the interface, and from an address. */
	CHECK_EQ(ask(b, "10.0.0.2", "10.0.0.1", b->iface[0], &p), 0);
	CHECK(kernel.last.kernel_index == KERNEL_A && is(&kernel.last.src, "10.0.0.1") && is(&p.neigh->addr, "10.0.0.2"));
	/* An IPv4 route by an IPv6 gateway (RFC 5549). */
	r->gateway = ip("fd00::fe");
	CHECK_EQ(ask(b, "8.8.4.4", NULL, 0, &p), 0);
	CHECK(is(&p.neigh->addr, "fd00::fe") && p.is4);
	/* A group and a broadcast know their MAC. */
	CHECK_EQ(ask(b, "239.1.2.3", NULL, 0, &p), 0);
	CHECK(p.is_mcast && p.l2_ready && !p.neigh && p.l2[0] == 1);
	CHECK_EQ(ask(b, "10.0.0.255", NULL, 0, &p), 0);
	CHECK(p.is_bcast && p.l2_ready && p.l2[0] == 0xff);
	CHECK_EQ(b->net->routes.count, 0);
	bench_close(b);
}

TEST(host_refuses_or_it_is_the_kernels_business)
{
	struct bench *b = host_open();
	struct kernel_route *r;
	struct pv_path_query q = { .dst = ip("fd00::2"), .src = ip("10.0.0.1") };
	struct pv_path p;

	CHECK_EQ(asked(b, "8.8.8.8", NULL, 0), -ENETUNREACH);
	r = route("8.0.0.0", 8, NULL, KERNEL_A);
	r->rc = -EACCES;
	CHECK_EQ(asked(b, "8.8.8.8", NULL, 0), -EACCES);
	r->rc = -EHOSTUNREACH;
	CHECK_EQ(asked(b, "8.8.8.8", NULL, 0), -EHOSTUNREACH);
	r->rc = 0;
	CHECK_EQ(asked(b, "8.8.8.8", NULL, 0), -EXDEV); /* no source */
	r->src = ip("172.16.0.1");
	CHECK_EQ(asked(b, "8.8.8.8", NULL, 0), -EXDEV); /* an address of another interface: answers would not come to us */
	r->src = ip("10.0.0.1");
	CHECK_EQ(asked(b, "8.8.8.8", NULL, 0), 0);
	r->oif = KERNEL_OTHER;
	CHECK_EQ(asked(b, "8.8.8.8", NULL, 0), -EXDEV);
	CHECK_EQ(asked(b, "10.0.0.1", NULL, 0), -EXDEV); /* itself */
	CHECK_EQ(asked(b, "127.0.0.1", NULL, 0), -EXDEV);
	CHECK_EQ(asked(b, "0.0.0.0", NULL, 0), -EXDEV);
	CHECK_EQ(asked(b, "10.0.0.2", "172.16.0.1", 0), -EXDEV); /* a source that is not ours is the kernel's to refuse */
	CHECK_EQ(asked(b, "10.0.0.2", NULL, 9), -ENODEV);
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), -EAFNOSUPPORT);
	CHECK_EQ(set(b, "10.0.0.1", 1500, false), 0);
	CHECK_EQ(asked(b, "10.0.0.2", NULL, 0), -EXDEV); /* link down */
	bench_close(b);
}

/* Whoever says so is content with the last second's answer to the same question, unless the kernel told of a change. */
TEST(host_remembers_a_moment)
{
	struct bench *b = host_open();
	struct pv_path_query q = { .dst = ip("8.8.8.8"), .recent = true, .proto = 17, .src_port = 7 };
	struct pv_path p;
	uint32_t n;

	route("8.8.8.8", 32, "10.0.0.1", KERNEL_A);
	n = kernel.asked;
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(kernel.asked, n + 1);
	/* Another question. */
	q.src_port = 8;
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	q.tos = 0x10;
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(kernel.asked, n + 3);
	/* A change; a while; somebody who wants to know. */
	pv_net_host_changed(b->net, true);
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(kernel.asked, n + 4);
	b->now += PV_NS_PER_S;
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(kernel.asked, n + 5);
	q.recent = false;
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(kernel.asked, n + 6);
	/* A refusal is asked for every time. */
	q.recent = true;
	q.dst = ip("9.9.9.9");
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), -ENETUNREACH);
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), -ENETUNREACH);
	CHECK_EQ(kernel.asked, n + 8);
	/* Where nothing in the kernel looks at ports, another flow is no other question. */
	pv_net_host_changed(b->net, false);
	q.dst = ip("8.8.8.8");
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	q.src_port = 9;
	q.proto = 6;
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(kernel.asked, n + 9);
	q.tos = 0;
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	CHECK_EQ(kernel.asked, n + 10);
	bench_close(b);
}

TEST(host_is_asked_once_for_a_neighbour)
{
	static const uint8_t other[6] = { 2, 0, 0, 0, 0, 9 };
	struct bench *b = host_open();
	struct pv_path p = path_to(b, "10.0.0.2");
	struct pv_addr a = ip("10.0.0.2"), stranger = ip("10.0.0.3");
	uint32_t asked_before;

	for (int i = 0; i < 10; i++)
		CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(kernel.resolved, 1);
	CHECK(is(&kernel.wanted, "10.0.0.2") && kernel.wanted_on == KERNEL_A);
	CHECK_EQ(sent_count(b), 0); /* no ARP of ours */
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &stranger, peer_mac, b->now), -ESRCH);
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &a, peer_mac, b->now), 0);
	CHECK_EQ(sent_count(b), 10);
	asked_before = kernel.asked;
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(send_text(b, &p), 0);
		reap_all(b->fake[0]);
	}
	CHECK_EQ(kernel.resolved, 1);
	CHECK_EQ(kernel.asked, asked_before);
	bench_forget(b);
	/* Another MAC: paths are made again, and go to it. */
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &a, other, b->now), 0);
	CHECK(!pv_path_valid(b->net, &p));
	CHECK_EQ(send_text(b, &p), 0);
	CHECK(!memcmp(sent(b)->p, other, 6));
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &a, (const uint8_t[]){ 1, 0, 0, 0, 0, 0 }, b->now), -EINVAL);
	CHECK_EQ(pv_net_neigh_set(b->net, 9, &a, other, b->now), -ENODEV);
	bench_close(b);
}

TEST(host_answers_at_once)
{
	struct bench *b = host_open();
	struct pv_path p = path_to(b, "10.0.0.2");

	kernel.at_once = peer_mac;
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(sent_count(b), 1);
	CHECK_EQ(kernel.resolved, 1);
	bench_close(b);
}

/* In use for long, the kernel is asked to confirm now and then; its MAC stays good meanwhile. Not in use, nobody asks. */
TEST(host_confirms_what_is_in_use)
{
	struct bench *b = host_open();
	struct pv_path p = path_to(b, "10.0.0.2");

	kernel.at_once = peer_mac;
	CHECK_EQ(send_text(b, &p), 0);
	kernel.at_once = NULL;
	for (int s = 0; s < 600; s++) {
		bench_timers(b, SEC);
		CHECK_EQ(send_text(b, &p), 0);
		CHECK_EQ(sent_count(b), s + 2);
		reap_all(b->fake[0]);
	}
	CHECK(kernel.resolved > 5 && kernel.resolved < 40);
	bench_timers(b, 100 * SEC);
	uint32_t idle = kernel.resolved;

	bench_timers(b, 1000 * SEC);
	CHECK_EQ(kernel.resolved, idle);
	bench_close(b);
}

TEST(host_neighbour_fails)
{
	struct bench *b = host_open();
	struct pv_path p = path_to(b, "10.0.0.2");
	struct pv_addr a = ip("10.0.0.2"), unknown = ip("10.0.0.77");
	struct pv_pkt *pkt;
	uint32_t iface;

	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(pv_net_neigh_fail(b->net, b->iface[0], &unknown, b->now), -ESRCH);
	CHECK_EQ(pv_net_neigh_fail(b->net, b->iface[0], &a, b->now), 0);
	CHECK_EQ(ctr(b)->tx_no_neigh, 1);
	pkt = pv_net_loop_get(b->net, &iface);
	CHECK(pkt != NULL);
	CHECK_EQ(pv_net_rx(b->net, iface, &pkt, b->now), PV_RX_ERROR);
	CHECK_EQ(pv_net_rx_error(b->net)->err, EHOSTUNREACH);
	pv_pkt_put(pkt);
	CHECK_EQ(send_text(b, &p), -EHOSTUNREACH);
	b->now += SEC;
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(kernel.resolved, 2);
	/* Its word was lost: we give up ourselves, later than it would. */
	bench_timers(b, 4 * SEC);
	CHECK_EQ(ctr(b)->tx_no_neigh, 2);
	bench_timers(b, 10 * SEC);
	CHECK_EQ(ctr(b)->tx_no_neigh, 3);
	while ((pkt = pv_net_loop_get(b->net, &iface)))
		pv_pkt_put(pkt);
	/* Back again. */
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &a, peer_mac, b->now), 0);
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(sent_count(b), 1);
	/* Forgotten: the next one asks, and one that waits goes on waiting. */
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &a, NULL, b->now), 0);
	uint32_t before = kernel.resolved;

	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(kernel.resolved, before + 1);
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &a, NULL, b->now), 0);
	CHECK_EQ(pv_net_neigh_set(b->net, b->iface[0], &a, peer_mac, b->now), 0);
	CHECK_EQ(sent_count(b), 2);
	bench_close(b);
}

TEST(host_interface_changes)
{
	struct bench *b = host_open();
	struct pv_iface *ifp = pv_net_iface(b->net, b->iface[0]);
	struct pv_addr was = ip("10.0.0.1"), is_now = ip("10.0.0.9");
	struct pv_path p = path_to(b, "10.0.0.2");

	kernel.at_once = peer_mac;
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(set(b, "10.0.0.9", 1400, true), 0);
	CHECK(!pv_path_valid(b->net, &p));
	CHECK(!pv_net_addr_owner(b->net, &was) && pv_net_addr_owner(b->net, &is_now) == b->iface[0]);
	CHECK(!strcmp(pv_iface_config(ifp)->name, "eth0") && pv_iface_config(ifp)->mtu == 1400 && pv_iface_config(ifp)->naddr == 1);
	/* From the address that is gone it is the kernel's business. */
	CHECK_EQ(send_text(b, &p), -EXDEV);
	kernel.route[0].src = ip("10.0.0.9");
	p = path_to(b, "10.0.0.2");
	CHECK_EQ(p.mtu, 1400);
	CHECK_EQ(set(b, "10.0.0.9", 9000, true), 0);
	CHECK_EQ(pv_iface_config(ifp)->mtu, 1500); /* the ring's */
	CHECK_EQ(set(b, NULL, 1500, true), 0);
	CHECK_EQ(pv_iface_config(ifp)->naddr, 0);
	CHECK_EQ(asked(b, "10.0.0.2", NULL, 0), -EXDEV);
	/* What cannot be leaves everything as it was. */
	CHECK_EQ(set(b, "239.1.1.1", 1500, true), -EINVAL);
	CHECK_EQ(set(b, "0.0.0.0", 1500, true), -EINVAL);
	CHECK_EQ(set(b, "10.0.0.9", 67, true), -EINVAL);
	CHECK_EQ(pv_iface_config(ifp)->naddr, 0);
	CHECK_EQ(pv_net_iface_set(b->net, 9, &(struct pv_iface_state){ .mtu = 1500 }), -ENODEV);
	/* Routes or rules of the kernel's: every path is asked for anew. */
	CHECK_EQ(set(b, "10.0.0.9", 1500, true), 0);
	p = path_to(b, "10.0.0.2");
	pv_net_host_changed(b->net, true);
	CHECK(!pv_path_valid(b->net, &p));
	CHECK_EQ(send_text(b, &p), 0);
	CHECK(pv_path_valid(b->net, &p));
	bench_close(b);
}

TEST(host_link_down_is_no_reason_to_spin)
{
	struct bench *b = host_open();
	struct pv_path p = path_to(b, "10.0.0.2");
	uint32_t kicks;

	kernel.at_once = peer_mac;
	CHECK_EQ(send_text(b, &p), 0);
	b->fake[0]->kick_rc = -EAGAIN;
	CHECK_EQ(pv_net_kick(b->net), -EAGAIN);
	CHECK(pv_net_dirty(b->net));
	CHECK_EQ(set(b, "10.0.0.1", 1500, false), 0);
	CHECK_EQ(pv_net_kick(b->net), 0);
	/* Whoever would sleep may. */
	CHECK(!pv_net_dirty(b->net));
	/* Back: the frames that the ring kept go. */
	b->fake[0]->kick_rc = 0;
	CHECK_EQ(set(b, "10.0.0.1", 1500, true), 0);
	kicks = b->fake[0]->kicks;
	CHECK_EQ(pv_net_kick(b->net), 0);
	CHECK_EQ(b->fake[0]->kicks, kicks + 1);
	bench_close(b);
}

TEST(host_path_mtu)
{
	struct bench *b = host_open();
	struct pv_path p = path_to(b, "10.0.0.2");
	struct pv_addr a = ip("10.0.0.2"), six = ip("fd00::2");

	pv_net_pmtu_set(b->net, &a, 1200, b->now);
	CHECK(!pv_path_valid(b->net, &p));
	CHECK_EQ(path_to(b, "10.0.0.2").mtu, 1200);
	CHECK_EQ(path_to(b, "10.0.0.3").mtu, 1500);
	pv_net_pmtu_set(b->net, &six, 100, b->now);
	CHECK_EQ(path_to(b, "fd00::2").mtu, 1280);
	bench_timers(b, 601 * SEC);
	CHECK_EQ(path_to(b, "10.0.0.2").mtu, 1500);
	bench_close(b);
}

TEST(host_groups_and_silence)
{
	struct bench *b = host_open();
	struct pv_addr g = ip("239.1.2.3");
	struct fake *f = b->fake[0];

	CHECK_EQ(f->nflow, 0);
	CHECK_EQ(pv_net_group_iface(b->net, &g), b->iface[0]);
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, NULL, b->now), 0);
	bench_timers(b, 10 * SEC);
	CHECK_EQ(f->nflow, 0); /* rules are the sockets' */
	CHECK_EQ(rx(b, "rx_udp4_mcast"), PV_RX_UDP);
	/* A closed port: the kernel's to say. */
	CHECK_EQ(rx(b, "rx_udp4"), PV_RX_UDP);
	pv_net_rx_unreachable(b->net, b->pkt, b->now);
	b->pkt = NULL;
	CHECK_EQ(pv_net_group_leave(b->net, b->iface[0], &g, NULL, b->now), 0);
	CHECK_EQ(sent_count(b), 0);
	kernel.route[5].oif = KERNEL_OTHER;
	CHECK_EQ(pv_net_group_iface(b->net, &g), 0);
	bench_close(b);
}

/* An interface of our own beside one of the kernel's: the more specific way wins, each address keeps its own. */
TEST(host_beside_an_interface_of_our_own)
{
	struct bench_cfg own = { .steer = PV_STEER_ADDRESS };
	struct bench *b = host_open();
	struct pv_route def = { .dst = ip("0.0.0.0"), .gateway = ip("10.1.0.254") };
	struct pv_iface_state st = { .name = "x", .mtu = 1500, .link_up = true };
	struct pv_path p;
	int rc = bench_iface(b, &own, 1);

	CHECK(rc > 0);
	b->iface[1] = (uint32_t)rc;
	CHECK_EQ(pv_net_iface_set(b->net, b->iface[1], &st), -EINVAL);
	snprintf(st.name, sizeof(st.name), "b");
	CHECK_EQ(pv_net_iface_set(b->net, b->iface[0], &st), -EEXIST);
	def.iface = b->iface[1];
	CHECK_EQ(pv_net_route_add(b->net, &def), 0);
	route("8.8.8.8", 32, "10.0.0.1", KERNEL_A);
	uint32_t n = kernel.asked;

	CHECK_EQ(ask(b, "10.1.0.2", NULL, 0, &p), 0);
	CHECK(p.iface == b->iface[1] && is(&p.src, "10.1.0.1"));
	CHECK_EQ(ask(b, "8.8.8.8", NULL, 0, &p), 0); /* by our gateway, as without the other one */
	CHECK(p.iface == b->iface[1] && is(&p.neigh->addr, "10.1.0.254"));
	CHECK_EQ(ask(b, "10.1.0.1", NULL, 0, &p), 0);
	CHECK(p.is_local);
	CHECK_EQ(kernel.asked, n);
	CHECK_EQ(ask(b, "10.0.0.2", NULL, 0, &p), 0); /* on the kernel's link */
	CHECK(p.iface == b->iface[0] && is(&p.src, "10.0.0.1"));
	CHECK_EQ(ask(b, "8.8.8.8", "10.0.0.1", 0, &p), 0); /* from the kernel's address */
	CHECK_EQ(p.iface, b->iface[0]);
	CHECK_EQ(ask(b, "8.8.8.8", NULL, b->iface[0], &p), 0); /* bound to it */
	CHECK_EQ(p.iface, b->iface[0]);
	CHECK_EQ(ask(b, "10.1.0.9", "10.1.0.1", 0, &p), 0);
	CHECK_EQ(p.iface, b->iface[1]);
	CHECK_EQ(ask(b, "255.255.255.255", NULL, 0, &p), 0);
	CHECK_EQ(p.iface, b->iface[1]);
	CHECK_EQ(asked(b, "10.0.0.1", NULL, 0), -EXDEV);
	bench_close(b);
}

/* Long sequences of news in any order while packets are sent: what the layer holds comes back, and whatever is posted goes to the MAC
 * that the kernel told last. */
static void random_step(struct bench *b, struct pv_rng *rng, uint8_t mac_of[16])
{
	char text[32], local[32];
	uint32_t peer = (uint32_t)pv_rng_below(rng, 16);
	uint8_t mac[6] = { 2, 0, 0, 1, (uint8_t)peer, (uint8_t)pv_rng_below(rng, 4) };
	struct pv_addr a;
	struct pv_path p;

	snprintf(text, sizeof(text), "10.0.0.%u", 100 + peer);
	snprintf(local, sizeof(local), "10.0.0.%u", 1 + (unsigned int)pv_rng_below(rng, 2));
	a = ip(text);
	switch (pv_rng_below(rng, 12)) {
	case 0:
		kernel.route[0].src = ip(local);
		CHECK_EQ(set(b, local, 1280 + (uint32_t)pv_rng_below(rng, 400), true), 0);
		break;
	case 1:
		CHECK_EQ(set(b, local, 1500, pv_rng_below(rng, 4) != 0), 0);
		break;
	case 2:
	case 3:
		if (!pv_net_neigh_set(b->net, b->iface[0], &a, mac, b->now))
			mac_of[peer] = mac[5];
		break;
	case 4:
		(void)pv_net_neigh_fail(b->net, b->iface[0], &a, b->now);
		break;
	case 5:
		(void)pv_net_neigh_set(b->net, b->iface[0], &a, NULL, b->now);
		break;
	case 6:
		pv_net_pmtu_set(b->net, &a, 600 + (uint32_t)pv_rng_below(rng, 900), b->now);
		break;
	case 7:
		bench_timers(b, (int64_t)pv_rng_below(rng, 4 * SEC));
		break;
	default:
		pv_net_host_changed(b->net, true);
		if (ask(b, text, NULL, 0, &p) == 0)
			(void)send_text(b, &p);
		break;
	}
}

TEST(host_random_news)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct bench *b = host_open_cfg((struct bench_cfg){ .net = { .neigh_max = 12, .neigh_queue = 4 } });
		uint8_t mac_of[16] = { 0 };
		struct pv_pkt *pkt;
		struct pv_rng rng;
		uint32_t iface;

		pv_rng_seed(&rng, seed);
		for (int i = 0; i < 3000; i++) {
			random_step(b, &rng, mac_of);
			while (sent_count(b)) {
				const struct frame *f = sent(b);

				CHECK(f->p[3] == 1 && f->p[4] == f->p[33] - 100 && f->p[5] == mac_of[f->p[4]]);
			}
			b->fake[0]->head = b->fake[0]->tail;
			if (b->fake[0]->tail > LOG_MAX / 2) {
				for (uint32_t k = 0; k < b->fake[0]->tail; k++)
					free(b->fake[0]->log[k].p);
				b->fake[0]->head = b->fake[0]->tail = 0;
			}
			reap_all(b->fake[0]);
			while ((pkt = pv_net_loop_get(b->net, &iface)))
				if (pv_net_rx(b->net, iface, &pkt, b->now) != PV_RX_CONSUMED)
					pv_pkt_put(pkt);
		}
		CHECK(ctr(b)->tx_packets > 100 && ctr(b)->tx_no_neigh > 10);
		bench_close(b);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
