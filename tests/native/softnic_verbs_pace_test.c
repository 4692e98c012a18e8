/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs with a rate. What is checked are stamps, which follow the schedule however late the machine is; how long anything takes by
 * the wall is not.
 */
#include <signal.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "softnic_verbs.h"

#define RX_BUFS 4096u
#define RX_BUF 2048u
#define SECOND UINT64_C(1000000000)

/* A receiver whose completions have stamps. */
struct rx {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_flow *flow;
	uint8_t *buf;
	uint8_t mac[6];
};

struct tx {
	struct ibv_cq_ex *cq;
	struct ibv_comp_channel *chan;
	struct ibv_qp *qp;
};

struct seen {
	uint64_t stamp_ns;
	uint32_t len, number; /* in the first bytes of its payload */
};

static struct rx rx;
static struct side a; /* its device and memory are those of senders */
static struct seen seen[RX_BUFS];
static uint8_t frame[SIDE_BUF];

static struct ibv_cq_ex *stamped_cq(struct ibv_context *ctx, uint32_t cqe, struct ibv_comp_channel *chan)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = chan,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);

	CHECK(cq);
	return cq;
}

static void rx_post(uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)rx.buf + slot * RX_BUF, RX_BUF, rx.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQ(ibv_post_recv(rx.qp, &wr, &bad), 0);
}

static void rx_open(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 0, RX_BUFS, 0, 1, 0 } };
	char name[64];

	rx.ctx = open_port(1, "", name);
	rx.pd = ibv_alloc_pd(rx.ctx);
	rx.cq = stamped_cq(rx.ctx, RX_BUFS, NULL);
	rx.buf = calloc(RX_BUFS, RX_BUF);
	rx.mr = ibv_reg_mr(rx.pd, rx.buf, (size_t)RX_BUFS * RX_BUF, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(rx.cq);
	rx.qp = ibv_create_qp(rx.pd, &init);
	CHECK(rx.mr && rx.qp);
	qp_rts(rx.qp);
	for (uint32_t i = 0; i < RX_BUFS; i++)
		rx_post(i);
	memcpy(rx.mac, (uint8_t[6]){ 0x02, 0x53, 0x4e, 0, 0, 1 }, 6);
	rx.flow = flow_mac(rx.qp, rx.mac);
	CHECK(rx.flow);
}

static struct tx tx_open_on(struct ibv_pd *pd, uint32_t depth, bool all)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { depth, 0, 2, 0, 0 },
		.sq_sig_all = all,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
		.max_tso_header = 64,
	};
	struct tx t;

	t.chan = ibv_create_comp_channel(a.ctx);
	t.cq = stamped_cq(a.ctx, depth, t.chan);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(t.cq);
	t.qp = ibv_create_qp_ex(a.ctx, &init);
	CHECK(t.chan && t.qp);
	qp_rts(t.qp);
	return t;
}

static struct tx tx_open(uint32_t depth)
{
	return tx_open_on(a.pd, depth, true);
}

static void tx_close(struct tx *t)
{
	CHECK_EQ(ibv_destroy_qp(t->qp), 0);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq)), 0);
	CHECK_EQ(ibv_destroy_comp_channel(t->chan), 0);
}

static void open_all(void)
{
	const struct udp4 udp = { .src = 0x0a000001, .dst = 0x0a000002, .sport = 1, .dport = 2 };

	side_open(&a, 0);
	rx_open();
	frame_udp4(frame, rx.mac, a.mac, &udp, 1500 - 28);
}

static void close_all(void)
{
	CHECK_EQ(ibv_close_device(rx.ctx), 0);
	side_close(&a);
	free(rx.buf);
}

static int limit(struct ibv_qp *qp, uint32_t kbps, uint32_t burst, uint16_t typical)
{
	struct ibv_qp_rate_limit_attr attr = { .rate_limit = kbps, .max_burst_sz = burst, .typical_pkt_sz = typical };

	return ibv_modify_qp_rate_limit(qp, &attr);
}

/* A frame of `len` bytes that carries its number. */
static int post(struct tx *t, uint32_t number, uint32_t len, unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)a.buf, len, a.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags },
			   *bad;

	memcpy(a.buf, frame, len);
	put32(a.buf + 42, number);
	return ibv_post_send(t->qp, &wr, &bad);
}

