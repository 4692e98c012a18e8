/* SPDX-License-Identifier: BSD-3-Clause */
/* SipHash-2-4 as in the paper, section 2: two rounds a word, four at the end; the last word carries the length in its top byte. */
#include "base/siphash.h"

#include <string.h>

struct sip {
	uint64_t v0, v1, v2, v3;
};

pv_inline void round_(struct sip *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = pv_rng_rotl(s->v1, 13) ^ s->v0;
	s->v3 = pv_rng_rotl(s->v3, 16) ^ s->v2;
	s->v0 = pv_rng_rotl(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = pv_rng_rotl(s->v1, 17) ^ s->v2;
	s->v3 = pv_rng_rotl(s->v3, 21) ^ s->v0;
	s->v2 = pv_rng_rotl(s->v2, 32);
}

pv_inline void word(struct sip *s, uint64_t m)
{
	s->v3 ^= m;
	round_(s);
	round_(s);
	s->v0 ^= m;
}

uint64_t pv_siphash(const struct pv_siphash_key *key, const void *data, size_t len)
{
	struct sip s = { .v0 = key->k0 ^ UINT64_C(0x736f6d6570736575),
			 .v1 = key->k1 ^ UINT64_C(0x646f72616e646f6d),
			 .v2 = key->k0 ^ UINT64_C(0x6c7967656e657261),
			 .v3 = key->k1 ^ UINT64_C(0x7465646279746573) };
	const uint8_t *p = data;
	size_t left = len;
	uint64_t m;

	for (; left >= 8; p += 8, left -= 8) {
		memcpy(&m, p, sizeof(m));
		word(&s, m);
	}
	m = 0;
	if (left)
		memcpy(&m, p, left);
	word(&s, m | (uint64_t)len << 56);
	s.v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		round_(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
