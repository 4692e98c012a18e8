/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reserved ports: on interfaces that the kernel owns a connection that names no port needs one that the kernel has given us, and a rule that
 * brings its segments. Both cost more than the connection itself. So a port that was reserved for one connection stays reserved for a
 * moment when that one is over, rule included, and the next connection from the same address takes it.
 *
 * What it must not do is meet its own past. A port that had one peer only is taken for another at once. Else the peer may have had it before:
 * it is taken once the clock of the timestamps has moved on, so that a peer in TIME_WAIT knows the new SYN for one (RFC 6191 2), and never if
 * a connection of it had no timestamps. TIME_WAITs of our own keep a port as connections do.
 */
#include "tcp/conn.h"

#define IDLE_NS (2 * PV_NS_PER_S) /* then it is given back */
#define REST_NS (2 * PV_NS_PER_MS) /* two ticks of the timestamps' clock */

static void off_list(struct pv_tcp_table *t, struct pv_tcp_reserve *r)
{
	if (pv_list_empty(&r->idle))
		return;
	pv_list_del(&r->idle);
	t->nidle--;
}

void pv_tcp_reserve_taken(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	off_list(t, p->reserve);
}

void pv_tcp_reserve_end(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	off_list(t, p->reserve);
	pv_tcp_dealloc(t, p->reserve, sizeof(*p->reserve));
	p->reserve = NULL;
}

bool pv_tcp_reserve_idle(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	struct pv_tcp_reserve *r = p->reserve;

	if (!pv_list_empty(&r->idle))
		return true;
	if (r->spoilt || t->nidle >= t->cfg.reserve_max || !t->cfg.port_idle(t->cfg.port_free_ctx, p->hold)) {
		pv_tcp_reserve_end(t, p);
		return false;
	}
	r->since_ns = t->head.now_ns;
	pv_list_add(&t->idle, &r->idle);
	t->nidle++;
	pv_tcp_wake_by(t, r->since_ns + IDLE_NS);
	return true;
}

/* The one that has been idle longest goes. */
static void drop_first(struct pv_tcp_table *t)
{
	struct pv_tcp_port *p = pv_list_entry(t->idle.next, struct pv_tcp_reserve, idle)->port;

	pv_tcp_reserve_end(t, p);
	pv_tcp_port_check(t, p);
}

void pv_tcp_reserve_flush(struct pv_tcp_table *t)
{
	while (t->nidle)
		drop_first(t);
}

bool pv_tcp_reserve_give_up(struct pv_tcp_table *t, uint16_t port)
{
	struct pv_tcp_port *p = port ? pv_tcp_port_find(t, port) : NULL;

	if (port ? !p || !p->reserve || pv_list_empty(&p->reserve->idle) : !t->nidle)
		return false;
	if (!port) {
		drop_first(t);
		return true;
	}
	pv_tcp_reserve_end(t, p);
	pv_tcp_port_check(t, p);
	return true;
}

int64_t pv_tcp_reserve_deadline(const struct pv_tcp_table *t)
{
	return t->nidle ? pv_list_entry(t->idle.next, struct pv_tcp_reserve, idle)->since_ns + IDLE_NS : PV_NEVER;
}

uint32_t pv_tcp_reserve_timeouts(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget)
{
	uint32_t n = 0;

	for (; n < budget && pv_tcp_reserve_deadline(t) <= now_ns; n++)
		drop_first(t);
	return n;
}

int pv_tcp_reserve(struct pv_tcp *c, void *hold, uint32_t iface)
{
	struct pv_tcp_table *t = c->t;
	struct pv_tcp_port *p = c->port;
	struct pv_tcp_reserve *r;
	int rc;

	if (p->hold || p->reserve)
		return -EADDRINUSE;
	r = pv_tcp_alloc(t, sizeof(*r));
	if (!r)
		return -ENOMEM;
	rc = pv_tcp_steer_reserve(t, p, &c->laddr, iface);
	if (rc) {
		pv_tcp_dealloc(t, r, sizeof(*r));
		return rc;
	}
	*r = (struct pv_tcp_reserve){ .port = p, .laddr = c->laddr, .family = c->family, .ts = true, .last_ts = true };
	pv_list_init(&r->idle);
	p->reserve = r;
	p->hold = hold;
	return 0;
}

static bool is_last_peer(const struct pv_tcp_reserve *r, const struct pv_addr *addr, uint16_t port)
{
	return r->rport == port && pv_addr_eq(&r->raddr, addr);
}

void pv_tcp_reserve_used(struct pv_tcp *c)
{
	struct pv_tcp_reserve *r = c->port->reserve;

	/* Until the peer has agreed there are none: it may have taken the SYN, and we shall never know. */
	if (c->state != PV_TCP_SYN_SENT) {
		r->last_ts = c->flags & PV_TF_TS;
		return;
	}
	r->many |= r->rport && !is_last_peer(r, &c->raddr, c->rport);
	r->ts &= r->last_ts;
	r->last_ts = false;
	r->raddr = c->raddr;
	r->rport = c->rport;
}

static bool fits(const struct pv_tcp_reserve *r, const struct pv_tcp *c, const struct pv_addr *local, const struct pv_endpoint *to)
{
	if (r->family != c->family || !pv_addr_eq(&r->laddr, local))
		return false;
	if (!r->many && !is_last_peer(r, &to->addr, to->port))
		return true;
	return r->ts && r->last_ts && c->t->head.now_ns - r->since_ns >= REST_NS;
}

int pv_tcp_bind_reserved(struct pv_tcp *c, const struct pv_addr *local, const struct pv_endpoint *to, void **hold)
{
	pv_list_for_each(it, &c->t->idle) {
		const struct pv_tcp_reserve *r = pv_list_entry(it, struct pv_tcp_reserve, idle);
		struct pv_tcp_port *p = r->port;

		if (!fits(r, c, local, to))
			continue;
		*hold = p->hold;
		return pv_tcp_bind(c, &(struct pv_endpoint){ .addr = *local, .port = p->port });
	}
	return -EADDRNOTAVAIL;
}
