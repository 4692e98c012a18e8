/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long TCP segments over veth, which passes a frame of any length on as it is: nobody has to cut it, and what a frame costs there (a
 * socket buffer, a turn of the softirq, a run of the program) is paid once for many segments. A descriptor of AF_XDP cannot say that a
 * frame may be cut, so these go by a packet socket on the same device, with the header of virtio that says so for whoever comes later: a
 * bridge to a real NIC, a peer of the kernel's. In copy mode both ways do the same work inside the call, and what was posted before has
 * left by then: frames stay in order.
 *
 * What a device does not take any more (its peer has got a program in native mode) is cut by the kernel.
 */
#include "base/ownfd.h"
#include "ring/xdp_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bytes.h"
#include "ring/frame.h"
#include "ring/own.h"
#include "ring/vnet.h"

#define PIECES 48u /* of the usual segments, what tso_max holds */
#define BYTES 65535u

void pv_xdp_whole_open(struct xdp_ring *r, const struct pv_xdp_cfg *cfg)
{
	int on = 1;

	r->whole_fd = -1;
	if (cfg->no_tso || !r->veth || r->native || r->jumbo || !r->sg || !pv_xdp_has_tso(cfg->ifname))
		return;
	/* Of no protocol: it receives nothing. Without CAP_NET_RAW (a loan) there is none. */
	r->whole_fd = pv_ownfd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
	if (r->whole_fd >= 0 && (setsockopt(r->whole_fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) ||
				 setsockopt(r->whole_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on))))
		pv_xdp_whole_close(r);
	if (r->whole_fd < 0)
		return;
	r->ring.caps.tso_max = BYTES;
	r->ring.caps.max_sge = PIECES;
}

void pv_xdp_whole_close(struct xdp_ring *r)
{
	if (r->whole_fd >= 0)
		close(r->whole_fd);
	r->whole_fd = -1;
}

/* 0: it may not go that way. */
static uint32_t sound_len(const struct xdp_ring *r, const struct pv_pkt *p)
{
	const struct pv_ring_caps *c = &r->ring.caps;

	if (r->whole_fd < 0)
		return 0;
	if (p->flags & PV_PKT_TX_TSO)
		return pv_frame_cuts(p, c->mtu, c->tso_max, c->max_sge) ? p->total : 0;
	return pv_frame_len(p, c->mtu, c->max_sge);
}

static int send_whole(struct xdp_ring *r, struct pv_pkt *p)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = r->ifindex };
	struct iovec iov[PIECES + 1];
	struct virtio_net_hdr h;
	struct msghdr msg = { .msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = iov, .msg_iovlen = 1 };
	int off = 0, on = 1, rc;

	if (!pv_vnet_tx_header(p, &h))
		return -EINVAL;
	to.sll_protocol = htons(pv_get16(p->data + 12));
	iov[0] = (struct iovec){ .iov_base = &h, .iov_len = sizeof(h) };
	for (const struct pv_pkt *f = p; f; f = f->frag)
		iov[msg.msg_iovlen++] = (struct iovec){ .iov_base = f->data, .iov_len = f->len };
	if (sendmsg(r->whole_fd, &msg, MSG_DONTWAIT) >= 0)
		return 0;
	if (errno != ENOBUFS)
		return -errno;
	/* By the queueing discipline, which cuts what the device does not take. This one alone: it may be that the other end had no room, and what
	 * the discipline keeps would be overtaken. */
	(void)setsockopt(r->whole_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &off, sizeof(off));
	rc = sendmsg(r->whole_fd, &msg, MSG_DONTWAIT) < 0 ? -errno : 0;
	(void)setsockopt(r->whole_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on));
	return rc;
}

bool pv_xdp_post_aside(struct xdp_ring *r, struct pv_pkt *p)
{
	struct pv_ring_counters *c = &r->ring.stat->c;
	uint32_t len = sound_len(r, p);
	int rc = -EINVAL;

	if (len) {
		__atomic_store_n(r->sock->tx.producer, r->sock->tx.next, __ATOMIC_RELEASE);
		if (r->sock->kick && pv_ring_tx_kick(&r->ring))
			return false;
		c->doorbells++;
		rc = send_whole(r, p);
	}
	if (rc == -ENXIO || rc == -ENODEV)
		pv_xdp_set_gone(r);
	/* Not taken: it waits with who posted it, or goes another way. */
	if (rc == -EAGAIN || rc == -ENETDOWN || r->gone)
		return false;
	c->tx_errors += rc != 0;
	c->tx_packets += !rc;
	c->tx_bytes += rc ? 0 : len;
	c->tso_packets += !rc && p->flags & PV_PKT_TX_TSO;
	pv_ring_take(p);
	pv_pktq_push(&r->done, p);
	return true;
}
