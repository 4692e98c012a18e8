/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/bench.h"

#include <math.h>

#include "base/rng.h"
#include "test.h"

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Quantiles of the sorted values themselves, by the same rule: the smallest value with at least q of all at or below it. */
static void check_quantiles(uint64_t *v, size_t n)
{
	static const double qs[] = { 0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 };
	static struct hist h;

	hist_init(&h);
	for (size_t i = 0; i < n; i++)
		hist_add(&h, v[i]);
	qsort(v, n, sizeof(*v), by_value);
	CHECK(h.count == n && h.min == v[0] && h.max == v[n - 1]);
	for (size_t i = 0; i < pv_array_size(qs); i++) {
		size_t rank = (size_t)ceil(qs[i] * (double)n);
		double exact = (double)v[rank ? rank - 1 : 0], got = hist_quantile(&h, qs[i]);

		CHECK(exact < 512 ? got == exact : fabs(got - exact) <= exact / 256);
	}
}

TEST(quantiles_against_sorted_values)
{
	static uint64_t v[50000];
	struct pv_rng r;

	pv_rng_seed(&r, 31);
	for (int round = 0; round < 20; round++) {
		size_t n = 1 + pv_rng_below(&r, pv_array_size(v));

		/* Spread over all octaves, bunched up in one, all the same, small. */
		for (size_t i = 0; i < n; i++) {
			uint64_t x = pv_rng_u64(&r);

			v[i] = round % 4 == 0   ? x >> (24 + x % 40)
			       : round % 4 == 1 ? 1000 + x % 300
			       : round % 4 == 2 ? 777777
						: x % 600;
		}
		check_quantiles(v, n);
	}
}

TEST(slots_meet_without_gap_or_overlap)
{
	uint32_t last = hist_slot(0);

	CHECK_EQ(last, 0);
	for (uint64_t v = 1; v < 1 << 20; v++) {
		uint32_t slot = hist_slot(v);

		CHECK(slot == last || slot == last + 1);
		last = slot;
	}
	for (uint32_t bit = 0; bit < 64; bit++)
		CHECK(hist_slot(UINT64_C(1) << bit) < HIST_SLOTS);
	CHECK(hist_slot(UINT64_MAX) == HIST_SLOTS - 1);
}

TEST(the_middle_of_a_slot_is_in_it)
{
	uint32_t last = hist_slot(UINT64_C(1) << 41);

	for (uint32_t slot = 0; slot <= last; slot++)
		CHECK_EQ(hist_slot((uint64_t)hist_value(slot)), slot);
	CHECK(hist_value(511) == 511 && hist_value(512) == 512.5 && hist_value(768) == 1025.5);
}

TEST(empty_histogram)
{
	static struct hist h;

	hist_init(&h);
	CHECK(hist_quantile(&h, 0.5) == 0);
}

/* Loss, duplicates and moderate reordering against an array of what came. */
TEST(sequences_against_a_model)
{
	enum { N = 200000 };
	static uint8_t came[N + 1];
	static struct seen s;
	struct pv_rng r;
	uint64_t unique = 0, duplicated = 0, reordered = 0, highest = 0, held[16] = { 0 };

	pv_rng_seed(&r, 32);
	seen_init(&s);
	for (uint64_t seq = 1; seq <= N; seq++) {
		uint32_t fate = (uint32_t)pv_rng_below(&r, 1000), slot = (uint32_t)pv_rng_below(&r, 16);
		uint64_t now[3] = { seq, 0, 0 };

		if (fate < 20)
			now[0] = 0;
		else if (fate < 40)
			now[1] = seq;
		else if (fate < 60) {
			now[0] = held[slot];
			held[slot] = seq;
		} else if (fate == 60) {
			/* A long outage. */
			seq += 30000;
			now[0] = 0;
		}
		for (int i = 0; i < 3; i++) {
			uint64_t got = now[i];

			if (!got || (highest - got < highest && highest - got >= SEEN_WINDOW))
				continue;
			seen_add(&s, got);
			if (came[got])
				duplicated++;
			else if (got < highest)
				reordered++;
			unique += !came[got];
			came[got] = 1;
			highest = PV_MAX(highest, got);
		}
	}
	CHECK(duplicated > 0 && reordered > 0);
	CHECK_EQ(s.unique, unique);
	CHECK_EQ(s.duplicated, duplicated);
	CHECK_EQ(s.reordered, reordered);
	CHECK_EQ(seen_lost(&s), highest - unique);
}

TEST(a_new_client_starts_again)
{
	static struct seen s;

	seen_init(&s);
	for (uint64_t i = 1; i <= 1000; i++)
		if (i != 500)
			seen_add(&s, i);
	for (uint64_t i = 1; i <= 10; i++)
		seen_add(&s, i);
	CHECK_EQ(seen_lost(&s), 1);
	CHECK_EQ(s.duplicated, 0);
	CHECK_EQ(s.unique, 10);
	/* Its first message twice is no third client. */
	seen_add(&s, 1);
	CHECK_EQ(s.duplicated, 1);
}

/* Where nobody starts again the first may come late, too. */
TEST(the_first_comes_last)
{
	static struct seen s;

	seen_init(&s);
	for (uint64_t i = 2; i <= 1000; i++)
		seen_other(&s, i);
	seen_other(&s, 1);
	CHECK_EQ(seen_lost(&s), 0);
	CHECK_EQ(s.unique, 1000);
	CHECK_EQ(s.reordered, 1);
	seen_other(&s, 1);
	CHECK_EQ(s.duplicated, 1);
	CHECK_EQ(s.unique, 1000);
}

TEST(header_as_sockperf_has_it)
{
	static const uint8_t want[MSG_HLEN] = { 0, 0, 0, 0, 0, 0x12, 0xd6, 0x87, 0, 3, 0, 0, 5, 0xc0 };
	uint8_t m[MSG_HLEN];

	msg_put(m, 1234567, MSG_CLIENT | MSG_PONG, 1472);
	CHECK(!memcmp(m, want, sizeof(m)));
	CHECK_EQ(msg_seq(m), 1234567);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
