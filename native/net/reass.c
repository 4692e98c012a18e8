/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reassembly (RFC 791 3.2, RFC 8200 4.5). The received buffers themselves are chained, in order; nothing is copied.
 *
 * Bounds: datagrams, bytes of buffers, fragments of one datagram, and time. When memory is short the oldest datagram goes: under a
 * flood of pieces that never become whole, new ones still get their chance.
 * Overlaps: a fragment that repeats what is there is a duplicate and dropped; any other overlap gives up the datagram (RFC 5722,
 * and Linux since 4.19 for IPv4 too). For IPv6 the rest of it is refused as well, until it would have timed out.
 */
#include "net/internal.h"

#define FRAGS_MAX 256u /* 64 KiB in pieces of the smallest MTU in use (296) are 238 */

/* What the chain keeps in each packet while it is here. */
#define FRAG_OFF(p) ((p)->priv[0])
#define FRAG_END(p) ((p)->priv[1])

static void reass_timeout(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns);

int pv_reass_open(struct pv_net *net)
{
	uint32_t n = net->cfg.reass_max;

	pv_list_init(&net->reass_age);
	pv_list_init(&net->reass_free);
	net->reass = pv_net_alloc(net, n * sizeof(*net->reass));
	if (!net->reass)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		net->reass[i].timer.fn = reass_timeout;
		pv_list_add(&net->reass_free, &net->reass[i].age);
	}
	return pv_htab_init(&net->reass_tab, net->mem, n);
}

/* Lets go of the buffers. */
static void reass_clear(struct pv_net *net, struct pv_reass *r)
{
	if (r->head)
		pv_pkt_put(r->head);
	net->reass_held -= r->bytes;
	r->head = r->tail = NULL;
	r->bytes = 0;
}

static void reass_free(struct pv_net *net, struct pv_reass *r)
{
	reass_clear(net, r);
	pv_net_timer_del(net, &r->timer);
	pv_htab_del(&net->reass_tab, &r->node);
	pv_list_del(&r->age);
	pv_list_add(&net->reass_free, &r->age);
}

void pv_reass_close(struct pv_net *net)
{
	while (net->reass && !pv_list_empty(&net->reass_age))
		reass_free(net, pv_list_entry(net->reass_age.next, struct pv_reass, age));
	if (net->reass_tab.bucket)
		pv_htab_fini(&net->reass_tab);
	pv_net_free(net, net->reass, net->cfg.reass_max * sizeof(*net->reass));
}

void pv_reass_del_iface(struct pv_net *net, uint32_t iface)
{
	pv_list_for_each_safe(it, tmp, &net->reass_age) {
		struct pv_reass *r = pv_list_entry(it, struct pv_reass, age);

		if (r->iface == iface)
			reass_free(net, r);
	}
}

static void reass_timeout(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	struct pv_reass *r = pv_container_of(t, struct pv_reass, timer);

	if (!r->dead) {
		pv_net_lost(net, r->head, &net->c.reass_timeout);
		/* RFC 1122 3.3.2, RFC 8200 4.5: only when the first fragment is here. */
		if (r->have_first)
			pv_icmp_error(net, r->head, pv_addr_is4(&r->src) ? PV_ICMP4_TIME_EXCEEDED : PV_ICMP6_TIME_EXCEEDED, 1, 0,
				      now_ns);
	}
	reass_free(net, r);
}

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

static uint32_t reass_hash(const struct pv_net *net, const struct pv_frag_info *fi)
{
	struct {
		struct pv_addr src, dst;
		uint64_t id;
	} key = { fi->src, fi->dst, (uint64_t)fi->proto << 32 | fi->id };

	return (uint32_t)pv_siphash(&net->sip, &key, sizeof(key));
}

/* The interface is part of the key: buffers of one chain are of one pool. */
static struct pv_reass *reass_find(const struct pv_net *net, uint32_t iface, const struct pv_frag_info *fi, uint32_t hash)
{
	pv_htab_for_each(h, &net->reass_tab, hash)
	{
		struct pv_reass *r = pv_htab_entry(h, struct pv_reass, node);

		if (r->id == fi->id && r->proto == fi->proto && r->iface == iface && pv_addr_eq(&r->src, &fi->src) &&
		    pv_addr_eq(&r->dst, &fi->dst))
			return r;
	}
	return NULL;
}

static void reass_evict(struct pv_net *net)
{
	struct pv_reass *r = pv_list_entry(net->reass_age.next, struct pv_reass, age);

	if (!r->dead)
		pv_net_lost(net, r->head, &net->c.reass_full);
	reass_free(net, r);
}

static struct pv_reass *reass_get(struct pv_net *net, uint32_t iface, const struct pv_frag_info *fi, int64_t now_ns)
{
	uint32_t hash = reass_hash(net, fi);
	struct pv_reass *r = reass_find(net, iface, fi, hash);
	struct pv_net_timer timer;

	if (r)
		return r;
	if (pv_list_empty(&net->reass_free))
		reass_evict(net);
	r = pv_list_entry(net->reass_free.next, struct pv_reass, age);
	pv_list_del(&r->age);
	timer = r->timer;
	memset(r, 0, sizeof(*r));
	r->timer = timer;
	r->src = fi->src;
	r->dst = fi->dst;
	r->id = fi->id;
	r->proto = fi->proto;
	r->iface = (uint8_t)iface;
	pv_list_add(&net->reass_age, &r->age);
	pv_htab_add_fixed(&net->reass_tab, &r->node, hash);
	pv_net_timer_set(net, &r->timer, now_ns + net->cfg.reass_timeout_ns);
	return r;
}

/* ---- adding -------------------------------------------------------------------------------------------------------------- */

enum place { PLACED, DUPLICATE, IMPOSSIBLE };

