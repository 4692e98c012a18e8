/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams in every state that a program can bring about, on the kernel's sockets and on ours, and a trace whose entries carry names:
 * what the kernel's says is what ours has to say. See sock_env.h.
 */
#ifndef SOCK_STATES_H
#define SOCK_STATES_H

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <signal.h>
#include <stdarg.h>

#include "base/compiler.h"
#include "sock_env.h"
#include "tcp/tcp.h"

enum how {
	FRESH,
	BOUND,
	LISTENING,
	ACCEPTABLE, /* a listener with a connection to accept */
	CONNECTING, /* to a listener whose queue is full */
	REFUSED, /* the error is pending */
	OPEN, /* established */
	ACCEPTED, /* the same from the other side */
	UNREAD, /* established, ten bytes to read */
	URGENT, /* established, "ab", an urgent byte, "cd" to read */
	SHUT_R, /* half-closed by ourselves for reading */
	SHUT_W, /* for writing: FIN_WAIT_2 */
	SHUT_RW,
	PEER_SHUT, /* by the peer: CLOSE_WAIT */
	PEER_SHUT_UNREAD,
	PEER_CLOSED,
	TIME_WAIT, /* both have closed, we first */
	CLOSED_LAST, /* both have closed, the peer first */
	RESET, /* by the peer; the error is pending */
	RESET_UNREAD, /* with ten bytes to read before the error */
	RESET_TOLD,
	SHUT_W_RESET, /* the same after a half-close of our own */
	SHUT_RESET, /* after the peer's, by the peer: EPIPE is pending */
	SHUT_RESET_UNREAD,
	CLOSED_RESET, /* by the peer's stack, which answers what was sent after the peer had closed */
	CLOSED_RESET_UNREAD,
	RESET_ACCEPTED, /* accepted after the reset */
	RESET_ACCEPTED_UNREAD,
	SHUT_RESET_ACCEPTED, /* accepted after an end and a reset */
	DISCONNECTED, /* was established; connect(AF_UNSPEC) */
	HOWS
};
static const char *const how_names[HOWS] = {
	"fresh",
	"bound",
	"listening",
	"acceptable",
	"connecting",
	"refused",
	"open",
	"accepted",
	"unread",
	"urgent",
	"shut_r",
	"shut_w",
	"shut_rw",
	"peer_shut",
	"peer_shut_unread",
	"peer_closed",
	"time_wait",
	"closed_last",
	"reset",
	"reset_unread",
	"reset_told",
	"shut_w_reset",
	"shut_reset",
	"shut_reset_unread",
	"closed_reset",
	"closed_reset_unread",
	"reset_accepted",
	"reset_accepted_unread",
	"shut_reset_accepted",
	"disconnected",
};

/* The socket that a case is about, and what it takes to have it in that state. */
struct rig {
	struct sk s, peer, listener, filler;
};

/* ---- streams ----------------------------------------------------------------------------------------------------------- */

static __attribute__((unused)) struct sk stream_open(const struct side *side, int family)
{
	struct sk s = { side, -1, NULL };

	if (side->ours) {
		env_start();
		CHECK_EQ(pyvma_sock_open(family, SOCK_STREAM | SOCK_CLOEXEC, 0, &s.h), 0);
		s.fd = pyvma_sock_fd(s.h);
	} else {
		s.fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(s.fd >= 0);
	}
	return s;
}

static __attribute__((unused)) int sk_listen(struct sk s, int backlog)
{
	return s.h ? pyvma_sock_listen(s.h, backlog) : neg(listen(s.fd, backlog));
}

/* 0 or -errno; `flags` as accept4(2). */
static __attribute__((unused)) int sk_accept(struct sk l, int flags, struct any_addr *from, struct sk *out)
{
	*out = (struct sk){ l.side, -1, NULL };
	if (from)
		from->len = sizeof(from->ss);
	if (l.h) {
		int rc = pyvma_sock_accept(l.h, from ? (struct sockaddr *)&from->ss : NULL, from ? &from->len : NULL, flags, -1,
					   &out->h);

		if (!rc)
			out->fd = pyvma_sock_fd(out->h);
		return rc;
	}
	out->fd = accept4(l.fd, from ? (struct sockaddr *)&from->ss : NULL, from ? &from->len : NULL, flags);
	return out->fd < 0 ? -errno : 0;
}

