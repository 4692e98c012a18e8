/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside the AF_XDP ring: xdp.c (data path), xdp_open.c, xdp_sock.c (sockets and their queues), xdp_prog.c (program and rules), xdp_lib.c. */
#ifndef PV_RING_XDP_PRIV_H
#define PV_RING_XDP_PRIV_H

#include <linux/if_xdp.h>

#include "ring/bpf/steer.h"
#include "ring/xdp.h"

/* Linux 6.6 */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#define XDP_PKT_CONTD (1 << 0)
#endif

/* What the kernel keeps free before a received frame (XDP_PACKET_HEADROOM). */
#define XDP_RX_HEADROOM 256u
#define XDP_FRAME_EXTRA 18u /* Ethernet header and one VLAN tag */

/* Linux 6.8 */
#define XDP_DESC_TX_METADATA (1u << 1) /* in the options of a descriptor: xdp_csum.c has written in front of the frame */
#define XDP_TX_FRONT 24u

struct bpf_object;

/* One single-producer single-consumer queue shared with the kernel. `next` is our side's position, `seen` the other side's when we
 * last looked. */
struct xdp_queue {
	uint32_t *producer, *consumer, *flags;
	void *desc; /* struct xdp_desc[] or uint64_t[] */
	uint32_t mask, size;
	uint32_t next, seen;
	void *map;
	size_t map_size;
};

struct xdp_sock {
	int fd;
	uint32_t queue_id;
	uint32_t inside; /* buffers in fill and rx */
	uint32_t posted; /* descriptors in tx and comp */
	struct pv_pkt *head, *tail; /* of a frame whose other buffers are still to be taken; NULL: none is */
	bool kick; /* tx has descriptors the kernel may not have seen */
	struct xdp_queue rx, tx, fill, comp;
};

struct xdp_rule {
	uint64_t handle; /* generation << 32 | slot; 0: free */
	uint32_t next_free; /* slot, UINT32_MAX at the end */
	struct pv_flow flow;
	bool gated;
};

struct xdp_libbpf {
	void *handle;
	struct bpf_object *(*open_mem)(const void *, size_t, const void *);
	int (*load)(struct bpf_object *);
	void (*close)(struct bpf_object *);
	void *(*find_program)(const struct bpf_object *, const char *);
	int (*program_fd)(const void *);
	int (*program_flags)(void *, uint32_t);
	void (*program_ifindex)(void *, uint32_t);
	int (*find_map_fd)(const struct bpf_object *, const char *);
	int (*btf_fd)(const struct bpf_object *);
	int (*link_create)(int, int, int, const void *);
	int (*map_update)(int, const void *, const void *, uint64_t);
	int (*map_lookup)(int, const void *, void *);
	int (*map_delete)(int, const void *);
	int (*query_id)(int, int, uint32_t *);
	int (*fd_by_id)(uint32_t);
	int (*info)(int, void *, uint32_t *);
	void *(*set_print)(void *);
};

/* Loads libbpf once for the process. NULL with a text when it is not there. */
const struct xdp_libbpf *pv_xdp_libbpf(char *err, size_t errsize);

struct xdp_ring {
	struct pv_ring ring; /* first */
	const struct pv_mem *mem;
	const struct xdp_libbpf *lib;
	struct xdp_sock *sock;
	uint32_t nsocks, turn;
	int ifindex;
	uint8_t *umem;
	size_t umem_size;
	uint32_t buf_shift;
	uint8_t *held; /* by packet index: what the ring has of it */
	uint32_t held_size;
	struct pv_pktq done; /* frames that the queue does not have, sent aside or not at all: reaped first */
	int epoll_fd;
	struct bpf_object *object;
	int prog_fd, link_fd, rules_fd, xsks_fd, config_fd, few_fd, gate_fd;
	struct pv_xdp_keeper keeper; /* add NULL: the rules are ours */
	uint32_t kind_rules[PV_FLOW_KINDS];
	struct steer_few few; /* as the program has it */
	uint32_t nfew; /* rules in there */
	bool few_stale; /* the program has others: the last write failed */
	struct steer_config told; /* as the program has it */
	struct xdp_rule *rule;
	uint32_t nrules, free_rule;
	uint64_t next_handle;
	bool native, gone, gone_told;
	bool own_link, link_told; /* nobody else follows the interface's link; what became of it was said */
	uint32_t metadata; /* XDP_META_* that frames come with; 0: the program is not bound to the device */
	bool rx_stamps; /* asked for */
	uint32_t tx_front; /* bytes that the kernel wants in front of every frame that is sent */
	const char *csum_why; /* why tx_csum is not in force */
	bool lent; /* sockets and link are those of a loan */
	bool jumbo; /* a frame of the interface's MTU fills several buffers */
	bool csum_partial; /* of frames that come */
	bool virtual_link; /* no hardware completes checksums on the way */
	bool veth; /* its native mode is the slower one, and what it is given reaches the other end whole */
	bool zero_copy; /* as the first socket was bound */
	bool sg; /* the sockets take frames of several buffers */
	uint32_t pieces; /* buffers of a frame in the queue */
	int whole_fd; /* for long segments, or -1 */
	uint64_t drops[3]; /* of the counters, what the kernel told: rx_no_buf, rx_errors, tx_errors */
	uint32_t events; /* times that event was called */
};

