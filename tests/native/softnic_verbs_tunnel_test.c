/* SPDX-License-Identifier: BSD-3-Clause */
/* Flow rules beyond a frame's own headers: what is refused about tunnels, and tags. What tunnels match is tests/interop's matrix. */
#include "softnic_verbs_rule.h"

TEST(bad_tunnels_and_tags)
{
	struct ibv_flow_spec_eth eth = { .type = IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, .size = sizeof(eth) };
	struct ibv_flow_spec_ipv4_ext ext = { .type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ext) };
	struct ibv_flow_spec_ipv6 ip6 = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(ip6) };
	struct ibv_flow_spec_tcp_udp udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(udp) };
	struct ibv_flow_spec_tunnel vxlan = { .type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof(vxlan) };
	struct ibv_flow_spec_action_tag tag = { .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(tag) };
	struct rule r;

	pair_open();
	ext.val.proto = 6;
	ext.mask.proto = 0xff;
	RULE2(ext, vxlan); /* over TCP */
	CHECK_EQ(refused(&r), EINVAL);
	vxlan.val.tunnel_id = htobe32(0x1000000);
	RULE1(vxlan);
	CHECK_EQ(refused(&r), EINVAL);
	vxlan.val.tunnel_id = 0;
	vxlan.type |= IBV_FLOW_SPEC_INNER;
	RULE1(vxlan);
	CHECK_EQ(refused(&r), EINVAL);
	vxlan.type = IBV_FLOW_SPEC_VXLAN_TUNNEL;
	RULE2(vxlan, vxlan);
	CHECK_EQ(refused(&r), EINVAL);
	RULE2(eth, vxlan);
	CHECK_EQ(refused(&r), EINVAL);
	tag.tag_id = 0x1000000;
	RULE2(udp, tag);
	CHECK_EQ(refused(&r), EINVAL);
	tag.tag_id = 1;
	RULE2(tag, tag);
	CHECK_EQ(refused(&r), EINVAL);
	ip6.mask.flow_label = htobe32(0x100000);
	RULE1(ip6);
	CHECK_EQ(refused(&r), EINVAL);
	pair_close();
}

/* The next completion's tag; -1: there is none. */
static int64_t tag_of(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int64_t tag;

	if (ibv_start_poll(cq, &attr))
		return -1;
	CHECK_EQ(cq->status, IBV_WC_SUCCESS);
	tag = ibv_wc_read_flow_tag(cq);
	ibv_end_poll(cq);
	return tag;
}

/* In completions of a CQ that was asked for it: that of the frame's rule, 0 where that has none. */
TEST(tags_in_completions)
{
	struct ibv_flow_spec_tcp_udp udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(udp) };
	struct ibv_flow_spec_action_tag tag = { .type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(tag), .tag_id = 0xfedcba };
	struct ibv_cq_init_attr_ex cqa = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 4, 8, 1, 1, 0 } };
	struct udp4 u = base4;
	struct ibv_flow *flow[2];
	struct ibv_cq_ex *cq;
	struct ibv_qp *plain;
	struct rule r;

	pair_open();
	cq = ibv_create_cq_ex(rx.ctx, &cqa);
	CHECK(cq);
	plain = rx.qp;
	init.send_cq = rx.scq;
	init.recv_cq = ibv_cq_ex_to_cq(cq);
	rx.qp = ibv_create_qp(rx.pd, &init);
	CHECK(rx.qp);
	qp_rts(rx.qp);
	udp.mask.dst_port = 0xffff;
	udp.val.dst_port = htobe16(u.dport);
	RULE2(tag, udp); /* in whatever place */
	flow[0] = rule_make(rx.qp, &r);
	udp.val.dst_port = htobe16(u.dport + 1);
	RULE1(udp);
	flow[1] = rule_make(rx.qp, &r);
	CHECK(flow[0] && flow[1]);
	for (uint32_t i = 0; i < 6; i++) {
		u.dport = (uint16_t)(base4.dport + i % 2);
		CHECK_EQ(side_post_recv(&rx, i, 0, SIDE_BUF), 0);
		CHECK_EQ(side_send(&tx, 1, frame, frame_udp4(frame, rx.mac, tx.mac, &u, 30), 0), 0);
		CHECK_EQ(tag_of(cq), i % 2 ? 0 : 0xfedcba);
	}
	CHECK_EQ(tag_of(cq), -1);
	CHECK_EQ(ibv_destroy_flow(flow[0]) | ibv_destroy_flow(flow[1]), 0);
	CHECK_EQ(ibv_destroy_qp(rx.qp), 0);
	CHECK_EQ(ibv_destroy_cq(init.recv_cq), 0);
	rx.qp = plain;
	pair_close();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
