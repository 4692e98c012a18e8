/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reassembly of a TCP stream against an array of bytes: see tests/native/tcp_reass.h for what an input means.
 *
 *   cmake --preset fuzz && ninja -C build/fuzz fuzz_tcp_reass
 *   tools/run_fuzz.py --only fuzz_tcp_reass --seconds 600
 */
#include "tcp_reass.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	test_current = "fuzz_tcp_reass";
	reass_run(data, PV_MIN(size, 4096));
	return 0;
}
