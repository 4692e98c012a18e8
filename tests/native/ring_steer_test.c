/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The XDP program by itself: frames of every kind are put through it (BPF_PROG_TEST_RUN) and its verdicts compared with what a flow's
 * datagrams are, and with what the stack's own parsers make of them: what is steered must be a datagram that the stack delivers.
 */
#include "test.h"

#ifndef PV_HAVE_XDP
int main(void)
{
	puts("skip: built without libbpf or clang");
	return 77;
}
#else
#include <errno.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "ring/xdp_priv.h"
#include "testmem.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

#define ETH_IP4 0x0800
#define ETH_IP6 0x86dd
#define PORT 7000

static const uint8_t own_mac[6] = { 2, 0, 0, 0, 0, 1 };
static struct testmem mem;
static struct pv_pool *pool;
static struct pv_ring *ring;

static struct pv_addr own(bool v6)
{
	return v6 ? pv_addr_from6((const uint8_t[16]){ 0xfd, 1, [15] = 1 }) : pv_addr_from4((const uint8_t[4]){ 10, 1, 0, 1 });
}

/* The program has a few rules at hand, and for more it looks into its map: nearly all is tried both ways. */
static bool crowd;

#define TEST_BOTH(name)                                                                                                            \
	static void name##_by(void);                                                                                               \
	TEST(name)                                                                                                                 \
	{                                                                                                                          \
		crowd = false;                                                                                                     \
		name##_by();                                                                                                       \
		crowd = true;                                                                                                      \
		name##_by();                                                                                                       \
	}                                                                                                                          \
	static void name##_by(void)

static struct xdp_ring *inside(void)
{
	return (struct xdp_ring *)(void *)ring;
}

/* Rules for our port at both addresses, none for anything else that comes. */
static void setup(void)
{
	const struct pv_pool_cfg cfg = { .buf_size = 2048, .headroom = 128, .count = 128, .max = 128 };
	const struct pv_xdp_cfg xdp = { .ifname = "s0", .rx_depth = 64, .tx_depth = 64, .mode = PV_XDP_GENERIC };
	char err[256] = "";

	if (geteuid() != 0)
		test_skip("needs root for a network namespace");
	CHECK_EQ(unshare(CLONE_NEWNET), 0);
	CHECK_EQ(system("timeout 20 ip link add s0 address 02:00:00:00:00:01 type veth peer name s1"), 0);
	CHECK_EQ(system("timeout 20 ip link set s0 up"), 0);
	testmem_init(&mem);
	CHECK_EQ(pv_pool_open(&pool, &mem.mem, &cfg), 0);
	CHECK_EQ(pv_xdp_open(&ring, &mem.mem, pool, &xdp, err, sizeof(err)), 0);
	for (int i = 0; i < 4; i++) {
		struct pv_flow flow = { .kind = PV_FLOW_3TUPLE, .l4_proto = i < 2 ? 17 : 6, .dst = own(i & 1), .dst_port = PORT };
		uint64_t handle;

		CHECK_EQ(pv_ring_flow_add(ring, &flow, &handle), 0);
	}
	if (crowd) {
		struct pv_flow flow = { .kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst = own(false), .dst_port = 1 };
		uint64_t handle;

		CHECK_EQ(pv_ring_flow_add(ring, &flow, &handle), 0);
	}
	CHECK_EQ(inside()->told.few, !crowd);
}

static void teardown(void)
{
	pv_ring_close(ring);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(mem.blocks, 0);
	CHECK_EQ(system("timeout 20 ip link del s0"), 0);
}

/* ---- frames -------------------------------------------------------------------------------------------------------------- */

struct frame {
	uint8_t b[256];
	uint32_t len, l3;
};

static void put(struct frame *f, const void *bytes, uint32_t n)
{
	memcpy(f->b + f->len, bytes, n);
	f->len += n;
}

static void put_u16(struct frame *f, uint16_t v)
{
	pv_put16(f->b + f->len, v);
	f->len += 2;
}

static void put_eth(struct frame *f)
{
	static const uint8_t peer[6] = { 2, 0, 0, 0, 0, 2 };

	f->len = 0;
	put(f, own_mac, 6);
	put(f, peer, 6);
}

static void put_udp(struct frame *f)
{
	put_u16(f, 1111);
	put_u16(f, PORT);
	put_u16(f, 12);
	put_u16(f, 0);
	put(f, "data", 4);
}

