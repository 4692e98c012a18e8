/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that has its signals blocked while it waits looks at what is pending instead, and that is, for the process's signals, the same
 * for all threads. Whoever looks first would take them; but who installs a handler and has the first thread sleep counts on it to wake that.
 */
#include "rt/pending.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/ownfd.h"

#define NAP_NS 100000
#define NAPS 500 /* 50 ms: it may have to wait for a CPU */
#define NAPS_LOCKED 20

static _Thread_local int8_t is; /* 1: the process's first thread, -1: another, 0: nobody has asked */
/* The first thread blocks all signals for a wait of its own, which lets in all but these. */
static _Atomic(bool) first_waits;
static _Atomic(uint64_t) first_mask;

static bool is_first(void)
{
	if (!is)
		is = getpid() == gettid() ? 1 : -1;
	return is > 0;
}

void pv_pending_forked(void)
{
	is = 0;
	atomic_store_explicit(&first_waits, false, memory_order_relaxed);
}

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

/* A set of a thread's, as proc_pid_status(5) tells it; where nobody tells, all of them. So it is of a thread that has ended. */
static uint64_t told(const char *path, const char *name)
{
	char text[2048], *at;
	ssize_t n = -1;
	int fd = pv_ownfd(open(path, O_RDONLY | O_CLOEXEC));

	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[PV_MAX(n, (ssize_t)0)] = '\0';
	at = strstr(text, "\nState:\tZ") ? NULL : strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 16) : UINT64_MAX;
}

static uint64_t of_thread(void)
{
	return told("/proc/thread-self/status", "\nSigPnd:");
}

static uint64_t first_blocks(void)
{
	if (atomic_load_explicit(&first_waits, memory_order_acquire))
		return atomic_load_explicit(&first_mask, memory_order_relaxed);
	return told("/proc/self/status", "\nSigBlk:");
}

/* Until the first thread has what is the process's. Is there anything left for this one? */
static bool leave_to_first(const sigset_t *mask, uint64_t own, uint32_t naps)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };

	while (naps-- && due(mask) & ~own & ~first_blocks())
		(void)nanosleep(&nap, NULL);
	return due(mask);
}

void pv_pending_masked(const sigset_t *mask)
{
	if (!is_first())
		return;
	atomic_store_explicit(&first_mask, bits_of(mask), memory_order_relaxed);
	atomic_store_explicit(&first_waits, true, memory_order_release);
}

bool pv_pending(const sigset_t *mask, sigset_t *out)
{
	uint64_t some = due(mask), own;

	*out = *mask;
	if (!some || is_first())
		return some;
	own = of_thread();
	if (!(some & own))
		return leave_to_first(mask, 0, NAPS);
	/* The others' turn comes with the next look. */
	for (int sig = 1; sig <= 64; sig++)
		if (!(own >> (sig - 1) & 1))
			sigaddset(out, sig);
	return true;
}

void pv_pending_unmask(const sigset_t *mask)
{
	if (is_first())
		atomic_store_explicit(&first_waits, false, memory_order_release);
	else if (due(mask))
		(void)leave_to_first(mask, of_thread(), NAPS_LOCKED);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}
