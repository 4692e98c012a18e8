/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory is taken from the front of the reserved address space, and given back to a list for each size: there are few sizes, and objects
 * of one come and go in numbers. The file grows by whole steps whose blocks are allocated first, so that a full file system is a refusal
 * and not a signal at the first store; what is refused comes from the heap, where nobody sees it.
 *
 * Free entries of the directory are linked through `offset`, which readers do not look at when the type is 0.
 */
#include "rt/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/clock.h"
#include "rt/log.h"
#include "rt/stats_file.h"

#if defined(__SANITIZE_ADDRESS__)
#define POISONING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONING 1
#endif
#endif
#ifdef POISONING
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define REDZONE PV_CACHELINE
#else
#define REDZONE 0u
#endif
/* Copies whole words while others may change them, and blocks that are poisoned. */
#define RAW __attribute__((no_sanitize("address", "thread")))

#define STEP ((size_t)256 << 10) /* the least that the memory grows by; and a 16th of what there is */
#define CLASSES 32u
#define SEGMENT_ENTRIES 255u

struct free_block {
	struct free_block *next;
};

struct size_class {
	size_t size;
	struct free_block *first, *last;
};

/* A piece of the directory. */
struct segment {
	uint64_t next; /* offset */
	uint32_t count, zero;
	struct pv_stats_entry entry[SEGMENT_ENTRIES];
};
_Static_assert(sizeof(struct segment) == 4096 && offsetof(struct segment, entry) == 16, "as stats-abi.md says");
_Static_assert(sizeof(struct pv_stats_entry) == 16 && offsetof(struct pv_stats_head, program) == 128 &&
		   offsetof(struct pv_stats_head, base) == 264,
	       "as stats-abi.md says");

static struct {
	pthread_mutex_t lock;
	uint8_t *base; /* NULL: nothing asked for memory yet, or there is no address space */
	size_t reserved, mapped, top; /* bytes: of the reservation, usable, given out once */
	size_t live; /* bytes that are in use */
	struct size_class class[CLASSES];
	struct segment *last;
	uint64_t free_entry; /* offset; 0: none */
	struct pv_stats_file file;
	bool failed; /* there was no address space */
	bool lost; /* in a forked child: what was the parent's is left alone */
} arena = { .lock = PTHREAD_MUTEX_INITIALIZER, .file.fd = -1 };

static struct pv_stats_head *head(void)
{
	return (struct pv_stats_head *)(void *)arena.base;
}

static bool inside(const void *p)
{
	return (uintptr_t)p - (uintptr_t)arena.base < arena.reserved;
}

static void poison(void *p, size_t size, bool on)
{
#ifdef POISONING
	if (on)
		__asan_poison_memory_region(p, size);
	else
		__asan_unpoison_memory_region(p, size);
#else
	(void)p;
	(void)size;
	(void)on;
#endif
}

/* ---- memory; the lock is held ------------------------------------------------------------------------------------------ */

static bool grow(size_t need)
{
	size_t step = PV_MAX(PV_MAX(STEP, arena.mapped / 16), need), end = (arena.mapped + step + STEP - 1) & ~(STEP - 1);
	uint8_t *at = arena.base + arena.mapped;
	size_t more = end - arena.mapped;

	if (end > arena.reserved)
		return false;
	if (arena.file.fd < 0 ? mprotect(at, more, PROT_READ | PROT_WRITE) < 0 : !pv_stats_file_grow(&arena.file, arena.base, end))
		return false;
#ifdef POISONING
	__lsan_register_root_region(at, more); /* objects in it point to the heap */
#endif
	arena.mapped = end;
	__atomic_store_n(&head()->size, end, __ATOMIC_RELEASE);
	return true;
}

static void *take(size_t size)
{
	void *p = arena.base + arena.top;

	if (arena.mapped - arena.top < size && !grow(size))
		return NULL;
	arena.top += size;
	return p;
}

static struct segment *segment_add(void)
{
	struct segment *s = take(sizeof(*s));
	uint64_t offset;

