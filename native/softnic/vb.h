/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs objects of the software device, shared by the vb_*.c files.
 *
 * Every object starts with the public libibverbs structure that its handle points at, followed by spare room: programs compiled with
 * newer headers may look at members that our headers do not know. Objects belong to their context; destroying one frees it.
 *
 * Locks, in this order: vb_registry_lock, vb_ctx.lock, QP or RQ lock, CQ lock (by address when two), vb_channel.lock, vb_ctx.async_lock.
 * The states of QPs and RQs that the data path reads are written with the locks of the CQs concerned held.
 */
#ifndef SN_VB_H
#define SN_VB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/single_threaded.h>

/* What libibverbs exports, this library exports: its prototypes are the list (native/softnic/softnic.map trims it). */
#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
/* Private to rdma-core, but ibv_devinfo and pyverbs call it. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index, unsigned int *type);
#pragma GCC visibility pop
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#include "base/compiler.h"
#include "base/list.h"
#include "softnic/fabric.h"

#define VB_MAX_MR 65535u
#define VB_MAX_SGE 16u
#define VB_MAX_WR 8192u
#define VB_MAX_CQE (1u << 18)
#define VB_MAX_INLINE 1024u
/* The fabric has room for 512 of each in all processes. */
#define VB_MAX_QP 480
#define VB_MAX_WQ 480u
#define VB_MAX_IND_LOG 7u
#define VB_MAX_TSO (256u << 10)
#define VB_MIN_TSO_HEADER 14u
#define VB_MAX_TSO_HEADER 512u
#define VB_MIN_RATE_KBPS 1u
#define VB_MAX_RATE_KBPS 100000000u
#define VB_MAX_DM (64u << 20)
#define VB_COMP_VECTORS 4
#define VB_ROOM 256 /* spare bytes behind a public structure */
/* A value of vb_qp.state beside enum ibv_qp_state: the context belongs to the parent of a fork. */
#define VB_QPS_GONE 0x100u

/* Capabilities that can be taken from a device. */
#define VB_CAP_TSO 0x1u
#define VB_CAP_DM 0x2u
#define VB_CAP_PACING 0x4u
#define VB_CAP_PACING_BURST 0x8u
#define VB_CAP_CSUM 0x10u
#define VB_CAP_TIMESTAMPS 0x20u
#define VB_CAP_EXTENDED 0x40u
#define VB_CAP_CQ_EX 0x80u
#define VB_CAP_VLAN_STRIP 0x100u
#define VB_CAP_RSS 0x200u
#define VB_CAP_FLOW 0x400u
#define VB_CAP_INLINE 0x800u
#define VB_CAP_WALLCLOCK 0x1000u
#define VB_CAP_CLOCK 0x2000u
#define VB_CAP_CLOCK_INFO 0x4000u
#define VB_CAPS 0x7fffu /* all of them */

struct vb_lock {
	_Atomic uint32_t held;
	bool none; /* the application promised one thread */
};

void vb_lock_contended(struct vb_lock *l);

pv_inline void vb_lock(struct vb_lock *l)
{
	if (l->none || __libc_single_threaded)
		return;
	if (pv_unlikely(atomic_exchange_explicit(&l->held, 1, memory_order_acquire)))
		vb_lock_contended(l);
}

