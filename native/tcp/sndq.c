/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send queue: bytes become segments when they are written, one packet each, so that sending and sending again only write a header.
 *
 * Packets come from the pool of the ring that the path leads to, from which that ring also receives: without buffers to receive into there
 * are no acknowledgements, and without those nothing ever comes back. So queued data leaves a part of every pool alone.
 */
#include "tcp/tcp_int.h"

#define SEG_CHUNK 64u
/* Segments that are written before the first of them go out, and the doorbell rings: the peer works while we copy. */
#define SEND_BATCH 32u
/* As Linux charges a full segment: header room, shared info and descriptor (tcp_sndbuf_expand). */
#define LINUX_SKB_ROOM 640u
#define LINUX_SKB_SIZE 256u
/* What is under way for longer than so many of the shortest round trips stands in a queue; but for longer than that it may be anything. */
#define QUEUE_RTTS 8
#define QUEUE_MAX_NS PV_NS_PER_MS

/* ---- segments ------------------------------------------------------------------------------------------------------------ */

static pv_noinline bool grow(struct pv_tcp_table *t)
{
	struct pv_tcp_seg *s = pv_tcp_chunk_get(t, SEG_CHUNK * sizeof(*s));

	if (!s)
		return false;
	for (uint32_t i = SEG_CHUNK; i-- > 0;) {
		s[i].pkt = (struct pv_pkt *)(void *)t->free_seg;
		t->free_seg = &s[i];
	}
	t->nfree_seg += SEG_CHUNK;
	return true;
}

struct pv_tcp_seg *pv_tcp_seg_get(struct pv_tcp_table *t)
{
	return pv_likely(t->free_seg != NULL) || grow(t) ? pv_tcp_seg_take(t) : NULL;
}

void pv_tcp_sndq_drop(struct pv_tcp *c)
{
	while (!pv_list_empty(&c->sndq))
		pv_tcp_seg_put(c->t, pv_list_entry(c->sndq.next, struct pv_tcp_seg, link));
	pv_tcp_stamps_forget(c);
	pv_list_init(&c->by_time);
	c->unsent = NULL;
	c->sack_hint = NULL;
	c->lost_hint = NULL;
	c->sndq_bytes = 0;
	c->snd_mem = 0;
	c->in_flight = 0;
	c->sacked = 0;
	c->lost = 0;
	c->retrans = 0;
}

pv_inline struct pv_tcp_seg *tail(const struct pv_tcp *c)
{
	return pv_list_entry(c->sndq.prev, struct pv_tcp_seg, link);
}

static void append(struct pv_tcp *c, struct pv_tcp_seg *s)
{
	s->seq = c->write_seq;
	pv_list_add(&c->sndq, &s->link);
	if (!c->unsent)
		c->unsent = s;
	c->snd_mem += pv_seg_mem(s);
}

int pv_tcp_queue_fin(struct pv_tcp *c)
{
	struct pv_tcp_seg *s;

	if (c->flags & PV_TF_FIN_QUEUED)
		return 0;
	/* With the last data that has not gone yet, else alone. */
	if (c->unsent) {
		s = tail(c);
	} else {
		s = pv_tcp_seg_get(c->t);
		if (!s)
			return -ENOMEM;
		append(c, s);
	}
	s->flags |= PV_SEG_FIN;
	c->write_seq = pv_seq_add(c->write_seq, 1);
	c->flags |= PV_TF_FIN_QUEUED;
	return 0;
}

int pv_tcp_seg_split(struct pv_tcp *c, struct pv_tcp_seg *s, uint32_t len)
{
	struct pv_tcp_seg *rest;

	if (len >= s->len)
		return 0;
	rest = pv_tcp_seg_get(c->t);
	if (!rest)
		return -ENOBUFS;
	rest->pkt = pv_pkt_get(s->pkt->pool);
	if (!rest->pkt) {
		pv_tcp_seg_put(c->t, rest);
		c->t->c.tx_no_buf++;
		return -ENOBUFS;
	}
	rest->seq = pv_seq_add(s->seq, len);
	rest->len = (uint16_t)(s->len - len);
	rest->flags = s->flags;
	memcpy(pv_seg_data(rest), pv_seg_data(s) + len, rest->len);
	s->len = (uint16_t)len;
	s->flags &= (uint8_t) ~(PV_SEG_FIN | PV_SEG_PSH | PV_SEG_EOR);
	pv_list_add(s->link.next, &rest->link);
	c->snd_mem += pv_seg_mem(rest);
	if (s->board & PV_SEG_SENT)
		pv_tcp_note_split(c, s, rest);
	return 0;
}

