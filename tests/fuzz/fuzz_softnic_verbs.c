/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program or its environment hands the software NIC as text or bytes: port specifications, impairments, flow rules. */
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void flow(const uint8_t *data, size_t size)
{
	/* A caller's rule ends where its specifications say that they end: room for as many as there can be, of the longest kind. */
	size_t room = sizeof(struct ibv_flow_attr) + 256 * sizeof(struct ibv_flow_spec);
	struct ibv_flow_attr *a = calloc(1, PV_MAX(room, size));
	struct sn_rule r;

	if (!a)
		return;
	memcpy(a, data, size);
	if (!vb_flow_parse(&r, a)) {
		const uint8_t *m = (const uint8_t *)&r.mask;
		bool any = false;

		for (size_t i = 0; i < sizeof(r.mask); i++)
			any |= m[i] != 0;
		/* Kinds that match by themselves have no fields. */
		if ((any || r.vxlan || r.drop || r.tagged) && (r.sniffer || r.all_default || r.mc_default))
			abort();
		/* What is inside is inside of something. */
		m = (const uint8_t *)&r.inner_mask;
		for (size_t i = 0; i < sizeof(r.inner_mask); i++) {
			if (m[i] && !r.vxlan)
				abort();
		}
		if (r.tag >> 24 || (r.tag && !r.tagged) || be32toh(r.inner_mask.vni) & 0xff || be32toh(r.inner_value.vni) & 0xff)
			abort();
		if (r.mask.ip_version && r.value.ip_version != 4 && r.value.ip_version != 6)
			abort();
	}
	free(a);
}

static void text(const uint8_t *data, size_t size, bool impair)
{
	char *s = malloc(size + 1);

	if (!s)
		return;
	memcpy(s, data, size);
	s[size] = 0;
	if (impair) {
		struct sn_impairments imp;

		if (!vb_impair_parse(s, &imp) &&
		    (imp.loss_ppm > 1000000 || imp.reorder_ppm > 1000000 || imp.delay_ns > 60000000000u))
			abort();
	} else {
		struct vb_device d;

		memset(&d, 0, sizeof(d));
		if (!vb_device_parse(s, size, &d) &&
		    (!d.fabric[0] || d.fabric[SN_NAME_MAX - 1] || strchr(d.fabric, '/') || d.port >= SN_PORTS ||
		     d.cfg.mtu > SN_MTU_MAX || d.cfg.mac[0] & 1 || d.cfg.dm_bytes > VB_MAX_DM || d.off & ~VB_CAPS))
			abort();
	}
	free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] % 3 == 0)
		flow(data + 1, size - 1);
	else
		text(data + 1, size - 1, data[0] % 3 == 1);
	return 0;
}
