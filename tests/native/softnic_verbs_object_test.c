/* SPDX-License-Identifier: BSD-3-Clause */
/* The device's objects: what may be made, in which order it may go, and every illegal way of it. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "softnic_verbs.h"

TEST(bad_specifications)
{
	static const char *const bad[] = { "",
					   "x",
					   "x/",
					   "/0",
					   "x/64",
					   "x/a",
					   "x/-1",
					   "x/0,",
					   "x/0,mtu=",
					   "x/0,mtu=67",
					   "x/0,mtu=9217",
					   "x/0,mac=1",
					   "x/0,mac=01:00:00:00:00:01",
					   "a b/0",
					   "../0",
					   ".x/0",
					   "x/0,mac=00:00:00:00:00:00",
					   "x/0,what=1",
					   "0123456789012345678901234567890123/0" };
	char name[64];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(softnic_device_add(bad[i], name, sizeof(name)), -EINVAL);
}

TEST(one_device_a_specification)
{
	char spec[64], a[64], b[64], small[4];

	snprintf(spec, sizeof(spec), "%s/7", fabric_name());
	CHECK_EQ(softnic_device_add(spec, a, sizeof(a)), 0);
	CHECK_EQ(softnic_device_add(spec, b, sizeof(b)), 0);
	CHECK(!strcmp(a, b));
	CHECK_EQ(softnic_device_add(spec, small, sizeof(small)), -ENOSPC);
	/* The same port with another MTU is a contradiction. */
	strcat(spec, ",mtu=9000");
	CHECK_EQ(softnic_device_add(spec, b, sizeof(b)), -EINVAL);
	snprintf(b, sizeof(b), "softnic_%s_7", fabric_name());
	CHECK(!strcmp(a, b));
}

