/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports, bind conflicts and the way from a datagram to a socket, all as Linux has them (net/ipv4/udp.c is the reference for behaviour:
 * lookup by 4-tuple, by address, by port; scores within a chain; the newest of equals wins).
 */
#include "udp/udp_int.h"

#define EPHEMERAL_TRIES 16u

/* ---- hash tables ------------------------------------------------------------------------------------------------------- */

static uint32_t conn_hash(const struct pv_udp_table *t, const struct pv_addr *local, const struct pv_addr *remote, uint16_t lport,
			  uint16_t rport)
{
	return pv_hash_flow(&t->key, local, remote, lport, rport, PV_PROTO_UDP);
}

static void chain_add(struct pv_udp *u)
{
	struct pv_udp_table *t = u->t;

	if (pv_udp_is_zero(&u->laddr)) {
		u->home = PV_UDP_HOME_ANY;
		pv_htab_add(&t->any, &u->flow, pv_hash_u64(&t->key, u->lport));
	} else {
		u->home = PV_UDP_HOME_ADDR;
		pv_htab_add(&t->addr, &u->flow, pv_hash_addr(&t->key, &u->laddr, u->lport));
	}
}

/* ---- SO_REUSEPORT groups ----------------------------------------------------------------------------------------------- */

static bool reuse_alike(const struct pv_udp *a, const struct pv_udp *b)
{
	return a->family == b->family && a->opts.v6only == b->opts.v6only && a->bound_iface == b->bound_iface &&
	       a->any4 == b->any4 && a->accept == b->accept && pv_addr_eq(&a->laddr, &b->laddr);
}

static int reuse_push(struct pv_udp_table *t, struct pv_udp_reuse *g, struct pv_udp *u)
{
	if (g->n == g->cap) {
		uint32_t cap = g->cap ? g->cap * 2 : 4;
		struct pv_udp **sock = pv_udp_alloc(t, cap * sizeof(struct pv_udp *));

		if (!sock)
			return -ENOMEM;
		for (uint32_t i = 0; i < g->n; i++)
			sock[i] = g->sock[i];
		pv_udp_free(t, g->sock, g->cap * sizeof(struct pv_udp *));
		g->sock = sock;
		g->cap = cap;
	}
	g->order = g->n ? PV_MAX(g->order, u->order) : u->order;
	g->sock[g->n++] = u;
	u->reuse = g;
	return 0;
}

/* True when the socket went into a group that is in the chain already. Without memory for a group it merely competes, as with
 * SO_REUSEADDR. */
static bool reuse_join(struct pv_udp *u)
{
	struct pv_udp_table *t = u->t;
	struct pv_udp_reuse *g;

	pv_list_for_each(it, &u->port->socks) {
		const struct pv_udp *s = pv_list_entry(it, struct pv_udp, on_port);

		if (s != u && s->reuse && reuse_alike(s, u))
			return !reuse_push(t, s->reuse, u);
	}
	g = pv_udp_alloc(t, sizeof(*g));
	if (g && reuse_push(t, g, u))
		pv_udp_free(t, g, sizeof(*g));
	return false;
}

/* Whoever stood for the group in the chain has left it already. */
static void reuse_leave(struct pv_udp *u)
{
	struct pv_udp_reuse *g = u->reuse;

	u->reuse = NULL;
	for (uint32_t i = 0; i < g->n; i++) {
		if (g->sock[i] == u) {
			g->sock[i] = g->sock[--g->n];
			break;
		}
	}
	if (!g->n) {
		pv_udp_free(u->t, g->sock, g->cap * sizeof(struct pv_udp *));
		pv_udp_free(u->t, g, sizeof(*g));
	} else if (u->home != PV_UDP_HOME_GROUP) {
		chain_add(g->sock[0]);
	}
}

/* A connected socket with a remote port takes its flow only; a connected one takes no part in a group. */
void pv_udp_hash_add(struct pv_udp *u)
{
	struct pv_udp_table *t = u->t;

	pv_udp_demux_changed(t);
	if (u->connected && u->rport) {
		u->home = PV_UDP_HOME_CONN;
		pv_htab_add(&t->conn, &u->flow, conn_hash(t, &u->laddr, &u->raddr, u->lport, u->rport));
	} else if (u->opts.reuse_port && !u->connected && reuse_join(u)) {
		u->home = PV_UDP_HOME_GROUP;
	} else {
		chain_add(u);
	}
}

