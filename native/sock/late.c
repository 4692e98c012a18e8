/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decided late (setting decide_late): a socket that the kernel has bound, and by which it listens, is adopted.
 *
 * It goes the way of bind(2) and listen(2), but that the kernel socket has its name already (`named`). What cannot be the stack's stays as it
 * is. A connection stays the kernel's, whose sequence numbers it has; a datagram socket's peer is taken over as connect(2) would.
 */
#include <linux/tcp.h>
#include <netinet/in.h>

#include "sock/prefork.h"
#include "sock/shown.h"
#include "sock/sock.h"

int pv_late_bind(const struct pv_sock *so, const struct sockaddr *addr, socklen_t len)
{
	int fd = so->named ? 0 : pv_sock_kfd(so);

	return so->named ? 0 : fd < 0 || bind(fd, addr, len) < 0 ? -errno : 0;
}

int pyvma_has_own(void)
{
	struct pv_engine *e = &pv_engine;
	bool alone = false;

	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return 0;
	pv_lock_get(&e->lock);
	for (uint32_t i = 0; i < e->nports; i++)
		alone |= e->ports[i].spec.naddr && !*e->ports[i].spec.netdev;
	pv_lock_put(&e->lock);
	return alone;
}

static void leave(struct pv_sock *so, const char *reason)
{
	pv_lock_get(&pv_engine.lock);
	if (pv_sock_mode(so) == PV_SOCK_UNDECIDED && !so->dead)
		pv_decide_kernel(so, reason, NULL);
	pv_sock_unlock();
}

/* The backlog that listen(2) was given; 0: the socket does not listen. */
static int backlog_of(int fd)
{
	int listens = 0;
	socklen_t len = sizeof(listens);
	struct tcp_info info = { 0 };

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) < 0 || !listens)
		return 0;
	len = sizeof(info);
	/* Of a listener the kernel tells it in this field (tcp_get_info). */
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 || !info.tcpi_sacked)
		return 1;
	return (int)info.tcpi_sacked;
}

/* IP_BIND_ADDRESS_NO_PORT: there is an address, and the port was to be chosen by connect(2). It is now. */
static void name_whole(int fd, struct sockaddr_storage *name, socklen_t *len)
{
	int off = 0, on = 1;

	if (((const struct sockaddr_in *)(const void *)name)->sin_port) /* at the same place for both families */
		return;
	if (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &off, sizeof(off)) < 0)
		return;
	if (!bind(fd, (const struct sockaddr *)name, *len))
		(void)getsockname(fd, (struct sockaddr *)name, len);
	(void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
}

static void tell_siblings(struct pv_sock *so)
{
	pv_lock_get(&pv_engine.lock);
	if (!pv_engine.nports)
		pv_prefork_kernels();
	else if (so->tc)
		pv_prefork_listens(so);
	pv_lock_put(&pv_engine.lock);
}

void pv_late_decide(struct pyvma_sock *h, struct pv_sock *so)
{
	struct sockaddr_storage name = { 0 }, peer = { 0 };
	socklen_t len = sizeof(name), plen = sizeof(peer);
	int fd = pv_sock_kfd(so), backlog, rc;
	bool connected = getpeername(fd, (struct sockaddr *)&peer, &plen) == 0;

	if (getsockname(fd, (struct sockaddr *)&name, &len) < 0 || (connected && so->stream)) {
		leave(so, "connected by the kernel before");
		return;
	}
	if (!connected)
		name_whole(fd, &name, &len);
	backlog = so->stream ? backlog_of(fd) : 0;
	so->named = true;
	if (connected)
		rc = pyvma_sock_connect(h, (struct sockaddr *)&peer, plen, 0);
	else
		rc = pyvma_sock_bind(h, (struct sockaddr *)&name, len);
	so->named = false;
	if (!rc && backlog)
		rc = pyvma_sock_listen(h, backlog);
	if (rc)
		leave(so, "bound by the kernel before, and the stack cannot be");
	if (backlog)
		tell_siblings(so);
}
