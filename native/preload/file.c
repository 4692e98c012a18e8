/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers and their flags: close, dup, fcntl, ioctl. */
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "preload/preload.h"

/* In one piece, for a handler that jumps. Somebody may have been quicker. */
static int close_by(int fd, pl_word w)
{
	int rc;

	if (!pl_change(fd, w, PL_CLOSING))
		return -EBADF;
	rc = pyvma_sock_close((pyvma_sock *)w);
	(void)pl_change(fd, PL_CLOSING, 0);
	return rc ? rc : 1;
}

int pl_close(int fd)
{
	pl_word w = pl_get(fd);
	int rc;

	if (pv_likely(!w))
		return 0;
	/* The kernel has the number free a moment before the table has, and somebody may have opened what the caller closes. */
	while (w == PL_CLOSING && !pl_busy()) {
		sched_yield();
		w = pl_get(fd);
	}
	if (!w)
		return 0;
	if (pl_set_of(w) && pl_busy())
		return -EAGAIN;
	if (w == PL_LATE || pl_set_of(w)) {
		w = pl_take(fd);
		if (!pl_set_of(w))
			return 0;
		return (int)PL_IN((pl_set_put(pl_set_of(w), fd), 1));
	}
	if (pl_busy())
		return w == PL_CLOSING ? -EBADF : (rc = pl_defer(fd, (pyvma_sock *)w, -1)) ? rc : 1;
	return (int)PL_IN(close_by(fd, w));
}

/* A descriptor of the engine's, of which the program does not know. */
static bool is_engines(int fd)
{
	return fd >= 0 && pyvma_own_fd((unsigned int)fd, (unsigned int)fd) >= 0;
}

PL_EXPORT int close(int fd)
{
	int rc = pl_close(fd);

	if (rc == 0 && pv_unlikely(is_engines(fd)))
		rc = -EBADF;
	return rc == 0 ? PL_REAL(close)(fd) : rc < 0 ? (int)pl_result(rc) : 0;
}

/* Around what is the engine's. */
static int close_around(unsigned int first, unsigned int last, int flags)
{
	int own = pyvma_own_fd(first, last), rc = 0;

	while (!rc && own >= 0) {
		if ((unsigned int)own > first)
			rc = PL_REAL(close_range)(first, (unsigned int)own - 1, flags);
		first = (unsigned int)own + 1;
		own = pyvma_own_fd(first, last);
	}
	return rc || first > last ? rc : PL_REAL(close_range)(first, last, flags);
}

PL_EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	int end = (int)PV_MIN(last, (unsigned int)INT32_MAX);

	/* An error, or FD_CLOEXEC, which the engine's have. */
	if (first > last || flags & ~CLOSE_RANGE_UNSHARE)
		return PL_REAL(close_range)(first, last, flags);
	for (int fd = (int)PV_MIN(first, (unsigned int)INT32_MAX); fd <= end && (fd = pl_next(fd, end)) >= 0; fd++)
		(void)close(fd);
	return close_around(first, last, flags);
}

PL_EXPORT void closefrom(int first)
{
	(void)close_range((unsigned int)PV_MAX(first, 0), ~0u, 0);
}

static int dup_by(int to)
{
	pyvma_sock *h;

	if (pyvma_sock_adopt(to, &h) == 0 && !pl_put(to, (pl_word)h))
		(void)pyvma_sock_detach(h);
	return 0;
}

/*
 * The C library's own streams write to the first three numbers, and read, by calls that nobody sees: a program that puts a
 * connection there may use them (nuttcp's server), so it is the kernel's from then on. Where that cannot be it stays the stack's,
 * for those that do not.
 */
static void to_standard(int to)
{
	if (pl_peek(to) && !pl_busy())
		(void)PL_IN(pyvma_hand_back_fd(to, 0));
}

void pl_dup(int from, int to)
{
	pl_word w = pl_get(from);

	if (pv_likely(!w))
		return;
	if (w == PL_LATE) {
		(void)pl_put(to, PL_LATE);
	} else if (pl_set_of(w)) {
		pl_set_get(pl_set_of(w));
		(void)pl_put(to, w);
	} else {
		(void)PL_IN(dup_by(to));
		if (pv_unlikely(to <= STDERR_FILENO))
			to_standard(to);
	}
}

PL_EXPORT int dup(int fd)
{
	int to = PL_REAL(dup)(fd);

	if (to >= 0)
		pl_dup(fd, to);
	return to;
}

