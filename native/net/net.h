/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network layer: interfaces, routes, neighbours, IPv4 and IPv6, ICMP, fragments, groups. One struct pv_net per stack.
 *
 * Receive: pv_net_rx takes a frame from a ring and either consumes it (ARP, ND, ICMP echo, fragments, drops) or says which
 * transport it is for; then `iface`, `l3_off`, `l4_off` are set (and PV_PKT_GROUP in `flags` when the destination is a group or a
 * broadcast address: the transports ask nothing else of every packet), `data`/`len`/`total` span the L4 header and its payload
 * (padding removed), and reassembled datagrams hang on `frag`.
 * Transmit: a path (pv_net_path) is looked up once and reused while pv_path_valid; pv_net_tx puts IP and Ethernet headers in
 * front of an L4 segment, fragments it when it must, waits for the neighbour when it must, and posts to the ring. The caller
 * kicks (pv_net_kick) when it has posted what it wanted.
 *
 * Nothing here reads a clock: `now_ns` is the caller's. Nothing allocates after open but tables through pv_mem.
 */
#ifndef PV_NET_NET_H
#define PV_NET_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/addr.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/trace.h"
#include "base/stats_table.h"
#include "pkt/pkt.h"
#include "ring/ring.h"

#define PV_IFACE_MAX 32
#define PV_IFACE_ADDR_MAX 16
#define PV_IFNAME_MAX 32

#define PV_PROTO_ICMP 1
#define PV_PROTO_IGMP 2
#define PV_PROTO_TCP 6
#define PV_PROTO_UDP 17
#define PV_PROTO_ICMP6 58

/* Headers in front of an L4 segment at most: Ethernet, VLAN, IPv6, fragment header; and room for a ring's own. */
#define PV_NET_HEADROOM 128u

struct pv_net;
struct pv_iface;
struct pv_neigh;
struct pv_host_ops; /* net/host.h */

struct pv_net_cfg {
	const struct pv_mem *mem;
	uint64_t seed; /* hash keys, IP identifications */
	uint32_t neigh_max; /* entries; 0: 1024 */
	uint32_t neigh_queue; /* packets waiting on one neighbour; 0: 64 */
	uint32_t reass_max; /* datagrams in reassembly at once; 0: 256 */
	uint32_t reass_bytes; /* bytes held in reassembly; 0: 4 MiB */
	int64_t reass_timeout_ns; /* 0: 30 s */
	uint32_t icmp_rate; /* errors sent per second; 0: 1000 (RFC 1812 4.3.2.8) */
	const struct pv_host_ops *host; /* decides for interfaces of the kernel's; NULL: there are none */
	void *host_ctx;
	struct pv_trace *trace; /* of this stack and all above; NULL: none */
	/* The time in the middle of a turn, for who has to know when a frame left; NULL: the turn's will do. */
	int64_t (*clock)(void);
	/* The lane (net/txlane.h) of the user's socket, which is about to send for the first time, from this address: it is one of its senders then.
	 * NULL: nobody has one. */
	uint32_t (*lane)(void *user, const struct pv_addr *src);
};

int pv_net_open(struct pv_net **out, const struct pv_net_cfg *cfg);
/* Interfaces first (pv_net_iface_del). */
void pv_net_close(struct pv_net *net);
/* Other values of what pv_net_cfg calls the same, from now on. Zero: their defaults. */
void pv_net_tune(struct pv_net *net, uint32_t icmp_rate, int64_t reass_timeout_ns);

/* ---- interfaces -------------------------------------------------------------------------------------------------------- */

struct pv_ifaddr {
	struct pv_addr addr;
	uint8_t prefix_len; /* of the family: 0..32 or 0..128 */
};

enum pv_steer {
	PV_STEER_ADDRESS, /* static interface: the ring gets ARP, ND and all that is for our addresses and groups */
	PV_STEER_SOCKET, /* the kernel owns the interface (net/host.h): one rule per socket, no ARP, ND, ICMP, IGMP, routes of ours */
};

/* Told of a flow, or of all flows to a port, by the interface with that number. */
typedef void (*pv_flow_fn)(void *ctx, uint32_t iface, const struct pv_flow *flow);

/* The priority in the tag of frames that leave by an interface with a VLAN. */
struct pv_egress {
	uint16_t named; /* bit per priority of a socket (SO_PRIORITY) that has an entry */
	uint8_t pcp[16]; /* by priority */
	bool by_tos; /* without an entry the traffic class's highest bits, else 0: SL = ToS >> 5, PCP = SL & 7, as RoCE has it */
};

