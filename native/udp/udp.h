/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UDP (RFC 768, RFC 8085) over struct pv_net. A socket has at most one receive queue of packets, read in order; sending is
 * immediate. One thread at a time. Errors are -errno, as Linux gives them.
 */
#ifndef PV_UDP_UDP_H
#define PV_UDP_UDP_H

#include "net/endpoint.h"
#include "net/net.h"
#include "net/stamp.h"
#include "net/txq.h"

struct pv_udp_table; /* all sockets of a stack: ports, demux, groups */
struct pv_udp;

#define PV_UDP_PAYLOAD_MAX 65507u /* IPv4; IPv6 carries 65527 without jumbograms (RFC 2675) */

struct pv_udp_cfg {
	uint32_t sockets_hint; /* 0: 1024 */
	uint16_t port_lo, port_hi; /* ephemeral range; 0: 32768..60999 */
	uint64_t seed;
};

int pv_udp_table_open(struct pv_udp_table **out, struct pv_net *net, const struct pv_mem *mem, const struct pv_udp_cfg *cfg);
void pv_udp_table_close(struct pv_udp_table *t);

/* `user` comes back in events. */
int pv_udp_open(struct pv_udp_table *t, enum pv_family family, void *user, struct pv_udp **out);
/* Queued packets go back to their pools. */
void pv_udp_close(struct pv_udp *u);

/* Port 0: an ephemeral one. -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL (bound already), -EAFNOSUPPORT. */
int pv_udp_bind(struct pv_udp *u, const struct pv_endpoint *local);
/* No port, until one is needed: may be called again. */
int pv_udp_bind_address(struct pv_udp *u, const struct pv_endpoint *local);
/* Port, or address and port, of the last bind were chosen for the socket by the kernel: the association's end takes them away. */
void pv_udp_name_chosen(struct pv_udp *u, bool addr, bool port);
/* NULL: dissolve the association (AF_UNSPEC). Binds first when needed. Errors of pv_net_path. */
int pv_udp_connect(struct pv_udp *u, const struct pv_endpoint *remote, int64_t now_ns);
void pv_udp_local(const struct pv_udp *u, struct pv_endpoint *out);
bool pv_udp_remote(const struct pv_udp *u, struct pv_endpoint *out); /* false: not connected, or to port 0 */

/* pv_udp_send.stamp: what is asked for this datagram (PV_STAMP_TX), whatever the socket asks for; and stamp_key is its number. */
#define PV_UDP_STAMP_MSG 0x80000000u
#define PV_UDP_STAMP_KEY 0x40000000u

struct pv_udp_send {
	const struct pv_iov *iov;
	uint32_t iovcnt;
	uint32_t stamp; /* 0: as pv_udp_stamps_set says */
	const struct pv_endpoint *to; /* NULL: the connected peer (-EDESTADDRREQ) */
	/* Ancillary, as IP_PKTINFO/IPV6_PKTINFO, IP_TTL/IPV6_HOPLIMIT, IP_TOS/IPV6_TCLASS carry it: */
	const struct pv_addr *src; /* NULL: the socket's */
	uint32_t iface; /* 0: the socket's */
	int16_t ttl, tos; /* -1: the socket's */
	uint32_t stamp_key;
};
/* Bytes sent (the payload's), or -EMSGSIZE, -EDESTADDRREQ, -EACCES (broadcast without SO_BROADCAST), -ENOBUFS, errors of pv_net_path
 * and pv_net_tx, or the pending socket error. Posts only: the caller kicks with pv_net_kick once it has no more. */
int64_t pv_udp_send(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns);

