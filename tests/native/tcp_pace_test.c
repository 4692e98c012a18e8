/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that are held to a rate: when segments leave, how many wait in the device, and how a connection comes and goes. */
#include "base/rng.h"
#include "tcp_peer.h"

#define MS PV_NS_PER_MS
#define SEC PV_NS_PER_S
#define MSS 1448u
#define WIRE 66u

static const struct peer_cfg device = { .txqs = 2, .pacing_min_kbps = 10, .pacing_max_kbps = 1000000 };

static void pace(struct peer *p, uint64_t rate)
{
	pv_tcp_options(p->c)->pacing_rate = rate;
	pv_tcp_options_changed(p->c, p->w.now);
}

static struct pv_txq_info queue_of(const struct peer *p)
{
	struct pv_txq_info q;

	CHECK(pv_tcp_pacing_info(p->c, &q));
	return q;
}

/* Takes what has come, in order and without repetition, and acknowledges it. */
static uint32_t take(struct peer *p, uint32_t got)
{
	const struct peer_seg *s;

	while ((s = peer_next(p))) {
		CHECK_EQ(s->seq, got);
		got += s->len;
	}
	peer_ack(p, got);
	return got;
}

static void paced(uint64_t rate, uint32_t total)
{
	uint64_t limit = PV_MAX(2 * (MSS + WIRE), rate / 250) + MSS + WIRE;
	struct peer p;
	int64_t start;
	uint32_t got = 1, segs = 0;

	peer_begin(&p, device);
	pace(&p, rate);
	start = p.w.now;
	for (int i = 0; i < 100000 && got < total + 1; i++) {
		if (p.written < total + 1)
			(void)peer_try_write(&p, PV_MIN(total + 1 - p.written, 1u << 20), 0);
		CHECK_EQ(queue_of(&p).by, PV_TXQ_DEVICE);
		CHECK(queue_of(&p).load.bytes <= limit);
		peer_run_until(&p, p.w.now + 20 * SEC, 0);
		segs += p.tail - p.head;
		got = take(&p, got);
	}
	CHECK_EQ(got, total + 1);
	/* The first leaves at once, and all others in time: the device never had nothing to send. */
	uint64_t wire = (uint64_t)total + (uint64_t)segs * WIRE;

	CHECK(p.w.now - start >= (int64_t)((wire - 2 * (MSS + WIRE)) * (uint64_t)SEC / rate) - MS);
	CHECK(p.w.now - start <= (int64_t)(wire * (uint64_t)SEC / rate) + MS);
	/* What waits in the device is not sent again, however long that is. */
	CHECK_EQ(pv_tcp_table_counters(peer_table(&p))->tx_retransmits, 0);
	peer_close(&p);
}

TEST(the_device_keeps_the_rate)
{
	paced(5000, 60000);
	paced(125000, 400000);
	paced(12500000, 1000000);
	paced(125000000, 2000000);
}

TEST(what_the_device_cannot_do_we_do)
{
	struct peer p;

	peer_begin(&p, device);
	pace(&p, 1000);
	CHECK_EQ(queue_of(&p).by, PV_TXQ_SOFTWARE);
	CHECK_EQ(queue_of(&p).why, PV_TXQ_BELOW);
	pace(&p, 130000000);
	CHECK_EQ(queue_of(&p).why, PV_TXQ_ABOVE);
	pace(&p, 125000);
	CHECK_EQ(queue_of(&p).by, PV_TXQ_DEVICE);
	pv_tcp_options(p.c)->pacing_burst = 3000;
	pv_tcp_options_changed(p.c, p.w.now);
	CHECK_EQ(queue_of(&p).by, PV_TXQ_SOFTWARE);
	CHECK_EQ(queue_of(&p).why, PV_TXQ_NO_BURST);
	pv_tcp_options(p.c)->pacing_burst = 0;
	pace(&p, 0);
	peer_write(&p, 10);
	CHECK(!pv_tcp_pacing_info(p.c, &(struct pv_txq_info){ 0 }));
	CHECK_EQ(pv_net_paced(p.w.host[0].net), 0);
	peer_skip(&p);
	peer_close(&p);
}