pv_inline bool vb_trylock(struct vb_lock *l)
{
	return l->none || __libc_single_threaded || !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

pv_inline void vb_unlock(struct vb_lock *l)
{
	/* A lock taken before the first thread was made was not taken: storing 0 is right in both cases. */
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

struct vb_device {
	struct ibv_device ibv;
	uint8_t room[1024]; /* libibverbs' own view of a device is longer; it must read zeroes */
	struct vb_device *next;
	char fabric[SN_NAME_MAX];
	uint32_t port;
	struct sn_port_cfg cfg;
	uint32_t off; /* VB_CAP_* that this device lacks */
	uint8_t mac[6]; /* configured or default; what the port has once it was opened; under the registry's lock */
	int index;
};

/* One registered range. `key` 0 marks a free slot; the low byte of a key changes each time its slot is reused. */
struct vb_mr_slot {
	uint64_t start, end; /* as SGEs name it */
	uintptr_t host; /* where `start` is in memory */
	const struct vb_pd *pd;
	uint32_t key, access;
} pv_aligned(64);

struct vb_ctx {
	struct vb_device *dev;
	struct sn_fabric *fabric;
	struct sn_port *port;
	uint8_t mac[6];
	uint32_t off; /* VB_CAP_* that it lacks */
	uint32_t dm_bytes;
	struct sn_fabric *dm_fabric; /* of a fork's child that allocates device memory */
	struct sn_port *dm_port;
	struct vb_mr_slot *mr_slots;
	uint32_t mr_next;
	bool gone; /* child of a fork: nothing of the fabric may be touched */
	pthread_mutex_t lock;
	struct pv_list node; /* in the registry */
	struct pv_list pds, mrs, dms, channels, cqs, qps, wqs, ind_tables, flows;

	pthread_mutex_t async_lock;
	struct pv_list async_events; /* struct vb_event */
	struct sn_waker *async_waker;
	uint32_t link_events; /* of the port, already told */
	bool fatal_told; /* that the device was taken out, likewise */

	struct verbs_context v; /* grows at its front; must end with struct ibv_context */
};

struct vb_pd {
	struct ibv_pd ibv;
	uint8_t room[VB_ROOM];
	struct pv_list node;
	struct vb_pd *base; /* itself, or the domain that a parent domain stands for */
	struct vb_td *td;
	_Atomic uint32_t uses;
};

struct vb_td {
	struct ibv_td ibv;
	uint8_t room[VB_ROOM];
	_Atomic uint32_t uses;
};

struct vb_mr {
	struct ibv_mr ibv;
	uint8_t room[VB_ROOM];
	struct pv_list node;
	uint64_t iova;
	uint8_t *host;
	struct vb_dm *dm; /* of device memory */
	unsigned int access;
};

struct vb_dm {
	struct ibv_dm ibv;
	uint8_t room[VB_ROOM];
	struct pv_list node;
	uint8_t *mem;
	uint64_t length, charged;
	struct sn_port *port; /* whose account it is on; NULL: that of the parent of a fork */
	_Atomic uint32_t uses;
};

struct vb_channel {
	struct ibv_comp_channel ibv;
	uint8_t room[VB_ROOM];
	struct pv_list node;
	pthread_mutex_t lock;
	struct sn_waker *waker;
	struct pv_list cqs; /* all that report here */
	struct pv_list ready; /* with events to deliver */
};

/* Completion of a send; completions of receives are made when they are polled. */
struct vb_cqe {
	uint64_t wr_id;
	uint64_t tstamp_ns;
	struct vb_qp *qp;
	uint32_t sq_ci; /* the send queue is free up to here once this is polled */
	uint32_t byte_len;
	uint32_t qp_num;
	uint16_t status, opcode;
};

enum vb_arm { VB_ARM_NONE, VB_ARM_SOLICITED, VB_ARM_ANY };

struct vb_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
	uint8_t room[VB_ROOM];

	struct vb_lock lock pv_aligned(64);
	bool send_first; /* whose turn it is when both kinds wait */
	bool ignore_overrun, overrun;
	bool stamps, stamping; /* can tell times; and does, until it is polled by somebody who cannot read them */
	bool tags; /* flow tags are asked for */
	uint32_t cqe_ci, cqe_mask;
	_Atomic uint32_t cqe_pi;
	struct vb_cqe *ring;
	struct vb_rq *rq; /* the only one, NULL when none or several, or with paced senders */
	struct vb_rq **rqs;
	uint32_t nrq, next_rq;
	uint32_t sources; /* receive queues and paced senders */
	struct pv_list paced; /* struct vb_pace */
	_Atomic uint32_t armed; /* enum vb_arm */

	struct ibv_wc cur; /* of the extended interface */
	uint64_t cur_tstamp_ns; /* true time */
	uint32_t cur_tag;

	struct pv_list node, chan_node, ready_node;
	struct vb_channel *chan;
	uint32_t events_ready, events_delivered; /* under chan->lock */
	uint32_t async_delivered; /* under ctx->async_lock */
	struct vb_pd *parent;
	_Atomic uint32_t uses;
};

struct vb_rwqe {
	uint64_t wr_id;
	uint32_t nsge, unused;
	struct ibv_sge sge[];
};

/* VB_RQ_STRIP: ready, and VLAN tags are taken off. */
enum vb_rq_mode { VB_RQ_OFF, VB_RQ_READY, VB_RQ_FLUSH, VB_RQ_STRIP };

/* A receive queue, of a QP or a WQ: a ring of buffers here, a queue of frames in the fabric. Posting fills `pi`, polling its CQ
 * moves `ci`. */
struct vb_rq {
	struct sn_rxq *rxq;
	uint8_t *wqes;
	const struct vb_mr_slot *mr_slots;
	const struct vb_pd *pd;
	_Atomic uint32_t mode; /* enum vb_rq_mode, under the CQ's lock */
	uint32_t mask, stride, max_sge;
	_Atomic uint32_t ci;
	uint32_t num; /* for completions: of the QP or WQ */
	struct vb_cq *cq;
	struct vb_qp *qp; /* one of the two */
	struct vb_wq *wq;
	uint64_t last_stamp_ns;
	bool hw_armed; /* the fabric writes to the channel's waker; under its lock */
	bool strip;
	uint32_t csum_ok; /* what a frame's flags are when its checksums are right; none, on a device that does not look */
	struct vb_lock lock pv_aligned(64); /* of posting */
	_Atomic uint32_t pi;
};

struct vb_wq {
	struct ibv_wq ibv;
	uint8_t room[VB_ROOM];
	struct pv_list node;
	struct vb_rq rq;
	uint32_t max_wr;
	_Atomic uint32_t uses;
	uint32_t async_delivered;
};

struct vb_ind_table {
	struct ibv_rwq_ind_table ibv;
	uint8_t room[VB_ROOM];
	struct pv_list node;
	_Atomic uint32_t uses;
	uint32_t size;
	struct vb_wq *wqs[];
};

/* A work request of the extended interface between wr_start and wr_complete. */
struct vb_swqe {
	uint64_t wr_id;
	uint32_t flags, nsge;
	bool set; /* has its data */
	uint16_t mss, hdr_len; /* of segmentation; the headers lie at vb_qp.batch_hdr */
	struct ibv_sge sge[]; /* or one whose `addr` is the copied inline data right behind it */
};

struct vb_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	uint8_t room[VB_ROOM];

	struct vb_lock lock pv_aligned(64);
	_Atomic uint32_t state; /* enum ibv_qp_state or VB_QPS_GONE */
	uint32_t max_send_sge, max_inline, sq_size;
	uint32_t sq_pi;
	_Atomic uint32_t sq_ci;
	uint32_t force; /* flags that every request has: IBV_SEND_SIGNALED, VB_SEND_SPECIAL */
	bool sig_all, csum;
	struct sn_port *port; /* an attachment of its own: sending needs no lock of the port */
	struct vb_cq *scq;
	const struct vb_mr_slot *mr_slots;
	const struct vb_pd *pd;

	/* Extended interface: requests collected since wr_start. */
	uint8_t *batch;
	uint32_t batch_stride, batch_hdr, batch_n;
	int batch_err;
	bool batch_tso;
	uint32_t max_tso_header;
	struct vb_pace *pace; /* NULL: sends as it is asked to */
	uint64_t sent_ns; /* of the request under way, with a send CQ that has stamps */

	struct vb_rq rq;
	struct vb_pd *owner_pd; /* as given, maybe a parent domain */
	struct vb_ind_table *ind_table;
	uint8_t rss_key[40];
	uint32_t rss_fields;
	struct ibv_qp_cap cap;
	bool has_rq, extended;
	uint8_t port_num;
	struct pv_list node;
	uint32_t async_delivered;
	_Atomic uint32_t uses; /* flows */
};

