/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports, rules, queues and switching, seen from one process; processes come in softnic_fabric_process_test.c. */
#include "softnic_fabric_util.h"

TEST(unicast)
{
	struct fab_net net;
	struct sn_port *a, *b;
	struct sn_rxq *qb;
	struct sn_frame f;
	uint8_t frame[2048];
	uint32_t len = fab_udp4(frame, 0, 1, 1000, 2000, 64);

	fab_make(&net);
	a = fab_port(&net, 0);
	b = fab_port(&net, 1);
	qb = fab_queue(b, 64);
	fab_rule_all(b, qb);
	for (uint32_t i = 0; i < 1000; i++) {
		frame[60] = (uint8_t)i;
		fab_udp4_sum(frame);
		CHECK_EQ(fab_send(a, frame, len), 0);
		CHECK(sn_rxq_peek(qb, &f));
		CHECK_EQ(f.len, len);
		CHECK_EQ(f.nseg, 1);
		CHECK_EQ(f.flags, SN_RX_IP4 | SN_RX_UDP | SN_RX_L3_OK | SN_RX_L4_OK);
		CHECK(!memcmp(f.seg[0], frame, len));
		sn_rxq_pop(qb);
		CHECK(!sn_rxq_peek(qb, &f));
	}
	fab_done(&net);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
