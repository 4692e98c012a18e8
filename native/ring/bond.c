/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Legs, and who of them sends. The kernel's bonding says which legs are active (pv_bond_leg_set); what it has not noticed yet, a device
 * that is dead or has no link, is seen here with the next call, and the traffic goes by another leg before that call returns.
 *
 * What the bond says it can is what its owner may rely on whichever leg it is that sends: checksums and cutting are done in software for a
 * leg that does not do them, and rates, which nobody here can keep, are those of the leg that sends, so that they change with it.
 */
#include "base/ownfd.h"
#include "ring/bond_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ALL_CSUM (PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP)
#define ALL_FLOWS ((1u << PV_FLOW_KINDS) - 1)

static int __attribute__((format(printf, 4, 5))) fail(char *err, size_t size, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, size, fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- who sends --------------------------------------------------------------------------------------------------------- */

static bool hashes(const struct bond *b)
{
	return b->cfg.mode == PV_BOND_XOR || b->cfg.mode == PV_BOND_8023AD;
}

static struct bond_leg *first_up(const struct bond *b, bool active, bool fallback)
{
	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];

		if (l->up && l->cfg.active >= active && l->cfg.fallback >= fallback)
			return l;
	}
	return NULL;
}

/* The one leg that sends where only one does. The kernel may not know yet that its choice is dead: then it is the first that is not. */
static struct bond_leg *choose(const struct bond *b)
{
	struct bond_leg *l = NULL;

	if (b->cfg.mode == PV_BOND_NETVSC) {
		for (uint32_t i = 0; i < b->nlegs && !l; i++)
			if (b->leg[i]->up && b->leg[i]->cfg.active && !b->leg[i]->cfg.fallback)
				l = b->leg[i];
		return l ? l : first_up(b, false, true) ? first_up(b, false, true) : first_up(b, false, false);
	}
	if (b->elsewhere)
		return NULL;
	l = first_up(b, true, false);
	return l ? l : first_up(b, false, false);
}

/* A backup hears what is said to others, too: its switch port floods, and groups come by every port. As bonding, which takes from it
 * what is for its own device alone, nothing of it is taken. In NetVSC what the host sends comes by either leg, and never by both. */
static bool deaf(const struct bond *b, const struct bond_leg *l)
{
	if (b->cfg.mode == PV_BOND_ACTIVE_BACKUP)
		return l != b->only;
	/* While the aggregator has none, the one that is sent by all the same is heard. */
	return b->cfg.mode == PV_BOND_8023AD && !l->cfg.active && l != b->only;
}

static void say(struct bond *b, enum pv_ring_event ev)
{
	if (ev == PV_RING_EV_LINK_UP || ev == PV_RING_EV_LINK_DOWN)
		b->events &= ~(1u << PV_RING_EV_LINK_UP | 1u << PV_RING_EV_LINK_DOWN);
	b->events |= 1u << ev;
}

static uint32_t least(uint32_t a, uint32_t b, bool first)
{
	return first ? b : PV_MIN(a, b);
}

/* What all legs agree on; `first`: it is the first one that is asked. */
static void agree(struct pv_ring_caps *c, const struct pv_ring_caps *l, bool first)
{
	c->inline_size = least(c->inline_size, l->inline_size, first);
	c->max_sge = least(c->max_sge, l->max_sge, first);
	c->batch = least(c->batch, l->batch, first);
	c->tx_depth = least(c->tx_depth, l->tx_depth, first);
	c->rx_csum = first ? l->rx_csum : c->rx_csum & l->rx_csum;
	c->rx_partial |= l->rx_partial;
	c->headroom = PV_MAX(c->headroom, l->headroom);
	c->rx_buf_min = PV_MAX(c->rx_buf_min, l->rx_buf_min);
	c->dm_bytes = PV_MAX(c->dm_bytes, l->dm_bytes);
	c->queues = PV_MAX(c->queues, l->queues);
	c->flow_kinds = first ? l->flow_kinds : c->flow_kinds | l->flow_kinds;
	c->flow_match = first ? l->flow_match : c->flow_match | l->flow_match;
}