/* With `options` bytes, a multiple of four, behind the header's twenty. */
static void put_ip4(struct frame *f, const void *options, uint32_t n)
{
	struct pv_wire_ip4 ip = { .total_len = (uint16_t)(32 + n),
				  .ttl = 64,
				  .proto = 17,
				  .src = pv_addr_from4((const uint8_t[4]){ 10, 1, 0, 2 }).w[3],
				  .dst = own(false).w[3] };

	put_u16(f, ETH_IP4);
	f->l3 = f->len;
	f->len += pv_wire_ip4_emit(f->b + f->len, &ip);
	f->b[f->l3] = (uint8_t)(0x40 | (20 + n) / 4);
	put(f, options, n);
	put_udp(f);
}

/* `chain`: headers in front of UDP; each begins with its own number, which moves to where its predecessor says what follows. */
static void put_ip6(struct frame *f, const uint8_t (*chain)[8], uint32_t n)
{
	struct pv_addr dst = own(true), src = dst;
	uint32_t next_at;

	src.b[15] = 2;
	put_u16(f, ETH_IP6);
	f->l3 = f->len;
	put(f, (const uint8_t[4]){ 0x60 }, 4);
	put_u16(f, (uint16_t)(8 * n + 12));
	next_at = f->len;
	put(f, (const uint8_t[2]){ 17, 64 }, 2);
	put(f, src.b, 16);
	put(f, dst.b, 16);
	for (uint32_t i = 0; i < n; i++) {
		f->b[next_at] = chain[i][0];
		next_at = f->len;
		put(f, chain[i], 8);
		f->b[next_at] = 17;
	}
	put_udp(f);
}

/* ---- verdicts ------------------------------------------------------------------------------------------------------------ */

static bool steers(const struct frame *f)
{
	uint8_t out[512];
	union bpf_attr attr = { .test = { .prog_fd = (uint32_t)inside()->prog_fd,
					  .data_in = (uintptr_t)f->b,
					  .data_size_in = f->len,
					  .data_out = (uintptr_t)out,
					  .data_size_out = sizeof(out),
					  .repeat = 1 } };

	CHECK_EQ(syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof(attr)), 0);
	CHECK(attr.test.retval == XDP_REDIRECT || attr.test.retval == XDP_PASS);
	/* Whoever gets it gets it as it came. */
	CHECK(attr.test.data_size_out == f->len && !memcmp(out, f->b, f->len));
	return attr.test.retval == XDP_REDIRECT;
}

/* Cut off before the ports it is nobody's; whatever is cut off behind them is no matter. */
static void cut_everywhere(const struct frame *whole, uint32_t ports_end)
{
	for (uint32_t len = 14; len <= whole->len; len++) {
		struct frame f = *whole;

		f.len = len;
		CHECK_EQ(steers(&f), len >= ports_end);
	}
}

TEST_BOTH(plain_datagrams)
{
	struct frame f;

	setup();
	put_eth(&f);
	put_ip4(&f, "", 0);
	CHECK(steers(&f));
	cut_everywhere(&f, 14 + 20 + 4);
	f.b[0] = 6; /* another host's */
	CHECK(!steers(&f));
	f.b[0] = 0xff; /* to a group of the link's */
	CHECK(steers(&f));
	put_eth(&f);
	put_ip6(&f, NULL, 0);
	CHECK(steers(&f));
	cut_everywhere(&f, 14 + 40 + 4);
	for (uint32_t i = 0; i < 2; i++) {
		put_eth(&f);
		if (i)
			put_ip6(&f, NULL, 0);
		else
			put_ip4(&f, "", 0);
		f.b[f.len - 9] ^= 1; /* another port */
		CHECK(!steers(&f));
		f.b[f.len - 9] ^= 1;
		f.b[f.l3] ^= 0x10; /* another version */
		CHECK(!steers(&f));
	}
	teardown();
}

