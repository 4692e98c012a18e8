/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring contract: how frames move between a stack and a queue pair, whatever is beneath.
 *
 * Ownership. rx_post and tx_post take the first k packets of the array and return k; from then on the ring owns them. rx_poll
 * and tx_reap hand packets back. close hands back all that are still inside. A packet never has two owners. A receive buffer that
 * the device completed with an error goes straight to the pool, and is counted in rx_more, also by a poll that brings nothing.
 * Threads. One thread at a time may be inside a ring. notify_fd may be polled by any thread.
 * Errors. Calls return 0, a count or -errno. A ring whose device is gone answers -ENODEV and completes what it held as failed.
 * An op that is NULL is not supported: the pv_ring_* dispatchers answer -EOPNOTSUPP (or 0 packets for counts).
 */
#ifndef PV_RING_RING_H
#define PV_RING_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/stats_table.h"
#include "pkt/pkt.h"

struct pv_ring;

#define PV_RING_NAME_MAX 64
#define PV_RING_NOTE_MAX 192
#define PV_RING_BATCH_MAX 64
#define PV_RING_TXQ_MAX 255 /* transmit queues beside the first */
#define PV_RING_RXQ_MAX 62 /* receive queues beside the first ones: bits of a set, and queues by 7 bits */

/* caps.tx_csum / caps.rx_csum */
#define PV_CSUM_IP4 0x1u
#define PV_CSUM_UDP 0x2u
#define PV_CSUM_TCP 0x4u

/* Units of `tstamp`: ticks of a free-running clock, or nanoseconds of the device's own clock of the day, which something disciplines. */
enum pv_tstamp_kind { PV_TSTAMP_NONE, PV_TSTAMP_RAW, PV_TSTAMP_REALTIME };

/* What a transmit queue is held to. */
struct pv_ring_rate {
	uint64_t kbps; /* 0: unlimited */
	uint32_t burst_bytes; /* that may leave at once; 0: the device's choice */
	uint16_t typical_len; /* bytes of a usual packet; 0: the device's choice */
};

/* How the device's ticks become nanoseconds of its disciplined clock: those of `cycles` are `nsec` and `frac` / 2^shift; a tick is
 * `mult` / 2^shift nanoseconds. */
struct pv_ring_clock_info {
	uint64_t cycles, mask, nsec, frac;
	uint32_t mult, shift;
};

/* caps.flow_kinds: bit per enum pv_flow_kind */
enum pv_flow_kind {
	PV_FLOW_ALL, /* everything that reaches the port's MAC filter is ours */
	PV_FLOW_ETHER, /* destination MAC and, unless 0, ethertype */
	PV_FLOW_IP, /* destination MAC and destination address, any protocol, fragments included */
	PV_FLOW_3TUPLE, /* destination address, protocol, destination port */
	PV_FLOW_5TUPLE, /* and source address and port */
	PV_FLOW_KINDS
};

/* What a rule may say beside its kind: bits of pv_flow.match, and of caps.flow_match where the ring takes them. */
#define PV_FLOW_BY_TOS 0x1u /* PV_FLOW_IP and tighter: type of service, or traffic class */
#define PV_FLOW_BY_LABEL 0x2u /* PV_FLOW_IP and tighter, IPv6: flow label */
#define PV_FLOW_IN_VXLAN 0x4u /* tuples of UDP to port PV_VXLAN_PORT: the network, and headers of the frame inside (RFC 7348) */
#define PV_FLOW_SNIFFER 0x8u /* PV_FLOW_ALL: a copy of all that the port receives, and sends where devices do that; takes nothing */
#define PV_VXLAN_PORT 4789u

/* Headers of a frame inside a tunnel: what `kind` names. */
struct pv_flow_inner {
	enum pv_flow_kind kind; /* PV_FLOW_ALL: any */
	uint8_t dst_mac[PV_ETH_ALEN]; /* zeros: any */
	uint8_t l4_proto;
	struct pv_addr dst, src;
	uint16_t dst_port, src_port;
};

