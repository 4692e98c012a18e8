/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: the frame is switched, verified and copied by its sender.
 *
 * Claims. Each slot of a ring has a claim word beside the ring: the position that was last claimed there, how many slots from it,
 * and by which client. Claims are made in order of position, each by one compare-and-swap, so a claim and its owner appear together
 * and a claimant that dies can always be told. `tail` is a hint, stored plainly: a sender starts there and steps over claims until it
 * finds a position of an older lap. A hint that a slow sender put back is only a longer walk, since the position after a claim is
 * always the next one claimed, and one that is more than a lap old shows a newer position. The claim words lie apart from the
 * slots, so that the consumer, who waits on a slot's line, sees it written once, when the frame is complete.
 *
 * Completion. The slot's `seq` is stored last. Then, behind a fence that costs nothing (the sleeper's membarrier pairs with it), the
 * sender looks whether the queue is armed.
 *
 * Memory. `busy` says by which generation's paths a sender is at work; see sn_rxq_collect.
 */
#include "base/bytes.h"
#include "base/cksum.h"
#include "softnic/fab.h"

pv_inline void prefetch_write(const void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* The position of `n` slots that now belong to the caller, or UINT64_MAX: full. */
pv_inline uint64_t claim(struct sn_port *p, const struct sn_target *t, uint32_t n)
{
	uint64_t at = sn_get_relaxed(&t->ent->tail);

	/* The bound is for damaged files only: no honest walk is longer than a lap and its contention. */
	for (uint32_t tries = 0; tries <= 4 * t->mask + 64; tries++) {
		_Atomic uint64_t *word = &t->claim[at & t->mask];
		uint64_t w = sn_get(word), head;

		if (pv_unlikely(SN_CLAIM_POS(w) >= at)) {
			at = SN_CLAIM_POS(w) + PV_MAX(SN_CLAIM_N(w), 1u);
			continue;
		}
		head = sn_get(&t->ent->head);
		if (pv_unlikely(at + n - head > (uint64_t)t->mask + 1)) {
			if (at >= head)
				return UINT64_MAX;
			/* Claimed and consumed by others since `w` was read. */
			at = sn_get_relaxed(&t->ent->tail);
			continue;
		}
		if (pv_unlikely(!atomic_compare_exchange_strong(word, &w, SN_CLAIM(at, n, p->f->client))))
			continue;
		sn_set_relaxed(&t->ent->tail, at + n);
		return at;
	}
	return UINT64_MAX;
}

/*
 * Woken first, disarmed then: whoever died between the two in the other order would leave a sleeper that nobody wakes. A sleeper that was
 * woken so soon that it still saw itself armed hears it again. The value is of one arming only: one that came meanwhile stays.
 */
static pv_noinline void wake(struct sn_port *p, const struct sn_target *t, uint64_t armed)
{
	uint64_t was = armed;

	sn_wake(p->f, SN_ARMED_WAKER(armed));
	if (atomic_compare_exchange_strong(&t->ent->armed, &was, 0))
		sn_wake(p->f, SN_ARMED_WAKER(armed));
}

void sn_port_stamp_at(struct sn_port *p, uint64_t when_ns)
{
	p->stamp_ns = when_ns;
}

static pv_noinline void stamp(const struct sn_port *p, struct sn_slot *slot)
{
	uint64_t ns = p->stamp_ns ? p->stamp_ns : sn_true_ns();

	slot->flags |= SN_RX_STAMPED;
	slot->tstamp_lo = (uint32_t)ns;
	slot->tstamp_hi = (uint32_t)(ns >> 32);
}

/* Describes and completes the frame that lies in the slots from `pos` on. */
pv_inline void publish(struct sn_port *p, const struct sn_target *t, uint64_t pos, uint32_t len, uint32_t flags)
{
	struct sn_slot *slot = &t->slot[pos & t->mask];
	struct sn_lane_count *c = t->count;
	uint64_t armed;

	slot->len = (uint16_t)len;
	slot->flags = (uint16_t)(flags | t->flags);
	slot->hash = t->hash;
	if (pv_unlikely(t->stamped))
		stamp(p, slot);
	sn_set(&slot->seq, (uint32_t)pos);
	sn_light_fence(p->fences);
	armed = sn_get(&t->ent->armed);
	if (pv_unlikely(armed))
		wake(p, t, armed);
	sn_count(&c->rx_packets, 1);
	sn_count(&c->rx_bytes, len);
}

/* A copy of a whole frame into one queue. */
static pv_noinline void deliver(struct sn_port *p, const struct sn_target *t, const uint8_t *frame, uint32_t len, uint32_t flags)
{
	struct sn_lane_count *c = t->count;
	uint32_t n = (len + SN_SLOT_DATA - 1) / SN_SLOT_DATA, left = len;
	uint64_t pos;

	if (len > t->max_len) {
		sn_count(&c->rx_too_long, 1);
		return;
	}
	pos = claim(p, t, n);
	if (pos == UINT64_MAX) {
		sn_count(&c->rx_queue_full, 1);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct sn_slot *slot = &t->slot[(pos + i) & t->mask];
		uint32_t part = PV_MIN(left, SN_SLOT_DATA);

		/* No lap's position: a later frame starting here must not look complete. Behind the look at `head`: see sn_rxq_unclaim. */
		if (i)
			sn_set(&slot->seq, (uint32_t)(pos + i) ^ 0x80000000u);
		memcpy(slot->data, frame, part);
		frame += part;
		left -= part;
	}
	publish(p, t, pos, len, flags);
}

static void count_misses(struct sn_port *p, const struct sn_miss *miss, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct sn_lane_count *c = &p->lane->count[miss[i].port];

		if (miss[i].why == SN_MISS_LINK_DOWN)
			sn_count(&c->rx_link_down, 1);
		else if (miss[i].why == SN_MISS_DROPPED)
			sn_count(&c->rx_rule_drop, 1);
		else
			sn_count(&c->rx_no_rule, 1);
	}
}

