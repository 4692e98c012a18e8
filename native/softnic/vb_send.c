/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending. A request is gathered and switched inside post_send, in the caller; it is complete when the call returns. The send queue
 * still fills like a real one: its room comes back when a signalled completion is polled, so a program that never asks for completions
 * meets ENOMEM here as it would on hardware.
 */
#include <string.h>

#include "softnic/vb.h"

/* An inline request's list goes to the fabric as it is. */
_Static_assert(sizeof(struct ibv_sge) == sizeof(struct sn_seg) && offsetof(struct ibv_sge, addr) == offsetof(struct sn_seg, base) &&
		   offsetof(struct ibv_sge, length) == offsetof(struct sn_seg, len) && sizeof(void *) == sizeof(uint64_t),
	       "an SGE reads as a segment");

static void complete(struct vb_qp *qp, uint64_t wr_id, uint32_t byte_len, enum ibv_wc_status status)
{
	const struct vb_cqe cqe = {
		.wr_id = wr_id,
		.qp = qp,
		.sq_ci = qp->sq_pi,
		.byte_len = byte_len,
		.qp_num = qp->ibv.qp_num,
		.status = (uint16_t)status,
		.opcode = IBV_WC_SEND,
	};

	vb_cq_push(qp->scq, &cqe);
}

/* An error completes whether it was asked to or not, and everything after it is flushed. */
static pv_noinline int fail(struct vb_qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	qp->sq_pi++;
	complete(qp, wr_id, 0, status);
	vb_lock_two(qp->scq, qp->rq.cq);
	vb_qp_fail(qp);
	vb_unlock_two(qp->scq, qp->rq.cq);
	return 0;
}

/* Not in RTS. */
static pv_noinline int post_other_state(struct vb_qp *qp, uint64_t wr_id, uint32_t state)
{
	if (state == VB_QPS_GONE)
		return ENODEV;
	if (state != IBV_QPS_ERR || !qp->scq)
		return EINVAL;
	if (qp->sq_pi - atomic_load_explicit(&qp->sq_ci, memory_order_acquire) >= qp->sq_size)
		return ENOMEM;
	qp->sq_pi++;
	complete(qp, wr_id, 0, IBV_WC_WR_FLUSH_ERR);
	return 0;
}

int vb_send_one(struct vb_qp *qp, uint64_t wr_id, const struct ibv_sge *list, uint32_t nsge, unsigned int flags)
{
	const uint32_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	const struct sn_seg *seg;
	struct sn_seg gathered[VB_MAX_SGE];
	uint32_t len = 0;
	int rc;

	if (pv_unlikely(state != IBV_QPS_RTS))
		return post_other_state(qp, wr_id, state);
	if (pv_unlikely(flags & ~VB_SEND_FLAGS || nsge > qp->max_send_sge))
		return EINVAL;
	if (pv_unlikely(qp->sq_pi - atomic_load_explicit(&qp->sq_ci, memory_order_acquire) >= qp->sq_size))
		return ENOMEM;
	if (flags & IBV_SEND_INLINE) {
		for (uint32_t i = 0; i < nsge; i++) {
			len += list[i].length;
			if (pv_unlikely(list[i].length > qp->max_inline || len > qp->max_inline))
				return EINVAL;
		}
		seg = (const struct sn_seg *)list;
	} else {
		for (uint32_t i = 0; i < nsge; i++) {
			const struct ibv_sge *sge = &list[i];

			gathered[i].len = sge->length;
			gathered[i].base = sge->length ? vb_sge_host(qp->mr_slots, qp->pd, sge, 0) : (const void *)qp;
			if (pv_unlikely(!gathered[i].base))
				return fail(qp, wr_id, IBV_WC_LOC_PROT_ERR);
			if (pv_unlikely(sge->length > SN_FRAME_MAX))
				return fail(qp, wr_id, IBV_WC_LOC_LEN_ERR);
			len += sge->length;
		}
		seg = gathered;
	}
	rc = sn_port_send(qp->port, seg, nsge, flags & IBV_SEND_IP_CSUM ? SN_TX_L3_CSUM | SN_TX_L4_CSUM : 0);
	/* A frame sent while the link is down is lost without a word, as on a wire. */
	if (pv_unlikely(rc && rc != -ENETDOWN))
		return fail(qp, wr_id, rc == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_QP_OP_ERR);
	qp->sq_pi++;
	if (qp->sig_all || flags & IBV_SEND_SIGNALED)
		complete(qp, wr_id, len, IBV_WC_SUCCESS);
	return 0;
}

int vb_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct vb_qp *qp = vb_qp(ibv);
	int err = 0;

	vb_lock(&qp->lock);
	for (; wr; wr = wr->next) {
		err = pv_likely(wr->opcode == IBV_WR_SEND)
			  ? vb_send_one(qp, wr->wr_id, wr->sg_list, (uint32_t)wr->num_sge, wr->send_flags)
			  : EINVAL;
		if (pv_unlikely(err)) {
			*bad = wr;
			break;
		}
	}
	vb_unlock(&qp->lock);
	return err;
}
