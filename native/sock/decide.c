/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offloaded or not, decided once: at bind, connect, the first datagram or a join (opt_mcast.c).
 *
 * The engine's interfaces are static: the kernel knows nothing of their addresses. So an address on one of them is the stack's alone;
 * "all addresses", groups and the limited broadcast are both's, and the socket then has two legs; everything else is the kernel's.
 * A gateway of an interface takes what the kernel is not attached to itself.
 *
 * The kernel socket beneath an offloaded one is bound to the same address where the kernel lets us (IP_FREEBIND): getsockname on the
 * bare fd then says the truth. That is a courtesy: only a port below 1024 without the privilege is an error.
 */
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rt/error.h"
#include "sock/kernel.h"
#include "sock/sock.h"

#define PORT_TRIES 64

/* ---- addresses --------------------------------------------------------------------------------------------------------- */

static bool prefix_match(const struct pv_addr *a, const struct pv_addr *b, uint32_t len, bool is4)
{
	uint32_t off = is4 ? 12 : 0, whole = len / 8, rest = len % 8;

	if (memcmp(a->b + off, b->b + off, whole))
		return false;
	return !rest || !((a->b[off + whole] ^ b->b[off + whole]) >> (8 - rest));
}

static bool is_loopback(const struct pv_addr *a)
{
	if (pv_addr_is4(a))
		return a->b[12] == 127;
	return !a->q[0] && !a->w[2] && a->w[3] == 0x01000000;
}

/* Is the kernel attached to this destination's network? Asked only for what would go by a gateway of ours. */
static bool kernel_on_link(const struct pv_addr *dst)
{
	struct ifaddrs *list, *it;
	bool found = false;

	if (getifaddrs(&list) < 0)
		return false;
	for (it = list; it && !found; it = it->ifa_next) {
		int family = it->ifa_addr ? it->ifa_addr->sa_family : AF_UNSPEC;
		const uint8_t *addr, *mask;
		size_t n = family == AF_INET ? 4 : 16, off = family == AF_INET ? 12 : 0, i;

		if (!it->ifa_netmask || (family != AF_INET && family != AF_INET6) || (family == AF_INET) != pv_addr_is4(dst))
			continue;
		addr = family == AF_INET ? (const void *)&((const struct sockaddr_in *)(const void *)it->ifa_addr)->sin_addr
					 : (const void *)&((const struct sockaddr_in6 *)(const void *)it->ifa_addr)->sin6_addr;
		mask = family == AF_INET ? (const void *)&((const struct sockaddr_in *)(const void *)it->ifa_netmask)->sin_addr
					 : (const void *)&((const struct sockaddr_in6 *)(const void *)it->ifa_netmask)->sin6_addr;
		for (i = 0; i < n && !((addr[i] ^ dst->b[off + i]) & mask[i]); i++)
			;
		found = i == n;
	}
	freeifaddrs(list);
	return found;
}

static bool unicast_route(const struct pv_addr *dst)
{
	const struct pv_engine *e = &pv_engine;
	bool is4 = pv_addr_is4(dst), gateway = false;

	for (uint32_t p = 0; p < e->nports; p++) {
		const struct pv_ifspec *s = &e->ports[p].spec;

		for (uint32_t i = 0; i < s->naddr; i++)
			if (pv_addr_is4(&s->addr[i].addr) == is4 && prefix_match(dst, &s->addr[i].addr, s->addr[i].prefix_len, is4))
				return true;
		gateway |= !pv_addr_is_any(is4 ? &s->gateway4 : &s->gateway6);
	}
	return gateway && !kernel_on_link(dst);
}

/* The kernel's own choice of an interface for groups: 0 none was made. */
static bool kernel_mcast_iface(const struct pv_sock *so, bool is4)
{
	struct ip_mreqn mreq;
	socklen_t len = sizeof(mreq);
	int index = 0;

	if (is4) {
		/* Reading an ip_mreqn is not possible: the kernel gives the address only. */
		struct in_addr a = { 0 };

		len = sizeof(a);
		return !getsockopt(pv_sock_kfd(so), IPPROTO_IP, IP_MULTICAST_IF, &a, &len) && a.s_addr;
	}
	len = sizeof(index);
	return !getsockopt(pv_sock_kfd(so), IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, &len) && index;
}

