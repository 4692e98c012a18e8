/* SPDX-License-Identifier: BSD-3-Clause */
/* The cases of ring_contract.h. */
#ifndef RING_CONTRACT_CASES_H
#define RING_CONTRACT_CASES_H

#include "ring_contract.h"

static inline void contract_frames_of_all_sizes(const struct rig_kind *kind)
{
	struct rig rig;
	uint32_t number = 0;

	rig_open(&rig, kind);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	for (uint32_t len = 14; len <= RIG_MTU + 14; len += len < 300 || len > RIG_MTU - 10 ? 1 : 37) {
		int from = (int)(len & 1);

		rig_send(&rig, from, len, ++number);
		rig_expect(&rig, 1 - from, len, number);
		rig_reap_all(&rig, from, 1);
		rig_fill(&rig, 1 - from);
	}
	/* A VLAN tag makes the longest frame 4 bytes longer. */
	{
		struct pv_pkt *p = rig_frame(&rig, 0, RIG_MTU + 18, 7), *in;
		uint8_t sent[RIG_MTU + 18];

		pv_put16(p->data + 12, 0x8100);
		memcpy(sent, p->data, sizeof(sent));
		rig_post(&rig, 0, p);
		rig_kick(&rig, 0);
		in = rig_recv(&rig, 1);
		CHECK_EQ(in->len, sizeof(sent));
		CHECK(!memcmp(in->data, sent, sizeof(sent)));
		pv_pkt_put(in);
	}
	rig_close(&rig);
}

static inline void contract_frames_it_cannot_carry(const struct rig_kind *kind)
{
	static const uint32_t bad[] = { 0, 1, 13, RIG_MTU + 15, RIG_MTU + 18, 1900 };
	struct pv_ring_counters c;
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < pv_array_size(bad); i++) {
		struct pv_pkt *p = rig_frame(&rig, 0, 1900, i);

		p->len = p->total = bad[i];
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
		rig_kick(&rig, 0);
		rig_reap_all(&rig, 0, 1);
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.tx_errors, i + 1);
		CHECK_EQ(c.tx_packets, i);
		/* In one batch with good ones before and behind is next; here the ring must simply go on. */
		rig_send(&rig, 0, 64, 1000 + i);
		rig_expect(&rig, 1, 64, 1000 + i);
		rig_reap_all(&rig, 0, 1);
	}
	{
		struct pv_pkt *p[3] = { rig_frame(&rig, 0, 64, 1), rig_frame(&rig, 0, 1900, 2), rig_frame(&rig, 0, 1000, 3) };

		CHECK_EQ(pv_ring_tx_post(rig.ring[0], p, 3), 3);
		rig_kick(&rig, 0);
		rig_expect(&rig, 1, 64, 1);
		rig_expect(&rig, 1, 1000, 3);
		rig_reap_all(&rig, 0, 3);
	}
	pv_ring_counters(rig.ring[0], &c);
	CHECK_EQ(c.tx_errors, pv_array_size(bad) + 1);
	rig_close(&rig);
}

static inline struct pv_pkt *contract_chain(struct rig *rig, uint32_t len, uint32_t pieces, uint32_t number)
{
	struct pv_pkt *whole = rig_frame(rig, 0, len, number), *head = NULL, **at = &head;
	uint32_t off = 0;

	for (uint32_t i = 0; i < pieces; i++) {
		uint32_t n = i + 1 < pieces ? PV_MAX(14u, len / pieces) : len - off;
		struct pv_pkt *p = pv_pkt_get(rig->pool[0]);

		CHECK(p != NULL);
		n = PV_MIN(n, len - off);
		memcpy(p->data, whole->data + off, n);
		p->len = n;
		off += n;
		*at = p;
		at = &p->frag;
	}
	head->total = len;
	pv_pkt_put(whole);
	return head;
}

static inline void contract_gather(const struct rig_kind *kind)
{
	struct pv_ring_counters c;
	struct rig rig;
	uint32_t number = 0, most;

	rig_open(&rig, kind);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	most = rig.ring[0]->caps.max_sge;
	for (uint32_t pieces = 1; pieces <= most; pieces++) {
		static const uint32_t lens[] = { 120, 190, 700, RIG_MTU + 14 };

		for (uint32_t i = 0; i < pv_array_size(lens); i++) {
			rig_post(&rig, 0, contract_chain(&rig, lens[i], pieces, ++number));
			rig_kick(&rig, 0);
			rig_expect(&rig, 1, lens[i], number);
			rig_reap_all(&rig, 0, 1);
			rig_fill(&rig, 1);
		}
	}
	rig_post(&rig, 0, contract_chain(&rig, 1000, most + 1, 1));
	rig_kick(&rig, 0);
	rig_reap_all(&rig, 0, 1);
	pv_ring_counters(rig.ring[0], &c);
	CHECK_EQ(c.tx_errors, 1);
	rig_expect_only(&rig, 1, 2);
	rig_close(&rig);
}

