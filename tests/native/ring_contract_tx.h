/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of ring_contract.h: transmit queues beside the first, rates, segmentation. */
#ifndef RING_CONTRACT_TX_H
#define RING_CONTRACT_TX_H

#include "ring_contract.h"

/* ---- queues ------------------------------------------------------------------------------------------------------------ */

/* False: the kind has none, and says so. */
static inline bool contract_has_txqs(struct rig *rig)
{
	if (rig->ring[0]->caps.txqs)
		return true;
	CHECK(!(rig->kind->must & RIG_TXQ));
	CHECK_EQ(pv_ring_txq_open(rig->ring[0], NULL), -EOPNOTSUPP);
	return false;
}

static inline struct pv_pkt *contract_queued(struct rig *rig, uint32_t txq, uint32_t len, uint32_t number)
{
	struct pv_pkt *p = rig_frame(rig, 0, len, number);

	pv_pkt_set_txq(p, txq);
	return p;
}

static inline void contract_wait_left(struct rig *rig, uint32_t txq)
{
	double until = rig_now() + RIG_PATIENCE_S;

	while (pv_ring_txq_pending(rig->ring[0], txq)) {
		rig->kind->settle(rig);
		CHECK(rig_now() < until);
	}
}

static inline void contract_txq_life(const struct rig_kind *kind)
{
	uint32_t number = 0, n;
	struct rig rig;
	int txq[8];

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	n = PV_MIN(rig.ring[0]->caps.txqs, 8u);
	for (uint32_t round = 0; contract_has_txqs(&rig) && round < 3; round++) {
		for (uint32_t i = 0; i < n; i++) {
			txq[i] = pv_ring_txq_open(rig.ring[0], NULL);
			CHECK_EQ(txq[i], (int)i + 1);
			CHECK_EQ(pv_ring_txq_pending(rig.ring[0], i + 1), 0);
		}
		if (n == rig.ring[0]->caps.txqs)
			CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), -ENOSPC);
		for (uint32_t i = 0; i < 5 * n; i++) {
			uint32_t len = i & 1 ? 64 : 1000;

			rig_post(&rig, 0, contract_queued(&rig, (uint32_t)txq[i % n], len, ++number));
			rig_kick(&rig, 0);
			rig_expect(&rig, 1, len, number);
			rig_reap_all(&rig, 0, 1);
			rig_fill(&rig, 1);
			contract_wait_left(&rig, (uint32_t)txq[i % n]);
		}
		for (uint32_t i = 0; i < n; i++) {
			CHECK_EQ(pv_ring_txq_close(rig.ring[0], (uint32_t)txq[i]), 0);
			CHECK_EQ(pv_ring_txq_close(rig.ring[0], (uint32_t)txq[i]), -ENOENT);
			CHECK_EQ(pv_ring_set_rate(rig.ring[0], (uint32_t)txq[i], NULL), -ENOENT);
		}
		rig_expect_only(&rig, 1, ++number);
		rig_reap_all(&rig, 0, 1);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

/* A queue that is not there, or not any more: the packet is done and counted, what goes with it leaves. */
static inline void contract_txq_unknown(const struct rig_kind *kind)
{
	struct pv_ring_counters c;
	struct pv_pkt *p[4];
	struct rig rig;
	int txq;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	if (contract_has_txqs(&rig)) {
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 0), -ENOENT);
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 255), -ENOENT);
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 1000), -ENOENT);
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1000, NULL), -ENOENT);
		CHECK_EQ(pv_ring_txq_pending(rig.ring[0], 1000), 0);
		txq = pv_ring_txq_open(rig.ring[0], NULL);
		CHECK_EQ(txq, 1);
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 1), 0);
		p[0] = rig_frame(&rig, 0, 600, 1);
		p[1] = contract_queued(&rig, 255, 64, 2);
		p[2] = contract_queued(&rig, 1, 700, 3);
		p[3] = contract_queued(&rig, 0, 800, 4); /* the first */
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], p, 4), 4);
		rig_kick(&rig, 0);
		rig_expect(&rig, 1, 600, 1);
		rig_expect(&rig, 1, 800, 4);
		rig_reap_all(&rig, 0, 4);
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.tx_errors, 2);
		CHECK_EQ(c.tx_packets, 2);
	}
	rig_close(&rig);
}