static bool device_is_kernels(const struct pv_sock *so)
{
	char name[IFNAMSIZ] = "";
	socklen_t len = sizeof(name);

	return !getsockopt(pv_sock_kfd(so), SOL_SOCKET, SO_BINDTODEVICE, name, &len) && len && *name;
}

static bool group_route(const struct pv_sock *so, const struct pv_addr *dst)
{
	bool is4 = pv_addr_is4(dst);
	const struct pv_udp_opts *o = so->u ? pv_udp_options(so->u) : NULL;

	if (o && (is4 ? o->mcast_iface4 : o->mcast_iface6))
		return true;
	return !kernel_mcast_iface(so, is4) && pv_net_group_iface(pv_engine.net, dst);
}

bool pv_decide_route(const struct pv_sock *so, const struct pv_endpoint *to)
{
	if (so->u && pv_udp_options(so->u)->bound_iface)
		return true;
	if (device_is_kernels(so) || is_loopback(&to->addr) || pv_addr_is_any(&to->addr))
		return false;
	if (to->iface)
		return true;
	if (pv_addr_is_mcast(&to->addr))
		return group_route(so, &to->addr);
	if (pv_net_is_broadcast(pv_engine.net, &to->addr))
		return true;
	if (pv_addr_is_linklocal6(&to->addr))
		return false; /* means nothing without an interface */
	return unicast_route(&to->addr);
}

/* ---- states ------------------------------------------------------------------------------------------------------------ */

int pv_core_open(struct pv_sock *so)
{
	struct pv_engine *e = &pv_engine;
	int rc;

	if (so->u)
		return 0;
	rc = pv_udp_open(e->udp, (enum pv_family)so->family, &so->watch, &so->u);
	if (rc)
		return rc;
	so->core_leg = true;
	so->bound = false;
	pv_opt_import(so);
	return 0;
}

void pv_core_close(struct pv_sock *so)
{
	if (!so->u)
		return;
	pv_udp_close(so->u);
	so->u = NULL;
	pv_list_del(&so->on_core);
}

void pv_decide_core(struct pv_sock *so, bool core_leg, bool kernel_leg)
{
	so->core_leg = core_leg;
	so->kernel_leg = kernel_leg;
	if (pv_list_empty(&so->on_core))
		pv_list_add(&pv_core_socks, &so->on_core);
	atomic_store_explicit(&so->mode, PV_SOCK_CORE, memory_order_release);
	pv_ready_update(so);
}

/* In strict mode a socket of the kernel's is an error. */
static int may_decide_kernel(const struct pv_addr *addr)
{
	char text[64];

	if (!pv_engine.cfg->strict)
		return 0;
	pv_addr_text(addr, text, sizeof(text));
	return pv_error(-EOPNOTSUPP, "strict: address %s is on no offloaded interface", text);
}

void pv_decide_kernel(struct pv_sock *so, const char *reason, const struct pv_addr *addr)
{
	pv_core_close(so);
	memset(&so->reason_addr, 0, sizeof(so->reason_addr));
	if (addr)
		so->reason_addr = *addr;
	atomic_store_explicit(&so->reason, reason, memory_order_relaxed);
	atomic_store_explicit(&so->mode, PV_SOCK_KERNEL, memory_order_release);
}

/* ---- bind -------------------------------------------------------------------------------------------------------------- */

static void set_int(int fd, int level, int name, int val)
{
	setsockopt(fd, level, name, &val, sizeof(val));
}

/* The kernel socket to the stack's local address, if the kernel lets us. -EACCES is the one answer that counts. */
static int mirror_bind(struct pv_sock *so)
{
	struct sockaddr_storage ss;
	struct pv_endpoint local;
	int fd = pv_sock_kfd(so), rc;

	pv_udp_local(so->u, &local);
	socklen_t len = pv_addr_format(so->family, &local, &ss, sizeof(ss));

	set_int(fd, IPPROTO_IP, IP_FREEBIND, 1);
	rc = bind(fd, (struct sockaddr *)&ss, len) < 0 ? -errno : 0;
	set_int(fd, IPPROTO_IP, IP_FREEBIND, pv_udp_options(so->u)->freebind);
	return rc == -EACCES ? rc : 0;
}

