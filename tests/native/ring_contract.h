/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract suite: what ring/ring.h promises, as cases that every kind of ring runs. A kind says how two joined rings are made
 * (struct rig_kind); CONTRACT_CASES(kind) makes one test of each case for it.
 *
 * Every frame that arrives is compared with what was sent, byte for byte, and at the end of each case all packets and all memory
 * must be back.
 */
#ifndef RING_CONTRACT_H
#define RING_CONTRACT_H

#include <poll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "base/rng.h"
#include "ring/ring.h"
#include "test.h"
#include "testmem.h"

#define RIG_PACKETS 1024u
#define RIG_DEPTH 64u
#define RIG_MTU 1500u
#define RIG_PATIENCE_S 20

struct rig;

/* What a kind must support: else a case that finds it missing would pass by doing nothing. */
#define RIG_FLOWS 0x1u
#define RIG_TX_CSUM 0x2u
#define RIG_RX_CSUM 0x4u
#define RIG_ARM 0x8u
#define RIG_STAMPS 0x10u
/* The pool's memory was handed to the kernel as it was. */
#define RIG_FIXED_POOL 0x20u
#define RIG_TXQ 0x40u
#define RIG_PACING 0x80u
#define RIG_TSO 0x100u

struct rig_kind {
	const char *name;
	uint32_t must; /* RIG_* */
	uint32_t rx_queues; /* 0: one. The catch-all rule leads to the first: there are RIG_DEPTH buffers for each */
	/* Makes ring[0] and ring[1], joined, with RIG_DEPTH, RIG_MTU and rig_mac(side); each receives all that reaches it. */
	void (*open)(struct rig *rig);
	void (*close)(struct rig *rig); /* what is left when both rings are closed */
	void (*settle)(struct rig *rig); /* lets frames that are under way arrive */
	/* Optional. */
	void (*set_link)(struct rig *rig, int side, bool up);
	void (*vanish)(struct rig *rig, int side);
};

struct rig {
	const struct rig_kind *kind;
	struct testmem mem;
	struct pv_pool *pool[2];
	struct pv_ring *ring[2];
	uint64_t all_rule[2]; /* handle of the catch-all rule, 0: the ring needs none */
	struct pv_rng rng;
	void *wire;
	void *other[4];
};

static inline void rig_mac(int side, uint8_t mac[PV_ETH_ALEN])
{
	static const uint8_t base[PV_ETH_ALEN] = { 0x02, 0x52, 0x49, 0x47, 0x00, 0x10 };

	memcpy(mac, base, PV_ETH_ALEN);
	mac[5] = (uint8_t)(mac[5] + side);
}

static inline void rig_open(struct rig *rig, const struct rig_kind *kind)
{
	const struct pv_pool_cfg cfg = {
		.buf_size = 2048, .headroom = 128, .count = RIG_PACKETS / 2, .chunk = 128, .max = RIG_PACKETS
	};

	memset(rig, 0, sizeof(*rig));
	rig->kind = kind;
	testmem_init(&rig->mem);
	pv_rng_seed(&rig->rng, 42);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_pool_open(&rig->pool[i], &rig->mem.mem, &cfg), 0);
	kind->open(rig);
	for (int i = 0; i < 2; i++) {
		uint8_t mac[PV_ETH_ALEN];

		rig_mac(i, mac);
		CHECK(pv_mac_eq(rig->ring[i]->caps.mac, mac));
		CHECK_EQ(rig->ring[i]->caps.mtu, RIG_MTU);
		CHECK(rig->ring[i]->caps.link_up);
		CHECK(rig->ring[i]->pool == rig->pool[i]);
		CHECK(rig->ring[i]->caps.batch >= 1 && rig->ring[i]->caps.batch <= PV_RING_BATCH_MAX);
		CHECK(rig->ring[i]->caps.max_sge >= 1);
		CHECK(rig->ring[i]->caps.name[0] && rig->ring[i]->caps.mode[0]);
	}
}

static inline void rig_close_side(struct rig *rig, int side)
{
	pv_ring_close(rig->ring[side]);
	rig->ring[side] = NULL;
	CHECK_EQ(pv_pool_close(rig->pool[side]), 0);
	rig->pool[side] = NULL;
}

static inline void rig_close(struct rig *rig)
{
	for (int i = 0; i < 2; i++)
		if (rig->ring[i])
			rig_close_side(rig, i);
	rig->kind->close(rig);
	CHECK_EQ(rig->mem.blocks, 0);
	CHECK_EQ(rig->mem.bytes, 0);
}

static inline double rig_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- frames ------------------------------------------------------------------------------------------------------------ */

#define RIG_ETHERTYPE 0x88b5 /* for local experiments (IEEE 802) */

