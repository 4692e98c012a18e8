/* SPDX-License-Identifier: BSD-3-Clause */
/* SO_MAX_PACING_RATE on sockets that are, or may become, the stack's. */
#ifndef PV_SOCK_PACING_H
#define PV_SOCK_PACING_H

#include "sock/sock.h"

/* Before an option is set: -EINVAL for a rate that nobody can keep; 0, also for any other option. The lock is held. */
int pv_pacing_check(const struct pv_sock *so, int level, int name, const void *val, socklen_t len);
/* The kernel socket's rate, and the socket's burst, for its UDP socket in the stack; the lock is held. */
void pv_pacing_import(struct pv_sock *so);
/* The options of its TCP socket have the rate: the burst besides. The lock is held. */
void pv_pacing_stream(struct pv_sock *so);
/* It was accepted from a listener with these options. */
void pv_pacing_accepted(struct pv_sock *so);
/* The stack does not have it any more. */
void pv_pacing_end(struct pv_sock *so);

/* enum pyvma_pacing_by */
uint32_t pv_pacing_by(const struct pv_txq_info *q);
/* PYVMA_SOL; without the lock. -ENOPROTOOPT for another name. */
int pv_pacing_set(struct pyvma_sock *h, struct pv_sock *so, int name, const void *val, socklen_t len);
int pv_pacing_get(struct pyvma_sock *h, struct pv_sock *so, int name, void *val, socklen_t *len);

#endif
