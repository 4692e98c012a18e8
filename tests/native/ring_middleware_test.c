/* SPDX-License-Identifier: BSD-3-Clause */
/* The fault middleware in front of a sim ring, and the pcap record on one: the contract suite over each, then what each does on its own. */
#include "ring/fault.h"
#include "ring/pcap.h"
#include "ring_sim_rig.h"

/* ---- a sink that remembers --------------------------------------------------------------------------------------------- */

#define SINK_MAX (1u << 20)

static struct sink {
	uint8_t data[SINK_MAX];
	size_t len, calls;
	int64_t now;
} sink;

static void sink_take(void *ctx, const void *data, size_t len)
{
	struct sink *s = ctx;

	if (s->len + len > SINK_MAX)
		s->len = 0; /* the contract's long runs: only that it is readable memory matters there */
	memcpy(s->data + s->len, data, len);
	s->len += len;
	s->calls++;
}

static int64_t sink_now(void *ctx)
{
	return ((struct sink *)ctx)->now += 1001;
}

static void open_pcap(struct rig *rig)
{
	const struct pv_pcap_cfg cfg = { .sink = sink_take, .now_ns = sink_now, .ctx = &sink };

	rig_sim_open(rig);
	for (int i = 0; i < 2; i++) {
		rig->ring[i] = rig->other[i];
		CHECK_EQ(pv_pcap_add(rig->ring[i], &rig->mem.mem, &cfg), 0);
	}
}

static void open_fault(struct rig *rig)
{
	const struct pv_fault_cfg cfg = { .seed = 1 };

	rig_sim_open(rig);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_fault_open(&rig->ring[i], &rig->mem.mem, rig->other[i], &cfg), 0);
}

/* Misbehaviour that a correct owner never notices, but for the time it takes. */
static void open_moody(struct rig *rig)
{
	const struct pv_fault_cfg cfg = { .seed = 1, .reap_none_ppm = 300000, .kick_again_ppm = 300000 };

	rig_sim_open(rig);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_fault_open(&rig->ring[i], &rig->mem.mem, rig->other[i], &cfg), 0);
}

#define MIDDLEWARE(id, opener)                                                                                                     \
	static const struct rig_kind id = { .name = #id,                                                                           \
					    .must = RIG_FLOWS | RIG_TX_CSUM | RIG_RX_CSUM | RIG_STAMPS | RIG_TXQ | RIG_PACING |    \
						    RIG_TSO,                                                                       \
					    .open = opener,                                                                        \
					    .close = rig_sim_close,                                                                \
					    .settle = rig_sim_settle,                                                              \
					    .set_link = rig_sim_set_link,                                                          \
					    .vanish = rig_sim_vanish }

MIDDLEWARE(pcap, open_pcap);
MIDDLEWARE(fault, open_fault);
MIDDLEWARE(moody, open_moody);

#define PCAP(id) CONTRACT_CASE(pcap, id)
CONTRACT_LIST(PCAP)
#define FAULT(id) CONTRACT_CASE(fault, id)
CONTRACT_LIST(FAULT)
CONTRACT_CASE(moody, both_directions)
CONTRACT_CASE(moody, frames_of_all_sizes)
CONTRACT_CASE(moody, close_with_everything_outstanding)

/* ---- pcap -------------------------------------------------------------------------------------------------------------- */

static uint32_t word(size_t at)
{
	uint32_t v;

	CHECK(at + 4 <= sink.len);
	memcpy(&v, sink.data + at, 4);
	return v;
}

static uint16_t half(size_t at)
{
	uint16_t v;

	CHECK(at + 2 <= sink.len);
	memcpy(&v, sink.data + at, 2);
	return v;
}

