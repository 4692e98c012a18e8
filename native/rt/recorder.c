/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What rings bring and take is seen by taps (ring/tap.h), so that it costs nothing while packets are not recorded; the stations between
 * are the stack's own.
 */
#include "rt/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"
#include "ring/tap.h"
#include "rt/log.h"
#include "rt/mem.h"
#include "rt/recorder_file.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

struct recorder_tap {
	struct pv_tap tap; /* on no ring: free */
	struct pv_trace *trace;
	uint8_t iface;
};

struct pv_recorder {
	struct pv_trace trace;
	struct pv_engine *engine;
	struct pv_recorder_head *head;
	size_t size;
	bool on; /* stations of packets, too */
	struct recorder_tap taps[PV_IFACE_MAX];
	struct pv_recorder_file file;
};

static _Thread_local uint32_t own_tid; /* 0: not asked for yet */

static struct pv_recorder *recorder_of(const struct pv_engine *e)
{
	return e->trace ? pv_container_of(e->trace, struct pv_recorder, trace) : NULL;
}

static int64_t now(struct pv_trace *t, uint32_t *tid)
{
	struct pv_engine *e = pv_container_of(t, struct pv_recorder, trace)->engine;

	if (pv_unlikely(!own_tid))
		own_tid = (uint32_t)syscall(SYS_gettid);
	*tid = own_tid;
#ifdef PV_DEBUG
	if (!atomic_load_explicit(&e->lock.held, memory_order_relaxed))
		abort(); /* an event without the lock */
#endif
	return pv_clock_now(&e->clock);
}

/* ---- stations at the rings --------------------------------------------------------------------------------------------- */

/* Who speaks with whom, of a whole frame without options in front of its ports; else it stays unsaid. */
static void describe(const struct pv_pkt *pkt, enum pv_dir dir, struct pv_trace_event *e)
{
	const uint8_t *f = pkt->data, *ip = f + PV_ETH_HLEN, *l4;
	struct pv_addr src, dst;

	if (pkt->len >= PV_ETH_HLEN + PV_IP4_HLEN + 4 && pv_get16(f + 12) == PV_ETHERTYPE_IP4 && ip[0] == 0x45) {
		src = pv_addr_from4(ip + 12);
		dst = pv_addr_from4(ip + 16);
		e->proto = ip[9];
		l4 = ip + PV_IP4_HLEN;
	} else if (pkt->len >= PV_ETH_HLEN + PV_IP6_HLEN + 4 && pv_get16(f + 12) == PV_ETHERTYPE_IP6) {
		src = pv_addr_from6(ip + 8);
		dst = pv_addr_from6(ip + 24);
		e->proto = ip[6];
		l4 = ip + PV_IP6_HLEN;
	} else {
		return;
	}
	e->peer = dir == PV_DIR_RX ? src : dst;
	if (e->proto != PV_PROTO_UDP && e->proto != PV_PROTO_TCP)
		return;
	e->lport = pv_get16(l4 + (dir == PV_DIR_RX ? 2 : 0));
	e->rport = pv_get16(l4 + (dir == PV_DIR_RX ? 0 : 2));
}

static void frames(struct pv_tap *tap, struct pv_pkt *const *pkts, uint32_t n, enum pv_dir dir)
{
	const struct recorder_tap *t = pv_container_of(tap, struct recorder_tap, tap);

	for (uint32_t i = 0; i < n; i++) {
		struct pv_trace_event e = { .kind = dir == PV_DIR_RX ? PV_TRACE_ring_in : PV_TRACE_posted,
					    .id = (uintptr_t)pkts[i],
					    .iface = t->iface,
					    .a = pkts[i]->total };

		describe(pkts[i], dir, &e);
		pv_trace_put(t->trace, &e);
	}
}

static void tap_port(struct pv_recorder *r, const struct pv_port *p)
{
	for (uint32_t i = 0; i < PV_IFACE_MAX; i++) {
		struct recorder_tap *t = &r->taps[i];

		if (t->tap.ring)
			continue;
		*t = (struct recorder_tap){ .tap = { .frames = frames }, .trace = &r->trace, .iface = (uint8_t)p->index };
		if (pv_tap_add(&t->tap, p->ring, pv_mem_system(r->engine->cfg->huge_pages)))
			pv_log(PV_LOG_WARN, "%s: no memory to record its frames", p->spec.name);
		return;
	}
}

void pv_recorder_packets(struct pv_engine *e, bool on)
{
	struct pv_recorder *r = recorder_of(e);

	if (!r || r->on == on)
		return;
	r->on = on;
	r->head->packets = on;
	for (uint32_t i = 0; on && i < e->nports; i++)
		tap_port(r, &e->ports[i]);
	for (uint32_t i = 0; !on && i < PV_IFACE_MAX; i++)
		pv_tap_del(&r->taps[i].tap);
	pv_stack_trace_packets(e->stack, on);
	pv_trace_note(e->trace, .kind = PV_TRACE_engine, .a = on ? PV_TRACE_PACKETS_ON : PV_TRACE_PACKETS_OFF);
}

void pv_recorder_ring(struct pv_engine *e, const struct pv_port *p, uint32_t what)
{
	pv_trace_note(e->trace, .kind = PV_TRACE_ring, .a = what, .iface = (uint8_t)p->index);
}

void pv_recorder_port(struct pv_engine *e, const struct pv_port *p)
{
	struct pv_recorder *r = recorder_of(e);

	pv_recorder_ring(e, p, PV_TRACE_RING_OPENED);
	if (r && r->on)
		tap_port(r, p);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------------- */

/* The greatest power of two that is not above it. */
static uint64_t capacity(uint64_t wanted)
{
	uint64_t n = 64;

	while (2 * n <= wanted)
		n *= 2;
	return n;
}

void pv_recorder_open(struct pv_engine *e)
{
	struct pv_recorder *r;
	int rc;

	e->trace = NULL;
	if (e->cfg->trace_events <= 0 || !*e->cfg->stats_dir || !strcmp(e->cfg->stats_dir, "none"))
		return;
	r = calloc(1, sizeof(*r));
	if (!r)
		return;
	rc = pv_recorder_file_make(&r->file, e->cfg->stats_dir, capacity((uint64_t)e->cfg->trace_events), &r->head, &r->size);
	pv_recorder_sweep(e->cfg->stats_dir);
	if (rc) {
		pv_log(PV_LOG_WARN, "no flight recorder: %s: %s", r->file.path, strerror(-rc));
		free(r);
		return;
	}
	r->engine = e;
	r->trace = (struct pv_trace){ .ring = (void *)((uint8_t *)r->head + r->head->events_at),
				      .head = &r->head->head,
				      .mask = r->head->events - 1,
				      .now = now };
	e->trace = &r->trace;
	pv_trace_note(e->trace, .kind = PV_TRACE_engine, .a = PV_TRACE_STARTED);
}

void pv_recorder_close(struct pv_engine *e)
{
	struct pv_recorder *r = recorder_of(e);

	if (!r)
		return;
	pv_trace_note(e->trace, .kind = PV_TRACE_engine, .a = PV_TRACE_STOPPED);
	__atomic_store_n(&r->head->state, 2, __ATOMIC_RELEASE);
	e->trace = NULL;
	pv_recorder_file_close(&r->file);
	munmap(r->head, r->size);
	free(r);
}

void pv_recorder_forget(struct pv_engine *e)
{
	struct pv_recorder *r = recorder_of(e);

	own_tid = 0;
	/* The memory is not there in a child, nor is the stack that would write to it. */
	e->trace = NULL;
	if (r)
		pv_recorder_file_forget(&r->file);
	free(r);
}
