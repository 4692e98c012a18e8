/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices that lack a capability look as hardware without it; and the capability that no other test is about: stripping of VLAN tags. */
#include "softnic_verbs.h"

#define CVLAN_FIELDS (IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_CVLAN)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_device_attr_ex attr;

static void lacking(const char *off)
{
	static unsigned int port = 20;
	char name[64], options[128];

	snprintf(options, sizeof(options), ",off=%s", off);
	ctx = open_port(port++, options, name);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	CHECK_EQ(ibv_query_device_ex(ctx, NULL, &attr), 0);
	errno = 0;
}

static void closes(void)
{
	CHECK_EQ(ibv_close_device(ctx), 0);
}

static struct ibv_qp *make(uint32_t mask, uint64_t ops, uint32_t flags, uint32_t inline_data)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 4, 4, 1, 2, inline_data },
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | mask,
		.max_tso_header = 64,
		.send_ops_flags = ops,
		.create_flags = flags,
	};

	errno = 0;
	return ibv_create_qp_ex(ctx, &init);
}

static struct ibv_qp *rts(uint32_t mask, uint64_t ops)
{
	struct ibv_qp *qp = make(mask, ops, 0, 0);

	CHECK(qp);
	qp_rts(qp);
	return qp;
}

static struct ibv_cq_ex *cq_ex(uint64_t fields)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 4, .wc_flags = fields };

	errno = 0;
	return ibv_create_cq_ex(ctx, &init);
}

#define UNSUPPORTED(call)                                                                                                          \
	do {                                                                                                                       \
		CHECK(!(call));                                                                                                    \
		CHECK_EQ(errno, EOPNOTSUPP);                                                                                       \
	} while (0)

static int post(struct ibv_qp *qp, enum ibv_wr_opcode op, unsigned int flags)
{
	static uint8_t frame[64];
	struct ibv_sge sge = { (uintptr_t)frame, sizeof(frame), 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = flags }, *bad;

	wr.tso.hdr = frame;
	wr.tso.hdr_sz = 54;
	wr.tso.mss = 10;
	return ibv_post_send(qp, &wr, &bad);
}

TEST(tso)
{
	lacking("tso");
	CHECK_EQ(attr.tso_caps.max_tso, 0);
	CHECK_EQ(attr.tso_caps.supported_qpts, 0);
	UNSUPPORTED(make(IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0, 0, 0));
	UNSUPPORTED(make(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO, 0, 0));
	CHECK_EQ(post(rts(0, 0), IBV_WR_TSO, 0), EINVAL);
	closes();
}

TEST(dm)
{
	struct ibv_alloc_dm_attr da = { .length = 64 };

	lacking("dm");
	CHECK_EQ(attr.max_dm_size, 0);
	UNSUPPORTED(ibv_alloc_dm(ctx, &da));
	closes();
}

TEST(pacing)
{
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_qp_attr qa = { .qp_state = IBV_QPS_RTS, .rate_limit = 1000 };
	struct ibv_qp *qp;

	lacking("pacing");
	CHECK_EQ(attr.packet_pacing_caps.qp_rate_limit_min, 0);
	CHECK_EQ(attr.packet_pacing_caps.qp_rate_limit_max, 0);
	CHECK_EQ(attr.packet_pacing_caps.supported_qpts, 0);
	qp = rts(0, 0);
	CHECK_EQ(ibv_modify_qp_rate_limit(qp, &rate), EOPNOTSUPP);
	CHECK_EQ(ibv_modify_qp(qp, &qa, IBV_QP_STATE | IBV_QP_RATE_LIMIT), EOPNOTSUPP);
	closes();
	/* Bursts are no capability that verbs tell of: who wants to know tries. */
	lacking("pacing-burst");
	CHECK_EQ(attr.packet_pacing_caps.qp_rate_limit_max, 100000000);
	qp = rts(0, 0);
	CHECK_EQ(ibv_modify_qp_rate_limit(qp, &rate), 0);
	rate.max_burst_sz = 3000;
	CHECK_EQ(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	rate.max_burst_sz = 0;
	rate.typical_pkt_sz = 100;
	CHECK_EQ(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	closes();
}

TEST(csum)
{
	struct udp4 udp = { .src = 1, .dst = 2, .sport = 3, .dport = 4 };
	uint8_t frame[256], mac[6] = { 2, 0x53, 0x4e, 0, 0, 0 };
	struct ibv_recv_wr wr = { .num_sge = 1 }, *bad;
	struct ibv_sge sge = { 0, 2048, 0 };
	struct ibv_qp_ex *ex;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	struct ibv_mr *mr;
	union ibv_gid gid;
	void *page;

	lacking("csum");
	CHECK_EQ(attr.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM, 0);
	CHECK_EQ(attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM, 0);
	CHECK_EQ(attr.device_cap_flags_ex & IBV_DEVICE_RAW_IP_CSUM, 0);
	qp = rts(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND);
	CHECK_EQ(post(qp, IBV_WR_SEND, IBV_SEND_IP_CSUM | IBV_SEND_INLINE), EINVAL);
	ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_IP_CSUM;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, frame, 64);
	CHECK_EQ(ibv_wr_complete(ex), EINVAL);
	/* Nothing is said of what comes in. */
	CHECK_EQ(ibv_query_gid(ctx, 1, 0, &gid), 0);
	mac[5] = gid.raw[15];
	CHECK(flow_mac(qp, mac));
	page = calloc(1, 2048);
	mr = ibv_reg_mr(pd, page, 2048, IBV_ACCESS_LOCAL_WRITE);
	sge.addr = (uintptr_t)page;
	sge.lkey = mr->lkey;
	wr.sg_list = &sge;
	CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, frame, frame_udp4(frame, mac, mac, &udp, 100));
	CHECK_EQ(ibv_wr_complete(ex), 0);
	wc = poll_one(cq);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wc_flags, 0);
	closes();
	free(page);
}

