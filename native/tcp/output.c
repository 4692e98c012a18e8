/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What may go, and the segment's header. A segment's payload lies in its packet since it was written; each transmission writes the header
 * in front of it and posts that very packet, unless it cannot: still with the ring (which would see the header change under its hands),
 * of another ring's pool (the path has moved), or bound for one of our own addresses, where the receiver gets the packet itself.
 */
#include "net/txlane.h"
#include "tcp/output.h"

#define SEND_STATES                                                                                                                \
	(1u << PV_TCP_ESTABLISHED | 1u << PV_TCP_CLOSE_WAIT | 1u << PV_TCP_FIN_WAIT_1 | 1u << PV_TCP_CLOSING |                     \
	 1u << PV_TCP_LAST_ACK)
#define MSS_MIN 48u /* tcp_min_snd_mss of Linux */
#define TTL_DEFAULT 64u

/* ---- the path and what follows from it ------------------------------------------------------------------------------------ */

/* Linux's tcp_bound_to_half_wnd: a peer with a tiny window gets segments of which two fit. */
static uint32_t half_window(const struct pv_tcp *c, uint32_t mss)
{
	uint32_t cut = c->max_window > PV_TCP_MSS_DEFAULT ? c->max_window / 2 : c->max_window;

	if (!cut || mss <= cut)
		return mss;
	return PV_MAX(cut, 68u - PV_TCP_HLEN - (c->flags & PV_TF_TS ? PV_TCP_TS_LEN : 0u));
}

uint32_t pv_tcp_path_mss(const struct pv_tcp *c, uint32_t pmtu)
{
	uint32_t headers = (c->path.is4 ? 20u : 40u) + PV_TCP_HLEN, ts = c->flags & PV_TF_TS ? PV_TCP_TS_LEN : 0u;
	uint32_t mss = pmtu > headers ? pmtu - headers : 0;

	mss = PV_MIN(mss, (uint32_t)(c->mss_peer ? c->mss_peer : PV_TCP_MSS_DEFAULT));
	mss = PV_MAX(mss, MSS_MIN) - ts;
	return half_window(c, mss);
}

void pv_tcp_mss_sync(struct pv_tcp *c, uint32_t pmtu)
{
	uint32_t mss = pv_tcp_path_mss(c, pmtu), room = pv_pool_config(c->path.ring->pool)->buf_size - PV_TCP_DATA_OFF;

	/* A segment is a buffer at most: such that so many of them fill the path's, where they may leave together. */
	if (mss > room)
		mss = c->path.joins & PV_JOIN_PIECES ? mss / ((mss + room - 1) / room) : room;
	c->mss = (uint16_t)mss;
	c->pmtu = pmtu;
}

static pv_noinline int path_again(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_path_query q = { .dst = c->raddr,
				   .src = c->laddr,
				   .iface = c->path.bound,
				   .src_port = c->lport,
				   .dst_port = c->rport,
				   .proto = PV_PROTO_TCP,
				   .tos = c->txo.tos,
				   .prio = c->opts.priority };
	struct pv_path fresh;
	int rc = pv_net_path(c->t->net, &q, now_ns, &fresh);

	if (rc) {
		c->soft_err = (uint16_t)-rc;
		c->t->c.tx_errors++;
		return rc;
	}
	if (pv_unlikely(c->path.lane))
		pv_txlane_set(c->t->net, &fresh, c->path.lane);
	c->path = fresh;
	if (fresh.mtu != c->pmtu)
		pv_tcp_mss_sync(c, fresh.mtu);
	return 0;
}

int pv_tcp_path_check(struct pv_tcp *c, int64_t now_ns)
{
	return pv_likely(pv_path_valid(c->t->net, &c->path)) ? 0 : path_again(c, now_ns);
}

