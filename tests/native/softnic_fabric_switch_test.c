/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports, queues and switching within one process; several are in softnic_fabric_process_test.c. */
#include "softnic_fabric_util.h"

static struct fab_net net;
static uint8_t frame[SN_FRAME_MAX + 64], back[SN_FRAME_MAX];

/* Ports 0 .. n-1 with a queue and a rule for everything each. */
static void setup(uint32_t n)
{
	fab_make(&net);
	for (uint32_t i = 0; i < n; i++) {
		struct sn_port *p = fab_port(&net, i);

		fab_rule_all(p, fab_queue(p, 64));
	}
}

static bool take(struct sn_rxq *q, const uint8_t *expect, uint32_t len)
{
	struct sn_frame f;
	uint32_t at = 0;

	if (!sn_rxq_peek(q, &f) || f.len != len)
		return false;
	for (uint32_t i = 0; i < f.nseg; i++) {
		memcpy(back + at, f.seg[i], f.seg_len[i]);
		at += f.seg_len[i];
	}
	sn_rxq_pop(q);
	return at == len && !memcmp(back, expect, len);
}

TEST(unicast)
{
	struct sn_frame f;
	uint32_t len = fab_udp4(frame, 0, 1, 1000, 2000, 64);

	setup(3);
	for (uint32_t i = 0; i < 1000; i++) {
		frame[60] = (uint8_t)i;
		fab_udp4_sum(frame);
		CHECK_EQ(fab_send(net.port[0], frame, len), 0);
		CHECK(sn_rxq_peek(net.queue[1], &f));
		CHECK_EQ(f.nseg, 1);
		CHECK_EQ(f.flags, SN_RX_IP4 | SN_RX_UDP | SN_RX_L3_OK | SN_RX_L4_OK);
		CHECK_EQ(f.rss_hash, 0);
		CHECK(take(net.queue[1], frame, len));
		CHECK(!sn_rxq_peek(net.queue[1], &f));
	}
	CHECK_EQ(fab_drain(net.queue[0]) + fab_drain(net.queue[2]), 0);
	CHECK_EQ(fab_counters(net.port[0]).tx_packets, 1000);
	CHECK_EQ(fab_counters(net.port[0]).tx_bytes, 1000 * len);
	CHECK_EQ(fab_counters(net.port[1]).rx_packets, 1000);
	CHECK_EQ(fab_counters(net.port[1]).rx_bytes, 1000 * len);
	CHECK_EQ(fab_counters(net.port[2]).rx_packets, 0);
	fab_done(&net);
}

TEST(group_and_unknown_go_everywhere_but_back)
{
	static const uint8_t group[6] = { 0x01, 0, 0x5e, 1, 2, 3 }, all[6] = { 255, 255, 255, 255, 255, 255 };
	static const uint8_t unknown[6] = { 0x02, 9, 9, 9, 9, 9 };
	static const uint8_t *const to[] = { group, all, unknown };
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 20);

	setup(4);
	for (int k = 0; k < 3; k++) {
		memcpy(frame, to[k], 6);
		/* Twice: looked up, then by the remembered path. */
		for (int i = 0; i < 2; i++)
			CHECK_EQ(fab_send(net.port[0], frame, len), 0);
		CHECK_EQ(fab_drain(net.queue[0]), 0);
		for (int i = 1; i < 4; i++) {
			CHECK(take(net.queue[i], frame, len));
			CHECK(take(net.queue[i], frame, len));
			CHECK_EQ(fab_drain(net.queue[i]), 0);
		}
	}
	fab_done(&net);
}

TEST(own_port_hears_itself_by_its_mac_only)
{
	struct sn_port *second;
	uint32_t len = fab_udp4(frame, 0, 0, 1, 2, 20);

	setup(2);
	CHECK_EQ(fab_send(net.port[0], frame, len), 0);
	CHECK(take(net.queue[0], frame, len));
	/* Another queue pair on the port, without a queue, sends to everybody: the port's first one hears it. */
	second = fab_port(&net, 0);
	memset(frame, 0xff, 6);
	CHECK_EQ(fab_send(second, frame, len), 0);
	CHECK(take(net.queue[0], frame, len));
	CHECK(take(net.queue[1], frame, len));
	fab_done(&net);
}

