/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path over ibv_post_send and ibv_poll_cq, which every provider has. tx_post writes WRs into an array that parallels the
 * send queue; tx_kick hands the chain to the device in one call. The device copies inlined data then, so such packets wait until
 * the kick.
 */
#include <errno.h>

#include "ring/verbs_priv.h"

static uint32_t legacy_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t got = 0;
	int k;

	if (pv_unlikely(v->stash != NULL) && n) {
		pkts[got++] = v->stash;
		v->stash = NULL;
	}
	n = PV_MIN(n, r->caps.batch);
	if (pv_unlikely(got >= n))
		return got;
	k = v->poll_cq(v->rx_cq, (int)(n - got), v->wc);
	for (int i = 0; i < k; i++) {
		const struct ibv_wc *wc = &v->wc[i];
		struct pv_pkt *p = pv_verbs_rx_take(v, wc->wr_id);

		if (pv_unlikely(!p))
			continue;
		if (pv_unlikely(wc->status != IBV_WC_SUCCESS)) {
			pv_verbs_rx_failed(v, p, (int)wc->status);
			continue;
		}
		verbs_rx_fill(v, p, wc->byte_len, wc->wc_flags);
		v->counters.rx_bytes += p->len;
		v->counters.rx_packets++;
		pkts[got++] = p;
	}
	return got;
}

void pv_verbs_legacy_tx_poll(struct verbs_ring *v)
{
	int k;

	do {
		k = v->poll_cq(v->tx_cq, PV_RING_BATCH_MAX, v->wc);
		for (int i = 0; i < k; i++)
			pv_verbs_retire(v, v->wc[i].wr_id, (int)v->wc[i].status);
	} while (k == PV_RING_BATCH_MAX);
}

static void put(struct verbs_ring *v, struct pv_pkt *p, bool want)
{
	uint32_t len = verbs_frame_len(v, p), at = v->sq_tail & v->sq_mask;
	struct ibv_send_wr *wr = &v->wr[at];
	bool copied = len <= v->ring.caps.inline_size;
	unsigned int flags = copied ? IBV_SEND_INLINE : 0;

	if (pv_unlikely(!len)) {
		v->counters.tx_errors++;
		pv_pktq_push(&v->done, p);
		return;
	}
	if (p->flags & VERBS_TX_CSUM && pv_verbs_csum(p))
		flags |= IBV_SEND_IP_CSUM;
	v->sq_tail++;
	if ((want && !copied) || v->sq_tail - v->sq_signalled >= v->signal_every) {
		flags |= IBV_SEND_SIGNALED;
		v->sq_signalled = v->sq_tail;
	}
	wr->wr_id = v->sq_tail;
	wr->send_flags = flags;
	wr->num_sge = (int)verbs_sge(p, wr->sg_list);
	if (copied) {
		pv_pktq_push(&v->waiting, p);
	} else {
		v->slot[at] = p;
		v->held++;
	}
	v->counters.tx_packets++;
	v->counters.tx_bytes += len;
}

static uint32_t legacy_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t k = pv_verbs_tx_room(v, n), last = k - 1;

	if (pv_unlikely(k < n)) {
		v->counters.tx_full++;
		if (!k)
			return 0;
	}
	while (last && verbs_frame_len(v, pkts[last]) <= r->caps.inline_size)
		last--;
	for (uint32_t i = 0; i < k; i++) {
		pv_ring_take(pkts[i]);
		put(v, pkts[i], i == last);
	}
	return k;
}

/* What was inlined has been copied, or has failed: either way it is the owner's again. */
static void release_waiting(struct verbs_ring *v)
{
	if (!v->waiting.count)
		return;
	*v->done.tail = v->waiting.head;
	v->done.tail = v->waiting.tail;
	v->done.count += v->waiting.count;
	pv_pktq_init(&v->waiting);
}

static int legacy_tx_kick(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);
	struct ibv_send_wr *last, *bad = NULL;
	uint32_t refused;
	int rc;

	if (pv_unlikely(v->gone))
		return -ENODEV;
	if (v->sq_kicked == v->sq_tail)
		return 0;
	/* The WRs are a ring already; only the end of this chain is cut and mended. */
	last = &v->wr[(v->sq_tail - 1) & v->sq_mask];
	last->next = NULL;
	v->counters.doorbells++;
	rc = v->post_send(v->qp, &v->wr[v->sq_kicked & v->sq_mask], &bad);
	last->next = &v->wr[v->sq_tail & v->sq_mask];
	release_waiting(v);
	if (pv_likely(!rc)) {
		v->sq_kicked = v->sq_tail;
		return 0;
	}
	refused = bad ? ((uint32_t)(bad - v->wr) - v->sq_kicked) & v->sq_mask : 0;
	pv_verbs_tx_undo(v, v->sq_kicked + refused);
	if (rc == ENODEV || rc == EIO) {
		pv_verbs_set_gone(v);
		return -ENODEV;
	}
	return 0;
}

static uint32_t legacy_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	uint32_t i;

	n = PV_MIN(n, r->caps.batch);
	if (v->done.count < n && (v->held || v->sq_tail - v->sq_head > v->slots / 2) && !v->gone)
		pv_verbs_legacy_tx_poll(v);
	for (i = 0; i < n && v->done.count; i++) {
		pkts[i] = pv_pktq_pop(&v->done);
		pkts[i]->next = NULL;
		pv_ring_give(pkts[i]);
	}
	return i;
}

const struct pv_ring_ops pv_verbs_legacy_ops = {
	PV_VERBS_COMMON_OPS,       .rx_poll = legacy_rx_poll, .tx_post = legacy_tx_post,
	.tx_kick = legacy_tx_kick, .tx_reap = legacy_tx_reap,
};
