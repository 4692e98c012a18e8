/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bind and connect, with the Linux kernel as oracle: the same calls go to kernel sockets on loopback and to sockets of a stack, and
 * every errno and every name must agree. 127.0.0.1 stands for 10.0.0.1, 127.0.0.2 for 10.0.0.101, ::1 for fd00::1, lo for the
 * interface.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "world.h"

enum kind { ANY4, A4, B4, ANY6, A6, MAPPED_ANY, MAPPED_A, KINDS };

struct opt {
	enum kind kind;
	bool v6only, reuse_addr, reuse_port, device;
};

static bool is6(enum kind k)
{
	return k >= ANY6;
}

static const char *kernel_text(enum kind k)
{
	static const char *const text[KINDS] = { "0.0.0.0", "127.0.0.1",      "127.0.0.2",       "::",
						 "::1",     "::ffff:0.0.0.0", "::ffff:127.0.0.1" };

	return text[k];
}

static struct pv_addr our_addr(enum kind k)
{
	switch (k) {
	case ANY4:
	case MAPPED_ANY:
		return any4();
	case A4:
	case MAPPED_A:
		return ip4(10, 0, 0, 1);
	case B4:
		return ip4(10, 0, 0, 101);
	case ANY6:
		return any6();
	default:
		return ip6(1);
	}
}

static socklen_t kernel_addr(enum kind k, uint16_t port, struct sockaddr_storage *ss)
{
	struct sockaddr_in *a4 = (void *)ss;
	struct sockaddr_in6 *a6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (!is6(k)) {
		a4->sin_family = AF_INET;
		a4->sin_port = htons(port);
		inet_pton(AF_INET, kernel_text(k), &a4->sin_addr);
		return sizeof(*a4);
	}
	a6->sin6_family = AF_INET6;
	a6->sin6_port = htons(port);
	inet_pton(AF_INET6, kernel_text(k), &a6->sin6_addr);
	return sizeof(*a6);
}

static void set(int fd, int level, int name, int value)
{
	CHECK(!setsockopt(fd, level, name, &value, sizeof(value)));
}

static int kernel_open(const struct opt *o)
{
	int fd = socket(is6(o->kind) ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	CHECK(fd >= 0);
	set(fd, SOL_SOCKET, SO_REUSEADDR, o->reuse_addr);
	set(fd, SOL_SOCKET, SO_REUSEPORT, o->reuse_port);
	if (is6(o->kind))
		set(fd, IPPROTO_IPV6, IPV6_V6ONLY, o->v6only);
	if (o->device && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)) {
		close(fd);
		return -1;
	}
	return fd;
}

static struct pv_udp *our_open(struct world *w, const struct opt *o)
{
	struct pv_udp *u = sock_open(w, 0, is6(o->kind) ? PV_AF_INET6 : PV_AF_INET);
	struct pv_udp_opts *p = pv_udp_options(u);

	p->reuse_addr = o->reuse_addr;
	p->reuse_port = o->reuse_port;
	p->v6only = o->v6only;
	p->bound_iface = o->device ? w->host[0].iface : 0;
	pv_udp_options_changed(u);
	return u;
}

static uint16_t kernel_port(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	CHECK(!getsockname(fd, (void *)&ss, &len));
	return ntohs(((struct sockaddr_in *)(void *)&ss)->sin_port);
}

static int kernel_bind(int fd, enum kind k, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = kernel_addr(k, port, &ss);

	return bind(fd, (void *)&ss, len) ? -errno : 0;
}

static int our_bind(struct pv_udp *u, enum kind k, uint16_t port)
{
	struct pv_endpoint e = ep(our_addr(k), port);

	return pv_udp_bind(u, &e);
}

#define SEQ_MAX 4

/* Binds all to one port, in order, there and here. Returns the first that differs, or -1. */
static int differs(struct world *w, const struct opt *o, int n, int kernel[SEQ_MAX], int ours[SEQ_MAX])
{
	struct pv_udp *u[SEQ_MAX];
	int fd[SEQ_MAX], first = -1;
	uint16_t port = 0;

	for (int i = 0; i < n; i++) {
		fd[i] = kernel_open(&o[i]);
		CHECK(fd[i] >= 0);
		u[i] = our_open(w, &o[i]);
		kernel[i] = kernel_bind(fd[i], o[i].kind, port);
		if (!port && !kernel[i])
			port = kernel_port(fd[i]);
		ours[i] = our_bind(u[i], o[i].kind, port);
		if (kernel[i] != ours[i] && first < 0)
			first = i;
	}
	for (int i = 0; i < n; i++) {
		close(fd[i]);
		pv_udp_close(u[i]);
	}
	return first;
}

