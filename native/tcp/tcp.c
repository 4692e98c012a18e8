/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Life of a socket: open, bind, close, shutdown, names, options, readiness. Behaviour and order of the checks are Linux's (inet_bind,
 * inet_shutdown, tcp_close, tcp_disconnect, tcp_poll).
 */
#include "net/txlane.h"
#include "tcp/conn.h"

/* Connections are got and put by slabs: 64 bytes each less than the allocator takes, and quicker. Debug builds have one in each and keep
 * none, so that the sanitizers see who uses one that is gone. */
#ifdef PV_DEBUG
#define SLAB_CONNS 1u
#define SPARE_SLABS 0u
#else
#define SLAB_CONNS 21u
#define SPARE_SLABS 3u
#endif

/* ---- a socket's memory -------------------------------------------------------------------------------------------------------- */

struct slab {
	struct pv_list link; /* of the table's slabs with room */
	struct pv_tcp *free; /* through flow.next; NULL: all are in use */
	uint32_t used;
	uint32_t shown[SLAB_CONNS]; /* pv_mem_show */
	struct pv_tcp conn[SLAB_CONNS]; /* aligned as all of it is */
};

static struct slab *slab_get(struct pv_tcp_table *t)
{
	struct slab *s = pv_mem_alloc_shown(t->mem, sizeof(*s));

	if (!s)
		return NULL;
	for (uint32_t i = SLAB_CONNS; i-- > 0;) {
		s->conn[i].slot = (uint8_t)i;
		s->conn[i].flow.next = (struct pv_hnode *)(void *)s->free;
		s->free = &s->conn[i];
	}
	pv_list_init(&s->link);
	pv_list_add(&t->slabs, &s->link);
	t->nempty++;
	return s;
}

static void slab_put(struct pv_tcp_table *t, struct slab *s)
{
	pv_list_del(&s->link);
	t->nempty--;
	pv_mem_free_shown(t->mem, s, sizeof(*s));
}

static struct pv_tcp *conn_get(struct pv_tcp_table *t)
{
	struct slab *s = pv_list_empty(&t->slabs) ? slab_get(t) : pv_list_entry(t->slabs.next, struct slab, link);
	struct pv_tcp *c;
	uint8_t slot;

	if (!s)
		return NULL;
	c = s->free;
	s->free = (struct pv_tcp *)(void *)c->flow.next;
	if (!s->free)
		pv_list_del(&s->link);
	t->nempty -= s->used++ == 0;
	slot = c->slot;
	memset(c, 0, sizeof(*c));
	c->slot = slot;
	s->shown[slot] = pv_mem_show(t->mem, &pv_tcp_stat_type, c);
	return c;
}

static void conn_put(struct pv_tcp_table *t, struct pv_tcp *c)
{
	struct slab *s = pv_container_of(c - c->slot, struct slab, conn);

	pv_mem_hide(t->mem, s->shown[c->slot]);
	if (!s->free)
		pv_list_add(&t->slabs, &s->link);
	c->flow.next = (struct pv_hnode *)(void *)s->free;
	s->free = c;
	if (--s->used)
		return;
	t->nempty++;
	if (t->nempty > SPARE_SLABS)
		slab_put(t, s);
}

void pv_tcp_slabs_close(struct pv_tcp_table *t)
{
	while (!pv_list_empty(&t->slabs))
		slab_put(t, pv_list_entry(t->slabs.next, struct slab, link));
}

static void init_conn(struct pv_tcp *c)
{
	pv_list_init(&c->tell.on_ready);
	pv_list_init(&c->blocked);
	pv_list_init(&c->due);
	pv_list_init(&c->acceptq);
	pv_list_init(&c->sndq);
	pv_list_init(&c->by_time);
	pv_pktq_init(&c->rcvq);
	pv_wtimer_init(&c->timer);
	for (uint32_t i = 0; i < PV_TT_COUNT; i++)
		c->deadline_ns[i] = PV_NEVER;
	c->state = PV_TCP_CLOSED;
	c->incoming_cpu = -1;
	c->pacing_rate = UINT64_MAX;
}

