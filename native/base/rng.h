/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pseudo-random numbers: xoshiro256** (Blackman, Vigna 2018) seeded by splitmix64. Not for secrets: what an attacker must not
 * guess goes through siphash.h with a key of its own. One thread at a time.
 */
#ifndef PV_BASE_RNG_H
#define PV_BASE_RNG_H

#include <stdint.h>

#include "base/compiler.h"

struct pv_rng {
	uint64_t s[4];
};

/* The next value of a splitmix64 sequence; also good to spread one seed over several users. */
pv_inline uint64_t pv_splitmix64(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

pv_inline void pv_rng_seed(struct pv_rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		r->s[i] = pv_splitmix64(&seed);
}

pv_inline uint64_t pv_rng_rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

pv_inline uint64_t pv_rng_u64(struct pv_rng *r)
{
	uint64_t *s = r->s;
	uint64_t result = pv_rng_rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = pv_rng_rotl(s[3], 45);
	return result;
}

pv_inline uint32_t pv_rng_u32(struct pv_rng *r)
{
	return (uint32_t)(pv_rng_u64(r) >> 32);
}

/* Uniform in 0 .. n-1, n > 0; the bias of at most n/2^64 is accepted. */
pv_inline uint64_t pv_rng_below(struct pv_rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)pv_rng_u64(r) * n) >> 64);
}

#endif
