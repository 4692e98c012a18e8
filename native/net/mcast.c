/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that somebody here listens to, and when that is told: at each change, twice (robustness 2), and when a querier asks
 * (RFC 3376 5, RFC 3810 6). IPv4 and IPv6 differ in how the messages look only: igmp.c and mld.c.
 *
 * A change is reported as the whole new state (TO_EXCLUDE {} or TO_INCLUDE {sources}), also where ALLOW and BLOCK records would do:
 * it says the same to a router (RFC 3376 6.4.2) and a repetition never tells old news. A group without members stays until its
 * leave is repeated; pv_group_find does not see it any more.
 */
#include "net/internal.h"

#define ROBUSTNESS 2u
#define UNSOLICITED_NS (1 * PV_NS_PER_S)
/* Older version querier present: robustness * query interval + query response interval (RFC 3376 8.12, RFC 3810 9.12). */
#define OLDER_NS ((ROBUSTNESS * 125 + 10) * PV_NS_PER_S)
#define RECORDS 16u /* of one pass over the groups */

static void change_timer(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns);
static void answer_timer(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns);

int pv_mcast_open(struct pv_net *net)
{
	return pv_htab_init(&net->groups, net->mem, 64);
}

void pv_mcast_close(struct pv_net *net)
{
	if (net->groups.bucket)
		pv_htab_fini(&net->groups);
}

static bool group_wanted(const struct pv_group *g)
{
	return g->any_refs || g->nsource;
}

static struct pv_group *group_lookup(const struct pv_net *net, uint32_t iface, const struct pv_addr *group)
{
	pv_htab_for_each(h, &net->groups, pv_hash_addr(&net->key, group, iface))
	{
		struct pv_group *g = pv_htab_entry(h, struct pv_group, node);

		if (g->iface == iface && pv_addr_eq(&g->addr, group))
			return g;
	}
	return NULL;
}

struct pv_group *pv_group_find(const struct pv_net *net, uint32_t iface, const struct pv_addr *group)
{
	struct pv_group *g = group_lookup(net, iface, group);

	return g && group_wanted(g) ? g : NULL;
}

/* ---- the ring's rule ------------------------------------------------------------------------------------------------------ */

static int group_flow_add(struct pv_iface *ifp, struct pv_group *g)
{
	uint8_t mac[PV_ETH_ALEN];
	int rc;

	if (g->has_flow || !pv_iface_wants_flows(ifp))
		return 0;
	pv_mac_of_group(mac, &g->addr);
	rc = pv_iface_flow_add(ifp, &g->addr, mac, &g->flow);
	g->has_flow = !rc;
	/* Another group of the same MAC has the rule, on a ring that matches MACs. */
	return rc == -EEXIST ? 0 : rc;
}

static void group_flow_del(struct pv_iface *ifp, struct pv_group *g)
{
	if (!g->has_flow)
		return;
	g->has_flow = false;
	pv_ring_flow_del(ifp->ring, g->flow);
	if (ifp->ring->caps.flow_kinds & 1u << PV_FLOW_IP)
		return;
	pv_list_for_each(it, &ifp->groups) {
		struct pv_group *other = pv_list_entry(it, struct pv_group, link);

		if (other != g && group_wanted(other))
			group_flow_add(ifp, other);
	}
}

/* ---- reports -------------------------------------------------------------------------------------------------------------- */

static uint8_t querier_version(const struct pv_iface *ifp, bool v4, int64_t now_ns)
{
	if (!v4)
		return now_ns < ifp->mld.v1_until_ns ? 1 : 2;
	if (now_ns < ifp->igmp.v1_until_ns)
		return 1;
	return now_ns < ifp->igmp.v2_until_ns ? 2 : 3;
}