	if (!s)
		return NULL;
	arena.live += sizeof(*s);
	offset = (uint64_t)((uint8_t *)s - arena.base);
	s->count = SEGMENT_ENTRIES;
	for (uint32_t i = SEGMENT_ENTRIES; i-- > 0;) {
		s->entry[i].offset = arena.free_entry;
		arena.free_entry = offset + offsetof(struct segment, entry) + i * sizeof(s->entry[0]);
	}
	__atomic_store_n(arena.last ? &arena.last->next : &head()->directory, offset, __ATOMIC_RELEASE);
	arena.last = s;
	return s;
}

/* Head, schema, and the first piece of the directory. */
static bool lay_out(void)
{
	size_t size = pyvma_stats_schema(NULL, 0);
	struct pv_stats_head *h;

	arena.top = PV_STATS_HEAD;
	if (!grow(PV_STATS_HEAD + size + sizeof(struct segment)))
		return false;
	h = head();
	memcpy(h->magic, "PYVMASTT", sizeof(h->magic));
	h->version = PV_STATS_VERSION;
	h->order = 0x01020304;
	h->state = PV_STATS_FINAL;
	h->page = (uint32_t)sysconf(_SC_PAGESIZE);
	h->base = (uint64_t)(uintptr_t)arena.base;
	h->schema = PV_STATS_HEAD;
	h->schema_size = pyvma_stats_schema((char *)arena.base + PV_STATS_HEAD, size);
	arena.top = (PV_STATS_HEAD + size + 4095) & ~(size_t)4095;
	return segment_add() != NULL;
}

static bool ready(void)
{
	static const size_t sizes[] = { (size_t)64 << 30, (size_t)4 << 30, (size_t)256 << 20 };

	if (pv_likely(arena.base != NULL))
		return !arena.lost;
	for (uint32_t i = 0; i < pv_array_size(sizes) && !arena.failed; i++) {
		void *p = mmap(NULL, sizes[i], PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			continue;
		arena.base = p;
		arena.reserved = sizes[i];
		if (lay_out())
			return true;
		munmap(p, sizes[i]);
		arena.base = NULL;
		break;
	}
	arena.failed = true;
	return false;
}

static struct size_class *class_of(size_t size)
{
	for (uint32_t i = 0; i < CLASSES; i++) {
		struct size_class *c = &arena.class[i];

		if (!c->size)
			c->size = size;
		if (c->size == size)
			return c;
	}
	return NULL; /* more sizes than objects have types: such a block is not used again */
}

static size_t rounded(size_t size)
{
	return (size + REDZONE + PV_CACHELINE - 1) & ~(size_t)(PV_CACHELINE - 1);
}

static void *get(size_t size)
{
	size_t whole = rounded(size);
	struct size_class *c = class_of(whole);
	void *p = c ? c->first : NULL;

	if (p) {
		poison(p, whole, false);
		c->first = c->first->next;
		memset(p, 0, whole);
	} else {
		p = take(whole);
	}
	if (!p)
		return NULL;
	arena.live += whole;
	if (REDZONE)
		poison((uint8_t *)p + whole - REDZONE, REDZONE, true);
	return p;
}

static void put(void *p, size_t size)
{
	size_t whole = rounded(size);
	struct size_class *c = class_of(whole);
	struct free_block *b = p;

	arena.live -= whole;
	poison(p, whole, false);
	if (c) {
#ifdef POISONING
		/* The oldest is used first: who uses one that is gone is found longer. */
		b->next = NULL;
		if (c->first) {
			poison(c->last, sizeof(*c->last), false);
			c->last->next = b;
			poison(c->last, sizeof(*c->last), true);
		} else {
			c->first = b;
		}
		c->last = b;
#else
		b->next = c->first;
		c->first = b;
#endif
	}
	poison(p, whole, true);
}

void *pv_stats_alloc(void *ctx, size_t size)
{
	size_t whole = (size + PV_CACHELINE - 1) & ~(size_t)(PV_CACHELINE - 1);
	void *p = NULL;

	(void)ctx;
	if (!size || whole < size)
		return NULL;
	pthread_mutex_lock(&arena.lock);
	if (ready())
		p = get(size);
	pthread_mutex_unlock(&arena.lock);
	if (p)
		return p;
	p = aligned_alloc(PV_CACHELINE, whole);
	return p ? memset(p, 0, whole) : NULL;
}

void pv_stats_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	if (!p)
		return;
	if (!inside(p)) {
		free(p);
		return;
	}
	pthread_mutex_lock(&arena.lock);
	if (!arena.lost)
		put(p, size);
	pthread_mutex_unlock(&arena.lock);
}

