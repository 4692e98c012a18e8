/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMPv6 input (RFC 4443): echo, errors to the transports, the rest to neighbour and listener discovery. */
#include "net/internal.h"

/* Linux's icmpv6_err_convert for destination unreachable. */
static const struct {
	int err;
	bool hard;
} unreach[7] = {
	{ ENETUNREACH, false }, { EACCES, true }, { EHOSTUNREACH, false }, { EHOSTUNREACH, false },
	{ ECONNREFUSED, true }, { EACCES, true }, { EACCES, true },
};

static enum pv_rx_verdict consumed(struct pv_pkt *pkt)
{
	pv_pkt_put(pkt);
	return PV_RX_CONSUMED;
}

/* RFC 4443 4.2; to groups too, from an address of the interface. */
static enum pv_rx_verdict echo(struct pv_net *net, struct pv_icmp6_in *in, int64_t now_ns)
{
	struct pv_tx_opts o = { .proto = PV_PROTO_ICMP6, .ttl = PV_DEFAULT_TTL, .pmtudisc = PV_PMTU_DONT, .l4_csum_off = 2 };
	struct pv_path_query q = { .dst = in->src, .iface = in->ifp->index, .answer = true };
	struct pv_rx_info info;

	if (pv_addr_is_any(&in->src))
		return consumed(in->pkt);
	if (!pv_addr_is_mcast(&in->dst))
		q.src = in->dst;
	pv_net_rx_info(net, in->pkt, &info);
	o.tos = info.tos;
	in->pkt->data[0] = PV_ICMP6_ECHO_REPLY;
	net->c.tx_icmp++;
	pv_tx_control(net, &q, &o, in->pkt, now_ns);
	return PV_RX_CONSUMED;
}

static enum pv_rx_verdict error6(struct pv_net *net, struct pv_icmp6_in *in, const struct pv_wire_icmp6 *m)
{
	struct pv_net_error *e = &net->err;
	struct pv_wire_quote6 q;

	if (pv_wire_icmp6_quote(m->body, m->body_len, &q))
		return pv_net_drop(net, in->pkt, &net->c.rx_icmp_bad);
	*e = (struct pv_net_error){
		.local = pv_addr_from6(q.ip.src),
		.remote = pv_addr_from6(q.ip.dst),
		.local_port = q.src_port,
		.remote_port = q.dst_port,
		.tcp_seq = pv_get32(q.l4 + 4),
		.proto = q.proto,
		.type = m->type,
		.code = m->code,
		.offender = in->src,
		.err = EPROTO,
	};
	if (!pv_net_addr_owner(net, &e->local) || pv_addr_is_mcast(&in->src) || pv_addr_is_any(&in->src))
		return pv_net_drop(net, in->pkt, &net->c.rx_icmp_bad);
	net->c.rx_icmp++;
	switch (m->type) {
	case PV_ICMP6_UNREACH:
		e->hard = true;
		if (m->code < pv_array_size(unreach)) {
			e->err = unreach[m->code].err;
			e->hard = unreach[m->code].hard;
		}
		break;
	case PV_ICMP6_TOO_BIG:
		e->err = EMSGSIZE;
		e->hard = true;
		/* RFC 8201 4: about a packet of ours that was longer than what it says fits. */
		if (PV_IP6_HLEN + q.ip.payload_len <= m->word)
			return consumed(in->pkt);
		e->mtu = m->word;
		break;
	case PV_ICMP6_TIME_EXCEEDED:
		e->err = EHOSTUNREACH;
		break;
	case PV_ICMP6_PARAM_PROBLEM:
		e->hard = true;
		break;
	default: /* unknown errors go up (RFC 4443 2.4 (a)) */
		break;
	}
	if (e->proto != PV_PROTO_UDP && e->proto != PV_PROTO_TCP)
		return consumed(in->pkt);
	net->c.rx_icmp_error++;
	return PV_RX_ERROR;
}

static bool csum_ok(const struct pv_pkt *pkt)
{
	const uint8_t *h = pkt->buf + pkt->l3_off;
	uint64_t sum = pv_cksum_pseudo6(h + 8, h + 24, PV_PROTO_ICMP6, pkt->total);

	return (pkt->flags & PV_PKT_LOOPED) || pv_cksum_ok(pv_cksum_merge(sum, pv_net_chain_sum(pkt)));
}

enum pv_rx_verdict pv_icmp6_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, bool router_alert, int64_t now_ns)
{
	const uint8_t *h = pkt->buf + pkt->l3_off;
	struct pv_icmp6_in in = {
		.ifp = ifp,
		.pkt = pkt,
		.src = pv_addr_from6(h + 8),
		.dst = pv_addr_from6(h + 24),
		.hops = h[7],
		.router_alert = router_alert,
	};
	struct pv_wire_icmp6 m;

	if (pv_wire_icmp6_parse(pkt->data, pkt->len, &m) || !csum_ok(pkt))
		return pv_net_drop(net, pkt, &net->c.rx_icmp_bad);
	if (m.type == PV_ICMP6_ECHO)
		net->c.rx_icmp++;
	if (m.type == PV_ICMP6_ECHO)
		return m.code ? consumed(pkt) : echo(net, &in, now_ns);
	/* RFC 6980: discovery in fragments is not believed; errors fit one packet. */
	if (pkt->frag)
		return pv_net_drop(net, pkt, &net->c.rx_icmp_bad);
	if (pv_wire_icmp6_is_error(m.type))
		return error6(net, &in, &m);
	net->c.rx_icmp++;
	switch (m.type) {
	case PV_ICMP6_RS:
	case PV_ICMP6_RA:
	case PV_ICMP6_NS:
	case PV_ICMP6_NA:
	case PV_ICMP6_REDIRECT:
		return pv_nd_rx(net, &in, now_ns);
	case PV_ICMP6_MLD_QUERY:
	case PV_ICMP6_MLD_REPORT:
	case PV_ICMP6_MLD_DONE:
	case PV_ICMP6_MLD2_REPORT:
		return pv_mld_rx(net, &in, now_ns);
	default:
		return consumed(pkt);
	}
}
