/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Socket calls.
 *
 * A socket that may be offloaded is a kernel socket with the mark PL_LATE, and everything is done to it by the kernel, until the program
 * waits on it, receives, accepts, connects or sends by it: then the engine adopts it as it is (setting decide_late). What the kernel refuses
 * because it does not know the address (interfaces of the engine's own), and what the kernel cannot tell again (groups), is such a use, too.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/time.h>

#include "preload/preload.h"

#define CLOSING_TURNS 10000
#define SAME_TURNS 64u

static pthread_mutex_t use_lock = PTHREAD_MUTEX_INITIALIZER;

void pl_socket_forked(void)
{
	pthread_mutex_init(&use_lock, NULL);
}

/* ---- from late to used ------------------------------------------------------------------------------------------------- */

static pyvma_sock *adopt(int fd)
{
	const char *why = pl_sandbox();
	pyvma_sock *h = NULL;
	int rc;

	if (why) {
		pl_change(fd, PL_LATE, 0);
		pl_off(why);
		return NULL;
	}
	pl_inside++;
	rc = pyvma_sock_adopt(fd, &h);
	pl_inside--;
	if (!rc)
		pl_used();
	if (!rc && pl_change(fd, PL_LATE, (pl_word)h))
		return h;
	if (!rc) {
		pyvma_sock_detach(h); /* closed meanwhile */
		return NULL;
	}
	pl_change(fd, PL_LATE, 0);
	if (rc != -EBADF && rc != -ENOTSOCK)
		pl_off(*pyvma_last_error() ? pyvma_last_error() : strerror(-rc));
	return NULL;
}

/* The lock is held. */
static void use_locked(int fd)
{
	pyvma_sock *h;

	if (pl_get(fd) != PL_LATE)
		return;
	if (!pl_on())
		pl_change(fd, PL_LATE, 0);
	else if ((h = adopt(fd)))
		pl_settle(fd, h);
}

/* Does it get what is sent to its name, without a call? */
static bool hears(int fd)
{
	struct sockaddr_storage name = { 0 };
	int type = 0, listens = 0;
	socklen_t len = sizeof(type);

	if (PL_REAL(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return false;
	len = sizeof(listens);
	if (type != SOCK_DGRAM)
		return PL_REAL(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens;
	len = sizeof(name);
	/* The port is at the same place for both families. */
	return PL_REAL(getsockname)(fd, (struct sockaddr *)&name, &len) == 0 &&
	       ((const struct sockaddr_in *)(const void *)&name)->sin_port;
}

/* What comes by an interface of the engine's own no kernel socket hears of: those that wait for it are the engine's from its start on. */
static void use_heard(void)
{
	for (int fd = pl_next(0, INT32_MAX); fd >= 0; fd = fd < INT32_MAX ? pl_next(fd + 1, INT32_MAX) : -1)
		if (pl_get(fd) == PL_LATE && hears(fd))
			use_locked(fd);
}

static int use(int fd)
{
	static bool heard;

	pthread_mutex_lock(&use_lock);
	use_locked(fd);
	if (!heard && pl_uses_engine() && pyvma_has_own()) {
		heard = true;
		use_heard();
	}
	pthread_mutex_unlock(&use_lock);
	return 0;
}

pyvma_sock *pl_sock_now(int fd)
{
	return pl_sock(fd);
}

pyvma_sock *pl_use(int fd)
{
	int saved = errno;

	/* What is undecided, or about to go, is the kernel's to a handler that interrupted the engine. */
	if (pl_inside || pl_busy())
		return NULL;
	/* What is beneath is not the program's to see: it is closed in a moment, but for SO_LINGER. */
	for (int turn = 0; pl_get(fd) == PL_CLOSING && turn < CLOSING_TURNS; turn++)
		sched_yield();
	(void)PL_IN(use(fd));
	errno = saved;
	return pl_peek(fd);
}

bool pl_again(int fd, pyvma_sock *h, int64_t rc, int timeo)
{
	static _Thread_local unsigned int turns;
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	switch (rc) {
	case -EINTR:
		return pyvma_wait_restarts() && PL_IN(pyvma_sock_getsockopt(h, SOL_SOCKET, timeo, &tv, &len)) == 0 && !tv.tv_sec &&
		       !tv.tv_usec;
	case -EBADF:
		/* The memory of a handle may be the next one's, which is the same number's: but not for ever. */
		return PL_REAL(fcntl)(fd, F_GETFD) >= 0 && (pl_get(fd) != (pl_word)h || ++turns % SAME_TURNS);
	}
	return false;
}

void pl_settle(int fd, pyvma_sock *h)
{
	char text[128];

	if (pyvma_sock_offload(h, text, sizeof(text)) == PYVMA_KERNEL && pl_change(fd, (pl_word)h, 0))
		pyvma_sock_detach(h);
}

PL_EXPORT int socket(int family, int type, int proto)
{
	int fd = PL_REAL(socket)(family, type, proto), kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0 || (family != AF_INET && family != AF_INET6) || !pl_on())
		return fd;
	if ((kind == SOCK_STREAM && (proto == 0 || proto == IPPROTO_TCP)) ||
	    (kind == SOCK_DGRAM && (proto == 0 || proto == IPPROTO_UDP)))
		(void)pl_put(fd, PL_LATE);
	return fd;
}

/* Not decided yet, and the engine that this process uses has an interface of its own: what is sent there no kernel socket hears. */
static bool own_there(int fd)
{
	return pl_get(fd) == PL_LATE && !pl_inside && !pl_busy() && pl_uses_engine() && PL_IN(pyvma_has_own());
}

/* ---- names ------------------------------------------------------------------------------------------------------------- */

static int bind_by(int fd, pyvma_sock *h, const struct sockaddr *addr, socklen_t len)
{
	int rc = pl_too_long(len) ? -EINVAL : pyvma_sock_bind(h, addr, len);

	pl_settle(fd, h);
	return rc;
}

PL_EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	pyvma_sock *h = pl_peek(fd);
	int rc;

	/* What has which port on an interface of the engine's own the kernel does not know. */
	if (!h && own_there(fd))
		h = pl_use(fd);
	if (!h) {
		rc = PL_REAL(bind)(fd, addr, len);
		/* An address of the engine's own interfaces is none that the kernel knows. */
		if (rc == 0 || errno != EADDRNOTAVAIL || pl_get(fd) != PL_LATE)
			return rc;
		h = pl_use(fd);
		if (!h)
			return rc;
	}
	return (int)pl_result(PL_IN(bind_by(fd, h, addr, len)));
}

static int connect_by(int fd, pyvma_sock *h, const struct sockaddr *addr, socklen_t len)
{
	int rc = pl_too_long(len) ? -EINVAL : pyvma_sock_connect(h, addr, len, -1);

	pl_settle(fd, h);
	return rc;
}

PL_EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	PL_CALL(fd, SO_SNDTIMEO, connect_by(fd, h, addr, len));
	return PL_REAL(connect)(fd, addr, len);
}

static int listen_by(int fd, pyvma_sock *h, int backlog)
{
	int rc = pyvma_sock_listen(h, backlog);

	pl_settle(fd, h);
	return rc;
}

/* Children may accept from it, too. */
static int share(void)
{
	int saved = errno;

	pthread_mutex_lock(&use_lock);
	if (!pl_sandbox())
		pyvma_listener_shared(0);
	pthread_mutex_unlock(&use_lock);
	errno = saved;
	return 0;
}

PL_EXPORT int listen(int fd, int backlog)
{
	pyvma_sock *h = pl_peek(fd);

	int rc;

	if (h)
		return (int)pl_result(PL_IN(listen_by(fd, h, backlog)));
	rc = PL_REAL(listen)(fd, backlog);
	if (rc == 0 && pl_get(fd) == PL_LATE && !pl_inside && !pl_busy())
		(void)PL_IN(share());
	if (rc == 0 && own_there(fd))
		(void)pl_use(fd);
	return rc;
}

int pl_accept_by(pyvma_sock *h, struct sockaddr *addr, socklen_t *len, int flags)
{
	int bad = pl_no_len(addr, len), rc, fd;
	pyvma_sock *got;

	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return -EINVAL;
	rc = pyvma_sock_accept(h, bad ? NULL : addr, bad ? NULL : len, flags | PYVMA_ACCEPT_FD, -1, &got);
	if (rc)
		return rc;
	if (pv_unlikely(bad)) {
		pyvma_sock_close(got);
		return bad;
	}
	fd = pyvma_sock_fd(got);
	if (fd < 0 || !pl_put(fd, (pl_word)got)) {
		pyvma_sock_close(got);
		return fd < 0 ? fd : -ENOMEM;
	}
	pl_settle(fd, got);
	return fd;
}

static int accept_as(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	PL_CALL(fd, SO_RCVTIMEO, pl_accept_by(h, addr, len, flags));
	return PL_REAL(accept4)(fd, addr, len, flags);
}

PL_EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accept_as(fd, addr, len, 0);
}

