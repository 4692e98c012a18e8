/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the network layer share. A packet passed to a function named *_rx, *_tx or *_output is taken by it in every case.
 */
#ifndef PV_NET_INTERNAL_H
#define PV_NET_INTERNAL_H

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/htab.h"
#include "base/rng.h"
#include "base/siphash.h"
#include "net/host.h"
#include "net/net.h"
#include "net/stamp.h"
#include "wire/arp.h"
#include "wire/eth.h"
#include "wire/icmp4.h"
#include "wire/icmp6.h"
#include "wire/igmp.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

#define PV_LOCAL_SLOTS 2048u /* of the table of our own addresses: twice what 32 interfaces can hold */
#define PV_LOOP_MAX 1024u /* packets to ourselves that wait */
#define PV_PMTU_MAX 256u
#define PV_IP_ID_SLOTS 512u
#define PV_FLOW_MAX (3u * PV_IFACE_ADDR_MAX + 8u)
#define PV_DEFAULT_TTL 64u
/* Linux's defaults of net.ipv4.route.min_pmtu and mtu_expires. */
#define PV_PMTU_MIN4 552u
#define PV_PMTU_EXPIRE_NS (600 * PV_NS_PER_S)

/* ---- timers ------------------------------------------------------------------------------------------------------------ */

struct pv_net_timer {
	struct pv_timer t;
	void (*fn)(struct pv_net *net, struct pv_net_timer *timer, int64_t now_ns);
};

/* ---- interfaces -------------------------------------------------------------------------------------------------------- */

enum pv_local_kind { PV_LOCAL_NONE, PV_LOCAL_UNICAST, PV_LOCAL_BCAST };

struct pv_local {
	struct pv_addr addr;
	uint16_t iface;
	uint8_t kind; /* enum pv_local_kind */
};

/* Compatibility with old queriers and what the last query told (RFC 3376 8, RFC 3810 9). */
struct pv_querier {
	struct pv_net_timer general; /* answer to a general query */
	int64_t v1_until_ns, v2_until_ns; /* MLD: only the first, for version 1 */
};

#define PV_IFACE_TIMERS 4

struct pv_iface {
	/* read for every frame */
	uint64_t mac64; /* our MAC as the first 6 bytes of a frame read as one word; all ones: the short way is not for this one */
	uint32_t ip4, bcast4; /* primary address and its subnet's broadcast, as on the wire; 0: none */
	struct pv_addr ip6; /* primary IPv6 address; any: none */
	uint16_t index, vlan;
	bool resolves; /* we do ARP and ND here, not the kernel */
	bool failed; /* nothing is sent by it any more */
	uint8_t mac[PV_ETH_ALEN];
	struct pv_ring *ring;

	struct pv_iface_cfg cfg;
	struct pv_addr linklocal; /* source of ND and MLD; any: none */
	struct pv_list groups;
	struct pv_querier igmp, mld;
	struct pv_net_timer announce;
	uint8_t announces; /* left to send */
	struct pv_net_timer relink; /* of an interface that nobody tells of: when frames without a link are rung for again */
	int64_t defended_ns; /* RFC 5227 2.4 */
	uint64_t flow[PV_FLOW_MAX];
	uint32_t nflow;
};

/* ---- neighbours -------------------------------------------------------------------------------------------------------- */

/* Order matters: from PV_NEIGH_REACHABLE on, packets go out without a second thought. */
enum pv_neigh_state {
	PV_NEIGH_FREE,
	PV_NEIGH_NONE, /* known by name only: nothing was sent to it yet */
	PV_NEIGH_INCOMPLETE,
	PV_NEIGH_FAILED,
	PV_NEIGH_STALE,
	PV_NEIGH_REACHABLE,
	PV_NEIGH_DELAY,
	PV_NEIGH_PROBE,
	PV_NEIGH_PERMANENT,
};
_Static_assert(PV_NEIGH_REACHABLE == PV_PATH_NEIGH_GOOD, "as net.h has it");

