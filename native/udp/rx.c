/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive: from a packet that pv_net_rx handed up to a socket's queue, and from there to the application. The checksum is judged
 * before queueing, so that a readable socket always has a datagram (RFC 1122 4.1.3.4; RFC 8200 8.1: mandatory with IPv6).
 *
 * In the queue `data`/`len` span the payload, `total` is the payload's, priv[0] the time of arrival; the headers are still in the
 * buffer at l3_off and l4_off.
 */
#include "udp/udp_int.h"

#include "wire/udp.h"

#define IP4_SRC 12u
#define IP4_DST 16u
#define IP6_SRC 8u
#define IP6_DST 24u

pv_inline bool pkt_is4(const struct pv_pkt *pkt)
{
	return pkt->buf[pkt->l3_off] >> 4 == 4;
}

pv_inline void key_of(const struct pv_pkt *pkt, struct pv_udp_key *k)
{
	const uint8_t *ip = pkt->buf + pkt->l3_off, *udp = pkt->buf + pkt->l4_off;

	if (ip[0] >> 4 == 4) {
		k->remote = pv_addr_from4(ip + IP4_SRC);
		k->local = pv_addr_from4(ip + IP4_DST);
		k->accept = PV_UDP_ACCEPT4;
	} else {
		k->remote = pv_addr_from6(ip + IP6_SRC);
		k->local = pv_addr_from6(ip + IP6_DST);
		k->accept = PV_UDP_ACCEPT6;
	}
	k->rport = pv_get16(udp);
	k->lport = pv_get16(udp + 2);
	k->iface = pkt->iface;
	k->queue = pv_unlikely(pkt->flags & PV_PKT_QUEUE) ? (uint16_t)(pkt->txq + 1) : 0;
}

void pv_udp_key_of(const struct pv_pkt *pkt, struct pv_udp_key *k)
{
	key_of(pkt, k);
}

static pv_noinline void queue_full(struct pv_udp_table *t, struct pv_udp *u, struct pv_pkt *pkt)
{
	pv_udp_lost(t, u, pkt, &t->counters.rx_queue_full);
	pv_pkt_put(pkt);
}

pv_inline void push(struct pv_udp_table *t, struct pv_udp *u, struct pv_pkt *pkt, int64_t now_ns)
{
	if (pv_unlikely(pkt->flags & PV_PKT_QUEUE))
		u->rx_queue = (uint16_t)(pkt->txq + 1);
	pkt->priv[0] = (uint64_t)now_ns;
	u->rx_bytes += pkt->total + PV_UDP_OVERHEAD;
	if (pv_unlikely(u->rx_bytes > u->rx_peak))
		u->rx_peak = u->rx_bytes;
	t->counters.rx_datagrams++;
	t->counters.rx_bytes += pkt->total;
	u->counters.rx_datagrams++;
	u->counters.rx_bytes += pkt->total;
	pv_pktq_push(&u->rxq, pkt);
	PV_PROBE4(queued, PV_PROTO_UDP, u, pkt, pkt->total);
	pv_udp_wake(u, PV_EV_IN);
}

static pv_noinline void push_stored(struct pv_udp_table *t, struct pv_udp *u, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_pool *pool = pkt->pool;

	pkt = pv_pkt_store(pkt, pkt->l3_off);
	/* The store is full: one is what each gets (Linux's udp_mem). */
	if (pkt->pool == pool && u->rxq.head && pv_pool_scarce(pool))
		queue_full(t, u, pkt);
	else
		push(t, u, pkt, now_ns);
}

/* Linux's rule: what is over the limit already refuses the next one, so that even the smallest buffer takes one datagram. */
pv_inline void enqueue(struct pv_udp_table *t, struct pv_udp *u, struct pv_pkt *pkt, int64_t now_ns)
{
	if (pv_unlikely(u->rx_bytes > u->rx_limit))
		queue_full(t, u, pkt);
	else if (pv_pool_spills(pkt->pool, u->rxq.head))
		push_stored(t, u, pkt, now_ns);
	else
		push(t, u, pkt, now_ns);
}

/* From the UDP header and payload to the payload. */
pv_inline void pull(struct pv_pkt *pkt)
{
	pkt->data += PV_UDP_HLEN;
	pkt->len -= PV_UDP_HLEN;
	pkt->total -= PV_UDP_HLEN;
}