TEST(device_says_what_it_is)
{
	char name[64], json[1024];
	struct ibv_context *ctx = open_port(3, ",mac=02:11:22:33:44:55,mtu=3000", name);
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_values_ex rt = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct timespec now;
	union ibv_gid gid;
	__be16 pkey;
	long before;

	CHECK_EQ(ibv_query_device(ctx, &attr), 0);
	CHECK_EQ(attr.phys_port_cnt, 1);
	CHECK(attr.max_qp_wr >= 1024 && attr.max_sge >= 2 && attr.vendor_id);
	CHECK(attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM);
	CHECK_EQ(ibv_query_device_ex(ctx, NULL, &ex), 0);
	CHECK_EQ(ex.hca_core_clock, 1000000);
	CHECK_EQ(ex.completion_timestamp_mask, UINT64_MAX);
	CHECK_EQ(ex.max_dm_size, 256 << 10);
	CHECK_EQ(ex.tso_caps.max_tso, 256 << 10);
	CHECK_EQ(ex.tso_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	CHECK_EQ(ex.packet_pacing_caps.qp_rate_limit_min, 1);
	CHECK_EQ(ex.packet_pacing_caps.qp_rate_limit_max, 100000000);
	CHECK_EQ(ex.packet_pacing_caps.supported_qpts, 1 << IBV_QPT_RAW_PACKET);
	CHECK_EQ(ex.raw_packet_caps, IBV_RAW_PACKET_CAP_IP_CSUM | IBV_RAW_PACKET_CAP_CVLAN_STRIPPING);
	CHECK(ibv_is_qpt_supported(ex.rss_caps.supported_qpts, IBV_QPT_RAW_PACKET));
	CHECK_EQ(ibv_query_port(ctx, 1, &port), 0);
	CHECK_EQ(port.state, IBV_PORT_ACTIVE);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK_EQ(port.active_mtu, IBV_MTU_2048);
	CHECK_EQ(port.max_msg_sz, 3018);
	CHECK_EQ(ibv_query_port(ctx, 2, &port), EINVAL);
	CHECK_EQ(ibv_query_port(ctx, 0, &port), EINVAL);
	CHECK_EQ(ibv_query_gid(ctx, 1, 0, &gid), 0);
	CHECK(!memcmp(gid.raw, (uint8_t[]){ 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55 }, 16));
	CHECK(!memcmp(&gid.global.interface_id, &attr.node_guid, 8));
	CHECK_EQ(ibv_query_gid(ctx, 1, 2, &gid), -1);
	CHECK_EQ(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	CHECK_EQ(pkey, 0xffff);
	CHECK_EQ(ibv_query_pkey(ctx, 1, 1, &pkey), -1);
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	before = now.tv_sec * 1000000000L + now.tv_nsec;
	CHECK_EQ(ibv_query_rt_values_ex(ctx, &rt), 0);
	CHECK_EQ(rt.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	CHECK_EQ(rt.raw_clock.tv_sec, 0);
	CHECK(rt.raw_clock.tv_nsec >= before && rt.raw_clock.tv_nsec - before < 60000000000L);
	CHECK(softnic_counters(name, json, sizeof(json)) > 0);
	CHECK(strstr(json, "\"mac\": \"02:11:22:33:44:55\", \"mtu\": 3000, \"link_up\": true"));
	CHECK(softnic_counters(name, json, 10) > 10);
	CHECK_EQ(softnic_counters("softnic_none_0", json, sizeof(json)), -ENODEV);
	CHECK_EQ(ibv_close_device(ctx), 0);
}

TEST(unsupported_is_said)
{
	char name[64];
	struct ibv_context *ctx = open_port(0, "", name);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_UD };
	struct ibv_ah_attr ah = { .port_num = 1 };
	struct ibv_moderate_cq mod = { 1, 1 };
	struct ibv_modify_cq_attr mcq = { IBV_CQ_ATTR_MODERATE, mod };

#define UNSUPPORTED(call)                                                                                                          \
	do {                                                                                                                       \
		errno = 0;                                                                                                         \
		CHECK(!(call));                                                                                                    \
		CHECK_EQ(errno, EOPNOTSUPP);                                                                                       \
	} while (0)
	UNSUPPORTED(ibv_create_srq(pd, &srq));
	UNSUPPORTED(ibv_create_ah(pd, &ah));
	UNSUPPORTED(ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_RC;
	UNSUPPORTED(ibv_create_qp(pd, &init));
	UNSUPPORTED(ibv_import_pd(ctx, 1));
	UNSUPPORTED(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	UNSUPPORTED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0));
	CHECK_EQ(ibv_modify_cq(cq, &mcq), EOPNOTSUPP);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(ctx), 0);
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *p, size_t len, unsigned int access)
{
	errno = 0;
	return ibv_reg_mr_iova2(pd, p, len, (uintptr_t)p, access);
}

TEST(memory_regions)
{
	char name[64];
	struct ibv_context *ctx = open_port(0, "", name);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *pd2 = ibv_alloc_pd(ctx);
	uint8_t *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr, *mr2;
	uint32_t old;

	CHECK(!reg(pd, page, 0, 0) && errno == EINVAL);
	CHECK(!reg(pd, page, SIZE_MAX, 0) && errno == EINVAL);
	CHECK(!reg(pd, page, 64, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!reg(pd, page, 64, IBV_ACCESS_REMOTE_ATOMIC) && errno == EINVAL);
	CHECK(!reg(pd, page, 64, 1u << 19) && errno == EINVAL);
	CHECK(!reg(pd, page, 64, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
	munmap(page + 4096, 4096);
	CHECK(!reg(pd, page, 4097, 0) && errno == EFAULT);
	CHECK(!reg(pd, NULL, 64, 0) && errno == EFAULT);
	mr = reg(pd, page, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr && mr->lkey && mr->addr == page && mr->length == 4096 && mr->pd == pd);
	mr2 = reg(pd, page, 64, 0);
	CHECK(mr2 && mr2->lkey != mr->lkey);
	/* In use. */
	CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
	old = mr2->lkey;
	CHECK_EQ(ibv_dereg_mr(mr2), 0);
	mr2 = reg(pd, page, 64, 0);
	CHECK(mr2->lkey != old);
	CHECK_EQ(ibv_dereg_mr(mr2), 0);
	CHECK_EQ(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE), IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd2, NULL, 0, 0), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_dealloc_pd(pd2), EBUSY);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dealloc_pd(pd2), 0);
	CHECK_EQ(ibv_close_device(ctx), 0);
	munmap(page, 4096);
}

static struct ibv_qp *try_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = IBV_QPT_RAW_PACKET };

	errno = 0;
	return ibv_create_qp(pd, &init);
}

