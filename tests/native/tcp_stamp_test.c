/* SPDX-License-Identifier: BSD-3-Clause */
/* Stamps of streams over a wire in virtual time: of writes the last byte's, at each transmission and when it is acknowledged; of what is
 * read the last segment's. */
#include "base/rng.h"
#include "tcp_world.h"

#define PORT 7000
#define ALL (PV_STAMP_TX_SW | PV_STAMP_TX_SCHED | PV_STAMP_TX_ACK)

static void open_pair(struct world *w, struct pv_tcp *pair[2], const struct world_cfg *cfg)
{
	tcp_world_open(w, cfg);
	for (uint32_t i = 0; i < w->nhosts; i++) {
		CHECK_EQ(pv_ring_set_stamps(w->host[i].ring, true, true), 0);
		pv_net_stamps_hw(w->host[i].net, true);
	}
	tcp_pair(w, 4, PORT, pair);
	for (int i = 0; i < 2; i++) {
		pv_tcp_options(pair[i])->nodelay = true;
		pv_tcp_options_changed(pair[i], w->now);
	}
}

static void close_pair(struct world *w, struct pv_tcp *pair[2])
{
	pv_tcp_close(pair[0], w->now);
	pv_tcp_close(pair[1], w->now);
	world_run(w, 200 * PV_NS_PER_S);
	world_close(w);
}

static int64_t write_stamped(struct world *w, struct pv_tcp *c, const void *data, size_t len, uint32_t what)
{
	struct pv_iov iov = { data, len };

	return pv_tcp_send(c, &iov, 1, PV_TCP_MSG_STAMP(what), w->now);
}

static void expect(struct pv_tcp *c, enum pv_stamp_type type, uint32_t key, struct pv_stamp *s)
{
	CHECK(pv_stampq_get(pv_tcp_stamps(c), s));
	CHECK_EQ(s->type, type);
	CHECK_EQ(s->key, key);
}

/* Of an attribute of the statistics its number. */
static uint64_t told(const struct pv_pkt *pkt, uint16_t type)
{
	for (uint32_t at = 0; at < pkt->len;) {
		uint16_t len, kind;
		uint64_t v = 0;

		memcpy(&len, pkt->data + at, sizeof(len));
		memcpy(&kind, pkt->data + at + 2, sizeof(kind));
		CHECK(len > 4 && len <= 12 && at + len <= pkt->len);
		memcpy(&v, pkt->data + at + 4, len - 4u);
		if (kind == type)
			return v;
		at += (len + 3u) & ~3u;
	}
	CHECK(!"no such attribute");
	return 0;
}

static void expect_none(struct pv_tcp *c)
{
	struct pv_stamp s;

	CHECK(!pv_tcp_stamps(c) || !pv_stampq_get(pv_tcp_stamps(c), &s));
}

static uint32_t read_all(struct world *w, struct pv_tcp *c)
{
	static uint8_t buf[65536];
	uint32_t total = 0;
	int64_t n;

	while ((n = tcp_read(w, c, buf, sizeof(buf))) > 0)
		total += (uint32_t)n;
	return total;
}

TEST(writes)
{
	struct world_cfg cfg = { .seed = 1 };
	struct pv_tcp *pair[2];
	struct pv_stamp s;
	struct world w;
	uint32_t key = UINT32_MAX;

	open_pair(&w, pair, &cfg);
	CHECK_EQ(pv_tcp_stamps_set(pair[1], ALL | PV_STAMP_OPT_ID), 0);
	for (uint32_t len = 1; len < 300; len *= 3) {
		uint8_t data[300];
		int64_t sent_ns = w.now;

		memset(data, (int)len, len);
		key += len;
		CHECK_EQ(write_stamped(&w, pair[1], data, len, ALL), len);
		expect(pair[1], PV_STAMP_SCHED, key, &s);
		CHECK(s.ns == sent_ns && s.frame && s.pkt && !memcmp(s.pkt->data + s.pkt->total - len, data, len));
		pv_pkt_put(s.pkt);
		expect(pair[1], PV_STAMP_SND, key, &s);
		pv_pkt_put(s.pkt);
		expect_none(pair[1]);
		world_run(&w, PV_NS_PER_S);
		expect(pair[1], PV_STAMP_ACK, key, &s);
		CHECK(s.ns >= sent_ns && !s.frame && s.pkt->total == len && !memcmp(s.pkt->data, data, len));
		pv_pkt_put(s.pkt);
		expect_none(pair[1]);
		CHECK_EQ(read_all(&w, pair[0]), len);
	}
	close_pair(&w, pair);
}

