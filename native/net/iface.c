/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces, our own addresses, and the flow rules by which a ring gives us what is for them. */
#include "net/internal.h"

static const uint8_t mac_broadcast[PV_ETH_ALEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

/* ---- the table of own addresses ------------------------------------------------------------------------------------------ */

static uint32_t local_slot(const struct pv_net *net, const struct pv_addr *addr)
{
	return pv_hash_addr(&net->key, addr, 0) % PV_LOCAL_SLOTS;
}

static void local_insert(struct pv_net *net, const struct pv_addr *addr, uint32_t iface, enum pv_local_kind kind)
{
	uint32_t i = local_slot(net, addr);

	while (net->local[i].kind)
		i = (i + 1) % PV_LOCAL_SLOTS;
	net->local[i] = (struct pv_local){ .addr = *addr, .iface = (uint16_t)iface, .kind = (uint8_t)kind };
}

static bool subnet_broadcast(const struct pv_ifaddr *a, struct pv_addr *out)
{
	if (!pv_addr_is4(&a->addr) || a->prefix_len > 30)
		return false;
	*out = a->addr;
	out->w[3] |= __builtin_bswap32((uint32_t)(UINT64_C(0xffffffff) >> a->prefix_len));
	return true;
}

/* Interfaces come and go rarely: the whole table is made again, in their order. */
static void local_rebuild(struct pv_net *net)
{
	memset(net->local, 0, PV_LOCAL_SLOTS * sizeof(*net->local));
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		const struct pv_iface *ifp = net->iface[i];
		struct pv_addr b;

		if (!ifp)
			continue;
		for (uint32_t k = 0; k < ifp->cfg.naddr; k++) {
			local_insert(net, &ifp->cfg.addr[k].addr, i, PV_LOCAL_UNICAST);
			if (subnet_broadcast(&ifp->cfg.addr[k], &b))
				local_insert(net, &b, i, PV_LOCAL_BCAST);
		}
	}
	pv_net_gen_bump(net);
}

/*
 * The host has its addresses on all interfaces (the weak model of RFC 1122 3.3.4.2, as Linux), but a link-local one counts only on
 * its link (RFC 4007). `iface` 0: any. Prefers the entry of `iface`.
 */
const struct pv_local *pv_local_find(const struct pv_net *net, const struct pv_addr *addr, uint32_t iface)
{
	const struct pv_local *found = NULL;
	bool scoped = iface && pv_addr_is_unicast_ll6(addr);

	for (uint32_t i = local_slot(net, addr); net->local[i].kind; i = (i + 1) % PV_LOCAL_SLOTS) {
		const struct pv_local *l = &net->local[i];

		if (!pv_addr_eq(&l->addr, addr))
			continue;
		if (l->iface == iface)
			return l;
		if (!found && !scoped)
			found = l;
	}
	return found;
}

uint32_t pv_net_addr_owner(const struct pv_net *net, const struct pv_addr *addr)
{
	const struct pv_local *l = pv_local_find(net, addr, 0);

	return l && l->kind == PV_LOCAL_UNICAST ? l->iface : 0;
}

bool pv_net_is_broadcast(const struct pv_net *net, const struct pv_addr *addr)
{
	const struct pv_local *l;

	if (!pv_addr_is4(addr))
		return false;
	if (pv_addr_is_bcast(addr))
		return true;
	l = pv_local_find(net, addr, 0);
	return l && l->kind == PV_LOCAL_BCAST;
}

bool pv_iface_owns(const struct pv_net *net, const struct pv_iface *ifp, const struct pv_addr *addr)
{
	const struct pv_local *l = pv_local_find(net, addr, ifp->index);

	return l && l->kind == PV_LOCAL_UNICAST && l->iface == ifp->index;
}

const struct pv_ifaddr *pv_iface_onlink(const struct pv_iface *ifp, const struct pv_addr *addr)
{
	for (uint32_t i = 0; i < ifp->cfg.naddr; i++) {
		const struct pv_ifaddr *a = &ifp->cfg.addr[i];

		if (pv_addr_is4(&a->addr) == pv_addr_is4(addr) && pv_addr_in(addr, &a->addr, pv_addr_plen(&a->addr, a->prefix_len)))
			return a;
	}
	return NULL;
}

