/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network namespace of the kernel's interfaces that have rings.
 *
 * Threads go from one to another as they like, and tell nobody. A socket stays where it was made, and knows (SO_NETNS_COOKIE). One that is
 * made later than the program thinks has to be made where the program was: so the thread is asked when the program asks for a socket, by
 * the name that proc gives to its namespace, and a thread that has gone elsewhere since goes back for a moment.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/host.h"

#define OWN_NS "/proc/thread-self/ns/net"

/* The engine's starts when this thread started it: proc need not be walked to find its name of the namespace. */
static _Thread_local uint32_t started;

/* Linux 5.14. 0: not known. */
static uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

void pv_netns_open(struct pv_engine *e, int fd)
{
	ssize_t n = readlink(OWN_NS, e->netns_name, sizeof(e->netns_name));
	uint64_t cookie = cookie_of(fd);

	e->netns_len = n > 0 && (size_t)n < sizeof(e->netns_name) ? (uint32_t)n : 0;
	e->netns_fd = cookie ? pv_ownfd(open(OWN_NS, O_RDONLY | O_CLOEXEC)) : -1;
	e->netns_link = cookie ? pv_ownfd(open(OWN_NS, O_PATH | O_NOFOLLOW | O_CLOEXEC)) : -1;
	started = e->starts;
	atomic_store_explicit(&e->netns, cookie, memory_order_release);
}

void pv_netns_close(struct pv_engine *e)
{
	if (!atomic_exchange_explicit(&e->netns, 0, memory_order_relaxed))
		return;
	if (e->netns_fd >= 0)
		close(e->netns_fd);
	if (e->netns_link >= 0)
		close(e->netns_link);
	e->netns_fd = e->netns_link = -1;
}

bool pv_host_same_netns(const struct pv_engine *e, int fd)
{
	uint64_t ours = atomic_load_explicit(&e->netns, memory_order_relaxed), its = ours ? cookie_of(fd) : 0;

	return !its || its == ours;
}

bool pv_host_home(const struct pv_engine *e)
{
	char name[sizeof(e->netns_name)];
	ssize_t n;

	if (!atomic_load_explicit(&e->netns, memory_order_acquire))
		return true;
	if (started == e->starts && e->netns_link >= 0)
		n = readlinkat(e->netns_link, "", name, sizeof(name));
	else
		n = readlink(OWN_NS, name, sizeof(name));
	return n > 0 && (size_t)n == e->netns_len && !memcmp(name, e->netns_name, (size_t)n);
}

/* The thread is elsewhere: goes home, and back. */
static int socket_at_home(const struct pv_engine *e, int family, int type, int proto)
{
	int here = open(OWN_NS, O_RDONLY | O_CLOEXEC), fd = -1, err;

	if (here < 0)
		return -1;
	if (setns(e->netns_fd, CLONE_NEWNET) == 0) {
		fd = socket(family, type, proto);
		err = errno;
		if (setns(here, CLONE_NEWNET) < 0 && fd >= 0) {
			err = errno;
			close(fd);
			fd = -1;
		}
		errno = err;
	}
	err = errno;
	close(here);
	errno = err;
	return fd;
}

int pv_host_socket(const struct pv_engine *e, int family, int type, int proto)
{
	int fd = socket(family, type, proto);

	if (fd < 0 || pv_host_same_netns(e, fd))
		return fd;
	close(fd);
	return socket_at_home(e, family, type, proto);
}