/* The generation, once it is even. One that stays odd belongs to a process that died or waits in the middle of a change. */
static uint64_t settled_generation(struct sn_port *p)
{
	for (uint32_t spins = 1;; spins++) {
		uint64_t g = sn_get(&p->s->generation);

		if (!(g & 1))
			return g;
		if (spins % 1024 == 0 && !sn_lock(p->f))
			sn_unlock(p->f);
		pv_cpu_relax();
	}
}

void sn_port_refresh(struct sn_port *p)
{
	const struct sn_port_ent *e = &p->s->port[p->number];

	p->gen = settled_generation(p);
	for (uint32_t i = 0; i < SN_PATHS; i++)
		p->path[i].hlen = 0;
	p->mac = sn_get(&e->mac);
	p->mtu = PV_MIN(sn_get(&e->mtu), SN_MTU_MAX);
	p->max_len = p->mtu + 18;
	p->removed = sn_get(&e->plug) != p->plug;
	p->link_up = sn_get(&e->link) != 0 && !p->removed;
	p->impaired = sn_get(&e->impaired) != 0;
	p->special = !p->link_up || p->impaired || sn_impair_holds(p);
}

/* Until the caller stores 0 in `busy`, no queue that a path of p->gen leads to is reused. */
static void enter(struct sn_port *p)
{
	for (;;) {
		sn_set_relaxed(&p->lane->busy, p->gen);
		sn_light_fence(p->fences);
		if (sn_get(&p->s->generation) == p->gen)
			return;
		sn_port_refresh(p);
	}
}

pv_inline uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Spreads flows over the remembered paths: addresses and ports of IPv4, the last half of the destination and the ports of IPv6. */
pv_inline struct sn_path *path_slot(struct sn_port *p, const uint8_t *head, uint32_t len)
{
	uint64_t h = load64(head + 26) ^ load64(head + 30) * 3;

	if (pv_unlikely(head[12] == 0x86 && len >= 58))
		h = load64(head + 46) ^ load64(head + 50) * 3;
	return &p->path[(h * UINT64_C(0x9e3779b97f4a7c15)) >> 58];
}

_Static_assert(SN_PATHS == 64, "path_slot");