struct pv_neigh {
	uint8_t state; /* enum pv_neigh_state */
	uint8_t mac[PV_ETH_ALEN];
	uint8_t probes;
	uint16_t iface;
	bool used; /* somebody sent by it: not evicted for strangers */
	struct pv_addr addr;
	struct pv_hnode node;
	struct pv_list lru; /* of net->neigh_lru[used], or of the free list */
	struct pv_net_timer timer;
	struct pv_pktq queue;
	struct pv_addr probe_src; /* of the packet that made us ask */
	int64_t changed_ns; /* when the MAC was learned or confirmed; when it failed */
};

/* ---- reassembly -------------------------------------------------------------------------------------------------------- */

struct pv_reass {
	struct pv_hnode node;
	struct pv_list age; /* oldest first; or the free list */
	struct pv_net_timer timer;
	struct pv_addr src, dst;
	uint32_t id;
	uint8_t proto;
	uint8_t iface;
	bool have_first, have_last, dead;
	uint16_t count;
	uint32_t bytes; /* of buffers held */
	uint32_t have, want; /* payload bytes here; in all, once the last is here */
	struct pv_pkt *head, *tail; /* by `frag`, in order of offset */
};

/* ---- the layer --------------------------------------------------------------------------------------------------------- */

struct pv_route_node {
	struct pv_hnode node;
	struct pv_route r; /* dst masked, prefix_len of the mapped address: 0..128 */
	uint64_t seq; /* older first among equals */
};

struct pv_pmtu {
	struct pv_addr dst;
	uint32_t mtu; /* 0: free */
	bool locked;
	int64_t expire_ns;
};

struct pv_net {
	struct pv_net_head head;
	struct pv_iface *iface[PV_IFACE_MAX + 1];
	struct pv_net_counters c pv_aligned(PV_CACHELINE);
	uint32_t shown; /* pv_mem_show */

	const struct pv_mem *mem;
	struct pv_net_cfg cfg;
	struct pv_rng rng;
	struct pv_hash_key key;
	struct pv_siphash_key sip;
	struct pv_net_error err;
	struct pv_pktq loop;
	struct pv_local *local;
	int64_t now_ns; /* latest that a caller told, for calls that bring none */

	struct pv_htab routes;
	uint64_t plens[3]; /* bit per prefix length that occurs */
	uint32_t nplen[129];
	uint64_t route_seq;

	struct pv_pmtu *pmtu;
	struct pv_net_timer pmtu_timer;
	struct pv_host_seen *host_seen; /* NULL without a host */
	bool host_portless; /* its answers depend on neither ports nor protocol */
	uint32_t *ip_id;

	struct pv_neigh *neigh;
	struct pv_htab neigh_tab;
	struct pv_list neigh_lru[2]; /* [used], least recently confirmed first; permanent ones are in neither */
	struct pv_list neigh_free;

	struct pv_reass *reass;
	struct pv_htab reass_tab;
	struct pv_list reass_age, reass_free;
	uint32_t reass_held; /* bytes */

	struct pv_htab groups;
	uint32_t ngroups;

	/* stamp.c */
	const struct pv_stamp_ask *ask; /* while pv_net_tx_stamp sends: what the next frame is asked */
	struct pv_stamp_slot *stampq; /* nstampq of them */
	uint32_t nstampq, serial, stamps_out;
	int64_t stamps_until_ns;
	bool stamps_hw;
	struct pv_htab txqs; /* paced queues, by id */
	struct pv_list txq_all, txq_going;
	uint64_t txq_id; /* of the last one */
	struct pv_txlanes *txlanes; /* NULL: there never was one */

	int64_t icmp_filled_ns;
	uint64_t icmp_tokens; /* in 1e-9 messages */
};

/* ---- helpers ----------------------------------------------------------------------------------------------------------- */

pv_inline void *pv_net_alloc(struct pv_net *net, size_t size)
{
	return net->mem->alloc(net->mem->ctx, size);
}

pv_inline void pv_net_free(struct pv_net *net, void *p, size_t size)
{
	if (p)
		net->mem->free(net->mem->ctx, p, size);
}

pv_inline void pv_net_gen_bump(struct pv_net *net)
{
	if (++net->head.gen == 0)
		net->head.gen = 1;
	pv_trace_note(net->head.trace, .kind = PV_TRACE_paths, .b = net->head.gen);
}

