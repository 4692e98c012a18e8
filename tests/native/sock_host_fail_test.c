/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every system call that an interface of the kernel's needs fails once, and from then on, one after the other: the engine then has a ring
 * all the same or the sockets stay on the kernel with a reason, datagrams flow in either case, and nothing is left behind.
 *
 * The calls are wrapped here, in the program: its symbols come before libc's for every library of the process, libbpf and libmnl
 * included. Only calls of the thread that asked for it fail.
 */
#include "test.h"

#if !defined(PV_HAVE_NETLINK) || !defined(PV_HAVE_XDP)
int main(void)
{
	puts("skip: built without libmnl or libbpf");
	return 77;
}
#else
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "ring/fault.h"
#include "rt/engine.h"
#include "rt/host.h"
#include "sock/sock.h"
#include "sock_host_fail.h"

/* ---- what is left ------------------------------------------------------------------------------------------------------ */

static int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Queues of AF_XDP sockets, buffers of pools. */
static int mappings(void)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[500];
	int n = 0;

	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		bool flags = !strncmp(line, "VmFlags:", 8);

		n += strstr(line, "socket:[") != NULL || (flags && strstr(line, " dc"));
	}
	fclose(f);
	return n;
}

/* Programs, maps and links of ours are fds; one that outlived its fd would still hang on the interface. */
static bool has_program(void)
{
	int rc = system("timeout 20 ip -o link show v0 | grep -q xdp");

	CHECK(WIFEXITED(rc));
	return WEXITSTATUS(rc) == 0;
}

struct rest {
	int fds, mappings;
};

static struct rest rest_now(void)
{
	return (struct rest){ open_fds(), mappings() };
}

static void check_rest(const struct rest *before)
{
	struct rest now = rest_now();

	CHECK_EQ(now.fds, before->fds);
	CHECK_EQ(now.mappings, before->mappings);
	CHECK(!has_program());
	/* The standard ones are the program's. */
	for (int fd = 0; fd < 3; fd++)
		CHECK(fcntl(fd, F_GETFD) >= 0);
}

/* ---- one life of an engine --------------------------------------------------------------------------------------------- */

static struct any_addr echo_addr;
static struct sk echo_sock;

static void setup(void)
{
	world();
	pv_lock_get(&pv_engine.lock);
	CHECK(pv_ready_extra_fd() >= 0); /* one for the life of the process */
	pv_lock_put(&pv_engine.lock);
	if (echo_sock.fd <= 0)
		echo_sock = peer_open(AF_INET, &echo_addr);
}

/* There and back. */
static void ping(struct sk s)
{
	static unsigned int number;
	char text[40], buf[100];
	struct any_addr from;

	snprintf(text, sizeof(text), "ping %u", number++);
	CHECK_EQ(sk_send(s, text, strlen(text), 0), (int64_t)strlen(text));
	do {
		CHECK_EQ(sk_recvfrom(echo_sock, buf, sizeof(buf), 0, &from), (int64_t)strlen(text));
	} while (memcmp(buf, text, strlen(text)));
	CHECK_EQ(sk_sendto(echo_sock, text, strlen(text), 0, from), (int64_t)strlen(text));
	CHECK_EQ(sk_recv(s, buf, sizeof(buf), 0), (int64_t)strlen(text));
	CHECK(!memcmp(buf, text, strlen(text)));
}

static const char *reason(void)
{
	static struct pyvma_kernel_interface ki;

	CHECK_EQ(pyvma_kernel_interface_get(1, &ki), 0);
	CHECK_EQ(!*ki.reason, ki.offloaded);
	return ki.offloaded ? NULL : ki.reason;
}

/* Offloaded, or on the kernel with the interface's reason; by connect and by bind. */
static void exchange(void)
{
	char before[300], text[300];

	for (int bound = 0; bound < 2;) {
		struct sk s = open_limited(&ours_here, AF_INET);
		const char *why = reason();
		int state;

		snprintf(before, sizeof(before), "%s", why ? why : "");
		if (bound)
			CHECK_EQ(sk_bind(s, ip("10.1.0.1", 0)), 0);
		CHECK_EQ(sk_connect(s, echo_addr), 0);
		state = pyvma_sock_offload(s.h, text, sizeof(text));
		ping(s);
		sk_close(s);
		why = reason();
		/* What the failure kept from the engine it may learn at any time after. */
		if (strcmp(before, why ? why : ""))
			continue;
		CHECK_EQ(state, why ? PYVMA_KERNEL : PYVMA_OFFLOADED);
		if (why && strcmp(text, why))
			fprintf(stderr, "the socket says \"%s\", the interface \"%s\"\n", text, why);
		CHECK(!why || !strcmp(text, why));
		bound++;
	}
}

