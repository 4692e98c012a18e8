/* SPDX-License-Identifier: BSD-3-Clause */
/* The extended interfaces: polling member by member with timestamps, sending by ibv_wr_*; objects that promise one thread. */
#include "softnic_verbs.h"

static struct side a, b; /* their contexts, domains and buffers; queues of the tests' own */
static struct ibv_cq_ex *scq, *rcq;
static struct ibv_qp *sqp, *rqp;
static struct ibv_qp_ex *ex;
static struct ibv_flow *flow;
static uint8_t frame[2048];
static const struct udp4 udp = { .src = 0x0a000001, .dst = 0x0a000002, .sport = 3, .dport = 4 };

static struct ibv_cq_ex *cq_ex(struct ibv_context *ctx, uint64_t wc_flags, uint32_t flags, struct ibv_pd *parent)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = wc_flags,
		.comp_mask =
		    (flags ? (uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS : 0) | (parent ? (uint32_t)IBV_CQ_INIT_ATTR_MASK_PD : 0),
		.flags = flags,
		.parent_domain = parent,
	};

	errno = 0;
	return ibv_create_cq_ex(ctx, &attr);
}

static struct ibv_qp *qp_ex(struct side *s, struct ibv_pd *pd, struct ibv_cq_ex *cq, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.send_ops_flags = ops,
		.cap = { 8, 8, 3, 2, 200 },
	};

	errno = 0;
	return ibv_create_qp_ex(s->ctx, &attr);
}

static void ex_open(uint64_t wc_flags, uint32_t flags)
{
	side_open(&a, 0);
	side_open(&b, 1);
	scq = cq_ex(a.ctx, wc_flags, flags, NULL);
	rcq = cq_ex(b.ctx, wc_flags, flags, NULL);
	CHECK(scq && rcq);
	sqp = qp_ex(&a, a.pd, scq, IBV_QP_EX_WITH_SEND);
	rqp = qp_ex(&b, b.pd, rcq, IBV_QP_EX_WITH_SEND);
	CHECK(sqp && rqp);
	ex = ibv_qp_to_qp_ex(sqp);
	CHECK(ex);
	qp_rts(sqp);
	qp_rts(rqp);
	flow = flow_mac(rqp, b.mac);
	CHECK(flow);
}

static void ex_close(void)
{
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	CHECK_EQ(ibv_destroy_qp(sqp), 0);
	CHECK_EQ(ibv_destroy_qp(rqp), 0);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(scq)), 0);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(rcq)), 0);
	side_close(&a);
	side_close(&b);
}

static void post_recv(uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)b.buf + wr_id % SIDE_WR * SIDE_BUF, SIDE_BUF, b.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQ(ibv_post_recv(rqp, &wr, &bad), 0);
}

static void begin(uint64_t wr_id, unsigned int flags)
{
	ex->wr_id = wr_id;
	ex->wr_flags = flags;
	ibv_wr_send(ex);
}

static void expect_frame(uint64_t wr_id, uint32_t len)
{
	struct ibv_poll_cq_attr attr = { 0 };

	CHECK_EQ(ibv_start_poll(rcq, &attr), 0);
	CHECK_EQ(rcq->status, IBV_WC_SUCCESS);
	CHECK_EQ(rcq->wr_id, wr_id);
	CHECK_EQ(ibv_wc_read_opcode(rcq), IBV_WC_RECV);
	CHECK_EQ(ibv_wc_read_byte_len(rcq), len);
	CHECK_EQ(ibv_wc_read_qp_num(rcq), rqp->qp_num);
	CHECK_EQ(ibv_wc_read_wc_flags(rcq), IBV_WC_IP_CSUM_OK);
	CHECK_EQ(ibv_wc_read_vendor_err(rcq), 0);
	ibv_end_poll(rcq);
	CHECK(!memcmp(b.buf + wr_id % SIDE_WR * SIDE_BUF, frame, len));
}

