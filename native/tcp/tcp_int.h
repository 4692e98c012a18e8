/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of tcp/: what a connection consists of, and which file does what.
 *
 *   tcp.c      open and close, names, options, readiness                 demux.c   ports and lookup
 *   table.c    the table, and what the stack calls                       cookie.c  SYN cookies
 *   connect.c  active open                                               listen.c  SYN queue, cookies, accept queue
 *   input.c    RFC 9293 3.10.7: a segment arrives, in every state        reset.c   resets, challenge ACKs (RFC 5961)
 *   timewait.c TIME_WAIT records                                         error.c   ICMP errors, path MTU (RFC 5927)
 *   steer.c    flow rules on interfaces of the kernel's                  reserve.c ports there that are reserved for the next connection
 *   sndq.c     send queue: bytes to segments                             output.c  what may go, and the segment's header
 *   quick.c    one small message                                         join.c    several segments as one packet
 *   output.h   what those three share
 *   timer.c    one wheel timer a connection, its logical deadlines       pace.c    pacing
 *   ack.c      acknowledgements: scoreboard, RTT, what is delivered      sack.c    SACK and D-SACK blocks (RFC 2018, 2883)
 *   rack.c     loss detection (RFC 8985)                                 recovery.c PRR (RFC 6937), RTO, F-RTO, undo
 *   cc.h cc_*.c congestion control                                       info.c    TCP_INFO; rate.c: the delivery rate in it
 *   gro.h gro.c runs of segments that one batch brought
 *   rcvq.c     in-order queue, reading                                   ooo.c     out-of-order queue, blocks to report
 *   stamp.c    stamps of what was sent and received
 *   delack.c   when to acknowledge, window to offer, auto-tuning         urg.c     urgent data
 *   export.c   connections that leave the stack alive (export.h)
 *
 * A connection's packets. Receive: those that came, payload at data/len, PV_TCP_PKT_SEQ its sequence number. Send: one packet a segment,
 * kept (PV_PKT_KEPT) until it is acknowledged; its payload lies at buf + PV_TCP_DATA_OFF and never moves, headers are written in front of
 * it each time. Several that have not been sent may go as one chain (join.c); to everything else they are as many segments.
 */
#ifndef PV_TCP_TCP_INT_H
#define PV_TCP_TCP_INT_H

#include <errno.h>

#include "base/hash.h"
#include "base/htab.h"
#include "base/rng.h"
#include "base/seq.h"
#include "base/siphash.h"
#include "base/wheel.h"
#include "tcp/tcp.h"
#include "wire/tcp.h"

#define PV_TCP_DATA_OFF (PV_NET_HEADROOM + 60u) /* the TCP header has 60 bytes at most */
#define PV_TCP_PKT_SEQ(pkt) ((pkt)->priv[0]) /* of a received packet's first payload byte */
#define PV_TCP_PKT_NS(pkt) ((pkt)->cookie) /* when it was received */
#define PV_TCP_INIT_CWND 10u
#define PV_TCP_MSS_DEFAULT 536u
#define PV_TCP_MSS_DEFAULT6 1220u
#define PV_TCP_SACK_MAX 4u

/* ---- the out-of-order queue (ooo.c) ---------------------------------------------------------------------------------------- */

/* Ranges of packets without a gap, apart from each other and in sequence order. A range's packets hang on `next`; its first one knows the
 * last, and the first ones of the neighbouring ranges. */
struct pv_tcp_ooo {
	struct pv_pkt *head, *tail; /* first packets of the first and of the last range; NULL: empty */
	uint32_t count, ranges; /* packets, ranges */
	uint32_t mem; /* what of rcv_mem is theirs */
};

/* Of a range's first packet. */
pv_inline struct pv_pkt *pv_ooo_last(const struct pv_pkt *first)
{
	return (struct pv_pkt *)(uintptr_t)first->priv[1];
}

pv_inline struct pv_pkt *pv_ooo_next(const struct pv_pkt *first)
{
	return (struct pv_pkt *)(uintptr_t)first->priv[2];
}

pv_inline struct pv_pkt *pv_ooo_prev(const struct pv_pkt *first)
{
	return (struct pv_pkt *)(uintptr_t)first->priv[3];
}

/* ---- a segment of the send queue ---------------------------------------------------------------------------------------- */

#define PV_SEG_FIN 0x01u
#define PV_SEG_PSH 0x02u
#define PV_SEG_URG 0x04u
#define PV_SEG_EOR 0x08u /* nothing is appended (MSG_EOR) */
#define PV_SEG_STAMP 0x10u /* stamp.c may know of a byte in it */
/* Scoreboard, once sent. */
#define PV_SEG_SENT 0x01u
#define PV_SEG_SACKED 0x02u
#define PV_SEG_LOST 0x04u
#define PV_SEG_RETRANS 0x08u /* sent again, and that copy is thought to be in flight */
#define PV_SEG_EVER_RETRANS 0x10u /* no RTT sample from it without timestamps (Karn) */

struct pv_tcp_seg {
	struct pv_list link; /* sndq, in sequence order */
	struct pv_list by_time; /* rack order: last sent last; itself when not in flight */
	struct pv_pkt *pkt; /* NULL: a FIN alone */
	int64_t tx_ns; /* of the last transmission */
	pv_seq seq;
	uint16_t len; /* payload bytes; a FIN counts one more in sequence space */
	uint8_t flags, board; /* PV_SEG_* */
	uint8_t tx_count;
	uint16_t off; /* payload bytes that were acknowledged alone, in front of what is left: pv_seg_data */
};
_Static_assert(sizeof(struct pv_tcp_seg) <= PV_CACHELINE, "a segment is one cache line");

pv_inline uint32_t pv_seg_space(const struct pv_tcp_seg *s)
{
	return s->len + ((s->flags & PV_SEG_FIN) ? 1u : 0u);
}

pv_inline pv_seq pv_seg_end(const struct pv_tcp_seg *s)
{
	return pv_seq_add(s->seq, pv_seg_space(s));
}

/* The payload, wherever headers were written since. */
pv_inline uint8_t *pv_seg_data(const struct pv_tcp_seg *s)
{
	return s->pkt->buf + PV_TCP_DATA_OFF + s->off;
}

/* ---- congestion control: one interface, counted in segments of c->mss as in Linux ----------------------------------------- */

struct pv_tcp;
struct pv_tcp_ack_sample {
	int64_t rtt_ns; /* of what this acknowledgement covers; -1: none */
	uint32_t acked; /* segments newly delivered, cumulatively or by SACK */
};

