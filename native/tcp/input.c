/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A segment arrives: RFC 9293 3.10.7, with the checks of RFC 5961 and RFC 7323, and in front of it the two cases that make up nearly all
 * traffic of an established connection: the next data, and an acknowledgement.
 */
#include "tcp/conn.h"
#include "tcp/gro.h"
#include "wire/ipv4.h"

#define IP4_SRC 12u
#define IP6_SRC 8u
#define ECN_CE 3u
#define SYN_AGAIN_NS (2 * PV_NS_PER_MS) /* two ticks, as Linux (TCP_TIMEOUT_MIN) */
#define RATE_TS_MS 1200 /* Linux's TCP_RTO bound for what PAWS lets pass as reordered */

/* ---- what the rules ask for ---------------------------------------------------------------------------------------------------- */

pv_inline uint32_t rcv_wnd(const struct pv_tcp *c)
{
	int32_t left = pv_seq_diff(c->rcv_adv, c->rcv_nxt);

	return left > 0 ? (uint32_t)left : 0;
}

/* RFC 7323 4.3 (2), (3): only from what is at or before the last byte that we acknowledged; and, as Linux, only with an acknowledgement that
 * may count: a forged segment with a stamp far ahead would have PAWS refuse all that the peer sends from then on. */
pv_inline void take_timestamp(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (!(c->flags & PV_TF_TS) || !in->opt.has_ts || !pv_seq_le(in->seq, c->rcv_wup))
		return;
	if ((int32_t)(in->opt.ts_val - c->ts_recent) >= 0 || in->now_ns - c->ts_recent_ns >= PV_TCP_PAWS_IDLE_NS) {
		c->ts_recent = in->opt.ts_val;
		c->ts_recent_ns = in->now_ns;
	}
}

/* A pure acknowledgement that was overtaken on its way does no harm (Linux's tcp_disordered_ack). */
static bool only_reordered(const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	return (in->flags & PV_TH_ACK) && pv_seq_eq(in->seq, c->rcv_nxt) && !pv_tcp_in_space(in) &&
	       pv_seq_eq(in->ack, c->snd_una) && in->wnd << c->snd_wscale == c->snd_wnd &&
	       (int32_t)(c->ts_recent - in->opt.ts_val) <= (int32_t)PV_MIN(c->rto_ns / PV_NS_PER_MS, RATE_TS_MS);
}

/* RFC 7323 5.3: older than what was seen, and the clock of the peer cannot have gone round meanwhile. */
static bool paws(const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	return (c->flags & PV_TF_TS) && in->opt.has_ts && (int32_t)(c->ts_recent - in->opt.ts_val) > 0 &&
	       in->now_ns - c->ts_recent_ns < PV_TCP_PAWS_IDLE_NS && !only_reordered(c, in);
}

/* As Linux, more generous than RFC 9293's table to the left: what we have not acknowledged yet may come again. */
static bool in_sequence(const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	return pv_seq_ge(pv_seq_add(in->seq, pv_tcp_in_space(in)), c->rcv_wup) &&
	       pv_seq_le(in->seq, pv_seq_add(c->rcv_nxt, rcv_wnd(c)));
}

/* An acknowledgement for what is of no use; a peer that has sent data twice hears so (RFC 2883). */
static void answer_useless(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (!pv_tcp_oow_allowed(&c->oow_ns, in))
		return;
	if (in->len && pv_seq_lt(in->seq, c->rcv_nxt)) {
		pv_tcp_quick_mode(c);
		if (c->flags & PV_TF_SACK) {
			c->dsack.start = in->seq;
			c->dsack.end = pv_seq_min(pv_seq_add(in->seq, in->len), c->rcv_nxt);
		}
	}
	pv_tcp_send_ack(c, in->now_ns);
}

/* ---- resets ---------------------------------------------------------------------------------------------------------------------- */

