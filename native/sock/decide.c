/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offloaded or not, decided once: at bind, connect, the first datagram or a join (opt_mcast.c).
 *
 * Interfaces of our own: the kernel knows nothing of their addresses. So an address on one of them is the stack's alone; "all
 * addresses", groups and the limited broadcast are both's, and the socket then has two legs; everything else is the kernel's. A gateway
 * of an interface takes what the kernel is not attached to itself. The kernel socket beneath an offloaded one is bound to the same
 * address where the kernel lets us (IP_FREEBIND): getsockname on the bare fd then says the truth. That is a courtesy: only a port below
 * 1024 without the privilege is an error.
 *
 * Interfaces that the kernel owns: leg.c.
 */
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/error.h"
#include "rt/host.h"
#include "sock/epoll.h"
#include "sock/kernel.h"
#include "sock/lane.h"
#include "sock/rule.h"
#include "sock/shown.h"
#include "sock/pacing.h"
#include "sock/stream.h"

#define PORT_TRIES 64
/* How old the kernel's addresses may be where nothing tells of changes. */
#define KERNEL_NETS_NS PV_NS_PER_S

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

/* The kernel's addresses as they were last read, so that not every destination costs a look at all interfaces. Engine lock. */
struct kernel_net {
	struct pv_addr addr, mask;
};
static struct {
	struct kernel_net *net;
	uint32_t n, max;
	uint32_t seen; /* e->kernel_addrs then */
	int64_t again_ns; /* read once more from then on; 0: never read */
} kernel_nets;

