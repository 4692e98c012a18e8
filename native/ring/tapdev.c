/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP data path: one read a frame, one write a frame, since a TUN device has no calls for several.
 *
 * How long the next frame is nobody can ask. While frames are short each is read into one place that holds the longest, the spill, and
 * copied from there, which costs less than having the kernel look at a row of buffers. Once one did not fit into a buffer reads are
 * offered a row of them, with the spill behind for what they do not hold, until frames were short for a while.
 */
#include "ring/tapdev_priv.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "ring/frame.h"
#include "ring/own.h"
#include "ring/vnet.h"

#define ALONE 2u /* polls in a row that take one frame each */
#define FEW_READS 64u /* so many reads without a long frame, and the row is short again */
#define DROPS_READ 16u /* the kernel is asked for its counter at every so many looks for events */

/* ---- receive buffers --------------------------------------------------------------------------------------------------- */

static uint32_t waiting(const struct tapdev *t)
{
	return t->rx_head - t->rx_tail;
}

static struct pv_pkt *next_posted(struct tapdev *t)
{
	return waiting(t) ? t->posted[t->rx_tail++ & (t->rx_size - 1)] : NULL;
}

/* The spill follows the last slot. */
static void close_row(struct tapdev *t)
{
	t->iov[t->nslots] = (struct iovec){ .iov_base = t->spill, .iov_len = t->spill_size };
}

static void set_slot(struct tapdev *t, uint32_t i, struct pv_pkt *p)
{
	uint32_t front = i ? 0 : TAPDEV_VNET;

	t->slot[i] = p;
	t->iov[i] = (struct iovec){ .iov_base = p->data - front, .iov_len = front + pv_pkt_tailroom(p) };
}

/* As many slots as are wanted, or as there are buffers for. */
static void fill_row(struct tapdev *t)
{
	if (t->nslots >= t->slots_want || !waiting(t))
		return;
	while (t->nslots < t->slots_want && waiting(t))
		set_slot(t, t->nslots++, next_posted(t));
	close_row(t);
}

/* The first `n` slots were filled: others take their place. */
static void renew(struct tapdev *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p = next_posted(t);

		if (pv_unlikely(!p)) {
			uint32_t left = t->nslots - n;

			/* None is left to take it: those behind move up. */
			for (uint32_t k = 0; k < left; k++)
				set_slot(t, i + k, t->slot[n + k]);
			t->nslots = i + left;
			close_row(t);
			return;
		}
		set_slot(t, i, p);
	}
}

static uint32_t rx_post(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	struct tapdev *t = tapdev(ring);

	if (t->gone)
		return 0;
	n = PV_MIN(PV_MIN(n, PV_RING_BATCH_MAX), ring->caps.rx_depth - t->nslots - waiting(t));
	for (uint32_t i = 0; i < n; i++) {
		pv_ring_take(pkts[i]);
		t->posted[t->rx_head++ & (t->rx_size - 1)] = pkts[i];
	}
	return n;
}

/* ---- receiving --------------------------------------------------------------------------------------------------------- */

static void set_gone(struct tapdev *t)
{
	t->gone = true;
	t->ring.caps.link_up = false;
}

/* `p` has left the ring and reaches nobody, who would count it. */
static void drop_frame(struct tapdev *t, struct pv_pkt *p, uint64_t *counter)
{
	++*counter;
	t->ring.rx_more++;
	pv_pkt_put(p);
}

/* Back to reading by the spill, after a while of short frames. The row's buffers were taken from the queue: there is room for them in it. */
static void shorten(struct tapdev *t, uint32_t used)
{
	t->few = used > 1 ? 0 : t->few + 1;
	if (pv_likely(t->few < FEW_READS))
		return;
	t->slots_want = t->few = 0;
	while (t->nslots)
		t->posted[--t->rx_tail & (t->rx_size - 1)] = t->slot[--t->nslots];
}

/* `len` bytes of the spill behind a frame that began elsewhere. False: there are no buffers for them, the frame is dropped. */
static pv_noinline bool unspill(struct tapdev *t, struct pv_pkt *head, struct pv_pkt *tail, const uint8_t *from, uint32_t len)
{
	while (len) {
		struct pv_pkt *p = next_posted(t);
		uint32_t n;

		if (p) {
			pv_ring_give(p);
			t->ring.rx_more++;
		} else {
			p = pv_pkt_get(t->ring.pool);
		}
		if (!p) {
			drop_frame(t, head, &t->ring.stat->c.rx_no_buf);
			return false;
		}
		n = PV_MIN(len, pv_pkt_tailroom(p));
		memcpy(p->data, from, n);
		p->len = n;
		p->frag = NULL;
		tail->frag = p;
		tail = p;
		from += n;
		len -= n;
	}
	return true;
}