static uint64_t wall_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec;
}

/* One frame; false: none for so long. */
static bool receive(struct seen *s, uint64_t seconds)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t until = wall_s() + seconds;
	const uint8_t *at;

	while (ibv_start_poll(rx.cq, &attr)) {
		if (wall_s() >= until)
			return false;
		usleep(20);
	}
	CHECK_EQ(rx.cq->status, IBV_WC_SUCCESS);
	s->stamp_ns = ibv_wc_read_completion_ts(rx.cq);
	s->len = ibv_wc_read_byte_len(rx.cq);
	at = rx.buf + rx.cq->wr_id * RX_BUF + 42;
	s->number = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
	rx_post((uint32_t)rx.cq->wr_id);
	ibv_end_poll(rx.cq);
	return true;
}

static void receive_n(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		CHECK(receive(&seen[i], 60));
}

/* The next send completion, waited for; its stamp. */
static uint64_t completed(struct tx *t, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t until = wall_s() + 60, stamp;

	while (ibv_start_poll(t->cq, &attr)) {
		CHECK(wall_s() < until);
		usleep(20);
	}
	CHECK_EQ(t->cq->wr_id, wr_id);
	CHECK_EQ(t->cq->status, status);
	stamp = ibv_wc_read_completion_ts(t->cq);
	ibv_end_poll(t->cq);
	return stamp;
}

static void none_completed(struct tx *t)
{
	struct ibv_poll_cq_attr attr = { 0 };

	CHECK_EQ(ibv_start_poll(t->cq, &attr), ENOENT);
}

/* As a bucket sees frames 1 to n: never more than the burst and what the rate gives; and, since they all waited, never less. */
static void check_schedule(uint32_t n, uint32_t len, double kbps, double burst)
{
	double step = len * 8e6 / kbps, free_at = 0;
	uint32_t first = 1 + (uint32_t)(burst / len);

	for (uint32_t i = 1; i < n; i++) {
		double at = (double)(seen[i].stamp_ns - seen[1].stamp_ns), earliest = free_at - (burst - len) * 8e6 / kbps;
		double gap = (double)(seen[i].stamp_ns - seen[i - 1].stamp_ns);

		CHECK_EQ(seen[i].number, i);
		CHECK_EQ(seen[i].len, len);
		CHECK(at >= earliest - 2);
		free_at = (free_at > at ? free_at : at) + step;
		if (i > first && (gap < step - 2 || gap > step + 2)) {
			fprintf(stderr, "frame %u left %.0f ns after the one before it, not %.0f\n", i, gap, step);
			CHECK(false);
		}
	}
}

static void hold_rate(struct tx *t, uint32_t kbps, uint32_t n, uint32_t len, uint32_t burst)
{
	uint64_t span;
	double rate;

	/* All wait behind the first, so that it does not matter how fast they are posted. */
	CHECK_EQ(limit(t->qp, 1, 1, 0), 0);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(post(t, i, len, 0), 0);
	CHECK_EQ(limit(t->qp, kbps, burst, 0), 0);
	receive_n(n);
	check_schedule(n, len, kbps, !burst ? 2 * 1518 : burst < len ? len : burst);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(completed(t, i, IBV_WC_SUCCESS), seen[i].stamp_ns);
	none_completed(t);
	/* From behind the burst on. */
	span = seen[n - 1].stamp_ns - seen[n / 4].stamp_ns;
	rate = (double)(n - 1 - n / 4) * len * 8e6 / (double)span;
	printf("   %u kbit/s: %.1f, %u frames of %u\n", kbps, rate, n, len);
	CHECK(rate > kbps * 0.999 && rate < kbps * 1.001);
}

TEST(rates_are_held)
{
	struct tx t;

	open_all();
	t = tx_open(2048);
	hold_rate(&t, 1000, 40, 1250, 0);
	hold_rate(&t, 10000, 200, 1000, 0);
	hold_rate(&t, 100000, 1000, 1514, 0);
	hold_rate(&t, 1000000, 2000, 1514, 0);
	hold_rate(&t, 2000000, 2000, 1514, 0);
	hold_rate(&t, 10000000, 2000, 1514, 0);
	/* A frame takes no whole number of nanoseconds. */
	hold_rate(&t, 77777777, 2000, 64, 64);
	tx_close(&t);
	close_all();
}

