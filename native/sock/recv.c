/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving. A queued datagram costs one lock, one copy and nothing else; a call that finds none polls, then waits (rt/wait.h). The
 * kernel's leg, where a socket has one, is looked at every kernel_poll_ratio receives or empty polls, and before every sleep. What it
 * had before the stack's half was there goes first, so that a flow keeps its order when it changes over.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "rt/wait.h"
#include "sock/kernel.h"
#include "sock/shown.h"
#include "sock/stamp.h"
#include "sock/stream.h"

/* A call that does not wait looks at the kernel's leg at the latest this long after the last look. */
#define KERNEL_LOOK_NS (50 * PV_NS_PER_US)
/* Flags that the stack serves, or that mean nothing here; any other goes the long way. */
#define FAST_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)

/* To lend what the kernel has, it gets memory of its own. 0 or -errno; *iov has room for the next datagram. */
static int lend_room(struct pv_sock *so, struct pv_rx *rx, struct iovec *iov)
{
	ssize_t n = recv(pv_sock_kfd(so), NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);

	if (n < 0)
		return -errno;
	rx->heap = malloc(n ? (size_t)n : 1);
	*iov = (struct iovec){ .iov_base = rx->heap, .iov_len = (size_t)n };
	return rx->heap ? 0 : -ENOMEM;
}

static int64_t kernel_failed(struct pv_sock *so, struct pv_rx *rx, int64_t rc)
{
	free(rx->heap);
	rx->heap = NULL;
	so->dg->kernel_first = 0;
	if (rc == -EAGAIN || rc == -EWOULDBLOCK)
		return -EAGAIN;
	pv_leg_saw_error(so, (int)rc);
	return rc;
}

static pv_noinline int64_t try_kernel(struct pv_sock *so, struct pv_rx *rx, bool lending)
{
	struct msghdr msg = rx->msg;
	struct iovec room;
	int64_t n;

	so->dg->kernel_turns = 0;
	msg.msg_iov = (struct iovec *)(void *)rx->m.iov;
	msg.msg_iovlen = rx->m.iovcnt;
	rx->heap = NULL;
	if (pv_unlikely(lending)) {
		n = lend_room(so, rx, &room);
		if (n)
			return kernel_failed(so, rx, n);
		msg.msg_iov = &room;
		msg.msg_iovlen = 1;
	}
	n = recvmsg(pv_sock_kfd(so), &msg, (rx->flags & (MSG_PEEK | MSG_TRUNC | MSG_CMSG_CLOEXEC)) | MSG_DONTWAIT);
	if (n < 0)
		return kernel_failed(so, rx, pv_shown_kernel_rx(so, -errno, 0));
	rx->msg = msg;
	rx->from_kernel = true;
	so->dg->kernel_seen_ns = 0; /* where one was there may be more, and the next call must find it */
	if (rx->flags & MSG_PEEK)
		so->dg->kernel_first += !so->dg->kernel_first; /* what was looked at is what comes next */
	else
		so->dg->kernel_first -= so->dg->kernel_first > 0;
	return pv_shown_kernel_rx(so, n, rx->flags);
}

pv_inline int64_t try_core(struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend)
{
	if (pv_unlikely(lend != NULL)) {
		*lend = pv_udp_take(so->u, &rx->m);
		if (*lend)
			return rx->m.full_len;
		/* Nothing to take may be an error to tell. */
		int err = pv_udp_error(so->u);

		return err ? -err : (so->shut & 1) && !so->kernel_leg ? -ESHUTDOWN : -EAGAIN;
	}
	int64_t n = pv_udp_recv(so->u, &rx->m);

	if (pv_unlikely(rx->m.peek) && n >= 0)
		so->dg->kernel_turns = UINT32_MAX; /* as in try_kernel: the next receive is no turn of the kernel's */
	return n;
}

/* Is it the kernel leg's turn? */
pv_inline bool kernel_turn(struct pv_sock *so)
{
	return pv_unlikely(so->dg->kernel_first || !so->core_leg) ||
	       (pv_engine.kernel_ratio && ++so->dg->kernel_turns >= pv_engine.kernel_ratio);
}

