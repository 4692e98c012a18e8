/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the verbs ring. What the files share: the table of the library's symbols, the ring itself, and how packets are kept
 * while the device has them.
 *
 * Send queues. WRs are numbered; `sq_tail` is the next number, `sq_head` the oldest that may still be with the device. A WR whose
 * packet was inlined is done as soon as the device has it and holds only its number. Few WRs are signalled; the completion of one
 * retires all before it. The first queue is in the ring, those beside it are queue pairs that only send (verbs_txq.c).
 * Receive queue. The packet's address is the WR's id; a bit per packet index says which ones the device has, so that a close
 * finds them all whether the device still completes or not.
 */
#ifndef PV_RING_VERBS_PRIV_H
#define PV_RING_VERBS_PRIV_H

#include <infiniband/verbs.h>

#include "base/list.h"
#include "ring/frame.h"
#include "ring/own.h"
#include "ring/ring.h"
#include "ring/verbs.h"

#define VERBS_SGE_PLAIN 4u /* buffers of a frame without segmentation */
#define VERBS_SGE_MAX 32u /* and of a segment that the device cuts */
#define VERBS_TSO_HEADER 128u /* Ethernet with a tag, IPv6 or IPv4, TCP with all its options */
#define VERBS_TXQ_DEPTH 1024u /* of a send queue beside the first, at most */
#define VERBS_DM_HEADER                                                                                                            \
	18u /* bytes of a frame that stay beside device memory: Ethernet with a tag, what mlx5 puts into the entry */
#define VERBS_SIGNAL_EVERY 64u /* WRs between two completions, at most; fewer when the queue is short */

/* Symbols that the headers' inline functions would otherwise pull in at link time; the rest is reached through the context. */
struct pv_verbs_lib {
	void *handle;
	struct ibv_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *dev);
	struct ibv_context *(*open_device)(struct ibv_device *dev);
	int (*close_device)(struct ibv_context *ctx);
	int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr);
	int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
	int (*destroy_comp_channel)(struct ibv_comp_channel *ch);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *cq_ctx, struct ibv_comp_channel *ch, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_ctx);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int n);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *ev);
	void (*ack_async_event)(struct ibv_async_event *ev);
	/* Not in every library. */
	struct ibv_qp_ex *(*qp_to_qp_ex)(struct ibv_qp *qp);
	const char *(*softnic_open_error)(void);
};

struct mlx5dv_clock_info;

struct verbs_mr {
	struct verbs_mr *next;
	struct ibv_mr *mr;
};

/* Where a moved rule leads, and what of that is its own. */
struct verbs_way {
	uint64_t set; /* bits of queue numbers; 0: to the first ones */
	struct ibv_rwq_ind_table *table; /* over several queues */
	struct ibv_qp *qp;
};

struct verbs_flow {
	struct verbs_flow *next;
	uint64_t handle;
	uint32_t n;
	struct ibv_flow *flow[3];
	struct pv_flow of;
	/* Since it was moved (verbs_rxq.c). */
	uint32_t level; /* steps of priority above its kind's: 0, 1 or 2 */
	struct verbs_way way;
	struct ibv_flow *stale; /* the device did not take this one back, which led by that way */
	struct verbs_way stale_way;
};

/* Receive queues beside the first ones: see verbs_rxq.c. */
#define VERBS_RXQ_DEPTH 256u /* buffers of each, at most */

struct verbs_beside {
	struct ibv_wq *wq; /* NULL: the number is free */
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
	struct pv_rxq_stat *stat; /* with `wq`, never NULL */
	bool closing;
};

struct verbs_rxqs {
	uint32_t (*rx_poll)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n); /* the completion queue's */
	uint32_t open, closing; /* how many */
	uint32_t next; /* whose buffers are posted first */
	uint32_t out; /* of the queue pair's own queue, where that is the first */
	uint32_t surplus; /* buffers that came by closing queues, for which the owner will post others */
	struct pv_pktq early; /* taken from the completion queue before they were asked for */
	struct verbs_beside q[PV_RING_RXQ_MAX + 1]; /* by number */
};

