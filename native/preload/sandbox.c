/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sandboxes of system calls. The engine makes calls that a program behind a seccomp filter may have no right to, and some filters kill for
 * them, so that must be known before the first one.
 *
 * A filter that the program gave itself before it used a socket is enough to stay out: it was made for what the program does. One that it was
 * started with (containers have one always) is tried by a child, which makes the engine's calls and may die of one. What a filter answers with
 * an error needs nobody's care here: it is an error of the engine's start.
 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/preload.h"

#ifndef AF_XDP
#define AF_XDP 44
#endif
#define STATUS "/proc/self/status"

static _Atomic(bool) filtered; /* by the program itself */

/* ---- the program makes one --------------------------------------------------------------------------------------------- */

static void noted(long rc, bool is_filter)
{
	if (rc >= 0 && is_filter)
		atomic_store_explicit(&filtered, true, memory_order_relaxed);
}

PL_EXPORT int prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;
	int rc;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	rc = PL_REAL(prctl)(option, a[0], a[1], a[2], a[3]);
	noted(rc, option == PR_SET_SECCOMP);
	return rc;
}

/*
 * libseccomp makes its filters by this. And libuv its io_uring, by which it then tells the kernel what to watch, which would be the kernel's
 * sockets: told that this kernel has none it does so by epoll_ctl.
 */
PL_EXPORT long syscall(long number, ...)
{
	long a[6], rc;
	va_list ap;

	if (pv_unlikely(number == SYS_io_uring_setup) && pl_on()) {
		errno = ENOSYS;
		return -1;
	}
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	rc = PL_REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (pv_unlikely(number == SYS_seccomp || number == SYS_prctl))
		noted(rc, number == SYS_prctl ? a[0] == PR_SET_SECCOMP : a[0] != SECCOMP_GET_ACTION_AVAIL);
	return rc;
}

/* ---- it was there ------------------------------------------------------------------------------------------------------ */

/* The dynamic linker opened and read files, so that may be done; nothing is known of prctl. */
static bool inherited(void)
{
	char text[4096];
	int fd = open(STATUS, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : PL_REAL(read)(fd, text, sizeof(text) - 1);
	const char *line;

	if (fd >= 0)
		PL_REAL(close)(fd);
	if (n <= 0) /* no /proc */
		return PL_REAL(prctl)(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER;
	text[n] = '\0';
	line = strstr(text, "\nSeccomp:");
	return line && line[9 + strspn(line + 9, " \t")] == '2';
}

/* What the engine needs beside files and sockets of IP; arguments that do nothing. `must`: what the program's poll(2) and select(2) become. */
static const struct {
	const char *name;
	long number;
	bool must;
	long a, b;
} calls[] = {
	{ "AF_XDP sockets", SYS_socket, false, AF_XDP, SOCK_RAW },
	{ "netlink", SYS_socket, false, AF_NETLINK, SOCK_RAW },
	{ "bpf", SYS_bpf, false, BPF_MAP_CREATE, 0 },
	{ "eventfd", SYS_eventfd2, false, 0, 0 },
	{ "epoll", SYS_epoll_create1, false, 0, 0 },
	{ "signalfd", SYS_signalfd4, false, -1, 0 },
	{ "memfd_create", SYS_memfd_create, false, 0, 0 },
	{ "ppoll", SYS_ppoll, true, 0, 0 },
	{ "getrandom", SYS_getrandom, false, 0, 0 },
	{ "flock", SYS_flock, false, -1, 0 },
	{ "ftruncate", SYS_ftruncate, false, -1, 0 },
	{ "madvise", SYS_madvise, false, 0, 0 },
	{ "sched_getaffinity", SYS_sched_getaffinity, false, 0, 0 },
};

static _Noreturn void try_all(volatile unsigned int *at)
{
	struct { /* as the kernel has it: SIG_DFL and nothing more, also where the program handles SIGSYS */
		void *handler;
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} none = { .handler = NULL };

	PL_REAL(syscall)(SYS_rt_sigaction, SIGSYS, &none, NULL, sizeof(none.mask));
	for (*at = 0; *at < sizeof(calls) / sizeof(*calls); ++*at) {
		struct timespec nothing = { 0 };
		unsigned int i = *at;
		long rc;

		/* ppoll(NULL, 0, &nothing, NULL); the third argument of the others may be 0. */
		rc = PL_REAL(syscall)(calls[i].number, calls[i].a, calls[i].b, calls[i].must ? (long)&nothing : 0L, 0L, 0L, 0L);
		if (rc < 0 && calls[i].must)
			break;
	}
	for (;;)
		PL_REAL(syscall)(SYS_exit_group, 0);
}

/* Which call it is that cannot be; NULL: none, or nobody knows. */
static const char *forbidden(void)
{
	volatile unsigned int *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *name = NULL;
	int status = 0;
	long pid;

	if (at == MAP_FAILED)
		return NULL;
	/* A child of which the program hears nothing: no SIGCHLD, and wait() does not find it. */
	pid = PL_REAL(syscall)(SYS_clone, 0L, 0L, 0L, 0L, 0L, 0L);
	if (pid == 0)
		try_all(at);
	if (pid > 0) {
		while (waitpid((pid_t)pid, &status, __WCLONE) < 0 && errno == EINTR)
			;
		if (*at < sizeof(calls) / sizeof(*calls))
			name = calls[*at].name;
	}
	munmap((void *)(uintptr_t)at, sizeof(*at));
	return name;
}

const char *pl_sandbox(void)
{
	static char text[96];
	static bool known;
	const char *name;
	int saved = errno;

	if (known)
		return NULL;
	known = true;
	if (atomic_load_explicit(&filtered, memory_order_relaxed))
		return "the program has a seccomp filter of its own";
	name = inherited() ? forbidden() : NULL;
	errno = saved;
	if (!name)
		return NULL;
	snprintf(text, sizeof(text), "the seccomp sandbox here forbids %s", name);
	return text;
}
