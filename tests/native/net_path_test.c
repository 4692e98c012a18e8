/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces, routes and paths: what is accepted, which way is chosen, from which address, and by which flow rules. */
#include "net_util.h"

static struct pv_path path_of(struct bench *b, const char *dst, const char *src, uint32_t iface, int want)
{
	struct pv_path_query q = { .dst = ip(dst), .iface = iface };
	struct pv_path p;

	if (src)
		q.src = ip(src);
	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), want);
	CHECK_EQ(p.gen != 0, want == 0);
	return p;
}

static void check_path(struct bench *b, const char *dst, const char *src, uint32_t iface, const char *want_src, const char *next)
{
	struct pv_path p = path_of(b, dst, src, iface, 0);
	struct pv_addr s = ip(want_src), n = ip(next ? next : "::");

	if (!pv_addr_eq(&p.src, &s) || (next && (!p.neigh || !pv_addr_eq(&p.neigh->addr, &n))) || (!next && p.neigh)) {
		fprintf(stderr, "%s: the way to %s is wrong\n", test_current, dst);
		exit(1);
	}
}

static int route(struct bench *b, const char *dst, uint32_t plen, const char *gw, uint32_t iface, uint32_t metric, bool del)
{
	struct pv_route r = { .dst = ip(dst), .prefix_len = (uint8_t)plen, .iface = iface, .metric = metric, .mtu = 1400 };

	if (gw)
		r.gateway = ip(gw);
	return del ? pv_net_route_del(b->net, &r) : pv_net_route_add(b->net, &r);
}

TEST(path_ways_and_sources)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	uint32_t a = b->iface[0], c = b->iface[1];

	check_path(b, "10.0.0.2", NULL, 0, "10.0.0.1", "10.0.0.2");
	check_path(b, "10.1.2.3", NULL, 0, "10.1.0.1", "10.1.2.3");
	check_path(b, "8.8.8.8", NULL, 0, "10.0.0.1", "10.0.0.254");
	check_path(b, "8.8.8.8", "10.1.0.1", 0, "10.1.0.1", "10.0.0.254"); /* weak host: a source does not choose the way */
	check_path(b, "8.8.8.8", NULL, c, "10.1.0.1", "8.8.8.8"); /* bound without a route: taken to be on the link */
	check_path(b, "fd00::2", NULL, 0, "fd00::1", "fd00::2");
	check_path(b, "fd01::2", NULL, 0, "fd01::1", "fd01::2");
	check_path(b, "2001:db8::1", NULL, 0, "fd00::1", "fd00::254");
	/* Scopes (RFC 6724): link-local to link-local. */
	check_path(b, "fe80::99", NULL, a, "fe80::ff:fe00:1", "fe80::99");
	check_path(b, "fe80::99", NULL, c, "fe80::ff:fe00:101", "fe80::99");
	check_path(b, "fe80::99", "fe80::ff:fe00:101", 0, "fe80::ff:fe00:101", "fe80::99");
	CHECK_EQ(path_of(b, "fe80::99", "fe80::ff:fe00:101", 0, 0).iface, c);
	/* Groups and broadcast need no neighbour. */
	check_path(b, "239.1.2.3", NULL, 0, "10.0.0.1", NULL);
	check_path(b, "239.1.2.3", NULL, c, "10.1.0.1", NULL);
	check_path(b, "239.1.2.3", "10.1.0.1", 0, "10.1.0.1", NULL);
	CHECK_EQ(path_of(b, "239.1.2.3", "10.1.0.1", 0, 0).iface, c);
	check_path(b, "ff02::5", NULL, a, "fe80::ff:fe00:1", NULL);
	check_path(b, "ff0e::5", NULL, a, "fd00::1", NULL);
	check_path(b, "10.0.0.255", NULL, 0, "10.0.0.1", NULL);
	check_path(b, "255.255.255.255", NULL, 0, "10.0.0.1", NULL);
	CHECK(path_of(b, "10.1.255.255", NULL, 0, 0).is_bcast);
	CHECK(path_of(b, "255.255.255.255", NULL, c, 0).is_bcast);
	/* Ourselves. */
	check_path(b, "10.1.0.1", NULL, 0, "10.1.0.1", NULL);
	check_path(b, "fd00::1", NULL, 0, "fd00::1", NULL);
	check_path(b, "0.0.0.0", "10.0.0.1", 0, "10.0.0.1", NULL);
	CHECK(path_of(b, "10.1.0.1", NULL, 0, 0).is_local);
	CHECK_EQ(path_of(b, "10.1.0.1", NULL, 0, 0).mtu, 65535);
	bench_close(b);
}

