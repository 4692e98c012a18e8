/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel's settings, as the network namespace of the calling thread has them. */
#ifndef PV_RT_SYSCTL_H
#define PV_RT_SYSCTL_H

/* The number in /proc/sys/`name`; `otherwise` where there is none, or no such file. */
int pv_sysctl(const char *name, int otherwise);

#endif
