/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arbitrary frames, rules, impairments, faults and call orders over fault(sim) with a pcap record: nothing may crash, no packet may have
 * two owners (the debug stamps stop the program), and all packets and memory must be back at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "ring/fault.h"
#include "ring/frame.h"
#include "ring/pcap.h"
#include "ring/sim.h"
#include "testmem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
};

static uint32_t byte(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static void bytes(struct input *in, void *to, size_t n)
{
	size_t k = PV_MIN(n, in->left);

	memset(to, 0, n);
	if (k)
		memcpy(to, in->at, k);
	in->at += k;
	in->left -= k;
}

static uint32_t word(struct input *in)
{
	uint32_t v;

	bytes(in, &v, sizeof(v));
	return v;
}

/* A chance that is often 0, sometimes small and sometimes certain. */
static uint32_t ppm(struct input *in)
{
	uint32_t b = byte(in);

	return b < 128 ? 0 : b == 255 ? 1000000 : (b - 128) * 4000;
}

struct world {
	struct testmem mem;
	struct pv_sim_wire *wire;
	struct pv_pool *pool[2];
	struct pv_ring *ring[2], *lower[2], *fault[2];
	uint64_t handles[16];
	uint32_t nhandles;
	int64_t now;
	size_t recorded;
};

static void record(void *ctx, const void *data, size_t len)
{
	struct world *w = ctx;
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		w->recorded += p[i];
}

static int64_t now_ns(void *ctx)
{
	return ((struct world *)ctx)->now;
}

static void make(struct world *w, struct input *in)
{
	const struct pv_pool_cfg pool_cfg = { .buf_size = 2048, .headroom = 128, .count = 64, .chunk = 16, .max = 96 };
	const struct pv_fault_cfg none = { .seed = word(in) };

	memset(w, 0, sizeof(*w));
	testmem_init(&w->mem);
	if (pv_sim_wire_open(&w->wire, &w->mem.mem, word(in)))
		abort();
	for (int i = 0; i < 2; i++) {
		struct pv_sim_ring_cfg cfg = {
			.mac = { 2, 0, 0, 0, 0, (uint8_t)i }, .rx_depth = 16, .tx_depth = 16, .rx_csum = byte(in) & 7
		};
		const struct pv_pcap_cfg pcap = {
			.sink = record, .now_ns = now_ns, .ctx = w, .format = byte(in) & 1, .snaplen = byte(in)
		};

		if (pv_pool_open(&w->pool[i], &w->mem.mem, &pool_cfg) || pv_sim_open(&w->lower[i], w->wire, w->pool[i], &cfg) ||
		    pv_fault_open(&w->fault[i], &w->mem.mem, w->lower[i], &none) || pv_pcap_add(w->fault[i], &w->mem.mem, &pcap))
			abort();
		w->ring[i] = w->fault[i];
	}
}

static void post_frame(struct world *w, struct input *in, int side)
{
	struct pv_pkt *p = pv_pkt_get(w->pool[side]);
	uint32_t how = byte(in);

	if (!p)
		return;
	p->len = how & 1 ? 14 + byte(in) : byte(in) * 8;
	bytes(in, p->data, PV_MIN(p->len, 100u));
	if (how & 2) { /* so that frames reach the other ring and its parsers */
		memcpy(p->data, w->ring[1 - side]->caps.mac, PV_ETH_ALEN);
		pv_put16(p->data + 12, how & 4 ? 0x0800 : how & 8 ? 0x86dd : 0x8100);
	}
	if (how & 16 && (p->frag = pv_pkt_get(w->pool[side]))) {
		p->frag->len = byte(in);
		memset(p->frag->data, (int)how, p->frag->len);
	}
	p->flags = how & 32 ? PV_PKT_TX_L3_CSUM | PV_PKT_TX_L4_CSUM : 0;
	if (!pv_ring_tx_post(w->ring[side], &p, 1))
		pv_pkt_put(p);
}

static void fill(struct world *w, int side)
{
	for (;;) {
		struct pv_pkt *p = pv_pkt_get(w->pool[side]);

		if (!p)
			return;
		if (!pv_ring_rx_post(w->ring[side], &p, 1)) {
			pv_pkt_put(p);
			return;
		}
	}
}

static void take(struct world *w, int side, uint32_t n, bool sent)
{
	struct pv_pkt *p[PV_RING_BATCH_MAX];
	uint32_t k = sent ? pv_ring_tx_reap(w->ring[side], p, PV_MIN(n, PV_RING_BATCH_MAX))
			  : pv_ring_rx_poll(w->ring[side], p, PV_MIN(n, PV_RING_BATCH_MAX));

	for (uint32_t i = 0; i < k; i++) {
		struct pv_frame f;

		if (!sent && p[i]->len != p[i]->total)
			abort();
		pv_frame_parse(p[i]->data, p[i]->len, &f);
		pv_frame_check_csum(p[i]->data, p[i]->len, PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP);
		pv_pkt_put(p[i]);
	}
}

static void rules(struct world *w, struct input *in, int side)
{
	struct pv_flow flow;

	if (byte(in) & 1) {
		pv_ring_flow_del(w->ring[side], w->nhandles ? w->handles[byte(in) % w->nhandles] : word(in));
		return;
	}
	memset(&flow, 0, sizeof(flow));
	flow.kind = (enum pv_flow_kind)(byte(in) % (PV_FLOW_KINDS + 1));
	bytes(in, &flow.dst_mac, sizeof(flow.dst_mac));
	flow.ethertype = (uint16_t)word(in);
	flow.vlan = (uint16_t)(byte(in) & 3);
	flow.l4_proto = byte(in) & 1 ? 6 : 17;
	bytes(in, &flow.dst, sizeof(flow.dst));
	flow.dst_port = (uint16_t)byte(in);
	if (!pv_ring_flow_add(w->ring[side], &flow, &w->handles[w->nhandles % 16]) && w->nhandles < 16)
		w->nhandles++;
}

static void trouble(struct world *w, struct input *in, int side)
{
	struct pv_fault_cfg f = { .rx_post_short_ppm = ppm(in),
				  .tx_post_short_ppm = ppm(in),
				  .reap_none_ppm = ppm(in),
				  .kick_again_ppm = ppm(in),
				  .link_flap_ppm = ppm(in),
				  .rx_drop_ppm = ppm(in),
				  .rx_duplicate_ppm = ppm(in),
				  .rx_corrupt_ppm = ppm(in),
				  .rx_truncate_ppm = ppm(in),
				  .tx_drop_ppm = ppm(in),
				  .error_ppm = ppm(in) };

	/* For ever none reaped and none posted is within the contract, but shows nothing. */
	pv_fault_set(w->fault[side], &f);
}

static void impair(struct world *w, struct input *in)
{
	const struct pv_sim_impair imp = { .loss_ppm = ppm(in),
					   .duplicate_ppm = ppm(in),
					   .corrupt_ppm = ppm(in),
					   .reorder_ppm = ppm(in),
					   .latency_ns = word(in) % 100000,
					   .jitter_ns = word(in) % 100000,
					   .rate_kbps = word(in) % 1000000,
					   .queue_limit = byte(in) };

	pv_sim_wire_impair(w->wire, &imp);
}

static void step(struct world *w, struct input *in)
{
	uint32_t op = byte(in);
	int side = (int)(op >> 7);

	switch (op & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		post_frame(w, in, side);
		break;
	case 4:
	case 5:
		pv_ring_tx_kick(w->ring[side]);
		break;
	case 6:
		take(w, side, byte(in), true);
		break;
	case 7:
	case 8:
		take(w, side, byte(in), false);
		break;
	case 9:
		fill(w, side);
		break;
	case 10:
		w->now += word(in) % 1000000;
		pv_sim_wire_advance(w->wire, w->now);
		break;
	case 11:
		rules(w, in, side);
		break;
	case 12:
		trouble(w, in, side);
		break;
	case 13:
		impair(w, in);
		break;
	case 14:
		pv_ring_event(w->ring[side]);
		pv_sim_set_link(w->lower[side], byte(in) & 1);
		break;
	default:
		if (byte(in) == 255)
			pv_sim_vanish(w->lower[side]);
		else
			pv_pool_grow(w->pool[side]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct world w;

	make(&w, &in);
	while (in.left)
		step(&w, &in);
	for (int i = 0; i < 2; i++) {
		pv_ring_close(w.ring[i]);
		if (pv_pool_close(w.pool[i]))
			abort();
	}
	pv_sim_wire_close(w.wire);
	if (w.mem.blocks)
		abort();
	return 0;
}
