/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between the files that make, find and end connections: ports, listeners, and the two kinds of record that stand for a connection
 * before it is one (SYN) and after it was one (TIME_WAIT). The table owns records and ports; a listener's structure is the socket's.
 */
#ifndef PV_TCP_CONN_H
#define PV_TCP_CONN_H

#include "tcp/tcp_int.h"

struct pv_tcp_rule;

/* All sockets that have one local port, and the TIME_WAITs left of others. */
struct pv_tcp_port {
	struct pv_hnode node;
	struct pv_list socks; /* struct pv_tcp, by on_port */
	struct pv_list tws; /* struct pv_tcp_tw, by on_port: also those in FIN_WAIT_2 */
	struct pv_list rules; /* steer.c: of listeners */
	void *hold; /* pv_tcp_port_hold */
	struct pv_tcp_reserve *reserve; /* reserve.c; NULL: not reserved */
	uint16_t port;
	bool shared; /* nobody bound it: connect chose it, and may choose it again for other peers */
	bool brief; /* no TIME_WAITs: pv_tcp_port_brief */
	bool gated; /* the rules are: pv_tcp_gate */
};

/* A port that the caller reserved for connections that name none. */
struct pv_tcp_reserve {
	struct pv_list idle; /* of the table, idle longest first; not on it while somebody has the port */
	struct pv_tcp_port *port;
	struct pv_addr laddr, raddr; /* raddr: of the last connection, as rport and last_ts */
	int64_t since_ns;
	uint16_t rport; /* 0: there was none */
	uint8_t family;
	bool ts, last_ts; /* all connections before the last one had timestamps; the last one has */
	bool many; /* they had more than one peer */
	bool spoilt; /* a rule of it is gone */
};

struct pv_tcp_listen {
	struct pv_list acceptq; /* struct pv_tcp, by acceptq: oldest first */
	struct pv_list synq; /* struct pv_tcp_syn, by link */
	uint32_t naccept, nsyn, nyoung; /* nyoung: those whose SYN-ACK went out once only */
	uint32_t backlog;
	uint32_t shown; /* pv_mem_show */
	int64_t cookie_ns; /* when the last cookie was sent; 0: never */
};

#define PV_SYN_SACK 0x01u
#define PV_SYN_TS 0x02u
#define PV_SYN_WS 0x04u
#define PV_SYN_ECN 0x08u
#define PV_SYN_COOKIE 0x20u /* made of one: it was never in a table */
#define PV_SYN_ACKED 0x10u /* the third segment came and could not be taken: no more SYN-ACKs for now */

/* A connection in SYN_RCVD, before its third segment (RFC 4987 3.3). */
struct pv_tcp_syn {
	struct pv_hnode flow;
	struct pv_wtimer timer;
	struct pv_list link;
	struct pv_tcp *l;
	struct pv_addr laddr, raddr;
	uint16_t lport, rport;
	pv_seq irs, iss;
	uint32_t ts_recent;
	uint32_t sent_us; /* when the SYN-ACK went: the low bits, to take its RTT */
	uint16_t mss; /* the peer's; 0: it said none */
	uint16_t wnd; /* that we offered */
	uint8_t flags; /* PV_SYN_* */
	uint8_t wscales; /* peer's, ours << 4 */
	uint8_t timeouts, iface;
};
_Static_assert(sizeof(struct pv_tcp_syn) <= 2 * PV_CACHELINE, "a half-open connection costs two cache lines");

struct pv_tcp_tw {
	struct pv_hnode flow;
	struct pv_list age, on_port;
	struct pv_tcp_port *port;
	struct pv_tcp_rule *rules;
	struct pv_addr laddr, raddr;
	uint16_t lport, rport;
	pv_seq rcv_nxt, snd_nxt;
	uint32_t ts_recent, ts_offset;
	int64_t ts_recent_ns, deadline_ns, oow_ns;
	uint32_t bound_iface;
	uint16_t wnd; /* as the last segment offered it */
	uint8_t tos, iface, rcv_wscale;
	bool ts, reuse_addr, reuse_port, v4;
	bool fin_wait_2; /* nobody's any more, and the peer's FIN is still to come */
};
_Static_assert(sizeof(struct pv_tcp_tw) <= 3 * PV_CACHELINE, "a TIME_WAIT costs three cache lines");

#define PV_TCP_SYN_TIMEOUT_NS PV_NS_PER_S /* RFC 6298 2.1 */
#define PV_TCP_PAWS_IDLE_NS (24 * 24 * 3600 * PV_NS_PER_S) /* RFC 7323 5.5 */
#define PV_TCP_OOW_NS (500 * PV_NS_PER_MS) /* Linux's tcp_invalid_ratelimit */
#define PV_TCP_TW_MAX 262144u /* what is over goes without TIME_WAIT, as Linux (tcp_max_tw_buckets) */
#define PV_TCP_ORPHANS_MAX 262144u /* tcp_max_orphans, which grows with the memory there is */