TEST(mac_and_mtu_must_agree)
{
	struct sn_port_cfg cfg = { .mac = { 2, 1, 1, 1, 1, 1 }, .mtu = 4000 };
	struct sn_port *p, *again;
	uint8_t mac[6];

	fab_make(&net);
	CHECK_EQ(sn_port_attach(net.f, 5, &cfg, &p), 0);
	CHECK_EQ(sn_port_mtu(p), 4000);
	sn_port_mac(p, mac);
	CHECK(!memcmp(mac, cfg.mac, 6));
	CHECK_EQ(sn_port_attach(net.f, 5, &cfg, &again), 0);
	sn_port_detach(again);
	cfg.mtu = 1500;
	CHECK_EQ(sn_port_attach(net.f, 5, &cfg, &again), -EEXIST);
	cfg.mtu = 0;
	cfg.mac[5] = 2;
	CHECK_EQ(sn_port_attach(net.f, 5, &cfg, &again), -EEXIST);
	CHECK(strstr(sn_error(), "port 5"));
	cfg.mac[5] = 1;
	CHECK_EQ(sn_port_attach(net.f, 6, &cfg, &again), -EEXIST); /* the MAC is port 5's */
	cfg.mac[0] = 3;
	CHECK_EQ(sn_port_attach(net.f, 6, &cfg, &again), -EINVAL);
	CHECK_EQ(sn_port_attach(net.f, SN_PORTS, NULL, &again), -EINVAL);
	sn_port_detach(p);
	/* Gone with its last sender: it may be made otherwise now. */
	cfg = (struct sn_port_cfg){ .mtu = 9000 };
	CHECK_EQ(sn_port_attach(net.f, 5, &cfg, &p), 0);
	sn_port_mac(p, mac);
	CHECK_EQ(mac[5], 5);
	sn_port_detach(p);
	fab_done(&net);
}

TEST(lengths)
{
	static const uint32_t sizes[] = { 14, 15, 16, 41, 42, 60, 64, 2027, 2028, 2029, 4056, 4057, SN_FRAME_MAX };
	struct sn_port_cfg cfg = { .mtu = SN_MTU_MAX }, small = { .mtu = 1500 };
	struct sn_port *a, *b, *c;
	struct sn_rxq *q, *qc;

	fab_make(&net);
	CHECK_EQ(sn_port_attach(net.f, 0, &cfg, &a), 0);
	CHECK_EQ(sn_port_attach(net.f, 1, &cfg, &b), 0);
	CHECK_EQ(sn_port_attach(net.f, 2, &small, &c), 0);
	fab_rule_all(b, q = fab_queue(b, 8));
	fab_rule_all(c, qc = fab_queue(c, 8));
	for (uint32_t i = 0; i < sizeof(frame); i++)
		frame[i] = (uint8_t)(i * 31 + (i >> 8));
	fab_eth(frame, 0, 1, 0x88b5);
	/* Often enough for long frames to wrap at every slot. */
	for (uint32_t i = 0; i < 40 * pv_array_size(sizes); i++) {
		CHECK_EQ(fab_send(a, frame, sizes[i % pv_array_size(sizes)]), 0);
		CHECK(take(q, frame, sizes[i % pv_array_size(sizes)]));
	}
	CHECK_EQ(fab_send(a, frame, 13), -EMSGSIZE);
	CHECK_EQ(fab_send(a, frame, 0), -EMSGSIZE);
	CHECK_EQ(fab_send(a, frame, SN_FRAME_MAX + 1), -EMSGSIZE);
	CHECK_EQ(fab_counters(a).tx_too_long, 3);
	/* The receiver's MTU is smaller. */
	frame[5] = 2;
	CHECK_EQ(fab_send(a, frame, 1518), 0);
	CHECK_EQ(fab_send(a, frame, 1519), 0);
	CHECK_EQ(fab_send(a, frame, 1519), 0);
	CHECK_EQ(fab_counters(c).rx_too_long, 2);
	CHECK(take(qc, frame, 1518));
	CHECK_EQ(fab_drain(qc), 0);
	sn_rxq_destroy(q);
	sn_rxq_destroy(qc);
	net.nqueues = 0;
	sn_port_detach(a);
	sn_port_detach(b);
	sn_port_detach(c);
	fab_done(&net);
}

