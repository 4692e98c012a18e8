/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sim ring: a deterministic wire between rings of one process, in virtual time. Same seed, same calls: same frames at the same
 * nanosecond. A wire has any number of taps (rings); frames go by destination MAC, groups and unknown ones to all others.
 *
 * A frame leaves at tx_kick and its packet is reapable then; one of a queue with a rate leaves when that allows it. What is due at the wire's present time arrives within that call;
 * the rest arrives in pv_sim_wire_advance. A ring with flow rules receives what one of them matches, a ring without any receives
 * all that the wire brings. Stamps are virtual nanoseconds: of the arrival, and of when the last bit left; a packet sent with
 * PV_PKT_TX_TSTAMP is reapable only then.
 * Frames of one sender stay in order whatever the jitter; only `reorder_ppm` lets some be overtaken.
 * One thread per wire. The wire allocates while more frames than ever before are under way.
 */
#ifndef PV_RING_SIM_H
#define PV_RING_SIM_H

#include "ring/ring.h"

struct pv_sim_wire;

struct pv_sim_impair {
	uint32_t loss_ppm, duplicate_ppm, corrupt_ppm,
	    reorder_ppm; /* corrupt: one bit; reorder: held back by 1 to 2 latencies + 20 us */
	int64_t latency_ns, jitter_ns; /* a frame takes latency .. latency + jitter */
	uint64_t rate_kbps; /* of each sender, preamble, FCS and gap not counted; 0: unlimited */
	uint32_t queue_limit; /* frames of one sender waiting for the rate at most; 0: 1000 */
};

struct pv_sim_ring_cfg {
	uint8_t mac[PV_ETH_ALEN];
	uint32_t mtu; /* 0: 1500 */
	uint32_t rx_depth, tx_depth; /* 0: 256 */
	uint32_t rx_csum, tx_csum; /* PV_CSUM_*: offloads to simulate */
	uint32_t batch; /* 0: PV_RING_BATCH_MAX */
	uint32_t tso_max; /* bytes of a segment that it cuts; 0: it cuts none */
	uint32_t txqs; /* transmit queues beside the first */
	uint32_t pacing_min_kbps, pacing_max_kbps; /* 0: none */
	bool pacing_burst;
};

/* 0, -ENOMEM. `mem` must live as long as the wire. */
int pv_sim_wire_open(struct pv_sim_wire **out, const struct pv_mem *mem, uint64_t seed);
/* Rings that are still open become devices that vanished. */
void pv_sim_wire_close(struct pv_sim_wire *w);
/* For frames sent from now on. */
void pv_sim_wire_impair(struct pv_sim_wire *w, const struct pv_sim_impair *imp);
/* Moves virtual time; frames due by then reach their rings. Never backwards. */
void pv_sim_wire_advance(struct pv_sim_wire *w, int64_t now_ns);
int64_t pv_sim_wire_deadline(const struct pv_sim_wire *w); /* next frame due; PV_NEVER */
/* FNV-1a over every delivered frame, its time and ring: equal for equal runs. */
uint64_t pv_sim_wire_trace(const struct pv_sim_wire *w);

/* 0, -ENOMEM, -EINVAL (MTU below 68 or above 65521, or the pool's buffers hold no frame of it). */
int pv_sim_open(struct pv_ring **out, struct pv_sim_wire *w, struct pv_pool *pool, const struct pv_sim_ring_cfg *cfg);
/* The cable of one ring: its link event and lost frames. */
void pv_sim_set_link(struct pv_ring *r, bool up);
/* The device vanishes: -ENODEV from now on, PV_RING_EV_GONE. */
void pv_sim_vanish(struct pv_ring *r);

#endif
