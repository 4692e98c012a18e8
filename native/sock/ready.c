/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Readiness for stock select, poll, epoll and asyncio.
 *
 * Until pyvma_sock_fileno asks for it, the fd of an offloaded socket, if it has one, is its kernel socket and nothing is spent on
 * readiness. From then on the fd is one end of a pair of local datagram sockets (dup3 over the same number, if there was one; the kernel
 * socket lives on under a number of our own): an empty datagram lies in it exactly while the socket is readable, so the fd polls readable
 * exactly then. A new arrival takes it out and puts it in again, which is an edge for EPOLLET.
 *
 * The fd of a stream polls writable exactly while the stream has room: its send buffer shrinks below what lies in it, and grows again.
 * A UDP socket's does unless it is held to a rate: one that cannot send is one whose ring is full, for microseconds.
 *
 * No data goes by the fd. It is shut for sending, so write(2) and sendfile(2) answer EPIPE; read(2) finds an end, no data of anybody's.
 *
 * Where the socket has a kernel leg, that one is in an epoll set which the progress thread watches, one shot at a time. It does so, too,
 * for calls that wait on sockets without an exported fd: each fd that they sleep on themselves would have them awake later.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/wait.h"
#include "sock/epoll.h"
#include "sock/kernel.h"
#include "sock/kin.h"
#include "sock/prefork.h"
#include "sock/stamp.h"
#include "sock/stream.h"

/* ---- what an exported fd shows ----------------------------------------------------------------------------------------- */

static void show(struct pv_sock *so, bool readable)
{
	char byte;

	if (readable == so->shown)
		return;
	if (readable)
		so->shown = send(so->sig_fd, NULL, 0, MSG_DONTWAIT | MSG_NOSIGNAL) == 0;
	else if (recv(so->exp_fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno == EAGAIN)
		so->shown = false;
}

/*
 * A local socket polls writable while a quarter of its send buffer holds what it has sent and nobody took, FILL bytes here. Growing wakes
 * whoever polls.
 */
#define FILL 1500 /* by the memory they take more than a quarter of the smallest buffer, and less than one of ROOM */
#define ROOM 8192 /* doubled by the kernel */

static void block(struct pv_sock *so, bool blocked)
{
	int size = blocked ? 1 : ROOM;

	if (blocked != so->blocked && setsockopt(so->exp_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0)
		so->blocked = blocked;
}

/* Shut both ways the fd shows POLLHUP, for good. So only what was a connection hangs up: another one may be tried again. */
static void hang_up(struct pv_sock *so, uint32_t stream)
{
	enum pv_tcp_state state = pv_tcp_state(so->tc);

	if (state != PV_TCP_CLOSED && state != PV_TCP_LISTEN && state != PV_TCP_SYN_SENT && state != PV_TCP_SYN_RCVD)
		so->opened = true;
	if (so->opened && !so->hung && (stream & PV_EV_HUP) && (stream & PV_EV_RDHUP))
		so->hung = shutdown(so->exp_fd, SHUT_RD) == 0;
}

static bool kernel_readable(const struct pv_sock *so)
{
	struct pollfd p = { .fd = pv_sock_kfd(so), .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

int pv_ready_extra_fd(void)
{
	struct pv_engine *e = &pv_engine;

	if (e->extra_fd < 0) {
		e->extra_fd = pv_ownfd(epoll_create1(EPOLL_CLOEXEC));
		pv_engine_wake(&e->progress);
	}
	return e->extra_fd;
}

/* Watch the kernel's leg until it is readable once. */
static bool watch_kernel(struct pv_sock *so)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT, .data = { .ptr = so } };

	if (epoll_ctl(pv_ready_extra_fd(), so->extra ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, pv_sock_kfd(so), &ev) < 0)
		return false;
	so->extra = true;
	return true;
}

bool pv_ready_leg_watched(struct pv_sock *so)
{
	if (so->leg_busy || so->sig_fd >= 0 || !pv_engine.have_thread)
		return false;
	if (!so->leg_watched)
		so->leg_watched = watch_kernel(so);
	return so->leg_watched;
}

void pv_ready_unwatch(struct pv_sock *so)
{
	if (so->extra)
		epoll_ctl(pv_engine.extra_fd, EPOLL_CTL_DEL, pv_sock_kfd(so), NULL);
	so->extra = so->leg_watched = so->leg_busy = false;
}

/* From now on whoever waits looks for itself: what came is unlikely to be alone. */
static void leg_ready(struct pv_sock *so)
{
	so->leg_watched = false;
	so->leg_busy = true;
	pv_list_for_each(it, &so->watch.waiters)
		pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
}

/*
 * A connection that was handed back (handback.c) while somebody watched its pair: that one shows what the kernel's socket shows from now on.
 * Every change there is an event of the set's; what calls of ours change they look at themselves.
 */
static void show_kernels(struct pv_sock *so)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = { .ptr = so } };
	struct pollfd p = { .fd = pv_sock_kfd(so), .events = POLLIN | POLLOUT | POLLRDHUP };

	if (!so->extra)
		so->extra = epoll_ctl(pv_ready_extra_fd(), EPOLL_CTL_ADD, p.fd, &ev) == 0;
	if (poll(&p, 1, 0) < 0)
		return;
	block(so, !(p.revents & (POLLOUT | POLLERR | POLLHUP)));
	if (!so->hung && (p.revents & POLLHUP) && (p.revents & POLLRDHUP))
		so->hung = shutdown(so->exp_fd, SHUT_RD) == 0;
	show(so, p.revents & (POLLIN | POLLERR | POLLHUP | POLLRDHUP));
}