/* Of many segments, with what the device says; and only while it is the last byte that goes. */
TEST(long_write)
{
	static const uint8_t data[20000];
	struct world_cfg cfg = { .seed = 2 };
	struct pv_tcp *pair[2];
	struct pv_stamp s;
	struct world w;
	int64_t start;

	open_pair(&w, pair, &cfg);
	CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_ID | PV_STAMP_OPT_TSONLY), 0);
	start = w.now;
	CHECK_EQ(write_stamped(&w, pair[1], data, sizeof(data), PV_STAMP_TX_HW | PV_STAMP_TX_ACK), sizeof(data));
	expect_none(pair[1]);
	world_run(&w, PV_NS_PER_S);
	CHECK_EQ(read_all(&w, pair[0]), sizeof(data));
	world_run(&w, PV_NS_PER_S);
	/* Whichever is seen first: both are of that byte. */
	for (int i = 0; i < 2; i++) {
		CHECK(pv_stampq_get(pv_tcp_stamps(pair[1]), &s));
		CHECK_EQ(s.key, sizeof(data) - 1);
		CHECK(s.is_raw == (s.type == PV_STAMP_SND) && !s.pkt);
		CHECK(!s.is_raw || ((int64_t)s.raw >= start && (int64_t)s.raw <= w.now));
	}
	expect_none(pair[1]);
	close_pair(&w, pair);
}

/* Writes that share a segment: the later one has it, with what the earlier wanted as well. */
TEST(shared_segment)
{
	struct world_cfg cfg = { .seed = 3 };
	struct pv_tcp *pair[2];
	struct pv_stamp s;
	struct world w;

	open_pair(&w, pair, &cfg);
	CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_ID | PV_STAMP_OPT_TSONLY), 0);
	pv_tcp_options(pair[1])->cork = true;
	pv_tcp_options_changed(pair[1], w.now);
	CHECK_EQ(write_stamped(&w, pair[1], "abc", 3, PV_STAMP_TX_ACK), 3);
	CHECK_EQ(write_stamped(&w, pair[1], "de", 2, PV_STAMP_TX_SW), 2);
	expect_none(pair[1]);
	pv_tcp_options(pair[1])->cork = false;
	pv_tcp_cork_set(pair[1], w.now);
	pv_tcp_options_changed(pair[1], w.now);
	expect(pair[1], PV_STAMP_SND, 4, &s);
	world_run(&w, PV_NS_PER_S);
	expect(pair[1], PV_STAMP_ACK, 4, &s);
	expect_none(pair[1]);
	CHECK_EQ(read_all(&w, pair[0]), 5);
	close_pair(&w, pair);
}

TEST(numbers)
{
	struct world_cfg cfg = { .seed = 4 };
	struct pv_tcp *pair[2];
	struct pv_stamp s;
	struct world w;

	open_pair(&w, pair, &cfg);
	CHECK_EQ(tcp_write(&w, pair[1], "under way", 9), 9);
	/* From what is acknowledged, which is nothing yet, or from what was written. */
	CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_ID | PV_STAMP_OPT_TSONLY), 0);
	CHECK_EQ(write_stamped(&w, pair[1], "x", 1, PV_STAMP_TX_SW), 1);
	expect(pair[1], PV_STAMP_SND, 9, &s);
	CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_TSONLY), 0);
	CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_ID | PV_STAMP_OPT_ID_TCP | PV_STAMP_OPT_TSONLY), 0);
	CHECK_EQ(write_stamped(&w, pair[1], "y", 1, PV_STAMP_TX_SW), 1);
	expect(pair[1], PV_STAMP_SND, 0, &s);
	world_run(&w, PV_NS_PER_S);
	CHECK_EQ(read_all(&w, pair[0]), 11);
	close_pair(&w, pair);
}

