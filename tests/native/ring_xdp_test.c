/* SPDX-License-Identifier: BSD-3-Clause */
/* The AF_XDP ring over a veth pair in a namespace of the test's own: the contract suite in native and in generic mode. */
#include "test.h"

#ifndef PV_HAVE_XDP
int main(void)
{
	puts("skip: built without libbpf or clang");
	return 77;
}
#else
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "netns.h"
#include "ring/link.h"
#include "ring/xdp.h"
#include "ring_contract_cases.h"

#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif

/* Linux before 6.6. The program's own symbol comes before libc's. */
static bool no_sg;

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	static int (*next)(int, const struct sockaddr *, socklen_t);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "bind");
	if (no_sg && addr->sa_family == AF_XDP && ((const struct sockaddr_xdp *)(const void *)addr)->sxdp_flags & XDP_USE_SG) {
		errno = EINVAL;
		return -1;
	}
	return next(fd, addr, len);
}

/* Without IPv6 the kernel says nothing on a link of its own accord. */
static void quiet_namespace(void)
{
	static bool made;
	int fd;

	if (geteuid() != 0)
		test_skip("needs root for a network namespace");
	if (made)
		return;
	CHECK_EQ(unshare(CLONE_NEWNET), 0);
	fd = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, "1", 1), 1);
	close(fd);
	made = true;
}

struct pair {
	char name[2][IFNAMSIZ];
};

/* The carrier comes a little after `up`. */
static void wait_running(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	double until = rig_now() + RIG_PATIENCE_S;
	struct ifreq ifr = { 0 };

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	do {
		CHECK(rig_now() < until);
		CHECK_EQ(ioctl(fd, SIOCGIFFLAGS, &ifr), 0);
	} while (!(ifr.ifr_flags & IFF_RUNNING));
	close(fd);
}

static void make_pair(struct pair *pair)
{
	static unsigned int number;
	uint8_t m[2][PV_ETH_ALEN];

	quiet_namespace();
	number++;
	for (int i = 0; i < 2; i++) {
		snprintf(pair->name[i], IFNAMSIZ, "x%u-%d", number, i);
		rig_mac(i, m[i]);
	}
	ip_here("link add %s mtu %u address %02x:%02x:%02x:%02x:%02x:%02x type veth peer name %s mtu %u address "
		"%02x:%02x:%02x:%02x:%02x:%02x",
		pair->name[0], RIG_MTU, m[0][0], m[0][1], m[0][2], m[0][3], m[0][4], m[0][5], pair->name[1], RIG_MTU, m[1][0],
		m[1][1], m[1][2], m[1][3], m[1][4], m[1][5]);
	for (int i = 0; i < 2; i++)
		ip_here("link set %s up", pair->name[i]);
	for (int i = 0; i < 2; i++)
		wait_running(pair->name[i]);
}

static void open_mode(struct rig *rig, enum pv_xdp_mode mode, bool tso, const char *text)
{
	static const struct pv_flow all = { .kind = PV_FLOW_ALL };
	struct pair *pair = calloc(1, sizeof(*pair));
	char err[256] = "";

	CHECK(pair != NULL);
	rig->wire = pair;
	make_pair(pair);
	for (int i = 0; i < 2; i++) {
		struct pv_xdp_cfg cfg = {
			.ifname = pair->name[i], .rx_depth = RIG_DEPTH, .tx_depth = RIG_DEPTH, .mode = mode, .no_tso = !tso
		};
		int rc = pv_xdp_open(&rig->ring[i], &rig->mem.mem, rig->pool[i], &cfg, err, sizeof(err));

		if (rc)
			fprintf(stderr, "%s\n", err);
		CHECK_EQ(rc, 0);
		CHECK(!strcmp(rig->ring[i]->caps.mode, text));
		CHECK_EQ(pv_ring_flow_add(rig->ring[i], &all, &rig->all_rule[i]), 0);
	}
}

static void open_native(struct rig *rig)
{
	open_mode(rig, PV_XDP_NATIVE, true, "native copy");
	CHECK_EQ(rig->ring[0]->caps.tso_max, 0);
}

static void open_generic(struct rig *rig)
{
	open_mode(rig, PV_XDP_GENERIC, false, "generic copy");
	CHECK_EQ(rig->ring[0]->caps.tso_max, 0);
}

/* Of what the device does for a sender; without checksums it does not cut either. */
static void set_offload(const char *name, bool on)
{
	struct ethtool_value csum = { .cmd = ETHTOOL_STXCSUM, .data = on };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_data = (void *)&csum };

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	CHECK_EQ(ioctl(fd, SIOCETHTOOL, &ifr), 0);
	close(fd);
}

