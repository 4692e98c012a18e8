/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues.
 *
 * A CQ is a ring of send completions and the receive queues that report to it. Receives have no completions of their own in memory:
 * polling looks at the next slot of the receive queue and makes the completion from the frame. When both kinds wait they take turns.
 */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb_poll.h"

void vb_lock_two(struct vb_cq *a, struct vb_cq *b)
{
	if (a > b) {
		struct vb_cq *t = a;

		a = b;
		b = t;
	}
	if (a)
		vb_lock(&a->lock);
	if (b && b != a)
		vb_lock(&b->lock);
}

void vb_unlock_two(struct vb_cq *a, struct vb_cq *b)
{
	if (a)
		vb_unlock(&a->lock);
	if (b && b != a)
		vb_unlock(&b->lock);
}

/* Stamping costs whoever sends a look at the clock: nothing is stamped for a program that polls so that it cannot read it. A QP that
 * somebody posts to at the moment, who may be the one that polls, is left for the next poll. */
pv_noinline void vb_cq_stamp(struct vb_cq *cq, bool on)
{
	struct vb_ctx *ctx = vb_ctx(cq->ibv.context);
	bool all = true;

	vb_lock(&cq->lock);
	cq->stamping = on;
	for (uint32_t i = 0; i < cq->nrq; i++)
		sn_rxq_set_tstamp(cq->rqs[i]->rxq, on);
	vb_unlock(&cq->lock);
	/* A QP's lock comes before its CQ's. */
	pthread_mutex_lock(&ctx->lock);
	pv_list_for_each(it, &ctx->qps) {
		struct vb_qp *qp = pv_list_entry(it, struct vb_qp, node);

		if (qp->scq != cq)
			continue;
		if (!vb_trylock(&qp->lock)) {
			all = false;
			continue;
		}
		vb_qp_settle(qp);
		vb_unlock(&qp->lock);
	}
	pthread_mutex_unlock(&ctx->lock);
	if (!all) {
		vb_lock(&cq->lock);
		cq->stamping = !on;
		vb_unlock(&cq->lock);
	}
}

/* ---- completions --------------------------------------------------------------------------------------------------------------- */

bool vb_cq_full(const struct vb_cq *cq)
{
	return atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed) - cq->cqe_ci > cq->cqe_mask;
}

pv_inline void cq_put(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	uint32_t pi = atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed);

	if (pv_unlikely(pi - cq->cqe_ci > cq->cqe_mask || cq->overrun)) {
		/* The completion is lost, and unless the application said that it knows, the CQ with it. */
		if (!cq->ignore_overrun && !cq->overrun) {
			cq->overrun = true;
			vb_async_push(vb_ctx(cq->ibv.context), IBV_EVENT_CQ_ERR, cq);
		}
		return;
	}
	cq->ring[pi & cq->cqe_mask] = *cqe;
	if (cq->stamping && !cqe->tstamp_ns)
		cq->ring[pi & cq->cqe_mask].tstamp_ns = sn_true_ns();
	atomic_store_explicit(&cq->cqe_pi, pi + 1, memory_order_relaxed);
}

void vb_cq_put(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	cq_put(cq, cqe);
}

void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe)
{
	vb_lock(&cq->lock);
	cq_put(cq, cqe);
	vb_unlock(&cq->lock);
	if (pv_unlikely(atomic_load_explicit(&cq->armed, memory_order_seq_cst)))
		vb_cq_fire(cq, cqe->status != IBV_WC_SUCCESS);
}

static void cqe_take(struct vb_cq *cq, struct ibv_wc *wc, uint64_t *tstamp_ns)
{
	const struct vb_cqe *e = &cq->ring[cq->cqe_ci++ & cq->cqe_mask];

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = e->wr_id;
	wc->status = (enum ibv_wc_status)e->status;
	wc->opcode = (enum ibv_wc_opcode)e->opcode;
	wc->byte_len = e->byte_len;
	wc->qp_num = e->qp_num;
	/* What completed before stamping began has the time when it is found. */
	*tstamp_ns = e->tstamp_ns || !cq->stamping ? e->tstamp_ns : sn_true_ns();
	/* Room in the send queue up to this request. */
	atomic_store_explicit(&e->qp->sq_ci, e->sq_ci, memory_order_release);
}

static pv_noinline bool rqs_take(struct vb_cq *cq, struct ibv_wc *wc, uint64_t *tstamp_ns)
{
	if (pv_unlikely(cq->sources != cq->nrq))
		vb_pace_harvest(cq);
	for (uint32_t i = 0; i < cq->nrq; i++) {
		struct vb_rq *rq = cq->rqs[cq->next_rq];

		if (++cq->next_rq >= cq->nrq)
			cq->next_rq = 0;
		if (vb_rq_take(rq, wc, tstamp_ns))
			return true;
	}
	return false;
}

