/* SPDX-License-Identifier: BSD-3-Clause */
/* What became of a socket, and what the engine counts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rt/host.h"
#include "rt/log.h"
#include "sock/lane.h"
#include "sock/pacing.h"
#include "sock/shown.h"

static uint64_t value_of(const void *obj, const struct pv_stat_field *f)
{
	const char *p = (const char *)obj + f->offset;
	uint32_t v32;
	uint64_t v;

	if (f->size == sizeof(v32)) {
		memcpy(&v32, p, sizeof(v32));
		return v32;
	}
	memcpy(&v, p, sizeof(v));
	return v;
}

/* An object of which the numbers up to `end` bytes behind its start are told, with this in front of their names. */
struct told {
	const char *group, *port;
	const struct pv_stat_type *type;
	const void *obj;
	size_t end;
};

/* The *i-th number of it; else *i is less by how many there are. */
static bool number_of(const struct told *t, unsigned int *i, struct pyvma_counter *out)
{
	for (uint32_t n = 0; n < t->type->nfields; n++) {
		const struct pv_stat_field *f = &t->type->fields[n];

		if (f->offset >= t->end || (f->kind != PV_STAT_COUNTER && f->kind != PV_STAT_GAUGE) || (*i)--)
			continue;
		snprintf(out->name, sizeof(out->name), "%s%s%s.%s", t->group, t->port ? "." : "", t->port ? t->port : "", f->name);
		out->value = value_of(t->obj, f);
		return true;
	}
	return false;
}

static int counter_locked(struct pv_engine *e, unsigned int i, struct pyvma_counter *out)
{
	const struct told layers[] = {
		{ "net", NULL, &pv_net_stat_type, pv_net_counters(e->net), SIZE_MAX },
		{ "udp", NULL, &pv_udp_table_stat_type, pv_udp_table_counters(e->udp), SIZE_MAX },
		{ "tcp", NULL, &pv_tcp_table_stat_type, pv_tcp_table_counters(e->tcp), SIZE_MAX },
		{ "engine", NULL, &pv_engine_stat_type, e->stat, SIZE_MAX },
	};

	for (size_t n = 0; n < pv_array_size(layers); n++)
		if (number_of(&layers[n], &i, out))
			return 0;
	for (uint32_t n = 0; n < e->nports; n++) {
		struct pv_port *p = &e->ports[n];
		struct pv_ring_stat s = { 0 };
		const struct told ring = { "ring", p->spec.name, &pv_ring_stat_type, &s, sizeof(s.c) };
		const struct told pool = { "pool", p->spec.name, &pv_pool_stat_type, p->pool, SIZE_MAX };

		pv_ring_counters(p->ring, &s.c);
		if (number_of(&ring, &i, out) || number_of(&pool, &i, out))
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

/* One write a line: those of several processes do not mix. PID, program, "started" or NAME=VALUE ..., with tabs between. A process that has
 * given up its privileges writes to what is there; only one that may does it make the file. */
void pv_report(bool stops)
{
	const char *path = pv_engine.cfg->exit_stats;
	struct pyvma_counter c;
	char line[16384];
	int len, fd;

	if (!*path || !pv_engine.stack)
		return;
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd < 0) {
		pv_log(PV_LOG_WARN, "exit_stats: %s: %s", path, strerror(errno));
		return;
	}
	len = snprintf(line, sizeof(line), "%d\t%s\t%s", (int)getpid(), program_invocation_short_name, stops ? "" : "started");
	for (unsigned int i = 0; stops && !counter_locked(&pv_engine, i, &c); i++)
		if (c.value && (size_t)len < sizeof(line) - sizeof(c.name) - 32)
			len += snprintf(line + len, sizeof(line) - (size_t)len, "%s=%llu ", c.name, (unsigned long long)c.value);
	line[len++] = '\n';
	if (write(fd, line, (size_t)len) != len)
		pv_log(PV_LOG_WARN, "exit_stats: %s: %s", path, strerror(errno));
	close(fd);
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
	out->rxqs = caps->rxqs;
	out->txqs = caps->txqs;
	pv_ring_counters(p->ring, &c);
	out->tso_packets = c.tso_packets;
	out->dm_alloc = c.dm_alloc;
	out->dm_packets = c.dm_packets;
	out->dm_sent = c.dm_bytes;
	out->dm_oob = c.dm_oob;
	snprintf(out->note, sizeof(out->note), "%s", caps->note);
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
static void send_queue(const struct pv_sock *so, struct pyvma_sock_stats *out)
{
	struct pyvma_place place;
	struct pv_txq_info q;

	for (uint32_t i = 0; so->u ? pv_udp_pacing_info(so->u, i, &q) : so->tc && !i && pv_tcp_pacing_info(so->tc, &q); i++) {
		if (!i) {
			out->pacing_by = pv_pacing_by(&q);
			out->tx_queue = q.number;
		}
		out->tx_held += q.load.frames;
		out->tx_held_bytes += q.load.bytes;
	}
	if (!out->tx_queue && !pv_lane_sender(so, 0, &place))
		out->tx_queue = place.queue;
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
	send_queue(so, out);
	const struct pv_kernel_stat *k = so->st->kernel;

	if (k) {
		out->kernel_rx_datagrams = k->rx;
		out->kernel_rx_bytes = k->rx_bytes;
		out->kernel_tx_datagrams = k->tx;
		out->kernel_tx_bytes = k->tx_bytes;
	}
	out->rx_eagain = so->st->rx.eagain;
	out->tx_eagain = so->st->tx.eagain;
	out->rx_errors = so->st->rx.errors;
	out->tx_errors = so->st->tx.errors;
	out->poll_hits = so->st->hits;
	out->poll_misses = so->st->misses;
	out->sleeps = so->st->sleeps;
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
		snprintf(text, size, "%s", pv_shown_reason_text(so) ? pv_shown_reason_text(so) : "kernel");
		return state;
	}
	pv_lock_get(&pv_engine.lock);
	reason = pv_shown_reason_text(so);
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
	} else {
		snprintf(text, size, "%s", reason ? reason : "kernel");
	}
	pv_lock_put(&pv_engine.lock);
	return state;
}
