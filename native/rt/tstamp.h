/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time stamps of devices, made nanoseconds: the setting hw_ts_conversion, one converter an interface.
 *
 * A ring's packets carry stamps in its own units (PV_PKT_TSTAMP, ring caps). What they become depends on the mode:
 *   off   no stamps at all
 *   raw   ticks as nanoseconds since the counter began
 *   sync  CLOCK_REALTIME: pairs of readings of both clocks tell how they relate; corrections are spread, only a step of either clock jumps
 *   ptp   the device's own clock of the day, which something else disciplines
 *   rtc   the same, in the completion itself
 *   best  the first of sync and raw that the device can have
 * What a device cannot do falls back: rtc to ptp to sync, sync and best to raw only by `best`, else to off. The mode in force is told by pv_tstamp_get_src.
 *
 * Stamps cost device and ring time, so nothing is stamped and no clock is read before the first pv_tstamp_want; from then on until the
 * engine stops. A frame that arrived before that has no stamp.
 *
 * Clocks are sampled by the progress thread without the engine's lock (without that thread: now and then by polls).
 */
#ifndef PV_RT_TSTAMP_H
#define PV_RT_TSTAMP_H

#include <stdbool.h>
#include <stdint.h>

struct pv_engine;

/* The values of hw_ts_conversion, which are VMA's and XLIO's. */
enum pv_tstamp_mode {
	PV_TSTAMP_MODE_OFF,
	PV_TSTAMP_MODE_RAW,
	PV_TSTAMP_MODE_BEST,
	PV_TSTAMP_MODE_SYNC,
	PV_TSTAMP_MODE_PTP,
	PV_TSTAMP_MODE_RTC,
	PV_TSTAMP_MODES
};

#define PV_TSTAMP_ERROR_UNKNOWN UINT64_MAX

/* Where an interface's hardware stamps come from, and how good they are. */
struct pv_tstamp_src {
	enum pv_tstamp_mode mode; /* in force; never BEST */
	bool rx, tx; /* the ring can stamp what it receives, what it sends */
	/* What conversion may add to the device's own error against the clock that it converts to: of sync the uncertainty of the
	 * samples and what is still to be corrected, 0 of the others. PV_TSTAMP_ERROR_UNKNOWN: not sampled yet, or off. */
	uint64_t error_bound_ns;
	uint64_t samples, steps; /* of the clocks, so far; jumps of either clock that these found */
};

/* What the setting asks for. Any thread, no lock. */
enum pv_tstamp_mode pv_tstamp_mode(const struct pv_engine *e);

/* The first socket that wants stamps of frames received, or sent, says so; more calls do nothing. The engine's lock is held. */
void pv_tstamp_want(struct pv_engine *e, bool rx, bool tx);

/* The stamp `raw` of a packet of interface `iface` (pkt->iface) as nanoseconds: since the epoch for sync, ptp and rtc, since the counter
 * began for raw. False: no conversion is in force for it. A few ns: no lock, no system call, no clock. The engine's lock is held. */
bool pv_tstamp_ns(struct pv_engine *e, uint32_t iface, uint64_t raw, int64_t *ns);

/* The engine's lock is held. An interface that there is not: mode off. */
void pv_tstamp_get_src(struct pv_engine *e, uint32_t iface, struct pv_tstamp_src *out);
/* "off", "raw", "best", "sync", "ptp", "rtc" */
const char *pv_tstamp_mode_name(enum pv_tstamp_mode mode);

#endif