/* PART: of a frame in pieces, whose first packet is in priv[0]; that one's priv[1] counts those that have not left. */
enum { XDP_HELD_NO, XDP_HELD_RX, XDP_HELD_TX, XDP_HELD_PART };

/* xdp_open.c: everything but the packets. */
void pv_xdp_release(struct xdp_ring *r);

/* xdp.c */
extern const struct pv_ring_ops pv_xdp_ops;
/* Nothing is taken any more, PV_RING_EV_GONE is due. */
void pv_xdp_set_gone(struct xdp_ring *r);

/* xdp_sock.c */
int pv_xdp_socks_open(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize);
void pv_xdp_socks_close(struct xdp_ring *r);
/* ETHTOOL: number of receive queues; what the driver's name tells. */
uint32_t pv_xdp_channels(const char *ifname);
/* What the driver tells of it, into `caps`. */
void pv_xdp_moderation(const char *ifname, struct pv_ring_caps *caps);
/* ETHTOOL: does the device compute checksums of what is sent? */
bool pv_xdp_device_csum(const char *ifname);
/* 0, or -errno when the driver cannot be asked. */
int pv_xdp_know_driver(struct xdp_ring *r, const char *ifname);

/* The device takes TCP segments that are longer than its MTU. */
bool pv_xdp_has_tso(const char *ifname);

/* xdp_whole.c: long segments to a device that passes them on as they are. Opened once the sockets are; caps say whether there is such a way. */
void pv_xdp_whole_open(struct xdp_ring *r, const struct pv_xdp_cfg *cfg);
void pv_xdp_whole_close(struct xdp_ring *r);
/* What the transmit queue does not take: a long segment leaves that way, behind all that was posted, anything else fails; both are reapable
 * then. False: not now. */
bool pv_xdp_post_aside(struct xdp_ring *r, struct pv_pkt *p);

/* xdp_feature.c: what the driver offers to programs and sockets, as the kernel's family "netdev" tells it (Linux 6.8). */
#define XDP_META_STAMP 0x1u
#define XDP_META_HASH 0x2u
#define XDP_META_VLAN 0x4u
#define XDP_TX_STAMP 0x1u
#define XDP_TX_CSUM 0x2u
struct pv_xdp_features {
	uint64_t rx_metadata; /* XDP_META_* */
	uint64_t xsk; /* XDP_TX_* */
};
/* 0, -EOPNOTSUPP (the kernel does not tell), -errno. */
int pv_xdp_features(int ifindex, struct pv_xdp_features *out);
/* One answer, `len` bytes from its netlink header on. 0, -EAGAIN (it is not the whole), -EPROTO, what the kernel says. */
int pv_xdp_features_parse(const void *msg, size_t len, struct pv_xdp_features *out);

/* xdp_meta.c */
/* What stands in front of a frame that was received, into its packet. */
void pv_xdp_meta_take(struct xdp_ring *r, struct pv_pkt *p);
int pv_xdp_set_stamps(struct pv_ring *ring, bool rx, bool tx);

/* xdp_csum.c */
/* The pool becomes the socket's UMEM, with room for what `want` needs where the kernel has that. */
int pv_xdp_umem_reg(struct xdp_ring *r, int fd, enum pv_xdp_csum want);
/* Into caps. `device`: the kernel's own frames are finished by the device. Who computes; NULL: the stack. */
const char *pv_xdp_csum_decide(struct xdp_ring *r, enum pv_xdp_csum want, bool zero_copy, bool device);
/* Of a frame with PV_PKT_TX_L4_CSUM: what its descriptor's options have to say. */
uint32_t pv_xdp_csum_ask(struct pv_pkt *p);

/* xdp_prog.c */
int pv_xdp_prog_open(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize);
int pv_xdp_prog_attach(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize);
void pv_xdp_prog_close(struct xdp_ring *r);
/* Kinds in use and MAC, to the program. */
int pv_xdp_config_write(struct xdp_ring *r);
int pv_xdp_flow_add(struct pv_ring *ring, const struct pv_flow *flow, uint64_t *handle);
int pv_xdp_flow_del(struct pv_ring *ring, uint64_t handle);
int pv_xdp_flow_gate(struct pv_ring *ring, uint64_t handle, bool gated);
int pv_xdp_gate(struct pv_ring *ring, bool open);

#endif
