/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paced queues. Each frame has a time before which it does not go: the one of the frame before it and what that takes at the rate. A
 * timer comes late, and a busy application later still; what time was lost while frames waited is made up for, at most a millisecond of
 * it, as Linux's fq does. Time in which nothing waited gives no credit, unless the sender named a burst: then the queue is a bucket of so
 * many bytes that drains at the rate, and next_ns the time at which it will be empty. An empty bucket begins to drain when its frames have
 * left: by the turn's time alone they would seem to have left before they did, and what comes next would be ahead of the rate.
 *
 * By the device frames go to it as they come, and here only their lengths are kept, to tell how much waits there.
 */
#include "net/txq.h"

#include "net/internal.h"

#define CREDIT_NS PV_NS_PER_MS
/* The ring took no more, or another queue is not empty yet. */
#define RETRY_NS (50 * PV_NS_PER_US)
#define LOOK_MAX_NS (20 * PV_NS_PER_MS)
/* The first queue is shared, and may never be seen empty: what a sender left there is gone by then. A lane's is exact, but may be shared, too. */
#define FENCE_NS PV_NS_PER_MS
#define LANE_FENCE_NS (20 * PV_NS_PER_MS)
#define POSTED_MAX 512u /* frames that a device has of one queue */

struct pv_txq {
	struct pv_net_timer timer;
	struct pv_hnode node; /* net->txqs, by id */
	struct pv_list all, link; /* net->txq_all; the owner's */
	struct pv_net *net;
	struct pv_ring *ring;
	struct pv_txq_cfg cfg;
	uint64_t id;
	struct pv_pacing pacing;
	uint8_t by, why, devq; /* devq: the ring's queue; 0: none */
	bool draining; /* devq is given back as soon as it is empty; until then nothing goes by another one */
	bool closing; /* no owner: freed when empty, the device's queue, too */
	bool room_wanted;
	int64_t next_ns; /* software: not before; with a burst: the bucket is empty */
	uint64_t frac; /* with a burst: and frac / rate nanoseconds more */
	struct pv_list going; /* net->txq_going, with a burst: posted, into a bucket empty at empty_ns, waits for the doorbell */
	int64_t empty_ns;
	int64_t fence_ns; /* until then wait for what was sent by the first queue; 0: no need */
	struct pv_pktq held;
	uint32_t held_bytes;
	uint32_t posted, done; /* frames given to devq; known to have left */
	uint32_t bytes, left; /* given to devq; of them those that are known to have left */
	uint32_t end[POSTED_MAX]; /* of frame i: `bytes` behind it */
};

static int64_t time_of(const struct pv_txq *q, uint64_t bytes)
{
	return (int64_t)(bytes * (uint64_t)PV_NS_PER_S / q->pacing.rate);
}

/* A burst has just left: what a device let go counts, too, when we keep the rate from now on. */
static void fill(struct pv_txq *q, int64_t now_ns)
{
	q->next_ns = now_ns + time_of(q, q->pacing.burst);
}

/* ---- the device -------------------------------------------------------------------------------------------------------- */

/* Rounded to a kbit/s where that is as good as the same. */
static enum pv_txq_why to_device(const struct pv_ring_caps *caps, const struct pv_pacing *p, struct pv_ring_rate *out)
{
	uint64_t kbps = p->rate / 125 + (p->rate % 125 >= 63), back = kbps * 125;

	if (!caps->pacing_max_kbps)
		return PV_TXQ_NO_PACING;
	if (p->rate / 125 < PV_MAX(caps->pacing_min_kbps, 1u))
		return PV_TXQ_BELOW;
	if (kbps > caps->pacing_max_kbps)
		return PV_TXQ_ABOVE;
	if ((back > p->rate ? back - p->rate : p->rate - back) > p->rate / 100)
		return PV_TXQ_STEP;
	if (p->burst && !caps->pacing_burst)
		return PV_TXQ_NO_BURST;
	*out = (struct pv_ring_rate){ .kbps = kbps, .burst_bytes = p->burst, .typical_len = p->typical };
	return PV_TXQ_OK;
}

enum pv_txq_why pv_txq_check(const struct pv_ring_caps *caps, const struct pv_pacing *pacing)
{
	struct pv_ring_rate rate;

	return pv_pacing_on(pacing) ? to_device(caps, pacing, &rate) : PV_TXQ_OK;
}

/* May something of the owner's that was not paced be out still? */
static bool fenced(const struct pv_txq *q)
{
	return pv_ring_txq_pending(q->ring, q->cfg.from) || (!q->cfg.from && q->ring->tx_pending);
}

