/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time stamps. A completion queue that can stamp is an extended one; it is read by ibv_poll_cq like any other until stamps are asked
 * for, and by ibv_start_poll from then on. A packet whose departure is to be stamped is never copied at post: it stays in its slot until
 * its own completion, which is asked for, has said when.
 *
 * The device's clock of the day is not in libibverbs: mlx5's direct interface shows how the driver disciplines the free-running counter
 * (mlx5dv_get_clock_info). It is looked for in the verbs library itself, where the software NIC has it, and else in libmlx5, which is
 * asked first whether the device is its own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>

#include "ring/verbs_priv.h"

#define WALL IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK

static struct ibv_cq_ex *try_cq(struct verbs_ring *v, uint32_t cqe, struct ibv_comp_channel *channel, uint64_t stamps)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, create_cq_ex);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.cq_context = v,
		.channel = channel,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | stamps,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct ibv_cq_ex *cq;

	if (!vctx)
		return NULL;
	cq = vctx->create_cq_ex(v->ctx, &attr);
	if (cq)
		return cq;
	attr.comp_mask = attr.flags = 0;
	return vctx->create_cq_ex(v->ctx, &attr);
}

/* All queues of a ring have stamps of one kind, or none: the first tells which. */
struct ibv_cq *pv_verbs_create_cq(struct verbs_ring *v, uint32_t cqe, struct ibv_comp_channel *channel, struct ibv_cq_ex **cqx)
{
	struct ibv_cq_ex *cq = NULL;

	if (v->stamps == PV_VERBS_STAMPS_WALL) {
		cq = try_cq(v, cqe, channel, WALL);
		if (!cq && !v->rx_cqx)
			v->stamps = PV_VERBS_STAMPS_RAW;
		v->wall |= cq != NULL;
	}
	if (v->stamps == PV_VERBS_STAMPS_RAW)
		cq = try_cq(v, cqe, channel, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
	*cqx = cq;
	if (cq)
		return ibv_cq_ex_to_cq(cq);
	errno = 0;
	return v->lib.create_cq(v->ctx, (int)cqe, v, channel, 0);
}

void pv_verbs_stamp_caps(struct verbs_ring *v, const struct ibv_device_attr_ex *attr)
{
	struct pv_ring_caps *caps = &v->ring.caps;

	if (!v->rx_cqx)
		return;
	caps->tstamp = v->wall ? PV_TSTAMP_REALTIME : PV_TSTAMP_RAW;
	caps->tstamp_khz = attr->hca_core_clock; /* documented in kHz, though its name is often read as MHz */
	caps->tstamp_mask = v->ts_mask = attr->completion_timestamp_mask;
	caps->tx_tstamp = v->tx.cqx != NULL;
}

int pv_verbs_set_stamps(struct pv_ring *r, bool rx, bool tx)
{
	struct verbs_ring *v = verbs_ring(r);

	v->tx_stamps = tx && v->tx.cqx;
	/* From here on, not from the first completion on. */
	if (v->tx_stamps && !v->gone)
		pv_verbs_tx_poll_stamps(v, &v->tx);
	pv_verbs_set_rx_poll(v, rx ? pv_verbs_ext_rx_poll : pv_verbs_legacy_rx_poll);
	return v->gone ? -ENODEV : 0;
}

/* The completion behind WR number `upto` - 1 is that packet's own, since it was signalled. */
static void stamp_packet(struct verbs_ring *v, const struct verbs_txq *q, uint32_t upto)
{
	struct pv_pkt *p;

	if (upto - 1 - q->sq_head >= q->sq_tail - q->sq_head)
		return; /* as in pv_verbs_retire */
	p = q->slot[(upto - 1) & q->sq_mask];
	if (!p || !(p->flags & PV_PKT_TX_TSTAMP))
		return;
	p->tstamp = v->wall ? ibv_wc_read_completion_wallclock_ns(q->cqx) : ibv_wc_read_completion_ts(q->cqx) & v->ts_mask;
	p->flags |= PV_PKT_TSTAMP;
}

void pv_verbs_tx_poll_stamps(struct verbs_ring *v, struct verbs_txq *q)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq = q->cqx;

	if (ibv_start_poll(cq, &attr))
		return;
	do {
		if (cq->status == IBV_WC_SUCCESS)
			stamp_packet(v, q, (uint32_t)cq->wr_id);
		pv_verbs_retire(v, q, cq->wr_id, (int)cq->status);
	} while (!ibv_next_poll(cq));
	ibv_end_poll(cq);
}

int pv_verbs_clock(struct pv_ring *r, uint64_t *now)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, query_rt_values);
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	int rc;

	if (__atomic_load_n(&v->gone, __ATOMIC_RELAXED))
		return -ENODEV;
	if (!vctx)
		return -EOPNOTSUPP;
	rc = vctx->query_rt_values(v->ctx, &values);
	if (rc)
		return -rc;
	if (!(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
		return -EOPNOTSUPP;
	/* Cycles, in a timespec for want of a better place. */
	*now = (uint64_t)values.raw_clock.tv_sec * 1000000000u + (uint64_t)values.raw_clock.tv_nsec;
	if (v->ts_mask)
		*now &= v->ts_mask;
	return 0;
}

/* ---- the disciplined clock --------------------------------------------------------------------------------------------- */

typedef int (*clock_info_fn)(struct ibv_context *ctx, struct mlx5dv_clock_info *info);

/* libmlx5 stays mapped: it is a provider, and libibverbs has it open already when the device is its own. */
static clock_info_fn find_clock_info(const struct verbs_ring *v)
{
	clock_info_fn fn = NULL;
	bool (*supported)(struct ibv_device * dev) = NULL;
	void *lib;

	*(void **)&fn = dlsym(v->lib.handle, "mlx5dv_get_clock_info");
	if (fn)
		return fn;
	lib = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return NULL;
	*(void **)&supported = dlsym(lib, "mlx5dv_is_supported");
	if (supported && supported(v->ctx->device))
		*(void **)&fn = dlsym(lib, "mlx5dv_get_clock_info");
	dlclose(lib);
	return fn;
}

int pv_verbs_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out)
{
	struct verbs_ring *v = verbs_ring(r);
	struct mlx5dv_clock_info info;
	int rc;

	if (__atomic_load_n(&v->gone, __ATOMIC_RELAXED))
		return -ENODEV;
	if (!v->get_clock_info)
		v->get_clock_info = find_clock_info(v);
	if (!v->get_clock_info)
		return -EOPNOTSUPP;
	rc = v->get_clock_info(v->ctx, &info);
	if (rc)
		return rc > 0 ? -rc : rc;
	*out = (struct pv_ring_clock_info){
		.cycles = info.last_cycles,
		.mask = info.mask,
		.nsec = info.nsec,
		.frac = info.frac,
		.mult = info.mult,
		.shift = info.shift,
	};
	return 0;
}
