/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's part: which mode an interface gets, and when its clocks are looked at.
 *
 * `mutex` stands between whoever samples, which needs no engine's lock, and a ring that is closed. Who has both took the engine's first.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rt/engine.h"
#include "rt/log.h"
#include "rt/tstamp_engine.h"
#include "rt/tstamp_phc.h"

#define TRIES 10u
#define INFO_NS (100 * PV_NS_PER_MS)
#define FAILED_NS PV_NS_PER_S /* a clock that could not be read is tried again */

/* Where the ticks' meaning comes from. */
enum source {
	SOURCE_NONE,
	SOURCE_FIXED, /* a line that does not change */
	SOURCE_CLOCK, /* pairs of the ring's clock and CLOCK_REALTIME */
	SOURCE_INFO, /* the ring's clock_info */
	SOURCE_CLOCK_PHC, /* pairs of the ring's clock and the device's as the kernel has it */
	SOURCE_PHC, /* stamps are of that clock: it, and CLOCK_REALTIME */
};

struct conv {
	struct pv_tconv line;
	enum pv_tstamp_mode mode; /* under the engine's lock */
	enum source source;
	struct pv_ring *ring; /* NULL: not in use */
	struct pv_phc phc;
	char why[160]; /* the clock of the day was asked for and cannot be had */
	int64_t due_ns;
	struct pv_tsync sync;
	struct pv_tline info;
	uint64_t samples, steps;
};

struct pv_tstamp {
	pthread_mutex_t mutex;
	bool rx, tx; /* wanted; under the engine's lock */
	_Atomic(int64_t) due_ns; /* of the earliest; CLOCK_MONOTONIC */
	struct conv conv[PV_IFACE_MAX + 1]; /* by the stack's number */
};

static const char *const mode_names[] = { "off", "raw", "best", "sync", "ptp", "rtc" };

const char *pv_tstamp_mode_name(enum pv_tstamp_mode mode)
{
	return (unsigned int)mode < PV_TSTAMP_MODES ? mode_names[mode] : "";
}

enum pv_tstamp_mode pv_tstamp_mode(const struct pv_engine *e)
{
	return e->cfg ? (enum pv_tstamp_mode)e->cfg->hw_ts_conversion : PV_TSTAMP_MODE_OFF;
}

/* ---- sampling ---------------------------------------------------------------------------------------------------------- */