/* Long segments leave whole, but the device stops taking them: the kernel cuts. */
static void open_cut(struct rig *rig)
{
	open_mode(rig, PV_XDP_GENERIC, true, "generic copy");
	set_offload(((struct pair *)rig->wire)->name[0], false);
}

static void close_rig(struct rig *rig)
{
	struct pair *pair = rig->wire;

	if (if_nametoindex(pair->name[0]))
		ip_here("link del %s", pair->name[0]);
	free(pair);
}

static void settle(struct rig *rig)
{
	(void)rig;
}

static void vanish(struct rig *rig, int side)
{
	ip_here("link del %s", ((struct pair *)rig->wire)->name[side]);
}

#define XDP(id, opener, more)                                                                                                      \
	static const struct rig_kind id = { .name = #id,                                                                           \
					    .must = RIG_FLOWS | RIG_ARM | RIG_FIXED_POOL | (more),                                 \
					    .open = opener,                                                                        \
					    .close = close_rig,                                                                    \
					    .settle = settle,                                                                      \
					    .vanish = vanish }
XDP(native, open_native, 0);
XDP(generic, open_generic, 0);
XDP(cut, open_cut, RIG_TSO);

#define NATIVE(id) CONTRACT_CASE(native, id)
CONTRACT_LIST(NATIVE)
#define GENERIC(id) CONTRACT_CASE(generic, id)
CONTRACT_LIST(GENERIC)
#define CUT(id) CONTRACT_CASE(cut, id)
CONTRACT_LIST(CUT)

/* The segment as it was sent, in as many buffers as it fills; behind what was posted before it, and before what came later. */
TEST(long_segments_arrive_whole)
{
	struct contract_tso t = { .options = 12, .tcp_flags = 0x18, .df = true };
	struct rig rig;

	rig_open(&rig, &cut);
	set_offload(((struct pair *)rig.wire)->name[0], true);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t seen = 0, header = i & 1 ? 86 : 66;
		struct pv_pkt *batch[3], *p;

		t.ip6 = i & 1;
		t.gso = i & 1 ? 1428 : 1448;
		t.payload = 1449 + i * 1000;
		t.piece = 1448;
		batch[0] = rig_frame(&rig, 0, 200, 3 * i);
		batch[1] = contract_tso_packet(&rig, &t);
		batch[2] = rig_frame(&rig, 0, 300, 3 * i + 1);
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], batch, 3), 3);
		rig_kick(&rig, 0);
		rig_expect(&rig, 1, 200, 3 * i);
		p = rig_recv(&rig, 1);
		CHECK_EQ(p->total, header + t.payload);
		CHECK(p->flags & PV_PKT_L4_PARTIAL);
		for (const struct pv_pkt *f = p; f; f = f->frag)
			for (uint32_t k = f == p ? header : 0; k < f->len; k++)
				CHECK_EQ(f->data[k], contract_tso_byte(seen++));
		CHECK_EQ(seen, t.payload);
		pv_pkt_put(p);
		rig_expect(&rig, 1, 300, 3 * i + 1);
		rig_reap_all(&rig, 0, 3);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

static struct pv_pkt *long_segment(struct rig *rig)
{
	const struct contract_tso t = { .options = 12, .tcp_flags = 0x18, .df = true, .gso = 1448, .payload = 5000, .piece = 1448 };

	return contract_tso_packet(rig, &t);
}

/* What the ring's socket for long segments does with them: 1, not by the queueing discipline. */
static int bypass_of_the_ring(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int found = -1;
	struct dirent *e;

	CHECK(dir != NULL);
	while ((e = readdir(dir))) {
		int fd = atoi(e->d_name), domain = 0, on = 0;
		socklen_t len = sizeof(domain);

		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) || domain != AF_PACKET)
			continue;
		CHECK_EQ(getsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, &len), 0);
		found = found == 0 ? 0 : on;
	}
	closedir(dir);
	return found;
}

/* The kernel cuts what the device refuses; what comes later takes the short way again, by which nothing is overtaken. */
TEST(the_way_around_is_for_one_segment)
{
	struct rig rig;

	rig_open(&rig, &cut);
	rig_fill(&rig, 1);
	CHECK_EQ(bypass_of_the_ring(), 1);
	rig_post(&rig, 0, long_segment(&rig));
	for (uint32_t i = 0; i < 4; i++) {
		struct pv_pkt *p = rig_recv(&rig, 1);

		CHECK(p->total <= 1514);
		pv_pkt_put(p);
	}
	CHECK_EQ(bypass_of_the_ring(), 1);
	rig_reap_all(&rig, 0, 1);
	rig_close(&rig);
}

