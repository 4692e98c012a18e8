/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lent buffers and fork. A ring's memory is not copied into a child (MADV_DONTFORK: after a copy on write the device would go on with
 * pages that are the child's). What is lent at the time of the fork the child gets as a copy of its own, at the same addresses, so that
 * whoever holds a payload may go on reading it.
 *
 * All by the thread that forks, with the engine's lock.
 */
#ifndef PV_RT_LENT_H
#define PV_RT_LENT_H

#include "rt/engine.h"

/* Before the fork: costs nothing when nothing is lent. Without memory the child will not have them, and a warning says so. */
void pv_lent_save(const struct pv_engine *e);
/* After it, in the parent. */
void pv_lent_drop(void);
/* After it, in the child, first of all. */
void pv_lent_restore(void);

#endif
