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

	if (geteuid() != 0)
		test_skip("needs root for a network namespace");
	if (made)
		return;
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

static void open_queues(struct rig *rig)
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
TAP(queues);

#define OFFLOAD(id) CONTRACT_CASE(offload, id)
CONTRACT_LIST(OFFLOAD)
#define QUEUES(id) CONTRACT_CASE(queues, id)
CONTRACT_LIST(QUEUES)

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
