/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hand-back: a live connection of the stack's becomes the kernel's, with its numbers, options and queues; its peer notices nothing.
 *
 * All under the engine's lock, so that nobody else touches stack or ring meanwhile:
 *   1. what has come is taken in, and what was posted leaves;
 *   2. the kernel socket beneath becomes the connection, in repair mode (repair.c): from then on the kernel has somebody for its segments;
 *   3. the stack's half goes, its flow rules first: what comes now is the kernel's, what lies in the ring is dropped (tcp/export.c);
 *   4. the kernel's half leaves the repair mode, and asks the peer where it stands.
 * Up to 2 everything can be taken back. Whoever waits in a call on the socket goes on by the kernel (PV_HANDED).
 */
#include "sock/handback.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net/stamp.h"
#include "net/txlane.h"
#include "rt/error.h"
#include "rt/log.h"
#include "sock/epoll.h"
#include "sock/kin.h"
#include "sock/lane.h"
#include "sock/pacing.h"
#include "sock/shown.h"
#include "sock/stream.h"

/* Polls that find out what lies in the ring: as many as empty the deepest one. */
#define DRAIN_POLLS 64
/* How long at most frames that were posted are waited for. */
#define FLUSH_NS (20 * PV_NS_PER_MS)

static int64_t now(void)
{
	return pv_clock_now(&pv_engine.clock);
}

static const char *text_of(int rc)
{
	switch (rc) {
	case -EPERM:
		return "hand-back needs CAP_NET_ADMIN";
	case -EOPNOTSUPP:
		return "only connections on interfaces that the kernel owns can be handed back";
	case -EINPROGRESS:
		return "the connection is not made yet";
	case -ENOTCONN:
		return "there is no connection";
	case -EBUSY:
		return "urgent data is under way";
	case -EMFILE:
	case -ENFILE:
		return "no number is left for the kernel socket";
	default:
		return "the kernel does not take the connection";
	}
}

static int refuse(int rc)
{
	return pv_error(rc, "%s (%s)", text_of(rc), strerror(-rc));
}

static int check(const struct pv_tcp *tc, struct pv_tcp_export *x)
{
	uint32_t iface = pv_tcp_iface(tc);
	int rc;

	if (iface && !pv_iface_is_host(iface))
		return -EOPNOTSUPP;
	rc = pv_tcp_export(tc, x, now());
	if (rc)
		return rc;
	return pv_tcp_can_leave(tc) ? 0 : -EOPNOTSUPP;
}

static bool has_name(const struct pv_sock *so, int fd)
{
	struct sockaddr_storage ss;
	struct pv_endpoint name = { .port = 0 };
	socklen_t len = sizeof(ss);

	return getsockname(fd, (struct sockaddr *)&ss, &len) == 0 && pv_addr_parse(so, (struct sockaddr *)&ss, len, &name) &&
	       name.port;
}

static uint32_t device_of(struct pv_tcp *tc)
{
	uint32_t core = pv_tcp_options(tc)->bound_iface;

	return core && core <= PV_IFACE_MAX ? atomic_load_explicit(&pv_engine.kernel_index[core], memory_order_relaxed) : 0;
}

/* What lies in the ring, or comes while its last rule goes, finds nobody here. */
void pv_handback_drain(void)
{
	for (int i = 0; i < DRAIN_POLLS && pv_engine_poll(&pv_engine, now()); i++)
		;
}

/* What was posted leaves before anything of the kernel's: behind that, whose timestamps are later, the peer would take it for old and drop it
 * (RFC 7323 5.3). Nothing is received meanwhile, so nothing is posted. A ring that cannot send keeps nobody here for long. */
static void flush(const struct pv_tcp *tc)
{
	uint32_t iface = pv_tcp_iface(tc);
	struct pv_ring *ring = iface ? pv_iface_ring(pv_net_iface(pv_engine.net, iface)) : NULL;
	struct pv_pkt *done[PV_RING_BATCH_MAX];
	struct pv_txlane_info lane = { 0 };
	int64_t until = now() + FLUSH_NS;

	(void)pv_txlane_info(pv_engine.net, pv_tcp_lane(tc), iface, &lane);
	while (ring && (ring->tx_pending || (lane.queue && pv_ring_txq_pending(ring, lane.queue))) && now() < until) {
		uint32_t n;

		pv_net_kick(pv_engine.net);
		n = pv_ring_tx_reap(ring, done, PV_RING_BATCH_MAX);
		for (uint32_t i = 0; i < n; i++)
			pv_net_tx_done(pv_engine.net, done[i]);
		if (!n)
			(void)nanosleep(&(struct timespec){ .tv_nsec = 20 * PV_NS_PER_US }, NULL);
	}
}

