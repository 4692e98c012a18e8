/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Socket options. The kernel socket beneath is the authority: it takes every option, checks it, and answers what was set; the stack is
 * then told what the kernel now says. So values, limits, defaults and errors are Linux's without a second copy of its rules.
 *
 * Three kinds are different. Options that name an interface or address of ours, which the kernel does not know (opt_mcast.c, and
 * SO_BINDTODEVICE here). Options whose answer only the stack has: SO_ERROR, IP_MTU. And options that only the kernel could carry out
 * (opt_kernel.c).
 */
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/time.h>

#include "sock/lane.h"
#include "sock/pacing.h"
#include "sock/stamp.h"
#include "sock/stream.h"

#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#ifndef SO_MAX_PACING_RATE
#define SO_MAX_PACING_RATE 47
#endif
#ifndef SO_SELECT_ERR_QUEUE
#define SO_SELECT_ERR_QUEUE 45
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* ---- what the stack is told -------------------------------------------------------------------------------------------- */

#define OPT_NONE UINT16_MAX
#define OPT_FIELD(f) offsetof(struct pv_udp_opts, f), sizeof(((struct pv_udp_opts *)0)->f)

/* One option of the kernel that the stack must know: a field of pv_udp_opts, or a bit of rx_flags. */
struct opt_row {
	int level, name;
	uint16_t off;
	uint16_t size;
	uint32_t rx_flag;
};

static const struct opt_row rows[] = {
	{ SOL_SOCKET, SO_RCVBUF, OPT_FIELD(rcvbuf), 0 },
	{ SOL_SOCKET, SO_SNDBUF, OPT_FIELD(sndbuf), 0 },
	{ SOL_SOCKET, SO_BROADCAST, OPT_FIELD(broadcast), 0 },
	{ SOL_SOCKET, SO_REUSEADDR, OPT_FIELD(reuse_addr), 0 },
	{ SOL_SOCKET, SO_REUSEPORT, OPT_FIELD(reuse_port), 0 },
	{ SOL_SOCKET, SO_NO_CHECK, OPT_FIELD(no_check), 0 },
	{ SOL_SOCKET, SO_INCOMING_CPU, OPT_FIELD(incoming_cpu), 0 },
	{ SOL_SOCKET, SO_PRIORITY, OPT_FIELD(priority), 0 },
	{ SOL_SOCKET, SO_RXQ_OVFL, OPT_NONE, 0, PV_RX_OVERFLOW },
	{ SOL_SOCKET, SO_SELECT_ERR_QUEUE, OPT_NONE, 0, PV_RX_SELECT_ERR },
	{ IPPROTO_IP, IP_TTL, OPT_FIELD(ttl), 0 },
	{ IPPROTO_IP, IP_TOS, OPT_FIELD(tos), 0 },
	{ IPPROTO_IP, IP_MULTICAST_TTL, OPT_FIELD(mcast_ttl), 0 },
	{ IPPROTO_IP, IP_MULTICAST_LOOP, OPT_FIELD(mcast_loop4), 0 },
	{ IPPROTO_IP, IP_MULTICAST_ALL, OPT_FIELD(mcast_all4), 0 },
	{ IPPROTO_IP, IP_MTU_DISCOVER, OPT_FIELD(pmtudisc4), 0 },
	{ IPPROTO_IP, IP_RECVERR, OPT_FIELD(recverr4), 0 },
	{ IPPROTO_IP, IP_FREEBIND, OPT_FIELD(freebind), 0 },
	{ IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, OPT_FIELD(bind_no_port), 0 },
	{ IPPROTO_IP, IP_PKTINFO, OPT_NONE, 0, PV_RX_PKTINFO4 },
	{ IPPROTO_IP, IP_RECVTTL, OPT_NONE, 0, PV_RX_TTL },
	{ IPPROTO_IP, IP_RECVTOS, OPT_NONE, 0, PV_RX_TOS },
	{ IPPROTO_IP, IP_RECVORIGDSTADDR, OPT_NONE, 0, PV_RX_ORIGDST4 },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, OPT_FIELD(hops), 0 },
	{ IPPROTO_IPV6, IPV6_TCLASS, OPT_FIELD(tclass), 0 },
	{ IPPROTO_IPV6, IPV6_MULTICAST_HOPS, OPT_FIELD(mcast_hops), 0 },
	{ IPPROTO_IPV6, IPV6_MULTICAST_LOOP, OPT_FIELD(mcast_loop6), 0 },
	{ IPPROTO_IPV6, IPV6_MULTICAST_ALL, OPT_FIELD(mcast_all6), 0 },
	{ IPPROTO_IPV6, IPV6_MTU_DISCOVER, OPT_FIELD(pmtudisc6), 0 },
	{ IPPROTO_IPV6, IPV6_RECVERR, OPT_FIELD(recverr6), 0 },
	{ IPPROTO_IPV6, IPV6_V6ONLY, OPT_FIELD(v6only), 0 },
	{ IPPROTO_IPV6, IPV6_RECVPKTINFO, OPT_NONE, 0, PV_RX_PKTINFO6 },
	{ IPPROTO_IPV6, IPV6_RECVHOPLIMIT, OPT_NONE, 0, PV_RX_HOPLIMIT },
	{ IPPROTO_IPV6, IPV6_RECVTCLASS, OPT_NONE, 0, PV_RX_TCLASS },
	{ IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, OPT_NONE, 0, PV_RX_ORIGDST6 },
};