/* A long segment is not taken while the interface is down, nor when it is gone, as frames that the queue has wait or come back. */
TEST(long_segments_without_an_interface)
{
	struct pv_pkt *p;
	const char *name;
	struct rig rig;

	rig_open(&rig, &cut);
	name = ((struct pair *)rig.wire)->name[0];
	set_offload(name, true);
	rig_fill(&rig, 1);
	ip_here("link set %s down", name);
	p = long_segment(&rig);
	CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 0);
	CHECK_EQ(rig.ring[0]->stat->c.tx_errors, 0);
	ip_here("link set %s up", name);
	wait_running(name);
	rig_post(&rig, 0, p);
	p = rig_recv(&rig, 1);
	CHECK(p->total > 5000);
	pv_pkt_put(p);
	rig_reap_all(&rig, 0, 1);
	vanish(&rig, 0);
	p = long_segment(&rig);
	CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 0);
	CHECK_EQ(rig.ring[0]->stat->c.tx_errors, 0);
	CHECK(!rig.ring[0]->caps.link_up);
	CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), -ENODEV);
	pv_pkt_put(p);
	rig_close(&rig);
}

/* Frames that wait for the interface are nothing to stay awake for, once it is known that it is down. */
TEST(who_waits_for_the_link_may_sleep)
{
	struct rig rig;
	const char *name;

	rig_open(&rig, &generic);
	name = ((struct pair *)rig.wire)->name[0];
	rig_fill(&rig, 1);
	ip_here("link set %s down", name);
	rig_post(&rig, 0, rig_frame(&rig, 0, 100, 1));
	CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), -EAGAIN);
	CHECK_EQ(pv_ring_arm(rig.ring[0]), -EAGAIN);
	/* As the interface's owner says. */
	rig.ring[0]->caps.link_up = false;
	CHECK_EQ(pv_ring_arm(rig.ring[0]), 0);
	ip_here("link set %s up", name);
	wait_running(name);
	rig.ring[0]->caps.link_up = true;
	rig_kick(&rig, 0);
	rig_expect(&rig, 1, 100, 1);
	rig_reap_all(&rig, 0, 1);
	rig_close(&rig);
}

/* Long segments want frames of several buffers, which every socket has or none: one that shares the first one's memory asks for nothing. */
TEST(frames_of_one_buffer)
{
	quiet_namespace();
	ip_here("link add q0 numrxqueues 2 numtxqueues 2 type veth peer name q1 numrxqueues 2 numtxqueues 2");
	for (int old = 0; old < 2; old++) {
		const struct pv_pool_cfg pc = { .buf_size = 2048, .headroom = 256, .count = 256, .max = 256 };
		const struct pv_xdp_cfg cfg = { .ifname = "q0", .rx_depth = 64, .tx_depth = 64, .mode = PV_XDP_GENERIC };
		struct pv_ring *ring;
		struct pv_pool *pool;
		struct testmem m;
		char err[256];

		no_sg = old;
		testmem_init(&m);
		CHECK_EQ(pv_pool_open(&pool, &m.mem, &pc), 0);
		CHECK_EQ(pv_xdp_open(&ring, &m.mem, pool, &cfg, err, sizeof(err)), 0);
		CHECK_EQ(ring->caps.queues, 2);
		CHECK_EQ(ring->caps.tso_max > 0, !old);
		pv_ring_close(ring);
		CHECK_EQ(pv_pool_close(pool), 0);
		CHECK_EQ(m.blocks, 0);
	}
	no_sg = false;
	ip_here("link del q0");
}

static int open_named(const char *name, struct pv_ring **out, struct testmem *m, struct pv_pool **pool, char *err)
{
	const struct pv_pool_cfg cfg = { .buf_size = 2048, .headroom = 128, .count = 128, .max = 128 };
	const struct pv_xdp_cfg xdp = { .ifname = name, .rx_depth = 64, .tx_depth = 64 };
	int rc;

	testmem_init(m);
	CHECK_EQ(pv_pool_open(pool, &m->mem, &cfg), 0);
	rc = pv_xdp_open(out, &m->mem, *pool, &xdp, err, 256);
	if (rc) {
		CHECK_EQ(pv_pool_close(*pool), 0);
		CHECK_EQ(m->blocks, 0);
	}
	return rc;
}

