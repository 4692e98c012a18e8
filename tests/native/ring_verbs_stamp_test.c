/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time stamps of the verbs ring over the software NIC: the contract's cases over each way that a device can have them, clocks of other
 * frequencies and widths, and what the runtime makes of the disciplined clock, against the truth.
 */
#include <pthread.h>

#include "ring/fault.h"
#include "ring_verbs_rig.h"
#include "rt/tstamp_conv.h"
#include "softnic/softnic.h"

static struct {
	int (*clock)(const char *device, const char *spec);
	int (*clock_read)(const char *device, struct softnic_stamp *now);
	int (*watch)(const char *device);
	int (*take)(struct softnic_stamp *out, int max);
} truth;

static void truth_load(void)
{
	void *h = dlopen(SOFTNIC_LIB, RTLD_NOW | RTLD_LOCAL);

	CHECK(h != NULL);
	*(void **)&truth.clock = dlsym(h, "softnic_clock");
	*(void **)&truth.clock_read = dlsym(h, "softnic_clock_read");
	*(void **)&truth.watch = dlsym(h, "softnic_stamps_watch");
	*(void **)&truth.take = dlsym(h, "softnic_stamps_take");
	CHECK(truth.clock && truth.clock_read && truth.watch && truth.take);
}

/* ---- the contract --------------------------------------------------------------------------------------------------------- */

static void open_raw(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .stamps = PV_VERBS_STAMPS_RAW }, "extended");
}

static void open_wall(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .stamps = PV_VERBS_STAMPS_WALL }, "extended");
	CHECK_EQ(rig->ring[0]->caps.tstamp, PV_TSTAMP_REALTIME);
}

/* As mlx4: no ibv_wr_*, but extended completion queues. */
static void open_plain_send(struct rig *rig)
{
	open_as(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .stamps = PV_VERBS_STAMPS_RAW }, "legacy", ",off=extended");
}

static void open_fault(struct rig *rig)
{
	const struct pv_fault_cfg cfg = { .seed = 1 };

	open_raw(rig);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_fault_open(&rig->ring[i], &rig->mem.mem, rig->ring[i], &cfg), 0);
}

static void open_memory(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .stamps = PV_VERBS_STAMPS_RAW, .dev_mem = 8192 }, "extended");
}

static void open_none(struct rig *rig)
{
	open_as(rig, (struct pv_verbs_cfg){ .stamps = PV_VERBS_STAMPS_RAW }, "extended", ",off=timestamps");
	CHECK_EQ(rig->ring[0]->caps.tstamp, PV_TSTAMP_NONE);
}

static void open_no_wall(struct rig *rig)
{
	open_as(rig, (struct pv_verbs_cfg){ .stamps = PV_VERBS_STAMPS_WALL }, "extended", ",off=wallclock");
	CHECK_EQ(rig->ring[0]->caps.tstamp, PV_TSTAMP_RAW);
}

VERBS(wall, open_wall, RIG_STAMPS);
VERBS(plain_send, open_plain_send, RIG_STAMPS);
VERBS(faulty, open_fault, RIG_STAMPS);
VERBS(memory, open_memory, RIG_STAMPS);
VERBS(none, open_none, 0);
VERBS(no_wall, open_no_wall, RIG_STAMPS);

#define ALL_OF(kind)                                                                                                               \
	CONTRACT_CASE(kind, stamps)                                                                                                \
	CONTRACT_CASE(kind, stamps_on_demand)                                                                                      \
	CONTRACT_CASE(kind, stamps_sent)                                                                                           \
	CONTRACT_CASE(kind, forget)

ALL_OF(wall)
ALL_OF(plain_send)
ALL_OF(faulty)
ALL_OF(memory)
ALL_OF(none)
ALL_OF(no_wall)

/* ---- other clocks ----------------------------------------------------------------------------------------------------------- */

/* What the next rig's ports are told, and rings without rules that keep the ports while that is done. */
static const char *clock_spec;
static struct {
	struct testmem mem;
	struct pv_pool *pool[2];
	struct pv_ring *ring[2];
} hold;

static const char *port_of(const struct rig *rig, int side)
{
	return ((const struct verbs_rig *)rig->wire)->names[side];
}

