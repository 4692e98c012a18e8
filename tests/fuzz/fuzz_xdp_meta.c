/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as the kernel's answer about a driver's features, and in front of and as a frame. */
#include <stdlib.h>
#include <string.h>

#include "pkt/pkt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef PV_HAVE_XDP
#include "ring/bpf/steer.h"
#include "ring/xdp_priv.h"

#define AT 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static _Alignas(8) uint8_t buf[4096];
	struct pv_xdp_features f;
	struct pv_ring_stat stat;
	struct xdp_ring r;
	struct pv_pkt p;

	if (size > sizeof(buf) - AT)
		return 0;
	memcpy(buf, data, size);
	(void)pv_xdp_features_parse(buf, size, &f);
	memset(&stat, 0, sizeof(stat));
	memset(&r, 0, sizeof(r));
	r.ring.stat = &stat;
	r.rx_stamps = size & 1;
	memset(buf, 0, AT);
	memcpy(buf + AT, data, size);
	p = (struct pv_pkt){ .buf = buf, .data = buf + AT, .len = (uint32_t)size, .total = (uint32_t)size };
	if (size >= sizeof(struct steer_meta)) {
		p.data += sizeof(struct steer_meta);
		p.len = p.total = (uint32_t)(size - sizeof(struct steer_meta));
	}
	pv_xdp_meta_take(&r, &p);
	if (p.data < buf || p.data + p.len > buf + AT + size || p.len != p.total)
		abort();
	return 0;
}
#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)data;
	(void)size;
	return 0;
}
#endif
