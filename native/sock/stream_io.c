/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: send and receive. A blocking send returns when the stack has taken everything, as Linux's does. */
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>

#include "rt/wait.h"
#include "sock/kernel.h"
#include "sock/shown.h"
#include "sock/stamp.h"
#include "sock/stream.h"

/* A full ring or an empty pool gives no event: how long at most until the next look. */
#define ROOM_NAP_NS PV_NS_PER_MS
/* Entries of a message that do not make its stack frame a big one. */
#define FEW 16
/* A write of that many bytes, with that many segments under way, looks for acknowledgements first. Whoever only writes would else see
 * none before the buffer is full: megabytes of packets, none of them in the cache any more when they are needed again, and a heap of
 * acknowledgements in the way of what another connection waits for. */
#define LOOK_BYTES 2048u
#define LOOK_SEGMENTS 16u

/* A long write goes in turns of so many segments, and between them the stack looks at what has come. While other sockets have had news
 * lately turns are short, and a write that may not wait ends with the turn in which they have some: the program is to come to it before
 * the rest of the stream does. It ends, too, or does not begin, while LOOK_SEGMENTS are under way and the peer has not come to the first of
 * them in time: what is put into that queue now, the others' next messages have to wait for. Where the ring cuts a packet of some segments
 * holds the others up no longer than two packets of one; on the kernel's interfaces, where a packet may be a system call, shorter ones would
 * cost the stream a third of its rate. */
#define TURN_SEGMENTS 64u
#define TURN_SHORT 2u
#define TURN_SHORT_CUT 6u
#define TURN_SHORT_HOST 8u
#define TURN_POLL 8u
#define LATELY_NS PV_NS_PER_MS

static struct {
	uint32_t news;
	int64_t until;
} others;

/* A call that may wait. The lock is held but inside op_wait. */
struct op {
	struct pyvma_sock *h;
	struct pv_sock *so;
	uint32_t gen;
	bool may_wait;
	bool timed; /* by the call, not by SO_RCVTIMEO or SO_SNDTIMEO */
	uint32_t stamp; /* of a send: PV_STAMP_TX */
	/* After PV_HANDED: what the call has done before, and the buffers for the rest of it. */
	int64_t done;
	struct pv_iov *rest;
	uint32_t nrest;
	struct pv_wait w;
};

static int64_t now(void)
{
	return pv_clock_now(&pv_engine.clock);
}

/* Of a read: nothing has happened since the poll that ended its wait. */
static int64_t op_now(const struct op *op)
{
	return op->w.begun ? op->w.seen_ns : now();
}

/* Field by field: zeroing what only a wait needs would cost more than the rest of a short call. */
pv_inline void op_begin(struct op *op, struct pyvma_sock *h, struct pv_sock *so, int flags, int64_t timeout_ns, int64_t option_ns)
{
	op->h = h;
	op->so = so;
	op->gen = op->h->gen;
	op->may_wait = timeout_ns != 0 && !(flags & MSG_DONTWAIT) && !pv_sock_nonblock(op->so);
	op->timed = timeout_ns >= 0;
	pv_wait_init(&op->w, &op->so->watch, timeout_ns < 0 && option_ns ? option_ns : timeout_ns);
}

/* 0: try again. Else the call's result; PV_HANDED, and pv_sock_is_over: the stack's socket must not be touched any more. */
static int op_wait(struct op *op)
{
	int rc;

	pv_net_kick(pv_engine.net);
	pv_engine_timers(&pv_engine);
	rc = pv_wait(&pv_engine, &op->w);
	if (op->h->gen != op->gen || pv_handle_sock(op->h) != op->so || !op->so->tc)
		return pv_sock_gone(op->h, op->so, op->gen);
	return rc == -ETIMEDOUT ? -EAGAIN : rc;
}

static void op_end_by(struct op *op, bool reads)
{
	struct pv_sock *so = op->so;

	pv_wait_fini(&pv_engine, &op->w);
	if (op->h->gen != op->gen || !so->tc)
		return;
	if (op->w.begun) {
		so->st->hits += !op->w.sleeps;
		so->st->misses += op->w.sleeps != 0;
		so->st->sleeps += op->w.sleeps;
	}
	/* An event loop reads one socket after the other: its answers leave together, and what this read has posted with them. */
	if (reads && !op->w.begun && pv_net_left(pv_engine.net))
		pv_engine_timers(&pv_engine);
	else
		pv_send_done();
	pv_ready_update(so);
}

