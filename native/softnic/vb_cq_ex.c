/* SPDX-License-Identifier: BSD-3-Clause */
/* Extended polling: one completion at a time, read member by member. The CQ's lock is held from start_poll to end_poll. */
#include "softnic/vb_poll.h"

static struct vb_cq *of_ex(struct ibv_cq_ex *ex)
{
	return pv_container_of(ex, struct vb_cq, ex);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct vb_cq *cq = of_ex(ex);

	if (!vb_cq_next(cq, &cq->cur, &cq->cur_tstamp_ns))
		return ENOENT;
	ex->status = cq->cur.status;
	ex->wr_id = cq->cur.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct vb_cq *cq = of_ex(ex);
	int err;

	if (pv_unlikely(attr->comp_mask))
		return EINVAL;
	if (pv_unlikely(cq->stamps != cq->stamping))
		vb_cq_stamp(cq, true);
	vb_lock(&cq->lock);
	err = pv_likely(vb_cq_empty(cq)) ? ENOENT : next_poll(ex);
	/* An empty queue is not a poll that was started. */
	if (err)
		vb_unlock(&cq->lock);
	return err;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	vb_unlock(&of_ex(ex)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->cur.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->cur.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->cur.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->cur.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->cur.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint8_t read_zero8(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->cur.pkey_index;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	const struct vb_cq *cq = of_ex(ex);

	vb_clock_log(cq->ibv.context, cq->cur_tstamp_ns);
	return sn_clock_ticks(vb_ctx(cq->ibv.context)->port, cq->cur_tstamp_ns);
}

static uint64_t read_wallclock_ns(struct ibv_cq_ex *ex)
{
	const struct vb_cq *cq = of_ex(ex);

	vb_clock_log(cq->ibv.context, cq->cur_tstamp_ns);
	return (uint64_t)sn_clock_day(vb_ctx(cq->ibv.context)->port, cq->cur_tstamp_ns);
}

static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->cur_tag;
}

void vb_cq_ex_init(struct vb_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ex->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ex->read_sl = read_zero8;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = read_zero8;
	if (wc_flags & IBV_WC_EX_WITH_CVLAN)
		ex->read_cvlan = read_cvlan;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ex->read_completion_ts = read_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		ex->read_completion_wallclock_ns = read_wallclock_ns;
	if (wc_flags & IBV_WC_EX_WITH_FLOW_TAG)
		ex->read_flow_tag = read_flow_tag;
	cq->tags = wc_flags & IBV_WC_EX_WITH_FLOW_TAG;
	cq->stamps = wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	cq->stamping = cq->stamps;
}