pv_inline sn_vec load_vec(const uint8_t *p)
{
	sn_vec v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* The last vector ends at hlen and overlaps the one before it. */
pv_inline bool path_matches(const struct sn_path *path, const uint8_t *head, uint32_t len)
{
	uint32_t hlen = path->hlen;
	const sn_vec *value = path->value, *mask = path->mask;
	sn_vec diff;

	if (pv_unlikely(hlen - 1 >= len))
		return false;
	diff = (load_vec(head) & mask[0]) ^ value[0];
	diff |= (load_vec(head + hlen - 16) & mask[3]) ^ value[3];
	if (pv_likely(hlen > 32))
		diff |= (load_vec(head + 16) & mask[1]) ^ value[1];
	if (pv_unlikely(hlen > 48))
		diff |= (load_vec(head + 32) & mask[2]) ^ value[2];
	return (diff[0] | diff[1]) == 0;
}

void sn_send_now(struct sn_port *p, uint8_t *frame, uint32_t len, uint32_t tx_flags)
{
	struct sn_route *r = p->route;
	uint32_t flags;

	do {
		enter(p);
		sn_route_find(p, frame, len, r);
	} while (sn_get(&p->s->generation) != p->gen);
	/* path_slot looks at 42 bytes. */
	if (len >= 42)
		sn_path_learn(p, path_slot(p, frame, len), r, frame);
	flags = sn_verdict(frame, len, &r->parse.layers, tx_flags);
	for (uint32_t i = 0; i < r->ntargets; i++)
		deliver(p, &r->target[i], frame, len, flags);
	count_misses(p, r->miss, r->nmisses);
	sn_set(&p->lane->busy, 0);
}

/* No path is remembered, or the port has its link down or impairments. */
static pv_noinline int send_slow(struct sn_port *p, const uint8_t *frame, uint32_t len, uint32_t tx_flags)
{
	struct sn_lane_count *c = &p->lane->count[p->number];

	sn_set(&p->lane->busy, 0);
	if (sn_get(&p->s->generation) != p->gen)
		sn_port_refresh(p);
	if (!p->link_up) {
		sn_count(&c->tx_link_down, 1);
		return p->removed ? -ENODEV : -ENETDOWN;
	}
	if (frame != p->scratch)
		memcpy(p->scratch, frame, len);
	sn_count(&c->tx_packets, 1);
	sn_count(&c->tx_bytes, len);
	if (!p->impaired && !sn_impair_holds(p)) {
		p->special = false;
		sn_send_now(p, p->scratch, len, tx_flags);
		return 0;
	}
	if (tx_flags) {
		struct sn_parse parse;

		sn_parse(p->scratch, len, &parse);
		sn_verdict(p->scratch, len, &parse.layers, tx_flags);
	}
	sn_impair_send(p, p->scratch, len);
	return 0;
}

/* By a remembered path to several queues, to none, or with a frame of several slots. */
static pv_noinline void send_many(struct sn_port *p, const struct sn_path *path, const uint8_t *frame, uint32_t len,
				  uint32_t tx_flags)
{
	uint32_t flags;

	if (frame != p->scratch)
		memcpy(p->scratch, frame, len);
	flags = sn_verdict(p->scratch, len, &path->layers, tx_flags);
	for (uint32_t i = 0; i < path->ntargets; i++)
		deliver(p, &path->target[i], p->scratch, len, flags);
	count_misses(p, path->miss, path->nmisses);
}

/* sn_verdict for UDP behind an IPv4 header of 20 bytes. */
pv_inline uint32_t verdict_udp4(uint8_t *frame, uint32_t len, const struct sn_layers *layers, uint32_t tx_flags)
{
	uint8_t *ip = frame + layers->l3;
	uint32_t total = pv_get16(ip + 2), flags = layers->flags, ulen, dst;
	uint64_t a = load64(ip), b = load64(ip + 8), sum;

	/* Behind a VLAN tag the frame may end within the UDP header. */
	if (pv_unlikely(layers->l3 + total > len || total < 28 || tx_flags))
		return sn_verdict(frame, len, layers, tx_flags);
	ulen = pv_get16(ip + 24);
	if (pv_unlikely(ulen + 20 > total || ulen < 8 || !pv_cksum_get(ip + 26)))
		return sn_verdict(frame, len, layers, tx_flags);
	memcpy(&dst, ip + 16, 4);
	sum = pv_cksum_merge(a, b) + dst;
	if (pv_likely(pv_cksum_ok(sum + (sum < dst))))
		flags |= SN_RX_L3_OK;
	sum = (b >> 32) + dst + __builtin_bswap32(ulen + (17u << 16));
	if (pv_likely(pv_cksum_ok(pv_cksum_add(ip + 20, ulen, sum))))
		flags |= SN_RX_L4_OK;
	return flags;
}

static pv_noinline int too_long(struct sn_port *p)
{
	sn_count(&p->count->tx_too_long, 1);
	return -EMSGSIZE;
}

static void pieces_copy(uint8_t *to, const struct sn_seg *seg, uint32_t nseg)
{
	for (uint32_t i = 0; i < nseg; i++) {
		if (seg[i].len)
			memcpy(to, seg[i].base, seg[i].len);
		to += seg[i].len;
	}
}

/* By a remembered path to one queue, into the slot at once; false: another way has to be found. Headers are the first piece. */
static bool pieces_direct(struct sn_port *p, const struct sn_seg *seg, uint32_t nseg, uint32_t len, uint32_t tx_flags)
{
	const uint8_t *head = seg[0].base;
	const struct sn_target *t;
	const struct sn_path *path;
	struct sn_slot *slot;
	uint64_t pos;

	if (seg[0].len < 42)
		return false;
	sn_set_relaxed(&p->lane->busy, p->gen);
	sn_light_fence(p->fences);
	path = path_slot(p, head, seg[0].len);
	if (sn_get(&p->s->generation) != p->gen || p->special || !path_matches(path, head, seg[0].len) || len > path->one_max) {
		sn_set(&p->lane->busy, 0);
		return false;
	}
	sn_count(&p->count->tx_packets, 1);
	sn_count(&p->count->tx_bytes, len);
	t = &path->target[0];
	pos = claim(p, t, 1);
	if (pos == UINT64_MAX) {
		sn_count(&t->count->rx_queue_full, 1);
	} else {
		slot = &t->slot[pos & t->mask];
		pieces_copy(slot->data, seg, nseg);
		publish(p, t, pos, len, sn_verdict(slot->data, len, &path->layers, tx_flags));
	}
	sn_set(&p->lane->busy, 0);
	return true;
}

/* A frame in pieces. */
static pv_noinline int send_pieces(struct sn_port *p, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags)
{
	struct sn_seg whole = { p->scratch, 0 };
	uint64_t len = 0;

	for (uint32_t i = 0; i < nseg; i++)
		len += seg[i].len;
	if (len > p->max_len)
		return too_long(p);
	if (nseg && pieces_direct(p, seg, nseg, (uint32_t)len, tx_flags))
		return 0;
	pieces_copy(p->scratch, seg, nseg);
	whole.len = (uint32_t)len;
	return sn_port_send(p, &whole, 1, tx_flags);
}

int sn_port_send(struct sn_port *p, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags)
{
	struct sn_lane *lane = p->lane;
	const struct sn_target *t;
	const uint8_t *frame;
	struct sn_slot *slot;
	struct sn_path *path;
	uint32_t len, flags;
	uint64_t pos, gen = p->gen;

	if (pv_unlikely(nseg != 1))
		return send_pieces(p, seg, nseg, tx_flags);
	frame = seg[0].base;
	len = seg[0].len;
	if (pv_unlikely(len - 14 > p->max_len - 14))
		return too_long(p);
	sn_set_relaxed(&lane->busy, gen);
	sn_light_fence(p->fences);
	if (pv_unlikely(sn_get(&p->s->generation) != gen || p->special || len < 42))
		return send_slow(p, frame, len, tx_flags);
	path = path_slot(p, frame, len);
	if (pv_unlikely(!path_matches(path, frame, len)))
		return send_slow(p, frame, len, tx_flags);
	sn_count(&p->count->tx_packets, 1);
	sn_count(&p->count->tx_bytes, len);
	t = &path->target[0];
	if (pv_unlikely(len > path->one_max)) {
		send_many(p, path, frame, len, tx_flags);
		goto out;
	}
	pos = claim(p, t, 1);
	if (pv_unlikely(pos == UINT64_MAX)) {
		sn_count(&t->count->rx_queue_full, 1);
		goto out;
	}
	slot = &t->slot[pos & t->mask];
	/* The verdict before the slot is touched: the receiver looks at it all the time, and each look that falls between the first
	 * store to its line and the last costs the line another journey. */
	if (pv_likely(!tx_flags)) {
		flags = path->udp4 ? verdict_udp4((uint8_t *)(uintptr_t)frame, len, &path->layers, 0)
				   : sn_verdict((uint8_t *)(uintptr_t)frame, len, &path->layers, 0);
		memcpy(slot->data, frame, len);
	} else {
		memcpy(slot->data, frame, len);
		flags = sn_verdict(slot->data, len, &path->layers, tx_flags);
	}
	publish(p, t, pos, len, flags);
	slot = &t->slot[(pos + 4) & t->mask];
	prefetch_write(slot);
	prefetch_write(&slot->data[SN_SLOT_HEAD + 24]);
out:
	sn_set(&lane->busy, 0);
	return 0;
}