static void import_row(struct pv_sock *so, const struct opt_row *row)
{
	char *opts = (char *)pv_udp_options(so->u);
	socklen_t len = sizeof(int);
	int val = 0;
	bool flag;

	if ((row->level == IPPROTO_IPV6 && so->family != AF_INET6) ||
	    getsockopt(pv_sock_kfd(so), row->level, row->name, &val, &len) < 0)
		return;
	flag = val != 0;
	if (row->off == OPT_NONE) {
		so->rx_flags = (so->rx_flags & ~row->rx_flag) | (flag ? row->rx_flag : 0);
		return;
	}
	if (row->name == SO_RCVBUF && row->level == SOL_SOCKET)
		val = (int)PV_MAX((int64_t)val, pv_engine.cfg->rcvbuf);
	if (row->name == SO_SNDBUF && row->level == SOL_SOCKET)
		val = (int)PV_MAX((int64_t)val, pv_engine.cfg->sndbuf);
	switch (row->size) {
	case 1: {
		uint8_t v = (uint8_t)val;

		/* Switches are bool, which must not get any other value than 0 and 1. */
		if (row->name == IP_TOS || row->name == IP_MULTICAST_TTL || row->name == IP_MTU_DISCOVER ||
		    row->name == IPV6_TCLASS || row->name == IPV6_MTU_DISCOVER)
			memcpy(opts + row->off, &v, 1);
		else
			memcpy(opts + row->off, &flag, 1);
		break;
	}
	case 2: {
		int16_t v = (int16_t)val;

		memcpy(opts + row->off, &v, 2);
		break;
	}
	default:
		memcpy(opts + row->off, &val, 4);
	}
	if (row->name == SO_INCOMING_CPU && row->level == SOL_SOCKET)
		pv_lane_said(so);
}

/* 0: none. Linux takes more seconds than fit into 64 bits of nanoseconds. */
int64_t pv_opt_timeout(int fd, int name)
{
	struct timeval tv;
	socklen_t len = sizeof(tv);

	if (getsockopt(fd, SOL_SOCKET, name, &tv, &len) < 0)
		return 0;
	return tv.tv_sec < PV_NEVER / PV_NS_PER_S ? tv.tv_sec * PV_NS_PER_S + tv.tv_usec * PV_NS_PER_US : PV_NEVER;
}

static void import_timeouts(struct pv_sock *so)
{
	so->rcvtimeo_ns = pv_opt_timeout(pv_sock_kfd(so), SO_RCVTIMEO);
	so->sndtimeo_ns = pv_opt_timeout(pv_sock_kfd(so), SO_SNDTIMEO);
}

