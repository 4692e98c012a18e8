/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Neighbours, IPv4 and IPv6 alike: the states of RFC 4861 7.3.2, with ARP or ND beneath.
 *
 *   NONE -> INCOMPLETE -> REACHABLE -> STALE -> DELAY -> PROBE -> REACHABLE ...
 *              |                                           |
 *           FAILED (refuses for a second, then asks again) NONE
 *
 * Entries are of a fixed array and never freed before close, so that a path may look at `state` without asking whether the entry
 * still is the one it meant: reuse and change of a MAC move the generation.
 */
#include "net/internal.h"

/* RFC 4861 10. */
#define RETRANS_NS (1 * PV_NS_PER_S)
#define REACHABLE_NS (30 * PV_NS_PER_S)
#define DELAY_NS (5 * PV_NS_PER_S)
#define PROBES 3u
/* The kernel's own verdict comes first, unless its message was lost. */
#define HOST_PROBES 6u
#define FAILED_HOLD_NS (1 * PV_NS_PER_S)
#define EVICT_LOOK 16u

static void neigh_timer(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns);

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

int pv_neigh_open(struct pv_net *net)
{
	uint32_t n = net->cfg.neigh_max;

	pv_list_init(&net->neigh_lru[0]);
	pv_list_init(&net->neigh_lru[1]);
	pv_list_init(&net->neigh_free);
	net->neigh = pv_net_alloc(net, n * sizeof(*net->neigh));
	if (!net->neigh)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		net->neigh[i].timer.fn = neigh_timer;
		pv_pktq_init(&net->neigh[i].queue);
		pv_list_add(&net->neigh_free, &net->neigh[i].lru);
	}
	return pv_htab_init(&net->neigh_tab, net->mem, n);
}

static void neigh_state(struct pv_net *net, struct pv_neigh *n, enum pv_neigh_state state)
{
	if (n->state == state)
		return;
	pv_trace_note(net->head.trace, .kind = PV_TRACE_neighbour, .a = n->state, .b = state, .iface = (uint8_t)n->iface,
		      .peer = n->addr);
	n->state = (uint8_t)state;
}

static void neigh_drop_queue(struct pv_net *net, struct pv_neigh *n)
{
	struct pv_pkt *pkt;

	while ((pkt = pv_pktq_pop(&n->queue))) {
		pv_net_drop(net, pkt, &net->c.tx_no_neigh);
	}
}

static void neigh_free(struct pv_net *net, struct pv_neigh *n)
{
	pv_net_timer_del(net, &n->timer);
	neigh_drop_queue(net, n);
	pv_htab_del(&net->neigh_tab, &n->node);
	pv_list_del(&n->lru);
	neigh_state(net, n, PV_NEIGH_FREE);
	pv_list_add(&net->neigh_free, &n->lru);
	pv_net_gen_bump(net);
}

void pv_neigh_close(struct pv_net *net)
{
	if (net->neigh_tab.bucket)
		pv_htab_fini(&net->neigh_tab);
	pv_net_free(net, net->neigh, net->cfg.neigh_max * sizeof(*net->neigh));
}

void pv_neigh_del_iface(struct pv_net *net, uint32_t iface)
{
	for (uint32_t i = 0; i < net->cfg.neigh_max; i++)
		if (net->neigh[i].state != PV_NEIGH_FREE && net->neigh[i].iface == iface)
			neigh_free(net, &net->neigh[i]);
}

struct pv_neigh *pv_neigh_find(const struct pv_net *net, uint32_t iface, const struct pv_addr *addr)
{
	pv_htab_for_each(h, &net->neigh_tab, pv_hash_addr(&net->key, addr, iface))
	{
		struct pv_neigh *n = pv_htab_entry(h, struct pv_neigh, node);

		if (n->iface == iface && pv_addr_eq(&n->addr, addr))
			return n;
	}
	return NULL;
}

/* Newest of its list. */
static void neigh_touch(struct pv_net *net, struct pv_neigh *n)
{
	if (n->state == PV_NEIGH_PERMANENT)
		return;
	pv_list_del(&n->lru);
	pv_list_add(&net->neigh_lru[n->used], &n->lru);
}

