/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one system call that a ring makes for a packet. The C library's sendto is a point of cancellation: in a process with several threads
 * that is two atomic operations more, and a thread that was cancelled would end in it, inside the engine.
 */
#ifndef PV_RING_SYS_H
#define PV_RING_SYS_H

/* sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0): what a socket has queued leaves. >= 0 or -errno. A test that lets it
 * fail has one of its own. */
int pv_sys_kick(int fd);

#endif
