/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sets of event loops: no message is missed between a turn that found nothing and the sleep on the set's fd, whoever polls meanwhile; a
 * loop that stays away does not stop its connections; a turn that spins; fork; close.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "sock_env.h"

#define LIMIT_MS 30000 /* nothing takes that long */

struct loop {
	pyvma_epoll *ep;
	int fd;
};

static struct loop loop_open(void)
{
	struct loop l;

	env_start();
	CHECK_EQ(pyvma_epoll_open(&l.ep), 0);
	l.fd = pyvma_epoll_loop_fd(l.ep);
	CHECK(l.fd >= 0);
	return l;
}

static void loop_add(struct loop l, struct sk k, uint32_t events, uint64_t data)
{
	struct pyvma_event ev = { .events = events, .data = data };

	CHECK_EQ(pyvma_epoll_ctl_sock(l.ep, EPOLL_CTL_ADD, k.h, &ev), 0);
}

/* Turns and sleeps until something is ready. */
static int loop_wait(struct loop l, struct pyvma_event *out, int n)
{
	struct pollfd p = { .fd = l.fd, .events = POLLIN };
	int got;

	while (!(got = pyvma_epoll_turn(l.ep, out, n, -1, -1))) {
		int rc = poll(&p, 1, LIMIT_MS);

		CHECK(rc == 1 || (rc < 0 && errno == EINTR));
	}
	return got;
}

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* ---- loops and others at once ------------------------------------------------------------------------------------------ */

#define PER_LOOP 3
#define ROUNDS 3000

struct echo {
	struct sk k[PER_LOOP];
	pthread_t thread;
};

/* Sends back what comes to its sockets until an empty datagram has come to each. */
static void *echo_main(void *arg)
{
	struct echo *e = arg;
	struct loop l = loop_open();
	int ended = 0;

	for (uint64_t i = 0; i < PER_LOOP; i++)
		loop_add(l, e->k[i], EPOLLIN, i);
	while (ended < PER_LOOP) {
		struct pyvma_event ev[2];
		int n = loop_wait(l, ev, 2);

		for (int i = 0; i < n; i++) {
			struct any_addr from;
			char buf[16];
			int64_t got = sk_recvfrom(e->k[ev[i].data], buf, sizeof(buf), MSG_DONTWAIT, &from);

			if (got > 0)
				CHECK_EQ(sk_sendto(e->k[ev[i].data], buf, (size_t)got, 0, from), got);
			ended += got == 0;
		}
	}
	pyvma_epoll_close(l.ep);
	return NULL;
}

static void *poller_main(void *arg)
{
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa);
	uint32_t r = 77;
	char buf[8];

	/* Polls for everybody, now and then: what it finds for the loops must reach them. */
	while (!atomic_load((_Atomic bool *)arg)) {
		CHECK_EQ(sk_recv(k, buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
		usleep(next(&r) % 200);
	}
	sk_close(k);
	return NULL;
}

/* Two loops in threads of their own, a third thread that polls, and this one that asks one or several sockets, at any moment. */
TEST(no_wake_up_is_lost)
{
	struct any_addr aa[2][PER_LOOP];
	struct echo e[2];
	struct sk from = sk_open(&our_side, AF_INET);
	_Atomic bool stop = false;
	pthread_t poller;
	uint32_t r = 5;
	char buf[16];

	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < PER_LOOP; j++)
			e[i].k[j] = sk_bound(&our_side, AF_INET, &aa[i][j]);
		CHECK_EQ(pthread_create(&e[i].thread, NULL, echo_main, &e[i]), 0);
	}
	CHECK_EQ(pthread_create(&poller, NULL, poller_main, &stop), 0);
	for (int round = 0; round < ROUNDS; round++) {
		int burst = 1 + (int)(next(&r) % 3);

		for (int i = 0; i < burst; i++)
			CHECK_EQ(sk_sendto(from, "x", 1, 0, aa[next(&r) % 2][next(&r) % PER_LOOP]), 1);
		for (int i = 0; i < burst; i++)
			CHECK_EQ(sk_recv(from, buf, sizeof(buf), 0), 1);
		if (next(&r) % 4 == 0)
			usleep(next(&r) % 300);
	}
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < PER_LOOP; j++)
			CHECK_EQ(sk_sendto(from, "", 0, 0, aa[i][j]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(e[i].thread, NULL);
	atomic_store(&stop, true);
	pthread_join(poller, NULL);
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < PER_LOOP; j++)
			sk_close(e[i].k[j]);
	sk_close(from);
}

/* ---- a loop that is away ----------------------------------------------------------------------------------------------- */

