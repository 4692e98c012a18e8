/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: bind, listen, connect, close, names, and what may be asked by ioctl. */
#include "sock/pacing.h"
#include "sock/stream.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rt/error.h"
#include "rt/wait.h"
#include "sock/epoll.h"
#include "sock/handback.h"
#include "sock/kernel.h"
#include "sock/kin.h"
#include "sock/lane.h"
#include "sock/prefork.h"
#include "sock/rule.h"
#include "sock/shown.h"
#include "sock/stamp.h"

#define PORT_TRIES 64
#define PORT_PRIVILEGED 1024

static int64_t now(void)
{
	return pv_clock_now(&pv_engine.clock);
}

/* After calls that posted, set timers, or have something to tell those who wait. */
static void done(struct pv_sock *so)
{
	if (pv_unlikely(!pv_engine.stack))
		return;
	pv_engine_route(&pv_engine);
	pv_net_kick(pv_engine.net);
	pv_engine_timers(&pv_engine);
	pv_ready_update(so);
}

/* A look at what has come, before calls whose answer it may be: in the kernel it would be the socket's by now. */
static void see(void)
{
	(void)pv_engine_poll(&pv_engine, now());
}

/* ---- whose is it? ------------------------------------------------------------------------------------------------------ */

static bool engine_runs(const struct pv_sock *so)
{
	return pv_sock_mode(so) != PV_SOCK_KERNEL && pv_engine_state() == PV_ENGINE_RUNNING;
}

/* Interfaces of our own only: on those that the kernel owns streams are its. */
static bool ours_to(const struct pv_sock *so, const struct pv_endpoint *to)
{
	bool kernels;
	uint32_t device = pv_decide_device(so, &kernels);

	if (device && !pv_iface_is_host(device))
		return true;
	if (kernels || pv_addr_is_any(&to->addr) || pv_addr_is_mcast(&to->addr))
		return false;
	if (to->iface)
		return !pv_iface_is_host(to->iface);
	return !pv_addr_is_linklocal6(&to->addr) && pv_decide_static(&to->addr);
}

int pv_stream_open(struct pv_sock *so)
{
	int rc;

	if (so->tc)
		return 0;
	rc = pv_tcp_open(pv_engine.tcp, (enum pv_family)so->family, &so->watch, &so->tc);
	if (!rc)
		pv_stream_import(so);
	pv_shown_update(so);
	return rc;
}

void pv_stream_drop(struct pv_sock *so)
{
	if (!so->tc)
		return;
	if (so->hold)
		(void)pv_kfd_unhold(so->hold);
	if (pv_prefork_shared())
		pv_enqueue_all(so);
	pv_pacing_end(so);
	pv_lane_end(so);
	pv_tcp_close(so->tc, now());
	so->tc = NULL;
	pv_list_del(&so->on_core);
	pv_shown_update(so);
}

void pv_stream_close(struct pv_sock *so)
{
	struct pv_endpoint local;

	if (!so->tc)
		return;
	pv_tcp_local(so->tc, &local);
	pv_stream_drop(so);
	if (pv_unlikely(so->host))
		pv_stream_host_keep(so, &local);
}

void pv_stream_decide(struct pv_sock *so, bool kernel_leg)
{
	so->core_leg = true;
	so->kernel_leg = kernel_leg;
	if (pv_list_empty(&so->on_core))
		pv_list_add(&pv_core_socks, &so->on_core);
	pv_trace_note(pv_engine.trace, .kind = PV_TRACE_socket, .id = (uintptr_t)so->tc, .proto = PV_PROTO_TCP,
		      .a = PV_TRACE_OFFLOADED, .b = (uint32_t)PV_MAX(pv_sock_kfd_made(so), 0));
	atomic_store_explicit(&so->mode, PV_SOCK_STREAM, memory_order_release);
	pv_shown_update(so);
	if (so->notes)
		pv_kfd_forget(so);
	pv_ready_update(so);
	pv_epoll_moved(so);
	pv_lane_update(so);
}

static void is_kernels(struct pv_sock *so, const char *reason, const struct pv_addr *addr)
{
	pv_stream_drop(so);
	pv_decide_kernel(so, reason, addr);
}

/* ---- bind -------------------------------------------------------------------------------------------------------------- */

static int kernel_bind(struct pv_sock *so, const struct pv_endpoint *ep)
{
	struct sockaddr_storage ss;
	socklen_t len = pv_addr_format(so->family, ep, &ss, sizeof(ss));

	return pv_late_bind(so, (struct sockaddr *)&ss, len);
}