static inline void contract_rx_depth(const struct rig_kind *kind)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX + 8];
	struct rig rig;
	uint32_t posted = 0, k;

	rig_open(&rig, kind);
	CHECK_EQ(rig.ring[1]->caps.rx_depth, RIG_DEPTH);
	CHECK_EQ(pv_ring_rx_post(rig.ring[1], pkts, 0), 0);
	do {
		for (uint32_t i = 0; i < pv_array_size(pkts); i++) {
			pkts[i] = pv_pkt_get(rig.pool[1]);
			CHECK(pkts[i] != NULL);
		}
		k = pv_ring_rx_post(rig.ring[1], pkts, pv_array_size(pkts));
		CHECK(k <= rig.ring[1]->caps.batch);
		posted += k;
		for (uint32_t i = k; i < pv_array_size(pkts); i++)
			pv_pkt_put(pkts[i]);
	} while (k);
	CHECK_EQ(posted, RIG_DEPTH);
	/* Each frame that was polled makes room for one buffer. */
	for (uint32_t i = 0; i < 3 * RIG_DEPTH; i++) {
		struct pv_pkt *p;

		rig_send(&rig, 0, 64, i);
		p = rig_recv(&rig, 1);
		rig_check(p, 0, 64, i);
		pkts[0] = pv_pkt_get(rig.pool[1]);
		CHECK_EQ(pv_ring_rx_post(rig.ring[1], pkts, 1), 1);
		pkts[0] = pv_pkt_get(rig.pool[1]);
		CHECK_EQ(pv_ring_rx_post(rig.ring[1], pkts, 1), 0);
		pv_pkt_put(pkts[0]);
		pv_pkt_put(p);
	}
	rig_close(&rig);
}

static inline void contract_tx_depth(const struct rig_kind *kind)
{
	struct rig rig;

	rig_open(&rig, kind);
	CHECK_EQ(rig.ring[0]->caps.tx_depth, RIG_DEPTH);
	/* Small ones (inlined where there is such a thing) and large ones, one at a time and in batches. */
	for (uint32_t round = 0; round < 12; round++) {
		uint32_t len = round & 1 ? 60 : 1400, step = round % 3 ? 7 : 1, posted = 0, k;
		struct pv_ring_counters before, after;

		rig_fill(&rig, 1);
		pv_ring_counters(rig.ring[0], &before);
		do {
			struct pv_pkt *p[7];

			for (uint32_t i = 0; i < step; i++)
				p[i] = rig_frame(&rig, 0, len, round * 1000 + posted + i);
			k = pv_ring_tx_post(rig.ring[0], p, step);
			posted += k;
			for (uint32_t i = k; i < step; i++)
				pv_pkt_put(p[i]);
		} while (k);
		CHECK_EQ(posted, RIG_DEPTH);
		pv_ring_counters(rig.ring[0], &after);
		CHECK(after.tx_full > before.tx_full);
		rig_kick(&rig, 0);
		for (uint32_t i = 0; i < RIG_DEPTH; i++)
			rig_expect(&rig, 1, len, round * 1000 + i);
		rig_reap_all(&rig, 0, RIG_DEPTH);
	}
	rig_close(&rig);
}

/* One direction of a run with random sizes and batches. */
struct contract_stream {
	uint32_t sent, seen, total;
	struct pv_rng rng; /* sizes: the receiver's twin of it checks them */
	struct pv_rng check;
};

static inline uint32_t contract_size(struct pv_rng *rng)
{
	uint32_t small = (uint32_t)pv_rng_below(rng, 3);

	return 18 + (uint32_t)pv_rng_below(rng, small ? 200 : RIG_MTU + 14 - 18 + 1);
}