TEST_BOTH(vlan_tags)
{
	static const struct {
		uint16_t tags[2][2]; /* protocol and tag; 0: none */
		bool ours;
	} cases[] = {
		{ { { 0x8100, 0 } }, true }, /* a priority only */
		{ { { 0x8100, 0xe000 } }, true },
		{ { { 0x8100, 5 } }, false },
		{ { { 0x88a8, 0 } }, false }, /* a provider's: the kernel's, whatever is in it */
		{ { { 0x88a8, 5 } }, false },
		{ { { 0x88a8, 0 }, { 0x8100, 0 } }, false },
		{ { { 0x8100, 0 }, { 0x8100, 0 } }, false },
	};

	setup();
	for (size_t i = 0; i < pv_array_size(cases); i++) {
		for (int v6 = 0; v6 < 2; v6++) {
			struct frame f;

			put_eth(&f);
			for (int k = 0; k < 2 && cases[i].tags[k][0]; k++) {
				put_u16(&f, cases[i].tags[k][0]);
				put_u16(&f, cases[i].tags[k][1]);
			}
			if (v6)
				put_ip6(&f, NULL, 0);
			else
				put_ip4(&f, "", 0);
			CHECK_EQ(steers(&f), cases[i].ours);
		}
	}
	teardown();
}

TEST_BOTH(fragments_and_options_of_ip4)
{
	static const uint8_t nops[4] = { 1, 1, 1, 0 }, route[8] = { 7, 7, 4, 0, 0, 0, 0, 0 }, bad[4] = { 7, 40, 4, 0 };
	struct frame f;

	setup();
	for (uint32_t word = 0; word < 0x10000; word += 0x1fff) {
		put_eth(&f);
		put_ip4(&f, "", 0);
		pv_put16(f.b + f.l3 + 6, (uint16_t)word);
		CHECK_EQ(steers(&f), !(word & 0x3fff));
	}
	for (int i = 0; i < 3; i++) {
		put_eth(&f);
		put_ip4(&f, i == 0 ? nops : i == 1 ? route : bad, i == 1 ? 8 : 4);
		CHECK(!steers(&f));
	}
	put_eth(&f);
	put_ip4(&f, "", 0);
	f.b[f.l3] = 0x44; /* a header of 16 bytes */
	CHECK(!steers(&f));
	teardown();
}

#define HOP 0
#define ROUTING 43
#define FRAGMENT 44
#define AUTH 51
#define DEST 60

TEST_BOTH(extension_headers)
{
	static const struct {
		uint8_t chain[6][8];
		uint32_t n;
		bool ours;
	} cases[] = {
		{ { { HOP, 0, 1, 4 } }, 1, true },
		{ { { DEST, 0, 1, 4 } }, 1, true },
		{ { { HOP } }, 1, true }, /* Pad1 six times */
		{ { { HOP, 0, 1, 4 }, { DEST, 0, 1, 4 } }, 2, true },
		{ { { DEST, 0, 1, 4 }, { HOP, 0, 1, 4 } }, 2, false }, /* hop-by-hop options come first, or the kernel complains */
		{ { { HOP, 0, 1, 4 }, { HOP, 0, 1, 4 } }, 2, false },
		{ { { HOP, 0, 1, 4, 0, 0, 1 } }, 1, false }, /* padding that is none */
		{ { { HOP, 0, 0, 1 } }, 1, false },
		{ { { HOP, 0, 1, 3 } }, 1, false },
		{ { { HOP, 0, 5, 2, 0, 0, 1, 0 } }, 1, false }, /* router alert */
		{ { { HOP, 0, 0xc2, 4 } }, 1, false }, /* jumbo payload: parameter problem */
		{ { { DEST, 0, 0x1e, 4 } }, 1, false }, /* unknown, to be skipped */
		{ { { DEST, 0, 0x5e, 4 } }, 1, false }, /* unknown, to be dropped */
		{ { { DEST, 0, 0x9e, 4 } }, 1, false }, /* and answered */
		{ { { DEST, 1, 1, 4 } }, 1, false }, /* longer than it should be */
		{ { { ROUTING, 0, 0, 0 } }, 1, false },
		{ { { ROUTING, 0, 0, 1 } }, 1, false }, /* not at its end: not for us */
		{ { { FRAGMENT, 0, 0, 0, 0, 0, 0, 7 } }, 1, false },
		{ { { FRAGMENT, 0, 0, 1, 0, 0, 0, 7 } }, 1, false },
		{ { { AUTH } }, 1, false },
		{ { { DEST }, { DEST }, { DEST }, { DEST } }, 4, true },
		{ { { DEST }, { DEST }, { DEST }, { DEST }, { DEST } }, 5, false }, /* more than are walked */
	};

	setup();
	for (size_t i = 0; i < pv_array_size(cases); i++) {
		struct frame f;

		put_eth(&f);
		put_ip6(&f, cases[i].chain, cases[i].n);
		if (steers(&f) != cases[i].ours)
			fprintf(stderr, "case %zu\n", i);
		CHECK_EQ(steers(&f), cases[i].ours);
		if (cases[i].ours)
			cut_everywhere(&f, f.l3 + 40 + 8 * cases[i].n + 4);
	}
	teardown();
}

