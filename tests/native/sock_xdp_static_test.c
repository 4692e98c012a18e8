/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An AF_XDP interface with addresses of its own (addr=): the kernel owns the link and has no address there, the stack does ARP, ND, ICMP
 * and IGMP by itself. The peer is the kernel at the other end of a veth pair, in a namespace of its own.
 */
#include <sys/epoll.h>

#include "test.h"

#ifndef PV_HAVE_XDP
int main(void)
{
	puts("skip: built without libbpf or clang");
	return 77;
}
#else
#include "rt/engine.h"
#include "sock_host_env.h"

static const char *const here[] = { "10.1.0.1", "fd01::1" };
static const int families[] = { AF_INET, AF_INET6 };

static void setup(const char *mode)
{
	char text[200];

	if (geteuid() != 0)
		test_skip("needs root for network namespaces");
	if (!*env_fabric) {
		strcpy(env_fabric, "none"); /* sk_open finds the engine running */
		peer_ns = new_ns();
		own_ns = new_ns();
		ip_in(own_ns, "link set lo up");
		ip_in(own_ns, "link add v0 type veth peer name p0 netns /proc/%d/fd/%d", getpid(), peer_ns);
		ip_in(own_ns, "link set v0 up");
		ip_in(peer_ns, "addr add 10.1.0.2/24 broadcast + dev p0");
		ip_in(peer_ns, "-6 addr add fd01::2/64 dev p0 nodad");
		ip_in(peer_ns, "link set p0 up");
		CHECK_EQ(pyvma_config_set("log_level", "error"), 0);
	}
	pyvma_stop();
	snprintf(text, sizeof(text), "xdp:device=v0,mode=%s,addr=10.1.0.1/24,addr=fd01::1/64", mode);
	CHECK_EQ(pyvma_config_set("interfaces", text), 0);
	int rc = pyvma_start();

	if (rc)
		fprintf(stderr, "%s\n", pyvma_last_error());
	CHECK_EQ(rc, 0);
}

static void check_offloaded(struct sk s)
{
	char text[200];

	CHECK_EQ(pyvma_sock_offload(s.h, text, sizeof(text)), PYVMA_OFFLOADED);
	CHECK(strstr(text, "xdp:v0"));
}

/* Neither side knows the other's MAC: the first datagram of each waits for ARP or ND. */
static void there_and_back(bool peer_first)
{
	static const size_t sizes[] = { 0, 1, 100, 1400, 5000, 60000 };
	static char data[60000], buf[70000];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 31 + i / 256);
	for (int f = 0; f < 2; f++) {
		struct any_addr peer, name, from;
		struct sk p = peer_open(families[f], &peer), s = open_limited(&ours_here, families[f]);

		CHECK_EQ(sk_bind(s, ip(here[f], 0)), 0);
		check_offloaded(s);
		CHECK_EQ(sk_name(s, &name), 0);
		if (peer_first) {
			CHECK_EQ(sk_sendto(p, "hello", 5, 0, name), 5);
			CHECK_EQ(sk_recvfrom(s, buf, sizeof(buf), 0, &from), 5);
			CHECK(same_addr(&from, &peer));
		}
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			int64_t n = (int64_t)sizes[i];

			CHECK_EQ(sk_sendto(s, data, sizes[i], 0, peer), n);
			CHECK_EQ(sk_recvfrom(p, buf, sizeof(buf), 0, &from), n);
			CHECK(same_addr(&from, &name) && !memcmp(buf, data, sizes[i]));
			CHECK_EQ(sk_sendto(p, data, sizes[i], 0, name), n);
			CHECK_EQ(sk_recvfrom(s, buf, sizeof(buf), 0, &from), n);
			CHECK(same_addr(&from, &peer) && !memcmp(buf, data, sizes[i]));
		}
		sk_close(s);
		sk_close(p);
	}
}

static void forget_neighbours(void)
{
	ip_in(peer_ns, "neigh flush dev p0");
	ip_in(peer_ns, "-6 neigh flush dev p0");
}

static void in_mode(const char *mode)
{
	for (int i = 0; i < 2; i++) {
		setup(mode);
		forget_neighbours();
		there_and_back(i);
	}
}

TEST(kernel_peer_native)
{
	in_mode("native");
}

TEST(kernel_peer_generic)
{
	in_mode("generic");
}

