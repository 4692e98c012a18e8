/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules, on interfaces that the kernel owns: what a rule names comes to us, everything else stays with the kernel.
 *
 * A listener has a rule for each of our addresses that it listens at, shared by all listeners of its port; they bring the connections that
 * it makes, too. A connection that no listener's rule brings has a rule of its own, for its flow alone: one that we asked for, one whose
 * listener is gone, one of an address that is no more; and one that is found to be busy, since who takes a listener's segments must ask for
 * each whether the kernel has a connection that it belongs to. It stays while anybody in the stack knows the flow, in TIME_WAIT the record does.
 *
 * A connection without a rule would be reset by the kernel, which does not know it: that is an error. A listener's address without one is
 * not: the kernel's listener has it.
 */
#include "tcp/conn.h"

struct pv_tcp_rule {
	struct pv_list link; /* a listener's: of the port */
	struct pv_tcp_rule *next; /* a flow's */
	struct pv_addr dst;
	uint64_t handle;
	uint32_t iface;
	bool wanted;
	bool kept; /* a reserved port's: it goes with the port */
};

static const struct pv_iface_cfg *hosted(const struct pv_tcp_table *t, uint32_t iface)
{
	const struct pv_iface *ifp = pv_net_iface(t->net, iface);
	const struct pv_iface_cfg *cfg = ifp ? pv_iface_config(ifp) : NULL;

	return cfg && cfg->steer == PV_STEER_SOCKET && iface != t->going ? cfg : NULL;
}

static bool has(const struct pv_iface_cfg *cfg, const struct pv_addr *addr)
{
	for (uint32_t k = 0; k < cfg->naddr; k++)
		if (pv_addr_eq(&cfg->addr[k].addr, addr))
			return true;
	return false;
}

static int rule_new(struct pv_tcp_table *t, uint32_t iface, struct pv_flow *f, struct pv_tcp_rule **out)
{
	struct pv_ring *ring = pv_iface_ring(pv_net_iface(t->net, iface));
	struct pv_tcp_rule *r = pv_tcp_alloc(t, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	f->l4_proto = PV_PROTO_TCP;
	memcpy(f->dst_mac, ring->caps.mac, sizeof(f->dst_mac));
	rc = pv_ring_flow_add(ring, f, &r->handle);
	if (rc) {
		pv_tcp_dealloc(t, r, sizeof(*r));
		return rc;
	}
	r->dst = f->dst;
	r->iface = iface;
	r->wanted = true;
	r->kept = false;
	r->next = NULL;
	pv_list_init(&r->link);
	*out = r;
	return 0;
}

/* A ring whose device is gone has forgotten it already. */
static void drop(struct pv_tcp_table *t, struct pv_tcp_rule *r)
{
	(void)pv_ring_flow_del(pv_iface_ring(pv_net_iface(t->net, r->iface)), r->handle);
	pv_list_del(&r->link);
	pv_tcp_dealloc(t, r, sizeof(*r));
}

/* ---- listeners --------------------------------------------------------------------------------------------------------- */

static struct pv_tcp_rule *of_port(const struct pv_tcp_port *p, uint32_t iface, const struct pv_addr *dst)
{
	pv_list_for_each(it, &p->rules) {
		struct pv_tcp_rule *r = pv_list_entry(it, struct pv_tcp_rule, link);

		if (r->iface == iface && pv_addr_eq(&r->dst, dst))
			return r;
	}
	return NULL;
}

static int gate_rule(struct pv_tcp_table *t, const struct pv_tcp_rule *r, bool gated)
{
	return pv_ring_flow_gate(pv_iface_ring(pv_net_iface(t->net, r->iface)), r->handle, gated);
}

/* What comes by an interface of our own comes without a rule. */
static bool any_own(const struct pv_tcp_table *t)
{
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++)
		if (pv_net_iface(t->net, i) && i != t->going && !hosted(t, i))
			return true;
	return false;
}

