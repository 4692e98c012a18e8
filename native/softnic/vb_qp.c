/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs: raw packet ones, and RSS ones that only spread what rules bring them over an indirection table.
 *
 * Each QP has an attachment of its own to the port: it sends without a lock of the port, and the switch does not bring its frames back
 * to its own receive queue.
 */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"

uint32_t vb_next_qpn(void)
{
	static _Atomic uint32_t next = 0x100;

	return atomic_fetch_add(&next, 1) & 0xffffff;
}

/* ---- create ---------------------------------------------------------------------------------------------------------------------- */

static int check_rss(const struct ibv_qp_init_attr_ex *a)
{
	const uint64_t ip4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, ip6 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
	const uint64_t tcp = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
	const uint64_t udp = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
	const struct ibv_rx_hash_conf *h = &a->rx_hash_conf;

	if (!(a->comp_mask & IBV_QP_INIT_ATTR_RX_HASH) || !a->rwq_ind_tbl || !vb_ours(a->rwq_ind_tbl->context))
		return EINVAL;
	if (h->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ || h->rx_hash_fields_mask & ~(ip4 | ip6 | tcp | udp))
		return EOPNOTSUPP;
	if (h->rx_hash_key_len != 40 || !h->rx_hash_key)
		return EINVAL;
	if ((h->rx_hash_fields_mask & ip4 && h->rx_hash_fields_mask & ip6) ||
	    (h->rx_hash_fields_mask & tcp && h->rx_hash_fields_mask & udp))
		return EINVAL;
	return a->cap.max_send_wr > VB_MAX_WR ? EINVAL : 0;
}

static int check_cq(const struct ibv_cq *cq, const struct ibv_context *context, uint32_t wr)
{
	if (!cq)
		return wr ? EINVAL : 0;
	return cq->context == context ? 0 : EINVAL;
}

/* IBV_QP_EX_WITH_* that the device has; checked for devices without extended queue pairs elsewhere. */
static uint64_t send_ops(const struct ibv_context *context)
{
	return vb_has(context, VB_CAP_TSO) ? IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO : IBV_QP_EX_WITH_SEND;
}

/* The first is how this switch behaves anyway. */
static uint32_t create_flags(const struct ibv_context *context)
{
	return IBV_QP_CREATE_BLOCK_SELF_MCAST_LB |
	       (vb_has(context, VB_CAP_VLAN_STRIP) ? (uint32_t)IBV_QP_CREATE_CVLAN_STRIPPING : 0);
}

static int check_attr(const struct ibv_context *context, const struct ibv_qp_init_attr_ex *a)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
			       IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	const struct ibv_qp_cap *c = &a->cap;

	if (a->qp_type != IBV_QPT_RAW_PACKET || a->srq)
		return EOPNOTSUPP;
	if (a->comp_mask & ~known || !(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || a->pd->context != context)
		return EINVAL;
	if (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags & ~create_flags(context))
		return EOPNOTSUPP;
	if (a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER && a->max_tso_header) {
		if (!vb_has(context, VB_CAP_TSO))
			return EOPNOTSUPP;
		if (a->max_tso_header > VB_MAX_TSO_HEADER)
			return EINVAL;
	}
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && a->send_ops_flags & ~send_ops(context))
		return EOPNOTSUPP;
	if (a->comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH))
		return check_rss(a);
	if (c->max_send_wr > VB_MAX_WR || c->max_recv_wr > VB_MAX_WR || c->max_send_sge > VB_MAX_SGE ||
	    c->max_recv_sge > VB_MAX_SGE || c->max_inline_data > (vb_has(context, VB_CAP_INLINE) ? VB_MAX_INLINE : 0))
		return EINVAL;
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && !vb_has(context, VB_CAP_EXTENDED))
		return EOPNOTSUPP;
	return check_cq(a->send_cq, context, c->max_send_wr) | check_cq(a->recv_cq, context, c->max_recv_wr);
}

void vb_qp_settle(struct vb_qp *qp)
{
	bool special = qp->pace || !qp->csum || (qp->scq && qp->scq->stamping);

	qp->force = (qp->sig_all ? (uint32_t)IBV_SEND_SIGNALED : 0) | (special ? VB_SEND_SPECIAL : 0);
}

