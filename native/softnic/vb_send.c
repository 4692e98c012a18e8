/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending. A request is gathered and switched inside post_send, in the caller; it is complete when the call returns, unless its queue pair
 * has a rate (vb_pace.c). The send queue still fills like a real one: its room comes back when a signalled completion is polled, so a
 * program that never asks for completions meets ENOMEM here as it would on hardware.
 *
 * What is rare costs the others nothing: vb_qp.force has a bit that no request may have, and a request that has one is looked at closely.
 */
#include <string.h>

#include "softnic/vb.h"

/* An inline request's list goes to the fabric as it is. */
_Static_assert(sizeof(struct ibv_sge) == sizeof(struct sn_seg) && offsetof(struct ibv_sge, addr) == offsetof(struct sn_seg, base) &&
		   offsetof(struct ibv_sge, length) == offsetof(struct sn_seg, len) && sizeof(void *) == sizeof(uint64_t),
	       "an SGE reads as a segment");

static void complete(struct vb_qp *qp, uint64_t wr_id, uint32_t byte_len)
{
	const struct vb_cqe cqe = {
		.wr_id = wr_id,
		.qp = qp,
		.sq_ci = qp->sq_pi,
		.byte_len = byte_len,
		.qp_num = qp->ibv.qp_num,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_SEND,
	};

	vb_cq_push(qp->scq, &cqe);
}

/* Where the QP may be paced: behind all that was sent before. */
static void complete_behind(struct vb_qp *qp, const struct vb_cqe *cqe, bool quiet)
{
	if (qp->pace)
		vb_pace_push(qp, cqe, quiet);
	else if (!quiet)
		vb_cq_push(qp->scq, cqe);
}

static void complete_error(struct vb_qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	const struct vb_cqe cqe = {
		.wr_id = wr_id,
		.qp = qp,
		.sq_ci = ++qp->sq_pi,
		.qp_num = qp->ibv.qp_num,
		.status = (uint16_t)status,
		.opcode = IBV_WC_SEND,
	};

	complete_behind(qp, &cqe, false);
}

pv_noinline int vb_send_fail(struct vb_qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	if (!qp->pace)
		sn_port_stamp_at(qp->port, 0);
	complete_error(qp, wr_id, status);
	vb_lock_two(qp->scq, qp->rq.cq);
	vb_qp_fail(qp);
	vb_unlock_two(qp->scq, qp->rq.cq);
	return 0;
}

static enum ibv_wc_status status_of(int rc)
{
	if (rc == -ENODEV)
		return IBV_WC_WR_FLUSH_ERR;
	return rc == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_QP_OP_ERR;
}

/* Not in RTS. A device that was taken out takes one request, which is flushed, as one that was on its way; then it is found missing. */
pv_noinline int vb_send_other_state(struct vb_qp *qp, uint64_t wr_id, uint32_t state)
{
	if (state == VB_QPS_GONE || (state == IBV_QPS_ERR && sn_port_removed(qp->port)))
		return ENODEV;
	if (state != IBV_QPS_ERR || !qp->scq)
		return EINVAL;
	if (qp->sq_pi - atomic_load_explicit(&qp->sq_ci, memory_order_acquire) >= qp->sq_size)
		return ENOMEM;
	complete_error(qp, wr_id, IBV_WC_WR_FLUSH_ERR);
	return 0;
}

/* What a list names, and how long it is: 0, EINVAL, or -(the status that the request completes with). */
pv_inline int gather(const struct vb_qp *qp, const struct ibv_sge *list, uint32_t nsge, struct sn_seg *to, uint32_t *total)
{
	uint32_t len = 0;

	for (uint32_t i = 0; i < nsge; i++) {
		const struct ibv_sge *sge = &list[i];

		to[i].len = sge->length;
		to[i].base = sge->length ? vb_sge_host(qp->mr_slots, qp->pd, sge, 0) : (const void *)qp;
		if (pv_unlikely(!to[i].base))
			return -(int)IBV_WC_LOC_PROT_ERR;
		if (pv_unlikely(sge->length > VB_MAX_TSO))
			return -(int)IBV_WC_LOC_LEN_ERR;
		len += sge->length;
	}
	*total = len;
	return 0;
}

pv_inline int inline_len(const struct vb_qp *qp, const struct ibv_sge *list, uint32_t nsge, uint32_t *total)
{
	uint32_t len = 0;

	for (uint32_t i = 0; i < nsge; i++) {
		len += list[i].length;
		if (pv_unlikely(list[i].length > qp->max_inline || len > qp->max_inline))
			return EINVAL;
	}
	*total = len;
	return 0;
}

int vb_send_gather(const struct vb_qp *qp, const struct ibv_sge *list, uint32_t nsge, unsigned int flags, struct vb_gather *g)
{
	g->nseg = nsge;
	if (flags & IBV_SEND_INLINE) {
		g->seg = (const struct sn_seg *)list;
		return inline_len(qp, list, nsge, &g->len);
	}
	g->seg = g->room;
	return gather(qp, list, nsge, g->room, &g->len);
}

/* ---- requests of queue pairs that something is special about ------------------------------------------------------------------------ */

