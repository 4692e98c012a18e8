/* SPDX-License-Identifier: BSD-3-Clause */
/* Options: every one on the kernel's socket and on ours, bound and not, with good and bad values and lengths. */
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>

#include "sock_env.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

struct opt {
	int level, name;
	const char *text;
};
#define O(l, n)                                                                                                                    \
	{                                                                                                                          \
		l, n, #n                                                                                                           \
	}
static const struct opt socket_opts[] = {
	O(SOL_SOCKET, SO_REUSEADDR),
	O(SOL_SOCKET, SO_REUSEPORT),
	O(SOL_SOCKET, SO_BROADCAST),
	O(SOL_SOCKET, SO_SNDBUF),
	O(SOL_SOCKET, SO_RCVBUF),
	O(SOL_SOCKET, SO_RCVLOWAT),
	O(SOL_SOCKET, SO_PRIORITY),
	O(SOL_SOCKET, SO_TIMESTAMP),
	O(SOL_SOCKET, SO_TIMESTAMPNS),
	O(SOL_SOCKET, SO_RXQ_OVFL),
	O(SOL_SOCKET, SO_SELECT_ERR_QUEUE),
	O(SOL_SOCKET, SO_NO_CHECK),
	O(SOL_SOCKET, SO_DONTROUTE),
	O(SOL_SOCKET, SO_TYPE),
	O(SOL_SOCKET, SO_DOMAIN),
	O(SOL_SOCKET, SO_PROTOCOL),
	O(SOL_SOCKET, SO_ACCEPTCONN),
	O(SOL_SOCKET, SO_ERROR),
	O(SOL_SOCKET, SO_BUSY_POLL),
	O(SOL_SOCKET, SO_KEEPALIVE),
	O(SOL_SOCKET, SO_OOBINLINE),
	O(SOL_SOCKET, SO_BINDTODEVICE),
	O(SOL_SOCKET, 9999),
	O(IPPROTO_UDP, UDP_SEGMENT),
	O(IPPROTO_UDP, 9999),
	O(9999, 1),
	O(IPPROTO_TCP, 1),
};
static const struct opt ip_opts[] = {
	O(IPPROTO_IP, IP_TTL),
	O(IPPROTO_IP, IP_TOS),
	O(IPPROTO_IP, IP_MULTICAST_TTL),
	O(IPPROTO_IP, IP_MULTICAST_LOOP),
	O(IPPROTO_IP, IP_MULTICAST_ALL),
	O(IPPROTO_IP, IP_MTU_DISCOVER),
	O(IPPROTO_IP, IP_RECVERR),
	O(IPPROTO_IP, IP_PKTINFO),
	O(IPPROTO_IP, IP_RECVTTL),
	O(IPPROTO_IP, IP_RECVTOS),
	O(IPPROTO_IP, IP_RECVORIGDSTADDR),
	O(IPPROTO_IP, IP_FREEBIND),
	O(IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT),
	O(IPPROTO_IP, IP_MULTICAST_IF),
	O(IPPROTO_IP, IP_MTU),
	O(IPPROTO_IP, 9999),
};
static const struct opt ip6_opts[] = {
	O(IPPROTO_IPV6, IPV6_UNICAST_HOPS),
	O(IPPROTO_IPV6, IPV6_MULTICAST_HOPS),
	O(IPPROTO_IPV6, IPV6_MULTICAST_LOOP),
	O(IPPROTO_IPV6, IPV6_MULTICAST_ALL),
	O(IPPROTO_IPV6, IPV6_MTU_DISCOVER),
	O(IPPROTO_IPV6, IPV6_RECVERR),
	O(IPPROTO_IPV6, IPV6_V6ONLY),
	O(IPPROTO_IPV6, IPV6_RECVPKTINFO),
	O(IPPROTO_IPV6, IPV6_RECVHOPLIMIT),
	O(IPPROTO_IPV6, IPV6_RECVTCLASS),
	O(IPPROTO_IPV6, IPV6_TCLASS),
	O(IPPROTO_IPV6, IPV6_MULTICAST_IF),
	O(IPPROTO_IPV6, IPV6_MTU),
	O(IPPROTO_IPV6, 9999),
};
static const int values[] = { 0, 1, 2, 3, 5, 64, 255, 256, 4096, 70000, -1, -2, INT32_MAX, INT32_MIN };

