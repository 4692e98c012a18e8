/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports, bind conflicts and the way from a segment to a socket, all as Linux has them (net/ipv4/inet_connection_sock.c and
 * inet_hashtables.c are the reference for behaviour). Connections are found by both addresses and ports, listeners by address and port
 * and then by port alone.
 */
#include "tcp/conn.h"

/* ---- connections ------------------------------------------------------------------------------------------------------------ */

pv_inline uint32_t ports_of(const struct pv_tcp *c)
{
	return (uint32_t)c->lport | (uint32_t)c->rport << 16;
}

struct pv_tcp *pv_tcp_find_conn(const struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	pv_htab_for_each(it, &t->conns, in->hash)
	{
		struct pv_tcp *c = pv_htab_entry(it, struct pv_tcp, flow);

		if (pv_unlikely(!pv_tcp_same_flow(&c->laddr, &c->raddr, ports_of(c), in)))
			continue;
		/* Link-local peers of one name live on several links. */
		if (pv_likely(!c->opts.bound_iface || !in->pkt || c->opts.bound_iface == in->pkt->iface))
			return c;
	}
	return NULL;
}

struct pv_tcp *pv_tcp_find(struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	return pv_tcp_find_conn(t, in);
}

static uint32_t listener_hash(const struct pv_tcp_table *t, const struct pv_addr *laddr, uint16_t port)
{
	return pv_hash_addr(&t->hash, laddr, port);
}

int pv_tcp_hash(struct pv_tcp *c)
{
	struct pv_tcp_table *t = c->t;

	if (c->state == PV_TCP_LISTEN) {
		pv_htab_add(&t->listeners, &c->flow, listener_hash(t, &c->laddr, c->lport));
	} else {
		uint32_t hash = pv_tcp_flow_hash(t, &c->laddr, &c->raddr, c->lport, c->rport);
		struct pv_tcp_in in = { .src = c->raddr, .dst = c->laddr, .sport = c->rport, .dport = c->lport, .hash = hash };
		const struct pv_tcp *other = pv_tcp_find_conn(t, &in);

		if ((other && other->opts.bound_iface == c->opts.bound_iface) || pv_tcp_tw_find(t, &in))
			return -EADDRNOTAVAIL;
		pv_htab_add(&t->conns, &c->flow, hash);
		pv_tcp_forget_last(t);
	}
	c->sock |= PV_SK_HASHED;
	return 0;
}

void pv_tcp_unhash(struct pv_tcp *c)
{
	if (pv_unlikely(c->rules != NULL))
		pv_tcp_steer_left(c->t, &c->rules);
	if (!(c->sock & PV_SK_HASHED))
		return;
	c->sock &= (uint8_t)~PV_SK_HASHED;
	pv_tcp_forget_last(c->t);
	pv_htab_del(c->listen ? &c->t->listeners : &c->t->conns, &c->flow);
}

/* ---- listeners -------------------------------------------------------------------------------------------------------------- */

/* Linux's compute_score: a device counts most, then the family and the CPU, which here is the ring's queue. -1: not for it. */
static int score(const struct pv_tcp *l, const struct pv_tcp_in *in, const struct pv_addr *laddr)
{
	uint8_t family = pv_addr_is4(&in->dst) ? PV_ACCEPT4 : PV_ACCEPT6;
	int s = 0;

	if (l->lport != in->dport || !(l->accept & family) || !pv_addr_eq(&l->laddr, laddr))
		return -1;
	if (l->opts.bound_iface && l->opts.bound_iface != in->pkt->iface)
		return -1;
	if (pv_unlikely(in->pkt->flags & PV_PKT_QUEUE) && l->incoming_cpu == (int)in->pkt->txq)
		s++;
	return s + (l->opts.bound_iface ? 2 : 0) + (l->family == PV_AF_INET);
}

/* Of listeners that share a port by SO_REUSEPORT the flow's hash chooses one. */
static struct pv_tcp *listener_of(const struct pv_tcp_table *t, const struct pv_tcp_in *in, const struct pv_addr *laddr)
{
	uint32_t hash = listener_hash(t, laddr, in->dport), n = 0, nth = 0;
	struct pv_tcp *found = NULL;
	int best = -1;

	pv_htab_for_each(it, &t->listeners, hash)
	{
		struct pv_tcp *l = pv_htab_entry(it, struct pv_tcp, flow);
		int s = score(l, in, laddr);

		if (s > best) {
			best = s;
			found = l;
			n = 0;
		}
		n += s == best && s >= 0 && l->opts.reuse_port;
	}
	if (pv_likely(n < 2))
		return found;
	nth = (uint32_t)(((uint64_t)in->hash * n) >> 32);
	pv_htab_for_each(it, &t->listeners, hash)
	{
		struct pv_tcp *l = pv_htab_entry(it, struct pv_tcp, flow);

		if (l->opts.reuse_port && score(l, in, laddr) == best && !nth--)
			return l;
	}
	return found;
}

