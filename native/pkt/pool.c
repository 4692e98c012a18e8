/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool is a table of chunks. A chunk is one piece of registered memory for the buffers and one of plain memory for the descriptors,
 * so that a device never sees a descriptor. The first chunk holds the packets of the open; all later ones hold the same power of two
 * (the last perhaps fewer), so that an index finds its descriptor by a shift and a mask.
 *
 * Free descriptors form a stack. Completed buffers come back warm from a spinning receiver, and are the next ones to be used.
 */
#include "pkt/pkt.h"
#include "base/stats_table.h"

#include <errno.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define POISONING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONING 1
#endif
#endif
#ifdef POISONING
/* As sanitizer/asan_interface.h has them; the core includes no such header. */
void __asan_poison_memory_region(const volatile void *p, size_t size);
void __asan_unpoison_memory_region(const volatile void *p, size_t size);
#endif

#define PAGE 4096u
#define BUF_SIZE_MAX (1u << 20)
#define COUNT_MAX (1u << 24)

struct chunk {
	struct pv_pkt *desc;
	uint8_t *base; /* buffers, one behind the other */
	uint32_t count;
	uint32_t key[PV_POOL_BINDERS]; /* of the mapping, by binder */
};

/* KEPT: chunks that come or go are not its concern, and its own are only its thread's; LIVE: every chunk is mapped. */
enum binder_state { BINDER_FREE, BINDER_KEPT, BINDER_LIVE };

struct binder {
	enum binder_state state;
	pv_pool_map_fn map;
	pv_pool_unmap_fn unmap;
	void *ctx;
	uint32_t chunks; /* KEPT: how many there were when it began or ended */
	uint32_t mapped; /* the first so many are */
};

struct pool {
	struct pv_pool hot; /* first: what callers hold points here */
	struct pv_pool_cfg cfg;
	const struct pv_mem *mem;
	struct chunk *chunk;
	uint32_t nchunks, chunks_max;
	uint32_t shift; /* log2 of the packets in a growth step */
	struct binder binder[PV_POOL_BINDERS];
	uint32_t
	    primary; /* whose keys packets have that nobody gave another: one that has them alone keeps them when others come */
};

_Static_assert(offsetof(struct pool, hot) == 0, "struct pv_pool is the head of struct pool");

#define POOL(name, member, kind, more, help) PV_STAT_FIELD(struct pv_pool, name, member, kind, more, help)
static const struct pv_stat_field stat_fields[] = { PV_STATS_POOL(POOL) };

const struct pv_stat_type pv_pool_stat_type = PV_STAT_TYPE(POOL, struct pv_pool, stat_fields);

static struct pool *full(struct pv_pool *p)
{
	return pv_container_of(p, struct pool, hot);
}

static const struct pool *full_const(const struct pv_pool *p)
{
	return (const struct pool *)(const void *)p;
}