static void expect_nothing(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };

	CHECK_EQ(ibv_start_poll(cq, &attr), ENOENT);
}

TEST(every_way_to_give_data)
{
	struct ibv_data_buf bufs[3];
	struct ibv_sge sge[3];
	uint8_t copy[512];
	uint32_t len;

	ex_open(IBV_WC_STANDARD_FLAGS, 0);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 100);
	memcpy(a.buf, frame, len);
	for (uint64_t i = 0; i < 5; i++)
		post_recv(i);

	ibv_wr_start(ex);
	begin(1, 0);
	ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.buf, len);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	expect_frame(0, len);

	for (int i = 0; i < 3; i++) {
		static const uint32_t cut[4] = { 0, 14, 42, 142 };

		sge[i] = (struct ibv_sge){ (uintptr_t)a.buf + cut[i], cut[i + 1] - cut[i], a.mr->lkey };
		bufs[i] = (struct ibv_data_buf){ copy + cut[i], cut[i + 1] - cut[i] };
	}
	ibv_wr_start(ex);
	begin(2, IBV_SEND_SIGNALED);
	ibv_wr_set_sge_list(ex, 3, sge);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	expect_frame(1, len);

	/* Inline data is taken at once: its buffer may change before the end. */
	memcpy(copy, frame, len);
	ibv_wr_start(ex);
	begin(3, 0);
	ibv_wr_set_inline_data(ex, copy, len);
	memset(copy, 0xff, len);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	expect_frame(2, len);

	memcpy(copy, frame, len);
	ibv_wr_start(ex);
	begin(4, IBV_SEND_INLINE);
	ibv_wr_set_inline_data_list(ex, 3, bufs);
	memset(copy, 0xff, len);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	expect_frame(3, len);
	expect_nothing(rcq);

	/* The legacy call works on the same QP. */
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND }, *bad;

	CHECK_EQ(ibv_post_send(sqp, &wr, &bad), 0);
	expect_frame(4, len);
	ex_close();
}

TEST(a_batch_leaves_together_or_not_at_all)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint32_t len;

	ex_open(IBV_WC_STANDARD_FLAGS, 0);
	for (uint64_t i = 0; i < 8; i++)
		post_recv(i);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 50);
	ibv_wr_start(ex);
	for (uint64_t i = 0; i < 3; i++) {
		begin(10 + i, IBV_SEND_SIGNALED);
		ibv_wr_set_inline_data(ex, frame, len);
		expect_nothing(rcq);
	}
	CHECK_EQ(ibv_wr_complete(ex), 0);
	for (uint64_t i = 0; i < 3; i++)
		expect_frame(i, len);
	CHECK_EQ(ibv_start_poll(scq, &attr), 0);
	for (uint64_t i = 0;; i++) {
		CHECK_EQ(scq->wr_id, 10 + i);
		CHECK_EQ(scq->status, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_wc_read_opcode(scq), IBV_WC_SEND);
		CHECK_EQ(ibv_wc_read_qp_num(scq), sqp->qp_num);
		if (i == 2)
			break;
		CHECK_EQ(ibv_next_poll(scq), 0);
	}
	CHECK_EQ(ibv_next_poll(scq), ENOENT);
	ibv_end_poll(scq);

	ibv_wr_start(ex);
	begin(20, IBV_SEND_SIGNALED);
	ibv_wr_set_inline_data(ex, frame, len);
	ibv_wr_abort(ex);
	expect_nothing(rcq);
	expect_nothing(scq);
	/* An aborted batch is forgotten. */
	ibv_wr_start(ex);
	begin(21, 0);
	ibv_wr_set_inline_data(ex, frame, len);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	expect_frame(3, len);
	expect_nothing(rcq);
	ex_close();
}