void pv_tcp_block(struct pv_tcp *c)
{
	if (c->flags & PV_TF_BLOCKED)
		return;
	c->flags |= PV_TF_BLOCKED;
	pv_list_add(&c->t->head.blocked, &c->blocked);
	c->t->head.wake_ns = INT64_MIN;
}

/* ---- headers -------------------------------------------------------------------------------------------------------------- */

/* RFC 9293 3.8.2 as Linux reads it (RFC 1122 4.2.2.4): the pointer is to the byte behind the urgent one. */
void pv_tcp_put_urgent(struct pv_tcp *c, uint8_t *h, pv_seq seq)
{
	uint32_t ahead = pv_seq_dist(seq, c->snd_up);

	if (pv_seq_le(c->snd_up, c->snd_una)) {
		c->flags &= ~PV_TF_SND_URG;
		return;
	}
	if (pv_seq_ge(seq, c->snd_up))
		return;
	/* Too far for the field: as far as it goes, while even that has not been sent. */
	if (ahead > UINT16_MAX && pv_seq_le(pv_seq_add(seq, UINT16_MAX), c->snd_nxt))
		return;
	h[13] |= PV_TH_URG;
	pv_put16(h + 18, (uint16_t)PV_MIN(ahead, (uint32_t)UINT16_MAX));
}

/* SACK blocks go where they fit: full segments have no room for them, and what is missing is told by acknowledgements anyway. */
uint32_t pv_tcp_put_options(struct pv_tcp *c, uint8_t *opts_end, uint32_t payload, int64_t now_ns)
{
	struct pv_wire_tcp_opts opt = { .has_ts = c->flags & PV_TF_TS };
	uint32_t used = opt.has_ts ? PV_TCP_TS_LEN : 0, room = PV_TCP_OPT_MAX - used;

	opt.ts_val = pv_tcp_ts_now(c, now_ns);
	opt.ts_ecr = c->ts_recent;
	if (payload)
		room = PV_MIN(room, (c->mss > payload ? c->mss - payload : 0u) & ~3u);
	(void)pv_tcp_sack_fill(c, &opt, room);
	used = pv_wire_tcp_opts_len(&opt);
	return pv_wire_tcp_opts_emit(opts_end - used, &opt);
}

pv_noinline void pv_tcp_put_any(struct pv_tcp *c, struct pv_pkt *pkt, pv_seq seq, uint32_t flags, int64_t now_ns)
{
	uint32_t payload = pkt->len, opts;
	uint8_t *data = pkt->data;

	pv_tcp_put_plain(c, pkt, seq, flags, NULL, now_ns);
	if (pv_tcp_has_blocks(c) && (c->flags & PV_TF_SACK)) {
		uint8_t h[PV_TCP_HLEN];

		memcpy(h, pkt->data, sizeof(h));
		opts = pv_tcp_put_options(c, data, payload, now_ns);
		h[12] = (uint8_t)((PV_TCP_HLEN + opts) << 2);
		pkt->data = data - opts - PV_TCP_HLEN;
		pkt->len = payload + opts + PV_TCP_HLEN;
		memcpy(pkt->data, h, sizeof(h));
	}
	if (c->flags & PV_TF_SND_URG)
		pv_tcp_put_urgent(c, pkt->data, seq);
}

/* ---- posting -------------------------------------------------------------------------------------------------------------- */

/* A refused packet is not lost: whoever waits for room comes again, for the rest there are timers. */
pv_noinline int pv_tcp_refused(struct pv_tcp *c, int rc)
{
	if (rc == -ENOBUFS)
		pv_tcp_block(c);
	else
		c->soft_err = (uint16_t)-rc;
	pv_tcp_lost(c->t, c, NULL, &c->t->c.tx_errors);
	return rc;
}

static pv_noinline int no_packet(struct pv_tcp *c)
{
	pv_tcp_lost(c->t, c, NULL, &c->t->c.tx_no_buf);
	pv_tcp_block(c);
	return -ENOBUFS;
}

