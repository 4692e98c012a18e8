/* SPDX-License-Identifier: BSD-3-Clause */
/* What became of a socket, and what the engine counts. */
#include <stdio.h>
#include <string.h>

#include "rt/host.h"
#include "sock/pacing.h"

struct counter_name {
	const char *name;
	size_t off;
};

static const struct counter_name net_names[] = {
#define NET_NAME(n, text) { #n, offsetof(struct pv_net_counters, n) },
	PV_NET_COUNTERS(NET_NAME)
};
static const struct counter_name udp_names[] = {
#define UDP_NAME(n, text) { #n, offsetof(struct pv_udp_counters, n) },
	PV_UDP_COUNTERS(UDP_NAME)
};
#define RING_COUNTERS(X)                                                                                                           \
	X(rx_packets)                                                                                                              \
	X(rx_bytes)                                                                                                                \
	X(tx_packets)                                                                                                              \
	X(tx_bytes)                                                                                                                \
	X(rx_errors)                                                                                                               \
	X(rx_no_buf)                                                                                                               \
	X(tx_errors)                                                                                                               \
	X(tx_full)                                                                                                                 \
	X(doorbells)                                                                                                               \
	X(interrupts)                                                                                                              \
	X(tso_packets)                                                                                                             \
	X(dm_alloc)                                                                                                                \
	X(dm_packets)                                                                                                              \
	X(dm_bytes)                                                                                                                \
	X(dm_oob)
static const struct counter_name ring_names[] = {
#define RING_NAME(n) { #n, offsetof(struct pv_ring_counters, n) },
	RING_COUNTERS(RING_NAME)
};
static const struct counter_name tcp_names[] = {
#define TCP_NAME(n, text) { #n, offsetof(struct pv_tcp_counters, n) },
	PV_TCP_COUNTERS(TCP_NAME)
};
static const char *const pool_names[] = { "total", "free", "low_water", "exhausted", "grown" };

static uint64_t field(const void *counters, const struct counter_name *c)
{
	uint64_t v;

	memcpy(&v, (const char *)counters + c->off, sizeof(v));
	return v;
}

static void name_put(struct pyvma_counter *out, const char *group, const char *port, const char *name)
{
	snprintf(out->name, sizeof(out->name), "%s%s%s.%s", group, port ? "." : "", port ? port : "", name);
}

/* Counter `i` of a port's ring and pool. */
static void port_counter(struct pv_port *p, unsigned int i, struct pyvma_counter *out)
{
	if (i < pv_array_size(ring_names)) {
		struct pv_ring_counters c;

		pv_ring_counters(p->ring, &c);
		name_put(out, "ring", p->spec.name, ring_names[i].name);
		out->value = field(&c, &ring_names[i]);
		return;
	}
	struct pv_pool_stats st;

	i -= (unsigned int)pv_array_size(ring_names);
	pv_pool_get_stats(p->pool, &st);
	name_put(out, "pool", p->spec.name, pool_names[i]);
	const uint64_t values[] = { st.total, st.free, st.low_water, st.exhausted, st.grown };

	out->value = values[i];
}

static int counter_locked(struct pv_engine *e, unsigned int i, struct pyvma_counter *out)
{
	const unsigned int per_port = pv_array_size(ring_names) + pv_array_size(pool_names);

	if (i < pv_array_size(net_names)) {
		name_put(out, "net", NULL, net_names[i].name);
		out->value = field(pv_net_counters(e->net), &net_names[i]);
		return 0;
	}
	i -= (unsigned int)pv_array_size(net_names);
	if (i < pv_array_size(udp_names)) {
		name_put(out, "udp", NULL, udp_names[i].name);
		out->value = field(pv_udp_table_counters(e->udp), &udp_names[i]);
		return 0;
	}
	i -= (unsigned int)pv_array_size(udp_names);
	if (i < pv_array_size(tcp_names)) {
		name_put(out, "tcp", NULL, tcp_names[i].name);
		out->value = field(pv_tcp_table_counters(e->tcp), &tcp_names[i]);
		return 0;
	}
	i -= (unsigned int)pv_array_size(tcp_names);
	if (i < e->nports * per_port) {
		port_counter(&e->ports[i / per_port], i % per_port, out);
		return 0;
	}
	i -= e->nports * per_port;
	if (i == 0) {
		name_put(out, "engine", NULL, "polls");
		out->value = e->polls;
		return 0;
	}
	if (i == 1) {
		name_put(out, "engine", NULL, "lent");
		out->value = e->lent;
		return 0;
	}
	return -ENOENT;
}

int pyvma_counter_get(unsigned int i, struct pyvma_counter *out)
{
	int rc = -ENOENT;

	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return rc;
	pv_lock_get(&pv_engine.lock);
	if (pv_engine.stack)
		rc = counter_locked(&pv_engine, i, out);
	pv_lock_put(&pv_engine.lock);
	return rc;
}

