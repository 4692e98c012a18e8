/* SPDX-License-Identifier: BSD-3-Clause */
#include "pkt/pkt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "test.h"
#include "testmem.h"

struct dev {
	uint32_t maps, unmaps, fail_at;
	struct {
		uint8_t *base;
		size_t size;
		bool live;
	} mr[64];
};

static int map(void *ctx, void *base, size_t size, uint32_t *key)
{
	struct dev *d = ctx;

	if (d->fail_at && d->maps + 1 == d->fail_at)
		return -EPERM;
	d->mr[d->maps].base = base;
	d->mr[d->maps].size = size;
	d->mr[d->maps].live = true;
	*key = 0x100 + d->maps++;
	return 0;
}

static void unmap(void *ctx, void *base, size_t size, uint32_t key)
{
	struct dev *d = ctx;

	CHECK(key >= 0x100 && key < 0x100 + d->maps);
	CHECK(d->mr[key - 0x100].live && d->mr[key - 0x100].base == base && d->mr[key - 0x100].size == size);
	d->mr[key - 0x100].live = false;
	d->unmaps++;
}

/* The whole buffer of a packet lies in the memory that its key names. */
static void check_key(const struct dev *d, const struct pv_pkt *p)
{
	uint32_t i = p->key - 0x100;

	CHECK(i < d->maps && d->mr[i].live);
	CHECK(p->buf >= d->mr[i].base && p->buf + p->size <= d->mr[i].base + d->mr[i].size);
}

static const struct pv_pool_cfg cfg = { .buf_size = 2000, .headroom = 128, .count = 50, .chunk = 20, .max = 170 };

TEST(a_packet_is_clean)
{
	struct testmem m;
	struct pv_pool *pool;
	struct pv_pkt *p;

	CHECK_EQ(pv_pool_open(&pool, testmem_init(&m), &cfg), 0);
	CHECK_EQ(pv_pool_config(pool)->buf_size, 2048);
	for (int i = 0; i < 3; i++) {
		p = pv_pkt_get(pool);
		CHECK(p && !p->next && !p->frag && !p->len && !p->total && !p->flags && p->pool == pool);
		CHECK_EQ(pv_pkt_headroom(p), 128);
		CHECK_EQ(pv_pkt_tailroom(p), 2048 - 128);
		p->data += 5;
		p->len = 100;
		p->flags = PV_PKT_L3_OK;
		CHECK_EQ(pv_pkt_tailroom(p), 2048 - 133 - 100);
		pv_pkt_put(p);
	}
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(m.blocks, 0);
	CHECK_EQ(m.bytes, 0);
}

TEST(last_in_first_out)
{
	struct testmem m;
	struct pv_pool *pool;
	struct pv_pkt *a, *b;

	CHECK_EQ(pv_pool_open(&pool, testmem_init(&m), &cfg), 0);
	a = pv_pkt_get(pool);
	b = pv_pkt_get(pool);
	pv_pkt_put(a);
	pv_pkt_put(b);
	CHECK(pv_pkt_get(pool) == b);
	CHECK(pv_pkt_get(pool) == a);
	/* A chain goes back as a whole. */
	a->frag = b;
	pv_pkt_put(a);
	CHECK_EQ(pv_pool_close(pool), 0);
}

struct churn {
	struct pv_pool *pool;
	struct dev d;
	struct pv_pkt *held[256];
	uint32_t n, low; /* packets held; fewest that were free */
	uint64_t empty;
};

static void churn_get(struct churn *c, uint32_t want)
{
	uint32_t left = c->pool->total - c->n, got = 0;
	struct pv_pkt *p = want == 1 ? pv_pkt_get(c->pool) : pv_pkt_get_bulk(c->pool, want);

	for (struct pv_pkt *next; p; p = next, got++) {
		next = p->next;
		memset(p->buf, (int)(p->index & 0xff), p->size);
		check_key(&c->d, p);
		c->held[c->n++] = p;
	}
	CHECK_EQ(got, want <= left ? want : 0);
	c->empty += want > left;
	c->low = PV_MIN(c->low, left - got);
}

