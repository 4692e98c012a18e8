/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loss recovery: the states that Linux has shown to be enough (OPEN, DISORDER, CWR, RECOVERY, LOSS), the rate within them (PRR), the
 * retransmission timeout with F-RTO (RFC 5682), and taking back what proves to have been needless (D-SACK, RFC 3708; Eifel, RFC 4015).
 */
#include "tcp/recovery.h"

#include <string.h>

#define RETRY_NS (10 * PV_NS_PER_MS) /* what a ring or a neighbour's queue still holds is tried again after */
#define TIMEOUT_BASE_NS (200 * PV_NS_PER_MS) /* what retries2 counts in (Linux's TCP_RTO_MIN) */

void pv_tcp_recovery_init(struct pv_tcp *c)
{
	if (!c->cc) {
		const struct pv_cc_ops *cc = pv_cc_find(c->t->cfg.congestion);

		pv_tcp_set_cc(c, cc ? cc : &pv_cc_cubic);
	}
	c->ca = PV_CA_OPEN;
	c->cwnd = pv_tcp_initial_cwnd(c);
	c->ssthresh = PV_TCP_SSTHRESH_INF;
	c->cwnd_cnt = c->prior_cwnd = c->prior_ssthresh = 0;
	c->prior_limited = false;
	c->in_flight = c->sacked = c->lost = c->retrans = 0;
	c->reordering = PV_TCP_REORDERING;
	c->fack = c->high_seq = c->recover = c->tlp_high_seq = c->cwnd_usage_seq = c->rack_end = c->rtt_seq = c->snd_una;
	c->sack_hint = c->lost_hint = NULL;
	c->nsack_seen = 0;
	c->undo_retrans = 0;
	c->prr_delivered = c->prr_out = c->max_out = c->cwnd_used = 0;
	c->cwnd_stamp_ns = pv_tcp_now(c->t);
	memset(c->busy_ns, 0, sizeof(c->busy_ns));
	c->busy = PV_BUSY_NOT;
	c->busy_ns[PV_BUSY_NOT] = -pv_tcp_now(c->t);
	c->delivered = c->delivered_ce = c->lost_marks = 0;
	c->rate_watch = c->rate_limited = false;
	c->rate_delivered = c->rate_ticks = c->app_limited = 0;
	c->rack_tx_ns = c->rack_rtt_ns = c->tx_last_ns = 0;
	c->min_rtt_ns = c->min_rtt_next_ns = PV_NEVER;
	c->min_rtt_at_ns = pv_tcp_now(c->t);
	c->rack_reo_mult = 1;
	c->rack_reo_persist = 0;
	c->rack_reo_seen = false;
	c->srtt_ns = c->rttvar_ns = c->mdev_ns = c->mdev_max_ns = 0;
	c->rto_ns = PV_NS_PER_S; /* RFC 6298 2.1 */
	c->backoff = c->retransmits = c->probes_out = 0;
	c->first_rtx_ns = c->stall_ns = 0;
	c->total_rto = c->rto_recoveries = 0;
	c->rto_since_ms = c->rto_time_ms = 0;
	c->flags &= ~(PV_TF_TLP | PV_TF_TLP_RETRANS | PV_TF_PTO | PV_TF_UNDO | PV_TF_RACK_NEWS | PV_TF_DSACK_ROUND | PV_TF_RENEGED |
		      PV_TF_FRTO | PV_TF_FRTO_NEW | PV_TF_CWND_LIMITED | PV_TF_CWR);
	c->cc->init(c);
}

void pv_tcp_set_ca(struct pv_tcp *c, enum pv_tcp_ca ca)
{
	/* Disorder alone is no recovery: acknowledgements that come out of turn begin and end it all the time. */
	if (c->ca != ca && (c->ca > PV_CA_DISORDER || ca > PV_CA_DISORDER))
		pv_tcp_traced(c, PV_TRACE_recovery, c->ca, ca);
	if (pv_unlikely(c->ca == PV_CA_LOSS && ca != PV_CA_LOSS))
		pv_tcp_rto_over(c, pv_tcp_now(c->t));
	c->ca = (uint8_t)ca;
	/* A probe is for states in which nothing else looks for losses. */
	if (ca >= PV_CA_RECOVERY && c->flags & PV_TF_PTO)
		pv_tcp_rack_disarm(c);
}

uint32_t pv_tcp_cwnd_room(const struct pv_tcp *c)
{
	uint32_t pipe = pv_tcp_pipe(c);

	return c->cwnd > pipe ? c->cwnd - pipe : 0;
}