/* All addresses: one port in both. Without a number the kernel chooses, and the stack must agree. */
static int bind_both(struct pv_sock *so, const struct pv_endpoint *ep)
{
	int rc = -EADDRINUSE;

	for (int tries = 0; tries < PORT_TRIES; tries++) {
		struct pv_endpoint at = *ep;

		rc = pv_stream_open(so);
		if (!rc)
			rc = pv_tcp_bind(so->tc, &at);
		if (!rc) {
			pv_tcp_local(so->tc, &at);
			at.addr = ep->addr;
			rc = kernel_bind(so, &at);
		}
		if (!rc) {
			so->bound = true;
			if (pv_list_empty(&so->on_core))
				pv_list_add(&pv_core_socks, &so->on_core);
			return 0;
		}
		pv_stream_close(so);
		if (rc != -EADDRINUSE || ep->port)
			break;
	}
	return rc;
}

/* IP_BIND_ADDRESS_NO_PORT: connect(2) takes a port then, of which it is enough that this peer has none from it. */
static int bind_stack(struct pv_sock *so, const struct pv_endpoint *ep)
{
	return !ep->port && pv_tcp_options(so->tc)->bind_no_port ? pv_tcp_bind_address(so->tc, ep) : pv_tcp_bind(so->tc, ep);
}

/* Neither an address nor a port: it is as if nobody had called. */
static int bind_any(struct pv_sock *so, const struct pv_endpoint *ep)
{
	if (pv_stream_open(so) || ep->port || !pv_tcp_options(so->tc)->bind_no_port)
		return bind_both(so, ep);
	pv_stream_close(so);
	return 0;
}

static int bind_ours(struct pv_sock *so, const struct pv_endpoint *ep)
{
	struct pv_endpoint local;
	int rc = pv_stream_open(so), one = 1;

	if (!rc)
		rc = bind_stack(so, ep);
	if (rc) {
		pv_stream_close(so);
		return rc;
	}
	/* The kernel's getsockname shall say the same, where the kernel lets us and there is a kernel socket. A port that is not for everybody
	 * is an error. */
	pv_tcp_local(so->tc, &local);
	if (pv_sock_kfd_made(so) < 0 && (!local.port || local.port >= PORT_PRIVILEGED))
		goto done;
	setsockopt(pv_sock_kfd(so), IPPROTO_IP, IP_FREEBIND, &one, sizeof(one));
	rc = kernel_bind(so, &local);
	one = 0;
	setsockopt(pv_sock_kfd(so), IPPROTO_IP, IP_FREEBIND, &one, sizeof(one));
	if (rc == -EACCES) {
		pv_stream_close(so);
		return rc;
	}
done:
	so->bound = true;
	pv_stream_decide(so, false);
	return 0;
}

static int bind_locked(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len)
{
	uint32_t device, owner;
	bool kernels;
	int rc;

	if (ep->port)
		(void)pv_tcp_reserve_give_up(pv_engine.tcp, ep->port);
	/* Its port may be free again after a connection that has failed. */
	if (pv_sock_mode(so) == PV_SOCK_STREAM && !so->host && so->family == AF_INET6 && pv_tcp_has_port(so->tc))
		return -EINVAL;
	if (pv_sock_mode(so) == PV_SOCK_STREAM && !so->host)
		return bind_stack(so, ep);
	if (so->bound)
		return pv_name_twice(so, ep);
	pv_decide_kernel_read(so);
	device = pv_decide_device(so, &kernels);
	if (!kernels && pv_addr_is_any(&ep->addr))
		return pv_leg_engine() && (!device || pv_iface_is_host(device)) ? pv_stream_host_bind(so, ep) : bind_any(so, ep);
	owner = ep->iface ? ep->iface : pv_net_addr_owner(pv_engine.net, &ep->addr);
	if (owner && !pv_iface_is_host(owner))
		return bind_ours(so, ep);
	if (owner && !kernels)
		return pv_stream_host_bind(so, ep);
	if (pv_leg_engine())
		return pv_stream_host_bind_kernel(so, ep, addr, len);
	rc = pv_decide_may_kernel(&ep->addr);
	if (rc)
		return rc;
	rc = pv_late_bind(so, addr, len);
	if (rc)
		return rc;
	is_kernels(so, " is the kernel's", &ep->addr);
	return 0;
}

