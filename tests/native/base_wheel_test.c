/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wheel.h"

#include "base/rng.h"
#include "test.h"

#define N 400
#define TICK (INT64_C(1) << PV_WHEEL_TICK_SHIFT)

/* The model: every timer with the tick in which it comes due and the number of the call that armed it, searched from end to end. */
struct model {
	struct pv_wtimer t;
	uint64_t tick, order;
	bool armed;
};

static struct pv_wheel wheel;
static struct model timers[N];
static uint64_t calls;

static uint64_t ceil_tick(int64_t ns)
{
	return ns <= 0 ? 0 : ((uint64_t)ns + TICK - 1) / TICK;
}

static void begin(int64_t now)
{
	pv_wheel_init(&wheel, now);
	calls = 0;
	for (int i = 0; i < N; i++) {
		timers[i] = (struct model){ 0 };
		pv_wtimer_init(&timers[i].t);
	}
}

static void arm(struct model *m, int64_t deadline)
{
	uint64_t tick = ceil_tick(deadline);

	pv_wheel_set(&wheel, &m->t, deadline);
	m->armed = deadline != PV_NEVER;
	/* What is overdue comes behind what has come due by now. */
	m->tick = wheel.now_tick && tick < wheel.now_tick ? wheel.now_tick - 1 : tick;
	m->order = ++calls;
}

static struct model *model_first(void)
{
	struct model *best = NULL;

	for (int i = 0; i < N; i++) {
		struct model *m = &timers[i];

		if (m->armed && (!best || m->tick < best->tick || (m->tick == best->tick && m->order < best->order)))
			best = m;
	}
	return best;
}

static uint32_t model_count(void)
{
	uint32_t n = 0;

	for (int i = 0; i < N; i++)
		n += timers[i].armed;
	return n;
}

/* Every slot holds what its bit says, and nothing of a tick that is over. */
static void check_shape(void)
{
	uint32_t n = 0;

	for (uint32_t l = 0; l < PV_WHEEL_LEVELS; l++)
		for (uint32_t i = 0; i < PV_WHEEL_SLOTS; i++) {
			CHECK_EQ(wheel.used[l][i / 64] >> i % 64 & 1, !pv_list_empty(&wheel.slot[l][i]));
			pv_list_for_each(it, &wheel.slot[l][i]) {
				const struct pv_wtimer *t = pv_list_entry(it, struct pv_wtimer, link);

				CHECK(ceil_tick(t->deadline_ns) >= wheel.now_tick);
				n++;
			}
		}
	pv_list_for_each(it, &wheel.due)
		n++;
	CHECK_EQ(n, wheel.count);
}

/* All that is due at `now`, in the model's order and nothing else. */
static uint32_t drain(int64_t now)
{
	uint64_t tick = (uint64_t)now / TICK;
	struct pv_wtimer *t;
	uint32_t n = 0;

	while ((t = pv_wheel_pop_due(&wheel, now))) {
		struct model *want = model_first(), *m = pv_container_of(t, struct model, t);

		CHECK(m == want);
		CHECK(!pv_wtimer_armed(t));
		CHECK(m->tick <= tick);
		m->armed = false;
		n++;
	}
	if (model_first())
		CHECK(model_first()->tick > tick);
	return n;
}

static int64_t far(struct pv_rng *r)
{
	/* From nothing to 9 days, each size equally likely. */
	return (int64_t)(pv_rng_u64(r) >> (14 + pv_rng_below(r, 50)));
}

static void against_model(uint64_t seed, int64_t now)
{
	struct pv_rng r;
	uint32_t popped = 0;

	pv_rng_seed(&r, seed);
	begin(now);
	for (int step = 0; step < 40000; step++) {
		struct model *m = &timers[pv_rng_below(&r, N)];
		uint64_t what = pv_rng_below(&r, 100);
		int64_t d = pv_wheel_deadline(&wheel);

		if (model_first()) {
			CHECK(d <= (int64_t)(model_first()->tick * TICK));
		} else {
			CHECK_EQ(d, PV_NEVER);
		}
		if (what < 55) {
			arm(m, now + far(&r) - (what < 3 ? TICK * 3 : 0));
		} else if (what < 70) {
			pv_wheel_del(&wheel, &m->t);
			m->armed = false;
		} else if (what < 85) {
			now += far(&r) >> 8;
			popped += drain(now);
		} else if (what < 95 && d != PV_NEVER) {
			now = PV_MAX(now, d);
			popped += drain(now);
		} else {
			now++;
			popped += drain(now);
		}
		CHECK_EQ(wheel.count, model_count());
		CHECK_EQ(pv_wtimer_armed(&m->t), m->armed);
		if (step % 256 == 0)
			check_shape();
	}
	CHECK(popped > 1000);
}

