/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/sys.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__x86_64__) && defined(__LP64__)
int pv_sys_kick(int fd)
{
	register long flags __asm__("r10") = MSG_DONTWAIT;
	register long addr __asm__("r8") = 0;
	register long len __asm__("r9") = 0;
	long rc = SYS_sendto;

	__asm__ volatile("syscall"
			 : "+a"(rc)
			 : "D"((long)fd), "S"(0L), "d"(0L), "r"(flags), "r"(addr), "r"(len)
			 : "rcx", "r11", "memory");
	return (int)rc;
}
#elif defined(__aarch64__)
int pv_sys_kick(int fd)
{
	register long nr __asm__("x8") = SYS_sendto;
	register long rc __asm__("x0") = fd;
	register long buf __asm__("x1") = 0;
	register long n __asm__("x2") = 0;
	register long flags __asm__("x3") = MSG_DONTWAIT;
	register long addr __asm__("x4") = 0;
	register long len __asm__("x5") = 0;

	__asm__ volatile("svc #0" : "+r"(rc) : "r"(nr), "r"(buf), "r"(n), "r"(flags), "r"(addr), "r"(len) : "memory");
	return (int)rc;
}
#else
int pv_sys_kick(int fd)
{
	ssize_t rc = sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0);

	return rc < 0 ? -errno : (int)rc;
}
#endif
