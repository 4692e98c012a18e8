/* SPDX-License-Identifier: BSD-3-Clause */
/* ARP (RFC 826): questions, answers, announcements and the defence of our addresses (RFC 5227). */
#include "net/internal.h"

/* A different MAC within this time of the last one is not believed, as Linux's locktime: the first of several answers counts. */
#define LOCK_NS (1 * PV_NS_PER_S)
#define DEFEND_NS (10 * PV_NS_PER_S)

static const uint8_t mac_broadcast[PV_ETH_ALEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

static void arp_send(struct pv_net *net, struct pv_iface *ifp, const struct pv_wire_arp *arp, const uint8_t *dst)
{
	struct pv_pkt *pkt = pv_net_pkt(net, ifp->ring);

	if (!pkt)
		return;
	pkt->len = pv_wire_eth_emit(pkt->data, dst, ifp->mac, ifp->vlan, PV_ETHERTYPE_ARP);
	pkt->len += pv_wire_arp_emit(pkt->data + pkt->len, arp);
	pkt->total = pkt->len;
	net->c.tx_arp++;
	pv_tx_post(net, ifp->index, ifp->ring, pkt);
}

void pv_arp_request(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *target, const struct pv_addr *src,
		    const uint8_t *mac)
{
	struct pv_wire_arp arp = { .op = PV_ARP_REQUEST, .spa = src->w[3], .tpa = target->w[3] };

	memcpy(arp.sha, ifp->mac, PV_ETH_ALEN);
	arp_send(net, ifp, &arp, mac ? mac : mac_broadcast);
}

void pv_arp_announce(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *addr)
{
	pv_arp_request(net, ifp, addr, addr, NULL);
}

/* RFC 5227 2.4 (b): once in a while we insist; answering each time would make two hosts shout at each other for ever. */
static void arp_conflict(struct pv_net *net, struct pv_iface *ifp, const struct pv_addr *addr, int64_t now_ns)
{
	if (now_ns - ifp->defended_ns < DEFEND_NS)
		return;
	ifp->defended_ns = now_ns;
	pv_arp_announce(net, ifp, addr);
}

static void arp_learn(struct pv_net *net, struct pv_iface *ifp, const struct pv_wire_arp *arp, bool for_us, int64_t now_ns)
{
	struct pv_addr spa = pv_addr_from4(&arp->spa);
	struct pv_neigh *n = pv_neigh_find(net, ifp->index, &spa);
	bool confirmed = arp->op == PV_ARP_REPLY && for_us;

	/* RFC 826: who asks for us will be talked to. Nobody outside our subnets gets an entry by asking, and none by answering. */
	if (!n && arp->op == PV_ARP_REQUEST && for_us && pv_iface_onlink(ifp, &spa))
		n = pv_neigh_get(net, ifp->index, &spa, false);
	if (n)
		pv_neigh_heard(net, n, arp->sha, confirmed, now_ns - n->changed_ns >= LOCK_NS, now_ns);
}

enum pv_rx_verdict pv_arp_rx(struct pv_net *net, struct pv_iface *ifp, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_addr spa, tpa;
	struct pv_wire_arp arp;
	bool for_us;

	if (pv_wire_arp_parse(pkt->data, pkt->len, &arp))
		return pv_net_drop(net, pkt, &net->c.rx_arp_bad);
	spa = pv_addr_from4(&arp.spa);
	tpa = pv_addr_from4(&arp.tpa);
	if (pv_addr_is_mcast(&spa) || pv_net_is_broadcast(net, &spa))
		return pv_net_drop(net, pkt, &net->c.rx_arp_bad);
	net->c.rx_arp++;
	for_us = pv_iface_owns(net, ifp, &tpa);
	/* Another process on our port has our MAC, but not our addresses. */
	if (ifp->resolves && !(pv_mac_eq(arp.sha, ifp->mac) && pv_iface_owns(net, ifp, &spa))) {
		if (pv_iface_owns(net, ifp, &spa))
			arp_conflict(net, ifp, &spa, now_ns);
		else if (!pv_addr_is_any(&spa))
			arp_learn(net, ifp, &arp, for_us, now_ns);
		/* A probe (sender 0, RFC 5227 2.1.1) is answered like any question: that is the defence. */
		if (for_us && arp.op == PV_ARP_REQUEST && !pv_iface_owns(net, ifp, &spa)) {
			struct pv_wire_arp re = { .op = PV_ARP_REPLY, .spa = arp.tpa, .tpa = arp.spa };

			memcpy(re.sha, ifp->mac, PV_ETH_ALEN);
			memcpy(re.tha, arp.sha, PV_ETH_ALEN);
			arp_send(net, ifp, &re, arp.sha);
		}
	}
	pv_pkt_put(pkt);
	return PV_RX_CONSUMED;
}