TEST(queue_pair_limits)
{
	char name[64];
	struct ibv_context *ctx = open_port(0, "", name), *other = open_port(1, "", name);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0), *foreign = ibv_create_cq(other, 16, NULL, NULL, 0);
	struct ibv_device_attr attr;
	uint32_t wr, sge;
	struct ibv_qp *qp;

	CHECK_EQ(ibv_query_device(ctx, &attr), 0);
	wr = (uint32_t)attr.max_qp_wr;
	sge = (uint32_t)attr.max_sge;
	CHECK(!try_qp(pd, cq, (struct ibv_qp_cap){ wr + 1, 1, 1, 1, 0 }) && errno == EINVAL);
	CHECK(!try_qp(pd, cq, (struct ibv_qp_cap){ 1, wr + 1, 1, 1, 0 }) && errno == EINVAL);
	CHECK(!try_qp(pd, cq, (struct ibv_qp_cap){ 1, 1, sge + 1, 1, 0 }) && errno == EINVAL);
	CHECK(!try_qp(pd, cq, (struct ibv_qp_cap){ 1, 1, 1, sge + 1, 0 }) && errno == EINVAL);
	CHECK(!try_qp(pd, cq, (struct ibv_qp_cap){ 1, 1, 1, 1, 1 << 20 }) && errno == EINVAL);
	CHECK(!try_qp(pd, NULL, (struct ibv_qp_cap){ 1, 0, 1, 0, 0 }) && errno == EINVAL);
	CHECK(!try_qp(pd, foreign, (struct ibv_qp_cap){ 1, 1, 1, 1, 0 }) && errno == EINVAL);
	qp = try_qp(pd, cq, (struct ibv_qp_cap){ wr, wr, sge, sge, 256 });
	CHECK(qp);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	/* A sender only, a receiver only. */
	qp = try_qp(pd, cq, (struct ibv_qp_cap){ 4, 0, 1, 0, 0 });
	CHECK(qp && !flow_mac(qp, (uint8_t[6]){ 2, 0, 0, 0, 0, 1 }) && errno == EINVAL);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	qp = try_qp(pd, cq, (struct ibv_qp_cap){ 0, 4, 0, 1, 0 });
	CHECK(qp);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK(!ibv_create_cq(ctx, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(ctx, attr.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(ctx, -1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors) && errno == EINVAL);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_destroy_cq(foreign), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(ctx), 0);
	CHECK_EQ(ibv_close_device(other), 0);
}

TEST(what_is_in_use_stays)
{
	struct ibv_flow *flow;
	struct side s;

	side_open(&s, 0);
	flow = flow_mac(s.qp, s.mac);
	CHECK(flow);
	CHECK_EQ(ibv_destroy_qp(s.qp), EBUSY);
	CHECK_EQ(ibv_destroy_cq(s.scq), EBUSY);
	CHECK_EQ(ibv_destroy_cq(s.rcq), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(s.pd), EBUSY);
	CHECK_EQ(ibv_destroy_comp_channel(s.chan), EBUSY);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	side_close(&s);
}

