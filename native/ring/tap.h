/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Taps: whoever wants to see the frames of a ring that is in use. The ring stays where it is; while it has taps its operations are
 * others, which show what passes, and when the last is taken off they are its own again: a ring without taps pays nothing.
 *
 * All with the ring's thread, or whatever keeps others out of the ring.
 */
#ifndef PV_RING_TAP_H
#define PV_RING_TAP_H

#include "base/list.h"
#include "ring/pcapng.h"
#include "ring/ring.h"

/* The caller's; `frames` and `gone` are set before it is put on. */
struct pv_tap {
	struct pv_list on_ring;
	struct pv_ring *ring; /* NULL: it is on none */
	/* Frames that the ring brought (PV_DIR_RX), or took (PV_DIR_TX: checksums that the device fills are not in them yet). To be looked at,
	 * during the call only. No tap may be put on or taken off meanwhile. */
	void (*frames)(struct pv_tap *t, struct pv_pkt *const *pkts, uint32_t n, enum pv_dir dir);
	/* The tap is off, for the ring is about to close; NULL: a forked child is about to forget it. May free the tap. */
	void (*gone)(struct pv_tap *t, struct pv_ring *ring);
};

/* 0, -ENOMEM. */
int pv_tap_add(struct pv_tap *t, struct pv_ring *ring, const struct pv_mem *mem);
/* Does nothing when it is on none. */
void pv_tap_del(struct pv_tap *t);

#endif