static void wrap(struct rig *rig, enum pv_pcap_format format, uint32_t snaplen)
{
	const struct pv_pcap_cfg cfg = {
		.sink = sink_take, .now_ns = sink_now, .ctx = &sink, .format = format, .snaplen = snaplen
	};

	rig->kind = &pcap;
	rig_open(rig, &fault); /* the rings beneath do not matter here */
	memset(&sink, 0, sizeof(sink));
	sink.now = INT64_C(1700000000) * PV_NS_PER_S;
	CHECK_EQ(pv_pcap_add(rig->ring[0], &rig->mem.mem, &cfg), 0);
	CHECK_EQ(sink.calls, 1);
	rig_fill(rig, 0);
	rig_fill(rig, 1);
}

/* Walks the blocks by the draft's rules. Returns the frames; each is compared. */
static uint32_t walk_ng(uint32_t kept_max)
{
	size_t at = 0;
	uint32_t frames = 0;
	uint64_t last = 0;

	CHECK_EQ(word(0), 0x0a0d0d0a);
	CHECK_EQ(word(8), 0x1a2b3c4d);
	CHECK_EQ(half(12), 1);
	for (; at < sink.len; at += word(at + 4)) {
		uint32_t type = word(at), len = word(at + 4);

		CHECK(len >= 12 && len % 4 == 0 && at + len <= sink.len);
		CHECK_EQ(word(at + len - 4), len);
		if (type == 1) {
			CHECK_EQ(half(at + 8), 1);
			CHECK(memmem(sink.data + at, len, "\x09\x00\x01\x00\x09", 5) != NULL); /* if_tsresol 9 */
		} else if (type == 6) {
			uint64_t stamp = (uint64_t)word(at + 12) << 32 | word(at + 16);
			uint32_t kept = word(at + 20), whole = word(at + 24), flags_at = (kept + 3) & ~3u;
			uint8_t want[2048];
			int from = (int)(frames & 1);

			CHECK_EQ(stamp, (uint64_t)(INT64_C(1700000000) * PV_NS_PER_S + 1001 * (frames + 1)));
			CHECK(stamp > last);
			last = stamp;
			CHECK_EQ(whole, 60 + frames);
			CHECK_EQ(kept, PV_MIN(whole, kept_max));
			rig_write(want, whole, from, frames);
			CHECK(!memcmp(sink.data + at + 28, want, kept));
			CHECK_EQ(half(at + 28 + flags_at), 2);
			CHECK_EQ(word(at + 28 + flags_at + 4), from ? 1 : 2);
			frames++;
		} else {
			CHECK_EQ(type, 0x0a0d0d0a);
			CHECK_EQ(at, 0);
		}
	}
	CHECK_EQ(at, sink.len);
	return frames;
}

static void exchange(struct rig *rig, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int from = (int)(i & 1);

		rig_send(rig, from, 60 + i, i);
		rig_expect(rig, 1 - from, 60 + i, i);
		rig_reap(rig, from);
		rig_fill(rig, 1 - from);
	}
}

TEST(pcapng_holds_both_directions)
{
	struct rig rig;

	wrap(&rig, PV_PCAP_NG, 0);
	exchange(&rig, 200);
	CHECK_EQ(sink.calls, 201);
	CHECK_EQ(walk_ng(UINT32_MAX), 200);
	rig_close(&rig);
}

TEST(pcapng_cuts_at_the_snaplen)
{
	struct rig rig;

	wrap(&rig, PV_PCAP_NG, 101);
	exchange(&rig, 200);
	CHECK_EQ(walk_ng(101), 200);
	rig_close(&rig);
}