TEST(domains)
{
	char name[64];
	struct ibv_context *ctx = open_port(0, "", name);
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *parent;
	struct ibv_td *td = ibv_alloc_td(ctx, &td_attr);
	struct ibv_parent_domain_init_attr pa = { .pd = pd, .td = td };

	CHECK(td);
	parent = ibv_alloc_parent_domain(ctx, &pa);
	CHECK(parent);
	CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(ibv_dealloc_td(td), EBUSY);
	pa.pd = parent;
	CHECK(!ibv_alloc_parent_domain(ctx, &pa) && errno == EINVAL);
	pa.pd = NULL;
	CHECK(!ibv_alloc_parent_domain(ctx, &pa) && errno == EINVAL);
	pa.pd = pd;
	pa.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	CHECK(!ibv_alloc_parent_domain(ctx, &pa) && errno == EOPNOTSUPP);
	CHECK_EQ(ibv_dealloc_pd(parent), 0);
	CHECK_EQ(ibv_dealloc_td(td), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(ctx), 0);
}

/* ---- the state machine ----------------------------------------------------------------------------------------------------------- */

static int modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	return ibv_modify_qp(qp, &attr, mask);
}

static void bring(struct ibv_qp *qp, enum ibv_qp_state state)
{
	CHECK_EQ(qp_to(qp, IBV_QPS_RESET), 0);
	for (int at = IBV_QPS_INIT; at <= IBV_QPS_RTS && state != IBV_QPS_RESET; at++) {
		CHECK_EQ(qp_to(qp, (enum ibv_qp_state)at), 0);
		if (at == (int)state || (state == IBV_QPS_ERR && at == IBV_QPS_RTS))
			break;
	}
	if (state == IBV_QPS_ERR)
		CHECK_EQ(qp_to(qp, IBV_QPS_ERR), 0);
	CHECK_EQ(qp_state(qp), state);
}

TEST(state_machine)
{
	/* Row: from; column: to. RESET INIT RTR RTS SQD SQE ERR. */
	static const uint8_t legal[7][7] = {
		{ 1, 1, 0, 0, 0, 0, 0 }, { 1, 1, 1, 0, 0, 0, 1 }, { 1, 0, 0, 1, 0, 0, 1 }, { 1, 0, 0, 1, 0, 0, 1 }, { 0 }, { 0 },
		{ 1, 0, 0, 0, 0, 0, 1 },
	};
	struct side s;

	side_open(&s, 0);
	for (int from = 0; from < 7; from++) {
		if (from == IBV_QPS_SQD || from == IBV_QPS_SQE)
			continue;
		for (int to = 0; to < 7; to++) {
			int mask = IBV_QP_STATE | (from == IBV_QPS_RESET && to == IBV_QPS_INIT ? IBV_QP_PORT : 0);

			bring(s.qp, (enum ibv_qp_state)from);
			CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = (enum ibv_qp_state)to, .port_num = 1 }, mask),
				 legal[from][to] ? 0 : EINVAL);
			CHECK_EQ(qp_state(s.qp), legal[from][to] ? to : from);
			CHECK_EQ(s.qp->state, legal[from][to] ? to : from);
		}
	}
	side_close(&s);
}

TEST(state_masks)
{
	struct side s;

	side_open(&s, 0);
	bring(s.qp, IBV_QPS_RESET);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT }, IBV_QP_STATE), EINVAL);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 0 }, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 2 }, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 },
			IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX),
		 EINVAL);
	CHECK_EQ(
	    modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 }, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY),
	    EINVAL);
	CHECK_EQ(qp_state(s.qp), IBV_QPS_RESET);
	bring(s.qp, IBV_QPS_INIT);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .dest_qp_num = 1 }, IBV_QP_STATE | IBV_QP_DEST_QPN),
		 EINVAL);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = 1 }, IBV_QP_STATE | IBV_QP_PATH_MTU),
		 EINVAL);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = (enum ibv_qp_state)77 }, IBV_QP_STATE), EINVAL);
	bring(s.qp, IBV_QPS_RTS);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTR },
			IBV_QP_STATE | IBV_QP_CUR_STATE),
		 EINVAL);
	CHECK_EQ(modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_RTS },
			IBV_QP_STATE | IBV_QP_CUR_STATE),
		 0);
	CHECK_EQ(qp_state(s.qp), IBV_QPS_RTS);
	side_close(&s);
}