static int64_t realtime_ns(void *ctx)
{
	struct timespec ts;

	(void)ctx;
	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

static int64_t phc_ns(void *ctx)
{
	return pv_phc_ns(&((struct conv *)ctx)->phc);
}

static int ring_clock(void *ctx, uint64_t *raw)
{
	return pv_ring_clock(((struct conv *)ctx)->ring, raw);
}

static int take(struct conv *c, struct pv_tsample *x)
{
	const struct pv_tpair pair = { .raw = ring_clock, .ref_ns = c->source == SOURCE_CLOCK ? realtime_ns : phc_ns, .ctx = c };

	return c->source == SOURCE_PHC ? pv_phc_sample(&c->phc, x) : pv_tsample_take(x, &pair, TRIES);
}

/* The mutex is held. */
static void sample(struct conv *c)
{
	struct pv_ring_clock_info info;
	struct pv_tsample x;
	int64_t next = FAILED_NS;

	if (c->source == SOURCE_INFO) {
		if (!pv_ring_clock_info(c->ring, &info)) {
			c->steps += pv_tline_info(&c->info, &info) && c->samples;
			c->samples++;
			pv_tconv_publish(&c->line, &c->info);
			next = INFO_NS;
		}
	} else if (!take(c, &x)) {
		next = pv_tsync_update(&c->sync, &x);
		pv_tconv_publish(&c->line, &c->sync.line);
		c->samples = c->sync.samples;
		c->steps = c->sync.steps;
	}
	c->due_ns = pv_clock_kernel_ns() + next;
}

void pv_tstamp_tick(struct pv_tstamp *t)
{
	int64_t now = pv_clock_kernel_ns(), due = PV_NEVER;

	pthread_mutex_lock(&t->mutex);
	for (uint32_t i = 0; i <= PV_IFACE_MAX; i++) {
		struct conv *c = &t->conv[i];

		if (!c->ring || c->source <= SOURCE_FIXED)
			continue;
		if (c->due_ns <= now)
			sample(c);
		due = PV_MIN(due, c->due_ns);
	}
	atomic_store_explicit(&t->due_ns, due, memory_order_relaxed);
	pthread_mutex_unlock(&t->mutex);
}

int64_t pv_tstamp_deadline(const struct pv_tstamp *t)
{
	return t ? atomic_load_explicit(&t->due_ns, memory_order_relaxed) : PV_NEVER;
}

/* ---- which mode ------------------------------------------------------------------------------------------------------------ */

static bool have_phc(struct conv *c, const struct pv_port *p, bool paired)
{
	bool xdp = p->spec.ring == PV_IFSPEC_XDP;
	struct pv_phc_ask ask = { .root = "",
				  .class = "net",
				  .name = *p->spec.netdev ? p->spec.netdev
					  : xdp           ? p->spec.device
							  : "",
				  .paired = paired };
	int rc = pv_phc_get(&c->phc, &ask, c->why, sizeof(c->why));

	if (rc == -ENODEV && p->spec.ring == PV_IFSPEC_VERBS) {
		ask.class = "infiniband";
		ask.name = p->spec.device;
		rc = pv_phc_get(&c->phc, &ask, c->why, sizeof(c->why));
	}
	return !rc;
}

static enum pv_tstamp_mode use(struct conv *c, enum pv_tstamp_mode mode, enum source source)
{
	c->source = source;
	return mode;
}

/* Stamps are nanoseconds of the device's clock of the day. */
static enum pv_tstamp_mode resolve_realtime(struct conv *c, const struct pv_port *p, enum pv_tstamp_mode asked)
{
	if ((asked == PV_TSTAMP_MODE_SYNC || asked == PV_TSTAMP_MODE_BEST) && have_phc(c, p, true))
		return use(c, PV_TSTAMP_MODE_SYNC, SOURCE_PHC);
	if (asked == PV_TSTAMP_MODE_SYNC)
		return use(c, PV_TSTAMP_MODE_OFF, SOURCE_NONE);
	return use(c, asked == PV_TSTAMP_MODE_RAW ? PV_TSTAMP_MODE_RAW : PV_TSTAMP_MODE_RTC, SOURCE_FIXED);
}

static enum pv_tstamp_mode resolve(struct conv *c, const struct pv_port *p, enum pv_tstamp_mode asked)
{
	const struct pv_ring_caps *caps = &p->ring->caps;
	struct pv_ring_clock_info info;
	bool clock;
	uint64_t raw;

	if (caps->tstamp == PV_TSTAMP_NONE || asked == PV_TSTAMP_MODE_OFF)
		return use(c, PV_TSTAMP_MODE_OFF, SOURCE_NONE);
	if (caps->tstamp == PV_TSTAMP_REALTIME)
		return resolve_realtime(c, p, asked);
	if (!caps->tstamp_khz)
		return use(c, PV_TSTAMP_MODE_OFF, SOURCE_NONE);
	clock = !pv_ring_clock(p->ring, &raw);
	if (asked == PV_TSTAMP_MODE_RTC || asked == PV_TSTAMP_MODE_PTP) {
		if (!pv_ring_clock_info(p->ring, &info))
			return use(c, PV_TSTAMP_MODE_PTP, SOURCE_INFO);
		if (clock && have_phc(c, p, false))
			return use(c, PV_TSTAMP_MODE_PTP, SOURCE_CLOCK_PHC);
	}
	if (asked != PV_TSTAMP_MODE_RAW && clock)
		return use(c, PV_TSTAMP_MODE_SYNC, SOURCE_CLOCK);
	if (asked == PV_TSTAMP_MODE_RAW || asked == PV_TSTAMP_MODE_BEST)
		return use(c, PV_TSTAMP_MODE_RAW, SOURCE_FIXED);
	return use(c, PV_TSTAMP_MODE_OFF, SOURCE_NONE);
}

/* The mutex and the engine's lock are held; the first sample is taken here, so that the first packet can be converted. */
static void start(struct conv *c, const struct pv_port *p, enum pv_tstamp_mode asked)
{
	const struct pv_ring_caps *caps = &p->ring->caps;
	struct pv_tline fixed;

	memset(c, 0, sizeof(*c));
	c->phc.fd = -1;
	c->ring = p->ring;
	c->mode = resolve(c, p, asked);
	c->due_ns = PV_NEVER;
	if (c->source == SOURCE_FIXED) {
		if (caps->tstamp == PV_TSTAMP_REALTIME)
			pv_tline_same(&fixed);
		else
			pv_tline_raw(&fixed, caps->tstamp_khz);
		pv_tconv_publish(&c->line, &fixed);
	} else if (c->source != SOURCE_NONE) {
		bool phc = c->source == SOURCE_PHC;

		pv_tsync_init(&c->sync, phc ? 1000000 : caps->tstamp_khz, phc ? UINT64_MAX : caps->tstamp_mask);
		sample(c);
	}
	p->ring->stat->stamps = (uint8_t)c->mode;
	pv_log(PV_LOG_INFO, "%s: time stamps: %s%s%s", p->spec.name, pv_tstamp_mode_name(c->mode), *c->why ? ": " : "", c->why);
}

static void stop(struct conv *c)
{
	pv_tconv_clear(&c->line);
	pv_phc_close(&c->phc);
	c->ring = NULL;
	c->mode = PV_TSTAMP_MODE_OFF;
}

/* ---- the engine's calls ------------------------------------------------------------------------------------------------------ */

void pv_tstamp_port_add(struct pv_engine *e, const struct pv_port *p)
{
	struct pv_tstamp *t = e->tstamp;
	struct conv *c;
	int rc;

	if (!t)
		return;
	c = &t->conv[p->index];
	pthread_mutex_lock(&t->mutex);
	if (!c->ring)
		start(c, p, pv_tstamp_mode(e));
	if (c->due_ns < atomic_load_explicit(&t->due_ns, memory_order_relaxed))
		atomic_store_explicit(&t->due_ns, c->due_ns, memory_order_relaxed);
	pthread_mutex_unlock(&t->mutex);
	if (c->mode == PV_TSTAMP_MODE_OFF)
		return;
	rc = pv_ring_set_stamps(p->ring, t->rx, t->tx && p->ring->caps.tx_tstamp);
	if (rc)
		pv_log(PV_LOG_WARN, "%s: time stamps cannot be had: %s", p->spec.name, strerror(-rc));
}

void pv_tstamp_port_del(struct pv_engine *e, const struct pv_port *p)
{
	struct pv_tstamp *t = e->tstamp;

	if (!t || t->conv[p->index].ring != p->ring)
		return;
	pthread_mutex_lock(&t->mutex);
	stop(&t->conv[p->index]);
	pthread_mutex_unlock(&t->mutex);
}

void pv_tstamp_stop(struct pv_engine *e)
{
	if (!e->tstamp)
		return;
	pthread_mutex_destroy(&e->tstamp->mutex);
	free(e->tstamp);
	e->tstamp = NULL;
}

static struct pv_tstamp *make(void)
{
	struct pv_tstamp *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	pthread_mutex_init(&t->mutex, NULL);
	atomic_store_explicit(&t->due_ns, PV_NEVER, memory_order_relaxed);
	return t;
}

void pv_tstamp_want(struct pv_engine *e, bool rx, bool tx)
{
	struct pv_tstamp *t = e->tstamp;

	if (t && (t->rx || !rx) && (t->tx || !tx))
		return;
	if ((!rx && !tx) || pv_tstamp_mode(e) == PV_TSTAMP_MODE_OFF)
		return;
	if (!t) {
		t = make();
		if (!t) {
			pv_log(PV_LOG_WARN, "time stamps cannot be had: no memory");
			return;
		}
		e->tstamp = t;
	}
	t->rx |= rx;
	t->tx |= tx;
	for (uint32_t i = 0; i < e->nports; i++)
		pv_tstamp_port_add(e, &e->ports[i]);
	/* It may be asleep for good, with no deadline to keep. */
	if (e->have_thread)
		pv_engine_wake(&e->progress);
}

bool pv_tstamp_ns(struct pv_engine *e, uint32_t iface, uint64_t raw, int64_t *ns)
{
	const struct pv_tstamp *t = e->tstamp;

	return pv_likely(t && iface <= PV_IFACE_MAX) && pv_tconv_ns(&t->conv[iface].line, raw, ns);
}

void pv_tstamp_get_src(struct pv_engine *e, uint32_t iface, struct pv_tstamp_src *out)
{
	struct pv_tstamp *t = e->tstamp;
	const struct pv_port *p = NULL;
	struct conv *c;

	*out = (struct pv_tstamp_src){ .error_bound_ns = PV_TSTAMP_ERROR_UNKNOWN };
	for (uint32_t i = 0; i < e->nports; i++)
		if (e->ports[i].index == iface)
			p = &e->ports[i];
	if (!p)
		return;
	out->rx = p->ring->caps.tstamp != PV_TSTAMP_NONE;
	out->tx = p->ring->caps.tx_tstamp;
	if (!t) {
		struct conv asked = { .phc.fd = -1 };

		out->mode = resolve(&asked, p, pv_tstamp_mode(e));
		pv_phc_close(&asked.phc);
		return;
	}
	c = &t->conv[iface];
	pthread_mutex_lock(&t->mutex);
	out->mode = c->mode;
	out->samples = c->samples;
	out->steps = c->steps;
	if (c->mode != PV_TSTAMP_MODE_OFF)
		out->error_bound_ns = c->source == SOURCE_FIXED || c->source == SOURCE_INFO ? 0 : c->sync.error_bound_ns;
	pthread_mutex_unlock(&t->mutex);
}
