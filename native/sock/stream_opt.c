/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of streams. As for datagrams (opt.c) a kernel socket is the authority: it checks what is set and says what it became, and the
 * stack is told. That is the one beneath, if there is one, else for what the stack knows one that all share (kfd.c). What only the stack knows it answers itself: what a listener's child inherited, and how the connection does.
 */
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>

#include "sock/lane.h"
#include "sock/pacing.h"
#include "sock/stamp.h"
#include "sock/stream.h"

#ifndef SO_MAX_PACING_RATE
#define SO_MAX_PACING_RATE 47
#endif

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#define BUF_LOCK_SND 1
#define BUF_LOCK_RCV 2

enum kind { FLAG, U8, I16, U16, U32, PACING };

#define FIELD(f) offsetof(struct pv_tcp_opts, f)

static const struct row {
	int level, name;
	uint16_t off;
	uint8_t kind;
	bool v6;
} rows[] = {
	{ SOL_SOCKET, SO_RCVBUF, FIELD(rcvbuf), U32, false },
	{ SOL_SOCKET, SO_SNDBUF, FIELD(sndbuf), U32, false },
	{ SOL_SOCKET, SO_RCVLOWAT, FIELD(rcvlowat), U32, false },
	{ SOL_SOCKET, SO_REUSEADDR, FIELD(reuse_addr), FLAG, false },
	{ SOL_SOCKET, SO_REUSEPORT, FIELD(reuse_port), FLAG, false },
	{ SOL_SOCKET, SO_KEEPALIVE, FIELD(keepalive), FLAG, false },
	{ SOL_SOCKET, SO_OOBINLINE, FIELD(oobinline), FLAG, false },
	{ SOL_SOCKET, SO_MAX_PACING_RATE, FIELD(pacing_rate), PACING, false },
	{ IPPROTO_TCP, TCP_NODELAY, FIELD(nodelay), FLAG, false },
	{ IPPROTO_TCP, TCP_CORK, FIELD(cork), FLAG, false },
	{ IPPROTO_TCP, TCP_KEEPIDLE, FIELD(keepidle_s), U32, false },
	{ IPPROTO_TCP, TCP_KEEPINTVL, FIELD(keepintvl_s), U16, false },
	{ IPPROTO_TCP, TCP_KEEPCNT, FIELD(keepcnt), U8, false },
	{ IPPROTO_TCP, TCP_SYNCNT, FIELD(syncnt), U8, false },
	{ IPPROTO_TCP, TCP_LINGER2, FIELD(linger2_s), U32, false },
	{ IPPROTO_TCP, TCP_DEFER_ACCEPT, FIELD(defer_accept_s), U32, false },
	{ IPPROTO_TCP, TCP_WINDOW_CLAMP, FIELD(window_clamp), U32, false },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, FIELD(user_timeout_ms), U32, false },
	{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, FIELD(notsent_lowat), U32, false },
	{ IPPROTO_IP, IP_TTL, FIELD(ttl), I16, false },
	{ IPPROTO_IP, IP_TOS, FIELD(tos), U8, false },
	{ IPPROTO_IP, IP_MINTTL, FIELD(min_ttl), U8, false },
	{ IPPROTO_IP, IP_MTU_DISCOVER, FIELD(pmtudisc), U8, false },
	{ IPPROTO_IP, IP_FREEBIND, FIELD(freebind), FLAG, false },
	{ IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, FIELD(bind_no_port), FLAG, false },
	{ IPPROTO_IP, IP_RECVERR, FIELD(recverr4), FLAG, false },
	{ IPPROTO_IPV6, IPV6_RECVERR, FIELD(recverr6), FLAG, true },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, FIELD(hops), I16, true },
	{ IPPROTO_IPV6, IPV6_TCLASS, FIELD(tclass), U8, true },
	{ IPPROTO_IPV6, IPV6_MINHOPCOUNT, FIELD(min_hops), U8, true },
	{ IPPROTO_IPV6, IPV6_V6ONLY, FIELD(v6only), FLAG, true },
};

static const struct row *find(const struct pv_sock *so, int level, int name)
{
	for (size_t i = 0; i < pv_array_size(rows); i++)
		if (rows[i].level == level && rows[i].name == name && (!rows[i].v6 || so->family == AF_INET6))
			return &rows[i];
	return NULL;
}