/* Answers of the stack's own: echo, and that nobody listens. The kernel here has no say. */
TEST(icmp_is_ours)
{
	setup("auto");
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	for (int f = 0; f < 2; f++) {
		struct timeval limit = { .tv_sec = 30 };
		char command[100], b;
		int fd;

		snprintf(command, sizeof(command), "timeout 30 ping -q -n -c 3 -i 0.05 -s 1000 -w 20 %s >/dev/null", here[f]);
		CHECK_EQ(system(command), 0);
		fd = socket(families[f], SOCK_DGRAM | SOCK_CLOEXEC, 0);
		CHECK(fd >= 0);
		CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
		struct any_addr to = ip(here[f], 9);

		CHECK_EQ(connect(fd, (struct sockaddr *)&to.ss, to.len), 0);
		CHECK_EQ(send(fd, "x", 1, 0), 1);
		CHECK(recv(fd, &b, 1, 0) < 0 && errno == ECONNREFUSED);
		close(fd);
	}
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	/* And the other way round. */
	for (int f = 0; f < 2; f++) {
		struct sk s = open_limited(&ours_here, families[f]);
		char b;

		CHECK_EQ(sk_connect(s, peer_closed(families[f])), 0);
		check_offloaded(s);
		CHECK_EQ(sk_send(s, "x", 1, 0), 1);
		CHECK_EQ(sk_recv(s, &b, 1, 0), -ECONNREFUSED);
		sk_close(s);
	}
}

TEST(groups)
{
	static const char *const group[] = { "239.1.2.3", "ff15::1:3" };

	setup("auto");
	ip_in(peer_ns, "route add 239.0.0.0/8 dev p0");
	for (int f = 0; f < 2; f++) {
		struct any_addr peer, name, from;
		struct sk p = peer_open(families[f], &peer), s = open_limited(&ours_here, families[f]);
		struct ip_mreqn m4 = { .imr_multiaddr.s_addr = inet_addr("239.1.2.3"),
				       .imr_address.s_addr = inet_addr("10.1.0.1") };
		struct pyvma_interface ifc;
		struct ipv6_mreq m6;
		char buf[100];

		CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
		m6.ipv6mr_interface = ifc.index;
		CHECK_EQ(inet_pton(AF_INET6, group[1], &m6.ipv6mr_multiaddr), 1);
		CHECK_EQ(sk_bind(s, ip(f ? "::" : "0.0.0.0", 0)), 0);
		CHECK_EQ(sk_name(s, &name), 0);
		CHECK_EQ(f ? sk_set(s, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &m6, sizeof(m6))
			   : sk_set(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m4, sizeof(m4)),
			 0);
		CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
		int index = (int)if_nametoindex("p0");

		CHECK(index > 0);
		if (f)
			CHECK_EQ(sk_set_int(p, IPPROTO_IPV6, IPV6_MULTICAST_IF, index), 0);
		CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
		CHECK_EQ(sk_sendto(p, "group", 5, 0, ip(group[f], addr_port(&name))), 5);
		CHECK_EQ(sk_recvfrom(s, buf, sizeof(buf), 0, &from), 5);
		CHECK(same_addr(&from, &peer));
		sk_close(s);
		sk_close(p);
	}
}

/* No neighbour, no route: the stack's own errors. */
TEST(destinations_without_a_way)
{
	setup("auto");
	struct sk s = open_limited(&ours_here, AF_INET);
	char b;

	CHECK_EQ(sk_set_int(s, IPPROTO_IP, IP_RECVERR, 1), 0);
	CHECK_EQ(sk_connect(s, ip("10.1.0.77", 9)), 0);
	CHECK_EQ(sk_send(s, "x", 1, 0), 1);
	CHECK_EQ(sk_recv(s, &b, 1, 0), -EHOSTUNREACH);
	CHECK_EQ(sk_connect(s, ip("192.0.2.1", 9)), -ENETUNREACH);
	sk_close(s);
}

static uint64_t polls(void)
{
	uint64_t n;

	pv_lock_get(&pv_engine.lock);
	n = pv_engine.stat->polls;
	pv_lock_put(&pv_engine.lock);
	return n;
}

static uint64_t polls_while_waiting(struct sk s)
{
	uint64_t before = polls();
	char b;

	CHECK_EQ(sk_recv(s, &b, 1, 0), -EAGAIN);
	return polls() - before;
}

