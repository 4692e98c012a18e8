/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs ring: one raw-Ethernet queue pair of an RDMA device. libibverbs is loaded at run time from `library`, so that the same
 * code runs over the system's libibverbs.so.1 (mlx5, mlx4, ...) and over libpyvma-softnic.so.
 */
#ifndef PV_RING_VERBS_H
#define PV_RING_VERBS_H

#include "ring/ring.h"

/* What set_stamps can switch on, where the device has it. A queue that can stamp costs nothing while it does not. */
enum pv_verbs_stamps {
	PV_VERBS_STAMPS_NONE,
	PV_VERBS_STAMPS_RAW, /* ticks of the free-running clock */
	PV_VERBS_STAMPS_WALL, /* the device's own clock of the day; RAW where completions do not carry it */
};

struct pv_verbs_cfg {
	const char *library; /* NULL: "libibverbs.so.1" */
	const char *device; /* e.g. "mlx5_0" */
	uint8_t port; /* 1.. ; 0: 1 */
	uint32_t rx_depth, tx_depth; /* 0: 1024; clamped to the device's */
	uint32_t inline_max; /* asked for; 0: 204 as VMA_TX_MAX_INLINE; UINT32_MAX: none */
	bool legacy; /* use post_send/poll_cq even where the extended interface is there */
	bool no_csum; /* leave checksum offload off */
	bool no_tso; /* leave segmentation to the stack */
	uint32_t dev_mem; /* bytes of the device's memory to send from; 0: none */
	enum pv_verbs_stamps stamps;
	uint32_t rx_queues; /* that flows are spread over by their hash; a power of two, clamped to the device's; 0: 1 */
	uint32_t rxqs; /* receive queues beside these, at most (rxq_open); the completion queue has room for them from the start */
	bool rx_interrupts; /* a completion channel for arm(); true unless a pure spinner */
	/* A number of the pool's that pv_pool_bind_begin gave: the ring is opened without a look at what the pool's owner does meanwhile, who calls
	 * pv_pool_bind_end before anything else with it, and pv_pool_unbind when it could not be opened. 0: the caller is the owner. */
	uint32_t binder;
};

/* 0, with a remark in `err` when something that was asked for is not to be had, or -errno with a text: -ENOENT (no such device or library), -EPERM, -EINVAL, -EOPNOTSUPP (no raw packet QPs), ... */
int pv_verbs_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_verbs_cfg *cfg, char *err,
		  size_t errsize);
/* MTU of the port before anything is opened (pools are sized by it), MAC. 0 or as above. */
struct pv_verbs_info {
	char device[PV_RING_NAME_MAX];
	uint8_t port;
	uint32_t mtu;
	uint8_t mac[PV_ETH_ALEN];
	bool link_up, raw_packet;
};
int pv_verbs_probe(const struct pv_verbs_cfg *cfg, struct pv_verbs_info *out, char *err, size_t errsize);

#endif
