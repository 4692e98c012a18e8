/* SPDX-License-Identifier: BSD-3-Clause */
/* The scoreboard under random acknowledgements: `tcp_sack_test RUNS` for more of them. */
#include "tcp_sack.h"

#define RUN_BYTES 2000u

static uint32_t runs = 300;

TEST(random_blocks)
{
	static struct sack_run r;
	static uint8_t data[RUN_BYTES];
	uint64_t steps = 0, marked = 0;

	for (uint32_t seed = 1; seed <= runs; seed++) {
		struct pv_rng rng;

		pv_rng_seed(&rng, seed);
		for (uint32_t i = 0; i < RUN_BYTES; i++)
			data[i] = (uint8_t)pv_rng_u32(&rng);
		sack_run(&r, data, RUN_BYTES);
		steps += r.steps;
		marked += r.marked;
	}
	/* The runs did reach what they are about. */
	CHECK(steps > 100 * (uint64_t)runs);
	CHECK(marked > 100 * (uint64_t)runs);
}

int main(int argc, char **argv)
{
	if (argc > 1 && atoi(argv[1]) > 0) {
		runs = (uint32_t)atoi(argv[1]);
		argc = 1;
	}
	return test_main(argc, argv);
}