struct pv_flow {
	enum pv_flow_kind kind;
	uint32_t match; /* PV_FLOW_BY_TOS, ... */
	uint8_t dst_mac[PV_ETH_ALEN];
	uint16_t ethertype; /* host order; PV_FLOW_ETHER only, 0: any */
	uint16_t vlan; /* VLAN id 1..4094, 0: untagged */
	uint8_t l4_proto; /* 6 or 17 */
	struct pv_addr dst, src;
	uint16_t dst_port, src_port; /* host order */
	uint8_t tos, tos_mask; /* PV_FLOW_BY_TOS */
	uint32_t flow_label; /* PV_FLOW_BY_LABEL: 20 bits */
	uint32_t vni; /* PV_FLOW_IN_VXLAN: 24 bits */
	uint64_t rxqs; /* leads to these receive queues from the start, as flow_move says it; 0: to the first ones */
	bool sole; /* nothing that this matches is anybody else's: a ring that would ask the host for each frame need not */
	struct pv_flow_inner inner; /* PV_FLOW_IN_VXLAN */
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
	enum pv_tstamp_kind tstamp; /* what set_stamps gives */
	uint64_t tstamp_khz; /* clock frequency of raw stamps */
	uint64_t tstamp_mask; /* bits that raw stamps and `clock` count with, from the lowest */
	bool tx_tstamp; /* PV_PKT_TX_TSTAMP can be heeded */
	uint32_t pacing_min_kbps, pacing_max_kbps; /* kbit/s; 0: none */
	bool pacing_burst; /* pv_ring_rate.burst_bytes is heeded */
	uint32_t txqs; /* how many txq_open gives at most, beside the first */
	uint32_t dm_bytes; /* on-device memory of the device; what the ring has of it is in its counters */
	uint32_t flow_kinds; /* bits: 1 << enum pv_flow_kind */
	uint32_t flow_match; /* PV_FLOW_BY_TOS, ... */
	uint32_t moderation_frames,
	    moderation_us; /* for which the device holds interrupts back, as it was at open; 0: not, or not known */
	uint32_t queues; /* of receiving; with several, packets say by which they came */
	uint32_t rxqs; /* how many rxq_open gives at most, beside those */
	uint32_t rxq_depth; /* buffers of each */
	uint8_t mac[PV_ETH_ALEN];
	bool link_up;
	bool host_first; /* of what a TCP rule by destination alone takes, the host keeps what it has a connection for */
	bool rx_partial; /* of some of the device's queues nothing comes to us, whatever the rules say */
	char name[PV_RING_NAME_MAX]; /* ring kind and device, e.g. "verbs:mlx5_0/1" */
	char mode[PV_RING_NAME_MAX]; /* which of the ring's ways is in force, e.g. "extended", "native zero-copy" */
	char note[PV_RING_NOTE_MAX]; /* what was asked for and is not in force, and why; empty: nothing */
};

struct pv_ring_counters {
	PV_RING_COUNTERS(PV_COUNTER_FIELD)
};

/* What came by a ring and was dropped, by reason: the network layer's to write. */
struct pv_ring_drops {
	PV_NET_RX_DROPS(PV_COUNTER_FIELD)
};

/* What readers of the statistics file see of a ring. The counters are the ring's to write, whoever opens it writes the rest. */
struct pv_ring_stat {
	struct pv_ring_counters c;
	struct pv_ring_drops drops;
	uint64_t retransmits; /* TCP's to write */
	uint32_t shown; /* pv_mem_show */
	uint32_t rx_drained_max, tx_queues; /* the stack's to write */
	uint32_t index, mtu, rx_depth, tx_depth, queues, dm_size, pacing_min_kbps, pacing_max_kbps, moderation_frames,
	    moderation_us;
	struct pv_pool *pool;
	/* A leg's of a bond ring. */
	struct pv_ring_stat *master;
	uint64_t vf_plugouts;
	uint32_t rx_buffers;
	int tap_fd;
	char tap_device[16];
	bool active;
	bool link_up;
	uint8_t stamps; /* enum pv_tstamp_mode */
	uint8_t mac[PV_ETH_ALEN];
	char ifname[32], name[PV_RING_NAME_MAX], mode[PV_RING_NAME_MAX];
};
extern const struct pv_stat_type pv_ring_stat_type;