pv_inline bool cq_next(struct vb_cq *cq, struct ibv_wc *wc, uint64_t *tstamp_ns)
{
	bool sends = cq->cqe_ci != atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed);

	if (sends && cq->send_first) {
		cq->send_first = false;
		cqe_take(cq, wc, tstamp_ns);
		return true;
	}
	if (pv_likely(cq->rq) ? vb_rq_take(cq->rq, wc, tstamp_ns) : cq->sources && rqs_take(cq, wc, tstamp_ns)) {
		cq->send_first = true;
		return true;
	}
	/* Looked at again: paced senders may have completions by now. */
	if (cq->cqe_ci == atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed))
		return false;
	cqe_take(cq, wc, tstamp_ns);
	return true;
}

bool vb_cq_next(struct vb_cq *cq, struct ibv_wc *wc, uint64_t *tstamp_ns)
{
	return cq_next(cq, wc, tstamp_ns);
}

static pv_noinline int poll_some(struct vb_cq *cq, int n, struct ibv_wc *wc)
{
	bool stamping = cq->stamping;
	uint64_t tstamp_ns;
	int got = 0;

	while (got < n && cq_next(cq, &wc[got], &tstamp_ns))
		got++;
	vb_unlock(&cq->lock);
	if (pv_unlikely(stamping))
		vb_cq_stamp(cq, false);
	return got;
}

int vb_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct vb_cq *cq = vb_cq(ibv);

	vb_lock(&cq->lock);
	if (pv_unlikely(!vb_cq_empty(cq)))
		return poll_some(cq, n, wc);
	vb_unlock(&cq->lock);
	return 0;
}

void vb_cq_forget_qp(struct vb_cq *cq, const struct vb_qp *qp)
{
	uint32_t to = cq->cqe_ci, pi = atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed);

	for (uint32_t at = to; at != pi; at++) {
		if (cq->ring[at & cq->cqe_mask].qp != qp)
			cq->ring[to++ & cq->cqe_mask] = cq->ring[at & cq->cqe_mask];
	}
	atomic_store_explicit(&cq->cqe_pi, to, memory_order_relaxed);
}

/* ---- receive queues -------------------------------------------------------------------------------------------------------------- */

/* The channel's lock too, since a waiter on the channel looks through the list. */
static void rqs_lock(struct vb_cq *cq)
{
	if (cq->chan)
		pthread_mutex_lock(&cq->chan->lock);
}

static void rqs_unlock(struct vb_cq *cq)
{
	if (cq->chan)
		pthread_mutex_unlock(&cq->chan->lock);
	vb_cq_sources(cq);
}

void vb_cq_sources(struct vb_cq *cq)
{
	cq->sources = cq->nrq;
	pv_list_for_each(it, &cq->paced)
		cq->sources++;
	cq->rq = cq->nrq == 1 && cq->sources == 1 ? cq->rqs[0] : NULL;
	cq->next_rq = 0;
}

int vb_cq_add_rq(struct vb_cq *cq, struct vb_rq *rq)
{
	struct vb_rq **rqs = malloc(sizeof(*rqs) * (cq->nrq + 1)), **old;

	if (!rqs)
		return ENOMEM;
	rqs_lock(cq);
	old = cq->rqs;
	if (cq->nrq)
		memcpy(rqs, old, sizeof(*rqs) * cq->nrq);
	rqs[cq->nrq++] = rq;
	cq->rqs = rqs;
	rqs_unlock(cq);
	free(old);
	/* An armed CQ is armed for the new queue as well. */
	if (atomic_load(&cq->armed) == VB_ARM_ANY && vb_rq_arm(rq))
		vb_cq_fire(cq, true);
	return 0;
}

void vb_cq_del_rq(struct vb_cq *cq, struct vb_rq *rq)
{
	rqs_lock(cq);
	for (uint32_t i = 0; i < cq->nrq; i++) {
		if (cq->rqs[i] == rq) {
			cq->rqs[i] = cq->rqs[--cq->nrq];
			break;
		}
	}
	rqs_unlock(cq);
}

/* ---- create, resize, destroy ------------------------------------------------------------------------------------------------------- */

static uint32_t ring_size(uint32_t cqe)
{
	uint32_t size = 1;

	while (size < cqe)
		size <<= 1;
	return size;
}