static void get_into(struct trace *t, struct sk s, const struct opt *o)
{
	int val = 0x5a5a5a5a;
	socklen_t len = sizeof(val);

	T(t, sk_get(s, o->level, o->name, &val, &len));
	T(t, len);
	T(t, val);
	/* A short buffer. */
	val = 0;
	len = 1;
	T(t, sk_get(s, o->level, o->name, &val, &len));
	T(t, len);
	T(t, val & 0xff);
}

static void one_option(struct trace *t, struct sk s, const struct opt *o)
{
	get_into(t, s, o);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		T(t, sk_set_int(s, o->level, o->name, values[i]));
		int val = 0;
		socklen_t len = sizeof(val);

		T(t, sk_get(s, o->level, o->name, &val, &len));
		T(t, val);
	}
	T(t, sk_set(s, o->level, o->name, &values[1], 1));
	T(t, sk_set(s, o->level, o->name, &values[1], 0));
	get_into(t, s, o);
}

static void compare_options(const struct opt *opts, size_t n, bool bound)
{
	static struct trace kernel, ours;
	int bad = 0;

	for (int f = 0; f < 2; f++)
		for (size_t i = 0; i < n; i++) {
			int family = f ? AF_INET6 : AF_INET, d;
			struct any_addr a;

			kernel.n = ours.n = 0;
			for (int k = 0; k < 2; k++) {
				const struct side *side = k ? &our_side : &kernel_side;
				struct sk s = bound ? sk_bound(side, family, &a) : sk_open(side, family);

				one_option(k ? &ours : &kernel, s, &opts[i]);
				if (k && bound)
					CHECK(is_offloaded(s));
				sk_close(s);
			}
			d = trace_differs(&kernel, &ours);
			if (d)
				fprintf(stderr, "^ %s, %s, %s\n", opts[i].text, f ? "IPv6" : "IPv4", bound ? "bound" : "fresh");
			bad += d;
		}
	CHECK_EQ(bad, 0);
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

TEST(socket_options)
{
	compare_options(socket_opts, COUNT(socket_opts), false);
	compare_options(socket_opts, COUNT(socket_opts), true);
}

TEST(ip_options)
{
	compare_options(ip_opts, COUNT(ip_opts), false);
	compare_options(ip_opts, COUNT(ip_opts), true);
}

TEST(ip6_options)
{
	compare_options(ip6_opts, COUNT(ip6_opts), false);
	compare_options(ip6_opts, COUNT(ip6_opts), true);
}

/* ---- what the kernel does not know ------------------------------------------------------------------------------------- */

TEST(device)
{
	struct sk s = sk_open(&our_side, AF_INET);
	struct pyvma_interface ifc;
	char name[IFNAMSIZ] = "", text[64];
	socklen_t len = sizeof(name);
	int index = 0;

	CHECK_EQ(sk_set(s, SOL_SOCKET, SO_BINDTODEVICE, "sn1", 4), 0);
	CHECK_EQ(sk_get(s, SOL_SOCKET, SO_BINDTODEVICE, name, &len), 0);
	CHECK(!strcmp(name, "sn1") && len == 4);
	len = sizeof(index);
	CHECK_EQ(sk_get(s, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &len), 0);
	CHECK_EQ(pyvma_interface_get(2, &ifc), 0);
	CHECK(!strcmp(ifc.name, "sn1"));
	CHECK_EQ((uint32_t)index, ifc.index);
	CHECK_EQ(sk_bind(s, ip("0.0.0.0", 0)), 0);
	CHECK_EQ(pyvma_sock_offload(s.h, text, sizeof(text)), PYVMA_OFFLOADED);
	sk_close(s);
	/* And the kernel's own. */
	s = sk_open(&our_side, AF_INET);
	if (sk_set(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0) {
		CHECK_EQ(sk_bind(s, ip("0.0.0.0", 0)), 0);
		CHECK_EQ(pyvma_sock_offload(s.h, text, sizeof(text)), PYVMA_KERNEL);
	}
	CHECK_EQ(sk_set(s, SOL_SOCKET, SO_BINDTODEVICE, "nosuchdev0", 11), -ENODEV);
	sk_close(s);
}

TEST(path_mtu)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_open(&our_side, AF_INET);
	int mtu = 0;
	socklen_t len = sizeof(mtu);

	CHECK_EQ(sk_get(b, IPPROTO_IP, IP_MTU, &mtu, &len), -ENOTCONN);
	CHECK_EQ(sk_connect(b, ip("10.9.0.77", 9)), 0);
	CHECK_EQ(sk_get(b, IPPROTO_IP, IP_MTU, &mtu, &len), 0);
	CHECK_EQ(mtu, 1500);
	sk_close(a);
	sk_close(b);
}

TEST(only_the_kernel)
{
	int off = 3;
	struct sk s = sk_open(&our_side, AF_INET);
	char text[128];

	CHECK_EQ(sk_set(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)), 0);
	CHECK_EQ(pyvma_sock_offload(s.h, text, sizeof(text)), PYVMA_KERNEL);
	CHECK(strstr(text, "option"));
	sk_close(s);
	struct any_addr a;

	s = sk_bound(&our_side, AF_INET, &a);
	CHECK_EQ(sk_set(s, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)), -EOPNOTSUPP);
	sk_close(s);
}

