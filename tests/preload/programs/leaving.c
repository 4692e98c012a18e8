/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handlers that jump out of a call, between any two instructions of which a signal may come: leaving MINE4 MINE6 PEER4 PEER6 against peer.c, under
 * the preload library. Once a thread was cancelled the last steps begin and end with a call that the program has in its place, and raises the
 * signals in.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "client.h"

static int (*setcancelstate)(int state, int *old);
/* The n-th call from now on comes with the signal; 0: none does. */
static volatile int usr1_in, usr2_in;
static volatile int only = -1; /* calls for this state alone are counted */

static void counts(volatile int *in, int sig)
{
	if (!*in)
		return;
	*in = *in - 1;
	if (!*in)
		raise(sig);
}

int pthread_setcancelstate(int state, int *old)
{
	if (only < 0 || state == only) {
		counts(&usr2_in, SIGUSR2);
		counts(&usr1_in, SIGUSR1);
	}
	return setcancelstate(state, old);
}

static sigjmp_buf out;
static volatile int a, b;

static void leaves(int sig)
{
	siglongjmp(out, sig);
}

static void closes_and_leaves(int sig)
{
	CHECK(close(a) == 0 && close(b) == 0);
	siglongjmp(out, sig);
}

static void says(int fd, const char *text)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[64];

	CHECK(send(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
	CHECK(poll(&p, 1, LIMIT_MS) == 1);
	CHECK(recv(fd, buf, sizeof(buf), 0) == (ssize_t)strlen(text) && !memcmp(buf, text, strlen(text)));
}

static void can_be_cancelled(void)
{
	int was;

	usr1_in = usr2_in = 0;
	CHECK(setcancelstate(PTHREAD_CANCEL_ENABLE, &was) == 0 && was == PTHREAD_CANCEL_ENABLE);
}

/* And no wait of the thread's ends for a jump that was. */
static void is_whole(int fd)
{
	struct timeval brief = { .tv_usec = 20000 }, none = { 0 };
	char c;

	can_be_cancelled();
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof(brief)) == 0);
	CHECK(recv(fd, &c, 1, 0) == -1 && errno == EAGAIN);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)) == 0);
	says(fd, "still there");
}

static bool is_open(int fd)
{
	return syscall(SYS_fcntl, fd, F_GETFD) >= 0;
}

static void from_the_last_step(void)
{
	struct timeval none = { 0 };
	int fd = connected(SOCK_STREAM);
	volatile int turn;

	says(fd, "mine");
	CHECK(signal(SIGUSR1, leaves) != SIG_ERR);
	only = PTHREAD_CANCEL_ENABLE;
	for (turn = 0; turn < 3; turn++) {
		if (!sigsetjmp(out, 1)) {
			usr1_in = 1;
			switch (turn) {
			case 0:
				send(fd, "once", 4, 0);
				break;
			case 1:
				recv(fd, &(char[4]){ 0 }, 4, MSG_WAITALL); /* what comes back */
				break;
			case 2:
				setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
				break;
			}
			CHECK(!"it was left");
		}
		can_be_cancelled();
	}
	is_whole(fd);
	only = -1;
	CHECK(close(fd) == 0);
}

/* A call that is left by a handler, which has closed sockets meanwhile, and another one that leaves in any step after that. */
static void from_each_step(void)
{
	volatile int fd = connected(SOCK_STREAM), step, second = 0;
	char c;

	says(fd, "mine");
	CHECK(signal(SIGUSR1, closes_and_leaves) != SIG_ERR && signal(SIGUSR2, leaves) != SIG_ERR);
	for (step = 2; step < 12; step++) {
		a = connected(SOCK_DGRAM);
		b = connected(SOCK_DGRAM);
		says(a, "mine");
		says(b, "mine");
		switch (sigsetjmp(out, 1)) {
		case 0:
			usr1_in = 1;
			usr2_in = step;
			recv(fd, &c, 1, 0);
			CHECK(!"it was left");
		case SIGUSR2:
			second++;
		}
		is_whole(fd);
		CHECK(!is_open(a) && !is_open(b));
	}
	CHECK(second >= 4);
	CHECK(close(fd) == 0);
}

/* ---- each instruction -------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define TRAP_FLAG 0x100
static volatile int steps, leaves_at;

static void on_step(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;

	(void)sig;
	(void)info;
	steps = steps + 1;
	if (steps != leaves_at)
		return;
	raise(SIGUSR1);
	/* The jump is the call's to make: at full speed. */
	u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

static void trap(void)
{
	__asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" : : : "cc", "memory");
}

static void trap_no_more(void)
{
	__asm__ volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" : : : "cc", "memory");
}

