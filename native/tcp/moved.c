/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way out of an interface has changed, and what was on the old one may be lost. That is no congestion, and waiting tells nothing: the
 * probe of RFC 8985 7.3 goes at once, and its acknowledgement shows what is missing a round trip later. A connection that is repairing
 * losses already, or has no SACK, begins again as after a timeout, without what it had backed off.
 */
#include "tcp/conn.h"
#include "tcp/recovery.h"

static void fresh_start(struct pv_tcp *c)
{
	c->backoff = 0;
	c->retransmits = 0;
	c->stall_ns = 0;
}

static bool probes(const struct pv_tcp *c)
{
	return pv_tcp_has_sack(c) && !c->t->cfg.no_recovery_tlp && c->ca != PV_CA_RECOVERY && c->ca != PV_CA_LOSS;
}

static void moved(struct pv_tcp *c, int64_t now_ns)
{
	/* Another device keeps the rate, or none. */
	c->pace_iface = 0;
	if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD || c->flags & PV_TF_PERSIST) {
		if (c->deadline_ns[PV_TT_RTO] == PV_NEVER)
			return;
		c->backoff = 0;
		/* The one more that is sent now is none of those that end it. */
		if (c->retransmits)
			c->retransmits--;
		pv_tcp_timer_set(c, PV_TT_RTO, now_ns);
	} else if (c->in_flight && probes(c)) {
		fresh_start(c);
		/* A probe that is out may be lost as well. */
		c->flags = (c->flags & ~(PV_TF_TLP | PV_TF_TLP_RETRANS)) | PV_TF_PTO;
		pv_tcp_timer_set(c, PV_TT_RACK, now_ns);
	} else if (c->in_flight) {
		fresh_start(c);
		pv_tcp_timer_set(c, PV_TT_RTO, now_ns);
	}
}

void pv_tcp_iface_moved(struct pv_tcp_table *t, uint32_t iface, int64_t now_ns)
{
	t->head.now_ns = now_ns;
	pv_list_for_each(it, &t->all) {
		struct pv_tcp *c = pv_list_entry(it, struct pv_tcp, all);

		if (c->path.gen && c->path.iface == iface)
			moved(c, now_ns);
	}
	pv_tcp_syns_moved(t, iface, now_ns);
}