/* Posts a packet with its header; our acknowledgement leaves with it. */
pv_inline int post(struct pv_tcp *c, struct pv_pkt *pkt, const struct pv_tx_opts *txo, int64_t now_ns)
{
	int rc = pv_net_tx(c->t->net, &c->path, txo, pkt, now_ns);

	if (pv_unlikely(rc))
		return pv_tcp_refused(c, rc);
	pv_tcp_left(c);
	return 0;
}

/* The same of a segment that somebody may want to have stamped. */
static pv_noinline int post_stamp(struct pv_tcp *c, const struct pv_tcp_seg *s, struct pv_pkt *pkt, const struct pv_tx_opts *txo,
				  int64_t now_ns)
{
	struct pv_stamp_ask ask;
	int rc;

	if (!pv_tcp_stamp_ask(c, s->seq, pv_seg_end(s), &ask))
		return post(c, pkt, txo, now_ns);
	c->stamps->leaving = s;
	rc = pv_net_tx_stamp(c->t->net, &c->path, txo, pkt, &ask, now_ns);
	c->stamps->leaving = NULL;
	if (rc)
		return pv_tcp_refused(c, rc);
	pv_tcp_left(c);
	return 0;
}

/* A packet without payload. NULL: none. */
static struct pv_pkt *empty_packet(struct pv_pool *pool)
{
	struct pv_pkt *pkt = pv_pkt_get(pool);

	if (pkt)
		pkt->data = pkt->buf + PV_TCP_DATA_OFF;
	return pkt;
}

/* Completed packets of the ring that a segment waits for. */
static void reap(struct pv_net *net, struct pv_ring *ring)
{
	struct pv_pkt *done[PV_RING_BATCH_MAX];
	uint32_t n = ring->tx_pending ? pv_ring_tx_reap(ring, done, PV_RING_BATCH_MAX) : 0;

	for (uint32_t i = 0; i < n; i++)
		pv_net_tx_done(net, done[i]);
}

/* The packet to post for a segment whose own cannot go; *rc when there is none. */
static pv_noinline struct pv_pkt *other_packet(struct pv_tcp *c, struct pv_tcp_seg *s, int *rc)
{
	struct pv_pkt *old = s->pkt, *pkt;
	struct pv_ring *ring = c->path.ring;

	*rc = 0;
	if (old && old->pool == ring->pool && !c->path.is_local) {
		reap(c->t->net, ring);
		if (!(old->flags & PV_PKT_KEPT)) {
			old->flags = PV_PKT_KEPT;
			return old;
		}
		/* It waits for the neighbour's address: another copy of it would only wait behind it. */
		if (c->path.neigh && !c->path.l2_ready) {
			*rc = -EBUSY;
			return NULL;
		}
	}
	pkt = empty_packet(ring->pool);
	if (!pkt || !old) {
		*rc = pkt ? 0 : no_packet(c);
		return pkt;
	}
	pkt->data += s->off;
	memcpy(pkt->data, pv_seg_data(s), s->len);
	if (c->path.is_local)
		return pkt;
	c->snd_mem += pkt->size - old->size;
	s->pkt = pkt;
	pkt->flags = PV_PKT_KEPT;
	if (old->flags & PV_PKT_KEPT)
		old->flags &= ~PV_PKT_KEPT;
	else
		pv_pkt_put(old);
	return pkt;
}

