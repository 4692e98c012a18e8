/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections on an interface that the kernel owns, handed back to the kernel while they live: in every role, with whatever is in their queues,
 * at any moment of a transfer. The peer is a kernel socket in another namespace, and must notice nothing.
 */
#include "test.h"

#if !defined(PV_HAVE_NETLINK) || !defined(PV_HAVE_XDP)
int main(void)
{
	puts("skip: built without libmnl or libbpf");
	return 77;
}
#else
#include <linux/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "rt/engine.h"
#include "sock_host_env.h"
#include "tcp/conn.h"

#define CHUNK 30000

/* ---- connections ------------------------------------------------------------------------------------------------------- */

enum role { BY_US, BY_US_BOUND, BY_PEER, ROLES };

struct both {
	pyvma_sock *us;
	int peer;
};

static struct any_addr us_at(int family, uint16_t port)
{
	return ip(side_addr(&ours_here, family), port);
}

static int peer_socket(int family)
{
	struct timeval limit = { .tv_sec = 60 };
	int fd;

	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	CHECK(fd >= 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
	return fd;
}

static pyvma_sock *stream(int family)
{
	pyvma_sock *s;

	CHECK_EQ(pyvma_sock_open(family, SOCK_STREAM | SOCK_CLOEXEC, 0, &s), 0);
	return s;
}

static bool offloaded(pyvma_sock *s)
{
	return pyvma_sock_offload(s, NULL, 0) == PYVMA_OFFLOADED;
}

static struct both accepted(int family)
{
	pyvma_sock *l = stream(family);
	struct both b = { .peer = peer_socket(family) };
	struct any_addr at = us_at(family, 0);

	CHECK_EQ(pyvma_sock_bind(l, (struct sockaddr *)&at.ss, at.len), 0);
	CHECK_EQ(pyvma_sock_listen(l, 10), 0);
	at.len = sizeof(at.ss);
	CHECK_EQ(pyvma_sock_getsockname(l, (struct sockaddr *)&at.ss, &at.len), 0);
	CHECK_EQ(connect(b.peer, (struct sockaddr *)&at.ss, at.len), 0);
	CHECK_EQ(pyvma_sock_accept(l, NULL, NULL, SOCK_CLOEXEC, WAIT_NS, &b.us), 0);
	/* Some outlive their listener. */
	if (addr_port(&at) % 2)
		CHECK_EQ(pyvma_sock_close(l), 0);
	return b;
}

static struct both connection(enum role role, int family)
{
	struct any_addr at = ip(peer_host(family), 0), name = us_at(family, 0);
	struct both b;
	int l;

	if (role == BY_PEER)
		return accepted(family);
	l = peer_socket(family);
	CHECK_EQ(bind(l, (struct sockaddr *)&at.ss, at.len), 0);
	CHECK_EQ(listen(l, 1), 0);
	at.len = sizeof(at.ss);
	CHECK_EQ(getsockname(l, (struct sockaddr *)&at.ss, &at.len), 0);
	b.us = stream(family);
	if (role == BY_US_BOUND)
		CHECK_EQ(pyvma_sock_bind(b.us, (struct sockaddr *)&name.ss, name.len), 0);
	CHECK_EQ(pyvma_sock_connect(b.us, (struct sockaddr *)&at.ss, at.len, WAIT_NS), 0);
	b.peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	CHECK(b.peer >= 0);
	close(l);
	CHECK(offloaded(b.us));
	return b;
}

static void hand_back(struct both *b)
{
	char text[300];
	int rc = pyvma_sock_hand_back(b->us);

	if (rc)
		fprintf(stderr, "%s\n", pyvma_last_error());
	CHECK_EQ(rc, 0);
	CHECK_EQ(pyvma_sock_offload(b->us, text, sizeof(text)), PYVMA_KERNEL);
	CHECK(!strncmp(text, "handed back: ", 13));
}

static int kernel_state(pyvma_sock *s)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	CHECK_EQ(getsockopt(pyvma_sock_fd(s), IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	return info.tcpi_state;
}

static void to_peer(struct both *b, const char *text)
{
	char buf[100];
	ssize_t n = (ssize_t)strlen(text);

	CHECK_EQ(pyvma_sock_send(b->us, text, strlen(text), 0, -1), n);
	CHECK_EQ(recv(b->peer, buf, (size_t)n, MSG_WAITALL), n);
	CHECK(!memcmp(buf, text, (size_t)n));
}

static void from_peer(struct both *b, const char *text)
{
	char buf[100];
	ssize_t n = (ssize_t)strlen(text);

	CHECK_EQ(send(b->peer, text, (size_t)n, 0), n);
	CHECK_EQ(pyvma_sock_recv(b->us, buf, (size_t)n, MSG_WAITALL, WAIT_NS), n);
	CHECK(!memcmp(buf, text, (size_t)n));
}

/* Both ends in good order: no reset, nothing more. */
static void finish(struct both *b)
{
	char byte;

	CHECK_EQ(pyvma_sock_close(b->us), 0);
	CHECK_EQ(recv(b->peer, &byte, 1, 0), 0);
	close(b->peer);
}

/* Bytes of a stream by their place in it. */
static void fill(char *buf, size_t off, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t x = (uint32_t)((off + i) / 4 + seed) * 2654435761u;

		buf[i] = (char)(x >> ((off + i) % 4 * 8));
	}
}

#define EACH_ROLE(role, family)                                                                                                    \
	for (int family = AF_INET; family; family = family == AF_INET ? AF_INET6 : 0)                                              \
		for (enum role role = 0; role < ROLES; role++)

static uint64_t counter(const char *name)
{
	struct pyvma_counter c;

	for (unsigned int i = 0; pyvma_counter_get(i, &c) == 0; i++)
		if (!strcmp(c.name, name))
			return c.value;
	CHECK(!"a counter of that name");
	return 0;
}

/* ---- at rest ----------------------------------------------------------------------------------------------------------- */

TEST(goes_on)
{
	world();
	EACH_ROLE(role, family)
	{
		struct both b = connection(role, family);
		struct any_addr before = { .len = sizeof(before.ss) }, after = before;
		uint64_t n = counter("tcp.handed_back");

		to_peer(&b, "from the stack");
		from_peer(&b, "to the stack");
		CHECK_EQ(pyvma_sock_getsockname(b.us, (struct sockaddr *)&before.ss, &before.len), 0);
		hand_back(&b);
		CHECK_EQ(counter("tcp.handed_back"), n + 1);
		CHECK_EQ(kernel_state(b.us), PV_TCP_ESTABLISHED);
		CHECK_EQ(pyvma_sock_getsockname(b.us, (struct sockaddr *)&after.ss, &after.len), 0);
		CHECK(same_addr(&before, &after));
		to_peer(&b, "from the kernel");
		from_peer(&b, "to the kernel");
		CHECK_EQ(pyvma_sock_hand_back(b.us), 0);
		finish(&b);
	}
}

TEST(queues_go_along)
{
	static char out[CHUNK], in[CHUNK];

	world();
	EACH_ROLE(role, family)
	{
		struct both b = connection(role, family);

		for (int i = 0; i < CHUNK; i++)
			out[i] = (char)(i * 7 + i / 251);
		CHECK_EQ(send(b.peer, out, CHUNK, 0), CHUNK);
		for (int n = 0; n < CHUNK;)
			CHECK_EQ(pyvma_sock_ioctl(b.us, FIONREAD, &n), 0);
		CHECK_EQ(pyvma_sock_recv(b.us, in, 1000, 0, WAIT_NS), 1000);
		CHECK_EQ(pyvma_sock_send(b.us, out, CHUNK, 0, -1), CHUNK);
		hand_back(&b);
		CHECK_EQ(pyvma_sock_recv(b.us, in + 1000, CHUNK - 1000, MSG_WAITALL, WAIT_NS), CHUNK - 1000);
		CHECK(!memcmp(in, out, CHUNK));
		memset(in, 0, CHUNK);
		CHECK_EQ(recv(b.peer, in, CHUNK, MSG_WAITALL), CHUNK);
		CHECK(!memcmp(in, out, CHUNK));
		to_peer(&b, "after it");
		from_peer(&b, "before the end");
		finish(&b);
	}
}

TEST(what_another_program_would_inherit)
{
	struct both stays, goes, dup;
	int fd, copy;

	world();
	stays = connection(BY_PEER, AF_INET);
	goes = connection(BY_US, AF_INET);
	dup = connection(BY_PEER, AF_INET6);
	fd = pyvma_sock_fd(goes.us);
	CHECK(fd >= 0 && pyvma_sock_fd(stays.us) >= 0);
	CHECK_EQ(fcntl(fd, F_SETFD, 0), 0);
	copy = fcntl(pyvma_sock_fd(dup.us), F_DUPFD, 0); /* without the flag */
	CHECK(copy >= 0);
	CHECK_EQ(pyvma_hand_back_inheritable(), 0);
	CHECK(offloaded(stays.us) && !offloaded(goes.us) && !offloaded(dup.us));
	to_peer(&goes, "one");
	CHECK_EQ(write(copy, "two", 3), 3); /* the number leads to the connection */
	CHECK_EQ(pyvma_hand_back_fd(0, 0), 0);
	CHECK_EQ(pyvma_hand_back_fd(pyvma_sock_fd(stays.us), 0), 0);
	CHECK(!offloaded(stays.us));
	close(copy);
	CHECK_EQ(recv(dup.peer, (char[3]){ 0 }, 3, MSG_WAITALL), 3);
	finish(&stays);
	finish(&goes);
	finish(&dup);
}

/* ---- beyond ESTABLISHED ------------------------------------------------------------------------------------------------ */

static void stack_is(struct both *b, int state)
{
	struct tcp_info info = { 0 };
	socklen_t len;

	do {
		len = sizeof(info);
		CHECK_EQ(pyvma_sock_getsockopt(b->us, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	} while (info.tcpi_state != state);
}

static void peer_reads_end(struct both *b)
{
	char byte;

	CHECK_EQ(recv(b->peer, &byte, 1, 0), 0);
}

TEST(half_closed_by_the_peer)
{
	world();
	EACH_ROLE(role, family)
	{
		struct both b = connection(role, family);
		char buf[10];

		CHECK_EQ(send(b.peer, "last", 4, 0), 4);
		CHECK_EQ(shutdown(b.peer, SHUT_WR), 0);
		stack_is(&b, PV_TCP_CLOSE_WAIT);
		hand_back(&b);
		CHECK_EQ(kernel_state(b.us), PV_TCP_CLOSE_WAIT);
		CHECK_EQ(pyvma_sock_recv(b.us, buf, sizeof(buf), 0, WAIT_NS), 4);
		CHECK(!memcmp(buf, "last", 4));
		CHECK_EQ(pyvma_sock_recv(b.us, buf, sizeof(buf), 0, WAIT_NS), 0);
		to_peer(&b, "still here");
		finish(&b);
	}
}

TEST(half_closed_by_us)
{
	world();
	EACH_ROLE(role, family)
	{
		struct both b = connection(role, family);
		char byte;

		to_peer(&b, "mine");
		CHECK_EQ(pyvma_sock_shutdown(b.us, SHUT_WR), 0);
		stack_is(&b, PV_TCP_FIN_WAIT_2);
		hand_back(&b);
		CHECK_EQ(kernel_state(b.us), PV_TCP_FIN_WAIT_2);
		peer_reads_end(&b);
		from_peer(&b, "yours");
		close(b.peer);
		CHECK_EQ(pyvma_sock_recv(b.us, &byte, 1, 0, WAIT_NS), 0);
		CHECK_EQ(pyvma_sock_close(b.us), 0);
	}
}

/* A peer whose window is closed, with all that waits for it, and a FIN behind that or not. */
TEST(a_closed_window)
{
	static char out[CHUNK], in[CHUNK];

	world();
	EACH_ROLE(role, family)
	{
		for (int fin = 0; fin < 2; fin++) {
			struct both b = connection(role, family);
			size_t sent = 0, got = 0;
			int64_t n;

			while ((n = pyvma_sock_send(b.us, out, CHUNK, MSG_DONTWAIT, 0)) > 0 || sent < 2 * CHUNK) {
				if (n > 0)
					fill(out, sent + (size_t)n, CHUNK, 5);
				sent += n > 0 ? (size_t)n : 0;
				CHECK(n > 0 || n == -EAGAIN);
			}
			if (fin)
				CHECK_EQ(pyvma_sock_shutdown(b.us, SHUT_WR), 0);
			hand_back(&b);
			for (; got < sent; got += (size_t)n) {
				n = recv(b.peer, in, CHUNK, 0);
				CHECK(n > 0);
				fill(out, got, (size_t)n, 5);
				CHECK(got < CHUNK || !memcmp(in, out, (size_t)n));
			}
			CHECK_EQ(got, sent);
			if (fin)
				peer_reads_end(&b);
			from_peer(&b, "all there");
			finish(&b);
		}
	}
}

TEST(refused)
{
	struct any_addr at = us_at(AF_INET, 0);
	struct both b;
	pyvma_sock *s;
	char byte;

	world();
	s = stream(AF_INET);
	CHECK_EQ(pyvma_sock_bind(s, (struct sockaddr *)&at.ss, at.len), 0);
	CHECK_EQ(pyvma_sock_hand_back(s), -ENOTCONN);
	CHECK_EQ(pyvma_sock_listen(s, 1), 0);
	CHECK_EQ(pyvma_sock_hand_back(s), -ENOTCONN);
	CHECK_EQ(pyvma_sock_close(s), 0);
	b = connection(BY_US, AF_INET);
	CHECK_EQ(send(b.peer, "u", 1, MSG_OOB), 1);
	while (!(pyvma_sock_poll(b.us, POLLPRI, WAIT_NS) & POLLPRI))
		;
	CHECK_EQ(pyvma_sock_hand_back(b.us), -EBUSY);
	CHECK(offloaded(b.us));
	CHECK_EQ(pyvma_sock_recv(b.us, &byte, 1, MSG_OOB, WAIT_NS), 1);
	from_peer(&b, "after it");
	hand_back(&b);
	finish(&b);
}

TEST(options_go_along)
{
	static const struct {
		int level, name, val;
	} set[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },  { IPPROTO_TCP, TCP_KEEPIDLE, 77 }, { IPPROTO_TCP, TCP_KEEPINTVL, 7 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },  { SOL_SOCKET, SO_KEEPALIVE, 1 },   { IPPROTO_IP, IP_TOS, 0x10 },
		{ SOL_SOCKET, SO_REUSEADDR, 1 },  { SOL_SOCKET, SO_RCVBUF, 70000 },  { IPPROTO_TCP, TCP_USER_TIMEOUT, 9000 },
		{ IPPROTO_TCP, TCP_LINGER2, 11 }, { SOL_SOCKET, SO_SNDBUF, 50000 },  { SOL_SOCKET, SO_OOBINLINE, 1 },
	};

	world();
	for (enum role role = 0; role < ROLES; role++) {
		struct both b = connection(role, AF_INET);
		int want[pv_array_size(set)], got;
		socklen_t len = sizeof(int);

		for (size_t i = 0; i < pv_array_size(set); i++) {
			CHECK_EQ(pyvma_sock_setsockopt(b.us, set[i].level, set[i].name, &set[i].val, sizeof(int)), 0);
			CHECK_EQ(pyvma_sock_getsockopt(b.us, set[i].level, set[i].name, &want[i], &len), 0);
		}
		CHECK_EQ(pyvma_sock_set_nonblock(b.us, 1), 0);
		hand_back(&b);
		for (size_t i = 0; i < pv_array_size(set); i++) {
			CHECK_EQ(pyvma_sock_getsockopt(b.us, set[i].level, set[i].name, &got, &len), 0);
			CHECK_EQ(got, want[i]);
		}
		CHECK_EQ(pyvma_sock_recv(b.us, &got, 1, 0, -1), -EAGAIN);
		CHECK(fcntl(pyvma_sock_fd(b.us), F_GETFL) & O_NONBLOCK);
		finish(&b);
	}
}

TEST(sets_go_along)
{
	struct pyvma_event ev = { EPOLLIN, 7 }, got[4];
	struct both b;
	pyvma_epoll *set;

	world();
	b = connection(BY_PEER, AF_INET);
	CHECK_EQ(pyvma_epoll_open(&set), 0);
	CHECK_EQ(pyvma_epoll_ctl_sock(set, EPOLL_CTL_ADD, b.us, &ev), 0);
	CHECK_EQ(pyvma_epoll_wait(set, got, 4, 0), 0);
	hand_back(&b);
	CHECK_EQ(send(b.peer, "x", 1, 0), 1);
	CHECK_EQ(pyvma_epoll_wait(set, got, 4, WAIT_NS), 1);
	CHECK(got[0].data == 7 && got[0].events == EPOLLIN);
	CHECK_EQ(pyvma_sock_recv(b.us, got, 1, 0, 0), 1);
	CHECK_EQ(pyvma_epoll_wait(set, got, 4, 0), 0);
	CHECK_EQ(pyvma_epoll_ctl_sock(set, EPOLL_CTL_DEL, b.us, NULL), 0);
	pyvma_epoll_close(set);
	finish(&b);
}

static bool shows(int fd, int events)
{
	struct pollfd p = { .fd = fd, .events = (short)events };

	return poll(&p, 1, 0) == 1 && (p.revents & events) == events;
}

/* An fd that stock loops watch goes on to show how ready the socket is. */
TEST(a_watched_number_goes_along)
{
	static char buf[CHUNK];
	struct epoll_event ev = { .events = EPOLLIN }, got;
	struct both b;
	size_t sent = 0;
	int fd, kep;

	world();
	b = connection(BY_US, AF_INET);
	fd = pyvma_sock_fileno(b.us);
	kep = epoll_create1(EPOLL_CLOEXEC);
	CHECK_EQ(epoll_ctl(kep, EPOLL_CTL_ADD, fd, &ev), 0);
	hand_back(&b);
	CHECK_EQ(pyvma_sock_fileno(b.us), fd);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(epoll_wait(kep, &got, 1, 0), 0);
		CHECK(!shows(fd, POLLIN) && shows(fd, POLLOUT));
		CHECK_EQ(send(b.peer, "x", 1, 0), 1);
		CHECK_EQ(epoll_wait(kep, &got, 1, 60000), 1);
		CHECK_EQ(pyvma_sock_recv(b.us, buf, 10, 0, 0), 1);
	}
	for (int64_t n; (n = pyvma_sock_send(b.us, buf, CHUNK, MSG_DONTWAIT, 0)) != -EAGAIN || shows(fd, POLLOUT);) {
		CHECK(n > 0 || n == -EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
	}
	while (sent)
		sent -= (size_t)recv(b.peer, buf, PV_MIN(sent, sizeof(buf)), 0);
	CHECK_EQ(poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 60000), 1);
	close(b.peer);
	CHECK_EQ(epoll_wait(kep, &got, 1, 60000), 1);
	CHECK_EQ(pyvma_sock_recv(b.us, buf, 10, 0, WAIT_NS), 0);
	CHECK_EQ(pyvma_sock_close(b.us), 0);
	close(kep);
}

/* ---- fork -------------------------------------------------------------------------------------------------------------- */

static void child_ends(pid_t pid)
{
	int status = -1;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* With a number for the kernel socket before the fork, or without. */
#define EACH_FORK(numbered, role)                                                                                                  \
	for (int numbered = 0; numbered < 2; numbered++)                                                                           \
		for (enum role role = 0; role < ROLES; role++)

TEST(a_child_uses_it)
{
	world();
	EACH_FORK(numbered, role)
	{
		struct both b = connection(role, role == BY_US ? AF_INET6 : AF_INET);
		char buf[10], text[300];
		pid_t pid;

		if (numbered)
			CHECK(pyvma_sock_fd(b.us) >= 0);
		CHECK_EQ(send(b.peer, "unread", 6, 0), 6);
		pid = fork();
		if (!pid) {
			CHECK_EQ(pyvma_sock_recv(b.us, buf, 6, MSG_WAITALL, WAIT_NS), 6);
			CHECK(!memcmp(buf, "unread", 6));
			CHECK_EQ(pyvma_sock_send(b.us, "child", 5, 0, -1), 5);
			CHECK_EQ(kernel_state(b.us), PV_TCP_ESTABLISHED);
			_exit(0);
		}
		CHECK_EQ(recv(b.peer, buf, 5, MSG_WAITALL), 5);
		child_ends(pid);
		CHECK_EQ(pyvma_sock_offload(b.us, text, sizeof(text)), PYVMA_KERNEL);
		CHECK(!strcmp(text, "handed back: used by a forked child"));
		to_peer(&b, "parent");
		from_peer(&b, "both");
		finish(&b);
	}
}

/* As a server that forks for each connection. */
TEST(the_parent_closes_it_at_once)
{
	world();
	EACH_FORK(numbered, role)
	{
		struct both b = connection(role, AF_INET);
		int go[2];
		char buf[10];
		pid_t pid;

		if (numbered)
			CHECK(pyvma_sock_fd(b.us) >= 0);
		CHECK_EQ(pipe2(go, O_CLOEXEC), 0);
		pid = fork();
		if (!pid) {
			close(b.peer); /* it is in the same process */
			CHECK_EQ(read(go[0], buf, 1), 1);
			CHECK_EQ(pyvma_sock_recv(b.us, buf, 4, MSG_WAITALL, WAIT_NS), 4);
			CHECK_EQ(pyvma_sock_send(b.us, buf, 4, 0, -1), 4);
			CHECK_EQ(pyvma_sock_close(b.us), 0);
			CHECK_EQ(read(go[0], buf, 1), 1);
			_exit(0);
		}
		CHECK_EQ(pyvma_sock_close(b.us), 0);
		CHECK_EQ(write(go[1], "g", 1), 1);
		CHECK_EQ(send(b.peer, "echo", 4, 0), 4);
		CHECK_EQ(recv(b.peer, buf, 4, MSG_WAITALL), 4);
		CHECK(!memcmp(buf, "echo", 4));
		/* The child has closed it and lives. */
		CHECK_EQ(recv(b.peer, buf, 1, 0), 0);
		CHECK_EQ(write(go[1], "g", 1), 1);
		child_ends(pid);
		close(b.peer);
		close(go[0]);
		close(go[1]);
	}
}

/* The parent hands it back because it closes it, while the child asks: whoever is first, the child's call works. */
TEST(the_parent_closes_it_meanwhile)
{
	world();
	for (int round = 0; round < 60; round++) {
		struct both b = connection(BY_PEER, AF_INET);
		char buf[10];
		pid_t pid;

		if (round % 3)
			CHECK(pyvma_sock_fd(b.us) >= 0);
		CHECK_EQ(send(b.peer, "echo", 4, 0), 4);
		pid = fork();
		if (!pid) {
			close(b.peer);
			for (int i = 0; i < round % 20 * 2000; i++)
				__asm__ volatile("" ::: "memory");
			CHECK_EQ(pyvma_sock_recv(b.us, buf, 4, MSG_WAITALL, WAIT_NS), 4);
			CHECK_EQ(pyvma_sock_send(b.us, buf, 4, 0, -1), 4);
			_exit(0);
		}
		CHECK_EQ(pyvma_sock_close(b.us), 0);
		CHECK_EQ(recv(b.peer, buf, 4, MSG_WAITALL), 4);
		CHECK(!memcmp(buf, "echo", 4));
		child_ends(pid);
		CHECK_EQ(recv(b.peer, buf, 1, 0), 0);
		close(b.peer);
	}
}

TEST(nobody_uses_it)
{
	world();
	EACH_FORK(numbered, role)
	{
		struct both b = connection(role, AF_INET);
		pid_t pid;

		if (numbered)
			CHECK(pyvma_sock_fd(b.us) >= 0);
		pid = fork();
		if (!pid)
			_exit(0);
		child_ends(pid);
		to_peer(&b, "the stack's");
		from_peer(&b, "it still is");
		CHECK(offloaded(b.us));
		/* While a child lives the end is the child's. */
		pid = fork();
		if (!pid) {
			pause();
			_exit(1);
		}
		CHECK_EQ(pyvma_sock_close(b.us), 0);
		CHECK_EQ(recv(b.peer, &(char){ 0 }, 1, MSG_DONTWAIT), -1);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, NULL, 0), pid);
		peer_reads_end(&b);
		close(b.peer);
	}
}