struct vb_flow {
	struct ibv_flow ibv;
	uint8_t room[VB_ROOM];
	struct pv_list node;
	struct vb_qp *qp;
	uint64_t handle;
};

struct vb_event {
	struct pv_list node;
	struct ibv_async_event ev;
};

/* ---- vb_lib.c: the real libibverbs -------------------------------------------------------------------------------------- */

#define VB_REAL(X)                                                                                                                 \
	X(ibv_get_device_list)                                                                                                     \
	X(ibv_free_device_list)                                                                                                    \
	X(ibv_get_device_name)                                                                                                     \
	X(ibv_get_device_index)                                                                                                    \
	X(ibv_get_device_guid)                                                                                                     \
	X(ibv_open_device)                                                                                                         \
	X(ibv_close_device)                                                                                                        \
	X(ibv_import_device)                                                                                                       \
	X(ibv_import_pd)                                                                                                           \
	X(ibv_unimport_pd)                                                                                                         \
	X(ibv_import_mr)                                                                                                           \
	X(ibv_unimport_mr)                                                                                                         \
	X(ibv_import_dm)                                                                                                           \
	X(ibv_unimport_dm)                                                                                                         \
	X(ibv_get_async_event)                                                                                                     \
	X(ibv_ack_async_event)                                                                                                     \
	X(ibv_query_device)                                                                                                        \
	X(ibv_query_port)                                                                                                          \
	X(ibv_query_gid)                                                                                                           \
	X(_ibv_query_gid_ex)                                                                                                       \
	X(_ibv_query_gid_table)                                                                                                    \
	X(ibv_query_gid_type)                                                                                                      \
	X(ibv_query_pkey)                                                                                                          \
	X(ibv_get_pkey_index)                                                                                                      \
	X(ibv_alloc_pd)                                                                                                            \
	X(ibv_dealloc_pd)                                                                                                          \
	X(ibv_reg_mr)                                                                                                              \
	X(ibv_reg_mr_iova)                                                                                                         \
	X(ibv_reg_mr_iova2)                                                                                                        \
	X(ibv_reg_dmabuf_mr)                                                                                                       \
	X(ibv_rereg_mr)                                                                                                            \
	X(ibv_dereg_mr)                                                                                                            \
	X(ibv_create_comp_channel)                                                                                                 \
	X(ibv_destroy_comp_channel)                                                                                                \
	X(ibv_create_cq)                                                                                                           \
	X(ibv_resize_cq)                                                                                                           \
	X(ibv_destroy_cq)                                                                                                          \
	X(ibv_get_cq_event)                                                                                                        \
	X(ibv_ack_cq_events)                                                                                                       \
	X(ibv_create_srq)                                                                                                          \
	X(ibv_modify_srq)                                                                                                          \
	X(ibv_query_srq)                                                                                                           \
	X(ibv_destroy_srq)                                                                                                         \
	X(ibv_create_qp)                                                                                                           \
	X(ibv_modify_qp)                                                                                                           \
	X(ibv_query_qp)                                                                                                            \
	X(ibv_query_qp_data_in_order)                                                                                              \
	X(ibv_destroy_qp)                                                                                                          \
	X(ibv_qp_to_qp_ex)                                                                                                         \
	X(ibv_create_ah)                                                                                                           \
	X(ibv_init_ah_from_wc)                                                                                                     \
	X(ibv_create_ah_from_wc)                                                                                                   \
	X(ibv_destroy_ah)                                                                                                          \
	X(ibv_attach_mcast)                                                                                                        \
	X(ibv_detach_mcast)                                                                                                        \
	X(ibv_resolve_eth_l2_from_gid)                                                                                             \
	X(ibv_set_ece)                                                                                                             \
	X(ibv_query_ece)                                                                                                           \
	X(ibv_fork_init)                                                                                                           \
	X(ibv_is_fork_initialized)                                                                                                 \
	X(ibv_wc_status_str)                                                                                                       \
	X(ibv_node_type_str)                                                                                                       \
	X(ibv_port_state_str)                                                                                                      \
	X(ibv_event_type_str)

