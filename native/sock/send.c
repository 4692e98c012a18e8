/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending. The datagram leaves inside the call: built, posted, doorbell rung. Only a full ring makes a blocking call wait, which polls
 * until the device has sent something; and a rate that the socket is held to, once its send buffer is used up.
 */
#include <string.h>

#include "rt/wait.h"
#include "sock/kernel.h"
#include "sock/rule.h"
#include "sock/shown.h"
#include "sock/stamp.h"
#include "sock/stream.h"

#define FAST_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_CONFIRM | PYVMA_MSG_BATCH)
/* Room may come without an interrupt: a sleep is this long at most. And a pool that stays empty is an error in the end, as the
 * kernel's ENOBUFS is. */
#define ROOM_NAP_NS PV_NS_PER_MS
#define ROOM_MAX_NS PV_NS_PER_S
/* The stack could not, the kernel may: no errno. */
#define ASK_KERNEL INT64_MIN

bool pv_send_by_core(struct pv_sock *so, const struct pv_endpoint *to)
{
	uint32_t gen = pv_net_gen_of(pv_engine.net);

	if (!to) {
		/* What was found to be the kernel's when routes or interfaces were others. */
		if (pv_unlikely(so->dg->peer_gen && so->dg->peer_gen != gen))
			pv_leg_options(so);
		return so->tx_core;
	}
	if (!so->kernel_leg || pv_unlikely(so->retired))
		return so->tx_core;
	if (so->host && pv_unlikely(pv_sock_rule(PV_RULE_UDP_SENDER, to, NULL) != NULL))
		return false;
	if (!pv_addr_eq(&so->dg->last_dst, &to->addr) || so->dg->last_gen != gen || so->dg->last_iface != to->iface) {
		so->dg->last_dst = to->addr;
		so->dg->last_iface = to->iface;
		so->dg->last_gen = gen;
		so->dg->last_core = so->host ? pv_leg_route(so, to) : pv_decide_route(so, to);
	}
	return so->dg->last_core;
}

/* No room: in the ring or of packets, or in the send buffer of a socket that is held to a rate. */
static bool may_wait(const struct pv_sock *so, int64_t n)
{
	return n == -ENOBUFS || (n == -EAGAIN && pv_udp_held(so->u));
}

/* `n`: why it has to wait. A paced socket's queue is as slow as its rate, and says when there is room. */
static int64_t send_wait(struct pyvma_sock *h, struct pv_sock *so, const struct pv_udp_send *m, int64_t n, int64_t timeout_ns)
{
	struct pv_engine *e = &pv_engine;
	uint32_t gen = h->gen;
	struct pv_wait w;
	int64_t limit = timeout_ns < 0 && so->sndtimeo_ns ? so->sndtimeo_ns : timeout_ns;
	bool capped = n == -ENOBUFS && (limit < 0 || limit > ROOM_MAX_NS);

	pv_wait_init(&w, &so->watch, capped ? ROOM_MAX_NS : limit);
	for (;;) {
		int rc;

		w.nap_ns = n == -ENOBUFS ? ROOM_NAP_NS : PV_NEVER;

		/* As a follower it depends on the leader, who may be asleep until later than there can be room. */
		pv_engine_timers(e);
		rc = pv_wait(e, &w);
		if (!pv_sock_same(h, so, gen)) {
			n = pv_sock_gone(h, so, gen);
			break;
		}
		pv_stack_grow(e->stack);
		n = pv_udp_send(so->u, m, pv_clock_now(&e->clock));
		if (!may_wait(so, n))
			break;
		if (rc) {
			if (rc != -ETIMEDOUT)
				n = rc;
			else if (!capped)
				n = -EAGAIN;
			break;
		}
	}
	pv_wait_fini(e, &w);
	/* The cap is for an empty pool, not for a slow rate. */
	return capped && n == -EAGAIN ? send_wait(h, so, m, n, timeout_ns) : n;
}

