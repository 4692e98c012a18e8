/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The AF_XDP ring: one AF_XDP socket a queue of a kernel interface, all over one UMEM, which is the packet pool itself: no copy on our
 * side. An XDP program steers the flows of flow_add to these sockets and passes everything else to the kernel. It is attached by a
 * bpf_link that only this process holds, so that a killed process leaves nothing behind.
 *
 * libbpf is loaded at run time. The pool has buffers of 2048 or 4096 bytes and stays as it is at open (pv_pool_cfg.fixed): a UMEM cannot
 * grow, and a chunk more would be answered with -EOPNOTSUPP.
 */
#ifndef PV_RING_XDP_H
#define PV_RING_XDP_H

#include "ring/ring.h"

enum pv_xdp_mode { PV_XDP_AUTO, PV_XDP_NATIVE, PV_XDP_GENERIC };
/* Who computes checksums of what is sent: the stack; the driver, or the kernel's ways in copy mode, where that saves work (auto) or
 * always (kernel); the kernel by software, in copy mode only. */
enum pv_xdp_csum { PV_XDP_CSUM_STACK, PV_XDP_CSUM_AUTO, PV_XDP_CSUM_KERNEL, PV_XDP_CSUM_SOFTWARE };

/* What somebody with the privileges made: the program in force on an interface, and a socket for each of its first queues in its map. */
#define PV_XDP_LOAN_QUEUES 16u
struct pv_xdp_loan {
	int link_fd, sock_fd[PV_XDP_LOAN_QUEUES];
	int rules_fd, config_fd; /* -1 in a loan that was passed on */
	uint32_t queues;
	bool native;
	bool metadata; /* the program leaves struct steer_meta in front of each frame */
	uint8_t mac[PV_ETH_ALEN];
};

/* Who keeps the program's rules for a ring that may not. 0 or -errno. */
struct pv_xdp_keeper {
	int (*add)(void *ctx, const struct pv_flow *flow);
	void (*del)(void *ctx, const struct pv_flow *flow);
	void (*close)(void *ctx); /* with the ring; the last call */
	void *ctx;
};

struct pv_xdp_cfg {
	const char *ifname;
	uint32_t queues; /* the first so many; 0: all */
	uint32_t rx_depth, tx_depth; /* a queue; 0: 1024; power of two */
	enum pv_xdp_mode mode; /* auto: native where the driver has it and it is the quicker one (not veth's), else generic */
	bool copy; /* do not ask for zero copy */
	bool hurry; /* a queue that is taken is an error at once, not after 0.3 s: the caller tries again */
	/* What the driver tells of a frame beside it (time stamp, hash, VLAN tag), by a program that is bound to the device: native mode,
	 * Linux 6.8. What cannot be had is said in caps.note. */
	bool rx_metadata;
	bool own_link; /* nobody writes caps.link_up: the ring finds out, by sending */
	bool no_tso; /* long TCP segments do not go whole, where they could (veth) */
	/* The place that is kept for it in the pool (pv_pool_bind_begin), and stays kept if it cannot be opened; 0: none. */
	uint32_t binder;
	enum pv_xdp_csum tx_csum; /* Linux 6.11; likewise */
	uint32_t busy_poll_us; /* SO_BUSY_POLL with SO_PREFER_BUSY_POLL; 0: off */
	/* With privileges of somebody else's; NULL: the process's own. Both or neither; the ring has the fds from now on, also when it
	 * cannot be opened, and the keeper once it is. Rules are for 3-tuples and 5-tuples only then. */
	const struct pv_xdp_loan *loan;
	const struct pv_xdp_keeper *keeper;
};

/* 0 or -errno with a text in `err`: -ENODEV, -EPERM, -EBUSY (a queue or the interface's XDP hook is taken), -EOPNOTSUPP, ... */
int pv_xdp_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_xdp_cfg *cfg, char *err,
		size_t errsize);
/* How many queues would be used: as many as asked for, of those that there are. */
uint32_t pv_xdp_queues(const struct pv_xdp_cfg *cfg);
/* The privileged half of opening, for another process; the fds are the caller's. 0 or -errno with a text, as pv_xdp_open. */
int pv_xdp_lend(const struct pv_xdp_cfg *cfg, struct pv_xdp_loan *out, char *err, size_t errsize);
/* Buffer size and count that a pool for this interface wants. 0 or -errno with a text. */
int pv_xdp_pool_cfg(const struct pv_xdp_cfg *cfg, struct pv_pool_cfg *out, char *err, size_t errsize);

#endif
