/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program like any other: it knows nothing of pyvma. calls MINE4 MINE6 PEER4 PEER6 [CASE...] runs its cases against peer.c and says "ok CASE"
 * or why not. On the kernel each must pass, and so under the preload library.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"

static const char *mine[2], *theirs[2]; /* by family: IPv4, IPv6 */
static int v6; /* of the case that runs */

/* ---- helpers ----------------------------------------------------------------------------------------------------------- */

static socklen_t address(struct sockaddr_storage *ss, const char *text, int port)
{
	struct sockaddr_in *four = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (v6) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons((uint16_t)port);
		CHECK(inet_pton(AF_INET6, text, &six->sin6_addr) == 1);
		return sizeof(*six);
	}
	four->sin_family = AF_INET;
	four->sin_port = htons((uint16_t)port);
	CHECK(inet_pton(AF_INET, text, &four->sin_addr) == 1);
	return sizeof(*four);
}

static int family(void)
{
	return v6 ? AF_INET6 : AF_INET;
}

static int port_of(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	CHECK(getsockname(fd, (struct sockaddr *)&ss, &len) == 0);
	CHECK(ss.ss_family == family());
	return ntohs(v6 ? ((struct sockaddr_in6 *)&ss)->sin6_port : ((struct sockaddr_in *)&ss)->sin_port);
}

static int connected(int type)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, theirs[v6], PEER_PORT);
	int fd = socket(family(), type, 0);

	CHECK(fd >= 0);
	CHECK(connect(fd, (struct sockaddr *)&ss, len) == 0);
	return fd;
}

static int bound(int type, bool any)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, any ? (v6 ? "::" : "0.0.0.0") : mine[v6], 0);
	int fd = socket(family(), type, 0);

	CHECK(fd >= 0);
	CHECK(bind(fd, (struct sockaddr *)&ss, len) == 0);
	if (type == SOCK_STREAM)
		CHECK(listen(fd, 16) == 0);
	return fd;
}

/* The peer is to do something to our port. The connection is its own order's. */
static int order(char kind, int port, unsigned int delay_ms, const char *text)
{
	struct order o = { .kind = (uint8_t)kind, .delay_ms = delay_ms };
	struct sockaddr_storage ss;
	char mapped[64];
	int fd = socket(family(), SOCK_STREAM, 0);
	socklen_t len = address(&ss, theirs[v6], PEER_PORT + 1);

	snprintf(mapped, sizeof(mapped), "%s%s", v6 ? "" : "::ffff:", mine[v6]);
	o.to.sin6_family = AF_INET6;
	o.to.sin6_port = htons((uint16_t)port);
	CHECK(inet_pton(AF_INET6, mapped, &o.to.sin6_addr) == 1);
	snprintf(o.text, sizeof(o.text), "%s", text);
	CHECK(connect(fd, (struct sockaddr *)&ss, len) == 0);
	CHECK(write(fd, &o, sizeof(o)) == sizeof(o));
	return fd;
}

