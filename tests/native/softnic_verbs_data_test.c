/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending, receiving and their completions: every member of a completion, every error a request can have. */
#include "softnic_verbs.h"

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

static struct side a, b;
static struct ibv_flow *flow_b;
static uint8_t frame[9300];
static const struct udp4 udp = { .src = IP(10, 0, 0, 1), .dst = IP(10, 0, 0, 2), .sport = 1000, .dport = 2000 };

/* Two ports, b hears what is addressed to it. */
static void pair_open(void)
{
	side_open(&a, 0);
	side_open(&b, 1);
	flow_b = flow_mac(b.qp, b.mac);
	CHECK(flow_b);
}

static void pair_close(void)
{
	CHECK_EQ(ibv_destroy_flow(flow_b), 0);
	side_close(&a);
	side_close(&b);
}

static uint32_t build(uint32_t payload)
{
	return frame_udp4(frame, b.mac, a.mac, &udp, payload);
}

static void expect_recv(uint64_t wr_id, uint32_t len, uint32_t slot)
{
	struct ibv_wc wc = poll_one(b.rcq);

	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.wr_id, wr_id);
	CHECK_EQ(wc.byte_len, len);
	CHECK_EQ(wc.qp_num, b.qp->qp_num);
	CHECK_EQ(wc.wc_flags & ~(unsigned int)IBV_WC_IP_CSUM_OK, 0);
	CHECK_EQ(wc.vendor_err, 0);
	CHECK(!memcmp(b.buf + slot * SIDE_BUF, frame, len));
}

TEST(every_length)
{
	static const uint32_t payload[] = {
		0, 1, 2, 3, 15, 16, 17, 22, 63, 64, 65, 100, 200, 213, 214, 215, 500, 1000, 1471, 1472
	};

	pair_open();
	for (size_t i = 0; i < sizeof(payload) / sizeof(payload[0]); i++) {
		uint32_t len = build(payload[i]), slot = (uint32_t)i % SIDE_WR;

		memset(b.buf + slot * SIDE_BUF, 0xaa, SIDE_BUF);
		CHECK_EQ(side_post_recv(&b, 1000 + i, slot, SIDE_BUF), 0);
		CHECK_EQ(side_send(&a, i, frame, len, IBV_SEND_SIGNALED | (len <= 256 ? IBV_SEND_INLINE : 0)), 0);
		expect_recv(1000 + i, len, slot);
		CHECK_EQ(b.buf[slot * SIDE_BUF + len], 0xaa);
		poll_none(b.rcq);
		CHECK_EQ(poll_one(a.scq).wr_id, i);
	}
	pair_close();
}

TEST(send_completion_members)
{
	struct ibv_wc wc;
	uint32_t len;

	pair_open();
	len = build(50);
	CHECK_EQ(side_send(&a, 0x123456789abcdef0, frame, len, IBV_SEND_SIGNALED), 0);
	wc = poll_one(a.scq);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_SEND);
	CHECK_EQ(wc.wr_id, 0x123456789abcdef0);
	CHECK_EQ(wc.qp_num, a.qp->qp_num);
	CHECK_EQ(wc.wc_flags, 0);
	/* Not asked for: none. */
	CHECK_EQ(side_send(&a, 2, frame, len, 0), 0);
	CHECK_EQ(side_send(&a, 3, frame, len, IBV_SEND_INLINE), 0);
	poll_none(a.scq);
	pair_close();
}

TEST(signal_all)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 4, 0, 1, 0, 64 }, .sq_sig_all = 1 };
	struct ibv_send_wr wr = { .wr_id = 5, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_sge sge;
	struct ibv_qp *qp;

	pair_open();
	sge = (struct ibv_sge){ (uintptr_t)a.buf, 64, a.mr->lkey };
	wr.sg_list = &sge;
	init.send_cq = a.scq;
	qp = ibv_create_qp(a.pd, &init);
	CHECK(qp);
	qp_rts(qp);
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK_EQ(poll_one(a.scq).qp_num, qp->qp_num);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	pair_close();
}