TEST(query_tells_the_truth)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 5, 5, 2, 3, 100 }, .sq_sig_all = 1 }, got;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	struct side s;

	side_open(&s, 0);
	init.send_cq = s.scq;
	init.recv_cq = s.rcq;
	init.qp_context = &s;
	qp = ibv_create_qp(s.pd, &init);
	CHECK(qp);
	CHECK(qp->qp_context == &s && qp->send_cq == s.scq && qp->recv_cq == s.rcq && qp->pd == s.pd && qp->qp_num != s.qp->qp_num);
	CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &got), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
	CHECK_EQ(attr.cur_qp_state, IBV_QPS_RESET);
	CHECK(got.cap.max_send_wr >= 5 && got.cap.max_recv_wr >= 5 && got.cap.max_send_sge >= 2 && got.cap.max_recv_sge >= 3 &&
	      got.cap.max_inline_data >= 100);
	CHECK(!memcmp(&got.cap, &init.cap, sizeof(got.cap)) && !memcmp(&attr.cap, &init.cap, sizeof(got.cap)));
	CHECK(got.sq_sig_all == 1 && got.send_cq == s.scq && got.recv_cq == s.rcq && got.qp_type == IBV_QPT_RAW_PACKET &&
	      got.qp_context == &s);
	CHECK_EQ(qp_to(qp, IBV_QPS_INIT), 0);
	CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &got), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_INIT);
	CHECK_EQ(attr.port_num, 1);
	CHECK(!ibv_qp_to_qp_ex(qp));
	CHECK_EQ(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0), 1);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	side_close(&s);
}

/* ---- the life of contexts --------------------------------------------------------------------------------------------------------- */

TEST(close_takes_the_rest_along)
{
	struct ibv_flow *flow;
	struct side s;

	side_open(&s, 0);
	flow = flow_mac(s.qp, s.mac);
	CHECK(flow);
	CHECK_EQ(side_post_recv(&s, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(ibv_close_device(s.ctx), 0);
	free(s.buf);
	/* Nothing of it is left on the port. */
	side_open(&s, 0);
	side_close(&s);
}

TEST(import_by_descriptor)
{
	char name[64];
	struct ibv_context *ctx = open_port(0, "", name), *again;
	int fd = dup(ctx->cmd_fd);

	again = ibv_import_device(fd);
	CHECK(again && again != ctx && again->device == ctx->device);
	CHECK_EQ(ibv_close_device(again), 0);
	CHECK_EQ(ibv_close_device(ctx), 0);
	close(fd);
}

TEST(fork_leaves_the_parent_alone)
{
	struct side a, b;
	uint8_t f[128];
	struct ibv_wc wc;
	struct ibv_flow *flow;
	uint32_t len;
	int status;
	pid_t pid;

	side_open(&a, 0);
	side_open(&b, 1);
	flow = flow_mac(b.qp, b.mac);
	CHECK(flow);
	CHECK_EQ(side_post_recv(&b, 9, 0, SIDE_BUF), 0);
	len = frame_udp4(f, b.mac, a.mac, &(struct udp4){ .src = 1, .dst = 2, .sport = 3, .dport = 4 }, 20);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		/* Calls say so, destroying is harmless. */
		bool ok = side_send(&a, 1, f, len, IBV_SEND_INLINE) == ENODEV && side_post_recv(&b, 1, 0, 64) == ENODEV &&
			  ibv_poll_cq(b.rcq, 1, &wc) == 0 && qp_to(a.qp, IBV_QPS_ERR) == ENODEV &&
			  ibv_req_notify_cq(b.rcq, 0) == ENODEV;

		CHECK_EQ(ibv_destroy_flow(flow), 0);
		side_close(&a);
		side_close(&b);
		_exit(ok ? 0 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_EQ(side_send(&a, 1, f, len, IBV_SEND_INLINE), 0);
	wc = poll_one(b.rcq);
	CHECK_EQ(wc.wr_id, 9);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	side_close(&a);
	side_close(&b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