static int post_seg(struct pv_tcp *c, struct pv_tcp_seg *s, bool again, int64_t now_ns)
{
	uint32_t flags = PV_TH_ACK | (s->flags & PV_SEG_PSH ? PV_TH_PSH : 0u) | (s->flags & PV_SEG_FIN ? PV_TH_FIN : 0u);
	struct pv_pkt *pkt = s->pkt;
	struct pv_tx_opts ect;
	const struct pv_tx_opts *txo = &c->txo;
	int rc;

	if (pv_unlikely(!pkt || (pkt->flags & PV_PKT_KEPT) || c->path.is_local || pkt->pool != c->path.ring->pool)) {
		pkt = other_packet(c, s, &rc);
		if (!pkt)
			return rc;
	} else {
		pkt->flags = PV_PKT_KEPT;
	}
	pkt->data = pkt->buf + PV_TCP_DATA_OFF + s->off;
	pkt->len = s->len;
	/* RFC 3168 6.1.4, 6.1.5: new data says that it may be marked, and that the window was reduced. */
	if (pv_unlikely(c->flags & PV_TF_ECN) && !again && s->len) {
		ect = c->txo;
		ect.tos |= PV_TCP_ECT0;
		txo = &ect;
		if (c->flags & PV_TF_CWR)
			flags |= PV_TH_CWR;
	}
	pv_tcp_put_header(c, pkt, s->seq, flags, now_ns);
	if (pv_unlikely(c->txq))
		pv_txq_mark(c->txq, &c->path, pkt);
	rc = pv_unlikely(s->flags & PV_SEG_STAMP) ? post_stamp(c, s, pkt, txo, now_ns) : post(c, pkt, txo, now_ns);
	if (pv_unlikely(flags & PV_TH_CWR) && !rc)
		c->flags &= ~PV_TF_CWR;
	return rc;
}

/* The first `n` segments from `s`, none of which has been sent, in one go: here they become packets to the ring, one each, or one for
 * several where the ring takes that. Returns how many went. */
static uint32_t post_run(struct pv_tcp *c, struct pv_tcp_seg *s, uint32_t n, int64_t now_ns)
{
	const struct pv_tcp_seg *first = s;
	bool idle = !c->in_flight;
	uint32_t i = 0, more = 0;

	for (; i < n; i++) {
		struct pv_list *next = s->link.next;

		if (pv_unlikely(more)) {
			more--;
		} else if (pv_unlikely(c->path.joins) && n - i > 1) {
			int k = pv_tcp_post_joined(c, s, n - i, now_ns);

			if (k < 0 || (!k && post_seg(c, s, false, now_ns)))
				break;
			more = k ? (uint32_t)k - 1 : 0;
		} else if (pv_unlikely(post_seg(c, s, false, now_ns))) {
			break;
		}
		pv_tcp_new_sent(c, s, now_ns);
		if (pv_unlikely(c->pacing_rate != UINT64_MAX))
			pv_tcp_pace_sent(c, s->len);
		s = pv_list_entry(next, struct pv_tcp_seg, link);
		c->unsent = next == &c->sndq ? NULL : s;
	}
	if (i) {
		if (pv_unlikely(!c->rate_watch))
			pv_tcp_rate_watch(c, first, idle, now_ns);
		pv_tcp_run_sent(c, now_ns);
	}
	return i;
}

/* ---- what may go ----------------------------------------------------------------------------------------------------------- */

/* Nagle's rule with Minshall's change: a short segment waits only while a short one before it is not acknowledged. */
pv_inline bool nagle_holds(const struct pv_tcp *c, const struct pv_tcp_seg *s, uint32_t nagle, bool in_flight)
{
	if (s->len >= c->mss || (s->flags & PV_SEG_FIN) || (nagle & PV_NAGLE_PUSH))
		return false;
	if (pv_unlikely(c->flags & PV_TF_SND_URG) && pv_seq_gt(c->snd_up, c->snd_una))
		return false;
	if (nagle)
		return nagle & PV_NAGLE_CORK;
	return in_flight && pv_seq_gt(c->snd_sml, c->snd_una) && pv_seq_le(c->snd_sml, c->snd_nxt);
}

