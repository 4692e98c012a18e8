/* SPDX-License-Identifier: BSD-3-Clause */
/* From a device's name to a queue pair that sends and receives, and back. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "ring/verbs_priv.h"

#define DEFAULT_DEPTH 1024u
#define DEFAULT_INLINE 204u

struct opening {
	struct verbs_ring *v;
	const struct pv_verbs_cfg *cfg;
	struct ibv_device_attr_ex attr;
	char *err;
	size_t errsize;
};

static int __attribute__((format(printf, 3, 4))) fail(const struct opening *o, int rc, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(o->err, o->errsize, fmt, ap);
	va_end(ap);
	if (rc < 0 && n >= 0 && (size_t)n < o->errsize)
		snprintf(o->err + n, o->errsize - (size_t)n, ": %s", strerrordesc_np(-rc));
	return rc;
}

/* After a call that answers NULL and sets errno. */
static int last_error(int otherwise)
{
	return errno ? -errno : -otherwise;
}

static int open_device(struct pv_verbs_lib *lib, const char *name, struct ibv_context **out, const struct opening *o)
{
	struct ibv_device **list, *dev = NULL;
	char known[256] = "";
	int n = 0, rc = 0;

	errno = 0;
	list = lib->get_device_list(&n);
	if (!list)
		return fail(o, last_error(ENOENT) == -EPERM ? -EPERM : -ENOENT, "this machine has no RDMA devices");
	for (int i = 0; i < n; i++) {
		const char *is = lib->get_device_name(list[i]);
		size_t at = strlen(known);

		if (!strcmp(is, name))
			dev = list[i];
		snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", is);
	}
	if (!dev) {
		rc = fail(o, -ENOENT, "no RDMA device is called %s (there %s %s)", name, n == 1 ? "is" : "are", n ? known : "none");
	} else {
		errno = 0;
		*out = lib->open_device(dev);
		if (!*out) {
			rc = last_error(ENODEV);
			if (lib->softnic_open_error && lib->softnic_open_error()[0])
				fail(o, 1, "%s: %s", name, lib->softnic_open_error());
			else
				fail(o, rc, "%s cannot be opened", name);
		}
	}
	lib->free_device_list(list);
	return rc;
}