static void nonblock(int fd)
{
	CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static int poll_one(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n = poll(&p, 1, ms);

	CHECK(n == (p.revents != 0));
	return p.revents;
}

static void readable(int fd)
{
	CHECK(poll_one(fd, POLLIN, LIMIT_MS) & POLLIN);
}

static void expect(int fd, const char *text)
{
	char buf[256];
	size_t want = strlen(text), got = 0;

	while (got < want) {
		ssize_t n = recv(fd, buf + got, want - got, 0);

		CHECK(n > 0);
		got += (size_t)n;
	}
	CHECK(!memcmp(buf, text, want));
}

/* ---- datagrams and streams --------------------------------------------------------------------------------------------- */

static void udp_calls(void)
{
	int fd = connected(SOCK_DGRAM);
	char a[8], b[8];
	struct iovec out[2] = { { "ab", 2 }, { "cdef", 4 } }, in[2] = { { a, 3 }, { b, 8 } };

	CHECK(send(fd, "one", 3, 0) == 3);
	CHECK(recv(fd, a, sizeof(a), 0) == 3 && !memcmp(a, "one", 3));
	CHECK(write(fd, "", 0) == 0);
	CHECK(read(fd, a, sizeof(a)) == 0);
	CHECK(writev(fd, out, 2) == 6);
	CHECK(readv(fd, in, 2) == 6 && !memcmp(a, "abc", 3) && !memcmp(b, "def", 3));
	CHECK(send(fd, "abcdefgh", 8, 0) == 8);
	CHECK(recv(fd, a, 4, MSG_TRUNC) == 8);
	CHECK(recv(fd, a, 4, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(pread(fd, a, 4, 0) == -1 && errno == ESPIPE);
	CHECK(pwrite(fd, a, 4, 0) == -1 && errno == ESPIPE);
	CHECK(lseek(fd, 0, SEEK_SET) == -1 && errno == ESPIPE);
	CHECK(write(fd, "x", 1) == 1);
	CHECK(preadv2(fd, in, 1, -1, 0) == 1 && a[0] == 'x');
	CHECK(preadv2(fd, in, 1, -1, RWF_NOWAIT) == -1 && errno == EAGAIN);
	CHECK(close(fd) == 0);
	CHECK(send(fd, "one", 3, 0) == -1 && errno == EBADF);
}

static void udp_messages(void)
{
	struct sockaddr_storage peer, from;
	socklen_t len = address(&peer, theirs[v6], PEER_PORT);
	int fd = bound(SOCK_DGRAM, true);
	char buf[3][16];
	struct iovec iov[3];
	struct mmsghdr m[3] = { 0 };
	struct timespec limit = { .tv_sec = 5 };

	for (int i = 0; i < 3; i++) {
		snprintf(buf[i], sizeof(buf[i]), "message %d", i);
		iov[i] = (struct iovec){ buf[i], strlen(buf[i]) };
		m[i].msg_hdr = (struct msghdr){ .msg_name = &peer, .msg_namelen = len, .msg_iov = &iov[i], .msg_iovlen = 1 };
	}
	CHECK(sendmmsg(fd, m, 3, 0) == 3 && m[2].msg_len == 9);
	for (int i = 0; i < 3; i++)
		m[i].msg_hdr.msg_name = NULL;
	m[0].msg_hdr.msg_name = &from;
	m[0].msg_hdr.msg_namelen = sizeof(from);
	memset(buf, 0, sizeof(buf));
	CHECK(recvmmsg(fd, m, 3, 0, &limit) == 3 && m[2].msg_len == 9 && m[0].msg_hdr.msg_namelen == len);
	CHECK(!memcmp(&from, &peer, 4) && !memcmp(buf[2], "message 2", 9));
	CHECK(recvmmsg(fd, m, 3, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
	CHECK(sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, len) == 1);
	len = sizeof(from);
	CHECK(recvfrom(fd, buf[0], 16, 0, (struct sockaddr *)&from, &len) == 1 && !memcmp(&from, &peer, 4));
	CHECK(close(fd) == 0);
}

static void tcp_client(void)
{
	int fd = connected(SOCK_STREAM), n;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char buf[16];

	CHECK(getpeername(fd, (struct sockaddr *)&ss, &len) == 0 && ss.ss_family == family());
	CHECK(send(fd, "hello", 5, 0) == 5);
	readable(fd);
	CHECK(ioctl(fd, FIONREAD, &n) == 0 && n == 5);
	CHECK(recv(fd, buf, 2, MSG_PEEK) == 2 && !memcmp(buf, "he", 2));
	expect(fd, "hello");
	CHECK(shutdown(fd, SHUT_WR) == 0);
	CHECK(recv(fd, buf, sizeof(buf), 0) == 0);
	signal(SIGPIPE, SIG_IGN);
	CHECK(send(fd, "x", 1, 0) == -1 && errno == EPIPE);
	CHECK(close(fd) == 0);
}

static void tcp_server(void)
{
	int listener = bound(SOCK_STREAM, true), fd, far;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char buf[16];

	nonblock(listener);
	CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
	far = order('c', port_of(listener), 0, "first");
	readable(listener);
	fd = accept4(listener, (struct sockaddr *)&ss, &len, SOCK_CLOEXEC);
	CHECK(fd >= 0 && ss.ss_family == family());
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
	expect(fd, "first");
	CHECK(write(fd, "again", 5) == 5);
	expect(fd, "again");
	CHECK(shutdown(fd, SHUT_WR) == 0 && read(fd, buf, sizeof(buf)) == 0);
	CHECK(close(fd) == 0 && close(listener) == 0 && close(far) == 0);
}

/* ---- readiness --------------------------------------------------------------------------------------------------------- */

static void polls(void)
{
	int fd = connected(SOCK_STREAM), pipes[2];
	struct pollfd p[3];
	struct timeval tv = { .tv_usec = 1000 };
	fd_set in, out;

	CHECK(pipe(pipes) == 0);
	p[0] = (struct pollfd){ .fd = fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = pipes[0], .events = POLLIN };
	p[2] = (struct pollfd){ .fd = -1 };
	CHECK(poll(p, 3, 0) == 0 && poll(p, 3, 20) == 0);
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(poll(p, 3, LIMIT_MS) == 1 && p[1].revents == POLLIN && !p[0].revents);
	CHECK(read(pipes[0], &in, 1) == 1);
	CHECK(write(fd, "echo", 4) == 4);
	CHECK(poll(p, 3, LIMIT_MS) == 1 && p[0].revents == POLLIN);
	p[0].events = POLLOUT | POLLIN;
	CHECK(poll(p, 1, LIMIT_MS) == 1 && p[0].revents == (POLLIN | POLLOUT));
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(pipes[0], &in);
	FD_SET(fd, &out);
	CHECK(select(FD_SETSIZE, &in, &out, NULL, NULL) == 2 && FD_ISSET(fd, &in) && FD_ISSET(fd, &out) &&
	      !FD_ISSET(pipes[0], &in));
	expect(fd, "echo");
	FD_SET(pipes[0], &in);
	CHECK(select(fd + 1, &in, NULL, NULL, &tv) == 0 && !FD_ISSET(fd, &in) && !FD_ISSET(pipes[0], &in));
	CHECK(close(fd) == 0);
	p[0].fd = fd;
	CHECK(poll(p, 1, 0) == 1 && p[0].revents == POLLNVAL);
	FD_SET(fd, &in);
	CHECK(select(fd + 1, &in, NULL, NULL, &tv) == -1 && errno == EBADF);
	close(pipes[0]);
	close(pipes[1]);
}

static int epoll_one(int ep, struct epoll_event *ev, int ms)
{
	struct epoll_event got[4];
	int n = epoll_wait(ep, got, 4, ms);

	*ev = got[0];
	return n;
}

static void epolls(void)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), second = epoll_create(1), fd = connected(SOCK_STREAM);
	struct epoll_event ev = { .events = EPOLLIN, .data = { .u64 = 0x123456789abcdef0 } }, got;

	CHECK(ep >= 0 && second >= 0 && fcntl(ep, F_GETFD) == FD_CLOEXEC && fcntl(second, F_GETFD) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == -1 && errno == EEXIST);
	CHECK(epoll_ctl(second, EPOLL_CTL_MOD, fd, &ev) == -1 && errno == ENOENT);
	CHECK(epoll_one(ep, &got, 0) == 0);
	/* A set within another one, and in poll. */
	ev.data.u64 = 7;
	CHECK(epoll_ctl(second, EPOLL_CTL_ADD, ep, &ev) == 0);
	CHECK(write(fd, "x", 1) == 1);
	CHECK(epoll_one(second, &got, LIMIT_MS) == 1 && got.data.u64 == 7 && got.events == EPOLLIN);
	readable(ep);
	CHECK(epoll_one(ep, &got, LIMIT_MS) == 1 && got.data.u64 == 0x123456789abcdef0 && got.events == EPOLLIN);
	CHECK(epoll_one(ep, &got, 0) == 1);
	/* Edges, then one shot. */
	ev.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev) == 0);
	CHECK(epoll_one(ep, &got, LIMIT_MS) == 1 && epoll_one(ep, &got, 10) == 0);
	CHECK(write(fd, "y", 1) == 1);
	CHECK(epoll_one(ep, &got, LIMIT_MS) == 1 && epoll_one(ep, &got, 10) == 0);
	ev.events = EPOLLIN | EPOLLONESHOT;
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev) == 0);
	CHECK(epoll_one(ep, &got, LIMIT_MS) == 1 && epoll_one(ep, &got, 10) == 0);
	expect(fd, "xy");
	CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) == -1 && errno == ENOENT);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	CHECK(close(fd) == 0 && epoll_one(ep, &got, 0) == 0);
	CHECK(close(ep) == 0 && close(second) == 0);
	CHECK(epoll_wait(ep, &got, 1, 0) == -1 && errno == EBADF);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