/* Starts under the failure armed; true when it met it. */
static bool one_life(const struct rest *before, unsigned int *fallbacks)
{
	int rc = pyvma_start();
	unsigned int hits = disarm();

	if (!rc) {
		*fallbacks += reason() != NULL;
		CHECK(hits || !reason());
		exchange();
		pyvma_stop();
	} else {
		/* Not the interface's: the engine itself cannot start, and says so. */
		CHECK(hits && *pyvma_last_error());
		++*fallbacks;
	}
	check_rest(before);
	return hits != 0;
}

static void each_call(enum call call, bool lasting, int err)
{
	unsigned int n = 0, fallbacks = 0;
	struct rest before;
	bool hit;

	setup();
	pyvma_stop();
	before = rest_now();
	do {
		arm(call, ++n, lasting, err);
		hit = one_life(&before, &fallbacks);
	} while (hit);
	printf("# %s %s with %s: %u calls, %u times without a ring\n", call_names[call], lasting ? "fails for good" : "fails once",
	       strerrorname_np(err), n - 1, fallbacks);
	CHECK(n > 1);
	CHECK_EQ(pyvma_start(), 0);
}

#define EACH(id, call, lasting, err)                                                                                               \
	TEST(id)                                                                                                                   \
	{                                                                                                                          \
		each_call(CALL_##call, lasting, err);                                                                              \
	}

EACH(bpf_once, bpf, false, ENOMEM)
EACH(bpf_from_then_on, bpf, true, EPERM)
EACH(socket_once, socket, false, EMFILE)
EACH(socket_from_then_on, socket, true, EAFNOSUPPORT)
EACH(bind_once, bind, false, EINVAL)
EACH(bind_from_then_on, bind, true, EBUSY)
EACH(setsockopt_once, setsockopt, false, ENOBUFS)
EACH(setsockopt_from_then_on, setsockopt, true, ENOPROTOOPT)
EACH(getsockopt_once, getsockopt, false, EOPNOTSUPP)
EACH(mmap_once, mmap, false, ENOMEM)
EACH(mmap_from_then_on, mmap, true, EPERM)
EACH(ioctl_once, ioctl, false, ENODEV)
EACH(eventfd_once, eventfd, false, EMFILE)
EACH(memory_once, aligned_alloc, false, ENOMEM)
EACH(netlink_send_once, sendto, false, ENOBUFS)
EACH(netlink_receive_once, recvmsg, false, ENOBUFS)
EACH(netlink_receive_from_then_on, recvmsg, true, EAGAIN)
EACH(getsockname_once, getsockname, false, ENOBUFS)

/* A second queue, whose socket shares the first one's memory; only then is there an epoll set around them. */
TEST(two_queues)
{
	static const enum call calls[] = { CALL_bpf,  CALL_socket,        CALL_bind,     CALL_setsockopt,
					   CALL_mmap, CALL_epoll_create1, CALL_epoll_ctl };
	struct pyvma_interface ifc;
	int left = 200;

	setup();
	CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
	CHECK_EQ(ifc.queues, 1);
	if (system("timeout 20 ethtool -L v0 rx 2 tx 2 2>/dev/null"))
		test_skip("this kernel's veth has one queue, or there is no ethtool");
	for (size_t i = 0; i < pv_array_size(calls); i++)
		each_call(calls[i], false, ENOMEM);
	CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
	CHECK_EQ(ifc.queues, 2);
	pyvma_stop();
	/* The kernel lets go of closed AF_XDP sockets a while later, and of their queues then only. */
	while (system("timeout 20 ethtool -L v0 rx 1 tx 1 2>/dev/null")) {
		CHECK(left--);
		usleep(50000);
	}
	CHECK_EQ(pyvma_start(), 0);
}

/* In strict mode the start fails instead. */
TEST(strict)
{
	unsigned int n = 0, failures = 0, hits;
	struct rest before;

	setup();
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("strict", "1"), 0);
	before = rest_now();
	do {
		arm(CALL_setsockopt, ++n, false, ENOMEM);
		int rc = pyvma_start();

		hits = disarm();
		if (rc) {
			CHECK(hits);
			CHECK_EQ(rc, -ENOMEM);
			CHECK(strstr(pyvma_last_error(), "v0"));
			failures++;
		} else {
			CHECK(!reason());
			pyvma_stop();
		}
		check_rest(&before);
	} while (hits);
	CHECK(failures > 0);
	CHECK_EQ(pyvma_config_set("strict", "0"), 0);
	CHECK_EQ(pyvma_start(), 0);
}

