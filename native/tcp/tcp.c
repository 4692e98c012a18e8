/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Life of the table and of a socket: open, bind, close, shutdown, names, options, readiness. Behaviour and order of the checks are
 * Linux's (inet_bind, inet_shutdown, tcp_close, tcp_disconnect, tcp_poll).
 */
#include "tcp/conn.h"

#define CONN_CACHE 64u /* closed connections kept for the next ones */

/* ---- table ------------------------------------------------------------------------------------------------------------------ */

static int fill_cfg(struct pv_tcp_cfg *c)
{
#define PV_TCP_DEFAULT(field, value) c->field = c->field ? c->field : (value)
	if (c->port_lo > c->port_hi || (c->port_hi && !c->port_lo))
		return -EINVAL;
	PV_TCP_DEFAULT(sockets_hint, 1024);
	PV_TCP_DEFAULT(port_lo, 32768);
	PV_TCP_DEFAULT(port_hi, 60999);
	PV_TCP_DEFAULT(rto_min_ns, 200 * PV_NS_PER_MS);
	PV_TCP_DEFAULT(rto_max_ns, 120 * PV_NS_PER_S);
	PV_TCP_DEFAULT(delack_max_ns, 40 * PV_NS_PER_MS);
	PV_TCP_DEFAULT(time_wait_ns, 60 * PV_NS_PER_S);
	PV_TCP_DEFAULT(fin_timeout_ns, 60 * PV_NS_PER_S);
	PV_TCP_DEFAULT(rcvbuf, 131072);
	PV_TCP_DEFAULT(rcvbuf_max, 6291456);
	PV_TCP_DEFAULT(sndbuf, 16384);
	PV_TCP_DEFAULT(sndbuf_max, 4194304);
	PV_TCP_DEFAULT(syn_retries, 6);
	PV_TCP_DEFAULT(synack_retries, 5);
	PV_TCP_DEFAULT(retries2, 15);
	PV_TCP_DEFAULT(orphan_retries, 8);
	PV_TCP_DEFAULT(somaxconn, 4096);
	PV_TCP_DEFAULT(quickack_segs, 16);
#undef PV_TCP_DEFAULT
	c->ecn = c->ecn == 0 ? 2 : c->ecn == 3 ? 0 : c->ecn;
	if (!c->congestion[0])
		memcpy(c->congestion, "cubic", sizeof("cubic"));
	c->congestion[sizeof(c->congestion) - 1] = 0;
	return pv_cc_find(c->congestion) ? 0 : -ENOENT;
}

static void seed_keys(struct pv_tcp_table *t)
{
	uint64_t s = t->cfg.seed ^ UINT64_C(0x7463702d6b657973);

	pv_rng_seed(&t->rng, pv_splitmix64(&s));
	t->hash = pv_hash_key(pv_splitmix64(&s));
	t->isn_key = pv_siphash_key(pv_splitmix64(&s));
	t->ts_key = pv_siphash_key(pv_splitmix64(&s));
	t->port_key = pv_siphash_key(pv_splitmix64(&s));
	t->cookie_key[0] = pv_siphash_key(pv_splitmix64(&s));
	t->cookie_key[1] = pv_siphash_key(pv_splitmix64(&s));
	t->next_port = pv_rng_u32(&t->rng);
}