/* The oldest; better, among the oldest, one that does not answer: who talks to many that do not exist shall not lose those that do. */
static struct pv_neigh *neigh_oldest(const struct pv_list *lru)
{
	struct pv_neigh *oldest = NULL;
	uint32_t looked = 0;

	pv_list_for_each(it, lru) {
		struct pv_neigh *n = pv_list_entry(it, struct pv_neigh, lru);

		if (n->state < PV_NEIGH_STALE)
			return n;
		oldest = oldest ? oldest : n;
		if (++looked == EVICT_LOOK)
			break;
	}
	return oldest;
}

/* Strangers (who asked for us, and whom we never answered but by that) only push out strangers. */
static bool neigh_make_room(struct pv_net *net, bool ours)
{
	struct pv_neigh *n;

	if (!pv_list_empty(&net->neigh_free))
		return true;
	n = neigh_oldest(&net->neigh_lru[0]);
	if (!n && ours)
		n = neigh_oldest(&net->neigh_lru[1]);
	if (n)
		neigh_free(net, n);
	return n;
}

struct pv_neigh *pv_neigh_get(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, bool ours)
{
	struct pv_neigh *n = pv_neigh_find(net, iface, addr);

	if (!n) {
		if (!neigh_make_room(net, ours))
			return NULL;
		n = pv_list_entry(net->neigh_free.next, struct pv_neigh, lru);
		n->used = false;
		n->probes = 0;
		n->iface = (uint16_t)iface;
		n->addr = *addr;
		neigh_state(net, n, PV_NEIGH_NONE);
		n->changed_ns = INT64_MIN / 2;
		memset(n->mac, 0, sizeof(n->mac));
		pv_htab_add_fixed(&net->neigh_tab, &n->node, pv_hash_addr(&net->key, addr, iface));
	}
	n->used = n->used || ours;
	if (ours || n->state == PV_NEIGH_NONE)
		neigh_touch(net, n);
	return n;
}

int pv_net_neigh_add(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, const uint8_t mac[PV_ETH_ALEN])
{
	struct pv_neigh *n;

	if (!pv_net_iface(net, iface))
		return -ENODEV;
	if (pv_addr_is_any(addr) || pv_addr_is_mcast(addr) || pv_addr_is_bcast(addr) || pv_mac_is_group(mac))
		return -EINVAL;
	n = pv_neigh_get(net, iface, addr, true);
	if (!n)
		return -ENOBUFS;
	if (n->state != PV_NEIGH_PERMANENT) {
		pv_neigh_heard(net, n, mac, true, true, net->now_ns);
		pv_net_timer_del(net, &n->timer);
		pv_list_del(&n->lru);
		neigh_state(net, n, PV_NEIGH_PERMANENT);
	}
	memcpy(n->mac, mac, PV_ETH_ALEN);
	pv_net_gen_bump(net);
	return 0;
}

int pv_net_neigh_del(struct pv_net *net, uint32_t iface, const struct pv_addr *addr)
{
	struct pv_neigh *n = pv_neigh_find(net, iface, addr);

	if (!n)
		return -ESRCH;
	neigh_free(net, n);
	return 0;
}

/* ---- asking -------------------------------------------------------------------------------------------------------------- */

static void neigh_ask_host(struct pv_net *net, const struct pv_neigh *n)
{
	const struct pv_addr addr = n->addr;

	if (net->cfg.host)
		net->cfg.host->resolve(net->cfg.host_ctx, net->iface[n->iface]->cfg.kernel_index, &addr);
}

static void neigh_solicit(struct pv_net *net, struct pv_neigh *n, bool unicast, int64_t now_ns)
{
	struct pv_iface *ifp = net->iface[n->iface];

	n->probes++;
	pv_net_timer_set(net, &n->timer, now_ns + RETRANS_NS);
	/* Where the kernel owns the interface it asks, and the answers go to it. */
	if (!ifp->resolves) {
		neigh_ask_host(net, n);
		return;
	}
	if (pv_addr_is4(&n->addr))
		pv_arp_request(net, ifp, &n->addr, &n->probe_src, unicast ? n->mac : NULL);
	else
		pv_nd_solicit(net, ifp, &n->addr, &n->probe_src, unicast, now_ns);
}