/* Several receive queues: see verbs_rss.c. */
#define VERBS_RXQ_MAX 64u
enum verbs_spread {
	VERBS_SPREAD_NONE,
	VERBS_SPREAD_IP4,
	VERBS_SPREAD_IP6,
	VERBS_SPREAD_UDP4,
	VERBS_SPREAD_UDP6,
	VERBS_SPREAD_TCP4,
	VERBS_SPREAD_TCP6,
	VERBS_SPREADS
};

struct verbs_rxq {
	struct ibv_wq *wq;
	uint32_t out; /* buffers that it has */
};

struct verbs_rss {
	struct ibv_rwq_ind_table *table, *first; /* all queues; the first alone */
	struct ibv_qp *qp[VERBS_SPREADS]; /* NULL until a rule needs it */
	uint32_t (*rx_poll)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
	uint32_t n, depth, next;
	struct verbs_rxq q[VERBS_RXQ_MAX];
};

struct verbs_dm_header {
	uint8_t bytes[32];
};

/* verbs_dm.c */
struct verbs_dm {
	struct ibv_dm *dm;
	struct ibv_mr *mr, *header_mr;
	uint32_t size, head, used;
	uint32_t freed; /* WRs before this number have given back */
	uint32_t signalled, unsignalled; /* bytes handed out since that WR, the last one that is signalled */
	uint32_t *charge; /* by slot: bytes that it gives back */
	struct verbs_dm_header *header; /* by slot */
	uint8_t *scratch; /* a frame that must be gathered first */
};

/* How a queue pair is given a rate. */
enum verbs_rate_way { VERBS_RATE_NONE, VERBS_RATE_LIMIT, VERBS_RATE_RTS, VERBS_RATE_TRANSITION };

struct verbs_txq {
	struct ibv_qp_ex *qpx; /* NULL: ibv_post_send */
	struct ibv_cq *cq;
	struct ibv_cq_ex *cqx; /* the same, NULL: it has no stamps */
	struct pv_pkt **slot; /* by number & sq_mask: the packet the device reads, NULL when it was copied */
	uint32_t sq_mask, sq_head, sq_tail;
	uint32_t sq_signalled; /* the number behind the last signalled WR */
	uint32_t sq_kicked; /* the number behind the last WR that the device knows */
	uint32_t signal_every;
	uint32_t held; /* slots that are not NULL */
	bool batch; /* ibv_wr_start was called */
	struct verbs_dm *dm; /* NULL: none */
	struct pv_pktq waiting; /* legacy: inlined once the chain is posted */
	struct ibv_qp *qp;
	struct ibv_send_wr *wr; /* legacy: one per number & sq_mask */
	struct ibv_sge *sge; /* legacy: caps.max_sge per WR */
	uint32_t depth, slots; /* slots: sq_mask + 1 */

	/* beside the first only: verbs_txq.c */
	uint8_t number;
	bool closing, dirty;
	struct verbs_txq *next, *next_dirty;
	struct pv_list busy;
	struct pv_ring_rate rate;
};

/* What a queue pair is to have. */
struct verbs_qp_ask {
	struct ibv_cq *send_cq, *recv_cq;
	uint32_t send_wr, recv_wr, inline_size, sge;
	bool extended, tso;
};

struct verbs_ring {
	struct pv_ring ring;
	struct pv_ring_ops ops; /* put together at open, see pv_verbs_set_ops */

	/* hot: receive */
	struct ibv_cq_ex *rx_cqx pv_aligned(PV_CACHELINE); /* NULL: it has no stamps */
	struct ibv_cq *rx_cq;
	struct ibv_qp *qp;
	int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	uint64_t *rx_held; /* bit per packet index */
	uint32_t rx_outstanding; /* posted and not polled */
	uint32_t rx_index_max;
	uint32_t rx_good; /* PV_PKT_*_OK for a good verdict; 0 with offloads off */
	bool gone;
	struct verbs_rss *rss; /* NULL: one queue, the queue pair's */
	struct verbs_rxqs *rxqs; /* NULL: there are none beside the first ones */
	struct pv_pkt *stash; /* found by arm(), next one for rx_poll */

