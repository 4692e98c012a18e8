/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive queue: payload arrives (RFC 9293 3.10.7.4, seventh), and the application reads.
 *
 * Packets are queued as they came; what they cost is the whole buffer. So that a slow reader of small segments does not hold the ring's
 * receive buffers, a small payload behind others is copied into the room that the last buffer has left; when the pool runs low all are.
 */
#include "tcp/rcv.h"
#include "tcp/gro.h"

#include <string.h>

#include "wire/tcp.h"

pv_inline struct pv_pkt *last_of(const struct pv_pktq *q)
{
	return pv_container_of(q->tail, struct pv_pkt, next);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

/* Bytes have the stamp of the last segment among them (tcp_try_coalesce of Linux). */
pv_inline void take_stamp(struct pv_pkt *to, const struct pv_pkt *from)
{
	PV_TCP_PKT_NS(to) = PV_TCP_PKT_NS(from);
	to->tstamp = from->tstamp;
	to->flags = (to->flags & ~PV_PKT_TSTAMP) | (from->flags & PV_PKT_TSTAMP);
}

pv_inline bool coalesce(struct pv_pkt *tail, struct pv_pkt *pkt)
{
	uint32_t len = pkt->len;

	if (len > PV_RCV_COPYBREAK && !pv_rcv_pool_low(pkt->pool))
		return false;
	if (pv_pkt_tailroom(tail) < len)
		return false;
	memcpy(tail->data + tail->len, pkt->data, len);
	tail->len += len;
	tail->total = tail->len;
	take_stamp(tail, pkt);
	pv_pkt_put(pkt);
	return true;
}

bool pv_rcv_coalesce(struct pv_pkt *tail, struct pv_pkt *pkt)
{
	return coalesce(tail, pkt);
}

struct pv_pkt *pv_rcv_compact(struct pv_pkt *first, uint32_t *count, uint32_t *mem)
{
	struct pv_pkt *at = first;

	while (at->next) {
		struct pv_pkt *next = at->next;

		if (pv_pkt_tailroom(at) < next->len) {
			at = next;
			continue;
		}
		memcpy(at->data + at->len, next->data, next->len);
		at->len += next->len;
		at->total = at->len;
		take_stamp(at, next);
		at->next = next->next;
		*mem -= next->size;
		(*count)--;
		pv_pkt_put(next);
	}
	return at;
}

/* Worth its while only after an eighth of the buffer was filled anew. */
static void compact(struct pv_tcp *c)
{
	if (c->rcv_mem < c->compact_mem + (c->opts.rcvbuf >> 3) && c->rcv_mem >= c->compact_mem)
		return;
	if (c->rcvq.head)
		c->rcvq.tail = &pv_rcv_compact(c->rcvq.head, &c->rcvq.count, &c->rcv_mem)->next;
	pv_ooo_compact(c);
	c->compact_mem = c->rcv_mem;
}

pv_inline bool fits(const struct pv_tcp *c, const struct pv_pkt *pkt)
{
	return c->rcv_mem <= c->opts.rcvbuf && (!pv_pool_scarce(pkt->pool) || c->rcv_mem <= PV_RCV_FAIR_MEM);
}

/* Linux's tcp_prune_queue: a larger buffer when that is allowed, then tighter packing, then the newest out-of-order data gives way. */
static pv_noinline bool make_room(struct pv_tcp *c, const struct pv_pkt *pkt, pv_seq seq)
{
	if (c->rcv_mem >= c->opts.rcvbuf)
		pv_rcv_clamp_window(c);
	if (fits(c, pkt))
		return true;
	compact(c);
	if (fits(c, pkt))
		return true;
	pv_ooo_prune(c, PV_MAX(c->opts.rcvbuf >> 3, c->rcv_mem - PV_MIN(c->rcv_mem, c->opts.rcvbuf)), seq);
	/* With nothing to read only new data can bring the stream on. */
	return fits(c, pkt) || (!c->rcvq.head && pv_seq_eq(seq, c->rcv_nxt));
}

bool pv_rcv_admit(struct pv_tcp *c, const struct pv_pkt *pkt, pv_seq seq)
{
	return pv_likely(fits(c, pkt)) || make_room(c, pkt, seq);
}

void pv_tcp_rcvq_drop(struct pv_tcp *c)
{
	struct pv_pkt *pkt;

	pv_ooo_drop(c);
	while ((pkt = pv_pktq_pop(&c->rcvq))) {
		c->rcv_mem -= pkt->size;
		pv_pkt_put(pkt);
	}
	c->rcvq_bytes = c->rcvq_off = 0;
	pv_tcp_promise_end(c);
}

/* ---- arrival ----------------------------------------------------------------------------------------------------------- */

pv_inline void count_news(const struct pv_tcp *c)
{
	struct pv_tcp_head *h = &c->t->head;

	h->news++;
	if (pv_unlikely(h->news_of != c)) {
		h->news_of = c;
		h->news_run = h->news;
	}
}

/* The next bytes of the stream to the end of the queue. */
pv_inline void enqueue(struct pv_tcp *c, struct pv_pkt *pkt)
{
	uint32_t len = pkt->len;

	c->rcv_nxt = pv_seq_add(c->rcv_nxt, len);
	c->rcvq_bytes += len;
	c->bytes_received += len;
	c->t->c.rx_bytes += len;
	PV_PROBE4(queued, PV_PROTO_TCP, c, pkt, len);
	if (pv_unlikely(c->t->head.stations != NULL))
		pv_tcp_traced(c, PV_TRACE_queued, len, 0);
	if (c->rcvq.head) {
		if (coalesce(last_of(&c->rcvq), pkt))
			return;
	} else {
		count_news(c);
	}
	if (pv_pool_spills(pkt->pool, c->rcvq.head))
		pkt = pv_pkt_store(pkt, pv_pkt_headroom(pkt));
	pkt->total = len;
	c->rcv_mem += pkt->size;
	pv_pktq_push(&c->rcvq, pkt);
}

static void in_order(struct pv_tcp *c, struct pv_pkt *pkt, bool psh, int64_t now_ns)
{
	uint32_t len = pkt->len, mem = pkt->size;
	bool hole = c->ooo.head;

	if (!pv_rcv_admit(c, pkt, c->rcv_nxt)) {
		pv_tcp_lost(c->t, c, NULL, &c->t->c.rx_no_room);
		pv_pkt_put(pkt);
		pv_rcv_ack_now(c);
		/* Who waits for more than there is waits in vain. */
		if (pv_tcp_readable(c))
			pv_tcp_tell(c, PV_EV_IN);
		return;
	}
	enqueue(c, pkt);
	pv_rcv_data_event(c, len, mem, psh, now_ns);
	while ((pkt = pv_ooo_pull(c)))
		enqueue(c, pkt);
	if (hole)
		pv_rcv_ack_now(c); /* RFC 5681 4.2: a gap was filled, or a part of it */
	if (c->nsack)
		pv_ooo_sack_advance(c);
	if (pv_tcp_readable(c))
		pv_tcp_tell(c, PV_EV_IN);
}

static void out_of_order(struct pv_tcp *c, struct pv_pkt *pkt, int64_t now_ns)
{
	uint32_t len = pkt->len, mem = pkt->size;
	bool sack = c->flags & PV_TF_SACK, owed = c->flags & PV_TF_ACK_NOW;
	enum pv_ooo_verdict v = PV_OOO_FULL;

	if (pv_pool_spills(pkt->pool, true))
		pkt = pv_pkt_store(pkt, pv_pkt_headroom(pkt));
	if (pv_rcv_admit(c, pkt, pv_rcv_seq(pkt)))
		v = pv_ooo_insert(c, pkt);
	else
		pv_pkt_put(pkt);
	if (v == PV_OOO_FULL)
		pv_tcp_lost(c->t, c, NULL, &c->t->c.rx_ooo_dropped);
	else if (v == PV_OOO_DUPLICATE)
		c->t->c.rx_duplicate++;
	else
		c->t->c.rx_out_of_order++;
	c->rcv_ooopack += v != PV_OOO_FULL;
	/* A duplicate acknowledgement must not change the window unless SACK tells what it is for. */
	if ((v == PV_OOO_QUEUED || v == PV_OOO_NEW_RANGE) && sack)
		pv_rcv_grow_window(c, len, mem);
	pv_rcv_ack_now(c);
	/* The peer counts duplicate acknowledgements, or has but a few blocks to learn from: one for the whole batch would hide some. */
	if (!sack || (owed && v != PV_OOO_QUEUED))
		pv_tcp_send_ack(c, now_ns);
}

/* A duplicate, to be reported. One block is all there is room for: another one has to leave before. */
static void duplicate(struct pv_tcp *c, pv_seq start, pv_seq end, int64_t now_ns)
{
	if (!pv_seq_eq(c->dsack.start, c->dsack.end) && (pv_seq_gt(start, c->dsack.end) || pv_seq_lt(end, c->dsack.start)))
		pv_tcp_send_ack(c, now_ns);
	pv_ooo_dsack(c, start, end);
}

/* All of it was here before, or lies outside of the window: the peer needs to know where we are. */
static void useless(struct pv_tcp *c, struct pv_pkt *pkt)
{
	pv_pkt_put(pkt);
	pv_tcp_quick_mode(c);
	pv_rcv_ack_now(c);
}

/* Payload in one buffer. */
static void segment(struct pv_tcp *c, struct pv_pkt *pkt, pv_seq seq, bool psh, int64_t now_ns)
{
	pv_seq end = pv_seq_add(seq, pkt->len), edge = c->rcv_adv;

	PV_TCP_PKT_SEQ(pkt) = seq.v;
	PV_TCP_PKT_NS(pkt) = (uint64_t)now_ns;
	if ((c->flags & (PV_TF_URG_RCVD | PV_TF_URG_VALID | PV_TF_URG_READ)) == PV_TF_URG_RCVD)
		pv_rcv_urg_catch(c, pkt, seq);
	if (c->flags & PV_TF_FIN_SEEN)
		edge = pv_seq_min(edge, c->fin_seq);
	if (pv_seq_le(end, c->rcv_nxt)) {
		c->t->c.rx_duplicate++;
		duplicate(c, seq, end, now_ns);
		useless(c, pkt);
		return;
	}
	if (pv_seq_lt(seq, c->rcv_nxt)) {
		duplicate(c, seq, c->rcv_nxt, now_ns);
		pv_rcv_trim_front(pkt, pv_seq_dist(seq, c->rcv_nxt));
		seq = c->rcv_nxt;
	}
	if (pv_seq_ge(seq, edge)) {
		pv_tcp_lost(c->t, c, NULL, &c->t->c.rx_no_room);
		useless(c, pkt);
		return;
	}
	if (pv_seq_gt(end, edge))
		pkt->len = pv_seq_dist(seq, edge);
	if (pv_seq_eq(seq, c->rcv_nxt))
		in_order(c, pkt, psh, now_ns);
	else
		out_of_order(c, pkt, now_ns);
}

/* A reassembled datagram hangs together by `frag`; from here on each buffer is a packet of its own. */
static void payload(struct pv_tcp *c, struct pv_pkt *pkt, pv_seq seq, bool psh, int64_t now_ns)
{
	while (pkt) {
		struct pv_pkt *next = pkt->frag;
		uint32_t len = pkt->len;

		pkt->frag = NULL;
		if (len)
			segment(c, pkt, seq, psh, now_ns);
		else
			pv_pkt_put(pkt);
		seq = pv_seq_add(seq, len);
		pkt = next;
	}
}

/* Congestion experienced is echoed until the peer says that it has reduced (RFC 3168 6.1.3). */
static void ecn(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (in->flags & PV_TH_CWR) {
		c->flags &= ~PV_TF_ECE;
		if (in->len)
			pv_rcv_ack_now(c); /* its cwnd may be a single segment now */
	}
	if ((in->tos & 3u) == 3u && in->len) {
		if (!(c->flags & PV_TF_ECE))
			pv_tcp_quick_mode(c);
		c->flags |= PV_TF_ECE;
	}
}

/* The first FIN within the window is the one that counts, unless data behind it came before. A FIN right where we are is taken with a
 * closed window too. */
static void note_fin(struct pv_tcp *c, pv_seq seq)
{
	if ((c->flags & PV_TF_FIN_SEEN) || pv_seq_lt(seq, c->rcv_nxt))
		return;
	if (pv_seq_gt(seq, c->rcv_adv) || (c->ooo.tail && pv_seq_lt(seq, pv_rcv_end(pv_ooo_last(c->ooo.tail)))))
		return;
	c->fin_seq = seq;
	c->flags |= PV_TF_FIN_SEEN;
}

static void take_fin(struct pv_tcp *c)
{
	c->rcv_nxt = pv_seq_add(c->rcv_nxt, 1);
	c->flags |= PV_TF_FIN_RCVD;
	pv_ooo_drop(c);
	c->ack_pend |= PV_ACK_SCHED;
	/* As Linux: in ESTABLISHED our own FIN or answer may carry the acknowledgement, else it goes at once. */
	if (c->state == PV_TCP_ESTABLISHED || c->state == PV_TCP_SYN_RCVD)
		c->pingpong = 1;
	else
		pv_rcv_ack_now(c);
}

void pv_tcp_data(struct pv_tcp *c, struct pv_tcp_in *in)
{
	pv_seq seq = in->flags & PV_TH_SYN ? pv_seq_add(in->seq, 1) : in->seq;

	if (c->flags & PV_TF_ECN)
		ecn(c, in);
	if (!in->len && !(in->flags & PV_TH_FIN)) {
		pv_pkt_put(in->pkt);
		return;
	}
	if ((in->flags & PV_TH_FIN) && !(c->flags & PV_TF_FIN_SEEN))
		note_fin(c, pv_seq_add(seq, in->len));
	if (c->flags & PV_TF_TS)
		pv_rcv_rtt_ts(c, in->opt.ts_ecr, in->len, in->now_ns);
	if (in->len) {
		payload(c, in->pkt, seq, in->flags & PV_TH_PSH, in->now_ns);
	} else {
		if (pv_seq_lt(seq, c->rcv_nxt)) /* the same FIN again */
			pv_tcp_quick_mode(c);
		if (!pv_seq_eq(seq, c->rcv_nxt))
			pv_rcv_ack_now(c);
		pv_pkt_put(in->pkt);
	}
	if ((c->flags & (PV_TF_FIN_SEEN | PV_TF_FIN_RCVD)) == PV_TF_FIN_SEEN && pv_seq_eq(c->rcv_nxt, c->fin_seq))
		take_fin(c);
	pv_rcv_ack_check(c, in->now_ns);
}

void pv_tcp_data_in_order(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	struct pv_pkt *pkt = in->pkt;
	uint32_t len = pkt->len, mem = pkt->size;
	int64_t now_ns = in->now_ns;
	bool psh = in->flags & PV_TH_PSH;

	if (pv_unlikely(!fits(c, pkt))) {
		payload(c, pkt, c->rcv_nxt, psh, now_ns);
		pv_rcv_ack_check(c, now_ns);
		return;
	}
	if (c->flags & PV_TF_TS)
		pv_rcv_rtt_ts(c, in->opt.ts_ecr, len, now_ns);
	PV_TCP_PKT_SEQ(pkt) = c->rcv_nxt.v;
	PV_TCP_PKT_NS(pkt) = (uint64_t)now_ns;
	enqueue(c, pkt);
	pv_rcv_data_event(c, len, mem, psh, now_ns);
	if (pv_likely(pv_tcp_readable(c)))
		pv_tcp_tell(c, PV_EV_IN);
	pv_rcv_ack_check(c, now_ns);
}

bool pv_tcp_run_fits(const struct pv_tcp *c, const struct pv_tcp_run *run)
{
	return c->rcv_mem + run->mem <= c->opts.rcvbuf && !pv_pool_scarce(run->tail->pool);
}

void pv_tcp_run_in_order(struct pv_tcp *c, const struct pv_tcp_run *run)
{
	const struct pv_tcp_in *in = &run->in;

	if (c->flags & PV_TF_TS)
		pv_rcv_rtt_ts(c, in->opt.ts_ecr, run->seg_len, in->now_ns);
	for (struct pv_pkt *pkt = in->pkt, *next; pkt; pkt = next) {
		next = pkt->next;
		enqueue(c, pkt);
	}
	pv_rcv_run_event(c, run);
	if (pv_likely(pv_tcp_readable(c)))
		pv_tcp_tell(c, PV_EV_IN);
	pv_rcv_ack_check(c, in->now_ns);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

uint32_t pv_tcp_inq(const struct pv_tcp *c)
{
	if (c->opts.oobinline || !(c->flags & PV_TF_URG_RCVD) || pv_seq_lt(c->rcv_up, c->copied_seq) ||
	    pv_seq_ge(c->rcv_up, c->rcv_nxt))
		return c->rcvq_bytes;
	return pv_seq_dist(c->copied_seq, c->rcv_up);
}

bool pv_tcp_readable_odd(const struct pv_tcp *c)
{
	uint32_t target = PV_MAX(c->opts.rcvlowat, 1);

	/* The urgent byte is not there for a plain read. */
	if (pv_unlikely(c->flags & PV_TF_URG_RCVD) && pv_seq_eq(c->rcv_up, c->copied_seq) && !c->opts.oobinline)
		target++;
	if (c->rcvq_bytes >= target)
		return true;
	/* No more may come before something is read. */
	return c->rcvq_bytes && target > 2 &&
	       (c->rcv_mem > c->opts.rcvbuf || pv_rcv_window(c) <= c->rcv_mss ||
		(c->rcv_mem > PV_RCV_FAIR_MEM && pv_pool_scarce(c->rcvq.head->pool)));
}

/* Where a read writes to. */
struct out {
	const struct pv_iov *iov;
	uint32_t iovcnt;
	size_t at; /* bytes of the first that are written */
	uint64_t left; /* bytes of all */
	bool discard, stamp;
};

static void out_init(struct out *o, const struct pv_iov *iov, uint32_t iovcnt, bool discard)
{
	*o = (struct out){ .iov = iov, .iovcnt = iovcnt, .discard = discard };
	for (uint32_t i = 0; i < iovcnt; i++)
		o->left += iov[i].len;
}

/* `n` is at most what is left. */
static void out_put(struct out *o, const uint8_t *p, uint32_t n)
{
	o->left -= n;
	while (n) {
		uint32_t part = (uint32_t)PV_MIN(n, o->iov->len - o->at);

		if (!o->discard && part)
			memcpy((uint8_t *)(uintptr_t)o->iov->base + o->at, p, part);
		p += part;
		n -= part;
		o->at += part;
		if (n) {
			o->iov++;
			o->at = 0;
		}
	}
}

/* At most `n` bytes from `seq` on may be read in one go: up to the urgent mark. *skip: the byte at the mark is not read at all. */
static uint32_t up_to_mark(const struct pv_tcp *c, pv_seq seq, uint32_t n, bool *skip)
{
	uint32_t ahead = pv_seq_dist(seq, c->rcv_up);

	*skip = !ahead && !c->opts.oobinline;
	return ahead && ahead < n ? ahead : n;
}

/* Read past the mark: there is no urgent data any more. */
static void mark_passed(struct pv_tcp *c)
{
	if (pv_seq_gt(c->copied_seq, c->rcv_up))
		c->flags &= ~(PV_TF_URG_RCVD | PV_TF_URG_VALID | PV_TF_URG_READ);
}

/* By `n` bytes of the first packet, `pkt`, of which `off` were read before. */
pv_inline void advance_in(struct pv_tcp *c, struct pv_pkt *pkt, uint32_t off, uint32_t n)
{
	c->copied_seq = pv_seq_add(c->copied_seq, n);
	c->rcvq_bytes -= n;
	if (off + n < pkt->len) {
		c->rcvq_off = off + n;
		return;
	}
	c->rcvq_off = 0;
	pv_pktq_take(&c->rcvq);
	c->rcv_mem -= pkt->size;
	pv_pkt_put(pkt);
}

static void advance(struct pv_tcp *c, uint32_t n)
{
	advance_in(c, c->rcvq.head, c->rcvq_off, n);
}

void pv_rcv_skip(struct pv_tcp *c, uint32_t n)
{
	advance(c, n);
}

/* Reads, or looks, until the buffers are full, the queue is empty, or the mark is reached after something was read. */
static uint32_t read_queue(struct pv_tcp *c, struct out *o, bool peek)
{
	struct pv_pkt *pkt = c->rcvq.head;
	uint32_t off = c->rcvq_off, copied = 0;
	pv_seq seq = c->copied_seq;

	while (pkt && o->left) {
		uint32_t n = pkt->len - off;
		bool skip = false;

		if (pv_unlikely(c->flags & PV_TF_URG_RCVD)) {
			if (copied && pv_seq_eq(seq, c->rcv_up))
				break;
			n = up_to_mark(c, seq, n, &skip);
		}
		if (skip) {
			n = 1;
		} else {
			n = (uint32_t)PV_MIN(n, o->left);
			out_put(o, pkt->data + off, n);
			copied += n;
			if (pv_unlikely(o->stamp))
				pv_tcp_rx_stamp_note(c, pkt);
		}
		seq = pv_seq_add(seq, n);
		off += n;
		if (off == pkt->len) {
			struct pv_pkt *next = pkt->next;

			off = 0;
			if (!peek)
				advance(c, n);
			pkt = next;
		} else if (!peek) {
			advance(c, n);
		}
		if (pv_unlikely(c->flags & PV_TF_URG_RCVD) && !peek)
			mark_passed(c);
	}
	return copied;
}

/* What a read says that finds nothing. */
static int64_t nothing(struct pv_tcp *c)
{
	if (c->flags & PV_TF_FIN_RCVD)
		return 0;
	if (c->tell.err)
		return -pv_tcp_error(c);
	if (c->flags & (PV_TF_SHUT_RD | PV_TF_CLOSED_BY_ERR))
		return 0;
	return c->state == PV_TCP_CLOSED ? -ENOTCONN : -EAGAIN;
}

static pv_noinline int64_t recv_any(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags, int64_t now_ns)
{
	struct out o;
	uint32_t n;

	if (pv_unlikely(c->state == PV_TCP_LISTEN))
		return -ENOTCONN;
	if (pv_unlikely(flags & PV_TCP_MSG_OOB))
		return pv_rcv_urg_recv(c, iov, iovcnt, flags);
	if (!c->rcvq_bytes)
		return nothing(c);
	out_init(&o, iov, iovcnt, flags & PV_TCP_MSG_TRUNC);
	o.stamp = flags & PV_TCP_MSG_RX_STAMP;
	if (pv_unlikely(!o.left))
		return 0;
	n = read_queue(c, &o, flags & PV_TCP_MSG_PEEK);
	if (!n)
		return nothing(c); /* the urgent byte was all there was */
	if (!(flags & PV_TCP_MSG_PEEK))
		pv_rcv_read_done(c, n, now_ns);
	return n;
}

/* One buffer that one packet fills, or which takes all there is. 0: it is otherwise. */
pv_inline int64_t recv_one(struct pv_tcp *c, void *buf, size_t len, int64_t now_ns)
{
	uint32_t off = c->rcvq_off, n;
	struct pv_pkt *pkt = c->rcvq.head;

	if (pv_unlikely(!pkt || (c->flags & PV_TF_URG_RCVD)))
		return 0;
	n = pkt->len - off;
	if (len < n)
		n = (uint32_t)len;
	else if (pkt->next && len > n)
		return 0;
	if (pv_unlikely(!n))
		return 0;
	pv_copy(buf, pkt->data + off, n);
	advance_in(c, pkt, off, n);
	return pv_rcv_read_done(c, n, now_ns);
}

int64_t pv_tcp_recv_now(struct pv_tcp *c, void *buf, size_t len, int64_t now_ns)
{
	struct pv_iov iov = { buf, len };
	int64_t n;

	if (c->rcvq_bytes < c->opts.rcvlowat)
		return 0;
	n = recv_one(c, buf, len, now_ns);
	/* Several packets: then there are bytes, and none is passed over. */
	if (pv_likely(n > 0 || !c->rcvq_bytes || !len || c->flags & PV_TF_URG_RCVD))
		return n;
	return recv_any(c, &iov, 1, 0, now_ns);
}

int64_t pv_tcp_recv(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags, int64_t now_ns)
{
	int64_t n = flags || iovcnt != 1 ? 0 : recv_one(c, (void *)(uintptr_t)iov->base, iov->len, now_ns);

	return pv_likely(n > 0) ? n : recv_any(c, iov, iovcnt, flags, now_ns);
}

/* The first `n` unread bytes in a packet of their own, since the mark lies behind them. */
static struct pv_pkt *cut_at_mark(struct pv_tcp *c, uint32_t n)
{
	const struct pv_pkt *head = c->rcvq.head;
	struct pv_pkt *pkt = pv_pkt_get(head->pool);

	if (!pkt)
		return NULL;
	pkt->data = pkt->buf;
	memcpy(pkt->data, head->data + c->rcvq_off, n);
	pkt->len = pkt->total = n;
	pkt->iface = head->iface;
	take_stamp(pkt, head);
	pkt->l3_off = pkt->l4_off = 0;
	advance(c, n);
	return pkt;
}

static struct pv_pkt *whole_head(struct pv_tcp *c)
{
	struct pv_pkt *pkt = pv_pktq_pop(&c->rcvq);

	c->rcv_mem -= pkt->size;
	pkt->data += c->rcvq_off;
	pkt->len -= c->rcvq_off;
	pkt->total = pkt->len;
	pkt->next = NULL;
	c->rcvq_off = 0;
	c->rcvq_bytes -= pkt->len;
	c->copied_seq = pv_seq_add(c->copied_seq, pkt->len);
	return pkt;
}

struct pv_pkt *pv_tcp_take(struct pv_tcp *c, int64_t now_ns, int64_t *rc)
{
	struct pv_pkt *pkt;
	uint32_t n;
	bool skip;

	if (pv_unlikely(c->flags & PV_TF_URG_RCVD) && c->rcvq_bytes) {
		(void)up_to_mark(c, c->copied_seq, 1, &skip);
		if (skip) {
			advance(c, 1);
			mark_passed(c);
		}
	}
	if (!c->rcvq_bytes) {
		*rc = c->state == PV_TCP_LISTEN ? -ENOTCONN : nothing(c);
		return NULL;
	}
	n = c->rcvq.head->len - c->rcvq_off;
	if (pv_unlikely(c->flags & PV_TF_URG_RCVD) && up_to_mark(c, c->copied_seq, n, &skip) < n)
		pkt = cut_at_mark(c, up_to_mark(c, c->copied_seq, n, &skip));
	else
		pkt = whole_head(c);
	if (!pkt) {
		*rc = -ENOBUFS;
		return NULL;
	}
	if (c->flags & PV_TF_URG_RCVD)
		mark_passed(c);
	*rc = pkt->len;
	pv_rcv_read_done(c, pkt->len, now_ns);
#ifdef PV_DEBUG
	pkt->owner = PV_OWNER_APP;
#endif
	return pkt;
}