TEST(path_of_groups_without_a_route)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	struct pv_route r4 = { .dst = ip("0.0.0.0"), .gateway = ip("10.0.0.254"), .iface = b->iface[0] };
	struct pv_route r6 = { .dst = ip("::"), .gateway = ip("fd00::254"), .iface = b->iface[0] };
	struct pv_addr g4 = ip("239.1.2.3"), g6 = ip("ff15::5");

	CHECK_EQ(pv_net_route_del(b->net, &r4), 0);
	CHECK_EQ(pv_net_route_del(b->net, &r6), 0);
	CHECK_EQ(pv_net_group_iface(b->net, &g4), b->iface[0]);
	/* The first whose link is up; if none is, the first. */
	b->fake[0]->ring.caps.link_up = false;
	CHECK_EQ(pv_net_group_iface(b->net, &g4), b->iface[1]);
	CHECK_EQ(pv_net_group_iface(b->net, &g6), b->iface[1]);
	b->fake[1]->ring.caps.link_up = false;
	CHECK_EQ(pv_net_group_iface(b->net, &g4), b->iface[0]);
	bench_close(b);
}

/* An interface without an address of the family sends from another one's. */
TEST(path_from_an_unnumbered_interface)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .only4 = true });
	struct pv_iface_cfg c = *pv_iface_config(pv_net_iface(b->net, b->iface[0]));
	int i;

	memcpy(c.name, "b", 2);
	c.naddr = 0;
	memset(&c.gateway4, 0, sizeof(c.gateway4));
	i = pv_net_iface_add(b->net, &c);
	CHECK(i > 0);
	check_path(b, "192.168.7.7", NULL, (uint32_t)i, "10.0.0.1", "192.168.7.7");
	CHECK_EQ(route(b, "fd77::", 64, NULL, (uint32_t)i, 0, false), 0);
	path_of(b, "fd77::1", NULL, 0, -EADDRNOTAVAIL);
	bench_close(b);
}

TEST(path_errors)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .only4 = true, .second = true });

	path_of(b, "10.0.0.2", "10.0.0.9", 0, -EADDRNOTAVAIL);
	path_of(b, "10.0.0.2", "10.0.0.255", 0, -EADDRNOTAVAIL);
	path_of(b, "10.0.0.2", "fd00::1", 0, -EAFNOSUPPORT);
	path_of(b, "10.0.0.2", NULL, 7, -ENODEV);
	path_of(b, "10.0.0.2", NULL, 77, -ENODEV);
	path_of(b, "2001:db8::1", NULL, 0, -ENETUNREACH);
	path_of(b, "0.0.0.0", NULL, 0, -ENETUNREACH);
	path_of(b, "::", NULL, 0, -ENETUNREACH);
	path_of(b, "fe80::1", NULL, 0, -ENETUNREACH);
	path_of(b, "ff02::1", NULL, 0, -ENETUNREACH);
	bench_close(b);
}

TEST(pmtu_of_many_destinations)
{
	struct bench *b = bench_open(NULL);
	uint32_t low = 0;

	/* Bounded: later ones take the place of earlier ones, and all are gone in the end. */
	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t v = __builtin_bswap32(0xc6336400 + i);
		struct pv_addr a = pv_addr_from4(&v);

		pv_pmtu_learn(b->net, &a, 1300, 1500, b->now + i);
		CHECK_EQ(pv_pmtu_find(b->net, &a, b->now + i)->mtu, 1300);
	}
	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t v = __builtin_bswap32(0xc6336400 + i);
		struct pv_addr a = pv_addr_from4(&v);

		low += pv_pmtu_find(b->net, &a, b->now + 2000) != NULL;
	}
	CHECK(low > PV_PMTU_MAX / 2 && low <= PV_PMTU_MAX);
	bench_timers(b, 601 * SEC);
	for (uint32_t i = 0; i < PV_PMTU_MAX; i++)
		CHECK_EQ(b->net->pmtu[i].mtu, 0);
	bench_close(b);
}

