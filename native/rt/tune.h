/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings of PV_CONFIG_LIVE in a running engine. With the engine's lock. */
#ifndef PV_RT_TUNE_H
#define PV_RT_TUNE_H

#include "rt/engine.h"

/* The engine, its stack and the log have the values that are in e->cfg. The stack is there. */
void pv_tune_apply(struct pv_engine *e);
/* Sets one of them and applies it. 0 or -errno with a text, as pv_config_tune. */
int pv_tune(struct pv_engine *e, const char *name, const char *value);

#endif
