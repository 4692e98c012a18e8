/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/trace.h"

#define REPEAT_NS (10 * PV_NS_PER_MS)

/*
 * Stations are told one by one: their numbers are what a reader wants to pair. Of what is dropped for one reason the next packet may name
 * any peer and port, as those of a scan do: the record has the first one's.
 */
static bool repeats(const struct pv_trace *t, const struct pv_trace_event *last, const struct pv_trace_event *e, int64_t now)
{
	if (e->kind >= PV_TRACE_ring_in || last->kind != e->kind || last->a != e->a || last->iface != e->iface)
		return false;
	if (now - t->last_ns > REPEAT_NS || now - last->when_ns >= UINT32_MAX * PV_NS_PER_US || last->count == UINT32_MAX)
		return false;
	return e->kind == PV_TRACE_drop || (last->id == e->id && last->proto == e->proto && last->lport == e->lport &&
					    last->rport == e->rport && pv_addr_eq(&last->peer, &e->peer));
}

/* Nothing of the record may be seen changed while its old number still stands, and none of the number before the rest. */
static void begin(struct pv_trace_event *r)
{
	__atomic_store_n(&r->seq, 0, __ATOMIC_RELAXED);
	pv_fence_release();
}

static void end(struct pv_trace_event *r, uint32_t seq)
{
	__atomic_store_n(&r->seq, seq, __ATOMIC_RELEASE);
}

pv_noinline void pv_trace_put(struct pv_trace *t, const struct pv_trace_event *e)
{
	uint64_t n;
	struct pv_trace_event *r;
	uint32_t tid;
	int64_t now;

	if (!t)
		return;
	n = *t->head;
	r = &t->ring[(n - 1) & t->mask];
	now = t->now(t, &tid);
	if (n && r->tid == tid && repeats(t, r, e, now)) {
		uint32_t seq = r->seq;

		begin(r);
		r->count++;
		r->span_us = (uint32_t)((now - r->when_ns) / PV_NS_PER_US);
		r->b = e->b;
		end(r, seq);
		t->last_ns = now;
		return;
	}
	r = &t->ring[n & t->mask];
	begin(r);
	r->span_us = 0;
	r->when_ns = now;
	r->id = e->id;
	r->tid = tid;
	r->count = 1;
	r->kind = e->kind;
	r->iface = e->iface;
	r->proto = e->proto;
	r->lport = e->lport;
	r->rport = e->rport;
	r->a = e->a;
	r->b = e->b;
	r->peer = e->peer;
	/* In 2^32 events one has the number 1 twice rather than none. */
	end(r, (uint32_t)(n + 1) ? (uint32_t)(n + 1) : 1);
	t->last_ns = now;
	__atomic_store_n(t->head, n + 1, __ATOMIC_RELEASE);
}

pv_noinline void pv_trace_drop(struct pv_trace *t, const struct pv_trace_event *e, const char *name)
{
	PV_PROBE5(drop, e->a, name, e->iface, e->b, e->id);
	pv_trace_put(t, e);
}
