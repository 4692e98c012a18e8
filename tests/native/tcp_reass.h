/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive queues of one connection against an array of bytes. An input is a list of steps: a segment anywhere around rcv_nxt, a read of
 * some kind, an acknowledgement that leaves, a change of the buffer, of the pool, of the time. After every step the queues are walked; what
 * is read must be the stream, and as long as nothing had to be dropped for want of memory, rcv_nxt and what waits behind holes must be
 * exactly what the array says.
 *
 * The connection has no peer and no path: SYN_SENT keeps pv_tcp_send_ack silent, and the test says when an acknowledgement leaves.
 */
#ifndef TCP_REASS_H
#define TCP_REASS_H

#include "tcp/rcv.h"
#include "tcp_check.h"
#include "testmem.h"

#define REASS_BYTES (1u << 17)
#define REASS_ISN 0xffffe000u /* wraps soon */
#define REASS_HELD 128

struct reass {
	struct testmem mem;
	struct pv_pool *pool;
	void *no_net; /* zeroes: no doorbell to ring, so that nothing behind its head is looked at */
	struct pv_tcp_table *t;
	struct pv_tcp *c;
	int64_t now;
	uint8_t have[REASS_BYTES]; /* by offset from the first byte: was within the window when it came */
	uint32_t nxt, beyond, read; /* contiguous; bytes of `have` behind it; what the application has read */
	uint32_t top; /* nothing was within the window from here on */
	uint32_t adv; /* offset of the promised edge */
	bool last_ooo; /* the last segment went to the out-of-order queue */
	uint32_t last_at; /* its first new byte */
	struct pv_pkt *held[REASS_HELD];
	uint32_t nheld;
	const uint8_t *in, *end;
};

static inline uint8_t reass_byte(uint32_t off)
{
	return (uint8_t)(off * 167 + (off >> 7));
}

static inline uint32_t reass_off(pv_seq s)
{
	return s.v - (REASS_ISN + 1);
}

static inline uint32_t reass_u8(struct reass *r)
{
	return r->in < r->end ? *r->in++ : 0;
}

static inline uint32_t reass_u16(struct reass *r)
{
	uint32_t hi = reass_u8(r);

	return hi << 8 | reass_u8(r);
}

static inline void reass_open(struct reass *r, uint32_t opts)
{
	const struct pv_mem *mem = testmem_init(&r->mem);
	struct pv_pool_cfg cfg = { .buf_size = opts & 1 ? 2048 : 512, .headroom = 64, .count = opts & 2 ? 128 : 256 };
	struct pv_tcp *c;

	CHECK_EQ(pv_pool_open(&r->pool, mem, &cfg), 0);
	r->t = mem->alloc(mem->ctx, sizeof(*r->t));
	c = r->c = mem->alloc(mem->ctx, sizeof(*c));
	CHECK(r->t && c);
	pv_list_init(&r->t->head.ready);
	pv_list_init(&r->t->head.due);
	pv_list_init(&r->t->head.blocked);
	pv_wheel_init(&r->t->wheel, 0);
	r->t->cfg = (struct pv_tcp_cfg){ .rcvbuf = opts & 4 ? 131072 : 8192,
					 .rcvbuf_max = opts & 8 ? 1u << 20 : 8192,
					 .quickack_segs = 16,
					 .delack_max_ns = 40 * PV_NS_PER_MS,
					 .no_window_scaling = opts & 16 };
	r->t->net = r->no_net = mem->alloc(mem->ctx, sizeof(struct pv_net_head));
	CHECK(r->no_net);
	c->t = r->t;
	c->state = PV_TCP_SYN_SENT;
	c->advmss = opts & 1 ? 1448 : 400;
	pv_list_init(&c->tell.on_ready);
	pv_list_init(&c->due);
	pv_list_init(&c->blocked);
	pv_list_init(&c->sndq);
	pv_wtimer_init(&c->timer);
	for (uint32_t i = 0; i < PV_TT_COUNT; i++)
		c->deadline_ns[i] = PV_NEVER;
	c->flags = opts & 32 ? 0 : PV_TF_SACK;
	c->opts.rcvbuf_locked = opts & 64;
	c->opts.oobinline = opts & 128;
	pv_tcp_rcv_init(c);
	pv_tcp_rcv_start(c, pv_seq_of(REASS_ISN), r->now);
	r->adv = reass_off(c->rcv_adv);
}

static inline void reass_close(struct reass *r)
{
	pv_tcp_rcvq_drop(r->c);
	CHECK_EQ(r->c->rcv_mem, 0);
	CHECK_EQ(r->c->ooo.count, 0);
	while (r->nheld)
		pv_pkt_put(r->held[--r->nheld]);
	pv_wheel_del(&r->t->wheel, &r->c->timer);
	r->mem.mem.free(r->mem.mem.ctx, r->c, sizeof(*r->c));
	r->mem.mem.free(r->mem.mem.ctx, r->t, sizeof(*r->t));
	r->mem.mem.free(r->mem.mem.ctx, r->no_net, sizeof(struct pv_net_head));
	CHECK_EQ(pv_pool_close(r->pool), 0);
	CHECK_EQ(r->mem.blocks, 0);
}