static void op_end(struct op *op)
{
	op_end_by(op, false);
}

/* Moves on by `n` bytes; the first entry of `iov` is changed. */
static void advance(struct pv_iov **iov, uint32_t *cnt, size_t n)
{
	while (*cnt && n >= (*iov)->len) {
		n -= (*iov)->len;
		++*iov;
		--*cnt;
	}
	if (n) {
		(*iov)->base = (const char *)(*iov)->base + n;
		(*iov)->len -= n;
	}
}

/* Returns how many bytes the message's buffers have together. */
static size_t copy_iov(struct pv_iov *iov, const struct msghdr *msg)
{
	size_t total = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		iov[i] = (struct pv_iov){ msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len };
		total += iov[i].len;
	}
	return total;
}

static int64_t op_handed(struct op *op, int64_t done, struct pv_iov *iov, uint32_t cnt)
{
	op->done = done;
	op->rest = iov;
	op->nrest = cnt;
	return PV_HANDED;
}

/* A call that had begun goes on by the kernel; one that had not is the caller's to begin there. Without the lock. */
static pv_noinline int64_t op_rest(const struct op *op, bool send, int flags, int64_t timeout_ns)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(void *)op->rest, .msg_iovlen = op->nrest };
	int fd = pv_sock_kfd(op->so);
	int64_t n;

	if (!op->done)
		return PV_HANDED;
	n = send ? pv_kernel_sendmsg(fd, &msg, flags | MSG_NOSIGNAL, timeout_ns) : pv_kernel_recvmsg(fd, &msg, flags, timeout_ns);
	pv_ready_called(op->so);
	return op->done + PV_MAX(n, INT64_C(0));
}

/* ---- send -------------------------------------------------------------------------------------------------------------- */

static uint32_t send_flags(int flags)
{
	return (flags & MSG_OOB ? PV_TCP_MSG_OOB : 0) | (flags & MSG_MORE ? PV_TCP_MSG_MORE : 0) |
	       (flags & MSG_EOR ? PV_TCP_MSG_EOR : 0);
}

/* Have sockets but this one had news since the last time? */
static bool others_news(const struct pv_sock *so)
{
	bool theirs = pv_tcp_news_of_others(pv_engine.tcp, so->tc, others.news);

	others.news = pv_tcp_news(pv_engine.tcp);
	return theirs;
}

/* A look at what has come. True: news of another socket. */
static bool look(struct pv_sock *so, uint32_t budget)
{
	int64_t at = now();

	(void)pv_engine_poll_some(&pv_engine, at, budget);
	if (!others_news(so))
		return false;
	others.until = at + LATELY_NS;
	return true;
}

/* Before a read that does not wait says that there is nothing: as much as one look takes in. While others have had news lately in small
 * pieces, until the socket or another one has something: what lies behind that would keep the program from it. */
static void look_for(struct pv_sock *so)
{
	uint32_t news = pv_tcp_news(pv_engine.tcp), left = pv_engine.rx_budget, n, piece;
	int64_t at = now();
	bool theirs;

	piece = at < others.until ? TURN_POLL : left;
	do {
		n = pv_engine_poll_some(&pv_engine, at, PV_MIN(left, piece));
		left -= PV_MIN(left, n);
		theirs = pv_tcp_news_of_others(pv_engine.tcp, so->tc, news);
	} while (n >= piece && left && !theirs);
	if (theirs)
		others.until = at + LATELY_NS;
}

static uint32_t turn_short(const struct pv_tcp *tc)
{
	if (!pv_tcp_cuts(tc))
		return TURN_SHORT;
	return pv_iface_is_host(pv_tcp_iface(tc)) ? TURN_SHORT_HOST : TURN_SHORT_CUT;
}

/* Is a write to end because of what stands before the peer, and before what others send? An fd that somebody waits for could not tell when
 * it may go on. */
