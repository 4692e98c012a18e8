/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs and the tables of their send queues: of the ring itself, and of the send queues beside it. */
#include <errno.h>

#include "ring/verbs_priv.h"

/* RESET -> INIT -> RTR -> RTS; a raw packet queue pair needs nothing but its port. */
int pv_verbs_qp_start(struct verbs_ring *v, struct ibv_qp *qp, uint32_t kbps)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	for (size_t i = 0; i < pv_array_size(states); i++) {
		struct ibv_qp_attr attr = { .qp_state = states[i], .port_num = v->port, .rate_limit = kbps };
		int mask = IBV_QP_STATE, rc;

		if (states[i] == IBV_QPS_INIT)
			mask |= IBV_QP_PORT;
		if (states[i] == IBV_QPS_RTS && kbps)
			mask |= IBV_QP_RATE_LIMIT;
		rc = v->lib.modify_qp(qp, &attr, mask);
		if (rc)
			return -rc;
	}
	return 0;
}

struct ibv_qp *pv_verbs_qp_create(struct verbs_ring *v, struct verbs_qp_ask *ask)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, create_qp_ex);
	const struct ibv_qp_cap cap = {
		.max_send_wr = ask->send_wr,
		.max_recv_wr = ask->recv_wr,
		.max_send_sge = ask->sge,
		.max_recv_sge = 1,
		.max_inline_data = ask->inline_size,
	};
	struct ibv_qp_init_attr plain = { .qp_context = v, .send_cq = ask->send_cq, .recv_cq = ask->recv_cq, .cap = cap };
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = v,
		.send_cq = ask->send_cq,
		.recv_cq = ask->recv_cq,
		.cap = cap,
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = v->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp;

	errno = 0;
	plain.qp_type = IBV_QPT_RAW_PACKET;
	if (ask->tso) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
		attr.max_tso_header = VERBS_TSO_HEADER;
		attr.send_ops_flags |= IBV_QP_EX_WITH_TSO;
	}
	if (!ask->extended)
		attr.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (!ask->extended && !ask->tso) {
		qp = v->lib.create_qp(v->pd, &plain);
	} else if (vctx && (v->lib.qp_to_qp_ex || !ask->extended)) {
		qp = vctx->create_qp_ex(v->ctx, &attr);
		plain.cap = attr.cap;
	} else {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (qp) {
		ask->inline_size = plain.cap.max_inline_data;
		ask->sge = PV_MIN(ask->sge, plain.cap.max_send_sge);
	}
	return qp;
}

static uint32_t pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

int pv_verbs_txq_init(struct verbs_ring *v, struct verbs_txq *q, uint32_t depth)
{
	const struct pv_mem *mem = v->mem;

	q->depth = depth;
	q->slots = pow2(depth);
	q->sq_mask = q->slots - 1;
	q->signal_every = PV_MAX(1u, PV_MIN(VERBS_SIGNAL_EVERY, depth / 4));
	pv_pktq_init(&q->waiting);
	q->slot = mem->alloc(mem->ctx, q->slots * sizeof(*q->slot));
	if (!q->slot)
		return -ENOMEM;
	if (v->ask.extended)
		return 0;
	q->wr = mem->alloc(mem->ctx, q->slots * sizeof(*q->wr));
	q->sge = mem->alloc(mem->ctx, q->slots * v->ask.sge * sizeof(*q->sge));
	if (!q->wr || !q->sge)
		return -ENOMEM;
	for (uint32_t i = 0; i < q->slots; i++) {
		q->wr[i].next = &q->wr[(i + 1) & q->sq_mask];
		q->wr[i].sg_list = q->sge + i * v->ask.sge;
	}
	return 0;
}

void pv_verbs_txq_fini(struct verbs_ring *v, struct verbs_txq *q)
{
	const struct pv_mem *mem = v->mem;

	if (q->slot)
		mem->free(mem->ctx, q->slot, q->slots * sizeof(*q->slot));
	if (q->wr)
		mem->free(mem->ctx, q->wr, q->slots * sizeof(*q->wr));
	if (q->sge)
		mem->free(mem->ctx, q->sge, q->slots * v->ask.sge * sizeof(*q->sge));
}