TEST(pieces)
{
	struct sn_seg seg[8];
	uint32_t len = fab_udp4(frame, 0, 1, 1000, 2000, 700);

	setup(2);
	for (uint32_t cut = 1; cut < 80; cut++) {
		uint32_t at = 0;

		for (uint32_t i = 0; i < 8; i++) {
			uint32_t part = i == 7 ? len - at : i == 3 ? 0 : cut;

			seg[i] = (struct sn_seg){ frame + at, part };
			at += part;
		}
		CHECK_EQ(sn_port_send(net.port[0], seg, 8, 0), 0);
		CHECK(take(net.queue[1], frame, len));
	}
	CHECK_EQ(sn_port_send(net.port[0], seg, 0, 0), -EMSGSIZE);
	seg[0] = seg[1] = (struct sn_seg){ frame, UINT32_MAX };
	CHECK_EQ(sn_port_send(net.port[0], seg, 2, 0), -EMSGSIZE);
	fab_done(&net);
}

TEST(full_queue_drops_and_counts)
{
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 20);

	setup(2);
	for (int round = 1; round <= 5; round++) {
		uint32_t got = 0, full = (uint32_t)fab_counters(net.port[1]).rx_queue_full;

		for (int i = 0; i < 100; i++)
			CHECK_EQ(fab_send(net.port[0], frame, len), 0);
		full = (uint32_t)fab_counters(net.port[1]).rx_queue_full - full;
		got = fab_drain(net.queue[1]);
		/* The place of up to a quarter is told late. */
		CHECK(got <= 64 && got >= 48);
		CHECK_EQ(got + full, 100);
		if (round == 1)
			CHECK_EQ(got, 64);
	}
	/* A frame of several slots in a queue with room for some of them only. */
	for (int i = 0; i < 64; i++)
		fab_send(net.port[0], frame, len);
	CHECK_EQ(fab_counters(net.port[0]).tx_packets,
		 fab_counters(net.port[1]).rx_packets + fab_counters(net.port[1]).rx_queue_full);
	fab_done(&net);
}

TEST(verdicts)
{
	const uint32_t udp4 = SN_RX_IP4 | SN_RX_UDP, ok = SN_RX_L3_OK | SN_RX_L4_OK;
	struct sn_seg seg = { frame, 0 };
	struct sn_frame f;

	setup(2);
#define VERDICT(want)                                                                                                              \
	do {                                                                                                                       \
		for (int twice = 0; twice < 2; twice++) {                                                                          \
			CHECK_EQ(fab_send(net.port[0], frame, seg.len), 0);                                                        \
			CHECK(sn_rxq_peek(net.queue[1], &f));                                                                      \
			CHECK_EQ(f.flags, want);                                                                                   \
			CHECK_EQ(f.len, seg.len);                                                                                  \
			sn_rxq_pop(net.queue[1]);                                                                                  \
		}                                                                                                                  \
	} while (0)
	seg.len = fab_udp4(frame, 0, 1, 1, 2, 33);
	VERDICT(udp4 | ok);
	frame[50] ^= 1; /* payload */
	VERDICT(udp4 | SN_RX_L3_OK);
	frame[50] ^= 1;
	frame[22] ^= 1; /* TTL: the header's sum is wrong, the datagram's right */
	VERDICT(udp4 | SN_RX_L4_OK);
	frame[22] ^= 1;
	pv_put16(frame + 40, 0); /* none */
	VERDICT(udp4 | SN_RX_L3_OK);
	fab_udp4_sum(frame);
	pv_put16(frame + 38, 8 + 34); /* UDP longer than IP */
	VERDICT(udp4 | SN_RX_L3_OK);
	pv_put16(frame + 38, 7);
	VERDICT(udp4 | SN_RX_L3_OK);
	fab_udp4(frame, 0, 1, 1, 2, 33);
	pv_put16(frame + 16, 28 + 34); /* IP longer than the frame */
	VERDICT(udp4);
	/* Padding behind the datagram belongs to nobody. */
	seg.len = fab_udp4(frame, 0, 1, 1, 2, 1);
	memset(frame + seg.len, 0xee, 17);
	seg.len = 60;
	VERDICT(udp4 | ok);
	/* A fragment has no ports and no verdict on them. */
	seg.len = fab_udp4(frame, 0, 1, 1, 2, 33);
	pv_put16(frame + 20, 0x2000);
	pv_cksum_put(frame + 24, 0);
	pv_cksum_put(frame + 24, pv_cksum_finish(pv_cksum_add(frame + 14, 20, 0)));
	VERDICT(SN_RX_IP4 | SN_RX_FRAG | SN_RX_L3_OK);
	seg.len = fab_udp6(frame, 0, 1, 1, 2, 33);
	VERDICT(SN_RX_IP6 | SN_RX_UDP | ok);
	frame[70] ^= 0x80;
	VERDICT(SN_RX_IP6 | SN_RX_UDP | SN_RX_L3_OK);
	fab_eth(frame, 0, 1, 0x0806);
	VERDICT(0);
	fab_done(&net);
}

