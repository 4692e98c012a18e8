/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast options (ip(7), ipv6(7), RFC 3678). All the forms of a membership are brought into one; then
 *   an interface of ours, by index or address: the stack joins, the kernel is not asked;
 *   an interface of the kernel's: the kernel joins;
 *   none: both, since the socket then serves both; the kernel's refusal (no route for groups) does not matter if the stack joined.
 * On an interface that the kernel owns the kernel socket joins first (IGMP and MLD are the kernel's), and the stack takes note of it.
 */
#include <netinet/in.h>
#include <string.h>

#include "sock/lane.h"
#include "sock/sock.h"

enum mcast_op { OP_JOIN, OP_LEAVE, OP_JOIN_SOURCE, OP_LEAVE_SOURCE, OP_BLOCK, OP_UNBLOCK };

struct membership {
	enum mcast_op op;
	struct pv_addr group, source;
	bool have_source;
	uint32_t index; /* the program's; 0: none */
	struct pv_addr iface_addr; /* any: none */
};

bool pv_mcast_is_option(int level, int name)
{
	if (level == IPPROTO_IP)
		return (name >= IP_MULTICAST_IF && name <= IP_DROP_SOURCE_MEMBERSHIP && name != IP_MULTICAST_TTL &&
			name != IP_MULTICAST_LOOP) ||
		       (name >= MCAST_JOIN_GROUP && name <= MCAST_LEAVE_SOURCE_GROUP);
	return level == IPPROTO_IPV6 && (name == IPV6_MULTICAST_IF || name == IPV6_JOIN_GROUP || name == IPV6_LEAVE_GROUP ||
					 (name >= MCAST_JOIN_GROUP && name <= MCAST_LEAVE_SOURCE_GROUP));
}

/* ---- the forms --------------------------------------------------------------------------------------------------------- */

static bool from_mreq(int name, const void *val, socklen_t len, struct membership *m)
{
	struct ip_mreqn mreq = { 0 };

	if (len < sizeof(struct ip_mreq))
		return false;
	memcpy(&mreq, val, len >= sizeof(mreq) ? sizeof(mreq) : sizeof(struct ip_mreq));
	m->op = name == IP_ADD_MEMBERSHIP ? OP_JOIN : OP_LEAVE;
	m->group = pv_addr_from4(&mreq.imr_multiaddr);
	m->iface_addr = pv_addr_from4(&mreq.imr_address);
	m->index = (uint32_t)mreq.imr_ifindex;
	return true;
}

static bool from_mreq_source(int name, const void *val, socklen_t len, struct membership *m)
{
	struct ip_mreq_source mreq;

	if (len != sizeof(mreq))
		return false;
	memcpy(&mreq, val, sizeof(mreq));
	m->op = name == IP_ADD_SOURCE_MEMBERSHIP    ? OP_JOIN_SOURCE
		: name == IP_DROP_SOURCE_MEMBERSHIP ? OP_LEAVE_SOURCE
		: name == IP_BLOCK_SOURCE           ? OP_BLOCK
						    : OP_UNBLOCK;
	m->group = pv_addr_from4(&mreq.imr_multiaddr);
	m->iface_addr = pv_addr_from4(&mreq.imr_interface);
	m->source = pv_addr_from4(&mreq.imr_sourceaddr);
	m->have_source = true;
	return true;
}

static bool from_mreq6(int name, const void *val, socklen_t len, struct membership *m)
{
	struct ipv6_mreq mreq;

	if (len < sizeof(mreq))
		return false;
	memcpy(&mreq, val, sizeof(mreq));
	m->op = name == IPV6_JOIN_GROUP ? OP_JOIN : OP_LEAVE;
	m->group = pv_addr_from6(&mreq.ipv6mr_multiaddr);
	m->index = mreq.ipv6mr_interface;
	return true;
}

static bool from_storage(int level, const struct sockaddr_storage *ss, struct pv_addr *out)
{
	if (level == IPPROTO_IP && ss->ss_family == AF_INET)
		*out = pv_addr_from4(&((const struct sockaddr_in *)(const void *)ss)->sin_addr);
	else if (level == IPPROTO_IPV6 && ss->ss_family == AF_INET6)
		*out = pv_addr_from6(&((const struct sockaddr_in6 *)(const void *)ss)->sin6_addr);
	else
		return false;
	return true;
}

static bool from_group_req(int level, int name, const void *val, socklen_t len, struct membership *m)
{
	struct group_req g;
	struct group_source_req gs;

	if (name == MCAST_JOIN_GROUP || name == MCAST_LEAVE_GROUP) {
		if (len < sizeof(g))
			return false;
		memcpy(&g, val, sizeof(g));
		m->op = name == MCAST_JOIN_GROUP ? OP_JOIN : OP_LEAVE;
		m->index = g.gr_interface;
		return from_storage(level, &g.gr_group, &m->group);
	}
	if (len != sizeof(gs))
		return false;
	memcpy(&gs, val, sizeof(gs));
	m->op = name == MCAST_JOIN_SOURCE_GROUP    ? OP_JOIN_SOURCE
		: name == MCAST_LEAVE_SOURCE_GROUP ? OP_LEAVE_SOURCE
		: name == MCAST_BLOCK_SOURCE       ? OP_BLOCK
						   : OP_UNBLOCK;
	m->index = gs.gsr_interface;
	m->have_source = true;
	return from_storage(level, &gs.gsr_group, &m->group) && from_storage(level, &gs.gsr_source, &m->source);
}

/* False: malformed; the kernel then says which error that is. */
static bool parse(int level, int name, const void *val, socklen_t len, struct membership *m)
{
	memset(m, 0, sizeof(*m));
	if (!val)
		return false;
	if (name >= MCAST_JOIN_GROUP && name <= MCAST_LEAVE_SOURCE_GROUP)
		return from_group_req(level, name, val, len, m);
	if (level == IPPROTO_IPV6)
		return from_mreq6(name, val, len, m);
	if (name == IP_ADD_MEMBERSHIP || name == IP_DROP_MEMBERSHIP)
		return from_mreq(name, val, len, m);
	return from_mreq_source(name, val, len, m);
}

/* ---- memberships ------------------------------------------------------------------------------------------------------- */

static int apply(struct pv_sock *so, const struct membership *m, uint32_t iface)
{
	const struct pv_addr *source = m->have_source ? &m->source : NULL;
	int64_t now = pv_clock_now(&pv_engine.clock);

	switch (m->op) {
	case OP_JOIN:
	case OP_JOIN_SOURCE:
		return pv_udp_join(so->u, iface, &m->group, source, now);
	case OP_LEAVE:
	case OP_LEAVE_SOURCE:
		return pv_udp_leave(so->u, iface, &m->group, source, now);
	case OP_BLOCK:
		return pv_udp_block(so->u, iface, &m->group, source, now);
	case OP_UNBLOCK:
		return pv_udp_unblock(so->u, iface, &m->group, source, now);
	}
	return -EINVAL;
}

static int change(struct pv_sock *so, const struct membership *m, uint32_t iface, bool *ours)
{
	bool fresh = !so->u;
	int rc = pv_core_open(so);

	if (rc)
		return rc;
	pv_leg_settle();
	rc = apply(so, m, iface);
	*ours = !rc;
	if (rc && fresh) {
		pv_core_close(so);
		return rc;
	}
	if (fresh)
		pv_decide_core(so, true, true);
	else
		pv_lane_update(so);
	pv_net_kick(pv_engine.net);
	pv_engine_timers(&pv_engine);
	return rc;
}

/* The kernel has joined or left. What the stack cannot take (no rule, no memory) is not steered and comes by the kernel socket. */
static int host_changed(struct pv_sock *so, const struct membership *m, uint32_t iface)
{
	bool ours;

	if (!pv_iface_is_host(iface) || so->retired || pv_opt_kernel_reason(so))
		return 0;
	if (!so->u)
		so->host = true;
	change(so, m, iface, &ours);
	if (pv_sock_mode(so) != PV_SOCK_CORE)
		so->host = false;
	return 0;
}

/* IP_MULTICAST_IF, when it is an interface of our own. */
static uint32_t own_mcast_iface(const struct pv_sock *so, const struct pv_addr *group)
{
	const struct pv_udp_opts *o = so->u ? pv_udp_options(so->u) : NULL;
	uint32_t iface = !o ? 0 : pv_addr_is4(group) ? o->mcast_iface4 : o->mcast_iface6;

	return pv_iface_is_host(iface) ? 0 : iface;
}

static int membership_set(struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	struct pv_engine *e = &pv_engine;
	struct membership m;
	uint32_t iface;
	bool ours = false;
	int rc;

	if (!parse(level, name, val, len, &m) || !pv_addr_is_mcast(&m.group))
		return -ENOPROTOOPT;
	if (m.index || !pv_addr_is_any(&m.iface_addr)) {
		iface = m.index ? pv_ifindex_core(m.index) : pv_net_addr_owner(e->net, &m.iface_addr);
		if (!iface || so->retired)
			return -ENOPROTOOPT;
		if (pv_iface_is_host(iface))
			return setsockopt(pv_sock_kfd(so), level, name, val, len) < 0 ? -errno : host_changed(so, &m, iface);
		return pv_net_iface(e->net, iface) ? change(so, &m, iface, &ours) : -ENODEV;
	}
	/* The kernel asks its routes, not IP_MULTICAST_IF. */
	if (pv_leg_engine() && !own_mcast_iface(so, &m.group)) {
		bool kernels;

		iface = pv_decide_device(so, &kernels);
		iface = iface ? iface : kernels ? 0 : pv_net_group_iface(e->net, &m.group);
		if (!iface || pv_iface_is_host(iface))
			return setsockopt(pv_sock_kfd(so), level, name, val, len) < 0 ? -errno : host_changed(so, &m, iface);
	} else {
		iface = own_mcast_iface(so, &m.group);
	}
	if (!iface)
		iface = pv_net_group_iface(e->net, &m.group);
	if (!iface)
		return -ENOPROTOOPT;
	rc = change(so, &m, iface, &ours);
	if (setsockopt(pv_sock_kfd(so), level, name, val, len) == 0)
		return 0;
	return ours ? 0 : rc;
}

/* ---- whole filters ----------------------------------------------------------------------------------------------------- */

#define FILTER_MAX 64

union raw_filter {
	struct ip_msfilter v4;
	struct group_filter any;
	char bytes[GROUP_FILTER_SIZE(FILTER_MAX)];
};

/* The kernel has accepted it. False: not for the stack; `iface` 0: none was named. */
static bool parse_filter(int level, int name, const union raw_filter *raw, struct pv_addr *group, uint32_t *iface,
			 struct pv_udp_filter *f)
{
	struct pv_addr *sources = (struct pv_addr *)(uintptr_t)f->sources, local;
	const struct ip_msfilter *v4 = &raw->v4;
	const struct group_filter *any = &raw->any;

	if (name == IP_MSFILTER) {
		local = pv_addr_from4(&v4->imsf_interface);
		*group = pv_addr_from4(&v4->imsf_multiaddr);
		*iface = v4->imsf_interface.s_addr ? pv_net_addr_owner(pv_engine.net, &local) : 0;
		f->mode = v4->imsf_fmode == MCAST_INCLUDE ? PV_FILTER_INCLUDE : PV_FILTER_EXCLUDE;
		for (f->n = 0; f->n < v4->imsf_numsrc && f->n < FILTER_MAX; f->n++)
			sources[f->n] = pv_addr_from4(&v4->imsf_slist[f->n]);
		return f->n == v4->imsf_numsrc;
	}
	*iface = pv_ifindex_core(any->gf_interface);
	f->mode = any->gf_fmode == MCAST_INCLUDE ? PV_FILTER_INCLUDE : PV_FILTER_EXCLUDE;
	if (!from_storage(level, &any->gf_group, group))
		return false;
	for (f->n = 0; f->n < any->gf_numsrc && f->n < FILTER_MAX; f->n++)
		if (!from_storage(level, &any->gf_slist[f->n], &sources[f->n]))
			return false;
	return f->n == any->gf_numsrc;
}

/* IP_MSFILTER and MCAST_MSFILTER: the kernel socket has it already, the stack's half follows or gives up. */
void pv_mcast_filter(struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	struct pv_addr group, sources[FILTER_MAX];
	struct pv_udp_filter f = { .sources = sources };
	union raw_filter raw = { .bytes = "" };
	uint32_t iface;

	if (!(level == IPPROTO_IP && name == IP_MSFILTER) &&
	    !((level == IPPROTO_IP || level == IPPROTO_IPV6) && name == MCAST_MSFILTER))
		return;
	memcpy(&raw, val, PV_MIN((size_t)len, sizeof(raw)));
	bool ok = parse_filter(level, name, &raw, &group, &iface, &f);

	iface = iface || !ok ? iface : pv_net_group_iface(pv_engine.net, &group);
	if (ok && !pv_iface_is_host(iface))
		return;
	pv_leg_settle();
	if (!ok || pv_udp_filter_set(so->u, iface, &group, &f, pv_clock_now(&pv_engine.clock)))
		pv_leg_retire(so, "a source filter that the stack has no room for", NULL);
}

/* ---- the interface that datagrams to groups leave by ------------------------------------------------------------------- */

/* Which interface the option's value names: the stack's number, or 0; `addr` is the address given, if any. */
static uint32_t iface_named(int level, const void *val, socklen_t len, struct pv_addr *addr, uint32_t *index)
{
	struct ip_mreqn mreq = { 0 };

	if (level == IPPROTO_IPV6) {
		memcpy(index, val, sizeof(*index));
		return pv_ifindex_core(*index);
	}
	if (len >= sizeof(struct ip_mreq))
		memcpy(&mreq, val, PV_MIN((size_t)len, sizeof(mreq)));
	else
		memcpy(&mreq.imr_address, val, 4);
	*addr = pv_addr_from4(&mreq.imr_address);
	*index = (uint32_t)mreq.imr_ifindex;
	if (*index)
		return pv_ifindex_core(*index);
	return mreq.imr_address.s_addr ? pv_net_addr_owner(pv_engine.net, addr) : 0;
}

static void iface_put(struct pv_sock *so, int level, uint32_t iface, const struct pv_addr *addr)
{
	struct pv_udp_opts *o = pv_udp_options(so->u);

	if (level == IPPROTO_IP) {
		o->mcast_iface4 = iface;
		o->mcast_src4 = iface ? *addr : (struct pv_addr){ 0 };
	} else {
		o->mcast_iface6 = iface;
	}
	pv_udp_options_changed(so->u);
}

/* The kernel's interface, or none: the kernel socket has the option, the stack's half follows. */
static int iface_set_kernel(struct pv_sock *so, int level, const void *val, socklen_t len, uint32_t index)
{
	if (setsockopt(pv_sock_kfd(so), level, level == IPPROTO_IP ? IP_MULTICAST_IF : IPV6_MULTICAST_IF, val, len) < 0)
		return -errno;
	pv_decide_kernel_read(so);
	if (level == IPPROTO_IP)
		so->mcast_index4 = index;
	if (so->u && so->host)
		pv_mcast_import(so);
	else if (so->u)
		iface_put(so, level, 0, NULL);
	if (so->host)
		pv_leg_options(so);
	return 0;
}

/* IP_MULTICAST_IF and IPV6_MULTICAST_IF of the kernel socket into the stack's half. */
void pv_mcast_import(struct pv_sock *so)
{
	struct in_addr in = { 0 };
	struct pv_addr addr;
	uint32_t iface = pv_ifindex_core(so->mcast_index4);
	socklen_t len = sizeof(in);
	int index = 0;

	if (getsockopt(pv_sock_kfd(so), IPPROTO_IP, IP_MULTICAST_IF, &in, &len) < 0)
		in.s_addr = 0;
	addr = in.s_addr ? pv_addr_from4(&in) : (struct pv_addr){ 0 };
	if (!iface && in.s_addr)
		iface = pv_net_addr_owner(pv_engine.net, &addr);
	iface_put(so, IPPROTO_IP, iface, &addr);
	len = sizeof(index);
	if (so->family == AF_INET6 && getsockopt(pv_sock_kfd(so), IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, &len) == 0)
		iface_put(so, IPPROTO_IPV6, pv_ifindex_core((uint32_t)index), NULL);
}

static int iface_set(struct pv_sock *so, int level, const void *val, socklen_t len)
{
	struct pv_addr addr = { 0 };
	uint32_t iface, index = 0;
	bool fresh = !so->u;
	int rc;

	if (!val || len < 4)
		return -ENOPROTOOPT;
	iface = iface_named(level, val, len, &addr, &index);
	if (!iface || pv_iface_is_host(iface))
		return iface || so->u || pv_leg_engine() ? iface_set_kernel(so, level, val, len, index) : -ENOPROTOOPT;
	if (!pv_net_iface(pv_engine.net, iface))
		return -ENODEV;
	rc = pv_core_open(so);
	if (rc)
		return rc;
	if (fresh)
		pv_decide_core(so, true, true);
	iface_put(so, level, iface, &addr);
	return 0;
}

int pv_mcast_set(struct pyvma_sock *h, struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	(void)h;
	if ((level == IPPROTO_IP && name == IP_MULTICAST_IF) || (level == IPPROTO_IPV6 && name == IPV6_MULTICAST_IF))
		return iface_set(so, level, val, len);
	return membership_set(so, level, name, val, len);
}

int pv_mcast_get(struct pv_sock *so, int level, int name, void *val, socklen_t *len)
{
	const struct pv_udp_opts *o = pv_udp_options(so->u);

	if (so->host)
		return -ENOPROTOOPT;
	if (level == IPPROTO_IP && name == IP_MULTICAST_IF && o->mcast_iface4) {
		*len = PV_MIN(*len, (socklen_t)4);
		memcpy(val, &o->mcast_src4.w[3], *len);
		return 0;
	}
	if (level == IPPROTO_IPV6 && name == IPV6_MULTICAST_IF && o->mcast_iface6) {
		int index = (int)pv_ifindex_public(o->mcast_iface6);

		*len = PV_MIN(*len, (socklen_t)sizeof(index));
		memcpy(val, &index, *len);
		return 0;
	}
	return -ENOPROTOOPT;
}
