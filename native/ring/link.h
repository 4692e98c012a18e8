/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does an interface of the kernel's exist, and which number has it? By the kernel's list alone: no module is loaded for a name that nobody
 * has, as ioctl does it for root (dev_load: a process is started and waited for, twice), and the lock of links is not waited for, as with
 * rtnetlink, which whoever takes an interface away holds meanwhile.
 */
#ifndef PV_RING_LINK_H
#define PV_RING_LINK_H

#include <stdint.h>

/* The interface of that name in the namespace of `fd`, a socket that nothing else is done with: it is bound to it. 0: there is none. */
uint32_t pv_link_of(int fd, const char *name);
/* The same in the calling thread's namespace. */
uint32_t pv_link_index(const char *name);

#endif
