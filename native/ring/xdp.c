/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The AF_XDP data path. The pool's memory is the UMEM, so a descriptor's address names the packet: address / buffer size is its index.
 * A frame is received where the kernel put it and sent from where the stack built it.
 */
#include "ring/xdp_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "ring/frame.h"
#include "ring/own.h"
#include "ring/sys.h"

#define DROPS_READ 16u /* the kernel is asked for its counters at every so many looks for events */
/* In copy mode the kernel sends at most 32 frames a call. */
#define KICK_FRAMES 32u

static struct xdp_ring *self(struct pv_ring *ring)
{
	return (struct xdp_ring *)(void *)ring;
}

static uint32_t load_acquire(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store_release(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Entries of a queue that the kernel fills, at most `most`. */
static uint32_t avail(struct xdp_queue *q, uint32_t most)
{
	uint32_t n = q->seen - q->next;

	if (!n) {
		q->seen = load_acquire(q->producer);
		n = q->seen - q->next;
	}
	return PV_MIN(n, most);
}

static struct pv_pkt *pkt_at(struct xdp_ring *r, uint64_t addr, uint8_t held)
{
	uint64_t index = addr >> r->buf_shift;

	if (pv_unlikely(index >= r->held_size || r->held[index] != held))
		return NULL;
	r->held[index] = XDP_HELD_NO;
	return pv_pool_pkt(r->ring.pool, (uint32_t)index);
}

static struct xdp_sock *hungriest(struct xdp_ring *r)
{
	struct xdp_sock *best = &r->sock[0];

	for (uint32_t i = 1; i < r->nsocks; i++) {
		if (r->sock[i].inside < best->inside)
			best = &r->sock[i];
	}
	return best;
}

static uint32_t fill_sock(struct xdp_ring *r, struct xdp_sock *s, struct pv_pkt **pkts, uint32_t n)
{
	struct xdp_queue *q = &s->fill;
	uint64_t *desc = q->desc;

	/* What the kernel has not taken of it is among those inside: there is room without a look at the kernel's side. */
	n = PV_MIN(n, q->size - s->inside);
	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p = pkts[i];

		pv_ring_take(p);
		r->held[p->index] = XDP_HELD_RX;
		desc[q->next++ & q->mask] = (uint64_t)p->index << r->buf_shift;
	}
	s->inside += n;
	store_release(q->producer, q->next);
	return n;
}

static uint32_t rx_post(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	struct xdp_ring *r = self(ring);
	uint32_t done = 0, share = PV_MAX(1u, n / r->nsocks);

	if (r->gone)
		return 0;
	while (done < n) {
		uint32_t k = fill_sock(r, hungriest(r), pkts + done, PV_MIN(share, n - done));

		if (!k)
			break;
		done += k;
	}
	return done;
}

/* What the kernel's offloads merge is taken in apart only with TCP, where nobody counts segments. */
static bool may_be_merged(const struct pv_pkt *p)
{
	const uint8_t *at = p->data + 12;

	if (p->len < 64)
		return false;
	if (pv_get16(at) == 0x8100)
		at += 4;
	return pv_get16(at) == 0x0800 ? at[11] == 6 : pv_get16(at) == 0x86dd && at[8] == 6;
}

/* One more buffer of a frame; the whole when it was the last. */
static pv_noinline struct pv_pkt *chain(struct xdp_ring *r, struct xdp_sock *s, struct pv_pkt *p, bool more)
{
	struct pv_pkt *head = s->head;

	if (head) {
		s->tail->frag = p;
		head->total += p->len;
		r->ring.rx_more++;
	} else {
		head = p;
	}
	s->head = more ? head : NULL;
	s->tail = p;
	if (more || head->total <= r->ring.caps.mtu + XDP_FRAME_EXTRA || may_be_merged(head))
		return more ? NULL : head;
	r->ring.stat->c.rx_errors++;
	r->ring.rx_more++;
	pv_pkt_put(head);
	return NULL;
}

/*
 * Before a look at an empty queue: what there is of the next frame, in the buffer that the kernel has had longest. In copy mode another processor
 * writes the frame, its descriptor and the producer index one after the other; asked for one after the other, each is a cache line's way
 * from there to here.
 */
static void expect(const struct xdp_ring *r, const struct xdp_sock *s)
{
	const struct xdp_queue *fill = &s->fill;
	const struct xdp_desc *desc = s->rx.desc;
	const uint64_t *addr = fill->desc;
	uint64_t next = addr[(fill->next - s->inside) & fill->mask];

	pv_prefetch(&desc[s->rx.next & s->rx.mask]);
	pv_prefetch(r->umem + next + XDP_RX_HEADROOM);
	pv_prefetch(r->umem + next + XDP_RX_HEADROOM + PV_CACHELINE);
	pv_prefetch(&r->held[next >> r->buf_shift]);
	pv_prefetch(pv_pool_pkt(r->ring.pool, (uint32_t)(next >> r->buf_shift)));
}

static uint32_t receive(struct xdp_ring *r, struct xdp_sock *s, struct pv_pkt **pkts, uint32_t n)
{
	struct xdp_queue *q = &s->rx;
	const struct xdp_desc *desc = q->desc;
	uint32_t out = 0;

	if (q->seen == q->next)
		expect(r, s);
	n = avail(q, n);
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *d = &desc[q->next++ & q->mask];
		struct pv_pkt *p = pkt_at(r, d->addr, XDP_HELD_RX);

		if (pv_unlikely(!p)) {
			r->ring.stat->c.rx_errors++;
			continue;
		}
		pv_ring_give(p);
		p->data = r->umem + d->addr;
		p->len = p->total = d->len;
		p->frag = NULL;
		p->flags = r->csum_partial ? PV_PKT_L4_PARTIAL : 0;
		if (pv_unlikely(r->metadata) && !s->head)
			pv_xdp_meta_take(r, p);
		r->ring.stat->c.rx_bytes += d->len;
		if (pv_unlikely(s->head || (d->options & XDP_PKT_CONTD)) && !(p = chain(r, s, p, d->options & XDP_PKT_CONTD)))
			continue;
		pkts[out++] = p;
	}
	if (n) {
		s->inside -= n;
		store_release(q->consumer, q->next);
		r->ring.stat->c.rx_packets += out;
	}
	return out;
}