/* One that posts whenever there is room: nothing is lost, and never more than the rate allows, wherever one begins to count. */
TEST(posted_while_they_leave)
{
	const uint32_t kbps = 500000, n = 3000, len = 1514, depth = 128;
	double step = len * 8e6 / kbps, full_at = 0;
	struct ibv_poll_cq_attr attr = { 0 };
	uint32_t posted = 0, done = 0, got = 0;
	uint64_t first = 0, until = wall_s() + 60;
	struct tx t;

	open_all();
	t = tx_open(depth);
	CHECK_EQ(limit(t.qp, kbps, 0, 0), 0);
	while (got < n) {
		CHECK(wall_s() < until);
		while (posted < n && posted - done < depth)
			CHECK_EQ(post(&t, posted++, len, 0), 0);
		while (!ibv_start_poll(t.cq, &attr)) {
			CHECK_EQ(t.cq->wr_id, done++);
			CHECK_EQ(t.cq->status, IBV_WC_SUCCESS);
			ibv_end_poll(t.cq);
		}
		while (got < n && receive(&seen[0], 0)) {
			double at;

			CHECK_EQ(seen[0].number, got);
			first = got++ ? first : seen[0].stamp_ns;
			at = (double)(seen[0].stamp_ns - first);
			CHECK(at >= full_at - (2 * 1518 - len) * 8e6 / kbps - 2);
			full_at = (full_at > at ? full_at : at) + step;
		}
	}
	printf("   %.1f kbit/s\n", (n - 1) * len * 8e6 / (double)(seen[0].stamp_ns - first));
	tx_close(&t);
	close_all();
}

TEST(bursts_are_bounded)
{
	struct tx t;
	uint64_t step = 1000 * UINT64_C(8000000) / 20000;

	open_all();
	t = tx_open(256);
	hold_rate(&t, 20000, 200, 1000, 10000);
	/* A burst is for once; one that is smaller than a frame is a frame. */
	hold_rate(&t, 20000, 50, 1000, 1);
	for (uint32_t i = 2; i < 50; i++)
		CHECK(seen[i].stamp_ns - seen[i - 1].stamp_ns >= step - 1);
	/* Typical packets of 100 bytes: the device takes two of them for a burst, so every frame of 1000 is on its own. */
	CHECK_EQ(limit(t.qp, 20000, 0, 100), 0);
	for (uint32_t i = 0; i < 20; i++)
		CHECK_EQ(post(&t, i, 1000, 0), 0);
	receive_n(20);
	for (uint32_t i = 1; i < 20; i++)
		CHECK(seen[i].stamp_ns - seen[i - 1].stamp_ns >= step - 1);
	tx_close(&t);
	close_all();
}

TEST(completion_is_departure)
{
	struct ibv_cq *cq;
	struct pollfd p = { .events = POLLIN };
	struct tx t;
	void *ctx;

	open_all();
	t = tx_open(4);
	/* A frame of 1514 bytes takes 12 ms. The first has left when it is posted, the burst lets the second follow. */
	CHECK_EQ(limit(t.qp, 1000, 1, 0), 0);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQ(post(&t, i, 1514, 0), 0);
	CHECK_EQ(post(&t, 4, 1514, 0), ENOMEM);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t stamp = completed(&t, i, IBV_WC_SUCCESS);

		CHECK(receive(&seen[i], 60));
		CHECK_EQ(seen[i].number, i);
		CHECK_EQ(stamp, seen[i].stamp_ns);
	}
	CHECK_EQ(post(&t, 4, 1514, 0), 0);
	/* Somebody who sleeps is woken by each. */
	cq = ibv_cq_ex_to_cq(t.cq);
	p.fd = t.chan->fd;
	for (uint32_t i = 3; i < 5; i++) {
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		CHECK_EQ(poll(&p, 1, 60000), 1);
		CHECK_EQ(ibv_get_cq_event(t.chan, &cq, &ctx), 0);
		ibv_ack_cq_events(cq, 1);
		completed(&t, i, IBV_WC_SUCCESS);
	}
	tx_close(&t);
	close_all();
}