pv_inline bool pv_tcp_is_zero(const struct pv_addr *a)
{
	return (a->q[0] | a->q[1]) == 0;
}

pv_inline uint32_t pv_tcp_flow_hash(const struct pv_tcp_table *t, const struct pv_addr *local, const struct pv_addr *remote,
				    uint16_t lport, uint16_t rport)
{
	return pv_hash_flow(&t->hash, local, remote, lport, rport, PV_PROTO_TCP);
}

pv_inline void pv_tcp_kick(const struct pv_tcp_table *t)
{
	if (pv_net_dirty(t->net))
		(void)pv_net_kick(t->net);
}

pv_inline void *pv_tcp_alloc(const struct pv_tcp_table *t, size_t size)
{
	return t->mem->alloc(t->mem->ctx, size);
}

pv_inline void pv_tcp_dealloc(const struct pv_tcp_table *t, void *p, size_t size)
{
	t->mem->free(t->mem->ctx, p, size);
}

/* True when nothing in sequence is left to acknowledge and the FIN was among it. */
pv_inline bool pv_tcp_fin_acked(const struct pv_tcp *c)
{
	return (c->flags & PV_TF_FIN_QUEUED) && pv_list_empty(&c->sndq);
}

/* States in which data may be under way. */
pv_inline bool pv_tcp_may_send(const struct pv_tcp *c)
{
	return c->state != PV_TCP_CLOSED && c->state != PV_TCP_LISTEN && c->state != PV_TCP_SYN_SENT && c->state != PV_TCP_SYN_RCVD;
}

/* How long an orphan waits for the peer's FIN: TCP_LINGER2, 120 s at most, as Linux. */
pv_inline int64_t pv_tcp_fin_timeout(const struct pv_tcp *c)
{
	return c->opts.linger2_s > 0 ? PV_MIN((int64_t)c->opts.linger2_s, 120) * PV_NS_PER_S : c->t->cfg.fin_timeout_ns;
}

pv_inline uint8_t pv_tcp_accept_any(const struct pv_tcp *c)
{
	if (c->family == PV_AF_INET || (c->sock & PV_SK_ANY4))
		return PV_ACCEPT4;
	return c->opts.v6only ? PV_ACCEPT6 : PV_ACCEPT4 | PV_ACCEPT6;
}

void pv_tcp_slabs_close(struct pv_tcp_table *t); /* tcp.c: no connection is left */
/* tcp.c: back to a socket that has just been opened, but for name, options and what is pending; it is in no table but by its port. */
void pv_tcp_wipe(struct pv_tcp *c);
/* CLOSED, out of the demux, timers off, the application told; orphans are freed. */
void pv_tcp_end(struct pv_tcp *c, uint32_t events);

/* demux.c */
struct pv_tcp_port *pv_tcp_port_find(const struct pv_tcp_table *t, uint16_t port);
int pv_tcp_port_connect(struct pv_tcp *c); /* RFC 6056: chooses lport, for laddr, raddr and rport. -EADDRNOTAVAIL, -ENOMEM */
void pv_tcp_port_join(struct pv_tcp *c, struct pv_tcp_port *p);
void pv_tcp_port_check(struct pv_tcp_table *t, struct pv_tcp_port *p); /* gone when nobody is left */
bool pv_tcp_port_clash(const struct pv_tcp *c, uint16_t port); /* would bind say -EADDRINUSE? */
struct pv_tcp *pv_tcp_find_conn(const struct pv_tcp_table *t, const struct pv_tcp_in *in);

/* reserve.c, of ports with `reserve` */
void pv_tcp_reserve_taken(struct pv_tcp_table *t, struct pv_tcp_port *p); /* somebody has it */
bool pv_tcp_reserve_idle(struct pv_tcp_table *t, struct pv_tcp_port *p); /* nobody has it; false: it is not kept */
void pv_tcp_reserve_end(struct pv_tcp_table *t, struct pv_tcp_port *p); /* as any other port from now on */
void pv_tcp_reserve_used(struct pv_tcp *c); /* it connects, or is connected */
void pv_tcp_reserve_flush(struct pv_tcp_table *t); /* none is idle any more */
int64_t pv_tcp_reserve_deadline(const struct pv_tcp_table *t);
uint32_t pv_tcp_reserve_timeouts(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget);

/* connect.c */
uint32_t pv_tcp_ts_offset(const struct pv_tcp_table *t, const struct pv_addr *local, const struct pv_addr *remote);
void pv_tcp_txo(struct pv_tcp *c); /* the options of every packet, from opts */
int pv_tcp_path_find(struct pv_tcp *c, int64_t now_ns);
/* Numbers of a connection whose first segment carries `iss`. */
void pv_tcp_set_iss(struct pv_tcp *c, pv_seq iss);