TEST(segmentation)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_bound(&our_side, AF_INET, &ba);
	char out[2500], in[4000];

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)i;
	CHECK_EQ(sk_set_int(a, IPPROTO_UDP, UDP_SEGMENT, 1000), 0);
	CHECK_EQ(sk_sendto(a, out, sizeof(out), 0, ba), (int64_t)sizeof(out));
	CHECK_EQ(sk_recv(b, in, sizeof(in), 0), 1000);
	CHECK_EQ(sk_recv(b, in + 1000, sizeof(in) - 1000, 0), 1000);
	CHECK_EQ(sk_recv(b, in + 2000, sizeof(in) - 2000, 0), 500);
	CHECK(!memcmp(in, out, sizeof(out)));
	/* Nothing to cut: an empty datagram is one too. */
	CHECK_EQ(sk_sendto(a, out, 0, 0, ba), 0);
	CHECK_EQ(pyvma_sock_recv(b.h, in, sizeof(in), 0, LONG_NS), 0);
	sk_close(a);
	sk_close(b);
}

/* What is too long to be one datagram is too long to be cut into several, as in the kernel. */
ORACLE(segmentation_limits)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	static char out[70000], in[2000];

	T(t, sk_set_int(a, IPPROTO_UDP, UDP_SEGMENT, 1400));
	T(t, sk_sendto(a, out, sizeof(out), 0, ba));
	T(t, sk_sendto(a, out, 0, 0, ba));
	T(t, sk_recv(b, in, sizeof(in), 0));
	T(t, sk_sendto(a, out, 1400, 0, ba));
	T(t, sk_recv(b, in, sizeof(in), 0));
	sk_close(a);
	sk_close(b);
}

/* ---- groups ------------------------------------------------------------------------------------------------------------ */

static struct any_addr sent_to(const char *group, int port)
{
	return ip(group, port);
}

