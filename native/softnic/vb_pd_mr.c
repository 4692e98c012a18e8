/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Protection domains, thread and parent domains, memory regions.
 *
 * A key names a slot of the context's table and a generation: the data path finds a region by one index and one comparison, and a key
 * of a region that was deregistered stays wrong even when its slot serves another.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softnic/vb.h"

#define PAGE UINT64_C(4096)

/* ---- domains ------------------------------------------------------------------------------------------------------------------ */

static struct vb_pd *pd_new(struct vb_ctx *ctx)
{
	static _Atomic uint32_t handles;
	struct vb_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->ibv.context = &ctx->v.context;
	pd->ibv.handle = atomic_fetch_add(&handles, 1);
	pd->base = pd;
	pthread_mutex_lock(&ctx->lock);
	pv_list_add(&ctx->pds, &pd->node);
	pthread_mutex_unlock(&ctx->lock);
	return pd;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct vb_pd *pd;

	if (!vb_ours(context))
		return VB_FORWARD_PTR(ibv_alloc_pd, context);
	pd = pd_new(vb_ctx(context));
	return pd ? &pd->ibv : vb_fail(ENOMEM);
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct vb_pd *pd = vb_pd(ibv);
	struct vb_ctx *ctx;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_dealloc_pd, ibv);
	if (atomic_load(&pd->uses))
		return EBUSY;
	ctx = vb_ctx(ibv->context);
	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&pd->node);
	pthread_mutex_unlock(&ctx->lock);
	if (pd->base != pd)
		atomic_fetch_sub(&pd->base->uses, 1);
	if (pd->td)
		atomic_fetch_sub(&pd->td->uses, 1);
	free(pd);
	return 0;
}

/* A promise that its objects are used by one thread at a time. */
struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct vb_td *td;

	if (attr->comp_mask)
		return vb_fail(EINVAL);
	td = calloc(1, sizeof(*td));
	if (!td)
		return vb_fail(ENOMEM);
	td->ibv.context = context;
	return &td->ibv;
}

int vb_dealloc_td(struct ibv_td *ibv)
{
	struct vb_td *td = (struct vb_td *)ibv;

	if (atomic_load(&td->uses))
		return EBUSY;
	free(td);
	return 0;
}

struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	struct vb_pd *pd;

	if (!attr->pd ||
	    attr->comp_mask & ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))
		return vb_fail(EINVAL);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS)
		return vb_fail(EOPNOTSUPP);
	if (vb_pd(attr->pd)->base != vb_pd(attr->pd))
		return vb_fail(EINVAL);
	pd = pd_new(vb_ctx(context));
	if (!pd)
		return vb_fail(ENOMEM);
	pd->base = vb_pd(attr->pd);
	atomic_fetch_add(&pd->base->uses, 1);
	pd->td = (struct vb_td *)attr->td;
	if (pd->td)
		atomic_fetch_add(&pd->td->uses, 1);
	return &pd->ibv;
}

/* ---- memory regions ------------------------------------------------------------------------------------------------------------ */

/* As the kernel would when it pins: every page must be mapped. */
static bool mapped(uintptr_t addr, size_t length)
{
	uintptr_t at = addr & ~(PAGE - 1), end = (addr + length + PAGE - 1) & ~(PAGE - 1);
	unsigned char seen[1024];

	while (at < end) {
		size_t part = PV_MIN(end - at, sizeof(seen) * PAGE);

		if (syscall(SYS_mincore, at, part, seen))
			return false;
		at += part;
	}
	return true;
}

bool vb_mr_access_ok(unsigned int access)
{
	return !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) || access & IBV_ACCESS_LOCAL_WRITE;
}

static int mr_check(const void *addr, size_t length, unsigned int access)
{
	const unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;

	if (access & IBV_ACCESS_ON_DEMAND)
		return EOPNOTSUPP;
	/* Optional bits may be ignored, that is their meaning. */
	if (access & ~known & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE)
		return EINVAL;
	if (!vb_mr_access_ok(access))
		return EINVAL;
	if (!length || (uintptr_t)addr + length < (uintptr_t)addr)
		return EINVAL;
	return mapped((uintptr_t)addr, length) ? 0 : EFAULT;
}

static void slot_set(struct vb_mr_slot *s, const struct vb_mr *mr)
{
	s->start = mr->iova;
	s->end = mr->iova + mr->ibv.length;
	s->host = (uintptr_t)mr->host;
	s->pd = vb_pd(mr->ibv.pd)->base;
	s->access = mr->access;
}