int pv_tcp_table_open(struct pv_tcp_table **out, struct pv_net *net, const struct pv_mem *mem, const struct pv_tcp_cfg *cfg)
{
	struct pv_tcp_cfg full = *cfg;
	struct pv_tcp_table *t;
	int rc = fill_cfg(&full);

	if (rc)
		return rc;
	t = mem->alloc(mem->ctx, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->net = net;
	t->mem = mem;
	t->cfg = full;
	seed_keys(t);
	pv_list_init(&t->head.ready);
	pv_list_init(&t->head.blocked);
	pv_list_init(&t->head.due);
	pv_list_init(&t->all);
	pv_list_init(&t->time_waits_age);
	t->head.deadline_ns = PV_NEVER;
	pv_wheel_init(&t->wheel, 0);
	pv_wheel_init(&t->syn_wheel, 0);
	if (pv_htab_init(&t->conns, mem, full.sockets_hint) || pv_htab_init(&t->listeners, mem, 64) ||
	    pv_htab_init(&t->ports, mem, 256) || pv_htab_init(&t->time_waits, mem, 256) || pv_htab_init(&t->embryos, mem, 256)) {
		pv_tcp_table_close(t);
		return -ENOMEM;
	}
	*out = t;
	return 0;
}

void pv_tcp_table_close(struct pv_tcp_table *t)
{
	if (!t)
		return;
	while (!pv_list_empty(&t->all))
		pv_tcp_free(pv_list_entry(t->all.next, struct pv_tcp, all));
	while (!pv_list_empty(&t->time_waits_age))
		pv_tcp_tw_drop(t, pv_list_entry(t->time_waits_age.next, struct pv_tcp_tw, age));
	while (t->free_conn) {
		struct pv_tcp *c = t->free_conn;

		t->free_conn = (struct pv_tcp *)(void *)c->flow.next;
		pv_tcp_dealloc(t, c, sizeof(*c));
	}
	while (t->chunks) {
		struct pv_tcp_chunk *k = t->chunks;

		t->chunks = k->next;
		pv_tcp_dealloc(t, k, k->size);
	}
	pv_htab_fini(&t->conns);
	pv_htab_fini(&t->listeners);
	pv_htab_fini(&t->ports);
	pv_htab_fini(&t->time_waits);
	pv_htab_fini(&t->embryos);
	pv_tcp_dealloc(t, t, sizeof(*t));
}

const struct pv_tcp_counters *pv_tcp_table_counters(const struct pv_tcp_table *t)
{
	return &t->c;
}

uint32_t pv_tcp_count(const struct pv_tcp_table *t, enum pv_tcp_state state)
{
	if (state == PV_TCP_TIME_WAIT)
		return t->time_waits.count;
	return t->by_state[state] + (state == PV_TCP_SYN_RCVD ? t->embryos.count : 0);
}

/* ---- a socket's memory -------------------------------------------------------------------------------------------------------- */

static void init_conn(struct pv_tcp *c)
{
	pv_list_init(&c->ready);
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
	c->pacing_rate = UINT64_MAX;
}

struct pv_tcp *pv_tcp_new(struct pv_tcp_table *t, enum pv_family family)
{
	struct pv_tcp *c = t->free_conn;

	if (c) {
		t->free_conn = (struct pv_tcp *)(void *)c->flow.next;
		t->nfree_conn--;
		memset(c, 0, sizeof(*c));
	} else {
		c = pv_tcp_alloc(t, sizeof(*c));
		if (!c)
			return NULL;
	}
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
	c->cc = pv_cc_find(t->cfg.congestion);
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
	pv_list_del(&c->ready);
	pv_list_del(&c->blocked);
	pv_list_del(&c->due);
	c->flags &= ~PV_TF_BLOCKED;
	c->ready_bits = 0;
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

/* Debug builds keep none, so that the sanitizers see who uses one that is gone. */
void pv_tcp_free(struct pv_tcp *c)
{
	struct pv_tcp_table *t = c->t;

	if (c->listen)
		pv_tcp_listen_stop(c, t->head.now_ns);
	leave_parent(c);
	timers_off(c);
	unlink_conn(c);
	pv_tcp_unhash(c);
	pv_tcp_port_put(c);
	drop_queues(c);
	pv_list_del(&c->all);
	t->nconns--;
	t->by_state[c->state]--;
	t->orphans -= (c->flags & PV_TF_ORPHAN) != 0;
#ifndef PV_DEBUG
	if (t->nfree_conn < CONN_CACHE) {
		c->flow.next = (struct pv_hnode *)(void *)t->free_conn;
		t->free_conn = c;
		t->nfree_conn++;
		return;
	}
#endif
	pv_tcp_dealloc(t, c, sizeof(*c));
}

void pv_tcp_wipe(struct pv_tcp *c)
{
	struct pv_tcp was;

	timers_off(c);
	drop_queues(c);
	pv_list_del(&c->blocked);
	pv_list_del(&c->due);
	was = *c;
	memset(c, 0, sizeof(*c));
	init_conn(c);
	c->t = was.t;
	c->user = was.user;
	c->family = was.family;
	c->accept = was.accept;
	c->sock = was.sock & (PV_SK_BIND_ADDR | PV_SK_BIND_PORT | PV_SK_ANY4);
	c->opts = was.opts;
	c->err = was.err;
	c->laddr = was.laddr;
	c->lport = was.lport;
	c->port = was.port;
	c->cc = was.cc;
	c->all = was.all;
	c->on_port = was.on_port;
	c->ready = was.ready;
	c->ready_bits = was.ready_bits;
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
	c->user = user;
	*out = c;
	return 0;
}

/* What happened to it while nobody could be told. */
void pv_tcp_set_user(struct pv_tcp *c, void *user)
{
	c->user = user;
	if (user && (c->sock & PV_SK_CONNECTED))
		pv_tcp_tell(c, pv_tcp_ready_bits(c));
}

/* ---- states and events -------------------------------------------------------------------------------------------------------- */

void pv_tcp_set_state(struct pv_tcp *c, enum pv_tcp_state state)
{
	c->t->by_state[c->state]--;
	c->t->by_state[state]++;
	c->state = (uint8_t)state;
}

void pv_tcp_tell(struct pv_tcp *c, uint32_t bits)
{
	if (!c->user)
		return;
	if (!c->ready_bits)
		pv_list_add(&c->t->head.ready, &c->ready);
	c->ready_bits |= bits;
}

uint32_t pv_tcp_events(struct pv_tcp_table *t, struct pv_event *out, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && !pv_list_empty(&t->head.ready); i++) {
		struct pv_tcp *c = pv_list_entry(t->head.ready.next, struct pv_tcp, ready);

		out[i].user = c->user;
		out[i].bits = c->ready_bits;
		c->ready_bits = 0;
		pv_list_del(&c->ready);
	}
	return i;
}

void pv_tcp_owe(struct pv_tcp *c)
{
	if (pv_list_empty(&c->due))
		pv_list_add(&c->t->head.due, &c->due);
}

/* An embryo that has reached the accept queue stays there: Linux's accept gives out connections that are over, too. */
void pv_tcp_end(struct pv_tcp *c, uint32_t events)
{
	struct pv_tcp_table *t = c->t;

	pv_tcp_set_state(c, PV_TCP_CLOSED);
	timers_off(c);
	pv_list_del(&c->due);
	pv_list_del(&c->blocked);
	c->flags &= ~PV_TF_BLOCKED;
	pv_tcp_unhash(c);
	if (!(c->sock & PV_SK_BIND_PORT))
		pv_tcp_port_put(c);
	c->sock |= PV_SK_SHUT_WR;
	pv_tcp_tell(c, events | PV_EV_IN | PV_EV_OUT | PV_EV_HUP | PV_EV_RDHUP);
	if ((c->flags & PV_TF_ORPHAN) || ((c->flags & PV_TF_EMBRYO) && pv_list_empty(&c->acceptq)))
		pv_tcp_free(c);
	(void)t;
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
	c->err = err;
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

int pv_tcp_bind(struct pv_tcp *c, const struct pv_endpoint *local)
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
	rc = pv_tcp_port_get(c, local->port);
	if (rc) {
		c->laddr = (struct pv_addr){ 0 };
		c->sock &= (uint8_t)~PV_SK_ANY4;
		c->opts.v6only = was_v6only;
		c->opts.bound_iface = was;
		c->accept = pv_tcp_accept_any(c);
		return rc;
	}
	if (!pv_tcp_is_zero(&c->laddr))
		c->sock |= PV_SK_BIND_ADDR;
	if (local->port)
		c->sock |= PV_SK_BIND_PORT;
	return 0;
}

void pv_tcp_local(const struct pv_tcp *c, struct pv_endpoint *out)
{
	*out = (struct pv_endpoint){ .addr = c->laddr, .port = c->lport };
	if (pv_tcp_is_zero(&c->laddr) && (c->family == PV_AF_INET || (c->sock & PV_SK_ANY4)))
		out->addr.w[2] = PV_ADDR_MAPPED_W2;
	else if (!pv_addr_is4(&c->laddr) && pv_addr_is_linklocal6(&c->laddr))
		out->iface = c->opts.bound_iface;
}

bool pv_tcp_remote(const struct pv_tcp *c, struct pv_endpoint *out)
{
	if (c->state == PV_TCP_CLOSED || c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_LISTEN || !c->rport)
		return false;
	*out = (struct pv_endpoint){ .addr = c->raddr, .port = c->rport };
	if (!pv_addr_is4(&c->raddr) && pv_addr_is_linklocal6(&c->raddr))
		out->iface = c->opts.bound_iface;
	return true;
}

enum pv_tcp_state pv_tcp_state(const struct pv_tcp *c)
{
	return (enum pv_tcp_state)c->state;
}

/* ---- options and readiness ----------------------------------------------------------------------------------------------------- */

struct pv_tcp_opts *pv_tcp_options(struct pv_tcp *c)
{
	return &c->opts;
}

/* States in which data may be under way. */
static bool may_send(const struct pv_tcp *c)
{
	return c->state != PV_TCP_CLOSED && c->state != PV_TCP_LISTEN && c->state != PV_TCP_SYN_SENT && c->state != PV_TCP_SYN_RCVD;
}

void pv_tcp_options_changed(struct pv_tcp *c, int64_t now_ns)
{
	if (pv_tcp_is_zero(&c->laddr) && !c->port)
		c->accept = pv_tcp_accept_any(c);
	if (c->state == PV_TCP_CLOSED)
		return;
	pv_tcp_rcv_opts_changed(c, now_ns);
	if (c->state == PV_TCP_LISTEN)
		return;
	pv_tcp_txo(c);
	if (c->path.gen)
		pv_tcp_mss_sync(c, c->path.mtu);
	if (!may_send(c))
		return;
	pv_tcp_keep_arm(c, now_ns);
	pv_tcp_pace_changed(c, now_ns);
	pv_tcp_output(c, now_ns);
	pv_tcp_kick(c->t);
}

uint32_t pv_tcp_mss(const struct pv_tcp *c)
{
	if (c->opts.maxseg && (c->state == PV_TCP_CLOSED || c->state == PV_TCP_LISTEN))
		return c->opts.maxseg;
	return c->mss ? c->mss : PV_TCP_MSS_DEFAULT;
}

int pv_tcp_error(struct pv_tcp *c)
{
	int err = c->err;

	c->err = 0;
	return err;
}

uint32_t pv_tcp_ready_bits(const struct pv_tcp *c)
{
	bool rd_over = c->flags & (PV_TF_FIN_RCVD | PV_TF_SHUT_RD | PV_TF_CLOSED_BY_ERR), wr_over = c->sock & PV_SK_SHUT_WR;
	uint32_t bits = c->err ? PV_EV_ERR : 0;

	if (c->state == PV_TCP_LISTEN)
		return bits | (c->listen->naccept ? PV_EV_IN : 0u);
	if ((rd_over && wr_over) || c->state == PV_TCP_CLOSED)
		bits |= PV_EV_HUP;
	if (rd_over || (c->state == PV_TCP_CLOSED && wr_over))
		bits |= PV_EV_IN | PV_EV_RDHUP;
	if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD)
		return bits;
	if (pv_tcp_readable(c))
		bits |= PV_EV_IN;
	if (wr_over || c->state == PV_TCP_CLOSED || pv_tcp_writable(c))
		bits |= PV_EV_OUT;
	if (c->flags & PV_TF_URG_VALID)
		bits |= PV_EV_PRI;
	return bits;
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
	if (reset || c->state == PV_TCP_SYN_SENT) {
		c->err = ECONNRESET;
		pv_tcp_tell(c, PV_EV_ERR | PV_EV_HUP | PV_EV_IN | PV_EV_OUT);
	}
	pv_tcp_unhash(c);
	if (!(c->sock & PV_SK_BIND_PORT)) {
		pv_tcp_port_put(c);
		c->lport = 0;
	}
	if (c->state != PV_TCP_CLOSED)
		pv_tcp_set_state(c, PV_TCP_CLOSED);
	pv_tcp_wipe(c);
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
	return c->state == PV_TCP_CLOSED && !(c->flags & PV_TF_FIN_RCVD) ? -ENOTCONN : 0;
}

