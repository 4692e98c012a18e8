/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP ring. The contract suite runs over two TAP devices joined by a bridge, in a namespace of the test's own: one with offloads, the
 * other without, so that what the first leaves to the host arrives finished. Then what only a TAP has: long frames in both directions, a
 * device of several queues, descriptors passed, and why a device cannot be had.
 */
#include "test.h"

#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "netns.h"
#include "ring/tapdev.h"
#include "ring_contract.h"

static void set_sysctl(const char *path, const char *value, bool must)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0 || !must);
	if (fd < 0)
		return;
	CHECK_EQ(write(fd, value, 1), 1);
	close(fd);
}

/* Without IPv6 the kernel says nothing on a link of its own accord. A bridge's packet filter, where there is one, drops what is no sound IP. */
static void quiet_namespace(void)
{
	static bool made;

	if (made)
		return;
	if (geteuid() != 0)
		test_skip("needs root for a network namespace");
	CHECK_EQ(unshare(CLONE_NEWNET), 0);
	set_sysctl("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1", true);
	set_sysctl("/proc/sys/net/bridge/bridge-nf-call-iptables", "0", false);
	set_sysctl("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0", false);
	set_sysctl("/proc/sys/net/bridge/bridge-nf-call-arptables", "0", false);
	made = true;
}

/* ---- the contract suite -------------------------------------------------------------------------------------------------- */

struct bridge {
	char name[IFNAMSIZ];
};

static void open_sides(struct rig *rig, uint32_t queues, bool offload)
{
	static unsigned int number;
	struct bridge *br = calloc(1, sizeof(*br));
	char err[256] = "";

	CHECK(br != NULL);
	quiet_namespace();
	rig->wire = br;
	snprintf(br->name, sizeof(br->name), "br%u", ++number);
	ip_here("link add %s up type bridge forward_delay 0 mcast_snooping 0", br->name);
	for (int i = 0; i < 2; i++) {
		uint8_t mac[PV_ETH_ALEN];
		struct pv_tapdev_cfg cfg = { .ifname = i ? "right%d" : "left%d",
					     .queues = queues,
					     .rx_depth = RIG_DEPTH,
					     .tx_depth = RIG_DEPTH,
					     .mtu = RIG_MTU,
					     .mac = mac,
					     .no_offload = i || !offload };
		int rc;

		rig_mac(i, mac);
		rc = pv_tapdev_open(&rig->ring[i], &rig->mem.mem, rig->pool[i], &cfg, err, sizeof(err));
		if (rc)
			fprintf(stderr, "%s\n", err);
		CHECK_EQ(rc, 0);
		CHECK_EQ(if_nametoindex(pv_tapdev_ifname(rig->ring[i])), pv_tapdev_ifindex(rig->ring[i]));
		ip_here("link set %s master %s", pv_tapdev_ifname(rig->ring[i]), br->name);
	}
}

static void open_offload(struct rig *rig)
{
	open_sides(rig, 1, true);
	CHECK(!strncmp(rig->ring[0]->caps.mode, "vnet header, tso", 16));
	CHECK(!strcmp(rig->ring[1]->caps.mode, "vnet header"));
}

static void open_several(struct rig *rig)
{
	open_sides(rig, 2, true);
	CHECK(!strncmp(rig->ring[0]->caps.mode, "vnet header, 2 queues, tso", 26));
	CHECK_EQ(rig->ring[1]->caps.queues, 2);
}

static void close_rig(struct rig *rig)
{
	struct bridge *br = rig->wire;

	ip_here("link del %s", br->name);
	free(br);
}

static void settle(struct rig *rig)
{
	(void)rig;
}

static void set_link(struct rig *rig, int side, bool up)
{
	ip_here("link set %s %s", pv_tapdev_ifname(rig->ring[side]), up ? "up" : "down");
}

static void vanish(struct rig *rig, int side)
{
	ip_here("link del %s", pv_tapdev_ifname(rig->ring[side]));
}

