/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on streams: each call, with the flags and arguments that Linux knows and some that it does not, in each state of a socket, and
 * what the socket says of itself afterwards. The kernel's sockets on loopback are the oracle.
 */
#include "sock_states.h"

static struct note kernel_notes[LOG_MAX], our_notes[LOG_MAX];
static struct notes *out;

/* ---- what is seen of a socket ------------------------------------------------------------------------------------------ */

/* Until what was sent is acknowledged and nothing is under way, or for a moment. */
static void settle(struct sk s)
{
	int n = 1;

	for (int i = 0; i < 200; i++) {
		int state = sk_state(s);

		sk_poll(s, 0, 0);
		if (sk_ioctl(s, SIOCOUTQ, &n) || (!n && i >= 5) || state == PV_TCP_CLOSED)
			break;
		usleep(i < 20 ? 10 : 1000);
	}
}

static void look(struct sk s, const char *when)
{
	settle(s);
	static const struct {
		const char *name;
		unsigned long number;
	} asked[] = {
		{ "FIONREAD", FIONREAD }, { "SIOCOUTQ", SIOCOUTQ }, { "SIOCOUTQNSD", SIOCOUTQNSD }, { "SIOCATMARK", SIOCATMARK }
	};
	struct any_addr a;
	int rc;

	for (size_t i = 0; i < pv_array_size(asked); i++) {
		int n = -77;

		note(out, sk_ioctl(s, asked[i].number, &n), "%s: %s", when, asked[i].name);
		note(out, n, "%s: %s value", when, asked[i].name);
	}
	note(out, sk_poll(s, ALL_EVENTS, 0), "%s: poll", when);
	note(out, sk_state(s), "%s: state", when);
	note(out, sk_int(s, SOL_SOCKET, SO_ACCEPTCONN), "%s: SO_ACCEPTCONN", when);
	rc = sk_name(s, &a);
	note(out, rc ? rc : (int)a.len, "%s: getsockname", when);
	if (!rc)
		note(out, addr_port(&a) != 0, "%s: has a port", when);
	if (!rc && a.ss.ss_family == AF_INET)
		note(out, ((struct sockaddr_in *)&a.ss)->sin_addr.s_addr != 0, "%s: has an address", when);
	if (!rc && a.ss.ss_family == AF_INET6)
		note(out, !IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&a.ss)->sin6_addr), "%s: has an address", when);
	rc = sk_peer(s, &a);
	note(out, rc ? rc : (int)a.len, "%s: getpeername", when);
	note(out, sk_int(s, SOL_SOCKET, SO_ERROR), "%s: SO_ERROR", when);
	note(out, sk_int(s, SOL_SOCKET, SO_ERROR), "%s: SO_ERROR again", when);
	note(out, sk_poll(s, ALL_EVENTS, 0), "%s: poll again", when);
}

/* ---- calls ------------------------------------------------------------------------------------------------------------- */

static const struct side *side_now;
static int family_now;

static struct any_addr there(int port)
{
	return ip(side_addr(side_now, family_now), port);
}

static void call_nothing(struct rig *r)
{
	(void)r;
}

static void call_connect(struct rig *r)
{
	struct any_addr addr;
	struct sk l = stream_listener(side_now, family_now, 8, &addr);
	int rc = sk_connect(r->s, addr);

	note(out, rc, ": connect");
	for (int i = 0; i < 2; i++) {
		if (rc == -EINPROGRESS)
			await_events(r->s, POLLOUT);
		rc = sk_connect(r->s, addr);
		note(out, rc, ": connect again");
	}
	look(r->s, " connected");
	sk_close(l);
}

static void call_connect_oddly(struct rig *r)
{
	struct any_addr addr = there(9), odd = addr;

	odd.len = 3;
	note(out, sk_connect(r->s, odd), ": connect, address of 3 bytes");
	odd.len = 0;
	note(out, sk_connect(r->s, odd), ": connect, address of 0 bytes");
	odd = addr;
	odd.ss.ss_family = AF_UNIX;
	note(out, sk_connect(r->s, odd), ": connect, AF_UNIX");
	note(out, sk_connect(r->s, ip(family_now == AF_INET ? "::1" : "127.0.0.1", 9)), ": connect, other family");
	note(out, sk_connect(r->s, ip(family_now == AF_INET ? "224.0.0.5" : "ff05::5", 9)), ": connect to a group");
}