pv_inline void pv_net_timer_set(struct pv_net *net, struct pv_net_timer *t, int64_t at_ns)
{
	/* Places are reserved when the timer's owner is made. */
	(void)pv_heap_set(&net->head.timers, &t->t, at_ns);
}

pv_inline void pv_net_timer_del(struct pv_net *net, struct pv_net_timer *t)
{
	pv_heap_del(&net->head.timers, &t->t);
}

/* All timers that there are, pmtu_timer among them, and those of so many groups and paced queues more. */
pv_inline uint32_t pv_net_timers_max(const struct pv_net *net, uint32_t groups, uint32_t txqs)
{
	return net->cfg.neigh_max + net->cfg.reass_max + PV_IFACE_TIMERS * PV_IFACE_MAX + 1 + 2 * (net->ngroups + groups) +
	       net->txqs.count + txqs;
}

pv_inline int pv_net_timers_reserve(struct pv_net *net, uint32_t groups, uint32_t txqs)
{
	return pv_heap_reserve(&net->head.timers, pv_net_timers_max(net, groups, txqs));
}

/* Counts and tells of a packet that ends here, or is refused: at net->c.`counter`. pkt may be NULL: there is none to be told of. */
void pv_net_lost(struct pv_net *net, const struct pv_pkt *pkt, uint64_t *counter);

pv_inline enum pv_rx_verdict pv_net_drop(struct pv_net *net, struct pv_pkt *pkt, uint64_t *counter)
{
	pv_net_lost(net, pkt, counter);
	pv_pkt_put(pkt);
	return PV_RX_CONSUMED;
}

/* First `bits` of an address, the rest zero. */
pv_inline struct pv_addr pv_addr_mask(const struct pv_addr *a, uint32_t bits)
{
	struct pv_addr m = *a;

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t keep = bits > 32 * i ? PV_MIN(bits - 32 * i, 32u) : 0;

		m.w[i] &= keep ? __builtin_bswap32(UINT32_MAX << (32 - keep)) : 0;
	}
	return m;
}

/* Prefix lengths in terms of the mapped address. */
pv_inline uint32_t pv_addr_plen(const struct pv_addr *a, uint32_t prefix_len)
{
	return pv_addr_is4(a) ? prefix_len + 96 : prefix_len;
}

pv_inline bool pv_addr_in(const struct pv_addr *a, const struct pv_addr *net_addr, uint32_t plen)
{
	struct pv_addr m = pv_addr_mask(a, plen), n = pv_addr_mask(net_addr, plen);

	return pv_addr_eq(&m, &n);
}

pv_inline bool pv_addr_is_unicast_ll6(const struct pv_addr *a)
{
	return a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80;
}

/* Ones' complement sum of a whole chain from `data` on. */
uint64_t pv_net_chain_sum(const struct pv_pkt *pkt);
/* A packet of that ring's pool to build a frame in: data behind PV_NET_HEADROOM. NULL: none (counted). */
struct pv_pkt *pv_net_pkt(struct pv_net *net, struct pv_ring *ring);

/* ---- between the files -------------------------------------------------------------------------------------------------- */

/* iface.c */
const struct pv_local *pv_local_find(const struct pv_net *net, const struct pv_addr *addr, uint32_t iface);
/* Unicast address of that very interface. */
bool pv_iface_owns(const struct pv_net *net, const struct pv_iface *ifp, const struct pv_addr *addr);
const struct pv_ifaddr *pv_iface_onlink(const struct pv_iface *ifp, const struct pv_addr *addr);
/* The host decides: routes, neighbours, groups. */
pv_inline bool pv_iface_is_hosts(const struct pv_net *net, const struct pv_iface *ifp)
{
	return net->cfg.host && !ifp->resolves;
}
int pv_iface_flow_add(struct pv_iface *ifp, const struct pv_addr *dst, const uint8_t *mac, uint64_t *handle);
bool pv_iface_wants_flows(const struct pv_iface *ifp);

