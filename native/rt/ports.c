/* SPDX-License-Identifier: BSD-3-Clause */
/* Rings and pools of the interfaces named in the settings. */
#include "rt/engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pyvma.h"
#include "ring/tapdev.h"
#include "ring/verbs.h"
#include "ring/xdp.h"
#include "rt/agent.h"
#include "rt/control.h"
#include "rt/host.h"
#include "rt/error.h"
#include "rt/log.h"
#include "rt/mem.h"
#include "rt/port_bond.h"
#include "rt/recorder.h"
#include "rt/tstamp_engine.h"
#include "rt/wrap.h"

/* Frame bytes beside the IP packet: Ethernet and a VLAN tag. */
#define L2_MAX 18u
/* A buffer for TAP devices: frames of the usual MTU in one, longer ones in several. */
#define TAP_BUF 2048u
/* Buffers beyond the two queues: being read, being built, waiting for a neighbour, in reassembly. */
#define SPARE_BUFS 128u
/* Read of one ring at a time. */
#define EVENTS_MAX 16
/* Turns that empty a ring for sure when nobody keeps filling it. */
#define DRAIN_POLLS 64

uint32_t pv_port_buf_size(uint32_t mtu)
{
	return (PV_NET_HEADROOM + L2_MAX + mtu + 63u) & ~63u;
}

/* `pc` has what the ring says of buffers; their number comes from the settings and the queues. */
int pv_port_pool_open(struct pv_port *p, const struct pv_config *cfg, struct pv_pool_cfg *pc, uint32_t rx_depth, uint32_t tx_depth)
{
	/* One that cannot grow has a quarter and more free, in spite of what its ring holds (pv_pool_spills). */
	uint32_t spare = pc->chunk ? SPARE_BUFS : rx_depth / 2;
	uint32_t rx = PV_MAX((uint32_t)cfg->rx_bufs, rx_depth + spare), tx = PV_MAX((uint32_t)cfg->tx_bufs, tx_depth);

	pc->count = rx + tx;
	pc->fixed = !pc->chunk;
	pc->chunk = (uint32_t)cfg->buf_chunk;
	pc->max = pc->chunk ? PV_MAX((uint32_t)cfg->buf_max, pc->count) : pc->count;
	int rc = pv_pool_open(&p->pool, pv_mem_system(cfg->huge_pages), pc);

	return rc ? pv_error(rc, "%s: no memory for %u buffers of %u bytes", p->spec.name, pc->count, pc->buf_size) : 0;
}

#ifdef PV_HAVE_VERBS

/* libpyvma-softnic.so, beside the library that this code is in. */
static void softnic_library(const struct pv_config *cfg, char *path, size_t size)
{
	static const char name[] = "libpyvma-softnic.so";
	Dl_info info;
	const char *slash;

	if (*cfg->softnic_lib) {
		snprintf(path, size, "%s", cfg->softnic_lib);
		return;
	}
	snprintf(path, size, "%s", name);
	if (!dladdr((const void *)softnic_library, &info) || !info.dli_fname)
		return;
	slash = strrchr(info.dli_fname, '/');
	if (slash)
		snprintf(path, size, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, name);
	if (access(path, R_OK) < 0)
		snprintf(path, size, "%s", name);
}

/* Makes the software NIC's port a device of its library; writes the device's name. */
static int softnic_device(const struct pv_ifspec *s, const char *lib, char *device, size_t size)
{
	void *dl = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	int (*add)(const char *spec, char *name, size_t n);
	char spec[128];
	int n, rc;

	if (!dl)
		return pv_error(-ENOENT, "%s: the software NIC is not there: %s (softnic_lib names its library)", s->name,
				dlerror());
	*(void **)&add = dlsym(dl, "softnic_device_add");
	if (!add)
		return pv_error(-ENOENT, "%s: %s is not the software NIC's library: %s", s->name, lib, dlerror());
	n = snprintf(spec, sizeof(spec), "%s/%u", s->fabric, s->port);
	if (s->have_mac)
		n += snprintf(spec + n, sizeof(spec) - (size_t)n, ",mac=%02x:%02x:%02x:%02x:%02x:%02x", s->mac[0], s->mac[1],
			      s->mac[2], s->mac[3], s->mac[4], s->mac[5]);
	if (s->mtu)
		snprintf(spec + n, sizeof(spec) - (size_t)n, ",mtu=%u", s->mtu);
	rc = add(spec, device, size);
	if (rc < 0 && rc != -EEXIST)
		return pv_error(rc, "%s: the software NIC refuses \"%s\": %s", s->name, spec, strerror(-rc));
	return 0;
}