/* ---- an engine that runs ----------------------------------------------------------------------------------------------- */

static void wait_ring(bool there)
{
	const struct timespec nap = { .tv_nsec = 2 * NS_MS };

	for (int i = 0; i < 10000; i++) {
		struct pyvma_interface ifc;

		if (!reason() == there && (!there || (pyvma_interface_get(1, &ifc) == 0 && ifc.link_up)))
			return;
		nanosleep(&nap, NULL);
	}
	CHECK(!"the interface has a ring, or none");
}

/* What could not be read at the start is read with the next change. */
TEST(the_tables_are_read_later)
{
	unsigned int n = 0, blind = 0;

	setup();
	do {
		pyvma_stop();
		arm(CALL_recvmsg, ++n, false, ENOBUFS);
		CHECK_EQ(pyvma_start(), 0);
		unsigned int hits = disarm();

		if (!hits)
			break;
		/* Without the policy rules more is asked later, that is all. */
		CHECK(!reason() || strstr(reason(), "cannot be read"));
		blind += reason() != NULL;
		ip_in(own_ns, "addr add 10.1.0.%u/24 dev v0", 100 + n);
		wait_ring(true);
		exchange();
		ip_in(own_ns, "addr del 10.1.0.%u/24 dev v0", 100 + n);
	} while (true);
	CHECK(blind > 1);
}

static int state_of(struct sk s, const char **text)
{
	static char buf[300];

	*text = buf;
	return pyvma_sock_offload(s.h, buf, sizeof(buf));
}

/* No rule, be it that the map is full: that socket stays on the kernel, the next one need not. */
TEST(rules_that_cannot_be_had)
{
	static const int errors[] = { ENOMEM, E2BIG, EPERM, EBUSY };

	setup();
	for (size_t i = 0; i < pv_array_size(errors); i++) {
		const char *text;

		for (unsigned int n = 1;; n++) {
			struct sk s = open_limited(&ours_here, AF_INET), u;
			struct any_addr name;

			arm(CALL_bpf, n, false, errors[i]);
			CHECK_EQ(sk_bind(s, ip("10.1.0.1", 0)), 0);
			unsigned int hits = disarm();

			CHECK_EQ(state_of(s, &text), hits ? PYVMA_KERNEL : PYVMA_OFFLOADED);
			CHECK(!hits || strstr(text, errors[i] == ENOMEM ? "no memory" : "no flow rule"));
			CHECK_EQ(sk_name(s, &name), 0);
			CHECK_EQ(sk_connect(s, echo_addr), 0);
			ping(s);
			sk_close(s);
			/* Nothing of the half-made rule is in the way. */
			u = open_limited(&ours_here, AF_INET);
			CHECK_EQ(sk_bind(u, name), 0);
			CHECK_EQ(state_of(u, &text), PYVMA_OFFLOADED);
			CHECK_EQ(sk_connect(u, echo_addr), 0);
			ping(u);
			sk_close(u);
			if (!hits)
				break;
			CHECK(n < 10);
		}
	}
}

/* ---- streams ------------------------------------------------------------------------------------------------------------- */

/* A kernel socket of the other namespace that listens, or that is to connect. */
static int peer_stream(struct any_addr *listens)
{
	struct any_addr any = ip("10.1.0.2", 0);
	int fd;

	CHECK_EQ(setns(peer_ns, CLONE_NEWNET), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	if (listens) {
		CHECK_EQ(bind(fd, (struct sockaddr *)&any.ss, any.len), 0);
		CHECK_EQ(listen(fd, 5), 0);
		listens->len = sizeof(listens->ss);
		CHECK_EQ(getsockname(fd, (struct sockaddr *)&listens->ss, &listens->len), 0);
	}
	CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
	return fd;
}

/* A few bytes each way, and the end. */
static void talk(pyvma_sock *s, int peer)
{
	char buf[8];

	CHECK_EQ(pyvma_sock_send(s, "question", 8, 0, WAIT_NS), 8);
	CHECK_EQ(recv(peer, buf, 8, MSG_WAITALL), 8);
	CHECK_EQ(send(peer, "answer", 6, 0), 6);
	CHECK_EQ(pyvma_sock_recv(s, buf, 6, MSG_WAITALL, WAIT_NS), 6);
	CHECK(!memcmp(buf, "answer", 6));
	close(peer);
	CHECK_EQ(pyvma_sock_recv(s, buf, sizeof(buf), 0, WAIT_NS), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
}

static pyvma_sock *stream(void)
{
	pyvma_sock *s;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s), 0);
	return s;
}