struct pv_tcp *pv_tcp_new(struct pv_tcp_table *t, enum pv_family family)
{
	struct pv_tcp *c = conn_get(t);

	if (!c)
		return NULL;
	init_conn(c);
	c->t = t;
	c->family = (uint8_t)family;
	c->opts = (struct pv_tcp_opts){ .rcvbuf = t->cfg.rcvbuf,
					.sndbuf = t->cfg.sndbuf,
					.rcvlowat = 1,
					.keepidle_s = 7200,
					.keepintvl_s = 75,
					.keepcnt = 9,
					.pacing_rate = UINT64_MAX,
					.ttl = -1,
					.hops = -1,
					.pmtudisc = PV_PMTU_WANT };
	c->accept = pv_tcp_accept_any(c);
	pv_tcp_set_cc(c, pv_cc_find(t->cfg.congestion)); /* fill_cfg knows it */
	pv_list_init(&c->on_port);
	pv_list_add(&t->all, &c->all);
	t->nconns++;
	t->by_state[PV_TCP_CLOSED]++;
	return c;
}

static void drop_queues(struct pv_tcp *c)
{
	pv_tcp_sndq_drop(c);
	pv_tcp_rcvq_drop(c);
}

static void unlink_conn(struct pv_tcp *c)
{
	pv_list_del(&c->tell.on_ready);
	pv_list_del(&c->blocked);
	pv_list_del(&c->due);
	c->flags &= ~PV_TF_BLOCKED;
	c->tell.bits = 0;
}

static void timers_off(struct pv_tcp *c)
{
	for (uint32_t i = 0; i < PV_TT_COUNT; i++)
		c->deadline_ns[i] = PV_NEVER;
	pv_wheel_del(&c->t->wheel, &c->timer);
}

static void leave_parent(struct pv_tcp *c)
{
	if (!pv_list_empty(&c->acceptq)) {
		pv_list_del(&c->acceptq);
		c->parent->listen->naccept--;
	}
	c->parent = NULL;
}

void pv_tcp_free(struct pv_tcp *c)
{
	struct pv_tcp_table *t = c->t;

	pv_tcp_traced(c, PV_TRACE_socket, PV_TRACE_CLOSED, 0);
	if (c->listen)
		pv_tcp_listen_stop(c, t->head.now_ns);
	leave_parent(c);
	pv_tcp_pace_end(c);
	pv_txlane_put(t->net, c->path.lane);
	timers_off(c);
	unlink_conn(c);
	pv_tcp_unhash(c);
	pv_tcp_port_put(c);
	drop_queues(c);
	pv_tcp_stamps_close(c);
	pv_list_del(&c->all);
	t->nconns--;
	t->by_state[c->state]--;
	t->orphans -= (c->flags & PV_TF_ORPHAN) != 0;
	conn_put(t, c);
}

void pv_tcp_wipe(struct pv_tcp *c)
{
	struct pv_tcp was;

	pv_tcp_pace_end(c);
	pv_txlane_put(c->t->net, c->path.lane);
	timers_off(c);
	drop_queues(c);
	pv_list_del(&c->blocked);
	pv_list_del(&c->due);
	was = *c;
	memset(c, 0, sizeof(*c));
	init_conn(c);
	c->slot = was.slot;
	c->t = was.t;
	c->family = was.family;
	c->accept = was.accept;
	c->sock = was.sock & (PV_SK_BIND_ADDR | PV_SK_BIND_PORT | PV_SK_ANY4);
	c->opts = was.opts;
	c->stamps = was.stamps;
	c->incoming_cpu = was.incoming_cpu;
	c->laddr = was.laddr;
	c->lport = was.lport;
	c->port = was.port;
	pv_tcp_set_cc(c, was.cc);
	c->mss = was.mss; /* TCP_MAXSEG goes on telling it */
	c->all = was.all;
	c->on_port = was.on_port;
	c->tell = was.tell;
	/* Lists that the socket is not in point at themselves, and so do these copies. */
}