TEST(classic_pcap_has_nanoseconds)
{
	struct rig rig;
	size_t at = 24;

	wrap(&rig, PV_PCAP_CLASSIC, 0);
	exchange(&rig, 100);
	CHECK_EQ(word(0), 0xa1b23c4d);
	CHECK_EQ(half(4), 2);
	CHECK_EQ(half(6), 4);
	CHECK_EQ(word(20), 1);
	for (uint32_t i = 0; i < 100; i++) {
		uint8_t want[256];

		CHECK_EQ(word(at), 1700000000);
		CHECK_EQ(word(at + 4), 1001 * (i + 1));
		CHECK_EQ(word(at + 8), 60 + i);
		CHECK_EQ(word(at + 12), 60 + i);
		rig_write(want, 60 + i, (int)(i & 1), i);
		CHECK(!memcmp(sink.data + at + 16, want, 60 + i));
		at += 16 + 60 + i;
	}
	CHECK_EQ(at, sink.len);
	rig_close(&rig);
}

/* What the ring refused is not in the file; a gathered frame is there in one piece. */
TEST(pcap_records_what_was_taken)
{
	struct rig rig;
	struct pv_pkt *p;
	uint32_t taken = 0;
	uint8_t want[700];

	wrap(&rig, PV_PCAP_CLASSIC, 0);
	for (;;) {
		p = rig_frame(&rig, 0, 64, 1);
		if (!pv_ring_tx_post(rig.ring[0], &p, 1))
			break;
		taken++;
	}
	pv_pkt_put(p);
	CHECK_EQ(taken, RIG_DEPTH);
	CHECK_EQ(sink.calls, 1 + RIG_DEPTH);
	rig_kick(&rig, 0);
	rig_reap_all(&rig, 0, RIG_DEPTH);
	rig_post(&rig, 0, contract_chain(&rig, 700, 4, 5));
	CHECK_EQ(word(sink.len - 700 - 4), 700);
	rig_write(want, 700, 0, 5);
	CHECK(!memcmp(sink.data + sink.len - 700, want, 700));
	rig_close(&rig);
}

TEST(pcap_open_errors)
{
	struct pv_pcap_cfg cfg = { .sink = sink_take, .ctx = &sink };
	const struct pv_ring_ops *own;
	struct rig rig;

	rig_open(&rig, &fault);
	own = rig.ring[0]->ops;
	CHECK_EQ(pv_pcap_add(rig.ring[0], &rig.mem.mem, &cfg), -EINVAL);
	cfg.now_ns = sink_now;
	for (long i = 0; i < 3; i++) {
		rig.mem.fail_in = i;
		CHECK_EQ(pv_pcap_add(rig.ring[0], &rig.mem.mem, &cfg), -ENOMEM);
	}
	CHECK(rig.ring[0]->ops == own);
	rig.mem.fail_in = -1;
	rig_close(&rig);
}

/* ---- fault ------------------------------------------------------------------------------------------------------------- */

struct tally {
	uint32_t seen, cut, changed;
	struct pv_fault_stats stats;
	uint64_t hash;
};

/* Sends `n` frames of 100 bytes into a ring with these faults. */
static struct tally suffer(const struct pv_fault_cfg *cfg, uint32_t n)
{
	struct tally t = { 0 };
	struct rig rig;

	rig_open(&rig, &fault);
	rig_fill(&rig, 1);
	pv_fault_set(rig.ring[1], cfg);
	for (uint32_t i = 0; i < n; i++) {
		struct pv_pkt *p[8];
		uint32_t k;

		rig_send(&rig, 0, 100, i);
		rig_reap(&rig, 0);
		k = pv_ring_rx_poll(rig.ring[1], p, 1 + i % 8);
		for (uint32_t j = 0; j < k; j++) {
			uint8_t want[100];

			CHECK(p[j]->len <= 100);
			CHECK_EQ(p[j]->total, p[j]->len);
			t.seen++;
			t.cut += p[j]->len < 100;
			rig_write(want, 100, 0, i);
			for (uint32_t b = 0; b < p[j]->len; b++)
				t.hash = (t.hash ^ p[j]->data[b]) * UINT64_C(0x100000001b3);
			if (memcmp(p[j]->data, want, p[j]->len))
				t.changed++;
			pv_pkt_put(p[j]);
		}
		rig_fill(&rig, 1);
	}
	pv_fault_get_stats(rig.ring[1], &t.stats);
	rig_close(&rig);
	return t;
}