/* route.c */
int pv_route_open(struct pv_net *net);
void pv_route_close(struct pv_net *net);
const struct pv_route *pv_route_find(const struct pv_net *net, const struct pv_addr *dst, uint32_t iface);
void pv_route_del_iface(struct pv_net *net, uint32_t iface);

/* path.c, path_host.c */
const struct pv_addr *pv_iface_source(const struct pv_iface *ifp, const struct pv_addr *dst, const struct pv_addr *nexthop);
/* Where the datagram leaves, and to whom on that link. */
struct pv_hop {
	uint32_t iface;
	struct pv_addr next;
	uint32_t mtu; /* of the route; 0: none */
};
/* The rest of `out`, whose src, is_local, is_mcast and is_bcast are set. */
int pv_path_fill(struct pv_net *net, const struct pv_path_query *q, const struct pv_hop *h, int64_t now_ns, struct pv_path *out);
/* Is this one for the host to decide? */
bool pv_path_is_hosts(const struct pv_net *net, const struct pv_path_query *q);
int pv_path_host(struct pv_net *net, const struct pv_path_query *q, int64_t now_ns, struct pv_path *out);
uint32_t pv_host_group_iface(const struct pv_net *net, const struct pv_addr *group);
/* What the host answered lately. */
int pv_host_seen_open(struct pv_net *net);
void pv_host_seen_close(struct pv_net *net);
void pv_path_l2(struct pv_path *path, const struct pv_iface *ifp, const uint8_t *dst_mac);

/* pmtu.c */
void pv_pmtu_learn(struct pv_net *net, const struct pv_addr *dst, uint32_t mtu, uint32_t current, int64_t now_ns);
const struct pv_pmtu *pv_pmtu_find(struct pv_net *net, const struct pv_addr *dst, int64_t now_ns);

/* stamp.c */
int pv_stamp_tx(struct pv_net *net, struct pv_path *path, struct pv_pkt *pkt, int64_t now_ns); /* pv_tx_out, with net->ask */
void pv_stamps_close(struct pv_net *net);

/* neigh.c */
int pv_neigh_open(struct pv_net *net);
void pv_neigh_close(struct pv_net *net);
struct pv_neigh *pv_neigh_find(const struct pv_net *net, uint32_t iface, const struct pv_addr *addr);
/* `ours`: we have something to send to it. NULL: no room. */
struct pv_neigh *pv_neigh_get(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, bool ours);
void pv_neigh_del_iface(struct pv_net *net, uint32_t iface);
/* A frame complete but for its destination MAC: sends, queues or refuses it. `src`: our address to ask from. */
int pv_neigh_output(struct pv_net *net, struct pv_neigh *n, const struct pv_addr *src, struct pv_pkt *pkt, int64_t now_ns);
/* What we heard: `confirmed` is an answer to us, `override` may replace a different MAC. */
void pv_neigh_heard(struct pv_net *net, struct pv_neigh *n, const uint8_t *mac, bool confirmed, bool override, int64_t now_ns);

/* arp.c, nd.c */
enum pv_rx_verdict pv_arp_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, int64_t now_ns);
/* `mac` NULL: to everybody. */
void pv_arp_request(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *target, const struct pv_addr *src,
		    const uint8_t *mac);
void pv_arp_announce(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *addr);
struct pv_icmp6_in;
enum pv_rx_verdict pv_nd_rx(struct pv_net *net, struct pv_icmp6_in *in, int64_t now_ns);
void pv_nd_solicit(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *target, const struct pv_addr *src, bool unicast,
		   int64_t now_ns);
void pv_nd_announce(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *addr);

/* txq.c */
int pv_txq_init(struct pv_net *net);
void pv_txq_fini(struct pv_net *net);
void pv_txq_del_iface(struct pv_net *net, uint32_t iface);
void pv_txq_moved(struct pv_net *net, uint32_t iface, int64_t now_ns);
/* The doorbell was rung. */
void pv_txq_left(struct pv_net *net);
/* A frame with PV_PKT_TX_PACED, from now on the queue's. As pv_tx_post. */
int pv_txq_post(struct pv_net *net, uint32_t iface, struct pv_ring *ring, struct pv_pkt *pkt);