/* listen.c */
void pv_tcp_listen_stop(struct pv_tcp *l, int64_t now_ns); /* resets what nobody accepted */
bool pv_tcp_syn_input(struct pv_tcp_table *t, struct pv_tcp_in *in); /* true: it was for a SYN record, and the packet is taken */
void pv_tcp_syn_timeout(struct pv_tcp_table *t, struct pv_wtimer *timer, int64_t now_ns);
/* SYN-ACKs by that interface go out again at once. */
void pv_tcp_syns_moved(struct pv_tcp_table *t, uint32_t iface, int64_t now_ns);
struct pv_tcp_syn *pv_tcp_syn_find(const struct pv_tcp_table *t, const struct pv_tcp_in *in);
void pv_tcp_syn_drop(struct pv_tcp_table *t, struct pv_tcp_syn *s);
bool pv_tcp_accept_full(const struct pv_tcp *l);

/* cookie.c (RFC 4987 3.6) */
pv_seq pv_tcp_cookie_make(const struct pv_tcp_table *t, const struct pv_tcp_in *in);
uint16_t pv_tcp_cookie_check(const struct pv_tcp_table *t, const struct pv_tcp_in *in); /* MSS; 0: no cookie of ours */
/* The timestamp of a cookie carries what else the SYN said (as Linux): the value to send, and back from what was echoed. */
uint32_t pv_tcp_cookie_ts(const struct pv_tcp_syn *s, uint32_t now);
void pv_tcp_cookie_ts_read(struct pv_tcp_syn *s, uint32_t echo);

/* input.c */
void pv_tcp_input(struct pv_tcp *c, struct pv_tcp_in *in); /* takes the packet; `c` may be gone afterwards */
/* At most one answer per half second to segments without data that are none of ours: two ends that disagree do not keep each other busy. */
bool pv_tcp_oow_allowed(int64_t *last_ns, const struct pv_tcp_in *in);

/* steer.c */
/* Listening, or about to send the first segment: 0 when what comes for it reaches us, or what the ring said of the rule. */
int pv_tcp_steer(struct pv_tcp *c);
/* One of its listeners is gone: without any it has no gate. */
void pv_tcp_gate_end(struct pv_tcp_port *p);
/* Its listener's rule has a gate, and brings nothing of it should the peer begin anew. */
void pv_tcp_steer_own(struct pv_tcp *c);
/* It has been through its first exchanges, and more are to come. On interfaces of our own this does nothing. */
void pv_tcp_steer_busy(struct pv_tcp *c);
/* What comes to `laddr` and that port, by the interfaces that have the address and by `iface`; for as long as there is the port. */
int pv_tcp_steer_reserve(struct pv_tcp_table *t, struct pv_tcp_port *p, const struct pv_addr *laddr, uint32_t iface);
/* A flow's own rules, when nobody knows it any more. */
void pv_tcp_steer_left(struct pv_tcp_table *t, struct pv_tcp_rule **rules);
/* A port of which a listener is gone: its connections get rules of their own. */
void pv_tcp_steer_port(struct pv_tcp_table *t, struct pv_tcp_port *p);
void pv_tcp_steer_end(struct pv_tcp_table *t, struct pv_tcp_port *p);
void pv_tcp_steer_gone(struct pv_tcp_table *t, uint32_t iface);
/* The port is not reserved any more: of its rules only those stay that others want. */
void pv_tcp_steer_unreserve(struct pv_tcp_table *t, struct pv_tcp_port *p);
/* Would no rule take the connection's segments from the host, once its own are gone? */
bool pv_tcp_steer_can_leave(const struct pv_tcp *c);

/* export.c: of connections that have left. True: it was for one, and the packet is taken. */
bool pv_tcp_left_input(struct pv_tcp_table *t, struct pv_tcp_in *in);
int64_t pv_tcp_left_deadline(const struct pv_tcp_table *t);
uint32_t pv_tcp_left_timeouts(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget);
void pv_tcp_left_close(struct pv_tcp_table *t);

/* timewait.c */
struct pv_tcp_tw *pv_tcp_tw_find(const struct pv_tcp_table *t, const struct pv_tcp_in *in);
void pv_tcp_tw_drop(struct pv_tcp_table *t, struct pv_tcp_tw *w);
uint32_t pv_tcp_tw_timeouts(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget);

pv_inline bool pv_tcp_same_flow(const struct pv_addr *laddr, const struct pv_addr *raddr, uint32_t ports,
				const struct pv_tcp_in *in)
{
	return ports == ((uint32_t)in->dport | (uint32_t)in->sport << 16) && pv_addr_eq(laddr, &in->dst) &&
	       pv_addr_eq(raddr, &in->src);
}

#endif
