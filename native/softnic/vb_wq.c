/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive work queues and the tables that spread frames over them. Their frames come in on the context's own attachment. */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"

static int wq_post_recv(struct ibv_wq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_wq *wq = (struct vb_wq *)ibv;
	bool gone = vb_ctx(ibv->context)->gone;

	if (gone || ibv->state == IBV_WQS_RESET) {
		*bad = wr;
		return gone ? ENODEV : EINVAL;
	}
	return vb_rq_post(&wq->rq, wr, bad);
}

static uint32_t wq_flags(const struct ibv_context *context)
{
	return vb_has(context, VB_CAP_VLAN_STRIP) ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0;
}

static int wq_check(const struct ibv_context *context, const struct ibv_wq_init_attr *a)
{
	if (a->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS || a->wq_type != IBV_WQT_RQ || !a->pd || !a->cq ||
	    a->pd->context != context || a->cq->context != context || !a->max_wr || a->max_wr > VB_MAX_WR ||
	    a->max_sge > VB_MAX_SGE)
		return EINVAL;
	return a->comp_mask & IBV_WQ_INIT_ATTR_FLAGS && a->create_flags & ~wq_flags(context) ? EOPNOTSUPP : 0;
}

struct ibv_wq *vb_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *a)
{
	struct vb_ctx *ctx = vb_ctx(context);
	int err = ctx->gone || sn_port_removed(ctx->port) ? ENODEV : wq_check(context, a);
	struct vb_wq *wq;

	if (err)
		return vb_fail(err);
	wq = aligned_alloc(64, sizeof(*wq));
	if (!wq)
		return vb_fail(ENOMEM);
	memset(wq, 0, sizeof(*wq));
	wq->ibv.context = context;
	wq->ibv.pd = a->pd;
	wq->ibv.cq = a->cq;
	wq->ibv.wq_num = wq->ibv.handle = vb_next_qpn();
	wq->ibv.wq_type = IBV_WQT_RQ;
	wq->ibv.state = IBV_WQS_RESET;
	wq->ibv.post_recv = wq_post_recv;
	wq->rq.cq = vb_cq(a->cq);
	wq->rq.wq = wq;
	wq->rq.num = wq->ibv.wq_num;
	wq->rq.pd = vb_pd(a->pd)->base;
	wq->rq.lock.none = vb_pd(a->pd)->td != NULL;
	wq->rq.strip = a->comp_mask & IBV_WQ_INIT_ATTR_FLAGS && a->create_flags & IBV_WQ_FLAGS_CVLAN_STRIPPING;
	err = vb_rq_init(&wq->rq, ctx, ctx->port, a->max_wr, a->max_sge);
	if (!err) {
		vb_lock(&wq->rq.cq->lock);
		err = vb_cq_add_rq(wq->rq.cq, &wq->rq);
		vb_unlock(&wq->rq.cq->lock);
	}
	if (err) {
		vb_rq_fini(&wq->rq, ctx);
		free(wq);
		return vb_fail(err);
	}
	a->max_wr = wq->rq.mask + 1;
	a->max_sge = wq->rq.max_sge;
	atomic_fetch_add(&vb_pd(a->pd)->uses, 1);
	atomic_fetch_add(&wq->rq.cq->uses, 1);
	pthread_mutex_lock(&ctx->lock);
	pv_list_add(&ctx->wqs, &wq->node);
	pthread_mutex_unlock(&ctx->lock);
	return &wq->ibv;
}

/* RESET -> RDY -> ERR, and back to RESET from anywhere. */
static bool wq_may(enum ibv_wq_state from, enum ibv_wq_state to)
{
	switch (to) {
	case IBV_WQS_RESET:
		return true;
	case IBV_WQS_RDY:
		return from == IBV_WQS_RESET || from == IBV_WQS_RDY;
	case IBV_WQS_ERR:
		return from == IBV_WQS_RDY || from == IBV_WQS_ERR;
	default:
		return false;
	}
}

/* The CQ's lock is held. */
void vb_wq_fail(struct vb_wq *wq)
{
	wq->ibv.state = IBV_WQS_ERR;
	atomic_store(&wq->rq.mode, VB_RQ_FLUSH);
	if (atomic_load(&wq->rq.pi) != atomic_load(&wq->rq.ci))
		vb_cq_fire(wq->rq.cq, true);
}