/* The frame of `len` bytes that a read left in the spill. NULL: it was dropped. */
static struct pv_pkt *take_copy(struct tapdev *t, uint32_t len)
{
	struct pv_pkt *head = next_posted(t);
	const uint8_t *from = t->spill + TAPDEV_VNET;
	uint32_t n = PV_MIN(len, pv_pkt_tailroom(head));

	memcpy(&t->hdr, t->spill, TAPDEV_VNET);
	pv_ring_give(head);
	memcpy(head->data, from, n);
	head->len = n;
	head->frag = NULL;
	if (pv_likely(n == len))
		return head;
	t->slots_want = TAPDEV_SLOTS_MAX;
	return unspill(t, head, head, from + n, len - n) ? head : NULL;
}

/* In the row, and perhaps in the spill behind it. */
static struct pv_pkt *take_row(struct tapdev *t, uint32_t len)
{
	struct pv_pkt *head = t->slot[0], *tail = head;
	uint32_t used = 0, left = len;

	memcpy(&t->hdr, head->data - TAPDEV_VNET, TAPDEV_VNET);
	while (left && used < t->nslots) {
		struct pv_pkt *p = t->slot[used];
		uint32_t n = PV_MIN(left, pv_pkt_tailroom(p));

		pv_ring_give(p);
		p->len = n;
		p->frag = NULL;
		if (used++) {
			tail->frag = p;
			tail = p;
			t->ring.rx_more++;
		}
		left -= n;
	}
	if (pv_unlikely(left) && !unspill(t, head, tail, t->spill, left))
		head = NULL;
	renew(t, used);
	shorten(t, used);
	return head;
}

/* Several datagrams as one: each becomes a frame of its own, in posted buffers. */
static pv_noinline void take_apart(struct tapdev *t, struct pv_pkt *p)
{
	struct pv_ring_counters *c = &t->ring.stat->c;
	struct tapdev_udp u;

	if (!pv_tapdev_udp_parse(p->data, p->len, p->total, &t->hdr, &u) ||
	    u.headers + PV_MIN(u.gso, u.payload) >
		pv_pool_config(t->ring.pool)->buf_size - pv_pool_config(t->ring.pool)->headroom) {
		drop_frame(t, p, &c->rx_errors);
		return;
	}
	if (waiting(t) < u.parts) {
		drop_frame(t, p, &c->rx_no_buf);
		return;
	}
	for (uint32_t i = 0; i < u.parts; i++) {
		struct pv_pkt *part = next_posted(t);

		part->len = part->total = pv_tapdev_udp_part(p, &u, i, part->data);
		part->flags = p->flags;
		part->txq = p->txq;
		part->frag = NULL;
		pv_pktq_push(&t->ready, part);
	}
	t->ring.rx_more++;
	pv_pkt_put(p);
}

static bool device_lost(int error)
{
	return error == EBADFD || error == ENODEV || error == EBADF;
}

/* 1: the next frame may come all the same. */
static int read_failed(struct tapdev *t, int error)
{
	if (pv_likely(error == EAGAIN))
		return 0;
	if (device_lost(error)) {
		set_gone(t);
		return 0;
	}
	if (error == EINTR)
		return 1;
	/* EFAULT: a frame that was longer than all that was offered; the kernel has let go of it. */
	t->ring.stat->c.rx_errors++;
	return error == EFAULT;
}

