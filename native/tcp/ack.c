/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An acknowledgement: what it takes off the send queue, the round trip it measures, what it tells of losses (sack.c, rack.c,
 * recovery.c), and what may be sent for it.
 */
#include "tcp/cc.h"
#include "tcp/recovery.h"

#define MIN_RTT_HALF_NS (150 * PV_NS_PER_S)
#define NOT_QUICK (PV_TF_ECN | PV_TF_TLP | PV_TF_FRTO_NEW | PV_TF_SND_URG | PV_TF_DSACK_ROUND | PV_TF_FIN_QUEUED | PV_TF_PERSIST)

/* ---- round trips --------------------------------------------------------------------------------------------------------- */

/* The least of the last five minutes, and a bit less: of two halves the elder goes when the younger is full. */
static void min_rtt(struct pv_tcp *c, int64_t rtt_ns, int64_t now_ns)
{
	if (now_ns - c->min_rtt_at_ns > MIN_RTT_HALF_NS) {
		c->min_rtt_ns = c->min_rtt_next_ns;
		c->min_rtt_next_ns = PV_NEVER;
		c->min_rtt_at_ns = now_ns;
	}
	c->min_rtt_next_ns = PV_MIN(c->min_rtt_next_ns, rtt_ns);
	c->min_rtt_ns = PV_MIN(c->min_rtt_ns, rtt_ns);
}

/* RFC 6298 2, with Linux's care: the deviation counts in full only when it grows by a round trip that got longer, it falls slowly and
 * once a round trip, and the floor of the RTO is one of the deviation. */
static void rtt_estimate(struct pv_tcp *c, int64_t rtt_ns)
{
	int64_t floor_ns = c->t->cfg.rto_min_ns, m;

	rtt_ns = PV_MAX(rtt_ns, 1);
	if (!c->srtt_ns) {
		c->srtt_ns = rtt_ns;
		c->mdev_ns = 2 * rtt_ns;
		c->rttvar_ns = c->mdev_max_ns = PV_MAX(c->mdev_ns, floor_ns);
		c->rtt_seq = c->snd_max;
	} else {
		m = rtt_ns - c->srtt_ns;
		c->srtt_ns = PV_MAX(c->srtt_ns + m / 8, 1);
		/* mdev is four times the mean deviation. */
		if (m < 0) {
			m = -m - c->mdev_ns / 4;
			if (m > 0)
				m /= 8;
		} else {
			m -= c->mdev_ns / 4;
		}
		c->mdev_ns += m;
		if (c->mdev_ns > c->mdev_max_ns) {
			c->mdev_max_ns = c->mdev_ns;
			c->rttvar_ns = PV_MAX(c->rttvar_ns, c->mdev_max_ns);
		}
		if (pv_seq_gt(c->snd_una, c->rtt_seq)) {
			if (c->mdev_max_ns < c->rttvar_ns)
				c->rttvar_ns -= (c->rttvar_ns - c->mdev_max_ns) / 4;
			c->rtt_seq = c->snd_max;
			c->mdev_max_ns = floor_ns;
		}
	}
	c->rto_ns = PV_MIN(c->srtt_ns + c->rttvar_ns, c->t->cfg.rto_max_ns);
}

void pv_tcp_rtt_sample(struct pv_tcp *c, int64_t rtt_ns)
{
	rtt_ns = PV_MAX(rtt_ns, 0);
	min_rtt(c, rtt_ns, pv_tcp_now(c->t));
	rtt_estimate(c, rtt_ns);
}

/* Timestamps in whole milliseconds measure only when nothing better does (RFC 7323 4.1). */
static int64_t echo_rtt(const struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	uint32_t ms;

	if (!(a->flags & PV_ACK_FREED) || !(c->flags & PV_TF_TS) || !a->in->opt.has_ts || !a->in->opt.ts_ecr)
		return -1;
	/* Answers what came before we sent the first of it again: acknowledgements were lost, and the peer's answer to a complete duplicate
	 * still echoes the last segment that was none. The time is that of our timeouts; Karn's rule holds. */
	if (a->flags & PV_ACK_RETRANS && pv_tcp_echo_before(c, a->in, a->first_rtx_ns))
		return -1;
	ms = pv_tcp_ts_now(c, a->now_ns) - a->in->opt.ts_ecr;
	return ms < 0x7fffffffu / 1000 ? PV_MAX(ms, 1u) * PV_NS_PER_MS : -1;
}

