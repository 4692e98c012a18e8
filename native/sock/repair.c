/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection put into a kernel socket by what tcp(7) calls TCP_REPAIR: in that mode connect(2) sends no SYN, what is written is taken for
 * sent or for received, and closing the socket tells the peer nothing. So until the last step all of it can be taken back.
 *
 * The mode knows established connections only. A FIN of ours that is under way is made by shutdown(2), which in this mode sends nothing; what
 * the peer's FIN, or its acknowledgement of ours, would do is had by a segment in the peer's name, from a raw socket by way of the
 * loopback interface. Its sequence numbers are the ones that the connection is at: to the kernel it is one that came late.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rt/error.h"
#include "sock/handback.h"
#include "wire/tcp.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef TCP_REPAIR_OFF_NO_WP
#define TCP_REPAIR_OFF_NO_WP (-1)
#endif

/* Options of a SYN, as TCP_REPAIR_OPTIONS names them (RFC 9293 3.1, RFC 7323, RFC 2018). */
enum { OPT_MSS = 2, OPT_WSCALE = 3, OPT_SACK = 4, OPT_TS = 8 };

#define PIECES 64u
/* Beside what is queued: room for what comes before the kernel finds its own measure. */
#define BUF_SPARE 262144u
/* A segment of loopback's is taken in before sendto(2) returns, or very soon after. */
#define STATE_TRIES 50
#define STATE_NAP_NS 1000000
/* The kernel is short of memory, or its buffers are. */
#define WRITE_TRIES 1000

static int set_int(int fd, int level, int name, int val)
{
	return setsockopt(fd, level, name, &val, sizeof(val)) < 0 ? -errno : 0;
}

int pv_repair_begin(int fd)
{
	return set_int(fd, IPPROTO_TCP, TCP_REPAIR, 1);
}

/* ---- numbers, name, options -------------------------------------------------------------------------------------------- */

static int set_queue(int fd, int queue)
{
	return set_int(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);
}

static int set_seq(int fd, int queue, uint32_t seq)
{
	int rc = set_queue(fd, queue);

	return rc ? rc : set_int(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, (int)seq);
}

/* Larger than the program's for now: what is put into them all at once came bit by bit. */
static void room(const struct pv_repair *r)
{
	(void)set_int(r->fd, SOL_SOCKET, SO_SNDBUFFORCE, (int)(r->x->sent + r->x->unsent + BUF_SPARE));
	(void)set_int(r->fd, SOL_SOCKET, SO_RCVBUFFORCE, (int)(r->x->unread + r->x->rcv_wnd + BUF_SPARE));
}

static int name(const struct pv_repair *r)
{
	struct sockaddr_storage ss;
	socklen_t len = pv_addr_format(r->family, &r->x->local, &ss, sizeof(ss));

	if (r->device)
		(void)set_int(r->fd, SOL_SOCKET, SO_BINDTOIFINDEX, (int)r->device);
	if (!r->bound && bind(r->fd, (struct sockaddr *)&ss, len) < 0)
		return -errno;
	len = pv_addr_format(r->family, &r->x->remote, &ss, sizeof(ss));
	return connect(r->fd, (struct sockaddr *)&ss, len) < 0 ? -errno : 0;
}

/* The kernel measured its segments by the MSS that it takes for granted before a SYN says another one, and measures again when the socket's
 * IP options are set, to none here. Of IPv6 there has to be something, though nothing that becomes a header. */
static void measure(const struct pv_repair *r)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} c = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_HOPLIMIT } };
	int hops = -1;

	memcpy(CMSG_DATA(&c.head), &hops, sizeof(hops));
	if (pv_addr_is4(&r->x->local.addr))
		(void)setsockopt(r->fd, IPPROTO_IP, IP_OPTIONS, NULL, 0);
	else
		(void)setsockopt(r->fd, IPPROTO_IPV6, IPV6_2292PKTOPTIONS, &c, sizeof(c));
}

static int options(const struct pv_repair *r)
{
	const struct pv_tcp_export *x = r->x;
	struct tcp_repair_opt o[4] = { { OPT_MSS, x->mss                         ? x->mss
						  : pv_addr_is4(&x->remote.addr) ? 536
										 : 1220 },
				       { OPT_WSCALE, x->snd_wscale | (uint32_t)x->rcv_wscale << 16 } };
	uint32_t n = 2;
	int rc;

	if (x->sack)
		o[n++].opt_code = OPT_SACK;
	if (x->timestamps)
		o[n++].opt_code = OPT_TS;
	rc = setsockopt(r->fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, o, n * (socklen_t)sizeof(o[0])) < 0 ? -errno : 0;
	measure(r);
	if (rc || !x->timestamps)
		return rc;
	/* An odd value is of a clock that counts microseconds; and time has passed since ours was read. */
	return set_int(r->fd, IPPROTO_TCP, TCP_TIMESTAMP, (int)((x->ts_val + 2) & ~1u));
}

static int windows(const struct pv_repair *r)
{
	const struct pv_tcp_export *x = r->x;
	uint32_t rcv_nxt = x->rcv_seq + x->unread;
	struct tcp_repair_window w = {
		.snd_wl1 = x->snd_wl1,
		.snd_wnd = x->snd_wnd,
		.max_window = x->max_window,
		/* Nothing comes behind a FIN, and where one is to come a window has to be. */
		.rcv_wnd = x->fin_rcvd ? PV_MAX(x->rcv_wnd, UINT16_MAX) : x->rcv_wnd,
		.rcv_wup = rcv_nxt,
	};

	return setsockopt(r->fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &w, sizeof(w)) < 0 ? -errno : 0;
}