TEST(group_by_address_of_ours)
{
	struct sk a = sk_open(&our_side, AF_INET), b = sk_open(&our_side, AF_INET);
	struct ip_mreqn mreq = { 0 };
	struct in_addr iface, got;
	struct any_addr name;
	socklen_t len = sizeof(got);
	char buf[16];

	inet_pton(AF_INET, "239.9.8.7", &mreq.imr_multiaddr);
	inet_pton(AF_INET, "10.9.0.1", &mreq.imr_address);
	iface = mreq.imr_address;
	CHECK_EQ(sk_set(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq)), 0);
	CHECK(is_offloaded(a));
	CHECK_EQ(sk_set(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq)), -EADDRINUSE);
	CHECK_EQ(sk_bind(a, ip("0.0.0.0", 0)), 0);
	CHECK_EQ(sk_name(a, &name), 0);
	CHECK_EQ(sk_set(b, IPPROTO_IP, IP_MULTICAST_IF, &iface, sizeof(iface)), 0);
	CHECK_EQ(sk_get(b, IPPROTO_IP, IP_MULTICAST_IF, &got, &len), 0);
	CHECK_EQ(got.s_addr, iface.s_addr);
	CHECK_EQ(sk_sendto(b, "group", 5, 0, sent_to("239.9.8.7", addr_port(&name))), 5);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 5);
	/* No loop, no copy; and after leaving none either. */
	CHECK_EQ(sk_set_int(b, IPPROTO_IP, IP_MULTICAST_LOOP, 0), 0);
	CHECK_EQ(sk_sendto(b, "quiet", 5, 0, sent_to("239.9.8.7", addr_port(&name))), 5);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
	CHECK_EQ(sk_set_int(b, IPPROTO_IP, IP_MULTICAST_LOOP, 1), 0);
	CHECK_EQ(sk_set(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &mreq, sizeof(mreq)), 0);
	CHECK_EQ(sk_set(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &mreq, sizeof(mreq)), -EADDRNOTAVAIL);
	CHECK_EQ(sk_sendto(b, "gone", 4, 0, sent_to("239.9.8.7", addr_port(&name))), 4);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
	sk_close(a);
	sk_close(b);
}

TEST(group_by_index_of_ours)
{
	struct sk a = sk_open(&our_side, AF_INET6), b = sk_open(&our_side, AF_INET6);
	struct ipv6_mreq mreq = { 0 };
	struct pyvma_interface ifc;
	struct any_addr name;
	int index, got = 0;
	socklen_t len = sizeof(got);
	char buf[16];

	env_start();
	CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
	index = (int)ifc.index;
	CHECK(!if_indextoname((unsigned int)index, buf)); /* no interface of the kernel has it */
	inet_pton(AF_INET6, "ff15::9:8:7", &mreq.ipv6mr_multiaddr);
	mreq.ipv6mr_interface = ifc.index;
	CHECK_EQ(sk_set(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &mreq, sizeof(mreq)), 0);
	CHECK_EQ(sk_bind(a, ip("::", 0)), 0);
	CHECK_EQ(sk_name(a, &name), 0);
	CHECK_EQ(sk_set_int(b, IPPROTO_IPV6, IPV6_MULTICAST_IF, index), 0);
	CHECK_EQ(sk_get(b, IPPROTO_IPV6, IPV6_MULTICAST_IF, &got, &len), 0);
	CHECK_EQ(got, index);
	CHECK_EQ(sk_sendto(b, "group", 5, 0, sent_to("ff15::9:8:7", addr_port(&name))), 5);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 5);
	CHECK_EQ(sk_set(a, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &mreq, sizeof(mreq)), 0);
	mreq.ipv6mr_interface = ifc.index + 30;
	CHECK_EQ(sk_set(a, IPPROTO_IPV6, IPV6_JOIN_GROUP, &mreq, sizeof(mreq)), -ENODEV);
	sk_close(a);
	sk_close(b);
}

