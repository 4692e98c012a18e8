/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Longest prefix match. Routes hang in one hash table by their masked destination; a lookup probes once for each prefix length
 * that occurs, longest first: a handful of probes in any real table, and no limit on the number of routes.
 */
#include "net/internal.h"

int pv_route_open(struct pv_net *net)
{
	return pv_htab_init(&net->routes, net->mem, 64);
}

static void route_free(struct pv_net *net, struct pv_route_node *n)
{
	uint32_t plen = n->r.prefix_len;

	pv_htab_del(&net->routes, &n->node);
	if (--net->nplen[plen] == 0)
		net->plens[plen / 64] &= ~(UINT64_C(1) << plen % 64);
	pv_net_free(net, n, sizeof(*n));
}

void pv_route_close(struct pv_net *net)
{
	struct pv_hnode *h, *next;

	if (!net->routes.bucket)
		return;
	for (h = pv_htab_next(&net->routes, NULL); h; h = next) {
		next = pv_htab_next(&net->routes, h);
		route_free(net, pv_htab_entry(h, struct pv_route_node, node));
	}
	pv_htab_fini(&net->routes);
}

void pv_route_del_iface(struct pv_net *net, uint32_t iface)
{
	struct pv_hnode *h, *next;

	for (h = pv_htab_next(&net->routes, NULL); h; h = next) {
		struct pv_route_node *n = pv_htab_entry(h, struct pv_route_node, node);

		next = pv_htab_next(&net->routes, h);
		if (n->r.iface == iface)
			route_free(net, n);
	}
}

/* The best of one prefix: lowest metric, then the oldest. */
static const struct pv_route_node *route_best(const struct pv_net *net, const struct pv_addr *dst, uint32_t plen, uint32_t iface)
{
	const struct pv_route_node *best = NULL;
	uint32_t hash = pv_hash_addr(&net->key, dst, plen);

	pv_htab_for_each(h, &net->routes, hash)
	{
		const struct pv_route_node *n = pv_htab_entry(h, struct pv_route_node, node);

		if (n->r.prefix_len != plen || !pv_addr_eq(&n->r.dst, dst) || (iface && n->r.iface != iface))
			continue;
		if (!best || n->r.metric < best->r.metric || (n->r.metric == best->r.metric && n->seq < best->seq))
			best = n;
	}
	return best;
}

/* `iface` 0: any. */
const struct pv_route *pv_route_find(const struct pv_net *net, const struct pv_addr *dst, uint32_t iface)
{
	/* A mapped address never matches an IPv6 prefix, not even ::/0. */
	uint32_t shortest = pv_addr_is4(dst) ? 96 : 0;

	for (int w = 2; w >= 0; w--) {
		uint64_t bits = net->plens[w];

		while (bits) {
			uint32_t top = 63 - (uint32_t)__builtin_clzll(bits);
			uint32_t plen = (uint32_t)w * 64 + top;
			struct pv_addr masked = pv_addr_mask(dst, plen);
			const struct pv_route_node *n;

			if (plen < shortest)
				return NULL;
			n = route_best(net, &masked, plen, iface);
			if (n)
				return &n->r;
			bits &= ~(UINT64_C(1) << top);
		}
	}
	return NULL;
}

static struct pv_route_node *route_same(const struct pv_net *net, const struct pv_route *r)
{
	uint32_t hash = pv_hash_addr(&net->key, &r->dst, r->prefix_len);

	pv_htab_for_each(h, &net->routes, hash)
	{
		struct pv_route_node *n = pv_htab_entry(h, struct pv_route_node, node);

		if (n->r.prefix_len == r->prefix_len && pv_addr_eq(&n->r.dst, &r->dst) && n->r.iface == r->iface &&
		    pv_addr_eq(&n->r.gateway, &r->gateway))
			return n;
	}
	return NULL;
}

/* In the table's terms: length of the mapped address, destination masked, "no gateway" always written the same way. */
static int route_normal(const struct pv_route *in, struct pv_route *out)
{
	bool v4 = pv_addr_is4(&in->dst);

	*out = *in;
	if (in->prefix_len > (v4 ? 32 : 128))
		return -EINVAL;
	if (pv_addr_is_any(&in->gateway))
		memset(&out->gateway, 0, sizeof(out->gateway));
	else if (pv_addr_is4(&in->gateway) != v4 || pv_addr_is_mcast(&in->gateway))
		return -EINVAL;
	out->prefix_len = (uint8_t)pv_addr_plen(&in->dst, in->prefix_len);
	out->dst = pv_addr_mask(&in->dst, out->prefix_len);
	return 0;
}

int pv_net_route_add(struct pv_net *net, const struct pv_route *route)
{
	struct pv_route_node *n;
	struct pv_route r;
	int rc = route_normal(route, &r);

	if (rc)
		return rc;
	if (!pv_net_iface(net, r.iface))
		return -ENODEV;
	if (route_same(net, &r))
		return -EEXIST;
	n = pv_net_alloc(net, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->r = r;
	n->seq = net->route_seq++;
	pv_htab_add(&net->routes, &n->node, pv_hash_addr(&net->key, &r.dst, r.prefix_len));
	net->nplen[r.prefix_len]++;
	net->plens[r.prefix_len / 64] |= UINT64_C(1) << r.prefix_len % 64;
	pv_net_gen_bump(net);
	return 0;
}

int pv_net_route_del(struct pv_net *net, const struct pv_route *route)
{
	struct pv_route_node *n;
	struct pv_route r;
	int rc = route_normal(route, &r);

	if (rc)
		return rc;
	n = route_same(net, &r);
	if (!n)
		return -ESRCH;
	route_free(net, n);
	pv_net_gen_bump(net);
	return 0;
}