pv_inline int64_t recv_try(struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend)
{
	if (pv_unlikely(so->kernel_leg) && kernel_turn(so)) {
		int64_t n = try_kernel(so, rx, lend != NULL);

		if (n != -EAGAIN || !so->core_leg)
			return n;
	}
	return try_core(so, rx, lend);
}

int64_t pv_recv_try(struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend)
{
	return recv_try(so, rx, lend);
}

/* Both legs, whatever the ratio, for a call that waits: with both empty and shut down it has an end, as a stream's; others have -EAGAIN. */
static int64_t try_both(struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend)
{
	int64_t n = so->core_leg ? try_core(so, rx, lend) : -EAGAIN;

	if (n == -EAGAIN && so->kernel_leg)
		n = try_kernel(so, rx, lend != NULL);
	if (n != -EAGAIN || !(so->shut & 1))
		return n;
	rx->eof = !lend;
	return lend ? -ESHUTDOWN : 0;
}

static int64_t recv_now(struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend, int64_t now)
{
	int64_t n = so->core_leg ? try_core(so, rx, lend) : -EAGAIN;

	if (n == -EAGAIN && so->kernel_leg &&
	    (now - so->dg->kernel_seen_ns >= KERNEL_LOOK_NS || !so->core_leg || so->kernel_ready || (so->shut & 1))) {
		so->dg->kernel_seen_ns = now;
		n = try_kernel(so, rx, lend != NULL);
	}
	return n;
}

/*
 * The kernel's leg ends a sleep, too. But an error queue that the program does not read is no reason to wake up, though poll(2) says
 * so for ever (recv(2) sleeps on, too): then it is looked at now and then only.
 */
static void watch_kernel(struct pv_sock *so, struct pv_wait *w)
{
	struct pollfd p = { .fd = pv_sock_kfd(so), .events = POLLIN };
	bool stuck;

	w->kfd = -1;
	w->kwatched = false;
	if (!so->kernel_leg)
		return;
	stuck = w->sleeps && poll(&p, 1, 0) > 0 && !(p.revents & ~POLLERR);
	w->kfd = stuck ? -1 : p.fd;
	w->kevents = POLLIN;
	w->nap_ns = stuck ? PV_NS_PER_MS : PV_NEVER;
	w->kwatched = !stuck && pv_ready_leg_watched(so);
}

static int64_t recv_wait(struct pyvma_sock *h, struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend, int64_t timeout_ns)
{
	struct pv_engine *e = &pv_engine;
	uint32_t gen = h->gen;
	struct pv_wait w;
	int64_t n;

	if (pv_unlikely(so->shut & 1)) {
		pv_engine_poll(e, pv_clock_now(&e->clock));
		return try_both(so, rx, lend);
	}
	pv_wait_init(&w, &so->watch, timeout_ns < 0 && so->rcvtimeo_ns ? so->rcvtimeo_ns : timeout_ns);
	for (;;) {
		watch_kernel(so, &w); /* legs and fd may change meanwhile */
		int rc = pv_wait(e, &w);

		if (!pv_sock_same(h, so, gen)) {
			pv_wait_fini(e, &w);
			return pv_sock_gone(h, so, gen); /* its counters may be another socket's by now */
		}
		n = try_both(so, rx, lend);
		if (n != -EAGAIN)
			break;
		if (rc) {
			n = rc == -ETIMEDOUT ? -EAGAIN : rc;
			break;
		}
	}
	pv_wait_fini(e, &w);
	if (pv_unlikely(so->leg_busy) && w.sleeps && n >= 0 && !rx->from_kernel)
		so->leg_busy = false;
	if (!w.sleeps)
		so->st->hits++;
	else
		so->st->misses++;
	so->st->sleeps += w.sleeps;
	return n;
}

/* There was nothing. */
static pv_noinline int64_t recv_later(struct pyvma_sock *h, struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend,
				      int64_t timeout_ns)
{
	int64_t now;

	if (timeout_ns && !(rx->flags & MSG_DONTWAIT) && !pv_sock_nonblock(so))
		return recv_wait(h, so, rx, lend, timeout_ns);
	now = pv_clock_now(&pv_engine.clock);
	pv_engine_poll(&pv_engine, now);
	return recv_now(so, rx, lend, now);
}