static bool is_kernels(const struct pv_sock *so)
{
	return so->stream && pv_sock_mode(so) == PV_SOCK_KERNEL;
}

void pv_ready_after(struct pv_sock *so)
{
	pv_lock_get(&pv_engine.lock);
	if (so->sig_fd >= 0 && is_kernels(so) && pv_engine_state() == PV_ENGINE_RUNNING)
		show_kernels(so);
	pv_lock_put(&pv_engine.lock);
}

void pv_ready_refresh(struct pv_sock *so)
{
	uint32_t stream = so->tc ? pv_tcp_ready_bits(so->tc) : 0;
	bool core = (so->u && so->core_leg && pv_udp_readable(so->u)) || (stream & ~(PV_EV_OUT | PV_EV_PRI)) || pv_errq_any(so);

	if (is_kernels(so)) {
		show_kernels(so);
		return;
	}
	if (so->tc) {
		block(so, !(stream & (PV_EV_OUT | PV_EV_ERR | PV_EV_HUP)) && pv_tcp_state(so->tc) != PV_TCP_LISTEN);
		hang_up(so, stream);
	} else if (so->u) {
		block(so, pv_udp_held(so->u));
	}

	if (so->kernel_leg || (!so->u && !so->tc && so->extra)) {
		bool was = so->kernel_ready;

		if (was || !so->extra) {
			so->kernel_ready = kernel_readable(so);
			if (!so->kernel_ready)
				watch_kernel(so);
		}
	} else {
		so->kernel_ready = false;
	}
	show(so, core || so->kernel_ready);
}

/* From the stack, for every event while somebody wants them. */
static void on_event(struct pv_watch *watch, uint32_t bits)
{
	struct pv_sock *so = pv_container_of(watch, struct pv_sock, watch);

	pv_epoll_event(so, bits);
	if (so->sig_fd < 0)
		return;
	if (so->shown && (bits & (PV_EV_IN | PV_EV_ERR)))
		show(so, false);
	pv_ready_refresh(so);
}

static void want_events(struct pv_sock *so, bool on)
{
	if (on == (so->watch.ready != NULL))
		return;
	/* What came before is found by a first look; told again later it would make an exported fd unreadable for a moment. */
	if (on && pv_engine.stack && pv_engine_state() == PV_ENGINE_RUNNING)
		pv_engine_route(&pv_engine);
	so->watch.ready = on ? on_event : NULL;
	pv_engine.interest += on ? 1u : -1u;
}

void pv_ready_events(struct pv_sock *so, bool on)
{
	/* One that the engine's end has left behind hears of nothing any more. */
	want_events(so, (on && !so->dead) || so->sig_fd >= 0);
}

void pv_ready_poll(bool more)
{
	if (!more) {
		pv_engine.exports -= pv_engine.exports > 0;
		return;
	}
	pv_engine.exports++;
	/* It may be standing by, or asleep for a leader's sake. */
	if (pv_engine.have_thread)
		pv_engine_wake(&pv_engine.progress);
}

void pv_ready_stop(struct pv_sock *so)
{
	if (!so->watch.ready)
		return;
	so->watch.ready = NULL;
	pv_engine.interest -= pv_engine.interest > 0;
	if (so->sig_fd >= 0)
		pv_ready_poll(false);
}

