/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of udp/: what a socket and the table of sockets consist of.
 *
 * Demux. A socket with a local port is in exactly one of three hash tables: `conn` (both addresses and both ports known), `addr`
 * (bound to an address) or `any` (bound to a port only). A datagram asks them in that order; each chain is scored as Linux does.
 * Besides, every bound socket hangs on the struct of its port: bind conflicts and group delivery look at all sockets of one port.
 *
 * The wildcard address is kept as all zeroes whatever the family; `accept` says which families of datagrams it takes.
 */
#ifndef PV_UDP_UDP_INT_H
#define PV_UDP_UDP_INT_H

#include <errno.h>

#include "base/hash.h"
#include "base/htab.h"
#include "base/rng.h"
#include "udp/udp.h"

#define PV_UDP_TTL_DEFAULT 64u
#define PV_UDP_CSUM_OFF 6u
#define PV_UDP_PAYLOAD_MAX6 65527u

/*
 * What a queued datagram costs beside its payload. Linux charges the socket with skb->truesize: 768 bytes for 64 bytes of payload on
 * loopback (descriptor, shared info, rounding). The same here, so that a receive buffer of the usual size holds as many small datagrams.
 */
#define PV_UDP_OVERHEAD 704u

/* Families a socket takes datagrams of. */
#define PV_UDP_ACCEPT4 1u
#define PV_UDP_ACCEPT6 2u

#define PV_UDP_SHUT_RD 1u
#define PV_UDP_SHUT_WR 2u

enum pv_udp_home { PV_UDP_HOME_NONE, PV_UDP_HOME_CONN, PV_UDP_HOME_ADDR, PV_UDP_HOME_ANY, PV_UDP_HOME_GROUP };
enum pv_udp_csum { PV_UDP_CSUM_NONE, PV_UDP_CSUM_SOFT, PV_UDP_CSUM_RING };

/* All sockets bound to one port, in Linux's order: newest first, but those of AF_INET6 with SO_REUSEPORT behind all others. */
struct pv_udp_port {
	struct pv_hnode node;
	struct pv_list socks;
	uint16_t port;
};

/* A SO_REUSEPORT group: sockets bound alike, among which flows are spread. Only the first of them is in a demux chain. */
struct pv_udp_reuse {
	struct pv_udp **sock;
	uint32_t n, cap;
	int64_t order; /* of the first in the port's list */
};

/* Membership of one socket in one group on one interface. */
struct pv_udp_member {
	struct pv_list link;
	struct pv_udp *sock;
	uint32_t shown; /* pv_mem_show */
	struct pv_addr group;
	uint32_t iface;
	enum pv_filter_mode mode;
	uint32_t n, cap;
	struct pv_addr *source; /* NULL while n is 0 and none ever was there */
};

/* The groups that any socket has joined, by interface: what we send to one of them comes back to us. */
struct pv_udp_joined {
	struct pv_hnode node;
	struct pv_addr group;
	uint32_t iface, refs;
};

/* All that sending to one destination needs, made once. `path.gen` 0: nothing in it. */
struct pv_udp_dst {
	struct pv_path path;
	struct pv_tx_opts opts;
	uint64_t pseudo; /* sum of the pseudo-header but for the length */
	struct pv_pool *pool; /* of the path's ring */
	uint32_t max; /* payload bytes */
	uint32_t quick; /* payloads shorter than this take the straight line; 0: none does */
	uint32_t single; /* UDP bytes that go in one buffer and one packet */
	uint32_t chunk; /* UDP bytes of a buffer when they do not */
	uint8_t csum; /* enum pv_udp_csum */
	bool group; /* to a group or broadcast */
	bool plain; /* no source or interface was asked for */
	/* what was asked for */
	struct pv_addr to, src;
	uint32_t scope, iface;
	int64_t again_ns; /* from then on payloads that are not quick have the path looked up again; 0: never */
};

struct pv_udp_queued_errors {
	struct pv_udp_errq e[PV_UDP_ERRQ_MAX];
	uint32_t head, count;
};

