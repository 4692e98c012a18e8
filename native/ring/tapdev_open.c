/* SPDX-License-Identifier: BSD-3-Clause */
/* The TAP device: made or found, its queues, what it can do, and why it cannot be had. */
#include "ring/tapdev_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/ownfd.h"
#include "ring/link.h"

#define DEVICE "/dev/net/tun"
#define DEPTH 1024u

static int say(char *err, size_t errsize, int rc, const char *what, const char *name)
{
	snprintf(err, errsize, "%s%s%s", name, *name ? " " : "", what);
	return rc;
}

static int say_errno(char *err, size_t errsize, int rc, const char *what, const char *name)
{
	snprintf(err, errsize, "%s%s%s: %s", name, *name ? ": " : "", what, strerror(-rc));
	return rc;
}

/* ---- what the kernel knows of an interface ----------------------------------------------------------------------------- */

static int ask(unsigned long request, const char *ifname, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", ifname);
	rc = ioctl(fd, request, ifr) ? -errno : 0;
	close(fd);
	return rc;
}

/* Queues of a TAP device that somebody has open; 0: of none, or there is no such interface. */
static uint32_t queues_taken(const char *ifname)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ifreq ifr = { .ifr_data = (void *)&channels };

	return ask(SIOCETHTOOL, ifname, &ifr) ? 0 : channels.combined_count;
}

/* "tap", "tun", or empty: another kind of interface, or none. */
static void kind_of(const char *ifname, char *kind, size_t size)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq ifr = { .ifr_data = (void *)&info };
	bool ours = !ask(SIOCETHTOOL, ifname, &ifr) && !strcmp(info.driver, "tun");

	snprintf(kind, size, "%.7s", ours ? info.bus_info : "");
}

