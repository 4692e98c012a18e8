/* SPDX-License-Identifier: BSD-3-Clause */
/* fileno: stock select, poll and epoll on an exported fd, level- and edge-triggered, with both legs; adopt, dup, detach. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>

#include "sock_env.h"

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

#define SOON 20000 /* ms that nothing takes */

TEST(readability_follows)
{
	for (int f = 0; f < 2; f++) {
		int family = f ? AF_INET6 : AF_INET, fd;
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, family, &aa), b = sk_open(&our_side, family);
		char buf[8];

		fd = pyvma_sock_fileno(a.h);
		CHECK_EQ(fd, a.fd);
		CHECK(!readable(fd, 0));
		for (int round = 0; round < 50; round++) {
			CHECK_EQ(sk_sendto(b, "one", 3, 0, aa), 3);
			CHECK_EQ(sk_sendto(b, "four", 4, 0, aa), 4);
			CHECK(readable(fd, SOON));
			CHECK_EQ(pyvma_sock_recv(a.h, buf, sizeof(buf), 0, LONG_NS), 3);
			CHECK(readable(fd, SOON));
			CHECK_EQ(pyvma_sock_recv(a.h, buf, sizeof(buf), 0, LONG_NS), 4);
			CHECK(!readable(fd, 0));
			CHECK_EQ(sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
		}
		struct pollfd out = { .fd = fd, .events = POLLOUT };

		CHECK_EQ(poll(&out, 1, 0), 1);
		sk_close(a);
		sk_close(b);
	}
}

TEST(queued_before_it_was_asked_for)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_open(&our_side, AF_INET);
	char buf[8];

	CHECK_EQ(sk_sendto(b, "early", 5, 0, aa), 5);
	CHECK(pyvma_sock_poll(a.h, POLLIN, LONG_NS) & POLLIN);
	CHECK(readable(pyvma_sock_fileno(a.h), 0));
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 5);
	CHECK(!readable(a.fd, 0));
	sk_close(a);
	sk_close(b);
}

TEST(errors_are_readable)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_bound(&our_side, AF_INET, &ba);
	int err = 0;
	socklen_t len = sizeof(err);

	CHECK_EQ(sk_connect(a, ba), 0);
	sk_close(b);
	CHECK(!readable(pyvma_sock_fileno(a.h), 0));
	CHECK_EQ(sk_send(a, "x", 1, 0), 1);
	CHECK(readable(a.fd, SOON));
	CHECK_EQ(sk_get(a, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	CHECK_EQ(err, ECONNREFUSED);
	CHECK(!readable(a.fd, 0));
	sk_close(a);
}

TEST(select_and_edge_triggered_epoll)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_open(&our_side, AF_INET);
	int fd = pyvma_sock_fileno(a.h), ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET }, got;
	fd_set set;
	struct timeval tv = { .tv_sec = SOON / 1000 };
	char buf[8];

	CHECK_EQ(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	CHECK_EQ(epoll_wait(ep, &got, 1, 0), 0);
	for (int round = 0; round < 20; round++) {
		CHECK_EQ(sk_sendto(b, "x", 1, 0, aa), 1);
		CHECK_EQ(epoll_wait(ep, &got, 1, SOON), 1);
		CHECK_EQ(epoll_wait(ep, &got, 1, 0), 0); /* one edge */
		FD_ZERO(&set);
		FD_SET(fd, &set);
		CHECK_EQ(select(fd + 1, &set, NULL, NULL, &tv), 1);
		while (sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		CHECK_EQ(epoll_wait(ep, &got, 1, 0), 0);
	}
	/* A further arrival is a further edge even if nothing was read. */
	CHECK_EQ(sk_sendto(b, "x", 1, 0, aa), 1);
	CHECK_EQ(epoll_wait(ep, &got, 1, SOON), 1);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT), 1);
	CHECK_EQ(sk_sendto(b, "y", 1, 0, aa), 1);
	CHECK_EQ(epoll_wait(ep, &got, 1, SOON), 1);
	close(ep);
	sk_close(a);
	sk_close(b);
}

/* Bound to all addresses: traffic of the kernel's loopback and of the fabric, both through one fd. */
TEST(two_legs_one_fd)
{
	struct sk a = sk_open(&our_side, AF_INET), b = sk_open(&our_side, AF_INET), k = sk_open(&kernel_side, AF_INET);
	struct any_addr name;
	char buf[16];

	CHECK_EQ(sk_bind(a, ip("0.0.0.0", 0)), 0);
	CHECK_EQ(sk_name(a, &name), 0);
	int fd = pyvma_sock_fileno(a.h), port = addr_port(&name);

	CHECK(!readable(fd, 0));
	for (int round = 0; round < 30; round++) {
		CHECK_EQ(sk_sendto(k, "kernel", 6, 0, ip("127.0.0.1", port)), 6);
		CHECK(readable(fd, SOON));
		CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 6);
		CHECK(!readable(fd, 0));
		CHECK_EQ(sk_sendto(b, "core", 4, 0, ip("10.9.0.1", port)), 4);
		CHECK(readable(fd, SOON));
		CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 4);
		CHECK(!readable(fd, 0));
	}
	sk_close(a);
	sk_close(b);
	sk_close(k);
}