static void put(char *at, const struct row *row, uint64_t val)
{
	bool flag = val != 0;
	uint32_t u32 = (uint32_t)val;
	uint16_t u16 = (uint16_t)val;
	uint8_t u8 = (uint8_t)val;

	switch ((enum kind)row->kind) {
	case FLAG:
		memcpy(at, &flag, sizeof(flag));
		break;
	case U8:
		memcpy(at, &u8, 1);
		break;
	case I16:
	case U16:
		memcpy(at, &u16, 2);
		break;
	case U32:
		memcpy(at, &u32, 4);
		break;
	case PACING:
		memcpy(at, &val, 8);
	}
}

static int64_t get(const char *at, const struct row *row)
{
	uint64_t rate;
	uint32_t u32;
	uint16_t u16;
	int16_t i16;

	switch ((enum kind)row->kind) {
	case FLAG:
	case U8:
		return *(const uint8_t *)at;
	case I16:
		memcpy(&i16, at, 2);
		return i16;
	case U16:
		memcpy(&u16, at, 2);
		return u16;
	case PACING:
		memcpy(&rate, at, 8);
		return (int64_t)rate;
	default:
		memcpy(&u32, at, 4);
		return (int32_t)u32;
	}
}

static void import_row(struct pv_sock *so, struct pv_tcp_opts *o, const struct row *row, int fd)
{
	union {
		uint64_t u64;
		int32_t i32;
	} val = { 0 };
	socklen_t len = row->kind == PACING ? sizeof(val.u64) : sizeof(val.i32);

	if ((row->v6 && so->family != AF_INET6) || getsockopt(fd, row->level, row->name, &val, &len) < 0)
		return;
	put((char *)o + row->off, row, row->kind == PACING ? val.u64 : (uint64_t)val.i32);
}

/* Those of SOL_SOCKET that are in no row. */
static void import_other(struct pv_sock *so, int name, int fd)
{
	struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	struct linger l = { 0 };
	socklen_t len = sizeof(l);
	int cpu = -1, priority = 0;
	bool kernels;

	switch (name) {
	case SO_LINGER:
		if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) < 0)
			return;
		o->linger = l.l_onoff;
		o->linger_s = (uint32_t)l.l_linger;
		break;
	case SO_INCOMING_CPU:
		len = sizeof(cpu);
		if (getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &cpu, &len) < 0)
			return;
		pv_tcp_set_incoming_cpu(so->tc, cpu);
		pv_lane_said(so);
		break;
	case SO_PRIORITY:
		len = sizeof(priority);
		if (getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, &len) == 0)
			o->priority = (uint8_t)PV_MIN((uint32_t)priority, (uint32_t)UINT8_MAX);
		break;
	case SO_RCVTIMEO:
		so->rcvtimeo_ns = pv_opt_timeout(fd, name);
		break;
	case SO_SNDTIMEO:
		so->sndtimeo_ns = pv_opt_timeout(fd, name);
		break;
	case SO_BINDTODEVICE:
	case SO_BINDTOIFINDEX:
		pv_decide_kernel_read(so);
		o->bound_iface = pv_decide_device(so, &kernels);
	}
}

/* The kernel's default buffer sizes grow by themselves there, as ours do: only what the program set counts. */
static bool is_buffer(const struct row *row)
{
	return row->level == SOL_SOCKET && (row->name == SO_RCVBUF || row->name == SO_SNDBUF);
}

/* What a fresh kernel socket of the family says, so that it need not be asked for each. The engine's lock. */
static struct {
	bool known;
	struct pv_tcp_opts opts;
} fresh[2];

void pv_stream_stopped(void)
{
	memset(fresh, 0, sizeof(fresh));
	pv_kfd_scratch_drop(AF_INET);
	pv_kfd_scratch_drop(AF_INET6);
}