/* Calls of many packets over all queues: each queue's frames arrive in its order, whatever the others do. */
static inline void contract_txq_mixed(const struct rig_kind *kind)
{
	enum { QUEUES = 4, FRAMES = 3000 };
	uint32_t sent = 0, got = 0, last[QUEUES] = { 0 }, posted, n;
	double until = rig_now() + RIG_PATIENCE_S;
	struct pv_pkt *p[16], *in;
	struct pv_ring_counters c;
	struct rig rig;

	rig_open(&rig, kind);
	for (uint32_t i = 1; contract_has_txqs(&rig) && i < QUEUES; i++)
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), (int)i);
	while (rig.ring[0]->caps.txqs && got < FRAMES) {
		rig_fill(&rig, 1);
		for (n = 0; n < 16 && sent + n < FRAMES; n++) {
			uint32_t q = (uint32_t)pv_rng_below(&rig.rng, QUEUES), number = sent + n;

			p[n] = contract_queued(&rig, q, 60 + (uint32_t)pv_rng_below(&rig.rng, 1000), number);
			p[n]->data[18] = (uint8_t)q;
		}
		posted = pv_ring_tx_post(rig.ring[0], p, n);
		sent += posted;
		for (; posted < n; posted++)
			pv_pkt_put(p[posted]);
		rig_kick(&rig, 0);
		rig.kind->settle(&rig);
		while (pv_ring_rx_poll(rig.ring[1], &in, 1)) {
			uint32_t number = rig_number(in) + 1, q = in->data[18];

			CHECK(q < QUEUES && number > last[q]);
			last[q] = number;
			got++;
			pv_pkt_put(in);
			rig_fill(&rig, 1);
		}
		while (rig_reap(&rig, 0))
			;
		CHECK(rig_now() < until);
	}
	pv_ring_counters(rig.ring[0], &c);
	CHECK_EQ(c.tx_packets, got);
	CHECK_EQ(c.tx_errors, 0);
	rig_close(&rig);
}

/* A full queue takes nothing, and others do, whichever it is. Closing the ring with all that inside gives it back (rig_close counts). */
static inline void contract_txq_full(const struct rig_kind *kind)
{
	uint32_t number = 0, pending;
	struct pv_ring_counters c;
	struct pv_pkt *p;
	struct rig rig;

	rig_open(&rig, kind);
	if (contract_has_txqs(&rig)) {
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), 1);
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), 2);
		do
			p = contract_queued(&rig, 1, 600, ++number);
		while (pv_ring_tx_post(rig.ring[0], &p, 1) && number < 4 * RIG_DEPTH);
		pv_pkt_put(p);
		CHECK(number > RIG_DEPTH / 2 && number <= RIG_DEPTH + 1);
		pending = pv_ring_txq_pending(rig.ring[0], 1);
		CHECK_EQ(pending, number - 1);
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.tx_full, 1);
		p = contract_queued(&rig, 2, 64, ++number);
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
		p = rig_frame(&rig, 0, 1000, ++number);
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 1), 0);
		/* Nor does a full first one stand in the way of the others. */
		do
			p = rig_frame(&rig, 0, 1000, ++number);
		while (pv_ring_tx_post(rig.ring[0], &p, 1) && number < 8 * RIG_DEPTH);
		pv_pkt_put(p);
		CHECK(number < 8 * RIG_DEPTH);
		p = contract_queued(&rig, 2, 64, ++number);
		CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
	}
	rig_close(&rig);
}

/* ---- rates ------------------------------------------------------------------------------------------------------------- */

static inline void contract_rate_range(const struct rig_kind *kind)
{
	struct pv_ring_rate rate = { .kbps = 1 };
	const struct pv_ring_caps *caps;
	struct rig rig;

	rig_open(&rig, kind);
	caps = &rig.ring[0]->caps;
	if (!caps->pacing_max_kbps) {
		CHECK(!(kind->must & RIG_PACING));
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), -EOPNOTSUPP);
	} else {
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), 1);
		rate.kbps = (uint64_t)caps->pacing_max_kbps + 1;
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &rate), -EINVAL);
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), -EINVAL);
		rate.kbps = caps->pacing_min_kbps - 1;
		if (rate.kbps)
			CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &rate), -EINVAL);
		rate.kbps = PV_MAX(1u, caps->pacing_min_kbps);
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &rate), 0);
		rate.kbps = caps->pacing_max_kbps;
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &rate), 0);
		rate.typical_len = 200;
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &rate), 0);
		rate.burst_bytes = 10000;
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &rate), caps->pacing_burst ? 0 : -EINVAL);
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, NULL), 0);
		rig_fill(&rig, 1);
		rig_post(&rig, 0, contract_queued(&rig, 1, 900, 7));
		rig_kick(&rig, 0);
		rig_expect(&rig, 1, 900, 7);
	}
	rig_close(&rig);
}