/* Cuts the chain to `total` bytes: RFC 768 does not forbid bytes behind the datagram. */
static void trim(struct pv_pkt *pkt, uint32_t total)
{
	struct pv_pkt *p = pkt;
	uint32_t left = total;

	pkt->total = total;
	while (left > p->len) {
		left -= p->len;
		p = p->frag;
	}
	p->len = left;
	if (p->frag) {
		pv_pkt_put(p->frag);
		p->frag = NULL;
	}
}

/* ---- groups and broadcast ---------------------------------------------------------------------------------------------- */

/* Every socket whose address, peer, device and filters allow it: Linux's __udp_is_mcast_sock. Oldest first, so that the order in
 * which sockets become ready is that in which they were bound (but for AF_INET6 with SO_REUSEPORT). */
static bool group_takes(struct pv_udp *u, const struct pv_udp_key *k)
{
	if (!(u->accept & k->accept) || (!pv_udp_is_zero(&u->laddr) && !pv_addr_eq(&u->laddr, &k->local)))
		return false;
	if (u->connected && (!pv_addr_eq(&u->raddr, &k->remote) || (u->rport && u->rport != k->rport)))
		return false;
	return !u->bound_iface || u->bound_iface == k->iface;
}

/* `pkt` is at its payload; taken. */
void pv_udp_rx_group(struct pv_udp_table *t, struct pv_pkt *pkt, const struct pv_udp_key *k, int64_t now_ns)
{
	const struct pv_udp_port *port = pv_udp_port_find(t, k->lport);
	struct pv_udp *first = NULL;
	bool filtered = false;

	if (port) {
		for (struct pv_list *it = port->socks.prev; it != &port->socks; it = it->prev) {
			struct pv_udp *u = pv_list_entry(it, struct pv_udp, on_port);
			struct pv_pkt *copy;

			if (!group_takes(u, k))
				continue;
			if (!pv_udp_member_takes(u, k)) {
				u->counters.rx_filtered++;
				filtered = true;
				continue;
			}
			if (!first) {
				first = u;
				continue;
			}
			copy = pv_pkt_copy(pkt, pkt->l3_off, pkt->pool);
			if (copy) {
				PV_PROBE5(demux, PV_PROTO_UDP, u, copy, u->lport, u->rport);
				enqueue(t, u, copy, now_ns);
			} else {
				pv_udp_lost(t, u, pkt, &t->counters.rx_no_buf);
			}
		}
	}
	if (first) {
		PV_PROBE5(demux, PV_PROTO_UDP, first, pkt, first->lport, first->rport);
		enqueue(t, first, pkt, now_ns);
		return;
	}
	pv_udp_lost(t, NULL, pkt, filtered ? &t->counters.rx_filtered : &t->counters.rx_no_port);
	pv_pkt_put(pkt);
}

/* ---- from the stack ---------------------------------------------------------------------------------------------------- */

pv_inline struct pv_udp_flow *flow_of(struct pv_udp_table *t, uint64_t addrs, uint32_t ports)
{
	_Static_assert(PV_UDP_FLOWS == 256, "the eight bits that the shift leaves");

	return &t->flow[(ports ^ (uint32_t)addrs) * UINT32_C(0x9e3779b1) >> 24];
}

static struct pv_udp *demux(struct pv_udp_table *t, const struct pv_pkt *pkt)
{
	const uint8_t *ip = pkt->buf + pkt->l3_off;
	struct pv_udp_flow f = { .tag = t->gen | pkt->iface };
	struct pv_udp_key k;

	key_of(pkt, &k);
	f.sock = pv_udp_lookup(t, &k);
	/* While packets are traced all come by rx_lookup. */
	if (pkt_is4(pkt) && !t->head.stations) {
		memcpy(&f.addrs, ip + IP4_SRC, sizeof(f.addrs));
		memcpy(&f.ports, pkt->data, sizeof(f.ports));
		*flow_of(t, f.addrs, f.ports) = f;
	}
	return f.sock;
}

static bool length_ok(struct pv_pkt *pkt)
{
	struct pv_wire_udp h;

	if (pv_wire_udp_parse(pkt->data, pkt->len, pkt->total, &h) < 0)
		return false;
	if (h.len != pkt->total)
		trim(pkt, h.len);
	return true;
}