static uint32_t rx_poll(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	struct xdp_ring *r = self(ring);
	uint32_t got;

	if (pv_likely(r->nsocks == 1))
		return receive(r, r->sock, pkts, n);
	got = 0;
	for (uint32_t i = 0; i < r->nsocks && got < n; i++) {
		got += receive(r, &r->sock[r->turn], pkts + got, n - got);
		r->turn = r->turn + 1 == r->nsocks ? 0 : r->turn + 1;
	}
	return got;
}

void pv_xdp_set_gone(struct xdp_ring *r)
{
	r->gone = true;
	r->ring.caps.link_up = false;
}

/* A frame in pieces: as many descriptors, each but the last saying that more follow. How many; 0: that is more than there are. */
static pv_noinline uint32_t put_pieces(struct xdp_ring *r, struct xdp_sock *s, struct pv_pkt *head, uint32_t space)
{
	struct xdp_queue *q = &s->tx;
	struct xdp_desc *desc = q->desc;
	uint32_t n = 0;

	for (const struct pv_pkt *p = head; p; p = p->frag)
		n++;
	if (n > space)
		return 0;
	pv_ring_take(head);
	for (struct pv_pkt *p = head; p; p = p->frag) {
		p->priv[0] = (uint64_t)(uintptr_t)head;
		r->held[p->index] = XDP_HELD_PART;
		desc[q->next++ & q->mask] = (struct xdp_desc){ .addr = (uint64_t)(p->data - r->umem),
							       .len = p->len,
							       .options = p->frag ? XDP_PKT_CONTD : 0 };
		r->ring.stat->c.tx_bytes += p->len;
	}
	head->priv[1] = n;
	s->posted += n;
	r->ring.stat->c.tx_packets++;
	s->kick = true;
	return n;
}

