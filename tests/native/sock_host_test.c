/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets on an interface that the kernel owns, against the kernel's own on the same interface: a veth pair between two namespaces of
 * the test's, the engine on AF_XDP over one end, kernel sockets on the other. Both sides run the same calls; results must agree.
 */
#include "test.h"

#if !defined(PV_HAVE_NETLINK) || !defined(PV_HAVE_XDP)
int main(void)
{
	puts("skip: built without libmnl or libbpf");
	return 77;
}
#else
#include <linux/errqueue.h>
#include <semaphore.h>

#include "sock_host_env.h"

/* ---- names ------------------------------------------------------------------------------------------------------------- */

HERE(bind)
{
	struct any_addr a, other;
	struct sk s = open_limited(side, family), u;

	T(t, sk_bind(s, ip(family == AF_INET ? "10.1.0.77" : "fd01::77", 0)));
	T(t, sk_bind(s, ip(side_addr(side, family), 0)));
	T(t, sk_name(s, &a));
	T(t, a.len);
	T(t, addr_port(&a) > 0);
	T(t, sk_bind(s, ip(side_addr(side, family), 0)));
	T(t, sk_peer(s, &other));
	u = open_limited(side, family);
	T(t, sk_bind(u, a));
	T(t, sk_bind(u, ip(family == AF_INET ? "0.0.0.0" : "::", addr_port(&a))));
	T(t, sk_close(s));
	T(t, sk_bind(u, ip(family == AF_INET ? "0.0.0.0" : "::", addr_port(&a))));
	T(t, sk_name(u, &other));
	T(t, addr_port(&other) == addr_port(&a));
	T(t, sk_close(u));
}

HERE(shared_ports)
{
	struct sk s = open_limited(side, family), u = open_limited(side, family);
	struct any_addr a;

	T(t, sk_set_int(s, SOL_SOCKET, SO_REUSEADDR, 1));
	T(t, sk_bind(s, ip(side_addr(side, family), 0)));
	T(t, sk_name(s, &a));
	T(t, sk_bind(u, a));
	T(t, sk_set_int(u, SOL_SOCKET, SO_REUSEADDR, 1));
	T(t, sk_bind(u, a));
	sk_close(s);
	sk_close(u);
	s = open_limited(side, family);
	u = open_limited(side, family);
	T(t, sk_set_int(s, SOL_SOCKET, SO_REUSEPORT, 1));
	T(t, sk_bind(s, ip(side_addr(side, family), 0)));
	T(t, sk_name(s, &a));
	T(t, sk_set_int(u, SOL_SOCKET, SO_REUSEPORT, 1));
	T(t, sk_bind(u, a));
	sk_close(s);
	sk_close(u);
}

HERE(connect_and_back)
{
	struct any_addr peer, name, again, there;
	struct sk p = peer_open(family, &peer), s = open_limited(side, family);
	char buf[100];

	T(t, sk_connect(s, peer));
	T(t, sk_name(s, &name));
	T(t, addr_port(&name) > 0);
	T(t, same_addr(&name, &(struct any_addr){ .ss = ip(side_addr(side, family), addr_port(&name)).ss, .len = name.len }));
	T(t, sk_peer(s, &again));
	T(t, same_addr(&again, &peer));
	T(t, sk_send(s, "one", 3, 0));
	T(t, sk_recvfrom(p, buf, sizeof(buf), 0, &there));
	T(t, same_addr(&there, &name));
	T(t, sk_disconnect(s));
	T(t, sk_name(s, &again));
	T(t, addr_port(&again));
	T(t, sk_peer(s, &again));
	T(t, sk_send(s, "two", 3, 0));
	T(t, sk_connect(s, peer));
	T(t, sk_send(s, "three", 5, 0));
	T(t, sk_recvfrom(p, buf, sizeof(buf), 0, &there));
	T(t, sk_sendto(p, "back", 4, 0, there));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	T(t, sk_connect(s, ip(family == AF_INET ? "198.51.100.1" : "2001:db8::1", 9)));
	T(t, sk_connect(s, ip(family == AF_INET ? "10.1.0.255" : "ff02::1", 9)));
	sk_close(s);
	sk_close(p);
}