int pv_tcp_open(struct pv_tcp_table *t, enum pv_family family, void *user, struct pv_tcp **out)
{
	struct pv_tcp *c;

	if (family != PV_AF_INET && family != PV_AF_INET6)
		return -EAFNOSUPPORT;
	c = pv_tcp_new(t, family);
	if (!c)
		return -ENOMEM;
	c->tell.user = user;
	pv_tcp_traced(c, PV_TRACE_socket, PV_TRACE_OPENED, 0);
	*out = c;
	return 0;
}

/* What happened to it while nobody could be told. */
void pv_tcp_set_user(struct pv_tcp *c, void *user)
{
	c->tell.user = user;
	if (!user) {
		pv_list_del(&c->tell.on_ready);
		c->tell.bits = 0;
	} else if (c->sock & PV_SK_CONNECTED) {
		pv_tcp_tell(c, pv_tcp_ready_bits(c));
	}
}

/* ---- states and events -------------------------------------------------------------------------------------------------------- */

void pv_tcp_set_state(struct pv_tcp *c, enum pv_tcp_state state)
{
	pv_tcp_state_traced(c, state);
	c->t->by_state[c->state]--;
	c->t->by_state[state]++;
	c->state = (uint8_t)state;
}

void pv_tcp_tell(struct pv_tcp *c, uint32_t bits)
{
	if (c->tell.user)
		pv_teller_add(&c->t->head.ready, &c->tell, bits);
}

uint32_t pv_tcp_events(struct pv_tcp_table *t, struct pv_event *out, uint32_t n)
{
	return pv_teller_take_some(&t->head.ready, out, n);
}

void pv_tcp_owe(struct pv_tcp *c)
{
	if (!pv_list_empty(&c->due))
		return;
	pv_list_add(&c->t->head.due, &c->due);
	c->t->head.wake_ns = INT64_MIN;
}

/* An embryo that has reached the accept queue stays there: Linux's accept gives out connections that are over, too. */
void pv_tcp_end(struct pv_tcp *c, uint32_t events)
{
	pv_tcp_set_state(c, PV_TCP_CLOSED);
	pv_tcp_promise_end(c);
	pv_tcp_pace_end(c);
	timers_off(c);
	pv_list_del(&c->due);
	pv_list_del(&c->blocked);
	c->flags &= ~PV_TF_BLOCKED;
	pv_tcp_unhash(c);
	if (!(c->sock & PV_SK_BIND_PORT))
		pv_tcp_port_put(c);
	c->sock |= PV_SK_SHUT_WR;
	c->flags |= PV_TF_SHUT_RD;
	pv_tcp_tell(c, events | PV_EV_IN | PV_EV_OUT | PV_EV_HUP | PV_EV_RDHUP);
	if ((c->flags & PV_TF_ORPHAN) || ((c->flags & PV_TF_EMBRYO) && pv_list_empty(&c->acceptq)))
		pv_tcp_free(c);
}

/* Data that came in order stays to be read, as with Linux. */
void pv_tcp_abort(struct pv_tcp *c, int err)
{
	struct pv_tcp_table *t = c->t;

	if (c->state == PV_TCP_CLOSED)
		return;
	if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD)
		t->c.open_failed++;
	t->c.aborted++;
	pv_tcp_traced(c, PV_TRACE_error, (uint32_t)err, 0);
	c->tell.err = err;
	c->flags |= PV_TF_CLOSED_BY_ERR;
	pv_tcp_sndq_drop(c);
	pv_tcp_end(c, err ? PV_EV_ERR : 0);
}

void pv_tcp_done(struct pv_tcp *c)
{
	pv_tcp_sndq_drop(c);
	pv_tcp_end(c, 0);
}

/* ---- bind ---------------------------------------------------------------------------------------------------------------------- */

