/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of pyvma, whose signal handlers leave the calls they interrupt by siglongjmp, and that is told of input by SIGIO:
 * jumps MINE4 MINE6 PEER4 PEER6 [CASE...] against peer.c, over IPv4. "ok CASE" or why not, as edges.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static void says(int fd, const char *text)
{
	char buf[256];
	size_t got = 0, len = strlen(text);

	CHECK(send(fd, text, len, 0) == (ssize_t)len);
	while (got < len) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		CHECK(poll(&p, 1, LIMIT_MS) == 1);
		n = recv(fd, buf + got, len - got, 0);
		CHECK(n > 0);
		got += (size_t)n;
	}
	CHECK(!memcmp(buf, text, len));
}

/* Whether the number is the kernel's in all, or has a connection of somebody else's above it. */
static bool is_kernels(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return syscall(SYS_getpeername, fd, &ss, &len) == 0;
}

/* ---- jumps ------------------------------------------------------------------------------------------------------------- */

static sigjmp_buf out;
static volatile sig_atomic_t jumps;
static sigset_t in_handler;

static void leaves(int sig)
{
	(void)sig;
	jumps = jumps + 1;
	pthread_sigmask(SIG_SETMASK, NULL, &in_handler);
	siglongjmp(out, 1);
}

static void handles(void (*handler)(int), int flags)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = flags }, now;

	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	CHECK(sigaction(SIGALRM, NULL, &now) == 0 && now.sa_handler == handler &&
	      (now.sa_flags & SA_RESTART) == (flags & SA_RESTART));
}

static void alarm_us(int us)
{
	struct itimerval once = { { 0 }, { us / 1000000, us % 1000000 } };

	CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

/* What a thread is after a jump out of a handler: as before the call that was interrupted. */
static void is_as_before(const sigset_t *before, bool restored)
{
	sigset_t now;
	int was;

	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
	for (int sig = 1; sig < 32; sig++)
		CHECK(sigismember(&now, sig) == sigismember(restored ? before : &in_handler, sig));
	CHECK(sigismember(&in_handler, SIGALRM) == 1 && sigismember(&in_handler, SIGUSR2) == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, before, NULL) == 0);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was) == 0 && was == PTHREAD_CANCEL_ENABLE);
}

enum { RECV, READ, RECVFROM, ACCEPT, CONNECT, POLL, POLL_TWO, PPOLL, SELECT, EPOLL, SEND, WAYS };

static int ways[WAYS], ep;

static void fills(int fd)
{
	char buf[65536] = { 0 };

	while (send(fd, buf, sizeof(buf), 0) > 0)
		;
}

static void blocks(int way)
{
	struct pollfd p[2] = { { .fd = ways[RECV], .events = POLLIN }, { .fd = ways[RECVFROM], .events = POLLIN } };
	struct sockaddr_in nobody = address("10.78.0.99", 9);
	struct epoll_event ev;
	sigset_t mask;
	fd_set set;
	char c;

	sigemptyset(&mask);
	FD_ZERO(&set);
	FD_SET(ways[RECV], &set);
	switch (way) {
	case RECV:
		CHECK(recv(ways[way], &c, 1, 0) == -2);
	case READ:
		CHECK(read(ways[RECV], &c, 1) == -2);
	case RECVFROM:
		CHECK(recvfrom(ways[way], &c, 1, 0, NULL, NULL) == -2);
	case ACCEPT:
		CHECK(accept(ways[way], NULL, NULL) == -2);
	case CONNECT:
		CHECK(connect(ways[way], (struct sockaddr *)&nobody, sizeof(nobody)) == -2);
	case POLL:
		CHECK(poll(p, 1, -1) == -2);
	case POLL_TWO:
		CHECK(poll(p, 2, -1) == -2);
	case PPOLL:
		CHECK(ppoll(p, 2, NULL, &mask) == -2);
	case SELECT:
		CHECK(select(ways[RECV] + 1, &set, NULL, NULL, NULL) == -2);
	case EPOLL:
		CHECK(epoll_wait(ep, &ev, 1, -1) == -2);
	case SEND:
		fills(ways[SEND]);
		CHECK(!"it sleeps");
	}
}

