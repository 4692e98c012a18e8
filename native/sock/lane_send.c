/* SPDX-License-Identifier: BSD-3-Clause */
/* Send lanes of sockets (net/txlane.h): whose they are, by the setting ring_logic_tx or by the program. */
#include <stdio.h>
#include <string.h>

#include "net/txlane.h"
#include "rt/error.h"
#include "sock/lane.h"

/* The first queue is everybody's and may never be seen empty: what a socket left there is gone by then (net/txq.c). */
#define DRAIN_NS PV_NS_PER_MS

static uint32_t limit(void)
{
	return pv_engine.cfg->ring_limit ? (uint32_t)pv_engine.cfg->ring_limit : PV_TXLANE_MAX;
}

uint32_t pv_lane_of_sender(void *user, const struct pv_addr *src)
{
	const struct pv_sock *so = pv_container_of(user, struct pv_sock, watch);
	struct pv_txlane_key key = { .logic = (uint32_t)pv_engine.cfg->ring_logic_tx };

	if (key.logic == PV_RING_LOGIC_USER)
		return PV_TXLANE_NONE;
	key.value = key.logic == PV_RING_LOGIC_ADDRESS ? pv_lane_of_address(src) : pv_lane_value(key.logic, so);
	return pv_txlane_get(pv_engine.net, &key, limit());
}

static uint32_t lane_of(const struct pv_sock *so)
{
	return so->u ? pv_udp_lane(so->u) : so->tc ? pv_tcp_lane(so->tc) : PV_TXLANE_UNKNOWN;
}

static int set_lane(struct pv_sock *so, uint32_t lane, bool hurry)
{
	return so->u ? pv_udp_set_lane(so->u, lane, hurry) : pv_tcp_set_lane(so->tc, lane, hurry);
}

/* Does it send by a queue of its lane's, be it on one interface? */
static bool by_lane(const struct pv_sock *so)
{
	struct pyvma_place place;

	for (unsigned int i = 0; !pv_lane_sender(so, i, &place); i++)
		if (place.queue)
			return true;
	return false;
}

static int drain_and_set(struct pv_sock *so, uint32_t lane)
{
	int64_t end_ns = pv_clock_now(&pv_engine.clock) + DRAIN_NS;
	bool first = !by_lane(so);
	int rc = set_lane(so, lane, false);

	while (rc == -EAGAIN && pv_clock_now(&pv_engine.clock) < end_ns) {
		pv_lane_turn();
		rc = set_lane(so, lane, false);
	}
	return rc == -EAGAIN && first ? set_lane(so, lane, true) : rc;
}

/* The socket becomes one of the lane's senders, or not. */
static int place(struct pv_sock *so, uint32_t lane, unsigned int how)
{
	uint32_t was = lane_of(so);
	int rc;

	if (lane == PV_TXLANE_NONE && !(how & PYVMA_PLACE_NONE))
		return pv_error(-ENOSPC, "as many keys as ring_limit allows have send queues");
	if (was != PV_TXLANE_UNKNOWN && was != PV_TXLANE_NONE && !(how & PYVMA_PLACE_MOVE))
		return pv_error(-EBUSY, "the socket has a place already, which only a move changes");
	rc = drain_and_set(so, lane);
	if (rc == -EBUSY)
		return pv_error(rc, "the socket is held to a rate, by a queue of its own");
	return rc ? pv_error(rc, "what the socket has sent has not left yet") : 0;
}

int pv_lane_place_sender(struct pv_sock *so, uint64_t value, unsigned int how)
{
	const struct pv_txlane_key key = { .value = value, .logic = PV_RING_LOGIC_USER };
	uint32_t lane;
	int rc = 0;

	if (!pv_engine.cfg->ring_logic_tx)
		return pv_error(-EOPNOTSUPP, "sockets have no send queues of their own: they do with any ring_logic_tx but 0");
	if (!so->u && !so->tc)
		return pv_error(-ENOTCONN, "the socket does not send by the engine yet");
	lane = how & PYVMA_PLACE_NONE ? PV_TXLANE_NONE : pv_txlane_get(pv_engine.net, &key, limit());
	if (lane == lane_of(so) && lane != PV_TXLANE_NONE)
		pv_txlane_put(pv_engine.net, lane); /* it is one already */
	else if ((rc = place(so, lane, how)))
		pv_txlane_put(pv_engine.net, lane);
	return rc;
}

int pv_lane_sender(const struct pv_sock *so, unsigned int i, struct pyvma_place *out)
{
	struct pv_txlane_info info;
	uint32_t lane = lane_of(so);

	for (uint32_t k = 0; k < pv_engine.nports; k++) {
		const struct pv_port *p = &pv_engine.ports[k];

		if (!pv_txlane_info(pv_engine.net, lane, p->index, &info) || i-- != 0)
			continue;
		out->logic = info.key.logic;
		out->key = info.key.value;
		out->queue = info.queue;
		out->users = info.senders;
		snprintf(out->interface, sizeof(out->interface), "%s", p->spec.name);
		if (!info.queue)
			snprintf(out->reason, sizeof(out->reason), "%s",
				 p->ring->caps.txqs ? "the device gave no queue" : "the ring has no such queues");
		return 0;
	}
	return -ENOENT;
}
