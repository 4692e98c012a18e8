/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of a program that does as it likes with what a queue pair sends: segmentation with any headers and lengths, rates, device memory,
 * lists, flags, states. Nothing may crash, every request that was taken completes once, and what arrives is a frame.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "softnic/softnic.h"
#include "softnic/vb.h"

#define WRS 16
#define STREAM (300u << 10)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq, *rcq;
static struct ibv_qp *qp, *rx;
static struct ibv_mr *mr, *rx_mr;
static uint8_t *stream, *in;
static struct ibv_dm *dm[4];
static struct ibv_mr *dm_mr[4];

static void to(struct ibv_qp *q, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };

	REQUIRE(!ibv_modify_qp(q, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)));
}

static void rts(struct ibv_qp *q)
{
	to(q, IBV_QPS_RESET);
	to(q, IBV_QPS_INIT);
	to(q, IBV_QPS_RTR);
	to(q, IBV_QPS_RTS);
}

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)in, 2048, rx_mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	REQUIRE(!ibv_post_recv(rx, &wr, &bad));
}

static void setup(void)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { WRS, 8, 8, 1, 64 }, .max_tso_header = 512 };
	struct ibv_flow_attr sniff = { .type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(sniff), .port = 1 };
	char spec[64], name[64];
	struct ibv_device **list;

	snprintf(spec, sizeof(spec), "fuzz-%d/0", getpid());
	REQUIRE(!softnic_device_add(spec, name, sizeof(name)));
	list = ibv_get_device_list(NULL);
	for (int i = 0; list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	}
	REQUIRE(ctx);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 2 * WRS, NULL, NULL, 0);
	rcq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	REQUIRE(pd && cq && rcq);
	init.send_cq = cq;
	init.recv_cq = rcq;
	init.pd = pd;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	qp = ibv_create_qp_ex(ctx, &init);
	rx = ibv_create_qp_ex(ctx, &init);
	stream = calloc(1, STREAM);
	in = calloc(1, 2048);
	mr = ibv_reg_mr(pd, stream, STREAM, IBV_ACCESS_LOCAL_WRITE);
	rx_mr = ibv_reg_mr(pd, in, 2048, IBV_ACCESS_LOCAL_WRITE);
	REQUIRE(qp && rx && mr && rx_mr);
	rts(rx);
	REQUIRE(ibv_create_flow(rx, &sniff));
	for (int i = 0; i < 8; i++)
		post_receive();
}

static uint32_t number(struct script *s)
{
	uint32_t v = script_8(s);

	return v << 16 | (uint32_t)script_8(s) << 8 | script_8(s);
}

/* Headers that are right, and then some bytes that are not. */
static uint16_t headers(struct script *s, uint8_t *h)
{
	uint8_t kind = script_8(s), changes = script_8(s) % 8;
	uint16_t len = kind & 1 ? 74 : 54;

	memset(h, 0, 512);
	memcpy(h + 12, kind & 1 ? "\x86\xdd\x60" : "\x08\x00\x45", 3);
	h[kind & 1 ? 20 : 23] = 6;
	h[len - 8] = 0x50;
	while (changes--) {
		uint8_t at = script_8(s);

		h[at] = script_8(s);
	}
	return kind & 2 ? (uint16_t)(number(s) % 600) : len;
}

static uint32_t list_make(struct script *s, struct ibv_sge *sge)
{
	uint32_t n = script_8(s) % 10;

	for (uint32_t i = 0; i < n && i < 8; i++) {
		uint8_t kind = script_8(s);
		struct ibv_mr *of = kind & 0x10 && dm_mr[kind & 3] ? dm_mr[kind & 3] : mr;

		sge[i].length = number(s) % (kind & 0x20 ? STREAM + 100 : 2000);
		sge[i].addr = (of == mr ? (uintptr_t)stream : 0) + number(s) % (kind & 0x20 ? STREAM : 1000);
		sge[i].lkey = of->lkey ^ (kind == 0xff);
	}
	return n;
}

