/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In a directory that others can write to, /tmp, they could have made ours first: so it must belong to us and be closed to everybody else.
 * One that the setting names is whoever named it to vouch for; the socket's own mode and the peer's identity protect it there.
 */
#include "rt/control_path.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rt/error.h"

#define BACKLOG 16
#define SWEEP_MAX 256 /* names looked at */

static bool is_dir_of_ours(const char *path, bool closed)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (!closed || !(st.st_mode & 077));
}

static bool make_private(const char *path)
{
	return (mkdir(path, 0700) == 0 || errno == EEXIST) && is_dir_of_ours(path, true);
}

static int runtime_dir(char *dir, size_t size)
{
	unsigned int uid = geteuid();

	if (uid == 0) {
		snprintf(dir, size, "/run/pyvma");
		if (make_private(dir))
			return 0;
	}
	snprintf(dir, size, "/run/user/%u", uid);
	if (is_dir_of_ours(dir, false)) {
		snprintf(dir, size, "/run/user/%u/pyvma", uid);
		if (make_private(dir))
			return 0;
	}
	snprintf(dir, size, "/tmp/pyvma-%u", uid);
	return make_private(dir) ? 0 : pv_error(-EPERM, "%s: not a directory of this user's alone", dir);
}

static bool is_socket(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* Nobody listens there. */
static bool is_dead(const struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool dead = fd >= 0 && connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) && errno == ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return dead;
}

/* Killed processes leave theirs. Another namespace's processes are not seen by their numbers, but they do answer. */
static void sweep(const char *dir)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	DIR *d = opendir(dir);
	const struct dirent *entry;

	for (int i = 0; d && i < SWEEP_MAX && (entry = readdir(d)); i++) {
		int pid = atoi(entry->d_name);

		if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH)
			continue;
		if ((size_t)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d", dir, pid) >= sizeof(addr.sun_path) ||
		    !is_socket(addr.sun_path))
			continue;
		if (is_dead(&addr))
			unlink(addr.sun_path);
	}
	if (d)
		closedir(d);
}

static int listen_at(struct sockaddr_un *addr)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;

	if (fd < 0)
		return -errno;
	/* The file has the mode that the socket has when it is bound. One of our number is a dead process's, or lives in another namespace. */
	if (is_socket(addr->sun_path) && is_dead(addr))
		unlink(addr->sun_path);
	if (fchmod(fd, 0600) || bind(fd, (struct sockaddr *)addr, sizeof(*addr)) || listen(fd, BACKLOG))
		rc = -errno;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

int pv_control_listen(const char *dir, char path[PV_CONTROL_PATH_MAX])
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char runtime[64];
	int rc;

	_Static_assert(sizeof(addr.sun_path) == PV_CONTROL_PATH_MAX, "the path fits");
	if (*dir && mkdir(dir, 0700) && errno != EEXIST)
		return pv_error(-errno, "control_dir: %s: %s", dir, strerror(errno));
	if (!*dir) {
		rc = runtime_dir(runtime, sizeof(runtime));
		if (rc)
			return rc;
		dir = runtime;
	}
	sweep(dir);
	if ((size_t)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%d", dir, (int)getpid()) >= sizeof(addr.sun_path))
		return pv_error(-ENAMETOOLONG, "control_dir: %s: too long for the name of a socket", dir);
	rc = listen_at(&addr);
	if (rc < 0)
		return pv_error(rc, "%s: %s", addr.sun_path, strerror(-rc));
	memcpy(path, addr.sun_path, sizeof(addr.sun_path));
	return rc;
}
