/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices and contexts: the list that programs see (ours before the real ones), what PYVMA_SOFTNIC names, open and close, fork.
 *
 * A device is never freed: programs keep pointers to it. The fabric behind it is opened with each context.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softnic/vb.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_device *devices;
static int device_count;
static struct pv_list contexts = { &contexts, &contexts };
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static __thread char open_error[320];
/* The real ibv_import_device walks the device list and looks into each entry: it must see only its own. */
static __thread bool real_only;

void *vb_mark(void)
{
	return NULL;
}

void vb_registry_lock(void)
{
	pthread_mutex_lock(&registry_lock);
}

void vb_registry_unlock(void)
{
	pthread_mutex_unlock(&registry_lock);
}

void vb_lock_contended(struct vb_lock *l)
{
	do {
		for (int i = 0; atomic_load_explicit(&l->held, memory_order_relaxed); i++) {
			/* The holder may have lost its processor. */
			if (i < 1000)
				pv_cpu_relax();
			else
				syscall(SYS_sched_yield);
		}
	} while (atomic_exchange_explicit(&l->held, 1, memory_order_acquire));
}

void vb_open_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(open_error, sizeof(open_error), fmt, ap);
	va_end(ap);
}

const char *vb_open_error_text(void)
{
	return open_error;
}

/* ---- specifications -------------------------------------------------------------------------------------------------------- */

