/* SPDX-License-Identifier: BSD-3-Clause */
/* Two verbs rings over the software NIC, for the contract suite. */
#ifndef RING_VERBS_RIG_H
#define RING_VERBS_RIG_H

#include <dlfcn.h>

#include "ring/verbs.h"
#include "ring_contract.h"

static struct {
	int (*device_add)(const char *spec, char *name, size_t size);
	int (*set_link)(const char *device, int up);
} nic;

static inline void nic_load(void)
{
	void *h;

	if (nic.device_add)
		return;
	h = dlopen(SOFTNIC_LIB, RTLD_NOW | RTLD_LOCAL);
	if (!h)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(h != NULL);
	nic.device_add = (int (*)(const char *, char *, size_t))dlsym(h, "softnic_device_add");
	nic.set_link = (int (*)(const char *, int))dlsym(h, "softnic_set_link");
	CHECK(nic.device_add && nic.set_link);
}

/* A fabric of this process and case only. */
static inline void devices(char names[2][PV_RING_NAME_MAX], const char *options)
{
	static unsigned int number;
	char spec[128];

	nic_load();
	number++;
	for (int i = 0; i < 2; i++) {
		uint8_t mac[PV_ETH_ALEN];

		rig_mac(i, mac);
		snprintf(spec, sizeof(spec), "rv%d-%u/%d,mac=%02x:%02x:%02x:%02x:%02x:%02x%s", (int)getpid(), number, i, mac[0],
			 mac[1], mac[2], mac[3], mac[4], mac[5], options);
		CHECK_EQ(nic.device_add(spec, names[i], PV_RING_NAME_MAX), 0);
	}
}

struct verbs_rig {
	char names[2][PV_RING_NAME_MAX];
};

/* `options`: of the devices, after a comma. */
static inline void open_as(struct rig *rig, struct pv_verbs_cfg cfg, const char *mode, const char *options)
{
	static const struct pv_flow all = { .kind = PV_FLOW_ALL };
	struct verbs_rig *vr = calloc(1, sizeof(*vr));
	char err[256];

	CHECK(vr != NULL);
	rig->wire = vr;
	devices(vr->names, options);
	cfg.library = SOFTNIC_LIB;
	cfg.rx_queues = rig->kind->rx_queues;
	cfg.tx_depth = RIG_DEPTH;
	cfg.rx_depth = RIG_DEPTH * PV_MAX(cfg.rx_queues, 1u);
	for (int i = 0; i < 2; i++) {
		int rc;

		cfg.device = vr->names[i];
		rc = pv_verbs_open(&rig->ring[i], &rig->mem.mem, rig->pool[i], &cfg, err, sizeof(err));
		if (rc)
			fprintf(stderr, "%s\n", err);
		CHECK_EQ(rc, 0);
		CHECK(!strcmp(rig->ring[i]->caps.mode, mode));
		CHECK_EQ(pv_ring_flow_add(rig->ring[i], &all, &rig->all_rule[i]), 0);
	}
}

static inline void open_with(struct rig *rig, struct pv_verbs_cfg cfg, const char *mode)
{
	open_as(rig, cfg, mode, "");
}

static inline void close_rig(struct rig *rig)
{
	free(rig->wire);
}

static inline void settle(struct rig *rig)
{
	(void)rig; /* the fabric delivers within the doorbell */
}

static inline void set_link(struct rig *rig, int side, bool up)
{
	CHECK_EQ(nic.set_link(((struct verbs_rig *)rig->wire)->names[side], up), 0);
}

#define VERBS(id, opener, needs)                                                                                                   \
	static const struct rig_kind id = {                                                                                        \
		.name = #id, .must = needs, .open = opener, .close = close_rig, .settle = settle, .set_link = set_link             \
	}

#endif