/* ---- while data flows both ways ---------------------------------------------------------------------------------------- */

#define BULK (3u << 20)

struct transfer {
	struct both b;
	size_t size;
	unsigned int seed;
	_Atomic(size_t) sent, received; /* by us */
};

static void *we_send(void *arg)
{
	struct transfer *t = arg;
	static _Thread_local char buf[CHUNK];

	while (t->sent < t->size) {
		size_t n = PV_MIN(sizeof(buf), t->size - t->sent);

		fill(buf, t->sent, n, t->seed);
		CHECK_EQ(pyvma_sock_send(t->b.us, buf, n, 0, -1), n);
		t->sent += n;
	}
	CHECK_EQ(pyvma_sock_shutdown(t->b.us, SHUT_WR), 0);
	return NULL;
}

static void *we_receive(void *arg)
{
	struct transfer *t = arg;
	static _Thread_local char buf[CHUNK], want[CHUNK];
	int64_t n;

	while ((n = pyvma_sock_recv(t->b.us, buf, sizeof(buf), 0, WAIT_NS)) > 0) {
		fill(want, t->received, (size_t)n, ~t->seed);
		CHECK(!memcmp(buf, want, (size_t)n));
		t->received += (size_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(t->received, t->size);
	return NULL;
}

static void *peer_sends(void *arg)
{
	struct transfer *t = arg;
	static _Thread_local char buf[CHUNK];

	for (size_t at = 0; at < t->size;) {
		size_t n = PV_MIN(sizeof(buf), t->size - at);

		fill(buf, at, n, ~t->seed);
		CHECK_EQ(send(t->b.peer, buf, n, MSG_NOSIGNAL), n);
		at += n;
	}
	CHECK_EQ(shutdown(t->b.peer, SHUT_WR), 0);
	return NULL;
}

static void *peer_receives(void *arg)
{
	struct transfer *t = arg;
	static _Thread_local char buf[CHUNK], want[CHUNK];
	size_t got = 0;
	ssize_t n;

	while ((n = recv(t->b.peer, buf, sizeof(buf), 0)) > 0) {
		fill(want, got, (size_t)n, t->seed);
		CHECK(!memcmp(buf, want, (size_t)n));
		got += (size_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(got, t->size);
	return NULL;
}

static void while_it_flows(enum role role, int family, size_t size, size_t when, unsigned int seed)
{
	static void *(*const parts[])(void *) = { we_send, we_receive, peer_sends, peer_receives };
	struct transfer t = { .b = connection(role, family), .size = size, .seed = seed };
	pthread_t id[4];
	int rc;

	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&id[i], NULL, parts[i], &t), 0);
	while (t.sent + t.received < when)
		sched_yield();
	rc = pyvma_sock_hand_back(t.b.us);
	if (rc && rc != -ENOTCONN)
		fprintf(stderr, "%d: %s\n", rc, pyvma_last_error());
	CHECK(rc == 0 || rc == -ENOTCONN); /* over already */
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(id[i], NULL), 0);
	CHECK_EQ(pyvma_sock_close(t.b.us), 0);
	close(t.b.peer);
}

static unsigned int rounds = 2; /* the second argument of the program */

TEST(while_data_flows)
{
	unsigned int seed = 1;

	world();
	for (unsigned int i = 0; i < rounds; i++)
		EACH_ROLE(role, family)
	while_it_flows(role, family, BULK, (size_t)rand_r(&seed) % (2 * BULK), seed);
	fprintf(stderr, "handed back %" PRIu64 ", dropped on the way %" PRIu64 ", resets sent %" PRIu64 "\n",
		counter("tcp.handed_back"), counter("tcp.rx_handed_back"), counter("tcp.tx_resets"));
}

int main(int argc, char **argv)
{
	if (argc > 2)
		rounds = (unsigned int)strtoul(argv[2], NULL, 10);
	return test_main(argc, argv);
}
#endif