struct vb_real {
#define VB_REAL_MEMBER(name) __typeof__(name) *name;
	VB_REAL(VB_REAL_MEMBER)
#undef VB_REAL_MEMBER
};
/* Members that the installed library does not have are NULL; all are when there is none. */
const struct vb_real *vb_real(void);

/* Forwards a call on a foreign object; a library without the function does not support it. */
#define VB_FORWARD_INT(name, ...) (vb_real()->name ? vb_real()->name(__VA_ARGS__) : EOPNOTSUPP)
#define VB_FORWARD_PTR(name, ...) (vb_real()->name ? vb_real()->name(__VA_ARGS__) : vb_fail(EOPNOTSUPP))

/* Sets errno, as the verbs interface wants it from calls that return a pointer. */
static inline void *vb_fail(int err)
{
	errno = err;
	return NULL;
}

/* ---- vb_device.c -------------------------------------------------------------------------------------------------------- */

/* Marks our contexts in a slot of the operations that nothing uses. */
void *vb_mark(void);

pv_inline bool vb_ours(const struct ibv_context *c)
{
	return c->ops._compat_async_event == vb_mark;
}

pv_inline struct vb_ctx *vb_ctx(const struct ibv_context *c)
{
	return pv_container_of(c, struct vb_ctx, v.context);
}

