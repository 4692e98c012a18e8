/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conversion of time stamps in virtual time: lines, the lock-free reader, the sync converter against a device's clock that drifts and
 * steps, and the kernel's clocks found in a tree of files.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "rt/tstamp.h"
#include "rt/tstamp_conv.h"
#include "rt/tstamp_phc.h"
#include "test.h"

/* What a clock of a descriptor says, where that is not 0. The program's own symbol comes before libc's. */
static int64_t device_ns;

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ts)
{
	static int (*next)(clockid_t, struct timespec *);

	if (device_ns && id < 0) {
		*ts = (struct timespec){ .tv_nsec = device_ns };
		return 0;
	}
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
	return next(id, ts);
}

/* ---- lines --------------------------------------------------------------------------------------------------------------- */

TEST(raw_frequencies_are_khz)
{
	static const struct {
		uint64_t khz, raw;
		int64_t ns;
	} cases[] = {
		{ 1000000, 0, 0 },
		{ 1000000, 1, 1 },
		{ 1000000, 1790000000123456789, 1790000000123456789 },
		{ 156250, 156250, 1000000 }, /* mlx5's usual clock: 6.4 ns a tick */
		{ 156250, 156250ull * 1000 * 86400 * 365, 86400ll * 365 * 1000000000 },
		{ 1000, 3, 3000 },
		{ 1, 1, 1000000 },
		{ 10000000, 12345, 1234 },
	};

	for (size_t i = 0; i < pv_array_size(cases); i++) {
		struct pv_tline l;
		int64_t ns;

		pv_tline_raw(&l, cases[i].khz);
		ns = pv_tline_ns(&l, cases[i].raw);
		/* Rounded down; over a year the frequency's own rounding is a nanosecond. */
		CHECK(ns == cases[i].ns || ns == cases[i].ns - 1);
	}
}

TEST(a_line_that_changes_nothing)
{
	struct pv_tline l;

	pv_tline_same(&l);
	CHECK_EQ(pv_tline_ns(&l, 0), 0);
	CHECK_EQ(pv_tline_ns(&l, 1790000000123456789), 1790000000123456789);
}

/* The arithmetic of mlx5dv_ts_to_ns, ahead and behind. */
static int64_t by_definition(const struct pv_ring_clock_info *i, uint64_t raw)
{
	uint64_t delta = (raw - i->cycles) & i->mask;

	if (delta > i->mask / 2)
		return (int64_t)(i->nsec - ((((i->cycles - raw) & i->mask) * i->mult - i->frac) >> i->shift));
	return (int64_t)(i->nsec + ((delta * i->mult + i->frac) >> i->shift));
}

TEST(clock_info_is_read_as_the_driver_means_it)
{
	struct pv_ring_clock_info info = { .cycles = 0xfffffff000, .mask = 0xffffffffff, .nsec = 1700000000000000000, .frac = 77 };
	struct pv_tline l = { .mask = 0 };

	info.mult = 13421773; /* 6.4 ns a tick */
	info.shift = 21;
	CHECK(pv_tline_info(&l, &info));
	for (int64_t d = -100000; d < 100000; d += 7) {
		uint64_t raw = (info.cycles + (uint64_t)d) & info.mask; /* the counter comes round on the way */
		int64_t off = pv_tline_ns(&l, raw) - by_definition(&info, raw);

		/* Behind the reading both round to the side they like. */
		CHECK(d >= 0 ? off == 0 : off >= -1 && off <= 0);
	}
	CHECK(!pv_tline_info(&l, &info));
	/* Disciplined: goes on where it was, slightly slower; stamps from before are as they were. */
	int64_t before = pv_tline_ns(&l, (info.cycles + 10) & info.mask);

	info.nsec = (uint64_t)pv_tline_ns(&l, (info.cycles + 100000) & info.mask);
	info.cycles = (info.cycles + 100000) & info.mask;
	info.frac = 0;
	info.mult -= 1000;
	CHECK(!pv_tline_info(&l, &info));
	CHECK_EQ(pv_tline_ns(&l, (info.cycles - 100000 + 10) & info.mask), before);
	CHECK_EQ(pv_tline_ns(&l, (info.cycles + 5000) & info.mask), by_definition(&info, (info.cycles + 5000) & info.mask));
	/* Set: what was stamped before is read by the new time. */
	info.nsec += 10000000;
	CHECK(pv_tline_info(&l, &info));
	CHECK_EQ(pv_tline_ns(&l, info.cycles), (int64_t)info.nsec);
}