static void was_reset(struct pv_tcp *c)
{
	c->t->c.rx_resets++;
	switch (c->state) {
	case PV_TCP_SYN_SENT:
		pv_tcp_abort(c, ECONNREFUSED);
		break;
	case PV_TCP_CLOSE_WAIT:
		pv_tcp_abort(c, EPIPE);
		break;
	default:
		pv_tcp_abort(c, ECONNRESET);
	}
}

/* RFC 5961 3.2: exactly the next number, or it is answered by a challenge. Linux also takes the number behind the last SACK block (the
 * reset follows data, some of which was lost) and, after the peer's FIN, the number of that FIN. */
static void reset_arrived(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	pv_seq last = c->rcv_nxt;

	if (c->flags & PV_TF_SACK)
		for (uint32_t i = 0; i < c->nsack; i++)
			last = pv_seq_max(last, c->sack[i].end);
	if (pv_seq_eq(in->seq, c->rcv_nxt) || pv_seq_eq(in->seq, last) ||
	    ((c->flags & PV_TF_FIN_RCVD) && pv_seq_eq(pv_seq_add(in->seq, 1), c->rcv_nxt)))
		was_reset(c);
	else
		pv_tcp_challenge(c, in->now_ns);
}

/* ---- SYN_SENT (RFC 9293 3.10.7.3) -------------------------------------------------------------------------------------------------- */

static bool syn_sent_ack_bad(const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	uint32_t first = (uint32_t)((uint64_t)c->opened_ns / (uint64_t)PV_NS_PER_MS) + c->ts_offset;

	if (!(in->flags & PV_TH_ACK))
		return false;
	if (!pv_seq_gt(in->ack, c->iss) || pv_seq_gt(in->ack, c->snd_max))
		return true;
	/* RFC 7323 5: an echo of what we never sent is of another connection. */
	return !c->t->cfg.no_timestamps && in->opt.has_ts && in->opt.ts_ecr &&
	       in->opt.ts_ecr - first > pv_tcp_ts_now(c, in->now_ns) - first;
}

static void syn_sent_opened(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	bool ecn = (c->flags & PV_TF_ECN) && (in->flags & (PV_TH_ECE | PV_TH_CWR)) == PV_TH_ECE;

	pv_tcp_negotiate(c, in);
	c->flags = (c->flags & ~PV_TF_ECN) | (ecn ? PV_TF_ECN : 0);
	pv_tcp_established(c, in);
	c->flags |= PV_TF_ACK_NOW;
	pv_tcp_owe(c);
}

/* Both sides called at once: RFC 9293 figure 8. */
static void syn_sent_crossed(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	bool ecn = c->t->cfg.ecn && (in->flags & (PV_TH_ECE | PV_TH_CWR)) == (PV_TH_ECE | PV_TH_CWR);

	pv_tcp_set_state(c, PV_TCP_SYN_RCVD);
	pv_tcp_negotiate(c, in);
	c->flags = (c->flags & ~PV_TF_ECN) | (ecn ? PV_TF_ECN : 0);
	c->snd_wnd = c->max_window = in->wnd;
	c->snd_wl1 = in->seq;
	c->snd_wl2 = c->iss;
	(void)pv_tcp_send_syn(c, in->now_ns);
	pv_tcp_syn_arm(c, in->now_ns);
}

static void syn_sent(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (syn_sent_ack_bad(c, in)) {
		pv_tcp_lost(c->t, c, in, &c->t->c.rx_old_ack);
		pv_tcp_reset_reply(c->t, in);
		/* That ends what the peer has left of another connection, a TIME_WAIT as a rule: it takes the next SYN (Linux 5.6). */
		if (!c->retransmits)
			pv_tcp_timer_set(c, PV_TT_RTO, in->now_ns + SYN_AGAIN_NS);
	} else if (in->flags & PV_TH_RST) {
		if (in->flags & PV_TH_ACK)
			was_reset(c);
	} else if ((in->flags & (PV_TH_SYN | PV_TH_FIN)) != PV_TH_SYN) {
		pv_tcp_lost(c->t, c, in, &c->t->c.rx_bad_flags);
	} else if (in->flags & PV_TH_ACK) {
		syn_sent_opened(c, in);
	} else {
		syn_sent_crossed(c, in);
	}
	pv_pkt_put(in->pkt);
}

