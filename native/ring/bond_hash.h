/* SPDX-License-Identifier: BSD-3-Clause */
/* The transmit hash of the kernel's bonding driver: the same frame, the same number, so that the kernel and we choose the same slave
 * for a flow. No state, any thread. */
#ifndef PV_RING_BOND_HASH_H
#define PV_RING_BOND_HASH_H

#include <stdbool.h>
#include <stdint.h>

#define PV_BOND_HASH_L2 0u
#define PV_BOND_HASH_L34 1u
#define PV_BOND_HASH_L23 2u
#define PV_BOND_HASH_ENCAP23 3u
#define PV_BOND_HASH_ENCAP34 4u

/* `len`: bytes at `data`, which need not be the whole frame. The kernel takes this modulo the number of slaves that may send. */
uint32_t pv_bond_hash(const uint8_t *data, uint32_t len, uint32_t policy);

/* Where the outer headers of a frame are. */
struct pv_bond_headers {
	uint32_t l3, l4; /* offsets; l4 0: not to be seen, or a fragment */
	uint8_t version, proto; /* 0: not IP */
};
void pv_bond_headers(const uint8_t *data, uint32_t len, struct pv_bond_headers *out);

#endif