static void import_segment(struct pv_sock *so)
{
	int val = 0;
	socklen_t len = sizeof(val);

	so->dg->segment = getsockopt(pv_sock_kfd(so), IPPROTO_UDP, UDP_SEGMENT, &val, &len) == 0 ? (uint32_t)val : 0;
}

/* On the kernel's interfaces what names an interface is the kernel socket's: a device by its number, which another one that is made
 * under the same name has not. */
static void import_host(struct pv_sock *so)
{
	struct pv_udp_opts *o = pv_udp_options(so->u);
	bool kernels;
	uint32_t iface = pv_decide_device(so, &kernels);

	o->bound_iface = kernels ? PV_UDP_IFACE_GONE : iface;
	pv_mcast_import(so);
}

void pv_opt_ifaces_changed(struct pv_sock *so)
{
	if (!so->host || !(so->kernel_device || so->kernel_mcast4 || so->kernel_mcast6 || so->mcast_index4))
		return;
	import_host(so);
	pv_udp_options_changed(so->u);
	pv_leg_options(so);
}

void pv_opt_import(struct pv_sock *so)
{
	so->rx_flags = 0;
	pv_decide_kernel_read(so);
	for (size_t i = 0; i < pv_array_size(rows); i++)
		import_row(so, &rows[i]);
	import_timeouts(so);
	import_segment(so);
	pv_stamp_import(so, pv_sock_kfd(so));
	if (so->host)
		import_host(so);
	pv_udp_options_changed(so->u);
	pv_pacing_import(so);
}

static void import_one(struct pv_sock *so, int level, int name)
{
	/* IP_TOS sets a priority, too. */
	bool prio = level == IPPROTO_IP && name == IP_TOS;

	/* FORCE variants set the same value. */
	if (level == SOL_SOCKET && (name == SO_RCVBUFFORCE || name == SO_SNDBUFFORCE))
		name = name == SO_RCVBUFFORCE ? SO_RCVBUF : SO_SNDBUF;
	for (size_t i = 0; i < pv_array_size(rows); i++)
		if ((rows[i].level == level && rows[i].name == name) ||
		    (prio && rows[i].level == SOL_SOCKET && rows[i].name == SO_PRIORITY))
			import_row(so, &rows[i]);
	if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO))
		import_timeouts(so);
	if (pv_stamp_is(level, name))
		pv_stamp_import(so, pv_sock_kfd(so));
	if (level == IPPROTO_UDP && name == UDP_SEGMENT)
		import_segment(so);
	if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE)
		pv_pacing_import(so);
	if (so->host)
		import_host(so);
	pv_udp_options_changed(so->u);
}

/* ---- the device -------------------------------------------------------------------------------------------------------- */

/* Index of our interface of that name; 0: none. */
static uint32_t iface_by_name(const char *name)
{
	const struct pv_engine *e = &pv_engine;

	for (uint32_t i = 0; i < e->nports; i++)
		if (!strcmp(e->ports[i].spec.name, name))
			return e->ports[i].index;
	return 0;
}

/* SO_BINDTODEVICE and SO_BINDTOIFINDEX of an interface of ours; 0 otherwise. */
static uint32_t device_named(int level, int name, const void *val, socklen_t len)
{
	char text[IFNAMSIZ + 1] = "";
	int index;

	if (level != SOL_SOCKET || !val)
		return 0;
	if (name == SO_BINDTODEVICE) {
		memcpy(text, val, PV_MIN((size_t)len, sizeof(text) - 1));
		return iface_by_name(text);
	}
	if (name != SO_BINDTOIFINDEX || len < sizeof(index))
		return 0;
	memcpy(&index, val, sizeof(index));
	return pv_ifindex_core((uint32_t)index);
}

static int bind_device(struct pv_sock *so, uint32_t iface)
{
	int rc = pv_core_open(so);

	if (rc)
		return rc;
	pv_udp_options(so->u)->bound_iface = iface;
	pv_udp_options_changed(so->u);
	pv_decide_core(so, true, false);
	return 0;
}

/* ---- set --------------------------------------------------------------------------------------------------------------- */

