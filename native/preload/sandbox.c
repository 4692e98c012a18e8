/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sandboxes of system calls. The engine makes calls that a program behind a seccomp filter may have no right to, and some filters kill for
 * them, so that must be known before the first one.
 *
 * A filter that the program gave itself before it used a socket is enough to stay out: it was made for what the program does. One that it was
 * started with (containers have one always) is tried by a child, which makes the engine's calls and may die of one. What a filter answers with
 * an error is an error of the engine's start, where that makes the call; what it makes only later is tried.
 *
 * One that the program makes while the engine runs a child makes first, and tries. If it takes away any call, or changes what one answers,
 * everything becomes the kernel's before the program has it (retreat.c). Filters that look at other arguments than the trial has may still
 * refuse what it found allowed.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
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
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
/* Nobody would listen to the child's notifications, and it has no other threads. */
#define NOT_TRIED                                                                                                                  \
	(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV | SECCOMP_FILTER_FLAG_TSYNC |                   \
	 SECCOMP_FILTER_FLAG_TSYNC_ESRCH)
#define STATUS "/proc/self/status"

static _Atomic(bool) filtered; /* by the program itself */

/* ---- the engine's calls ------------------------------------------------------------------------------------------------ */

static uint32_t word;
static struct timespec nothing;

#define MASK_SIZE 8 /* of the kernel's sigset_t */
#define ANY -1 /* no errno is: what a program may not do differs */
#define START -2 /* the same; the engine makes it when it starts, and then no more */
/* With arguments that do nothing, and the errno that this has. `later`: the engine's start does not make it, or cannot do without. */
static const struct {
	const char *name;
	long number;
	bool later;
	int err;
	long a[6];
} calls[] = {
	{ "AF_XDP sockets", SYS_socket, false, ANY, { AF_XDP, SOCK_RAW } },
	{ "netlink", SYS_socket, false, ANY, { AF_NETLINK, SOCK_RAW } },
	{ "bpf", SYS_bpf, false, ANY, { BPF_MAP_CREATE } },
	{ "eventfd", SYS_eventfd2, false, ANY, { 0 } },
	{ "epoll", SYS_epoll_create1, false, ANY, { 0 } },
	{ "signalfd", SYS_signalfd4, false, ANY, { -1 } },
	{ "memfd_create", SYS_memfd_create, false, ANY, { 0 } },
	{ "getrandom", SYS_getrandom, false, ANY, { 0 } },
	{ "flock", SYS_flock, false, ANY, { -1 } },
	{ "ftruncate", SYS_ftruncate, false, ANY, { -1 } },
	{ "madvise", SYS_madvise, false, ANY, { 0 } },
	{ "sched_getaffinity", SYS_sched_getaffinity, false, ANY, { 0 } },
	{ "membarrier", SYS_membarrier, false, ANY, { MEMBARRIER_CMD_QUERY } },
	{ "openat", SYS_openat, false, ANY, { -1 } },
	{ "newfstatat", SYS_newfstatat, false, ANY, { -1 } },
	{ "getdents64", SYS_getdents64, false, START, { -1 } },
	{ "faccessat2", SYS_faccessat2, false, START, { -1 } },
	{ "fallocate", SYS_fallocate, false, START, { -1 } },
	{ "fchmod", SYS_fchmod, false, START, { -1 } },
	{ "pread64", SYS_pread64, false, START, { -1 } },
#ifdef SYS_mkdir /* newer architectures have those with `at` only */
	{ "access", SYS_access, false, START, { 0 } },
	{ "mkdir", SYS_mkdir, false, START, { 0 } },
	{ "unlink", SYS_unlink, false, ANY, { 0 } },
	{ "readlink", SYS_readlink, false, START, { 0 } },
#else
	{ "faccessat", SYS_faccessat, false, START, { -1 } },
	{ "mkdirat", SYS_mkdirat, false, START, { -1 } },
	{ "unlinkat", SYS_unlinkat, false, ANY, { -1 } },
	{ "readlinkat", SYS_readlinkat, false, START, { -1 } },
#endif
	{ "bind", SYS_bind, false, ANY, { -1 } },
	{ "connect", SYS_connect, false, ANY, { -1 } },
	{ "listen", SYS_listen, false, START, { -1 } },
	{ "getsockname", SYS_getsockname, false, ANY, { -1 } },
	{ "getpeername", SYS_getpeername, false, ANY, { -1 } },
	{ "shutdown", SYS_shutdown, false, ANY, { -1 } },
	{ "socketpair", SYS_socketpair, false, ANY, { -1 } },
	{ "dup3", SYS_dup3, false, ANY, { -1, -1 } },
	{ "kill", SYS_kill, false, START, { INT_MAX } },
	{ "clone3", SYS_clone3, false, START, { 0 } },
	{ "prctl", SYS_prctl, false, START, { -1 } },
	{ "sched_setaffinity", SYS_sched_setaffinity, false, START, { 0 } },
	{ "mmap", SYS_mmap, true, EINVAL, { 0 } },
	{ "munmap", SYS_munmap, true, EINVAL, { 0 } },
	{ "socket", SYS_socket, true, 0, { AF_INET, SOCK_DGRAM } },
	{ "accept4", SYS_accept4, true, EBADF, { -1 } },
	{ "setsockopt", SYS_setsockopt, true, EBADF, { -1 } },
	{ "getsockopt", SYS_getsockopt, true, EBADF, { -1 } },
	{ "sendto", SYS_sendto, true, EBADF, { -1 } },
	{ "sendmsg", SYS_sendmsg, true, EBADF, { -1 } },
	{ "recvfrom", SYS_recvfrom, true, EBADF, { -1 } },
	{ "recvmsg", SYS_recvmsg, true, EBADF, { -1 } },
	{ "read", SYS_read, true, EBADF, { -1 } },
	{ "write", SYS_write, true, EBADF, { -1 } },
	{ "readv", SYS_readv, true, EBADF, { -1 } },
	{ "writev", SYS_writev, true, EBADF, { -1 } },
	{ "close", SYS_close, true, EBADF, { -1 } },
	{ "fcntl", SYS_fcntl, true, EBADF, { -1, F_GETFD } },
	{ "ioctl", SYS_ioctl, true, EBADF, { -1 } },
	{ "epoll_ctl", SYS_epoll_ctl, true, EBADF, { -1, EPOLL_CTL_DEL, -1 } },
	/* With room for an event: without, it depends on the kernel which argument is looked at first. */
	{ "epoll_pwait", SYS_epoll_pwait, true, EBADF, { -1, 0, 1 } },
#ifdef SYS_epoll_wait
	{ "epoll_wait", SYS_epoll_wait, true, EBADF, { -1, 0, 1 } },
#endif
#ifdef SYS_poll
	{ "poll", SYS_poll, true, 0, { 0 } },
#endif
	{ "ppoll", SYS_ppoll, true, 0, { 0, 0, (long)&nothing } },
	{ "futex", SYS_futex, true, 0, { (long)&word, FUTEX_WAKE_PRIVATE, 0 } },
	{ "nanosleep", SYS_nanosleep, true, 0, { (long)&nothing } },
	{ "clock_nanosleep", SYS_clock_nanosleep, true, 0, { CLOCK_MONOTONIC, 0, (long)&nothing } },
	{ "sched_yield", SYS_sched_yield, true, 0, { 0 } },
	{ "rt_sigprocmask", SYS_rt_sigprocmask, true, 0, { SIG_BLOCK, 0, 0, MASK_SIZE } },
	{ "rt_sigpending", SYS_rt_sigpending, true, EFAULT, { 0, MASK_SIZE } },
	{ "rt_sigaction", SYS_rt_sigaction, true, 0, { SIGUSR1, 0, 0, MASK_SIZE } },
	{ "getpid", SYS_getpid, true, 0, { 0 } },
	{ "gettid", SYS_gettid, true, 0, { 0 } },
};
#define CALLS (sizeof(calls) / sizeof(*calls))