static _Atomic(bool) over;

/* It has no signal from its first moment on. */
static pthread_t without_signals(void *(*body)(void *), void *arg)
{
	sigset_t all, before;
	pthread_t t;

	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	CHECK(pthread_create(&t, NULL, body, arg) == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	return t;
}

static void *goes_on(void *arg)
{
	int fd = connected(SOCK_STREAM);

	(void)arg;
	while (!over)
		says(fd, "goes on");
	close(fd);
	return NULL;
}

static void out_of_each(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	volatile int way, turn;
	sigset_t before;
	pthread_t other;

	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
	other = without_signals(goes_on, NULL);
	CHECK((ep = epoll_create1(0)) >= 0);
	ways[RECV] = connected(SOCK_STREAM);
	ways[RECVFROM] = connected(SOCK_DGRAM);
	ways[ACCEPT] = bound(SOCK_STREAM);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, ways[RECV], &ev) == 0);
	/* In the first moments of a call, in its midst, and asleep. */
	for (turn = 0; turn < 30; turn++) {
		for (way = 0; way < WAYS; way++) {
			bool restored = turn % 2;

			handles(leaves, turn % 3 ? SA_RESTART : 0);
			if (way == CONNECT)
				ways[way] = socket(AF_INET, SOCK_STREAM, 0);
			if (way == SEND)
				ways[way] = connected(SOCK_STREAM);
			jumps = 0;
			if (!sigsetjmp(out, restored)) {
				alarm_us(turn < 20 ? 1 + turn * 5 : 3000);
				blocks(way);
			}
			CHECK(jumps == 1);
			is_as_before(&before, restored);
			if (way == CONNECT || way == SEND)
				CHECK(close(ways[way]) == 0);
			says(ways[RECV], "still there");
			says(ways[RECVFROM], "still there");
		}
	}
	over = true;
	CHECK(pthread_join(other, NULL) == 0);
	for (way = 0; way < 4; way++)
		if (way != READ)
			CHECK(close(ways[way]) == 0);
	CHECK(close(ep) == 0);
}

/* Of the C library's names for it one is in no header any more, but in programs (tftp-hpa). */
sighandler_t bsd_signal(int sig, sighandler_t handler);

static void by_each_name(void)
{
	sighandler_t (*const names[])(int, sighandler_t) = { signal, ssignal, bsd_signal };
	volatile int fd = connected(SOCK_STREAM), i;
	char c;

	for (i = 0; i < 3; i++) {
		CHECK(names[i](SIGALRM, leaves) != SIG_ERR);
		if (!sigsetjmp(out, 1)) {
			alarm_us(3000);
			CHECK(recv(fd, &c, 1, 0) == -2);
		}
		says(fd, "still there");
		CHECK(names[i](SIGALRM, SIG_DFL) == leaves);
	}
	CHECK(close(fd) == 0);
}

/* Out of a program that works, at any moment: what is said next arrives whole. */
static void at_any_moment(void)
{
	volatile int fd = connected(SOCK_STREAM), turn;

	handles(leaves, SA_RESTART);
	for (turn = 0; turn < 400; turn++) {
		char mark[32], buf[64], *end = buf;

		if (!sigsetjmp(out, 1)) {
			alarm_us(1 + turn * 13 % 300);
			for (;;) {
				CHECK(send(fd, "ab", 2, 0) == 2);
				CHECK(recv(fd, buf, 2, 0) > 0);
			}
		}
		/* What was under way comes before it. */
		snprintf(mark, sizeof(mark), "<%d>", turn);
		CHECK(send(fd, mark, strlen(mark), 0) == (ssize_t)strlen(mark));
		while (end == buf || end[-1] != '>') {
			struct pollfd p = { .fd = fd, .events = POLLIN };

			CHECK(poll(&p, 1, LIMIT_MS) == 1 && recv(fd, end, 1, 0) == 1);
			if (*end != 'a' && *end != 'b')
				end++;
		}
		*end = 0;
		CHECK(!strcmp(buf, mark));
	}
	CHECK(close(fd) == 0);
}

/* ---- jumps out of calls that have memory of their own ------------------------------------------------------------------ */

