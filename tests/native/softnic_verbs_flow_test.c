/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flow rules and RSS: that each field of a specification matches what it says and nothing else. Every case sends frames that differ
 * from the rule in exactly one field.
 */
#include "softnic_verbs_rule.h"

/* How often a frame of `len` bytes in `frame` arrives. */
static int heard(uint32_t len)
{
	struct ibv_wc wc;
	int n = 0;

	CHECK_EQ(side_post_recv(&rx, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(side_post_recv(&rx, 2, 1, SIDE_BUF), 0);
	CHECK_EQ(side_send(&tx, 1, frame, len, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(poll_one(tx.scq).status, IBV_WC_SUCCESS);
	while (ibv_poll_cq(rx.rcq, 1, &wc)) {
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		n++;
	}
	CHECK_EQ(qp_to(rx.qp, IBV_QPS_RESET), 0);
	qp_rts(rx.qp);
	return n;
}

static int heard4(struct udp4 u)
{
	return heard(frame_udp4(frame, rx.mac, tx.mac, &u, 30));
}

TEST(no_rule_no_frame)
{
	uint32_t len;

	pair_open();
	CHECK_EQ(heard4(base4), 0);
	len = frame_udp4(frame, (uint8_t[6]){ 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, tx.mac, &base4, 3);
	CHECK_EQ(heard(len), 0);
	pair_close();
}

TEST(ethernet_fields)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };
	struct ibv_flow *flow;
	struct rule r;
	uint32_t len;

	pair_open();
	memcpy(eth.val.dst_mac, rx.mac, 6);
	memset(eth.mask.dst_mac, 0xff, 6);
	memcpy(eth.val.src_mac, tx.mac, 6);
	memset(eth.mask.src_mac, 0xff, 6);
	eth.val.ether_type = htons(0x0800);
	eth.mask.ether_type = 0xffff;
	rule_init(&r);
	rule_add(&r, &eth, sizeof(eth));
	flow = rule_make(rx.qp, &r);
	CHECK(flow);
	CHECK_EQ(heard4(base4), 1);
	for (uint32_t i = 0; i < 14; i++) {
		len = frame_udp4(frame, rx.mac, tx.mac, &base4, 30);
		frame[i] ^= 4; /* one bit of the destination, the source or the type */
		CHECK_EQ(heard(len), 0);
	}
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	CHECK_EQ(heard4(base4), 0);
	pair_close();
}

TEST(vlan_field)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };
	struct udp4 u = base4;
	struct ibv_flow *flow;
	struct rule r;

	pair_open();
	memcpy(eth.val.dst_mac, rx.mac, 6);
	memset(eth.mask.dst_mac, 0xff, 6);
	eth.val.vlan_tag = htons(100);
	eth.mask.vlan_tag = htons(0x0fff);
	rule_init(&r);
	rule_add(&r, &eth, sizeof(eth));
	flow = rule_make(rx.qp, &r);
	CHECK(flow);
	CHECK_EQ(heard4(u), 0);
	u.vlan = 100;
	CHECK_EQ(heard4(u), 1);
	u.vlan = 0xa000 | 100; /* the priority is not asked for */
	CHECK_EQ(heard4(u), 1);
	u.vlan = 101;
	CHECK_EQ(heard4(u), 0);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	pair_close();
}

TEST(ip4_and_udp_fields)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };
	struct ibv_flow_spec_ipv4_ext ip = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ip) };
	struct ibv_flow_spec_tcp_udp l4 = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(l4) };
	struct ibv_flow *flow;
	struct udp4 u;
	struct rule r;
	uint32_t len;

	pair_open();
	memcpy(eth.val.dst_mac, rx.mac, 6);
	memset(eth.mask.dst_mac, 0xff, 6);
	ip.val = (struct ibv_flow_ipv4_ext_filter){
		.src_ip = htonl(base4.src), .dst_ip = htonl(base4.dst), .proto = 17, .tos = 0x10, .ttl = 33
	};
	ip.mask = (struct ibv_flow_ipv4_ext_filter){
		.src_ip = UINT32_MAX, .dst_ip = UINT32_MAX, .proto = 0xff, .tos = 0xff, .ttl = 0xff
	};
	l4.val = (struct ibv_flow_tcp_udp_filter){ htons(2222), htons(1111) };
	l4.mask = (struct ibv_flow_tcp_udp_filter){ 0xffff, 0xffff };
	rule_init(&r);
	rule_add(&r, &eth, sizeof(eth));
	rule_add(&r, &ip, sizeof(ip));
	rule_add(&r, &l4, sizeof(l4));
	flow = rule_make(rx.qp, &r);
	CHECK(flow);
	CHECK_EQ(heard4(base4), 1);
