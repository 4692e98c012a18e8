/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file describes itself: names of events, of their numbers and of reasons are in it, so that a reader needs no part of pyvma.
 *
 * Whose process is there has a lock on it (flock), which the kernel takes off when the process ends: a process id may be another one's in
 * a second namespace that has the same directory, and say nothing of whether it is there.
 */
#include "rt/recorder_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "base/trace.h"

#define PAGE 4096u
#define SWEEP_MAX 4096 /* names looked at */
#define NAME_BYTES 48 /* PREFIX, a process id, a dot and a start time */
#define TRIES 8

/* ---- schema ------------------------------------------------------------------------------------------------------------ */

static void put_list(FILE *f, const char *name, const char *values)
{
	fprintf(f, "%s\"%s\":[\"", *name == '!' ? "" : ",", *name == '!' ? name + 1 : name);
	for (; *values; values++)
		fputs(*values == ',' ? "\",\"" : (const char[]){ *values, '\0' }, f);
	fputs("\"]", f);
}

static void put_reasons(FILE *f, const char *layer, enum pv_trace_layer number, const char *const *names, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		fprintf(f, "%s\"%u\":\"%s.%s\"", number == PV_TRACE_NET && !i ? "" : ",", PV_TRACE_REASON(number, i), layer,
			names[i]);
}

static void put_schema(FILE *f)
{
	static const char *const net[] = { PV_NET_COUNTERS(PV_COUNTER_NAME) };
	static const char *const udp[] = { PV_UDP_COUNTERS(PV_COUNTER_NAME) };
	static const char *const tcp[] = { PV_TCP_COUNTERS(PV_COUNTER_NAME) };
	static const struct {
		const char *name, *a, *b, *help;
	} events[] = {
#define EVENT(name, a, b, text) { #name, a, b, text },
		PV_TRACE_EVENTS(EVENT)
	};
	static const struct {
		const char *name, *values;
	} lists[] = {
#define LIST(name, values) { #name, values },
		PV_TRACE_LISTS(LIST)
	};

	fputs("{\"events\":[", f);
	for (size_t i = 0; i < pv_array_size(events); i++)
		fprintf(f, "%s{\"name\":\"%s\",\"a\":\"%s\",\"b\":\"%s\",\"help\":\"%s\"}", i ? "," : "", events[i].name,
			events[i].a, events[i].b, events[i].help);
	fprintf(f, "],\"stations\":%u,\"lists\":{", (unsigned int)PV_TRACE_ring_in);
	for (size_t i = 0; i < pv_array_size(lists); i++) {
		char name[32];

		snprintf(name, sizeof(name), "%s%s", i ? "" : "!", lists[i].name);
		put_list(f, name, lists[i].values);
	}
	fputs("},\"reasons\":{", f);
	put_reasons(f, "net", PV_TRACE_NET, net, pv_array_size(net));
	put_reasons(f, "udp", PV_TRACE_UDP, udp, pv_array_size(udp));
	put_reasons(f, "tcp", PV_TRACE_TCP, tcp, pv_array_size(tcp));
	fputs("}}", f);
}

/* To be freed; NULL: no memory. */
static char *make_schema(size_t *size)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, size);

	if (!f)
		return NULL;
	put_schema(f);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- head -------------------------------------------------------------------------------------------------------------- */

static size_t read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return strlen(out);
}

/* Field 22 of /proc/PID/stat; the second is in parentheses and may hold anything. 0: there is none. */
static uint64_t start_ticks(void)
{
	char text[1024];
	const char *p;

	read_text("/proc/self/stat", text, sizeof(text));
	p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p, NULL, 10) : 0;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