/* A request that asks for no completion has none, and one that does says that all before it have left. */
TEST(unsignalled)
{
	struct tx t;

	open_all();
	t = tx_open_on(a.pd, 8, false);
	CHECK_EQ(limit(t.qp, 1000000, 0, 0), 0);
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < 8; i++)
			CHECK_EQ(post(&t, round * 8 + i, 1000, i == 7 ? IBV_SEND_SIGNALED : 0), 0);
		CHECK_EQ(post(&t, 0, 1000, 0), ENOMEM);
		completed(&t, round * 8 + 7, IBV_WC_SUCCESS);
		none_completed(&t);
	}
	receive_n(160);
	for (uint32_t i = 0; i < 160; i++)
		CHECK_EQ(seen[i].number, i);
	tx_close(&t);
	close_all();
}

/* At 1 kbit/s nothing behind the first frame leaves while this test lives. */
static void hold_some(struct tx *t, uint32_t n)
{
	CHECK_EQ(limit(t->qp, 1, 1, 0), 0);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(post(t, i, 1514, 0), 0);
	CHECK(receive(&seen[0], 60));
	completed(t, 0, IBV_WC_SUCCESS);
	none_completed(t);
}

TEST(changed_and_removed_live)
{
	const uint64_t step = 1514 * UINT64_C(8000000) / 1000000;
	struct tx t;

	open_all();
	t = tx_open(64);
	hold_some(&t, 60);
	/* What is held goes by the new rate. */
	CHECK_EQ(limit(t.qp, 1000000, 1, 0), 0);
	receive_n(59);
	for (uint32_t i = 0; i < 59; i++) {
		CHECK_EQ(seen[i].number, i + 1);
		CHECK_EQ(completed(&t, i + 1, IBV_WC_SUCCESS), seen[i].stamp_ns);
		if (i > 1)
			CHECK(seen[i].stamp_ns - seen[i - 1].stamp_ns <= step + 1 &&
			      seen[i].stamp_ns - seen[i - 1].stamp_ns >= step - 1);
	}
	/* Without a rate it goes at once, before the call returns, and completions follow in order. */
	hold_some(&t, 60);
	CHECK_EQ(limit(t.qp, 0, 0, 0), 0);
	CHECK_EQ(post(&t, 60, 1514, 0), 0);
	for (uint32_t i = 1; i <= 60; i++) {
		struct ibv_poll_cq_attr attr = { 0 };

		CHECK_EQ(ibv_start_poll(t.cq, &attr), 0);
		CHECK_EQ(t.cq->wr_id, i);
		ibv_end_poll(t.cq);
		CHECK(receive(&seen[i], 60));
		CHECK_EQ(seen[i].number, i);
		CHECK(seen[i].stamp_ns >= seen[i - 1].stamp_ns);
	}
	tx_close(&t);
	close_all();
}

static uint64_t counter(const char *device, const char *name)
{
	char json[1024], key[64], *at;

	CHECK(softnic_counters(device, json, sizeof(json)) > 0);
	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = strstr(json, key);
	CHECK(at);
	return strtoull(at + strlen(key), NULL, 10);
}

TEST(ends_with_frames_held)
{
	struct ibv_wc wc;
	struct tx t;

	open_all();
	t = tx_open(16);
	hold_some(&t, 10);
	/* ERR: what has not left is flushed, and never leaves. */
	CHECK_EQ(qp_to(t.qp, IBV_QPS_ERR), 0);
	for (uint32_t i = 1; i < 10; i++)
		completed(&t, i, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(post(&t, 77, 1514, 0), 0);
	completed(&t, 77, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(counter(a.name, "tx_impaired_loss"), 9);
	/* RESET: nothing remains, the rate neither. */
	CHECK_EQ(qp_to(t.qp, IBV_QPS_RESET), 0);
	qp_rts(t.qp);
	hold_some(&t, 10);
	CHECK_EQ(qp_to(t.qp, IBV_QPS_RESET), 0);
	none_completed(&t);
	qp_rts(t.qp);
	for (uint32_t i = 0; i < 16; i++) {
		CHECK_EQ(post(&t, i, 1514, 0), 0);
		CHECK(receive(&seen[i], 60));
		CHECK_EQ(seen[i].number, i);
		completed(&t, i, IBV_WC_SUCCESS);
	}
	hold_some(&t, 10);
	CHECK_EQ(counter(a.name, "tx_impaired_loss"), 18);
	CHECK_EQ(ibv_destroy_qp(t.qp), 0);
	CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(t.cq), 1, &wc), 0);
	CHECK_EQ(counter(a.name, "tx_impaired_loss"), 27);
	t.qp = NULL;
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(t.cq)), 0);
	CHECK(!receive(&seen[0], 1));
	/* A context that is closed takes paced queue pairs along. */
	t = tx_open(16);
	hold_some(&t, 10);
	CHECK_EQ(ibv_close_device(a.ctx), 0);
	free(a.buf);
	CHECK_EQ(ibv_close_device(rx.ctx), 0);
	free(rx.buf);
}