static inline bool reass_lost(const struct reass *r)
{
	return r->t->c.rx_no_room || r->t->c.rx_ooo_dropped;
}

static inline void reass_check(struct reass *r)
{
	const struct pv_tcp *c = r->c;
	struct tcp_held held = { 0 };
	bool fin = c->flags & PV_TF_FIN_RCVD;
	uint32_t nxt = reass_off(c->rcv_nxt) - fin;

	tcp_checked = c;
	tcp_check_receive(c, &held);
	CHECK_EQ(reass_off(c->copied_seq), r->read);
	CHECK_EQ(nxt - r->read, c->rcvq_bytes);
	CHECK(pv_tcp_inq(c) <= c->rcvq_bytes);
	CHECK((c->flags & PV_TF_URG_RCVD) || pv_tcp_inq(c) == c->rcvq_bytes);
	CHECK(!(c->flags & PV_TF_URG_RCVD) || pv_seq_ge(c->rcv_up, c->copied_seq));
	CHECK(!(c->flags & PV_TF_URG_VALID) || c->urg_byte == reass_byte(reass_off(c->rcv_up)));
	CHECK(fin || pv_seq_le(c->rcv_nxt, c->rcv_adv));
	while (r->nxt < nxt)
		CHECK(r->have[r->nxt++]);
	if (fin)
		return;
	for (const struct pv_pkt *h = c->ooo.head; h; h = pv_ooo_next(h)) {
		for (const struct pv_pkt *p = h; p; p = p->next)
			for (uint32_t i = 0; i < p->len; i++) {
				uint32_t off = reass_off(pv_rcv_seq(p)) + i;

				CHECK(r->have[off]);
				CHECK_EQ(p->data[i], reass_byte(off));
			}
	}
	for (uint32_t i = 0; i < c->nsack; i++) {
		CHECK(pv_seq_lt(c->sack[i].start, c->sack[i].end));
		CHECK(pv_seq_gt(c->sack[i].start, c->rcv_nxt));
	}
	CHECK((c->nsack != 0) == (c->ooo.head != NULL));
	if (reass_lost(r))
		return;
	CHECK(!r->have[r->nxt] || ((c->flags & PV_TF_FIN_SEEN) && pv_seq_ge(c->rcv_nxt, c->fin_seq)));
	r->beyond = 0;
	for (uint32_t i = r->nxt; i < r->top; i++)
		r->beyond += r->have[i];
	CHECK_EQ(c->ooo_bytes, r->beyond);
}

/* The packet, or chain of packets, of a segment; NULL: the pool is empty. */
static inline struct pv_pkt *reass_packet(struct reass *r, uint32_t off, uint32_t len, uint32_t parts)
{
	struct pv_pkt *first = NULL, **tail = &first;
	uint32_t max = pv_pool_config(r->pool)->buf_size - 128, done = 0;

	do {
		struct pv_pkt *p = pv_pkt_get(r->pool);
		uint32_t n = PV_MIN(PV_MIN(len - done, max), parts ? len / (parts + 1) + 1 : len);

		if (!p) {
			if (first)
				pv_pkt_put(first);
			return NULL;
		}
		p->data = p->buf + 64;
		for (uint32_t i = 0; i < n; i++)
			p->data[i] = reass_byte(off + done + i);
		p->len = n;
		done += n;
		*tail = p;
		tail = &p->frag;
	} while (done < len);
	first->total = len;
	return first;
}

/* The urgent pointer of a segment: the byte that was urgent, and is next to be read, leaves the stream when another one becomes it. */
static inline void reass_urgent(struct reass *r, const struct pv_tcp_in *in)
{
	bool at_mark = pv_tcp_at_mark(r->c) && r->c->rcvq_bytes && !r->c->opts.oobinline;

	pv_tcp_urgent(r->c, in);
	/* The new one may be next to be read, too. */
	if (at_mark && reass_off(r->c->copied_seq) == r->read + 1)
		r->read++;
}