/* ---- the other states (RFC 9293 3.10.7.4) ------------------------------------------------------------------------------------------ */

/* The answer to our SYN-ACK after both sides had called: its SYN is the one that we know. */
static bool crossed_again(const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	return c->state == PV_TCP_SYN_RCVD && (in->flags & (PV_TH_SYN | PV_TH_ACK | PV_TH_RST)) == (PV_TH_SYN | PV_TH_ACK) &&
	       !in->len && pv_seq_eq(in->seq, c->irs) && pv_seq_eq(in->ack, c->snd_nxt);
}

/* First to fourth: sequence number, RST, SYN. False: the segment is dealt with, and `c` may be gone. */
static bool acceptable(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	struct pv_tcp_table *t = c->t;

	if (crossed_again(c, in))
		return true;
	if (pv_unlikely(paws(c, in))) {
		if (!(in->flags & PV_TH_RST)) {
			pv_tcp_lost(t, c, in, &t->c.rx_paws);
			answer_useless(c, in);
			return false;
		}
	}
	if (pv_unlikely(!in_sequence(c, in))) {
		pv_tcp_lost(t, c, in, &t->c.rx_out_of_window);
		if (in->flags & PV_TH_SYN)
			pv_tcp_challenge(c, in->now_ns);
		else if (!(in->flags & PV_TH_RST))
			answer_useless(c, in);
		else if ((c->flags & PV_TF_FIN_RCVD) && pv_seq_eq(pv_seq_add(in->seq, 1), c->rcv_nxt))
			was_reset(c);
		return false;
	}
	if (pv_unlikely(in->flags & PV_TH_RST)) {
		reset_arrived(c, in);
		return false;
	}
	if (pv_unlikely(in->flags & PV_TH_SYN)) {
		pv_tcp_challenge(c, in->now_ns);
		return false;
	}
	if (pv_unlikely(!(in->flags & PV_TH_ACK))) {
		t->c.rx_bad_flags++;
		return false;
	}
	return true;
}

static void opened(struct pv_tcp *c, struct pv_tcp_in *in)
{
	pv_tcp_established(c, in);
	/* What is there besides (data with the third segment) is as if it had come now. */
	in->flags &= (uint8_t)~PV_TH_SYN;
	/* Closed before it was open (RFC 9293 3.10.4): the FIN has waited for this. */
	if (c->flags & PV_TF_FIN_QUEUED) {
		pv_tcp_set_state(c, PV_TCP_FIN_WAIT_1);
		pv_tcp_owe(c);
	}
}

/* RFC 5961 5.2: not older than a window, not newer than what was sent. False: drop it. */
static bool ack_acceptable(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (pv_likely(pv_seq_ge(in->ack, c->snd_una) && pv_seq_le(in->ack, c->snd_max)))
		return true;
	if (pv_seq_lt(in->ack, c->snd_una) && pv_seq_ge(in->ack, pv_seq_add(c->snd_una, 0u - c->max_window)))
		return true;
	c->t->c.rx_old_ack++;
	pv_tcp_challenge(c, in->now_ns);
	return false;
}

/* Nobody is there to read: what comes is lost, and the peer hears of it (RFC 9293 3.6.1, RFC 1122 4.2.2.13). True: that was the end. */
static bool nobody_reads(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (!in->len || !(c->flags & (PV_TF_ORPHAN | PV_TF_SHUT_RD)) || !pv_seq_gt(pv_seq_add(in->seq, in->len), c->rcv_nxt))
		return false;
	pv_tcp_reset_reply(c->t, in);
	pv_tcp_abort(c, ECONNRESET);
	return true;
}

