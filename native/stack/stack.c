/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One turn of the engine. An idle turn is one rx_poll a ring and a comparison with the next deadline; everything else happens only
 * when there is a reason: sends are reaped when some are outstanding and nothing was received (or many are outstanding), receive
 * buffers are posted again in batches, doorbells rung after work that may have posted.
 */
#include "stack/stack.h"

#include <errno.h>

#define TIMER_BUDGET 32u
#define LOOP_BUDGET 32u
/* Sends outstanding before a busy turn spends time on reaping; and how often an idle one asks again for what was not ready before. */
#define REAP_AT 32u
#define REAP_AGAIN 16u
/* How soon a caller that sleeps comes back to see whether packets have returned to an empty pool. */
#define ROOM_RETRY_NS PV_NS_PER_MS

struct stack_ring {
	struct pv_ring *ring;
	uint32_t iface;
	uint32_t want; /* receive buffers that it should have; ring->rx_more: and has not */
	uint32_t refill_at; /* how many must be missing to be worth a call */
	uint32_t left; /* sends that were outstanding after the last reaping */
};

struct pv_stack {
	struct pv_net *net;
	struct pv_udp_table *udp;
	struct pv_tcp_table *tcp;
	uint32_t nrings, turn; /* turn: counts the polls; also says which ring is asked first */
	uint32_t rx_batch;
	struct stack_ring rings[PV_IFACE_MAX];
	const struct pv_mem *mem;
};

void pv_stack_set_rx_batch(struct pv_stack *s, uint32_t rx_batch)
{
	s->rx_batch = rx_batch ? PV_MIN(rx_batch, PV_RING_BATCH_MAX) : 32;
}

int pv_stack_open(struct pv_stack **out, const struct pv_stack_cfg *cfg)
{
	struct pv_net_cfg net = cfg->net;
	struct pv_udp_cfg udp = cfg->udp;
	struct pv_tcp_cfg tcp = cfg->tcp;
	struct pv_stack *s;
	int rc;

	s = cfg->mem->alloc(cfg->mem->ctx, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->mem = cfg->mem;
	pv_stack_set_rx_batch(s, cfg->rx_batch);
	net.mem = cfg->mem;
	net.seed = cfg->seed;
	udp.seed = cfg->seed ^ UINT64_C(0x9e3779b97f4a7c15);
	tcp.seed = cfg->seed ^ UINT64_C(0xbf58476d1ce4e5b9);
	rc = pv_net_open(&s->net, &net);
	if (rc)
		goto out;
	rc = pv_udp_table_open(&s->udp, s->net, cfg->mem, &udp);
	if (rc)
		goto out_net;
	rc = pv_tcp_table_open(&s->tcp, s->net, cfg->mem, &tcp);
	if (rc)
		goto out_udp;
	*out = s;
	return 0;
out_udp:
	pv_udp_table_close(s->udp);
out_net:
	pv_net_close(s->net);
out:
	cfg->mem->free(cfg->mem->ctx, s, sizeof(*s));
	return rc;
}

void pv_stack_close(struct pv_stack *s)
{
	const struct pv_mem *mem;

	if (!s)
		return;
	while (s->nrings)
		(void)pv_stack_iface_del(s, s->rings[0].iface);
	pv_tcp_table_close(s->tcp);
	pv_udp_table_close(s->udp);
	pv_net_close(s->net);
	mem = s->mem;
	mem->free(mem->ctx, s, sizeof(*s));
}

struct pv_net *pv_stack_net(struct pv_stack *s)
{
	return s->net;
}

struct pv_udp_table *pv_stack_udp(struct pv_stack *s)
{
	return s->udp;
}

struct pv_tcp_table *pv_stack_tcp(struct pv_stack *s)
{
	return s->tcp;
}

/* ---- receive buffers --------------------------------------------------------------------------------------------------- */

/* A quarter of the pool stays for sending: a ring that holds every packet would silence its own stack. */
static void set_want(struct stack_ring *sr)
{
	uint32_t was = sr->want;
	struct pv_pool_stats st;

	pv_pool_get_stats(sr->ring->pool, &st);
	sr->want = PV_MIN(sr->ring->caps.rx_depth, st.total - st.total / 4);
	sr->ring->rx_more += sr->want - was;
	sr->refill_at = PV_MAX(1u, PV_MIN(32u, sr->want / 4));
}

static uint32_t collect(struct pv_pool *pool, struct pv_pkt **pkts, uint32_t n)
{
	struct pv_pkt *p = pv_pkt_get_bulk(pool, n);
	uint32_t i = 0;

	for (; p; i++) {
		pkts[i] = p;
		p = p->next;
	}
	if (i)
		return i;
	/* Fewer than that are left: what there is. */
	while (i < n && (pkts[i] = pv_pkt_get(pool)))
		i++;
	return i;
}

static pv_noinline void refill(const struct pv_net *net, struct stack_ring *sr)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	struct pv_ring *ring = sr->ring;

	/* What came before the next pv_stack_grow would stay in the ring's buffers. No device has to learn of a store. */
	if (ring->pool->store && pv_unlikely(pv_pool_wants_growth(ring->pool)))
		(void)pv_pool_grow(ring->pool);
	while (ring->rx_more) {
		uint32_t n = collect(ring->pool, pkts, PV_MIN(ring->rx_more, PV_RING_BATCH_MAX));
		uint32_t k = n ? pv_ring_rx_post(ring, pkts, n) : 0;

		ring->rx_more -= k;
		for (uint32_t i = k; i < n; i++)
			pv_pkt_put(pkts[i]);
		if (!k) {
			if (!n)
				pv_trace_note(pv_net_trace(net), .kind = PV_TRACE_starved, .a = 0, .b = ring->rx_more,
					      .iface = (uint8_t)sr->iface);
			return;
		}
	}
}

