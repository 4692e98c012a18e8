/* SPDX-License-Identifier: BSD-3-Clause */
/* What may happen to an interface that the kernel owns while sockets use it (host_env.h says how that is set up). */
#include "test.h"

#if !defined(PV_HAVE_NETLINK) || !defined(PV_HAVE_XDP)
int main(void)
{
	puts("skip: built without libmnl or libbpf");
	return 77;
}
#else
#include "host_env.h"
#include "ring/xdp.h"
#include "rt/mem.h"

TEST(kernel_peer_both_families)
{
	static const char *const local[] = { "10.1.0.1", "fd01::1" }, *const remote[] = { "10.1.0.2", "fd01::2" };
	struct pyvma_interface ifc;

	setup();
	ifc = interface();
	CHECK(!strcmp(ifc.name, "v0") && !strcmp(ifc.ring, "xdp:v0") && ifc.link_up);
	CHECK_EQ(ifc.mtu, 1500);
	for (int i = 0; i < 2; i++) {
		int peer = peer_open(remote[i], 7000);
		struct us s;

		us_open(&s, local[i], 7001);
		for (int k = 0; k < 100; k++)
			ping_pong(&s, peer, remote[i], 7000);
		us_close(&s);
		close(peer);
	}
	teardown();
}

TEST(destinations_that_are_the_kernels)
{
	struct us s;

	setup();
	us_open(&s, "10.1.0.1", 7001);
	CHECK_EQ(us_send(&s, "x", "10.1.0.1", 9), -EXDEV); /* itself */
	CHECK_EQ(us_send(&s, "x", "127.0.0.1", 9), -EXDEV);
	CHECK_EQ(us_send(&s, "x", "0.0.0.0", 9), -EXDEV);
	CHECK_EQ(us_send(&s, "x", "192.0.2.1", 9), -ENETUNREACH); /* no route */
	us_close(&s);
	teardown();
}

TEST(addresses_come_and_go)
{
	struct us any, one, gone;
	int peer;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&any, "0.0.0.0", 7001);
	CHECK_EQ(rules(&any), 1);
	ip("addr add 10.1.0.9/24 dev v0");
	WAIT_FOR(have_addr("10.1.0.9"));
	CHECK_EQ(rules(&any), 2);
	us_open(&one, "10.1.0.9", 7002);
	ping_pong(&one, peer, "10.1.0.2", 7000);
	us_open(&gone, "10.1.0.9", 7003);
	ping_pong(&gone, peer, "10.1.0.2", 7000);
	ip("addr del 10.1.0.9/24 dev v0");
	WAIT_FOR(!have_addr("10.1.0.9"));
	CHECK_EQ(rules(&any), 1);
	CHECK_EQ(rules(&one), 0);
	/* The kernel's answer to a source that is gone is the kernel's to give. */
	CHECK_EQ(us_send(&one, "x", "10.1.0.2", 7000), -EXDEV);
	ping_pong(&any, peer, "10.1.0.2", 7000);
	ip("addr add 10.1.0.9/24 dev v0");
	WAIT_FOR(have_addr("10.1.0.9"));
	CHECK_EQ(rules(&any), 2);
	ping_pong(&one, peer, "10.1.0.2", 7000);
	us_close(&any);
	us_close(&one);
	us_close(&gone);
	close(peer);
	teardown();
}

/* Until the kernel has heard no objection an IPv6 address cannot be used. */
TEST(tentative_address)
{
	setup();
	ip("-6 addr add fd01::5/64 dev v0");
	WAIT_FOR(have_addr("fd01::5"));
	teardown();
}

TEST(more_addresses_than_we_hold)
{
	struct us s;

	setup();
	for (int i = 20; i < 50; i++)
		ip("addr add 10.1.0.%d/24 dev v0", i);
	WAIT_FOR(config()->naddr == PV_IFACE_ADDR_MAX);
	us_open(&s, "0.0.0.0", 7001);
	CHECK(rules(&s) > 0 && rules(&s) <= PV_IFACE_ADDR_MAX);
	us_close(&s);
	teardown();
}