static void wq_enter(struct vb_wq *wq, enum ibv_wq_state to)
{
	switch (to) {
	case IBV_WQS_RESET:
		atomic_store(&wq->rq.mode, VB_RQ_OFF);
		vb_rq_clear(&wq->rq);
		break;
	case IBV_WQS_RDY:
		if (wq->ibv.state == IBV_WQS_RDY)
			return;
		vb_rq_start(&wq->rq);
		break;
	default:
		vb_wq_fail(wq);
	}
	wq->ibv.state = to;
}

int vb_modify_wq(struct ibv_wq *ibv, struct ibv_wq_attr *a)
{
	struct vb_wq *wq = (struct vb_wq *)ibv;
	int err = 0;

	if (a->attr_mask & ~(uint32_t)(IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS))
		return EINVAL;
	if (a->attr_mask & IBV_WQ_ATTR_FLAGS && a->flags_mask & ~wq_flags(ibv->context))
		return EOPNOTSUPP;
	if (vb_ctx(ibv->context)->gone)
		return ENODEV;
	vb_lock(&wq->rq.lock);
	vb_lock(&wq->rq.cq->lock);
	if ((a->attr_mask & IBV_WQ_ATTR_CURR_STATE && a->curr_wq_state != ibv->state) ||
	    (a->attr_mask & IBV_WQ_ATTR_STATE && !wq_may(ibv->state, a->wq_state)))
		err = EINVAL;
	if (!err && a->attr_mask & IBV_WQ_ATTR_FLAGS && a->flags_mask) {
		wq->rq.strip = a->flags & IBV_WQ_FLAGS_CVLAN_STRIPPING;
		if (ibv->state == IBV_WQS_RDY)
			atomic_store(&wq->rq.mode, vb_rq_ready(&wq->rq));
	}
	if (!err && a->attr_mask & IBV_WQ_ATTR_STATE)
		wq_enter(wq, a->wq_state);
	vb_unlock(&wq->rq.cq->lock);
	vb_unlock(&wq->rq.lock);
	return err;
}

int vb_destroy_wq(struct ibv_wq *ibv)
{
	struct vb_wq *wq = (struct vb_wq *)ibv;
	struct vb_ctx *ctx = vb_ctx(ibv->context);

	if (atomic_load(&wq->uses))
		return EBUSY;
	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&wq->node);
	pthread_mutex_unlock(&ctx->lock);
	vb_lock(&wq->rq.cq->lock);
	vb_cq_del_rq(wq->rq.cq, &wq->rq);
	vb_unlock(&wq->rq.cq->lock);
	vb_async_flush_wq(ctx, wq);
	vb_rq_fini(&wq->rq, ctx);
	atomic_fetch_sub(&wq->rq.cq->uses, 1);
	atomic_fetch_sub(&vb_pd(ibv->pd)->uses, 1);
	free(wq);
	return 0;
}

struct ibv_rwq_ind_table *vb_create_rwq_ind_table(struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *a)
{
	static _Atomic int numbers;
	struct vb_ctx *ctx = vb_ctx(context);
	struct vb_ind_table *t;
	uint32_t size;

	if (a->comp_mask || a->log_ind_tbl_size > VB_MAX_IND_LOG || !a->ind_tbl)
		return vb_fail(EINVAL);
	size = 1u << a->log_ind_tbl_size;
	for (uint32_t i = 0; i < size; i++) {
		if (!a->ind_tbl[i] || a->ind_tbl[i]->context != context)
			return vb_fail(EINVAL);
	}
	t = calloc(1, sizeof(*t) + size * sizeof(t->wqs[0]));
	if (!t)
		return vb_fail(ENOMEM);
	t->ibv.context = context;
	t->ibv.ind_tbl_num = t->ibv.ind_tbl_handle = atomic_fetch_add(&numbers, 1) + 1;
	t->size = size;
	for (uint32_t i = 0; i < size; i++) {
		t->wqs[i] = (struct vb_wq *)a->ind_tbl[i];
		atomic_fetch_add(&t->wqs[i]->uses, 1);
	}
	pthread_mutex_lock(&ctx->lock);
	pv_list_add(&ctx->ind_tables, &t->node);
	pthread_mutex_unlock(&ctx->lock);
	return &t->ibv;
}

int vb_destroy_rwq_ind_table(struct ibv_rwq_ind_table *ibv)
{
	struct vb_ind_table *t = (struct vb_ind_table *)ibv;
	struct vb_ctx *ctx = vb_ctx(ibv->context);

	if (atomic_load(&t->uses))
		return EBUSY;
	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&t->node);
	pthread_mutex_unlock(&ctx->lock);
	for (uint32_t i = 0; i < t->size; i++)
		atomic_fetch_sub(&t->wqs[i]->uses, 1);
	free(t);
	return 0;
}