/* The ring's, counted. */
pv_inline int pv_net_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate)
{
	int rc = pv_ring_txq_open(r, rate);

	r->stat->tx_queues += rc > 0;
	return rc;
}

pv_inline int pv_net_txq_close(struct pv_ring *r, uint32_t txq)
{
	r->stat->tx_queues--;
	return pv_ring_txq_close(r, txq);
}

/* txlane.c */
void pv_txlane_fini(struct pv_net *net);
void pv_txlane_del_iface(struct pv_net *net, uint32_t iface);
/* The queue, or the first when it is no lane's any more. */
uint32_t pv_txlane_still(const struct pv_net *net, uint32_t iface, uint32_t queue);

/* tx.c */
/* What the sender asked of the packet, and still holds when its headers are written. */
#define PV_PKT_ASKED (PV_PKT_KEPT | PV_PKT_TX_PACED)
int pv_tx_post(struct pv_net *net, uint32_t iface, struct pv_ring *ring, struct pv_pkt *pkt);
/* `data` is an IP packet, checksums done or asked for: Ethernet header, neighbour, ring; or the way back to ourselves. */
int pv_tx_frame(struct pv_net *net, struct pv_path *path, struct pv_pkt *pkt, int64_t now_ns);
/* The same from the Ethernet header on, which the packet has where it leaves the host. */
int pv_tx_out(struct pv_net *net, struct pv_path *path, struct pv_pkt *pkt, int64_t now_ns);
/* pv_net_tx, but for its straight line. */
int pv_tx_slow(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, int64_t now_ns);
/* `data` is an IP packet from us to us. */
int pv_tx_loop(struct pv_net *net, const struct pv_iface *ifp, struct pv_pkt *pkt);
uint16_t pv_tx_ip_id(struct pv_net *net, const struct pv_path *path, uint8_t proto);
void pv_tx_l4_csum(const struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, uint32_t total);
/* A message of ours with no transport above: looks the path up and sends. */
int pv_tx_control(struct pv_net *net, const struct pv_path_query *q, const struct pv_tx_opts *opts, struct pv_pkt *pkt,
		  int64_t now_ns);

/* Headers in front of `data` from here on: `len` is of the whole IP packet. */
pv_inline void pv_tx_emit4(uint8_t *h, const struct pv_path *path, const struct pv_tx_opts *opts, uint32_t len, uint32_t id_frag)
{
	uint64_t w0 = 0x45u | (uint64_t)opts->tos << 8 | (uint64_t)__builtin_bswap16((uint16_t)len) << 16 |
		      (uint64_t)__builtin_bswap32(id_frag) << 32;
	uint64_t w1 = opts->ttl | (uint64_t)opts->proto << 8 | (uint64_t)path->src.w[3] << 32;
	uint32_t dst = path->dst.w[3];

	memcpy(h, &w0, 8);
	memcpy(h + 8, &w1, 8);
	memcpy(h + 16, &dst, 4);
}

pv_inline void pv_tx_emit6(uint8_t *h, const struct pv_path *path, const struct pv_tx_opts *opts, uint32_t payload, uint8_t next)
{
	uint64_t w0 = __builtin_bswap32(0x60000000u | (uint32_t)opts->tos << 20 | (opts->flow_label & 0xfffff)) |
		      (uint64_t)__builtin_bswap16((uint16_t)payload) << 32 | (uint64_t)next << 48 | (uint64_t)opts->ttl << 56;

	memcpy(h, &w0, 8);
	memcpy(h + 8, path->src.b, 16);
	memcpy(h + 24, path->dst.b, 16);
}

/* frag.c */
int pv_frag_tx(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, uint32_t mtu,
	       int64_t now_ns);

/* ip4.c, ip6.c: `data` is the IP header, l2 checked. */
enum pv_rx_verdict pv_ip4_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt **pkt, int64_t now_ns);
enum pv_rx_verdict pv_ip6_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt **pkt, int64_t now_ns);