/* For queriers that know neither sources nor records (RFC 3376 7.2.1, RFC 3810 8.2.1). False: this one knows. */
static bool report_old(struct pv_net *net, struct pv_iface *ifp, struct pv_group *g, int64_t now_ns)
{
	bool v4 = pv_addr_is4(&g->addr), wanted = group_wanted(g);
	uint8_t version = querier_version(ifp, v4, now_ns);

	if (version == (v4 ? 3 : 2))
		return false;
	if (wanted && v4)
		pv_igmp_old(net, ifp, version == 1 ? PV_IGMP_V1_REPORT : PV_IGMP_V2_REPORT, &g->addr);
	else if (wanted)
		pv_mld_old(net, ifp, PV_ICMP6_MLD_REPORT, &g->addr);
	else if (v4 && version == 2 && g->last_reporter)
		pv_igmp_old(net, ifp, PV_IGMP_V2_LEAVE, &g->addr);
	else if (!v4 && g->last_reporter)
		pv_mld_old(net, ifp, PV_ICMP6_MLD_DONE, &g->addr);
	g->last_reporter = wanted;
	return true;
}

static struct pv_wire_grec record(const struct pv_group *g, bool change)
{
	struct pv_wire_grec r = { .group = g->addr };

	if (g->any_refs) {
		r.type = change ? PV_GREC_TO_EXCLUDE : PV_GREC_IS_EXCLUDE;
	} else {
		r.type = change ? PV_GREC_TO_INCLUDE : PV_GREC_IS_INCLUDE;
		r.sources = g->source;
		r.nsources = g->nsource;
	}
	return r;
}

static void report(struct pv_net *net, struct pv_iface *ifp, struct pv_group *g, bool change, int64_t now_ns)
{
	struct pv_wire_grec r;

	if (!g->reported || !ifp->resolves || report_old(net, ifp, g, now_ns))
		return;
	r = record(g, change);
	if (pv_addr_is4(&g->addr))
		pv_igmp_report(net, ifp, &r, 1);
	else
		pv_mld_report(net, ifp, &r, 1);
}

static void group_free(struct pv_net *net, struct pv_group *g)
{
	pv_net_timer_del(net, &g->change);
	pv_net_timer_del(net, &g->answer);
	pv_htab_del(&net->groups, &g->node);
	pv_list_del(&g->link);
	net->ngroups--;
	pv_net_free(net, g, sizeof(*g));
}

static void change_next(struct pv_net *net, struct pv_group *g, int64_t now_ns)
{
	if (g->changes)
		pv_net_timer_set(net, &g->change, now_ns + 1 + (int64_t)pv_rng_below(&net->rng, UNSOLICITED_NS));
	else if (!group_wanted(g))
		group_free(net, g);
}

static void change_timer(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	struct pv_group *g = pv_container_of(t, struct pv_group, change);

	report(net, net->iface[g->iface], g, true, now_ns);
	g->changes--;
	change_next(net, g, now_ns);
}

static void group_changed(struct pv_net *net, struct pv_group *g, int64_t now_ns)
{
	pv_net_timer_del(net, &g->change);
	pv_net_timer_del(net, &g->answer);
	report(net, net->iface[g->iface], g, true, now_ns);
	g->changes = g->reported ? ROBUSTNESS - 1 : 0;
	change_next(net, g, now_ns);
}

/* ---- queries -------------------------------------------------------------------------------------------------------------- */

static void answer_timer(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	struct pv_group *g = pv_container_of(t, struct pv_group, answer);

	if (group_wanted(g))
		report(net, net->iface[g->iface], g, false, now_ns);
}

static void general(struct pv_net *net, struct pv_iface *ifp, bool v4)
{
	struct pv_wire_grec rec[RECORDS];
	uint32_t n = 0;

	pv_list_for_each(it, &ifp->groups) {
		struct pv_group *g = pv_list_entry(it, struct pv_group, link);

		if (pv_addr_is4(&g->addr) != v4 || !g->reported || !group_wanted(g))
			continue;
		rec[n++] = record(g, false);
		if (n < RECORDS && it->next != &ifp->groups)
			continue;
		v4 ? pv_igmp_report(net, ifp, rec, n) : pv_mld_report(net, ifp, rec, n);
		n = 0;
	}
	if (n)
		v4 ? pv_igmp_report(net, ifp, rec, n) : pv_mld_report(net, ifp, rec, n);
}