/* Spreading only: no queues of its own. */
static int init_rss(struct vb_qp *qp, const struct ibv_qp_init_attr_ex *a)
{
	qp->ind_table = (struct vb_ind_table *)a->rwq_ind_tbl;
	atomic_fetch_add(&qp->ind_table->uses, 1);
	memcpy(qp->rss_key, a->rx_hash_conf.rx_hash_key, sizeof(qp->rss_key));
	qp->rss_fields = (uint32_t)a->rx_hash_conf.rx_hash_fields_mask;
	memset(&qp->cap, 0, sizeof(qp->cap));
	return 0;
}

static int init_queues(struct vb_qp *qp, struct vb_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	int err = -sn_port_attach(ctx->fabric, ctx->dev->port, &ctx->dev->cfg, &qp->port);

	if (err)
		return err == ENOSPC ? ENOMEM : err;
	qp->scq = (struct vb_cq *)a->send_cq;
	qp->sq_size = a->cap.max_send_wr;
	qp->max_send_sge = PV_MAX(a->cap.max_send_sge, 1u);
	/* Copying is what sending is: every QP can inline, whatever it asked for. */
	qp->max_inline = vb_has(&ctx->v.context, VB_CAP_INLINE) ? PV_MAX(a->cap.max_inline_data, 256u) : 0;
	if (a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER)
		qp->max_tso_header = a->max_tso_header;
	qp->has_rq = a->recv_cq && a->cap.max_recv_wr;
	qp->cap = a->cap;
	qp->cap.max_send_sge = qp->max_send_sge;
	qp->cap.max_inline_data = qp->max_inline;
	vb_qp_settle(qp);
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		err = vb_qp_ex_init(qp, a->send_ops_flags);
		if (err)
			return err;
	}
	if (!qp->has_rq)
		return 0;
	qp->rq.cq = (struct vb_cq *)a->recv_cq;
	qp->rq.qp = qp;
	qp->rq.num = qp->ibv.qp_num;
	qp->rq.pd = qp->pd;
	qp->rq.lock.none = qp->lock.none;
	qp->rq.strip = a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags & IBV_QP_CREATE_CVLAN_STRIPPING;
	err = vb_rq_init(&qp->rq, ctx, qp->port, a->cap.max_recv_wr, a->cap.max_recv_sge);
	if (err)
		return err;
	qp->cap.max_recv_wr = qp->rq.mask + 1;
	qp->cap.max_recv_sge = qp->rq.max_sge;
	vb_lock(&qp->rq.cq->lock);
	err = vb_cq_add_rq(qp->rq.cq, &qp->rq);
	vb_unlock(&qp->rq.cq->lock);
	return err;
}

static void qp_free(struct vb_qp *qp, const struct vb_ctx *ctx)
{
	vb_rq_fini(&qp->rq, ctx);
	if (qp->port && !ctx->gone)
		sn_port_detach(qp->port);
	if (qp->ind_table)
		atomic_fetch_sub(&qp->ind_table->uses, 1);
	free(qp->batch);
	free(qp);
}

static struct vb_qp *qp_new(struct vb_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	struct vb_qp *qp = aligned_alloc(64, sizeof(*qp));

	if (!qp)
		return NULL;
	memset(qp, 0, sizeof(*qp));
	qp->ibv.context = &ctx->v.context;
	qp->ibv.qp_context = a->qp_context;
	qp->ibv.pd = a->pd;
	qp->ibv.send_cq = a->send_cq;
	qp->ibv.recv_cq = a->recv_cq;
	qp->ibv.qp_num = vb_next_qpn();
	qp->ibv.handle = qp->ibv.qp_num;
	qp->ibv.qp_type = IBV_QPT_RAW_PACKET;
	qp->ibv.state = IBV_QPS_RESET;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	atomic_init(&qp->state, IBV_QPS_RESET);
	qp->owner_pd = vb_pd(a->pd);
	qp->pd = qp->owner_pd->base;
	qp->lock.none = qp->owner_pd->td != NULL;
	qp->mr_slots = ctx->mr_slots;
	qp->sig_all = a->sq_sig_all;
	qp->csum = !(ctx->off & VB_CAP_CSUM);
	return qp;
}

