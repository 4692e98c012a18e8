/* SPDX-License-Identifier: BSD-3-Clause */
/* What ICMP and ICMPv6 have in common: errors that we send, and how often. */
#include "net/internal.h"

#define ICMP_BURST 50u /* Linux's net.ipv4.icmp_msgs_burst */
#define PREC_INTERNETCONTROL 0xc0 /* RFC 1812 4.3.2.5 */

/* A bucket of ICMP_BURST messages that fills at cfg.icmp_rate a second (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)). */
bool pv_icmp_allowed(struct pv_net *net, int64_t now_ns)
{
	uint64_t one = (uint64_t)PV_NS_PER_S, full = ICMP_BURST * one;
	int64_t passed = now_ns - net->icmp_filled_ns;

	if (passed > PV_NS_PER_S || !net->icmp_filled_ns)
		net->icmp_tokens = full;
	else if (passed > 0)
		net->icmp_tokens = PV_MIN(full, net->icmp_tokens + (uint64_t)passed * net->cfg.icmp_rate);
	net->icmp_filled_ns = now_ns;
	if (net->icmp_tokens < one) {
		net->c.tx_icmp_limited++;
		return false;
	}
	net->icmp_tokens -= one;
	return true;
}

struct quote {
	const uint8_t *h; /* the IP packet as received */
	uint32_t len; /* of it that is in the first buffer */
	bool v4;
	struct pv_addr src, dst;
};

static bool quote_of(const struct pv_pkt *pkt, struct quote *q)
{
	uint32_t whole;

	q->h = pkt->buf + pkt->l3_off;
	q->len = (uint32_t)(pkt->data + pkt->len - q->h);
	q->v4 = q->h[0] >> 4 == 4;
	if (q->len < (q->v4 ? PV_IP4_HLEN : PV_IP6_HLEN))
		return false;
	whole = q->v4 ? pv_get16(q->h + 2) : PV_IP6_HLEN + pv_get16(q->h + 4);
	q->len = PV_MIN(q->len, whole);
	q->src = q->v4 ? pv_addr_from4(q->h + 12) : pv_addr_from6(q->h + 8);
	q->dst = q->v4 ? pv_addr_from4(q->h + 16) : pv_addr_from6(q->h + 24);
	return true;
}

/* RFC 1122 3.2.2: never about errors, groups, broadcasts (of either layer), later fragments or sources that are not one host. */
static bool may_answer4(const struct pv_net *net, const struct quote *q)
{
	uint32_t hlen = (q->h[0] & 0x0fu) * 4u;

	if (pv_get16(q->h + 6) & PV_IP4_OFFSET || pv_net_is_broadcast(net, &q->dst) || pv_net_is_broadcast(net, &q->src))
		return false;
	if (q->h[9] == PV_PROTO_ICMP && (q->len <= hlen || pv_wire_icmp4_is_error(q->h[hlen]) || q->h[hlen] == PV_ICMP4_REDIRECT))
		return false;
	return q->h[9] != PV_PROTO_IGMP;
}

/* RFC 4443 2.4 (e) */
static bool may_answer6(const struct quote *q)
{
	struct pv_wire_ip6_ext ext;
	int rc = pv_wire_ip6_walk(q->h, q->len, &ext);

	/* What does not parse is answered for what came in front of it. */
	if (rc || ext.proto != PV_PROTO_ICMP6)
		return true;
	return ext.l4_off < q->len && !pv_wire_icmp6_is_error(q->h[ext.l4_off]) && q->h[ext.l4_off] != PV_ICMP6_REDIRECT;
}

static bool may_answer(const struct pv_net *net, const struct pv_pkt *pkt, const struct quote *q, bool even_mcast)
{
	const uint8_t *eth = q->h - PV_ETH_HLEN;

	if (pv_addr_is_any(&q->src) || pv_addr_is_mcast(&q->src))
		return false;
	if (!even_mcast && (pv_addr_is_mcast(&q->dst) || (!(pkt->flags & PV_PKT_LOOPED) && pv_mac_is_group(eth))))
		return false;
	return q->v4 ? may_answer4(net, q) : may_answer6(q);
}