/* ---- TCP ----------------------------------------------------------------------------------------------------------------- */

static void put_tcp(struct frame *f, uint16_t sport, uint16_t dport)
{
	put_u16(f, sport);
	put_u16(f, dport);
	put(f, "seq.ack.", 8);
	put_u16(f, 0x5010);
	put(f, "wnd.urp.", 6);
}

/* Without payload; `options` bytes of IPv4 options, or a header of padding. */
static void put_segment(struct frame *f, bool v6, bool options, uint16_t sport)
{
	static const uint8_t pad[1][8] = { { DEST, 0, 1, 4 } };

	put_eth(f);
	if (v6)
		put_ip6(f, pad, options);
	else
		put_ip4(f, "\1\1\1", options ? 4 : 0);
	f->len -= 12;
	if (v6 && options)
		f->b[f->l3 + 40] = 6;
	else
		f->b[f->l3 + (v6 ? 6 : 9)] = 6;
	put_tcp(f, sport, PORT);
}

TEST_BOTH(segments)
{
	struct frame f;

	setup();
	for (int i = 0; i < 4; i++) {
		put_segment(&f, i & 1, i & 2, 1111);
		CHECK(steers(&f));
		pv_put16(f.b + f.len - 18, PORT + 1);
		CHECK(!steers(&f));
	}
	put_segment(&f, false, false, 1111);
	cut_everywhere(&f, 14 + 20 + 4);
	pv_put16(f.b + f.l3 + 6, 0x2000);
	CHECK(!steers(&f));
	teardown();
}

/* An error's frame, up to the quoted IP header. */
static void put_error(struct frame *f, bool v6, uint8_t type)
{
	const uint8_t icmp[8] = { type };

	put_eth(f);
	if (v6)
		put_ip6(f, NULL, 0);
	else
		put_ip4(f, "", 0);
	f->len -= 12;
	f->b[f->l3 + (v6 ? 6 : 9)] = v6 ? 58 : 1;
	put(f, icmp, 8);
}

/* What we sent: from our port. */
static void put_quote(struct frame *f, bool v6, uint8_t proto)
{
	struct pv_addr us = own(v6), peer = us;

	peer.b[15] = 2;
	if (v6) {
		const uint8_t head[8] = { 0x60, [6] = proto, 64 };

		put(f, head, 8);
		put(f, us.b, 16);
		put(f, peer.b, 16);
	} else {
		const uint8_t head[12] = { 0x45, 0, 0, 40, [8] = 64, proto };

		put(f, head, 12);
		put(f, us.b + 12, 4);
		put(f, peer.b + 12, 4);
	}
	put_tcp(f, PORT, 1111);
}

TEST_BOTH(icmp_errors)
{
	struct frame f;

	setup();
	for (int v6 = 0; v6 < 2; v6++) {
		for (uint32_t type = 0; type < 256; type++) {
			bool error = v6 ? type && type < 128 : type == 3 || type == 11 || type == 12;

			put_error(&f, v6, (uint8_t)type);
			put_quote(&f, v6, 6);
			CHECK_EQ(steers(&f), error);
			put_error(&f, v6, (uint8_t)type);
			put_quote(&f, v6, 17); /* of datagrams the kernel's sockets hear */
			CHECK(!steers(&f));
		}
		put_error(&f, v6, v6 ? 2 : 3);
		put_quote(&f, v6, 6);
		cut_everywhere(&f, f.len - 16);
		pv_put16(f.b + f.len - 20, PORT + 1);
		CHECK(!steers(&f));
	}
	/* Not a fragment but the first. */
	put_error(&f, false, 3);
	put_quote(&f, false, 6);
	pv_put16(f.b + f.l3 + 20 + 8 + 6, 0x2000);
	CHECK(steers(&f));
	pv_put16(f.b + f.l3 + 20 + 8 + 6, 1);
	CHECK(!steers(&f));
	teardown();
}

