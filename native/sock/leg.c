/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets on interfaces that the kernel owns.
 *
 * The kernel socket beneath such a socket is a whole one: bound, connected and joined as the program asked, always before the stack,
 * which takes over the name that the kernel gave it. So the kernel reserves the port, chooses it and the source address, checks every
 * argument, and all errors are its own. The stack's half takes what flow rules steer to a ring and sends what leaves by one; the kernel
 * has the rest: fragments, ICMP errors, other interfaces, the host itself, groups and broadcasts (which the host gets a copy of), what
 * came before the rule. A datagram that the stack refuses, for whatever reason but want of room, goes by the kernel, which either can
 * do it or gives its errno.
 *
 * An offloaded socket may become the kernel's, never the other way round. What the stack has queued for it is still read: it stays the
 * stack's in mode, without flow rules ("retired").
 */
#include <netinet/in.h>
#include <linux/errqueue.h>
#include <string.h>

#include "rt/error.h"
#include "rt/host.h"
#include "sock/kernel.h"
#include "sock/rule.h"
#include "sock/shown.h"
#include "sock/sock.h"

#define PORT_TRIES 64
/* Datagrams that may have reached the kernel socket before the rule was there. */
#define KERNEL_FIRST 64
/* Polls that empty a ring for sure when nobody keeps filling it. */
#define SETTLE_POLLS 64
/* Sending asks for the kernel socket's error at most this often. */
#define ERROR_LOOK_NS PV_NS_PER_MS

/* ---- names ------------------------------------------------------------------------------------------------------------- */

static int kernel_name(const struct pv_sock *so, struct pv_endpoint *out)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getsockname(pv_sock_kfd(so), (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	return pv_addr_parse(so, (struct sockaddr *)&ss, len, out) ? 0 : -EADDRNOTAVAIL;
}

int pv_leg_port(const struct pv_sock *so, uint16_t *out)
{
	struct pv_endpoint ep;
	int rc = kernel_name(so, &ep);

	*out = rc ? 0 : ep.port;
	return rc;
}

/* A port that the kernel chose goes with the association; then another may be chosen. */
bool pv_leg_unbind(const struct pv_sock *so)
{
	struct sockaddr un = { .sa_family = AF_UNSPEC };
	int fd = pv_sock_kfd(so), device = 0;
	socklen_t len = sizeof(device);
	struct pv_endpoint ep;

	(void)getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &device, &len);
	if (connect(fd, &un, sizeof(un)) < 0)
		return false;
	if (device)
		(void)setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &device, sizeof(device));
	return kernel_name(so, &ep) == 0 && !ep.port;
}

/* What has come is judged by what was in force when it came. */
void pv_leg_settle(void)
{
	struct pv_engine *e = &pv_engine;

	for (int i = 0; i < SETTLE_POLLS && pv_engine_poll(e, pv_clock_now(&e->clock)); i++)
		;
}

/* ---- from the stack to the kernel -------------------------------------------------------------------------------------- */

void pv_leg_retire(struct pv_sock *so, const char *reason, const struct pv_addr *addr)
{
	if (pv_sock_mode(so) != PV_SOCK_CORE) {
		pv_decide_kernel(so, reason, addr);
		return;
	}
	pv_shown_reason(so, reason, addr);
	pv_udp_steer_off(so->u, true);
	so->retired = true;
	so->host = true;
	pv_decide_core(so, true, true);
	so->tx_core = false;
}

/* In strict mode that is an error. */
static int may_leave(const struct pv_sock *so, const char *reason)
{
	if (!pv_engine.cfg->strict || so->retired)
		return 0;
	return pv_error(-EOPNOTSUPP, "strict: %s", reason);
}

/* ---- bind -------------------------------------------------------------------------------------------------------------- */

static void took_over(struct pv_sock *so)
{
	so->bound = true;
	so->dg->kernel_first = KERNEL_FIRST;
	so->dg->last_gen = so->dg->peer_gen = 0;
	pv_decide_core(so, true, true);
}

static int core_open(struct pv_sock *so)
{
	bool had = so->u != NULL;

	so->host = true;
	int rc = pv_core_open(so);

	if (!rc && had)
		pv_opt_import(so);
	return rc;
}

/* One rule is worth it; none, though there should be some, is not. */
static int steered(const struct pv_sock *so)
{
	int err;

	return pv_udp_steered(so->u, &err) ? 0 : err;
}

/* The stack's half gets the address asked for and the kernel socket's port. */
static int take_name(struct pv_sock *so, const struct pv_endpoint *ep)
{
	struct pv_endpoint local = *ep, name;
	int rc = kernel_name(so, &name);

	if (!rc)
		rc = core_open(so);
	if (rc)
		return rc;
	local.port = name.port;
	rc = pv_udp_bind(so->u, &local);
	if (!rc && !ep->port)
		pv_udp_name_chosen(so->u, false, true);
	return rc ? rc : steered(so);
}