static void churn_put(struct churn *c, uint32_t i)
{
	struct pv_pkt *p = c->held[i];

	for (uint32_t k = 0; k < p->size; k += 97)
		CHECK_EQ(p->buf[k], p->index & 0xff);
	c->held[i] = c->held[--c->n];
	pv_pkt_put(p);
}

static void churn_check(const struct churn *c)
{
	uint32_t total = c->pool->total, left = total - c->n;

	for (uint32_t i = 0; i < c->n; i += 17)
		CHECK(pv_pool_pkt(c->pool, c->held[i]->index) == c->held[i]);
	CHECK_EQ(c->pool->nfree, left);
	CHECK(pv_pool_wants_growth(c->pool) == (left < total / 4 && total < 170));
}

/* Random gets, puts, bulk gets, growth: never one packet twice, buffers never overlap, the index finds the packet. */
TEST(churn_and_growth)
{
	static struct churn c = { .low = 50 };
	struct testmem m;
	struct pv_pool_stats st;
	struct pv_rng r;

	pv_rng_seed(&r, 21);
	CHECK_EQ(pv_pool_open(&c.pool, testmem_init(&m), &cfg), 0);
	CHECK_EQ(pv_pool_bind(c.pool, map, unmap, &c.d), 1);
	for (int step = 0; step < 50000; step++) {
		/* Phases that fill up and phases that empty. */
		if (pv_rng_below(&r, 100) < (step / 3000 % 2 ? 30u : 60u))
			churn_get(&c, step % 5 ? 1 : (uint32_t)pv_rng_below(&r, 6));
		else if (c.n)
			churn_put(&c, (uint32_t)pv_rng_below(&r, c.n));
		churn_check(&c);
		if (step % 2000 == 1999 && pv_pool_wants_growth(c.pool))
			CHECK_EQ(pv_pool_grow(c.pool), 0);
	}
	while (c.pool->total < 170)
		CHECK_EQ(pv_pool_grow(c.pool), 0);
	CHECK_EQ(pv_pool_grow(c.pool), -ENOSPC);
	CHECK(!pv_pool_wants_growth(c.pool));
	/* 50, then steps of 32 (20 rounded up): 82, 114, 146 and 24 to the limit. */
	pv_pool_get_stats(c.pool, &st);
	CHECK(st.total == 170 && st.free == 170 - c.n && st.grown == 4 && st.low_water == c.low);
	CHECK(st.exhausted == c.empty && c.empty > 0);
	CHECK_EQ(c.d.maps, 5);
	for (uint32_t i = 0; i < 170; i++)
		CHECK_EQ(pv_pool_pkt(c.pool, i)->index, i);
	CHECK_EQ(pv_pool_close(c.pool), c.n);
	while (c.n)
		churn_put(&c, 0);
	pv_pool_unbind(c.pool, 1);
	pv_pool_unbind(c.pool, 1);
	CHECK_EQ(c.d.unmaps, 5);
	CHECK_EQ(pv_pool_close(c.pool), 0);
	CHECK(m.blocks == 0 && m.bytes == 0);
}