/* Which address may be bound, and the interface that comes with a link-local one (RFC 4007 11). */
static int bind_check(const struct pv_tcp *c, const struct pv_endpoint *local, uint32_t *iface)
{
	struct pv_net *net = c->t->net;
	const struct pv_addr *a = &local->addr;
	bool is4 = pv_addr_is4(a);

	*iface = c->opts.bound_iface;
	if (c->family == PV_AF_INET && !is4)
		return -EAFNOSUPPORT;
	if (c->family == PV_AF_INET6 && is4 && c->opts.v6only)
		return -EINVAL;
	if (!is4 && pv_addr_is_mcast(a))
		return -EINVAL;
	if (!is4 && pv_addr_is_linklocal6(a)) {
		if (local->iface)
			*iface = local->iface;
		if (!*iface)
			return -EINVAL;
		if (!pv_net_iface(net, *iface))
			return -ENODEV;
	}
	if (!pv_addr_is_any(a) && !pv_addr_is_mcast(a) && !c->opts.freebind && !pv_net_addr_owner(net, a) &&
	    !(is4 && pv_net_is_broadcast(net, a)))
		return -EADDRNOTAVAIL;
	return c->state != PV_TCP_CLOSED || c->port ? -EINVAL : 0;
}

/* `port`: one is taken, too. */
static int bind_name(struct pv_tcp *c, const struct pv_endpoint *local, bool port)
{
	uint32_t iface, was = c->opts.bound_iface;
	const struct pv_addr *a = &local->addr;
	bool was_v6only = c->opts.v6only;
	int rc = bind_check(c, local, &iface);

	if (rc)
		return rc;
	c->sock &= (uint8_t) ~(PV_SK_ANY4 | PV_SK_BIND_ADDR);
	if (pv_addr_is_any(a)) {
		c->laddr = (struct pv_addr){ 0 };
		if (c->family == PV_AF_INET6 && pv_addr_is4(a))
			c->sock |= PV_SK_ANY4;
		c->accept = pv_tcp_accept_any(c);
	} else {
		c->laddr = *a;
		c->accept = pv_addr_is4(a) ? PV_ACCEPT4 : PV_ACCEPT6;
		/* From here on it is (inet6_bind): IPv4 is out of reach of an IPv6 address. */
		if (c->family == PV_AF_INET6 && !pv_addr_is4(a))
			c->opts.v6only = true;
	}
	c->opts.bound_iface = iface;
	rc = port ? pv_tcp_port_get(c, local->port) : 0;
	if (rc) {
		c->laddr = (struct pv_addr){ 0 };
		c->sock &= (uint8_t)~PV_SK_ANY4;
		c->opts.v6only = was_v6only;
		c->opts.bound_iface = was;
		c->accept = pv_tcp_accept_any(c);
		return rc;
	}
	if (!port)
		c->lport = 0; /* of a connection that is over */
	if (!pv_tcp_is_zero(&c->laddr))
		c->sock |= PV_SK_BIND_ADDR;
	if (local->port)
		c->sock |= PV_SK_BIND_PORT;
	return 0;
}

int pv_tcp_bind(struct pv_tcp *c, const struct pv_endpoint *local)
{
	return bind_name(c, local, true);
}

int pv_tcp_bind_address(struct pv_tcp *c, const struct pv_endpoint *local)
{
	return bind_name(c, local, false);
}

void pv_tcp_name_chosen(struct pv_tcp *c, bool addr, bool port)
{
	if (addr)
		c->sock &= (uint8_t)~PV_SK_BIND_ADDR;
	if (port)
		c->sock &= (uint8_t)~PV_SK_BIND_PORT;
}

void pv_tcp_local(const struct pv_tcp *c, struct pv_endpoint *out)
{
	*out = (struct pv_endpoint){ .addr = c->laddr, .port = c->lport };
	if (pv_tcp_is_zero(&c->laddr) && (c->family == PV_AF_INET || (c->sock & PV_SK_ANY4)))
		out->addr.w[2] = PV_ADDR_MAPPED_W2;
	else if (!pv_addr_is4(&c->laddr) && pv_addr_is_linklocal6(&c->laddr))
		out->iface = c->opts.bound_iface;
}

bool pv_tcp_has_port(const struct pv_tcp *c)
{
	return c->port != NULL;
}

bool pv_tcp_idle(const struct pv_tcp *c)
{
	return c->state == PV_TCP_CLOSED && !c->port && !(c->sock & (PV_SK_CONNECTING | PV_SK_CONNECTED));
}