struct pv_udp {
	/* first line: demux */
	struct pv_hnode flow;
	struct pv_addr laddr; /* zeroes: any */
	struct pv_addr raddr; /* zeroes: not connected */
	uint16_t lport, rport; /* host order; 0: none */
	uint32_t bound_iface; /* copy of the option */
	uint8_t accept; /* PV_UDP_ACCEPT* */
	uint8_t family; /* enum pv_family */
	uint8_t home; /* enum pv_udp_home */
	uint8_t shut; /* PV_UDP_SHUT_* */
	bool connected, any4, addr_locked, port_locked;
	/* second line: receive */
	struct pv_pktq rxq;
	struct pv_udp_table *t;
	uint32_t rx_bytes; /* payload and overhead in rxq */
	uint32_t rx_limit; /* copy of the option */
	struct pv_teller tell; /* whose user begins the third line: that, and the counters of receive, which come first */
	uint32_t rx_peak; /* the most that rx_bytes was */
	uint32_t shown; /* pv_mem_show */
	struct pv_udp_counters counters;
	bool blocked; /* met -ENOBUFS: on the table's list of those that wait for room */
	uint8_t full_txq; /* then: the queue of its lane that had none, with so many frames; 0: the first, or the pool */
	uint16_t rx_queue; /* of the last datagram, plus 1; 0: not known */
	uint32_t full_frames;
	struct pv_udp_opts opts;
	struct pv_udp_dst conn, to;
	/* rarely */
	struct pv_addr saddr; /* source to send from; zeroes: by route */
	int64_t order; /* in the port's list: of two equals the greater receives */
	struct pv_list all, on_port, room;
	struct pv_udp_port *port;
	struct pv_udp_reuse *reuse;
	struct pv_list members;
	uint32_t nmembers4;
	/* steer.c */
	struct pv_list rules;
	uint32_t nrules, path_iface; /* of the connected peer's path */
	int steer_err;
	bool steer_off;
	uint8_t lane; /* net/txlane.h */
	uint8_t full_iface;
	struct pv_udp_queued_errors *errq;
	struct pv_stampq *stamps; /* NULL: never asked for */
	uint32_t stamp_key; /* of the next datagram that is stamped */
	struct pv_udp_pace *pace; /* NULL: not held to a rate */
	uint64_t pacing_rate; /* its bytes/s; 0: none */
} pv_aligned(PV_CACHELINE);

_Static_assert(offsetof(struct pv_udp, rxq) == PV_CACHELINE && offsetof(struct pv_udp, tell.user) == 2 * PV_CACHELINE,
	       "queueing a datagram touches two lines of its socket");

/*
 * The last IPv4 flows and who got them: most datagrams need no key, no hash table and no score. An entry is good while `tag` is the
 * table's generation, which every change of a socket's addresses, ports, device or group moves on, and the interface.
 */
#define PV_UDP_FLOWS 256u

struct pv_udp_flow {
	uint64_t addrs; /* source and destination as they stand in the header */
	uint32_t ports; /* likewise */
	uint32_t tag; /* generation and interface */
	struct pv_udp *sock;
};

struct pv_udp_table {
	struct pv_udp_head head; /* first */
	uint32_t gen; /* lowest 8 bits 0: the interface's place; never 0 */
	struct pv_net *net;
	const struct pv_mem *mem;
	struct pv_hash_key key;
	struct pv_htab conn, addr, any, ports, joined, rules;
	bool hosted; /* there is an interface of the kernel's */
	uint32_t going; /* the interface that is being removed */
	struct pv_udp_counters counters;
	uint32_t shown; /* pv_mem_show */
	struct pv_list room, all;
	struct pv_rng rng;
	int64_t order;
	uint16_t port_lo, port_hi;
	struct pv_udp_flow flow[PV_UDP_FLOWS];
};

/* Whatever demux said before may be wrong now. Once in 2^24 times the generation comes round: then old entries go for good. */
pv_inline void pv_udp_demux_changed(struct pv_udp_table *t)
{
	t->gen += 1u << 8;
	if (pv_unlikely(!t->gen)) {
		t->gen = 1u << 8;
		memset(t->flow, 0, sizeof(t->flow));
	}
}

/* A datagram as demux sees it: `local` is its destination. */
struct pv_udp_key {
	struct pv_addr local, remote;
	uint16_t lport, rport;
	uint32_t iface; /* 0: not known, any device will do */
	uint8_t accept; /* its family */
	uint16_t queue; /* by which it came, plus 1; 0: not known */
};