/* Returns the sample for congestion control: of the latest segment, which has waited least for this acknowledgement. -1: none. */
static int64_t take_rtt(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	int64_t rtt = -1, last = -1, echo;

	/* Karn: which copy is acknowledged is not known, and the peer may have held back the rest for it. */
	if (a->first_ack_ns >= 0 && !(a->flags & PV_ACK_RETRANS)) {
		rtt = PV_MAX(a->now_ns - a->first_ack_ns, 0);
		last = PV_MAX(a->now_ns - a->last_ack_ns, 0);
	}
	/* SACKs are not delayed: one that tells of many follows others that were lost, and its own is the latest. */
	if (a->first_sack_ns >= 0) {
		last = PV_MAX(a->now_ns - a->last_sack_ns, 0);
		rtt = rtt < 0 ? last : rtt;
	}
	/* So does an acknowledgement that echoes something later than the first it covers: timeouts must not count as round trips. */
	echo = echo_rtt(c, a);
	if (rtt < 0)
		rtt = last = echo;
	else if (echo >= 0)
		rtt = PV_MIN(rtt, echo + PV_NS_PER_MS);
	if (rtt < 0)
		return -1;
	min_rtt(c, last, a->now_ns);
	rtt_estimate(c, rtt);
	c->backoff = 0; /* RFC 6298 5.7's end: a valid sample */
	return last;
}

/* Of one segment that was sent once. */
pv_inline int64_t lone_rtt(struct pv_tcp *c, int64_t tx_ns, const struct pv_tcp_in *in)
{
	int64_t rtt_ns = PV_MAX(in->now_ns - tx_ns, 0);

	if (c->flags & PV_TF_TS)
		return take_rtt(c, &(struct pv_tcp_acking){ .in = in,
							    .now_ns = in->now_ns,
							    .flags = PV_ACK_FREED,
							    .first_ack_ns = tx_ns,
							    .last_ack_ns = tx_ns,
							    .first_sack_ns = -1 });
	min_rtt(c, rtt_ns, in->now_ns);
	rtt_estimate(c, rtt_ns);
	return rtt_ns;
}

/* ---- the queue ------------------------------------------------------------------------------------------------------------ */

static void account(struct pv_tcp *c, struct pv_tcp_acking *a, const struct pv_tcp_seg *s, pv_seq end)
{
	uint8_t board = s->board;

	if (board & PV_SEG_EVER_RETRANS) {
		if (board & PV_SEG_RETRANS)
			c->retrans--;
		if (!(a->flags & PV_ACK_RETRANS))
			a->first_rtx_ns = s->tx_ns;
		a->flags |= PV_ACK_RETRANS;
	} else if (!(board & PV_SEG_SACKED)) {
		a->last_ack_ns = s->tx_ns;
		if (a->first_ack_ns < 0)
			a->first_ack_ns = s->tx_ns;
		if (pv_seq_lt(s->seq, a->reord))
			a->reord = s->seq;
		if (pv_seq_le(end, c->high_seq))
			a->flags |= PV_ACK_ORIG;
	}
	if (board & PV_SEG_SACKED) {
		c->sacked--;
	} else if (pv_tcp_has_sack(c)) {
		c->delivered++;
		if (!(board & PV_SEG_EVER_RETRANS) || !pv_tcp_echo_before(c, a->in, s->tx_ns))
			pv_tcp_rack_advance(c, s, end, a->now_ns);
	}
	if (board & PV_SEG_LOST)
		c->lost--;
	c->in_flight--;
	a->freed++;
}

static void release(struct pv_tcp *c, struct pv_tcp_seg *s, const struct pv_tcp_in *in)
{
	struct pv_list *next = s->link.next;

	if (pv_unlikely(s->flags & PV_SEG_STAMP))
		pv_tcp_stamp_acked(c, s, in);
	if (c->sack_hint == s)
		c->sack_hint = NULL;
	if (c->lost_hint == s)
		c->lost_hint = next == &c->sndq ? NULL : pv_tcp_seg_at(next);
	c->sndq_bytes -= s->len;
	c->snd_mem -= pv_seg_mem(s);
	pv_tcp_seg_put(c->t, s);
}

/* The front of a segment; its packet stays, and with it what it is charged, unless only the FIN is left. */
static void trim(struct pv_tcp *c, struct pv_tcp_seg *s, const struct pv_tcp_in *in)
{
	uint32_t n = pv_seq_dist(s->seq, c->snd_una);

	if (pv_unlikely(s->flags & PV_SEG_STAMP))
		pv_tcp_stamp_acked(c, s, in);
	s->seq = c->snd_una;
	s->len = (uint16_t)(s->len - n);
	s->off = (uint16_t)(s->off + n);
	c->sndq_bytes -= n;
	if (s->len)
		return;
	c->snd_mem -= s->pkt->size;
	if (s->pkt->flags & PV_PKT_KEPT)
		s->pkt->flags &= ~PV_PKT_KEPT;
	else
		pv_pkt_put(s->pkt);
	s->pkt = NULL;
	s->off = 0;
}

