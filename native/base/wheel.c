/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which level a timer waits in says the highest digit (base 256) in which its tick differs from the present one, so that everything of a
 * block of ticks is in one slot of the level above until time enters that block; then the slot is spread over the level below. Hence
 * timers of one tick meet in the order in which they were armed, and the slot of the present digit is empty in every level but the lowest.
 *
 * The highest level goes round: a slot behind the present one belongs to the next turn.
 */
#include "base/wheel.h"

#define DIGIT(tick, level) ((uint32_t)((tick) >> (PV_WHEEL_BITS * (level))) & (PV_WHEEL_SLOTS - 1))
#define TOP (PV_WHEEL_LEVELS - 1)

void pv_wheel_init(struct pv_wheel *w, int64_t now_ns)
{
	*w = (struct pv_wheel){ .now_tick = (uint64_t)PV_MAX(now_ns, 0) >> PV_WHEEL_TICK_SHIFT };
	for (uint32_t l = 0; l < PV_WHEEL_LEVELS; l++)
		for (uint32_t i = 0; i < PV_WHEEL_SLOTS; i++)
			pv_list_init(&w->slot[l][i]);
	pv_list_init(&w->due);
}

/* The first tick that begins when the deadline has passed: never early. */
pv_inline uint64_t tick_of(int64_t deadline_ns)
{
	uint64_t d = (uint64_t)PV_MAX(deadline_ns, 0);

	return (d >> PV_WHEEL_TICK_SHIFT) + ((d & ((1u << PV_WHEEL_TICK_SHIFT) - 1)) != 0);
}

static void insert(struct pv_wheel *w, struct pv_wtimer *t)
{
	uint64_t tick = tick_of(t->deadline_ns), differs = tick ^ w->now_tick, ahead;
	uint32_t level = 0, i;

	if (tick < w->now_tick) {
		pv_list_add(&w->due, &t->link);
		return;
	}
	while (level < TOP && differs >> (PV_WHEEL_BITS * (level + 1)))
		level++;
	if (pv_unlikely(level == TOP)) {
		/* What is more than a turn away waits in the last slot of this one. */
		ahead = (tick >> (PV_WHEEL_BITS * TOP)) - (w->now_tick >> (PV_WHEEL_BITS * TOP));
		if (ahead >= PV_WHEEL_SLOTS)
			tick = w->now_tick + ((uint64_t)(PV_WHEEL_SLOTS - 1) << (PV_WHEEL_BITS * TOP));
	}
	i = DIGIT(tick, level);
	w->used[level][i / 64] |= UINT64_C(1) << i % 64;
	pv_list_add(&w->slot[level][i], &t->link);
}

/* Out of its list; a slot that becomes empty leaves the bitmap. */
static void unlink_timer(struct pv_wheel *w, struct pv_wtimer *t)
{
	struct pv_list *at = t->link.next;
	bool last = at == t->link.prev && at != &w->due;
	size_t n;

	pv_list_del(&t->link);
	if (!last)
		return;
	n = (size_t)(at - &w->slot[0][0]);
	w->used[n / PV_WHEEL_SLOTS][n % PV_WHEEL_SLOTS / 64] &= ~(UINT64_C(1) << n % 64);
}

void pv_wheel_set(struct pv_wheel *w, struct pv_wtimer *t, int64_t deadline_ns)
{
	if (pv_wtimer_armed(t)) {
		unlink_timer(w, t);
		w->count--;
	}
	t->deadline_ns = deadline_ns;
	if (deadline_ns == PV_NEVER)
		return;
	insert(w, t);
	w->count++;
}

void pv_wheel_del(struct pv_wheel *w, struct pv_wtimer *t)
{
	pv_wheel_set(w, t, PV_NEVER);
}

/* First used slot of a level at or behind `from`; PV_WHEEL_SLOTS: none. */
static uint32_t find_slot(const struct pv_wheel *w, uint32_t level, uint32_t from)
{
	uint64_t bits;

	if (from >= PV_WHEEL_SLOTS)
		return PV_WHEEL_SLOTS;
	bits = w->used[level][from / 64] & (UINT64_MAX << from % 64);
	for (uint32_t i = from / 64;;) {
		if (bits)
			return i * 64 + (uint32_t)__builtin_ctzll(bits);
		if (++i == PV_WHEEL_SLOTS / 64)
			return PV_WHEEL_SLOTS;
		bits = w->used[level][i];
	}
}