/* What a child and its parent have in common. */
struct trial {
	volatile unsigned int at; /* the call that is made; CALLS: all were */
	volatile bool refused; /* the filter itself is an error */
	int before[CALLS];
	/* The filter to come; 0: it is there. */
	long number, a[6];
};

static int answer(unsigned int i)
{
	const long *a = calls[i].a;

	return PL_REAL(syscall)(calls[i].number, a[0], a[1], a[2], a[3], a[4], a[5]) < 0 ? errno : 0;
}

static _Noreturn void end(void)
{
	for (;;)
		PL_REAL(syscall)(SYS_exit_group, 0);
}

static _Noreturn void try_all(struct trial *t)
{
	struct { /* as the kernel has it: SIG_DFL and nothing more, also where the program handles SIGSYS */
		void *handler;
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} none = { .handler = NULL };
	unsigned int i;

	PL_REAL(syscall)(SYS_rt_sigaction, SIGSYS, &none, NULL, sizeof(none.mask));
	/* Its death leaves no core file. A filter that is there already may kill for this. */
	if (t->number)
		PL_REAL(syscall)(SYS_prctl, PR_SET_DUMPABLE, 0L, 0L, 0L, 0L);
	for (i = 0; i < CALLS; i++)
		t->before[i] = t->number && calls[i].err != START ? answer(i) : calls[i].later ? calls[i].err : ANY;
	if (t->number && PL_REAL(syscall)(t->number, t->a[0], t->a[1], t->a[2], t->a[3], t->a[4], t->a[5]) < 0) {
		t->refused = true;
		end();
	}
	for (i = 0; i < CALLS; i++) {
		int err;

		if (t->number && calls[i].err == START)
			continue;
		t->at = i;
		err = answer(i);
		/* A program that has few descriptors left runs out of them here. */
		if (t->before[i] != ANY && err != t->before[i] && err != EMFILE && err != ENFILE)
			end();
	}
	t->at = CALLS;
	end();
}