static void group_rx(struct pv_udp_table *t, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_udp_key k;

	key_of(pkt, &k);
	pull(pkt);
	pv_udp_rx_group(t, pkt, &k, now_ns);
}

/* To one socket, whichever it is. */
static pv_noinline void rx_lookup(struct pv_udp_table *t, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_udp *u = demux(t, pkt);

	if (!u) {
		pv_udp_lost(t, NULL, pkt, &t->counters.rx_no_port);
		pv_net_rx_unreachable(t->net, pkt, now_ns);
		return;
	}
	PV_PROBE5(demux, PV_PROTO_UDP, u, pkt, u->lport, u->rport);
	pull(pkt);
	if (pv_unlikely(t->head.stations != NULL))
		pv_udp_traced(u, t->head.stations, PV_TRACE_queued, pkt->total, 0);
	enqueue(t, u, pkt, now_ns);
}

/* A datagram of a known IPv4 flow goes straight to its socket. */
pv_inline void rx_one(struct pv_udp_table *t, struct pv_pkt *pkt, int64_t now_ns)
{
	const uint8_t *ip = pkt->buf + pkt->l3_off, *udp = pkt->data;
	const struct pv_udp_flow *f;
	uint64_t addrs;
	uint32_t ports;

	if (pv_unlikely(ip[0] >> 4 != 4)) {
		rx_lookup(t, pkt, now_ns);
		return;
	}
	memcpy(&addrs, ip + IP4_SRC, sizeof(addrs));
	memcpy(&ports, udp, sizeof(ports));
	f = flow_of(t, addrs, ports);
	if (pv_unlikely(f->addrs != addrs || f->ports != ports || f->tag != (t->gen | pkt->iface) || !f->sock)) {
		rx_lookup(t, pkt, now_ns);
		return;
	}
	PV_PROBE5(demux, PV_PROTO_UDP, f->sock, pkt, f->sock->lport, f->sock->rport);
	pull(pkt);
	enqueue(t, f->sock, pkt, now_ns);
}

static pv_noinline void rx_slow(struct pv_udp_table *t, struct pv_pkt *pkt, int64_t now_ns)
{
	if (!length_ok(pkt)) {
		pv_udp_lost(t, NULL, pkt, &t->counters.rx_short);
		pv_pkt_put(pkt);
		return;
	}
	if (!pv_net_rx_l4_csum_ok(pkt, PV_PROTO_UDP)) {
		pv_udp_lost(t, NULL, pkt, &t->counters.rx_bad_csum);
		pv_pkt_put(pkt);
		return;
	}
	if (pkt->flags & PV_PKT_GROUP)
		group_rx(t, pkt, now_ns);
	else
		rx_one(t, pkt, now_ns);
}

/* The ring's word for the checksum spares a call. */
void pv_udp_rx(struct pv_udp_table *t, struct pv_pkt *pkt, int64_t now_ns)
{
	if (pv_unlikely(pkt->len < PV_UDP_HLEN || pv_get16(pkt->data + 4) != pkt->total ||
			(pkt->flags & (PV_PKT_GROUP | PV_PKT_L4_OK)) != PV_PKT_L4_OK))
		rx_slow(t, pkt, now_ns);
	else
		rx_one(t, pkt, now_ns);
}

/* ---- to the application ------------------------------------------------------------------------------------------------ */

pv_inline void tell_from(const struct pv_pkt *pkt, struct pv_endpoint *from)
{
	const uint8_t *ip = pkt->buf + pkt->l3_off;

	if (pv_likely(pkt_is4(pkt))) {
		from->addr = pv_addr_from4(ip + IP4_SRC);
		from->iface = 0;
	} else {
		from->addr = pv_addr_from6(ip + IP6_SRC);
		from->iface = pv_addr_is_linklocal6(&from->addr) ? pkt->iface : 0;
	}
	from->port = pv_get16(pkt->buf + pkt->l4_off);
}

