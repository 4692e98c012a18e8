/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory. There is none: it is memory of the process, of which all processes on a port together may have as much as the port is
 * said to have. Errors are those of mlx5 and of the kernel above it. As the device's own, it is shared by a process and those that it
 * forks, and the child of a fork may allocate more by a context that it has inherited, though nothing else works there.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "softnic/vb.h"

#define DM_UNIT 64u /* what the device gives out at least, and aligns to */
#define DM_MAX_LOG_ALIGN 12u
#define DM_WORD 4u /* the host reads and writes such words */

static struct vb_dm *vb_dm(struct ibv_dm *dm)
{
	return (struct vb_dm *)dm;
}

static int access_check(struct vb_dm *dm, uint64_t offset, size_t length)
{
	if (offset > dm->length || length > dm->length - offset)
		return EFAULT;
	return (offset | length) % DM_WORD ? EINVAL : 0;
}

static int memcpy_to_dm(struct ibv_dm *ibv, uint64_t offset, const void *host, size_t length)
{
	struct vb_dm *dm = vb_dm(ibv);
	int err = access_check(dm, offset, length);

	if (!err && length)
		memcpy(dm->mem + offset, host, length);
	return err;
}

static int memcpy_from_dm(void *host, struct ibv_dm *ibv, uint64_t offset, size_t length)
{
	struct vb_dm *dm = vb_dm(ibv);
	int err = access_check(dm, offset, length);

	if (!err && length)
		memcpy(host, dm->mem + offset, length);
	return err;
}

static size_t pages(uint64_t bytes)
{
	return (size_t)((bytes + 4095) & ~UINT64_C(4095));
}

/* The port's account. In the child of a fork the inherited attachment is the parent's: it gets one of its own. With ctx->lock. */
static int account(struct vb_ctx *ctx, struct sn_port **out)
{
	int rc = 0;

	*out = ctx->gone ? ctx->dm_port : ctx->port;
	if (*out)
		return 0;
	rc = sn_fabric_open(ctx->dev->fabric, &ctx->dm_fabric);
	if (rc)
		return rc;
	rc = sn_port_attach(ctx->dm_fabric, ctx->dev->port, &ctx->dev->cfg, &ctx->dm_port);
	if (rc) {
		sn_fabric_close(ctx->dm_fabric);
		ctx->dm_fabric = NULL;
	}
	*out = ctx->dm_port;
	return rc;
}

void vb_dm_forked(struct vb_ctx *ctx)
{
	ctx->dm_fabric = NULL;
	ctx->dm_port = NULL;
	pv_list_for_each(it, &ctx->dms)
		pv_list_entry(it, struct vb_dm, node)->port = NULL;
}

void vb_dm_fini(struct vb_ctx *ctx)
{
	if (!ctx->dm_fabric)
		return;
	sn_port_detach(ctx->dm_port);
	sn_fabric_close(ctx->dm_fabric);
}

static int dm_init(struct vb_ctx *ctx, struct vb_dm *dm)
{
	int rc;

	dm->mem = mmap(NULL, pages(dm->charged), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (dm->mem == MAP_FAILED)
		return -ENOMEM;
	pthread_mutex_lock(&ctx->lock);
	rc = account(ctx, &dm->port);
	if (!rc)
		rc = sn_port_dm_take(dm->port, dm->charged);
	if (!rc)
		pv_list_add(&ctx->dms, &dm->node);
	pthread_mutex_unlock(&ctx->lock);
	if (rc)
		munmap(dm->mem, pages(dm->charged));
	return rc;
}

struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *a)
{
	static _Atomic uint32_t handles;
	struct vb_ctx *ctx = vb_ctx(context);
	struct vb_dm *dm;
	int rc;

	if (a->comp_mask || !a->length || a->log_align_req > DM_MAX_LOG_ALIGN || a->length > ctx->dm_bytes)
		return vb_fail(EINVAL);
	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return vb_fail(ENOMEM);
	dm->length = a->length;
	dm->charged = (a->length + DM_UNIT - 1) & ~(uint64_t)(DM_UNIT - 1);
	rc = dm_init(ctx, dm);
	if (rc) {
		free(dm);
		return vb_fail(-rc);
	}
	dm->ibv.context = context;
	dm->ibv.memcpy_to_dm = memcpy_to_dm;
	dm->ibv.memcpy_from_dm = memcpy_from_dm;
	dm->ibv.comp_mask = IBV_DM_MASK_HANDLE;
	dm->ibv.handle = atomic_fetch_add(&handles, 1);
	return &dm->ibv;
}

int vb_free_dm(struct ibv_dm *ibv)
{
	struct vb_dm *dm = vb_dm(ibv);
	struct vb_ctx *ctx = vb_ctx(ibv->context);

	if (atomic_load(&dm->uses))
		return EBUSY;
	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&dm->node);
	pthread_mutex_unlock(&ctx->lock);
	if (dm->port)
		sn_port_dm_give(dm->port, dm->charged);
	munmap(dm->mem, pages(dm->charged));
	free(dm);
	return 0;
}

struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibv, uint64_t offset, size_t length, unsigned int access)
{
	const unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
	struct vb_dm *dm = vb_dm(ibv);

	if (vb_ctx(pd->context)->gone)
		return vb_fail(ENODEV);
	/* Optional bits may be ignored, that is their meaning. */
	if (access & ~known & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE || !(access & IBV_ACCESS_ZERO_BASED) ||
	    !vb_mr_access_ok(access) || ibv->context != pd->context)
		return vb_fail(EINVAL);
	if (offset > dm->length || length > dm->length - offset)
		return vb_fail(EINVAL);
	return vb_mr_of_dm(pd, dm, offset, length, access);
}