static enum pv_verbs_stamps stamps_of(const struct pv_config *cfg)
{
	switch ((enum pv_tstamp_mode)cfg->hw_ts_conversion) {
	case PV_TSTAMP_MODE_OFF:
		return PV_VERBS_STAMPS_NONE;
	case PV_TSTAMP_MODE_RTC:
		return PV_VERBS_STAMPS_WALL;
	default:
		return PV_VERBS_STAMPS_RAW;
	}
}

/* Queues to which sockets and rules are led. */
static uint32_t beside(const struct pv_config *cfg)
{
	uint32_t limit = cfg->ring_limit ? (uint32_t)cfg->ring_limit : PV_RING_RXQ_MAX;

	return cfg->ring_logic_rx ? PV_MIN(limit, PV_RING_RXQ_MAX) : 0;
}

/* The pool, unless there is one. */
static int verbs_pool(struct pv_port *p, const struct pv_config *cfg, const struct pv_verbs_cfg *vc, uint32_t mtu)
{
	struct pv_pool_cfg pc = { .headroom = PV_NET_HEADROOM, .chunk = (uint32_t)cfg->buf_chunk };

	if (p->pool)
		return 0;
	pc.buf_size = pv_port_buf_size(mtu);
	return pv_port_pool_open(p, cfg, &pc, vc->rx_depth, vc->tx_depth);
}

static int open_verbs(struct pv_port *p, const struct pv_config *cfg)
{
	const struct pv_ifspec *s = &p->spec;
	char lib[512], device[PV_RING_NAME_MAX], err[512] = "";
	bool own = !p->pool;
	struct pv_verbs_cfg vc = {
		.library = lib,
		.device = device,
		.port = s->ring == PV_IFSPEC_SOFTNIC ? 1 : (uint8_t)s->port,
		.rx_depth = s->rx_depth ? s->rx_depth : (uint32_t)cfg->rx_depth,
		.tx_depth = s->tx_depth ? s->tx_depth : (uint32_t)cfg->tx_depth,
		.inline_max = cfg->tx_inline_max ? (uint32_t)cfg->tx_inline_max : UINT32_MAX,
		.rx_queues = (uint32_t)cfg->rx_queues,
		.rxqs = beside(cfg),
		.legacy = cfg->legacy_verbs,
		.no_csum = cfg->no_csum_offload,
		.no_tso = !cfg->tso,
		.dev_mem = (uint32_t)cfg->ring_dev_mem_tx,
		.stamps = stamps_of(cfg),
		.rx_interrupts = true,
		.binder = p->binder,
	};
	struct pv_verbs_info info = { 0 };
	int rc;

	if (s->ring == PV_IFSPEC_SOFTNIC) {
		softnic_library(cfg, lib, sizeof(lib));
		rc = softnic_device(s, lib, device, sizeof(device));
		if (rc)
			return rc;
	} else {
		snprintf(lib, sizeof(lib), "%s", *s->lib ? s->lib : cfg->verbs_lib);
		snprintf(device, sizeof(device), "%s", s->device);
	}
	/* Opening a device twice takes twice the time, for which the traffic of a bond waits when a leg comes. */
	if (own || s->mtu) {
		rc = pv_verbs_probe(&vc, &info, err, sizeof(err));
		if (rc)
			return pv_error(rc, "%s: %s", s->name, err);
		if (s->mtu > info.mtu)
			return pv_error(-EINVAL, "%s: mtu=%u is above the port's %u", s->name, s->mtu, info.mtu);
	}
	rc = verbs_pool(p, cfg, &vc, info.mtu);
	if (rc)
		return rc;
	rc = pv_verbs_open(&p->ring, pv_mem_system(cfg->huge_pages), p->pool, &vc, err, sizeof(err));
	/* A device is asked for each frame by a rule: there is no other way. */
	if (!rc && !p->ring->caps.flow_kinds) {
		/* Closing gives its place in the pool back: where that is kept, it is the keeper's to close. */
		if (!p->binder) {
			pv_ring_close(p->ring);
			p->ring = NULL;
		}
		rc = -EOPNOTSUPP;
		snprintf(err, sizeof(err), "the device has no flow rules, and nothing would come by it");
	}
	if (rc) {
		if (own)
			pv_pool_close(p->pool);
		return pv_error(rc, "%s: %s", s->name, err);
	}
	if (err[0])
		pv_log(PV_LOG_WARN, "%s: goes on without on-device memory: %s", s->name, err);
	if (vc.dev_mem) {
		struct pv_ring_counters c;

		pv_ring_counters(p->ring, &c);
		pv_log(PV_LOG_DEBUG, "%s: on_device_memory: %llu", s->name, (unsigned long long)c.dm_alloc);
	}
	return 0;
}

