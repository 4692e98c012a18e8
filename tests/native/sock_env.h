/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Socket tests: the same sequence of calls on the kernel's sockets over loopback and on ours over the software NIC. Every result goes
 * into a trace; the kernel's trace is what ours has to be.
 */
#ifndef SOCK_ENV_H
#define SOCK_ENV_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pyvma.h"
#include "test.h"

#define NS_MS INT64_C(1000000)
#define LONG_NS (INT64_C(30000) * NS_MS) /* nothing takes that long */

/* One kind of socket: `ours` or the kernel's. A socket is a handle or an fd. */
struct side {
	bool ours;
	const char *addr4, *addr6;
};
static const struct side kernel_side = { false, "127.0.0.1", "::1" };
static const struct side our_side = { true, "10.9.0.1", "fd09::1" };

struct sk {
	const struct side *side;
	int fd;
	pyvma_sock *h;
};

static char env_fabric[24];

/* Two interfaces on a fabric of this process's own; nothing else is on it unless a test puts it there. */
static __attribute__((unused)) void env_start(void)
{
	char text[512];

	if (*env_fabric)
		return;
	unsigned int salt = (unsigned int)getpid() ^ (unsigned int)time(NULL) << 12;

	snprintf(env_fabric, sizeof(env_fabric), "t%08x", salt);
	snprintf(text, sizeof(text),
		 "softnic:fabric=%s,port=0,addr=10.9.0.1/24,addr=fd09::1/64,name=sn0;"
		 "softnic:fabric=%s,port=1,addr=10.9.1.1/24,addr=fd09:1::1/64,name=sn1",
		 env_fabric, env_fabric);
	CHECK_EQ(pyvma_config_set("softnic_lib", SOFTNIC_LIB), 0);
	CHECK_EQ(pyvma_config_set("interfaces", text), 0);
	CHECK_EQ(pyvma_config_set("log_level", "error"), 0);
	int rc = pyvma_start();

	if (rc)
		fprintf(stderr, "%s\n", pyvma_last_error());
	CHECK_EQ(rc, 0);
}

static __attribute__((unused)) int neg(int rc)
{
	return rc < 0 ? -errno : rc;
}

static __attribute__((unused)) struct sk sk_open(const struct side *side, int family)
{
	struct sk s = { side, -1, NULL };

	if (side->ours) {
		env_start();
		int rc = pyvma_sock_open(family, SOCK_DGRAM | SOCK_CLOEXEC, 0, &s.h);

		if (rc)
			fprintf(stderr, "open: %s\n", pyvma_last_error());
		CHECK_EQ(rc, 0);
		s.fd = pyvma_sock_fd(s.h);
	} else {
		s.fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		CHECK(s.fd >= 0);
	}
	return s;
}

static __attribute__((unused)) int sk_close(struct sk s)
{
	return s.h ? pyvma_sock_close(s.h) : neg(close(s.fd));
}

struct any_addr {
	struct sockaddr_storage ss;
	socklen_t len;
};

static __attribute__((unused)) struct any_addr ip(const char *text, int port)
{
	struct any_addr a = { .len = 0 };
	struct sockaddr_in *in = (void *)&a.ss;
	struct sockaddr_in6 *in6 = (void *)&a.ss;

	if (strchr(text, ':')) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)port);
		CHECK_EQ(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
		a.len = sizeof(*in6);
	} else {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		CHECK_EQ(inet_pton(AF_INET, text, &in->sin_addr), 1);
		a.len = sizeof(*in);
	}
	return a;
}

static __attribute__((unused)) const char *side_addr(const struct side *side, int family)
{
	return family == AF_INET ? side->addr4 : side->addr6;
}

static __attribute__((unused)) int addr_port(const struct any_addr *a)
{
	return ntohs(a->ss.ss_family == AF_INET ? ((const struct sockaddr_in *)&a->ss)->sin_port
						: ((const struct sockaddr_in6 *)&a->ss)->sin6_port);
}

static __attribute__((unused)) int sk_bind(struct sk s, struct any_addr a)
{
	return s.h ? pyvma_sock_bind(s.h, (struct sockaddr *)&a.ss, a.len) : neg(bind(s.fd, (struct sockaddr *)&a.ss, a.len));
}