HERE(a_bound_port_stays)
{
	struct any_addr peer, name, again;
	struct sk p = peer_open(family, &peer), s = open_limited(side, family), u = open_limited(side, family);
	char buf[100];

	T(t, sk_bind(s, ip(family == AF_INET ? "0.0.0.0" : "::", 0)));
	T(t, sk_name(s, &name));
	T(t, sk_close(s));
	T(t, sk_bind(u, ip(family == AF_INET ? "0.0.0.0" : "::", addr_port(&name))));
	T(t, sk_connect(u, peer));
	T(t, sk_name(u, &again));
	T(t, addr_port(&again) == addr_port(&name));
	T(t, sk_disconnect(u));
	T(t, sk_name(u, &again));
	T(t, addr_port(&again) == addr_port(&name));
	T(t, sk_sendto(p, "x", 1, 0, ip(side_addr(side, family), addr_port(&name))));
	T(t, sk_recvfrom(u, buf, sizeof(buf), 0, &again));
	T(t, same_addr(&again, &peer));
	sk_close(u);
	sk_close(p);
}

/* ---- data -------------------------------------------------------------------------------------------------------------- */

HERE(peek_truncate_and_lengths)
{
	static char data[BIG], buf[70000];
	const size_t sizes[] = { 0, 10, 1400, BIG };
	struct any_addr peer, name, from;
	struct sk p = peer_open(family, &peer), s = bound_here(side, family, &name);

	for (size_t i = 0; i < BIG; i++)
		data[i] = (char)(i * 31 + i / 256);
	for (int i = 0; i < 4; i++) {
		int n = -1;

		T(t, sk_sendto(p, data, sizes[i], 0, name));
		T(t, sk_poll(s, POLLIN, WAIT_NS) & POLLIN);
		T(t, s.h ? pyvma_sock_ioctl(s.h, FIONREAD, &n) : neg(ioctl(s.fd, FIONREAD, &n)));
		T(t, n);
		T(t, sk_recv(s, buf, 4, MSG_PEEK));
		T(t, sk_recv(s, buf, 4, MSG_PEEK | MSG_TRUNC));
		T(t, sk_recvfrom(s, buf, sizeof(buf), 0, &from));
		T(t, !memcmp(buf, data, sizes[i]));
		T(t, same_addr(&from, &peer));
		T(t, sk_recv(s, buf, sizeof(buf), MSG_DONTWAIT));
	}
	sk_close(s);
	sk_close(p);
}

HERE(own_addresses_and_others)
{
	struct any_addr name, second, from;
	struct sk s = bound_here(side, family, &name), u = bound_here(side, family, &second);
	char buf[100];

	T(t, sk_sendto(s, "local", 5, 0, second));
	T(t, sk_recvfrom(u, buf, sizeof(buf), 0, &from));
	T(t, same_addr(&from, &name));
	T(t, sk_sendto(u, "self", 4, 0, second));
	T(t, sk_recv(u, buf, sizeof(buf), 0));
	T(t, sk_connect(s, second));
	T(t, sk_send(s, "again", 5, 0));
	T(t, sk_recv(u, buf, sizeof(buf), 0));
	T(t, sk_sendto(u, "back", 4, 0, name));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	T(t, sk_sendto(u, "x", 1, 0, ip(family == AF_INET ? "198.51.100.1" : "2001:db8::1", 9)));
	T(t, sk_sendto(u, "x", 1, 0, ip(family == AF_INET ? "10.1.0.255" : "ff02::1", 0)));
	T(t, sk_send(u, "x", 1, 0));
	sk_close(s);
	sk_close(u);
}

HERE(nothing_is_too_long)
{
	static char data[70000];
	struct any_addr peer, name;
	struct sk p = peer_open(family, &peer), s = bound_here(side, family, &name);

	T(t, sk_sendto(s, data, 65508, 0, peer));
	T(t, sk_sendto(s, data, 65536, 0, peer));
	T(t, sk_sendto(s, data, 65507, 0, peer));
	T(t, sk_recv(p, data, sizeof(data), 0));
	T(t, sk_set_int(s, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, family == AF_INET ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
			IP_PMTUDISC_DO));
	T(t, sk_sendto(s, data, 1473, 0, peer));
	T(t, sk_sendto(s, data, 1452, 0, peer));
	T(t, sk_recv(p, data, sizeof(data), 0));
	sk_close(s);
	sk_close(p);
}

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