static void import_fresh(struct pv_sock *so)
{
	struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	bool v6 = so->family == AF_INET6;
	int fd;

	if (!fresh[v6].known) {
		pv_kfd_scratch_drop(so->family);
		fd = pv_kfd_scratch(so->family);
		if (fd < 0)
			return;
		for (size_t i = 0; i < pv_array_size(rows); i++)
			if (!is_buffer(&rows[i]))
				import_row(so, o, &rows[i], fd);
		fresh[v6].opts = *o;
		fresh[v6].known = true;
	}
	*o = fresh[v6].opts;
}

/* ip_tos2prio of Linux, by the four bits of RFC 1349. */
static const uint8_t tos_priority[16] = { 0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4 };

static void set_by(struct pv_sock *so, int level, int name, int fd)
{
	struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	const struct row *row = find(so, level, name);
	uint8_t tos = o->tos;

	if (row)
		import_row(so, o, row, fd);
	/* ip_sock_set_tos of Linux: a priority comes with it. */
	if (level == IPPROTO_IP && name == IP_TOS && o->tos != tos)
		o->priority = tos_priority[(o->tos >> 1) & 15];
	if (level == SOL_SOCKET)
		import_other(so, name, fd);
	pv_pacing_stream(so);
	o->rcvbuf_locked |= so->rcvbuf_set;
	o->sndbuf_locked |= so->sndbuf_set;
}

/* Sets it on the family's shared socket; the fd to read it from, or -errno. A buffer's size bounds later values of others. */
static int try_out(const struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	int fd = pv_kfd_scratch(so->family), rc;

	if (fd < 0)
		return fd;
	rc = setsockopt(fd, level, name, val, len) < 0 ? -errno : 0;
	return rc ? rc : fd;
}

static void tried_out(const struct pv_sock *so, int level, int name)
{
	if ((level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) || (level == IPPROTO_TCP && name == TCP_WINDOW_CLAMP))
		pv_kfd_scratch_drop(so->family);
}

static int size_of(int fd, int name)
{
	int val = 0;
	socklen_t len = sizeof(val);

	return getsockopt(fd, SOL_SOCKET, name, &val, &len) < 0 ? -errno : val;
}

/* Whether the program has sized them the kernel alone was told, where the socket came from there (decide_late). Before Linux 5.14 (SO_BUF_LOCK):
 * what is no new socket's. */
static void import_sized(struct pv_sock *so, int fd)
{
	int locked = 0, unused = pv_kfd_scratch(so->family);
	socklen_t len = sizeof(locked);

	if (getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, &len) < 0 && unused >= 0) {
		locked = size_of(fd, SO_SNDBUF) != size_of(unused, SO_SNDBUF) ? BUF_LOCK_SND : 0;
		locked |= size_of(fd, SO_RCVBUF) != size_of(unused, SO_RCVBUF) ? BUF_LOCK_RCV : 0;
	}
	so->sndbuf_set |= (locked & BUF_LOCK_SND) != 0;
	so->rcvbuf_set |= (locked & BUF_LOCK_RCV) != 0;
}

static int cc_of(int fd, char name[17])
{
	socklen_t len = 16;

	return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) < 0 ? -errno : 0;
}

/* What the kernel has a default for that is not the stack's: only what the program set counts. One that the stack does not know is left. */
static void import_tcp(struct pv_sock *so, int fd)
{
	int unused = pv_kfd_scratch(so->family), val = 0, usual = 0;
	socklen_t len = sizeof(val), ulen = sizeof(usual);
	char cc[17] = "", other[17] = "";

	if (getsockopt(fd, IPPROTO_TCP, TCP_INQ, &val, &len) == 0)
		so->inq = val != 0;
	len = sizeof(val);
	if (unused < 0)
		return;
	if (!cc_of(fd, cc) && !cc_of(unused, other) && strcmp(cc, other))
		(void)pv_tcp_congestion_set(so->tc, cc);
	if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &val, &len) == 0 &&
	    getsockopt(unused, IPPROTO_TCP, TCP_MAXSEG, &usual, &ulen) == 0 && val != usual)
		pv_tcp_options(so->tc)->maxseg = (uint16_t)val;
}