/* How many segments from c->unsent on may go now, `max` at most. Cuts what the path does not take any more. */
static uint32_t count_run(struct pv_tcp *c, uint32_t max, uint32_t nagle)
{
	pv_seq end = pv_tcp_wnd_end(c);
	struct pv_list *it = &c->unsent->link;
	uint32_t n = 0;

	for (; it != &c->sndq && n < max; it = it->next, n++) {
		struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, link);

		if (pv_unlikely(s->len > c->mss) && pv_tcp_seg_split(c, s, c->mss)) {
			pv_tcp_block(c);
			break;
		}
		if (pv_seq_gt(pv_seg_end(s), end))
			break;
		/* Only the last can grow still. */
		if (it->next == &c->sndq && nagle_holds(c, s, nagle, c->in_flight + n))
			break;
	}
	return n;
}

static uint32_t send_new(struct pv_tcp *c, uint32_t nagle, int64_t now_ns)
{
	bool paced = c->pacing_rate != UINT64_MAX;
	uint32_t quota, run, done, sent = 0;

	if (!c->in_flight)
		pv_tcp_idle_check(c, now_ns);
	quota = pv_tcp_cwnd_room(c);
	while (c->unsent && quota) {
		if (pv_unlikely(paced) && pv_tcp_pace_wait(c, now_ns))
			break;
		run = count_run(c, pv_unlikely(paced) ? PV_MIN(quota, pv_tcp_pace_burst(c)) : quota, nagle);
		if (!run)
			break;
		done = post_run(c, c->unsent, run, now_ns);
		sent += done;
		quota -= done;
		if (!paced || !done)
			break;
	}
	return sent;
}

static uint32_t send_lost(struct pv_tcp *c, int64_t now_ns)
{
	bool paced = c->pacing_rate != UINT64_MAX;
	struct pv_tcp_seg *s;
	uint32_t sent = 0;

	while (pv_tcp_cwnd_room(c) && (s = pv_tcp_next_lost(c))) {
		if (paced && pv_tcp_pace_wait(c, now_ns))
			break;
		if (pv_tcp_retransmit(c, s, now_ns))
			break;
		if (paced)
			pv_tcp_pace_sent(c, s->len);
		if (c->sndq.next == &s->link)
			pv_tcp_rearm_rto(c, now_ns);
		sent++;
	}
	return sent;
}

static void push(struct pv_tcp *c, uint32_t nagle, int64_t now_ns)
{
	uint32_t sent = 0;

	if (pv_list_empty(&c->sndq) || !(SEND_STATES >> c->state & 1))
		return;
	if (pv_likely(!pv_tcp_path_check(c, now_ns))) {
		if (pv_unlikely(c->lost) && !(c->flags & PV_TF_FRTO_NEW))
			sent = send_lost(c, now_ns);
		if (c->unsent)
			sent += send_new(c, nagle, now_ns);
	}
	if (pv_likely(sent)) {
		pv_tcp_rack_sent(c, now_ns);
		/* What was waiting is under way: by TCP_NOTSENT_LOWAT that makes room. */
		if (pv_unlikely(c->flags & PV_TF_NOSPACE))
			pv_tcp_space(c);
	} else if (c->unsent) {
		pv_tcp_held_back(c, now_ns);
		if (!c->in_flight && c->deadline_ns[PV_TT_RTO] == PV_NEVER)
			pv_tcp_rearm_rto(c, now_ns);
	}
}

void pv_tcp_push(struct pv_tcp *c, uint32_t nagle, int64_t now_ns)
{
	if (pv_unlikely(c->pacing_rate != UINT64_MAX))
		pv_tcp_pace_begin(c, false, now_ns);
	push(c, nagle, now_ns);
}

void pv_tcp_output(struct pv_tcp *c, int64_t now_ns)
{
	pv_tcp_push(c, pv_tcp_nagle(c), now_ns);
}

void pv_tcp_pace_fired(struct pv_tcp *c, int64_t now_ns)
{
	pv_tcp_pace_begin(c, true, now_ns);
	push(c, pv_tcp_nagle(c), now_ns);
}