static enum pv_txq_why devq_open(struct pv_txq *q, const struct pv_ring_rate *rate, int64_t now_ns)
{
	int rc = pv_net_txq_open(q->ring, rate);

	if (rc <= 0)
		return rc == -ENOSPC ? PV_TXQ_NO_QUEUE : rc == -EOPNOTSUPP ? PV_TXQ_NO_PACING : PV_TXQ_REFUSED;
	q->devq = (uint8_t)rc;
	q->fence_ns = !fenced(q) ? 0 : now_ns + (q->cfg.from ? LANE_FENCE_NS : FENCE_NS);
	return PV_TXQ_OK;
}

static void devq_close(struct pv_txq *q)
{
	if (q->devq)
		(void)pv_net_txq_close(q->ring, q->devq);
	q->devq = 0;
	q->done = q->posted;
	q->left = q->bytes;
	q->draining = false;
}

void pv_txq_look(struct pv_txq *q)
{
	uint32_t out = q->posted - q->done, still;

	if (!out)
		return;
	still = PV_MIN(out, pv_ring_txq_pending(q->ring, q->devq));
	if (still == out)
		return;
	q->done = q->posted - still;
	q->left = q->end[(q->done - 1) % POSTED_MAX];
}

/* Is there another queue that must be empty first? */
static bool must_wait(struct pv_txq *q, int64_t now_ns)
{
	if (q->draining) {
		pv_txq_look(q);
		if (q->posted != q->done)
			return true;
		devq_close(q);
		if (q->by == PV_TXQ_SOFTWARE && q->pacing.burst)
			fill(q, now_ns);
	}
	if (q->fence_ns && now_ns < q->fence_ns && fenced(q))
		return true;
	q->fence_ns = 0;
	return false;
}

static uint32_t device_bytes(const struct pv_txq *q)
{
	return q->bytes - q->left;
}

/* ---- when -------------------------------------------------------------------------------------------------------------- */

static bool is_going(const struct pv_txq *q)
{
	return !pv_list_empty(&q->going);
}

/* By software: not before. */
static int64_t due(struct pv_txq *q, uint32_t len, bool late, int64_t now_ns)
{
	if (q->pacing.burst) {
		/* While frames of it wait for the doorbell nothing drains. */
		int64_t stood = is_going(q) ? PV_MAX(now_ns - q->empty_ns, 0) : 0;

		return q->next_ns + stood - (q->pacing.burst > len ? time_of(q, q->pacing.burst - len) : 0);
	}
	q->next_ns = PV_MAX(q->next_ns, now_ns - (late ? CREDIT_NS : 0));
	return q->next_ns;
}

static void charge(struct pv_txq *q, uint32_t len, int64_t now_ns)
{
	uint64_t ns;

	if (!q->pacing.burst) {
		q->next_ns += time_of(q, len);
		return;
	}
	if (!is_going(q)) {
		q->frac = q->next_ns < now_ns ? 0 : q->frac;
		q->empty_ns = q->next_ns = PV_MAX(q->next_ns, now_ns);
		if (q->net->cfg.clock) {
			pv_list_add(&q->net->txq_going, &q->going);
			q->net->head.going = true;
		}
	}
	ns = (uint64_t)len * (uint64_t)PV_NS_PER_S + q->frac;
	q->next_ns += (int64_t)(ns / q->pacing.rate);
	q->frac = ns % q->pacing.rate;
}

static void settle(struct pv_txq *q, int64_t left_ns)
{
	pv_list_del(&q->going);
	q->next_ns += PV_MAX(left_ns - q->empty_ns, 0);
}

void pv_txq_left(struct pv_net *net)
{
	int64_t now_ns = pv_list_empty(&net->txq_going) ? 0 : net->cfg.clock();

	pv_list_for_each_safe(it, next, &net->txq_going)
		settle(pv_list_entry(it, struct pv_txq, going), now_ns);
}

/* How soon there is something to see of `bytes` that a device has. */
static int64_t look_after(const struct pv_txq *q, uint32_t bytes)
{
	int64_t ns = pv_pacing_on(&q->pacing) ? time_of(q, bytes) : RETRY_NS;

	return PV_MAX(PV_MIN(ns, LOOK_MAX_NS), RETRY_NS);
}