/* ---- readers beside a writer --------------------------------------------------------------------------------------------- */

struct shared {
	struct pv_tconv conv;
	_Atomic(bool) stop;
};

/* Every line that is published maps raw 5 to 5 times its mult: a mixture of two would not. */
static void *publisher(void *arg)
{
	struct shared *s = arg;
	struct pv_rng rng;

	pv_rng_seed(&rng, 7);
	while (!atomic_load(&s->stop)) {
		uint64_t mult = pv_rng_below(&rng, 1000000) + 1;
		struct pv_tline l = { .cur = { .raw = 5 * mult, .ns = (int64_t)(15 * mult), .mult = 3 }, .mask = UINT64_MAX };

		l.half = UINT64_MAX >> 1;
		l.prev = l.cur;
		pv_tconv_publish(&s->conv, &l);
	}
	return NULL;
}

TEST(a_reader_sees_whole_lines)
{
	static struct shared s;
	pthread_t thread;
	int64_t ns;
	int seen = 0;

	CHECK(!pv_tconv_ns(&s.conv, 1, &ns));
	CHECK_EQ(pthread_create(&thread, NULL, publisher, &s), 0);
	for (uint32_t i = 0; i < 200000 || !seen; i++) {
		if (!pv_tconv_ns(&s.conv, 1000, &ns))
			continue;
		seen++;
		CHECK_EQ(ns, 3000);
	}
	atomic_store(&s.stop, true);
	pthread_join(thread, NULL);
	pv_tconv_clear(&s.conv);
	CHECK(!pv_tconv_ns(&s.conv, 1, &ns));
}

/* ---- the sync converter ---------------------------------------------------------------------------------------------------- */

/* A world of two clocks: true time, which the reference shows, and a device's counter. */
struct world {
	struct pv_rng rng;
	int64_t now_ns; /* true time */
	int64_t ref_off_ns; /* what the reference was set to beside it */
	double drift; /* of the device */
	double base_ticks; /* at base_ns */
	int64_t base_ns;
	uint64_t khz, mask;
	uint32_t read_ns; /* that a reading of the device takes, at least */
};

static uint64_t device_at(const struct world *w, int64_t ns)
{
	long double ticks = w->base_ticks + (long double)(ns - w->base_ns) * w->khz / 1e6L * (1 + (long double)w->drift);

	return (uint64_t)(int64_t)ticks & w->mask;
}

static void set_drift(struct world *w, double drift)
{
	long double ticks = w->base_ticks + (long double)(w->now_ns - w->base_ns) * w->khz / 1e6L * (1 + (long double)w->drift);

	w->base_ticks = (double)ticks;
	w->base_ns = w->now_ns;
	w->drift = drift;
}

static void step_device(struct world *w, int64_t ns)
{
	w->base_ticks += (double)ns * (double)w->khz / 1e6;
}

static int64_t ref_read(void *ctx)
{
	struct world *w = ctx;

	w->now_ns += 20 + (int64_t)pv_rng_below(&w->rng, 10);
	return w->now_ns + w->ref_off_ns;
}

/* Takes its time, now and then far too long, and the counter is read somewhere within. */
static int device_read(void *ctx, uint64_t *raw)
{
	struct world *w = ctx;
	int64_t took = w->read_ns + (int64_t)pv_rng_below(&w->rng, w->read_ns + 1);
	int64_t at = took / 2 + (int64_t)pv_rng_below(&w->rng, (uint64_t)took / 8 + 1) - took / 16;

	if (pv_rng_below(&w->rng, 5) == 0)
		took += (int64_t)pv_rng_below(&w->rng, 20000);
	*raw = device_at(w, w->now_ns + at);
	w->now_ns += took;
	return 0;
}

#define ERRORS_MAX 400000u

struct run {
	struct world w;
	struct pv_tsync s;
	struct pv_tconv conv;
	int64_t due_ns, last_ns;
	uint64_t last_raw;
	uint32_t n, back;
	uint32_t *error; /* of every stamp, ns */
};

