/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device's clocks for programs: what mlx5's direct interface shows of the disciplined one, and softnic.h's calls by which a test sets
 * them and learns the truth.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "softnic/softnic.h"
#include "softnic/vb.h"

#pragma GCC visibility push(default)
#include <infiniband/mlx5dv.h>
#pragma GCC visibility pop

int mlx5dv_get_clock_info(struct ibv_context *context, struct mlx5dv_clock_info *info)
{
	struct sn_clock_info c;

	if (!vb_ours(context)) {
		void *lib = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		bool (*supported)(struct ibv_device *) = NULL;
		int (*get)(struct ibv_context *, struct mlx5dv_clock_info *) = NULL;

		if (!lib)
			return EOPNOTSUPP;
		*(void **)&supported = dlsym(lib, "mlx5dv_is_supported");
		*(void **)&get = dlsym(lib, "mlx5dv_get_clock_info");
		dlclose(lib);
		return supported && get && supported(context->device) ? get(context, info) : EOPNOTSUPP;
	}
	if (vb_ctx(context)->gone)
		return ENODEV;
	if (!vb_has(context, VB_CAP_CLOCK_INFO))
		return EOPNOTSUPP;
	sn_clock_info(vb_ctx(context)->port, &c);
	*info = (struct mlx5dv_clock_info){
		.nsec = c.nsec,
		.last_cycles = c.cycles,
		.frac = c.frac,
		.mult = c.mult,
		.shift = c.shift,
		.mask = c.mask,
	};
	return 0;
}

/* ---- setting ----------------------------------------------------------------------------------------------------------------------- */

struct unit {
	const char *name;
	double factor;
};

static const struct unit times[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { NULL, 0 } };
static const struct unit shares[] = { { "ppm", 1e3 }, { "ppb", 1 }, { NULL, 0 } };
static const struct unit plain[] = { { "", 1 }, { NULL, 0 } };

/* A decimal number and its unit, which a plain 0 need not have. */
static bool number(const char *text, const struct unit *u, double min, double max, int64_t *out)
{
	char *end;
	double v;

	if (!*text || text[strspn(text, "+-.0123456789")] == 'x' || !strchr("+-.0123456789", *text))
		return false;
	v = strtod(text, &end);
	if (end == text)
		return false;
	while (u->name && strcmp(u->name, end) && (v != 0 || *end))
		u++;
	if (!u->name || !(v * u->factor >= min && v * u->factor <= max))
		return false;
	v *= u->factor;
	*out = (int64_t)(v < 0 ? v - 0.5 : v + 0.5);
	return true;
}

static bool clock_option(struct sn_clock_cfg *cfg, const char *name, const char *text)
{
	int64_t v;

	if (!strcmp(name, "khz") && number(text, plain, 1000, 10000000, &v)) {
		cfg->khz = (uint32_t)v;
	} else if (!strcmp(name, "bits") && number(text, plain, 24, 64, &v)) {
		cfg->bits = (uint32_t)v;
	} else if (!strcmp(name, "drift") && number(text, shares, -1e6, 1e6, &v)) {
		cfg->drift_ppb = v;
		cfg->set_drift = true;
	} else if (!strcmp(name, "step") && number(text, times, -3600e9, 3600e9, &v)) {
		cfg->step_ns = v;
	} else if (!strcmp(name, "day") && !strcmp(text, "realtime")) {
		cfg->day = SN_DAY_REALTIME;
	} else if (!strcmp(name, "day") && number(text, times, 0, 4e18, &v)) {
		cfg->day = SN_DAY_SET;
		cfg->day_ns = v;
	} else {
		return false;
	}
	return true;
}

int vb_clock_parse(const char *spec, struct sn_clock_cfg *cfg)
{
	char buf[256], *save, *item;

	memset(cfg, 0, sizeof(*cfg));
	if (strlen(spec) >= sizeof(buf))
		return -EINVAL;
	strcpy(buf, spec);
	for (item = strtok_r(buf, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(item, '=');

		if (!eq)
			return -EINVAL;
		*eq = 0;
		if (!clock_option(cfg, item, eq + 1))
			return -EINVAL;
	}
	return 0;
}

int softnic_clock(const char *device, const char *spec)
{
	struct sn_clock_cfg cfg;
	struct vb_visit v;
	int rc = vb_clock_parse(spec, &cfg);

	if (!rc)
		rc = vb_visit_begin(&v, device);
	if (rc)
		return rc;
	rc = sn_clock_set(v.port, &cfg);
	vb_visit_end(&v);
	return rc;
}

/* ---- the truth ----------------------------------------------------------------------------------------------------------------------- */

#define LOG_MAX 4096u

static struct {
	pthread_mutex_t mutex;
	_Atomic bool on;
	const struct vb_device *device;
	struct softnic_stamp stamp[LOG_MAX];
	uint32_t n;
} stamps = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static struct softnic_stamp stamp_at(struct sn_port *port, uint64_t at)
{
	uint64_t read_at;
	int64_t day = sn_true_day(&read_at);

	return (struct softnic_stamp){
		.true_ns = (int64_t)at,
		.realtime_ns = day - (int64_t)(read_at - at),
		.ticks = sn_clock_ticks(port, at),
		.day_ns = sn_clock_day(port, at),
	};
}

void vb_clock_log(const struct ibv_context *context, uint64_t at)
{
	const struct vb_ctx *ctx = vb_ctx(context);

	if (pv_likely(!atomic_load_explicit(&stamps.on, memory_order_acquire)) || ctx->dev != stamps.device)
		return;
	pthread_mutex_lock(&stamps.mutex);
	if (stamps.n < LOG_MAX)
		stamps.stamp[stamps.n++] = stamp_at(ctx->port, at);
	pthread_mutex_unlock(&stamps.mutex);
}

int softnic_clock_read(const char *device, struct softnic_stamp *now)
{
	struct vb_visit v;
	int rc = vb_visit_begin(&v, device);

	if (rc)
		return rc;
	*now = stamp_at(v.port, sn_true_ns());
	vb_visit_end(&v);
	return 0;
}

int softnic_stamps_watch(const char *device)
{
	const struct vb_device *d = device ? vb_device_find(device) : NULL;

	if (device && !d)
		return -ENODEV;
	pthread_mutex_lock(&stamps.mutex);
	atomic_store_explicit(&stamps.on, false, memory_order_release);
	stamps.device = d;
	stamps.n = 0;
	atomic_store_explicit(&stamps.on, d != NULL, memory_order_release);
	pthread_mutex_unlock(&stamps.mutex);
	return 0;
}

int softnic_stamps_take(struct softnic_stamp *out, int max)
{
	uint32_t n;

	pthread_mutex_lock(&stamps.mutex);
	n = PV_MIN(stamps.n, (uint32_t)PV_MAX(max, 0));
	memcpy(out, stamps.stamp, n * sizeof(*out));
	memmove(stamps.stamp, stamps.stamp + n, (stamps.n - n) * sizeof(*out));
	stamps.n -= n;
	pthread_mutex_unlock(&stamps.mutex);
	return (int)n;
}