	/* hot: send */
	struct verbs_txq tx pv_aligned(PV_CACHELINE);
	struct pv_pktq done; /* reapable, of all queues */
	struct verbs_txq *dirty; /* queues beside the first that wait for a kick */
	struct pv_list busy; /* and that have WRs outstanding */
	uint32_t nbeside; /* how many there are */
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

	/* templates and scratch */
	struct ibv_recv_wr recv_wr[PV_RING_BATCH_MAX + 1];
	struct ibv_sge recv_sge[PV_RING_BATCH_MAX];
	struct ibv_wc wc[PV_RING_BATCH_MAX];

	/* cold */
	const struct pv_mem *mem;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct verbs_mr *mrs;
	struct verbs_flow *flows;
	struct verbs_txq *beside[PV_RING_TXQ_MAX + 1]; /* by number */
	struct verbs_txq *closing;
	uint64_t next_handle;
	uint64_t ts_mask;
	int (*get_clock_info)(struct ibv_context *ctx, struct mlx5dv_clock_info *info); /* NULL: not looked for yet, or not there */
	enum pv_verbs_stamps stamps; /* that queues are made with */
	bool tx_stamps; /* are wanted */
	bool wall; /* stamps are the device's clock of the day */
	bool shut; /* pv_verbs_shut was called */
	uint32_t events; /* bit per enum pv_ring_event not yet told */
	size_t held_bytes;
	struct verbs_qp_ask ask; /* what the ring's own queue pair was given */
	enum verbs_rate_way rate_way;
	int epoll_fd;
	uint8_t port;
	bool forgotten;
	struct pv_verbs_lib lib;
};

static inline struct verbs_ring *verbs_ring(struct pv_ring *r)
{
	return pv_container_of(r, struct verbs_ring, ring);
}

/* verbs_stamp.c: completion queues with stamps, and the device's clocks. */
/* A completion queue, able to stamp where v->stamps asks for that and the device can: *cqx is the same queue then, else NULL. NULL: errno. */
struct ibv_cq *pv_verbs_create_cq(struct verbs_ring *v, uint32_t cqe, struct ibv_comp_channel *channel, struct ibv_cq_ex **cqx);
void pv_verbs_tx_poll_stamps(struct verbs_ring *v, struct verbs_txq *q);
void pv_verbs_stamp_caps(struct verbs_ring *v, const struct ibv_device_attr_ex *attr);
int pv_verbs_set_stamps(struct pv_ring *r, bool rx, bool tx);
int pv_verbs_clock(struct pv_ring *r, uint64_t *now);
int pv_verbs_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out);

/* verbs_lib.c */
int pv_verbs_lib_open(struct pv_verbs_lib *lib, const char *path, char *err, size_t errsize);
void pv_verbs_lib_close(struct pv_verbs_lib *lib);

/* verbs.c: what both paths do the same way. */
uint32_t pv_verbs_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
uint32_t pv_verbs_rx_post_by(struct verbs_ring *v, struct ibv_wq *wq, struct pv_pkt **pkts, uint32_t n);
uint32_t pv_verbs_tx_room_slow(struct verbs_ring *v, struct pv_pkt *const *pkts, uint32_t n);
void pv_verbs_retire(struct verbs_ring *v, struct verbs_txq *q, uint64_t upto, int status);
void pv_verbs_tx_undo(struct verbs_ring *v, struct verbs_txq *q, uint32_t from, uint32_t flags);
void pv_verbs_rx_failed(struct verbs_ring *v, struct pv_pkt *p, int status);
void pv_verbs_set_gone(struct verbs_ring *v);
void pv_verbs_tx_failed(struct verbs_ring *v, struct pv_pkt *p);
void pv_verbs_txq_reclaim(struct verbs_txq *q);
void pv_verbs_reclaim(struct verbs_ring *v);