enum pv_cc_event {
	PV_CC_RTO, /* after ssthresh */
	PV_CC_START, /* new data after a pause of more than a timeout: now_ns - last_data_sent_ns were idle */
};

enum pv_cc_kind { PV_CC_NONE, PV_CC_CUBIC, PV_CC_RENO };

struct pv_cc_ops {
	const char *name;
	enum pv_cc_kind kind;
	bool unlimited; /* cwnd is never reduced */
	void (*init)(struct pv_tcp *c);
	uint32_t (*ssthresh)(struct pv_tcp *c); /* at a loss or ECN event, before anything changes */
	/* By pv_cc_acked, not while recovering. */
	void (*acked)(struct pv_tcp *c, const struct pv_tcp_ack_sample *s, int64_t now_ns);
	void (*undo)(struct pv_tcp *c); /* the event was none; cwnd and ssthresh are the caller's. May be NULL */
	void (*event)(struct pv_tcp *c, enum pv_cc_event what, int64_t now_ns); /* may be NULL; START: cc_priv[0] is not 0 */
};
extern const struct pv_cc_ops pv_cc_cubic, pv_cc_reno, pv_cc_none;
const struct pv_cc_ops *pv_cc_find(const char *name); /* NULL: no such */

/* ---- logical timers ------------------------------------------------------------------------------------------------------ */

enum pv_tcp_timer {
	PV_TT_RTO, /* retransmission, SYN, window probe: whichever of them the state needs */
	PV_TT_RACK, /* reordering window, or tail loss probe */
	PV_TT_DELACK,
	PV_TT_KEEP, /* keepalive; FIN_WAIT_2 of an orphan; SYN_RCVD */
	PV_TT_PACE,
	PV_TT_COUNT
};

enum pv_tcp_ca { PV_CA_OPEN, PV_CA_DISORDER, PV_CA_CWR, PV_CA_RECOVERY, PV_CA_LOSS }; /* Linux's names and numbers */

/* Why what is to be sent is not with the peer yet (TCP_INFO's busy_time and what is in it). */
enum pv_tcp_busy { PV_BUSY_NOT, PV_BUSY, PV_BUSY_RWND, PV_BUSY_SNDBUF, PV_BUSY_COUNT };

#define PV_TF_SACK 0x0001u /* negotiated */
#define PV_TF_TS 0x0002u
#define PV_TF_WS 0x0004u
#define PV_TF_ECN 0x0008u
#define PV_TF_ACK_NOW 0x0010u /* an acknowledgement is owed at once */
#define PV_TF_ECE 0x0020u /* send ECE until CWR comes */
#define PV_TF_CWR 0x0040u /* send CWR with the next new data */
#define PV_TF_FIN_QUEUED 0x0080u
#define PV_TF_FIN_RCVD 0x0100u
#define PV_TF_SHUT_RD 0x0200u
#define PV_TF_ORPHAN 0x0400u /* the application has closed it */
#define PV_TF_TLP 0x0800u /* a probe is out (tlp_high_seq) */
#define PV_TF_URG_RCVD 0x2000u /* rcv_up is valid */
#define PV_TF_URG_READ 0x4000u /* the urgent byte has been read */
#define PV_TF_SND_URG 0x8000u /* snd_up is valid */
#define PV_TF_EMBRYO 0x10000u /* of a listener, not accepted yet */
#define PV_TF_CWND_LIMITED 0x20000u
#define PV_TF_BLOCKED 0x40000u /* on the table's list of those that wait for packets or ring room */
#define PV_TF_PERSIST 0x80000u /* PV_TT_RTO is the window probe */
#define PV_TF_FRTO 0x100000u
#define PV_TF_CLOSED_BY_ERR 0x200000u /* the error was told: EPIPE and end of stream from now on */
#define PV_TF_NOSPACE 0x400000u /* a send found no room, or the peer behind: PV_EV_OUT is owed (sndq.c sets, ack.c clears) */
#define PV_TF_PTO 0x800000u /* PV_TT_RACK is the tail loss probe, not the reordering window */
#define PV_TF_TLP_RETRANS 0x1000000u /* the probe that is out was a retransmission */
#define PV_TF_UNDO 0x2000000u /* `recover` is valid: the reduction may still prove needless */
#define PV_TF_RACK_NEWS 0x4000000u /* something later than before was delivered: losses are to be looked for */
#define PV_TF_DSACK_ROUND 0x8000000u /* rack_dsack_round is valid */
#define PV_TF_RENEGED 0x10000000u /* the receiver took SACKs back */
#define PV_TF_FRTO_NEW 0x20000000u /* RFC 5682 2.1 step 2b: new data first, retransmissions wait for the next acknowledgement */
#define PV_TF_FIN_SEEN 0x40000000u /* a FIN came, perhaps out of order; fin_seq is its number */
#define PV_TF_URG_VALID 0x80000000u /* urg_byte came */
/* PV_TF_ECN in SYN_SENT: to be asked for by the first SYN, not by its repetitions (RFC 3168 6.1.1.1); in SYN_RCVD: to be granted. */

/* c->sock: the socket rather than the connection. */
#define PV_SK_CONNECTING 0x01u /* connect has begun and its end was not asked for: Linux's SS_CONNECTING, and ... */
#define PV_SK_CONNECTED 0x02u /* ... SS_CONNECTED, which an error does not end */
#define PV_SK_BIND_ADDR 0x04u /* the application chose the address; and the port: */
#define PV_SK_BIND_PORT 0x08u
#define PV_SK_HASHED 0x10u /* in `conns` or `listeners` */
#define PV_SK_SHUT_WR 0x20u /* shut down for writing, or all is over: EPIPE */
#define PV_SK_ANY4 0x40u /* an IPv6 socket bound to the IPv4 wildcard */
#define PV_SK_BUSY 0x80u /* pv_tcp_steer_busy was called */

#define PV_ACCEPT4 1u
#define PV_ACCEPT6 2u

/* ---- stamps (stamp.c) ------------------------------------------------------------------------------------------------------ */

struct pv_tcp_want {
	pv_seq last; /* byte of a write */
	uint32_t what; /* PV_STAMP_TX */
};

