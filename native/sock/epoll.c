/* SPDX-License-Identifier: BSD-3-Clause */
/* epoll(7) over sockets of the stack's and everything else. */
#include "sock/epoll.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/error.h"
#include "rt/stats.h"
#include "rt/wait.h"
#include "sock/prefork.h"
#include "sock/stream.h"

#define CHUNK 64u
#define ALWAYS (uint32_t)(EPOLLERR | EPOLLHUP)
#define FLAGS (uint32_t)(EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)
#define EXCLUSIVE_OK (uint32_t)(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)
#define BELL UINT64_MAX
#define LEAVING_TURNS 100000
#define KERNEL_LOOK_NS (100 * PV_NS_PER_US)

_Static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI && EPOLLERR == POLLERR && EPOLLHUP == POLLHUP &&
		   EPOLLRDHUP == POLLRDHUP && EPOLLRDNORM == POLLRDNORM && EPOLLWRNORM == POLLWRNORM,
	       "one set of bits");
_Static_assert(PV_EV_IN << 6 == EPOLLRDNORM && PV_EV_OUT << 6 == EPOLLWRNORM, "pv_ready_norm");
_Static_assert((int)EPOLLIN == PV_EV_IN && (int)EPOLLOUT == PV_EV_OUT && (int)EPOLLERR == PV_EV_ERR && (int)EPOLLHUP == PV_EV_HUP &&
		   (int)EPOLLRDHUP == PV_EV_RDHUP && (int)EPOLLPRI == PV_EV_PRI,
	       "and the stack's");

static struct pyvma_epoll *free_sets; /* engine lock */

/* ---- entries ----------------------------------------------------------------------------------------------------------- */

static struct pv_entry *entry_at(const struct pyvma_epoll *set, uint32_t index)
{
	return &set->chunk[index / CHUNK][index % CHUNK];
}

/* A chunk more of unused entries. */
static bool grow(struct pyvma_epoll *set)
{
	struct pv_entry **chunk = realloc(set->chunk, (set->nchunk + 1) * sizeof(*chunk)), *en;

	if (!chunk)
		return false;
	set->chunk = chunk;
	en = calloc(CHUNK, sizeof(*en));
	if (!en)
		return false;
	for (uint32_t i = 0; i < CHUNK; i++) {
		en[i].index = set->nchunk * CHUNK + i;
		pv_list_init(&en[i].on_ready);
		pv_list_add(&set->unused, &en[i].on_ready);
	}
	chunk[set->nchunk++] = en;
	return true;
}

static struct pv_entry *entry_get(struct pyvma_epoll *set)
{
	struct pv_entry *en;

	if (pv_list_empty(&set->unused) && !grow(set))
		return NULL;
	en = pv_list_entry(set->unused.next, struct pv_entry, on_ready);
	pv_list_del(&en->on_ready);
	*en = (struct pv_entry){ .set = set, .index = en->index, .gen = en->gen + 1, .key = -1, .kfd = -1, .used = true };
	pv_list_init(&en->on_sock);
	pv_list_init(&en->on_ready);
	return en;
}

static bool by_fd_room(struct pyvma_epoll *set, int fd)
{
	uint32_t want = PV_MAX((uint32_t)fd + 1, PV_MAX(2 * set->nby_fd, 64u));
	uint32_t *grown;

	if ((uint32_t)fd < set->nby_fd)
		return true;
	grown = realloc(set->by_fd, want * sizeof(*grown));
	if (!grown)
		return false;
	for (uint32_t i = set->nby_fd; i < want; i++)
		grown[i] = 0;
	set->by_fd = grown;
	set->nby_fd = want;
	return true;
}

static struct pv_entry *find_fd(const struct pyvma_epoll *set, int fd)
{
	return fd >= 0 && (uint32_t)fd < set->nby_fd && set->by_fd[fd] ? entry_at(set, set->by_fd[fd] - 1) : NULL;
}

static struct pv_entry *find_sock(const struct pyvma_epoll *set, struct pv_sock *so)
{
	pv_list_for_each(it, &so->entries) {
		struct pv_entry *en = pv_list_entry(it, struct pv_entry, on_sock);

		if (en->set == set && en->key < 0)
			return en;
	}
	return NULL;
}

/* ---- what is ready ----------------------------------------------------------------------------------------------------- */

static bool bell_due(const struct pyvma_epoll *set)
{
	return !set->rung && (set->exported || set->sleepers || set->armed);
}

