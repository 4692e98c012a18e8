/* SPDX-License-Identifier: BSD-3-Clause */
/* The transmit hash: frames of tests/data/bond_hash.txt, which a second implementation hashed; and frames that end too early. */
#include "base/rng.h"
#include "ring/bond_hash.h"
#include "test.h"

#define FRAME_MAX 256u

struct vector {
	uint32_t policy, hash, len;
	uint8_t *frame; /* of exactly `len` bytes, for AddressSanitizer */
};

static FILE *vectors_open(void)
{
	FILE *f = fopen(TEST_DATA "/bond_hash.txt", "r");
	char line[1024];

	CHECK(f != NULL);
	CHECK(fgets(line, sizeof(line), f) && line[0] == '#');
	return f;
}

static bool vector_next(FILE *f, struct vector *v)
{
	char hex[2 * FRAME_MAX + 1];

	if (fscanf(f, "%" SCNu32 " %" SCNx32 " %512s", &v->policy, &v->hash, hex) != 3)
		return false;
	v->len = (uint32_t)strlen(hex) / 2;
	v->frame = malloc(v->len);
	CHECK(v->frame != NULL);
	for (uint32_t i = 0; i < v->len; i++) {
		unsigned int byte;

		CHECK_EQ(sscanf(hex + 2 * i, "%2x", &byte), 1);
		v->frame[i] = (uint8_t)byte;
	}
	return true;
}

TEST(as_the_kernel_hashes)
{
	FILE *f = vectors_open();
	uint32_t n[5] = { 0 };
	struct vector v;

	while (vector_next(f, &v)) {
		uint32_t hash = pv_bond_hash(v.frame, v.len, v.policy);

		if (hash != v.hash)
			fprintf(stderr, "frame %u of policy %u: %08x, not %08x\n", n[v.policy], v.policy, hash, v.hash);
		CHECK_EQ(hash, v.hash);
		n[v.policy]++;
		free(v.frame);
	}
	fclose(f);
	for (uint32_t i = 0; i < 5; i++)
		CHECK(n[i] > 300 && n[i] == n[0]);
	printf("%u frames by each policy\n", n[0]);
}

/* Cut anywhere, with bytes changed at random: nothing behind the end is read. */
TEST(any_bytes_at_all)
{
	FILE *f = vectors_open();
	struct pv_bond_headers h;
	struct pv_rng rng;
	struct vector v;
	uint32_t all = 0;

	pv_rng_seed(&rng, 9);
	while (vector_next(f, &v)) {
		for (uint32_t len = 0; len <= v.len; len++) {
			uint8_t *cut = malloc(len ? len : 1);

			CHECK(cut != NULL);
			memcpy(cut, v.frame, len);
			if (len > 14 && pv_rng_below(&rng, 2))
				cut[12 + pv_rng_below(&rng, len - 12)] = (uint8_t)pv_rng_u32(&rng);
			all ^= pv_bond_hash(cut, len, v.policy);
			pv_bond_headers(cut, len, &h);
			CHECK(h.l4 < len || !len);
			free(cut);
		}
		free(v.frame);
	}
	fclose(f);
	CHECK(all != 0);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