/* ---- interfaces -------------------------------------------------------------------------------------------------------- */

static void steer_changed(struct pv_stack *s)
{
	pv_udp_steer_changed(s->udp);
	pv_tcp_steer_changed(s->tcp);
}

int pv_stack_iface_add(struct pv_stack *s, const struct pv_iface_cfg *cfg)
{
	struct stack_ring *sr;
	int index;

	if (s->nrings == PV_IFACE_MAX)
		return -ENOSPC;
	if (!cfg->ring || pv_pool_config(cfg->ring->pool)->headroom < PV_NET_HEADROOM)
		return -EINVAL;
	/* What a ring brings is polled and counted by one interface. */
	for (uint32_t i = 0; i < s->nrings; i++)
		if (s->rings[i].ring == cfg->ring)
			return -EBUSY;
	index = pv_net_iface_add(s->net, cfg);
	if (index < 0)
		return index;
	sr = &s->rings[s->nrings++];
	*sr = (struct stack_ring){ .ring = cfg->ring, .iface = (uint32_t)index };
	sr->ring->rx_more = 0;
	set_want(sr);
	refill(s->net, sr);
	/* Only now: what a rule brings finds buffers. */
	if (cfg->steer == PV_STEER_SOCKET)
		steer_changed(s);
	return index;
}

int pv_stack_iface_del(struct pv_stack *s, uint32_t index)
{
	uint32_t i;

	for (i = 0; i < s->nrings && s->rings[i].iface != index; i++)
		;
	if (i == s->nrings)
		return -ENODEV;
	pv_udp_iface_gone(s->udp, index);
	pv_tcp_iface_gone(s->tcp, index);
	s->rings[i] = s->rings[--s->nrings];
	return pv_net_iface_del(s->net, index);
}

int pv_stack_iface_set(struct pv_stack *s, uint32_t index, const struct pv_iface_state *state)
{
	int rc = pv_net_iface_set(s->net, index, state);

	if (!rc)
		steer_changed(s);
	return rc;
}

int pv_stack_iface_fail(struct pv_stack *s, uint32_t index)
{
	int rc = pv_net_iface_fail(s->net, index);

	if (!rc && pv_iface_config(pv_net_iface(s->net, index))->steer == PV_STEER_ADDRESS)
		pv_udp_iface_failed(s->udp, index);
	return rc;
}

int pv_stack_iface_moved(struct pv_stack *s, uint32_t index, int64_t now_ns)
{
	int rc = pv_net_iface_moved(s->net, index, now_ns);

	if (!rc)
		pv_tcp_iface_moved(s->tcp, index, now_ns);
	return rc;
}

/* ---- a turn ------------------------------------------------------------------------------------------------------------ */

static pv_noinline void input_error(struct pv_stack *s, struct pv_pkt *pkt, int64_t now_ns)
{
	const struct pv_net_error *err = pv_net_rx_error(s->net);

	if (err->proto == PV_PROTO_UDP)
		pv_udp_rx_error(s->udp, err);
	else if (err->proto == PV_PROTO_TCP)
		pv_tcp_rx_error(s->tcp, err, now_ns);
	pv_pkt_put(pkt);
}

enum place { LOOPED, ALONE, AMONG_MANY, LAST_OF_MANY };

