/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time stamps in a running engine over the software NIC: which mode an interface gets by setting and device, and how far a conversion is
 * from the device's true clock.
 */
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/engine.h"
#include "rt/tstamp.h"
#include "softnic/softnic.h"
#include "test.h"

static struct {
	int (*clock)(const char *device, const char *spec);
	int (*clock_read)(const char *device, struct softnic_stamp *now);
} nic;

/* What a conversion may be off beside its bound when the thread that samples is kept from running for long. */
#define LOADED_NS 200000

static char fabric[32], device[64];

/* An engine with one interface; `mode` of the setting, `off`: what the device lacks. */
static void start(const char *mode, const char *off, const char *progress)
{
	char text[256];
	void *h = dlopen(SOFTNIC_LIB, RTLD_NOW | RTLD_LOCAL);

	CHECK(h != NULL);
	*(void **)&nic.clock = dlsym(h, "softnic_clock");
	*(void **)&nic.clock_read = dlsym(h, "softnic_clock_read");
	CHECK(nic.clock && nic.clock_read);
	if (!*fabric)
		snprintf(fabric, sizeof(fabric), "ts%08x", (unsigned int)getpid() ^ (unsigned int)time(NULL) << 12);
	snprintf(device, sizeof(device), "softnic_%s_0", fabric);
	snprintf(text, sizeof(text), "softnic:fabric=%s,port=0,addr=10.9.0.1/24", fabric);
	CHECK_EQ(setenv("PYVMA_SOFTNIC_OFF", off, 1), 0);
	CHECK_EQ(pyvma_config_set("softnic_lib", SOFTNIC_LIB), 0);
	CHECK_EQ(pyvma_config_set("interfaces", text), 0);
	CHECK_EQ(pyvma_config_set("hw_ts_conversion", mode), 0);
	CHECK_EQ(pyvma_config_set("progress", progress), 0);
	if (pyvma_start())
		fprintf(stderr, "%s\n", pyvma_last_error());
	CHECK_EQ(pv_engine_state(), PV_ENGINE_RUNNING);
}

static struct pv_tstamp_src src_of(bool want)
{
	struct pv_tstamp_src src;

	pv_lock_get(&pv_engine.lock);
	if (want)
		pv_tstamp_want(&pv_engine, true, true);
	pv_tstamp_get_src(&pv_engine, pv_engine.ports[0].index, &src);
	pv_lock_put(&pv_engine.lock);
	return src;
}

TEST(mode_in_force_by_setting_and_device)
{
	static const struct {
		const char *mode, *off;
		enum pv_tstamp_mode is;
	} cases[] = {
		{ "off", "", PV_TSTAMP_MODE_OFF },
		{ "raw", "", PV_TSTAMP_MODE_RAW },
		{ "best", "", PV_TSTAMP_MODE_SYNC },
		{ "sync", "", PV_TSTAMP_MODE_SYNC },
		{ "ptp", "", PV_TSTAMP_MODE_PTP },
		{ "rtc", "", PV_TSTAMP_MODE_RTC },
		/* No clock of the day in completions: by its other way. Nor that: by the host's clock. */
		{ "rtc", "wallclock", PV_TSTAMP_MODE_PTP },
		{ "rtc", "wallclock,clock-info", PV_TSTAMP_MODE_SYNC },
		{ "rtc", "wallclock,clock-info,clock", PV_TSTAMP_MODE_OFF },
		{ "ptp", "clock", PV_TSTAMP_MODE_PTP },
		{ "ptp", "clock-info", PV_TSTAMP_MODE_SYNC },
		{ "ptp", "clock-info,clock", PV_TSTAMP_MODE_OFF },
		/* A clock that cannot be read cannot be compared. */
		{ "sync", "clock", PV_TSTAMP_MODE_OFF },
		{ "best", "clock", PV_TSTAMP_MODE_RAW },
		{ "raw", "clock", PV_TSTAMP_MODE_RAW },
		{ "raw", "timestamps", PV_TSTAMP_MODE_OFF },
		{ "best", "timestamps", PV_TSTAMP_MODE_OFF },
		{ "sync", "timestamps", PV_TSTAMP_MODE_OFF },
		{ "rtc", "timestamps", PV_TSTAMP_MODE_OFF },
		{ "sync", "cq-ex", PV_TSTAMP_MODE_OFF },
		{ "sync", "extended", PV_TSTAMP_MODE_SYNC },
	};

	for (size_t i = 0; i < pv_array_size(cases); i++) {
		struct pv_tstamp_src src;
		bool off = cases[i].is == PV_TSTAMP_MODE_OFF;
		int64_t ns;

		start(cases[i].mode, cases[i].off, "1");
		/* Told before anything is sampled, and the same afterwards. */
		src = src_of(false);
		CHECK_EQ(src.mode, cases[i].is);
		CHECK_EQ(src.samples, 0);
		CHECK_EQ(src.error_bound_ns, PV_TSTAMP_ERROR_UNKNOWN);
		CHECK(!pv_tstamp_ns(&pv_engine, pv_engine.ports[0].index, 1000, &ns));
		src = src_of(true);
		if (src.mode != cases[i].is)
			fprintf(stderr, "%s without %s: %s\n", cases[i].mode, cases[i].off, pv_tstamp_mode_name(src.mode));
		CHECK_EQ(src.mode, cases[i].is);
		CHECK_EQ(src.error_bound_ns == PV_TSTAMP_ERROR_UNKNOWN, off);
		pv_lock_get(&pv_engine.lock);
		CHECK_EQ(pv_tstamp_ns(&pv_engine, pv_engine.ports[0].index, 1000, &ns), !off);
		CHECK(!pv_tstamp_ns(&pv_engine, pv_engine.ports[0].index + 1, 1000, &ns));
		CHECK(!pv_tstamp_ns(&pv_engine, UINT32_MAX, 1000, &ns));
		pv_tstamp_get_src(&pv_engine, 99, &src);
		CHECK_EQ(src.mode, PV_TSTAMP_MODE_OFF);
		pv_lock_put(&pv_engine.lock);
		pyvma_stop();
	}
	CHECK_EQ(setenv("PYVMA_SOFTNIC_OFF", "", 1), 0);
}

