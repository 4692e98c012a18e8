/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fault middleware: a ring around another that misbehaves within the contract, by dice of a seed. With all chances at zero it
 * is the ring beneath. What it does to frames it does on top of what the wire did; checksum verdicts of frames that it changed
 * are withdrawn.
 */
#ifndef PV_RING_FAULT_H
#define PV_RING_FAULT_H

#include "ring/ring.h"

struct pv_fault_cfg {
	uint64_t seed;
	/* Per call, in millionths. */
	uint32_t rx_post_short_ppm, tx_post_short_ppm; /* takes fewer than it could, perhaps none */
	uint32_t reap_none_ppm; /* nothing is reapable this time */
	uint32_t kick_again_ppm; /* -EAGAIN, nothing left */
	uint32_t link_flap_ppm; /* per event call: the link goes down until the next one */
	uint32_t error_ppm; /* per event call: PV_RING_EV_ERROR, once; from then on no frame comes or leaves */
	/* Per frame. */
	uint32_t rx_drop_ppm, rx_duplicate_ppm, rx_corrupt_ppm, rx_truncate_ppm;
	uint32_t tx_drop_ppm; /* completed as if it had left */
};

struct pv_fault_stats {
	uint64_t rx_post_short, tx_post_short, reap_none, kick_again, link_flaps, errors;
	uint64_t rx_drops, rx_duplicates, rx_corrupted, rx_truncated, tx_drops;
};

/* 0, -ENOMEM. From then on `lower` belongs to the new ring, which closes it; on error it stays the caller's. */
int pv_fault_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_ring *lower, const struct pv_fault_cfg *cfg);
/* Other chances from now on; the seed is left as it is. */
void pv_fault_set(struct pv_ring *r, const struct pv_fault_cfg *cfg);
void pv_fault_get_stats(struct pv_ring *r, struct pv_fault_stats *out);

#endif