/* False: `c` is over. */
static bool fin_wait_2(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	int64_t now_ns = in->now_ns;

	pv_tcp_set_state(c, PV_TCP_FIN_WAIT_2);
	if (!(c->flags & PV_TF_ORPHAN)) {
		pv_tcp_tell(c, PV_EV_OUT);
		return true;
	}
	if (c->opts.linger2_s < 0) {
		pv_tcp_reset_send(c, now_ns);
		pv_tcp_abort(c, 0);
		return false;
	}
	/* A FIN in this very segment has to find the connection. */
	if (!pv_tcp_in_space(in) && pv_tcp_fin_wait(c))
		return false;
	pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + pv_tcp_fin_timeout(c));
	return true;
}

/* Our FIN has been acknowledged. False: `c` is over. */
static bool fin_acked(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	switch (c->state) {
	case PV_TCP_FIN_WAIT_1:
		if ((c->flags & PV_TF_ORPHAN) && nobody_reads(c, in))
			return false;
		return fin_wait_2(c, in);
	case PV_TCP_CLOSING:
		pv_tcp_time_wait(c);
		return false;
	case PV_TCP_LAST_ACK:
		pv_tcp_done(c);
		return false;
	default:
		return true;
	}
}

/* Eighth: the peer has no more to say. */
static void fin_arrived(struct pv_tcp *c, int64_t now_ns)
{
	switch (c->state) {
	case PV_TCP_ESTABLISHED:
		pv_tcp_set_state(c, PV_TCP_CLOSE_WAIT);
		break;
	case PV_TCP_FIN_WAIT_1:
		pv_tcp_set_state(c, PV_TCP_CLOSING);
		break;
	case PV_TCP_FIN_WAIT_2:
		pv_tcp_send_ack(c, now_ns);
		pv_tcp_time_wait(c);
		return;
	default:
		return;
	}
	pv_tcp_tell(c, PV_EV_IN | PV_EV_RDHUP | (c->sock & PV_SK_SHUT_WR ? (uint32_t)PV_EV_HUP : 0u));
}

/* Sixth and seventh. Takes the packet. */
static void text(struct pv_tcp *c, struct pv_tcp_in *in)
{
	bool had_fin = c->flags & PV_TF_FIN_RCVD;

	if (had_fin) {
		/* Nothing follows a FIN; what came before it may come again. */
		if (pv_tcp_in_space(in) && pv_seq_lt(in->seq, c->rcv_nxt)) {
			c->t->c.rx_duplicate += in->len != 0;
			c->flags |= PV_TF_ACK_NOW;
			pv_tcp_owe(c);
		}
		pv_pkt_put(in->pkt);
		return;
	}
	if (c->state != PV_TCP_ESTABLISHED && nobody_reads(c, in)) {
		pv_pkt_put(in->pkt);
		return;
	}
	if ((in->flags & PV_TH_URG) || (c->flags & (PV_TF_URG_RCVD | PV_TF_URG_VALID)) == PV_TF_URG_RCVD)
		pv_tcp_urgent(c, in);
	if (!pv_tcp_in_space(in)) {
		pv_pkt_put(in->pkt);
		return;
	}
	pv_tcp_data(c, in);
	if (c->flags & PV_TF_FIN_RCVD)
		fin_arrived(c, in->now_ns);
}

/* Takes the packet. */
static void synchronized(struct pv_tcp *c, struct pv_tcp_in *in)
{
	struct pv_pkt *pkt = in->pkt;
	bool fin_was_out = c->flags & PV_TF_FIN_QUEUED;

	if (!acceptable(c, in)) {
		pv_pkt_put(pkt);
		return;
	}
	if (c->state == PV_TCP_SYN_RCVD) {
		if (!pv_seq_gt(in->ack, c->snd_una) || pv_seq_gt(in->ack, c->snd_max)) {
			pv_tcp_lost(c->t, c, in, &c->t->c.rx_old_ack);
			pv_tcp_reset_reply(c->t, in);
			pv_pkt_put(pkt);
			return;
		}
		opened(c, in);
	} else if (!ack_acceptable(c, in)) {
		pv_pkt_put(pkt);
		return;
	}
	if (pv_seq_ge(in->ack, c->snd_una)) {
		take_timestamp(c, in);
		pv_tcp_ack(c, in);
		pv_tcp_window_update(c, in);
	} else {
		pv_tcp_ack_old(c, in);
	}
	if (fin_was_out && pv_tcp_fin_acked(c) && !fin_acked(c, in)) {
		pv_pkt_put(pkt);
		return;
	}
	text(c, in);
}