struct pv_tcp *pv_tcp_find_listener(struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	static const struct pv_addr any;
	struct pv_tcp *l = listener_of(t, in, &in->dst);

	return l ? l : listener_of(t, in, &any);
}

/* ---- ports -------------------------------------------------------------------------------------------------------------------- */

struct pv_tcp_port *pv_tcp_port_find(const struct pv_tcp_table *t, uint16_t port)
{
	pv_htab_for_each(it, &t->ports, pv_hash_u64(&t->hash, port))
	{
		struct pv_tcp_port *p = pv_htab_entry(it, struct pv_tcp_port, node);

		if (p->port == port)
			return p;
	}
	return NULL;
}

/* One that has a port already, as the one that wants it sees it. */
struct holder {
	const struct pv_addr *laddr;
	uint32_t bound_iface;
	uint8_t accept;
	bool reuse_addr, reuse_port, listening;
};

/* inet_bind_conflict: `strict` when the stack itself looks for a port, which then is to be nobody's. */
static bool conflict(const struct pv_tcp *c, const struct holder *h, bool strict)
{
	if (c->opts.bound_iface && h->bound_iface && c->opts.bound_iface != h->bound_iface)
		return false;
	if (!(c->accept & h->accept))
		return false;
	if (!pv_tcp_is_zero(&c->laddr) && !pv_tcp_is_zero(h->laddr) && !pv_addr_eq(&c->laddr, h->laddr))
		return false;
	if (strict)
		return true;
	if (c->opts.reuse_addr && h->reuse_addr && !h->listening)
		return false;
	return !(c->opts.reuse_port && h->reuse_port);
}

static bool in_use(const struct pv_tcp *c, const struct pv_tcp_port *p, bool strict)
{
	pv_list_for_each(it, &p->socks) {
		const struct pv_tcp *s = pv_list_entry(it, struct pv_tcp, on_port);
		struct holder h = { .laddr = &s->laddr,
				    .bound_iface = s->opts.bound_iface,
				    .accept = s->accept,
				    .reuse_addr = s->opts.reuse_addr,
				    .reuse_port = s->opts.reuse_port,
				    .listening = s->state == PV_TCP_LISTEN };

		if (s != c && conflict(c, &h, strict))
			return true;
	}
	pv_list_for_each(it, &p->tws) {
		const struct pv_tcp_tw *w = pv_list_entry(it, struct pv_tcp_tw, on_port);
		struct holder h = { .laddr = &w->laddr,
				    .bound_iface = w->bound_iface,
				    .accept = w->v4 ? PV_ACCEPT4 : PV_ACCEPT6,
				    .reuse_addr = w->reuse_addr,
				    .reuse_port = w->reuse_port };

		if (conflict(c, &h, strict))
			return true;
	}
	return false;
}

bool pv_tcp_port_clash(const struct pv_tcp *c, uint16_t port)
{
	const struct pv_tcp_port *p = pv_tcp_port_find(c->t, port);

	return p && in_use(c, p, false);
}

void pv_tcp_port_join(struct pv_tcp *c, struct pv_tcp_port *p)
{
	if (pv_unlikely(p->reserve != NULL))
		pv_tcp_reserve_taken(c->t, p);
	c->port = p;
	c->lport = p->port;
	pv_list_add(&p->socks, &c->on_port);
}

#define PORT_CHUNK 32u

static struct pv_tcp_port *port_new(struct pv_tcp_table *t, uint16_t port)
{
	struct pv_tcp_port *p = t->free_port;

	if (!p) {
		p = pv_tcp_chunk_get(t, PORT_CHUNK * sizeof(*p));
		if (!p)
			return NULL;
		for (uint32_t i = 0; i < PORT_CHUNK; i++) {
			p[i].node.next = (struct pv_hnode *)(void *)t->free_port;
			t->free_port = &p[i];
		}
		p = t->free_port;
	}
	t->free_port = (struct pv_tcp_port *)(void *)p->node.next;
	memset(p, 0, sizeof(*p));
	p->port = port;
	pv_list_init(&p->socks);
	pv_list_init(&p->tws);
	pv_list_init(&p->rules);
	pv_htab_add(&t->ports, &p->node, pv_hash_u64(&t->hash, port));
	return p;
}

/* As Linux: bind looks among the ports of one parity first, connect among those of the other, so that they seldom meet. But not through
 * all of them: where one half is used up, each search would go over it in vain. So a few of each, then the rest of each. */
#define PORT_TRIES 64u

