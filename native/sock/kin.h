/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that a forked child has inherited (doc/handback.md). They stay the stack's, which is the parent's, until one of both wants
 * something that only the kernel can give two processes: the child uses one, or the parent closes it while the child lives.
 */
#ifndef PV_SOCK_KIN_H
#define PV_SOCK_KIN_H

#include "sock/sock.h"

/* ---- in the parent; all with the engine's lock ------------------------------------------------------------------------- */

/* A fork is about to be; `some`: there are connections that a child could use. Then what became of it, in each process. */
void pv_kin_forking(bool some);
void pv_kin_parent(void);
void pv_kin_forked(void);
/* Lives there a child that has the socket? */
bool pv_kin_has(const struct pv_sock *so);
/* The last handle of the socket is closed: a connection that a child has is handed back instead of ended. */
void pv_kin_closing(struct pv_sock *so);
/* It became the kernel's: children who do not have the kernel socket may ask for it. */
void pv_kin_handed(struct pv_sock *so);
/* The process ends in good order: children keep what they have. */
void pv_kin_exit(void);
/* What pv_kin_forking or _handed gave to the extra fd's set is readable. False: `ptr` is none of that. */
bool pv_kin_readable(void *ptr);
/* What a new socket, or kernel socket, is to remember. */
uint32_t pv_kin_number(void);

/* ---- in the child; no lock is held but perhaps the registry's ---------------------------------------------------------- */

/* A stream that was the stack's at the fork: 0: it is the kernel's now, and usable. -ENOTCONN with a text. */
int pv_kin_claim(struct pv_sock *so);

#endif