int pv_tcp_output_one(struct pv_tcp *c, int64_t now_ns)
{
	int rc;

	if (!c->unsent)
		return -EAGAIN;
	rc = pv_tcp_path_check(c, now_ns);
	if (rc)
		return rc;
	if (!count_run(c, 1, PV_NAGLE_PUSH))
		return -EAGAIN;
	if (c->pacing_rate != UINT64_MAX && pv_tcp_pace_wait(c, now_ns))
		return -EBUSY;
	return post_run(c, c->unsent, 1, now_ns) ? 0 : -ENOBUFS;
}

int64_t pv_tcp_held_ns(struct pv_tcp *c, const struct pv_tcp_seg *s, int64_t now_ns)
{
	if (pv_likely(!c->txq) || !c->path.gen || !s->pkt || !(s->pkt->flags & PV_PKT_KEPT))
		return 0;
	reap(c->t->net, c->path.ring);
	return s->pkt->flags & PV_PKT_KEPT ? pv_txq_wait_ns(c->txq, 1, now_ns) : 0;
}

int pv_tcp_retransmit(struct pv_tcp *c, struct pv_tcp_seg *s, int64_t now_ns)
{
	int32_t room;
	int rc = pv_tcp_path_check(c, now_ns);

	if (rc)
		return rc;
	room = pv_seq_diff(pv_tcp_wnd_end(c), s->seq);
	if (room <= 0) {
		/* Beyond a window that was taken back; the first segment probes it (RFC 9293 3.8.6.1). */
		if (!pv_seq_eq(s->seq, c->snd_una))
			return -EAGAIN;
		room = c->mss;
	}
	room = PV_MIN(room, (int32_t)c->mss);
	if (pv_unlikely(s->len > (uint32_t)room)) {
		rc = pv_tcp_seg_split(c, s, (uint32_t)room);
		if (rc) {
			pv_tcp_block(c);
			return rc;
		}
	}
	/* Another copy would only wait behind it. */
	if (pv_tcp_held_ns(c, s, now_ns))
		return -EBUSY;
	rc = post_seg(c, s, true, now_ns);
	if (rc)
		return rc;
	pv_tcp_note_sent(c, s, true, now_ns);
	c->bytes_sent += s->len;
	c->data_segs_out += s->len != 0;
	c->t->c.tx_retransmits++;
	c->path.ring->stat->retransmits++;
	PV_PROBE3(retransmit, c, s->seq.v, s->len);
	pv_tcp_traced(c, PV_TRACE_retransmit, s->seq.v, s->len);
	return 0;
}

/* ---- segments without payload ------------------------------------------------------------------------------------------------ */

static int send_empty(struct pv_tcp *c, pv_seq seq, uint32_t flags, int64_t now_ns)
{
	struct pv_pkt *pkt;
	int rc = pv_tcp_path_check(c, now_ns);

	if (rc)
		return rc;
	pkt = empty_packet(c->path.ring->pool);
	if (pv_unlikely(!pkt))
		return no_packet(c);
	pv_tcp_put_header(c, pkt, seq, flags, now_ns);
	return post(c, pkt, &c->txo, now_ns);
}

/* snd_nxt, unless the peer has taken back its window: then what it will accept (tcp_acceptable_seq). */
pv_inline pv_seq acceptable_seq(const struct pv_tcp *c)
{
	int32_t over = pv_seq_diff(c->snd_nxt, pv_tcp_wnd_end(c));

	if (pv_likely(over <= 0) || ((c->flags & PV_TF_WS) && over < 1 << c->rcv_wscale))
		return c->snd_nxt;
	return pv_tcp_wnd_end(c);
}

