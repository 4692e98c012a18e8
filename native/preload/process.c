/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes. What fork does to the engine's sockets is the engine's business (rt/fork.c): this is what the calls do to our table. */
#include <sys/types.h>
#include <unistd.h>

#include "preload/preload.h"

/* A child of vfork runs in our memory until it execs: what it closes would be closed here. So it gets its own. */
PL_EXPORT pid_t vfork(void)
{
	return fork();
}
