/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING: the options, and what a received message or an entry of the error queue tells of its
 * time (sock_set_timestamping, __sock_recv_timestamp, tcp_recv_timestamp in Linux).
 *
 * Stamps by software are the time of the poll that took the frame from the ring, or of the call that posted it: every poll and every send
 * have read the clock anyway, so that nothing is spent on them but where they are told. The device's are asked for with the first socket
 * that wants them.
 *
 * As elsewhere a kernel socket says what is allowed. A connection has none, or one that is not connected: what depends on that is decided
 * here, the rest by the family's shared one (kfd.c).
 */
#include <linux/net_tstamp.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "rt/tstamp.h"
#include "sock/stamp.h"
#include "sock/stream.h"

/* Numbers of the kernel's headers, which older ones lack. */
enum {
	K_TIMESTAMP_OLD = 29,
	K_TIMESTAMPNS_OLD = 35,
	K_TIMESTAMPING_OLD = 37,
	K_SCM_OPT_STATS = 54,
	K_SCM_PKTINFO = 58,
	K_TIMESTAMP_NEW = 63,
	K_TIMESTAMPNS_NEW = 64,
	K_TIMESTAMPING_NEW = 65,
	K_OPT_RX_FILTER = 1 << 17,
};

_Static_assert(PV_STAMP_TX_HW == SOF_TIMESTAMPING_TX_HARDWARE && PV_STAMP_TX_SW == SOF_TIMESTAMPING_TX_SOFTWARE &&
		   PV_STAMP_TX_SCHED == SOF_TIMESTAMPING_TX_SCHED && PV_STAMP_TX_ACK == SOF_TIMESTAMPING_TX_ACK &&
		   PV_STAMP_OPT_ID == SOF_TIMESTAMPING_OPT_ID && PV_STAMP_OPT_TSONLY == SOF_TIMESTAMPING_OPT_TSONLY &&
		   PV_STAMP_OPT_STATS == SOF_TIMESTAMPING_OPT_STATS && PV_STAMP_OPT_TX_SWHW == SOF_TIMESTAMPING_OPT_TX_SWHW,
	       "the kernel's numbers");

/* Less than that apart are two readings of the same, more is a step of the clock of the day. */
#define OFFSET_STEP_NS PV_NS_PER_US
#define OFFSET_TRIES 5

#define RX_BITS (PV_RX_TSTAMP | PV_RX_TSTAMPNS | PV_RX_TSTAMP_NEW)
/* Where pv_tcp_opts.stamps has RX_BITS: above the flags. */
#define RX_SHIFT 20u
_Static_assert((RX_BITS << RX_SHIFT >> RX_SHIFT) == RX_BITS, "room for them");

/* struct so_timestamping, which older headers lack. */
struct timestamping {
	int flags, bind_phc;
};

bool pv_stamp_is(int level, int name)
{
	if (level != SOL_SOCKET)
		return false;
	switch (name) {
	case K_TIMESTAMP_OLD:
	case K_TIMESTAMPNS_OLD:
	case K_TIMESTAMPING_OLD:
	case K_TIMESTAMP_NEW:
	case K_TIMESTAMPNS_NEW:
	case K_TIMESTAMPING_NEW:
		return true;
	}
	return false;
}

/* ---- what is in force --------------------------------------------------------------------------------------------------- */

static void want_device(bool rx, bool tx)
{
	struct pv_engine *e = &pv_engine;

	if (!rx && !tx)
		return;
	pv_tstamp_want(e, rx, tx);
	if (tx)
		pv_net_stamps_hw(e->net, pv_tstamp_mode(e) != PV_TSTAMP_MODE_OFF);
}

void pv_stamp_want_tx(void)
{
	want_device(false, true);
}

static uint8_t shown_stamps(uint32_t flags, uint32_t rx)
{
	bool software = (rx & (PV_RX_TSTAMP | PV_RX_TSTAMPNS)) || (flags & SOF_TIMESTAMPING_RX_SOFTWARE);

	if (flags & SOF_TIMESTAMPING_RX_HARDWARE)
		return software ? PV_SHOWN_STAMPS_BOTH : PV_SHOWN_STAMPS_DEVICE;
	return software ? PV_SHOWN_STAMPS_SOFTWARE : PV_SHOWN_STAMPS_NONE;
}