pv_inline void input(struct pv_stack *s, uint32_t iface, struct pv_pkt *pkt, enum place place, int64_t now_ns)
{
	enum pv_rx_verdict v;

	if (place != LOOPED)
		PV_PROBE4(ring_in, iface, pkt, pkt->data, pkt->len);
	v = pv_net_rx(s->net, iface, &pkt, now_ns);
	if (pv_likely(v == PV_RX_UDP))
		pv_udp_rx(s->udp, pkt, now_ns);
	else if (pv_likely(v == PV_RX_TCP && place <= ALONE))
		pv_tcp_rx(s->tcp, pkt, now_ns);
	else if (pv_likely(v == PV_RX_TCP))
		pv_tcp_rx_of_many(s->tcp, pkt, place == LAST_OF_MANY, now_ns);
	else if (v == PV_RX_ERROR)
		input_error(s, pkt, now_ns);
}

static pv_noinline void input_many(struct pv_stack *s, uint32_t iface, struct pv_pkt **pkts, uint32_t n, int64_t now_ns)
{
	struct pv_pkt **last = pkts + n - 1;

	for (; pkts < last; pkts++) {
		pv_prefetch(pkts[1]->data);
		input(s, iface, *pkts, AMONG_MANY, now_ns);
	}
	input(s, iface, *pkts, LAST_OF_MANY, now_ns);
	if (pv_tcp_gathered(s->tcp))
		pv_tcp_rx_flush(s->tcp);
}

/* At most one batch; returns the number of frames. */
pv_inline uint32_t receive(struct pv_stack *s, struct stack_ring *sr, int64_t now_ns, uint32_t budget)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	uint32_t n = pv_ring_rx_poll(sr->ring, pkts, PV_MIN(budget, s->rx_batch));

	if (pv_likely(!n))
		return 0;
	sr->ring->rx_more += n;
	if (pv_unlikely(n > sr->ring->stat->rx_drained_max))
		sr->ring->stat->rx_drained_max = n;
	pv_prefetch(pkts[0]->data);
	if (n > 1)
		input_many(s, sr->iface, pkts, n, now_ns);
	else
		input(s, sr->iface, pkts[0], ALONE, now_ns);
	return n;
}

/* Every ring gets a batch in turn until none has more or the budget is spent; the next call starts with the next ring. */
static pv_noinline uint32_t receive_all(struct pv_stack *s, int64_t now_ns, uint32_t budget)
{
	uint32_t done = 0, idle = 0, at;

	if (!s->nrings)
		return 0;
	at = s->turn % s->nrings;
	while (idle < s->nrings && done < budget) {
		uint32_t n = receive(s, &s->rings[at], now_ns, budget - done);

		done += n;
		idle = n ? 0 : idle + 1;
		at = at + 1 < s->nrings ? at + 1 : 0;
	}
	return done;
}

/* Returns the number of packets that came back. */
static pv_noinline uint32_t reap(struct pv_net *net, struct stack_ring *sr)
{
	struct pv_trace *stations = pv_net_stations(net);
	struct pv_ring *ring = sr->ring;
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	uint32_t all = 0, n;

	do {
		n = pv_ring_tx_reap(ring, pkts, PV_RING_BATCH_MAX);
		for (uint32_t i = 0; i < n; i++) {
			PV_PROBE2(completed, sr->iface, pkts[i]);
			if (pv_unlikely(stations != NULL))
				pv_trace_note(stations, .kind = PV_TRACE_completed, .id = (uintptr_t)pkts[i],
					      .iface = (uint8_t)sr->iface);
			pv_net_tx_done(net, pkts[i]);
		}
		all += n;
	} while (n == PV_RING_BATCH_MAX);
	sr->left = ring->tx_pending;
	return all;
}

/* Whoever met -ENOBUFS may try again once a ring took or gave back something, or its pool has packets. */
static pv_noinline void give_room(struct pv_stack *s, int64_t now_ns, bool reaped)
{
	bool room = reaped;

	for (uint32_t r = 0; r < s->nrings && !room; r++) {
		struct pv_ring *ring = s->rings[r].ring;
		struct pv_pool_stats st;

		pv_pool_get_stats(ring->pool, &st);
		room = st.free && ring->tx_pending < ring->caps.tx_depth;
	}
	if (!room)
		return;
	pv_udp_room(s->udp);
	if (pv_tcp_waiting(s->tcp))
		pv_tcp_room(s->tcp, now_ns);
}

static pv_noinline uint32_t loop(struct pv_stack *s, int64_t now_ns)
{
	struct pv_pkt *pkt;
	uint32_t n = 0, iface;

	for (; n < LOOP_BUDGET && (pkt = pv_net_loop_get(s->net, &iface)); n++)
		input(s, iface, pkt, LOOPED, now_ns);
	return n;
}

/* True when it is time to ask for completed sends. Rings that complete at once are asked after every send, so that the same buffer,
 * still in the cache, is the next one used; of a device that takes its time not every idle turn asks. */