/* The shortest frames that the switch remembers a way for, in memory that ends with them. */
TEST(headers_that_end_with_the_buffer)
{
	struct udp4 tagged = udp;

	tagged.vlan = 5;
	pair_open();
	for (uint32_t len = 42; len <= 46; len++) {
		uint8_t *exact = malloc(len);

		frame_udp4(frame, b.mac, a.mac, &tagged, 0);
		memcpy(exact, frame, len);
		for (uint32_t i = 0; i < 3; i++) {
			CHECK_EQ(side_post_recv(&b, i, i, SIDE_BUF), 0);
			CHECK_EQ(side_send(&a, i, exact, len, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
			CHECK_EQ(poll_one(a.scq).status, IBV_WC_SUCCESS);
			expect_recv(i, len, i);
		}
		free(exact);
	}
	pair_close();
}

/* Nothing is no frame: neither read nor sent. */
TEST(request_without_pieces)
{
	for (int flags = 0; flags <= IBV_SEND_INLINE; flags += IBV_SEND_INLINE) {
		struct ibv_send_wr wr = { .wr_id = 9, .opcode = IBV_WR_SEND, .send_flags = (unsigned int)flags }, *bad;
		struct ibv_wc wc;

		pair_open();
		CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
		wc = poll_one(a.scq);
		CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
		CHECK_EQ(wc.wr_id, 9);
		CHECK_EQ(qp_state(a.qp), IBV_QPS_ERR);
		pair_close();
	}
}

TEST(gather_and_scatter)
{
	struct ibv_sge from[4], to[4];
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = from, .num_sge = 4, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr rwr = { .wr_id = 2, .sg_list = to, .num_sge = 4 }, *rbad;
	uint32_t len, at = 0;

	pair_open();
	len = build(300);
	for (int mode = 0; mode < 2; mode++) {
		uint32_t total = mode ? 200 : len;
		const uint32_t cut[5] = { 0, 14, 14, 35, total };

		memcpy(a.buf, frame, len);
		for (int i = 0; i < 4; i++)
			from[i] = (struct ibv_sge){ (uintptr_t)a.buf + cut[i], cut[i + 1] - cut[i], mode ? 0 : a.mr->lkey };
		memset(b.buf, 0, SIDE_BUF);
		at = 0;
		for (int i = 0; i < 4; i++) {
			static const uint32_t part[4] = { 1, 0, 60, 1000 };

			to[i] = (struct ibv_sge){ (uintptr_t)b.buf + at, part[i], b.mr->lkey };
			at += part[i];
		}
		wr.send_flags = mode ? IBV_SEND_INLINE : 0;
		CHECK_EQ(ibv_post_recv(b.qp, &rwr, &rbad), 0);
		CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
		expect_recv(2, total, 0);
	}
	pair_close();
}

TEST(order_over_many)
{
	uint32_t sent = 0;

	pair_open();
	for (uint64_t i = 0; i < SIDE_WR; i++)
		CHECK_EQ(side_post_recv(&b, i, (uint32_t)i, SIDE_BUF), 0);
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t slot = round % SIDE_WR;

		sent = build(round);
		CHECK_EQ(side_send(&a, round, frame, sent, IBV_SEND_SIGNALED), 0);
		CHECK_EQ(poll_one(a.scq).wr_id, round);
		expect_recv(slot, sent, slot);
		CHECK_EQ(side_post_recv(&b, slot, slot, SIDE_BUF), 0);
	}
	pair_close();
}

TEST(batches)
{
	struct ibv_send_wr wr[6], *bad = NULL;
	struct ibv_sge sge[6];
	struct ibv_wc wc[16];

	pair_open();
	for (uint64_t i = 0; i < 6; i++) {
		CHECK_EQ(side_post_recv(&b, i, (uint32_t)i, SIDE_BUF), 0);
		uint32_t len = build((uint32_t)i + 10);

		memcpy(a.buf + i * SIDE_BUF, frame, len);
		sge[i] = (struct ibv_sge){ (uintptr_t)a.buf + i * SIDE_BUF, len, a.mr->lkey };
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i < 5 ? &wr[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1, .opcode = IBV_WR_SEND
		};
	}
	/* The fourth is not a request for this kind of QP: those before it have gone, those after it have not. */
	wr[3].opcode = IBV_WR_RDMA_WRITE;
	CHECK_EQ(ibv_post_send(a.qp, wr, &bad), EINVAL);
	CHECK(bad == &wr[3]);
	CHECK_EQ(ibv_poll_cq(b.rcq, 16, wc), 3);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(wc[i].wr_id, i);
		CHECK_EQ(wc[i].byte_len, sge[i].length);
	}
	CHECK_EQ(ibv_poll_cq(b.rcq, 0, wc), 0);
	pair_close();
}

