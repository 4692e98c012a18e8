/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sendfile and splice. The kernel moves pages between its own files; what goes to or comes from a socket of the stack's is copied, by pieces.
 * Nothing is taken from where it was before it has arrived: a file by its offset, a pipe by tee(2), a socket by MSG_PEEK. What has no meaning
 * for sockets (tee, vmsplice, copy_file_range) the kernel refuses by the kernel socket.
 */
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

#define PIECE 65536u
#define MAX_COUNT 0x7ffff000u /* MAX_RW_COUNT */

/* ---- sendfile ---------------------------------------------------------------------------------------------------------- */

/* `point`: splice ends a thread that is cancelled, sendfile does not. */
static int64_t send_piece(int out, const void *buf, size_t len, int flags, bool point)
{
	for (pyvma_sock *h = pl_sock(out); h; h = pl_sock(out)) {
		int64_t rc = PL_EDGE(point, pyvma_sock_send(h, buf, len, flags, -1));

		if (rc >= 0 || !pl_again(out, h, rc, SO_SNDTIMEO))
			return rc;
	}
	ssize_t n = point ? PL_REAL(send)(out, buf, len, flags) : PL_REAL(syscall)(SYS_sendto, out, buf, len, flags, NULL, 0);

	return n < 0 ? -errno : n;
}

/* From offset *at of `in`, which ends at `end` as far as is known; how much, or the error of the first. */
static int64_t send_file(int out, int in, off_t *at, off_t end, size_t count, char *buf)
{
	int64_t sent = 0;

	while (count) {
		ssize_t got = PL_REAL(syscall)(SYS_pread64, in, buf, PV_MIN(count, (size_t)PIECE), *at);
		int64_t rc;

		/* Directories, and what has no offset, are nothing to send, whatever a read of them says. */
		if (got <= 0)
			return sent ? sent : got < 0 ? errno == EISDIR || errno == ESPIPE ? -EINVAL : -errno : 0;
		rc = send_piece(out, buf, (size_t)got, (size_t)got < count && *at + got < end ? MSG_MORE : 0, false);
		if (rc < 0)
			return sent ? sent : rc;
		sent += rc;
		*at += rc;
		count -= (size_t)rc;
		if (rc < got)
			break;
	}
	return sent;
}

static int64_t send_file_to(int out, int in, off_t *offset, size_t count)
{
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR), from = at;
	int type = SOCK_STREAM;
	socklen_t len = sizeof(type);
	struct stat st;
	void *buf PL_LENT = NULL;
	int64_t rc;

	/* What may be sent at all, and from where, differs between kernels. With nothing to send it is looked at all the same. */
	if (PL_REAL(sendfile)(out, in, offset ? &from : NULL, 0) < 0 || fstat(in, &st) < 0)
		return -errno;
	rc = pl_lend(&buf, PIECE);
	if (rc)
		return rc;
	/* Of datagrams Linux, too, takes what it read for a part of the one that is to come. */
	(void)PL_REAL(getsockopt)(out, SOL_SOCKET, SO_TYPE, &type, &len);
	rc = send_file(out, in, &at, type == SOCK_STREAM ? st.st_size : INT64_MAX, PV_MIN(count, (size_t)MAX_COUNT), buf);
	if (rc > 0 && offset)
		*offset = at;
	else if (rc > 0)
		(void)lseek(in, at, SEEK_SET);
	return rc;
}

PL_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	return pl_sock(out) ? pl_result(send_file_to(out, in, offset, count)) : PL_REAL(sendfile)(out, in, offset, count);
}

PL_EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) __attribute__((alias("sendfile")));

/* ---- splice ------------------------------------------------------------------------------------------------------------ */

static int64_t read_all(int fd, char *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = PL_REAL(read)(fd, buf + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : (int64_t)got;
		got += (size_t)n;
	}
	return (int64_t)got;
}

/* What lies in the pipe is seen through one of our own, and taken once it is sent. */
static int64_t pipe_to_sock(int in, int out, size_t len, unsigned int flags, char *buf, const int own[2])
{
	ssize_t seen = PL_REAL(tee)(in, own[1], PV_MIN(len, (size_t)PIECE), flags & SPLICE_F_NONBLOCK);
	int64_t rc;

	if (seen <= 0)
		return seen < 0 ? -errno : 0;
	rc = read_all(own[0], buf, (size_t)seen);
	if (rc > 0)
		rc = send_piece(out, buf, (size_t)rc, flags & SPLICE_F_MORE ? MSG_MORE : 0, true);
	if (rc > 0)
		(void)read_all(in, buf, (size_t)rc);
	return rc;
}

static int64_t peek_piece(int fd, char *buf, size_t len, int flags)
{
	for (pyvma_sock *h = pl_sock(fd); h; h = pl_sock(fd)) {
		int64_t rc = PL_POINT(pyvma_sock_recv(h, buf, len, flags, -1));

		if (rc >= 0 || !pl_again(fd, h, rc, SO_RCVTIMEO))
			return rc;
	}
	ssize_t n = PL_REAL(recv)(fd, buf, len, flags);

	return n < 0 ? -errno : n;
}

static int64_t sock_to_pipe(int in, int out, size_t len, unsigned int flags, char *buf, const int own[2])
{
	int64_t rc = peek_piece(in, buf, PV_MIN(len, (size_t)PIECE), MSG_PEEK);
	ssize_t n;

	if (rc <= 0)
		return rc;
	n = PL_REAL(write)(own[1], buf, (size_t)rc);
	if (n > 0)
		n = PL_REAL(splice)(own[0], NULL, out, NULL, (size_t)n, flags);
	if (n <= 0)
		return n < 0 ? -errno : n;
	return peek_piece(in, buf, (size_t)n, MSG_DONTWAIT);
}

static int64_t splice_ours(int in, int out, size_t len, unsigned int flags, bool from)
{
	void *buf PL_LENT = NULL;
	int *own, rc;

	if (!len)
		return 0;
	rc = pl_lend(&buf, PIECE);
	if (rc)
		return rc;
	own = pl_lent_pipe(buf);
	if (pipe2(own, O_CLOEXEC) < 0)
		return -errno;
	return from ? sock_to_pipe(in, out, len, flags, buf, own) : pipe_to_sock(in, out, len, flags, buf, own);
}

/* A pipe, by the end of it that `mode` is for. */
static bool is_pipe(int fd, int mode)
{
	int flags = PL_REAL(fcntl)(fd, F_GETFL);
	struct stat st;

	if (flags < 0 || flags & O_PATH || ((flags & O_ACCMODE) != mode && (flags & O_ACCMODE) != O_RDWR))
		return false;
	return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

PL_EXPORT ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned int flags)
{
	bool from = pl_sock(in) != NULL, to = pl_sock(out) != NULL;

	/* With an offset, or no pipe that is open for it on the other side, it is an error that the kernel knows. */
	if (from == to || in_at || out_at || !(from ? is_pipe(out, O_WRONLY) : is_pipe(in, O_RDONLY)) ||
	    flags & ~(unsigned int)(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT))
		return PL_REAL(splice)(in, in_at, out, out_at, len, flags);
	return pl_result(splice_ours(in, out, len, flags, from));
}
