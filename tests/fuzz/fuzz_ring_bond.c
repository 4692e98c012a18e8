/* SPDX-License-Identifier: BSD-3-Clause */
/* Arbitrary frames through the transmit hash and the header parser of bonds: what they say lies within the frame, and is the same again. */
#include "ring/bond_hash.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t len = (uint32_t)PV_MIN(size, (size_t)4096);
	struct pv_bond_headers h;

	for (uint32_t policy = 0; policy <= PV_BOND_HASH_ENCAP34; policy++)
		REQUIRE(pv_bond_hash(data, len, policy) == pv_bond_hash(data, len, policy));
	pv_bond_headers(data, len, &h);
	REQUIRE(!h.l4 || (h.l4 < len && h.version && h.l4 > h.l3));
	REQUIRE(!h.version || h.l3 < len);
	return 0;
}