/* A free slot after the last one given out: a key comes back as late as possible. ctx->lock is held. */
static struct vb_mr_slot *slot_get(struct vb_ctx *ctx, uint32_t *index)
{
	for (uint32_t i = 0; i < VB_MAX_MR; i++) {
		ctx->mr_next = ctx->mr_next % VB_MAX_MR + 1; /* 1 .. VB_MAX_MR: key 0 never means anything */
		if (!ctx->mr_slots[ctx->mr_next].pd) {
			*index = ctx->mr_next;
			return &ctx->mr_slots[ctx->mr_next];
		}
	}
	return NULL;
}

static struct ibv_mr *mr_make(struct ibv_pd *pd, uint8_t *host, size_t length, uint64_t iova, unsigned int access)
{
	struct vb_ctx *ctx = vb_ctx(pd->context);
	struct vb_mr_slot *slot;
	struct vb_mr *mr;
	uint32_t index;

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return vb_fail(ENOMEM);
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = host;
	mr->ibv.length = length;
	mr->host = host;
	mr->iova = iova;
	mr->access = access;
	pthread_mutex_lock(&ctx->lock);
	slot = slot_get(ctx, &index);
	if (slot) {
		slot_set(slot, mr);
		slot->key = index << 8 | ((slot->key + 1) & 0xff);
		mr->ibv.handle = index;
		mr->ibv.lkey = mr->ibv.rkey = slot->key;
		pv_list_add(&ctx->mrs, &mr->node);
	}
	pthread_mutex_unlock(&ctx->lock);
	if (!slot) {
		free(mr);
		return vb_fail(ENOMEM);
	}
	atomic_fetch_add(&vb_pd(pd)->uses, 1);
	return &mr->ibv;
}

static struct ibv_mr *mr_reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	int err = mr_check(addr, length, access);

	if (err)
		return vb_fail(err);
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	if (iova + length < iova)
		return vb_fail(EINVAL);
	return mr_make(pd, addr, length, iova, access);
}

/* The host has no address for it. */
struct ibv_mr *vb_mr_of_dm(struct ibv_pd *pd, struct vb_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	struct ibv_mr *mr = mr_make(pd, dm->mem + offset, length, 0, access);

	if (!mr)
		return NULL;
	mr->addr = NULL;
	((struct vb_mr *)mr)->dm = dm;
	atomic_fetch_add(&dm->uses, 1);
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!vb_ours(pd->context))
		return VB_FORWARD_PTR(ibv_reg_mr, pd, addr, length, access);
	return mr_reg(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	if (!vb_ours(pd->context))
		return VB_FORWARD_PTR(ibv_reg_mr_iova, pd, addr, length, iova, access);
	return mr_reg(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (!vb_ours(pd->context))
		return VB_FORWARD_PTR(ibv_reg_mr_iova2, pd, addr, length, iova, access);
	return mr_reg(pd, addr, length, iova, access);
}

int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct vb_mr *mr = (struct vb_mr *)ibv;
	bool move = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	unsigned int want;
	struct vb_ctx *ctx;
	int err;

	if (!vb_ours(ibv->context)) {
		errno = EOPNOTSUPP;
		return vb_real()->ibv_rereg_mr ? vb_real()->ibv_rereg_mr(ibv, flags, pd, addr, length, access)
					       : IBV_REREG_MR_ERR_INPUT;
	}
	want = flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : mr->access;
	err = mr->dm || !flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (flags & IBV_REREG_MR_CHANGE_PD && !pd) ? EINVAL : 0;
	if (!err)
		err = mr_check(move ? addr : ibv->addr, move ? length : ibv->length, want);
	if (err) {
		errno = err;
		return IBV_REREG_MR_ERR_INPUT;
	}
	ctx = vb_ctx(ibv->context);
	pthread_mutex_lock(&ctx->lock);
	if (move) {
		ibv->addr = mr->host = addr;
		ibv->length = length;
		mr->iova = want & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	mr->access = want;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_sub(&vb_pd(ibv->pd)->uses, 1);
		ibv->pd = pd;
		atomic_fetch_add(&vb_pd(pd)->uses, 1);
	}
	slot_set(&ctx->mr_slots[ibv->handle], mr);
	pthread_mutex_unlock(&ctx->lock);
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct vb_mr *mr = (struct vb_mr *)ibv;
	struct vb_mr_slot *slot;
	struct vb_ctx *ctx;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_dereg_mr, ibv);
	ctx = vb_ctx(ibv->context);
	pthread_mutex_lock(&ctx->lock);
	slot = &ctx->mr_slots[ibv->handle];
	slot->pd = NULL; /* the key stays for its generation; no queue has a NULL domain, so it finds nothing */
	slot->start = slot->end = 0;
	pv_list_del(&mr->node);
	pthread_mutex_unlock(&ctx->lock);
	if (mr->dm)
		atomic_fetch_sub(&mr->dm->uses, 1);
	atomic_fetch_sub(&vb_pd(ibv->pd)->uses, 1);
	free(mr);
	return 0;
}