struct pv_tcp_stamps {
	struct pv_stampq q;
	struct pv_tcp_want *want; /* `cap` of them, a power of two */
	uint32_t cap, head, count;
	uint32_t used; /* bytes in q */
	struct pv_tcp_rx_stamp rx; /* ns 0: none */
	/* While a stamp is made, for pv_tcp_stamp_stats: of what, and by which segment of the peer's. NULL otherwise. */
	const struct pv_tcp_seg *leaving, *acked;
	const struct pv_tcp_in *by;
};

/* A block of RFC 2018. */
struct pv_tcp_sack {
	pv_seq start, end;
};

struct pv_tcp {
	/*
	 * First what every message uses, in the order of its way, each line of the cache full: a connection that answers a request touches
	 * these and no others. Fields that a loss, a handshake or a setting uses come behind.
	 */
	struct pv_hnode flow; /* by both addresses and ports; listeners and bound ones: see demux.c */
	struct pv_addr laddr, raddr; /* zeroes: any, none */
	uint16_t lport, rport; /* host order */
	uint8_t state; /* enum pv_tcp_state */
	uint8_t family, accept; /* accept: families of peers, PV_ACCEPT* */
	uint8_t sock; /* PV_SK_* */
	uint8_t snd_wscale, rcv_wscale;
	uint8_t ca; /* enum pv_tcp_ca */
	uint8_t urg_byte; /* with PV_TF_URG_VALID */
	uint16_t
	    mss; /* payload bytes of a full segment, options of every segment taken off; a part of the path's, where that is several buffers */
	uint16_t last_seg_len; /* below rcv_mss: seen twice, it is the peer's segment */
	uint32_t flags; /* PV_TF_* */
	pv_seq rcv_nxt, snd_una, snd_nxt, snd_max; /* snd_max: highest ever sent + 1 */
	uint32_t snd_wnd; /* bytes, scaled */
	uint32_t ts_recent;
	pv_seq rcv_adv; /* right edge that we promised */
	pv_seq rcv_wup; /* rcv_nxt as of the last acknowledgement that left (RFC 7323 Last.ACK.sent); pv_tcp_ack_sent sets it */
	uint32_t segs_in, data_segs_in; /* these, and when what came last, are input.c's */
	struct pv_tcp_table *t;
	pv_seq snd_wl1, snd_wl2; /* of the last window update */
	/* receive */
	struct pv_pktq rcvq; /* in order, unread */
	struct pv_tcp_ooo ooo;
	uint32_t rcvq_bytes, rcvq_off; /* unread bytes; bytes of the head packet that were read */
	uint32_t rcv_mem; /* what both queues are charged with */
	uint32_t keep_probes;
	int64_t last_data_rcvd_ns, last_ack_rcvd_ns;
	int64_t ts_recent_ns; /* when ts_recent was set (RFC 7323 5.5) */
	int64_t ack_data_ns; /* when data last came, for the estimate of ato_us */
	pv_seq copied_seq; /* next byte that the application reads */
	uint32_t rcv_ssthresh, window_clamp;
	uint32_t ato_us; /* delayed acknowledgement time-out, as Linux estimates it */
	uint16_t rcv_mss, quickacks; /* estimate of the peer's segment; acknowledgements still to be sent at once */
	uint8_t pingpong, nsack;
	uint8_t ack_pend; /* PV_ACK_*: what is owed, and why */
	uint8_t rcv_ratio; /* payload bytes in 256 bytes of charged memory */
	/* send */
	struct pv_list sndq; /* struct pv_tcp_seg: acknowledged from the front, written at the back */
	struct pv_list by_time; /* those in flight */
	struct pv_tcp_seg *unsent; /* first that was never sent; NULL: all were */
	pv_seq write_seq; /* after the last byte in sndq */
	pv_seq snd_sml; /* end of the last short segment (Minshall) */
	uint32_t sndq_bytes, snd_mem; /* payload in sndq; what it is charged with */
	struct pv_tcp_sack dsack; /* to report: start == end, none */
	/* Segments: sent and not acknowledged; among them. Without SACK `sacked` is what duplicate acknowledgements tell, as in Linux. */
	uint32_t in_flight, sacked, lost, retrans;
	uint32_t cwnd, ssthresh; /* segments */
	pv_seq fack; /* highest end of what was SACKed or acknowledged */
	pv_seq high_seq; /* end of the present recovery */
	struct pv_tcp_seg *sack_hint; /* last that a SACK block touched; NULL: none */
	struct pv_tcp_seg *lost_hint; /* nothing before it waits to be sent again; NULL: nothing does */
	uint32_t nsack_seen; /* of sack_seen */
	uint32_t max_out, cwnd_used; /* how much of cwnd was in use (RFC 7661) */
	pv_seq cwnd_usage_seq;
	int64_t cwnd_stamp_ns;
	uint32_t ts_offset;
	uint32_t delivered; /* segments in all: with an acknowledgement */
	uint32_t delivered_tick; /* when something was delivered last */
	uint16_t soft_err; /* ICMP: told if the connection dies of a timeout */
	uint16_t total_rto; /* timeouts */
	/* RACK (RFC 8985 6.1) */
	int64_t rack_tx_ns, rack_rtt_ns;
	int64_t tx_last_ns; /* tx_ns of what was sent last: no two are equal */
	pv_seq rack_end;
	uint8_t rack_reo_mult, rack_reo_persist;
	bool rack_reo_seen;
	bool rate_watch;
	int64_t min_rtt_ns, min_rtt_next_ns, min_rtt_at_ns; /* PV_NEVER: none; of the half window under way, and its start */
	/* RTT and RTO (RFC 6298). rttvar_ns is four times the deviation, floor included; rto_ns is without backoff (see pv_tcp_rto_ns). */
	int64_t srtt_ns, rttvar_ns, rto_ns, mdev_ns, mdev_max_ns;
	pv_seq rtt_seq;
	uint8_t backoff, retransmits, probes_out; /* retransmits: timeouts since snd_una moved */
	bool rate_watch_limited;
	int64_t stall_ns; /* the first timeout since snd_una moved: retries2 and the user timeout count from it */
	const struct pv_cc_ops *cc;
	int64_t last_data_sent_ns;
	/* Pacing (pace.c): bytes/s in force, UINT64_MAX: not paced; by the device's queue, NULL: by us. */
	uint64_t pacing_rate;
	struct pv_wtimer timer;
	int64_t deadline_ns[PV_TT_COUNT]; /* PV_NEVER: off */
	struct pv_teller tell;
	pv_seq rcv_rtt_seq, rcv_space_seq;
	int64_t rcv_rtt_ns, rcv_rtt_start_ns; /* receiver-side RTT and auto-tuning (delack.c) */
	int64_t busy_ns[PV_BUSY_COUNT]; /* how long it was each; of what it is (`busy`), less the time since when it is */
	uint8_t busy; /* enum pv_tcp_busy */
	uint8_t slot; /* which of its slab; never changes */
	uint8_t pace_why; /* enum pv_txq_why */
	uint8_t pace_iface; /* whose device was asked; 0: none yet */
	uint8_t rx_queue; /* by which the last segment came, plus 1; 0: not known */
	uint8_t cc_kind; /* enum pv_cc_kind, of `cc` */
	uint8_t promised_iface; /* of rcv_promised */
	int8_t incoming_cpu; /* SO_INCOMING_CPU: the ring's queue whose flows a listener with SO_REUSEPORT wants; -1: any */
	uint64_t bytes_acked, bytes_received, bytes_sent;
	uint32_t segs_out, data_segs_out;
	struct pv_tcp_opts opts;
	struct pv_tx_opts txo;
	uint32_t rcv_promised; /* what of the table's is its */
	struct pv_path path;
	/* not of every message */
	uint64_t pseudo; /* sum of the pseudo-header but for the length */
	uint64_t cc_priv[12];
	uint32_t ooo_bytes;
	pv_seq rcv_up, snd_up;
	uint32_t rcv_last_tsecr, compact_mem; /* rcv_mem after the last attempt to put payloads together */
	pv_seq fin_seq; /* with PV_TF_FIN_SEEN */
	struct pv_tcp_sack sack[PV_TCP_SACK_MAX]; /* to report: most recent first */
	uint32_t rcv_space; /* with rcv_space_seq */
	uint32_t max_window;
	uint32_t cwnd_cnt, prior_cwnd, prior_ssthresh; /* segments */
	uint32_t reordering; /* segments */
	struct pv_tcp_sack sack_seen[PV_TCP_SACK_MAX]; /* blocks of the last acknowledgement, ascending: marked already */
	pv_seq recover; /* undo marker */
	int32_t undo_retrans; /* retransmissions that no D-SACK has called needless; -1: there were none */
	uint32_t prr_delivered, prr_out;
	uint32_t delivered_ce, lost_marks; /* segments in all: with ECE; marked lost */
	/* Delivery rate (rate.c): of the segment that is watched, when and how much was delivered at its time; the last good sample. */
	pv_seq rate_seq;
	uint32_t rate_prior, rate_prior_tick, rate_send_ticks;
	uint32_t rate_delivered, rate_ticks;
	uint32_t app_limited; /* what was sent until so many are delivered had less to send than the network took; 0: no */
	pv_seq tlp_high_seq;
	pv_seq rack_dsack_round;
	bool rate_limited;
	bool prior_limited; /* was cwnd in use whole before the reduction that prior_cwnd is of? */
	uint16_t advmss, mss_peer; /* what we say, what the peer said */
	uint16_t rto_recoveries; /* how often timeouts left something to recover from */
	uint32_t pmtu;
	int64_t first_rtx_ns; /* the first retransmission of this recovery (Eifel); 0: none */
	int64_t pace_next_ns;
	struct pv_txq *txq;
	struct pv_list blocked, all, on_port, due; /* of the table; due: owes something at the end of the batch */
	struct pv_list acceptq; /* of the listener, or of the parent's queue */
	pv_seq iss, irs;
	struct pv_tcp_port *port;
	struct pv_tcp_rule *rules; /* steer.c: of this connection alone */
	struct pv_tcp_listen *listen; /* NULL: no listener */
	struct pv_tcp *parent; /* of an embryo */
	int64_t opened_ns; /* when its first SYN went or came */
	int64_t oow_ns; /* the last answer to a segment that was none of ours (RFC 5961 5 and ACK storms) */
	int64_t rcv_space_ns;
	struct pv_tcp_stamps *stamps; /* NULL: never asked for */
	uint64_t bytes_retrans;
	uint32_t total_retrans, rcv_ooopack, dsack_dups, reord_seen;
	uint32_t rto_since_ms, rto_time_ms; /* when the recovery from timeouts began, 0: none; how long those before took */
} pv_aligned(PV_CACHELINE);

