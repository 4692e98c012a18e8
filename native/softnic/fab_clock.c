/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port's two clocks, as its NIC would have them: a counter that runs free, with an oscillator's error, and a clock of the day that
 * something disciplines.
 *
 * Both are lines over the machine's CLOCK_MONOTONIC_RAW, which is the true time here: an event is stamped in that, and what the device's
 * clocks showed then is worked out when somebody asks. The lines lie in the fabric, so that all processes on the port read the same.
 * They change with the fabric's lock and are read without one: of two copies the one that `seq` names by its lowest bit is whole, and
 * a reader that finds `seq` changed reads again. A process that dies in between leaves the old one in force.
 *
 * Who asks for the clock of the day makes it follow its truth, if nobody did within the last 50 ms: like a PTP servo it bends the line, and
 * sets it only when it is off by more than a millisecond.
 */
#include <sys/timex.h>
#include <time.h>

#include "softnic/fab.h"
#include "softnic/fab_sys.h"

#define ONE 48u /* fraction bits of a rate */
#define FOLLOW_NS (50 * PV_NS_PER_MS)
#define SERVO_NS (200 * PV_NS_PER_MS) /* in which an offset is made up for */
#define ANCHOR_NS (4 * PV_NS_PER_S) /* the truth's rate is measured over one to two of these */
#define MEASURE_NS PV_NS_PER_S
#define SET_NS PV_NS_PER_MS
#define TRIES 8

typedef __int128 wide;

/* The words of one copy. */
struct line {
	/* The counter: `ticks` and `frac` at base_ns, `rate` ticks a nanosecond from there; before that, as it was before the last change. */
	uint64_t base_ns, ticks, frac, rate;
	uint64_t old_base_ns, old_ticks, old_frac, old_rate;
	/* The clock of the day, likewise; day_base_ns 0: never read yet. */
	uint64_t day_base_ns, day_ns, day_frac, day_rate;
	/* Its truth: CLOCK_REALTIME, whose rate is measured between two anchors; or, with `own`, a line of its own that was set. */
	uint64_t own, anchor_ns[2], anchor_day[2];
	uint64_t khz, bits;
};

#define WORDS (sizeof(struct line) / sizeof(uint64_t))
_Static_assert(WORDS <= SN_CLOCK_WORDS, "the line has room in the fabric");

uint64_t sn_true_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts); /* the vDSO's, no system call */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int64_t sn_true_day(uint64_t *at)
{
	uint64_t best = UINT64_MAX;
	int64_t day = 0;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = sn_true_ns(), after;
		struct timespec ts;

		clock_gettime(CLOCK_REALTIME, &ts);
		after = sn_true_ns();
		if (after - before >= best)
			continue;
		best = after - before;
		*at = before + best / 2;
		day = ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
	}
	return day;
}

static void line_get(const struct sn_clock_ent *e, struct line *l)
{
	uint64_t word[SN_CLOCK_WORDS];
	uint32_t seq;

	do {
		seq = sn_get(&e->seq);
		for (uint32_t i = 0; i < WORDS; i++)
			word[i] = sn_get(&e->word[seq & 1][i]);
	} while (sn_get_relaxed(&e->seq) != seq);
	memcpy(l, word, sizeof(*l));
}

/* With the fabric's lock. */
static void line_set(struct sn_clock_ent *e, const struct line *l)
{
	uint32_t seq = sn_get(&e->seq) + 1;
	uint64_t word[WORDS];

	memcpy(word, l, sizeof(word));
	for (uint32_t i = 0; i < WORDS; i++)
		sn_set(&e->word[seq & 1][i], word[i]);
	sn_set(&e->seq, seq);
}

static struct sn_clock_ent *ent(const struct sn_port *p)
{
	return &p->s->clock[p->number];
}

static uint64_t mask_of(const struct line *l)
{
	return l->bits - 1 < 63 ? (UINT64_C(1) << l->bits) - 1 : UINT64_MAX;
}

static uint64_t along(uint64_t at, uint64_t base_ns, uint64_t rate, uint64_t from, uint64_t *frac)
{
	wide v = (wide)(int64_t)(at - base_ns) * (wide)rate + (wide)*frac;

	*frac = (uint64_t)(v & (((wide)1 << ONE) - 1));
	return from + (uint64_t)(v >> ONE);
}

static uint64_t ticks_at(const struct line *l, uint64_t at)
{
	uint64_t frac = l->frac;

	if (pv_unlikely((int64_t)(at - l->base_ns) < 0)) {
		frac = l->old_frac;
		return along(at, l->old_base_ns, l->old_rate, l->old_ticks, &frac);
	}
	return along(at, l->base_ns, l->rate, l->ticks, &frac);
}

void sn_clock_reset(struct sn_fabric *f, uint32_t port)
{
	struct line l = { .rate = UINT64_C(1) << ONE, .old_rate = UINT64_C(1) << ONE, .khz = 1000000, .bits = 64 };

	l.day_rate = l.rate;
	line_set(&f->s->clock[port], &l);
}

/* ---- the free-running counter ---------------------------------------------------------------------------------------------- */

uint64_t sn_clock_ticks(const struct sn_port *p, uint64_t at)
{
	struct line l;

	line_get(ent(p), &l);
	return ticks_at(&l, at) & mask_of(&l);
}

void sn_clock_facts(const struct sn_port *p, uint32_t *khz, uint64_t *mask)
{
	struct line l;

	line_get(ent(p), &l);
	*khz = (uint32_t)l.khz;
	*mask = mask_of(&l);
}

