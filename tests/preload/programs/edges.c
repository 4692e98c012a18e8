/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of pyvma, at the edges of what a process can do to its sockets: edges MINE4 MINE6 PEER4 PEER6 [CASE...] runs its
 * cases against peer.c, over IPv4, and says "ok CASE" or why not. On the kernel each must pass, and so under the preload library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

/* ---- helpers ----------------------------------------------------------------------------------------------------------- */

static void expect(int fd, const char *text)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[256];

	errno = 0;
	while (poll(&p, 1, LIMIT_MS) != 1)
		CHECK(errno == EINTR);
	CHECK(recv(fd, buf, sizeof(buf), 0) == (ssize_t)strlen(text));
	CHECK(memcmp(buf, text, strlen(text)) == 0);
}

static void says(int fd, const char *text)
{
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	expect(fd, text);
}

static void ended_well(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* ---- processes --------------------------------------------------------------------------------------------------------- */

/* As a daemon does: a grandchild makes the connection another program's. */
static void execs_twice(void)
{
	int fd = connected(SOCK_STREAM);
	pid_t child;

	says(fd, "mine");
	child = fork();
	if (!child) {
		child = fork();
		if (!child) {
			CHECK(dup2(fd, 1) == 1);
			execlp("echo", "echo", "-n", "another's", (char *)NULL);
			_exit(1);
		}
		ended_well(child);
		_exit(0);
	}
	ended_well(child);
	expect(fd, "another's");
	close(fd);
}

/* Other programs by posix_spawn, system and popen: what file actions make of a number, whatever its FD_CLOEXEC. */
static void spawned(const posix_spawn_file_actions_t *actions, const char *what)
{
	char *argv[] = { "sh", "-c", (char *)(uintptr_t)what, NULL };
	pid_t child;

	CHECK(posix_spawn(&child, "/bin/sh", actions, NULL, argv, environ) == 0);
	ended_well(child);
}

/* Of a connection of the stack's the socket beneath is none. */
static bool is_kernels(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return syscall(SYS_getpeername, fd, &ss, &len) == 0;
}

static void spawns(void)
{
	bool preloaded = getenv("LD_PRELOAD") != NULL;
	int fd[5];
	posix_spawn_file_actions_t actions;

	for (int i = 0; i < 5; i++) {
		fd[i] = connected(SOCK_STREAM);
		CHECK(fcntl(fd[i], F_SETFD, i < 3 ? FD_CLOEXEC : 0) == 0);
		says(fd[i], "mine");
		CHECK(is_kernels(fd[i]) == !preloaded);
	}
	/* By way of another number; what is overwritten, closed or not inherited stays what it is. */
	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, fd[0], 300) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, fd[1], 1) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, 300, 1) == 0);
	CHECK(posix_spawn_file_actions_addclose(&actions, 300) == 0);
	CHECK(posix_spawn_file_actions_addopen(&actions, fd[3], "/dev/null", O_RDONLY, 0) == 0);
	CHECK(posix_spawn_file_actions_addclose(&actions, fd[4]) == 0);
	spawned(&actions, "echo -n spawned");
	CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
	expect(fd[0], "spawned");
	for (int i = 0; i < 5; i++) {
		CHECK(is_kernels(fd[i]) == (!preloaded || i == 0));
		says(fd[i], "still mine");
	}
	/* Onto itself: the number loses its FD_CLOEXEC. And another list at the same place. */
	CHECK(fcntl(fd[3], F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd[4], F_SETFD, FD_CLOEXEC) == 0);
	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
	CHECK(posix_spawn_file_actions_destroy(&actions) == 0 && posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, fd[1], fd[1]) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, fd[1], 1) == 0);
	spawned(&actions, "echo -n itself");
	CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
	expect(fd[1], "itself");
	CHECK(is_kernels(fd[1]) && is_kernels(fd[2]) == !preloaded);
	for (int i = 0; i < 5; i++)
		close(fd[i]);
}