static inline void contract_stream_step(struct rig *rig, int from, struct contract_stream *s)
{
	struct pv_pkt *p[PV_RING_BATCH_MAX];
	uint32_t n = 1 + (uint32_t)pv_rng_below(&rig->rng, 20), k;

	/* Never more under way than the receiver has buffers for: nothing may be lost. */
	n = PV_MIN(PV_MIN(n, s->total - s->sent), RIG_DEPTH - (s->sent - s->seen));
	for (uint32_t i = 0; i < n; i++) {
		struct pv_rng at = s->rng;

		p[0] = rig_frame(rig, from, contract_size(&s->rng), s->sent);
		k = pv_ring_tx_post(rig->ring[from], p, 1);
		if (!k) {
			s->rng = at;
			pv_pkt_put(p[0]);
			break;
		}
		s->sent++;
	}
	if (pv_rng_below(&rig->rng, 3))
		rig_kick(rig, from);
	if (pv_rng_below(&rig->rng, 2))
		rig_reap(rig, from);
	rig->kind->settle(rig);
	n = pv_ring_rx_poll(rig->ring[1 - from], p, 1 + (uint32_t)pv_rng_below(&rig->rng, PV_RING_BATCH_MAX));
	for (uint32_t i = 0; i < n; i++) {
		rig_check(p[i], from, contract_size(&s->check), s->seen++);
		pv_pkt_put(p[i]);
	}
	rig_fill(rig, 1 - from);
}

static inline void contract_both_directions(const struct rig_kind *kind)
{
	double until = rig_now() + 3 * RIG_PATIENCE_S;
	struct contract_stream s[2] = { { .total = 4000 }, { .total = 4000 } };
	struct rig rig;

	rig_open(&rig, kind);
	for (int i = 0; i < 2; i++) {
		rig_fill(&rig, i);
		pv_rng_seed(&s[i].rng, (uint64_t)i + 7);
		s[i].check = s[i].rng;
	}
	while (s[0].seen < s[0].total || s[1].seen < s[1].total) {
		contract_stream_step(&rig, 0, &s[0]);
		contract_stream_step(&rig, 1, &s[1]);
		rig_kick(&rig, 0);
		rig_kick(&rig, 1);
		CHECK(rig_now() < until);
	}
	rig_close(&rig);
}

/* Frames that find no buffer are lost or wait, as the device likes; the ring goes on. */
static inline void contract_no_buffers(const struct rig_kind *kind)
{
	double until = rig_now() + RIG_PATIENCE_S;
	struct rig rig;
	uint32_t number = 0, last = 0;

	rig_open(&rig, kind);
	for (uint32_t i = 0; i < 3 * RIG_DEPTH; i++) {
		rig_send(&rig, 0, 64, ++number);
		rig_reap(&rig, 0);
		rig.kind->settle(&rig);
	}
	rig_fill(&rig, 1);
	while (last < 3 * RIG_DEPTH + 1) {
		struct pv_pkt *p;

		rig_send(&rig, 0, 64, ++number);
		rig_reap(&rig, 0);
		rig.kind->settle(&rig);
		while (pv_ring_rx_poll(rig.ring[1], &p, 1)) {
			CHECK(rig_number(p) > last);
			last = rig_number(p);
			rig_check(p, 0, 64, last);
			pv_pkt_put(p);
			rig_fill(&rig, 1);
		}
		CHECK(rig_now() < until);
	}
	rig_close(&rig);
}

static inline void contract_close_with_everything_outstanding(const struct rig_kind *kind)
{
	for (uint32_t round = 0; round < 4; round++) {
		struct pv_pkt *p;
		struct rig rig;

		rig_open(&rig, kind);
		rig_fill(&rig, 0);
		rig_fill(&rig, 1);
		for (uint32_t i = 0; i < 20; i++) /* arrived, not polled; sent, not reaped */
			rig_send(&rig, 0, i & 1 ? 60 : 1200, i);
		rig.kind->settle(&rig);
		if (round & 1)
			rig_reap(&rig, 0);
		for (uint32_t i = 0; i < 10; i++) { /* posted, not kicked */
			p = rig_frame(&rig, 0, i & 1 ? 60 : 1200, i);
			CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
		}
		rig_close_side(&rig, (int)round >> 1);
		rig_close(&rig);
	}
}

