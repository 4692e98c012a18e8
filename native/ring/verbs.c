/* SPDX-License-Identifier: BSD-3-Clause */
/* What the extended and the legacy data path do the same way: see verbs_priv.h for how packets are kept. */
#include <errno.h>

#include "ring/frame.h"
#include "ring/verbs_priv.h"

/* The device took `took` of `n`; the others are the caller's as before. */
static pv_noinline uint32_t rx_refused(struct verbs_ring *v, struct pv_pkt **pkts, uint32_t n, uint32_t took, int rc)
{
	for (uint32_t i = took; i < n; i++) {
		verbs_held_clear(v, pkts[i]->index);
		pv_ring_give(pkts[i]);
	}
	if (rc == ENODEV || rc == EIO)
		pv_verbs_set_gone(v);
	return took;
}

/* Into the queue pair's own queue, or into `wq`; there is room for `n`. */
pv_inline uint32_t rx_post_by(struct verbs_ring *v, struct ibv_wq *wq, struct pv_pkt **pkts, uint32_t n)
{
	struct ibv_recv_wr *bad = NULL, *last;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p = pkts[i];

		v->recv_wr[i].wr_id = (uint64_t)(uintptr_t)p;
		v->recv_sge[i].addr = (uint64_t)(uintptr_t)p->data;
		v->recv_sge[i].length = p->size - pv_pkt_headroom(p);
		v->recv_sge[i].lkey = p->key;
		pv_ring_take(p);
		verbs_held_set(v, p->index);
	}
	last = &v->recv_wr[n - 1];
	last->next = NULL;
	rc = wq ? wq->post_recv(wq, v->recv_wr, &bad) : v->post_recv(v->qp, v->recv_wr, &bad);
	last->next = last + 1; /* the last of all has a neighbour too, which is never posted */
	if (pv_unlikely(rc))
		n = rx_refused(v, pkts, n, bad ? (uint32_t)(bad - v->recv_wr) : 0, rc);
	v->rx_outstanding += n;
	return n;
}

uint32_t pv_verbs_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t room = r->caps.rx_depth - v->rx_outstanding;

	n = PV_MIN(PV_MIN(n, r->caps.batch), room);
	return pv_unlikely(!n || v->gone) ? 0 : rx_post_by(v, NULL, pkts, n);
}

uint32_t pv_verbs_rx_post_by(struct verbs_ring *v, struct ibv_wq *wq, struct pv_pkt **pkts, uint32_t n)
{
	return rx_post_by(v, wq, pkts, n);
}

/* The buffer goes back to the pool, and the owner, who posts one for each that it gets, is told of one more. Not when the queue gives back all
 * that it has: it would do so again. */
void pv_verbs_rx_failed(struct verbs_ring *v, struct pv_pkt *p, int status)
{
	if (status != IBV_WC_WR_FLUSH_ERR) {
		v->ring.stat->c.rx_errors++;
		v->ring.rx_more++;
	}
	if (v->rxqs)
		pv_verbs_rxq_lost(v, p, status != IBV_WC_WR_FLUSH_ERR);
	else if (v->rss)
		v->rss->q[p->txq].out--;
	pv_pkt_put(p);
}

void pv_verbs_tx_failed(struct verbs_ring *v, struct pv_pkt *p)
{
	v->ring.stat->c.tx_errors++;
	pv_pktq_push(&v->done, p);
}

/* Retires all WRs before number `upto`; the last of them ended with `status`. */
void pv_verbs_retire(struct verbs_ring *v, struct verbs_txq *q, uint64_t upto, int status)
{
	uint32_t to = (uint32_t)upto;

	if (pv_unlikely(to - q->sq_head > q->sq_tail - q->sq_head))
		return; /* a number that is not out there: a broken provider */
	if (pv_unlikely(status != IBV_WC_SUCCESS)) {
		v->ring.stat->c.tx_errors++;
		if (status != IBV_WC_WR_FLUSH_ERR)
			v->events |= 1u << PV_RING_EV_ERROR;
	}
	if (!q->held) {
		q->sq_head = to;
		return;
	}
	for (; q->sq_head != to; q->sq_head++) {
		struct pv_pkt **slot = &q->slot[q->sq_head & q->sq_mask];

		if (*slot) {
			if (pv_unlikely(status != IBV_WC_SUCCESS))
				(*slot)->flags |= PV_PKT_TX_FLUSHED;
			pv_pktq_push(&v->done, *slot);
			*slot = NULL;
			q->held--;
		}
	}
}