/* The whole frame once all of its pieces are back, and NULL before. */
static pv_noinline struct pv_pkt *piece_back(struct xdp_ring *r, uint32_t index)
{
	struct pv_pkt *p = pv_pool_pkt(r->ring.pool, index), *head = (struct pv_pkt *)(uintptr_t)p->priv[0];

	r->held[index] = XDP_HELD_NO;
	return --head->priv[1] ? NULL : head;
}

pv_inline bool is_plain(const struct xdp_ring *r, const struct pv_pkt *p)
{
	return pv_likely(!p->frag) && pv_likely(!(p->flags & (PV_PKT_TX_TSO | PV_PKT_TX_L4_CSUM))) &&
	       pv_likely(p->len - 14 <= r->ring.caps.mtu) && pv_likely(pv_pkt_headroom(p) >= r->tx_front);
}

/* One frame in one buffer; there is room. */
pv_inline void put(struct xdp_ring *r, struct xdp_sock *s, struct pv_pkt *p, uint32_t options)
{
	struct pv_ring_counters *c = &r->ring.stat->c;
	struct xdp_queue *q = &s->tx;
	struct xdp_desc *desc = q->desc;

	pv_ring_take(p);
	r->held[p->index] = XDP_HELD_TX;
	desc[q->next++ & q->mask] = (struct xdp_desc){ .addr = (uint64_t)(p->data - r->umem), .len = p->len, .options = options };
	c->tx_packets++;
	c->tx_bytes += p->len;
	s->posted++;
	s->kick = true;
}

/* What the queue does not take, or not now, ends it. */
static pv_noinline uint32_t tx_post_any(struct xdp_ring *r, struct xdp_sock *s, struct pv_pkt **pkts, uint32_t n)
{
	struct pv_ring_counters *c = &r->ring.stat->c;
	struct xdp_queue *q = &s->tx;
	uint32_t i;

	if (pv_unlikely(r->gone))
		return 0;
	for (i = 0; i < n; i++) {
		struct pv_pkt *p = pkts[i];
		uint32_t space = q->size - s->posted;

		if (pv_unlikely(p->flags & PV_PKT_TX_TSO || !pv_frame_len(p, r->ring.caps.mtu, r->pieces) ||
				pv_pkt_headroom(p) < r->tx_front)) {
			if (pv_xdp_post_aside(r, p))
				continue;
			c->tx_full++;
			break;
		}
		if (pv_unlikely(p->frag != NULL) && put_pieces(r, s, p, space))
			continue;
		if (!space || p->frag) {
			c->tx_full++;
			break;
		}
		put(r, s, p, p->flags & PV_PKT_TX_L4_CSUM ? pv_xdp_csum_ask(p) : 0);
	}
	store_release(q->producer, q->next);
	return i;
}

/* What the kernel has not taken of the queue is among what was posted and did not come back: there is room without a look at its side. */
static uint32_t tx_post(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	struct xdp_ring *r = self(ring);
	struct xdp_sock *s = r->sock;

	if (pv_unlikely(n != 1 || r->gone || s->posted >= s->tx.size || !is_plain(r, *pkts)))
		return tx_post_any(r, s, pkts, n);
	put(r, s, *pkts, 0);
	store_release(s->tx.producer, s->tx.next);
	return 1;
}

/* Where nobody follows the kernel's links a kick finds out: an interface that is down takes nothing. */
static void link_is(struct xdp_ring *r, bool up)
{
	r->ring.caps.link_up = up;
	r->link_told = false;
}

static int kick_once(struct xdp_ring *r, struct xdp_sock *s)
{
	int rc;

	r->ring.stat->c.doorbells++;
	rc = pv_sys_kick(s->fd);
	if (pv_likely(rc >= 0)) {
		if (pv_unlikely(r->own_link && !r->ring.caps.link_up))
			link_is(r, true);
		return 0;
	}
	if (rc == -ENXIO || rc == -ENODEV || rc == -EBADF) {
		pv_xdp_set_gone(r);
		return -ENODEV;
	}
	/* EAGAIN, EBUSY, ENOBUFS: the driver is full. ENETDOWN: the interface is down, the frames wait in the queue. */
	if (rc != -ENETDOWN)
		return -EAGAIN;
	if (r->own_link && r->ring.caps.link_up)
		link_is(r, false);
	return -ENETDOWN;
}