struct pv_udp_recv {
	/* in */
	struct pv_iov *iov; /* written to; `base` is not const here */
	uint32_t iovcnt;
	bool peek;
	bool bare; /* only the bytes are wanted: nothing below is told */
	bool brief; /* nothing but `from` is */
	/* out */
	struct pv_endpoint from;
	struct pv_addr dst; /* IP_PKTINFO, IP_ORIGDSTADDR */
	uint32_t iface;
	uint32_t full_len; /* of the datagram: more than returned when truncated */
	uint8_t ttl, tos;
	uint32_t flags; /* PV_PKT_* of the packet: timestamp there? */
	uint64_t tstamp; /* ring clock, when flags has PV_PKT_TSTAMP */
	int64_t arrival_ns; /* the poll that brought it */
};
/* Bytes copied, -EAGAIN (queue empty), or the pending error once. */
int64_t pv_udp_recv(struct pv_udp *u, struct pv_udp_recv *msg);
/* Zero copy: takes the head packet off the queue (payload at data/len, chain on frag); the caller owns it. `out` is filled but for
 * iov. NULL when the queue is empty. */
struct pv_pkt *pv_udp_take(struct pv_udp *u, struct pv_udp_recv *out);

uint32_t pv_udp_queued(const struct pv_udp *u); /* datagrams */
uint32_t pv_udp_queued_bytes(const struct pv_udp *u); /* payload of all of them */
uint32_t pv_udp_next_len(const struct pv_udp *u); /* FIONREAD: bytes of the next one */
int pv_udp_error(struct pv_udp *u); /* SO_ERROR: errno (positive) and clears it */
bool pv_udp_readable(const struct pv_udp *u); /* datagram, error or shut down */
bool pv_udp_writable(
    const struct pv_udp *u); /* false from a send's -ENOBUFS until there is room again; paced: half of sndbuf used */
/* how: 1 read, 2 write, 3 both. -ENOTCONN when not connected, as Linux (the flags take effect all the same). */
int pv_udp_shutdown(struct pv_udp *u, uint32_t how);
/* The sum of what was shut down. With 1 and an empty queue pv_udp_recv says -EAGAIN, and a blocking caller returns 0, as Linux. */
uint32_t pv_udp_shut(const struct pv_udp *u);

/* Interfaces that the kernel owns: each socket has flow rules of its own there, made by bind, connect, join and leave and taken back
 * by close. How many it has; *err: 0, or why one could not be had, and the kernel keeps those datagrams. */
uint32_t pv_udp_steered(const struct pv_udp *u, int *err);
/* `off`: leave everything to the kernel; the rules go. */
void pv_udp_steer_off(struct pv_udp *u, bool off);
/* What it receives, as rules of the rings by ports would name it, on interfaces of whatever kind; the same perhaps twice. */
void pv_udp_each_flow(const struct pv_udp *u, pv_flow_fn each, void *ctx);

#define PV_UDP_IFACE_GONE UINT32_MAX

/* Options; the socket layer translates setsockopt to these fields and back. */
struct pv_udp_opts {
	uint32_t rcvbuf; /* bytes of payload and overhead queued, as Linux counts (doubled value); default 212992 */
	uint32_t sndbuf;
	int16_t ttl; /* -1: default (64) */
	uint8_t tos, tclass;
	int16_t hops; /* IPV6_UNICAST_HOPS, -1: default */
	uint8_t mcast_ttl; /* default 1 */
	int16_t mcast_hops; /* default 1 */
	bool mcast_loop4, mcast_loop6; /* default true */
	bool mcast_all4, mcast_all6; /* IP_MULTICAST_ALL; default true */
	uint32_t mcast_iface4, mcast_iface6;
	struct pv_addr mcast_src4; /* IP_MULTICAST_IF given by address */
	uint32_t bound_iface; /* SO_BINDTODEVICE; PV_UDP_IFACE_GONE: one that was removed, nothing comes and nothing goes by it */
	bool broadcast, reuse_addr, reuse_port, v6only, no_check, recverr4, recverr6, freebind;
	bool bind_no_port; /* IP_BIND_ADDRESS_NO_PORT, the caller's: bind or bind_address? */
	uint8_t pmtudisc4, pmtudisc6; /* enum pv_pmtudisc; default WANT */
	uint32_t flow_label;
	uint32_t priority; /* SO_PRIORITY */
	int32_t
	    incoming_cpu; /* SO_INCOMING_CPU: the ring's receive queue whose flows it wants of a SO_REUSEPORT group's; default -1: any */
};
struct pv_udp_opts *pv_udp_options(struct pv_udp *u);
/* The ring's queue by which the last datagram came; -1: none did, or the ring has one queue. */
int pv_udp_rx_queue(const struct pv_udp *u);
/* After writing to the options, to have them in force: cached paths and headers are made again. */
void pv_udp_options_changed(struct pv_udp *u);