/* What those that send can do: segments whole, and rates. */
static void agree_sending(struct pv_ring_caps *c, const struct pv_ring_caps *l, bool first)
{
	c->tso_max = least(c->tso_max, l->tso_max, first);
	c->txqs = least(c->txqs, l->txqs, first);
	c->pacing_min_kbps = PV_MAX(c->pacing_min_kbps, l->pacing_min_kbps);
	c->pacing_max_kbps = least(c->pacing_max_kbps, l->pacing_max_kbps, first);
	c->pacing_burst = l->pacing_burst && (first || c->pacing_burst);
}

/* What the host sends into a TAP device is ours, whether there are rules for it or not. */
bool pv_bond_needs_no_rules(const struct bond_leg *l)
{
	return !l->ring->ops->flow_add || (l->cfg.fallback && !(l->ring->caps.flow_kinds & ~(1u << PV_FLOW_ALL)));
}

static void fill_caps(struct bond *b)
{
	struct pv_ring_caps *c = &b->ring.caps, was = *c;
	bool first = true;
	uint32_t depth = 0, work = 0;

	c->inline_size = c->max_sge = c->tso_max = c->txqs = c->pacing_min_kbps = c->pacing_max_kbps = c->dm_bytes = c->headroom =
	    0;
	c->rx_buf_min = b->cfg.mtu + 18;
	c->rx_partial = c->pacing_burst = false;
	c->queues = 1;
	for (uint32_t i = 0; i < b->nlegs; i++) {
		agree(c, &b->leg[i]->ring->caps, !i);
		depth += b->leg[i]->ring->caps.rx_depth;
		work += !b->leg[i]->gone;
		if (pv_bond_needs_no_rules(b->leg[i]))
			c->flow_kinds |= ALL_FLOWS;
	}
	c->rx_partial |= work < b->expected;
	for (uint32_t i = 0; i < b->nusable; i++, first = false)
		agree_sending(c, &b->usable[i]->ring->caps, first);
	if (!b->nlegs) {
		c->max_sge = PV_MAX(was.max_sge, 1u);
		c->tx_depth = PV_MAX(was.tx_depth, 1u);
		c->batch = PV_RING_BATCH_MAX;
		c->flow_kinds = ALL_FLOWS;
	}
	if (!b->started)
		c->rx_depth = depth;
	b->tso_most = PV_MAX(b->tso_most, c->tso_max);
	b->sge_most = PV_MAX(b->sge_most, c->max_sge);
	c->tstamp = b->clock_leg ? b->clock_leg->ring->caps.tstamp : PV_TSTAMP_NONE;
	c->tstamp_khz = b->clock_leg ? b->clock_leg->ring->caps.tstamp_khz : 0;
	c->tstamp_mask = b->clock_leg ? b->clock_leg->ring->caps.tstamp_mask : 0;
	c->tx_tstamp = b->clock_leg && b->clock_leg->ring->caps.tx_tstamp;
	snprintf(c->mode, sizeof(c->mode), "%s, %u legs%s%.30s",
		 b->cfg.mode == PV_BOND_ACTIVE_BACKUP ? "active-backup"
		 : b->cfg.mode == PV_BOND_XOR         ? "balance-xor"
		 : b->cfg.mode == PV_BOND_8023AD      ? "802.3ad"
						      : "NetVSC",
		 b->nlegs, b->only ? ", by " : "", b->only ? b->only->ring->caps.name : "");
	b->ring.stat->link_up = c->link_up;
	memcpy(b->ring.stat->mode, c->mode, sizeof(c->mode));
	memcpy(b->ring.stat->mac, c->mac, PV_ETH_ALEN);
}

/* The keys of packets are one leg's, if it is the only one that has any. */
static void plan_keys(struct bond *b)
{
	for (uint32_t i = 0; i < b->nlegs; i++)
		b->leg[i]->binder = b->ring.pool->binders > 1 ? b->leg[i]->ring->binder : 0;
}