static int so_error(struct sk s)
{
	int err = -1;
	socklen_t len = sizeof(err);

	CHECK_EQ(sk_get(s, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	return err;
}

HERE(refused)
{
	struct any_addr closed = peer_closed(family);
	struct sk s = open_limited(side, family);
	char buf[100];

	T(t, sk_connect(s, closed));
	T(t, sk_send(s, "x", 1, 0));
	T(t, sk_poll(s, POLLIN, WAIT_NS) & POLLERR);
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	T(t, sk_recv(s, buf, sizeof(buf), MSG_DONTWAIT));
	T(t, so_error(s));
	T(t, sk_send(s, "x", 1, 0));
	T(t, sk_poll(s, POLLIN, WAIT_NS) & POLLERR);
	T(t, so_error(s));
	T(t, so_error(s));
	T(t, sk_send(s, "x", 1, 0));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	sk_close(s);
}

HERE(error_queue)
{
	struct any_addr closed = peer_closed(family), name, to = { .len = sizeof(to.ss) };
	struct sk s = bound_here(side, family, &name);
	char data[100], control[512];
	struct iovec iov = { data, sizeof(data) };
	struct msghdr m = { .msg_name = &to.ss, .msg_namelen = to.len, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control };
	bool v4 = family == AF_INET;

	T(t, sk_set_int(s, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVERR : IPV6_RECVERR, 1));
	m.msg_controllen = sizeof(control);
	T(t, sk_recvmsg(s, &m, MSG_ERRQUEUE));
	T(t, sk_sendto(s, "where", 5, 0, closed));
	T(t, sk_poll(s, POLLIN, WAIT_NS) & POLLERR);
	m.msg_namelen = to.len;
	m.msg_controllen = sizeof(control);
	T(t, sk_recvmsg(s, &m, MSG_ERRQUEUE));
	T(t, m.msg_flags);
	to.len = m.msg_namelen;
	T(t, same_addr(&to, &closed));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		struct sock_extended_err ee;

		memcpy(&ee, CMSG_DATA(c), sizeof(ee));
		T(t, c->cmsg_level * 1000 + c->cmsg_type);
		T(t, ee.ee_errno);
		T(t, ee.ee_origin * 10000 + ee.ee_type * 100 + ee.ee_code);
	}
	T(t, so_error(s));
	T(t, sk_recv(s, data, sizeof(data), MSG_DONTWAIT));
	sk_close(s);
}

HERE(shut_down)
{
	struct any_addr peer, name;
	struct sk p = peer_open(family, &peer), s = bound_here(side, family, &name);
	static char buf[BIG];

	T(t, sk_shutdown(s, SHUT_RD));
	sk_close(s);
	s = bound_here(side, family, &name);
	T(t, sk_connect(s, peer));
	T(t, sk_sendto(p, "small", 5, 0, name));
	T(t, sk_poll(s, POLLIN, WAIT_NS) & POLLIN);
	T(t, sk_recv(s, buf, sizeof(buf), MSG_PEEK));
	T(t, sk_sendto(p, buf, BIG, 0, name));
	/* The second one waits in the kernel by now, in one piece. */
	for (int n = 0; side->ours && !(sk_poll((struct sk){ &kernel_here, s.fd, NULL }, POLLIN, WAIT_NS) & POLLIN) && n < 10; n++)
		;
	T(t, sk_shutdown(s, SHUT_RDWR));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	T(t, sk_recv(s, buf, sizeof(buf), MSG_DONTWAIT));
	T(t, sk_send(s, "x", 1, 0));
	T(t, sk_shutdown(s, 17));
	sk_close(s);
	sk_close(p);
}

/* ---- groups ------------------------------------------------------------------------------------------------------------ */

static int member(struct sk s, int family, int name4, int name6, const char *group)
{
	struct ip_mreq m4 = { .imr_interface.s_addr = inet_addr("10.1.0.1") };
	struct ipv6_mreq m6 = { .ipv6mr_interface = if_nametoindex("v0") };

	if (family == AF_INET) {
		m4.imr_multiaddr.s_addr = inet_addr(group);
		return sk_set(s, IPPROTO_IP, name4, &m4, sizeof(m4));
	}
	CHECK_EQ(inet_pton(AF_INET6, group, &m6.ipv6mr_multiaddr), 1);
	return sk_set(s, IPPROTO_IPV6, name6, &m6, sizeof(m6));
}

HERE(memberships)
{
	const char *group = family == AF_INET ? "239.3.3.3" : "ff15::3333", *other = family == AF_INET ? "239.3.3.4" : "ff15::3334";
	struct any_addr peer, name, from;
	struct sk p = peer_open(family, &peer), s = open_limited(side, family);
	char buf[100];
	int index;

	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	index = (int)if_nametoindex("p0");
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	if (family == AF_INET6)
		CHECK_EQ(sk_set_int(p, IPPROTO_IPV6, IPV6_MULTICAST_IF, index), 0);
	T(t, sk_bind(s, ip(family == AF_INET ? "0.0.0.0" : "::", 0)));
	T(t, sk_name(s, &name));
	T(t, member(s, family, IP_DROP_MEMBERSHIP, IPV6_LEAVE_GROUP, group));
	T(t, member(s, family, IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, group));
	T(t, member(s, family, IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, group));
	T(t, member(s, family, IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, family == AF_INET ? "10.1.0.9" : "fd01::9"));
	T(t, sk_sendto(p, "for all", 7, 0, ip(group, addr_port(&name))));
	T(t, sk_recvfrom(s, buf, sizeof(buf), 0, &from));
	T(t, same_addr(&from, &peer));
	T(t, member(s, family, IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, other));
	T(t, member(s, family, IP_DROP_MEMBERSHIP, IPV6_LEAVE_GROUP, group));
	T(t, member(s, family, IP_DROP_MEMBERSHIP, IPV6_LEAVE_GROUP, group));
	T(t, sk_sendto(p, "for none", 8, 0, ip(group, addr_port(&name))));
	T(t, sk_sendto(p, "others", 6, 0, ip(other, addr_port(&name))));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	T(t, member(s, family, IP_DROP_MEMBERSHIP, IPV6_LEAVE_GROUP, other));
	sk_close(s);
	sk_close(p);
}

HERE(a_whole_filter)
{
	struct any_addr peer, name;
	struct sk p = peer_open(family, &peer), s = bound_here(side, family, &name);
	const char *group = family == AF_INET ? "239.3.3.5" : "ff15::3335";
	struct any_addr there = ip(peer_host(family), 0), stranger = ip(family == AF_INET ? "10.1.0.99" : "fd01::99", 0);
	struct group_filter f = { .gf_interface = if_nametoindex("v0"), .gf_fmode = MCAST_INCLUDE, .gf_numsrc = 1 };
	int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, index;
	char buf[100];

	sk_close(s);
	s = open_limited(side, family);
	T(t, sk_bind(s, ip(family == AF_INET ? "0.0.0.0" : "::", 0)));
	T(t, sk_name(s, &name));
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	index = (int)if_nametoindex("p0");
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	if (family == AF_INET6)
		CHECK_EQ(sk_set_int(p, IPPROTO_IPV6, IPV6_MULTICAST_IF, index), 0);
	f.gf_group = ip(group, 0).ss;
	f.gf_slist[0] = stranger.ss;
	T(t, member(s, family, IP_ADD_MEMBERSHIP, IPV6_JOIN_GROUP, group));
	T(t, sk_set(s, level, MCAST_MSFILTER, &f, sizeof(f)));
	T(t, sk_sendto(p, "unwanted", 8, 0, ip(group, addr_port(&name))));
	f.gf_slist[0] = there.ss;
	T(t, sk_set(s, level, MCAST_MSFILTER, &f, sizeof(f)));
	T(t, sk_sendto(p, "wanted", 6, 0, ip(group, addr_port(&name))));
	T(t, sk_recv(s, buf, sizeof(buf), 0));
	sk_close(s);
	sk_close(p);
}

/* ---- ours alone -------------------------------------------------------------------------------------------------------- */

TEST(ours_are_offloaded)
{
	struct any_addr name;
	struct sk s;
	char text[128];

	world();
	s = bound_here(&ours_here, AF_INET, &name);
	CHECK_EQ(pyvma_sock_offload(s.h, text, sizeof(text)), PYVMA_OFFLOADED);
	CHECK(!strcmp(text, "xdp:v0"));
	sk_close(s);
	s = sk_open(&ours_here, AF_INET6);
	CHECK_EQ(sk_connect(s, ip("fd01::2", 9)), 0);
	CHECK(is_offloaded(s));
	sk_close(s);
	s = sk_open(&ours_here, AF_INET);
	CHECK_EQ(sk_connect(s, ip("10.1.0.1", 9)), 0);
	CHECK_EQ(pyvma_sock_offload(s.h, text, sizeof(text)), PYVMA_KERNEL);
	CHECK(!strcmp(text, "address 10.1.0.1 is the kernel's"));
	sk_close(s);
}

/* Waits until as many have come by each way as were sent, then takes them by one kind of call. */
static void batch(bool lent)
{
	enum { N = 20 };
	static char data[BIG], room[N][BIG];
	struct pyvma_msg msgs[N];
	struct any_addr peer, name;
	struct sk p, s;
	int small = 0, big = 0;

	world();
	p = peer_open(AF_INET, &peer);
	s = bound_here(&ours_here, AF_INET, &name);
	memset(data, 'd', sizeof(data));
	for (int i = 0; i < N; i++)
		CHECK(sk_sendto(p, data, i % 2 ? BIG : 100, 0, name) > 0);
	while (small + big < N) {
		memset(msgs, 0, sizeof(msgs));
		for (int i = 0; i < N; i++) {
			msgs[i].base = room[i];
			msgs[i].len = sizeof(room[i]);
		}
		int n = lent ? pyvma_sock_recv_lent(s.h, msgs, N, 0, LONG_NS) : pyvma_sock_recv_batch(s.h, msgs, N, 0, LONG_NS);

		CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			CHECK(msgs[i].len == 100 || msgs[i].len == BIG);
			CHECK(!memcmp(msgs[i].base, data, msgs[i].len));
			CHECK_EQ(msgs[i].addrlen, peer.len);
			CHECK(!memcmp(&msgs[i].addr, &peer.ss, peer.len));
			CHECK(!msgs[i].lent == !lent);
			small += msgs[i].len == 100;
			big += msgs[i].len == BIG;
		}
		pyvma_batch_release(msgs, (uint32_t)n);
	}
	CHECK_EQ(small, N / 2);
	struct pyvma_sock_stats st;

	CHECK_EQ(pyvma_sock_stats(s.h, &st), 0);
	CHECK_EQ(st.rx_datagrams, N / 2);
	CHECK_EQ(st.kernel_rx_datagrams, N / 2);
	for (int i = 0; i < N; i++) {
		msgs[i] = (struct pyvma_msg){ .base = data, .len = i % 2 ? BIG : 100, .addrlen = peer.len, .addr = peer.ss };
		if (i % 3 == 2)
			msgs[i].addr = name.ss; /* the host itself: by the kernel */
	}
	for (int done = 0; done < N;) {
		int n = pyvma_sock_send_batch(s.h, msgs + done, (uint32_t)(N - done), 0, LONG_NS);

		CHECK(n > 0);
		done += n;
	}
	for (int i = 0; i < N; i++)
		CHECK_EQ(sk_recv(i % 3 == 2 ? s : p, room[0], BIG, 0), i % 2 ? BIG : 100);
	CHECK_EQ(pyvma_sock_stats(s.h, &st), 0);
	CHECK_EQ(st.kernel_tx_datagrams, N / 3);
	sk_close(s);
	sk_close(p);
}

