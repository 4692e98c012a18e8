/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths by interfaces of the kernel's: its routing decides, rules, source selection and learned path MTUs included, and we only look
 * whether the answer names one of our rings. Interfaces of our own go first where a route of theirs is the more specific one.
 */
#include "net/internal.h"

uint32_t pv_net_iface_of_kernel(const struct pv_net *net, uint32_t kernel_index)
{
	for (uint32_t i = 1; kernel_index && i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = net->iface[i];

		if (ifp && !ifp->resolves && ifp->cfg.kernel_index == kernel_index)
			return i;
	}
	return 0;
}

/* The longest prefix of an address of the kernel's that the destination is in, as a mapped address has it; 0: in none. */
static uint32_t host_onlink(const struct pv_net *net, const struct pv_addr *dst)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = net->iface[i];

		for (uint32_t k = 0; ifp && pv_iface_is_hosts(net, ifp) && k < ifp->cfg.naddr; k++) {
			const struct pv_ifaddr *a = &ifp->cfg.addr[k];
			uint32_t plen = pv_addr_plen(&a->addr, a->prefix_len);

			if (plen > best && pv_addr_is4(&a->addr) == pv_addr_is4(dst) && pv_addr_in(dst, &a->addr, plen))
				best = plen;
		}
	}
	return best;
}

/* An interface of our own with an address of that family. */
static bool own_iface(const struct pv_net *net, bool v4)
{
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = net->iface[i];

		for (uint32_t k = 0; ifp && ifp->resolves && k < ifp->cfg.naddr; k++)
			if (pv_addr_is4(&ifp->cfg.addr[k].addr) == v4)
				return true;
	}
	return false;
}

bool pv_path_is_hosts(const struct pv_net *net, const struct pv_path_query *q)
{
	const struct pv_local *l;
	const struct pv_route *r;

	if (q->iface)
		return !net->iface[q->iface]->resolves;
	if (!pv_addr_is_any(&q->src)) {
		l = pv_local_find(net, &q->src, 0);
		if (!l || l->kind != PV_LOCAL_UNICAST || !net->iface[l->iface]->resolves)
			return true;
	}
	l = pv_local_find(net, &q->dst, 0);
	if (l)
		return !net->iface[l->iface]->resolves;
	if (pv_addr_is_any(&q->dst) || pv_addr_is_bcast(&q->dst))
		return pv_addr_is_any(&q->src) && !own_iface(net, pv_addr_is4(&q->dst));
	r = pv_route_find(net, &q->dst, 0);
	if (!pv_addr_is_any(&q->src))
		return false;
	if (!r)
		return !pv_addr_is_mcast(&q->dst) || !own_iface(net, pv_addr_is4(&q->dst));
	return host_onlink(net, &q->dst) > r->prefix_len;
}

/*
 * Asking costs the host's owner two system calls, and a server that is not connected asks whenever it answers another peer than the one
 * before. So answers are kept a little while, one a slot, for those whom that is good enough. Any change that the host tells of bumps
 * the generation; the time limit is for what it learns without telling (redirects, path MTUs).
 */
#define SEEN_BITS 8u
#define SEEN_NS PV_NS_PER_S

struct pv_host_seen {
	struct pv_path_query q;
	struct pv_host_route route;
	uint32_t gen; /* 0: free */
	int64_t until_ns;
};

int pv_host_seen_open(struct pv_net *net)
{
	net->host_seen = pv_net_alloc(net, (1u << SEEN_BITS) * sizeof(*net->host_seen));
	return net->host_seen ? 0 : -ENOMEM;
}

void pv_host_seen_close(struct pv_net *net)
{
	pv_net_free(net, net->host_seen, (1u << SEEN_BITS) * sizeof(*net->host_seen));
}

static bool same_question(const struct pv_path_query *a, const struct pv_path_query *b)
{
	return pv_addr_eq(&a->dst, &b->dst) && pv_addr_eq(&a->src, &b->src) && a->iface == b->iface && a->src_port == b->src_port &&
	       a->dst_port == b->dst_port && a->proto == b->proto && a->tos == b->tos;
}