/* Not an address that the stack knows what to do with, as a link-local one of an interface that is not offloaded: the kernel's error, or
 * its socket, unless that is the stack's already. */
static int bind_foreign(struct pv_sock *so, const struct sockaddr *addr, socklen_t len)
{
	int rc = pv_engine.cfg->strict ? pv_error(-EOPNOTSUPP, "strict: that address is on no offloaded interface") : 0;

	if (!rc)
		rc = pv_late_bind(so, addr, len);
	if (!rc && !so->tc)
		is_kernels(so, "bound to an address that is the kernel's", NULL);
	return rc;
}

int pv_stream_bind(struct pyvma_sock *h, struct pv_sock *so, const struct sockaddr *addr, socklen_t len)
{
	struct pv_endpoint ep;
	bool ours = engine_runs(so) && pv_addr_parse(so, addr, len, &ep) && addr->sa_family == so->family;
	int rc;

	if (!ours && (!engine_runs(so) || pv_sock_mode(so) != PV_SOCK_UNDECIDED))
		return so->dead ? pv_sock_lock_failed(NULL, so) : pv_late_bind(so, addr, len);
	rc = pv_stream_lock_any(h, so);
	if (rc)
		return rc;
	rc = ours ? bind_locked(so, &ep, addr, len) : bind_foreign(so, addr, len);
	pv_sock_unlock();
	return rc;
}

/* ---- listen ------------------------------------------------------------------------------------------------------------ */

/* Bound, and not the stack's alone. */
static void listen_rule(struct pv_sock *so)
{
	struct pv_endpoint local;
	const char *rule;

	pv_tcp_local(so->tc, &local);
	rule = pv_sock_rule(PV_RULE_TCP_SERVER, &local, NULL);
	if (rule)
		pv_stream_give(so, rule, NULL);
}

static int listen_locked(struct pv_sock *so, int backlog)
{
	struct pv_endpoint any = { 0 };
	bool both;
	int rc = 0;

	if (so->family == AF_INET)
		any.addr.w[2] = PV_ADDR_MAPPED_W2;
	if (!so->tc)
		rc = pv_leg_engine() ? pv_stream_host_bind(so, &any) : bind_both(so, &any);
	both = pv_sock_mode(so) != PV_SOCK_STREAM || so->kernel_leg;
	if (!rc && so->tc && pv_sock_mode(so) != PV_SOCK_STREAM)
		listen_rule(so);
	if (!rc && so->tc)
		rc = so->host ? pv_stream_host_listen(so, backlog) : pv_tcp_listen(so->tc, backlog);
	if (!rc && both && listen(pv_sock_kfd(so), backlog) < 0)
		rc = -errno;
	if (!rc && so->tc)
		pv_stream_decide(so, both);
	return rc;
}

int pyvma_sock_listen(pyvma_sock *h, int backlog)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc;

	if (!so)
		return -EBADF;
	if (!so->stream || !engine_runs(so)) {
		rc = so->dead ? pv_sock_lock_failed(NULL, so) : PV_HANDED;
	} else {
		rc = pv_stream_lock_any(h, so);
		if (!rc) {
			rc = listen_locked(so, backlog);
			pv_sock_unlock();
		}
	}
	return rc != PV_HANDED ? rc : listen(pv_sock_kfd(so), backlog) < 0 ? -errno : 0;
}

/* ---- connect ----------------------------------------------------------------------------------------------------------- */

static bool connecting(const struct pv_tcp *tc)
{
	enum pv_tcp_state s = pv_tcp_state(tc);

	return s == PV_TCP_SYN_SENT || s == PV_TCP_SYN_RCVD;
}

/* Waits for the handshake's end: 0 or what became of it. */
static int connect_wait(struct pyvma_sock *h, struct pv_sock *so, int64_t timeout_ns)
{
	uint32_t gen = h->gen;
	struct pv_wait w;
	int rc = 0;

	pv_wait_init(&w, &so->watch, timeout_ns < 0 && so->sndtimeo_ns ? so->sndtimeo_ns : timeout_ns);
	while (connecting(so->tc) && !rc) {
		pv_engine_timers(&pv_engine);
		rc = pv_wait(&pv_engine, &w);
		if (h->gen != gen || pv_handle_sock(h) != so || !so->tc) {
			rc = pv_sock_gone(h, so, gen);
			pv_wait_fini(&pv_engine, &w);
			return rc;
		}
	}
	pv_wait_fini(&pv_engine, &w);
	if (connecting(so->tc))
		return rc == -ETIMEDOUT ? -EINPROGRESS : rc;
	return -pv_tcp_error(so->tc);
}

