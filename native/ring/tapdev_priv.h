/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the TAP ring: tapdev.c (data path), tapdev_open.c (the device), tapdev_vnet.c (headers in front of frames). */
#ifndef PV_RING_TAPDEV_PRIV_H
#define PV_RING_TAPDEV_PRIV_H

#include <linux/virtio_net.h>
#include <net/if.h>
#include <sys/uio.h>

#include "ring/tapdev.h"

/* Linux 6.2 */
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

#define TAPDEV_FRAME_MAX (65535u + 18u) /* what IP can say, Ethernet and one VLAN tag */
#define TAPDEV_SLOTS_MAX 48u /* buffers that a read fills; what does not fit goes by way of the spill */
#define TAPDEV_VNET ((uint32_t)sizeof(struct virtio_net_hdr))
#define TAPDEV_PIECES_MAX 64u /* buffers of a frame sent */
#define TAPDEV_UDP_PARTS 128u /* UDP_MAX_SEGMENTS */
#define TAPDEV_UDP_HEADERS 128u /* Ethernet with a tag, IPv4 with options, UDP */

struct tapdev {
	struct pv_ring ring; /* first */
	const struct pv_mem *mem;
	int fd[PV_TAPDEV_QUEUES_MAX];
	uint32_t nqueues, turn; /* turn: the queue that is read next */
	int send_fd; /* the first queue's, or that of one more, which receives nothing */
	int epoll_fd; /* of several queues, else -1 */

	/* Receive buffers: those that the next read may fill, and the rest. */
	uint32_t nslots, slots_want, few; /* few: reads in a row that needed one of them */
	struct pv_pkt *slot[TAPDEV_SLOTS_MAX];
	struct iovec iov[TAPDEV_SLOTS_MAX + 1]; /* slots, the first with the header in its headroom; spill */
	struct virtio_net_hdr hdr; /* of the last frame */
	struct pv_pkt **posted; /* a queue of rx_size, a power of two */
	uint32_t rx_head, rx_tail, rx_size;
	uint8_t *spill;
	uint32_t spill_size;
	uint32_t hits; /* polls in a row that found a frame at once; counts as far as it matters */
	struct pv_pktq ready; /* datagrams of a frame that was taken apart */

	struct pv_pktq done; /* sent, or refused: to be reaped */
	uint32_t unkicked;
	bool offload, gone, gone_told;
	uint32_t events; /* times that event was called */
	uint64_t drops; /* of the kernel's count, what we told */
	int drops_fd, link_fd; /* to read it by, to ask for it by where that is -1 */
	uint32_t asked;
	uint32_t ifindex;
	char ifname[IFNAMSIZ];
	struct pv_tapdev_steer steer;
};

pv_inline struct tapdev *tapdev(const struct pv_ring *ring)
{
	return (struct tapdev *)(void *)ring;
}

/* tapdev_open.c */
void pv_tapdev_release(struct tapdev *t); /* everything but the packets */
/* Frames that the kernel dropped since somebody asked last because nobody took them. */
uint64_t pv_tapdev_drops(struct tapdev *t);
extern const struct pv_ring_ops pv_tapdev_ops;

/* tapdev_vnet.c: no state, any thread. */
/* What a header says of the checksum of the frame behind it: PV_PKT_L4_OK or 0. */
uint32_t pv_tapdev_rx_flags(const struct virtio_net_hdr *h);

/* A frame of several UDP datagrams of `gso` bytes, the last one perhaps shorter. */
struct tapdev_udp {
	uint32_t l3, headers, payload, gso, parts;
};

/* From the frame's beginning, at least TAPDEV_UDP_HEADERS bytes of it or all; `total` bytes are there. False: it is not what its header says. */
bool pv_tapdev_udp_parse(const uint8_t *data, uint32_t len, uint32_t total, const struct virtio_net_hdr *h, struct tapdev_udp *out);
/* Datagram `i` of the chain as a frame of its own into `out`, which has room for it; its length. */
uint32_t pv_tapdev_udp_part(const struct pv_pkt *p, const struct tapdev_udp *u, uint32_t i, uint8_t *out);

#endif
