/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sandbox MINE4 MINE6 PEER4 PEER6 HOW [ACTION CALL]: a program that goes behind a seccomp filter while its sockets are in use, some by threads that
 * wait in calls on them, and talks on with peer.c by all of them. HOW: prctl, seccomp, notify (a listener), strict, null (no program), dropped (privileges, before). On the kernel it prints "works",
 * and so it must under the preload library; "offloaded" before that says that the connections are still not the kernel's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_KILLABLE_RECV (1UL << 5)

#include "client.h"

static void expect(int fd, const char *text)
{
	char buf[64];

	CHECK(read(fd, buf, sizeof(buf)) == (ssize_t)strlen(text) && !memcmp(buf, text, strlen(text)));
}

static void says(int fd, const char *text)
{
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	expect(fd, text);
}

static bool is_kernels(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return syscall(SYS_getpeername, fd, &ss, &len) == 0;
}

/* ---- the filter -------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	long number;
} calls[] = { { "bpf", SYS_bpf },
	      { "membarrier", SYS_membarrier },
	      { "chroot", SYS_chroot },
	      { "clone3", SYS_clone3 },
	      { "epoll_pwait", SYS_epoll_pwait } };

/* Few descriptors are left, or as many as at first. */
static void scarce(bool few)
{
	static struct rlimit was;
	struct rlimit limit;
	int fd = dup(0);

	CHECK(fd >= 0 && close(fd) == 0 && (was.rlim_cur || getrlimit(RLIMIT_NOFILE, &was) == 0));
	limit = was;
	if (few)
		limit.rlim_cur = (rlim_t)fd + 7;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static bool listened(unsigned long flags, const struct sock_fprog *prog)
{
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | flags, prog) >= 0;
}

static void filter(const char *how, const char *action, const char *name)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, !strcmp(action, "kill")   ? SECCOMP_RET_KILL_PROCESS
					  : !strcmp(action, "trap") ? SECCOMP_RET_TRAP
								    : SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .filter = code, .len = sizeof(code) / sizeof(*code) };

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (!strcmp(calls[i].name, name))
			code[1].k = (unsigned int)calls[i].number;
	CHECK(!strcmp(how, "seccomp") || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (!strcmp(how, "prctl"))
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) == 0);
	else if (!strcmp(how, "seccomp"))
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) == 0);
	else if (!strcmp(how, "notify"))
		CHECK(listened(WAIT_KILLABLE_RECV, &prog) || (errno == EINVAL && listened(0, &prog))); /* before Linux 5.19 */
	else
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) < 0 && errno == EFAULT);
}

/* Nothing but read and write is left. */
static void strict(int fd)
{
	char buf[8];
	bool works;

	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
	works = write(fd, "strict", 6) == 6 && read(fd, buf, 6) == 6 && write(1, "works\n", 6) == 6;
	for (;;)
		syscall(SYS_exit, works ? 0 : 1);
}

/* Without the right to make it the kernel's: what cannot go on ends, and the program does not. */
static void dropped(int fd)
{
	CHECK(setresuid(65534, 65534, 65534) == 0);
	filter("prctl", "kill", "bpf");
	if (send(fd, "dropped", 7, MSG_NOSIGNAL) == 7)
		expect(fd, "dropped");
	else
		CHECK(getenv("LD_PRELOAD") && (errno == ENOTCONN || errno == EPIPE || errno == ENETDOWN));
	fd = connected(SOCK_STREAM);
	says(fd, "a new one");
	puts("works");
	exit(0);
}

/* ---- threads that wait ------------------------------------------------------------------------------------------------- */

static int fds[3]; /* a stream, a datagram socket, a listener */
static _Atomic(int) waiting;

static void *in_recv(void *arg)
{
	waiting++;
	expect(*(int *)arg, "to whom it waits");
	return NULL;
}

static void *in_accept(void *arg)
{
	int fd;

	waiting++;
	fd = accept(*(int *)arg, NULL, NULL);
	CHECK(fd >= 0);
	expect(fd, "caller");
	says(fd, "accepted");
	close(fd);
	return NULL;
}

static void *in_epoll(void *arg)
{
	struct epoll_event ev[4];
	int set = *(int *)arg, seen = 0;

	waiting++;
	while (seen != 3) {
		int n = epoll_wait(set, ev, 4, 20000);

		CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			CHECK(ev[i].events == EPOLLIN && (ev[i].data.u64 == 1 || ev[i].data.u64 == 2));
			expect(fds[ev[i].data.u64 - 1], ev[i].data.u64 == 1 ? "stream" : "datagram");
			seen |= (int)ev[i].data.u64;
		}
	}
	return NULL;
}

static void call_me(int port)
{
	struct order o = { .kind = 'c', .delay_ms = 1, .text = "caller" };
	struct sockaddr_in to = address(theirs, PEER_PORT + 1);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET6, "::ffff:0.0.0.0", &o.to.sin6_addr);
	o.to.sin6_family = AF_INET6;
	o.to.sin6_port = htons((uint16_t)port);
	CHECK(inet_pton(AF_INET, mine, &o.to.sin6_addr.s6_addr[12]) == 1);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && write(fd, &o, sizeof(o)) == sizeof(o));
	close(fd);
}

int main(int argc, char **argv)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 1 };
	int stream, idle, set = epoll_create1(0), port;
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	pthread_t t[3];

	if (argc < 6)
		return 2;
	mine = argv[1];
	theirs = argv[3];
	setvbuf(stdout, NULL, _IOLBF, 0);
	at = address(mine, 0);
	stream = connected(SOCK_STREAM);
	idle = connected(SOCK_STREAM);
	fds[0] = connected(SOCK_STREAM);
	fds[1] = connected(SOCK_DGRAM);
	fds[2] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(fds[2], (struct sockaddr *)&at, len) == 0 && listen(fds[2], 4) == 0 &&
	      getsockname(fds[2], (struct sockaddr *)&at, &len) == 0);
	port = ntohs(at.sin_port);
	says(stream, "one");
	says(idle, "two");
	says(fds[0], "three");
	says(fds[1], "four");
	if (!strcmp(argv[5], "strict"))
		strict(stream);
	if (!strcmp(argv[5], "dropped"))
		dropped(stream);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[0], &ev) == 0);
	ev.data.u64 = 2;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fds[1], &ev) == 0);
	CHECK(pthread_create(&t[0], NULL, in_recv, &idle) == 0 && pthread_create(&t[1], NULL, in_accept, &fds[2]) == 0 &&
	      pthread_create(&t[2], NULL, in_epoll, &set) == 0);
	while (waiting < 3)
		usleep(1000);
	usleep(50000);
	scarce(!strcmp(argv[5], "prctl"));
	filter(argv[5], argc > 6 ? argv[6] : "", argc > 7 ? argv[7] : "");
	scarce(false);
	if (!is_kernels(stream) && !is_kernels(idle) && !is_kernels(fds[0]))
		puts("offloaded");
	else
		CHECK(is_kernels(stream) && is_kernels(idle) && is_kernels(fds[0]) && is_kernels(fds[1]));
	says(stream, "behind it");
	CHECK(write(idle, "to whom it waits", 16) == 16 && write(fds[0], "stream", 6) == 6 && write(fds[1], "datagram", 8) == 8);
	call_me(port);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fds[0], NULL) == 0 && epoll_ctl(set, EPOLL_CTL_DEL, fds[1], NULL) == 0);
	idle = connected(SOCK_STREAM);
	says(idle, "a new one");
	puts("works");
	return 0;
}