PL_EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return accept_as(fd, addr, len, flags);
}

PL_EXPORT int shutdown(int fd, int how)
{
	pyvma_sock *h = pl_peek(fd);
	int type = 0;
	socklen_t len = sizeof(type);

	if (pv_unlikely(h && pl_busy()))
		return (int)pl_result(pl_defer(fd, h, how));
	/* Of a datagram socket the kernel does not tell it afterwards. */
	if (!h && pl_get(fd) == PL_LATE && !PL_REAL(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_DGRAM)
		h = pl_use(fd);
	return h ? (int)pl_result(PL_IN(pyvma_sock_shutdown(h, how))) : PL_REAL(shutdown)(fd, how);
}

typedef int (*name_fn)(pyvma_sock *h, struct sockaddr *addr, socklen_t *len);

/* Without a place for the name, or for its length, there may still be none, which is told first. */
static int name_to(pyvma_sock *h, name_fn get, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage own;
	socklen_t n = sizeof(own);
	int rc;

	if (pv_likely(addr && len))
		return get(h, addr, len);
	rc = get(h, (struct sockaddr *)&own, &n);
	if (rc || !len)
		return rc ? rc : -EFAULT;
	if (*len)
		return (int)*len < 0 ? -EINVAL : -EFAULT;
	*len = n;
	return 0;
}

PL_EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	pyvma_sock *h = pl_peek(fd);

	return h ? (int)pl_result(PL_IN(name_to(h, pyvma_sock_getsockname, addr, len))) : PL_REAL(getsockname)(fd, addr, len);
}