TEST(batches_take_both_legs)
{
	batch(false);
}

TEST(lent_takes_both_legs)
{
	batch(true);
}

TEST(lending_ends)
{
	static char data[BIG];
	struct any_addr peer, name;
	struct pyvma_msg msgs[4];
	struct sk p, s;

	world();
	p = peer_open(AF_INET, &peer);
	s = bound_here(&ours_here, AF_INET, &name);
	CHECK_EQ(sk_connect(s, peer), 0);
	CHECK_EQ(sk_sendto(p, data, BIG, 0, name), BIG);
	CHECK(sk_poll(s, POLLIN, WAIT_NS) & POLLIN);
	CHECK_EQ(sk_shutdown(s, SHUT_RD), 0);
	CHECK_EQ(pyvma_sock_recv_lent(s.h, msgs, 4, 0, LONG_NS), 1);
	CHECK_EQ(msgs[0].len, BIG);
	pyvma_batch_release(msgs, 1);
	CHECK_EQ(pyvma_sock_recv_lent(s.h, msgs, 4, 0, LONG_NS), 0);
	CHECK_EQ(sk_recv(s, data, sizeof(data), 0), 0);
	sk_close(s);
	sk_close(p);
}

TEST(a_child_goes_on_with_the_kernel_socket)
{
	struct any_addr peer, from, name;
	struct sk p, s;
	char buf[100];
	int status;

	world();
	p = peer_open(AF_INET, &peer);
	s = bound_here(&ours_here, AF_INET, &name);
	CHECK(pyvma_sock_fileno(s.h) >= 0);
	CHECK_EQ(sk_connect(s, peer), 0);
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		int fd = pyvma_sock_fileno(s.h), type = 0, bad = is_offloaded(s);
		socklen_t len = sizeof(type);

		/* The number is the kernel socket's again. */
		bad |= getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &type, &len) || type != AF_INET;
		bad |= send(fd, "by the fd", 9, 0) != 9 || sk_send(s, "by the handle", 13, 0) != 13;
		bad |= sk_close(s) != 0;
		_exit(bad);
	}
	CHECK_EQ(sk_recvfrom(p, buf, sizeof(buf), 0, &from), 9);
	CHECK(same_addr(&from, &name));
	CHECK_EQ(sk_recv(p, buf, sizeof(buf), 0), 13);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK_EQ(sk_send(s, "parent", 6, 0), 6);
	CHECK_EQ(sk_recv(p, buf, sizeof(buf), 0), 6);
	CHECK_EQ(sk_sendto(p, "to the parent", 13, 0, name), 13);
	CHECK_EQ(sk_recv(s, buf, sizeof(buf), 0), 13);
	CHECK(is_offloaded(s));
	sk_close(s);
	sk_close(p);
}