/* There was no room. */
static pv_noinline int64_t send_later(struct pyvma_sock *h, struct pv_sock *so, const struct pv_udp_send *m, int flags,
				      int64_t timeout_ns)
{
	struct pv_engine *e = &pv_engine;
	int64_t n;

	/* What was posted must leave before there can be room. */
	pv_net_kick(e->net);
	pv_engine_poll(e, pv_clock_now(&e->clock));
	pv_stack_grow(e->stack);
	n = pv_udp_send(so->u, m, pv_clock_now(&e->clock));
	if (!may_wait(so, n))
		return n;
	if (timeout_ns == 0 || (flags & MSG_DONTWAIT) || pv_sock_nonblock(so)) {
		if (n == -EAGAIN)
			pv_ready_update(so);
		return -EAGAIN;
	}
	return send_wait(h, so, m, n, timeout_ns);
}

int64_t pv_send_locked(struct pyvma_sock *h, struct pv_sock *so, const struct pv_udp_send *m, int flags, int64_t timeout_ns)
{
	int64_t n = pv_udp_send(so->u, m, pv_clock_now(&pv_engine.clock));

	pv_shown_sends(so);
	if (pv_likely(n >= 0))
		return n;
	return may_wait(so, n) ? send_later(h, so, m, flags, timeout_ns) : n;
}

bool pv_send_refused(struct pv_sock *so, const struct pv_endpoint *to, int64_t rc)
{
	if (pv_leg_ask_kernel(so, to, rc))
		return true;
	pv_shown_refused(&so->st->tx, rc);
	return false;
}

static int64_t send_kernel(struct pv_sock *so, const struct msghdr *msg, int flags, int64_t timeout_ns)
{
	int64_t n = pv_kernel_sendmsg(pv_sock_kfd(so), msg, flags & ~PYVMA_MSG_BATCH, timeout_ns);

	pv_shown_sends(so);
	pv_ready_called(so);
	return pv_shown_kernel_tx(so, n);
}

/* UDP_SEGMENT: one datagram for each `segment` bytes of the payload, the last one shorter. */
static int64_t send_segments(struct pyvma_sock *h, struct pv_sock *so, const struct pv_udp_send *m, uint32_t segment, int flags,
			     int64_t timeout_ns)
{
	struct pv_iov part[64];
	struct pv_udp_send one = *m;
	uint32_t at = 0;
	size_t off = 0, total = 0;
	int64_t sent = 0;

	for (uint32_t i = 0; i < m->iovcnt && total <= UINT16_MAX; i++)
		total += m->iov[i].len;
	if (total > UINT16_MAX)
		return -EMSGSIZE;
	if (total <= segment)
		return pv_send_locked(h, so, m, flags, timeout_ns);
	one.iov = part;
	while (at < m->iovcnt) {
		size_t left = segment;

		for (one.iovcnt = 0; left && at < m->iovcnt;) {
			size_t n = PV_MIN(left, m->iov[at].len - off);

			if (n && one.iovcnt == pv_array_size(part))
				return sent ? sent : -EMSGSIZE;
			if (n)
				part[one.iovcnt++] = (struct pv_iov){ (const char *)m->iov[at].base + off, n };
			left -= n;
			off += n;
			if (off == m->iov[at].len) {
				at++;
				off = 0;
			}
		}
		if (!one.iovcnt)
			break;
		int64_t n = pv_send_locked(h, so, &one, flags, timeout_ns);

		if (n < 0)
			return sent ? sent : n;
		sent += n;
		/* Only the first is stamped, as Linux's (__udp_gso_segment). */
		one.stamp = PV_UDP_STAMP_MSG;
	}
	return sent;
}

