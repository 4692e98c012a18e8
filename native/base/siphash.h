/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SipHash-2-4 (Aumasson, Bernstein 2012): a keyed hash that cannot be ground against without the key. For what an attacker sees
 * and may try to steer: identifications, ports, reassembly keys. Any thread.
 */
#ifndef PV_BASE_SIPHASH_H
#define PV_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/rng.h"

struct pv_siphash_key {
	uint64_t k0, k1;
};

pv_inline struct pv_siphash_key pv_siphash_key(uint64_t seed)
{
	struct pv_siphash_key k;

	k.k0 = pv_splitmix64(&seed);
	k.k1 = pv_splitmix64(&seed);
	return k;
}

uint64_t pv_siphash(const struct pv_siphash_key *key, const void *data, size_t len);

#endif