void pv_epoll_ring_bell(struct pyvma_epoll *set)
{
	uint64_t one = 1;

	if (bell_due(set))
		set->rung = write(set->bell, &one, sizeof(one)) == sizeof(one);
}

static void hush_bell(struct pyvma_epoll *set)
{
	uint64_t count;

	if (set->rung && read(set->bell, &count, sizeof(count)) == sizeof(count))
		set->rung = false;
}

void pv_epoll_alarm(struct pyvma_epoll *set)
{
	pv_list_for_each(it, &set->watch.waiters)
		pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
	pv_epoll_ring_bell(set);
}

/* What it says by itself of what is asked for; 0: nothing. */
pv_inline uint32_t sock_bits(struct pv_entry *en)
{
	uint32_t events = en->events & ~FLAGS, bits;

	if (pv_likely(pv_sock_mode(en->so) == PV_SOCK_STREAM && en->so->tc))
		bits = pv_stream_bits(en->so, events);
	else
		bits = pv_sock_revents(en->so, events, false);
	return bits & (events | ALWAYS);
}

/* 0: it says nothing. */
static uint32_t entry_bits(struct pv_entry *en)
{
	uint32_t bits = en->kernel_bits & (en->events | ALWAYS) & ~FLAGS;

	return en->so && (pv_sock_is_ours(en->so) || en->so->dead) ? bits | sock_bits(en) : bits;
}

static bool tell(struct pv_entry *en, struct pyvma_event *out)
{
	uint32_t bits = en->spent ? 0 : entry_bits(en);

	/* What was seen here a receive that does not wait must find. */
	if (en->kernel_bits && en->so)
		en->so->dg->kernel_seen_ns = 0;
	if (en->kernel_bits & EPOLLERR && en->so)
		en->so->dg->error_seen_ns = 0;
	en->kernel_bits = 0;
	pv_list_del(&en->on_ready);
	if (!bits)
		return false;
	*out = (struct pyvma_event){ .events = bits, .data = en->data };
	if (en->events & EPOLLONESHOT) {
		en->spent = true;
		if (en->so && pv_sock_is_ours(en->so))
			pv_entry_drop(en);
	} else if (!(en->events & EPOLLET) && en->so && pv_sock_is_ours(en->so)) {
		pv_list_add(&en->set->ready, &en->on_ready); /* until it says nothing */
	}
	return true;
}

/* The same of the only one there is, which keeps its place until it says nothing. */
pv_inline int tell_only(struct pv_entry *en, struct pyvma_event *out)
{
	uint32_t bits;

	/* A spent one has EPOLLONESHOT. */
	if (pv_unlikely(en->kernel_bits || en->events & EPOLLONESHOT || !pv_sock_is_ours(en->so)))
		return tell(en, out);
	bits = sock_bits(en);
	if (!bits || en->events & EPOLLET)
		pv_list_del(&en->on_ready);
	if (pv_unlikely(!bits))
		return 0;
	*out = (struct pyvma_event){ .events = bits, .data = en->data };
	return 1;
}

/* For every entry of the kernel's set, the rings and the bell: in pieces it would tell some twice. */
static bool told_room(struct pyvma_epoll *set)
{
	uint32_t need = set->nkernel + set->nring + 1;
	struct epoll_event *grown;

	if (need <= set->ntold)
		return true;
	grown = realloc(set->told, 2 * (need + 8) * sizeof(*grown));
	if (!grown)
		return set->ntold > 0;
	set->told = grown;
	set->ntold = 2 * (need + 8);
	return true;
}

/* The bell, a ring of an event loop, or a thread's own. */
static bool is_inner(const struct epoll_event *ev)
{
	return ev->data.u64 == BELL || ev->data.u64 == PV_EPOLL_RING;
}

static bool is_told(const struct pyvma_epoll *set, int n, uint64_t data)
{
	for (int i = 0; i < n; i++)
		if (set->told[i].data.u64 == data)
			return true;
	return false;
}

/*
 * What the kernel's set has to say, `n` events and those of the bell and the rings: in their places the kernel is asked for more. What was
 * told and is still so stands behind the rest there, so the first that comes again ends it. How many there are in `told`.
 */
static int ask_kernel(struct pyvma_epoll *set, int n)
{
	int have = 0, room = (int)set->ntold, want = PV_MIN(n, room), more;

	do {
		int inner = 0, before = have;

		more = epoll_wait(set->kep, &set->told[have], want, 0);
		while (have < before + more && !is_told(set, before, set->told[have].data.u64))
			inner += is_inner(&set->told[have++]);
		want = have == before + want ? PV_MIN(inner, room - have) : 0;
	} while (want > 0);
	return have;
}

