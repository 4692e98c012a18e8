/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A record of a ring: a tap that hands every frame of both directions to a sink as pcapng or pcap records with nanosecond stamps, from
 * when it is put on until the ring closes. The sink decides where they go; nothing here does any input or output.
 *
 * Sent frames are recorded when posted (checksums that the device fills are not in them yet), received ones when polled.
 */
#ifndef PV_RING_PCAP_H
#define PV_RING_PCAP_H

#include "ring/tap.h"

enum pv_pcap_format { PV_PCAP_NG, PV_PCAP_CLASSIC };

struct pv_pcap_cfg {
	/* One whole record (or the file's header) a call, valid for the call only. Runs on the ring's thread. */
	void (*sink)(void *ctx, const void *data, size_t len);
	/* Nanoseconds since 1970 for the next record. */
	int64_t (*now_ns)(void *ctx);
	void *ctx;
	enum pv_pcap_format format;
	uint32_t snaplen; /* bytes kept of a frame; 0: all */
};

/* 0, -ENOMEM, -EINVAL (no sink or clock). */
int pv_pcap_add(struct pv_ring *ring, const struct pv_mem *mem, const struct pv_pcap_cfg *cfg);

#endif