/* `spec` as PYVMA_SOFTNIC has it. 0 or -EINVAL, -ENOMEM. */
int vb_device_add(const char *spec, struct vb_device **out);
/* "FABRIC/PORT[,mac=..][,mtu=..][,dm=..][,off=..]" of `len` bytes into a zeroed device: 0 or -EINVAL. */
int vb_device_parse(const char *s, size_t len, struct vb_device *d);
/* By name, NULL when there is none. Reads PYVMA_SOFTNIC. */
struct vb_device *vb_device_find(const char *name);
void vb_open_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *vb_open_error_text(void);
void vb_registry_lock(void);
void vb_registry_unlock(void);

/* vb_query.c */
int vb_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr,
		       size_t size);
int vb_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t size);
int vb_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
__be64 vb_guid(const uint8_t mac[6]);

/* ---- vb_caps.c ----------------------------------------------------------------------------------------------------------- */

pv_inline bool vb_has(const struct ibv_context *context, uint32_t cap)
{
	return !(vb_ctx(context)->off & cap);
}

/* Names of capabilities, separated by `sep`, added to `off`. 0 or -EINVAL. */
int vb_caps_parse(const char *s, size_t len, char sep, uint32_t *off);
/* PYVMA_SOFTNIC_OFF: 0, or -EINVAL with the reason in vb_open_error_text. */
int vb_caps_from_env(uint32_t *off);

/* ---- vb_pd_mr.c --------------------------------------------------------------------------------------------------------- */

struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int vb_dealloc_td(struct ibv_td *td);
struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);

pv_inline struct vb_pd *vb_pd(struct ibv_pd *pd)
{
	return (struct vb_pd *)pd;
}

/* Of device memory, which the caller has checked. */
struct ibv_mr *vb_mr_of_dm(struct ibv_pd *pd, struct vb_dm *dm, uint64_t offset, size_t length, unsigned int access);
bool vb_mr_access_ok(unsigned int access);

/* vb_dm.c */
struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int vb_free_dm(struct ibv_dm *dm);
void vb_dm_forked(struct vb_ctx *ctx); /* in the child */
void vb_dm_fini(struct vb_ctx *ctx);
struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access);

/* Where an SGE is in memory, or NULL: unknown key, other domain, out of range or access that was not granted. */
pv_inline uint8_t *vb_sge_host(const struct vb_mr_slot *slots, const struct vb_pd *pd, const struct ibv_sge *sge, uint32_t access)
{
	const struct vb_mr_slot *s = &slots[(sge->lkey >> 8) & VB_MAX_MR];

	if (pv_unlikely(s->key != sge->lkey || s->pd != pd || (s->access & access) != access))
		return NULL;
	if (pv_unlikely(sge->addr < s->start || sge->addr > s->end || sge->length > s->end - sge->addr))
		return NULL;
	return (uint8_t *)(s->host + (sge->addr - s->start));
}

/* ---- vb_cq.c, vb_cq_ex.c ------------------------------------------------------------------------------------------------- */

pv_inline struct vb_cq *vb_cq(struct ibv_cq *cq)
{
	return (struct vb_cq *)cq;
}

struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
void vb_cq_ex_init(struct vb_cq *cq, uint64_t wc_flags);
int vb_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
/* A send completion; fires the channel. Stamped now where it has no stamp. */
void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe);
/* The same without firing; the lock is held. */
void vb_cq_put(struct vb_cq *cq, const struct vb_cqe *cqe);
bool vb_cq_full(const struct vb_cq *cq);
/* Which queues the CQ looks at has changed; the lock is held. */
void vb_cq_sources(struct vb_cq *cq);
/* Takes completions of a QP out of the ring (reset, destroy); the lock is held. */
void vb_cq_forget_qp(struct vb_cq *cq, const struct vb_qp *qp);
/* 0 or ENOMEM; the lock is held. */
int vb_cq_add_rq(struct vb_cq *cq, struct vb_rq *rq);
void vb_cq_del_rq(struct vb_cq *cq, struct vb_rq *rq);
/* Whether frames and completions are stamped from now on. No lock is held. */
void vb_cq_stamp(struct vb_cq *cq, bool on);
void vb_lock_two(struct vb_cq *a, struct vb_cq *b);
void vb_unlock_two(struct vb_cq *a, struct vb_cq *b);
/* The next completion of the CQ, whose lock is held. */
bool vb_cq_next(struct vb_cq *cq, struct ibv_wc *wc, uint64_t *tstamp_ns);