_Static_assert(offsetof(struct pv_tcp, rcvq) == 2 * PV_CACHELINE, "demux and the predicted path touch two lines before the data");
_Static_assert(offsetof(struct pv_tcp, path.src) <= 15 * PV_CACHELINE, "a message there and back touches the first lines only");
_Static_assert(sizeof(struct pv_tcp) <= 1536, "an idle connection costs no more than 2 KB with its table entries");

pv_inline void pv_tcp_set_cc(struct pv_tcp *c, const struct pv_cc_ops *cc)
{
	c->cc = cc;
	c->cc_kind = (uint8_t)cc->kind;
}

/* RFC 6298 5.5: the timeout in force. */
pv_inline int64_t pv_tcp_rto_ns(const struct pv_tcp *c, int64_t rto_max_ns)
{
	int64_t rto = c->backoff < 20 ? c->rto_ns << c->backoff : rto_max_ns;

	return PV_MIN(rto, rto_max_ns);
}

/* What a segment is charged with in snd_mem. */
pv_inline uint32_t pv_seg_mem(const struct pv_tcp_seg *s)
{
	return (uint32_t)sizeof(*s) + (s->pkt ? s->pkt->size : 0);
}

/* ---- a received segment, parsed once ------------------------------------------------------------------------------------- */

struct pv_tcp_in {
	struct pv_pkt *pkt; /* data/len: the payload */
	struct pv_addr src, dst;
	uint16_t sport, dport;
	pv_seq seq, ack;
	uint32_t len; /* payload bytes */
	uint32_t wnd; /* as in the header, not scaled */
	uint8_t flags; /* PV_TH_* of wire/tcp.h */
	uint8_t tos; /* ECN bits in it */
	uint16_t urp;
	struct pv_wire_tcp_opts opt;
	int64_t now_ns;
	uint32_t hash; /* of the flow, once looked for */
	uint32_t isn; /* to answer a SYN with, above those of the TIME_WAIT that it ends; 0: choose */
};

pv_inline uint32_t pv_tcp_in_space(const struct pv_tcp_in *in)
{
	return in->len + ((in->flags & PV_TH_SYN) != 0) + ((in->flags & PV_TH_FIN) != 0);
}

