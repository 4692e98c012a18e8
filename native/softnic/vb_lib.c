/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The real libibverbs, for contexts that are not ours, and the calls that the software device does not support at all: shared receive
 * queues, address handles, multicast groups (a raw packet QP takes flow rules), ECE, import of objects.
 *
 * The library is opened by name and asked through its own handle, so a lookup never finds the overlay itself.
 */
#include <dlfcn.h>

#include "softnic/vb.h"

static struct vb_real real;
static pthread_once_t real_once = PTHREAD_ONCE_INIT;

static void real_load(void)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (!lib)
		return;
#define VB_REAL_LOAD(name) real.name = (__typeof__(real.name))dlsym(lib, #name);
	VB_REAL(VB_REAL_LOAD)
#undef VB_REAL_LOAD
}

const struct vb_real *vb_real(void)
{
	pthread_once(&real_once, real_load);
	return &real;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	return vb_ours(context) ? vb_fail(EOPNOTSUPP) : VB_FORWARD_PTR(ibv_import_pd, context, handle);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (!vb_ours(pd->context) && vb_real()->ibv_unimport_pd)
		vb_real()->ibv_unimport_pd(pd);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	return vb_ours(pd->context) ? vb_fail(EOPNOTSUPP) : VB_FORWARD_PTR(ibv_import_mr, pd, handle);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (!vb_ours(mr->context) && vb_real()->ibv_unimport_mr)
		vb_real()->ibv_unimport_mr(mr);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	return vb_ours(context) ? vb_fail(EOPNOTSUPP) : VB_FORWARD_PTR(ibv_import_dm, context, handle);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (!vb_ours(dm->context) && vb_real()->ibv_unimport_dm)
		vb_real()->ibv_unimport_dm(dm);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	if (vb_ours(pd->context))
		return vb_fail(EOPNOTSUPP);
	return VB_FORWARD_PTR(ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return vb_ours(pd->context) ? vb_fail(EOPNOTSUPP) : VB_FORWARD_PTR(ibv_create_srq, pd, attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return vb_ours(srq->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_modify_srq, srq, attr, mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return vb_ours(srq->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_query_srq, srq, attr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	return vb_ours(srq->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_destroy_srq, srq);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return vb_ours(pd->context) ? vb_fail(EOPNOTSUPP) : VB_FORWARD_PTR(ibv_create_ah, pd, attr);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *attr)
{
	return vb_ours(context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_init_ah_from_wc, context, port_num, wc, grh, attr);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port_num)
{
	return vb_ours(pd->context) ? vb_fail(EOPNOTSUPP) : VB_FORWARD_PTR(ibv_create_ah_from_wc, pd, wc, grh, port_num);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	return vb_ours(ah->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_destroy_ah, ah);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return vb_ours(qp->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_attach_mcast, qp, gid, lid);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return vb_ours(qp->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_detach_mcast, qp, gid, lid);
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	return vb_ours(context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_resolve_eth_l2_from_gid, context, attr, mac, vid);
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return vb_ours(qp->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_set_ece, qp, ece);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return vb_ours(qp->context) ? EOPNOTSUPP : VB_FORWARD_INT(ibv_query_ece, qp, ece);
}

/* Memory is never pinned here, so a fork needs no preparation; real devices may. */
int ibv_fork_init(void)
{
	return vb_real()->ibv_fork_init ? vb_real()->ibv_fork_init() : 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return vb_real()->ibv_is_fork_initialized ? vb_real()->ibv_is_fork_initialized() : IBV_FORK_UNNEEDED;
}

/* Names, for programs that link or load this library alone. */

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
	};

	if (vb_real()->ibv_wc_status_str)
		return vb_real()->ibv_wc_status_str(status);
	return (unsigned int)status < pv_array_size(names) && names[status] ? names[status] : "unknown";
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
	if (vb_real()->ibv_node_type_str)
		return vb_real()->ibv_node_type_str(type);
	return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	if (vb_real()->ibv_port_state_str)
		return vb_real()->ibv_port_state_str(state);
	return state == IBV_PORT_ACTIVE ? "active" : state == IBV_PORT_DOWN ? "down" : "unknown";
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const names[] = {
		[IBV_EVENT_CQ_ERR] = "CQ error",         [IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
		[IBV_EVENT_PORT_ACTIVE] = "port active", [IBV_EVENT_PORT_ERR] = "port error",
		[IBV_EVENT_WQ_FATAL] = "WQ fatal",
	};

	if (vb_real()->ibv_event_type_str)
		return vb_real()->ibv_event_type_str(event);
	return (unsigned int)event < pv_array_size(names) && names[event] ? names[event] : "unknown";
}