static void say(const struct opt *o)
{
	fprintf(stderr, "  %s%s%s%s%s", kernel_text(o->kind), o->v6only ? " v6only" : "", o->reuse_addr ? " reuseaddr" : "",
		o->reuse_port ? " reuseport" : "", o->device ? " device" : "");
}

/* The port was the kernel's choice, but a stranger's socket may share it: what differs must differ on three ports in a row. */
static void compare(struct world *w, const struct opt *o, int n)
{
	int kernel[SEQ_MAX], ours[SEQ_MAX];

	for (int try = 0; try < 3; try++)
		if (differs(w, o, n, kernel, ours) < 0)
			return;
	for (int i = 0; i < n; i++) {
		say(&o[i]);
		fprintf(stderr, ": kernel %d, ours %d\n", kernel[i], ours[i]);
	}
	CHECK(!"bind as the kernel does");
}

static bool have_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && !kernel_bind(fd, A6, 0);

	if (fd >= 0)
		close(fd);
	return ok;
}

static uint32_t all_options(struct opt *o, bool device)
{
	bool six = have_ipv6();
	uint32_t n = 0;

	for (int kind = 0; kind < KINDS; kind++)
		for (int bits = 0; bits < 16; bits++) {
			if ((bits & 8 && (!is6((enum kind)kind) || kind > A6)) || (bits & 4 && !device) ||
			    (is6((enum kind)kind) && !six))
				continue;
			o[n++] = (struct opt){ .kind = (enum kind)kind,
					       .reuse_addr = bits & 1,
					       .reuse_port = bits & 2,
					       .device = bits & 4,
					       .v6only = bits & 8 };
		}
	return n;
}

static bool may_bind_to_device(void)
{
	struct opt o = { .kind = A4, .device = true };
	int fd = kernel_open(&o);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

TEST(conflicts_of_every_pair)
{
	static struct opt o[KINDS * 16];
	uint32_t n = all_options(o, may_bind_to_device());
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 1, .extra4 = 1 });
	CHECK(n >= 12);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < n; j++) {
			struct opt pair[2] = { o[i], o[j] };

			compare(&w, pair, 2);
		}
	world_close(&w);
}

TEST(conflicts_of_random_rows)
{
	static struct opt o[KINDS * 16];
	uint32_t n = all_options(o, may_bind_to_device());
	struct pv_rng rng;
	struct world w;

	pv_rng_seed(&rng, 2);
	world_open(&w, &(struct world_cfg){ .seed = 2, .extra4 = 1 });
	for (uint32_t i = 0; i < 6000; i++) {
		struct opt row[SEQ_MAX];

		for (int k = 0; k < SEQ_MAX; k++) {
			row[k] = o[pv_rng_below(&rng, n)];
			/* Most of them willing to share, else only the first gets in. */
			if (pv_rng_below(&rng, 3))
				row[k].reuse_addr = true;
		}
		compare(&w, row, SEQ_MAX);
	}
	world_close(&w);
}

/* ---- the life of one socket -------------------------------------------------------------------------------------------- */

/* A name in both worlds, comparable: which address, and whether there is a port. */
static void kernel_name(int fd, bool peer, char *out, size_t size)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	char text[INET6_ADDRSTRLEN];

	if (peer ? getpeername(fd, (void *)&ss, &len) : getsockname(fd, (void *)&ss, &len)) {
		snprintf(out, size, "none");
		return;
	}
	if (ss.ss_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)&ss)->sin_addr, text, sizeof(text));
	else
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)(void *)&ss)->sin6_addr, text, sizeof(text));
	snprintf(out, size, "%s %d", text, ((struct sockaddr_in *)(void *)&ss)->sin_port != 0);
}

