/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring contract: how frames move between a stack and a queue pair, whatever is beneath.
 *
 * Ownership. rx_post and tx_post take the first k packets of the array and return k; from then on the ring owns them. rx_poll
 * and tx_reap hand packets back. close hands back all that are still inside. A packet never has two owners. A receive buffer that
 * the device completed with an error goes straight to the pool: refill by what rx_post takes, not by counting.
 * Threads. One thread at a time may be inside a ring. notify_fd may be polled by any thread.
 * Errors. Calls return 0, a count or -errno. A ring whose device is gone answers -ENODEV and completes what it held as failed.
 * An op that is NULL is not supported: the pv_ring_* dispatchers answer -EOPNOTSUPP (or 0 packets for counts).
 */
#ifndef PV_RING_RING_H
#define PV_RING_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "pkt/pkt.h"

struct pv_ring;

#define PV_RING_NAME_MAX 64
#define PV_RING_BATCH_MAX 64

/* caps.tx_csum / caps.rx_csum */
#define PV_CSUM_IP4 0x1u
#define PV_CSUM_UDP 0x2u
#define PV_CSUM_TCP 0x4u

enum pv_tstamp_kind { PV_TSTAMP_NONE, PV_TSTAMP_RAW, PV_TSTAMP_REALTIME };

/* caps.flow_kinds: bit per enum pv_flow_kind */
enum pv_flow_kind {
	PV_FLOW_ALL, /* everything that reaches the port's MAC filter is ours */
	PV_FLOW_ETHER, /* destination MAC and, unless 0, ethertype */
	PV_FLOW_IP, /* destination MAC and destination address, any protocol, fragments included */
	PV_FLOW_3TUPLE, /* destination address, protocol, destination port */
	PV_FLOW_5TUPLE, /* and source address and port */
	PV_FLOW_KINDS
};

struct pv_flow {
	enum pv_flow_kind kind;
	uint8_t dst_mac[PV_ETH_ALEN];
	uint16_t ethertype; /* host order; PV_FLOW_ETHER only, 0: any */
	uint16_t vlan; /* VLAN id 1..4094, 0: untagged */
	uint8_t l4_proto; /* 6 or 17 */
	struct pv_addr dst, src;
	uint16_t dst_port, src_port; /* host order */
};

struct pv_ring_caps {
	uint32_t mtu; /* largest IP packet: the frame is 14 bytes more (18 with a VLAN tag) */
	uint32_t headroom; /* bytes that the ring wants before `data` on transmit */
	uint32_t rx_buf_min; /* smallest buffer that the ring receives into */
	uint32_t rx_depth, tx_depth;
	uint32_t batch; /* packets a call, at most */
	uint32_t inline_size; /* bytes copied at post: such a packet is completed (reapable) at once */
	uint32_t max_sge;
	uint32_t rx_csum, tx_csum; /* PV_CSUM_* */
	uint32_t tso_max; /* bytes; 0: none */
	enum pv_tstamp_kind tstamp;
	uint64_t tstamp_khz; /* clock frequency of raw stamps */
	uint32_t pacing_min_kbps, pacing_max_kbps; /* kbit/s; 0: none */
	uint32_t dm_bytes; /* on-device memory */
	uint32_t flow_kinds; /* bits: 1 << enum pv_flow_kind */
	uint32_t queues;
	uint8_t mac[PV_ETH_ALEN];
	bool link_up;
	bool rx_partial; /* of some of the device's queues nothing comes to us, whatever the rules say */
	char name[PV_RING_NAME_MAX]; /* ring kind and device, e.g. "verbs:mlx5_0/1" */
	char mode[PV_RING_NAME_MAX]; /* which of the ring's ways is in force, e.g. "extended", "native zero-copy" */
};

struct pv_ring_counters {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
	uint64_t rx_errors; /* completions with an error, oversized or truncated frames */
	uint64_t rx_no_buf; /* frames that found no posted buffer, where the device tells */
	uint64_t tx_errors; /* completions with an error: the frame did not leave */
	uint64_t tx_full; /* tx_post calls that took fewer than offered */
	uint64_t doorbells, interrupts;
};