void pv_tcp_input(struct pv_tcp *c, struct pv_tcp_in *in)
{
	c->segs_in++;
	c->keep_probes = 0;
	c->last_ack_rcvd_ns = in->now_ns;
	if (in->len) {
		c->data_segs_in++;
		c->last_data_rcvd_ns = in->now_ns;
	}
	if (c->state == PV_TCP_SYN_SENT)
		syn_sent(c, in);
	else
		synchronized(c, in);
}

/* ---- the predicted path ------------------------------------------------------------------------------------------------------------- */

/* Van Jacobson's header prediction (RFC 1323 appendix A): established, the next number, no flag but ACK and PSH, the window as it was,
 * no old timestamp, and nothing about that wants care. */
pv_inline bool expected(const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	uint32_t acked = pv_seq_dist(c->snd_una, in->ack), flown = pv_seq_dist(c->snd_una, c->snd_max);

	if (pv_unlikely(c->state != PV_TCP_ESTABLISHED || (in->flags & (uint8_t)~PV_TH_PSH) != PV_TH_ACK ||
			!pv_seq_eq(in->seq, c->rcv_nxt) || in->wnd << c->snd_wscale != c->snd_wnd || acked > flown ||
			(c->flags & (PV_TF_URG_RCVD | PV_TF_FIN_SEEN | PV_TF_SHUT_RD)) || (in->tos & ECN_CE) == ECN_CE))
		return false;
	if (c->flags & PV_TF_TS) {
		if (pv_unlikely(!in->opt.has_ts || (int32_t)(in->opt.ts_val - c->ts_recent) < 0))
			return false;
	}
	return in->len ? !c->ooo.head && in->len <= rcv_wnd(c) && !in->opt.nsack : acked;
}

/* All that the headers of `n` such segments say; last: the number of the last. */
pv_inline void heed(struct pv_tcp *c, const struct pv_tcp_in *in, uint32_t n, pv_seq last)
{
	if ((c->flags & PV_TF_TS) && pv_seq_le(in->seq, c->rcv_wup)) {
		c->ts_recent = in->opt.ts_val;
		c->ts_recent_ns = in->now_ns;
	}
	c->t->c.rx_predicted += n;
	c->segs_in += n;
	c->keep_probes = 0;
	c->last_ack_rcvd_ns = in->now_ns;
	c->snd_wl1 = last;
	if (!pv_seq_eq(in->ack, c->snd_una)) {
		c->snd_wl2 = in->ack;
		pv_tcp_ack(c, in);
	}
	if (in->len) {
		c->data_segs_in += n;
		c->last_data_rcvd_ns = in->now_ns;
	}
}

/* True: dealt with. */
pv_inline bool predicted(struct pv_tcp *c, struct pv_tcp_in *in)
{
	if (!expected(c, in))
		return false;
	heed(c, in, 1, in->seq);
	if (in->len)
		pv_tcp_data_in_order(c, in);
	else
		pv_pkt_put(in->pkt);
	return true;
}