static void import_kernel(struct pv_sock *so)
{
	static const int others[] = { SO_LINGER, SO_RCVTIMEO, SO_SNDTIMEO, SO_BINDTOIFINDEX, SO_INCOMING_CPU, SO_PRIORITY };
	struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	int fd = pv_sock_kfd(so);

	import_sized(so, fd);
	import_tcp(so, fd);
	for (size_t i = 0; i < pv_array_size(rows); i++) {
		const struct row *row = &rows[i];

		if (is_buffer(row) && !(row->name == SO_RCVBUF ? so->rcvbuf_set : so->sndbuf_set))
			continue;
		import_row(so, o, row, fd);
	}
	for (size_t i = 0; i < pv_array_size(others); i++)
		import_other(so, others[i], fd);
	pv_stamp_import(so, fd);
	o->rcvbuf_locked |= so->rcvbuf_set;
	o->sndbuf_locked |= so->sndbuf_set;
}

void pv_stream_import(struct pv_sock *so)
{
	if (pv_sock_kfd_made(so) >= 0 && !atomic_load_explicit(&so->untouched, memory_order_relaxed)) {
		import_kernel(so);
	} else {
		import_fresh(so);
		for (const struct pv_kfd_note *n = so->notes; n; n = n->next) {
			int fd = try_out(so, n->level, n->name, n->val, n->len);

			if (fd < 0)
				continue;
			set_by(so, n->level, n->name, fd);
			tried_out(so, n->level, n->name);
		}
	}
	pv_pacing_stream(so);
	pv_tcp_options_changed(so->tc, pv_clock_now(&pv_engine.clock));
}

/* ---- given to a kernel socket ------------------------------------------------------------------------------------------ */

/* The device and IPV6_V6ONLY are the name's; buffers the kernel has sized itself by then. */
static bool goes_along(const struct row *row, int64_t val)
{
	if (row->level == SOL_SOCKET)
		return !is_buffer(row) && row->name != SO_REUSEADDR && (row->kind != PACING || (uint64_t)val != UINT64_MAX);
	if (row->level == IPPROTO_TCP)
		return row->name != TCP_DEFER_ACCEPT && (val || (row->name != TCP_WINDOW_CLAMP && row->name != TCP_SYNCNT));
	return row->level != IPPROTO_IPV6 || row->name != IPV6_V6ONLY;
}

static void row_to(const struct pv_tcp_opts *o, const struct row *row, int fd)
{
	int64_t val = get((const char *)o + row->off, row);
	int i32 = (int)val;

	if (!goes_along(row, val))
		return;
	if (row->kind == PACING)
		(void)setsockopt(fd, row->level, row->name, &val, sizeof(val));
	else
		(void)setsockopt(fd, row->level, row->name, &i32, sizeof(i32));
}

static void timeout_to(int fd, int name, int64_t ns)
{
	struct timeval tv = { .tv_sec = ns / PV_NS_PER_S, .tv_usec = ns % PV_NS_PER_S / PV_NS_PER_US };

	(void)setsockopt(fd, SOL_SOCKET, name, &tv, sizeof(tv));
}

static void buffer_to(int fd, int name, uint32_t size)
{
	int half = (int)(size / 2); /* the kernel doubles what it is told */

	(void)setsockopt(fd, SOL_SOCKET, name, &half, sizeof(half));
}

static void others_to(struct pv_sock *so, int fd)
{
	const struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	struct linger l = { .l_onoff = o->linger, .l_linger = (int)o->linger_s };
	const char *cc = pv_tcp_congestion(so->tc);
	int val = o->priority;

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	timeout_to(fd, SO_RCVTIMEO, so->rcvtimeo_ns);
	timeout_to(fd, SO_SNDTIMEO, so->sndtimeo_ns);
	if (val != UINT8_MAX)
		(void)setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &val, sizeof(val));
	/* One that the kernel does not know leaves its own. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc));
	val = o->maxseg;
	if (val)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &val, sizeof(val));
	val = so->inq;
	if (val)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_INQ, &val, sizeof(val));
}

/* SO_BUF_LOCK came with Linux 5.14; before, buffers stay as large as they had to be for the queues. */
static void buffers_to(struct pv_sock *so, int fd)
{
	const struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	int locked = (o->sndbuf_locked ? BUF_LOCK_SND : 0) | (o->rcvbuf_locked ? BUF_LOCK_RCV : 0);

	if (o->sndbuf_locked)
		buffer_to(fd, SO_SNDBUF, o->sndbuf);
	if (o->rcvbuf_locked)
		buffer_to(fd, SO_RCVBUF, o->rcvbuf);
	(void)setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof(locked));
}