static void send_by(struct bond *b)
{
	bool hash = hashes(b);

	b->nusable = 0;
	b->only = NULL;
	for (uint32_t i = 0; hash && i < b->nlegs; i++)
		if (b->leg[i]->up && b->leg[i]->cfg.active)
			b->usable[b->nusable++] = b->leg[i];
	if (!b->nusable) {
		b->usable[0] = choose(b);
		b->nusable = b->usable[0] != NULL;
	}
	if (b->nusable == 1)
		b->only = b->usable[0];
}

/* Stamps are ticks of one leg's clock: of the one that sends, or the first of several. */
static struct bond_leg *stamping(const struct bond *b)
{
	struct bond_leg *l = b->nusable ? b->usable[0] : NULL;

	return l && l->ring->caps.tstamp != PV_TSTAMP_NONE ? l : NULL;
}

/* Is it another leg than before? */
static void sent_by(struct bond *b)
{
	uint32_t id = b->nusable ? b->usable[0]->cfg.id : 0;

	if (!b->nusable || (b->sent && b->sender_id == id && b->nsenders == b->nusable))
		return;
	if (b->sent && b->started) {
		b->mine.moves++;
		say(b, PV_RING_EV_MOVED);
	}
	b->sent = true;
	b->sender_id = id;
	b->nsenders = b->nusable;
}

/* What was posted to a leg before it lost its link leaves once it has one, though nobody rings for it. A call sends one frame at least, or
 * the device is busy. */
static void kick_waiting(struct bond *b)
{
	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];

		for (uint32_t n = 0; l->dirty && l->up && n < l->ring->caps.tx_depth; n++)
			l->dirty = pv_ring_tx_kick(l->ring) == -EAGAIN;
	}
}

/* After any change: who sends, who is heard, what the bond can. What was left over goes by the new way. */
static void settle(struct bond *b)
{
	bool was = b->ring.caps.link_up, up = false;

	send_by(b);
	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];
		bool now = deaf(b, l);

		up |= l->up;
		if (now && !l->deaf && !l->gone)
			pv_bond_rx_drain(b, l);
		l->deaf = now;
	}
	pthread_mutex_lock(&b->clock_lock);
	b->clock_leg = stamping(b);
	pthread_mutex_unlock(&b->clock_lock);
	/* Another's ticks are not what the owner reckons with until it says so. */
	if (b->clock_leg && b->stamp_leg != b->clock_leg)
		b->stamp_leg = NULL;
	b->ring.caps.link_up = up;
	plan_keys(b);
	pv_bond_tx_plan(b);
	fill_caps(b);
	if (up != was && b->started)
		say(b, up ? PV_RING_EV_LINK_UP : PV_RING_EV_LINK_DOWN);
	sent_by(b);
	pv_bond_again(b);
	kick_waiting(b);
}

void pv_bond_look(struct bond *b)
{
	bool changed = false;

	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];
		bool up = !l->gone && l->ring->caps.link_up;

		changed |= up != l->up;
		l->up = up;
	}
	if (changed)
		settle(b);
}

/* Of a backup that had nothing out there is nothing to tell, but whoever asks for events finds it by that. */
void pv_bond_lost(struct bond *b, struct bond_leg *l, bool flushed)
{
	if (l->gone)
		return;
	l->gone = true;
	say(b, flushed || l->ring->tx_pending ? PV_RING_EV_MOVED : PV_RING_EV_NONE);
	l->up = false;
	settle(b);
}

/* ---- legs -------------------------------------------------------------------------------------------------------------- */

void pv_bond_add_up(struct pv_ring_counters *to, const struct pv_ring_counters *from)
{
	uint64_t *t = (uint64_t *)to;
	const uint64_t *f = (const uint64_t *)from;

	_Static_assert(sizeof(*to) % sizeof(uint64_t) == 0, "counters are numbers of 64 bits");
	for (size_t i = 0; i < sizeof(*to) / sizeof(*t); i++)
		t[i] += f[i];
}

/* What the legs have counted by now, for whoever reads the statistics: asks no device for more, with every sleep. */
static void publish(struct bond *b)
{
	struct pv_ring_counters sum = b->left;

	pv_bond_add_up(&sum, &b->mine);
	for (uint32_t i = 0; i < b->nlegs; i++)
		pv_bond_add_up(&sum, &b->leg[i]->ring->stat->c);
	for (const struct bond_leg *l = b->parted; l; l = l->next)
		pv_bond_add_up(&sum, &l->ring->stat->c);
	b->ring.stat->c = sum;
}