TEST(group_of_one_source)
{
	struct sk a = sk_open(&our_side, AF_INET), b = sk_open(&our_side, AF_INET);
	struct ip_mreq_source ms = { 0 };
	struct in_addr iface;
	struct any_addr name;
	char buf[16];

	inet_pton(AF_INET, "232.1.2.3", &ms.imr_multiaddr);
	inet_pton(AF_INET, "10.9.0.1", &ms.imr_interface);
	inet_pton(AF_INET, "10.9.0.250", &ms.imr_sourceaddr);
	iface = ms.imr_interface;
	CHECK_EQ(sk_set(a, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &ms, sizeof(ms)), 0);
	CHECK_EQ(sk_bind(a, ip("0.0.0.0", 0)), 0);
	CHECK_EQ(sk_name(a, &name), 0);
	CHECK_EQ(sk_set(b, IPPROTO_IP, IP_MULTICAST_IF, &iface, sizeof(iface)), 0);
	CHECK_EQ(sk_sendto(b, "x", 1, 0, sent_to("232.1.2.3", addr_port(&name))), 1);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
	ms.imr_sourceaddr = iface;
	CHECK_EQ(sk_set(a, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &ms, sizeof(ms)), 0);
	CHECK_EQ(sk_sendto(b, "x", 1, 0, sent_to("232.1.2.3", addr_port(&name))), 1);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 1);
	CHECK_EQ(sk_set(a, IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, &ms, sizeof(ms)), 0);
	sk_close(a);
	sk_close(b);
}

ORACLE(malformed_memberships)
{
	struct sk s = sk_open(side, family);
	struct ip_mreqn mreq = { .imr_ifindex = 0 };
	struct ip_mreq_source ms = { 0 };
	struct group_req gr = { .gr_interface = 77777 };
	struct ipv6_mreq m6 = { .ipv6mr_interface = 77777 };

	inet_pton(AF_INET, "10.1.2.3", &mreq.imr_multiaddr);
	T(t, sk_set(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq)));
	T(t, sk_set(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, 4));
	T(t, sk_set(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &mreq, sizeof(mreq)));
	inet_pton(AF_INET, "239.1.2.3", &mreq.imr_multiaddr);
	mreq.imr_ifindex = 77777;
	T(t, sk_set(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq)));
	T(t, sk_set(s, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &ms, sizeof(ms)));
	T(t, sk_set(s, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &ms, 3));
	T(t, sk_set(s, IPPROTO_IP, MCAST_JOIN_GROUP, &gr, sizeof(gr)));
	T(t, sk_set(s, IPPROTO_IP, MCAST_JOIN_GROUP, &gr, 3));
	inet_pton(AF_INET6, "ff15::1", &m6.ipv6mr_multiaddr);
	T(t, sk_set(s, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m6, sizeof(m6)));
	T(t, sk_set(s, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m6, 3));
	T(t, sk_set_int(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, 77777));
	T(t, sk_set(s, IPPROTO_IP, IP_MULTICAST_IF, &mreq, sizeof(mreq)));
	T(t, sk_set(s, IPPROTO_IP, IP_MULTICAST_IF, &mreq, 2));
	sk_close(s);
}

TEST(the_queue_in_numbers)
{
	struct any_addr to;
	struct sk a = sk_bound(&our_side, AF_INET, &to), b = sk_open(&our_side, AF_INET);
	struct pyvma_sock_stats st;
	char text[700] = "";

	CHECK_EQ(sk_sendto(b, text, 10, 0, to), 10);
	CHECK_EQ(sk_sendto(b, text, 0, 0, to), 0);
	CHECK_EQ(sk_sendto(b, text, 700, 0, to), 700);
	for (st.queued = 0; st.queued < 3;) {
		CHECK(sk_poll(a, POLLIN, LONG_NS) == POLLIN);
		CHECK_EQ(pyvma_sock_stats(a.h, &st), 0);
	}
	CHECK_EQ(st.queued_bytes, 710);
	CHECK_EQ(sk_recv(a, text, sizeof(text), 0), 10);
	CHECK_EQ(pyvma_sock_stats(a.h, &st), 0);
	CHECK_EQ(st.queued_bytes, 700);
	CHECK_EQ(sk_recv(a, text, sizeof(text), 0), 0);
	CHECK_EQ(sk_recv(a, text, sizeof(text), 0), 700);
	CHECK_EQ(pyvma_sock_stats(a.h, &st), 0);
	CHECK_EQ(st.queued_bytes, 0);
	CHECK_EQ(sk_close(a), 0);
	CHECK_EQ(sk_close(b), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
