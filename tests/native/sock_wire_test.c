/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes on one fabric: this one on port 0, a peer (this program run again as `--peer`) on port 5 that echoes. */
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <signal.h>
#include <sys/epoll.h>

#include "rt/engine.h"
#include "sock_env.h"

#define PEER4 "10.9.0.5"
#define PEER6 "fd09::5"
#define ECHO_PORT 7777
#define GROUP4 "239.9.0.9"
#define GROUP6 "ff15::9"

static char self[512];

/* ---- the peer ---------------------------------------------------------------------------------------------------------- */

static void join_groups(struct sk s, int family)
{
	if (family == AF_INET) {
		struct ip_mreqn mreq = { 0 };

		inet_pton(AF_INET, GROUP4, &mreq.imr_multiaddr);
		inet_pton(AF_INET, PEER4, &mreq.imr_address);
		CHECK_EQ(sk_set(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mreq, sizeof(mreq)), 0);
	} else {
		struct ipv6_mreq mreq = { 0 };
		struct pyvma_interface ifc;

		CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
		inet_pton(AF_INET6, GROUP6, &mreq.ipv6mr_multiaddr);
		mreq.ipv6mr_interface = ifc.index;
		CHECK_EQ(sk_set(s, IPPROTO_IPV6, IPV6_JOIN_GROUP, &mreq, sizeof(mreq)), 0);
	}
}

static void *echo(void *arg)
{
	struct sk s = *(struct sk *)arg;
	static _Thread_local char buf[70000];

	for (;;) {
		struct any_addr from;
		int64_t n = sk_recvfrom(s, buf, sizeof(buf), 0, &from);

		CHECK(n >= 0);
		CHECK_EQ(sk_sendto(s, buf, (size_t)n, 0, from), n);
	}
	return NULL;
}

/* Takes what streams bring, one after the other; an x behind which nothing came, be it read with what was before it, goes back. */
static void *sink(void *arg)
{
	struct sk l = *(struct sk *)arg;
	static char buf[70000];
	pyvma_sock *s;
	int64_t n;

	while (!pyvma_sock_accept(l.h, NULL, NULL, SOCK_CLOEXEC, -1, &s)) {
		while ((n = pyvma_sock_recv(s, buf, sizeof(buf), 0, -1)) > 0)
			if (buf[n - 1] == 'x')
				CHECK_EQ(pyvma_sock_send(s, "x", 1, 0, -1), 1);
		pyvma_sock_close(s);
	}
	return NULL;
}

static pyvma_sock *stream_listener(const char *addr)
{
	struct any_addr a = ip(addr, ECHO_PORT);
	pyvma_sock *l;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &l), 0);
	CHECK_EQ(pyvma_sock_bind(l, (struct sockaddr *)&a.ss, a.len), 0);
	CHECK_EQ(pyvma_sock_listen(l, 8), 0);
	return l;
}

static int peer(const char *fabric)
{
	char text[256];
	struct sk s4, s6, l;
	pthread_t t;
	char byte;

	snprintf(env_fabric, sizeof(env_fabric), "%s", fabric);
	snprintf(text, sizeof(text), "softnic:fabric=%s,port=5,addr=" PEER4 "/24,addr=" PEER6 "/64,name=peer", fabric);
	CHECK_EQ(pyvma_config_set("softnic_lib", SOFTNIC_LIB), 0);
	CHECK_EQ(pyvma_config_set("interfaces", text), 0);
	CHECK_EQ(pyvma_config_set("rx_poll", "50"), 0);
	s4 = sk_open(&our_side, AF_INET);
	s6 = sk_open(&our_side, AF_INET6);
	join_groups(s4, AF_INET);
	join_groups(s6, AF_INET6);
	CHECK_EQ(sk_set_int(s6, IPPROTO_IPV6, IPV6_V6ONLY, 1), 0);
	CHECK_EQ(sk_bind(s4, ip("0.0.0.0", ECHO_PORT)), 0);
	CHECK_EQ(sk_bind(s6, ip("::", ECHO_PORT)), 0);
	CHECK_EQ(pthread_create(&t, NULL, echo, &s4), 0);
	CHECK_EQ(pthread_create(&t, NULL, echo, &s6), 0);
	l.h = stream_listener(PEER4);
	CHECK_EQ(pthread_create(&t, NULL, sink, &l), 0);
	CHECK_EQ(write(1, "r", 1), 1);
	/* Until whoever started us ends. */
	while (read(0, &byte, 1) > 0)
		;
	_exit(0);
}