/* Of a listener's port the kernel keeps the connections that it has, be they over; a rule for the flow goes before that. */
TEST_BOTH(connections_of_the_kernel)
{
	setup();
	CHECK_EQ(system("timeout 20 ip addr add 10.1.0.1/24 dev s0; timeout 20 ip -6 addr add fd01::1/64 dev s0 nodad"), 0);
	CHECK_EQ(system("timeout 20 ip addr add 10.1.0.2/24 dev lo; timeout 20 ip -6 addr add fd01::2/64 dev lo nodad"), 0);
	CHECK_EQ(system("timeout 20 ip link set lo up; timeout 20 ip link set s1 up"), 0);
	for (int v6 = 0; v6 < 2; v6++) {
		struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) }, p6 = a6;
		struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(PORT) }, p4 = a4;
		const struct sockaddr *a = v6 ? (void *)&a6 : (void *)&a4, *p = v6 ? (void *)&p6 : (void *)&p4;
		socklen_t len = v6 ? sizeof(a6) : sizeof(a4);
		int l = socket(a->sa_family, SOCK_STREAM, 0), c = socket(a->sa_family, SOCK_STREAM, 0), s;
		struct pv_addr us = own(v6), peer = us;
		struct pv_flow flow = { .kind = PV_FLOW_5TUPLE, .l4_proto = 6, .dst = us, .dst_port = PORT, .src_port = 1111 };
		uint64_t handle;
		struct frame f;

		peer.b[15] = 2;
		memcpy(&a6.sin6_addr, us.b, 16);
		memcpy(&p6.sin6_addr, peer.b, 16);
		memcpy(&a4.sin_addr, us.b + 12, 4);
		memcpy(&p4.sin_addr, peer.b + 12, 4);
		p6.sin6_port = p4.sin_port = htons(1111);
		CHECK_EQ(bind(l, a, len), 0);
		CHECK_EQ(listen(l, 5), 0);
		put_segment(&f, v6, false, 1111);
		CHECK(steers(&f));
		CHECK_EQ(bind(c, p, len), 0);
		CHECK_EQ(connect(c, a, len), 0);
		CHECK(!steers(&f));
		s = accept(l, NULL, NULL);
		CHECK(s >= 0);
		CHECK(!steers(&f));
		put_segment(&f, v6, false, 1112);
		CHECK(steers(&f));
		put_segment(&f, v6, false, 1111);
		flow.src = peer;
		CHECK_EQ(pv_ring_flow_add(ring, &flow, &handle), 0);
		CHECK(steers(&f));
		CHECK_EQ(pv_ring_flow_del(ring, handle), 0);
		/* TIME_WAIT is on our side. */
		close(s);
		close(c);
		CHECK(!steers(&f));
		close(l);
	}
	teardown();
}

/* ---- rules that come and go ---------------------------------------------------------------------------------------------- */

#define PORTS 6u

/* Port `n` after ours, by each kind of rule, IPv6 at every other one. */
static struct pv_flow flow_of(uint32_t n, bool whole)
{
	struct pv_flow flow = { .kind = whole ? PV_FLOW_5TUPLE : PV_FLOW_3TUPLE,
				.l4_proto = 17,
				.dst = own(n & 1),
				.dst_port = (uint16_t)(PORT + 1 + n) };

	if (whole) {
		flow.src = flow.dst;
		flow.src.b[15] = 2;
		flow.src_port = 1111;
	}
	return flow;
}

/* The peer's datagram to that port, and one from another port of its. */
static void agree(uint32_t n, bool bound, bool whole)
{
	struct frame f;

	put_eth(&f);
	if (n & 1)
		put_ip6(&f, NULL, 0);
	else
		put_ip4(&f, "", 0);
	pv_put16(f.b + f.len - 10, (uint16_t)(PORT + 1 + n));
	CHECK_EQ(steers(&f), bound || whole);
	pv_put16(f.b + f.len - 12, 1112);
	CHECK_EQ(steers(&f), bound);
}

static void no_rules(void)
{
	for (uint32_t i = 0; i < inside()->nrules; i++)
		if (inside()->rule[i].handle)
			CHECK_EQ(pv_ring_flow_del(ring, inside()->rule[i].handle), 0);
	CHECK_EQ(inside()->told.kinds, 0);
}