/* Addresses and ports of an IPv4 segment for a connection, as they stand in front of its TCP header and in it, and the interface it came by. */
struct pv_tcp_last {
	struct pv_tcp *c; /* NULL: none */
	uint64_t addrs;
	uint32_t ports;
	uint32_t iface;
};

/* ---- table --------------------------------------------------------------------------------------------------------------- */

struct pv_tcp_table {
	struct pv_tcp_head head; /* in tcp.h, so that asking costs one load */
	struct pv_wheel wheel; /* of connections: pv_tcp_arm */
	struct pv_wheel syn_wheel; /* of SYN records (listen.c) */
	/* Records of TIME_WAIT and of orphans in FIN_WAIT_2, first to end first: all of a kind last equally long. */
	struct pv_list time_waits_age, fin_waits_age;
	struct pv_list left_age; /* export.c: struct pv_tcp_left, first to end first */
	struct pv_net *net;
	const struct pv_mem *mem;
	struct pv_tcp_cfg cfg; /* defaults filled in */
	struct pv_htab conns, listeners, ports, time_waits, embryos, left;
	struct pv_hash_key hash;
	struct pv_siphash_key isn_key, cookie_key[2], ts_key, port_key;
	struct pv_rng rng;
	struct pv_list all; /* every struct pv_tcp */
	bool hosted; /* there is an interface of the kernel's */
	bool any_near; /* some socket had a min_ttl or min_hops */
	bool gate_open, gate_spent; /* as the rings were told last; something has begun since */
	uint32_t going; /* the interface that is being removed */
	uint32_t nidle; /* on the next */
	struct pv_list idle; /* reserve.c: struct pv_tcp_reserve */
	struct pv_tcp_counters c;
	uint32_t shown; /* pv_mem_show, of these */
	int64_t rcv_promised[PV_IFACE_MAX + 1]; /* by interface: memory for the windows that count (delack.c) */
	struct pv_list slabs; /* those with room for a connection (tcp.c) */
	struct pv_tcp_seg *free_seg; /* through pkt */
	uint32_t nfree_seg, orphans, nconns, fin_waits; /* fin_waits: of the records in time_waits, those in FIN_WAIT_2 */
	uint32_t challenge_left; /* RFC 5961 7: challenge ACKs left in this second */
	int64_t challenge_ns, syn_oow_ns; /* of the second that is under way; of the last answer for a SYN record */
	uint32_t by_state[16];
	uint32_t nempty, next_port; /* nempty: slabs without one */
	struct pv_tcp_syn *free_syn; /* records of listen.c and timewait.c, through flow.next */
	struct pv_tcp_tw *free_tw;
	struct pv_tcp_port *free_port; /* likewise, of demux.c */
	struct pv_tcp_run *runs; /* gro.h */
	uint32_t nruns;
	struct pv_tcp_last last; /* of the connection that the last segment was of; pv_tcp_forget_last */
	struct pv_tcp_chunk *chunks; /* memory of segments and records, for the end */
	struct pv_list room_end; /* where pv_tcp_room stops: in head.blocked while that runs */
};

/* Memory for segments and records comes in chunks, which only pv_tcp_table_close gives back. */
struct pv_tcp_chunk {
	struct pv_tcp_chunk *next;
	size_t size; /* all of it */
} pv_aligned(PV_CACHELINE);

pv_inline void *pv_tcp_chunk_get(struct pv_tcp_table *t, size_t size)
{
	struct pv_tcp_chunk *k = t->mem->alloc(t->mem->ctx, size + sizeof(*k));

	if (!k)
		return NULL;
	k->next = t->chunks;
	k->size = size + sizeof(*k);
	t->chunks = k;
	return k + 1;
}

/* What segments are of may be another connection from now on. */
pv_inline void pv_tcp_forget_last(struct pv_tcp_table *t)
{
	t->last.c = NULL;
}

/* A timer that comes no later than that. */
pv_inline void pv_tcp_wake_by(struct pv_tcp_table *t, int64_t deadline_ns)
{
	t->head.deadline_ns = PV_MIN(t->head.deadline_ns, deadline_ns);
	t->head.wake_ns = PV_MIN(t->head.wake_ns, deadline_ns);
}

/* The only way to arm a connection's timer: what the table's deadline is stays known. */
pv_inline void pv_tcp_arm(struct pv_tcp *c, int64_t deadline_ns)
{
	struct pv_tcp_table *t = c->t;

	pv_wheel_set(&t->wheel, &c->timer, deadline_ns);
	pv_tcp_wake_by(t, deadline_ns);
}

/* ---- tcp.c, demux.c -------------------------------------------------------------------------------------------------------- */

struct pv_tcp *pv_tcp_new(struct pv_tcp_table *t, enum pv_family family); /* NULL: no memory */
void pv_tcp_free(struct pv_tcp *c); /* out of every list and queue; packets and segments go back */
void pv_tcp_set_state(struct pv_tcp *c, enum pv_tcp_state state); /* keeps the table's count */

/* trace.c: what the recorder is told of a connection. */
void pv_tcp_traced(const struct pv_tcp *c, enum pv_trace_kind kind, uint32_t a, uint32_t b);
/* So much of what the program writes is in the queue, or has left. */
pv_inline void pv_tcp_taken(const struct pv_tcp *c, uint32_t len)
{
	PV_PROBE3(send, PV_PROTO_TCP, c, len);
	if (pv_unlikely(c->t->head.stations != NULL))
		pv_tcp_traced(c, PV_TRACE_send, len, 0);
}
void pv_tcp_state_traced(const struct pv_tcp *c, uint32_t to); /* ahead of the change */
/* Counts at t->c.`counter`, and tells of, what ends here or is refused; c, in: NULL where there is none. */
void pv_tcp_lost(struct pv_tcp_table *t, const struct pv_tcp *c, const struct pv_tcp_in *in, uint64_t *counter);
void pv_tcp_tell(struct pv_tcp *c, uint32_t bits); /* an event for the application */
/* The connection ends by an error: queues emptied, CLOSED, the application told `err` (0: none); orphans and embryos are freed, so that
 * `c` must not be touched afterwards. Sends nothing. */