/* The device refused the WRs from number `from` on: their packets are done, with `flags`, the numbers are free again. */
void pv_verbs_tx_undo(struct verbs_ring *v, struct verbs_txq *q, uint32_t from, uint32_t flags)
{
	if (q->dm)
		pv_verbs_dm_undo(v, q, from);
	for (uint32_t i = from; i != q->sq_tail; i++) {
		struct pv_pkt **slot = &q->slot[i & q->sq_mask];

		v->ring.stat->c.tx_errors++;
		v->ring.stat->c.tx_packets--;
		if (*slot) {
			(*slot)->flags |= flags;
			pv_pktq_push(&v->done, *slot);
			*slot = NULL;
			q->held--;
		}
	}
	q->sq_tail = q->sq_kicked = from;
	/* A completion that was asked for in the refused part never comes; an older one may be out still. */
	if ((int32_t)(q->sq_signalled - from) > 0)
		q->sq_signalled = from;
}

void pv_verbs_tx_poll(struct verbs_ring *v, struct verbs_txq *q)
{
	int k;

	if (pv_unlikely(v->tx_stamps) && q->cqx) {
		pv_verbs_tx_poll_stamps(v, q);
		return;
	}
	do {
		k = v->poll_cq(q->cq, PV_RING_BATCH_MAX, v->wc);
		for (int i = 0; i < k; i++)
			pv_verbs_retire(v, q, v->wc[i].wr_id, (int)v->wc[i].status);
	} while (k == PV_RING_BATCH_MAX);
}

/* The queue looks full: completions may have come since. What names another queue needs no room in this one. */
uint32_t pv_verbs_tx_room_slow(struct verbs_ring *v, struct pv_pkt *const *pkts, uint32_t n)
{
	uint32_t depth = v->ring.caps.tx_depth, room, i;

	if (v->gone)
		return 0;
	pv_verbs_tx_poll(v, &v->tx);
	room = depth - PV_MIN(verbs_tx_used(v), depth);
	n = PV_MIN(n, v->ring.caps.batch);
	for (i = 0; i < n; i++) {
		if (pkts[i]->flags & PV_PKT_TX_QUEUE)
			continue;
		if (!room--)
			break;
	}
	return i;
}

uint32_t pv_verbs_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t i;

	n = PV_MIN(n, r->caps.batch);
	/* The device is asked only for packets that it holds, or when the queue is half full. */
	if (v->done.count < n && (v->tx.held || v->tx.sq_tail - v->tx.sq_head > v->tx.slots / 2) && !v->gone)
		pv_verbs_tx_poll(v, &v->tx);
	if (pv_unlikely(v->nbeside))
		pv_verbs_txq_poll(v);
	for (i = 0; i < n && v->done.count; i++) {
		pkts[i] = pv_pktq_pop(&v->done);
		pkts[i]->next = NULL;
		pv_ring_give(pkts[i]);
	}
	return i;
}

/* True: the device fills both sums. An IPv4 header sum alone, as fragments want it, is cheaper done here than asked for. */
bool pv_verbs_csum(struct pv_pkt *p)
{
	if (p->flags & PV_PKT_TX_L4_CSUM)
		return true;
	pv_frame_fill_csum(p->data, p->len, PV_PKT_TX_L3_CSUM);
	return false;
}

static void flush(struct verbs_ring *v, struct pv_pkt *p)
{
	p->flags |= PV_PKT_TX_FLUSHED;
	pv_verbs_tx_failed(v, p);
}

/* What was to be sent by this queue is done, and nobody knows whether it has left. */
static void txq_gone(struct verbs_ring *v, struct verbs_txq *q)
{
	struct pv_pkt *p;

	if (q->qpx && q->batch)
		ibv_wr_abort(q->qpx);
	q->batch = false;
	for (; q->sq_head != q->sq_tail; q->sq_head++) {
		struct pv_pkt **slot = &q->slot[q->sq_head & q->sq_mask];

		if (*slot)
			flush(v, *slot);
		*slot = NULL;
	}
	q->held = 0;
	q->sq_kicked = q->sq_signalled = q->sq_tail;
	q->dirty = false;
	while ((p = pv_pktq_pop(&q->waiting)))
		flush(v, p);
}

