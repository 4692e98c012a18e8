/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups and broadcast. Membership and source filters are compared with the Linux kernel: the same random calls go to a kernel socket
 * on lo and to a socket of a stack; errno, the filter read back and (IPv4) who hears whom must agree after every call.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/rng.h"
#include "world.h"

static uint8_t data[70000], in[70000];

/* ---- the kernel's side ------------------------------------------------------------------------------------------------- */

struct kernel {
	int family; /* 4 or 6 */
	int rx, tx[2], holder;
	uint32_t lo;
	uint16_t port;
	bool carries; /* lo takes datagrams to groups: not those of IPv6, without a route that root adds */
};

/* Numbers stand for addresses in both worlds: sources 0, 1 send, 2 never does; groups 0, 1. */
static socklen_t kernel_sa(int family, const char *text, uint16_t port, struct sockaddr_storage *ss)
{
	struct sockaddr_in *a4 = (void *)ss;
	struct sockaddr_in6 *a6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (family == 4) {
		*a4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
		inet_pton(AF_INET, text, &a4->sin_addr);
		return sizeof(*a4);
	}
	*a6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(port) };
	inet_pton(AF_INET6, text, &a6->sin6_addr);
	return sizeof(*a6);
}

static const char *source_text(int family, uint32_t i)
{
	static const char *const v4[] = { "127.0.0.1", "127.0.0.2", "127.0.0.3" }, *const v6[] = { "::1", "fd00::98", "fd00::99" };

	return family == 4 ? v4[i] : v6[i];
}

/* Groups of this process alone: what another joins on lo, IP_MULTICAST_ALL sockets of all hear. */
static const char *group_text(int family, uint32_t i)
{
	static const char *const v6[] = { "ff15::77:1", "ff15::77:2" };
	static char v4[2][16];
	uint32_t pid = (uint32_t)getpid();

	snprintf(v4[i], sizeof(v4[i]), "239.%u.%u.%u", 64 + (pid >> 15 & 63), pid >> 7 & 255, (pid & 127) * 2 + i);
	return family == 4 ? v4[i] : v6[i];
}

static struct pv_addr our_source(int family, uint32_t i)
{
	return family == 4 ? ip4(10, 0, 0, (uint8_t)(i == 0 ? 2 : i == 1 ? 102 : 99)) : ip6((uint8_t)(i == 0 ? 2 : 97 + i));
}

static struct pv_addr our_group(int family, uint32_t i)
{
	struct pv_addr g = { .b = { 0xff, 0x15, [13] = 0x77, [15] = (uint8_t)(i + 1) } };

	return family == 4 ? ip4(239, 77, 1, (uint8_t)(i + 1)) : g;
}

static int level(int family)
{
	return family == 4 ? IPPROTO_IP : IPPROTO_IPV6;
}

static void set_int(int fd, int lvl, int name, int value)
{
	CHECK(!setsockopt(fd, lvl, name, &value, sizeof(value)));
}