void pv_verbs_tx_poll(struct verbs_ring *v, struct verbs_txq *q);
uint32_t pv_verbs_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
void pv_verbs_set_ops(struct verbs_ring *v);
void pv_verbs_set_rx_poll(struct verbs_ring *v, uint32_t (*rx_poll)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n));

/* verbs_ext.c, verbs_legacy.c: the data path of each. */
uint32_t pv_verbs_ext_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
uint32_t pv_verbs_ext_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
int pv_verbs_ext_tx_kick(struct pv_ring *r);
uint32_t pv_verbs_legacy_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
uint32_t pv_verbs_legacy_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
int pv_verbs_legacy_tx_kick(struct pv_ring *r);

/* verbs_qp.c */
/* One attempt; inline_size and sge become what was given. NULL with errno. */
struct ibv_qp *pv_verbs_qp_create(struct verbs_ring *v, struct verbs_qp_ask *ask);
/* `kbps`: a rate given on the way to RTS, for devices that take it nowhere else; 0: none. */
int pv_verbs_qp_start(struct verbs_ring *v, struct ibv_qp *qp, uint32_t kbps);
/* Tables of a send queue. -ENOMEM; whatever came of it, fini frees it. */
int pv_verbs_txq_init(struct verbs_ring *v, struct verbs_txq *q, uint32_t depth);
void pv_verbs_txq_fini(struct verbs_ring *v, struct verbs_txq *q);

/* verbs_txq.c */
void pv_verbs_rate_probe(struct verbs_ring *v);
int pv_verbs_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate);
int pv_verbs_txq_close(struct pv_ring *r, uint32_t txq);
int pv_verbs_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate);
uint32_t pv_verbs_txq_pending(struct pv_ring *r, uint32_t txq);
struct verbs_txq *pv_verbs_txq_use(struct verbs_ring *v, const struct pv_pkt *p, bool *again);
int pv_verbs_txq_kick(struct verbs_ring *v, int (*kick)(struct verbs_ring *v, struct verbs_txq *q));
void pv_verbs_txq_poll(struct verbs_ring *v);
void pv_verbs_txq_sweep(struct verbs_ring *v);
void pv_verbs_txq_all(struct verbs_ring *v, void (*each)(struct verbs_ring *v, struct verbs_txq *q));
void pv_verbs_txq_clear(struct verbs_ring *v);
void pv_verbs_txq_shut(struct verbs_ring *v); /* what of it is the device's */

/* verbs_dm.c */
/* So many bytes for the first queue; without them the ring works too, and `err` says why. */
void pv_verbs_dm_open(struct verbs_ring *v, uint32_t bytes, char *err, size_t errsize);
void pv_verbs_dm_close(struct verbs_ring *v);
/* Copies the frame whose WR is the queue's next and fills both pieces of it; false: it goes from host memory. */
bool pv_verbs_dm_copy(struct verbs_ring *v, struct verbs_txq *q, const struct pv_pkt *p, uint32_t len, struct ibv_sge sge[2]);
bool pv_verbs_dm_scarce(const struct verbs_dm *d); /* a completion is due */
void pv_verbs_dm_undo(struct verbs_ring *v, struct verbs_txq *q, uint32_t from);

/* verbs_open.c */
void pv_verbs_close(struct pv_ring *r);
void pv_verbs_shut(struct pv_ring *r);
void pv_verbs_forget(struct pv_ring *r);