/* What the socket says it is, after a call that met the failure or did not: true when it was left to the kernel. The call that failed may
 * have been one that takes the rule of the connection before away: then the ring is opened again, and this one is nobody's to blame. */
static bool left(pyvma_sock *s, unsigned int hits, int err)
{
	char text[300];
	bool kernels = pyvma_sock_offload(s, text, sizeof(text)) == PYVMA_KERNEL;

	CHECK(hits || !kernels);
	return kernels && strstr(text, err == ENOMEM ? "no memory" : "no flow rule");
}

/* What the kernel said of routes is asked for again. */
static void forget_routes(void)
{
	pv_lock_get(&pv_engine.lock);
	pv_net_host_changed(pv_engine.net, false);
	pv_lock_put(&pv_engine.lock);
}

/* The connections before are over, with their rules and ports. */
static void settle(void)
{
	uint32_t n;

	do {
		pv_lock_get(&pv_engine.lock);
		pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
		n = pv_tcp_count(pv_engine.tcp, PV_TCP_LAST_ACK) + pv_tcp_count(pv_engine.tcp, PV_TCP_CLOSING);
		while (pv_tcp_reserve_give_up(pv_engine.tcp, 0))
			;
		pv_lock_put(&pv_engine.lock);
	} while (n);
}

/* No rule for the flow: the kernel connects, before a segment of ours has left. */
TEST(connects_without_a_rule)
{
	static const int errors[] = { ENOMEM, E2BIG, EPERM };
	struct any_addr there;
	int listener;

	setup();
	listener = peer_stream(&there);
	for (size_t i = 0; i < pv_array_size(errors); i++) {
		unsigned int n = 0, hits, nleft = 0;

		do {
			pyvma_sock *s = stream();

			wait_ring(true);
			settle();
			arm(CALL_bpf, ++n, false, errors[i]);
			CHECK_EQ(pyvma_sock_connect(s, (struct sockaddr *)&there.ss, there.len, WAIT_NS), 0);
			hits = disarm();
			nleft += left(s, hits, errors[i]);
			talk(s, accept4(listener, NULL, NULL, SOCK_CLOEXEC));
			CHECK(n < 10);
		} while (hits);
		CHECK(n > 1 && nleft > 0);
	}
	close(listener);
}

/* No rule for the port: the kernel's listener has it all. */
TEST(listeners_without_a_rule)
{
	static const int errors[] = { ENOMEM, E2BIG, EPERM };

	setup();
	for (size_t i = 0; i < pv_array_size(errors); i++) {
		unsigned int n = 0, hits, nleft = 0;

		do {
			struct any_addr here = ip("10.1.0.1", 0);
			pyvma_sock *l = stream(), *s;
			int peer = peer_stream(NULL);

			wait_ring(true);
			CHECK_EQ(pyvma_sock_bind(l, (struct sockaddr *)&here.ss, here.len), 0);
			arm(CALL_bpf, ++n, false, errors[i]);
			CHECK_EQ(pyvma_sock_listen(l, 5), 0);
			hits = disarm();
			nleft += left(l, hits, errors[i]);
			here.len = sizeof(here.ss);
			CHECK_EQ(pyvma_sock_getsockname(l, (struct sockaddr *)&here.ss, &here.len), 0);
			CHECK_EQ(connect(peer, (struct sockaddr *)&here.ss, here.len), 0);
			CHECK_EQ(pyvma_sock_accept(l, NULL, NULL, SOCK_CLOEXEC, WAIT_NS, &s), 0);
			talk(s, peer);
			CHECK_EQ(pyvma_sock_close(l), 0);
			CHECK(n < 10);
		} while (hits);
		CHECK(n > 1 && nleft > 0);
	}
}