static void our_name(const struct pv_udp *u, enum kind family, bool peer, char *out, size_t size)
{
	struct pv_endpoint e;

	if (peer && !pv_udp_remote(u, &e)) {
		snprintf(out, size, "none");
		return;
	}
	if (!peer)
		pv_udp_local(u, &e);
	for (int k = 0; k < KINDS; k++) {
		struct pv_addr a = our_addr((enum kind)k);

		if (is6((enum kind)k) == is6(family) && pv_addr_eq(&a, &e.addr)) {
			snprintf(out, size, "%s %d", kernel_text((enum kind)k), e.port != 0);
			return;
		}
	}
	snprintf(out, size, "unknown");
}

enum op { BIND, BIND_PORT, CONNECT, CONNECT_ZERO, DISSOLVE, SEND, OPS };

static int kernel_op(int fd, enum op op, enum kind k, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = kernel_addr(k, op == CONNECT ? 9 : 0, &ss);

	switch (op) {
	case BIND:
		return kernel_bind(fd, k, 0);
	case BIND_PORT:
		return kernel_bind(fd, k, port);
	case DISSOLVE:
		ss.ss_family = AF_UNSPEC;
		return connect(fd, (void *)&ss, len) ? -errno : 0;
	case SEND:
		return send(fd, "", 0, 0) < 0 && errno != ECONNREFUSED ? -errno : 0;
	default:
		return connect(fd, (void *)&ss, len) ? -errno : 0;
	}
}

static int our_op(struct world *w, struct pv_udp *u, enum op op, enum kind k, uint16_t port)
{
	struct pv_endpoint e = ep(our_addr(k), op == CONNECT ? 9 : 0);
	int rc;

	switch (op) {
	case BIND:
		return our_bind(u, k, 0);
	case BIND_PORT:
		return our_bind(u, k, port);
	case DISSOLVE:
		return pv_udp_connect(u, NULL, w->now);
	case SEND:
		rc = (int)sock_send(w, u, NULL, "", 0);
		return rc == -ECONNREFUSED ? 0 : rc;
	default:
		return pv_udp_connect(u, &e, w->now);
	}
}

/* Addresses to bind or connect to that mean the same in both worlds. Sources of 127.0.0.2 and of wildcards are routing's matter; that
 * an IPv6 socket once connected may go on to IPv4 is an accident of loopback (its IPv4 source becomes 127.0.0.6), so that one socket
 * has peers of one family. */
static enum kind draw(struct pv_rng *rng, bool six, bool peer4, enum op op)
{
	static const enum kind bind4[] = { ANY4, A4 }, bind6[] = { ANY6, A6, MAPPED_A };

	if (op >= CONNECT)
		return !six ? A4 : peer4 ? MAPPED_A : A6;
	return six ? bind6[pv_rng_below(rng, 3)] : bind4[pv_rng_below(rng, 2)];
}

static uint16_t free_port(void)
{
	struct opt o = { .kind = have_ipv6() ? ANY6 : ANY4 };
	int fd = kernel_open(&o);
	uint16_t port;

	CHECK(fd >= 0);
	CHECK_EQ(kernel_bind(fd, o.kind, 0), 0);
	port = kernel_port(fd);
	close(fd);
	return port;
}

static bool life_differs(struct world *w, uint64_t seed, bool six, bool tell)
{
	static const char *const name[OPS] = { "bind", "bind to port", "connect", "connect to port 0", "dissolve", "send" };
	struct opt o = { .kind = six ? ANY6 : ANY4 };
	struct pv_udp *u;
	struct pv_rng rng;
	bool differ = false;
	uint16_t port = free_port();
	int fd = kernel_open(&o);

	pv_rng_seed(&rng, seed);
	o.v6only = six && pv_rng_below(&rng, 4) == 0;
	if (six)
		set(fd, IPPROTO_IPV6, IPV6_V6ONLY, o.v6only);
	u = our_open(w, &o);
	for (int i = 0; i < 8 && !differ; i++) {
		enum op op = (enum op)pv_rng_below(&rng, OPS);
		enum kind k = draw(&rng, six, seed & 2, op);
		char a[2][80], b[2][80];
		int kernel = kernel_op(fd, op, k, port), ours = our_op(w, u, op, k, port);

		for (int peer = 0; peer < 2; peer++) {
			kernel_name(fd, peer, a[peer], sizeof(a[peer]));
			our_name(u, o.kind, peer, b[peer], sizeof(b[peer]));
		}
		differ = kernel != ours || strcmp(a[0], b[0]) || strcmp(a[1], b[1]);
		if (tell)
			fprintf(stderr, "  %s %s: kernel %d (%s, %s), ours %d (%s, %s)\n", name[op], kernel_text(k), kernel, a[0],
				a[1], ours, b[0], b[1]);
		/* What the kernel's own send to a closed port left behind is not compared. */
		(void)pv_udp_error(u);
		if (op == SEND || op == CONNECT) {
			int err;
			socklen_t len = sizeof(err);

			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
		}
	}
	close(fd);
	pv_udp_close(u);
	world_run(w, PV_NS_PER_MS);
	return differ;
}

