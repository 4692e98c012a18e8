/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams on interfaces that the kernel owns.
 *
 * The kernel socket beneath is bound first, as the program asked or, for a connect, to the source address of the route and a port that the
 * kernel chooses; the stack takes over that name. So the kernel keeps the port for us, checks every argument, and its errors are the
 * program's. A connection is the stack's alone: its flow is steered to us before the first segment leaves, or the kernel would reset
 * what it has no connection for. A listener listens in both, and the kernel has those that come by another way, or for want of a rule.
 * What cannot be had of an interface leaves the socket to the kernel, with the reason. Whose kernel socket keeps the port: hold.c.
 */
#include <netinet/in.h>

#include "rt/error.h"
#include "rt/host.h"
#include "sock/rule.h"
#include "sock/stream.h"

#define PORT_TRIES 64

/* ---- names ------------------------------------------------------------------------------------------------------------- */

static int kernel_name(int fd, const struct pv_sock *so, struct pv_endpoint *out)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return -errno;
	return pv_addr_parse(so, (struct sockaddr *)&ss, len, out) ? 0 : -EADDRNOTAVAIL;
}

static int kernel_bind(const struct pv_sock *so, const struct pv_endpoint *ep)
{
	struct sockaddr_storage ss;
	socklen_t len = pv_addr_format(so->family, ep, &ss, sizeof(ss));

	return pv_late_bind(so, (struct sockaddr *)&ss, len);
}

/* A port that the kernel chose goes with the end of what the socket does; one that does nothing has to begin with something. */
static void kernel_unbind(int fd)
{
	const struct sockaddr un = { .sa_family = AF_UNSPEC };

	(void)listen(fd, 0);
	(void)connect(fd, &un, sizeof(un));
}

/* Of a name that we chose nothing is left: neither the port nor the address, which would be the source of whatever comes. */
static void kernel_unname(int fd, const struct pv_sock *so)
{
	struct pv_endpoint any = { .port = 0 };
	int no_port = 1;

	if (so->family == AF_INET)
		any.addr.w[2] = PV_ADDR_MAPPED_W2;
	kernel_unbind(fd);
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &no_port, sizeof(no_port));
	(void)kernel_bind(so, &any);
	no_port = 0;
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &no_port, sizeof(no_port));
}

/* ---- left to the kernel ------------------------------------------------------------------------------------------------ */

void pv_stream_give(struct pv_sock *so, const char *reason, const struct pv_addr *addr)
{
	pv_stream_drop(so);
	if (so->name_chosen)
		kernel_unname(pv_sock_kfd(so), so);
	so->host = so->name_chosen = false;
	pv_decide_kernel(so, reason, addr);
}

/* `reason` may begin with a space: then the address goes before it. */
static int leave(struct pv_sock *so, const char *reason, const struct pv_addr *addr)
{
	int rc = 0;

	if (*reason == ' ')
		rc = pv_decide_may_kernel(addr);
	else if (pv_engine.cfg->strict)
		rc = pv_error(-EOPNOTSUPP, "strict: %s", reason);
	if (!rc)
		pv_stream_give(so, reason, *reason == ' ' ? addr : NULL);
	return rc;
}

/* The route's or the address's interface is the kernel's alone: why? */
static const char *kernel_reason(const struct pv_addr *addr, bool dst)
{
	const char *text = dst ? pv_host_reason_to(&pv_engine, addr) : pv_host_reason(&pv_engine, addr);

	return text ? text : " is the kernel's";
}

/* ---- bind -------------------------------------------------------------------------------------------------------------- */

static int stack_bind(struct pv_sock *so, const struct pv_endpoint *ep)
{
	int rc = pv_stream_open(so);

	if (rc)
		return rc;
	rc = pv_tcp_bind(so->tc, ep);
	if (rc)
		pv_stream_drop(so);
	return rc;
}

