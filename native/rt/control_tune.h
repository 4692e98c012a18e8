/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs of the control socket that change a live engine (rt/control.h names them). With the engine's lock. */
#ifndef PV_RT_CONTROL_TUNE_H
#define PV_RT_CONTROL_TUNE_H

#include "rt/control_msg.h"
#include "rt/engine.h"

/* Does what `in` asks; `out` has been begun. 0 or -errno with a text: -EOPNOTSUPP (no such verb), -EINVAL, -ENOENT, -EPERM. */
int pv_control_tune(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out);

#endif