void pv_udp_hash_del(struct pv_udp *u)
{
	struct pv_udp_table *t = u->t;

	pv_udp_demux_changed(t);
	switch ((enum pv_udp_home)u->home) {
	case PV_UDP_HOME_CONN:
		pv_htab_del(&t->conn, &u->flow);
		break;
	case PV_UDP_HOME_ADDR:
		pv_htab_del(&t->addr, &u->flow);
		break;
	case PV_UDP_HOME_ANY:
		pv_htab_del(&t->any, &u->flow);
		break;
	case PV_UDP_HOME_GROUP:
	case PV_UDP_HOME_NONE:
		break;
	}
	if (u->reuse)
		reuse_leave(u);
	u->home = PV_UDP_HOME_NONE;
}

/* ---- lookup ------------------------------------------------------------------------------------------------------------ */

/* Linux's compute_score for sockets whose local address and port match already: -1 no match, more is better. IPv4 datagrams prefer
 * AF_INET sockets over AF_INET6 ones; a remote address (connected to port 0) and a device each count more than that. */
pv_inline int score(const struct pv_udp *u, const struct pv_udp_key *k)
{
	int s = u->family == PV_AF_INET;

	if (pv_unlikely(u->connected)) {
		if (!pv_addr_eq(&u->raddr, &k->remote) || (u->rport && u->rport != k->rport))
			return -1;
		s += 4;
	}
	if (pv_unlikely(u->bound_iface)) {
		if (u->bound_iface != k->iface && k->iface)
			return -1;
		s += 4;
	}
	return s;
}

static pv_noinline struct pv_udp *spread(const struct pv_udp_table *t, const struct pv_udp_key *k, struct pv_udp *u)
{
	const struct pv_udp_reuse *g = u->reuse;
	uint32_t h = conn_hash(t, &k->local, &k->remote, k->lport, k->rport);
	int32_t queue = (int32_t)k->queue - 1;
	uint32_t n = 0;

	/* Members that want this queue's flows come first, as in the kernel those of the CPU. */
	for (uint32_t i = 0; queue >= 0 && i < g->n; i++)
		n += g->sock[i]->opts.incoming_cpu == queue;
	if (n) {
		uint32_t nth = (uint32_t)(((uint64_t)h * n) >> 32);

		for (uint32_t i = 0; i < g->n; i++)
			if (g->sock[i]->opts.incoming_cpu == queue && !nth--)
				return g->sock[i];
	}
	return g->sock[((uint64_t)h * g->n) >> 32];
}

pv_inline int64_t order_of(const struct pv_udp *u)
{
	return pv_unlikely(u->reuse != NULL) ? u->reuse->order : u->order;
}

pv_inline struct pv_udp *best(const struct pv_htab *tab, uint32_t hash, const struct pv_addr *laddr, const struct pv_udp_key *k)
{
	struct pv_udp *found = NULL;
	int found_score = -1;

	pv_htab_for_each(it, tab, hash)
	{
		struct pv_udp *u = pv_htab_entry(it, struct pv_udp, flow);
		int s;

		if (u->lport != k->lport || !(u->accept & k->accept) || !pv_addr_eq(&u->laddr, laddr))
			continue;
		s = score(u, k);
		if (s > found_score || (pv_unlikely(s == found_score) && found && order_of(u) > order_of(found))) {
			found = u;
			found_score = s;
		}
	}
	return found;
}

static struct pv_udp *lookup_conn(const struct pv_udp_table *t, const struct pv_udp_key *k)
{
	struct pv_udp *found = NULL;

	pv_htab_for_each(it, &t->conn, conn_hash(t, &k->local, &k->remote, k->lport, k->rport))
	{
		struct pv_udp *u = pv_htab_entry(it, struct pv_udp, flow);

		if (u->lport != k->lport || u->rport != k->rport || !pv_addr_eq(&u->laddr, &k->local) ||
		    !pv_addr_eq(&u->raddr, &k->remote))
			continue;
		if (u->bound_iface && u->bound_iface != k->iface && k->iface)
			continue;
		if (found && !found->bound_iface == !u->bound_iface ? u->order > found->order : !found || u->bound_iface)
			found = u;
	}
	return found;
}

struct pv_udp *pv_udp_lookup(const struct pv_udp_table *t, const struct pv_udp_key *k)
{
	static const struct pv_addr any;
	struct pv_udp *u = NULL;