/* ---- room ---------------------------------------------------------------------------------------------------------------- */

/* tcp_sndbuf_expand of Linux: what keeps twice the window under way, counted as Linux counts. */
static uint32_t sndbuf_now(const struct pv_tcp *c)
{
	const struct pv_tcp_opts *o = &c->opts;
	uint32_t max = c->t->cfg.sndbuf_max, segs, seg, room = 1;

	if (o->sndbuf_locked || o->sndbuf >= max)
		return o->sndbuf;
	seg = PV_MAX((uint32_t)c->mss, (uint32_t)c->mss_peer) + LINUX_SKB_ROOM;
	while (room < seg)
		room <<= 1;
	segs = PV_MAX(PV_MAX(c->cwnd, c->reordering + 1), PV_TCP_INIT_CWND);
	return (uint32_t)PV_MAX((uint64_t)o->sndbuf, PV_MIN((uint64_t)max, UINT64_C(2) * segs * (room + LINUX_SKB_SIZE)));
}

pv_inline bool not_sent_enough(const struct pv_tcp *c)
{
	return c->opts.notsent_lowat && pv_seq_dist(c->snd_nxt, c->write_seq) >= c->opts.notsent_lowat;
}

/* Whoever has little queued gets packets that one with much does not get any more, nor receive queues (pv_pool_scarce). */
pv_inline bool packets_left(const struct pv_tcp *c)
{
	const struct pv_pool *pool = c->path.ring->pool;
	uint32_t size = (uint32_t)sizeof(struct pv_tcp_seg) + 2048,
		 spare = c->snd_mem > 8 * size ? pool->total >> 3 : pool->total >> 5;

	return pool->nfree > spare;
}

bool pv_tcp_starved(const struct pv_tcp *c)
{
	return c->path.ring && !packets_left(c);
}

uint32_t pv_tcp_sndbuf_room(const struct pv_tcp *c)
{
	uint32_t sndbuf = sndbuf_now(c);

	return c->snd_mem < sndbuf ? sndbuf - c->snd_mem : 0;
}

/* Of its own. */
static bool has_room(const struct pv_tcp *c)
{
	const struct pv_tcp_opts *o = &c->opts;

	/* Linux wakes writers when half of the low-water mark is left, and takes writes below all of it (tcp_stream_memory_free). */
	if (o->notsent_lowat && (uint64_t)pv_seq_dist(c->snd_nxt, c->write_seq) * 2 >= o->notsent_lowat)
		return false;
	return (uint64_t)c->snd_mem * 3 <= (uint64_t)sndbuf_now(c) * 2;
}

bool pv_tcp_writable(const struct pv_tcp *c)
{
	/* Who has met the end of the room, or a peer that is behind, waits to be told; others find out. */
	return !(c->flags & PV_TF_NOSPACE) && has_room(c);
}

