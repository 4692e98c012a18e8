/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP (RFC 9293) over struct pv_net. Byte streams with Linux's socket semantics: sending copies into packets, builds segments and
 * posts them inside the call; what window or ring refuse waits in the send queue. One thread at a time. Errors are -errno, as Linux
 * gives them. Nothing here reads a clock: `now_ns` is the caller's.
 */
#ifndef PV_TCP_TCP_H
#define PV_TCP_TCP_H

#include "base/list.h"
#include "net/endpoint.h"
#include "net/net.h"
#include "net/stamp.h"
#include "net/txq.h"

struct pv_tcp_table; /* all sockets of a stack: ports, demux, timers */
struct pv_tcp; /* a socket: closed, listening, or a connection */

/* Linux's numbers, as TCP_INFO shows them. */
enum pv_tcp_state {
	PV_TCP_ESTABLISHED = 1,
	PV_TCP_SYN_SENT,
	PV_TCP_SYN_RCVD,
	PV_TCP_FIN_WAIT_1,
	PV_TCP_FIN_WAIT_2,
	PV_TCP_TIME_WAIT,
	PV_TCP_CLOSED,
	PV_TCP_CLOSE_WAIT,
	PV_TCP_LAST_ACK,
	PV_TCP_LISTEN,
	PV_TCP_CLOSING,
};

struct pv_tcp_cfg {
	uint32_t sockets_hint; /* 0: 1024 */
	uint16_t port_lo, port_hi; /* ephemeral range; 0: 32768..60999 */
	uint64_t seed; /* ISNs, ports, hash keys, cookies */
	int64_t rto_min_ns; /* 0: 200 ms, as Linux */
	int64_t rto_max_ns; /* 0: 120 s */
	int64_t delack_max_ns; /* 0: 40 ms */
	int64_t time_wait_ns; /* 0: 60 s */
	int64_t fin_timeout_ns; /* of orphans in FIN_WAIT_2; 0: 60 s */
	uint32_t rcvbuf, rcvbuf_max; /* bytes; 0: 131072, 6291456 (tcp_rmem) */
	uint32_t sndbuf, sndbuf_max; /* 0: 16384, 4194304 (tcp_wmem) */
	uint32_t syn_retries, synack_retries, retries2, orphan_retries; /* 0: 6, 5, 15, 8 */
	uint32_t somaxconn; /* 0: 4096 */
	uint32_t gro_streams; /* flows of which segments that come together are put in together; 0: 32 */
	uint32_t quickack_segs; /* segments acknowledged at once at the start; 0: 16 */
	char congestion[16]; /* "cubic", "reno", "none"; empty: cubic */
	bool no_timestamps, no_sack, no_window_scaling, no_syn_cookies, no_recovery_tlp, no_gro;
	/* What pv_tcp_port_hold kept, once the port is nobody's. May be NULL when nothing ever is. */
	void (*port_free)(void *ctx, void *hold);
	void *port_free_ctx;
	/* A reserved port that is nobody's: may it stay reserved? As many may as reserve_max. */
	bool (*port_idle)(void *ctx, void *hold);
	uint32_t reserve_max; /* 0: none */
	uint8_t ecn; /* as tcp_ecn: 0 off, 1 ask and accept, 2 accept; default 0 means 2; 3 turns it off */
};

int pv_tcp_table_open(struct pv_tcp_table **out, struct pv_net *net, const struct pv_mem *mem, const struct pv_tcp_cfg *cfg);
/* Connections that are left are forgotten without a word to their peers; what they hold goes back to the pools. */
void pv_tcp_table_close(struct pv_tcp_table *t);

/* `user` comes back in events; NULL: none are told. -ENOMEM. */
int pv_tcp_open(struct pv_tcp_table *t, enum pv_family family, void *user, struct pv_tcp **out);
/* close(2): the socket is no longer the caller's. Unread data or SO_LINGER of 0 resets; else what is queued is sent, then FIN. What
 * goes on is an orphan of the table's, with Linux's limits. Listeners reset what nobody has accepted. */