static void call_disconnect(struct rig *r)
{
	note(out, sk_disconnect(r->s), ": disconnect");
	look(r->s, " disconnected");
	call_connect(r);
}

static void call_bind(struct rig *r)
{
	struct any_addr a = there(0), odd = a;

	odd.len = 3;
	note(out, sk_bind(r->s, odd), ": bind, address of 3 bytes");
	odd = a;
	odd.ss.ss_family = AF_UNIX;
	note(out, sk_bind(r->s, odd), ": bind, AF_UNIX");
	note(out, sk_bind(r->s, a), ": bind");
	note(out, sk_bind(r->s, a), ": bind again");
}

static void call_listen(struct rig *r)
{
	static const int backlogs[] = { -1, 0, 1, INT32_MAX };

	for (size_t i = 0; i < pv_array_size(backlogs); i++)
		note(out, sk_listen(r->s, backlogs[i]), ": listen %d", backlogs[i]);
}

static void call_accept(struct rig *r)
{
	struct sk s;
	struct any_addr from = { .len = 0 };

	note(out, sk_accept(r->s, 0x40000000, NULL, &s), ": accept, odd flags");
	for (int i = 0; i < 2; i++) {
		int rc = sk_accept(r->s, SOCK_NONBLOCK, &from, &s);

		note(out, rc, ": accept");
		if (rc)
			continue;
		note(out, from.len, ": accept, length of the name");
		note(out, sk_state(s), ": accept, state");
		note(out, sk_recv(s, &rc, 1, 0), ": accept, does not wait");
		sk_close(s);
	}
}

static void shut(struct rig *r, int how)
{
	note(out, sk_shutdown(r->s, how), ": shutdown %d", how);
	look(r->s, " shut down");
	note(out, sk_shutdown(r->s, how), ": shutdown %d again", how);
	note(out, sk_shutdown(r->s, SHUT_RDWR), ": shutdown of both");
	look(r->s, " shut down for good");
}

static void call_shutdown_r(struct rig *r)
{
	shut(r, SHUT_RD);
}

static void call_shutdown_w(struct rig *r)
{
	shut(r, SHUT_WR);
}

static void call_shutdown_rw(struct rig *r)
{
	shut(r, SHUT_RDWR);
}

static void call_shutdown_oddly(struct rig *r)
{
	shut(r, 3);
	shut(r, -1);
}

struct flag {
	const char *name;
	int value;
};
#define F(name)                                                                                                                    \
	{                                                                                                                          \
#name, name                                                                                                        \
	}

static void call_send(struct rig *r)
{
	static const struct flag flags[] = {
		{ "0", 0 },    F(MSG_DONTWAIT),  F(MSG_NOSIGNAL), F(MSG_MORE),  F(MSG_EOR),
		F(MSG_OOB),    F(MSG_DONTROUTE), F(MSG_CONFIRM),  F(MSG_PEEK),  F(MSG_TRUNC),
		F(MSG_CTRUNC), F(MSG_WAITALL),   F(MSG_ERRQUEUE), F(MSG_PROXY), { "0x20000", 0x20000 },
	};

	for (size_t i = 0; i < pv_array_size(flags); i++) {
		note(out, sk_send(r->s, "x", 1, flags[i].value), ": send %s", flags[i].name);
		settle(r->s); /* where it is answered by a reset the next one knows */
		note(out, sk_send(r->s, "x", 0, flags[i].value), ": send nothing, %s", flags[i].name);
	}
}

static void call_sendto(struct rig *r)
{
	struct any_addr a = there(9), odd = a;
	struct iovec iov[3] = { { (char *)"ab", 2 }, { NULL, 0 }, { (char *)"c", 1 } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 3 };

	odd.len = 2;
	note(out, sk_sendto(r->s, "x", 1, 0, a), ": sendto");
	settle(r->s);
	note(out, sk_sendto(r->s, "x", 1, 0, odd), ": sendto, short address");
	note(out, sk_sendmsg(r->s, &m, 0), ": sendmsg");
	m.msg_iovlen = 0;
	note(out, sk_sendmsg(r->s, &m, 0), ": sendmsg of nothing");
	m.msg_iovlen = 1025;
	note(out, sk_sendmsg(r->s, &m, 0), ": sendmsg of too many");
}