/* Frames of a queue that is held to a rate: none is lost, none comes before its time. Times are receive stamps, so that whoever
 * looks late sees no other than who looks at once. */
static inline void contract_rate_held(const struct rig_kind *kind)
{
	enum { FRAMES = 40, LEN = 1000 };
	const struct pv_ring_rate rate = { .kbps = 400000 }; /* a frame in 20 us */
	uint64_t first = 0, last = 0, ns;
	struct pv_pkt *in;
	struct rig rig;

	rig_open(&rig, kind);
	if (!rig.ring[0]->caps.pacing_max_kbps || pv_ring_set_stamps(rig.ring[1], true, false)) {
		rig_close(&rig);
		return;
	}
	CHECK_EQ(pv_ring_txq_open(rig.ring[0], &rate), 1);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < FRAMES; i++)
		rig_post(&rig, 0, contract_queued(&rig, 1, LEN, i));
	rig_kick(&rig, 0);
	for (uint32_t i = 0; i < FRAMES; i++) {
		in = rig_recv(&rig, 1);
		rig_check(in, 0, LEN, i);
		CHECK(in->flags & PV_PKT_TSTAMP);
		last = in->tstamp;
		first = i ? first : last;
		pv_pkt_put(in);
	}
	ns = (last - first) * 1000000 / rig.ring[1]->caps.tstamp_khz;
	/* A device may count the first frame or two as a burst, and may be held up; it may not be faster. */
	CHECK(ns >= (FRAMES - 3) * UINT64_C(20000) * 98 / 100);
	contract_wait_left(&rig, 1);
	rig_reap_all(&rig, 0, FRAMES);
	rig_close(&rig);
}

/* A queue closed with frames that wait for their rate: they leave, then its number is free. A ring closed so gives all back. */
static inline void contract_rate_close(const struct rig_kind *kind)
{
	const struct pv_ring_rate slow = { .kbps = 8000 }; /* a frame of 1000 bytes in 1 ms */
	double until = rig_now() + RIG_PATIENCE_S;
	struct rig rig;
	int txq;

	rig_open(&rig, kind);
	if (rig.ring[0]->caps.pacing_max_kbps) {
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], &slow), 1);
		rig_fill(&rig, 1);
		for (uint32_t i = 0; i < 10; i++)
			rig_post(&rig, 0, contract_queued(&rig, 1, i & 1 ? 60 : 1000, i));
		rig_kick(&rig, 0);
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 1), 0);
		for (uint32_t i = 0; i < 10; i++)
			rig_expect(&rig, 1, i & 1 ? 60 : 1000, i);
		rig_reap_all(&rig, 0, 10);
		contract_wait_left(&rig, 1);
		do {
			txq = pv_ring_txq_open(rig.ring[0], &slow);
			CHECK(txq > 0 && rig_now() < until);
			if (txq != 1)
				CHECK_EQ(pv_ring_txq_close(rig.ring[0], (uint32_t)txq), 0);
		} while (txq != 1);
		rig_fill(&rig, 1);
		for (uint32_t i = 0; i < 20; i++)
			rig_post(&rig, 0, contract_queued(&rig, 1, i & 1 ? 60 : 1000, i));
		rig_kick(&rig, 0);
	}
	rig_close(&rig);
}

/* ---- segmentation ------------------------------------------------------------------------------------------------------ */

struct contract_tso {
	bool ip6, df;
	uint16_t vlan;
	uint8_t options; /* bytes of TCP options */
	uint8_t tcp_flags;
	uint16_t gso;
	uint32_t payload, piece; /* bytes of a buffer */
	uint32_t txq;
};

static inline uint8_t contract_tso_byte(uint32_t i)
{
	return (uint8_t)(i * 13 + (i >> 8) * 7);
}

