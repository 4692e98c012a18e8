/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving. A posted buffer waits in a ring of the process, an arrived frame in a slot of the fabric; they meet when the CQ is
 * polled, so that a frame is copied once, by the thread that will read it, and no thread has to run for it to arrive.
 *
 * Difference from hardware: a frame that finds no buffer is not dropped at once; it waits in the fabric's queue, whose overflow drops.
 */
#include <stdlib.h>
#include <string.h>

#include "softnic/fab_inline.h"
#include "softnic/vb.h"
#include "softnic/vb_copy.h"

static struct vb_rwqe *wqe_at(const struct vb_rq *rq, uint32_t index)
{
	return (struct vb_rwqe *)(rq->wqes + (size_t)(index & rq->mask) * rq->stride);
}

/* ---- life ---------------------------------------------------------------------------------------------------------------------- */

int vb_rq_init(struct vb_rq *rq, struct vb_ctx *ctx, struct sn_port *port, uint32_t max_wr, uint32_t max_sge)
{
	uint32_t size = 1, per_frame = (sn_port_mtu(ctx->port) + 18u + SN_SLOT_DATA - 1) / SN_SLOT_DATA;
	int rc;

	while (size < max_wr)
		size <<= 1;
	rq->mask = size - 1;
	rq->max_sge = PV_MAX(max_sge, 1u);
	rq->stride = (uint32_t)(sizeof(struct vb_rwqe) + rq->max_sge * sizeof(struct ibv_sge));
	rq->wqes = calloc(size, rq->stride);
	if (!rq->wqes)
		return ENOMEM;
	/* At least a burst, however few buffers the application posts at a time. */
	rc = sn_rxq_create(port, PV_MAX(size, 64u) * per_frame, &rq->rxq);
	if (rc) {
		free(rq->wqes);
		rq->wqes = NULL;
		return rc == -ENOSPC ? ENOMEM : -rc;
	}
	if (rq->cq->stamping)
		sn_rxq_set_tstamp(rq->rxq, true);
	rq->mr_slots = ctx->mr_slots;
	rq->csum_ok = ctx->off & VB_CAP_CSUM ? UINT32_MAX : VB_RX_CSUM;
	return 0;
}

void vb_rq_fini(struct vb_rq *rq, const struct vb_ctx *ctx)
{
	if (rq->rxq && !ctx->gone)
		sn_rxq_destroy(rq->rxq);
	free(rq->wqes);
}

void vb_rq_clear(struct vb_rq *rq)
{
	atomic_store_explicit(&rq->ci, atomic_load_explicit(&rq->pi, memory_order_acquire), memory_order_release);
}

/* A queue that is not ready takes no frames; what rules brought here in the meantime is gone. */
void vb_rq_start(struct vb_rq *rq)
{
	struct sn_frame f;

	while (sn_rxq_peek(rq->rxq, &f))
		sn_rxq_pop(rq->rxq);
	atomic_store(&rq->mode, vb_rq_ready(rq));
	/* Such a frame may have kept the queue from being armed; one that comes just now completes. */
	if (atomic_load(&rq->cq->armed) == VB_ARM_ANY && vb_rq_arm(rq))
		vb_cq_fire(rq->cq, true);
}

/* ---- posting --------------------------------------------------------------------------------------------------------------------- */