int pv_epoll_take(struct pyvma_epoll *set, const struct epoll_event *ev, int n, struct pyvma_event *out)
{
	int got = 0;

	for (int i = 0; i < n; i++) {
		uint32_t index = (uint32_t)ev[i].data.u64;
		struct pv_entry *en;

		if (is_inner(&ev[i]))
			continue;
		/* Somebody added it by the fd that this set has shown. */
		if (!(ev[i].data.u64 >> 32)) {
			out[got++] = (struct pyvma_event){ .events = ev[i].events, .data = ev[i].data.u64 };
			continue;
		}
		if (index >= set->nchunk * CHUNK)
			continue;
		en = entry_at(set, index);
		if (!en->used || en->gen != ev[i].data.u64 >> 32)
			continue;
		en->kernel_bits = ev[i].events;
		if (en->so && pv_sock_is_ours(en->so))
			pv_entry_ready(en);
		else
			got += tell(en, &out[got]);
	}
	set->st->events_kernel += (uint32_t)got;
	return got;
}

/* Asks the kernel's set, without waiting; entries of the kernel's alone are told at once. How many events went to `out`. */
static int look_kernel(struct pyvma_epoll *set, struct pyvma_event *out, int n)
{
	set->turns = 0;
	set->looked_ns = pv_engine.stack ? pv_udp_now(pv_engine.udp) : 0;
	return told_room(set) ? pv_epoll_take(set, set->told, ask_kernel(set, n), out) : 0;
}

/* Each entry once: those that stay ready go behind the ones that were there. */
static pv_noinline int collect_several(struct pyvma_epoll *set, struct pyvma_event *out, int n)
{
	struct pv_list todo = set->ready;
	int got = 0;

	todo.next->prev = todo.prev->next = &todo;
	pv_list_init(&set->ready);
	while (got < n && !pv_list_empty(&todo))
		got += tell(pv_list_entry(todo.next, struct pv_entry, on_ready), &out[got]);
	/* What did not fit is first next time. */
	while (!pv_list_empty(&todo)) {
		struct pv_list *last = todo.prev;

		pv_list_del(last);
		pv_list_add(set->ready.next, last);
	}
	return got;
}

pv_inline int collect_ready(struct pyvma_epoll *set, struct pyvma_event *out, int n)
{
	struct pv_list *first = set->ready.next;

	if (pv_unlikely(first != set->ready.prev))
		return collect_several(set, out, n);
	return first == &set->ready ? 0 : tell_only(pv_list_entry(first, struct pv_entry, on_ready), out);
}

/* So many turns may take a program that does something at each of them long. */
static bool kernel_due(struct pyvma_epoll *set)
{
	return ++set->turns >= pv_engine.kernel_ratio ||
	       (pv_engine.stack && pv_udp_now(pv_engine.udp) - set->looked_ns >= KERNEL_LOOK_NS);
}

static pv_noinline int collect_both(struct pyvma_epoll *set, struct pyvma_event *out, int n, bool look)
{
	/* The kernel's went first, and left no room the last time. */
	int ours = set->passed_over ? collect_ready(set, out, n) : 0, got = ours;

	set->passed_over = false;
	if (look && got < n) {
		got += look_kernel(set, out + got, n - got);
		set->passed_over = !ours && got == n && !pv_list_empty(&set->ready);
	}
	if (!ours && got < n) {
		ours = collect_ready(set, out + got, n - got);
		got += ours;
	}
	set->st->events_ours += (uint32_t)ours;
	if (pv_list_empty(&set->ready))
		hush_bell(set);
	return got;
}

int pv_epoll_collect(struct pyvma_epoll *set, struct pyvma_event *out, int n, bool kernel)
{
	bool look = pv_epoll_has_kernel(set) && (kernel || kernel_due(set));
	int got;

	if (pv_unlikely(look || set->passed_over || set->rung))
		return collect_both(set, out, n, look);
	got = collect_ready(set, out, n);
	set->st->events_ours += (uint32_t)got;
	return got;
}

/* ---- sockets that change ----------------------------------------------------------------------------------------------- */

void pv_epoll_moved(struct pv_sock *so)
{
	pv_list_for_each(it, &so->entries) {
		struct pv_entry *en = pv_list_entry(it, struct pv_entry, on_sock);

		pv_entry_sync(en);
		pv_entry_ready(en);
	}
	if (!pv_list_empty(&so->entries))
		pv_ready_events(so, pv_sock_is_ours(so));
}