static void call_recv(struct rig *r)
{
	static const struct flag flags[] = {
		F(MSG_PEEK),      F(MSG_TRUNC | MSG_PEEK),   F(MSG_ERRQUEUE), F(MSG_OOB | MSG_PEEK), F(MSG_OOB), F(MSG_OOB),
		F(MSG_DONTROUTE), F(MSG_NOSIGNAL),           F(MSG_TRUNC),    F(MSG_WAITALL),        { "0", 0 }, F(MSG_CTRUNC),
		F(MSG_EOR),       F(MSG_WAITALL | MSG_PEEK),
	};
	char buf[4];

	for (size_t i = 0; i < pv_array_size(flags); i++) {
		int64_t n;

		memset(buf, 0, sizeof(buf));
		note(out, sk_recv(r->s, buf, 0, flags[i].value | MSG_DONTWAIT), ": recv nothing, %s", flags[i].name);
		n = sk_recv(r->s, buf, 2, flags[i].value | MSG_DONTWAIT);
		note(out, n, ": recv %s", flags[i].name);
		note(out, buf[0], ": recv %s, byte", flags[i].name);
	}
}

static void call_recvmsg(struct rig *r)
{
	char x[1], y[3], control[64];
	struct any_addr from = { .len = 0 };

	for (int i = 0; i < 3; i++) {
		struct iovec iov[3] = { { x, 1 }, { NULL, 0 }, { y, 3 } };
		struct msghdr m = { .msg_name = &from.ss,
				    .msg_namelen = sizeof(from.ss),
				    .msg_iov = iov,
				    .msg_iovlen = 3,
				    .msg_control = control,
				    .msg_controllen = sizeof(control),
				    .msg_flags = -1 };
		int64_t n = sk_recvmsg(r->s, &m, MSG_DONTWAIT);

		note(out, n, ": recvmsg");
		if (n < 0)
			continue;
		note(out, m.msg_flags, ": recvmsg, flags");
		note(out, (int64_t)m.msg_controllen, ": recvmsg, control");
		note(out, m.msg_namelen, ": recvmsg, name");
	}
	note(out, sk_recvfrom(r->s, x, 1, MSG_DONTWAIT, &from), ": recvfrom");
	note(out, from.len, ": recvfrom, name");
	struct msghdr many = { .msg_iovlen = 1025 };

	note(out, sk_recvmsg(r->s, &many, MSG_DONTWAIT), ": recvmsg into too many");
}

static void call_names(struct rig *r)
{
	struct sockaddr_storage ss;
	static const int lens[] = { 0, 1, 2, 8, 16, 28, 128, -1 };

	for (size_t i = 0; i < pv_array_size(lens); i++)
		for (int peer = 0; peer < 2; peer++) {
			socklen_t len = (socklen_t)lens[i];
			struct sockaddr *a = (struct sockaddr *)&ss;
			int rc;

			memset(&ss, 0x5a, sizeof(ss));
			if (peer)
				rc = r->s.h ? pyvma_sock_getpeername(r->s.h, a, &len) : neg(getpeername(r->s.fd, a, &len));
			else
				rc = r->s.h ? pyvma_sock_getsockname(r->s.h, a, &len) : neg(getsockname(r->s.fd, a, &len));
			note(out, rc, ": name %d, room for %d", peer, lens[i]);
			note(out, (int)len, ": name %d, room for %d: length", peer, lens[i]);
			note(out, ((unsigned char *)&ss)[1], ": name %d, room for %d: second byte", peer, lens[i]);
		}
}

static void call_ioctl_oddly(struct rig *r)
{
	int n = 0;

	note(out, sk_ioctl(r->s, FIONREAD, NULL), ": FIONREAD to nowhere");
	note(out, sk_ioctl(r->s, SIOCOUTQ, NULL), ": SIOCOUTQ to nowhere");
	note(out, sk_ioctl(r->s, SIOCATMARK, NULL), ": SIOCATMARK to nowhere");
	note(out, sk_ioctl(r->s, 0x89fe, &n), ": an ioctl that nobody knows");
}

