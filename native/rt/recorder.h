/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder's memory (base/trace.h says what is recorded): a file of its own, pyvma-trace.PID in the setting `stats_dir`, mode
 * 0600, mapped shared. It is there while the engine runs and goes when that stops; of a process that died it stays. A start removes those
 * of this user's that are left over, but the newest PV_RECORDER_KEEP. native/doc/tracing.md has the layout.
 *
 * Without the file (no room, setting `trace_events` 0) nothing is recorded; that is said in the log and else without effect. All with
 * the engine's lock.
 */
#ifndef PV_RT_RECORDER_H
#define PV_RT_RECORDER_H

#include "rt/engine.h"

#define PV_RECORDER_PREFIX "pyvma-trace."
#define PV_RECORDER_MAGIC "PYVMATRC"
#define PV_RECORDER_VERSION 1u
#define PV_RECORDER_KEEP 8 /* files of dead processes */
#define PV_RECORDER_EVENTS_MAX 1048576

/* What the file begins with; native/doc/tracing.md. */
struct pv_recorder_head {
	char magic[8];
	uint32_t version, order; /* order: 0x01020304 */
	uint32_t state; /* 0: is being made, 1: live, 2: the engine was stopped */
	uint32_t event_size;
	uint64_t events, events_at; /* how many there is room for; where */
	uint64_t schema_at, schema_size;
	uint64_t head; /* events ever written */
	uint64_t pid, start_ticks, uid;
	int64_t realtime_ns, monotonic_ns; /* one moment by both clocks */
	uint64_t packets; /* 1: stations of packets are recorded */
	char program[64], pyvma[32], boot_id[40];
};

/* Before the stack is opened: sets e->trace. */
void pv_recorder_open(struct pv_engine *e);
/* After the stack and its rings were closed. */
void pv_recorder_close(struct pv_engine *e);
/* In every forked child, by the thread that forked. */
void pv_recorder_forget(struct pv_engine *e);

/* A ring was opened; taps go on it when packets are recorded. */
void pv_recorder_port(struct pv_engine *e, const struct pv_port *p);
/* Something happened to a ring: enum pv_trace_ring. */
void pv_recorder_ring(struct pv_engine *e, const struct pv_port *p, uint32_t what);
/* Stations of packets from now on, or no longer. */
void pv_recorder_packets(struct pv_engine *e, bool on);

#endif
