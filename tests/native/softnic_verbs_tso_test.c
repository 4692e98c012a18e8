/* SPDX-License-Identifier: BSD-3-Clause */
/* Segmentation: frames as an adapter cuts them, in both send interfaces; what is refused at once and what completes with an error. */
#include "softnic_verbs.h"

#define MSS 1000u
#define STREAM (3 * MSS + 123)
#define FRAMES_MAX 64

struct tso_side {
	struct side s;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct ibv_mr *mr;
	uint8_t *stream; /* 256 KiB and a byte */
};

static struct tso_side a;
static struct side b;

static struct ibv_qp *tso_qp(struct side *s, uint64_t ops, uint16_t header)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.send_cq = s->scq,
		.recv_cq = s->rcq,
		.cap = { 4, 0, 4, 0, 256 },
		.pd = s->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER | (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.max_tso_header = header,
		.send_ops_flags = ops,
	};

	return ibv_create_qp_ex(s->ctx, &init);
}

static void tso_open(void)
{
	side_open(&a.s, 0);
	side_open(&b, 1);
	CHECK(flow_mac(b.qp, b.mac));
	a.qp = tso_qp(&a.s, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO, 128);
	CHECK(a.qp);
	qp_rts(a.qp);
	a.ex = ibv_qp_to_qp_ex(a.qp);
	CHECK(a.ex && a.ex->wr_send_tso);
	a.stream = malloc((256 << 10) + 1);
	for (uint32_t i = 0; i <= 256 << 10; i++)
		a.stream[i] = (uint8_t)(i * 31 + (i >> 8));
	a.mr = ibv_reg_mr(a.s.pd, a.stream, (256 << 10) + 1, IBV_ACCESS_LOCAL_WRITE);
	CHECK(a.mr);
	for (uint32_t i = 0; i < SIDE_WR; i++)
		CHECK_EQ(side_post_recv(&b, i, i, SIDE_BUF), 0);
}

static void tso_close(void)
{
	CHECK_EQ(ibv_destroy_qp(a.qp), 0);
	CHECK_EQ(ibv_dereg_mr(a.mr), 0);
	side_close(&a.s);
	/* The rule goes with its context. */
	CHECK_EQ(ibv_close_device(b.ctx), 0);
	free(b.buf);
	free(a.stream);
}

struct kind {
	bool ip6, vlan, options;
	uint8_t flags;
};

/* Headers with wrong lengths and checksums, which the device has to replace. */
static uint16_t headers(uint8_t *h, const struct kind *k)
{
	uint8_t *ip = h + 14, *tcp;

	memset(h, 0, 128);
	memcpy(h, b.mac, 6);
	memcpy(h + 6, a.s.mac, 6);
	if (k->vlan) {
		put16(h + 12, 0x8100);
		put16(h + 14, 0x6123);
		ip += 4;
	}
	put16(ip - 2, k->ip6 ? 0x86dd : 0x0800);
	if (k->ip6) {
		put32(ip, 0x6ab12345);
		put16(ip + 4, 0xbeef);
		ip[6] = 6;
		ip[7] = 63;
		memset(ip + 8, 0xfd, 16);
		memset(ip + 24, 0xfc, 16);
		tcp = ip + 40;
	} else {
		ip[0] = 0x45;
		ip[1] = 0x2a;
		put16(ip + 2, 0xbeef);
		put16(ip + 4, 0xfffe);
		put16(ip + 6, 0x4000);
		ip[8] = 63;
		ip[9] = 6;
		put16(ip + 10, 0xdead);
		put32(ip + 12, 0x0a000001);
		put32(ip + 16, 0x0a000002);
		tcp = ip + 20;
	}
	put16(tcp, 4711);
	put16(tcp + 2, 80);
	put32(tcp + 4, 0xfffffc00);
	put32(tcp + 8, 0x01020304);
	tcp[12] = k->options ? 0x80 : 0x50;
	tcp[13] = k->flags;
	put16(tcp + 14, 0x7fff);
	put16(tcp + 16, 0xdead);
	if (k->options)
		memcpy(tcp + 20, "\x01\x01\x08\x0a\x11\x22\x33\x44\x55\x66\x77\x88", 12);
	return (uint16_t)(tcp + (tcp[12] >> 4) * 4 - h);
}