static const struct call {
	const char *name;
	void (*fn)(struct rig *r);
} calls[] = {
	{ "nothing", call_nothing },
	{ "connect", call_connect },
	{ "connect oddly", call_connect_oddly },
	{ "disconnect", call_disconnect },
	{ "bind", call_bind },
	{ "listen", call_listen },
	{ "accept", call_accept },
	{ "shutdown r", call_shutdown_r },
	{ "shutdown w", call_shutdown_w },
	{ "shutdown rw", call_shutdown_rw },
	{ "shutdown oddly", call_shutdown_oddly },
	{ "send", call_send },
	{ "sendto", call_sendto },
	{ "recv", call_recv },
	{ "recvmsg", call_recvmsg },
	{ "names", call_names },
	{ "ioctl oddly", call_ioctl_oddly },
};

static void script(const struct side *side, int family, enum how how, struct notes *l)
{
	out = l;
	side_now = side;
	family_now = family;
	for (size_t i = 0; i < pv_array_size(calls); i++) {
		struct rig r = rig_make(side, family, how);

		CHECK_EQ(sk_nonblock(r.s, 1), 0);
		snprintf(l->where, sizeof(l->where), "%s %d, %s", how_names[how], family == AF_INET ? 4 : 6, calls[i].name);
		calls[i].fn(&r);
		look(r.s, " then");
		rig_close(&r);
	}
}

/* native/doc/tcp.md has the reasons. */
static bool may_differ(const char *what, int64_t kernel, int64_t ours)
{
	/* The kernel goes on telling a port that the socket has given up, and counts from numbers that nobody uses any more. */
	if (strstr(what, "has a port"))
		return kernel == 1 && ours == 0;
	return strstr(what, "SIOCOUTQ") && ours == 0 && (kernel == 2 || kernel == 3 || kernel > 65000);
}

static void compare_in(enum how how)
{
	static const int families[] = { AF_INET, AF_INET6 };
	int bad = 0;

	for (int f = 0; f < 2; f++) {
		struct notes kernel = { .at = kernel_notes }, ours = { .at = our_notes };

		script(&kernel_side, families[f], how, &kernel);
		script(&our_side, families[f], how, &ours);
		bad += notes_differ(&kernel, &ours, may_differ);
		CHECK(kernel.n > 0);
	}
	CHECK_EQ(bad, 0);
}

#define STATE(how, name)                                                                                                           \
	TEST(name)                                                                                                                 \
	{                                                                                                                          \
		compare_in(how);                                                                                                   \
	}
STATE(FRESH, fresh)
STATE(BOUND, bound)
STATE(LISTENING, listening)
STATE(ACCEPTABLE, acceptable)
STATE(CONNECTING, connecting)
STATE(REFUSED, refused)
STATE(OPEN, established)
STATE(ACCEPTED, accepted)
STATE(UNREAD, established_with_data)
STATE(URGENT, established_with_urgent_data)
STATE(SHUT_R, shut_for_reading)
STATE(SHUT_W, shut_for_writing)
STATE(SHUT_RW, shut_for_both)
STATE(PEER_SHUT, shut_by_the_peer)
STATE(PEER_SHUT_UNREAD, shut_by_the_peer_with_data)
STATE(PEER_CLOSED, closed_by_the_peer)
STATE(TIME_WAIT, time_wait)
STATE(CLOSED_LAST, closed_by_both)
STATE(RESET, reset_by_the_peer)
STATE(RESET_UNREAD, reset_with_data)
STATE(RESET_TOLD, reset_and_told)
STATE(SHUT_W_RESET, shut_for_writing_and_reset)
STATE(SHUT_RESET, shut_and_reset_by_the_peer)
STATE(SHUT_RESET_UNREAD, shut_and_reset_with_data)
STATE(CLOSED_RESET, closed_by_the_peer_and_reset)
STATE(CLOSED_RESET_UNREAD, closed_by_the_peer_and_reset_with_data)
STATE(RESET_ACCEPTED, reset_before_it_is_accepted)
STATE(RESET_ACCEPTED_UNREAD, reset_with_data_before_it_is_accepted)
STATE(SHUT_RESET_ACCEPTED, shut_and_reset_before_it_is_accepted)
STATE(DISCONNECTED, disconnected)

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	return test_main(argc, argv);
}