static void stream_pair(pyvma_sock **a, pyvma_sock **b)
{
	struct any_addr name = ip(our_side.addr4, 0);
	socklen_t len = sizeof(name.ss);
	pyvma_sock *listener;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM, 0, &listener), 0);
	CHECK_EQ(pyvma_sock_bind(listener, (struct sockaddr *)&name.ss, name.len), 0);
	CHECK_EQ(pyvma_sock_listen(listener, 4), 0);
	CHECK_EQ(pyvma_sock_getsockname(listener, (struct sockaddr *)&name.ss, &len), 0);
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM, 0, a), 0);
	CHECK_EQ(pyvma_sock_connect(*a, (struct sockaddr *)&name.ss, name.len, LONG_NS), 0);
	CHECK_EQ(pyvma_sock_accept(listener, NULL, NULL, 0, LONG_NS, b), 0);
	pyvma_sock_close(listener);
}

/* The loop sleeps on nothing and calls nothing: what its connections sent is acknowledged all the same. */
TEST(a_loop_that_is_away)
{
	struct loop l = loop_open();
	pyvma_sock *a, *b;
	struct sk k = { .side = &our_side, .fd = -1 };
	struct pyvma_event ev[4];
	char buf[1000];

	stream_pair(&a, &b);
	k.h = b;
	loop_add(l, k, EPOLLIN, 1);
	CHECK_EQ(pyvma_epoll_turn(l.ep, ev, 4, -1, -1), 0);
	memset(buf, 'x', sizeof(buf));
	for (int round = 0; round < 20; round++) {
		int out = 1;

		CHECK_EQ(pyvma_sock_send(a, buf, sizeof(buf), 0, 0), (int64_t)sizeof(buf));
		for (int i = 0; out && i < LIMIT_MS; i++) {
			usleep(1000);
			CHECK_EQ(pyvma_sock_ioctl(a, SIOCOUTQ, &out), 0); /* does not poll */
		}
		CHECK_EQ(out, 0);
	}
	/* It finds everything when it comes back, and by its fd. */
	CHECK_EQ(loop_wait(l, ev, 4), 1);
	CHECK_EQ(ev[0].data, 1u);
	CHECK_EQ(pyvma_sock_recv(b, buf, sizeof(buf), MSG_DONTWAIT, 0), (int64_t)sizeof(buf));
	pyvma_epoll_close(l.ep);
	pyvma_sock_close(a);
	pyvma_sock_close(b);
}

/* ---- turns that spin --------------------------------------------------------------------------------------------------- */

static void *send_soon(void *arg)
{
	usleep(20000);
	CHECK_EQ(write(*(int *)arg, &(uint64_t){ 1 }, 8), 8);
	return NULL;
}

TEST(a_turn_that_spins)
{
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa), from = sk_open(&our_side, AF_INET);
	int other = eventfd(0, EFD_CLOEXEC);
	struct pyvma_event ev[4];
	pyvma_epoll *ep;
	pthread_t thread;
	char buf[8];

	CHECK_EQ(pyvma_epoll_open(&ep), 0);
	CHECK_EQ(pyvma_epoll_ctl_sock(ep, EPOLL_CTL_ADD, k.h, &(struct pyvma_event){ .events = EPOLLIN, .data = 7 }), 0);
	CHECK_EQ(pyvma_epoll_turn(ep, ev, 4, 0, other), 0);
	CHECK_EQ(pyvma_epoll_turn(ep, ev, 4, 200000, other), 0); /* it ends by itself */
	/* The other fd ends it. */
	CHECK_EQ(pthread_create(&thread, NULL, send_soon, &other), 0);
	CHECK_EQ(pyvma_epoll_turn(ep, ev, 4, LONG_NS, other), 0);
	pthread_join(thread, NULL);
	CHECK_EQ(read(other, buf, 8), 8);
	/* And so does what comes. */
	CHECK_EQ(sk_sendto(from, "x", 1, 0, aa), 1);
	CHECK_EQ(pyvma_epoll_turn(ep, ev, 4, LONG_NS, other), 1);
	CHECK_EQ(ev[0].data, 7u);
	CHECK_EQ(pyvma_epoll_turn(ep, ev, 0, 0, -1), -EINVAL);
	pyvma_epoll_close(ep);
	CHECK_EQ(pyvma_epoll_turn(ep, ev, 4, 0, -1), -EBADF);
	close(other);
	sk_close(k);
	sk_close(from);
}

