/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Anybody may write to /dev/shm: a file there is made anew or not at all (O_EXCL), links are not followed, and of what is found there
 * only plain files of the same user are ever removed. Whether somebody still has one is told by a lock (flock), which the kernel takes
 * off when its process ends: a process id may be another one's in a second namespace that has the same directory.
 */
#include "rt/stats_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "pyvma.h"
#include "rt/clock.h"

#define TRIES 4
#define EINTR_MAX 16
#define SWEEP_MAX 4096 /* names looked at */

static bool is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

/* A file of this name that no process has is removed. True: there is none any more. */
static bool remove_stale(int dir, const char *name)
{
	struct stat st, named;
	bool gone = false;
	int fd;

	/* What is somebody else's is not even opened: it may be a device, or lie where opening takes long. */
	if (fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT;
	if (!is_ours(&named))
		return false;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	/* Who has just made one may not have locked it yet; it finds out that it is gone, and makes another. Once we have the lock the name
	 * may be another file's, of whoever removed ours first. */
	if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && is_ours(&st) && st.st_nlink &&
	    fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_dev == st.st_dev && named.st_ino == st.st_ino)
		gone = unlinkat(dir, name, 0) == 0;
	close(fd);
	return gone;
}

static void remove_all_stale(int dirfd)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!d) {
		if (copy >= 0)
			close(copy);
		return;
	}
	for (int i = 0; i < SWEEP_MAX && (e = readdir(d)) != NULL; i++) {
		const char *digits = e->d_name + sizeof(PV_STATS_FILE) - 1;

		if (strncmp(e->d_name, PV_STATS_FILE, sizeof(PV_STATS_FILE) - 1) || !*digits ||
		    digits[strspn(digits, "0123456789")])
			continue;
		(void)remove_stale(dirfd, e->d_name);
	}
	closedir(d);
}

/* 0 and the fd of a new, locked file with that name. Its mode is for those that open it: nobody has to write to it but us. */
static int make(int dir, const char *name, int *fd)
{
	for (int i = 0; i < TRIES; i++) {
		struct stat st;
		int rc;

		*fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
		if (*fd < 0) {
			rc = -errno;
			if (rc != -EEXIST || !remove_stale(dir, name))
				return rc;
			continue;
		}
		if (flock(*fd, LOCK_EX | LOCK_NB) == 0 && fstat(*fd, &st) == 0 && st.st_nlink) {
			(void)pv_ownfd(*fd);
			return 0;
		}
		close(*fd);
	}
	return -EAGAIN;
}

/* The blocks first. Beyond RLIMIT_FSIZE there would be a signal. */
static int extend(int fd, size_t from, size_t to)
{
	struct rlimit r;
	int rc = EINTR;

	if (getrlimit(RLIMIT_FSIZE, &r) == 0 && r.rlim_cur != RLIM_INFINITY && to > r.rlim_cur)
		return -EFBIG;
	/* Signals may come faster than blocks: a program's timer shall not keep us here for ever. */
	for (int i = 0; i < EINTR_MAX && rc == EINTR; i++)
		rc = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
	return -rc;
}

static int fill(struct pv_stats_file *f, size_t size, uint8_t **at)
{
	struct stat st;
	int rc = extend(f->fd, 0, size);

	if (rc)
		return rc;
	if (fstat(f->fd, &st) < 0)
		return -errno;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	*at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	return *at == MAP_FAILED ? -errno : 0;
}

int pv_stats_file_open(struct pv_stats_file *f, const char *dir, size_t size, uint8_t **at)
{
	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	char name[64];

	if (dirfd < 0)
		return -errno;
	snprintf(name, sizeof(name), PV_STATS_FILE "%d", (int)getpid());
	if ((size_t)snprintf(f->path, sizeof(f->path), "%s/%s", dir, name) >= sizeof(f->path)) {
		close(dirfd);
		return -ENAMETOOLONG;
	}
	remove_all_stale(dirfd);
	rc = make(dirfd, name, &f->fd);
	if (!rc) {
		rc = fill(f, size, at);
		if (rc) {
			unlinkat(dirfd, name, 0);
			close(f->fd);
		}
	}
	close(dirfd);
	if (rc)
		f->fd = -1;
	return rc;
}

bool pv_stats_file_same(const struct pv_stats_file *f)
{
	struct stat st;

	return f->fd >= 0 && fstat(f->fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

bool pv_stats_file_grow(struct pv_stats_file *f, uint8_t *base, size_t size)
{
	struct stat st;
	size_t from;

	if (!pv_stats_file_same(f) || fstat(f->fd, &st) < 0)
		return false;
	from = (size_t)st.st_size;
	if (from < size) {
		if (extend(f->fd, from, size))
			return false;
	}
	from = (size_t)__atomic_load_n(&((struct pv_stats_head *)(void *)base)->size, __ATOMIC_RELAXED);
	if (mmap(base + from, size - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f->fd, (off_t)from) == MAP_FAILED)
		return false;
	madvise(base + from, size - from, MADV_DONTFORK);
	return true;
}

void pv_stats_file_close(struct pv_stats_file *f)
{
	struct stat st;

	if (lstat(f->path, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino)
		unlink(f->path);
	pv_stats_file_forget(f);
}

void pv_stats_file_forget(struct pv_stats_file *f)
{
	if (pv_stats_file_same(f))
		close(f->fd);
	f->fd = -1;
}

/* ---- head -------------------------------------------------------------------------------------------------------------- */

/* The first line of a small file without its end; what does not fit is left out. */
static void read_line(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
}

/* Field 22. The second one is the program's name in brackets, and may hold anything. */
static uint64_t start_time(void)
{
	char buf[1024];
	const char *p;

	read_line("/proc/self/stat", buf, sizeof(buf));
	p = strrchr(buf, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

int pv_stats_file_reopen(const struct pv_stats_file *f)
{
	int fd = open(f->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_dev != f->dev || st.st_ino != f->ino)) {
		close(fd);
		return -1;
	}
	return fd;
}

void pv_stats_file_head(struct pv_stats_head *h)
{
	memset(h->program, 0, sizeof(h->program));
	memset(h->pyvma, 0, sizeof(h->pyvma));
	memset(h->boot_id, 0, sizeof(h->boot_id));
	h->pid = (uint64_t)getpid();
	h->start_time = start_time();
	h->uid = geteuid();
	h->started_ns = pv_clock_kernel_ns();
	h->started_realtime_ns = h->started_ns + pv_clock_realtime_offset_ns();
	snprintf(h->program, sizeof(h->program), "%s", program_invocation_short_name);
	snprintf(h->pyvma, sizeof(h->pyvma), "%s", pyvma_version());
	read_line("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof(h->boot_id));
}