static struct pv_addr sockaddr_bits(int family, const struct sockaddr *sa)
{
	return family == AF_INET ? pv_addr_from4(&((const struct sockaddr_in *)(const void *)sa)->sin_addr)
				 : pv_addr_from6(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

static bool kernel_nets_room(void)
{
	uint32_t max = kernel_nets.max ? 2 * kernel_nets.max : 32;
	struct kernel_net *net;

	if (kernel_nets.n < kernel_nets.max)
		return true;
	net = realloc(kernel_nets.net, max * sizeof(*net));
	if (!net)
		return false;
	kernel_nets.net = net;
	kernel_nets.max = max;
	return true;
}

static void kernel_nets_read(void)
{
	struct ifaddrs *list;

	if (getifaddrs(&list) < 0)
		return;
	kernel_nets.n = 0;
	for (struct ifaddrs *it = list; it; it = it->ifa_next) {
		int family = it->ifa_addr ? it->ifa_addr->sa_family : AF_UNSPEC;

		if (!it->ifa_netmask || (family != AF_INET && family != AF_INET6) || !kernel_nets_room())
			continue;
		kernel_nets.net[kernel_nets.n++] =
		    (struct kernel_net){ sockaddr_bits(family, it->ifa_addr), sockaddr_bits(family, it->ifa_netmask) };
	}
	freeifaddrs(list);
}

/* Is the kernel attached to this destination's network? Asked only for what would go by a gateway of ours. Where rtnetlink tells of
 * changes they are waited for, elsewhere the answer may be a second old. */
static bool kernel_on_link(const struct pv_addr *dst)
{
	struct pv_engine *e = &pv_engine;
	int64_t now = pv_clock_now(&e->clock);
	bool told = pv_host_fd(e) >= 0;

	if (!kernel_nets.again_ns || (told ? kernel_nets.seen != e->kernel_addrs : now >= kernel_nets.again_ns)) {
		kernel_nets.seen = e->kernel_addrs;
		kernel_nets.again_ns = now + KERNEL_NETS_NS;
		kernel_nets_read();
	}
	for (uint32_t i = 0; i < kernel_nets.n; i++) {
		const struct kernel_net *k = &kernel_nets.net[i];

		if (pv_addr_is4(&k->addr) == pv_addr_is4(dst) &&
		    !(((k->addr.q[0] ^ dst->q[0]) & k->mask.q[0]) | ((k->addr.q[1] ^ dst->q[1]) & k->mask.q[1])))
			return true;
	}
	return false;
}

bool pv_decide_static(const struct pv_addr *dst)
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

/* What the kernel would choose, when that is an interface of ours. */
static uint32_t host_route(const struct pv_sock *so, const struct pv_addr *dst, uint32_t iface)
{
	struct pv_path_query q = { .dst = *dst, .iface = iface };
	struct pv_endpoint local;
	struct pv_path path;

	if (!pv_leg_engine())
		return 0;
	if (so->u) {
		pv_udp_local(so->u, &local);
		q.src_port = local.port;
		if (!pv_addr_is_any(&local.addr) && !pv_addr_is_mcast(&local.addr) && pv_net_addr_owner(pv_engine.net, &local.addr))
			q.src = local.addr;
	}
	q.proto = PV_PROTO_UDP;
	return pv_net_path(pv_engine.net, &q, pv_clock_now(&pv_engine.clock), &path) ? 0 : path.iface;
}

/* The kernel's own choice of an interface for groups: 0 none was made. */
static bool kernel_mcast_iface(const struct pv_sock *so, bool is4)
{
	socklen_t len;
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

void pv_decide_kernel_read(struct pv_sock *so)
{
	int index = 0;
	socklen_t len = sizeof(index);

	/* A kernel socket that is not there, or new, has no such options. */
	if (pv_sock_kfd_made(so) < 0 || atomic_load_explicit(&so->untouched, memory_order_relaxed))
		return;
	if (getsockopt(pv_sock_kfd(so), SOL_SOCKET, SO_BINDTOIFINDEX, &index, &len) < 0)
		index = 0;
	so->kernel_device = (uint32_t)index;
	so->kernel_mcast4 = kernel_mcast_iface(so, true);
	so->kernel_mcast6 = kernel_mcast_iface(so, false);
}

uint32_t pv_decide_device(const struct pv_sock *so, bool *kernels)
{
	uint32_t iface = so->u ? pv_udp_options(so->u)->bound_iface : 0;

	*kernels = false;
	if ((iface && iface != PV_UDP_IFACE_GONE && !pv_iface_is_host(iface)) || !so->kernel_device)
		return iface;
	iface = pv_ifindex_core(so->kernel_device);
	*kernels = !iface;
	return iface;
}

uint32_t pv_decide_group_iface(const struct pv_sock *so, const struct pv_addr *group)
{
	bool is4 = pv_addr_is4(group);
	const struct pv_udp_opts *o = so->u ? pv_udp_options(so->u) : NULL;
	uint32_t iface = o ? (is4 ? o->mcast_iface4 : o->mcast_iface6) : 0;

	if (iface)
		return iface;
	if (is4 && so->mcast_index4)
		return pv_ifindex_core(so->mcast_index4);
	return (is4 ? so->kernel_mcast4 : so->kernel_mcast6) ? 0 : pv_net_group_iface(pv_engine.net, group);
}

/* Groups on interfaces that the kernel owns: the host itself gets a copy, unless the program does not want that. */
static bool group_route(const struct pv_sock *so, const struct pv_addr *dst, uint32_t device)
{
	uint32_t iface = device ? device : pv_decide_group_iface(so, dst);
	bool v4 = so->family == AF_INET;
	int loop = 1;
	socklen_t len = sizeof(loop);

	if (!pv_iface_is_host(iface))
		return iface != 0;
	if (so->u)
		return !(v4 ? pv_udp_options(so->u)->mcast_loop4 : pv_udp_options(so->u)->mcast_loop6);
	return !getsockopt(pv_sock_kfd(so), v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MULTICAST_LOOP : IPV6_MULTICAST_LOOP, &loop,
			   &len) &&
	       !loop;
}

/* On interfaces of the kernel's it is the kernel's business: the host gets a copy. */
static bool broadcast_route(const struct pv_addr *dst)
{
	return !pv_leg_engine() || (!pv_addr_is_bcast(dst) && pv_decide_static(dst));
}

bool pv_decide_route(const struct pv_sock *so, const struct pv_endpoint *to)
{
	bool kernels;
	uint32_t device = pv_decide_device(so, &kernels), iface = device ? device : to->iface;

	if (device && !pv_iface_is_host(device))
		return true;
	if (kernels || is_loopback(&to->addr) || pv_addr_is_any(&to->addr))
		return false;
	if (to->iface && !pv_iface_is_host(to->iface))
		return true;
	if (pv_addr_is_mcast(&to->addr))
		return group_route(so, &to->addr, iface);
	if (pv_net_is_broadcast(pv_engine.net, &to->addr))
		return broadcast_route(&to->addr);
	if (pv_addr_is_linklocal6(&to->addr) && !iface)
		return false; /* means nothing without an interface */
	return (!iface && pv_decide_static(&to->addr)) || pv_iface_is_host(host_route(so, &to->addr, iface));
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
	if (so->shut)
		(void)pv_udp_shutdown(so->u, so->shut);
	pv_shown_update(so);
	return 0;
}

void pv_core_close(struct pv_sock *so)
{
	if (!so->u)
		return;
	pv_pacing_end(so);
	pv_lane_end(so);
	pv_udp_close(so->u);
	so->u = NULL;
	pv_list_del(&so->on_core);
	pv_shown_update(so);
}

/* To the flight recorder. */
static void tell(const struct pv_sock *so, enum pv_trace_socket what, const struct pv_addr *addr)
{
	struct pv_trace_event e = { .kind = PV_TRACE_socket,
				    .id = (uintptr_t)so->u,
				    .proto = so->stream ? PV_PROTO_TCP : PV_PROTO_UDP,
				    .a = what,
				    .b = (uint32_t)PV_MAX(pv_sock_kfd_made(so), 0) };

	if (addr)
		e.peer = *addr;
	pv_trace_put(pv_engine.trace, &e);
}

void pv_decide_core(struct pv_sock *so, bool core_leg, bool kernel_leg)
{
	so->core_leg = so->tx_core = core_leg;
	so->kernel_leg = kernel_leg;
	if (pv_sock_mode(so) != PV_SOCK_CORE)
		tell(so, PV_TRACE_OFFLOADED, NULL);
	if (pv_list_empty(&so->on_core))
		pv_list_add(&pv_core_socks, &so->on_core);
	atomic_store_explicit(&so->mode, PV_SOCK_CORE, memory_order_release);
	pv_shown_update(so);
	pv_ready_update(so);
	pv_epoll_moved(so);
	pv_lane_update(so);
}

/* In strict mode a socket of the kernel's is an error. */
int pv_decide_may_kernel(const struct pv_addr *addr)
{
	char text[64];

	if (!pv_engine.cfg->strict)
		return 0;
	pv_addr_text(addr, text, sizeof(text));
	return pv_error(-EOPNOTSUPP, "strict: address %s is on no offloaded interface", text);
}

void pv_decide_kernel(struct pv_sock *so, const char *reason, const struct pv_addr *addr)
{
	tell(so, PV_TRACE_KERNEL, addr);
	pv_core_close(so);
	pv_shown_reason(so, reason, addr);
	atomic_store_explicit(&so->mode, PV_SOCK_KERNEL, memory_order_release);
	pv_shown_update(so);
	pv_epoll_moved(so);
}

/* ---- bind -------------------------------------------------------------------------------------------------------------- */

static void set_int(int fd, int level, int name, int val)
{
	setsockopt(fd, level, name, &val, sizeof(val));
}

/* The kernel's half, whether or not the kernel has the address. */
static int bind_half(struct pv_sock *so, const struct pv_endpoint *ep)
{
	struct sockaddr_storage ss;
	socklen_t len = pv_addr_format(so->family, ep, &ss, sizeof(ss));
	int fd = pv_sock_kfd(so), rc;

	set_int(fd, IPPROTO_IP, IP_FREEBIND, 1);
	rc = pv_late_bind(so, (struct sockaddr *)&ss, len);
	set_int(fd, IPPROTO_IP, IP_FREEBIND, pv_udp_options(so->u)->freebind);
	return rc;
}

/* With a port, which bind(2) need not have taken. */
static int bind_port(struct pv_sock *so, const struct pv_endpoint *ep)
{
	bool later = pv_udp_options(so->u)->bind_no_port;
	int rc;

	if (later)
		set_int(pv_sock_kfd(so), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0);
	rc = bind_half(so, ep);
	if (later)
		set_int(pv_sock_kfd(so), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	return rc;
}

/* The kernel socket to the stack's local address, if the kernel lets us. -EACCES is the one answer that counts. */
static int mirror_bind(struct pv_sock *so)
{
	struct pv_endpoint local;

	pv_udp_local(so->u, &local);
	return bind_half(so, &local) == -EACCES ? -EACCES : 0;
}

/* A bind that failed leaves no port behind. A socket that was the stack's already, by a join, gets a fresh UDP socket. */
static void unbind(struct pv_sock *so)
{
	pv_core_close(so);
	if (pv_sock_mode(so) == PV_SOCK_CORE && !pv_core_open(so))
		pv_decide_core(so, true, true);
}

static int bind_ended(struct pv_sock *so, int rc, bool kernel)
{
	if (rc) {
		unbind(so);
		return rc;
	}
	so->bound = true;
	pv_decide_core(so, true, kernel);
	return 0;
}

/*
 * A port that nobody names the kernel chooses, of those that are free in the stack, too: so it forgets that when the association is
 * dissolved, as the stack does, and the socket can have another one. `kernel`: its error if it would not; the stack has no port then.
 */
static int bind_chosen(struct pv_sock *so, const struct pv_endpoint *ep, int *kernel)
{
	struct pv_endpoint local = *ep;
	int rc;

	for (int tries = 0;; tries++) {
		*kernel = bind_port(so, ep);
		rc = *kernel ? *kernel : pv_leg_port(so, &local.port);
		if (rc)
			return rc;
		rc = pv_udp_bind(so->u, &local);
		if (!rc)
			pv_udp_name_chosen(so->u, false, true);
		if (!rc || !pv_leg_unbind(so) || rc != -EADDRINUSE || tries >= PORT_TRIES)
			return rc;
	}
}

/* Both legs to one port. */
static int bind_both(struct pv_sock *so, const struct pv_endpoint *ep)
{
	int rc = pv_core_open(so), kernel;

	if (!rc && !ep->port) {
		rc = bind_chosen(so, ep, &kernel);
	} else if (!rc) {
		struct sockaddr_storage ss;
		socklen_t len = pv_addr_format(so->family, ep, &ss, sizeof(ss));

		rc = pv_udp_bind(so->u, ep);
		if (!rc)
			rc = pv_late_bind(so, (struct sockaddr *)&ss, len);
	}
	return bind_ended(so, rc, true);
}

/* The kernel need not be able to: the stack is alone with the address then. */
static int bind_mirrored(struct pv_sock *so, const struct pv_endpoint *ep)
{
	int kernel = 0, rc = -EADDRINUSE;

	if (!ep->port && !so->named)
		rc = bind_chosen(so, ep, &kernel);
	if (!rc || kernel == -EACCES || (!kernel && rc != -EADDRINUSE))
		return rc;
	rc = pv_udp_bind(so->u, ep);
	return rc || kernel ? rc : mirror_bind(so);
}

static int bind_core(struct pv_sock *so, const struct pv_endpoint *ep)
{
	int rc = pv_core_open(so);

	if (!rc)
		rc = bind_mirrored(so, ep);
	return bind_ended(so, rc, false);
}

/* IP_BIND_ADDRESS_NO_PORT: the port is taken with the peer, or the first datagram. Of neither an address nor a port nothing is taken. */
static int bind_own(struct pv_sock *so, const struct pv_endpoint *ep)
{
	bool any = pv_addr_is_any(&ep->addr), all = any || pv_addr_is_bcast(&ep->addr) || pv_addr_is_mcast(&ep->addr);
	int rc = pv_core_open(so);

	if (rc || ep->port || (all && !any) || !pv_udp_options(so->u)->bind_no_port)
		return rc ? rc : all ? bind_both(so, ep) : bind_core(so, ep);
	if (any && pv_sock_mode(so) == PV_SOCK_UNDECIDED) {
		pv_core_close(so);
		return 0;
	}
	rc = pv_udp_bind_address(so->u, ep);
	if (rc) {
		unbind(so);
		return rc;
	}
	(void)bind_half(so, ep);
	pv_decide_core(so, true, any);
	return 0;
}

/* Why the address is the kernel's, beside that it is. */
static const char *kernel_reason(const struct pv_endpoint *ep)
{
	const char *text = pv_leg_engine() ? pv_host_reason(&pv_engine, &ep->addr) : NULL;

	if (!text && pv_leg_engine())
		text = pv_host_reason_to(&pv_engine, &ep->addr);
	return text ? text : " is the kernel's";
}

/* A reason that begins with a space has the address before it. */
static int bind_left(struct pv_sock *so, const char *reason, const struct pv_endpoint *ep, const struct sockaddr *addr,
		     socklen_t len)
{
	int rc = pv_late_bind(so, addr, len);

	if (rc)
		return rc;
	if (so->host)
		pv_leg_retire(so, reason, *reason == ' ' ? &ep->addr : NULL);
	else
		pv_decide_kernel(so, reason, *reason == ' ' ? &ep->addr : NULL);
	so->bound = so->host;
	return 0;
}

/* The kernel's alone. Decided by success: an address that is nobody's leaves the socket as it was. */
static int bind_kernel(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len)
{
	const char *reason = pv_addr_is_any(&ep->addr) ? "bound to a device of the kernel" : kernel_reason(ep);
	int rc = pv_decide_may_kernel(&ep->addr);

	return rc ? rc : bind_left(so, reason, ep, addr, len);
}

static int bind_locked(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len)
{
	struct pv_engine *e = &pv_engine;
	const char *rule;
	uint32_t device, owner;
	bool kernels;

	pv_decide_kernel_read(so);
	device = pv_decide_device(so, &kernels);
	if (so->bound)
		return pv_name_twice(so, ep);
	if ((so->family == AF_INET) != pv_addr_is4(&ep->addr) && so->family == AF_INET)
		return -EAFNOSUPPORT;
	owner = ep->iface ? ep->iface : pv_net_addr_owner(e->net, &ep->addr);
	rule = owner && !pv_iface_is_host(owner) ? NULL : pv_sock_rule(PV_RULE_UDP_RECEIVER, ep, NULL);
	if (rule)
		return bind_left(so, rule, ep, addr, len);
	if (pv_addr_is_any(&ep->addr) || pv_addr_is_bcast(&ep->addr) || pv_addr_is_mcast(&ep->addr)) {
		if (kernels)
			return bind_kernel(so, ep, addr, len);
		return pv_leg_engine() && (!device || pv_iface_is_host(device)) ? pv_leg_bind(so, ep, addr, len) : bind_own(so, ep);
	}
	if (!owner && !pv_net_is_broadcast(e->net, &ep->addr))
		return bind_kernel(so, ep, addr, len);
	if (!pv_iface_is_host(owner) && (owner || !pv_leg_engine() || pv_decide_static(&ep->addr)))
		return bind_own(so, ep);
	return kernels ? bind_kernel(so, ep, addr, len) : pv_leg_bind(so, ep, addr, len);
}

/* Not an address that the stack knows what to do with: the kernel's error, or its address. */
static int bind_foreign(struct pv_sock *so, const struct sockaddr *addr, socklen_t len)
{
	static const char reason[] = "bound to an address that is the kernel's";

	int rc = pv_late_bind(so, addr, len);

	if (rc)
		return rc;
	if (so->host)
		pv_leg_retire(so, reason, NULL);
	else if (pv_sock_mode(so) == PV_SOCK_UNDECIDED)
		pv_decide_kernel(so, reason, NULL);
	so->bound = so->bound || so->host;
	return 0;
}

int pyvma_sock_bind(pyvma_sock *h, const struct sockaddr *addr, socklen_t len)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_endpoint ep;
	int rc;

	if (!so)
		return -EBADF;
	if (so->stream) {
		rc = pv_stream_bind(h, so, addr, len);
		return rc != PV_HANDED ? rc : bind(pv_sock_kfd(so), addr, len) < 0 ? -errno : 0;
	}
	/* Linux takes AF_UNSPEC with 0.0.0.0 for AF_INET here, and no AF_INET address on an IPv6 socket. */
	bool ours = so->candidate && pv_sock_mode(so) != PV_SOCK_KERNEL && pv_engine_state() == PV_ENGINE_RUNNING &&
		    pv_addr_parse(so, addr, len, &ep) && addr->sa_family == so->family;

	if (!ours && (!so->candidate || pv_sock_mode(so) == PV_SOCK_KERNEL || pv_engine_state() != PV_ENGINE_RUNNING))
		return pv_late_bind(so, addr, len);
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) != so || so->dead)
		return pv_sock_lock_failed(h, so);
	rc = ours ? bind_locked(so, &ep, addr, len) : bind_foreign(so, addr, len);
	/* A link-local name binds the kernel socket to its device. */
	pv_decide_kernel_read(so);
	pv_sock_unlock();
	return rc;
}

/* ---- connect and the first datagram ------------------------------------------------------------------------------------ */

/* What connect(2) has chosen is bound as one address by both halves: what is sent to another is not the kernel's to keep for it.
 * `chosen`: the address, too, and is not bind(2)'s. */
static int bind_connected(struct pv_sock *so, const struct pv_endpoint *to, bool chosen)
{
	uint32_t device = pv_udp_options(so->u)->bound_iface;
	struct pv_endpoint local;
	int rc;

	pv_udp_local(so->u, &local);
	/* The port goes with the association, SO_BINDTODEVICE stays. */
	(void)pv_udp_connect(so->u, NULL, 0);
	pv_udp_options(so->u)->bound_iface = device;
	pv_udp_options_changed(so->u);
	local.port = 0;
	rc = bind_mirrored(so, &local);
	if (rc)
		return rc;
	so->bound = true;
	pv_udp_name_chosen(so->u, chosen, true);
	return pv_udp_connect(so->u, to, pv_clock_now(&pv_engine.clock));
}

static int connect_core(struct pv_sock *so, const struct pv_endpoint *to)
{
	bool fresh = pv_sock_mode(so) != PV_SOCK_CORE;
	struct pv_endpoint own;
	int rc = pv_core_open(so);

	if (!rc) {
		pv_udp_local(so->u, &own);
		rc = pv_udp_connect(so->u, to, pv_clock_now(&pv_engine.clock));
	}
	if (!rc && !so->bound)
		rc = bind_connected(so, to, pv_addr_is_any(&own.addr));
	if (rc) {
		if (fresh)
			pv_core_close(so);
		return rc;
	}
	so->bound = true;
	so->host = false;
	pv_net_kick(pv_engine.net);
	pv_engine_timers(&pv_engine);
	pv_decide_core(so, true, false);
	return 0;
}

static int connect_locked(struct pv_sock *so, const struct pv_endpoint *to, const struct sockaddr *addr, socklen_t len)
{
	bool hybrid = so->u && so->bound && (so->kernel_leg || !so->core_leg);
	bool device_kernels;
	uint32_t device;
	int rc;

	pv_decide_kernel_read(so);
	device = pv_decide_device(so, &device_kernels);
	if ((so->host || (pv_leg_engine() && !so->bound)) && (!device || pv_iface_is_host(device)) &&
	    (so->retired || !pv_decide_static(&to->addr)))
		return pv_leg_connect(so, to, addr, len);
	if (pv_decide_route(so, to) || (so->u && so->bound && !hybrid))
		return connect_core(so, to);
	if (!so->u || !so->bound) {
		rc = pv_decide_may_kernel(&to->addr);
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

	if (so->host)
		return pv_leg_disconnect(so, addr, len);
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
	if (so->stream) {
		rc = pv_stream_connect(h, so, addr, len, timeout_ns);
		return rc != PV_HANDED ? rc : pv_kernel_connect(pv_sock_kfd(so), addr, len, timeout_ns);
	}
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
	pv_decide_kernel_read(so); /* as after bind */
	pv_sock_unlock();
	return rc;
}

/* An unbound socket of the kernel's interfaces: its first datagram binds it, whichever way that goes. */
static int send_host(struct pv_sock *so, const struct pv_endpoint *to)
{
	bool group = pv_addr_is_mcast(&to->addr) || pv_net_is_broadcast(pv_engine.net, &to->addr);
	int rc;

	if (so->host || pv_decide_route(so, to) || (group && pv_iface_is_host(pv_decide_group_iface(so, &to->addr))))
		return so->retired ? 0 : pv_leg_bind_any(so);
	rc = pv_decide_may_kernel(&to->addr);
	if (!rc)
		pv_decide_kernel(so, kernel_reason(to), &to->addr);
	return rc;
}

/* The first datagram of all, or since connect(2) of AF_UNSPEC took away the port that had been chosen, but not the address of a bind. */
static int bind_again(struct pv_sock *so, const struct pv_endpoint *any)
{
	struct pv_endpoint local = *any;

	if (so->u)
		pv_udp_local(so->u, &local);
	local.port = 0;
	return pv_addr_is_any(&local.addr) ? bind_both(so, any) : bind_core(so, &local);
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
		const char *rule = pv_sock_rule(PV_RULE_UDP_SENDER, to, NULL);

		pv_decide_kernel_read(so);
		if (rule && pv_sock_mode(so) == PV_SOCK_UNDECIDED && !pv_decide_static(&to->addr))
			pv_decide_kernel(so, rule, NULL);
		else if (pv_leg_engine() && (so->host || !pv_decide_static(&to->addr)))
			rc = send_host(so, to);
		else if (pv_decide_route(so, to))
			rc = bind_again(so, &any);
		else if (pv_sock_mode(so) == PV_SOCK_UNDECIDED && !(rc = pv_decide_may_kernel(&to->addr)))
			pv_decide_kernel(so, " is the kernel's", &to->addr);
	}
	pv_sock_unlock();
	return rc;
}