uint32_t pv_tcp_current_ssthresh(const struct pv_tcp *c)
{
	return pv_tcp_reducing(c) ? c->ssthresh : PV_MAX(c->ssthresh, c->cwnd / 2 + c->cwnd / 4);
}

/* ---- reduction ------------------------------------------------------------------------------------------------------------ */

static void queue_cwr(struct pv_tcp *c)
{
	if (c->flags & PV_TF_ECN)
		c->flags |= PV_TF_CWR;
}

void pv_tcp_reduction_begin(struct pv_tcp *c)
{
	c->high_seq = c->snd_max;
	c->flags &= ~(PV_TF_TLP | PV_TF_TLP_RETRANS);
	c->cwnd_cnt = 0;
	c->prior_cwnd = c->cwnd;
	c->prior_limited = pv_tcp_cwnd_limited(c);
	c->prr_delivered = c->prr_out = 0;
	c->ssthresh = c->cc->ssthresh(c);
	queue_cwr(c);
}

void pv_tcp_reduction_end(struct pv_tcp *c)
{
	if (c->ssthresh >= PV_TCP_SSTHRESH_INF || (c->ca != PV_CA_CWR && !(c->flags & PV_TF_UNDO)))
		return;
	c->cwnd = c->ssthresh;
	c->cwnd_stamp_ns = pv_tcp_now(c->t);
}

void pv_tcp_prr(struct pv_tcp *c, uint32_t delivered, uint32_t lost, uint32_t flags)
{
	uint32_t pipe = pv_tcp_pipe(c);
	int64_t send, room = (int64_t)c->ssthresh - pipe;

	if (!delivered || !c->prior_cwnd || c->cc->unlimited)
		return;
	c->prr_delivered += delivered;
	if (room < 0) {
		/* In proportion: what was in flight shrinks to ssthresh in the course of one round trip. */
		send = (int64_t)(((uint64_t)c->ssthresh * c->prr_delivered + c->prior_cwnd - 1) / c->prior_cwnd) - c->prr_out;
	} else {
		/* Losses took more than the reduction: back up to ssthresh, one for one and, while nothing is lost anew, one more. */
		send = PV_MAX((int64_t)c->prr_delivered - c->prr_out, (int64_t)delivered);
		if (flags & PV_ACK_UNA && !lost)
			send++;
		send = PV_MIN(send, room);
	}
	/* The first retransmission goes at once. */
	send = PV_MAX(send, c->prr_out ? 0 : 1);
	c->cwnd = pipe + (uint32_t)send;
}

static void init_undo(struct pv_tcp *c)
{
	c->flags |= PV_TF_UNDO;
	c->recover = c->snd_una;
	/* What is out again already may be D-SACKed later; with nothing out nothing is proved yet. */
	c->undo_retrans = (int32_t)c->retrans;
	if ((c->flags & (PV_TF_TLP | PV_TF_TLP_RETRANS)) == (PV_TF_TLP | PV_TF_TLP_RETRANS) && !c->retrans)
		c->undo_retrans = 1;
	if (!c->undo_retrans)
		c->undo_retrans = -1;
}

void pv_tcp_enter_recovery(struct pv_tcp *c, bool ece)
{
	c->prior_ssthresh = 0;
	init_undo(c);
	if (!pv_tcp_reducing(c)) {
		if (!ece)
			c->prior_ssthresh = pv_tcp_current_ssthresh(c);
		pv_tcp_reduction_begin(c);
	}
	pv_tcp_set_ca(c, PV_CA_RECOVERY);
	c->t->c.recoveries++;
}

static void enter_cwr(struct pv_tcp *c)
{
	c->prior_ssthresh = 0;
	if (c->ca >= PV_CA_CWR)
		return;
	c->flags &= ~PV_TF_UNDO;
	pv_tcp_reduction_begin(c);
	pv_tcp_set_ca(c, PV_CA_CWR);
}

/* ---- undo ------------------------------------------------------------------------------------------------------------------ */

static bool any_retrans(struct pv_tcp *c)
{
	return c->retrans || (c->in_flight && pv_tcp_first(c)->board & PV_SEG_EVER_RETRANS);
}

/* Eifel detection (RFC 3522): the acknowledgement is of before the first retransmission, or there was none. */
static bool was_delayed(const struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	return !c->first_rtx_ns || pv_tcp_echo_before(c, a->in, c->first_rtx_ns);
}