/* 0 or -ENOMEM: nothing has changed then. */
static int apply(struct pv_sock *so, uint32_t flags, uint32_t rx)
{
	int rc = so->u ? pv_udp_stamps_set(so->u, flags) : so->tc ? pv_tcp_stamps_set(so->tc, flags) : 0;

	if (rc)
		return rc;
	if (so->tc)
		pv_tcp_options(so->tc)->stamps = flags | rx << RX_SHIFT;
	so->rx_flags &= ~(RX_BITS | PV_RX_STAMPING);
	so->rx_flags |= rx;
	if (flags & (SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RAW_HARDWARE))
		so->rx_flags |= PV_RX_STAMPING;
	so->st->tsflags = flags;
	so->st->stamps = shown_stamps(flags, rx);
	want_device(flags & SOF_TIMESTAMPING_RX_HARDWARE, flags & PV_STAMP_TX_HW);
	return 0;
}

static uint32_t ask(int fd, int name)
{
	struct timestamping val = { 0 };
	socklen_t len = sizeof(val);

	return getsockopt(fd, SOL_SOCKET, name, &val, &len) < 0 ? 0 : (uint32_t)val.flags;
}

void pv_stamp_import(struct pv_sock *so, int fd)
{
	uint32_t flags = ask(fd, K_TIMESTAMPING_OLD), rx = 0;

	if (ask(fd, K_TIMESTAMP_OLD))
		rx = PV_RX_TSTAMP;
	else if (ask(fd, K_TIMESTAMPNS_OLD))
		rx = PV_RX_TSTAMPNS;
	else if (ask(fd, K_TIMESTAMPNS_NEW))
		rx = PV_RX_TSTAMPNS | PV_RX_TSTAMP_NEW;
	else if (ask(fd, K_TIMESTAMP_NEW))
		rx = PV_RX_TSTAMP | PV_RX_TSTAMP_NEW;
	else if (flags && ask(fd, K_TIMESTAMPING_NEW))
		rx = PV_RX_TSTAMP_NEW;
	(void)apply(so, flags, rx);
}

void pv_stamp_inherit(struct pv_sock *so)
{
	uint32_t both = pv_tcp_options(so->tc)->stamps;

	if (pv_unlikely(both))
		(void)apply(so, both & ((1u << RX_SHIFT) - 1), both >> RX_SHIFT);
}

/* ---- options of a stream in the stack ------------------------------------------------------------------------------------ */

/* Those that depend on no connection: by the shared socket, which shall not make the kernel stamp what others receive. */
static int flags_check(const struct pv_sock *so, int name, const void *val, socklen_t len)
{
	struct timestamping t = { 0 };
	enum pv_tcp_state state = pv_tcp_state(so->tc);
	uint32_t flags;
	int fd = pv_kfd_scratch(so->family);

	if (fd < 0)
		return fd;
	memcpy(&t, val, len == sizeof(t) ? sizeof(t) : sizeof(t.flags));
	flags = (uint32_t)t.flags;
	t.flags &= ~(int)(PV_STAMP_OPT_ID | PV_STAMP_OPT_ID_TCP | SOF_TIMESTAMPING_RX_SOFTWARE);
	if (setsockopt(fd, SOL_SOCKET, name, &t, len == sizeof(t) ? sizeof(t) : sizeof(t.flags)) < 0)
		return -errno;
	if ((flags & PV_STAMP_OPT_ID_TCP) && !(flags & PV_STAMP_OPT_ID))
		return -EINVAL;
	if ((flags & ~so->st->tsflags & PV_STAMP_OPT_ID) && (state == PV_TCP_CLOSED || state == PV_TCP_LISTEN))
		return -EINVAL;
	return 0;
}

int pv_stamp_set(struct pv_sock *so, int name, const void *val, socklen_t len)
{
	uint32_t rx = so->rx_flags & RX_BITS;
	bool fresh = name == K_TIMESTAMP_NEW || name == K_TIMESTAMPNS_NEW || name == K_TIMESTAMPING_NEW;
	int number, rc;

	if ((int)len < (int)sizeof(number))
		return -EINVAL;
	if (!val)
		return -EFAULT;
	memcpy(&number, val, sizeof(number));
	if (name == K_TIMESTAMPING_OLD || name == K_TIMESTAMPING_NEW) {
		rc = flags_check(so, name, val, len);
		if (rc)
			return rc;
		rx = (rx & ~PV_RX_TSTAMP_NEW) | (fresh ? PV_RX_TSTAMP_NEW : 0);
		return apply(so, (uint32_t)number, rx);
	}
	rx &= ~(PV_RX_TSTAMP | PV_RX_TSTAMPNS);
	if (number) {
		rx = fresh ? PV_RX_TSTAMP_NEW : 0;
		rx |= name == K_TIMESTAMP_OLD || name == K_TIMESTAMP_NEW ? PV_RX_TSTAMP : PV_RX_TSTAMPNS;
	}
	return apply(so, so->st->tsflags, rx);
}