static int kernel_socket(const struct kernel *k, const char *text, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = kernel_sa(k->family, text, port, &ss);
	struct timeval tv = { .tv_sec = 30 };
	int fd = socket(k->family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	if (bind(fd, (void *)&ss, len)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void kernel_close(struct kernel *k)
{
	close(k->rx);
	close(k->holder);
	close(k->tx[0]);
	close(k->tx[1]);
}

static int kernel_join(const struct kernel *k, int fd, int name, uint32_t group)
{
	struct group_req req = { .gr_interface = k->lo };

	kernel_sa(k->family, group_text(k->family, group), 0, &req.gr_group);
	return setsockopt(fd, level(k->family), name, &req, sizeof(req)) ? -errno : 0;
}

static int kernel_source(const struct kernel *k, int name, uint32_t group, uint32_t source)
{
	struct group_source_req req = { .gsr_interface = k->lo };

	kernel_sa(k->family, group_text(k->family, group), 0, &req.gsr_group);
	kernel_sa(k->family, source_text(k->family, source), 0, &req.gsr_source);
	return setsockopt(k->rx, level(k->family), name, &req, sizeof(req)) ? -errno : 0;
}

union filter {
	struct group_filter f;
	uint8_t room[GROUP_FILTER_SIZE(8)];
};

static int kernel_filter(const struct kernel *k, uint32_t group, uint32_t mode, uint32_t sources)
{
	union filter u = { .f = { .gf_interface = k->lo, .gf_fmode = mode } };
	struct sockaddr_storage *list = u.f.gf_slist;

	kernel_sa(k->family, group_text(k->family, group), 0, &u.f.gf_group);
	for (uint32_t i = 0; i < 3; i++)
		if (sources & 1u << i)
			kernel_sa(k->family, source_text(k->family, i), 0, &list[u.f.gf_numsrc++]);
	return setsockopt(k->rx, level(k->family), MCAST_MSFILTER, &u, GROUP_FILTER_SIZE(u.f.gf_numsrc)) ? -errno : 0;
}

/* -errno or mode and number of sources in one. */
static int kernel_filter_get(const struct kernel *k, uint32_t group)
{
	union filter u = { .f = { .gf_interface = k->lo, .gf_numsrc = 8 } };
	socklen_t len = sizeof(u);

	kernel_sa(k->family, group_text(k->family, group), 0, &u.f.gf_group);
	if (getsockopt(k->rx, level(k->family), MCAST_MSFILTER, &u, &len))
		return -errno;
	return (int)(u.f.gf_fmode * 100 + u.f.gf_numsrc);
}

/* One datagram from source `i` to the group, then one to the socket itself behind which no more can come. */
static bool kernel_hears(const struct kernel *k, uint32_t group, uint32_t i)
{
	struct sockaddr_storage ss;
	socklen_t len = kernel_sa(k->family, group_text(k->family, group), k->port, &ss);
	bool heard = false;
	char c;

	CHECK_EQ(sendto(k->tx[i], "g", 1, 0, (void *)&ss, len), 1);
	len = kernel_sa(k->family, source_text(k->family, 0), k->port, &ss);
	CHECK_EQ(sendto(k->tx[0], "e", 1, 0, (void *)&ss, len), 1);
	for (;;) {
		CHECK_EQ(recv(k->rx, &c, 1, 0), 1);
		if (c == 'e')
			return heard;
		CHECK(!heard);
		heard = true;
	}
}

/* False when this machine has no IPv6. */
static bool kernel_open(struct kernel *k, int family)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	const char *any = family == 4 ? "0.0.0.0" : "::";
	struct ip_mreqn out;

	*k = (struct kernel){ .family = family, .lo = if_nametoindex("lo"), .rx = -1, .holder = -1, .tx = { -1, -1 } };
	k->tx[0] = k->lo ? kernel_socket(k, source_text(family, 0), 0) : -1;
	if (k->tx[0] < 0)
		return false;
	k->tx[1] = kernel_socket(k, source_text(family, family == 4), 0);
	/* Unicast for the marks and groups: the wildcard; a port of its own. */
	k->rx = kernel_socket(k, any, 0);
	CHECK(!getsockname(k->rx, (void *)&ss, &len));
	k->port = ntohs(((struct sockaddr_in *)(void *)&ss)->sin_port);
	k->holder = kernel_socket(k, any, 0);
	for (int i = 0; i < 2; i++) {
		if (family == 4) {
			out = (struct ip_mreqn){ .imr_ifindex = (int)k->lo };
			CHECK(!setsockopt(k->tx[i], IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof(out)));
		} else {
			set_int(k->tx[i], IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)k->lo);
		}
	}
	len = kernel_sa(family, group_text(family, 0), 9, &ss);
	k->carries = sendto(k->tx[0], "x", 1, 0, (void *)&ss, len) == 1;
	return true;
}

/* ---- both ------------------------------------------------------------------------------------------------------------- */

struct both {
	struct kernel k;
	struct world w;
	struct pv_udp *rx, *holder, *tx[2];
	uint32_t iface;
	bool held[2];
};

static bool both_open(struct both *b, int family, uint64_t seed)
{
	enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;

	if (!kernel_open(&b->k, family))
		return false;
	world_open(&b->w, &(struct world_cfg){ .seed = seed, .extra4 = 1 });
	b->iface = b->w.host[0].iface;
	b->rx = sock_bound(&b->w, 0, af, family == 4 ? any4() : any6(), 7000);
	b->holder = sock_open(&b->w, 0, af);
	b->tx[0] = sock_bound(&b->w, 1, af, our_source(family, 0), 0);
	b->tx[1] = sock_bound(&b->w, 1, af, our_source(family, family == 4), 0);
	b->held[0] = b->held[1] = false;
	return true;
}

static void both_close(struct both *b)
{
	kernel_close(&b->k);
	pv_udp_close(b->rx);
	pv_udp_close(b->holder);
	pv_udp_close(b->tx[0]);
	pv_udp_close(b->tx[1]);
	world_close(&b->w);
}

static bool ours_hears(struct both *b, uint32_t group, uint32_t i)
{
	struct pv_endpoint to = ep(our_group(b->k.family, group), 7000);
	bool heard;

	CHECK_EQ(sock_send(&b->w, b->tx[i], &to, "g", 1), 1);
	world_run(&b->w, PV_NS_PER_MS);
	heard = pv_udp_queued(b->rx) == 1;
	CHECK(pv_udp_queued(b->rx) <= 1);
	if (heard)
		sock_expect(b->rx, "g");
	return heard;
}

enum op { JOIN, LEAVE, JOIN_SOURCE, LEAVE_SOURCE, BLOCK, UNBLOCK, FILTER, ALL, OPS };

static const char *const op_name[OPS] = { "join",  "leave",   "join source", "leave source",
					  "block", "unblock", "filter",      "multicast_all" };

struct step {
	enum op op;
	uint32_t group, source, mode, sources;
};

static int kernel_step(const struct kernel *k, const struct step *s)
{
	switch (s->op) {
	case JOIN:
		return kernel_join(k, k->rx, MCAST_JOIN_GROUP, s->group);
	case LEAVE:
		return kernel_join(k, k->rx, MCAST_LEAVE_GROUP, s->group);
	case JOIN_SOURCE:
		return kernel_source(k, MCAST_JOIN_SOURCE_GROUP, s->group, s->source);
	case LEAVE_SOURCE:
		return kernel_source(k, MCAST_LEAVE_SOURCE_GROUP, s->group, s->source);
	case BLOCK:
		return kernel_source(k, MCAST_BLOCK_SOURCE, s->group, s->source);
	case UNBLOCK:
		return kernel_source(k, MCAST_UNBLOCK_SOURCE, s->group, s->source);
	case FILTER:
		return kernel_filter(k, s->group, s->mode ? MCAST_INCLUDE : MCAST_EXCLUDE, s->sources);
	default:
		set_int(k->rx, level(k->family), k->family == 4 ? 49 /* IP_MULTICAST_ALL */ : 29 /* IPV6_MULTICAST_ALL */,
			(int)s->mode);
		return 0;
	}
}

static int our_step(struct both *b, const struct step *s)
{
	int family = b->k.family;
	struct pv_addr group = our_group(family, s->group), source = our_source(family, s->source), list[3];
	struct pv_udp_filter filter;
	int64_t now = b->w.now;
	uint32_t n = 0;

	switch (s->op) {
	case JOIN:
		return pv_udp_join(b->rx, b->iface, &group, NULL, now);
	case LEAVE:
		return pv_udp_leave(b->rx, b->iface, &group, NULL, now);
	case JOIN_SOURCE:
		return pv_udp_join(b->rx, b->iface, &group, &source, now);
	case LEAVE_SOURCE:
		return pv_udp_leave(b->rx, b->iface, &group, &source, now);
	case BLOCK:
		return pv_udp_block(b->rx, b->iface, &group, &source, now);
	case UNBLOCK:
		return pv_udp_unblock(b->rx, b->iface, &group, &source, now);
	case FILTER:
		for (uint32_t i = 0; i < 3; i++)
			if (s->sources & 1u << i)
				list[n++] = our_source(family, i);
		filter = (struct pv_udp_filter){ s->mode ? PV_FILTER_INCLUDE : PV_FILTER_EXCLUDE, list, n };
		return pv_udp_filter_set(b->rx, b->iface, &group, &filter, now);
	default:
		pv_udp_options(b->rx)->mcast_all4 = pv_udp_options(b->rx)->mcast_all6 = s->mode;
		return 0;
	}
}

static int our_filter_get(struct both *b, uint32_t group)
{
	struct pv_addr g = our_group(b->k.family, group);
	enum pv_filter_mode mode;
	int n = pv_udp_filter_get(b->rx, b->iface, &g, &mode, NULL, 0);

	return n < 0 ? n : (mode == PV_FILTER_INCLUDE ? MCAST_INCLUDE : MCAST_EXCLUDE) * 100 + n;
}

static void same(const struct step *s, uint64_t seed, const char *what, int kernel, int ours)
{
	if (kernel == ours)
		return;
	fprintf(stderr, "seed %llu, after %s group %u source %u mode %u sources %x: %s: kernel %d, ours %d\n",
		(unsigned long long)seed, op_name[s->op], s->group, s->source, s->mode, s->sources, what, kernel, ours);
	CHECK(!"as the kernel does");
}

static void random_filters(int family, uint64_t seed)
{
	struct pv_rng rng;
	struct both b;

	if (!both_open(&b, family, seed))
		test_skip("no IPv6 on lo");
	pv_rng_seed(&rng, seed);
	for (uint32_t g = 0; g < 2; g++) {
		struct pv_addr group = our_group(family, g);

		/* Somebody else on the host may be a member: then IP_MULTICAST_ALL shows. */
		if (!pv_rng_below(&rng, 2))
			continue;
		CHECK_EQ(kernel_join(&b.k, b.k.holder, MCAST_JOIN_GROUP, g), 0);
		CHECK_EQ(pv_udp_join(b.holder, b.iface, &group, NULL, b.w.now), 0);
	}
	for (int i = 0; i < 24; i++) {
		struct step s = { .op = (enum op)pv_rng_below(&rng, OPS),
				  .group = pv_rng_below(&rng, 4) == 0,
				  .source = (uint32_t)pv_rng_below(&rng, 3),
				  .mode = (uint32_t)pv_rng_below(&rng, 2),
				  .sources = (uint32_t)pv_rng_below(&rng, 8) };

		same(&s, seed, "errno", kernel_step(&b.k, &s), our_step(&b, &s));
		for (uint32_t g = 0; g < 2; g++) {
			same(&s, seed, "filter", kernel_filter_get(&b.k, g), our_filter_get(&b, g));
			for (uint32_t src = 0; src < 2 && b.k.carries; src++)
				same(&s, seed, "heard", kernel_hears(&b.k, g, src), ours_hears(&b, g, src));
		}
	}
	both_close(&b);
}

/* What one CPU sends on lo arrives in order. */
static void stay_on_one_cpu(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

TEST(ipv4_filters_as_the_kernel_has_them)
{
	stay_on_one_cpu();
	for (uint64_t seed = 0; seed < 120; seed++)
		random_filters(4, seed);
}

TEST(ipv6_filters_as_the_kernel_has_them)
{
	stay_on_one_cpu();
	for (uint64_t seed = 0; seed < 120; seed++)
		random_filters(6, seed);
}

/* ---- limits and arguments ---------------------------------------------------------------------------------------------- */

TEST(limits_and_bad_arguments)
{
	struct pv_addr uni = ip4(10, 0, 0, 9), g6 = our_group(6, 0), s6 = ip6(9), list[65];
	enum pv_filter_mode mode;
	struct pv_udp *u, *v;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 1 });
	u = sock_open(&w, 0, PV_AF_INET);
	v = sock_open(&w, 0, PV_AF_INET6);
	CHECK_EQ(pv_udp_join(u, 1, &uni, NULL, w.now), -EINVAL);
	CHECK_EQ(pv_udp_join(u, 1, &g6, NULL, w.now), -EINVAL);
	CHECK_EQ(pv_udp_join(v, 9, &g6, NULL, w.now), -ENODEV);
	for (uint32_t i = 0; i < 20; i++) {
		struct pv_addr g = ip4(239, 1, 1, (uint8_t)i);

		CHECK_EQ(pv_udp_join(u, i % 2, &g, NULL, w.now), 0);
		CHECK_EQ(pv_udp_join(u, 1, &g, NULL, w.now), -EADDRINUSE);
	}
	CHECK_EQ(pv_udp_join(u, 1, &(struct pv_addr){ .q = { ip4(239, 1, 1, 99).q[0], ip4(239, 1, 1, 99).q[1] } }, NULL, w.now),
		 -ENOBUFS);
	list[0] = ip4(239, 1, 1, 0);
	CHECK_EQ(pv_udp_join(u, 1, &list[0], &s6, w.now), -EINVAL);
	for (uint32_t i = 0; i < 10; i++) {
		struct pv_addr s = ip4(10, 9, 9, (uint8_t)i);

		CHECK_EQ(pv_udp_join(u, 1, &list[0], &s, w.now), 0);
		CHECK_EQ(pv_udp_join(u, 1, &list[0], &s, w.now), i < 9 ? -EADDRNOTAVAIL : -ENOBUFS);
	}
	CHECK_EQ(pv_udp_join(u, 1, &list[0], &uni, w.now), -ENOBUFS);
	CHECK_EQ(pv_udp_join(v, 1, &g6, NULL, w.now), 0);
	for (uint32_t i = 0; i < 65; i++)
		list[i] = ip6((uint8_t)(100 + i));
	CHECK_EQ(pv_udp_filter_set(v, 1, &g6, &(struct pv_udp_filter){ PV_FILTER_EXCLUDE, list, 65 }, w.now), -ENOBUFS);
	CHECK_EQ(pv_udp_filter_set(v, 1, &g6, &(struct pv_udp_filter){ PV_FILTER_EXCLUDE, list, 64 }, w.now), 0);
	CHECK_EQ(pv_udp_block(v, 1, &g6, &list[64], w.now), -ENOBUFS);
	memset(list, 0, sizeof(list));
	CHECK_EQ(pv_udp_filter_get(v, 0, &g6, &mode, list, 65), 64);
	CHECK_EQ(mode, PV_FILTER_EXCLUDE);
	CHECK_EQ(list[63].b[15], 163);
	list[0] = uni;
	CHECK_EQ(pv_udp_filter_set(v, 1, &g6, &(struct pv_udp_filter){ PV_FILTER_INCLUDE, list, 1 }, w.now), -EINVAL);
	/* Open memberships end with the socket. */
	pv_udp_close(u);
	pv_udp_close(v);
	world_close(&w);
}