static void general4(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	struct pv_iface *ifp = pv_container_of(t, struct pv_iface, igmp.general);

	if (querier_version(ifp, true, now_ns) == 3)
		general(net, ifp, true);
}

static void general6(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	struct pv_iface *ifp = pv_container_of(t, struct pv_iface, mld.general);

	if (querier_version(ifp, false, now_ns) == 2)
		general(net, ifp, false);
}

/* Within the time that the querier allows; an answer that is due sooner stays. */
static void answer_soon(struct pv_net *net, struct pv_net_timer *t, const struct pv_group_query *q, int64_t now_ns)
{
	int64_t at = now_ns + (int64_t)pv_rng_below(&net->rng, (uint64_t)q->max_resp_ms * PV_NS_PER_MS + 1);

	if (!pv_timer_armed(&t->t) || t->t.deadline_ns > at)
		pv_net_timer_set(net, t, at);
}

void pv_group_query(struct pv_net *net, struct pv_iface *ifp, const struct pv_group_query *q, int64_t now_ns)
{
	struct pv_querier *who = q->v4 ? &ifp->igmp : &ifp->mld;
	struct pv_group *g;

	if (!ifp->resolves)
		return;
	if (q->version == 1)
		who->v1_until_ns = now_ns + OLDER_NS;
	else if (q->v4 && q->version == 2)
		who->v2_until_ns = now_ns + OLDER_NS;
	if (!q->general) {
		g = pv_group_find(net, ifp->index, &q->group);
		if (g && g->reported)
			answer_soon(net, &g->answer, q, now_ns);
		return;
	}
	if (querier_version(ifp, q->v4, now_ns) == (q->v4 ? 3 : 2)) {
		answer_soon(net, &who->general, q, now_ns);
		return;
	}
	/* Old versions: one message a group, each at its own time. */
	pv_list_for_each(it, &ifp->groups) {
		g = pv_list_entry(it, struct pv_group, link);
		if (pv_addr_is4(&g->addr) == q->v4 && g->reported && group_wanted(g))
			answer_soon(net, &g->answer, q, now_ns);
	}
}

void pv_group_heard(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *group)
{
	struct pv_group *g = pv_group_find(net, ifp->index, group);

	if (!g || querier_version(ifp, pv_addr_is4(group), net->now_ns) == (pv_addr_is4(group) ? 3 : 2))
		return;
	pv_net_timer_del(net, &g->answer);
	g->last_reporter = false;
}

/* ---- joining and leaving ---------------------------------------------------------------------------------------------------- */

/* All hosts, all nodes and what stays inside the host are never reported (RFC 3376 5, RFC 3810 6). */
static bool is_reported(const struct pv_addr *a)
{
	if (pv_addr_is4(a))
		return a->w[3] != __builtin_bswap32(0xe0000001);
	return (a->b[1] & 0x0f) >= 2 && !(a->q[0] == __builtin_bswap64(0xff02000000000000) && a->q[1] == __builtin_bswap64(1));
}

