/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paced queues: the way out by one interface for one sender that is held to a rate.
 *
 * Who keeps the rate is the device, where its ring gives a transmit queue of its own that heeds it; else we do, by the stack's timers, if
 * the owner wants that. A frame whose time has not come is held here, complete, as fq of Linux holds it. Frames of a queue never overtake
 * one another, whoever keeps the rate and however often that changes; nor do the first ones overtake what the sender sent before it had
 * the queue.
 *
 * The owner is a socket: it marks each packet before pv_net_tx. Bytes are those of frames without FCS.
 */
#ifndef PV_NET_TXQ_H
#define PV_NET_TXQ_H

#include "base/list.h"
#include "net/net.h"

struct pv_txq;

struct pv_pacing {
	uint64_t rate; /* bytes a second; 0 and UINT64_MAX: unlimited */
	uint32_t burst; /* bytes that may leave at once; 0: the default */
	uint16_t typical; /* bytes of a usual frame, for the device to plan with; 0: unknown */
};

pv_inline bool pv_pacing_on(const struct pv_pacing *p)
{
	return p->rate && p->rate != UINT64_MAX;
}

enum pv_txq_by { PV_TXQ_UNPACED, PV_TXQ_DEVICE, PV_TXQ_SOFTWARE };

/* Why it is not the device that keeps the rate. */
enum pv_txq_why {
	PV_TXQ_OK,
	PV_TXQ_NO_PACING, /* the ring has no such queues */
	PV_TXQ_BELOW, /* the device's range */
	PV_TXQ_ABOVE,
	PV_TXQ_STEP, /* a kbit/s is more than one per cent of it, and it is not a multiple of that */
	PV_TXQ_NO_BURST, /* a burst was asked for, and the device's cannot be set */
	PV_TXQ_NO_QUEUE, /* all are in use */
	PV_TXQ_REFUSED,
};

struct pv_txq_cfg {
	uint32_t iface;
	uint8_t from; /* the ring's queue by which the owner sends what is not paced (net/txlane.h); 0: the first */
	bool device_only; /* the owner paces by itself what the device does not, unless there is a burst */
	void (*room)(void *user); /* see pv_txq_want_room */
	void *user;
};

/* 0, -ENODEV, -ENOMEM. It is unpaced until pv_txq_set. */
int pv_txq_open(struct pv_net *net, const struct pv_txq_cfg *cfg, struct pv_txq **out);
/* What is in it still leaves in its time, unless the interface goes before; then the device has its queue back. */
void pv_txq_close(struct pv_txq *q, int64_t now_ns);
/* What it held before goes first, by the new rate. */
void pv_txq_set(struct pv_txq *q, const struct pv_pacing *pacing, int64_t now_ns);
/* What a device with these capabilities says to that. */
enum pv_txq_why pv_txq_check(const struct pv_ring_caps *caps, const struct pv_pacing *pacing);

/* The packet, the first of a chain, goes by this queue when it is next given to pv_net_tx, with this path. */
void pv_txq_mark(const struct pv_txq *q, struct pv_path *path, struct pv_pkt *pkt);

struct pv_txq_load {
	uint32_t frames, bytes; /* held here, and given to the device and not known to have left */
};
void pv_txq_load(const struct pv_txq *q, struct pv_txq_load *out);
/* Asks the device what has left of what it was given. */
void pv_txq_look(struct pv_txq *q);
/* 0: less than `limit` bytes are in the queue. Else so many ns from now it is worth while to ask again. */
int64_t pv_txq_wait_ns(struct pv_txq *q, uint32_t limit, int64_t now_ns);
/* `room` is called, from the stack's timers, each time that some have left, until the owner takes that back. */
void pv_txq_want_room(struct pv_txq *q, bool on, int64_t now_ns);
/* Unpaced, and empty: its owner needs it no more. Asks the device. */
bool pv_txq_settled(struct pv_txq *q);

struct pv_txq_info {
	struct pv_pacing pacing;
	uint32_t iface;
	enum pv_txq_by by;
	enum pv_txq_why why; /* with PV_TXQ_SOFTWARE, or with device_only */
	uint32_t number; /* the ring's transmit queue; 0: none */
	struct pv_txq_load load;
};
void pv_txq_info(const struct pv_txq *q, struct pv_txq_info *out);
/* How many there are, those that were closed and are not empty among them. */
uint32_t pv_net_paced(const struct pv_net *net);
/* The owner's own list of its queues. */
struct pv_list *pv_txq_link(struct pv_txq *q);
struct pv_txq *pv_txq_of_link(struct pv_list *link);
uint32_t pv_txq_iface(const struct pv_txq *q);

pv_inline struct pv_txq *pv_txq_find(struct pv_list *queues, uint32_t iface)
{
	pv_list_for_each(it, queues) {
		struct pv_txq *q = pv_txq_of_link(it);

		if (pv_txq_iface(q) == iface)
			return q;
	}
	return NULL;
}

#endif
