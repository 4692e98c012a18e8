/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of sockets: random steps on pyvma_epoll with sockets of ours, and the same on the kernel's epoll with its own, must tell the
 * same; then what has no such twin: both legs, sockets that change hands, threads, close while waiting, sets within sets.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "sock_env.h"

/* ---- one kind of set --------------------------------------------------------------------------------------------------- */

struct set {
	const struct side *side;
	int fd;
	pyvma_epoll *ep;
};

static struct set set_open(const struct side *side)
{
	struct set s = { side, -1, NULL };

	if (side->ours) {
		env_start();
		CHECK_EQ(pyvma_epoll_open(&s.ep), 0);
	} else {
		s.fd = epoll_create1(EPOLL_CLOEXEC);
		CHECK(s.fd >= 0);
	}
	return s;
}

static void set_close(struct set s)
{
	if (s.ep)
		pyvma_epoll_close(s.ep);
	else
		close(s.fd);
}

static int set_ctl(struct set s, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = { .events = events, .data = { .u64 = data } };
	struct pyvma_event pev = { .events = events, .data = data };

	return s.ep ? pyvma_epoll_ctl(s.ep, op, fd, &pev) : neg(epoll_ctl(s.fd, op, fd, &ev));
}

static int set_ctl_sk(struct set s, int op, struct sk k, uint32_t events, uint64_t data)
{
	struct pyvma_event pev = { .events = events, .data = data };

	return s.ep ? pyvma_epoll_ctl_sock(s.ep, op, k.h, &pev) : set_ctl(s, op, k.fd, events, data);
}

static bool by_loop;

/* As an event loop does: turns, and between them a sleep on the set's fd. */
static int loop_wait(struct set s, struct pyvma_event *out, int n, int timeout_ms)
{
	struct pollfd p = { .fd = pyvma_epoll_loop_fd(s.ep), .events = POLLIN };
	int got;

	while (!(got = pyvma_epoll_turn(s.ep, out, n, -1, -1)))
		if (neg(poll(&p, 1, timeout_ms)) <= 0)
			break;
	return got;
}

static int set_wait(struct set s, struct pyvma_event *out, int n, int timeout_ms)
{
	struct epoll_event ev[64];
	int got;

	if (s.ep && by_loop)
		return loop_wait(s, out, n, timeout_ms);
	if (s.ep)
		return pyvma_epoll_wait(s.ep, out, n, timeout_ms < 0 ? -1 : timeout_ms * NS_MS);
	got = neg(epoll_wait(s.fd, ev, n, timeout_ms));
	for (int i = 0; i < got; i++)
		out[i] = (struct pyvma_event){ ev[i].events, ev[i].data.u64 };
	return got;
}

/* Events by data, since the order is nobody's promise. */
static int wait_sorted(struct set s, struct pyvma_event *out, int n, int timeout_ms)
{
	int got = set_wait(s, out, n, timeout_ms);

	for (int i = 1; i < got; i++)
		for (int j = i; j > 0 && out[j].data < out[j - 1].data; j--) {
			struct pyvma_event t = out[j];

			out[j] = out[j - 1];
			out[j - 1] = t;
		}
	return got;
}

/* ---- the oracle -------------------------------------------------------------------------------------------------------- */

#define SOCKS 5
#define STEPS 300

static uint32_t seed;
static bool by_fd;

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Fewer at a time than are ready would be told in an order of its own, so all are asked for. */
static void trace_wait(struct trace *t, struct set s, int timeout_ms)
{
	struct pyvma_event ev[8];
	int n = wait_sorted(s, ev, 8, timeout_ms);

	T(t, n);
	for (int i = 0; i < n; i++)
		T(t, ev[i].data << 32 | ev[i].events);
}

