/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of streams: each option, with values inside and outside of what Linux takes and with lengths that are right and wrong, in each
 * state of a socket. Result, errno, and what is read back afterwards are the kernel's.
 */
#include "sock_states.h"

/* Neither linux/tcp.h nor sys/socket.h of every system has them all. */
#ifndef SO_MAX_PACING_RATE
#define SO_MAX_PACING_RATE 47
#endif

struct option {
	const char *name;
	int level, number;
	int64_t min, max; /* what Linux takes */
};
#define O(level, name, min, max)                                                                                                   \
	{                                                                                                                          \
#name, level, name, min, max                                                                                       \
	}

static const struct option options[] = {
	O(IPPROTO_TCP, TCP_NODELAY, 0, 1),
	O(IPPROTO_TCP, TCP_CORK, 0, 1),
	O(IPPROTO_TCP, TCP_QUICKACK, 0, 1),
	O(IPPROTO_TCP, TCP_MAXSEG, 88, 32767),
	O(IPPROTO_TCP, TCP_KEEPIDLE, 1, 32767),
	O(IPPROTO_TCP, TCP_KEEPINTVL, 1, 32767),
	O(IPPROTO_TCP, TCP_KEEPCNT, 1, 127),
	O(IPPROTO_TCP, TCP_SYNCNT, 1, 127),
	O(IPPROTO_TCP, TCP_LINGER2, 0, 120),
	O(IPPROTO_TCP, TCP_DEFER_ACCEPT, 0, 600),
	O(IPPROTO_TCP, TCP_WINDOW_CLAMP, 1152, 1 << 20),
	O(IPPROTO_TCP, TCP_USER_TIMEOUT, 0, INT32_MAX),
	O(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0, 1 << 20),
	O(SOL_SOCKET, SO_REUSEADDR, 0, 1),
	O(SOL_SOCKET, SO_REUSEPORT, 0, 1),
	O(SOL_SOCKET, SO_KEEPALIVE, 0, 1),
	O(SOL_SOCKET, SO_OOBINLINE, 0, 1),
	O(SOL_SOCKET, SO_RCVBUF, 2304, 4194304),
	O(SOL_SOCKET, SO_SNDBUF, 4608, 4194304),
	O(SOL_SOCKET, SO_RCVLOWAT, 0, 65536),
	O(SOL_SOCKET, SO_SNDLOWAT, 1, 1),
	O(SOL_SOCKET, SO_ERROR, 0, 0),
	O(SOL_SOCKET, SO_TYPE, 1, 1),
	O(SOL_SOCKET, SO_DOMAIN, 1, 1),
	O(SOL_SOCKET, SO_PROTOCOL, 1, 1),
	O(SOL_SOCKET, SO_ACCEPTCONN, 0, 1),
	O(SOL_SOCKET, SO_PRIORITY, 0, 6),
	O(SOL_SOCKET, SO_BROADCAST, 0, 1),
	O(SOL_SOCKET, SO_DONTROUTE, 0, 1),
	O(SOL_SOCKET, SO_MAX_PACING_RATE, 0, INT32_MAX),
	O(SOL_SOCKET, 9999, 0, 1),
	O(IPPROTO_TCP, 9999, 0, 1),
	O(9999, 1, 0, 1),
	O(IPPROTO_IP, IP_TTL, 1, 255),
	O(IPPROTO_IP, IP_TOS, 0, 255),
	O(IPPROTO_IP, IP_MTU_DISCOVER, 0, 5),
	O(IPPROTO_IP, IP_RECVERR, 0, 1),
	O(IPPROTO_IPV6, IPV6_RECVERR, 0, 1),
	O(IPPROTO_IPV6, IPV6_UNICAST_HOPS, -1, 255),
	O(IPPROTO_IPV6, IPV6_TCLASS, -1, 255),
	O(IPPROTO_IPV6, IPV6_V6ONLY, 0, 1),
	O(IPPROTO_UDP, 1, 0, 1),
};

static void get_one(struct notes *l, struct sk s, const struct option *o, const char *what)
{
	int val = -77;
	socklen_t len = sizeof(val);
	int rc = sk_get(s, o->level, o->number, &val, &len);

	note(l, rc, "%s: get", what);
	if (!rc) {
		note(l, len, "%s: length", what);
		note(l, val, "%s: value", what);
	}
}

static void set_one(struct notes *l, struct sk s, const struct option *o, int64_t val)
{
	int v = (int)val;
	char what[24];

	snprintf(what, sizeof(what), " %d", v);
	note(l, sk_set(s, o->level, o->number, &v, sizeof(v)), "%s: set", what);
	get_one(l, s, o, what);
}