/* The time at which the frame may go, or at which to ask again; not after now: at once. */
static int64_t when(struct pv_txq *q, uint32_t len, bool late, int64_t now_ns)
{
	if (pv_unlikely(q->draining || q->fence_ns) && must_wait(q, now_ns))
		return now_ns + RETRY_NS;
	if (q->by == PV_TXQ_SOFTWARE)
		return due(q, len, late, now_ns);
	if (q->devq && q->posted - q->done >= POSTED_MAX) {
		pv_txq_look(q);
		if (q->posted - q->done >= POSTED_MAX)
			return now_ns + look_after(q, device_bytes(q) / 2);
	}
	return now_ns;
}

/* ---- frames ------------------------------------------------------------------------------------------------------------ */

/* 0, -EAGAIN (it is still ours: the ring is full), or why it never will go. */
static int post(struct pv_txq *q, struct pv_pkt *pkt)
{
	struct pv_net *net = q->net;
	struct pv_ring *ring = q->ring;
	struct pv_pkt *done[PV_RING_BATCH_MAX];
	uint32_t n;
	int rc;

	if (pv_unlikely(pv_ring_tx_post(ring, &pkt, 1) != 1)) {
		rc = pv_ring_tx_kick(ring);
		n = pv_ring_tx_reap(ring, done, PV_RING_BATCH_MAX);
		for (uint32_t i = 0; i < n; i++)
			pv_net_tx_done(net, done[i]);
		if (rc == -ENODEV || !ring->caps.link_up)
			return -ENETDOWN;
		if (pv_ring_tx_post(ring, &pkt, 1) != 1)
			return -EAGAIN;
	}
	PV_PROBE4(posted, q->cfg.iface, pkt, pkt->data, pkt->len);
	net->c.tx_packets++;
	net->head.dirty |= 1u << (q->cfg.iface - 1);
	return 0;
}

static int post_stamped(struct pv_txq *q, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_stamp_late late;
	bool known = pv_net_stamp_begin(q->net, pkt, &late);
	int rc = post(q, pkt);

	if (known)
		pv_net_stamp_end(&late, !rc, now_ns);
	return rc;
}

static void sent(struct pv_txq *q, uint32_t len, int64_t now_ns)
{
	if (q->by == PV_TXQ_SOFTWARE)
		charge(q, len, now_ns);
	if (!q->devq)
		return;
	q->bytes += len;
	q->end[q->posted % POSTED_MAX] = q->bytes;
	q->posted++;
}

/* As many as may go; the time at which to go on, PV_NEVER when none is left. */
static int64_t release(struct pv_txq *q, bool late, int64_t now_ns)
{
	struct pv_pkt *pkt;

	while ((pkt = q->held.head)) {
		uint32_t len = pkt->total;
		int64_t at = when(q, len, late, now_ns);
		int rc;

		if (at > now_ns)
			return at;
		pv_pkt_set_txq(pkt, q->devq ? q->devq : pv_txlane_still(q->net, q->cfg.iface, q->cfg.from));
		(void)pv_pktq_pop(&q->held);
		rc = pv_unlikely(pkt->flags & PV_PKT_TX_STAMP) ? post_stamped(q, pkt, now_ns) : post(q, pkt);
		if (rc == -EAGAIN) {
			pv_pktq_unpop(&q->held, pkt);
			return now_ns + RETRY_NS;
		}
		q->held_bytes -= len;
		if (rc) {
			pv_net_drop(q->net, pkt, &q->net->c.tx_pace_dropped);
		} else {
			sent(q, len, now_ns);
		}
	}
	return PV_NEVER;
}

static void txq_free(struct pv_txq *q)
{
	struct pv_net *net = q->net;
	struct pv_pkt *pkt;

	while ((pkt = pv_pktq_pop(&q->held))) {
		pv_net_drop(net, pkt, &net->c.tx_pace_dropped);
	}
	devq_close(q);
	pv_net_timer_del(net, &q->timer);
	(void)pv_htab_del(&net->txqs, &q->node);
	pv_list_del(&q->all);
	pv_list_del(&q->link);
	pv_list_del(&q->going);
	pv_net_free(net, q, sizeof(*q));
}