static void run_open(struct run *r, uint64_t khz, uint64_t mask)
{
	memset(r, 0, sizeof(*r));
	pv_rng_seed(&r->w.rng, khz + mask);
	r->w.now_ns = r->w.base_ns = 1790000000000000000;
	r->w.base_ticks = 123456789;
	r->w.khz = khz;
	r->w.mask = mask;
	r->w.read_ns = 60;
	r->due_ns = r->w.now_ns;
	r->last_ns = INT64_MIN;
	r->error = malloc(ERRORS_MAX * sizeof(*r->error));
	CHECK(r->error != NULL);
	pv_tsync_init(&r->s, khz, mask);
}

/* Lets time pass with a stamp about every 0.1 ms; errors are kept from here. */
static void run_for(struct run *r, int64_t ns)
{
	const struct pv_tpair pair = { .raw = device_read, .ref_ns = ref_read, .ctx = &r->w };
	int64_t until = r->w.now_ns + ns;

	r->n = 0;
	while (r->w.now_ns < until) {
		int64_t out;
		uint64_t raw;

		if (r->w.now_ns >= r->due_ns) {
			struct pv_tsample x;

			/* The thread wakes late. */
			r->w.now_ns += (int64_t)pv_rng_below(&r->w.rng, 300000);
			CHECK_EQ(pv_tsample_take(&x, &pair, 10), 0);
			CHECK(x.width_ns < 60000);
			r->due_ns = r->w.now_ns + pv_tsync_update(&r->s, &x);
			r->w.now_ns += (int64_t)pv_rng_below(&r->w.rng, 3000); /* till it is published */
			pv_tconv_publish(&r->conv, &r->s.line);
		}
		r->w.now_ns += 50000 + (int64_t)pv_rng_below(&r->w.rng, 100000);
		raw = device_at(&r->w, r->w.now_ns);
		CHECK(pv_tconv_ns(&r->conv, raw, &out));
		r->back += out < r->last_ns;
		r->last_ns = out;
		if (r->n < ERRORS_MAX)
			r->error[r->n++] = (uint32_t)PV_MIN(llabs(out - r->w.now_ns - r->w.ref_off_ns), 1ll << 31);
	}
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t run_p99(struct run *r)
{
	CHECK(r->n > 100);
	qsort(r->error, r->n, sizeof(*r->error), by_size);
	return r->error[r->n - 1 - r->n / 100];
}

static void run_close(struct run *r)
{
	free(r->error);
}

/* What the documentation promises: 1 us for 99 of 100 stamps, half a second after the start. */
TEST(sync_follows_a_drifting_clock)
{
	static const struct {
		uint64_t khz, mask;
		double drift;
	} cases[] = {
		{ 1000000, UINT64_MAX, 0 },           { 1000000, UINT64_MAX, 100e-6 },       { 1000000, UINT64_MAX, -100e-6 },
		{ 156250, (1ull << 48) - 1, 100e-6 }, { 1000000, (1ull << 32) - 1, 100e-6 }, { 322265, (1ull << 40) - 1, -50e-6 },
		{ 1000000, (1ull << 26) - 1, 20e-6 }, { 2500000, (1ull << 63) - 1, 100e-6 },
	};

	for (size_t i = 0; i < pv_array_size(cases); i++) {
		struct run r;
		uint32_t p99;

		run_open(&r, cases[i].khz, cases[i].mask);
		r.w.drift = cases[i].drift;
		run_for(&r, 500 * PV_NS_PER_MS);
		run_for(&r, 20 * PV_NS_PER_S);
		p99 = run_p99(&r);
		printf("%llu kHz, %+.0f ppm: p99 %u ns, worst %u ns, bound %llu ns\n", (unsigned long long)cases[i].khz,
		       cases[i].drift * 1e6, p99, r.error[r.n - 1], (unsigned long long)r.s.error_bound_ns);
		CHECK(p99 <= 1000);
		CHECK(r.error[r.n - 1] <= 2000);
		CHECK(p99 <= r.s.error_bound_ns);
		CHECK_EQ(r.s.steps, 0);
		CHECK_EQ(r.back, 0);
		run_close(&r);
	}
}

/* Both directions, of either clock. It is noticed with the next sample, a second later at most, and made good there. */
TEST(sync_recovers_from_a_step)
{
	static const struct {
		int64_t device_ns, ref_ns;
	} cases[] = { { 10000000, 0 }, { -10000000, 0 }, { 0, 10000000 }, { 0, -10000000 }, { 0, 3600000000000 }, { 300000, 0 } };

	for (size_t i = 0; i < pv_array_size(cases); i++) {
		struct run r;
		uint32_t p99;

		run_open(&r, 1000000, UINT64_MAX);
		r.w.drift = 100e-6;
		run_for(&r, 10 * PV_NS_PER_S);
		CHECK_EQ(r.s.steps, 0);
		step_device(&r.w, cases[i].device_ns);
		r.w.ref_off_ns += cases[i].ref_ns;
		run_for(&r, 1100 * PV_NS_PER_MS);
		run_for(&r, 20 * PV_NS_PER_S);
		p99 = run_p99(&r);
		printf("step of %lld/%lld ns: p99 %u ns, worst %u ns from 1.1 s on\n", (long long)cases[i].device_ns,
		       (long long)cases[i].ref_ns, p99, r.error[r.n - 1]);
		CHECK(p99 <= 1000);
		CHECK(r.error[r.n - 1] <= 2000);
		CHECK_EQ(r.s.steps, 1);
		run_close(&r);
	}
}

/* An offset that can be made up for is, without going back. */
TEST(sync_slews_small_offsets)
{
	struct run r;

	run_open(&r, 1000000, UINT64_MAX);
	run_for(&r, 10 * PV_NS_PER_S);
	for (int i = 0; i < 6; i++) {
		r.w.ref_off_ns += i % 2 ? 40000 : -40000;
		run_for(&r, 1300 * PV_NS_PER_MS);
		run_for(&r, 4 * PV_NS_PER_S);
		CHECK(run_p99(&r) <= 1000);
	}
	CHECK_EQ(r.s.steps, 0);
	CHECK_EQ(r.back, 0);
	run_close(&r);
}

TEST(sync_learns_another_frequency)
{
	static const double drifts[] = { 100e-6, 0, -100e-6, 30e-6, 33e-6, 500e-6 };
	struct run r;

	run_open(&r, 156250, UINT64_MAX);
	run_for(&r, 10 * PV_NS_PER_S);
	for (size_t i = 0; i < pv_array_size(drifts); i++) {
		set_drift(&r.w, drifts[i]);
		run_for(&r, 1500 * PV_NS_PER_MS);
		run_for(&r, 10 * PV_NS_PER_S);
		printf("drift %+.0f ppm: p99 %u ns from 1.5 s on\n", drifts[i] * 1e6, run_p99(&r));
		CHECK(run_p99(&r) <= 1000);
	}
	run_close(&r);
}

/* Readings that take long, as over a bus, are worth what they are worth; a bad one does not spoil the line. */
TEST(sync_with_slow_readings)
{
	struct run r;

	run_open(&r, 156250, UINT64_MAX);
	r.w.drift = 100e-6;
	r.w.read_ns = 900;
	run_for(&r, PV_NS_PER_S);
	run_for(&r, 20 * PV_NS_PER_S);
	printf("readings of 0.9 us: p99 %u ns, bound %llu ns\n", run_p99(&r), (unsigned long long)r.s.error_bound_ns);
	CHECK(run_p99(&r) <= 1000);
	CHECK(r.s.error_bound_ns <= 3000);
	CHECK_EQ(r.s.steps, 0);
	run_close(&r);
}

TEST(a_poor_sample_is_passed_over)
{
	struct pv_tsync s;
	struct pv_tsample x = { .raw = 1000, .width_ns = 100, .ns = 5000 };
	int64_t ns = 0;

	pv_tsync_init(&s, 1000000, UINT64_MAX);
	for (int i = 0; i < 10; i++) {
		ns = pv_tsync_update(&s, &x);
		x.raw += (uint64_t)ns;
		x.ns += ns;
	}
	CHECK_EQ(ns, PV_NS_PER_S);
	CHECK_EQ(pv_tline_ns(&s.line, x.raw), x.ns);
	/* The thread slept between the readings of one try, and of each other. */
	x.width_ns = 50000000;
	x.ns += 20000000;
	ns = pv_tsync_update(&s, &x);
	CHECK(ns < PV_NS_PER_S);
	CHECK_EQ(pv_tline_ns(&s.line, x.raw), x.ns - 20000000);
	CHECK_EQ(s.samples, 10);
}

/* A counter that stands still, runs backwards, or reads nonsense: no crash, and no line from before is kept. */
TEST(sync_survives_any_counter)
{
	static struct pv_tconv conv;
	struct pv_rng rng;
	int64_t ns, out;

	pv_rng_seed(&rng, 3);
	for (int round = 0; round < 200; round++) {
		uint64_t mask = UINT64_MAX >> pv_rng_below(&rng, 48), khz = 1 + pv_rng_below(&rng, 10000000);
		struct pv_tsample x = { .width_ns = 100, .ns = (int64_t)pv_rng_below(&rng, INT64_MAX / 2) };
		struct pv_tsync s;

		pv_tsync_init(&s, khz, mask);
		for (int i = 0; i < 50; i++) {
			switch (pv_rng_below(&rng, 4)) {
			case 0:
				x.raw = pv_rng_u64(&rng) & mask;
				break;
			case 1:
				x.raw = (x.raw + pv_rng_below(&rng, 1000000000)) & mask;
				break;
			case 2:
				x.ns = (int64_t)pv_rng_below(&rng, INT64_MAX / 2);
				break;
			}
			ns = pv_tsync_update(&s, &x);
			CHECK(ns >= PV_NS_PER_MS && ns <= PV_NS_PER_S);
			x.ns += ns;
			/* The reader without a lock says the same as the line, before, between and behind the pieces. */
			pv_tconv_publish(&conv, &s.line);
			for (int k = 0; k < 8; k++) {
				uint64_t raw = (k & 1 ? pv_rng_u64(&rng) : s.line.prev.raw + pv_rng_below(&rng, 1000) - 500) & mask;

				CHECK(pv_tconv_ns(&conv, raw, &out));
				CHECK_EQ(out, pv_tline_ns(&s.line, raw));
			}
		}
	}
}

static int no_clock(void *ctx, uint64_t *raw)
{
	(void)raw;
	return *(int *)ctx;
}

static int64_t backwards(void *ctx)
{
	static int64_t ns = INT64_C(1) << 60;

	(void)ctx;
	return ns -= 10;
}

static int64_t nothing(void *ctx)
{
	(void)ctx;
	return 0;
}

TEST(samples_that_cannot_be_taken)
{
	int rc = -ENODEV;
	struct pv_tpair pair = { .raw = no_clock, .ref_ns = backwards, .ctx = &rc };
	struct pv_tsample x;

	CHECK_EQ(pv_tsample_take(&x, &pair, 10), -ENODEV);
	rc = 0;
	CHECK_EQ(pv_tsample_take(&x, &pair, 10), -EAGAIN);
	/* A clock that is gone is no clock that says 0. */
	pair.ref_ns = nothing;
	CHECK_EQ(pv_tsample_take(&x, &pair, 10), -EIO);
}

/* ---- the kernel's clocks ----------------------------------------------------------------------------------------------------- */

static void make_tree(char *root, const char *const *dirs, size_t n)
{
	CHECK(mkdtemp(root) != NULL);
	for (size_t i = 0; i < n; i++) {
		char path[256];

		snprintf(path, sizeof(path), "%s/%s", root, dirs[i]);
		CHECK_EQ(mkdir(path, 0700), 0);
	}
}

/* Of that there is nothing to say, whatever was said (`err`) of another that was asked for before. */
static void a_clock_that_runs(struct pv_phc_ask ask, char *err, size_t size)
{
	struct pv_phc phc;

	CHECK(*err);
	ask.paired = false;
	device_ns = 5;
	CHECK_EQ(pv_phc_get(&phc, &ask, err, size), 0);
	CHECK(phc.fd >= 0 && !*err);
	CHECK_EQ(pv_phc_ns(&phc), 5);
	pv_phc_close(&phc);
	device_ns = 0;
}

TEST(a_clock_is_found_by_its_interface)
{
	static const char *const dirs[] = {
		"sys",
		"sys/class",
		"sys/class/net",
		"sys/class/net/eth0",
		"sys/class/net/eth0/device",
		"sys/class/net/eth0/device/ptp",
		"sys/class/net/eth0/device/ptp/ptp3",
		"sys/class/net/eth1",
		"sys/class/net/eth2",
		"sys/class/net/eth2/device",
		"sys/class/net/eth2/device/ptp",
		"sys/class/net/eth2/device/ptp/ptpx",
		"sys/class/infiniband",
		"sys/class/infiniband/mlx5_0",
		"sys/class/infiniband/mlx5_0/device",
		"sys/class/infiniband/mlx5_0/device/ptp",
		"sys/class/infiniband/mlx5_0/device/ptp/ptp12",
		"dev",
	};
	char root[] = "/tmp/pyvma-phc-XXXXXX", path[256], want[256], err[300];
	struct pv_phc_ask ask = { .root = root, .class = "net", .name = "eth0" };
	struct pv_tsample x;
	struct pv_phc phc;
	int fd;

	make_tree(root, dirs, pv_array_size(dirs));
	CHECK_EQ(pv_phc_find(root, "net", "eth0", path, sizeof(path)), 0);
	snprintf(want, sizeof(want), "%s/dev/ptp3", root);
	CHECK(!strcmp(path, want));
	CHECK_EQ(pv_phc_find(root, "infiniband", "mlx5_0", path, sizeof(path)), 0);
	CHECK_EQ(pv_phc_find(root, "net", "eth0", path, 10), -ENAMETOOLONG);
	CHECK_EQ(pv_phc_find(root, "net", "eth1", path, sizeof(path)), -ENODEV);
	CHECK_EQ(pv_phc_find(root, "net", "eth2", path, sizeof(path)), -ENODEV);
	CHECK_EQ(pv_phc_find(root, "net", "eth9", path, sizeof(path)), -ENODEV);
	CHECK_EQ(pv_phc_find(root, "net", "", path, sizeof(path)), -ENODEV);
	CHECK_EQ(pv_phc_find(root, "net", "../net/eth0", path, sizeof(path)), -ENODEV);
	CHECK_EQ(pv_phc_open(&phc, want), -ENOENT);
	CHECK_EQ(pv_phc_get(&phc, &ask, err, sizeof(err)), -ENOENT);
	CHECK(phc.fd < 0 && strstr(err, "ptp3: No such file"));
	ask.name = "eth1";
	CHECK_EQ(pv_phc_get(&phc, &ask, err, sizeof(err)), -ENODEV);
	CHECK(phc.fd < 0 && !strcmp(err, "eth1 has no clock of its own (/dev/ptpN)"));
	ask.name = "eth0";
	/* What is no clock is told by what it answers. */
	fd = open(want, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	close(fd);
	CHECK_EQ(pv_phc_open(&phc, want), 0);
	CHECK_EQ(pv_phc_sample(&phc, &x), -EOPNOTSUPP);
	CHECK_EQ(pv_phc_ns(&phc), 0);
	pv_phc_close(&phc);
	for (int paired = 0; paired < 2; paired++) {
		ask.paired = paired;
		CHECK(pv_phc_get(&phc, &ask, err, sizeof(err)) < 0);
		CHECK(phc.fd < 0 && strstr(err, "ptp3 cannot be read: "));
	}
	a_clock_that_runs(ask, err, sizeof(err));
	CHECK_EQ(unlink(want), 0);
	for (size_t i = pv_array_size(dirs); i--;) {
		snprintf(path, sizeof(path), "%s/%s", root, dirs[i]);
		CHECK_EQ(rmdir(path), 0);
	}
	CHECK_EQ(rmdir(root), 0);
}

TEST(the_tightest_reading_of_a_clock)
{
	static const int64_t triple[][3] = { { 100, 1000, 500 }, { 600, 1500, 700 }, { 800, 1700, 790 }, { 900, 1800, 1100 } };
	struct pv_tsample x;

	CHECK_EQ(pv_phc_best(triple, 4, &x), 0);
	CHECK_EQ(x.raw, 1500);
	CHECK_EQ(x.ns, 650);
	CHECK_EQ(x.width_ns, 100);
	CHECK_EQ(pv_phc_best(triple + 2, 1, &x), -EAGAIN);
	CHECK_EQ(pv_phc_best(triple, 0, &x), -EAGAIN);
}

TEST(modes_have_names)
{
	CHECK(!strcmp(pv_tstamp_mode_name(PV_TSTAMP_MODE_OFF), "off"));
	CHECK(!strcmp(pv_tstamp_mode_name(PV_TSTAMP_MODE_RTC), "rtc"));
	CHECK(!strcmp(pv_tstamp_mode_name((enum pv_tstamp_mode)99), ""));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