static int one_bad(uint32_t kind)
{
	struct ibv_sge sge[4] = { 0 };
	static uint8_t data[201];
	struct ibv_data_buf bufs[2] = { { data, 150 }, { data, 51 } };

	ibv_wr_start(ex);
	begin(1, 0);
	ibv_wr_set_inline_data(ex, frame, 100);
	switch (kind) {
	case 0: /* too long to be inline */
		begin(2, 0);
		ibv_wr_set_inline_data(ex, data, 100000);
		break;
	case 1:
		begin(2, 0);
		bufs[0].length = SIZE_MAX;
		ibv_wr_set_inline_data_list(ex, 2, bufs);
		break;
	case 2:
		begin(2, 0);
		ibv_wr_set_sge_list(ex, 4, sge);
		break;
	case 3: /* data for no request */
		ibv_wr_set_inline_data(ex, data, 20);
		break;
	case 4: /* a request without data, then another */
		begin(2, 0);
		begin(3, 0);
		ibv_wr_set_inline_data(ex, data, 20);
		break;
	case 5: /* a request without data at the end */
		begin(2, 0);
		break;
	case 6:
		begin(2, 1u << 15);
		ibv_wr_set_inline_data(ex, data, 20);
		break;
	default: /* more than the queue holds */
		for (uint64_t i = 0; i < 8; i++) {
			begin(2 + i, 0);
			ibv_wr_set_inline_data(ex, frame, 100);
		}
	}
	return ibv_wr_complete(ex);
}

TEST(bad_batches)
{
	struct ibv_wc wc;

	ex_open(IBV_WC_STANDARD_FLAGS, 0);
	post_recv(0);
	frame_udp4(frame, b.mac, a.mac, &udp, 100);
	for (uint32_t kind = 0; kind < 8; kind++) {
		CHECK_EQ(one_bad(kind), kind == 7 ? ENOMEM : EINVAL);
		expect_nothing(rcq);
		CHECK_EQ(qp_state(sqp), IBV_QPS_RTS);
	}
	CHECK_EQ(qp_to(sqp, IBV_QPS_RESET), 0);
	ibv_wr_start(ex);
	begin(1, 0);
	ibv_wr_set_inline_data(ex, frame, 100);
	CHECK_EQ(ibv_wr_complete(ex), EINVAL);
	/* A wrong key completes with an error, as by post_send. */
	qp_rts(sqp);
	ibv_wr_start(ex);
	begin(5, 0);
	ibv_wr_set_sge(ex, 1, (uintptr_t)a.buf, 64);
	begin(6, 0);
	ibv_wr_set_inline_data(ex, frame, 100);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(scq), 1, &wc), 1);
	CHECK_EQ(wc.wr_id, 5);
	CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(scq), 1, &wc), 1);
	CHECK_EQ(wc.wr_id, 6);
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(rcq);
	ex_close();
}

TEST(only_what_is_supported)
{
	struct ibv_qp *qp;

	side_open(&a, 0);
	CHECK(!cq_ex(a.ctx, IBV_WC_EX_WITH_TM_INFO, 0, NULL) && errno == EOPNOTSUPP);
	CHECK(!cq_ex(a.ctx, IBV_WC_EX_WITH_TM_INFO, 0, NULL) && errno == EOPNOTSUPP);
	CHECK(!cq_ex(a.ctx, 0, 1u << 10, NULL) && errno == EOPNOTSUPP);
	CHECK(!cq_ex(a.ctx, 0, 0, a.pd) && errno == EINVAL);
	scq = cq_ex(a.ctx, 0, 0, NULL);
	CHECK(scq && !scq->read_byte_len && !scq->read_completion_ts);
	CHECK(!qp_ex(&a, a.pd, scq, IBV_QP_EX_WITH_RDMA_WRITE) && errno == EOPNOTSUPP);
	CHECK(!qp_ex(&a, a.pd, scq, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ) && errno == EOPNOTSUPP);
	qp = qp_ex(&a, a.pd, scq, IBV_QP_EX_WITH_SEND);
	CHECK(qp);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(scq)), 0);
	side_close(&a);
}