/* ---- refused at once -------------------------------------------------------------------------------------------------------------- */

TEST(immediate_errors)
{
	struct ibv_sge sge[20];
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr rwr = { .sg_list = sge, .num_sge = 1 }, *rbad;

	pair_open();
	for (int i = 0; i < 20; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)a.buf, 64, a.mr->lkey };
	wr.num_sge = 5;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.num_sge = -1;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	wr.send_flags = 1u << 20;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.send_flags = IBV_SEND_INLINE;
	sge[0].length = 257;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	sge[0].length = sge[1].length = 200;
	wr.num_sge = 2;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	sge[0].length = sge[1].length = 0x80000000;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	for (int op = 0; op < 16; op++) {
		wr.opcode = (enum ibv_wr_opcode)op;
		wr.send_flags = 0;
		sge[0].length = 64;
		CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), op == IBV_WR_SEND ? 0 : EINVAL);
	}
	rwr.num_sge = 5;
	CHECK_EQ(ibv_post_recv(b.qp, &rwr, &rbad), EINVAL);
	CHECK(rbad == &rwr);
	CHECK_EQ(qp_state(a.qp), IBV_QPS_RTS);
	CHECK_EQ(qp_state(b.qp), IBV_QPS_RTS);
	pair_close();
}

TEST(wrong_states)
{
	uint32_t len;

	pair_open();
	len = build(10);
	CHECK_EQ(qp_to(a.qp, IBV_QPS_RESET), 0);
	CHECK_EQ(side_send(&a, 1, frame, len, 0), EINVAL);
	CHECK_EQ(side_post_recv(&a, 1, 0, 64), EINVAL);
	CHECK_EQ(qp_to(a.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(side_send(&a, 1, frame, len, 0), EINVAL);
	CHECK_EQ(side_post_recv(&a, 1, 0, 64), 0);
	CHECK_EQ(qp_to(a.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(side_send(&a, 1, frame, len, 0), EINVAL);
	poll_none(a.scq);
	pair_close();
}

TEST(queues_fill)
{
	uint32_t len, n = 0;

	pair_open();
	len = build(10);
	/* Room comes back with polled completions only, so a sender that asks for none stops here. */
	while (side_send(&a, n, frame, len, IBV_SEND_INLINE) == 0)
		n++;
	CHECK_EQ(n, SIDE_WR);
	CHECK_EQ(side_send(&a, n, frame, len, IBV_SEND_INLINE | IBV_SEND_SIGNALED), ENOMEM);
	pair_close();

	pair_open();
	for (n = 0; n < SIDE_WR; n++)
		CHECK_EQ(side_send(&a, n, frame, len, IBV_SEND_INLINE | (n == 9 ? IBV_SEND_SIGNALED : 0)), 0);
	CHECK_EQ(side_send(&a, n, frame, len, IBV_SEND_INLINE), ENOMEM);
	CHECK_EQ(poll_one(a.scq).wr_id, 9);
	/* Ten requests are done with that one. */
	for (n = 0; n < 10; n++)
		CHECK_EQ(side_send(&a, n, frame, len, IBV_SEND_INLINE), 0);
	CHECK_EQ(side_send(&a, n, frame, len, IBV_SEND_INLINE), ENOMEM);
	for (n = 0; side_post_recv(&a, n, 0, 64) == 0; n++)
		;
	CHECK_EQ(n, SIDE_WR);
	CHECK_EQ(side_post_recv(&a, n, 0, 64), ENOMEM);
	pair_close();
}

/* ---- errors that complete ------------------------------------------------------------------------------------------------------------ */

/* A send that must complete with `status`, take the QP to ERR and reach nobody. */
static void bad_send(struct ibv_sge sge, unsigned int flags, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags }, *bad;
	struct ibv_wc wc;

	CHECK_EQ(side_post_recv(&a, 55, 0, SIDE_BUF), 0);
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
	wc = poll_one(a.scq);
	CHECK_EQ(wc.status, status);
	CHECK_EQ(wc.wr_id, 77);
	CHECK_EQ(wc.qp_num, a.qp->qp_num);
	CHECK_EQ(qp_state(a.qp), IBV_QPS_ERR);
	/* What was posted and what still is, is flushed. */
	wc = poll_one(a.rcq);
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(wc.wr_id, 55);
	CHECK_EQ(side_send(&a, 78, frame, 64, 0), 0);
	wc = poll_one(a.scq);
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(wc.wr_id, 78);
	poll_none(b.rcq);
	CHECK_EQ(qp_to(a.qp, IBV_QPS_RESET), 0);
	qp_rts(a.qp);
}

TEST(send_errors)
{
	struct ibv_pd *pd2;
	struct ibv_mr *mr2;
	uint64_t at;
	uint32_t key, len;

	pair_open();
	len = build(20);
	at = (uintptr_t)a.buf;
	key = a.mr->lkey;
	memcpy(a.buf, frame, len);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	bad_send((struct ibv_sge){ at, len, 0 }, 0, IBV_WC_LOC_PROT_ERR);
	bad_send((struct ibv_sge){ at, len, key + 1 }, 0, IBV_WC_LOC_PROT_ERR);
	bad_send((struct ibv_sge){ at, len, key + 0x100 }, 0, IBV_WC_LOC_PROT_ERR);
	bad_send((struct ibv_sge){ at, len, key | 0x80000000 }, 0, IBV_WC_LOC_PROT_ERR);
	bad_send((struct ibv_sge){ at - 1, len, key }, 0, IBV_WC_LOC_PROT_ERR);
	bad_send((struct ibv_sge){ at + a.mr->length - len + 1, len, key }, 0, IBV_WC_LOC_PROT_ERR);
	bad_send((struct ibv_sge){ UINT64_MAX - 4, len, key }, 0, IBV_WC_LOC_PROT_ERR);
	bad_send((struct ibv_sge){ at, UINT32_MAX, key }, 0, IBV_WC_LOC_PROT_ERR);
	/* Of another protection domain. */
	pd2 = ibv_alloc_pd(a.ctx);
	mr2 = ibv_reg_mr(pd2, a.buf, SIDE_BUF, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr2);
	bad_send((struct ibv_sge){ at, len, mr2->lkey }, 0, IBV_WC_LOC_PROT_ERR);
	/* Gone. */
	key = mr2->lkey;
	CHECK_EQ(ibv_dereg_mr(mr2), 0);
	bad_send((struct ibv_sge){ at, len, key }, 0, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_dealloc_pd(pd2), 0);
	/* Longer than the MTU allows, shorter than a header. */
	bad_send((struct ibv_sge){ at, 1519, a.mr->lkey }, 0, IBV_WC_LOC_LEN_ERR);
	bad_send((struct ibv_sge){ at, 20000, a.mr->lkey }, 0, IBV_WC_LOC_LEN_ERR);
	bad_send((struct ibv_sge){ at, 13, a.mr->lkey }, 0, IBV_WC_LOC_LEN_ERR);
	bad_send((struct ibv_sge){ at, 13, 0 }, IBV_SEND_INLINE, IBV_WC_LOC_LEN_ERR);
	bad_send((struct ibv_sge){ at, 0, 0 }, IBV_SEND_INLINE, IBV_WC_LOC_LEN_ERR);
	/* And what is right still goes. */
	CHECK_EQ(side_send(&a, 5, frame, len, 0), 0);
	expect_recv(1, len, 0);
	pair_close();
}

/* A buffer in which a frame must not land. */
static void bad_recv(struct ibv_sge sge, enum ibv_wc_status status)
{
	struct ibv_recv_wr wr = { .wr_id = 31, .sg_list = &sge, .num_sge = 1 }, *bad;
	uint32_t len = build(40);
	struct ibv_wc wc;

	CHECK_EQ(ibv_post_recv(b.qp, &wr, &bad), 0);
	CHECK_EQ(side_post_recv(&b, 32, 1, SIDE_BUF), 0);
	memset(b.buf, 0x5a, SIDE_BUF);
	CHECK_EQ(side_send(&a, 1, frame, len, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_SUCCESS);
	wc = poll_one(b.rcq);
	CHECK_EQ(wc.status, status);
	CHECK_EQ(wc.wr_id, 31);
	CHECK_EQ(wc.qp_num, b.qp->qp_num);
	CHECK_EQ(qp_state(b.qp), IBV_QPS_ERR);
	wc = poll_one(b.rcq);
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(wc.wr_id, 32);
	for (uint32_t i = sge.length < SIDE_BUF ? sge.length : 0; i < SIDE_BUF; i++)
		CHECK_EQ(b.buf[i], 0x5a);
	poll_none(b.rcq);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_RESET), 0);
	qp_rts(b.qp);
}

TEST(receive_errors)
{
	struct ibv_mr *ro;
	uint64_t at;
	uint32_t key, len;

	pair_open();
	at = (uintptr_t)b.buf;
	key = b.mr->lkey;
	len = build(40);
	bad_recv((struct ibv_sge){ at, len - 1, key }, IBV_WC_LOC_LEN_ERR);
	bad_recv((struct ibv_sge){ at, 0, key }, IBV_WC_LOC_LEN_ERR);
	bad_recv((struct ibv_sge){ at, SIDE_BUF, key ^ 1 }, IBV_WC_LOC_PROT_ERR);
	bad_recv((struct ibv_sge){ at, SIDE_BUF, a.mr->lkey + 0x4000 }, IBV_WC_LOC_PROT_ERR);
	bad_recv((struct ibv_sge){ at - 8, SIDE_BUF, key }, IBV_WC_LOC_PROT_ERR);
	bad_recv((struct ibv_sge){ at + b.mr->length - 8, SIDE_BUF, key }, IBV_WC_LOC_PROT_ERR);
	/* Registered for reading only. */
	ro = ibv_reg_mr(b.pd, b.buf, SIDE_BUF, 0);
	CHECK(ro);
	bad_recv((struct ibv_sge){ at, SIDE_BUF, ro->lkey }, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_dereg_mr(ro), 0);
	CHECK_EQ(side_post_recv(&b, 1, 0, len), 0);
	CHECK_EQ(side_send(&a, 5, frame, len, 0), 0);
	expect_recv(1, len, 0);
	pair_close();
}

TEST(error_state_flushes)
{
	struct ibv_wc wc[8];
	uint32_t len;

	pair_open();
	len = build(10);
	for (uint64_t i = 0; i < 3; i++)
		CHECK_EQ(side_post_recv(&a, i, 0, 64), 0);
	CHECK_EQ(qp_to(a.qp, IBV_QPS_ERR), 0);
	CHECK_EQ(side_post_recv(&a, 3, 0, 64), 0);
	CHECK_EQ(ibv_poll_cq(a.rcq, 8, wc), 4);
	for (uint32_t i = 0; i < 4; i++) {
		CHECK_EQ(wc[i].wr_id, i);
		CHECK_EQ(wc[i].status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(wc[i].qp_num, a.qp->qp_num);
		CHECK_EQ(wc[i].byte_len, 0);
	}
	CHECK_EQ(side_send(&a, 9, frame, len, 0), 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_WR_FLUSH_ERR);
	/* RESET forgets all of it. */
	CHECK_EQ(side_send(&a, 9, frame, len, 0), 0);
	CHECK_EQ(side_post_recv(&a, 3, 0, 64), 0);
	CHECK_EQ(qp_to(a.qp, IBV_QPS_RESET), 0);
	poll_none(a.scq);
	poll_none(a.rcq);
	pair_close();
}

TEST(not_ready_hears_nothing)
{
	uint32_t len;

	pair_open();
	len = build(10);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_RESET), 0);
	CHECK_EQ(side_send(&a, 1, frame, len, 0), 0);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(side_post_recv(&b, 7, 0, SIDE_BUF), 0);
	CHECK_EQ(side_send(&a, 2, frame, len, 0), 0);
	poll_none(b.rcq);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_RTR), 0);
	poll_none(b.rcq);
	len = build(11);
	CHECK_EQ(side_send(&a, 3, frame, len, 0), 0);
	expect_recv(7, len, 0);
	pair_close();
}