/* ---- delivery ---------------------------------------------------------------------------------------------------------- */

struct room {
	struct world w;
	struct pv_udp *from, *member[3];
	struct pv_endpoint to;
};

static struct pv_udp *member_open(struct world *w, uint32_t host, int family, const struct pv_addr *group)
{
	struct pv_udp *u = sock_open(w, host, family == 4 ? PV_AF_INET : PV_AF_INET6);
	struct pv_endpoint any = ep(family == 4 ? any4() : any6(), 7000);

	pv_udp_options(u)->reuse_addr = true;
	pv_udp_options(u)->rcvbuf = 1 << 20;
	pv_udp_options_changed(u);
	CHECK_EQ(pv_udp_bind(u, &any), 0);
	if (group)
		CHECK_EQ(pv_udp_join(u, 0, group, NULL, w->now), 0);
	return u;
}

static void room_open(struct room *r, int family, uint64_t seed)
{
	struct pv_addr group = our_group(family, 0);

	world_open(&r->w, &(struct world_cfg){ .seed = seed, .pool = 512 });
	r->from = sock_open(&r->w, 0, family == 4 ? PV_AF_INET : PV_AF_INET6);
	for (uint32_t i = 0; i < 3; i++)
		r->member[i] = member_open(&r->w, 1, family, &group);
	r->to = ep(group, 7000);
}