void pv_icmp_error(struct pv_net *net, const struct pv_pkt *pkt, uint8_t type, uint8_t code, uint32_t rest, int64_t now_ns)
{
	struct pv_tx_opts o = { .ttl = PV_DEFAULT_TTL, .pmtudisc = PV_PMTU_DONT, .l4_csum_off = UINT32_MAX };
	struct pv_path_query pq = { .iface = pkt->iface, .answer = true };
	struct pv_path path;
	struct pv_pkt *out;
	struct quote q;
	uint32_t len;

	if (pv_iface_is_hosts(net, net->iface[pkt->iface]))
		return;
	/* Unknown options may demand an answer even from a group (RFC 8200 4.2); the caller decided. */
	if (!quote_of(pkt, &q) || !may_answer(net, pkt, &q, !q.v4 && type == PV_ICMP6_PARAM_PROBLEM && code == 2))
		return;
	if (!pv_icmp_allowed(net, now_ns))
		return;
	pq.dst = q.src;
	if (!pv_addr_is_mcast(&q.dst))
		pq.src = q.dst;
	if (pv_net_path(net, &pq, now_ns, &path))
		return;
	out = pv_net_pkt(net, path.ring);
	if (!out)
		return;
	/* As much as keeps the answer within what every host can take: 576 bytes (RFC 1812 4.3.2.3), 1280 (RFC 4443 2.4 (c)). */
	len = q.v4 ? PV_IP4_MIN_MTU - PV_IP4_HLEN - PV_ICMP4_HLEN : PV_IP6_MIN_MTU - PV_IP6_HLEN - PV_ICMP6_HLEN;
	len = PV_MIN(len, q.len);
	memcpy(out->data + PV_ICMP4_HLEN, q.h, len);
	out->len = out->total = PV_ICMP4_HLEN + len;
	if (q.v4) {
		o.proto = PV_PROTO_ICMP;
		o.tos = PREC_INTERNETCONTROL;
		pv_wire_icmp4_emit(out->data, type, code, rest);
		pv_wire_icmp4_csum_fill(out->data, out->len);
	} else {
		o.proto = PV_PROTO_ICMP6;
		pv_wire_icmp6_emit(out->data, type, code, rest);
		pv_wire_icmp6_csum_fill(out->data, out->len, path.src.b, path.dst.b);
	}
	net->c.tx_icmp++;
	pv_net_tx(net, &path, &o, out, now_ns);
}

void pv_net_rx_unreachable(struct pv_net *net, struct pv_pkt *pkt, int64_t now_ns)
{
	if (pkt->buf[pkt->l3_off] >> 4 == 4)
		pv_icmp_error(net, pkt, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_PORT, 0, now_ns);
	else
		pv_icmp_error(net, pkt, PV_ICMP6_UNREACH, PV_ICMP6_UNREACH_PORT, 0, now_ns);
	pv_pkt_put(pkt);
}

uint32_t pv_net_error_pmtu(struct pv_net *net, const struct pv_net_error *err, int64_t now_ns)
{
	const struct pv_route *r = pv_route_find(net, &err->remote, 0);
	const struct pv_pmtu *p;

	pv_pmtu_learn(net, &err->remote, err->mtu, r ? net->iface[r->iface]->cfg.mtu : 0, now_ns);
	p = pv_pmtu_find(net, &err->remote, now_ns);
	return p ? p->mtu : err->mtu;
}

/* A packet that a transport keeps stays its own: the frame's start in another one, as much as an error quotes. NULL: none. */
static struct pv_pkt *copy_kept(struct pv_pkt *pkt)
{
	struct pv_pkt *copy = pv_pkt_get(pkt->pool);

	if (copy) {
		copy->len = PV_MIN(pkt->len, PV_MIN((uint32_t)PV_IP6_MIN_MTU, pv_pkt_tailroom(copy)));
		memcpy(copy->data, pkt->data, copy->len);
	}
	pv_pkt_put(pkt);
	return copy;
}

/* As Linux: the socket hears of a neighbour that does not answer by an ICMP error from ourselves, put in front of the very packet. */
void pv_icmp_host_unreachable(struct pv_net *net, struct pv_pkt *pkt)
{
	uint32_t l2 = pv_get16(pkt->data + 12) == PV_ETHERTYPE_VLAN ? PV_ETH_HLEN + PV_VLAN_HLEN : PV_ETH_HLEN, whole;
	struct pv_tx_opts o = { .ttl = PV_DEFAULT_TTL };
	struct pv_path path;
	const struct pv_local *l;
	uint8_t *h;
	bool v4;

	if (pkt->flags & PV_PKT_KEPT) {
		pkt = copy_kept(pkt);
		if (!pkt)
			return;
	}
	pkt->data += l2;
	pkt->len -= l2;
	v4 = pkt->data[0] >> 4 == 4;
	path.src = v4 ? pv_addr_from4(pkt->data + 12) : pv_addr_from6(pkt->data + 8);
	path.dst = path.src;
	l = pv_local_find(net, &path.src, 0);
	if (!l || pkt->frag || pv_pkt_headroom(pkt) < PV_ETH_HLEN + PV_IP6_HLEN + PV_ICMP6_HLEN) {
		pv_pkt_put(pkt);
		return;
	}
	whole = PV_MIN(pkt->len, v4 ? PV_IP4_MIN_MTU - 28 : PV_IP6_MIN_MTU - 48);
	h = pkt->data -= PV_ICMP4_HLEN;
	pkt->len = whole + PV_ICMP4_HLEN;
	if (v4) {
		o.proto = PV_PROTO_ICMP;
		pv_wire_icmp4_emit(h, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_HOST, 0);
		pkt->data -= PV_IP4_HLEN;
		pkt->len += PV_IP4_HLEN;
		pv_tx_emit4(pkt->data, &path, &o, pkt->len, 0);
	} else {
		o.proto = PV_PROTO_ICMP6;
		pv_wire_icmp6_emit(h, PV_ICMP6_UNREACH, PV_ICMP6_UNREACH_ADDR, 0);
		pkt->data -= PV_IP6_HLEN;
		pv_tx_emit6(pkt->data, &path, &o, pkt->len, PV_PROTO_ICMP6);
		pkt->len += PV_IP6_HLEN;
	}
	pkt->total = pkt->len;
	pv_tx_loop(net, net->iface[l->iface], pkt);
}
