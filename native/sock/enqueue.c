/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The accept queue of a listener that goes, while other processes go on with the kernel's half of it: a worker that a reload ends.
 *
 * TCP_REPAIR makes a connection of a socket, never one that waits for accept(2). But a listener takes what returns a SYN cookie, and a BPF
 * program may vouch for that (ring/enqueue.h). So each connection is announced, a segment in its peer's name makes the kernel have it, and what
 * the peer has sent meanwhile follows likewise. Then the stack lets go of it.
 */
#include <string.h>
#include <time.h>

#include "ring/enqueue.h"
#include "rt/log.h"
#include "sock/handback.h"
#include "wire/tcp.h"

/* Handshakes under way are waited for: longer than a round trip of a network where this matters. */
#define EMBRYOS_NS (20 * PV_NS_PER_MS)
#define NAP_NS 50000
/* A new connection of the kernel's has room for as much whatever it came in. */
#define UNREAD_MAX 32768u

static int64_t now(void)
{
	return pv_clock_now(&pv_engine.clock);
}

/* What the peer has sent since. `*seq` is its next number. */
static int follow(const struct pv_tcp *tc, const struct pv_tcp_export *x, uint32_t *seq)
{
	uint32_t off = 0;
	int rc = 0;

	while (!rc && off < x->unread) {
		struct pv_iov piece;
		uint32_t len;

		if (!pv_tcp_export_data(tc, PV_TCP_EXPORT_UNREAD, off, &piece, 1))
			return -EIO;
		len = PV_MIN((uint32_t)piece.len, PV_PEER_SEGMENT_MAX);
		rc = pv_peer_segment(x, PV_TH_PSH, *seq, x->snd_seq, piece.base, len);
		off += len;
		*seq += rc ? 0 : len;
	}
	if (!rc && x->fin_rcvd)
		rc = pv_peer_segment(x, PV_TH_FIN, *seq, x->snd_seq, NULL, 0);
	return rc;
}

/* The kernel's listener has it as well. 0 or -errno. */
static int put(struct pv_enqueue *q, const struct pv_tcp *tc)
{
	struct pv_tcp_export x;
	struct pv_enqueue_conn c;
	uint32_t seq;
	int rc = pv_tcp_export(tc, &x, now());

	if (!rc && (x.unread > UNREAD_MAX || !pv_tcp_can_leave(tc)))
		rc = -EOPNOTSUPP;
	if (rc)
		return rc;
	c = (struct pv_enqueue_conn){ .local = x.local.addr,
				      .remote = x.remote.addr,
				      .lport = x.local.port,
				      .rport = x.remote.port,
				      .mss = x.mss,
				      .snd_wscale = x.snd_wscale,
				      .rcv_wscale = x.rcv_wscale,
				      .sack = x.sack,
				      .timestamps = x.timestamps,
				      .ts_recent = x.ts_recent,
				      .ts_val = x.ts_val + 1 };
	seq = x.rcv_seq;
	rc = pv_enqueue_want(q, &c);
	for (int i = 0; i < 2 && !rc; i++)
		rc = pv_peer_segment(&x, 0, seq, x.snd_seq, NULL, 0);
	/* Its queue is full, as a rule. */
	if (!pv_enqueue_done(q) || rc)
		return rc ? rc : -ENOBUFS;
	rc = follow(tc, &x, &seq);
	/* Half of it is none: whoever accepts it hears so, and the peer from us. */
	if (rc)
		(void)pv_peer_segment(&x, PV_TH_RST, seq, x.snd_seq, NULL, 0);
	return rc;
}

/* All that are on the queue. What the kernel does not take is reset. */
static void put_all(struct pv_enqueue *q, struct pv_tcp *l)
{
	struct pv_tcp *tc;

	while (!pv_tcp_accept(l, &tc)) {
		int rc = put(q, tc);

		if (rc) {
			pv_tcp_options(tc)->linger = true;
			pv_tcp_options(tc)->linger_s = 0;
			pv_tcp_close(tc, now());
			pv_log(PV_LOG_INFO, "listener: a connection that was not accepted is reset: %s", strerror(-rc));
			continue;
		}
		pv_tcp_leave(tc, now());
		pv_tcp_left(tc);
	}
}

static void nap(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

void pv_enqueue_all(struct pv_sock *so)
{
	static bool never; /* engine lock: the kernel does not let us */
	struct pv_enqueue *q;
	int64_t until;
	char why[200];

	if (!so->kernel_leg || pv_tcp_state(so->tc) != PV_TCP_LISTEN || never)
		return;
	/* What begins now is the kernel's, or somebody's here. */
	if (pv_tcp_listens_alone(so->tc)) {
		(void)pv_tcp_gate(so->tc, true);
		pv_tcp_gate_open(pv_engine.tcp, false);
	}
	/* What the program passed on in the moment before it was told of the gate is a listener's as well. */
	nap();
	pv_handback_drain();
	if (pv_tcp_listen_idle(so->tc))
		return;
	if (pv_enqueue_open(&q, why, sizeof(why))) {
		never = true;
		pv_log(PV_LOG_INFO, "listener: what was not accepted is reset: %s", why);
		return;
	}
	until = now() + EMBRYOS_NS;
	for (;;) {
		pv_handback_drain();
		put_all(q, so->tc);
		if (pv_tcp_listen_idle(so->tc) || now() >= until)
			break;
		nap();
	}
	pv_enqueue_close(q);
}
