/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals that wait for a thread which blocks them for the time of a wait. */
#ifndef PV_RT_PENDING_H
#define PV_RT_PENDING_H

#include <signal.h>
#include <stdbool.h>

/*
 * All with signals blocked. Signals of the whole process are the first thread's, if that does not block them: so the kernel has it. Another
 * one that finds such a signal leaves that one some time to take it.
 */

/* The thread has blocked its signals for a wait that lets in all but `mask`. */
void pv_pending_masked(const sigset_t *mask);
/* Is there anything that the thread is to let in, under `*out`, which is `mask` or more? */
bool pv_pending(const sigset_t *mask, sigset_t *out);
/* Sets the thread's mask. */
void pv_pending_unmask(const sigset_t *mask);
/* In a forked child. */
void pv_pending_forked(void);

#endif
