/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP ring: a TAP device of the kernel (/dev/net/tun) whose other end is this ring. What the host sends into the device is
 * received here, what is sent here the host receives from it. Frames carry struct virtio_net_hdr, so that checksums and TCP segments
 * of up to 64 KiB pass whole in both directions, as far as the host and the caller like them.
 *
 * The device lives as long as the ring, unless it was there before (persistent, or opened by somebody else who passed the fds).
 */
#ifndef PV_RING_TAPDEV_H
#define PV_RING_TAPDEV_H

#include "ring/ring.h"

#define PV_TAPDEV_QUEUES_MAX 16u

/* Whoever chooses which flows come to the device: pyvmad, by rules of traffic control. Both calls are those of the ring contract, and
 * come from whoever is in the ring. */
struct pv_tapdev_steer {
	int (*add)(void *ctx, const struct pv_flow *flow, uint64_t *handle);
	int (*del)(void *ctx, uint64_t handle);
	void *ctx;
};

struct pv_tapdev_cfg {
	const char *ifname; /* NULL or "": the kernel chooses; may hold %d */
	uint32_t queues; /* 1 to 16 */
	uint32_t rx_depth, tx_depth; /* 0: 1024 */
	uint32_t mtu; /* 0: the device's; else it is set, and the device brought up, as one that the ring made is anyhow */
	const uint8_t *mac; /* of the ring's end; NULL: random. The host's end has another one, which is the kernel's to choose */
	/* Open queues of a device that somebody else made (IFF_NO_PI, IFF_VNET_HDR); the ring owns them from now on, and has closed them when
	 * the open fails. With more than `queues` of a device of several, the last one only sends. NULL: makes its own. */
	const int *fds;
	uint32_t nfds;
	bool no_offload; /* whole frames with checksums only */
	bool no_tso; /* the sender cuts its segments itself; long ones may come all the same */
	/* Flow rules of all kinds go there. NULL: all that the host sends into the device is ours, and PV_FLOW_ALL, which says so, is the
	 * only kind. The struct is copied. */
	const struct pv_tapdev_steer *steer;
};

/* 0 or -errno with a text in `err`: -EPERM (needs CAP_NET_ADMIN, or fds of pyvmad), -EBUSY (another process has the device),
 * -ENODEV (no /dev/net/tun), -EINVAL (an interface of that name is no TAP device, or has not so many queues), ... */
int pv_tapdev_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_tapdev_cfg *cfg, char *err,
		   size_t errsize);
/* The kernel's number and name of the device. */
uint32_t pv_tapdev_ifindex(const struct pv_ring *r);
const char *pv_tapdev_ifname(const struct pv_ring *r);
/* Its first queue, the ring's as before. */
int pv_tapdev_fd(const struct pv_ring *r);

#endif
