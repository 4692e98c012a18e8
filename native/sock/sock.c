/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles and shared sockets: open, adopt, dup, close, detach.
 *
 * The registry finds a socket by the identity (device, inode) of its open file: a duplicate that the program made behind our back
 * with dup(2) has the same, and an fd number that was closed and reused has not.
 */
#include "sock/sock.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/error.h"
#include "rt/host.h"
#include "rt/log.h"
#include "sock/epoll.h"
#include "sock/handback.h"
#include "sock/kin.h"
#include "sock/lane.h"
#include "sock/prefork.h"
#include "sock/shown.h"
#include "sock/stream.h"

#define POOL_CHUNK 64
#define REGISTRY_BUCKETS 16384
/* Detached fds that each new socket looks after. */
#define SWEEP_MAX 4
/* Whoever closes many streams in a row polls now and then: what their peers answer needs room in the ring. */
#define CLOSES_A_POLL 8
/* When the engine stops: how long to wait for the peers of streams, in all; since the last frame, which is longer than a first timeout;
 * and when there was none, which says that nobody is there. */
#define STOP_MAX_NS (2 * PV_NS_PER_S)
#define STOP_QUIET_NS (300 * PV_NS_PER_MS)
#define STOP_NOBODY_NS (5 * PV_NS_PER_MS)
#define STOP_PACED_NS PV_NS_PER_S

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pyvma_sock *free_handles;
static struct pv_sock *free_socks, *detached, **detached_last = &detached;
static struct pv_list registry[REGISTRY_BUCKETS];
struct pv_list pv_core_socks = { &pv_core_socks, &pv_core_socks }; /* engine lock */

/* ---- memory and registry; the registry lock is held -------------------------------------------------------------------- */

static bool pool_grow(void)
{
	struct pyvma_sock *h = calloc(POOL_CHUNK, sizeof(*h));
	struct pv_sock *so = calloc(POOL_CHUNK, sizeof(*so));

	if (!h || !so) {
		free(h);
		free(so);
		return false;
	}
	for (int i = 0; i < POOL_CHUNK; i++) {
		h[i].next = free_handles;
		free_handles = &h[i];
		so[i].next = free_socks;
		free_socks = &so[i];
	}
	return true;
}

static struct pv_list *bucket(dev_t dev, ino_t ino)
{
	struct pv_list *l = &registry[(ino ^ (ino >> 10) ^ dev) % REGISTRY_BUCKETS];

	if (!l->next)
		pv_list_init(l);
	return l;
}

void pv_registry_get(void)
{
	pthread_mutex_lock(&registry_lock);
}

void pv_registry_put(void)
{
	pthread_mutex_unlock(&registry_lock);
}

int pv_sock_register(struct pv_sock *so, unsigned int which, int fd)
{
	struct pv_sock_id *id = so->id[which];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!id) {
		id = calloc(1, sizeof(*id));
		if (!id)
			return -ENOMEM;
		pv_list_init(&id->node);
		so->id[which] = id;
	}
	id->dev = st.st_dev;
	id->ino = st.st_ino;
	id->so = so;
	pv_list_del(&id->node);
	pv_list_add(bucket(st.st_dev, st.st_ino), &id->node);
	return 0;
}

static void unregister(struct pv_sock *so)
{
	for (size_t i = 0; i < pv_array_size(so->id); i++) {
		if (so->id[i])
			pv_list_del(&so->id[i]->node);
		free(so->id[i]);
		so->id[i] = NULL;
	}
}

struct pv_sock *pv_sock_find(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	pv_list_for_each(it, bucket(st.st_dev, st.st_ino)) {
		struct pv_sock_id *id = pv_list_entry(it, struct pv_sock_id, node);

		if (id->ino == st.st_ino && id->dev == st.st_dev)
			return id->so;
	}
	return NULL;
}

/* The part that streams share stays with the memory once another kind had it. */
static struct pv_dgram *dgram_of(struct pv_sock *so, int type)
{
	static struct pv_dgram shared;

	if (type == SOCK_STREAM)
		so->dg = so->dg ? so->dg : &shared;
	else if (!so->dg || so->dg == &shared)
		so->dg = calloc(1, sizeof(*so->dg));
	return so->dg;
}

static uint64_t serials; /* registry lock */

