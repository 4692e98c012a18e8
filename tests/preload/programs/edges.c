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
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

#define CHECK(cond)                                                                                                                \
	do {                                                                                                                       \
		if (!(cond)) {                                                                                                     \
			printf("FAIL %s line %d: %s (errno %d, %s)\n", running, __LINE__, #cond, errno, strerror(errno));          \
			exit(1);                                                                                                   \
		}                                                                                                                  \
	} while (0)
#define LIMIT_MS 10000

static const char *theirs, *running = "";

/* ---- helpers ----------------------------------------------------------------------------------------------------------- */

static struct sockaddr_in address(const char *text, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	CHECK(inet_pton(AF_INET, text, &in.sin_addr) == 1);
	return in;
}

static int connected(int type)
{
	struct sockaddr_in to = address(theirs, PEER_PORT);
	int fd = socket(AF_INET, type, 0);

	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	return fd;
}

static void expect(int fd, const char *text)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[256];

	CHECK(poll(&p, 1, LIMIT_MS) == 1);
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

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "execs_twice", execs_twice },
	{ "forked_asleep", forked_asleep },
};

static bool wanted(const char *name, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(name, names[i]))
			return true;
	return n == 0;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	theirs = argv[3];
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!wanted(cases[i].name, argv + 5, argc - 5))
			continue;
		running = cases[i].name;
		cases[i].run();
		printf("ok %s\n", running);
	}
	return 0;
}