static void random_steps(const struct side *side, int family, struct trace *t)
{
	static const uint32_t flags[] = { 0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT };
	struct sk k[SOCKS], from = sk_open(side, family);
	struct any_addr a[SOCKS];
	struct set s = set_open(side);
	uint32_t r = seed;
	char buf[64];

	for (int i = 0; i < SOCKS; i++) {
		k[i] = sk_bound(side, family, &a[i]);
		CHECK_EQ(sk_nonblock(k[i], 1), 0);
	}
	for (int step = 0; step < STEPS; step++) {
		uint32_t i = next(&r) % SOCKS, what = next(&r) % 10;
		uint32_t events = (next(&r) & 1 ? EPOLLIN : 0u) | (next(&r) % 3 ? 0u : EPOLLOUT) | flags[next(&r) % 4];

		if (what < 3) {
			int op = what == 0 ? EPOLL_CTL_ADD : what == 1 ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;

			T(t, by_fd ? set_ctl(s, op, k[i].fd, events, i) : set_ctl_sk(s, op, k[i], events, i));
		} else if (what < 5) {
			T(t, sk_sendto(from, "datagram", 8, 0, a[i]));
		} else if (what < 7) {
			T(t, sk_recv(k[i], buf, sizeof(buf), MSG_DONTWAIT));
		} else {
			trace_wait(t, s, what == 7 ? 1 : 0);
		}
	}
	set_close(s);
	sk_close(from);
	for (int i = 0; i < SOCKS; i++)
		sk_close(k[i]);
}

TEST(datagrams_as_the_kernels)
{
	for (seed = 1; seed <= 40; seed++) {
		by_fd = seed & 1;
		by_loop = seed & 2;
		compare(random_steps);
	}
	by_loop = false;
}

TEST(bad_calls)
{
	const struct side *sides[] = { &kernel_side, &our_side };
	int rc[2][16], n[2] = { 0 };

	for (int i = 0; i < 2; i++) {
		struct set s = set_open(sides[i]);
		struct sk k = sk_open(sides[i], AF_INET);
		struct pyvma_event ev;
		FILE *plain = tmpfile();

		CHECK(plain);
		rc[i][n[i]++] = set_ctl(s, 77, k.fd, EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_ADD, -1, EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_ADD, 100000, EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_ADD, fileno(plain), EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_MOD, k.fd, EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_DEL, k.fd, EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_ADD, k.fd, EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_ADD, k.fd, EPOLLIN, 0);
		rc[i][n[i]++] = set_wait(s, &ev, 0, 0);
		rc[i][n[i]++] = set_wait(s, &ev, -3, 0);
		rc[i][n[i]++] = set_wait(s, &ev, 1, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_DEL, k.fd, EPOLLIN, 0);
		rc[i][n[i]++] = set_ctl(s, EPOLL_CTL_ADD, s.ep ? pyvma_epoll_fileno(s.ep) : s.fd, EPOLLIN, 0);
		fclose(plain);
		sk_close(k);
		set_close(s);
	}
	CHECK_EQ(n[0], n[1]);
	for (int j = 0; j < n[0]; j++)
		CHECK_EQ(rc[1][j], rc[0][j]);
}

/* ---- streams ----------------------------------------------------------------------------------------------------------- */

static struct sk stream_open(const struct side *side)
{
	struct sk s = { side, -1, NULL };

	if (side->ours) {
		env_start();
		CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, &s.h), 0);
		s.fd = pyvma_sock_fd(s.h);
	} else {
		s.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		CHECK(s.fd >= 0);
	}
	return s;
}

static int stream_connect(struct sk s, struct any_addr a)
{
	return s.h ? pyvma_sock_connect(s.h, (struct sockaddr *)&a.ss, a.len, 0)
		   : neg(connect(s.fd, (struct sockaddr *)&a.ss, a.len));
}

static struct sk stream_accept(struct sk l)
{
	struct sk s = { l.side, -1, NULL };