void pv_tcp_send_ack(struct pv_tcp *c, int64_t now_ns)
{
	if (c->state == PV_TCP_CLOSED || c->state == PV_TCP_LISTEN || c->state == PV_TCP_SYN_SENT)
		return;
	c->t->c.tx_acks++;
	/* Without a packet or room it stays owed: pv_tcp_room comes back. */
	if (send_empty(c, acceptable_seq(c), PV_TH_ACK, now_ns))
		c->flags |= PV_TF_ACK_NOW;
	else
		c->flags &= ~PV_TF_ACK_NOW;
}

int pv_tcp_send_probe(struct pv_tcp *c, int64_t now_ns)
{
	c->t->c.tx_probes++;
	return send_empty(c, pv_seq_add(c->snd_una, UINT32_MAX), PV_TH_ACK, now_ns);
}

int pv_tcp_wakeup(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_seg *s = c->unsent;
	uint32_t room;
	int rc;

	if (!s || pv_seq_ge(s->seq, pv_tcp_wnd_end(c)))
		return pv_tcp_send_probe(c, now_ns) == -ENOBUFS ? -ENOBUFS : 0;
	rc = pv_tcp_path_check(c, now_ns);
	if (rc)
		return rc;
	/* There is a window, smaller than the segment: the sender's silly-window avoidance ends here (RFC 9293 3.8.6.2.1). */
	room = PV_MIN(pv_seq_dist(s->seq, pv_tcp_wnd_end(c)), (uint32_t)c->mss);
	if (s->len > room) {
		rc = pv_tcp_seg_split(c, s, room);
		if (rc)
			return rc;
	}
	s->flags |= PV_SEG_PSH;
	return post_run(c, s, 1, now_ns) ? 0 : -ENOBUFS;
}

static void syn_options(const struct pv_tcp *c, struct pv_wire_tcp_opts *opt, int64_t now_ns)
{
	const struct pv_tcp_cfg *cfg = &c->t->cfg;
	bool first = c->state == PV_TCP_SYN_SENT;

	*opt = (struct pv_wire_tcp_opts){ .mss = c->advmss, .wscale = c->rcv_wscale };
	opt->has_ts = first ? !cfg->no_timestamps : (c->flags & PV_TF_TS) != 0;
	opt->has_wscale = first ? !cfg->no_window_scaling : (c->flags & PV_TF_WS) != 0;
	opt->sack_ok = first ? !cfg->no_sack : (c->flags & PV_TF_SACK) != 0;
	opt->ts_val = pv_tcp_ts_now(c, now_ns);
	opt->ts_ecr = first ? 0 : c->ts_recent;
}

int pv_tcp_send_syn(struct pv_tcp *c, int64_t now_ns)
{
	bool first = c->state == PV_TCP_SYN_SENT;
	struct pv_wire_tcp_opts opt;
	struct pv_wire_tcp h = { .src_port = c->lport, .dst_port = c->rport, .seq = c->iss.v };
	struct pv_pkt *pkt;
	int rc = pv_tcp_path_check(c, now_ns);

	c->snd_nxt = pv_seq_add(c->iss, 1);
	c->snd_max = pv_seq_max(c->snd_max, c->snd_nxt);
	if (rc)
		return rc;
	pkt = empty_packet(c->path.ring->pool);
	if (!pkt)
		return no_packet(c);
	syn_options(c, &opt, now_ns);
	h.hlen = (uint8_t)(PV_TCP_HLEN + pv_wire_tcp_opts_len(&opt));
	h.flags = PV_TH_SYN;
	if (!first) {
		h.flags |= PV_TH_ACK;
		h.ack = c->rcv_nxt.v;
	}
	/* RFC 3168 6.1.1 and, for what middleboxes drop, 6.1.1.1: only the first SYN asks. */
	if (c->flags & PV_TF_ECN)
		h.flags |= first ? (c->retransmits ? 0 : PV_TH_ECE | PV_TH_CWR) : PV_TH_ECE;
	h.wnd = (uint16_t)PV_MIN(pv_tcp_select_window(c), (uint32_t)UINT16_MAX);
	pkt->data -= h.hlen;
	pkt->len = h.hlen;
	pv_wire_tcp_emit(pkt->data, &h);
	(void)pv_wire_tcp_opts_emit(pkt->data + PV_TCP_HLEN, &opt);
	if (first) {
		rc = pv_net_tx(c->t->net, &c->path, &c->txo, pkt, now_ns);
		if (rc)
			return pv_tcp_refused(c, rc);
		c->segs_out++;
		c->t->c.tx_segments++;
		return 0;
	}
	return post(c, pkt, &c->txo, now_ns);
}