void pv_ready_extra(void)
{
	struct epoll_event ev[16];
	int n = epoll_wait(pv_engine.extra_fd, ev, pv_array_size(ev), 0);

	for (int i = 0; i < n; i++) {
		struct pv_sock *so = ev[i].data.ptr;

		if (pv_kin_readable(so) || pv_prefork_readable(so))
			continue;
		if (so->sig_fd < 0) {
			leg_ready(so);
			continue;
		}
		if (is_kernels(so)) {
			show(so, false); /* what comes is an edge */
			show_kernels(so);
			continue;
		}
		so->kernel_ready = true;
		show(so, true);
	}
}

/* ---- fileno ------------------------------------------------------------------------------------------------------------ */

/* What lies in the first end is not to be taken: the second one is never read. */
static int open_pair(int pair[2])
{
	static const char fill[FILL];
	int rc, room = ROOM;

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	if (send(pair[0], fill, sizeof(fill), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 && shutdown(pair[0], SHUT_WR) == 0 &&
	    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0)
		return 0;
	rc = -errno;
	close(pair[0]);
	close(pair[1]);
	return rc;
}

/* Makes the pair and puts the kernel socket under a number of our own. */
static int make_pair(struct pv_sock *so)
{
	int pair[2], rc = open_pair(pair), kfd, one = 1;

	if (rc)
		return rc;
	pv_ready_unwatch(so);
	kfd = so->own_kfd ? pv_sock_kfd_made(so) : pv_ownfd(fcntl(pv_sock_kfd(so), F_DUPFD_CLOEXEC, 0));
	if (kfd < 0 && !so->own_kfd) {
		rc = -errno;
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	if (pv_sock_nonblock(so))
		ioctl(pair[0], FIONBIO, &one);
	so->exp_fd = pv_ownfd(pair[0]);
	so->sig_fd = pv_ownfd(pair[1]);
	so->shown = so->kernel_ready = so->extra = so->blocked = so->opened = so->hung = false;
	if (!so->own_kfd) {
		so->own_kfd = true;
		atomic_store_explicit(&so->kfd, kfd, memory_order_relaxed);
		pv_epoll_moved(so); /* while the old number is still this file's */
	}
	want_events(so, true);
	pv_ready_poll(true);
	return 0;
}

/* In a forked child the number shall lead to the kernel socket again. */
static int unexport_fd(struct pyvma_sock *h, struct pv_sock *so)
{
	int fd = pv_handle_fd(h), flags = fcntl(fd, F_GETFD);

	if (dup3(pv_sock_kfd(so), fd, flags >= 0 && (flags & FD_CLOEXEC) ? O_CLOEXEC : 0) < 0)
		return -errno;
	h->exported = false;
	return 0;
}

/* Both locks are held; `so` is the stack's. */
static int export_fd(struct pyvma_sock *h, struct pv_sock *so)
{
	int fd = pv_handle_fd(h), rc = 0, flags;

	if (so->sig_fd < 0) {
		rc = make_pair(so);
		if (!rc)
			rc = pv_sock_register(so, 1, so->exp_fd);
	}
	if (rc)
		return rc;
	if (fd < 0) {
		fd = fcntl(so->exp_fd, so->cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
		if (fd < 0)
			return -errno;
		atomic_store_explicit(&h->fd, fd, memory_order_relaxed);
		so->st->fd = fd;
	} else {
		flags = fcntl(fd, F_GETFD);
		if (dup3(so->exp_fd, fd, flags >= 0 && (flags & FD_CLOEXEC) ? O_CLOEXEC : 0) < 0)
			return -errno;
	}
	h->exported = true;
	pv_ready_refresh(so);
	return 0;
}

/* An fd, -errno, or 0: it is neither exported nor should be. */
static int fileno_ours(struct pyvma_sock *h, struct pv_sock *so)
{
	int rc = so->stream ? pv_stream_lock(h, so) : pv_sock_lock(h, so);

	if (rc)
		return so->dead || rc == PV_HANDED ? 0 : rc;
	if (!h->exported)
		rc = export_fd(h, so);
	pv_sock_unlock();
	return rc ? rc : pv_handle_fd(h);
}

int pyvma_sock_fileno(pyvma_sock *h)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc = 0;

	if (!so)
		return -EBADF;
	if (pv_sock_is_ours(so)) {
		pv_registry_get();
		rc = pv_handle_sock(h) == so ? fileno_ours(h, so) : -EBADF;
		pv_registry_put();
	}
	if (!rc && h->exported && pv_sock_mode(so) == PV_SOCK_KERNEL && pv_engine_state() == PV_ENGINE_FORKED)
		rc = unexport_fd(h, so);
	return rc ? rc : pyvma_sock_fd(h);
}

/* With the last handle; the lock is held. */
void pv_ready_close(struct pv_sock *so)
{
	pv_ready_unwatch(so);
	if (so->sig_fd < 0)
		return;
	close(so->sig_fd);
	close(so->exp_fd);
	/* An engine that was stopped has let go of it already. */
	pv_ready_stop(so);
	so->sig_fd = so->exp_fd = -1;
}

/* ---- poll on one socket ------------------------------------------------------------------------------------------------ */

int pv_ready_kernel(struct pv_sock *so, int events)
{
	struct pollfd p = { .fd = pv_sock_kfd(so), .events = (short)events };

	/* Room to send is the stack's to tell, where the stack sends. */
	if (so->tx_core)
		p.events &= (short)~(POLLOUT | POLLWRNORM);
	if (poll(&p, 1, 0) <= 0)
		return 0;
	/* What was seen here a receive that does not wait must find, and an error the next send. */
	so->dg->kernel_seen_ns = 0;
	if (p.revents & POLLERR)
		so->dg->error_seen_ns = 0;
	return p.revents;
}

uint32_t pv_sock_revents(struct pv_sock *so, uint32_t events, bool kernel)
{
	uint32_t r;

	if (so->dead)
		return POLLERR | POLLHUP;
	if (so->stream) {
		r = pv_stream_bits(so, events);
		if (kernel && so->kernel_leg && pv_ready_kernel(so, POLLIN))
			r |= POLLIN | POLLRDNORM;
	} else {
		r = pv_udp_ready_bits(so->u);
		if (pv_unlikely(!so->core_leg))
			r &= POLLRDHUP | POLLHUP;
		if (pv_unlikely(r & POLLERR) && so->rx_flags & PV_RX_SELECT_ERR)
			r |= POLLPRI;
		r |= pv_ready_norm(r);
		if (kernel && so->kernel_leg)
			r |= (uint32_t)pv_ready_kernel(so, (int)events);
	}
	return r & (events | POLLERR | POLLHUP);
}

static int poll_locked(struct pyvma_sock *h, struct pv_sock *so, int events, int64_t timeout_ns)
{
	struct pv_engine *e = &pv_engine;
	uint32_t gen = h->gen;
	struct pv_wait w;
	int r, rc = 0;

	pv_engine_poll(e, pv_clock_now(&e->clock));
	r = (int)pv_sock_revents(so, (uint32_t)events, true);
	if (r || timeout_ns == 0)
		return r;
	if (pv_prefork_is())
		pv_prefork_wait(so);
	pv_wait_init(&w, &so->watch, timeout_ns);
	if (so->kernel_leg) {
		w.kfd = pv_sock_kfd(so);
		w.kevents = (short)(events & ~POLLOUT);
	}
	if (events & POLLOUT && !so->stream)
		w.nap_ns = PV_NS_PER_MS;
	while (!r && !rc) {
		pv_engine_timers(e);
		rc = pv_wait(e, &w);
		if (!pv_sock_same(h, so, gen)) {
			r = pv_sock_gone(h, so, gen);
			break;
		}
		r = (int)pv_sock_revents(so, (uint32_t)events, true);
	}
	pv_wait_fini(e, &w);
	return r ? r : rc == -ETIMEDOUT ? 0 : rc;
}

int pyvma_sock_poll(pyvma_sock *h, int events, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);
	int64_t start;
	int rc;

	if (!so)
		return -EBADF;
	if (!pv_sock_is_ours(so))
		return pv_kernel_poll(pv_sock_kfd(so), events, timeout_ns);
	start = timeout_ns > 0 ? pv_clock_kernel_ns() : 0;
	rc = so->stream ? pv_stream_lock(h, so) : pv_sock_lock(h, so);
	if (!rc) {
		rc = poll_locked(h, so, events, timeout_ns);
		pv_sock_unlock();
	}
	if (rc != PV_HANDED)
		return rc;
	if (timeout_ns > 0)
		timeout_ns = PV_MAX(timeout_ns - (pv_clock_kernel_ns() - start), INT64_C(0));
	return pv_kernel_poll(pv_sock_kfd(so), events, timeout_ns);
}