static void values(struct notes *l, struct sk s, const struct option *o)
{
	const int64_t all[] = { o->min, o->max, o->min - 1, o->max + 1, -1, 0, 1, 2, 100, INT32_MIN, INT32_MAX };

	get_one(l, s, o, " as it is");
	for (size_t i = 0; i < pv_array_size(all); i++)
		set_one(l, s, o, all[i]);
}

static void lengths(struct notes *l, struct sk s, const struct option *o)
{
	static const int set_lens[] = { 0, 1, 2, 3, 8, 100, -1 }, get_lens[] = { 0, 1, 2, 3, 8, 100, -1, INT32_MIN };
	static const int max_set = 100;
	char buf[128];

	for (size_t i = 0; i < pv_array_size(set_lens); i++) {
		memset(buf, 0, sizeof(buf));
		buf[0] = 1;
		buf[1] = o->number == SO_MAX_PACING_RATE; /* a rate that ours takes */
		note(l, sk_set(s, o->level, o->number, buf, (socklen_t)set_lens[i]), " set with %d bytes", set_lens[i]);
		get_one(l, s, o, " then");
	}
	note(l, sk_set(s, o->level, o->number, NULL, sizeof(int)), " set from NULL");
	note(l, sk_set(s, o->level, o->number, NULL, 0), " set none from NULL");
	note(l, sk_set(s, o->level, o->number, NULL, (socklen_t)max_set), " set much from NULL");
	for (size_t i = 0; i < pv_array_size(get_lens); i++) {
		socklen_t len = (socklen_t)get_lens[i];
		int rc;

		memset(buf, 0x5a, sizeof(buf));
		rc = sk_get(s, o->level, o->number, buf, &len);
		note(l, rc, " get %d bytes", get_lens[i]);
		if (rc)
			continue;
		note(l, len, " get %d bytes: length", get_lens[i]);
		for (int b = 0; b < 5; b++)
			note(l, (unsigned char)buf[b], " get %d bytes: byte %d", get_lens[i], b);
	}
	note(l, sk_get(s, o->level, o->number, buf, NULL), " get without a length");
}

/* ---- options that are not an int ----------------------------------------------------------------------------------------- */

struct bytes {
	const void *at;
	int len;
};

static void get_bytes(struct notes *l, struct sk s, const struct option *o, int room, int show)
{
	unsigned char buf[512];
	socklen_t len = (socklen_t)room;
	int rc;

	memset(buf, 0x5a, sizeof(buf));
	rc = sk_get(s, o->level, o->number, buf, &len);
	note(l, rc, " get %d bytes", room);
	if (rc)
		return;
	note(l, len, " get %d bytes: length", room);
	for (int b = 0; b < show; b++)
		note(l, buf[b], " get %d bytes: byte %d", room, b);
}

static void others(struct notes *l, struct sk s, const struct option *o, const struct bytes *vals, int n, int show)
{
	static const int rooms[] = { 0, 1, 4, 7, 8, 15, 16, 17, 100, -1 };
	size_t where = strlen(l->where);

	snprintf(l->where + where, sizeof(l->where) - where, " %s", o->name);
	for (int i = 0; i < n; i++) {
		note(l, sk_set(s, o->level, o->number, vals[i].at, (socklen_t)vals[i].len), " set %d", i);
		get_bytes(l, s, o, 16, show);
	}
	note(l, sk_set(s, o->level, o->number, NULL, 16), " set from NULL");
	note(l, sk_set(s, o->level, o->number, NULL, 0), " set nothing");
	for (size_t i = 0; i < pv_array_size(rooms); i++)
		get_bytes(l, s, o, rooms[i], PV_MIN(show, 16));
	l->where[where] = '\0';
}

static void lingers(struct notes *l, struct sk s)
{
	static const struct linger v[] = { { 1, 5 }, { 1, 0 }, { 0, 7 }, { 2, 3 }, { -1, 1 }, { 1, INT32_MAX }, { 0, 0 } };
	struct bytes b[pv_array_size(v) + 3];
	int n = 0;

	for (size_t i = 0; i < pv_array_size(v); i++)
		b[n++] = (struct bytes){ &v[i], sizeof(v[i]) };
	b[n++] = (struct bytes){ v, 4 };
	b[n++] = (struct bytes){ v, 7 };
	b[n++] = (struct bytes){ v, 16 };
	others(l, s, &(struct option)O(SOL_SOCKET, SO_LINGER, 0, 0), b, n, 8);
}

static void timeouts(struct notes *l, struct sk s, const struct option *o)
{
	static const struct timeval v[] = { { 1, 500000 }, { 0, 1 },  { 0, 999999 },    { 0, 1000000 },
					    { 0, -1 },     { -1, 0 }, { INT64_MAX, 0 }, { 0, 0 } };
	struct bytes b[pv_array_size(v) + 3];
	int n = 0;

	for (size_t i = 0; i < pv_array_size(v); i++)
		b[n++] = (struct bytes){ &v[i], sizeof(v[i]) };
	b[n++] = (struct bytes){ v, 8 };
	b[n++] = (struct bytes){ v, 15 };
	b[n++] = (struct bytes){ v, 32 };
	others(l, s, o, b, n, 16);
}

