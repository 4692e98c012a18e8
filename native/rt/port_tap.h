/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP leg of a NetVSC: a device of pyvmad's, whose rules redirect the process's flows from the synthetic interface to it and what is
 * sent by it back there. With the setting daemon=none the device is the process's own, and rules are whoever's who wants them. All with the
 * engine's lock.
 */
#ifndef PV_RT_PORT_TAP_H
#define PV_RT_PORT_TAP_H

#include "rt/engine.h"

struct pv_port_tap; /* what it needs while the ring is open */

struct pv_port_tap_cfg {
	struct pv_pool *pool;
	uint32_t ifindex; /* the synthetic interface's */
	uint32_t rx_depth, tx_depth, mtu;
	const uint8_t *mac;
};

/* 0 or -errno with a text. The ring is to be closed first. */
int pv_port_tap_open(struct pv_engine *e, const struct pv_port_tap_cfg *cfg, struct pv_ring **ring, struct pv_port_tap **out);
void pv_port_tap_close(struct pv_port_tap *t); /* NULL: nothing */
void pv_port_tap_forget(struct pv_port_tap *t); /* in a forked child */

#endif