/* Headers with payload bytes [from, to) behind them, as one frame of a software stack; `index` counts frames. Its length. */
static inline uint32_t contract_tso_write(uint8_t *at, const struct contract_tso *t, uint32_t index, uint32_t from, uint32_t to)
{
	struct contract_ip d = { .src = t->ip6 ? contract_addr6(1) : contract_addr4(1),
				 .dst = t->ip6 ? contract_addr6(2) : contract_addr4(2),
				 .vlan = t->vlan,
				 .proto = 6 };
	uint32_t l3 = contract_l3(&d), thl = 20u + t->options, l4_len = thl + to - from;
	uint8_t *ip = at + l3, *tcp = ip + (t->ip6 ? 40 : 20);

	rig_mac(1, at);
	rig_mac(0, at + 6);
	if (t->vlan) {
		pv_put16(at + 12, 0x8100);
		pv_put16(at + 14, t->vlan);
	}
	pv_put16(at + l3 - 2, t->ip6 ? 0x86dd : 0x0800);
	contract_ip_header(ip, &d, l4_len);
	if (!t->ip6) {
		pv_put16(ip + 4, (uint16_t)(0xfffe + (t->df ? 0 : index)));
		pv_put16(ip + 6, t->df ? 0x4000 : 0);
		pv_put16(ip + 10, 0);
		pv_put16(ip + 10, (uint16_t)~contract_sum(ip, 20, 0));
	}
	memset(tcp, 0, 20);
	pv_put16(tcp, 4000);
	pv_put16(tcp + 2, 5000);
	pv_put32(tcp + 4, 0xfffff000u + from);
	pv_put32(tcp + 8, 77);
	tcp[12] = (uint8_t)(thl / 4 << 4);
	tcp[13] = t->tcp_flags;
	if (to != t->payload)
		tcp[13] &= (uint8_t)~0x09;
	if (from)
		tcp[13] &= (uint8_t)~0x80;
	pv_put16(tcp + 14, 1234);
	for (uint32_t i = 0; i < t->options; i++)
		tcp[20 + i] = i < 2 ? 1 : i == 2 ? 8 : i == 3 ? 10 : (uint8_t)i;
	for (uint32_t i = from; i < to; i++)
		tcp[thl + i - from] = contract_tso_byte(i);
	pv_put16(tcp + 16, (uint16_t)~contract_l4_sum(ip, tcp, l4_len, 6));
	return l3 + (t->ip6 ? 40u : 20u) + l4_len;
}

static inline struct pv_pkt *contract_tso_packet(struct rig *rig, const struct contract_tso *t)
{
	struct pv_pkt *head = pv_pkt_get(rig->pool[0]), *p = head;
	uint32_t hdr = contract_tso_write(head->data, t, 0, 0, 0), piece = PV_MAX(t->piece, 1u);

	/* A stack's header: the flags of the whole, no sums. */
	head->data[hdr - t->options - 20 + 13] = t->tcp_flags;
	pv_put16(head->data + hdr - t->options - 20 + 16, 0);
	if (!t->ip6)
		pv_put16(head->data + (t->vlan ? 28 : 24), 0);
	head->len = hdr;
	for (uint32_t i = 0; i < t->payload; i++) {
		if (p->len - (p == head ? hdr : 0) == piece || !pv_pkt_tailroom(p)) {
			p->frag = pv_pkt_get(rig->pool[0]);
			CHECK(p->frag != NULL);
			p = p->frag;
		}
		p->data[p->len++] = contract_tso_byte(i);
	}
	head->total = hdr + t->payload;
	head->flags |= PV_PKT_TX_TSO;
	head->gso_size = t->gso;
	head->gso_hdr = (uint8_t)hdr;
	pv_pkt_set_txq(head, t->txq);
	return head;
}