static void clean(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	while (c->in_flight) {
		struct pv_tcp_seg *s = pv_tcp_first(c);
		pv_seq end = pv_seg_end(s);

		if (pv_seq_ge(s->seq, c->snd_una))
			break;
		a->flags |= PV_ACK_FREED | PV_ACK_NOT_DUP | PV_ACK_TIMER;
		if (pv_seq_gt(end, c->snd_una)) {
			trim(c, s, a->in);
			break;
		}
		account(c, a, s, end);
		release(c, s, a->in);
	}
	if (c->in_flight && pv_tcp_first(c)->board & PV_SEG_SACKED)
		a->flags |= PV_ACK_RENEG;
	if (c->flags & PV_TF_SND_URG && pv_seq_gt(c->snd_una, c->snd_up))
		c->flags &= ~PV_TF_SND_URG;
}

/* What the queue tells of reordering, and of segments that duplicates had counted. */
static void clean_after(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	if (pv_tcp_has_sack(c)) {
		if (pv_seq_lt(a->reord, a->prior_fack))
			pv_tcp_reordered(c, a->reord, c->fack);
	} else if (a->flags & PV_ACK_FREED) {
		pv_tcp_reno_remove(c, a);
		/* Which of both copies came is not known without SACK. */
		if (a->flags & PV_ACK_RETRANS)
			a->flags &= ~PV_ACK_ORIG;
	}
	c->fack = pv_seq_max(c->fack, c->snd_una);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------ */

void pv_tcp_timers_restart(struct pv_tcp *c, int64_t now_ns)
{
	pv_tcp_rearm_rto(c, now_ns);
	if (!pv_tcp_tlp_arm(c, now_ns) && (c->flags & PV_TF_PTO || !c->in_flight))
		pv_tcp_rack_disarm(c);
}

/* Growth, or reduction's proportional rate. */
static void control(struct pv_tcp *c, const struct pv_tcp_acking *a, int64_t rtt_ns)
{
	uint32_t delivered = c->delivered - a->prior_delivered;

	if (a->flags & PV_ACK_ECE)
		c->delivered_ce += delivered;
	if (pv_tcp_reducing(c)) {
		pv_tcp_prr(c, delivered, c->lost_marks - a->prior_lost, a->flags);
		return;
	}
	/* On paths that reorder much, SACKs are progress as good as any. */
	if (!(a->flags & (PV_ACK_FREED | (c->reordering > PV_TCP_REORDERING ? PV_ACK_SACKED : 0))))
		return;
	pv_cc_acked(c, delivered, rtt_ns, a->now_ns);
}

/* Nothing was out. */
static void idle_ack(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	if (a->in->opt.nsack && pv_tcp_has_sack(c)) {
		pv_tcp_sack_blocks(c, a);
		pv_tcp_rack_update(c, a);
		if (a->flags & PV_ACK_DSACK)
			pv_tcp_recovery_ack(c, a);
	}
	if (c->flags & PV_TF_TLP)
		pv_tcp_tlp_ack(c, a);
}

static void scoreboard(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	int64_t rtt_ns;
	bool open;

	if (pv_unlikely(a->in->opt.nsack && pv_tcp_has_sack(c)))
		pv_tcp_sack_blocks(c, a);
	else
		c->nsack_seen = 0;
	a->reord = a->prior_fack;
	clean(c, a);
	rtt_ns = take_rtt(c, a);
	clean_after(c, a);
	/* The path carries: the first segment gets its time anew. Not by what was sent after it, or it might never come due. */
	if (!(a->flags & PV_ACK_TIMER) && a->first_sack_ns >= 0 && c->in_flight && a->first_sack_ns < pv_tcp_first(c)->tx_ns)
		a->flags |= PV_ACK_TIMER;
	if (c->delivered != a->prior_delivered)
		pv_tcp_rate_delivered(c, a->now_ns);
	if (pv_tcp_has_sack(c))
		pv_tcp_rack_update(c, a);
	if (c->flags & PV_TF_TLP)
		pv_tcp_tlp_ack(c, a);
	open = c->ca == PV_CA_OPEN && a->flags & PV_ACK_NOT_DUP;
	if (pv_unlikely(!open || a->flags & (PV_ACK_SACKED | PV_ACK_ECE | PV_ACK_DSACK))) {
		if (!(a->flags & (PV_ACK_UNA | PV_ACK_NOT_DUP | PV_ACK_DSACK)))
			a->dup = 1;
		pv_tcp_recovery_ack(c, a);
	}
	if (a->flags & PV_ACK_TIMER)
		pv_tcp_timers_restart(c, a->now_ns);
	control(c, a, rtt_ns);
}

/* All is well, and what is acknowledged is the one segment that is out: the steps below that this leaves over. False, and nothing has
 * happened: it is something else. */
pv_inline bool quick(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	int64_t rtt_ns, tx_ns;
	struct pv_tcp_seg *s;

	if (c->in_flight != 1 || c->ca != PV_CA_OPEN || c->unsent || c->lost || c->sacked || !pv_seq_eq(in->ack, c->snd_max) ||
	    in->opt.nsack || (c->flags & (PV_TF_SACK | NOT_QUICK)) != PV_TF_SACK)
		return false;
	s = pv_tcp_first(c);
	if (s->board != PV_SEG_SENT || pv_seq_lt(s->seq, c->fack))
		return false;
	c->probes_out = c->retransmits = c->backoff = 0;
	c->stall_ns = 0;
	c->soft_err = 0;
	c->bytes_acked += pv_seq_dist(c->snd_una, in->ack);
	c->snd_una = c->fack = in->ack;
	c->nsack_seen = 0;
	c->delivered++;
	c->in_flight = 0;
	pv_tcp_rack_advance(c, s, in->ack, in->now_ns);
	if (!c->rack_reo_persist)
		c->rack_reo_mult = 1;
	tx_ns = s->tx_ns;
	release(c, s, in);
	rtt_ns = lone_rtt(c, tx_ns, in);
	pv_tcp_rate_delivered(c, in->now_ns);
	/* Nothing is out: neither a timeout nor a probe. */
	c->flags &= ~PV_TF_PTO;
	c->deadline_ns[PV_TT_RTO] = c->deadline_ns[PV_TT_RACK] = PV_NEVER;
	pv_cc_acked(c, 1, rtt_ns, in->now_ns);
	if (pv_unlikely(c->flags & PV_TF_NOSPACE))
		pv_tcp_space(c);
	pv_tcp_set_busy(c, PV_BUSY_NOT, in->now_ns);
	return true;
}

pv_inline struct pv_tcp_acking acking(const struct pv_tcp *c, const struct pv_tcp_in *in)
{
	return (struct pv_tcp_acking){ .in = in,
				       .now_ns = in->now_ns,
				       .prior_delivered = c->delivered,
				       .prior_lost = c->lost_marks,
				       .prior_una = c->snd_una,
				       .prior_fack = c->fack,
				       .reord = c->fack,
				       .first_ack_ns = -1,
				       .first_sack_ns = -1 };
}

static pv_noinline void slow(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	struct pv_tcp_acking a = acking(c, in);
	pv_seq ack = in->ack;

	if (in->len || in->flags & (PV_TH_SYN | PV_TH_FIN) || (uint32_t)in->wnd << c->snd_wscale != c->snd_wnd)
		a.flags = PV_ACK_NOT_DUP;
	if (in->flags & PV_TH_ECE && c->flags & PV_TF_ECN)
		a.flags |= PV_ACK_ECE;
	c->flags &= ~PV_TF_FRTO_NEW;
	c->probes_out = 0;
	if (pv_seq_gt(ack, c->snd_una)) {
		a.flags |= PV_ACK_UNA;
		c->bytes_acked += pv_seq_dist(c->snd_una, ack);
		c->snd_una = ack;
		c->retransmits = 0;
		c->stall_ns = 0;
		c->soft_err = 0;
	}
	if (!c->in_flight) {
		idle_ack(c, &a);
		return;
	}
	scoreboard(c, &a);
	if (a.flags & PV_ACK_FREED)
		pv_tcp_space(c);
	if (c->unsent || c->lost_hint)
		pv_tcp_owe(c);
	else if (!c->in_flight)
		pv_tcp_set_busy(c, PV_BUSY_NOT, in->now_ns);
}

/* In trouble each tells something of its own; in slow start HyStart++ (RFC 9406 4.2, 4.3) counts them and bounds what one may give. */
bool pv_tcp_ack_last_of(const struct pv_tcp *c)
{
	return c->ca == PV_CA_OPEN && (!pv_cc_in_slow_start(c) || !pv_tcp_cwnd_limited(c));
}

/* What it SACKs has come, although it was overtaken itself (tcp_ack's old_ack): cwnd stays, and what leaves the network makes room. */
void pv_tcp_ack_old(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	struct pv_tcp_acking a = acking(c, in);

	if (!in->opt.nsack || !c->in_flight || !pv_tcp_has_sack(c))
		return;
	pv_tcp_sack_blocks(c, &a);
	if (c->delivered != a.prior_delivered)
		pv_tcp_rate_delivered(c, a.now_ns);
	if (a.flags & (PV_ACK_SACKED | PV_ACK_DSACK))
		pv_tcp_recovery_ack(c, &a);
	if (c->unsent || c->lost_hint)
		pv_tcp_owe(c);
}

void pv_tcp_ack(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (!quick(c, in))
		slow(c, in);
}
