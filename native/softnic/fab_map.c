/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fabric's file: made whole or not at all, checked before it is believed, removed by whoever leaves last.
 *
 * The file is created without a name (O_TMPFILE), laid out, and linked: of several creators one link succeeds, the others open what
 * it made. Whoever opened a file and then finds, under the lock, that the name means another one by now, starts again; so a process
 * never joins a fabric that its last member is just removing.
 *
 * The fabric's lock is a lock on a byte of the file, not a mutex in it: the kernel gives it back when its holder dies, and no damage
 * to the file can make it hang. `dirty` tells the next holder that the last one did not finish.
 */
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "softnic/fab.h"
#include "softnic/fab_sys.h"

static struct pv_list fabrics = { &fabrics, &fabrics };
static pthread_mutex_t fabrics_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char error_text[256];

int sn_fail(int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error_text, sizeof(error_text), fmt, ap);
	va_end(ap);
	return rc;
}

const char *sn_error(void)
{
	return error_text;
}

/* FNV-1a over what has to be the same in two builds for them to share a fabric. */
static uint32_t layout_sum(void)
{
	const uint64_t facts[] = {
		sizeof(struct sn_shm),
		sizeof(struct sn_port_ent),
		sizeof(struct sn_rule_ent),
		sizeof(struct sn_rxq_ent),
		sizeof(struct sn_lane),
		offsetof(struct sn_shm, generation),
		offsetof(struct sn_shm, client),
		offsetof(struct sn_shm, waker),
		offsetof(struct sn_shm, rule),
		offsetof(struct sn_shm, claim),
		offsetof(struct sn_shm, arena),
		SN_SLOT_HEAD,
		SN_FRAME_MAX,
		offsetof(struct sn_match, dst_port),
	};
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < sizeof(facts); i++)
		h = (h ^ ((const uint8_t *)facts)[i]) * 16777619u;
	return h;
}

static uint32_t header_sum(const struct sn_shm *s)
{
	const uint8_t *p = (const uint8_t *)s;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < offsetof(struct sn_shm, header_sum); i++)
		h = (h ^ p[i]) * 16777619u;
	return h;
}

static int reserve(int fd, size_t from, size_t len)
{
	long rc;

	do {
		rc = sn_sys(SYS_fallocate, fd, 0, (off_t)from, (off_t)len);
	} while (rc == -EINTR);
	return (int)rc;
}

int sn_reserve(struct sn_fabric *f, const void *p, size_t len)
{
	size_t from = (size_t)((const uint8_t *)p - (const uint8_t *)f->s), end = from + len;
	int rc;

	from &= ~(size_t)4095;
	end = (end + 4095) & ~(size_t)4095;
	rc = reserve(f->fd, from, end - from);
	if (rc)
		return sn_fail(rc, "fabric %s: no shared memory for another %zu KiB", f->name, (end - from) >> 10);
	return 0;
}

/* Gives whole pages back; they read as zero afterwards. */
void sn_release(struct sn_fabric *f, const void *p, size_t len)
{
	size_t from = (size_t)((const uint8_t *)p - (const uint8_t *)f->s), end = (from + len) & ~(size_t)4095;

	from = (from + 4095) & ~(size_t)4095;
	if (end > from)
		sn_sys(SYS_fallocate, f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(end - from));
}

static int file_lock(struct sn_fabric *f)
{
	int rc;

	pthread_mutex_lock(&f->mutex);
	rc = sn_file_lock(f->fd, F_OFD_SETLKW, F_WRLCK, SN_LOCK_TABLES, 1, NULL);
	if (rc) {
		pthread_mutex_unlock(&f->mutex);
		return sn_fail(rc, "fabric %s: cannot be locked: %s", f->name, strerror(-rc));
	}
	return 0;
}

static void file_unlock(struct sn_fabric *f)
{
	sn_file_lock(f->fd, F_OFD_SETLK, F_UNLCK, SN_LOCK_TABLES, 1, NULL);
	pthread_mutex_unlock(&f->mutex);
}

/* Every change is a sequence of single stores that leaves a usable table at each step; what its owner did not finish is freed as that
 * of any dead client. */
