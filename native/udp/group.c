/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Membership in groups with source filters (RFC 3376 3, RFC 3810 4, RFC 3678), with Linux's errno in Linux's order of checks
 * (ip_mc_join_group, ip_mc_source, ip_mc_msfilter and their IPv6 likes).
 *
 * What the network layer is told: one join without source for a membership in EXCLUDE mode, one join a source in INCLUDE mode. New
 * joins go before the leaves they replace, so that a group never drops off the interface between them.
 */
#include "udp/udp_int.h"

/* Linux's defaults: igmp_max_memberships, igmp_max_msf, mld_max_msf. */
#define MEMBERS4_MAX 20u
#define SOURCES4_MAX 10u
#define SOURCES6_MAX 64u

/* ---- the host's groups ------------------------------------------------------------------------------------------------- */

static struct pv_udp_joined *joined_find(const struct pv_udp_table *t, uint32_t iface, const struct pv_addr *group)
{
	pv_htab_for_each(it, &t->joined, pv_hash_addr(&t->key, group, iface))
	{
		struct pv_udp_joined *j = pv_htab_entry(it, struct pv_udp_joined, node);

		if (j->iface == iface && pv_addr_eq(&j->group, group))
			return j;
	}
	return NULL;
}

static int joined_get(struct pv_udp_table *t, uint32_t iface, const struct pv_addr *group)
{
	struct pv_udp_joined *j = joined_find(t, iface, group);

	if (!j) {
		j = pv_udp_alloc(t, sizeof(*j));
		if (!j)
			return -ENOMEM;
		j->iface = iface;
		j->group = *group;
		pv_htab_add(&t->joined, &j->node, pv_hash_addr(&t->key, group, iface));
	}
	j->refs++;
	return 0;
}

static void joined_put(struct pv_udp_table *t, uint32_t iface, const struct pv_addr *group)
{
	struct pv_udp_joined *j = joined_find(t, iface, group);

	if (--j->refs)
		return;
	pv_htab_del(&t->joined, &j->node);
	pv_udp_free(t, j, sizeof(*j));
}

/* Every host is a member of all-hosts (RFC 1112 7.2) and of all-nodes (RFC 4291 2.7.1). */
bool pv_udp_host_joined(const struct pv_udp_table *t, uint32_t iface, const struct pv_addr *group)
{
	static const uint8_t all_hosts[4] = { 224, 0, 0, 1 };

	if (pv_addr_is4(group)) {
		if (!memcmp(group->b + 12, all_hosts, 4))
			return true;
	} else if (group->b[1] <= 2 && group->b[1] && !(group->q[0] & ~UINT64_C(0xffff)) && group->q[1] == UINT64_C(1) << 56) {
		return true;
	}
	return joined_find(t, iface, group) != NULL;
}

/* ---- one socket's memberships ------------------------------------------------------------------------------------------ */

/* iface 0: the first that matches. */
static struct pv_udp_member *member_find(const struct pv_udp *u, uint32_t iface, const struct pv_addr *group)
{
	pv_list_for_each(it, &u->members) {
		struct pv_udp_member *m = pv_list_entry(it, struct pv_udp_member, link);

		if (pv_addr_eq(&m->group, group) && (!iface || m->iface == iface))
			return m;
	}
	return NULL;
}

static int source_find(const struct pv_udp_member *m, const struct pv_addr *source)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (pv_addr_eq(&m->source[i], source))
			return (int)i;
	return -1;
}

/* ip_mc_sf_allow and inet6_mc_check. The latter does not look at the interface of an IPv6 membership. */
bool pv_udp_member_takes(struct pv_udp *u, const struct pv_udp_key *k)
{
	bool is4 = k->accept == PV_UDP_ACCEPT4;
	const struct pv_udp_member *m;

	if (!pv_addr_is_mcast(&k->local))
		return true;
	m = member_find(u, is4 ? k->iface : 0, &k->local);
	if (!m)
		return is4 ? u->opts.mcast_all4 : u->opts.mcast_all6;
	return (source_find(m, &k->remote) >= 0) == (m->mode == PV_FILTER_INCLUDE);
}