static bool rx_stamp(struct world *w, struct pv_tcp *c, size_t len, struct pv_tcp_rx_stamp *out)
{
	uint8_t buf[4096];
	struct pv_iov iov = { buf, len };

	CHECK_EQ(pv_tcp_recv(c, &iov, 1, PV_TCP_MSG_RX_STAMP, w->now), len);
	return pv_tcp_rx_stamp(c, out);
}

TEST(received)
{
	static const uint8_t data[1000];
	struct world_cfg cfg = { .seed = 5 };
	struct pv_tcp_rx_stamp first, second;
	struct pv_tcp *pair[2];
	struct world w;
	int64_t between;

	open_pair(&w, pair, &cfg);
	CHECK(!pv_tcp_rx_stamp(pair[0], &first));
	CHECK_EQ(tcp_write(&w, pair[1], data, 1000), 1000);
	world_run(&w, PV_NS_PER_S);
	between = w.now;
	CHECK_EQ(tcp_write(&w, pair[1], data, 1000), 1000);
	world_run(&w, PV_NS_PER_S);
	/* A part of the first, the rest of it with some of the second, the end. */
	CHECK(rx_stamp(&w, pair[0], 400, &first));
	CHECK(first.ns < between && first.is_raw && (int64_t)first.raw <= first.ns && first.iface == w.host[0].iface);
	CHECK(!pv_tcp_rx_stamp(pair[0], &second));
	CHECK(rx_stamp(&w, pair[0], 700, &second));
	CHECK(second.ns >= between);
	CHECK(rx_stamp(&w, pair[0], 900, &first));
	CHECK_EQ(first.ns, second.ns);
	/* Small ones come to lie in one buffer: the latest counts. */
	CHECK_EQ(tcp_write(&w, pair[1], "a", 1), 1);
	world_run(&w, PV_NS_PER_S);
	between = w.now;
	CHECK_EQ(tcp_write(&w, pair[1], "b", 1), 1);
	world_run(&w, PV_NS_PER_S);
	CHECK(rx_stamp(&w, pair[0], 1, &first));
	CHECK(first.ns >= between);
	CHECK_EQ(read_all(&w, pair[0]), 1);
	close_pair(&w, pair);
}

/* One acknowledgement of several writes: each is told with what it sent itself, and with what had been delivered with it. */
TEST(acknowledged_together)
{
	struct world_cfg cfg = { .seed = 21 };
	struct pv_tcp *pair[2];
	struct pv_stamp s;
	struct world w;

	for (int stats = 0; stats < 2; stats++) {
		open_pair(&w, pair, &cfg);
		CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_ID | (stats ? PV_STAMP_OPT_TSONLY | PV_STAMP_OPT_STATS : 0)), 0);
		CHECK_EQ(write_stamped(&w, pair[1], "first", 5, PV_STAMP_TX_ACK), 5);
		CHECK_EQ(write_stamped(&w, pair[1], "second", 6, PV_STAMP_TX_ACK), 6);
		CHECK_EQ(write_stamped(&w, pair[1], "third", 5, PV_STAMP_TX_ACK), 5);
		world_run(&w, PV_NS_PER_S);
		for (uint32_t i = 0; i < 3; i++) {
			static const char *const texts[] = { "first", "second", "third" };
			static const uint32_t lasts[] = { 4, 10, 15 };

			expect(pair[1], PV_STAMP_ACK, lasts[i], &s);
			CHECK(s.pkt != NULL);
			CHECK_EQ(s.stats, stats);
			if (stats)
				CHECK_EQ(told(s.pkt, 16), i + 2); /* with the SYN */
			else
				CHECK(s.pkt->len == strlen(texts[i]) && !memcmp(s.pkt->data, texts[i], s.pkt->len));
			pv_pkt_put(s.pkt);
		}
		close_pair(&w, pair);
	}
}