static void leg_free(struct bond *b, struct bond_leg *l)
{
	const struct pv_mem *mem = b->mem;

	pv_bond_rules_free_leg(b, l);
	if (l->out)
		mem->free(mem->ctx, l->out, b->bits_bytes);
	mem->free(mem->ctx, l, sizeof(*l));
}

static struct bond_leg *find(const struct bond *b, uint32_t id)
{
	for (uint32_t i = 0; i < b->nlegs; i++)
		if (b->leg[i]->cfg.id == id)
			return b->leg[i];
	return NULL;
}

/* What is cut goes into packets of the pool. */
static bool holds(const struct pv_pool *pool, uint32_t mtu)
{
	const struct pv_pool_cfg *pc = pv_pool_config(pool);

	return pc->buf_size - pc->headroom >= mtu + 18;
}

static int leg_check(const struct bond *b, const struct pv_ring *leg, const struct pv_bond_leg_cfg *cfg)
{
	if (leg->pool != b->ring.pool || (b->cfg.mtu ? leg->caps.mtu < b->cfg.mtu : !holds(leg->pool, leg->caps.mtu)))
		return -EINVAL;
	if (find(b, cfg->id))
		return -EEXIST;
	return b->nlegs == PV_BOND_LEGS_MAX ? -ENOSPC : 0;
}