/* Two devices: each has a key for each piece of memory, and a packet's own is the first one's that is there. */
TEST(several_devices)
{
	static struct dev d[PV_POOL_BINDERS + 1];
	struct pv_pkt *p[170];
	struct pv_pool *pool;
	struct testmem m;

	memset(d, 0, sizeof(d));
	CHECK_EQ(pv_pool_open(&pool, testmem_init(&m), &cfg), 0);
	for (uint32_t i = 0; i < PV_POOL_BINDERS; i++)
		CHECK_EQ(pv_pool_bind(pool, map, unmap, &d[i]), i + 1);
	CHECK_EQ(pv_pool_bind(pool, map, unmap, &d[PV_POOL_BINDERS]), -EBUSY);
	for (uint32_t i = 2; i < PV_POOL_BINDERS; i++)
		pv_pool_unbind(pool, i + 1);
	CHECK_EQ(pv_pool_grow(pool), 0);
	/* One of them refuses: nothing was added, and the other has nothing more. */
	d[1].fail_at = d[1].maps + 1;
	CHECK_EQ(pv_pool_grow(pool), -EPERM);
	CHECK_EQ(d[0].maps - d[0].unmaps, 2);
	CHECK_EQ(d[1].maps - d[1].unmaps, 2);
	d[1].fail_at = 0;
	while (!pv_pool_grow(pool))
		;
	for (uint32_t i = 0; i < 170; i++) {
		p[i] = pv_pkt_get(pool);
		CHECK(p[i] != NULL);
		check_key(&d[0], p[i]);
		CHECK_EQ(pv_pool_key(p[i], 1), p[i]->key);
		p[i]->key = pv_pool_key(p[i], 2);
		check_key(&d[1], p[i]);
	}
	CHECK_EQ(pool->binders, 2);
	pv_pool_unbind(pool, 1);
	for (uint32_t i = 0; i < 170; i++) {
		check_key(&d[1], p[i]);
		pv_pkt_put(p[i]);
	}
	/* Who was alone keeps the packets' own keys when another one comes. */
	CHECK_EQ(pv_pool_bind(pool, map, unmap, &d[0]), 1);
	p[0] = pv_pkt_get(pool);
	check_key(&d[1], p[0]);
	pv_pkt_put(p[0]);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(d[0].maps, d[0].unmaps);
	CHECK_EQ(d[1].maps, d[1].unmaps);
	CHECK(m.blocks == 0 && m.bytes == 0);
}

/* A device learns of the memory while the pool goes on: what comes meanwhile is told at the end, and nobody else gets its number. */
TEST(bound_in_pieces)
{
	static struct dev d[2];
	struct testmem m;
	struct pv_pool *pool;
	struct pv_pkt *p;

	memset(d, 0, sizeof(d));
	CHECK_EQ(pv_pool_open(&pool, testmem_init(&m), &cfg), 0);
	CHECK_EQ(pv_pool_bind_begin(pool), 1);
	CHECK_EQ(pool->binders, 0);
	CHECK_EQ(pv_pool_grow(pool), 0);
	CHECK_EQ(pv_pool_bind(pool, map, unmap, &d[1]), 2);
	CHECK_EQ(pv_pool_bind_map(pool, 1, map, unmap, &d[0]), 0);
	CHECK_EQ(d[0].maps, 1);
	CHECK_EQ(pv_pool_grow(pool), 0);
	CHECK_EQ(d[0].maps, 1);
	CHECK_EQ(d[1].maps, 3);
	d[0].fail_at = 2;
	CHECK_EQ(pv_pool_bind_end(pool, 1), -EPERM);
	CHECK_EQ(pool->binders, 1);
	d[0].fail_at = 0;
	CHECK_EQ(pv_pool_bind_end(pool, 1), 0);
	CHECK_EQ(d[0].maps, 3);
	CHECK_EQ(pool->binders, 2);
	CHECK_EQ(pv_pool_grow(pool), 0);
	CHECK_EQ(d[0].maps, 4);
	pv_pool_unbind(pool, 2);
	/* And back: packets have no key of it, and a pool that grows does not tell it. */
	CHECK_EQ(pv_pool_bind(pool, map, unmap, &d[1]), 2);
	pv_pool_unmap(pool, 1);
	CHECK_EQ(d[0].unmaps, 0);
	pv_pool_bind_off(pool, 1);
	p = pv_pkt_get(pool);
	check_key(&d[1], p);
	pv_pkt_put(p);
	CHECK_EQ(pv_pool_grow(pool), 0);
	CHECK_EQ(d[0].maps, 4);
	pv_pool_unmap(pool, 1);
	CHECK_EQ(d[0].unmaps, 4);
	CHECK_EQ(pv_pool_bind_begin(pool), 3);
	pv_pool_unbind(pool, 1);
	CHECK_EQ(d[0].unmaps, 4);
	CHECK_EQ(pv_pool_bind_begin(pool), 1);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(d[1].maps, d[1].unmaps);
	CHECK(m.blocks == 0 && m.bytes == 0);
}

