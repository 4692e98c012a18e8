/* SPDX-License-Identifier: BSD-3-Clause */
/* Impairments: their shares, the order of frames, what the counters say of them. */
#include <sched.h>

#include "softnic_fabric_util.h"

#define FRAMES 20000u
#define LIMIT_S 60

static struct fab_net net;
static struct sn_port *tx, *rx;
static struct sn_rxq *q;
static uint8_t frame[128];
static uint32_t len;

static void setup(const struct sn_impairments *imp)
{
	fab_make(&net);
	tx = fab_port(&net, 0);
	rx = fab_port(&net, 1);
	fab_rule_all(rx, q = fab_queue(rx, 65536));
	len = fab_udp4(frame, 0, 1, 1, 2, 64);
	pv_put32(frame + 60, 0);
	fab_udp4_sum(frame);
	CHECK_EQ(sn_port_impair(tx, imp), 0);
}

static void send_all(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		pv_put32(frame + 60, i);
		fab_udp4_sum(frame);
		CHECK_EQ(fab_send(tx, frame, len), 0);
	}
}

struct result {
	uint32_t got, damaged, passed, twice;
};

/* Takes frames until the counters say that all have come; `passed` is how many a later one came before. */
static struct result receive(uint32_t want)
{
	static uint8_t seen[FRAMES * 2];
	struct result r = { 0 };
	struct timespec a, b;
	uint32_t newest = 0;

	memset(seen, 0, sizeof(seen));
	clock_gettime(CLOCK_MONOTONIC, &a);
	while (r.got < want) {
		struct sn_frame f;
		uint32_t n;

		if (!sn_rxq_peek(q, &f)) {
			clock_gettime(CLOCK_MONOTONIC, &b);
			CHECK(b.tv_sec - a.tv_sec < LIMIT_S);
			sched_yield();
			continue;
		}
		r.got++;
		if ((f.flags & (SN_RX_L3_OK | SN_RX_L4_OK)) != (SN_RX_L3_OK | SN_RX_L4_OK)) {
			r.damaged++;
		} else {
			n = pv_get32(f.seg[0] + 60) + 1;
			CHECK(n < sizeof(seen));
			r.twice += seen[n]++;
			if (n < newest)
				r.passed++;
			else
				newest = n;
		}
		sn_rxq_pop(q);
	}
	return r;
}

static bool near_share(uint64_t n, uint32_t of, uint32_t ppm)
{
	double want = (double)of * ppm / 1e6, sd = __builtin_sqrt(want);

	return (double)n > want - 6 * sd && (double)n < want + 6 * sd;
}

TEST(loss_duplication_corruption)
{
	struct sn_impairments imp = { .loss_ppm = 100000, .duplicate_ppm = 50000, .corrupt_ppm = 30000, .seed = 5 };
	struct sn_port_counters c, again;
	struct result r;

	setup(&imp);
	send_all(FRAMES);
	c = fab_counters(tx);
	r = receive((uint32_t)fab_counters(rx).rx_packets);
	/* A damaged address may have sent a frame home. */
	CHECK_EQ(r.got + fab_counters(tx).rx_no_rule, FRAMES - c.tx_impaired_loss + c.tx_duplicated);
	CHECK_EQ(c.tx_packets, FRAMES);
	CHECK(near_share(c.tx_impaired_loss, FRAMES, 100000));
	CHECK(near_share(c.tx_duplicated, FRAMES * 9 / 10, 50000));
	CHECK(near_share(c.tx_corrupted, FRAMES * 9 / 10, 30000));
	/* Damage to a MAC or to padding is no wrong checksum; nothing else damages. */
	CHECK(r.damaged > 0);
	CHECK(r.damaged <= 2 * c.tx_corrupted);
	CHECK(r.twice <= c.tx_duplicated && r.twice > c.tx_duplicated * 8 / 10);
	CHECK_EQ(r.passed, 0);
	CHECK_EQ(c.tx_reordered, 0);
	fab_done(&net);
	/* The same seed, the same fate. */
	setup(&imp);
	send_all(FRAMES);
	again = fab_counters(tx);
	CHECK(!memcmp(&c, &again, sizeof(c)));
	fab_done(&net);
	imp.seed++;
	setup(&imp);
	send_all(FRAMES);
	again = fab_counters(tx);
	CHECK(c.tx_impaired_loss != again.tx_impaired_loss);
	fab_done(&net);
}

