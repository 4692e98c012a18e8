/* SPDX-License-Identifier: BSD-3-Clause */
/* Links, addresses and routes that change under sockets on an interface that the kernel owns, against the kernel's own. */
#include "test.h"

#if !defined(PV_HAVE_NETLINK) || !defined(PV_HAVE_XDP)
int main(void)
{
	puts("skip: built without libmnl or libbpf");
	return 77;
}
#else
#include "base/compiler.h"
#include "sock_host_env.h"

/* ---- the world changes ------------------------------------------------------------------------------------------------- */

/* Until the engine has seen it: the answer of `probe` for its interface is `want`. */
static void wait_seen(bool (*probe)(const struct pyvma_interface *), bool want)
{
	struct pyvma_interface ifc;
	const struct timespec nap = { .tv_nsec = 5 * NS_MS };

	for (int i = 0; i < 4000; i++) {
		if (pyvma_interface_get(1, &ifc) == 0 && probe(&ifc) == want)
			return;
		nanosleep(&nap, NULL);
	}
	CHECK(!"the engine follows the kernel");
}

static bool is_up(const struct pyvma_interface *ifc)
{
	return ifc->link_up;
}

static bool has_second(const struct pyvma_interface *ifc)
{
	for (int i = 0; i < ifc->naddr; i++) {
		char text[INET6_ADDRSTRLEN] = "";
		const struct sockaddr *sa = (const struct sockaddr *)&ifc->addr[i];

		if (sa->sa_family == AF_INET)
			inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, text, sizeof(text));
		if (!strcmp(text, "10.1.0.3"))
			return true;
	}
	return false;
}

HERE(link_down_and_up)
{
	struct any_addr peer, name;
	struct sk p = peer_open(AF_INET, &peer), s = bound_here(side, AF_INET, &name), u = bound_here(side, AF_INET, &name);
	char buf[100];

	if (family != AF_INET) {
		/* IPv6 addresses go with the link: they would have to be given again. */
		T(t, 0);
		return;
	}
	T(t, sk_connect(s, peer));
	T(t, sk_send(s, "up", 2, 0));
	T(t, sk_recv(p, buf, sizeof(buf), 0));
	ip_in(own_ns, "link set v0 down");
	wait_seen(is_up, false);
	T(t, sk_send(s, "down", 4, 0));
	T(t, sk_sendto(u, "down", 4, 0, peer));
	T(t, sk_recv(s, buf, sizeof(buf), MSG_DONTWAIT));
	ip_in(own_ns, "link set v0 up");
	ip_in(own_ns, "-6 addr replace fd01::1/64 dev v0 nodad");
	wait_seen(is_up, true);
	T(t, sk_send(s, "again", 5, 0));
	T(t, sk_recv(p, buf, sizeof(buf), 0));
	T(t, sk_sendto(u, "too", 3, 0, peer));
	T(t, sk_recv(p, buf, sizeof(buf), 0));
	T(t, sk_sendto(p, "back", 4, 0, name));
	T(t, sk_recv(u, buf, sizeof(buf), 0));
	sk_close(s);
	sk_close(u);
	sk_close(p);
}

HERE(an_address_goes)
{
	struct any_addr peer;
	struct sk p = peer_open(AF_INET, &peer), s = open_limited(side, AF_INET), u = open_limited(side, AF_INET);
	char buf[100];

	(void)family;
	ip_in(own_ns, "addr add 10.1.0.3/24 dev v0");
	wait_seen(has_second, true);
	T(t, sk_bind(s, ip("10.1.0.3", 0)));
	T(t, sk_bind(u, ip("10.1.0.3", 0)));
	T(t, sk_connect(u, peer));
	T(t, sk_sendto(s, "there", 5, 0, peer));
	T(t, sk_recv(p, buf, sizeof(buf), 0));
	T(t, sk_send(u, "there", 5, 0));
	T(t, sk_recv(p, buf, sizeof(buf), 0));
	ip_in(own_ns, "addr del 10.1.0.3/24 dev v0");
	wait_seen(has_second, false);
	T(t, sk_sendto(s, "gone", 4, 0, peer));
	T(t, sk_send(u, "gone", 4, 0));
	sk_close(s);
	sk_close(u);
	sk_close(p);
}

/* The engine learns of a route a moment after the kernel has it: sends until the answer is `want`. */
static int64_t send_until(struct sk s, const struct any_addr *to, int64_t want)
{
	const struct timespec nap = { .tv_nsec = 2 * NS_MS };
	int64_t n = 0;

	for (int i = 0; i < 5000; i++) {
		n = to ? sk_sendto(s, "not", 3, 0, *to) : sk_send(s, "not", 3, 0);
		if (n == want)
			break;
		nanosleep(&nap, NULL);
	}
	return n;
}

/* Passes over what was sent before the engine knew. */
static int64_t recv_again(struct sk p)
{
	char buf[100];
	int64_t n;

	do
		n = sk_recv(p, buf, sizeof(buf), 0);
	while (n == 3);
	return n;
}