/* However the end and a departure meet, a completion says whether its frame left. */
TEST(ends_while_frames_leave)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint32_t flushed = 0, mixed = 0;
	struct pv_rng rng;
	struct tx t;

	pv_rng_seed(&rng, 5);
	open_all();
	t = tx_open(32);
	for (uint32_t turn = 0; turn < 400; turn++) {
		uint32_t left = 0;

		CHECK_EQ(limit(t.qp, 1, 1, 0), 0);
		for (uint32_t i = 0; i <= 32; i++)
			CHECK_EQ(post(&t, i, 60, 0), i < 32 ? 0 : ENOMEM);
		CHECK_EQ(limit(t.qp, 1000000, 1, 0), 0);
		for (uint64_t spin = pv_rng_below(&rng, 6000); spin; spin--)
			pv_cpu_relax();
		CHECK_EQ(qp_to(t.qp, IBV_QPS_ERR), 0);
		for (uint32_t i = 0; i < 32; i++) {
			CHECK_EQ(ibv_start_poll(t.cq, &attr), 0);
			CHECK_EQ(t.cq->wr_id, i);
			left += t.cq->status == IBV_WC_SUCCESS;
			ibv_end_poll(t.cq);
		}
		none_completed(&t);
		receive_n(left);
		CHECK(!receive(&seen[0], 0));
		flushed += left == 0;
		mixed += left && left < 32;
		CHECK_EQ(qp_to(t.qp, IBV_QPS_RESET), 0);
		qp_rts(t.qp);
	}
	printf("   ended before %u times, in the middle %u\n", flushed, mixed);
	tx_close(&t);
	close_all();
}