/* The same of a run. */
pv_inline bool predicted_run(struct pv_tcp *c, struct pv_tcp_run *run)
{
	struct pv_pkt *pkt = run->in.pkt, *next;

	/* Without data the first of them may be a duplicate. */
	if (!expected(c, &run->in) || (run->seg_len ? !pv_tcp_run_fits(c, run) : pv_seq_le(run->ack, c->snd_una)) ||
	    (!pv_seq_eq(run->ack, run->in.ack) && !pv_tcp_ack_last_of(c)))
		return false;
	for (const struct pv_pkt *p = pkt; p; p = p->next)
		PV_PROBE5(demux, PV_PROTO_TCP, c, p, run->in.dport, run->in.sport);
	heed(c, &run->in, run->segs, pv_seq_of((uint32_t)PV_TCP_PKT_SEQ(run->tail)));
	c->t->c.rx_merged += run->segs - 1;
	if (run->seg_len) {
		pv_tcp_run_in_order(c, run);
		return true;
	}
	for (; pkt; pkt = next) {
		next = pkt->next;
		pv_pkt_put(pkt);
	}
	return true;
}

/* ---- from the packet to the connection ------------------------------------------------------------------------------------------------ */

/* A segment for nobody (RFC 9293 3.10.7.1), or for something that is no connection. Takes the packet. */
static pv_noinline void other(struct pv_tcp_table *t, struct pv_tcp_in *in)
{
	struct pv_tcp *l;

	if (t->embryos.count && pv_tcp_syn_input(t, in))
		return;
	if (t->time_waits.count && pv_tcp_time_wait_input(t, in))
		return;
	if (t->left.count && pv_tcp_left_input(t, in))
		return;
	l = pv_tcp_find_listener(t, in);
	if (l) {
		pv_tcp_listen_input(l, in);
		return;
	}
	pv_tcp_lost(t, NULL, in, &t->c.rx_no_socket);
	pv_tcp_reset_reply(t, in);
	pv_pkt_put(in->pkt);
}

/* The connection, if there is one. */
pv_inline struct pv_tcp *demux(struct pv_tcp_table *t, struct pv_tcp_in *in, const struct pv_pkt *last)
{
	struct pv_tcp *c;

	in->hash = pv_tcp_flow_hash(t, &in->dst, &in->src, in->dport, in->sport);
	c = pv_tcp_find_conn(t, in);
	if (pv_unlikely(last->flags & PV_PKT_QUEUE) && c)
		c->rx_queue = (uint8_t)(last->txq + 1);
	return c;
}

/*
 * A segment is of the connection that the last one was of, as a rule. That is known by its twelve bytes of addresses and ports, and by its
 * interface, without a hash. IPv4 without options.
 */
pv_inline uint64_t flow_addrs(const struct pv_pkt *pkt)
{
	uint64_t v;

	memcpy(&v, pkt->buf + pkt->l4_off - 8, sizeof(v));
	return v;
}

pv_inline uint32_t flow_ports(const struct pv_pkt *pkt)
{
	uint32_t v;

	memcpy(&v, pkt->buf + pkt->l4_off, sizeof(v));
	return v;
}

pv_inline bool is_last(const struct pv_tcp_table *t, const struct pv_pkt *pkt)
{
	return pkt->l4_off - pkt->l3_off == PV_IP4_HLEN && flow_addrs(pkt) == t->last.addrs && flow_ports(pkt) == t->last.ports &&
	       pkt->iface == t->last.iface && t->last.c && !(pkt->flags & PV_PKT_QUEUE);
}

pv_inline void remember(struct pv_tcp_table *t, struct pv_tcp *c, const struct pv_pkt *pkt)
{
	if (c && pkt->l4_off - pkt->l3_off == PV_IP4_HLEN)
		t->last = (struct pv_tcp_last){ c, flow_addrs(pkt), flow_ports(pkt), pkt->iface };
}

/* RFC 5082: less is left of what was sent with 255 than the way to a neighbour takes. Before anything else is looked at, and of handshakes, too. */
static pv_noinline bool too_far(struct pv_tcp_table *t, const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	const uint8_t *ip = in->pkt->buf + in->pkt->l3_off;
	const struct pv_tcp *of = c ? c : pv_tcp_find_listener(t, in);

	if (!of || (ip[0] >> 4 == 4 ? ip[8] >= of->opts.min_ttl : ip[7] >= of->opts.min_hops))
		return false;
	pv_tcp_lost(t, of, in, &t->c.rx_far);
	pv_pkt_put(in->pkt);
	return true;
}