/* From here on the socket is as one that always was the kernel's, except that whoever waits has to be told. */
static void is_kernels(struct pv_sock *so, const char *why)
{
	char reason[128];

	snprintf(reason, sizeof(reason), "handed back: %s", why);
	pv_list_del(&so->on_core);
	so->core_leg = so->kernel_leg = so->host = false;
	pv_shown_reason(so, reason, NULL);
	pv_trace_note(pv_engine.trace, .kind = PV_TRACE_socket, .id = (uintptr_t)so, .proto = PV_PROTO_TCP, .a = PV_TRACE_KERNEL);
	atomic_store_explicit(&so->mode, PV_SOCK_KERNEL, memory_order_release);
	pv_shown_update(so);
	pv_epoll_moved(so);
	pv_list_for_each(it, &so->watch.waiters)
		pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
	pv_ready_update(so);
	pv_kin_handed(so);
}

/* The kernel has the connection; the stack lets go. Its queues are needed up to the last step. */
static int move(struct pv_sock *so, struct pv_repair *r)
{
	struct pv_tcp *tc = so->tc;
	uint16_t port = r->x->local.port;
	int rc;

	pv_pacing_end(so);
	pv_lane_end(so);
	pv_stream_hold_end(so, port);
	pv_tcp_leave(tc, now());
	rc = pv_repair_go(r);
	pv_stream_options_to(so, r->fd, true);
	pv_tcp_left(tc);
	so->tc = NULL;
	pv_handback_drain();
	return rc;
}

int pv_handback(struct pv_sock *so, const char *why)
{
	struct pv_tcp_export x;
	struct pv_repair r = { .family = so->family, .x = &x };
	int rc;

	pv_handback_drain();
	if (!so->tc)
		return refuse(-ENOTCONN);
	flush(so->tc);
	rc = check(so->tc, &x);
	if (rc)
		return refuse(rc);
	r.fd = pv_sock_kfd(so);
	if (r.fd < 0)
		return refuse(-errno);
	r.tc = so->tc;
	r.bound = has_name(so, r.fd);
	r.device = device_of(so->tc);
	rc = pv_repair_begin(r.fd);
	if (rc)
		return refuse(rc);
	rc = pv_repair_make(&r);
	if (rc) {
		pv_repair_undo(&r);
		return refuse(rc);
	}
	pv_stream_options_to(so, r.fd, false);
	rc = move(so, &r);
	is_kernels(so, why);
	return rc ? refuse(rc) : 0;
}

/* ---- the calls --------------------------------------------------------------------------------------------------------- */

int pyvma_sock_hand_back(pyvma_sock *h)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc;

	if (!so)
		return -EBADF;
	if (!so->stream || pv_sock_mode(so) == PV_SOCK_KERNEL)
		return so->stream ? 0 : pv_error(-EOPNOTSUPP, "only connections can be handed back");
	rc = pv_stream_lock(h, so);
	if (rc == PV_HANDED)
		return 0;
	if (rc)
		return rc == -EBADF ? refuse(-ENOTCONN) : rc;
	rc = pv_handback(so, "asked for");
	pv_sock_unlock();
	return rc;
}

/* Whoever else has the kernel's half hears of nothing that comes by the ring: all of it is the kernel's from now on, what waits here as well. */
static int listener_back(struct pv_sock *so, const char *why)
{
	if (!so->host)
		return refuse(-EOPNOTSUPP);
	pv_enqueue_all(so);
	pv_stream_close(so);
	is_kernels(so, why);
	return 0;
}

/* The registry lock is held. */
static int by_fd(int fd, const char *why, bool listener)
{
	struct pv_sock *so = pv_sock_find(fd);
	int rc = 0;

	if (!so || !so->stream || pv_sock_mode(so) != PV_SOCK_STREAM)
		return 0;
	if (so->dead) {
		rc = pv_sock_lock_failed(NULL, so);
		return rc == PV_HANDED ? 0 : rc;
	}
	pv_lock_get(&pv_engine.lock);
	switch (so->tc ? pv_tcp_state(so->tc) : PV_TCP_CLOSED) {
	case PV_TCP_CLOSED:
		break;
	case PV_TCP_LISTEN:
		rc = listener ? listener_back(so, why) : 0;
		break;
	default:
		rc = pv_handback(so, why);
	}
	pv_sock_unlock();
	return rc;
}