/* The stack's half gets the address asked for and the kernel socket's port. */
static int take_name(struct pv_sock *so, const struct pv_endpoint *ep)
{
	struct pv_endpoint local = *ep, name;
	int rc = kernel_name(pv_sock_kfd(so), so, &name);

	if (rc || !name.port)
		return rc ? rc : -EADDRINUSE;
	local.port = name.port;
	return stack_bind(so, &local);
}

/* A port by its number. What still lives on it in the stack the kernel does not know. */
static int bind_number(struct pv_sock *so, const struct pv_endpoint *ep, int *left)
{
	int rc;

	*left = stack_bind(so, ep);
	if (*left == -EADDRINUSE)
		return *left;
	rc = kernel_bind(so, ep);
	if (rc)
		pv_stream_drop(so);
	return rc;
}

/* Both to one name. `*left`: why the stack could not follow, 0 when it did. What bind(2) says, or 0. */
static int bind_both(struct pv_sock *so, const struct pv_endpoint *ep, int *left)
{
	if (ep->port)
		return bind_number(so, ep, left);
	for (int tries = 0;; tries++) {
		int rc = kernel_bind(so, ep);

		if (rc)
			return rc;
		*left = take_name(so, ep);
		if (*left != -EADDRINUSE || tries >= PORT_TRIES)
			return 0;
		kernel_unbind(pv_sock_kfd(so));
	}
}

int pv_stream_host_bind(struct pv_sock *so, const struct pv_endpoint *ep)
{
	const char *reason = pv_opt_kernel_reason(so);
	int left = 0, rc;

	if (reason) {
		rc = pv_engine.cfg->strict ? leave(so, reason, NULL) : kernel_bind(so, ep);
		return rc ? rc : leave(so, reason, NULL);
	}
	rc = bind_both(so, ep, &left);
	if (rc)
		return rc;
	if (left)
		return leave(so, pv_leg_why_not(left), NULL);
	if (!ep->port)
		pv_tcp_name_chosen(so->tc, false, true);
	so->bound = so->host = true;
	if (pv_list_empty(&so->on_core))
		pv_list_add(&pv_core_socks, &so->on_core);
	return 0;
}

int pv_stream_host_bind_kernel(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len)
{
	const char *reason = kernel_reason(&ep->addr, false);
	int rc = *reason == ' ' ? pv_decide_may_kernel(&ep->addr) : pv_engine.cfg->strict ? leave(so, reason, NULL) : 0;

	if (rc)
		return rc;
	rc = pv_late_bind(so, addr, len);
	return rc ? rc : leave(so, reason, &ep->addr);
}

/* ---- listen ------------------------------------------------------------------------------------------------------------ */

static bool of_the_ring(int rc)
{
	return rc && rc != -EADDRINUSE && rc != -EINVAL;
}

int pv_stream_host_listen(struct pv_sock *so, int backlog)
{
	/* The rule first: were the kernel to listen before, it would have half of a handshake of which the rest comes to us. */
	int rc = pv_tcp_listen(so->tc, backlog);

	return of_the_ring(rc) ? leave(so, pv_leg_why_not(rc), NULL) : rc;
}

/* ---- connect ----------------------------------------------------------------------------------------------------------- */

/* Which way the kernel would go: one of our rings, from which address? NULL: yes. Else why not. */
static const char *route(struct pv_sock *so, const struct pv_endpoint *to, uint32_t device, struct pv_path *path)
{
	struct pv_path_query q = {
		.dst = to->addr, .iface = device ? device : to->iface, .dst_port = to->port, .proto = PV_PROTO_TCP, .recent = true
	};
	struct pv_endpoint local;

	if (so->tc) {
		pv_tcp_local(so->tc, &local);
		q.src_port = local.port;
		if (!pv_addr_is_any(&local.addr))
			q.src = local.addr;
	}
	if (pv_addr_is_linklocal6(&to->addr) && !q.iface)
		return " is the kernel's";
	if (pv_net_path(pv_engine.net, &q, pv_clock_now(&pv_engine.clock), path) || !pv_iface_is_host(path->iface) ||
	    path->is_bcast || path->is_mcast || path->is_local)
		return kernel_reason(&to->addr, true);
	if (path->ring->caps.rx_partial)
		return "not all of the interface's receive queues are ours";
	return NULL;
}