TEST(cloexec_and_number_stay)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);
	int flags = fcntl(a.fd, F_GETFD), type = 0;
	socklen_t len = sizeof(type);

	CHECK(flags & FD_CLOEXEC);
	CHECK_EQ(pyvma_sock_fileno(a.h), a.fd);
	CHECK_EQ(fcntl(a.fd, F_GETFD), flags);
	CHECK_EQ(fcntl(a.fd, F_SETFD, 0), 0);
	CHECK_EQ(pyvma_sock_fileno(a.h), a.fd);
	CHECK_EQ(getsockopt(a.fd, SOL_SOCKET, SO_TYPE, &type, &len), 0);
	CHECK_EQ(type, SOCK_DGRAM);
	/* Options go on by the handle. */
	CHECK_EQ(sk_get(a, SOL_SOCKET, SO_DOMAIN, &type, &len), 0);
	CHECK_EQ(type, AF_INET);
	CHECK_EQ(sk_close(a), 0);
	CHECK_EQ(fcntl(a.fd, F_GETFD), -1);
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

TEST(nothing_leaks)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);
	int before;

	sk_close(a);
	before = open_fds();
	for (int i = 0; i < 100; i++) {
		struct sk d = { &our_side, -1, NULL };

		a = sk_bound(&our_side, AF_INET, &aa);
		if (i & 1)
			CHECK_EQ(pyvma_sock_fileno(a.h), a.fd);
		if (i & 2)
			CHECK_EQ(pyvma_sock_dup(a.h, &d.h), 0);
		CHECK_EQ(sk_close(a), 0);
		if (d.h)
			CHECK_EQ(sk_close(d), 0);
	}
	CHECK_EQ(open_fds(), before);
}

TEST(duplicates_share)
{
	for (int exported = 0; exported < 2; exported++) {
		struct any_addr aa, name;
		struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_open(&our_side, AF_INET);
		pyvma_sock *d, *behind;
		char buf[8];

		if (exported)
			CHECK_EQ(pyvma_sock_fileno(a.h), a.fd);
		CHECK_EQ(pyvma_sock_dup(a.h, &d), 0);
		int raw = dup(a.fd); /* behind our back */

		CHECK_EQ(pyvma_sock_adopt(raw, &behind), 0);
		CHECK_EQ(sk_close(a), 0);
		for (int i = 0; i < 2; i++) {
			pyvma_sock *h = i ? behind : d;
			char text[64];

			CHECK_EQ(pyvma_sock_offload(h, text, sizeof(text)), PYVMA_OFFLOADED);
			name.len = sizeof(name.ss);
			CHECK_EQ(pyvma_sock_getsockname(h, (struct sockaddr *)&name.ss, &name.len), 0);
			CHECK_EQ(addr_port(&name), addr_port(&aa));
			CHECK_EQ(sk_sendto(b, "x", 1, 0, aa), 1);
			CHECK_EQ(pyvma_sock_recv(h, buf, sizeof(buf), 0, LONG_NS), 1);
			CHECK_EQ(sk_sendto(b, "x", 1, 0, aa), 1);
			CHECK(readable(pyvma_sock_fileno(h), SOON));
			CHECK_EQ(pyvma_sock_recv(h, buf, sizeof(buf), 0, LONG_NS), 1);
			CHECK_EQ(pyvma_sock_close(h), 0);
		}
		/* The port is free with the last of them. */
		a = sk_open(&our_side, AF_INET);
		CHECK_EQ(sk_bind(a, aa), 0);
		sk_close(a);
		sk_close(b);
	}
}

/* The kernel socket must not go with the number that it had: what takes that number next is somebody else's. */
TEST(the_first_number_goes_and_a_duplicate_stays)
{
	struct rlimit all, none;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &all), 0);
	none = all;
	none.rlim_cur = 0;
	for (int i = 0; i < 6; i++) {
		struct any_addr aa, name;
		struct sk a = sk_open(&our_side, AF_INET), d = a;
		int before = open_fds(), other;

		CHECK_EQ(sk_bind(a, ip(i & 1 ? "127.0.0.1" : "0.0.0.0", 0)), 0);
		CHECK_EQ(sk_name(a, &aa), 0);
		CHECK_EQ(pyvma_sock_dup(a.h, &d.h), 0);
		d.fd = pyvma_sock_fd(d.h);
		if (i < 2) {
			CHECK_EQ(sk_close(a), 0);
		} else if (i < 4) {
			CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
			CHECK_EQ(sk_close(a), 0);
			CHECK_EQ(setrlimit(RLIMIT_NOFILE, &all), 0);
		} else {
			CHECK_EQ(pyvma_sock_detach(a.h), a.fd);
			CHECK_EQ(close(a.fd), 0);
		}
		other = open("/dev/null", O_RDONLY);
		struct sk b = sk_open(&our_side, AF_INET);
		char c = 0;

		name.len = sizeof(name.ss);
		CHECK_EQ(sk_name(d, &name), 0);
		CHECK_EQ(addr_port(&name), addr_port(&aa));
		CHECK_EQ(sk_sendto(b, "x", 1, 0, ip("127.0.0.1", addr_port(&aa))), 1);
		CHECK_EQ(pyvma_sock_recv(d.h, &c, 1, 0, LONG_NS), 1);
		CHECK_EQ(c, 'x');
		CHECK_EQ(sk_close(b), 0);
		CHECK_EQ(sk_close(d), 0);
		CHECK_EQ(close(other), 0);
		if (i >= 2) /* the first waits make this thread's wake-up fd */
			CHECK_EQ(open_fds(), before - 1);
	}
}