void pv_stream_options_to(struct pv_sock *so, int fd, bool after)
{
	const struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	int reuse = o->reuse_addr;

	if (after) {
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
		buffers_to(so, fd);
		return;
	}
	for (size_t i = 0; i < pv_array_size(rows); i++)
		if (!rows[i].v6 || so->family == AF_INET6)
			row_to(o, &rows[i], fd);
	others_to(so, fd);
}

/* ---- set --------------------------------------------------------------------------------------------------------------- */

static int congestion(struct pv_sock *so, const void *val, socklen_t len)
{
	char name[17] = "";

	if ((int)len < 1)
		return -EINVAL;
	if (!val)
		return -EFAULT;
	memcpy(name, val, PV_MIN((size_t)len, sizeof(name) - 1));
	return pv_tcp_congestion_set(so->tc, name);
}

static int set_ours(struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	int64_t now = pv_clock_now(&pv_engine.clock);
	int on = 0;

	/* The kernel socket beneath has no port where connect chose it. */
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && so->family == AF_INET6 && pv_tcp_has_port(so->tc))
		return -EINVAL;
	if (level == IPPROTO_TCP && name == TCP_CONGESTION)
		return congestion(so, val, len);
	/* Of those that may listen (do_tcp_setsockopt in Linux). */
	if (level == IPPROTO_TCP && name == TCP_FASTOPEN && pv_tcp_state(so->tc) != PV_TCP_CLOSED &&
	    pv_tcp_state(so->tc) != PV_TCP_LISTEN)
		return -EINVAL;
	if (level == IPPROTO_TCP && (name == TCP_QUICKACK || name == TCP_MAXSEG || name == TCP_WINDOW_CLAMP || name == TCP_INQ)) {
		if ((int)len < (int)sizeof(on))
			return -EINVAL;
		if (!val)
			return -EFAULT;
		memcpy(&on, val, sizeof(on));
		if (name == TCP_INQ) {
			if (on < 0 || on > 1)
				return -EINVAL;
			so->inq = on;
			if (so->kernel_leg)
				(void)setsockopt(pv_sock_kfd(so), level, name, &on, sizeof(on));
			return 0;
		}
		if (name == TCP_QUICKACK) {
			pv_tcp_quickack(so->tc, on, now);
			return 0;
		}
		/* None at all only before there is a window (tcp_set_window_clamp). */
		if (name == TCP_WINDOW_CLAMP)
			return on || pv_tcp_state(so->tc) == PV_TCP_CLOSED ? -ENOPROTOOPT : -EINVAL;
		/* tcp_sock_set_maxseg in Linux: TCP_MIN_MSS to MAX_TCP_WINDOW. */
		if (on && (on < 88 || on > 32767))
			return -EINVAL;
		pv_tcp_options(so->tc)->maxseg = (uint16_t)on;
		pv_tcp_options_changed(so->tc, now);
		return 0;
	}
	return -ENOPROTOOPT;
}

/* A half that is the kernel's, or a socket that may become it, has them as well. */
static int set_stamps(struct pv_sock *so, int name, const void *val, socklen_t len)
{
	if ((pv_sock_mode(so) != PV_SOCK_STREAM || so->kernel_leg) && setsockopt(pv_sock_kfd(so), SOL_SOCKET, name, val, len) < 0)
		return -errno;
	return pv_stamp_set(so, name, val, len);
}

/* Without a kernel socket: what the stack knows needs none. SO_RCVLOWAT depends on the socket's other options. */
static bool needs_none(const struct pv_sock *so, int level, int name)
{
	if (level == SOL_SOCKET && (name == SO_LINGER || name == SO_RCVTIMEO || name == SO_SNDTIMEO))
		return true;
	return !(level == SOL_SOCKET && name == SO_RCVLOWAT) && find(so, level, name);
}