#define DIFFERS(member, value)                                                                                                     \
	u = base4;                                                                                                                 \
	u.member = (value);                                                                                                        \
	CHECK_EQ(heard4(u), 0)
	DIFFERS(src, base4.src + 1);
	DIFFERS(dst, base4.dst ^ 0x80000000);
	DIFFERS(sport, 1112);
	DIFFERS(dport, 2223);
	DIFFERS(proto, 6);
	DIFFERS(proto, 132);
	DIFFERS(tos, 0x11);
	DIFFERS(ttl, 34);
	/* The ports of a later fragment are not there: it is not this rule's. */
	len = frame_udp4(frame, rx.mac, tx.mac, &base4, 32);
	put16(frame + 20, 0x0010);
	put16(frame + 24, 0);
	put16(frame + 24, 0xffffu - sum16(frame + 14, 20, 0));
	CHECK_EQ(heard(len), 0);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	pair_close();
}

TEST(ip4_prefix)
{
	struct ibv_flow_spec_ipv4 ip = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ip) };
	struct udp4 u = base4;
	struct ibv_flow *flow;
	struct rule r;
	uint32_t len;

	pair_open();
	ip.val.dst_ip = htonl(IP(10, 4, 0, 0));
	ip.mask.dst_ip = htonl(IP(255, 255, 0, 0));
	rule_init(&r);
	rule_add(&r, &ip, sizeof(ip));
	flow = rule_make(rx.qp, &r);
	CHECK(flow);
	CHECK_EQ(heard4(u), 1);
	u.dst = IP(10, 4, 255, 255);
	CHECK_EQ(heard4(u), 1);
	u.dst = IP(10, 5, 5, 6);
	CHECK_EQ(heard4(u), 0);
	/* IPv6 and other types are not IPv4, whatever their bytes are. */
	len = frame_udp6(frame, rx.mac, tx.mac, &(struct udp6){ 1, 2, 3, 4, 0 }, 10);
	CHECK_EQ(heard(len), 0);
	len = frame_udp4(frame, rx.mac, tx.mac, &base4, 30);
	put16(frame + 12, 0x88b5);
	CHECK_EQ(heard(len), 0);
	/* Later fragments belong to a rule without ports. */
	len = frame_udp4(frame, rx.mac, tx.mac, &base4, 32);
	put16(frame + 20, 0x0010);
	put16(frame + 24, 0);
	put16(frame + 24, 0xffffu - sum16(frame + 14, 20, 0));
	CHECK_EQ(heard(len), 1);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	pair_close();
}

TEST(a_specification_without_masks)
{
	struct ibv_flow_spec_ipv4 ip4 = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ip4) };
	struct ibv_flow_spec_ipv6 ip6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip6) };
	struct ibv_flow *flow;
	struct rule r;
	uint32_t len;

	pair_open();
	/* It still says which protocol. */
	for (int v6 = 0; v6 < 2; v6++) {
		rule_init(&r);
		if (v6)
			rule_add(&r, &ip6, sizeof(ip6));
		else
			rule_add(&r, &ip4, sizeof(ip4));
		flow = rule_make(rx.qp, &r);
		CHECK(flow);
		CHECK_EQ(heard4(base4), !v6);
		CHECK_EQ(heard(frame_udp6(frame, rx.mac, tx.mac, &(struct udp6){ .src = 1, .dst = 2 }, 10)), v6);
		len = frame_udp4(frame, rx.mac, tx.mac, &base4, 30);
		put16(frame + 12, 0x0806);
		CHECK_EQ(heard(len), 0);
		CHECK_EQ(ibv_destroy_flow(flow), 0);
	}
	pair_close();
}