/* SO_MAX_PACING_RATE: datagrams leave at that rate on each interface, by the device or by the stack's timers (net/txq.h). What waits is
 * charged to `sndbuf`: pv_udp_send says -EAGAIN when that is used up, and PV_EV_OUT tells when half of it is free. -ENOMEM. */
int pv_udp_set_pacing(struct pv_udp *u, const struct pv_pacing *pacing, int64_t now_ns);
uint32_t pv_udp_peer_iface(const struct pv_udp *u); /* by which the connected peer is sent to; 0: not connected */
/* Paced, and less than half of `sndbuf` is free. */
bool pv_udp_held(const struct pv_udp *u);
/* The queues that the socket has, one an interface; false: not so many. */
/* To another lane (net/txlane.h), of which the socket is a sender already, then with its own old one given back. -EAGAIN: what it sent has not all left, unless
 * `hurry` says that it has; -EBUSY: it is held to a rate. */
int pv_udp_set_lane(struct pv_udp *u, uint32_t lane, bool hurry);
uint32_t pv_udp_lane(const struct pv_udp *u);
bool pv_udp_pacing_info(const struct pv_udp *u, uint32_t i, struct pv_txq_info *out);

/* Membership (RFC 3678). source NULL: any source. Linux's errno: -EADDRINUSE, -EADDRNOTAVAIL, -ENODEV, -EINVAL, -ENOBUFS (limits). */
int pv_udp_join(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns);
int pv_udp_leave(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns);
int pv_udp_block(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns);
int pv_udp_unblock(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns);
/* Whole filter (MCAST_MSFILTER, IP_MSFILTER). get: returns the number of sources there are, fills at most `n`. */
struct pv_udp_filter {
	enum pv_filter_mode mode;
	const struct pv_addr *sources; /* read only during the call */
	uint32_t n;
};
int pv_udp_filter_set(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_udp_filter *filter,
		      int64_t now_ns);
int pv_udp_filter_get(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, enum pv_filter_mode *mode,
		      struct pv_addr *sources, uint32_t n);

/* The error queue (IP_RECVERR): -EAGAIN when empty. Holds the PV_UDP_ERRQ_MAX latest. Present from the pv_udp_options_changed that
 * found recverr4 or recverr6 set. */
#define PV_UDP_ERRQ_MAX 16u
struct pv_udp_errq {
	struct pv_net_error err;
	struct pv_endpoint to; /* where the failed datagram went */
	uint32_t serial;
	bool local; /* SO_EE_ORIGIN_LOCAL: refused here (EMSGSIZE, err.mtu), no ICMP message came */
};
int pv_udp_errq_get(struct pv_udp *u, struct pv_udp_errq *out);
uint32_t pv_udp_errq_count(const struct pv_udp *u);
uint32_t pv_udp_errq_serial(const struct pv_udp *u); /* of the oldest; there is one */
/* PV_EV_* that hold now, as poll(2) shows them. */
uint32_t pv_udp_ready_bits(const struct pv_udp *u);
bool pv_udp_failed(const struct pv_udp *u); /* an error is pending, or there is something in either queue: POLLERR */