static void room_close(struct room *r)
{
	pv_udp_close(r->from);
	for (uint32_t i = 0; i < 3; i++)
		pv_udp_close(r->member[i]);
	world_close(&r->w);
}

TEST(every_member_gets_its_own_copy)
{
	static const uint32_t size[] = { 0, 1, 64, 1472, 1473, 5000, 65507 };

	for (int family = 4; family <= 6; family += 2) {
		struct room r;
		struct pv_udp_recv msg;

		room_open(&r, family, 2);
		for (uint32_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)(i * 7 + i / 255);
		for (uint32_t s = 0; s < pv_array_size(size); s++) {
			CHECK_EQ(sock_send(&r.w, r.from, &r.to, data, size[s]), size[s]);
			world_run(&r.w, PV_NS_PER_MS);
			for (uint32_t i = 0; i < 3; i++) {
				CHECK_EQ(pv_udp_queued(r.member[i]), 1);
				memset(in, 0, size[s]);
				CHECK_EQ(sock_recv(r.member[i], in, sizeof(in), &msg), size[s]);
				CHECK(!memcmp(in, data, size[s]));
				CHECK(pv_addr_eq(&msg.dst, &r.to.addr));
				CHECK_EQ(msg.from.port, sock_port(r.from));
				CHECK_EQ(msg.ttl, 1);
			}
		}
		room_close(&r);
	}
}

