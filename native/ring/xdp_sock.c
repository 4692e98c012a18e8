/* SPDX-License-Identifier: BSD-3-Clause */
/* AF_XDP sockets of a ring: UMEM, the four queues of each, and binding to the interface's queues. */
#include "base/ownfd.h"
#include "ring/xdp_priv.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif
#ifndef SO_BUSY_POLL
#define SO_BUSY_POLL 46
#endif

#define DEPTH_DEFAULT 1024u
#define BUSY_POLL_BUDGET 64
#define BUSY_RETRIES 30
#define BUSY_RETRY_MS 10

static int ethtool(const char *ifname, void *request)
{
	struct ifreq ifr = { .ifr_data = request };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
	rc = ioctl(fd, SIOCETHTOOL, &ifr) ? -errno : 0;
	close(fd);
	return rc;
}

uint32_t pv_xdp_channels(const char *ifname)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };

	if (ethtool(ifname, &channels))
		return 1;
	return PV_MAX(1u, channels.combined_count + channels.rx_count);
}

void pv_xdp_moderation(const char *ifname, struct pv_ring_caps *caps)
{
	struct ethtool_coalesce moderation = { .cmd = ETHTOOL_GCOALESCE };

	if (ethtool(ifname, &moderation))
		return;
	caps->moderation_frames = moderation.rx_max_coalesced_frames;
	caps->moderation_us = moderation.rx_coalesce_usecs;
}

bool pv_xdp_device_csum(const char *ifname)
{
	struct ethtool_value on = { .cmd = ETHTOOL_GTXCSUM };

	return !ethtool(ifname, &on) && on.data;
}

int pv_xdp_know_driver(struct xdp_ring *r, const char *ifname)
{
	static const char *const drivers[] = { "veth", "tun", "virtio_net", "bridge" };
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	int rc = ethtool(ifname, &info);

	if (rc)
		return rc == -EOPNOTSUPP ? 0 : rc;
	for (size_t i = 0; i < pv_array_size(drivers); i++)
		r->virtual_link |= !strcmp(info.driver, drivers[i]);
	r->veth = !strcmp(info.driver, "veth");
	return 0;
}

bool pv_xdp_has_tso(const char *ifname)
{
	struct ethtool_value tso = { .cmd = ETHTOOL_GTSO };

	return !ethtool(ifname, &tso) && tso.data;
}

static int map_queue(int fd, struct xdp_queue *q, const struct xdp_ring_offset *at, off_t page, size_t desc_size)
{
	q->map_size = at->desc + q->size * desc_size;
	q->map = mmap(NULL, q->map_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);
	if (q->map == MAP_FAILED) {
		q->map = NULL;
		return -errno;
	}
	q->producer = (uint32_t *)((uint8_t *)q->map + at->producer);
	q->consumer = (uint32_t *)((uint8_t *)q->map + at->consumer);
	q->flags = (uint32_t *)((uint8_t *)q->map + at->flags);
	q->desc = (uint8_t *)q->map + at->desc;
	q->mask = q->size - 1;
	return 0;
}

static int set_depth(int fd, int option, struct xdp_queue *q, uint32_t depth)
{
	q->size = depth;
	return setsockopt(fd, SOL_XDP, option, &depth, sizeof(depth)) ? -errno : 0;
}

static int make_queues(struct xdp_sock *s, uint32_t rx_depth, uint32_t tx_depth)
{
	struct xdp_mmap_offsets at;
	socklen_t len = sizeof(at);
	int rc;

	rc = set_depth(s->fd, XDP_UMEM_FILL_RING, &s->fill, rx_depth);
	rc = rc ? rc : set_depth(s->fd, XDP_UMEM_COMPLETION_RING, &s->comp, tx_depth);
	rc = rc ? rc : set_depth(s->fd, XDP_RX_RING, &s->rx, rx_depth);
	rc = rc ? rc : set_depth(s->fd, XDP_TX_RING, &s->tx, tx_depth);
	if (rc)
		return rc;
	if (getsockopt(s->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &len))
		return -errno;
	rc = map_queue(s->fd, &s->rx, &at.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc));
	rc = rc ? rc : map_queue(s->fd, &s->tx, &at.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc));
	rc = rc ? rc : map_queue(s->fd, &s->fill, &at.fr, (off_t)XDP_UMEM_PGOFF_FILL_RING, sizeof(uint64_t));
	return rc ? rc : map_queue(s->fd, &s->comp, &at.cr, (off_t)XDP_UMEM_PGOFF_COMPLETION_RING, sizeof(uint64_t));
}