static int check_port(struct opening *o, struct pv_verbs_lib *lib, struct ibv_context *ctx, struct pv_verbs_info *info)
{
	uint8_t port = o->cfg->port ? o->cfg->port : 1;
	int rc = pv_verbs_query(lib, ctx, &o->attr);

	if (rc)
		return fail(o, rc, "%s does not answer", o->cfg->device);
	snprintf(info->device, sizeof(info->device), "%s", o->cfg->device);
	rc = pv_verbs_query_port(lib, ctx, port, info);
	if (rc == -EINVAL)
		return fail(o, rc, "%s has no port %u", o->cfg->device, port);
	if (rc == -EPROTONOSUPPORT)
		return fail(o, -EOPNOTSUPP, "%s/%u is not Ethernet", o->cfg->device, port);
	if (rc)
		return fail(o, rc, "MAC of %s/%u", o->cfg->device, port);
	return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static int map(void *ctx, void *base, size_t size, uint32_t *key)
{
	struct verbs_ring *v = ctx;
	struct verbs_mr *m = v->mem->alloc(v->mem->ctx, sizeof(*m));

	if (!m)
		return -ENOMEM;
	errno = 0;
	m->mr = v->lib.reg_mr(v->pd, base, size, IBV_ACCESS_LOCAL_WRITE);
	if (!m->mr) {
		v->mem->free(v->mem->ctx, m, sizeof(*m));
		return last_error(ENOMEM);
	}
	m->next = v->mrs;
	v->mrs = m;
	*key = m->mr->lkey;
	return 0;
}

static void unmap(void *ctx, void *base, size_t size, uint32_t key)
{
	struct verbs_ring *v = ctx;

	(void)base;
	(void)size;
	for (struct verbs_mr **at = &v->mrs; *at; at = &(*at)->next) {
		struct verbs_mr *m = *at;

		if (m->mr->lkey != key)
			continue;
		*at = m->next;
		if (!v->forgotten)
			v->lib.dereg_mr(m->mr);
		v->mem->free(v->mem->ctx, m, sizeof(*m));
		return;
	}
}

/* ---- completion queues ------------------------------------------------------------------------------------------------- */

static int create_cqs(struct opening *o)
{
	struct verbs_ring *v = o->v;

	/* What the device's own clock counts with must be known. */
	if (!o->cfg->legacy && o->attr.completion_timestamp_mask && o->attr.hca_core_clock)
		v->stamps = o->cfg->stamps;
	errno = 0;
	v->rx_cq =
	    pv_verbs_create_cq(v, v->ring.caps.rx_depth + v->ring.caps.rxqs * v->ring.caps.rxq_depth, v->channel, &v->rx_cqx);
	v->tx.cq = v->rx_cq ? pv_verbs_create_cq(v, v->ring.caps.tx_depth, NULL, &v->tx.cqx) : NULL;
	return v->tx.cq ? 0 : fail(o, last_error(ENOMEM), "completion queues of %s", o->cfg->device);
}

static void destroy_cqs(struct verbs_ring *v)
{
	if (v->tx.cq)
		v->lib.destroy_cq(v->tx.cq);
	if (v->rx_cq)
		v->lib.destroy_cq(v->rx_cq);
}

/* ---- queue pair -------------------------------------------------------------------------------------------------------- */

/* One attempt after another with less inline data. */
static int try_qp(struct opening *o, bool extended, bool tso, uint32_t sge)
{
	struct verbs_ring *v = o->v;
	uint32_t want = o->cfg->inline_max ? o->cfg->inline_max : DEFAULT_INLINE;
	int rc;

	want = o->cfg->inline_max == UINT32_MAX ? 0 : want;
	for (uint32_t ask = want;; ask = ask > 64 ? ask / 2 : 0) {
		v->ask = (struct verbs_qp_ask){
			.send_cq = v->tx.cq,
			.recv_cq = v->rx_cq,
			.send_wr = v->ring.caps.tx_depth,
			.recv_wr = v->rss ? 0 : v->ring.caps.rx_depth,
			.inline_size = ask,
			.sge = sge,
			.extended = extended,
			.tso = tso,
		};
		v->qp = v->tx.qp = pv_verbs_qp_create(v, &v->ask);
		if (v->qp)
			break;
		rc = last_error(EINVAL);
		if (!ask || rc == -EPERM)
			return rc;
	}
	v->ring.caps.inline_size = PV_MIN(want, v->ask.inline_size);
	v->ring.caps.max_sge = v->ask.sge = PV_MIN(sge, v->ask.sge);
	if (extended)
		v->tx.qpx = v->lib.qp_to_qp_ex(v->qp);
	return 0;
}

/* Segmentation wants long lists of pieces, which make all entries of the queue longer: without it there are few. What the provider
 * does not agree to is given up step by step: inline data, pieces, segmentation. -EPERM is an answer, not a refusal. */
static int create_qp(struct opening *o, bool extended)
{
	const uint32_t raw = 1u << IBV_QPT_RAW_PACKET, most = (uint32_t)PV_MAX(o->attr.orig_attr.max_sge, 1);
	bool tso = !o->cfg->no_tso && !o->cfg->no_csum && pv_verbs_has_csum(&o->attr) && o->attr.tso_caps.supported_qpts & raw &&
		   o->attr.tso_caps.max_tso;
	int rc = -EOPNOTSUPP;

	for (uint32_t sge = PV_MIN(VERBS_SGE_MAX, most); tso && sge >= VERBS_SGE_PLAIN && rc != -EPERM; sge /= 2) {
		rc = try_qp(o, extended, true, sge);
		if (!rc)
			return 0;
	}
	for (uint32_t sge = PV_MIN(VERBS_SGE_PLAIN, most); sge && rc != -EPERM; sge /= 2) {
		rc = try_qp(o, extended, false, sge);
		if (!rc)
			return 0;
	}
	return rc;
}

static int qp_failed(const struct opening *o, int rc)
{
	if (rc == -EPERM || rc == -EACCES)
		return fail(o, rc, "a raw packet queue pair on %s needs CAP_NET_RAW", o->cfg->device);
	if (rc == -ENOSYS || rc == -EOPNOTSUPP || rc == -EINVAL)
		return fail(o, -EOPNOTSUPP, "%s has no raw packet queue pairs", o->cfg->device);
	return fail(o, rc, "queue pair on %s", o->cfg->device);
}

/* ibv_wr_* where the provider has it for raw packets: what it lacks shows in a refusal, and then ibv_post_send. */
static int create_queues(struct opening *o)
{
	struct verbs_ring *v = o->v;
	int rc;

	v->ring.caps.rxqs = pv_verbs_rxq_plan(v, &o->attr, o->cfg->rxqs);
	rc = create_cqs(o);
	if (!rc && (rc = pv_verbs_rss_open(v, &o->attr, o->cfg->rx_queues)))
		rc = fail(o, rc, "receive queues of %s", o->cfg->device);
	if (rc)
		return rc;
	if (!o->cfg->legacy && !create_qp(o, true)) {
		if (v->tx.qpx)
			return 0;
		v->lib.destroy_qp(v->qp);
		v->qp = NULL;
	}
	rc = create_qp(o, false);
	return rc ? qp_failed(o, rc) : 0;
}

/* ---- the ring's own tables --------------------------------------------------------------------------------------------- */

static int alloc_tables(struct opening *o)
{
	struct verbs_ring *v = o->v;
	const struct pv_mem *mem = v->mem;
	const struct pv_pool_cfg *pc = pv_pool_config(v->ring.pool);

	v->rx_index_max = PV_MAX(pc->max, pc->count);
	v->held_bytes = (v->rx_index_max + 63) / 64 * 8;
	v->rx_held = mem->alloc(mem->ctx, v->held_bytes);
	if (!v->rx_held || pv_verbs_txq_init(v, &v->tx, v->ring.caps.tx_depth) || pv_verbs_rxq_init(v))
		return fail(o, -ENOMEM, "ring of %s", o->cfg->device);
	for (uint32_t i = 0; i < PV_RING_BATCH_MAX; i++) {
		v->recv_wr[i].next = &v->recv_wr[i + 1];
		v->recv_wr[i].sg_list = &v->recv_sge[i];
		v->recv_wr[i].num_sge = 1;
	}
	return 0;
}

static void free_ring(struct verbs_ring *v)
{
	const struct pv_mem *mem = v->mem;

	if (v->rx_held)
		mem->free(mem->ctx, v->rx_held, v->held_bytes);
	if (v->rxqs)
		mem->free(mem->ctx, v->rxqs, sizeof(*v->rxqs));
	pv_verbs_txq_fini(v, &v->tx);
	pv_verbs_lib_close(&v->lib);
	pv_ring_stat_close(&v->ring, mem);
	mem->free(mem->ctx, v, sizeof(*v));
}

static uint32_t depth(uint32_t asked, int max_wr, int max_cqe)
{
	uint32_t limit = (uint32_t)PV_MAX(1, PV_MIN(max_wr, max_cqe));

	return PV_MIN(asked ? asked : DEFAULT_DEPTH, limit);
}

static int open_ring(struct opening *o)
{
	struct verbs_ring *v = o->v;
	const struct pv_pool_cfg *pc = pv_pool_config(v->ring.pool);
	struct pv_verbs_info info = { 0 };
	int rc = pv_verbs_lib_open(&v->lib, o->cfg->library, o->err, o->errsize);

	if (!rc)
		rc = open_device(&v->lib, o->cfg->device, &v->ctx, o);
	if (!rc)
		rc = check_port(o, &v->lib, v->ctx, &info);
	if (rc)
		return rc;
	v->ring.caps.mtu = info.mtu;
	v->ring.caps.link_up = info.link_up;
	memcpy(v->ring.caps.mac, info.mac, PV_ETH_ALEN);
	v->port = info.port;
	if (pc->buf_size - pc->headroom < info.mtu + 18)
		return fail(o, -EINVAL, "packets of %u bytes do not hold frames of %s (MTU %u)", pc->buf_size, o->cfg->device,
			    info.mtu);
	v->ring.caps.rx_depth = depth(o->cfg->rx_depth, o->attr.orig_attr.max_qp_wr, o->attr.orig_attr.max_cqe);
	v->ring.caps.tx_depth = depth(o->cfg->tx_depth, o->attr.orig_attr.max_qp_wr, o->attr.orig_attr.max_cqe);
	errno = 0;
	v->pd = v->lib.alloc_pd(v->ctx);
	if (!v->pd)
		return fail(o, last_error(ENOMEM), "protection domain of %s", o->cfg->device);
	if (o->cfg->rx_interrupts && !(v->channel = v->lib.create_comp_channel(v->ctx)))
		return fail(o, last_error(ENOMEM), "completion channel of %s", o->cfg->device);
	rc = create_queues(o);
	if (!rc)
		rc = alloc_tables(o);
	if (rc)
		return rc;
	rc = pv_verbs_qp_start(v, v->qp, 0);
	if (rc)
		return fail(o, rc, "queue pair of %s cannot start", o->cfg->device);
	rc = o->cfg->binder ? pv_pool_bind_map(v->ring.pool, o->cfg->binder, map, unmap, v)
			    : pv_pool_bind(v->ring.pool, map, unmap, v);
	if (rc < 0)
		return fail(o, rc, "memory cannot be registered with %s (see RLIMIT_MEMLOCK)", o->cfg->device);
	v->ring.binder = o->cfg->binder ? o->cfg->binder : (uint32_t)rc;
	rc = pv_verbs_events_open(v);
	return rc ? fail(o, rc, "events of %s", o->cfg->device) : 0;
}

static void end(struct verbs_ring *v)
{
	pv_verbs_txq_clear(v);
	pv_verbs_reclaim(v);
	free_ring(v);
}

int pv_verbs_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_verbs_cfg *cfg, char *err,
		  size_t errsize)
{
	struct opening o = { .cfg = cfg, .err = err, .errsize = errsize };
	struct verbs_ring *v;
	int rc;

	if (errsize)
		err[0] = 0;
	if (!cfg->device || !cfg->device[0])
		return fail(&o, -EINVAL, "no device is named");
	v = o.v = mem->alloc(mem->ctx, sizeof(*v));
	if (v && pv_ring_stat_open(&v->ring, mem)) {
		mem->free(mem->ctx, v, sizeof(*v));
		v = NULL;
	}
	if (!v)
		return fail(&o, -ENOMEM, "ring of %s", cfg->device);
	v->mem = mem;
	v->ring.pool = pool;
	v->epoll_fd = -1;
	pv_pktq_init(&v->done);
	pv_pktq_init(&v->tx.waiting);
	pv_list_init(&v->busy);
	rc = open_ring(&o);
	if (rc) {
		if (!cfg->binder)
			pv_pool_bind_off(pool, v->ring.binder);
		pv_verbs_shut(&v->ring);
		if (!cfg->binder)
			pv_pool_unbind(pool, v->ring.binder);
		end(v);
		return rc;
	}
	v->poll_cq = v->ctx->ops.poll_cq;
	v->post_recv = v->ctx->ops.post_recv;
	v->post_send = v->ctx->ops.post_send;
	pv_verbs_set_ops(v);
	pv_verbs_fill_caps(v, &o.attr, cfg);
	pv_verbs_rate_probe(v);
	if (cfg->dev_mem)
		pv_verbs_dm_open(v, cfg->dev_mem, err, errsize);
	pv_verbs_flow_probe(v);
	*out = &v->ring;
	return 0;
}