#else

static int open_verbs(struct pv_port *p, const struct pv_config *cfg)
{
	(void)cfg;
	return pv_error(-EOPNOTSUPP, "%s: this build has no verbs: libibverbs' headers (libibverbs-dev) were not there",
			p->spec.name);
}

#endif

#ifdef PV_HAVE_XDP

static uint32_t power_of_two(uint32_t n)
{
	return n < 2 ? 1 : 1u << (32 - __builtin_clz(n - 1));
}

/* Without the privileges, by the daemon that has them. */
static int open_xdp_lent(struct pv_port *p, struct pv_xdp_cfg *xc, char *err, size_t errsize)
{
	struct pv_agent *a = pv_agent_get(&pv_engine);
	char why[256];
	int rc;

	if (!a)
		return -EPERM;
	rc = pv_agent_xdp_open(a, &p->ring, p->pool, xc, why, sizeof(why));
	if (rc)
		snprintf(err, errsize, "no CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, and %s", why);
	return rc;
}

static void xdp_cfg(struct pv_xdp_cfg *xc, const struct pv_ifspec *s, const struct pv_config *cfg)
{
	static const enum pv_xdp_mode modes[] = {
		[PV_IFSPEC_AUTO] = PV_XDP_AUTO, [PV_IFSPEC_NATIVE] = PV_XDP_NATIVE, [PV_IFSPEC_GENERIC] = PV_XDP_GENERIC
	};
	static const enum pv_xdp_csum csums[] = { [PV_IFSPEC_CSUM_STACK] = PV_XDP_CSUM_STACK,
						  [PV_IFSPEC_CSUM_AUTO] = PV_XDP_CSUM_AUTO,
						  [PV_IFSPEC_CSUM_KERNEL] = PV_XDP_CSUM_KERNEL,
						  [PV_IFSPEC_CSUM_SOFTWARE] = PV_XDP_CSUM_SOFTWARE };

	*xc = (struct pv_xdp_cfg){
		.ifname = *s->netdev ? s->netdev : s->device,
		.queues = s->queues,
		.rx_depth = power_of_two(s->rx_depth ? s->rx_depth : (uint32_t)cfg->rx_depth),
		.tx_depth = power_of_two(s->tx_depth ? s->tx_depth : (uint32_t)cfg->tx_depth),
		.mode = modes[s->mode],
		.rx_metadata = s->rx_metadata,
		.no_tso = !cfg->tso,
		.tx_csum = csums[s->tx_csum],
		.busy_poll_us = s->busy_poll_us,
		/* While sockets are in use nobody waits with the lock: rt/host.c tries again. */
		.hurry = pv_engine_state() == PV_ENGINE_RUNNING,
	};
}