/* verbs_caps.c */
int pv_verbs_query(struct pv_verbs_lib *lib, struct ibv_context *ctx, struct ibv_device_attr_ex *attr);
int pv_verbs_query_port(struct pv_verbs_lib *lib, struct ibv_context *ctx, uint8_t port, struct pv_verbs_info *out);
bool pv_verbs_has_csum(const struct ibv_device_attr_ex *attr);
void pv_verbs_fill_caps(struct verbs_ring *v, const struct ibv_device_attr_ex *attr, const struct pv_verbs_cfg *cfg);

/* verbs_flow.c */
int pv_verbs_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle);
int pv_verbs_flow_del(struct pv_ring *r, uint64_t handle);
struct verbs_flow *pv_verbs_flow_find(struct verbs_ring *v, uint64_t handle);
/* Are they one rule to the device? */
bool pv_verbs_flow_same(const struct verbs_ring *v, const struct pv_flow *a, const struct pv_flow *b);
/* The device's rule of `flow`, which leads to `qp`, `level` steps above its kind's priority. */
int pv_verbs_flow_create(struct verbs_ring *v, const struct pv_flow *flow, struct ibv_qp *qp, uint32_t level,
			 struct ibv_flow **out);
int pv_verbs_flow_destroy(struct verbs_ring *v, struct ibv_flow *flow);
void pv_verbs_flow_clear(struct verbs_ring *v);
void pv_verbs_flow_probe(struct verbs_ring *v); /* fills caps.flow_* */

/* verbs_rss.c */
/* 0 also when the device has no such thing, or one queue is asked for: then v->rss is NULL. What an error leaves, close takes. */
int pv_verbs_rss_open(struct verbs_ring *v, const struct ibv_device_attr_ex *attr, uint32_t asked);
void pv_verbs_rss_close(struct verbs_ring *v);
bool pv_verbs_rss_splits(const struct verbs_ring *v, const struct pv_flow *flow);
int pv_verbs_rss_qp(struct verbs_ring *v, const struct pv_flow *flow, uint8_t proto, struct ibv_qp **out);
/* A queue of work requests, ready; NULL: errno. */
struct ibv_wq *pv_verbs_wq_open(struct verbs_ring *v, uint32_t depth);
/* A queue pair that hashes what is like `flow` over the table; `spread` false: one that hashes nothing. NULL: errno. */
struct ibv_qp *pv_verbs_rss_over(struct verbs_ring *v, struct ibv_rwq_ind_table *table, const struct pv_flow *flow, bool spread);
uint32_t pv_verbs_rss_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
uint32_t pv_verbs_rss_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);

/* verbs_rxq.c */
/* How many there can be; the completion queue wants room for the buffers of so many. */
uint32_t pv_verbs_rxq_plan(struct verbs_ring *v, const struct ibv_device_attr_ex *attr, uint32_t asked);
int pv_verbs_rxq_init(struct verbs_ring *v); /* if caps.rxqs is not 0 */
void pv_verbs_rxq_clear(struct verbs_ring *v); /* all of them, with nothing that leads there any more */
void pv_verbs_rxq_sweep(struct verbs_ring *v);
int pv_verbs_rxq_open(struct pv_ring *r);
int pv_verbs_rxq_close(struct pv_ring *r, uint32_t rxq);
int pv_verbs_flow_move(struct pv_ring *r, uint64_t handle, uint64_t set);
/* `f`, of which nothing but `of` is set, becomes a rule that leads there. */
int pv_verbs_rxq_lead(struct verbs_ring *v, struct verbs_flow *f, uint64_t set);
/* What came by such queues comes before what follows it by others. */
void pv_verbs_rxq_drain(struct verbs_ring *v);
/* A rule ends: what is its own of that goes. */
void pv_verbs_rxq_unuse(struct verbs_ring *v, struct verbs_flow *f);
/* The device has that buffer no more, and gave nothing in it. `counted`: the owner will post another one. */
void pv_verbs_rxq_lost(struct verbs_ring *v, const struct pv_pkt *p, bool counted);
uint32_t pv_verbs_rxq_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
uint32_t pv_verbs_rxq_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);

