/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of ring_contract.h: moving frames, depths, closing, sleeping, links. Those that need IP are in ring_contract_ip.h. */
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
	uint32_t posted = 0, depth = RIG_DEPTH * PV_MAX(kind->rx_queues, 1u), k;

	rig_open(&rig, kind);
	CHECK_EQ(rig.ring[1]->caps.rx_depth, depth);
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
	CHECK_EQ(posted, depth);
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

/* ---- the rest ---------------------------------------------------------------------------------------------------------- */

static inline void contract_stamps(const struct rig_kind *kind)
{
	struct rig rig;
	uint64_t last = 0, now;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	if (rig.ring[1]->caps.tstamp == PV_TSTAMP_NONE) {
		CHECK(!(kind->must & RIG_STAMPS));
		CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), -EOPNOTSUPP);
	} else {
		CHECK(rig.ring[1]->caps.tstamp != PV_TSTAMP_RAW || rig.ring[1]->caps.tstamp_khz > 0);
		CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
	}
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

/* Nothing is stamped before it is asked for, nor after that was taken back. */
static inline void contract_stamps_on_demand(const struct rig_kind *kind)
{
	static const bool wanted[] = { false, true, false, true, true };
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < pv_array_size(wanted) && rig.ring[1]->caps.tstamp != PV_TSTAMP_NONE; i++) {
		struct pv_pkt *p;

		if (i)
			CHECK_EQ(pv_ring_set_stamps(rig.ring[1], wanted[i], false), 0);
		rig_send(&rig, 0, 64, i);
		p = rig_recv(&rig, 1);
		CHECK_EQ(p->flags & PV_PKT_TSTAMP, wanted[i] ? PV_PKT_TSTAMP : 0);
		pv_pkt_put(p);
		rig_reap(&rig, 0);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

/* A packet whose stamp is wanted comes back with the time when it left, short or long; others without, and all once that is off again. */
static inline void contract_stamps_sent(const struct rig_kind *kind)
{
	static const uint32_t lens[] = { 60, 204, 205, 1000, 1514 };
	struct rig rig;
	uint64_t last = 0;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	if (!rig.ring[0]->caps.tx_tstamp) {
		CHECK(!(kind->must & RIG_STAMPS));
		CHECK_EQ(pv_ring_set_stamps(rig.ring[0], false, true), -EOPNOTSUPP);
	}
	for (uint32_t i = 0; rig.ring[0]->caps.tx_tstamp && i < 60; i++) {
		bool on = i < 50, wanted = i % 3 != 2;
		uint32_t len = lens[i % pv_array_size(lens)];
		struct pv_pkt *p = rig_frame(&rig, 0, len, i), *out = NULL;
		double until = rig_now() + RIG_PATIENCE_S;
		uint64_t before = 0, after = 0;

		if (i == 0 || i == 50)
			CHECK_EQ(pv_ring_set_stamps(rig.ring[0], false, on), 0);
		p->flags |= PV_PKT_TSTAMP | (wanted ? PV_PKT_TX_TSTAMP : 0);
		p->cookie = i * UINT64_C(0x123456789);
		(void)pv_ring_clock(rig.ring[0], &before);
		rig_post(&rig, 0, p);
		rig_kick(&rig, 0);
		while (!pv_ring_tx_reap(rig.ring[0], &out, 1)) {
			rig.kind->settle(&rig);
			CHECK(rig_now() < until);
		}
		(void)pv_ring_clock(rig.ring[0], &after);
		CHECK(out == p);
		CHECK_EQ(out->cookie, i * UINT64_C(0x123456789));
		if (wanted)
			CHECK_EQ(out->flags & PV_PKT_TSTAMP, on ? PV_PKT_TSTAMP : 0);
		if (wanted && on) {
			CHECK(out->tstamp >= last);
			if (rig.ring[0]->caps.tstamp == PV_TSTAMP_RAW)
				CHECK(out->tstamp >= before && out->tstamp <= after);
			last = out->tstamp;
		}
		pv_pkt_put(out);
		rig_expect(&rig, 1, len, i);
		rig_fill(&rig, 1);
	}
	rig_close(&rig);
}

/* Packets of chunks that came after the ring was opened are as good as the first. */
static inline void contract_pool_growth(const struct rig_kind *kind)
{
	struct rig rig;

	rig_open(&rig, kind);
	rig_fill(&rig, 1);
	if (kind->must & RIG_FIXED_POOL) {
		for (int i = 0; i < 2; i++)
			CHECK_EQ(pv_pool_grow(rig.pool[i]), -EOPNOTSUPP);
		rig_close(&rig);
		return;
	}
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
	struct pv_ring_counters before, after;
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
		bool early = pv_rng_below(&rig.rng, 2);
		struct pv_pkt *p;
		int rc;

		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
		if (early)
			rig_send(&rig, 0, 64, i);
		rc = pv_ring_arm(rig.ring[1]);
		CHECK(rc == 0 || (rc == 1 && early));
		if (!early) {
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
	pv_ring_counters(rig.ring[1], &before);
	CHECK_EQ(pv_ring_arm(rig.ring[1]), 0);
	CHECK_EQ(pv_ring_arm(rig.ring[1]), 0);
	pv_ring_counters(rig.ring[1], &after);
	/* Where the device tells of interrupts it was asked for them. */
	CHECK(after.interrupts ? after.interrupts_asked - before.interrupts_asked >= 2 : !after.interrupts_asked);
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
