/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stdio over sockets. The C library's streams read and write by calls of its own, which would reach the kernel socket: so a stream of a
 * socket is one of fopencookie's, by our read and write, and fileno tells the number that was given.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/preload.h"

struct stream {
	FILE *file;
	int fd;
	struct stream *next;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams;
static _Atomic(int) nstreams;

void pl_stdio_forked(void)
{
	pthread_mutex_init(&streams_lock, NULL);
}

static ssize_t stream_read(void *cookie, char *buf, size_t len)
{
	return read(((struct stream *)cookie)->fd, buf, len);
}

/* A write that is short says that the rest failed: the stream goes on by itself after a part only where it did not. */
static ssize_t stream_write(void *cookie, const char *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(((struct stream *)cookie)->fd, buf + done, len - done);

		if (n <= 0)
			return done ? (ssize_t)done : 0;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *at, int whence)
{
	(void)cookie;
	(void)at;
	(void)whence;
	errno = ESPIPE;
	return -1;
}

static int stream_close(void *cookie)
{
	struct stream *s = cookie, **at;
	int rc = close(s->fd);

	pthread_mutex_lock(&streams_lock);
	for (at = &streams; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	pthread_mutex_unlock(&streams_lock);
	atomic_fetch_sub(&nstreams, 1);
	free(s);
	return rc;
}

/* As the C library: the mode's letters are checked before the fd. */
static FILE *stream_open(int fd, const char *mode)
{
	static const cookie_io_functions_t calls = { stream_read, stream_write, stream_seek, stream_close };
	struct stream *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	s->fd = fd;
	s->file = fopencookie(s, mode, calls);
	if (!s->file) {
		free(s);
		return NULL;
	}
	pthread_mutex_lock(&streams_lock);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&streams_lock);
	atomic_fetch_add(&nstreams, 1);
	return s->file;
}

PL_EXPORT FILE *fdopen(int fd, const char *mode)
{
	pl_word w = pl_get(fd);

	return w && !pl_set_of(w) ? stream_open(fd, mode) : PL_REAL(fdopen)(fd, mode);
}

static int fd_of(FILE *file)
{
	int fd = -1;

	if (!atomic_load_explicit(&nstreams, memory_order_relaxed))
		return -1;
	pthread_mutex_lock(&streams_lock);
	for (struct stream *s = streams; s && fd < 0; s = s->next)
		fd = s->file == file ? s->fd : -1;
	pthread_mutex_unlock(&streams_lock);
	return fd;
}

PL_EXPORT int fileno(FILE *file)
{
	int fd = fd_of(file);

	return fd >= 0 ? fd : PL_REAL(fileno)(file);
}

PL_EXPORT int fileno_unlocked(FILE *file)
{
	return fileno(file);
}

/* One that a thread waits in is left alone: it would be waited for. */
void pl_stdio_flush(void)
{
	pthread_mutex_lock(&streams_lock);
	for (struct stream *s = streams; s; s = s->next) {
		if (ftrylockfile(s->file))
			continue;
		if (__fpending(s->file))
			(void)fflush_unlocked(s->file);
		funlockfile(s->file);
	}
	pthread_mutex_unlock(&streams_lock);
}

/* ---- dprintf ----------------------------------------------------------------------------------------------------------- */

PL_EXPORT int vdprintf(int fd, const char *restrict format, va_list ap)
{
	char *text PL_FREED = NULL;
	int len;
	size_t done = 0;

	if (!pl_get(fd))
		return PL_REAL(vdprintf)(fd, format, ap);
	len = vasprintf(&text, format, ap);
	if (len < 0) {
		text = NULL;
		return -1;
	}
	while (done < (size_t)len) {
		ssize_t n = write(fd, text + done, (size_t)len - done);

		if (n < 0)
			return -1;
		done += (size_t)n;
	}
	return len;
}

PL_EXPORT int dprintf(int fd, const char *restrict format, ...)
{
	va_list ap;
	int rc;

	va_start(ap, format);
	rc = vdprintf(fd, format, ap);
	va_end(ap);
	return rc;
}

PL_EXPORT int __vdprintf_chk(int fd, int flag, const char *restrict format, va_list ap);
PL_EXPORT int __dprintf_chk(int fd, int flag, const char *restrict format, ...);

int __vdprintf_chk(int fd, int flag, const char *restrict format, va_list ap)
{
	(void)flag;
	return vdprintf(fd, format, ap);
}

int __dprintf_chk(int fd, int flag, const char *restrict format, ...)
{
	va_list ap;
	int rc;

	(void)flag;
	va_start(ap, format);
	rc = vdprintf(fd, format, ap);
	va_end(ap);
	return rc;
}