int pyvma_hand_back_fd(int fd, int listener)
{
	int rc;

	pv_registry_get();
	rc = by_fd(fd, listener ? "passed on" : "asked for", listener);
	pv_registry_put();
	return rc;
}

/* Each of them once, the first ones again where others have come or gone meanwhile. How many could not be handed back. */
static int all_back(void)
{
	unsigned int n = 0;
	int lost = 0;

	pv_list_for_each(it, &pv_core_socks)
		n++;
	for (; n && !pv_list_empty(&pv_core_socks); n--) {
		struct pv_sock *so = pv_list_entry(pv_core_socks.next, struct pv_sock, on_core);

		pv_list_del(&so->on_core);
		pv_list_add(&pv_core_socks, &so->on_core);
		if (pv_sock_loses(so) && (!so->tc || pv_tcp_state(so->tc) != PV_TCP_CLOSED))
			lost += !so->tc || pv_handback(so, "the engine was stopped") != 0;
	}
	return lost;
}

static bool unsent(const struct pv_sock *so)
{
	enum pv_tcp_state s = so->tc && pv_sock_mode(so) == PV_SOCK_STREAM ? pv_tcp_state(so->tc) : PV_TCP_CLOSED;

	return (s == PV_TCP_ESTABLISHED || s == PV_TCP_CLOSE_WAIT || s == PV_TCP_FIN_WAIT_1 || s == PV_TCP_LAST_ACK) &&
	       pv_tcp_outq_nsd(so->tc);
}

/* One that has no socket any more: the kernel gets one for it, which is closed at once. */
static int orphan_back(struct pv_tcp *tc)
{
	struct pv_tcp_export x;
	struct pv_repair r = { .x = &x, .tc = tc, .device = device_of(tc) };
	int rc;

	flush(tc);
	rc = check(tc, &x);
	if (rc)
		return refuse(rc);
	r.family = pv_addr_is4(&x.local.addr) ? AF_INET : AF_INET6;
	r.fd = socket(r.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r.fd < 0)
		return refuse(-errno);
	rc = pv_repair_begin(r.fd);
	if (!rc)
		rc = pv_repair_make(&r);
	if (rc) {
		pv_repair_undo(&r);
	} else {
		pv_tcp_leave(tc, now());
		rc = pv_repair_go(&r);
		pv_tcp_left(tc);
	}
	close(r.fd);
	return rc ? refuse(rc) : 0;
}

static void or_tell(int rc)
{
	if (rc)
		pv_log(PV_LOG_INFO, "stop: a connection may lose bytes that were not sent: %s", pv_error_text());
}

void pv_handback_unsent(void)
{
	struct pv_tcp *behind;

	pv_handback_drain();
	for (struct pv_tcp *tc = pv_tcp_orphan_unsent(pv_engine.tcp, NULL); tc; tc = behind) {
		behind = pv_tcp_orphan_unsent(pv_engine.tcp, tc);
		or_tell(orphan_back(tc));
	}
	pv_list_for_each_safe(it, next, &pv_core_socks) {
		struct pv_sock *so = pv_list_entry(it, struct pv_sock, on_core);

		if (unsent(so))
			or_tell(pv_handback(so, "its process ends, and has bytes to send"));
	}
}

int pyvma_retreat(void)
{
	int lost = 0;

	pv_registry_get();
	if (pv_engine_state() == PV_ENGINE_RUNNING) {
		pv_lock_get(&pv_engine.lock);
		lost = all_back();
		pv_sock_unlock();
	}
	pv_registry_put();
	pv_sock_stop_kindly();
	return lost;
}

static bool inheritable(int fd)
{
	int flags = fcntl(fd, F_GETFD);

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

int pyvma_hand_back_inheritable(void)
{
	struct dirent *entry;
	int rc = 0, one;
	DIR *dir;

	if (pv_engine_state() == PV_ENGINE_NEW || pv_engine_state() == PV_ENGINE_EMPTY)
		return 0;
	dir = opendir("/proc/self/fd");
	if (!dir)
		return pv_error(-errno, "/proc/self/fd: %s", strerror(errno));
	pv_registry_get();
	while ((entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || !inheritable(fd))
			continue;
		one = by_fd(fd, "inherited by another program", false);
		rc = rc ? rc : one;
	}
	pv_registry_put();
	closedir(dir);
	return rc;
}
