/* SPDX-License-Identifier: BSD-3-Clause */
/* decide_late: sockets that the kernel has bound, listens or is connected by are adopted, and nothing that it has is lost. */
#include <arpa/inet.h>

#include "sock_host_env.h"

static void late_world(void)
{
	CHECK(!*env_fabric ? pyvma_config_set("decide_late", "1") == 0 : 1);
	world();
}

static struct sockaddr_in at(const char *host, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	CHECK_EQ(inet_pton(AF_INET, host, &a.sin_addr), 1);
	return a;
}

/* A kernel socket here, bound; its port. */
static int bound(int type, const char *host, int *port)
{
	struct sockaddr_in a = at(host, 0);
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, type, 0);

	CHECK_EQ(bind(fd, (struct sockaddr *)&a, len), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

static int of_peer(int type)
{
	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	int fd = socket(AF_INET, type, 0);

	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	CHECK(fd >= 0);
	return fd;
}

static int peer_connected(int type, int port)
{
	struct sockaddr_in a = at("10.1.0.1", port);
	int fd = of_peer(type);

	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	CHECK_EQ(poll(&p, 1, 30000), 1);
}

static int state_of(pyvma_sock *h)
{
	char text[256];

	return pyvma_sock_offload(h, text, sizeof(text));
}

static void hears(pyvma_sock *h, const char *text)
{
	char buf[64];

	CHECK_EQ(pyvma_sock_recv(h, buf, sizeof(buf), 0, WAIT_NS), (int64_t)strlen(text));
	CHECK(!memcmp(buf, text, strlen(text)));
}

TEST(datagrams_that_were_there_before)
{
	struct pyvma_sock_stats st;
	pyvma_sock *h;
	int port, fd, peer;

	late_world();
	fd = bound(SOCK_DGRAM, "0.0.0.0", &port);
	peer = peer_connected(SOCK_DGRAM, port);
	CHECK_EQ(send(peer, "early", 5, 0), 5);
	wait_readable(fd);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(state_of(h), PYVMA_OFFLOADED);
	hears(h, "early");
	CHECK_EQ(send(peer, "late", 4, 0), 4);
	hears(h, "late");
	CHECK_EQ(pyvma_sock_stats(h, &st), 0);
	CHECK(st.kernel_rx_datagrams == 1 && st.rx_datagrams == 1);
	CHECK_EQ(pyvma_sock_close(h), 0);
	close(peer);
}

TEST(connections_that_were_there_before)
{
	int port, fd, first, second;
	pyvma_sock *h, *early, *late;

	late_world();
	fd = bound(SOCK_STREAM, "10.1.0.1", &port);
	CHECK_EQ(listen(fd, 7), 0);
	first = peer_connected(SOCK_STREAM, port);
	wait_readable(fd);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(state_of(h), PYVMA_OFFLOADED);
	second = peer_connected(SOCK_STREAM, port);
	CHECK_EQ(pyvma_sock_accept(h, NULL, NULL, 0, WAIT_NS, &early), 0);
	CHECK_EQ(pyvma_sock_accept(h, NULL, NULL, 0, WAIT_NS, &late), 0);
	/* Which comes first is nobody's business: one is the kernel's and one ours. */
	if (state_of(early) == PYVMA_OFFLOADED) {
		pyvma_sock *swap = early;

		early = late;
		late = swap;
	}
	CHECK_EQ(state_of(early), PYVMA_KERNEL);
	CHECK_EQ(state_of(late), PYVMA_OFFLOADED);
	CHECK_EQ(send(first, "to the kernel", 13, 0), 13);
	CHECK_EQ(send(second, "to us", 5, 0), 5);
	hears(early, "to the kernel");
	hears(late, "to us");
	CHECK_EQ(pyvma_sock_close(early), 0);
	CHECK_EQ(pyvma_sock_close(late), 0);
	CHECK_EQ(pyvma_sock_close(h), 0);
	close(first);
	close(second);
}

TEST(peers_that_were_there_before)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	pyvma_sock *h;
	int port, fd, peer, listener;

	late_world();
	fd = bound(SOCK_DGRAM, "0.0.0.0", &port);
	peer = peer_connected(SOCK_DGRAM, port);
	CHECK_EQ(getsockname(peer, (struct sockaddr *)&a, &len), 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, len), 0);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(state_of(h), PYVMA_OFFLOADED);
	CHECK_EQ(send(peer, "hello", 5, 0), 5);
	hears(h, "hello");
	CHECK_EQ(pyvma_sock_close(h), 0);
	close(peer);
	/* A connection has numbers that only the kernel knows. */
	listener = of_peer(SOCK_STREAM);
	a = at("10.1.0.2", 0);
	CHECK_EQ(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(listener, 1), 0);
	CHECK_EQ(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, len), 0);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(state_of(h), PYVMA_KERNEL);
	CHECK_EQ(pyvma_sock_close(h), 0);
	close(listener);
}

TEST(names_of_the_kernels)
{
	pyvma_sock *h;
	int port, fd;

	late_world();
	fd = bound(SOCK_DGRAM, "127.0.0.1", &port);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(state_of(h), PYVMA_KERNEL);
	CHECK_EQ(pyvma_sock_close(h), 0);
	fd = bound(SOCK_STREAM, "127.0.0.1", &port);
	CHECK_EQ(listen(fd, 1), 0);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(state_of(h), PYVMA_KERNEL);
	CHECK_EQ(pyvma_sock_close(h), 0);
	/* Neither bound nor used: nothing is decided. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(pyvma_sock_adopt(fd, &h), 0);
	CHECK_EQ(state_of(h), PYVMA_UNDECIDED);
	CHECK_EQ(pyvma_sock_close(h), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