/* Step by step to the end of the call, leaving it after one instruction more each time: what the state was it is again. */
static void from_each_instruction(void)
{
	struct sigaction sa = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	int fd = connected(SOCK_STREAM), was;
	volatile bool through;

	is_whole(fd);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &was, &(socklen_t){ sizeof(was) }) == 0); /* and what is bound late is */
	CHECK(signal(SIGUSR1, leaves) != SIG_ERR && sigaction(SIGTRAP, &sa, NULL) == 0);
	for (volatile int way = 0; way < 4; way++) {
		volatile int state = way % 2 ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE;

		CHECK(setcancelstate(state, NULL) == 0);
		through = false;
		for (leaves_at = 1; !through; leaves_at = leaves_at + 1) {
			int err;
			socklen_t len = sizeof(err);
			char c;

			steps = 0;
			if (!sigsetjmp(out, 1)) {
				trap();
				if (way < 2)
					getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
				else
					recv(fd, &c, 1, MSG_DONTWAIT);
				trap_no_more();
				through = true;
			}
			CHECK(setcancelstate(state, &was) == 0 && was == state);
			CHECK(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
		}
		CHECK(leaves_at > 100);
	}
	CHECK(setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
	is_whole(fd);
	CHECK(close(fd) == 0);
}
/* One that is stopped after each of the last instructions on its way into a call, and goes on to its end when whoever cancels it is at each that
 * follows the membarrier. */
#define LAST_STEPS 24
#define LOOK_STEPS 16
static _Thread_local bool cancels, is_stepped;
static volatile int stops_at, way_in;
static _Atomic(bool) stopped, goes_on, is_through;

long syscall(long number, ...)
{
	static long (*real)(long number, ...);
	long arg[6], rc;
	va_list ap;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	rc = real(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	if (cancels && number == SYS_membarrier)
		trap();
	return rc;
}

/* No cancellation point. */
static void naps(void)
{
	syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = 20000 }, NULL);
}

static void on_either(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;

	(void)sig;
	(void)info;
	if (is_stepped) {
		steps = steps + 1;
		way_in += usr2_in != 0;
	}
	if (is_stepped && steps == stops_at) {
		stopped = true;
		while (!goes_on)
			naps();
		u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
	}
	if (cancels)
		leaves_at = leaves_at - 1;
	if (cancels && leaves_at == 0) {
		goes_on = true;
		/* Unless that one waits for this one. */
		for (int i = 0; i < 20 && !is_through; i++)
			naps();
		u->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
	}
}

static void *passes(void *arg)
{
	socklen_t len = sizeof(int);
	int fd = *(int *)arg, err;

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	is_stepped = true;
	trap();
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	trap_no_more();
	is_stepped = false;
	is_through = stopped = true;
	for (;;)
		pause();
	return NULL;
}

static void passes_and_ends(int fd, int stop, int at)
{
	struct timespec until;
	pthread_t t;

	stopped = goes_on = is_through = false;
	steps = way_in = 0;
	stops_at = stop;
	usr2_in = 3; /* its first call, and then on the way into the second */
	CHECK(pthread_create(&t, NULL, passes, &fd) == 0);
	while (!stopped)
		naps();
	leaves_at = at;
	cancels = true;
	CHECK(pthread_cancel(t) == 0);
	trap_no_more();
	cancels = false;
	goes_on = true;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LIMIT_MS / 1000;
	CHECK(pthread_timedjoin_np(t, NULL, &until) == 0);
}

static void cancelled_at_each_instruction(void)
{
	struct sigaction sa = { .sa_sigaction = on_either, .sa_flags = SA_SIGINFO };
	int fd = connected(SOCK_STREAM), last;

	is_whole(fd);
	CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR && sigaction(SIGTRAP, &sa, NULL) == 0);
	passes_and_ends(fd, -1, 1);
	last = way_in;
	CHECK(last > 10);
	for (int stop = last; stop > 0 && stop > last - LAST_STEPS; stop--)
		for (int at = 1; at <= LOOK_STEPS; at++)
			passes_and_ends(fd, stop, at);
	usr2_in = 0;
	is_whole(fd);
	CHECK(close(fd) == 0);
}
#else
static void from_each_instruction(void)
{
}

static void cancelled_at_each_instruction(void)
{
}
#endif

static void *idles(void *arg)
{
	(void)arg;
	pause();
	return NULL;
}

/* From then on cancellation is off within calls. */
static void cancels_one(void)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, idles, NULL) == 0 && pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	*(void **)&setcancelstate = dlsym(RTLD_NEXT, "pthread_setcancelstate");
	mine = argv[1];
	theirs = argv[3];
	setvbuf(stdout, NULL, _IOLBF, 0);
	running = "from_each_instruction";
	from_each_instruction();
	printf("ok %s\n", running);
	cancels_one();
	running = "from_the_last_step";
	from_the_last_step();
	printf("ok %s\n", running);
	running = "from_each_step";
	from_each_step();
	printf("ok %s\n", running);
	running = "cancelled_at_each_instruction";
	cancelled_at_each_instruction();
	printf("ok %s\n", running);
	return 0;
}