/* A shared socket for `fd`, with no handle yet; fd < 0: its kernel socket may come later. */
static struct pv_sock *sock_get(int fd, int family, int type, int proto)
{
	struct pv_sock *so = free_socks || pool_grow() ? free_socks : NULL;
	struct pv_dgram *dg = so ? dgram_of(so, type) : NULL;

	if (!dg)
		return NULL;
	free_socks = so->next;
	if (type != SOCK_STREAM)
		memset(dg, 0, sizeof(*dg));
	*so = (struct pv_sock){ .st = so->st,
				.dg = dg,
				.family = (int16_t)family,
				.type = (int16_t)type,
				.proto = (int16_t)proto,
				.exp_fd = -1,
				.sig_fd = -1 };
	so->serial = ++serials;
	so->born = so->kfd_born = pv_kin_number();
	so->stream = type == SOCK_STREAM && (proto == 0 || proto == IPPROTO_TCP);
	so->candidate = (family == AF_INET || family == AF_INET6) &&
			(so->stream || (type == SOCK_DGRAM && (proto == 0 || proto == IPPROTO_UDP)));
	pv_list_init(&so->watch.waiters);
	pv_list_init(&so->on_core);
	pv_list_init(&so->entries);
	atomic_store_explicit(&so->kfd, fd, memory_order_relaxed);
	so->own_kfd = fd < 0;
	so->cloexec = true;
	bool here = so->candidate && (fd < 0 || pv_host_same_netns(&pv_engine, fd));

	atomic_store_explicit(&so->mode, here ? PV_SOCK_UNDECIDED : PV_SOCK_KERNEL, memory_order_relaxed);
	if ((so->candidate && fd >= 0 && pv_sock_register(so, 0, fd)) || pv_shown_open(so)) {
		unregister(so);
		so->next = free_socks;
		free_socks = so;
		return NULL;
	}
	if (so->candidate && !here)
		pv_shown_reason(so, "its network namespace is not the engine's", NULL);
	return so;
}

static void close_stream(struct pv_sock *so)
{
	static uint32_t closes; /* engine lock */

	if (!so->tc)
		return;
	pv_stream_close(so);
	if (++closes % CLOSES_A_POLL == 0)
		(void)pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
}

/* The last reference; the engine's lock is not held. Whoever still waits finds itself off every list and woken. */
static void sock_free(struct pv_sock *so)
{
	if (!pv_list_empty(&so->entries))
		pv_epoll_gone(so);
	if (so->candidate && pv_engine_state() == PV_ENGINE_RUNNING) {
		pv_lock_get(&pv_engine.lock);
		pv_list_for_each_safe(it, tmp, &so->watch.waiters)
			pv_list_del(it);
		pv_ready_close(so);
		pv_core_close(so);
		pv_kin_closing(so);
		if (!so->tc)
			pv_list_del(&so->on_core);
		if (pv_engine.stack) {
			close_stream(so);
			pv_net_kick(pv_engine.net); /* what leaving groups, or a FIN, had to say */
			pv_engine_timers(&pv_engine);
		}
		pv_lock_put(&pv_engine.lock);
	} else if (so->sig_fd >= 0) {
		close(so->sig_fd);
		close(so->exp_fd);
	}
	pv_list_del(&so->on_core);
	int kfd = pv_kfd_end(so);

	if (so->own_kfd && kfd >= 0)
		close(kfd); /* else it is a handle's fd, or was a detached one */
	pv_shown_close(so);
	pv_lane_free(so);
	unregister(so);
	so->next = free_socks;
	free_socks = so;
}

static struct pyvma_sock *handle_get(struct pv_sock *so, int fd)
{
	struct pyvma_sock *h = free_handles || pool_grow() ? free_handles : NULL;

	if (!h)
		return NULL;
	free_handles = h->next;
	h->exported = false;
	so->refs++;
	so->st->fd = fd;
	atomic_store_explicit(&h->fd, fd, memory_order_relaxed);
	atomic_store_explicit(&h->so, so, memory_order_release);
	return h;
}

/* The handle dies: calls that wait in it find out. */
static void handle_put(struct pyvma_sock *h, struct pv_sock *so)
{
	bool engine = so->candidate && pv_engine_state() == PV_ENGINE_RUNNING;

	if (engine)
		pv_lock_get(&pv_engine.lock);
	atomic_store_explicit(&h->so, NULL, memory_order_release);
	h->gen++;
	if (engine) {
		pv_list_for_each(it, &so->watch.waiters)
			pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
		pv_lock_put(&pv_engine.lock);
	}
	h->next = free_handles;
	free_handles = h;
}

