/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sandboxed [prctl|seccomp|exec kill|errno|trap CALL...]: a program of kernel sockets on loopback, which prints "works". With arguments it goes
 * behind a seccomp filter before its first socket, or goes behind it and starts itself again, so that the filter was there first, with a
 * listener that it inherits.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	long number, family; /* of socket(2); -1: any argument */
} calls[] = {
	{ "xdp", SYS_socket, 44 },
	{ "netlink", SYS_socket, AF_NETLINK },
	{ "bpf", SYS_bpf, -1 },
	{ "eventfd", SYS_eventfd2, -1 },
	{ "memfd", SYS_memfd_create, -1 },
	{ "epoll", SYS_epoll_create1, -1 },
	{ "ppoll", SYS_ppoll, -1 },
	{ "thread", SYS_clone3, -1 },
	{ "getrandom", SYS_getrandom, -1 },
	{ "getsockopt", SYS_getsockopt, -1 },
	{ "getdents", SYS_getdents64, -1 },
	{ "chroot", SYS_chroot, -1 },
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define MAX_CALLS 16
static void filter(int by_prctl, unsigned int action, char **names, int n)
{
	struct sock_filter code[4 + 4 * MAX_CALLS];
	struct sock_fprog prog = { .filter = code };
	unsigned short len = 0;

	for (int i = 0; i < n && i < MAX_CALLS; i++)
		for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
			if (strcmp(calls[c].name, names[i]))
				continue;
			code[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
			code[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)calls[c].number, 0,
								   calls[c].family < 0 ? 1 : 3);
			if (calls[c].family >= 0) {
				code[len++] =
				    (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
				code[len++] =
				    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)calls[c].family, 0, 1);
			}
			code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
		}
	code[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = len;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fail("no_new_privs");
	if (by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) != 0
		     : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) != 0)
		fail("seccomp");
}

static struct sockaddr_in bound(int fd)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);

	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) || getsockname(fd, (struct sockaddr *)&sin, &len))
		fail("bind");
	return sin;
}

static void stream(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	struct sockaddr_in sin = bound(l);
	char text[4] = "";

	if (listen(l, 1) || connect(c, (struct sockaddr *)&sin, sizeof(sin)))
		fail("connect");
	s = accept(l, NULL, NULL);
	if (s < 0 || send(s, "abc", 3, 0) != 3 || recv(c, text, 3, MSG_WAITALL) != 3 || strcmp(text, "abc"))
		fail("stream");
	close(s);
	close(c);
	close(l);
}

static void datagram(void)
{
	int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in sin = bound(a);
	struct pollfd p = { .fd = a, .events = POLLIN };
	char text[4] = "";

	if (sendto(b, "xyz", 3, 0, (struct sockaddr *)&sin, sizeof(sin)) != 3 || poll(&p, 1, 10000) != 1 ||
	    recv(a, text, 3, 0) != 3 || strcmp(text, "xyz"))
		fail("datagram");
	close(a);
	close(b);
}

int main(int argc, char **argv)
{
	if (argc > 2) {
		int left = !strcmp(argv[1], "exec") ? (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0) : -1;
		unsigned int action = !strcmp(argv[2], "kill")   ? SECCOMP_RET_KILL_PROCESS
				      : !strcmp(argv[2], "trap") ? SECCOMP_RET_TRAP
								 : SECCOMP_RET_ERRNO | EPERM;

		filter(strcmp(argv[1], "seccomp") != 0, action, argv + 3, argc - 3);
		if (!strcmp(argv[1], "exec")) {
			(void)syscall(SYS_listen, left, 1); /* of the kernel's: the library has not seen it */
			execl(argv[0], argv[0], (char *)NULL);
			fail("exec");
		}
	}
	stream();
	datagram();
	puts("works");
	return 0;
}
