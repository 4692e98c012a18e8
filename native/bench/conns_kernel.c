/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of the kernel's, spinning on calls that do not wait: there is no wake-up to wait for. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/conns.h"

/* Every connection costs a number here: as many as there may be. */
static int start(const struct bench_opts *o)
{
	struct rlimit most = { 1 << 20, 1 << 20 };

	(void)o;
	if (setrlimit(RLIMIT_NOFILE, &most) == 0 || getrlimit(RLIMIT_NOFILE, &most) < 0)
		return 0;
	most.rlim_cur = most.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &most) ? -errno : 0;
}

static int open_listener(const struct sockaddr_storage *at, conns_t *out)
{
	int fd = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	if (fd < 0)
		return -errno;
	*out = fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	return bind(fd, (const struct sockaddr *)at, bench_addr_len(at)) || listen(fd, 4096) ? -errno : 0;
}

static int accept_one(conns_t listener, bool wait, conns_t *out)
{
	int fd;

	do {
		fd = accept4((int)listener, NULL, NULL, SOCK_NONBLOCK);
	} while (fd < 0 && errno == EAGAIN && wait && !bench_stop);
	*out = fd;
	return fd < 0 ? -errno : 0;
}

static int begin(const struct sockaddr_storage *to, conns_t *out)
{
	int fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	*out = fd;
	return connect(fd, (const struct sockaddr *)to, bench_addr_len(to)) && errno != EINPROGRESS ? -errno : 0;
}

static int transmit(conns_t c, const void *p, size_t n)
{
	ssize_t k;

	do {
		k = send((int)c, p, n, MSG_NOSIGNAL);
	} while (k < 0 && (errno == EAGAIN || errno == EINTR) && !bench_stop);
	return k < 0 ? -errno : k == (ssize_t)n ? 0 : -EMSGSIZE;
}

static ssize_t receive(conns_t c, void *p, size_t n, bool wait)
{
	ssize_t k;

	do {
		k = recv((int)c, p, n, 0);
	} while (k < 0 && errno == EAGAIN && wait && !bench_stop);
	return k < 0 ? -errno : k;
}

static int end(conns_t c)
{
	return close((int)c) < 0 ? -errno : 0;
}

const struct conns_ops conns_kernel = { start, open_listener, accept_one, begin, transmit, receive, end };