bool vb_send_room(struct vb_qp *qp)
{
	if (qp->sq_pi - atomic_load_explicit(&qp->sq_ci, memory_order_acquire) >= qp->sq_size)
		return false;
	return !qp->pace || vb_pace_room(qp);
}

/* The frames of a request leave at one time, and that is what its completion says. */
void vb_send_begin(struct vb_qp *qp)
{
	qp->sent_ns = qp->scq->stamping ? sn_true_ns() : 0;
	if (!qp->pace)
		sn_port_stamp_at(qp->port, qp->sent_ns);
}

int vb_send_frame(struct vb_qp *qp, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags, bool tell)
{
	int rc = qp->pace ? vb_pace_frame(qp, seg, nseg, tx_flags, tell) : sn_port_send(qp->port, seg, nseg, tx_flags);

	/* A frame sent while the link is down is lost without a word, as on a wire. */
	return rc == -ENETDOWN ? 0 : rc;
}

void vb_send_end(struct vb_qp *qp, uint64_t wr_id, uint32_t byte_len, unsigned int flags)
{
	const struct vb_cqe cqe = {
		.wr_id = wr_id,
		.tstamp_ns = qp->pace ? 0 : qp->sent_ns,
		.qp = qp,
		.sq_ci = ++qp->sq_pi,
		.byte_len = byte_len,
		.qp_num = qp->ibv.qp_num,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_SEND,
	};

	if (!qp->pace)
		sn_port_stamp_at(qp->port, 0);
	complete_behind(qp, &cqe, !(flags & IBV_SEND_SIGNALED));
}

static pv_noinline int send_special(struct vb_qp *qp, uint64_t wr_id, const struct ibv_sge *list, uint32_t nsge, unsigned int flags)
{
	uint32_t tx_flags = flags & IBV_SEND_IP_CSUM ? SN_TX_L3_CSUM | SN_TX_L4_CSUM : 0;
	struct vb_gather g;
	int rc;

	if (flags & ~(VB_SEND_FLAGS | qp->force) || nsge > qp->max_send_sge || (tx_flags && !qp->csum))
		return EINVAL;
	if (!vb_send_room(qp))
		return ENOMEM;
	rc = vb_send_gather(qp, list, nsge, flags, &g);
	if (rc)
		return rc > 0 ? rc : vb_send_fail(qp, wr_id, (enum ibv_wc_status) - rc);
	vb_send_begin(qp);
	rc = vb_send_frame(qp, g.seg, g.nseg, tx_flags, flags & IBV_SEND_SIGNALED);
	if (rc)
		return vb_send_fail(qp, wr_id, status_of(rc));
	vb_send_end(qp, wr_id, g.len, flags);
	return 0;
}

/* ---- all others -------------------------------------------------------------------------------------------------------------------- */

int vb_send_one(struct vb_qp *qp, uint64_t wr_id, const struct ibv_sge *list, uint32_t nsge, unsigned int flags)
{
	const uint32_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	const struct sn_seg *seg;
	struct sn_seg gathered[VB_MAX_SGE];
	uint32_t len;
	int rc;

	if (pv_unlikely(state != IBV_QPS_RTS))
		return vb_send_other_state(qp, wr_id, state);
	flags |= qp->force;
	if (pv_unlikely(flags & ~VB_SEND_FLAGS || nsge > qp->max_send_sge))
		return send_special(qp, wr_id, list, nsge, flags);
	if (pv_unlikely(qp->sq_pi - atomic_load_explicit(&qp->sq_ci, memory_order_acquire) >= qp->sq_size))
		return ENOMEM;
	if (flags & IBV_SEND_INLINE) {
		seg = (const struct sn_seg *)list;
		rc = inline_len(qp, list, nsge, &len);
	} else {
		seg = gathered;
		rc = gather(qp, list, nsge, gathered, &len);
	}
	if (pv_unlikely(rc))
		return rc > 0 ? rc : vb_send_fail(qp, wr_id, (enum ibv_wc_status) - rc);
	rc = sn_port_send(qp->port, seg, nsge, flags & IBV_SEND_IP_CSUM ? SN_TX_L3_CSUM | SN_TX_L4_CSUM : 0);
	if (pv_unlikely(rc && rc != -ENETDOWN))
		return vb_send_fail(qp, wr_id, status_of(rc));
	qp->sq_pi++;
	if (flags & IBV_SEND_SIGNALED)
		complete(qp, wr_id, len);
	return 0;
}

static pv_noinline int post_other(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	const struct vb_tso tso = { wr->tso.hdr, wr->tso.hdr_sz, wr->tso.mss };

	if (wr->opcode != IBV_WR_TSO)
		return EINVAL;
	return vb_send_tso(qp, wr->wr_id, wr->sg_list, (uint32_t)wr->num_sge, wr->send_flags, &tso);
}

int vb_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct vb_qp *qp = vb_qp(ibv);
	int err = 0;

	vb_lock(&qp->lock);
	for (; wr; wr = wr->next) {
		err = pv_likely(wr->opcode == IBV_WR_SEND)
			  ? vb_send_one(qp, wr->wr_id, wr->sg_list, (uint32_t)wr->num_sge, wr->send_flags)
			  : post_other(qp, wr);
		if (pv_unlikely(err)) {
			*bad = wr;
			break;
		}
	}
	vb_unlock(&qp->lock);
	return err;
}
