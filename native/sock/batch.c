/* SPDX-License-Identifier: BSD-3-Clause */
/* Several datagrams a call: one lock, one clock reading and one doorbell for all of them; receiving copies or lends. What streams lend is
 * given back here, too. */
#include <stdlib.h>
#include <string.h>

#include "sock/kernel.h"
#include "sock/shown.h"
#include "sock/stamp.h"
#include "sock/stream.h"

/* `lent` of a message: the packet, or, with this bit, heap memory (a datagram put together from fragments). */
#define LENT_HEAP ((uintptr_t)1)

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

static int64_t send_slow(struct pyvma_sock *h, const struct pyvma_msg *m, int flags, int64_t timeout_ns)
{
	return pyvma_sock_sendto(h, m->base, m->len, flags, m->addrlen ? (const struct sockaddr *)&m->addr : NULL, m->addrlen,
				 timeout_ns);
}

/* One datagram with the lock held; -EDOM: not for this way, take the slow one. */
static int64_t send_one(struct pyvma_sock *h, struct pv_sock *so, const struct pyvma_msg *m, int flags, int64_t timeout_ns)
{
	struct pv_iov iov = { m->base, m->len };
	struct pv_udp_send s = { .iov = &iov, .iovcnt = 1, .ttl = -1, .tos = -1 };
	struct pv_endpoint to;

	if (m->addrlen) {
		if (!pv_addr_parse(so, (const struct sockaddr *)&m->addr, m->addrlen, &to) || !to.port || !so->bound)
			return -EDOM;
		s.to = &to;
	}
	if (!pv_send_by_core(so, s.to) || so->dg->segment)
		return -EDOM;
	int64_t n = pv_send_locked(h, so, &s, flags, timeout_ns);

	return n < 0 && pv_send_refused(so, s.to, n) ? -EDOM : n;
}

int pyvma_sock_send_batch(pyvma_sock *h, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);
	bool core = pv_sock_is_core(so) && !(flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_CONFIRM));
	uint32_t done = 0;
	int64_t rc = !so ? -EBADF : so->stream ? -EOPNOTSUPP : 0;

	while (rc >= 0 && done < n) {
		if (core) {
			rc = pv_sock_lock(h, so);
			if (rc)
				break;
			rc = so->host && !done ? pv_leg_error(so, pv_clock_now(&pv_engine.clock)) : 0;
			if (rc) {
				pv_sock_unlock();
				break;
			}
			do
				rc = send_one(h, so, &msgs[done], flags, done ? 0 : timeout_ns);
			while (rc >= 0 && ++done < n);
			pv_send_done();
			if (pv_unlikely(so->st->tsflags & PV_STAMP_TX))
				pv_stamp_sent(so);
			pv_sock_unlock();
			if (rc != -EDOM)
				break;
		}
		rc = send_slow(h, &msgs[done], done ? flags | MSG_DONTWAIT : flags, done ? 0 : timeout_ns);
		done += rc >= 0;
		core = core || pv_sock_is_core(so);
	}
	return done ? (int)done : (int)rc;
}

/* ---- receiving --------------------------------------------------------------------------------------------------------- */

/* A packet in several buffers becomes one piece of heap memory. */
static int make_one_piece(struct pyvma_msg *m, struct pv_pkt *pkt)
{
	char *p = malloc(pkt->total ? pkt->total : 1), *at = p;

	if (!p)
		return -ENOMEM;
	for (const struct pv_pkt *f = pkt; f; f = f->frag) {
		memcpy(at, f->data, f->len);
		at += f->len;
	}
	m->base = p;
	m->lent = (void *)((uintptr_t)p | LENT_HEAP);
	return 0;
}

static int lend(struct pyvma_msg *m, const struct pv_rx *rx, struct pv_pkt *pkt, int64_t len)
{
	int rc = 0;

	m->len = (uint32_t)len;
	if (rx->from_kernel) {
		m->base = rx->heap;
		m->lent = (void *)((uintptr_t)rx->heap | LENT_HEAP);
		return 0;
	}
	if (pkt->frag) {
		rc = make_one_piece(m, pkt);
		pv_pkt_put(pkt);
		return rc;
	}
	pv_batch_lend(m, pkt);
	return 0;
}

void pv_batch_lend(struct pyvma_msg *m, struct pv_pkt *pkt)
{
	m->base = pkt->data;
	m->lent = pkt;
	pkt->flags |= PV_PKT_LENT;
	pv_engine.stat->lent++;
}

uint32_t pv_batch_may_lend(void)
{
	const struct pv_engine *e = &pv_engine;
	uint32_t total = 0;

	for (uint32_t i = 0; i < e->nports; i++) {
		struct pv_pool_stats st;

		pv_pool_get_stats(e->ports[i].pool, &st);
		total += st.total;
	}
	return total / 2 > e->stat->lent ? total / 2 - e->stat->lent : 0;
}