TEST(connected_and_bound_members_choose)
{
	struct pv_endpoint elsewhere = ep(ip4(10, 0, 0, 9), 1), group = ep(our_group(4, 0), 7000);
	struct pv_udp *bound;
	struct room r;

	room_open(&r, 4, 3);
	CHECK_EQ(pv_udp_connect(r.member[0], &elsewhere, r.w.now), 0);
	pv_udp_options(r.member[1])->bound_iface = 7;
	pv_udp_options_changed(r.member[1]);
	/* Bound to the group itself, not a member: hears it since another on the host is (IP_MULTICAST_ALL). */
	bound = sock_open(&r.w, 1, PV_AF_INET);
	pv_udp_options(bound)->reuse_addr = true;
	CHECK_EQ(pv_udp_bind(bound, &group), 0);
	CHECK_EQ(sock_send(&r.w, r.from, &r.to, "x", 1), 1);
	world_run(&r.w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(r.member[0]), 0);
	CHECK_EQ(pv_udp_queued(r.member[1]), 0);
	CHECK_EQ(pv_udp_queued(r.member[2]), 1);
	CHECK_EQ(pv_udp_queued(bound), 1);
	pv_udp_options(bound)->mcast_all4 = false;
	CHECK_EQ(sock_send(&r.w, r.from, &r.to, "x", 1), 1);
	world_run(&r.w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(r.member[2]), 2);
	CHECK_EQ(pv_udp_queued(bound), 1);
	CHECK_EQ(pv_udp_counters(bound)->rx_filtered, 1);
	CHECK_EQ(pv_udp_table_counters(r.w.host[1].udp)->rx_filtered, 0);
	/* What it sends from there carries the address of the route. */
	CHECK_EQ(pv_udp_connect(bound, &(struct pv_endpoint){ ip4(10, 0, 0, 1), sock_port(r.from), 0 }, r.w.now), 0);
	CHECK_EQ(sock_send(&r.w, bound, NULL, "back", 4), 4);
	world_run(&r.w, PV_NS_PER_MS);
	sock_expect(r.from, "back");
	pv_udp_close(bound);
	room_close(&r);
}

