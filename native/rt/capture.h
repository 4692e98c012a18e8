/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A capture: taps on rings whose frames go, as blocks of pcapng, into memory that a reader of another process has, too.
 *
 * The memory is a sealed memfd: a page with counters, then a ring of bytes. The writer owns `head`, the reader `tail`; both only grow.
 * What the reader has not taken in time is not waited for: frames are dropped and counted, each as a whole. The writer never believes
 * what it finds in the memory but `tail`, and of that no more than that some bytes are free; a reader that lies harms its own file.
 *
 * The writer's half is the engine's, with its lock; the reader's half is the thread's that opened it.
 */
#ifndef PV_RT_CAPTURE_H
#define PV_RT_CAPTURE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "ring/tap.h"
#include "rt/filter.h"

#define PV_CAPTURE_MAGIC UINT64_C(0x3150414356590a1a)
#define PV_CAPTURE_HEAD 8192u /* bytes before the ring */
#define PV_CAPTURE_IFACES 32u /* that one capture tells apart; more are not recorded */
#define PV_CAPTURE_BYTES_MIN (1u << 20) /* holds the longest frame */
#define PV_CAPTURE_BYTES_MAX (1u << 30)
#define PV_CAPTURE_BYTES (8u << 20)

struct pv_capture_iface {
	_Atomic(uint64_t) received; /* frames that came by since `start_ns` */
	_Atomic(uint64_t) missed; /* that the ring had no buffer for, where it tells; brought up to date by pv_capture_sync */
	_Atomic(uint64_t) accepted; /* by the filter */
	_Atomic(uint64_t) dropped; /* accepted, and the reader had left no room */
	uint64_t start_ns; /* since 1970 */
	char name[32];
};

struct pv_capture_mem {
	uint64_t magic;
	uint64_t size; /* of the ring, a power of two */
	_Atomic(uint64_t) head pv_aligned(PV_CACHELINE); /* bytes written since the start */
	_Atomic(uint32_t) done; /* nothing more will come: enough frames, or the capture was ended */
	_Atomic(uint32_t) nifaces;
	_Atomic(uint64_t) tail pv_aligned(PV_CACHELINE); /* bytes read */
	struct pv_capture_iface iface[PV_CAPTURE_IFACES] pv_aligned(PV_CACHELINE);
};

_Static_assert(sizeof(struct pv_capture_mem) <= PV_CAPTURE_HEAD, "the counters stand before the ring");

struct pv_capture;

struct pv_capture_cfg {
	uint32_t bytes; /* of the ring, rounded up to a power of two; 0: PV_CAPTURE_BYTES */
	uint32_t snaplen; /* 0: all */
	uint64_t count; /* frames; 0: no end */
	bool sniffed; /* the rings bring sent frames, too: whose source is the ring's MAC was sent */
	char filter[PV_FILTER_TEXT_MAX];
};

/* What a ring's stamp means; NULL: nothing. False: it has no time of the day. */
typedef bool (*pv_capture_stamp_fn)(void *ctx, uint32_t iface, uint64_t raw, int64_t *ns);

/* ---- the writer -------------------------------------------------------------------------------------------------------- */

/* 0; -EINVAL, -E2BIG (filter, sizes), -ENOMEM, -EMFILE, ... with a text. */
int pv_capture_open(struct pv_capture **out, const struct pv_capture_cfg *cfg);
/* The memfd, which is the reader's to have; whoever takes it closes it. */
int pv_capture_take_fd(struct pv_capture *c);
/* From now on `ring`'s frames are in it, until it closes. `iface` is what `stamp` calls it. 0, -ENOMEM, -ENOSPC (PV_CAPTURE_IFACES). */
struct pv_capture_port {
	const char *name, *mode;
	uint32_t iface;
	pv_capture_stamp_fn stamp;
	void *ctx;
};
int pv_capture_add(struct pv_capture *c, struct pv_ring *ring, const struct pv_mem *mem, const struct pv_capture_port *port);
/* The rings' own counts of losses. */
void pv_capture_sync(struct pv_capture *c);
/* Takes its taps off; the reader finds `done`. What it has not read stays for it. */
void pv_capture_close(struct pv_capture *c);
/* In a forked child, whose parent goes on: after the rings were forgotten. */
void pv_capture_forget(struct pv_capture *c);

#endif