/* ---- the engine's stop and fork ---------------------------------------------------------------------------------------- */

/* A connection, or one that was, is nobody else's; a name and a listener are the kernel's as well. */
bool pv_sock_loses(const struct pv_sock *so)
{
	return !so->host || (so->tc && pv_tcp_state(so->tc) != PV_TCP_LISTEN && pv_sock_mode(so) == PV_SOCK_STREAM);
}

static uint32_t turn(struct pv_engine *e)
{
	return pv_stack_poll(e->stack, pv_clock_now(&e->clock), e->rx_budget);
}

/* Connections whose FIN is not acknowledged yet. */
static uint32_t fins_out(const struct pv_engine *e)
{
	return pv_tcp_count(e->tcp, PV_TCP_FIN_WAIT_1) + pv_tcp_count(e->tcp, PV_TCP_CLOSING) +
	       pv_tcp_count(e->tcp, PV_TCP_LAST_ACK);
}

/* There is nobody to send again later what gets lost now: the peers get a moment to acknowledge, longer only if they do. `heard`: they
 * have begun to. */
static void see_off(struct pv_engine *e, bool heard)
{
	int64_t start = pv_clock_now(&e->clock), last = start, now = start;

	while (fins_out(e) && now - last < (heard ? STOP_QUIET_NS : STOP_NOBODY_NS) && now - start < STOP_MAX_NS) {
		if (turn(e)) {
			heard = true;
			last = now;
		}
		now = pv_clock_now(&e->clock);
	}
	/* What waits for the rate that its sender was held to. The kernel would send all of it, however long that takes. */
	while (pv_net_paced(e->net) && now - start < STOP_PACED_NS) {
		if (!turn(e))
			(void)nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		now = pv_clock_now(&e->clock);
	}
}

static _Atomic(bool) retreats; /* in pv_sock_stop_kindly */

/* Whether anything came meanwhile. */
static bool lose_all(bool touch)
{
	uint32_t n = 0, heard = 0;

	pv_list_for_each_safe(it, tmp, &pv_core_socks) {
		struct pv_sock *so = pv_list_entry(it, struct pv_sock, on_core);

		so->dead = touch ? !retreats || pv_sock_loses(so) : so->loses;
		pv_ready_stop(so);
		if (touch) {
			pv_core_close(so);
			if (so->tc && ++n % CLOSES_A_POLL == 0)
				heard |= turn(&pv_engine);
			pv_stream_close(so);
			pv_list_for_each(w, &so->watch.waiters)
				pv_engine_wake(pv_list_entry(w, struct pv_waiter, on_watch));
			pv_epoll_event(so, PV_EV_ERR | PV_EV_HUP);
			if (!so->dead)
				pv_leg_left(so, "the engine was stopped");
		} else {
			so->u = NULL;
			so->tc = NULL;
			pv_lane_forget(so);
			pv_list_init(&so->watch.waiters);
			pv_list_del(&so->on_core);
			if (!so->dead)
				pv_leg_left(so, "a forked child has kernel sockets only");
		}
	}
	return heard != 0;
}

static void on_stop(void)
{
	bool heard;

	pv_kin_exit();
	pv_handback_unsent();
	heard = lose_all(true);

	pv_net_kick(pv_engine.net); /* what streams had to say at their end */
	see_off(&pv_engine, heard);
	pv_report(true);
	pv_stream_stopped();
}

void pv_sock_stop_kindly(void)
{
	/* Another thread's waits in there, until nothing is left to do. */
	bool first = !atomic_exchange(&retreats, true);

	pv_engine_retire();
	if (first)
		atomic_store(&retreats, false);
}

/* The child cannot see the stack's objects any more. */
static void on_forking(void)
{
	bool some = false;

	pv_list_for_each(it, &pv_core_socks) {
		struct pv_sock *so = pv_list_entry(it, struct pv_sock, on_core);

		so->loses = pv_sock_loses(so);
		some |= so->loses && so->tc;
	}
	pv_kin_forking(some);
}