#define TAP(id)                                                                                                                    \
	static const struct rig_kind id = { .name = #id,                                                                           \
					    .must = RIG_ARM | RIG_TX_CSUM | RIG_TSO,                                               \
					    .open = open_##id,                                                                     \
					    .close = close_rig,                                                                    \
					    .settle = settle,                                                                      \
					    .set_link = set_link,                                                                  \
					    .vanish = vanish }
TAP(offload);
TAP(several);

#define OFFLOAD(id) CONTRACT_CASE(offload, id)
CONTRACT_LIST(OFFLOAD)
#define SEVERAL(id) CONTRACT_CASE(several, id)
CONTRACT_LIST(SEVERAL)

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4 /* Linux 6.2 */
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

/* ---- one device, and the host on its other end --------------------------------------------------------------------------- */

#define DEPTH 512u

struct lone {
	struct testmem mem;
	struct pv_pool *pool;
	struct pv_ring *ring;
	int raw; /* AF_PACKET with vnet header: what it sends, the device takes */
	uint32_t inside; /* buffers that the ring should have */
};

/* The AF_PACKET socket on the host's end of the device. */
static int raw_socket(uint32_t ifindex)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_ifindex = (int)ifindex };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), one = 1;

	CHECK(fd >= 0);
	CHECK_EQ(setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)), 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&ll, sizeof(ll)), 0);
	return fd;
}

static int open_cfg(struct lone *l, const struct pv_tapdev_cfg *cfg, char *err, size_t errsize)
{
	const struct pv_pool_cfg pc = { .buf_size = 2048, .headroom = 128, .count = 4 * DEPTH };
	int rc;

	quiet_namespace();
	memset(l, 0, sizeof(*l));
	testmem_init(&l->mem);
	CHECK_EQ(pv_pool_open(&l->pool, &l->mem.mem, &pc), 0);
	l->raw = -1;
	*err = '\0';
	rc = pv_tapdev_open(&l->ring, &l->mem.mem, l->pool, cfg, err, errsize);
	if (!rc)
		return 0;
	CHECK(*err);
	CHECK_EQ(pv_pool_close(l->pool), 0);
	CHECK_EQ(l->mem.blocks, 0);
	return rc;
}

static void open_lone(struct lone *l, uint32_t queues)
{
	const struct pv_tapdev_cfg cfg = { .ifname = "lone%d", .queues = queues, .rx_depth = DEPTH };
	char err[256];

	CHECK_EQ(open_cfg(l, &cfg, err, sizeof(err)), 0);
	l->raw = raw_socket(pv_tapdev_ifindex(l->ring));
}

static void close_lone(struct lone *l)
{
	if (l->raw >= 0)
		close(l->raw);
	pv_ring_close(l->ring);
	CHECK_EQ(pv_pool_close(l->pool), 0);
	CHECK_EQ(l->mem.blocks, 0);
}

/* The ring takes as many buffers as it gave, and not one more. */
static void lone_fill(struct lone *l)
{
	struct pv_pkt *p;

	while (l->inside < DEPTH) {
		CHECK((p = pv_pkt_get(l->pool)) != NULL);
		CHECK_EQ(pv_ring_rx_post(l->ring, &p, 1), 1);
		l->inside++;
	}
	CHECK((p = pv_pkt_get(l->pool)) != NULL);
	CHECK_EQ(pv_ring_rx_post(l->ring, &p, 1), 0);
	pv_pkt_put(p);
}

static struct pv_pkt *lone_recv(struct lone *l)
{
	double until = rig_now() + RIG_PATIENCE_S;
	struct pv_pkt *p;

	while (!pv_ring_rx_poll(l->ring, &p, 1))
		CHECK(rig_now() < until);
	l->inside -= 1 + l->ring->rx_more;
	l->ring->rx_more = 0;
	return p;
}

struct long_frame {
	uint32_t payload, hlen;
	uint16_t gso;
	bool ip6, udp;
	uint8_t bytes[sizeof(struct virtio_net_hdr) + 65553];
};