void pv_tcp_close(struct pv_tcp *c, int64_t now_ns);
void pv_tcp_set_user(struct pv_tcp *c, void *user);
/* One that was accepted has its user now, and by that its lane (net/txlane.h). */
void pv_tcp_lane_ask(struct pv_tcp *c);
/* As pv_udp_set_lane. */
int pv_tcp_set_lane(struct pv_tcp *c, uint32_t lane, bool hurry);
uint32_t pv_tcp_lane(const struct pv_tcp *c);

/* Port 0: an ephemeral one. -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL (bound already), -EAFNOSUPPORT. */
int pv_tcp_bind(struct pv_tcp *c, const struct pv_endpoint *local);
/* No port, until one is needed: may be called again. */
int pv_tcp_bind_address(struct pv_tcp *c, const struct pv_endpoint *local);
/* -EINPROGRESS: a SYN is under way, PV_EV_OUT tells the end, pv_tcp_error whether it failed. -EISCONN, -EALREADY, -ECONNREFUSED and the
 * like at once, errors of pv_net_path. 0 after a connection that was under way has been made. `remote` NULL, an address that is none:
 * -EINVAL unless the state is an error already. */
int pv_tcp_connect(struct pv_tcp *c, const struct pv_endpoint *remote, int64_t now_ns);
/* Again on a listener: changes the backlog. -EINVAL (connected), -EADDRINUSE. Binds to an ephemeral port when need be. */
int pv_tcp_listen(struct pv_tcp *c, int backlog);
/* The oldest established connection. -EAGAIN, -EINVAL (not listening). */
int pv_tcp_accept(struct pv_tcp *l, struct pv_tcp **out);
uint32_t pv_tcp_accept_queue(const struct pv_tcp *l);
/* No other socket of its port listens. */
bool pv_tcp_listens_alone(const struct pv_tcp *l);
/* Neither an established connection nor one that begins and whose peer may still answer at once. */
bool pv_tcp_listen_idle(const struct pv_tcp *l);
/* Of all listeners of the port, on the host's interfaces: connections come to them by the rings' gates, or not any more. They have rules of
 * their own meanwhile. -EOPNOTSUPP (not all that comes is by rules with a gate), what the ring says: they do not. */
int pv_tcp_gate(struct pv_tcp *l, bool gated);
/* Opens or shuts the gates: the first connection that comes shuts the one by which it came. */
void pv_tcp_gate_open(struct pv_tcp_table *t, bool open);
/* how: 1 read, 2 write, 3 both. -ENOTCONN. A listener that is shut down for reading stops listening. */
int pv_tcp_shutdown(struct pv_tcp *c, uint32_t how, int64_t now_ns);
/* connect(AF_UNSPEC): to CLOSED, with a reset when there was a connection. */
int pv_tcp_disconnect(struct pv_tcp *c, int64_t now_ns);

/* Where something of the caller's can be kept for as long as anything in the stack has the local port: sockets that were closed and are not
 * over yet, and TIME_WAITs, too. NULL: nothing has it. */
void **pv_tcp_port_hold(struct pv_tcp_table *t, uint16_t port);
/* Nobody can keep the port for its TIME_WAITs: it gets none, and those that it has are over. */
void pv_tcp_port_brief(struct pv_tcp_table *t, uint16_t port);
/* Bound to a port that is kept for connections that name none: `hold` is as in pv_tcp_port_hold, and what comes to address and port is
 * steered to us for as long as there is the port, by `iface` too. -EADDRINUSE: somebody else has it, too; what the ring said of a rule;
 * -ENOMEM. */
