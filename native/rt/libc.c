/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's own system calls.
 *
 * Where the preload library is in the process a call of `close` would come to it first, and from there back to the engine. So the linker
 * turns the engine's calls into calls of __wrap_close (CMakeLists.txt), which go straight to the C library. The search behind this library
 * (RTLD_NEXT) may miss it, as what a preloaded library needs comes behind what the program needs: the C library is named then.
 *
 * In a process of a sanitizer's, but without the preload library, the first definition is the sanitizer's, and the one to call.
 */
#include "rt/libc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/lib-names.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/compiler.h"

#define DECLARE(type, name, params, args)                                                                                          \
	type __wrap_##name params;                                                                                                 \
	static type(*real_##name) params;
PV_LIBC_CALLS(DECLARE)
#undef DECLARE

int __wrap_fcntl(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
static int (*real_fcntl)(int fd, int cmd, ...);
static int (*real_ioctl)(int fd, unsigned long request, ...);

static void *find(void *libc, const char *name)
{
	void *found = dlsym(libc, name);

	/* There is no such system. */
	if (!found)
		abort();
	return found;
}

bool pv_libc_preloaded(void)
{
	return dlsym(RTLD_DEFAULT, "pyvma_preload_version") != NULL;
}

/* When the library is loaded, or by the first call: constructors of other libraries may run before ours. Threads find the same. */
__attribute__((constructor(101))) static void find_all(void)
{
	void *libc = RTLD_DEFAULT;

	if (pv_libc_preloaded())
		libc = dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD);
#define FIND(type, name, params, args) *(void **)(void *)&real_##name = find(libc, #name);
	PV_LIBC_CALLS(FIND)
#undef FIND
	*(void **)(void *)&real_ioctl = find(libc, "ioctl");
	*(void **)(void *)&real_fcntl = find(libc, "fcntl");
}

#define REAL(name) (pv_likely(real_##name) ? real_##name : (find_all(), real_##name))

#define DEFINE(type, name, params, args)                                                                                           \
	type __wrap_##name params                                                                                                  \
	{                                                                                                                          \
		return REAL(name) args;                                                                                            \
	}
PV_LIBC_CALLS(DEFINE)
#undef DEFINE

/* One argument of a word at most, whatever it is. */
int __wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;

	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	return REAL(fcntl)(fd, cmd, arg);
}

int __wrap_fcntl64(int fd, int cmd, ...) __attribute__((alias("__wrap_fcntl")));

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	return REAL(ioctl)(fd, request, arg);
}
