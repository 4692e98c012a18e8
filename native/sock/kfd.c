/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernel sockets that are made late.
 *
 * A stream of the stack's has no use for one: it costs system calls to open and close, an fd, and kernel memory. So the socket beneath a
 * stream is made by whatever first asks for it: the fd's number, bind or connect to an address of the kernel's, an option that the stack
 * does not know. Options that it does know are checked by one kernel socket a family, that all streams share, and noted until the
 * kernel's socket is made, which gets them in the same order, or is known never to be needed.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/host.h"
#include "sock/kin.h"
#include "sock/sock.h"

/* Guards the making, and the notes. Innermost. */
static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;
static int scratch[2] = { -1, -1 }; /* engine lock */

/* ---- whose kernel socket may be late ----------------------------------------------------------------------------------- */

/* Asked once: a kernel without IPv6 says so when a socket is opened. */
static bool family_works(int family)
{
	static _Atomic(int) six; /* 0: not known, 1: works, 2: does not */
	int known = atomic_load_explicit(&six, memory_order_relaxed), fd;

	if (family == AF_INET || known == 1)
		return true;
	if (known)
		return false;
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		close(fd);
	atomic_store_explicit(&six, fd >= 0 ? 1 : 2, memory_order_relaxed);
	return fd >= 0;
}

/* Where interfaces of the kernel's are offloaded only threads of their network namespace have sockets that may be the stack's. */
bool pv_kfd_may_be_late(int family, int type, int proto)
{
	return (family == AF_INET || family == AF_INET6) && type == SOCK_STREAM && (proto == 0 || proto == IPPROTO_TCP) &&
	       pv_engine_state() == PV_ENGINE_RUNNING && family_works(family) && pv_host_home(&pv_engine);
}

/* ---- notes ------------------------------------------------------------------------------------------------------------- */

static void notes_drop(struct pv_sock *so)
{
	while (so->notes) {
		struct pv_kfd_note *n = so->notes;

		so->notes = n->next;
		free(n);
	}
}

int pv_kfd_note(struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	struct pv_kfd_note *n = malloc(sizeof(*n)), **at;
	int rc = 0;

	if (!n)
		return -ENOMEM;
	*n = (struct pv_kfd_note){ .level = level, .name = name, .len = PV_MIN(len, (socklen_t)sizeof(n->val)) };
	memcpy(n->val, val, n->len);
	pthread_mutex_lock(&late_lock);
	if (pv_sock_kfd_made(so) < 0) {
		for (at = &so->notes; *at; at = &(*at)->next)
			;
		*at = n;
	} else {
		rc = setsockopt(pv_sock_kfd_made(so), level, name, val, len) < 0 ? -errno : 0;
		free(n);
	}
	pthread_mutex_unlock(&late_lock);
	return rc;
}

void pv_kfd_forget(struct pv_sock *so)
{
	pthread_mutex_lock(&late_lock);
	notes_drop(so);
	pthread_mutex_unlock(&late_lock);
}

/* ---- ports that are kept ---------------------------------------------------------------------------------------------- */

void pv_kfd_hold(struct pv_sock *so, struct pv_hold *hold)
{
	pthread_mutex_lock(&late_lock);
	so->hold = hold;
	hold->so = so;
	pthread_mutex_unlock(&late_lock);
}

bool pv_kfd_unhold(struct pv_hold *hold)
{
	bool lent;

	pthread_mutex_lock(&late_lock);
	if (hold->so)
		hold->so->hold = NULL;
	hold->so = NULL;
	lent = hold->lent;
	pthread_mutex_unlock(&late_lock);
	return lent;
}

/* The port stays reserved whatever becomes of the new number. */
static int lend(struct pv_sock *so)
{
	int fd = fcntl(so->hold->fd, so->cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0), on = pv_sock_nonblock(so);

	if (fd >= 0)
		so->hold->lent = true;
	if (fd >= 0 && on)
		(void)ioctl(fd, FIONBIO, &on);
	return fd;
}

/* ---- making and ending ------------------------------------------------------------------------------------------------- */

int pv_kfd_make(const struct pv_sock *shared)
{
	struct pv_sock *so = (struct pv_sock *)(uintptr_t)shared;
	int fd;

	pthread_mutex_lock(&late_lock);
	fd = pv_sock_kfd_made(so);
	if (fd == PV_KFD_NONE) {
		int flags = (so->cloexec ? SOCK_CLOEXEC : 0) | (pv_sock_nonblock(so) ? SOCK_NONBLOCK : 0);

		fd = so->hold ? lend(so) : pv_host_socket(&pv_engine, so->family, so->type | flags, so->proto);
		for (const struct pv_kfd_note *n = so->notes; fd >= 0 && n; n = n->next)
			setsockopt(fd, n->level, n->name, n->val, n->len);
		if (fd >= 0) {
			notes_drop(so);
			so->kfd_born = pv_kin_number();
			atomic_store_explicit(&so->kfd, so->own_kfd ? pv_ownfd(fd) : fd, memory_order_relaxed);
		}
	} else if (fd < 0) {
		errno = EBADF;
	}
	pthread_mutex_unlock(&late_lock);
	return fd;
}

int pv_kfd_end(struct pv_sock *so)
{
	int fd;

	pthread_mutex_lock(&late_lock);
	fd = pv_sock_kfd_made(so);
	notes_drop(so);
	atomic_store_explicit(&so->kfd, PV_KFD_GONE, memory_order_relaxed);
	pthread_mutex_unlock(&late_lock);
	return fd;
}

int pv_kfd_nonblock(struct pv_sock *so, bool on)
{
	int rc = 0, flag = on;

	pthread_mutex_lock(&late_lock);
	if (pv_sock_kfd_made(so) != PV_KFD_NONE && ioctl(pv_sock_kfd_made(so), FIONBIO, &flag) < 0)
		rc = -errno;
	if (!rc) {
		atomic_store_explicit(&so->nonblock, on, memory_order_relaxed);
		__atomic_store_n(&so->st->nonblock, on, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&late_lock);
	return rc;
}

/* It comes behind the engine's lock, which a fork takes: so it is not taken around one, but made anew. */
static void in_child(void)
{
	pthread_mutex_init(&late_lock, NULL);
}

__attribute__((constructor)) static void set_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* ---- the shared one ---------------------------------------------------------------------------------------------------- */

int pv_kfd_scratch(int family)
{
	int *fd = &scratch[family == AF_INET6];

	if (*fd < 0)
		*fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return *fd < 0 ? -errno : *fd;
}

void pv_kfd_scratch_drop(int family)
{
	int *fd = &scratch[family == AF_INET6];

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