static bool crowded(const struct op *op, int64_t at)
{
	struct pv_sock *so = op->so;

	return at < others.until && !op->may_wait && so->sig_fd < 0 && pv_tcp_in_flight(so->tc) >= LOOK_SEGMENTS &&
	       pv_tcp_holds_back(so->tc, at);
}

/* Before a long write, whose flags learn how many segments a turn has. *news: as look says. False: nothing goes now. */
static bool turn_begin(const struct op *op, uint32_t *how, bool *news)
{
	struct pv_sock *so = op->so;
	int64_t at = now();

	if (others_news(so))
		others.until = at + LATELY_NS;
	*news = pv_tcp_in_flight(so->tc) >= LOOK_SEGMENTS && look(so, pv_engine.rx_budget);
	*how |= PV_TCP_MSG_TURN(at < others.until ? turn_short(so->tc) : TURN_SEGMENTS);
	return !crowded(op, at);
}

/* After a turn that left something. True: the write ends here. */
static bool turn_end(const struct op *op, bool news)
{
	struct pv_sock *so = op->so;

	news |= look(so, TURN_POLL);
	if (crowded(op, now()))
		return true;
	/* An fd that somebody waits for could not tell once more that there is room. */
	if (!news || op->may_wait || so->sig_fd >= 0)
		return false;
	pv_tcp_send_again(so->tc);
	return true;
}

static int64_t looked_ns; /* when a write looked last; engine lock */

static int64_t send_locked(struct op *op, struct pv_iov *iov, uint32_t cnt, size_t total, int flags)
{
	bool polled = false, turns = total >= LOOK_BYTES, news = false;
	struct pv_sock *so = op->so;
	uint32_t how = send_flags(flags) | PV_TCP_MSG_STAMP(op->stamp);
	int64_t sent = 0, n, at = now();
	int rc;

	pv_send_first();
	pv_shown_sends(so);
	/* Whoever only sends little would not hear of the peer's end: a look a millisecond. */
	if (at - looked_ns >= LATELY_NS) {
		looked_ns = at;
		(void)pv_engine_poll(&pv_engine, at);
	}
	if (pv_unlikely(turns) && !turn_begin(op, &how, &news)) {
		pv_shown_refused(&so->st->tx, -EAGAIN);
		return -EAGAIN;
	}
	/* What a look has sent has a later time. */
	if (pv_unlikely(turns))
		at = now();
	for (;; at = now()) {
		n = pv_tcp_send(so->tc, iov, cnt, how, at);
		if (n > 0 || (!n && !total)) {
			sent += n;
			if ((size_t)sent >= total)
				return sent;
			advance(&iov, &cnt, (size_t)n);
			if (turns && !pv_tcp_no_room(so->tc)) {
				/* An error is for the call that has nothing to tell. */
				if (turn_end(op, news) || (pv_tcp_ready_bits(so->tc) & (PV_EV_ERR | PV_EV_HUP)))
					return sent;
				continue;
			}
		} else if (n != -EAGAIN && n != -ENOBUFS) {
			break;
		}
		if (!op->may_wait) {
			/* What makes room may have come; whoever only sends would never see it. */
			if (!sent && !polled) {
				polled = true;
				pv_engine_poll(&pv_engine, now());
				continue;
			}
			n = -EAGAIN;
			break;
		}
		if (n == -ENOBUFS)
			pv_stack_grow(pv_engine.stack);
		op->w.nap_ns = n == -ENOBUFS ? ROOM_NAP_NS : PV_NEVER;
		rc = op_wait(op);
		if (rc == PV_HANDED)
			return op_handed(op, sent, iov, cnt);
		if (pv_sock_is_over(rc))
			return sent ? sent : rc;
		/* With a timeout of the call's own what went is told at once. */
		if (rc || (sent && op->timed)) {
			n = rc;
			break;
		}
		/* An error is for the call that has nothing to tell. */
		if (sent && (pv_tcp_ready_bits(so->tc) & (PV_EV_ERR | PV_EV_HUP)))
			break;
	}
	if (sent)
		return sent;
	pv_shown_refused(&so->st->tx, n);
	return n;
}