/* Statistics count what leaves, repetitions too. */
TEST(statistics_of_what_is_sent_again)
{
	struct world_cfg cfg = { .seed = 22 };
	struct pv_sim_impair imp = { .loss_ppm = 1000000 };
	struct pv_tcp *pair[2];
	struct pv_stamp s;
	struct world w;

	open_pair(&w, pair, &cfg);
	CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_TSONLY | PV_STAMP_OPT_STATS), 0);
	pv_sim_wire_impair(w.wire, &imp);
	CHECK_EQ(write_stamped(&w, pair[1], "lost", 4, PV_STAMP_TX_SW), 4);
	world_run(&w, 5 * PV_NS_PER_S);
	for (uint64_t n = 0; pv_stampq_get(pv_tcp_stamps(pair[1]), &s); n++) {
		CHECK(s.stats && s.pkt != NULL);
		CHECK_EQ(told(s.pkt, 4), n + 1); /* data_segs_out */
		CHECK_EQ(told(s.pkt, 5), n); /* total_retrans */
		CHECK_EQ(told(s.pkt, 18), 4 * (n + 1)); /* bytes_sent */
		CHECK_EQ(told(s.pkt, 19), 4 * n); /* bytes_retrans */
		CHECK_EQ(told(s.pkt, 13), 4); /* sndq_size */
		CHECK(n < 10);
		pv_pkt_put(s.pkt);
	}
	imp.loss_ppm = 0;
	pv_sim_wire_impair(w.wire, &imp);
	close_pair(&w, pair);
}

/* Lost frames are stamped each time that they go. And sockets that are closed with stamps unread, or under way, leave nothing. */
TEST(lossy_and_closed)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct world_cfg cfg = { .seed = seed };
		struct pv_sim_impair imp = { .loss_ppm = 100000 };
		struct pv_tcp *pair[2];
		uint32_t acked = 0, sent = 0, last = 0, total = 0;
		struct pv_stamp s;
		struct pv_rng rng;
		struct world w;

		pv_rng_seed(&rng, seed);
		open_pair(&w, pair, &cfg);
		CHECK_EQ(pv_tcp_stamps_set(pair[1], PV_STAMP_OPT_ID | (seed & 1 ? PV_STAMP_OPT_TSONLY : 0)), 0);
		pv_sim_wire_impair(w.wire, &imp);
		for (int i = 0; i < 40; i++) {
			static const uint8_t data[5000];
			uint32_t len = 1 + pv_rng_u32(&rng) % 5000;

			CHECK_EQ(write_stamped(&w, pair[1], data, len, PV_STAMP_TX_HW | PV_STAMP_TX_SW | PV_STAMP_TX_ACK), len);
			total += len;
			world_run(&w, 2 * PV_NS_PER_S);
			(void)read_all(&w, pair[0]);
			while (pv_stampq_get(pv_tcp_stamps(pair[1]), &s)) {
				if (s.type == PV_STAMP_ACK) {
					CHECK(!acked || s.key > last);
					last = s.key;
					acked++;
				}
				sent += s.type == PV_STAMP_SND;
				if (s.pkt)
					pv_pkt_put(s.pkt);
			}
		}
		CHECK(acked >= 30 && sent > 40 && last <= total - 1);
		CHECK_EQ(write_stamped(&w, pair[1], "end", 3, PV_STAMP_TX_HW | ALL), 3);
		close_pair(&w, pair);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