/* With everything else that may have a timer waiting for it. */
TEST(pmtu_expires_when_all_timers_run)
{
	static struct pv_net_timer others[8 + 8 + PV_IFACE_TIMERS * PV_IFACE_MAX];
	struct pv_net_cfg cfg = { .neigh_max = 8, .reass_max = 8 };
	struct pv_addr a = ip("198.51.100.1");
	struct testmem mem;
	struct pv_net *net;

	cfg.mem = testmem_init(&mem);
	CHECK_EQ(pv_net_open(&net, &cfg), 0);
	for (size_t i = 0; i < pv_array_size(others); i++) {
		pv_net_timer_set(net, &others[i], 2000 * SEC);
		CHECK(pv_timer_armed(&others[i].t));
	}
	pv_net_pmtu_set(net, &a, 1300, SEC);
	CHECK_EQ(pv_pmtu_find(net, &a, SEC)->mtu, 1300);
	(void)pv_net_timers(net, 602 * SEC, UINT32_MAX);
	for (uint32_t i = 0; i < PV_PMTU_MAX; i++)
		CHECK_EQ(net->pmtu[i].mtu, 0);
	for (size_t i = 0; i < pv_array_size(others); i++)
		pv_net_timer_del(net, &others[i]);
	pv_net_close(net);
}

TEST(path_without_room_for_a_neighbour)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .net = { .neigh_max = 1 } });
	struct pv_addr a = ip("10.0.0.2");

	CHECK_EQ(pv_net_neigh_add(b->net, b->iface[0], &a, peer_mac), 0);
	path_of(b, "10.0.0.3", NULL, 0, -ENOBUFS);
	bench_close(b);
}

TEST(route_longest_prefix_lowest_metric)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	uint32_t a = b->iface[0], c = b->iface[1];

	CHECK_EQ(route(b, "172.16.0.0", 12, "10.0.0.7", a, 10, false), 0);
	CHECK_EQ(route(b, "172.16.5.0", 24, "10.1.0.7", c, 10, false), 0);
	CHECK_EQ(route(b, "172.16.5.9", 32, "10.0.0.8", a, 10, false), 0);
	check_path(b, "172.31.1.1", NULL, 0, "10.0.0.1", "10.0.0.7");
	check_path(b, "172.16.5.1", NULL, 0, "10.1.0.1", "10.1.0.7");
	check_path(b, "172.16.5.9", NULL, 0, "10.0.0.1", "10.0.0.8");
	check_path(b, "172.16.5.9", NULL, c, "10.1.0.1", "10.1.0.7"); /* bound: only routes of that interface */
	CHECK_EQ(path_of(b, "172.16.5.1", NULL, 0, 0).mtu, 1400);
	CHECK_EQ(route(b, "172.16.5.0", 24, "10.0.0.9", a, 5, false), 0);
	check_path(b, "172.16.5.1", NULL, 0, "10.0.0.1", "10.0.0.9");
	CHECK_EQ(route(b, "172.16.5.77", 24, "10.0.0.9", a, 0, true), 0);
	check_path(b, "172.16.5.1", NULL, 0, "10.1.0.1", "10.1.0.7");
	/* Equal ones: the older. */
	CHECK_EQ(route(b, "172.16.5.0", 24, "10.0.0.9", a, 10, false), 0);
	check_path(b, "172.16.5.1", NULL, 0, "10.1.0.1", "10.1.0.7");
	CHECK_EQ(route(b, "2001:db8::", 32, "fd01::9", c, 0, false), 0);
	check_path(b, "2001:db8:1::1", NULL, 0, "fd01::1", "fd01::9");
	check_path(b, "2001:db9::1", NULL, 0, "fd00::1", "fd00::254");
	bench_close(b);
}

TEST(route_errors)
{
	struct bench *b = bench_open(NULL);
	uint32_t gen = pv_net_gen_of(b->net);

	CHECK_EQ(route(b, "172.16.0.0", 33, NULL, b->iface[0], 0, false), -EINVAL);
	CHECK_EQ(route(b, "fd77::", 129, NULL, b->iface[0], 0, false), -EINVAL);
	CHECK_EQ(route(b, "172.16.0.0", 12, "fd00::1", b->iface[0], 0, false), -EINVAL);
	CHECK_EQ(route(b, "172.16.0.0", 12, "239.1.1.1", b->iface[0], 0, false), -EINVAL);
	CHECK_EQ(route(b, "172.16.0.0", 12, NULL, 9, 0, false), -ENODEV);
	CHECK_EQ(route(b, "172.16.0.0", 12, NULL, b->iface[0], 0, true), -ESRCH);
	CHECK_EQ(route(b, "10.0.0.0", 24, NULL, b->iface[0], 0, false), -EEXIST);
	CHECK_EQ(pv_net_gen_of(b->net), gen);
	b->mem.fail_in = 0;
	CHECK_EQ(route(b, "172.16.0.0", 12, NULL, b->iface[0], 0, false), -ENOMEM);
	b->mem.fail_in = -1;
	bench_close(b);
}

