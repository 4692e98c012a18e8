/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel's tables as we read them, in a namespace of the test's own, against what `ip` was told and what it prints. */
#include "test.h"

#ifndef PV_HAVE_NETLINK
int main(void)
{
	puts("skip: built without libmnl");
	return 77;
}
#else
#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "netns.h"
#include "rt/netlink.h"

#define WAIT_MS 10000

static struct pv_nl *nl;

static void setup(void)
{
	static bool done;
	char err[200] = "";

	if (geteuid() != 0)
		test_skip("needs root for a network namespace");
	if (!done) {
		CHECK_EQ(unshare(CLONE_NEWNET), 0);
		ip_here("link set lo up");
		ip_here("link add v0 address 02:00:00:00:00:01 mtu 1400 type veth peer name v1");
		ip_here("addr add 10.1.0.1/24 dev v0");
		ip_here("addr add 10.1.0.3/24 dev v0");
		ip_here("-6 addr add fd01::1/64 dev v0 nodad");
		ip_here("link set v0 up");
		ip_here("link set v1 up");
		ip_here("route add default via 10.1.0.254");
		ip_here("route add 10.2.0.0/16 via 10.1.0.253 src 10.1.0.3 mtu 1300");
		ip_here("route add unreachable 10.3.0.0/16");
		ip_here("route add prohibit 10.4.0.0/16");
		ip_here("route add 10.9.0.0/16 via inet6 fd01::9 dev v0");
		ip_here("-6 route add default via fd01::fe");
		ip_here("rule add to 10.5.0.0/16 lookup 77");
		ip_here("route add 10.5.0.0/16 via 10.1.0.77 table 77");
		ip_here("rule add fwmark 5 lookup 78");
		ip_here("route add default via 10.1.0.78 table 78");
		done = true;
	}
	CHECK_EQ(pv_nl_open(&nl, err, sizeof(err)), 0);
}

struct found {
	struct pv_nl_msg msg[200];
	uint32_t n;
};

static void note(void *ctx, const struct pv_nl_msg *msg)
{
	struct found *f = ctx;

	if (f->n < pv_array_size(f->msg))
		f->msg[f->n++] = *msg;
}

TEST(links_and_addresses)
{
	struct found f = { .n = 0 };
	struct pv_addr want4 = addr_of("10.1.0.3"), want6 = addr_of("fd01::1");
	uint32_t hits = 0;

	setup();
	CHECK_EQ(pv_nl_dump(nl, PV_NL_LINK, note, &f), 0);
	for (uint32_t i = 0; i < f.n; i++) {
		const struct pv_nl_msg *m = &f.msg[i];

		CHECK(m->kind == PV_NL_LINK && !m->deleted);
		if (strcmp(m->name, "v0"))
			continue;
		CHECK_EQ(m->ifindex, if_nametoindex("v0"));
		CHECK_EQ(m->mtu, 1400);
		CHECK(!memcmp(m->mac, "\x02\0\0\0\0\x01", 6) && m->up && m->running && !m->loopback);
		hits++;
	}
	CHECK_EQ(hits, 1);
	f.n = 0;
	CHECK_EQ(pv_nl_dump(nl, PV_NL_ADDR, note, &f), 0);
	for (uint32_t i = 0; i < f.n; i++) {
		if (pv_addr_eq(&f.msg[i].addr, &want4))
			hits += f.msg[i].prefix_len == 24 && f.msg[i].ifindex == if_nametoindex("v0") && f.msg[i].usable;
		if (pv_addr_eq(&f.msg[i].addr, &want6))
			hits += f.msg[i].prefix_len == 64 && f.msg[i].usable;
	}
	CHECK_EQ(hits, 3);
	pv_nl_close(nl);
}

static int route(const char *dst, const char *src, uint32_t mark, struct pv_nl_answer *out)
{
	struct pv_nl_query q = { .dst = addr_of(dst), .mark = mark, .proto = 17, .dst_port = 9 };

	if (src)
		q.src = addr_of(src);
	return pv_nl_route_get(nl, &q, out);
}

static void check_route(const char *dst, uint32_t mark, const char *gateway, const char *src)
{
	struct pv_addr gw = gateway ? addr_of(gateway) : (struct pv_addr){ 0 }, from = addr_of(src);
	struct pv_nl_answer a;

	CHECK_EQ(route(dst, NULL, mark, &a), 0);
	CHECK_EQ(a.oif, if_nametoindex("v0"));
	CHECK(pv_addr_eq(&a.gateway, &gw));
	CHECK(pv_addr_eq(&a.src, &from));
}