static inline void reass_segment(struct reass *r, uint32_t kind, bool urgent)
{
	int32_t at = (int32_t)r->nxt + (int16_t)(kind & 1 ? reass_u16(r) << 3 : reass_u8(r) << 8) / 8;
	uint32_t len = kind & 2 ? reass_u8(r) : reass_u16(r) % (kind & 4 ? 6000 : 1400), edge = r->adv;
	struct pv_tcp *c = r->c;
	struct pv_tcp_in in = { .now_ns = r->now, .flags = PV_TH_ACK };
	bool fin_seen = c->flags & PV_TF_FIN_SEEN, chain;
	uint32_t off, ooo = (uint32_t)r->t->c.rx_out_of_order;

	if (kind & 8)
		at = (int32_t)r->nxt;
	off = at < 0 ? 0 : (uint32_t)at;
	if (off + len >= REASS_BYTES - 16384)
		return;
	in.pkt = reass_packet(r, off, len, kind >> 4 & 3);
	if (!in.pkt)
		return;
	in.len = len;
	chain = in.pkt->frag;
	in.seq = pv_seq_of(REASS_ISN + 1 + off);
	if ((kind & 0xf0) == 0xf0)
		in.flags |= PV_TH_FIN;
	if (kind & 0x40)
		in.flags |= PV_TH_PSH;
	if (fin_seen)
		edge = PV_MIN(edge, reass_off(c->fin_seq));
	if (urgent && !(c->flags & PV_TF_FIN_RCVD)) { /* nobody looks at what follows a FIN */
		in.flags |= PV_TH_URG;
		in.urp = (uint16_t)(reass_u8(r) * 8);
		reass_urgent(r, &in);
	}
	r->last_at = PV_MAX(off, r->nxt);
	if ((kind & 8) && len && off == r->nxt && !chain && !(in.flags & (PV_TH_FIN | PV_TH_URG)) && !c->ooo.head &&
	    !(c->flags & (PV_TF_FIN_SEEN | PV_TF_URG_RCVD)) && len <= pv_rcv_window(c))
		pv_tcp_data_in_order(c, &in);
	else
		pv_tcp_data(c, &in);
	/* Its own FIN may have been one that nobody believes: there is none then. */
	if (!fin_seen && (c->flags & PV_TF_FIN_SEEN))
		edge = PV_MIN(edge, reass_off(c->fin_seq));
	for (uint32_t i = off; i < off + len && i < edge; i++)
		r->have[i] = 1;
	r->top = PV_MAX(r->top, PV_MIN(off + len, edge));
	r->last_ooo = r->t->c.rx_out_of_order != ooo && !chain;
}

static inline void reass_ack(struct reass *r, uint32_t room)
{
	struct pv_tcp *c = r->c;
	struct pv_wire_tcp_opts opt = { 0 };
	bool d = !pv_seq_eq(c->dsack.start, c->dsack.end);
	uint32_t n, wnd, fin = c->flags & PV_TF_FIN_SEEN ? reass_off(c->fin_seq) : UINT32_MAX;

	n = pv_tcp_sack_fill(c, &opt, room);
	CHECK(n <= PV_WIRE_SACK_MAX && (!n || 4 + 8 * n <= room));
	CHECK_EQ(n, opt.nsack);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t from = opt.sack[i].start - (REASS_ISN + 1), to = opt.sack[i].end - (REASS_ISN + 1);

		CHECK(from < to && to <= REASS_BYTES);
		CHECK((d && i == 0) || from > r->nxt);
		for (uint32_t k = from; k < to; k++)
			CHECK(r->have[k] || k == fin);
		if (i == (d ? 1u : 0u) && r->last_ooo && c->ooo.head && r->last_at > r->nxt)
			CHECK(from <= r->last_at && r->last_at < to);
	}
	wnd = pv_tcp_select_window(c);
	CHECK(wnd % (1u << c->rcv_wscale) == 0 && wnd <= 65535u << c->rcv_wscale);
	/* The right edge never moves left. */
	CHECK(reass_off(c->rcv_adv) + (c->flags & PV_TF_FIN_RCVD ? 1u : 0u) >= r->adv);
	r->adv = reass_off(c->rcv_adv);
	pv_tcp_ack_sent(c);
	CHECK(!(c->flags & PV_TF_ACK_NOW) && c->deadline_ns[PV_TT_DELACK] == PV_NEVER);
	pv_list_del(&c->due);
}

/* Whether the next byte is one that no read gives; *limit: how far one may go. */
static inline bool reass_mark(const struct reass *r, uint32_t *limit)
{
	uint32_t ahead = pv_seq_dist(r->c->copied_seq, r->c->rcv_up);

	*limit = r->c->flags & PV_TF_URG_RCVD && ahead ? ahead : UINT32_MAX;
	return pv_tcp_at_mark(r->c) && r->c->rcvq_bytes && !r->c->opts.oobinline;
}

static inline void reass_oob(struct reass *r, uint32_t kind)
{
	bool there = (r->c->flags & (PV_TF_URG_VALID | PV_TF_URG_READ)) == PV_TF_URG_VALID && !r->c->opts.oobinline;
	uint8_t byte = 0;
	struct pv_iov iov = { &byte, 1 };
	int64_t rc = pv_tcp_recv(r->c, &iov, 1, PV_TCP_MSG_OOB | (kind & 1 ? PV_TCP_MSG_PEEK : 0u), r->now);

	CHECK(there ? rc == 1 && byte == reass_byte(reass_off(r->c->rcv_up)) : rc <= 0);
}

