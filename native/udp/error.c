/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors about what we sent (RFC 1122 4.1.3.3). As Linux: a hard one becomes the pending error of a connected socket; with
 * IP_RECVERR/IPV6_RECVERR every one does, and is queued with its details (net/ipv4/udp.c __udp4_lib_err, net/ipv6/udp.c).
 */
#include "udp/udp_int.h"

static bool wants(const struct pv_udp *u, const struct pv_addr *remote)
{
	return pv_addr_is4(remote) ? u->opts.recverr4 : u->opts.recverr6;
}

/* The oldest makes room for the newest: what matters is the present state of the path. */
void pv_udp_errq_put(struct pv_udp *u, const struct pv_net_error *err, bool local)
{
	struct pv_udp_queued_errors *q = u->errq;
	struct pv_udp_errq *e;

	if (!q || !wants(u, &err->remote))
		return;
	if (q->count == PV_UDP_ERRQ_MAX) {
		q->head = (q->head + 1) % PV_UDP_ERRQ_MAX;
		q->count--;
	}
	e = &q->e[(q->head + q->count++) % PV_UDP_ERRQ_MAX];
	e->err = *err;
	e->to = (struct pv_endpoint){ .addr = err->remote, .port = err->remote_port };
	if (!pv_addr_is4(&err->remote) && pv_addr_is_linklocal6(&err->remote))
		e->to.iface = u->bound_iface;
	e->local = local;
	e->serial = pv_net_serial(u->t->net);
	pv_udp_wake(u, PV_EV_ERR);
}

/* The next one becomes the pending error, if it came by ICMP (sock_dequeue_err_skb). */
int pv_udp_errq_get(struct pv_udp *u, struct pv_udp_errq *out)
{
	struct pv_udp_queued_errors *q = u->errq;
	const struct pv_udp_errq *next;

	if (!q || !q->count)
		return -EAGAIN;
	*out = q->e[q->head];
	q->head = (q->head + 1) % PV_UDP_ERRQ_MAX;
	q->count--;
	next = q->count ? &q->e[q->head] : NULL;
	if (next && !next->local)
		u->tell.err = next->err.err;
	else if (!out->local)
		u->tell.err = 0;
	if (next)
		pv_udp_wake(u, PV_EV_ERR);
	return 0;
}

uint32_t pv_udp_errq_serial(const struct pv_udp *u)
{
	return u->errq->e[u->errq->head].serial;
}

uint32_t pv_udp_errq_count(const struct pv_udp *u)
{
	return u->errq ? u->errq->count : 0;
}

/* "Packet too big" is an error of the sender's who forbade fragmentation only: else the network layer has taken note and fragments. */
static bool pmtu_matters(const struct pv_udp *u, const struct pv_net_error *err)
{
	return (pv_addr_is4(&err->remote) ? u->opts.pmtudisc4 : u->opts.pmtudisc6) != PV_PMTU_DONT;
}

void pv_udp_rx_error(struct pv_udp_table *t, const struct pv_net_error *err)
{
	struct pv_udp_key k = { .local = err->local,
				.remote = err->remote,
				.lport = err->local_port,
				.rport = err->remote_port,
				.accept = pv_addr_is4(&err->local) ? PV_UDP_ACCEPT4 : PV_UDP_ACCEPT6 };
	struct pv_udp *u = pv_udp_lookup(t, &k);
	struct pv_net_error narrow;
	bool hard = err->hard;

	if (!u || !err->err)
		return;
	if (err->err == EMSGSIZE) {
		narrow = *err;
		narrow.mtu = pv_net_error_pmtu(t->net, err, pv_udp_now(t));
		err = &narrow;
		if (!pmtu_matters(u, err) && (pv_addr_is4(&err->remote) || !wants(u, &err->remote)))
			return;
		hard = pmtu_matters(u, err);
	}
	if (wants(u, &err->remote))
		pv_udp_errq_put(u, err, false);
	else if (!hard || !u->connected)
		return;
	u->tell.err = err->err;
	pv_udp_traced(u, pv_net_trace(t->net), PV_TRACE_error, (uint32_t)u->tell.err, 0);
	pv_udp_wake(u, PV_EV_IN | PV_EV_ERR);
}