pv_inline int64_t recv_locked(struct pyvma_sock *h, struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend, int64_t timeout_ns)
{
	int64_t n = recv_try(so, rx, lend);

	pv_shown_receives(so);
	if (pv_unlikely(n < 0)) {
		if (n == -EAGAIN)
			n = recv_later(h, so, rx, lend, timeout_ns);
		if (pv_sock_is_over(n))
			return n;
		if (n < 0)
			pv_shown_refused(&so->st->rx, n);
	}
	pv_ready_update(so);
	return n;
}

int64_t pv_recv_locked(struct pyvma_sock *h, struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend, int64_t timeout_ns)
{
	return recv_locked(h, so, rx, lend, timeout_ns);
}

static pv_noinline int64_t recv_other(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg, int flags, int64_t timeout_ns);

/* For a call with one piece of memory and fast flags. */
pv_inline void rx_plain(struct pv_rx *rx, struct pv_iov *iov, int flags)
{
	rx->m.iov = iov;
	rx->m.iovcnt = 1;
	rx->m.peek = false;
	rx->flags = flags;
	rx->from_kernel = rx->eof = false;
	memset(&rx->msg, 0, sizeof(rx->msg));
}

int64_t pyvma_sock_recv(pyvma_sock *h, void *buf, size_t len, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);

	if (pv_likely(pv_sock_is_core(so) && !(flags & ~FAST_FLAGS))) {
		struct pv_iov iov = { buf, len };
		struct pv_rx rx;
		int64_t n = pv_sock_lock(h, so);

		if (pv_unlikely(n))
			return n;
		rx_plain(&rx, &iov, flags);
		rx.m.bare = true;
		rx.m.brief = false;
		n = recv_locked(h, so, &rx, NULL, timeout_ns);
		pv_sock_unlock();
		return n;
	}
	if (pv_likely(so && pv_sock_mode(so) == PV_SOCK_STREAM)) {
		int64_t n = pv_stream_read(h, so, buf, len, flags, timeout_ns);

		if (pv_likely(n != PV_HANDED))
			return n;
	}
	struct iovec iov = { buf, len };

	return recv_other(h, so, &(struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1 }, flags, timeout_ns);
}

/* A datagram socket's recvfrom with an address and fast flags. */
static int64_t recvfrom_core(struct pyvma_sock *h, struct pv_sock *so, struct pv_iov *iov, int flags, struct msghdr *name,
			     int64_t timeout_ns)
{
	struct pv_rx rx;
	int64_t n = pv_sock_lock(h, so);

	if (pv_unlikely(n))
		return n;
	rx_plain(&rx, iov, flags);
	rx.m.bare = false;
	rx.m.brief = true;
	rx.msg.msg_name = name->msg_name;
	rx.msg.msg_namelen = name->msg_namelen;
	n = recv_locked(h, so, &rx, NULL, timeout_ns);
	if (pv_likely(n >= 0)) {
		if (pv_unlikely(rx.from_kernel))
			name->msg_namelen = rx.msg.msg_namelen;
		else if (pv_unlikely(rx.eof))
			name->msg_namelen = 0;
		else
			name->msg_namelen = pv_addr_format(so->family, &rx.m.from, name->msg_name, name->msg_namelen);
	}
	pv_sock_unlock();
	return n;
}

/* Others than those that only bring bytes. */
static pv_noinline int64_t recvfrom_other(struct pyvma_sock *h, struct pv_sock *so, struct iovec *iov, int flags,
					  struct msghdr *name, int64_t timeout_ns)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 1, .msg_name = name->msg_name, .msg_namelen = name->msg_namelen };
	int64_t n = recv_other(h, so, &msg, flags, timeout_ns);

	name->msg_namelen = msg.msg_namelen;
	return n;
}

