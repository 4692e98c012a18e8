/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections put on the accept queue of a listener of the kernel's, which knew nothing of them: a program on the loopback interface tells
 * it so when a segment of theirs comes by there (bpf/enqueue.bpf.c). Linux 6.9, CAP_BPF, CAP_NET_ADMIN; while it is open.
 */
#ifndef PV_RING_ENQUEUE_H
#define PV_RING_ENQUEUE_H

#include <errno.h>
#include <stdio.h>

#include "base/addr.h"
#include "base/compiler.h"

struct pv_enqueue;

/* What the handshake agreed on. */
struct pv_enqueue_conn {
	struct pv_addr local, remote;
	uint16_t lport, rport; /* host order */
	uint16_t mss; /* the peer's */
	uint8_t snd_wscale, rcv_wscale; /* 0 without scaling */
	bool sack, timestamps;
	uint32_t ts_recent, ts_val; /* the peer's last stamp; ours now, in ms */
};

#ifdef PV_HAVE_XDP

/* 0 or -errno with a text: -EPERM, -EOPNOTSUPP (an older kernel). */
int pv_enqueue_open(struct pv_enqueue **out, char *err, size_t errsize);
void pv_enqueue_close(struct pv_enqueue *q);
/* The segment that comes next by the loopback interface with these addresses and ports is an ACK that makes it a connection: its numbers are
 * the first ones. It has to come twice: then the connection is found. 0 or -errno. */
int pv_enqueue_want(struct pv_enqueue *q, const struct pv_enqueue_conn *c);
/* Was it found? Once this was asked nothing is wanted any more. */
bool pv_enqueue_done(struct pv_enqueue *q);

#else

static inline int pv_enqueue_open(struct pv_enqueue **out, char *err, size_t errsize)
{
	*out = NULL;
	snprintf(err, errsize, "this build has no AF_XDP");
	return -EOPNOTSUPP;
}

static inline void pv_enqueue_close(struct pv_enqueue *q)
{
	(void)q;
}

static inline int pv_enqueue_want(struct pv_enqueue *q, const struct pv_enqueue_conn *c)
{
	(void)q;
	(void)c;
	return -EOPNOTSUPP;
}

static inline bool pv_enqueue_done(struct pv_enqueue *q)
{
	(void)q;
	return false;
}

#endif

#endif