PL_EXPORT int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	pyvma_sock *h = pl_peek(fd);

	return h ? (int)pl_result(PL_IN(name_to(h, pyvma_sock_getpeername, addr, len))) : PL_REAL(getpeername)(fd, addr, len);
}

/* ---- options ----------------------------------------------------------------------------------------------------------- */

/* What a kernel socket does not tell again: groups, and the interface for them. Hops and the loop, between those, it does. */
static bool untold(int level, int name)
{
	if (level == IPPROTO_IP)
		return name == IP_MULTICAST_IF || (name >= IP_ADD_MEMBERSHIP && name <= IP_DROP_SOURCE_MEMBERSHIP) ||
		       (name >= IP_MSFILTER && name <= MCAST_MSFILTER);
	if (level == IPPROTO_IPV6)
		return name == IPV6_MULTICAST_IF || (name >= IPV6_JOIN_GROUP && name <= IPV6_LEAVE_GROUP) ||
		       (name >= IP_MSFILTER && name <= MCAST_MSFILTER);
	return level == PYVMA_SOL;
}

PL_EXPORT int setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	pl_word w = pl_get(fd);
	pyvma_sock *h = pl_peek(fd);

	if (pv_unlikely(w == PL_LATE) && untold(level, name))
		h = pl_use(fd);
	return h ? (int)pl_result(PL_IN(pyvma_sock_setsockopt(h, level, name, val, len)))
		 : PL_REAL(setsockopt)(fd, level, name, val, len);
}

PL_EXPORT int getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	pyvma_sock *h = pl_peek(fd);

	return h ? (int)pl_result(PL_IN(pyvma_sock_getsockopt(h, level, name, val, len)))
		 : PL_REAL(getsockopt)(fd, level, name, val, len);
}