TEST(nobody_to_take_it_is_counted)
{
	struct pv_addr source = ip4(10, 0, 0, 1);
	const struct pv_udp_counters *c;
	struct room r;

	room_open(&r, 4, 4);
	c = pv_udp_table_counters(r.w.host[1].udp);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(pv_udp_block(r.member[i], 0, &r.to.addr, &source, r.w.now), 0);
	CHECK_EQ(sock_send(&r.w, r.from, &r.to, "x", 1), 1);
	world_run(&r.w, PV_NS_PER_MS);
	CHECK_EQ(c->rx_filtered, 1);
	CHECK_EQ(pv_udp_counters(r.member[1])->rx_filtered, 1);
	r.to.port++;
	CHECK_EQ(sock_send(&r.w, r.from, &r.to, "x", 1), 1);
	world_run(&r.w, PV_NS_PER_MS);
	CHECK_EQ(c->rx_no_port, 1);
	/* Never answered (RFC 1122 3.2.2). */
	CHECK_EQ(pv_net_counters(r.w.host[0].net)->rx_icmp_error, 0);
	room_close(&r);
}

TEST(an_empty_pool_costs_the_copies_only)
{
	struct pv_pkt *held[512];
	const struct pv_udp_counters *c;
	struct room r;
	uint32_t n = 0, queued = 0;

	room_open(&r, 4, 5);
	c = pv_udp_table_counters(r.w.host[1].udp);
	CHECK_EQ(sock_send(&r.w, r.from, &r.to, "x", 1), 1);
	world_run(&r.w, PV_NS_PER_MS);
	while ((held[n] = pv_pkt_get(r.w.host[1].pool)))
		n++;
	CHECK_EQ(sock_send(&r.w, r.from, &r.to, "x", 1), 1);
	world_run(&r.w, PV_NS_PER_MS);
	while (n)
		pv_pkt_put(held[--n]);
	for (uint32_t i = 0; i < 3; i++)
		queued += pv_udp_queued(r.member[i]);
	CHECK_EQ(queued, 4);
	CHECK_EQ(c->rx_no_buf, 2);
	CHECK_EQ(pv_udp_counters(r.member[0])->rx_no_buf + pv_udp_counters(r.member[1])->rx_no_buf +
		     pv_udp_counters(r.member[2])->rx_no_buf,
		 2);
	room_close(&r);
}

