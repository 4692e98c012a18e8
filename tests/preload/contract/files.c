/* SPDX-License-Identifier: BSD-3-Clause */
/* What sockets are asked as files. */
#include "contract.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A number of a new fd is any. */
static int number(const char *what, int fd)
{
	if (fd < 0)
		rc(what, fd);
	else
		say(" %s=fd", what);
	return fd;
}

static void flags(int fd)
{
	int before = fcntl(fd, F_GETFL);

	rc("getfl", before);
	rc("setfl", fcntl(fd, F_SETFL, O_NONBLOCK));
	rc("getfl", fcntl(fd, F_GETFL));
	rc("setfl", fcntl(fd, F_SETFL, 0));
	rc("getfl", fcntl(fd, F_GETFL));
	rc("setfl", fcntl(fd, F_SETFL, before));
	rc("getfd", fcntl(fd, F_GETFD));
	rc("setfd", fcntl(fd, F_SETFD, 0));
	rc("getfd", fcntl(fd, F_GETFD));
	rc("unknown", fcntl(fd, 9999, 0));
	rc("owner", fcntl(fd, F_GETOWN));
	rc("lock", fcntl(fd, F_SETPIPE_SZ, 4096));
}

/* Duplicates share the flags of the file, and the socket lives as long as any. */
static void dups(int fd)
{
	char c[10];
	int a = number("dup", dup(fd)), b = number("dupfd", fcntl(fd, F_DUPFD, 100)),
	    d = number("cloexec", fcntl(fd, F_DUPFD_CLOEXEC, 0));

	say(" above=%d", b >= 100);
	rc("getfd", fcntl(a, F_GETFD));
	rc("getfd", fcntl(d, F_GETFD));
	rc("setfl", fcntl(a, F_SETFL, O_NONBLOCK));
	rc("getfl", fcntl(fd, F_GETFL));
	close(b);
	close(d);
	rc("recv", recv(a, c, sizeof(c), MSG_DONTWAIT));
	rc("send", send(a, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
	rc("close", close(a));
	rc("closed", recv(a, c, sizeof(c), MSG_DONTWAIT));
	rc("send", send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static void dup_over(int fd)
{
	int other = fresh(), p[2];
	char c[10];

	rc("self", dup2(fd, fd) == fd);
	rc("self3", dup3(fd, fd, 0));
	rc("flags", dup3(fd, other, 1));
	rc("bad", dup2(-1, other));
	rc("far", dup2(fd, 1 << 30));
	rc("over", dup2(fd, other) == other);
	rc("send", send(other, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
	if (pipe(p))
		return;
	rc("pipe", dup3(p[0], other, O_CLOEXEC) == other);
	rc("write", write(p[1], "pipe", 4));
	rc("read", read(other, c, sizeof(c)));
	rc("send", send(other, "x", 1, MSG_NOSIGNAL));
	close(p[0]);
	close(p[1]);
	close(other);
}

static void close_twice(int fd)
{
	int other = dup(fd);
	char c;

	rc("close", close(other));
	rc("close", close(other));
	rc("recv", recv(other, &c, 1, 0));
	rc("range", close_range((unsigned int)other, (unsigned int)other, 0));
	rc("bad", close_range(5, 3, 0));
	rc("still", fcntl(fd, F_GETFD) >= 0);
}

static void close_one_of_a_range(int fd)
{
	int low = fcntl(fd, F_DUPFD, 200);
	unsigned int at = (unsigned int)low;

	rc("range", close_range(at, at, CLOSE_RANGE_CLOEXEC));
	rc("getfd", fcntl(low, F_GETFD));
	rc("range", close_range(at, at, 0));
	rc("getfd", fcntl(low, F_GETFD));
	rc("still", fcntl(fd, F_GETFD) >= 0);
}

static void ioctls(int fd)
{
	int n = -1, on = 1;

	if (!rc("fionread", ioctl(fd, FIONREAD, &n)))
		say(":%d", n);
	if (kind->type == SOCK_STREAM) {
		n = -1;
		if (!rc("mark", ioctl(fd, SIOCATMARK, &n)))
			say(":%d", n);
	}
	rc("fionbio", ioctl(fd, FIONBIO, &on));
	rc("getfl", fcntl(fd, F_GETFL));
	on = 0;
	rc("fionbio", ioctl(fd, FIONBIO, &on));
	rc("getfl", fcntl(fd, F_GETFL));
	rc("cloexec", ioctl(fd, FIONCLEX));
	rc("getfd", fcntl(fd, F_GETFD));
	rc("tty", ioctl(fd, TIOCGWINSZ, &n));
	rc("unknown", ioctl(fd, 0x1234, &n));
}

static void as_file(int fd)
{
	struct stat st;

	rc("stat", fstat(fd, &st));
	rc("socket", S_ISSOCK(st.st_mode));
	rc("seek", lseek(fd, 0, SEEK_SET));
	rc("sync", fsync(fd));
	rc("truncate", ftruncate(fd, 0));
	rc("tty", isatty(fd));
}

const struct call file_calls[] = {
	CALL(flags, BOTH),  CALL(dups, BOTH),    CALL(dup_over, BOTH), CALL(close_twice, BOTH), CALL(close_one_of_a_range, BOTH),
	CALL(ioctls, BOTH), CALL(as_file, BOTH), { NULL, 0, NULL, 0 },
};