pv_inline void describe(const struct pv_pkt *pkt, struct pv_udp_recv *msg)
{
	const uint8_t *ip = pkt->buf + pkt->l3_off;

	tell_from(pkt, &msg->from);
	if (pv_likely(pkt_is4(pkt))) {
		msg->dst = pv_addr_from4(ip + IP4_DST);
		msg->ttl = ip[8];
		msg->tos = ip[1];
	} else {
		msg->dst = pv_addr_from6(ip + IP6_DST);
		msg->ttl = ip[7];
		msg->tos = (uint8_t)(pv_get16(ip) >> 4);
	}
	msg->iface = pkt->iface;
	msg->full_len = pkt->total;
	msg->flags = pkt->flags;
	msg->tstamp = pkt->tstamp;
	msg->arrival_ns = (int64_t)pkt->priv[0];
}

static pv_noinline uint32_t scatter(const struct pv_pkt *pkt, const struct pv_iov *iov, uint32_t iovcnt)
{
	uint32_t done = 0;
	size_t at = 0, off = 0;

	while (pkt && iovcnt) {
		size_t n = PV_MIN(pkt->len - off, iov->len - at);

		if (n)
			memcpy((uint8_t *)(uintptr_t)iov->base + at, pkt->data + off, n);
		done += (uint32_t)n;
		at += n;
		off += n;
		if (off == pkt->len) {
			pkt = pkt->frag;
			off = 0;
		}
		if (iovcnt && at == iov->len) {
			iov++;
			iovcnt--;
			at = 0;
		}
	}
	return done;
}

pv_inline struct pv_pkt *dequeue(struct pv_udp *u)
{
	struct pv_pkt *pkt = pv_pktq_pop(&u->rxq);

	if (pkt)
		u->rx_bytes -= pkt->total + PV_UDP_OVERHEAD;
	return pkt;
}

static pv_noinline int64_t told(const struct pv_udp *u, uint32_t n)
{
	pv_udp_traced(u, u->t->head.stations, PV_TRACE_delivered, n, 0);
	return n;
}

int64_t pv_udp_recv(struct pv_udp *u, struct pv_udp_recv *msg)
{
	struct pv_pkt *pkt = u->rxq.head;
	uint32_t n;

	if (pv_unlikely(u->tell.err))
		return -pv_udp_error(u);
	if (pv_unlikely(!pkt))
		return -EAGAIN;
	if (msg->brief)
		tell_from(pkt, &msg->from);
	else if (!msg->bare)
		describe(pkt, msg);
	if (pv_likely(!pkt->frag && msg->iovcnt == 1)) {
		n = (uint32_t)PV_MIN(pkt->len, msg->iov->len);
		if (n)
			pv_copy((void *)(uintptr_t)msg->iov->base, pkt->data, n);
	} else {
		n = scatter(pkt, msg->iov, msg->iovcnt);
	}
	if (pv_likely(!msg->peek)) {
		pv_pktq_take(&u->rxq);
		u->rx_bytes -= pkt->total + PV_UDP_OVERHEAD;
		PV_PROBE3(delivered, PV_PROTO_UDP, u, pkt->total);
		pv_pkt_put(pkt);
		if (pv_unlikely(u->t->head.stations != NULL))
			return told(u, n);
	}
	return n;
}

struct pv_pkt *pv_udp_take(struct pv_udp *u, struct pv_udp_recv *out)
{
	struct pv_pkt *pkt = dequeue(u);

	if (!pkt)
		return NULL;
	describe(pkt, out);
	PV_PROBE3(delivered, PV_PROTO_UDP, u, pkt->total);
	if (pv_unlikely(u->t->head.stations != NULL))
		pv_udp_traced(u, u->t->head.stations, PV_TRACE_delivered, pkt->total, 0);
#ifdef PV_DEBUG
	for (struct pv_pkt *p = pkt; p; p = p->frag)
		p->owner = PV_OWNER_APP;
#endif
	return pkt;
}

uint32_t pv_udp_queued(const struct pv_udp *u)
{
	return u->rxq.count;
}

uint32_t pv_udp_queued_bytes(const struct pv_udp *u)
{
	return u->rx_bytes - u->rxq.count * PV_UDP_OVERHEAD - (u->stamps ? u->stamps->own : 0);
}

uint32_t pv_udp_next_len(const struct pv_udp *u)
{
	return u->rxq.head ? u->rxq.head->total : 0;
}

void pv_udp_purge(struct pv_udp *u)
{
	struct pv_pkt *pkt;

	while ((pkt = dequeue(u)))
		pv_pkt_put(pkt);
}
