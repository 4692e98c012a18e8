/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path over ibv_post_send and ibv_poll_cq, which every provider has. tx_post writes WRs into an array that parallels the
 * send queue; tx_kick hands the chain to the device in one call. The device copies inlined data then, so such packets wait until
 * the kick.
 */
#include <errno.h>

#include "ring/verbs_priv.h"

uint32_t pv_verbs_legacy_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t got = verbs_rx_stashed(v, pkts, n);
	int k;

	n = PV_MIN(n, r->caps.batch);
	if (pv_unlikely(got >= n))
		return got;
	k = v->poll_cq(v->rx_cq, (int)(n - got), v->wc);
	for (int i = 0; i < k; i++) {
		const struct ibv_wc *wc = &v->wc[i];
		struct pv_pkt *p = verbs_rx_take(v, wc->wr_id);

		if (pv_unlikely(!p))
			continue;
		if (pv_unlikely(wc->status != IBV_WC_SUCCESS)) {
			pv_verbs_rx_failed(v, p, (int)wc->status);
			continue;
		}
		verbs_rx_fill(v, p, wc->byte_len, wc->wc_flags);
		pkts[got++] = p;
	}
	return got;
}

/* A frame that the device reads from its own memory. False: there is no room there. */
static pv_noinline bool put_dm(struct verbs_ring *v, struct verbs_txq *q, struct pv_pkt *p, uint32_t len)
{
	struct ibv_send_wr *wr = &q->wr[q->sq_tail & q->sq_mask];
	unsigned int flags = verbs_tx_csum(p);

	if (!pv_verbs_dm_copy(v, q, p, len, wr->sg_list))
		return false;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = flags | verbs_tx_number(q, pv_verbs_dm_scarce(q->dm));
	wr->wr_id = q->sq_tail;
	wr->num_sge = 2;
	pv_pktq_push(&v->done, p);
	verbs_tx_count(v, len);
	return true;
}

/* `keep`: the packet stays with the device until its own completion, which is asked for. */
pv_inline void put_on(struct verbs_ring *v, struct verbs_txq *q, struct pv_pkt *p, bool want, bool keep)
{
	uint32_t len = verbs_frame_len(v, p), at = q->sq_tail & q->sq_mask;
	struct ibv_send_wr *wr = &q->wr[at];
	bool copied = !keep && len <= v->ring.caps.inline_size;

	if (pv_unlikely(!len)) {
		pv_verbs_tx_failed(v, p);
		return;
	}
	if (!copied && !keep && pv_unlikely(q->dm != NULL) && put_dm(v, q, p, len))
		return;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = verbs_tx_csum(p) | verbs_tx_number(q, (want && !copied) || keep) | (copied ? IBV_SEND_INLINE : 0);
	wr->wr_id = q->sq_tail;
	wr->num_sge = (int)verbs_sge(p, wr->sg_list);
	if (copied) {
		pv_pktq_push(&q->waiting, p);
	} else {
		q->slot[at] = p;
		q->held++;
	}
	verbs_tx_count(v, len);
}

static void put(struct verbs_ring *v, struct pv_pkt *p, bool want)
{
	put_on(v, &v->tx, p, want, false);
}

/* The headers are read when the chain is posted; the packet is held until it has left. */
static void put_tso(struct verbs_ring *v, struct verbs_txq *q, struct pv_pkt *p, bool want)
{
	uint32_t at = q->sq_tail & q->sq_mask;
	struct ibv_send_wr *wr = &q->wr[at];

	if (!verbs_tso_sound(v, p)) {
		pv_verbs_tx_failed(v, p);
		return;
	}
	wr->opcode = IBV_WR_TSO;
	wr->tso.hdr = p->data;
	wr->tso.hdr_sz = p->gso_hdr;
	wr->tso.mss = p->gso_size;
	wr->send_flags = IBV_SEND_IP_CSUM | verbs_tx_number(q, want);
	wr->wr_id = q->sq_tail;
	wr->num_sge = (int)verbs_tso_sge(p, wr->sg_list);
	q->slot[at] = p;
	q->held++;
	v->ring.stat->c.tso_packets++;
	verbs_tx_count(v, p->total);
}

static pv_noinline bool put_aside(struct verbs_ring *v, struct pv_pkt *p, bool want)
{
	struct verbs_txq *q = &v->tx;
	bool again;

	if (p->flags & PV_PKT_TX_QUEUE) {
		q = pv_verbs_txq_use(v, p, &again);
		if (again)
			return false;
	}
	pv_ring_take(p);
	if (!q)
		pv_verbs_tx_failed(v, p);
	else if (p->flags & PV_PKT_TX_TSO)
		put_tso(v, q, p, want || verbs_tx_stamped(v, q, p));
	else
		put_on(v, q, p, want, verbs_tx_stamped(v, q, p));
	return true;
}

uint32_t pv_verbs_legacy_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t k = verbs_tx_room(v, pkts, n);

	if (pv_unlikely(k < n)) {
		v->ring.stat->c.tx_full++;
		if (!k)
			return 0;
	}
	return verbs_tx_each(v, pkts, k, put, put_aside);
}

/* What was inlined has been copied, or has failed: either way it is the owner's again. */
static void release_waiting(struct verbs_ring *v, struct verbs_txq *q)
{
	if (!q->waiting.count)
		return;
	*v->done.tail = q->waiting.head;
	v->done.tail = q->waiting.tail;
	v->done.count += q->waiting.count;
	pv_pktq_init(&q->waiting);
}

static int kick(struct verbs_ring *v, struct verbs_txq *q)
{
	struct ibv_send_wr *last, *bad = NULL;
	uint32_t refused;
	bool gone;
	int rc;

	if (q->sq_kicked == q->sq_tail)
		return 0;
	/* The WRs are a ring already; only the end of this chain is cut and mended. */
	last = &q->wr[(q->sq_tail - 1) & q->sq_mask];
	last->next = NULL;
	v->ring.stat->c.doorbells++;
	rc = v->post_send(q->qp, &q->wr[q->sq_kicked & q->sq_mask], &bad);
	last->next = &q->wr[q->sq_tail & q->sq_mask];
	gone = rc == ENODEV || rc == EIO;
	for (struct pv_pkt *p = pv_unlikely(gone) ? q->waiting.head : NULL; p; p = p->next)
		p->flags |= PV_PKT_TX_FLUSHED;
	release_waiting(v, q);
	if (pv_likely(!rc)) {
		q->sq_kicked = q->sq_tail;
		return 0;
	}
	refused = bad ? ((uint32_t)(bad - q->wr) - q->sq_kicked) & q->sq_mask : 0;
	pv_verbs_tx_undo(v, q, q->sq_kicked + refused, gone ? PV_PKT_TX_FLUSHED : 0);
	if (gone)
		pv_verbs_set_gone(v);
	return gone ? -ENODEV : 0;
}

int pv_verbs_legacy_tx_kick(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);

	if (pv_unlikely(v->gone))
		return -ENODEV;
	if (pv_unlikely(v->dirty != NULL) && pv_verbs_txq_kick(v, kick))
		return -ENODEV;
	return kick(v, &v->tx);
}
