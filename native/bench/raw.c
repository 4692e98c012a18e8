/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No stack at all: one raw packet queue pair, UDP frames made once, of which only the message changes. What the ring itself costs,
 * as the floor for everything above it. libibverbs' interface is loaded at run time: the software NIC's, or the system's.
 */
#include "bench/bench.h"
#include "bench/frame.h"

#ifdef PV_HAVE_VERBS
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#undef ibv_reg_mr
#undef ibv_query_port

#define DEPTH 1024u
#define SIGNAL_EVERY 64u
#define SLOT 2048u

struct lib {
	struct ibv_device **(*get_device_list)(int *n);
	const char *(*get_device_name)(struct ibv_device *dev);
	struct ibv_context *(*open_device)(struct ibv_device *dev);
	int (*close_device)(struct ibv_context *ctx);
	int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *user, struct ibv_comp_channel *ch, int vector);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*softnic_device_add)(const char *spec, char *name, size_t size);
};

struct tr {
	struct lib lib;
	struct ibv_context *ctx;
	struct ibv_qp *qp;
	struct ibv_cq *rx_cq, *tx_cq;
	struct ibv_flow *flow;
	uint8_t *mem; /* DEPTH receive slots, then BENCH_BATCH_MAX send slots, then one for replies */
	uint32_t lkey, inline_max;
	uint32_t size, tx_out, unsignaled;
	uint8_t mac[6];
	struct ibv_send_wr send[BENCH_BATCH_MAX + 1];
	struct ibv_sge send_sge[BENCH_BATCH_MAX + 1];
	struct ibv_recv_wr recv[DEPTH];
	struct ibv_sge recv_sge[DEPTH];
	struct ibv_wc wc[BENCH_BATCH_MAX];
};

static uint8_t *tx_frame(const struct tr *t, uint32_t i)
{
	return t->mem + (size_t)(DEPTH + i) * SLOT;
}

static inline uint8_t *tr_slot(struct tr *t, uint32_t i)
{
	return tx_frame(t, i) + FRAME_HLEN;
}

/* Completions come in order: a signaled request stands for all before it, and its wr_id says how many. */
static inline void reap(struct tr *t)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(t->tx_cq, 8, wc);

	for (int i = 0; i < n; i++)
		t->tx_out -= (uint32_t)wc[i].wr_id;
}

/* The chain that ends with `last`, of `n` requests. */
static inline int post(struct tr *t, struct ibv_send_wr *first, struct ibv_send_wr *last, uint32_t n)
{
	struct ibv_send_wr *bad, *next = last->next;
	bool inlined = last->send_flags & IBV_SEND_INLINE;
	int rc;

	if (pv_unlikely(t->tx_out + n > DEPTH)) {
		reap(t);
		if (t->tx_out + n > DEPTH)
			return 0;
	}
	last->next = NULL;
	t->unsignaled += n;
	if (t->unsignaled >= SIGNAL_EVERY || !inlined) {
		last->send_flags |= IBV_SEND_SIGNALED;
		last->wr_id = t->unsignaled;
		t->unsignaled = 0;
	}
	rc = ibv_post_send(t->qp, first, &bad);
	last->send_flags &= ~(unsigned int)IBV_SEND_SIGNALED;
	last->next = next;
	if (rc)
		return -rc;
	t->tx_out += n;
	/* The slots are written again right away: what was not copied has to have left. */
	while (!inlined && t->tx_out && !bench_stop)
		reap(t);
	return (int)n;
}

static inline int tr_flush(struct tr *t, uint32_t n)
{
	return post(t, &t->send[0], &t->send[n - 1], n);
}

/* The message of a received frame; an empty one when it is none of ours. */
static inline uint8_t *message(struct tr *t, const struct ibv_wc *wc, uint32_t *len)
{
	uint8_t *f = t->mem + (size_t)wc->wr_id * SLOT;

	*len = pv_likely(wc->status == IBV_WC_SUCCESS) ? frame_message(f, wc->byte_len) : 0;
	return f + FRAME_HLEN;
}

static inline int tr_recv_batch(struct tr *t, uint32_t max)
{
	return ibv_poll_cq(t->rx_cq, (int)max, t->wc);
}