static void entry_leave(struct pv_entry *en)
{
	struct pv_sock *so = en->so;

	if (!so)
		return;
	pv_list_del(&en->on_sock);
	en->set->nsock--;
	en->so = NULL;
	if (!pv_list_empty(&so->entries))
		return;
	pv_ready_events(so, false);
	/* Sets of poll(2) and select(2) come and go with what is asked for. */
	if (pv_unlikely(pv_prefork_several) && en->set->st->kind == PYVMA_WAITS_EPOLL)
		pv_prefork_watched(so, false);
}

static void entry_put(struct pv_entry *en)
{
	struct pyvma_epoll *set = en->set;

	pv_entry_drop(en);
	entry_leave(en);
	pv_list_del(&en->on_ready);
	if (en->key >= 0)
		set->by_fd[en->key] = 0;
	en->used = false;
	pv_list_add(&set->unused, &en->on_ready);
}

/* The kernel forgets an fd that is closed by itself. One that is not closed, since the socket was given back to it, stays watched. */
void pv_epoll_gone(struct pv_sock *so)
{
	pv_lock_get(&pv_engine.lock);
	pv_list_for_each_safe(it, tmp, &so->entries) {
		struct pv_entry *en = pv_list_entry(it, struct pv_entry, on_sock);

		if (en->key >= 0 && en->kfd == en->key)
			entry_leave(en);
		else
			entry_put(en);
	}
	pv_lock_put(&pv_engine.lock);
}

/* ---- open, close, ctl -------------------------------------------------------------------------------------------------- */

/* The memory is for the next set: a call that comes late finds a closed or a new one. */
static void set_free(struct pyvma_epoll *set)
{
	if (set->kep >= 0)
		close(set->kep);
	if (set->bell >= 0)
		close(set->bell);
	for (uint32_t i = 0; i < set->nchunk; i++)
		free(set->chunk[i]);
	free(set->chunk);
	free(set->by_fd);
	free(set->told);
	pv_stats_hide(NULL, set->st->shown);
	pv_lock_get(&pv_engine.lock);
	set->next = free_sets;
	free_sets = set;
	pv_lock_put(&pv_engine.lock);
}

/* The lock is held before and not after. */
void pv_epoll_put_closed(struct pyvma_epoll *set)
{
	bool last = --set->users == 0;

	pv_lock_put(&pv_engine.lock);
	if (last)
		set_free(set);
}

static struct pyvma_epoll *set_get(void)
{
	struct pyvma_epoll *set;

	pv_lock_get(&pv_engine.lock);
	set = free_sets;
	if (set)
		free_sets = set->next;
	pv_lock_put(&pv_engine.lock);
	if (!set)
		set = calloc(1, sizeof(*set));
	if (set && !set->st)
		set->st = pv_stats_alloc(NULL, sizeof(*set->st));
	if (set && !set->st) {
		free(set);
		set = NULL;
	}
	return set;
}

int pyvma_epoll_open(pyvma_epoll **out)
{
	struct epoll_event ev = { .events = EPOLLIN, .data = { .u64 = BELL } };
	struct pyvma_epoll *set;
	const struct pv_config *cfg;
	int rc = pv_config_load(&cfg), kep, bell;

	*out = NULL;
	/* Whatever is added may be the kernel's alone: then there is no engine in it. */
	if (!rc && !cfg->decide_late)
		rc = pv_engine_start();
	if (rc)
		return rc;
	pv_lock_setup();
	set = set_get();
	if (!set)
		return -ENOMEM;
	kep = pv_ownfd(epoll_create1(EPOLL_CLOEXEC));
	bell = pv_ownfd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	rc = kep < 0 || bell < 0 || epoll_ctl(kep, EPOLL_CTL_ADD, bell, &ev) < 0 ? -errno : 0;
	pv_lock_get(&pv_engine.lock);
	memset(set->st, 0, sizeof(*set->st));
	set->st->fd = kep;
	set->st->shown = pv_stats_show(NULL, &pv_epoll_stat_type, set->st);
	*set = (struct pyvma_epoll){ .st = set->st, .pid = getpid(), .kep = kep, .bell = bell, .closed = rc, .users = 1 };
	pv_list_init(&set->watch.waiters);
	pv_list_init(&set->ready);
	pv_list_init(&set->unused);
	pv_epoll_put(set);
	*out = rc ? NULL : set;
	return rc;
}

