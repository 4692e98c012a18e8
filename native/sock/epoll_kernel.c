/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel's set has of an entry: a number of its own, a socket that is the kernel's so far, a datagram socket's kernel leg. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "sock/epoll.h"

int pv_entry_ctl(struct pv_entry *en, int op, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data = { .u64 = (uint64_t)en->gen << 32 | en->index } };

	/* Linux would not look whether the number is there. What was added with it is not changed in any case. */
	if (op == EPOLL_CTL_MOD)
		ev.events &= ~(uint32_t)EPOLLEXCLUSIVE;
	return epoll_ctl(en->set->kep, op, fd, &ev) < 0 ? -errno : 0;
}

/* What the kernel shall watch of an entry: -1: nothing. */
static int kernel_part(const struct pv_entry *en, uint32_t *events)
{
	const struct pv_sock *so = en->so;

	*events = en->events;
	if (!so)
		return en->key;
	if (!pv_sock_is_ours(so))
		return so->dead ? -1 : pv_sock_kfd(so);
	/* Once an entry is spent it is not told of; a leg that stays readable must not keep the set awake. */
	*events = (en->events & ~(uint32_t)(EPOLLOUT | EPOLLWRNORM | EPOLLONESHOT)) | EPOLLIN;
	return so->kernel_leg && !en->spent ? pv_sock_kfd(so) : -1;
}

void pv_entry_drop(struct pv_entry *en)
{
	if (en->kfd < 0)
		return;
	/* A closed set's goes as a whole; a forked child closes the set, and sockets in it, that its parent goes on with. */
	if (!en->set->closed && (!en->so || en->set->pid == getpid()))
		epoll_ctl(en->set->kep, EPOLL_CTL_DEL, en->kfd, NULL);
	if (en->twin)
		close(en->kfd);
	en->twin = false;
	en->kfd = -1;
	en->set->nkernel--;
}

/* The kernel knows an entry by file and number: for a socket that is in the set by another number already its fd needs another one, too. */
static int kernel_add(struct pv_entry *en, int fd, uint32_t events)
{
	int rc = pv_entry_ctl(en, EPOLL_CTL_ADD, fd, events), twin;

	en->leg = fd;
	if (rc != -EEXIST || !en->so)
		return rc ? rc : fd;
	twin = pv_ownfd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	rc = twin < 0 ? -errno : pv_entry_ctl(en, EPOLL_CTL_ADD, twin, events);
	en->twin = !rc;
	if (rc && twin >= 0)
		close(twin);
	return rc ? rc : twin;
}

int pv_entry_sync(struct pv_entry *en)
{
	uint32_t events;
	int fd = kernel_part(en, &events), rc = -ENOENT;

	if (en->kfd >= 0 && en->leg != fd)
		pv_entry_drop(en);
	if (fd < 0)
		return 0;
	if (en->kfd >= 0)
		rc = pv_entry_ctl(en, EPOLL_CTL_MOD, en->kfd, events);
	/* Of a number of the kernel's own Linux says so, too. */
	if (rc != -ENOENT || (en->kfd >= 0 && !en->so))
		return rc;
	/* Not there; or closed and opened again behind our back: the kernel has forgotten it. */
	rc = kernel_add(en, fd, events);
	if (rc < 0)
		return rc;
	en->set->nkernel += en->kfd < 0;
	en->kfd = rc;
	return 0;
}