struct ibv_qp *vb_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *a)
{
	struct vb_ctx *ctx = vb_ctx(context);
	int err = ctx->gone || sn_port_removed(ctx->port) ? ENODEV : check_attr(context, a);
	struct vb_qp *qp;

	if (err)
		return vb_fail(err);
	qp = qp_new(ctx, a);
	if (!qp)
		return vb_fail(ENOMEM);
	err = a->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE ? init_rss(qp, a) : init_queues(qp, ctx, a);
	if (err) {
		qp_free(qp, ctx);
		return vb_fail(err);
	}
	atomic_fetch_add(&qp->owner_pd->uses, 1);
	if (qp->scq)
		atomic_fetch_add(&qp->scq->uses, 1);
	if (a->recv_cq && !qp->ind_table)
		atomic_fetch_add(&vb_cq(a->recv_cq)->uses, 1);
	pthread_mutex_lock(&ctx->lock);
	pv_list_add(&ctx->qps, &qp->node);
	pthread_mutex_unlock(&ctx->lock);
	a->cap = qp->cap;
	return &qp->ibv;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = { .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct ibv_qp *qp;

	if (!vb_ours(pd->context))
		return VB_FORWARD_PTR(ibv_create_qp, pd, attr);
	ex.qp_context = attr->qp_context;
	ex.send_cq = attr->send_cq;
	ex.recv_cq = attr->recv_cq;
	ex.srq = attr->srq;
	ex.cap = attr->cap;
	ex.qp_type = attr->qp_type;
	ex.sq_sig_all = attr->sq_sig_all;
	qp = vb_create_qp_ex(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct vb_qp *qp = vb_qp(ibv);
	struct vb_ctx *ctx;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_destroy_qp, ibv);
	if (atomic_load(&qp->uses))
		return EBUSY;
	ctx = vb_ctx(ibv->context);
	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&qp->node);
	pthread_mutex_unlock(&ctx->lock);
	vb_lock_two(qp->scq, qp->rq.cq);
	if (qp->rq.cq)
		vb_cq_del_rq(qp->rq.cq, &qp->rq);
	if (!ctx->gone)
		vb_pace_end(qp, true);
	if (qp->scq)
		vb_cq_forget_qp(qp->scq, qp);
	vb_unlock_two(qp->scq, qp->rq.cq);
	vb_async_flush_qp(ctx, qp);
	if (qp->scq)
		atomic_fetch_sub(&qp->scq->uses, 1);
	if (ibv->recv_cq && !qp->ind_table)
		atomic_fetch_sub(&vb_cq(ibv->recv_cq)->uses, 1);
	atomic_fetch_sub(&qp->owner_pd->uses, 1);
	qp_free(qp, ctx);
	return 0;
}

/* ---- states ------------------------------------------------------------------------------------------------------------------------ */

struct transition {
	bool valid;
	int required, optional;
};

/* As the kernel's table has them for raw packet QPs, without the drained states, which no hardware offers for this type. */
static const struct transition transitions[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_INIT] = { .valid = true, .required = IBV_QP_PORT },
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_INIT] = { .valid = true },
		[IBV_QPS_RTR] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_RTS] = { .valid = true, .optional = IBV_QP_RATE_LIMIT },
		[IBV_QPS_ERR] = { .valid = true },
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_RTS] = { .valid = true, .optional = IBV_QP_RATE_LIMIT },
		[IBV_QPS_ERR] = { .valid = true },
	},
	[IBV_QPS_ERR] = {
		[IBV_QPS_RESET] = { .valid = true },
		[IBV_QPS_ERR] = { .valid = true },
	},
};

static int check_modify(const struct ibv_context *context, uint32_t state, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t cur = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : state;
	uint32_t to = mask & IBV_QP_STATE ? attr->qp_state : cur;
	const struct transition *t;

	if (cur != state || to > IBV_QPS_ERR)
		return EINVAL;
	/* Only a state that the QP can leave by itself is one to assume. */
	if (mask & IBV_QP_CUR_STATE && cur != IBV_QPS_RTR && cur != IBV_QPS_RTS)
		return EINVAL;
	t = &transitions[cur][to];
	if (!t->valid || (mask & t->required) != t->required)
		return EINVAL;
	if (mask & IBV_QP_RATE_LIMIT && !vb_has(context, VB_CAP_PACING))
		return EOPNOTSUPP;
	if (mask & ~(t->required | t->optional | IBV_QP_STATE | IBV_QP_CUR_STATE))
		return EINVAL;
	if (mask & IBV_QP_PORT && attr->port_num != 1)
		return EINVAL;
	return mask & IBV_QP_RATE_LIMIT && attr->rate_limit > VB_MAX_RATE_KBPS ? EINVAL : 0;
}