/* The tick with which the first used slot begins; it is not before now_tick. UINT64_MAX: all are empty. */
static uint64_t next_tick(const struct pv_wheel *w)
{
	uint32_t i = find_slot(w, 0, DIGIT(w->now_tick, 0));
	uint64_t turn = w->now_tick >> (PV_WHEEL_BITS * PV_WHEEL_LEVELS);

	if (i < PV_WHEEL_SLOTS)
		return (w->now_tick & ~(uint64_t)(PV_WHEEL_SLOTS - 1)) | i;
	for (uint32_t l = 1; l < PV_WHEEL_LEVELS; l++) {
		uint32_t shift = PV_WHEEL_BITS * l;

		i = find_slot(w, l, DIGIT(w->now_tick, l) + 1);
		if (i < PV_WHEEL_SLOTS)
			return ((w->now_tick >> shift & ~(uint64_t)(PV_WHEEL_SLOTS - 1)) | i) << shift;
	}
	i = find_slot(w, TOP, 0);
	if (i == PV_WHEEL_SLOTS)
		return UINT64_MAX;
	return ((turn + 1) << PV_WHEEL_BITS | i) << (PV_WHEEL_BITS * TOP);
}

static void take_slot(struct pv_wheel *w, uint32_t level, uint32_t i, struct pv_list *out)
{
	struct pv_list *slot = &w->slot[level][i];

	out->next = slot->next;
	out->prev = slot->prev;
	out->next->prev = out->prev->next = out;
	pv_list_init(slot);
	w->used[level][i / 64] &= ~(UINT64_C(1) << i % 64);
}

/* Time goes on to a tick before which no slot begins. Where that is the start of blocks, their slots are spread, highest level first. */
static void enter(struct pv_wheel *w, uint64_t tick)
{
	w->now_tick = tick;
	for (uint32_t l = TOP; l > 0; l--) {
		uint32_t i = DIGIT(tick, l);
		struct pv_list all;

		if (!(w->used[l][i / 64] >> i % 64 & 1))
			continue;
		take_slot(w, l, i, &all);
		while (!pv_list_empty(&all)) {
			struct pv_wtimer *t = pv_list_entry(all.next, struct pv_wtimer, link);

			pv_list_del(&t->link);
			insert(w, t);
		}
	}
}

/* Until something is due or nothing can be. */
static void advance(struct pv_wheel *w, uint64_t now)
{
	while (w->now_tick <= now) {
		uint64_t next = w->count ? next_tick(w) : UINT64_MAX;
		uint32_t i;

		if (next > now) {
			enter(w, now + 1);
			return;
		}
		if (next != w->now_tick)
			enter(w, next);
		i = DIGIT(next, 0);
		if (!(w->used[0][i / 64] >> i % 64 & 1))
			continue;
		take_slot(w, 0, i, &w->due);
		enter(w, next + 1);
		return;
	}
}

struct pv_wtimer *pv_wheel_pop_due(struct pv_wheel *w, int64_t now_ns)
{
	uint64_t now = (uint64_t)PV_MAX(now_ns, 0) >> PV_WHEEL_TICK_SHIFT;
	struct pv_wtimer *t;

	if (pv_list_empty(&w->due)) {
		if (now < w->now_tick)
			return NULL;
		advance(w, now);
		if (pv_list_empty(&w->due))
			return NULL;
	}
	t = pv_list_entry(w->due.next, struct pv_wtimer, link);
	pv_wheel_del(w, t);
	return t;
}

int64_t pv_wheel_deadline(const struct pv_wheel *w)
{
	uint64_t next;

	if (!w->count)
		return PV_NEVER;
	if (!pv_list_empty(&w->due))
		return pv_list_entry(w->due.next, const struct pv_wtimer, link)->deadline_ns;
	next = next_tick(w);
	return next > (uint64_t)INT64_MAX >> PV_WHEEL_TICK_SHIFT ? PV_NEVER - 1 : (int64_t)(next << PV_WHEEL_TICK_SHIFT);
}