static int connect_ours(struct pyvma_sock *h, struct pv_sock *so, const struct pv_endpoint *to, int64_t timeout_ns)
{
	int rc = pv_stream_open(so);
	bool again;

	if (!rc)
		rc = pv_tcp_connect(so->tc, to, now());
	again = rc == -EALREADY;
	if (so->host)
		rc = pv_stream_host_refused(so, to, rc);
	if (rc && rc != -EINPROGRESS && rc != -EALREADY) {
		if (pv_sock_mode(so) != PV_SOCK_STREAM && !so->bound)
			pv_stream_close(so);
		return rc;
	}
	so->bound = true;
	pv_stream_decide(so, false);
	done(so);
	if (!rc || timeout_ns == 0 || pv_sock_nonblock(so))
		return rc;
	rc = connect_wait(h, so, timeout_ns);
	if (rc == PV_HANDED)
		return 0; /* what is not connected is not handed back */
	/* How it ended is told once, and this call tells it; one with a limit is the program's to ask, as with any that does not block. */
	if (!rc || (timeout_ns < 0 && !pv_sock_is_over(rc)))
		(void)pv_tcp_connect(so->tc, to, now());
	if (!pv_sock_is_over(rc))
		pv_ready_update(so);
	return rc == -EINPROGRESS && again && timeout_ns < 0 ? -EALREADY : rc;
}

/* 1: the kernel is to do it. */
static int connect_locked(struct pyvma_sock *h, struct pv_sock *so, const struct pv_endpoint *to, int64_t timeout_ns)
{
	bool again = pv_sock_mode(so) == PV_SOCK_STREAM;
	int rc;

	if (again ? !so->host || !pv_tcp_idle(so->tc) : ours_to(so, to))
		return connect_ours(h, so, to, timeout_ns);
	if (pv_leg_engine()) {
		rc = pv_stream_host_connect(so, to);
		return rc == 1 ? connect_ours(h, so, to, timeout_ns) : rc ? rc : 1;
	}
	rc = pv_decide_may_kernel(&to->addr);
	if (rc)
		return rc;
	is_kernels(so, " is the kernel's", &to->addr);
	return 1;
}

int pv_stream_connect(struct pyvma_sock *h, struct pv_sock *so, const struct sockaddr *addr, socklen_t len, int64_t timeout_ns)
{
	bool unspec = addr && len >= sizeof(sa_family_t) && addr->sa_family == AF_UNSPEC;
	struct pv_endpoint to;
	bool odd;
	int rc;

	if (so->dead)
		return pv_sock_lock_failed(NULL, so);
	odd = !unspec && (!pv_addr_parse(so, addr, len, &to) || addr->sa_family != so->family);
	if (!engine_runs(so) || (odd && (pv_sock_mode(so) != PV_SOCK_STREAM || !addr || len < sizeof(sa_family_t))))
		return pv_kernel_connect(pv_sock_kfd(so), addr, len, timeout_ns);
	rc = pv_stream_lock_any(h, so);
	if (rc)
		return rc;
	if (odd) {
		/* The state is looked at before the address, and what is wrong with that the kernel knows. */
		rc = pv_tcp_connect(so->tc, NULL, now());
		done(so);
		pv_sock_unlock();
		return rc == -EINVAL ? pv_kernel_connect(pv_sock_kfd(so), addr, len, timeout_ns) : rc;
	}
	if (unspec && pv_sock_mode(so) == PV_SOCK_STREAM) {
		rc = pv_tcp_disconnect(so->tc, now());
		if ((so->host || so->kernel_leg) && pv_sock_kfd_made(so) >= 0)
			(void)connect(pv_sock_kfd(so), addr, len);
		done(so);
		pv_sock_unlock();
		return rc;
	}
	rc = unspec ? 0 : connect_locked(h, so, &to, timeout_ns);
	pv_sock_unlock();
	return unspec || rc == 1 ? pv_kernel_connect(pv_sock_kfd(so), addr, len, timeout_ns) : rc;
}

/* 0: the stack's; 1: it would be the kernel's, which is decided with that. */
static int stream_would(struct pv_sock *so, const struct pv_endpoint *to)
{
	int rc;

	pv_decide_kernel_read(so);
	if (ours_to(so, to))
		return 0;
	if (pv_leg_engine())
		return pv_stream_host_would(so, to);
	rc = pv_decide_may_kernel(&to->addr);
	if (!rc)
		is_kernels(so, " is the kernel's", &to->addr);
	return rc ? rc : 1;
}