static void interface_locked(const struct pv_port *p, struct pyvma_interface *out)
{
	const struct pv_iface_cfg *ic = pv_iface_config(pv_net_iface(pv_engine.net, p->index));
	const struct pv_ring_caps *caps = &p->ring->caps;
	struct pv_ring_counters c;

	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", ic->name);
	snprintf(out->ring, sizeof(out->ring), "%s", p->label);
	snprintf(out->mode, sizeof(out->mode), "%s", caps->mode);
	memcpy(out->mac, caps->mac, sizeof(out->mac));
	out->link_up = caps->link_up && !p->failed;
	out->naddr = (uint8_t)PV_MIN(ic->naddr, (uint32_t)pv_array_size(out->addr));
	out->index = pv_ifindex_public(p->index);
	out->mtu = ic->mtu ? ic->mtu : caps->mtu;
	for (uint32_t i = 0; i < out->naddr; i++) {
		struct pv_endpoint ep = { .addr = ic->addr[i].addr, .iface = p->index };

		pv_addr_format(pv_addr_is4(&ep.addr) ? AF_INET : AF_INET6, &ep, &out->addr[i], sizeof(out->addr[i]));
		out->prefix_len[i] = ic->addr[i].prefix_len;
	}
	out->rx_csum = caps->rx_csum;
	out->tx_csum = caps->tx_csum;
	out->inline_size = caps->inline_size;
	out->tso_max = caps->tso_max;
	out->rx_depth = caps->rx_depth;
	out->tx_depth = caps->tx_depth;
	out->queues = caps->queues;
	out->flow_kinds = caps->flow_kinds;
	out->flow_match = caps->flow_match;
	out->tstamp_kind = caps->tstamp;
	out->tstamp_khz = caps->tstamp_khz;
	out->dm_bytes = caps->dm_bytes;
	out->pacing_min_kbps = caps->pacing_min_kbps;
	out->pacing_max_kbps = caps->pacing_max_kbps;
	out->pacing_burst = caps->pacing_burst;
	out->txqs = caps->txqs;
	pv_ring_counters(p->ring, &c);
	out->tso_packets = c.tso_packets;
	out->dm_alloc = c.dm_alloc;
	out->dm_packets = c.dm_packets;
	out->dm_sent = c.dm_bytes;
	out->dm_oob = c.dm_oob;
}

int pyvma_interface_get(unsigned int index, struct pyvma_interface *out)
{
	int rc = -ENOENT;

	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return rc;
	pv_lock_get(&pv_engine.lock);
	if (pv_engine.stack && index >= 1 && index <= pv_engine.nports) {
		interface_locked(&pv_engine.ports[index - 1], out);
		rc = 0;
	}
	pv_lock_put(&pv_engine.lock);
	return rc;
}

/* Of several interfaces the numbers are sums; by whom, and the queue, are the first one's. */
static void pacing(const struct pv_sock *so, struct pyvma_sock_stats *out)
{
	struct pv_txq_info q;

	for (uint32_t i = 0; so->u ? pv_udp_pacing_info(so->u, i, &q) : so->tc && !i && pv_tcp_pacing_info(so->tc, &q); i++) {
		if (!i) {
			out->pacing_by = pv_pacing_by(&q);
			out->tx_queue = q.number;
		}
		out->tx_held += q.load.frames;
		out->tx_held_bytes += q.load.bytes;
	}
}

int pyvma_sock_stats(pyvma_sock *h, struct pyvma_sock_stats *out)
{
	struct pv_sock *so = pv_handle_sock(h);

	memset(out, 0, sizeof(*out));
	if (!so)
		return -EBADF;
	if (!so->candidate)
		return 0;
	pv_lock_get(&pv_engine.lock);
	if (so->u) {
		const struct pv_udp_counters *c = pv_udp_counters(so->u);

		out->rx_datagrams = c->rx_datagrams;
		out->rx_bytes = c->rx_bytes;
		out->rx_dropped = c->rx_queue_full + c->rx_no_buf + c->rx_bad_csum;
		out->tx_datagrams = c->tx_datagrams;
		out->tx_bytes = c->tx_bytes;
		out->tx_errors = c->tx_errors;
		out->queued = pv_udp_queued(so->u);
		out->queued_bytes = pv_udp_queued_bytes(so->u);
	}
	if (so->tc) {
		struct pv_tcp_info i;

		pv_tcp_get_info(so->tc, &i, pv_clock_now(&pv_engine.clock));
		out->rx_bytes = i.bytes_received;
		out->tx_bytes = i.bytes_sent;
		out->queued_bytes = pv_tcp_inq(so->tc);
	}
	pacing(so, out);
	out->kernel_rx_datagrams = so->kernel_rx;
	out->kernel_rx_bytes = so->kernel_rx_bytes;
	out->kernel_tx_datagrams = so->kernel_tx;
	out->kernel_tx_bytes = so->kernel_tx_bytes;
	out->eagain = so->eagain;
	out->poll_hits = so->hits;
	out->poll_misses = so->misses;
	out->sleeps = so->sleeps;
	pv_lock_put(&pv_engine.lock);
	return 0;
}