/* A request that fails does so behind those before it, which leave at their time. */
TEST(error_behind_held_frames)
{
	struct ibv_sge sge = { 0, 100, 0xdeadbeef };
	struct ibv_send_wr wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct tx t;

	open_all();
	t = tx_open(16);
	CHECK_EQ(limit(t.qp, 1000, 1, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(post(&t, i, 1514, 0), 0);
	CHECK_EQ(ibv_post_send(t.qp, &wr, &bad), 0);
	CHECK_EQ(qp_state(t.qp), IBV_QPS_ERR);
	CHECK_EQ(post(&t, 4, 1514, 0), 0);
	for (uint32_t i = 0; i < 3; i++)
		completed(&t, i, IBV_WC_SUCCESS);
	completed(&t, 3, IBV_WC_LOC_PROT_ERR);
	completed(&t, 4, IBV_WC_WR_FLUSH_ERR);
	receive_n(3);
	CHECK_EQ(limit(t.qp, 2000, 0, 0), EINVAL);
	tx_close(&t);
	close_all();
}

TEST(two_rates)
{
	const uint32_t n = 300;
	uint64_t last[2] = { 0 };
	uint32_t count[2] = { 0 };
	struct tx slow, fast;

	open_all();
	slow = tx_open(512);
	fast = tx_open(512);
	CHECK_EQ(limit(slow.qp, 1, 1, 0), 0);
	CHECK_EQ(limit(fast.qp, 1, 1, 0), 0);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(post(&slow, i, 1000, 0), 0);
		CHECK_EQ(post(&fast, i | 1u << 31, 1000, 0), 0);
	}
	CHECK_EQ(limit(slow.qp, 50000, 1, 0), 0);
	CHECK_EQ(limit(fast.qp, 150000, 1, 0), 0);
	for (uint32_t i = 0; i < 2 * n; i++) {
		uint32_t of;

		CHECK(receive(&seen[0], 60));
		of = seen[0].number >> 31;
		CHECK_EQ(seen[0].number & 0x7fffffff, count[of]);
		if (count[of] > 1) {
			uint64_t step = of ? 53333 : 160000, gap = seen[0].stamp_ns - last[of];

			CHECK(gap >= step - 1 && gap <= step + 1);
		}
		last[of] = seen[0].stamp_ns;
		count[of]++;
	}
	tx_close(&slow);
	tx_close(&fast);
	close_all();
}

static int modify(struct ibv_qp *qp, int mask, enum ibv_qp_state state, uint32_t kbps)
{
	struct ibv_qp_attr attr = { .qp_state = state, .cur_qp_state = IBV_QPS_RTS, .rate_limit = kbps, .port_num = 1 };

	return ibv_modify_qp(qp, &attr, mask);
}

TEST(what_is_refused)
{
	struct ibv_qp_rate_limit_attr attr = { .rate_limit = 1000, .comp_mask = 1 };
	struct tx t;

	open_all();
	t = tx_open(16);
	CHECK_EQ(ibv_modify_qp_rate_limit(t.qp, &attr), EINVAL);
	CHECK_EQ(limit(t.qp, 100000001, 0, 0), EINVAL);
	CHECK_EQ(limit(t.qp, 100000000, 0, 0), 0);
	CHECK_EQ(limit(t.qp, 0, 1000, 0), EINVAL);
	CHECK_EQ(limit(t.qp, 0, 0, 1000), EINVAL);
	CHECK_EQ(limit(t.qp, 0, 0, 0), 0);
	CHECK_EQ(limit(t.qp, 0, 0, 0), 0);
	/* Only in RTS. */
	CHECK_EQ(qp_to(t.qp, IBV_QPS_ERR), 0);
	CHECK_EQ(limit(t.qp, 1000, 0, 0), EINVAL);
	CHECK_EQ(qp_to(t.qp, IBV_QPS_RESET), 0);
	CHECK_EQ(limit(t.qp, 1000, 0, 0), EINVAL);
	CHECK_EQ(modify(t.qp, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_RATE_LIMIT, IBV_QPS_INIT, 1000), EINVAL);
	CHECK_EQ(qp_to(t.qp, IBV_QPS_INIT), 0);
	CHECK_EQ(modify(t.qp, IBV_QP_RATE_LIMIT, IBV_QPS_INIT, 1000), EINVAL);
	CHECK_EQ(modify(t.qp, IBV_QP_STATE | IBV_QP_RATE_LIMIT, IBV_QPS_RTR, 1000), EINVAL);
	CHECK_EQ(qp_to(t.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(limit(t.qp, 1000, 0, 0), EINVAL);
	/* With the step to RTS, and there. */
	CHECK_EQ(modify(t.qp, IBV_QP_STATE | IBV_QP_RATE_LIMIT, IBV_QPS_RTS, 100000001), EINVAL);
	CHECK_EQ(qp_state(t.qp), IBV_QPS_RTR);
	CHECK_EQ(modify(t.qp, IBV_QP_STATE | IBV_QP_RATE_LIMIT, IBV_QPS_RTS, 10), 0);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQ(post(&t, i, 1514, 0), 0);
	receive_n(2);
	CHECK_EQ(seen[1].number, 1);
	CHECK_EQ(modify(t.qp, IBV_QP_RATE_LIMIT, IBV_QPS_RTS, 1000000), 0);
	receive_n(2);
	CHECK_EQ(seen[1].number, 3);
	CHECK_EQ(modify(t.qp, IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_RATE_LIMIT, IBV_QPS_RTS, 0), 0);
	tx_close(&t);
	/* There is nothing to limit, and that is no error. */
	CHECK_EQ(limit(rx.qp, 1000, 0, 0), 0);
	close_all();
}

TEST(segments_are_paced)
{
	struct ibv_sge sge = { (uintptr_t)a.buf, 10000, 0 };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_TSO }, *bad;
	uint8_t h[54];
	struct tx t;

	open_all();
	t = tx_open(4);
	memcpy(h, frame, 34);
	h[23] = 6;
	memset(h + 34, 0, 20);
	h[46] = 0x50;
	sge.addr = (uintptr_t)a.buf;
	sge.lkey = a.mr->lkey;
	wr.tso.hdr = h;
	wr.tso.hdr_sz = sizeof(h);
	wr.tso.mss = 946;
	CHECK_EQ(limit(t.qp, 1, 1, 0), 0);
	CHECK_EQ(ibv_post_send(t.qp, &wr, &bad), 0);
	CHECK(receive(&seen[0], 60));
	none_completed(&t);
	CHECK_EQ(limit(t.qp, 100000, 1, 0), 0);
	for (uint32_t i = 1; i < 11; i++)
		CHECK(receive(&seen[i], 60));
	for (uint32_t i = 2; i < 11; i++)
		CHECK_EQ(seen[i].stamp_ns - seen[i - 1].stamp_ns, 80000);
	CHECK_EQ(completed(&t, 1, IBV_WC_SUCCESS), seen[10].stamp_ns);
	tx_close(&t);
	close_all();
}

/* Objects that one thread alone uses have no locks; the thread that lets frames out may not need any. */
TEST(thread_domain)
{
	struct ibv_td_init_attr ta = { 0 };
	struct ibv_parent_domain_init_attr pa = { 0 };
	struct ibv_td *td;
	struct ibv_pd *pd;
	struct tx t;

	open_all();
	td = ibv_alloc_td(a.ctx, &ta);
	pa.pd = a.pd;
	pa.td = td;
	pd = ibv_alloc_parent_domain(a.ctx, &pa);
	CHECK(td && pd);
	t = tx_open_on(pd, 2048, true);
	hold_rate(&t, 5000000, 1500, 1514, 0);
	tx_close(&t);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_dealloc_td(td), 0);
	close_all();
}

/* A port that delays what it sends: frames leave the queue pair in time and arrive later, in order. */
TEST(with_impairments)
{
	struct tx t;

	open_all();
	CHECK_EQ(softnic_impair(a.name, "delay=2ms,rate=1Gbit"), 0);
	t = tx_open(256);
	CHECK_EQ(limit(t.qp, 100000, 0, 0), 0);
	for (uint32_t i = 0; i < 200; i++)
		CHECK_EQ(post(&t, i, 1000, 0), 0);
	receive_n(200);
	for (uint32_t i = 0; i < 200; i++) {
		CHECK_EQ(seen[i].number, i);
		CHECK(seen[i].stamp_ns >= completed(&t, i, IBV_WC_SUCCESS) + 2000000);
	}
	CHECK_EQ(softnic_impair(a.name, ""), 0);
	tx_close(&t);
	close_all();
}

/* A process that dies takes with it what it held; a fork takes nothing. */
TEST(killed_and_forked)
{
	int status, ready[2];
	char byte = 0;
	struct tx t;
	pid_t pid;

	rx_open();
	CHECK_EQ(pipe(ready), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		/* The parent's objects are of no use here. */
		memset(&a, 0, sizeof(a));
		side_open(&a, 0);
		t = tx_open(64);
		CHECK_EQ(limit(t.qp, 1, 1, 0), 0);
		memcpy(frame, "\x02\x53\x4e\x00\x00\x01\x02\x53\x4e\x00\x00\x00\x08\x00", 14);
		for (uint32_t i = 0; i < 50; i++)
			CHECK_EQ(post(&t, i, 1000, 0), 0);
		CHECK_EQ(write(ready[1], &byte, 1), 1);
		pause();
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	CHECK(receive(&seen[0], 60));
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	side_open(&a, 0);
	CHECK_EQ(counter(a.name, "tx_impaired_loss"), 49);
	t = tx_open(64);
	frame_udp4(frame, rx.mac, a.mac, &(struct udp4){ .src = 1, .dst = 2 }, 1472);
	CHECK_EQ(limit(t.qp, 1, 1, 0), 0);
	for (uint32_t i = 0; i < 20; i++)
		CHECK_EQ(post(&t, i, 1000, 0), 0);
	CHECK(receive(&seen[0], 60));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		struct ibv_wc wc;

		_exit(!ibv_poll_cq(ibv_cq_ex_to_cq(t.cq), 1, &wc) && post(&t, 9, 1000, 0) == ENODEV &&
			      limit(t.qp, 9, 0, 0) == ENODEV && !ibv_destroy_qp(t.qp) && !ibv_close_device(a.ctx)
			  ? 0
			  : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(limit(t.qp, 0, 0, 0), 0);
	receive_n(19);
	CHECK_EQ(seen[18].number, 19);
	tx_close(&t);
	close_all();
	close(ready[0]);
	close(ready[1]);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