int pv_tcp_reserve(struct pv_tcp *c, void *hold, uint32_t iface);
/* bind to a reserved port of that address which nobody has, for a connection to `to`; *hold is the port's. -EADDRNOTAVAIL: there is none. */
int pv_tcp_bind_reserved(struct pv_tcp *c, const struct pv_addr *local, const struct pv_endpoint *to, void **hold);
/* A reserved port that nobody has is free: this one, or with 0 the first. False: it was not reserved, or somebody has it. */
bool pv_tcp_reserve_give_up(struct pv_tcp_table *t, uint16_t port);
/* bind named address and port only because the caller had chosen them: as if the program had not. */
void pv_tcp_name_chosen(struct pv_tcp *c, bool addr, bool port);

enum pv_tcp_state pv_tcp_state(const struct pv_tcp *c);
void pv_tcp_local(const struct pv_tcp *c, struct pv_endpoint *out);
bool pv_tcp_has_port(const struct pv_tcp *c); /* false: never had one, or its connection is over and bind did not choose it */
bool pv_tcp_idle(const struct pv_tcp *c); /* has no port, no connection, and none whose end connect is yet to tell */
bool pv_tcp_remote(const struct pv_tcp *c, struct pv_endpoint *out); /* false: none (-ENOTCONN) */
bool pv_tcp_peer(const struct pv_tcp *c, struct pv_endpoint *out); /* the same, and of a connection that is over, who it was */

#define PV_TCP_MSG_OOB 0x01u
#define PV_TCP_MSG_PEEK 0x02u
#define PV_TCP_MSG_MORE 0x04u
#define PV_TCP_MSG_TRUNC 0x08u /* receive: discard instead of copying */
#define PV_TCP_MSG_EOR 0x10u
#define PV_TCP_MSG_RX_STAMP 0x20u /* receive: pv_tcp_rx_stamp is to tell of it */
#define PV_TCP_MSG_STAMP(what) (((what)&3u) << 8 | ((what)&0x300u) << 2) /* send: PV_STAMP_TX, of the last byte */
#define PV_TCP_MSG_STAMPS(flags) (((flags) >> 8 & 3u) | ((flags) >> 2 & 0x300u))
#define PV_TCP_MSG_TURN(n) ((uint32_t)(n) << 16) /* send: takes no more than fills so many segments; 0: all there is room for */

/* Bytes taken (maybe fewer than given), -EAGAIN (no room in the send buffer, no packets, not connected yet), -EPIPE (shut down, never
 * connected, or closed by an error that was told), or the pending error once. Kicks the ring itself. */
int64_t pv_tcp_send(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags, int64_t now_ns);
/* One message of some bytes when nothing is in its way (quick.c), and the doorbell: false, and nothing has happened, when something is. */
bool pv_tcp_send_quick(struct pv_tcp *c, const void *buf, size_t len, int64_t now_ns);
/* The last send found the buffer full, or filled it: PV_EV_OUT tells when there is room again. */
bool pv_tcp_no_room(const struct pv_tcp *c);
/* Does what is under way wait in a queue before the peer? It has been out for more than eight of the shortest round trips, and not for
 * longer than a millisecond, when it may be anything. True, as if the buffer were full: PV_EV_OUT does not hold, and is told, when the peer has
 * taken some of it, a probe or timeout was due, or somebody writes after all. */
bool pv_tcp_holds_back(struct pv_tcp *c, int64_t now_ns);
/* PV_EV_OUT once more: the caller has sent less than there is room for. */
void pv_tcp_send_again(struct pv_tcp *c);
/* Bytes copied, 0 at the end of the stream, -EAGAIN, -ENOTCONN, -EINVAL (MSG_OOB without urgent data), or the pending error once. Reads
 * stop at the urgent mark, as Linux's do. May send a window update. */
int64_t pv_tcp_recv(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags, int64_t now_ns);
/* The same of what is there, if that is as much as SO_RCVLOWAT asks for and nothing is urgent. 0: pv_tcp_recv knows more. */
int64_t pv_tcp_recv_now(struct pv_tcp *c, void *buf, size_t len, int64_t now_ns);
/* Zero copy: takes the head packet off the receive queue, payload at data/len; the caller owns it. NULL: *rc is what pv_tcp_recv would
 * say (0: end of the stream). */