TEST(ip6_fields)
{
	struct ibv_flow_spec_ipv6 ip = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip) };
	struct ibv_flow_spec_tcp_udp l4 = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(l4) };
	struct ibv_flow *flow;
	struct rule r;

	pair_open();
	ip.val.src_ip[0] = ip.val.dst_ip[0] = 0xfd;
	ip.val.src_ip[15] = 1;
	ip.val.dst_ip[15] = 2;
	memset(ip.mask.src_ip, 0xff, 16);
	memset(ip.mask.dst_ip, 0xff, 16);
	ip.val.flow_label = htonl(0x12345);
	ip.mask.flow_label = htonl(0xfffff);
	ip.val.next_hdr = 17;
	ip.mask.next_hdr = 0xff;
	ip.val.hop_limit = 64;
	ip.mask.hop_limit = 0xff;
	l4.val.dst_port = htons(53);
	l4.mask.dst_port = 0xffff;
	rule_init(&r);
	rule_add(&r, &ip, sizeof(ip));
	rule_add(&r, &l4, sizeof(l4));
	flow = rule_make(rx.qp, &r);
	CHECK(flow);
	CHECK_EQ(heard(frame_udp6(frame, rx.mac, tx.mac, &(struct udp6){ 1, 2, 999, 53, 0x12345 }, 10)), 1);
	CHECK_EQ(heard(frame_udp6(frame, rx.mac, tx.mac, &(struct udp6){ 3, 2, 999, 53, 0x12345 }, 10)), 0);
	CHECK_EQ(heard(frame_udp6(frame, rx.mac, tx.mac, &(struct udp6){ 1, 3, 999, 53, 0x12345 }, 10)), 0);
	CHECK_EQ(heard(frame_udp6(frame, rx.mac, tx.mac, &(struct udp6){ 1, 2, 999, 54, 0x12345 }, 10)), 0);
	CHECK_EQ(heard(frame_udp6(frame, rx.mac, tx.mac, &(struct udp6){ 1, 2, 999, 53, 0x12344 }, 10)), 0);
	CHECK_EQ(heard4(base4), 0);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	pair_close();
}

TEST(priority_decides)
{
	struct ibv_flow_spec_ipv4 ip = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ip) };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 0, 4, 0, 1, 0 } };
	struct ibv_flow *low, *high;
	struct ibv_recv_wr wr = { .wr_id = 70, .num_sge = 1 }, *bad;
	struct ibv_sge sge;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct rule r;

	pair_open();
	cq = ibv_create_cq(rx.ctx, 8, NULL, NULL, 0);
	init.recv_cq = cq;
	qp = ibv_create_qp(rx.pd, &init);
	CHECK(qp);
	qp_rts(qp);
	sge = (struct ibv_sge){ (uintptr_t)rx.buf + 5 * SIDE_BUF, SIDE_BUF, rx.mr->lkey };
	wr.sg_list = &sge;
	CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
	ip.val.dst_ip = htonl(base4.dst);
	ip.mask.dst_ip = UINT32_MAX;
	rule_init(&r);
	rule_add(&r, &ip, sizeof(ip));
	r.attr.priority = 5;
	low = rule_make(rx.qp, &r);
	CHECK(low);
	CHECK_EQ(heard4(base4), 1);
	r.attr.priority = 4;
	high = rule_make(qp, &r);
	CHECK(high);
	CHECK_EQ(heard4(base4), 0);
	CHECK_EQ(poll_one(cq).wr_id, 70);
	CHECK_EQ(ibv_destroy_flow(high), 0);
	CHECK_EQ(heard4(base4), 1);
	poll_none(cq);
	CHECK_EQ(ibv_destroy_flow(low), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	pair_close();
}

