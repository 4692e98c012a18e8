/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive queues: the owner's side, and their memory.
 *
 * The consumer looks at one line, the slot at its position, until the low half of the position appears in it. It tells how far it
 * has come once every quarter of the ring. A slot that was claimed and never completed since its claimant died is given to the
 * consumer as one to skip, by whoever reaps that client; the consumer asks for that when it waits at a claimed slot.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "softnic/fab.h"

/* A queue as its entry describes it; false for one that is gone or whose numbers cannot be. */
bool sn_target_get(struct sn_shm *s, uint32_t no, struct sn_target *t)
{
	struct sn_rxq_ent *e;
	uint32_t first, slots;

	if (no >= SN_RXQS)
		return false;
	e = &s->rxq[no];
	first = sn_get(&e->first);
	slots = sn_get(&e->slots);
	if (sn_get(&e->state) != SN_LIVE || slots < SN_QUEUE_MIN || slots > SN_QUEUE_MAX || (slots & (slots - 1)) ||
	    first > SN_ARENA_SLOTS - slots || sn_get(&e->port) >= SN_PORTS)
		return false;
	t->ent = e;
	t->claim = &s->claim[first];
	t->slot = (struct sn_slot *)(void *)s->arena[first];
	t->mask = slots - 1;
	t->port = (uint8_t)sn_get(&e->port);
	t->stamped = sn_get(&e->stamped) != 0;
	t->hash = 0;
	return true;
}

/* First fit among the ranges in use; -ENOSPC when there is none. */
static int64_t arena_find(const struct sn_shm *s, uint32_t slots)
{
	uint32_t at = 0;

	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t i = 0; i < SN_RXQS; i++) {
			uint32_t first = sn_get(&s->rxq[i].first), n = sn_get(&s->rxq[i].slots);

			if (sn_get(&s->rxq[i].state) == SN_FREE || n > SN_ARENA_SLOTS || first > SN_ARENA_SLOTS)
				continue;
			if (at < first + n && first < at + slots) {
				at = first + n;
				moved = true;
			}
		}
	}
	return at + slots <= SN_ARENA_SLOTS ? (int64_t)at : -ENOSPC;
}

/* With the lock: an entry with memory behind it, empty, not yet live. */
static int rxq_make(struct sn_port *p, uint32_t slots)
{
	struct sn_fabric *f = p->f;
	struct sn_shm *s = f->s;
	struct sn_rxq_ent *e;
	int64_t first;
	uint32_t no;
	int rc;

	sn_clients_reap(f);
	sn_rxq_collect(f);
	for (no = 0; no < SN_RXQS && sn_get(&s->rxq[no].state) != SN_FREE; no++)
		;
	first = arena_find(s, slots);
	if (no == SN_RXQS || first < 0)
		return sn_fail(-ENOSPC, "fabric %s: no room for a receive queue of %u slots", f->name, slots);
	sn_release(f, s->arena[first], (size_t)slots * SN_SLOT);
	rc = sn_reserve(f, s->arena[first], (size_t)slots * SN_SLOT);
	if (!rc)
		rc = sn_reserve(f, &s->claim[first], slots * sizeof(s->claim[0]));
	if (rc) {
		sn_release(f, s->arena[first], (size_t)slots * SN_SLOT);
		return rc;
	}
	/* Positions start at `slots`, so that the zeros of the memory are of no lap. */
	memset((void *)&s->claim[first], 0, slots * sizeof(s->claim[0]));
	e = &s->rxq[no];
	sn_set(&e->client, f->client);
	sn_set(&e->lane, p->lane_no);
	sn_set(&e->port, p->number);
	sn_set(&e->first, (uint32_t)first);
	sn_set(&e->slots, slots);
	sn_set(&e->stamped, 0);
	sn_set(&e->head, slots);
	sn_set(&e->tail, slots);
	sn_set(&e->armed, 0);
	if (sn_get(&s->rxqs_used) < no + 1)
		sn_set(&s->rxqs_used, no + 1);
	sn_set(&e->state, SN_LIVE);
	return (int)no;
}