struct pv_pkt *pv_tcp_take(struct pv_tcp *c, int64_t now_ns, int64_t *rc);

/* SO_TIMESTAMPING of what is sent: PV_STAMP_* in `flags`, others are kept. Numbers count bytes from here on when PV_STAMP_OPT_ID is new,
 * with PV_STAMP_OPT_ID_TCP from the next one written. What comes of it is in the queue (PV_EV_ERR), NULL: never asked. -ENOMEM. */
int pv_tcp_stamps_set(struct pv_tcp *c, uint32_t flags);
struct pv_stampq *pv_tcp_stamps(const struct pv_tcp *c);
/* A write ends short of what it was given: its last byte is the last that was taken, if that waits still. */
void pv_tcp_stamp_last(struct pv_tcp *c, uint32_t what);
struct pv_tcp_rx_stamp {
	int64_t ns; /* when the poll brought it */
	uint64_t raw; /* by the ring's clock, with is_raw */
	uint8_t iface;
	bool is_raw;
};
/* Of the segment that the bytes last read with PV_TCP_MSG_RX_STAMP ended in; told once. False: none. */
bool pv_tcp_rx_stamp(struct pv_tcp *c, struct pv_tcp_rx_stamp *out);

uint32_t pv_tcp_inq(const struct pv_tcp *c); /* FIONREAD: bytes in order and unread */
uint32_t pv_tcp_outq(const struct pv_tcp *c); /* SIOCOUTQ: bytes not acknowledged, FIN included as in Linux */
uint32_t pv_tcp_outq_nsd(const struct pv_tcp *c); /* SIOCOUTQNSD: not sent */
uint32_t pv_tcp_in_flight(const struct pv_tcp *c); /* segments that were sent and are not acknowledged */
bool pv_tcp_cuts(const struct pv_tcp *c); /* several segments leave as one packet, which the ring cuts */
bool pv_tcp_at_mark(const struct pv_tcp *c); /* SIOCATMARK */
bool pv_tcp_mark_after(const struct pv_tcp *c, uint32_t n); /* so many bytes after what has been read */
int pv_tcp_error(struct pv_tcp *c); /* SO_ERROR: errno (positive) and clears it */
/* PV_EV_* that hold now, as poll(2) shows them; PV_EV_OUT, which costs the most, only if it is `asked` for. With PV_EV_ERR asked for what
 * pv_tcp_stamps has is one, too. */
uint32_t pv_tcp_ready_of(const struct pv_tcp *c, uint32_t asked);
pv_inline uint32_t pv_tcp_ready_bits(const struct pv_tcp *c)
{
	return pv_tcp_ready_of(c, PV_EV_OUT);
}

