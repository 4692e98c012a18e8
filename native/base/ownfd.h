/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors that are the engine's own: rings, wake-ups, netlink, sets. A program under the preload library does not know of them, and some
 * close every number there is, or take one by dup2: such calls spare what is marked here (preload/file.c). What lives longer than the call
 * that opened it is marked; the engine's close(2) takes the mark away (rt/libc.c), and who has a library close one does so before.
 *
 * Any thread. Numbers above PV_OWNFD_MAX are not marked, and so not spared.
 */
#ifndef PV_BASE_OWNFD_H
#define PV_BASE_OWNFD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#define PV_OWNFD_MAX 65536u
extern uint64_t pv_ownfd_bits[PV_OWNFD_MAX / 64];

/* The same fd; an error's number is nobody's. */
pv_inline int pv_ownfd(int fd)
{
	if ((unsigned int)fd < PV_OWNFD_MAX)
		__atomic_fetch_or(&pv_ownfd_bits[fd / 64], UINT64_C(1) << fd % 64, __ATOMIC_RELAXED);
	return fd;
}

/* The same fd, which is about to be closed or to be the program's. */
pv_inline int pv_ownfd_not(int fd)
{
	if ((unsigned int)fd < PV_OWNFD_MAX)
		__atomic_fetch_and(&pv_ownfd_bits[fd / 64], ~(UINT64_C(1) << fd % 64), __ATOMIC_RELAXED);
	return fd;
}

/* The first one from `fd` to `last`; -1: none. */
int pv_ownfd_next(unsigned int fd, unsigned int last);
/* In a forked child: what it has inherited it may close. */
void pv_ownfd_none(void);

#endif