/* What they see of a receive queue beside the first ones, for as long as it is open: all of it the ring's to write. */
struct pv_rxq_stat {
	uint64_t packets, bytes;
	struct pv_ring_stat *ring;
	uint32_t number; /* rxq_open's */
	uint32_t queue; /* as packets say it */
	uint32_t depth, buffers, rules;
	uint32_t shown;
};
extern const struct pv_stat_type pv_rxq_stat_type;

enum pv_ring_event {
	PV_RING_EV_NONE,
	PV_RING_EV_LINK_UP,
	PV_RING_EV_LINK_DOWN,
	PV_RING_EV_GONE,
	PV_RING_EV_ERROR,
	PV_RING_EV_MOVED /* a bond: its traffic goes by another leg, or a leg is gone with frames; see pv_stack_iface_moved */
};

struct pv_ring_ops {
	const char *kind;
	/* Gives back what it holds to the packets' pool, then frees the ring. */
	void (*close)(struct pv_ring *r);
	/* Optional: what takes the time of a close. Its pool's binding is off (pv_pool_bind_off); any thread, and none is inside of the ring. The
	 * device has let go of all packets then, which are still the ring's: only close is left, and does not wait for the device. */
	void (*shut)(struct pv_ring *r);
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
	/* The next frame or event makes notify_fd readable. 1: poll again, something is there already. -EAGAIN: frames wait for a tx_kick, of
	 * which the fd does not tell. -ENODEV. */
	int (*arm)(struct pv_ring *r);
	int (*notify_fd)(struct pv_ring *r); /* the fd, level-triggered until the next arm; -errno */
	int (*flow_add)(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle);
	int (*flow_del)(struct pv_ring *r, uint64_t handle);
	/* Of a TCP rule by destination: connections that begin come by the ring's gate, or not any more. One comes when that was opened, which
	 * shuts it, none when it is shut, as it is at first; the others are the host's. */
	int (*flow_gate)(struct pv_ring *r, uint64_t handle, bool gated);
	int (*gate)(struct pv_ring *r, bool open);
	/* A receive queue beside the first ones, filled with buffers of the ring's pool: its number, 1 to PV_RING_RXQ_MAX. What comes by it has
	 * PV_PKT_QUEUE and the `txq` caps.queues - 1 + number. */
	int (*rxq_open)(struct pv_ring *r);
	/* What it has received still comes; the number may be given again once the device has no buffer of it any more. */
	int (*rxq_close)(struct pv_ring *r, uint32_t rxq);
	/* From now on the rule leads to the queues of `set` (bit `number`), over which its flows are spread if they are several; 0: to
	 * the first ones. What came by the old ones is polled before anything that comes by the new; so it is when a rule over such queues ends. */
	int (*flow_move)(struct pv_ring *r, uint64_t handle, uint64_t set);
	/* A transmit queue of its own, for one sender or one rate: its number, 1 to PV_RING_TXQ_MAX. */
	int (*txq_open)(struct pv_ring *r, const struct pv_ring_rate *rate);
	/* What it was given still leaves, and is reaped as ever; the number may be given again as soon as that is done. */
	int (*txq_close)(struct pv_ring *r, uint32_t txq);
	int (*set_rate)(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate); /* txq 0: the first */
	/* Frames of a queue that may not have left yet, whether their packets were reaped or not: asks the device. Of the first one (0) it
	 * may be more than there are. */
	uint32_t (*txq_pending)(struct pv_ring *r, uint32_t txq);
	/* From now on: PV_PKT_TSTAMP on what is received, PV_PKT_TX_TSTAMP heeded. A ring opens without: stamps cost device and host time. */
	int (*set_stamps)(struct pv_ring *r, bool rx, bool tx);
	int (*clock)(struct pv_ring *r, uint64_t *now); /* raw device clock; any thread, as long as the ring is open */
	int (*clock_info)(struct pv_ring *r, struct pv_ring_clock_info *out); /* any thread, too */
	void (*counters)(struct pv_ring *r, struct pv_ring_counters *out); /* where stat->c is not all of it */
	enum pv_ring_event (*event)(struct pv_ring *r); /* next event, or NONE; may cost a system call: not with every poll */
	void (*forget)(struct pv_ring *r); /* in a forked child: close fds and mappings, touch no device state, free the ring */
};

