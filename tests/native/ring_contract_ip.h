/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of ring_contract.h that need IP: flow rules and checksums. */
#ifndef RING_CONTRACT_IP_H
#define RING_CONTRACT_IP_H

#include "ring_contract.h"

struct contract_ip {
	struct pv_addr src, dst;
	uint16_t src_port, dst_port, vlan;
	uint8_t proto;
	bool later_fragment, other_mac;
	bool offload; /* leave the sums to the ring */
	bool bad_l3, bad_l4;
	uint32_t payload; /* 0: 32 */
};

/* RFC 1071 as the RFC has it: the engine's own sums are not trusted here. */
static inline uint32_t contract_sum(const uint8_t *p, uint32_t len, uint32_t sum)
{
	for (uint32_t i = 0; i < len; i++)
		sum += (uint32_t)p[i] << (i & 1 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static inline uint32_t contract_l4_sum(const uint8_t *ip, const uint8_t *l4, uint32_t len, uint8_t proto)
{
	uint32_t sum = ip[0] >> 4 == 4 ? contract_sum(ip + 12, 8, 0) : contract_sum(ip + 8, 32, 0);

	return contract_sum(l4, len, sum + proto + len);
}

/* Where IP starts in a frame made by contract_ip_frame. */
static inline uint32_t contract_l3(const struct contract_ip *d)
{
	return d->vlan ? 18 : 14;
}

static inline void contract_ip_header(uint8_t *ip, const struct contract_ip *d, uint32_t l4_len)
{
	if (pv_addr_is4(&d->dst)) {
		memset(ip, 0, 20);
		ip[0] = 0x45;
		pv_put16(ip + 2, (uint16_t)(20 + l4_len));
		pv_put16(ip + 6, d->later_fragment ? 0x0010 : 0x4000);
		ip[8] = 64;
		ip[9] = d->proto;
		memcpy(ip + 12, &d->src.b[12], 4);
		memcpy(ip + 16, &d->dst.b[12], 4);
		if (!d->offload)
			pv_put16(ip + 10, (uint16_t)~contract_sum(ip, 20, 0));
		if (d->bad_l3)
			ip[10] ^= 0x40;
	} else {
		memset(ip, 0, 40);
		ip[0] = 0x60;
		pv_put16(ip + 4, (uint16_t)l4_len);
		ip[6] = d->proto;
		ip[7] = 64;
		memcpy(ip + 8, d->src.b, 16);
		memcpy(ip + 24, d->dst.b, 16);
	}
}

static inline struct pv_pkt *contract_ip_frame(struct rig *rig, int from, const struct contract_ip *d)
{
	struct pv_pkt *p = pv_pkt_get(rig->pool[from]);
	uint32_t l3 = contract_l3(d), hlen = d->proto == 6 ? 20 : 8, l4_len = hlen + (d->payload ? d->payload : 32), sum;
	uint8_t *ip, *l4;

	CHECK(p != NULL);
	rig_mac(1 - from, p->data);
	if (pv_addr_is_mcast(&d->dst)) {
		static const uint8_t prefix4[3] = { 0x01, 0x00, 0x5e };

		if (pv_addr_is4(&d->dst)) {
			memcpy(p->data, prefix4, 3);
			memcpy(p->data + 3, &d->dst.b[13], 3);
			p->data[3] &= 0x7f;
		} else {
			p->data[0] = p->data[1] = 0x33;
			memcpy(p->data + 2, &d->dst.b[12], 4);
		}
	}
	p->data[5] ^= d->other_mac ? 0x80 : 0;
	rig_mac(from, p->data + 6);
	if (d->vlan) {
		pv_put16(p->data + 12, 0x8100);
		pv_put16(p->data + 14, d->vlan);
	}
	pv_put16(p->data + l3 - 2, pv_addr_is4(&d->dst) ? 0x0800 : 0x86dd);
	ip = p->data + l3;
	l4 = ip + (pv_addr_is4(&d->dst) ? 20 : 40);
	contract_ip_header(ip, d, l4_len);
	for (uint32_t i = 0; i < l4_len; i++)
		l4[i] = i < hlen ? 0 : rig_byte(d->dst_port, i);
	pv_put16(l4, d->src_port);
	pv_put16(l4 + 2, d->dst_port);
	if (d->proto == 17)
		pv_put16(l4 + 4, (uint16_t)l4_len);
	else if (d->proto == 6)
		l4[12] = 0x50;
	if (!d->offload && (d->proto == 6 || d->proto == 17)) {
		sum = (uint16_t)~contract_l4_sum(ip, l4, l4_len, d->proto);
		pv_put16(l4 + (d->proto == 17 ? 6 : 16), (uint16_t)(sum ? sum : 0xffff));
	}
	if (d->bad_l4)
		l4[l4_len - 1] ^= 1;
	p->len = p->total = (uint32_t)(l4 - p->data) + l4_len;
	return p;
}

static inline struct pv_addr contract_addr4(uint8_t last)
{
	return pv_addr_from4((const uint8_t[]){ 192, 0, 2, last });
}

static inline struct pv_addr contract_addr6(uint8_t last)
{
	return pv_addr_from6((const uint8_t[]){ 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last });
}

/* Sends the frame and then one that the marker rule takes: what was not there before that one never came. */
static inline void contract_flow_try(struct rig *rig, const struct contract_ip *d, bool match)
{
	static uint32_t number;
	struct pv_pkt *p = contract_ip_frame(rig, 0, d), *in;
	uint32_t len = p->len;
	uint8_t sent[2048];

	memcpy(sent, p->data, len);
	rig_post(rig, 0, p);
	rig_kick(rig, 0);
	rig_send(rig, 0, 100, ++number);
	if (match) {
		in = rig_recv(rig, 1);
		CHECK_EQ(in->len, len);
		CHECK(!memcmp(in->data, sent, len));
		pv_pkt_put(in);
	}
	rig_expect(rig, 1, 100, number);
	rig_fill(rig, 1);
	rig_reap(rig, 0);
}

/* Leaves the ring with one rule, for marker frames. Its handle, or 0 when this ring has no rules. */
static inline uint64_t contract_marker_rule(struct rig *rig)
{
	struct pv_flow flow = { .kind = PV_FLOW_ETHER, .ethertype = RIG_ETHERTYPE };
	uint64_t handle;

	rig_mac(1, flow.dst_mac);
	if (!(rig->ring[1]->caps.flow_kinds & 1u << PV_FLOW_ETHER)) {
		CHECK(!(rig->kind->must & RIG_FLOWS));
		CHECK_EQ(pv_ring_flow_add(rig->ring[1], &flow, &handle), -EOPNOTSUPP);
		return 0;
	}
	CHECK_EQ(pv_ring_flow_add(rig->ring[1], &flow, &handle), 0);
	if (rig->all_rule[1])
		CHECK_EQ(pv_ring_flow_del(rig->ring[1], rig->all_rule[1]), 0);
	return handle;
}

/* What a rule of each kind takes and leaves, for one address family. */
static inline void contract_flow_family(struct rig *rig, bool v6)
{
	const struct contract_ip good = { .src = v6 ? contract_addr6(1) : contract_addr4(1),
					  .dst = v6 ? contract_addr6(2) : contract_addr4(2),
					  .src_port = 1111,
					  .dst_port = 2222,
					  .proto = 17 };
	struct contract_ip tcp = good, port = good, dst = good, src_port = good, src = good, mac = good, fragment = good,
			   icmp = good;

	tcp.proto = 6;
	port.dst_port = 2223;
	dst.dst.b[15] ^= 1;
	src_port.src_port = 1112;
	src.src.b[15] ^= 4;
	mac.other_mac = true;
	fragment.later_fragment = !v6;
	icmp.proto = v6 ? 58 : 1;
	for (uint32_t kind = PV_FLOW_ALL; kind < PV_FLOW_KINDS; kind++) {
		struct pv_flow flow = { .kind = (enum pv_flow_kind)kind,
					.l4_proto = 17,
					.dst = good.dst,
					.src = good.src,
					.dst_port = 2222,
					.src_port = 1111,
					.ethertype = v6 ? 0x86dd : 0x0800 };
		bool ip = kind <= PV_FLOW_IP, tuple3 = kind <= PV_FLOW_3TUPLE;
		uint64_t handle;

		contract_flow_try(rig, &good, false);
		CHECK_EQ(pv_ring_flow_add(rig->ring[1], &flow, &handle), 0);
		contract_flow_try(rig, &good, true);
		contract_flow_try(rig, &tcp, ip);
		contract_flow_try(rig, &icmp, ip);
		contract_flow_try(rig, &port, ip);
		if (!v6)
			contract_flow_try(rig, &fragment, ip);
		contract_flow_try(rig, &dst, kind <= PV_FLOW_ETHER);
		contract_flow_try(rig, &src_port, tuple3);
		contract_flow_try(rig, &src, tuple3);
		if (kind != PV_FLOW_ALL)
			contract_flow_try(rig, &mac, false);
		CHECK_EQ(pv_ring_flow_del(rig->ring[1], handle), 0);
		contract_flow_try(rig, &good, false);
	}
}

static inline void contract_flow_rules(const struct rig_kind *kind)
{
	struct contract_ip tagged = { .src = contract_addr4(1), .dst = contract_addr4(2), .dst_port = 5, .proto = 17, .vlan = 5 };
	struct contract_ip other = tagged, untagged = tagged;
	struct pv_flow flow = { .kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst = tagged.dst, .dst_port = 5, .vlan = 5 };
	uint64_t handle[2], marker;
	struct rig rig;

	other.vlan = 6;
	untagged.vlan = 0;
	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	marker = contract_marker_rule(&rig);
	if (marker) {
		contract_flow_family(&rig, false);
		contract_flow_family(&rig, true);
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &flow, &handle[0]), 0);
		contract_flow_try(&rig, &tagged, true);
		contract_flow_try(&rig, &other, false);
		contract_flow_try(&rig, &untagged, false);
		/* Two rules at once, and the first of them gone. */
		flow.vlan = 6;
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &flow, &handle[1]), 0);
		CHECK(handle[0] != handle[1]);
		contract_flow_try(&rig, &tagged, true);
		contract_flow_try(&rig, &other, true);
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle[0]), 0);
		contract_flow_try(&rig, &tagged, false);
		contract_flow_try(&rig, &other, true);
	}
	rig_close(&rig);
}