/* Segments of all lengths, headers and all: never more than the burst ahead of the rate, and what waits leaves at the rate. */
TEST(a_burst_by_us)
{
	const uint64_t rate = 1250000;
	const struct peer_seg *s;
	struct pv_rng rng;
	struct peer p;
	uint32_t got = 1;
	uint64_t wire = 0;
	int64_t last = 0, busy = 0;
	double level = 0;

	pv_rng_seed(&rng, 9);
	peer_begin(&p, device);
	pv_tcp_options(p.c)->pacing_burst = 6000;
	pv_tcp_options(p.c)->nodelay = true;
	pace(&p, rate);
	CHECK_EQ(queue_of(&p).by, PV_TXQ_SOFTWARE);
	CHECK_EQ(queue_of(&p).why, PV_TXQ_NO_BURST);
	for (int i = 0; i < 3000; i++) {
		/* Some of the time less than the rate is written, then more. */
		uint32_t most = i / 500 % 2 ? 20000 : 1500;

		if (p.written < got + 100000)
			(void)peer_try_write(&p, 1 + pv_rng_below(&rng, most), 0);
		peer_run(&p, pv_rng_below(&rng, 2 * MS));
		while ((s = peer_next(&p))) {
			double drained = (double)(s->at_ns - last) * (double)rate / (double)SEC;

			CHECK_EQ(s->seq, got);
			got += s->len;
			level = (level > drained ? level - drained : 0) + s->len + WIRE;
			last = s->at_ns;
			wire += s->len + WIRE;
			CHECK(level <= 6000.1);
		}
		peer_ack(&p, got);
	}
	for (; got < p.written; busy += MS) {
		wire = 0;
		peer_run(&p, 10 * MS);
		while ((s = peer_next(&p))) {
			got += s->len;
			wire += s->len + WIRE;
		}
		peer_ack(&p, got);
		CHECK(got == p.written || (wire + 2 * (MSS + WIRE) >= rate / 100 && wire <= rate / 100 + 6000));
	}
	CHECK(busy > 0);
	CHECK_EQ(pv_tcp_table_counters(peer_table(&p))->tx_retransmits, 0);
	/* Without the burst the queue stays for what is in it; without a rate it goes. */
	pv_tcp_options(p.c)->pacing_burst = 0;
	pace(&p, rate);
	CHECK_EQ(queue_of(&p).by, PV_TXQ_DEVICE);
	pace(&p, 0);
	peer_write(&p, 10);
	CHECK_EQ(pv_net_paced(p.w.host[0].net), 0);
	peer_skip(&p);
	peer_close(&p);
}

/* So slow that what we hold leaves long after a timeout would have come: nobody takes it for lost, and the rate is kept. */
static void slow(uint64_t rate, uint32_t burst)
{
	const int64_t each = (int64_t)((MSS + WIRE) * (uint64_t)SEC / rate), span = 40 * each + SEC;
	const struct peer_seg *s;
	const double most = (double)PV_MAX(burst, MSS + WIRE) + 0.1;
	struct pv_txq_info q;
	struct peer p;
	uint32_t got = 1;
	uint64_t wire = 0;
	int64_t start;

	peer_begin(&p, device);
	pv_tcp_options(p.c)->pacing_burst = burst;
	pv_tcp_options(p.c)->user_timeout_ms = 100;
	pace(&p, rate);
	start = p.w.now;
	while (p.w.now < start + span) {
		if (p.written < got + 60000)
			(void)peer_try_write(&p, 20000, 0);
		q = queue_of(&p);
		CHECK_EQ(q.by, PV_TXQ_SOFTWARE);
		CHECK(q.load.frames <= 1 || (int64_t)((q.load.bytes - 1) * (uint64_t)SEC / rate) <= 100 * MS);
		peer_run(&p, 3 * MS);
		while ((s = peer_next(&p))) {
			CHECK(!(s->bits & PV_TH_RST));
			CHECK_EQ(s->seq, got);
			got += s->len;
			wire += s->len + WIRE;
			CHECK((double)wire <= most + (double)(s->at_ns - start) * (double)rate / (double)SEC);
		}
		peer_ack(&p, got);
	}
	CHECK_EQ(pv_tcp_table_counters(peer_table(&p))->rto, 0);
	CHECK_EQ(pv_tcp_table_counters(peer_table(&p))->tx_retransmits, 0);
	CHECK_EQ(p.c->ca, PV_CA_OPEN);
	CHECK((double)wire >= 0.98 * (double)(p.w.now - start) * (double)rate / (double)SEC - (MSS + WIRE));
	peer_close(&p);
}