/* All that is the device's; the packets stay where they are. */
void pv_verbs_shut(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (v->shut)
		return;
	v->shut = true;
	if (v->tx.qpx && v->tx.batch)
		ibv_wr_abort(v->tx.qpx);
	pv_verbs_flow_clear(v);
	pv_verbs_rxq_clear(v);
	pv_verbs_rss_close(v);
	if (v->qp) {
		/* Stops the device's reading and writing; when it is dead this fails, and so it has stopped. */
		v->lib.modify_qp(v->qp, &attr, IBV_QP_STATE);
		v->lib.destroy_qp(v->qp);
	}
	pv_verbs_txq_shut(v);
	destroy_cqs(v);
	pv_verbs_dm_close(v);
	pv_pool_unmap(v->ring.pool, v->ring.binder);
	pv_verbs_events_close(v);
	if (v->channel)
		v->lib.destroy_comp_channel(v->channel);
	if (v->pd && v->lib.dealloc_pd(v->pd) == EBUSY) {
#ifdef PV_DEBUG
		__builtin_trap(); /* a queue pair or a memory region was forgotten */
#endif
	}
	if (v->ctx)
		v->lib.close_device(v->ctx);
}

void pv_verbs_close(struct pv_ring *r)
{
	pv_pool_bind_off(r->pool, r->binder);
	pv_verbs_shut(r);
	pv_pool_unbind(r->pool, r->binder);
	end(verbs_ring(r));
}