/* The frames on the wire are those that software would have sent. */
static inline void contract_tso_try(struct rig *rig, const struct contract_tso *t)
{
	uint32_t n = (t->payload + t->gso - 1) / t->gso;
	uint8_t want[RIG_MTU + 18];

	rig_post(rig, 0, contract_tso_packet(rig, t));
	rig_kick(rig, 0);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t from = i * t->gso, to = PV_MIN(from + t->gso, t->payload);
		uint32_t len = contract_tso_write(want, t, i, from, to);
		struct pv_pkt *in = rig_recv(rig, 1);

		CHECK(in->len == len || (len < 60 && in->len == 60));
		/* RFC 6864 4.1: where nobody may fragment, identifications are anything. */
		if (t->df && !t->ip6) {
			uint8_t *ip = want + (t->vlan ? 18 : 14);

			memcpy(ip + 4, in->data + (ip + 4 - want), 2);
			pv_put16(ip + 10, 0);
			pv_put16(ip + 10, (uint16_t)~contract_sum(ip, 20, 0));
		}
		CHECK(!memcmp(in->data, want, len));
		pv_pkt_put(in);
		rig_fill(rig, 1);
	}
	rig_reap_all(rig, 0, 1);
}

/* False: the kind has none. */
static inline bool contract_has_tso(struct rig *rig)
{
	CHECK(rig->ring[0]->caps.tso_max || !(rig->kind->must & RIG_TSO));
	return rig->ring[0]->caps.tso_max != 0;
}

static inline void contract_tso_frames(const struct rig_kind *kind)
{
	static const uint32_t payloads[] = { 1, 999, 1000, 1001, 2000, 5555, 20000, 65535 };
	uint64_t packets = 0, bytes = 0;
	struct pv_ring_counters c;
	uint32_t most;
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; contract_has_tso(&rig) && i < 12 * pv_array_size(payloads); i++) {
		struct contract_tso t = {
			.ip6 = i & 1, .df = i & 2, .gso = 1000, .tcp_flags = i & 1 ? 0x99 : 0x18, .options = i % 3 ? 12 : 0
		};

		t.vlan = i % 4 == 3 ? 7 : 0;
		t.piece = i % 5 == 1 ? 700 : i % 5 == 2 ? 1448 : 1920;
		most = PV_MIN(rig.ring[0]->caps.tso_max - 140, (rig.ring[0]->caps.max_sge - 1) * (t.piece - 120));
		t.payload = PV_MIN(payloads[i / 12], most);
		/* More frames than receive buffers would be lost. */
		t.payload = PV_MIN(t.payload, 48u * t.gso);
		contract_tso_try(&rig, &t);
		packets++;
		bytes += t.payload + 54 + (t.ip6 ? 20 : 0) + (t.vlan ? 4 : 0) + t.options;
	}
	pv_ring_counters(rig.ring[0], &c);
	CHECK_EQ(c.tso_packets, packets);
	CHECK_EQ(c.tx_packets, packets);
	CHECK_EQ(c.tx_bytes, bytes);
	CHECK_EQ(c.tx_errors, 0);
	if (packets && rig.ring[0]->caps.txqs) {
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), 1);
		contract_tso_try(&rig, &(struct contract_tso){ .gso = 1448, .payload = 9000, .piece = 1500, .txq = 1 });
	}
	rig_close(&rig);
}

/* What no device could cut is done and counted. */
static inline void contract_tso_unsound(const struct rig_kind *kind)
{
	const struct contract_tso good = { .gso = 1000, .payload = 3000, .piece = 1000 };
	struct pv_ring_counters c;
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; contract_has_tso(&rig) && i < 6; i++) {
		struct pv_pkt *p = contract_tso_packet(&rig, &good), *more, *last;

		if (i == 0)
			p->gso_size = 0;
		else if (i == 1)
			p->gso_size = RIG_MTU;
		else if (i == 2)
			p->gso_hdr = 53; /* no room for IPv4 and TCP */
		else if (i == 3)
			p->len = 40;
		for (uint32_t k = 0; i == 4 && k < rig.ring[0]->caps.max_sge; k++) {
			more = pv_pkt_get(rig.pool[0]);
			CHECK(more != NULL);
			more->len = 10;
			p->total += 10;
			for (last = p; last->frag; last = last->frag)
				;
			last->frag = more;
		}
		if (i == 5) {
			pv_pkt_put(p->frag);
			p->frag = NULL;
			p->len = p->total = p->gso_hdr;
		}
		rig_post(&rig, 0, p);
		rig_kick(&rig, 0);
		rig_reap_all(&rig, 0, 1);
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.tx_errors, i + 1);
		CHECK_EQ(c.tso_packets, 0);
		rig_expect_only(&rig, 1, i);
		rig_reap_all(&rig, 0, 1);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

#endif