TEST(default_rules_come_last)
{
	static const uint8_t group[6] = { 0x01, 0x00, 0x5e, 1, 2, 3 };
	struct ibv_flow *flow;
	struct rule r;

	pair_open();
	rule_init(&r);
	r.attr.type = IBV_FLOW_ATTR_MC_DEFAULT;
	flow = rule_make(rx.qp, &r);
	CHECK(flow);
	CHECK_EQ(heard4(base4), 0);
	CHECK_EQ(heard(frame_udp4(frame, group, tx.mac, &base4, 30)), 1);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	r.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	flow = rule_make(rx.qp, &r);
	CHECK(flow);
	CHECK_EQ(heard4(base4), 1);
	CHECK_EQ(heard(frame_udp4(frame, group, tx.mac, &base4, 30)), 1);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	CHECK_EQ(heard4(base4), 0);
	pair_close();
}

TEST(sniffer_gets_a_copy)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 0, 4, 0, 1, 0 } };
	struct ibv_recv_wr wr = { .wr_id = 70, .num_sge = 1 }, *bad;
	struct ibv_flow *flow, *sniff;
	struct ibv_sge sge;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct rule r;

	pair_open();
	cq = ibv_create_cq(rx.ctx, 8, NULL, NULL, 0);
	init.recv_cq = cq;
	qp = ibv_create_qp(rx.pd, &init);
	CHECK(qp);
	qp_rts(qp);
	sge = (struct ibv_sge){ (uintptr_t)rx.buf + 5 * SIDE_BUF, SIDE_BUF, rx.mr->lkey };
	wr.sg_list = &sge;
	CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
	flow = flow_mac(rx.qp, rx.mac);
	CHECK(flow);
	rule_init(&r);
	r.attr.type = IBV_FLOW_ATTR_SNIFFER;
	sniff = rule_make(qp, &r);
	CHECK(sniff);
	CHECK_EQ(heard4(base4), 1);
	CHECK_EQ(poll_one(cq).wr_id, 70);
	poll_none(cq);
	CHECK_EQ(ibv_destroy_flow(flow), 0);
	CHECK_EQ(ibv_destroy_flow(sniff), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	pair_close();
}

/* ---- refused ---------------------------------------------------------------------------------------------------------------------- */

TEST(bad_rules)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };
	struct ibv_flow_spec_ipv4 ip4 = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(ip4) };
	struct ibv_flow_spec_ipv4_ext ext = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ext) };
	struct ibv_flow_spec_ipv6 ip6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip6) };
	struct ibv_flow_spec_tcp_udp udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(udp) };
	struct ibv_flow_spec_counter_action count = { .type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(count) };
	struct ibv_flow_spec_gre gre = { .type = IBV_FLOW_SPEC_GRE, .size = sizeof(gre) };
	struct ibv_flow_spec_mpls mpls = { .type = IBV_FLOW_SPEC_MPLS, .size = sizeof(mpls) };
	struct ibv_flow_spec_esp esp = { .type = IBV_FLOW_SPEC_ESP, .size = sizeof(esp) };
	struct rule r;

	pair_open();
	RULE1(count);
	CHECK_EQ(refused(&r), EOPNOTSUPP);
	RULE1(mpls);
	CHECK_EQ(refused(&r), EOPNOTSUPP);
	RULE1(esp);
	CHECK_EQ(refused(&r), EOPNOTSUPP);
	RULE1(gre);
	CHECK_EQ(refused(&r), EOPNOTSUPP);
	eth.type |= IBV_FLOW_SPEC_INNER;
	RULE1(eth); /* inside of what? */
	CHECK_EQ(refused(&r), EINVAL);
	eth.type = (enum ibv_flow_spec_type)0x77;
	RULE1(eth);
	CHECK_EQ(refused(&r), EINVAL);
	eth.type = IBV_FLOW_SPEC_ETH;
	eth.size--;
	RULE1(eth);
	CHECK_EQ(refused(&r), EINVAL);
	eth.size = 0;
	RULE1(eth);
	CHECK_EQ(refused(&r), EINVAL);
	eth.size = sizeof(eth);
	RULE2(eth, eth);
	CHECK_EQ(refused(&r), EINVAL);
	RULE2(ip4, ip6);
	CHECK_EQ(refused(&r), EINVAL);
	RULE2(udp, ip4);
	CHECK_EQ(refused(&r), EINVAL);
	ext.mask.flags = 1;
	RULE1(ext);
	CHECK_EQ(refused(&r), EOPNOTSUPP);
	ext.mask.flags = 0;
	ext.val.proto = 6;
	ext.mask.proto = 0xff;
	RULE2(ext, udp);
	CHECK_EQ(refused(&r), EINVAL);
	pair_close();
}