static void congestions(struct notes *l, struct sk s)
{
	static const struct bytes b[] = { { "reno", 4 },
					  { "cubic", 6 },
					  { "cubic", 3 },
					  { "nobody", 6 },
					  { "", 1 },
					  { "reno", 0 },
					  { "reno", -1 },
					  { "cubic\0with more", 16 },
					  { "reno\0\0\0", 8 },
					  { "x", 1 },
					  { "a name that is too long", 24 },
					  { "cubic", 5 } };

	others(l, s, &(struct option)O(IPPROTO_TCP, TCP_CONGESTION, 0, 0), b, pv_array_size(b), 16);
}

static void structs(struct notes *l, const struct side *side, int family, enum how how)
{
	static const struct bytes info = { "x", 1 };
	struct rig r = rig_make(side, family, how);

	snprintf(l->where, sizeof(l->where), "%s %d", how_names[how], family == AF_INET ? 4 : 6);
	lingers(l, r.s);
	timeouts(l, r.s, &(struct option)O(SOL_SOCKET, SO_RCVTIMEO, 0, 0));
	timeouts(l, r.s, &(struct option)O(SOL_SOCKET, SO_SNDTIMEO, 0, 0));
	congestions(l, r.s);
	others(l, r.s, &(struct option)O(IPPROTO_TCP, TCP_INFO, 0, 0), &info, 1, 5);
	rig_close(&r);
}

/* ---- comparison -------------------------------------------------------------------------------------------------------- */

static bool is(const char *what, const char *part)
{
	return strstr(what, part) != NULL;
}

/* What follows from the MTU, from the machine's tcp_rmem, or cannot be the same; native/doc/tcp.md has the reasons. */
static bool may_differ(const char *what, int64_t kernel, int64_t ours)
{
	bool byte = is(what, "byte ");

	if (is(what, "TCP_MAXSEG") && is(what, "value"))
		return kernel > 30000 && ours > 1400 && ours < 1500;
	if (is(what, "TCP_MAXSEG") && byte)
		return !is(what, "fresh") && !is(what, "bound");
	if (is(what, "TCP_WINDOW_CLAMP as it is") || is(what, "SO_SNDBUF as it is"))
		return kernel > 40000 && ours > 40000;
	/* Less than a kbit/s. */
	if (is(what, "SO_MAX_PACING_RATE"))
		return is(what, " 1: ") || is(what, " 2: ") || is(what, " 100: ");
	return is(what, "SO_RCVLOWAT") && ours == 3145728 && kernel > 3000000;
}

static struct note kernel_notes[LOG_MAX], our_notes[LOG_MAX];

static void compare_in(enum how how, void (*script)(struct notes *, const struct side *, int family, enum how))
{
	static const int families[] = { AF_INET, AF_INET6 };
	int bad = 0;

	for (int f = 0; f < 2; f++) {
		struct notes kernel = { .at = kernel_notes }, ours = { .at = our_notes };

		script(&kernel, &kernel_side, families[f], how);
		script(&ours, &our_side, families[f], how);
		bad += notes_differ(&kernel, &ours, may_differ);
		CHECK(kernel.n > 0);
	}
	CHECK_EQ(bad, 0);
}

static void ints(struct notes *l, const struct side *side, int family, enum how how)
{
	for (size_t i = 0; i < pv_array_size(options); i++) {
		struct rig r = rig_make(side, family, how);

		snprintf(l->where, sizeof(l->where), "%s %d %s", how_names[how], family == AF_INET ? 4 : 6, options[i].name);
		values(l, r.s, &options[i]);
		lengths(l, r.s, &options[i]);
		rig_close(&r);
	}
}

#define STATE(how, name)                                                                                                           \
	TEST(name)                                                                                                                 \
	{                                                                                                                          \
		compare_in(how, ints);                                                                                             \
		compare_in(how, structs);                                                                                          \
	}
STATE(FRESH, fresh)
STATE(BOUND, bound)
STATE(LISTENING, listening)
STATE(CONNECTING, connecting)
STATE(REFUSED, refused)
STATE(OPEN, established)
STATE(ACCEPTED, accepted)
STATE(SHUT_R, shut_for_reading)
STATE(SHUT_W, shut_for_writing)
STATE(PEER_SHUT, shut_by_the_peer)
STATE(PEER_CLOSED, closed_by_the_peer)
STATE(TIME_WAIT, time_wait)
STATE(CLOSED_LAST, closed_by_both)
STATE(RESET, reset_by_the_peer)
STATE(RESET_TOLD, reset_and_told)
STATE(DISCONNECTED, disconnected)

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	return test_main(argc, argv);
}
