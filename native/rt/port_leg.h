/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What takes a leg's device its time: being opened, and being shut. While the engine runs the progress thread does it without the engine's lock,
 * one device after the other; what comes before and after takes microseconds, with it. Meanwhile the leg may have become another one, its
 * bond may be closed (which waits for the device that is at work), the engine stopped (the same), the process forked (which waits, too: a
 * child would have half of a device).
 *
 * All with the engine's lock.
 */
#ifndef PV_RT_PORT_LEG_H
#define PV_RT_PORT_LEG_H

#include "rt/bond.h"
#include "rt/engine.h"

struct pv_leg_job;

/* Is there a thread that does it? Else the caller waits itself. */
bool pv_leg_thread(const struct pv_engine *e);

/* Opens the device of a slave of the port's bond: `ring` is in no bond yet. 0 or -errno with a text. */
int pv_leg_open(struct pv_engine *e, const struct pv_port *p, const struct pv_bond_slave *s, struct pv_ring **ring);
/* The same by the thread: pv_port_bond_opened will tell. NULL with a text: no memory, or too many rings over the port's buffers. */
struct pv_leg_job *pv_leg_open_later(struct pv_engine *e, const struct pv_port *p, const struct pv_bond_slave *s);
/* Nobody waits for that one any more: what it opens is shut again, and nobody told. */
void pv_leg_unwanted(struct pv_leg_job *job);
/* A leg that pv_bond_leg_part gave is shut by the thread, then ended (pv_bond_leg_end) and pv_port_bond_ended tells. -ENOMEM: the caller's to do. */
int pv_leg_shut_later(struct pv_engine *e, const struct pv_port *p, struct pv_ring *bond, struct pv_ring *leg);

/* The bond is about to be closed: none of its devices is at work when this returns, and none will be. */
void pv_leg_wait(struct pv_engine *e, const struct pv_port_bond *owner);

/* ---- for the progress thread, and fork --------------------------------------------------------------------------------- */

pv_inline bool pv_legs_due(const struct pv_engine *e)
{
	return pv_unlikely(!pv_list_empty(&e->leg_jobs));
}

/* Does what is due; the lock is not held all the while. */
void pv_legs_work(struct pv_engine *e);
/* Waits, without the lock, until nothing is due or at work; some time at most. */
void pv_legs_settle(struct pv_engine *e);
void pv_legs_forget(struct pv_engine *e); /* in a forked child */

#endif
