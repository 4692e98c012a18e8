/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send. What a destination needs (path, options, half of the pseudo-header's sum) is made once and kept: one for the connected peer,
 * one for the last destination of sendto. The payload is copied once, and summed on the way unless the ring does that.
 *
 * Groups and broadcast: Linux gives the sender's own host a copy (ip_mc_output, ip6_finish_output2) when a socket of it is a member
 * and the sender has not switched IP_MULTICAST_LOOP off; broadcasts always. Here the copy goes straight to the group demux.
 */
#include "udp/udp_int.h"

#include "net/txlane.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

/* How old a path by an interface of the kernel's may be for a datagram that may be too long for it. */
#define PMTU_LOOK_NS (100 * PV_NS_PER_MS)
/* What passes by any path: Linux's net.ipv4.route.min_pmtu. */
#define PMTU_LEAST4 552u

/* ---- destinations ------------------------------------------------------------------------------------------------------ */

static void fill_opts(const struct pv_udp *u, struct pv_udp_dst *d)
{
	const struct pv_udp_opts *o = &u->opts;
	bool is4 = pv_addr_is4(&d->path.dst);
	int ttl = is4 ? o->ttl : o->hops;

	if (d->path.is_mcast)
		ttl = is4 ? o->mcast_ttl : o->mcast_hops < 0 ? 1 : o->mcast_hops;
	d->opts = (struct pv_tx_opts){
		.proto = PV_PROTO_UDP,
		.ttl = (uint8_t)(ttl < 0 ? PV_UDP_TTL_DEFAULT : (uint32_t)ttl),
		.tos = is4 ? o->tos : o->tclass,
		.pmtudisc = is4 ? o->pmtudisc4 : o->pmtudisc6,
		.flow_label = is4 ? 0 : o->flow_label,
	};
	/* What never leaves the host is not summed up, as on Linux's loopback. */
	if (d->path.is_local || (is4 && o->no_check))
		d->csum = PV_UDP_CSUM_NONE;
	else
		d->csum = d->path.tx_csum & PV_CSUM_UDP ? PV_UDP_CSUM_RING : PV_UDP_CSUM_SOFT;
	d->opts.l4_csum_off = d->csum == PV_UDP_CSUM_RING ? PV_UDP_CSUM_OFF : UINT32_MAX;
}

static void fill_sizes(struct pv_udp_dst *d)
{
	const struct pv_pool_cfg *pool = pv_pool_config(d->path.ring->pool);
	uint32_t room = pool->buf_size - pool->headroom;
	uint32_t ip = pv_addr_is4(&d->path.dst) ? PV_IP4_HLEN : PV_IP6_HLEN;
	uint32_t chunk = pv_path_frag_len(&d->path);

	d->max = pv_addr_is4(&d->path.dst) ? PV_UDP_PAYLOAD_MAX : PV_UDP_PAYLOAD_MAX6;
	d->single = PV_MIN(room, d->path.mtu - ip);
	d->pool = d->path.ring->pool;
	/* Buffers that cannot hold a fragment: the network layer copies, any size will do. */
	d->chunk = chunk <= room ? chunk : room & ~7u;
}

/*
 * On an interface of the kernel's the kernel hears of too long datagrams. For a connected socket that is the kernel socket's error; of an
 * unconnected one without IP_RECVERR nobody is told, but the route is narrower from then on (__udp4_lib_err, ip_rt_update_pmtu), and the
 * next datagram goes in fragments, or is refused. So what may be too long asks for the route now and then.
 */
static void fill_again(const struct pv_udp *u, struct pv_udp_dst *d, int64_t now_ns)
{
	uint32_t least = d->path.is4 ? PMTU_LEAST4 - PV_IP4_HLEN : PV_IP6_MIN_MTU - PV_IP6_HLEN;

	d->again_ns = 0;
	/* Routers cut IPv4 datagrams without DF themselves; IPv6's never. */
	if (d != &u->to || d->group || d->opts.pmtudisc >= PV_PMTU_PROBE || (d->path.is4 && d->opts.pmtudisc == PV_PMTU_DONT) ||
	    pv_iface_config(pv_net_iface(u->t->net, d->path.iface))->steer != PV_STEER_SOCKET)
		return;
	d->quick = PV_MIN(d->quick, least - PV_UDP_HLEN + 1);
	d->again_ns = now_ns + PMTU_LOOK_NS;
}

/* Linux: an address of the other family cannot be reached (inet) or is no route (a v6only socket). */
static int family_check(const struct pv_udp *u, const struct pv_addr *to)
{
	if (!pv_addr_is4(to))
		return u->family == PV_AF_INET ? -EAFNOSUPPORT : 0;
	return u->family == PV_AF_INET6 && u->opts.v6only ? -ENETUNREACH : 0;
}

static void query(const struct pv_udp *u, const struct pv_udp_send *msg, const struct pv_endpoint *to, struct pv_path_query *q)
{
	const struct pv_udp_opts *o = &u->opts;
	bool is4 = pv_addr_is4(&to->addr);

	q->dst = to->addr;
	q->src = msg->src ? *msg->src : u->saddr;
	q->iface = msg->iface ? msg->iface : o->bound_iface;
	if (!is4 && to->iface && pv_addr_is_linklocal6(&to->addr))
		q->iface = to->iface;
	if (pv_addr_is_mcast(&to->addr)) {
		if (!q->iface)
			q->iface = is4 ? o->mcast_iface4 : o->mcast_iface6;
		if (is4 && pv_addr_is_any(&q->src))
			q->src = o->mcast_src4;
	}
	/* A server that answers one peer after another: each is looked up at every change of peer. */
	q->recent = msg->to != NULL;
	q->proto = PV_PROTO_UDP;
	q->tos = is4 ? o->tos : o->tclass;
	q->prio = o->priority;
	q->src_port = u->lport;
	q->dst_port = u->connected && !msg->to ? u->rport : 0;
	/* This host, when no address is named (RFC 1122 3.2.1.3). */
	if (pv_addr_is_any(&q->dst) && !pv_addr_is_any(&q->src))
		q->dst = q->src;
}

int pv_udp_dst_make(struct pv_udp *u, const struct pv_udp_send *msg, const struct pv_endpoint *to, int64_t now_ns,
		    struct pv_udp_dst *d)
{
	struct pv_path_query q = { 0 };
	int rc = family_check(u, &to->addr);

	d->path.gen = 0;
	if (rc)
		return rc;
	query(u, msg, to, &q);
	if (!pv_addr_is4(&q.dst) && pv_addr_is_linklocal6(&q.dst) && !pv_addr_is_mcast(&q.dst) && !q.iface)
		return -EINVAL;
	rc = pv_net_path(u->t->net, &q, now_ns, &d->path);
	if (!rc && d->path.is_bcast && !u->opts.broadcast)
		rc = -EACCES;
	if (rc) {
		d->path.gen = 0;
		/* Linux: a source given by IP_PKTINFO that is not ours is an invalid argument. */
		return rc == -EADDRNOTAVAIL && msg->src ? -EINVAL : rc;
	}
	if (pv_unlikely(pv_txlanes_on(u->t->net)))
		u->lane = (uint8_t)pv_txlane_follow(u->t->net, &d->path, u->lane, u->tell.user);
	fill_opts(u, d);
	fill_sizes(d);
	d->group = d->path.is_mcast || d->path.is_bcast;
	d->quick =
	    d->group || u->pace || (u->stamps && u->stamps->flags & PV_STAMP_TX) ? 0 : PV_MIN(d->single - PV_UDP_HLEN, d->max) + 1;
	d->pseudo = pv_cksum_pseudo(&d->path.src, &d->path.dst, PV_PROTO_UDP, 0);
	d->to = to->addr;
	d->src = msg->src ? *msg->src : u->saddr;
	d->scope = to->iface;
	d->iface = msg->iface;
	d->plain = !msg->src && !msg->iface;
	fill_again(u, d, now_ns);
	return 0;
}

/* ---- gathering --------------------------------------------------------------------------------------------------------- */

struct gather {
	const struct pv_iov *iov;
	size_t at; /* in *iov */
	uint32_t offset; /* bytes gathered, for the parity of the sum */
	uint64_t sum;
	bool summed;
};

static void gather(struct gather *g, uint8_t *dst, uint32_t len)
{
	while (len) {
		uint32_t n = (uint32_t)PV_MIN((size_t)len, g->iov->len - g->at);
		const uint8_t *src = (const uint8_t *)g->iov->base + g->at;

		if (n && g->summed)
			g->sum = pv_cksum_merge(g->sum, pv_cksum_at(pv_cksum_copy(dst, src, n, 0), g->offset));
		else if (n)
			memcpy(dst, src, n);
		dst += n;
		len -= n;
		g->offset += n;
		g->at += n;
		if (g->at == g->iov->len) {
			g->iov++;
			g->at = 0;
		}
	}
}

/* Any number of pieces into any number of buffers. NULL: no packets. */
static pv_noinline struct pv_pkt *build_chain(const struct pv_udp *u, const struct pv_udp_dst *d, const struct pv_udp_send *msg,
					      uint32_t len, uint16_t port)
{
	struct gather g = { .iov = msg->iov, .offset = PV_UDP_HLEN };
	uint32_t left = len + PV_UDP_HLEN;
	bool whole = left <= d->single;
	struct pv_pkt *first = NULL, **tail = &first;
	uint8_t *h;

	/* A ring sums one packet only. */
	g.summed = d->csum == PV_UDP_CSUM_SOFT || (d->csum == PV_UDP_CSUM_RING && !whole);
	while (left) {
		uint32_t n = whole ? left : PV_MIN(left, d->chunk), hlen = first ? 0 : PV_UDP_HLEN;
		struct pv_pkt *p = pv_pkt_get(d->pool);

		if (!p) {
			if (first)
				pv_pkt_put(first);
			return NULL;
		}
		p->len = n;
		gather(&g, p->data + hlen, n - hlen);
		left -= n;
		*tail = p;
		tail = &p->frag;
	}
	h = first->data;
	first->total = len + PV_UDP_HLEN;
	pv_wire_udp_emit(h, u->lport, port, (uint16_t)(len + PV_UDP_HLEN));
	if (g.summed)
		pv_cksum_put(h + PV_UDP_CSUM_OFF,
			     pv_cksum_finish_udp(pv_cksum_merge(
				 pv_cksum_merge(g.sum, d->pseudo),
				 pv_cksum_merge(pv_cksum_add(h, PV_UDP_HLEN, 0), __builtin_bswap32(len + PV_UDP_HLEN)))));
	return first;
}

/* One piece into one packet. */
pv_inline struct pv_pkt *build(const struct pv_udp *u, const struct pv_udp_dst *d, const struct pv_iov *iov, uint16_t port)
{
	uint32_t len = (uint32_t)iov->len, total = len + PV_UDP_HLEN;
	struct pv_pkt *p = pv_pkt_get(d->pool);
	uint64_t h;

	if (pv_unlikely(!p))
		return NULL;
	p->len = p->total = total;
	h = __builtin_bswap64((uint64_t)u->lport << 48 | (uint64_t)port << 32 | (uint64_t)(uint16_t)total << 16);
	if (pv_unlikely(!len)) {
		if (d->csum == PV_UDP_CSUM_SOFT)
			h |= (uint64_t)pv_cksum_finish_udp(pv_cksum_merge(d->pseudo, h) + __builtin_bswap32(total)) << 48;
	} else if (d->csum == PV_UDP_CSUM_SOFT) {
		uint64_t sum = pv_cksum_copy(p->data + PV_UDP_HLEN, iov->base, len, pv_cksum_merge(d->pseudo, h));

		/* The length counts twice: in the header and in the pseudo-header. */
		sum = pv_cksum_merge(sum, (uint64_t)__builtin_bswap32(total));
		h |= (uint64_t)pv_cksum_finish_udp(sum) << 48;
	} else {
		memcpy(p->data + PV_UDP_HLEN, iov->base, len);
	}
	memcpy(p->data, &h, sizeof(h));
	return p;
}

/* ---- our own copy ------------------------------------------------------------------------------------------------------ */

/* The IP header that a receiver's ancillary data is read from. */
static void loop_header(struct pv_pkt *p, const struct pv_udp_dst *d, const struct pv_tx_opts *opts)
{
	uint32_t total = p->total;
	uint8_t *ip;

	p->l4_off = (uint16_t)pv_pkt_headroom(p);
	if (pv_addr_is4(&d->path.dst)) {
		struct pv_wire_ip4 h = { .src = d->path.src.w[3],
					 .dst = d->path.dst.w[3],
					 .total_len = (uint16_t)(total + PV_IP4_HLEN),
					 .tos = opts->tos,
					 .ttl = opts->ttl,
					 .proto = PV_PROTO_UDP };

		ip = p->data - PV_IP4_HLEN;
		pv_wire_ip4_emit(ip, &h);
	} else {
		struct pv_wire_ip6 h = { .src = d->path.src.b,
					 .dst = d->path.dst.b,
					 .flow = opts->flow_label,
					 .payload_len = (uint16_t)total,
					 .tclass = opts->tos,
					 .next = PV_PROTO_UDP,
					 .hops = opts->ttl };

		ip = p->data - PV_IP6_HLEN;
		pv_wire_ip6_emit(ip, &h);
	}
	p->l3_off = (uint16_t)(ip - p->buf);
}

static void loop(struct pv_udp *u, const struct pv_udp_dst *d, const struct pv_tx_opts *opts, const struct pv_pkt *sent,
		 int64_t now_ns)
{
	struct pv_udp_table *t = u->t;
	struct pv_pkt *first = NULL, **tail = &first;
	struct pv_udp_key k;

	for (const struct pv_pkt *s = sent; s; s = s->frag) {
		struct pv_pkt *p = pv_pkt_get(d->pool);

		if (!p) {
			pv_udp_lost(t, NULL, NULL, &t->counters.rx_no_buf);
			if (first)
				pv_pkt_put(first);
			return;
		}
		memcpy(p->data, s->data, s->len);
		p->len = s->len;
		*tail = p;
		tail = &p->frag;
	}
	first->total = sent->total;
	first->flags = PV_PKT_LOOPED | PV_PKT_GROUP | PV_PKT_L4_OK;
	first->iface = (uint8_t)d->path.iface;
	loop_header(first, d, opts);
	pv_udp_key_of(first, &k);
	first->data += PV_UDP_HLEN;
	first->len -= PV_UDP_HLEN;
	first->total -= PV_UDP_HLEN;
	pv_udp_rx_group(t, first, &k, now_ns);
}

/* Gives our own members their copy; false when the datagram does not leave the host (TTL 0, interface-local scope). */
static pv_noinline bool group_send(struct pv_udp *u, const struct pv_udp_dst *d, const struct pv_tx_opts *opts,
				   const struct pv_pkt *pkt, int64_t now_ns)
{
	bool is4 = pv_addr_is4(&d->path.dst);
	/* Linux looks at the flag of the socket's family, whatever the destination's (sk_mc_loop). */
	bool wanted = u->family == PV_AF_INET ? u->opts.mcast_loop4 : u->opts.mcast_loop6;

	if (d->path.is_bcast || (wanted && pv_udp_host_joined(u->t, d->path.iface, &d->path.dst)))
		loop(u, d, opts, pkt, now_ns);
	if (!d->path.is_mcast)
		return true;
	return opts->ttl && (is4 || (d->path.dst.b[1] & 0x0f) > 1);
}

/* ---- send -------------------------------------------------------------------------------------------------------------- */

/* It waits until there is room where it found none. */
static void block(struct pv_udp *u, const struct pv_udp_dst *d)
{
	u->full_txq = 0;
	if (d && d->path.txq && d->pool->nfree) {
		u->full_frames = pv_ring_txq_pending(d->path.ring, d->path.txq);
		u->full_iface = (uint8_t)d->path.iface;
		u->full_txq = u->full_frames ? d->path.txq : 0;
	}
	if (u->blocked)
		return;
	u->blocked = true;
	u->t->head.waiting++;
	pv_list_add(&u->t->room, &u->room);
}

static pv_noinline int64_t refused(struct pv_udp *u, const struct pv_udp_dst *d, uint16_t port, int rc)
{
	struct pv_udp_table *t = u->t;

	pv_udp_lost(t, u, NULL, &t->counters.tx_errors);
	if (rc == -ENOBUFS)
		block(u, d);
	if (rc == -EMSGSIZE && d) {
		struct pv_net_error e = { .local = d->path.src,
					  .remote = d->path.dst,
					  .local_port = u->lport,
					  .remote_port = port,
					  .proto = PV_PROTO_UDP,
					  .err = EMSGSIZE,
					  .mtu = d->path.mtu };

		pv_udp_errq_put(u, &e, true);
	}
	return rc;
}

/* The way to the connected peer may be another one: rules and readers of the statistics follow. */
static void peer_dst_made(struct pv_udp *u)
{
	if (u->path_iface == u->conn.path.iface)
		return;
	u->path_iface = u->conn.path.iface;
	pv_udp_steer(u);
}

/* 0 and the destination, made again when it is another one or what it was made from has changed. */
static pv_noinline int find_dst(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns, struct pv_udp_dst **out)
{
	const struct pv_endpoint *to = msg->to;
	struct pv_endpoint peer;
	struct pv_udp_dst *d = &u->to;
	int rc = pv_udp_autobind(u);

	if (rc)
		return rc;
	if (!to) {
		if (!u->connected)
			return -EDESTADDRREQ;
		/* Linux: a mapped peer is spoken to as if it had been named, and a name needs a port. */
		if (!u->rport && u->family == PV_AF_INET6 && pv_addr_is4(&u->raddr))
			return -EINVAL;
		peer = (struct pv_endpoint){ .addr = u->raddr, .port = u->rport, .iface = u->conn.scope };
		to = &peer;
		if (!msg->src && !msg->iface)
			d = &u->conn;
	} else if (!to->port) {
		return -EINVAL;
	}
	*out = d;
	/* The source compares with the socket's: what changes that, forgets the destinations. */
	if (pv_path_valid(u->t->net, &d->path) && (!d->again_ns || now_ns < d->again_ns) && pv_addr_eq(&d->to, &to->addr) &&
	    d->scope == to->iface && d->iface == msg->iface && pv_addr_eq(&d->src, msg->src ? msg->src : &u->saddr))
		return 0;
	rc = pv_udp_dst_make(u, msg, to, now_ns, d);
	if (!rc && d == &u->conn)
		peer_dst_made(u);
	return rc;
}

/* The usual case: the connected peer or the same destination as last time, nothing special. */
pv_inline struct pv_udp_dst *cached(struct pv_udp *u, const struct pv_udp_send *msg)
{
	const struct pv_endpoint *to = msg->to;
	struct pv_udp_dst *d = to ? &u->to : &u->conn;

	if (pv_unlikely(!pv_path_valid(u->t->net, &d->path) || ((uintptr_t)msg->src | msg->iface)))
		return NULL;
	if (!to)
		return d;
	return pv_addr_eq(&d->to, &to->addr) && d->scope == to->iface && d->plain && to->port ? d : NULL;
}

static size_t iov_len(const struct pv_udp_send *msg)
{
	size_t len = 0;

	for (uint32_t i = 0; i < msg->iovcnt; i++) {
		if (msg->iov[i].len > UINT16_MAX)
			return SIZE_MAX;
		len += msg->iov[i].len;
	}
	return len;
}

pv_inline int64_t sent(struct pv_udp *u, uint32_t len)
{
	struct pv_udp_table *t = u->t;

	PV_PROBE3(send, PV_PROTO_UDP, u, len);
	t->counters.tx_datagrams++;
	t->counters.tx_bytes += len;
	u->counters.tx_datagrams++;
	u->counters.tx_bytes += len;
	return len;
}

/* The queue of a socket that is held to a rate, or was until now. */
static int paced(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns, struct pv_udp_dst **d, struct pv_txq **q)
{
	int rc = pv_udp_pace_begin(u, *d, now_ns, q);

	return rc || u->pace ? rc : find_dst(u, msg, now_ns, d);
}

static int64_t sent_slow(struct pv_udp *u, uint32_t len)
{
	if (pv_unlikely(u->t->head.stations != NULL))
		pv_udp_traced(u, u->t->head.stations, PV_TRACE_send, len, 0);
	return sent(u, len);
}

/* All that is not usual, in Linux's order of checks. */
static pv_noinline int64_t send_slow(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns)
{
	size_t len = iov_len(msg);
	struct pv_udp_dst *d;
	struct pv_tx_opts opts;
	struct pv_txq *q = NULL;
	struct pv_pkt *pkt;
	struct pv_stamp_ask ask;
	uint16_t port;
	bool stamp;
	int rc;

	/* Of IPv6 a missing address comes before the length (udpv6_sendmsg). */
	if (len > UINT16_MAX)
		rc = u->family == PV_AF_INET6 && !msg->to && !u->connected ? -EDESTADDRREQ : -EMSGSIZE;
	else
		rc = find_dst(u, msg, now_ns, &d);
	if (rc)
		return refused(u, NULL, 0, rc);
	port = msg->to ? msg->to->port : u->rport;
	if (u->tell.err || (u->shut & PV_UDP_SHUT_WR))
		return u->tell.err ? -pv_udp_error(u) : -EPIPE;
	if (len > d->max)
		return refused(u, d, port, -EMSGSIZE);
	rc = u->pace ? paced(u, msg, now_ns, &d, &q) : 0;
	if (rc)
		return rc == -EAGAIN ? rc : refused(u, d, port, rc);
	pkt = build_chain(u, d, msg, (uint32_t)len, port);
	if (!pkt)
		return refused(u, d, port, -ENOBUFS);
	opts = d->opts;
	if (msg->ttl >= 0)
		opts.ttl = (uint8_t)msg->ttl;
	if (msg->tos >= 0)
		opts.tos = (uint8_t)msg->tos;
	if (pkt->frag)
		opts.l4_csum_off = UINT32_MAX;
	if (d->group && !group_send(u, d, &opts, pkt, now_ns)) {
		pv_pkt_put(pkt);
		return sent_slow(u, (uint32_t)len);
	}
	stamp = pv_udp_stamp_ask(u, msg, &ask);
	if (q)
		pv_txq_mark(q, &d->path, pkt);
	rc = stamp ? pv_net_tx_stamp(u->t->net, &d->path, &opts, pkt, &ask, now_ns)
		   : pv_net_tx(u->t->net, &d->path, &opts, pkt, now_ns);
	if (rc)
		return refused(u, d, port, rc);
	if (stamp)
		pv_udp_stamp_sent(u, msg);
	if (q)
		pv_udp_pace_sent(u, now_ns);
	return sent_slow(u, (uint32_t)len);
}

int64_t pv_udp_send(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns)
{
	struct pv_udp_dst *d = cached(u, msg);
	struct pv_pkt *pkt;
	uint16_t port;
	int rc;

	/* One of ttl and tos is set, unless both are negative. */
	if (pv_unlikely(!d || ((msg->iovcnt ^ 1) | msg->stamp | (uint32_t)u->tell.err | (u->shut & PV_UDP_SHUT_WR)) ||
			msg->iov->len >= d->quick || (msg->ttl & msg->tos) >= 0 || u->t->head.stations))
		return send_slow(u, msg, now_ns);
	port = msg->to ? msg->to->port : u->rport;
	pkt = build(u, d, msg->iov, port);
	if (pv_unlikely(!pkt))
		return refused(u, d, port, -ENOBUFS);
	rc = pv_net_tx(u->t->net, &d->path, &d->opts, pkt, now_ns);
	if (pv_unlikely(rc))
		return refused(u, d, port, rc);
	return sent(u, (uint32_t)msg->iov->len);
}