static bool may_undo(const struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	return c->flags & PV_TF_UNDO && (!c->undo_retrans || was_delayed(c, a));
}

static void undo(struct pv_tcp *c, bool unmark)
{
	if (unmark)
		pv_tcp_unmark_lost(c);
	if (c->prior_ssthresh) {
		c->cwnd = PV_MAX(c->cwnd, c->prior_cwnd);
		/* PRR's cwnd follows what is out and so was in use whole; this one may not have been, and the next segment that goes
		 * tells (RFC 7661 4.1). */
		c->flags = (c->flags & ~PV_TF_CWND_LIMITED) | (c->prior_limited ? PV_TF_CWND_LIMITED : 0);
		c->cwnd_usage_seq = c->snd_una;
		if (c->prior_ssthresh > c->ssthresh) {
			c->ssthresh = c->prior_ssthresh;
			c->flags &= ~PV_TF_CWR;
		}
		if (c->cc->undo)
			c->cc->undo(c);
		c->t->c.undone++;
	}
	c->cwnd_stamp_ns = pv_tcp_now(c->t);
	c->flags = (c->flags & ~PV_TF_UNDO) | PV_TF_RACK_NEWS;
}

/* Without SACK the state is held until something above high_seq is acknowledged, or duplicates of old data would start it anew
 * (RFC 6582 3.2 step 1). */
static bool hold_reno(const struct pv_tcp *c)
{
	return pv_seq_eq(c->snd_una, c->high_seq) && !pv_tcp_has_sack(c);
}

/* high_seq is reached. True: the state stays. */
static bool leave(struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	if (may_undo(c, a)) {
		if (c->ca == PV_CA_LOSS)
			c->t->c.rto_spurious++;
		undo(c, false);
	} else if (c->rack_reo_persist) {
		c->rack_reo_persist--;
	}
	if (hold_reno(c))
		return true;
	pv_tcp_set_ca(c, PV_CA_OPEN);
	c->flags &= ~(PV_TF_RENEGED | PV_TF_FRTO);
	return false;
}

static bool undo_dsack(struct pv_tcp *c)
{
	if (!(c->flags & PV_TF_UNDO) || c->undo_retrans)
		return false;
	if (c->rack_reo_persist < 16)
		c->rack_reo_persist++;
	undo(c, false);
	return true;
}

static bool undo_loss(struct pv_tcp *c, const struct pv_tcp_acking *a, bool frto)
{
	if (!frto && !may_undo(c, a))
		return false;
	undo(c, true);
	c->t->c.rto_spurious++;
	c->retransmits = 0;
	if (hold_reno(c))
		return true;
	if (frto || pv_tcp_has_sack(c)) {
		pv_tcp_set_ca(c, PV_CA_OPEN);
		c->flags &= ~(PV_TF_RENEGED | PV_TF_FRTO);
	}
	return true;
}

/* ---- states ---------------------------------------------------------------------------------------------------------------- */

void pv_tcp_keep_open(struct pv_tcp *c)
{
	enum pv_tcp_ca ca = c->sacked || c->lost || any_retrans(c) ? PV_CA_DISORDER : PV_CA_OPEN;

	if (c->ca == ca)
		return;
	pv_tcp_set_ca(c, ca);
	c->high_seq = c->snd_max;
}

static void try_to_open(struct pv_tcp *c, uint32_t flags)
{
	if (!any_retrans(c))
		c->first_rtx_ns = 0;
	if (flags & PV_ACK_ECE)
		enter_cwr(c);
	if (c->ca != PV_CA_CWR)
		pv_tcp_keep_open(c);
}

/* A part of what was lost came in recovery. True: by delayed originals, and the rest is out: wait for that. */
static bool undo_partial(struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	if (!(c->flags & PV_TF_UNDO) || !was_delayed(c, a))
		return false;
	pv_tcp_reordered(c, a->prior_una, c->fack);
	if (c->retrans)
		return true;
	if (!any_retrans(c))
		c->first_rtx_ns = 0;
	undo(c, true);
	pv_tcp_keep_open(c);
	return false;
}

static void find_losses(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	uint32_t retrans = c->retrans;

	if (pv_tcp_has_sack(c)) {
		pv_tcp_rack_detect(c, a->now_ns);
	} else if (c->in_flight && !(pv_tcp_first(c)->board & PV_SEG_LOST) &&
		   ((c->ca < PV_CA_RECOVERY && c->sacked >= c->reordering) || (c->ca == PV_CA_RECOVERY && a->flags & PV_ACK_UNA))) {
		/* NewReno (RFC 6582): the third duplicate, or a partial acknowledgement, means the first that is out. */
		pv_tcp_mark_lost(c, pv_tcp_first(c));
	}
	if (c->retrans < retrans)
		a->flags |= PV_ACK_LOST_RETRANS;
}

