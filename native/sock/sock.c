/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles and shared sockets: open, adopt, dup, close, detach.
 *
 * The registry finds a socket by the identity (device, inode) of its open file: a duplicate that the program made behind our back
 * with dup(2) has the same, and an fd number that was closed and reused has not.
 */
#include "sock/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define POOL_CHUNK 64
#define REGISTRY_BUCKETS 1024

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pyvma_sock *free_handles;
static struct pv_sock *free_socks;
static struct pv_list registry[REGISTRY_BUCKETS];

static bool pool_grow(void)
{
	struct pyvma_sock *h = calloc(POOL_CHUNK, sizeof(*h));
	struct pv_sock *so = calloc(POOL_CHUNK, sizeof(*so));

	if (!h || !so) {
		free(h);
		free(so);
		return false;
	}
	for (int i = 0; i < POOL_CHUNK; i++) {
		h[i].next = free_handles;
		free_handles = &h[i];
		so[i].next = free_socks;
		free_socks = &so[i];
	}
	return true;
}

static struct pv_list *bucket(dev_t dev, ino_t ino)
{
	struct pv_list *l = &registry[(ino ^ (ino >> 10) ^ dev) % REGISTRY_BUCKETS];

	if (!l->next)
		pv_list_init(l);
	return l;
}

static int id_add(struct pv_sock *so, unsigned int which, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	so->id[which].dev = st.st_dev;
	so->id[which].ino = st.st_ino;
	so->id[which].so = so;
	pv_list_add(bucket(st.st_dev, st.st_ino), &so->id[which].node);
	return 0;
}

static struct pv_sock *registry_find(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	pv_list_for_each(it, bucket(st.st_dev, st.st_ino)) {
		struct pv_sock_id *id = pv_list_entry(it, struct pv_sock_id, node);

		if (id->ino == st.st_ino && id->dev == st.st_dev)
			return id->so;
	}
	return NULL;
}

/* A shared socket for `fd` with no handle yet; the registry lock is held. */
static struct pv_sock *sock_get(int fd, int family, int type, int proto)
{
	struct pv_sock *so = free_socks || pool_grow() ? free_socks : NULL;

	if (!so)
		return NULL;
	free_socks = so->next;
	so->family = family;
	so->type = type;
	so->proto = proto;
	so->candidate = type == SOCK_DGRAM && (family == AF_INET || family == AF_INET6) && (proto == 0 || proto == IPPROTO_UDP);
	so->own_kfd = false;
	so->refs = 0;
	atomic_store_explicit(&so->kfd, fd, memory_order_relaxed);
	atomic_store_explicit(&so->mode, so->candidate ? PV_SOCK_UNDECIDED : PV_SOCK_KERNEL, memory_order_relaxed);
	pv_list_init(&so->id[0].node);
	pv_list_init(&so->id[1].node);
	if (so->candidate && id_add(so, 0, fd)) {
		so->next = free_socks;
		free_socks = so;
		return NULL;
	}
	return so;
}

static void sock_put(struct pv_sock *so)
{
	if (--so->refs)
		return;
	pv_list_del(&so->id[0].node);
	pv_list_del(&so->id[1].node);
	so->next = free_socks;
	free_socks = so;
}

static struct pyvma_sock *handle_get(struct pv_sock *so, int fd)
{
	struct pyvma_sock *h = free_handles || pool_grow() ? free_handles : NULL;

	if (!h)
		return NULL;
	free_handles = h->next;
	so->refs++;
	atomic_store_explicit(&h->fd, fd, memory_order_relaxed);
	atomic_store_explicit(&h->so, so, memory_order_release);
	return h;
}

static void handle_put(struct pyvma_sock *h)
{
	atomic_store_explicit(&h->so, NULL, memory_order_release);
	h->next = free_handles;
	free_handles = h;
}

static int handle_new(int fd, int family, int type, int proto, bool nonblock, pyvma_sock **out)
{
	pthread_mutex_lock(&registry_lock);
	struct pv_sock *so = sock_get(fd, family, type, proto);

	*out = so ? handle_get(so, fd) : NULL;
	if (so)
		atomic_store_explicit(&so->nonblock, nonblock, memory_order_relaxed);
	pthread_mutex_unlock(&registry_lock);
	return *out ? 0 : -ENOMEM;
}

int pyvma_sock_open(int family, int type, int proto, pyvma_sock **out)
{
	int fd = socket(family, type, proto);

	if (fd < 0)
		return -errno;
	int rc = handle_new(fd, family, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), proto, type & SOCK_NONBLOCK, out);

	if (rc)
		close(fd);
	return rc;
}

static int sock_int(int fd, int name, int *out)
{
	socklen_t len = sizeof(*out);

	return getsockopt(fd, SOL_SOCKET, name, out, &len) < 0 ? -errno : 0;
}

int pyvma_sock_adopt(int fd, pyvma_sock **out)
{
	int family, type, proto, rc;

	pthread_mutex_lock(&registry_lock);
	struct pv_sock *so = registry_find(fd);

	if (so)
		*out = handle_get(so, fd);
	pthread_mutex_unlock(&registry_lock);
	if (so)
		return *out ? 0 : -ENOMEM;
	rc = sock_int(fd, SO_DOMAIN, &family);
	if (!rc)
		rc = sock_int(fd, SO_TYPE, &type);
	if (!rc)
		rc = sock_int(fd, SO_PROTOCOL, &proto);
	int fl = rc ? 0 : fcntl(fd, F_GETFL);

	return rc ? rc : handle_new(fd, family, type, proto, fl >= 0 && (fl & O_NONBLOCK), out);
}

int pyvma_sock_dup(pyvma_sock *h, pyvma_sock **out)
{
	struct pv_sock *so = pv_handle_sock(h);
	int fd = so ? fcntl(pyvma_sock_fd(h), F_DUPFD_CLOEXEC, 0) : -1;

	if (fd < 0)
		return so ? -errno : -EBADF;
	pthread_mutex_lock(&registry_lock);
	*out = handle_get(so, fd);
	pthread_mutex_unlock(&registry_lock);
	if (!*out)
		close(fd);
	return *out ? 0 : -ENOMEM;
}

int pyvma_sock_close(pyvma_sock *h)
{
	struct pv_sock *so = pv_handle_sock(h);

	if (!so)
		return -EBADF;
	int fd = pyvma_sock_fd(h);

	pthread_mutex_lock(&registry_lock);
	handle_put(h);
	sock_put(so);
	pthread_mutex_unlock(&registry_lock);
	return close(fd) < 0 ? -errno : 0;
}

int pyvma_sock_detach(pyvma_sock *h)
{
	struct pv_sock *so = pv_handle_sock(h);
	int fd = pyvma_sock_fd(h);

	if (!so)
		return -EBADF;
	pthread_mutex_lock(&registry_lock);
	handle_put(h);
	sock_put(so);
	pthread_mutex_unlock(&registry_lock);
	return fd;
}

int pyvma_sock_fileno(pyvma_sock *h)
{
	return pv_handle_sock(h) ? pyvma_sock_fd(h) : -EBADF;
}

int pyvma_sock_fd(const pyvma_sock *h)
{
	return atomic_load_explicit(&h->fd, memory_order_relaxed);
}

int pyvma_sock_offload(const pyvma_sock *h, char *text, size_t size)
{
	static const char *const reasons[] = { "not decided yet: no bind, connect or send so far", "kernel" };

	(void)h;
	snprintf(text, size, "%s", reasons[1]);
	return PYVMA_KERNEL;
}