static void numbers(void)
{
	int fd = connected(SOCK_STREAM), copy = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 100), one = 1, zero = 0;
	char c;

	CHECK(copy >= 0 && high >= 100 && fcntl(high, F_GETFD) == FD_CLOEXEC);
	CHECK(close(fd) == 0);
	CHECK(write(copy, "a", 1) == 1);
	expect(high, "a");
	CHECK(dup2(copy, 50) == 50 && dup3(copy, 51, O_CLOEXEC) == 51 && dup2(copy, copy) == copy);
	CHECK(dup3(copy, copy, 0) == -1 && errno == EINVAL);
	CHECK(close(copy) == 0 && close(high) == 0);
	CHECK(ioctl(50, FIONBIO, &one) == 0);
	CHECK(read(51, &c, 1) == -1 && errno == EAGAIN);
	CHECK(ioctl(50, FIONBIO, &zero) == 0 && !(fcntl(51, F_GETFL) & O_NONBLOCK));
	CHECK(write(50, "b", 1) == 1);
	expect(51, "b");
	CHECK(close_range(50, 60, 0) == 0);
	CHECK(write(51, "b", 1) == -1 && errno == EBADF);
	CHECK(dup(50) == -1 && errno == EBADF && dup2(50, 52) == -1 && errno == EBADF);
}