/* After it, with what asks for stamps. */
static pv_noinline void send_stamped(const struct op *op, int64_t n, size_t total)
{
	struct pv_sock *so = op->so;

	if (op->h->gen != op->gen || !so->tc)
		return;
	if (n > 0 && (size_t)n < total)
		pv_tcp_stamp_last(so->tc, op->stamp);
	pv_stamp_sent(so);
}

pv_inline int64_t sigpipe(int64_t n, int flags)
{
	if (pv_unlikely(n == -EPIPE) && !(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	return n;
}

static int64_t write_long(struct pyvma_sock *h, struct pv_sock *so, struct pv_iov iov, int flags, int64_t timeout_ns)
{
	size_t len = iov.len;
	struct op op;
	int64_t n;

	if (pv_unlikely(pv_handle_sock(h) != so || !so->tc))
		return pv_sock_lock_failed(h, so);
	op_begin(&op, h, so, flags, timeout_ns, so->sndtimeo_ns);
	op.stamp = so->st->tsflags & PV_STAMP_TX;
	if (pv_unlikely(flags & PYVMA_MSG_BATCH) && !op.may_wait) {
		pv_net_hold(pv_engine.net, true);
		n = send_locked(&op, &iov, 1, len, flags);
		op_end(&op);
		pv_net_hold(pv_engine.net, false);
	} else {
		n = send_locked(&op, &iov, 1, len, flags);
		op_end(&op);
	}
	if (pv_unlikely(op.stamp))
		send_stamped(&op, n, len);
	pv_sock_unlock();
	if (pv_unlikely(n == PV_HANDED))
		return op_rest(&op, true, flags, timeout_ns);
	return sigpipe(n, flags);
}

/* A small message that asks for nothing else, and nothing is in its way: all of it leaves here. */
pv_inline bool write_quick(struct pv_sock *so, const struct pv_iov *iov, int flags)
{
	size_t len = iov->len;
	int64_t at = now();

	if (pv_unlikely(len - 1 >= LOOK_BYTES - 1 || (flags & (MSG_OOB | MSG_MORE | MSG_EOR | PYVMA_MSG_BATCH)) ||
			(so->st->tsflags & PV_STAMP_TX) || at - looked_ns >= LATELY_NS || pv_net_looped(pv_engine.net)))
		return false;
	return pv_tcp_send_quick(so->tc, iov->base, len, at);
}

/* The lock is held, and let go. What the kernel has by now goes on there, with the address that the stack does not look at. */
static pv_noinline int64_t sendto_long(struct pyvma_sock *h, struct pv_sock *so, const struct pv_sendto *m, int flags,
				       int64_t timeout_ns)
{
	int64_t n = write_long(h, so, m->iov, flags, timeout_ns);
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m->iov.base, .iov_len = m->iov.len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_name = (void *)(uintptr_t)m->addr, .msg_namelen = m->addr ? m->addrlen : 0
	};

	return pv_unlikely(n == PV_HANDED) ? pyvma_sock_sendmsg(h, &msg, flags, timeout_ns) : n;
}

int64_t pv_stream_sendto(struct pyvma_sock *h, const struct pv_sendto *m, int flags, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);

	if (pv_unlikely(!so))
		return -EBADF;
	pv_lock_get(&pv_engine.lock);
	if (pv_unlikely(pv_handle_sock(h) != so || !so->tc || !write_quick(so, &m->iov, flags)))
		return sendto_long(h, so, m, flags, timeout_ns);
	pv_shown_sends(so);
	pv_send_done();
	pv_ready_update(so);
	pv_sock_unlock();
	return (int64_t)m->iov.len;
}