enum { MANY_OURS = 60, MANY = 200, MANY_TURNS = 1000 };
enum { POLL_MANY, SELECT_MANY, SENDFILE, TO_PIPE, FROM_PIPE, MANY_WAYS };

static struct pollfd many[MANY];
static int stream, file, pipes[2];

static int fds_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void goes_on_for_ever(int way)
{
	fd_set set;

	FD_ZERO(&set);
	for (int i = 0; i < MANY; i++)
		FD_SET(many[i].fd, &set);
	for (;;) {
		off_t at = 0;

		switch (way) {
		case POLL_MANY:
			CHECK(poll(many, MANY, -1) == -2);
			break;
		case SELECT_MANY:
			CHECK(select(FD_SETSIZE, &set, NULL, NULL, NULL) == -2);
			break;
		case SENDFILE:
			CHECK(sendfile(stream, file, &at, 1 << 20) > 0);
			break;
		case TO_PIPE:
			CHECK(splice(stream, NULL, pipes[1], NULL, 4096, 0) == -2);
			break;
		case FROM_PIPE:
			CHECK(write(pipes[1], "x", 1) == 1 && splice(pipes[0], NULL, stream, NULL, 1, 0) == 1);
			break;
		}
	}
}

struct held {
	size_t bytes;
	int fds;
};

/* With the set by which the thread waits for many: a jump may have come while that was filled, and then it was given up. */
static struct held holds(void)
{
	CHECK(poll(many, MANY, 1) == 0);
	return (struct held){ mallinfo2().uordblks, fds_open() };
}