struct pv_iface_cfg {
	char name[PV_IFNAME_MAX];
	struct pv_ring *ring; /* stays the caller's; closed after pv_net_iface_del */
	uint32_t mtu; /* 0: the ring's */
	uint16_t vlan; /* 0: untagged */
	struct pv_egress egress;
	enum pv_steer steer;
	uint32_t kernel_index; /* 0: not a kernel interface */
	struct pv_ifaddr addr[PV_IFACE_ADDR_MAX];
	uint32_t naddr;
	struct pv_addr gateway4, gateway6; /* any: none */
};

/* Index 1.. of the interface (what SO_BINDTOIFINDEX, IP_PKTINFO and scope ids mean), or -errno: -EINVAL (MTU below 68, below 576 with
 * IPv4, 1280 with IPv6, above the ring's; prefix lengths), -EEXIST (name), -ENOSPC, or what the ring said of its flow rules. */
int pv_net_iface_add(struct pv_net *net, const struct pv_iface_cfg *cfg);
int pv_net_iface_del(struct pv_net *net, uint32_t index);
/* Its ring works no more: paths by it answer -ENETDOWN from now on, but those to the host itself. 0, -ENODEV. */
int pv_net_iface_fail(struct pv_net *net, uint32_t index);
/* Its ring sends another way than before, and can do other things (ring/bond.h): rates are asked of it anew. -ENODEV. */
int pv_net_iface_moved(struct pv_net *net, uint32_t index, int64_t now_ns);
struct pv_iface *pv_net_iface(struct pv_net *net, uint32_t index); /* NULL: none */
const struct pv_iface_cfg *pv_iface_config(const struct pv_iface *ifp);
struct pv_ring *pv_iface_ring(struct pv_iface *ifp);
/* The interface that holds this unicast address, or 0. */
uint32_t pv_net_addr_owner(const struct pv_net *net, const struct pv_addr *addr);
/* True for the subnet-directed broadcast of an interface's IPv4 prefix and for 255.255.255.255. */
bool pv_net_is_broadcast(const struct pv_net *net, const struct pv_addr *addr);

struct pv_route {
	struct pv_addr dst; /* mapped when IPv4 */
	uint8_t prefix_len; /* of the family */
	struct pv_addr gateway; /* any: on link */
	uint32_t iface;
	uint32_t metric;
	uint32_t mtu; /* 0: the interface's; below 68 (IPv6: 1280) means that */
};
/* Connected and default routes come with the interface; these are further ones. 0, -EINVAL (prefix, gateway), -ENODEV, -EEXIST
 * (same destination, gateway and interface), -ENOMEM; del: -ESRCH. */
int pv_net_route_add(struct pv_net *net, const struct pv_route *route);
int pv_net_route_del(struct pv_net *net, const struct pv_route *route);

/* A neighbour whose MAC is known from elsewhere (configuration, the kernel's table): never asked for, never expires. Replaces what was
 * learned. 0, -ENODEV, -EINVAL (not a unicast address), -ENOBUFS; del: -ESRCH. */
int pv_net_neigh_add(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, const uint8_t mac[PV_ETH_ALEN]);
int pv_net_neigh_del(struct pv_net *net, uint32_t iface, const struct pv_addr *addr);

/* ---- receive ----------------------------------------------------------------------------------------------------------- */

enum pv_rx_verdict {
	PV_RX_CONSUMED, /* the packet is not the caller's any more */
	PV_RX_UDP,
	PV_RX_TCP,
	PV_RX_ERROR, /* an ICMP error about one of our packets: read pv_net_rx_error, then pv_pkt_put */
};

/* With a verdict other than CONSUMED `*pkt` is the packet for the caller: another one (the first of a chain) when the frame was the
 * last fragment to come. */
enum pv_rx_verdict pv_net_rx(struct pv_net *net, uint32_t iface, struct pv_pkt **pkt, int64_t now_ns);

/* Packets that we sent to an address of our own, oldest first: the owner of the stack takes each and gives it to pv_net_rx with that
 * interface, as if the ring had brought it. NULL: none waits. While some wait, pv_net_deadline is 0. */
struct pv_pkt *pv_net_loop_get(struct pv_net *net, uint32_t *iface);