TEST(rules_come_and_go)
{
	bool here[PORTS][2] = { { false } };
	uint64_t handle[PORTS][2] = { { 0 } };
	uint32_t n = 0, few = 0, many = 0;
	struct pv_rng rng;

	crowd = true;
	setup();
	no_rules();
	pv_rng_seed(&rng, 20261123);
	for (uint32_t step = 0; step < 2000; step++) {
		uint32_t at = (uint32_t)pv_rng_below(&rng, PORTS), whole = (uint32_t)pv_rng_below(&rng, 2);
		struct pv_flow flow = flow_of(at, whole);
		uint64_t *h = &handle[at][whole];

		/* By turns most stay and most go. */
		if (pv_rng_below(&rng, 8) < (*h ? step / 200 % 2 ? 1 : 8 : step / 200 % 2 ? 8 : 1)) {
			CHECK_EQ(*h ? pv_ring_flow_del(ring, *h) : pv_ring_flow_add(ring, &flow, h), 0);
			n += here[at][whole] ? -1u : 1u;
			here[at][whole] ^= 1;
			*h = here[at][whole] ? *h : 0;
		}
		CHECK(!inside()->told.few || n <= STEER_FEW);
		few += inside()->told.few;
		many += n && !inside()->told.few;
		for (uint32_t i = 0; i < PORTS; i++)
			agree(i, here[i][0], here[i][1]);
	}
	CHECK(few > 100 && many > 100);
	teardown();
}

static struct xdp_libbpf broken;
static uint32_t writes, first_bad, last_bad;

static int some_updates(int fd, const void *key, const void *value, uint64_t flags)
{
	uint32_t n = writes++;

	return n >= first_bad && n <= last_bad ? -ENOMEM : pv_xdp_libbpf(NULL, 0)->map_update(fd, key, value, flags);
}

static void break_updates(uint32_t first, uint32_t last)
{
	broken = *inside()->lib;
	broken.map_update = some_updates;
	inside()->lib = &broken;
	writes = 0;
	first_bad = first;
	last_bad = last;
}

/* Each write that a rule takes fails, alone or with all that follow: the rule is not there then, and those that were are. */
TEST(writes_that_fail)
{
	crowd = false;
	for (uint32_t i = 0; i < 2 * (STEER_FEW + 1); i++) {
		uint32_t before = i / 2, fails = 0;
		uint64_t handle[PORTS];
		int rc;

		setup();
		no_rules();
		for (uint32_t k = 0; k < before; k++) {
			struct pv_flow flow = flow_of(k, false);

			CHECK_EQ(pv_ring_flow_add(ring, &flow, &handle[k]), 0);
		}
		do {
			struct pv_flow flow = flow_of(before, true);

			break_updates(fails, i % 2 ? fails : UINT32_MAX);
			rc = pv_ring_flow_add(ring, &flow, &handle[before]);
			inside()->lib = pv_xdp_libbpf(NULL, 0);
			CHECK(!rc || rc == -ENOMEM);
			for (uint32_t k = 0; k <= before; k++)
				agree(k, k < before, k == before && !rc);
			fails += rc != 0;
		} while (rc);
		CHECK(fails >= 2);
		for (uint32_t k = 0; k <= before; k++) {
			CHECK_EQ(pv_ring_flow_del(ring, handle[k]), 0);
			agree(k, false, false);
		}
		teardown();
	}
}

/* ---- anything ------------------------------------------------------------------------------------------------------------ */

static void show(const uint8_t *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		fprintf(stderr, "%02x%c", b[i], i % 16 == 15 || i + 1 == n ? '\n' : ' ');
}

/* Does the stack take it for a datagram to our port? */
static bool delivered(const struct frame *f)
{
	uint32_t type = pv_get16(f->b + 12), l3 = 14, len;
	const uint8_t *ip;

	if (type == 0x8100 && !(pv_get16(f->b + 14) & 0xfff)) {
		type = pv_get16(f->b + 16);
		l3 = 18;
	}
	ip = f->b + l3;
	len = f->len - l3;
	if (type == ETH_IP4) {
		struct pv_wire_ip4 h;
		int hlen = pv_wire_ip4_parse(ip, len, &h);

		/* An impossible total length: the kernel, too, would drop it and say nothing. */
		return hlen < 0 || (!pv_wire_ip4_is_frag(&h) && pv_get16(ip + hlen + 2) == PORT &&
				    (h.proto == 6 || (h.proto == 17 && hlen == 20)));
	}
	if (type == ETH_IP6) {
		struct pv_wire_ip6_ext ext;
		int rc = pv_wire_ip6_walk(ip, len, &ext);

		return !rc && !ext.frag && (ext.proto == 17 || ext.proto == 6) && pv_get16(ip + ext.l4_off + 2) == PORT;
	}
	return false;
}