/* `iov` is room for the message's entries, which are changed on the way. */
static int64_t send_msg(struct pyvma_sock *h, struct pv_sock *so, const struct msghdr *msg, struct pv_iov *iov, int flags,
			int64_t timeout_ns)
{
	size_t total = copy_iov(iov, msg);
	uint32_t stamp = 0;
	struct op op;
	int64_t bad = msg->msg_controllen ? pv_cmsg_parse_stream(so, msg, &stamp) : 0, n = pv_stream_lock(h, so);

	if (n)
		return n;
	op_begin(&op, h, so, flags, timeout_ns, so->sndtimeo_ns);
	op.stamp = (stamp ? stamp : so->st->tsflags) & PV_STAMP_TX;
	if (op.stamp & PV_STAMP_TX_HW)
		pv_stamp_want_tx();
	/* One that is not connected yet waits, and one that cannot send says so, before what is asked is read (tcp_sendmsg_locked in Linux). */
	n = send_locked(&op, iov, bad ? 0 : (uint32_t)msg->msg_iovlen, bad ? 0 : total, flags);
	op_end(&op);
	if (op.stamp)
		send_stamped(&op, n, total);
	pv_sock_unlock();
	if (bad && (!n || n == PV_HANDED))
		return bad;
	if (pv_unlikely(n == PV_HANDED))
		return op_rest(&op, true, flags, timeout_ns);
	return sigpipe(n, flags);
}

static pv_noinline int64_t send_many(struct pyvma_sock *h, struct pv_sock *so, const struct msghdr *msg, int flags,
				     int64_t timeout_ns)
{
	struct pv_iov iov[UIO_MAXIOV];

	return send_msg(h, so, msg, iov, flags, timeout_ns);
}

int64_t pv_stream_send(struct pyvma_sock *h, struct pv_sock *so, const struct msghdr *msg, int flags, int64_t timeout_ns)
{
	struct pv_iov iov[FEW];

	if (msg->msg_iovlen > UIO_MAXIOV)
		return -EMSGSIZE;
	if (msg->msg_iovlen > FEW)
		return send_many(h, so, msg, flags, timeout_ns);
	return send_msg(h, so, msg, iov, flags, timeout_ns);
}

/* ---- receive ----------------------------------------------------------------------------------------------------------- */

/* Beside the flags of a read: it is to tell when its bytes came. */
#define WITH_STAMP 0x8

/* Must a read that has something end here? An error, the end and the urgent mark are for the next one. */
static bool ends_here(const struct pv_tcp *tc)
{
	return pv_tcp_at_mark(tc) || (!pv_tcp_inq(tc) && (pv_tcp_ready_bits(tc) & (PV_EV_ERR | PV_EV_HUP | PV_EV_RDHUP)));
}

/* And one that has seen the `n` bytes before these, and left them there? */
static bool peek_ends(const struct pv_tcp *tc, int64_t n)
{
	return pv_tcp_mark_after(tc, (uint32_t)n) || (pv_tcp_ready_bits(tc) & (PV_EV_ERR | PV_EV_HUP | PV_EV_RDHUP));
}

/* So many bytes end a read that waits (sock_rcvlowat in Linux). */
pv_inline size_t wanted(const struct pv_sock *so, size_t total, int flags)
{
	return flags & MSG_WAITALL ? total : PV_MIN(total, (size_t)PV_MAX(pv_tcp_options(so->tc)->rcvlowat, 1));
}

/* What wakes a reader is as much as SO_RCVLOWAT says, whatever it has taken before (tcp_data_ready in Linux). */
static bool wakes(struct pv_sock *so)
{
	return pv_likely(pv_tcp_options(so->tc)->rcvlowat <= 1) ||
	       (pv_tcp_ready_bits(so->tc) & (PV_EV_IN | PV_EV_PRI | PV_EV_ERR | PV_EV_HUP | PV_EV_RDHUP));
}

static int read_wait(struct op *op)
{
	int rc;

	do
		rc = op_wait(op);
	while (!rc && !wakes(op->so));
	return rc;
}