TEST(bad_rule_attributes)
{
	struct ibv_flow_spec_action_drop drop = { .type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(drop) };
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };
	struct rule r;

	pair_open();
	RULE1(eth);
	r.attr.port = 2;
	CHECK_EQ(refused(&r), EINVAL);
	r.attr.port = 1;
	r.attr.comp_mask = 1;
	CHECK_EQ(refused(&r), EINVAL);
	r.attr.comp_mask = 0;
	r.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	CHECK_EQ(refused(&r), EOPNOTSUPP);
	r.attr.flags = 0;
	r.attr.type = (enum ibv_flow_attr_type)9;
	CHECK_EQ(refused(&r), EINVAL);
	/* The total ends within the specification. */
	RULE1(eth);
	r.attr.size -= 4;
	CHECK_EQ(refused(&r), EINVAL);
	/* Kinds that match by themselves take no specification. */
	memset(eth.mask.dst_mac, 0xff, 6);
	RULE1(eth);
	r.attr.type = IBV_FLOW_ATTR_SNIFFER;
	CHECK_EQ(refused(&r), EINVAL);
	rule_init(&r);
	rule_add(&r, &drop, sizeof(drop));
	r.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	CHECK_EQ(refused(&r), EINVAL);
	pair_close();
}

TEST(size_as_pyverbs_leaves_it)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(eth) };
	struct ibv_flow *flow;
	struct rule r;

	pair_open();
	memcpy(eth.val.dst_mac, rx.mac, 6);
	memset(eth.mask.dst_mac, 0xff, 6);
	RULE1(eth);
	for (int i = 0; i < 2; i++) {
		r.attr.size = i ? sizeof(r.attr) : 0;
		flow = rule_make(rx.qp, &r);
		CHECK(flow);
		CHECK_EQ(heard4(base4), 1);
		CHECK_EQ(heard(frame_udp4(frame, (uint8_t[6]){ 2, 9, 9, 9, 9, 9 }, tx.mac, &base4, 30)), 0);
		CHECK_EQ(ibv_destroy_flow(flow), 0);
	}
	pair_close();
}

/* ---- receive work queues and RSS ----------------------------------------------------------------------------------------------------- */

#define WQS 8

struct rss {
	struct ibv_cq *cq;
	struct ibv_wq *wq[WQS];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
};

static int wq_to(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	return ibv_modify_wq(wq, &attr);
}

static int wq_recv(struct ibv_wq *wq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)rx.buf, SIDE_BUF, rx.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_wq_recv(wq, &wr, &bad);
}

/* The key and the vectors of Microsoft's "Verifying the RSS Hash Calculation". */
static uint8_t rss_key[40] = { 0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
			       0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
			       0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa };

static struct ibv_qp *rss_qp(struct rss *s, uint64_t fields)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = rx.pd,
		.rwq_ind_tbl = s->table,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(rss_key), rss_key, fields },
	};

	errno = 0;
	return ibv_create_qp_ex(rx.ctx, &a);
}

static void rss_open(struct rss *s, uint64_t fields)
{
	struct ibv_rwq_ind_table_init_attr ta = { .log_ind_tbl_size = 3, .ind_tbl = s->wq };

	s->cq = ibv_create_cq(rx.ctx, 64, NULL, NULL, 0);
	for (int i = 0; i < WQS; i++) {
		struct ibv_wq_init_attr wa = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = rx.pd, .cq = s->cq };

		s->wq[i] = ibv_create_wq(rx.ctx, &wa);
		CHECK(s->wq[i]);
		CHECK_EQ(wq_to(s->wq[i], IBV_WQS_RDY), 0);
	}
	s->table = ibv_create_rwq_ind_table(rx.ctx, &ta);
	CHECK(s->table);
	s->qp = rss_qp(s, fields);
	CHECK(s->qp);
}

static void rss_close(struct rss *s)
{
	CHECK_EQ(ibv_destroy_rwq_ind_table(s->table), EBUSY);
	CHECK_EQ(ibv_destroy_qp(s->qp), 0);
	CHECK_EQ(ibv_destroy_wq(s->wq[0]), EBUSY);
	CHECK_EQ(ibv_destroy_rwq_ind_table(s->table), 0);
	CHECK_EQ(ibv_destroy_cq(s->cq), EBUSY);
	for (int i = 0; i < WQS; i++)
		CHECK_EQ(ibv_destroy_wq(s->wq[i]), 0);
	CHECK_EQ(ibv_destroy_cq(s->cq), 0);
}

static const struct {
	struct udp4 u;
	uint32_t ip_hash, port_hash;
} vectors[] = {
	{ { .dst = IP(161, 142, 100, 80), .dport = 1766, .src = IP(66, 9, 149, 187), .sport = 2794 }, 0x323e8fc2, 0x51ccc178 },
	{ { .dst = IP(65, 69, 140, 83), .dport = 4739, .src = IP(199, 92, 111, 2), .sport = 14230 }, 0xd718262a, 0xc626b0ea },
	{ { .dst = IP(12, 22, 207, 184), .dport = 38024, .src = IP(24, 19, 198, 95), .sport = 12898 }, 0xd2d0a5de, 0x5c2b394a },
	{ { .dst = IP(209, 142, 163, 6), .dport = 2217, .src = IP(38, 27, 205, 30), .sport = 48228 }, 0x82989176, 0xafc7327f },
	{ { .dst = IP(202, 188, 127, 2), .dport = 1303, .src = IP(153, 39, 163, 191), .sport = 44251 }, 0x5d1809c5, 0x10e828a2 },
};

