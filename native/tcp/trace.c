/* SPDX-License-Identifier: BSD-3-Clause */
/* What the flight recorder is told (base/trace.h); none of it is on the data path, but while packets are traced. */
#include "tcp/tcp_int.h"

void pv_tcp_traced(const struct pv_tcp *c, enum pv_trace_kind kind, uint32_t a, uint32_t b)
{
	struct pv_trace *t = pv_net_trace(c->t->net);

	pv_trace_note(t, .kind = (uint16_t)kind, .id = (uintptr_t)c, .proto = PV_PROTO_TCP, .lport = c->lport, .rport = c->rport,
		      .peer = c->raddr, .a = a, .b = b, .iface = (uint8_t)c->path.iface);
}

void pv_tcp_state_traced(const struct pv_tcp *c, uint32_t to)
{
	uint32_t was = c->state;

	if (was == to)
		return;
	PV_PROBE5(tcp_state, c, was, to, c->lport, c->rport);
	pv_tcp_traced(c, PV_TRACE_tcp_state, was, to);
}

void pv_tcp_lost(struct pv_tcp_table *t, const struct pv_tcp *c, const struct pv_tcp_in *in, uint64_t *counter)
{
	static const char *const names[] = { PV_TCP_COUNTERS(PV_COUNTER_NAME) };
	size_t i = (size_t)(counter - (const uint64_t *)(const void *)&t->c);
	struct pv_trace_event e = {
		.kind = PV_TRACE_drop, .proto = PV_PROTO_TCP, .id = (uintptr_t)c, .a = PV_TRACE_REASON(PV_TRACE_TCP, i)
	};

	++*counter;
	if (c) {
		e.lport = c->lport;
		e.rport = c->rport;
		e.peer = c->raddr;
		e.iface = (uint8_t)c->path.iface;
	}
	if (in) {
		e.lport = in->dport;
		e.rport = in->sport;
		e.peer = in->src;
		e.iface = in->pkt->iface;
		e.b = in->len;
	}
	pv_trace_drop(pv_net_trace(t->net), &e, names[i]);
}