/* The lock is held and let go. */
static int64_t send_core(struct pyvma_sock *h, struct pv_sock *so, const struct pv_udp_send *m, uint32_t segment, int flags,
			 int64_t timeout_ns)
{
	pv_send_first();
	/* What is too long for any datagram is refused before an error is told (udp_sendmsg in Linux). */
	if (pv_unlikely(so->host) && !(m->iovcnt && m->iov[0].len > UINT16_MAX)) {
		int err = pv_leg_error(so, pv_clock_now(&pv_engine.clock));

		if (err) {
			pv_sock_unlock();
			return err;
		}
	}
	segment = pv_unlikely(so->dg->segment) && !segment ? so->dg->segment : segment;
	int64_t n = pv_unlikely(segment) ? send_segments(h, so, m, segment, flags, timeout_ns)
					 : pv_send_locked(h, so, m, flags, timeout_ns);

	if (pv_likely(!(flags & PYVMA_MSG_BATCH)))
		pv_send_done();
	if (pv_unlikely((so->st->tsflags & PV_STAMP_TX) || m->stamp))
		pv_stamp_sent(so);
	if (pv_unlikely(n < 0) && pv_send_refused(so, m->to, n))
		n = ASK_KERNEL;
	pv_sock_unlock();
	return n;
}

static pv_noinline int64_t send_other(struct pyvma_sock *h, const struct msghdr *msg, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_udp_send m = { .iov = (const struct pv_iov *)(const void *)msg->msg_iov, .ttl = -1, .tos = -1 };
	struct pv_cmsg_send aux = { .segment = 0 };
	struct pv_endpoint to;
	int rc;

	if (!so)
		return -EBADF;
	if (pv_sock_mode(so) == PV_SOCK_STREAM) {
		int64_t sent = pv_stream_send(h, so, msg, flags, timeout_ns);

		if (sent != PV_HANDED)
			return sent;
	}
	if (so->stream && !so->dead)
		return send_kernel(so, msg, flags, timeout_ns);
	if (pv_sock_mode(so) == PV_SOCK_KERNEL || !so->candidate || pv_engine_state() != PV_ENGINE_RUNNING)
		return so->dead ? pv_sock_lock_failed(NULL, so) : send_kernel(so, msg, flags, timeout_ns);
	/* Corked and out-of-band datagrams and addresses that do not parse: the kernel's error or, unbound, the kernel's business. */
	bool have_to = msg->msg_name && msg->msg_namelen;

	if (have_to && !pv_addr_parse(so, msg->msg_name, msg->msg_namelen, &to))
		return send_kernel(so, msg, flags, timeout_ns);
	if (so->host && (flags & ~FAST_FLAGS))
		return send_kernel(so, msg, flags, timeout_ns);
	/* Linux looks at it for IPv4 only. */
	if (flags & MSG_OOB && (so->family == AF_INET || (have_to && pv_addr_is4(&to.addr))))
		return -EOPNOTSUPP;
	if (have_to && !to.port)
		return -EINVAL;
	if (have_to && pv_sock_mode(so) == PV_SOCK_UNDECIDED) {
		rc = pv_decide_send(h, so, &to);
		if (rc)
			return rc;
	}
	if (!pv_sock_is_core(so))
		return send_kernel(so, msg, flags, timeout_ns);
	if (flags & MSG_MORE)
		return -EOPNOTSUPP;
	if (msg->msg_iovlen > UIO_MAXIOV)
		return -EMSGSIZE;
	rc = msg->msg_controllen ? pv_cmsg_parse(so, msg, &m, &aux) : 0;
	/* What the stack does not know the kernel may: of a socket that is both's the interfaces, too. */
	if (rc && (so->host || (so->kernel_leg && !(have_to && pv_decide_static(&to.addr)))))
		return send_kernel(so, msg, flags, timeout_ns);
	if (!rc)
		rc = pv_sock_lock(h, so);
	if (rc)
		return rc;
	if (!so->bound && have_to) {
		pv_sock_unlock();
		rc = pv_decide_send(h, so, &to);
		if (!rc)
			rc = pv_sock_lock(h, so);
		if (rc)
			return rc;
	}
	if (!pv_send_by_core(so, have_to ? &to : NULL)) {
		pv_sock_unlock();
		return send_kernel(so, msg, flags, timeout_ns);
	}
	if (m.stamp & PV_STAMP_TX_HW)
		pv_stamp_want_tx();
	m.iovcnt = (uint32_t)msg->msg_iovlen;
	m.to = have_to ? &to : NULL;
	int64_t n = send_core(h, so, &m, aux.segment, flags, timeout_ns);

	return n == ASK_KERNEL ? send_kernel(so, msg, flags, timeout_ns) : n;
}