static void on_forked(void)
{
	bool some = !pv_list_empty(&pv_core_socks);

	(void)lose_all(false);
	pv_kin_forked();
	pv_stream_holds_forked();
	pv_loops_forked();
	pv_prefork_forked();
	if (some)
		pv_log(PV_LOG_INFO, "fork: rings stay with the parent, this process has kernel sockets only");
}

static void on_fork_unlock(void)
{
	pv_prefork_own();
	pv_registry_put();
}

static void on_started(void)
{
	pv_report(false);
}

static void on_ifaces(void)
{
	pv_list_for_each(it, &pv_core_socks) {
		struct pv_sock *so = pv_list_entry(it, struct pv_sock, on_core);

		pv_opt_ifaces_changed(so);
		pv_lane_update(so);
	}
}

/* When the library is loaded: fork must be safe from the first socket on. */
__attribute__((constructor)) static void set_hooks(void)
{
	static const struct pv_engine_hooks hooks = {
		.stop = on_stop,
		.forking = on_forking,
		.parent = pv_kin_parent,
		.forked = on_forked,
		.fork_lock = pv_registry_get,
		.fork_unlock = on_fork_unlock,
		.extra = pv_ready_extra,
		.ifaces = on_ifaces,
		.lane = pv_lane_of_sender,
		.started = on_started,
		.port_free = pv_stream_port_free,
		.port_idle = pv_stream_port_idle,
	};

	pv_engine_set_hooks(&hooks);
}

int pv_sock_lock_failed(const struct pyvma_sock *h, struct pv_sock *so)
{
	bool its = !h || pv_handle_sock(h) == so, forked = pv_engine_state() == PV_ENGINE_FORKED;
	int rc;

	if (h)
		pv_lock_put(&pv_engine.lock);
	if (its && so->dead && forked && so->stream) {
		rc = pv_kin_claim(so);
		return rc ? rc : PV_HANDED;
	}
	if (its && so->dead)
		return forked ? pv_error(-ENOTCONN, "an offloaded socket does not survive fork: it is the parent's")
			      : pv_error(-ENETDOWN, "the engine was stopped");
	return its && so->stream && pv_sock_mode(so) == PV_SOCK_KERNEL ? PV_HANDED : -EBADF;
}

static void detached_add(struct pv_sock *so)
{
	so->next = NULL;
	*detached_last = so;
	detached_last = &so->next;
}

/* A detached fd that its owner closed by itself gives its socket back; whoever opens the next ones finds out, a few at a time. Those that
 * were looked at go behind the others. */
static void sweep_detached(void)
{
	for (int i = 0; i < SWEEP_MAX && detached; i++) {
		struct pv_sock *so = detached;

		detached = so->next;
		if (!detached)
			detached_last = &detached;
		if (pv_sock_find(so->detached_fd) == so) {
			detached_add(so);
			continue;
		}
		so->refs = 0;
		sock_free(so);
	}
}

static void detached_remove(struct pv_sock *so)
{
	struct pv_sock **at = &detached;

	while (*at != so)
		at = &(*at)->next;
	*at = so->next;
	if (!so->next)
		detached_last = at;
	so->detached = false;
	so->refs--;
}

/* ---- handles ----------------------------------------------------------------------------------------------------------- */

static int handle_new(int fd, int family, int type, int proto, bool nonblock, pyvma_sock **out)
{
	pthread_mutex_lock(&registry_lock);
	sweep_detached();
	struct pv_sock *so = sock_get(fd, family, type, proto);

	*out = so ? handle_get(so, fd) : NULL;
	if (so)
		atomic_store_explicit(&so->nonblock, nonblock, memory_order_relaxed);
	if (so && !*out) {
		so->next = free_socks;
		unregister(so);
		free_socks = so;
	}
	pthread_mutex_unlock(&registry_lock);
	return *out ? 0 : -ENOMEM;
}

int pv_handle_stream(int fd, int family, int proto, int flags, pyvma_sock **out)
{
	int rc = handle_new(fd, family, SOCK_STREAM, proto, flags & SOCK_NONBLOCK, out);

	if (!rc)
		pv_handle_sock(*out)->cloexec = flags & SOCK_CLOEXEC;
	return rc;
}

/* A socket that may be offloaded starts the engine, so that what is wrong with its settings is said where a program looks. */
static int start_for(int family, int type)
{
	return (family == AF_INET || family == AF_INET6) && (type == SOCK_DGRAM || type == SOCK_STREAM) ? pv_engine_start() : 0;
}

