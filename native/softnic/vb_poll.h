/* SPDX-License-Identifier: BSD-3-Clause */
/* The look of a spinning program at its CQ: nearly always there is nothing, and that is found without a call. */
#ifndef SN_VB_POLL_H
#define SN_VB_POLL_H

#include "softnic/fab_inline.h"
#include "softnic/vb.h"

/* True: no completion. False: perhaps. The lock is held. */
pv_inline bool vb_cq_empty(struct vb_cq *cq)
{
	struct vb_rq *rq = cq->rq;

	if (cq->cqe_ci != atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed))
		return false;
	if (pv_likely(rq))
		return atomic_load_explicit(&rq->mode, memory_order_relaxed) == VB_RQ_READY && sn_rxq_idle(rq->rxq);
	return cq->sources == 0;
}

#endif