pv_inline bool reap_due(const struct pv_stack *s, const struct stack_ring *sr, bool busy)
{
	uint32_t pending = sr->ring->tx_pending;

	if (pv_likely(!pending))
		return false;
	if (busy)
		return pending >= REAP_AT;
	return pending != sr->left || s->turn % REAP_AGAIN == 0;
}

pv_inline bool room_wanted(const struct pv_stack *s)
{
	return pv_udp_waiting(s->udp) || pv_tcp_waiting(s->tcp);
}

/* After the frames: what was sent comes back, what was used up is posted again. */
pv_inline void tend(struct pv_stack *s, int64_t now_ns, uint32_t done)
{
	bool waiting = room_wanted(s), reaped = false;

	for (uint32_t r = 0; r < s->nrings; r++) {
		struct stack_ring *sr = &s->rings[r];

		if (reap_due(s, sr, done) || pv_unlikely(waiting))
			reaped |= reap(s->net, sr) != 0;
		if (pv_unlikely(sr->ring->rx_more >= sr->refill_at))
			refill(s->net, sr);
	}
	if (pv_unlikely(waiting))
		give_room(s, now_ns, reaped);
}

static pv_noinline uint32_t due(struct pv_stack *s, int64_t now_ns)
{
	uint32_t n = 0;

	if (pv_net_deadline(s->net) <= now_ns)
		n = loop(s, now_ns) + pv_net_timers(s->net, now_ns, TIMER_BUDGET);
	if (pv_tcp_deadline(s->tcp) <= now_ns)
		n += pv_tcp_timers(s->tcp, now_ns, TIMER_BUDGET);
	if (pv_tcp_owes(s->tcp))
		pv_tcp_rx_done(s->tcp, now_ns);
	pv_tcp_settle(s->tcp);
	return n;
}

static int64_t deadline(const struct pv_stack *s)
{
	int64_t net = pv_net_deadline(s->net), tcp = pv_tcp_deadline(s->tcp);

	return PV_MIN(net, tcp);
}

uint32_t pv_stack_poll(struct pv_stack *s, int64_t now_ns, uint32_t rx_budget)
{
	struct stack_ring *sr = &s->rings[0];
	uint32_t done;

	pv_udp_set_now(s->udp, now_ns);
	s->turn++;
	if (pv_likely(s->nrings == 1)) {
		done = receive(s, sr, now_ns, rx_budget);
		if (pv_unlikely(done == s->rx_batch && done < rx_budget))
			done += receive_all(s, now_ns, rx_budget - done);
	} else {
		done = receive_all(s, now_ns, rx_budget);
	}
	if (pv_unlikely(pv_tcp_wake(s->tcp) <= now_ns || pv_net_deadline(s->net) <= now_ns))
		done += due(s, now_ns);
	/* What a spinning caller meets nearly always. Whoever waits for room in TCP was due. */
	else if (pv_likely(!done && s->nrings == 1 && !reap_due(s, sr, false) && sr->ring->rx_more < sr->refill_at &&
			   !pv_udp_waiting(s->udp) && !pv_net_dirty(s->net)))
		return 0;
	tend(s, now_ns, done);
	if (pv_net_dirty(s->net))
		(void)pv_net_kick(s->net);
	return done;
}

int64_t pv_stack_deadline(const struct pv_stack *s)
{
	if (pv_net_dirty(s->net) || pv_tcp_owes(s->tcp))
		return 0;
	if (room_wanted(s) || pv_net_stamps_due(s->net, pv_udp_now(s->udp)))
		return PV_MIN(deadline(s), pv_udp_now(s->udp) + ROOM_RETRY_NS);
	return deadline(s);
}

uint32_t pv_stack_events(struct pv_stack *s, struct pv_event *out, uint32_t n)
{
	uint32_t k = pv_udp_ready(s->udp) ? pv_udp_events(s->udp, out, n) : 0;

	return pv_tcp_ready(s->tcp) ? k + pv_tcp_events(s->tcp, out + k, n - k) : k;
}

uint32_t pv_stack_grow(struct pv_stack *s)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < s->nrings; r++) {
		struct stack_ring *sr = &s->rings[r];

		if (pv_pool_wants_growth(sr->ring->pool) && !pv_pool_grow(sr->ring->pool)) {
			set_want(sr);
			n++;
		}
		refill(s->net, sr);
	}
	return n;
}

void pv_stack_trace_packets(struct pv_stack *s, bool on)
{
	struct pv_trace *t = on ? pv_net_trace(s->net) : NULL;

	pv_net_trace_packets(s->net, t);
	pv_udp_trace_packets(s->udp, t);
	pv_tcp_trace_packets(s->tcp, t);
}