/* The child of a fork: the queue pair is the parent's. Fds are closed as this process's copies; the provider's mappings and
 * objects are left alone, for every way of freeing them talks to the device. */
void pv_verbs_forget(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);

	v->forgotten = true;
	pv_verbs_flow_clear(v);
	pv_verbs_txq_clear(v);
	pv_verbs_rxq_clear(v);
	pv_verbs_rss_close(v);
	pv_verbs_reclaim(v);
	pv_verbs_dm_close(v);
	pv_pool_unbind(v->ring.pool, v->ring.binder);
	pv_verbs_events_close(v);
	if (v->channel)
		close(v->channel->fd);
	if (v->ctx->async_fd >= 0)
		close(v->ctx->async_fd);
	if (v->ctx->cmd_fd >= 0)
		close(v->ctx->cmd_fd);
	free_ring(v);
}

int pv_verbs_probe(const struct pv_verbs_cfg *cfg, struct pv_verbs_info *out, char *err, size_t errsize)
{
	struct pv_verbs_cfg one = *cfg;
	struct opening o = { .cfg = &one, .err = err, .errsize = errsize };
	struct verbs_ring v = { .epoll_fd = -1 };
	int rc;

	memset(out, 0, sizeof(*out));
	one.rx_queues = 1;
	one.rxqs = 0;
	if (errsize)
		err[0] = 0;
	if (!cfg->device || !cfg->device[0])
		return fail(&o, -EINVAL, "no device is named");
	o.v = &v;
	rc = pv_verbs_lib_open(&v.lib, cfg->library, err, errsize);
	if (!rc)
		rc = open_device(&v.lib, cfg->device, &v.ctx, &o);
	if (!rc)
		rc = check_port(&o, &v.lib, v.ctx, out);
	if (!rc) {
		/* The smallest queue pair there is answers for all. */
		v.ring.caps.rx_depth = v.ring.caps.tx_depth = 1;
		v.pd = v.lib.alloc_pd(v.ctx);
		rc = v.pd ? create_queues(&o) : fail(&o, last_error(ENOMEM), "protection domain of %s", cfg->device);
		out->raw_packet = v.qp != NULL;
	}
	if (v.qp)
		v.lib.destroy_qp(v.qp);
	destroy_cqs(&v);
	if (v.pd)
		v.lib.dealloc_pd(v.pd);
	if (v.ctx)
		v.lib.close_device(v.ctx);
	pv_verbs_lib_close(&v.lib);
	return rc;
}