/* A name for a socket that has none: the kernel's choice of a port at the route's address. */
static int bind_source(struct pv_sock *so, const struct pv_endpoint *to, const struct pv_path *path, int *left)
{
	struct pv_endpoint source = { .addr = path->src };
	bool v6only;
	int rc;

	if (pv_addr_is_linklocal6(&path->src))
		source.iface = path->iface;
	if (so->name_chosen) /* in an attempt before this one */
		kernel_unbind(pv_sock_kfd(so));
	rc = pv_stream_open(so); /* before there is a kernel socket of which all options are read */
	if (rc)
		return rc;
	v6only = pv_tcp_options(so->tc)->v6only;
	*left = pv_stream_host_reserved(so, to, path);
	if (*left == -EAGAIN) {
		*left = 0;
		rc = bind_both(so, &source, left);
		so->name_chosen = !rc && !*left;
	}
	if (rc || *left)
		return rc;
	pv_tcp_name_chosen(so->tc, true, true);
	/* It is bind(2) that makes an address of one family of it (inet6_bind). */
	pv_tcp_options(so->tc)->v6only = v6only;
	so->bound = so->host = true;
	return 0;
}

/* Why it would be the kernel's; NULL: it would not. */
static const char *refusal(struct pv_sock *so, const struct pv_endpoint *to, struct pv_path *path)
{
	const char *reason = pv_opt_kernel_reason(so);
	bool kernels;
	uint32_t device;

	pv_decide_kernel_read(so);
	device = pv_decide_device(so, &kernels);
	if (reason)
		return reason;
	return kernels ? "bound to a device of the kernel" : route(so, to, device, path);
}

/* The way is known. A rule's wish that the connection be the kernel's. */
static const char *ruled(const struct pv_sock *so, const struct pv_endpoint *to, const struct pv_path *path)
{
	struct pv_endpoint local = { .port = 0 };

	if (so->tc)
		pv_tcp_local(so->tc, &local);
	if (!so->tc || pv_addr_is_any(&local.addr))
		local.addr = path->src;
	return pv_sock_rule(PV_RULE_TCP_CLIENT, to, &local);
}

int pv_stream_host_would(struct pv_sock *so, const struct pv_endpoint *to)
{
	struct pv_path path;
	const char *reason = refusal(so, to, &path), *rule = reason ? NULL : ruled(so, to, &path);
	int rc = reason ? leave(so, reason, &to->addr) : 0;

	if (rule)
		pv_stream_give(so, rule, NULL);
	return rc ? rc : reason || rule;
}

int pv_stream_host_connect(struct pv_sock *so, const struct pv_endpoint *to)
{
	struct pv_path path;
	const char *reason = refusal(so, to, &path), *rule = reason ? NULL : ruled(so, to, &path);
	int left = 0, rc;

	if (rule) {
		pv_stream_give(so, rule, NULL);
		return 0;
	}
	if (!reason && (!so->tc || pv_tcp_idle(so->tc))) {
		rc = bind_source(so, to, &path, &left);
		/* An address that no socket can be bound to (IP_FREEBIND's, a v6-only one's): the kernel says what is wrong with it. */
		if (rc)
			reason = " is the kernel's";
		else if (left)
			reason = pv_leg_why_not(left);
	}
	if (!reason)
		return 1;
	rc = leave(so, reason, &to->addr);
	return rc;
}

int pv_stream_host_refused(struct pv_sock *so, const struct pv_endpoint *to, int rc)
{
	switch (rc) {
	case 0:
	case -EINPROGRESS:
	case -EALREADY:
	case -EISCONN:
	case -EINVAL:
	case -EADDRINUSE:
	case -EADDRNOTAVAIL:
	case -EAFNOSUPPORT:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ECONNABORTED:
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return rc;
	}
	rc = leave(so, rc == -EXDEV ? " is the kernel's" : pv_leg_why_not(rc), &to->addr);
	return rc ? rc : 1;
}