static int parse_mac(const char *s, size_t len, uint8_t mac[6])
{
	char buf[18], extra;
	unsigned int b[6];

	if (len != 17)
		return -EINVAL;
	memcpy(buf, s, len);
	buf[len] = 0;
	if (sscanf(buf, "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &extra) != 6)
		return -EINVAL;
	for (int i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	/* A port's own address is an individual one and not zero. */
	if (mac[0] & 1 || !(mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5]))
		return -EINVAL;
	return 0;
}

static int parse_number(const char *s, size_t len, uint32_t max, uint32_t *out)
{
	uint32_t v = 0;

	if (!len || len > 9)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		v = v * 10 + (uint32_t)(s[i] - '0');
	}
	if (v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

static int parse_option(const char *s, size_t len, struct vb_device *d)
{
	struct sn_port_cfg *cfg = &d->cfg;

	if (len > 4 && !memcmp(s, "mac=", 4))
		return parse_mac(s + 4, len - 4, cfg->mac);
	if (len > 4 && !memcmp(s, "mtu=", 4)) {
		if (parse_number(s + 4, len - 4, SN_MTU_MAX, &cfg->mtu) || cfg->mtu < 68)
			return -EINVAL;
		return 0;
	}
	if (len > 3 && !memcmp(s, "dm=", 3)) {
		if (parse_number(s + 3, len - 3, VB_MAX_DM, &cfg->dm_bytes) || cfg->dm_bytes < 64)
			return -EINVAL;
		return 0;
	}
	if (len > 4 && !memcmp(s, "off=", 4))
		return vb_caps_parse(s + 4, len - 4, '+', &d->off);
	return -EINVAL;
}

int vb_device_parse(const char *s, size_t len, struct vb_device *d)
{
	const char *end = s + len, *slash = memchr(s, '/', len), *p, *next;

	if (!slash || slash == s || slash - s >= SN_NAME_MAX)
		return -EINVAL;
	for (const char *c = s; c < slash; c++) {
		if (!((*c >= '0' && *c <= '9') || ((*c | 0x20) >= 'a' && (*c | 0x20) <= 'z') || *c == '-' || *c == '_' ||
		      *c == '.'))
			return -EINVAL;
	}
	if (*s == '.')
		return -EINVAL;
	memcpy(d->fabric, s, (size_t)(slash - s));
	p = memchr(slash, ',', (size_t)(end - slash));
	if (parse_number(slash + 1, (size_t)((p ? p : end) - slash - 1), SN_PORTS - 1, &d->port))
		return -EINVAL;
	for (; p && p < end; p = next) {
		next = memchr(p + 1, ',', (size_t)(end - p - 1));
		if (parse_option(p + 1, (size_t)((next ? next : end) - p - 1), d))
			return -EINVAL;
	}
	return 0;
}

static void device_init(struct vb_device *d)
{
	static const uint8_t none[6];

	d->ibv.node_type = IBV_NODE_CA;
	d->ibv.transport_type = IBV_TRANSPORT_IB;
	snprintf(d->ibv.name, sizeof(d->ibv.name), "softnic_%s_%u", d->fabric, d->port);
	/* dev_name and the sysfs paths stay empty: there is no such file. */
	if (memcmp(d->cfg.mac, none, 6)) {
		memcpy(d->mac, d->cfg.mac, 6);
	} else {
		const uint8_t mac[6] = { 0x02, 0x53, 0x4e, 0x00, 0x00, (uint8_t)d->port };

		memcpy(d->mac, mac, 6);
	}
}

static int device_add_locked(const char *spec, size_t len, struct vb_device **out)
{
	struct vb_device *d = calloc(1, sizeof(*d)), **at;

	if (!d)
		return -ENOMEM;
	if (vb_device_parse(spec, len, d)) {
		free(d);
		return -EINVAL;
	}
	for (at = &devices; *at; at = &(*at)->next) {
		if ((*at)->port == d->port && !strcmp((*at)->fabric, d->fabric)) {
			bool same = !memcmp(&(*at)->cfg, &d->cfg, sizeof(d->cfg)) && (*at)->off == d->off;

			free(d);
			*out = *at;
			return same ? 0 : -EINVAL;
		}
	}
	device_init(d);
	d->index = ++device_count;
	*at = d;
	*out = d;
	return 0;
}

int vb_device_add(const char *spec, struct vb_device **out)
{
	int rc;

	vb_registry_lock();
	rc = device_add_locked(spec, strlen(spec), out);
	vb_registry_unlock();
	return rc;
}

/* Read at each listing: programs may set the variable after this library was loaded. */
static void devices_from_env(void)
{
	const char *p = getenv("PYVMA_SOFTNIC"), *end;
	struct vb_device *d;

	for (; p && *p; p = *end ? end + 1 : end) {
		end = p + strcspn(p, ";");
		if (end > p && device_add_locked(p, (size_t)(end - p), &d))
			fprintf(stderr, "softnic: PYVMA_SOFTNIC: bad or contradicting entry \"%.*s\"\n", (int)(end - p), p);
	}
}

struct vb_device *vb_device_find(const char *name)
{
	struct vb_device *d;

	vb_registry_lock();
	devices_from_env();
	for (d = devices; d && strcmp(d->ibv.name, name); d = d->next)
		;
	vb_registry_unlock();
	return d;
}

static struct vb_device *ours(const struct ibv_device *device)
{
	struct vb_device *d;

	vb_registry_lock();
	for (d = devices; d && &d->ibv != device; d = d->next)
		;
	vb_registry_unlock();
	return d;
}

/* ---- the list ---------------------------------------------------------------------------------------------------------------- */

/* The array that programs get, behind the real library's list. */
struct device_list {
	struct ibv_device **real;
	struct ibv_device *entry[];
};

struct ibv_device **ibv_get_device_list(int *num)
{
	int nreal = 0, n = 0, err;
	struct ibv_device **real;
	struct device_list *list;

	errno = ENOSYS;
	real = vb_real()->ibv_get_device_list ? vb_real()->ibv_get_device_list(&nreal) : NULL;
	if (real_only) {
		if (num)
			*num = nreal;
		return real;
	}
	err = errno;
	vb_registry_lock();
	devices_from_env();
	list = calloc(1, sizeof(*list) + sizeof(list->entry[0]) * (size_t)(device_count + nreal + 1));
	if (list) {
		list->real = real;
		for (struct vb_device *d = devices; d; d = d->next)
			list->entry[n++] = &d->ibv;
	}
	vb_registry_unlock();
	if (!list || (!n && !real)) {
		if (real)
			vb_real()->ibv_free_device_list(real);
		if (num)
			*num = 0;
		errno = list ? err : ENOMEM;
		free(list);
		return NULL;
	}
	for (int i = 0; i < nreal; i++)
		list->entry[n++] = real[i];
	if (num)
		*num = n;
	return list->entry;
}

void ibv_free_device_list(struct ibv_device **entries)
{
	struct device_list *list = pv_container_of(entries, struct device_list, entry);

	if (real_only) {
		vb_real()->ibv_free_device_list(entries);
		return;
	}
	if (list->real)
		vb_real()->ibv_free_device_list(list->real);
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	if (!ours(device))
		return vb_real()->ibv_get_device_index ? vb_real()->ibv_get_device_index(device) : -1;
	return -1; /* the kernel has no such device */
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	const struct vb_device *d = ours(device);
	__be64 guid;

	if (!d)
		return vb_real()->ibv_get_device_guid ? vb_real()->ibv_get_device_guid(device) : 0;
	vb_registry_lock();
	guid = vb_guid(d->mac);
	vb_registry_unlock();
	return guid;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------------------- */

static int bind_mw_unsupported(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	(void)qp, (void)mw, (void)bind;
	return EOPNOTSUPP;
}

static int dealloc_mw_unsupported(struct ibv_mw *mw)
{
	(void)mw;
	return EOPNOTSUPP;
}

static int post_srq_recv_unsupported(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	*bad = wr;
	return EOPNOTSUPP;
}

/* What the device lacks: its slots are empty, as a provider without the calls leaves them. */
static void ctx_ops_off(struct vb_ctx *ctx)
{
	struct verbs_context *v = &ctx->v;

	if (ctx->off & VB_CAP_PACING)
		v->modify_qp_rate_limit = NULL;
	if (ctx->off & VB_CAP_DM) {
		v->alloc_dm = NULL;
		v->free_dm = NULL;
		v->reg_dm_mr = NULL;
	}
	if (ctx->off & VB_CAP_TIMESTAMPS)
		v->query_rt_values = NULL;
	if (ctx->off & VB_CAP_CQ_EX)
		v->create_cq_ex = NULL;
	if (ctx->off & VB_CAP_FLOW) {
		v->ibv_create_flow = NULL;
		v->ibv_destroy_flow = NULL;
	}
	if (ctx->off & VB_CAP_RSS) {
		v->create_wq = NULL;
		v->modify_wq = NULL;
		v->destroy_wq = NULL;
		v->create_rwq_ind_table = NULL;
		v->destroy_rwq_ind_table = NULL;
	}
}

static void ctx_ops(struct vb_ctx *ctx)
{
	struct verbs_context *v = &ctx->v;
	struct ibv_context_ops *ops = &v->context.ops;

	ops->_compat_async_event = vb_mark;
	ops->poll_cq = vb_poll_cq;
	ops->req_notify_cq = vb_req_notify_cq;
	ops->post_send = vb_post_send;
	ops->post_recv = vb_post_recv;
	/* libibverbs calls these three without looking; a slot that is NULL below answers EOPNOTSUPP by itself. */
	ops->bind_mw = bind_mw_unsupported;
	ops->dealloc_mw = dealloc_mw_unsupported;
	ops->post_srq_recv = post_srq_recv_unsupported;

	v->sz = sizeof(*v);
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->query_port = vb_query_port;
	v->query_device_ex = vb_query_device_ex;
	v->query_rt_values = vb_query_rt_values;
	v->create_cq_ex = vb_create_cq_ex;
	v->create_qp_ex = vb_create_qp_ex;
	v->ibv_create_flow = vb_create_flow;
	v->ibv_destroy_flow = vb_destroy_flow;
	v->create_wq = vb_create_wq;
	v->modify_wq = vb_modify_wq;
	v->destroy_wq = vb_destroy_wq;
	v->create_rwq_ind_table = vb_create_rwq_ind_table;
	v->destroy_rwq_ind_table = vb_destroy_rwq_ind_table;
	v->alloc_td = vb_alloc_td;
	v->dealloc_td = vb_dealloc_td;
	v->alloc_parent_domain = vb_alloc_parent_domain;
	v->modify_qp_rate_limit = vb_modify_qp_rate_limit;
	v->alloc_dm = vb_alloc_dm;
	v->free_dm = vb_free_dm;
	v->reg_dm_mr = vb_reg_dm_mr;
	ctx_ops_off(ctx);
}

static void fork_child(void);

static void fork_register(void)
{
	pthread_atfork(vb_registry_lock, vb_registry_unlock, fork_child);
}

static int ctx_open_fabric(struct vb_ctx *ctx)
{
	const struct vb_device *d = ctx->dev;
	int rc = sn_fabric_open(d->fabric, &ctx->fabric);

	if (rc) {
		vb_open_error("fabric %s: %s (%s)", d->fabric, strerror(-rc), sn_error());
		return rc;
	}
	rc = sn_port_attach(ctx->fabric, d->port, &d->cfg, &ctx->port);
	if (rc) {
		vb_open_error("fabric %s: port %u: %s (%s)", d->fabric, d->port, strerror(-rc), sn_error());
		goto close;
	}
	rc = sn_port_plugged(ctx->port) ? sn_waker_open(ctx->fabric, &ctx->async_waker) : -ENODEV;
	if (!rc) {
		rc = sn_port_watch(ctx->port, ctx->async_waker);
		if (!rc)
			rc = vb_waker_fd(ctx->async_waker);
		ctx->v.context.async_fd = rc;
		if (rc >= 0)
			return 0;
		sn_waker_close(ctx->async_waker);
	}
	vb_open_error("fabric %s: event channel: %s", d->fabric, strerror(-rc));
	sn_port_detach(ctx->port);
close:
	sn_fabric_close(ctx->fabric);
	return rc;
}

static void ctx_free(struct vb_ctx *ctx)
{
	if (ctx->mr_slots)
		munmap(ctx->mr_slots, sizeof(struct vb_mr_slot) * (VB_MAX_MR + 1));
	if (ctx->v.context.cmd_fd >= 0)
		syscall(SYS_close, ctx->v.context.cmd_fd);
	free(ctx);
}

static struct vb_ctx *ctx_new(struct vb_device *d, uint32_t off)
{
	struct vb_ctx *ctx = calloc(1, sizeof(*ctx));
	struct pv_list *lists[] = { &ctx->node, &ctx->pds, &ctx->mrs,        &ctx->dms,   &ctx->channels,    &ctx->cqs,
				    &ctx->qps,  &ctx->wqs, &ctx->ind_tables, &ctx->flows, &ctx->async_events };

	if (!ctx)
		return NULL;
	ctx->dev = d;
	ctx->off = off;
	for (size_t i = 0; i < pv_array_size(lists); i++)
		pv_list_init(lists[i]);
	pthread_mutex_init(&ctx->lock, NULL);
	pthread_mutex_init(&ctx->async_lock, NULL);
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	ctx->v.context.device = &d->ibv;
	ctx->v.context.num_comp_vectors = VB_COMP_VECTORS;
	/* Stands for the device's file; import recognizes it by its inode. */
	ctx->v.context.cmd_fd = (int)syscall(SYS_memfd_create, d->ibv.name, MFD_CLOEXEC);
	ctx->mr_slots = mmap(NULL, sizeof(struct vb_mr_slot) * (VB_MAX_MR + 1), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ctx->mr_slots == MAP_FAILED)
		ctx->mr_slots = NULL;
	if (!ctx->mr_slots || ctx->v.context.cmd_fd < 0) {
		ctx_free(ctx);
		return NULL;
	}
	ctx_ops(ctx);
	return ctx;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct vb_device *d = ours(device);
	struct vb_ctx *ctx;
	uint32_t off;
	int rc;

	if (!d)
		return VB_FORWARD_PTR(ibv_open_device, device);
	vb_open_error("%s", "");
	off = d->off;
	rc = vb_caps_from_env(&off);
	if (rc) {
		fprintf(stderr, "softnic: %s\n", open_error);
		return vb_fail(-rc);
	}
	ctx = ctx_new(d, off);
	if (!ctx) {
		vb_open_error("out of memory");
		return vb_fail(ENOMEM);
	}
	rc = ctx_open_fabric(ctx);
	if (rc) {
		ctx_free(ctx);
		return vb_fail(-rc);
	}
	ctx->link_events = sn_port_link_events(ctx->port);
	sn_port_mac(ctx->port, ctx->mac);
	ctx->dm_bytes = sn_port_dm_bytes(ctx->port);
	pthread_once(&fork_once, fork_register);
	vb_registry_lock();
	memcpy(d->mac, ctx->mac, 6);
	pv_list_add(&contexts, &ctx->node);
	vb_registry_unlock();
	return &ctx->v.context;
}

/* Nobody will acknowledge what was delivered: destroying must not wait for it. */
static void ctx_forgive_events(struct vb_ctx *ctx)
{
	pv_list_for_each(it, &ctx->cqs) {
		struct vb_cq *cq = pv_list_entry(it, struct vb_cq, node);

		cq->events_delivered = cq->ibv.comp_events_completed;
		cq->async_delivered = cq->ibv.async_events_completed;
	}
	pv_list_for_each(it, &ctx->qps) {
		struct vb_qp *qp = pv_list_entry(it, struct vb_qp, node);

		qp->async_delivered = qp->ibv.events_completed;
	}
	pv_list_for_each(it, &ctx->wqs) {
		struct vb_wq *wq = pv_list_entry(it, struct vb_wq, node);

		wq->async_delivered = wq->ibv.events_completed;
	}
}

/* What an application left behind, users before what they use. */
static void ctx_destroy_objects(struct vb_ctx *ctx)
{
	pv_list_for_each_safe(it, t1, &ctx->flows)
		vb_destroy_flow(&pv_list_entry(it, struct vb_flow, node)->ibv);
	pv_list_for_each_safe(it, t2, &ctx->qps)
		ibv_destroy_qp(&pv_list_entry(it, struct vb_qp, node)->ibv);
	pv_list_for_each_safe(it, t3, &ctx->ind_tables)
		vb_destroy_rwq_ind_table(&pv_list_entry(it, struct vb_ind_table, node)->ibv);
	pv_list_for_each_safe(it, t4, &ctx->wqs)
		vb_destroy_wq(&pv_list_entry(it, struct vb_wq, node)->ibv);
	pv_list_for_each_safe(it, t5, &ctx->cqs)
		ibv_destroy_cq(&pv_list_entry(it, struct vb_cq, node)->ibv);
	pv_list_for_each_safe(it, t6, &ctx->channels)
		ibv_destroy_comp_channel(&pv_list_entry(it, struct vb_channel, node)->ibv);
	pv_list_for_each_safe(it, t7, &ctx->mrs)
		ibv_dereg_mr(&pv_list_entry(it, struct vb_mr, node)->ibv);
	pv_list_for_each_safe(it, t8, &ctx->dms)
		vb_free_dm(&pv_list_entry(it, struct vb_dm, node)->ibv);
	/* Parent domains come after the domains that they stand for. */
	while (!pv_list_empty(&ctx->pds))
		ibv_dealloc_pd(&pv_list_entry(ctx->pds.prev, struct vb_pd, node)->ibv);
}

int ibv_close_device(struct ibv_context *context)
{
	struct vb_ctx *ctx;

	if (!vb_ours(context))
		return VB_FORWARD_INT(ibv_close_device, context);
	ctx = vb_ctx(context);
	vb_registry_lock();
	pv_list_del(&ctx->node);
	vb_registry_unlock();
	ctx_forgive_events(ctx);
	ctx_destroy_objects(ctx);
	vb_async_fini(ctx);
	vb_dm_fini(ctx);
	if (ctx->gone) {
		syscall(SYS_close, context->async_fd);
	} else {
		sn_waker_close(ctx->async_waker);
		sn_port_detach(ctx->port);
		sn_fabric_close(ctx->fabric);
	}
	ctx_free(ctx);
	return 0;
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *context;
	struct vb_device *found = NULL;
	struct stat want, have;

	if (fstat(cmd_fd, &want))
		return NULL;
	vb_registry_lock();
	pv_list_for_each(it, &contexts) {
		struct vb_ctx *ctx = pv_list_entry(it, struct vb_ctx, node);

		if (!fstat(ctx->v.context.cmd_fd, &have) && have.st_dev == want.st_dev && have.st_ino == want.st_ino)
			found = ctx->dev;
	}
	vb_registry_unlock();
	if (found)
		return ibv_open_device(&found->ibv);
	real_only = true;
	context = VB_FORWARD_PTR(ibv_import_device, cmd_fd);
	real_only = false;
	return context;
}

/* ---- fork -------------------------------------------------------------------------------------------------------------------- */

/*
 * The child has the parent's memory but not its queues: every object goes into a state in which calls answer ENODEV or nothing, and
 * destroying it frees memory only. Locks that other threads of the parent held are free again.
 */
static void ctx_gone(struct vb_ctx *ctx)
{
	pthread_mutex_init(&ctx->lock, NULL);
	pthread_mutex_init(&ctx->async_lock, NULL);
	pv_list_for_each(it, &ctx->cqs) {
		struct vb_cq *cq = pv_list_entry(it, struct vb_cq, node);

		atomic_store(&cq->lock.held, 0);
		cq->cqe_ci = atomic_load(&cq->cqe_pi);
		pv_list_init(&cq->paced);
		vb_cq_sources(cq);
	}
	pv_list_for_each(it, &ctx->qps) {
		struct vb_qp *qp = pv_list_entry(it, struct vb_qp, node);

		atomic_store(&qp->lock.held, 0);
		atomic_store(&qp->rq.lock.held, 0);
		atomic_store(&qp->rq.mode, VB_RQ_OFF);
		atomic_store(&qp->state, VB_QPS_GONE);
	}
	pv_list_for_each(it, &ctx->wqs) {
		struct vb_wq *wq = pv_list_entry(it, struct vb_wq, node);

		atomic_store(&wq->rq.lock.held, 0);
		atomic_store(&wq->rq.mode, VB_RQ_OFF);
	}
	pv_list_for_each(it, &ctx->channels)
		pthread_mutex_init(&pv_list_entry(it, struct vb_channel, node)->lock, NULL);
	ctx_forgive_events(ctx);
	vb_dm_forked(ctx);
	ctx->gone = true;
}

static void fork_child(void)
{
	vb_registry_unlock(); /* taken by this thread before the fork */
	pv_list_for_each(it, &contexts) {
		struct vb_ctx *ctx = pv_list_entry(it, struct vb_ctx, node);
		bool forgotten = ctx->gone;

		/* One view of a fabric may serve several contexts. */
		pv_list_for_each(other, &contexts) {
			if (other == it)
				break;
			forgotten |= pv_list_entry(other, struct vb_ctx, node)->fabric == ctx->fabric;
		}
		ctx_gone(ctx);
		if (!forgotten)
			sn_fabric_forget(ctx->fabric);
	}
}