static void files(void)
{
	char name[] = "/tmp/preload-calls-XXXXXX", back[16] = "";
	int file = mkstemp(name), fd = connected(SOCK_STREAM), pipes[2];
	off_t at = 2;

	CHECK(file >= 0 && unlink(name) == 0 && write(file, "0123456789", 10) == 10 && pipe(pipes) == 0);
	CHECK(sendfile(fd, file, &at, 5) == 5 && at == 7);
	expect(fd, "23456");
	CHECK(lseek(file, 8, SEEK_SET) == 8 && sendfile(fd, file, NULL, 100) == 2 && lseek(file, 0, SEEK_CUR) == 10);
	expect(fd, "89");
	CHECK(sendfile(fd, pipes[0], NULL, 5) == -1);
	CHECK(write(pipes[1], "through", 7) == 7);
	CHECK(splice(pipes[0], NULL, fd, NULL, 100, 0) == 7);
	readable(fd);
	CHECK(splice(fd, NULL, pipes[1], NULL, 100, 0) == 7);
	CHECK(read(pipes[0], back, sizeof(back)) == 7 && !strcmp(back, "through"));
	nonblock(fd);
	CHECK(splice(fd, NULL, pipes[1], NULL, 100, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
	close(pipes[0]);
	close(pipes[1]);
	close(file);
	close(fd);
}

static void stdio(void)
{
	int fd = connected(SOCK_STREAM);
	FILE *f = fdopen(fd, "r+");
	char line[64];

	CHECK(f && fileno(f) == fd);
	setvbuf(f, NULL, _IOLBF, 0);
	CHECK(fprintf(f, "line %d\n", 1) == 7 && fflush(f) == 0);
	CHECK(fgets(line, sizeof(line), f) && !strcmp(line, "line 1\n"));
	CHECK(dprintf(fd, "%s\n", "second") == 7);
	CHECK(fgets(line, sizeof(line), f) && !strcmp(line, "second\n"));
	CHECK(fclose(f) == 0 && fcntl(fd, F_GETFD) == -1);
}

/* ---- signals ----------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	(void)sig;
	caught++;
}

static void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };

	CHECK(sigaction(sig, &sa, NULL) == 0);
}

/* Again and again, as the first one may come before the call that it is to interrupt. 0: no more. */
static void alarm_ms(int ms)
{
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
	struct itimerval t = { .it_value = tv, .it_interval = tv };

	CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
}

static void interrupted(void)
{
	int fd = connected(SOCK_STREAM), listener = bound(SOCK_STREAM, false);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	char c;

	handle(SIGALRM, 0);
	handle(SIGUSR1, SA_RESTART);
	alarm_ms(20);
	CHECK(recv(fd, &c, 1, 0) == -1 && errno == EINTR);
	alarm_ms(20);
	CHECK(accept(listener, NULL, NULL) == -1 && errno == EINTR);
	handle(SIGALRM, SA_RESTART);
	alarm_ms(20);
	CHECK(poll(&p, 1, -1) == -1 && errno == EINTR);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	alarm_ms(20);
	CHECK(epoll_wait(ep, &ev, 1, -1) == -1 && errno == EINTR);
	alarm_ms(20);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = 60 }, sizeof(struct timeval)) == 0);
	CHECK(recv(fd, &c, 1, 0) == -1 && errno == EINTR);
	alarm_ms(0);
	CHECK(caught >= 5);
	close(ep);
	close(fd);
	close(listener);
}

