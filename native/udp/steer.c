/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules of sockets, on interfaces that the kernel owns: what a rule names comes to us, everything else stays with the kernel.
 *
 * A socket that is not connected takes its port, at its address or at each address of the interfaces (wildcard), and at the groups that
 * it joined itself. A connected one takes its flow alone, so that the kernel answers strangers as it always does. Broadcasts are the
 * kernel's: it hands them to every process, a rule would take them from all others.
 *
 * Sockets that want the same share one rule. A rule that cannot be had is no error: the kernel's socket beneath gets those datagrams.
 */
#include "udp/udp_int.h"

struct pv_udp_rule {
	struct pv_hnode node;
	struct pv_flow flow;
	uint32_t iface, refs;
	uint64_t handle;
};

/* A socket's share in a rule. */
struct share {
	struct pv_list link;
	struct pv_udp_rule *rule;
	bool wanted;
};

/* ---- rules ------------------------------------------------------------------------------------------------------------- */

static uint32_t rule_hash(const struct pv_udp_table *t, uint32_t iface, const struct pv_flow *f)
{
	return pv_hash_flow(&t->key, &f->dst, &f->src, f->dst_port, f->src_port, (uint8_t)iface);
}

static bool rule_is(const struct pv_udp_rule *r, uint32_t iface, const struct pv_flow *f)
{
	return r->iface == iface && r->flow.kind == f->kind && r->flow.dst_port == f->dst_port && r->flow.src_port == f->src_port &&
	       pv_addr_eq(&r->flow.dst, &f->dst) && pv_addr_eq(&r->flow.src, &f->src);
}

static struct pv_udp_rule *rule_find(const struct pv_udp_table *t, uint32_t iface, const struct pv_flow *f)
{
	pv_htab_for_each(it, &t->rules, rule_hash(t, iface, f))
	{
		struct pv_udp_rule *r = pv_htab_entry(it, struct pv_udp_rule, node);

		if (rule_is(r, iface, f))
			return r;
	}
	return NULL;
}

static int rule_get(struct pv_udp_table *t, uint32_t iface, const struct pv_flow *f, struct pv_udp_rule **out)
{
	struct pv_udp_rule *r = rule_find(t, iface, f);
	int rc;

	if (!r) {
		r = pv_udp_alloc(t, sizeof(*r));
		if (!r)
			return -ENOMEM;
		rc = pv_ring_flow_add(pv_iface_ring(pv_net_iface(t->net, iface)), f, &r->handle);
		if (rc) {
			pv_udp_free(t, r, sizeof(*r));
			return rc;
		}
		r->flow = *f;
		r->iface = iface;
		pv_htab_add(&t->rules, &r->node, rule_hash(t, iface, f));
	}
	r->refs++;
	*out = r;
	return 0;
}

static void rule_put(struct pv_udp_table *t, struct pv_udp_rule *r)
{
	if (--r->refs)
		return;
	/* A ring whose device is gone has forgotten it already. */
	(void)pv_ring_flow_del(pv_iface_ring(pv_net_iface(t->net, r->iface)), r->handle);
	pv_htab_del(&t->rules, &r->node);
	pv_udp_free(t, r, sizeof(*r));
}

/* ---- a socket's shares ------------------------------------------------------------------------------------------------- */

static void share_drop(struct pv_udp *u, struct share *s)
{
	rule_put(u->t, s->rule);
	pv_list_del(&s->link);
	u->nrules--;
	pv_udp_free(u->t, s, sizeof(*s));
}

static void drop_unwanted(struct pv_udp *u)
{
	pv_list_for_each_safe(it, tmp, &u->rules) {
		struct share *s = pv_list_entry(it, struct share, link);

		if (!s->wanted)
			share_drop(u, s);
	}
}

static void unwant_all(struct pv_udp *u)
{
	pv_list_for_each(it, &u->rules)
		pv_list_entry(it, struct share, link)->wanted = false;
}