	if (l.h)
		CHECK_EQ(pyvma_sock_accept(l.h, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC, 0, &s.h), 0);
	else
		CHECK((s.fd = accept4(l.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
	return s;
}

/* One event at most: its bits. */
static uint32_t bits_of(struct set s, int timeout_ms)
{
	struct pyvma_event ev[4] = { { 0 } };
	int n = set_wait(s, ev, 4, timeout_ms);

	CHECK(n == 0 || n == 1);
	return n ? ev[0].events : 0;
}

#define ALL (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI)

/* Waits until the bits are those: what crosses a wire takes a moment. */
static uint32_t until(struct set s, uint32_t want)
{
	uint32_t bits = 0;

	for (int i = 0; i < 2000; i++) {
		bits = bits_of(s, 0);
		if (bits == want)
			break;
		usleep(1000);
	}
	return bits;
}

TEST(streams_level_triggered)
{
	const struct side *sides[] = { &kernel_side, &our_side };

	for (int i = 0; i < 2; i++) {
		struct set ls = set_open(sides[i]), cs = set_open(sides[i]), ss = set_open(sides[i]);
		struct sk l = stream_open(sides[i]), c = stream_open(sides[i]), s;
		struct any_addr a = ip(sides[i]->addr4, 0);
		char buf[100000] = { 0 };

		/* Added before anybody knows whose they will be. */
		CHECK_EQ(set_ctl_sk(ls, EPOLL_CTL_ADD, l, ALL, 1), 0);
		CHECK_EQ(set_ctl_sk(cs, EPOLL_CTL_ADD, c, ALL, 2), 0);
		CHECK_EQ(bits_of(cs, 0), (uint32_t)(EPOLLOUT | EPOLLHUP));
		CHECK_EQ(sk_bind(l, a), 0);
		CHECK_EQ(l.h ? pyvma_sock_listen(l.h, 8) : neg(listen(l.fd, 8)), 0);
		CHECK_EQ(sk_name(l, &a), 0);
		CHECK_EQ(bits_of(ls, 0), 0u);
		CHECK_EQ(stream_connect(c, a), -EINPROGRESS);
		CHECK_EQ(until(ls, EPOLLIN), (uint32_t)EPOLLIN);
		CHECK_EQ(until(cs, EPOLLOUT), (uint32_t)EPOLLOUT);
		s = stream_accept(l);
		CHECK_EQ(bits_of(ls, 0), 0u);
		CHECK_EQ(set_ctl_sk(ss, EPOLL_CTL_ADD, s, ALL, 3), 0);
		CHECK_EQ(until(ss, EPOLLOUT), (uint32_t)EPOLLOUT);
		CHECK_EQ(sk_send(c, "x", 1, 0), 1);
		CHECK_EQ(until(ss, EPOLLIN | EPOLLOUT), (uint32_t)(EPOLLIN | EPOLLOUT));
		CHECK_EQ(sk_recv(s, buf, 1, MSG_DONTWAIT), 1);
		CHECK_EQ(bits_of(ss, 0), (uint32_t)EPOLLOUT);
		CHECK_EQ(sk_send(c, "u", 1, MSG_OOB), 1);
		CHECK_EQ(until(ss, EPOLLOUT | EPOLLPRI), (uint32_t)(EPOLLOUT | EPOLLPRI));
		CHECK_EQ(sk_recv(s, buf, 1, MSG_OOB), 1);
		/* Full, and room again. */
		while (sk_send(c, buf, sizeof(buf), 0) > 0)
			;
		CHECK_EQ(bits_of(cs, 0), 0u);
		for (int64_t n; (n = sk_recv(s, buf, sizeof(buf), MSG_DONTWAIT)) > 0 || bits_of(cs, 1) == 0;)
			;
		CHECK_EQ(bits_of(cs, 0), (uint32_t)EPOLLOUT);
		/* Half closed, and closed. */
		CHECK_EQ(sk_shutdown(c, SHUT_WR), 0);
		for (int64_t n; (n = sk_recv(s, buf, sizeof(buf), MSG_DONTWAIT)) != 0;)
			if (n < 0)
				usleep(1000);
		CHECK_EQ(bits_of(ss, 0), (uint32_t)(EPOLLIN | EPOLLOUT | EPOLLRDHUP));
		CHECK_EQ(sk_shutdown(s, SHUT_WR), 0);
		CHECK_EQ(until(ss, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP),
			 (uint32_t)(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP));
		CHECK_EQ(until(cs, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP),
			 (uint32_t)(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP));
		/* A socket that is closed leaves every set. */
		sk_close(c);
		CHECK_EQ(bits_of(cs, 0), 0u);
		sk_close(s);
		sk_close(l);
		set_close(ls);
		set_close(cs);
		set_close(ss);
	}
}

TEST(a_refused_connection)
{
	const struct side *sides[] = { &kernel_side, &our_side };

	for (int i = 0; i < 2; i++) {
		struct set cs = set_open(sides[i]);
		struct sk l = stream_open(sides[i]), c = stream_open(sides[i]);
		struct any_addr a = ip(sides[i]->addr4, 0);

		CHECK_EQ(sk_bind(l, a), 0);
		CHECK_EQ(sk_name(l, &a), 0);
		CHECK_EQ(set_ctl_sk(cs, EPOLL_CTL_ADD, c, EPOLLOUT | EPOLLET, 2), 0);
		bits_of(cs, 0);
		CHECK_EQ(stream_connect(c, a), -EINPROGRESS);
		uint32_t want = EPOLLOUT | EPOLLERR | EPOLLHUP;

		CHECK_EQ(until(cs, want), want);
		CHECK_EQ(bits_of(cs, 0), 0u);
		sk_close(c);
		sk_close(l);
		set_close(cs);
	}
}

/* ---- ours beside the kernel's ------------------------------------------------------------------------------------------ */

TEST(other_fds_and_both_legs)
{
	struct set s = set_open(&our_side);
	struct any_addr all = ip("0.0.0.0", 0), aa;
	struct sk k = sk_open(&our_side, AF_INET), near = sk_open(&our_side, AF_INET), far = sk_open(&kernel_side, AF_INET);
	int ev = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	uint64_t one = 1;
	char buf[8];

	CHECK_EQ(sk_bind(k, all), 0);
	CHECK_EQ(sk_name(k, &aa), 0);
	CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k, EPOLLIN, 1), 0);
	CHECK_EQ(set_ctl(s, EPOLL_CTL_ADD, ev, EPOLLIN, 2), 0);
	for (int round = 0; round < 30; round++) {
		struct pyvma_event got[4];
		bool by_kernel = round % 3 == 0, by_ring = round % 3 == 1;

		CHECK_EQ(set_wait(s, got, 4, 0), 0);
		if (by_kernel)
			CHECK_EQ(sk_sendto(far, "k", 1, 0, ip("127.0.0.1", addr_port(&aa))), 1);
		else if (by_ring)
			CHECK_EQ(sk_sendto(near, "r", 1, 0, ip("10.9.0.1", addr_port(&aa))), 1);
		else
			CHECK_EQ(write(ev, &one, sizeof(one)), (ssize_t)sizeof(one));
		CHECK_EQ(set_wait(s, got, 4, 20000), 1);
		CHECK_EQ(got[0].data, by_kernel || by_ring ? 1u : 2u);
		CHECK_EQ(got[0].events, (uint32_t)EPOLLIN);
		if (by_kernel || by_ring)
			CHECK_EQ(sk_recv(k, buf, sizeof(buf), MSG_DONTWAIT), 1);
		else
			CHECK_EQ(read(ev, &one, sizeof(one)), (ssize_t)sizeof(one));
	}
	CHECK_EQ(set_ctl(s, EPOLL_CTL_DEL, ev, 0, 0), 0);
	close(ev);
	sk_close(k);
	sk_close(near);
	sk_close(far);
	set_close(s);
}

/* One event a call: the bell of a set whose fd was shown takes no place of another's, and nobody waits for ever behind others. */
TEST(one_at_a_time)
{
	struct set s = set_open(&our_side);
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa), from = sk_open(&our_side, AF_INET);
	int ev = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK), told[3] = { 0 };
	struct pyvma_event got[1];
	char buf[8];

	CHECK(pyvma_epoll_fileno(s.ep) >= 0);
	CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k, EPOLLIN, 1), 0);
	CHECK_EQ(sk_sendto(from, "x", 1, 0, aa), 1);
	CHECK_EQ(set_wait(s, got, 1, 20000), 1);
	CHECK_EQ(set_wait(s, got, 1, 0), 1);
	CHECK_EQ(sk_recv(k, buf, sizeof(buf), MSG_DONTWAIT), 1);
	/* The bell rings still, and the kernel has it before this one. */
	CHECK_EQ(set_ctl(s, EPOLL_CTL_ADD, ev, EPOLLIN, 2), 0);
	CHECK_EQ(set_wait(s, got, 1, 0), 1);
	CHECK_EQ(got[0].data, 2u);
	CHECK_EQ(sk_sendto(from, "y", 1, 0, aa), 1);
	CHECK_EQ(pyvma_sock_poll(k.h, POLLIN, LONG_NS), POLLIN);
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(set_wait(s, got, 1, 0), 1);
		CHECK(got[0].data == 1 || got[0].data == 2);
		told[got[0].data]++;
	}
	CHECK_EQ(told[1], 5);
	CHECK_EQ(told[2], 5);
	CHECK_EQ(set_ctl(s, EPOLL_CTL_DEL, ev, 0, 0), 0);
	close(ev);
	set_close(s);
	sk_close(k);
	sk_close(from);
}