void pyvma_epoll_waits(pyvma_epoll *set, enum pyvma_waits kind)
{
	set->st->kind = (uint8_t)kind;
}

static void send_away(struct pyvma_epoll *set)
{
	uint64_t one = 1;

	set->closed = true;
	pv_list_for_each(it, &set->watch.waiters)
		pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
	if (set->sleepers && write(set->bell, &one, sizeof(one)) < 0)
		set->rung = true;
}

void pyvma_epoll_close(pyvma_epoll *set)
{
	pv_registry_get();
	pv_lock_get(&pv_engine.lock);
	set->users++;
	set->closed = true;
	for (uint32_t i = 0; i < set->nchunk * CHUNK; i++)
		if (entry_at(set, i)->used)
			entry_put(entry_at(set, i));
	if (set->exported)
		pv_ready_poll(false);
	pv_loop_close(set);
	send_away(set);
	pv_epoll_put(set);
	pv_registry_put();
}

/* The kernel's set as epoll_ctl would have made it. */
static void to_kernel(struct pv_entry *en)
{
	int fd = en->key >= 0 || !en->so ? en->key : pv_sock_kfd(en->so);
	struct epoll_event ev = { .events = en->spent ? EPOLLONESHOT : en->events, .data = { .u64 = en->data } };

	pv_entry_drop(en);
	if (fd >= 0)
		(void)epoll_ctl(en->set->kep, EPOLL_CTL_ADD, fd, &ev);
}

int pyvma_epoll_retreat(pyvma_epoll *set)
{
	int kep;

	pv_registry_get();
	pv_lock_get(&pv_engine.lock);
	for (uint32_t i = 0; i < set->nchunk * CHUNK; i++)
		if (entry_at(set, i)->used)
			to_kernel(entry_at(set, i));
	set->users++;
	send_away(set);
	pv_registry_put();
	/* The bell wakes them, and would be an event of nobody's afterwards. */
	for (int turn = 0; set->users > 1 && turn < LEAVING_TURNS; turn++) {
		pv_lock_put(&pv_engine.lock);
		sched_yield();
		pv_lock_get(&pv_engine.lock);
	}
	kep = pv_ownfd_not(set->kep);
	(void)epoll_ctl(kep, EPOLL_CTL_DEL, set->bell, NULL);
	set->kep = -1;
	pv_lock_put(&pv_engine.lock);
	pyvma_epoll_close(set);
	pv_lock_get(&pv_engine.lock);
	pv_epoll_put(set);
	return kep;
}

int pyvma_epoll_fileno(pyvma_epoll *set)
{
	pv_lock_get(&pv_engine.lock);
	if (set->closed) {
		pv_lock_put(&pv_engine.lock);
		return -EBADF;
	}
	if (!set->exported) {
		set->exported = true;
		pv_ready_poll(true);
		if (!pv_list_empty(&set->ready))
			pv_epoll_ring_bell(set);
	}
	pv_lock_put(&pv_engine.lock);
	return pyvma_epoll_number(set);
}

int pyvma_epoll_number(const pyvma_epoll *set)
{
	return pv_ownfd_not(set->kep);
}

/* `en` is new or is to be changed. Errors leave it as it was, new ones not there. */
static int entry_set(struct pv_entry *en, const struct pyvma_event *ev)
{
	struct pv_entry before = *en;
	int rc;

	en->events = ev->events;
	en->data = ev->data;
	en->spent = false;
	rc = pv_entry_sync(en);
	if (rc) {
		en->events = before.events;
		en->data = before.data;
		en->spent = before.spent;
		return rc;
	}
	/* What it says by now no event will tell. */
	if (en->so && pv_sock_is_ours(en->so) && entry_bits(en))
		pv_entry_ready(en);
	return 0;
}

static int entry_add(struct pyvma_epoll *set, struct pv_sock *so, int key, const struct pyvma_event *ev)
{
	struct pv_entry *en;
	int rc;

	if (key >= 0 && !by_fd_room(set, key))
		return -ENOMEM;
	en = entry_get(set);
	if (!en)
		return -ENOMEM;
	en->key = key;
	if (key >= 0)
		set->by_fd[key] = en->index + 1;
	if (so) {
		en->so = so;
		if (pv_unlikely(pv_prefork_several) && pv_list_empty(&so->entries))
			pv_prefork_watched(so, true);
		pv_list_add(&so->entries, &en->on_sock);
		set->nsock++;
		pv_ready_events(so, pv_sock_is_ours(so));
	}
	rc = entry_set(en, ev);
	if (rc) {
		entry_put(en);
		return rc;
	}
	set->exclusive |= (ev->events & EPOLLEXCLUSIVE) != 0;
	if (set->sleepers)
		pv_epoll_ring_bell(set); /* they look again, and may have to wait in another way */
	return 0;
}