/* Bytes changed at random, many of them where headers say what follows. */
TEST_BOTH(whatever_comes)
{
	static const uint8_t chain[3][8] = { { HOP, 0, 1, 4 }, { DEST, 0, 1, 4 }, { DEST } };
	uint32_t taken = 0;
	struct pv_rng rng;

	setup();
	pv_rng_seed(&rng, 20261121);
	for (int i = 0; i < 200000; i++) {
		struct frame f;
		bool v6 = i & 1;
		uint32_t n = (uint32_t)pv_rng_below(&rng, 4);

		put_eth(&f);
		if (i & 2) {
			put_u16(&f, 0x8100);
			put_u16(&f, 0);
		}
		if (v6)
			put_ip6(&f, chain, n);
		else
			put_ip4(&f, "", 0);
		for (uint32_t k = (uint32_t)pv_rng_below(&rng, 4); k > 0; k--) {
			uint32_t at = 12 + (uint32_t)pv_rng_below(&rng, f.len - 12);

			f.b[at] = pv_rng_below(&rng, 2) ? (uint8_t)pv_rng_below(&rng, 256)
							: f.b[at] ^ (uint8_t)(1u << pv_rng_below(&rng, 8));
		}
		if (!steers(&f))
			continue;
		if (!delivered(&f))
			show(f.b, f.len);
		CHECK(delivered(&f));
		taken++;
	}
	CHECK(taken > 1000);
	teardown();
}

/* ---- the gate ------------------------------------------------------------------------------------------------------------ */

enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

static bool segment_steers(bool v6, uint16_t sport, uint8_t flags)
{
	struct frame f;

	put_segment(&f, v6, false, sport);
	f.b[f.len - 7] = flags;
	return steers(&f);
}

static uint64_t listeners_rule(bool v6)
{
	for (uint32_t i = 0; i < inside()->nrules; i++) {
		const struct xdp_rule *r = &inside()->rule[i];

		if (r->handle && r->flow.l4_proto == 6 && pv_addr_is4(&r->flow.dst) != v6)
			return r->handle;
	}
	return 0;
}

static void shut_but_to(bool v6, uint16_t sport)
{
	for (uint16_t other = 1111; other < 1116; other++) {
		CHECK_EQ(segment_steers(v6, other, SYN), other == sport);
		CHECK(segment_steers(v6, other, ACK) && segment_steers(v6, other, SYN | ACK));
		CHECK(segment_steers(v6, other, RST) && segment_steers(v6, other, FIN | ACK));
	}
}

/* It lets in one connection that begins, by whichever rule; what is no beginning goes on as ever. */
TEST_BOTH(one_at_a_time)
{
	uint64_t handle[2];

	setup();
	for (int v6 = 0; v6 < 2; v6++) {
		handle[v6] = listeners_rule(v6);
		break_updates(0, UINT32_MAX);
		CHECK_EQ(pv_ring_flow_gate(ring, handle[v6], true), -ENOMEM);
		CHECK_EQ(pv_ring_gate(ring, true), -ENOMEM);
		inside()->lib = pv_xdp_libbpf(NULL, 0);
		CHECK(segment_steers(v6, 1111, SYN) && segment_steers(v6, 1112, SYN));
		CHECK_EQ(pv_ring_flow_gate(ring, handle[v6], true), 0);
		shut_but_to(v6, 0);
	}
	CHECK_EQ(inside()->told.few, !crowd);
	for (int turn = 0; turn < 4; turn++) {
		bool v6 = turn & 1;

		CHECK_EQ(pv_ring_gate(ring, true), 0);
		CHECK(segment_steers(v6, 1113, SYN));
		shut_but_to(v6, 1113); /* it comes again */
		shut_but_to(!v6, 0);
		CHECK_EQ(pv_ring_gate(ring, true), 0);
		CHECK_EQ(pv_ring_gate(ring, false), 0);
		shut_but_to(v6, 0);
	}
	CHECK_EQ(pv_ring_flow_gate(ring, handle[0], false), 0);
	CHECK(segment_steers(false, 1111, SYN) && segment_steers(false, 1112, SYN));
	CHECK_EQ(pv_ring_flow_del(ring, handle[1]), 0);
	CHECK_EQ(pv_ring_flow_gate(ring, handle[1], true), -ENOENT);
	teardown();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