/* ---- flow rules ---------------------------------------------------------------------------------------------------------- */

/* Only a ring that tells frames apart needs to be told which are ours. */
bool pv_iface_wants_flows(const struct pv_iface *ifp)
{
	return ifp->cfg.steer == PV_STEER_ADDRESS && ifp->ring->ops->flow_add &&
	       (ifp->ring->caps.flow_kinds & ~(1u << PV_FLOW_ALL));
}

/* Rule for one destination: by address where the ring can, else by its MAC (then shared by what has the same MAC). */
int pv_iface_flow_add(struct pv_iface *ifp, const struct pv_addr *dst, const uint8_t *mac, uint64_t *handle)
{
	struct pv_flow f = { .kind = PV_FLOW_IP, .vlan = ifp->vlan, .dst = *dst };

	memcpy(f.dst_mac, mac, PV_ETH_ALEN);
	if (!(ifp->ring->caps.flow_kinds & 1u << PV_FLOW_IP)) {
		f.kind = PV_FLOW_ETHER;
		f.ethertype = pv_addr_is4(dst) ? PV_ETHERTYPE_IP4 : PV_ETHERTYPE_IP6;
		memset(&f.dst, 0, sizeof(f.dst));
	}
	return pv_ring_flow_add(ifp->ring, &f, handle);
}

static int flow_keep(struct pv_iface *ifp, int rc, uint64_t handle)
{
	/* Two addresses with one rule (a ring that matches MACs only): once is enough. */
	if (rc == -EEXIST)
		return 0;
	if (rc < 0)
		return rc;
	ifp->flow[ifp->nflow++] = handle;
	return 0;
}

static int flow_ether(struct pv_iface *ifp, enum pv_flow_kind kind, const uint8_t *mac, uint16_t type)
{
	struct pv_flow f = { .kind = kind, .vlan = ifp->vlan, .ethertype = type };
	uint64_t handle = 0;
	int rc;

	memcpy(f.dst_mac, mac, PV_ETH_ALEN);
	rc = pv_ring_flow_add(ifp->ring, &f, &handle);
	return flow_keep(ifp, rc, handle);
}

static int flow_addr(struct pv_iface *ifp, const struct pv_addr *dst, const uint8_t *mac)
{
	uint64_t handle = 0;
	int rc = pv_iface_flow_add(ifp, dst, mac, &handle);

	return flow_keep(ifp, rc, handle);
}

static int flows_of_addresses(struct pv_iface *ifp)
{
	static const struct pv_addr limited = { .w = { 0, 0, PV_ADDR_MAPPED_W2, UINT32_MAX } };
	bool any4 = false;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ifp->cfg.naddr; i++) {
		const struct pv_ifaddr *a = &ifp->cfg.addr[i];
		struct pv_addr b;

		any4 = any4 || pv_addr_is4(&a->addr);
		rc = flow_addr(ifp, &a->addr, ifp->mac);
		if (!rc && subnet_broadcast(a, &b))
			rc = flow_addr(ifp, &b, mac_broadcast);
	}
	if (!rc && any4)
		rc = flow_addr(ifp, &limited, mac_broadcast);
	if (!rc && any4)
		rc = flow_ether(ifp, PV_FLOW_ETHER, mac_broadcast, PV_ETHERTYPE_ARP);
	if (!rc && any4)
		rc = flow_ether(ifp, PV_FLOW_ETHER, ifp->mac, PV_ETHERTYPE_ARP);
	return rc;
}

static void flows_del(struct pv_iface *ifp)
{
	while (ifp->nflow)
		pv_ring_flow_del(ifp->ring, ifp->flow[--ifp->nflow]);
}