int sn_clock_set(struct sn_port *p, const struct sn_clock_cfg *cfg)
{
	struct line l;
	uint64_t now, frac;
	int rc = sn_lock(p->f);

	if (rc)
		return rc;
	line_get(ent(p), &l);
	now = sn_true_ns();
	frac = l.frac;
	l.old_base_ns = l.base_ns;
	l.old_ticks = l.ticks;
	l.old_frac = l.frac;
	l.old_rate = l.rate;
	l.ticks = along(now, l.base_ns, l.rate, l.ticks, &frac);
	l.frac = frac;
	l.base_ns = now;
	if (cfg->khz)
		l.khz = cfg->khz;
	if (cfg->khz || cfg->set_drift)
		l.rate = (uint64_t)((long double)l.khz / 1e6L * (1 + (long double)cfg->drift_ppb / 1e9L) * 0x1p48L);
	if (cfg->bits)
		l.bits = cfg->bits;
	l.ticks += (uint64_t)(int64_t)((wide)cfg->step_ns * (wide)l.khz / 1000000);
	if (cfg->day == SN_DAY_REALTIME) {
		l.own = 0;
		l.day_base_ns = 0;
	} else if (cfg->day == SN_DAY_SET) {
		l.own = 1;
		l.day_base_ns = now;
		l.day_ns = (uint64_t)cfg->day_ns;
		l.day_frac = 0;
		l.day_rate = UINT64_C(1) << ONE;
	}
	line_set(ent(p), &l);
	sn_unlock(p->f);
	return 0;
}

/* ---- the disciplined clock --------------------------------------------------------------------------------------------------- */

/* What the kernel is told about the rate of CLOCK_REALTIME, for as long as it was not measured. */
static uint64_t told_rate(void)
{
	struct timex tx = { .modes = 0 };

	if (sn_sys(SYS_adjtimex, &tx) < 0)
		return UINT64_C(1) << ONE;
	return (uint64_t)(((long double)tx.tick / 10000 + (long double)tx.freq / 65536e6L) * 0x1p48L);
}

static void anchor(struct line *l, uint64_t at, int64_t day)
{
	l->anchor_ns[0] = l->anchor_ns[1];
	l->anchor_day[0] = l->anchor_day[1];
	l->anchor_ns[1] = at;
	l->anchor_day[1] = (uint64_t)day;
}

static void day_set(struct line *l, uint64_t at, int64_t day)
{
	anchor(l, at, day);
	anchor(l, at, day);
	l->day_base_ns = at;
	l->day_ns = (uint64_t)day;
	l->day_frac = 0;
	l->day_rate = told_rate();
}

static void discipline(struct line *l, uint64_t at, int64_t day)
{
	uint64_t frac = l->day_frac, rate = l->day_rate, shows;
	int64_t off, since = (int64_t)(at - l->anchor_ns[0]);

	shows = along(at, l->day_base_ns, l->day_rate, l->day_ns, &frac);
	off = day - (int64_t)shows;
	if (off > SET_NS || off < -SET_NS) {
		day_set(l, at, day);
		return;
	}
	rate = since >= MEASURE_NS ? (uint64_t)(((wide)(day - (int64_t)l->anchor_day[0]) << ONE) / since) : told_rate();
	if ((int64_t)(at - l->anchor_ns[1]) >= ANCHOR_NS)
		anchor(l, at, day);
	l->day_base_ns = at;
	l->day_ns = shows;
	l->day_frac = frac;
	l->day_rate = rate + (uint64_t)(int64_t)(((wide)off * ((wide)1 << ONE)) / SERVO_NS);
}

static void follow(struct sn_port *p, struct line *l)
{
	uint64_t at;
	int64_t day;

	line_get(ent(p), l);
	if (l->own || (l->day_base_ns && sn_true_ns() - l->day_base_ns < (uint64_t)FOLLOW_NS) || sn_lock(p->f))
		return;
	/* Another process may have been quicker. */
	line_get(ent(p), l);
	day = sn_true_day(&at);
	if (!l->own && (!l->day_base_ns || (int64_t)(at - l->day_base_ns) >= FOLLOW_NS)) {
		if (l->day_base_ns)
			discipline(l, at, day);
		else
			day_set(l, at, day);
		line_set(ent(p), l);
	}
	sn_unlock(p->f);
}

int64_t sn_clock_day(struct sn_port *p, uint64_t at)
{
	struct line l;
	uint64_t frac;

	follow(p, &l);
	frac = l.day_frac;
	return (int64_t)along(at, l.day_base_ns, l.day_rate, l.day_ns, &frac);
}

/* A multiplier of 28 bits: a user's product of 64 holds a minute of ticks and more. */
void sn_clock_info(struct sn_port *p, struct sn_clock_info *out)
{
	struct line l;
	uint64_t now, frac;
	long double mult;
	uint32_t shift = 0;

	follow(p, &l);
	now = sn_true_ns();
	frac = l.day_frac;
	out->mask = mask_of(&l);
	out->cycles = ticks_at(&l, now) & out->mask;
	out->nsec = along(now, l.day_base_ns, l.day_rate, l.day_ns, &frac);
	mult = (long double)l.day_rate / (long double)PV_MAX(l.rate, UINT64_C(1));
	for (; shift < 32 && mult < 0x1p27L; mult *= 2)
		shift++;
	out->shift = shift;
	out->mult = mult < 0x1p32L ? (uint32_t)mult : 0;
	out->frac = frac >> (ONE - shift);
}
