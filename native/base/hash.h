/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keyed hashes for the demux tables: two or three 64x64 multiplications, folded. The key keeps chains unpredictable from outside; a
 * table that an attacker can measure and grind against uses siphash.h. Any thread.
 */
#ifndef PV_BASE_HASH_H
#define PV_BASE_HASH_H

#include <stdint.h>

#include "base/addr.h"
#include "base/compiler.h"
#include "base/rng.h"

struct pv_hash_key {
	uint64_t k0, k1;
};

pv_inline struct pv_hash_key pv_hash_key(uint64_t seed)
{
	struct pv_hash_key k;

	/* Odd, so that a zero input never multiplies the rest away for good. */
	k.k0 = pv_splitmix64(&seed) | 1;
	k.k1 = pv_splitmix64(&seed) | 1;
	return k;
}

pv_inline uint64_t pv_hash_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 p = (unsigned __int128)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

pv_inline uint32_t pv_hash_u64(const struct pv_hash_key *k, uint64_t v)
{
	return (uint32_t)pv_hash_mix(pv_hash_mix(v ^ k->k0, k->k1), k->k0);
}

pv_inline uint32_t pv_hash_u128(const struct pv_hash_key *k, uint64_t a, uint64_t b)
{
	return (uint32_t)pv_hash_mix(pv_hash_mix(a ^ k->k0, k->k1) ^ b, k->k0);
}

/* An address with up to 64 bits more: port, interface, protocol. One multiplication alone leaves small numbers in a row too regular. */
pv_inline uint32_t pv_hash_addr(const struct pv_hash_key *k, const struct pv_addr *a, uint64_t extra)
{
	uint64_t h = pv_hash_mix(a->q[0] ^ k->k0 ^ extra, a->q[1] ^ k->k1);

	return (uint32_t)pv_hash_mix(h, k->k1);
}

/* A flow: both addresses, both ports (any order of bytes, always the same one), protocol. */
pv_inline uint32_t pv_hash_flow(const struct pv_hash_key *k, const struct pv_addr *local, const struct pv_addr *remote,
				uint16_t local_port, uint16_t remote_port, uint8_t proto)
{
	uint64_t rest = (uint64_t)local_port | (uint64_t)remote_port << 16 | (uint64_t)proto << 32;
	uint64_t a = pv_hash_mix(local->q[0] ^ k->k0, local->q[1] ^ k->k1);
	uint64_t b = pv_hash_mix(remote->q[0] ^ k->k1, remote->q[1] ^ k->k0 ^ rest);

	return (uint32_t)pv_hash_mix(a ^ k->k1, b ^ k->k0);
}

#endif