/* Threads that duplicate and close one handle at once: the winner decides, nobody's socket is given out twice. */
static _Atomic(pyvma_sock *) shared;
static _Atomic(bool) sharing_over;

static void *dup_shared(void *arg)
{
	(void)arg;
	while (!atomic_load(&sharing_over)) {
		pyvma_sock *h = atomic_load(&shared), *d;

		if (h && pyvma_sock_dup(h, &d) == 0)
			CHECK_EQ(pyvma_sock_close(d), 0);
	}
	return NULL;
}

TEST(duplicated_while_closed)
{
	struct any_addr aa, ba;
	pthread_t t;

	env_start();
	CHECK_EQ(pthread_create(&t, NULL, dup_shared, NULL), 0);
	for (int i = 0; i < 3000; i++) {
		struct sk a = sk_open(&our_side, AF_INET);

		atomic_store(&shared, a.h);
		sched_yield();
		CHECK_EQ(sk_close(a), 0);
		struct sk b = sk_bound(&our_side, AF_INET, &aa), c = sk_bound(&our_side, AF_INET, &ba);

		atomic_store(&shared, NULL);
		CHECK(addr_port(&aa) != addr_port(&ba));
		CHECK_EQ(sk_close(b), 0);
		CHECK_EQ(sk_close(c), 0);
	}
	atomic_store(&sharing_over, true);
	pthread_join(t, NULL);
}

TEST(detached_and_adopted_again)
{
	for (int exported = 0; exported < 2; exported++) {
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_open(&our_side, AF_INET);
		char buf[8];

		if (exported)
			CHECK_EQ(pyvma_sock_fileno(a.h), a.fd);
		CHECK_EQ(pyvma_sock_detach(a.h), a.fd);
		CHECK_EQ(sk_sendto(b, "while away", 10, 0, aa), 10);
		CHECK_EQ(pyvma_sock_adopt(a.fd, &a.h), 0);
		CHECK(is_offloaded(a));
		CHECK_EQ(sk_recv(a, buf, 5, 0), 5);
		CHECK_EQ(sk_close(a), 0);
		CHECK_EQ(sk_close(b), 0);
		a = sk_open(&our_side, AF_INET);
		CHECK_EQ(sk_bind(a, aa), 0);
		sk_close(a);
	}
}

/* A detached fd that the program closed by itself gives its port back when the next socket is opened. */
TEST(detached_and_closed_behind_our_back)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b;

	CHECK_EQ(pyvma_sock_detach(a.h), a.fd);
	CHECK_EQ(close(a.fd), 0);
	b = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_bind(b, aa), 0);
	sk_close(b);
}

TEST(adopt_kernel_sockets)
{
	int p[2], fd = socket(AF_INET, SOCK_STREAM, 0);
	pyvma_sock *h;
	char text[128];

	env_start();
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(pyvma_sock_offload(h, text, sizeof(text)), PYVMA_UNDECIDED);
	CHECK_EQ(pyvma_sock_close(h), 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(listen(fd, 1), 0);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(pyvma_sock_offload(h, text, sizeof(text)), PYVMA_KERNEL);
	CHECK(!strcmp(text, "bound or connected by the kernel before"));
	CHECK_EQ(pyvma_sock_close(h), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, p), 0);
	CHECK_EQ(pyvma_sock_adopt(p[0], &h), 0);
	CHECK_EQ(pyvma_sock_offload(h, text, sizeof(text)), PYVMA_KERNEL);
	CHECK(!strcmp(text, "AF_UNIX: kernel"));
	CHECK_EQ(pyvma_sock_send(h, "x", 1, 0, -1), 1);
	CHECK_EQ(pyvma_sock_close(h), 0);
	close(p[1]);
	CHECK_EQ(pipe(p), 0);
	CHECK_EQ(pyvma_sock_adopt(p[0], &h), -ENOTSOCK);
	CHECK_EQ(pyvma_sock_adopt(-1, &h), -EBADF);
	close(p[0]);
	close(p[1]);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
