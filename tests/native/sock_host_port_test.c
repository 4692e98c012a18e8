/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports of streams that connect without a name, on an interface that the kernel owns: kept by kernel sockets of ours, from one connection to
 * the next, and nobody else's meanwhile.
 */
#include "test.h"

#if !defined(PV_HAVE_NETLINK) || !defined(PV_HAVE_XDP)
int main(void)
{
	puts("skip: built without libmnl or libbpf");
	return 77;
}
#else
#include <sys/wait.h>

#include "rt/engine.h"
#include "rt/host.h"
#include "sock_host_env.h"
#include "tcp/conn.h"

/* A kernel socket of the other namespace that listens. */
static int peer_listener(struct any_addr *at)
{
	struct any_addr any = ip("10.1.0.2", 0);
	int fd;

	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&any.ss, any.len), 0);
	CHECK_EQ(listen(fd, 20), 0);
	at->len = sizeof(at->ss);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&at->ss, &at->len), 0);
	return fd;
}

static pyvma_sock *stream(void)
{
	pyvma_sock *s;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s), 0);
	return s;
}

static uint16_t port_of(pyvma_sock *s)
{
	struct any_addr name = { .len = sizeof(name.ss) };

	CHECK_EQ(pyvma_sock_getsockname(s, (struct sockaddr *)&name.ss, &name.len), 0);
	return addr_port(&name);
}

static pyvma_sock *connected(const struct any_addr *to, uint16_t *port)
{
	pyvma_sock *s = stream();
	char text[300];

	CHECK_EQ(pyvma_sock_connect(s, (const struct sockaddr *)&to->ss, to->len, WAIT_NS), 0);
	CHECK_EQ(pyvma_sock_offload(s, text, sizeof(text)), PYVMA_OFFLOADED);
	*port = port_of(s);
	return s;
}

static uint32_t idle(void)
{
	uint32_t n;

	pv_lock_get(&pv_engine.lock);
	pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
	n = pv_engine.tcp->nidle;
	pv_lock_put(&pv_engine.lock);
	return n;
}

/* Nobody in the stack has it: it is idle, or was given back already. */
static bool is_free(uint16_t port)
{
	struct pv_tcp_port *p;
	bool is;

	pv_lock_get(&pv_engine.lock);
	pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
	p = pv_tcp_port_find(pv_engine.tcp, port);
	is = !p || (p->reserve && !pv_list_empty(&p->reserve->idle));
	pv_lock_put(&pv_engine.lock);
	return is;
}

