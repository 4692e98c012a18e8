/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections of the stack's that become the kernel's as they are (doc/handback.md): handback.c moves one, repair.c is what the kernel
 * offers for that.
 */
#ifndef PV_SOCK_HANDBACK_H
#define PV_SOCK_HANDBACK_H

#include "sock/sock.h"
#include "tcp/export.h"

/* ---- handback.c -------------------------------------------------------------------------------------------------------- */

/* `so` is a stream of the stack's, the lock is held. 0: it is the kernel's, with "handed back: " and `why` as its reason. Else nothing has
 * changed and there is a text: -EOPNOTSUPP (not on an interface of the kernel's), -EPERM (no CAP_NET_ADMIN), -EINPROGRESS (a handshake),
 * -ENOTCONN, -EBUSY (urgent data), what the kernel said. */
int pv_handback(struct pv_sock *so, const char *why);
/* Takes in what lies in the rings. The engine's lock is held. */
void pv_handback_drain(void);
/* The process ends: connections that have bytes for which the peer has no room yet; the kernel sends those, however long that takes. The
 * engine's lock is held. */
void pv_handback_unsent(void);

/* ---- enqueue.c --------------------------------------------------------------------------------------------------------- */

/* A listener of both is about to go, and somebody else may have the kernel's half: what waits in the stack's queue goes to that one's, as far
 * as the kernel takes it. The engine's lock is held; some milliseconds may pass, for handshakes that are under way. */
void pv_enqueue_all(struct pv_sock *so);

/* ---- peer.c ------------------------------------------------------------------------------------------------------------ */

#define PV_PEER_SEGMENT_MAX 2048u
/* A segment of its peer's, with so much payload at most, reaches the kernel. 0 or -errno. */
int pv_peer_segment(const struct pv_tcp_export *x, uint8_t flags, uint32_t seq, uint32_t ack, const void *data, uint32_t len);

/* ---- repair.c: one connection in the kernel, which nobody hears of yet ------------------------------------------------- */

struct pv_repair {
	int fd;
	int family;
	const struct pv_tcp_export *x;
	const struct pv_tcp *tc; /* whose queues they are */
	bool bound; /* the socket has its name */
	uint32_t device; /* the kernel's number; 0: not bound to one */
};

/* The socket becomes the connection, in repair mode: nothing leaves, and closing it says nothing. 0 or -errno; after that pv_repair_undo. */
int pv_repair_make(struct pv_repair *r);
void pv_repair_undo(struct pv_repair *r);
/* It goes on. -errno: it has ended. */
int pv_repair_go(struct pv_repair *r);
/* Before anything else: may this process? 0, -EPERM, what the kernel says. */
int pv_repair_begin(int fd);

#endif