pv_inline void deliver_to(struct pv_tcp_table *t, struct pv_tcp *c, struct pv_tcp_in *in)
{
	if (pv_unlikely(!c)) {
		other(t, in);
		return;
	}
	PV_PROBE5(demux, PV_PROTO_TCP, c, in->pkt, in->dport, in->sport);
	if (!predicted(c, in))
		pv_tcp_input(c, in);
}

pv_inline void deliver(struct pv_tcp_table *t, struct pv_tcp_in *in)
{
	struct pv_tcp *c;

	if (pv_likely(is_last(t, in->pkt))) {
		c = t->last.c;
		in->hash = c->flow.hash;
	} else {
		c = demux(t, in, in->pkt);
		remember(t, c, in->pkt);
	}
	if (pv_likely(!t->any_near) || !too_far(t, c, in))
		deliver_to(t, c, in);
}

/* One by one: what no header told apart is the same for all. */
static pv_noinline void deliver_apart(struct pv_tcp_table *t, const struct pv_tcp_run *run)
{
	for (struct pv_pkt *p = run->in.pkt, *next; p; p = next) {
		const uint8_t *th = p->buf + p->l4_off;
		struct pv_tcp_in in = run->in;

		next = p->next;
		in.pkt = p;
		in.seq = pv_seq_of((uint32_t)PV_TCP_PKT_SEQ(p));
		in.ack = pv_seq_of(pv_get32(th + 8));
		in.flags = th[13];
		in.len = p->len;
		deliver(t, &in);
	}
}

void pv_tcp_run_input(struct pv_tcp_table *t, struct pv_tcp_run *run)
{
	struct pv_tcp *c;

	if (run->segs == 1) {
		deliver(t, &run->in);
		return;
	}
	c = demux(t, &run->in, run->tail);
	if (!c || c->opts.min_ttl || c->opts.min_hops || !predicted_run(c, run))
		deliver_apart(t, run);
}

/* A packet in several buffers: each is a segment of its own, as if the peer had cut it so. Only the first has headers. */
static pv_noinline void deliver_chain(struct pv_tcp_table *t, struct pv_tcp_in *whole)
{
	struct pv_pkt *p = whole->pkt, *next;
	uint8_t iface = p->iface;
	uint32_t done = 0;

	if (pv_unlikely(t->any_near) && too_far(t, demux(t, whole, p), whole))
		return;
	for (; p; p = next) {
		struct pv_tcp_in in = *whole;

		next = p->frag;
		p->frag = NULL;
		p->total = p->len;
		p->iface = iface;
		in.pkt = p;
		in.len = p->len;
		in.seq = pv_seq_add(whole->seq, done + (done && (whole->flags & PV_TH_SYN) ? 1u : 0u));
		if (done) {
			in.flags &= (uint8_t)~PV_TH_SYN;
			if (in.urp > done)
				in.urp = (uint16_t)(in.urp - done);
			else
				in.flags &= (uint8_t)~PV_TH_URG;
		}
		if (next)
			in.flags &= (uint8_t) ~(PV_TH_FIN | PV_TH_PSH);
		done += p->len;
		deliver_to(t, demux(t, &in, p), &in);
	}
}

/* The one layout of options that nearly all segments have (RFC 7323 appendix A). */
pv_inline bool plain_timestamp(const uint8_t *opt, struct pv_wire_tcp_opts *o)
{
	if (pv_get32(opt) != 0x0101080a)
		return false;
	*o = (struct pv_wire_tcp_opts){ .has_ts = true, .ts_val = pv_get32(opt + 4), .ts_ecr = pv_get32(opt + 8) };
	return true;
}