static __attribute__((unused)) int sk_connect(struct sk s, struct any_addr a)
{
	return s.h ? pyvma_sock_connect(s.h, (struct sockaddr *)&a.ss, a.len, -1)
		   : neg(connect(s.fd, (struct sockaddr *)&a.ss, a.len));
}

static __attribute__((unused)) int sk_disconnect(struct sk s)
{
	struct sockaddr un = { .sa_family = AF_UNSPEC };

	return s.h ? pyvma_sock_connect(s.h, &un, sizeof(un), -1) : neg(connect(s.fd, &un, sizeof(un)));
}

static __attribute__((unused)) int sk_name(struct sk s, struct any_addr *a)
{
	a->len = sizeof(a->ss);
	return s.h ? pyvma_sock_getsockname(s.h, (struct sockaddr *)&a->ss, &a->len)
		   : neg(getsockname(s.fd, (struct sockaddr *)&a->ss, &a->len));
}

static __attribute__((unused)) int sk_peer(struct sk s, struct any_addr *a)
{
	a->len = sizeof(a->ss);
	return s.h ? pyvma_sock_getpeername(s.h, (struct sockaddr *)&a->ss, &a->len)
		   : neg(getpeername(s.fd, (struct sockaddr *)&a->ss, &a->len));
}

static __attribute__((unused)) int sk_shutdown(struct sk s, int how)
{
	return s.h ? pyvma_sock_shutdown(s.h, how) : neg(shutdown(s.fd, how));
}

static __attribute__((unused)) int sk_set(struct sk s, int level, int name, const void *val, socklen_t len)
{
	return s.h ? pyvma_sock_setsockopt(s.h, level, name, val, len) : neg(setsockopt(s.fd, level, name, val, len));
}

static __attribute__((unused)) int sk_set_int(struct sk s, int level, int name, int val)
{
	return sk_set(s, level, name, &val, sizeof(val));
}

static __attribute__((unused)) int sk_get(struct sk s, int level, int name, void *val, socklen_t *len)
{
	return s.h ? pyvma_sock_getsockopt(s.h, level, name, val, len) : neg(getsockopt(s.fd, level, name, val, len));
}

static __attribute__((unused)) int sk_nonblock(struct sk s, int on)
{
	return s.h ? pyvma_sock_set_nonblock(s.h, on) : neg(ioctl(s.fd, FIONBIO, &on));
}

static __attribute__((unused)) int64_t sk_send(struct sk s, const void *buf, size_t len, int flags)
{
	if (s.h)
		return pyvma_sock_send(s.h, buf, len, flags, -1);
	ssize_t n = send(s.fd, buf, len, flags);

	return n < 0 ? -errno : n;
}

static __attribute__((unused)) int64_t sk_sendto(struct sk s, const void *buf, size_t len, int flags, struct any_addr a)
{
	if (s.h)
		return pyvma_sock_sendto(s.h, buf, len, flags, (struct sockaddr *)&a.ss, a.len, -1);
	ssize_t n = sendto(s.fd, buf, len, flags, (struct sockaddr *)&a.ss, a.len);

	return n < 0 ? -errno : n;
}

static __attribute__((unused)) int64_t sk_recv(struct sk s, void *buf, size_t len, int flags)
{
	if (s.h)
		return pyvma_sock_recv(s.h, buf, len, flags, -1);
	ssize_t n = recv(s.fd, buf, len, flags);

	return n < 0 ? -errno : n;
}

static __attribute__((unused)) int64_t sk_recvfrom(struct sk s, void *buf, size_t len, int flags, struct any_addr *a)
{
	a->len = sizeof(a->ss);
	if (s.h)
		return pyvma_sock_recvfrom(s.h, buf, len, flags, (struct sockaddr *)&a->ss, &a->len, -1);
	ssize_t n = recvfrom(s.fd, buf, len, flags, (struct sockaddr *)&a->ss, &a->len);

	return n < 0 ? -errno : n;
}