/* The peer has closed first: nothing of the connection stays here. */
static void over(pyvma_sock *s, int listener)
{
	int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	uint16_t port = port_of(s);
	int64_t limit;
	char byte;

	CHECK(peer >= 0);
	close(peer);
	CHECK_EQ(pyvma_sock_recv(s, &byte, 1, 0, WAIT_NS), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
	limit = pv_clock_now(&pv_engine.clock) + 60 * PV_NS_PER_S;
	while (!is_free(port))
		CHECK(pv_clock_now(&pv_engine.clock) < limit);
}

static int bind_kernel(uint16_t port)
{
	struct any_addr at = ip("10.1.0.1", port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	rc = bind(fd, (struct sockaddr *)&at.ss, at.len) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/* In use: the kernel says so. Idle: as long as it is. */
static void is_kept(uint16_t port, uint32_t is_idle)
{
	int rc = bind_kernel(port);

	CHECK(rc == -EADDRINUSE || (is_idle && !idle()));
}

TEST(one_after_the_other)
{
	uint16_t port = 0, before = 0;
	struct any_addr one, two;
	unsigned int same = 0;
	int l, m;

	world();
	l = peer_listener(&one);
	m = peer_listener(&two);
	for (int i = 0; i < 10; i++) {
		pyvma_sock *s = connected(i % 2 ? &two : &one, &port);

		same += port == before;
		before = port;
		is_kept(port, 0);
		over(s, i % 2 ? m : l);
		is_kept(port, 1);
	}
	CHECK(same > 0);
	close(l);
	close(m);
}

TEST(given_back)
{
	struct any_addr at, name;
	uint16_t port;
	int l, rc;

	world();
	l = peer_listener(&at);
	/* To the program that names it, at once. */
	over(connected(&at, &port), l);
	name = ip("10.1.0.1", port);
	pyvma_sock *s = stream();

	CHECK_EQ(pyvma_sock_bind(s, (struct sockaddr *)&name.ss, name.len), 0);
	CHECK_EQ(pyvma_sock_listen(s, 5), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
	/* To everybody, soon. */
	over(connected(&at, &port), l);
	while ((rc = bind_kernel(port)) == -EADDRINUSE)
		(void)idle();
	CHECK_EQ(rc, 0);
	close(l);
}

/* Whoever asks for the kernel socket gets the one that has the port, and then it is not kept. */
TEST(lent_to_the_program)
{
	struct any_addr at, name = { .len = sizeof(name.ss) };
	pyvma_sock *s;
	uint16_t port;
	char byte;
	int l, fd, peer;

	world();
	l = peer_listener(&at);
	s = connected(&at, &port);
	fd = pyvma_sock_fd(s);
	CHECK(fd >= 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&name.ss, &name.len), 0);
	CHECK_EQ(addr_port(&name), port);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	close(peer);
	CHECK_EQ(pyvma_sock_recv(s, &byte, 1, 0, WAIT_NS), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
	while (bind_kernel(port) == -EADDRINUSE)
		CHECK_EQ(idle(), 0);
	close(l);
}

/* Options that change what the port is reserved as. */
TEST(shared_is_not_reserved)
{
	struct any_addr at;
	pyvma_sock *s = NULL;
	int l, one = 1;

	world();
	l = peer_listener(&at);
	s = stream();
	CHECK_EQ(pyvma_sock_setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	CHECK_EQ(pyvma_sock_connect(s, (struct sockaddr *)&at.ss, at.len, WAIT_NS), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
	CHECK_EQ(idle(), 0);
	close(l);
}

/* A thread that goes elsewhere: its sockets are the kernel's there, and those that it had are where they were. */
TEST(other_namespaces)
{
	struct any_addr at, far = { .len = sizeof(far.ss) };
	pyvma_sock *s, *t;
	uint16_t port;
	char text[300];
	int l, fd;

	world();
	l = peer_listener(&at);
	s = stream();
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	t = stream();
	CHECK_EQ(pyvma_sock_offload(t, text, sizeof(text)), PYVMA_KERNEL);
	CHECK_EQ(pyvma_sock_connect(s, (struct sockaddr *)&at.ss, at.len, WAIT_NS), 0);
	CHECK_EQ(pyvma_sock_offload(s, text, sizeof(text)), PYVMA_OFFLOADED);
	port = port_of(s);
	fd = pyvma_sock_fd(s);
	CHECK(fd >= 0 && pv_host_same_netns(&pv_engine, fd));
	CHECK(!pv_host_home(&pv_engine));
	CHECK_EQ(pyvma_sock_close(s), 0);
	/* One that nobody has connected is made at home, too. */
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	CHECK(pv_host_home(&pv_engine));
	s = stream();
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	fd = pyvma_sock_fd(s);
	CHECK(fd >= 0 && pv_host_same_netns(&pv_engine, fd));
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
	CHECK_EQ(pyvma_sock_close(t), 0);
	fd = accept4(l, (struct sockaddr *)&far.ss, &far.len, SOCK_CLOEXEC);
	CHECK_EQ(addr_port(&far), port);
	close(fd);
	close(l);
}

/* A child that lives on does not keep the parent's. */
TEST(a_child_keeps_none)
{
	struct any_addr at;
	uint16_t port;
	pid_t child;
	int l, status;

	world();
	l = peer_listener(&at);
	over(connected(&at, &port), l);
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	while (bind_kernel(port) == -EADDRINUSE)
		(void)idle();
	kill(child, SIGKILL);
	CHECK_EQ(waitpid(child, &status, 0), child);
	close(l);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