static void neigh_fail(struct pv_net *net, struct pv_neigh *n, int64_t now_ns)
{
	struct pv_pkt *pkt;

	neigh_state(net, n, PV_NEIGH_FAILED);
	n->changed_ns = now_ns;
	while ((pkt = pv_pktq_pop(&n->queue))) {
		pv_net_lost(net, pkt, &net->c.tx_no_neigh);
		pv_icmp_host_unreachable(net, pkt);
	}
}

static void neigh_reachable(struct pv_net *net, struct pv_neigh *n, int64_t now_ns)
{
	/* RFC 4861 6.3.2: between half and one and a half times the base. */
	int64_t ns = REACHABLE_NS / 2 + (int64_t)pv_rng_below(&net->rng, (uint64_t)REACHABLE_NS);

	neigh_state(net, n, PV_NEIGH_REACHABLE);
	n->probes = 0;
	n->changed_ns = now_ns;
	pv_net_timer_set(net, &n->timer, now_ns + ns);
	neigh_touch(net, n);
}

static void neigh_timer(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	struct pv_neigh *n = pv_container_of(t, struct pv_neigh, timer);

	switch (n->state) {
	case PV_NEIGH_INCOMPLETE:
		if (n->probes < (pv_iface_is_hosts(net, net->iface[n->iface]) ? HOST_PROBES : PROBES))
			neigh_solicit(net, n, false, now_ns);
		else
			neigh_fail(net, n, now_ns);
		break;
	case PV_NEIGH_REACHABLE:
		neigh_state(net, n, PV_NEIGH_STALE);
		break;
	case PV_NEIGH_DELAY:
		/* The kernel probes; until it says otherwise its MAC is good. */
		if (pv_iface_is_hosts(net, net->iface[n->iface])) {
			neigh_reachable(net, n, now_ns);
			neigh_ask_host(net, n);
			break;
		}
		neigh_state(net, n, PV_NEIGH_PROBE);
		n->probes = 0;
		neigh_solicit(net, n, true, now_ns);
		break;
	case PV_NEIGH_PROBE:
		if (n->probes < PROBES)
			neigh_solicit(net, n, true, now_ns);
		else
			neigh_state(net, n, PV_NEIGH_NONE); /* its MAC may be another by now: the next packet asks everybody */
		break;
	default:
		break;
	}
}

/* ---- sending ------------------------------------------------------------------------------------------------------------- */

/* Many neighbours that do not answer could otherwise hold every packet between them: also what a stranger's addresses made us send. */
static bool pool_is_short(const struct pv_pool *pool)
{
	struct pv_pool_stats st;

	pv_pool_get_stats(pool, &st);
	return st.free < PV_MAX(st.total / 16, 1u);
}

static int neigh_enqueue(struct pv_net *net, struct pv_neigh *n, struct pv_pkt *pkt)
{
	pv_pktq_push(&n->queue, pkt);
	if (n->queue.count > net->cfg.neigh_queue || pool_is_short(pkt->pool)) {
		/* The oldest goes, as in Linux and RFC 4861 7.2.2. */
		pv_net_drop(net, pv_pktq_pop(&n->queue), &net->c.tx_neigh_queue);
	}
	return 0;
}

int pv_neigh_output(struct pv_net *net, struct pv_neigh *n, const struct pv_addr *src, struct pv_pkt *pkt, int64_t now_ns)
{
	switch (n->state) {
	case PV_NEIGH_FAILED:
		if (now_ns - n->changed_ns < FAILED_HOLD_NS) {
			pv_net_drop(net, pkt, &net->c.tx_no_neigh);
			return -EHOSTUNREACH;
		}
		/* fall through */
	case PV_NEIGH_NONE:
		neigh_state(net, n, PV_NEIGH_INCOMPLETE);
		n->probes = 0;
		n->probe_src = *src;
		neigh_enqueue(net, n, pkt);
		neigh_solicit(net, n, false, now_ns);
		return 0;
	case PV_NEIGH_INCOMPLETE:
		return neigh_enqueue(net, n, pkt);
	case PV_NEIGH_STALE:
		/* RFC 4861 7.3.3: sends to the old MAC, and checks it if nobody confirms soon. */
		neigh_state(net, n, PV_NEIGH_DELAY);
		n->probe_src = *src;
		pv_net_timer_set(net, &n->timer, now_ns + DELAY_NS);
		break;
	default:
		break;
	}
	memcpy(pkt->data, n->mac, PV_ETH_ALEN);
	return pv_tx_post(net, n->iface, net->iface[n->iface]->ring, pkt);
}