static inline void contract_counters(const struct rig_kind *kind)
{
	struct pv_ring_counters tx, rx;
	uint64_t bytes = 0;
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	pv_ring_counters(rig.ring[0], &tx);
	pv_ring_counters(rig.ring[1], &rx);
	CHECK_EQ(tx.tx_packets | tx.tx_bytes | tx.tx_errors | tx.doorbells | rx.rx_packets | rx.rx_bytes | rx.rx_errors, 0);
	CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), 0);
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t len = 60 + 13 * i;

		rig_send(&rig, 0, len, i);
		bytes += len;
		rig_expect(&rig, 1, len, i);
		rig_fill(&rig, 1);
		rig_reap(&rig, 0);
	}
	pv_ring_counters(rig.ring[0], &tx);
	pv_ring_counters(rig.ring[1], &rx);
	CHECK_EQ(tx.tx_packets, 100);
	CHECK_EQ(tx.tx_bytes, bytes);
	CHECK_EQ(tx.tx_errors, 0);
	CHECK_EQ(tx.doorbells, 100);
	CHECK_EQ(rx.rx_packets, 100);
	CHECK_EQ(rx.rx_bytes, bytes);
	CHECK_EQ(rx.rx_errors + rx.tx_packets + tx.rx_packets, 0);
	rig_close(&rig);
}

/* ---- IP frames --------------------------------------------------------------------------------------------------------- */

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
	struct pv_flow bad[5];
	uint64_t handle;
	struct rig rig;

	for (uint32_t i = 0; i < pv_array_size(bad); i++)
		bad[i] = good;
	bad[0].kind = PV_FLOW_KINDS;
	bad[1].kind = (enum pv_flow_kind)99;
	bad[2].vlan = 4095;
	bad[3].l4_proto = 1;
	bad[4].src = contract_addr6(1);
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

/* ---- the rest ---------------------------------------------------------------------------------------------------------- */

static inline void contract_stamps(const struct rig_kind *kind)
{
	struct rig rig;
	uint64_t last = 0, now;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	if (rig.ring[1]->caps.tstamp == PV_TSTAMP_NONE)
		CHECK(!(kind->must & RIG_STAMPS));
	else
		CHECK(rig.ring[1]->caps.tstamp != PV_TSTAMP_RAW || rig.ring[1]->caps.tstamp_khz > 0);
	for (uint32_t i = 0; i < 50; i++) {
		struct pv_pkt *p;

		rig_send(&rig, 0, 64, i);
		p = rig_recv(&rig, 1);
		CHECK_EQ(p->flags & PV_PKT_TSTAMP, rig.ring[1]->caps.tstamp == PV_TSTAMP_NONE ? 0 : PV_PKT_TSTAMP);
		if (p->flags & PV_PKT_TSTAMP) {
			CHECK(p->tstamp >= last);
			last = p->tstamp;
		}
		pv_pkt_put(p);
		rig_reap(&rig, 0);
		rig_fill(&rig, 1);
	}
	if (rig.ring[1]->caps.tstamp == PV_TSTAMP_RAW && !pv_ring_clock(rig.ring[1], &now))
		CHECK(now >= last);
	rig_close(&rig);
}

/* Packets of chunks that came after the ring was opened are as good as the first. */
static inline void contract_pool_growth(const struct rig_kind *kind)
{
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < 4; i++) {
		CHECK_EQ(pv_pool_grow(rig.pool[0]), 0);
		CHECK_EQ(pv_pool_grow(rig.pool[1]), 0);
		for (uint32_t k = 0; k < RIG_DEPTH; k++) {
			rig_send(&rig, 0, 1000, k);
			rig_expect(&rig, 1, 1000, k);
			rig_fill(&rig, 1);
			rig_reap(&rig, 0);
		}
	}
	CHECK_EQ(pv_pool_grow(rig.pool[0]), -ENOSPC);
	rig_close(&rig);
}

