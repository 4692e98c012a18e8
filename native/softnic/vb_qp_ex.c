/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The extended send interface. Requests are collected from wr_start on, inline data copied at once since its buffer may be gone by the
 * end, and leave together in wr_complete; wr_abort forgets them. An error while building spoils the whole batch, as the manual page
 * ibv_wr_post(3) has it, and is what wr_complete returns.
 *
 * The QP's lock is held from wr_start to wr_complete or wr_abort.
 */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"
#include "softnic/vb_copy.h"

static struct vb_qp *of_ex(struct ibv_qp_ex *ex)
{
	return pv_container_of(ex, struct vb_qp, ex);
}

static struct vb_swqe *entry(const struct vb_qp *qp, uint32_t i)
{
	return (struct vb_swqe *)(qp->batch + (size_t)i * qp->batch_stride);
}

static void spoil(struct vb_qp *qp, int err)
{
	if (!qp->batch_err)
		qp->batch_err = err;
}

/* The request under construction, or NULL: there is none, it has its data already, or the batch is spoiled. */
static struct vb_swqe *open_entry(struct vb_qp *qp)
{
	struct vb_swqe *e;

	if (pv_unlikely(qp->batch_err))
		return NULL;
	if (pv_unlikely(!qp->batch_n || (e = entry(qp, qp->batch_n - 1))->set)) {
		spoil(qp, EINVAL);
		return NULL;
	}
	e->set = true;
	return e;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct vb_qp *qp = of_ex(ex);

	vb_lock(&qp->lock);
	qp->batch_n = 0;
	qp->batch_err = 0;
	qp->batch_tso = false;
}

/* A new request, or NULL: the batch is spoiled. */
pv_inline struct vb_swqe *new_entry(struct ibv_qp_ex *ex)
{
	struct vb_qp *qp = of_ex(ex);
	uint32_t used = qp->sq_pi - atomic_load_explicit(&qp->sq_ci, memory_order_acquire);
	struct vb_swqe *e;

	if (pv_unlikely(qp->batch_err))
		return NULL;
	if (pv_unlikely(ex->wr_flags & ~VB_SEND_FLAGS || (qp->batch_n && !entry(qp, qp->batch_n - 1)->set))) {
		spoil(qp, EINVAL);
		return NULL;
	}
	if (pv_unlikely(used + qp->batch_n >= qp->sq_size)) {
		spoil(qp, ENOMEM);
		return NULL;
	}
	e = entry(qp, qp->batch_n++);
	e->wr_id = ex->wr_id;
	e->flags = ex->wr_flags;
	e->nsge = 0;
	e->set = false;
	return e;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	new_entry(ex);
}

/* The headers are copied now, as inline data is. */
static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_len, uint16_t mss)
{
	struct vb_qp *qp = of_ex(ex);
	struct vb_swqe *e;

	if (hdr_len < VB_MIN_TSO_HEADER || hdr_len > qp->max_tso_header || !mss) {
		spoil(qp, EINVAL);
		return;
	}
	e = new_entry(ex);
	if (!e)
		return;
	e->flags |= VB_SEND_TSO;
	e->mss = mss;
	e->hdr_len = hdr_len;
	memcpy((uint8_t *)e + qp->batch_hdr, hdr, hdr_len);
	qp->batch_tso = true;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct vb_qp *qp = of_ex(ex);
	struct vb_swqe *e = open_entry(qp);

	if (pv_unlikely(!e))
		return;
	if (pv_unlikely(n > qp->max_send_sge)) {
		spoil(qp, EINVAL);
		return;
	}
	e->flags &= ~(unsigned int)IBV_SEND_INLINE;
	e->nsge = (uint32_t)n;
	for (size_t i = 0; i < n; i++)
		e->sge[i] = list[i];
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	const struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

/* One segment whose bytes stand right behind it. */
static uint8_t *inline_room(struct vb_swqe *e)
{
	e->flags |= IBV_SEND_INLINE;
	e->nsge = 1;
	e->sge[0].addr = (uintptr_t)&e->sge[1];
	e->sge[0].length = 0;
	return (uint8_t *)&e->sge[1];
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct vb_qp *qp = of_ex(ex);
	struct vb_swqe *e = open_entry(qp);

	if (pv_unlikely(!e))
		return;
	if (pv_unlikely(length > qp->max_inline)) {
		spoil(qp, EINVAL);
		return;
	}
	vb_copy(inline_room(e), addr, (uint32_t)length);
	e->sge[0].length = (uint32_t)length;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct vb_qp *qp = of_ex(ex);
	struct vb_swqe *e = open_entry(qp);
	size_t len = 0;
	uint8_t *to;

	if (pv_unlikely(!e))
		return;
	to = inline_room(e);
	for (size_t i = 0; i < n; i++) {
		if (pv_unlikely(list[i].length > qp->max_inline - len)) {
			spoil(qp, EINVAL);
			return;
		}
		vb_copy(to + len, list[i].addr, (uint32_t)list[i].length);
		len += list[i].length;
	}
	e->sge[0].length = (uint32_t)len;
}

/* A batch with segmentation in it. */
static pv_noinline int complete_mixed(struct vb_qp *qp)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < qp->batch_n; i++) {
		const struct vb_swqe *e = entry(qp, i);
		const struct vb_tso tso = { (const uint8_t *)e + qp->batch_hdr, e->hdr_len, e->mss };

		err = e->flags & VB_SEND_TSO ? vb_send_tso(qp, e->wr_id, e->sge, e->nsge, e->flags & ~VB_SEND_TSO, &tso)
					     : vb_send_one(qp, e->wr_id, e->sge, e->nsge, e->flags);
	}
	vb_unlock(&qp->lock);
	return err;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct vb_qp *qp = of_ex(ex);
	int err = qp->batch_err;

	if (pv_unlikely(!err && qp->batch_n && !entry(qp, qp->batch_n - 1)->set))
		err = EINVAL;
	if (pv_unlikely(qp->batch_tso && !err))
		return complete_mixed(qp);
	for (uint32_t i = 0; !err && i < qp->batch_n; i++) {
		const struct vb_swqe *e = entry(qp, i);

		err = vb_send_one(qp, e->wr_id, e->sge, e->nsge, e->flags);
	}
	vb_unlock(&qp->lock);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	vb_unlock(&of_ex(ex)->lock);
}

int vb_qp_ex_init(struct vb_qp *qp, uint64_t send_ops)
{
	struct ibv_qp_ex *ex = &qp->ex;
	size_t data = PV_MAX((size_t)qp->max_inline + sizeof(struct ibv_sge), qp->max_send_sge * sizeof(struct ibv_sge));

	qp->batch_hdr = (uint32_t)(sizeof(struct vb_swqe) + data);
	qp->batch_stride = (uint32_t)((qp->batch_hdr + qp->max_tso_header + 15) & ~(size_t)15);
	qp->batch = malloc((size_t)PV_MAX(qp->sq_size, 1u) * qp->batch_stride);
	if (!qp->batch)
		return ENOMEM;
	qp->extended = true;
	if (send_ops & IBV_QP_EX_WITH_SEND)
		ex->wr_send = wr_send;
	if (send_ops & IBV_QP_EX_WITH_TSO)
		ex->wr_send_tso = wr_send_tso;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	return 0;
}