/* A route may say any MTU; what is sent by it still holds a header and eight bytes. */
TEST(route_mtu_below_every_header)
{
	static const char *const dst[] = { "172.16.0.9", "fd77::9" }, *const gw[] = { "10.0.0.254", "fd00::254" };
	static const uint32_t least[] = { 68, 1280 };
	struct bench *b = bench_open(NULL);
	uint8_t payload[3000] = { 0 };

	bench_neighbours(b);
	for (int i = 0; i < 2; i++) {
		for (uint32_t mtu = 1; mtu < 60; mtu++) {
			struct pv_route r = { .dst = ip(dst[i]), .prefix_len = i ? 128 : 32, .iface = b->iface[0], .mtu = mtu };
			struct pv_tx_opts o = { .proto = PV_PROTO_UDP, .ttl = 64, .l4_csum_off = 6 };
			struct pv_path p;

			r.gateway = ip(gw[i]);
			CHECK_EQ(pv_net_route_add(b->net, &r), 0);
			p = path_to(b, dst[i]);
			CHECK_EQ(p.mtu, least[i]);
			CHECK_EQ(pv_net_tx(b->net, &p, &o, segment(b, payload, sizeof(payload), 0), b->now), 0);
			CHECK_EQ(sent_count(b), (3008 + (i ? 1231 : 47)) / (i ? 1232 : 48));
			bench_forget(b);
			reap_all(b->fake[0]);
			CHECK_EQ(pv_net_route_del(b->net, &r), 0);
		}
	}
	bench_close(b);
}

/* Against the obvious way to do it: look at all of them. */
TEST(route_many_against_a_scan)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .second = true });
	struct pv_rng rng;
	struct pv_route all[600];
	uint32_t n = 0;

	pv_rng_seed(&rng, 3);
	while (n < pv_array_size(all)) {
		struct pv_route r = { .iface = b->iface[n & 1], .metric = 1 + n };
		uint32_t v = 0x0b000000 | (pv_rng_u32(&rng) & 0x00ff00ff), bits = 8 + (uint32_t)pv_rng_below(&rng, 25);

		v = __builtin_bswap32(v & (UINT32_MAX << (32 - bits)));
		r.dst = pv_addr_from4(&v);
		r.prefix_len = (uint8_t)bits;
		if (pv_net_route_add(b->net, &r) == 0)
			all[n++] = r;
	}
	for (uint32_t i = 0; i < 5000; i++) {
		uint32_t v = __builtin_bswap32(0x0b000000 | (pv_rng_u32(&rng) & 0x00ff00ff));
		struct pv_addr a = pv_addr_from4(&v);
		const struct pv_route *best = NULL, *got = pv_route_find(b->net, &a, 0);

		for (uint32_t k = 0; k < n; k++)
			if (pv_addr_in(&a, &all[k].dst, all[k].prefix_len + 96u) &&
			    (!best || all[k].prefix_len > best->prefix_len ||
			     (all[k].prefix_len == best->prefix_len && all[k].metric < best->metric)))
				best = &all[k];
		if (best) {
			CHECK_EQ(got->metric, best->metric);
			CHECK(pv_addr_eq(&got->dst, &best->dst));
		} else {
			CHECK_EQ(got->prefix_len, 96); /* the default */
		}
	}
	for (uint32_t k = 0; k < n; k++)
		CHECK_EQ(pv_net_route_del(b->net, &all[k]), 0);
	bench_close(b);
}