static int64_t clock_of(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

TEST(timestamps)
{
	const uint64_t flags =
	    IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct ibv_values_ex before = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, after = before;
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t last = 0;
	uint32_t len;

	ex_open(flags, 0);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 50);
	for (uint64_t i = 0; i < 4; i++) {
		int64_t wall = clock_of(CLOCK_REALTIME);

		CHECK_EQ(ibv_query_rt_values_ex(a.ctx, &before), 0);
		post_recv(i);
		ibv_wr_start(ex);
		begin(i, IBV_SEND_SIGNALED);
		ibv_wr_set_inline_data(ex, frame, len);
		CHECK_EQ(ibv_wr_complete(ex), 0);
		CHECK_EQ(ibv_query_rt_values_ex(a.ctx, &after), 0);
		for (int side = 0; side < 2; side++) {
			struct ibv_cq_ex *cq = side ? rcq : scq;
			uint64_t ts;

			CHECK_EQ(ibv_start_poll(cq, &attr), 0);
			ts = ibv_wc_read_completion_ts(cq);
			CHECK(ts >= (uint64_t)before.raw_clock.tv_nsec && ts <= (uint64_t)after.raw_clock.tv_nsec);
			/* The wall clock may be stepped meanwhile; a minute is no step. */
			CHECK(llabs((int64_t)ibv_wc_read_completion_wallclock_ns(cq) - wall) < INT64_C(60000000000));
			ibv_end_poll(cq);
			if (side)
				CHECK(ts > last);
			last = side ? ts : last;
		}
	}
	ex_close();
}

TEST(one_thread_promised)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr pa = { 0 };
	struct ibv_pd *parent;
	struct ibv_td *td;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	uint32_t len;

	ex_open(IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	td = ibv_alloc_td(a.ctx, &td_attr);
	pa.td = td;
	pa.pd = a.pd;
	parent = ibv_alloc_parent_domain(a.ctx, &pa);
	CHECK(parent);
	cq = cq_ex(a.ctx, IBV_WC_STANDARD_FLAGS, 0, parent);
	CHECK(cq);
	qp = qp_ex(&a, parent, cq, IBV_QP_EX_WITH_SEND);
	CHECK(qp && qp->pd == parent);
	qp_rts(qp);
	ex = ibv_qp_to_qp_ex(qp);
	post_recv(3);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 50);
	memcpy(a.buf, frame, len);
	ibv_wr_start(ex);
	begin(1, 0);
	/* A region of the plain domain is one of its parent domain's. */
	ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.buf, len);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	expect_frame(3, len);
	CHECK_EQ(ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	CHECK_EQ(ibv_dealloc_pd(parent), 0);
	CHECK_EQ(ibv_dealloc_td(td), 0);
	ex_close();
}

/* Without an event for it a lost completion is what the application asked for. */
TEST(ignored_overrun)
{
	struct pollfd p = { .events = POLLIN };
	struct ibv_qp *qp[3];
	struct ibv_wc wc;
	uint32_t len, n = 0;

	ex_open(IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 50);
	for (int i = 0; i < 3; i++) {
		qp[i] = qp_ex(&a, a.pd, scq, IBV_QP_EX_WITH_SEND);
		CHECK(qp[i]);
		qp_rts(qp[i]);
		ex = ibv_qp_to_qp_ex(qp[i]);
		ibv_wr_start(ex);
		for (uint64_t j = 0; j < 8; j++) {
			begin(j, IBV_SEND_SIGNALED);
			ibv_wr_set_inline_data(ex, frame, len);
		}
		CHECK_EQ(ibv_wr_complete(ex), 0);
	}
	while (ibv_poll_cq(ibv_cq_ex_to_cq(scq), 1, &wc))
		n++;
	CHECK_EQ(n, 16);
	p.fd = a.ctx->async_fd;
	CHECK_EQ(poll(&p, 1, 0), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
	ex_close();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