int pv_port_xdp_pool(const struct pv_ifspec *s, const struct pv_config *cfg, struct pv_pool_cfg *pc, uint32_t *rx, uint32_t *tx)
{
	struct pv_xdp_cfg xc;
	char err[512] = "";
	int rc;

	xdp_cfg(&xc, s, cfg);
	rc = pv_xdp_pool_cfg(&xc, pc, err, sizeof(err));
	if (rc)
		return pv_error(rc, "%s: %s", s->name, err);
	/* The pool cannot grow: each queue must be filled from the start. */
	*rx = xc.rx_depth * pv_xdp_queues(&xc);
	*tx = xc.tx_depth;
	return 0;
}

static int open_xdp(struct pv_port *p, const struct pv_config *cfg)
{
	struct pv_pool_cfg pc = { .chunk = 0 };
	bool own = !p->pool;
	struct pv_xdp_cfg xc;
	char err[512] = "";
	uint32_t rx, tx;
	int rc = own ? pv_port_xdp_pool(&p->spec, cfg, &pc, &rx, &tx) : 0;

	rc = rc || !own ? rc : pv_port_pool_open(p, cfg, &pc, rx, tx);
	if (rc)
		return rc;
	xdp_cfg(&xc, &p->spec, cfg);
	xc.binder = p->binder;
	/* A leg's link is the bond's to follow. */
	xc.own_link = own && p->spec.naddr;
	rc = pv_xdp_open(&p->ring, pv_mem_system(cfg->huge_pages), p->pool, &xc, err, sizeof(err));
	/* The daemon's rules are of addresses that the interface has, and a leg has none. */
	if (rc == -EPERM && own)
		rc = open_xdp_lent(p, &xc, err, sizeof(err));
	if (rc) {
		if (own)
			pv_pool_close(p->pool);
		return pv_error(rc, "%s: %s", p->spec.name, err);
	}
	if (*p->ring->caps.note)
		pv_log(PV_LOG_INFO, "%s: %s", p->spec.name, p->ring->caps.note);
	return 0;
}

#else

static int no_xdp(const struct pv_ifspec *s)
{
	return pv_error(-EOPNOTSUPP, "%s: this build has no AF_XDP: libbpf's headers (libbpf-dev) or clang were not there",
			s->name);
}

int pv_port_xdp_pool(const struct pv_ifspec *s, const struct pv_config *cfg, struct pv_pool_cfg *pc, uint32_t *rx, uint32_t *tx)
{
	(void)cfg;
	(void)pc;
	*rx = *tx = 0;
	return no_xdp(s);
}

static int open_xdp(struct pv_port *p, const struct pv_config *cfg)
{
	(void)cfg;
	return no_xdp(&p->spec);
}

#endif

static int open_tap(struct pv_port *p, const struct pv_config *cfg)
{
	const struct pv_ifspec *s = &p->spec;
	struct pv_tapdev_cfg tc = {
		.ifname = s->device,
		.queues = s->queues ? s->queues : 1,
		.rx_depth = s->rx_depth ? s->rx_depth : (uint32_t)cfg->rx_depth,
		.tx_depth = s->tx_depth ? s->tx_depth : (uint32_t)cfg->tx_depth,
		.mtu = s->mtu,
		.mac = s->have_mac ? s->mac : NULL,
		.no_offload = cfg->no_csum_offload,
		.no_tso = !cfg->tso,
	};
	struct pv_pool_cfg pc = { .buf_size = TAP_BUF, .headroom = PV_NET_HEADROOM, .chunk = (uint32_t)cfg->buf_chunk };
	char err[512] = "";
	int rc = pv_port_pool_open(p, cfg, &pc, tc.rx_depth, tc.tx_depth);

	if (rc)
		return rc;
	rc = pv_tapdev_open(&p->ring, pv_mem_system(cfg->huge_pages), p->pool, &tc, err, sizeof(err));
	if (rc) {
		pv_pool_close(p->pool);
		return pv_error(rc, "%s: %s", s->name, err);
	}
	return 0;
}

int pv_port_device_open(struct pv_port *p, const struct pv_config *cfg)
{
	switch (p->spec.ring) {
	case PV_IFSPEC_XDP:
		return open_xdp(p, cfg);
	case PV_IFSPEC_TAP:
		return open_tap(p, cfg);
	case PV_IFSPEC_BOND:
		return pv_error(-EOPNOTSUPP, "%s: a bond is opened with the engine only", p->spec.name);
	default:
		return open_verbs(p, cfg);
	}
}