/* How many frames are left; a queue without an owner that has none is gone. */
static uint32_t run(struct pv_txq *q, bool late, int64_t now_ns)
{
	int64_t at = release(q, late, now_ns);

	if (q->closing && !q->held.count) {
		pv_txq_look(q);
		if (q->posted == q->done) {
			txq_free(q);
			return 0;
		}
		at = now_ns + look_after(q, device_bytes(q));
	}
	/* The device's queue is given back as soon as it is empty, whether another frame comes or not. */
	if (q->draining && !q->held.count && must_wait(q, now_ns))
		at = now_ns + look_after(q, device_bytes(q));
	if (q->room_wanted) {
		struct pv_txq_load load;

		pv_txq_look(q);
		pv_txq_load(q, &load);
		if (late)
			q->cfg.room(q->cfg.user);
		if (q->room_wanted && q->devq)
			at = PV_MIN(at, now_ns + look_after(q, load.bytes / 4));
	}
	pv_net_timer_set(q->net, &q->timer, at);
	return q->held.count;
}

static void timer_fired(struct pv_net *net, struct pv_net_timer *timer, int64_t now_ns)
{
	(void)net;
	(void)run(pv_container_of(timer, struct pv_txq, timer), true, now_ns);
}

int pv_txq_post(struct pv_net *net, uint32_t iface, struct pv_ring *ring, struct pv_pkt *pkt)
{
	uint64_t id = pkt->priv[0];
	uint32_t left;

	pkt->flags &= ~PV_PKT_TX_PACED;
	pv_htab_for_each(it, &net->txqs, (uint32_t)id)
	{
		struct pv_txq *q = pv_htab_entry(it, struct pv_txq, node);

		if (q->id != id || q->ring != ring)
			continue;
		pv_pktq_push(&q->held, pkt);
		q->held_bytes += pkt->total;
		left = q->held.count;
		/* Who waits in line has a timer, but a busy application may be in front of it. */
		if (left == 1 || q->timer.t.deadline_ns <= net->now_ns)
			left = run(q, left > 1, net->now_ns);
		net->c.tx_paced += left != 0;
		return 0;
	}
	/* Its queue was closed while it waited for a neighbour. */
	return pv_tx_post(net, iface, ring, pkt);
}

/* The straight line of pv_net_tx posts, whatever is asked of a packet: it must not be taken. */
void pv_txq_mark(const struct pv_txq *q, struct pv_path *path, struct pv_pkt *pkt)
{
	path->hdr_limit = 0;
	pkt->flags |= PV_PKT_TX_PACED;
	pkt->priv[0] = q->id;
}

/* ---- the owner's ------------------------------------------------------------------------------------------------------- */