static int share_new(struct pv_udp *u, uint32_t iface, const struct pv_flow *f)
{
	struct share *s = pv_udp_alloc(u->t, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = rule_get(u->t, iface, f, &s->rule);
	if (rc) {
		pv_udp_free(u->t, s, sizeof(*s));
		return rc;
	}
	s->wanted = true;
	pv_list_add(&u->rules, &s->link);
	u->nrules++;
	return 0;
}

/* `each` is told what the socket receives. */
struct teller {
	pv_flow_fn each;
	void *ctx;
};

static void tell(const struct pv_udp *u, uint32_t iface, const struct pv_addr *dst, const struct teller *to)
{
	const struct pv_ring_caps *caps = &pv_iface_ring(pv_net_iface(u->t->net, iface))->caps;
	struct pv_flow f = { .kind = PV_FLOW_3TUPLE, .l4_proto = PV_PROTO_UDP, .dst = *dst, .dst_port = u->lport };

	/* A group's MAC is the ring's to know. */
	if (!pv_addr_is_mcast(dst))
		memcpy(f.dst_mac, caps->mac, sizeof(f.dst_mac));
	if (u->connected && u->rport && caps->flow_kinds & 1u << PV_FLOW_5TUPLE) {
		f.kind = PV_FLOW_5TUPLE;
		f.src = u->raddr;
		f.src_port = u->rport;
	}
	to->each(to->ctx, iface, &f);
}

static void want(void *ctx, uint32_t iface, const struct pv_flow *f)
{
	struct pv_udp *u = ctx;
	int rc;

	if (pv_iface_config(pv_net_iface(u->t->net, iface))->steer != PV_STEER_SOCKET)
		return;
	pv_list_for_each(it, &u->rules) {
		struct share *s = pv_list_entry(it, struct share, link);

		if (rule_is(s->rule, iface, f)) {
			s->wanted = true;
			return;
		}
	}
	rc = share_new(u, iface, f);
	u->steer_err = rc ? rc : u->steer_err;
}

/* ---- what a socket wants ----------------------------------------------------------------------------------------------- */

static bool takes_family(const struct pv_udp *u, const struct pv_addr *a)
{
	return u->accept & (pv_addr_is4(a) ? PV_UDP_ACCEPT4 : PV_UDP_ACCEPT6);
}

static void tell_addresses(const struct pv_udp *u, uint32_t iface, const struct pv_iface_cfg *cfg, const struct teller *to)
{
	bool any = pv_udp_is_zero(&u->laddr);

	for (uint32_t i = 0; i < cfg->naddr; i++) {
		const struct pv_addr *a = &cfg->addr[i].addr;

		if (any ? takes_family(u, a) : pv_addr_eq(a, &u->laddr))
			tell(u, iface, a, to);
	}
}

static void tell_groups(const struct pv_udp *u, uint32_t iface, const struct teller *to)
{
	pv_list_for_each(it, &u->members) {
		const struct pv_udp_member *m = pv_list_entry(it, struct pv_udp_member, link);

		if (m->iface == iface && takes_family(u, &m->group) &&
		    (pv_udp_is_zero(&u->laddr) || pv_addr_eq(&u->laddr, &m->group)))
			tell(u, iface, &m->group, to);
	}
}

void pv_udp_each_flow(const struct pv_udp *u, pv_flow_fn each, void *ctx)
{
	const struct teller to = { each, ctx };

	for (uint32_t i = 1; u->lport && !u->steer_off && i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = pv_net_iface(u->t->net, i);
		const struct pv_iface_cfg *cfg = ifp ? pv_iface_config(ifp) : NULL;

		if (!cfg || i == u->t->going || (u->bound_iface && u->bound_iface != i))
			continue;
		tell_addresses(u, i, cfg, &to);
		tell_groups(u, i, &to);
		/* The peer may answer to an address of another interface by the one that the route takes. */
		if (u->connected && u->path_iface == i && !pv_udp_is_zero(&u->laddr) && !pv_addr_is_mcast(&u->laddr))
			tell(u, i, &u->laddr, &to);
	}
}

/* The new ones first, so that what both sets have never leaves the ring. */
void pv_udp_steer(struct pv_udp *u)
{
	if (!u->t->hosted && pv_list_empty(&u->rules))
		return;
	unwant_all(u);
	u->steer_err = 0;
	pv_udp_each_flow(u, want, u);
	drop_unwanted(u);
}

void pv_udp_steer_off(struct pv_udp *u, bool off)
{
	u->steer_off = off;
	pv_udp_steer(u);
}

void pv_udp_steer_end(struct pv_udp *u)
{
	u->steer_off = true;
	unwant_all(u);
	drop_unwanted(u);
}

uint32_t pv_udp_steered(const struct pv_udp *u, int *err)
{
	*err = u->steer_err;
	return u->nrules;
}

/* ---- from the stack ---------------------------------------------------------------------------------------------------- */

void pv_udp_steer_changed(struct pv_udp_table *t)
{
	t->hosted = false;
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = pv_net_iface(t->net, i);

		t->hosted |= ifp && pv_iface_config(ifp)->steer == PV_STEER_SOCKET;
	}
	pv_list_for_each(it, &t->all)
		pv_udp_steer(pv_list_entry(it, struct pv_udp, all));
}

void pv_udp_steer_gone(struct pv_udp_table *t, uint32_t iface)
{
	t->going = iface;
	pv_list_for_each(it, &t->all) {
		struct pv_udp *u = pv_list_entry(it, struct pv_udp, all);

		pv_list_for_each_safe(jt, tmp, &u->rules) {
			struct share *s = pv_list_entry(jt, struct share, link);

			if (s->rule->iface == iface)
				share_drop(u, s);
		}
	}
}