/* Addresses, hop limit and traffic class of a packet that pv_net_rx handed up, read from its headers. */
struct pv_rx_info {
	struct pv_addr src, dst;
	uint32_t iface;
	uint8_t ttl, tos;
	bool dst_is_mcast, dst_is_bcast;
};
void pv_net_rx_info(const struct pv_net *net, const struct pv_pkt *pkt, struct pv_rx_info *out);
/* UDP or TCP checksum of a received packet (RFC 768, RFC 8200 8.1), by verdict of the ring or, where it gave none, computed over the chain. */
bool pv_net_rx_tcp_sum_ok(const struct pv_pkt *pkt);
bool pv_net_rx_udp_sum_ok(const struct pv_pkt *pkt);
pv_inline bool pv_net_rx_l4_csum_ok(const struct pv_pkt *pkt, uint8_t proto)
{
	if (pkt->flags & (PV_PKT_L4_OK | PV_PKT_L4_BAD))
		return pkt->flags & PV_PKT_L4_OK;
	return proto == PV_PROTO_UDP ? pv_net_rx_udp_sum_ok(pkt) : pv_net_rx_tcp_sum_ok(pkt);
}

/* What an ICMP error says (RFC 792, 1191, 4443), in terms of the packet that we sent. */
struct pv_net_error {
	struct pv_addr local, remote; /* our packet's source and destination */
	uint16_t local_port, remote_port;
	uint32_t tcp_seq; /* of the segment, when it was TCP */
	uint8_t proto, type, code;
	int err; /* Linux's errno for this type and code: ECONNREFUSED, EHOSTUNREACH, EMSGSIZE, ... */
	bool hard; /* Linux reports it even without IP_RECVERR on connected sockets */
	uint32_t mtu; /* next-hop MTU with EMSGSIZE, as the router says */
	struct pv_addr offender; /* who sent the error */
};
const struct pv_net_error *pv_net_rx_error(const struct pv_net *net);
/* From the transport, once it knows the flow of an EMSGSIZE: paths to its destination are that narrow from now on. What is about nobody's
 * flow is a stranger's guess and changes no path. Returns the path MTU in force, never less than what is plausible. */
uint32_t pv_net_error_pmtu(struct pv_net *net, const struct pv_net_error *err, int64_t now_ns);

/* The transport found nobody: answers port unreachable (rate limited, never to multicast), gives the packet back. */
void pv_net_rx_unreachable(struct pv_net *net, struct pv_pkt *pkt, int64_t now_ns);

/* ---- transmit ---------------------------------------------------------------------------------------------------------- */

enum pv_pmtudisc { PV_PMTU_DONT, PV_PMTU_WANT, PV_PMTU_DO, PV_PMTU_PROBE, PV_PMTU_INTERFACE, PV_PMTU_OMIT }; /* IP_MTU_DISCOVER's */

struct pv_tx_opts {
	uint8_t proto;
	uint8_t ttl; /* hop limit */
	uint8_t tos; /* traffic class */
	uint8_t pmtudisc; /* enum pv_pmtudisc */
	uint32_t flow_label; /* IPv6, 20 bits */
	uint32_t l4_csum_off; /* offset of the L4 checksum field in the segment; UINT32_MAX: none to fill */
};

#define PV_JOIN_TSO 1u /* caps.tso_max: it cuts them */
#define PV_JOIN_PIECES 2u /* they leave as one, since a frame of its MTU fills several buffers */

/* Everything the L2/L3 headers of a flow need. Kept by value in a socket. */
struct pv_path {
	/* what pv_net_tx asks of it while nothing has changed; hdr_* are its own: the headers of the last segment, ready for the next one of the same
	 * options */
	struct pv_ring *ring;
	uint32_t gen; /* of the tables it was made from */
	uint16_t iface;
	uint8_t is_local : 1; /* destination is one of our own addresses */
	uint8_t is_mcast : 1;
	uint8_t is_bcast : 1;
	uint8_t is4 : 1; /* IPv4 */
	uint8_t mtu_locked : 1; /* path MTU reported below the least plausible one: no DF by PV_PMTU_WANT (as Linux) */
	bool hdr_l3_soft;
	bool hdr_l4_soft; /* this, and hdr_l3_soft: checksums that the ring does not compute */
	uint8_t hdr_len; /* Ethernet and IP together */
	uint8_t hdr_len_off; /* of the length field, counted back from the segment */
	uint8_t hdr_len_add; /* what the length field counts besides the segment */
	uint32_t hdr_flags; /* PV_PKT_TX_* */
	const uint8_t *hdr_state; /* of the neighbour */
	uint32_t hdr_limit; /* shortest segment that is too long for them; 0: there are none */
	struct pv_tx_opts hdr_opts;
	uint8_t hdr[64]; /* ends where the segment starts */
	/* the rest */
	struct pv_addr src, dst;
	uint32_t mtu; /* IP packet bytes, path MTU taken into account */
	uint32_t iface_mtu;
	uint16_t bound; /* of the query; 0: by route */
	uint8_t tx_csum; /* PV_CSUM_* that the ring computes */
	uint8_t prio, tos; /* of the query, for the tag */
	uint8_t joins; /* PV_JOIN_*: how the ring takes several TCP segments as one packet; 0: it does not */
	uint8_t lane, txq; /* the sender's lane (net/txlane.h), and the ring's transmit queue that it has from it; 0: the first */
	struct pv_neigh *neigh; /* NULL for groups, broadcast and own addresses */
	uint8_t l2[18]; /* Ethernet header, VLAN tag if any; complete only once the neighbour is known */
	uint8_t l2_len;
	bool l2_ready;
};