static void open_clocked(struct rig *rig)
{
	static const struct pv_flow all = { .kind = PV_FLOW_ALL };
	const struct pv_pool_cfg pc = { .buf_size = 2048, .headroom = 128, .count = 16, .max = 16 };
	struct pv_verbs_cfg cfg = {
		.library = SOFTNIC_LIB, .rx_depth = RIG_DEPTH, .tx_depth = RIG_DEPTH, .stamps = PV_VERBS_STAMPS_RAW
	};
	struct verbs_rig *vr = calloc(1, sizeof(*vr));
	char err[256];

	CHECK(vr != NULL);
	rig->wire = vr;
	devices(vr->names, "");
	truth_load();
	testmem_init(&hold.mem);
	for (int i = 0; i < 2; i++) {
		cfg.device = vr->names[i];
		CHECK_EQ(pv_pool_open(&hold.pool[i], &hold.mem.mem, &pc), 0);
		CHECK_EQ(pv_verbs_open(&hold.ring[i], &hold.mem.mem, hold.pool[i], &cfg, err, sizeof(err)), 0);
		CHECK_EQ(truth.clock(vr->names[i], clock_spec), 0);
		CHECK_EQ(pv_verbs_open(&rig->ring[i], &rig->mem.mem, rig->pool[i], &cfg, err, sizeof(err)), 0);
		CHECK_EQ(pv_ring_flow_add(rig->ring[i], &all, &rig->all_rule[i]), 0);
	}
}

static void close_clocked(struct rig *rig)
{
	for (int i = 0; i < 2; i++) {
		pv_ring_close(hold.ring[i]);
		CHECK_EQ(pv_pool_close(hold.pool[i]), 0);
	}
	CHECK_EQ(hold.mem.blocks, 0);
	free(rig->wire);
}

static const struct rig_kind clocked = {
	.name = "clocked", .must = RIG_STAMPS, .open = open_clocked, .close = close_clocked, .settle = settle, .set_link = set_link
};

/* One frame to side 1; its stamp. */
static uint64_t stamp_of_one(struct rig *rig, uint32_t number)
{
	struct pv_pkt *p;
	uint64_t raw;

	rig_send(rig, 0, 64, number);
	p = rig_recv(rig, 1);
	CHECK(p->flags & PV_PKT_TSTAMP);
	raw = p->tstamp;
	pv_pkt_put(p);
	rig_reap(rig, 0);
	rig_fill(rig, 1);
	return raw;
}

TEST(frequency_is_in_khz_and_the_counter_comes_round)
{
	static const struct {
		const char *spec;
		uint64_t khz, mask;
	} cases[] = {
		{ "khz=156250,bits=48,drift=100ppm", 156250, (UINT64_C(1) << 48) - 1 },
		{ "khz=1000000,bits=32", 1000000, UINT32_MAX },
		{ "khz=10000000,bits=24", 10000000, (1u << 24) - 1 }, /* comes round each 1.7 ms */
		{ "", 1000000, UINT64_MAX },
	};

	for (size_t i = 0; i < pv_array_size(cases); i++) {
		struct rig rig;

		clock_spec = cases[i].spec;
		rig_open(&rig, &clocked);
		CHECK_EQ(rig.ring[1]->caps.tstamp_khz, cases[i].khz);
		CHECK_EQ(rig.ring[1]->caps.tstamp_mask, cases[i].mask);
		CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
		CHECK_EQ(truth.watch(port_of(&rig, 1)), 0);
		rig_fill(&rig, 1);
		for (uint32_t n = 0; n < 200; n++) {
			uint64_t raw = stamp_of_one(&rig, n), now;
			struct softnic_stamp t;

			CHECK_EQ(raw & ~cases[i].mask, 0);
			CHECK_EQ(pv_ring_clock(rig.ring[1], &now), 0);
			CHECK_EQ(now & ~cases[i].mask, 0);
			/* What the completion said is what the counter showed at that moment. */
			CHECK_EQ(truth.take(&t, 1), 1);
			CHECK_EQ(raw, t.ticks);
		}
		CHECK_EQ(truth.watch(NULL), 0);
		rig_close(&rig);
	}
}

