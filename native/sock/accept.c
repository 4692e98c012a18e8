/* SPDX-License-Identifier: BSD-3-Clause */
/* accept: what the stack's half of a listener has, and the kernel's. */
#include "sock/stream.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rt/error.h"
#include "rt/host.h"
#include "rt/wait.h"
#include "sock/kernel.h"
#include "sock/pacing.h"
#include "sock/prefork.h"
#include "sock/stamp.h"

/* The kernel's half of a listener: an fd or -errno. Its waiting is done here, never by the kernel. */
static int accept_kernel(struct pv_sock *so, int flags)
{
	struct pollfd p = { .fd = pv_sock_kfd(so), .events = POLLIN };
	int fd;

	if (poll(&p, 1, 0) <= 0)
		return -EAGAIN;
	fd = pv_sock_nonblock(so) ? 0 : pv_prefork_hand_over();
	if (fd)
		return fd;
	fd = accept4(p.fd, NULL, NULL, flags & SOCK_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

struct accepted {
	int flags; /* of the call */
	struct pv_tcp *tc; /* NULL: the kernel's */
	uint32_t start; /* of the stack that it is of */
	int fd; /* of it; -1: one of the stack's that needs none yet */
	struct pv_endpoint peer; /* of the stack's */
};

/* A connection for which there is no number stays in the queue, as in the kernel. */
static int accept_number(struct pv_sock *so, struct accepted *a)
{
	if (!(a->flags & PYVMA_ACCEPT_FD) || a->fd >= 0 || !pv_tcp_accept_queue(so->tc))
		return 0;
	a->fd = pv_host_socket(&pv_engine, so->family, SOCK_STREAM | (a->flags & (SOCK_CLOEXEC | SOCK_NONBLOCK)), so->proto);
	return a->fd < 0 ? -errno : 0;
}

/* `kernel`: its half is asked too, which is a system call. */
static int accept_try(struct pv_sock *so, struct accepted *a, bool kernel)
{
	int rc = accept_number(so, a), fd;

	if (!rc)
		rc = pv_tcp_accept(so->tc, &a->tc);
	a->start = pv_engine.starts;
	if (rc != -EAGAIN || !so->kernel_leg || !kernel)
		return rc;
	fd = accept_kernel(so, a->flags);
	/* What it has not is no number of the next connection's. */
	if (fd < 0)
		return fd;
	a->fd = fd;
	return 0;
}

/* Is it the kernel's turn? Not each time that frames have come: those are for the stack. */
static bool kernels_turn(struct pv_sock *so, const struct pv_wait *w)
{
	if (w->kready)
		return true;
	if (!pv_engine.kernel_ratio || ++so->accept_turns < pv_engine.kernel_ratio)
		return false;
	so->accept_turns = 0;
	return true;
}

static int accept_wait(struct pyvma_sock *h, struct pv_sock *so, struct accepted *a, int64_t timeout_ns)
{
	uint32_t gen = h->gen;
	struct pv_wait w;
	int rc, n = -EAGAIN;

	pv_wait_init(&w, &so->watch, timeout_ns < 0 && so->rcvtimeo_ns ? so->rcvtimeo_ns : timeout_ns);
	while (n == -EAGAIN) {
		bool ours = pv_prefork_is() && pv_prefork_expects();

		w.kfd = so->kernel_leg && !ours ? pv_sock_kfd(so) : -1;
		w.kevents = POLLIN;
		w.nap_ns = ours ? PV_NS_PER_MS : PV_NEVER;
		rc = pv_wait(&pv_engine, &w);
		if (h->gen != gen || pv_handle_sock(h) != so || !so->tc) {
			n = pv_sock_gone(h, so, gen);
			break;
		}
		n = accept_try(so, a, rc || kernels_turn(so, &w));
		/* In the kernel it would wait again, whatever has ended this wait. */
		if ((n == -EAGAIN || n == PV_HANDED) && rc) {
			n = rc == -ETIMEDOUT ? -EAGAIN : rc;
			break;
		}
	}
	pv_wait_fini(&pv_engine, &w);
	return n;
}

/* The engine may have been stopped while nobody held its lock, and its connections with it. */
static bool lost(const struct accepted *a)
{
	return !pv_engine.stack || pv_engine.starts != a->start;
}

/* A handle of its own for what was accepted. A connection of the stack's has no fd until somebody asks, or has asked before. */
static int accepted_handle(struct pv_sock *l, struct accepted *a, pyvma_sock **out)
{
	struct pv_sock *so;
	int rc;

	if (!a->tc) {
		rc = pyvma_sock_adopt(a->fd, out);
	} else {
		rc = pv_handle_stream(a->fd, l->family, l->proto, a->flags, out);
	}
	if (rc) {
		if (a->fd >= 0)
			close(a->fd);
		if (a->tc) {
			pv_lock_get(&pv_engine.lock);
			if (!lost(a))
				pv_tcp_close(a->tc, pv_clock_now(&pv_engine.clock));
			pv_sock_unlock();
		}
		return rc;
	}
	if (a->tc) {
		so = pv_handle_sock(*out);
		pv_lock_get(&pv_engine.lock);
		if (pv_unlikely(lost(a))) {
			pv_lock_put(&pv_engine.lock);
			(void)pyvma_sock_close(*out);
			*out = NULL;
			return pv_error(-ENETDOWN, "the engine was stopped");
		}
		so->tc = a->tc;
		so->bound = true;
		(void)pv_tcp_peer(so->tc, &a->peer); /* whatever has become of it (inet_getname in Linux) */
		pv_tcp_set_user(so->tc, &so->watch);
		/* sk_clone_lock of Linux. */
		so->rcvtimeo_ns = l->rcvtimeo_ns;
		so->sndtimeo_ns = l->sndtimeo_ns;
		so->inq = l->inq;
		pv_stamp_inherit(so);
		pv_stream_decide(so, false);
		pv_tcp_lane_ask(so->tc);
		pv_pacing_accepted(so);
		if (pv_prefork_is())
			pv_prefork_serves(so);
		pv_sock_unlock();
		return 0;
	}
	return a->flags & SOCK_NONBLOCK ? pyvma_sock_set_nonblock(*out, 1) : 0;
}

/* What the kernel's listener has. */
static int accept_kernels(struct pv_sock *so, struct accepted *a, int64_t timeout_ns)
{
	int rc = so->dead ? pv_sock_lock_failed(NULL, so) : PV_HANDED;

	if (rc != PV_HANDED)
		return rc;
	rc = timeout_ns >= 0 ? pv_kernel_poll(pv_sock_kfd(so), POLLIN, timeout_ns) : 1;
	if (rc <= 0)
		return rc ? rc : -EAGAIN;
	a->fd = accept4(pv_sock_kfd(so), NULL, NULL, a->flags & SOCK_CLOEXEC);
	return a->fd < 0 ? -errno : 0;
}

static int accept_ours(struct pyvma_sock *h, struct pv_sock *so, struct accepted *a, int64_t timeout_ns)
{
	bool wait = timeout_ns != 0 && !pv_sock_nonblock(so);
	int rc = pv_stream_lock(h, so);

	if (rc)
		return rc;
	rc = accept_try(so, a, false);
	if (rc == -EAGAIN) {
		pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
		/* One of the stack's that it will come to nobody else could take, and it would wait behind the kernel's. */
		rc = accept_try(so, a, !wait && !(pv_prefork_is() && pv_prefork_comes(so)));
	}
	if (rc == -EAGAIN && wait && pv_prefork_is()) {
		rc = accept_try(so, a, true);
		if (rc == -EAGAIN)
			pv_prefork_wait(so);
	}
	if (rc == -EAGAIN && wait)
		rc = accept_wait(h, so, a, timeout_ns);
	if (!rc && pv_prefork_is())
		pv_prefork_taken();
	if (!pv_sock_is_over(rc) && rc != PV_HANDED)
		pv_ready_update(so);
	pv_sock_unlock();
	return rc;
}

int pyvma_sock_accept(pyvma_sock *h, struct sockaddr *addr, socklen_t *len, int flags, int64_t timeout_ns, pyvma_sock **out)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct accepted a = { .flags = flags, .fd = -1 };
	int rc;

	*out = NULL;
	if (!so)
		return -EBADF;
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC | PYVMA_ACCEPT_FD))
		return -EINVAL;
	rc = so->stream && pv_sock_mode(so) == PV_SOCK_STREAM ? accept_ours(h, so, &a, timeout_ns) : PV_HANDED;
	/* It is the kernel's, perhaps since a moment ago. */
	if (rc == PV_HANDED)
		rc = accept_kernels(so, &a, timeout_ns);
	if (!rc)
		rc = accepted_handle(so, &a, out);
	if (!rc && addr && len && a.tc && (int)*len >= 0)
		*len = pv_addr_format(so->family, &a.peer, addr, *len);
	else if (!rc && addr && len)
		(void)pyvma_sock_getpeername(*out, addr, len);
	return rc;
}
