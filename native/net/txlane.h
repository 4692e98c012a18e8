/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send lanes: transmit queues of the rings' own, beside their first ones, for senders that are not held to a rate (net/txq.h has those
 * that are). A key that the runtime makes of the sender chooses the lane. A lane has a queue of each interface that it was used by, or
 * shares the first one where the ring gave none; that is decided once, and lasts as long as the lane and the interface. The last sender that leaves
 * gives the queues back.
 *
 * The number of its lane is the sender's to keep, and what it sends goes by the queue that its path names (pv_path.txq). All frames of a
 * sender go by one queue of an interface, so they keep their order; who changes the lane waits until the old queue is empty.
 */
#ifndef PV_NET_TXLANE_H
#define PV_NET_TXLANE_H

#include "net/net.h"

/* A sender's lane: not asked for yet; of 1 to PV_TXLANE_MAX; by the first queues, for good. */
#define PV_TXLANE_UNKNOWN 0u
#define PV_TXLANE_MAX 254u
#define PV_TXLANE_NONE 255u

struct pv_txlane_key {
	uint64_t value;
	uint32_t logic; /* what the value is of */
};

/* The key's lane, with one sender more; PV_TXLANE_NONE: `limit` keys have one, or there is no memory. */
uint32_t pv_txlane_get(struct pv_net *net, const struct pv_txlane_key *key, uint32_t limit);
void pv_txlane_put(struct pv_net *net, uint32_t lane);
/* The path is that of a sender of this lane. */
void pv_txlane_set(struct pv_net *net, struct pv_path *path, uint32_t lane);
/* Has all left that senders of the lane gave to rings, or that waits for a neighbour? Asks the devices. Of first queues, which all share and which
 * may never be seen empty, an answer that says no means little. */
bool pv_txlane_settled(struct pv_net *net, uint32_t lane);

struct pv_txlane_info {
	struct pv_txlane_key key;
	uint32_t queue; /* of the ring of that interface; 0: the first */
	uint32_t senders;
};
/* False: there is no such lane, or it was not used by that interface. */
bool pv_txlane_info(const struct pv_net *net, uint32_t lane, uint32_t iface, struct pv_txlane_info *out);

/* May a sender have one? */
pv_inline bool pv_txlanes_on(const struct pv_net *net)
{
	return ((const struct pv_net_head *)(const void *)net)->lanes;
}

/* A sender's path was made anew: by its lane, which it is told first when it has none yet and there is a `user` to ask for. Returns the lane. */
uint32_t pv_txlane_follow(struct pv_net *net, struct pv_path *path, uint32_t lane, void *user);

#endif