static void *writes_later(void *arg)
{
	while (!caught)
		usleep(1000);
	usleep(20000);
	CHECK(write(*(int *)arg, "z", 1) == 1);
	return NULL;
}

static void restarted(void)
{
	int fd = connected(SOCK_STREAM);
	pthread_t thread;
	sigset_t set;
	char c;

	handle(SIGALRM, SA_RESTART);
	handle(SIGUSR2, 0); /* so that it is not all handlers' */
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, writes_later, &fd) == 0);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	alarm_ms(20);
	CHECK(recv(fd, &c, 1, 0) == 1 && c == 'z');
	alarm_ms(0);
	CHECK(caught >= 1);
	CHECK(pthread_join(thread, NULL) == 0);
	close(fd);
}

static void masked_waits(void)
{
	int fd = connected(SOCK_STREAM), ep = epoll_create1(0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct epoll_event ev = { .events = EPOLLIN };
	struct timespec limit = { .tv_sec = 20 };
	sigset_t set, none;
	fd_set in;

	handle(SIGUSR1, 0);
	sigemptyset(&none);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	/* Pending before: only the call lets it in. */
	raise(SIGUSR1);
	CHECK(poll(&p, 1, 10) == 0 && caught == 0);
	CHECK(ppoll(&p, 1, &limit, &none) == -1 && errno == EINTR && caught == 1);
	raise(SIGUSR1);
	FD_ZERO(&in);
	FD_SET(fd, &in);
	CHECK(pselect(fd + 1, &in, NULL, NULL, &limit, &none) == -1 && errno == EINTR && caught == 2);
	raise(SIGUSR1);
	CHECK(epoll_pwait(ep, &ev, 1, 20000, &none) == -1 && errno == EINTR && caught == 3);
	raise(SIGUSR1);
	CHECK(epoll_pwait2(ep, &ev, 1, &limit, &none) == -1 && errno == EINTR && caught == 4);
	/* What is ready goes first, and the signal stays pending. */
	CHECK(write(fd, "x", 1) == 1);
	readable(fd);
	raise(SIGUSR1);
	CHECK(ppoll(&p, 1, &limit, &none) == 1 && caught == 4);
	CHECK(sigpending(&set) == 0 && sigismember(&set, SIGUSR1) == 1);
	close(ep);
	close(fd);
}

/* ---- processes and threads --------------------------------------------------------------------------------------------- */

/* The child takes what its parent only listens by. */
static void forked_server(void)
{
	int listener = bound(SOCK_STREAM, true), status, far, fd;
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		readable(listener);
		fd = accept(listener, NULL, NULL);
		CHECK(fd >= 0);
		expect(fd, "to the child");
		close(fd);
		exit(0);
	}
	far = order('c', port_of(listener), 0, "to the child");
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	close(far);
	close(listener);
}