int pyvma_sock_would(pyvma_sock *h, const struct sockaddr *addr, socklen_t len)
{
	struct pv_sock *so = pv_handle_sock(h);
	struct pv_endpoint to;
	int rc = 1;

	if (!so)
		return -EBADF;
	if (pv_sock_is_ours(so))
		return PYVMA_OFFLOADED;
	if (!so->candidate || !engine_runs(so) || !pv_addr_parse(so, addr, len, &to))
		return PYVMA_KERNEL;
	pv_lock_get(&pv_engine.lock);
	if (pv_engine.stack && pv_handle_sock(h) == so && so->stream) {
		rc = stream_would(so, &to);
	} else if (pv_engine.stack && pv_handle_sock(h) == so) {
		pv_decide_kernel_read(so);
		rc = !pv_decide_route(so, &to);
	}
	pv_sock_unlock();
	return rc < 0 ? rc : rc ? PYVMA_KERNEL : PYVMA_OFFLOADED;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------------- */

int pv_stream_shutdown(struct pyvma_sock *h, struct pv_sock *so, int how)
{
	int rc = how < SHUT_RD || how > SHUT_RDWR ? -EINVAL : pv_stream_lock(h, so);

	if (rc)
		return rc;
	see();
	rc = pv_tcp_shutdown(so->tc, (uint32_t)how + 1, now());
	if (so->kernel_leg)
		(void)shutdown(pv_sock_kfd(so), how);
	done(so);
	pv_sock_unlock();
	return rc;
}

static bool fin_under_way(const struct pv_tcp *tc)
{
	enum pv_tcp_state s = pv_tcp_state(tc);

	return s == PV_TCP_FIN_WAIT_1 || s == PV_TCP_CLOSING || s == PV_TCP_LAST_ACK;
}

void pv_stream_linger(struct pyvma_sock *h, struct pv_sock *so)
{
	const struct pv_tcp_opts *o;
	uint32_t gen = h->gen;
	struct pv_wait w;

	/* A child's close ends nothing: its parent has the connection, and is not asked for what is not used. */
	if (pv_engine_state() == PV_ENGINE_FORKED || pv_stream_lock(h, so))
		return;
	see(); /* what has come and was not looked at is not read, either */
	o = pv_tcp_options(so->tc);
	/* What is not read is lost: that is a reset, which waits for nothing. */
	if (o->linger && o->linger_s && !pv_tcp_inq(so->tc) && !pv_kin_has(so)) {
		pv_wait_init(&w, &so->watch, o->linger_s * PV_NS_PER_S);
		if (pv_tcp_state(so->tc) == PV_TCP_ESTABLISHED || pv_tcp_state(so->tc) == PV_TCP_CLOSE_WAIT)
			(void)pv_tcp_shutdown(so->tc, 2, now());
		while (fin_under_way(so->tc)) {
			done(so);
			if (pv_wait(&pv_engine, &w) || !pv_sock_same(h, so, gen))
				break;
		}
		pv_wait_fini(&pv_engine, &w);
	}
	pv_sock_unlock();
}

int pv_stream_ioctl(struct pyvma_sock *h, struct pv_sock *so, unsigned long request, void *arg)
{
	int rc, val;

	if (request != FIONREAD && request != SIOCOUTQ && request != SIOCOUTQNSD && request != SIOCATMARK)
		return -ENOPROTOOPT;
	rc = pv_stream_lock(h, so);
	if (rc)
		return rc;
	pv_engine_poll(&pv_engine, now());
	switch (request) {
	case FIONREAD:
		val = (int)pv_tcp_inq(so->tc);
		break;
	case SIOCOUTQ:
		val = (int)pv_tcp_outq(so->tc);
		break;
	case SIOCOUTQNSD:
		val = (int)pv_tcp_outq_nsd(so->tc);
		break;
	default:
		val = pv_tcp_at_mark(so->tc);
	}
	/* tcp_ioctl in Linux. */
	if (pv_tcp_state(so->tc) == PV_TCP_LISTEN && request != SIOCATMARK)
		rc = -EINVAL;
	pv_sock_unlock();
	if (rc)
		return rc;
	if (!arg)
		return -EFAULT;
	memcpy(arg, &val, sizeof(val));
	return 0;
}