static __attribute__((unused)) int sk_ioctl(struct sk s, unsigned long request, void *arg)
{
	return s.h ? pyvma_sock_ioctl(s.h, request, arg) : neg(ioctl(s.fd, request, arg));
}

static __attribute__((unused)) int sk_int(struct sk s, int level, int name)
{
	int val = 0, rc;
	socklen_t len = sizeof(val);

	rc = sk_get(s, level, name, &val, &len);
	return rc ? rc : val;
}

/* As TCP_INFO tells it. */
static __attribute__((unused)) int sk_state(struct sk s)
{
	struct tcp_info i = { 0 };
	socklen_t len = sizeof(i);
	int rc = sk_get(s, IPPROTO_TCP, TCP_INFO, &i, &len);

	return rc ? rc : i.tcpi_state;
}

#define ALL_EVENTS (POLLIN | POLLPRI | POLLOUT | POLLRDHUP | POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND)

/* Until poll shows all of `events`, which nothing but the other end's segments bring about. */
static __attribute__((unused)) void await_events(struct sk s, int events)
{
	for (int i = 0; i < 30000 && (sk_poll(s, ALL_EVENTS, 0) & events) != events; i++)
		usleep(i < 100 ? 10 : 1000);
	CHECK_EQ(sk_poll(s, ALL_EVENTS, 0) & events, events);
}

static __attribute__((unused)) void await_state(struct sk s, int state)
{
	for (int i = 0; i < 30000 && sk_state(s) != state; i++) {
		sk_poll(s, 0, 0);
		usleep(i < 100 ? 10 : 1000);
	}
	CHECK_EQ(sk_state(s), state);
}

static __attribute__((unused)) void await_inq(struct sk s, int bytes)
{
	int n = -1;

	for (int i = 0; i < 30000 && n != bytes; i++) {
		CHECK_EQ(sk_ioctl(s, FIONREAD, &n), 0);
		usleep(i < 100 ? 10 : 1000);
	}
	CHECK_EQ(n, bytes);
}

/* ---- states ------------------------------------------------------------------------------------------------------------ */

static __attribute__((unused)) struct sk stream_bound(const struct side *side, int family, struct any_addr *addr)
{
	struct sk s = stream_open(side, family);

	CHECK_EQ(sk_bind(s, ip(side_addr(side, family), 0)), 0);
	CHECK_EQ(sk_name(s, addr), 0);
	return s;
}

static __attribute__((unused)) struct sk stream_listener(const struct side *side, int family, int backlog, struct any_addr *addr)
{
	struct sk s = stream_bound(side, family, addr);

	CHECK_EQ(sk_listen(s, backlog), 0);
	return s;
}

static __attribute__((unused)) void rig_pair(struct rig *r, const struct side *side, int family)
{
	struct any_addr addr;

	r->listener = stream_listener(side, family, 8, &addr);
	r->s = stream_open(side, family);
	CHECK_EQ(sk_connect(r->s, addr), 0);
	CHECK_EQ(sk_accept(r->listener, 0, NULL, &r->peer), 0);
}

/* Only a listener whose queue of connections is full lets a SYN of this host go unanswered. */
static __attribute__((unused)) void rig_connecting(struct rig *r, const struct side *side, int family)
{
	struct any_addr addr;

	r->listener = stream_listener(side, family, 0, &addr);
	r->filler = stream_open(side, family);
	CHECK_EQ(sk_connect(r->filler, addr), 0);
	await_events(r->listener, POLLIN);
	r->s = stream_open(side, family);
	CHECK_EQ(sk_nonblock(r->s, 1), 0);
	CHECK_EQ(sk_connect(r->s, addr), -EINPROGRESS);
	sk_poll(r->s, POLLOUT, NS_MS);
}

static __attribute__((unused)) void rig_refused(struct rig *r, const struct side *side, int family)
{
	struct any_addr addr;
	struct sk gone = stream_bound(side, family, &addr);

	CHECK_EQ(sk_close(gone), 0);
	r->s = stream_open(side, family);
	CHECK_EQ(sk_nonblock(r->s, 1), 0);
	CHECK_EQ(sk_connect(r->s, addr), -EINPROGRESS);
	await_events(r->s, POLLERR);
}

static __attribute__((unused)) void peer_sends(struct rig *r, const char *text, int flags)
{
	CHECK_EQ(sk_send(r->peer, text, strlen(text), flags), (int64_t)strlen(text));
}