TEST(duplicates_share)
{
	struct any_addr peer, name;
	struct sk p, s, d;
	char buf[BIG];

	world();
	p = peer_open(AF_INET6, &peer);
	s = bound_here(&ours_here, AF_INET6, &name);
	d = s;
	CHECK_EQ(pyvma_sock_dup(s.h, &d.h), 0);
	CHECK_EQ(sk_close(s), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(sk_sendto(p, buf, i ? BIG : 10, 0, name), i ? BIG : 10);
		CHECK_EQ(sk_recv(d, buf, sizeof(buf), 0), i ? BIG : 10);
	}
	CHECK(is_offloaded(d));
	CHECK_EQ(sk_close(d), 0);
	/* Nobody is there any more: not here, not beneath. */
	CHECK_EQ(sk_connect(p, name), 0);
	CHECK_EQ(sk_send(p, "x", 1, 0), 1);
	CHECK_EQ(sk_recv(p, buf, sizeof(buf), 0), -ECONNREFUSED);
	sk_close(p);
}

/* Sends what the receiver sleeps for: a size each, the next once it has the last, as legs keep no order. */
struct pace {
	sem_t turn;
	struct sk from;
	struct any_addr to;
	const char *sizes; /* 's': by the ring, 'B': in fragments, by the kernel */
};