static int64_t recv_locked(struct op *op, struct pv_iov *iov, uint32_t cnt, size_t total, int flags)
{
	uint32_t how = (flags & MSG_OOB ? PV_TCP_MSG_OOB : 0) | (flags & MSG_PEEK ? PV_TCP_MSG_PEEK : 0) |
		       (flags & MSG_TRUNC ? PV_TCP_MSG_TRUNC : 0) | (flags & WITH_STAMP ? PV_TCP_MSG_RX_STAMP : 0);
	bool peek = flags & MSG_PEEK, polled = false;
	struct pv_sock *so = op->so;
	size_t want = flags & MSG_OOB ? 1 : wanted(so, total, flags);
	int64_t got = 0, n;
	int rc;

	pv_shown_receives(so);
	/* The urgent byte is there or it is not (tcp_recv_urg in Linux). */
	if (flags & MSG_OOB)
		op->may_wait = false;
	for (;;) {
		if (got && ends_here(so->tc))
			return got;
		n = pv_tcp_recv(so->tc, iov, cnt, how, op_now(op));
		if (n > 0 && peek && ((size_t)n >= want || !op->may_wait || peek_ends(so->tc, n)))
			return n;
		if (n > 0 && !peek) {
			got += n;
			if ((size_t)got >= want)
				return got;
			advance(&iov, &cnt, (size_t)n);
			continue;
		}
		/* That there is no urgent byte is known when the ring has been looked at. */
		if (n <= 0 && n != -EAGAIN && (n != -EINVAL || !(flags & MSG_OOB) || polled))
			break;
		if (!op->may_wait) {
			if (polled)
				break;
			polled = true;
			look_for(so);
			continue;
		}
		rc = read_wait(op);
		if (rc == PV_HANDED)
			return op_handed(op, got, iov, cnt);
		if (pv_sock_is_over(rc))
			return got ? got : rc;
		/* A read of nothing waits as long as the option says, and that is no error (tcp_recvmsg_locked in Linux). */
		if (rc == -EAGAIN && !total && op->w.timeout_ns == so->rcvtimeo_ns)
			return 0;
		/* Less than would have ended the wait may have come meanwhile. */
		if (rc == -EAGAIN || (rc == -EINTR && pv_tcp_inq(so->tc))) {
			op->may_wait = false;
			polled = true;
			continue;
		}
		if (rc) {
			n = rc;
			break;
		}
	}
	if (got || n >= 0)
		return got ? got : n;
	pv_shown_refused(&so->st->rx, n);
	return n;
}

int64_t pv_stream_read_on(struct pyvma_sock *h, struct pv_sock *so, void *buf, size_t len, int flags, int64_t timeout_ns)
{
	struct pv_iov iov = { buf, len };
	struct op op;
	int64_t n;

	op_begin(&op, h, so, flags, timeout_ns, so->rcvtimeo_ns);
	n = recv_locked(&op, &iov, 1, len, flags);
	op_end_by(&op, true);
	pv_sock_unlock();
	return pv_unlikely(n == PV_HANDED) ? op_rest(&op, false, flags, timeout_ns) : n;
}

int64_t pv_stream_read_as(struct pyvma_sock *h, struct pv_sock *so, void *buf, size_t len, int flags, int64_t timeout_ns)
{
	struct iovec one = { buf, len };
	int rc;

	if (pv_unlikely(flags & MSG_ERRQUEUE))
		return pv_errq_recv(h, so, &(struct msghdr){ .msg_iov = &one, .msg_iovlen = 1 });
	rc = pv_stream_lock(h, so);
	return rc ? rc : pv_stream_read_on(h, so, buf, len, flags, timeout_ns);
}

/* The time of the segment that the bytes end in, if there are any, and what is left (TCP_INQ). */
static void put_stamp(struct pv_sock *so, struct msghdr *msg, bool some)
{
	struct pv_tcp_rx_stamp r;
	size_t used = 0;

	if (some && so->rx_flags && so->tc && pv_tcp_rx_stamp(so->tc, &r)) {
		struct pv_stamp_told t = { .ns = r.ns, .raw = r.raw, .iface = r.iface, .is_raw = r.is_raw, .sent = false };

		pv_stamp_put(so, &t, msg, &used);
	}
	if (so->tc && so->inq) {
		int inq = (int)PV_MIN(pv_tcp_inq(so->tc), (uint32_t)INT32_MAX);

		/* The end counts as a byte (tcp_inq_hint of Linux). */
		if (!inq && (pv_tcp_ready_bits(so->tc) & (PV_EV_RDHUP | PV_EV_HUP)))
			inq = 1;
		pv_cmsg_put(msg, &used, IPPROTO_TCP, TCP_CM_INQ, &inq, sizeof(inq));
	}
	msg->msg_controllen = used;
}