/* The fd that the option was set on and can be read from, or -errno. */
static int set_somewhere(struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	int fd, rc;

	if (pv_sock_kfd_made(so) >= 0 || !needs_none(so, level, name)) {
		fd = pv_sock_kfd(so);
		atomic_store_explicit(&so->untouched, false, memory_order_relaxed);
		return fd < 0 || setsockopt(fd, level, name, val, len) < 0 ? -errno : fd;
	}
	fd = try_out(so, level, name, val, len);
	if (fd < 0 || pv_sock_mode(so) == PV_SOCK_STREAM)
		return fd;
	rc = pv_kfd_note(so, level, name, val, len);
	return rc ? rc : fd;
}

static int set_locked(struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	int fd = so->tc ? set_ours(so, level, name, val, len) : -ENOPROTOOPT;
	int64_t now;

	if (so->tc && pv_stamp_is(level, name))
		return set_stamps(so, name, val, len);
	if (fd != -ENOPROTOOPT)
		return fd;
	fd = pv_pacing_check(so, level, name, val, len);
	if (fd)
		return fd;
	fd = set_somewhere(so, level, name, val, len);
	if (fd < 0)
		return fd;
	if (!find(so, level, name) || (level == IPPROTO_IP && name == IP_BIND_ADDRESS_NO_PORT && pv_leg_engine()))
		pv_opt_kernel_note(so, level, name);
	so->rcvbuf_set |= level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_RCVBUFFORCE);
	so->sndbuf_set |= level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_SNDBUFFORCE);
	if (so->tc)
		set_by(so, level, name, fd);
	if (fd != pv_sock_kfd_made(so))
		tried_out(so, level, name);
	if (!so->tc)
		return 0;
	now = pv_clock_now(&pv_engine.clock);
	if (level == IPPROTO_TCP && name == TCP_NODELAY)
		pv_tcp_nodelay_set(so->tc, now);
	else if (level == IPPROTO_TCP && name == TCP_CORK)
		pv_tcp_cork_set(so->tc, now);
	pv_tcp_options_changed(so->tc, now);
	pv_send_done();
	return 0;
}

int pv_stream_setsockopt(struct pyvma_sock *h, struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	int rc;

	rc = pv_stream_lock_any(h, so);
	if (rc)
		return rc;
	rc = set_locked(so, level, name, val, len);
	pv_sock_unlock();
	return rc;
}

/* ---- get --------------------------------------------------------------------------------------------------------------- */

static int give(const void *from, size_t size, void *out, socklen_t *len)
{
	if ((int)*len < 0)
		return -EINVAL;
	*len = PV_MIN(*len, (socklen_t)size);
	memcpy(out, from, *len);
	return 0;
}

static int give_int(int64_t val, void *out, socklen_t *len)
{
	int v = (int)val;

	return give(&v, sizeof(v), out, len);
}

/* With each level's own way to treat lengths that are not an int's. */
static int give_row(const struct pv_sock *so, const struct row *row, void *out, socklen_t *len)
{
	int64_t val = get((const char *)pv_tcp_options(so->tc) + row->off, row);
	uint8_t byte = (uint8_t)val;

	if (row->kind == PACING && (int)*len >= (int)sizeof(val))
		return give(&val, sizeof(val), out, len);
	if (row->kind == PACING)
		return give_int((int64_t)PV_MIN((uint64_t)val, (uint64_t)UINT_MAX), out, len);
	if (row->level == IPPROTO_IP && (int)*len > 0 && *len < sizeof(int) && val == byte)
		return give(&byte, 1, out, len);
	if (row->level == IPPROTO_IPV6)
		*len = PV_MIN(*len, (socklen_t)sizeof(int));
	return give_int(val, out, len);
}

static int get_tcp(struct pv_sock *so, int name, void *val, socklen_t *len)
{
	char text[16] = "";

	switch (name) {
	case TCP_INFO:
		return pv_stream_info(so, val, len);
	case TCP_MAXSEG:
		return give_int(pv_tcp_mss(so->tc), val, len);
	case TCP_WINDOW_CLAMP:
		return give_int(pv_tcp_window_clamp(so->tc), val, len);
	case TCP_INQ:
		return give_int(so->inq, val, len);
	case TCP_QUICKACK:
		return give_int(pv_tcp_is_quickack(so->tc), val, len);
	case TCP_CONGESTION:
		memcpy(text, pv_tcp_congestion(so->tc), strlen(pv_tcp_congestion(so->tc)) + 1);
		return give(text, sizeof(text), val, len);
	}
	return -ENOPROTOOPT;
}