TEST(iface_bad_configurations)
{
	struct bench *b = bench_open(NULL);
	struct pv_iface_cfg good = *pv_iface_config(pv_net_iface(b->net, b->iface[0])), c;

	memcpy(good.name, "other", 6);
	good.naddr = 2;
	c = good;
	c.mtu = 1501;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c.mtu = 1279;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c.naddr = 1;
	c.mtu = 575;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c = good;
	c.naddr = 0;
	memset(&c.gateway4, 0, sizeof(c.gateway4));
	memset(&c.gateway6, 0, sizeof(c.gateway6));
	c.mtu = 67;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c = good;
	c.addr[0].prefix_len = 33;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c = good;
	c.addr[0].addr = ip("239.1.1.1");
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c = good;
	c.naddr = PV_IFACE_ADDR_MAX + 1;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c = good;
	c.vlan = 4095;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c = good;
	memset(c.name, 'x', sizeof(c.name));
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EINVAL);
	c = good;
	memcpy(c.name, "a", 2);
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EEXIST);
	c = good;
	c.gateway4 = ip("fd00::1");
	CHECK(pv_net_iface_add(b->net, &c) < 0);
	CHECK_EQ(pv_net_iface_del(b->net, 9), -ENODEV);
	CHECK(pv_net_iface(b->net, 0) == NULL && pv_net_iface(b->net, 33) == NULL);
	bench_close(b);
}

TEST(iface_at_most_32)
{
	struct bench *b = bench_open(NULL);
	struct pv_iface_cfg c = *pv_iface_config(pv_net_iface(b->net, b->iface[0]));

	c.naddr = 0;
	memset(&c.gateway4, 0, sizeof(c.gateway4));
	memset(&c.gateway6, 0, sizeof(c.gateway6));
	for (int i = 2; i <= PV_IFACE_MAX; i++) {
		snprintf(c.name, sizeof(c.name), "i%d", i);
		CHECK_EQ(pv_net_iface_add(b->net, &c), i);
	}
	snprintf(c.name, sizeof(c.name), "one more");
	CHECK_EQ(pv_net_iface_add(b->net, &c), -ENOSPC);
	CHECK_EQ(pv_net_iface_del(b->net, 7), 0);
	CHECK_EQ(pv_net_iface_add(b->net, &c), 7);
	bench_close(b);
}

TEST(iface_memory_runs_out_at_every_point)
{
	struct bench *b = bench_open(NULL);
	struct pv_iface_cfg c = *pv_iface_config(pv_net_iface(b->net, b->iface[0]));
	long blocks = b->mem.blocks;
	size_t bytes = b->mem.bytes;
	int rc = -ENOMEM;

	memcpy(c.name, "b", 2);
	c.addr[0].addr = ip("10.5.0.1");
	c.addr[1].addr = ip("fd05::1");
	c.naddr = 2;
	for (long n = 0; rc == -ENOMEM; n++) {
		CHECK(n < 50);
		CHECK_EQ(b->mem.blocks, blocks);
		CHECK_EQ(b->mem.bytes, bytes);
		b->mem.fail_in = n;
		rc = pv_net_iface_add(b->net, &c);
		b->mem.fail_in = -1;
	}
	CHECK(rc > 0);
	bench_close(b);
}

TEST(net_memory_runs_out_at_every_point)
{
	struct testmem m;
	struct pv_net_cfg c = { .mem = testmem_init(&m) };
	struct pv_net *net;
	int rc = -ENOMEM;

	for (long n = 0; rc; n++) {
		CHECK(n < 50);
		m.fail_in = n;
		rc = pv_net_open(&net, &c);
		CHECK(rc == 0 || rc == -ENOMEM);
		if (rc)
			CHECK_EQ(m.blocks, 0);
	}
	pv_net_close(net);
	CHECK_EQ(m.blocks, 0);
	CHECK_EQ(m.bytes, 0);
}

static bool has_flow(const struct fake *f, enum pv_flow_kind kind, const char *dst, const uint8_t *mac, uint16_t type)
{
	struct pv_addr a = { 0 };

	if (dst)
		a = ip(dst);
	for (uint32_t i = 0; i < f->nflow; i++)
		if (f->flow_on[i] && f->flow[i].kind == kind && pv_addr_eq(&f->flow[i].dst, &a) &&
		    pv_mac_eq(f->flow[i].dst_mac, mac) && f->flow[i].ethertype == type)
			return true;
	return false;
}

static uint32_t flows_on(const struct fake *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->nflow; i++)
		n += f->flow_on[i];
	return n;
}

