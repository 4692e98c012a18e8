/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control socket: by it other processes of the same user, and root, reach a live engine.
 *
 * An AF_UNIX socket of whole messages (rt/control_msg.h), mode 0600, named by the process id, in the setting `control_dir` or else the
 * user's runtime directory: /run/pyvma of root, /run/user/UID/pyvma where there is one, /tmp/pyvma-UID. Who connects is asked for by
 * SO_PEERCRED, too. Verbs:
 *	hello                                          pid, version, interfaces
 *	capture [iface snaplen count bytes filter      the answer carries the memfd of rt/capture.h; one at a time a connection. stamps=1:
 *	         stamps]                                devices stamp what they receive, until the engine stops
 *	stop                                           ends the connection's capture, its counters brought up to date
 *	tunables                                       settings that may change now: NAME=VALUE TYPE MIN MAX UNIT
 *	tune name value                                changes one: the answer has `old` and `new`
 *	stats-zero                                     all counters and maxima begin again
 *	dump fd [level]                                what is known of that socket goes to the log, 0: of all; `sockets`, and `shown`: whether
 *	                                               the log shows that level
 *	log-level [level details]                      the log's, the answer has both
 * What a connection asked for ends with it, so a reader that is killed leaves nothing.
 *
 * Served by the progress thread, without waiting for anybody; where that is switched off there is no socket. A socket that cannot be made
 * is said in the log and otherwise without effect. All with the engine's lock.
 */
#ifndef PV_RT_CONTROL_H
#define PV_RT_CONTROL_H

#include "rt/engine.h"

#define PV_CONTROL_CLIENTS 16

void pv_control_open(struct pv_engine *e);
/* After the rings, so that captures have their last frames. */
void pv_control_close(struct pv_engine *e);
/* In a forked child, after its rings were forgotten. */
void pv_control_forget(struct pv_engine *e);

/* Readable when there is something to serve; -1: there is no socket. */
int pv_control_fd(const struct pv_engine *e);
void pv_control_serve(struct pv_engine *e);
/* A ring was opened: captures of all interfaces, and of one of its name, have it from now on. */
void pv_control_port(struct pv_engine *e, const struct pv_port *p);

#endif