static void begin(struct sn_fabric *f)
{
	if (sn_get(&f->s->dirty) || (sn_get(&f->s->generation) & 1)) {
		if (sn_get(&f->s->generation) & 1)
			sn_change_end(f);
		sn_clients_reap(f);
	}
	sn_set(&f->s->dirty, 1);
}

int sn_lock(struct sn_fabric *f)
{
	int rc = file_lock(f);

	if (!rc)
		begin(f);
	return rc;
}

void sn_unlock(struct sn_fabric *f)
{
	sn_set(&f->s->dirty, 0);
	file_unlock(f);
}

/* Registers this process for the barriers of others; false when the kernel, or a filter, does not let it. */
static bool membarrier_ready(void)
{
	return sn_sys(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

static int make_file(struct sn_fabric *f, const char *dir)
{
	char self[64];
	struct sn_shm *s;
	int fd, rc;

	fd = (int)sn_sys(SYS_openat, AT_FDCWD, dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return sn_fail(fd, "fabric %s: no file in %s: %s", f->name, dir, strerror(-fd));
	rc = (int)sn_sys(SYS_ftruncate, fd, (off_t)sizeof(struct sn_shm));
	if (!rc)
		rc = reserve(fd, 0, offsetof(struct sn_shm, tables_end));
	if (rc) {
		sn_sys(SYS_close, fd);
		return sn_fail(rc, "fabric %s: no shared memory: %s", f->name, strerror(-rc));
	}
	s = mmap(NULL, offsetof(struct sn_shm, tables_end), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s == MAP_FAILED) {
		sn_sys(SYS_close, fd);
		return sn_fail(-ENOMEM, "fabric %s: cannot be mapped", f->name);
	}
	s->magic = SN_MAGIC;
	s->version = SN_VERSION;
	s->layout = layout_sum();
	s->size = sizeof(struct sn_shm);
	sn_sys(SYS_getrandom, &s->id, sizeof(s->id), 0);
	s->fences = getenv("PYVMA_SOFTNIC_FENCES") || !membarrier_ready();
	s->header_sum = header_sum(s);
	s->generation = 2;
	munmap(s, offsetof(struct sn_shm, tables_end));
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	rc = (int)sn_sys(SYS_linkat, AT_FDCWD, self, AT_FDCWD, f->path, AT_SYMLINK_FOLLOW);
	sn_sys(SYS_close, fd);
	if (rc && rc != -EEXIST)
		return sn_fail(rc, "fabric %s: %s cannot be made: %s", f->name, f->path, strerror(-rc));
	return 0;
}

static int check_header(struct sn_fabric *f, const struct sn_shm *s, uint64_t size)
{
	if (s->magic != SN_MAGIC)
		return sn_fail(-EBADMSG, "fabric %s: %s is damaged (no fabric's header); remove it", f->name, f->path);
	if (s->version != SN_VERSION)
		return sn_fail(-EPROTO, "fabric %s: %s is of version %u, this library's is %u", f->name, f->path, s->version,
			       SN_VERSION);
	if (s->header_sum != header_sum(s))
		return sn_fail(-EBADMSG, "fabric %s: %s is damaged (header's checksum); remove it", f->name, f->path);
	if (s->layout != layout_sum())
		return sn_fail(-EPROTO, "fabric %s: %s was made by a build with another layout", f->name, f->path);
	if (s->size != sizeof(struct sn_shm) || size != sizeof(struct sn_shm))
		return sn_fail(-EBADMSG, "fabric %s: %s is truncated; remove it", f->name, f->path);
	return 0;
}

/* Of the opened file: whose it is, and that it is a whole fabric. */
static int check_file(struct sn_fabric *f)
{
	struct sn_shm *s;
	struct stat st;
	int rc;

	if (fstat(f->fd, &st))
		return sn_fail(-EBADMSG, "fabric %s: %s cannot be examined", f->name, f->path);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return sn_fail(-EACCES, "fabric %s: %s is not a file of this user alone", f->name, f->path);
	if (st.st_size < 4096)
		return sn_fail(-EBADMSG, "fabric %s: %s is truncated; remove it", f->name, f->path);
	s = mmap(NULL, 4096, PROT_READ, MAP_SHARED, f->fd, 0);
	if (s == MAP_FAILED)
		return sn_fail(-ENOMEM, "fabric %s: cannot be mapped", f->name);
	rc = check_header(f, s, (uint64_t)st.st_size);
	if (!rc && s->fences == 0 && !membarrier_ready())
		rc = sn_fail(-ENOSYS, "fabric %s: its maker uses membarrier(2), which this process may not", f->name);
	munmap(s, 4096);
	return rc;
}

/* Nobody is on it, and somebody was. */
static bool is_dead(const struct sn_fabric *f)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < SN_CLIENTS; i++)
		used |= sn_get(&f->s->client[i].state);
	return used && !sn_clients_any(f->fd);
}

/* Another may have been made in its place. */
static bool has_its_name(const struct sn_fabric *f)
{
	struct stat st, now;

	return !fstat(f->fd, &st) && !lstat(f->path, &now) && now.st_ino == st.st_ino && now.st_dev == st.st_dev;
}

/* With the lock and a file open: 1 when the name means another file by now, or the fabric was a dead one and has been removed. */
static int join(struct sn_fabric *f)
{
	int rc = check_file(f);

	if (rc == -EACCES)
		return rc;
	if (!has_its_name(f))
		return 1;
	if (rc)
		return rc;
	f->s = mmap(NULL, sizeof(struct sn_shm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, f->fd, 0);
	if (f->s == MAP_FAILED) {
		f->s = NULL;
		return sn_fail(-ENOMEM, "fabric %s: no room to map %zu MiB", f->name, sizeof(struct sn_shm) >> 20);
	}
	madvise(f->s, sizeof(struct sn_shm), MADV_DONTDUMP);
	f->fences = f->s->fences != 0;
	if (is_dead(f)) {
		sn_wakers_drop(f, UINT32_MAX);
		unlink(f->path);
		return 1;
	}
	begin(f);
	rc = sn_client_join(f);
	sn_set(&f->s->dirty, 0);
	return rc;
}

static void drop_file(struct sn_fabric *f)
{
	if (f->s)
		munmap(f->s, sizeof(struct sn_shm));
	if (f->fd >= 0)
		sn_sys(SYS_close, f->fd);
	f->s = NULL;
	f->fd = -1;
}

static int open_or_make(struct sn_fabric *f)
{
	int rc = 1;

	for (int tries = 0; rc == 1 && tries < 1000; tries++) {
		f->fd = (int)sn_sys(SYS_openat, AT_FDCWD, f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
		if (f->fd == -ENOENT) {
			rc = make_file(f, "/dev/shm");
			rc = rc ? rc : 1;
			continue;
		}
		if (f->fd < 0)
			return sn_fail(f->fd == -ELOOP ? -EACCES : f->fd, "fabric %s: %s: %s", f->name, f->path, strerror(-f->fd));
		rc = file_lock(f);
		if (!rc) {
			rc = join(f);
			file_unlock(f);
		}
		if (rc)
			drop_file(f);
	}
	return rc == 1 ? sn_fail(-EBUSY, "fabric %s: made and removed by others without end", f->name) : rc;
}

static bool name_ok(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= SN_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n && name[0] != '.';
}

static void forget_all(void)
{
	pv_list_for_each_safe(it, tmp, &fabrics)
		sn_fabric_forget(pv_list_entry(it, struct sn_fabric, link));
}

static void fork_register(void)
{
	pthread_atfork(NULL, NULL, forget_all);
}

int sn_fabric_open(const char *name, struct sn_fabric **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct sn_fabric *f;
	int rc;

	pthread_once(&once, fork_register);
	if (!name_ok(name))
		return sn_fail(-EINVAL, "a fabric's name is 1 to %d letters, digits, '_', '-' or '.', not '.' first", SN_NAME_MAX);
	pthread_mutex_lock(&fabrics_mutex);
	pv_list_for_each(it, &fabrics) {
		f = pv_list_entry(it, struct sn_fabric, link);
		if (!strcmp(f->name, name)) {
			f->refs++;
			pthread_mutex_unlock(&fabrics_mutex);
			*out = f;
			return 0;
		}
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		pthread_mutex_unlock(&fabrics_mutex);
		return sn_fail(-ENOMEM, "no memory");
	}
	f->refs = 1;
	f->client = UINT32_MAX;
	f->fd = f->wake_fd = -1;
	pthread_mutex_init(&f->mutex, NULL);
	memcpy(f->name, name, strlen(name) + 1);
	snprintf(f->path, sizeof(f->path), "/dev/shm/pyvma-softnic-%u-%s", (unsigned)geteuid(), name);
	rc = open_or_make(f);
	if (rc) {
		pthread_mutex_destroy(&f->mutex);
		free(f);
	} else {
		pv_list_add(&fabrics, &f->link);
		*out = f;
	}
	pthread_mutex_unlock(&fabrics_mutex);
	return rc;
}

/* With the lock. */
static void remove_if_last(struct sn_fabric *f)
{
	if (sn_others_stay(f) || !has_its_name(f))
		return;
	sn_wakers_drop(f, UINT32_MAX);
	unlink(f->path);
}

void sn_fabric_close(struct sn_fabric *f)
{
	pthread_mutex_lock(&fabrics_mutex);
	if (--f->refs) {
		pthread_mutex_unlock(&fabrics_mutex);
		return;
	}
	pv_list_del(&f->link);
	if (f->s) {
		sn_pacer_close(f);
		sn_hold_close(f);
	} else {
		free(f->pacer); /* of a forked child: the thread is the parent's */
	}
	if (f->s && !sn_lock(f)) {
		sn_client_leave(f);
		remove_if_last(f);
		sn_unlock(f);
	}
	if (f->wake_fd >= 0)
		sn_sys(SYS_close, f->wake_fd);
	drop_file(f);
	pthread_mutex_destroy(&f->mutex);
	free(f);
	pthread_mutex_unlock(&fabrics_mutex);
}

/* Whoever has it needs it for a moment, but may have been stopped meanwhile, and this process is to end. */
static bool lock_soon(struct sn_fabric *f)
{
	static const struct timespec nap = { .tv_nsec = 1000000 };
	int rc = -EAGAIN;

	for (int tries = 0; rc == -EAGAIN && tries < 100; tries++) {
		if (tries)
			nanosleep(&nap, NULL);
		rc = sn_file_lock(f->fd, F_OFD_SETLK, F_WRLCK, SN_LOCK_TABLES, 1, NULL);
	}
	return rc == 0;
}

/*
 * A program that ends without closing is as good as dead to the others, who free what it had. But when there are none, nobody would
 * remove the file. Nothing else is touched here: other threads may still run.
 */
__attribute__((destructor)) static void leave_at_exit(void)
{
	pv_list_for_each(it, &fabrics) {
		struct sn_fabric *f = pv_list_entry(it, struct sn_fabric, link);

		if (!f->s || pthread_mutex_trylock(&f->mutex))
			continue;
		if (lock_soon(f)) {
			sn_client_ends(f);
			remove_if_last(f);
			sn_file_lock(f->fd, F_OFD_SETLK, F_UNLCK, SN_LOCK_TABLES, 1, NULL);
		}
		pthread_mutex_unlock(&f->mutex);
	}
}

/*
 * The lock on this client's byte belongs to the open file, which the child shares until it closes its descriptor. The parent's
 * thread that held the list's mutex does not exist here, so the mutex is made anew.
 */
void sn_fabric_forget(struct sn_fabric *f)
{
	pthread_mutex_init(&fabrics_mutex, NULL);
	pthread_mutex_init(&f->mutex, NULL);
	f->hold = NULL;
	/* The pacer is freed with the fabric: queue pairs point to it. */
	pv_list_del(&f->link);
	if (f->wake_fd >= 0)
		sn_sys(SYS_close, f->wake_fd);
	f->wake_fd = -1;
	drop_file(f);
}