enum pv_ring_event { PV_RING_EV_NONE, PV_RING_EV_LINK_UP, PV_RING_EV_LINK_DOWN, PV_RING_EV_GONE, PV_RING_EV_ERROR };

struct pv_ring_ops {
	const char *kind;
	/* Gives back what it holds to the packets' pool, then frees the ring. */
	void (*close)(struct pv_ring *r);
	uint32_t (*rx_post)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
	/* Fills data, len, total, flags, tstamp. A frame that fills several buffers, which merged TCP segments may, is a chain by `frag`. */
	uint32_t (*rx_poll)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
	/* Queues whole Ethernet frames without FCS; may transmit at once. A frame the ring cannot carry (too long) is taken, counted
	 * in tx_errors and reaped. */
	uint32_t (*tx_post)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
	/* Doorbell for all that was posted. 0, -EAGAIN (call again later: some frames have not left), -ENODEV. */
	int (*tx_kick)(struct pv_ring *r);
	/* Completed packets back, in any order. */
	uint32_t (*tx_reap)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
	/* Optional. */
	int (*arm)(struct pv_ring *r); /* next frame or event makes notify_fd readable. 1: poll again, something is there already */
	int (*notify_fd)(struct pv_ring *r); /* the fd, level-triggered until the next arm; -errno */
	int (*flow_add)(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle);
	int (*flow_del)(struct pv_ring *r, uint64_t handle);
	int (*set_rate)(struct pv_ring *r, uint64_t rate_kbps, uint32_t burst_bytes, uint16_t typical_len); /* 0: unlimited */
	int (*clock)(struct pv_ring *r, uint64_t *now); /* raw device clock */
	void (*counters)(struct pv_ring *r, struct pv_ring_counters *out);
	enum pv_ring_event (*event)(struct pv_ring *r); /* next event, or NONE; may cost a system call: not with every poll */
	void (*forget)(struct pv_ring *r); /* in a forked child: close fds and mappings, touch no device state, free the ring */
};

/* Every ring starts with this. */
struct pv_ring {
	const struct pv_ring_ops *ops;
	struct pv_pool *pool;
	uint32_t
	    rx_more; /* buffers that rx_poll gave behind others, on their `frag`: who counts what to post takes it, and sets it to 0 */
	uint32_t tx_pending; /* posted and not reaped yet: kept by the dispatchers, so that an idle owner need not ask */
	struct pv_ring_caps caps;
};

/* A ring opens with what its kind's header says (ring/sim.h, ring/verbs.h, ...); the rest is the same for all. */

pv_inline uint32_t pv_ring_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	return r->ops->rx_post(r, pkts, n);
}

pv_inline uint32_t pv_ring_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	return r->ops->rx_poll(r, pkts, n);
}

pv_inline uint32_t pv_ring_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t k = r->ops->tx_post(r, pkts, n);

	r->tx_pending += k;
	return k;
}

pv_inline int pv_ring_tx_kick(struct pv_ring *r)
{
	return r->ops->tx_kick(r);
}

pv_inline uint32_t pv_ring_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t k = r->ops->tx_reap(r, pkts, n);

	r->tx_pending -= k;
	return k;
}

void pv_ring_close(struct pv_ring *r);
int pv_ring_arm(struct pv_ring *r);
int pv_ring_notify_fd(struct pv_ring *r);
/* -EINVAL: no such kind, VLAN above 4094, a tuple of neither UDP nor TCP or of two families. -EOPNOTSUPP: not in caps.flow_kinds.
 * Else what the ring says: -ENODEV, -ENOMEM, -EPERM, -EEXIST, ... A dst_mac of zeros: the group's MAC, else the port's. */
int pv_ring_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle);
int pv_ring_flow_del(struct pv_ring *r, uint64_t handle); /* -ENOENT */
int pv_ring_set_rate(struct pv_ring *r, uint64_t rate_kbps, uint32_t burst_bytes, uint16_t typical_len);
int pv_ring_clock(struct pv_ring *r, uint64_t *now);
/* Zeroes what the ring does not count. */
void pv_ring_counters(struct pv_ring *r, struct pv_ring_counters *out);
enum pv_ring_event pv_ring_event(struct pv_ring *r);
void pv_ring_forget(struct pv_ring *r);

#endif
