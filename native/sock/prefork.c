/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listeners that siblings share.
 *
 * The family has an eventfd from before its first fork on. It is readable once one of the processes has met such a listener without having
 * the ring; whoever has that finds it so, or is told by the progress thread in the midst of a wait.
 */
#include "sock/prefork.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/ownfd.h"

/* A process that listens at more ports at once is no worker of that kind. */
#define LISTENERS_MAX 16u

static _Atomic(int) family = -1;
static _Atomic(bool) shared; /* there was a fork, or a listener from before an exec */

/* Engine lock. Sockets' memory stays, and the next one in it has another serial number. */
struct known {
	struct pv_sock *so;
	uint64_t serial;
};
uint32_t pv_prefork_gates; /* `listeners` once there are siblings */
uint32_t pv_prefork_several; /* `all_ours`: everything comes here */
static struct known listener[LISTENERS_MAX], all_ours[LISTENERS_MAX], served;
static uint32_t listeners;
static bool watched;

bool pv_prefork_shared(void)
{
	return shared;
}

void pyvma_listener_shared(int inherited)
{
	int none = -1, fd;

	if (inherited)
		shared = true;
	if (family >= 0)
		return;
	fd = pv_ownfd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	if (fd >= 0 && !atomic_compare_exchange_strong(&family, &none, fd))
		close(fd);
}

void pv_prefork_own(void)
{
	shared = true;
	if (family >= 0)
		(void)pv_ownfd(family);
}

void pv_prefork_forked(void)
{
	listeners = pv_prefork_gates = pv_prefork_several = 0;
	watched = false;
	served.so = NULL;
}

/* By a system call of its own the program may have closed it, and have the number for something else. */
static bool is_there(int fd)
{
	static const char is[] = "anon_inode:[eventfd]";
	char path[32], what[sizeof(is)];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, what, sizeof(what)) == sizeof(is) - 1 && !memcmp(what, is, sizeof(is) - 1);
}

void pv_prefork_kernels(void)
{
	uint64_t one = 1;
	int fd = family;

	/* Full it is as readable. */
	if (fd >= 0 && is_there(fd) && write(fd, &one, sizeof(one)) < 0)
		return;
}

/* ---- the one with the ring --------------------------------------------------------------------------------------------- */

static bool lives(const struct known *k)
{
	return k->so && k->so->serial == k->serial && k->so->tc;
}

static bool listens(const struct known *k)
{
	return lives(k) && pv_tcp_state(k->so->tc) == PV_TCP_LISTEN;
}

static bool told(void)
{
	struct pollfd p = { .fd = family, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void watch(void)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT, .data = { .ptr = &family } };

	if (!watched && family >= 0)
		watched = epoll_ctl(pv_ready_extra_fd(), EPOLL_CTL_ADD, family, &ev) == 0;
}

void pv_prefork_listens(struct pv_sock *so)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < listeners; i++)
		if (listens(&listener[i]))
			listener[n++] = listener[i];
	listener[n % LISTENERS_MAX] = (struct known){ so, so->serial };
	listeners = n < LISTENERS_MAX ? n + 1 : 0;
	watch();
	pv_prefork_gates = told() ? listeners : 0;
}

/* Beside those of before. Whoever never looks at the kernel's half needs theirs at any time. */
static void keep_all(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < pv_prefork_several; i++)
		if (listens(&all_ours[i]))
			all_ours[n++] = all_ours[i];
	for (uint32_t i = 0; pv_engine.kernel_ratio && i < listeners && n < LISTENERS_MAX; i++)
		all_ours[n++] = listener[i];
	pv_prefork_several = n;
}

/* It serves several at once, or the ring has no gates: everything comes here. */
static void give_up(void)
{
	for (uint32_t i = 0; i < listeners; i++)
		if (listens(&listener[i]))
			(void)pv_tcp_gate(listener[i].so->tc, false);
	keep_all();
	listeners = pv_prefork_gates = 0;
}