TEST(verdict_of_tcp_and_extension_headers)
{
	uint8_t *ip = frame + 14, *tcp = frame + 14 + 40 + 16;
	struct sn_frame f;

	setup(2);
	/* Hop-by-hop and destination options of 8 bytes each, then TCP with 5 bytes. */
	memset(frame, 0, 200);
	fab_eth(frame, 0, 1, 0x86dd);
	ip[0] = 0x60;
	pv_put16(ip + 4, 16 + 25);
	ip[8] = ip[24] = 0xfd;
	ip[40] = 60;
	ip[48] = 6;
	pv_put16(tcp, 7);
	pv_put16(tcp + 2, 8);
	tcp[12] = 0x50;
	memcpy(tcp + 20, "hello", 5);
	pv_cksum_put(tcp + 16, pv_cksum_finish(pv_cksum_add(tcp, 25, pv_cksum_pseudo6(ip + 8, ip + 24, 6, 25))));
	CHECK_EQ(fab_send(net.port[0], frame, 14 + 40 + 16 + 25), 0);
	CHECK(sn_rxq_peek(net.queue[1], &f));
	CHECK_EQ(f.flags, SN_RX_IP6 | SN_RX_TCP | SN_RX_L3_OK | SN_RX_L4_OK);
	sn_rxq_pop(net.queue[1]);
	tcp[20] ^= 1;
	CHECK_EQ(fab_send(net.port[0], frame, 14 + 40 + 16 + 25), 0);
	CHECK(sn_rxq_peek(net.queue[1], &f));
	CHECK_EQ(f.flags, SN_RX_IP6 | SN_RX_TCP | SN_RX_L3_OK);
	sn_rxq_pop(net.queue[1]);
	/* A fragment header hides what follows. */
	ip[6] = 44;
	CHECK_EQ(fab_send(net.port[0], frame, 14 + 40 + 16 + 25), 0);
	CHECK(sn_rxq_peek(net.queue[1], &f));
	CHECK_EQ(f.flags, SN_RX_IP6 | SN_RX_FRAG | SN_RX_L3_OK);
	sn_rxq_pop(net.queue[1]);
	fab_done(&net);
}

/* The sender leaves the checksums to the switch: what arrives is what a sender without offload would have built. */
TEST(offload_fills_checksums)
{
	uint8_t right[256];

	setup(2);
	for (uint32_t n = 0; n < 100; n++) {
		for (int v6 = 0; v6 < 2; v6++) {
			uint32_t len = v6 ? fab_udp6(right, 0, 1, 1, 2, n) : fab_udp4(right, 0, 1, 1, 2, n);
			struct sn_seg seg[2] = { { frame, 30 }, { frame + 30, len - 30 } };

			memcpy(frame, right, len);
			if (!v6)
				pv_put16(frame + 24, 0x1234);
			pv_put16(frame + (v6 ? 60 : 40), 0xbeef);
			for (int i = 0; i < 2; i++) {
				CHECK_EQ(sn_port_send(net.port[0], seg, 2, SN_TX_L3_CSUM | SN_TX_L4_CSUM), 0);
				CHECK(take(net.queue[1], right, len));
			}
		}
	}
	fab_done(&net);
}

