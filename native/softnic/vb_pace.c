/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs with a rate. The fabric holds their frames and lets them out by schedule (fab_pace.c); here is what completes when.
 *
 * A request's completion waits in a ring of the queue pair until its last frame has left. Nobody pushes it into the CQ: whoever polls or arms
 * the CQ takes it from there, so that the thread which lets frames out needs no lock of objects whose application promised one thread.
 * That thread only rings the CQ's channel.
 */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"

/* More than this held for one queue pair: its send queue counts as full. */
#define HELD_MAX (64u << 20)

struct vb_paced_wr {
	struct vb_cqe cqe;
	uint64_t last; /* complete when so many frames have left */
	uint64_t left_ns;
	bool quiet; /* not asked for */
};

/* By the thread that lets frames out. */
static void left(void *ctx)
{
	vb_cq_fire(((struct vb_qp *)ctx)->scq, false);
}

int vb_rate_check(const struct ibv_context *context, const struct ibv_qp_rate_limit_attr *a)
{
	if (!vb_has(context, VB_CAP_PACING))
		return EOPNOTSUPP;
	if (a->comp_mask)
		return EINVAL;
	if ((a->max_burst_sz || a->typical_pkt_sz) && (!a->rate_limit || !vb_has(context, VB_CAP_PACING_BURST)))
		return EINVAL;
	/* 0 is none. */
	return a->rate_limit > VB_MAX_RATE_KBPS ? EINVAL : 0;
}

static int pace_begin(struct vb_qp *qp)
{
	struct vb_pace *p = calloc(1, sizeof(*p));
	uint32_t size = 1;

	while (size < qp->sq_size)
		size <<= 1;
	if (!p)
		return ENOMEM;
	p->ring = calloc(size, sizeof(*p->ring));
	if (!p->ring || sn_pace_open(qp->port, left, qp, &p->q)) {
		free(p->ring);
		free(p);
		return ENOMEM;
	}
	p->mask = size - 1;
	p->qp = qp;
	qp->pace = p;
	pv_list_add(&qp->scq->paced, &p->node);
	vb_cq_sources(qp->scq);
	vb_qp_settle(qp);
	return 0;
}

/* Completions of all that has left. To make room in the CQ they are few at a time, unless the queue pair's time is over. */
static void harvest_one(struct vb_pace *p, struct vb_cq *cq, bool all)
{
	uint32_t ci = atomic_load_explicit(&p->ci, memory_order_relaxed);
	uint32_t pi = atomic_load_explicit(&p->pi, memory_order_acquire);
	uint64_t done = sn_pace_left(p->q);

	while (ci != pi && (all || !vb_cq_full(cq))) {
		struct vb_paced_wr *w = &p->ring[ci & p->mask];

		if (w->last > done)
			break;
		w->cqe.tstamp_ns = w->left_ns;
		if (!w->quiet)
			vb_cq_put(cq, &w->cqe);
		ci++;
	}
	atomic_store_explicit(&p->ci, ci, memory_order_release);
}

void vb_pace_harvest(struct vb_cq *cq)
{
	pv_list_for_each(it, &cq->paced)
		harvest_one(pv_list_entry(it, struct vb_pace, node), cq, false);
}

/* What had not left is flushed, asked for or not. Dropped first: until then frames leave and their requests are the other thread's. */
static void flush(struct vb_pace *p)
{
	uint64_t done = sn_pace_drop(p->q);

	for (uint32_t i = atomic_load(&p->ci); i != atomic_load(&p->pi); i++) {
		struct vb_paced_wr *w = &p->ring[i & p->mask];

		if (w->last > done) {
			w->cqe.status = w->cqe.status == IBV_WC_SUCCESS ? IBV_WC_WR_FLUSH_ERR : w->cqe.status;
			w->quiet = false;
			w->left_ns = sn_true_ns();
		}
	}
}

void vb_pace_end(struct vb_qp *qp, bool flush_it)
{
	static const struct sn_rate unlimited;
	struct vb_pace *p = qp->pace;
	uint32_t before;

	if (!p)
		return;
	if (flush_it)
		flush(p);
	else
		sn_pace_set(p->q, &unlimited);
	before = atomic_load(&qp->scq->cqe_pi);
	harvest_one(p, qp->scq, true);
	pv_list_del(&p->node);
	vb_cq_sources(qp->scq);
	sn_pace_close(p->q);
	free(p->ring);
	free(p);
	qp->pace = NULL;
	vb_qp_settle(qp);
	if (before != atomic_load(&qp->scq->cqe_pi))
		vb_cq_fire(qp->scq, flush_it);
}

int vb_pace_set(struct vb_qp *qp, const struct sn_rate *rate)
{
	int err;

	/* Without a send queue there is nothing to limit. */
	if (!qp->sq_size)
		return 0;
	if (!rate->kbps) {
		vb_pace_end(qp, false);
		return 0;
	}
	err = qp->pace ? 0 : pace_begin(qp);
	if (!err)
		sn_pace_set(qp->pace->q, rate);
	return err;
}

/* ---- sending --------------------------------------------------------------------------------------------------------------------- */

bool vb_pace_room(struct vb_qp *qp)
{
	return sn_pace_held_bytes(qp->pace->q) < HELD_MAX;
}

int vb_pace_frame(struct vb_qp *qp, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags, bool tell)
{
	struct vb_pace *p = qp->pace;
	struct vb_paced_wr *w = &p->ring[atomic_load_explicit(&p->pi, memory_order_relaxed) & p->mask];
	int rc = sn_pace_send(p->q, seg, nseg, tx_flags, tell ? &w->left_ns : NULL);

	p->taken += rc == 0;
	return rc;
}

void vb_pace_push(struct vb_qp *qp, const struct vb_cqe *cqe, bool quiet)
{
	struct vb_pace *p = qp->pace;
	uint32_t pi = atomic_load_explicit(&p->pi, memory_order_relaxed);
	struct vb_paced_wr *w = &p->ring[pi & p->mask];

	w->cqe = *cqe;
	w->last = p->taken;
	w->quiet = quiet;
	if (cqe->status != IBV_WC_SUCCESS && !sn_pace_tell(p->q, &w->left_ns))
		w->left_ns = sn_true_ns();
	atomic_store(&p->pi, pi + 1);
	/* Some leave a part of their queue unused, and most ask for few completions. */
	if ((qp->sq_pi - atomic_load_explicit(&qp->sq_ci, memory_order_relaxed)) * 4 >= qp->sq_size * 3)
		sn_pace_full(p->q);
	/* It may have left before the request was here to be seen. */
	if (!quiet && sn_pace_left(p->q) >= w->last)
		vb_cq_fire(qp->scq, cqe->status != IBV_WC_SUCCESS);
}

int vb_modify_qp_rate_limit(struct ibv_qp *ibv, struct ibv_qp_rate_limit_attr *attr)
{
	struct vb_qp *qp = vb_qp(ibv);
	const struct sn_rate rate = { attr->rate_limit, attr->max_burst_sz, attr->typical_pkt_sz };
	uint32_t state;
	int err = qp->ind_table ? EOPNOTSUPP : vb_rate_check(ibv->context, attr);

	if (err)
		return err;
	vb_lock(&qp->lock);
	if (qp->scq)
		vb_lock(&qp->scq->lock);
	state = atomic_load(&qp->state);
	if (state == VB_QPS_GONE)
		err = ENODEV;
	else
		err = state == IBV_QPS_RTS ? vb_pace_set(qp, &rate) : EINVAL;
	if (qp->scq)
		vb_unlock(&qp->scq->lock);
	vb_unlock(&qp->lock);
	return err;
}