/* A bind that failed leaves no port behind. A socket that was the stack's already, by a join, gets a fresh UDP socket. */
static void unbind(struct pv_sock *so)
{
	pv_core_close(so);
	if (pv_sock_mode(so) == PV_SOCK_CORE && !pv_core_open(so))
		pv_decide_core(so, true, true);
}

/* Both legs to one port. Without a port the stack chooses and the kernel must agree. */
static int bind_both(struct pv_sock *so, const struct pv_endpoint *ep)
{
	int rc;

	for (int tries = 0;; tries++) {
		struct sockaddr_storage ss;
		struct pv_endpoint local;

		rc = pv_core_open(so);
		if (!rc)
			rc = pv_udp_bind(so->u, ep);
		if (rc)
			break;
		pv_udp_local(so->u, &local);
		socklen_t len =
		    pv_addr_format(so->family, &(struct pv_endpoint){ .addr = ep->addr, .port = local.port }, &ss, sizeof(ss));

		rc = bind(pv_sock_kfd(so), (struct sockaddr *)&ss, len) < 0 ? -errno : 0;
		if (!rc) {
			so->bound = true;
			pv_decide_core(so, true, true);
			return 0;
		}
		pv_core_close(so);
		if (rc != -EADDRINUSE || ep->port || tries >= PORT_TRIES)
			break;
	}
	unbind(so);
	return rc;
}

static int bind_core(struct pv_sock *so, const struct pv_endpoint *ep)
{
	int rc = pv_core_open(so);

	if (!rc)
		rc = pv_udp_bind(so->u, ep);
	if (!rc)
		rc = mirror_bind(so);
	if (rc) {
		unbind(so);
		return rc;
	}
	so->bound = true;
	pv_decide_core(so, true, false);
	return 0;
}

static int bind_locked(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len)
{
	struct pv_engine *e = &pv_engine;
	bool any = pv_addr_is_any(&ep->addr), limited = pv_addr_is_bcast(&ep->addr);
	int rc;

	if (so->bound)
		return -EINVAL;
	if ((so->family == AF_INET) != pv_addr_is4(&ep->addr) && so->family == AF_INET)
		return -EAFNOSUPPORT;
	if (any || limited || pv_addr_is_mcast(&ep->addr)) {
		if (!device_is_kernels(so))
			return bind_both(so, ep);
	} else if (ep->iface || pv_net_addr_owner(e->net, &ep->addr) || pv_net_is_broadcast(e->net, &ep->addr)) {
		return bind_core(so, ep);
	}
	rc = may_decide_kernel(&ep->addr);
	if (rc)
		return rc;
	/* Decided by success: an address that is nobody's leaves the socket as it was. */
	if (bind(pv_sock_kfd(so), addr, len) < 0)
		return -errno;
	pv_decide_kernel(so, any ? "bound to a device of the kernel" : " is the kernel's", any ? NULL : &ep->addr);
	return 0;
}

int pyvma_sock_bind(pyvma_sock *h, const struct sockaddr *addr, socklen_t len)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_endpoint ep;
	int rc;

	if (!so)
		return -EBADF;
	/* Linux takes AF_UNSPEC with 0.0.0.0 for AF_INET here, and no AF_INET address on an IPv6 socket. */
	bool ours = so->candidate && pv_sock_mode(so) != PV_SOCK_KERNEL && pv_engine_state() == PV_ENGINE_RUNNING &&
		    pv_addr_parse(so, addr, len, &ep) && addr->sa_family == so->family;

	if (!ours)
		return bind(pv_sock_kfd(so), addr, len) < 0 ? -errno : 0;
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) != so || so->dead)
		return pv_sock_lock_failed(h, so);
	rc = bind_locked(so, &ep, addr, len);
	pv_sock_unlock();
	return rc;
}

/* ---- connect and the first datagram ------------------------------------------------------------------------------------ */