static const uint8_t us[6] = { 2, 0, 0, 0, 0, 1 }, all[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

TEST(iface_flow_rules)
{
	struct bench *b = bench_open(NULL);
	struct fake *f = b->fake[0];

	CHECK(has_flow(f, PV_FLOW_IP, "10.0.0.1", us, 0));
	CHECK(has_flow(f, PV_FLOW_IP, "fd00::1", us, 0));
	CHECK(has_flow(f, PV_FLOW_IP, "fe80::ff:fe00:1", us, 0));
	CHECK(has_flow(f, PV_FLOW_IP, "10.0.0.255", all, 0));
	CHECK(has_flow(f, PV_FLOW_IP, "255.255.255.255", all, 0));
	CHECK(has_flow(f, PV_FLOW_ETHER, NULL, all, 0x0806));
	CHECK(has_flow(f, PV_FLOW_ETHER, NULL, us, 0x0806));
	CHECK(has_flow(f, PV_FLOW_IP, "224.0.0.1", (const uint8_t[]){ 1, 0, 0x5e, 0, 0, 1 }, 0));
	CHECK(has_flow(f, PV_FLOW_IP, "ff02::1", (const uint8_t[]){ 0x33, 0x33, 0, 0, 0, 1 }, 0));
	CHECK(has_flow(f, PV_FLOW_IP, "ff02::1:ff00:1", (const uint8_t[]){ 0x33, 0x33, 0xff, 0, 0, 1 }, 0));
	CHECK_EQ(flows_on(f), 10);
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[0]), 0);
	CHECK_EQ(flows_on(f), 0);
	bench_close(b);
}

TEST(iface_flow_rules_of_poorer_rings)
{
	struct bench *mac = bench_open(&(struct bench_cfg){ .flow_kinds = 1u << PV_FLOW_ETHER });
	struct bench *port = bench_open(&(struct bench_cfg){ .flow_kinds = 1u << PV_FLOW_ALL });
	struct bench *none = bench_open(&(struct bench_cfg){ .plain = true });

	CHECK(has_flow(mac->fake[0], PV_FLOW_ETHER, NULL, us, 0x0800));
	CHECK(has_flow(mac->fake[0], PV_FLOW_ETHER, NULL, us, 0x86dd));
	CHECK(has_flow(mac->fake[0], PV_FLOW_ETHER, NULL, all, 0x0800));
	CHECK_EQ(flows_on(port->fake[0]), 1);
	CHECK(has_flow(port->fake[0], PV_FLOW_ALL, NULL, us, 0));
	CHECK_EQ(rx(none, "rx_udp4"), PV_RX_UDP);
	bench_close(mac);
	bench_close(port);
	bench_close(none);
}

TEST(iface_refused_rule_leaves_nothing)
{
	struct bench *b = bench_open(NULL);
	struct pv_iface_cfg c = *pv_iface_config(pv_net_iface(b->net, b->iface[0]));
	uint32_t on = flows_on(b->fake[0]);
	long blocks = b->mem.blocks;

	memcpy(c.name, "b", 2);
	b->fake[0]->flow_rc = -EPERM;
	CHECK_EQ(pv_net_iface_add(b->net, &c), -EPERM);
	CHECK_EQ(flows_on(b->fake[0]), on);
	CHECK_EQ(b->mem.blocks, blocks);
	/* A rule that is there already is as good as ours. */
	b->fake[0]->flow_rc = -EEXIST;
	CHECK(pv_net_iface_add(b->net, &c) > 0);
	b->fake[0]->flow_rc = 0;
	bench_close(b);
}

TEST(iface_own_addresses_and_broadcasts)
{
	struct bench *b = bench_open(NULL);
	struct pv_addr own = ip("10.0.0.1"), other = ip("10.0.0.2"), bc = ip("10.0.0.255"), six = ip("fd00::1");

	CHECK_EQ(pv_net_addr_owner(b->net, &own), b->iface[0]);
	CHECK_EQ(pv_net_addr_owner(b->net, &six), b->iface[0]);
	CHECK_EQ(pv_net_addr_owner(b->net, &other), 0);
	CHECK_EQ(pv_net_addr_owner(b->net, &bc), 0);
	CHECK(pv_net_is_broadcast(b->net, &bc));
	CHECK(!pv_net_is_broadcast(b->net, &own) && !pv_net_is_broadcast(b->net, &six));
	CHECK(pv_iface_ring(pv_net_iface(b->net, b->iface[0])) == &b->fake[0]->ring);
	bench_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