TEST(all_or_nothing)
{
	struct sn_impairments imp = { .loss_ppm = 1000000 };

	setup(&imp);
	send_all(100);
	CHECK_EQ(fab_counters(tx).tx_impaired_loss, 100);
	CHECK_EQ(fab_drain(q), 0);
	imp = (struct sn_impairments){ .duplicate_ppm = 1000000 };
	CHECK_EQ(sn_port_impair(tx, &imp), 0);
	send_all(100);
	CHECK_EQ(fab_drain(q), 200);
	imp = (struct sn_impairments){ 0 };
	CHECK_EQ(sn_port_impair(tx, &imp), 0);
	send_all(100);
	CHECK_EQ(fab_drain(q), 100);
	imp.loss_ppm = 1000001;
	CHECK_EQ(sn_port_impair(tx, &imp), -EINVAL);
	imp = (struct sn_impairments){ .delay_ns = UINT64_MAX };
	CHECK_EQ(sn_port_impair(tx, &imp), -EINVAL);
	fab_done(&net);
}

/* Only frames that really were passed are counted as reordered. */
TEST(reordering)
{
	struct sn_impairments imp = { .reorder_ppm = 20000, .seed = 11 };
	struct sn_port_counters c;
	struct result r;

	setup(&imp);
	send_all(FRAMES);
	r = receive(FRAMES);
	c = fab_counters(tx);
	CHECK_EQ(r.damaged, 0);
	CHECK_EQ(r.twice, 0);
	CHECK(r.passed > FRAMES / 100);
	CHECK_EQ(c.tx_reordered, r.passed);
	CHECK_EQ(c.tx_impaired_loss, 0);
	/* Alone, a frame has nobody to be passed by: it comes late and in order. */
	imp.reorder_ppm = 1000000;
	CHECK_EQ(sn_port_impair(tx, &imp), 0);
	for (uint32_t i = 0; i < 5; i++) {
		CHECK_EQ(fab_send(tx, frame, len), 0);
		CHECK_EQ(receive(1).got, 1);
	}
	CHECK_EQ(fab_counters(tx).tx_reordered, c.tx_reordered);
	fab_done(&net);
}

TEST(delay_keeps_order)
{
	struct sn_impairments imp = { .delay_ns = 3000000, .jitter_ns = 2000000, .seed = 1 };
	struct timespec a, b;
	struct result r;

	setup(&imp);
	clock_gettime(CLOCK_MONOTONIC, &a);
	CHECK_EQ(fab_send(tx, frame, len), 0);
	CHECK_EQ(receive(1).got, 1);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec >= 1000000);
	send_all(5000);
	/* With the delay gone, what comes behind does not pass those on their way. */
	imp = (struct sn_impairments){ 0 };
	CHECK_EQ(sn_port_impair(tx, &imp), 0);
	pv_put32(frame + 60, 6000);
	fab_udp4_sum(frame);
	CHECK_EQ(fab_send(tx, frame, len), 0);
	r = receive(5001);
	CHECK_EQ(r.passed, 0);
	CHECK_EQ(r.damaged + r.twice, 0);
	CHECK_EQ(fab_counters(tx).tx_impaired_loss, 0);
	CHECK_EQ(fab_counters(tx).tx_reordered, 0);
	fab_done(&net);
}

/* Two senders share the rate of their port: 200 frames of 130 bytes on the wire at 10 Mbit/s are 20.8 ms. */
TEST(rate)
{
	struct sn_impairments imp = { .rate_kbps = 10000 };
	struct sn_port *second;
	struct timespec a, b;

	setup(&imp);
	second = fab_port(&net, 0);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint32_t i = 0; i < 100; i++) {
		CHECK_EQ(fab_send(tx, frame, len), 0);
		CHECK_EQ(fab_send(second, frame, len), 0);
	}
	CHECK_EQ(receive(200).got, 200);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec >= 200 * 130 * 8 * 100);
	fab_done(&net);
}

/* What is on the wire when its sender goes still arrives; a sender that does not stop is bounded. */
TEST(leaving_and_overflow)
{
	struct sn_impairments imp = { .delay_ns = UINT64_C(30000000000) };
	struct sn_port_counters c;
	struct result r;

	setup(&imp);
	send_all(300);
	CHECK_EQ(fab_drain(q), 0);
	sn_port_detach(tx);
	net.port[0] = net.port[1];
	net.nports = 1;
	r = receive(300);
	CHECK_EQ(r.passed, 0);
	tx = fab_port(&net, 0);
	CHECK_EQ(sn_port_impair(tx, &imp), 0);
	send_all(FRAMES);
	c = fab_counters(tx);
	CHECK_EQ(c.tx_impaired_loss, FRAMES - 16384);
	fab_done(&net);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