/* Options; the socket layer translates setsockopt to these fields and back. Inherited from a listener by what it accepts. */
struct pv_tcp_opts {
	uint32_t rcvbuf, sndbuf; /* SO_RCVBUF, SO_SNDBUF as Linux counts; with the *_locked flags no auto-tuning */
	uint32_t rcvlowat; /* SO_RCVLOWAT; 0 as 1 */
	uint32_t notsent_lowat; /* TCP_NOTSENT_LOWAT; 0: none */
	uint32_t window_clamp; /* TCP_WINDOW_CLAMP; 0: none */
	uint32_t bound_iface;
	bool rcvbuf_locked, sndbuf_locked;
	bool nodelay, cork, oobinline, keepalive, reuse_addr, reuse_port, v6only, freebind;
	bool recverr4, recverr6; /* IP_RECVERR, IPV6_RECVERR: ICMP errors about a connection are told at once */
	bool linger;
	uint8_t tos, tclass;
	uint8_t pmtudisc; /* enum pv_pmtudisc; default WANT */
	uint8_t keepcnt; /* 9 */
	uint8_t syncnt; /* 0: the table's syn_retries */
	uint16_t keepintvl_s; /* 75 */
	int16_t ttl, hops; /* -1: default */
	uint8_t min_ttl, min_hops; /* IP_MINTTL, IPV6_MINHOPCOUNT: of what comes; 0: any */
	uint16_t maxseg; /* TCP_MAXSEG; 0: by MTU */
	uint16_t pacing_packet; /* bytes of a usual frame, for the device; 0: unknown */
	uint8_t priority; /* SO_PRIORITY; 255: that or more */
	bool bind_no_port; /* IP_BIND_ADDRESS_NO_PORT, the caller's: bind or bind_address? */
	uint32_t linger_s;
	uint32_t keepidle_s; /* 7200 */
	uint32_t user_timeout_ms; /* 0: none */
	int32_t linger2_s; /* TCP_LINGER2; 0: the table's fin_timeout, < 0: none */
	uint32_t defer_accept_s; /* 0: off */
	uint32_t stamps; /* the caller's, here only to be inherited */
	uint32_t pacing_burst; /* bytes that may leave at once; 0: the default */
	uint32_t flow_label;
	uint64_t pacing_rate; /* SO_MAX_PACING_RATE, bytes/s; 0 and UINT64_MAX: none */
};
struct pv_tcp_opts *pv_tcp_options(struct pv_tcp *c);
/* SO_INCOMING_CPU: the ring's queue by which the last segment came, where there are several; until then what was set, -1: nothing. A
 * listener of a SO_REUSEPORT group gets the flows of the queue that was set for it. */
int pv_tcp_incoming_cpu(const struct pv_tcp *c);
void pv_tcp_set_incoming_cpu(struct pv_tcp *c, int cpu);
/* After writing to the options, to have them in force. What TCP_CORK, MSG_MORE or Nagle hold stays. */
void pv_tcp_options_changed(struct pv_tcp *c, int64_t now_ns);
/* Before that, when TCP_NODELAY was written: what is held goes this once, TCP_CORK and MSG_MORE or not (Linux's TCP_NAGLE_PUSH). */
void pv_tcp_nodelay_set(struct pv_tcp *c, int64_t now_ns);
void pv_tcp_cork_set(struct pv_tcp *c, int64_t now_ns); /* likewise TCP_CORK: off, what it held goes as the other rules have it */
uint32_t pv_tcp_iface(const struct pv_tcp *c); /* by which the connection sends; 0: there is none yet */
/* False: it is not held to a rate. */
bool pv_tcp_pacing_info(const struct pv_tcp *c, struct pv_txq_info *out);
/* TCP_CONGESTION: -ENOENT for a name that is not known. */
int pv_tcp_congestion_set(struct pv_tcp *c, const char *name);
const char *pv_tcp_congestion(const struct pv_tcp *c);
/* TCP_QUICKACK: odd numbers acknowledge at once what waits, and do not wait for data to ride on until an answer is sent; even ones
 * acknowledge what waits, and then delay; 0 delays. */
void pv_tcp_quickack(struct pv_tcp *c, int val, int64_t now_ns);
bool pv_tcp_is_quickack(const struct pv_tcp *c);
/* TCP_MAXSEG as it is in force. */
uint32_t pv_tcp_mss(const struct pv_tcp *c);
/* TCP_WINDOW_CLAMP likewise. */
uint32_t pv_tcp_window_clamp(const struct pv_tcp *c);

