/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernel UDP sockets: blocking or spinning on MSG_DONTWAIT; batches by sendmmsg and recvmmsg. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/bench.h"

struct tr {
	int fd;
	bool block, connected;
	uint32_t size;
	uint8_t *tx, *rx; /* BENCH_BATCH_MAX messages each, `stride` bytes apart */
	uint32_t stride;
	struct sockaddr_storage from[BENCH_BATCH_MAX + 1]; /* the last is tr_recv's */
	socklen_t from_len;
	struct mmsghdr out[BENCH_BATCH_MAX], in[BENCH_BATCH_MAX];
	struct iovec out_iov[BENCH_BATCH_MAX], in_iov[BENCH_BATCH_MAX];
};

static inline uint8_t *tr_slot(struct tr *t, uint32_t i)
{
	return t->tx + (size_t)i * t->stride;
}

static inline int tr_flush(struct tr *t, uint32_t n)
{
	int rc = n == 1 ? (int)send(t->fd, t->tx, t->size, 0) : sendmmsg(t->fd, t->out, n, 0);

	if (rc < 0)
		return errno == ENOBUFS ? 0 : -errno;
	return n == 1 ? 1 : rc;
}

static inline int tr_recv(struct tr *t, bool wait, uint8_t **msg, uint32_t *len)
{
	int flags = wait ? 0 : MSG_DONTWAIT;
	ssize_t n;

	if (t->connected) {
		n = recv(t->fd, t->rx, t->stride, flags);
	} else {
		t->from_len = sizeof(t->from[0]);
		n = recvfrom(t->fd, t->rx, t->stride, flags, (struct sockaddr *)&t->from[BENCH_BATCH_MAX], &t->from_len);
	}
	if (n < 0)
		return -errno;
	*msg = t->rx;
	*len = (uint32_t)n;
	return 1;
}

static inline int tr_recv_batch(struct tr *t, uint32_t max)
{
	int n;

	for (uint32_t i = 0; i < max && !t->connected; i++)
		t->in[i].msg_hdr.msg_namelen = sizeof(t->from[i]);
	n = recvmmsg(t->fd, t->in, max, t->block ? MSG_WAITFORONE : MSG_DONTWAIT, NULL);
	return n < 0 ? -errno : n;
}

static inline uint8_t *tr_msg(struct tr *t, uint32_t i, uint32_t *len)
{
	*len = t->in[i].msg_len;
	return t->in_iov[i].iov_base;
}

static inline int tr_reply(struct tr *t, int i, uint8_t *msg, uint32_t len)
{
	const struct sockaddr_storage *to = i < 0 ? &t->from[BENCH_BATCH_MAX] : &t->from[i];
	socklen_t to_size = i < 0 ? t->from_len : t->in[i].msg_hdr.msg_namelen;
	ssize_t n = t->connected ? send(t->fd, msg, len, 0) : sendto(t->fd, msg, len, 0, (const struct sockaddr *)to, to_size);

	return n < 0 ? -errno : 0;
}

static inline void tr_done(struct tr *t, uint32_t n)
{
	(void)t;
	(void)n;
}

#include "bench/loops.h"

static int open_socket(struct tr *t, const struct bench_opts *o)
{
	int family = o->local.ss_family ? o->local.ss_family : o->remote.ss_family, bytes = 4 << 20;

	t->fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (t->fd < 0)
		return -errno;
	/* As much as the host allows: the kernel's rows are to lose nothing for want of a buffer. */
	setsockopt(t->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	setsockopt(t->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (o->local.ss_family && bind(t->fd, (const struct sockaddr *)&o->local, bench_addr_len(&o->local)))
		return -errno;
	if (o->remote.ss_family && connect(t->fd, (const struct sockaddr *)&o->remote, bench_addr_len(&o->remote)))
		return -errno;
	t->connected = o->remote.ss_family != 0;
	return 0;
}

int bench_run_kernel(const struct bench_opts *o, struct bench_result *r)
{
	static struct tr t;
	int rc;

	t.block = o->block;
	t.size = o->size;
	t.stride = o->role == ROLE_SERVER ? BENCH_SIZE_MAX + 1 : (o->size + 63) & ~63u;
	t.tx = calloc(BENCH_BATCH_MAX, t.stride);
	t.rx = calloc(BENCH_BATCH_MAX, t.stride);
	rc = t.tx && t.rx ? open_socket(&t, o) : -ENOMEM;
	if (rc)
		return bench_fail("socket", rc);
	for (uint32_t i = 0; i < BENCH_BATCH_MAX; i++) {
		t.out_iov[i] = (struct iovec){ t.tx + (size_t)i * t.stride, o->size };
		t.in_iov[i] = (struct iovec){ t.rx + (size_t)i * t.stride, t.stride };
		t.out[i].msg_hdr = (struct msghdr){ .msg_iov = &t.out_iov[i], .msg_iovlen = 1 };
		t.in[i].msg_hdr = (struct msghdr){ .msg_iov = &t.in_iov[i], .msg_iovlen = 1 };
		if (!t.connected)
			t.in[i].msg_hdr.msg_name = &t.from[i];
	}
	if (o->role == ROLE_SERVER)
		bench_ready(o, NULL);
	if (o->block)
		bench_tick();
	rc = run_role(&t, o, r);
	close(t.fd);
	free(t.tx);
	free(t.rx);
	return rc;
}
