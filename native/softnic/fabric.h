/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fabric: a learning switch in a shared-memory file, with ports, flow rules and receive queues that any number of processes
 * of one user join. No verbs here: verbs objects (device.c, qp.c, cq.c, ...) are built on these calls, and so is the uplink.
 *
 * A process that dies at any instruction leaves nothing locked: what it held is found and freed by whoever needs it next.
 * Sending switches in the caller: rules are looked up (or found in the caller's path cache), the frame is copied into a slot of each
 * receiving queue, and a sleeper is woken. A full queue drops and counts.
 */
#ifndef SN_FABRIC_H
#define SN_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SN_NAME_MAX 32
#define SN_PORTS 64
#define SN_MTU_MAX 9216u
#define SN_FRAME_MAX (SN_MTU_MAX + 18u)
#define SN_DM_DEFAULT (256u << 10)

struct sn_fabric; /* this process's view of one fabric */
struct sn_port; /* this process's attachment to one port */
struct sn_rxq; /* this process's end of a receive queue that it owns */
struct sn_waker; /* an fd that senders of other processes can make readable */

/* Opens or creates the fabric; one view per process and name, counted. -EPROTO another version, -EBADMSG damaged, -EACCES, -ENOSPC;
 * sn_error() says more. */
int sn_fabric_open(const char *name, struct sn_fabric **out);
void sn_fabric_close(struct sn_fabric *f);
const char *sn_error(void);
/* In a forked child: unmap and forget, touch nothing that is shared. Happens by itself after fork(); may be done again. What was made
 * on the fabric must not be used in the child, and is not freed. */
void sn_fabric_forget(struct sn_fabric *f);

struct sn_port_cfg {
	uint8_t mac[6]; /* all zero: 02:53:4e:00:00:NN of the port number */
	uint32_t mtu; /* IP bytes; 0: as it is, 1500 when new */
	uint32_t dm_bytes; /* of device memory; 0: as it is, SN_DM_DEFAULT when new */
};
/* The first attachment makes the port; later ones must agree with what they name (-EEXIST). */
int sn_port_attach(struct sn_fabric *f, uint32_t number, const struct sn_port_cfg *cfg, struct sn_port **out);
void sn_port_detach(struct sn_port *p);
void sn_port_mac(const struct sn_port *p, uint8_t mac[6]);
uint32_t sn_port_mtu(const struct sn_port *p);
bool sn_port_link(const struct sn_port *p);
void sn_port_set_link(struct sn_port *p, bool up); /* for every process on the port */
uint32_t sn_port_link_events(const struct sn_port *p); /* changes of the link so far */
/* The port's device is taken out of the machine, or is there again; for every process. What was attached before stays dead. */
void sn_port_plug(struct sn_port *p, bool in);
bool sn_port_plugged(const struct sn_port *p);
bool sn_port_removed(const struct sn_port *p); /* since this object was attached */
struct sn_waker;
/* Until the port is detached: a change of the link, and of being there, by any process writes to the waker. 0 or -ENOSPC. */
int sn_port_watch(struct sn_port *p, struct sn_waker *w);

/* Device memory that processes hold of the port. What a process holds when it dies, or a port object when it is detached, is free again. */
uint32_t sn_port_dm_bytes(const struct sn_port *p);
int sn_port_dm_take(struct sn_port *p, uint64_t bytes); /* 0 or -ENOMEM */
void sn_port_dm_give(struct sn_port *p, uint64_t bytes);

struct sn_impairments {
	uint32_t loss_ppm, duplicate_ppm, corrupt_ppm, reorder_ppm;
	uint64_t delay_ns, jitter_ns;
	uint64_t rate_kbps; /* 0: unlimited */
	uint64_t seed;
};
/* Of frames that the port sends. */
int sn_port_impair(struct sn_port *p, const struct sn_impairments *imp);

/* ---- receive queues and rules ------------------------------------------------------------------------------------------ */

/* `slots` is rounded up to a power of two; a slot holds 2 KiB, longer frames take several. -ENOSPC when the fabric is full. */
int sn_rxq_create(struct sn_port *p, uint32_t slots, struct sn_rxq **out);
void sn_rxq_destroy(struct sn_rxq *q);

/* What the switch verified or found, as a NIC would. */
#define SN_RX_L3_OK 0x1u
#define SN_RX_L4_OK 0x2u
#define SN_RX_IP4 0x4u
#define SN_RX_IP6 0x8u
#define SN_RX_UDP 0x10u
#define SN_RX_TCP 0x20u
#define SN_RX_FRAG 0x40u
#define SN_RX_TAG 0x80u /* the rule that took it has a tag */
#define SN_RX_STAMPED 0x1000u
struct sn_frame {
	const uint8_t *seg[8]; /* pieces in order */
	uint32_t seg_len[8];
	uint32_t nseg, len;
	uint32_t flags; /* SN_RX_* */
	uint32_t rss_hash; /* Toeplitz, 0 when the rule asked for none; with SN_RX_TAG the rule's tag */
	uint64_t tstamp_ns; /* true time when it was switched, with SN_RX_STAMPED in `flags`; sn_rxq_set_tstamp */
};
/* Whether frames are stamped; off at first, since a look at the clock costs a sender more than the rest of its work. */
void sn_rxq_set_tstamp(struct sn_rxq *q, bool on);
/* The oldest frame, still in shared memory, or false. Valid until pop. Only the queue's owner. */
bool sn_rxq_peek(struct sn_rxq *q, struct sn_frame *out);
void sn_rxq_pop(struct sn_rxq *q);
/* The next frame that arrives writes to the waker. 1: one is there already (not armed). */
int sn_rxq_arm(struct sn_rxq *q, struct sn_waker *w);
/* True from a successful arm until a frame arrived and wrote to the waker. */
bool sn_rxq_armed(const struct sn_rxq *q);

int sn_waker_open(struct sn_fabric *f, struct sn_waker **out);
void sn_waker_close(struct sn_waker *w);
int sn_waker_fd(const struct sn_waker *w); /* readable after a wake */
void sn_waker_clear(struct sn_waker *w);
void sn_waker_wake(struct sn_waker *w); /* by the owner itself, any thread */

/* A match on header fields, each with a mask of the same width; a zero mask matches all. Network byte order. */
struct sn_match {
	uint8_t dst_mac[6], src_mac[6];
	uint16_t ethertype, vlan_tci;
	uint32_t src_ip[4], dst_ip[4]; /* IPv4: word 0, rest zero */
	uint8_t ip_version; /* 4, 6 or 0; masked with 0xff or 0 */
	uint8_t ip_proto, tos, ttl;
	uint32_t flow_label;
	uint16_t src_port, dst_port; /* of UDP or TCP */
};
/* What lies behind a VXLAN header (RFC 7348): the network's number, and the headers of the frame inside. */
struct sn_inner {
	struct sn_match match;
	uint32_t vni; /* as the header has it: in the upper 24 bits of a big-endian word */
};
struct sn_rule {
	struct sn_match value, mask;
	struct sn_inner inner_value, inner_mask;
	bool vxlan; /* only frames with such a header; without it the two above must be zero */
	bool drop; /* takes the frames and delivers none */
	bool tagged;
	uint32_t tag; /* delivered with the frame in place of the hash */
	uint32_t priority; /* lower wins, then the earlier; rules with the same match and priority all receive */
	bool sniffer; /* a copy of all that the port receives and, as mlx5's, sends */
	bool all_default, mc_default; /* IBV_FLOW_ATTR_ALL_DEFAULT, MC_DEFAULT: after every normal rule */
	/* Spread over several queues (RSS) by hash of the fields in `rss_fields`; else one queue. */
	uint32_t nqueues; /* power of two */
	struct sn_rxq *const *queues;
	uint32_t rss_fields; /* IBV_RX_HASH_* bits */
	uint8_t rss_key[40];
};
int sn_rule_add(struct sn_port *p, const struct sn_rule *rule, uint64_t *handle);
int sn_rule_del(struct sn_port *p, uint64_t handle);

/* ---- clocks ------------------------------------------------------------------------------------------------------------ */

/* True time: CLOCK_MONOTONIC_RAW in nanoseconds, in which everything here is stamped. */
uint64_t sn_true_ns(void);
int64_t sn_true_day(uint64_t *at); /* CLOCK_REALTIME, and the true time when it was read */

enum sn_day {
	SN_DAY_KEEP,
	SN_DAY_REALTIME, /* follows CLOCK_REALTIME */
	SN_DAY_SET, /* day_ns now, at the rate of true time */
};
struct sn_clock_cfg {
	uint32_t khz; /* that the counter is said to run with; 0: as it is. The drift begins anew */
	uint32_t bits; /* that it counts with; 0: as it is */
	bool set_drift;
	int64_t drift_ppb; /* how much faster it really is */
	int64_t step_ns; /* it jumps by so much */
	enum sn_day day;
	int64_t day_ns;
};
/* From now on, for all processes. A new port counts nanoseconds of true time, and its clock of the day is CLOCK_REALTIME. 0 or -errno. */
int sn_clock_set(struct sn_port *p, const struct sn_clock_cfg *cfg);
/* What the port's counter showed at a true time. */
uint64_t sn_clock_ticks(const struct sn_port *p, uint64_t at);
void sn_clock_facts(const struct sn_port *p, uint32_t *khz, uint64_t *mask);
/* What its clock of the day showed. */
int64_t sn_clock_day(struct sn_port *p, uint64_t at);
/* Of the tick `cycles` the clock of the day says nsec + frac / 2^shift; a tick is mult / 2^shift ns, for the next tenths of a second. */
struct sn_clock_info {
	uint64_t cycles, mask, nsec, frac;
	uint32_t mult, shift;
};
void sn_clock_info(struct sn_port *p, struct sn_clock_info *out);

/* ---- send -------------------------------------------------------------------------------------------------------------- */

struct sn_seg {
	const void *base;
	uint32_t len;
};
#define SN_TX_L3_CSUM 0x1u
#define SN_TX_L4_CSUM 0x2u
#define SN_TX_SUMMED 0x4u /* the caller has computed both: nobody need look */
/* Switches one frame of `nseg` pieces. 0: done (delivered or dropped and counted); -EMSGSIZE: longer than the port's MTU allows
 * or shorter than an Ethernet header; -ENETDOWN: link down (counted), -ENODEV: taken out (likewise). Not thread-safe per port object: one per QP.
 * Loopback as in a NIC, so that two QPs or processes on one port reach each other: a frame to a group address, to the port's own MAC
 * or to one not learned behind another port is matched against the sending port's normal rules too. A QP hears itself only when it sends
 * to its port's own MAC: what goes to many is not delivered to queues that were created with the sending port object. */
int sn_port_send(struct sn_port *p, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags);

/* The stamp of frames sent from now on, in nanoseconds of the stamps' clock; 0: when they are switched. */
void sn_port_stamp_at(struct sn_port *p, uint64_t when_ns);

/* ---- pacing ------------------------------------------------------------------------------------------------------------ */

/*
 * Between a sender and its port: frames leave by a schedule, in order, each with its scheduled departure as its stamp. What cannot leave
 * at once is held, and let out by a thread of this process. While a queue is open nobody else sends by its port object. Calls of one
 * queue by one thread at a time; sn_pace_left by any.
 */
struct sn_pace;
struct sn_rate {
	uint64_t kbps; /* of whole frames without FCS; 0: unlimited */
	uint32_t burst_bytes; /* that may leave back to back after a pause; 0: two frames of typical_len */
	uint32_t typical_len; /* 0: the longest frame */
};
/* `left` is called, by any thread and not with locks of the caller's choice, when a frame that asked for it has left. -ENOMEM. */
int sn_pace_open(struct sn_port *p, void (*left)(void *ctx), void *ctx, struct sn_pace **out);
/* What is held is lost, and counted as such. */
void sn_pace_close(struct sn_pace *q);
/* From now on, for what is held as well. */
void sn_pace_set(struct sn_pace *q, const struct sn_rate *rate);
/* As sn_port_send: 0, -EMSGSIZE, -ENOMEM. The data is copied. `when`, unless NULL, receives the departure before the frame counts as left,
 * and `left` is called then. */
int sn_pace_send(struct sn_pace *q, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags, uint64_t *when);
/* The same asked later, of the last frame taken; false: it has left. */
bool sn_pace_tell(struct sn_pace *q, uint64_t *when);
/* Frames taken that have left or were lost. */
uint64_t sn_pace_left(struct sn_pace *q);
/* The sender has more to send than it may hand over: that a thread of this process comes late must not cost it its rate. */
void sn_pace_full(struct sn_pace *q);
uint64_t sn_pace_held_bytes(struct sn_pace *q);
/* What is held is lost: counts as left from here on; how many had left before. */
uint64_t sn_pace_drop(struct sn_pace *q);

struct sn_port_counters {
	uint64_t tx_packets, tx_bytes; /* taken from senders, whatever became of them */
	uint64_t rx_packets, rx_bytes; /* copies placed in queues of the port */
	uint64_t tx_impaired_loss; /* by impairment, or held back when their process or its queue pair went */
	uint64_t tx_duplicated, tx_corrupted, tx_reordered;
	uint64_t tx_link_down, tx_too_long; /* refused; too long, or too short for a frame */
	uint64_t rx_no_rule; /* reached the port, no rule took it */
	uint64_t rx_rule_drop; /* taken by a rule that drops */
	uint64_t rx_queue_full;
	uint64_t rx_too_long; /* for the receiving port's MTU */
	uint64_t rx_link_down;
};
void sn_port_get_counters(const struct sn_port *p, struct sn_port_counters *out); /* of all processes, dead ones included */

#endif