/* ---- hearing ------------------------------------------------------------------------------------------------------------- */

static void neigh_flush(struct pv_net *net, struct pv_neigh *n)
{
	struct pv_iface *ifp = net->iface[n->iface];
	struct pv_pkt *pkt;

	while ((pkt = pv_pktq_pop(&n->queue))) {
		pkt->next = NULL;
		memcpy(pkt->data, n->mac, PV_ETH_ALEN);
		if (pv_unlikely(pkt->flags & PV_PKT_TX_QUEUE))
			pv_pkt_set_txq(pkt, pv_txlane_still(net, n->iface, pv_pkt_txq(pkt)));
		pv_tx_post(net, n->iface, ifp->ring, pkt);
	}
}

static void neigh_stale(struct pv_net *net, struct pv_neigh *n)
{
	neigh_state(net, n, PV_NEIGH_STALE);
	pv_net_timer_del(net, &n->timer);
}

void pv_neigh_heard(struct pv_net *net, struct pv_neigh *n, const uint8_t *mac, bool confirmed, bool override, int64_t now_ns)
{
	bool known = n->state >= PV_NEIGH_STALE, same = pv_mac_eq(n->mac, mac);
	static const uint8_t never[PV_ETH_ALEN];

	if (n->state == PV_NEIGH_PERMANENT)
		return;
	if (known && !same && !override) {
		/* RFC 4861 7.2.5: doubt, but no change. */
		if (n->state == PV_NEIGH_REACHABLE)
			neigh_stale(net, n);
		return;
	}
	if (!same) {
		/* Paths have the MAC it had, also if it did not answer for a while. */
		if (!pv_mac_eq(n->mac, never))
			pv_net_gen_bump(net);
		memcpy(n->mac, mac, PV_ETH_ALEN);
		n->changed_ns = now_ns;
	}
	if (confirmed)
		neigh_reachable(net, n, now_ns);
	else if (!same || !known)
		neigh_stale(net, n);
	neigh_flush(net, n);
}

/* ---- what the kernel tells of its interfaces' neighbours -------------------------------------------------------------------- */

static int host_neigh(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, struct pv_neigh **out)
{
	if (!pv_net_iface(net, iface))
		return -ENODEV;
	*out = pv_neigh_find(net, iface, addr);
	return *out && (*out)->state != PV_NEIGH_PERMANENT ? 0 : -ESRCH;
}

int pv_net_neigh_set(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, const uint8_t *mac, int64_t now_ns)
{
	struct pv_neigh *n;
	int rc = host_neigh(net, iface, addr, &n);

	if (rc)
		return rc;
	if (mac) {
		if (pv_mac_is_group(mac))
			return -EINVAL;
		pv_neigh_heard(net, n, mac, true, true, now_ns);
	} else if (n->state != PV_NEIGH_INCOMPLETE) {
		/* The next packet asks. */
		neigh_state(net, n, PV_NEIGH_NONE);
		pv_net_timer_del(net, &n->timer);
	}
	return 0;
}

int pv_net_neigh_fail(struct pv_net *net, uint32_t iface, const struct pv_addr *addr, int64_t now_ns)
{
	struct pv_neigh *n;
	int rc = host_neigh(net, iface, addr, &n);

	if (rc)
		return rc;
	pv_net_timer_del(net, &n->timer);
	neigh_fail(net, n, now_ns);
	return 0;
}

void pv_net_neigh_doubt(struct pv_net *net)
{
	for (uint32_t i = 0; i < net->cfg.neigh_max; i++) {
		struct pv_neigh *n = &net->neigh[i];

		/* What waits for an answer asks again by itself. */
		if (n->state == PV_NEIGH_FREE || n->state == PV_NEIGH_PERMANENT || n->state == PV_NEIGH_INCOMPLETE ||
		    !pv_iface_is_hosts(net, net->iface[n->iface]))
			continue;
		neigh_state(net, n, PV_NEIGH_NONE);
		pv_net_timer_del(net, &n->timer);
	}
}
