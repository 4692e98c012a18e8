/* SPDX-License-Identifier: BSD-3-Clause */
/* What a NIC knows about a frame: headers up to the ports, flow rules, checksums. For rings that do in software what others
 * have silicon for. No state, any thread. */
#ifndef PV_RING_FRAME_H
#define PV_RING_FRAME_H

#include "base/bytes.h"
#include "ring/ring.h"

/* Bytes of a frame over its pieces, or 0 when a device with this MTU and this many scatter entries cannot send it: shorter than
 * its header, longer than the MTU allows (4 bytes more behind a VLAN tag), or in too many pieces. */
pv_inline uint32_t pv_frame_len(const struct pv_pkt *p, uint32_t mtu, uint32_t max_sge)
{
	uint32_t len = p->len, nsge = 1;

	for (const struct pv_pkt *f = p->frag; pv_unlikely(f != NULL); f = f->frag) {
		len += f->len;
		if (++nsge > max_sge)
			return 0;
	}
	if (pv_likely(len - 14 <= mtu))
		return len;
	return len > 14 && len <= mtu + 18 && p->len >= 14 && pv_get16(p->data + 12) == 0x8100 ? len : 0;
}

struct pv_frame {
	uint16_t ethertype; /* behind a VLAN tag, host order */
	uint16_t vlan; /* id, 0: untagged */
	uint16_t l3_off;
	uint16_t l4_off; /* 0: no L4 header that can be looked at (other protocols, later fragments, cut short) */
	uint32_t l4_len; /* by the IP header: Ethernet padding is not counted */
	uint8_t ip_version; /* 4, 6; 0: not a sound IP header */
	uint8_t proto; /* last header reached; 0 when ip_version is 0 */
	bool fragment;
	struct pv_addr src, dst;
	uint16_t src_port, dst_port; /* of UDP and TCP, else 0 */
};

/* False when shorter than an Ethernet header. */
bool pv_frame_parse(const uint8_t *data, uint32_t len, struct pv_frame *out);
/* `flow` names its MAC in full (pv_frame_flow_mac). */
bool pv_frame_match(const uint8_t *data, const struct pv_frame *f, const struct pv_flow *flow);
/* The destination MAC that a rule means: its own, the group's, or the port's. */
void pv_frame_flow_mac(const struct pv_flow *flow, const uint8_t *port, uint8_t mac[PV_ETH_ALEN]);

/* How many frames a PV_PKT_TX_TSO packet is cut into; 0: none, a device that cuts at most `tso_max` bytes, of at most `max_sge` pieces, into
 * frames of this MTU refuses it. Frame `i` of them into `out`, checksums filled; its length. */
uint32_t pv_frame_cuts(const struct pv_pkt *p, uint32_t mtu, uint32_t tso_max, uint32_t max_sge);
uint32_t pv_frame_cut(const struct pv_pkt *p, uint32_t i, uint8_t *out);

/* `len` bytes of a chain from `off` on. */
void pv_frame_gather(const struct pv_pkt *p, uint32_t off, uint8_t *out, uint32_t len);

/* Fills what PV_PKT_TX_*_CSUM in `flags` ask for; headers that do not parse are left alone, as NICs do. */
void pv_frame_fill_csum(uint8_t *data, uint32_t len, uint32_t flags);
/* Verdict bits PV_PKT_L3_*, PV_PKT_L4_* for the offloads `csum` (PV_CSUM_*). */
uint32_t pv_frame_check_csum(const uint8_t *data, uint32_t len, uint32_t csum);

#endif