static inline void reass_read(struct reass *r, uint32_t kind)
{
	static uint8_t buf[4096];
	uint32_t len = kind & 2 ? reass_u16(r) % sizeof(buf) : reass_u8(r), cut = len ? reass_u8(r) % (len + 1) : 0;
	struct pv_iov iov[3] = { { buf, cut }, { buf, 0 }, { buf + cut, len - cut } };
	uint32_t flags = (kind & 4 ? PV_TCP_MSG_PEEK : 0u) | (kind & 8 ? PV_TCP_MSG_TRUNC : 0u), there = r->c->rcvq_bytes, limit;
	uint32_t at = r->read + (reass_mark(r, &limit) && len);
	int64_t rc;

	memset(buf, 0, sizeof(buf));
	rc =
	    kind & 1 ? pv_tcp_recv(r->c, &(struct pv_iov){ buf, len }, 1, flags, r->now) : pv_tcp_recv(r->c, iov, 3, flags, r->now);
	there -= at - r->read;
	if (!(kind & 4))
		r->read = at;
	if (!there) {
		CHECK_EQ(rc, r->c->flags & PV_TF_FIN_RCVD ? 0 : -EAGAIN);
		return;
	}
	CHECK_EQ(rc, PV_MIN(PV_MIN(len, there), limit));
	for (uint32_t i = 0; i < (uint32_t)rc && !(kind & 8); i++)
		CHECK_EQ(buf[i], reass_byte(at + i));
	if (!(kind & 4))
		r->read += (uint32_t)rc;
}

static inline void reass_take(struct reass *r)
{
	uint32_t there = r->c->rcvq_bytes, limit;
	bool skip = reass_mark(r, &limit);
	int64_t rc;
	struct pv_pkt *p = pv_tcp_take(r->c, r->now, &rc);

	there -= skip;
	r->read += skip;
	if (rc == -ENOBUFS) {
		CHECK(!p && limit < there);
		return;
	}
	if (!there) {
		CHECK(!p);
		CHECK_EQ(rc, r->c->flags & PV_TF_FIN_RCVD ? 0 : -EAGAIN);
		return;
	}
	CHECK(p && rc == p->len && p->len && !p->frag && p->total == p->len && p->len <= limit);
	for (uint32_t i = 0; i < p->len; i++)
		CHECK_EQ(p->data[i], reass_byte(r->read + i));
	r->read += p->len;
	pv_pkt_put(p);
}

/* Somebody else takes packets, or gives them back. */
static inline void reass_squeeze(struct reass *r, uint32_t n)
{
	if (n & 1) {
		while (r->nheld)
			pv_pkt_put(r->held[--r->nheld]);
		return;
	}
	for (; n && r->nheld < REASS_HELD; n--) {
		struct pv_pkt *p = pv_pkt_get(r->pool);

		if (!p)
			return;
		r->held[r->nheld++] = p;
	}
}

static inline void reass_step(struct reass *r)
{
	uint32_t op = reass_u8(r);

	switch (op & 15) {
	case 0 ... 8:
		reass_segment(r, (op & 7) | (reass_u8(r) & 0xf8), op >> 4 == 15);
		break;
	case 9:
		reass_read(r, op >> 4);
		break;
	case 10:
		if (op & 0x40)
			reass_oob(r, op >> 4);
		reass_take(r);
		break;
	case 11:
	case 12:
		reass_ack(r, op & 0x10 ? 40 : op >> 4 & 8 ? 28 : op >> 2);
		break;
	case 13:
		r->now += (int64_t)reass_u16(r) * 10 * PV_NS_PER_US;
		if (r->c->deadline_ns[PV_TT_DELACK] <= r->now)
			pv_tcp_delack_fired(r->c, r->now);
		break;
	case 14:
		r->c->opts.rcvbuf = 2304 + reass_u16(r) * 2;
		r->c->opts.rcvlowat = reass_u8(r) * 8;
		pv_tcp_rcv_opts_changed(r->c, r->now);
		break;
	default:
		reass_squeeze(r, reass_u8(r));
		break;
	}
	reass_check(r);
}

static inline void reass_run(const uint8_t *in, size_t len)
{
	struct reass *r = calloc(1, sizeof(*r));

	CHECK(r != NULL);
	r->in = in;
	r->end = in + len;
	r->now = PV_NS_PER_S;
	reass_open(r, reass_u8(r));
	while (r->in < r->end)
		reass_step(r);
	reass_close(r);
	free(r);
}

#endif