/* The kernel socket was bound to a device, or to none any more. */
static void device_changed(struct pv_sock *so)
{
	bool kernels;

	pv_udp_options(so->u)->bound_iface = 0;
	pv_decide_device(so, &kernels);
	if (kernels && so->host && !so->retired)
		pv_leg_retire(so, "bound to a device of the kernel", NULL);
}

/* An option that rings cannot honour was set, or taken off, on the kernel socket. */
static void kernel_option(struct pv_sock *so, int level, int name)
{
	bool receives, refused = pv_opt_kernel_refused(level, name);

	pv_opt_kernel_note(so, level, name);
	if (!pv_opt_kernel_is(level, name, &receives))
		return;
	if (so->host && receives && !so->retired && pv_opt_kernel_reason(so))
		pv_leg_retire(so, pv_opt_kernel_reason(so), NULL);
	else if (so->host)
		pv_leg_options(so);
	else if (!so->u && refused)
		pv_decide_kernel(so, "an option that only the kernel serves", NULL);
}

/* Is there a socket of the stack's that cannot do it, or would there be none of the stack's though there must? */
static bool refuses(const struct pv_sock *so, int level, int name)
{
	bool receives;

	if (pv_engine.cfg->strict && pv_leg_engine() && pv_opt_kernel_is(level, name, &receives) && !so->retired)
		return true;
	return pv_opt_kernel_refused(level, name) && ((so->u && !so->host) || pv_engine.cfg->strict);
}

/* The kernel's FORCE variants report under the plain names. */
static int set_locked(struct pyvma_sock *h, struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	uint32_t device = device_named(level, name, val, len);
	int rc;

	pv_decide_kernel_read(so);
	if (device && !pv_iface_is_host(device))
		return so->bound ? -EINVAL : bind_device(so, device);
	if (pv_mcast_is_option(level, name)) {
		rc = pv_mcast_set(h, so, level, name, val, len);
		if (rc != -ENOPROTOOPT)
			return rc;
	}
	if (refuses(so, level, name))
		return -EOPNOTSUPP;
	rc = pv_pacing_check(so, level, name, val, len);
	if (rc)
		return rc;
	if (setsockopt(pv_sock_kfd(so), level, name, val, len) < 0)
		return -errno;
	pv_decide_kernel_read(so);
	if (so->u) {
		if (level == SOL_SOCKET && (name == SO_BINDTODEVICE || name == SO_BINDTOIFINDEX))
			device_changed(so);
		import_one(so, level, name);
		if (so->host && !so->retired)
			pv_mcast_filter(so, level, name, val, len);
		if (so->host)
			pv_leg_options(so);
	}
	kernel_option(so, level, name);
	return 0;
}

int pyvma_sock_setsockopt(pyvma_sock *h, int level, int name, const void *val, socklen_t len)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc;

	if (!so)
		return -EBADF;
	if (level == PYVMA_SOL)
		return pv_pacing_set(h, so, name, val, len);
	/* In a forked child: its kernel socket may not be the connection yet. */
	if (so->dead && so->stream)
		(void)pv_sock_lock_failed(NULL, so);
	if (!so->candidate || pv_sock_mode(so) == PV_SOCK_KERNEL || pv_engine_state() != PV_ENGINE_RUNNING) {
		atomic_store_explicit(&so->untouched, false, memory_order_relaxed);
		return setsockopt(pv_sock_kfd(so), level, name, val, len) < 0 ? -errno : 0;
	}
	if (so->stream) {
		rc = pv_stream_setsockopt(h, so, level, name, val, len);
		return rc != PV_HANDED ? rc : setsockopt(pv_sock_kfd(so), level, name, val, len) < 0 ? -errno : 0;
	}
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) != so || so->dead)
		return pv_sock_lock_failed(h, so);
	rc = set_locked(h, so, level, name, val, len);
	pv_sock_unlock();
	return rc;
}

/* ---- get --------------------------------------------------------------------------------------------------------------- */

static int give_int(int val, void *out, socklen_t *len)
{
	if ((int)*len < 0)
		return -EINVAL;
	*len = PV_MIN(*len, (socklen_t)sizeof(val));
	memcpy(out, &val, *len);
	return 0;
}