/* A route of its own, and what refuses it; then none. */
HERE(routes_change)
{
	struct any_addr peer, name;
	struct sk p = peer_open(AF_INET, &peer), s = bound_here(side, AF_INET, &name), u = bound_here(side, AF_INET, &name);

	(void)family;
	T(t, sk_connect(s, peer));
	T(t, sk_send(s, "there", 5, 0));
	T(t, recv_again(p));
	ip_in(own_ns, "route add unreachable 10.1.0.2/32");
	T(t, send_until(s, NULL, -EHOSTUNREACH));
	T(t, send_until(u, &peer, -EHOSTUNREACH));
	ip_in(own_ns, "route replace prohibit 10.1.0.2/32");
	T(t, send_until(s, NULL, -EACCES));
	T(t, send_until(u, &peer, -EACCES));
	ip_in(own_ns, "route del prohibit 10.1.0.2/32");
	T(t, send_until(s, NULL, 3));
	T(t, send_until(u, &peer, 3));
	T(t, sk_send(s, "again", 5, 0));
	T(t, recv_again(p));
	T(t, sk_sendto(u, "again", 5, 0, peer));
	T(t, recv_again(p));
	sk_close(s);
	sk_close(u);
	sk_close(p);
}

/* ---- path MTU ---------------------------------------------------------------------------------------------------------- */

#define NARROW 1300

/* Behind the peer, by a link that is narrower than ours, a host with many addresses: what one side learns of one tells the other nothing. */
static int far_ns = -1;

static void make_far(void)
{
	if (far_ns >= 0)
		return;
	far_ns = new_ns();
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	ip_in(peer_ns, "link add r0 mtu %d type veth peer name f0 mtu %d netns /proc/%d/fd/%d", NARROW, NARROW, getpid(), far_ns);
	ip_in(peer_ns, "addr add 10.2.0.1/24 dev r0");
	ip_in(peer_ns, "-6 addr add fd02::1/64 dev r0 nodad");
	ip_in(peer_ns, "link set r0 up");
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	CHECK_EQ(system("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"), 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	ip_in(far_ns, "link set f0 up");
	for (int i = 10; i < 30; i++) {
		ip_in(far_ns, "addr add 10.2.0.%d/24 dev f0", i);
		ip_in(far_ns, "-6 addr add fd02::%d/64 dev f0 nodad", i);
	}
	ip_in(far_ns, "route add default via 10.2.0.1");
	ip_in(far_ns, "-6 route add default via fd02::1");
	ip_in(own_ns, "route add 10.2.0.0/24 via 10.1.0.2");
	ip_in(own_ns, "-6 route add fd02::/64 via fd01::2");
}

static struct any_addr far_addr(int family, int port)
{
	static int number = 10;
	char text[40];

	snprintf(text, sizeof(text), family == AF_INET ? "10.2.0.%d" : "fd02::%d", number++);
	CHECK(number <= 30);
	return ip(text, port);
}

static struct sk far_open(int family, int *port)
{
	static const struct side there = { false, "0.0.0.0", "::" };
	struct timeval limit = { .tv_usec = 50000 };
	struct any_addr addr;

	CHECK_EQ(setns(far_ns, CLONE_NEWNET), 0);
	struct sk s = sk_bound(&there, family, &addr);

	CHECK_EQ(sk_set(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	*port = addr_port(&addr);
	return s;
}

/* Until one arrives, or is refused; a first one that is too long is lost, as it tells of the narrow link. */
static int64_t insist(struct sk s, struct sk peer, size_t len, struct any_addr to, int *lost)
{
	static char data[2000], buf[2000];
	struct any_addr from;

	for (*lost = 0; *lost < 600; ++*lost) {
		int64_t n = sk_sendto(s, data, len, 0, to);

		if (n < 0)
			return n;
		do {
			n = sk_recvfrom(peer, buf, sizeof(buf), 0, &from);
		} while (n >= 0 && n != (int64_t)len); /* one that waited for a neighbour, and was sent again */
		if (n >= 0)
			return n;
	}
	return -ETIMEDOUT;
}

static int sk_error(struct sk s)
{
	int err = -1;
	socklen_t len = sizeof(err);

	CHECK_EQ(sk_get(s, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	return err;
}

HERE(path_mtu_of_unconnected_sockets)
{
	static const int modes[] = { IP_PMTUDISC_WANT, IP_PMTUDISC_DO, IP_PMTUDISC_DONT };
	int lost, port;

	make_far();
	struct sk p = far_open(family, &port), s = open_limited(side, family);

	T(t, sk_bind(s, ip(family == AF_INET ? "0.0.0.0" : "::", 0)));
	for (size_t i = 0; i < pv_array_size(modes); i++) {
		struct any_addr to = far_addr(family, port);

		T(t, sk_set_int(s, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
				family == AF_INET ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, modes[i]));
		/* The neighbours on the way have been found when it arrives. */
		T(t, insist(s, p, 100, to, &lost));
		T(t, insist(s, p, 1400, to, &lost));
		T(t, lost > 0);
		T(t, insist(s, p, 500, to, &lost));
		T(t, lost);
		T(t, insist(s, p, 1400, to, &lost));
		T(t, lost);
		T(t, sk_error(s));
	}
	sk_close(s);
	sk_close(p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
