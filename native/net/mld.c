/* SPDX-License-Identifier: BSD-3-Clause */
/* MLD messages: version 2 (RFC 3810), and 1 (RFC 2710) for old queriers. */
#include "net/internal.h"

#define RA_LEN 8u /* hop-by-hop header with a router alert (RFC 2711) and padding */

static const struct pv_addr all_mld2_routers = { .b = { 0xff, 0x02, [15] = 0x16 } };
static const struct pv_addr all_routers = { .b = { 0xff, 0x02, [15] = 0x02 } };

/* `pkt->data` is the message. From the link-local address, or :: when there is none (RFC 3810 5.2.13); one hop. */
static void mld_send(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, const struct pv_addr *dst)
{
	static const uint8_t alert[RA_LEN] = { PV_PROTO_ICMP6, 0, 5, 2, 0, 0, 1, 0 };
	struct pv_path path = { .src = ifp->linklocal, .dst = *dst };
	struct pv_tx_opts o = { .ttl = 1 };
	uint8_t mac[PV_ETH_ALEN];
	uint32_t l2 = ifp->vlan ? PV_ETH_HLEN + PV_VLAN_HLEN : PV_ETH_HLEN;

	pv_wire_icmp6_csum_fill(pkt->data, pkt->len, path.src.b, path.dst.b);
	pkt->data -= RA_LEN;
	pkt->len += RA_LEN;
	memcpy(pkt->data, alert, RA_LEN);
	pkt->data -= PV_IP6_HLEN;
	pv_tx_emit6(pkt->data, &path, &o, pkt->len, PV_IP6_NEXT_HOP);
	pkt->len += PV_IP6_HLEN;
	pv_mac_of_group(mac, dst);
	pkt->data -= l2;
	pkt->len += l2;
	pkt->total = pkt->len;
	pv_wire_eth_emit(pkt->data, mac, ifp->mac, ifp->vlan, PV_ETHERTYPE_IP6);
	net->c.tx_igmp++;
	pv_tx_post(net, ifp->index, ifp->ring, pkt);
}

void pv_mld_report(struct pv_net *net, struct pv_iface *ifp, const struct pv_wire_grec *rec, uint32_t n)
{
	while (n) {
		struct pv_pkt *pkt = pv_net_pkt(net, ifp->ring);
		uint32_t done = 0;

		if (!pkt)
			return;
		pkt->len = pv_wire_mld2_emit(pkt->data, PV_IP6_MIN_MTU - PV_IP6_HLEN - RA_LEN, rec, n, &done);
		if (!done) {
			pv_pkt_put(pkt);
			return;
		}
		mld_send(net, ifp, pkt, &all_mld2_routers);
		rec += done;
		n -= done;
	}
}

void pv_mld_old(struct pv_net *net, struct pv_iface *ifp, uint8_t type, const struct pv_addr *group)
{
	struct pv_pkt *pkt = pv_net_pkt(net, ifp->ring);

	if (!pkt)
		return;
	pkt->len = pv_wire_mld1_emit(pkt->data, type, group->b);
	mld_send(net, ifp, pkt, type == PV_ICMP6_MLD_DONE ? &all_routers : group);
}

/* RFC 3810 5.1.14, 6.2: from a link-local address, one hop, with a router alert; anything else is not of this link's querier. */
enum pv_rx_verdict pv_mld_rx(struct pv_net *net, struct pv_icmp6_in *in, int64_t now_ns)
{
	struct pv_wire_mld m;
	struct pv_addr group;

	if (in->pkt->data[0] == PV_ICMP6_MLD2_REPORT) {
		/* For routers; suppression ended with version 1. */
		net->c.rx_igmp++;
		pv_pkt_put(in->pkt);
		return PV_RX_CONSUMED;
	}
	if (in->hops != 1 || !in->router_alert || !pv_addr_is_unicast_ll6(&in->src) ||
	    pv_wire_mld_parse(in->pkt->data, in->pkt->len, &m))
		return pv_net_drop(net, in->pkt, &net->c.rx_icmp_bad);
	net->c.rx_igmp++;
	group = pv_addr_from6(m.group);
	if (m.type == PV_ICMP6_MLD_QUERY)
		pv_group_query(
		    net, in->ifp,
		    &(struct pv_group_query){
			.version = m.version, .general = pv_addr_is_any(&group), .group = group, .max_resp_ms = m.max_resp_ms },
		    now_ns);
	else if (m.type == PV_ICMP6_MLD_REPORT)
		pv_group_heard(net, in->ifp, &group);
	pv_pkt_put(in->pkt);
	return PV_RX_CONSUMED;
}