/* What the network layer knows of a membership, taken back. */
static void net_leave(struct pv_udp *u, const struct pv_udp_member *m, enum pv_filter_mode mode, const struct pv_addr *source,
		      uint32_t n, int64_t now_ns)
{
	struct pv_net *net = u->t->net;

	if (mode == PV_FILTER_EXCLUDE)
		(void)pv_net_group_leave(net, m->iface, &m->group, NULL, now_ns);
	else
		for (uint32_t i = 0; i < n; i++)
			(void)pv_net_group_leave(net, m->iface, &m->group, &source[i], now_ns);
}

static int net_join(struct pv_udp *u, const struct pv_udp_member *m, enum pv_filter_mode mode, const struct pv_addr *source,
		    uint32_t n, int64_t now_ns)
{
	struct pv_net *net = u->t->net;

	if (mode == PV_FILTER_EXCLUDE)
		return pv_net_group_join(net, m->iface, &m->group, NULL, now_ns);
	for (uint32_t i = 0; i < n; i++) {
		int rc = pv_net_group_join(net, m->iface, &m->group, &source[i], now_ns);

		if (rc) {
			net_leave(u, m, mode, source, i, now_ns);
			return rc;
		}
	}
	return 0;
}

static void member_free(struct pv_udp *u, struct pv_udp_member *m)
{
	struct pv_udp_table *t = u->t;

	pv_list_del(&m->link);
	u->nmembers4 -= pv_addr_is4(&m->group);
	pv_udp_steer(u);
	joined_put(t, m->iface, &m->group);
	pv_udp_free(t, m->source, m->cap * sizeof(*m->source));
	pv_mem_hide(t->mem, m->shown);
	pv_mem_free_shown(t->mem, m, sizeof(*m));
}

static int member_new(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, enum pv_filter_mode mode,
		      struct pv_udp_member **out)
{
	struct pv_udp_table *t = u->t;
	struct pv_udp_member *m;
	int rc;

	if (pv_addr_is4(group) && u->nmembers4 >= MEMBERS4_MAX)
		return -ENOBUFS;
	m = pv_mem_alloc_shown(t->mem, sizeof(*m));
	if (!m)
		return -ENOMEM;
	rc = joined_get(t, iface, group);
	if (rc) {
		pv_mem_free_shown(t->mem, m, sizeof(*m));
		return rc;
	}
	m->iface = iface;
	m->group = *group;
	m->mode = mode;
	m->sock = u;
	m->shown = pv_mem_show(t->mem, &pv_udp_member_stat_type, m);
	u->nmembers4 += pv_addr_is4(group);
	pv_list_add(u->members.next, &m->link);
	pv_udp_steer(u);
	*out = m;
	return 0;
}

static void member_end(struct pv_udp *u, struct pv_udp_member *m, int64_t now_ns)
{
	net_leave(u, m, m->mode, m->source, m->n, now_ns);
	member_free(u, m);
}

void pv_udp_leave_all(struct pv_udp *u, uint32_t iface, int64_t now_ns)
{
	pv_list_for_each_safe(it, tmp, &u->members) {
		struct pv_udp_member *m = pv_list_entry(it, struct pv_udp_member, link);

		if (!iface || m->iface == iface)
			member_end(u, m, now_ns);
	}
}

/* Group, family and interface of a call; *iface is filled in when none was named. */
static int check(const struct pv_udp *u, uint32_t *iface, const struct pv_addr *group)
{
	if (!pv_addr_is_mcast(group) || (u->family == PV_AF_INET && !pv_addr_is4(group)))
		return -EINVAL;
	if (!*iface)
		*iface = pv_net_group_iface(u->t->net, group);
	return *iface && pv_net_iface(u->t->net, *iface) ? 0 : -ENODEV;
}