/* The device is dead. Receive buffers wait for the close. */
void pv_verbs_set_gone(struct verbs_ring *v)
{
	if (v->gone)
		return;
	__atomic_store_n(&v->gone, true, __ATOMIC_RELAXED); /* clock() is asked by other threads, too */
	v->ring.caps.link_up = false;
	v->events |= 1u << PV_RING_EV_GONE;
	txq_gone(v, &v->tx);
	pv_verbs_txq_all(v, txq_gone);
	v->dirty = NULL;
}

/* What a queue still holds goes to the pool; its queue pair is destroyed or dead. */
void pv_verbs_txq_reclaim(struct verbs_txq *q)
{
	struct pv_pkt *p;

	for (; q->sq_head != q->sq_tail; q->sq_head++) {
		p = q->slot[q->sq_head & q->sq_mask];
		if (p)
			pv_ring_drop(p);
	}
	while ((p = pv_pktq_pop(&q->waiting)))
		pv_ring_drop(p);
}

/* Everything still inside goes to the pool; the queue pairs are destroyed or dead. */
void pv_verbs_reclaim(struct verbs_ring *v)
{
	struct pv_pkt *p;

	pv_verbs_txq_reclaim(&v->tx);
	while ((p = pv_pktq_pop(&v->done)))
		pv_ring_drop(p);
	if (v->stash)
		pv_pkt_put(v->stash);
	v->stash = NULL;
	while (v->rxqs && (p = pv_pktq_pop(&v->rxqs->early)))
		pv_pkt_put(p);
	for (uint32_t i = 0; v->rx_held && i < v->rx_index_max; i++)
		if (v->rx_held[i / 64] & UINT64_C(1) << (i % 64))
			pv_ring_drop(pv_pool_pkt(v->ring.pool, i));
}

void pv_verbs_set_rx_poll(struct verbs_ring *v, uint32_t (*rx_poll)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n))
{
	if (v->rxqs)
		v->rxqs->rx_poll = rx_poll;
	else if (v->rss)
		v->rss->rx_poll = rx_poll;
	else
		v->ops.rx_poll = rx_poll;
}

void pv_verbs_set_ops(struct verbs_ring *v)
{
	v->ops = (struct pv_ring_ops){
		.kind = "verbs",
		.close = pv_verbs_close,
		.shut = pv_verbs_shut,
		.rx_post = pv_verbs_rx_post,
		.rx_poll = pv_verbs_legacy_rx_poll,
		.tx_post = v->tx.qpx ? pv_verbs_ext_tx_post : pv_verbs_legacy_tx_post,
		.tx_kick = v->tx.qpx ? pv_verbs_ext_tx_kick : pv_verbs_legacy_tx_kick,
		.tx_reap = pv_verbs_tx_reap,
		.arm = pv_verbs_arm,
		.notify_fd = pv_verbs_notify_fd,
		.flow_add = pv_verbs_flow_add,
		.flow_del = pv_verbs_flow_del,
		.txq_open = pv_verbs_txq_open,
		.txq_close = pv_verbs_txq_close,
		.set_rate = pv_verbs_set_rate,
		.txq_pending = pv_verbs_txq_pending,
		.set_stamps = pv_verbs_set_stamps,
		.clock = pv_verbs_clock,
		.clock_info = pv_verbs_clock_info,
		.event = pv_verbs_event,
		.forget = pv_verbs_forget,
	};
	if (v->rss) {
		v->ops.rx_post = pv_verbs_rss_rx_post;
		v->ops.rx_poll = pv_verbs_rss_rx_poll;
		v->rss->rx_poll = pv_verbs_legacy_rx_poll;
	}
	if (v->rxqs) {
		v->ops.rx_post = pv_verbs_rxq_rx_post;
		v->ops.rx_poll = pv_verbs_rxq_rx_poll;
		v->rxqs->rx_poll = pv_verbs_legacy_rx_poll;
		v->ops.rxq_open = pv_verbs_rxq_open;
		v->ops.rxq_close = pv_verbs_rxq_close;
		v->ops.flow_move = pv_verbs_flow_move;
	}
	v->ring.ops = &v->ops;
}