TEST(life_of_a_socket)
{
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 3, .extra4 = 1 });
	for (uint64_t seed = 0; seed < 3000; seed++) {
		bool six = seed & 1 && have_ipv6();

		if (!life_differs(&w, seed, six, false))
			continue;
		CHECK(!life_differs(&w, seed, six, false) || !life_differs(&w, seed, six, true));
	}
	world_close(&w);
}

/* A bind that was refused leaves nothing that a later dissolve would keep. */
TEST(refused_bind_leaves_no_address)
{
	static const enum kind kinds[] = { A4, A6 };
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 8 });
	for (size_t i = 0; i < 1u + have_ipv6(); i++) {
		static const enum op ops[] = { BIND_PORT, CONNECT, DISSOLVE };
		struct opt o = { .kind = kinds[i] };
		int first = kernel_open(&o), fd = kernel_open(&o);
		struct pv_udp *u = our_open(&w, &o), *v = our_open(&w, &o);
		uint16_t port;

		CHECK_EQ(kernel_bind(first, o.kind, 0), 0);
		port = kernel_port(first);
		CHECK_EQ(our_bind(u, o.kind, port), 0);
		for (size_t k = 0; k < pv_array_size(ops); k++) {
			char kernel[80], ours[80];

			CHECK_EQ(our_op(&w, v, ops[k], o.kind, port), kernel_op(fd, ops[k], o.kind, port));
			kernel_name(fd, false, kernel, sizeof(kernel));
			our_name(v, o.kind, false, ours, sizeof(ours));
			CHECK(!strcmp(kernel, ours));
		}
		close(first);
		close(fd);
		pv_udp_close(u);
		pv_udp_close(v);
	}
	world_close(&w);
}

/* ---- without an oracle ------------------------------------------------------------------------------------------------- */

TEST(addresses_that_cannot_be_bound)
{
	struct pv_endpoint e;
	struct pv_udp *u, *v;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 4 });
	u = sock_open(&w, 0, PV_AF_INET);
	v = sock_open(&w, 0, PV_AF_INET6);
	e = ep(ip4(10, 0, 0, 77), 7000);
	CHECK_EQ(pv_udp_bind(u, &e), -EADDRNOTAVAIL);
	e = ep(ip6(77), 7000);
	CHECK_EQ(pv_udp_bind(v, &e), -EADDRNOTAVAIL);
	CHECK_EQ(pv_udp_bind(u, &e), -EAFNOSUPPORT);
	pv_udp_options(u)->freebind = true;
	e = ep(ip4(10, 0, 0, 77), 7000);
	CHECK_EQ(pv_udp_bind(u, &e), 0);
	CHECK_EQ(pv_udp_bind(u, &e), -EINVAL);
	/* Link-local addresses need an interface (RFC 4007). */
	e = ep(ll6(1), 7000);
	CHECK_EQ(pv_udp_bind(v, &e), -EINVAL);
	e.iface = 9;
	CHECK_EQ(pv_udp_bind(v, &e), -ENODEV);
	e.iface = w.host[0].iface;
	CHECK_EQ(pv_udp_bind(v, &e), 0);
	CHECK_EQ(pv_udp_options(v)->bound_iface, w.host[0].iface);
	pv_udp_local(v, &e);
	CHECK_EQ(e.iface, w.host[0].iface);
	pv_udp_close(u);
	u = sock_open(&w, 0, PV_AF_INET);
	e = ep(ip4(10, 0, 0, 255), 7001);
	CHECK_EQ(pv_udp_bind(u, &e), 0);
	pv_udp_close(u);
	u = sock_open(&w, 0, PV_AF_INET);
	e = ep(ip4(239, 1, 2, 3), 7001);
	CHECK_EQ(pv_udp_bind(u, &e), 0);
	pv_udp_close(u);
	pv_udp_close(v);
	CHECK_EQ(pv_udp_open(w.host[0].udp, (enum pv_family)1, NULL, &u), -EAFNOSUPPORT);
	world_close(&w);
}