static inline void contract_sleeping(const struct rig_kind *kind)
{
	struct rig rig;
	struct pollfd pfd = { .events = POLLIN };

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	pfd.fd = pv_ring_notify_fd(rig.ring[1]);
	if (pfd.fd < 0) {
		CHECK(!(kind->must & RIG_ARM));
		CHECK_EQ(pfd.fd, -EOPNOTSUPP);
		CHECK_EQ(pv_ring_arm(rig.ring[1]), -EOPNOTSUPP);
		rig_close(&rig);
		return;
	}
	for (uint32_t i = 0; i < 300; i++) {
		bool before = pv_rng_below(&rig.rng, 2);
		struct pv_pkt *p;
		int rc;

		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
		if (before)
			rig_send(&rig, 0, 64, i);
		rc = pv_ring_arm(rig.ring[1]);
		CHECK(rc == 0 || (rc == 1 && before));
		if (!before) {
			CHECK_EQ(poll(&pfd, 1, 0), 0);
			rig_send(&rig, 0, 64, i);
		}
		if (!rc)
			CHECK_EQ(poll(&pfd, 1, RIG_PATIENCE_S * 1000), 1);
		rig_expect(&rig, 1, 64, i);
		rig_reap(&rig, 0);
		rig_fill(&rig, 1);
	}
	/* Not armed: nothing wakes. Armed twice: no harm. */
	CHECK_EQ(pv_ring_arm(rig.ring[1]), 0);
	CHECK_EQ(pv_ring_arm(rig.ring[1]), 0);
	rig_send(&rig, 0, 64, 1);
	CHECK_EQ(poll(&pfd, 1, RIG_PATIENCE_S * 1000), 1);
	rig_expect(&rig, 1, 64, 1);
	rig_close(&rig);
}

static inline void contract_wait_event(struct rig *rig, int side, enum pv_ring_event want)
{
	double until = rig_now() + RIG_PATIENCE_S;
	enum pv_ring_event ev;

	while ((ev = pv_ring_event(rig->ring[side])) == PV_RING_EV_NONE)
		CHECK(rig_now() < until);
	CHECK_EQ(ev, want);
}

static inline void contract_link(const struct rig_kind *kind)
{
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	CHECK_EQ(pv_ring_event(rig.ring[1]), PV_RING_EV_NONE);
	for (uint32_t i = 0; kind->set_link && i < 3; i++) {
		struct pv_pkt *p;

		kind->set_link(&rig, 1, false);
		contract_wait_event(&rig, 1, PV_RING_EV_LINK_DOWN);
		CHECK(!rig.ring[1]->caps.link_up);
		rig_send(&rig, 0, 64, 1);
		rig.kind->settle(&rig);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
		kind->set_link(&rig, 1, true);
		contract_wait_event(&rig, 1, PV_RING_EV_LINK_UP);
		CHECK(rig.ring[1]->caps.link_up);
		CHECK_EQ(pv_ring_event(rig.ring[1]), PV_RING_EV_NONE);
		rig_expect_only(&rig, 1, 100 + i);
		rig_reap(&rig, 0);
	}
	rig_close(&rig);
}

static inline void contract_vanish(const struct rig_kind *kind)
{
	struct rig rig;
	struct pv_pkt *p;
	uint64_t handle;
	struct pv_flow flow = { .kind = PV_FLOW_ALL };

	rig_open(&rig, kind);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; kind->vanish && i < 10; i++) {
		p = rig_frame(&rig, 0, i & 1 ? 60 : 1200, i);
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
		if (i == 4)
			rig_kick(&rig, 0);
	}
	if (kind->vanish) {
		kind->vanish(&rig, 0);
		contract_wait_event(&rig, 0, PV_RING_EV_GONE);
		CHECK_EQ(pv_ring_event(rig.ring[0]), PV_RING_EV_NONE);
		CHECK(!rig.ring[0]->caps.link_up);
		CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), -ENODEV);
		rig_reap_all(&rig, 0, 10);
		p = rig_frame(&rig, 0, 64, 1);
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 0);
		CHECK_EQ(pv_ring_rx_post(rig.ring[0], &p, 1), 0);
		pv_pkt_put(p);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[0], &p, 1), 0);
		if (rig.ring[0]->caps.flow_kinds)
			CHECK_EQ(pv_ring_flow_add(rig.ring[0], &flow, &handle), -ENODEV);
	}
	rig_close(&rig);
}

/* A child of fork lets go of the rings; the parent's go on, and the child's memory is all back. */
static inline void contract_forget(const struct rig_kind *kind)
{
	struct rig rig;
	int status;
	pid_t pid;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	rig_send(&rig, 0, 64, 1);
	rig_expect(&rig, 1, 64, 1);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		for (int i = 0; i < 2; i++) {
			pv_ring_forget(rig.ring[i]);
			CHECK_EQ(pv_pool_close(rig.pool[i]), 0);
		}
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	for (uint32_t i = 0; i < 2 * RIG_DEPTH; i++) {
		rig_send(&rig, 0, 64, i);
		rig_expect(&rig, 1, 64, i);
		rig_reap(&rig, 0);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

#endif