int pv_port_ring_open(struct pv_port *p, const struct pv_config *cfg)
{
	int rc = pv_port_device_open(p, cfg);

	if (rc)
		return rc;
	p->notify_fd = pv_ring_notify_fd(p->ring);
	if (p->notify_fd < 0)
		p->notify_fd = -1;
	return 0;
}

void pv_port_ring_close(struct pv_port *p)
{
	pv_ring_close(p->ring);
	(void)pv_pool_close(p->pool);
	p->ring = NULL;
}

/* What is lent at the moment, or queued at a socket, keeps its pool until it comes back. */
static void close_pool(struct pv_engine *e, struct pv_pool *pool, const char *name)
{
	uint32_t away = pv_pool_close(pool);

	if (!away)
		return;
	pv_log(PV_LOG_INFO, "%s: %u buffers were not given back yet", name, away);
	if (e->nlimbo < pv_array_size(e->limbo))
		e->limbo[e->nlimbo++] = pool;
}

static void close_ring(struct pv_engine *e, struct pv_port *p)
{
	pv_tstamp_port_del(e, p);
	pv_port_bond_rest(e, p);
	pv_ring_close(p->ring);
	pv_port_bond_close(p);
	pv_wrap_close(p->wrap);
	close_pool(e, p->pool, p->spec.name);
}

static void close_limbo(struct pv_engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->nlimbo; i++)
		if (pv_pool_close(e->limbo[i]))
			e->limbo[n++] = e->limbo[i];
	e->nlimbo = n;
}

static void fill_iface(const struct pv_port *p, const struct pv_config *cfg, const struct pv_host_state *host,
		       struct pv_iface_cfg *ic)
{
	const struct pv_ifspec *s = &p->spec;

	*ic = (struct pv_iface_cfg){
		.ring = p->ring,
		.mtu = s->mtu ? s->mtu : (uint32_t)cfg->mtu,
		.vlan = (uint16_t)s->vlan,
		.egress = s->egress,
		.steer = PV_STEER_ADDRESS,
		.naddr = s->naddr,
		.gateway4 = s->gateway4,
		.gateway6 = s->gateway6,
	};
	snprintf(ic->name, sizeof(ic->name), "%s", s->name);
	memcpy(ic->addr, s->addr, sizeof(ic->addr));
	if (!host)
		return;
	ic->steer = PV_STEER_SOCKET;
	ic->kernel_index = host->kernel_index;
	ic->mtu = PV_MIN(host->mtu, p->ring->caps.mtu);
	ic->naddr = host->naddr;
	memcpy(ic->addr, host->addr, sizeof(ic->addr));
	/* Peers know the interface by the kernel's MAC, whatever the device's own is. */
	memcpy(p->ring->caps.mac, host->mac, sizeof(host->mac));
	p->ring->caps.link_up = host->link_up;
}

/* What was asked for by VMA's settings of rings and is done otherwise, and what of it is done by queues. */
static void log_queues(const struct pv_port *p, const struct pv_config *cfg)
{
	uint32_t have = p->ring->caps.queues;

	if (cfg->ring_logic_rx && !p->ring->caps.rxqs)
		pv_log(PV_LOG_INFO, "%s: ring_logic_rx=%d asks for receive queues by sockets; the ring has none, in force is 0",
		       p->spec.name, (int)cfg->ring_logic_rx);
	if (cfg->ring_logic_tx && !p->ring->caps.txqs)
		pv_log(PV_LOG_INFO, "%s: ring_logic_tx=%d asks for more send queues; the ring has none, in force is 0",
		       p->spec.name, (int)cfg->ring_logic_tx);
	if (cfg->ring_migration_rx >= 0 || cfg->ring_migration_tx >= 0)
		pv_log(PV_LOG_INFO, "%s: migration ratios are not heeded: a socket changes its queue by pyvma.ring.move alone",
		       p->spec.name);
	if (p->spec.ring < PV_IFSPEC_XDP && have < (uint32_t)cfg->rx_queues)
		pv_log(PV_LOG_INFO, "%s: rx_queues=%d, the device has %u", p->spec.name, (int)cfg->rx_queues, have);
}

