/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules, on interfaces that the kernel owns: what a rule names comes to us, everything else stays with the kernel.
 *
 * Rules belong to the local port: one for each of our addresses that a listener or a connection has on it, whoever the peer is, shared by
 * all of them and by the TIME_WAITs that they leave. The kernel's socket beneath holds the port, so that nobody else's segments are taken.
 * They stay until the port is free: what still comes for a connection that is over is answered by us, who know it, not by the kernel.
 *
 * Other than with UDP a rule that cannot be had is an error: the kernel would reset what it does not know.
 */
#include "tcp/conn.h"

struct pv_tcp_rule {
	struct pv_list link;
	struct pv_addr dst;
	uint64_t handle;
	uint32_t iface;
	bool wanted;
};

static const struct pv_iface_cfg *hosted(const struct pv_tcp_table *t, uint32_t iface)
{
	const struct pv_iface *ifp = pv_net_iface(t->net, iface);
	const struct pv_iface_cfg *cfg = ifp ? pv_iface_config(ifp) : NULL;

	return cfg && cfg->steer == PV_STEER_SOCKET && iface != t->going ? cfg : NULL;
}

static int want(struct pv_tcp_table *t, struct pv_tcp_port *p, uint32_t iface, const struct pv_addr *dst)
{
	struct pv_ring *ring = pv_iface_ring(pv_net_iface(t->net, iface));
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .l4_proto = PV_PROTO_TCP, .dst = *dst, .dst_port = p->port };
	struct pv_tcp_rule *r;
	int rc;

	pv_list_for_each(it, &p->rules) {
		r = pv_list_entry(it, struct pv_tcp_rule, link);
		if (r->iface == iface && pv_addr_eq(&r->dst, dst)) {
			r->wanted = true;
			return 0;
		}
	}
	r = pv_tcp_alloc(t, sizeof(*r));
	if (!r)
		return -ENOMEM;
	memcpy(f.dst_mac, ring->caps.mac, sizeof(f.dst_mac));
	rc = pv_ring_flow_add(ring, &f, &r->handle);
	if (rc) {
		pv_tcp_dealloc(t, r, sizeof(*r));
		return rc;
	}
	r->dst = *dst;
	r->iface = iface;
	r->wanted = true;
	pv_list_add(&p->rules, &r->link);
	return 0;
}

/* A ring whose device is gone has forgotten it already. */
static void drop(struct pv_tcp_table *t, struct pv_tcp_rule *r)
{
	(void)pv_ring_flow_del(pv_iface_ring(pv_net_iface(t->net, r->iface)), r->handle);
	pv_list_del(&r->link);
	pv_tcp_dealloc(t, r, sizeof(*r));
}

/* What comes for one local address (zeroes: any of those families), or leaves by `path`. The first error of a ring. */
static int want_name(struct pv_tcp_table *t, struct pv_tcp_port *p, const struct pv_addr *laddr, uint8_t accept, uint32_t path)
{
	int rc = 0, err = 0;

	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface_cfg *cfg = hosted(t, i);

		for (uint32_t k = 0; cfg && k < cfg->naddr; k++) {
			const struct pv_addr *a = &cfg->addr[k].addr;
			uint8_t family = pv_addr_is4(a) ? PV_ACCEPT4 : PV_ACCEPT6;

			if (pv_tcp_is_zero(laddr) ? accept & family : pv_addr_eq(a, laddr))
				rc = want(t, p, i, a);
			err = err ? err : rc;
		}
		/* The peer may answer to an address of another interface by the one that the route takes. */
		if (cfg && i == path)
			rc = want(t, p, i, laddr);
		err = err ? err : rc;
	}
	return err;
}

int pv_tcp_steer(struct pv_tcp *c)
{
	if (!c->t->hosted || !c->port || c->state == PV_TCP_CLOSED)
		return 0;
	return want_name(c->t, c->port, &c->laddr, c->accept, c->state == PV_TCP_LISTEN ? 0 : c->path.iface);
}

void pv_tcp_steer_end(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	while (!pv_list_empty(&p->rules))
		drop(t, pv_list_entry(p->rules.next, struct pv_tcp_rule, link));
}

/* The new ones first, so that what both sets have never leaves the ring. */
static void again(struct pv_tcp_table *t, struct pv_tcp_port *p)
{
	pv_list_for_each(it, &p->rules)
		pv_list_entry(it, struct pv_tcp_rule, link)->wanted = false;
	pv_list_for_each(it, &p->socks)
		(void)pv_tcp_steer(pv_list_entry(it, struct pv_tcp, on_port));
	pv_list_for_each(it, &p->tws) {
		const struct pv_tcp_tw *w = pv_list_entry(it, struct pv_tcp_tw, on_port);

		(void)want_name(t, p, &w->laddr, 0, w->iface);
	}
	pv_list_for_each_safe(it, next, &p->rules) {
		struct pv_tcp_rule *r = pv_list_entry(it, struct pv_tcp_rule, link);

		if (!r->wanted)
			drop(t, r);
	}
}

void pv_tcp_steer_changed(struct pv_tcp_table *t)
{
	struct pv_hnode *it = NULL;

	t->hosted = false;
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++)
		t->hosted |= hosted(t, i) != NULL;
	while ((it = pv_htab_next(&t->ports, it)))
		again(t, pv_htab_entry(it, struct pv_tcp_port, node));
}

void pv_tcp_steer_gone(struct pv_tcp_table *t, uint32_t iface)
{
	struct pv_hnode *node = NULL;

	while ((node = pv_htab_next(&t->ports, node))) {
		pv_list_for_each_safe(it, next, &pv_htab_entry(node, struct pv_tcp_port, node)->rules) {
			struct pv_tcp_rule *r = pv_list_entry(it, struct pv_tcp_rule, link);

			if (r->iface == iface)
				drop(t, r);
		}
	}
}