pv_inline void addresses(const struct pv_pkt *pkt, struct pv_tcp_in *in)
{
	const uint8_t *ip = pkt->buf + pkt->l3_off;

	if (pv_likely(ip[0] >> 4 == 4)) {
		in->src = pv_addr_from4(ip + IP4_SRC);
		in->dst = pv_addr_from4(ip + IP4_SRC + 4);
		in->tos = ip[1];
	} else {
		in->src = pv_addr_from6(ip + IP6_SRC);
		in->dst = pv_addr_from6(ip + IP6_SRC + 16);
		in->tos = (uint8_t)(pv_get16(ip) >> 4);
	}
}

static pv_noinline void drop(struct pv_tcp_table *t, struct pv_pkt *pkt, uint64_t *counter)
{
	pv_tcp_lost(t, NULL, NULL, counter);
	pv_pkt_put(pkt);
}

/* Length of the header, or less than 0: it was dropped. */
pv_inline int header(struct pv_tcp_table *t, struct pv_pkt *pkt, struct pv_wire_tcp *h, int64_t now_ns)
{
	int hlen = pv_wire_tcp_parse(pkt->data, pkt->len, h);

	t->head.now_ns = now_ns;
	t->c.rx_segments++;
	/* To one host only (RFC 9293 3.9.2.3): MUST-57. */
	if (pv_unlikely(hlen < 0 || (pkt->flags & PV_PKT_GROUP))) {
		drop(t, pkt, &t->c.rx_malformed);
		return -1;
	}
	if (pv_unlikely(!pv_net_rx_l4_csum_ok(pkt, PV_PROTO_TCP))) {
		drop(t, pkt, &t->c.rx_bad_csum);
		return -1;
	}
	return hlen;
}

/* False: it was dropped. */
pv_inline bool parse(struct pv_tcp_table *t, struct pv_pkt *pkt, const struct pv_wire_tcp *h, int hlen, struct pv_tcp_in *in)
{
	if (pv_unlikely(hlen != PV_TCP_HLEN + 12 || !plain_timestamp(pkt->data + PV_TCP_HLEN, &in->opt))) {
		memset(&in->opt, 0, sizeof(in->opt));
		if (hlen > (int)PV_TCP_HLEN && pv_wire_tcp_opts_parse(pkt->data, (uint32_t)hlen, &in->opt)) {
			drop(t, pkt, &t->c.rx_malformed);
			return false;
		}
	}
	addresses(pkt, in);
	in->pkt = pkt;
	in->sport = h->src_port;
	in->dport = h->dst_port;
	in->seq = pv_seq_of(h->seq);
	in->ack = pv_seq_of(h->ack);
	in->flags = h->flags;
	in->wnd = h->wnd;
	in->urp = h->urp;
	in->now_ns = t->head.now_ns;
	in->isn = 0;
	pkt->data += hlen;
	pkt->len -= (uint32_t)hlen;
	pkt->total -= (uint32_t)hlen;
	in->len = pkt->len;
	return true;
}

pv_inline void deliver_any(struct pv_tcp_table *t, struct pv_tcp_in *in)
{
	if (pv_unlikely(in->pkt->frag != NULL))
		deliver_chain(t, in);
	else
		deliver(t, in);
}

void pv_tcp_rx(struct pv_tcp_table *t, struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_tcp_in in;
	struct pv_wire_tcp h;
	int hlen = header(t, pkt, &h, now_ns);

	if (pv_likely(hlen > 0 && parse(t, pkt, &h, hlen, &in)))
		deliver_any(t, &in);
}

void pv_tcp_rx_of_many(struct pv_tcp_table *t, struct pv_pkt *pkt, bool last, int64_t now_ns)
{
	struct pv_tcp_in in;
	struct pv_wire_tcp h;
	int hlen = header(t, pkt, &h, now_ns);

	if (pv_unlikely(hlen < 0) || pv_tcp_run_take(t, pkt, &h, now_ns) || !parse(t, pkt, &h, hlen, &in))
		return;
	if (last || !pv_tcp_run_start(t, &in, (uint32_t)hlen))
		deliver_any(t, &in);
}