/* The frame that carries bytes `at` to `at + part` of the stream, the `index`-th of all. */
static void check_frame(const uint8_t *f, const uint8_t *h, uint16_t hlen, const struct kind *k, const uint32_t at, uint32_t part,
			uint32_t index, bool last)
{
	const uint32_t l3 = k->vlan ? 18 : 14, l4 = l3 + (k->ip6 ? 40 : 20);
	uint8_t want[128];
	uint32_t pseudo;

	memcpy(want, h, hlen);
	if (k->ip6) {
		put16(want + l3 + 4, hlen - l4 + part);
	} else {
		put16(want + l3 + 2, hlen - l3 + part);
		put16(want + l3 + 4, 0xfffe + index);
		put16(want + l3 + 10, 0);
		put16(want + l3 + 10, 0xffffu - sum16(want + l3, 20, 0));
	}
	put32(want + l4 + 4, 0xfffffc00 + at);
	if (!last)
		want[l4 + 13] &= (uint8_t)~0x09;
	if (index)
		want[l4 + 13] &= (uint8_t)~0x80;
	/* The checksum is right, whatever it is. */
	memcpy(want + l4 + 16, f + l4 + 16, 2);
	CHECK_EQ(memcmp(want, f, hlen), 0);
	CHECK_EQ(memcmp(f + hlen, a.stream + at, part), 0);
	pseudo = k->ip6 ? sum16(f + l3 + 8, 32, 0) : sum16(f + l3 + 12, 8, 0);
	CHECK_EQ(sum16(f + l4, hlen - l4 + part, pseudo + 6 + hlen - l4 + part), 0xffff);
}

static void check_cut(const uint8_t *h, uint16_t hlen, const struct kind *k, uint32_t total, uint32_t mss)
{
	uint32_t at = 0, index = 0;

	do {
		uint32_t part = total - at < mss ? total - at : mss;
		struct ibv_wc wc = poll_one(b.rcq);

		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, hlen + part);
		CHECK_EQ(wc.wc_flags, k->ip6 ? 0 : IBV_WC_IP_CSUM_OK);
		check_frame(b.buf + wc.wr_id * SIDE_BUF, h, hlen, k, at, part, index, at + part == total);
		CHECK_EQ(side_post_recv(&b, wc.wr_id, (uint32_t)wc.wr_id, SIDE_BUF), 0);
		at += part;
		index++;
	} while (at < total);
	poll_none(b.rcq);
}

static void expect(uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = poll_one(a.s.scq);

	CHECK_EQ(wc.wr_id, wr_id);
	CHECK_EQ(wc.status, status);
	CHECK_EQ(wc.qp_num, a.qp->qp_num);
	if (status == IBV_WC_SUCCESS)
		CHECK_EQ(wc.opcode, IBV_WC_SEND);
	poll_none(a.s.scq);
}

/* By ibv_post_send, from three pieces, one of them empty. */
static int post(uint64_t wr_id, void *h, uint16_t hlen, uint32_t total, uint16_t mss)
{
	uint32_t first = total / 3;
	struct ibv_sge sge[3] = {
		{ (uintptr_t)a.stream, first, a.mr->lkey },
		{ (uintptr_t)a.stream, 0, 0 },
		{ (uintptr_t)a.stream + first, total - first, a.mr->lkey },
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = 3,
		.opcode = IBV_WR_TSO,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM,
		.tso = { h, hlen, mss },
	};
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(a.qp, &wr, &bad);

	CHECK(bad == (err ? &wr : NULL));
	return err;
}

static int post_ex(uint64_t wr_id, void *h, uint16_t hlen, uint32_t total, uint16_t mss)
{
	ibv_wr_start(a.ex);
	a.ex->wr_id = wr_id;
	a.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
	ibv_wr_send_tso(a.ex, h, hlen, mss);
	/* The headers are the caller's again. */
	memset(h, 0xee, hlen < 128 ? hlen : 128);
	ibv_wr_set_sge(a.ex, a.mr->lkey, (uintptr_t)a.stream, total);
	return ibv_wr_complete(a.ex);
}

static const struct kind kinds[] = {
	{ .flags = 0x18 },
	{ .flags = 0x19, .options = true },
	{ .flags = 0xd9, .vlan = true },
	{ .flags = 0x18, .ip6 = true },
	{ .flags = 0xf9, .ip6 = true, .options = true, .vlan = true },
};

TEST(cuts_like_an_adapter)
{
	uint8_t h[128], again[128];

	tso_open();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		uint16_t hlen = headers(h, &kinds[i]);

		CHECK_EQ(post(i, h, hlen, STREAM, MSS), 0);
		check_cut(h, hlen, &kinds[i], STREAM, MSS);
		expect(i, IBV_WC_SUCCESS);
		headers(again, &kinds[i]);
		CHECK_EQ(memcmp(h, again, sizeof(h)), 0);
		CHECK_EQ(post_ex(100 + i, again, hlen, STREAM, MSS), 0);
		check_cut(h, hlen, &kinds[i], STREAM, MSS);
		expect(100 + i, IBV_WC_SUCCESS);
	}
	tso_close();
}