/* ---- directory --------------------------------------------------------------------------------------------------------- */

/* Readers see `seq` odd, or two that differ, while type and place belong to different objects. */
static void entry_set(struct pv_stats_entry *e, uint16_t type, uint64_t offset)
{
	uint32_t seq = e->seq;

	__atomic_store_n(&e->seq, seq + 1, __ATOMIC_RELAXED);
	pv_fence_release();
	__atomic_store_n(&e->type, type, __ATOMIC_RELAXED);
	__atomic_store_n(&e->offset, offset, __ATOMIC_RELAXED);
	__atomic_store_n(&e->seq, seq + 2, __ATOMIC_RELEASE);
}

static struct pv_stats_entry *entry_at(uint64_t offset)
{
	return (struct pv_stats_entry *)(void *)(arena.base + offset);
}

uint32_t pv_stats_show(void *ctx, const struct pv_stat_type *type, const void *obj)
{
	uint64_t at = 0;

	(void)ctx;
	pthread_mutex_lock(&arena.lock);
	if (ready()) {
		if (inside(obj) && (arena.free_entry || segment_add())) {
			at = arena.free_entry;
			arena.free_entry = entry_at(at)->offset;
			entry_set(entry_at(at), type->id, (uint64_t)((const uint8_t *)obj - arena.base));
		} else {
			head()->not_shown++;
		}
	}
	pthread_mutex_unlock(&arena.lock);
	return (uint32_t)(at / sizeof(struct pv_stats_entry));
}

void pv_stats_hide(void *ctx, uint32_t id)
{
	uint64_t at = (uint64_t)id * sizeof(struct pv_stats_entry);

	(void)ctx;
	pthread_mutex_lock(&arena.lock);
	if (ready()) {
		if (at) {
			entry_set(entry_at(at), PV_STAT_T_NONE, arena.free_entry);
			arena.free_entry = at;
		} else {
			head()->not_shown--;
		}
	}
	pthread_mutex_unlock(&arena.lock);
}

size_t pv_stats_used(void)
{
	size_t n;

	pthread_mutex_lock(&arena.lock);
	n = arena.live;
	pthread_mutex_unlock(&arena.lock);
	return n;
}

/* ---- zeroing ----------------------------------------------------------------------------------------------------------- */

static void zero_object(const struct pv_stat_type *t, uint8_t *obj)
{
	for (uint32_t i = 0; i < t->nfields; i++) {
		const struct pv_stat_field *f = &t->fields[i];

		if (f->kind == PV_STAT_COUNTER || f->kind == PV_STAT_MAX)
			memset(obj + f->offset, 0, f->size);
	}
}

/* Those of one type, or all: 0. */
static void each(uint32_t type, pv_stats_each_fn fn, void *ctx)
{
	pthread_mutex_lock(&arena.lock);
	for (uint64_t at = ready() ? head()->directory : 0; at;) {
		const struct segment *s = (const struct segment *)(const void *)(arena.base + at);

		for (uint32_t i = 0; i < s->count; i++) {
			const struct pv_stat_type *t = pv_stats_type(s->entry[i].type);

			if (t && (!type || s->entry[i].type == type))
				fn(ctx, t, arena.base + s->entry[i].offset);
		}
		at = s->next;
	}
	pthread_mutex_unlock(&arena.lock);
}

static void zero_one(void *ctx, const struct pv_stat_type *t, const void *obj)
{
	(void)ctx;
	if (!t->kept)
		zero_object(t, (uint8_t *)(uintptr_t)obj);
}

