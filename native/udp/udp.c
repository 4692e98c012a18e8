/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Life of the table and of a socket: open, bind, connect, options, readiness. Behaviour and order of the checks are Linux's
 * (inet_bind, inet6_bind, ip4_datagram_connect, ip6_datagram_connect, udp_disconnect).
 */
#include "udp/udp_int.h"

#include "net/txlane.h"

int pv_udp_table_open(struct pv_udp_table **out, struct pv_net *net, const struct pv_mem *mem, const struct pv_udp_cfg *cfg)
{
	uint32_t hint = cfg->sockets_hint ? cfg->sockets_hint : 1024;
	struct pv_udp_table *t;

	if (cfg->port_lo > cfg->port_hi || (cfg->port_hi && !cfg->port_lo))
		return -EINVAL;
	t = pv_mem_alloc_shown(mem, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->net = net;
	t->mem = mem;
	t->key = pv_hash_key(cfg->seed);
	pv_rng_seed(&t->rng, cfg->seed ^ UINT64_C(0x7564702d706f7274));
	t->gen = 1u << 8;
	t->port_lo = cfg->port_lo ? cfg->port_lo : 32768;
	t->port_hi = cfg->port_hi ? cfg->port_hi : 60999;
	pv_list_init(&t->head.ready);
	pv_list_init(&t->room);
	pv_list_init(&t->all);
	if (pv_htab_init(&t->conn, mem, hint) || pv_htab_init(&t->addr, mem, hint) || pv_htab_init(&t->any, mem, hint) ||
	    pv_htab_init(&t->ports, mem, hint) || pv_htab_init(&t->joined, mem, 16) || pv_htab_init(&t->rules, mem, 16)) {
		pv_udp_table_close(t);
		return -ENOMEM;
	}
	t->shown = pv_mem_show(mem, &pv_udp_table_stat_type, &t->counters);
	*out = t;
	return 0;
}

void pv_udp_table_close(struct pv_udp_table *t)
{
	if (!t)
		return;
	pv_htab_fini(&t->conn);
	pv_htab_fini(&t->addr);
	pv_htab_fini(&t->any);
	pv_htab_fini(&t->ports);
	pv_htab_fini(&t->joined);
	pv_htab_fini(&t->rules);
	pv_mem_hide(t->mem, t->shown);
	pv_mem_free_shown(t->mem, t, sizeof(*t));
}

const struct pv_udp_counters *pv_udp_table_counters(const struct pv_udp_table *t)
{
	return &t->counters;
}

const struct pv_udp_counters *pv_udp_counters(const struct pv_udp *u)
{
	return &u->counters;
}

/* ---- a socket ---------------------------------------------------------------------------------------------------------- */

static uint8_t accept_any(const struct pv_udp *u)
{
	if (u->family == PV_AF_INET || u->any4)
		return PV_UDP_ACCEPT4;
	return u->opts.v6only ? PV_UDP_ACCEPT6 : PV_UDP_ACCEPT4 | PV_UDP_ACCEPT6;
}

int pv_udp_open(struct pv_udp_table *t, enum pv_family family, void *user, struct pv_udp **out)
{
	struct pv_udp *u;

	if (family != PV_AF_INET && family != PV_AF_INET6)
		return -EAFNOSUPPORT;
	u = pv_mem_alloc_shown(t->mem, sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->t = t;
	u->tell.user = user;
	u->family = (uint8_t)family;
	u->opts = (struct pv_udp_opts){
		.rcvbuf = 212992,
		.sndbuf = 212992,
		.ttl = -1,
		.hops = -1,
		.mcast_ttl = 1,
		.mcast_hops = 1,
		.mcast_loop4 = true,
		.mcast_loop6 = true,
		.mcast_all4 = true,
		.mcast_all6 = true,
		.pmtudisc4 = PV_PMTU_WANT,
		.pmtudisc6 = PV_PMTU_WANT,
		.incoming_cpu = -1,
	};
	u->rx_limit = u->opts.rcvbuf;
	u->accept = accept_any(u);
	pv_pktq_init(&u->rxq);
	pv_list_init(&u->tell.on_ready);
	pv_list_init(&u->room);
	pv_list_init(&u->on_port);
	pv_list_init(&u->members);
	pv_list_init(&u->rules);
	pv_list_add(&t->all, &u->all);
	pv_udp_traced(u, pv_net_trace(t->net), PV_TRACE_socket, PV_TRACE_OPENED, 0);
	u->shown = pv_mem_show(t->mem, &pv_udp_stat_type, u);
	*out = u;
	return 0;
}

uint32_t pv_udp_lane(const struct pv_udp *u)
{
	return u->lane;
}

int pv_udp_set_lane(struct pv_udp *u, uint32_t lane, bool hurry)
{
	struct pv_net *net = u->t->net;

	if (u->pace)
		return -EBUSY;
	if (u->lane && !hurry && !pv_txlane_settled(net, u->lane))
		return -EAGAIN;
	pv_txlane_put(net, u->lane);
	u->lane = (uint8_t)lane;
	u->full_txq = 0;
	u->conn.path.gen = u->to.path.gen = 0;
	return 0;
}

void pv_udp_close(struct pv_udp *u)
{
	struct pv_udp_table *t = u->t;

	pv_udp_traced(u, pv_net_trace(t->net), PV_TRACE_socket, PV_TRACE_CLOSED, 0);
	pv_udp_pace_end(u, t->head.now_ns);
	pv_txlane_put(t->net, u->lane);
	pv_udp_steer_end(u);
	pv_udp_leave_all(u, 0, t->head.now_ns);
	pv_udp_port_put(u);
	pv_udp_purge(u);
	pv_list_del(&u->tell.on_ready);
	t->head.waiting -= u->blocked;
	pv_list_del(&u->room);
	pv_list_del(&u->all);
	pv_udp_free(t, u->errq, sizeof(*u->errq));
	pv_udp_stamps_close(u);
	pv_mem_hide(t->mem, u->shown);
	pv_mem_free_shown(t->mem, u, sizeof(*u));
}

/* ---- bind -------------------------------------------------------------------------------------------------------------- */

/* Which address may be bound, and the interface that comes with a link-local one (RFC 4007 11). */
static int bind_check(const struct pv_udp *u, const struct pv_endpoint *local, uint32_t *iface)
{
	struct pv_net *net = u->t->net;
	const struct pv_addr *a = &local->addr;
	bool is4 = pv_addr_is4(a);

	*iface = u->opts.bound_iface;
	if (u->family == PV_AF_INET && !is4)
		return -EAFNOSUPPORT;
	if (u->family == PV_AF_INET6 && is4 && u->opts.v6only)
		return -EINVAL;
	if (!is4 && pv_addr_is_linklocal6(a)) {
		if (local->iface)
			*iface = local->iface;
		if (!*iface)
			return -EINVAL;
		if (!pv_net_iface(net, *iface))
			return -ENODEV;
	}
	if (!pv_addr_is_any(a) && !pv_addr_is_mcast(a) && !u->opts.freebind && !pv_net_addr_owner(net, a) &&
	    !(is4 && pv_net_is_broadcast(net, a)))
		return -EADDRNOTAVAIL;
	return u->lport ? -EINVAL : 0;
}

static void forget_local(struct pv_udp *u)
{
	u->laddr = u->saddr = (struct pv_addr){ 0 };
	u->any4 = false;
	u->accept = accept_any(u);
}

static void set_local(struct pv_udp *u, const struct pv_addr *a)
{
	u->laddr = *a;
	u->accept = pv_addr_is4(a) ? PV_UDP_ACCEPT4 : PV_UDP_ACCEPT6;
	/* What is sent from a socket bound to a group or to broadcast goes out with the address of the route. */
	if (!pv_addr_is_mcast(a) && !(pv_addr_is4(a) && pv_net_is_broadcast(u->t->net, a)))
		u->saddr = *a;
}

/* `port`: one is taken, too. */
static int bind_name(struct pv_udp *u, const struct pv_endpoint *local, bool port)
{
	uint32_t iface, was = u->opts.bound_iface;
	bool was_v6only = u->opts.v6only;
	int rc = bind_check(u, local, &iface);

	if (rc)
		return rc;
	if (pv_addr_is_any(&local->addr)) {
		u->laddr = u->saddr = (struct pv_addr){ 0 };
		u->any4 = u->family == PV_AF_INET6 && pv_addr_is4(&local->addr);
		u->accept = accept_any(u);
	} else {
		set_local(u, &local->addr);
		/* From here on it is (inet6_bind): IPv4 is out of reach of an IPv6 address. */
		if (u->family == PV_AF_INET6 && !pv_addr_is4(&local->addr))
			u->opts.v6only = true;
	}
	u->opts.bound_iface = u->bound_iface = iface;
	rc = port ? pv_udp_port_get(u, local->port) : 0;
	if (rc) {
		u->opts.v6only = was_v6only;
		forget_local(u);
		u->opts.bound_iface = u->bound_iface = was;
		return rc;
	}
	u->addr_locked |= !pv_udp_is_zero(&u->laddr);
	u->port_locked = local->port != 0;
	u->conn.path.gen = u->to.path.gen = 0;
	pv_udp_steer(u);
	return 0;
}

int pv_udp_bind(struct pv_udp *u, const struct pv_endpoint *local)
{
	return bind_name(u, local, true);
}

int pv_udp_bind_address(struct pv_udp *u, const struct pv_endpoint *local)
{
	return bind_name(u, local, false);
}

void pv_udp_name_chosen(struct pv_udp *u, bool addr, bool port)
{
	u->addr_locked &= !addr;
	u->port_locked &= !port;
}

/* ---- connect ----------------------------------------------------------------------------------------------------------- */

/* What connect gave goes; what bind gave stays, but for a port that was chosen for the socket: that goes too, connected or not. */
static void disconnect(struct pv_udp *u)
{
	if (!u->lport)
		return;
	pv_udp_hash_del(u);
	u->connected = false;
	u->raddr = (struct pv_addr){ 0 };
	u->rport = 0;
	u->path_iface = 0;
	u->opts.bound_iface = u->bound_iface = 0;
	u->conn.path.gen = u->to.path.gen = 0;
	if (!u->addr_locked) {
		u->laddr = u->saddr = (struct pv_addr){ 0 };
		u->accept = accept_any(u);
	}
	if (u->port_locked)
		pv_udp_hash_add(u);
	else
		pv_udp_port_put(u);
	pv_udp_steer(u);
}

int pv_udp_connect(struct pv_udp *u, const struct pv_endpoint *remote, int64_t now_ns)
{
	static const struct pv_udp_send none = { .ttl = -1, .tos = -1 };
	uint32_t was = u->opts.bound_iface;
	struct pv_udp_dst d;
	int rc;

	if (!remote) {
		disconnect(u);
		return 0;
	}
	rc = pv_udp_autobind(u);
	if (rc)
		return rc;
	/* Connecting to a link-local address ties the socket to its interface. */
	if (!pv_addr_is4(&remote->addr) && pv_addr_is_linklocal6(&remote->addr) && u->family == PV_AF_INET6) {
		if (remote->iface && was && remote->iface != was)
			return -EINVAL;
		if (remote->iface)
			u->opts.bound_iface = remote->iface;
		else if (!was && pv_addr_is_mcast(&remote->addr))
			u->opts.bound_iface = u->opts.mcast_iface6;
		if (!u->opts.bound_iface)
			return -EINVAL;
	}
	rc = pv_udp_dst_make(u, &none, remote, now_ns, &d);
	if (rc) {
		u->opts.bound_iface = was;
		return rc;
	}
	pv_udp_hash_del(u);
	u->conn = d;
	u->to.path.gen = 0;
	u->bound_iface = u->opts.bound_iface;
	if (pv_udp_is_zero(&u->laddr)) {
		u->laddr = d.path.src;
		if (pv_addr_is4(&d.path.src))
			u->accept = PV_UDP_ACCEPT4;
	}
	if (pv_udp_is_zero(&u->saddr))
		u->saddr = d.path.src;
	u->conn.src = u->saddr;
	/* Without a port every send looks at what that means. */
	if (!remote->port)
		u->conn.path.gen = 0;
	u->raddr = d.path.dst;
	u->rport = remote->port;
	u->connected = true;
	u->path_iface = d.path.iface;
	pv_udp_hash_add(u);
	pv_udp_steer(u);
	pv_udp_traced(u, pv_net_trace(u->t->net), PV_TRACE_socket, PV_TRACE_CONNECTED, 0);
	return 0;
}

void pv_udp_local(const struct pv_udp *u, struct pv_endpoint *out)
{
	*out = (struct pv_endpoint){ .addr = u->laddr, .port = u->lport };
	if (pv_udp_is_zero(&u->laddr) && (u->family == PV_AF_INET || u->any4))
		out->addr.w[2] = PV_ADDR_MAPPED_W2;
	else if (!pv_addr_is4(&u->laddr) && pv_addr_is_linklocal6(&u->laddr))
		out->iface = u->bound_iface;
}

bool pv_udp_remote(const struct pv_udp *u, struct pv_endpoint *out)
{
	/* getpeername knows no peer without a port. */
	if (!u->connected || !u->rport)
		return false;
	*out = (struct pv_endpoint){ .addr = u->raddr, .port = u->rport };
	if (!pv_addr_is4(&u->raddr) && pv_addr_is_linklocal6(&u->raddr))
		out->iface = u->bound_iface;
	return true;
}

/* ---- options and readiness --------------------------------------------------------------------------------------------- */

int pv_udp_rx_queue(const struct pv_udp *u)
{
	return (int)u->rx_queue - 1;
}

struct pv_udp_opts *pv_udp_options(struct pv_udp *u)
{
	return &u->opts;
}

void pv_udp_options_changed(struct pv_udp *u)
{
	if ((u->opts.recverr4 || u->opts.recverr6) && !u->errq)
		u->errq = pv_udp_alloc(u->t, sizeof(*u->errq));
	u->bound_iface = u->opts.bound_iface;
	u->rx_limit = u->opts.rcvbuf;
	pv_udp_demux_changed(u->t);
	if (pv_udp_is_zero(&u->laddr) && !u->lport)
		u->accept = accept_any(u);
	u->conn.path.gen = u->to.path.gen = 0;
	pv_udp_steer(u);
}

int pv_udp_error(struct pv_udp *u)
{
	int err = u->tell.err;

	u->tell.err = 0;
	return err;
}

bool pv_udp_readable(const struct pv_udp *u)
{
	return u->rxq.count || (u->shut & PV_UDP_SHUT_RD) || pv_udp_failed(u);
}

bool pv_udp_failed(const struct pv_udp *u)
{
	return u->tell.err || (u->errq && u->errq->count) || (u->stamps && u->stamps->count);
}

bool pv_udp_writable(const struct pv_udp *u)
{
	return !u->blocked && !pv_udp_held(u);
}

uint32_t pv_udp_ready_bits(const struct pv_udp *u)
{
	/* An error alone is no datagram. */
	uint32_t bits = u->rxq.count ? PV_EV_IN : 0;

	if (pv_unlikely(u->shut & PV_UDP_SHUT_RD))
		bits |= u->shut & PV_UDP_SHUT_WR ? PV_EV_IN | PV_EV_RDHUP | PV_EV_HUP : PV_EV_IN | PV_EV_RDHUP;
	if (pv_unlikely(pv_udp_failed(u)))
		bits |= PV_EV_ERR;
	return pv_udp_writable(u) ? bits | PV_EV_OUT : bits;
}

int pv_udp_shutdown(struct pv_udp *u, uint32_t how)
{
	if (!how || how > (PV_UDP_SHUT_RD | PV_UDP_SHUT_WR))
		return -EINVAL;
	u->shut |= (uint8_t)how;
	pv_udp_wake(u, PV_EV_IN | PV_EV_OUT | PV_EV_RDHUP | PV_EV_HUP);
	return u->connected ? 0 : -ENOTCONN;
}

uint32_t pv_udp_shut(const struct pv_udp *u)
{
	return u->shut;
}

uint32_t pv_udp_events(struct pv_udp_table *t, struct pv_event *out, uint32_t n)
{
	return pv_teller_take_some(&t->head.ready, out, n);
}

/* The ring may have room, and the queue that the socket sends by none. */
static bool still_full(const struct pv_udp *u)
{
	struct pv_iface *ifp = u->full_txq ? pv_net_iface(u->t->net, u->full_iface) : NULL;

	return ifp && pv_ring_txq_pending(pv_iface_ring(ifp), u->full_txq) >= u->full_frames;
}

uint32_t pv_udp_room(struct pv_udp_table *t)
{
	uint32_t n = 0;

	pv_list_for_each_safe(it, next, &t->room) {
		struct pv_udp *u = pv_list_entry(it, struct pv_udp, room);

		if (pv_unlikely(u->full_txq) && still_full(u))
			continue;
		pv_list_del(&u->room);
		u->blocked = false;
		t->head.waiting--;
		pv_udp_wake(u, PV_EV_OUT);
		n++;
	}
	return n;
}

static bool depends_on(const struct pv_udp *u, uint32_t iface)
{
	if (u->bound_iface)
		return u->bound_iface == iface;
	if (u->connected && u->path_iface == iface)
		return true;
	return !pv_udp_is_zero(&u->laddr) && pv_net_addr_owner(u->t->net, &u->laddr) == iface;
}

void pv_udp_iface_failed(struct pv_udp_table *t, uint32_t iface)
{
	pv_list_for_each(it, &t->all) {
		struct pv_udp *u = pv_list_entry(it, struct pv_udp, all);

		u->full_txq = 0;
		if (!depends_on(u, iface))
			continue;
		u->tell.err = ENETDOWN;
		pv_udp_traced(u, pv_net_trace(t->net), PV_TRACE_error, ENETDOWN, 0);
		pv_udp_wake(u, PV_EV_IN | PV_EV_ERR);
	}
	/* Who waits for room in its ring waits in vain. */
	(void)pv_udp_room(t);
}

/* Its number will be another interface's. */
static void forget_iface(struct pv_udp *u, uint32_t iface)
{
	struct pv_udp_opts *o = &u->opts;

	if (o->bound_iface == iface)
		o->bound_iface = u->bound_iface = PV_UDP_IFACE_GONE;
	if (u->conn.scope == iface)
		u->conn.scope = PV_UDP_IFACE_GONE;
	o->mcast_iface4 = o->mcast_iface4 == iface ? PV_UDP_IFACE_GONE : o->mcast_iface4;
	o->mcast_iface6 = o->mcast_iface6 == iface ? PV_UDP_IFACE_GONE : o->mcast_iface6;
	for (struct pv_pkt *p = u->rxq.head; p; p = p->next)
		p->iface = p->iface == iface ? 0 : p->iface;
}

void pv_udp_iface_gone(struct pv_udp_table *t, uint32_t iface)
{
	pv_udp_steer_gone(t, iface);
	pv_list_for_each(it, &t->all) {
		struct pv_udp *u = pv_list_entry(it, struct pv_udp, all);

		pv_udp_leave_all(u, iface, t->head.now_ns);
		if (u->pace)
			pv_udp_pace_gone(u, iface, t->head.now_ns);
		forget_iface(u, iface);
	}
	pv_udp_demux_changed(t);
	t->going = 0;
}

void pv_udp_pool_purge(struct pv_udp_table *t, const struct pv_pool *pool)
{
	pv_list_for_each(it, &t->all) {
		struct pv_udp *u = pv_list_entry(it, struct pv_udp, all);
		struct pv_pktq keep;
		struct pv_pkt *p;

		pv_pktq_init(&keep);
		while ((p = pv_pktq_pop(&u->rxq))) {
			if (!pv_pool_owns(pool, p)) {
				pv_pktq_push(&keep, p);
				continue;
			}
			u->rx_bytes -= p->total + PV_UDP_OVERHEAD;
			pv_pkt_put(p);
		}
		u->rxq = keep;
		if (!keep.head)
			u->rxq.tail = &u->rxq.head;
	}
}