static void shells(void)
{
	char command[200];
	int fd[2] = { connected(SOCK_STREAM), connected(SOCK_STREAM) };
	FILE *f;

	says(fd[0], "mine");
	says(fd[1], "mine");
	snprintf(command, sizeof(command), "python3 -c 'import os; os.write(%d, b\"by system\")'", fd[0]);
	CHECK(system(NULL) != 0 && system(command) == 0);
	expect(fd[0], "by system");
	snprintf(command, sizeof(command), "python3 -c 'import os; os.write(%d, os.read(0, 100))'", fd[1]);
	f = popen(command, "w");
	CHECK(f && fputs("by popen", f) >= 0 && pclose(f) == 0);
	expect(fd[1], "by popen");
	close(fd[0]);
	close(fd[1]);
}

/* A program that closes every number that it does not know, or takes one: there may be descriptors of somebody else's in its process. */
static void closes_what_is_not_its_own(int from, int to, const int *mine, int n)
{
	for (int fd = from; fd < to; fd++) {
		bool its = false;

		for (int i = 0; i < n; i++)
			its = its || mine[i] == fd;
		if (!its)
			CHECK(close(fd) == 0 || errno == EBADF);
	}
}

static void careless(void)
{
	int fd[3] = { connected(SOCK_STREAM), connected(SOCK_DGRAM), bound(SOCK_STREAM) }, high, taken = 0;

	says(fd[0], "one");
	says(fd[1], "two");
	closes_what_is_not_its_own(3, 1024, fd, 3);
	says(fd[0], "closed");
	high = fcntl(fd[0], F_DUPFD, 600);
	CHECK(high >= 600 && close(fd[0]) == 0);
	fd[0] = high;
	for (int i = 3; i < 600; i++)
		if (i != fd[1] && i != fd[2])
			CHECK(close_range((unsigned int)i, (unsigned int)i, 0) == 0);
	CHECK(close_range((unsigned int)high + 1, ~0u, 0) == 0);
	closefrom(high + 1);
	CHECK(close_range(5, 4, 0) < 0 && errno == EINVAL && close_range(3, 4, 64) < 0 && errno == EINVAL);
	for (int i = 3; i < 100; i++) {
		if (i == fd[1] || i == fd[2])
			continue;
		errno = 0;
		if (dup2(0, i) == i)
			CHECK(++taken && close(i) == 0);
		else
			CHECK(getenv("LD_PRELOAD") && errno == EBUSY);
	}
	CHECK(taken > 20);
	says(fd[0], "after that");
	says(fd[1], "after that");
	int other = connected(SOCK_STREAM);
	pid_t child = fork();

	if (!child) { /* what a child inherits it may close */
		const char *log = getenv("PYVMA_LOG_FILE");
		char name[64], leads_to[256];
		int left = 0, logs = 0;

		close_range(3, ~0u, 0);
		for (int i = 3; i < 1024; i++) {
			ssize_t n;

			snprintf(name, sizeof(name), "/proc/self/fd/%d", i);
			n = readlink(name, leads_to, sizeof(leads_to));
			left += n >= 0;
			logs += n > 0 && log && n == (ssize_t)strlen(log) && !memcmp(leads_to, log, (size_t)n);
		}
		/* The way to the parent, which has connections, that of those who may share its listener, and the log, to which both write. */
		_exit(logs != (log != NULL) || left > 2 + logs);
	}
	ended_well(child);
	/* It has used none of the connections: nobody was asked to make them the kernel's. */
	CHECK(is_kernels(other) == !getenv("LD_PRELOAD") && is_kernels(fd[0]) == !getenv("LD_PRELOAD"));
	says(other, "new");
	says(fd[0], "still there");
	close(other);
	for (int i = 0; i < 3; i++)
		CHECK(close(fd[i]) == 0);
}

struct pair {
	int fd[2];
};

/* The parent sleeps for what both have, and a child that comes and goes changes nothing of it. */
static void *forks_later(void *arg)
{
	struct pair *at = arg;
	struct pollfd some[2] = { { .fd = at->fd[0], .events = POLLIN }, { .fd = at->fd[1], .events = POLLIN } };
	pid_t child;

	usleep(100000);
	child = fork();
	if (!child) {
		poll(some, 2, 0);
		close(at->fd[0]);
		close(at->fd[1]);
		exit(0);
	}
	ended_well(child);
	CHECK(send(at->fd[1], "after it", 8, 0) == 8);
	return NULL;
}