/* What others see of the port, after something of it changed. */
void pv_port_stat(struct pv_port *p)
{
	const struct pv_iface_cfg *ic = pv_iface_config(pv_net_iface(pv_engine.net, p->index));
	const struct pv_ring_caps *c = &p->ring->caps;
	struct pv_ring_stat *s = p->ring->stat;

	snprintf(s->ifname, sizeof(s->ifname), "%s", p->spec.name);
	memcpy(s->name, p->label, sizeof(s->name));
	memcpy(s->mode, c->mode, sizeof(s->mode));
	memcpy(s->mac, c->mac, sizeof(s->mac));
	s->index = p->index;
	s->mtu = ic->mtu ? ic->mtu : c->mtu;
	s->link_up = c->link_up && !p->failed;
	s->rx_depth = c->rx_depth;
	s->tx_depth = c->tx_depth;
	s->queues = c->queues;
	s->dm_size = c->dm_bytes;
	s->moderation_frames = c->moderation_frames;
	s->moderation_us = c->moderation_us;
	s->pacing_min_kbps = c->pacing_min_kbps;
	s->pacing_max_kbps = c->pacing_max_kbps;
	s->pool = p->pool;
}

int pv_port_open(struct pv_engine *e, const struct pv_ifspec *s, const struct pv_host_state *host)
{
	struct pv_port *p = &e->ports[e->nports];
	struct pv_iface_cfg ic;
	int rc;

	close_limbo(e);
	memset(p, 0, sizeof(*p));
	p->spec = *s;
	rc = s->ring == PV_IFSPEC_BOND ? pv_port_bond_open(e, p, host) : pv_port_device_open(p, e->cfg);
	if (rc)
		return rc;
	rc = pv_wrap_open(&p->ring, &p->wrap, e->cfg, s->name, e->several);
	if (rc) {
		close_ring(e, p);
		return rc;
	}
	fill_iface(p, e->cfg, host, &ic);
	if (host && !(p->ring->caps.flow_kinds & 1u << PV_FLOW_3TUPLE)) {
		close_ring(e, p);
		return pv_error(-EOPNOTSUPP, "%s: the device has no flow rules for single ports, and the rest is the kernel's",
				s->name);
	}
	rc = pv_stack_iface_add(e->stack, &ic);
	if (rc < 0) {
		const char *why = rc == -EINVAL
				      ? "the MTU is too small for its addresses (576 for IPv4, 1280 for IPv6) or above the port's"
				      : strerror(-rc);

		close_ring(e, p);
		return pv_error(rc, "%s: %s", s->name, why);
	}
	p->index = (uint32_t)rc;
	atomic_store_explicit(&e->kernel_index[p->index], ic.kernel_index, memory_order_relaxed);
	const char *colon = strchr(p->ring->caps.name, ':');

	snprintf(p->label, sizeof(p->label), "%s:%.*s", pv_ifspec_kind(s), (int)sizeof(p->label) - 10,
		 colon ? colon + 1 : p->ring->caps.name);
	p->notify_fd = pv_ring_notify_fd(p->ring);
	if (p->notify_fd < 0)
		p->notify_fd = -1;
	e->nports++;
	e->ports_gen++;
	e->stat->nports = e->nports;
	pv_port_stat(p);
	p->serial = e->ports_gen;
	pv_tstamp_port_add(e, p);
	pv_recorder_port(e, p);
	pv_control_port(e, p);
	pv_log(PV_LOG_INFO, "%s: %s (%s), MTU %u", s->name, p->ring->caps.name, p->ring->caps.mode, ic.mtu);
	log_queues(p, e->cfg);
	return 0;
}

/* Sockets that nobody reads shall not keep a pool for each ring that there ever was. */
static void make_room_in_limbo(struct pv_engine *e)
{
	close_limbo(e);
	if (e->nlimbo < pv_array_size(e->limbo))
		return;
	for (uint32_t i = 0; i < e->nlimbo; i++) {
		pv_udp_pool_purge(e->udp, e->limbo[i]);
		pv_net_stamps_purge(e->net, e->limbo[i]);
	}
	close_limbo(e);
}