/* verbs_events.c */
int pv_verbs_events_open(struct verbs_ring *v);
void pv_verbs_events_close(struct verbs_ring *v);
int pv_verbs_arm(struct pv_ring *r);
int pv_verbs_notify_fd(struct pv_ring *r);
enum pv_ring_event pv_verbs_event(struct pv_ring *r);

/* ---- small things of the data path ------------------------------------------------------------------------------------- */

pv_inline uint32_t verbs_frame_len(const struct verbs_ring *v, const struct pv_pkt *p)
{
	return pv_frame_len(p, v->ring.caps.mtu, v->ring.caps.max_sge);
}

pv_inline uint32_t verbs_sge(const struct pv_pkt *p, struct ibv_sge *sge)
{
	uint32_t n = 0;

	for (; p; p = p->frag, n++) {
		sge[n].addr = (uint64_t)(uintptr_t)p->data;
		sge[n].length = p->len;
		sge[n].lkey = p->key;
	}
	return n;
}

pv_inline bool verbs_tso_sound(const struct verbs_ring *v, const struct pv_pkt *p)
{
	const struct pv_ring_caps *caps = &v->ring.caps;

	return p->gso_hdr <= VERBS_TSO_HEADER && pv_frame_cuts(p, caps->mtu, caps->tso_max, caps->max_sge) != 0;
}

/* What is behind the headers. */
pv_inline uint32_t verbs_tso_sge(const struct pv_pkt *p, struct ibv_sge *sge)
{
	uint32_t n = 0;

	if (p->len > p->gso_hdr) {
		sge[n].addr = (uint64_t)(uintptr_t)(p->data + p->gso_hdr);
		sge[n].length = p->len - p->gso_hdr;
		sge[n++].lkey = p->key;
	}
	return n + verbs_sge(p->frag, sge + n);
}

/* The device takes both checksums or none. Which of the packet's wishes it does, and which are done here first, is told by
 * pv_verbs_csum. */
#define VERBS_TX_CSUM (PV_PKT_TX_L3_CSUM | PV_PKT_TX_L4_CSUM)
bool pv_verbs_csum(struct pv_pkt *p);

/* Slots of the first send queue in use, or packets that the owner has not reaped: whichever is more. */
pv_inline uint32_t verbs_tx_used(const struct verbs_ring *v)
{
	return PV_MAX(v->tx.sq_tail - v->tx.sq_head, v->tx.held + v->done.count + v->tx.waiting.count);
}

/* How many of `n` fit: into the send queue, and into what the owner may leave unreaped. Queues beside it are asked one by one. */
pv_inline uint32_t verbs_tx_room(struct verbs_ring *v, struct pv_pkt *const *pkts, uint32_t n)
{
	if (pv_likely(verbs_tx_used(v) + n <= v->ring.caps.tx_depth && n <= v->ring.caps.batch && !v->gone))
		return n;
	return pv_verbs_tx_room_slow(v, pkts, n);
}

pv_inline void verbs_held_set(struct verbs_ring *v, uint32_t index)
{
	v->rx_held[index / 64] |= UINT64_C(1) << (index % 64);
}

pv_inline bool verbs_held_clear(struct verbs_ring *v, uint32_t index)
{
	uint64_t bit = UINT64_C(1) << (index % 64), *word = &v->rx_held[index / 64];
	bool was = *word & bit;

	*word &= ~bit;
	return was;
}

/* The packet of a receive completion; NULL for one that the device does not have, which only a broken provider names. */
pv_inline struct pv_pkt *verbs_rx_take(struct verbs_ring *v, uint64_t wr_id)
{
	struct pv_pkt *p = (struct pv_pkt *)(uintptr_t)wr_id;

	if (pv_unlikely(!verbs_held_clear(v, p->index))) {
		v->ring.stat->c.rx_errors++;
		return NULL;
	}
	v->rx_outstanding--;
	pv_ring_give(p);
	return p;
}