void pv_tcp_abort(struct pv_tcp *c, int err);
/* Both FINs are through: CLOSED, or TIME_WAIT by pv_tcp_time_wait. Orphans are freed. */
void pv_tcp_done(struct pv_tcp *c);
/* Owes something (PV_TF_ACK_NOW, data that may go): pv_tcp_rx_done comes to it. */
void pv_tcp_owe(struct pv_tcp *c);
struct pv_tcp *pv_tcp_find(struct pv_tcp_table *t, const struct pv_tcp_in *in); /* connection */
struct pv_tcp *pv_tcp_find_listener(struct pv_tcp_table *t, const struct pv_tcp_in *in);
int pv_tcp_port_get(struct pv_tcp *c, uint16_t port); /* bind conflicts; 0: ephemeral. -EADDRINUSE */
void pv_tcp_port_put(struct pv_tcp *c);
int pv_tcp_hash(struct pv_tcp *c); /* into `conns` or `listeners`; -EADDRNOTAVAIL: that flow exists */
void pv_tcp_unhash(struct pv_tcp *c);

/* ---- connect.c, listen.c, timewait.c, reset.c, error.c, input.c ----------------------------------------------------------------- */

pv_seq pv_tcp_isn(struct pv_tcp_table *t, const struct pv_tcp_in *flow, int64_t now_ns); /* RFC 6528 */
/* Path, MSS, window, congestion state of a new connection: both addresses and ports are set. Errors of pv_net_path. */
int pv_tcp_setup(struct pv_tcp *c, int64_t now_ns);
/* Takes over what the peer's SYN offers: MSS, scaling, SACK, timestamps, ECN. */
void pv_tcp_negotiate(struct pv_tcp *c, const struct pv_tcp_in *in);
void pv_tcp_established(struct pv_tcp *c, const struct pv_tcp_in *in); /* the handshake is over: timers, cwnd, events */
void pv_tcp_listen_input(struct pv_tcp *l, struct pv_tcp_in *in); /* a segment for a listener: takes the packet */
bool pv_tcp_time_wait_input(struct pv_tcp_table *t,
			    struct pv_tcp_in *in); /* true: it was for a TIME_WAIT and has been dealt with */
void pv_tcp_time_wait(struct pv_tcp *c); /* a record takes the connection's place */
/* Likewise of an orphan in FIN_WAIT_2, with nothing else to do than to wait for a FIN. False: it has to stay what it is. */
bool pv_tcp_fin_wait(struct pv_tcp *c);
void pv_tcp_reset_reply(struct pv_tcp_table *t, const struct pv_tcp_in *in); /* RFC 9293 3.10.7.1; takes no packet */
void pv_tcp_reset_send(struct pv_tcp *c, int64_t now_ns);
void pv_tcp_challenge(struct pv_tcp *c, int64_t now_ns); /* RFC 5961 */

/* ---- sndq.c, output.c, timer.c, pace.c -------------------------------------------------------------------------------------------- */

struct pv_tcp_seg *pv_tcp_seg_get(struct pv_tcp_table *t); /* NULL: no memory */
/* The same where t->free_seg has one. */
pv_inline struct pv_tcp_seg *pv_tcp_seg_take(struct pv_tcp_table *t)
{
	struct pv_tcp_seg *s = t->free_seg;

	t->free_seg = (struct pv_tcp_seg *)(void *)s->pkt;
	t->nfree_seg--;
	s->pkt = NULL;
	pv_list_init(&s->link);
	pv_list_init(&s->by_time);
	s->tx_ns = 0;
	s->len = 0;
	s->flags = 0;
	s->board = 0;
	s->tx_count = 0;
	s->off = 0;
	return s;
}

/* With its packet, which goes to its pool when it comes back if it is out still. */
pv_inline void pv_tcp_seg_put(struct pv_tcp_table *t, struct pv_tcp_seg *s)
{
	if (pv_likely(s->pkt && !(s->pkt->flags & PV_PKT_KEPT)))
		pv_pkt_put(s->pkt);
	else if (s->pkt)
		s->pkt->flags &= ~PV_PKT_KEPT;
	pv_list_del(&s->link);
	pv_list_del(&s->by_time);
	s->pkt = (struct pv_pkt *)(void *)t->free_seg;
	t->free_seg = s;
	t->nfree_seg++;
}
void pv_tcp_sndq_drop(struct pv_tcp *c); /* everything */
int pv_tcp_queue_fin(struct pv_tcp *c); /* -ENOMEM */
/* Cuts a segment at `len` bytes (path MTU became less); the rest follows it. -ENOBUFS. */
int pv_tcp_seg_split(struct pv_tcp *c, struct pv_tcp_seg *s, uint32_t len);
/* Sends what window, cwnd, Nagle and pacing let go: first what is marked lost, then new data. Posts; does not kick. Never ends the connection. */
void pv_tcp_output(struct pv_tcp *c, int64_t now_ns);
#define PV_NAGLE_OFF 1u /* TCP_NODELAY */
#define PV_NAGLE_CORK 2u /* TCP_CORK, MSG_MORE: only full segments */
#define PV_NAGLE_PUSH 4u /* everything, whatever the options say */
pv_inline uint32_t pv_tcp_nagle(const struct pv_tcp *c)
{
	return (c->opts.nodelay ? PV_NAGLE_OFF : 0u) | (c->opts.cork ? PV_NAGLE_CORK : 0u);
}
/* pv_tcp_output with another rule than the socket's for the last segment. */
void pv_tcp_push(struct pv_tcp *c, uint32_t nagle, int64_t now_ns);
/* Pacing (pace.c): opts.pacing_rate was written; may the next segment go; it went. */
void pv_tcp_pace_changed(struct pv_tcp *c, int64_t now_ns);
bool pv_tcp_pace_wait(struct pv_tcp *c, int64_t now_ns);
uint32_t pv_tcp_pace_burst(const struct pv_tcp *c); /* segments that may go together */
void pv_tcp_pace_sent(struct pv_tcp *c, uint32_t len);
void pv_tcp_pace_fired(struct pv_tcp *c, int64_t now_ns);
void pv_tcp_pace_begin(struct pv_tcp *c, bool late, int64_t now_ns); /* late: the timer had held back what goes now */
void pv_tcp_pace_end(struct pv_tcp *c); /* the connection is over; what is queued still leaves */
/* One segment again, at once. 0, -EBUSY (its packet is out still), -ENOBUFS, errors of pv_net_tx. */
int pv_tcp_retransmit(struct pv_tcp *c, struct pv_tcp_seg *s, int64_t now_ns);
/* It still waits for its time in a paced queue, and so long it is worth while to wait; 0: it has left. */
int64_t pv_tcp_held_ns(struct pv_tcp *c, const struct pv_tcp_seg *s, int64_t now_ns);
/* The first segment that was never sent, whatever cwnd and Nagle say (tail loss probe). -EAGAIN: none, or the peer's window is too small; -EBUSY: pacing holds it back. */
int pv_tcp_output_one(struct pv_tcp *c, int64_t now_ns);
void pv_tcp_send_ack(struct pv_tcp *c, int64_t now_ns); /* a pure acknowledgement */
int pv_tcp_send_syn(struct pv_tcp *c, int64_t now_ns); /* SYN or SYN-ACK by state */
/* Zero window and keepalive: one byte behind the window, as Linux. As pv_tcp_retransmit. */
int pv_tcp_send_probe(struct pv_tcp *c, int64_t now_ns);
/* What waits, as far as the window goes, whatever Nagle says; else a probe. 0 or why nothing could be sent. */
int pv_tcp_wakeup(struct pv_tcp *c, int64_t now_ns);
/* A header without a connection (reset, SYN-ACK of a record or cookie, ACK of a TIME_WAIT). Options may be empty. */
struct pv_tcp_bare {
	struct pv_addr src, dst;
	uint16_t sport, dport;
	pv_seq seq, ack;
	uint16_t wnd;
	uint8_t flags, tos;
	uint8_t lane; /* net/txlane.h */
	uint32_t iface, prio;
	struct pv_wire_tcp_opts opt;
};
int pv_tcp_send_bare(struct pv_tcp_table *t, const struct pv_tcp_bare *b, int64_t now_ns);
void pv_tcp_timer_set(struct pv_tcp *c, enum pv_tcp_timer which, int64_t deadline_ns); /* PV_NEVER: off */
void pv_tcp_timer_fired(struct pv_tcp *c, int64_t now_ns); /* `c` may be gone afterwards */
void pv_tcp_syn_arm(struct pv_tcp *c, int64_t now_ns); /* after pv_tcp_send_syn: when it is sent again */
void pv_tcp_keep_arm(struct pv_tcp *c, int64_t now_ns); /* established, or the options were written: keepalive by opts */
/* The timeout `wait_ns` from now, but not past the user timeout of what is sent again. */
void pv_tcp_rto_after(struct pv_tcp *c, int64_t wait_ns, int64_t now_ns);
void pv_tcp_rearm_rto(struct pv_tcp *c,
		      int64_t now_ns); /* RFC 6298 5: by what is in flight; the window probe when nothing may go */