/* Every ring starts with this. */
struct pv_ring {
	const struct pv_ring_ops *ops;
	struct pv_pool *pool;
	struct pv_ring_stat *stat; /* of a ring that wraps another: the other's */
	/* Receive buffers that are to be posted. rx_poll adds those that it gave behind others, on their `frag`, or to the pool. The owner adds
	 * what it was handed and takes off what it posted, or counts elsewhere: then it takes these over and sets it to 0. */
	uint32_t rx_more;
	uint32_t tx_pending; /* posted and not reaped yet: kept by the dispatchers, so that an idle owner need not ask */
	struct pv_ring_caps caps;
	uint32_t binder; /* which of its pool's it is (pv_pool_bind); 0: none */
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

/* For what opens rings: r->stat, from `mem`, and its end. 0 or -ENOMEM. */
int pv_ring_stat_open(struct pv_ring *r, const struct pv_mem *mem);
void pv_ring_stat_close(struct pv_ring *r, const struct pv_mem *mem);
void pv_ring_close(struct pv_ring *r);
void pv_ring_shut(struct pv_ring *r); /* nothing where there is no such op */
int pv_ring_arm(struct pv_ring *r);
int pv_ring_notify_fd(struct pv_ring *r);
/* -EINVAL: no such kind, VLAN above 4094, a tuple of neither UDP nor TCP or of two families, a `match` that does not go with the kind.
 * -EOPNOTSUPP: not in caps.flow_kinds or caps.flow_match. With `rxqs` also what flow_move says.
 * Else what the ring says: -ENODEV, -ENOMEM, -EPERM, -EEXIST, ... A dst_mac of zeros: the group's MAC, else the port's. */
int pv_ring_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle);
int pv_ring_flow_del(struct pv_ring *r, uint64_t handle); /* -ENOENT */
/* -EOPNOTSUPP (it has no gate, or that is no TCP rule by destination), -ENOENT, what the ring says: nothing has changed then. */
int pv_ring_flow_gate(struct pv_ring *r, uint64_t handle, bool gated);
int pv_ring_gate(struct pv_ring *r, bool open);
/* -EOPNOTSUPP (caps.rxqs is 0), -ENOSPC (all are in use), -ENOBUFS (no buffers for it), -ENODEV, -ENOMEM, what the device says. */
int pv_ring_rxq_open(struct pv_ring *r);
int pv_ring_rxq_close(struct pv_ring *r, uint32_t rxq); /* -ENOENT, -EBUSY: a rule leads there */
/* 0: it leads there, whatever became of the way that it had before. Else nothing has changed: -ENOENT (no such rule, no such queue),
 * -EOPNOTSUPP (queues are for rules by ports), -EEXIST (one that says the same leads to such queues), -EAGAIN (where it leads to now
 * waits for buffers: poll first), what the device says. */
int pv_ring_flow_move(struct pv_ring *r, uint64_t handle, uint64_t set);
/* `rate` NULL: unlimited. -EOPNOTSUPP, -EINVAL (a rate outside pacing_min_kbps..pacing_max_kbps, a burst where pacing_burst is not set), -ENOSPC (all are in use),
 * -ENOENT (no such queue), -ENODEV, -ENOMEM, what the device says. */
int pv_ring_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate);
int pv_ring_txq_close(struct pv_ring *r, uint32_t txq);
int pv_ring_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate);
/* 0 once all that the queue was given has left, and for no such queue. Who moves a flow to another queue waits for that, and so does who
 * bounds what waits for a rate: a packet that was copied at post is reaped long before it leaves. */
uint32_t pv_ring_txq_pending(struct pv_ring *r, uint32_t txq);
/* -EOPNOTSUPP: caps.tstamp or caps.tx_tstamp say that it has none. */
int pv_ring_set_stamps(struct pv_ring *r, bool rx, bool tx);
int pv_ring_clock(struct pv_ring *r, uint64_t *now);
int pv_ring_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out);
/* Zeroes what the ring does not count. */
void pv_ring_counters(struct pv_ring *r, struct pv_ring_counters *out);
enum pv_ring_event pv_ring_event(struct pv_ring *r);
void pv_ring_forget(struct pv_ring *r);

#endif