void pv_tcp_space(struct pv_tcp *c)
{
	if (!(c->flags & PV_TF_NOSPACE) || !has_room(c))
		return;
	if (pv_tcp_starved(c)) {
		/* This may have been its last acknowledgement, and the packets are others': pv_tcp_room comes back. */
		pv_tcp_block(c);
		return;
	}
	c->flags &= ~PV_TF_NOSPACE;
	pv_tcp_tell(c, PV_EV_OUT);
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

struct source {
	const struct pv_iov *iov;
	size_t at; /* in *iov */
	uint64_t left;
};

static void gather(struct source *src, uint8_t *dst, uint32_t len)
{
	src->left -= len;
	while (len) {
		uint32_t n = (uint32_t)PV_MIN((size_t)len, src->iov->len - src->at);

		if (pv_likely(n))
			memcpy(dst, (const uint8_t *)src->iov->base + src->at, n);
		dst += n;
		len -= n;
		src->at += n;
		if (src->at == src->iov->len) {
			src->iov++;
			src->at = 0;
		}
	}
}

/* Payload bytes that one segment takes. Pools of odd sizes hold less than a packet of the path's MTU. */
pv_inline uint32_t seg_room(const struct pv_tcp *c, const struct pv_pkt *pkt)
{
	return PV_MIN((uint32_t)c->mss, pkt->size - PV_TCP_DATA_OFF);
}

/* NULL: no room, *rc says why. */
static struct pv_tcp_seg *new_seg(struct pv_tcp *c, int *rc)
{
	struct pv_tcp_table *t = c->t;
	struct pv_tcp_seg *s;

	if (pv_unlikely(c->snd_mem >= c->opts.sndbuf)) {
		c->opts.sndbuf = sndbuf_now(c);
		if (c->snd_mem >= c->opts.sndbuf) {
			*rc = -EAGAIN;
			return NULL;
		}
	}
	if (pv_unlikely(not_sent_enough(c))) {
		*rc = -EAGAIN;
		return NULL;
	}
	s = packets_left(c) ? pv_tcp_seg_get(t) : NULL;
	if (pv_unlikely(!s)) {
		t->c.tx_no_buf++;
		*rc = -ENOBUFS;
		return NULL;
	}
	s->pkt = pv_pkt_get(c->path.ring->pool);
	append(c, s);
	return s;
}

/* Into the last segment while it waits and has room, then into new ones: at most `max` of them. 0, or why it ended before the source. */
static int fill(struct pv_tcp *c, struct source *src, uint32_t max)
{
	while (src->left) {
		struct pv_tcp_seg *s = c->unsent ? tail(c) : NULL;
		uint32_t room, n;
		int rc;

		if (!s || !s->pkt || (s->flags & PV_SEG_EOR) || (uint32_t)s->len + s->off >= seg_room(c, s->pkt)) {
			if (!max--)
				return 0;
			s = new_seg(c, &rc);
			if (!s)
				return rc;
		}
		room = seg_room(c, s->pkt) - s->len;
		n = (uint32_t)PV_MIN(src->left, (uint64_t)room);
		gather(src, pv_seg_data(s) + s->len, n);
		s->len = (uint16_t)(s->len + n);
		c->sndq_bytes += n;
		c->write_seq = pv_seq_add(c->write_seq, n);
	}
	return 0;
}

/* Why nothing can be sent in this state, in Linux's order; 0: it can. */
static pv_noinline int refused(struct pv_tcp *c)
{
	if (c->tell.err)
		return -pv_tcp_error(c);
	if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD)
		return c->sock & PV_SK_SHUT_WR ? -EPIPE : -EAGAIN;
	return -EPIPE;
}

pv_inline bool can_write(const struct pv_tcp *c)
{
	return (c->state == PV_TCP_ESTABLISHED || c->state == PV_TCP_CLOSE_WAIT) && !c->tell.err && !(c->sock & PV_SK_SHUT_WR) &&
	       !(c->flags & PV_TF_FIN_QUEUED);
}

/* The segment that ends a write is marked, that the peer hands it on at once (RFC 9293 3.9.1.2). */
static void mark(struct pv_tcp *c, uint32_t flags)
{
	struct pv_tcp_seg *s;

	if (flags & PV_TCP_MSG_OOB) {
		c->snd_up = c->write_seq;
		c->flags |= PV_TF_SND_URG;
	}
	if (!c->unsent)
		return;
	s = tail(c);
	if (!(flags & PV_TCP_MSG_MORE))
		s->flags |= PV_SEG_PSH;
	if (flags & PV_TCP_MSG_EOR)
		s->flags |= PV_SEG_EOR;
	if (pv_unlikely(PV_TCP_MSG_STAMPS(flags)))
		pv_tcp_stamp_mark(c, s, PV_TCP_MSG_STAMPS(flags));
}

static pv_noinline void no_room(struct pv_tcp *c, int rc)
{
	c->flags |= PV_TF_NOSPACE;
	if (rc == -ENOBUFS)
		pv_tcp_block(c);
}

