/* SPDX-License-Identifier: BSD-3-Clause */
/* The layer as a whole: open, close, doorbells, timers. */
#include "net/internal.h"

#define RELINK_NS (20 * PV_NS_PER_MS)

static void net_defaults(struct pv_net_cfg *c)
{
	if (!c->neigh_max)
		c->neigh_max = 1024;
	if (!c->neigh_queue)
		c->neigh_queue = 64;
	if (!c->reass_max)
		c->reass_max = 256;
	if (!c->reass_bytes)
		c->reass_bytes = 4u << 20;
	if (c->reass_timeout_ns <= 0)
		c->reass_timeout_ns = 30 * PV_NS_PER_S; /* Linux's ipfrag_time */
	if (!c->icmp_rate)
		c->icmp_rate = 1000;
}

static void net_free(struct pv_net *net)
{
	pv_mcast_close(net);
	pv_reass_close(net);
	pv_neigh_close(net);
	pv_route_close(net);
	pv_host_seen_close(net);
	pv_stamps_close(net);
	pv_txq_fini(net);
	pv_txlane_fini(net);
	pv_heap_fini(&net->head.timers);
	pv_net_free(net, net->ip_id, PV_IP_ID_SLOTS * sizeof(*net->ip_id));
	pv_net_free(net, net->pmtu, PV_PMTU_MAX * sizeof(*net->pmtu));
	pv_net_free(net, net->local, PV_LOCAL_SLOTS * sizeof(*net->local));
	pv_mem_hide(net->mem, net->shown);
	pv_mem_free_shown(net->mem, net, sizeof(*net));
}

static int net_init(struct pv_net *net)
{
	int rc;

	net->local = pv_net_alloc(net, PV_LOCAL_SLOTS * sizeof(*net->local));
	net->pmtu = pv_net_alloc(net, PV_PMTU_MAX * sizeof(*net->pmtu));
	net->ip_id = pv_net_alloc(net, PV_IP_ID_SLOTS * sizeof(*net->ip_id));
	if (!net->local || !net->pmtu || !net->ip_id)
		return -ENOMEM;
	for (uint32_t i = 0; i < PV_IP_ID_SLOTS; i++)
		net->ip_id[i] = pv_rng_u32(&net->rng);
	rc = pv_heap_init(&net->head.timers, net->mem, pv_net_timers_max(net, 0, 0));
	if (!rc)
		rc = pv_route_open(net);
	if (!rc)
		rc = pv_neigh_open(net);
	if (!rc)
		rc = pv_reass_open(net);
	if (!rc)
		rc = pv_mcast_open(net);
	if (!rc)
		rc = pv_txq_init(net);
	if (!rc && net->cfg.host)
		rc = pv_host_seen_open(net);
	return rc;
}

int pv_net_open(struct pv_net **out, const struct pv_net_cfg *cfg)
{
	struct pv_net *net = pv_mem_alloc_shown(cfg->mem, sizeof(*net));
	uint64_t seed = cfg->seed;
	int rc;

	if (!net)
		return -ENOMEM;
	net->mem = cfg->mem;
	net->head.lanes = cfg->lane != NULL;
	net->shown = pv_mem_show(net->mem, &pv_net_stat_type, &net->c);
	net->cfg = *cfg;
	net_defaults(&net->cfg);
	net->head.gen = 1;
	net->head.trace = cfg->trace;
	pv_rng_seed(&net->rng, pv_splitmix64(&seed));
	net->key = pv_hash_key(pv_splitmix64(&seed));
	net->sip = pv_siphash_key(pv_splitmix64(&seed));
	pv_pktq_init(&net->loop);
	rc = net_init(net);
	if (rc) {
		net_free(net);
		return rc;
	}
	*out = net;
	return 0;
}

void pv_net_tune(struct pv_net *net, uint32_t icmp_rate, int64_t reass_timeout_ns)
{
	net->cfg.icmp_rate = icmp_rate;
	net->cfg.reass_timeout_ns = reass_timeout_ns;
	net_defaults(&net->cfg);
}

void pv_net_close(struct pv_net *net)
{
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++)
		if (net->iface[i])
			pv_net_iface_del(net, i);
	net_free(net);
}

const struct pv_net_counters *pv_net_counters(const struct pv_net *net)
{
	return &net->c;
}

const struct pv_net_error *pv_net_rx_error(const struct pv_net *net)
{
	return &net->err;
}

static void relink(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	(void)now_ns;
	net->head.dirty |= 1u << (pv_container_of(t, struct pv_iface, relink)->index - 1);
}

/* Without a link a kick is in vain until it is back. The interface's state tells of that (pv_net_iface_set); one with addresses of its own
 * has nobody to tell it, and is tried now and then. */
static bool waits_for_link(struct pv_net *net, struct pv_iface *ifp)
{
	if (ifp->ring->caps.link_up)
		return false;
	if (ifp->resolves) {
		ifp->relink.fn = relink;
		pv_net_timer_set(net, &ifp->relink, net->now_ns + RELINK_NS);
	}
	return true;
}

