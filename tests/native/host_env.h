/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces that the kernel owns: the engine on one end of a veth pair, in a namespace of the test's own, the kernel on the other end
 * in a second one. The stack's UDP sockets are used as the socket layer uses them, without the kernel sockets beneath.
 */
#ifndef HOST_ENV_H
#define HOST_ENV_H

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

#include "netns.h"
#include "pyvma.h"
#include "rt/host.h"
#include "test.h"

#define PATIENCE_S 30.0

static struct pv_engine *const e = &pv_engine;

static inline double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- the world ----------------------------------------------------------------------------------------------------------- */

static inline void ip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void ip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ip_command(own_ns, fmt, ap);
	va_end(ap);
}

static inline void peer_ip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void peer_ip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ip_command(peer_ns, fmt, ap);
	va_end(ap);
}

static inline void make_pair(void)
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
static inline void make_world(void)
{
	if (geteuid() != 0)
		test_skip("needs root for network namespaces");
	peer_ns = new_ns();
	own_ns = new_ns();
	ip("link set lo up");
	peer_ip("link set lo up");
}

static inline void start(const char *interfaces)
{
	CHECK_EQ(pyvma_config_set("interfaces", interfaces), 0);
	CHECK_EQ(pyvma_config_set("log_level", "error"), 0);
	int rc = pyvma_start();

	if (rc)
		fprintf(stderr, "%s\n", pyvma_last_error());
	CHECK_EQ(rc, 0);
}

static inline void setup(void)
{
	make_world();
	make_pair();
	start("xdp:device=v0");
	WAIT_FOR(e->nports == 1 && e->ports[0].ring->caps.link_up);
}

/* Nothing of ours is left in the kernel. */
static inline void teardown(void)
{
	pyvma_stop();
	CHECK(!e->host && !e->nports && !e->nlimbo);
	CHECK_EQ(system("! timeout 20 ip link show | grep -q xdp"), 0);
	close(own_ns);
	close(peer_ns);
}

/* ---- sockets ------------------------------------------------------------------------------------------------------------- */

static inline struct pv_endpoint at(const char *text, uint16_t port)
{
	return (struct pv_endpoint){ .addr = addr_of(text), .port = port };
}

struct us {
	struct pv_watch watch;
	struct pv_udp *u;
};

static inline void us_open(struct us *s, const char *local, uint16_t port)
{
	struct pv_endpoint ep = at(local, port);

	memset(s, 0, sizeof(*s));
	pv_list_init(&s->watch.waiters);
	pv_lock_get(&e->lock);
	CHECK_EQ(pv_udp_open(e->udp, pv_addr_is4(&ep.addr) ? PV_AF_INET : PV_AF_INET6, &s->watch, &s->u), 0);
	CHECK_EQ(pv_udp_bind(s->u, &ep), 0);
	pv_lock_put(&e->lock);
}

static inline void us_close(struct us *s)
{
	pv_lock_get(&e->lock);
	pv_udp_close(s->u);
	pv_lock_put(&e->lock);
}

static inline int64_t us_send(struct us *s, const char *text, const char *to, uint16_t port)
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
static inline int64_t us_recv(struct us *s, char *buf, size_t size)
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
static inline int peer_open(const char *local, uint16_t port)
{
	struct pv_addr a = addr_of(local);
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
static inline void echo(int fd, const char *text)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char buf[2000];
	ssize_t n = recvfrom(fd, buf, sizeof(buf) - 1, 0, (struct sockaddr *)&from, &len);

	CHECK_EQ(n, (ssize_t)strlen(text));
	CHECK(!memcmp(buf, text, (size_t)n));
	CHECK_EQ(sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from, len), n);
}

static inline void ping_pong(struct us *s, int peer, const char *to, uint16_t port)
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
static inline int us_lookup(struct us *s, const char *to, struct pv_path *out)
{
	struct pv_endpoint local;
	struct pv_path_query q = { .dst = addr_of(to) };

	pv_udp_local(s->u, &local);
	q.src = local.addr;
	return pv_net_path(e->net, &q, pv_clock_now(&e->clock), out);
}

static inline int us_path(struct us *s, const char *to)
{
	struct pv_path path;

	return us_lookup(s, to, &path);
}

static inline bool us_source(struct us *s, const char *to, const char *want)
{
	struct pv_addr a = addr_of(want);
	struct pv_path path;

	return us_lookup(s, to, &path) == 0 && pv_addr_eq(&path.src, &a);
}

static inline bool us_mac(struct us *s, const char *to, uint8_t last)
{
	struct pv_path path;

	return us_lookup(s, to, &path) == 0 && path.l2_ready && path.l2[5] == last;
}

/* With the lock: sends one byte to the peer that the socket is connected to. */
static inline int64_t us_try(struct us *s)
{
	struct pv_iov iov = { "x", 1 };
	int64_t n =
	    pv_udp_send(s->u, &(struct pv_udp_send){ .iov = &iov, .iovcnt = 1, .ttl = -1, .tos = -1 }, pv_clock_now(&e->clock));

	pv_net_kick(e->net);
	return n;
}

static inline uint32_t rules(struct us *s)
{
	int err;
	uint32_t n;

	pv_lock_get(&e->lock);
	n = pv_udp_steered(s->u, &err);
	pv_lock_put(&e->lock);
	CHECK_EQ(err, 0);
	return n;
}

static inline struct pyvma_interface interface(void)
{
	struct pyvma_interface ifc;

	CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
	return ifc;
}

/* With the lock. */
static inline const struct pv_iface_cfg *config(void)
{
	CHECK(e->nports > 0);
	return pv_iface_config(pv_net_iface(e->net, e->ports[0].index));
}

static inline bool have_addr(const char *text)
{
	struct pv_addr a = addr_of(text);

	return pv_host_owner(e, &a) != 0;
}

#endif
