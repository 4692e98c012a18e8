/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No stack at all, over an interface of the kernel: the AF_XDP ring of native/ring as it is, linked into this program, with UDP frames
 * made once, of which only the message changes. What the ring itself costs, as the floor for everything above it.
 */
#include "bench/bench.h"
#include "bench/frame.h"

#ifdef PV_HAVE_XDP
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ring/xdp.h"

#define TX_PACKETS 1024u
#define RX_PACKETS 1024u /* a queue */
#define QUEUES_MAX 8u

struct tr {
	struct pv_ring *ring;
	struct pv_pool *pool;
	uint64_t rule;
	/* Ours for sending, apart from those that are received into: their headers stay. `spare` is a stack. */
	struct pv_pkt *spare[TX_PACKETS];
	uint32_t spares;
	struct pv_pkt *rx[PV_RING_BATCH_MAX];
};

static uint8_t *payload(struct pv_pkt *p)
{
	return p->data + FRAME_HLEN;
}

/* Slot 0 is the top of the stack, which is what left the cache last. */
static inline uint8_t *tr_slot(struct tr *t, uint32_t i)
{
	return payload(t->spare[t->spares - 1 - i]);
}

static inline void reap(struct tr *t)
{
	if (t->ring->tx_pending)
		t->spares += pv_ring_tx_reap(t->ring, t->spare + t->spares, PV_MIN(TX_PACKETS - t->spares, PV_RING_BATCH_MAX));
}

/* The top `n` of the stack, so that at least a batch stays for the next slots. */
static inline int post(struct tr *t, uint32_t n)
{
	struct pv_pkt *out[PV_RING_BATCH_MAX];
	uint32_t sent;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		out[i] = t->spare[t->spares - 1 - i];
	sent = pv_ring_tx_post(t->ring, out, n);
	/* What was not taken lies where it was: below the hole, in the same order. */
	t->spares -= n;
	for (uint32_t i = n; i > sent; i--)
		t->spare[t->spares++] = out[i - 1];
	/* Not before all has left: nobody would send the rest when we wait for an answer to it. */
	do {
		rc = pv_ring_tx_kick(t->ring);
		reap(t);
	} while ((rc == -EAGAIN || t->spares < PV_RING_BATCH_MAX) && rc != -ENODEV && !bench_stop);
	return rc && rc != -EAGAIN ? rc : (int)sent;
}

static inline int tr_flush(struct tr *t, uint32_t n)
{
	return post(t, n);
}

static inline uint8_t *message(struct pv_pkt *p, uint32_t *len)
{
	*len = frame_message(p->data, p->len);
	return payload(p);
}

static inline int tr_recv_batch(struct tr *t, uint32_t max)
{
	return (int)pv_ring_rx_poll(t->ring, t->rx, max);
}

static inline uint8_t *tr_msg(struct tr *t, uint32_t i, uint32_t *len)
{
	return message(t->rx[i], len);
}

static inline int tr_recv(struct tr *t, bool wait, uint8_t **msg, uint32_t *len)
{
	uint32_t n = pv_ring_rx_poll(t->ring, t->rx, 1);

	(void)wait;
	if (n)
		*msg = message(t->rx[0], len);
	return (int)n;
}

static inline int tr_reply(struct tr *t, int i, uint8_t *msg, uint32_t len)
{
	struct pv_pkt *p = t->spare[t->spares - 1];
	int rc;

	(void)i;
	frame_turn(p->data, msg - FRAME_HLEN, t->ring->caps.mac, msg, len);
	p->len = p->total = FRAME_HLEN + len;
	do {
		rc = post(t, 1);
	} while (rc == 0 && !bench_stop);
	return rc < 0 ? rc : 0;
}

static inline void tr_done(struct tr *t, uint32_t n)
{
	pv_ring_rx_post(t->ring, t->rx, n);
}

#include "bench/loops.h"

static void *heap_alloc(void *ctx, size_t size)
{
	size_t rounded = (size + PV_CACHELINE - 1) & ~(size_t)(PV_CACHELINE - 1);
	void *p = aligned_alloc(PV_CACHELINE, rounded);

	(void)ctx;
	return p ? memset(p, 0, rounded) : NULL;
}

static void heap_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	(void)size;
	free(p);
}

static void *dma_alloc(void *ctx, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)ctx;
	return p == MAP_FAILED ? NULL : p;
}

static void dma_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	munmap(p, size);
}