TEST(faults_off_do_nothing)
{
	const struct pv_fault_cfg cfg = { .seed = 3 };
	struct tally t = suffer(&cfg, 500);

	CHECK_EQ(t.seen, 500);
	CHECK_EQ(t.cut + t.changed, 0);
}

TEST(drops_duplicates_cuts_and_flips_are_counted)
{
	struct tally t;

	t = suffer(&(struct pv_fault_cfg){ .rx_drop_ppm = 200000 }, 2000);
	CHECK(t.stats.rx_drops > 250 && t.stats.rx_drops < 550);
	CHECK_EQ(t.seen + t.stats.rx_drops, 2000);
	t = suffer(&(struct pv_fault_cfg){ .rx_duplicate_ppm = 200000 }, 2000);
	CHECK(t.stats.rx_duplicates > 250 && t.stats.rx_duplicates < 550);
	CHECK(t.seen + 1 >= 2000 + t.stats.rx_duplicates && t.seen <= 2000 + t.stats.rx_duplicates);
	t = suffer(&(struct pv_fault_cfg){ .rx_truncate_ppm = 200000 }, 2000);
	CHECK(t.stats.rx_truncated > 250 && t.stats.rx_truncated < 550);
	CHECK_EQ(t.cut, t.stats.rx_truncated);
	t = suffer(&(struct pv_fault_cfg){ .rx_corrupt_ppm = 200000 }, 2000);
	CHECK(t.stats.rx_corrupted > 250 && t.stats.rx_corrupted < 550);
	CHECK_EQ(t.changed, t.stats.rx_corrupted);
}

TEST(a_changed_frame_has_no_verdict)
{
	const struct pv_fault_cfg cfg = { .rx_corrupt_ppm = 1000000 };
	const struct contract_ip d = { .src = contract_addr4(1), .dst = contract_addr4(2), .dst_port = 1, .proto = 17 };
	struct pv_pkt *p;
	struct rig rig;

	rig_open(&rig, &fault);
	rig_fill(&rig, 1);
	pv_fault_set(rig.ring[1], &cfg);
	rig_post(&rig, 0, contract_ip_frame(&rig, 0, &d));
	rig_kick(&rig, 0);
	p = rig_recv(&rig, 1);
	CHECK(!(p->flags & (PV_PKT_L3_OK | PV_PKT_L4_OK)));
	pv_pkt_put(p);
	rig_close(&rig);
}

TEST(the_same_seed_gives_the_same_faults)
{
	struct pv_fault_cfg cfg = { .seed = 11, .rx_drop_ppm = 100000, .rx_duplicate_ppm = 100000, .rx_corrupt_ppm = 100000 };
	struct tally a, b;

	/* suffer() opens with seed 1 and sets chances only: equal runs are equal. */
	a = suffer(&cfg, 1000);
	b = suffer(&cfg, 1000);
	CHECK(a.hash == b.hash && a.seen == b.seen);
	cfg.rx_drop_ppm = 100001;
	cfg.rx_corrupt_ppm = 300000;
	b = suffer(&cfg, 1000);
	CHECK(a.hash != b.hash);
}

