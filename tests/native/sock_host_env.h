/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets on an interface that the kernel owns: a veth pair between two namespaces of the test's, the engine on AF_XDP over one end,
 * kernel sockets on the other. A script runs with the kernel's sockets here, then with ours; the results must agree.
 */
#ifndef SOCK_HOST_ENV_H
#define SOCK_HOST_ENV_H

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>

#include "netns.h"
#include "sock_env.h"

#define WAIT_NS (INT64_C(30000) * NS_MS)
#define BIG 5000 /* comes in fragments: the kernel's */

static const struct side kernel_here = { false, "10.1.0.1", "fd01::1" };
static const struct side ours_here = { true, "10.1.0.1", "fd01::1" };

/* ---- the world --------------------------------------------------------------------------------------------------------- */

static void world(void)
{
	if (geteuid() != 0)
		test_skip("needs root for network namespaces");
	if (*env_fabric)
		return;
	strcpy(env_fabric, "none"); /* sk_open finds the engine running */
	peer_ns = new_ns();
	own_ns = new_ns();
	ip_in(own_ns, "link set lo up");
	ip_in(own_ns, "link add v0 type veth peer name p0 netns /proc/%d/fd/%d", getpid(), peer_ns);
	ip_in(own_ns, "addr add 10.1.0.1/24 broadcast + dev v0");
	ip_in(own_ns, "-6 addr add fd01::1/64 dev v0 nodad");
	ip_in(own_ns, "link set v0 up");
	ip_in(peer_ns, "addr add 10.1.0.2/24 broadcast + dev p0");
	ip_in(peer_ns, "-6 addr add fd01::2/64 dev p0 nodad");
	ip_in(peer_ns, "link set p0 up");
	/* Every refusal is said. */
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	CHECK_EQ(system("sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 net.ipv6.icmp.ratelimit=0"), 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	CHECK_EQ(pyvma_config_set("interfaces", "xdp:device=v0"), 0);
	CHECK_EQ(pyvma_config_set("log_level", "error"), 0);
	int rc = pyvma_start();

	if (rc)
		fprintf(stderr, "%s\n", pyvma_last_error());
	CHECK_EQ(rc, 0);
	/* Both have talked: nobody waits for a neighbour in the tests. */
	CHECK_EQ(system("timeout 20 ping -q -c 1 -w 15 10.1.0.2 >/dev/null && timeout 20 ping -q -c 1 -w 15 fd01::2 >/dev/null"),
		 0);
}

static __attribute__((unused)) const char *peer_host(int family)
{
	return family == AF_INET ? "10.1.0.2" : "fd01::2";
}

/* A kernel socket of the other namespace; waits are limited. */
static __attribute__((unused)) struct sk peer_open(int family, struct any_addr *addr)
{
	static const struct side there = { false, "10.1.0.2", "fd01::2" };
	struct timeval limit = { .tv_sec = 30 };

	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	struct sk s = sk_bound(&there, family, addr);

	CHECK_EQ(sk_set(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	return s;
}

/* A port there where nobody listens. */
static __attribute__((unused)) struct any_addr peer_closed(int family)
{
	struct any_addr addr;

	sk_close(peer_open(family, &addr));
	return addr;
}

static __attribute__((unused)) void compare_here(void (*script)(const struct side *, int family, struct trace *))
{
	static struct trace kernel, ours;
	const int families[] = { AF_INET, AF_INET6 };

	world();
	for (int f = 0; f < 2; f++) {
		kernel.n = ours.n = 0;
		script(&kernel_here, families[f], &kernel);
		script(&ours_here, families[f], &ours);
		int bad = trace_differs(&kernel, &ours);

		if (bad)
			fprintf(stderr, "%s over %s: %d differences\n", test_current, f ? "IPv6" : "IPv4", bad);
		CHECK_EQ(bad, 0);
		CHECK(kernel.n > 0);
	}
}
#define HERE(id)                                                                                                                   \
	static void script_##id(const struct side *side, int family, struct trace *t);                                             \
	TEST(id)                                                                                                                   \
	{                                                                                                                          \
		compare_here(script_##id);                                                                                         \
	}                                                                                                                          \
	static void script_##id(const struct side *side, int family, struct trace *t)

static __attribute__((unused)) struct sk open_limited(const struct side *side, int family)
{
	struct timeval limit = { .tv_sec = 30 };
	struct sk s = sk_open(side, family);

	CHECK_EQ(sk_set(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	return s;
}

static __attribute__((unused)) struct sk bound_here(const struct side *side, int family, struct any_addr *addr)
{
	struct sk s = open_limited(side, family);

	CHECK_EQ(sk_bind(s, ip(side_addr(side, family), 0)), 0);
	CHECK_EQ(sk_name(s, addr), 0);
	return s;
}

static __attribute__((unused)) bool same_addr(const struct any_addr *a, const struct any_addr *b)
{
	return a->len == b->len && !memcmp(&a->ss, &b->ss, a->len);
}

#endif