/* For a sanitizer of threads, too: the number that is kept is the mapping thread's alone. */
struct mapper {
	struct pv_pool *pool;
	struct dev *dev;
	_Atomic(bool) stop;
};

static void *map_again(void *arg)
{
	struct mapper *m = arg;

	while (!atomic_load(&m->stop)) {
		CHECK_EQ(pv_pool_bind_map(m->pool, 1, map, unmap, m->dev), 0);
		pv_pool_unmap(m->pool, 1);
		CHECK_EQ(m->dev->maps, m->dev->unmaps);
		m->dev->maps = m->dev->unmaps = 0;
	}
	return NULL;
}

TEST(grows_while_a_thread_maps)
{
	static const struct pv_pool_cfg small = { .buf_size = 64, .count = 1, .chunk = 1, .max = 4000 };
	static struct dev d;
	struct mapper mapper = { .dev = &d };
	struct testmem m;
	pthread_t thread;

	CHECK_EQ(pv_pool_open(&mapper.pool, testmem_init(&m), &small), 0);
	CHECK_EQ(pv_pool_bind_begin(mapper.pool), 1);
	CHECK_EQ(pthread_create(&thread, NULL, map_again, &mapper), 0);
	while (!pv_pool_grow(mapper.pool))
		;
	atomic_store(&mapper.stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	pv_pool_unbind(mapper.pool, 1);
	CHECK_EQ(pv_pool_close(mapper.pool), 0);
	CHECK(m.blocks == 0 && m.bytes == 0);
}

TEST(a_device_that_refuses)
{
	struct dev d = { .fail_at = 3 };
	struct testmem m;
	struct pv_pool *pool;

	CHECK_EQ(pv_pool_open(&pool, testmem_init(&m), &cfg), 0);
	CHECK_EQ(pv_pool_grow(pool), 0);
	CHECK_EQ(pv_pool_grow(pool), 0);
	CHECK_EQ(pv_pool_bind(pool, map, unmap, &d), -EPERM);
	CHECK(d.maps == 2 && d.unmaps == 2);
	d.fail_at = 0;
	CHECK_EQ(pv_pool_bind(pool, map, unmap, &d), 1);
	d.fail_at = d.maps + 1;
	CHECK_EQ(pv_pool_grow(pool), -EPERM);
	CHECK_EQ(pool->total, 114);
	d.fail_at = 0;
	CHECK_EQ(pv_pool_grow(pool), 0);
	CHECK_EQ(pool->total, 146);
	for (uint32_t i = 0; i < pool->total; i++)
		check_key(&d, pv_pool_pkt(pool, i));
	/* Closing unmaps what is still bound. */
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(d.maps, d.unmaps);
	CHECK_EQ(m.blocks, 0);
}

TEST(no_memory)
{
	struct testmem m;
	struct pv_pool *pool;
	long before;

	testmem_init(&m);
	for (long i = 0; i < 4; i++) {
		m.fail_in = i;
		CHECK_EQ(pv_pool_open(&pool, &m.mem, &cfg), -ENOMEM);
		CHECK_EQ(m.blocks, 0);
	}
	m.fail_in = -1;
	CHECK_EQ(pv_pool_open(&pool, &m.mem, &cfg), 0);
	before = m.blocks;
	for (long i = 0; i < 2; i++) {
		m.fail_in = i;
		CHECK_EQ(pv_pool_grow(pool), -ENOMEM);
		CHECK_EQ(m.blocks, before);
		CHECK_EQ(pool->total, 50);
	}
	CHECK_EQ(pv_pool_close(pool), 0);
}

TEST(sizes_are_checked)
{
	struct testmem m;
	struct pv_pool *pool;
	struct pv_pool_cfg c;

	testmem_init(&m);
#define BAD(field, value)                                                                                                          \
	do {                                                                                                                       \
		c = cfg;                                                                                                           \
		c.field = (value);                                                                                                 \
		CHECK_EQ(pv_pool_open(&pool, &m.mem, &c), -EINVAL);                                                                \
	} while (0)
	BAD(buf_size, 0);
	BAD(buf_size, UINT32_MAX);
	BAD(headroom, 2000);
	BAD(count, 0);
	BAD(count, UINT32_MAX);
	BAD(chunk, UINT32_MAX);
	BAD(max, UINT32_MAX);
#undef BAD
	c = cfg;
	c.chunk = 0;
	CHECK_EQ(pv_pool_open(&pool, &m.mem, &c), 0);
	CHECK_EQ(pv_pool_grow(pool), -ENOSPC);
	CHECK(!pv_pool_wants_growth(pool));
	CHECK_EQ(pv_pool_pkt(pool, 49)->index, 49);
	CHECK_EQ(pv_pool_close(pool), 0);
}

/* What the ring cannot have is for packets that wait to be read. */
TEST(a_fixed_pool_has_a_store)
{
	struct pv_pool_cfg c = cfg;
	struct dev d = { .maps = 0 };
	struct pv_pkt *p, *q, *of_store;
	struct pv_pool *pool;
	struct testmem m;

	testmem_init(&m);
	c.fixed = true;
	CHECK_EQ(pv_pool_open(&pool, &m.mem, &c), 0);
	CHECK_EQ(pv_pool_bind(pool, map, unmap, &d), 1);
	CHECK_EQ(pool->total, 50);
	CHECK_EQ(pool->store->total, 32);
	CHECK_EQ(pv_pool_left(pool), 170);
	CHECK(!pv_pool_wants_growth(pool) && !pv_pool_spills(pool, true));
	p = pv_pkt_get_bulk(pool, 38);
	CHECK(!pv_pool_spills(pool, true));
	q = pv_pkt_get(pool);
	CHECK(pv_pool_spills(pool, true) && !pv_pool_spills(pool, false));
	q->l3_off = 128 + 14;
	q->l4_off = 128 + 34;
	q->data = q->buf + 128 + 42;
	q->len = q->total = 1000;
	q->iface = 3;
	q->tstamp = 77;
	q->priv[0] = 99;
	memset(q->buf + q->l3_off, 0x5a, 28 + 1000);
	q->data[999] = 0xa5;
	of_store = pv_pkt_store(q, q->l3_off);
	CHECK(of_store != q && of_store->pool == pool->store);
	CHECK(of_store->len == 1000 && of_store->total == 1000 && of_store->iface == 3 && of_store->tstamp == 77 &&
	      of_store->priv[0] == 99);
	CHECK(of_store->data == of_store->buf + 170 && of_store->data[999] == 0xa5 && of_store->buf[of_store->l3_off] == 0x5a);
	CHECK(pool->nfree == 12 && pool->stored == 1 && pv_pool_left(pool) == 170 - 39);
	CHECK(!pv_pool_wants_growth(pool)); /* half of a step is free there */
	/* The ring hears nothing of it. */
	for (uint32_t total = 32; total < 120; total = pool->store->total) {
		CHECK_EQ(pv_pool_grow(pool), 0);
		CHECK(pool->store->total > total);
	}
	CHECK_EQ(pool->store->total, 120);
	CHECK_EQ(pv_pool_grow(pool), -ENOSPC);
	CHECK_EQ(pool->total, 50);
	CHECK_EQ(d.maps, 1);
	pv_pool_unbind(pool, 1);
	while (p) {
		struct pv_pkt *next = p->next;

		pv_pkt_put(p);
		p = next;
	}
	CHECK_EQ(pv_pool_close(pool), 1);
	pv_pkt_put(of_store);
	CHECK_EQ(pv_pool_close(pool), 0);
}

TEST(given_back_twice)
{
#ifdef PV_DEBUG
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		struct testmem m;
		struct pv_pool *pool;
		struct pv_pkt *p;

		if (pv_pool_open(&pool, testmem_init(&m), &cfg))
			_exit(0);
		if (!freopen("/dev/null", "w", stderr))
			_exit(0);
		p = pv_pkt_get(pool);
		pv_pkt_put(p);
		pv_pkt_put(p);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
#else
	test_skip("release build: owners are not stamped");
#endif
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