int pv_tcp_gate(struct pv_tcp *l, bool gated)
{
	struct pv_tcp_port *p = l->port;
	int rc;

	if (p->gated == gated)
		return 0;
	rc = pv_list_empty(&p->rules) || (gated && any_own(l->t)) ? -EOPNOTSUPP : 0;
	p->gated = gated && !rc;
	if (rc && gated)
		return rc;
	pv_list_for_each(it, &p->rules) {
		rc = gate_rule(l->t, pv_list_entry(it, struct pv_tcp_rule, link), gated);
		if (rc && gated) {
			(void)pv_tcp_gate(l, false);
			return rc;
		}
	}
	return rc;
}

static bool another_listens(const struct pv_tcp_port *p, const struct pv_tcp *than)
{
	pv_list_for_each(it, &p->socks) {
		const struct pv_tcp *c = pv_list_entry(it, struct pv_tcp, on_port);

		if (c->listen && c != than)
			return true;
	}
	return false;
}

bool pv_tcp_listens_alone(const struct pv_tcp *l)
{
	return !another_listens(l->port, l);
}

void pv_tcp_gate_end(struct pv_tcp_port *p)
{
	if (!another_listens(p, NULL))
		p->gated = false;
}

void pv_tcp_gate_open(struct pv_tcp_table *t, bool open)
{
	if (t->gate_open == open && !(open && t->gate_spent))
		return;
	t->gate_open = open;
	t->gate_spent = false;
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++)
		if (hosted(t, i))
			(void)pv_ring_gate(pv_iface_ring(pv_net_iface(t->net, i)), open);
}

static int want_port(struct pv_tcp_table *t, struct pv_tcp_port *p, uint32_t iface, const struct pv_addr *dst, bool sole)
{
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .dst = *dst, .dst_port = p->port, .sole = sole };
	struct pv_tcp_rule *r = of_port(p, iface, dst);
	int rc;

	if (r) {
		r->wanted = true;
		return 0;
	}
	rc = rule_new(t, iface, &f, &r);
	if (rc)
		return rc;
	pv_list_add(&p->rules, &r->link);
	if (p->gated)
		(void)gate_rule(t, r, true);
	return 0;
}

/* Or those of a port that could not have them all. */
void pv_tcp_steer_unreserve(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	pv_list_for_each(it, &p->rules)
		pv_list_entry(it, struct pv_tcp_rule, link)->kept = false;
	pv_tcp_steer_port(t, p);
}

int pv_tcp_steer_reserve(struct pv_tcp_table *t, struct pv_tcp_port *p, const struct pv_addr *laddr, uint32_t iface)
{
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface_cfg *cfg = hosted(t, i);
		int rc;

		if (!cfg || (i != iface && !has(cfg, laddr)))
			continue;
		rc = want_port(t, p, i, laddr, true);
		if (rc) {
			pv_tcp_steer_unreserve(t, p);
			return rc;
		}
		of_port(p, i, laddr)->kept = true;
	}
	return 0;
}

static bool listens_at(const struct pv_tcp *l, const struct pv_addr *a)
{
	return pv_tcp_is_zero(&l->laddr) ? l->accept & (pv_addr_is4(a) ? PV_ACCEPT4 : PV_ACCEPT6) : pv_addr_eq(a, &l->laddr);
}

/* 0 when there is one, or none could be; else the last error. */
static int want_listener(const struct pv_tcp *l)
{
	uint32_t have = 0;
	int rc = 0;

	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface_cfg *cfg = hosted(l->t, i);

		if (!cfg || (l->opts.bound_iface && l->opts.bound_iface != i))
			continue;
		for (uint32_t k = 0; k < cfg->naddr; k++) {
			const struct pv_addr *a = &cfg->addr[k].addr;
			int err;

			if (!listens_at(l, a))
				continue;
			err = want_port(l->t, l->port, i, a, false);
			have += !err;
			rc = err ? err : rc;
		}
	}
	return have ? 0 : rc;
}

