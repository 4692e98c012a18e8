/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection as another TCP needs it to go on where this one stops: numbers, windows, options and the bytes of both queues. The Linux
 * kernel is that other TCP (sock/handback.c); nothing here knows.
 */
#ifndef PV_TCP_EXPORT_H
#define PV_TCP_EXPORT_H

#include "tcp/tcp.h"

struct pv_tcp_export {
	struct pv_endpoint local, remote;
	enum pv_tcp_state state;
	/* Sequence numbers: the first byte nobody has acknowledged; the first that the application has not read. */
	uint32_t snd_seq, rcv_seq;
	uint32_t sent, unsent, unread; /* payload bytes: under way; not sent yet; in order and not read */
	bool fin_queued, fin_sent, fin_acked,
	    fin_rcvd; /* ours, ours, ours, the peer's; FINs have the number behind the last byte */
	bool shut_rd;
	uint32_t snd_wnd, snd_wl1, max_window; /* as RFC 9293 has them; bytes */
	uint32_t rcv_wnd; /* what the peer may send behind the last byte in order */
	uint8_t snd_wscale, rcv_wscale; /* 0 without scaling */
	bool sack, timestamps;
	uint16_t mss; /* that the peer said; 0: it said none */
	uint32_t ts_val, ts_recent; /* our clock of timestamps now, in ms; the peer's last stamp */
};

/*
 * What there is to know of a connection. Nothing changes. -ENOTCONN: there is none, or it is over; -EINPROGRESS: its handshake is not;
 * -EBUSY: urgent data is under way, which has no other form than a pointer into the stream.
 */
int pv_tcp_export(const struct pv_tcp *c, struct pv_tcp_export *out, int64_t now_ns);

enum pv_tcp_export_queue { PV_TCP_EXPORT_UNREAD, PV_TCP_EXPORT_SENT, PV_TCP_EXPORT_UNSENT };
/* The queue's bytes from `off` on, in place: at most `n` pieces. How many; 0: there are no more. */
uint32_t pv_tcp_export_data(const struct pv_tcp *c, enum pv_tcp_export_queue queue, uint32_t off, struct pv_iov *iov, uint32_t n);

/* Would its segments reach the host's TCP, once the host has a connection like it and we have none? */
bool pv_tcp_can_leave(const struct pv_tcp *c);
/*
 * It lives elsewhere from now on: nothing is said to the peer, its rules and its port are gone, and what still comes for it is dropped and
 * counted. Options and queues can be read until pv_tcp_left takes the rest; nothing else may be called between the two.
 */
void pv_tcp_leave(struct pv_tcp *c, int64_t now_ns);
void pv_tcp_left(struct pv_tcp *c);

/* Closed by the program, with bytes for which the peer has no room yet: the first behind `after` (NULL: at all); NULL: no more. */
struct pv_tcp *pv_tcp_orphan_unsent(struct pv_tcp_table *t, struct pv_tcp *after);

#endif