/* A text of the interface's in sysfs, without its end; -1: there is none. */
static int sysfs(const char *ifname, const char *what)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", ifname, what);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static bool read_text(int fd, char *text, size_t size)
{
	ssize_t n = fd < 0 ? -1 : pread(fd, text, size - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* What is mounted there may be of another network namespace, with an interface of that name; addresses of TAP devices are random. */
static bool in_sysfs(const struct tapdev *t)
{
	struct ifreq ifr = { 0 };
	uint8_t mac[PV_ETH_ALEN];
	char text[64], want[32];
	int fd = sysfs(t->ifname, "address");
	bool found = read_text(fd, text, sizeof(text)) && !ask(SIOCGIFHWADDR, t->ifname, &ifr);

	if (fd >= 0)
		close(fd);
	memcpy(mac, ifr.ifr_hwaddr.sa_data, sizeof(mac));
	snprintf(want, sizeof(want), "%02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
	return found && !strcmp(text, want);
}

/* The kernel answers within the call that asks; what an answer that did not fit left behind is of another number. */
static ssize_t answer(const struct tapdev *t, uint8_t *buf, size_t size)
{
	const struct nlmsghdr *nlh = (const struct nlmsghdr *)(const void *)buf;
	ssize_t n;

	do {
		n = recv(t->link_fd, buf, size, MSG_DONTWAIT);
		if (n < (ssize_t)NLMSG_LENGTH(sizeof(struct ifinfomsg)))
			return -1;
	} while (nlh->nlmsg_seq != t->asked);
	return NLMSG_OK(nlh, (uint32_t)n) && nlh->nlmsg_type == RTM_NEWLINK ? n : -1;
}

/* By RTM_GETLINK; 0 where it does not say. */
static uint64_t dropped_by_link(struct tapdev *t)
{
	struct {
		struct nlmsghdr nlh;
		struct ifinfomsg ifi;
	} ask_link = { .nlh = { .nlmsg_len = sizeof(ask_link),
				.nlmsg_type = RTM_GETLINK,
				.nlmsg_flags = NLM_F_REQUEST,
				.nlmsg_seq = ++t->asked },
		       .ifi = { .ifi_index = (int)t->ifindex } };
	_Alignas(struct nlmsghdr) uint8_t buf[8192];
	const struct nlmsghdr *nlh = (const struct nlmsghdr *)(const void *)buf;
	struct rtnl_link_stats64 stats = { 0 };
	const struct rtattr *a;
	int left;

	if (t->link_fd < 0 || send(t->link_fd, &ask_link, sizeof(ask_link), 0) < 0 || answer(t, buf, sizeof(buf)) < 0)
		return 0;
	left = (int)IFLA_PAYLOAD(nlh);
	for (a = IFLA_RTA((const struct ifinfomsg *)NLMSG_DATA(nlh)); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == IFLA_STATS64)
			memcpy(&stats, RTA_DATA(a), PV_MIN(sizeof(stats), (size_t)RTA_PAYLOAD(a)));
	return stats.tx_dropped;
}

/* What the kernel dropped on the way to us. Rtnetlink has whoever asks wait while an interface, any one, comes or goes, and this is asked with
 * the engine's lock: it is for where sysfs does not have the device. */
static uint64_t dropped(struct tapdev *t)
{
	char text[32];

	if (t->drops_fd < 0)
		return dropped_by_link(t);
	return read_text(t->drops_fd, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

uint64_t pv_tapdev_drops(struct tapdev *t)
{
	uint64_t now = dropped(t), more = now > t->drops ? now - t->drops : 0;

	t->drops += more;
	return more;
}

/* ---- queues ------------------------------------------------------------------------------------------------------------ */

static int refused(const char *name, int rc, uint32_t queues, char *err, size_t errsize)
{
	char kind[8];

	switch (rc) {
	case -EPERM:
		return say(err, errsize, rc,
			   "cannot be had: making a TAP device, or taking one of another user, needs CAP_NET_ADMIN", name);
	case -EBUSY:
		return say(err, errsize, rc, "is a TAP device that another process has open", name);
	case -EINVAL:
		kind_of(name, kind, sizeof(kind));
		if (!strcmp(kind, "tun"))
			return say(err, errsize, rc, "is a TUN device, which has no Ethernet frames: it must be a TAP", name);
		if (strcmp(kind, "tap"))
			return say(err, errsize, rc, "is no TAP device", name);
		return say(
		    err, errsize, rc,
		    queues > 1
			? "is a TAP device of one queue (ip tuntap add ... multi_queue makes one of several)"
			: "is a TAP device of another kind than this needs (without vnet header and without packet information)",
		    name);
	default:
		return say_errno(err, errsize, rc, "TUNSETIFF", name);
	}
}

static int attach(const char *name, int flags, struct ifreq *ifr)
{
	int fd = pv_ownfd(open(DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC)), rc;

	if (fd < 0)
		return -errno;
	memset(ifr, 0, sizeof(*ifr));
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", name);
	ifr->ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | flags);
	if (!ioctl(fd, TUNSETIFF, ifr))
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

static int no_device(int rc, char *err, size_t errsize)
{
	if (rc == -ENOENT || rc == -ENXIO || rc == -ENODEV)
		return say(err, errsize, -ENODEV, "there is no " DEVICE ": the kernel needs CONFIG_TUN (modprobe tun)", "");
	return say_errno(err, errsize, rc, DEVICE, "");
}

/* One queue of a device of one queue leaves the kernel nothing to choose; one that is there already may be of several. */
static int make_queues(struct tapdev *t, const struct pv_tapdev_cfg *cfg, char *err, size_t errsize)
{
	const char *name = cfg->ifname ? cfg->ifname : "";
	uint32_t all = t->nqueues > 1 ? t->nqueues + 1 : 1;
	struct ifreq ifr;
	int fd;

	if (access(DEVICE, F_OK) < 0)
		return no_device(-errno, err, errsize);
	if (*name && queues_taken(name))
		return refused(name, -EBUSY, t->nqueues, err, errsize);
	for (uint32_t i = 0; i < all; i++) {
		fd = attach(i ? t->ifname : name, all > 1 ? IFF_MULTI_QUEUE : 0, &ifr);
		if (fd == -EINVAL && all == 1)
			fd = attach(name, IFF_MULTI_QUEUE, &ifr);
		if (fd < 0)
			return fd == -ENOENT || fd == -ENXIO || fd == -ENODEV || fd == -EACCES
				   ? no_device(fd, err, errsize)
				   : refused(*name ? name : "a TAP device", fd, t->nqueues, err, errsize);
		memcpy(t->ifname, ifr.ifr_name, sizeof(t->ifname));
		t->ifname[sizeof(t->ifname) - 1] = '\0';
		if (i < t->nqueues)
			t->fd[i] = fd;
		if (i == 0 || i == t->nqueues)
			t->send_fd = fd;
	}
	return 0;
}

/* What somebody else opened is looked at, not trusted. */
static int take_queues(struct tapdev *t, const struct pv_tapdev_cfg *cfg, char *err, size_t errsize)
{
	struct ifreq ifr = { 0 };

	t->send_fd = cfg->fds[0];
	for (uint32_t i = 0; i < cfg->nfds; i++) {
		if (i < t->nqueues)
			t->fd[i] = pv_ownfd(cfg->fds[i]);
		else if (i == t->nqueues)
			t->send_fd = pv_ownfd(cfg->fds[i]);
		else
			close(cfg->fds[i]);
	}
	for (uint32_t i = 0; i < cfg->nfds && i <= t->nqueues; i++) {
		if (ioctl(cfg->fds[i], TUNGETIFF, &ifr))
			return say_errno(err, errsize, -errno, "a descriptor that was passed is no queue of a TAP device", "");
		if ((ifr.ifr_flags & (IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)) != (IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
			return say(err, errsize, -EINVAL, "is no TAP device with vnet header and without packet information",
				   ifr.ifr_name);
		if (*t->ifname && strncmp(t->ifname, ifr.ifr_name, sizeof(t->ifname)) != 0)
			return say(err, errsize, -EINVAL, "and another device: the queues passed are of two", t->ifname);
		memcpy(t->ifname, ifr.ifr_name, sizeof(t->ifname));
		if (fcntl(cfg->fds[i], F_SETFL, O_NONBLOCK) < 0 || fcntl(cfg->fds[i], F_SETFD, FD_CLOEXEC) < 0)
			return say_errno(err, errsize, -errno, "fcntl", t->ifname);
	}
	return 0;
}

/* A queue that only sends is taken out of those that the kernel spreads frames over. What is sent by a queue that receives draws the flow's
 * answers to that queue. */
static int detach_sender(struct tapdev *t)
{
	struct ifreq ifr = { .ifr_flags = IFF_DETACH_QUEUE };

	if (t->send_fd == t->fd[0])
		return 0;
	return ioctl(t->send_fd, TUNSETQUEUE, &ifr) ? -errno : 0;
}

static int open_epoll(struct tapdev *t)
{
	if (t->nqueues == 1)
		return 0;
	t->epoll_fd = pv_ownfd(epoll_create1(EPOLL_CLOEXEC));
	if (t->epoll_fd < 0)
		return -errno;
	for (uint32_t i = 0; i < t->nqueues; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.u32 = i };

		if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->fd[i], &ev))
			return -errno;
	}
	return 0;
}

/* ---- offloads, MTU, capabilities --------------------------------------------------------------------------------------- */

/* What the host may leave to us. Datagrams by the row want room to be taken apart in. */
static int set_offload(struct tapdev *t, bool *uso)
{
	const unsigned int tso = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
	int size = sizeof(struct virtio_net_hdr);

	*uso = false;
	if (ioctl(t->fd[0], TUNSETVNETHDRSZ, &size))
		return -errno;
	if (!t->offload)
		return ioctl(t->fd[0], TUNSETOFFLOAD, 0) ? -errno : 0;
	*uso = t->ring.caps.rx_depth >= 2 * TAPDEV_UDP_PARTS && !ioctl(t->fd[0], TUNSETOFFLOAD, tso | TUN_F_USO4 | TUN_F_USO6);
	return *uso || !ioctl(t->fd[0], TUNSETOFFLOAD, tso) ? 0 : -errno;
}

static int set_mtu(struct tapdev *t, const struct pv_tapdev_cfg *cfg, char *err, size_t errsize)
{
	struct ifreq ifr = { 0 };
	int rc = ask(SIOCGIFMTU, t->ifname, &ifr);

	if (rc)
		return say_errno(err, errsize, rc, "SIOCGIFMTU", t->ifname);
	if (cfg->mtu && (uint32_t)ifr.ifr_mtu != cfg->mtu) {
		ifr.ifr_mtu = (int)cfg->mtu;
		rc = ask(SIOCSIFMTU, t->ifname, &ifr);
		if (rc)
			return say_errno(err, errsize, rc, "the MTU cannot be set", t->ifname);
	}
	t->ring.caps.mtu = (uint32_t)ifr.ifr_mtu;
	return 0;
}

/* A device of our making, or one whose MTU we set, is brought up; for another one that is whose it is. */
static int bring_up(struct tapdev *t, bool wanted, char *err, size_t errsize)
{
	struct ifreq ifr = { 0 };
	int rc = ask(SIOCGIFFLAGS, t->ifname, &ifr);

	if (!rc && wanted && !(ifr.ifr_flags & IFF_UP)) {
		ifr.ifr_flags |= IFF_UP;
		rc = ask(SIOCSIFFLAGS, t->ifname, &ifr);
	}
	if (rc)
		return say_errno(err, errsize, rc, "it cannot be brought up", t->ifname);
	t->ring.caps.link_up = ifr.ifr_flags & IFF_UP;
	return 0;
}

static void fill_caps(struct tapdev *t, const struct pv_tapdev_cfg *cfg, bool uso)
{
	struct pv_ring_caps *c = &t->ring.caps;
	char queues[24] = "";

	c->headroom = TAPDEV_VNET;
	c->rx_buf_min = 256;
	c->batch = PV_RING_BATCH_MAX;
	c->inline_size = TAPDEV_FRAME_MAX; /* every frame is copied */
	c->max_sge = TAPDEV_PIECES_MAX;
	c->tx_csum = t->offload ? PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP : 0;
	c->tso_max = t->offload && !cfg->no_tso ? UINT16_MAX : 0;
	c->flow_kinds = t->steer.add ? (1u << PV_FLOW_KINDS) - 1 : 1u << PV_FLOW_ALL;
	c->queues = t->nqueues;
	if (cfg->mac) {
		memcpy(c->mac, cfg->mac, sizeof(c->mac));
	} else {
		if (getrandom(c->mac, sizeof(c->mac), GRND_NONBLOCK) < 0)
			pv_put32(c->mac + 2, t->ifindex);
		c->mac[0] = (uint8_t)((c->mac[0] & 0xfc) | 2); /* of one station, and of local making */
	}
	if (t->nqueues > 1)
		snprintf(queues, sizeof(queues), ", %u queues", t->nqueues);
	snprintf(c->name, sizeof(c->name), "tap:%s", t->ifname);
	snprintf(c->mode, sizeof(c->mode), "vnet header%s%s%s", queues,
		 c->tso_max   ? ", tso"
		 : t->offload ? ", checksums"
			      : "",
		 uso ? ", uso" : "");
}

/* ---- open -------------------------------------------------------------------------------------------------------------- */

void pv_tapdev_release(struct tapdev *t)
{
	const struct pv_mem *mem = t->mem;

	if (t->send_fd >= 0 && t->send_fd != t->fd[0])
		close(t->send_fd);
	for (uint32_t i = 0; i < t->nqueues; i++)
		if (t->fd[i] >= 0)
			close(t->fd[i]);
	if (t->epoll_fd >= 0)
		close(t->epoll_fd);
	if (t->drops_fd >= 0)
		close(t->drops_fd);
	if (t->link_fd >= 0)
		close(t->link_fd);
	if (t->posted)
		mem->free(mem->ctx, t->posted, t->rx_size * sizeof(struct pv_pkt *));
	if (t->spill)
		mem->free(mem->ctx, t->spill, t->spill_size);
	if (t->ring.stat)
		pv_ring_stat_close(&t->ring, mem);
	mem->free(mem->ctx, t, sizeof(*t));
}

static int allocate(struct tapdev *t, const struct pv_tapdev_cfg *cfg)
{
	struct pv_ring_caps *c = &t->ring.caps;

	c->rx_depth = cfg->rx_depth ? cfg->rx_depth : DEPTH;
	c->tx_depth = cfg->tx_depth ? cfg->tx_depth : DEPTH;
	for (t->rx_size = 1; t->rx_size < c->rx_depth;)
		t->rx_size *= 2;
	t->spill_size = TAPDEV_VNET + TAPDEV_FRAME_MAX;
	t->posted = t->mem->alloc(t->mem->ctx, t->rx_size * sizeof(struct pv_pkt *));
	t->spill = t->mem->alloc(t->mem->ctx, t->spill_size);
	return t->posted && t->spill && !pv_ring_stat_open(&t->ring, t->mem) ? 0 : -ENOMEM;
}

static int open_device(struct tapdev *t, const struct pv_tapdev_cfg *cfg, char *err, size_t errsize)
{
	struct ifreq ifr = { 0 };
	/* Of ours it is only known afterwards whether it was there. */
	bool there = cfg->fds || (cfg->ifname && pv_link_index(cfg->ifname)), uso;
	int rc = cfg->fds ? take_queues(t, cfg, err, errsize) : make_queues(t, cfg, err, errsize);

	if (rc)
		return rc;
	rc = ask(SIOCGIFINDEX, t->ifname, &ifr);
	if (rc)
		return say_errno(err, errsize, rc, "SIOCGIFINDEX", t->ifname);
	t->ifindex = (uint32_t)ifr.ifr_ifindex;
	rc = detach_sender(t);
	if (rc)
		return say_errno(err, errsize, rc, "TUNSETQUEUE", t->ifname);
	rc = set_offload(t, &uso);
	if (rc)
		return say_errno(err, errsize, rc, "offloads cannot be set", t->ifname);
	rc = set_mtu(t, cfg, err, errsize);
	rc = rc ? rc : bring_up(t, !there || cfg->mtu, err, errsize);
	if (rc)
		return rc;
	rc = open_epoll(t);
	if (rc)
		return say_errno(err, errsize, rc, "epoll", t->ifname);
	if (in_sysfs(t))
		t->drops_fd = pv_ownfd(sysfs(t->ifname, "statistics/tx_dropped"));
	if (t->drops_fd < 0)
		t->link_fd = pv_ownfd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
	t->drops = dropped(t);
	fill_caps(t, cfg, uso);
	return 0;
}

static int check_cfg(const struct pv_tapdev_cfg *cfg, const struct pv_pool_cfg *pool, char *err, size_t errsize)
{
	const char *name = cfg->ifname ? cfg->ifname : "";

	if (pool->headroom < TAPDEV_VNET || pool->buf_size - pool->headroom < 256)
		return say(err, errsize, -EINVAL,
			   "a TAP ring needs a pool with headroom for the vnet header, and 256 bytes behind it", "");
	if (!cfg->queues || cfg->queues > PV_TAPDEV_QUEUES_MAX || (cfg->fds && cfg->nfds < cfg->queues)) {
		snprintf(err, errsize, "%s: %u queues: 1 to %u, and of those passed as many as there are", name, cfg->queues,
			 PV_TAPDEV_QUEUES_MAX);
		return -EINVAL;
	}
	if (strlen(name) >= IFNAMSIZ) {
		snprintf(err, errsize, "%s: longer than the %d bytes that a name has", name, IFNAMSIZ - 1);
		return -EINVAL;
	}
	return 0;
}

static void close_passed(const struct pv_tapdev_cfg *cfg)
{
	for (uint32_t i = 0; cfg->fds && i < cfg->nfds; i++)
		close(cfg->fds[i]);
}

int pv_tapdev_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_tapdev_cfg *cfg, char *err,
		   size_t errsize)
{
	struct tapdev *t = NULL;
	int rc = check_cfg(cfg, pv_pool_config(pool), err, errsize);

	if (!rc) {
		t = mem->alloc(mem->ctx, sizeof(*t));
		rc = t ? 0 : say_errno(err, errsize, -ENOMEM, "a TAP ring", "");
	}
	if (rc) {
		close_passed(cfg);
		return rc;
	}
	t->ring.ops = &pv_tapdev_ops;
	t->ring.pool = pool;
	t->mem = mem;
	t->nqueues = cfg->queues;
	t->offload = !cfg->no_offload;
	t->epoll_fd = t->send_fd = t->drops_fd = t->link_fd = -1;
	memset(t->fd, -1, sizeof(t->fd));
	if (cfg->steer)
		t->steer = *cfg->steer;
	pv_pktq_init(&t->ready);
	pv_pktq_init(&t->done);
	rc = allocate(t, cfg);
	if (rc) {
		say_errno(err, errsize, rc, "a TAP ring", "");
		close_passed(cfg);
	} else {
		rc = open_device(t, cfg, err, errsize);
	}
	if (rc) {
		pv_tapdev_release(t);
		return rc;
	}
	*out = &t->ring;
	return 0;
}

uint32_t pv_tapdev_ifindex(const struct pv_ring *r)
{
	return tapdev(r)->ifindex;
}

const char *pv_tapdev_ifname(const struct pv_ring *r)
{
	return tapdev(r)->ifname;
}

int pv_tapdev_fd(const struct pv_ring *r)
{
	return tapdev(r)->fd[0];
}