static int watch(const struct bond *b, const struct bond_leg *l)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int fd = pv_ring_notify_fd(l->ring);

	return fd >= 0 && epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static void unwatch(const struct bond *b, const struct bond_leg *l)
{
	int fd = pv_ring_notify_fd(l->ring);

	if (fd >= 0)
		(void)epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* The hash counts legs: they are in the kernel's order. */
static void put_in(struct bond *b, struct bond_leg *l)
{
	uint32_t i = b->nlegs++;

	for (; i && b->leg[i - 1]->cfg.at > l->cfg.at; i--)
		b->leg[i] = b->leg[i - 1];
	b->leg[i] = l;
}

static void take_out(struct bond *b, const struct bond_leg *l)
{
	uint32_t i = 0;

	while (b->leg[i] != l)
		i++;
	for (b->nlegs--; i < b->nlegs; i++)
		b->leg[i] = b->leg[i + 1];
}

int pv_bond_leg_add(struct pv_ring *r, struct pv_ring *leg, const struct pv_bond_leg_cfg *cfg)
{
	struct bond *b = bond(r);
	struct bond_leg *l;
	int rc = leg_check(b, leg, cfg);

	if (rc)
		return rc;
	l = b->mem->alloc(b->mem->ctx, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->ring = leg;
	l->cfg = *cfg;
	l->out = b->mem->alloc(b->mem->ctx, b->bits_bytes);
	/* Buffers first: what a rule brings finds them. Keys before buffers. */
	put_in(b, l);
	plan_keys(b);
	rc = l->out ? watch(b, l) : -ENOMEM;
	if (!rc && b->started)
		pv_bond_rx_fill(b, l);
	rc = rc ? rc : pv_bond_rules_catch_up(b, l);
	if (rc) {
		/* The buffers are the leg's, which closes with them. */
		if (l->out)
			unwatch(b, l);
		take_out(b, l);
		leg_free(b, l);
		plan_keys(b);
		return rc;
	}
	if (!b->cfg.mtu) {
		b->cfg.mtu = b->ring.caps.mtu = leg->caps.mtu;
		b->ring.stat->mtu = leg->caps.mtu;
	}
	l->deaf = b->cfg.mode == PV_BOND_ACTIVE_BACKUP;
	l->up = leg->caps.link_up;
	settle(b);
	return 0;
}

struct pv_ring *pv_bond_leg_part(struct pv_ring *r, uint32_t id)
{
	struct bond *b = bond(r);
	struct bond_leg *l = find(b, id);

	if (!l)
		return NULL;
	take_out(b, l);
	l->up = false;
	/* One that comes back is another one. */
	if (b->stamp_leg == l)
		b->stamp_leg = NULL;
	if (b->sender_id == id)
		b->sender_id = 0;
	if (!l->deaf)
		pv_bond_rx_drain(b, l);
	unwatch(b, l);
	/* The bond's rules may become more before it ends. */
	pv_bond_rules_free_leg(b, l);
	pv_pool_bind_off(r->pool, l->ring->binder);
	/* The others first: what this one leaves behind goes by them. */
	settle(b);
	pv_bond_reap_leg(b, l);
	l->next = b->parted;
	b->parted = l;
	b->mine.plug_outs++;
	settle(b);
	publish(b);
	return l->ring;
}

void pv_bond_leg_end(struct pv_ring *r, struct pv_ring *leg)
{
	struct bond *b = bond(r);
	struct bond_leg **at = &b->parted, *l;

	while (*at && (*at)->ring != leg)
		at = &(*at)->next;
	l = *at;
	if (!l)
		return;
	*at = l->next;
	pv_bond_close_leg(b, l);
	leg_free(b, l);
	settle(b);
	publish(b);
}

int pv_bond_leg_del(struct pv_ring *r, uint32_t id)
{
	struct pv_ring *leg = pv_bond_leg_part(r, id);

	if (!leg)
		return -ENOENT;
	pv_bond_leg_end(r, leg);
	return 0;
}

int pv_bond_leg_set(struct pv_ring *r, uint32_t id, bool active)
{
	struct bond *b = bond(r);
	struct bond_leg *l = find(b, id);

	if (!l)
		return -ENOENT;
	if (active && (b->cfg.mode == PV_BOND_ACTIVE_BACKUP || b->cfg.mode == PV_BOND_NETVSC))
		for (uint32_t i = 0; i < b->nlegs; i++)
			b->leg[i]->cfg.active = false;
	l->cfg.active = active;
	l->up = !l->gone && l->ring->caps.link_up;
	settle(b);
	return 0;
}

int pv_bond_leg_place(struct pv_ring *r, uint32_t id, uint32_t at)
{
	struct bond *b = bond(r);
	struct bond_leg *l = find(b, id);

	if (!l)
		return -ENOENT;
	if (l->cfg.at == at)
		return 0;
	take_out(b, l);
	l->cfg.at = at;
	put_in(b, l);
	settle(b);
	return 0;
}

void pv_bond_expect(struct pv_ring *r, uint32_t legs)
{
	struct bond *b = bond(r);

	if (b->expected == legs)
		return;
	b->expected = legs;
	fill_caps(b);
}

void pv_bond_elsewhere(struct pv_ring *r, bool elsewhere)
{
	struct bond *b = bond(r);

	if (b->elsewhere == elsewhere)
		return;
	b->elsewhere = elsewhere;
	settle(b);
}

struct pv_ring *pv_bond_leg(struct pv_ring *r, uint32_t i, struct pv_bond_leg_cfg *out)
{
	struct bond *b = bond(r);

	if (i >= b->nlegs)
		return NULL;
	if (out) {
		*out = b->leg[i]->cfg;
		out->gone = b->leg[i]->gone;
		out->sends = b->only ? b->leg[i] == b->only : b->nusable && b->leg[i]->up && b->leg[i]->cfg.active;
	}
	return b->leg[i]->ring;
}

/* ---- the ring's other operations --------------------------------------------------------------------------------------- */

static void bond_counters(struct pv_ring *r, struct pv_ring_counters *out)
{
	struct bond *b = bond(r);
	struct pv_ring_counters c, sum = b->left;

	pv_bond_add_up(&sum, &b->mine);
	for (uint32_t i = 0; i < b->nlegs; i++) {
		pv_ring_counters(b->leg[i]->ring, &c);
		pv_bond_add_up(&sum, &c);
	}
	for (const struct bond_leg *l = b->parted; l; l = l->next)
		pv_bond_add_up(&sum, &l->ring->stat->c);
	*out = sum;
}

/* A leg's -EAGAIN (frames that wait for a doorbell) is 0: its kick said so to who has to ring again, and the other legs can wake us. */
static int bond_arm(struct pv_ring *r)
{
	struct bond *b = bond(r);
	int rc = 0, any = b->nlegs ? -EOPNOTSUPP : 0;

	publish(b);
	if (b->held.count || b->events)
		return 1;
	for (uint32_t i = 0; i < b->nlegs; i++) {
		struct bond_leg *l = b->leg[i];

		if (l->gone)
			continue;
		rc = pv_ring_arm(l->ring);
		if (rc == 1)
			return 1;
		if (rc == -ENODEV) {
			pv_bond_lost(b, l, false);
			return 1;
		}
		if (rc != -EOPNOTSUPP)
			any = 0;
	}
	return any;
}

static int bond_notify_fd(struct pv_ring *r)
{
	const struct bond *b = bond(r);

	for (uint32_t i = 0; i < b->nlegs; i++)
		if (b->leg[i]->ring->ops->notify_fd)
			return b->epoll_fd;
	return b->nlegs ? -EOPNOTSUPP : b->epoll_fd;
}

static void leg_events(struct bond *b, struct bond_leg *l)
{
	enum pv_ring_event ev;

	while (!l->gone && (ev = pv_ring_event(l->ring)) != PV_RING_EV_NONE)
		if (ev == PV_RING_EV_GONE || ev == PV_RING_EV_ERROR)
			pv_bond_lost(b, l, false);
}

static enum pv_ring_event bond_event(struct pv_ring *r)
{
	struct bond *b = bond(r);

	for (uint32_t i = 0; i < b->nlegs; i++)
		leg_events(b, b->leg[i]);
	pv_bond_look(b);
	pv_bond_rx_top_up(b);
	for (uint32_t ev = PV_RING_EV_LINK_UP; ev <= PV_RING_EV_MOVED; ev++) {
		if (b->events & 1u << ev) {
			b->events &= ~(1u << ev);
			return (enum pv_ring_event)ev;
		}
	}
	b->events = 0;
	publish(b);
	return PV_RING_EV_NONE;
}

static void drain(struct pv_pktq *q)
{
	struct pv_pkt *p;

	while ((p = pv_pktq_pop(q))) {
		p->next = NULL;
		pv_ring_drop(p);
	}
}

static void free_with_ring(struct bond *b, struct bond_leg *l)
{
	if (b->forgotten)
		pv_ring_forget(l->ring);
	else
		pv_ring_close(l->ring);
	leg_free(b, l);
}

static void bond_free(struct bond *b)
{
	const struct pv_mem *mem = b->mem;
	struct bond_leg *l;

	while (b->nlegs)
		free_with_ring(b, b->leg[--b->nlegs]);
	/* A fork waits for those that are just being shut; one that it did not wait for is left alone. */
	while (!b->forgotten && (l = b->parted)) {
		b->parted = l->next;
		free_with_ring(b, l);
	}
	drain(&b->held);
	drain(&b->done);
	drain(&b->again);
	pv_bond_rules_free(b);
	if (b->own)
		mem->free(mem->ctx, b->own, b->bits_bytes);
	if (b->left_by)
		mem->free(mem->ctx, b->left_by, b->bits_bytes * 8 * sizeof(*b->left_by));
	if (b->epoll_fd >= 0)
		close(b->epoll_fd);
	/* In a child of fork it may be some other thread's of the parent. */
	if (!b->forgotten)
		pthread_mutex_destroy(&b->clock_lock);
	pv_ring_stat_close(&b->ring, mem);
	mem->free(mem->ctx, b, sizeof(*b));
}

static void bond_close(struct pv_ring *r)
{
	bond_free(bond(r));
}

static void bond_forget(struct pv_ring *r)
{
	bond(r)->forgotten = true;
	bond_free(bond(r));
}

static const struct pv_ring_ops bond_ops = {
	.kind = "bond",
	.close = bond_close,
	.rx_post = pv_bond_rx_post,
	.rx_poll = pv_bond_rx_poll,
	.tx_post = pv_bond_tx_post,
	.tx_kick = pv_bond_tx_kick,
	.tx_reap = pv_bond_tx_reap,
	.arm = bond_arm,
	.notify_fd = bond_notify_fd,
	.flow_add = pv_bond_flow_add,
	.flow_del = pv_bond_flow_del,
	.txq_open = pv_bond_txq_open,
	.txq_close = pv_bond_txq_close,
	.set_rate = pv_bond_set_rate,
	.txq_pending = pv_bond_txq_pending,
	.set_stamps = pv_bond_set_stamps,
	.clock = pv_bond_clock,
	.clock_info = pv_bond_clock_info,
	.counters = bond_counters,
	.event = bond_event,
	.forget = bond_forget,
};

static int cfg_check(const struct pv_bond_cfg *cfg, const struct pv_pool *pool, char *err, size_t errsize)
{
	if (cfg->mode != PV_BOND_ACTIVE_BACKUP && cfg->mode != PV_BOND_NETVSC && cfg->mode != PV_BOND_XOR &&
	    cfg->mode != PV_BOND_8023AD)
		return fail(err, errsize, -EOPNOTSUPP, "bonding mode %d is the kernel's alone", (int)cfg->mode);
	if (cfg->hash_policy > PV_BOND_HASH_ENCAP34)
		return fail(err, errsize, -EOPNOTSUPP, "transmit hash policy %u is the kernel's alone", cfg->hash_policy);
	if (cfg->fail_over_mac > 1)
		return fail(err, errsize, -EOPNOTSUPP, "fail_over_mac %u is the kernel's alone", cfg->fail_over_mac);
	if (cfg->mtu && !holds(pool, cfg->mtu))
		return fail(err, errsize, -EINVAL, "packets of %u bytes do not hold frames of MTU %u",
			    pv_pool_config(pool)->buf_size, cfg->mtu);
	return 0;
}

int pv_bond_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_bond_cfg *cfg, char *err,
		 size_t errsize)
{
	const struct pv_pool_cfg *pc = pv_pool_config(pool);
	int rc = cfg_check(cfg, pool, err, errsize);
	struct bond *b;

	if (rc)
		return rc;
	b = mem->alloc(mem->ctx, sizeof(*b));
	if (b && pv_ring_stat_open(&b->ring, mem)) {
		mem->free(mem->ctx, b, sizeof(*b));
		b = NULL;
	}
	if (!b)
		return fail(err, errsize, -ENOMEM, "no memory for a bond");
	b->ring.ops = &bond_ops;
	b->ring.pool = pool;
	b->mem = mem;
	b->cfg = *cfg;
	b->cfg.name = NULL;
	pthread_mutex_init(&b->clock_lock, NULL);
	pv_pktq_init(&b->held);
	pv_pktq_init(&b->done);
	pv_pktq_init(&b->again);
	b->free_rule = UINT32_MAX;
	b->bits_bytes = (PV_MAX(pc->max, pc->count) + 63) / 64 * sizeof(uint64_t);
	b->own = mem->alloc(mem->ctx, b->bits_bytes);
	b->left_by = mem->alloc(mem->ctx, b->bits_bytes * 8 * sizeof(*b->left_by));
	b->txq = mem->alloc(mem->ctx, (PV_RING_TXQ_MAX + 1) * sizeof(*b->txq));
	b->epoll_fd = pv_ownfd(epoll_create1(EPOLL_CLOEXEC));
	if (!b->own || !b->left_by || !b->txq || b->epoll_fd < 0) {
		rc = b->epoll_fd < 0 ? -errno : -ENOMEM;
		bond_free(b);
		return fail(err, errsize, rc, "no memory or descriptor for a bond");
	}
	b->ring.caps.mtu = cfg->mtu;
	b->ring.caps.tx_csum = ALL_CSUM;
	memcpy(b->ring.caps.mac, cfg->mac, PV_ETH_ALEN);
	snprintf(b->ring.caps.name, sizeof(b->ring.caps.name), "bond:%s", cfg->name ? cfg->name : "");
	fill_caps(b);
	*out = &b->ring;
	return 0;
}
