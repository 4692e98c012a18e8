/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The port of an interface with several devices beneath (rt/bond.h): a bond ring, and its legs as they come and go. All with the engine's
 * lock. Which legs there are is told by sysfs, read when rtnetlink says that something of links changed; that one works no more, also by
 * the leg's own ring.
 */
#ifndef PV_RT_PORT_BOND_H
#define PV_RT_PORT_BOND_H

#include "rt/engine.h"
#include "rt/host.h"

/* p->spec and p->bond, then p->ring and p->pool. 0 or -errno with a text: nothing is open then. */
int pv_port_bond_open(struct pv_engine *e, struct pv_port *p, const struct pv_host_state *host);
/* Before the ring is closed, which closes the legs: none of their devices is at work any more (rt/port_leg.h). */
void pv_port_bond_rest(struct pv_engine *e, struct pv_port *p);
/* After it. */
void pv_port_bond_close(struct pv_port *p);
/* A leg's device was opened, or with a text could not be (NULL); one that was left has ended. `owner` is the bond of one of e->ports. */
void pv_port_bond_opened(struct pv_engine *e, const struct pv_port_bond *owner, const struct pv_leg_job *job, struct pv_ring *ring);
void pv_port_bond_ended(struct pv_engine *e, const struct pv_port_bond *owner);
void pv_port_bond_forget(struct pv_port *p); /* in a forked child */
/* Once the port stands in e->ports: legs that are there and could not be opened so far, what their rings say. */
void pv_port_bond_events(struct pv_engine *e, struct pv_port *p);
/* Links changed: reads sysfs, brings the legs in line with it. False: it is another kind of interface by now, or there is nothing beneath it
 * any more, and is to be closed and opened. */
bool pv_port_bond_follow(struct pv_engine *e, struct pv_port *p);
/* The daemon is back: a TAP leg that could not be had is asked for with the next pv_port_bond_follow. */
void pv_port_bond_again(struct pv_port *p);
/* Looked at by whoever spins, every few hundred polls. */
void pv_port_bond_glance(struct pv_engine *e, int64_t now);

#endif