bool pv_tcp_peer(const struct pv_tcp *c, struct pv_endpoint *out)
{
	if (!c->rport)
		return false;
	*out = (struct pv_endpoint){ .addr = c->raddr, .port = c->rport };
	if (!pv_addr_is4(&c->raddr) && pv_addr_is_linklocal6(&c->raddr))
		out->iface = c->opts.bound_iface;
	return true;
}

bool pv_tcp_remote(const struct pv_tcp *c, struct pv_endpoint *out)
{
	return c->state != PV_TCP_CLOSED && c->state != PV_TCP_SYN_SENT && c->state != PV_TCP_LISTEN && pv_tcp_peer(c, out);
}

enum pv_tcp_state pv_tcp_state(const struct pv_tcp *c)
{
	return (enum pv_tcp_state)c->state;
}

/* ---- options and readiness ----------------------------------------------------------------------------------------------------- */

int pv_tcp_incoming_cpu(const struct pv_tcp *c)
{
	return c->rx_queue ? c->rx_queue - 1 : c->incoming_cpu;
}

/* What does not fit is no queue of a ring. */
void pv_tcp_set_incoming_cpu(struct pv_tcp *c, int cpu)
{
	c->incoming_cpu = (int8_t)PV_MAX(-1, PV_MIN(cpu, INT8_MAX));
	c->rx_queue = 0;
}

struct pv_tcp_opts *pv_tcp_options(struct pv_tcp *c)
{
	return &c->opts;
}

void pv_tcp_options_changed(struct pv_tcp *c, int64_t now_ns)
{
	if (pv_tcp_is_zero(&c->laddr) && !c->port)
		c->accept = pv_tcp_accept_any(c);
	c->t->any_near |= c->opts.min_ttl || c->opts.min_hops;
	pv_tcp_forget_last(c->t); /* it may be bound to an interface now */
	if (c->state == PV_TCP_CLOSED) {
		c->window_clamp = c->opts.window_clamp;
		return;
	}
	pv_tcp_rcv_opts_changed(c, now_ns);
	if (c->state == PV_TCP_LISTEN)
		return;
	pv_tcp_txo(c);
	/* Both may be in the tag of its frames. */
	if (c->path.gen && (c->path.tos != c->txo.tos || c->path.prio != c->opts.priority)) {
		uint32_t gen = c->path.gen;

		c->path.gen = 0;
		/* While there is no other one this is the path: an interface that goes asks for it. */
		if (pv_tcp_path_check(c, now_ns))
			c->path.gen = gen;
	}
	if (!pv_tcp_may_send(c))
		return;
	if (c->path.gen)
		pv_tcp_mss_sync(c, c->path.mtu);
	pv_tcp_keep_arm(c, now_ns);
	pv_tcp_pace_changed(c, now_ns);
	/* What MSG_MORE, TCP_CORK or Nagle hold is no other option's. */
	pv_tcp_push(c, pv_tcp_nagle(c) | PV_NAGLE_CORK, now_ns);
	pv_tcp_space(c);
	pv_tcp_kick(c->t);
}

void pv_tcp_nodelay_set(struct pv_tcp *c, int64_t now_ns)
{
	if (c->opts.nodelay && pv_tcp_may_send(c))
		pv_tcp_push(c, PV_NAGLE_PUSH, now_ns);
}

void pv_tcp_cork_set(struct pv_tcp *c, int64_t now_ns)
{
	if (!c->opts.cork && pv_tcp_may_send(c))
		pv_tcp_push(c, c->opts.nodelay ? PV_NAGLE_PUSH : pv_tcp_nagle(c), now_ns);
}

uint32_t pv_tcp_mss(const struct pv_tcp *c)
{
	if (c->opts.maxseg && (c->state == PV_TCP_CLOSED || c->state == PV_TCP_LISTEN))
		return c->opts.maxseg;
	return c->mss ? c->mss : PV_TCP_MSS_DEFAULT;
}

uint32_t pv_tcp_window_clamp(const struct pv_tcp *c)
{
	return c->opts.window_clamp ? c->opts.window_clamp : c->window_clamp;
}

int pv_tcp_error(struct pv_tcp *c)
{
	int err = c->tell.err;

	c->tell.err = 0;
	return err;
}