/* The sender's host hears itself, when a socket there is a member and the sender has not switched it off. */
TEST(our_own_members_hear_us)
{
	for (int family = 4; family <= 6; family += 2) {
		struct pv_udp *own, *other;
		struct pv_udp_opts *o;
		struct pv_udp_recv msg;
		struct room r;

		room_open(&r, family, 6);
		other = member_open(&r.w, 0, family, NULL);
		CHECK_EQ(sock_send(&r.w, r.from, &r.to, "before", 6), 6);
		world_run(&r.w, PV_NS_PER_MS);
		/* Nobody on this host is a member: not even IP_MULTICAST_ALL sockets hear it. */
		sock_expect_none(other);
		own = member_open(&r.w, 0, family, &r.to.addr);
		CHECK_EQ(sock_send(&r.w, r.from, &r.to, data, 3000), 3000);
		CHECK_EQ(sock_recv(own, in, sizeof(in), &msg), 3000);
		CHECK(!memcmp(in, data, 3000));
		CHECK(msg.flags & PV_PKT_LOOPED);
		CHECK_EQ(msg.ttl, 1);
		CHECK_EQ(msg.from.port, sock_port(r.from));
		CHECK(pv_addr_eq(&msg.dst, &r.to.addr));
		CHECK_EQ(msg.iface, r.w.host[0].iface);
		CHECK_EQ(sock_recv(other, in, sizeof(in), &msg), 3000);
		/* The interface does not hear its own frame back from the wire a second time. */
		world_run(&r.w, PV_NS_PER_MS);
		sock_expect_none(own);
		o = pv_udp_options(r.from);
		o->mcast_loop4 = o->mcast_loop6 = false;
		pv_udp_options_changed(r.from);
		CHECK_EQ(sock_send(&r.w, r.from, &r.to, "quiet", 5), 5);
		sock_expect_none(own);
		world_run(&r.w, PV_NS_PER_MS);
		for (uint32_t i = 0; i < 3; i++)
			CHECK_EQ(pv_udp_queued(r.member[i]), 3);
		/* TTL 0: for this host only. */
		o->mcast_loop4 = o->mcast_loop6 = true;
		o->mcast_ttl = 0;
		o->mcast_hops = 0;
		pv_udp_options_changed(r.from);
		CHECK_EQ(sock_send(&r.w, r.from, &r.to, "here", 4), 4);
		world_run(&r.w, PV_NS_PER_MS);
		sock_expect(own, "here");
		CHECK_EQ(pv_udp_queued(r.member[0]), 3);
		pv_udp_close(own);
		pv_udp_close(other);
		room_close(&r);
	}
}