/* Which of its half the i-th try is; `parity` becomes the half. */
static uint32_t port_step(uint32_t half, uint32_t i, uint32_t *parity)
{
	uint32_t few = PV_MIN(half, PORT_TRIES);

	if (i < few)
		return i;
	if (i >= 2 * few && i < few + half)
		return i - few;
	*parity ^= 1;
	return i < 2 * few ? i - few : i - half;
}

static uint16_t port_at(const struct pv_tcp_table *t, uint32_t offset, uint32_t i, uint32_t parity)
{
	uint32_t range = (uint32_t)t->cfg.port_hi - t->cfg.port_lo + 1, half = range / 2, at;

	if (range < 2)
		return t->cfg.port_lo;
	at = (offset / 2 + port_step(half, i, &parity)) % half * 2 + parity;
	return (uint16_t)(t->cfg.port_lo + at);
}

static uint16_t ephemeral(const struct pv_tcp *c)
{
	struct pv_tcp_table *t = c->t;
	uint32_t range = (uint32_t)t->cfg.port_hi - t->cfg.port_lo + 1;
	uint32_t offset = (uint32_t)pv_rng_below(&t->rng, range);

	for (uint32_t i = 0; i < range; i++) {
		uint16_t port = port_at(t, offset, i, 1);
		const struct pv_tcp_port *p = pv_tcp_port_find(t, port);

		if (!p || !in_use(c, p, true))
			return port;
	}
	return 0;
}

int pv_tcp_port_get(struct pv_tcp *c, uint16_t port)
{
	struct pv_tcp_table *t = c->t;
	struct pv_tcp_port *p;

	if (port ? pv_tcp_port_clash(c, port) : !(port = ephemeral(c)))
		return -EADDRINUSE;
	p = pv_tcp_port_find(t, port);
	if (!p)
		p = port_new(t, port);
	if (!p)
		return -ENOMEM;
	p->shared = false;
	pv_tcp_port_join(c, p);
	return 0;
}

/* RFC 6056 3.3.3: a counter, from where the hash of the three known parts of the flow points. */
int pv_tcp_port_connect(struct pv_tcp *c)
{
	struct pv_tcp_table *t = c->t;
	struct {
		struct pv_addr laddr, raddr;
		uint64_t rport;
	} key = { c->laddr, c->raddr, c->rport };
	uint32_t range = (uint32_t)t->cfg.port_hi - t->cfg.port_lo + 1;
	uint32_t offset = (uint32_t)pv_siphash(&t->port_key, &key, sizeof(key)) + t->next_port;

	for (uint32_t i = 0; i < range; i++) {
		uint16_t port = port_at(t, offset, i, 0);
		struct pv_tcp_port *p = pv_tcp_port_find(t, port);

		if (p && !p->shared)
			continue;
		if (!p) {
			p = port_new(t, port);
			if (!p)
				return -ENOMEM;
			p->shared = true;
		}
		c->lport = port;
		if (!pv_tcp_hash(c)) {
			pv_tcp_port_join(c, p);
			t->next_port += 2 * (port_step(range / 2, i, &(uint32_t){ 0 }) + 1);
			return 0;
		}
		c->lport = 0;
		pv_tcp_port_check(t, p);
	}
	return -EADDRNOTAVAIL;
}

void pv_tcp_port_check(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	if (!pv_list_empty(&p->socks) || !pv_list_empty(&p->tws))
		return;
	if (p->reserve && pv_tcp_reserve_idle(t, p))
		return;
	pv_tcp_steer_end(t, p);
	if (p->hold)
		t->cfg.port_free(t->cfg.port_free_ctx, p->hold);
	pv_htab_del(&t->ports, &p->node);
	p->node.next = (struct pv_hnode *)(void *)t->free_port;
	t->free_port = p;
}

/* The number stays for those who ask for the name. */
void pv_tcp_port_put(struct pv_tcp *c)
{
	struct pv_tcp_port *p = c->port;

	if (!p)
		return;
	c->port = NULL;
	pv_list_del(&c->on_port);
	pv_tcp_port_check(c->t, p);
}

void **pv_tcp_port_hold(struct pv_tcp_table *t, uint16_t port)
{
	struct pv_tcp_port *p = pv_tcp_port_find(t, port);

	return p ? &p->hold : NULL;
}

void pv_tcp_port_brief(struct pv_tcp_table *t, uint16_t port)
{
	struct pv_tcp_port *p = pv_tcp_port_find(t, port);

	if (!p)
		return;
	p->brief = true;
	for (struct pv_list *it = p->tws.next, *next; it != &p->tws; it = next) {
		struct pv_tcp_tw *w = pv_list_entry(it, struct pv_tcp_tw, on_port);
		/* The port goes with the last of them. */
		bool last = p->tws.next->next == &p->tws && pv_list_empty(&p->socks);

		next = it->next;
		if (w->fin_wait_2)
			continue;
		pv_tcp_tw_drop(t, w);
		if (last)
			return;
	}
}
