/* SPDX-License-Identifier: BSD-3-Clause */
/* What the flight recorder is told (base/trace.h); none of it is on the data path, but while packets are traced. */
#include "udp/udp_int.h"

#include "base/bytes.h"

static struct pv_trace_event about(const struct pv_udp *u)
{
	struct pv_trace_event e = { .proto = PV_PROTO_UDP };

	if (!u)
		return e;
	e.id = (uintptr_t)u;
	e.lport = u->lport;
	e.rport = u->rport;
	e.peer = u->raddr;
	e.iface = (uint8_t)u->bound_iface;
	return e;
}

void pv_udp_traced(const struct pv_udp *u, struct pv_trace *t, enum pv_trace_kind kind, uint32_t a, uint32_t b)
{
	struct pv_trace_event e = about(u);

	e.kind = (uint16_t)kind;
	e.a = a;
	e.b = b;
	pv_trace_put(t, &e);
}

pv_noinline void pv_udp_lost(struct pv_udp_table *t, struct pv_udp *u, const struct pv_pkt *pkt, const uint64_t *counter)
{
	static const char *const names[] = { PV_UDP_COUNTERS(PV_COUNTER_NAME) };
	size_t i = (size_t)(counter - (const uint64_t *)(const void *)&t->counters);
	struct pv_trace_event e = about(u);

	((uint64_t *)(void *)&t->counters)[i]++;
	if (u)
		((uint64_t *)(void *)&u->counters)[i]++;
	e.kind = PV_TRACE_drop;
	e.a = PV_TRACE_REASON(PV_TRACE_UDP, i);
	if (pkt) {
		e.b = pkt->total;
		e.iface = pkt->iface;
	}
	/* A datagram for nobody: the port that it was for, and who sent it. */
	if (pkt && !u && counter == &t->counters.rx_no_port) {
		struct pv_rx_info info;

		pv_net_rx_info(t->net, pkt, &info);
		e.peer = info.src;
		e.rport = pv_get16(pkt->buf + pkt->l4_off);
		e.lport = pv_get16(pkt->buf + pkt->l4_off + 2);
	}
	pv_trace_drop(pv_net_trace(t->net), &e, names[i]);
}

void pv_udp_trace_packets(struct pv_udp_table *t, struct pv_trace *stations)
{
	t->head.stations = stations;
	pv_udp_demux_changed(t); /* known flows take a shorter way, which does not tell */
}
