/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time stamps of what sockets receive and send (stamp.c), and the error queue, where those of what was sent are read (errq.c). All with
 * the engine's lock, but where said.
 */
#ifndef PV_SOCK_STAMP_H
#define PV_SOCK_STAMP_H

#include "sock/sock.h"

#define PV_SCM_TS_OPT_ID 81 /* the kernel's SCM_TS_OPT_ID */
#define PV_STAMP_OPT_CMSG 0x400u /* SOF_TIMESTAMPING_OPT_CMSG */
#define PV_STAMP_TX_COMPLETION 0x40000u /* SOF_TIMESTAMPING_TX_COMPLETION: taken, and never told, as by most drivers */

/* ---- stamp.c ----------------------------------------------------------------------------------------------------------- */

bool pv_stamp_is(int level, int name); /* no lock */
/* Reads the options from a kernel socket. */
void pv_stamp_import(struct pv_sock *so, int fd);
/* Those of the listener that it was accepted from. */
void pv_stamp_inherit(struct pv_sock *so);
/* Options of a stream that has a TCP socket. 0 or the kernel's -errno. */
int pv_stamp_set(struct pv_sock *so, int name, const void *val, socklen_t len);
int pv_stamp_get(const struct pv_sock *so, int name, void *val, socklen_t *len);

/* Stamps of one message. */
struct pv_stamp_told {
	int64_t ns; /* by the stack's clock; 0: none */
	uint64_t raw; /* the ring's, with is_raw */
	uint32_t iface, frame_len;
	bool is_raw, sent;
	const struct pv_pkt *stats; /* what a stream told with the stamp; NULL: nothing */
};
/* The cmsgs that the socket wants of it. */
void pv_stamp_put(const struct pv_sock *so, const struct pv_stamp_told *t, struct msghdr *msg, size_t *used);

/* Is it one of the cmsgs that ask for stamps? No lock. */
bool pv_stamp_is_cmsg(const struct cmsghdr *c);
/* One of these into what pv_udp_send.stamp and .stamp_key are. 0 or -EINVAL. No lock. */
int pv_stamp_cmsg(const struct pv_sock *so, const struct cmsghdr *c, uint32_t *what, uint32_t *key);
/* A message asks for the device's stamp. */
void pv_stamp_want_tx(void);
/* After a send of a socket, or message, that asked for stamps. */
void pv_stamp_sent(struct pv_sock *so);

/* ---- errq.c ------------------------------------------------------------------------------------------------------------ */

/* recvmsg with MSG_ERRQUEUE; without the lock. */
int64_t pv_errq_recv(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg);
/* Is there something in it? POLLERR. */
bool pv_errq_any(const struct pv_sock *so);

#endif