static void fill_head(struct pv_recorder_head *h, uint64_t events, uint64_t events_at, uint64_t schema_size)
{
	memcpy(h->magic, PV_RECORDER_MAGIC, sizeof(h->magic));
	h->version = PV_RECORDER_VERSION;
	h->order = 0x01020304;
	h->event_size = sizeof(struct pv_trace_event);
	h->events = events;
	h->events_at = events_at;
	h->schema_at = PAGE;
	h->schema_size = schema_size;
	h->pid = (uint64_t)getpid();
	h->start_ticks = start_ticks();
	h->uid = geteuid();
	h->monotonic_ns = clock_ns(CLOCK_MONOTONIC);
	h->realtime_ns = clock_ns(CLOCK_REALTIME);
	read_text("/proc/self/comm", h->program, sizeof(h->program));
	snprintf(h->pyvma, sizeof(h->pyvma), "%s", PYVMA_VERSION);
	read_text("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof(h->boot_id));
	__atomic_store_n(&h->state, 1, __ATOMIC_RELEASE);
}

/* The fd of a file of this user's that nobody has, now locked; < 0: it is none, or errno says why. */
static int lock_leftover(int dir, const char *name, struct stat *st)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	close(fd);
	errno = EEXIST;
	return -1;
}

/* What a dead process left that had our number gets a name of its own; what was never finished goes. True: the name is free. */
static bool move_leftover(int dir, const char *name)
{
	struct pv_recorder_head h;
	char other[NAME_BYTES + 24];
	struct stat st;
	int fd = lock_leftover(dir, name, &st);
	bool is;

	if (fd < 0)
		return errno == ENOENT;
	if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || memcmp(h.magic, PV_RECORDER_MAGIC, sizeof(h.magic))) {
		is = unlinkat(dir, name, 0) == 0;
	} else {
		snprintf(other, sizeof(other), "%s.%llu", name, (unsigned long long)h.start_ticks);
		is = renameat(dir, name, dir, other) == 0;
	}
	close(fd);
	return is;
}

/* Who looks for leftovers may have found it before we have the lock, and taken it away. */
static bool lock_new(int dir, const char *name, int fd)
{
	struct stat st, at;
	int rc = -1;

	for (int i = 0; rc && i < TRIES; i++)
		rc = flock(fd, LOCK_EX);
	return !rc && fstat(fd, &st) == 0 && fstatat(dir, name, &at, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == at.st_dev &&
	       st.st_ino == at.st_ino;
}

/* The fd of a new, locked file with that name, or -errno. */
static int make(int dir, const char *name)
{
	for (int i = 0; i < TRIES; i++) {
		int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), rc = -errno;

		if (fd < 0) {
			if (rc != -EEXIST || !move_leftover(dir, name))
				return rc;
			continue;
		}
		if (lock_new(dir, name, fd))
			return fd;
		close(fd);
	}
	return -EAGAIN;
}

/* A file without its blocks would be a SIGBUS when the directory is full. */
static int map_file(struct pv_recorder_file *f, size_t size, struct pv_recorder_head **out)
{
	struct stat st;
	int rc = EINTR;
	void *p;

	for (int i = 0; rc == EINTR && i < TRIES; i++)
		rc = posix_fallocate(f->fd, 0, (off_t)size);
	if (rc)
		return -rc;
	if (fstat(f->fd, &st) < 0)
		return -errno;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* A child would write into its parent's. */
	madvise(p, size, MADV_DONTFORK);
	*out = p;
	return 0;
}

static int make_file(struct pv_recorder_file *f, const char *dir, size_t size, struct pv_recorder_head **out)
{
	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	char name[NAME_BYTES];

	if (dirfd < 0)
		return -errno;
	snprintf(name, sizeof(name), "%s%d", PV_RECORDER_PREFIX, getpid());
	f->fd = pv_ownfd(make(dirfd, name));
	rc = f->fd < 0 ? f->fd : map_file(f, size, out);
	if (rc && f->fd >= 0) {
		unlinkat(dirfd, name, 0);
		close(f->fd);
	}
	close(dirfd);
	return rc;
}