struct remote {
	pid_t pid;
	int in, out;
};

static struct remote peer_start(void)
{
	struct remote r;
	int to[2], from[2];
	char byte = 0;

	env_start();
	CHECK(pipe(to) == 0 && pipe(from) == 0);
	r.pid = fork();
	CHECK(r.pid >= 0);
	if (r.pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		close(from[0]);
		execl(self, self, "--peer", env_fabric, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	r.in = to[1];
	r.out = from[0];
	CHECK_EQ(read(r.out, &byte, 1), 1);
	CHECK_EQ(byte, 'r');
	return r;
}

static void peer_end(struct remote r)
{
	int status;

	close(r.in);
	close(r.out);
	CHECK(waitpid(r.pid, &status, 0) == r.pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- cases ------------------------------------------------------------------------------------------------------------- */

static void echo_sizes(int family)
{
	static char out[65507], in[70000];
	static const size_t sizes[] = { 0, 1, 64, 1452, 1453, 1472, 1473, 4000, 20000, 65507 };
	struct any_addr aa, from, to = ip(family == AF_INET ? PEER4 : PEER6, ECHO_PORT);
	struct sk s = sk_bound(&our_side, family, &aa);

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 13 + (i >> 7));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CHECK_EQ(sk_sendto(s, out, sizes[i], 0, to), (int64_t)sizes[i]);
		from.len = sizeof(from.ss);
		memset(in, 0, sizeof(in));
		CHECK_EQ(pyvma_sock_recvfrom(s.h, in, sizeof(in), 0, (struct sockaddr *)&from.ss, &from.len, LONG_NS),
			 (int64_t)sizes[i]);
		CHECK(!memcmp(in, out, sizes[i]));
		CHECK_EQ(addr_port(&from), ECHO_PORT);
		CHECK_EQ(from.len, to.len);
	}
	sk_close(s);
}

TEST(every_size)
{
	struct remote r = peer_start();
	static const int64_t spins[] = { 0, 100000, PV_NEVER };

	for (int i = 0; i < 3; i++) {
		pv_engine.spin_ns = spins[i];
		echo_sizes(AF_INET);
		echo_sizes(AF_INET6);
	}
	peer_end(r);
}

TEST(connected_ping_pong)
{
	struct remote r = peer_start();
	static const int64_t spins[] = { 0, 20000, PV_NEVER };

	for (int i = 0; i < 3; i++) {
		struct sk s = sk_open(&our_side, AF_INET);
		uint32_t got;

		pv_engine.spin_ns = spins[i];
		CHECK_EQ(sk_connect(s, ip(PEER4, ECHO_PORT)), 0);
		for (uint32_t k = 0; k < 3000; k++) {
			CHECK_EQ(sk_send(s, &k, sizeof(k), 0), sizeof(k));
			CHECK_EQ(pyvma_sock_recv(s.h, &got, sizeof(got), 0, LONG_NS), sizeof(got));
			CHECK_EQ(got, k);
		}
		sk_close(s);
	}
	peer_end(r);
}

/* As asyncio does: the fd in epoll, calls that do not wait. */
TEST(ping_pong_over_an_exported_fd)
{
	struct remote r = peer_start();
	struct sk s = sk_open(&our_side, AF_INET);
	uint32_t got;

	CHECK_EQ(sk_connect(s, ip(PEER4, ECHO_PORT)), 0);
	CHECK_EQ(sk_nonblock(s, 1), 0);
	int fd = pyvma_sock_fileno(s.h);

	for (uint32_t k = 0; k < 1000; k++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		CHECK_EQ(sk_send(s, &k, sizeof(k), 0), sizeof(k));
		while (sk_recv(s, &got, sizeof(got), 0) != sizeof(got))
			CHECK_EQ(poll(&p, 1, 30000), 1);
		CHECK_EQ(got, k);
	}
	sk_close(s);
	peer_end(r);
}

TEST(bursts)
{
	struct remote r = peer_start();
	struct sk s = sk_open(&our_side, AF_INET);
	enum { N = 100 };
	static char bufs[N][32];
	struct pyvma_msg m[N];

	CHECK_EQ(sk_connect(s, ip(PEER4, ECHO_PORT)), 0);
	/* Before the peer's MAC is known only so many datagrams may wait for it. */
	CHECK_EQ(sk_send(s, "first", 5, 0), 5);
	CHECK_EQ(pyvma_sock_recv(s.h, bufs[0], 32, 0, LONG_NS), 5);
	for (int round = 0; round < 50; round++) {
		int got = 0;

		for (int i = 0; i < N; i++) {
			m[i] = (struct pyvma_msg){ .base = bufs[i], .len = 16 };
			snprintf(bufs[i], sizeof(bufs[i]), "%d/%d", round, i);
		}
		CHECK_EQ(pyvma_sock_send_batch(s.h, m, N, 0, -1), N);
		while (got < N) {
			int n = pyvma_sock_recv_lent(s.h, m, N, 0, LONG_NS);
			char want[32];

			CHECK(n > 0);
			for (int i = 0; i < n; i++, got++) {
				snprintf(want, sizeof(want), "%d/%d", round, got);
				CHECK(!strcmp(m[i].base, want));
			}
			pyvma_batch_release(m, (uint32_t)n);
		}
	}
	sk_close(s);
	peer_end(r);
}

TEST(refused_by_the_other_host)
{
	struct remote r = peer_start();
	char b;

	for (int f = 0; f < 2; f++) {
		struct sk s = sk_open(&our_side, f ? AF_INET6 : AF_INET);

		CHECK_EQ(sk_connect(s, ip(f ? PEER6 : PEER4, 4)), 0);
		CHECK_EQ(sk_send(s, "x", 1, 0), 1);
		CHECK_EQ(pyvma_sock_recv(s.h, &b, 1, 0, LONG_NS), -ECONNREFUSED);
		sk_close(s);
	}
	peer_end(r);
}

TEST(nobody_there)
{
	struct sk s = sk_open(&our_side, AF_INET);
	char b;

	/* Linux tells it only to those who ask. */
	CHECK_EQ(sk_set_int(s, IPPROTO_IP, IP_RECVERR, 1), 0);
	CHECK_EQ(sk_connect(s, ip("10.9.0.99", 4)), 0);
	CHECK_EQ(sk_send(s, "x", 1, 0), 1);
	/* Address resolution gives up after some seconds, with nobody but the sleeper to notice. */
	CHECK_EQ(pyvma_sock_recv(s.h, &b, 1, 0, LONG_NS), -EHOSTUNREACH);
	sk_close(s);
}

TEST(groups)
{
	struct remote r = peer_start();
	char buf[16];

	for (int f = 0; f < 2; f++) {
		struct sk s = sk_open(&our_side, f ? AF_INET6 : AF_INET);
		struct pyvma_interface ifc;
		struct any_addr from, want = ip(f ? PEER6 : PEER4, ECHO_PORT);

		CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
		if (f) {
			CHECK_EQ(sk_set_int(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)ifc.index), 0);
		} else {
			struct ip_mreqn mreq = { .imr_ifindex = (int)ifc.index };

			CHECK_EQ(sk_set(s, IPPROTO_IP, IP_MULTICAST_IF, &mreq, sizeof(mreq)), 0);
		}
		CHECK_EQ(sk_sendto(s, "to the group", 12, 0, ip(f ? GROUP6 : GROUP4, ECHO_PORT)), 12);
		from.len = sizeof(from.ss);
		CHECK_EQ(pyvma_sock_recvfrom(s.h, buf, sizeof(buf), 0, (struct sockaddr *)&from.ss, &from.len, LONG_NS), 12);
		CHECK(from.len == want.len && !memcmp(&from.ss, &want.ss, want.len));
		sk_close(s);
	}
	peer_end(r);
}

TEST(broadcast)
{
	struct remote r = peer_start();
	struct sk s = sk_open(&our_side, AF_INET);
	char buf[16];

	CHECK_EQ(sk_bind(s, ip("10.9.0.1", 0)), 0);
	CHECK_EQ(sk_sendto(s, "all", 3, 0, ip("10.9.0.255", ECHO_PORT)), -EACCES);
	CHECK_EQ(sk_set_int(s, SOL_SOCKET, SO_BROADCAST, 1), 0);
	CHECK_EQ(sk_sendto(s, "all", 3, 0, ip("10.9.0.255", ECHO_PORT)), 3);
	CHECK_EQ(pyvma_sock_recv(s.h, buf, sizeof(buf), 0, LONG_NS), 3);
	sk_close(s);
	peer_end(r);
}

/* The peer dies while we wait for it: the wait ends by time, and its successor answers. */
TEST(the_peer_is_killed)
{
	struct remote r = peer_start();
	struct sk s = sk_open(&our_side, AF_INET);
	char b;
	int status;

	CHECK_EQ(sk_connect(s, ip(PEER4, ECHO_PORT)), 0);
	CHECK_EQ(sk_send(s, "x", 1, 0), 1);
	CHECK_EQ(pyvma_sock_recv(s.h, &b, 1, 0, LONG_NS), 1);
	CHECK_EQ(kill(r.pid, SIGKILL), 0);
	CHECK(waitpid(r.pid, &status, 0) == r.pid);
	close(r.in);
	close(r.out);
	CHECK_EQ(sk_send(s, "x", 1, 0), 1);
	CHECK_EQ(pyvma_sock_recv(s.h, &b, 1, 0, 50 * NS_MS), -EAGAIN);
	r = peer_start();
	CHECK_EQ(sk_send(s, "x", 1, 0), 1);
	CHECK_EQ(pyvma_sock_recv(s.h, &b, 1, 0, LONG_NS), 1);
	sk_close(s);
	peer_end(r);
}

/* ---- a stream whose peer is away ---------------------------------------------------------------------------------------- */

static pyvma_sock *connected(const char *addr)
{
	struct any_addr a = ip(addr, ECHO_PORT);
	pyvma_sock *s;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s), 0);
	CHECK_EQ(pyvma_sock_connect(s, (struct sockaddr *)&a.ss, a.len, LONG_NS), 0);
	return s;
}

