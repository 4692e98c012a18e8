/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of a socket, as lines of the log. */
#ifndef PV_RT_STATS_DUMP_H
#define PV_RT_STATS_DUMP_H

#include <stdint.h>

#include "rt/log.h"

#define PV_STATS_DUMP_MAX 64u

/* The sockets of that fd, 0: all; how many. Every field of them and of their halves in the stack that is not 0; of no more than
 * PV_STATS_DUMP_MAX of them, since nothing moves while they are logged: the engine's lock is held. */
uint32_t pv_stats_dump(int fd, enum pv_log_level level);

#endif