TEST(destroyed_qp_leaves_no_completions)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 4, 4, 1, 1, 64 } };
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED }, *bad;
	struct ibv_sge sge;
	struct ibv_qp *qp;

	pair_open();
	sge = (struct ibv_sge){ (uintptr_t)a.buf, 64, 0 };
	wr.sg_list = &sge;
	init.send_cq = a.scq;
	init.recv_cq = a.rcq;
	qp = ibv_create_qp(a.pd, &init);
	CHECK(qp);
	qp_rts(qp);
	CHECK_EQ(side_send(&a, 1, frame, build(1), IBV_SEND_SIGNALED), 0);
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK_EQ(side_send(&a, 2, frame, build(1), IBV_SEND_SIGNALED), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(poll_one(a.scq).wr_id, 1);
	CHECK_EQ(poll_one(a.scq).wr_id, 2);
	poll_none(a.scq);
	pair_close();
}

TEST(one_cq_for_all_is_fair)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 64, 64, 1, 1, 256 } };
	uint32_t sends = 0, recvs[2] = { 0, 0 }, len;
	struct ibv_qp *qp[2];
	struct ibv_flow *flow[2];
	struct ibv_wc wc;

	pair_open();
	CHECK_EQ(ibv_destroy_flow(flow_b), 0);
	init.send_cq = init.recv_cq = b.rcq;
	for (int q = 0; q < 2; q++) {
		qp[q] = ibv_create_qp(b.pd, &init);
		CHECK(qp[q]);
		qp_rts(qp[q]);
		flow[q] = flow_mac(qp[q], (uint8_t[6]){ 2, 0, 0, 0, 1, (uint8_t)q });
		CHECK(flow[q]);
		for (uint64_t i = 0; i < 8; i++) {
			struct ibv_sge sge = { (uintptr_t)b.buf + i * SIDE_BUF, SIDE_BUF, b.mr->lkey };
			struct ibv_recv_wr wr = { .wr_id = 100 * (uint64_t)(q + 1) + i, .sg_list = &sge, .num_sge = 1 }, *bad;

			CHECK_EQ(ibv_post_recv(qp[q], &wr, &bad), 0);
		}
	}
	for (int i = 0; i < 8; i++) {
		struct ibv_sge sge = { (uintptr_t)b.buf + SIDE_WR * SIDE_BUF, 64, 0 };
		struct ibv_send_wr wr = { .wr_id = (uint64_t)i,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED },
				   *bad;

		CHECK_EQ(ibv_post_send(qp[0], &wr, &bad), 0);
	}
	/* Slowly, since the sender's own queue is short. */
	for (int q = 0; q < 2; q++) {
		for (int i = 0; i < 8; i++) {
			len = build((uint32_t)i);
			memcpy(frame, (uint8_t[6]){ 2, 0, 0, 0, 1, (uint8_t)q }, 6);
			CHECK_EQ(side_send(&a, 1, frame, len, IBV_SEND_SIGNALED), 0);
			poll_one(a.scq);
		}
	}
	/* In any stretch of the poll nobody waits long: with three sources, each has come at least twice after nine. */
	for (int i = 0; i < 24; i++) {
		wc = poll_one(b.rcq);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND) {
			CHECK_EQ(wc.wr_id, sends++);
		} else {
			int q = wc.qp_num == qp[1]->qp_num;

			CHECK_EQ(wc.qp_num, qp[q]->qp_num);
			CHECK_EQ(wc.wr_id, 100u * (uint32_t)(q + 1) + recvs[q]++);
		}
		if (i == 8)
			CHECK(sends >= 2 && recvs[0] >= 2 && recvs[1] >= 2);
	}
	poll_none(b.rcq);
	for (int q = 0; q < 2; q++) {
		CHECK_EQ(ibv_destroy_flow(flow[q]), 0);
		CHECK_EQ(ibv_destroy_qp(qp[q]), 0);
	}
	flow_b = flow_mac(b.qp, b.mac);
	pair_close();
}