/* Byte `i` of the frame with this number behind its header; the number itself stands first when there is room. */
static inline uint8_t rig_byte(uint32_t number, uint32_t i)
{
	return (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static inline void rig_write(uint8_t *at, uint32_t len, int from, uint32_t number)
{
	for (uint32_t i = 14; i < len; i++)
		at[i] = i < 18 && len >= 18 ? (uint8_t)(number >> 8 * (i - 14)) : rig_byte(number, i);
	rig_mac(1 - from, at);
	rig_mac(from, at + 6);
	pv_put16(at + 12, RIG_ETHERTYPE);
}

static inline struct pv_pkt *rig_frame(struct rig *rig, int from, uint32_t len, uint32_t number)
{
	struct pv_pkt *p = pv_pkt_get(rig->pool[from]);

	CHECK(p != NULL);
	CHECK(pv_pkt_tailroom(p) >= len);
	rig_write(p->data, len, from, number);
	p->len = p->total = len;
	return p;
}

/* A received frame is the one with this number and, apart from padding to the Ethernet minimum, this length. */
static inline void rig_check(const struct pv_pkt *p, int from, uint32_t len, uint32_t number)
{
	uint8_t want[16384];

	CHECK(p->frag == NULL);
	CHECK_EQ(p->total, p->len);
	CHECK(p->len == len || (len < 60 && p->len == 60));
	rig_write(want, len, from, number);
	CHECK(!memcmp(p->data, want, len));
}

static inline uint32_t rig_number(const struct pv_pkt *p)
{
	CHECK(p->len >= 18);
	return (uint32_t)p->data[14] | (uint32_t)p->data[15] << 8 | (uint32_t)p->data[16] << 16 | (uint32_t)p->data[17] << 24;
}

/* ---- moving them ------------------------------------------------------------------------------------------------------- */

static inline void rig_fill(struct rig *rig, int side)
{
	for (;;) {
		struct pv_pkt *p = pv_pkt_get(rig->pool[side]);

		CHECK(p != NULL);
		if (!pv_ring_rx_post(rig->ring[side], &p, 1)) {
			pv_pkt_put(p);
			return;
		}
	}
}

static inline uint32_t rig_reap(struct rig *rig, int side)
{
	struct pv_pkt *out[PV_RING_BATCH_MAX];
	uint32_t n = pv_ring_tx_reap(rig->ring[side], out, PV_RING_BATCH_MAX);

	for (uint32_t i = 0; i < n; i++)
		pv_pkt_put(out[i]);
	return n;
}

/* Waits until this many packets have come out of tx_reap. */
static inline void rig_reap_all(struct rig *rig, int side, uint32_t want)
{
	double until = rig_now() + RIG_PATIENCE_S;
	uint32_t got = 0;

	while (got < want) {
		got += rig_reap(rig, side);
		rig->kind->settle(rig);
		CHECK(rig_now() < until);
	}
	CHECK_EQ(got, want);
	CHECK_EQ(rig_reap(rig, side), 0);
}

static inline void rig_kick(struct rig *rig, int side)
{
	double until = rig_now() + RIG_PATIENCE_S;
	int rc;

	while ((rc = pv_ring_tx_kick(rig->ring[side])) == -EAGAIN)
		CHECK(rig_now() < until);
	CHECK_EQ(rc, 0);
}

static inline void rig_post(struct rig *rig, int side, struct pv_pkt *p)
{
	double until = rig_now() + RIG_PATIENCE_S;

	while (!pv_ring_tx_post(rig->ring[side], &p, 1)) {
		rig_kick(rig, side);
		rig_reap(rig, side);
		CHECK(rig_now() < until);
	}
}

static inline void rig_send(struct rig *rig, int side, uint32_t len, uint32_t number)
{
	rig_post(rig, side, rig_frame(rig, side, len, number));
	rig_kick(rig, side);
}

/* The next frame that arrives; its packet is the caller's. */
static inline struct pv_pkt *rig_recv(struct rig *rig, int side)
{
	double until = rig_now() + RIG_PATIENCE_S;
	struct pv_pkt *p;

	while (!pv_ring_rx_poll(rig->ring[side], &p, 1)) {
		rig->kind->settle(rig);
		CHECK(rig_now() < until);
	}
	return p;
}

static inline void rig_expect(struct rig *rig, int side, uint32_t len, uint32_t number)
{
	struct pv_pkt *p = rig_recv(rig, side);

	rig_check(p, 1 - side, len, number);
	pv_pkt_put(p);
}

/* Whatever was sent before is through: a frame sent now is the next one that `side` sees. */
static inline void rig_expect_only(struct rig *rig, int side, uint32_t number)
{
	rig_send(rig, 1 - side, 100, number);
	rig_expect(rig, side, 100, number);
}

/* ---- the suite --------------------------------------------------------------------------------------------------------- */

#define CONTRACT_LIST(X)                                                                                                           \
	X(frames_of_all_sizes)                                                                                                     \
	X(frames_it_cannot_carry)                                                                                                  \
	X(gather)                                                                                                                  \
	X(rx_depth)                                                                                                                \
	X(tx_depth)                                                                                                                \
	X(both_directions)                                                                                                         \
	X(no_buffers)                                                                                                              \
	X(close_with_everything_outstanding)                                                                                       \
	X(counters)                                                                                                                \
	X(flow_rules)                                                                                                              \
	X(flow_groups)                                                                                                             \
	X(flow_errors)                                                                                                             \
	X(checksums_sent)                                                                                                          \
	X(checksums_received)                                                                                                      \
	X(checksums_and_padding)                                                                                                   \
	X(stamps)                                                                                                                  \
	X(stamps_on_demand)                                                                                                        \
	X(stamps_sent)                                                                                                             \
	X(pool_growth)                                                                                                             \
	X(sleeping)                                                                                                                \
	X(link)                                                                                                                    \
	X(vanish)                                                                                                                  \
	X(forget)                                                                                                                  \
	X(txq_life)                                                                                                                \
	X(txq_unknown)                                                                                                             \
	X(txq_mixed)                                                                                                               \
	X(txq_full)                                                                                                                \
	X(rate_range)                                                                                                              \
	X(rate_held)                                                                                                               \
	X(rate_close)                                                                                                              \
	X(tso_frames)                                                                                                              \
	X(tso_unsound)

#define CONTRACT_CASE(kind, id)                                                                                                    \
	TEST(kind##_##id)                                                                                                          \
	{                                                                                                                          \
		contract_##id(&kind);                                                                                              \
	}

/* A kind lists them all:  #define SIM(id) CONTRACT_CASE(sim, id)   CONTRACT_LIST(SIM) */

#include "ring_contract_cases.h"
#include "ring_contract_ip.h"
#include "ring_contract_tx.h"

#endif