/* One read. 1: there may be more; 0: there is none, or no buffer for it. `out` stays NULL where the frame is none, or waits in `ready`. */
static int read_frame(struct tapdev *t, uint32_t queue, struct pv_pkt **out)
{
	struct pv_pkt *p;
	ssize_t n;

	if (pv_unlikely(t->slots_want))
		fill_row(t);
	if (pv_unlikely(t->nslots))
		n = readv(t->fd[queue], t->iov, (int)t->nslots + 1);
	else if (pv_likely(waiting(t)))
		n = read(t->fd[queue], t->spill, t->spill_size);
	else
		return 0;
	if (n < 0)
		return read_failed(t, errno);
	if (pv_unlikely(n < (ssize_t)TAPDEV_VNET + 14)) {
		t->ring.stat->c.rx_errors++;
		return 1;
	}
	n -= (ssize_t)TAPDEV_VNET;
	p = t->nslots ? take_row(t, (uint32_t)n) : take_copy(t, (uint32_t)n);
	if (pv_unlikely(!p))
		return 1;
	p->total = (uint32_t)n;
	p->flags = pv_tapdev_rx_flags(&t->hdr);
	if (t->nqueues > 1) {
		p->flags |= PV_PKT_QUEUE;
		p->txq = (uint8_t)queue;
	}
	if (pv_unlikely((t->hdr.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_UDP_L4))
		take_apart(t, p);
	else
		*out = p;
	return 1;
}

static void count(struct tapdev *t, const struct pv_pkt *p)
{
	t->ring.stat->c.rx_packets++;
	t->ring.stat->c.rx_bytes += p->total;
}

static void next_queue(struct tapdev *t)
{
	t->turn = t->turn + 1 == t->nqueues ? 0 : t->turn + 1;
}

/* A frame that comes alone is given at once: who answers it is not kept waiting by a read that finds nothing. Where polls find one after
 * another, each takes what there is. Of several queues each is read in turn, so that none waits for another to run dry. */
static uint32_t rx_poll(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	struct tapdev *t = tapdev(ring);
	uint32_t got = 0, idle = 0;

	n = PV_MIN(n, PV_RING_BATCH_MAX);
	for (;;) {
		struct pv_pkt *p = NULL;

		if (pv_unlikely(t->ready.count)) {
			uint32_t k = pv_ring_give_first(&t->ready, pkts + got, n - got);

			for (uint32_t i = 0; i < k; i++)
				count(t, pkts[got + i]);
			got += k;
		}
		if (got >= n || pv_unlikely(t->gone))
			return got;
		if (!read_frame(t, t->turn, &p)) {
			next_queue(t);
			if (++idle < t->nqueues)
				continue;
			t->hits = got ? t->hits : 0;
			return got;
		}
		next_queue(t);
		idle = 0;
		if (pv_unlikely(!p))
			continue;
		count(t, p);
		pkts[got++] = p;
		if (t->hits < ALONE) {
			t->hits++;
			return got;
		}
	}
}

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

/* 0, -EAGAIN (the device takes none just now), or an error that the frame met. */
static int write_frame(struct tapdev *t, struct pv_pkt *p)
{
	struct iovec iov[TAPDEV_PIECES_MAX + 1];
	struct virtio_net_hdr h;
	ssize_t done;
	int n = 0;

	if (!pv_vnet_tx_header(p, &h))
		return -EINVAL;
	/* What is in front of a frame is nobody's. */
	if (pv_likely(pv_pkt_headroom(p) >= TAPDEV_VNET)) {
		memcpy(p->data - TAPDEV_VNET, &h, TAPDEV_VNET);
		iov[n++] = (struct iovec){ .iov_base = p->data - TAPDEV_VNET, .iov_len = TAPDEV_VNET + p->len };
	} else {
		iov[n++] = (struct iovec){ .iov_base = &h, .iov_len = sizeof(h) };
		iov[n++] = (struct iovec){ .iov_base = p->data, .iov_len = p->len };
	}
	for (const struct pv_pkt *f = p->frag; pv_unlikely(f != NULL); f = f->frag)
		iov[n++] = (struct iovec){ .iov_base = f->data, .iov_len = f->len };
	do {
		done = n == 1 ? write(t->send_fd, iov[0].iov_base, iov[0].iov_len) : writev(t->send_fd, iov, n);
	} while (done < 0 && errno == EINTR);
	return done < 0 ? -errno : 0;
}

/* Bytes of the frame, 0 when it cannot be carried. */
static uint32_t sound_len(const struct tapdev *t, const struct pv_pkt *p)
{
	const struct pv_ring_caps *c = &t->ring.caps;

	if (pv_unlikely(p->flags & PV_PKT_TX_TSO))
		return c->tso_max && pv_frame_cuts(p, c->mtu, c->tso_max, c->max_sge) ? p->total : 0;
	return pv_frame_len(p, c->mtu, c->max_sge);
}

static uint32_t tx_post(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	struct tapdev *t = tapdev(ring);
	struct pv_ring_counters *c = &ring->stat->c;
	uint32_t i;

	for (i = 0; i < n && !pv_unlikely(t->gone); i++) {
		struct pv_pkt *p = pkts[i];
		uint32_t len;
		int rc;

		if (t->done.count >= ring->caps.tx_depth) {
			c->tx_full++;
			break;
		}
		len = sound_len(t, p);
		rc = len ? write_frame(t, p) : -EINVAL;
		if (pv_unlikely(rc == -EAGAIN)) {
			c->tx_full++;
			break;
		}
		if (pv_unlikely(device_lost(-rc))) {
			set_gone(t);
			break;
		}
		pv_ring_take(p);
		pv_pktq_push(&t->done, p);
		if (pv_unlikely(rc)) {
			/* Down (EIO), no memory, or nothing that a TAP carries. */
			c->tx_errors++;
			continue;
		}
		c->tx_packets++;
		c->tx_bytes += len;
		c->tso_packets += p->flags & PV_PKT_TX_TSO ? 1 : 0;
		t->unkicked++;
	}
	return i;
}

/* What was posted has left already; a doorbell is counted all the same where another ring would have rung one. */
static int tx_kick(struct pv_ring *ring)
{
	struct tapdev *t = tapdev(ring);

	if (pv_unlikely(t->gone))
		return -ENODEV;
	if (t->unkicked) {
		t->unkicked = 0;
		ring->stat->c.doorbells++;
	}
	return 0;
}

static uint32_t tx_reap(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	return pv_ring_give_first(&tapdev(ring)->done, pkts, n);
}

/* ---- sleeping, events, end --------------------------------------------------------------------------------------------- */

static int arm(struct pv_ring *ring)
{
	struct tapdev *t = tapdev(ring);

	if (t->gone)
		return t->gone_told ? -ENODEV : 1;
	return t->ready.count != 0;
}

static int notify_fd(struct pv_ring *ring)
{
	struct tapdev *t = tapdev(ring);

	return t->nqueues > 1 ? t->epoll_fd : t->fd[0];
}

static void read_drops(struct tapdev *t)
{
	t->ring.stat->c.rx_no_buf += pv_tapdev_drops(t);
}

static void counters(struct pv_ring *ring, struct pv_ring_counters *out)
{
	read_drops(tapdev(ring));
	*out = ring->stat->c;
}

/* A device that is down takes no frames, one that is gone has an error for whoever asks. */
static enum pv_ring_event event(struct pv_ring *ring)
{
	struct tapdev *t = tapdev(ring);
	struct pollfd pfd = { .fd = t->send_fd, .events = POLLOUT };
	bool up;

	if (!t->gone && poll(&pfd, 1, 0) >= 0) {
		if (pfd.revents & (POLLERR | POLLNVAL))
			set_gone(t);
		else if (++t->events % DROPS_READ == 0)
			read_drops(t);
		up = pfd.revents & POLLOUT;
		if (!t->gone && up != ring->caps.link_up) {
			ring->caps.link_up = up;
			return up ? PV_RING_EV_LINK_UP : PV_RING_EV_LINK_DOWN;
		}
	}
	if (!t->gone || t->gone_told)
		return PV_RING_EV_NONE;
	t->gone_told = true;
	return PV_RING_EV_GONE;
}

static int flow_add(struct pv_ring *ring, const struct pv_flow *flow, uint64_t *handle)
{
	struct tapdev *t = tapdev(ring);

	if (t->gone)
		return -ENODEV;
	if (t->steer.add)
		return t->steer.add(t->steer.ctx, flow, handle);
	*handle = 0;
	return 0;
}

static int flow_del(struct pv_ring *ring, uint64_t handle)
{
	struct tapdev *t = tapdev(ring);

	if (t->steer.del)
		return t->steer.del(t->steer.ctx, handle);
	return handle ? -ENOENT : 0;
}

static void tapdev_close(struct pv_ring *ring)
{
	struct tapdev *t = tapdev(ring);
	struct pv_pkt *p;

	while (t->nslots)
		pv_ring_drop(t->slot[--t->nslots]);
	while ((p = next_posted(t)) != NULL)
		pv_ring_drop(p);
	while ((p = pv_pktq_pop(&t->ready)) != NULL)
		pv_ring_drop(p);
	while ((p = pv_pktq_pop(&t->done)) != NULL)
		pv_ring_drop(p);
	pv_tapdev_release(t);
}

const struct pv_ring_ops pv_tapdev_ops = {
	.kind = "tap",
	.close = tapdev_close,
	.rx_post = rx_post,
	.rx_poll = rx_poll,
	.tx_post = tx_post,
	.tx_kick = tx_kick,
	.tx_reap = tx_reap,
	.arm = arm,
	.notify_fd = notify_fd,
	.flow_add = flow_add,
	.flow_del = flow_del,
	.counters = counters,
	.event = event,
	/* The device is there as long as anybody has it open: the child's copies end nothing. */
	.forget = tapdev_close,
};