/* ---- the queues -------------------------------------------------------------------------------------------------------- */

static void nap(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = STATE_NAP_NS }, NULL);
}

static int write_queue(const struct pv_repair *r, enum pv_tcp_export_queue queue, uint32_t total)
{
	struct pv_iov iov[PIECES];
	uint32_t off = 0;
	int tries = 0;

	while (off < total) {
		struct msghdr msg = { .msg_iov = (struct iovec *)(void *)iov };
		ssize_t n;

		msg.msg_iovlen = pv_tcp_export_data(r->tc, queue, off, iov, PIECES);
		if (!msg.msg_iovlen)
			return -EIO;
		n = sendmsg(r->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			off += (uint32_t)n;
			tries = 0;
			continue;
		}
		if (n < 0 && errno != EAGAIN && errno != ENOMEM && errno != EINTR)
			return -errno;
		if (++tries > WRITE_TRIES)
			return -ENOBUFS;
		nap();
	}
	return 0;
}

static int queues(const struct pv_repair *r)
{
	int rc = set_queue(r->fd, TCP_RECV_QUEUE);

	if (!rc)
		rc = write_queue(r, PV_TCP_EXPORT_UNREAD, r->x->unread);
	if (!rc)
		rc = set_queue(r->fd, TCP_SEND_QUEUE);
	return rc ? rc : write_queue(r, PV_TCP_EXPORT_SENT, r->x->sent);
}

/* ---- beyond ESTABLISHED ------------------------------------------------------------------------------------------------ */

static int state_of(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ? -errno : info.tcpi_state;
}

static int await(int fd, enum pv_tcp_state state)
{
	for (int i = 0; i < STATE_TRIES; i++) {
		if (state_of(fd) == (int)state)
			return 0;
		nap();
	}
	return -EPROTO;
}

static int peers_fin(const struct pv_repair *r, uint32_t ack, enum pv_tcp_state then)
{
	int rc = pv_peer_segment(r->x, PV_TH_FIN, r->x->rcv_seq + r->x->unread, ack, NULL, 0);

	return rc ? rc : await(r->fd, then);
}

/* Numbers and states are those of RFC 9293 3.10.7.4: what leads to the present state, in the order in which it happened. */
static int ends(const struct pv_repair *r)
{
	const struct pv_tcp_export *x = r->x;
	bool theirs_first = x->state == PV_TCP_CLOSE_WAIT || x->state == PV_TCP_LAST_ACK;
	int rc = 0;

	if (x->fin_rcvd && theirs_first)
		rc = peers_fin(r, x->snd_seq, PV_TCP_CLOSE_WAIT);
	if (!rc && x->fin_sent && shutdown(r->fd, SHUT_WR) < 0)
		rc = -errno;
	if (!rc && x->fin_acked) {
		rc = pv_peer_segment(x, 0, x->rcv_seq + x->unread, x->snd_seq + 1, NULL, 0);
		if (!rc)
			rc = await(r->fd, PV_TCP_FIN_WAIT_2);
	}
	if (!rc && x->fin_rcvd && !theirs_first)
		rc = peers_fin(r, x->snd_seq, PV_TCP_CLOSING);
	return rc;
}

/* To a socket that is bound to a device loopback's segments do not come: the kernel would answer them with a reset. */
static bool ends_can_be_had(const struct pv_repair *r)
{
	return !(r->x->fin_rcvd || r->x->fin_acked) ||
	       (!r->device && (pv_addr_is4(&r->x->local.addr) || !pv_addr_is_linklocal6(&r->x->local.addr)));
}

/* ---- all of it --------------------------------------------------------------------------------------------------------- */

int pv_repair_make(struct pv_repair *r)
{
	int rc = ends_can_be_had(r) ? 0 : -EOPNOTSUPP;

	if (!rc)
		rc = set_seq(r->fd, TCP_SEND_QUEUE, r->x->snd_seq);
	if (!rc)
		rc = set_seq(r->fd, TCP_RECV_QUEUE, r->x->rcv_seq);
	if (rc)
		return rc;
	room(r);
	rc = name(r);
	if (!rc)
		rc = options(r);
	if (!rc)
		rc = queues(r);
	if (!rc)
		rc = windows(r);
	return rc ? rc : ends(r);
}

void pv_repair_undo(struct pv_repair *r)
{
	const struct sockaddr un = { .sa_family = AF_UNSPEC };
	int err;

	(void)connect(r->fd, &un, sizeof(un));
	(void)set_int(r->fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP);
	(void)getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){ sizeof(err) });
}

/* Leaving the mode asks the peer for its window with a probe: what was lost on the way to us comes to light by the answer. */
int pv_repair_go(struct pv_repair *r)
{
	const struct pv_tcp_export *x = r->x;
	int rc = set_queue(r->fd, TCP_NO_QUEUE);

	if (!rc)
		rc = set_int(r->fd, IPPROTO_TCP, TCP_REPAIR, 0);
	if (!rc)
		rc = write_queue(r, PV_TCP_EXPORT_UNSENT, x->unsent);
	if (!rc && x->fin_queued && !x->fin_sent && shutdown(r->fd, SHUT_WR) < 0)
		rc = -errno;
	if (!rc && x->shut_rd && shutdown(r->fd, SHUT_RD) < 0 && errno != ENOTCONN)
		rc = -errno;
	return rc;
}