/* ---- vb_recv.c ----------------------------------------------------------------------------------------------------------- */

int vb_rq_init(struct vb_rq *rq, struct vb_ctx *ctx, struct sn_port *port, uint32_t max_wr, uint32_t max_sge);
void vb_rq_fini(struct vb_rq *rq, const struct vb_ctx *ctx);
/* With the CQ's lock held: drops buffers; drops frames that came too early, and receives from then on. */
void vb_rq_clear(struct vb_rq *rq);
void vb_rq_start(struct vb_rq *rq);
int vb_rq_post(struct vb_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int vb_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
#define VB_RX_CSUM (SN_RX_IP4 | SN_RX_L3_OK | SN_RX_L4_OK)
/* Its mode while it receives. */
pv_inline uint32_t vb_rq_ready(const struct vb_rq *rq)
{
	return rq->strip ? VB_RQ_STRIP : VB_RQ_READY;
}

/* One completion, by a frame or by flushing; a tag that was taken off is the completion's `pkey_index`. The CQ's lock is held. */
bool vb_rq_take(struct vb_rq *rq, struct ibv_wc *wc, uint64_t *tstamp_ns);

/* ---- vb_qp.c, vb_qp_ex.c, vb_send.c ---------------------------------------------------------------------------------------- */

pv_inline struct vb_qp *vb_qp(struct ibv_qp *qp)
{
	return (struct vb_qp *)qp;
}

uint32_t vb_next_qpn(void);
struct ibv_qp *vb_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int vb_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
#define VB_SEND_FLAGS (unsigned int)(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE | IBV_SEND_IP_CSUM)
/* Of vb_qp.force: something about the QP needs a look at each request. */
#define VB_SEND_SPECIAL 0x80000000u
/* Of vb_swqe.flags: segmentation. */
#define VB_SEND_TSO 0x40000000u
/* 0 or an errno of an immediate error; the QP's lock is held. */
int vb_send_one(struct vb_qp *qp, uint64_t wr_id, const struct ibv_sge *list, uint32_t nsge, unsigned int flags);
/* What a request's list names, as pieces for the fabric. */
struct vb_gather {
	const struct sn_seg *seg;
	struct sn_seg room[VB_MAX_SGE];
	uint32_t nseg, len;
};
/* 0, EINVAL, or -(the status that the request completes with). */
int vb_send_gather(const struct vb_qp *qp, const struct ibv_sge *list, uint32_t nsge, unsigned int flags, struct vb_gather *g);
/* An error completes whether it was asked to or not, and everything after it is flushed: 0. */
int vb_send_fail(struct vb_qp *qp, uint64_t wr_id, enum ibv_wc_status status);
int vb_send_other_state(struct vb_qp *qp, uint64_t wr_id, uint32_t state);
void vb_send_begin(struct vb_qp *qp);
/* One frame, paced or not, of the request that is under way; `tell`: the last, of one that asked for a completion. 0 or -errno. */
int vb_send_frame(struct vb_qp *qp, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags, bool tell);
/* The request has been handed over. */
void vb_send_end(struct vb_qp *qp, uint64_t wr_id, uint32_t byte_len, unsigned int flags);
bool vb_send_room(struct vb_qp *qp);
int vb_qp_ex_init(struct vb_qp *qp, uint64_t send_ops);

/* vb_tso.c */
struct vb_tso {
	const uint8_t *hdr;
	uint16_t hdr_len, mss;
};
/* As vb_send_one. */
int vb_send_tso(struct vb_qp *qp, uint64_t wr_id, const struct ibv_sge *list, uint32_t nsge, unsigned int flags,
		const struct vb_tso *tso);

/* vb_pace.c: a queue pair with a rate. The QP's lock is held, and the send CQ's but in vb_pace_send and vb_pace_push. */
struct vb_pace {
	struct pv_list node; /* in the send CQ's list */
	struct vb_qp *qp;
	struct sn_pace *q;
	uint64_t taken; /* frames so far */
	_Atomic uint32_t pi, ci;
	uint32_t mask;
	struct vb_paced_wr *ring;
};
/* 0 or an errno; a rate of 0 ends the pacing. */
int vb_pace_set(struct vb_qp *qp, const struct sn_rate *rate);
/* Ends it: what is held leaves, or is flushed. */
void vb_pace_end(struct vb_qp *qp, bool flush);
int vb_pace_frame(struct vb_qp *qp, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags, bool tell);
/* A completion behind all that was sent before. */
void vb_pace_push(struct vb_qp *qp, const struct vb_cqe *cqe, bool quiet);
/* Completions of what has left; the CQ's lock is held. */
void vb_pace_harvest(struct vb_cq *cq);
bool vb_pace_room(struct vb_qp *qp);
int vb_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
/* 0 or EINVAL, EOPNOTSUPP. */
int vb_rate_check(const struct ibv_context *context, const struct ibv_qp_rate_limit_attr *attr);
void vb_qp_settle(struct vb_qp *qp); /* vb_qp.force anew */
/* After an error: flushes from now on, tells the application. The receive or send CQ's lock is held. */
void vb_qp_fail(struct vb_qp *qp);

/* ---- vb_wq.c, vb_flow.c ---------------------------------------------------------------------------------------------------- */

struct ibv_wq *vb_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int vb_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int vb_destroy_wq(struct ibv_wq *wq);
void vb_wq_fail(struct vb_wq *wq);
struct ibv_rwq_ind_table *vb_create_rwq_ind_table(struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *attr);
int vb_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);
struct ibv_flow *vb_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int vb_destroy_flow(struct ibv_flow *flow);
/* The match of a rule, without its queues: 0 or an errno. */
int vb_flow_parse(struct sn_rule *r, const struct ibv_flow_attr *a);

