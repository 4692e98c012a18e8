/* SPDX-License-Identifier: BSD-3-Clause */
/* Stamps of what was sent, as Linux's __skb_tstamp_tx and sock_queue_err_skb tell them. */
#include "net/stamp.h"

#include "net/internal.h"

#define FIRST_CAP 16u
#define FIRST_SLOTS 16u
/* As Linux charges an entry beside its data (the size of a socket buffer and its descriptor). */
#define COST 704u
/* A cookie: generation and number of the queue, key of the message. */
#define KEY_BITS 32u
#define SLOT_BITS 20u
#define GEN_MASK 0xfffu
/* How long a device's stamp is looked for after the last packet that asked for one. */
#define WAIT_NS PV_NS_PER_S

struct pv_stamp_slot {
	struct pv_stampq *q; /* NULL: free */
	uint32_t gen;
};

/* ---- names of queues ---------------------------------------------------------------------------------------------------- */

static int slots_grow(struct pv_net *net)
{
	uint32_t n = net->nstampq ? 2 * net->nstampq : FIRST_SLOTS;
	struct pv_stamp_slot *grown;

	if (n > 1u << SLOT_BITS)
		return -ENOMEM;
	grown = pv_net_alloc(net, n * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	if (net->nstampq)
		memcpy(grown, net->stampq, net->nstampq * sizeof(*grown));
	pv_net_free(net, net->stampq, net->nstampq * sizeof(*grown));
	net->stampq = grown;
	net->nstampq = n;
	return 0;
}

int pv_stampq_open(struct pv_stampq *q)
{
	struct pv_net *net = q->net;
	uint32_t i = 0;
	int rc;

	while (i < net->nstampq && net->stampq[i].q)
		i++;
	rc = i < net->nstampq ? 0 : slots_grow(net);
	if (rc)
		return rc;
	q->slot = i;
	net->stampq[i].q = q;
	return 0;
}

static uint64_t cookie(const struct pv_stampq *q, uint32_t key)
{
	uint64_t gen = q->net->stampq[q->slot].gen & GEN_MASK;

	return (gen << SLOT_BITS | q->slot) << KEY_BITS | key;
}

static struct pv_stampq *by_cookie(const struct pv_net *net, uint64_t name)
{
	uint32_t slot = (uint32_t)(name >> KEY_BITS) & ((1u << SLOT_BITS) - 1);
	const struct pv_stamp_slot *s = &net->stampq[slot];

	return slot < net->nstampq && (s->gen & GEN_MASK) == name >> (KEY_BITS + SLOT_BITS) ? s->q : NULL;
}

void pv_stamps_close(struct pv_net *net)
{
	pv_net_free(net, net->stampq, net->nstampq * sizeof(*net->stampq));
}

uint32_t pv_net_serial(struct pv_net *net)
{
	return net->serial++;
}

void pv_net_stamps_hw(struct pv_net *net, bool on)
{
	net->stamps_hw = on;
}

bool pv_net_stamps_due(struct pv_net *net, int64_t now_ns)
{
	if (now_ns >= net->stamps_until_ns)
		net->stamps_out = 0;
	return net->stamps_out != 0;
}

/* ---- the queue ---------------------------------------------------------------------------------------------------------- */

static bool grow(struct pv_stampq *q)
{
	uint32_t cap = q->cap ? 2 * q->cap : FIRST_CAP;
	struct pv_stamp *grown = pv_net_alloc(q->net, cap * sizeof(*grown));

	if (!grown)
		return false;
	for (uint32_t i = 0; i < q->count; i++)
		grown[i] = q->ring[(q->head + i) & (q->cap - 1)];
	pv_net_free(q->net, q->ring, q->cap * sizeof(*grown));
	q->ring = grown;
	q->cap = cap;
	q->head = 0;
	return true;
}

/* The stamp has its packet; taken. */
static void put(struct pv_stampq *q, struct pv_stamp s)
{
	s.cost = COST + (s.pkt ? s.pkt->total : 0);
	if ((uint64_t)*q->used + s.cost >= *q->limit || (q->count == q->cap && !grow(q))) {
		q->net->c.tx_stamps_lost++;
		if (s.pkt)
			pv_pkt_put(s.pkt);
		return;
	}
	s.serial = pv_net_serial(q->net);
	q->ring[(q->head + q->count++) & (q->cap - 1)] = s;
	*q->used += s.cost;
	q->own += s.cost;
	q->net->c.tx_stamps++;
	q->tell(q->owner);
}

bool pv_stampq_get(struct pv_stampq *q, struct pv_stamp *out)
{
	if (!q->count)
		return false;
	*out = q->ring[q->head];
	q->head = (q->head + 1) & (q->cap - 1);
	q->count--;
	*q->used -= out->cost;
	q->own -= out->cost;
	return true;
}

void pv_stampq_close(struct pv_stampq *q)
{
	struct pv_stamp s;

	while (pv_stampq_get(q, &s))
		if (s.pkt)
			pv_pkt_put(s.pkt);
	pv_net_free(q->net, q->ring, q->cap * sizeof(*q->ring));
	q->ring = NULL;
	q->cap = 0;
	q->net->stampq[q->slot].q = NULL;
	q->net->stampq[q->slot].gen++;
}

void pv_net_stamps_purge(struct pv_net *net, const struct pv_pool *pool)
{
	for (uint32_t i = 0; i < net->nstampq; i++) {
		struct pv_stampq *q = net->stampq[i].q;

		for (uint32_t n = 0; q && n < q->count; n++) {
			struct pv_stamp *s = &q->ring[(q->head + n) & (q->cap - 1)];

			if (!s->pkt || s->pkt->pool != pool)
				continue;
			pv_pkt_put(s->pkt);
			s->pkt = NULL;
		}
	}
}

/* ---- what was sent ------------------------------------------------------------------------------------------------------ */

/* NULL: receiving goes before, whoever is stamped. */
static struct pv_pkt *blank(struct pv_pool *pool)
{
	return pool->nfree > pool->total >> 3 ? pv_pkt_get(pool) : NULL;
}

/* The chain as one of its own, from the start of its buffers: a frame as long as the ring takes must fit. */
static struct pv_pkt *copy_of(const struct pv_pkt *pkt)
{
	struct pv_pkt *first = NULL, **tail = &first;

	for (const struct pv_pkt *s = pkt; s; s = s->frag) {
		struct pv_pkt *c = blank(s->pool);

		if (!c) {
			if (first)
				pv_pkt_put(first);
			return NULL;
		}
		c->data = c->buf;
		memcpy(c->data, s->data, s->len);
		c->len = s->len;
		*tail = c;
		tail = &c->frag;
	}
	for (const struct pv_pkt *c = first; c; c = c->frag)
		first->total += c->len;
	return first;
}

static bool wants_data(const struct pv_stampq *q)
{
	return !(q->flags & PV_STAMP_OPT_TSONLY);
}

static bool wants_stats(const struct pv_stampq *q)
{
	return (q->flags & PV_STAMP_OPT_STATS) && q->stats;
}

/* A packet for so many bytes at its data. NULL: the stamp is counted as lost. */
static struct pv_pkt *blank_for(const struct pv_stampq *q, struct pv_pool *pool, uint32_t len)
{
	struct pv_pkt *pkt = blank(pool);

	if (pkt && pkt->size >= len) {
		pkt->data = pkt->buf;
		return pkt;
	}
	if (pkt)
		pv_pkt_put(pkt);
	q->net->c.tx_stamps_lost++;
	return NULL;
}

/* A stamp alone, or with what the owner tells. */
static void put_alone(struct pv_stampq *q, struct pv_stamp s, struct pv_pool *pool)
{
	s.frame = false;
	if (wants_stats(q)) {
		s.pkt = blank_for(q, pool, PV_STAMP_STATS_MAX);
		if (!s.pkt)
			return;
		s.pkt->len = s.pkt->total = q->stats(q->owner, s.pkt->data);
		s.stats = true;
	}
	put(q, s);
}

/* By whose ring it goes, which has packets for what is told. */
struct way {
	struct pv_pool *pool;
	uint32_t iface;
};

/* `frame` NULL: it could not be copied. */
static void tell_frame(const struct pv_stamp_ask *ask, enum pv_stamp_type type, const struct way *way, const struct pv_pkt *frame,
		       int64_t now_ns)
{
	struct pv_stamp s = { .ns = now_ns, .key = ask->key, .type = (uint8_t)type, .iface = (uint8_t)way->iface, .frame = true };

	if (!wants_data(ask->q)) {
		put_alone(ask->q, s, way->pool);
		return;
	}
	s.pkt = frame ? copy_of(frame) : NULL;
	if (s.pkt)
		put(ask->q, s);
	else
		ask->q->net->c.tx_stamps_lost++;
}

/* A frame on its way out: whom it is for was taken down by pv_net_tx_stamp. What follows it, or fails, is not stamped. */
int pv_stamp_tx(struct pv_net *net, struct pv_path *path, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_stamp_ask ask = *net->ask;
	bool late = (pkt->flags & PV_PKT_TX_PACED) && !path->is_local; /* its rate may hold it back: pv_net_stamp_begin */
	bool hard = (ask.what & PV_STAMP_TX_HW) && net->stamps_hw && path->ring->caps.tx_tstamp && !path->is_local;
	const struct way way = { pkt->pool, path->iface };
	struct pv_pkt *copy = NULL;
	const struct pv_pkt *frame;
	int rc;

	net->ask = NULL;
	/* One of both will do, unless the program says otherwise. */
	if (hard && !(ask.q->flags & PV_STAMP_OPT_TX_SWHW))
		ask.what &= ~PV_STAMP_TX_SW;
	/* Once posted it may be gone, but for what comes back to us, whose frame is complete only then. */
	if (!path->is_local && (ask.what & (PV_STAMP_TX_SW | PV_STAMP_TX_SCHED)) && wants_data(ask.q))
		copy = copy_of(pkt);
	if (late && (ask.what & PV_STAMP_TX_SW))
		pkt->flags |= PV_PKT_TX_STAMP;
	if (hard)
		pkt->flags |= PV_PKT_TX_TSTAMP;
	if (hard || late) {
		pkt->cookie = cookie(ask.q, ask.key);
		pkt->iface = (uint8_t)path->iface;
	}
	/* It may leave at once, and this comes before. */
	if (late && (ask.what & PV_STAMP_TX_SCHED))
		tell_frame(&ask, PV_STAMP_SCHED, &way, copy, now_ns);
	if (late)
		ask.what = 0;
	rc = pv_tx_out(net, path, pkt, now_ns);
	frame = path->is_local ? pkt : copy;
	if (!rc && hard) {
		net->stamps_out++;
		net->stamps_until_ns = now_ns + WAIT_NS;
	}
	if (!rc && (ask.what & PV_STAMP_TX_SCHED))
		tell_frame(&ask, PV_STAMP_SCHED, &way, frame, now_ns);
	if (!rc && (ask.what & PV_STAMP_TX_SW))
		tell_frame(&ask, PV_STAMP_SND, &way, frame, now_ns);
	if (copy)
		pv_pkt_put(copy);
	return rc;
}

int pv_net_tx_stamp(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt,
		    const struct pv_stamp_ask *ask, int64_t now_ns)
{
	int rc;

	net->ask = ask;
	rc = pv_tx_slow(net, path, opts, pkt, now_ns);
	net->ask = NULL;
	return rc;
}

bool pv_net_stamp_begin(struct pv_net *net, const struct pv_pkt *pkt, struct pv_stamp_late *out)
{
	struct pv_stampq *q = pkt->flags & PV_PKT_TX_STAMP ? by_cookie(net, pkt->cookie) : NULL;

	if (!q)
		return false;
	*out = (struct pv_stamp_late){ .ask = { .q = q, .key = (uint32_t)pkt->cookie }, .pool = pkt->pool, .iface = pkt->iface };
	if (wants_data(q))
		out->copy = copy_of(pkt);
	return true;
}

void pv_net_stamp_end(struct pv_stamp_late *late, bool went, int64_t now_ns)
{
	const struct way way = { late->pool, late->iface };

	if (went)
		tell_frame(&late->ask, PV_STAMP_SND, &way, late->copy, now_ns);
	if (late->copy)
		pv_pkt_put(late->copy);
}

/* The ring's word. A packet that a transport keeps goes back to it, any other may go to the queue as it is. */
void pv_net_tx_stamped(struct pv_net *net, struct pv_pkt *pkt)
{
	struct pv_stampq *q = by_cookie(net, pkt->cookie);
	struct pv_stamp s = { .raw = pkt->tstamp,
			      .key = (uint32_t)pkt->cookie,
			      .type = PV_STAMP_SND,
			      .iface = pkt->iface,
			      .is_raw = true,
			      .frame = true };
	bool stamped = pkt->flags & PV_PKT_TSTAMP;
	struct pv_pool *pool = pkt->pool;

	net->stamps_out -= net->stamps_out > 0;
	pkt->flags &= ~(PV_PKT_TX_TSTAMP | PV_PKT_TX_STAMP | PV_PKT_TSTAMP);
	if (q && stamped && wants_data(q)) {
		s.pkt = pkt->flags & PV_PKT_KEPT ? copy_of(pkt) : pkt;
		stamped = s.pkt;
		net->c.tx_stamps_lost += !stamped;
	}
	if (s.pkt != pkt)
		pv_pkt_put(pkt);
	if (q && stamped && wants_data(q))
		put(q, s);
	else if (q && stamped)
		put_alone(q, s, pool);
}

void pv_stampq_acked(struct pv_stampq *q, uint32_t key, const uint8_t *data, uint32_t len, struct pv_pool *pool, int64_t now_ns)
{
	struct pv_stamp s = { .ns = now_ns, .key = key, .type = PV_STAMP_ACK };

	if (!wants_data(q)) {
		put_alone(q, s, pool);
		return;
	}
	s.pkt = blank_for(q, pool, len);
	if (!s.pkt)
		return;
	memcpy(s.pkt->data, data, len);
	s.pkt->len = s.pkt->total = len;
	put(q, s);
}