/* What is sent meanwhile leaves when the interface is up again, and nobody who waits spins for that. */
TEST(frames_wait_for_a_link)
{
	static const char *const modes[] = { "generic", "native" };

	for (int m = 0; m < 2; m++) {
		struct timeval limit = { .tv_usec = 300000 };
		struct pyvma_interface ifc;
		struct any_addr peer, from;
		char buf[4];

		setup(modes[m]);
		struct sk p = peer_open(AF_INET, &peer), s = open_limited(&ours_here, AF_INET);

		CHECK_EQ(sk_sendto(s, "0", 1, 0, peer), 1);
		CHECK_EQ(sk_recvfrom(p, buf, sizeof(buf), 0, &from), 1);
		pv_engine.spin_ns = 0;
		CHECK_EQ(sk_set(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
		ip_in(own_ns, "link set v0 down");
		for (int i = 1; i < 4; i++) {
			snprintf(buf, sizeof(buf), "%d", i);
			CHECK_EQ(sk_sendto(s, buf, 1, 0, peer), 1);
		}
		CHECK(polls_while_waiting(s) < 500);
		CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
		CHECK(!ifc.link_up);
		ip_in(own_ns, "link set v0 up");
		for (int i = 1; i < 4; i++) {
			CHECK_EQ(sk_recvfrom(p, buf, sizeof(buf), 0, &from), 1);
			CHECK_EQ(*buf, '0' + i);
		}
		CHECK(polls_while_waiting(s) < 500);
		CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
		CHECK(ifc.link_up);
		sk_close(s);
		sk_close(p);
	}
}

/* Nothing can take its place: what is bound there hears of it, while it waits. Last: the world ends with it. */
static void *delete_it(void *arg)
{
	(void)arg;
	usleep(50000);
	CHECK_EQ(system("timeout 20 ip link del v0"), 0);
	return NULL;
}

/* An event loop is told, too, and sleeps again afterwards. */
static void *loop_until_deleted(void *arg)
{
	struct sk s = *(struct sk *)arg;
	struct pyvma_event ev = { .events = EPOLLIN, .data = 1 };
	struct pollfd p = { .events = POLLIN };
	pyvma_epoll *set;
	char b;
	int idle = 0;

	CHECK_EQ(pyvma_epoll_open(&set), 0);
	p.fd = pyvma_epoll_loop_fd(set);
	CHECK_EQ(pyvma_epoll_ctl_sock(set, EPOLL_CTL_ADD, s.h, &ev), 0);
	while (!pyvma_epoll_turn(set, &ev, 1, -1, -1))
		CHECK_EQ(poll(&p, 1, 30000), 1);
	CHECK(ev.events & (EPOLLIN | EPOLLERR));
	CHECK_EQ(sk_recv(s, &b, 1, MSG_DONTWAIT), -ENETDOWN);
	for (int i = 0; i < 3000 && idle < 3; i++) {
		CHECK_EQ(pyvma_epoll_turn(set, &ev, 1, -1, -1), 0);
		idle = poll(&p, 1, 10) ? 0 : idle + 1;
	}
	CHECK_EQ(idle, 3);
	pyvma_epoll_close(set);
	return NULL;
}

TEST(zz_the_interface_is_deleted)
{
	struct pyvma_interface ifc;
	pthread_t thread, loop;
	struct sk s, other;
	char b;

	setup("auto");
	s = open_limited(&ours_here, AF_INET);
	CHECK_EQ(sk_bind(s, ip(here[0], 0)), 0);
	other = open_limited(&ours_here, AF_INET);
	CHECK_EQ(sk_bind(other, ip(here[0], 0)), 0);
	CHECK_EQ(pthread_create(&loop, NULL, loop_until_deleted, &other), 0);
	CHECK_EQ(pthread_create(&thread, NULL, delete_it, NULL), 0);
	CHECK_EQ(sk_recv(s, &b, 1, 0), -ENETDOWN);
	pthread_join(thread, NULL);
	pthread_join(loop, NULL);
	sk_close(other);
	CHECK_EQ(sk_sendto(s, "x", 1, 0, ip("10.1.0.2", 9)), -ENETDOWN);
	CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
	CHECK(!ifc.link_up);
	sk_close(s);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
