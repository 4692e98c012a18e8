/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of pyvma, and asks the kernel by numbers for what the C library has calls for: numbers MINE4 MINE6
 * PEER4 PEER6 [CASE...] against peer.c, over IPv4. "ok CASE" or why not, as edges.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static void readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	CHECK(poll(&p, 1, LIMIT_MS) == 1 && p.revents & POLLIN);
}

static void says(int fd, const char *text)
{
	char buf[64];

	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	readable(fd);
	CHECK(read(fd, buf, sizeof(buf)) == (ssize_t)strlen(text) && !memcmp(buf, text, strlen(text)));
}

/* Of a connection of the stack's the socket beneath is none. */
static bool is_kernels(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return syscall(SYS_getpeername, fd, &ss, &len) == 0;
}

static bool preloaded(void)
{
	return getenv("LD_PRELOAD") != NULL;
}

/* ---- what moves bytes -------------------------------------------------------------------------------------------------- */

static void streams(void)
{
	int fd = connected(SOCK_STREAM), copy;
	char a[4], b[4];
	struct iovec in[2] = { { a, 2 }, { b, 2 } }, out[2] = { { "ab", 2 }, { "cd", 2 } };

	CHECK(syscall(SYS_write, fd, "1234", 4L) == 4);
	readable(fd);
	CHECK(syscall(SYS_read, fd, a, 4L) == 4 && !memcmp(a, "1234", 4));
	CHECK(syscall(SYS_writev, fd, out, 2L) == 4);
	readable(fd);
	CHECK(syscall(SYS_readv, fd, in, 2L) == 4 && !memcmp(a, "ab", 2) && !memcmp(b, "cd", 2));
	CHECK(is_kernels(fd) == !preloaded());
	/* Errors are as by name. */
	CHECK(syscall(SYS_recvfrom, fd, a, 4L, (long)MSG_DONTWAIT, NULL, NULL) == -1 && errno == EAGAIN);
	CHECK(syscall(SYS_readv, fd, in, -1L) == -1 && errno == EINVAL);
	CHECK(syscall(SYS_fcntl, fd, (long)F_SETFL, (long)O_NONBLOCK) == 0 && read(fd, a, 1) == -1 && errno == EAGAIN);
	/* A new number leads where the old one did. */
	copy = (int)syscall(SYS_fcntl, fd, (long)F_DUPFD_CLOEXEC, 100L);
	CHECK(copy >= 100 && syscall(SYS_close, fd) == 0);
	says(copy, "copy");
	CHECK(syscall(SYS_dup3, copy, 200L, (long)O_CLOEXEC) == 200 && syscall(SYS_close, copy) == 0);
	says(200, "another copy");
	CHECK(syscall(SYS_shutdown, 200L, (long)SHUT_WR) == 0);
	readable(200);
	CHECK(read(200, a, 1) == 0 && close(200) == 0);
}

static void datagrams(void)
{
	struct sockaddr_in to = address(theirs, PEER_PORT), from;
	int fd = connected(SOCK_DGRAM);
	char buf[8];
	struct iovec iov = { buf, sizeof(buf) };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };
	socklen_t len = sizeof(from);

	iov = (struct iovec){ "many", 4 };
	CHECK(syscall(SYS_sendmmsg, fd, &m, 1L, 0L) == 1 && m.msg_len == 4);
	iov = (struct iovec){ buf, sizeof(buf) };
	readable(fd);
	CHECK(syscall(SYS_recvmmsg, fd, &m, 1L, 0L, NULL) == 1 && m.msg_len == 4 && !memcmp(buf, "many", 4));
	CHECK(syscall(SYS_sendto, fd, "to", 2L, 0L, &to, (long)sizeof(to)) == 2);
	readable(fd);
	CHECK(syscall(SYS_recvfrom, fd, buf, 8L, 0L, &from, &len) == 2 && from.sin_port == to.sin_port);
	iov = (struct iovec){ "one", 3 };
	CHECK(syscall(SYS_sendmsg, fd, &m.msg_hdr, 0L) == 3);
	iov = (struct iovec){ buf, sizeof(buf) };
	readable(fd);
	CHECK(syscall(SYS_recvmsg, fd, &m.msg_hdr, 0L) == 3);
	CHECK(syscall(SYS_close, fd) == 0 && syscall(SYS_close, fd) == -1 && errno == EBADF);
}