static struct vb_cq *cq_new(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel,
			    uint32_t vector)
{
	static _Atomic uint32_t handles;
	struct vb_ctx *ctx = vb_ctx(context);
	struct vb_cq *cq;

	if (cqe < 1 || cqe > VB_MAX_CQE || vector >= VB_COMP_VECTORS)
		return vb_fail(EINVAL);
	cq = aligned_alloc(64, sizeof(*cq));
	if (!cq)
		return vb_fail(ENOMEM);
	memset(cq, 0, sizeof(*cq));
	cq->cqe_mask = ring_size(cqe) - 1;
	cq->ring = calloc(cq->cqe_mask + 1, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return vb_fail(ENOMEM);
	}
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.handle = atomic_fetch_add(&handles, 1);
	cq->ibv.cqe = (int)cq->cqe_mask + 1;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pv_list_init(&cq->paced);
	pv_list_init(&cq->chan_node);
	pv_list_init(&cq->ready_node);
	if (channel) {
		cq->chan = (struct vb_channel *)channel;
		pthread_mutex_lock(&cq->chan->lock);
		pv_list_add(&cq->chan->cqs, &cq->chan_node);
		channel->refcnt++;
		pthread_mutex_unlock(&cq->chan->lock);
	}
	pthread_mutex_lock(&ctx->lock);
	pv_list_add(&ctx->cqs, &cq->node);
	pthread_mutex_unlock(&ctx->lock);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	struct vb_cq *cq;

	if (!vb_ours(context))
		return VB_FORWARD_PTR(ibv_create_cq, context, cqe, cq_context, channel, vector);
	if (cqe < 0 || vector < 0)
		return vb_fail(EINVAL);
	cq = cq_new(context, (uint32_t)cqe, cq_context, channel, (uint32_t)vector);
	return cq ? &cq->ibv : NULL;
}

struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t fields =
	    IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_FLOW_TAG |
	    (vb_has(context, VB_CAP_VLAN_STRIP) ? (uint64_t)IBV_WC_EX_WITH_CVLAN : 0) |
	    (vb_has(context, VB_CAP_TIMESTAMPS) ? (uint64_t)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0) |
	    (vb_has(context, VB_CAP_TIMESTAMPS | VB_CAP_WALLCLOCK) ? (uint64_t)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK : 0);
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct vb_cq *cq;

	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return vb_fail(EINVAL);
	if (attr->wc_flags & ~fields || flags & ~(uint32_t)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		return vb_fail(EOPNOTSUPP);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD &&
	    (!attr->parent_domain || vb_pd(attr->parent_domain)->base == vb_pd(attr->parent_domain)))
		return vb_fail(EINVAL);
	cq = cq_new(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
	if (!cq)
		return NULL;
	cq->lock.none = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->ignore_overrun = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		cq->parent = vb_pd(attr->parent_domain);
		atomic_fetch_add(&cq->parent->uses, 1);
		cq->lock.none |= cq->parent->td != NULL;
	}
	vb_cq_ex_init(cq, attr->wc_flags);
	return &cq->ex;
}

int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct vb_cq *cq = vb_cq(ibv);
	uint32_t size, waiting;
	struct vb_cqe *ring, *old;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_resize_cq, ibv, cqe);
	if (cqe < 1 || (uint32_t)cqe > VB_MAX_CQE)
		return EINVAL;
	size = ring_size((uint32_t)cqe);
	ring = calloc(size, sizeof(*ring));
	if (!ring)
		return ENOMEM;
	vb_lock(&cq->lock);
	waiting = atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed) - cq->cqe_ci;
	if (waiting > (uint32_t)cqe) {
		vb_unlock(&cq->lock);
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = 0; i < waiting; i++)
		ring[i] = cq->ring[(cq->cqe_ci + i) & cq->cqe_mask];
	old = cq->ring;
	cq->ring = ring;
	cq->cqe_mask = size - 1;
	cq->cqe_ci = 0;
	atomic_store_explicit(&cq->cqe_pi, waiting, memory_order_relaxed);
	ibv->cqe = (int)size;
	vb_unlock(&cq->lock);
	free(old);
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct vb_cq *cq = vb_cq(ibv);
	struct vb_ctx *ctx;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_destroy_cq, ibv);
	if (atomic_load(&cq->uses))
		return EBUSY;
	ctx = vb_ctx(ibv->context);
	vb_cq_detach_channel(cq);
	vb_async_flush_cq(ctx, cq);
	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&cq->node);
	pthread_mutex_unlock(&ctx->lock);
	if (cq->parent)
		atomic_fetch_sub(&cq->parent->uses, 1);
	free(cq->ring);
	free(cq->rqs);
	free(cq);
	return 0;
}