static int tx_kick(struct pv_ring *ring)
{
	struct xdp_ring *r = self(ring);
	struct xdp_sock *s = r->sock;
	struct xdp_queue *q = &s->tx;

	if (pv_unlikely(r->gone))
		return -ENODEV;
	if (!s->kick)
		return 0;
	for (uint32_t i = 0; i <= q->size / KICK_FRAMES; i++) {
		int rc;

		if (load_acquire(q->consumer) == q->next || !(__atomic_load_n(q->flags, __ATOMIC_SEQ_CST) & XDP_RING_NEED_WAKEUP)) {
			s->kick = false;
			/* They may have left while somebody slept: with zero copy polling a socket sends, too. */
			if (pv_unlikely(r->own_link && !r->ring.caps.link_up))
				link_is(r, true);
			return 0;
		}
		rc = kick_once(r, s);
		if (rc)
			return rc == -ENETDOWN ? -EAGAIN : rc;
	}
	return -EAGAIN;
}

/* The interface is gone and the kernel will complete nothing more: what it had did not leave. */
static uint32_t reap_lost(struct xdp_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < r->held_size && out < n; i++) {
		struct pv_pkt *p = NULL;

		if (r->held[i] == XDP_HELD_TX) {
			r->held[i] = XDP_HELD_NO;
			p = pv_pool_pkt(r->ring.pool, i);
		} else if (r->held[i] == XDP_HELD_PART) {
			p = piece_back(r, i);
		}
		if (!p)
			continue;
		r->ring.stat->c.tx_errors++;
		p->flags |= PV_PKT_TX_FLUSHED;
		pv_ring_give(p);
		pkts[out++] = p;
	}
	return out;
}

static uint32_t tx_reap(struct pv_ring *ring, struct pv_pkt **pkts, uint32_t n)
{
	struct xdp_ring *r = self(ring);
	struct xdp_sock *s = r->sock;
	struct xdp_queue *q = &s->comp;
	const uint64_t *desc = q->desc;
	uint32_t out = 0, have;

	while (out < n && r->done.head) {
		pkts[out] = pv_pktq_pop(&r->done);
		pv_ring_give(pkts[out++]);
	}
	have = avail(q, n - out);
	for (uint32_t i = 0; i < have; i++) {
		uint64_t addr = desc[q->next++ & q->mask];
		struct pv_pkt *p = pkt_at(r, addr, XDP_HELD_TX);

		if (pv_unlikely(!p) && addr >> r->buf_shift < r->held_size && r->held[addr >> r->buf_shift] == XDP_HELD_PART)
			p = piece_back(r, (uint32_t)(addr >> r->buf_shift));
		if (pv_likely(p != NULL)) {
			pv_ring_give(p);
			pkts[out++] = p;
		}
	}
	if (have) {
		s->posted -= have;
		store_release(q->consumer, q->next);
	}
	return pv_unlikely(r->gone) ? out + reap_lost(r, pkts + out, n - out) : out;
}

static bool frames_wait(struct xdp_ring *r)
{
	for (uint32_t i = 0; i < r->nsocks; i++) {
		if (avail(&r->sock[i].rx, 1))
			return true;
	}
	return false;
}

static int arm(struct pv_ring *ring)
{
	struct xdp_ring *r = self(ring);

	if (r->gone)
		return r->gone_told ? -ENODEV : 1;
	if (r->sock->kick && ring->caps.link_up)
		return -EAGAIN; /* frames that have not left: nothing would wake us to send them */
	return frames_wait(r);
}

static int notify_fd(struct pv_ring *ring)
{
	struct xdp_ring *r = self(ring);

	return r->nsocks > 1 ? r->epoll_fd : r->sock->fd;
}

/* What the kernel counts of our sockets joins what we do. A frame that was to be copied and found the fill queue empty is in two of its
 * numbers; a driver that copies nothing counts there how often it asked in vain. */