static void ping(pyvma_sock *to, pyvma_sock *from)
{
	char byte;

	CHECK_EQ(pyvma_sock_send(to, "x", 1, 0, 0), 1);
	CHECK_EQ(pyvma_sock_recv(from, &byte, 1, 0, LONG_NS), 1);
}

static struct tcp_info info_of(pyvma_sock *s)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	CHECK_EQ(pyvma_sock_getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	return info;
}

enum held { HELD, NOT_HELD, UNKNOWN };

/* Does a write to `s`, which has room, say EAGAIN while the peer stands still and the pair has news? The stack holds back from 8 round trips
 * to a millisecond after what the peer has not come to: a process that got no turn in between knows nothing. */
static enum held held_back(pyvma_sock *s, pyvma_sock *const pair[2])
{
	static const char data[64 << 10];
	int64_t first = pv_clock_now(&pv_engine.clock), n = pyvma_sock_send(s, data, sizeof(data), 0, 0);
	int64_t sent = pv_clock_now(&pv_engine.clock), from = sent + 8 * 1000 * (int64_t)(info_of(s).tcpi_min_rtt + 1), at;
	bool many = info_of(s).tcpi_unacked >= 16, fair = false;

	while (n > 0 && !fair && pv_clock_now(&pv_engine.clock) < first + NS_MS) {
		ping(pair[0], pair[1]);
		at = pv_clock_now(&pv_engine.clock);
		n = pyvma_sock_send(s, data, 2048, 0, 0);
		fair = many && at > from && pv_clock_now(&pv_engine.clock) < first + NS_MS;
	}
	CHECK(n > 0 || n == -EAGAIN);
	return n == -EAGAIN ? HELD : fair ? NOT_HELD : UNKNOWN;
}