/* ---- checksums ------------------------------------------------------------------------------------------------------------------------ */

static unsigned int recv_flags(uint32_t len, unsigned int send_flags)
{
	struct ibv_wc wc;

	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(side_send(&a, 1, frame, len, send_flags | IBV_SEND_SIGNALED), 0);
	poll_one(a.scq);
	wc = poll_one(b.rcq);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, len);
	return wc.wc_flags;
}

TEST(receive_checksum_verdict)
{
	uint32_t len;

	pair_open();
	len = build(33);
	CHECK_EQ(recv_flags(len, 0), IBV_WC_IP_CSUM_OK);
	frame[60] ^= 1; /* payload */
	CHECK_EQ(recv_flags(len, 0), 0);
	len = build(33);
	frame[22]++; /* TTL: the IPv4 checksum */
	CHECK_EQ(recv_flags(len, 0), 0);
	len = build(33);
	frame[12] = 0x12; /* not IP at all */
	CHECK_EQ(recv_flags(len, 0), 0);
	/* No verdict on the ports' checksum of a first fragment. */
	len = build(32);
	frame[20] |= 0x20;
	put16(frame + 24, 0);
	put16(frame + 24, 0xffffu - sum16(frame + 14, 20, 0));
	CHECK_EQ(recv_flags(len, 0), 0);
	pair_close();
}