static int flows_add(struct pv_iface *ifp)
{
	int rc;

	if (ifp->cfg.steer != PV_STEER_ADDRESS || !ifp->ring->ops->flow_add)
		return 0;
	if (pv_iface_wants_flows(ifp))
		rc = flows_of_addresses(ifp);
	else
		rc = flow_ether(ifp, PV_FLOW_ALL, ifp->mac, 0);
	if (rc)
		flows_del(ifp);
	return rc;
}

/* ---- adding and removing ------------------------------------------------------------------------------------------------- */

static bool addrs_ok(const struct pv_ifaddr *addr, uint32_t n)
{
	if (n > PV_IFACE_ADDR_MAX)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const struct pv_addr *a = &addr[i].addr;

		if (pv_addr_is_any(a) || pv_addr_is_mcast(a) || pv_addr_is_bcast(a) ||
		    addr[i].prefix_len > (pv_addr_is4(a) ? 32 : 128))
			return false;
	}
	return true;
}

static bool same_name(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static bool name_taken(const struct pv_net *net, const char *name, const struct pv_iface *but)
{
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++)
		if (net->iface[i] && net->iface[i] != but && same_name(net->iface[i]->cfg.name, name))
			return true;
	return false;
}

static int iface_check(const struct pv_net *net, const struct pv_iface_cfg *c)
{
	const struct pv_pool_cfg *pool = pv_pool_config(c->ring->pool);
	uint32_t mtu = c->mtu ? c->mtu : c->ring->caps.mtu, least = PV_IP4_LEAST_MTU;

	if (c->vlan > 4094 || !memchr(c->name, 0, sizeof(c->name)) || !addrs_ok(c->addr, c->naddr))
		return -EINVAL;
	for (uint32_t i = 0; i < c->naddr && c->steer == PV_STEER_ADDRESS; i++)
		least = PV_MAX(least, pv_addr_is4(&c->addr[i].addr) ? PV_IP4_MIN_MTU : PV_IP6_MIN_MTU);
	if (mtu < least || mtu > c->ring->caps.mtu)
		return -EINVAL;
	/* Control messages are built in one buffer, and answers are written where the question stood. */
	if (pool->headroom < PV_NET_HEADROOM || pool->buf_size < pool->headroom + PV_MIN(mtu, PV_IP6_MIN_MTU) + 64)
		return -EINVAL;
	return name_taken(net, c->name, NULL) ? -EEXIST : 0;
}

/* An interface with IPv6 has a link-local address (RFC 4291 2.8); made from the MAC (RFC 2464 5) when none is given. */
static void iface_linklocal(struct pv_iface *ifp)
{
	struct pv_iface_cfg *c = &ifp->cfg;
	bool v6 = false;

	for (uint32_t i = 0; i < c->naddr; i++) {
		v6 = v6 || !pv_addr_is4(&c->addr[i].addr);
		if (pv_addr_is_unicast_ll6(&c->addr[i].addr)) {
			ifp->linklocal = c->addr[i].addr;
			return;
		}
	}
	if (!v6 || c->naddr == PV_IFACE_ADDR_MAX || !ifp->resolves)
		return;
	ifp->linklocal = (struct pv_addr){ .b = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, ifp->mac[0] ^ 2, ifp->mac[1], ifp->mac[2], 0xff,
						  0xfe, ifp->mac[3], ifp->mac[4], ifp->mac[5] } };
	c->addr[c->naddr++] = (struct pv_ifaddr){ .addr = ifp->linklocal, .prefix_len = 64 };
}

static void iface_primary(struct pv_iface *ifp)
{
	for (uint32_t i = ifp->cfg.naddr; i-- > 0;) {
		const struct pv_ifaddr *a = &ifp->cfg.addr[i];
		struct pv_addr b;

		if (pv_addr_is4(&a->addr)) {
			ifp->ip4 = a->addr.w[3];
			ifp->bcast4 = subnet_broadcast(a, &b) ? b.w[3] : 0;
		} else if (!pv_addr_is_unicast_ll6(&a->addr) || pv_addr_eq(&a->addr, &ifp->linklocal)) {
			ifp->ip6 = a->addr;
		}
	}
}