TEST(link)
{
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 20), events;
	struct sn_port *second;
	struct sn_waker *w;
	char byte;

	setup(2);
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	CHECK_EQ(sn_port_watch(net.port[1], w), 0);
	second = fab_port(&net, 1);
	events = sn_port_link_events(net.port[1]);
	CHECK(sn_port_link(net.port[1]));
	CHECK_EQ(fab_send(net.port[0], frame, len), 0);
	sn_port_set_link(second, false);
	CHECK(!sn_port_link(net.port[1]));
	CHECK_EQ(sn_port_link_events(net.port[1]), events + 1);
	CHECK_EQ(read(sn_waker_fd(w), &byte, 1), 1);
	CHECK_EQ(fab_send(net.port[1], frame, len), -ENETDOWN);
	CHECK_EQ(fab_send(net.port[0], frame, len), 0);
	CHECK_EQ(fab_send(net.port[0], frame, len), 0);
	CHECK_EQ(fab_drain(net.queue[1]), 1);
	CHECK_EQ(fab_counters(net.port[1]).rx_link_down, 2);
	CHECK_EQ(fab_counters(net.port[1]).tx_link_down, 1);
	sn_port_set_link(second, true);
	sn_port_set_link(second, true);
	CHECK_EQ(sn_port_link_events(net.port[1]), events + 2);
	CHECK_EQ(fab_send(net.port[0], frame, len), 0);
	CHECK_EQ(fab_drain(net.queue[1]), 1);
	sn_waker_close(w);
	fab_done(&net);
}

TEST(stamps)
{
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 20);
	struct timespec a, b;
	struct sn_frame f;

	setup(2);
	sn_rxq_set_tstamp(net.queue[1], true);
	for (int i = 0; i < 3; i++) {
		clock_gettime(CLOCK_MONOTONIC_RAW, &a);
		CHECK_EQ(fab_send(net.port[0], frame, len), 0);
		clock_gettime(CLOCK_MONOTONIC_RAW, &b);
		CHECK(sn_rxq_peek(net.queue[1], &f));
		CHECK(f.tstamp_ns >= (uint64_t)a.tv_sec * 1000000000u + (uint64_t)a.tv_nsec);
		CHECK(f.tstamp_ns <= (uint64_t)b.tv_sec * 1000000000u + (uint64_t)b.tv_nsec);
		sn_rxq_pop(net.queue[1]);
	}
	fab_done(&net);
}

/* Every queue, rule, lane and waker can be had again after it was given back; too many are refused, with the reason. */
TEST(everything_comes_back)
{
	struct sn_port *port[SN_PORTS];
	struct sn_rxq *q[40];
	struct sn_waker *w;
	struct sn_rule rule = { 0 };
	uint64_t handle;

	fab_make(&net);
	for (int round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < SN_PORTS; i++)
			CHECK_EQ(sn_port_attach(net.f, i, NULL, &port[i]), 0);
		/* 40 queues of 4096 slots are most of the arena: a leak would show at once. */
		for (uint32_t i = 0; i < 40; i++)
			CHECK_EQ(sn_rxq_create(port[i], 4096, &q[i]), 0);
		rule.nqueues = 1;
		for (uint32_t i = 0; i < 200; i++) {
			rule.queues = &q[i % 40];
			CHECK_EQ(sn_rule_add(port[i % 40], &rule, &handle), 0);
		}
		CHECK_EQ(sn_rule_del(port[0], handle), 0);
		CHECK_EQ(sn_rule_del(port[0], handle), -ENOENT);
		CHECK_EQ(sn_waker_open(net.f, &w), 0);
		for (uint32_t i = 0; i < 40; i++)
			sn_rxq_destroy(q[i]);
		sn_waker_close(w);
		for (uint32_t i = 0; i < SN_PORTS; i++)
			sn_port_detach(port[i]);
	}
	CHECK_EQ(sn_port_attach(net.f, 0, NULL, &port[0]), 0);
	CHECK_EQ(sn_rxq_create(port[0], 0, &q[0]), -EINVAL);
	CHECK_EQ(sn_rxq_create(port[0], 65537, &q[0]), -EINVAL);
	for (uint32_t i = 0; i < 5; i++) {
		int rc = sn_rxq_create(port[0], 65536, &q[i]);

		CHECK_EQ(rc, i < 4 ? 0 : -ENOSPC);
	}
	CHECK(strstr(sn_error(), "no room"));
	for (uint32_t i = 0; i < 4; i++)
		sn_rxq_destroy(q[i]);
	sn_port_detach(port[0]);
	fab_done(&net);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