int pyvma_sock_open(int family, int type, int proto, pyvma_sock **out)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), rc = start_for(family, kind), fd;

	if (rc)
		return rc;
	if (pv_kfd_may_be_late(family, kind, proto))
		return pv_handle_stream(-1, family, proto, type, out);
	fd = socket(family, type, proto);
	if (fd < 0)
		return -errno;
	rc = handle_new(fd, family, kind, proto, type & SOCK_NONBLOCK, out);
	if (rc)
		close(fd);
	else
		atomic_store_explicit(&pv_handle_sock(*out)->untouched, kind == SOCK_STREAM, memory_order_relaxed);
	return rc;
}

static int sock_int(int fd, int name, int *out)
{
	socklen_t len = sizeof(*out);

	return getsockopt(fd, SOL_SOCKET, name, out, &len) < 0 ? -errno : 0;
}

/* Has the socket a local name already? Then the kernel decided about it. It may be an address alone (IP_BIND_ADDRESS_NO_PORT). */
static bool has_name(const struct pv_sock *so, int fd)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	struct pv_endpoint name;

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return false;
	/* The port is at the same place for both families. */
	return ((const struct sockaddr_in *)(const void *)&ss)->sin_port ||
	       (pv_addr_parse(so, (struct sockaddr *)&ss, len, &name) && !pv_addr_is_any(&name.addr));
}

int pyvma_sock_adopt(int fd, pyvma_sock **out)
{
	int family, type, proto, rc;

	pthread_mutex_lock(&registry_lock);
	struct pv_sock *so = pv_sock_find(fd);

	if (so) {
		*out = handle_get(so, fd);
		if (*out && so->detached)
			detached_remove(so);
	}
	pthread_mutex_unlock(&registry_lock);
	if (so)
		return *out ? 0 : -ENOMEM;
	rc = sock_int(fd, SO_DOMAIN, &family);
	if (!rc)
		rc = sock_int(fd, SO_TYPE, &type);
	if (!rc)
		rc = sock_int(fd, SO_PROTOCOL, &proto);
	if (!rc)
		rc = start_for(family, type);
	int fl = rc ? 0 : fcntl(fd, F_GETFL);

	rc = rc ? rc : handle_new(fd, family, type, proto, fl >= 0 && (fl & O_NONBLOCK), out);
	so = rc ? NULL : pv_handle_sock(*out);
	if (so && so->candidate && has_name(so, fd) && pv_engine_state() == PV_ENGINE_RUNNING && pv_engine.cfg->decide_late) {
		pv_late_decide(*out, so);
	} else if (so && so->candidate && so->stream && has_name(so, fd)) {
		pv_shown_reason(so, "bound or connected by the kernel before", NULL);
		atomic_store_explicit(&so->mode, PV_SOCK_KERNEL, memory_order_release);
		pv_shown_update(so);
	}
	return rc;
}

int pyvma_is_sock(int fd)
{
	int rc;

	pthread_mutex_lock(&registry_lock);
	rc = pv_sock_find(fd) != NULL;
	pthread_mutex_unlock(&registry_lock);
	return rc;
}

/* While the registry lock is held a handle that has a socket has its fd, if any, open too: it is closed after the handle is gone. */
int pyvma_sock_dup(pyvma_sock *h, pyvma_sock **out)
{
	int rc = -EBADF, fd = -1;

	*out = NULL;
	pthread_mutex_lock(&registry_lock);
	struct pv_sock *so = pv_handle_sock(h);

	if (so) {
		fd = pv_handle_fd(h);
		if (fd >= 0)
			fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		rc = fd < 0 && pv_handle_fd(h) >= 0 ? -errno : 0;
	}
	if (!rc)
		*out = handle_get(so, fd);
	if (*out)
		(*out)->exported = h->exported;
	pthread_mutex_unlock(&registry_lock);
	if (rc || *out)
		return rc;
	if (fd >= 0)
		close(fd);
	return -ENOMEM;
}

static void with_engine(struct pv_sock *so, void (*change)(struct pv_sock *))
{
	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return;
	pv_lock_get(&pv_engine.lock);
	change(so);
	pv_lock_put(&pv_engine.lock);
}