int vb_rq_post(struct vb_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	uint32_t pi;
	int err = 0;

	vb_lock(&rq->lock);
	pi = atomic_load_explicit(&rq->pi, memory_order_relaxed);
	for (; wr; wr = wr->next) {
		struct vb_rwqe *e = wqe_at(rq, pi);

		if (pv_unlikely((uint32_t)wr->num_sge > rq->max_sge)) {
			err = EINVAL;
			break;
		}
		if (pv_unlikely(pi - atomic_load_explicit(&rq->ci, memory_order_acquire) > rq->mask)) {
			err = ENOMEM;
			break;
		}
		e->wr_id = wr->wr_id;
		e->nsge = (uint32_t)wr->num_sge;
		for (uint32_t i = 0; i < e->nsge; i++)
			e->sge[i] = wr->sg_list[i];
		pi++;
	}
	atomic_store_explicit(&rq->pi, pi, memory_order_release);
	vb_unlock(&rq->lock);
	if (pv_unlikely(err))
		*bad = wr;
	/* A frame may wait for this buffer, or the buffer may be flushed: both complete. Another thread that arms stores and looks the
	 * other way round, and one of the two has to see the other. */
	if (rq->cq->chan && !__libc_single_threaded)
		sn_full_fence();
	if (pv_unlikely(atomic_load_explicit(&rq->cq->armed, memory_order_relaxed)))
		vb_cq_check_armed(rq->cq);
	return err;
}

int vb_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_qp *qp = vb_qp(ibv);
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	if (pv_unlikely(!qp->has_rq || state == IBV_QPS_RESET || state == VB_QPS_GONE)) {
		*bad = wr;
		return state == VB_QPS_GONE ? ENODEV : EINVAL;
	}
	if (pv_unlikely(state == IBV_QPS_ERR && sn_port_removed(qp->port))) {
		*bad = wr;
		return ENODEV;
	}
	return vb_rq_post(&qp->rq, wr, bad);
}

/* ---- completing -------------------------------------------------------------------------------------------------------------------- */

/* Copies the pieces of a frame into the buffers of a request. */
static enum ibv_wc_status scatter_many(const struct vb_rq *rq, const struct vb_rwqe *e, const struct sn_frame *f)
{
	uint32_t room = 0, seg = 0, seg_at = 0, left = f->len;

	for (uint32_t i = 0; i < e->nsge && left; i++) {
		uint32_t n = PV_MIN(e->sge[i].length, left);
		uint8_t *to;

		if (!e->sge[i].length)
			continue;
		to = vb_sge_host(rq->mr_slots, rq->pd, &e->sge[i], IBV_ACCESS_LOCAL_WRITE);
		if (!to)
			return IBV_WC_LOC_PROT_ERR;
		left -= n;
		for (room = n; room;) {
			uint32_t part = PV_MIN(room, f->seg_len[seg] - seg_at);

			memcpy(to, f->seg[seg] + seg_at, part);
			to += part;
			room -= part;
			seg_at += part;
			if (seg_at == f->seg_len[seg]) {
				seg++;
				seg_at = 0;
			}
		}
	}
	return left ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

pv_inline enum ibv_wc_status scatter(const struct vb_rq *rq, const struct vb_rwqe *e, const struct sn_frame *f)
{
	uint8_t *to;

	if (pv_unlikely(f->nseg != 1 || e->nsge < 1 || e->sge[0].length < f->len))
		return scatter_many(rq, e, f);
	to = vb_sge_host(rq->mr_slots, rq->pd, &e->sge[0], IBV_ACCESS_LOCAL_WRITE);
	if (pv_unlikely(!to))
		return IBV_WC_LOC_PROT_ERR;
	vb_copy(to, f->seg[0], f->len);
	return IBV_WC_SUCCESS;
}

pv_inline void wc_fill(struct ibv_wc *wc, const struct vb_rq *rq, uint64_t wr_id, enum ibv_wc_status status)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = wr_id;
	wc->status = status;
	wc->opcode = IBV_WC_RECV;
	wc->qp_num = rq->num;
}

static bool flush_one(struct vb_rq *rq, struct ibv_wc *wc, uint64_t *tstamp_ns)
{
	uint32_t ci = atomic_load_explicit(&rq->ci, memory_order_relaxed);

	if (atomic_load_explicit(&rq->mode, memory_order_relaxed) != VB_RQ_FLUSH ||
	    ci == atomic_load_explicit(&rq->pi, memory_order_acquire))
		return false;
	wc_fill(wc, rq, wqe_at(rq, ci)->wr_id, IBV_WC_WR_FLUSH_ERR);
	*tstamp_ns = rq->cq->stamping ? sn_true_ns() : 0;
	atomic_store_explicit(&rq->ci, ci + 1, memory_order_release);
	return true;
}

