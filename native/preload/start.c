/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether to work at all. The engine itself is started by the first socket that is used and may be offloaded (pl_use): what comes before
 * costs a look at the settings.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

#define REST_NS INT64_C(2000000000)
#define INHERITED 128 /* numbers that are looked at; a program is given low ones */

_Thread_local unsigned int pl_inside;
static _Atomic(int) state; /* 0: not known, 1: on, -1: off */
static _Atomic(bool) loaded; /* the constructors of this library, and so of those it needs, have run */

PL_EXPORT const char *pyvma_preload_version(void);
const char *pyvma_preload_version(void)
{
	return PYVMA_VERSION;
}

void pl_say(const char *why, const char *what)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "pyvma: %.400s: %s\n", why, what);

	/* The call that has this to say need not be a cancellation point. */
	if (n > 0 && PL_REAL(syscall)(SYS_write, STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void pl_off(const char *why)
{
	if (atomic_exchange(&state, -1) != -1 && why)
		pl_say(why, "this program has kernel sockets only");
}

static bool look(void)
{
	char text[16];
	int rc;

	/* ld.so preloads nothing into a privileged program that is not trusted to be there. */
	if (getauxval(AT_SECURE))
		return false;
	pl_inside++;
	(void)pyvma_config_set("decide_late", "1");
	pyvma_wait_exact();
	rc = pyvma_config_get("interfaces", text, sizeof(text));
	if (rc > 0 && pyvma_config_get("offload", text, sizeof(text)) > 0 && !strcmp(text, "0"))
		rc = 0;
	pl_inside--;
	if (rc < 0)
		pl_off(pyvma_last_error());
	return rc > 0;
}

bool pl_on(void)
{
	int known = atomic_load_explicit(&state, memory_order_relaxed), none = 0, cancel;

	if (pl_inside)
		return false;
	if (pv_likely(known))
		return known > 0;
	/* A socket that another library's constructor makes before is the kernel's: the engine has not set itself up. */
	if (!atomic_load_explicit(&loaded, memory_order_acquire))
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* settings are read from files, and socket(2) ends no thread */
	atomic_compare_exchange_strong(&state, &none, look() ? 1 : -1);
	pthread_setcancelstate(cancel, NULL);
	return atomic_load_explicit(&state, memory_order_relaxed) > 0;
}

_Atomic(bool) pl_ending;
static _Thread_local bool ends;
static _Atomic(int64_t) rest_until;

void pl_rest(void)
{
	struct timespec ts = { .tv_nsec = 10000000 };

	/* No cancellation point, as not every call is one. */
	while (!ends && atomic_load_explicit(&pl_ending, memory_order_relaxed) && pl_now_ns() < rest_until)
		(void)PL_REAL(syscall)(SYS_nanosleep, &ts, NULL);
}

void pl_end(void)
{
	ends = true;
	rest_until = pl_now_ns() + REST_NS;
	atomic_store_explicit(&pl_ending, true, memory_order_seq_cst);
}

/* Behind the program's own handlers, and before the engine's, which were registered before. What is used later is the kernel's. */
static void at_exit(void)
{
	/* What ends from here on is the process: the thread must not before, in what the engine does. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pl_stdio_flush();
	pl_end();
	pl_off(NULL);
}

static bool option_is(int fd, int option, int value)
{
	int has = -1;
	socklen_t len = sizeof(has);

	return PL_REAL(getsockopt)(fd, SOL_SOCKET, option, &has, &len) == 0 && has == value;
}

static bool listens(int fd)
{
	return option_is(fd, SO_ACCEPTCONN, 1) && option_is(fd, SO_PROTOCOL, IPPROTO_TCP) &&
	       (option_is(fd, SO_DOMAIN, AF_INET) || option_is(fd, SO_DOMAIN, AF_INET6));
}

/* Listeners that an exec has left to the program (a reload by exec, socket activation) are as those that a fork leaves: not used yet. What
 * datagram sockets have been told (groups) the kernel does not tell: they stay as they are. A filter of system calls that the program was
 * started with knows fstat, which the dynamic linker makes; getsockopt it is asked for only where there is a socket (sandbox.c). */
static void inherit(void)
{
	struct stat st;

	for (int fd = 0; fd < INHERITED; fd++)
		if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && pl_on() && !pl_sandbox() && listens(fd) && pl_put(fd, PL_LATE))
			pyvma_listener_shared(1);
}

__attribute__((constructor)) static void at_load(void)
{
	int saved = errno;
	char text[16];

	atomic_store_explicit(&loaded, true, memory_order_release);
	(void)atexit(at_exit);
	/* Settings are of the environment that the program was given: exim and others empty theirs before their first socket. What
	 * is wrong with them is kept, and said by `look`. */
	if (!getauxval(AT_SECURE)) {
		pl_inside++;
		(void)pyvma_config_get("interfaces", text, sizeof(text));
		pl_inside--;
	}
	inherit();
	errno = saved;
}