TEST(transmit_checksum_offload)
{
	uint8_t right[256];
	uint32_t len;

	pair_open();
	len = build(77);
	memcpy(right, frame, len);
	/* What the sender leaves open (the fields zero) the device fills in. */
	put16(frame + 24, 0);
	put16(frame + 40, 0);
	CHECK_EQ(recv_flags(len, IBV_SEND_IP_CSUM), IBV_WC_IP_CSUM_OK);
	CHECK(!memcmp(b.buf, right, len));
	/* Not asked for, not touched. */
	CHECK_EQ(recv_flags(len, 0) & IBV_WC_IP_CSUM_OK, 0);
	CHECK(!memcmp(b.buf, frame, len));
	/* IPv6 has a checksum in UDP only. */
	len = frame_udp6(frame, b.mac, a.mac, &(struct udp6){ 1, 2, 1000, 2000, 0 }, 50);
	memcpy(right, frame, len);
	put16(frame + 14 + 40 + 6, 0);
	CHECK_EQ(recv_flags(len, IBV_SEND_IP_CSUM | IBV_SEND_INLINE), 0);
	CHECK(!memcmp(b.buf, right, len));
	pair_close();
}

/* ---- jumbo frames, iova --------------------------------------------------------------------------------------------------------------- */

TEST(jumbo_frames)
{
	static const uint32_t lengths[] = { 1515, 2028, 2029, 4056, 5000, 9000, 9018 };
	static const char *const mtu = ",mtu=9000";
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 4, 4, 2, 3, 64 } };
	struct ibv_send_wr wr = { .wr_id = 1, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr rwr = { .wr_id = 2, .num_sge = 3 }, *rbad;
	uint8_t *buf = calloc(1, 40000);
	struct ibv_context *ctx[2];
	struct ibv_pd *pd[2];
	struct ibv_cq *cq[2];
	struct ibv_mr *mr[2];
	struct ibv_qp *qp[2];
	struct ibv_flow *flow;
	const uint8_t mac[6] = { 0x02, 0x53, 0x4e, 0, 0, 11 };
	char name[64];

	for (int i = 0; i < 2; i++) {
		ctx[i] = open_port(10 + (unsigned int)i, mtu, name);
		pd[i] = ibv_alloc_pd(ctx[i]);
		cq[i] = ibv_create_cq(ctx[i], 8, NULL, NULL, 0);
		mr[i] = ibv_reg_mr(pd[i], buf, 40000, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr[i]);
		init.send_cq = init.recv_cq = cq[i];
		qp[i] = ibv_create_qp(pd[i], &init);
		CHECK(qp[i]);
		qp_rts(qp[i]);
	}
	flow = flow_mac(qp[1], mac);
	CHECK(flow);
	for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct ibv_sge sge = { (uintptr_t)buf, lengths[i], mr[0]->lkey };
		/* Cuts that are not those of the device's slots. */
		struct ibv_sge to[3] = { { (uintptr_t)buf + 20000, 1000, mr[1]->lkey },
					 { (uintptr_t)buf + 21000, 3001, mr[1]->lkey },
					 { (uintptr_t)buf + 24001, 6000, mr[1]->lkey } };
		struct ibv_wc wc;

		for (uint32_t j = 14; j < lengths[i]; j++)
			buf[j] = (uint8_t)(j * 31 + i);
		memcpy(buf, mac, 6);
		memcpy(buf + 6, (uint8_t[8]){ 0x02, 0x53, 0x4e, 0, 0, 10, 0x88, 0xb5 }, 8);
		wr.sg_list = &sge;
		rwr.sg_list = to;
		CHECK_EQ(ibv_post_recv(qp[1], &rwr, &rbad), 0);
		CHECK_EQ(ibv_post_send(qp[0], &wr, &bad), 0);
		wc = poll_one(cq[1]);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, lengths[i]);
		CHECK(!memcmp(buf, buf + 20000, lengths[i]));
		wr.send_flags = IBV_SEND_SIGNALED;
		poll_none(cq[1]);
		while (ibv_poll_cq(cq[0], 1, &wc))
			;
	}
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
		CHECK_EQ(ibv_close_device(ctx[i]), 0);
	}
	free(buf);
}

TEST(addresses_of_a_region_with_its_own_base)
{
	struct ibv_send_wr wr = { .wr_id = 1, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	uint32_t len;

	pair_open();
	len = build(64);
	memcpy(a.buf + 100, frame, len);
	mr = ibv_reg_mr_iova(a.pd, a.buf + 100, len, 0x1000, 0);
	CHECK(mr);
	sge = (struct ibv_sge){ 0x1000, len, mr->lkey };
	wr.sg_list = &sge;
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
	expect_recv(1, len, 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_SUCCESS);
	/* The real address is none of this region's. */
	sge.addr = (uintptr_t)a.buf + 100;
	CHECK_EQ(ibv_post_send(a.qp, &wr, &bad), 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