/* The set as a member of the kernel's: readable while there is something, by the progress thread when nobody is in a call. */
TEST(sets_within_sets)
{
	struct set s = set_open(&our_side), outer = set_open(&kernel_side);
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa), from = sk_open(&our_side, AF_INET);
	struct pyvma_event got[4];
	char buf[8];

	CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k, EPOLLIN, 1), 0);
	CHECK_EQ(set_ctl(outer, EPOLL_CTL_ADD, pyvma_epoll_fileno(s.ep), EPOLLIN, 9), 0);
	CHECK_EQ(set_wait(s, got, 4, 0), 0);
	for (int round = 0; round < 50; round++) {
		CHECK_EQ(set_wait(outer, got, 4, 0), 0);
		CHECK_EQ(sk_sendto(from, "x", 1, 0, aa), 1);
		CHECK_EQ(set_wait(outer, got, 4, 20000), 1);
		CHECK_EQ(set_wait(s, got, 4, 0), 1);
		CHECK_EQ(got[0].data, 1u);
		CHECK_EQ(set_wait(outer, got, 4, 0), 1); /* it is still there */
		CHECK_EQ(sk_recv(k, buf, sizeof(buf), MSG_DONTWAIT), 1);
		CHECK_EQ(set_wait(s, got, 4, 0), 0);
	}
	set_close(outer);
	set_close(s);
	sk_close(k);
	sk_close(from);
}