/* ---- connections and TIME_WAITs ---------------------------------------------------------------------------------------- */

struct owner {
	struct pv_tcp_port *port;
	struct pv_tcp_rule **rules;
	const struct pv_addr *laddr, *raddr;
	uint16_t rport;
	uint32_t path; /* the interface that its route takes */
};

static struct owner of_conn(struct pv_tcp *c)
{
	return (struct owner){ c->port, &c->rules, &c->laddr, &c->raddr, c->rport, c->path.gen ? c->path.iface : 0 };
}

static struct owner of_tw(struct pv_tcp_tw *w)
{
	return (struct owner){ w->port, &w->rules, &w->laddr, &w->raddr, w->rport, w->iface };
}

static int want_flow(struct pv_tcp_table *t, const struct owner *o, uint32_t iface, bool own)
{
	struct pv_flow f = {
		.kind = PV_FLOW_5TUPLE, .dst = *o->laddr, .src = *o->raddr, .dst_port = o->port->port, .src_port = o->rport
	};
	const struct pv_tcp_rule *l = of_port(o->port, iface, o->laddr);
	struct pv_tcp_rule *r;
	int rc;

	if (l && l->wanted && !own)
		return 0;
	for (r = *o->rules; r; r = r->next)
		if (r->iface == iface)
			return 0;
	rc = rule_new(t, iface, &f, &r);
	if (rc)
		return rc;
	r->next = *o->rules;
	*o->rules = r;
	return 0;
}

/* By the interface of the address and by the one that the route takes: the peer may answer by either. */
static int want_conn(struct pv_tcp_table *t, const struct owner *o, bool own)
{
	int rc = 0;

	for (uint32_t i = 1; i <= PV_IFACE_MAX && !rc; i++) {
		const struct pv_iface_cfg *cfg = hosted(t, i);

		if (cfg && (i == o->path || has(cfg, o->laddr)))
			rc = want_flow(t, o, i, own);
	}
	return rc;
}

int pv_tcp_steer(struct pv_tcp *c)
{
	struct owner o;

	if (!c->t->hosted || !c->port || c->state == PV_TCP_CLOSED)
		return 0;
	if (c->state == PV_TCP_LISTEN)
		return c->listen ? want_listener(c) : 0;
	o = of_conn(c);
	return want_conn(c->t, &o, false);
}

void pv_tcp_steer_own(struct pv_tcp *c)
{
	struct owner o = of_conn(c);

	(void)want_conn(c->t, &o, true);
}

void pv_tcp_steer_busy(struct pv_tcp *c)
{
	struct owner o = of_conn(c);

	c->sock |= PV_SK_BUSY;
	if (c->port && !c->rules && c->state == PV_TCP_ESTABLISHED)
		(void)want_conn(c->t, &o, true);
}

bool pv_tcp_steer_can_leave(const struct pv_tcp *c)
{
	bool any = false;

	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		if (!hosted(c->t, i) || (i != c->path.iface && !has(hosted(c->t, i), &c->laddr)))
			continue;
		any = true;
		if (!c->port->reserve && of_port(c->port, i, &c->laddr) &&
		    !pv_iface_ring(pv_net_iface(c->t->net, i))->caps.host_first)
			return false;
	}
	return any;
}

void pv_tcp_steer_left(struct pv_tcp_table *t, struct pv_tcp_rule **rules)
{
	while (*rules) {
		struct pv_tcp_rule *r = *rules;

		*rules = r->next;
		drop(t, r);
	}
}

static void each_at(const struct pv_tcp *c, uint32_t iface, const struct pv_iface_cfg *cfg, pv_flow_fn each, void *ctx)
{
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .l4_proto = PV_PROTO_TCP, .dst_port = c->port->port };

	for (uint32_t k = 0; c->listen && k < cfg->naddr; k++) {
		f.dst = cfg->addr[k].addr;
		if (listens_at(c, &f.dst))
			each(ctx, iface, &f);
	}
	if (c->listen || (iface != c->path.iface && !has(cfg, &c->laddr)))
		return;
	f.kind = PV_FLOW_5TUPLE;
	f.dst = c->laddr;
	f.src = c->raddr;
	f.src_port = c->rport;
	each(ctx, iface, &f);
}