static void send_long(struct lone *l, struct long_frame *f, uint32_t flow)
{
	struct virtio_net_hdr h = { .gso_type = VIRTIO_NET_HDR_GSO_NONE };
	struct contract_ip d = { .src = f->ip6 ? contract_addr6(1) : contract_addr4(1),
				 .dst = f->ip6 ? contract_addr6(2) : contract_addr4(2),
				 .proto = f->udp ? 17 : 6 };
	uint32_t l4_off = f->ip6 ? 54 : 34, l4_len = (f->udp ? 8 : 20) + f->payload;
	uint8_t *at = f->bytes + sizeof(h), *ip = at + 14, *l4 = at + l4_off;
	uint32_t len = l4_off + l4_len;

	f->hlen = l4_off + (f->udp ? 8 : 20);
	rig_mac(0, at);
	rig_mac(1, at + 6);
	pv_put16(at + 12, f->ip6 ? 0x86dd : 0x0800);
	contract_ip_header(ip, &d, l4_len);
	memset(l4, 0, 20);
	pv_put16(l4, (uint16_t)(1000 + flow));
	pv_put16(l4 + 2, 80);
	if (f->udp)
		pv_put16(l4 + 4, (uint16_t)l4_len);
	else
		pv_put16(l4 + 12, 0x5018);
	for (uint32_t i = 0; i < f->payload; i++)
		at[f->hlen + i] = contract_tso_byte(i);
	/* Begun, as the header says. */
	pv_put16(l4 + (f->udp ? 6 : 16), (uint16_t)contract_l4_sum(ip, l4, 0, 0));
	h.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	h.csum_start = (uint16_t)l4_off;
	h.csum_offset = f->udp ? 6 : 16;
	if (f->gso) {
		h.gso_type = f->udp ? VIRTIO_NET_HDR_GSO_UDP_L4 : f->ip6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
		h.gso_size = f->gso;
		h.hdr_len = (uint16_t)f->hlen;
	}
	memcpy(f->bytes, &h, sizeof(h));
	CHECK_EQ(write(l->raw, f->bytes, sizeof(h) + len), (ssize_t)(sizeof(h) + len));
}

/* `len` bytes of payload from `from` on, wherever the buffers end. */
static void check_payload(const struct pv_pkt *p, uint32_t hlen, uint32_t from, uint32_t len)
{
	uint32_t off = hlen, seen = 0;

	for (; p; p = p->frag, off = 0) {
		for (uint32_t i = off; i < p->len; i++, seen++)
			CHECK_EQ(p->data[i], contract_tso_byte(from + seen));
	}
	CHECK_EQ(seen, len);
}

/* Long ones among short ones: out of the spill at first, in posted buffers then. Each buffer is accounted for. */
TEST(long_frames)
{
	static const uint32_t payloads[] = { 1, 1400, 65000, 65000, 3000, 1, 20000, 65480, 9000, 65480 };
	static struct long_frame f;
	struct lone l;

	open_lone(&l, 1);
	lone_fill(&l);
	for (uint32_t i = 0; i < 400; i++) {
		struct pv_pkt *p;

		f.payload = i % 200 < 100 ? payloads[i % pv_array_size(payloads)] : 100;
		f.gso = f.payload > 1400 ? 1400 : 0;
		f.ip6 = i & 1;
		f.payload -= f.ip6 && f.payload > 65460 ? 40 : 0;
		send_long(&l, &f, 1);
		p = lone_recv(&l);
		CHECK_EQ(p->total, f.hlen + f.payload);
		CHECK((p->frag != NULL) == (p->total > 1920));
		CHECK_EQ(p->flags & (PV_PKT_L4_OK | PV_PKT_L4_BAD), PV_PKT_L4_OK);
		check_payload(p, f.hlen, 0, f.payload);
		pv_pkt_put(p);
		lone_fill(&l);
	}
	close_lone(&l);
}