static inline uint8_t *tr_msg(struct tr *t, uint32_t i, uint32_t *len)
{
	return message(t, &t->wc[i], len);
}

static inline int tr_recv(struct tr *t, bool wait, uint8_t **msg, uint32_t *len)
{
	int n = ibv_poll_cq(t->rx_cq, 1, t->wc);

	(void)wait;
	if (n > 0)
		*msg = message(t, t->wc, len);
	return n;
}

static inline int tr_reply(struct tr *t, int i, uint8_t *msg, uint32_t len)
{
	const uint8_t *f = msg - FRAME_HLEN;
	uint8_t *out = tx_frame(t, BENCH_BATCH_MAX);
	int rc;

	(void)i;
	if (len > FRAME_MESSAGE_MAX)
		return 0;
	frame_turn(out, f, t->mac, msg, len);
	t->send_sge[BENCH_BATCH_MAX].length = FRAME_HLEN + len;
	do {
		rc = post(t, &t->send[BENCH_BATCH_MAX], &t->send[BENCH_BATCH_MAX], 1);
	} while (rc == 0 && !bench_stop);
	return rc < 0 ? rc : 0;
}

static inline void tr_done(struct tr *t, uint32_t n)
{
	struct ibv_recv_wr *bad, *first = &t->recv[t->wc[0].wr_id], *last = first;

	for (uint32_t i = 1; i < n; i++) {
		last->next = &t->recv[t->wc[i].wr_id];
		last = last->next;
	}
	last->next = NULL;
	ibv_post_recv(t->qp, first, &bad);
}

#include "bench/loops.h"

static int load(struct lib *l, const char *path)
{
	static const struct {
		const char *name;
		size_t offset;
	} symbols[] = {
#define SYMBOL(field) { "ibv_" #field, offsetof(struct lib, field) }
		SYMBOL(get_device_list), SYMBOL(get_device_name), SYMBOL(open_device), SYMBOL(close_device),
		SYMBOL(query_gid),       SYMBOL(alloc_pd),        SYMBOL(reg_mr),      SYMBOL(create_cq),
		SYMBOL(create_qp),       SYMBOL(modify_qp),       SYMBOL(destroy_qp),
#undef SYMBOL
	};
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return bench_fail(dlerror(), 0);
	for (size_t i = 0; i < pv_array_size(symbols); i++) {
		void *sym = dlsym(handle, symbols[i].name);

		if (!sym)
			return bench_fail(dlerror(), 0);
		memcpy((char *)l + symbols[i].offset, &sym, sizeof(sym));
	}
	*(void **)&l->softnic_device_add = dlsym(handle, "softnic_device_add");
	return 0;
}

static int open_device(struct tr *t, const char *spec)
{
	struct ibv_device **list;
	char name[64];
	int n = 0;

	snprintf(name, sizeof(name), "%s", spec);
	if (strchr(spec, '/')) {
		if (!t->lib.softnic_device_add)
			return bench_fail("this library has no software NIC", 0);
		n = t->lib.softnic_device_add(spec, name, sizeof(name));
		if (n < 0)
			return bench_fail(spec, n);
	}
	list = t->lib.get_device_list(&n);
	for (int i = 0; list && i < n && !t->ctx; i++)
		if (!strcmp(t->lib.get_device_name(list[i]), name)) {
			t->ctx = t->lib.open_device(list[i]);
			if (!t->ctx)
				return bench_fail(name, -errno);
		}
	return t->ctx ? 0 : bench_fail("no such device", 0);
}

/* From GID 0: fe80:: with the MAC as modified EUI-64. */
static int read_mac(struct tr *t)
{
	union ibv_gid gid;

	if (t->lib.query_gid(t->ctx, 1, 0, &gid))
		return bench_fail("the port has no GID", 0);
	memcpy(t->mac, gid.raw + 8, 3);
	memcpy(t->mac + 3, gid.raw + 13, 3);
	t->mac[0] ^= 2;
	return 0;
}