TEST(routes_are_followed)
{
	struct us s;
	int peer;

	setup();
	peer_ip("addr add 192.0.2.1/32 dev lo");
	ip("addr add 10.1.0.9/24 dev v0");
	WAIT_FOR(have_addr("10.1.0.9"));
	peer = peer_open("192.0.2.1", 7000);
	us_open(&s, "0.0.0.0", 7001);
	CHECK_EQ(us_send(&s, "x", "192.0.2.1", 7000), -ENETUNREACH);
	ip("route add default via 10.1.0.2");
	WAIT_FOR(us_path(&s, "192.0.2.1") == 0);
	ping_pong(&s, peer, "192.0.2.1", 7000);
	ip("route add unreachable 192.0.2.0/24");
	WAIT_FOR(us_path(&s, "192.0.2.1") == -EHOSTUNREACH);
	CHECK_EQ(us_send(&s, "x", "192.0.2.1", 7000), -EHOSTUNREACH);
	ip("route replace prohibit 192.0.2.0/24");
	WAIT_FOR(us_path(&s, "192.0.2.1") == -EACCES);
	ip("route replace 192.0.2.0/24 dev lo");
	WAIT_FOR(us_path(&s, "192.0.2.1") == -EXDEV);
	ip("route del 192.0.2.0/24");
	WAIT_FOR(us_path(&s, "192.0.2.1") == 0);
	/* By rule, with a source of the route's choice. */
	ip("route add 192.0.2.1 via 10.1.0.2 src 10.1.0.9 table 77");
	ip("rule add to 192.0.2.1 lookup 77");
	WAIT_FOR(us_path(&s, "192.0.2.1") == 0 && us_source(&s, "192.0.2.1", "10.1.0.9"));
	ping_pong(&s, peer, "192.0.2.1", 7000);
	ip("rule del to 192.0.2.1 lookup 77");
	WAIT_FOR(us_source(&s, "192.0.2.1", "10.1.0.1"));
	ip("route del default");
	WAIT_FOR(us_path(&s, "192.0.2.1") == -ENETUNREACH);
	us_close(&s);
	close(peer);
	teardown();
}

/* As Linux: IP_RECVERR hears that a neighbour does not answer; and it goes on when that one is back. */
TEST(neighbour_fails_and_comes_back)
{
	struct pv_endpoint to = at("10.1.0.2", 7000);
	char buf[100];
	struct us s;
	int peer;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	pv_lock_get(&e->lock);
	CHECK_EQ(pv_udp_connect(s.u, &to, pv_clock_now(&e->clock)), 0);
	pv_udp_options(s.u)->recverr4 = true;
	pv_udp_options_changed(s.u);
	pv_lock_put(&e->lock);
	peer_ip("link set p0 arp off");
	ip("neigh flush dev v0");
	WAIT_FOR(!us_mac(&s, "10.1.0.2", 0x02));
	CHECK_EQ(us_send(&s, "x", NULL, 0), 1);
	CHECK_EQ(us_recv(&s, buf, sizeof(buf)), -EHOSTUNREACH);
	peer_ip("link set p0 arp on");
	/* Refused for a second, then asked again. */
	WAIT_FOR(us_try(&s) == 1);
	CHECK_EQ(recv(peer, buf, sizeof(buf), 0), 1);
	us_close(&s);
	close(peer);
	teardown();
}