void pv_stats_zero(void)
{
	each(0, zero_one, NULL);
}

void pv_stats_each(uint32_t type, pv_stats_each_fn fn, void *ctx)
{
	each(type, fn, ctx);
}

/* ---- file -------------------------------------------------------------------------------------------------------------- */

RAW static void copy(uint8_t *to, const uint8_t *from, size_t size)
{
	const uint64_t *s = (const uint64_t *)(const void *)from;
	uint64_t *d = (uint64_t *)(void *)to;

	for (size_t i = 0; i < size / sizeof(*d); i++)
		d[i] = s[i];
}

/* What lies in the memory goes to `to`, which takes its place at once: whoever writes meanwhile loses a count at worst. */
static bool move_to(uint8_t *to)
{
	copy(to, arena.base, arena.top);
	return mremap(to, arena.mapped, arena.mapped, MREMAP_MAYMOVE | MREMAP_FIXED, arena.base) == arena.base;
}

static int open_file(const char *dir)
{
	uint8_t *at;
	int rc;

	if (!ready())
		return -ENOMEM;
	rc = pv_stats_file_open(&arena.file, dir, arena.mapped, &at);
	if (rc)
		return rc;
	pv_stats_file_head(head());
	head()->state = PV_STATS_MAKING;
	if (!move_to(at)) {
		rc = -errno;
		munmap(at, arena.mapped);
		pv_stats_file_close(&arena.file);
		return rc;
	}
	madvise(arena.base, arena.mapped, MADV_DONTFORK);
	__atomic_store_n(&head()->state, PV_STATS_LIVE, __ATOMIC_RELEASE);
	return 0;
}

void pv_stats_open(const char *dir)
{
	int rc = 0;

	pthread_mutex_lock(&arena.lock);
	if (*dir && strcmp(dir, "none") != 0 && !arena.lost && arena.file.fd < 0)
		rc = open_file(dir);
	pthread_mutex_unlock(&arena.lock);
	if (rc)
		pv_log(PV_LOG_WARN, "stats_dir: %s: no statistics for others: %s", dir, strerror(-rc));
}

void pv_stats_close(void)
{
	uint8_t *at;

	pthread_mutex_lock(&arena.lock);
	if (arena.file.fd >= 0) {
		__atomic_store_n(&head()->state, PV_STATS_FINAL, __ATOMIC_RELEASE);
		at = mmap(NULL, arena.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		/* Without memory it stays the file's, which then has no name any more. */
		if (at != MAP_FAILED && !move_to(at))
			munmap(at, arena.mapped);
		pv_stats_file_close(&arena.file);
	}
	pthread_mutex_unlock(&arena.lock);
}

int pyvma_stats_path(char *buf, size_t size)
{
	int rc = -ENOENT;

	pthread_mutex_lock(&arena.lock);
	if (arena.file.fd >= 0) {
		rc = strlen(arena.file.path) < size ? 0 : -ENAMETOOLONG;
		if (!rc)
			strcpy(buf, arena.file.path);
	}
	pthread_mutex_unlock(&arena.lock);
	return rc;
}

/* ---- fork -------------------------------------------------------------------------------------------------------------- */

void pv_stats_fork_lock(void)
{
	pthread_mutex_lock(&arena.lock);
}

void pv_stats_fork_unlock(void)
{
	pthread_mutex_unlock(&arena.lock);
}

/* Where the file was is a hole now: a store in the child shall not reach the parent. What is still read there, or written by whoever
 * lost its object, finds a private copy. */
void pv_stats_forked(void)
{
	void *p = MAP_FAILED;

	if (arena.file.fd >= 0) {
		arena.lost = true;
		if (pv_stats_file_same(&arena.file))
			p = mmap(arena.base, arena.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, arena.file.fd, 0);
		if (p == MAP_FAILED)
			p = mmap(arena.base, arena.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		pv_stats_file_forget(&arena.file);
	}
	pthread_mutex_init(&arena.lock, NULL);
}