TEST(timestamps)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	lacking("timestamps");
	CHECK_EQ(attr.completion_timestamp_mask, 0);
	CHECK_EQ(attr.hca_core_clock, 0);
	UNSUPPORTED(cq_ex(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
	UNSUPPORTED(cq_ex(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK));
	CHECK(cq_ex(IBV_WC_STANDARD_FLAGS));
	CHECK_EQ(ibv_query_rt_values_ex(ctx, &values), EOPNOTSUPP);
	closes();
	lacking("wallclock");
	UNSUPPORTED(cq_ex(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK));
	CHECK(cq_ex(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
	closes();
}

TEST(interfaces)
{
	struct ibv_qp *qp;

	lacking("extended");
	UNSUPPORTED(make(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND, 0, 0));
	qp = rts(IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0);
	CHECK(!ibv_qp_to_qp_ex(qp));
	CHECK_EQ(post(qp, IBV_WR_SEND, IBV_SEND_INLINE), 0);
	closes();
	lacking("cq-ex");
	UNSUPPORTED(cq_ex(IBV_WC_STANDARD_FLAGS));
	closes();
	lacking("inline");
	CHECK(!make(0, 0, 0, 1) && errno == EINVAL);
	qp = rts(0, 0);
	CHECK_EQ(post(qp, IBV_WR_SEND, IBV_SEND_INLINE), EINVAL);
	closes();
}

TEST(receiving)
{
	struct ibv_wq_init_attr wa = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr ta = { 0 };

	lacking("rss");
	CHECK_EQ(attr.rss_caps.supported_qpts, 0);
	CHECK_EQ(attr.rss_caps.rx_hash_function, 0);
	CHECK_EQ(attr.max_wq_type_rq, 0);
	wa.pd = pd;
	wa.cq = cq;
	UNSUPPORTED(ibv_create_wq(ctx, &wa));
	UNSUPPORTED(ibv_create_rwq_ind_table(ctx, &ta));
	closes();
	lacking("flow");
	CHECK_EQ(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, 0);
	UNSUPPORTED(flow_mac(rts(0, 0), (const uint8_t *)"\2\0\0\0\0\1"));
	closes();
	lacking("vlan-strip");
	CHECK_EQ(attr.raw_packet_caps & IBV_RAW_PACKET_CAP_CVLAN_STRIPPING, 0);
	UNSUPPORTED(make(IBV_QP_INIT_ATTR_CREATE_FLAGS, 0, IBV_QP_CREATE_CVLAN_STRIPPING, 0));
	UNSUPPORTED(cq_ex(IBV_WC_EX_WITH_CVLAN));
	wa.pd = pd;
	wa.cq = cq;
	wa.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	wa.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	UNSUPPORTED(ibv_create_wq(ctx, &wa));
	closes();
}

/* Everything at once; and the variable, which takes from devices that do not say so themselves. */
TEST(by_the_environment)
{
	static const char all[] = "tso,dm,pacing,pacing-burst,csum,timestamps,wallclock,clock,clock-info,extended,cq-ex,"
				  "inline,vlan-strip,rss,flow";
	static const char *const bad[] = { "tso,", ",tso", "tso dm", "tso+dm", "TSO", "pacing-", "pac", "tso,,dm", " tso" };
	struct ibv_device **list = NULL;
	char name[64], spec[128];

	setenv("PYVMA_SOFTNIC_OFF", all, 1);
	lacking("tso+dm");
	CHECK_EQ(attr.max_dm_size, 0);
	CHECK_EQ(attr.raw_packet_caps, 0);
	CHECK_EQ(attr.packet_pacing_caps.qp_rate_limit_max, 0);
	CHECK_EQ(attr.orig_attr.max_qp, 480);
	CHECK_EQ(post(rts(0, 0), IBV_WR_SEND, 0), 0);
	closes();
	snprintf(spec, sizeof(spec), "%s/19", fabric_name());
	CHECK_EQ(softnic_device_add(spec, name, sizeof(name)), 0);
	list = ibv_get_device_list(NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ibv_context *none = NULL;

		setenv("PYVMA_SOFTNIC_OFF", bad[i], 1);
		for (int d = 0; list[d]; d++) {
			if (strcmp(ibv_get_device_name(list[d]), name))
				continue;
			errno = 0;
			none = ibv_open_device(list[d]);
			CHECK(!none && errno == EINVAL);
		}
		CHECK(strstr(softnic_open_error(), "PYVMA_SOFTNIC_OFF"));
		CHECK(strstr(softnic_open_error(), "pacing-burst, csum"));
	}
	ibv_free_device_list(list);
	setenv("PYVMA_SOFTNIC_OFF", "", 1);
	lacking("tso");
	CHECK_EQ(attr.max_dm_size, 256 << 10);
	closes();
	unsetenv("PYVMA_SOFTNIC_OFF");
	CHECK_EQ(softnic_device_add("x/0,off=", name, sizeof(name)), -EINVAL);
	CHECK_EQ(softnic_device_add("x/0,off=tso+", name, sizeof(name)), -EINVAL);
	CHECK_EQ(softnic_device_add("x/0,off=+tso", name, sizeof(name)), -EINVAL);
	CHECK_EQ(softnic_device_add("x/0,off=tso,dm", name, sizeof(name)), -EINVAL);
	/* One device, one specification. */
	CHECK_EQ(softnic_device_add("x/0,off=tso+dm", name, sizeof(name)), 0);
	CHECK_EQ(softnic_device_add("x/0,off=dm+tso", name, sizeof(name)), 0);
	CHECK_EQ(softnic_device_add("x/0,off=dm", name, sizeof(name)), -EINVAL);
}

/* ---- VLAN tags ------------------------------------------------------------------------------------------------------------------- */

struct tagged {
	uint8_t *buf;
	struct ibv_mr *mr;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp, *plain;
	struct ibv_wq *wq;
};

static struct side s;
static struct tagged t;
static const uint8_t group[6] = { 1, 0, 0x5e, 1, 2, 3 };

static void tagged_open(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = CVLAN_FIELDS };
	char name[64];

	side_open(&s, 0);
	ctx = open_port(1, ",mtu=4000", name);
	pd = ibv_alloc_pd(ctx);
	t.cq = ibv_create_cq_ex(ctx, &init);
	cq = ibv_cq_ex_to_cq(t.cq);
	t.buf = calloc(1, 65536);
	t.mr = ibv_reg_mr(pd, t.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && t.cq && t.mr);
	t.qp = make(IBV_QP_INIT_ATTR_CREATE_FLAGS, 0, IBV_QP_CREATE_CVLAN_STRIPPING, 0);
	CHECK(t.qp);
	qp_rts(t.qp);
	CHECK(flow_mac(t.qp, group));
}

static void tagged_close(void)
{
	closes();
	side_close(&s);
	free(t.buf);
}

static struct ibv_recv_wr *buffers(uint32_t pieces)
{
	static struct ibv_recv_wr wr;
	static struct ibv_sge sge[2];

	memset(t.buf, 0xee, 8192);
	sge[0] = (struct ibv_sge){ (uintptr_t)t.buf, pieces == 2 ? 13 : 8192, t.mr->lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)t.buf + 13, 8192 - 13, t.mr->lkey };
	wr = (struct ibv_recv_wr){ .sg_list = sge, .num_sge = (int)pieces };
	return &wr;
}

/* What arrives of a frame: its length, its tag, and whether it is `want`. */
static void expect(uint32_t len, uint16_t tci, const uint8_t *want)
{
	struct ibv_poll_cq_attr pa = { 0 };

	CHECK_EQ(ibv_start_poll(t.cq, &pa), 0);
	CHECK_EQ(t.cq->status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_wc_read_byte_len(t.cq), len);
	CHECK_EQ(ibv_wc_read_cvlan(t.cq), tci);
	CHECK_EQ(ibv_next_poll(t.cq), ENOENT);
	ibv_end_poll(t.cq);
	CHECK_EQ(memcmp(t.buf, want, len), 0);
	CHECK_EQ(t.buf[len], 0xee);
}

TEST(tags_are_stripped)
{
	struct udp4 udp = { .src = 1, .dst = 2, .sport = 3, .dport = 4, .vlan = 0xb123 };
	uint8_t frame[2048], want[2048];
	struct ibv_recv_wr *bad;
	uint32_t len;

	tagged_open();
	for (uint32_t pieces = 1; pieces < 3; pieces++) {
		CHECK_EQ(ibv_post_recv(t.qp, buffers(pieces), &bad), 0);
		len = frame_udp4(frame, group, s.mac, &udp, 200);
		CHECK_EQ(side_send(&s, 1, frame, len, 0), 0);
		udp.vlan = 0;
		CHECK_EQ(frame_udp4(want, group, s.mac, &udp, 200), len - 4);
		expect(len - 4, 0xb123, want);
		/* Without a tag the frame is what it is. */
		CHECK_EQ(ibv_post_recv(t.qp, buffers(pieces), &bad), 0);
		CHECK_EQ(side_send(&s, 2, want, len - 4, 0), 0);
		expect(len - 4, 0, want);
		udp.vlan = 0xb123;
	}
	/* Of two tags the outer one, if it is a customer's. */
	memcpy(want, frame, 14);
	put16(want + 12, 0x8100);
	memcpy(want + 14, frame + 14, len - 14);
	memmove(frame + 16, frame + 12, len - 12);
	put16(frame + 12, 0x8100);
	put16(frame + 14, 7);
	CHECK_EQ(ibv_post_recv(t.qp, buffers(1), &bad), 0);
	CHECK_EQ(side_send(&s, 3, frame, len + 4, 0), 0);
	expect(len, 7, want);
	put16(frame + 12, 0x88a8);
	CHECK_EQ(ibv_post_recv(t.qp, buffers(1), &bad), 0);
	CHECK_EQ(side_send(&s, 4, frame, len + 4, 0), 0);
	expect(len + 4, 0, frame);
	/* A frame that ends within its tag. */
	CHECK_EQ(ibv_post_recv(t.qp, buffers(1), &bad), 0);
	put16(frame + 12, 0x8100);
	CHECK_EQ(side_send(&s, 5, frame, 17, 0), 0);
	expect(17, 0, frame);
	tagged_close();
}

TEST(stripping_by_a_work_queue)
{
	struct udp4 udp = { .src = 1, .dst = 2, .sport = 3, .dport = 4, .vlan = 0x0005 };
	struct ibv_wq_init_attr wa = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 2, .comp_mask = IBV_WQ_INIT_ATTR_FLAGS };
	struct ibv_rwq_ind_table_init_attr ta = { 0 };
	struct ibv_wq_attr change = { .attr_mask = IBV_WQ_ATTR_FLAGS, .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RAW_PACKET };
	const uint8_t other[6] = { 1, 0, 0x5e, 9, 9, 9 };
	uint8_t frame[2048], want[2048], key[40] = { 1 };
	struct ibv_recv_wr *bad;
	struct ibv_qp *spread;
	uint32_t len;

	tagged_open();
	wa.pd = pd;
	wa.cq = cq;
	wa.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	t.wq = ibv_create_wq(ctx, &wa);
	CHECK(t.wq);
	ta.ind_tbl = &t.wq;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
	init.pd = pd;
	init.rwq_ind_tbl = ibv_create_rwq_ind_table(ctx, &ta);
	init.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
	init.rx_hash_conf.rx_hash_key_len = 40;
	init.rx_hash_conf.rx_hash_key = key;
	spread = ibv_create_qp_ex(ctx, &init);
	CHECK(spread && flow_mac(spread, other));
	CHECK_EQ(ibv_modify_wq(t.wq, &ready), 0);
	len = frame_udp4(frame, other, s.mac, &udp, 300);
	udp.vlan = 0;
	frame_udp4(want, other, s.mac, &udp, 300);
	CHECK_EQ(ibv_post_wq_recv(t.wq, buffers(1), &bad), 0);
	CHECK_EQ(side_send(&s, 1, frame, len, 0), 0);
	expect(len - 4, 5, want);
	/* Off and on again while it receives. */
	CHECK_EQ(ibv_modify_wq(t.wq, &change), 0);
	CHECK_EQ(ibv_post_wq_recv(t.wq, buffers(1), &bad), 0);
	CHECK_EQ(side_send(&s, 2, frame, len, 0), 0);
	expect(len, 0, frame);
	change.flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	CHECK_EQ(ibv_modify_wq(t.wq, &change), 0);
	CHECK_EQ(ibv_post_wq_recv(t.wq, buffers(1), &bad), 0);
	CHECK_EQ(side_send(&s, 3, frame, len, 0), 0);
	expect(len - 4, 5, want);
	change.flags_mask = IBV_WQ_FLAGS_DELAY_DROP;
	CHECK_EQ(ibv_modify_wq(t.wq, &change), EOPNOTSUPP);
	tagged_close();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
