/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pacing (SO_MAX_PACING_RATE).
 *
 * By the device, where it gives the connection a transmit queue that is held to the rate (net/txq.h): all that carries sequence space goes
 * by it, while pure acknowledgements need not wait. What waits there cannot be taken back and lengthens the round trip, so it is bounded,
 * as by Linux's TCP small queues: two segments, or what leaves within a few milliseconds, for whoever refills it may have to be woken.
 *
 * Else by us: each segment has a time before which it does not go, the one of the segment before it and what that takes at the rate. The
 * wheel comes up to a tick late, and a busy application later still; what time was lost while segments waited is made up for, at most a
 * millisecond of it, as Linux's fq does. Time in which nothing waited gives no credit, unless the program named a burst: then the frames go
 * by a queue that counts their bytes and knows when they left (net/txq.h), and are bounded in it as in a device's. There what is held is
 * taken for sent, too: at low rates it is one segment, lest it time out before it has left.
 */
#include "tcp/tcp_int.h"

#define CREDIT_NS PV_NS_PER_MS
#define QUEUED_NS (4 * PV_NS_PER_MS)
#define QUEUED_SEGS 2u
/* Of those, by us, no more than leave in a time well below any timeout; but one. */
#define HELD_NS (50 * PV_NS_PER_MS)
#define RETRY_NS (50 * PV_NS_PER_US)
/* Not paced any more, but the queue is not empty yet: nothing may overtake what is in it. */
#define RATE_LEAVING (UINT64_MAX - 1)

/* What the link carries besides the payload, roughly: Linux paces whole frames, too. */
pv_inline uint32_t on_wire(const struct pv_tcp *c, uint32_t len)
{
	return len + (c->path.is4 ? 20u : 40u) + PV_TCP_HLEN + (c->flags & PV_TF_TS ? 12u : 0u) + c->path.l2_len;
}

static struct pv_pacing wanted(const struct pv_tcp *c)
{
	return (struct pv_pacing){ .rate = c->opts.pacing_rate, .burst = c->opts.pacing_burst, .typical = c->opts.pacing_packet };
}

pv_inline bool is_wanted(const struct pv_tcp *c)
{
	return c->opts.pacing_rate && c->opts.pacing_rate != UINT64_MAX;
}

/* ---- by a queue ------------------------------------------------------------------------------------------------------------- */

static bool by_queue(const struct pv_tcp *c)
{
	struct pv_txq_info info;

	pv_txq_info(c->txq, &info);
	return info.by != PV_TXQ_UNPACED;
}

/* Asks the device of the present path, once for each path and rate. */
static void queue_ask(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_pacing p = wanted(c);
	struct pv_txq_cfg cfg = { .iface = c->path.iface, .from = c->path.txq, .device_only = true };
	struct pv_txq_info info;
	struct pv_txq *q;

	c->pace_iface = (uint8_t)c->path.iface;
	c->pace_why = c->path.is_local ? PV_TXQ_NO_PACING : (uint8_t)pv_txq_check(&c->path.ring->caps, &p);
	if (c->path.is_local || (c->pace_why && !p.burst))
		return;
	if (pv_txq_open(c->t->net, &cfg, &q)) {
		c->pace_why = PV_TXQ_REFUSED;
		return;
	}
	pv_txq_set(q, &p, now_ns);
	pv_txq_info(q, &info);
	c->pace_why = (uint8_t)info.why;
	if (info.by == PV_TXQ_UNPACED)
		pv_txq_close(q, now_ns);
	else
		c->txq = q;
}

static void queue_tell(struct pv_tcp *c, const struct pv_pacing *p, int64_t now_ns)
{
	struct pv_txq_info info;

	pv_txq_set(c->txq, p, now_ns);
	pv_txq_info(c->txq, &info);
	c->pace_why = (uint8_t)info.why;
}

/* Another interface, or another way out by the same one. Then what is in the queue is in front of all that comes, and counts. */
static void queue_again(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_pacing p = wanted(c);

	if (!c->txq || c->path.is_local || pv_txq_iface(c->txq) != c->path.iface) {
		pv_tcp_pace_end(c);
		queue_ask(c, now_ns);
		return;
	}
	c->pace_iface = (uint8_t)c->path.iface;
	queue_tell(c, &p, now_ns);
}

static bool queue_waits(struct pv_tcp *c, int64_t now_ns)
{
	uint64_t least = (uint64_t)QUEUED_SEGS * on_wire(c, c->mss), rate = PV_MIN(c->pacing_rate, UINT64_C(1) << 40), limit;
	struct pv_txq_info info;
	int64_t ns;

	pv_txq_info(c->txq, &info);
	if (info.by == PV_TXQ_SOFTWARE)
		least = PV_MIN(least, rate / (uint64_t)(PV_NS_PER_S / HELD_NS) + 1);
	limit = PV_MAX(least, rate / (uint64_t)(PV_NS_PER_S / QUEUED_NS));
	ns = pv_txq_wait_ns(c->txq, (uint32_t)PV_MIN(limit, (uint64_t)INT32_MAX), now_ns);
	if (ns)
		pv_tcp_timer_set(c, PV_TT_PACE, now_ns + ns);
	return ns != 0;
}