TEST(neighbour_has_another_mac)
{
	struct us s;
	int peer;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	peer_ip("link set p0 address 02:00:00:00:01:99");
	ip("neigh replace 10.1.0.2 lladdr 02:00:00:00:01:99 dev v0");
	WAIT_FOR(us_mac(&s, "10.1.0.2", 0x99));
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

/* To the kernel an entry that somebody says is in use (NTF_USE) is no longer permanent: it would ask the peer, and may hear nothing. */
TEST(neighbour_written_by_hand_stays_so)
{
	static const char *const local[] = { "10.1.0.1", "fd01::1" }, *const remote[] = { "10.1.0.2", "fd01::2" };
	char command[100];

	make_world();
	make_pair();
	for (int i = 0; i < 2; i++)
		ip("neigh replace %s lladdr 02:00:00:00:01:02 dev v0 nud permanent", remote[i]);
	start("xdp:device=v0");
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up);
	for (int i = 0; i < 2; i++) {
		int peer = peer_open(remote[i], 7000);
		struct us s;

		us_open(&s, local[i], 7001);
		ping_pong(&s, peer, remote[i], 7000);
		snprintf(command, sizeof(command), "timeout 20 ip neigh show %s dev v0 | grep -q PERMANENT", remote[i]);
		CHECK_EQ(system(command), 0);
		us_close(&s);
		close(peer);
	}
	teardown();
}