TEST(what_we_hold_does_not_time_out)
{
	static const uint64_t rates[] = { 1500, 6250, 12500, 30000, 45000, 125000, 1250000 };

	for (size_t i = 0; i < pv_array_size(rates); i++) {
		slow(rates[i], 1000);
		slow(rates[i], MSS + WIRE);
		slow(rates[i], 6000);
	}
}

/* The first segment leaves at once; whatever is behind it would wait for minutes. */
static void write_at_ten_bytes_a_second(struct peer *p, uint32_t segs, uint32_t user_timeout_ms)
{
	struct peer_cfg cfg = device;

	/* Without it there is no tail loss probe: the timeout alone. */
	cfg.no_sack = true;
	peer_begin(p, cfg);
	pv_tcp_options(p->c)->user_timeout_ms = user_timeout_ms;
	pv_tcp_options(p->c)->pacing_burst = 2000;
	pace(p, 10);
	CHECK_EQ(queue_of(p).by, PV_TXQ_SOFTWARE);
	peer_write(p, segs * MSS);
	peer_run(p, 10 * MS);
	CHECK_EQ(p->tail - p->head, 1);
	CHECK_EQ(queue_of(p).load.frames, segs - 1);
}

/* What leaves minutes from now by the old rate leaves at once by the new one: when the network loses it, that is noticed soon. */
TEST(a_rate_that_rises_over_what_we_hold)
{
	struct peer p;

	write_at_ten_bytes_a_second(&p, 2, 0);
	peer_ack(&p, 1 + MSS);
	peer_skip(&p);
	peer_run(&p, 5 * SEC);
	peer_expect_none(&p);
	pace(&p, 1250000);
	peer_run(&p, 100 * MS);
	CHECK_EQ(peer_next(&p)->seq, 1 + MSS);
	peer_skip(&p);
	peer_run(&p, 3 * SEC);
	CHECK(pv_tcp_table_counters(peer_table(&p))->tx_retransmits > 0);
	CHECK_EQ(peer_next(&p)->seq, 1 + MSS);
	peer_skip(&p);
	peer_close(&p);
}

/* Longer than any timeout waits: it may be lost, but is not asked for all the time. */
TEST(what_we_hold_for_minutes)
{
	struct peer p;

	write_at_ten_bytes_a_second(&p, 2, 0);
	peer_ack(&p, 1 + MSS);
	peer_skip(&p);
	for (int i = 0; i < 200 && p.tail == p.head; i++)
		peer_run(&p, SEC);
	CHECK_EQ(peer_next(&p)->seq, 1 + MSS);
	CHECK(pv_tcp_table_counters(peer_table(&p))->rto <= 8);
	peer_ack(&p, 1 + 2 * MSS);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	peer_skip(&p);
	peer_close(&p);
}

/* The copy of a lost segment that waits for the rate does not stretch the time that the user gives (RFC 5482). */
TEST(user_timeout_while_a_copy_is_held)
{
	struct peer p;
	int64_t start;

	write_at_ten_bytes_a_second(&p, 1, 5000);
	peer_skip(&p);
	start = p.w.now;
	while (peer_state(&p) == PV_TCP_ESTABLISHED) {
		peer_run(&p, 10 * MS);
		CHECK(p.w.now < start + 20 * SEC);
	}
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	peer_skip(&p);
	peer_close(&p);
}