/* Behind the last one that starts before it, if it overlaps neither neighbour. */
static enum place reass_insert(struct pv_reass *r, struct pv_pkt *pkt)
{
	uint64_t off = FRAG_OFF(pkt), end = FRAG_END(pkt), run_off = 0, run_end = 0;
	struct pv_pkt **link = &r->head, *p;

	/* In order: the rule. */
	if (r->tail && off >= FRAG_END(r->tail)) {
		r->tail->frag = pkt;
		r->tail = pkt;
		return PLACED;
	}
	for (p = r->head; p && FRAG_OFF(p) < end; p = p->frag) {
		if (FRAG_OFF(p) != run_end)
			run_off = FRAG_OFF(p);
		run_end = FRAG_END(p);
		if (off >= run_off && end <= run_end)
			return DUPLICATE;
		if (run_end > off) {
			/* It may still be within a run that goes on behind this piece. */
			for (struct pv_pkt *q = p->frag; off >= run_off && q && FRAG_OFF(q) == run_end; q = q->frag) {
				run_end = FRAG_END(q);
				if (end <= run_end)
					return DUPLICATE;
			}
			return IMPOSSIBLE;
		}
		link = &p->frag;
	}
	pkt->frag = *link;
	*link = pkt;
	if (!pkt->frag)
		r->tail = pkt;
	return PLACED;
}

static enum place reass_add(struct pv_reass *r, const struct pv_frag_info *fi, struct pv_pkt *pkt)
{
	uint32_t end = fi->off + pkt->len;
	enum place place;

	if (!pkt->len || (fi->more && !fi->inner && (end & 7)) || end > UINT16_MAX)
		return IMPOSSIBLE;
	/* The end is said once, and nothing is behind it. */
	if (r->have_last ? end > r->want || (!fi->more && end != r->want) : !fi->more && r->tail && FRAG_END(r->tail) > end)
		return IMPOSSIBLE;
	FRAG_OFF(pkt) = fi->off;
	FRAG_END(pkt) = end;
	pkt->frag = NULL;
	place = reass_insert(r, pkt);
	if (place != PLACED)
		return place;
	if (!fi->more) {
		r->have_last = true;
		r->want = end;
	}
	r->have_first = r->have_first || !fi->off;
	r->have += pkt->len;
	return ++r->count > FRAGS_MAX ? IMPOSSIBLE : PLACED;
}

/* Room for one buffer more; false when that cost this very datagram. */
static bool reass_room(struct pv_net *net, const struct pv_reass *r, const struct pv_pkt *pkt)
{
	struct pv_pool_stats st;
	bool self = false;

	pv_pool_get_stats(pkt->pool, &st);
	/* What waits here is missing in the ring. */
	if (!st.free && net->reass_age.next != &r->age)
		reass_evict(net);
	while (!self && net->reass_held + pkt->size > net->cfg.reass_bytes) {
		self = net->reass_age.next == &r->age;
		reass_evict(net);
	}
	return !self;
}

static struct pv_pkt *reass_done(struct pv_net *net, struct pv_reass *r)
{
	struct pv_pkt *pkt = r->head;

	pkt->total = r->want;
	pkt->flags &= ~(PV_PKT_L4_OK | PV_PKT_L4_BAD);
	net->reass_held -= r->bytes;
	r->bytes = 0;
	r->head = r->tail = NULL;
	reass_free(net, r);
	net->c.reass_done++;
	return pkt;
}

static struct pv_pkt *reass_buffer(struct pv_net *net, struct pv_iface *ifp, const struct pv_frag_info *fi, struct pv_pkt *pkt,
				   int64_t now_ns, bool *refused)
{
	struct pv_reass *r = reass_get(net, ifp->index, fi, now_ns);

	*refused = true;
	if (r->dead) {
		pv_net_drop(net, pkt, &net->c.reass_bad);
		return NULL;
	}
	if (!reass_room(net, r, pkt)) {
		pv_pkt_put(pkt);
		return NULL;
	}
	switch (reass_add(r, fi, pkt)) {
	case PLACED:
		*refused = false;
		net->c.reass_fragments++;
		r->bytes += pkt->size;
		net->reass_held += pkt->size;
		if (r->have_first && r->have_last && r->have == r->want)
			return reass_done(net, r);
		return NULL;
	case DUPLICATE:
		*refused = false;
		net->c.reass_fragments++;
		pv_pkt_put(pkt);
		return NULL;
	default:
		break;
	}
	pv_net_lost(net, pkt, &net->c.reass_bad);
	/* Past the limit of pieces it hangs in the chain already. */
	if (r->count <= FRAGS_MAX)
		pv_pkt_put(pkt);
	if (pv_addr_is4(&fi->src)) {
		reass_free(net, r);
	} else {
		reass_clear(net, r);
		r->dead = true;
	}
	return NULL;
}

struct pv_pkt *pv_reass_rx(struct pv_net *net, struct pv_iface *ifp, const struct pv_frag_info *fi, struct pv_pkt *pkt,
			   int64_t now_ns)
{
	struct pv_frag_info part = *fi;
	bool refused;

	part.more = part.inner = true;
	while (pv_unlikely(pkt->frag != NULL)) {
		struct pv_pkt *rest = pkt->frag, *whole;
		uint32_t len = pkt->len;

		pkt->frag = NULL;
		whole = reass_buffer(net, ifp, &part, pkt, now_ns, &refused);
		part.off += len;
		/* What is left of a refused fragment is no beginning of another datagram. */
		if (whole || refused) {
			pv_pkt_put(rest);
			return whole;
		}
		pkt = rest;
	}
	part.more = fi->more;
	part.inner = false;
	return reass_buffer(net, ifp, &part, pkt, now_ns, &refused);
}