/* More changes than the kernel keeps for us, so that some are lost, the neighbour's among them. */
TEST(news_are_lost)
{
	int small = 1, peer;
	struct us s;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	CHECK_EQ(setsockopt(pv_host_fd(e), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	pv_lock_get(&e->lock);
	for (int i = 0; i < 20; i++)
		ip("route add 192.0.2.%d dev v0", i);
	peer_ip("link set p0 address 02:00:00:00:01:99");
	ip("neigh replace 10.1.0.2 lladdr 02:00:00:00:01:99 dev v0");
	ip("addr add 10.1.0.9/24 dev v0");
	pv_lock_put(&e->lock);
	WAIT_FOR(have_addr("10.1.0.9"));
	ping_pong(&s, peer, "10.1.0.2", 7000);
	CHECK(us_mac(&s, "10.1.0.2", 0x99));
	us_close(&s);
	close(peer);
	teardown();
}

static int64_t send_len(struct us *s, size_t len)
{
	static char text[4000];

	memset(text, 'x', sizeof(text));
	text[len] = '\0';
	int64_t n = us_send(s, text, "10.1.0.2", 7000);

	text[len] = 'x';
	return n;
}

TEST(mtu_is_followed)
{
	char buf[4000];
	struct us s;
	int peer;

	setup();
	peer_ip("link set p0 mtu 3000");
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	pv_lock_get(&e->lock);
	pv_udp_options(s.u)->pmtudisc4 = PV_PMTU_DO;
	pv_udp_options_changed(s.u);
	pv_lock_put(&e->lock);
	CHECK_EQ(send_len(&s, 1472), 1472);
	CHECK_EQ(send_len(&s, 1473), -EMSGSIZE);
	ip("link set v0 mtu 1300");
	WAIT_FOR(config()->mtu == 1300);
	CHECK_EQ(send_len(&s, 1273), -EMSGSIZE);
	CHECK_EQ(send_len(&s, 1272), 1272);
	ip("link set v0 mtu 1500");
	WAIT_FOR(config()->mtu == 1500);
	CHECK_EQ(send_len(&s, 1472), 1472);
	/* Larger than the ring's buffers: it is opened again, and the sockets keep their rules. */
	ip("link set v0 mtu 2800");
	WAIT_FOR(e->nports == 1 && config()->mtu == 2800);
	CHECK_EQ(rules(&s), 1);
	CHECK_EQ(send_len(&s, 2772), 2772);
	for (int i = 0; i < 4; i++)
		CHECK(recv(peer, buf, sizeof(buf), 0) > 1000);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

TEST(link_goes_down_and_up)
{
	struct us s;
	int peer;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	ip("link set v0 down");
	WAIT_FOR(!e->ports[0].ring->caps.link_up);
	CHECK(us_send(&s, "x", "10.1.0.2", 7000) < 0);
	ip("link set v0 up");
	WAIT_FOR(e->ports[0].ring->caps.link_up && us_path(&s, "10.1.0.2") == 0);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	/* The other end's: the carrier is lost. */
	peer_ip("link set p0 down");
	WAIT_FOR(!e->ports[0].ring->caps.link_up);
	CHECK_EQ(us_send(&s, "x", "10.1.0.2", 7000), -EXDEV);
	peer_ip("link set p0 up");
	WAIT_FOR(e->ports[0].ring->caps.link_up && us_path(&s, "10.1.0.2") == 0);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

TEST(renamed)
{
	struct us s;
	int peer;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ip("link set v0 down");
	ip("link set v0 name w0");
	ip("link set w0 up");
	WAIT_FOR(!strcmp(config()->name, "w0") && e->ports[0].ring->caps.link_up && us_path(&s, "10.1.0.2") == 0);
	CHECK(!strcmp(interface().name, "w0"));
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

TEST(deleted_and_made_again)
{
	struct us s, any;
	int peer;

	setup();
	for (int i = 0; i < 3; i++) {
		peer = peer_open("10.1.0.2", 7000);
		if (!i) {
			us_open(&s, "10.1.0.1", 7001);
			us_open(&any, "0.0.0.0", 7002);
		}
		ping_pong(&s, peer, "10.1.0.2", 7000);
		ping_pong(&any, peer, "10.1.0.2", 7000);
		close(peer);
		ip("link del v0");
		WAIT_FOR(e->nports == 0);
		CHECK_EQ(us_send(&s, "x", "10.1.0.2", 7000), -EXDEV);
		CHECK_EQ(rules(&s) + rules(&any), 0);
		make_pair();
		WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up && have_addr("10.1.0.1") && us_path(&s, "10.1.0.2") == 0);
	}
	us_close(&s);
	us_close(&any);
	teardown();
}

static int offload(const char *local, char *text, size_t size)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	pyvma_sock *s;

	inet_pton(AF_INET, local, &in.sin_addr);
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_DGRAM, 0, &s), 0);
	CHECK_EQ(pyvma_sock_bind(s, (struct sockaddr *)&in, sizeof(in)), 0);
	int state = pyvma_sock_offload(s, text, size);

	CHECK_EQ(pyvma_sock_close(s), 0);
	return state;
}

/* A thread may leave the engine's namespace: neither its sockets nor what it learns of interfaces mislead the engine. */
TEST(a_thread_in_another_namespace)
{
	char text[200];

	setup();
	peer_ip("addr add 10.1.0.1/32 dev lo"); /* an address that is ours here */
	CHECK_EQ(offload("10.1.0.1", text, sizeof(text)), PYVMA_OFFLOADED);
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	CHECK_EQ(offload("10.1.0.1", text, sizeof(text)), PYVMA_KERNEL);
	CHECK(strstr(text, "namespace"));
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	pv_lock_get(&e->lock);
	ip("link del v0");
	make_pair();
	while (system("timeout 20 ip link show v0 | grep -q LOWER_UP") != 0)
		;
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	pv_host_read(e);
	CHECK_EQ(e->nports, 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	pv_lock_put(&e->lock);
	WAIT_FOR(e->nports == 1 && have_addr("10.1.0.1"));
	CHECK_EQ(offload("10.1.0.1", text, sizeof(text)), PYVMA_OFFLOADED);
	teardown();
}

/* The peer's end of the pair goes with its namespace, and ours with it. */
TEST(peers_namespace_is_deleted)
{
	struct us s;
	int peer;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	close(peer);
	close(peer_ns);
	WAIT_FOR(e->nports == 0);
	CHECK_EQ(us_send(&s, "x", "10.1.0.2", 7000), -EXDEV);
	peer_ns = new_ns();
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	make_pair();
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up && us_path(&s, "10.1.0.2") == 0);
	peer = peer_open("10.1.0.2", 7000);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

TEST(interface_that_comes_later)
{
	struct pv_host_entry_info info;
	struct us s;
	int peer;

	make_world();
	start("xdp:device=v0");
	CHECK_EQ(e->nports, 0);
	pv_lock_get(&e->lock);
	CHECK(pv_host_entry(e, 0, &info) && !pv_host_entry(e, 1, &info));
	CHECK(!info.iface && !info.kernel_index && !strcmp(info.name, "v0") && strstr(info.reason, "no such interface"));
	pv_lock_put(&e->lock);
	make_pair();
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up && have_addr("10.1.0.1"));
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

/* More changes than the kernel keeps for us: some are lost, and the state is right all the same. */
TEST(changes_are_lost)
{
	struct us s;
	int peer, least = 0;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "0.0.0.0", 7001);
	pv_lock_get(&e->lock);
	CHECK_EQ(setsockopt(pv_host_fd(e), SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)), 0);
	for (int i = 0; i < 60; i++)
		ip("route add 192.0.2.%d via 10.1.0.2", i);
	ip("addr add 10.1.0.9/24 dev v0");
	ip("link set v0 mtu 1400");
	CHECK(!have_addr("10.1.0.9"));
	pv_lock_put(&e->lock);
	WAIT_FOR(have_addr("10.1.0.9") && e->nports && config()->mtu == 1400);
	CHECK_EQ(rules(&s), 2);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

/* Without the progress thread polls follow. */
TEST(no_progress_thread)
{
	struct us s;
	int peer;

	CHECK_EQ(pyvma_config_set("progress", "0"), 0);
	setup();
	CHECK(!e->have_thread);
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "0.0.0.0", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	ip("addr add 10.1.0.9/24 dev v0");
	WAIT_FOR(have_addr("10.1.0.9"));
	us_close(&s);
	close(peer);
	teardown();
	CHECK_EQ(pyvma_config_set("progress", "1"), 0);
}

/* Only what is for a socket of ours leaves the kernel: a stranger hears from it that nobody listens. */
TEST(connected_socket_takes_its_flow_alone)
{
	struct pv_endpoint to = at("10.1.0.2", 7000);
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(7001) };
	int peer, stranger;
	char buf[100];
	struct us s;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	stranger = peer_open("10.1.0.2", 7005);
	us_open(&s, "10.1.0.1", 7001);
	pv_lock_get(&e->lock);
	CHECK_EQ(pv_udp_connect(s.u, &to, pv_clock_now(&e->clock)), 0);
	pv_lock_put(&e->lock);
	CHECK_EQ(rules(&s), 1);
	ping_pong(&s, peer, NULL, 0);
	inet_pton(AF_INET, "10.1.0.1", &in.sin_addr);
	CHECK_EQ(connect(stranger, (struct sockaddr *)&in, sizeof(in)), 0);
	CHECK_EQ(send(stranger, "x", 1, 0), 1);
	CHECK(recv(stranger, buf, sizeof(buf), 0) < 0 && errno == ECONNREFUSED);
	pv_lock_get(&e->lock);
	CHECK_EQ(pv_udp_connect(s.u, NULL, 0), 0);
	pv_lock_put(&e->lock);
	CHECK_EQ(send(stranger, "x", 1, 0), 1);
	CHECK_EQ(us_recv(&s, buf, sizeof(buf)), 1);
	us_close(&s);
	close(peer);
	close(stranger);
	teardown();
}