static void *send_paced(void *arg)
{
	static const char data[BIG];
	struct pace *p = arg;

	for (const char *c = p->sizes; *c; c++) {
		sem_wait(&p->turn);
		usleep(2000);
		CHECK(sk_sendto(p->from, data, *c == 'B' ? BIG : 10, 0, p->to) > 0);
	}
	return NULL;
}

static void sleep_for(struct sk s, struct pace *p)
{
	char buf[BIG];
	pthread_t t;

	CHECK_EQ(pthread_create(&t, NULL, send_paced, p), 0);
	for (const char *c = p->sizes; *c; c++) {
		sem_post(&p->turn);
		CHECK_EQ(sk_recv(s, buf, sizeof(buf), 0), *c == 'B' ? BIG : 10);
	}
	pthread_join(t, NULL);
}

TEST(either_leg_ends_a_sleep)
{
	struct pyvma_sock_stats st;
	struct any_addr peer;
	struct pace pace;
	struct sk s, d;

	world();
	pace = (struct pace){ .from = peer_open(AF_INET, &peer), .sizes = "sBsBBsssBBBsB" };
	sem_init(&pace.turn, 0, 0);
	for (int turn = 0; turn < 3; turn++) {
		s = bound_here(&ours_here, AF_INET, &pace.to);
		sleep_for(s, &pace);
		CHECK_EQ(pyvma_sock_stats(s.h, &st), 0);
		CHECK(st.sleeps > 0);
		CHECK_EQ(st.kernel_rx_datagrams, 7);
		/* The kernel socket gets another number, by the end of the first handle and by an fd that is told; and a socket that is closed
		 * is watched no more. */
		d = s;
		CHECK_EQ(pyvma_sock_dup(s.h, &d.h), 0);
		if (turn == 1)
			CHECK(pyvma_sock_fileno(d.h) >= 0);
		sk_close(s);
		sleep_for(d, &pace);
		CHECK(is_offloaded(d));
		sk_close(d);
	}
	sk_close(pace.from);
}