/* reass.c */
int pv_reass_open(struct pv_net *net);
void pv_reass_close(struct pv_net *net);
void pv_reass_del_iface(struct pv_net *net, uint32_t iface);
struct pv_frag_info {
	struct pv_addr src, dst;
	uint32_t id;
	uint32_t off; /* bytes */
	bool more;
	bool inner; /* a buffer of a fragment in several, and not the last: it may end anywhere */
	uint8_t proto; /* IPv4: of the header; IPv6: 0, the first fragment's counts (RFC 8200 4.5) */
};
/* `data` is the fragment's payload, in one buffer or in a chain. The whole datagram when this was the missing piece, else NULL. */
struct pv_pkt *pv_reass_rx(struct pv_net *net, struct pv_iface *ifp, const struct pv_frag_info *fi, struct pv_pkt *pkt,
			   int64_t now_ns);

/* icmp.c: errors about packets that we received. `pkt` stays the caller's; l3_off is set. */
bool pv_icmp_allowed(struct pv_net *net, int64_t now_ns);
void pv_icmp_error(struct pv_net *net, const struct pv_pkt *pkt, uint8_t type, uint8_t code, uint32_t rest, int64_t now_ns);
/* A frame of ours that found no neighbour: becomes an ICMP host unreachable to ourselves. Takes the frame. */
void pv_icmp_host_unreachable(struct pv_net *net, struct pv_pkt *pkt);

/* icmp4.c, icmp6.c: `data` is the message. */
enum pv_rx_verdict pv_icmp4_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, int64_t now_ns);
enum pv_rx_verdict pv_icmp6_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, bool router_alert, int64_t now_ns);

struct pv_icmp6_in {
	struct pv_iface *ifp;
	struct pv_pkt *pkt; /* `data` is the message, checksum good, one buffer */
	struct pv_addr src, dst;
	uint8_t hops;
	bool router_alert;
};

/* mcast.c */
struct pv_group {
	struct pv_hnode node;
	struct pv_list link; /* of the interface */
	struct pv_addr addr;
	uint16_t iface;
	bool reported; /* not all-hosts, nor of a scope that never leaves the host */
	bool last_reporter; /* IGMPv2, MLDv1: nobody reported after us, so a leave is due */
	bool has_flow;
	uint8_t changes; /* unsolicited reports left to send */
	uint64_t flow;
	struct pv_net_timer change; /* the next of them */
	struct pv_net_timer answer; /* to a query */
	uint32_t any_refs; /* joins without a source, or with one that found no room in the table */
	uint32_t nsource;
	struct pv_addr source[PV_GROUP_SOURCE_MAX];
	uint32_t source_refs[PV_GROUP_SOURCE_MAX];
};

int pv_mcast_open(struct pv_net *net);
void pv_mcast_close(struct pv_net *net);
/* NULL when nobody here wants it. */
struct pv_group *pv_group_find(const struct pv_net *net, uint32_t iface, const struct pv_addr *group);
int pv_mcast_iface_init(struct pv_net *net, struct pv_iface *ifp);
void pv_mcast_del_iface(struct pv_net *net, struct pv_iface *ifp);
struct pv_group_query {
	bool v4;
	uint8_t version; /* of the protocol */
	bool general;
	struct pv_addr group;
	uint32_t max_resp_ms;
};
void pv_group_query(struct pv_net *net, struct pv_iface *ifp, const struct pv_group_query *q, int64_t now_ns);
/* Somebody else reported the group (versions in which one report per link is enough). */
void pv_group_heard(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *group);

/* igmp.c, mld.c */
enum pv_rx_verdict pv_igmp_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, int64_t now_ns);
/* As many packets as it takes. */
void pv_igmp_report(struct pv_net *net, struct pv_iface *ifp, const struct pv_wire_grec *rec, uint32_t n);
void pv_igmp_old(struct pv_net *net, struct pv_iface *ifp, uint8_t type, const struct pv_addr *group);
enum pv_rx_verdict pv_mld_rx(struct pv_net *net, struct pv_icmp6_in *in, int64_t now_ns);
void pv_mld_report(struct pv_net *net, struct pv_iface *ifp, const struct pv_wire_grec *rec, uint32_t n);
void pv_mld_old(struct pv_net *net, struct pv_iface *ifp, uint8_t type, const struct pv_addr *group);

#endif