static int iface_routes(struct pv_net *net, const struct pv_iface *ifp)
{
	static const struct pv_addr any4 = { .w = { 0, 0, PV_ADDR_MAPPED_W2, 0 } }, any6;
	const struct pv_iface_cfg *c = &ifp->cfg;
	int rc = 0;

	for (uint32_t i = 0; i < c->naddr && (!rc || rc == -EEXIST); i++)
		rc = pv_net_route_add(
		    net, &(struct pv_route){ .dst = c->addr[i].addr, .prefix_len = c->addr[i].prefix_len, .iface = ifp->index });
	if ((!rc || rc == -EEXIST) && !pv_addr_is_any(&c->gateway4))
		rc = pv_net_route_add(net, &(struct pv_route){ .dst = any4, .gateway = c->gateway4, .iface = ifp->index });
	if ((!rc || rc == -EEXIST) && !pv_addr_is_any(&c->gateway6))
		rc = pv_net_route_add(net, &(struct pv_route){ .dst = any6, .gateway = c->gateway6, .iface = ifp->index });
	return rc == -EEXIST ? 0 : rc;
}

/* Tells the link whose MAC our addresses are now (RFC 5227 2.3, RFC 4861 7.2.6); twice, as the first may be lost. */
static void iface_announce(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	struct pv_iface *ifp = pv_container_of(t, struct pv_iface, announce);

	for (uint32_t i = 0; i < ifp->cfg.naddr; i++) {
		if (pv_addr_is4(&ifp->cfg.addr[i].addr))
			pv_arp_announce(net, ifp, &ifp->cfg.addr[i].addr);
		else
			pv_nd_announce(net, ifp, &ifp->cfg.addr[i].addr);
	}
	if (--ifp->announces)
		pv_net_timer_set(net, t, now_ns + 2 * PV_NS_PER_S);
}

static void iface_fill(struct pv_iface *ifp, const struct pv_iface_cfg *cfg, uint32_t index)
{
	uint8_t first8[8] = { 0 };

	ifp->cfg = *cfg;
	ifp->ring = cfg->ring;
	ifp->index = (uint16_t)index;
	ifp->vlan = cfg->vlan;
	ifp->resolves = cfg->steer == PV_STEER_ADDRESS;
	if (!ifp->cfg.mtu)
		ifp->cfg.mtu = cfg->ring->caps.mtu;
	memcpy(ifp->mac, cfg->ring->caps.mac, PV_ETH_ALEN);
	memcpy(first8, ifp->mac, PV_ETH_ALEN);
	memcpy(&ifp->mac64, first8, sizeof(ifp->mac64));
	/* Tagged frames take the long way: no six bytes equal this. */
	if (cfg->vlan)
		ifp->mac64 = UINT64_MAX;
	ifp->defended_ns = INT64_MIN / 2;
	pv_list_init(&ifp->groups);
	iface_linklocal(ifp);
	iface_primary(ifp);
}

int pv_net_iface_add(struct pv_net *net, const struct pv_iface_cfg *cfg)
{
	struct pv_iface *ifp;
	uint32_t index = 1;
	int rc = iface_check(net, cfg);

	if (rc)
		return rc;
	while (index <= PV_IFACE_MAX && net->iface[index])
		index++;
	if (index > PV_IFACE_MAX)
		return -ENOSPC;
	ifp = pv_net_alloc(net, sizeof(*ifp));
	if (!ifp)
		return -ENOMEM;
	iface_fill(ifp, cfg, index);
	rc = flows_add(ifp);
	if (rc) {
		pv_net_free(net, ifp, sizeof(*ifp));
		return rc;
	}
	net->iface[index] = ifp;
	local_rebuild(net);
	rc = pv_iface_is_hosts(net, ifp) ? 0 : iface_routes(net, ifp);
	if (!rc)
		rc = pv_mcast_iface_init(net, ifp);
	if (rc) {
		pv_net_iface_del(net, index);
		return rc;
	}
	if (ifp->resolves && ifp->cfg.naddr) {
		ifp->announce.fn = iface_announce;
		ifp->announces = 2;
		pv_net_timer_set(net, &ifp->announce, 0);
	}
	return (int)index;
}

