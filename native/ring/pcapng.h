/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of a pcapng file (draft-ietf-opsawg-pcapng), written into memory of the caller's, in the byte order of the machine, stamps in
 * nanoseconds since 1970. Each call returns the block's length, a multiple of 4. No state, any thread.
 */
#ifndef PV_RING_PCAPNG_H
#define PV_RING_PCAPNG_H

#include "pkt/pkt.h"

/* As in epb_flags. */
enum pv_dir { PV_DIR_RX = 1, PV_DIR_TX = 2 };

#define PV_PCAPNG_TEXT_MAX 255u /* bytes of a text; what is longer is cut */
#define PV_PCAPNG_HEAD_MAX 1536u /* bytes of a section's or an interface's block */
#define PV_PCAPNG_STATS_MAX 128u /* bytes of a block of statistics */
#define PV_PCAPNG_FRAME_EXTRA 72u /* bytes of a frame's block beside the frame, at most */
#define PV_PCAPNG_SNAPLEN 262144u /* what readers take for "whole frames" */

struct pv_pcapng_iface {
	const char *name, *description, *hardware, *filter; /* NULL: not told */
	const uint8_t *mac; /* NULL: not told */
	uint32_t snaplen;
};

struct pv_pcapng_stats {
	uint64_t start_ns, end_ns, now_ns;
	uint64_t received; /* frames that came by */
	uint64_t missed; /* that the interface had no buffer for */
	uint64_t accepted; /* by the filter */
	uint64_t dropped; /* accepted, and no room for them */
	uint64_t delivered;
};

struct pv_pcapng_frame {
	uint32_t iface, snaplen;
	uint64_t stamp_ns;
	enum pv_dir dir;
	uint64_t dropped; /* frames lost since the last one of this interface */
};

uint32_t pv_pcapng_section(uint8_t *at, const char *application);
uint32_t pv_pcapng_iface(uint8_t *at, const struct pv_pcapng_iface *iface);
uint32_t pv_pcapng_stats(uint8_t *at, uint32_t iface, const struct pv_pcapng_stats *stats);
/* At most the frame's length (pv_pcapng_len), or `snaplen`, and PV_PCAPNG_FRAME_EXTRA. A VLAN tag that the ring took away is put back. */
uint32_t pv_pcapng_frame(uint8_t *at, const struct pv_pkt *pkt, const struct pv_pcapng_frame *meta);
/* Bytes of the frame over its pieces, as it is on the wire. */
uint32_t pv_pcapng_len(const struct pv_pkt *pkt);
/* The first `kept` of them. Returns where they end. */
uint8_t *pv_pcapng_copy(uint8_t *at, const struct pv_pkt *pkt, uint32_t kept);

#endif
