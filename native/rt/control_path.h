/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the control socket is (rt/control.h). */
#ifndef PV_RT_CONTROL_PATH_H
#define PV_RT_CONTROL_PATH_H

#define PV_CONTROL_PATH_MAX 108 /* as sun_path */

/* This process's socket, listening, in `dir` (made when it is missing) or, when that is empty, in the user's runtime directory; sockets
 * there of processes that are gone are removed. The fd, and its name in `path`; -errno with a text. */
int pv_control_listen(const char *dir, char path[PV_CONTROL_PATH_MAX]);

#endif
