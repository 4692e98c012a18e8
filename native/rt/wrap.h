/* SPDX-License-Identifier: BSD-3-Clause */
/* What the settings put around a ring and on it: the middleware fault, and the record pcap_file. */
#ifndef PV_RT_WRAP_H
#define PV_RT_WRAP_H

#include "ring/fault.h"
#include "ring/ring.h"
#include "rt/config.h"

struct pv_wrap; /* what they need while the ring is open */

/*
 * Puts the middleware around *ring, which then stands for the outer one; it is closed as any ring, and *wrap freed after that. Without
 * it *ring stays, without a record *wrap is NULL. `name` is the interface's; it is appended to the file's name when `several`.
 * 0, or -errno with a text; *ring is to be closed in either case.
 */
int pv_wrap_open(struct pv_ring **ring, struct pv_wrap **wrap, const struct pv_config *cfg, const char *name, bool several);
void pv_wrap_close(struct pv_wrap *wrap);

/* "rx_drop=0.01,tx_drop=0,...,seed=1": chances from 0 to 1. 0, -EINVAL with a text. */
int pv_wrap_parse_fault(const char *text, struct pv_fault_cfg *out);

#endif