/* Another way out by the same interface, again and again: what waits in our queue stays in front, and what has left counts. */
TEST(a_burst_by_us_on_a_leg_that_changes)
{
	const uint64_t rate = 125000;
	const struct peer_seg *s;
	struct peer p;
	uint32_t got = 1, moves = 0;
	uint64_t wire = 0;
	int64_t start;

	peer_begin(&p, device);
	pv_tcp_options(p.c)->pacing_burst = 6000;
	pace(&p, rate);
	start = p.w.now;
	while (p.w.now < start + SEC) {
		if (p.written < got + 60000)
			(void)peer_try_write(&p, 10000, 0);
		peer_run(&p, 7 * MS);
		while ((s = peer_next(&p))) {
			CHECK_EQ(s->seq, got);
			got += s->len;
			wire += s->len + WIRE;
			CHECK((double)wire <= 6000.1 + (double)(s->at_ns - start) * (double)rate / (double)SEC);
		}
		peer_ack(&p, got);
		CHECK_EQ(pv_stack_iface_moved(p.w.host[0].stack, p.w.host[0].iface, p.w.now), 0);
		moves++;
		CHECK_EQ(queue_of(&p).by, PV_TXQ_SOFTWARE);
		CHECK_EQ(pv_net_paced(p.w.host[0].net), 1);
	}
	CHECK(moves > 100);
	CHECK(wire >= rate - 2 * (MSS + WIRE));
	CHECK_EQ(pv_tcp_table_counters(peer_table(&p))->tx_retransmits, 0);
	peer_close(&p);
}

/* Whoever keeps the rate, however often that changes. */
TEST(a_connection_that_moves_keeps_its_order)
{
	static const uint64_t rates[] = { 0, 125000, 1000, 12500000, UINT64_MAX, 130000000, 50000000, 1000000 };
	struct pv_rng rng;
	struct peer p;
	uint32_t got = 1;

	pv_rng_seed(&rng, 5);
	peer_begin(&p, device);
	for (int i = 0; i < 2000; i++) {
		if (pv_rng_below(&rng, 5) == 0)
			pace(&p, rates[pv_rng_below(&rng, pv_array_size(rates))]);
		if (p.written < got + 60000)
			(void)peer_try_write(&p, 1 + pv_rng_below(&rng, 10000), 0);
		peer_run(&p, pv_rng_below(&rng, 2000000));
		got = take(&p, got);
	}
	pace(&p, 0);
	for (int i = 0; i < 1000 && got < p.written; i++) {
		peer_run(&p, 100 * MS);
		got = take(&p, got);
	}
	CHECK_EQ(got, p.written);
	CHECK(got > 200000);
	CHECK_EQ(pv_tcp_table_counters(peer_table(&p))->tx_retransmits, 0);
	peer_close(&p);
}

/* All that was written, and the FIN behind it; then the queue is the device's again. */
TEST(close)
{
	struct peer p;
	uint32_t got = 1;
	const struct peer_seg *s;
	bool fin = false;

	peer_begin(&p, device);
	pace(&p, 125000);
	peer_write(&p, 10 * MSS);
	pv_tcp_close(p.c, p.w.now);
	p.c = NULL;
	for (int i = 0; i < 100 && !fin; i++) {
		peer_run(&p, 10 * MS);
		while ((s = peer_next(&p))) {
			CHECK_EQ(s->seq, got);
			got += s->len;
			fin |= s->bits & PV_TH_FIN;
		}
		peer_ack(&p, got + fin);
	}
	CHECK(fin);
	CHECK_EQ(got, 1 + 10 * MSS);
	peer_run(&p, SEC);
	peer_send(&p, "F.", p.seq_max, got + 1, 0);
	peer_run(&p, SEC);
	CHECK_EQ(pv_net_paced(p.w.host[0].net), 0);
	peer_skip(&p);
	peer_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