TEST(interface_local_scope_stays_at_home)
{
	struct pv_addr group = { .b = { 0xff, 0x11, [15] = 9 } };
	struct pv_endpoint to = ep(group, 7000);
	struct pv_udp *own, *far, *from;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 7 });
	own = sock_bound(&w, 0, PV_AF_INET6, any6(), 7000);
	far = sock_bound(&w, 1, PV_AF_INET6, any6(), 7000);
	from = sock_open(&w, 0, PV_AF_INET6);
	CHECK_EQ(pv_udp_join(own, 1, &group, NULL, w.now), 0);
	CHECK_EQ(pv_udp_join(far, 1, &group, NULL, w.now), 0);
	to.iface = w.host[0].iface;
	CHECK_EQ(sock_send(&w, from, &to, "x", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	sock_expect(own, "x");
	sock_expect_none(far);
	pv_udp_close(own);
	pv_udp_close(far);
	pv_udp_close(from);
	world_close(&w);
}

TEST(broadcast_with_leave_only)
{
	struct pv_endpoint all[2] = { ep(ip4(255, 255, 255, 255), 7000), ep(ip4(10, 0, 0, 255), 7000) };
	struct pv_udp *own;
	struct pv_udp_recv msg;
	struct room r;

	room_open(&r, 4, 8);
	own = member_open(&r.w, 0, 4, NULL);
	CHECK_EQ(sock_send(&r.w, r.from, &all[1], "x", 1), -EACCES);
	CHECK_EQ(pv_udp_connect(r.from, &all[1], r.w.now), -EACCES);
	pv_udp_options(r.from)->broadcast = true;
	pv_udp_options(r.from)->bound_iface = r.w.host[0].iface;
	pv_udp_options_changed(r.from);
	for (uint32_t n = 0; n < 2; n++) {
		CHECK_EQ(sock_send(&r.w, r.from, &all[n], data, 100), 100);
		world_run(&r.w, PV_NS_PER_MS);
		for (uint32_t i = 0; i < 3; i++) {
			CHECK_EQ(sock_recv(r.member[i], in, sizeof(in), &msg), 100);
			CHECK(pv_addr_eq(&msg.dst, &all[n].addr));
			CHECK_EQ(msg.ttl, 64);
		}
		CHECK_EQ(sock_recv(own, in, sizeof(in), &msg), 100);
		CHECK(msg.flags & PV_PKT_LOOPED);
		sock_expect_none(own);
	}
	pv_udp_close(own);
	room_close(&r);
}

TEST(source_interface_and_address_of_a_group)
{
	struct pv_addr src = ip4(10, 0, 0, 101);
	struct pv_udp_recv msg;
	struct pv_udp *from, *member;
	struct pv_addr group = our_group(4, 0);
	struct pv_endpoint to = ep(group, 7000);
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 9, .extra4 = 1 });
	from = sock_open(&w, 0, PV_AF_INET);
	member = member_open(&w, 1, 4, &group);
	pv_udp_options(from)->mcast_src4 = src;
	pv_udp_options(from)->mcast_iface4 = w.host[0].iface;
	pv_udp_options(from)->mcast_ttl = 7;
	pv_udp_options_changed(from);
	CHECK_EQ(sock_send(&w, from, &to, "x", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(sock_recv(member, in, sizeof(in), &msg), 1);
	CHECK(pv_addr_eq(&msg.from.addr, &src));
	CHECK_EQ(msg.ttl, 7);
	pv_udp_options(from)->mcast_iface4 = 9;
	pv_udp_options_changed(from);
	CHECK_EQ(sock_send(&w, from, &to, "x", 1), -ENODEV);
	pv_udp_close(from);
	pv_udp_close(member);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