void pv_tcp_each_flow(const struct pv_tcp *c, pv_flow_fn each, void *ctx)
{
	if (!c->port || c->state == PV_TCP_CLOSED || (c->state == PV_TCP_LISTEN && !c->listen))
		return;
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = pv_net_iface(c->t->net, i);

		if (ifp && i != c->t->going && !(c->opts.bound_iface && c->opts.bound_iface != i))
			each_at(c, i, pv_iface_config(ifp), each, ctx);
	}
}

/* ---- changes ----------------------------------------------------------------------------------------------------------- */

/* The new ones first, so that what both sets have never leaves the ring. */
void pv_tcp_steer_port(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	pv_list_for_each(it, &p->rules) {
		struct pv_tcp_rule *r = pv_list_entry(it, struct pv_tcp_rule, link);

		r->wanted = r->kept;
	}
	pv_list_for_each(it, &p->socks) {
		const struct pv_tcp *c = pv_list_entry(it, struct pv_tcp, on_port);

		if (c->listen)
			(void)want_listener(c);
	}
	pv_list_for_each(it, &p->socks) {
		struct pv_tcp *c = pv_list_entry(it, struct pv_tcp, on_port);

		if (!c->listen)
			(void)pv_tcp_steer(c);
	}
	pv_list_for_each(it, &p->tws) {
		struct owner o = of_tw(pv_list_entry(it, struct pv_tcp_tw, on_port));

		(void)want_conn(t, &o, false);
	}
	pv_list_for_each_safe(it, next, &p->rules) {
		struct pv_tcp_rule *r = pv_list_entry(it, struct pv_tcp_rule, link);

		if (!r->wanted)
			drop(t, r);
	}
}

void pv_tcp_steer_end(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	while (!pv_list_empty(&p->rules))
		drop(t, pv_list_entry(p->rules.next, struct pv_tcp_rule, link));
}

void pv_tcp_steer_changed(struct pv_tcp_table *t)
{
	struct pv_hnode *it = NULL;

	pv_tcp_reserve_flush(t);
	t->hosted = false;
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++)
		t->hosted |= hosted(t, i) != NULL;
	while ((it = pv_htab_next(&t->ports, it)))
		pv_tcp_steer_port(t, pv_htab_entry(it, struct pv_tcp_port, node));
}

static void flow_gone(struct pv_tcp_table *t, struct pv_tcp_rule **at, uint32_t iface)
{
	while (*at) {
		struct pv_tcp_rule *r = *at;

		if (r->iface != iface) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		drop(t, r);
	}
}

static void port_gone(struct pv_tcp_table *t, struct pv_tcp_port *p, uint32_t iface)
{
	pv_list_for_each_safe(it, next, &p->rules) {
		struct pv_tcp_rule *r = pv_list_entry(it, struct pv_tcp_rule, link);

		if (r->iface == iface)
			drop(t, r);
	}
	if (p->reserve)
		p->reserve->spoilt = true;
	pv_list_for_each(it, &p->socks)
		flow_gone(t, &pv_list_entry(it, struct pv_tcp, on_port)->rules, iface);
	pv_list_for_each(it, &p->tws)
		flow_gone(t, &pv_list_entry(it, struct pv_tcp_tw, on_port)->rules, iface);
}

void pv_tcp_steer_gone(struct pv_tcp_table *t, uint32_t iface)
{
	struct pv_hnode *node = NULL;

	pv_tcp_reserve_flush(t);
	while ((node = pv_htab_next(&t->ports, node)))
		port_gone(t, pv_htab_entry(node, struct pv_tcp_port, node), iface);
}