TEST(a_long_write_waits_for_a_peer_that_is_behind)
{
	static const char block[1 << 20];
	struct pyvma_event ev = { .events = EPOLLOUT | EPOLLET }, out;
	struct remote r = peer_start();
	pyvma_sock *l = stream_listener("10.9.0.1"), *pair[2] = { connected("10.9.0.1") }, *s = connected(PEER4);
	int room = 8 << 20, left, status;
	enum held held = UNKNOWN;
	pyvma_epoll *ep;

	CHECK_EQ(pyvma_sock_accept(l, NULL, NULL, SOCK_CLOEXEC, LONG_NS, &pair[1]), 0);
	CHECK_EQ(pyvma_sock_setsockopt(s, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
	CHECK_EQ(pyvma_epoll_open(&ep), 0);
	CHECK_EQ(pyvma_epoll_ctl_sock(ep, EPOLL_CTL_ADD, s, &ev), 0);
	for (int i = 0; i < 30 && held == UNKNOWN; i++) {
		/* The window opens (again, where the peer's stop outlasted a retransmission timeout). */
		CHECK_EQ(pyvma_sock_send(s, block, sizeof(block), 0, -1), (int64_t)sizeof(block));
		do
			CHECK_EQ(pyvma_sock_ioctl(s, SIOCOUTQ, &left), 0);
		while (left && !usleep(1000));
		for (int k = 0; k < 100; k++)
			ping(s, s);
		CHECK_EQ(kill(r.pid, SIGSTOP), 0);
		CHECK(waitpid(r.pid, &status, WUNTRACED) == r.pid && WIFSTOPPED(status));
		held = held_back(s, pair);
		while (held == HELD && pyvma_epoll_wait(ep, &out, 1, 0) == 1)
			;
		/* Until it is told it may not write, which a probe ends within milliseconds. */
		if (held == HELD && pyvma_sock_poll(s, POLLOUT, 0))
			held = UNKNOWN;
		CHECK_EQ(kill(r.pid, SIGCONT), 0);
	}
	CHECK(held != NOT_HELD);
	/* Told when the peer has come to it. */
	if (held == HELD) {
		CHECK_EQ(pyvma_epoll_wait(ep, &out, 1, LONG_NS), 1);
		CHECK(out.events & EPOLLOUT);
	}
	CHECK_EQ(pyvma_sock_send(s, block, sizeof(block), 0, -1), (int64_t)sizeof(block));
	/* What has been closed for writing says so, whoever is behind. */
	CHECK_EQ(pyvma_sock_shutdown(s, SHUT_WR), 0);
	CHECK_EQ(pyvma_sock_send(s, block, sizeof(block), MSG_NOSIGNAL, 0), -EPIPE);
	pyvma_epoll_close(ep);
	pyvma_sock_close(s);
	pyvma_sock_close(pair[0]);
	pyvma_sock_close(pair[1]);
	pyvma_sock_close(l);
	peer_end(r);
}

/* Last, with an engine of other settings: frames are lost, doubled and held back by the fault ring, and all that passes is recorded. */
TEST(zz_faults_and_record)
{
	struct remote r;
	struct sk s;
	char path[] = "/tmp/pyvma-wire-XXXXXX", name[64], b[8];
	int fd = mkstemp(path), lost = 0, got = 0;
	uint32_t block[3] = { 0 };

	CHECK(fd >= 0);
	pyvma_stop();
	*env_fabric = '\0';
	CHECK_EQ(pyvma_config_set("pcap_file", path), 0);
	CHECK_EQ(pyvma_config_set(
		     "fault", "rx_drop=0.2,rx_duplicate=0.1,tx_drop=0.1,reap_none=0.2,kick_again=0.1,tx_post_short=0.05,seed=7"),
		 0);
	r = peer_start();
	s = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_connect(s, ip(PEER4, ECHO_PORT)), 0);
	for (int i = 0; i < 400; i++) {
		CHECK_EQ(sk_send(s, "x", 1, 0), 1);
		int64_t n = pyvma_sock_recv(s.h, b, sizeof(b), 0, 20 * NS_MS);

		CHECK(n == 1 || n == -EAGAIN);
		*(n == 1 ? &got : &lost) += 1;
	}
	CHECK(got > 100 && lost > 20);
	sk_close(s);
	peer_end(r);
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("pcap_file", ""), 0);
	CHECK_EQ(pyvma_config_set("fault", ""), 0);
	close(fd);
	snprintf(name, sizeof(name), "%s.sn0", path);
	fd = open(name, O_RDONLY);
	CHECK(fd >= 0);
	CHECK_EQ(read(fd, block, sizeof(block)), sizeof(block));
	CHECK_EQ(block[0], 0x0a0d0d0a); /* pcapng: section header, then the mark of the byte order */
	CHECK_EQ(block[2], 0x1a2b3c4d);
	CHECK(lseek(fd, 0, SEEK_END) > 400 * 32);
	close(fd);
	unlink(name);
	snprintf(name, sizeof(name), "%s.sn1", path);
	unlink(name);
	unlink(path);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--peer"))
		return peer(argv[2]);
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	CHECK(n > 0);
	return test_main(argc, argv);
}