static int give_timeout(int64_t ns, void *out, socklen_t *len)
{
	struct timeval tv = { .tv_sec = ns / PV_NS_PER_S, .tv_usec = ns % PV_NS_PER_S / PV_NS_PER_US };

	return give(&tv, sizeof(tv), out, len);
}

/* What a kernel socket need not be made for. */
static int get_plain(const struct pv_sock *so, int name, void *val, socklen_t *len)
{
	switch (name) {
	case SO_TYPE:
		return give_int(so->type, val, len);
	case SO_DOMAIN:
		return give_int(so->family, val, len);
	case SO_PROTOCOL:
		return give_int(IPPROTO_TCP, val, len);
	case SO_RCVTIMEO:
		return give_timeout(so->rcvtimeo_ns, val, len);
	case SO_SNDTIMEO:
		return give_timeout(so->sndtimeo_ns, val, len);
	}
	return -ENOPROTOOPT;
}

static int get_mtu(struct pv_sock *so, int level, void *val, socklen_t *len)
{
	struct pv_tcp_info i;

	if (level == IPPROTO_IPV6)
		*len = PV_MIN(*len, (socklen_t)sizeof(int));
	pv_tcp_get_info(so->tc, &i, pv_clock_now(&pv_engine.clock));
	return pv_tcp_state(so->tc) == PV_TCP_CLOSED || pv_tcp_state(so->tc) == PV_TCP_LISTEN || !i.pmtu
		   ? -ENOTCONN
		   : give_int((int)i.pmtu, val, len);
}

static int get_locked(struct pv_sock *so, int level, int name, void *val, socklen_t *len)
{
	const struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	const struct row *row = find(so, level, name);
	int rc;

	if (level == IPPROTO_TCP) {
		rc = get_tcp(so, name, val, len);
		if (rc != -ENOPROTOOPT)
			return rc;
	}
	if (level == SOL_SOCKET && name == SO_ERROR)
		return give_int(pv_tcp_error(so->tc), val, len);
	if (pv_stamp_is(level, name))
		return pv_stamp_get(so, name, val, len);
	if (level == SOL_SOCKET && name == SO_INCOMING_CPU)
		return give_int(pv_tcp_incoming_cpu(so->tc), val, len);
	if (level == SOL_SOCKET && name == SO_ACCEPTCONN)
		return give_int(pv_tcp_state(so->tc) == PV_TCP_LISTEN, val, len);
	if (level == SOL_SOCKET && name == SO_LINGER) {
		struct linger l = { .l_onoff = o->linger, .l_linger = (int)o->linger_s };

		return give(&l, sizeof(l), val, len);
	}
	if ((level == IPPROTO_IP && name == IP_MTU) || (level == IPPROTO_IPV6 && name == IPV6_MTU && so->family == AF_INET6))
		return get_mtu(so, level, val, len);
	/* An accepted one has the listener's, which the kernel socket beneath has not. */
	if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO))
		return give_timeout(name == SO_RCVTIMEO ? so->rcvtimeo_ns : so->sndtimeo_ns, val, len);
	if (!row && level == SOL_SOCKET && pv_sock_kfd_made(so) < 0)
		return get_plain(so, name, val, len);
	return row ? give_row(so, row, val, len) : -ENOPROTOOPT;
}

int pv_stream_getsockopt(struct pyvma_sock *h, struct pv_sock *so, int level, int name, void *val, socklen_t *len)
{
	int rc = pv_stream_lock(h, so);

	if (rc)
		return rc;
	/* What has come may be the answer. */
	if ((level == SOL_SOCKET && name == SO_ERROR) || (level == IPPROTO_TCP && name == TCP_INFO))
		(void)pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
	rc = get_locked(so, level, name, val, len);
	if (level == SOL_SOCKET && name == SO_ERROR)
		pv_ready_update(so);
	pv_sock_unlock();
	if (rc != -ENOPROTOOPT)
		return rc;
	rc = pv_sock_kfd(so);
	return rc < 0 || getsockopt(rc, level, name, val, len) < 0 ? -errno : 0;
}