#define RD_OVER (PV_TF_FIN_RCVD | PV_TF_SHUT_RD | PV_TF_CLOSED_BY_ERR)

static pv_noinline uint32_t ready_any(const struct pv_tcp *c, uint32_t asked)
{
	bool rd_over = c->flags & RD_OVER, wr_over = c->sock & PV_SK_SHUT_WR;
	uint32_t bits = c->tell.err || (asked & PV_EV_ERR && c->stamps && c->stamps->q.count) ? PV_EV_ERR : 0;

	/* An error of a connection before is not shown (inet_csk_listen_poll). */
	if (c->state == PV_TCP_LISTEN)
		return c->listen->naccept ? PV_EV_IN : 0u;
	if ((rd_over && wr_over) || c->state == PV_TCP_CLOSED)
		bits |= PV_EV_HUP;
	if (rd_over)
		bits |= PV_EV_IN | PV_EV_RDHUP;
	if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD)
		return bits;
	if (pv_tcp_readable(c))
		bits |= PV_EV_IN;
	if (asked & PV_EV_OUT && (wr_over || c->state == PV_TCP_CLOSED || pv_tcp_writable(c)))
		bits |= PV_EV_OUT;
	if ((c->flags & (PV_TF_URG_VALID | PV_TF_URG_READ)) == PV_TF_URG_VALID)
		bits |= PV_EV_PRI;
	return bits;
}

uint32_t pv_tcp_ready_of(const struct pv_tcp *c, uint32_t asked)
{
	uint32_t bits;

	/* A connection that goes on, with nothing beside its bytes to tell. */
	if (pv_unlikely(c->state != PV_TCP_ESTABLISHED || c->flags & (RD_OVER | PV_TF_URG_VALID) || c->sock & PV_SK_SHUT_WR ||
			c->tell.err || c->stamps))
		return ready_any(c, asked);
	bits = pv_tcp_readable(c) ? PV_EV_IN : 0;
	return asked & PV_EV_OUT && pv_tcp_writable(c) ? bits | PV_EV_OUT : bits;
}

/* ---- the end ------------------------------------------------------------------------------------------------------------------- */

static bool needs_reset(const struct pv_tcp *c)
{
	switch (c->state) {
	case PV_TCP_ESTABLISHED:
	case PV_TCP_CLOSE_WAIT:
	case PV_TCP_FIN_WAIT_1:
	case PV_TCP_FIN_WAIT_2:
	case PV_TCP_SYN_RCVD:
		return true;
	case PV_TCP_CLOSING:
	case PV_TCP_LAST_ACK:
		return c->unsent != NULL;
	default:
		return false;
	}
}

int pv_tcp_disconnect(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;
	bool reset = needs_reset(c);

	t->head.now_ns = now_ns;
	if (c->state == PV_TCP_LISTEN)
		pv_tcp_listen_stop(c, now_ns);
	if (reset)
		pv_tcp_reset_send(c, now_ns);
	if (reset || c->state == PV_TCP_SYN_SENT)
		c->tell.err = ECONNRESET;
	pv_tcp_tell(c, PV_EV_ERR | PV_EV_HUP | PV_EV_IN | PV_EV_OUT); /* a listener's end, too, wakes who waits for it */
	pv_tcp_unhash(c);
	/* It is the change to CLOSED that gives back a port which bind(2) did not name. */
	if (c->state != PV_TCP_CLOSED) {
		if (!(c->sock & PV_SK_BIND_PORT))
			pv_tcp_port_put(c);
		pv_tcp_set_state(c, PV_TCP_CLOSED);
	}
	pv_tcp_wipe(c);
	c->opts.maxseg = 0; /* tcp_disconnect forgets what was negotiated, and that with it */
	if (!(c->sock & PV_SK_BIND_ADDR)) {
		c->laddr = (struct pv_addr){ 0 };
		c->accept = pv_tcp_accept_any(c);
	}
	pv_tcp_kick(t);
	return 0;
}