int pv_recorder_file_make(struct pv_recorder_file *f, const char *dir, uint64_t events, struct pv_recorder_head **out, size_t *size)
{
	size_t schema_size, at;
	char *schema = make_schema(&schema_size);
	int rc;

	if (snprintf(f->path, sizeof(f->path), "%s/%s%d", dir, PV_RECORDER_PREFIX, getpid()) >= (int)sizeof(f->path)) {
		free(schema);
		return -ENAMETOOLONG;
	}
	if (!schema)
		return -ENOMEM;
	at = PAGE + ((schema_size + PAGE - 1) & ~(size_t)(PAGE - 1));
	*size = at + events * sizeof(struct pv_trace_event);
	rc = make_file(f, dir, *size, out);
	if (!rc) {
		memcpy((uint8_t *)*out + PAGE, schema, schema_size);
		fill_head(*out, events, at, schema_size);
	}
	free(schema);
	return rc;
}

void pv_recorder_file_close(struct pv_recorder_file *f)
{
	struct stat st;

	if (lstat(f->path, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino)
		unlink(f->path);
	pv_recorder_file_forget(f);
}

void pv_recorder_file_forget(struct pv_recorder_file *f)
{
	struct stat st;

	/* The program may have closed it, and have another file of that number. */
	if (fstat(f->fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino)
		close(f->fd);
}

/* ---- what is left over ------------------------------------------------------------------------------------------------- */

struct leftover {
	struct timespec when;
	char name[NAME_BYTES];
};

/* PREFIX, a process id and perhaps a start time. */
static bool is_name(const char *name)
{
	const char *digits = name + sizeof(PV_RECORDER_PREFIX) - 1;
	size_t n;

	if (strncmp(name, PV_RECORDER_PREFIX, sizeof(PV_RECORDER_PREFIX) - 1) || *digits < '1' || *digits > '9')
		return false;
	n = strspn(digits, "0123456789");
	if (n > 10 || !digits[n])
		return n <= 10;
	digits += n + 1;
	n = strspn(digits, "0123456789");
	return digits[-1] == '.' && n && n <= 20 && !digits[n];
}

static bool is_leftover(int dirfd, const char *name, struct leftover *out)
{
	struct stat st;
	int fd = is_name(name) ? lock_leftover(dirfd, name, &st) : -1;

	if (fd < 0)
		return false;
	close(fd);
	out->when = st.st_mtim;
	memcpy(out->name, name, strlen(name) + 1); /* 30 digits and a dot at most */
	return true;
}

/* Somebody may have it by now. */
static void remove_leftover(int dirfd, const char *name)
{
	struct stat st;
	int fd = lock_leftover(dirfd, name, &st);

	if (fd < 0)
		return;
	unlinkat(dirfd, name, 0);
	close(fd);
}

static bool older(const struct leftover *a, const struct leftover *b)
{
	return a->when.tv_sec != b->when.tv_sec ? a->when.tv_sec < b->when.tv_sec : a->when.tv_nsec < b->when.tv_nsec;
}

void pv_recorder_sweep(const char *dir)
{
	struct leftover kept[PV_RECORDER_KEEP], one;
	uint32_t n = 0, oldest;
	DIR *d = opendir(dir);
	struct dirent *it;

	if (!d)
		return;
	for (int i = 0; i < SWEEP_MAX && (it = readdir(d)); i++) {
		if (!is_leftover(dirfd(d), it->d_name, &one))
			continue;
		if (n < PV_RECORDER_KEEP) {
			kept[n++] = one;
			continue;
		}
		oldest = 0;
		for (uint32_t k = 1; k < n; k++)
			if (older(&kept[k], &kept[oldest]))
				oldest = k;
		if (older(&kept[oldest], &one)) {
			struct leftover gone = kept[oldest];

			kept[oldest] = one;
			one = gone;
		}
		remove_leftover(dirfd(d), one.name);
	}
	closedir(d);
}