TEST(against_a_model)
{
	against_model(1, 0);
	against_model(2, INT64_C(1000000000));
	against_model(3, 12345);
}

/* The clock of a machine that has been up for 208 days: the highest level goes round. */
TEST(the_highest_level_goes_round)
{
	against_model(4, (INT64_C(1) << 54) - INT64_C(3600) * PV_NS_PER_S);
	against_model(5, 5 * (INT64_C(1) << 54) - 1);
	against_model(6, 7 * (INT64_C(1) << 54) - (INT64_C(1) << 46));
}

/* Whoever sleeps until the deadline and calls gets everything, with at most one look in vain for each level, never twice at one time. */
TEST(deadlines_lead_to_every_timer)
{
	struct pv_rng r;
	int64_t now = 777, looks = 0;
	uint32_t got = 0;

	pv_rng_seed(&r, 9);
	begin(now);
	for (int i = 0; i < N; i++)
		arm(&timers[i], now + far(&r));
	while (wheel.count) {
		int64_t d = pv_wheel_deadline(&wheel);

		CHECK(d > now || got == 0);
		now = PV_MAX(now, d);
		got += drain(now);
		CHECK(++looks < N * (int64_t)PV_WHEEL_LEVELS);
	}
	CHECK_EQ(got, N);
}

TEST(never_early_and_at_most_a_tick_late)
{
	begin(5);
	for (int64_t d = 1; d < 300 * TICK; d += 7919) {
		int64_t now = (int64_t)(ceil_tick(d) * TICK);

		pv_wheel_init(&wheel, 5);
		arm(&timers[0], d);
		CHECK(!pv_wheel_pop_due(&wheel, d - 1));
		CHECK(!pv_wheel_pop_due(&wheel, now - 1) || now == d);
		if (pv_wtimer_armed(&timers[0].t))
			CHECK(pv_wheel_pop_due(&wheel, now) == &timers[0].t);
		CHECK(now - d < TICK);
		CHECK_EQ(wheel.count, 0);
	}
}

TEST(what_lies_beyond_the_highest_level_waits)
{
	const int64_t span = INT64_C(1) << 54;

	begin(100);
	arm(&timers[0], 3 * span + 5);
	arm(&timers[1], PV_NEVER - 1);
	for (int64_t now = 100; now < 3 * span; now += span / 3)
		CHECK_EQ(drain(now), 0);
	CHECK_EQ(drain(3 * span + 4), 0);
	CHECK_EQ(drain(3 * span + TICK), 1);
	CHECK(pv_wheel_deadline(&wheel) > 3 * span);
	pv_wheel_del(&wheel, &timers[1].t);
	pv_wheel_del(&wheel, &timers[1].t);
	CHECK_EQ(pv_wheel_deadline(&wheel), PV_NEVER);
}

/* A timer that is due and was not popped yet can be moved and disarmed as any other. */
TEST(due_timers_can_be_moved)
{
	begin(0);
	for (int i = 0; i < 3; i++)
		arm(&timers[i], 10);
	CHECK(pv_wheel_pop_due(&wheel, TICK) == &timers[0].t);
	pv_wheel_del(&wheel, &timers[1].t);
	arm(&timers[2], 5 * TICK);
	CHECK(!pv_wheel_pop_due(&wheel, 4 * TICK));
	CHECK_EQ(pv_wheel_deadline(&wheel), 5 * TICK);
	CHECK(pv_wheel_pop_due(&wheel, 5 * TICK) == &timers[2].t);
	CHECK(!pv_wheel_pop_due(&wheel, PV_NEVER - 1));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