/* A socket of ours is to give up its number `fd`, which must not be free meanwhile, and leads to it still: by another handle, with a number
 * that is nobody's. NULL: there was none, or no number. */
static pyvma_sock *leave_number(int fd)
{
	pyvma_sock *h = pl_peek(fd), *other = NULL;
	int spare = h ? PL_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0) : -1;

	if (spare < 0)
		return NULL;
	if (pyvma_sock_adopt(spare, &other) || !pl_change(fd, (pl_word)h, (pl_word)other)) {
		if (!other || pyvma_sock_close(other))
			(void)PL_REAL(close)(spare);
		return NULL;
	}
	(void)pyvma_sock_detach(h);
	return other;
}

/* What was there before goes as by close, silently. */
static int dup_to(int fd, int to, int flags)
{
	pyvma_sock *before;
	int rc;

	if (fd == to || to < 0 || flags & ~O_CLOEXEC || PL_REAL(fcntl)(fd, F_GETFD) < 0)
		return PL_REAL(dup3)(fd, to, flags);
	/* As if somebody was about to open that number, which Linux calls by this name. */
	if (pv_unlikely(is_engines(to)))
		return (int)pl_result(-EBUSY);
	before = pl_busy() ? NULL : (pyvma_sock *)(intptr_t)PL_IN((intptr_t)leave_number(to));
	if (!before && pl_get(to))
		(void)pl_close(to);
	/* Until it is in the table nobody sees what is beneath. */
	if (!before && pl_get(fd))
		(void)pl_put(to, PL_CLOSING);
	rc = PL_REAL(dup3)(fd, to, flags);
	if (rc >= 0)
		pl_dup(fd, to);
	(void)pl_change(to, PL_CLOSING, 0);
	if (before) {
		(void)pl_change(to, (pl_word)before, 0); /* by now it is the kernel's */
		(void)PL_IN(pyvma_sock_close(before));
	}
	return rc;
}

PL_EXPORT int dup2(int fd, int to)
{
	return fd == to ? PL_REAL(dup2)(fd, to) : dup_to(fd, to, 0);
}

PL_EXPORT int dup3(int fd, int to, int flags)
{
	return dup_to(fd, to, flags);
}

static int hand_back(int fd, pyvma_sock *h)
{
	int rc = pyvma_sock_hand_back(h);

	if (!rc)
		pl_settle(fd, h);
	return rc;
}

/* SIGIO is the kernel's to send, of its own sockets: one that is undecided stays with it, a connection goes back. 0: it can be asked for. */
static int make_async(int fd)
{
	pyvma_sock *h = pl_peek(fd);
	int rc;

	if (pv_likely(!h)) {
		(void)pl_change(fd, PL_LATE, 0);
		return 0;
	}
	rc = (int)PL_IN(hand_back(fd, h));
	if (!rc || rc == -EAGAIN)
		return rc;
	pl_say(pyvma_last_error(), "a socket of the stack's sends no SIGIO");
	return -EOPNOTSUPP;
}

static int control(int fd, int cmd, void *arg)
{
	pyvma_sock *h;
	int async = cmd == F_SETFL && pv_unlikely((intptr_t)arg & O_ASYNC) ? make_async(fd) : 0;
	int rc = async ? (int)pl_result(async) : PL_REAL(fcntl)(fd, cmd, arg);

	if (rc < 0)
		return rc;
	switch (cmd) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		pl_dup(fd, rc);
		break;
	case F_SETFL:
		h = pl_peek(fd);
		if (h)
			(void)PL_IN(pyvma_sock_set_nonblock(h, ((int)(intptr_t)arg & O_NONBLOCK) != 0));
	}
	return rc;
}

PL_EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;

	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	return control(fd, cmd, arg);
}

PL_EXPORT int fcntl64(int fd, int cmd, ...) __attribute__((alias("fcntl")));

PL_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	if (request == FIOASYNC && arg && *(const int *)arg) {
		int rc = make_async(fd);

		if (rc)
			return (int)pl_result(rc);
	}
	/* Flags of the number are not the socket's. */
	pyvma_sock *h = request == FIOCLEX || request == FIONCLEX ? NULL : pl_peek(fd);

	return h ? (int)pl_result(PL_IN(pyvma_sock_ioctl(h, request, arg))) : PL_REAL(ioctl)(fd, request, arg);
}