/* Few buffers are left: what has no room is dropped and counted, and the ring goes on. */
TEST(long_frames_and_few_buffers)
{
	static struct long_frame f = { .payload = 60000, .gso = 1400 };
	struct pv_pkt *held[4 * DEPTH], *p;
	struct pv_ring_counters c;
	double until = rig_now() + RIG_PATIENCE_S;
	uint32_t n = 0;
	struct lone l;

	open_lone(&l, 1);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK((p = pv_pkt_get(l.pool)) != NULL);
		CHECK_EQ(pv_ring_rx_post(l.ring, &p, 1), 1);
		l.inside++;
	}
	while ((p = pv_pkt_get(l.pool)) != NULL)
		held[n++] = p;
	send_long(&l, &f, 1);
	do {
		CHECK_EQ(pv_ring_rx_poll(l.ring, &p, 1), 0);
		pv_ring_counters(l.ring, &c);
		CHECK(rig_now() < until);
	} while (!c.rx_no_buf);
	CHECK_EQ(l.ring->rx_more, 10);
	l.inside -= l.ring->rx_more;
	l.ring->rx_more = 0;
	while (n)
		pv_pkt_put(held[--n]);
	lone_fill(&l);
	send_long(&l, &f, 1);
	p = lone_recv(&l);
	check_payload(p, f.hlen, 0, f.payload);
	pv_pkt_put(p);
	lone_fill(&l);
	close_lone(&l);
}

/* Datagrams that the host handed over as one. */
TEST(datagrams_as_one)
{
	static struct long_frame f = { .udp = true, .gso = 1200 };
	struct lone l;

	open_lone(&l, 1);
	if (!strstr(l.ring->caps.mode, "uso")) {
		close_lone(&l);
		test_skip("the kernel hands over no datagrams as one");
	}
	lone_fill(&l);
	for (uint32_t round = 0; round < 40; round++) {
		f.ip6 = round & 1;
		f.payload = 1 + 1571 * round;
		send_long(&l, &f, 1);
		for (uint32_t from = 0; from < f.payload; from += 1200) {
			uint32_t len = PV_MIN(1200u, f.payload - from);
			struct pv_pkt *p = lone_recv(&l);
			const uint8_t *ip = p->data + 14;

			CHECK_EQ(p->len, f.hlen + len);
			CHECK_EQ(p->flags & PV_PKT_L4_OK, PV_PKT_L4_OK);
			CHECK_EQ(pv_get16(p->data + f.hlen - 4), 8 + len);
			if (f.ip6)
				CHECK_EQ(pv_get16(ip + 4), 8 + len);
			else
				CHECK(pv_get16(ip + 2) == 28 + len && contract_sum(ip, 20, 0) == 0xffff);
			check_payload(p, f.hlen, from, len);
			pv_pkt_put(p);
		}
		lone_fill(&l);
	}
	close_lone(&l);
}

static bool has_open(const char *end)
{
	char path[64], name[256];

	for (int fd = 0; fd < 256; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name) - 1);
		if (n < (ssize_t)strlen(end))
			continue;
		name[n] = '\0';
		if (!strcmp(name + n - strlen(end), end))
			return true;
	}
	return false;
}

static void drops_are_counted(bool by_sysfs)
{
	static struct long_frame f = { .payload = 100 };
	double until = rig_now() + RIG_PATIENCE_S;
	struct pv_ring_counters c;
	struct lone l;

	open_lone(&l, 1);
	CHECK_EQ(has_open("/statistics/tx_dropped"), by_sysfs);
	ip_here("link set %s txqueuelen 8", pv_tapdev_ifname(l.ring));
	for (uint32_t i = 0; i < 40; i++)
		send_long(&l, &f, 1);
	do {
		pv_ring_counters(l.ring, &c);
		CHECK(rig_now() < until);
	} while (c.rx_no_buf < 32);
	lone_fill(&l);
	for (uint32_t i = 0; i < 8; i++)
		pv_pkt_put(lone_recv(&l));
	lone_fill(&l);
	close_lone(&l);
}

/* The kernel's queue is as long as its txqueuelen: what it drops is counted as ours. What is mounted at /sys is another namespace's. */
TEST(kernel_drops_are_counted)
{
	drops_are_counted(false);
}