/* Ticks pass as the drift says, against true time, and a step is one. */
TEST(drift_and_steps_live)
{
	struct softnic_stamp a, b;
	struct rig rig;
	double ratio;

	clock_spec = "khz=1000000";
	rig_open(&rig, &clocked);
	CHECK_EQ(truth.clock_read(port_of(&rig, 1), &a), 0);
	CHECK_EQ(a.ticks, (uint64_t)a.true_ns);
	CHECK_EQ(truth.clock(port_of(&rig, 1), "drift=500ppm"), 0);
	CHECK_EQ(truth.clock_read(port_of(&rig, 1), &a), 0);
	usleep(20000);
	CHECK_EQ(truth.clock_read(port_of(&rig, 1), &b), 0);
	ratio = (double)(b.ticks - a.ticks) / (double)(b.true_ns - a.true_ns);
	CHECK(ratio > 1.0004999 && ratio < 1.0005001);
	CHECK_EQ(truth.clock(port_of(&rig, 1), "step=-10ms,drift=0"), 0);
	CHECK_EQ(truth.clock_read(port_of(&rig, 1), &a), 0);
	/* Since the drift began the counter has won a little; the step took ten milliseconds of it. */
	CHECK((int64_t)a.ticks - a.true_ns < -9000000 && (int64_t)a.ticks - a.true_ns > -10000000);
	CHECK_EQ(truth.clock(port_of(&rig, 1), "step=10ms"), 0);
	CHECK_EQ(truth.clock_read(port_of(&rig, 1), &b), 0);
	CHECK_EQ(b.ticks - a.ticks, (uint64_t)(b.true_ns - a.true_ns) + 10000000);
	/* The other port's clock is its own. */
	CHECK_EQ(truth.clock_read(port_of(&rig, 0), &b), 0);
	CHECK_EQ(b.ticks, (uint64_t)b.true_ns);
	rig_close(&rig);
}

TEST(settings_that_are_refused)
{
	static const char *const bad[] = { "khz",           "khz=",       "khz=999", "khz=10000001", "khz=1e3x",
					   "khz=nan",       "khz=0x1000", "bits=23", "bits=65",      "drift=1",
					   "drift=1001ppm", "drift=inf",  "step=1",  "step=1h",      "step=3601s",
					   "day=",          "day=now",    "day=-1s", "nothing=1",    "khz=1000000;drift=1ppm",
					   "drift=1ppm " };
	struct rig rig;

	clock_spec = "";
	rig_open(&rig, &clocked);
	for (size_t i = 0; i < pv_array_size(bad); i++) {
		if (truth.clock(port_of(&rig, 1), bad[i]) != -EINVAL)
			fprintf(stderr, "%s\n", bad[i]);
		CHECK_EQ(truth.clock(port_of(&rig, 1), bad[i]), -EINVAL);
	}
	CHECK_EQ(truth.clock("softnic_nowhere_0", ""), -ENODEV);
	CHECK_EQ(truth.watch("softnic_nowhere_0"), -ENODEV);
	rig_close(&rig);
}

/* ---- the disciplined clock ---------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* Stamps converted as the runtime does in its ptp mode, against what the device's clock really showed: the counter drifts, the clock of
 * the day was set to a truth of its own. */
TEST(ptp_mode_is_within_100_ns)
{
	enum { STAMPS = 3000 };
	static int64_t error[STAMPS];
	struct pv_ring_clock_info info;
	struct pv_tline line = { .mask = 0 };
	int64_t last = INT64_MIN;
	uint32_t back = 0;
	struct rig rig;

	clock_spec = "khz=156250,drift=100ppm,day=1700000000s";
	rig_open(&rig, &clocked);
	CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
	CHECK_EQ(truth.watch(port_of(&rig, 1)), 0);
	rig_fill(&rig, 1);
	for (uint32_t i = 0; i < STAMPS; i++) {
		struct softnic_stamp t;
		uint64_t raw;
		int64_t ns;

		/* More often than in the runtime, so that there are many joints. */
		if (i % 100 == 0) {
			CHECK_EQ(pv_ring_clock_info(rig.ring[1], &info), 0);
			CHECK_EQ(pv_tline_info(&line, &info), i == 0);
		}
		raw = stamp_of_one(&rig, i);
		ns = pv_tline_ns(&line, raw);
		back += ns < last;
		last = ns;
		CHECK_EQ(truth.take(&t, 1), 1);
		error[i] = llabs(ns - t.day_ns);
	}
	qsort(error, STAMPS, sizeof(error[0]), by_size);
	printf("ptp: p50 %lld ns, p99 %lld ns, worst %lld ns\n", (long long)error[STAMPS / 2], (long long)error[STAMPS * 99 / 100],
	       (long long)error[STAMPS - 1]);
	CHECK(error[STAMPS * 99 / 100] <= 100);
	CHECK_EQ(back, 0);
	/* It is set: the next look tells. */
	CHECK_EQ(truth.clock(port_of(&rig, 1), "day=1800000000s"), 0);
	CHECK_EQ(pv_ring_clock_info(rig.ring[1], &info), 0);
	CHECK(pv_tline_info(&line, &info));
	CHECK(pv_tline_ns(&line, info.cycles) >= 1800000000 * PV_NS_PER_S);
	rig_close(&rig);
}