static void forked_asleep(void)
{
	struct pair at = { { connected(SOCK_DGRAM), connected(SOCK_DGRAM) } };
	struct pollfd p[2] = { { .fd = at.fd[0], .events = POLLIN }, { .fd = at.fd[1], .events = POLLIN } };
	pthread_t t;

	says(at.fd[0], "one");
	says(at.fd[1], "two");
	CHECK(pthread_create(&t, NULL, forks_later, &at) == 0);
	CHECK(poll(p, 2, LIMIT_MS) == 1 && p[1].revents == POLLIN);
	expect(at.fd[1], "after it");
	CHECK(pthread_join(t, NULL) == 0);
	close(at.fd[0]);
	close(at.fd[1]);
}

#include "edges_thread.h"

/* ---- handlers ---------------------------------------------------------------------------------------------------------- */

static int told_by, pipes[2];
static volatile sig_atomic_t wrote, again, failed, ticks;

static void on_tick(int sig)
{
	int saved = errno;
	ssize_t n = send(told_by, "tick", 4, MSG_DONTWAIT);
	struct pollfd p = { .fd = told_by, .events = POLLIN };
	char c;

	(void)sig;
	if (n == 4)
		wrote = wrote + 1;
	else if (n < 0 && errno == EAGAIN)
		again = again + 1;
	else
		failed = failed + 1;
	(void)poll(&p, 1, 0);
	(void)!recv(told_by, &c, 1, MSG_DONTWAIT);
	if (write(pipes[1], "t", 1) != 1 || read(pipes[0], &c, 1) != 1)
		failed = failed + 1;
	ticks = ticks + 1;
	errno = saved;
}

static void handler_writes(void)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	struct sigaction sa = { .sa_handler = on_tick, .sa_flags = SA_RESTART };
	int fd = connected(SOCK_STREAM);
	char buf[8];

	told_by = connected(SOCK_DGRAM);
	CHECK(pipe(pipes) == 0);
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	while (ticks < 2000)
		for (int i = 0; i < 20; i++) {
			CHECK(send(fd, "12345678", 8, 0) == 8);
			CHECK(recv(fd, buf, 8, MSG_WAITALL) == 8);
		}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(!failed && wrote > 0);
	close(fd);
	close(told_by);
	close(pipes[0]);
	close(pipes[1]);
}

/* What a handler closes is closed, whatever it interrupted. */
static volatile sig_atomic_t closed;

static void on_close(int sig)
{
	(void)sig;
	if (told_by >= 0 && (shutdown(told_by, SHUT_RDWR) < 0 || close(told_by) < 0))
		failed = failed + 1;
	told_by = -1;
	closed = closed + 1;
}

static void handler_closes(void)
{
	struct sigaction sa = { .sa_handler = on_close, .sa_flags = SA_RESTART };
	int fd = connected(SOCK_STREAM);

	failed = closed = 0;
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	for (int i = 0; i < 100; i++) {
		struct itimerval once = { { 0 }, { 0, 1 + i * 7 } };
		int was = told_by = connected(SOCK_DGRAM), before = closed;

		CHECK(write(was, "mine", 4) == 4);
		CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
		while (closed == before)
			says(fd, "in between");
		says(fd, "after it");
		CHECK(fcntl(was, F_GETFD) < 0 && errno == EBADF);
	}
	CHECK(!failed);
	close(fd);
}

/* One that waits, having interrupted a wait under another mask: what is blocked while it runs stays so. */
static volatile sig_atomic_t inside, nested;

static void on_wait(int sig)
{
	char c;

	nested = nested + inside;
	inside = 1;
	if (!closed) {
		closed = 1;
		failed = raise(sig) != 0 || recv(told_by, &c, 1, 0) != -1 || errno != EAGAIN;
	}
	inside = 0;
}

