/* SPDX-License-Identifier: BSD-3-Clause */
/* What the program that is bound to a device leaves in front of each frame (ring/bpf/steer.h). */
#include "ring/xdp_priv.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/bytes.h"
#include "ring/bpf/steer.h"

#define VLAN_HLEN 4u
#define MACS 12u

/* The stack knows tags of customers' VLANs only; any other goes back to where it was, and the frame is what it was on the wire. */
static void put_tag_back(struct pv_pkt *p, const struct steer_meta *m)
{
	memmove(p->data - VLAN_HLEN, p->data, MACS);
	p->data -= VLAN_HLEN;
	p->len += VLAN_HLEN;
	p->total += VLAN_HLEN;
	memcpy(p->data + MACS, &m->vlan_proto, sizeof(m->vlan_proto));
	pv_put16(p->data + MACS + 2, m->vlan_tci);
}

void pv_xdp_meta_take(struct xdp_ring *r, struct pv_pkt *p)
{
	struct pv_ring_counters *c = &r->ring.stat->c;
	struct steer_meta m;

	if ((size_t)(p->data - p->buf) < sizeof(m) || p->len < MACS)
		return;
	memcpy(&m, p->data - sizeof(m), sizeof(m));
	if ((m.mark & ~STEER_META_BITS) != STEER_META_MARK)
		return;
	/* A frame that comes without must not find this. */
	memset(p->data - sizeof(m) + offsetof(struct steer_meta, mark), 0, sizeof(m.mark));
	if (m.mark & STEER_META_STAMP) {
		c->rx_meta_stamps++;
		if (r->rx_stamps) {
			p->tstamp = m.stamp_ns;
			p->flags |= PV_PKT_TSTAMP;
		}
	}
	if (m.mark & STEER_META_HASH) {
		c->rx_meta_hashes++;
		p->rss_hash = m.hash;
		p->flags |= PV_PKT_HASH;
	}
	if (!(m.mark & STEER_META_VLAN))
		return;
	c->rx_meta_vlans++;
	if (m.vlan_proto == __builtin_bswap16(0x8100)) {
		p->vlan_tci = m.vlan_tci;
		p->flags |= PV_PKT_VLAN;
	} else {
		put_tag_back(p, &m);
	}
}

int pv_xdp_set_stamps(struct pv_ring *ring, bool rx, bool tx)
{
	struct xdp_ring *r = (struct xdp_ring *)(void *)ring;

	if (tx || (rx && !(r->metadata & XDP_META_STAMP)))
		return -EOPNOTSUPP;
	r->rx_stamps = rx;
	return 0;
}
