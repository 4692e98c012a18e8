/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes. What fork does to the engine's sockets is the engine's business (rt/fork.c); here it is what becomes of the table. Before another
 * program gets the fds, by exec or spawn (spawn.c), the connections among them are handed back to the kernel.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

static _Atomic(pid_t) user; /* the process that has used a socket by the engine; 0: none */
static _Atomic(pid_t) heir; /* the process that was forked by such a one, or by its child */

void pl_used(void)
{
	if (pv_unlikely(!atomic_load_explicit(&user, memory_order_relaxed)))
		atomic_store_explicit(&user, getpid(), memory_order_relaxed);
}

/* ---- fork -------------------------------------------------------------------------------------------------------------- */

/* A listener or a datagram socket may become the child's own; anything else of the parent's is a kernel socket here. */
static bool may_be_late(int fd)
{
	int type = 0, listens = 0;
	socklen_t len = sizeof(int);

	if (PL_REAL(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return false;
	len = sizeof(int);
	return type == SOCK_DGRAM || (PL_REAL(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens);
}

/* In the child, after the engine's own handler. */
static void forked(void)
{
	atomic_store_explicit(&pl_ending, false, memory_order_relaxed);
	pl_socket_forked();
	pl_epoll_forked();
	pl_deepbind_forked();
	pl_wait_forked();
	pl_stdio_forked();
	pl_spawn_forked();
	if (!atomic_load_explicit(&user, memory_order_relaxed) && !atomic_load_explicit(&heir, memory_order_relaxed))
		return;
	atomic_store_explicit(&user, 0, memory_order_relaxed);
	atomic_store_explicit(&heir, getpid(), memory_order_relaxed);
	for (int fd = pl_next(0, INT32_MAX); fd >= 0; fd = fd < INT32_MAX ? pl_next(fd + 1, INT32_MAX) : -1) {
		pyvma_sock *h = pl_peek(fd);
		char text[64];

		if (!h || pyvma_sock_offload(h, text, sizeof(text)) != PYVMA_KERNEL || !may_be_late(fd))
			continue;
		if (pl_change(fd, (pl_word)h, PL_LATE))
			(void)pyvma_sock_detach(h);
	}
}

__attribute__((constructor)) static void set_fork(void)
{
	pthread_atfork(NULL, NULL, forked);
}

/* The engine's locks are taken across it: not by a handler that interrupted who holds them. */
PL_EXPORT pid_t fork(void)
{
	int cancel;
	pid_t pid;

	if (pv_unlikely(pl_busy()))
		return (pid_t)pl_result(-EAGAIN);
	/* It is no cancellation point, but what the engine does meanwhile has some. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pid = PL_REAL(fork)();
	pthread_setcancelstate(cancel, NULL);
	return pid;
}

/* Handlers of pthread_atfork do not run for it; the engine's and ours must. What else the C library does for a fork, as to have the
 * locks of malloc, its caller does without. */
long pl_fork_by(const long *a)
{
	int cancel, saved;
	long pid;

	if (pv_unlikely(pl_busy()))
		return pl_result(-EAGAIN);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pyvma_forks(0);
	pid = PL_REAL(syscall)(SYS_clone, a[0], a[1], a[2], a[3], a[4], a[5]);
	saved = errno;
	pyvma_forks(pid ? 1 : 2);
	if (!pid)
		forked();
	errno = saved;
	pthread_setcancelstate(cancel, NULL);
	return pid;
}

/* A child of vfork runs in our memory until it execs: what it closes would be closed here. So it gets its own. */
PL_EXPORT pid_t vfork(void)
{
	return fork();
}

/* ---- exec -------------------------------------------------------------------------------------------------------------- */

bool pl_uses_engine(void)
{
	return atomic_load_explicit(&user, memory_order_relaxed) == getpid();
}

bool pl_is_user(void)
{
	pid_t self = getpid();

	return atomic_load_explicit(&user, memory_order_relaxed) == self ||
	       atomic_load_explicit(&heir, memory_order_relaxed) == self;
}

void pl_hand_over(void)
{
	int saved = errno;

	if (pl_is_user() && PL_IN(pyvma_hand_back_inheritable()) < 0)
		pl_say(pyvma_last_error(), "a connection does not survive exec");
	errno = saved;
}

PL_EXPORT int execve(const char *path, char *const argv[], char *const env[])
{
	pl_hand_over();
	return PL_REAL(execve)(path, argv, env);
}

PL_EXPORT int execvpe(const char *file, char *const argv[], char *const env[])
{
	pl_hand_over();
	return PL_REAL(execvpe)(file, argv, env);
}

PL_EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

PL_EXPORT int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

PL_EXPORT int fexecve(int fd, char *const argv[], char *const env[])
{
	pl_hand_over();
	return PL_REAL(fexecve)(fd, argv, env);
}

PL_EXPORT int execveat(int dir, const char *path, char *const argv[], char *const env[], int flags)
{
	pl_hand_over();
	return PL_REAL(execveat)(dir, path, argv, env, flags);
}

/* The arguments of the forms that list them, with their end; *env is what follows, if it is asked for. NULL: no memory. */
static const char **listed(const char *first, va_list ap, char *const **env)
{
	va_list again;
	size_t n = 1;
	const char **argv;

	va_copy(again, ap);
	while (first && va_arg(again, const char *))
		n++;
	va_end(again);
	argv = malloc((n + 1) * sizeof(*argv));
	if (!argv)
		return NULL;
	argv[0] = first;
	for (size_t i = 1; first && i <= n; i++)
		argv[i] = va_arg(ap, const char *);
	if (env)
		*env = va_arg(ap, char *const *);
	return argv;
}

static int exec_listed(const char *file, const char **argv, char *const *env, bool search)
{
	int rc = -1;

	if (argv)
		rc =
		    search ? execvpe(file, (char *const *)(uintptr_t)argv, env) : execve(file, (char *const *)(uintptr_t)argv, env);
	free(argv);
	return rc;
}

PL_EXPORT int execl(const char *path, const char *arg, ...)
{
	va_list ap;

	va_start(ap, arg);
	const char **argv = listed(arg, ap, NULL);

	va_end(ap);
	return exec_listed(path, argv, environ, false);
}

PL_EXPORT int execlp(const char *file, const char *arg, ...)
{
	va_list ap;

	va_start(ap, arg);
	const char **argv = listed(arg, ap, NULL);

	va_end(ap);
	return exec_listed(file, argv, environ, true);
}

PL_EXPORT int execle(const char *path, const char *arg, ...)
{
	char *const *env = NULL;
	va_list ap;

	va_start(ap, arg);
	const char **argv = listed(arg, ap, &env);

	va_end(ap);
	return exec_listed(path, argv, env, false);
}

/* ---- _exit ------------------------------------------------------------------------------------------------------------- */

/* The kernel would send what is left, and the end of each connection: exit has handlers for that. */
PL_EXPORT void _exit(int status)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); /* the process ends, and not this thread before it */
	if (atomic_load_explicit(&user, memory_order_relaxed) == getpid()) {
		pl_end();
		pyvma_leave();
	}
	PL_REAL(_exit)(status);
	__builtin_unreachable();
}

PL_EXPORT void _Exit(int status)
{
	_exit(status);
}