static void handler_waits(void)
{
	struct sigaction sa = { .sa_handler = on_wait };
	struct itimerval once = { { 0 }, { 0, 20000 } };
	struct timeval short_time = { 0, 50000 };
	int fd = connected(SOCK_STREAM);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	sigset_t alrm, none;

	told_by = connected(SOCK_DGRAM);
	CHECK(setsockopt(told_by, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof(short_time)) == 0);
	sigemptyset(&none);
	sigemptyset(&alrm);
	sigaddset(&alrm, SIGALRM);
	failed = closed = 0;
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0 && sigprocmask(SIG_BLOCK, &alrm, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
	CHECK(ppoll(&p, 1, NULL, &none) == -1 && errno == EINTR);
	CHECK(sigprocmask(SIG_UNBLOCK, &alrm, NULL) == 0);
	CHECK(closed == 1 && !failed && !nested);
	close(fd);
	close(told_by);
}

/* ---- a handler that forks ---------------------------------------------------------------------------------------------- */

static volatile pid_t twin; /* -1: not yet */

/* Again and again: the first may have come before the call, of which the child would not know. */
static void alarms(bool on)
{
	struct itimerval often = { { 0, on ? 20000 : 0 }, { 0, on ? 20000 : 0 } };

	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void on_fork(int sig)
{
	(void)sig;
	if (twin < 0 && !(twin = fork()))
		alarms(true);
}

/* To the parent and to the child its call was interrupted. The child goes on with what it has of its parent's, as after any fork. */
static void handler_forks(void)
{
	struct sigaction sa = { .sa_handler = on_fork };
	int types[] = { SOCK_STREAM, SOCK_DGRAM }, rc;
	char c;

	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	for (size_t i = 0; i < 2; i++) {
		int fd = connected(types[i]);

		twin = -1;
		alarms(true);
		rc = (int)recv(fd, &c, 1, 0);
		alarms(false);
		CHECK(rc == -1 && errno == EINTR);
		if (!twin) {
			close(fd);
			exit(0);
		}
		ended_well(twin);
		says(fd, "still there");
		close(fd);
	}
}

/* ---- sets that are polled --------------------------------------------------------------------------------------------- */

/* A set is polled for the first time, in each of the ways to do so. */
static void polled_sets(void)
{
	for (int way = 0; way < 5; way++) {
		int fd = connected(SOCK_STREAM), quiet = connected(SOCK_STREAM), ep = epoll_create1(0), copy = dup(ep);
		struct epoll_event ev = { .events = EPOLLIN, .data = { .u64 = 3 } }, got;
		struct pollfd p[2] = { { .fd = ep, .events = POLLIN }, { .fd = quiet, .events = POLLIN } };
		struct timeval limit = { .tv_sec = LIMIT_MS / 1000 };
		fd_set set;

		FD_ZERO(&set);
		FD_SET(way == 2 ? copy : ep, &set);
		if (way == 3)
			FD_SET(quiet, &set);
		CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
		CHECK(epoll_wait(ep, &got, 1, 0) == 0);
		CHECK(write(fd, "x", 1) == 1);
		if (way < 2) /* alone, and beside a connection */
			CHECK(poll(p, (nfds_t)way + 1, LIMIT_MS) == 1 && p[0].revents == POLLIN && !p[1].revents);
		else if (way < 4)
			CHECK(select(FD_SETSIZE, &set, NULL, NULL, &limit) == 1);
		else
			CHECK(poll(&(struct pollfd){ .fd = copy, .events = POLLIN }, 1, LIMIT_MS) == 1);
		CHECK(epoll_wait(ep, &got, 1, 0) == 1 && got.data.u64 == 3);
		expect(fd, "x");
		CHECK(close(ep) == 0 && close(copy) == 0 && close(fd) == 0 && close(quiet) == 0);
	}
}

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

static const struct check_case cases[] = {
	{ "execs_twice", execs_twice },
	{ "spawns", spawns },
	{ "shells", shells },
	{ "careless", careless },
	{ "forked_asleep", forked_asleep },
	{ "cancelled_before", cancelled_before },
	{ "cancelled", cancelled },
	{ "cancelled_among", cancelled_among },
	{ "cancelled_waits", cancelled_waits },
	{ "cancelled_by_itself", cancelled_by_itself },
	{ "cancelled_while_off", cancelled_while_off },
	{ "cancelled_while_off_in_time", cancelled_while_off_in_time },
	{ "cancelled_in_set", cancelled_in_set },
	{ "cancelled_in_passing", cancelled_in_passing },
	{ "handler_writes", handler_writes },
	{ "handler_closes", handler_closes },
	{ "handler_waits", handler_waits },
	{ "handler_forks", handler_forks },
	{ "polled_sets", polled_sets },
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