/* Registry's and engine's locks are held. `so` NULL: `key` is the kernel's. */
static int ctl(struct pyvma_epoll *set, int op, struct pv_sock *so, int key, const struct pyvma_event *ev)
{
	struct pv_entry *en = key >= 0 ? find_fd(set, key) : find_sock(set, so);
	int rc;

	if (set->closed)
		return -EBADF;
	/* The number may lead to another file by now: what was added by it is gone. */
	if (en && key >= 0 && en->so != so && !(en->so && !pv_sock_is_ours(en->so))) {
		entry_put(en);
		en = NULL;
	}
	switch (op) {
	case EPOLL_CTL_ADD:
		/* A number of the kernel's that was closed and opened again: the kernel knows better. */
		if (en && !en->so && pv_entry_ctl(en, EPOLL_CTL_MOD, key, en->events) == -ENOENT) {
			entry_put(en);
			en = NULL;
		}
		return en ? -EEXIST : entry_add(set, so, key, ev);
	case EPOLL_CTL_MOD:
		rc = en ? entry_set(en, ev) : -ENOENT;
		if (en && rc == -ENOENT)
			entry_put(en);
		return rc;
	case EPOLL_CTL_DEL:
		if (!en)
			return -ENOENT;
		rc = en->kfd >= 0 && !en->so ? pv_entry_ctl(en, EPOLL_CTL_DEL, en->kfd, 0) : 0;
		/* The number is closed: while another one leads to the file the kernel has it still, and knows it by this number. */
		if (rc == -EBADF)
			return rc;
		if (!rc && !en->so) {
			en->kfd = -1;
			set->nkernel--;
		}
		entry_put(en);
		return rc;
	default:
		return -EINVAL;
	}
}

/* Why a number is not in the set: there is no such file, it is one that nobody can wait for, or it was not added. */
static int not_there(int fd)
{
	int ep, rc = -ENOENT;

	/* First: the scratch set would have its number. */
	if (fcntl(fd, F_GETFD) < 0)
		return -EBADF;
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0)
		return rc;
	if (epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) < 0)
		rc = -errno;
	close(ep);
	return rc;
}

static int check_ctl(int op, const struct pyvma_event *ev)
{
	if (op == EPOLL_CTL_DEL || !ev)
		return op == EPOLL_CTL_DEL ? 0 : -EFAULT;
	if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD)
		return -EINVAL;
	/* Asked for when it is added, and with few other flags (do_epoll_ctl in Linux). */
	return ev->events & EPOLLEXCLUSIVE && (op == EPOLL_CTL_MOD || ev->events & ~EXCLUSIVE_OK) ? -EINVAL : 0;
}

/* A connection that a forked child inherited is watched where it can be used. */
static void claim(struct pv_sock *so)
{
	if (so && so->dead && so->stream)
		(void)pv_sock_lock_failed(NULL, so);
}

int pyvma_epoll_ctl(pyvma_epoll *set, int op, int fd, const struct pyvma_event *ev)
{
	struct pv_sock *so;
	int rc = check_ctl(op, ev), why;

	if (rc == -EINVAL) {
		why = not_there(fd);
		return why == -ENOENT ? rc : why;
	}
	if (rc)
		return rc;
	if (fd < 0)
		return -EBADF;
	if (fd == set->kep)
		return -EINVAL;
	pv_registry_get();
	so = pv_sock_find(fd);
	claim(so);
	pv_lock_get(&pv_engine.lock);
	rc = ctl(set, op, so, fd, ev);
	if (rc == -ENOENT)
		rc = not_there(fd);
	pv_lock_put(&pv_engine.lock);
	pv_registry_put();
	return rc;
}

int pyvma_epoll_ctl_sock(pyvma_epoll *set, int op, pyvma_sock *h, const struct pyvma_event *ev)
{
	struct pv_sock *so;
	int rc = check_ctl(op, ev);

	if (rc)
		return rc;
	pv_registry_get();
	so = pv_handle_sock(h);
	claim(so);
	pv_lock_get(&pv_engine.lock);
	rc = so ? ctl(set, op, so, -1, ev) : -EBADF;
	pv_lock_put(&pv_engine.lock);
	pv_registry_put();
	return rc;
}