TEST(group_of_a_socket)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(7001) };
	struct pv_addr group = addr_of("239.1.2.3");
	char buf[100];
	struct us s;
	int peer;

	setup();
	peer_ip("route add 239.0.0.0/8 dev p0");
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "0.0.0.0", 7001);
	inet_pton(AF_INET, "239.1.2.3", &in.sin_addr);
	pv_lock_get(&e->lock);
	CHECK_EQ(pv_udp_join(s.u, e->ports[0].index, &group, NULL, pv_clock_now(&e->clock)), 0);
	pv_lock_put(&e->lock);
	CHECK_EQ(rules(&s), 2);
	CHECK_EQ(sendto(peer, "group", 5, 0, (struct sockaddr *)&in, sizeof(in)), 5);
	CHECK_EQ(us_recv(&s, buf, sizeof(buf)), 5);
	pv_lock_get(&e->lock);
	CHECK_EQ(pv_udp_leave(s.u, e->ports[0].index, &group, NULL, pv_clock_now(&e->clock)), 0);
	pv_lock_put(&e->lock);
	CHECK_EQ(rules(&s), 1);
	us_close(&s);
	close(peer);
	teardown();
}

#define MANY 5000

/* Each has its rule; all follow an address; what one does is nothing to the others. */
TEST(five_thousand_sockets)
{
	static struct us s[MANY];
	int peer;

	setup();
	peer = peer_open("10.1.0.2", 7000);
	for (int i = 0; i < MANY; i++)
		us_open(&s[i], "0.0.0.0", (uint16_t)(10000 + i));
	for (int i = 0; i < MANY; i += 97)
		ping_pong(&s[i], peer, "10.1.0.2", 7000);
	ip("addr add 10.1.0.9/24 dev v0");
	WAIT_FOR(have_addr("10.1.0.9"));
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(rules(&s[i]), 2);
	for (int i = 0; i < MANY; i += 2)
		us_close(&s[i]);
	for (int i = 1; i < MANY; i += 194)
		ping_pong(&s[i], peer, "10.1.0.2", 7000);
	ip("link del v0");
	WAIT_FOR(e->nports == 0);
	make_pair();
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up && have_addr("10.1.0.1") && us_path(&s[1], "10.1.0.2") == 0);
	close(peer);
	peer = peer_open("10.1.0.2", 7000);
	ping_pong(&s[MANY - 1], peer, "10.1.0.2", 7000);
	for (int i = 1; i < MANY; i += 2)
		us_close(&s[i]);
	close(peer);
	teardown();
}