void pv_port_close(struct pv_engine *e, struct pv_port *p)
{
	/* Not by pv_engine_poll, which may be what called. */
	for (int i = 0; i < DRAIN_POLLS && pv_stack_poll(e->stack, pv_clock_now(&e->clock), e->rx_budget); i++)
		;
	make_room_in_limbo(e);
	pv_recorder_ring(e, p, PV_TRACE_RING_CLOSED);
	atomic_store_explicit(&e->kernel_index[p->index], 0, memory_order_relaxed);
	(void)pv_stack_iface_del(e->stack, p->index);
	close_ring(e, p);
	*p = e->ports[--e->nports];
	e->ports_gen++;
	e->stat->nports = e->nports;
}

static int check_logic(const char *name, int64_t value)
{
	static const uint32_t known = 1u << PV_RING_LOGIC_INTERFACE | 1u << PV_RING_LOGIC_ADDRESS | 1u << PV_RING_LOGIC_SOCKET |
				      1u << PV_RING_LOGIC_USER | 1u << PV_RING_LOGIC_THREAD | 1u << PV_RING_LOGIC_CORE |
				      1u << PV_RING_LOGIC_ATTACHED;

	return known >> value & 1 ? 0 : pv_error(-EINVAL, "%s=%d: 0, 1, 10, 11, 20, 30 or 31", name, (int)value);
}

int pv_ports_open(struct pv_engine *e, const struct pv_ifspec *specs, uint32_t n)
{
	int rc = check_logic("ring_logic_rx", e->cfg->ring_logic_rx);

	e->nports = 0;
	e->several = n > 1;
	if (!rc)
		rc = check_logic("ring_logic_tx", e->cfg->ring_logic_tx);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = *specs[i].netdev ? pv_host_add(e, &specs[i]) : pv_port_open(e, &specs[i], NULL);
	return rc ? rc : pv_host_start(e);
}

void pv_ports_close(struct pv_engine *e)
{
	for (uint32_t i = 0; i < e->nports; i++) {
		atomic_store_explicit(&e->kernel_index[e->ports[i].index], 0, memory_order_relaxed);
		close_ring(e, &e->ports[i]);
	}
	e->nports = 0;
	close_limbo(e);
}

/* caps.link_up is the ring's to write, and stays. */
void pv_port_failed(struct pv_engine *e, struct pv_port *p, enum pv_ring_event ev)
{
	p->gone |= ev == PV_RING_EV_GONE;
	p->failed = true;
	(void)pv_stack_iface_fail(e->stack, p->index);
	pv_port_stat(p);
	pv_engine_route(e);
}

void pv_ports_events(struct pv_engine *e)
{
	static const char *const texts[] = {
		"", "link up", "link down", "the device is gone", "the device reports an error", "the traffic goes another way"
	};
	bool hosts = false;

	for (uint32_t i = 0; i < e->nports; i++) {
		struct pv_port *p = &e->ports[i];
		enum pv_ring_event ev;

		if (p->bond) {
			pv_port_bond_events(e, p);
			hosts |= p->failed;
			continue;
		}
		for (int n = 0; n < EVENTS_MAX && (ev = pv_ring_event(p->ring)) != PV_RING_EV_NONE; n++) {
			bool bad = ev == PV_RING_EV_GONE || ev == PV_RING_EV_ERROR;

			if (bad && p->failed)
				continue;
			pv_recorder_ring(e, p, PV_TRACE_LINK_UP + (uint32_t)ev - PV_RING_EV_LINK_UP);
			pv_log(bad ? PV_LOG_ERROR : PV_LOG_WARN, "%s: %s", p->spec.name, texts[ev]);
			pv_port_stat(p);
			if (!bad)
				continue;
			pv_port_failed(e, p, ev);
			hosts |= *p->spec.netdev != '\0';
		}
	}
	if (!e->have_thread && e->tstamp)
		pv_tstamp_tick(e->tstamp);
	/* Rings of the kernel's interfaces are closed there, and opened again if they can be. */
	if (hosts)
		(void)pv_host_read(e);
}