TEST(kernel_drops_are_counted_by_sysfs)
{
	quiet_namespace();
	CHECK_EQ(unshare(CLONE_NEWNS), 0);
	CHECK_EQ(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_EQ(mount("sysfs", "/sys", "sysfs", 0, NULL), 0);
	drops_are_counted(true);
	CHECK_EQ(umount("/sys"), 0);
}

/* Each flow has one queue, whatever we send for it; all queues are used. */
TEST(flows_keep_their_queue)
{
	static struct long_frame f = { .payload = 100 };
	uint32_t used = 0;
	struct lone l;

	open_lone(&l, 4);
	CHECK_EQ(l.ring->caps.queues, 4);
	lone_fill(&l);
	for (uint32_t flow = 0; flow < 64; flow++) {
		int queue = -1;

		for (uint32_t i = 0; i < 4; i++) {
			struct contract_ip d = { .src = contract_addr4(2), .dst = contract_addr4(1), .src_port = 80, .proto = 6 };
			struct pv_pkt *p, *out;

			send_long(&l, &f, flow);
			p = lone_recv(&l);
			CHECK(p->flags & PV_PKT_QUEUE);
			CHECK(p->txq < 4 && (queue < 0 || p->txq == queue));
			queue = p->txq;
			used |= 1u << queue;
			/* The flow's answer, made of what came. */
			d.dst_port = (uint16_t)(1000 + flow);
			for (uint32_t k = 0; k < 6; k++) {
				uint8_t b = p->data[k];

				p->data[k] = p->data[6 + k];
				p->data[6 + k] = b;
			}
			contract_ip_header(p->data + 14, &d, 120);
			pv_put16(p->data + 34, 80);
			pv_put16(p->data + 36, d.dst_port);
			p->flags = 0;
			CHECK_EQ(pv_ring_tx_post(l.ring, &p, 1), 1);
			CHECK_EQ(pv_ring_tx_kick(l.ring), 0);
			CHECK_EQ(pv_ring_tx_reap(l.ring, &out, 1), 1);
			pv_pkt_put(out);
			lone_fill(&l);
		}
	}
	CHECK_EQ(used, 15);
	close_lone(&l);
}

/* ---- devices of somebody else -------------------------------------------------------------------------------------------- */

static int tun_fd(const char *name, int flags)
{
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	struct ifreq ifr = { .ifr_flags = (short)flags };

	CHECK(fd >= 0);
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	CHECK_EQ(ioctl(fd, TUNSETIFF, &ifr), 0);
	return fd;
}

TEST(descriptors_passed)
{
	const int flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
	struct pv_tapdev_cfg cfg = { .queues = 2, .rx_depth = DEPTH, .mtu = 9000 };
	static struct long_frame f = { .payload = 5000 };
	int fds[3];
	char err[256];
	struct lone l;

	quiet_namespace();
	for (uint32_t i = 0; i < 3; i++)
		fds[i] = tun_fd("given", flags);
	cfg.fds = fds;
	cfg.nfds = 3;
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), 0);
	CHECK(!strcmp(pv_tapdev_ifname(l.ring), "given"));
	CHECK_EQ(l.ring->caps.mtu, 9000);
	l.raw = raw_socket(pv_tapdev_ifindex(l.ring));
	lone_fill(&l);
	for (uint32_t i = 0; i < 20; i++) {
		struct pv_pkt *p;

		send_long(&l, &f, i);
		p = lone_recv(&l);
		check_payload(p, f.hlen, 0, f.payload);
		pv_pkt_put(p);
		lone_fill(&l);
	}
	close_lone(&l);
	CHECK_EQ(if_nametoindex("given"), 0); /* all its descriptors were the ring's */

	/* Not a queue, a TUN, without a vnet header, of two devices: closed, too. */
	fds[0] = open("/dev/null", O_RDWR);
	cfg.queues = cfg.nfds = 1;
	CHECK(open_cfg(&l, &cfg, err, sizeof(err)) < 0);
	CHECK_EQ(fcntl(fds[0], F_GETFD), -1);
	fds[0] = tun_fd("given", IFF_TUN | IFF_NO_PI);
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	CHECK(strstr(err, "given") && strstr(err, "no TAP"));
	fds[0] = tun_fd("given", IFF_TAP | IFF_NO_PI);
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	fds[0] = tun_fd("given", flags);
	fds[1] = tun_fd("other", flags);
	cfg.queues = cfg.nfds = 2;
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	CHECK_EQ(if_nametoindex("given") | if_nametoindex("other"), 0);
}