TEST(routes_are_the_kernels)
{
	struct pv_nl_answer a;

	setup();
	check_route("10.1.0.7", 0, NULL, "10.1.0.1");
	check_route("10.2.3.4", 0, "10.1.0.253", "10.1.0.3");
	check_route("8.8.8.8", 0, "10.1.0.254", "10.1.0.1");
	check_route("10.5.1.1", 0, "10.1.0.77", "10.1.0.1"); /* by rule */
	check_route("8.8.8.8", 5, "10.1.0.78", "10.1.0.1"); /* by mark */
	check_route("10.9.0.1", 0, "fd01::9", "10.1.0.1"); /* IPv6 gateway */
	check_route("2001:db8::1", 0, "fd01::fe", "fd01::1");
	CHECK_EQ(route("10.2.3.4", NULL, 0, &a), 0);
	CHECK_EQ(a.mtu, 1300);
	CHECK_EQ(route("10.1.0.3", NULL, 0, &a), 0);
	CHECK(a.local);
	CHECK_EQ(route("10.1.0.255", NULL, 0, &a), 0);
	CHECK(a.broadcast);
	CHECK_EQ(route("239.1.1.1", NULL, 0, &a), 0);
	CHECK(a.multicast);
	CHECK_EQ(route("10.3.0.1", NULL, 0, &a), -EHOSTUNREACH);
	CHECK_EQ(route("10.4.0.1", NULL, 0, &a), -EACCES);
	pv_nl_close(nl);
}

/* Reads changes until one satisfies the test, for as long as it takes. */
static struct pv_nl_msg wait_change(enum pv_nl_kind kind, const struct pv_addr *about)
{
	for (;;) {
		struct pollfd p = { .fd = pv_nl_fd(nl), .events = POLLIN };
		struct found f = { .n = 0 };

		CHECK_EQ(poll(&p, 1, WAIT_MS), 1);
		CHECK(pv_nl_read(nl, note, &f) >= 0);
		for (uint32_t i = 0; i < f.n; i++) {
			if (f.msg[i].kind == kind && (!about || pv_addr_eq(about, &f.msg[i].addr)))
				return f.msg[i];
		}
	}
}

TEST(rules_that_look_at_ports)
{
	setup();
	CHECK_EQ(pv_nl_route_by_ports(nl), 0);
	ip_here("rule add to 10.9.0.0/16 lookup 79");
	CHECK_EQ(pv_nl_route_by_ports(nl), 0);
	ip_here("rule add ipproto tcp dport 80 lookup 79");
	CHECK(wait_change(PV_NL_ROUTE, NULL).rule);
	CHECK_EQ(pv_nl_route_by_ports(nl), 1);
	ip_here("rule del ipproto tcp dport 80 lookup 79");
	CHECK_EQ(pv_nl_route_by_ports(nl), 0);
	ip_here("-6 rule add sport 7 lookup 79");
	CHECK_EQ(pv_nl_route_by_ports(nl), 1);
	ip_here("-6 rule del sport 7 lookup 79");
	CHECK_EQ(pv_nl_route_by_ports(nl), 0);
	CHECK_EQ(system("sysctl -qw net.ipv4.fib_multipath_hash_policy=1"), 0);
	CHECK_EQ(pv_nl_route_by_ports(nl), 1);
	pv_nl_close(nl);
}

TEST(changes_come)
{
	struct pv_addr a = addr_of("10.1.0.9"), there = addr_of("10.1.0.50"), nobody = addr_of("10.1.0.51");
	struct pv_nl_msg m;

	setup();
	ip_here("addr add 10.1.0.9/24 dev v0");
	CHECK(!wait_change(PV_NL_ADDR, &a).deleted);
	ip_here("addr del 10.1.0.9/24 dev v0");
	CHECK(wait_change(PV_NL_ADDR, &a).deleted);
	ip_here("link set v0 mtu 1280");
	m = wait_change(PV_NL_LINK, NULL);
	CHECK_EQ(m.mtu, 1280);
	ip_here("link set v0 mtu 1400");
	ip_here("route add 10.6.0.0/16 via 10.1.0.6");
	wait_change(PV_NL_ROUTE, NULL);
	ip_here("rule add to 10.6.0.0/16 lookup 79");
	wait_change(PV_NL_ROUTE, NULL);
	CHECK_EQ(system("sysctl -qw net.ipv4.nexthop_compat_mode=0"), 0);
	ip_here("nexthop add id 9 via 10.1.0.9 dev v0");
	wait_change(PV_NL_ROUTE, NULL);
	ip_here("route add 10.7.0.0/16 nhid 9");
	wait_change(PV_NL_ROUTE, NULL);
	check_route("10.7.0.1", 0, "10.1.0.9", "10.1.0.1");
	/* No route is said to have changed by this. */
	ip_here("nexthop replace id 9 via 10.1.0.8 dev v0");
	wait_change(PV_NL_ROUTE, NULL);
	check_route("10.7.0.1", 0, "10.1.0.8", "10.1.0.1");
	ip_here("neigh add 10.1.0.50 lladdr 02:00:00:00:00:50 dev v0");
	m = wait_change(PV_NL_NEIGH, &there);
	CHECK(m.usable && !memcmp(m.mac, "\x02\0\0\0\0\x50", 6));
	CHECK_EQ(pv_nl_neigh_use(nl, if_nametoindex("v0"), &nobody), 0);
	do
		m = wait_change(PV_NL_NEIGH, &nobody);
	while (!m.failed);
	CHECK(!m.usable);
	pv_nl_close(nl);
}