/* Fds of the kernel's in the set, by turns that arm and by turns that spin. */
TEST(fds_of_the_kernel)
{
	struct loop l = loop_open();
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct pyvma_event ev[4];
	uint64_t count;

	CHECK_EQ(pyvma_epoll_ctl(l.ep, EPOLL_CTL_ADD, fd, &(struct pyvma_event){ .events = EPOLLIN, .data = 3 }), 0);
	for (int round = 0; round < 4; round++) {
		int64_t spin_ns = round & 1 ? LONG_NS : -1;

		if (spin_ns < 0)
			CHECK_EQ(pyvma_epoll_turn(l.ep, ev, 4, -1, -1), 0);
		CHECK_EQ(write(fd, &(uint64_t){ 1 }, 8), 8);
		CHECK_EQ(spin_ns < 0 ? loop_wait(l, ev, 4) : pyvma_epoll_turn(l.ep, ev, 4, spin_ns, -1), 1);
		CHECK_EQ(ev[0].data, 3u);
		CHECK_EQ(read(fd, &count, 8), 8);
	}
	close(fd);
	pyvma_epoll_close(l.ep);
}

/* ---- fork, close, stop ------------------------------------------------------------------------------------------------- */

/* The child's copy is dead, and closing it takes nothing from the parent. */
TEST(a_forked_child_leaves_the_parents_set_alone)
{
	struct loop l = loop_open();
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa), from = sk_open(&our_side, AF_INET);
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), status;
	struct pyvma_event ev[4];
	char buf[8];
	pid_t pid;

	loop_add(l, k, EPOLLIN, 1);
	CHECK_EQ(pyvma_epoll_ctl(l.ep, EPOLL_CTL_ADD, fd, &(struct pyvma_event){ .events = EPOLLIN, .data = 3 }), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		int rc = pyvma_epoll_turn(l.ep, ev, 4, -1, -1);

		pyvma_epoll_close(l.ep);
		_exit(rc == -EBADF ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_EQ(pyvma_epoll_turn(l.ep, ev, 4, -1, -1), 0);
	CHECK_EQ(sk_sendto(from, "x", 1, 0, aa), 1);
	CHECK_EQ(loop_wait(l, ev, 4), 1);
	CHECK_EQ(ev[0].data, 1u);
	CHECK_EQ(sk_recv(k, buf, sizeof(buf), MSG_DONTWAIT), 1);
	CHECK_EQ(pyvma_epoll_turn(l.ep, ev, 4, -1, -1), 0);
	CHECK_EQ(write(fd, &(uint64_t){ 1 }, 8), 8);
	CHECK_EQ(loop_wait(l, ev, 4), 1);
	CHECK_EQ(ev[0].data, 3u);
	pyvma_epoll_close(l.ep);
	close(fd);
	sk_close(k);
	sk_close(from);
}

/* With sockets in it, and sockets closed while it watches them; the engine goes and comes again under it. */
TEST(close_and_stop)
{
	struct loop l = loop_open(), other = loop_open();
	struct any_addr aa;
	struct sk k = sk_bound(&our_side, AF_INET, &aa), gone = sk_bound(&our_side, AF_INET, &aa), from;
	struct pyvma_event ev[4];

	loop_add(l, k, EPOLLIN, 1);
	loop_add(l, gone, EPOLLIN, 2);
	loop_add(other, k, EPOLLIN, 3);
	CHECK_EQ(pyvma_epoll_turn(l.ep, ev, 4, -1, -1), 0);
	CHECK_EQ(pyvma_epoll_turn(other.ep, ev, 4, -1, -1), 0);
	sk_close(gone);
	pyvma_epoll_close(other.ep);
	pyvma_stop();
	CHECK_EQ(loop_wait(l, ev, 4), 1);
	CHECK_EQ(ev[0].data, 1u);
	CHECK_EQ(ev[0].events & EPOLLERR, (uint32_t)EPOLLERR);
	sk_close(k);
	CHECK_EQ(pyvma_epoll_turn(l.ep, ev, 4, -1, -1), 0);
	CHECK_EQ(pyvma_start(), 0);
	k = sk_bound(&our_side, AF_INET, &aa);
	from = sk_open(&our_side, AF_INET);
	loop_add(l, k, EPOLLIN, 4);
	for (int round = 0; round < 5; round++) {
		char buf[4];

		CHECK_EQ(pyvma_epoll_turn(l.ep, ev, 4, -1, -1), 0);
		CHECK_EQ(sk_sendto(from, "x", 1, 0, aa), 1);
		CHECK_EQ(loop_wait(l, ev, 4), 1);
		CHECK_EQ(ev[0].data, 4u);
		CHECK_EQ(sk_recv(k, buf, sizeof(buf), MSG_DONTWAIT), 1);
	}
	pyvma_epoll_close(l.ep);
	sk_close(k);
	sk_close(from);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
