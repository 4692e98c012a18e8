/* SPDX-License-Identifier: BSD-3-Clause */
/* getsockname, getpeername, shutdown, ioctl. */
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rt/host.h"
#include "sock/stream.h"

/*
 * Over IPv4 Linux looks at the address before it looks whether there is a name (__inet_bind, and __inet6_bind the other way round). Whether
 * an address is anybody's another socket of the kernel's finds out.
 */
int pv_name_twice(const struct pv_sock *so, const struct pv_endpoint *ep)
{
	struct pv_endpoint at = { .addr = ep->addr };
	struct sockaddr_storage ss;
	bool nobodys;
	socklen_t len;
	int fd;

	if (so->family != AF_INET || pv_addr_is_any(&ep->addr) || pv_net_addr_owner(pv_engine.net, &ep->addr))
		return -EINVAL;
	fd = pv_host_socket(&pv_engine, AF_INET, so->type | SOCK_CLOEXEC, so->proto);
	if (fd < 0)
		return -EINVAL;
	len = pv_addr_format(AF_INET, &at, &ss, sizeof(ss));
	nobodys = bind(fd, (struct sockaddr *)&ss, len) < 0 && errno == EADDRNOTAVAIL;
	close(fd);
	return nobodys ? -EADDRNOTAVAIL : -EINVAL;
}

int pyvma_sock_getsockname(pyvma_sock *h, struct sockaddr *addr, socklen_t *len)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_endpoint ep;
	int rc;

	if (!so)
		return -EBADF;
	if (pv_sock_mode(so) == PV_SOCK_STREAM) {
		rc = pv_stream_getsockname(h, so, addr, len);
		if (rc != PV_HANDED)
			return rc;
	}
	if (pv_sock_is_core(so)) {
		rc = pv_sock_lock(h, so);
		if (rc)
			return rc;
		/* Of an association that was dissolved the kernel's half has the address yet. */
		bool ours = so->core_leg && !so->host;

		pv_udp_local(so->u, &ep);
		pv_sock_unlock();
		if (ours) {
			if ((int)*len < 0)
				return -EINVAL;
			*len = pv_addr_format(so->family, &ep, addr, *len);
			return 0;
		}
	}
	return getsockname(pv_sock_kfd(so), addr, len) < 0 ? -errno : 0;
}

int pyvma_sock_getpeername(pyvma_sock *h, struct sockaddr *addr, socklen_t *len)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_endpoint ep;
	int rc;

	if (!so)
		return -EBADF;
	if (pv_sock_mode(so) == PV_SOCK_STREAM) {
		rc = pv_stream_getpeername(h, so, addr, len);
		if (rc != PV_HANDED)
			return rc;
	}
	if (pv_sock_is_core(so)) {
		rc = pv_sock_lock(h, so);
		if (rc)
			return rc;
		bool ours = so->core_leg && !so->host, connected = pv_udp_remote(so->u, &ep);

		pv_sock_unlock();
		if (ours && (!connected || (int)*len < 0))
			return connected ? -EINVAL : -ENOTCONN;
		if (ours) {
			*len = pv_addr_format(so->family, &ep, addr, *len);
			return 0;
		}
	}
	return getpeername(pv_sock_kfd(so), addr, len) < 0 ? -errno : 0;
}

int pyvma_sock_shutdown(pyvma_sock *h, int how)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc;

	if (!so)
		return -EBADF;
	if (pv_sock_mode(so) == PV_SOCK_STREAM) {
		rc = pv_stream_shutdown(h, so, how);
		if (rc != PV_HANDED)
			return rc;
	}
	if (how < SHUT_RD || how > SHUT_RDWR)
		return shutdown(pv_sock_kfd(so), how) < 0 ? -errno : 0;
	/* For the stack's half, too, should there be one later. */
	pv_lock_get(&pv_engine.lock);
	so->shut |= (uint8_t)(how + 1);
	pv_lock_put(&pv_engine.lock);
	if (!pv_sock_is_core(so))
		return shutdown(pv_sock_kfd(so), how) < 0 ? -errno : 0;
	rc = pv_sock_lock(h, so);
	if (rc)
		return rc;
	rc = pv_udp_shutdown(so->u, (uint32_t)how + 1);
	int kernel = shutdown(pv_sock_kfd(so), how) < 0 ? -errno : 0;

	if (so->host || (!kernel && !so->core_leg))
		rc = kernel;
	pv_list_for_each(it, &so->watch.waiters)
		pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
	pv_ready_update(so);
	pv_sock_unlock();
	return rc;
}

static int next_len(struct pyvma_sock *h, struct pv_sock *so, int *out)
{
	int rc = pv_sock_lock(h, so);

	if (rc)
		return rc;
	if (!pv_udp_queued(so->u))
		pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
	*out = (int)pv_udp_next_len(so->u);
	if (!pv_udp_queued(so->u) && so->kernel_leg)
		rc = ioctl(pv_sock_kfd(so), FIONREAD, out) < 0 ? -errno : 0;
	pv_sock_unlock();
	return rc;
}

int pyvma_sock_ioctl(pyvma_sock *h, unsigned long request, void *arg)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc;

	if (!so)
		return -EBADF;
	if (request == FIONBIO)
		return arg ? pyvma_sock_set_nonblock(h, *(const int *)arg) : -EFAULT;
	if (pv_sock_is_core(so) && request == FIONREAD)
		return arg ? next_len(h, so, arg) : -EFAULT;
	if (pv_sock_mode(so) == PV_SOCK_STREAM) {
		rc = pv_stream_ioctl(h, so, request, arg);
		if (rc != -ENOPROTOOPT && rc != PV_HANDED)
			return rc;
	}
	rc = ioctl(pv_sock_kfd(so), request, arg);
	return rc < 0 ? -errno : rc;
}

int pyvma_sock_set_nonblock(pyvma_sock *h, int on)
{
	struct pv_sock *so = pv_handle_sock(h);

	if (!so)
		return -EBADF;
	return pv_kfd_nonblock(so, on != 0);
}

/* ---- streams --------------------------------------------------------------------------------------------------------------- */

static int give_name(const struct pv_sock *so, const struct pv_endpoint *ep, struct sockaddr *addr, socklen_t *len)
{
	if ((int)*len < 0)
		return -EINVAL;
	*len = pv_addr_format(so->family, ep, addr, *len);
	return 0;
}

int pv_stream_getsockname(struct pyvma_sock *h, struct pv_sock *so, struct sockaddr *addr, socklen_t *len)
{
	struct pv_endpoint ep;
	int rc = pv_stream_lock(h, so);

	if (rc)
		return rc;
	pv_tcp_local(so->tc, &ep);
	pv_sock_unlock();
	return give_name(so, &ep, addr, len);
}

int pv_stream_getpeername(struct pyvma_sock *h, struct pv_sock *so, struct sockaddr *addr, socklen_t *len)
{
	struct pv_endpoint ep;
	int rc = pv_stream_lock(h, so);

	if (rc)
		return rc;
	(void)pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock)); /* a reset may have come */
	rc = pv_tcp_remote(so->tc, &ep) ? 0 : -ENOTCONN;
	pv_sock_unlock();
	return rc ? rc : give_name(so, &ep, addr, len);
}