int pv_tcp_send_bare(struct pv_tcp_table *t, const struct pv_tcp_bare *b, int64_t now_ns)
{
	struct pv_path_query q = { .dst = b->dst,
				   .src = b->src,
				   .iface = b->iface,
				   .answer = true,
				   .recent = true,
				   .src_port = b->sport,
				   .dst_port = b->dport,
				   .proto = PV_PROTO_TCP,
				   .tos = b->tos,
				   .prio = b->prio };
	struct pv_tx_opts txo = {
		.proto = PV_PROTO_TCP, .ttl = TTL_DEFAULT, .tos = b->tos, .pmtudisc = PV_PMTU_WANT, .l4_csum_off = PV_TCP_CSUM_OFF
	};
	struct pv_wire_tcp h = { .src_port = b->sport,
				 .dst_port = b->dport,
				 .seq = b->seq.v,
				 .ack = b->ack.v,
				 .hlen = (uint8_t)(PV_TCP_HLEN + pv_wire_tcp_opts_len(&b->opt)),
				 .flags = b->flags,
				 .wnd = b->wnd };
	struct pv_path path;
	struct pv_pkt *pkt;
	int rc = pv_net_path(t->net, &q, now_ns, &path);

	if (rc) {
		t->c.tx_errors++;
		return rc;
	}
	if (pv_unlikely(b->lane))
		pv_txlane_set(t->net, &path, b->lane);
	pkt = empty_packet(path.ring->pool);
	if (!pkt) {
		pv_tcp_lost(t, NULL, NULL, &t->c.tx_no_buf);
		return -ENOBUFS;
	}
	pkt->data -= h.hlen;
	pkt->len = h.hlen;
	pv_wire_tcp_emit(pkt->data, &h);
	(void)pv_wire_tcp_opts_emit(pkt->data + PV_TCP_HLEN, &b->opt);
	rc = pv_net_tx(t->net, &path, &txo, pkt, now_ns);
	if (rc)
		t->c.tx_errors++;
	else
		t->c.tx_segments++;
	return rc;
}

/* ---- the peer's window --------------------------------------------------------------------------------------------------------- */

void pv_tcp_window_update(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	uint32_t wnd = in->flags & PV_TH_SYN ? in->wnd : in->wnd << c->snd_wscale;
	bool older = pv_seq_lt(in->seq, c->snd_wl1) || (pv_seq_eq(in->seq, c->snd_wl1) && pv_seq_lt(in->ack, c->snd_wl2));
	bool same = pv_seq_eq(in->seq, c->snd_wl1) && pv_seq_eq(in->ack, c->snd_wl2);

	/* Of two segments alike Linux believes the wider window, and a closed one. */
	if (older || (same && wnd <= c->snd_wnd && wnd))
		return;
	c->snd_wl1 = in->seq;
	c->snd_wl2 = in->ack;
	if (wnd == c->snd_wnd)
		return;
	c->snd_wnd = wnd;
	if (wnd > c->max_window) {
		c->max_window = wnd;
		pv_tcp_mss_sync(c, c->pmtu);
	}
	if (!c->unsent)
		return;
	if (pv_seq_le(pv_seg_end(c->unsent), pv_tcp_wnd_end(c)))
		pv_tcp_owe(c);
	else if (!c->in_flight)
		pv_tcp_rearm_rto(c, in->now_ns);
}