static pv_noinline void rq_fail(struct vb_rq *rq)
{
	if (rq->qp)
		vb_qp_fail(rq->qp);
	else
		vb_wq_fail(rq->wq);
}

/* Stamps of a queue never go back: of senders that overtake each other between claiming a slot and looking at the clock, the later slot has
 * the earlier time. A frame that came before stamping began has the time when it is found. */
static pv_noinline uint64_t stamp_of(struct vb_rq *rq, const struct sn_frame *f)
{
	uint64_t at = f->flags & SN_RX_STAMPED ? f->tstamp_ns : sn_true_ns();

	rq->last_stamp_ns = PV_MAX(at, rq->last_stamp_ns);
	return rq->last_stamp_ns;
}

/* A customer's tag, which lies behind the addresses, becomes a word of the completion: as mlx5, the outer one and of that type only. */
static pv_noinline void strip(struct sn_frame *f, uint16_t *tci)
{
	const uint8_t *head = f->seg[0];

	if (f->len < 18 || f->seg_len[0] < 18 || head[12] != 0x81 || head[13] != 0x00)
		return;
	*tci = (uint16_t)(head[14] << 8 | head[15]);
	memmove(&f->seg[1], &f->seg[0], f->nseg * sizeof(f->seg[0]));
	memmove(&f->seg_len[1], &f->seg_len[0], f->nseg * sizeof(f->seg_len[0]));
	f->seg_len[0] = 12;
	f->seg[1] += 16;
	f->seg_len[1] -= 16;
	f->nseg++;
	f->len -= 4;
}

pv_inline bool take(struct vb_rq *rq, struct ibv_wc *wc, uint64_t *tstamp_ns, bool stripping)
{
	enum ibv_wc_status status;
	const struct vb_rwqe *e;
	struct sn_frame f;
	uint16_t tci = 0;
	uint32_t ci;

	if (!sn_rxq_look(rq->rxq, &f))
		return false;
	ci = atomic_load_explicit(&rq->ci, memory_order_relaxed);
	if (pv_unlikely(ci == atomic_load_explicit(&rq->pi, memory_order_acquire)))
		return false;
	e = wqe_at(rq, ci);
	if (stripping)
		strip(&f, &tci);
	status = scatter(rq, e, &f);
	wc_fill(wc, rq, e->wr_id, status);
	wc->byte_len = f.len;
	if (stripping)
		wc->pkey_index = tci;
	/* As mlx5: a verdict on the IPv4 header and the TCP or UDP checksum together; nothing is said of other packets. */
	if ((f.flags & VB_RX_CSUM) == rq->csum_ok)
		wc->wc_flags = IBV_WC_IP_CSUM_OK;
	if (pv_unlikely(rq->cq->stamping))
		*tstamp_ns = stamp_of(rq, &f);
	if (pv_unlikely(rq->cq->tags))
		rq->cq->cur_tag = f.flags & SN_RX_TAG ? sn_rxq_hash(rq->rxq) : 0;
	sn_rxq_drop(rq->rxq);
	atomic_store_explicit(&rq->ci, ci + 1, memory_order_release);
	if (pv_unlikely(status != IBV_WC_SUCCESS))
		rq_fail(rq);
	return true;
}

static pv_noinline bool take_other(struct vb_rq *rq, struct ibv_wc *wc, uint64_t *tstamp_ns)
{
	if (atomic_load_explicit(&rq->mode, memory_order_relaxed) == VB_RQ_STRIP)
		return take(rq, wc, tstamp_ns, true);
	return flush_one(rq, wc, tstamp_ns);
}

bool vb_rq_take(struct vb_rq *rq, struct ibv_wc *wc, uint64_t *tstamp_ns)
{
	if (pv_unlikely(atomic_load_explicit(&rq->mode, memory_order_relaxed) != VB_RQ_READY))
		return take_other(rq, wc, tstamp_ns);
	return take(rq, wc, tstamp_ns, false);
}