static int bind_once(struct xdp_ring *r, struct xdp_sock *s, uint16_t flags)
{
	struct sockaddr_xdp addr = {
		.sxdp_family = AF_XDP,
		.sxdp_flags = s == r->sock ? flags : XDP_SHARED_UMEM,
		.sxdp_ifindex = (uint32_t)r->ifindex,
		.sxdp_queue_id = s->queue_id,
		.sxdp_shared_umem_fd = s == r->sock ? 0 : (uint32_t)r->sock->fd,
	};

	return bind(s->fd, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : 0;
}

/* The kernel frees a queue a little after its last socket was closed: what is taken now may be free in a moment. */
static int bind_queue(struct xdp_ring *r, struct xdp_sock *s, uint16_t flags, bool hurry)
{
	const struct timespec moment = { .tv_nsec = BUSY_RETRY_MS * 1000000 };
	int rc = bind_once(r, s, flags);

	for (int i = 0; rc == -EBUSY && !hurry && i < BUSY_RETRIES; i++) {
		nanosleep(&moment, NULL);
		rc = bind_once(r, s, flags);
	}
	return rc;
}

static void busy_poll(int fd, uint32_t us)
{
	int on = 1, budget = BUSY_POLL_BUDGET, time = (int)us;

	/* Helps where the driver's NAPI can be run from here; a kernel or driver without it works as before. */
	if (!setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &on, sizeof(on)) &&
	    !setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &time, sizeof(time)))
		(void)setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof(budget));
}

/*
 * Without XDP_USE_NEED_WAKEUP the kernel sets no flags. In copy mode it would say for ever that it has to be called to send, and make poll(2)
 * send as well: work for a thread that wakes up for a frame that came. So that is said here.
 */
static uint32_t call_to_send = XDP_RING_NEED_WAKEUP;

static int sock_open(struct xdp_ring *r, uint32_t i, const struct pv_xdp_cfg *cfg)
{
	struct xdp_sock *s = &r->sock[i];
	int rc;

	s->queue_id = i;
	if (s->fd < 0)
		s->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (pv_ownfd(s->fd) < 0)
		return -errno;
	rc = i == 0 ? pv_xdp_umem_reg(r, s->fd, cfg->tx_csum) : 0;
	rc = rc ? rc : make_queues(s, cfg->rx_depth ? cfg->rx_depth : DEPTH_DEFAULT, cfg->tx_depth ? cfg->tx_depth : DEPTH_DEFAULT);
	if (rc)
		return rc;
	rc = -EOPNOTSUPP;
	/* The first socket asks for all of them. */
	if (!cfg->copy && cfg->mode != PV_XDP_GENERIC && cfg->tx_csum != PV_XDP_CSUM_SOFTWARE && i == 0) {
		rc = bind_queue(r, s, XDP_USE_NEED_WAKEUP | XDP_ZEROCOPY | (r->jumbo ? XDP_USE_SG : 0), cfg->hurry);
		r->zero_copy = !rc;
	}
	/* Segments that the kernel merged, or its sender has not cut yet, fill several buffers. */
	if (rc && rc != -EBUSY) {
		rc = bind_queue(r, s, XDP_COPY | (i ? 0 : XDP_USE_SG), cfg->hurry);
		r->sg |= !rc && i == 0;
	}
	if (rc && rc != -EBUSY && !r->jumbo)
		rc = bind_queue(r, s, XDP_COPY, cfg->hurry);
	if (!r->zero_copy)
		s->tx.flags = &call_to_send;
	if (!rc && cfg->busy_poll_us)
		busy_poll(s->fd, cfg->busy_poll_us);
	return rc;
}

static int explain(const struct xdp_ring *r, const struct pv_xdp_cfg *cfg, uint32_t queue, int rc, char *err, size_t errsize)
{
	if (rc == -EBUSY)
		snprintf(err, errsize, "queue %u of %s is taken by another AF_XDP socket", queue, cfg->ifname);
	else if (rc == -EPERM)
		snprintf(err, errsize, "AF_XDP needs CAP_NET_RAW, or root");
	else if (rc == -EAFNOSUPPORT)
		snprintf(err, errsize, "this kernel has no AF_XDP");
	else if (rc == -ENOBUFS || rc == -ENOMEM)
		snprintf(err, errsize, "no locked memory for the packet buffers (ulimit -l): %s", strerror(-rc));
	else if (r->jumbo && rc == -EINVAL)
		snprintf(err, errsize, "the MTU of %s takes frames of several buffers, and this kernel has none (Linux 6.6)",
			 cfg->ifname);
	else
		snprintf(err, errsize, "AF_XDP socket of queue %u of %s: %s", queue, cfg->ifname, strerror(-rc));
	return rc;
}

int pv_xdp_socks_open(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize)
{
	for (uint32_t i = 0; i < r->nsocks; i++) {
		int rc = sock_open(r, i, cfg);

		if (rc)
			return explain(r, cfg, i, rc, err, errsize);
	}
	return 0;
}

static void unmap(struct xdp_queue *q)
{
	if (q->map)
		munmap(q->map, q->map_size);
	q->map = NULL;
}

void pv_xdp_socks_close(struct xdp_ring *r)
{
	/* The first socket registered the UMEM: it goes last. */
	for (uint32_t i = r->nsocks; r->sock && i-- > 0;) {
		struct xdp_sock *s = &r->sock[i];

		unmap(&s->rx);
		unmap(&s->tx);
		unmap(&s->fill);
		unmap(&s->comp);
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
	}
}