static void finish(struct pv_sock *so, struct pyvma_msg *m, struct pv_rx *rx, int64_t n)
{
	if (rx->eof) {
		m->addrlen = 0;
		m->flags = 0;
		m->arrival_ns = 0;
	} else if (rx->from_kernel) {
		m->addrlen = rx->msg.msg_namelen;
		m->flags = (uint32_t)rx->msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
		m->arrival_ns = pv_clock_kernel_ns();
	} else {
		m->addrlen = pv_addr_format(so->family, &rx->m.from, &m->addr, sizeof(m->addr));
		m->flags = n < rx->m.full_len ? MSG_TRUNC : 0;
		m->arrival_ns = rx->m.arrival_ns;
	}
}

/* What a batch asks for. */
struct batch {
	struct pyvma_msg *msgs;
	uint32_t n;
	int flags;
	bool lent;
	int64_t timeout_ns;
};

static int recv_core(struct pyvma_sock *h, struct pv_sock *so, const struct batch *b)
{
	struct pv_rx rx = { .flags = b->flags };
	struct pv_pkt *pkt = NULL;
	struct pv_iov iov;
	uint32_t done = 0, n = b->n;
	int64_t rc = pv_sock_lock(h, so);

	if (rc)
		return (int)rc;
	if (b->lent)
		n = PV_MIN(n, pv_batch_may_lend());
	if (!n) {
		pv_sock_unlock();
		return -ENOBUFS;
	}
	rx.m.iov = &iov;
	rx.m.iovcnt = b->lent ? 0 : 1;
	for (; done < n; done++) {
		struct pyvma_msg *m = &b->msgs[done];

		iov = (struct pv_iov){ m->base, m->len };
		rx.from_kernel = false;
		if (so->kernel_leg)
			rx.msg = (struct msghdr){ .msg_name = &m->addr, .msg_namelen = sizeof(m->addr) };
		rc = done ? pv_recv_try(so, &rx, b->lent ? &pkt : NULL)
			  : pv_recv_locked(h, so, &rx, b->lent ? &pkt : NULL, b->timeout_ns);
		if (rc < 0)
			break;
		if (done && rx.eof)
			break;
		finish(so, m, &rx, rc);
		m->lent = NULL;
		if (!b->lent)
			m->len = (uint32_t)rc;
		else if ((rc = lend(m, &rx, pkt, rc)) < 0)
			break;
	}
	if (!pv_sock_is_over(rc))
		pv_ready_update(so);
	pv_sock_unlock();
	/* Lending at the end: no datagram, and none will come. */
	return done ? (int)done : rc == -ESHUTDOWN ? 0 : (int)rc;
}

static int recv_kernel(struct pv_sock *so, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	uint32_t done = 0;
	int64_t rc = 0;

	pv_shown_receives(so);
	for (; done < n; done++) {
		struct pyvma_msg *m = &msgs[done];
		struct iovec iov = { .iov_base = m->base, .iov_len = m->len };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_name = &m->addr, .msg_namelen = sizeof(m->addr) };

		rc = pv_shown_kernel_rx(so, pv_kernel_recvmsg(pv_sock_kfd(so), &msg, flags, done ? 0 : timeout_ns), flags);
		if (rc < 0)
			break;
		m->len = (uint32_t)rc;
		m->flags = (uint32_t)msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
		m->addrlen = msg.msg_namelen;
		m->arrival_ns = pv_clock_kernel_ns();
		m->lent = NULL;
	}
	return done ? (int)done : (int)rc;
}

int pyvma_sock_recv_batch(pyvma_sock *h, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);

	if (!so)
		return -EBADF;
	if (so->stream)
		return -EOPNOTSUPP;
	if (!n)
		return 0;
	if (flags & ~MSG_DONTWAIT)
		return -EINVAL;
	if (pv_sock_is_core(so))
		return recv_core(h, so, &(struct batch){ msgs, n, flags, false, timeout_ns });
	int got = recv_kernel(so, msgs, n, flags, timeout_ns);

	pv_ready_called(so);
	return got;
}

int pyvma_sock_recv_lent(pyvma_sock *h, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);

	if (!so)
		return -EBADF;
	if (!pv_sock_is_ours(so))
		return -EOPNOTSUPP;
	if (!n)
		return 0;
	if (flags & ~MSG_DONTWAIT)
		return -EINVAL;
	if (so->stream) {
		int got = (int)pv_stream_lend(h, so, msgs, n, flags, timeout_ns);

		return got == PV_HANDED ? -EOPNOTSUPP : got;
	}
	return recv_core(h, so, &(struct batch){ msgs, n, flags, true, timeout_ns });
}

void pyvma_batch_release(struct pyvma_msg *msgs, uint32_t n)
{
	bool locked = false;

	for (uint32_t i = 0; i < n; i++) {
		uintptr_t lent = (uintptr_t)msgs[i].lent;

		msgs[i].lent = NULL;
		if (!lent)
			continue;
		if (lent & LENT_HEAP) {
			free((void *)(lent & ~LENT_HEAP));
			continue;
		}
		if (pv_engine_state() == PV_ENGINE_FORKED)
			continue; /* buffers are the parent's */
		if (!locked)
			pv_lock_get(&pv_engine.lock);
		locked = true;
		((struct pv_pkt *)lent)->flags = 0;
		pv_pkt_put((struct pv_pkt *)lent);
		pv_engine.stat->lent--;
	}
	if (locked)
		pv_lock_put(&pv_engine.lock);
}