/* What the application leaves behind: goes on by itself, within limits (tcp_close, adjudge_to_death). */
static void adopt_orphan(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;

	c->flags |= PV_TF_ORPHAN;
	t->orphans++;
	pv_tcp_timer_set(c, PV_TT_KEEP, PV_NEVER);
	if (t->orphans > PV_TCP_ORPHANS_MAX || (c->state == PV_TCP_FIN_WAIT_2 && c->opts.linger2_s < 0)) {
		pv_tcp_reset_send(c, now_ns);
		pv_tcp_abort(c, 0);
		return;
	}
	if (c->state == PV_TCP_FIN_WAIT_2)
		pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + pv_tcp_fin_timeout(c));
}

void pv_tcp_close(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;
	bool unread = pv_tcp_inq(c) != 0;

	t->head.now_ns = now_ns;
	c->user = NULL;
	pv_list_del(&c->ready);
	c->ready_bits = 0;
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

/* ---- from the stack ------------------------------------------------------------------------------------------------------------ */

/* What a connection may send or must acknowledge, it does now. */
static void pay(struct pv_tcp *c, int64_t now_ns)
{
	if (may_send(c))
		pv_tcp_output(c, now_ns);
	if (c->flags & PV_TF_ACK_NOW)
		pv_tcp_send_ack(c, now_ns);
}

void pv_tcp_rx_done(struct pv_tcp_table *t, int64_t now_ns)
{
	t->head.now_ns = now_ns;
	while (!pv_list_empty(&t->head.due)) {
		struct pv_tcp *c = pv_list_entry(t->head.due.next, struct pv_tcp, due);

		pv_list_del(&c->due);
		if (c->state != PV_TCP_CLOSED)
			pay(c, now_ns);
	}
}

/* Those that meet the end of the room again wait again, behind the others. */
uint32_t pv_tcp_room(struct pv_tcp_table *t, int64_t now_ns)
{
	struct pv_list waiting;
	uint32_t n = 0;

	t->head.now_ns = now_ns;
	pv_list_init(&waiting);
	pv_list_add(&t->head.blocked, &waiting);
	pv_list_del(&t->head.blocked);
	while (!pv_list_empty(&waiting)) {
		struct pv_tcp *c = pv_list_entry(waiting.next, struct pv_tcp, blocked);

		pv_list_del(&c->blocked);
		c->flags &= ~PV_TF_BLOCKED;
		pay(c, now_ns);
		if (!(c->flags & PV_TF_BLOCKED) && (pv_tcp_ready_bits(c) & PV_EV_OUT))
			pv_tcp_tell(c, PV_EV_OUT);
		n++;
	}
	return n;
}

static uint32_t conn_timers(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget)
{
	struct pv_wtimer *w;
	uint32_t n = 0;

	for (; n < budget && (w = pv_wheel_pop_due(&t->wheel, now_ns)); n++)
		pv_tcp_timer_fired(pv_container_of(w, struct pv_tcp, timer), now_ns);
	return n;
}

static int64_t first_deadline(const struct pv_tcp_table *t)
{
	int64_t d = PV_MIN(pv_wheel_deadline(&t->wheel), pv_wheel_deadline(&t->syn_wheel));

	if (!pv_list_empty(&t->time_waits_age))
		d = PV_MIN(d, pv_list_entry(t->time_waits_age.next, struct pv_tcp_tw, age)->deadline_ns);
	return d;
}

uint32_t pv_tcp_timers(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget)
{
	struct pv_wtimer *w;
	uint32_t n;

	t->head.now_ns = now_ns;
	n = conn_timers(t, now_ns, budget);
	for (; n < budget && (w = pv_wheel_pop_due(&t->syn_wheel, now_ns)); n++)
		pv_tcp_syn_timeout(t, w, now_ns);
	n += pv_tcp_tw_timeouts(t, now_ns, budget - n);
	if (pv_tcp_owes(t))
		pv_tcp_rx_done(t, now_ns);
	t->head.deadline_ns = first_deadline(t);
	return n;
}

/* Packets that came by it leave the queues; what was sent by it is never sent again. */
void pv_tcp_iface_gone(struct pv_tcp_table *t, uint32_t iface)
{
	pv_list_for_each_safe(it, next, &t->all) {
		struct pv_tcp *c = pv_list_entry(it, struct pv_tcp, all);

		if (c->path.gen && c->path.iface == iface) {
			pv_tcp_rcvq_drop(c);
			pv_tcp_abort(c, ENETDOWN);
		}
	}
}