static int64_t recv_msg(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg, struct pv_iov *iov, int flags,
			int64_t timeout_ns)
{
	size_t total = copy_iov(iov, msg), room = msg->msg_controllen;
	struct op op;
	int64_t n = pv_stream_lock(h, so);

	if (n)
		return n;
	op_begin(&op, h, so, flags, timeout_ns, so->rcvtimeo_ns);
	n = recv_locked(&op, iov, (uint32_t)msg->msg_iovlen, total, so->rx_flags ? flags | WITH_STAMP : flags & ~WITH_STAMP);
	op_end(&op);
	if (n >= 0) {
		msg->msg_namelen = 0;
		msg->msg_controllen = 0;
		msg->msg_flags = flags & (MSG_CMSG_CLOEXEC | MSG_OOB);
	}
	if (n >= 0 && ((n && so->rx_flags) || so->inq)) {
		msg->msg_controllen = room;
		put_stamp(so, msg, n > 0);
	}
	pv_sock_unlock();
	return pv_unlikely(n == PV_HANDED) ? op_rest(&op, false, flags, timeout_ns) : n;
}

static pv_noinline int64_t recv_many(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg, int flags, int64_t timeout_ns)
{
	struct pv_iov iov[UIO_MAXIOV];

	return recv_msg(h, so, msg, iov, flags, timeout_ns);
}

int64_t pv_stream_recv(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg, int flags, int64_t timeout_ns)
{
	struct pv_iov iov[FEW];

	if (msg->msg_iovlen > UIO_MAXIOV)
		return -EMSGSIZE;
	if (flags & MSG_ERRQUEUE)
		return pv_errq_recv(h, so, msg);
	if (msg->msg_iovlen > FEW)
		return recv_many(h, so, msg, flags, timeout_ns);
	return recv_msg(h, so, msg, iov, flags, timeout_ns);
}

/* ---- lending ----------------------------------------------------------------------------------------------------------- */

/* What is there, up to the urgent mark, as far as any read goes. *rc: what there is when nothing is. */
static uint32_t lend_queued(struct pv_sock *so, struct pyvma_msg *msgs, uint32_t n, int64_t *rc)
{
	uint32_t done = 0;

	*rc = -EAGAIN;
	/* A take that finds nothing says why, and an error is said once: it is for the call that has nothing to bring. */
	while (done < n && (!done || pv_tcp_inq(so->tc))) {
		struct pv_pkt *pkt = pv_tcp_take(so->tc, now(), rc);

		if (!pkt)
			break;
		msgs[done] = (struct pyvma_msg){ .len = pkt->len };
		pv_batch_lend(&msgs[done++], pkt);
	}
	return done;
}

static int64_t lend_locked(struct op *op, struct pyvma_msg *msgs, uint32_t n)
{
	bool polled = false;
	uint32_t room, got;
	int64_t rc;
	int end;

	pv_shown_receives(op->so);
	for (;;) {
		room = pv_batch_may_lend();
		if (!room)
			return -ENOBUFS;
		rc = -EAGAIN;
		got = 0;
		if (!op->may_wait || !pv_tcp_inq(op->so->tc) || wakes(op->so))
			got = lend_queued(op->so, msgs, PV_MIN(n, room), &rc);
		if (got || rc >= 0)
			return got ? (int64_t)got : rc;
		if (rc != -EAGAIN)
			break;
		if (!op->may_wait) {
			if (polled)
				break;
			polled = true;
			pv_engine_poll(&pv_engine, now());
			continue;
		}
		end = read_wait(op);
		if (end == PV_HANDED || pv_sock_is_over(end))
			return end;
		if (end == -EAGAIN) {
			op->may_wait = false;
			polled = true;
		} else if (end) {
			rc = end;
			break;
		}
	}
	pv_shown_refused(&op->so->st->rx, rc);
	return rc;
}

int64_t pv_stream_lend(struct pyvma_sock *h, struct pv_sock *so, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns)
{
	struct op op;
	int64_t rc = pv_stream_lock(h, so);

	if (rc)
		return rc;
	op_begin(&op, h, so, flags, timeout_ns, so->rcvtimeo_ns);
	rc = lend_locked(&op, msgs, n);
	op_end(&op);
	pv_sock_unlock();
	return rc;
}