/* One frame when there is no more than one, a whole number of full ones, one byte in the last, nothing at all. */
TEST(lengths)
{
	static const uint32_t totals[] = { 1, MSS - 1, MSS, MSS + 1, 2 * MSS, 0 };
	uint8_t h[128];

	tso_open();
	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
		uint16_t hlen = headers(h, &kinds[0]);

		CHECK_EQ(post(i, h, hlen, totals[i], MSS), 0);
		check_cut(h, hlen, &kinds[0], totals[i], MSS);
		expect(i, IBV_WC_SUCCESS);
	}
	tso_close();
}

TEST(longest_request)
{
	uint8_t h[128];
	uint16_t hlen;
	uint32_t at = 0;
	struct ibv_device_attr_ex attr;

	tso_open();
	CHECK_EQ(ibv_query_device_ex(a.s.ctx, NULL, &attr), 0);
	hlen = headers(h, &kinds[0]);
	/* More frames than the receiver has buffers: what it holds comes in order, and the last is cut right. */
	CHECK_EQ(post(1, h, hlen, attr.tso_caps.max_tso + 1, 1448), EINVAL);
	CHECK_EQ(post(2, h, hlen, 64 * 1024, 1448), 0);
	expect(2, IBV_WC_SUCCESS);
	for (uint32_t i = 0; at < 64 * 1024; i++) {
		uint32_t part = 64 * 1024 - at < 1448 ? 64 * 1024 - at : 1448;
		struct ibv_wc wc = poll_one(b.rcq);

		check_frame(b.buf + wc.wr_id * SIDE_BUF, h, hlen, &kinds[0], at, part, i, at + part == 64 * 1024);
		CHECK_EQ(side_post_recv(&b, wc.wr_id, (uint32_t)wc.wr_id, SIDE_BUF), 0);
		at += part;
	}
	tso_close();
}

TEST(inline_and_batches)
{
	uint8_t h[128], frame[256];
	const struct udp4 udp = { .src = 1, .dst = 2, .sport = 3, .dport = 4 };
	struct ibv_wc wc;
	uint16_t hlen;
	uint32_t len;

	tso_open();
	hlen = headers(h, &kinds[0]);
	len = frame_udp4(frame, b.mac, a.s.mac, &udp, 33);
	ibv_wr_start(a.ex);
	a.ex->wr_id = 1;
	a.ex->wr_flags = 0;
	ibv_wr_send(a.ex);
	ibv_wr_set_inline_data(a.ex, frame, len);
	a.ex->wr_id = 2;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_tso(a.ex, h, hlen, 100);
	ibv_wr_set_inline_data(a.ex, a.stream, 250);
	a.ex->wr_id = 3;
	ibv_wr_send(a.ex);
	ibv_wr_set_inline_data(a.ex, frame, len);
	CHECK_EQ(ibv_wr_complete(a.ex), 0);
	wc = poll_one(b.rcq);
	CHECK_EQ(wc.byte_len, len);
	CHECK_EQ(side_post_recv(&b, wc.wr_id, (uint32_t)wc.wr_id, SIDE_BUF), 0);
	for (uint32_t i = 0; i < 3; i++) {
		wc = poll_one(b.rcq);
		check_frame(b.buf + wc.wr_id * SIDE_BUF, h, hlen, &kinds[0], i * 100, i < 2 ? 100 : 50, i, i == 2);
	}
	CHECK_EQ(poll_one(b.rcq).byte_len, len);
	CHECK_EQ(poll_one(a.s.scq).wr_id, 2);
	expect(3, IBV_WC_SUCCESS);
	/* A spoiled batch sends nothing. */
	ibv_wr_start(a.ex);
	ibv_wr_send_tso(a.ex, h, hlen, 100);
	ibv_wr_send(a.ex);
	CHECK_EQ(ibv_wr_complete(a.ex), EINVAL);
	ibv_wr_start(a.ex);
	ibv_wr_send_tso(a.ex, h, hlen, 100);
	ibv_wr_abort(a.ex);
	poll_none(b.rcq);
	poll_none(a.s.scq);
	tso_close();
}