/* A process that comes second has kernel sockets there, and says why; or, in strict mode, does not start. */
static void second_process(bool strict)
{
	struct pv_host_entry_info info;
	struct pv_addr a = addr_of("10.1.0.1");

	CHECK_EQ(pyvma_config_set("strict", strict ? "1" : "0"), 0);
	CHECK_EQ(pyvma_config_set("interfaces", "xdp:device=v0"), 0);
	CHECK_EQ(pyvma_config_set("log_level", "none"), 0);
	if (strict) {
		CHECK_EQ(pyvma_start(), -EBUSY);
		CHECK(strstr(pyvma_last_error(), "v0"));
		return;
	}
	CHECK_EQ(pyvma_start(), 0);
	CHECK(pv_host_entry(e, 0, &info) && !info.iface && info.kernel_index && info.reason);
	CHECK(pv_host_reason(e, &a) == info.reason && pv_host_reason_of(e, info.kernel_index) == info.reason);
	CHECK(strstr(info.reason, "taken") || strstr(info.reason, "XDP program"));
	pyvma_stop();
}

TEST(second_process_on_the_interface)
{
	int go[2], status;
	pid_t child;
	struct us s;
	char byte;
	int peer;

	make_world();
	make_pair();
	CHECK_EQ(pipe(go), 0);
	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK_EQ(read(go[0], &byte, 1), 1);
		second_process(false);
		second_process(true);
		_exit(0);
	}
	start("xdp:device=v0");
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up);
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	CHECK_EQ(write(go[1], "x", 1), 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	close(go[0]);
	close(go[1]);
	teardown();
}

static bool reason_has(const char *text)
{
	struct pv_host_entry_info info;

	return pv_host_entry(e, 0, &info) && !info.iface && info.reason && strstr(info.reason, text);
}