/* ---- vb_event.c ------------------------------------------------------------------------------------------------------------ */

/* Descriptor for an application to wait on, or -errno. */
int vb_waker_fd(struct sn_waker *w);
int vb_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* Delivers an event if the CQ is armed for it; any thread, with or without the CQ's lock. */
void vb_cq_fire(struct vb_cq *cq, bool solicited);
/* After something that may have made a receive complete; no locks held. */
void vb_cq_check_armed(struct vb_cq *cq);
/* Lets the next frame fire the CQ's channel; true: fire it now, for one that is there or may be. The CQ's lock is held. */
bool vb_rq_arm(struct vb_rq *rq);
void vb_cq_detach_channel(struct vb_cq *cq);
void vb_async_push(struct vb_ctx *ctx, enum ibv_event_type type, void *object);
/* Forgets events of an object that were not delivered and waits until those that were are acknowledged. */
void vb_async_flush_cq(struct vb_ctx *ctx, struct vb_cq *cq);
void vb_async_flush_qp(struct vb_ctx *ctx, struct vb_qp *qp);
void vb_async_flush_wq(struct vb_ctx *ctx, struct vb_wq *wq);
void vb_async_fini(struct vb_ctx *ctx);

/* ---- vb_clock.c ---------------------------------------------------------------------------------------------------------- */

/* softnic_clock's specification: 0 or -EINVAL. */
int vb_clock_parse(const char *spec, struct sn_clock_cfg *cfg);
/* For softnic_stamps: a completion of the context's device was read with this time. */
void vb_clock_log(const struct ibv_context *context, uint64_t at);

/* ---- softnic.c ------------------------------------------------------------------------------------------------------------ */

/* A look at a device's port, which stays as long as anybody is on it. 0 or -errno. */
struct vb_visit {
	struct sn_fabric *fabric;
	struct sn_port *port;
};
int vb_visit_begin(struct vb_visit *v, const char *device);
void vb_visit_end(struct vb_visit *v);
/* softnic_impair's specification: 0 or -EINVAL. */
int vb_impair_parse(const char *spec, struct sn_impairments *imp);

#endif
