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

/* The memory grows by a 16th of what there is, within these. */
#define STEP ((size_t)256 << 10)
#define STEP_MAX ((size_t)4 << 20)
#define RETRY_NS 1000000000
#define REFUSED UINT32_MAX /* as an id: there was no place for the object */
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
	int64_t retry_ns; /* the file could not grow: not tried again before */
	void *snapshot; /* while this process forks: the child's copy of what is mapped; NULL: none */
	bool shared; /* mapped from the file, with or without its fd, and not inherited by a child */
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
	size_t step = PV_MAX(PV_MIN(PV_MAX(STEP, arena.mapped / 16), STEP_MAX), need);
	size_t end = (arena.mapped + step + STEP - 1) & ~(STEP - 1), more = end - arena.mapped;
	uint8_t *at = arena.base + arena.mapped;

	if (end > arena.reserved)
		return false;
	if (arena.file.fd < 0) {
		if (mprotect(at, more, PROT_READ | PROT_WRITE) < 0)
			return false;
	} else {
		/* A full file system stays so for a while: callers have locks, and every new object would ask the kernel in vain. */
		if (arena.retry_ns && pv_clock_kernel_ns() < arena.retry_ns)
			return false;
		if (!pv_stats_file_grow(&arena.file, arena.base, end)) {
			arena.retry_ns = pv_clock_kernel_ns() + RETRY_NS;
			return false;
		}
		arena.retry_ns = 0;
	}
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

/* An 8th of what a limit leaves to the process at most: the reservation counts there, used or not. */
static size_t reservation_max(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_AS, &r) < 0 || r.rlim_cur == RLIM_INFINITY)
		return SIZE_MAX;
	return (size_t)(r.rlim_cur / 8) & ~(STEP - 1);
}

static bool ready(void)
{
	static const size_t sizes[] = { (size_t)64 << 30, (size_t)4 << 30, (size_t)256 << 20 };
	size_t max;

	if (pv_likely(arena.base != NULL))
		return !arena.lost;
	max = arena.failed ? 0 : reservation_max();
	for (uint32_t i = 0; i < pv_array_size(sizes) && !arena.failed; i++) {
		size_t size = PV_MIN(sizes[i], max);
		void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			continue;
		arena.base = p;
		arena.reserved = size;
		if (lay_out())
			return true;
		munmap(p, size);
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
	uint32_t id = 0;

	(void)ctx;
	pthread_mutex_lock(&arena.lock);
	if (ready()) {
		if (inside(obj) && (arena.free_entry || segment_add())) {
			uint64_t at = arena.free_entry;

			arena.free_entry = entry_at(at)->offset;
			entry_set(entry_at(at), type->id, (uint64_t)((const uint8_t *)obj - arena.base));
			id = (uint32_t)(at / sizeof(struct pv_stats_entry));
		} else {
			head()->not_shown++;
			id = REFUSED;
		}
	}
	pthread_mutex_unlock(&arena.lock);
	return id;
}

void pv_stats_hide(void *ctx, uint32_t id)
{
	uint64_t at = (uint64_t)id * sizeof(struct pv_stats_entry);

	(void)ctx;
	pthread_mutex_lock(&arena.lock);
	if (id && ready()) {
		if (id != REFUSED) {
			entry_set(entry_at(at), PV_STAT_T_NONE, arena.free_entry);
			arena.free_entry = at;
		} else if (head()->not_shown) {
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

/* Whole, as its readers read it. */
static void zero_field(void *at, uint32_t size)
{
	if (size == 8)
		__atomic_store_n((uint64_t *)at, 0, __ATOMIC_RELAXED);
	else if (size == 4)
		__atomic_store_n((uint32_t *)at, 0, __ATOMIC_RELAXED);
	else if (size == 2)
		__atomic_store_n((uint16_t *)at, 0, __ATOMIC_RELAXED);
	else
		memset(at, 0, size);
}

static void zero_object(const struct pv_stat_type *t, uint8_t *obj)
{
	for (uint32_t i = 0; i < t->nfields; i++) {
		const struct pv_stat_field *f = &t->fields[i];

		if (f->kind == PV_STAT_COUNTER || f->kind == PV_STAT_MAX)
			zero_field(obj + f->offset, f->size);
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

/*
 * What lies in the memory goes to `to`, which takes its place at once. The caller has the engine's lock and ours, under which objects of
 * the engine, their links and the directory are written: none of that is lost. What threads store without a lock between the copy and the
 * exchange is: counts of what the kernel answers and of waits, the number of the thread, and what a socket that is made or becomes the
 * kernel's at that moment says of itself (pv_sock_stat, pv_epoll_stat). It then shows what was there before, or zeros, until it says it
 * again; of a link to a reason that was new the reason stays behind, some 128 bytes. Nothing but statistics depends on these.
 */
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
	arena.shared = true;
	arena.retry_ns = 0;
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
		/* Without memory it stays the file's, which then has no name any more; a child still gets a copy. */
		if (at != MAP_FAILED) {
			arena.shared = !move_to(at);
			if (arena.shared)
				munmap(at, arena.mapped);
		}
		pv_stats_file_close(&arena.file);
	}
	pthread_mutex_unlock(&arena.lock);
}

int pv_stats_reopen(void)
{
	int fd = -1;

	pthread_mutex_lock(&arena.lock);
	if (arena.file.fd >= 0)
		fd = pv_stats_file_reopen(&arena.file);
	pthread_mutex_unlock(&arena.lock);
	return fd;
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

/*
 * A child does not inherit what is mapped from the file: a store of its own shall not reach the parent, nor a later one of the parent's the
 * child, which would follow pointers to what it does not have. It gets what there was when its parent forked, copied before that, while
 * nothing else takes or gives back memory. Without memory for it the child finds zeros.
 */
void pv_stats_fork_lock(void)
{
	void *p;

	pthread_mutex_lock(&arena.lock);
	if (!arena.shared)
		return;
	p = mmap(NULL, arena.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return;
	copy(p, arena.base, arena.top);
	arena.snapshot = p;
}

void pv_stats_fork_unlock(void)
{
	if (arena.snapshot)
		munmap(arena.snapshot, arena.mapped);
	arena.snapshot = NULL;
	pthread_mutex_unlock(&arena.lock);
}

void pv_stats_forked(void)
{
	if (arena.shared) {
		void *p = MAP_FAILED;

		arena.lost = true;
		if (arena.snapshot)
			p = mremap(arena.snapshot, arena.mapped, arena.mapped, MREMAP_MAYMOVE | MREMAP_FIXED, arena.base);
		if (p == MAP_FAILED)
			mmap(arena.base, arena.mapped, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
		/* It grows no more, and a child that bounds its address space (vsftpd) has the rest charged to that. */
		if (arena.reserved > arena.mapped && munmap(arena.base + arena.mapped, arena.reserved - arena.mapped) == 0)
			arena.reserved = arena.mapped;
		arena.shared = false;
		arena.snapshot = NULL;
		pv_stats_file_forget(&arena.file);
	}
	pthread_mutex_unlock(&arena.lock); /* this thread has it since before the fork */
}
