/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/heap.h"

#include "base/rng.h"
#include "test.h"
#include "testmem.h"

static void check_shape(const struct pv_heap *h)
{
	for (uint32_t i = 1; i <= h->count; i++) {
		CHECK_EQ(h->slot[i].timer->pos, i);
		CHECK_EQ(h->slot[i].timer->deadline_ns, h->slot[i].deadline_ns);
		if (i > 1)
			CHECK(h->slot[(i + 2) / 4].deadline_ns <= h->slot[i].deadline_ns);
	}
}

/* The model: all deadlines in an array, searched from end to end. */
TEST(against_a_model)
{
	enum { N = 300 };
	static struct pv_timer t[N];
	int64_t model[N];
	struct testmem m;
	struct pv_heap h;
	struct pv_rng r;
	uint32_t armed = 0;

	pv_rng_seed(&r, 11);
	CHECK_EQ(pv_heap_init(&h, testmem_init(&m), N), 0);
	for (int i = 0; i < N; i++)
		model[i] = PV_NEVER;
	for (int step = 0; step < 60000; step++) {
		uint32_t i = (uint32_t)pv_rng_below(&r, N);
		int64_t min = PV_NEVER, d = (int64_t)pv_rng_below(&r, 1000) - 500;

		/* Phases that grow, shrink and churn. */
		if (pv_rng_below(&r, 100) < (step / 5000 % 3 == 0 ? 80u : step / 5000 % 3 == 1 ? 20u : 50u)) {
			armed += model[i] == PV_NEVER;
			model[i] = d;
			CHECK_EQ(pv_heap_set(&h, &t[i], d), 0);
		} else {
			armed -= model[i] != PV_NEVER;
			model[i] = PV_NEVER;
			if (step & 1)
				pv_heap_del(&h, &t[i]);
			else
				CHECK_EQ(pv_heap_set(&h, &t[i], PV_NEVER), 0);
		}
		for (int k = 0; k < N; k++) {
			min = PV_MIN(min, model[k]);
			CHECK(pv_timer_armed(&t[k]) == (model[k] != PV_NEVER));
		}
		CHECK_EQ(h.count, armed);
		CHECK_EQ(pv_heap_deadline(&h), min);
		if (step % 64 == 0)
			check_shape(&h);
	}
	pv_heap_fini(&h);
	CHECK_EQ(m.blocks, 0);
	CHECK_EQ(m.bytes, 0);
}

TEST(due_timers_come_in_order)
{
	enum { N = 1000 };
	static struct pv_timer t[N];
	struct testmem m;
	struct pv_heap h;
	struct pv_rng r;
	int64_t last = INT64_MIN;
	uint32_t n = 0;

	pv_rng_seed(&r, 12);
	CHECK_EQ(pv_heap_init(&h, testmem_init(&m), N), 0);
	for (int i = 0; i < N; i++)
		CHECK_EQ(pv_heap_set(&h, &t[i], (int64_t)pv_rng_below(&r, 500)), 0);
	for (int64_t now = 0; now < 500; now += 7)
		for (struct pv_timer *d; (d = pv_heap_pop_due(&h, now)); n++) {
			CHECK(d->deadline_ns <= now && d->deadline_ns >= last && !pv_timer_armed(d));
			last = d->deadline_ns;
		}
	CHECK(n > 900 && n + h.count == N);
	CHECK(!pv_heap_pop_due(&h, last));
	pv_heap_fini(&h);
}

/* Equal deadlines: the same calls give the same order, wherever the timers lie in memory. */
TEST(order_does_not_depend_on_addresses)
{
	enum { N = 64 };
	static struct pv_timer t[N], u[N];
	struct pv_heap a, b;
	struct testmem m;

	CHECK_EQ(pv_heap_init(&a, testmem_init(&m), N), 0);
	CHECK_EQ(pv_heap_init(&b, &m.mem, N), 0);
	for (int i = 0; i < N; i++) {
		CHECK_EQ(pv_heap_set(&a, &t[i], i % 5), 0);
		CHECK_EQ(pv_heap_set(&b, &u[N - 1 - i], i % 5), 0);
	}
	for (int i = 0; i < N; i++) {
		struct pv_timer *x = pv_heap_pop_due(&a, 10), *y = pv_heap_pop_due(&b, 10);

		CHECK_EQ(x - t, N - 1 - (y - u));
	}
	pv_heap_fini(&a);
	pv_heap_fini(&b);
}

TEST(places_are_reserved)
{
	static struct pv_timer t[40];
	struct testmem m;
	struct pv_heap h;
	uint32_t n;

	testmem_init(&m);
	m.fail_in = 0;
	CHECK_EQ(pv_heap_init(&h, &m.mem, 1), -ENOMEM);
	m.fail_in = -1;
	CHECK_EQ(pv_heap_init(&h, &m.mem, 1), 0);
	n = h.cap;
	CHECK(n >= 1 && n < 40);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(pv_heap_set(&h, &t[i], (int64_t)i), 0);
	CHECK_EQ(pv_heap_set(&h, &t[n], 5), -ENOSPC);
	CHECK(!pv_timer_armed(&t[n]));
	CHECK_EQ(pv_heap_set(&h, &t[0], 99), 0);
	m.fail_in = 0;
	CHECK_EQ(pv_heap_reserve(&h, n + 1), -ENOMEM);
	CHECK_EQ(pv_heap_deadline(&h), 1);
	m.fail_in = -1;
	CHECK_EQ(pv_heap_reserve(&h, n + 1), 0);
	CHECK(h.cap >= 2 * n);
	CHECK_EQ(pv_heap_set(&h, &t[n], -5), 0);
	CHECK(pv_heap_min(&h) == &t[n]);
	check_shape(&h);
	CHECK_EQ(pv_heap_reserve(&h, UINT32_MAX), -ENOMEM);
	pv_heap_fini(&h);
	CHECK_EQ(m.blocks, 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
