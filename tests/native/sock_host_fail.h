/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls that fail when asked to: the program's own symbols come before libc's for every library of the process. Only calls of the
 * thread that asked for it fail.
 */
#ifndef SOCK_HOST_FAIL_H
#define SOCK_HOST_FAIL_H

#include <dlfcn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "ring/sys.h"
#include "sock_host_env.h"

/* ---- failures ---------------------------------------------------------------------------------------------------------- */

/* X(call) */
#define CALLS(X)                                                                                                                   \
	X(bpf)                                                                                                                     \
	X(socket)                                                                                                                  \
	X(bind)                                                                                                                    \
	X(setsockopt)                                                                                                              \
	X(getsockopt)                                                                                                              \
	X(mmap)                                                                                                                    \
	X(ioctl)                                                                                                                   \
	X(epoll_create1)                                                                                                           \
	X(epoll_ctl)                                                                                                               \
	X(eventfd)                                                                                                                 \
	X(aligned_alloc)                                                                                                           \
	X(sendto)                                                                                                                  \
	X(sendmsg)                                                                                                                 \
	X(recvmsg)                                                                                                                 \
	X(getsockname)
#define CALL_NAME(name) CALL_##name,
enum call { CALLS(CALL_NAME) CALL_KINDS };
#undef CALL_NAME
static const char *const call_names[] = {
#define CALL_TEXT(name) #name,
	CALLS(CALL_TEXT)
#undef CALL_TEXT
};

static _Thread_local struct {
	bool armed, lasting;
	enum call call;
	unsigned int nth, seen, hits;
	int err;
} fault;

static void arm(enum call call, unsigned int nth, bool lasting, int err)
{
	fault.call = call;
	fault.nth = nth;
	fault.lasting = lasting;
	fault.err = err;
	fault.seen = fault.hits = 0;
	fault.armed = true;
}

static unsigned int disarm(void)
{
	fault.armed = false;
	return fault.hits;
}

static __attribute__((no_sanitize("thread"))) bool fails(enum call call)
{
	if (!fault.armed || fault.call != call)
		return false;
	fault.seen++;
	if (fault.lasting ? fault.seen < fault.nth : fault.seen != fault.nth)
		return false;
	fault.hits++;
	errno = fault.err;
	return true;
}

/* The next definition of a function, whoever's it is: a sanitizer's or libc's. */
#define NEXT(ret, name, ...)                                                                                                       \
	static ret (*next)(__VA_ARGS__);                                                                                           \
	if (!next)                                                                                                                 \
	*(void **)&next = dlsym(RTLD_NEXT, #name)

/* A sanitizer's own start comes by here, too. */
#define SEEN __attribute__((visibility("default"), no_sanitize("thread")))

SEEN int socket(int domain, int type, int protocol)
{
	NEXT(int, socket, int, int, int);
	return fails(CALL_socket) ? -1 : next(domain, type, protocol);
}

SEEN int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	NEXT(int, bind, int, const struct sockaddr *, socklen_t);
	return fails(CALL_bind) ? -1 : next(fd, addr, len);
}

SEEN int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	NEXT(int, setsockopt, int, int, int, const void *, socklen_t);
	return fails(CALL_setsockopt) ? -1 : next(fd, level, name, value, len);
}

SEEN int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	NEXT(int, getsockopt, int, int, int, void *, socklen_t *);
	return fails(CALL_getsockopt) ? -1 : next(fd, level, name, value, len);
}

SEEN int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	NEXT(int, getsockname, int, struct sockaddr *, socklen_t *);
	return fails(CALL_getsockname) ? -1 : next(fd, addr, len);
}

SEEN ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr, socklen_t len)
{
	NEXT(ssize_t, sendto, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	return fails(CALL_sendto) ? -1 : next(fd, buf, n, flags, addr, len);
}

/* The doorbell does without libc: this one is linked instead. */
int pv_sys_kick(int fd)
{
	ssize_t rc = sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0);

	return rc < 0 ? -errno : (int)rc;
}

SEEN ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	NEXT(ssize_t, sendmsg, int, const struct msghdr *, int);
	return fails(CALL_sendmsg) ? -1 : next(fd, msg, flags);
}

SEEN ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	NEXT(ssize_t, recvmsg, int, struct msghdr *, int);
	return fails(CALL_recvmsg) ? -1 : next(fd, msg, flags);
}

SEEN int epoll_create1(int flags)
{
	NEXT(int, epoll_create1, int);
	return fails(CALL_epoll_create1) ? -1 : next(flags);
}

SEEN int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	NEXT(int, epoll_ctl, int, int, int, struct epoll_event *);
	return fails(CALL_epoll_ctl) ? -1 : next(epfd, op, fd, event);
}

SEEN int eventfd(unsigned int count, int flags)
{
	NEXT(int, eventfd, unsigned int, int);
	return fails(CALL_eventfd) ? -1 : next(count, flags);
}

SEEN int ioctl(int fd, unsigned long request, ...)
{
	NEXT(int, ioctl, int, unsigned long, void *);
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);

	va_end(ap);
	return fails(CALL_ioctl) ? -1 : next(fd, request, arg);
}

SEEN void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t at)
{
	NEXT(void *, mmap, void *, size_t, int, int, int, off_t);
	return fails(CALL_mmap) ? MAP_FAILED : next(addr, size, prot, flags, fd, at);
}

SEEN void *aligned_alloc(size_t align, size_t size)
{
	NEXT(void *, aligned_alloc, size_t, size_t);
	return fails(CALL_aligned_alloc) ? NULL : next(align, size);
}

/* libbpf's way into bpf(2). */
SEEN long syscall(long number, ...)
{
	NEXT(long, syscall, long, long, long, long, long, long, long);
	va_list ap;
	long arg[6];

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(ap, long);
	va_end(ap);
	return number == SYS_bpf && fails(CALL_bpf) ? -1 : next(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

#endif
