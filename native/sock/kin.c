/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parents, children and the connections between them.
 *
 * At a fork with connections a pair of local sockets is made, whose ends the two keep. A child that uses an inherited connection for the
 * first time asks by it; the parent's progress thread hands that one back and answers with the kernel socket. A kernel socket that was made
 * before the fork is shared by its number already, which leads to the connection then; others are sent. So a fork costs the same two
 * descriptors whether there are ten connections or ten thousand.
 *
 * Whoever asks makes a pair of its own for the answer and sends one end with the question: grandchildren have the same channel. The parent's
 * end says by hanging up that the last of them is gone.
 *
 * A socket that the parent has closed and handed back for a child that does not have its kernel socket leaves an estate: the descriptor, until
 * that child has asked for it or is gone.
 */
#include "sock/kin.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/error.h"
#include "rt/log.h"
#include "sock/handback.h"
#include "sock/shown.h"

#define ANSWER_MS 20000
#define TAG ((uintptr_t)1) /* no socket is at an odd address */

struct kin {
	struct pv_list all;
	int fd;
	uint32_t number; /* of its fork */
};

struct estate {
	struct pv_list all;
	uint64_t serial;
	int fd;
	uint32_t born, made; /* of the socket and its kernel socket */
};

struct ask {
	uint64_t serial;
};

struct answer {
	uint64_t serial;
	int32_t rc;
	char text[116];
};

/* Engine lock. */
static struct pv_list kin = { &kin, &kin }; /* oldest first */
static struct pv_list estates = { &estates, &estates };
static struct pv_list handed = { &handed, &handed }; /* sockets, by on_core */
static int pair[2] = { -1, -1 }; /* while a fork is under way: the parent's end, the child's */
static _Atomic(uint32_t) forks;

uint32_t pv_kin_number(void)
{
	return atomic_load_explicit(&forks, memory_order_relaxed);
}

/* ---- messages with a descriptor ---------------------------------------------------------------------------------------- */

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int))];
};