/* ---- any source -------------------------------------------------------------------------------------------------------- */

static int join_any(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, int64_t now_ns)
{
	struct pv_udp_member *m;
	int rc;

	if (member_find(u, iface, group))
		return -EADDRINUSE;
	rc = member_new(u, iface, group, PV_FILTER_EXCLUDE, &m);
	if (rc)
		return rc;
	rc = net_join(u, m, PV_FILTER_EXCLUDE, NULL, 0, now_ns);
	if (rc)
		member_free(u, m);
	return rc;
}

static int leave_any(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, int64_t now_ns)
{
	struct pv_udp_member *m = member_find(u, iface, group);

	if (m) {
		member_end(u, m, now_ns);
		return 0;
	}
	return !iface && !pv_net_group_iface(u->t->net, group) ? -ENODEV : -EADDRNOTAVAIL;
}

/* ---- sources ----------------------------------------------------------------------------------------------------------- */

static int sources_reserve(struct pv_udp *u, struct pv_udp_member *m, uint32_t n)
{
	uint32_t cap = m->cap ? m->cap : 4;
	struct pv_addr *source;

	if (n <= m->cap)
		return 0;
	while (cap < n)
		cap *= 2;
	source = pv_udp_alloc(u->t, cap * sizeof(*source));
	if (!source)
		return -ENOMEM;
	if (m->n)
		memcpy(source, m->source, m->n * sizeof(*source));
	pv_udp_free(u->t, m->source, m->cap * sizeof(*source));
	m->source = source;
	m->cap = cap;
	return 0;
}

static int source_add(struct pv_udp *u, struct pv_udp_member *m, const struct pv_addr *source, int64_t now_ns)
{
	int rc;

	if (m->n >= (pv_addr_is4(&m->group) ? SOURCES4_MAX : SOURCES6_MAX))
		return -ENOBUFS;
	rc = sources_reserve(u, m, m->n + 1);
	if (rc)
		return rc;
	if (source_find(m, source) >= 0)
		return -EADDRNOTAVAIL;
	if (m->mode == PV_FILTER_INCLUDE)
		rc = net_join(u, m, m->mode, source, 1, now_ns);
	if (rc)
		return rc;
	m->source[m->n++] = *source;
	return 0;
}

static int source_del(struct pv_udp *u, struct pv_udp_member *m, const struct pv_addr *source, int64_t now_ns)
{
	int i = source_find(m, source);

	if (i < 0)
		return -EADDRNOTAVAIL;
	/* (INCLUDE, empty) is no membership (RFC 3376 3.1). */
	if (m->mode == PV_FILTER_INCLUDE && m->n == 1) {
		member_end(u, m, now_ns);
		return 0;
	}
	if (m->mode == PV_FILTER_INCLUDE)
		net_leave(u, m, m->mode, source, 1, now_ns);
	m->n--;
	memmove(&m->source[i], &m->source[i + 1], (m->n - (uint32_t)i) * sizeof(*m->source));
	return 0;
}

/* A filter that has or had sources keeps its mode, and who comes in the other one is refused; any other changes sides at once, even
 * when the call fails afterwards. */
static int mode_check(struct pv_udp *u, struct pv_udp_member *m, enum pv_filter_mode mode, int64_t now_ns)
{
	int rc;

	if (m->mode == mode)
		return 0;
	if (m->source)
		return -EINVAL;
	rc = net_join(u, m, mode, NULL, 0, now_ns);
	if (rc)
		return rc;
	net_leave(u, m, m->mode, NULL, 0, now_ns);
	m->mode = mode;
	return 0;
}

/* `add` or take away one source of a filter of that mode (ip_mc_source). */
static int source_op(struct pv_udp *u, struct pv_udp_member *m, const struct pv_addr *source, enum pv_filter_mode mode, bool add,
		     int64_t now_ns)
{
	int rc;

	if (!m || pv_addr_is4(source) != pv_addr_is4(&m->group))
		return -EINVAL;
	rc = mode_check(u, m, mode, now_ns);
	if (rc)
		return rc;
	return add ? source_add(u, m, source, now_ns) : source_del(u, m, source, now_ns);
}