/* Packets to receive into go to the ring, the rest stays here with its headers. */
static int fill(struct tr *t, const struct bench_opts *o)
{
	struct pv_pkt *p;

	if (t->ring->caps.queues > QUEUES_MAX)
		return bench_fail("the interface has more queues than this program receives from", 0);
	for (uint32_t i = 0; i < t->ring->caps.rx_depth; i++) {
		p = pv_pkt_get(t->pool);
		if (!p || !pv_ring_rx_post(t->ring, &p, 1))
			return bench_fail("receive queue", 0);
	}
	while (t->spares < TX_PACKETS && (p = pv_pkt_get(t->pool)) != NULL) {
		frame_make(p->data, o, t->ring->caps.mac);
		p->len = p->total = FRAME_HLEN + o->size;
		t->spare[t->spares++] = p;
	}
	return t->spares == TX_PACKETS ? 0 : bench_fail("send packets", 0);
}

static int steer(struct tr *t, const struct bench_opts *o)
{
	const struct sockaddr_in *local = (const struct sockaddr_in *)(const void *)&o->local;
	struct pv_flow flow = { .kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst_port = ntohs(local->sin_port) };
	int rc;

	flow.dst = pv_addr_from4(&local->sin_addr);
	rc = pv_ring_flow_add(t->ring, &flow, &t->rule);
	return rc ? bench_fail("flow rule", rc) : 0;
}

static int open_ring(struct tr *t, const struct bench_opts *o)
{
	static const struct pv_mem mem = { .alloc = heap_alloc, .free = heap_free, .alloc_dma = dma_alloc, .free_dma = dma_free };
	struct pv_xdp_cfg cfg = { .ifname = o->device };
	struct pv_pool_cfg pool = { 0 };
	char err[256] = "";
	int rc = pv_xdp_pool_cfg(&cfg, &pool, err, sizeof(err));

	if (rc)
		return bench_fail(err, 0);
	cfg.rx_depth = RX_PACKETS;
	cfg.tx_depth = TX_PACKETS;
	pool.count = pool.max = QUEUES_MAX * RX_PACKETS + TX_PACKETS;
	rc = pv_pool_open(&t->pool, &mem, &pool);
	if (rc)
		return bench_fail("packet pool", rc);
	rc = pv_xdp_open(&t->ring, &mem, t->pool, &cfg, err, sizeof(err));
	if (rc)
		return bench_fail(err, 0);
	if (FRAME_HLEN - 14 + o->size > t->ring->caps.mtu)
		return bench_fail("raw: a message must fit into one frame", 0);
	return fill(t, o) || steer(t, o);
}

int bench_run_xdp(const struct bench_opts *o, struct bench_result *r)
{
	static struct tr t;
	struct bench_opts spins = *o;
	int rc;

	spins.block = false;
	if (!o->device || !o->local.ss_family)
		return bench_fail("raw: --device and --local are needed", 0);
	if (o->local.ss_family != AF_INET || (o->remote.ss_family && o->remote.ss_family != AF_INET))
		return bench_fail("raw: IPv4 only", 0);
	rc = open_ring(&t, o);
	if (!rc && o->role == ROLE_SERVER)
		bench_ready(o, t.ring->caps.mac);
	rc = rc || run_role(&t, &spins, r);
	if (t.ring)
		pv_ring_close(t.ring);
	return rc;
}

/* One 3-tuple rule a port, then none again. */
static int count_rules(struct pv_ring *ring, uint32_t count, uint64_t *handle)
{
	struct pv_flow flow = { .kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst = pv_addr_from4("\xc6\x33\x64\x01") };
	int64_t start = bench_now_ns(), added, deleted;

	for (uint32_t i = 0; i < count; i++) {
		int rc;

		flow.dst_port = (uint16_t)(1024 + i);
		rc = pv_ring_flow_add(ring, &flow, &handle[i]);
		if (rc)
			return bench_fail("flow rule", rc);
	}
	added = bench_now_ns();
	for (uint32_t i = 0; i < count; i++) {
		int rc = pv_ring_flow_del(ring, handle[i]);

		if (rc)
			return bench_fail("flow rule", rc);
	}
	deleted = bench_now_ns();
	printf("{\"rules\": %u, \"added_per_s\": %.0f, \"deleted_per_s\": %.0f}\n", count, count * 1e9 / (double)(added - start),
	       count * 1e9 / (double)(deleted - added));
	return 0;
}

int bench_rules(const struct bench_opts *o)
{
	static struct tr t;
	uint64_t *handle = calloc(o->rules, sizeof(*handle));
	struct bench_opts any = *o;
	int rc;

	any.local.ss_family = AF_INET;
	rc = handle && o->device ? open_ring(&t, &any) : bench_fail("rules: --device is needed", 0);
	rc = rc || count_rules(t.ring, o->rules, handle);
	if (t.ring)
		pv_ring_close(t.ring);
	free(handle);
	return rc;
}

#else

int bench_rules(const struct bench_opts *o)
{
	(void)o;
	return bench_fail("rules: built without libbpf's headers or clang", 0);
}

int bench_run_xdp(const struct bench_opts *o, struct bench_result *r)
{
	(void)o;
	(void)r;
	return bench_fail("raw: built without libbpf's headers or clang", 0);
}

#endif