/* It is not by the queue any more: by us segment for segment, or by nobody, once what is in it has left. */
static bool leaves_queue(struct pv_tcp *c, int64_t now_ns)
{
	if (!pv_txq_settled(c->txq)) {
		pv_tcp_timer_set(c, PV_TT_PACE, now_ns + RETRY_NS);
		return true;
	}
	pv_txq_close(c->txq, now_ns);
	c->txq = NULL;
	c->pacing_rate = is_wanted(c) ? c->opts.pacing_rate : UINT64_MAX;
	c->pace_next_ns = now_ns;
	return false;
}

/* ---- what the rest calls -------------------------------------------------------------------------------------------------------- */

static void queue_set(struct pv_tcp *c, const struct pv_pacing *p, int64_t now_ns)
{
	struct pv_txq_info info;

	pv_txq_info(c->txq, &info);
	if (info.pacing.rate == p->rate && info.pacing.burst == p->burst && info.pacing.typical == p->typical)
		return;
	queue_tell(c, p, now_ns);
}

void pv_tcp_pace_changed(struct pv_tcp *c, int64_t now_ns)
{
	uint64_t rate = is_wanted(c) ? c->opts.pacing_rate : c->txq ? RATE_LEAVING : UINT64_MAX;
	struct pv_pacing p = wanted(c);

	if (rate == UINT64_MAX && c->pacing_rate == UINT64_MAX)
		return;
	if (rate != c->pacing_rate) {
		c->pacing_rate = rate;
		c->pace_next_ns = now_ns;
		pv_tcp_timer_set(c, PV_TT_PACE, PV_NEVER);
	}
	if (c->txq)
		queue_set(c, &p, now_ns);
	else if (is_wanted(c) && c->path.gen)
		queue_ask(c, now_ns);
}

void pv_tcp_pace_end(struct pv_tcp *c)
{
	if (c->txq)
		pv_txq_close(c->txq, c->t->head.now_ns);
	c->txq = NULL;
	c->pace_iface = 0;
}

void pv_tcp_pace_begin(struct pv_tcp *c, bool late, int64_t now_ns)
{
	int64_t credit = 0;

	if (pv_unlikely(c->pace_iface != c->path.iface) && is_wanted(c))
		queue_again(c, now_ns);
	if (c->txq)
		return;
	/* One with a burst is here only when there was no memory for a queue, or within the host. */
	if (!c->opts.pacing_burst && (late || c->deadline_ns[PV_TT_PACE] != PV_NEVER))
		credit = CREDIT_NS;
	c->pace_next_ns = PV_MAX(c->pace_next_ns, now_ns - credit);
}

bool pv_tcp_pace_wait(struct pv_tcp *c, int64_t now_ns)
{
	if (c->txq && by_queue(c))
		return queue_waits(c, now_ns);
	if (c->txq && leaves_queue(c, now_ns))
		return true;
	if (c->pacing_rate == UINT64_MAX || c->pace_next_ns <= now_ns)
		return false;
	pv_tcp_timer_set(c, PV_TT_PACE, c->pace_next_ns);
	return true;
}

/* One, or, where several leave as one packet, what goes in a millisecond, as by Linux's tcp_tso_autosize. */
uint32_t pv_tcp_pace_burst(const struct pv_tcp *c)
{
	uint64_t segs = c->path.joins && !c->opts.pacing_burst ? (c->pacing_rate >> 10) / on_wire(c, c->mss) : 1;

	return (uint32_t)PV_MIN(PV_MAX(segs, UINT64_C(1)), (uint64_t)UINT32_MAX);
}

void pv_tcp_pace_sent(struct pv_tcp *c, uint32_t len)
{
	/* A segment of 64 KiB at a byte a second: still no overflow. */
	uint64_t ns = (uint64_t)on_wire(c, len) * (uint64_t)PV_NS_PER_S / c->pacing_rate;

	if (!c->txq)
		c->pace_next_ns += (int64_t)ns;
}

uint32_t pv_tcp_iface(const struct pv_tcp *c)
{
	return c->path.gen ? c->path.iface : 0;
}

bool pv_tcp_pacing_info(const struct pv_tcp *c, struct pv_txq_info *out)
{
	if (c->txq) {
		pv_txq_info(c->txq, out);
		if (out->by == PV_TXQ_UNPACED && is_wanted(c))
			out->by = PV_TXQ_SOFTWARE;
		return true;
	}
	if (c->pacing_rate == UINT64_MAX || !c->pace_iface)
		return false;
	*out = (struct pv_txq_info){ .pacing = wanted(c), .iface = c->pace_iface, .by = PV_TXQ_SOFTWARE, .why = c->pace_why };
	return true;
}