/* Of one destination several questions are asked in turns: before there is a source, from one, by an interface. */
static struct pv_host_seen *seen_slot(const struct pv_net *net, const struct pv_path_query *q)
{
	uint64_t from = q->src.q[0] ^ q->src.q[1] ^ (uint64_t)q->iface << 32 ^ (uint64_t)q->dst_port << 16 ^ q->src_port;

	return &net->host_seen[(pv_hash_addr(&net->key, &q->dst, 0) ^ pv_hash_u64(&net->key, from)) >> (32 - SEEN_BITS)];
}

static int ask(const struct pv_net *net, const struct pv_path_query *q, struct pv_host_route *out)
{
	struct pv_host_query hq = {
		.dst = q->dst,
		.src = q->src,
		.kernel_index = q->iface ? net->iface[q->iface]->cfg.kernel_index : 0,
		.src_port = q->src_port,
		.dst_port = q->dst_port,
		.proto = q->proto,
		.tos = q->tos,
	};

	memset(out, 0, sizeof(*out));
	return net->cfg.host->route(net->cfg.host_ctx, &hq, out);
}

/* As ask, or from memory. */
static int recall(const struct pv_net *net, const struct pv_path_query *q, int64_t now_ns, struct pv_host_route *out)
{
	struct pv_path_query asked = *q;
	struct pv_host_seen *s;
	int rc;

	if (net->host_portless)
		asked.src_port = asked.dst_port = asked.proto = 0;
	s = seen_slot(net, &asked);
	if (q->recent && s->gen == net->head.gen && now_ns < s->until_ns && same_question(&asked, &s->q)) {
		*out = s->route;
		return 0;
	}
	rc = ask(net, q, out);
	if (!rc)
		*s = (struct pv_host_seen){ .q = asked, .route = *out, .gen = net->head.gen, .until_ns = now_ns + SEEN_NS };
	return rc;
}

/* What the kernel must do itself, and what it would do with errors of its own, is left to it: -EXDEV. */
int pv_path_host(struct pv_net *net, const struct pv_path_query *q, int64_t now_ns, struct pv_path *out)
{
	struct pv_hop h = { .next = q->dst };
	struct pv_host_route r;
	int rc;

	if (!pv_addr_is_any(&q->src) && pv_addr_is4(&q->src) != pv_addr_is4(&q->dst))
		return -EAFNOSUPPORT;
	if (pv_addr_is_any(&q->dst) || (!pv_addr_is_any(&q->src) && !pv_net_addr_owner(net, &q->src)))
		return -EXDEV;
	rc = recall(net, q, now_ns, &r);
	if (rc)
		return rc;
	h.iface = r.local ? 0 : pv_net_iface_of_kernel(net, r.kernel_index);
	if (!h.iface || !net->iface[h.iface]->ring->caps.link_up)
		return -EXDEV;
	out->src = pv_addr_is_any(&q->src) ? r.src : q->src;
	if (pv_addr_is_any(&out->src) || !pv_net_addr_owner(net, &out->src))
		return -EXDEV;
	out->is_mcast = pv_addr_is_mcast(&q->dst);
	out->is_bcast = r.broadcast || pv_addr_is_bcast(&q->dst);
	h.mtu = r.mtu;
	if (!pv_addr_is_any(&r.gateway))
		h.next = r.gateway;
	rc = pv_path_fill(net, q, &h, now_ns, out);
	if (rc)
		memset(out, 0, sizeof(*out));
	return rc;
}

uint32_t pv_host_group_iface(const struct pv_net *net, const struct pv_addr *group)
{
	struct pv_path_query q = { .dst = *group };
	struct pv_host_route r;

	return ask(net, &q, &r) ? 0 : pv_net_iface_of_kernel(net, r.kernel_index);
}

void pv_net_host_changed(struct pv_net *net, bool by_ports)
{
	net->host_portless = !by_ports;
	pv_net_gen_bump(net);
}