void pv_prefork_watched(struct pv_sock *so, bool by_any)
{
	for (uint32_t i = 0; i < pv_prefork_several; i++) {
		if (all_ours[i].so != so || !listens(&all_ours[i]))
			continue;
		if (!by_any)
			pv_tcp_gate_open(pv_engine.tcp, false);
		(void)pv_tcp_gate(so->tc, !by_any);
	}
}

static bool is_in(const struct pv_sock *so, const struct pyvma_epoll *set)
{
	pv_list_for_each(it, &so->entries)
		if (pv_list_entry(it, struct pv_entry, on_sock)->set == set)
			return true;
	return false;
}

/* Whoever does not look at the kernel's half needs all of them. */
static bool gates(void)
{
	bool all = pv_engine.kernel_ratio != 0;

	for (uint32_t i = 0; i < listeners && all; i++)
		all = !listens(&listener[i]) || !pv_tcp_gate(listener[i].so->tc, true);
	if (!all)
		give_up();
	return all;
}

bool pv_prefork_expects(void)
{
	for (uint32_t i = 0; i < listeners; i++)
		if (listens(&listener[i]) && !pv_tcp_listen_idle(listener[i].so->tc))
			return true;
	return false;
}

/* For all listeners, whichever it waits for. */
static void begin_wait(void)
{
	if (lives(&served))
		give_up();
	else if (gates() && !pv_prefork_expects())
		pv_tcp_gate_open(pv_engine.tcp, true);
}

int pv_prefork_hand_over(void)
{
	if (!pv_engine.nports)
		return family >= 0 ? PV_HANDED : 0;
	if (!pv_prefork_is())
		return 0;
	pv_prefork_taken();
	pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock)); /* one that came in before */
	return pv_prefork_expects() ? -EAGAIN : PV_HANDED;
}

static bool in_one_set(const struct pv_sock *a, const struct pv_sock *b)
{
	pv_list_for_each(it, &a->entries)
		if (is_in(b, pv_list_entry(it, struct pv_entry, on_sock)->set))
			return true;
	return false;
}

bool pv_prefork_comes(const struct pv_sock *so)
{
	for (uint32_t i = 0; i < listeners; i++)
		if (listens(&listener[i]) && !pv_tcp_listen_idle(listener[i].so->tc) &&
		    (listener[i].so == so || in_one_set(so, listener[i].so)))
			return true;
	return false;
}

static bool knows(const struct pv_sock *so)
{
	for (uint32_t i = 0; i < listeners; i++)
		if (listener[i].so == so && listens(&listener[i]))
			return true;
	return false;
}

void pv_prefork_wait(struct pv_sock *so)
{
	if (!knows(so))
		return;
	if (pv_list_empty(&so->watch.waiters))
		begin_wait();
	else
		give_up(); /* threads, one each */
}

void pv_prefork_wait_set(const struct pyvma_epoll *set)
{
	for (uint32_t i = 0; i < listeners; i++)
		if (listens(&listener[i]) && is_in(listener[i].so, set)) {
			begin_wait();
			return;
		}
}

void pv_prefork_taken(void)
{
	pv_tcp_gate_open(pv_engine.tcp, false);
}

void pv_prefork_serves(struct pv_sock *so)
{
	served = (struct known){ so, so->serial };
}

static bool is_waited_for(const struct pv_sock *so)
{
	bool any = !pv_list_empty(&so->watch.waiters);

	pv_list_for_each(it, &so->entries)
		any |= !pv_list_empty(&pv_list_entry(it, struct pv_entry, on_sock)->set->watch.waiters);
	return any;
}

bool pv_prefork_readable(const void *ptr)
{
	bool waits = false;

	if (ptr != &family)
		return false;
	pv_prefork_gates = listeners;
	for (uint32_t i = 0; i < listeners; i++)
		waits |= listens(&listener[i]) && is_waited_for(listener[i].so);
	/* Busy as it is it serves one at a time, for all that is known. */
	if (waits)
		begin_wait();
	else
		(void)gates();
	return true;
}