/* Which call it is that cannot be; NULL: none. `unknown`: if nobody can tell. */
static const char *forbidden(const struct trial *what, const char *unknown)
{
	struct trial *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *name = unknown;
	int status = 0;
	long pid;

	if (t == MAP_FAILED)
		return unknown;
	*t = *what;
	/* A child of which the program hears nothing: no SIGCHLD, and wait() does not find it. */
	pid = PL_REAL(syscall)(SYS_clone, 0L, 0L, 0L, 0L, 0L, 0L);
	if (pid == 0)
		try_all(t);
	if (pid > 0) {
		while (waitpid((pid_t)pid, &status, __WCLONE) < 0 && errno == EINTR)
			;
		name = t->refused || t->at >= CALLS ? NULL : calls[t->at].name;
	}
	munmap(t, sizeof(*t));
	return name;
}

/* ---- the program makes one --------------------------------------------------------------------------------------------- */

static void noted(long rc, bool is_filter)
{
	if (rc >= 0 && is_filter)
		atomic_store_explicit(&filtered, true, memory_order_relaxed);
}

/* Before it is. `number` and its arguments make it; `strict`: nothing but read, write and the end is left. */
static void coming(long number, const long *a, bool strict)
{
	struct trial what = { .number = number };
	char text[96];
	const char *name;
	int saved = errno;

	/* A handler that interrupted the engine cannot make room. */
	if (!pl_uses_engine() || pl_inside || pl_busy())
		return;
	memcpy(what.a, a, sizeof(what.a));
	if (number == SYS_seccomp)
		what.a[1] &= ~(long)NOT_TRIED;
	name = strict ? "nearly everything" : forbidden(&what, "what cannot be tried");
	if (name) {
		snprintf(text, sizeof(text), "the program's own seccomp filter forbids %s", name);
		pl_retreat(text);
	}
	errno = saved;
}

static bool is_filter(long number, const long *a)
{
	if (number == SYS_prctl)
		return a[0] == PR_SET_SECCOMP;
	return number == SYS_seccomp && (a[0] == SECCOMP_SET_MODE_STRICT || a[0] == SECCOMP_SET_MODE_FILTER);
}

static bool is_strict(long number, const long *a)
{
	return number == SYS_prctl ? a[1] == SECCOMP_MODE_STRICT : a[0] == SECCOMP_SET_MODE_STRICT;
}

PL_EXPORT int prctl(int option, ...)
{
	long a[6] = { option };
	va_list ap;
	bool filter;
	int rc;

	va_start(ap, option);
	for (int i = 1; i < 5; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	filter = is_filter(SYS_prctl, a);
	if (pv_unlikely(filter))
		coming(SYS_prctl, a, is_strict(SYS_prctl, a));
	rc = PL_REAL(prctl)(option, a[1], a[2], a[3], a[4]);
	noted(rc, filter);
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
	bool filter;

	if (pv_unlikely(number == SYS_io_uring_setup) && pl_on()) {
		errno = ENOSYS;
		return -1;
	}
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (pl_by_number(number, a, &rc))
		return rc;
	filter = pv_unlikely(number == SYS_seccomp || number == SYS_prctl) && is_filter(number, a);
	if (pv_unlikely(filter))
		coming(number, a, is_strict(number, a));
	rc = PL_REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	noted(rc, filter);
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

const char *pl_sandbox(void)
{
	static char text[96];
	static const char *why;
	static bool known;
	const char *name;
	int saved = errno;

	if (known)
		return why;
	known = true;
	if (atomic_load_explicit(&filtered, memory_order_relaxed))
		return why = "the program has a seccomp filter of its own";
	name = inherited() ? forbidden(&(struct trial){ .number = 0 }, NULL) : NULL;
	errno = saved;
	if (!name)
		return NULL;
	snprintf(text, sizeof(text), "the seccomp sandbox here forbids %s", name);
	return why = text;
}