int pv_stamp_get(const struct pv_sock *so, int name, void *val, socklen_t *len)
{
	bool fresh = so->rx_flags & PV_RX_TSTAMP_NEW;
	struct timestamping t = { 0 };
	socklen_t size = sizeof(t.flags);

	switch (name) {
	case K_TIMESTAMP_OLD:
		t.flags = (so->rx_flags & PV_RX_TSTAMP) && !fresh;
		break;
	case K_TIMESTAMP_NEW: /* true of the other one, too, as Linux has it */
		t.flags = (so->rx_flags & (PV_RX_TSTAMP | PV_RX_TSTAMPNS)) && fresh;
		break;
	case K_TIMESTAMPNS_OLD:
	case K_TIMESTAMPNS_NEW:
		t.flags = (so->rx_flags & PV_RX_TSTAMPNS) && fresh == (name == K_TIMESTAMPNS_NEW);
		break;
	default:
		t.flags = fresh || name == K_TIMESTAMPING_OLD ? (int)so->st->tsflags : 0;
		size = sizeof(t);
	}
	if ((int)*len < 0)
		return -EINVAL;
	*len = PV_MIN(*len, size);
	memcpy(val, &t, *len);
	return 0;
}

/* ---- the time of the day --------------------------------------------------------------------------------------------------- */

/* Both clocks are read at once, or nearly: the reading that took least. */
static int64_t measure_offset(void)
{
	int64_t best = INT64_MAX, offset = 0;

	for (int i = 0; i < OFFSET_TRIES; i++) {
		int64_t start = pv_clock_kernel_ns(), found = pv_clock_realtime_offset_ns(), took = pv_clock_kernel_ns() - start;

		if (took < best) {
			best = took;
			offset = found;
		}
	}
	return offset;
}

/* CLOCK_REALTIME minus CLOCK_MONOTONIC. Both run at one rate, so that only a step changes it; what else readings differ by is how far apart
 * they were taken, which two stamps of one moment must not show. */
static int64_t realtime_offset(void)
{
	static int64_t known; /* engine lock */
	int64_t off = pv_clock_realtime_offset_ns() - known;

	if (off > OFFSET_STEP_NS || off < -OFFSET_STEP_NS)
		known = measure_offset();
	return known;
}

/* ---- what is told -------------------------------------------------------------------------------------------------------- */

static void put_plain(const struct pv_sock *so, int64_t ns, struct msghdr *msg, size_t *used)
{
	bool fresh = so->rx_flags & PV_RX_TSTAMP_NEW;

	if (so->rx_flags & PV_RX_TSTAMPNS) {
		struct timespec ts = { .tv_sec = ns / PV_NS_PER_S, .tv_nsec = ns % PV_NS_PER_S };

		pv_cmsg_put(msg, used, SOL_SOCKET, fresh ? K_TIMESTAMPNS_NEW : K_TIMESTAMPNS_OLD, &ts, sizeof(ts));
	} else {
		struct timeval tv = { .tv_sec = ns / PV_NS_PER_S, .tv_usec = ns % PV_NS_PER_S / PV_NS_PER_US };

		pv_cmsg_put(msg, used, SOL_SOCKET, fresh ? K_TIMESTAMP_NEW : K_TIMESTAMP_OLD, &tv, sizeof(tv));
	}
}

static void put_pktinfo(const struct pv_stamp_told *t, struct msghdr *msg, size_t *used)
{
	const uint32_t info[4] = { pv_ifindex_public(t->iface), t->frame_len, 0, 0 };

	pv_cmsg_put(msg, used, SOL_SOCKET, K_SCM_PKTINFO, info, sizeof(info));
}

/* Without SOF_TIMESTAMPING_OPT_RX_FILTER a stamp is told whoever asked for it to be taken. */
static bool told(uint32_t flags, uint32_t report, uint32_t take, const struct pv_stamp_told *t)
{
	return (flags & report) && ((flags & take) || t->sent || !(flags & K_OPT_RX_FILTER));
}

