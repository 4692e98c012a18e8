/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stamps of what a socket has sent (SO_TIMESTAMPING, the transmit half), and the queue that they wait in until the program reads them.
 *
 * Whoever sends says what it wants to pv_net_tx_stamp. Stamps by the stack's clock are in the queue when that returns; the device's comes
 * when the ring gives the packet back, and whoever reaps a ring hands each packet to pv_net_tx_done. A packet finds its queue by its
 * cookie, which names a queue that may be gone by then. With each stamp comes a copy of what was sent, or the very packet, unless the
 * socket wants stamps alone; in want of packets a stamp is lost, as Linux's are.
 *
 * A queue is charged to its socket: what would exceed the limit is lost. One thread at a time, the stack's.
 */
#ifndef PV_NET_STAMP_H
#define PV_NET_STAMP_H

#include "base/list.h"
#include "net/net.h"

/* Of the flags of SO_TIMESTAMPING, with Linux's numbers, those that mean something here. */
#define PV_STAMP_TX_HW 0x1u
#define PV_STAMP_TX_SW 0x2u
#define PV_STAMP_OPT_ID 0x80u
#define PV_STAMP_TX_SCHED 0x100u
#define PV_STAMP_TX_ACK 0x200u
#define PV_STAMP_OPT_TSONLY 0x800u
#define PV_STAMP_OPT_STATS 0x1000u
#define PV_STAMP_OPT_TX_SWHW 0x4000u
#define PV_STAMP_OPT_ID_TCP 0x10000u
/* What may be asked for one message; the first three at the time it is posted. */
#define PV_STAMP_TX_POST (PV_STAMP_TX_HW | PV_STAMP_TX_SW | PV_STAMP_TX_SCHED)
#define PV_STAMP_TX (PV_STAMP_TX_POST | PV_STAMP_TX_ACK)

/* Linux's SCM_TSTAMP_*. */
enum pv_stamp_type { PV_STAMP_SND, PV_STAMP_SCHED, PV_STAMP_ACK };

#define PV_STAMP_STATS_MAX 512u

struct pv_stamp {
	int64_t ns; /* by the stack's clock; of a device's stamp that there is none */
	uint64_t raw; /* by the ring's */
	struct pv_pkt *pkt; /* what was sent, or what its sender tells of itself; NULL: stamps alone are wanted */
	uint32_t key; /* what the program tells messages apart by; 0 unless it wants that */
	uint32_t serial; /* of pv_net_serial: of two queues of a socket, which came first */
	uint32_t cost;
	uint8_t type; /* enum pv_stamp_type */
	uint8_t iface; /* 0: not known */
	bool is_raw;
	bool frame; /* `pkt` has a whole frame, else payload alone */
	bool stats; /* `pkt` has what pv_stampq.stats wrote */
};

struct pv_stampq {
	struct pv_net *net;
	struct pv_stamp *ring; /* `cap` of them, a power of two */
	uint32_t cap, head, count;
	uint32_t flags; /* PV_STAMP_* of the socket; its owner writes them */
	uint32_t base; /* key of the first byte of a stream; its owner's */
	uint32_t *used; /* what the socket's receive memory is charged with ... */
	const uint32_t *limit; /* ... and may be */
	uint32_t own; /* bytes of *used that are this queue's */
	uint32_t slot;
	void (*tell)(void *owner); /* there is something more to read */
	/* PV_STAMP_OPT_STATS: what the owner tells of itself, PV_STAMP_STATS_MAX bytes at most; returns how many. NULL: nothing. */
	uint32_t (*stats)(void *owner, uint8_t *out);
	void *owner;
};

/* `q` has net, used, limit, tell and owner. -ENOMEM. */
int pv_stampq_open(struct pv_stampq *q);
void pv_stampq_close(struct pv_stampq *q);
/* False: empty. out->pkt is the caller's. */
bool pv_stampq_get(struct pv_stampq *q, struct pv_stamp *out);
/* The serial of the oldest; the queue is not empty. */
pv_inline uint32_t pv_stampq_serial(const struct pv_stampq *q)
{
	return q->ring[q->head].serial;
}

/* A message that ends in `key` has been acknowledged; `data`, `len` is what of it is known still, `pool` where a copy may come from. */
void pv_stampq_acked(struct pv_stampq *q, uint32_t key, const uint8_t *data, uint32_t len, struct pv_pool *pool, int64_t now_ns);

struct pv_stamp_ask {
	struct pv_stampq *q;
	uint32_t what; /* PV_STAMP_TX_POST */
	uint32_t key; /* 0 unless PV_STAMP_OPT_ID is set */
};

/* As pv_net_tx, of one packet that is to be stamped. */
int pv_net_tx_stamp(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt,
		    const struct pv_stamp_ask *ask, int64_t now_ns);
/* Whether devices are asked for stamps; not until this says so. */
void pv_net_stamps_hw(struct pv_net *net, bool on);
/* Is a device's stamp to be waited for? Nobody tells when it is there: it is looked for. Not for ever, as it may never come. */
bool pv_net_stamps_due(struct pv_net *net, int64_t now_ns);
/* Drops what of the pool lies in queues; the stamps stay. */
void pv_net_stamps_purge(struct pv_net *net, const struct pv_pool *pool);
/* Counts what the error queues of sockets get. */
uint32_t pv_net_serial(struct pv_net *net);

/* A frame that had to wait (PV_PKT_TX_STAMP) is about to be given to its ring. What is to be told is kept in `out` until it is known
 * whether the ring took it; false: nothing. */
struct pv_stamp_late {
	struct pv_stamp_ask ask;
	struct pv_pkt *copy;
	struct pv_pool *pool;
	uint8_t iface;
};
bool pv_net_stamp_begin(struct pv_net *net, const struct pv_pkt *pkt, struct pv_stamp_late *out);
void pv_net_stamp_end(struct pv_stamp_late *late, bool went, int64_t now_ns);

void pv_net_tx_stamped(struct pv_net *net, struct pv_pkt *pkt);

/* A packet that a ring gave back; taken. */
pv_inline void pv_net_tx_done(struct pv_net *net, struct pv_pkt *pkt)
{
	if (pv_unlikely(pkt->flags & PV_PKT_TX_TSTAMP))
		pv_net_tx_stamped(net, pkt);
	else
		pv_pkt_put(pkt);
}

#endif