/* The MSS in force from a path MTU, what the peer said, the options, and half the widest window (RFC 9293 3.8.6.2.1): c->mss, c->pmtu.
 * Segments that were built already are cut when they are sent. */
void pv_tcp_mss_sync(struct pv_tcp *c, uint32_t pmtu);
/* Sending needs a path of now: looked up again when the tables changed; the MSS follows. 0 or errors of pv_net_path. */
int pv_tcp_path_check(struct pv_tcp *c, int64_t now_ns);
/* Waits for packets or ring room (pv_tcp_room). */
void pv_tcp_block(struct pv_tcp *c);
/* PV_EV_OUT holds: nobody who found no room waits to be told, a third of the send buffer is free, and TCP_NOTSENT_LOWAT allows more. */
bool pv_tcp_writable(const struct pv_tcp *c);
bool pv_tcp_starved(const struct pv_tcp *c); /* the pool has no packets for it */
void pv_tcp_space(struct pv_tcp *c); /* tells PV_EV_OUT when it is owed and holds */
/* RFC 7323 5.4: a clock of 1 ms, offset by connection. */
pv_inline uint32_t pv_tcp_ts_now(const struct pv_tcp *c, int64_t now_ns)
{
	return (uint32_t)((uint64_t)now_ns / (uint64_t)PV_NS_PER_MS) + c->ts_offset;
}
void pv_tcp_window_update(struct pv_tcp *c, const struct pv_tcp_in *in); /* snd_wnd by RFC 9293 3.10.7.4 */
uint32_t pv_tcp_sndbuf_room(const struct pv_tcp *c);

/* ---- ack.c, sack.c, rack.c, recovery.c, cc_*.c, info.c ------------------------------------------------------------------------------ */

/* The acknowledgement field and SACK blocks of an acceptable segment: scoreboard, RTT, recovery, cwnd, timers, PV_EV_OUT. The caller has
 * checked snd_una <= ack <= snd_max. Calls pv_tcp_owe when something may go now. */
void pv_tcp_ack(struct pv_tcp *c, const struct pv_tcp_in *in);
void pv_tcp_ack_old(struct pv_tcp *c, const struct pv_tcp_in *in); /* one below snd_una */
/* May pv_tcp_ack take the last of several acknowledgements for all of them? */
bool pv_tcp_ack_last_of(const struct pv_tcp *c);
void pv_tcp_rtt_sample(struct pv_tcp *c, int64_t rtt_ns); /* RFC 6298 2 */
void pv_tcp_recovery_init(struct pv_tcp *c);
void pv_tcp_rto_fired(struct pv_tcp *c, int64_t now_ns); /* not for SYN and probes; may abort */
void pv_tcp_rack_fired(struct pv_tcp *c, int64_t now_ns); /* reordering window or tail loss probe */
void pv_tcp_rack_sent(struct pv_tcp *c, int64_t now_ns); /* after output: arms the probe (RFC 8985 7.2) */
void pv_tcp_held_back(struct pv_tcp *c,
		      int64_t now_ns); /* what there is to send is waited for from now on: by whom, for TCP_INFO */
/* rate.c: the segment that is watched from now on, idle: before it nothing was out; it, or what was sent later, was delivered; bytes a second, 0: unknown. */
#define PV_TCP_RATE_SHIFT 10u
void pv_tcp_rate_watch(struct pv_tcp *c, const struct pv_tcp_seg *s, bool idle, int64_t now_ns);
void pv_tcp_rate_sample(struct pv_tcp *c);
uint64_t pv_tcp_rate(const struct pv_tcp *c);
/* From send, before anything is written: has the application left us without work? */
pv_inline void pv_tcp_rate_check(struct pv_tcp *c)
{
	uint32_t pipe = c->in_flight - c->sacked - c->lost + c->retrans;

	if (!c->unsent && c->lost <= c->retrans && pipe < c->cwnd)
		c->app_limited = PV_MAX(c->delivered + pipe, 1u);
}
uint32_t pv_tcp_cwnd_room(const struct pv_tcp *c); /* segments that cwnd, or PRR, lets go now */
/* It went out: pv_tcp_output, pv_tcp_output_one and pv_tcp_retransmit call it for each segment. Scoreboard, in_flight, by_time, tx_ns,
 * tx_count, total_retrans, bytes_retrans; the caller moves snd_nxt, snd_max and `unsent`. */
