/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the sim ring: sim.c has frames, wire and ring, sim_txq.c the transmit queues beside the first. */
#ifndef PV_RING_SIM_PRIV_H
#define PV_RING_SIM_PRIV_H

#include "base/list.h"
#include "base/rng.h"
#include "ring/frame.h"
#include "ring/sim.h"

#define SIM_CLASSES 3 /* sizes of copies */

struct sim_ring;

struct frame {
	int64_t due_ns, arrive_ns;
	uint64_t seq;
	struct frame *next; /* free list */
	struct sim_ring *src; /* NULL once that ring has closed */
	uint32_t len;
	uint8_t cls;
	bool leaving; /* still in the sender's queue */
	uint8_t data[];
};

struct slab {
	struct slab *next;
	size_t size;
	uint8_t mem[] pv_aligned(PV_CACHELINE);
};

struct pv_sim_wire {
	const struct pv_mem *mem;
	struct pv_list rings;
	struct pv_sim_impair imp;
	int64_t now_ns;
	struct pv_rng rng;
	uint64_t seq, trace;
	uint32_t nrings; /* ever, for their numbers in the trace */
	uint32_t paced; /* packets in queues with a rate or a number */
	uint32_t heap_len, heap_cap, frames;
	struct frame **heap;
	struct frame *free[SIM_CLASSES];
	struct slab *slabs;
};

struct rule {
	struct rule *next;
	uint64_t handle;
	struct pv_flow flow;
};

struct sim_txq {
	struct pv_pktq wait;
	struct pv_ring_rate rate;
	int64_t tat_ns;
	uint32_t part; /* frames of the first packet that have left */
	bool open, closing;
};

struct sim_ring {
	struct pv_ring ring;
	struct pv_sim_wire *wire; /* NULL: vanished */
	const struct pv_mem *mem;
	struct pv_list link;
	uint32_t number;
	uint32_t queued; /* frames waiting for the rate */
	int64_t free_ns; /* when the sender's transmitter is idle again */
	int64_t last_ns; /* arrival of its last frame in order */
	struct pv_pktq rx_free, rx_done, tx_wait, tx_done;
	struct pv_pktq tx_timed; /* with stamps that lie ahead */
	struct sim_txq *txq; /* by number, the first with a rate of its own included; NULL: none */
	struct rule *rules;
	uint64_t next_handle;
	uint32_t events; /* bit per enum pv_ring_event not yet told */
	bool rx_stamps, tx_stamps;
};

pv_inline struct sim_ring *sim(struct pv_ring *r)
{
	return pv_container_of(r, struct sim_ring, ring);
}

/* sim.c */
void pv_sim_run(struct pv_sim_wire *w); /* what is due at the present time arrives */
/* How many frames a packet becomes, and the length of the longest; 0: it cannot be sent. */
uint32_t pv_sim_frames_of(const struct sim_ring *s, const struct pv_pkt *p, uint32_t *len);
void pv_sim_count(struct sim_ring *s, const struct pv_pkt *p, uint32_t n, uint32_t len);
/* Frame `i` of a packet. When it has left; -1: nobody knows. */
int64_t pv_sim_transmit(struct sim_ring *s, struct pv_pkt *p, uint32_t i, uint32_t len);
/* The packet has left, and is done. */
void pv_sim_transmitted(struct sim_ring *s, struct pv_pkt *p, int64_t left_ns);

/* sim_txq.c */
int64_t pv_sim_txq_next(const struct pv_sim_wire *w, struct sim_ring **ring, struct sim_txq **txq);
void pv_sim_run_until(struct pv_sim_wire *w, int64_t until_ns);
bool pv_sim_txq_post(struct sim_ring *s, struct pv_pkt *p);
int pv_sim_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate);
int pv_sim_txq_close(struct pv_ring *r, uint32_t txq);
int pv_sim_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate);
uint32_t pv_sim_txq_pending(struct pv_ring *r, uint32_t txq);

/* True: the packet goes by a queue of its own, or waits for a rate. The ring has queues. */
pv_inline bool sim_goes_aside(const struct sim_ring *s, const struct pv_pkt *p)
{
	if (pv_unlikely(p->flags & PV_PKT_TX_QUEUE))
		return true;
	return s->txq[0].rate.kbps || s->txq[0].wait.count;
}

#endif