static uint32_t spread_to(struct rss *s)
{
	struct ibv_wc wc;

	for (uint32_t q = 0; q < WQS; q++)
		CHECK_EQ(wq_recv(s->wq[q], 50 + q), 0);
	CHECK_EQ(ibv_poll_cq(s->cq, 1, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	poll_none(s->cq);
	for (uint32_t q = 0; q < WQS; q++) {
		if (s->wq[q]->wq_num == wc.qp_num) {
			CHECK_EQ(wc.wr_id, 50 + q);
			for (uint32_t i = 0; i < WQS; i++) {
				CHECK_EQ(wq_to(s->wq[i], IBV_WQS_RESET), 0);
				CHECK_EQ(wq_to(s->wq[i], IBV_WQS_RDY), 0);
			}
			return q;
		}
	}
	CHECK(!"a queue of the table");
	return 0;
}

TEST(rss_spreads_by_toeplitz)
{
	const uint64_t ip = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;

	for (int ports = 0; ports < 2; ports++) {
		struct ibv_flow *flow;
		struct rss s;

		pair_open();
		rss_open(&s, ports ? ip | IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP : ip);
		flow = flow_mac(s.qp, rx.mac);
		CHECK(flow);
		for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
			uint32_t len = frame_udp4(frame, rx.mac, tx.mac, &vectors[i].u, 20);

			CHECK_EQ(side_send(&tx, 1, frame, len, IBV_SEND_SIGNALED), 0);
			poll_one(tx.scq);
			CHECK_EQ(spread_to(&s), (ports ? vectors[i].port_hash : vectors[i].ip_hash) % WQS);
		}
		CHECK_EQ(ibv_destroy_flow(flow), 0);
		rss_close(&s);
		pair_close();
	}
}

TEST(rss_refused)
{
	struct ibv_rwq_ind_table_init_attr ta = { .log_ind_tbl_size = 20 };
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
	struct ibv_send_wr swr = { .opcode = IBV_WR_SEND }, *sbad;
	struct rss s;

	pair_open();
	rss_open(&s, IBV_RX_HASH_SRC_IPV4);
	CHECK(!rss_qp(&s, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6) && errno == EINVAL);
	CHECK(!rss_qp(&s, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP) && errno == EINVAL);
	CHECK(!rss_qp(&s, IBV_RX_HASH_INNER | IBV_RX_HASH_SRC_IPV4) && errno == EOPNOTSUPP);
	CHECK(!rss_qp(&s, IBV_RX_HASH_IPSEC_SPI) && errno == EOPNOTSUPP);
	ta.ind_tbl = s.wq;
	CHECK(!ibv_create_rwq_ind_table(rx.ctx, &ta) && errno == EINVAL);
	/* It only receives, and only through its queues. */
	CHECK_EQ(ibv_post_recv(s.qp, &wr, &bad), EINVAL);
	CHECK_EQ(ibv_post_send(s.qp, &swr, &sbad), EINVAL);
	CHECK_EQ(qp_to(s.qp, IBV_QPS_INIT), EOPNOTSUPP);
	rss_close(&s);
	pair_close();
}

TEST(work_queue_states)
{
	struct ibv_wq_init_attr wa = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1 };
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE };
	struct ibv_wc wc;
	struct ibv_wq *wq;

	pair_open();
	wa.pd = rx.pd;
	wa.cq = rx.rcq;
	wa.max_wr = 1 << 20;
	CHECK(!ibv_create_wq(rx.ctx, &wa) && errno == EINVAL);
	wa.max_wr = 4;
	wa.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	wa.create_flags = IBV_WQ_FLAGS_SCATTER_FCS;
	CHECK(!ibv_create_wq(rx.ctx, &wa) && errno == EOPNOTSUPP);
	wa.comp_mask = 0;
	wq = ibv_create_wq(rx.ctx, &wa);
	CHECK(wq && wq->state == IBV_WQS_RESET);
	CHECK_EQ(wq_recv(wq, 1), EINVAL);
	CHECK_EQ(wq_to(wq, IBV_WQS_ERR), EINVAL);
	CHECK_EQ(wq_to(wq, (enum ibv_wq_state)9), EINVAL);
	CHECK_EQ(wq_to(wq, IBV_WQS_RDY), 0);
	attr.curr_wq_state = IBV_WQS_RESET;
	attr.wq_state = IBV_WQS_ERR;
	CHECK_EQ(ibv_modify_wq(wq, &attr), EINVAL);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(wq_recv(wq, i), 0);
	CHECK_EQ(wq_recv(wq, 4), ENOMEM);
	CHECK_EQ(wq_to(wq, IBV_WQS_ERR), 0);
	CHECK_EQ(wq_to(wq, IBV_WQS_RDY), EINVAL);
	for (uint64_t i = 0; i < 4; i++) {
		wc = poll_one(rx.rcq);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.qp_num, wq->wq_num);
	}
	CHECK_EQ(wq_to(wq, IBV_WQS_RESET), 0);
	CHECK_EQ(ibv_destroy_wq(wq), 0);
	pair_close();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