void pv_tcp_note_sent(struct pv_tcp *c, struct pv_tcp_seg *s, bool again, int64_t now_ns);
/* After pv_tcp_seg_split: `rest` takes over the scoreboard of `s`, which it follows. */
void pv_tcp_note_split(struct pv_tcp *c, const struct pv_tcp_seg *s, struct pv_tcp_seg *rest);
void pv_tcp_idle_restart(struct pv_tcp *c, int64_t now_ns); /* RFC 5681 4.1, before new data after a pause */
/* The same where nothing is in flight, most often nothing to do. */
pv_inline void pv_tcp_idle_check(struct pv_tcp *c, int64_t now_ns)
{
	if (pv_unlikely(now_ns - c->last_data_sent_ns > c->rto_ns || c->cc_priv[0]))
		pv_tcp_idle_restart(c, now_ns);
}
struct pv_tcp_seg *pv_tcp_next_lost(struct pv_tcp *c); /* the first to retransmit; NULL */

/* ---- stamp.c --------------------------------------------------------------------------------------------------------------------- */

/* The last byte of a segment that waits is to be stamped. */
void pv_tcp_stamp_mark(struct pv_tcp *c, struct pv_tcp_seg *s, uint32_t what);
/* What is to be stamped when bytes from `start` to before `end` go out. False: nothing. */
bool pv_tcp_stamp_ask(const struct pv_tcp *c, pv_seq start, pv_seq end, struct pv_stamp_ask *ask);
/* A segment with PV_SEG_STAMP, which is about to leave the queue or to be cut: snd_una has moved, by what `in` says. */
void pv_tcp_stamp_acked(struct pv_tcp *c, const struct pv_tcp_seg *s, const struct pv_tcp_in *in);
void pv_tcp_stamps_forget(struct pv_tcp *c); /* nothing is to be sent any more */
void pv_tcp_stamps_close(struct pv_tcp *c);
void pv_tcp_rx_stamp_note(struct pv_tcp *c, const struct pv_pkt *pkt);
/* stamp_stats.c: what pv_stampq.stats is. */
uint32_t pv_tcp_stamp_stats(void *owner, uint8_t *out);

/* ---- rcvq.c, ooo.c, delack.c, urg.c --------------------------------------------------------------------------------------------------- */

#define PV_ACK_SCHED 0x01u /* received what is not acknowledged yet */
#define PV_ACK_PUSHED 0x02u /* a short segment, or one with PSH, among it */
#define PV_ACK_PUSHED2 0x04u /* two of them */

/* Payload, FIN, CE mark and CWR of an acceptable segment, trimmed to the window here; takes the packet. Sets FIN_RCVD when the FIN is in
 * order: the caller then changes the state. Acknowledgements that are due at once go through pv_tcp_owe. */
void pv_tcp_data(struct pv_tcp *c, struct pv_tcp_in *in);
/* The predicted path: exactly the next bytes, in one buffer and within the window, nothing out of order, no FIN, no CE mark, no urgent data
 * about. Takes the packet (data/len: the payload). What it finds no room for goes the long way from here. */
void pv_tcp_data_in_order(struct pv_tcp *c, const struct pv_tcp_in *in);
void pv_tcp_rcvq_drop(struct pv_tcp *c); /* both queues, and what was promised */
void pv_tcp_promise_end(struct pv_tcp *c); /* nothing is received any more */
/* Window scale to offer by these options: also for SYN-ACKs of records without a connection. */
uint8_t pv_tcp_rcv_wscale(const struct pv_tcp_cfg *cfg, const struct pv_tcp_opts *opts);
/* Bytes that a SYN-ACK by these options promises, not scaled. */
uint32_t pv_tcp_rcv_window0(const struct pv_tcp_cfg *cfg, const struct pv_tcp_opts *opts);
/* Of a new connection, once opts and advmss are set and before its SYN: window, rcv_wscale to offer, auto-tuning. */
void pv_tcp_rcv_init(struct pv_tcp *c);
/* The peer's initial number is known, rcv_wscale negotiated: the receive variables, the edge that the SYN promised. */
void pv_tcp_rcv_start(struct pv_tcp *c, pv_seq irs, int64_t now_ns);
/* rcvbuf, rcvlowat or window_clamp of the options were written. */
void pv_tcp_rcv_opts_changed(struct pv_tcp *c, int64_t now_ns);
/* Enough unread bytes for PV_EV_IN (SO_RCVLOWAT), not counting the end of the stream. */
bool pv_tcp_readable_odd(const struct pv_tcp *c); /* with fewer than that, or an urgent byte among them */
pv_inline bool pv_tcp_readable(const struct pv_tcp *c)
{
	if (!c->rcvq_bytes)
		return false;
	return pv_likely(c->rcvq_bytes >= c->opts.rcvlowat && !(c->flags & PV_TF_URG_RCVD)) || pv_tcp_readable_odd(c);
}
/* The window to offer now (RFC 9293 3.8.6.2.2, never shrinking what was promised) in bytes, a multiple of the scale and no more than the
 * field holds; moves rcv_adv. SYNs: at most 65535 of it, not scaled. */
uint32_t pv_tcp_select_window(struct pv_tcp *c);
/* SACK blocks into the options of the segment being built; room: bytes, kind, length and padding included. Returns how many. */
uint32_t pv_tcp_sack_fill(struct pv_tcp *c, struct pv_wire_tcp_opts *opt, uint32_t room);
void pv_tcp_ack_sent(struct pv_tcp *c); /* from output: a segment with our acknowledgement left */
/* What came was no use (duplicate, outside the window): the next acknowledgements go at once. */
void pv_tcp_quick_mode(struct pv_tcp *c);
void pv_tcp_delack_fired(struct pv_tcp *c, int64_t now_ns);
/* URG of an acceptable segment, before pv_tcp_data takes its packet. */
void pv_tcp_urgent(struct pv_tcp *c, const struct pv_tcp_in *in);
/* Of tcp.h these files have pv_tcp_recv, pv_tcp_take, pv_tcp_recv_now, pv_tcp_inq, pv_tcp_at_mark, pv_tcp_mark_after, pv_tcp_quickack and pv_tcp_is_quickack. */

#endif