TEST(refused_at_once)
{
	uint8_t h[128];
	uint16_t hlen;

	tso_open();
	hlen = headers(h, &kinds[0]);
	CHECK_EQ(post(1, h, 13, 100, MSS), EINVAL);
	CHECK_EQ(post(1, h, 129, 100, MSS), EINVAL);
	CHECK_EQ(post(1, h, hlen, 100, 0), EINVAL);
	CHECK_EQ(post_ex(1, h, 13, 100, MSS), EINVAL);
	CHECK_EQ(post_ex(1, h, 129, 100, MSS), EINVAL);
	hlen = headers(h, &kinds[0]);
	CHECK_EQ(post_ex(1, h, hlen, 100, 0), EINVAL);
	/* The queue has four entries. */
	for (int i = 0; i < 4; i++)
		CHECK_EQ(post(1, h, headers(h, &kinds[0]), 10, MSS), 0);
	CHECK_EQ(post(1, h, hlen, 10, MSS), ENOMEM);
	/* A queue pair that did not ask for it has no room for headers. */
	CHECK(!tso_qp(&a.s, 0, 513) && errno == EINVAL);
	CHECK(!tso_qp(&a.s, IBV_QP_EX_WITH_TSO | IBV_QP_EX_WITH_RDMA_READ, 64) && errno == EOPNOTSUPP);
	CHECK_EQ(ibv_destroy_qp(a.qp), 0);
	a.qp = tso_qp(&a.s, 0, 0);
	CHECK(a.qp);
	qp_rts(a.qp);
	CHECK_EQ(post(1, h, hlen, 10, MSS), EINVAL);
	CHECK(!ibv_qp_to_qp_ex(a.qp));
	tso_close();
}

static void again(void)
{
	qp_to(a.qp, IBV_QPS_RESET);
	qp_rts(a.qp);
}

/* Complete with an error, send nothing, and the queue pair is in ERR. */
static void fails(uint8_t *h, uint16_t hlen, uint32_t total, uint16_t mss, enum ibv_wc_status status)
{
	CHECK_EQ(post(9, h, hlen, total, mss), 0);
	expect(9, status);
	poll_none(b.rcq);
	CHECK_EQ(qp_state(a.qp), IBV_QPS_ERR);
	CHECK_EQ(post(10, h, hlen, total, mss), 0);
	expect(10, IBV_WC_WR_FLUSH_ERR);
	again();
}

TEST(bad_headers)
{
	uint8_t h[128];
	uint16_t hlen;

	tso_open();
	hlen = headers(h, &kinds[0]);
	fails(h, (uint16_t)(hlen - 1), 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	fails(h, (uint16_t)(hlen + 1), 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	fails(h, 14, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	fails(h, 34, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	h[23] = 17; /* UDP */
	fails(h, hlen, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	headers(h, &kinds[0]);
	h[14] = 0x44; /* shorter than a header */
	fails(h, hlen, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	headers(h, &kinds[0]);
	h[14] = 0x65;
	fails(h, hlen, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	headers(h, &kinds[0]);
	h[46] = 0x40; /* TCP's too */
	fails(h, hlen, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	headers(h, &kinds[0]);
	h[46] = 0x60; /* or longer than there is */
	fails(h, hlen, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	headers(h, &kinds[0]);
	put16(h + 12, 0x0806);
	fails(h, hlen, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	hlen = headers(h, &kinds[3]);
	h[20] = 43; /* an extension header */
	fails(h, hlen, 2000, MSS, IBV_WC_LOC_QP_OP_ERR);
	tso_close();
}

TEST(bad_lengths_and_keys)
{
	struct ibv_sge sge = { (uintptr_t)a.stream, 2000, 0 };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_TSO }, *bad;
	uint8_t h[128];
	uint16_t hlen;

	tso_open();
	hlen = headers(h, &kinds[0]);
	/* MTU 1500: a frame has 1518 bytes. */
	fails(h, hlen, 4000, (uint16_t)(1518 - hlen + 1), IBV_WC_LOC_LEN_ERR);
	/* A segment size that no frame reaches does not matter. */
	CHECK_EQ(post(1, h, hlen, 1000, 9000), 0);
	expect(1, IBV_WC_SUCCESS);
	CHECK_EQ(poll_one(b.rcq).byte_len, hlen + 1000);
	sge.addr = (uintptr_t)a.stream;
	sge.lkey = a.mr->lkey ^ 1;
	wr.tso.hdr = h;
	wr.tso.hdr_sz = hlen;
	wr.tso.mss = MSS;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
	expect(5, IBV_WC_LOC_PROT_ERR);
	again();
	/* Beyond the region. */
	sge.lkey = a.mr->lkey;
	sge.addr += (256 << 10) - 1000;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
	expect(5, IBV_WC_LOC_PROT_ERR);
	poll_none(b.rcq);
	tso_close();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