/* IBV_WC_IP_CSUM_OK: IP header and TCP/UDP checksums are both good. Silence means nothing. */
pv_inline void verbs_rx_fill(struct verbs_ring *v, struct pv_pkt *p, uint32_t len, unsigned int wc_flags)
{
	struct pv_ring_counters *c = &v->ring.stat->c;

	p->len = p->total = len;
	p->flags = wc_flags & IBV_WC_IP_CSUM_OK ? v->rx_good : 0;
	pv_prefetch(p->data);
	c->rx_bytes += len;
	c->rx_packets++;
}

/* What a poll begins with: the packet that arming found. How many that are. */
pv_inline uint32_t verbs_rx_stashed(struct verbs_ring *v, struct pv_pkt **pkts, uint32_t n)
{
	if (pv_likely(!v->stash) || !n)
		return 0;
	pkts[0] = v->stash;
	v->stash = NULL;
	return 1;
}

pv_inline unsigned int verbs_tx_csum(struct pv_pkt *p)
{
	return p->flags & VERBS_TX_CSUM && pv_verbs_csum(p) ? IBV_SEND_IP_CSUM : 0;
}

/* Takes the next number. IBV_SEND_SIGNALED when a completion is due, or when `want` asks for one. */
pv_inline unsigned int verbs_tx_number(struct verbs_txq *q, bool want)
{
	q->sq_tail++;
	if (!want && q->sq_tail - q->sq_signalled < q->signal_every)
		return 0;
	q->sq_signalled = q->sq_tail;
	return IBV_SEND_SIGNALED;
}

/* What takes a packet off the straight way. */
#define VERBS_TX_ASIDE (PV_PKT_TX_QUEUE | PV_PKT_TX_TSO | PV_PKT_TX_TSTAMP)

/* A packet whose completion is to say when it left. */
pv_inline bool verbs_tx_stamped(const struct verbs_ring *v, const struct verbs_txq *q, struct pv_pkt *p)
{
	if (pv_likely(!(p->flags & PV_PKT_TX_TSTAMP)))
		return false;
	p->flags &= ~PV_PKT_TSTAMP;
	return v->tx_stamps && q->cqx;
}

/* A packet that the device reads by the first queue. */
pv_inline bool verbs_tx_reads(const struct verbs_ring *v, const struct pv_pkt *p)
{
	if (pv_unlikely(p->flags & PV_PKT_TX_QUEUE))
		return false;
	return p->flags & PV_PKT_TX_TSO || verbs_frame_len(v, p) > v->ring.caps.inline_size;
}

/* The packets that fit, each by `put`, or by `aside`, which says false of one that must be offered again. One completion for all packets
 * of the call that the device reads: with the last of them; with each when others may stop the call in between. */
pv_inline uint32_t verbs_tx_each(struct verbs_ring *v, struct pv_pkt **pkts, uint32_t k,
				 void (*put)(struct verbs_ring *v, struct pv_pkt *p, bool want),
				 bool (*aside)(struct verbs_ring *v, struct pv_pkt *p, bool want))
{
	uint32_t last = k - 1;

	while (last && !verbs_tx_reads(v, pkts[last]))
		last--;
	for (uint32_t i = 1; pv_unlikely(v->nbeside) && last && i < k; i++)
		if (pkts[i]->flags & PV_PKT_TX_QUEUE)
			last = 0;
	for (uint32_t i = 0; i < k; i++) {
		if (pv_unlikely(pkts[i]->flags & VERBS_TX_ASIDE)) {
			if (!aside(v, pkts[i], i >= last)) {
				v->ring.stat->c.tx_full++;
				return i;
			}
			continue;
		}
		pv_ring_take(pkts[i]);
		put(v, pkts[i], i >= last);
	}
	return k;
}

pv_inline void verbs_tx_count(struct verbs_ring *v, uint32_t len)
{
	struct pv_ring_counters *c = &v->ring.stat->c;

	c->tx_packets++;
	c->tx_bytes += len;
}

#endif