int64_t pyvma_sock_send(pyvma_sock *h, const void *buf, size_t len, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);
	int64_t n = 0;

	if (so && pv_sock_mode(so) == PV_SOCK_STREAM)
		return pv_stream_sendto(h, &(struct pv_sendto){ .iov = { buf, len } }, flags, timeout_ns);
	if (pv_likely(pv_sock_is_core(so) && !(flags & ~FAST_FLAGS))) {
		struct pv_iov iov = { buf, len };
		struct pv_udp_send m = { .iov = &iov, .iovcnt = 1, .ttl = -1, .tos = -1 };
		int rc = pv_sock_lock(h, so);

		if (pv_unlikely(rc))
			return rc;
		if (pv_likely(so->tx_core)) {
			n = send_core(h, so, &m, 0, flags, timeout_ns);
			if (pv_likely(n != ASK_KERNEL))
				return n;
		} else {
			pv_sock_unlock();
		}
	}
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return n == ASK_KERNEL ? send_kernel(so, &msg, flags, timeout_ns) : send_other(h, &msg, flags, timeout_ns);
}

/* Not a stream of the stack's. */
static pv_noinline int64_t sendto_any(struct pyvma_sock *h, const struct pv_sendto *m, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_endpoint to;
	int64_t n = 0;

	/* An address of no length is none to a stream and to sendmsg only. */
	if (pv_unlikely(m->addr && !m->addrlen && so && !so->stream))
		return -EINVAL;
	if (pv_likely(pv_sock_is_core(so) && !(flags & ~FAST_FLAGS) && pv_addr_parse(so, m->addr, m->addrlen, &to) && to.port)) {
		struct pv_udp_send s = { .iov = &m->iov, .iovcnt = 1, .to = &to, .ttl = -1, .tos = -1 };
		int rc = pv_sock_lock(h, so);

		if (pv_unlikely(rc))
			return rc;
		if (pv_likely(so->bound && pv_send_by_core(so, &to))) {
			n = send_core(h, so, &s, 0, flags, timeout_ns);
			if (pv_likely(n != ASK_KERNEL))
				return n;
		} else {
			pv_sock_unlock();
		}
	}
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m->iov.base, .iov_len = m->iov.len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_name = (void *)(uintptr_t)m->addr, .msg_namelen = m->addr ? m->addrlen : 0
	};

	return n == ASK_KERNEL ? send_kernel(so, &msg, flags, timeout_ns) : send_other(h, &msg, flags, timeout_ns);
}

int64_t pyvma_sock_sendto(pyvma_sock *h, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t addrlen,
			  int64_t timeout_ns)
{
	struct pv_sendto m = { { buf, len }, addr, addrlen };
	struct pv_sock *so = pv_handle_sock(h);

	if (so && pv_sock_mode(so) == PV_SOCK_STREAM)
		return pv_stream_sendto(h, &m, flags, timeout_ns); /* whatever the address */
	return sendto_any(h, &m, flags, timeout_ns);
}

int64_t pyvma_sock_sendmsg(pyvma_sock *h, const struct msghdr *msg, int flags, int64_t timeout_ns)
{
	return send_other(h, msg, flags, timeout_ns);
}

void pyvma_flush(void)
{
	pv_lock_get(&pv_engine.lock);
	/* A forked child has its parent's stack still, and must not touch it. */
	if (pv_engine.stack && pv_engine_state() == PV_ENGINE_RUNNING && pv_net_dirty(pv_engine.net))
		pv_send_done();
	pv_lock_put(&pv_engine.lock);
}
