/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path over the extended interface. ibv_wr_* writes WRs straight into the device's queue: a batch opens with the first
 * packet after a doorbell and stays open until the next; frames reach the queue in tx_post, the device hears of them in tx_kick.
 * ibv_start_poll is what reads time stamps; until they are asked for one ibv_poll_cq costs fewer calls through pointers for the same
 * answer.
 */
#include <errno.h>

#include "ring/verbs_priv.h"

uint32_t pv_verbs_ext_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	struct ibv_cq_ex *cq = v->rx_cqx;
	struct ibv_poll_cq_attr attr = { 0 };
	uint32_t got = verbs_rx_stashed(v, pkts, n);

	n = PV_MIN(n, r->caps.batch);
	if (pv_unlikely(got >= n) || ibv_start_poll(cq, &attr))
		return got;
	do {
		struct pv_pkt *p = verbs_rx_take(v, cq->wr_id);

		if (pv_unlikely(!p))
			continue;
		if (pv_unlikely(cq->status != IBV_WC_SUCCESS)) {
			pv_verbs_rx_failed(v, p, (int)cq->status);
			continue;
		}
		verbs_rx_fill(v, p, ibv_wc_read_byte_len(cq), ibv_wc_read_wc_flags(cq));
		p->tstamp = v->wall ? ibv_wc_read_completion_wallclock_ns(cq) : ibv_wc_read_completion_ts(cq) & v->ts_mask;
		p->flags |= PV_PKT_TSTAMP;
		pkts[got++] = p;
	} while (got < n && !ibv_next_poll(cq));
	ibv_end_poll(cq);
	return got;
}

static void inline_pieces(struct ibv_qp_ex *qp, const struct pv_pkt *p)
{
	struct ibv_data_buf buf[VERBS_SGE_MAX];
	size_t n = 0;

	for (; p; p = p->frag, n++) {
		buf[n].addr = p->data;
		buf[n].length = p->len;
	}
	ibv_wr_set_inline_data_list(qp, n, buf);
}

static void pieces(struct ibv_qp_ex *qp, const struct pv_pkt *p)
{
	struct ibv_sge sge[VERBS_SGE_MAX];
	uint32_t n = verbs_sge(p, sge);

	ibv_wr_set_sge_list(qp, n, sge);
}

/* A frame that the device reads from its own memory. False: there is no room there. */
static pv_noinline bool put_dm(struct verbs_ring *v, struct verbs_txq *q, struct pv_pkt *p, uint32_t len)
{
	unsigned int flags = verbs_tx_csum(p);
	struct ibv_qp_ex *qp = q->qpx;
	struct ibv_sge sge[2];

	if (!pv_verbs_dm_copy(v, q, p, len, sge))
		return false;
	qp->wr_flags = flags | verbs_tx_number(q, pv_verbs_dm_scarce(q->dm));
	qp->wr_id = q->sq_tail;
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, 2, sge);
	pv_pktq_push(&v->done, p);
	verbs_tx_count(v, len);
	return true;
}

/* `keep`: the packet stays with the device until its own completion, which is asked for. */
pv_inline void put_on(struct verbs_ring *v, struct verbs_txq *q, struct pv_pkt *p, bool want, bool keep)
{
	uint32_t len = verbs_frame_len(v, p), number = q->sq_tail;
	struct ibv_qp_ex *qp = q->qpx;
	bool copied = !keep && len <= v->ring.caps.inline_size;

	if (pv_unlikely(!len)) {
		pv_verbs_tx_failed(v, p);
		return;
	}
	if (!copied && !keep && pv_unlikely(q->dm != NULL) && put_dm(v, q, p, len))
		return;
	qp->wr_flags = verbs_tx_csum(p) | verbs_tx_number(q, (want && !copied) || keep);
	qp->wr_id = q->sq_tail;
	ibv_wr_send(qp);
	if (copied) {
		if (pv_likely(!p->frag))
			ibv_wr_set_inline_data(qp, p->data, p->len);
		else
			inline_pieces(qp, p);
		pv_pktq_push(&v->done, p);
	} else {
		if (pv_likely(!p->frag))
			ibv_wr_set_sge(qp, p->key, (uint64_t)(uintptr_t)p->data, p->len);
		else
			pieces(qp, p);
		q->slot[number & q->sq_mask] = p;
		q->held++;
	}
	verbs_tx_count(v, len);
}

static void put(struct verbs_ring *v, struct pv_pkt *p, bool want)
{
	put_on(v, &v->tx, p, want, false);
}

/* The device takes the headers from the processor and the rest by itself. */
static void put_tso(struct verbs_ring *v, struct verbs_txq *q, struct pv_pkt *p, bool want)
{
	uint32_t number = q->sq_tail, n;
	struct ibv_sge sge[VERBS_SGE_MAX];
	struct ibv_qp_ex *qp = q->qpx;

	if (!verbs_tso_sound(v, p)) {
		pv_verbs_tx_failed(v, p);
		return;
	}
	n = verbs_tso_sge(p, sge);
	qp->wr_flags = IBV_SEND_IP_CSUM | verbs_tx_number(q, want);
	qp->wr_id = q->sq_tail;
	ibv_wr_send_tso(qp, p->data, p->gso_hdr, p->gso_size);
	ibv_wr_set_sge_list(qp, n, sge);
	q->slot[number & q->sq_mask] = p;
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
		if (q && q->qpx && !q->batch) {
			ibv_wr_start(q->qpx);
			q->batch = true;
		}
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

uint32_t pv_verbs_ext_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t k = verbs_tx_room(v, pkts, n);

	if (pv_unlikely(k < n)) {
		v->ring.stat->c.tx_full++;
		if (!k)
			return 0;
	}
	if (!v->tx.batch) {
		ibv_wr_start(v->tx.qpx);
		v->tx.batch = true;
	}
	return verbs_tx_each(v, pkts, k, put, put_aside);
}

pv_inline int kick(struct verbs_ring *v, struct verbs_txq *q)
{
	int rc;

	if (!q->batch)
		return 0;
	q->batch = false;
	if (pv_unlikely(q->sq_tail == q->sq_kicked)) {
		ibv_wr_abort(q->qpx); /* nothing but frames that it cannot carry */
		return 0;
	}
	v->ring.stat->c.doorbells++;
	rc = ibv_wr_complete(q->qpx);
	if (pv_unlikely(rc)) {
		bool gone = rc == ENODEV || rc == EIO;

		pv_verbs_tx_undo(v, q, q->sq_kicked, gone ? PV_PKT_TX_FLUSHED : 0);
		if (gone)
			pv_verbs_set_gone(v);
		return gone ? -ENODEV : 0;
	}
	q->sq_kicked = q->sq_tail;
	return 0;
}

static int kick_beside(struct verbs_ring *v, struct verbs_txq *q)
{
	return kick(v, q);
}

int pv_verbs_ext_tx_kick(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);

	if (pv_unlikely(v->gone))
		return -ENODEV;
	if (pv_unlikely(v->dirty != NULL) && pv_verbs_txq_kick(v, kick_beside))
		return -ENODEV;
	return kick(v, &v->tx);
}
