/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces that the kernel owns: the engine on one end of a veth pair, in a namespace of the test's own, the kernel on the other end
 * in a second one. The stack's UDP sockets are used as the socket layer uses them, without the kernel sockets beneath.
 */
#include "test.h"

#if !defined(PV_HAVE_NETLINK) || !defined(PV_HAVE_XDP)
int main(void)
{
	puts("skip: built without libmnl or libbpf");
	return 77;
}
#else
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/host.h"

#define PATIENCE_S 30.0

static struct pv_engine *const e = &pv_engine;
static int own_ns, peer_ns;

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- the world ----------------------------------------------------------------------------------------------------------- */

static void ip_in(int ns, const char *fmt, va_list ap)
{
	char command[400] = "timeout 20 ip ";

	vsnprintf(command + strlen(command), sizeof(command) - strlen(command), fmt, ap);
	CHECK_EQ(setns(ns, CLONE_NEWNET), 0);
	CHECK_EQ(system(command), 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
}

static void ip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void ip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ip_in(own_ns, fmt, ap);
	va_end(ap);
}

static void peer_ip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void peer_ip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ip_in(peer_ns, fmt, ap);
	va_end(ap);
}

static int new_ns(void)
{
	int fd;

	CHECK_EQ(unshare(CLONE_NEWNET), 0);
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static void make_pair(void)
{
	ip("link add v0 address 02:00:00:00:01:01 type veth peer name p0 address 02:00:00:00:01:02 netns /proc/%d/fd/%d", getpid(),
	   peer_ns);
	ip("addr add 10.1.0.1/24 dev v0");
	ip("-6 addr add fd01::1/64 dev v0 nodad");
	ip("link set v0 up");
	peer_ip("addr add 10.1.0.2/24 dev p0");
	peer_ip("-6 addr add fd01::2/64 dev p0 nodad");
	peer_ip("link set p0 up");
}

/* True once the probe says so under the engine's lock; the stack runs meanwhile. */
#define WAIT_FOR(probe)                                                                                                            \
	do {                                                                                                                       \
		double wait_until = seconds() + PATIENCE_S;                                                                        \
		bool wait_done = false;                                                                                            \
                                                                                                                                   \
		while (!wait_done) {                                                                                               \
			if (seconds() > wait_until)                                                                                \
				fprintf(stderr, "waited in vain for %s\n", #probe);                                                \
			CHECK(seconds() <= wait_until);                                                                            \
			pv_lock_get(&e->lock);                                                                                     \
			pv_engine_poll(e, pv_clock_now(&e->clock));                                                                \
			wait_done = (probe);                                                                                       \
			pv_lock_put(&e->lock);                                                                                     \
		}                                                                                                                  \
	} while (0)

/* Every test has namespaces of its own, without an interface of the other tests'. */
static void make_world(void)
{
	if (geteuid() != 0)
		test_skip("needs root for network namespaces");
	peer_ns = new_ns();
	own_ns = new_ns();
	ip("link set lo up");
	peer_ip("link set lo up");
}

static void start(const char *interfaces)
{
	CHECK_EQ(pyvma_config_set("interfaces", interfaces), 0);
	CHECK_EQ(pyvma_config_set("log_level", "error"), 0);
	int rc = pyvma_start();

	if (rc)
		fprintf(stderr, "%s\n", pyvma_last_error());
	CHECK_EQ(rc, 0);
}

static void setup(void)
{
	make_world();
	make_pair();
	start("xdp:device=v0");
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up);
}

/* Nothing of ours is left in the kernel. */
static void teardown(void)
{
	pyvma_stop();
	CHECK(!e->host && !e->nports && !e->nlimbo);
	CHECK_EQ(system("! timeout 20 ip link show | grep -q xdp"), 0);
	close(own_ns);
	close(peer_ns);
}

/* ---- sockets ------------------------------------------------------------------------------------------------------------- */

static struct pv_addr addr(const char *text)
{
	uint8_t b[16];

	if (inet_pton(AF_INET, text, b) == 1)
		return pv_addr_from4(b);
	CHECK_EQ(inet_pton(AF_INET6, text, b), 1);
	return pv_addr_from6(b);
}

static struct pv_endpoint at(const char *text, uint16_t port)
{
	return (struct pv_endpoint){ .addr = addr(text), .port = port };
}

struct us {
	struct pv_watch watch;
	struct pv_udp *u;
};

static void us_open(struct us *s, const char *local, uint16_t port)
{
	struct pv_endpoint ep = at(local, port);

	memset(s, 0, sizeof(*s));
	pv_list_init(&s->watch.waiters);
	pv_lock_get(&e->lock);
	CHECK_EQ(pv_udp_open(e->udp, pv_addr_is4(&ep.addr) ? PV_AF_INET : PV_AF_INET6, &s->watch, &s->u), 0);
	CHECK_EQ(pv_udp_bind(s->u, &ep), 0);
	pv_lock_put(&e->lock);
}

static void us_close(struct us *s)
{
	pv_lock_get(&e->lock);
	pv_udp_close(s->u);
	pv_lock_put(&e->lock);
}

static int64_t us_send(struct us *s, const char *text, const char *to, uint16_t port)
{
	struct pv_iov iov = { text, strlen(text) };
	struct pv_endpoint ep = to ? at(to, port) : (struct pv_endpoint){ .port = 0 };
	struct pv_udp_send msg = { .iov = &iov, .iovcnt = 1, .to = to ? &ep : NULL, .ttl = -1, .tos = -1 };
	int64_t n;

	pv_lock_get(&e->lock);
	n = pv_udp_send(s->u, &msg, pv_clock_now(&e->clock));
	pv_net_kick(e->net);
	pv_lock_put(&e->lock);
	return n;
}

/* Bytes of the next datagram, or the socket's error; waits, running the stack. */
static int64_t us_recv(struct us *s, char *buf, size_t size)
{
	double until = seconds() + PATIENCE_S;
	int64_t n = -EAGAIN;

	do {
		struct pv_iov iov = { buf, size - 1 };
		struct pv_udp_recv msg = { .iov = &iov, .iovcnt = 1 };

		pv_lock_get(&e->lock);
		pv_engine_poll(e, pv_clock_now(&e->clock));
		n = pv_udp_recv(s->u, &msg);
		pv_lock_put(&e->lock);
	} while (n == -EAGAIN && seconds() < until);
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

/* A kernel socket of the other namespace. */
static int peer_open(const char *local, uint16_t port)
{
	struct pv_addr a = addr(local);
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct timeval limit = { .tv_sec = (int)PATIENCE_S };
	bool four = pv_addr_is4(&a);
	int fd;

	memcpy(&in.sin_addr, &a.w[3], 4);
	memcpy(&in6.sin6_addr, a.b, 16);
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	fd = socket(four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK_EQ(bind(fd, four ? (struct sockaddr *)&in : (struct sockaddr *)&in6, four ? sizeof(in) : sizeof(in6)), 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	return fd;
}

/* The peer answers what it gets. */
static void echo(int fd, const char *text)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char buf[2000];
	ssize_t n = recvfrom(fd, buf, sizeof(buf) - 1, 0, (struct sockaddr *)&from, &len);

	CHECK_EQ(n, (ssize_t)strlen(text));
	CHECK(!memcmp(buf, text, (size_t)n));
	CHECK_EQ(sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from, len), n);
}

static void ping_pong(struct us *s, int peer, const char *to, uint16_t port)
{
	static unsigned int number;
	char text[40], buf[2000];

	snprintf(text, sizeof(text), "ping %u", number++);
	CHECK_EQ(us_send(s, text, to, port), (int64_t)strlen(text));
	echo(peer, text);
	CHECK_EQ(us_recv(s, buf, sizeof(buf)), (int64_t)strlen(text));
	CHECK(!strcmp(buf, text));
}

/* With the lock: what a lookup says now. */
static int us_lookup(struct us *s, const char *to, struct pv_path *out)
{
	struct pv_endpoint local;
	struct pv_path_query q = { .dst = addr(to) };

	pv_udp_local(s->u, &local);
	q.src = local.addr;
	return pv_net_path(e->net, &q, pv_clock_now(&e->clock), out);
}

static int us_path(struct us *s, const char *to)
{
	struct pv_path path;

	return us_lookup(s, to, &path);
}

static bool us_source(struct us *s, const char *to, const char *want)
{
	struct pv_addr a = addr(want);
	struct pv_path path;

	return us_lookup(s, to, &path) == 0 && pv_addr_eq(&path.src, &a);
}

static bool us_mac(struct us *s, const char *to, uint8_t last)
{
	struct pv_path path;

	return us_lookup(s, to, &path) == 0 && path.l2_ready && path.l2[5] == last;
}

/* With the lock: sends one byte to the peer that the socket is connected to. */
static int64_t us_try(struct us *s)
{
	struct pv_iov iov = { "x", 1 };
	int64_t n =
	    pv_udp_send(s->u, &(struct pv_udp_send){ .iov = &iov, .iovcnt = 1, .ttl = -1, .tos = -1 }, pv_clock_now(&e->clock));

	pv_net_kick(e->net);
	return n;
}

static uint32_t rules(struct us *s)
{
	int err;
	uint32_t n = pv_udp_steered(s->u, &err);

	CHECK_EQ(err, 0);
	return n;
}

static struct pyvma_interface interface(void)
{
	struct pyvma_interface ifc;

	CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
	return ifc;
}

/* With the lock. */
static const struct pv_iface_cfg *config(void)
{
	CHECK(e->nports > 0);
	return pv_iface_config(pv_net_iface(e->net, e->ports[0].index));
}

static bool have_addr(const char *text)
{
	struct pv_addr a = addr(text);

	return pv_host_owner(e, &a) != 0;
}

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
	pv_udp_options(s.u)->pmtudisc4 = PV_PMTU_DO;
	pv_udp_options_changed(s.u);
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
	struct pv_addr group = addr("239.1.2.3");
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

/* A process that comes second has kernel sockets there, and says why; or, in strict mode, does not start. */
static void second_process(bool strict)
{
	struct pv_host_entry_info info;
	struct pv_addr a = addr("10.1.0.1");

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
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK_EQ(read(go[0], &byte, 1), 1);
		second_process(false);
		second_process(true);
		exit(0);
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