int pv_net_iface_set(struct pv_net *net, uint32_t index, const struct pv_iface_state *state)
{
	struct pv_iface *ifp = pv_net_iface(net, index);

	if (!ifp)
		return -ENODEV;
	if (ifp->resolves || !memchr(state->name, 0, sizeof(state->name)) || !addrs_ok(state->addr, state->naddr) ||
	    state->mtu < PV_IP4_LEAST_MTU)
		return -EINVAL;
	if (name_taken(net, state->name, ifp))
		return -EEXIST;
	memcpy(ifp->cfg.name, state->name, sizeof(ifp->cfg.name));
	if (state->naddr)
		memcpy(ifp->cfg.addr, state->addr, state->naddr * sizeof(*state->addr));
	ifp->cfg.naddr = state->naddr;
	ifp->cfg.mtu = PV_MIN(state->mtu, ifp->ring->caps.mtu);
	ifp->ring->caps.link_up = state->link_up;
	ifp->ip4 = ifp->bcast4 = 0;
	ifp->ip6 = ifp->linklocal = (struct pv_addr){ 0 };
	iface_linklocal(ifp);
	iface_primary(ifp);
	local_rebuild(net);
	/* Frames that the ring kept while the link was down. */
	if (state->link_up)
		net->head.dirty |= 1u << (index - 1);
	return 0;
}

int pv_net_iface_del(struct pv_net *net, uint32_t index)
{
	struct pv_iface *ifp = pv_net_iface(net, index);
	struct pv_pktq keep;
	struct pv_pkt *pkt;

	if (!ifp)
		return -ENODEV;
	pv_net_timer_del(net, &ifp->announce);
	pv_net_timer_del(net, &ifp->relink);
	pv_mcast_del_iface(net, ifp);
	pv_txq_del_iface(net, index);
	pv_txlane_del_iface(net, index);
	pv_neigh_del_iface(net, index);
	pv_reass_del_iface(net, index);
	pv_route_del_iface(net, index);
	flows_del(ifp);
	pv_pktq_init(&keep);
	while ((pkt = pv_pktq_pop(&net->loop))) {
		if (pkt->iface == index)
			pv_pkt_put(pkt);
		else
			pv_pktq_push(&keep, pkt);
	}
	while ((pkt = pv_pktq_pop(&keep)))
		pv_pktq_push(&net->loop, pkt);
	net->head.looped = net->loop.count;
	/* Leaves (group reports) may just have been posted. */
	if (net->head.dirty & 1u << (index - 1))
		pv_ring_tx_kick(ifp->ring);
	net->head.dirty &= ~(1u << (index - 1));
	net->iface[index] = NULL;
	local_rebuild(net);
	pv_net_free(net, ifp, sizeof(*ifp));
	return 0;
}

int pv_net_iface_fail(struct pv_net *net, uint32_t index)
{
	struct pv_iface *ifp = pv_net_iface(net, index);

	if (!ifp)
		return -ENODEV;
	ifp->failed = true;
	pv_net_gen_bump(net);
	return 0;
}

int pv_net_iface_moved(struct pv_net *net, uint32_t index, int64_t now_ns)
{
	if (!pv_net_iface(net, index))
		return -ENODEV;
	/* How a path sends hangs on what its ring can do. */
	pv_net_gen_bump(net);
	pv_txq_moved(net, index, now_ns);
	return 0;
}

struct pv_iface *pv_net_iface(struct pv_net *net, uint32_t index)
{
	return index - 1 < PV_IFACE_MAX ? net->iface[index] : NULL;
}

const struct pv_iface_cfg *pv_iface_config(const struct pv_iface *ifp)
{
	return &ifp->cfg;
}

struct pv_ring *pv_iface_ring(struct pv_iface *ifp)
{
	return ifp->ring;
}