static int connect_core(struct pv_sock *so, const struct pv_endpoint *to)
{
	bool fresh = pv_sock_mode(so) != PV_SOCK_CORE;
	int rc = pv_core_open(so);

	if (!rc)
		rc = pv_udp_connect(so->u, to, pv_clock_now(&pv_engine.clock));
	if (!rc && !so->bound)
		rc = mirror_bind(so);
	if (rc) {
		if (fresh)
			pv_core_close(so);
		return rc;
	}
	so->bound = true;
	pv_net_kick(pv_engine.net);
	pv_engine_timers(&pv_engine);
	pv_decide_core(so, true, false);
	return 0;
}

static int connect_locked(struct pv_sock *so, const struct pv_endpoint *to, const struct sockaddr *addr, socklen_t len)
{
	bool hybrid = so->u && so->bound && (so->kernel_leg || !so->core_leg);
	int rc;

	if (pv_decide_route(so, to) || (so->u && so->bound && !hybrid))
		return connect_core(so, to);
	if (!so->u || !so->bound) {
		rc = may_decide_kernel(&to->addr);
		if (rc)
			return rc;
		if (connect(pv_sock_kfd(so), addr, len) < 0)
			return -errno;
		pv_decide_kernel(so, " is the kernel's", &to->addr);
		return 0;
	}
	/* Bound to all addresses, and the peer is the kernel's: from here on only that leg is heard. */
	if (connect(pv_sock_kfd(so), addr, len) < 0)
		return -errno;
	pv_decide_core(so, false, true);
	return 0;
}

static int disconnect_locked(struct pv_sock *so, const struct sockaddr *addr, socklen_t len)
{
	struct pv_endpoint local;
	int rc = pv_udp_connect(so->u, NULL, 0);

	if (connect(pv_sock_kfd(so), addr, len) < 0 && !rc)
		rc = -errno;
	pv_udp_local(so->u, &local);
	so->bound = local.port != 0;
	pv_decide_core(so, true, so->kernel_leg || (so->bound && pv_addr_is_any(&local.addr)));
	return rc;
}

int pyvma_sock_connect(pyvma_sock *h, const struct sockaddr *addr, socklen_t len, int64_t timeout_ns)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_endpoint to;
	int rc;

	if (!so)
		return -EBADF;
	if (!so->candidate || pv_sock_mode(so) == PV_SOCK_KERNEL || pv_engine_state() != PV_ENGINE_RUNNING || !addr)
		return so->dead ? pv_sock_lock_failed(NULL, so) : pv_kernel_connect(pv_sock_kfd(so), addr, len, timeout_ns);
	bool unspec = len >= sizeof(sa_family_t) && addr->sa_family == AF_UNSPEC;

	if (!unspec && !pv_addr_parse(so, addr, len, &to))
		return pv_kernel_connect(pv_sock_kfd(so), addr, len, timeout_ns);
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) != so || so->dead)
		return pv_sock_lock_failed(h, so);
	if (!unspec)
		rc = connect_locked(so, &to, addr, len);
	else if (so->u)
		rc = disconnect_locked(so, addr, len);
	else
		rc = connect(pv_sock_kfd(so), addr, len) < 0 ? -errno : 0;
	pv_sock_unlock();
	return rc;
}

int pv_decide_send(struct pyvma_sock *h, struct pv_sock *so, const struct pv_endpoint *to)
{
	struct pv_endpoint any = { 0 };
	int rc = 0;

	if (so->family == AF_INET)
		any.addr.w[2] = PV_ADDR_MAPPED_W2;
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) != so || so->dead)
		return pv_sock_lock_failed(h, so);
	if (pv_sock_mode(so) == PV_SOCK_UNDECIDED || (so->u && !so->bound)) {
		if (pv_decide_route(so, to))
			rc = bind_both(so, &any);
		else if (pv_sock_mode(so) == PV_SOCK_UNDECIDED && !(rc = may_decide_kernel(&to->addr)))
			pv_decide_kernel(so, " is the kernel's", &to->addr);
	}
	pv_sock_unlock();
	return rc;
}