int pv_udp_join(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns)
{
	struct pv_udp_member *m;
	int rc = check(u, &iface, group);

	if (rc)
		return rc;
	if (!source)
		return join_any(u, iface, group, now_ns);
	if (member_find(u, iface, group))
		return source_op(u, member_find(u, iface, group), source, PV_FILTER_INCLUDE, true, now_ns);
	if (pv_addr_is4(source) != pv_addr_is4(group))
		return -EINVAL;
	rc = member_new(u, iface, group, PV_FILTER_INCLUDE, &m);
	if (rc)
		return rc;
	rc = source_add(u, m, source, now_ns);
	if (rc)
		member_free(u, m);
	return rc;
}

int pv_udp_leave(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns)
{
	int rc;

	if (!source) {
		if (!pv_addr_is_mcast(group) || (u->family == PV_AF_INET && !pv_addr_is4(group)))
			return -EADDRNOTAVAIL;
		return leave_any(u, iface, group, now_ns);
	}
	rc = check(u, &iface, group);
	return rc ? rc : source_op(u, member_find(u, iface, group), source, PV_FILTER_INCLUDE, false, now_ns);
}

int pv_udp_block(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns)
{
	int rc = check(u, &iface, group);

	return rc ? rc : source_op(u, member_find(u, iface, group), source, PV_FILTER_EXCLUDE, true, now_ns);
}

int pv_udp_unblock(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_addr *source, int64_t now_ns)
{
	int rc = check(u, &iface, group);

	return rc ? rc : source_op(u, member_find(u, iface, group), source, PV_FILTER_EXCLUDE, false, now_ns);
}

/* ---- whole filters ----------------------------------------------------------------------------------------------------- */

int pv_udp_filter_set(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, const struct pv_udp_filter *filter,
		      int64_t now_ns)
{
	struct pv_udp_member *m, old;
	uint32_t n = filter->n;
	int rc;

	if (n > (pv_addr_is4(group) ? SOURCES4_MAX : SOURCES6_MAX))
		return -ENOBUFS;
	rc = check(u, &iface, group);
	if (rc)
		return rc;
	if (filter->mode == PV_FILTER_INCLUDE && !n)
		return leave_any(u, iface, group, now_ns);
	m = member_find(u, iface, group);
	if (!m)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++)
		if (pv_addr_is4(&filter->sources[i]) != pv_addr_is4(group))
			return -EINVAL;
	rc = net_join(u, m, filter->mode, filter->sources, n, now_ns);
	if (rc)
		return rc;
	old = *m;
	m->source = NULL;
	m->n = m->cap = 0;
	rc = sources_reserve(u, m, n);
	if (rc) {
		net_leave(u, m, filter->mode, filter->sources, n, now_ns);
		m->source = old.source;
		m->n = old.n;
		m->cap = old.cap;
		return rc;
	}
	if (n)
		memcpy(m->source, filter->sources, n * sizeof(*m->source));
	m->n = n;
	m->mode = filter->mode;
	net_leave(u, m, old.mode, old.source, old.n, now_ns);
	pv_udp_free(u->t, old.source, old.cap * sizeof(*old.source));
	return 0;
}

int pv_udp_filter_get(struct pv_udp *u, uint32_t iface, const struct pv_addr *group, enum pv_filter_mode *mode,
		      struct pv_addr *sources, uint32_t n)
{
	struct pv_udp_member *m;
	int rc = check(u, &iface, group);

	if (rc)
		return rc;
	m = member_find(u, iface, group);
	if (!m)
		return -EADDRNOTAVAIL;
	*mode = m->mode;
	for (uint32_t i = 0; i < n && i < m->n; i++)
		sources[i] = m->source[i];
	return (int)m->n;
}
