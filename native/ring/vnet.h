/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header in front of frames that Linux takes from programs (TAP, packet sockets), as virtio 1.2, 5.1.6 has it, in the host's byte order
 * (TUNSETVNETLE is not asked for). A checksum that the kernel is to finish holds the sum of the pseudo-header, of the whole when the frame
 * is to be cut; for a receiver on the same host it computes nothing. No state, any thread.
 */
#ifndef PV_RING_VNET_H
#define PV_RING_VNET_H

#include <linux/virtio_net.h>

#include "ring/ring.h"

/* The header for a frame, whose checksum fields become what the kernel expects: IPv4's filled, the transport's begun. The frame is sound
 * (pv_frame_len, pv_frame_cuts). False: only in one piece could its checksum be filled, which it is not. */
bool pv_vnet_tx_header(struct pv_pkt *p, struct virtio_net_hdr *h);

/* Where the transport's header is, and the sum of its pseudo-header. Only what the stack sends itself: no extension headers. */
bool pv_vnet_find_l4(const uint8_t *data, uint32_t len, uint32_t *l4, uint8_t *proto, uint64_t *sum);
/* The header checksum, where the frame is IPv4. */
void pv_vnet_fill_ip4(uint8_t *data, uint32_t len);

#endif