static __attribute__((unused)) int64_t sk_recvmsg(struct sk s, struct msghdr *msg, int flags)
{
	if (s.h)
		return pyvma_sock_recvmsg(s.h, msg, flags, -1);
	ssize_t n = recvmsg(s.fd, msg, flags);

	return n < 0 ? -errno : n;
}

static __attribute__((unused)) int64_t sk_sendmsg(struct sk s, const struct msghdr *msg, int flags)
{
	if (s.h)
		return pyvma_sock_sendmsg(s.h, msg, flags, -1);
	ssize_t n = sendmsg(s.fd, msg, flags);

	return n < 0 ? -errno : n;
}

/* Readiness without waiting, and a wait that is long enough for anything that is going to come. */
static __attribute__((unused)) int sk_poll(struct sk s, int events, int64_t timeout_ns)
{
	if (s.h)
		return pyvma_sock_poll(s.h, events, timeout_ns);
	struct pollfd p = { .fd = s.fd, .events = (short)events };
	int n = poll(&p, 1, timeout_ns < 0 ? -1 : (int)(timeout_ns / NS_MS));

	return n < 0 ? -errno : n ? p.revents : 0;
}

/* Bound to a port of its own on the side's address; the address comes back. */
static __attribute__((unused)) struct sk sk_bound(const struct side *side, int family, struct any_addr *addr)
{
	struct sk s = sk_open(side, family);

	CHECK_EQ(sk_bind(s, ip(side_addr(side, family), 0)), 0);
	CHECK_EQ(sk_name(s, addr), 0);
	CHECK(addr_port(addr) != 0);
	return s;
}

static __attribute__((unused)) bool is_offloaded(struct sk s)
{
	char text[128];

	return pyvma_sock_offload(s.h, text, sizeof(text)) == PYVMA_OFFLOADED;
}

/* ---- traces ------------------------------------------------------------------------------------------------------------ */

struct trace {
	struct {
		int64_t value;
		int line;
		const char *what;
	} step[1024];
	int n;
};

static __attribute__((unused)) void trace_add(struct trace *t, int line, const char *what, int64_t value)
{
	CHECK(t->n < 1024);
	t->step[t->n].value = value;
	t->step[t->n].line = line;
	t->step[t->n++].what = what;
}
#define T(t, expr) trace_add(t, __LINE__, #expr, (int64_t)(expr))

static __attribute__((unused)) int trace_differs(const struct trace *kernel, const struct trace *ours)
{
	int bad = 0;

	for (int i = 0; i < kernel->n || i < ours->n; i++) {
		bool both = i < kernel->n && i < ours->n;

		if (both && kernel->step[i].line == ours->step[i].line && kernel->step[i].value == ours->step[i].value)
			continue;
		fprintf(stderr, "  step %d, line %d, %s: kernel %lld, ours %lld\n", i, i < ours->n ? ours->step[i].line : -1,
			i < ours->n ? ours->step[i].what : "(missing)", i < kernel->n ? (long long)kernel->step[i].value : -99999,
			i < ours->n ? (long long)ours->step[i].value : -99999);
		bad++;
		if (both && kernel->step[i].line != ours->step[i].line)
			break;
	}
	return bad;
}

/* Runs `script` on both and compares. */
static __attribute__((unused)) void compare(void (*script)(const struct side *, int family, struct trace *))
{
	static struct trace kernel, ours;
	const int families[] = { AF_INET, AF_INET6 };

	for (int f = 0; f < 2; f++) {
		kernel.n = ours.n = 0;
		script(&kernel_side, families[f], &kernel);
		script(&our_side, families[f], &ours);
		int bad = trace_differs(&kernel, &ours);

		if (bad)
			fprintf(stderr, "%s over %s: %d differences\n", test_current, f ? "IPv6" : "IPv4", bad);
		CHECK_EQ(bad, 0);
		CHECK(kernel.n > 0);
	}
}
#define ORACLE(id)                                                                                                                 \
	static void script_##id(const struct side *side, int family, struct trace *t);                                             \
	TEST(id)                                                                                                                   \
	{                                                                                                                          \
		compare(script_##id);                                                                                              \
	}                                                                                                                          \
	static void script_##id(const struct side *side, int family, struct trace *t)

#endif