void pv_stamp_put(const struct pv_sock *so, const struct pv_stamp_told *t, struct msghdr *msg, size_t *used)
{
	struct timespec three[3] = { { 0 } };
	int64_t ns = t->ns, raw;
	bool any = false;

	/* Of what only the device stamped Linux tells the present time. */
	if (!ns && (so->rx_flags & (PV_RX_TSTAMP | PV_RX_TSTAMPNS)))
		ns = pv_clock_now(&pv_engine.clock);
	if (ns)
		ns += realtime_offset();
	if (so->rx_flags & (PV_RX_TSTAMP | PV_RX_TSTAMPNS))
		put_plain(so, ns, msg, used);
	if (ns && told(so->st->tsflags, SOF_TIMESTAMPING_SOFTWARE, SOF_TIMESTAMPING_RX_SOFTWARE, t)) {
		three[0] = (struct timespec){ .tv_sec = ns / PV_NS_PER_S, .tv_nsec = ns % PV_NS_PER_S };
		any = true;
	}
	if (t->is_raw && told(so->st->tsflags, SOF_TIMESTAMPING_RAW_HARDWARE, SOF_TIMESTAMPING_RX_HARDWARE, t) &&
	    pv_tstamp_ns(&pv_engine, t->iface, t->raw, &raw)) {
		three[2] = (struct timespec){ .tv_sec = raw / PV_NS_PER_S, .tv_nsec = raw % PV_NS_PER_S };
		any = true;
		if ((so->st->tsflags & SOF_TIMESTAMPING_OPT_PKTINFO) && !t->sent)
			put_pktinfo(t, msg, used);
	}
	if (any)
		pv_cmsg_put(msg, used, SOL_SOCKET, so->rx_flags & PV_RX_TSTAMP_NEW ? K_TIMESTAMPING_NEW : K_TIMESTAMPING_OLD, three,
			    sizeof(three));
	if (any && t->stats)
		pv_cmsg_put(msg, used, SOL_SOCKET, K_SCM_OPT_STATS, t->stats->data, t->stats->len);
}

/* ---- asked for by a message ---------------------------------------------------------------------------------------------- */

int pv_stamp_cmsg(const struct pv_sock *so, const struct cmsghdr *c, uint32_t *what, uint32_t *key)
{
	uint32_t val;

	if (c->cmsg_len != CMSG_LEN(sizeof(val)))
		return -EINVAL;
	memcpy(&val, CMSG_DATA(c), sizeof(val));
	if (c->cmsg_type == PV_SCM_TS_OPT_ID) {
		if (so->stream || !(so->st->tsflags & PV_STAMP_OPT_ID))
			return -EINVAL;
		*key = val;
		*what |= PV_UDP_STAMP_KEY;
		return 0;
	}
	if (val & ~(PV_STAMP_TX | PV_STAMP_TX_COMPLETION))
		return -EINVAL;
	*what = (*what & PV_UDP_STAMP_KEY) | PV_UDP_STAMP_MSG | (val & PV_STAMP_TX);
	return 0;
}

bool pv_stamp_is_cmsg(const struct cmsghdr *c)
{
	return c->cmsg_level == SOL_SOCKET &&
	       (c->cmsg_type == K_TIMESTAMPING_OLD || c->cmsg_type == K_TIMESTAMPING_NEW || c->cmsg_type == PV_SCM_TS_OPT_ID);
}

/* Others may wait for what a send has put into the error queue, in poll or behind an exported fd. */
void pv_stamp_sent(struct pv_sock *so)
{
	struct pv_engine *e = &pv_engine;

	if (e->stack && e->interest && (pv_udp_ready(e->udp) || pv_tcp_ready(e->tcp)))
		pv_engine_route(e);
	pv_ready_update(so);
}

/* ---- where they come from ------------------------------------------------------------------------------------------------ */

/* The interface that it is bound to, or else sends by; of one that has several the first. 0: none. */
static uint32_t iface_of(const struct pv_sock *so)
{
	uint32_t index = pv_sock_iface(so);

	return index || !pv_engine.nports ? index : pv_engine.ports[0].index;
}

int pyvma_sock_stamps(pyvma_sock *h, struct pyvma_sock_stamps *out)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_tstamp_src src;
	int rc;

	if (!so)
		return -EBADF;
	if (!pv_sock_is_ours(so))
		return -ENOTCONN;
	rc = so->stream ? pv_stream_lock(h, so) : pv_sock_lock(h, so);
	if (rc)
		return rc == PV_HANDED ? -ENOTCONN : rc;
	pv_tstamp_get_src(&pv_engine, iface_of(so), &src);
	pv_sock_unlock();
	*out = (struct pyvma_sock_stamps){
		.rx = src.rx, .tx = src.tx, .error_bound_ns = src.error_bound_ns, .samples = src.samples, .steps = src.steps
	};
	snprintf(out->mode, sizeof(out->mode), "%s", pv_tstamp_mode_name(src.mode));
	return 0;
}