static void read_drops(struct xdp_ring *r)
{
	struct pv_ring_counters *c = &r->ring.stat->c;
	uint64_t now[3] = { 0 };

	for (uint32_t i = 0; i < r->nsocks; i++) {
		struct xdp_statistics st;
		socklen_t len = sizeof(st);

		if (getsockopt(r->sock[i].fd, SOL_XDP, XDP_STATISTICS, &st, &len))
			return;
		now[0] += st.rx_fill_ring_empty_descs + st.rx_ring_full;
		now[1] += st.rx_dropped - PV_MIN(st.rx_dropped, st.rx_fill_ring_empty_descs) + st.rx_invalid_descs;
		now[2] += st.tx_invalid_descs;
	}
	now[1] = PV_MAX(now[1], r->drops[1]);
	c->rx_no_buf += now[0] - r->drops[0];
	c->rx_errors += now[1] - r->drops[1];
	c->tx_errors += now[2] - r->drops[2];
	memcpy(r->drops, now, sizeof(now));
}

static void counters(struct pv_ring *ring, struct pv_ring_counters *out)
{
	read_drops(self(ring));
	*out = ring->stat->c;
}

static enum pv_ring_event event(struct pv_ring *ring)
{
	struct xdp_ring *r = self(ring);
	int problem = 0;
	socklen_t len = sizeof(problem);

	/* The kernel leaves an error on the socket when the interface goes down or away; only one that cannot send any more is gone. Not
	 * asked for by who wakes up for a frame: that one first. */
	if (!r->gone && !frames_wait(r) && !getsockopt(r->sock->fd, SOL_SOCKET, SO_ERROR, &problem, &len) && problem &&
	    sendto(r->sock->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && (errno == ENXIO || errno == ENODEV))
		pv_xdp_set_gone(r);
	if (++r->events % DROPS_READ == 0)
		read_drops(r);
	if (r->gone && !r->gone_told) {
		r->gone_told = true;
		return PV_RING_EV_GONE;
	}
	if (r->link_told)
		return PV_RING_EV_NONE;
	r->link_told = true;
	return ring->caps.link_up ? PV_RING_EV_LINK_UP : PV_RING_EV_LINK_DOWN;
}

/* The kernel waits for whoever may still look at a socket: for up to tens of milliseconds. */
static void shut(struct pv_ring *ring)
{
	struct xdp_ring *r = self(ring);

	r->gone = r->gone_told = true;
	pv_xdp_socks_close(r);
	if (r->link_fd >= 0)
		close(r->link_fd);
	r->link_fd = -1;
}

static void xdp_close(struct pv_ring *ring)
{
	struct xdp_ring *r = self(ring);
	struct pv_pkt *p;

	/* Closed sockets no longer touch the UMEM: only then are the packets anybody else's. */
	pv_xdp_socks_close(r);
	for (uint32_t i = 0; i < r->nsocks; i++)
		if (r->sock[i].head)
			pv_pkt_put(r->sock[i].head);
	while ((p = pv_pktq_pop(&r->done)) != NULL)
		pv_ring_drop(p);
	for (uint32_t i = 0; i < r->held_size; i++) {
		p = r->held[i] == XDP_HELD_NO ? NULL : r->held[i] == XDP_HELD_PART ? piece_back(r, i) : pv_pool_pkt(ring->pool, i);
		if (p)
			pv_ring_drop(p);
	}
	pv_pool_unbind(ring->pool, ring->binder);
	pv_xdp_release(r);
}

const struct pv_ring_ops pv_xdp_ops = {
	.kind = "xdp",
	.close = xdp_close,
	.shut = shut,
	.rx_post = rx_post,
	.rx_poll = rx_poll,
	.tx_post = tx_post,
	.tx_kick = tx_kick,
	.tx_reap = tx_reap,
	.arm = arm,
	.notify_fd = notify_fd,
	.flow_add = pv_xdp_flow_add,
	.flow_del = pv_xdp_flow_del,
	.flow_gate = pv_xdp_flow_gate,
	.gate = pv_xdp_gate,
	.set_stamps = pv_xdp_set_stamps,
	.counters = counters,
	.event = event,
	/* Closing the child's copies of the fds ends nothing of the parent's: link, program and sockets live until the last copy goes. */
	.forget = xdp_close,
};