TEST(what_cannot_be_had_is_said)
{
	struct pv_tapdev_cfg cfg = { .ifname = "lo", .queues = 1, .rx_depth = DEPTH };
	char err[256];
	struct lone l, m;
	int fd;

	quiet_namespace();
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	CHECK(strstr(err, "lo is no TAP"));
	cfg.ifname = "a_name_that_is_too_long";
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	cfg.ifname = "what";
	cfg.queues = PV_TAPDEV_QUEUES_MAX + 1;
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	cfg.queues = 1;

	fd = tun_fd("what", IFF_TUN | IFF_NO_PI);
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EBUSY);
	close(fd);
	ip_here("tuntap add what mode tun");
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	CHECK(strstr(err, "TUN device"));
	ip_here("link del what");

	/* One queue by one process, several by another that was there before. */
	for (uint32_t queues = 1; queues <= 2; queues++) {
		cfg.queues = queues;
		CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), 0);
		CHECK_EQ(open_cfg(&m, &cfg, err, sizeof(err)), -EBUSY);
		CHECK(strstr(err, "another process"));
		close_lone(&l);
	}

	ip_here("tuntap add what mode tap");
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EINVAL);
	CHECK(strstr(err, "one queue"));
	cfg.queues = 1;
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), 0);
	close_lone(&l);
	ip_here("link del what");
	/* One that stays. It is up or down as its owner says. */
	ip_here("tuntap add what mode tap multi_queue");
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), 0);
		CHECK_EQ(l.ring->caps.link_up, i);
		close_lone(&l);
		CHECK(if_nametoindex("what") != 0);
		ip_here("link set what up");
	}
	ip_here("link del what");
}

/* Without the privilege it says so. */
TEST(no_privilege)
{
	struct pv_tapdev_cfg cfg = { .ifname = "mine", .queues = 1, .rx_depth = DEPTH };
	char err[256];
	struct lone l;
	int status;
	pid_t pid;

	quiet_namespace();
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		CHECK_EQ(setresuid(65534, 65534, 65534), 0);
		CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), -EPERM);
		CHECK(strstr(err, "CAP_NET_ADMIN"));
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static int steer_add(void *ctx, const struct pv_flow *flow, uint64_t *handle)
{
	uint32_t *kinds = ctx;

	*kinds |= 1u << flow->kind;
	*handle = 100u + flow->kind;
	return flow->dst_port == 666 ? -EACCES : 0;
}

static int steer_del(void *ctx, uint64_t handle)
{
	uint32_t *kinds = ctx;

	*kinds &= ~(1u << (handle - 100));
	return 0;
}

/* Rules go to whoever steers, and come back with what that said. */
TEST(rules_are_the_steerers)
{
	uint32_t kinds = 0;
	const struct pv_tapdev_steer steer = { .add = steer_add, .del = steer_del, .ctx = &kinds };
	struct pv_tapdev_cfg cfg = { .queues = 1, .rx_depth = DEPTH };
	struct pv_flow flow = { .l4_proto = 17, .dst = contract_addr4(1), .src = contract_addr4(2), .dst_port = 5 };
	uint64_t handle;
	char err[256];
	struct lone l;

	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), 0);
	CHECK_EQ(l.ring->caps.flow_kinds, 1u << PV_FLOW_ALL);
	close_lone(&l);
	cfg.steer = &steer;
	CHECK_EQ(open_cfg(&l, &cfg, err, sizeof(err)), 0);
	for (uint32_t kind = 0; kind < PV_FLOW_KINDS; kind++) {
		flow.kind = (enum pv_flow_kind)kind;
		CHECK_EQ(pv_ring_flow_add(l.ring, &flow, &handle), 0);
		CHECK_EQ(handle, 100 + kind);
		CHECK_EQ(kinds, 1u << kind);
		CHECK_EQ(pv_ring_flow_del(l.ring, handle), 0);
		CHECK_EQ(kinds, 0);
	}
	flow.dst_port = 666;
	CHECK_EQ(pv_ring_flow_add(l.ring, &flow, &handle), -EACCES);
	close_lone(&l);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