static void send_one(struct script *s, bool tso)
{
	struct ibv_sge sge[8];
	struct ibv_send_wr wr = { .sg_list = sge, .opcode = tso ? IBV_WR_TSO : IBV_WR_SEND }, *bad;
	uint8_t h[512];

	if (tso) {
		wr.tso.hdr = h;
		wr.tso.hdr_sz = headers(s, h);
		wr.tso.mss = (uint16_t)number(s);
		/* A frame a byte is right, but takes its time. */
		if (wr.tso.mss && wr.tso.mss < 64)
			wr.tso.mss = 64;
	}
	wr.send_flags = script_8(s) & 0x1f;
	wr.num_sge = (int)list_make(s, sge);
	/* Inline data is read from where it is said to be. */
	if (wr.send_flags & IBV_SEND_INLINE) {
		for (int i = 0; i < wr.num_sge && i < 8; i++) {
			sge[i].addr = (uintptr_t)stream;
			sge[i].length %= 100;
		}
	}
	ibv_post_send(qp, &wr, &bad);
}

static void rate(struct script *s)
{
	struct ibv_qp_rate_limit_attr attr = { .rate_limit = number(s) << (script_8(s) % 8) };

	attr.max_burst_sz = script_8(s) & 1 ? number(s) : 0;
	attr.typical_pkt_sz = script_8(s) & 1 ? (uint16_t)number(s) : 0;
	if (!ibv_modify_qp_rate_limit(qp, &attr))
		REQUIRE(attr.rate_limit <= 100000000 && (attr.rate_limit || !(attr.max_burst_sz | attr.typical_pkt_sz)));
}

static void memory(struct script *s)
{
	struct ibv_alloc_dm_attr attr = { .length = number(s) % (300u << 10), .log_align_req = script_8(s) % 16 };
	uint8_t i = script_8(s) % 4, what = script_8(s) % 6;
	uint32_t at = number(s) % 5000, len = number(s) % 5000;

	if (what == 0 && !dm[i])
		dm[i] = ibv_alloc_dm(ctx, &attr);
	if (!dm[i])
		return;
	if (what == 1 && !dm_mr[i])
		dm_mr[i] = ibv_reg_dm_mr(pd, dm[i], at, len, script_8(s) | IBV_ACCESS_ZERO_BASED);
	if (what == 2)
		ibv_memcpy_to_dm(dm[i], at, stream, len);
	if (what == 3)
		ibv_memcpy_from_dm(stream, dm[i], at, len);
	if (what == 4 && dm_mr[i]) {
		REQUIRE(ibv_free_dm(dm[i]) == EBUSY);
		REQUIRE(!ibv_dereg_mr(dm_mr[i]));
		dm_mr[i] = NULL;
	}
	if (what == 5 && !dm_mr[i]) {
		REQUIRE(!ibv_free_dm(dm[i]));
		dm[i] = NULL;
	}
}

static void poll_all(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc))
		REQUIRE(wc.qp_num == qp->qp_num && wc.status <= IBV_WC_GENERAL_ERR);
	while (ibv_poll_cq(rcq, 1, &wc)) {
		REQUIRE(wc.status == IBV_WC_SUCCESS && wc.byte_len >= 14 && wc.byte_len <= 1518);
		post_receive();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = { data, data + size };

	if (!ctx)
		setup();
	rts(qp);
	while (s.p < s.end) {
		uint8_t call = script_8(&s);

		if (call % 8 < 2)
			send_one(&s, call % 8);
		else if (call % 8 == 2)
			rate(&s);
		else if (call % 8 == 3)
			memory(&s);
		else if (call % 8 == 4)
			to(qp, IBV_QPS_ERR);
		else if (call % 8 == 5)
			rts(qp);
		else
			poll_all();
	}
	to(qp, IBV_QPS_RESET);
	poll_all();
	for (int i = 0; i < 4; i++) {
		REQUIRE(!dm_mr[i] || !ibv_dereg_mr(dm_mr[i]));
		REQUIRE(!dm[i] || !ibv_free_dm(dm[i]));
		dm_mr[i] = NULL;
		dm[i] = NULL;
	}
	return 0;
}
