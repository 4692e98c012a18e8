/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wakers: a datagram socket a sleeper waits on, found by others under a name beside the fabric's file. A name in the file system,
 * not an abstract one, since those end at the border of a network namespace and a fabric does not. A full socket buffer is as good
 * as a wake: it is readable. A dead process's name is removed by whoever reaps it, or taken over with its number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "softnic/fab.h"
#include "softnic/fab_sys.h"

void sn_waker_name(const struct sn_fabric *f, uint32_t no, char *path, size_t size)
{
	snprintf(path, size, "%s.w%u", f->path, no);
}

static void address(const struct sn_fabric *f, uint32_t no, struct sockaddr_un *sun)
{
	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	sn_waker_name(f, no, sun->sun_path, sizeof(sun->sun_path));
}

/* With the lock. */
static int waker_make(struct sn_fabric *f, struct sn_waker *w)
{
	struct sockaddr_un sun;
	int rc;

	sn_clients_reap(f);
	for (w->no = 0; w->no < SN_WAKERS && sn_get(&f->s->waker[w->no].state) != SN_FREE; w->no++)
		;
	if (w->no == SN_WAKERS)
		return sn_fail(-ENOSPC, "fabric %s: %u wakers are on it already", f->name, SN_WAKERS);
	address(f, w->no, &sun);
	sn_set(&f->s->waker[w->no].client, f->client);
	sn_set(&f->s->waker[w->no].state, SN_LIVE);
	sn_sys(SYS_unlinkat, AT_FDCWD, sun.sun_path, 0);
	/* The mode of the name is that of the socket. */
	rc = (int)sn_sys(SYS_fchmod, w->fd, 0600);
	if (!rc)
		rc = (int)sn_sys(SYS_bind, w->fd, &sun, sizeof(sun));
	if (rc) {
		sn_set(&f->s->waker[w->no].state, SN_FREE);
		return sn_fail(rc, "fabric %s: %s cannot be made: %s", f->name, sun.sun_path, strerror(-rc));
	}
	return 0;
}

int sn_waker_open(struct sn_fabric *f, struct sn_waker **out)
{
	struct sn_waker *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return sn_fail(-ENOMEM, "no memory");
	w->f = f;
	w->fd = (int)sn_sys(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = w->fd < 0 ? sn_fail(w->fd, "no socket for a waker: %s", strerror(-w->fd)) : sn_lock(f);
	if (!rc) {
		rc = waker_make(f, w);
		sn_unlock(f);
	}
	if (rc) {
		if (w->fd >= 0)
			sn_sys(SYS_close, w->fd);
		free(w);
		return rc;
	}
	*out = w;
	return 0;
}

static void waker_drop(struct sn_fabric *f, uint32_t no)
{
	struct sockaddr_un sun;

	address(f, no, &sun);
	sn_sys(SYS_unlinkat, AT_FDCWD, sun.sun_path, 0);
	sn_set(&f->s->waker[no].state, SN_FREE);
}

/* With the lock; UINT32_MAX: of every client. */
void sn_wakers_drop(struct sn_fabric *f, uint32_t client)
{
	for (uint32_t i = 0; i < SN_WAKERS; i++) {
		if (sn_get(&f->s->waker[i].state) != SN_FREE && (client == UINT32_MAX || sn_get(&f->s->waker[i].client) == client))
			waker_drop(f, i);
	}
}

void sn_waker_close(struct sn_waker *w)
{
	struct sn_fabric *f = w->f;

	if (!sn_lock(f)) {
		waker_drop(f, w->no);
		sn_unlock(f);
	}
	sn_sys(SYS_close, w->fd);
	free(w);
}

int sn_waker_fd(const struct sn_waker *w)
{
	return w->fd;
}

void sn_waker_clear(struct sn_waker *w)
{
	char sink[8];

	while (sn_sys(SYS_recvfrom, w->fd, sink, sizeof(sink), MSG_DONTWAIT, NULL, NULL) >= 0)
		;
}

void sn_waker_wake(struct sn_waker *w)
{
	sn_wake(w->f, w->no);
}

/* A socket for sending is made once per process; two threads may both make one, and the loser closes its own. */
static int wake_socket(struct sn_fabric *f)
{
	int fd = __atomic_load_n(&f->wake_fd, __ATOMIC_ACQUIRE), none = -1;

	if (fd >= 0)
		return fd;
	fd = (int)sn_sys(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	if (!__atomic_compare_exchange_n(&f->wake_fd, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		sn_sys(SYS_close, fd);
		fd = none;
	}
	return fd;
}

void sn_wake(struct sn_fabric *f, uint32_t no)
{
	struct sockaddr_un sun;
	int fd = wake_socket(f);

	if (no >= SN_WAKERS || fd < 0)
		return;
	address(f, no, &sun);
	sn_sys(SYS_sendto, fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, &sun, sizeof(sun));
}