static int put(int to, const void *msg, size_t len, int fd, int flags)
{
	struct iovec iov = { (void *)(uintptr_t)msg, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control c = { .room = { 0 } };

	if (fd >= 0) {
		m.msg_control = &c;
		m.msg_controllen = sizeof(c.room);
		*CMSG_FIRSTHDR(&m) =
		    (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	}
	return sendmsg(to, &m, flags | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Length, 0: nobody is there any more, -errno. *fd: -1 when none came along. */
static ssize_t get(int from, void *msg, size_t len, int *fd)
{
	struct iovec iov = { msg, len };
	union control c;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c.room) };
	const struct cmsghdr *h;
	ssize_t n = recvmsg(from, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*fd = -1;
	if (n < 0)
		return -errno;
	h = CMSG_FIRSTHDR(&m);
	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(h), sizeof(*fd));
	return n;
}

/* ---- who has what ------------------------------------------------------------------------------------------------------ */

bool pv_kin_has(const struct pv_sock *so)
{
	return !pv_list_empty(&kin) && pv_list_entry(kin.prev, struct kin, all)->number > so->born;
}

/* How many children know the socket without having its kernel socket. */
static uint32_t without(uint32_t born, uint32_t made)
{
	uint32_t n = 0;

	pv_list_for_each(it, &kin) {
		const struct kin *k = pv_list_entry(it, struct kin, all);

		n += k->number > born && k->number <= made;
	}
	return n;
}

static void estate_new(const struct pv_sock *so)
{
	struct estate *e = calloc(1, sizeof(*e));

	if (!e)
		return;
	*e = (struct estate){ .serial = so->serial,
			      .fd = pv_ownfd(fcntl(pv_sock_kfd_made(so), F_DUPFD_CLOEXEC, 0)),
			      .born = so->born,
			      .made = so->kfd_born };
	if (e->fd < 0) {
		free(e);
		return;
	}
	pv_list_add(&estates, &e->all);
}

static void estate_free(struct estate *e)
{
	pv_list_del(&e->all);
	close(e->fd);
	free(e);
}

static void estates_sweep(void)
{
	pv_list_for_each_safe(it, next, &estates) {
		struct estate *e = pv_list_entry(it, struct estate, all);

		if (!without(e->born, e->made))
			estate_free(e);
	}
}

void pv_kin_handed(struct pv_sock *so)
{
	if (pv_kin_has(so))
		pv_list_add(&handed, &so->on_core);
}

static bool lives(const struct pv_sock *so)
{
	enum pv_tcp_state s = so->tc ? pv_tcp_state(so->tc) : PV_TCP_CLOSED;

	return s == PV_TCP_ESTABLISHED || s == PV_TCP_CLOSE_WAIT;
}

void pv_kin_closing(struct pv_sock *so)
{
	if (!so->stream || !pv_kin_has(so))
		return;
	if (lives(so) && pv_handback(so, "a forked child has it"))
		pv_log(PV_LOG_WARN, "fork: a connection that a child has ends with its parent's close: %s", pv_error_text());
	if (!so->tc && !pv_list_empty(&so->on_core) && without(so->born, so->kfd_born))
		estate_new(so);
}

/* ---- the parent's end -------------------------------------------------------------------------------------------------- */

/* A child that is just being forked may have the descriptor still, too: closing alone does not take it off the set. */
static void kin_gone(struct kin *k)
{
	epoll_ctl(pv_engine.extra_fd, EPOLL_CTL_DEL, k->fd, NULL);
	pv_list_del(&k->all);
	close(k->fd);
	free(k);
	estates_sweep();
}

static struct pv_sock *find(struct pv_list *socks, uint64_t serial)
{
	pv_list_for_each(it, socks) {
		struct pv_sock *so = pv_list_entry(it, struct pv_sock, on_core);

		if (so->serial == serial)
			return so;
	}
	return NULL;
}

/* The kernel socket of what the child asks for; -errno with a text. What it did not inherit it does not get. */
static int serve(const struct kin *k, uint64_t serial, struct estate **out)
{
	struct pv_sock *so = find(&pv_core_socks, serial);

	*out = NULL;
	if (so && so->tc && k->number > so->born) {
		int rc = pv_handback(so, "used by a forked child");

		return rc ? rc : pv_sock_kfd_made(so);
	}
	so = find(&handed, serial);
	if (so && k->number > so->born)
		return pv_sock_kfd_made(so);
	pv_list_for_each(it, &estates) {
		struct estate *e = pv_list_entry(it, struct estate, all);

		if (e->serial == serial && k->number > e->born) {
			*out = e;
			return e->fd;
		}
	}
	return pv_error(-ENOTCONN, "the parent has closed it");
}

static void answer(struct kin *k, uint64_t serial, int to)
{
	struct answer a = { .serial = serial };
	struct estate *e;
	int fd = serve(k, serial, &e);

	if (fd < 0) {
		a.rc = fd;
		snprintf(a.text, sizeof(a.text), "%s", pv_error_text());
	}
	(void)put(to, &a, sizeof(a), fd, MSG_DONTWAIT);
	if (e && without(e->born, e->made) <= 1)
		estate_free(e);
}

bool pv_kin_readable(void *ptr)
{
	struct kin *k = (struct kin *)((uintptr_t)ptr & ~TAG);
	struct ask q;
	ssize_t n;
	int to;

	if (!((uintptr_t)ptr & TAG))
		return false;
	while ((n = get(k->fd, &q, sizeof(q), &to)) > 0) {
		if (n == (ssize_t)sizeof(q) && to >= 0)
			answer(k, q.serial, to);
		if (to >= 0)
			close(to);
	}
	if (n != -EAGAIN && n != -EINTR)
		kin_gone(k);
	return true;
}

/* ---- fork -------------------------------------------------------------------------------------------------------------- */

void pv_kin_forking(bool some)
{
	const struct timeval limit = { .tv_sec = ANSWER_MS / 1000 };

	/* Without the thread nobody would hear a child. */
	if (!some || !pv_engine.have_thread)
		return;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		pair[0] = pair[1] = -1;
		return;
	}
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static bool watch(struct kin *k)
{
	struct epoll_event ev = { .events = EPOLLIN, .data = { .ptr = (void *)((uintptr_t)k | TAG) } };

	return pv_ready_extra_fd() >= 0 && epoll_ctl(pv_engine.extra_fd, EPOLL_CTL_ADD, k->fd, &ev) == 0;
}

void pv_kin_parent(void)
{
	struct kin *k;

	if (pair[0] < 0)
		return;
	close(pair[1]);
	k = calloc(1, sizeof(*k));
	if (k) {
		*k = (struct kin){ .fd = pv_ownfd(pair[0]), .number = pv_kin_number() };
		pv_list_init(&k->all);
	}
	if (k && watch(k)) {
		pv_list_add(&kin, &k->all);
	} else {
		close(pair[0]);
		free(k);
	}
	pair[0] = pair[1] = -1;
}

/* The process ends: what its children would have to ask for is sent to them. */
static void bequeath(uint64_t serial, int fd, uint32_t born, uint32_t made)
{
	struct answer a = { .serial = serial };

	pv_list_for_each(it, &kin) {
		const struct kin *k = pv_list_entry(it, struct kin, all);

		if (k->number > born && k->number <= made && put(k->fd, &a, sizeof(a), fd, MSG_DONTWAIT))
			pv_log(PV_LOG_WARN, "fork: a child's connection ends with its parent: too many at once");
	}
}

void pv_kin_exit(void)
{
	if (pv_list_empty(&kin))
		return;
	pv_list_for_each_safe(it, next, &pv_core_socks) {
		struct pv_sock *so = pv_list_entry(it, struct pv_sock, on_core);

		if (so->stream && pv_kin_has(so) && lives(so) && pv_handback(so, "its process ends, and a forked child has it"))
			pv_log(PV_LOG_WARN, "fork: a connection that a child has ends with its parent: %s", pv_error_text());
	}
	pv_list_for_each(it, &handed) {
		const struct pv_sock *so = pv_list_entry(it, struct pv_sock, on_core);

		bequeath(so->serial, pv_sock_kfd_made(so), so->born, so->kfd_born);
	}
	pv_list_for_each(it, &estates) {
		const struct estate *e = pv_list_entry(it, struct estate, all);

		bequeath(e->serial, e->fd, e->born, e->made);
	}
	while (!pv_list_empty(&kin))
		kin_gone(pv_list_entry(kin.next, struct kin, all));
}

int pyvma_hand_back_inherited(void)
{
	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return 0;
	pv_lock_get(&pv_engine.lock);
	if (pv_engine_state() == PV_ENGINE_RUNNING)
		pv_kin_exit();
	pv_lock_put(&pv_engine.lock);
	return 0;
}

/* ---- the child's end --------------------------------------------------------------------------------------------------- */

/* What the parent left when it ended. */
struct legacy {
	struct legacy *next;
	uint64_t serial;
	int fd;
};

static pthread_mutex_t claim_lock = PTHREAD_MUTEX_INITIALIZER;
static int up = -1; /* to the parent; claim_lock, as what follows */
static struct legacy *legacies;

void pv_kin_forked(void)
{
	pv_list_for_each_safe(it, next, &kin) {
		struct kin *k = pv_list_entry(it, struct kin, all);

		pv_list_del(&k->all);
		close(k->fd);
		free(k);
	}
	pv_list_for_each_safe(it, next, &estates)
		estate_free(pv_list_entry(it, struct estate, all));
	if (pair[0] >= 0)
		close(pair[0]);
	up = pv_ownfd(pair[1]);
	pair[0] = pair[1] = -1;
}

static void in_child(void)
{
	pthread_mutex_init(&claim_lock, NULL);
}

__attribute__((constructor)) static void set_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

static void legacies_read(void)
{
	struct answer a;
	int fd;

	while (get(up, &a, sizeof(a), &fd) == (ssize_t)sizeof(a)) {
		struct legacy *l = fd >= 0 ? malloc(sizeof(*l)) : NULL;

		if (!l) {
			if (fd >= 0)
				close(fd);
			continue;
		}
		*l = (struct legacy){ legacies, a.serial, fd };
		legacies = l;
	}
}

static int legacy_take(uint64_t serial)
{
	legacies_read();
	for (struct legacy **at = &legacies, *l; (l = *at); at = &l->next) {
		int fd = l->fd;

		if (l->serial != serial)
			continue;
		*at = l->next;
		free(l);
		return fd;
	}
	return -1;
}

/* An fd, or -errno with a text. */
static int ask_by(int mine, int theirs, uint64_t serial)
{
	struct ask q = { serial };
	struct pollfd p = { .fd = mine, .events = POLLIN };
	struct answer a;
	int rc = put(up, &q, sizeof(q), theirs, 0), fd;
	ssize_t n;

	close(theirs);
	if (rc)
		return pv_error(-ENOTCONN, "the process that has it is gone");
	while ((rc = poll(&p, 1, ANSWER_MS)) < 0 && errno == EINTR)
		;
	n = rc > 0 ? get(mine, &a, sizeof(a), &fd) : 0;
	if (n != (ssize_t)sizeof(a))
		return pv_error(-ENOTCONN, rc > 0 ? "the process that has it is gone" : "the process that has it does not answer");
	if (a.rc) {
		a.text[sizeof(a.text) - 1] = '\0';
		return pv_error(-ENOTCONN, "%s", a.text);
	}
	return fd >= 0 ? fd : pv_error(-ENOTCONN, "no descriptor came with the answer");
}

static int ask(uint64_t serial)
{
	int ends[2], rc;

	if (up < 0)
		return pv_error(-ENOTCONN, "an offloaded socket does not survive fork: it is the parent's");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return pv_error(-ENOTCONN, "no descriptors to ask for it: %s", strerror(errno));
	rc = ask_by(ends[0], ends[1], serial);
	close(ends[0]);
	if (rc >= 0)
		return rc;
	/* It may have ended meanwhile, in good order. */
	int fd = legacy_take(serial);

	return fd >= 0 ? fd : rc;
}

/* One that is in repair mode is not usable, and stays so when its maker was killed meanwhile. */
static bool is_connection(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info), size = sizeof(int);
	int repair = 0;

	return fd >= 0 && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state != PV_TCP_CLOSED &&
	       info.tcpi_state != PV_TCP_LISTEN && getsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &repair, &size) == 0 && !repair;
}

