/* SPDX-License-Identifier: BSD-3-Clause */
/* IGMP messages: version 3 (RFC 3376), and 1 and 2 (RFC 1112, RFC 2236) for old queriers. */
#include "net/internal.h"

#define RA_LEN 4u /* router alert (RFC 2113): every message carries it */
#define HLEN (PV_IP4_HLEN + RA_LEN)
#define PREC_INTERNETCONTROL 0xc0 /* RFC 3376 4 */

static struct pv_addr group4(uint32_t host_order)
{
	host_order = __builtin_bswap32(host_order);
	return pv_addr_from4(&host_order);
}

/* `pkt->data` is the message: IP header with its option, Ethernet, away. */
static void igmp_send(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, const struct pv_addr *dst)
{
	struct pv_path path = { .src = pv_addr_from4(&ifp->ip4), .dst = *dst };
	struct pv_tx_opts o = { .proto = PV_PROTO_IGMP, .ttl = 1, .tos = PREC_INTERNETCONTROL };
	uint8_t mac[PV_ETH_ALEN], *h;
	uint32_t l2 = ifp->vlan ? PV_ETH_HLEN + PV_VLAN_HLEN : PV_ETH_HLEN;

	h = pkt->data -= HLEN;
	pkt->len += HLEN;
	pv_tx_emit4(h, &path, &o, pkt->len, PV_IP4_DF);
	h[0] = 0x40 | HLEN / 4;
	pv_put32(h + PV_IP4_HLEN, 0x94040000);
	pv_wire_ip4_csum_fill(h, HLEN);
	pv_mac_of_group(mac, dst);
	pkt->data -= l2;
	pkt->len += l2;
	pkt->total = pkt->len;
	pv_wire_eth_emit(pkt->data, mac, ifp->mac, ifp->vlan, PV_ETHERTYPE_IP4);
	net->c.tx_igmp++;
	pv_tx_post(net, ifp->index, ifp->ring, pkt);
}

void pv_igmp_report(struct pv_net *net, struct pv_iface *ifp, const struct pv_wire_grec *rec, uint32_t n)
{
	struct pv_addr all_v3 = group4(0xe0000016);

	while (n) {
		struct pv_pkt *pkt = pv_net_pkt(net, ifp->ring);
		uint32_t done = 0;

		if (!pkt)
			return;
		pkt->len = pv_wire_igmp3_emit(pkt->data, PV_MIN(ifp->cfg.mtu - HLEN, PV_IP6_MIN_MTU - HLEN), rec, n, &done);
		if (!done) {
			pv_pkt_put(pkt);
			return;
		}
		igmp_send(net, ifp, pkt, &all_v3);
		rec += done;
		n -= done;
	}
}

void pv_igmp_old(struct pv_net *net, struct pv_iface *ifp, uint8_t type, const struct pv_addr *group)
{
	struct pv_addr all_routers = group4(0xe0000002);
	struct pv_pkt *pkt = pv_net_pkt(net, ifp->ring);

	if (!pkt)
		return;
	pkt->len = pv_wire_igmp_emit(pkt->data, type, group->w[3]);
	igmp_send(net, ifp, pkt, type == PV_IGMP_V2_LEAVE ? &all_routers : group);
}

/* As Linux: a query is answered whatever its TTL, its options and the group it went to. RFC 3376 says what queriers send (4: TTL 1 and a
 * router alert) and only advises hosts to look at the alert and the group (9.1); queriers without are out there. */
enum pv_rx_verdict pv_igmp_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_wire_igmp m;
	struct pv_addr group;

	if (pkt->frag || pv_wire_igmp_parse(pkt->data, pkt->len, &m) || !pv_cksum_ok(pv_cksum_add(pkt->data, pkt->len, 0)))
		return pv_net_drop(net, pkt, &net->c.rx_icmp_bad);
	net->c.rx_igmp++;
	group = pv_addr_from4(&m.group);
	if (m.type == PV_IGMP_QUERY)
		pv_group_query(
		    net, ifp,
		    &(struct pv_group_query){
			.v4 = true, .version = m.version, .general = !m.group, .group = group, .max_resp_ms = m.max_resp_ms },
		    now_ns);
	else if (m.type == PV_IGMP_V1_REPORT || m.type == PV_IGMP_V2_REPORT)
		pv_group_heard(net, ifp, &group);
	pv_pkt_put(pkt);
	return PV_RX_CONSUMED;
}
