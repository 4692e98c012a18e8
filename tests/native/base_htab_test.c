/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/htab.h"

#include "base/hash.h"
#include "test.h"
#include "testmem.h"

struct item {
	uint32_t value;
	struct pv_hnode node;
	bool in, seen;
};

static struct item *find(const struct pv_htab *t, uint32_t hash, uint32_t value)
{
	pv_htab_for_each(n, t, hash)
	{
		struct item *it = pv_htab_entry(n, struct item, node);

		if (it->value == value)
			return it;
	}
	return NULL;
}

/* `bits` of the hash are kept: few of them make long chains of equal hashes. */
static void churn(uint32_t bits, bool starved)
{
	enum { N = 2000 };
	static struct item items[N];
	struct pv_hash_key k = pv_hash_key(bits);
	struct testmem m;
	struct pv_htab t;
	struct pv_rng r;
	uint32_t count = 0;

	memset(items, 0, sizeof(items));
	pv_rng_seed(&r, 13);
	CHECK_EQ(pv_htab_init(&t, testmem_init(&m), 1), 0);
	if (starved)
		m.fail_in = 0;
	for (int step = 0; step < 20000; step++) {
		uint32_t i = (uint32_t)pv_rng_below(&r, N);
		uint32_t hash = pv_hash_u64(&k, i) & (uint32_t)((UINT64_C(1) << bits) - 1);
		struct item *it = &items[i];

		it->value = i;
		CHECK(find(&t, hash, i) == (it->in ? it : NULL));
		if (!it->in) {
			pv_htab_add(&t, &it->node, hash);
			count++;
		} else {
			CHECK(pv_htab_del(&t, &it->node));
			CHECK(!pv_htab_del(&t, &it->node));
			count--;
		}
		it->in = !it->in;
		CHECK_EQ(t.count, count);
	}
	for (struct pv_hnode *n = pv_htab_next(&t, NULL); n; n = pv_htab_next(&t, n)) {
		struct item *it = pv_htab_entry(n, struct item, node);

		CHECK(it->in && !it->seen);
		it->seen = true;
		count--;
	}
	CHECK_EQ(count, 0);
	CHECK(starved ? t.mask == 15 : t.mask >= 1023);
	pv_htab_fini(&t);
	CHECK_EQ(m.blocks, 0);
	CHECK_EQ(m.bytes, 0);
}

TEST(against_a_model)
{
	churn(32, false);
}

TEST(equal_hashes)
{
	churn(3, false);
}

TEST(no_memory_to_grow)
{
	churn(32, true);
}

TEST(sizes)
{
	struct testmem m;
	struct pv_htab t;
	struct item a = { 0 };

	testmem_init(&m);
	m.fail_in = 0;
	CHECK_EQ(pv_htab_init(&t, &m.mem, 5), -ENOMEM);
	m.fail_in = -1;
	CHECK_EQ(pv_htab_init(&t, &m.mem, 1000), 0);
	CHECK_EQ(t.mask, 1023);
	CHECK(!pv_htab_next(&t, NULL));
	pv_htab_add_fixed(&t, &a.node, 0xffffffff);
	CHECK(pv_htab_next(&t, NULL) == &a.node && !pv_htab_next(&t, &a.node));
	/* Another hash in the same bucket is no match. */
	CHECK(!pv_htab_find(&t, 0x3ff));
	CHECK(pv_htab_find(&t, 0xffffffff) == &a.node);
	pv_htab_fini(&t);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