static void accepts(void)
{
	struct order o = { .kind = 'c', .to = { .sin6_family = AF_INET6 }, .text = "hello" };
	struct sockaddr_in at, to = address(theirs, PEER_PORT + 1);
	socklen_t len = sizeof(at);
	int listener = bound(SOCK_STREAM), by = socket(AF_INET, SOCK_STREAM, 0), fd;
	char mapped[64], buf[8];

	/* It is the stack's from here on, before anybody connects. */
	CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
	CHECK(syscall(SYS_accept4, listener, NULL, NULL, 0L) == -1 && errno == EAGAIN);
	snprintf(mapped, sizeof(mapped), "::ffff:%s", mine);
	CHECK(inet_pton(AF_INET6, mapped, &o.to.sin6_addr) == 1 && getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	o.to.sin6_port = at.sin_port;
	CHECK(connect(by, (struct sockaddr *)&to, sizeof(to)) == 0 && write(by, &o, sizeof(o)) == sizeof(o));
	readable(listener);
	fd = (int)syscall(SYS_accept4, listener, NULL, NULL, (long)SOCK_CLOEXEC);
	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	readable(fd);
	CHECK(recv(fd, buf, 5, MSG_WAITALL) == 5 && !memcmp(buf, "hello", 5));
	CHECK(is_kernels(fd) == !preloaded());
	CHECK(syscall(SYS_close, fd) == 0 && syscall(SYS_close, listener) == 0 && close(by) == 0);
}

/* What is closed is: the next of that number is what was opened by it. */
static void closed(void)
{
	for (int i = 0; i < 2; i++) {
		int fd = connected(SOCK_STREAM), pipes[2];
		char c = 0;

		says(fd, "mine");
		CHECK((i ? syscall(SYS_close_range, fd, fd, 0L) : syscall(SYS_close, fd)) == 0);
		CHECK(pipe(pipes) == 0 && pipes[0] == fd);
		CHECK(write(pipes[1], "p", 1) == 1 && read(pipes[0], &c, 1) == 1 && c == 'p');
		CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
	}
}

/* ---- no cancellation points -------------------------------------------------------------------------------------------- */

static _Atomic(bool) is_cancelled, came_back;

static void *asks(void *arg)
{
	const int *fd = arg;
	char c;

	while (!is_cancelled) /* no cancellation point either */
		sched_yield();
	CHECK(syscall(SYS_read, fd[0], &c, 1L) == 1 && syscall(SYS_write, fd[1], "x", 1L) == 1);
	CHECK(syscall(SYS_close, fd[0]) == 0 && syscall(SYS_close, fd[1]) == 0);
	came_back = true;
	pthread_testcancel();
	return NULL;
}

static void uncancelled(void)
{
	for (int ours = 0; ours < 2; ours++) {
		int fd[2] = { connected(SOCK_STREAM), connected(SOCK_STREAM) }, pipes[2];
		void *end = NULL;
		pthread_t t;

		is_cancelled = came_back = false;
		CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1 && write(fd[0], "x", 1) == 1);
		readable(fd[0]);
		CHECK(pthread_create(&t, NULL, asks, ours ? fd : pipes) == 0 && pthread_cancel(t) == 0);
		is_cancelled = true;
		CHECK(pthread_join(t, &end) == 0 && end == PTHREAD_CANCELED && came_back);
		if (!ours)
			CHECK(close(fd[0]) == 0 && close(fd[1]) == 0);
		else
			CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
	}
}

/* ---- processes --------------------------------------------------------------------------------------------------------- */

static void clones(void)
{
	static const struct {
		long number, flags;
	} each[] = {
#ifdef SYS_fork
		{ SYS_fork, 0 },
#endif
		{ SYS_clone, SIGCHLD },
		{ SYS_clone, SIGCHLD | CLONE_NEWPID | CLONE_NEWIPC },
	};

	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		int fd = connected(SOCK_STREAM), other = connected(SOCK_STREAM), status;
		pid_t child;

		says(fd, "the parent's");
		says(other, "the parent's");
		errno = EXDEV;
		child = (pid_t)syscall(each[i].number, each[i].flags, NULL, NULL, NULL, NULL);
		CHECK(child >= 0 && errno == EXDEV);
		if (!child) {
			says(fd, "the child's");
			CHECK(is_kernels(fd));
			close(fd);
			close(other);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		says(fd, "its again");
		says(other, "its alone");
		CHECK(is_kernels(other) == !preloaded());
		CHECK(close(fd) == 0 && close(other) == 0);
	}
}

/* One that shares the memory is a thread of sorts, and none of ours. */
static int shares(void *arg)
{
	*(int *)arg = 1;
	return 0;
}

static void clones_threads(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int fd = connected(SOCK_STREAM), ran = 0, status;
	pid_t child;

	says(fd, "before");
	child = clone(shares, stack + sizeof(stack), CLONE_VM | CLONE_FILES | SIGCHLD, &ran);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0 && ran == 1);
	says(fd, "after");
	CHECK(is_kernels(fd) == !preloaded() && close(fd) == 0);
}

/* ---- what the C library does by itself --------------------------------------------------------------------------------- */

/* Its streams write and read by calls of its own. */
static void standard(void)
{
	int fd = connected(SOCK_STREAM), was[2];
	char line[32] = "";

	says(fd, "mine");
	fflush(stdout);
	for (int i = 0; i < 2; i++)
		CHECK((was[i] = dup(i)) > 2 && dup2(fd, i) == i);
	if (printf("by stdio\n") != 9 || fflush(stdout) || !fgets(line, sizeof(line), stdin))
		line[0] = 0;
	for (int i = 0; i < 2; i++)
		CHECK(dup2(was[i], i) == i && close(was[i]) == 0);
	clearerr(stdout);
	CHECK(!strcmp(line, "by stdio\n"));
	says(fd, "still mine");
	CHECK(close(fd) == 0);
}

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

static const struct check_case cases[] = {
	{ "streams", streams }, { "datagrams", datagrams },           { "accepts", accepts },   { "closed", closed },
	{ "clones", clones },   { "clones_threads", clones_threads }, { "standard", standard }, { "uncancelled", uncancelled },
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