/* RFC 5682: 2.1 without, 3.1 with SACK. True: this acknowledgement has been dealt with. */
static bool frto(struct pv_tcp *c, struct pv_tcp_acking *a, bool recovered)
{
	const struct pv_tcp_seg *next = c->unsent;
	bool can_send;

	/* 3b: something that was never sent again got through. */
	if (a->flags & PV_ACK_ORIG && undo_loss(c, a, true))
		return true;
	if (pv_seq_gt(c->snd_max, c->high_seq)) {
		if (a->flags & PV_ACK_SACKED || a->dup)
			c->flags &= ~PV_TF_FRTO; /* 3a: the new data came, the old did not */
		return false;
	}
	if (!(a->flags & PV_ACK_UNA) || recovered)
		return false;
	/* 2b: two new segments tell more than retransmissions; if there is nothing new that may go, it ends here. */
	c->high_seq = c->snd_max;
	can_send = next && (next->len >= c->mss || c->opts.nodelay) &&
		   pv_seq_dist(c->snd_una, pv_seg_end(next)) <= (uint32_t)a->in->wnd << c->snd_wscale;
	if (can_send) {
		c->flags |= PV_TF_FRTO_NEW;
		return true;
	}
	c->flags &= ~PV_TF_FRTO;
	return false;
}

static void process_loss(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	bool recovered = pv_seq_ge(c->snd_una, c->high_seq);

	if (a->flags & PV_ACK_UNA && undo_loss(c, a, false))
		return;
	if (c->flags & PV_TF_FRTO && frto(c, a, recovered))
		return;
	if (recovered) {
		(void)leave(c, a);
		return;
	}
	if (pv_tcp_has_sack(c))
		return;
	if (pv_seq_gt(c->snd_max, c->high_seq) && a->dup)
		pv_tcp_reno_add(c, a);
	else if (a->flags & PV_ACK_UNA)
		c->sacked = 0;
}

/* OPEN, DISORDER, CWR, or LOSS that ended or lost a retransmission. */
static void process_open(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	if (!pv_tcp_has_sack(c)) {
		if (a->flags & PV_ACK_UNA)
			c->sacked = 0;
		pv_tcp_reno_add(c, a);
	}
	if (c->ca <= PV_CA_DISORDER)
		(void)undo_dsack(c);
	find_losses(c, a);
	if (c->lost)
		pv_tcp_enter_recovery(c, a->flags & PV_ACK_ECE);
	else
		try_to_open(c, a->flags);
}

static void process_recovery(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	if (!(a->flags & PV_ACK_UNA)) {
		if (!pv_tcp_has_sack(c))
			pv_tcp_reno_add(c, a);
	} else if (undo_partial(c, a)) {
		return;
	}
	if (undo_dsack(c))
		try_to_open(c, a->flags);
	find_losses(c, a);
	if (c->ca != PV_CA_RECOVERY && c->lost)
		pv_tcp_enter_recovery(c, a->flags & PV_ACK_ECE);
}

/* What ends by reaching high_seq. True: nothing else is to be done. */
static bool process_end(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	if (c->ca == PV_CA_OPEN) {
		c->first_rtx_ns = 0;
	} else if (pv_seq_lt(c->snd_una, c->high_seq)) {
		return false;
	} else if (c->ca == PV_CA_CWR) {
		/* Above high_seq, so that the CWR has reached the peer (RFC 3168 6.1.2). */
		if (!pv_seq_eq(c->snd_una, c->high_seq)) {
			pv_tcp_reduction_end(c);
			pv_tcp_set_ca(c, PV_CA_OPEN);
		}
	} else if (c->ca == PV_CA_RECOVERY) {
		if (!pv_tcp_has_sack(c))
			c->sacked = 0;
		if (leave(c, a))
			return true;
		pv_tcp_reduction_end(c);
	}
	return false;
}