/* demux.c */
void pv_udp_hash_add(struct pv_udp *u); /* by its addresses and ports */
void pv_udp_hash_del(struct pv_udp *u);
int pv_udp_port_get(struct pv_udp *u, uint16_t port); /* 0: an ephemeral one; -EADDRINUSE, -ENOMEM */
void pv_udp_port_put(struct pv_udp *u);
struct pv_udp_port *pv_udp_port_find(const struct pv_udp_table *t, uint16_t port);
struct pv_udp *pv_udp_lookup(const struct pv_udp_table *t, const struct pv_udp_key *k);
/* 0 or -EAGAIN, Linux's word for no port left. */
int pv_udp_autobind(struct pv_udp *u);

/* tx.c */
int pv_udp_dst_make(struct pv_udp *u, const struct pv_udp_send *msg, const struct pv_endpoint *to, int64_t now_ns,
		    struct pv_udp_dst *d);
void pv_udp_tx_init(struct pv_udp *u);

/* rx.c */
void pv_udp_rx_group(struct pv_udp_table *t, struct pv_pkt *pkt, const struct pv_udp_key *k, int64_t now_ns);
void pv_udp_key_of(const struct pv_pkt *pkt, struct pv_udp_key *k);
void pv_udp_purge(struct pv_udp *u);

/* group.c */
bool pv_udp_member_takes(struct pv_udp *u, const struct pv_udp_key *k);
bool pv_udp_host_joined(const struct pv_udp_table *t, uint32_t iface, const struct pv_addr *group);
void pv_udp_leave_all(struct pv_udp *u, uint32_t iface, int64_t now_ns); /* iface 0: of all */

/* steer.c: after whatever changes where datagrams for the socket come from. */
void pv_udp_steer(struct pv_udp *u);
void pv_udp_steer_end(struct pv_udp *u);
void pv_udp_steer_gone(struct pv_udp_table *t, uint32_t iface);

/* pace.c; all but pv_udp_pace_end for sockets that have one. */
/* May a datagram be sent there, and by which queue (NULL: none)? The rate was taken off when `pace` is NULL afterwards: the destinations
 * are to be made again. -EAGAIN: the send buffer is full; -ENOBUFS. */
int pv_udp_pace_begin(struct pv_udp *u, const struct pv_udp_dst *d, int64_t now_ns, struct pv_txq **out);
void pv_udp_pace_sent(struct pv_udp *u, int64_t now_ns);
void pv_udp_pace_gone(struct pv_udp *u, uint32_t iface, int64_t now_ns);
void pv_udp_pace_end(struct pv_udp *u, int64_t now_ns);

/* trace.c. What the recorder is told of the socket. */
void pv_udp_traced(const struct pv_udp *u, struct pv_trace *t, enum pv_trace_kind kind, uint32_t a, uint32_t b);
/* Counts and tells of a datagram that ends here or is refused, at `counter` of t->counters and, where there is a socket, u->counters. */
void pv_udp_lost(struct pv_udp_table *t, struct pv_udp *u, const struct pv_pkt *pkt, const uint64_t *counter);

/* error.c */
void pv_udp_errq_put(struct pv_udp *u, const struct pv_net_error *err, bool local);

/* stamp.c: false: this datagram is not to be stamped. */
bool pv_udp_stamp_ask(struct pv_udp *u, const struct pv_udp_send *msg, struct pv_stamp_ask *ask);
void pv_udp_stamp_sent(struct pv_udp *u, const struct pv_udp_send *msg);
void pv_udp_stamps_close(struct pv_udp *u);

pv_inline void *pv_udp_alloc(const struct pv_udp_table *t, size_t size)
{
	return t->mem->alloc(t->mem->ctx, size);
}

pv_inline void pv_udp_free(const struct pv_udp_table *t, void *p, size_t size)
{
	if (p)
		t->mem->free(t->mem->ctx, p, size);
}

pv_inline bool pv_udp_is_zero(const struct pv_addr *a)
{
	return (a->q[0] | a->q[1]) == 0;
}

pv_inline void pv_udp_wake(struct pv_udp *u, uint32_t bits)
{
	pv_teller_add(&u->t->head.ready, &u->tell, bits);
}

#endif
