/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP input (RFC 792, RFC 1122 3.2.2): echo is answered, errors go to the transports. */
#include "net/internal.h"

/* Linux's icmp_err_convert: errno, and whether a connected socket hears of it without IP_RECVERR. */
static const struct {
	int err;
	bool hard;
} unreach[16] = {
	{ ENETUNREACH, false },  { EHOSTUNREACH, false }, { ENOPROTOOPT, true },  { ECONNREFUSED, true },
	{ EMSGSIZE, true },      { EOPNOTSUPP, false },   { ENETUNREACH, true },  { EHOSTDOWN, true },
	{ ENONET, true },        { ENETUNREACH, true },   { EHOSTUNREACH, true }, { ENETUNREACH, false },
	{ EHOSTUNREACH, false }, { EHOSTUNREACH, true },  { EHOSTUNREACH, true }, { EHOSTUNREACH, true },
};

static enum pv_rx_verdict consumed(struct pv_pkt *pkt)
{
	pv_pkt_put(pkt);
	return PV_RX_CONSUMED;
}

/* RFC 1122 3.2.2.6. Not to groups and broadcasts, as Linux by default. */
static enum pv_rx_verdict echo(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_tx_opts o = {
		.proto = PV_PROTO_ICMP, .ttl = PV_DEFAULT_TTL, .pmtudisc = PV_PMTU_DONT, .l4_csum_off = UINT32_MAX
	};
	struct pv_path_query q = { .iface = ifp->index, .answer = true };
	struct pv_rx_info info;
	uint16_t was, is;

	pv_net_rx_info(net, pkt, &info);
	if (info.dst_is_mcast || info.dst_is_bcast || pv_addr_is_any(&info.src))
		return consumed(pkt);
	was = pv_cksum_get(pkt->data);
	pkt->data[0] = PV_ICMP4_ECHO_REPLY;
	is = pv_cksum_get(pkt->data);
	pv_cksum_put(pkt->data + 2, pv_cksum_adjust(pv_cksum_get(pkt->data + 2), was, is));
	q.dst = info.src;
	q.src = info.dst;
	o.tos = info.tos;
	net->c.tx_icmp++;
	pv_tx_control(net, &q, &o, pkt, now_ns);
	return PV_RX_CONSUMED;
}

/* RFC 1191 6.3, and what keeps strangers from shrinking paths at will: it must be about a packet of ours that was longer and had DF;
 * the transport knows whether it has such a flow (pv_net_error_pmtu). */
static bool too_big(const struct pv_wire_quote4 *q, uint32_t mtu)
{
	return (q->ip.frag & PV_IP4_DF) && q->ip.total_len > mtu;
}

static enum pv_rx_verdict error4(struct pv_net *net, struct pv_pkt *pkt, const struct pv_wire_icmp4 *m)
{
	struct pv_net_error *e = &net->err;
	struct pv_wire_quote4 q;
	struct pv_rx_info info;

	if (pv_wire_icmp4_quote(m->body, m->body_len, &q))
		return pv_net_drop(net, pkt, &net->c.rx_icmp_bad);
	pv_net_rx_info(net, pkt, &info);
	*e = (struct pv_net_error){
		.local = pv_addr_from4(&q.ip.src),
		.remote = pv_addr_from4(&q.ip.dst),
		.local_port = q.src_port,
		.remote_port = q.dst_port,
		.tcp_seq = pv_get32(q.l4 + 4),
		.proto = q.ip.proto,
		.type = m->type,
		.code = m->code,
		.offender = info.src,
	};
	if (!pv_net_addr_owner(net, &e->local))
		return pv_net_drop(net, pkt, &net->c.rx_icmp_bad);
	net->c.rx_icmp++;
	switch (m->type) {
	case PV_ICMP4_UNREACH:
		if (m->code >= pv_array_size(unreach))
			return consumed(pkt);
		e->err = unreach[m->code].err;
		e->hard = unreach[m->code].hard;
		if (m->code != PV_ICMP4_UNREACH_FRAG)
			break;
		if (!too_big(&q, m->mtu))
			return consumed(pkt);
		e->mtu = m->mtu;
		break;
	case PV_ICMP4_TIME_EXCEEDED:
		e->err = EHOSTUNREACH;
		break;
	case PV_ICMP4_PARAM_PROBLEM:
		e->err = EPROTO;
		e->hard = true;
		break;
	default: /* source quench: RFC 6633 */
		return consumed(pkt);
	}
	if (e->proto != PV_PROTO_UDP && e->proto != PV_PROTO_TCP)
		return consumed(pkt);
	net->c.rx_icmp_error++;
	return PV_RX_ERROR;
}

enum pv_rx_verdict pv_icmp4_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_wire_icmp4 m;

	if (pv_wire_icmp4_parse(pkt->data, pkt->len, &m))
		return pv_net_drop(net, pkt, &net->c.rx_icmp_bad);
	if (!(pkt->flags & PV_PKT_LOOPED) && !pv_cksum_ok(pv_net_chain_sum(pkt)))
		return pv_net_drop(net, pkt, &net->c.rx_icmp_bad);
	if (pv_wire_icmp4_is_error(m.type))
		return error4(net, pkt, &m);
	net->c.rx_icmp++;
	if (m.type == PV_ICMP4_ECHO && m.code == 0)
		return echo(net, ifp, pkt, now_ns);
	return consumed(pkt);
}