/* A clock of the day that follows CLOCK_REALTIME stays near it, whoever asks; its own stamps say the same as a conversion. */
TEST(the_disciplined_clock_follows_realtime)
{
	struct pv_ring_clock_info info;
	struct softnic_stamp t;
	struct rig rig;

	clock_spec = "drift=-100ppm";
	rig_open(&rig, &clocked);
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(pv_ring_clock_info(rig.ring[1], &info), 0);
		CHECK_EQ(truth.clock_read(port_of(&rig, 1), &t), 0);
		/* Bounded loosely: CLOCK_REALTIME may be slewed or set while this runs. */
		CHECK(llabs(t.day_ns - t.realtime_ns) < 100000);
		usleep(10000);
	}
	rig_close(&rig);
}

/* ---- one queue, several senders -------------------------------------------------------------------------------------------------- */

struct sender {
	struct rig *rig;
	struct pv_ring *ring;
	struct pv_pool *pool;
	bool stop; /* atomic */
};

static void *send_many(void *arg)
{
	struct sender *s = arg;

	for (uint32_t i = 0; !__atomic_load_n(&s->stop, __ATOMIC_RELAXED);) {
		struct pv_pkt *p = pv_pkt_get(s->pool), *out[8];
		uint32_t n;

		if (p) {
			rig_write(p->data, 60, 0, i);
			p->len = p->total = 60;
			if (pv_ring_tx_post(s->ring, &p, 1))
				i++;
			else
				pv_pkt_put(p);
			(void)pv_ring_tx_kick(s->ring);
		}
		n = pv_ring_tx_reap(s->ring, out, 8);
		while (n)
			pv_pkt_put(out[--n]);
	}
	return NULL;
}

/* Two senders overtake each other between taking a slot and looking at the clock; the queue's stamps do not show it. */
TEST(stamps_of_a_queue_do_not_go_back)
{
	struct sender s[2];
	pthread_t thread[2];
	uint64_t last = 0;
	uint32_t got = 0, quiet = 0;
	struct rig rig;

	clock_spec = "";
	rig_open(&rig, &clocked);
	CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
	rig_fill(&rig, 1);
	s[0] = (struct sender){ &rig, rig.ring[0], rig.pool[0], false };
	s[1] = (struct sender){ &rig, hold.ring[0], hold.pool[0], false };
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, send_many, &s[i]), 0);
	for (bool joined = false; quiet < 1000;) {
		struct pv_pkt *in[16];
		uint32_t n = pv_ring_rx_poll(rig.ring[1], in, 16);

		for (uint32_t i = 0; i < n; i++) {
			CHECK(in[i]->flags & PV_PKT_TSTAMP);
			CHECK(in[i]->tstamp >= last);
			last = in[i]->tstamp;
			pv_pkt_put(in[i]);
		}
		got += n;
		rig_fill(&rig, 1);
		quiet = n || !joined ? 0 : quiet + 1;
		if (!joined && got > 1000) {
			for (int i = 0; i < 2; i++) {
				__atomic_store_n(&s[i].stop, true, __ATOMIC_RELAXED);
				pthread_join(thread[i], NULL);
			}
			joined = true;
		}
	}
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