void pv_tcp_recovery_ack(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	if (!c->in_flight)
		c->sacked = 0;
	/* Congestion it was: nothing is taken back. */
	if (a->flags & PV_ACK_ECE)
		c->prior_ssthresh = 0;
	/* SACKed, and yet not acknowledged with what surrounds it: the receiver may have thrown it away (RFC 2018 8). The timeout, soon,
	 * forgets all SACKs. */
	if ((a->flags & (PV_ACK_RENEG | PV_ACK_UNA)) == (PV_ACK_RENEG | PV_ACK_UNA)) {
		pv_tcp_rack_disarm(c);
		pv_tcp_timer_set(c, PV_TT_RTO, a->now_ns + PV_MAX(c->srtt_ns / 2, 10 * PV_NS_PER_MS));
		a->flags &= ~PV_ACK_TIMER;
		return;
	}
	if (process_end(c, a))
		return;
	if (c->ca == PV_CA_RECOVERY) {
		process_recovery(c, a);
		return;
	}
	if (c->ca == PV_CA_LOSS) {
		process_loss(c, a);
		if (c->ca == PV_CA_LOSS || c->ca == PV_CA_OPEN)
			find_losses(c, a);
		if (c->ca != PV_CA_OPEN && !(a->flags & PV_ACK_LOST_RETRANS))
			return;
	}
	process_open(c, a);
}

/* ---- timeout --------------------------------------------------------------------------------------------------------------- */

/* RFC 6298 5.4..5.6, RFC 8985 6.3: lost is what has been out for as long as RACK would wait; what was sent just now is not. */
static void mark_timeout(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_seg *first = pv_tcp_first(c);
	bool reneged = first->board & PV_SEG_SACKED;

	if (reneged) {
		c->flags |= PV_TF_RENEGED;
		c->nsack_seen = 0;
	}
	if (reneged || !pv_tcp_has_sack(c))
		c->sacked = 0;
	pv_list_for_each(it, &c->sndq) {
		struct pv_tcp_seg *s = pv_tcp_seg_at(it);

		if (!(s->board & PV_SEG_SENT))
			break;
		if (reneged)
			s->board &= (uint8_t)~PV_SEG_SACKED;
		else if (s != first && pv_tcp_rack_left(c, s, 0, now_ns) > 0)
			continue;
		pv_tcp_mark_lost(c, s);
	}
}

static void enter_loss(struct pv_tcp *c, int64_t now_ns)
{
	bool fresh = c->ca < PV_CA_RECOVERY;

	mark_timeout(c, now_ns);
	/* Once a window of data: a timeout within a recovery, or again, changes nothing. */
	if (c->ca <= PV_CA_DISORDER || pv_seq_le(c->high_seq, c->snd_una) || (c->ca == PV_CA_LOSS && !c->retransmits)) {
		c->prior_ssthresh = pv_tcp_current_ssthresh(c);
		c->prior_cwnd = c->cwnd;
		c->prior_limited = pv_tcp_cwnd_limited(c);
		c->ssthresh = c->cc->ssthresh(c);
		if (c->cc->event)
			c->cc->event(c, PV_CC_RTO, now_ns);
		init_undo(c);
	}
	if (!c->cc->unlimited)
		c->cwnd = pv_tcp_pipe(c) + 1;
	c->cwnd_cnt = 0;
	c->cwnd_stamp_ns = now_ns;
	/* Enough had come to start a recovery, and it was not: too much was taken for reordering. */
	if (c->ca <= PV_CA_DISORDER && c->sacked >= PV_TCP_REORDERING)
		c->reordering = PV_MIN(c->reordering, PV_TCP_REORDERING);
	pv_tcp_rack_disarm(c);
	pv_tcp_set_ca(c, PV_CA_LOSS);
	c->high_seq = c->snd_max;
	c->flags &= ~(PV_TF_TLP | PV_TF_TLP_RETRANS | PV_TF_FRTO | PV_TF_FRTO_NEW);
	queue_cwr(c);
	/* RFC 5682 2.1 step 1: not within another recovery; again for the same segment is fine (3.2). */
	if (fresh || c->retransmits)
		c->flags |= PV_TF_FRTO;
}

/* How long `n` timeouts take together, from the first one on, when each is twice the last and none above the limit. */
static int64_t give_up_after(const struct pv_tcp *c, uint32_t n)
{
	int64_t rto_max = c->t->cfg.rto_max_ns, rto = TIMEOUT_BASE_NS, sum = 0;

	for (uint32_t i = 0; i <= n && i < 64; i++) {
		sum += rto;
		rto = PV_MIN(2 * rto, rto_max);
	}
	return sum;
}