static int group_new(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *addr, struct pv_group **out)
{
	struct pv_group *g;
	int rc;

	rc = pv_net_timers_reserve(net, 1, 0);
	if (rc)
		return rc;
	g = pv_net_alloc(net, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->addr = *addr;
	g->iface = ifp->index;
	g->reported = is_reported(addr);
	g->change.fn = change_timer;
	g->answer.fn = answer_timer;
	pv_list_add(&ifp->groups, &g->link);
	pv_htab_add(&net->groups, &g->node, pv_hash_addr(&net->key, addr, ifp->index));
	net->ngroups++;
	*out = g;
	return 0;
}

static int group_args(struct pv_net *net, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source)
{
	if (!pv_net_iface(net, iface))
		return -ENODEV;
	if (!pv_addr_is_mcast(group) || (source && pv_addr_is4(source) != pv_addr_is4(group)))
		return -EINVAL;
	return 0;
}

static uint32_t source_index(const struct pv_group *g, const struct pv_addr *source)
{
	uint32_t i = 0;

	while (i < g->nsource && !pv_addr_eq(&g->source[i], source))
		i++;
	return i;
}

int pv_net_group_join(struct pv_net *net, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns)
{
	struct pv_iface *ifp;
	struct pv_group *g;
	bool was_any, news;
	int rc = group_args(net, iface, group, source);
	uint32_t i;

	if (rc)
		return rc;
	ifp = net->iface[iface];
	g = group_lookup(net, iface, group);
	if (!g)
		rc = group_new(net, ifp, group, &g);
	if (rc)
		return rc;
	rc = group_flow_add(ifp, g);
	if (rc) {
		if (!group_wanted(g))
			group_free(net, g);
		return rc;
	}
	was_any = g->any_refs;
	i = source ? source_index(g, source) : PV_GROUP_SOURCE_MAX;
	if (i == PV_GROUP_SOURCE_MAX) {
		g->any_refs++;
		news = !was_any;
	} else {
		news = i == g->nsource;
		if (news) {
			g->source[g->nsource++] = *source;
			g->source_refs[i] = 0;
		}
		g->source_refs[i]++;
		news = news && !was_any;
	}
	if (news)
		group_changed(net, g, now_ns);
	return 0;
}

int pv_net_group_leave(struct pv_net *net, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source,
		       int64_t now_ns)
{
	struct pv_group *g;
	int rc = group_args(net, iface, group, source);
	uint32_t i;

	if (rc)
		return rc;
	g = pv_group_find(net, iface, group);
	i = g && source ? source_index(g, source) : 0;
	if (!g || (source && i == g->nsource && g->nsource < PV_GROUP_SOURCE_MAX && !g->any_refs) || (!source && !g->any_refs))
		return -EADDRNOTAVAIL;
	if (source && i < g->nsource) {
		if (--g->source_refs[i])
			return 0;
		g->source[i] = g->source[--g->nsource];
		g->source_refs[i] = g->source_refs[g->nsource];
		if (g->any_refs)
			return 0;
	} else if (--g->any_refs) {
		return 0;
	}
	if (!group_wanted(g))
		group_flow_del(net->iface[iface], g);
	group_changed(net, g, now_ns);
	return 0;
}

/* ---- interfaces ------------------------------------------------------------------------------------------------------------- */

/* Groups that come with an address (RFC 1112 7.2, RFC 4291 2.8). */
int pv_mcast_iface_init(struct pv_net *net, struct pv_iface *ifp)
{
	static const struct pv_addr all_hosts = { .w = { 0, 0, PV_ADDR_MAPPED_W2, UINT32_C(0x010000e0) } };
	static const struct pv_addr all_nodes = { .b = { 0xff, 0x02, [15] = 1 } };
	int rc = 0;

	ifp->igmp.general.fn = general4;
	ifp->mld.general.fn = general6;
	for (uint32_t i = 0; ifp->resolves && !rc && i < ifp->cfg.naddr; i++) {
		const struct pv_addr *a = &ifp->cfg.addr[i].addr;
		struct pv_addr snma;

		if (pv_addr_is4(a)) {
			rc = pv_net_group_join(net, ifp->index, &all_hosts, NULL, net->now_ns);
			continue;
		}
		rc = pv_net_group_join(net, ifp->index, &all_nodes, NULL, net->now_ns);
		pv_wire_nd_solicited_node(snma.b, a->b);
		if (!rc)
			rc = pv_net_group_join(net, ifp->index, &snma, NULL, net->now_ns);
	}
	return rc;
}

void pv_mcast_del_iface(struct pv_net *net, struct pv_iface *ifp)
{
	pv_net_timer_del(net, &ifp->igmp.general);
	pv_net_timer_del(net, &ifp->mld.general);
	pv_list_for_each_safe(it, tmp, &ifp->groups) {
		struct pv_group *g = pv_list_entry(it, struct pv_group, link);

		if (group_wanted(g)) {
			g->any_refs = g->nsource = 0;
			group_flow_del(ifp, g);
			report(net, ifp, g, true, net->now_ns);
		}
		group_free(net, g);
	}
}