static int path_mtu(struct pv_sock *so, void *val, socklen_t *len)
{
	struct pv_endpoint to, local;
	struct pv_path path;
	int rc;

	if (!pv_udp_remote(so->u, &to))
		return -ENOPROTOOPT; /* the kernel knows which error that is */
	pv_udp_local(so->u, &local);
	rc = pv_net_path(pv_engine.net, &(struct pv_path_query){ .dst = to.addr, .src = local.addr, .iface = to.iface },
			 pv_clock_now(&pv_engine.clock), &path);
	return rc ? rc : give_int((int)path.mtu, val, len);
}

static bool is_own(uint32_t iface)
{
	return pv_net_iface(pv_engine.net, iface) && !pv_iface_is_host(iface);
}

static int get_device(int name, uint32_t iface, void *val, socklen_t *len)
{
	const struct pv_iface_cfg *ic = pv_iface_config(pv_net_iface(pv_engine.net, iface));
	socklen_t need = (socklen_t)strlen(ic->name) + 1;

	if (name == SO_BINDTOIFINDEX)
		return give_int((int)pv_ifindex_public(iface), val, len);
	if (*len < need)
		return -EINVAL;
	memcpy(val, ic->name, need);
	*len = need;
	return 0;
}

/* -ENOPROTOOPT: the kernel answers. */
static int get_locked(struct pv_sock *so, int level, int name, void *val, socklen_t *len)
{
	const struct pv_udp_opts *o = pv_udp_options(so->u);
	int err;

	if (pv_mcast_is_option(level, name))
		return pv_mcast_get(so, level, name, val, len);
	if (level == SOL_SOCKET) {
		switch (name) {
		case SO_ERROR:
			err = so->core_leg ? pv_udp_error(so->u) : 0;
			return err ? give_int(err, val, len) : -ENOPROTOOPT;
		case SO_RCVBUF:
			return give_int((int)o->rcvbuf, val, len);
		case SO_SNDBUF:
			return give_int((int)o->sndbuf, val, len);
		case SO_INCOMING_CPU:
			return pv_udp_rx_queue(so->u) >= 0 ? give_int(pv_udp_rx_queue(so->u), val, len) : -ENOPROTOOPT;
		case SO_BINDTODEVICE:
		case SO_BINDTOIFINDEX:
			return is_own(o->bound_iface) ? get_device(name, o->bound_iface, val, len) : -ENOPROTOOPT;
		}
	}
	if (so->core_leg && !so->host &&
	    ((level == IPPROTO_IP && name == IP_MTU) || (level == IPPROTO_IPV6 && name == IPV6_MTU && so->family == AF_INET6)))
		return path_mtu(so, val, len);
	return -ENOPROTOOPT;
}

int pyvma_sock_getsockopt(pyvma_sock *h, int level, int name, void *val, socklen_t *len)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc;

	if (!so)
		return -EBADF;
	/* Which error that is depends on the option. */
	if (!val || !len)
		return getsockopt(pv_sock_kfd(so), level, name, val, len) < 0 ? -errno : 0;
	if (level == PYVMA_SOL)
		return pv_pacing_get(h, so, name, val, len);
	if (pv_sock_mode(so) == PV_SOCK_STREAM) {
		rc = pv_stream_getsockopt(h, so, level, name, val, len);
		if (rc != PV_HANDED)
			return rc;
	}
	if (!pv_sock_is_core(so))
		return getsockopt(pv_sock_kfd(so), level, name, val, len) < 0 ? -errno : 0;
	rc = pv_sock_lock(h, so);
	if (rc)
		return rc;
	rc = get_locked(so, level, name, val, len);
	if (rc == -ENOPROTOOPT)
		rc = getsockopt(pv_sock_kfd(so), level, name, val, len) < 0 ? -errno : 0;
	/* Whoever had it, the error is told now and no reason to be readable any more. */
	if (level == SOL_SOCKET && name == SO_ERROR)
		pv_ready_update(so);
	pv_sock_unlock();
	return rc;
}