const char *pv_leg_why_not(int rc)
{
	switch (rc) {
	case -EADDRINUSE:
		return "the port is in use in the stack";
	case -EADDRNOTAVAIL:
		return "the address is not known to be an offloaded interface's";
	case -ENOMEM:
	case -ENOBUFS:
		return "no memory for the stack's half";
	}
	return "the interface took no flow rule";
}

/* The kernel has it, the stack cannot serve it. */
static void left_alone(struct pv_sock *so, int rc)
{
	pv_leg_retire(so, pv_leg_why_not(rc), NULL);
	so->bound = true;
}

/* `chosen`: the kernel socket has a port already, by a datagram that went its way. */
static int bind_kernel_first(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len,
			     bool chosen)
{
	int rc;

	for (int tries = 0;; tries++) {
		rc = chosen && !tries ? 0 : pv_late_bind(so, addr, len);
		if (rc)
			return rc;
		rc = take_name(so, ep);
		if (rc != -EADDRINUSE || ep->port || tries >= PORT_TRIES || !pv_leg_unbind(so))
			break;
	}
	if (rc)
		left_alone(so, rc);
	else
		took_over(so);
	return 0;
}

int pv_leg_bind(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len)
{
	const char *reason = pv_opt_kernel_reason(so);
	int rc;

	if (!reason && !so->retired)
		return bind_kernel_first(so, ep, addr, len, false);
	rc = may_leave(so, reason);
	if (rc)
		return rc;
	rc = pv_late_bind(so, addr, len);
	if (rc)
		return rc;
	if (!so->retired)
		pv_leg_retire(so, reason, NULL);
	so->bound = true;
	return 0;
}

int pv_leg_bind_any(struct pv_sock *so)
{
	struct pv_endpoint any = { .port = 0 }, name;
	struct sockaddr_storage ss;
	const char *reason = pv_opt_kernel_reason(so);

	if (reason) {
		int rc = may_leave(so, reason);

		if (!rc)
			pv_leg_retire(so, reason, NULL);
		return rc;
	}
	if (so->family == AF_INET)
		any.addr.w[2] = PV_ADDR_MAPPED_W2;
	socklen_t len = pv_addr_format(so->family, &any, &ss, sizeof(ss));
	bool chosen = kernel_name(so, &name) == 0 && name.port;

	return bind_kernel_first(so, &any, (struct sockaddr *)&ss, len, chosen);
}

/* ---- connect ----------------------------------------------------------------------------------------------------------- */

/* The kernel socket is connected; the stack's half gets the same two names. */
static int take_peer(struct pv_sock *so, const struct pv_endpoint *to)
{
	struct pv_endpoint name, local;
	int rc = kernel_name(so, &name);

	if (!rc)
		rc = core_open(so);
	if (!rc && !so->bound) {
		rc = pv_udp_bind(so->u, &name);
		if (!rc)
			pv_udp_name_chosen(so->u, true, true);
	}
	if (!rc)
		rc = pv_udp_connect(so->u, to, pv_clock_now(&pv_engine.clock));
	if (rc)
		return rc;
	pv_udp_local(so->u, &local);
	return pv_addr_eq(&local.addr, &name.addr) && local.port == name.port ? steered(so) : -EXDEV;
}

int pv_leg_connect(struct pv_sock *so, const struct pv_endpoint *to, const struct sockaddr *addr, socklen_t len)
{
	const char *reason = pv_opt_kernel_reason(so);
	struct pv_endpoint name;
	int rc;

	if (!so->retired && !reason && !pv_decide_route(so, to)) {
		reason = pv_host_reason_to(&pv_engine, &to->addr);
		reason = reason ? reason : " is the kernel's";
	}
	if (!so->retired && reason) {
		rc = *reason == ' ' ? pv_decide_may_kernel(&to->addr) : may_leave(so, reason);
		if (rc)
			return rc;
	}
	pv_leg_settle();
	if (connect(pv_sock_kfd(so), addr, len) < 0)
		return -errno;
	if (!reason)
		reason = pv_sock_rule(PV_RULE_UDP_CONNECT, to, kernel_name(so, &name) ? NULL : &name);
	if (!so->retired && reason) {
		pv_leg_retire(so, reason, *reason == ' ' ? &to->addr : NULL);
	} else if (!so->retired) {
		rc = take_peer(so, to);
		if (rc == -EXDEV || rc == -ENETUNREACH || rc == -EHOSTUNREACH)
			pv_leg_retire(so, " is the kernel's", &to->addr);
		else if (rc)
			left_alone(so, rc);
		else
			took_over(so);
	}
	so->bound = true;
	pv_net_kick(pv_engine.net);
	pv_engine_timers(&pv_engine);
	return 0;
}

int pv_leg_disconnect(struct pv_sock *so, const struct sockaddr *addr, socklen_t len)
{
	struct pv_endpoint name = { .port = 0 };

	if (connect(pv_sock_kfd(so), addr, len) < 0)
		return -errno;
	so->bound = kernel_name(so, &name) == 0 && name.port;
	if (so->retired)
		return 0;
	pv_udp_connect(so->u, NULL, 0);
	so->dg->peer_gen = 0;
	pv_decide_core(so, true, true);
	return 0;
}

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