/* SO_TIMESTAMPING of what is sent: PV_STAMP_* in `flags`, others are kept. Numbers begin with 0 when PV_STAMP_OPT_ID is new. What comes
 * of it is in the queue (PV_EV_ERR), NULL: never asked. -ENOMEM. */
int pv_udp_stamps_set(struct pv_udp *u, uint32_t flags);
struct pv_stampq *pv_udp_stamps(const struct pv_udp *u);

/* From the stack: PV_RX_UDP packets (taken), and what a PV_RX_ERROR of proto UDP says (its packet stays the caller's). */
void pv_udp_rx(struct pv_udp_table *t, struct pv_pkt *pkt, int64_t now_ns);
void pv_udp_rx_error(struct pv_udp_table *t, const struct pv_net_error *err);
/* From the stack: packets came back, sockets that had met -ENOBUFS are writable again (PV_EV_OUT). Returns how many. */
uint32_t pv_udp_room(struct pv_udp_table *t);
/* Where every struct pv_udp_table starts, so that asking costs one load. */
struct pv_udp_head {
	int64_t now_ns; /* the stack's last poll: the time of calls that are given none, as pv_udp_close */
	uint32_t waiting; /* sockets that wait for room */
	struct pv_trace *stations; /* NULL, but while packets are traced */
	struct pv_list ready; /* sockets with events not yet read */
};

pv_inline int64_t pv_udp_now(const struct pv_udp_table *t)
{
	return ((const struct pv_udp_head *)(const void *)t)->now_ns;
}

pv_inline void pv_udp_set_now(struct pv_udp_table *t, int64_t now_ns)
{
	((struct pv_udp_head *)(void *)t)->now_ns = now_ns;
}

/* From the stack: the stations of packets are recorded from now on; NULL: no longer. */
void pv_udp_trace_packets(struct pv_udp_table *t, struct pv_trace *stations);

pv_inline bool pv_udp_waiting(const struct pv_udp_table *t)
{
	return ((const struct pv_udp_head *)(const void *)t)->waiting != 0;
}

/* Those that pv_udp_events would tell of: struct pv_teller. */
pv_inline struct pv_list *pv_udp_tellers(struct pv_udp_table *t)
{
	return &((struct pv_udp_head *)(void *)t)->ready;
}

/* Has pv_udp_events anything to tell? */
pv_inline bool pv_udp_ready(const struct pv_udp_table *t)
{
	return !pv_list_empty(&((const struct pv_udp_head *)(const void *)t)->ready);
}

/* From the stack, when an interface of the kernel's came or its addresses changed: the rules of all sockets are brought in line. */
void pv_udp_steer_changed(struct pv_udp_table *t);
/* From the stack, when an interface goes: memberships on it end, and no socket is bound to the next one of its number. What came by it
 * is still to be read, and holds its pool until then. */
void pv_udp_iface_gone(struct pv_udp_table *t, uint32_t iface);
/* Drops from all queues what lies in the pool's buffers. */
void pv_udp_pool_purge(struct pv_udp_table *t, const struct pv_pool *pool);

/* From the stack, when nothing can be sent by an interface any more: ENETDOWN becomes the pending error of the sockets whose device,
 * address or peer is there. */
void pv_udp_iface_failed(struct pv_udp_table *t, uint32_t iface);

/* Readiness: sockets that became readable (or got an error, or room) since the last call, at most n; edge records, each socket
 * once. Returns how many; `user` pointers are stored. */
uint32_t pv_udp_events(struct pv_udp_table *t, struct pv_event *out, uint32_t n);

struct pv_udp_counters {
	PV_UDP_COUNTERS(PV_COUNTER_FIELD)
};
const struct pv_udp_counters *pv_udp_table_counters(const struct pv_udp_table *t);
const struct pv_udp_counters *pv_udp_counters(const struct pv_udp *u);
/* Of the table's counters, a socket, a membership. */
extern const struct pv_stat_type pv_udp_table_stat_type, pv_udp_stat_type, pv_udp_member_stat_type;

#endif