/* What a thread has of the heap afterwards it gets, so no lock is left; and what is left behind each time would be seen. */
static void leaves_nothing(int way)
{
	struct held before = { 0 }, after;
	volatile int turn;

	stream = connected(SOCK_STREAM);
	CHECK(pipe(pipes) == 0);
	for (turn = -50; turn < MANY_TURNS; turn++) {
		if (turn == 0)
			before = holds();
		if (!sigsetjmp(out, 1)) {
			alarm_us(1 + (turn + 50) * 7 % 400);
			goes_on_for_ever(way);
		}
		free(malloc(100000));
	}
	after = holds();
	CHECK(after.fds == before.fds);
	CHECK(after.bytes < before.bytes + MANY_TURNS * 64);
	CHECK(close(stream) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

static void out_of_many(void)
{
	int quiet[2];

	handles(leaves, SA_RESTART);
	CHECK(pipe(quiet) == 0 && (file = memfd_create("file", 0)) >= 0 && ftruncate(file, 1 << 20) == 0);
	for (int i = 0; i < MANY; i++)
		many[i] =
		    (struct pollfd){ .fd = i % 3 || i >= 3 * MANY_OURS ? dup(quiet[0]) : connected(SOCK_DGRAM), .events = POLLIN };
	for (int way = 0; way < MANY_WAYS; way++)
		leaves_nothing(way);
	for (int i = 0; i < MANY; i++)
		CHECK(close(many[i].fd) == 0);
	CHECK(close(quiet[0]) == 0 && close(quiet[1]) == 0 && close(file) == 0);
}

/* ---- handlers that wait ------------------------------------------------------------------------------------------------ */

static sigjmp_buf within;
static volatile sig_atomic_t inner, asked;
static volatile int other;

/* A handler that jumps within itself leaves nothing. */
static void stays(int sig)
{
	(void)sig;
	if (!sigsetjmp(within, 0))
		siglongjmp(within, 1);
	inner = inner + 1;
}

static void within_a_handler(void)
{
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { 0 };
	int fd = connected(SOCK_STREAM), before;
	char c;

	handles(stays, 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 20; i++) {
		before = inner;
		CHECK(recv(fd, &c, 1, 0) == -1 && errno == EINTR && inner > before);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	says(fd, "still there");
	CHECK(close(fd) == 0);
}

/* A handler that waits itself, and is left by the jump of another one. */
static void waits(int sig)
{
	char c;

	(void)sig;
	asked = asked + 1;
	CHECK(raise(SIGUSR1) == 0);
	(void)!recv(other, &c, 1, 0);
}

static void *interrupts(void *arg)
{
	/* One for each, also if the next one asks before this thread is on a processor again. */
	for (int was = 0; !over; was++) {
		while (asked == was && !over)
			usleep(100);
		usleep(3000);
		if (!over)
			pthread_kill(*(pthread_t *)arg, SIGUSR2);
	}
	return NULL;
}

static void through_a_handler(void)
{
	pthread_t self = pthread_self(), t;
	volatile int fd = connected(SOCK_STREAM), turn;
	char c;

	over = false;
	other = connected(SOCK_DGRAM);
	says(other, "mine");
	says(fd, "mine");
	handles(waits, 0);
	/* The first ones may be what this process was started with. */
	CHECK(signal(SIGUSR2, leaves) != SIG_ERR && signal(SIGUSR2, leaves) == leaves && signal(SIGUSR1, stays) != SIG_ERR);
	t = without_signals(interrupts, &self);
	for (turn = 0; turn < 10; turn++) {
		jumps = 0;
		if (!sigsetjmp(out, 1)) {
			alarm_us(2000);
			CHECK(recv(fd, &c, 1, 0) == -2);
		}
		CHECK(jumps == 1);
		says(fd, "still there");
		says(other, "still there");
	}
	over = true;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(signal(SIGUSR2, SIG_DFL) == leaves && signal(SIGUSR1, SIG_IGN) == stays);
	CHECK(close(fd) == 0 && close(other) == 0);
}

/* Handlers that wait for several, having interrupted a wait for several others: that one is interrupted, and no more. */
enum {
	ASLEEP_US = 40000, /* it is by then, also on a busy machine: in a handler that finds it awake poll may fail */
	ASLEEP_TURNS = 15,
	RANDOM_SIGNALS = 1000
};

static struct pollfd others[2]; /* the first is a stream */
static volatile sig_atomic_t failed, ticks;
static volatile pid_t child;

static void polls(int sig)
{
	int fd = others[0].fd;
	char c = 'c';

	(void)sig;
	failed |= poll(others, 2, 10) != 0;
	failed |= send(fd, &c, 1, 0) != 1 || poll(others, 2, LIMIT_MS) != 1 || recv(fd, &c, 1, 0) != 1 || c != 'c';
	ticks = ticks + 1;
}

static void forks(int sig)
{
	(void)sig;
	child = fork();
}

/* Itself, by the next signal. */
static void polls_and_is_left(int sig)
{
	(void)sig;
	ticks = ticks + 1;
	if (ticks % 2 == 0)
		siglongjmp(out, 1);
	alarm_us(ASLEEP_US);
	failed |= poll(others, 2, -1) != 2;
}

static void ends_well(void)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static int waits_for_two(int way, struct pollfd p[2])
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(p[0].fd, &set);
	FD_SET(p[1].fd, &set);
	return way == 0 ? poll(p, 2, -1) : way == 1 ? ppoll(p, 2, NULL, NULL) : select(FD_SETSIZE, &set, NULL, NULL, NULL);
}

static void asleep(struct pollfd p[2])
{
	volatile int turn, open = 0;
	char c;

	handles(polls, 0);
	for (turn = 0; turn < ASLEEP_TURNS; turn++) {
		alarm_us(ASLEEP_US);
		CHECK(waits_for_two(turn % 3, p) == -1 && errno == EINTR && ticks == turn + 1 && !failed);
		says(p[turn % 2].fd, "still there");
	}
	handles(polls_and_is_left, SA_NODEFER);
	for (ticks = turn = 0; turn < ASLEEP_TURNS; turn++) {
		if (!sigsetjmp(out, 1)) {
			alarm_us(ASLEEP_US);
			CHECK(waits_for_two(turn % 3, p) == -2);
		}
		CHECK(ticks == 2 * (turn + 1) && (!turn || open == fds_open()));
		open = fds_open();
	}
	handles(forks, 0);
	alarm_us(ASLEEP_US);
	CHECK(poll(p, 2, -1) == -1 && errno == EINTR);
	if (!child) {
		CHECK(poll(p, 2, 10) == 0);
		_exit(0);
	}
	ends_well();
	alarm_us(ASLEEP_US);
	CHECK(recv(others[0].fd, &c, 1, 0) == -1 && (errno == EINTR || !child));
	if (!child)
		_exit(0);
	ends_well();
	says(p[0].fd, "still there");
}

static void polls_at_random(int sig)
{
	static unsigned int seed;
	int rc;

	(void)sig;
	seed = seed * 1103515245u + 12345;
	rc = poll(others, 2, seed >> 16 & 1);
	failed |= rc > 0 || (rc < 0 && errno != EAGAIN);
	ticks = ticks + 1;
	if (ticks < RANDOM_SIGNALS)
		alarm_us(1 + (int)((seed >> 17) % 700));
}

static void handlers_poll(void)
{
	struct pollfd p[2] = { { .fd = connected(SOCK_STREAM), .events = POLLIN },
			       { .fd = connected(SOCK_STREAM), .events = POLLIN } };

	others[0] = (struct pollfd){ .fd = connected(SOCK_STREAM), .events = POLLIN };
	others[1] = (struct pollfd){ .fd = connected(SOCK_DGRAM), .events = POLLIN };
	asleep(p);
	handles(polls_at_random, SA_RESTART);
	ticks = 0;
	alarm_us(100);
	for (int i = 0; ticks < RANDOM_SIGNALS; i++) {
		int rc, fd = p[i % 2].fd;
		char c = 'x';

		CHECK(send(fd, &c, 1, 0) == 1);
		while ((rc = poll(p, 2, LIMIT_MS)) < 0)
			CHECK(errno == EINTR);
		CHECK(rc == 1 && p[i % 2].revents == POLLIN && recv(fd, &c, 1, 0) == 1);
	}
	CHECK(!failed);
	for (int i = 0; i < 2; i++)
		CHECK(close(p[i].fd) == 0 && close(others[i].fd) == 0);
}

/* ---- SIGIO ------------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t told;

static void is_told(int sig)
{
	(void)sig;
	told = told + 1;
}

static void asks_for_signals(int fd, bool by_ioctl)
{
	int flags = fcntl(fd, F_GETFL), on = 1;

	CHECK(flags >= 0 && fcntl(fd, F_SETOWN, getpid()) == 0);
	CHECK(by_ioctl ? ioctl(fd, FIOASYNC, &on) == 0 : fcntl(fd, F_SETFL, flags | O_ASYNC) == 0);
	CHECK(fcntl(fd, F_GETFL) & O_ASYNC);
}

static void comes(void)
{
	sigset_t none, io;

	sigemptyset(&none);
	sigemptyset(&io);
	sigaddset(&io, SIGIO);
	alarm(LIMIT_MS / 1000); /* it would be the end */
	CHECK(sigprocmask(SIG_BLOCK, &io, NULL) == 0);
	while (!told)
		sigsuspend(&none);
	CHECK(sigprocmask(SIG_UNBLOCK, &io, NULL) == 0);
	alarm(0);
}

/* Of sockets that were not used yet, and of connections in the midst. */
static void signals_of_input(void)
{
	struct sigaction sa = { .sa_handler = is_told };
	char buf[32];

	CHECK(signal(SIGALRM, SIG_DFL) != SIG_ERR && sigaction(SIGIO, &sa, NULL) == 0);
	for (int by_ioctl = 0; by_ioctl < 2; by_ioctl++) {
		struct sockaddr_in to = address(theirs, PEER_PORT);
		int stream = connected(SOCK_STREAM), dgram = bound(SOCK_DGRAM);

		says(stream, "mine");
		CHECK(is_kernels(stream) == !getenv("LD_PRELOAD"));
		asks_for_signals(stream, by_ioctl);
		CHECK(is_kernels(stream));
		told = 0;
		CHECK(write(stream, "told", 4) == 4);
		comes();
		CHECK(recv(stream, buf, sizeof(buf), MSG_DONTWAIT) == 4);
		CHECK(close(stream) == 0);
		asks_for_signals(dgram, by_ioctl);
		told = 0;
		CHECK(sendto(dgram, "told", 4, 0, (struct sockaddr *)&to, sizeof(to)) == 4);
		comes();
		CHECK(recv(dgram, buf, sizeof(buf), MSG_DONTWAIT) == 4);
		CHECK(close(dgram) == 0);
	}
}

/* Of those that the engine has and cannot hand back: refused, a line on stderr says why, and they go on as they were. */
static void is_refused(int fd, bool by_ioctl)
{
	bool preloaded = getenv("LD_PRELOAD") != NULL;
	int pipes[2], err = dup(2), flags = fcntl(fd, F_GETFL), on = 1, rc;
	char line[600];
	ssize_t n;

	CHECK(flags >= 0 && !(flags & O_ASYNC) && err >= 0 && pipe(pipes) == 0 && dup2(pipes[1], 2) == 2);
	errno = 0;
	rc = by_ioctl ? ioctl(fd, FIOASYNC, &on) : fcntl(fd, F_SETFL, flags | O_ASYNC);
	CHECK(rc == (preloaded ? -1 : 0) && errno == (preloaded ? EOPNOTSUPP : 0));
	CHECK(fcntl(fd, F_GETFL) == (preloaded ? flags : flags | O_ASYNC));
	CHECK(dup2(err, 2) == 2 && close(err) == 0 && close(pipes[1]) == 0);
	n = read(pipes[0], line, sizeof(line) - 1);
	CHECK(n >= 0 && close(pipes[0]) == 0);
	line[n] = 0;
	CHECK((n > 0) == preloaded);
	CHECK(!n || (!strncmp(line, "pyvma: ", 7) && strstr(line, ": a socket of the stack's sends no SIGIO\n") &&
		     strchr(line, '\n') == line + n - 1));
}

/* The peer connects to the listener, and is accepted. */
static void accepts(int listener)
{
	struct order o = { .kind = 'c', .to = { .sin6_family = AF_INET6 }, .text = "hello" };
	struct sockaddr_in at, to = address(theirs, PEER_PORT + 1);
	socklen_t len = sizeof(at);
	int by = socket(AF_INET, SOCK_STREAM, 0), fd;
	struct pollfd p = { .fd = listener, .events = POLLIN };
	char mapped[64], buf[32];

	snprintf(mapped, sizeof(mapped), "::ffff:%s", mine);
	CHECK(inet_pton(AF_INET6, mapped, &o.to.sin6_addr) == 1 && getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	o.to.sin6_port = at.sin_port;
	CHECK(connect(by, (struct sockaddr *)&to, sizeof(to)) == 0 && write(by, &o, sizeof(o)) == sizeof(o));
	CHECK(poll(&p, 1, LIMIT_MS) == 1 && (fd = accept(listener, NULL, NULL)) >= 0);
	CHECK(recv(fd, buf, 5, MSG_WAITALL) == 5 && !memcmp(buf, "hello", 5));
	CHECK(is_kernels(fd) == !getenv("LD_PRELOAD"));
	CHECK(close(fd) == 0 && close(by) == 0);
}

static void signals_refused(void)
{
	CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR);
	for (int by_ioctl = 0; by_ioctl < 2; by_ioctl++) {
		int dgram = connected(SOCK_DGRAM), listener = bound(SOCK_STREAM);

		says(dgram, "mine");
		CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0 && accept(listener, NULL, NULL) < 0 && errno == EAGAIN);
		is_refused(dgram, by_ioctl);
		is_refused(listener, by_ioctl);
		says(dgram, "still mine");
		accepts(listener);
		CHECK(close(dgram) == 0 && close(listener) == 0);
	}
}

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

static const struct check_case cases[] = {
	{ "out_of_each", out_of_each },           { "at_any_moment", at_any_moment },         { "out_of_many", out_of_many },
	{ "within_a_handler", within_a_handler }, { "through_a_handler", through_a_handler }, { "handlers_poll", handlers_poll },
	{ "signals_of_input", signals_of_input }, { "signals_refused", signals_refused },     { "by_each_name", by_each_name },
};

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	mine = argv[1];
	theirs = argv[3];
	setvbuf(stdout, NULL, _IOLBF, 0);
	check_run(cases, sizeof(cases) / sizeof(cases[0]), argv + 5, argc - 5);
	return 0;
}