static size_t chunk_bytes(const struct pool *p, uint32_t count)
{
	return ((size_t)count * p->cfg.buf_size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static void poison(struct pv_pkt *pkt, bool on)
{
#ifdef POISONING
	if (on)
		__asan_poison_memory_region(pkt->buf, pkt->size);
	else
		__asan_unpoison_memory_region(pkt->buf, pkt->size);
#else
	(void)pkt;
	(void)on;
#endif
}

#ifdef PV_DEBUG
void pv_pkt_debug_get(struct pv_pkt *pkt)
{
	if (pkt->owner != PV_OWNER_POOL)
		__builtin_trap();
	pkt->owner = PV_OWNER_STACK;
	poison(pkt, false);
}

void pv_pkt_debug_put(struct pv_pkt *pkt)
{
	if (pkt->owner != PV_OWNER_STACK && pkt->owner != PV_OWNER_APP)
		__builtin_trap();
	pkt->owner = PV_OWNER_POOL;
	poison(pkt, true);
}
#endif

static void chunk_free(struct pool *p, struct chunk *c)
{
	for (uint32_t i = 0; c->desc && i < c->count; i++)
		poison(&c->desc[i], false);
	if (c->base)
		p->mem->free_dma(p->mem->ctx, c->base, chunk_bytes(p, c->count));
	if (c->desc)
		p->mem->free(p->mem->ctx, c->desc, (size_t)c->count * sizeof(*c->desc));
	memset(c, 0, sizeof(*c));
}

static void chunk_key(const struct pool *p, struct chunk *c)
{
	for (uint32_t i = 0; i < c->count; i++)
		c->desc[i].key = c->key[p->primary];
}

/* All packets have this binder's key from now on. */
static void key_by(struct pool *p, uint32_t b)
{
	p->primary = b;
	for (uint32_t i = 0; i < p->nchunks; i++)
		chunk_key(p, &p->chunk[i]);
}

static void chunk_unmap(struct pool *p, struct chunk *c, uint32_t b)
{
	p->binder[b].unmap(p->binder[b].ctx, c->base, chunk_bytes(p, c->count), c->key[b]);
	c->key[b] = 0;
}

/* By all that are bound, or by none. */
static int chunk_map(struct pool *p, struct chunk *c)
{
	for (uint32_t b = 0; b < PV_POOL_BINDERS; b++) {
		const struct binder *to = &p->binder[b];
		int rc = to->state == BINDER_LIVE ? to->map(to->ctx, c->base, chunk_bytes(p, c->count), &c->key[b]) : 0;

		if (!rc)
			continue;
		while (b-- > 0)
			if (p->binder[b].state == BINDER_LIVE)
				chunk_unmap(p, c, b);
		return rc;
	}
	/* One that is kept is its thread's: not even the same is written there. */
	for (uint32_t b = 0; b < PV_POOL_BINDERS; b++)
		if (p->binder[b].state == BINDER_LIVE)
			p->binder[b].mapped++;
	return 0;
}

/* One chunk more at the end of the table, mapped when a ring is bound, its packets on top of the free stack. */
static int chunk_add(struct pool *p, uint32_t count)
{
	struct chunk *c = &p->chunk[p->nchunks];
	int rc;

	c->count = count;
	c->desc = p->mem->alloc(p->mem->ctx, (size_t)count * sizeof(*c->desc));
	c->base = c->desc ? p->mem->alloc_dma(p->mem->ctx, chunk_bytes(p, count)) : NULL;
	rc = c->base ? chunk_map(p, c) : -ENOMEM;
	if (rc) {
		chunk_free(p, c);
		return rc;
	}
	for (uint32_t i = count; i-- > 0;) {
		struct pv_pkt *pkt = &c->desc[i];

		pkt->buf = c->base + (size_t)i * p->cfg.buf_size;
		pkt->data = pkt->buf + p->cfg.headroom;
		pkt->size = p->cfg.buf_size;
		pkt->index = p->hot.total + i;
		pkt->pool = &p->hot;
		pkt->owner = PV_OWNER_POOL;
		pkt->next = p->hot.free;
		p->hot.free = pkt;
#ifdef PV_DEBUG
		poison(pkt, true);
#endif
	}
	chunk_key(p, c);
	p->nchunks++;
	p->hot.total += count;
	p->hot.nfree += count;
	return 0;
}

static bool cfg_ok(const struct pv_pool_cfg *c)
{
	return c->buf_size && c->buf_size <= BUF_SIZE_MAX && c->headroom < c->buf_size && c->headroom <= UINT16_MAX && c->count &&
	       c->count <= COUNT_MAX && c->chunk <= COUNT_MAX && c->max <= COUNT_MAX;
}

static int store_open(struct pool *p)
{
	struct pv_pool_cfg cfg = p->cfg;

	if (!cfg.fixed || cfg.max == cfg.count)
		return 0;
	cfg.fixed = false;
	cfg.max -= cfg.count;
	cfg.count = PV_MIN(cfg.chunk, cfg.max);
	p->hot.spill_at = p->hot.total >> 2;
	return pv_pool_open(&p->hot.store, p->mem, &cfg);
}

int pv_pool_open(struct pv_pool **out, const struct pv_mem *mem, const struct pv_pool_cfg *cfg)
{
	struct pool *p;
	int rc;

	if (!cfg_ok(cfg))
		return -EINVAL;
	p = pv_mem_alloc_shown(mem, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->cfg = *cfg;
	p->mem = mem;
	p->cfg.buf_size = (cfg->buf_size + PV_CACHELINE - 1) & ~(PV_CACHELINE - 1u);
	p->cfg.max = cfg->chunk ? PV_MAX(cfg->max, cfg->count) : cfg->count;
	p->cfg.fixed = cfg->fixed && cfg->chunk;
	while (p->cfg.chunk > 1u << p->shift)
		p->shift++;
	p->cfg.chunk = cfg->chunk ? 1u << p->shift : 0;
	p->chunks_max = p->cfg.fixed ? 1 : 1 + ((p->cfg.max - p->cfg.count + (1u << p->shift) - 1) >> p->shift);
	p->hot.headroom = cfg->headroom;
	p->chunk = mem->alloc(mem->ctx, p->chunks_max * sizeof(*p->chunk));
	rc = p->chunk ? chunk_add(p, cfg->count) : -ENOMEM;
	if (!rc && (rc = store_open(p)))
		chunk_free(p, &p->chunk[0]);
	if (rc) {
		if (p->chunk)
			mem->free(mem->ctx, p->chunk, p->chunks_max * sizeof(*p->chunk));
		pv_mem_free_shown(mem, p, sizeof(*p));
		return rc;
	}
	p->hot.first = p->chunk[0].desc;
	p->hot.nfirst = cfg->count;
	p->hot.low_water = p->hot.nfree;
	p->hot.shown = pv_mem_show(mem, &pv_pool_stat_type, p);
	*out = &p->hot;
	return 0;
}

uint32_t pv_pool_close(struct pv_pool *pool)
{
	struct pool *p = full(pool);
	const struct pv_mem *mem = p->mem;

	if (pool->store && pv_pool_close(pool->store) == 0) {
		pool->store = NULL;
		pool->spill_at = 0;
	}
	if (pool->nfree != pool->total || pool->store)
		return pool->total - pool->nfree + (pool->store ? pool->store->total - pool->store->nfree : 0);
	for (uint32_t b = 1; b <= PV_POOL_BINDERS; b++)
		pv_pool_unbind(pool, b);
	for (uint32_t i = 0; i < p->nchunks; i++)
		chunk_free(p, &p->chunk[i]);
	mem->free(mem->ctx, p->chunk, p->chunks_max * sizeof(*p->chunk));
	pv_mem_hide(mem, pool->shown);
	pv_mem_free_shown(mem, p, sizeof(*p));
	return 0;
}

static struct binder *binder_of(struct pool *p, uint32_t binder)
{
	return binder - 1 < PV_POOL_BINDERS ? &p->binder[binder - 1] : NULL;
}

int pv_pool_bind_begin(struct pv_pool *pool)
{
	struct pool *p = full(pool);
	uint32_t b = 0;

	while (b < PV_POOL_BINDERS && p->binder[b].state != BINDER_FREE)
		b++;
	if (b == PV_POOL_BINDERS)
		return -EBUSY;
	p->binder[b] = (struct binder){ .state = BINDER_KEPT, .chunks = p->nchunks };
	return (int)b + 1;
}

static int map_chunks(struct pool *p, struct binder *to, uint32_t upto)
{
	for (; to->mapped < upto; to->mapped++) {
		struct chunk *c = &p->chunk[to->mapped];
		int rc = to->map(to->ctx, c->base, chunk_bytes(p, c->count), &c->key[to - p->binder]);

		if (rc)
			return rc;
	}
	return 0;
}

static void unmap_chunks(struct pool *p, struct binder *of)
{
	while (of->mapped)
		chunk_unmap(p, &p->chunk[--of->mapped], (uint32_t)(of - p->binder));
}

int pv_pool_bind_map(struct pv_pool *pool, uint32_t binder, pv_pool_map_fn map, pv_pool_unmap_fn unmap, void *ctx)
{
	struct pool *p = full(pool);
	struct binder *to = binder_of(p, binder);
	int rc;

	to->map = map;
	to->unmap = unmap;
	to->ctx = ctx;
	rc = map_chunks(p, to, to->chunks);
	if (rc)
		unmap_chunks(p, to);
	return rc;
}

int pv_pool_bind_end(struct pv_pool *pool, uint32_t binder)
{
	struct pool *p = full(pool);
	struct binder *to = binder_of(p, binder);
	int rc = map_chunks(p, to, p->nchunks);

	if (rc)
		return rc;
	to->state = BINDER_LIVE;
	if (!pool->binders++)
		key_by(p, binder - 1);
	return 0;
}

int pv_pool_bind(struct pv_pool *pool, pv_pool_map_fn map, pv_pool_unmap_fn unmap, void *ctx)
{
	int binder = pv_pool_bind_begin(pool), rc;

	if (binder < 0)
		return binder;
	rc = pv_pool_bind_map(pool, (uint32_t)binder, map, unmap, ctx);
	rc = rc ? rc : pv_pool_bind_end(pool, (uint32_t)binder);
	if (!rc)
		return binder;
	pv_pool_unbind(pool, (uint32_t)binder);
	return rc;
}

void pv_pool_bind_off(struct pv_pool *pool, uint32_t binder)
{
	struct pool *p = full(pool);
	struct binder *of = binder_of(p, binder);
	uint32_t b = 0;

	if (!of || of->state != BINDER_LIVE)
		return;
	of->state = BINDER_KEPT;
	if (!--pool->binders)
		return;
	while (p->binder[b].state != BINDER_LIVE)
		b++;
	key_by(p, b);
}

void pv_pool_unmap(struct pv_pool *pool, uint32_t binder)
{
	struct binder *of = binder_of(full(pool), binder);

	if (of && of->state == BINDER_KEPT)
		unmap_chunks(full(pool), of);
}

void pv_pool_unbind(struct pv_pool *pool, uint32_t binder)
{
	struct binder *of = binder_of(full(pool), binder);

	if (!of || of->state == BINDER_FREE)
		return;
	pv_pool_bind_off(pool, binder);
	unmap_chunks(full(pool), of);
	*of = (struct binder){ .state = BINDER_FREE };
}

static const struct chunk *chunk_of(const struct pool *p, uint32_t index)
{
	return index < p->cfg.count ? &p->chunk[0] : &p->chunk[1 + ((index - p->cfg.count) >> p->shift)];
}

uint32_t pv_pool_key(const struct pv_pkt *pkt, uint32_t binder)
{
	return chunk_of(full_const(pkt->pool), pkt->index)->key[binder - 1];
}

int pv_pool_grow(struct pv_pool *pool)
{
	struct pool *p = full(pool);
	int rc;

	if (!p->cfg.chunk || pool->total >= p->cfg.max)
		return -ENOSPC;
	if (p->cfg.fixed)
		rc = pool->store ? pv_pool_grow(pool->store) : -ENOSPC;
	else
		rc = chunk_add(p, PV_MIN(p->cfg.chunk, p->cfg.max - pool->total));
	if (!rc)
		p->hot.grown++;
	else if (pool->store)
		full(pool->store)->cfg.max = pool->store->total; /* not tried again with each batch */
	return rc;
}

bool pv_pool_wants_growth(const struct pv_pool *pool)
{
	const struct pool *p = full_const(pool);

	/* One batch of the ring's may be hundreds of buffers. */
	if (pool->store)
		return pool->store->nfree < p->cfg.chunk / 2 && pool->store->total < full_const(pool->store)->cfg.max;
	return pool->nfree < pool->total / 4 && p->cfg.chunk && pool->total < p->cfg.max;
}

uint32_t pv_pool_left(const struct pv_pool *pool)
{
	const struct pv_pool_cfg *cfg = &full_const(pool)->cfg;

	return pool->nfree + (pool->store ? pv_pool_left(pool->store) : cfg->fixed ? 0 : cfg->max - pool->total);
}

static struct pv_pkt *copy_one(const struct pv_pkt *from, uint32_t at, struct pv_pool *pool)
{
	uint32_t headroom = pv_pkt_headroom(from);
	struct pv_pkt *to = pv_pkt_get(pool);

	if (!to)
		return NULL;
	memcpy(to->buf + at, from->buf + at, headroom + from->len - at);
	to->data = to->buf + headroom;
	to->len = from->len;
	to->total = from->total;
	to->flags = from->flags;
	to->l3_off = from->l3_off;
	to->l4_off = from->l4_off;
	to->vlan_tci = from->vlan_tci;
	to->iface = from->iface;
	to->tstamp = from->tstamp;
	to->rss_hash = from->rss_hash;
	to->txq = from->txq;
	to->cookie = from->cookie;
	memcpy(to->priv, from->priv, sizeof(to->priv));
	return to;
}

struct pv_pkt *pv_pkt_copy(const struct pv_pkt *pkt, uint32_t at, struct pv_pool *pool)
{
	struct pv_pkt *first = NULL, **tail = &first;

	for (const struct pv_pkt *from = pkt; from; from = from->frag) {
		*tail = copy_one(from, from == pkt ? at : pv_pkt_headroom(from), pool);
		if (!*tail) {
			if (first)
				pv_pkt_put(first);
			return NULL;
		}
		tail = &(*tail)->frag;
	}
	return first;
}

struct pv_pkt *pv_pkt_store(struct pv_pkt *pkt, uint32_t at)
{
	struct pv_pool *pool = pkt->pool;
	struct pv_pkt *copy = pv_pkt_copy(pkt, at, pool->store);

	if (!copy)
		return pkt;
	pool->stored++;
	pv_pkt_put(pkt);
	return copy;
}

void pv_pool_get_stats(const struct pv_pool *pool, struct pv_pool_stats *out)
{
	*out = (struct pv_pool_stats){ .total = pool->total,
				       .free = pool->nfree,
				       .low_water = pool->low_water,
				       .exhausted = pool->exhausted,
				       .grown = pool->grown };
}

const struct pv_pool_cfg *pv_pool_config(const struct pv_pool *pool)
{
	return &full_const(pool)->cfg;
}

struct pv_pkt *pv_pkt_get_bulk(struct pv_pool *pool, uint32_t n)
{
	struct pv_pkt *head = NULL, **tail = &head;

	if (n > pool->nfree) {
		pool->exhausted++;
		return NULL;
	}
	while (n--) {
		struct pv_pkt *pkt = pv_pkt_get(pool);

		*tail = pkt;
		tail = &pkt->next;
	}
	return head;
}

bool pv_pool_chunk(const struct pv_pool *pool, uint32_t i, void **base, size_t *size)
{
	const struct pool *p = full_const(pool);

	if (i >= p->nchunks)
		return false;
	*base = p->chunk[i].base;
	*size = chunk_bytes(p, p->chunk[i].count);
	return true;
}

struct pv_pkt *pv_pool_pkt_grown(struct pv_pool *pool, uint32_t index)
{
	const struct pool *p = full_const(pool);
	uint32_t i = index - p->cfg.count;

	return &p->chunk[1 + (i >> p->shift)].desc[i & (p->cfg.chunk - 1)];
}
