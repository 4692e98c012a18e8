/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a datagram goes is found without asking the kernel for each one. */
#include <dlfcn.h>
#include <ifaddrs.h>
#include <sys/syscall.h>

#include "rt/clock.h"
#include "sock_env.h"

/* The library's calls of these come here first. */
static _Atomic(int) asked, listed;

int getsockopt(int fd, int level, int name, void *restrict val, socklen_t *restrict len)
{
	asked++;
	return (int)syscall(SYS_getsockopt, fd, level, name, val, len);
}

int getifaddrs(struct ifaddrs **list)
{
	int (*real)(struct ifaddrs **);

	*(void **)&real = dlsym(RTLD_NEXT, "getifaddrs");
	listed++;
	return real(list);
}

static void start_with_gateway(void)
{
	char text[256];

	if (*env_fabric)
		return;
	snprintf(env_fabric, sizeof(env_fabric), "g%08x", (unsigned int)getpid() ^ (unsigned int)time(NULL) << 12);
	snprintf(text, sizeof(text), "softnic:fabric=%s,port=0,addr=10.9.0.1/24,gw=10.9.0.254,name=sn0", env_fabric);
	CHECK_EQ(pyvma_config_set("softnic_lib", SOFTNIC_LIB), 0);
	CHECK_EQ(pyvma_config_set("interfaces", text), 0);
	CHECK_EQ(pyvma_config_set("log_level", "error"), 0);
	CHECK_EQ(pyvma_start(), 0);
}

/* Alternates, so that no destination is the last one's. Nobody is there: what waits for a neighbour may be dropped, or reported. */
static void alternate(struct sk s, const char *one, const char *other)
{
	struct any_addr to[2] = { ip(one, 9), ip(other, 9) };
	int64_t start;

	for (int i = 0; i < 4; i++)
		(void)sk_sendto(s, "x", 1, MSG_DONTWAIT, to[i % 2]);
	start = pv_clock_kernel_ns();
	asked = listed = 0;
	for (int i = 0; i < 200; i++)
		(void)sk_sendto(s, "x", 1, MSG_DONTWAIT, to[i % 2]);
	CHECK_EQ(asked, 0);
	/* The kernel's addresses may be read again after a second. */
	CHECK(listed <= 1 + (pv_clock_kernel_ns() - start) / PV_NS_PER_S);
}

TEST(no_questions_for_each_destination)
{
	start_with_gateway();
	struct sk s = sk_open(&our_side, AF_INET);

	CHECK_EQ(sk_bind(s, ip("0.0.0.0", 0)), 0);
	CHECK(is_offloaded(s));
	alternate(s, "10.9.0.2", "10.9.0.3");
	alternate(s, "203.0.113.1", "203.0.113.2");
	alternate(s, "239.1.2.3", "239.1.2.4");
	CHECK_EQ(sk_close(s), 0);
}

/* By the bare fd, which the library does not see; the kernel's answers are asked for anew before a decision. */
TEST(a_device_is_seen_at_bind)
{
	start_with_gateway();
	struct sk s = sk_open(&our_side, AF_INET);

	if (setsockopt(s.fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0) {
		CHECK_EQ(sk_bind(s, ip("0.0.0.0", 0)), 0);
		CHECK(!is_offloaded(s));
	}
	CHECK_EQ(sk_close(s), 0);
}

/* A device that is set, and taken off, on a bound socket is in force for the next datagram. */
TEST(a_device_set_later)
{
	start_with_gateway();
	struct sk s = sk_open(&our_side, AF_INET), peer = sk_open(&kernel_side, AF_INET);
	struct any_addr name;
	char b[4];

	CHECK_EQ(sk_bind(s, ip("0.0.0.0", 0)), 0);
	CHECK_EQ(sk_bind(peer, ip("127.0.0.1", 0)), 0);
	CHECK_EQ(sk_name(peer, &name), 0);
	CHECK_EQ(sk_sendto(s, "a", 1, 0, name), 1);
	CHECK_EQ(sk_recv(peer, b, sizeof(b), 0), 1);
	if (sk_set(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0) {
		struct pyvma_sock_stats before, after;

		/* The kernel's interface does not lead to ours. */
		CHECK_EQ(pyvma_sock_stats(s.h, &before), 0);
		(void)sk_sendto(s, "b", 1, 0, ip("10.9.0.2", 9));
		CHECK_EQ(pyvma_sock_stats(s.h, &after), 0);
		CHECK_EQ(after.tx_datagrams, before.tx_datagrams);
		CHECK_EQ(sk_set(s, SOL_SOCKET, SO_BINDTODEVICE, "", 0), 0);
		CHECK_EQ(sk_sendto(s, "c", 1, 0, ip("10.9.0.3", 9)), 1);
		CHECK_EQ(pyvma_sock_stats(s.h, &after), 0);
		CHECK_EQ(after.tx_datagrams, before.tx_datagrams + 1);
	}
	CHECK_EQ(sk_close(s), 0);
	CHECK_EQ(sk_close(peer), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