struct pv_path_query {
	struct pv_addr dst;
	struct pv_addr src; /* any: choose (RFC 6724 in what applies) */
	uint32_t iface; /* 0: by route; else bound to it (SO_BINDTODEVICE, IP_MULTICAST_IF, scope id) */
	bool answer; /* to whoever asked: takes no place from a neighbour that we send to by ourselves (else -ENOBUFS) */
	bool recent; /* what the host answered within the last second is good enough, unless it told of a change since */
	/* For the host's rules; 0: not known. */
	uint16_t src_port, dst_port;
	uint8_t proto, tos;
	uint32_t prio; /* SO_PRIORITY */
};
/* 0, -ENETUNREACH, -EADDRNOTAVAIL (src is not ours), -ENODEV (iface), -EAFNOSUPPORT (families differ). With a host (net/host.h) also
 * what that says, and -EXDEV: the datagram is the kernel's business, since its way leads by another interface than ours or to the
 * host itself. */
int pv_net_path(struct pv_net *net, const struct pv_path_query *q, int64_t now_ns, struct pv_path *out);

/* Where every struct pv_net starts, so that asking costs one load. */
struct pv_net_head {
	uint32_t gen; /* never 0: a zeroed path is not valid */
	uint32_t dirty; /* bit index - 1 of an interface: frames were posted that no doorbell has been rung for */
	union {
		struct {
			bool held; /* doorbells wait: more is about to be posted */
			bool going; /* queues wait to hear that what they posted has left (txq.c) */
		};
		uint16_t not_plain; /* one of them */
	};
	bool left; /* ... and was: who held them rings, or any kick before that */
	bool lanes; /* senders have lanes (txlane.h) */
	bool looped; /* something may wait for pv_net_loop_get */
	struct pv_heap timers;
	struct pv_trace *trace; /* NULL: none */
	struct pv_trace *stations; /* the same while packets are traced, too, else NULL */
};

/* Whether pv_net_kick has something to do: also after one that said -EAGAIN. */
pv_inline bool pv_net_dirty(const struct pv_net *net)
{
	return ((const struct pv_net_head *)(const void *)net)->dirty != 0;
}

/* Whether what was sent to an address of ours is still to be received. */
pv_inline bool pv_net_looped(const struct pv_net *net)
{
	return ((const struct pv_net_head *)(const void *)net)->looped;
}

/* While held pv_net_kick does nothing; what was posted is `dirty` until a kick after that. */
pv_inline void pv_net_hold(struct pv_net *net, bool on)
{
	struct pv_net_head *head = (struct pv_net_head *)(void *)net;

	head->held = on;
	head->left = !on && head->dirty;
}

/* Somebody will ring for what is dirty, and for what is posted meanwhile. */
pv_inline bool pv_net_left(const struct pv_net *net)
{
	return ((const struct pv_net_head *)(const void *)net)->left;
}

pv_inline struct pv_trace *pv_net_trace(const struct pv_net *net)
{
	return ((const struct pv_net_head *)(const void *)net)->trace;
}

pv_inline struct pv_trace *pv_net_stations(const struct pv_net *net)
{
	return ((const struct pv_net_head *)(const void *)net)->stations;
}

pv_inline void pv_net_trace_packets(struct pv_net *net, struct pv_trace *t)
{
	((struct pv_net_head *)(void *)net)->stations = t;
}

pv_inline uint32_t pv_net_gen_of(const struct pv_net *net)
{
	return ((const struct pv_net_head *)(const void *)net)->gen;
}

/* False after any change of interfaces, routes, neighbours or path MTUs that may touch it: look it up again. */
pv_inline bool pv_path_valid(const struct pv_net *net, const struct pv_path *path)
{
	return path->gen == pv_net_gen_of(net);
}

/* A segment longer than the path MTU is fragmented without copying when each buffer of its chain but the last holds exactly this many
 * bytes (the L4 header included) and has PV_NET_HEADROOM in front; any other chain is copied into fresh packets. */