TEST(ephemeral_ports_run_out)
{
	enum { LO = 40000, N = 300 };
	struct world_cfg cfg = { .seed = 5, .udp = { .port_lo = LO, .port_hi = LO + N - 1 } };
	static struct pv_udp *u[N];
	static uint8_t seen[N];
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 9), any = ep(any4(), 0);
	struct pv_udp *more;
	struct world w;
	bool ordered = true;

	world_open(&w, &cfg);
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < N; i++) {
		u[i] = sock_bound(&w, 0, PV_AF_INET, any4(), 0);
		CHECK(sock_port(u[i]) >= LO && sock_port(u[i]) < LO + N);
		CHECK(!seen[sock_port(u[i]) - LO]++);
		ordered &= !i || sock_port(u[i]) > sock_port(u[i - 1]);
	}
	CHECK(!ordered);
	more = sock_open(&w, 0, PV_AF_INET);
	CHECK_EQ(pv_udp_bind(more, &any), -EADDRINUSE);
	CHECK_EQ(pv_udp_connect(more, &to, w.now), -EAGAIN);
	CHECK_EQ(sock_send(&w, more, &to, "x", 1), -EAGAIN);
	pv_udp_close(u[17]);
	CHECK_EQ(pv_udp_bind(more, &any), 0);
	pv_udp_close(more);
	for (uint32_t i = 0; i < N; i++)
		if (i != 17)
			pv_udp_close(u[i]);
	world_close(&w);
}

TEST(ports_start_where_the_seed_says)
{
	uint16_t port[3];

	for (uint32_t i = 0; i < 3; i++) {
		struct world w;
		struct pv_udp *u;

		world_open(&w, &(struct world_cfg){ .seed = i < 2 ? 6 : 7 });
		u = sock_bound(&w, 0, PV_AF_INET, any4(), 0);
		port[i] = sock_port(u);
		pv_udp_close(u);
		world_close(&w);
	}
	CHECK_EQ(port[0], port[1]);
	CHECK(port[0] != port[2]);
}

TEST(open_fails_cleanly_without_memory)
{
	struct world w;
	uint32_t failed = 0;

	world_open(&w, &(struct world_cfg){ .seed = 8 });
	for (long n = 0; n < 12; n++) {
		struct pv_udp_table *t = NULL;
		struct pv_udp *u = NULL;
		struct pv_endpoint e = ep(any4(), 7000);
		struct pv_addr group = ip4(239, 0, 0, 1), source = ip4(10, 0, 0, 9);
		int rc;

		w.mem.fail_in = n;
		rc = pv_udp_table_open(&t, w.host[0].net, &w.mem.mem, &(struct pv_udp_cfg){ .seed = 1 });
		if (!rc) {
			rc = pv_udp_open(t, PV_AF_INET, NULL, &u);
			if (!rc) {
				pv_udp_options(u)->reuse_port = true;
				rc = pv_udp_bind(u, &e);
				if (!rc)
					rc = pv_udp_join(u, 1, &group, &source, w.now);
				pv_udp_close(u);
			}
			pv_udp_table_close(t);
		}
		CHECK(!rc || rc == -ENOMEM);
		failed += rc != 0;
	}
	w.mem.fail_in = -1;
	CHECK(failed >= 8);
	world_close(&w);
}

TEST(port_range_must_be_one)
{
	struct pv_udp_table *t;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 9 });
	CHECK_EQ(pv_udp_table_open(&t, w.host[0].net, &w.mem.mem, &(struct pv_udp_cfg){ .port_lo = 9, .port_hi = 8 }), -EINVAL);
	CHECK_EQ(pv_udp_table_open(&t, w.host[0].net, &w.mem.mem, &(struct pv_udp_cfg){ .port_hi = 8 }), -EINVAL);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