/* By its number alone the set's fd shows nothing, until it is asked for as one that is polled; then at once. */
TEST(number_of_a_set)
{
	struct set s = set_open(&our_side);
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa), from = sk_open(&our_side, AF_INET);
	struct pollfd p = { .fd = pyvma_epoll_number(s.ep), .events = POLLIN };

	CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k, EPOLLIN, 1), 0);
	CHECK_EQ(sk_sendto(from, "x", 1, 0, aa), 1);
	CHECK_EQ(pyvma_sock_poll(k.h, POLLIN, LONG_NS), POLLIN);
	CHECK_EQ(poll(&p, 1, 0), 0);
	CHECK_EQ(pyvma_epoll_fileno(s.ep), p.fd);
	CHECK_EQ(poll(&p, 1, 0), 1);
	set_close(s);
	sk_close(k);
	sk_close(from);
}

/* ---- threads ----------------------------------------------------------------------------------------------------------- */

struct waiter {
	struct set s;
	_Atomic int rc;
};

static void *wait_once(void *arg)
{
	struct waiter *w = arg;
	struct pyvma_event got[4];

	atomic_store(&w->rc, set_wait(w->s, got, 4, 20000));
	return NULL;
}

TEST(waiters_hear_of_ctl_and_close)
{
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa), from = sk_open(&our_side, AF_INET);

	CHECK_EQ(sk_sendto(from, "x", 1, 0, aa), 1);
	for (int round = 0; round < 20; round++) {
		struct waiter w = { set_open(&our_side), 99 };
		pthread_t thread;
		bool empty = round & 1, closes = round & 2;

		if (!empty)
			CHECK_EQ(set_ctl_sk(w.s, EPOLL_CTL_ADD, k, EPOLLPRI, 1), 0);
		CHECK_EQ(pthread_create(&thread, NULL, wait_once, &w), 0);
		usleep(round * 500);
		if (closes)
			set_close(w.s);
		else
			CHECK_EQ(set_ctl_sk(w.s, empty ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, k, EPOLLIN, 1), 0);
		pthread_join(thread, NULL);
		if (closes) {
			CHECK_EQ(atomic_load(&w.rc), -EBADF);
			continue;
		}
		CHECK_EQ(atomic_load(&w.rc), 1);
		set_close(w.s);
	}
	sk_close(k);
	sk_close(from);
}