/* What comes by an interface of a VRF is for sockets of the VRF, and its addresses are of another table. */
TEST(an_interface_joins_and_leaves_a_vrf)
{
	char text[128];
	struct us s;
	int peer;

	make_world();
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	if (system("timeout 20 ip link add red type vrf table 10 2>/dev/null"))
		test_skip("this kernel has no VRFs");
	ip("link set red up");
	make_pair();
	start("xdp:device=v0");
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up);
	peer = peer_open("10.1.0.2", 7000);
	us_open(&s, "10.1.0.1", 7001);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	ip("link set v0 master red");
	WAIT_FOR(e->nports == 0 && reason_has("VRF"));
	CHECK_EQ(rules(&s), 0);
	CHECK_EQ(offload("0.0.0.0", text, sizeof(text)), PYVMA_KERNEL);
	ip("link set v0 nomaster");
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up && have_addr("10.1.0.1") && us_path(&s, "10.1.0.2") == 0);
	ping_pong(&s, peer, "10.1.0.2", 7000);
	us_close(&s);
	close(peer);
	teardown();
}

/* Somebody else's ring on the interface. */
struct other_ring {
	struct pv_pool *pool;
	struct pv_ring *ring;
};

static void other_open(struct other_ring *o, const char *ifname)
{
	struct pv_xdp_cfg cfg = { .ifname = ifname, .queues = 1 };
	struct pv_pool_cfg pool = { 0 };
	char err[256] = "";

	CHECK_EQ(pv_xdp_pool_cfg(&cfg, &pool, err, sizeof(err)), 0);
	pool.count = pool.max = 2048;
	CHECK_EQ(pv_pool_open(&o->pool, pv_mem_system(false), &pool), 0);
	CHECK_EQ(pv_xdp_open(&o->ring, pv_mem_system(false), o->pool, &cfg, err, sizeof(err)), 0);
}

static void other_close(struct other_ring *o)
{
	pv_ring_close(o->ring);
	CHECK_EQ(pv_pool_close(o->pool), 0);
}

static void name(const char *from, const char *to)
{
	ip("link set %s down", from);
	ip("link set %s name %s", from, to);
	ip("link set %s up", to);
}

static void start_while_taken(struct other_ring *other)
{
	make_world();
	make_pair();
	name("v0", "w0");
	start("xdp:device=v0");
	other_open(other, "w0");
	name("w0", "v0");
}

/* An interface that comes with its queue taken is asked for again for a while, and not with the lock held. */
TEST(a_queue_that_is_free_later)
{
	struct other_ring other;
	bool in_time = false;

	/* A slow host may need more attempts to be quicker than that while. */
	for (int i = 0; i < 20 && !in_time; i++) {
		start_while_taken(&other);
		WAIT_FOR(reason_has("about to be opened") || reason_has("taken") || reason_has("XDP program"));
		other_close(&other);
		WAIT_FOR(e->nports == 1 || !reason_has("about to be opened"));
		pv_lock_get(&e->lock);
		in_time = e->nports == 1;
		pv_lock_put(&e->lock);
		teardown();
	}
	CHECK(in_time);
}

/* Then it has its next chance when the link changes. */
TEST(a_queue_that_stays_taken)
{
	struct other_ring other;

	start_while_taken(&other);
	WAIT_FOR(reason_has("taken") || reason_has("XDP program"));
	WAIT_FOR(pv_host_deadline(e) == PV_NEVER);
	other_close(&other);
	ip("link set v0 down");
	ip("link set v0 up");
	WAIT_FOR(e->nports == 1);
	teardown();
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

TEST(nothing_is_left_behind)
{
	int before = 0;

	for (int i = 0; i < 4; i++) {
		setup();
		ip("link del v0");
		WAIT_FOR(e->nports == 0);
		make_pair();
		WAIT_FOR(e->nports == 1);
		teardown();
		/* The first round opened what stays: the clock's, the thread's. */
		if (i)
			CHECK_EQ(open_fds(), before);
		before = open_fds();
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