/* One host's address: the stack asks the kernel for the route, and says when it is not the one to send. */
bool pv_leg_route(struct pv_sock *so, const struct pv_endpoint *to)
{
	if (pv_opt_kernel_reason(so))
		return false;
	if (pv_addr_is_mcast(&to->addr) || pv_addr_is_any(&to->addr) || pv_net_is_broadcast(pv_engine.net, &to->addr))
		return pv_decide_route(so, to);
	return true;
}

/* Errors about the way there: the same until routes or interfaces change. */
static bool lasts(int64_t rc)
{
	return rc == -EXDEV || rc == -ENETUNREACH || rc == -EADDRNOTAVAIL || rc == -ENODEV;
}

bool pv_leg_ask_kernel(struct pv_sock *so, const struct pv_endpoint *to, int64_t rc)
{
	struct pv_endpoint peer;

	/* The ring's device is gone, and may not say so by its fd: who reads its events looks now. */
	if (rc == -ENODEV && pv_engine.have_thread)
		pv_engine_wake(&pv_engine.progress);
	switch (rc) {
	case -ENOBUFS:
	case -EAGAIN:
	case -EINTR:
	case -EBADF:
	case -EMSGSIZE:
		return false;
	}
	if (!so->host)
		return false;
	if (!to && !pv_udp_remote(so->u, &peer))
		return true;
	if (pv_decide_static(to ? &to->addr : &peer.addr))
		return false;
	if (!lasts(rc))
		return true;
	if (to) {
		so->dg->last_dst = to->addr;
		so->dg->last_iface = to->iface;
		so->dg->last_core = false;
		so->dg->last_gen = pv_net_gen_of(pv_engine.net);
	} else {
		so->tx_core = false;
		so->dg->peer_gen = pv_net_gen_of(pv_engine.net);
	}
	return true;
}

void pv_leg_options(struct pv_sock *so)
{
	struct pv_endpoint peer;

	so->dg->last_gen = so->dg->peer_gen = 0;
	if (so->host && !so->retired && so->bound)
		so->tx_core = !pv_opt_kernel_reason(so) && (!pv_udp_remote(so->u, &peer) || pv_decide_route(so, &peer));
}

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

int pv_leg_error(struct pv_sock *so, int64_t now_ns)
{
	int err = pv_udp_error(so->u);
	socklen_t len = sizeof(err);

	/* A neighbour that did not answer. */
	if (err)
		return -err;
	if (now_ns - so->dg->error_seen_ns < ERROR_LOOK_NS)
		return 0;
	so->dg->error_seen_ns = now_ns;
	if (getsockopt(pv_sock_kfd(so), SOL_SOCKET, SO_ERROR, &err, &len) < 0 || !err)
		return 0;
	pv_leg_saw_error(so, -err);
	pv_ready_update(so);
	return -err;
}

void pv_leg_saw_error(struct pv_sock *so, int rc)
{
	struct pv_endpoint peer;
	int mtu = 0;
	socklen_t len = sizeof(mtu);

	if (rc != -EMSGSIZE || !so->host || !pv_udp_remote(so->u, &peer))
		return;
	bool is4 = pv_addr_is4(&peer.addr);

	if (getsockopt(pv_sock_kfd(so), is4 ? IPPROTO_IP : IPPROTO_IPV6, is4 ? IP_MTU : IPV6_MTU, &mtu, &len) == 0 && mtu > 0)
		pv_host_pmtu(&pv_engine, &peer.addr, (uint32_t)mtu);
}

void pv_leg_saw_queue(struct pv_sock *so, const struct msghdr *msg)
{
	struct msghdr own = *msg; /* CMSG_NXTHDR wants a header that it may write to */
	struct pv_endpoint to;

	if (!so->host || !((msg->msg_name && pv_addr_parse(so, msg->msg_name, msg->msg_namelen, &to)) || pv_udp_remote(so->u, &to)))
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&own); c; c = CMSG_NXTHDR(&own, c)) {
		struct sock_extended_err ee;
		bool is_err = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
			      (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);

		if (!is_err || c->cmsg_len < CMSG_LEN(sizeof(ee)))
			continue;
		memcpy(&ee, CMSG_DATA(c), sizeof(ee));
		if (ee.ee_errno == EMSGSIZE && ee.ee_info)
			pv_host_pmtu(&pv_engine, &to.addr, ee.ee_info);
	}
}

/* ---- fork -------------------------------------------------------------------------------------------------------------- */

void pv_leg_left(struct pv_sock *so, const char *why)
{
	so->retired = false;
	pv_shown_reason(so, why, NULL);
	atomic_store_explicit(&so->mode, PV_SOCK_KERNEL, memory_order_release);
	pv_shown_update(so);
}