static void *close_soon(void *arg)
{
	usleep(20000);
	sk_close(*(struct sk *)arg);
	return NULL;
}

TEST(a_socket_closed_while_waited_for)
{
	struct set s = set_open(&our_side);
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa);
	struct pyvma_event got[4];
	pthread_t thread;

	CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k, EPOLLIN, 1), 0);
	CHECK_EQ(pthread_create(&thread, NULL, close_soon, &k), 0);
	CHECK_EQ(set_wait(s, got, 4, 200), 0);
	pthread_join(thread, NULL);
	set_close(s);
}

static void on_alarm(int sig)
{
	(void)sig;
}

TEST(a_signal_ends_a_wait)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa);

	CHECK_EQ(sigaction(SIGALRM, &sa, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct set s = set_open(&our_side);
		struct pyvma_event got;

		if (i)
			CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k, EPOLLIN, 1), 0);
		ualarm(30000, 0);
		CHECK_EQ(set_wait(s, &got, 1, 20000), -EINTR);
		set_close(s);
	}
	sk_close(k);
}

/* ---- many -------------------------------------------------------------------------------------------------------------- */

TEST(many_entries_come_and_go)
{
	enum { N = 500 };
	struct set s = set_open(&our_side);
	struct any_addr aa[N];
	struct sk k[N], from = sk_open(&our_side, AF_INET);
	struct rlimit lim = { 4096, 4096 };
	uint32_t r = 7;
	char buf[8];

	setrlimit(RLIMIT_NOFILE, &lim);
	for (int i = 0; i < N; i++) {
		k[i] = sk_bound(&our_side, AF_INET, &aa[i]);
		CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k[i], EPOLLIN, (uint64_t)i), 0);
	}
	for (int round = 0; round < 3000; round++) {
		uint32_t i = next(&r) % N;
		struct pyvma_event got[8];

		if (next(&r) % 4 == 0) {
			CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_DEL, k[i], 0, 0), 0);
			CHECK_EQ(set_ctl_sk(s, EPOLL_CTL_ADD, k[i], EPOLLIN, i), 0);
		}
		CHECK_EQ(sk_sendto(from, "x", 1, 0, aa[i]), 1);
		CHECK_EQ(set_wait(s, got, 8, 20000), 1);
		CHECK_EQ(got[0].data, i);
		CHECK_EQ(sk_recv(k[i], buf, sizeof(buf), MSG_DONTWAIT), 1);
	}
	set_close(s);
	for (int i = 0; i < N; i++)
		sk_close(k[i]);
	sk_close(from);
}

/* As close() of an epoll fd that both have: the parent's goes on. */
TEST(a_forked_child_closes_its_copy)
{
	const struct side *sides[] = { &kernel_side, &our_side };

	for (int i = 0; i < 2; i++) {
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), status;
		struct set s = set_open(sides[i]);
		struct pyvma_event ev[4];
		pid_t pid;

		CHECK_EQ(set_ctl(s, EPOLL_CTL_ADD, fd, EPOLLIN, 3), 0);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			set_close(s);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
		CHECK_EQ(write(fd, &(uint64_t){ 1 }, 8), 8);
		CHECK_EQ(set_wait(s, ev, 4, 20000), 1);
		CHECK_EQ(ev[0].data, 3u);
		set_close(s);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
