/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The uplink: a port of the fabric and a TAP device, so that the kernel's programs are on the fabric.
 *
 * The TAP is opened with a virtio header and told that no offload is taken, so every frame from the kernel is complete: no partial
 * checksum, nothing to be segmented. In the other direction the header tells the kernel when the switch has verified a checksum.
 * The uplink is a receiver like others: its queue has one rule, for everything, and its port learns the MACs behind it.
 *
 * A TAP that is deleted is made again; frames meanwhile are dropped and counted as those of a port without link.
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "softnic/fab.h"
#include "softnic/fab_sys.h"
#include "softnic/softnic.h"
#include "softnic/vb.h"

#define QUEUE_SLOTS 4096u
#define BATCH 64
#define RETRY_MS 100
#define AGE_S 300u
#define HOUSEKEEPING_MS 5000

struct uplink {
	struct sn_fabric *f;
	struct sn_port *port;
	struct sn_rxq *q;
	struct sn_waker *waker;
	uint64_t rule;
	const char *ifname;
	int tap, stop;
	uint32_t link_events;
	uint8_t buf[sizeof(struct virtio_net_hdr) + 65536];
};

/* One request about the interface, over a socket of the calling thread's network namespace. */
static int if_request(struct ifreq *ifr, unsigned long request)
{
	int fd = (int)sn_sys(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return fd;
	rc = (int)sn_sys(SYS_ioctl, fd, request, ifr);
	sn_sys(SYS_close, fd);
	return rc;
}

static void request_for(struct ifreq *ifr, const char *ifname)
{
	memset(ifr, 0, sizeof(*ifr));
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", ifname);
}

/* MTU of the port, and up. */
static int tap_configure(const struct uplink *u)
{
	struct ifreq ifr;
	int rc;

	request_for(&ifr, u->ifname);
	ifr.ifr_mtu = (int)sn_port_mtu(u->port);
	rc = if_request(&ifr, SIOCSIFMTU);
	if (rc)
		return rc;
	request_for(&ifr, u->ifname);
	rc = if_request(&ifr, SIOCGIFFLAGS);
	if (rc || (ifr.ifr_flags & IFF_UP))
		return rc;
	ifr.ifr_flags |= IFF_UP;
	return if_request(&ifr, SIOCSIFFLAGS);
}

static void tap_carrier(const struct uplink *u)
{
	int up = sn_port_link(u->port);

	if (u->tap >= 0)
		sn_sys(SYS_ioctl, u->tap, TUNSETCARRIER, &up);
}

static int tap_open(struct uplink *u)
{
	int hdr = sizeof(struct virtio_net_hdr), fd, rc;
	struct ifreq ifr;

	fd = (int)sn_sys(SYS_openat, AT_FDCWD, "/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	request_for(&ifr, u->ifname);
	ifr.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
	rc = (int)sn_sys(SYS_ioctl, fd, TUNSETIFF, &ifr);
	if (!rc)
		rc = (int)sn_sys(SYS_ioctl, fd, TUNSETVNETHDRSZ, &hdr);
	if (!rc)
		rc = (int)sn_sys(SYS_ioctl, fd, TUNSETOFFLOAD, 0);
	if (!rc)
		rc = tap_configure(u);
	if (rc) {
		sn_sys(SYS_close, fd);
		return rc;
	}
	u->tap = fd;
	tap_carrier(u);
	return 0;
}

static uint32_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint32_t)ts.tv_sec;
}

static void tap_lost(struct uplink *u)
{
	sn_sys(SYS_close, u->tap);
	u->tap = -1;
}

/* Fabric to kernel; how many frames. */
static int to_tap(struct uplink *u)
{
	struct sn_frame f;
	int n = 0;

	for (; n < BATCH && sn_rxq_peek(u->q, &f); n++) {
		struct virtio_net_hdr hdr = { 0 };
		struct iovec iov[9] = { { &hdr, sizeof(hdr) } };
		long rc = -EBADFD;

		if (f.flags & SN_RX_L4_OK)
			hdr.flags = VIRTIO_NET_HDR_F_DATA_VALID;
		for (uint32_t i = 0; i < f.nseg; i++)
			iov[i + 1] = (struct iovec){ (void *)(uintptr_t)f.seg[i], f.seg_len[i] };
		if (u->tap >= 0)
			rc = sn_sys(SYS_writev, u->tap, iov, f.nseg + 1);
		/* The device is down, or its queue full: a frame dropped at a link. */
		if (rc < 0)
			sn_count(&u->port->count->rx_link_down, 1);
		if (rc == -EBADFD && u->tap >= 0)
			tap_lost(u);
		sn_rxq_pop(u->q);
	}
	return n;
}

