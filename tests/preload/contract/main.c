/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c PEER4 PEER6 [FIRST]: every case from number FIRST on. A case that hangs ends the program. */
#include "contract.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#define LIMIT_S 20
#define TABLES 5u

static const struct kind kinds[] = {
	{ "udp4", AF_INET, SOCK_DGRAM, UDP },
	{ "udp6", AF_INET6, SOCK_DGRAM, UDP },
	{ "tcp4", AF_INET, SOCK_STREAM, TCP },
	{ "tcp6", AF_INET6, SOCK_STREAM, TCP },
};

const struct kind *kind;
const struct state *state;
bool blocking;
int arg;
static const char *hosts[2];
static char line[4096];
static size_t used;
static volatile sig_atomic_t pipes;

void say(const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(line + used, sizeof(line) - used, fmt, args);
	va_end(args);
	if (n > 0 && used + (size_t)n < sizeof(line))
		used += (size_t)n;
}

long rc(const char *what, long result)
{
	if (result < 0)
		say(" %s=%s", what, strerrorname_np(errno));
	else
		say(" %s=%ld", what, result);
	return result;
}

void bytes(const char *data, long n)
{
	for (long i = 0; i < n && i < 64; i++)
		say("%s%02x", i ? "" : ":", (unsigned char)data[i]);
}

void address(const struct sockaddr_storage *a, socklen_t len)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;
	char host[64] = "";

	say(" len=%u", len);
	if (len < sizeof(sa_family_t))
		return;
	if (a->ss_family == AF_INET && len >= sizeof(*v4))
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
	else if (a->ss_family == AF_INET6 && len >= sizeof(*v6))
		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
	say(" family=%d", a->ss_family);
	if (*host)
		say(" host=%s port=%s", host, v4->sin_port ? "some" : "none");
}

socklen_t peer(int port, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (void *)out;
	struct sockaddr_in6 *v6 = (void *)out;

	memset(out, 0, sizeof(*out));
	out->ss_family = (sa_family_t)kind->family;
	v4->sin_port = htons((uint16_t)port);
	if (kind->family == AF_INET)
		inet_pton(AF_INET, hosts[0], &v4->sin_addr);
	else
		inet_pton(AF_INET6, hosts[1], &v6->sin6_addr);
	return kind->family == AF_INET ? sizeof(*v4) : sizeof(*v6);
}

socklen_t any(struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	out->ss_family = (sa_family_t)kind->family;
	return kind->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

int fresh(void)
{
	return socket(kind->family, kind->type | SOCK_CLOEXEC, 0);
}

void settle(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	poll(&p, 1, 2000);
}

void hold(int fd)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (null < 0 || dup2(null, fd) < 0)
		abort();
	if (null != fd)
		close(null);
}

int unread(int fd)
{
	int n = 0;

	return ioctl(fd, FIONREAD, &n) < 0 ? 0 : n;
}

void arrive(int fd, int before, int more)
{
	for (int i = 0; i < 2000 && unread(fd) < before + more; i++)
		usleep(1000);
}

static void on_pipe(int sig)
{
	(void)sig;
	pipes++;
}

static void run(const struct state *s, const struct call *c)
{
	struct timeval limit = { .tv_usec = 20000 };
	int fd = s->make();

	pipes = 0;
	if (fd < 0) {
		say(" not made: %s", strerrorname_np(errno));
		return;
	}
	if (blocking) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	} else {
		fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
	}
	errno = 0;
	arg = c->arg;
	c->run(fd);
	if (pipes)
		say(" SIGPIPE");
	close(fd);
}

static long first, number;

static void table(const struct state *s, const struct call *calls)
{
	for (const struct call *c = calls; c->name; c++) {
		if (!(c->kinds & kind->bit) || number++ < first)
			continue;
		used = 0;
		printf("%ld %s/%s/%s/%s", number - 1, kind->name, s->name, blocking ? "block" : "nonblock", c->name);
		fflush(stdout);
		alarm(LIMIT_S);
		run(s, c);
		alarm(0);
		printf(":%s\n", line);
		fflush(stdout);
		line[0] = '\0';
	}
}

int main(int argc, char **argv)
{
	const struct call *tables[TABLES] = { io_calls, name_calls, file_calls, wait_calls, option_calls() };
	struct sigaction pipe = { .sa_handler = on_pipe };

	if (argc < 3)
		return 2;
	hosts[0] = argv[1];
	hosts[1] = argv[2];
	hold(LOW_FD);
	first = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
	sigaction(SIGPIPE, &pipe, NULL);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		kind = &kinds[k];
		for (const struct state *s = states; s->name; s++) {
			if (!(s->kinds & kind->bit))
				continue;
			state = s;
			for (int b = 0; b < 2; b++) {
				blocking = b;
				for (size_t t = 0; t < TABLES; t++)
					if (s->peer & SLOW
						? t == (blocking ? 3u : 0u) && blocking == (kind->family == AF_INET6)
						: t < TABLES - 1 ||
						      (!blocking && strstr(" fresh bound connected listening accepted ", s->name)))
						table(s, tables[t]);
			}
		}
	}
	printf("end\n");
	return 0;
}