int sn_rxq_create(struct sn_port *p, uint32_t slots, struct sn_rxq **out)
{
	struct sn_target t;
	struct sn_rxq *q;
	uint32_t n = SN_QUEUE_MIN;
	int rc;

	if (!slots || slots > SN_QUEUE_MAX)
		return sn_fail(-EINVAL, "a receive queue has 1 to %u slots", SN_QUEUE_MAX);
	while (n < slots)
		n *= 2;
	q = calloc(1, sizeof(*q));
	if (!q)
		return sn_fail(-ENOMEM, "no memory");
	rc = sn_lock(p->f);
	if (rc) {
		free(q);
		return rc;
	}
	rc = rxq_make(p, n);
	if (rc >= 0 && !sn_target_get(p->s, (uint32_t)rc, &t))
		rc = sn_fail(-EBADMSG, "fabric %s is damaged", p->f->name);
	sn_unlock(p->f);
	if (rc < 0) {
		free(q);
		return rc;
	}
#ifdef MADV_POPULATE_WRITE
	madvise(t.slot, (size_t)n * SN_SLOT, MADV_POPULATE_WRITE);
#endif
	q->f = p->f;
	q->port = p;
	q->no = (uint32_t)rc;
	q->ent = t.ent;
	q->slot = t.slot;
	q->claim = t.claim;
	q->mask = n - 1;
	q->quarter = n / 4;
	q->pos = q->told = n;
	*out = q;
	return 0;
}

void sn_rxq_kill(struct sn_fabric *f, uint32_t no)
{
	struct sn_rxq_ent *e = &f->s->rxq[no];

	sn_rules_drop_queue(f, no);
	sn_set(&e->dead_gen, sn_get(&f->s->generation));
	sn_set(&e->state, SN_DYING);
}

/* No sender is at work by a path that is older than the queue's end. */
static bool quiet(struct sn_shm *s, uint64_t dead_gen)
{
	uint32_t used = PV_MIN(sn_get(&s->lanes_used), SN_LANES);

	for (uint32_t i = 0; i < used; i++) {
		uint64_t busy = sn_get(&s->lane[i].busy);

		if (busy && busy <= dead_gen && sn_get(&s->lane_ent[i].state) == SN_LIVE)
			return false;
	}
	return true;
}

/*
 * A sender stores the generation of its paths in `busy` and then looks whether it is still the fabric's; the barrier at the end of
 * each change stands between the new generation and this look at `busy`. So a sender found idle will see the new generation before
 * it touches the memory. One that is at work, or stopped in the middle of it, only delays the reuse.
 */
void sn_rxq_collect(struct sn_fabric *f)
{
	struct sn_shm *s = f->s;
	uint32_t used = PV_MIN(sn_get(&s->rxqs_used), SN_RXQS);

	for (uint32_t i = 0; i < used; i++) {
		struct sn_rxq_ent *e = &s->rxq[i];
		uint32_t first = sn_get(&e->first), slots = sn_get(&e->slots);

		if (sn_get(&e->state) != SN_DYING || !quiet(s, sn_get(&e->dead_gen)))
			continue;
		if (slots <= SN_QUEUE_MAX && first <= SN_ARENA_SLOTS - slots)
			sn_release(f, s->arena[first], (size_t)slots * SN_SLOT);
		sn_set(&e->state, SN_FREE);
	}
}

void sn_rxq_destroy(struct sn_rxq *q)
{
	struct sn_fabric *f = q->f;

	if (!sn_lock(f)) {
		sn_change_begin(f);
		sn_rxq_kill(f, q->no);
		sn_change_end(f);
		sn_unlock(f);
	}
	free(q);
}

void sn_rxq_set_tstamp(struct sn_rxq *q, bool on)
{
	if (sn_lock(q->f))
		return;
	sn_change_begin(q->f);
	sn_set(&q->ent->stamped, on);
	sn_change_end(q->f);
	sn_unlock(q->f);
}

static bool passed(const struct sn_target *t, uint64_t pos)
{
	return pos < sn_get(&t->ent->head);
}

/*
 * With the lock: completes, as slots to skip, what a client had claimed that is dead, or leaves.
 *
 * The others go on meanwhile. A slot that was complete when its claim was read may be consumed and another's by the time its `seq` is, which
 * is of a later position then, not of this one. But before a slot is claimed anew `head` has passed it, and the new `seq` comes behind
 * that; so `head` is looked at after `seq`. What it has not passed even then is incomplete, and stays so: only the claimant or the lock's
 * holder completes it, and until then nobody consumes it.
 */
void sn_rxq_unclaim(struct sn_fabric *f, uint32_t no, uint32_t client)
{
	struct sn_target t;

	if (!sn_target_get(f->s, no, &t))
		return;
	for (uint32_t i = 0; i <= t.mask; i++) {
		uint64_t w = sn_get(&t.claim[i]), pos = SN_CLAIM_POS(w);
		struct sn_slot *slot = &t.slot[i];

		/* The first look spares those long gone the second. */
		if (SN_CLAIM_CLIENT(w) != client || (pos & t.mask) != i || passed(&t, pos))
			continue;
		if (sn_get(&slot->seq) == (uint32_t)pos || passed(&t, pos))
			continue;
		slot->len = 0;
		slot->flags = SN_RX_SKIP;
		slot->hash = SN_CLAIM_N(w);
		sn_set(&slot->seq, (uint32_t)pos);
	}
}