/* The fields of Linux's struct tcp_info that mean something here, in its units (us, bytes, segments). */
struct pv_tcp_info {
	uint8_t state, ca_state, retransmits, probes, backoff, options, snd_wscale, rcv_wscale;
	uint32_t rto_us, ato_us, snd_mss, rcv_mss, unacked, sacked, lost, retrans, fackets;
	uint32_t last_data_sent_ms, last_data_recv_ms, last_ack_recv_ms;
	uint32_t pmtu, rcv_ssthresh, rtt_us, rttvar_us, snd_ssthresh, snd_cwnd, advmss, reordering;
	uint32_t rcv_rtt_us, rcv_space, total_retrans, notsent_bytes, min_rtt_us, snd_wnd, rcv_wnd, rcv_ooopack, dsack_dups,
	    reord_seen;
	uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received, bytes_sent, bytes_retrans;
	uint64_t busy_time_us, rwnd_limited_us, sndbuf_limited_us, delivery_rate;
	uint32_t segs_out, segs_in, data_segs_in, data_segs_out, delivered, delivered_ce;
	uint16_t total_rto, rto_recoveries;
	uint32_t rto_time_ms;
	bool rate_app_limited; /* delivery_rate is what the application gave, not what the network takes */
};
void pv_tcp_get_info(const struct pv_tcp *c, struct pv_tcp_info *out, int64_t now_ns);

/* ---- from the stack ---------------------------------------------------------------------------------------------------- */

/* PV_RX_TCP packets (taken), and what a PV_RX_ERROR of proto TCP says (its packet stays the caller's). Answers are posted, not kicked. */
void pv_tcp_rx(struct pv_tcp_table *t, struct pv_pkt *pkt, int64_t now_ns);
/* The same of several that came together. It may be kept back until pv_tcp_rx_flush, which has to follow the last one. */
void pv_tcp_rx_of_many(struct pv_tcp_table *t, struct pv_pkt *pkt, bool last, int64_t now_ns);
void pv_tcp_rx_flush(struct pv_tcp_table *t);
/* After a batch of pv_tcp_rx: acknowledgements and data that the batch made due go out. */
void pv_tcp_rx_done(struct pv_tcp_table *t, int64_t now_ns);
void pv_tcp_rx_error(struct pv_tcp_table *t, const struct pv_net_error *err, int64_t now_ns);
/* Runs at most `budget` due timers. Returns how many ran. */
uint32_t pv_tcp_timers(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget);
/* Packets came back to pools, or rings took some: connections that had met a full ring or an empty pool go on; some of them, in turns. */
uint32_t pv_tcp_room(struct pv_tcp_table *t, int64_t now_ns);
/* An interface of the kernel's came or its addresses changed: rules are brought in line. */
void pv_tcp_steer_changed(struct pv_tcp_table *t);
/* What a listener or a connection receives, as rules of the rings by ports would name it, on interfaces of whatever kind. */
void pv_tcp_each_flow(const struct pv_tcp *c, pv_flow_fn each, void *ctx);
/* What was sent by this interface a moment ago may be lost, though its peers are there as ever: connections by it that wait for an answer ask
 * again at once, by a probe (RFC 8985 7.3) where they can and by a timeout where not, and wait as if nothing had been lost before. Only timers
 * are set: pv_tcp_timers bounds how many of them send in a turn. */
void pv_tcp_iface_moved(struct pv_tcp_table *t, uint32_t iface, int64_t now_ns);
/* An interface goes: its packets leave all queues; connections by it end with ENETDOWN. */
void pv_tcp_iface_gone(struct pv_tcp_table *t, uint32_t iface);
uint32_t pv_tcp_events(struct pv_tcp_table *t, struct pv_event *out, uint32_t n);

/* Where every struct pv_tcp_table starts, so that asking costs one load. */
struct pv_tcp_head {
	int64_t wake_ns; /* pv_tcp_wake */
	int64_t now_ns; /* the latest that anybody told: the time of calls that are given none */
	int64_t deadline_ns; /* not after the first timer; PV_NEVER: there is none */
	struct pv_list ready; /* connections with events not yet read */
	struct pv_list blocked; /* that wait for packets or room in a ring */
	struct pv_list due; /* that owe something at the end of the batch */
	struct pv_list runs; /* what pv_tcp_rx_flush is for */
	uint32_t news, news_run; /* pv_tcp_news; the number of the first of those in a row that `news_of` had last */
	const struct pv_tcp *news_of; /* compared only: it may be gone */
	struct pv_trace *stations; /* NULL, but while packets are traced */
};