#define MANY 3000 /* addresses: more than one packet of the kernel's can tell */

struct many {
	uint32_t n, twice;
	bool seen[MANY];
};

static void note_many(void *ctx, const struct pv_nl_msg *msg)
{
	struct many *f = ctx;
	uint32_t k = (uint32_t)msg->addr.b[14] << 8 | msg->addr.b[15];

	if (!pv_addr_is4(&msg->addr) || msg->addr.b[12] != 10 || msg->addr.b[13] != 200 || k >= MANY)
		return;
	f->twice += f->seen[k];
	f->seen[k] = true;
	f->n++;
}

/* Feeds `ip -batch` until it is stopped. */
static pid_t changer(void)
{
	pid_t pid = fork();
	FILE *to;

	CHECK(pid >= 0);
	if (pid)
		return pid;
	to = popen("ip -batch - >/dev/null 2>&1", "w");
	while (to && fprintf(to, "addr add 10.201.0.1/32 dev lo\naddr del 10.201.0.1/32 dev lo\n") > 0)
		;
	_exit(0);
}

/* A table that changes while it is read is said to have; it is read to its end all the same, or no other could be. */
TEST(interrupted_dumps)
{
	static struct many f;
	uint32_t interrupted = 0, whole = 0;
	FILE *to;
	pid_t pid;

	setup();
	to = popen("ip -batch -", "w");
	CHECK(to);
	for (int i = 0; i < MANY; i++)
		fprintf(to, "addr add 10.200.%d.%d/32 dev lo\n", i >> 8, i & 255);
	CHECK_EQ(pclose(to), 0);
	pid = changer();
	for (int i = 0; i < 20000 && (interrupted < 20 || i < 100); i++) {
		int rc;

		memset(&f, 0, sizeof(f));
		rc = pv_nl_dump(nl, PV_NL_ADDR, note_many, &f);
		if (rc)
			CHECK_EQ(rc, -EINTR);
		else
			CHECK_EQ(f.n, MANY);
		CHECK_EQ(f.twice, 0);
		interrupted += rc != 0;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK(interrupted >= 20);
	for (int i = 0; i < 1000 && !whole; i++) {
		memset(&f, 0, sizeof(f));
		whole = !pv_nl_dump(nl, PV_NL_ADDR, note_many, &f);
	}
	CHECK_EQ(f.n, MANY);
	ip_here("addr flush dev lo to 10.200.0.0/15");
	pv_nl_close(nl);
}

/* A link's message whose master is of this kind; `len` bytes of it. */
static bool slave_of(const char *kind, uint16_t len)
{
	struct {
		struct nlmsghdr nh;
		struct ifinfomsg ifi;
		struct nlattr info, slave;
		char kind[16];
	} m = {
		.nh = { .nlmsg_len = sizeof(m), .nlmsg_type = RTM_NEWLINK },
		.info = { .nla_len = sizeof(m) - offsetof(typeof(m), info), .nla_type = IFLA_LINKINFO | NLA_F_NESTED },
		.slave = { .nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = IFLA_INFO_SLAVE_KIND },
	};
	struct found f = { .n = 0 };

	memcpy(m.kind, kind, len);
	CHECK_EQ(pv_nl_parse(&m, sizeof(m), note, &f), 1);
	CHECK_EQ(f.msg[0].kind, PV_NL_LINK);
	return f.msg[0].vrf;
}

TEST(interfaces_of_a_vrf)
{
	CHECK(slave_of("vrf", 4));
	CHECK(!slave_of("vrf", 3));
	CHECK(!slave_of("vrf2", 5));
	CHECK(!slave_of("bridge", 7));
	CHECK(!slave_of("", 0));
}

TEST(damaged_messages_are_refused)
{
	struct found f = { .n = 0 };
	uint8_t junk[64];

	memset(junk, 0xff, sizeof(junk));
	CHECK_EQ(pv_nl_parse(junk, sizeof(junk), note, &f), -EBADMSG);
	memset(junk, 0, sizeof(junk));
	CHECK_EQ(pv_nl_parse(junk, sizeof(junk), note, &f), -EBADMSG);
	junk[0] = 16;
	junk[4] = RTM_NEWLINK; /* a header without the link's own */
	CHECK_EQ(pv_nl_parse(junk, 16, note, &f), 0);
	CHECK_EQ(f.n, 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