TEST(sent_frames_are_lost_and_still_reaped)
{
	const struct pv_fault_cfg cfg = { .tx_drop_ppm = 500000, .tx_post_short_ppm = 300000, .rx_post_short_ppm = 300000 };
	struct pv_fault_stats stats;
	struct pv_pkt *p[8];
	struct rig rig;
	uint32_t sent = 0, reaped = 0, seen = 0;

	rig_open(&rig, &fault);
	pv_fault_set(rig.ring[0], &cfg);
	pv_fault_set(rig.ring[1], &cfg);
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t k;

		rig_fill(&rig, 1);
		rig_fill(&rig, 1);
		rig_fill(&rig, 1);
		for (uint32_t j = 0; j < 8; j++)
			p[j] = rig_frame(&rig, 0, 64, i);
		k = pv_ring_tx_post(rig.ring[0], p, 8);
		sent += k;
		for (uint32_t j = k; j < 8; j++)
			pv_pkt_put(p[j]);
		rig_kick(&rig, 0);
		reaped += rig_reap(&rig, 0);
		k = pv_ring_rx_poll(rig.ring[1], p, 8);
		seen += k;
		for (uint32_t j = 0; j < k; j++) {
			rig_check(p[j], 0, 64, i);
			pv_pkt_put(p[j]);
		}
	}
	pv_fault_get_stats(rig.ring[0], &stats);
	CHECK_EQ(reaped, sent);
	CHECK(stats.tx_post_short > 100 && stats.tx_drops > sent / 3 && stats.tx_drops < sent * 2 / 3);
	CHECK_EQ(seen + stats.tx_drops, sent);
	rig_close(&rig);
}

TEST(a_flapping_link_loses_frames_and_comes_back)
{
	const struct pv_fault_cfg cfg = { .link_flap_ppm = 500000 };
	struct pv_fault_stats stats;
	uint32_t downs = 0;
	struct rig rig;
	bool up = true;

	rig_open(&rig, &fault);
	rig_fill(&rig, 1);
	pv_fault_set(rig.ring[1], &cfg);
	for (uint32_t i = 0; i < 500; i++) {
		enum pv_ring_event ev = pv_ring_event(rig.ring[1]);
		struct pv_pkt *p;

		CHECK(ev == PV_RING_EV_NONE || ev == (up ? PV_RING_EV_LINK_DOWN : PV_RING_EV_LINK_UP));
		CHECK(up || ev == PV_RING_EV_LINK_UP);
		up = ev == PV_RING_EV_NONE ? up : ev == PV_RING_EV_LINK_UP;
		downs += ev == PV_RING_EV_LINK_DOWN;
		CHECK_EQ(rig.ring[1]->caps.link_up, up);
		rig_send(&rig, 0, 64, i);
		rig_reap(&rig, 0);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), up);
		if (up) {
			rig_check(p, 0, 64, i);
			pv_pkt_put(p);
		}
		rig_fill(&rig, 1);
	}
	pv_fault_get_stats(rig.ring[1], &stats);
	CHECK_EQ(stats.link_flaps, downs);
	CHECK(downs > 100);
	rig_close(&rig);
}

/* Said once; what is sent completes as if it had left, what comes is lost, and every packet comes back. */
TEST(a_ring_that_reports_an_error_carries_nothing)
{
	const struct pv_fault_cfg error = { .error_ppm = 1000000 };
	struct pv_fault_stats stats;
	struct pv_pkt *p;
	struct rig rig;

	rig_open(&rig, &fault);
	rig_fill(&rig, 0);
	rig_fill(&rig, 1);
	CHECK_EQ(pv_ring_event(rig.ring[1]), PV_RING_EV_NONE);
	pv_fault_set(rig.ring[1], &error);
	for (uint32_t i = 0; i < 5; i++)
		CHECK_EQ(pv_ring_event(rig.ring[1]), i ? PV_RING_EV_NONE : PV_RING_EV_ERROR);
	CHECK(rig.ring[1]->caps.link_up);
	for (uint32_t i = 0; i < 500; i++) {
		rig_send(&rig, 0, 64, i);
		rig_reap(&rig, 0);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 0);
		rig_send(&rig, 1, 64, i);
		rig_reap(&rig, 1);
		CHECK_EQ(pv_ring_rx_poll(rig.ring[0], &p, 1), 0);
	}
	pv_fault_get_stats(rig.ring[1], &stats);
	CHECK_EQ(stats.errors, 1);
	CHECK_EQ(stats.rx_drops, 500);
	CHECK_EQ(stats.tx_drops, 500);
	rig_close(&rig);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
