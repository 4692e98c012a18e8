/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checksums of what an AF_XDP ring sends, left to others: struct xsk_tx_metadata in front of the frame says where they go (Linux's
 * Documentation/networking/xsk-tx-metadata.rst). With zero copy the driver computes them, where it says that it does; in copy mode the
 * kernel treats the frame as one of its own: the device does it, nobody where the link is virtual, or else the kernel.
 *
 * The headers that this is built with may be older than Linux 6.8: the few numbers and layouts stand here.
 */
#include "ring/xdp_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "ring/frame.h"
#include "ring/vnet.h"

#define UMEM_TX_SW_CSUM (1u << 1)
#define UMEM_TX_METADATA_LEN (1u << 2)
#define TXMD_FLAGS_CHECKSUM (1u << 1)
#define PROTO_UDP 17

/* struct xdp_umem_reg of Linux 6.11; before 6.8 its last word is padding. */
struct umem_reg {
	uint64_t addr, len;
	uint32_t chunk_size, headroom, flags, tx_metadata_len;
};

/* struct xsk_tx_metadata: `more` is what it has grown by, and zero. */
struct tx_metadata {
	uint64_t flags;
	uint16_t csum_start, csum_offset;
	uint32_t pad;
	uint64_t more;
};
_Static_assert(sizeof(struct tx_metadata) == XDP_TX_FRONT, "what is asked of senders");

static int reg(const struct xdp_ring *r, int fd, uint32_t flags)
{
	struct umem_reg u = {
		.addr = (uint64_t)(uintptr_t)r->umem,
		.len = r->umem_size,
		.chunk_size = 1u << r->buf_shift,
		.flags = flags,
		.tx_metadata_len = flags ? XDP_TX_FRONT : 0,
	};

	return setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &u, sizeof(u)) ? -errno : 0;
}

int pv_xdp_umem_reg(struct xdp_ring *r, int fd, enum pv_xdp_csum want)
{
	uint32_t flags = UMEM_TX_METADATA_LEN | (want == PV_XDP_CSUM_SOFTWARE ? UMEM_TX_SW_CSUM : 0);
	int rc;

	if (want == PV_XDP_CSUM_STACK)
		return reg(r, fd, 0);
	/* Each descriptor would need the room in front, those of a frame's later buffers, too. */
	if (r->jumbo) {
		r->csum_why = "frames of several buffers have none";
		return reg(r, fd, 0);
	}
	rc = reg(r, fd, flags);
	if (!rc) {
		r->tx_front = XDP_TX_FRONT;
		return 0;
	}
	r->csum_why = "this kernel has no transmit metadata (Linux 6.11)";
	return rc == -EINVAL ? reg(r, fd, 0) : rc;
}

/* Who computes them, or why nobody but the stack does. */
static const char *choose(const struct xdp_ring *r, enum pv_xdp_csum want, bool zero_copy, bool device, const char **why)
{
	struct pv_xdp_features f = { 0 };

	if (zero_copy) {
		if (!pv_xdp_features(r->ifindex, &f) && f.xsk & XDP_TX_CSUM)
			return "driver";
		*why = "the driver computes none with zero copy";
		return NULL;
	}
	if (want == PV_XDP_CSUM_SOFTWARE)
		return "software";
	if (want == PV_XDP_CSUM_KERNEL || device)
		return "kernel";
	*why = "the device computes none";
	return NULL;
}

const char *pv_xdp_csum_decide(struct xdp_ring *r, enum pv_xdp_csum want, bool zero_copy, bool device)
{
	struct pv_ring_caps *c = &r->ring.caps;
	const char *by = r->tx_front ? choose(r, want, zero_copy, device, &r->csum_why) : NULL;
	size_t at = strlen(c->note);

	c->headroom = r->tx_front;
	if (by)
		c->tx_csum = PV_CSUM_UDP | PV_CSUM_TCP;
	else if (want != PV_XDP_CSUM_STACK)
		snprintf(c->note + at, sizeof(c->note) - at, "%sno tx_csum: %s", at ? "; " : "", r->csum_why);
	return by;
}

uint32_t pv_xdp_csum_ask(struct pv_pkt *p)
{
	struct tx_metadata *m = (void *)(p->data - sizeof(*m)), said = { .flags = TXMD_FLAGS_CHECKSUM };
	uint32_t l4, field;
	uint64_t sum;
	uint8_t proto;

	if (!pv_vnet_find_l4(p->data, p->len, &l4, &proto, &sum)) {
		pv_frame_fill_csum(p->data, p->len, PV_PKT_TX_L4_CSUM);
		return 0;
	}
	field = proto == PROTO_UDP ? 6 : 16;
	pv_cksum_put(p->data + l4 + field, pv_cksum_fold(sum));
	said.csum_start = (uint16_t)l4;
	said.csum_offset = (uint16_t)field;
	memcpy(m, &said, sizeof(said));
	return XDP_DESC_TX_METADATA;
}