/* Kernel to fabric. */
static int from_tap(struct uplink *u)
{
	const uint8_t *frame = u->buf + sizeof(struct virtio_net_hdr);
	uint32_t now = now_s();
	int n = 0;

	for (; n < BATCH && u->tap >= 0; n++) {
		long rc = sn_sys(SYS_read, u->tap, u->buf, sizeof(u->buf));
		struct sn_seg seg;

		if (rc == -EAGAIN || rc == -EINTR)
			break;
		if (rc < 0) {
			tap_lost(u);
			break;
		}
		if (rc < (long)sizeof(struct virtio_net_hdr) + 14)
			continue;
		seg = (struct sn_seg){ frame, (uint32_t)rc - (uint32_t)sizeof(struct virtio_net_hdr) };
		sn_fdb_learn(u->f, u->port->number, sn_mac_u64(frame + 6), now);
		/* Too long, or no link: counted there. */
		sn_port_send(u->port, &seg, 1, 0);
	}
	return n;
}

static void follow_link(struct uplink *u)
{
	uint32_t events = sn_port_link_events(u->port);

	if (events == u->link_events)
		return;
	u->link_events = events;
	tap_carrier(u);
}

static int run(struct uplink *u)
{
	for (;;) {
		struct pollfd fds[3] = { { .fd = u->stop, .events = POLLIN },
					 { .fd = sn_waker_fd(u->waker), .events = POLLIN },
					 { .fd = u->tap, .events = POLLIN } };
		struct timespec wait = { .tv_sec = HOUSEKEEPING_MS / 1000 };
		int moved = to_tap(u) + from_tap(u);
		long rc;

		if (u->tap < 0 && tap_open(u))
			wait = (struct timespec){ .tv_nsec = RETRY_MS * PV_NS_PER_MS };
		fds[2].fd = u->tap;
		if (moved || sn_rxq_arm(u->q, u->waker))
			wait = (struct timespec){ 0 };
		rc = sn_sys(SYS_ppoll, fds, 3, &wait, NULL, 0);
		if (rc < 0 && rc != -EINTR)
			return (int)rc;
		if (rc > 0 && fds[0].revents)
			return 0;
		if (rc > 0 && fds[1].revents)
			sn_waker_clear(u->waker);
		follow_link(u);
		if (rc == 0 && !moved)
			sn_fdb_age(u->f, u->port->number, now_s() - PV_MIN(now_s(), AGE_S));
	}
}

static int join(struct uplink *u, const struct vb_device *d)
{
	struct sn_rule rule = { .priority = UINT32_MAX, .nqueues = 1, .queues = &u->q };
	int rc = sn_fabric_open(d->fabric, &u->f);

	if (!rc)
		rc = sn_port_attach(u->f, d->port, &d->cfg, &u->port);
	if (!rc)
		rc = sn_rxq_create(u->port, QUEUE_SLOTS, &u->q);
	if (!rc)
		rc = sn_waker_open(u->f, &u->waker);
	if (!rc)
		rc = sn_port_watch(u->port, u->waker);
	if (!rc)
		rc = sn_rule_add(u->port, &rule, &u->rule);
	if (rc) {
		vb_open_error("uplink of %s/%u: %s", d->fabric, d->port, sn_error());
		return rc;
	}
	sn_port_set_uplink(u->port);
	u->link_events = sn_port_link_events(u->port);
	rc = tap_open(u);
	if (rc)
		vb_open_error("TAP device %s: %s%s", u->ifname, strerror(-rc),
			      rc == -EPERM    ? "; it needs CAP_NET_ADMIN"
			      : rc == -EBUSY  ? "; another program has it"
			      : rc == -EINVAL ? "; no such name, or an interface of another kind has it"
					      : "");
	return rc;
}

static void leave(struct uplink *u)
{
	if (u->tap >= 0)
		sn_sys(SYS_close, u->tap);
	if (u->q)
		sn_rxq_destroy(u->q);
	if (u->waker)
		sn_waker_close(u->waker);
	if (u->port)
		sn_port_detach(u->port);
	if (u->f)
		sn_fabric_close(u->f);
}

int softnic_uplink(const char *spec, const char *ifname, int stop_fd)
{
	struct uplink *u;
	struct vb_device *d;
	int rc = vb_device_add(spec, &d);

	if (rc || !ifname[0] || strlen(ifname) >= IFNAMSIZ) {
		vb_open_error("uplink: \"%s\" is no port, or \"%s\" no name of an interface", spec, ifname);
		return -EINVAL;
	}
	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->ifname = ifname;
	u->tap = -1;
	u->stop = stop_fd;
	rc = join(u, d);
	if (!rc)
		rc = run(u);
	leave(u);
	free(u);
	return rc;
}