/* With the locks of the QP, of posting receives and of both CQs. */
static void enter(struct vb_qp *qp, uint32_t from, uint32_t to)
{
	struct vb_rq *rq = &qp->rq;

	switch (to) {
	case IBV_QPS_RESET:
		atomic_store(&rq->mode, VB_RQ_OFF);
		if (qp->has_rq)
			vb_rq_clear(rq);
		vb_pace_end(qp, true);
		if (qp->scq)
			vb_cq_forget_qp(qp->scq, qp);
		qp->sq_pi = 0;
		atomic_store(&qp->sq_ci, 0);
		break;
	case IBV_QPS_RTR:
		if (qp->has_rq)
			vb_rq_start(rq);
		break;
	case IBV_QPS_ERR:
		vb_pace_end(qp, true);
		if (from != IBV_QPS_ERR)
			vb_qp_fail(qp);
		break;
	default:
		break;
	}
	atomic_store(&qp->state, to);
}

void vb_qp_fail(struct vb_qp *qp)
{
	atomic_store(&qp->state, IBV_QPS_ERR);
	if (!qp->has_rq)
		return;
	atomic_store(&qp->rq.mode, VB_RQ_FLUSH);
	if (atomic_load(&qp->rq.pi) != atomic_load(&qp->rq.ci))
		vb_cq_fire(qp->rq.cq, true);
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct vb_qp *qp = vb_qp(ibv);
	uint32_t state;
	int err;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_modify_qp, ibv, attr, mask);
	if (qp->ind_table)
		return EOPNOTSUPP;
	vb_lock(&qp->lock);
	vb_lock(&qp->rq.lock);
	vb_lock_two(qp->scq, qp->rq.cq);
	state = atomic_load(&qp->state);
	err = state == VB_QPS_GONE ? ENODEV : check_modify(ibv->context, state, attr, mask);
	if (!err && mask & IBV_QP_RATE_LIMIT)
		err = vb_pace_set(qp, &(struct sn_rate){ .kbps = attr->rate_limit });
	if (!err) {
		if (mask & IBV_QP_STATE) {
			enter(qp, state, attr->qp_state);
			ibv->state = attr->qp_state;
		}
		if (mask & IBV_QP_PORT)
			qp->port_num = attr->port_num;
	}
	vb_unlock_two(qp->scq, qp->rq.cq);
	vb_unlock(&qp->rq.lock);
	vb_unlock(&qp->lock);
	return err;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct vb_qp *qp = vb_qp(ibv);
	uint32_t state;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_query_qp, ibv, attr, mask, init);
	if (qp->ind_table)
		return EOPNOTSUPP;
	state = atomic_load(&qp->state);
	if (state == VB_QPS_GONE)
		return ENODEV;
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)state;
	attr->cap = qp->cap;
	attr->port_num = qp->port_num;
	memset(init, 0, sizeof(*init));
	init->qp_context = ibv->qp_context;
	init->send_cq = ibv->send_cq;
	init->recv_cq = ibv->recv_cq;
	init->qp_type = ibv->qp_type;
	init->cap = qp->cap;
	init->sq_sig_all = qp->sig_all;
	return 0;
}

/* A frame is copied before its completion exists. */
int ibv_query_qp_data_in_order(struct ibv_qp *ibv, enum ibv_wr_opcode op, uint32_t flags)
{
	if (!vb_ours(ibv->context))
		return vb_real()->ibv_query_qp_data_in_order ? vb_real()->ibv_query_qp_data_in_order(ibv, op, flags) : 0;
	return !flags && op == IBV_WR_SEND;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct vb_qp *qp = vb_qp(ibv);

	if (!vb_ours(ibv->context))
		return vb_real()->ibv_qp_to_qp_ex ? vb_real()->ibv_qp_to_qp_ex(ibv) : NULL;
	return qp->extended ? &qp->ex : NULL;
}