static bool published(const struct sn_rxq *q)
{
	return sn_get(&q->slot[q->pos & q->mask].seq) == (uint32_t)q->pos;
}

/* The slot at the queue's position is taken by a sender that has not completed it. */
static bool claimed(const struct sn_rxq *q)
{
	return SN_CLAIM_POS(sn_get(&q->claim[q->pos & q->mask])) == q->pos && !published(q);
}

static void free_claimed(struct sn_rxq *q)
{
	uint32_t client = SN_CLAIM_CLIENT(sn_get(&q->claim[q->pos & q->mask]));

	if (sn_client_alive(q->f, client) || sn_lock(q->f))
		return;
	sn_clients_reap(q->f);
	/* If others have reaped it meanwhile the slot is complete, and the number may be a living process's. */
	if (claimed(q) && !sn_client_alive(q->f, client))
		sn_rxq_unclaim(q->f, q->no, client);
	sn_unlock(q->f);
}

static void advance(struct sn_rxq *q, uint32_t n)
{
	q->pos += n;
	if (q->pos - q->told >= q->quarter) {
		q->told = q->pos;
		sn_set(&q->ent->head, q->pos);
	}
}

static pv_noinline bool peek_none(struct sn_rxq *q)
{
	if (++q->idle % SN_IDLE_CHECK == 0 && claimed(q))
		free_claimed(q);
	return false;
}

/* A long frame; false: a slot that holds none, which is passed. By the description in `out`: the slot's own may change under a look
 * that is no copy. */
static pv_noinline bool peek_other(struct sn_rxq *q, struct sn_frame *out)
{
	uint32_t left = out->len, n = 0;

	if (out->flags & SN_RX_SKIP || left > SN_FRAME_MAX || left == 0) {
		n = out->flags & SN_RX_SKIP ? out->rss_hash : 1;
		advance(q, n && n <= SN_FRAME_SLOTS ? n : 1);
		return false;
	}
	while (left) {
		uint32_t part = PV_MIN(left, SN_SLOT_DATA);

		out->seg[n] = q->slot[(q->pos + n) & q->mask].data;
		out->seg_len[n] = part;
		left -= part;
		n++;
	}
	out->nseg = q->n = n;
	return true;
}

bool sn_rxq_peek(struct sn_rxq *q, struct sn_frame *out)
{
	const struct sn_slot *slot;
	uint32_t len;

	do {
		slot = &q->slot[q->pos & q->mask];
		if (sn_get(&slot->seq) != (uint32_t)q->pos)
			return peek_none(q);
		pv_prefetch(&slot->data[SN_SLOT_LINE]);
		len = slot->len;
		out->len = len;
		out->flags = slot->flags;
		out->rss_hash = slot->hash;
		out->tstamp_ns = (uint64_t)slot->tstamp_hi << 32 | slot->tstamp_lo;
		if (pv_likely(len - 1 < SN_SLOT_DATA)) {
			out->seg[0] = slot->data;
			out->seg_len[0] = len;
			out->nseg = 1;
			q->n = 1;
			return true;
		}
	} while (!peek_other(q, out));
	return true;
}

void sn_rxq_pop(struct sn_rxq *q)
{
	advance(q, q->n);
}

/*
 * Armed first, looked after: between the two stands a barrier for the senders' completion of a slot and their look at `armed`, so
 * either this sees the frame or its sender sees the queue armed. While a sender is in the middle of the next frame the queue does
 * not go to sleep, since one that dies there wakes nobody.
 */
int sn_rxq_arm(struct sn_rxq *q, struct sn_waker *w)
{
	uint64_t armed;

	if (published(q))
		return 1;
	armed = SN_ARMED(++q->armings, w->no);
	sn_set(&q->ent->armed, armed);
	sn_barrier(q->f);
	/* In this order: a claim that is completed between the two looks counts as a frame. */
	if (!claimed(q) && !published(q))
		return 0;
	atomic_compare_exchange_strong(&q->ent->armed, &armed, 0);
	if (claimed(q)) {
		free_claimed(q);
		sched_yield();
	}
	return 1;
}

bool sn_rxq_armed(const struct sn_rxq *q)
{
	return sn_get(&q->ent->armed) != 0;
}