/* Not held, but queues wait for it. */
static pv_noinline int kick_rare(struct pv_net *net)
{
	int rc;

	net->head.going = false;
	rc = pv_net_kick(net);
	pv_txq_left(net);
	return rc;
}

/* Some frames have not left: the next kick tries again. */
static pv_noinline int kick_failed(struct pv_net *net, uint32_t bit, int rc)
{
	if (rc == -EAGAIN && waits_for_link(net, net->iface[bit + 1]))
		return 0;
	if (rc == -EAGAIN)
		net->head.dirty |= 1u << bit;
	return rc;
}

pv_inline int kick_one(struct pv_net *net, uint32_t bit)
{
	int rc = pv_ring_tx_kick(net->iface[bit + 1]->ring);

	return pv_unlikely(rc) ? kick_failed(net, bit, rc) : 0;
}

static pv_noinline int kick_several(struct pv_net *net, uint32_t dirty)
{
	int rc = 0;

	for (; dirty; dirty &= dirty - 1) {
		int r = kick_one(net, (uint32_t)__builtin_ctz(dirty));

		rc = r ? r : rc;
	}
	return rc;
}

int pv_net_kick(struct pv_net *net)
{
	uint32_t dirty = net->head.dirty;

	if (pv_unlikely(net->head.not_plain))
		return net->head.held ? 0 : kick_rare(net);
	net->head.dirty = 0;
	net->head.left = false;
	if (!dirty)
		return 0;
	return pv_likely(!(dirty & (dirty - 1))) ? kick_one(net, (uint32_t)__builtin_ctz(dirty)) : kick_several(net, dirty);
}

struct pv_pkt *pv_net_loop_get(struct pv_net *net, uint32_t *iface)
{
	struct pv_pkt *pkt = pv_pktq_pop(&net->loop);

	net->head.looped = net->loop.count;
	if (pkt) {
		pkt->next = NULL;
		*iface = pkt->iface;
	}
	return pkt;
}

uint32_t pv_net_timers(struct pv_net *net, int64_t now_ns, uint32_t budget)
{
	uint32_t n = 0;

	if (pv_likely(pv_heap_deadline(&net->head.timers) > now_ns))
		return 0;
	net->now_ns = now_ns;
	while (n < budget) {
		struct pv_timer *t = pv_heap_pop_due(&net->head.timers, now_ns);
		struct pv_net_timer *nt;

		if (!t)
			break;
		nt = pv_container_of(t, struct pv_net_timer, t);
		nt->fn(net, nt, now_ns);
		n++;
	}
	return n;
}

uint64_t pv_net_chain_sum(const struct pv_pkt *pkt)
{
	uint64_t sum = 0;
	size_t off = 0;

	for (; pkt; pkt = pkt->frag) {
		sum = pv_cksum_merge(sum, pv_cksum_at(pv_cksum_add(pkt->data, pkt->len, 0), off));
		off += pkt->len;
	}
	return sum;
}

/* The same of the ring that it came by: the `i`-th counter, where that is of a drop. */
static void count_ring(struct pv_net *net, const struct pv_pkt *pkt, size_t i)
{
	const size_t first = offsetof(struct pv_net_counters, rx_short) / sizeof(uint64_t);
	struct pv_iface *ifp = pkt->iface <= PV_IFACE_MAX ? net->iface[pkt->iface] : NULL;

	if (ifp && i - first < sizeof(struct pv_ring_drops) / sizeof(uint64_t))
		((uint64_t *)(void *)&ifp->ring->stat->drops)[i - first]++;
}
_Static_assert(offsetof(struct pv_net_counters, reass_bad) - offsetof(struct pv_net_counters, rx_short) ==
		   offsetof(struct pv_ring_drops, reass_bad),
	       "one list");

pv_noinline void pv_net_lost(struct pv_net *net, const struct pv_pkt *pkt, uint64_t *counter)
{
	static const char *const names[] = { PV_NET_COUNTERS(PV_COUNTER_NAME) };
	size_t i = (size_t)(counter - (const uint64_t *)(const void *)&net->c);
	struct pv_trace_event e = { .kind = PV_TRACE_drop, .a = PV_TRACE_REASON(PV_TRACE_NET, i) };

	++*counter;
	if (pkt) {
		count_ring(net, pkt, i);
		e.iface = pkt->iface;
		e.b = pkt->len;
	}
	pv_trace_drop(net->head.trace, &e, names[i]);
}

struct pv_pkt *pv_net_pkt(struct pv_net *net, struct pv_ring *ring)
{
	struct pv_pkt *pkt = pv_pkt_get(ring->pool);

	if (!pkt) {
		pv_net_lost(net, NULL, &net->c.tx_no_buf);
		return NULL;
	}
	pkt->data = pkt->buf + PV_MAX(pv_pkt_headroom(pkt), PV_NET_HEADROOM);
	return pkt;
}