TEST(options_leave_it_to_the_kernel)
{
	static const struct {
		int family, level, name;
		const char *text;
	} opts[] = {
		{ AF_INET, SOL_SOCKET, SO_PRIORITY, "SO_PRIORITY" },
		{ AF_INET, SOL_SOCKET, SO_DONTROUTE, "SO_DONTROUTE" },
		{ AF_INET, IPPROTO_IP, IP_RECVOPTS, "IP_RECVOPTS" },
		{ AF_INET6, IPPROTO_IPV6, IPV6_RECVHOPOPTS, "IPV6_RECVHOPOPTS" },
		{ AF_INET6, IPPROTO_IPV6, IPV6_DONTFRAG, "IPV6_DONTFRAG" },
	};
	struct any_addr name;
	char text[128];

	world();
	for (size_t i = 0; i < sizeof(opts) / sizeof(*opts); i++) {
		struct sk s = open_limited(&ours_here, opts[i].family);

		CHECK_EQ(sk_set_int(s, opts[i].level, opts[i].name, 1), 0);
		CHECK_EQ(sk_bind(s, ip(side_addr(&ours_here, opts[i].family), 0)), 0);
		CHECK_EQ(pyvma_sock_offload(s.h, text, sizeof(text)), PYVMA_KERNEL);
		CHECK(!strcmp(text, opts[i].text));
		sk_close(s);
		s = open_limited(&ours_here, opts[i].family);
		CHECK_EQ(sk_set_int(s, opts[i].level, opts[i].name, 1), 0);
		CHECK_EQ(sk_set_int(s, opts[i].level, opts[i].name, 0), 0);
		CHECK_EQ(sk_bind(s, ip(side_addr(&ours_here, opts[i].family), 0)), 0);
		CHECK(is_offloaded(s));
		sk_close(s);
		s = bound_here(&ours_here, opts[i].family, &name);
		CHECK_EQ(sk_set_int(s, opts[i].level, opts[i].name, 1), 0);
		/* What concerns sending alone leaves the receiving where it was. */
		CHECK_EQ(is_offloaded(s),
			 opts[i].name == SO_PRIORITY || opts[i].name == SO_DONTROUTE || opts[i].name == IPV6_DONTFRAG);
		sk_close(s);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