/* Neither a name nor a route can be asked for: the kernel's. */
TEST(connects_that_cannot_ask)
{
	static const enum call calls[] = { CALL_getsockname, CALL_sendto, CALL_recvmsg };
	struct any_addr there;
	int listener;

	setup();
	listener = peer_stream(&there);
	for (size_t i = 0; i < pv_array_size(calls); i++) {
		unsigned int n = 0, hits;

		do {
			pyvma_sock *s = stream();

			settle();
			forget_routes();
			arm(calls[i], ++n, false, ENOBUFS);
			CHECK_EQ(pyvma_sock_connect(s, (struct sockaddr *)&there.ss, there.len, WAIT_NS), 0);
			hits = disarm();
			talk(s, accept4(listener, NULL, NULL, SOCK_CLOEXEC));
			CHECK(n < 20);
		} while (hits);
		CHECK(n > 1);
	}
	close(listener);
	exchange();
}

/* Connecting exchanges the rule of the port for one of the flow. Where the new one fails the socket is the kernel's; where the old one
 * stays, the program goes, lest it takes what is another's: the ring is opened again. */
TEST(rules_that_cannot_be_exchanged)
{
	unsigned int n = 0, hits;

	setup();
	do {
		struct sk s = open_limited(&ours_here, AF_INET), stranger;
		struct any_addr name, there;
		char buf[100];

		CHECK_EQ(sk_bind(s, ip("10.1.0.1", 0)), 0);
		CHECK_EQ(sk_name(s, &name), 0);
		arm(CALL_bpf, ++n, false, EPERM);
		CHECK_EQ(sk_connect(s, echo_addr), 0);
		hits = disarm();
		ping(s);
		CHECK_EQ(sk_close(s), 0);
		/* The port is the next one's, whoever that is. */
		stranger = open_limited(&kernel_here, AF_INET);
		CHECK_EQ(sk_bind(stranger, name), 0);
		for (int64_t got = -EAGAIN; got != 5;) {
			struct timeval moment = { .tv_usec = 100000 };

			CHECK_EQ(sk_set(stranger, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment)), 0);
			CHECK_EQ(sk_sendto(echo_sock, "hello", 5, 0, name), 5);
			got = sk_recvfrom(stranger, buf, sizeof(buf), 0, &there);
			CHECK(got == 5 || got == -EAGAIN);
		}
		sk_close(stranger);
		wait_ring(true);
		exchange();
		CHECK(n < 20);
	} while (hits);
	CHECK(n > 2);
}

/* The doorbell of the send queue: a driver that is full, or a link that is down, is tried again; the frames wait meanwhile. */
TEST(kicks_that_are_tried_again)
{
	static const int errors[] = { EAGAIN, EBUSY, ENOBUFS, ENETDOWN };
	struct sk s;

	setup();
	s = open_limited(&ours_here, AF_INET);
	CHECK_EQ(sk_connect(s, echo_addr), 0);
	ping(s);
	for (size_t i = 0; i < pv_array_size(errors); i++) {
		for (unsigned int n = 1; n < 4; n++) {
			struct any_addr from;
			char buf[10];

			arm(CALL_sendto, 1, true, errors[i]);
			for (unsigned int k = 0; k < n; k++)
				CHECK_EQ(sk_send(s, "wait", 4, 0), 4);
			CHECK(disarm() > 0);
			for (unsigned int k = 0; k < n; k++)
				CHECK_EQ(sk_recvfrom(echo_sock, buf, sizeof(buf), 0, &from), 4);
		}
	}
	CHECK(!reason());
	ping(s);
	sk_close(s);
}