/* The kernel socket must outlive the fd of a handle while others share it. False: there is no other number for it, it keeps this one. */
static bool keep_kernel_socket(struct pv_sock *so, int fd)
{
	int own;

	if (so->refs == 1 || so->own_kfd || pv_sock_kfd_made(so) != fd)
		return true;
	with_engine(so, pv_ready_unwatch);
	own = pv_ownfd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	so->own_kfd = true;
	if (own >= 0) {
		atomic_store_explicit(&so->kfd, own, memory_order_relaxed);
		with_engine(so, pv_epoll_moved); /* sets watch it by that, before somebody else has the old one */
	}
	return own >= 0;
}

static bool is_last(const struct pv_sock *so)
{
	pthread_mutex_lock(&registry_lock);
	bool last = so->refs == 1;

	pthread_mutex_unlock(&registry_lock);
	return last;
}

int pyvma_sock_close(pyvma_sock *h)
{
	struct pv_sock *so = pv_handle_sock(h);

	if (so && pv_sock_mode(so) == PV_SOCK_STREAM && is_last(so))
		pv_stream_linger(h, so);
	pthread_mutex_lock(&registry_lock);
	so = pv_handle_sock(h);
	int fd = pv_handle_fd(h);
	bool give_up = so && keep_kernel_socket(so, fd) && fd >= 0;

	if (so) {
		handle_put(h, so);
		if (--so->refs == 0)
			sock_free(so);
	}
	pthread_mutex_unlock(&registry_lock);
	if (!so)
		return -EBADF;
	return give_up && close(fd) < 0 ? -errno : 0;
}

/* The handle's fd, which is made if there is none: the kernel socket itself where nobody else needs a number for it. The registry lock is
 * held. An fd or -errno. */
static int fd_locked(pyvma_sock *h, struct pv_sock *so)
{
	int fd = pv_handle_fd(h), kfd, rc = 0;

	if (fd >= 0)
		return fd;
	if (so->dead && so->stream && pv_engine_state() == PV_ENGINE_FORKED)
		(void)pv_kin_claim(so);
	kfd = pv_sock_kfd(so);
	if (kfd < 0)
		return -errno;
	if (so->candidate && !so->id[0])
		rc = pv_sock_register(so, 0, kfd);
	if (rc)
		return rc;
	if (so->refs == 1 && so->own_kfd && so->sig_fd < 0) {
		so->own_kfd = false;
		fd = pv_ownfd_not(kfd);
	} else {
		fd = fcntl(kfd, so->cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
		if (fd < 0)
			return -errno;
	}
	atomic_store_explicit(&h->fd, fd, memory_order_relaxed);
	so->st->fd = fd;
	return fd;
}

/* The registry lock is held. */
static int detach_locked(pyvma_sock *h)
{
	struct pv_sock *so = pv_handle_sock(h);
	int fd = so ? fd_locked(h, so) : -EBADF;

	if (fd < 0)
		return fd;
	if (!keep_kernel_socket(so, fd)) {
		so->own_kfd = false;
		return -EMFILE;
	}
	handle_put(h, so);
	/* An offloaded socket lives on without a handle; a kernel socket is in the fd itself. */
	if (so->refs == 1 && pv_sock_is_ours(so) && !so->detached) {
		so->detached = true;
		so->detached_fd = fd;
		detached_add(so);
	} else if (--so->refs == 0) {
		if (!so->own_kfd) {
			with_engine(so, pv_ready_unwatch);
			atomic_store_explicit(&so->kfd, -1, memory_order_relaxed);
		}
		sock_free(so);
	}
	return fd;
}

int pyvma_sock_detach(pyvma_sock *h)
{
	pthread_mutex_lock(&registry_lock);
	int rc = detach_locked(h);

	pthread_mutex_unlock(&registry_lock);
	return rc;
}

int pyvma_sock_fd(pyvma_sock *h)
{
	int fd = pv_handle_fd(h);

	struct pv_sock *so = pv_handle_sock(h);

	if (so)
		atomic_store_explicit(&so->untouched, false, memory_order_relaxed);
	if (fd >= 0)
		return fd;
	pthread_mutex_lock(&registry_lock);
	so = pv_handle_sock(h);
	fd = so ? fd_locked(h, so) : -EBADF;
	pthread_mutex_unlock(&registry_lock);
	return fd;
}