/* tcp_close_state: true when a FIN is to follow what is queued. */
static bool close_state(struct pv_tcp *c)
{
	switch (c->state) {
	case PV_TCP_SYN_RCVD:
		return true; /* it waits until there is a connection */
	case PV_TCP_ESTABLISHED:
		pv_tcp_set_state(c, PV_TCP_FIN_WAIT_1);
		return true;
	case PV_TCP_CLOSE_WAIT:
		pv_tcp_set_state(c, PV_TCP_LAST_ACK);
		return true;
	default:
		return false;
	}
}

/* Without memory for the FIN the connection ends the hard way. False: `c` is over, and gone if nobody has it. */
static bool send_fin(struct pv_tcp *c, int64_t now_ns)
{
	if (pv_tcp_queue_fin(c)) {
		pv_tcp_reset_send(c, now_ns);
		pv_tcp_abort(c, ENOMEM);
		return false;
	}
	pv_tcp_output(c, now_ns);
	return true;
}

int pv_tcp_shutdown(struct pv_tcp *c, uint32_t how, int64_t now_ns)
{
	bool over = c->state == PV_TCP_CLOSED;
	uint32_t bits = 0;

	if (!how || how > 3)
		return -EINVAL;
	c->t->head.now_ns = now_ns;
	switch (c->state) {
	case PV_TCP_LISTEN:
		if (!(how & 1))
			return 0;
		/* fall through */
	case PV_TCP_SYN_SENT:
		return pv_tcp_disconnect(c, now_ns);
	default:
		break;
	}
	if (how & 1) {
		c->flags |= PV_TF_SHUT_RD;
		bits |= PV_EV_IN | PV_EV_RDHUP;
	}
	if (how & 2) {
		c->sock |= PV_SK_SHUT_WR;
		bits |= PV_EV_OUT;
		if (close_state(c))
			(void)send_fin(c, now_ns);
		pv_tcp_kick(c->t);
	}
	if ((c->flags & (PV_TF_SHUT_RD | PV_TF_FIN_RCVD)) && (c->sock & PV_SK_SHUT_WR))
		bits |= PV_EV_HUP;
	pv_tcp_tell(c, bits);
	/* Also when it ended in good order, as Linux. */
	return over ? -ENOTCONN : 0;
}

/* What the application leaves behind: goes on by itself, within limits (tcp_close, adjudge_to_death). */
static void adopt_orphan(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;

	c->flags |= PV_TF_ORPHAN;
	t->orphans++;
	pv_tcp_promise_end(c); /* the FIN went with a window */
	pv_tcp_timer_set(c, PV_TT_KEEP, PV_NEVER);
	if (t->orphans > PV_TCP_ORPHANS_MAX || (c->state == PV_TCP_FIN_WAIT_2 && c->opts.linger2_s < 0)) {
		pv_tcp_reset_send(c, now_ns);
		pv_tcp_abort(c, 0);
		return;
	}
	if (c->state == PV_TCP_FIN_WAIT_2 && !pv_tcp_fin_wait(c))
		pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + pv_tcp_fin_timeout(c));
}

void pv_tcp_close(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;
	bool unread = c->rcvq_bytes != 0; /* also behind an urgent mark */

	t->head.now_ns = now_ns;
	c->tell.user = NULL;
	pv_tcp_stamps_close(c);
	pv_list_del(&c->tell.on_ready);
	c->tell.bits = 0;
	c->sock |= PV_SK_SHUT_WR;
	c->flags |= PV_TF_SHUT_RD;
	pv_tcp_rcvq_drop(c);
	if (c->state == PV_TCP_CLOSED || c->state == PV_TCP_LISTEN || c->state == PV_TCP_SYN_SENT) {
		pv_tcp_free(c);
	} else if (unread || (c->opts.linger && !c->opts.linger_s)) {
		/* RFC 2525 2.17: the peer is to know that its data is lost. */
		if (unread || needs_reset(c))
			pv_tcp_reset_send(c, now_ns);
		pv_tcp_free(c);
	} else if (!close_state(c) || send_fin(c, now_ns)) {
		adopt_orphan(c, now_ns);
	} else {
		pv_tcp_free(c);
	}
	pv_tcp_kick(t);
}