/* A queue that is bound to nothing any more: the datagram is lost as on a wire, or goes by the kernel; the ring is opened again. */
TEST(kicks_of_a_dead_queue)
{
	static const int errors[] = { ENXIO, ENODEV };

	setup();
	for (size_t i = 0; i < pv_array_size(errors); i++) {
		struct sk s = open_limited(&ours_here, AF_INET);
		struct timeval moment = { .tv_usec = 100000 };
		struct any_addr from;
		char buf[10];
		int64_t got;

		CHECK_EQ(sk_connect(s, echo_addr), 0);
		ping(s);
		arm(CALL_sendto, 1, false, errors[i]);
		got = sk_send(s, "lost", 4, 0);
		CHECK_EQ(disarm(), 1);
		CHECK_EQ(got, 4);
		CHECK_EQ(sk_set(echo_sock, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment)), 0);
		do {
			CHECK_EQ(sk_send(s, "more", 4, 0), 4);
			got = sk_recvfrom(echo_sock, buf, sizeof(buf), 0, &from);
			CHECK(got == 4 || got == -EAGAIN);
		} while (got < 0);
		wait_ring(true);
		moment = (struct timeval){ .tv_sec = 30 };
		while (sk_recvfrom(echo_sock, buf, sizeof(buf), MSG_DONTWAIT, &from) >= 0)
			;
		CHECK_EQ(sk_set(echo_sock, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment)), 0);
		ping(s);
		sk_close(s);
		exchange();
	}
}

/* What cannot be asked of the kernel's routing is left to the kernel. */
TEST(questions_that_fail)
{
	static const enum call calls[] = { CALL_sendto, CALL_recvmsg };

	setup();
	for (size_t i = 0; i < pv_array_size(calls); i++) {
		unsigned int n = 0, hits;

		do {
			struct sk s = open_limited(&ours_here, AF_INET);

			arm(calls[i], ++n, false, ENOBUFS);
			CHECK_EQ(sk_connect(s, echo_addr), 0);
			hits = disarm();
			ping(s);
			sk_close(s);
			CHECK(n < 20);
		} while (hits);
		CHECK(n > 1);
	}
	exchange();
}

/* Told of a change, the engine cannot read what is now: it does with the next one. */
TEST(changes_that_cannot_be_read)
{
	struct pv_addr second = pv_addr_from4(&(uint32_t){ inet_addr("10.1.0.200") });
	unsigned int n = 0, hits;

	setup();
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("progress", "0"), 0);
	CHECK_EQ(pyvma_start(), 0);
	do {
		hits = 0;
		n++;
		for (int there = 1; there >= 0; there--) {
			ip_in(own_ns, "addr %s 10.1.0.200/24 dev v0", there ? "add" : "del");
			pv_lock_get(&pv_engine.lock);
			arm(CALL_recvmsg, n, false, ENOBUFS);
			pv_host_read(&pv_engine);
			hits += disarm();
			pv_lock_put(&pv_engine.lock);
			ip_in(own_ns, "route add 192.0.2.%d via 10.1.0.2", there + 1);
			pv_lock_get(&pv_engine.lock);
			pv_host_read(&pv_engine);
			CHECK_EQ(pv_host_owner(&pv_engine, &second) != 0, there);
			pv_lock_put(&pv_engine.lock);
			ip_in(own_ns, "route del 192.0.2.%d via 10.1.0.2", there + 1);
		}
		exchange();
		CHECK(n < 40);
	} while (hits);
	CHECK(n > 2);
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("progress", "1"), 0);
	CHECK_EQ(pyvma_start(), 0);
}

/* The device is there and does not work: its sockets go on as the kernel's, those to come say why, and a link that changes is a reason
 * to try again. */
TEST(devices_that_report_an_error)
{
	const struct pv_fault_cfg error = { .error_ppm = 1000000 };
	struct sk s;

	setup();
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("fault", "seed=1"), 0);
	CHECK_EQ(pyvma_config_set("log_level", "none"), 0);
	CHECK_EQ(pyvma_start(), 0);
	exchange();
	s = open_limited(&ours_here, AF_INET);
	CHECK_EQ(sk_bind(s, ip("10.1.0.1", 0)), 0);
	CHECK_EQ(sk_connect(s, echo_addr), 0);
	for (int i = 0; i < 3; i++) {
		ping(s);
		pv_lock_get(&pv_engine.lock);
		pv_fault_set(pv_engine.ports[0].ring, &error);
		pv_engine_wake(&pv_engine.progress); /* a real one has the ring's fd for that */
		pv_lock_put(&pv_engine.lock);
		wait_ring(false);
		CHECK(strstr(reason(), "reported an error"));
		CHECK(!has_program());
		ping(s);
		exchange();
		ip_in(own_ns, "link set v0 down");
		ip_in(own_ns, "link set v0 up");
		wait_ring(true);
		exchange();
	}
	sk_close(s);
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("fault", ""), 0);
	CHECK_EQ(pyvma_config_set("log_level", "error"), 0);
	CHECK_EQ(pyvma_start(), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