pv_inline void pv_tcp_trace_packets(struct pv_tcp_table *t, struct pv_trace *stations)
{
	((struct pv_tcp_head *)(void *)t)->stations = stations;
}

pv_inline const struct pv_tcp_head *pv_tcp_head(const struct pv_tcp_table *t)
{
	return (const struct pv_tcp_head *)(const void *)t;
}

pv_inline int64_t pv_tcp_now(const struct pv_tcp_table *t)
{
	return pv_tcp_head(t)->now_ns;
}

/* When pv_tcp_timers has something to do; PV_NEVER: never. */
pv_inline int64_t pv_tcp_deadline(const struct pv_tcp_table *t)
{
	return pv_tcp_head(t)->deadline_ns;
}

pv_inline bool pv_tcp_waiting(const struct pv_tcp_table *t)
{
	return !pv_list_empty(&pv_tcp_head(t)->blocked);
}

/* Those that pv_tcp_events would tell of: struct pv_teller. */
pv_inline struct pv_list *pv_tcp_tellers(struct pv_tcp_table *t)
{
	return &((struct pv_tcp_head *)(void *)t)->ready;
}

/* Has pv_tcp_events anything to tell? */
pv_inline bool pv_tcp_ready(const struct pv_tcp_table *t)
{
	return !pv_list_empty(&pv_tcp_head(t)->ready);
}

/* Counts receive queues that were empty and are not any more. */
pv_inline uint32_t pv_tcp_news(const struct pv_tcp_table *t)
{
	return pv_tcp_head(t)->news;
}

/* Of those since it was `since`: were there any of another connection than `c`? */
pv_inline bool pv_tcp_news_of_others(const struct pv_tcp_table *t, const struct pv_tcp *c, uint32_t since)
{
	const struct pv_tcp_head *h = pv_tcp_head(t);
	uint32_t count = h->news - since, run = h->news_run - since;

	return count && (h->news_of != c || (run > 1 && run <= count));
}

/* Has pv_tcp_rx_flush anything to do? */
pv_inline bool pv_tcp_gathered(const struct pv_tcp_table *t)
{
	return !pv_list_empty(&pv_tcp_head(t)->runs);
}

/* Has pv_tcp_rx_done anything to do? */
pv_inline bool pv_tcp_owes(const struct pv_tcp_table *t)
{
	return !pv_list_empty(&pv_tcp_head(t)->due);
}

/* Before this time there is nothing to do: no timer, nothing owed, nobody who waits for room. All that a poll need look at; it may be
 * earlier than necessary until pv_tcp_settle. */
pv_inline int64_t pv_tcp_wake(const struct pv_tcp_table *t)
{
	return pv_tcp_head(t)->wake_ns;
}

pv_inline void pv_tcp_settle(struct pv_tcp_table *t)
{
	struct pv_tcp_head *h = (struct pv_tcp_head *)(void *)t;

	h->wake_ns = pv_tcp_owes(t) || pv_tcp_waiting(t) ? INT64_MIN : h->deadline_ns;
}

struct pv_tcp_counters {
	PV_TCP_COUNTERS(PV_COUNTER_FIELD)
};
const struct pv_tcp_counters *pv_tcp_table_counters(const struct pv_tcp_table *t);
/* Of these, a connection, a listener's queues. */
extern const struct pv_stat_type pv_tcp_table_stat_type, pv_tcp_stat_type, pv_tcp_listener_stat_type;
uint32_t pv_tcp_count(const struct pv_tcp_table *t, enum pv_tcp_state state); /* sockets and records in that state */

#endif