TEST(what_is_taken_is_said)
{
	struct pv_ring *first, *second;
	struct pv_pool *pool[2];
	struct testmem m[2];
	struct pair pair;
	char err[256] = "";

	make_pair(&pair);
	CHECK_EQ(open_named("nothere", &first, &m[0], &pool[0], err), -ENODEV);
	CHECK(strstr(err, "nothere"));
	CHECK_EQ(open_named(pair.name[0], &first, &m[0], &pool[0], err), 0);
	CHECK_EQ(open_named(pair.name[0], &second, &m[1], &pool[1], err), -EBUSY);
	CHECK(strstr(err, pair.name[0]) && strstr(err, "taken"));
	pv_ring_close(first);
	CHECK_EQ(pv_pool_close(pool[0]), 0);
	/* What was closed is free again at once. */
	CHECK_EQ(open_named(pair.name[0], &first, &m[0], &pool[0], err), 0);
	pv_ring_close(first);
	CHECK_EQ(pv_pool_close(pool[0]), 0);
	ip_here("link del %s", pair.name[0]);
}

/* A name that nobody has is no error, and asking for one does not get in the way of the next. */
TEST(links_by_name)
{
	struct pair pair;
	int fd;

	make_pair(&pair);
	CHECK_EQ(pv_link_index(pair.name[0]), if_nametoindex(pair.name[0]));
	CHECK_EQ(pv_link_index("nothere"), 0);
	CHECK_EQ(pv_link_index(""), 0);
	CHECK_EQ(pv_link_index("a-name-longer-than-any"), 0);
	CHECK_EQ(pv_link_index("lo"), 1);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(pv_link_of(fd, "nothere"), 0);
	CHECK_EQ(pv_link_of(fd, pair.name[1]), if_nametoindex(pair.name[1]));
	CHECK_EQ(pv_link_of(fd, pair.name[1]), if_nametoindex(pair.name[1]));
	ip_here("link del %s", pair.name[0]);
	CHECK_EQ(pv_link_of(fd, pair.name[1]), 0);
	close(fd);
}

/* A frame that nobody had a buffer for is lost for want of a buffer, and for nothing else. */
TEST(a_drop_has_one_reason)
{
	struct pv_ring_counters c;
	struct rig rig;
	double until;

	rig_open(&rig, &generic);
	until = rig_now() + RIG_PATIENCE_S;
	for (uint32_t i = 0; i < 3; i++)
		rig_send(&rig, 0, 100, i);
	do {
		CHECK(rig_now() < until);
		pv_ring_counters(rig.ring[1], &c);
	} while (c.rx_no_buf < 3);
	CHECK_EQ(c.rx_no_buf, 3);
	CHECK_EQ(c.rx_errors, 0);
	rig_fill(&rig, 1);
	rig_expect_only(&rig, 1, 7);
	pv_ring_counters(rig.ring[1], &c);
	CHECK_EQ(c.rx_no_buf, 3);
	CHECK_EQ(c.rx_errors, 0);
	rig_reap_all(&rig, 0, 4);
	rig_close(&rig);
}

/* The map of rules has an end: that is said, and harms none of those in it. */
TEST(the_map_is_full)
{
	static uint64_t handle[70000];
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst = { .w = { 0, 0, PV_ADDR_MAPPED_W2, 1 } } };
	struct pv_ring *ring;
	struct pv_pool *pool;
	struct testmem m;
	struct pair pair;
	char err[256] = "";
	uint64_t extra;
	uint32_t n = 0;
	int rc = 0;

	make_pair(&pair);
	CHECK_EQ(open_named(pair.name[0], &ring, &m, &pool, err), 0);
	for (; n < pv_array_size(handle); n++) {
		f.dst.w[3] = 1 + n / 50000;
		f.dst_port = (uint16_t)(1 + n % 50000);
		rc = pv_ring_flow_add(ring, &f, &handle[n]);
		if (rc)
			break;
	}
	CHECK_EQ(rc, -ENOSPC);
	CHECK(n >= 65536);
	CHECK_EQ(pv_ring_flow_add(ring, &f, &extra), -ENOSPC);
	f.dst.w[3] = 1;
	f.dst_port = 1;
	CHECK_EQ(pv_ring_flow_add(ring, &f, &extra), -EEXIST);
	CHECK_EQ(pv_ring_flow_del(ring, handle[0]), 0);
	CHECK_EQ(pv_ring_flow_del(ring, handle[0]), -ENOENT);
	CHECK_EQ(pv_ring_flow_add(ring, &f, &handle[0]), 0);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(pv_ring_flow_del(ring, handle[i]), 0);
	CHECK_EQ(pv_ring_flow_add(ring, &f, &extra), 0);
	pv_ring_close(ring);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(m.blocks, 0);
	ip_here("link del %s", pair.name[0]);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