/* What the interface's conversion makes of this moment, less what it should be. */
static int64_t error_now(bool day)
{
	struct softnic_stamp t;
	int64_t ns;
	bool ok;

	CHECK_EQ(nic.clock_read(device, &t), 0);
	pv_lock_get(&pv_engine.lock);
	ok = pv_tstamp_ns(&pv_engine, pv_engine.ports[0].index, t.ticks, &ns);
	pv_lock_put(&pv_engine.lock);
	CHECK(ok);
	return ns - (day ? t.day_ns : t.realtime_ns);
}

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static int64_t p99(bool day, int64_t *bound)
{
	static int64_t error[2000];

	for (size_t i = 0; i < pv_array_size(error); i++) {
		error[i] = llabs(error_now(day));
		if (i % 20 == 0)
			usleep(500);
	}
	qsort(error, pv_array_size(error), sizeof(error[0]), by_size);
	*bound = (int64_t)src_of(false).error_bound_ns;
	return error[pv_array_size(error) * 99 / 100];
}

static void wait_samples(uint64_t n)
{
	for (int i = 0; i < 30000 && src_of(false).samples < n; i++)
		usleep(1000);
	CHECK(src_of(false).samples >= n);
}

/* The progress thread samples. How good that is on a quiet machine tools/tstamp_error.py measures. */
TEST(sync_against_the_devices_true_clock)
{
	int64_t bound, worst;

	start("sync", "", "1");
	CHECK_EQ(nic.clock(device, "drift=100ppm"), 0);
	src_of(true);
	wait_samples(3);
	worst = p99(false, &bound);
	printf("sync, 100 ppm: p99 %lld ns, bound %lld ns\n", (long long)worst, (long long)bound);
	CHECK(worst <= bound + LOADED_NS);
	CHECK_EQ(nic.clock(device, "step=10ms"), 0);
	for (int i = 0; i < 30000 && !src_of(false).steps; i++)
		usleep(1000);
	CHECK(src_of(false).steps >= 1);
	wait_samples(src_of(false).samples + 1);
	worst = p99(false, &bound);
	printf("sync, after a step of 10 ms: p99 %lld ns, bound %lld ns\n", (long long)worst, (long long)bound);
	CHECK(worst <= bound + LOADED_NS);
	pyvma_stop();
}

TEST(ptp_against_the_devices_own_clock)
{
	int64_t bound, worst;

	start("ptp", "", "1");
	CHECK_EQ(nic.clock(device, "drift=100ppm,day=1500000000s"), 0);
	src_of(true);
	wait_samples(3);
	worst = p99(true, &bound);
	printf("ptp, 100 ppm: p99 %lld ns\n", (long long)worst);
	CHECK(worst <= LOADED_NS);
	CHECK_EQ(bound, 0);
	CHECK(llabs(error_now(false)) > 1000000000);
	pyvma_stop();
}

/* Raw stamps are the counter's own time; without the trap of a frequency in MHz. */
TEST(raw_against_true_time)
{
	struct softnic_stamp a, b;
	int64_t from, to;

	start("raw", "", "1");
	src_of(true);
	CHECK_EQ(nic.clock_read(device, &a), 0);
	usleep(2000);
	CHECK_EQ(nic.clock_read(device, &b), 0);
	pv_lock_get(&pv_engine.lock);
	CHECK(pv_tstamp_ns(&pv_engine, pv_engine.ports[0].index, a.ticks, &from));
	CHECK(pv_tstamp_ns(&pv_engine, pv_engine.ports[0].index, b.ticks, &to));
	pv_lock_put(&pv_engine.lock);
	CHECK(llabs((to - from) - (b.true_ns - a.true_ns)) <= 1);
	pyvma_stop();
}

/* Without a progress thread the polls sample. */
TEST(sampled_by_polls)
{
	start("sync", "", "0");
	src_of(true);
	CHECK_EQ(src_of(false).samples, 1);
	for (int i = 0; i < 30000 && src_of(false).samples < 2; i++) {
		usleep(1000);
		pv_lock_get(&pv_engine.lock);
		for (uint32_t n = 0; n < PV_HOST_POLLS; n++)
			pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
		pv_lock_put(&pv_engine.lock);
	}
	CHECK(src_of(false).samples >= 2);
	pyvma_stop();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