static inline void contract_flow_groups(const struct rig_kind *kind)
{
	static const uint8_t group4[4] = { 239, 129, 2, 3 }, group6[16] = { 0xff, 0x05, [12] = 1, 2, 3, 4 };
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	if (contract_marker_rule(&rig)) {
		for (int v6 = 0; v6 < 2; v6++) {
			struct contract_ip d = { .src = v6 ? contract_addr6(1) : contract_addr4(1), .dst_port = 9, .proto = 17 };
			struct pv_flow flow = { .kind = PV_FLOW_IP };
			struct contract_ip other;
			uint64_t handle;

			d.dst = flow.dst = v6 ? pv_addr_from6(group6) : pv_addr_from4(group4);
			other = d;
			other.dst.b[15] ^= 1;
			contract_flow_try(&rig, &d, false);
			CHECK_EQ(pv_ring_flow_add(rig.ring[1], &flow, &handle), 0);
			contract_flow_try(&rig, &d, true);
			contract_flow_try(&rig, &other, false);
			CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle), 0);
			contract_flow_try(&rig, &d, false);
		}
	}
	rig_close(&rig);
}

static inline void contract_flow_errors(const struct rig_kind *kind)
{
	struct pv_flow good = {
		.kind = PV_FLOW_5TUPLE, .l4_proto = 17, .dst = contract_addr4(2), .src = contract_addr4(1), .dst_port = 1
	};
	struct pv_flow bad[14];
	uint64_t handle;
	struct rig rig;

	for (uint32_t i = 0; i < pv_array_size(bad); i++)
		bad[i] = good;
	bad[0].kind = PV_FLOW_KINDS;
	bad[1].kind = (enum pv_flow_kind)99;
	bad[2].vlan = 4095;
	bad[3].l4_proto = 1;
	bad[4].src = contract_addr6(1);
	bad[5].match = 0x80000000;
	bad[6].match = PV_FLOW_SNIFFER; /* of a tuple */
	bad[7].match = PV_FLOW_BY_LABEL; /* of IPv4 */
	bad[8].match = PV_FLOW_BY_TOS;
	bad[8].kind = PV_FLOW_ETHER;
	bad[9].match = PV_FLOW_IN_VXLAN; /* another port */
	for (uint32_t i = 10; i < 14; i++) {
		bad[i].match = PV_FLOW_IN_VXLAN;
		bad[i].dst_port = PV_VXLAN_PORT;
	}
	bad[10].vni = 1 << 24;
	bad[11].l4_proto = 6;
	bad[12].inner.kind = PV_FLOW_3TUPLE; /* of no protocol */
	bad[13].inner = (struct pv_flow_inner){ .kind = PV_FLOW_5TUPLE, .l4_proto = 6, .dst = good.dst, .src = contract_addr6(1) };
	rig_open(&rig, kind);
	for (uint32_t i = 0; i < pv_array_size(bad); i++)
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &bad[i], &handle), -EINVAL);
	if (contract_marker_rule(&rig)) {
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &good, &handle), 0);
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle + 1000), -ENOENT);
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle), 0);
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle), -ENOENT);
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &good, &handle), 0); /* left for close */
	}
	rig_close(&rig);
}