static __attribute__((unused)) void peer_closes(struct rig *r, bool reset)
{
	struct linger l = { 1, 0 };

	if (reset)
		CHECK_EQ(sk_set(r->peer, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	CHECK_EQ(sk_close(r->peer), 0);
	r->peer = (struct sk){ 0 };
}

/* A reset behind what `how` tells; the error is pending. */
static __attribute__((unused)) void rig_reset(struct rig *r, enum how how)
{
	bool closes = how == CLOSED_RESET || how == CLOSED_RESET_UNREAD;

	if (how == SHUT_W_RESET) {
		CHECK_EQ(sk_shutdown(r->s, SHUT_WR), 0);
		await_state(r->s, PV_TCP_FIN_WAIT_2);
	} else if (how == SHUT_RESET || how == SHUT_RESET_UNREAD) {
		CHECK_EQ(sk_shutdown(r->peer, SHUT_WR), 0);
		await_state(r->s, PV_TCP_CLOSE_WAIT);
	}
	peer_closes(r, !closes);
	if (closes) {
		await_state(r->s, PV_TCP_CLOSE_WAIT);
		CHECK_EQ(sk_send(r->s, "x", 1, 0), 1);
	}
	await_events(r->s, POLLERR);
}

/* The peer's end, and that a timer of a tick has acknowledged it: TCP_QUICKACK, 0 since it came, is 1 again. */
static __attribute__((unused)) void await_end(struct sk s)
{
	await_state(s, PV_TCP_CLOSE_WAIT);
	for (int i = 0; i < 30000 && sk_int(s, IPPROTO_TCP, TCP_QUICKACK) != 1; i++) {
		sk_poll(s, 0, 0);
		usleep(i < 100 ? 10 : 1000);
	}
	CHECK_EQ(sk_int(s, IPPROTO_TCP, TCP_QUICKACK), 1);
}

static __attribute__((unused)) void rig_end(struct rig *r, enum how how)
{
	switch (how) {
	case SHUT_R:
		CHECK_EQ(sk_shutdown(r->s, SHUT_RD), 0);
		break;
	case SHUT_W:
	case SHUT_RW:
		CHECK_EQ(sk_shutdown(r->s, how == SHUT_W ? SHUT_WR : SHUT_RDWR), 0);
		await_state(r->s, PV_TCP_FIN_WAIT_2);
		break;
	case PEER_SHUT:
		CHECK_EQ(sk_shutdown(r->peer, SHUT_WR), 0);
		await_end(r->s);
		break;
	case PEER_CLOSED:
		peer_closes(r, false);
		await_end(r->s);
		break;
	case TIME_WAIT:
		CHECK_EQ(sk_shutdown(r->s, SHUT_WR), 0);
		await_state(r->s, PV_TCP_FIN_WAIT_2);
		CHECK_EQ(sk_shutdown(r->peer, SHUT_WR), 0);
		await_events(r->s, POLLHUP);
		break;
	case CLOSED_LAST:
		CHECK_EQ(sk_shutdown(r->peer, SHUT_WR), 0);
		await_end(r->s);
		CHECK_EQ(sk_shutdown(r->s, SHUT_WR), 0);
		await_state(r->s, PV_TCP_CLOSED);
		break;
	case RESET:
	case RESET_UNREAD:
	case RESET_TOLD:
		peer_closes(r, true);
		await_events(r->s, POLLERR);
		if (how == RESET_TOLD)
			CHECK_EQ(sk_int(r->s, SOL_SOCKET, SO_ERROR), ECONNRESET);
		break;
	case SHUT_W_RESET:
	case SHUT_RESET:
	case SHUT_RESET_UNREAD:
	case CLOSED_RESET:
	case CLOSED_RESET_UNREAD:
		rig_reset(r, how);
		break;
	case DISCONNECTED:
		CHECK_EQ(sk_disconnect(r->s), 0);
		break;
	default:
		break;
	}
}

/* What happens to a connection before it is accepted. */
static __attribute__((unused)) void rig_accepted_late(struct rig *r, const struct side *side, int family, enum how how)
{
	struct any_addr addr;

	r->listener = stream_listener(side, family, 8, &addr);
	r->peer = stream_open(side, family);
	CHECK_EQ(sk_connect(r->peer, addr), 0);
	await_events(r->listener, POLLIN);
	if (how == RESET_ACCEPTED_UNREAD)
		peer_sends(r, "0123456789", 0);
	else if (how == SHUT_RESET_ACCEPTED)
		CHECK_EQ(sk_shutdown(r->peer, SHUT_WR), 0);
	for (int i = 0; i < 100; i++)
		sk_poll(r->listener, 0, 0);
	peer_closes(r, true);
	for (int i = 0; i < 100; i++)
		sk_poll(r->listener, 0, 0);
	CHECK_EQ(sk_accept(r->listener, 0, NULL, &r->s), 0);
	await_events(r->s, POLLERR);
}

static __attribute__((unused)) struct rig rig_make(const struct side *side, int family, enum how how)
{
	struct rig r = { 0 };
	struct any_addr addr;

	switch (how) {
	case FRESH:
		r.s = stream_open(side, family);
		return r;
	case BOUND:
		r.s = stream_bound(side, family, &addr);
		return r;
	case LISTENING:
	case ACCEPTABLE:
		r.s = stream_listener(side, family, 8, &addr);
		if (how == ACCEPTABLE) {
			r.peer = stream_open(side, family);
			CHECK_EQ(sk_connect(r.peer, addr), 0);
			await_events(r.s, POLLIN);
		}
		return r;
	case CONNECTING:
		rig_connecting(&r, side, family);
		return r;
	case REFUSED:
		rig_refused(&r, side, family);
		return r;
	case RESET_ACCEPTED:
	case RESET_ACCEPTED_UNREAD:
	case SHUT_RESET_ACCEPTED:
		rig_accepted_late(&r, side, family, how);
		return r;
	default:
		rig_pair(&r, side, family);
	}
	if (how == ACCEPTED) {
		struct sk s = r.s;

		r.s = r.peer;
		r.peer = s;
	}
	if (how == UNREAD || how == PEER_SHUT_UNREAD || how == RESET_UNREAD || how == SHUT_RESET_UNREAD ||
	    how == CLOSED_RESET_UNREAD) {
		peer_sends(&r, "0123456789", 0);
		await_inq(r.s, 10);
	} else if (how == URGENT) {
		peer_sends(&r, "ab", 0);
		peer_sends(&r, "!", MSG_OOB);
		peer_sends(&r, "cd", 0);
		await_events(r.s, POLLPRI);
		for (int i = 0; i < 100; i++) /* the last two bytes */
			sk_poll(r.s, 0, 0);
	}
	rig_end(&r, how == PEER_SHUT_UNREAD ? PEER_SHUT : how);
	return r;
}

static __attribute__((unused)) void rig_close(struct rig *r)
{
	struct linger l = { 1, 0 };
	struct sk *all[] = { &r->s, &r->peer, &r->filler, &r->listener };

	for (size_t i = 0; i < pv_array_size(all); i++) {
		if (!all[i]->side)
			continue;
		sk_set(*all[i], SOL_SOCKET, SO_LINGER, &l, sizeof(l)); /* ports are free again at once */
		sk_close(*all[i]);
	}
	*r = (struct rig){ 0 };
}

/* ---- traces with names ------------------------------------------------------------------------------------------------- */

#define LOG_MAX 65536

struct note {
	int64_t value;
	char what[72];
};

struct notes {
	struct note *at;
	int n;
	char where[48];
};

static __attribute__((unused, format(printf, 3, 4))) void note(struct notes *l, int64_t value, const char *format, ...)
{
	struct note *e = &l->at[l->n++];
	va_list args;
	int n = snprintf(e->what, sizeof(e->what), "%s", l->where);

	CHECK(l->n < LOG_MAX);
	va_start(args, format);
	vsnprintf(e->what + n, sizeof(e->what) - (size_t)n, format, args);
	va_end(args);
	e->value = value;
}

/* Says which entries differ; returns how many do that `may` does not know. */
static __attribute__((unused)) int notes_differ(const struct notes *kernel, const struct notes *ours,
						bool (*may)(const char *what, int64_t kernel, int64_t ours))
{
	int bad = 0;

	for (int i = 0; i < kernel->n && i < ours->n; i++) {
		const struct note *k = &kernel->at[i], *o = &ours->at[i];

		if (strcmp(k->what, o->what)) {
			fprintf(stderr, "  kernel: %s = %lld, ours: %s = %lld\n", k->what, (long long)k->value, o->what,
				(long long)o->value);
			return bad + 1;
		}
		if (k->value == o->value || may(k->what, k->value, o->value))
			continue;
		fprintf(stderr, "  %s: kernel %lld, ours %lld\n", k->what, (long long)k->value, (long long)o->value);
		bad++;
	}
	return bad + (kernel->n != ours->n);
}

#endif