static int open_qp(struct tr *t, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = {
		.send_cq = t->tx_cq,
		.recv_cq = t->rx_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 204 },
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int rc;

	t->qp = t->lib.create_qp(pd, &init);
	if (!t->qp)
		return bench_fail("raw packet queue pair", -errno);
	t->inline_max = init.cap.max_inline_data;
	rc = t->lib.modify_qp(t->qp, &attr, IBV_QP_STATE | IBV_QP_PORT);
	for (int state = IBV_QPS_RTR; !rc && state <= IBV_QPS_RTS; state++) {
		attr.qp_state = (enum ibv_qp_state)state;
		rc = t->lib.modify_qp(t->qp, &attr, IBV_QP_STATE);
	}
	return rc ? bench_fail("queue pair state", -rc) : 0;
}

static int steer(struct tr *t)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(struct ibv_flow_spec_eth) },
	};

	memcpy(rule.eth.val.dst_mac, t->mac, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	t->flow = ibv_create_flow(t->qp, &rule.attr);
	return t->flow ? 0 : bench_fail("flow rule", -errno);
}

static int fill(struct tr *t, const struct bench_opts *o)
{
	struct ibv_recv_wr *bad;

	for (uint32_t i = 0; i < DEPTH; i++) {
		t->recv_sge[i] = (struct ibv_sge){ (uintptr_t)t->mem + (size_t)i * SLOT, SLOT, t->lkey };
		t->recv[i] = (struct ibv_recv_wr){ .wr_id = i, .sg_list = &t->recv_sge[i], .num_sge = 1 };
		if (ibv_post_recv(t->qp, &t->recv[i], &bad))
			return bench_fail("receive queue", 0);
	}
	for (uint32_t i = 0; i <= BENCH_BATCH_MAX; i++) {
		t->send_sge[i] = (struct ibv_sge){ (uintptr_t)tx_frame(t, i), FRAME_HLEN + o->size, t->lkey };
		t->send[i] = (struct ibv_send_wr){ .sg_list = &t->send_sge[i], .num_sge = 1, .opcode = IBV_WR_SEND };
		if (FRAME_HLEN + o->size <= t->inline_max)
			t->send[i].send_flags = IBV_SEND_INLINE;
		if (i + 1 < BENCH_BATCH_MAX)
			t->send[i].next = &t->send[i + 1];
		frame_make(tx_frame(t, i), o, t->mac);
	}
	return 0;
}

static int open_ring(struct tr *t, const struct bench_opts *o)
{
	size_t bytes = (size_t)(DEPTH + BENCH_BATCH_MAX + 1) * SLOT;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	if (load(&t->lib, o->library) || open_device(t, o->device) || read_mac(t))
		return 1;
	pd = t->lib.alloc_pd(t->ctx);
	t->mem = aligned_alloc(4096, bytes + 4096 - bytes % 4096);
	mr = pd && t->mem ? t->lib.reg_mr(pd, memset(t->mem, 0, bytes), bytes, IBV_ACCESS_LOCAL_WRITE) : NULL;
	t->rx_cq = mr ? t->lib.create_cq(t->ctx, (int)DEPTH, NULL, NULL, 0) : NULL;
	t->tx_cq = t->rx_cq ? t->lib.create_cq(t->ctx, (int)DEPTH, NULL, NULL, 0) : NULL;
	if (!t->tx_cq)
		return bench_fail("memory and completion queues", -errno);
	t->lkey = mr->lkey;
	return open_qp(t, pd) || fill(t, o) || steer(t);
}

int bench_run_raw(const struct bench_opts *o, struct bench_result *r)
{
	static struct tr t;
	struct bench_opts spins = *o;
	int rc;

	spins.block = false;
	if (o->size > FRAME_MESSAGE_MAX)
		return bench_fail("raw: a message must fit into one frame", 0);
	if (!o->library || !o->device)
		return bench_fail("raw: --library and --device are needed", 0);
	if (open_ring(&t, o))
		return 1;
	if (o->role == ROLE_SERVER)
		bench_ready(o, t.mac);
	rc = run_role(&t, &spins, r);
	ibv_destroy_flow(t.flow);
	t.lib.destroy_qp(t.qp);
	t.lib.close_device(t.ctx);
	return rc;
}

#else

int bench_run_raw(const struct bench_opts *o, struct bench_result *r)
{
	(void)o;
	(void)r;
	return bench_fail("raw: built without libibverbs' headers", 0);
}

#endif
