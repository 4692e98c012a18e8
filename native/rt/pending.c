/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that has its signals blocked while it waits looks at what is pending instead, and that is, for the process's signals, the same
 * for all threads. Whoever looks first would take them; but who installs a handler and has the first thread sleep counts on it to wake that.
 */
#include "rt/pending.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"

#define NAP_NS 100000
#define NAPS 100 /* 10 ms: it may have to wait for a CPU */
#define NAPS_LOCKED 20

static _Thread_local int8_t first; /* of the process's threads; -1: another, 0: nobody has asked */

static uint64_t bits_of(const sigset_t *set)
{
	uint64_t bits = 0;

	for (int sig = 1; sig <= 64; sig++)
		bits |= sigismember(set, sig) == 1 ? UINT64_C(1) << (sig - 1) : 0;
	return bits;
}

/* What is pending and not in `mask`. */
static uint64_t due(const sigset_t *mask)
{
	sigset_t pending;

	return sigpending(&pending) < 0 ? 0 : bits_of(&pending) & ~bits_of(mask);
}

/* Pending for this thread alone (proc_pid_status(5)); where nobody tells, all that is pending. */
static uint64_t of_thread(void)
{
	static const char name[] = "\nSigPnd:";
	char text[2048], *at;
	ssize_t n = -1;
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[PV_MAX(n, (ssize_t)0)] = '\0';
	at = strstr(text, name);
	return at ? strtoull(at + sizeof(name) - 1, NULL, 16) : UINT64_MAX;
}

static bool is_first(void)
{
	if (!first)
		first = getpid() == gettid() ? 1 : -1;
	return first > 0;
}

void pv_pending_forked(void)
{
	first = 0;
}

/* Until the first thread has them. Is anything left? */
static bool leave_to_first(const sigset_t *mask, uint32_t naps)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };

	while (due(mask)) {
		if (!naps--)
			return true;
		(void)nanosleep(&nap, NULL);
	}
	return false;
}

bool pv_pending(const sigset_t *mask, sigset_t *out)
{
	uint64_t own;

	*out = *mask;
	if (!due(mask) || is_first())
		return due(mask);
	own = of_thread();
	if (!(due(mask) & own))
		return leave_to_first(mask, NAPS);
	/* The others' turn comes with the next look. */
	for (int sig = 1; sig <= 64; sig++)
		if (!(own >> (sig - 1) & 1))
			sigaddset(out, sig);
	return true;
}

void pv_pending_unmask(const sigset_t *mask)
{
	if (!is_first())
		(void)leave_to_first(mask, NAPS_LOCKED);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}