int pv_txq_open(struct pv_net *net, const struct pv_txq_cfg *cfg, struct pv_txq **out)
{
	struct pv_iface *ifp = pv_net_iface(net, cfg->iface);
	struct pv_txq *q;

	if (!ifp)
		return -ENODEV;
	if (pv_net_timers_reserve(net, 0, 1))
		return -ENOMEM;
	q = pv_net_alloc(net, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->net = net;
	q->ring = ifp->ring;
	q->cfg = *cfg;
	q->id = ++net->txq_id;
	q->timer.fn = timer_fired;
	pv_pktq_init(&q->held);
	pv_list_init(&q->link);
	pv_list_init(&q->going);
	pv_list_add(&net->txq_all, &q->all);
	pv_htab_add(&net->txqs, &q->node, (uint32_t)q->id);
	*out = q;
	return 0;
}

void pv_txq_close(struct pv_txq *q, int64_t now_ns)
{
	pv_list_del(&q->link);
	q->room_wanted = false;
	q->closing = true;
	(void)run(q, q->held.count != 0, now_ns);
}

void pv_txq_set(struct pv_txq *q, const struct pv_pacing *pacing, int64_t now_ns)
{
	struct pv_ring_rate rate = { 0 };
	bool was = q->by == PV_TXQ_SOFTWARE, moved = q->by == PV_TXQ_DEVICE;
	uint64_t left;

	if (is_going(q)) {
		(void)pv_ring_tx_kick(q->ring);
		settle(q, q->net->cfg.clock());
	}
	left = was && q->next_ns > now_ns ? (uint64_t)(q->next_ns - now_ns) * q->pacing.rate / (uint64_t)PV_NS_PER_S : 0;
	q->pacing = *pacing;
	q->frac = 0;
	q->why = PV_TXQ_OK;
	if (!pv_pacing_on(pacing)) {
		/* What is in front goes on there, at line rate. If the device does not do that, it waits. */
		q->draining = q->devq && pv_ring_set_rate(q->ring, q->devq, &rate);
		q->by = PV_TXQ_UNPACED;
	} else {
		q->why = (uint8_t)to_device(&q->ring->caps, pacing, &rate);
		if (!q->why && q->devq)
			q->why = pv_ring_set_rate(q->ring, q->devq, &rate) ? PV_TXQ_REFUSED : PV_TXQ_OK;
		else if (!q->why)
			q->why = (uint8_t)devq_open(q, &rate, now_ns);
		q->draining = q->why && q->devq;
		/* Once we keep it we go on, for what is held. */
		q->by = !q->why ? PV_TXQ_DEVICE : q->cfg.device_only && !pacing->burst && !was ? PV_TXQ_UNPACED : PV_TXQ_SOFTWARE;
	}
	if (q->by == PV_TXQ_SOFTWARE && pacing->burst && moved)
		fill(q, now_ns);
	else if (q->by == PV_TXQ_SOFTWARE && !was)
		q->next_ns = pacing->burst ? 0 : now_ns;
	else if (q->by == PV_TXQ_SOFTWARE && left)
		q->next_ns = now_ns + time_of(q, left); /* of the frame that went last, at the new rate */
	(void)run(q, q->held.count != 0, now_ns);
}

void pv_txq_load(const struct pv_txq *q, struct pv_txq_load *out)
{
	out->frames = q->held.count + (q->posted - q->done);
	out->bytes = q->held_bytes + device_bytes(q);
}

int64_t pv_txq_wait_ns(struct pv_txq *q, uint32_t limit, int64_t now_ns)
{
	struct pv_txq_load load;

	pv_txq_load(q, &load);
	if (load.bytes >= limit && q->posted != q->done) {
		pv_txq_look(q);
		pv_txq_load(q, &load);
	}
	if (load.bytes < limit)
		return 0;
	/* Behind a single one there is nothing to send until it leaves, and that is known. */
	if (q->by == PV_TXQ_SOFTWARE && q->held.count == 1 && pv_timer_armed(&q->timer.t))
		return PV_MAX(q->timer.t.deadline_ns - now_ns, 1);
	return look_after(q, load.bytes - limit / 2);
}

void pv_txq_want_room(struct pv_txq *q, bool on, int64_t now_ns)
{
	struct pv_txq_load load;

	if (on == q->room_wanted)
		return;
	q->room_wanted = on;
	pv_txq_load(q, &load);
	if (on && !pv_timer_armed(&q->timer.t))
		pv_net_timer_set(q->net, &q->timer, now_ns + look_after(q, load.bytes / 4));
}

bool pv_txq_settled(struct pv_txq *q)
{
	if (q->by != PV_TXQ_UNPACED || q->held.count)
		return false;
	pv_txq_look(q);
	return q->posted == q->done;
}

void pv_txq_info(const struct pv_txq *q, struct pv_txq_info *out)
{
	*out = (struct pv_txq_info){ .pacing = q->pacing, .iface = q->cfg.iface, .by = q->by, .why = q->why, .number = q->devq };
	pv_txq_load(q, &out->load);
}

struct pv_list *pv_txq_link(struct pv_txq *q)
{
	return &q->link;
}

struct pv_txq *pv_txq_of_link(struct pv_list *link)
{
	return pv_list_entry(link, struct pv_txq, link);
}

uint32_t pv_txq_iface(const struct pv_txq *q)
{
	return q->cfg.iface;
}

/* ---- the layer's ------------------------------------------------------------------------------------------------------- */

/* Owners have closed theirs by then. */
void pv_txq_del_iface(struct pv_net *net, uint32_t iface)
{
	pv_list_for_each_safe(it, next, &net->txq_all) {
		struct pv_txq *q = pv_list_entry(it, struct pv_txq, all);

		if (q->cfg.iface == iface)
			txq_free(q);
	}
}

/* Who keeps the rates is asked again. Owners that pace by themselves do that, too (pv_tcp_iface_moved). */
void pv_txq_moved(struct pv_net *net, uint32_t iface, int64_t now_ns)
{
	pv_list_for_each_safe(it, next, &net->txq_all) {
		struct pv_txq *q = pv_list_entry(it, struct pv_txq, all);

		if (q->cfg.iface == iface && !q->closing && !q->cfg.device_only)
			pv_txq_set(q, &q->pacing, now_ns);
	}
}

uint32_t pv_net_paced(const struct pv_net *net)
{
	return net->txqs.count;
}

int pv_txq_init(struct pv_net *net)
{
	pv_list_init(&net->txq_all);
	pv_list_init(&net->txq_going);
	return pv_htab_init(&net->txqs, net->mem, 16);
}

void pv_txq_fini(struct pv_net *net)
{
	pv_htab_fini(&net->txqs);
}
