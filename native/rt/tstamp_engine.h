/* SPDX-License-Identifier: BSD-3-Clause */
/* What engine, ports and progress thread do with the converters of tstamp.h. */
#ifndef PV_RT_TSTAMP_ENGINE_H
#define PV_RT_TSTAMP_ENGINE_H

#include "rt/tstamp.h"

struct pv_port;
struct pv_tstamp;

/* A ring was opened, one is about to be closed. The engine's lock is held. Nothing happens before the first pv_tstamp_want. */
void pv_tstamp_port_add(struct pv_engine *e, const struct pv_port *p);
void pv_tstamp_port_del(struct pv_engine *e, const struct pv_port *p);
/* Without a progress thread, every ring closed, the engine's lock held. */
void pv_tstamp_stop(struct pv_engine *e);

/* When pv_tstamp_tick is to be called next, by CLOCK_MONOTONIC; PV_NEVER: not. `t` NULL: not. Any thread. */
int64_t pv_tstamp_deadline(const struct pv_tstamp *t);
/* Looks at the clocks that are due. Any thread, with or without the engine's lock; `t` must not go meanwhile. */
void pv_tstamp_tick(struct pv_tstamp *t);

#endif
