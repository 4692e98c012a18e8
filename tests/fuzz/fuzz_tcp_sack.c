/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Acknowledgements and SACK blocks of any kind against an established connection, beside a model of the scoreboard (tcp_sack.h).
 *
 *   cmake --preset fuzz && ninja -C build/fuzz fuzz_tcp_sack
 *   tools/run_fuzz.py --only fuzz_tcp_sack --seconds 600
 */
#include "tcp_sack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sack_run r;

	test_current = "fuzz";
	sack_run(&r, data, PV_MIN(size, (size_t)4000));
	return 0;
}