pv_inline uint32_t pv_path_frag_len(const struct pv_path *path)
{
	return (path->mtu - (path->is4 ? 20u : 48u)) & ~7u;
}

/*
 * Sends one L4 segment. `pkt` holds it at `data` with PV_NET_HEADROOM bytes before; a segment larger than one buffer hangs on
 * `frag`: the L4 header is whole in the first, and all are of the pool of the path's ring. Checksums are offloaded when the ring can
 * and the segment is not fragmented, else computed here. The packet is taken in every case. 0 when posted or queued behind neighbour
 * resolution; -EMSGSIZE (DF wanted and too long), -ENOBUFS (ring full or no packets for fragments), -EHOSTUNREACH (neighbour is known
 * not to answer), -ENETDOWN, -ENODEV; errors of pv_net_path when the path was not valid any more.
 */
int pv_net_tx(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, int64_t now_ns);

#define PV_PATH_NEIGH_GOOD 5u /* PV_NEIGH_REACHABLE: from that state on packets go out without a second thought */
/* Whether a segment of `len` bytes in one buffer goes out behind the headers of the last one. */
pv_inline bool pv_net_tx_plain(const struct pv_net *net, const struct pv_path *path, const struct pv_tx_opts *opts, uint32_t len)
{
	uint64_t a, b;

	if (pv_unlikely(len >= path->hdr_limit || !pv_path_valid(net, path) || *path->hdr_state < PV_PATH_NEIGH_GOOD))
		return false;
	_Static_assert(sizeof(*opts) == 12, "compared as 8 and 4 bytes");
	memcpy(&a, &path->hdr_opts, 8);
	memcpy(&b, opts, 8);
	return !((a ^ b) | (path->hdr_opts.l4_csum_off ^ opts->l4_csum_off));
}
/* pv_net_tx of such a one, which has its L4 checksum already where path->hdr_l4_soft, else 0 in the field. */
int pv_net_tx_summed(struct pv_net *net, const struct pv_path *path, struct pv_pkt *pkt);

/*
 * One TCP segment that the ring cuts (PV_PKT_TX_TSO): `pkt` as for pv_net_tx, with `total` and `gso_size` set and gso_hdr the bytes of its
 * TCP header, of at most pv_net_tso_room bytes just now: header and payload; 0: not by this path, or not now. The packet is taken in every
 * case. 0, -ENOBUFS, -ENETDOWN, -ENODEV.
 */
uint32_t pv_net_tso_room(const struct pv_net *net, const struct pv_path *path, const struct pv_tx_opts *opts);
int pv_net_tx_tso(struct pv_net *net, const struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt);
/* Doorbells of all rings that got packets since the last kick. */
int pv_net_kick(struct pv_net *net);

/* ---- groups ------------------------------------------------------------------------------------------------------------ */

enum pv_filter_mode { PV_FILTER_EXCLUDE, PV_FILTER_INCLUDE };

#define PV_GROUP_SOURCE_MAX 64 /* sources of one group that a report names; with more it asks for any source */

/* Reference counted per interface: the first join adds the flow rule and reports (IGMPv3 RFC 3376, MLDv2 RFC 3810), the last leave
 * removes them. What is reported is a superset of what the sockets want: any source as soon as one joined with `source` NULL (or
 * excludes some), else the union of the sources. Each socket filters for itself. A leave must match a join.
 * 0, -ENODEV, -EINVAL (not a group, families differ), -ENOMEM, what the ring said of the rule; leave: -EADDRNOTAVAIL. */
int pv_net_group_join(struct pv_net *net, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source,
		      int64_t now_ns);
int pv_net_group_leave(struct pv_net *net, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source,
		       int64_t now_ns);
/* Interface for a group when none is named: the route's, else the first that is up, else the one of ours that the host would take.
 * 0: none. */
uint32_t pv_net_group_iface(const struct pv_net *net, const struct pv_addr *group);

/* ---- time and counters ------------------------------------------------------------------------------------------------- */

/* Runs at most `budget` due timers (neighbours, reassembly, reports). Returns how many ran. */
uint32_t pv_net_timers(struct pv_net *net, int64_t now_ns, uint32_t budget);
/* PV_NEVER: none */
pv_inline int64_t pv_net_deadline(const struct pv_net *net)
{
	const struct pv_net_head *head = (const struct pv_net_head *)(const void *)net;

	return head->looped ? 0 : pv_heap_deadline(&head->timers);
}

struct pv_net_counters {
	PV_NET_COUNTERS(PV_COUNTER_FIELD)
};
const struct pv_net_counters *pv_net_counters(const struct pv_net *net);
extern const struct pv_stat_type pv_net_stat_type; /* of these */

#endif