/* What the kernel had before the socket was used for the first time, as far as that can be seen, is not lost. */
static void used_late(void)
{
	int listener = bound(SOCK_STREAM, true), socket4 = bound(SOCK_DGRAM, true), fd, far, n = 0;
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	far = order('c', port_of(listener), 0, "early");
	while (!info.tcpi_unacked)
		CHECK(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	close(order('u', port_of(socket4), 0, "early datagram"));
	while (!n)
		CHECK(ioctl(socket4, FIONREAD, &n) == 0);
	expect(socket4, "early datagram");
	close(order('u', port_of(socket4), 0, "late datagram"));
	expect(socket4, "late datagram");
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	expect(fd, "early");
	close(order('c', port_of(listener), 0, "late"));
	CHECK(write(fd, "back", 4) == 4);
	expect(fd, "back");
	close(fd);
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	expect(fd, "late");
	CHECK(write(fd, "back", 4) == 4);
	expect(fd, "back");
	close(fd);
	close(listener);
	close(socket4);
	close(far);
}

/* A connection is another program's after exec. */
static void execs(void)
{
	int fd = connected(SOCK_STREAM), status;
	char name[16];
	pid_t child;

	snprintf(name, sizeof(name), "%d", fd);
	child = vfork();
	CHECK(child >= 0);
	if (!child) {
		close(fd);
		execlp("true", "true", name, (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(write(fd, "mine", 4) == 4);
	expect(fd, "mine");
	close(fd);
}

/* The child's end of `pair`: it gets a connection, and talks by it. */
static void takes_fd(int pair)
{
	char c, room[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &c, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	int fd;

	CHECK(recvmsg(pair, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	CHECK(write(fd, "given", 5) == 5);
	expect(fd, "given");
	close(fd);
	exit(0);
}

static void passed_on(void)
{
	char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { "x", 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int pair[2], fd, status;
	pid_t child;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	child = fork();
	CHECK(child >= 0);
	if (!child)
		takes_fd(pair[1]);
	fd = connected(SOCK_STREAM);
	CHECK(write(fd, "mine", 4) == 4);
	expect(fd, "mine");
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(pair[0], &msg, 0) == 1);
	CHECK(close(fd) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	close(pair[0]);
	close(pair[1]);
}

#define CHANGING 90
static _Atomic(bool) over, loose;

/* `loose`: the number is free now and then, or a plain file's; then the call may be one on what it led to a moment ago or leads to now. */
static bool may_be(int err)
{
	return err == EAGAIN || (loose && (err == EBADF || err == ENOTSOCK || err == ENOTCONN || err == EPIPE));
}

static void *uses_number(void *arg)
{
	struct pollfd p = { .fd = CHANGING, .events = POLLIN };
	char buf[64];

	(void)arg;
	while (!over) {
		CHECK(send(CHANGING, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 || may_be(errno));
		CHECK(poll(&p, 1, 0) >= 0);
		CHECK(recv(CHANGING, buf, sizeof(buf), MSG_DONTWAIT) >= 0 || may_be(errno));
	}
	return NULL;
}

/* By a number that leads now here, now there, and later sometimes nowhere. */
static void changing_number(void)
{
	int fd[4] = { connected(SOCK_DGRAM), connected(SOCK_STREAM), connected(SOCK_DGRAM), open("/dev/null", O_RDWR) };
	pthread_t t[2];

	over = loose = false;
	CHECK(dup2(fd[0], CHANGING) == CHANGING);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, uses_number, NULL) == 0);
	for (int i = 0; i < 600; i++) {
		loose = i >= 300;
		CHECK(dup2(fd[i % (loose ? 4 : 3)], CHANGING) == CHANGING);
		if (loose && i % 5 == 0)
			CHECK(close(CHANGING) == 0);
	}
	over = true;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	close(CHANGING);
	for (int i = 0; i < 4; i++)
		CHECK(close(fd[i]) == 0);
}

static void *talk(void *arg)
{
	char text[32], buf[32];

	(void)arg;
	for (int i = 0; i < 20; i++) {
		int fd = connected(i % 2 ? SOCK_STREAM : SOCK_DGRAM),
		    len = snprintf(text, sizeof(text), "%d of %p", i, (void *)&text);

		/* A datagram may be lost on a machine that has no time. */
		do
			CHECK(write(fd, text, (size_t)len) == len);
		while (!poll_one(fd, POLLIN, i % 2 ? LIMIT_MS : 1000) && i % 2 == 0);
		CHECK(recv(fd, buf, sizeof(buf), 0) == len && !memcmp(buf, text, (size_t)len));
		CHECK(close(fd) == 0);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[6];

	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&t[i], NULL, talk, NULL) == 0);
	for (int i = 0; i < 6; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

static const struct check_case cases[] = {
	{ "udp_calls", udp_calls },   { "udp_messages", udp_messages },
	{ "tcp_client", tcp_client }, { "tcp_server", tcp_server },
	{ "polls", polls },           { "epolls", epolls },
	{ "numbers", numbers },       { "files", files },
	{ "stdio", stdio },           { "interrupted", interrupted },
	{ "restarted", restarted },   { "masked_waits", masked_waits },
	{ "used_late", used_late },   { "execs", execs },
	{ "passed_on", passed_on },   { "changing_number", changing_number },
	{ "threads", threads },       { "forked_server", forked_server },
};

/* Ends as soon as it has handed over what it has to say: that, and the end of the connection, is the system's to deliver. */
static void leaves(int port)
{
	static char much[200000];
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, mine[0], port);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd;

	CHECK(bind(listener, (struct sockaddr *)&ss, len) == 0 && listen(listener, 1) == 0);
	printf("ready\n");
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	CHECK(write(fd, much, sizeof(much)) == sizeof(much));
	_exit(0);
}

int main(int argc, char **argv)
{
	static char name[64];

	if (argc < 5)
		return 2;
	mine[0] = argv[1];
	mine[1] = argv[2];
	theirs[0] = argv[3];
	theirs[1] = argv[4];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 7 && !strcmp(argv[5], "leave"))
		leaves(atoi(argv[6]));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (v6 = 0; v6 < 2; v6++) {
			if (!check_wanted(&cases[i], argv + 5, argc - 5))
				continue;
			caught = 0;
			snprintf(name, sizeof(name), "%s IPv%d", cases[i].name, v6 ? 6 : 4);
			running = name;
			cases[i].run();
			printf("ok %s\n", running);
		}
	}
	return 0;
}