/* `fd`: the connection, -1: it is under the socket's number. */
static int adopt(struct pv_sock *so, int fd)
{
	int on = pv_sock_nonblock(so), kfd = pv_sock_kfd_made(so);

	if (fd >= 0 && kfd >= 0) {
		int flags = fcntl(kfd, F_GETFD);

		if (dup3(fd, kfd, flags >= 0 && (flags & FD_CLOEXEC) ? O_CLOEXEC : 0) < 0) {
			close(fd);
			return pv_error(-ENOTCONN, "its number cannot be had: %s", strerror(errno));
		}
		close(fd);
		fd = kfd;
	}
	pv_lock_get(&pv_engine.lock);
	if (fd >= 0)
		(void)ioctl(fd, FIONBIO, &on);
	if (fd >= 0 && kfd < 0) {
		atomic_store_explicit(&so->kfd, pv_ownfd(fd), memory_order_relaxed);
		so->own_kfd = true;
	}
	so->dead = so->core_leg = so->kernel_leg = so->host = false;
	pv_shown_reason(so, "handed back: used by a forked child", NULL);
	atomic_store_explicit(&so->mode, PV_SOCK_KERNEL, memory_order_release);
	pv_shown_update(so);
	pv_lock_put(&pv_engine.lock);
	return 0;
}

/* The parent may be handing it back at this moment, because it closes it. What the shared kernel socket says is certain when the parent has
 * answered, even that it knows nothing of it any more: it answers between two hand-backs, not in the midst of one. */
static int claim(struct pv_sock *so)
{
	static uint64_t told; /* a loop that waits for it asks again and again */
	int kfd = pv_sock_kfd_made(so), fd;

	if (!so->dead)
		return 0;
	fd = legacy_take(so->serial);
	if (fd < 0)
		fd = ask(so->serial);
	if (is_connection(kfd)) {
		if (fd >= 0)
			close(fd);
		return adopt(so, -1);
	}
	if (fd < 0) {
		pv_log(told == so->serial ? PV_LOG_DEBUG : PV_LOG_WARN, "fork: a socket of the parent's cannot be used: %s",
		       pv_error_text());
		told = so->serial;
		return fd;
	}
	return adopt(so, fd);
}

int pv_kin_claim(struct pv_sock *so)
{
	int rc;

	pthread_mutex_lock(&claim_lock);
	rc = claim(so);
	pthread_mutex_unlock(&claim_lock);
	return rc;
}