int64_t pyvma_sock_recvfrom(pyvma_sock *h, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addrlen,
			    int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct iovec iov = { buf, len };
	bool named = addr && addrlen;
	struct msghdr msg;
	int64_t n;

	if (pv_unlikely(named && (int)*addrlen < 0))
		return -EINVAL;
	if (pv_likely(so && pv_sock_mode(so) == PV_SOCK_STREAM && !(flags & MSG_ERRQUEUE))) {
		n = pv_stream_read(h, so, buf, len, flags, timeout_ns);
		if (pv_likely(n != PV_HANDED)) {
			if (named && n >= 0)
				*addrlen = 0; /* a stream tells none */
			return n;
		}
	}
	msg.msg_name = addr;
	msg.msg_namelen = named ? *addrlen : 0;
	if (pv_likely(named && pv_sock_is_core(so) && !(flags & ~FAST_FLAGS)))
		n = recvfrom_core(h, so, (struct pv_iov *)(void *)&iov, flags, &msg, timeout_ns);
	else
		n = recvfrom_other(h, so, &iov, flags, &msg, timeout_ns);
	if (named && n >= 0)
		*addrlen = msg.msg_namelen;
	return n;
}

int64_t pyvma_sock_recvmsg(pyvma_sock *h, struct msghdr *msg, int flags, int64_t timeout_ns)
{
	return recv_other(h, pv_handle_sock(h), msg, flags, timeout_ns);
}

static int64_t finish_msg(struct pv_sock *so, struct pv_rx *rx, struct msghdr *msg, int64_t n)
{
	if (rx->from_kernel) {
		msg->msg_namelen = rx->msg.msg_namelen;
		msg->msg_controllen = rx->msg.msg_controllen;
		msg->msg_flags = rx->msg.msg_flags;
		return n;
	}
	if (rx->eof) {
		msg->msg_namelen = 0;
		msg->msg_controllen = 0;
		msg->msg_flags = 0;
		return 0;
	}
	msg->msg_flags = (rx->flags & MSG_CMSG_CLOEXEC) | (n < rx->m.full_len ? MSG_TRUNC : 0);
	if (msg->msg_name)
		msg->msg_namelen = pv_addr_format(so->family, &rx->m.from, msg->msg_name, msg->msg_namelen);
	else
		msg->msg_namelen = 0;
	if (so->rx_flags)
		pv_cmsg_put_all(so, &rx->m, msg);
	else
		msg->msg_controllen = 0;
	return rx->flags & MSG_TRUNC ? (int64_t)rx->m.full_len : n;
}

static int64_t recv_other(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg, int flags, int64_t timeout_ns)
{
	if (so && pv_sock_mode(so) == PV_SOCK_STREAM) {
		int64_t got = pv_stream_recv(h, so, msg, flags, timeout_ns);

		if (got != PV_HANDED)
			return got;
	}
	if (!so)
		return -EBADF;
	if (!pv_sock_is_core(so)) {
		pv_shown_receives(so);
		int64_t got = pv_shown_kernel_rx(so, pv_kernel_recvmsg(pv_sock_kfd(so), msg, flags, timeout_ns), flags);

		pv_ready_called(so);
		return got;
	}
	if (flags & MSG_ERRQUEUE)
		return pv_errq_recv(h, so, msg);
	if (msg->msg_iovlen > UIO_MAXIOV)
		return -EMSGSIZE;
	struct pv_rx rx = { .flags = flags };

	rx.m.iov = (struct pv_iov *)(void *)msg->msg_iov;
	rx.m.iovcnt = (uint32_t)msg->msg_iovlen;
	rx.m.peek = flags & MSG_PEEK;
	rx.msg.msg_name = msg->msg_name;
	rx.msg.msg_namelen = msg->msg_namelen;
	rx.msg.msg_control = msg->msg_control;
	rx.msg.msg_controllen = msg->msg_controllen;
	int64_t n = pv_sock_lock(h, so);

	if (n)
		return n;
	n = pv_recv_locked(h, so, &rx, NULL, timeout_ns);
	if (n >= 0)
		n = finish_msg(so, &rx, msg, n);
	pv_sock_unlock();
	return n;
}