/* ---- checksums --------------------------------------------------------------------------------------------------------- */

static inline void contract_checksums_sent(const struct rig_kind *kind)
{
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	if (!(rig.ring[0]->caps.tx_csum & PV_CSUM_UDP))
		CHECK(!(kind->must & RIG_TX_CSUM));
	for (uint32_t i = 0; rig.ring[0]->caps.tx_csum && i < 64; i++) {
		bool v6 = i & 1;
		struct contract_ip d = { .src = v6 ? contract_addr6(1) : contract_addr4(1),
					 .dst = v6 ? contract_addr6(2) : contract_addr4(2),
					 .src_port = (uint16_t)(7 * i),
					 .dst_port = (uint16_t)(i + 1),
					 .vlan = i & 4 ? 9 : 0,
					 .proto = i & 2 ? 6 : 17,
					 .payload = 1 + 22 * i,
					 .offload = true };
		struct pv_pkt *p = contract_ip_frame(&rig, 0, &d), *in;
		uint32_t l3 = contract_l3(&d), l4 = l3 + (v6 ? 40 : 20), len = p->len;

		p->flags |= PV_PKT_TX_L4_CSUM | (v6 ? 0 : PV_PKT_TX_L3_CSUM);
		rig_post(&rig, 0, p);
		rig_kick(&rig, 0);
		in = rig_recv(&rig, 1);
		CHECK_EQ(in->len, len);
		if (!v6)
			CHECK_EQ(contract_sum(in->data + l3, 20, 0), 0xffff);
		CHECK_EQ(contract_l4_sum(in->data + l3, in->data + l4, len - l4, d.proto), 0xffff);
		for (uint32_t k = d.proto == 6 ? 20 : 8; k < len - l4; k++)
			CHECK_EQ(in->data[l4 + k], rig_byte(d.dst_port, k));
		pv_pkt_put(in);
		rig_reap_all(&rig, 0, 1);
		rig_fill(&rig, 1);
	}
	/* The IPv4 header alone, as a fragment wants it. */
	if (rig.ring[0]->caps.tx_csum & PV_CSUM_IP4) {
		struct contract_ip d = {
			.src = contract_addr4(1), .dst = contract_addr4(2), .proto = 17, .offload = true, .later_fragment = true
		};
		struct pv_pkt *p = contract_ip_frame(&rig, 0, &d), *in;

		p->flags |= PV_PKT_TX_L3_CSUM;
		pv_put16(p->data + 14 + 20 + 6, 0x1234);
		rig_post(&rig, 0, p);
		rig_kick(&rig, 0);
		in = rig_recv(&rig, 1);
		CHECK_EQ(contract_sum(in->data + 14, 20, 0), 0xffff);
		CHECK_EQ(pv_get16(in->data + 14 + 20 + 6), 0x1234);
		pv_pkt_put(in);
	}
	rig_close(&rig);
}