	if (t->conn.count) {
		u = lookup_conn(t, k);
		if (u)
			return u;
	}
	if (t->addr.count)
		u = best(&t->addr, pv_hash_addr(&t->key, &k->local, k->lport), &k->local, k);
	if (!u && t->any.count)
		u = best(&t->any, pv_hash_u64(&t->key, k->lport), &any, k);
	return pv_unlikely(u && u->reuse) ? spread(t, k, u) : u;
}

/* ---- ports ------------------------------------------------------------------------------------------------------------- */

struct pv_udp_port *pv_udp_port_find(const struct pv_udp_table *t, uint16_t port)
{
	pv_htab_for_each(it, &t->ports, pv_hash_u64(&t->key, port))
	{
		struct pv_udp_port *p = pv_htab_entry(it, struct pv_udp_port, node);

		if (p->port == port)
			return p;
	}
	return NULL;
}

/* inet_rcv_saddr_equal with wildcards: two sockets may get the same datagram. An IPv6 wildcard covers IPv4 unless it is v6only. */
static bool overlap(const struct pv_udp *a, const struct pv_udp *b)
{
	if (!(a->accept & b->accept))
		return false;
	return pv_udp_is_zero(&a->laddr) || pv_udp_is_zero(&b->laddr) || pv_addr_eq(&a->laddr, &b->laddr);
}

/* udp_lib_lport_inuse: the first overlapping socket of the list decides when both have SO_REUSEPORT. */
static bool in_use(const struct pv_udp *u, uint16_t port)
{
	const struct pv_udp_port *p = pv_udp_port_find(u->t, port);

	if (!p)
		return false;
	pv_list_for_each(it, &p->socks) {
		const struct pv_udp *s = pv_list_entry(it, struct pv_udp, on_port);

		if (s == u || (s->opts.reuse_addr && u->opts.reuse_addr))
			continue;
		if (s->bound_iface && u->bound_iface && s->bound_iface != u->bound_iface)
			continue;
		if (overlap(u, s))
			return !(s->opts.reuse_port && u->opts.reuse_port);
	}
	return false;
}

/* A few throws of the dice find a port at once while the range is not nearly full; then every port is looked at, once. */
static uint16_t ephemeral(struct pv_udp *u)
{
	struct pv_udp_table *t = u->t;
	uint32_t range = (uint32_t)t->port_hi - t->port_lo + 1, start;

	for (uint32_t i = 0; i < EPHEMERAL_TRIES; i++) {
		uint16_t port = (uint16_t)(t->port_lo + pv_rng_below(&t->rng, range));

		if (!in_use(u, port))
			return port;
	}
	start = (uint32_t)pv_rng_below(&t->rng, range);
	for (uint32_t i = 0; i < range; i++) {
		uint16_t port = (uint16_t)(t->port_lo + (start + i) % range);

		if (!in_use(u, port))
			return port;
	}
	return 0;
}

int pv_udp_port_get(struct pv_udp *u, uint16_t port)
{
	struct pv_udp_table *t = u->t;
	struct pv_udp_port *p;

	if (port ? in_use(u, port) : !(port = ephemeral(u)))
		return -EADDRINUSE;
	p = pv_udp_port_find(t, port);
	if (!p) {
		p = pv_udp_alloc(t, sizeof(*p));
		if (!p)
			return -ENOMEM;
		p->port = port;
		pv_list_init(&p->socks);
		pv_htab_add(&t->ports, &p->node, pv_hash_u64(&t->key, port));
	}
	u->port = p;
	u->lport = port;
	t->order++;
	if (u->family == PV_AF_INET6 && u->opts.reuse_port) {
		u->order = -t->order;
		pv_list_add(&p->socks, &u->on_port);
	} else {
		u->order = t->order;
		pv_list_add(p->socks.next, &u->on_port);
	}
	pv_udp_hash_add(u);
	return 0;
}

void pv_udp_port_put(struct pv_udp *u)
{
	struct pv_udp_port *p = u->port;

	if (!p)
		return;
	pv_udp_hash_del(u);
	pv_list_del(&u->on_port);
	u->port = NULL;
	u->lport = 0;
	if (pv_list_empty(&p->socks)) {
		pv_htab_del(&u->t->ports, &p->node);
		pv_udp_free(u->t, p, sizeof(*p));
	}
}

int pv_udp_autobind(struct pv_udp *u)
{
	int rc;

	if (u->lport)
		return 0;
	rc = pv_udp_port_get(u, 0);
	if (!rc)
		pv_udp_steer(u);
	return rc == -EADDRINUSE ? -EAGAIN : rc;
}