static bool timed_out(const struct pv_tcp *c, int64_t now_ns)
{
	int64_t limit;

	if (!c->retransmits || !c->stall_ns)
		return false;
	if (c->opts.user_timeout_ms)
		limit = c->opts.user_timeout_ms * PV_NS_PER_MS;
	else if (!c->snd_wnd && !(c->flags & PV_TF_ORPHAN))
		/* A peer that took its window back is not gone while it answers (RFC 9293 3.8.6.1). */
		return now_ns - PV_MAX(c->last_ack_rcvd_ns, c->stall_ns) >= 2 * c->t->cfg.rto_max_ns;
	else
		limit = give_up_after(c, c->flags & PV_TF_ORPHAN ? c->t->cfg.orphan_retries : c->t->cfg.retries2);
	return now_ns - c->stall_ns >= limit;
}

static void back_off(struct pv_tcp *c, int64_t now_ns)
{
	if (c->backoff < UINT8_MAX)
		c->backoff++;
	pv_tcp_rto_after(c, pv_tcp_rto_ns(c, c->t->cfg.rto_max_ns), now_ns);
}

/* The first segment waits in a queue for its rate: its time begins when it leaves, which a change of the rate may bring nearer. One that has
 * waited for longer than the longest timeout may be in a queue that does not move. */
static bool wait_held(struct pv_tcp *c, int64_t held, int64_t now_ns)
{
	int64_t rto = pv_tcp_rto_ns(c, c->t->cfg.rto_max_ns);

	if (pv_likely(!held) || now_ns - pv_tcp_first(c)->tx_ns >= c->t->cfg.rto_max_ns)
		return false;
	pv_tcp_rto_after(c, held <= rto ? held + rto : rto, now_ns);
	return true;
}

void pv_tcp_rto_fired(struct pv_tcp *c, int64_t now_ns)
{
	int64_t held;
	int rc;

	if (!c->in_flight)
		return;
	/* A probe that is due as well goes first; the timeout follows it by a whole RTO. */
	if (c->flags & PV_TF_PTO && c->deadline_ns[PV_TT_RACK] <= now_ns) {
		pv_tcp_timer_set(c, PV_TT_RACK, PV_NEVER);
		pv_tcp_rack_fired(c, now_ns);
		return;
	}
	if (timed_out(c, now_ns)) {
		pv_tcp_abort(c, c->soft_err ? c->soft_err : ETIMEDOUT);
		return;
	}
	held = pv_tcp_held_ns(c, pv_tcp_first(c), now_ns);
	if (wait_held(c, held, now_ns))
		return;
	enter_loss(c, now_ns);
	pv_tcp_space(c);
	if (!c->stall_ns)
		c->stall_ns = now_ns;
	if (c->retransmits < UINT8_MAX)
		c->retransmits++;
	pv_tcp_rto_count(c, now_ns);
	c->t->c.rto++;
	pv_tcp_traced(c, PV_TRACE_timeout, (uint32_t)(pv_tcp_rto_ns(c, c->t->cfg.rto_max_ns) / PV_NS_PER_US), c->retransmits);
	rc = pv_tcp_retransmit(c, pv_tcp_first(c), now_ns);
	if (rc == -ENOBUFS || (rc == -EBUSY && !held)) {
		pv_tcp_timer_set(c, PV_TT_RTO, now_ns + PV_MIN(c->rto_ns, RETRY_NS));
		return;
	}
	/* The way there is broken, as far as we can see: told if it stays so. */
	if (rc && rc != -EBUSY)
		c->soft_err = (uint16_t)-rc;
	back_off(c, now_ns);
}

/* ---- idle ------------------------------------------------------------------------------------------------------------------ */

void pv_tcp_idle_restart(struct pv_tcp *c, int64_t now_ns)
{
	int64_t idle = now_ns - c->last_data_sent_ns;
	uint32_t floor;

	if (c->in_flight || !c->last_data_sent_ns)
		return;
	if (c->cc->event)
		c->cc->event(c, PV_CC_START, now_ns);
	if (idle <= c->rto_ns || c->cc->unlimited)
		return;
	c->ssthresh = pv_tcp_current_ssthresh(c);
	floor = PV_MIN(c->cwnd, PV_TCP_INIT_CWND);
	/* Half for each RTO (RFC 2861), which ends where RFC 5681 4.1 does at once. */
	for (idle -= c->rto_ns; idle > 0 && c->cwnd > floor; idle -= c->rto_ns)
		c->cwnd /= 2;
	c->cwnd = PV_MAX(c->cwnd, floor);
	c->cwnd_stamp_ns = now_ns;
	c->cwnd_used = 0;
}