static inline void contract_checksums_received(const struct rig_kind *kind)
{
	struct rig rig;
	bool expect;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	expect = rig.ring[1]->caps.rx_csum & PV_CSUM_UDP;
	if (!expect)
		CHECK(!(kind->must & RIG_RX_CSUM));
	for (uint32_t i = 0; i < 32; i++) {
		bool v6 = i & 1;
		struct contract_ip d = { .src = v6 ? contract_addr6(1) : contract_addr4(1),
					 .dst = v6 ? contract_addr6(2) : contract_addr4(2),
					 .dst_port = (uint16_t)(i + 1),
					 .proto = i & 2 ? 6 : 17,
					 .bad_l3 = !v6 && i & 4,
					 .bad_l4 = i & 8,
					 .later_fragment = !v6 && i & 16 };
		struct pv_pkt *p;

		rig_post(&rig, 0, contract_ip_frame(&rig, 0, &d));
		rig_kick(&rig, 0);
		p = rig_recv(&rig, 1);
		if (!expect)
			CHECK(!(p->flags & (PV_PKT_L3_OK | PV_PKT_L3_BAD | PV_PKT_L4_OK | PV_PKT_L4_BAD)));
		if (d.bad_l3)
			CHECK(!(p->flags & PV_PKT_L3_OK));
		else
			CHECK(!(p->flags & PV_PKT_L3_BAD));
		if (d.later_fragment)
			CHECK(!(p->flags & (PV_PKT_L4_OK | PV_PKT_L4_BAD)));
		else if (d.bad_l4)
			CHECK(!(p->flags & PV_PKT_L4_OK));
		else
			CHECK(!(p->flags & PV_PKT_L4_BAD));
		if (expect && !v6 && !d.bad_l3 && !d.bad_l4 && !d.later_fragment)
			CHECK((p->flags & (PV_PKT_L3_OK | PV_PKT_L4_OK)) == (PV_PKT_L3_OK | PV_PKT_L4_OK));
		pv_pkt_put(p);
		rig_reap_all(&rig, 0, 1);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

static inline void contract_checksums_and_padding(const struct rig_kind *kind)
{
	struct rig rig;
	bool expect;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	expect = rig.ring[1]->caps.rx_csum & PV_CSUM_UDP;
	/* Padding behind the datagram is in no sum. */
	for (uint32_t i = 0; i < 4; i++) {
		bool v6 = i & 1;
		struct contract_ip d = { .src = v6 ? contract_addr6(1) : contract_addr4(1),
					 .dst = v6 ? contract_addr6(2) : contract_addr4(2),
					 .dst_port = 9,
					 .proto = i & 2 ? 6 : 17,
					 .payload = 1 };
		struct pv_pkt *p = contract_ip_frame(&rig, 0, &d);

		memset(p->data + p->len, 0xa5, 9);
		p->len = p->total = p->len + 9;
		rig_post(&rig, 0, p);
		rig_kick(&rig, 0);
		p = rig_recv(&rig, 1);
		CHECK(!(p->flags & (PV_PKT_L3_BAD | PV_PKT_L4_BAD)));
		if (expect && !v6)
			CHECK((p->flags & (PV_PKT_L3_OK | PV_PKT_L4_OK)) == (PV_PKT_L3_OK | PV_PKT_L4_OK));
		pv_pkt_put(p);
		rig_reap_all(&rig, 0, 1);
		rig_fill(&rig, 1);
	}
	/* What is no IP has no verdict. */
	rig_send(&rig, 0, 100, 1);
	{
		struct pv_pkt *p = rig_recv(&rig, 1);

		CHECK(!(p->flags & (PV_PKT_L3_OK | PV_PKT_L3_BAD | PV_PKT_L4_OK | PV_PKT_L4_BAD)));
		pv_pkt_put(p);
	}
	rig_close(&rig);
}

#endif