static pv_noinline int64_t send_any(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags, int64_t now_ns)
{
	struct pv_net *net = c->t->net;
	struct source src = { .iov = iov };
	uint32_t turn = flags >> 16 ? flags >> 16 : UINT32_MAX, n;
	bool cut = false;
	uint64_t all;
	int rc;

	if (pv_unlikely(!can_write(c)))
		return refused(c);
	/* The peer was behind, and is not any more, or for so long that nobody knows: others may wait to be told. */
	if (pv_unlikely(c->flags & PV_TF_NOSPACE))
		pv_tcp_space(c);
	for (uint32_t i = 0; i < iovcnt; i++)
		src.left += iov[i].len;
	all = src.left;
	if (pv_unlikely(!all))
		return 0;
	pv_tcp_rate_check(c);
	for (;;) {
		n = PV_MIN(turn, SEND_BATCH);
		rc = fill(c, &src, n);
		turn -= n;
		if (pv_likely(rc || !src.left))
			break;
		if (!turn) {
			cut = true;
			break;
		}
		tail(c)->flags |= PV_SEG_PSH;
		pv_tcp_push(c, PV_NAGLE_PUSH, now_ns);
		(void)pv_net_kick(net);
	}
	if (pv_unlikely(rc))
		no_room(c, rc);
	cut |= rc != 0;
	if (pv_likely(src.left < all))
		mark(c, cut ? flags & ~(PV_TCP_MSG_MORE | PV_TCP_MSG_OOB | PV_TCP_MSG_EOR | PV_TCP_MSG_STAMP(PV_STAMP_TX)) : flags);
	/* A full buffer must not wait for the rest of a segment (tcp_sendmsg_locked pushes before it waits). */
	pv_tcp_push(c, cut ? PV_NAGLE_PUSH : flags & PV_TCP_MSG_MORE ? PV_NAGLE_CORK : pv_tcp_nagle(c), now_ns);
	if (pv_net_dirty(net))
		(void)pv_net_kick(net);
	if (pv_unlikely((uint64_t)c->snd_mem * 3 > (uint64_t)c->opts.sndbuf * 2 || c->opts.notsent_lowat) && !has_room(c))
		c->flags |= PV_TF_NOSPACE;
	if (pv_unlikely(src.left == all))
		return -EAGAIN;
	pv_tcp_taken(c, (uint32_t)(all - src.left));
	return (int64_t)(all - src.left);
}

int64_t pv_tcp_send(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags, int64_t now_ns)
{
	if (pv_unlikely(iovcnt != 1 || flags || !iov->len || !pv_tcp_send_quick(c, iov->base, iov->len, now_ns)))
		return send_any(c, iov, iovcnt, flags, now_ns);
	return (int64_t)iov->len;
}

bool pv_tcp_no_room(const struct pv_tcp *c)
{
	return c->flags & PV_TF_NOSPACE;
}

bool pv_tcp_holds_back(struct pv_tcp *c, int64_t now_ns)
{
	int64_t age;

	/* A peer of our own has its news from our own polls. */
	if (pv_list_empty(&c->by_time) || c->path.is_local || !can_write(c))
		return false;
	age = now_ns - pv_list_entry(c->by_time.next, struct pv_tcp_seg, by_time)->tx_ns;
	if (age > QUEUE_MAX_NS || age / QUEUE_RTTS <= c->min_rtt_ns)
		return false;
	c->flags |= PV_TF_NOSPACE;
	return true;
}

void pv_tcp_send_again(struct pv_tcp *c)
{
	pv_tcp_tell(c, PV_EV_OUT);
}

uint32_t pv_tcp_outq(const struct pv_tcp *c)
{
	bool none = c->state == PV_TCP_LISTEN || c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD;

	return none ? 0 : pv_seq_dist(c->snd_una, c->write_seq);
}

uint32_t pv_tcp_outq_nsd(const struct pv_tcp *c)
{
	return pv_seq_dist(c->snd_nxt, c->write_seq);
}

uint32_t pv_tcp_in_flight(const struct pv_tcp *c)
{
	return c->in_flight;
}

bool pv_tcp_cuts(const struct pv_tcp *c)
{
	return c->path.joins & PV_JOIN_TSO;
}