uint32_t pv_sock_iface(const struct pv_sock *so)
{
	struct pv_endpoint local;

	if (so->tc)
		pv_tcp_local(so->tc, &local);
	else
		pv_udp_local(so->u, &local);
	return local.iface ? local.iface : pv_net_addr_owner(pv_engine.net, &local.addr);
}

static void core_text(struct pv_sock *so, char *text, size_t size)
{
	const struct pv_engine *e = &pv_engine;
	uint32_t index = pv_sock_iface(so);

	for (uint32_t i = 0; i < e->nports; i++)
		if (e->ports[i].index == index || (!index && i == 0)) {
			snprintf(text, size, "%s%s", e->ports[i].label, !index && e->nports > 1 ? " and the others" : "");
			return;
		}
}

/* On the kernel's interfaces: does no ring bring anything to this socket at the moment? Then why, in `text`. */
static bool by_kernel_alone(const struct pv_sock *so, char *text, size_t size)
{
	const struct pv_engine *e = &pv_engine;
	struct pv_host_entry_info info;
	int err;

	if (!so->host || !so->bound || pv_udp_steered(so->u, &err))
		return false;
	for (uint32_t i = 0; i < e->nports; i++)
		if (!pv_iface_is_host(e->ports[i].index))
			return false;
	for (uint32_t i = 0; pv_host_entry(e, i, &info); i++)
		if (!info.iface && info.reason) {
			snprintf(text, size, "%s is not offloaded: %s", info.name, info.reason);
			return true;
		}
	snprintf(text, size, "%s", err ? strerror(-err) : "no address of an offloaded interface is its");
	return true;
}

static const char *kernel_text(const struct pv_sock *so)
{
	static const char *const streams = "SOCK_STREAM of another protocol: kernel", *const raws = "raw sockets: kernel",
				 *const other = "kernel";

	if (so->family == AF_UNIX)
		return "AF_UNIX: kernel";
	if (so->family != AF_INET && so->family != AF_INET6)
		return "address family: kernel";
	if (so->type == SOCK_STREAM)
		return streams;
	return so->type == SOCK_RAW ? raws : so->type == SOCK_SEQPACKET ? "SOCK_SEQPACKET: kernel" : other;
}

int pyvma_sock_offload(const pyvma_sock *h, char *text, size_t size)
{
	struct pv_sock *so = pv_handle_sock(h);
	const char *reason;
	int state = PYVMA_KERNEL;

	if (!so) {
		snprintf(text, size, "closed");
		return state;
	}
	if (!so->candidate) {
		snprintf(text, size, "%s", kernel_text(so));
		return state;
	}
	pv_lock_get(&pv_engine.lock);
	reason = atomic_load_explicit(&so->reason, memory_order_relaxed);
	if (pv_sock_mode(so) == PV_SOCK_STREAM && so->tc) {
		core_text(so, text, size);
		state = PYVMA_OFFLOADED;
	} else if (pv_sock_mode(so) == PV_SOCK_CORE && so->u && !so->retired) {
		if (!by_kernel_alone(so, text, size)) {
			core_text(so, text, size);
			state = PYVMA_OFFLOADED;
		}
	} else if (so->dead) {
		snprintf(text, size, "%s",
			 pv_engine_state() == PV_ENGINE_FORKED ? "lost in fork: a child has kernel sockets only"
							       : "the engine was stopped");
	} else if (pv_engine_state() == PV_ENGINE_FORKED) {
		snprintf(text, size, "a forked child has kernel sockets only");
	} else if (pv_engine_state() != PV_ENGINE_RUNNING) {
		snprintf(text, size, "no interface is offloaded (the setting interfaces is empty or offload is off)");
	} else if (pv_sock_mode(so) == PV_SOCK_UNDECIDED) {
		snprintf(text, size, "not decided yet: no bind, connect or send so far");
		state = PYVMA_UNDECIDED;
	} else if (!pv_addr_is_any(&so->reason_addr)) {
		char addr[64];

		pv_addr_text(&so->reason_addr, addr, sizeof(addr));
		snprintf(text, size, "address %s%s", addr, reason);
	} else {
		snprintf(text, size, "%s", reason ? reason : "kernel");
	}
	pv_lock_put(&pv_engine.lock);
	return state;
}
