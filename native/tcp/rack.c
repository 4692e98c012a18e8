/* SPDX-License-Identifier: BSD-3-Clause */
/* RACK-TLP (RFC 8985): losses by time of sending, and the probe that makes the last of them visible. */
#include "tcp/recovery.h"

/* A probe is not sent within what timers and sleeping receivers need anyhow. */
#define PTO_MIN_NS (2 * PV_NS_PER_MS)
#define PTO_INIT_NS PV_NS_PER_S
#define REO_PERSIST 16u /* recoveries without a D-SACK until the reordering window is small again */

/* ---- what is lost -------------------------------------------------------------------------------------------------------- */

void pv_tcp_mark_lost(struct pv_tcp *c, struct pv_tcp_seg *s)
{
	if (s->board & PV_SEG_SACKED || (s->board & (PV_SEG_LOST | PV_SEG_RETRANS)) == PV_SEG_LOST)
		return;
	if (s->board & PV_SEG_RETRANS)
		c->retrans--;
	if (!(s->board & PV_SEG_LOST))
		c->lost++;
	c->lost_marks++;
	s->board = (uint8_t)((s->board & ~PV_SEG_RETRANS) | PV_SEG_LOST);
	pv_list_del(&s->by_time);
	if (!c->lost_hint || pv_seq_lt(s->seq, c->lost_hint->seq))
		c->lost_hint = s;
}

/* None was lost after all (undo): they are in flight again, each at its place by time. Whole, but seldom. */
void pv_tcp_unmark_lost(struct pv_tcp *c)
{
	struct pv_list *at = c->by_time.next;
	int64_t last = INT64_MIN;

	pv_list_for_each(it, &c->sndq) {
		struct pv_tcp_seg *s = pv_tcp_seg_at(it);

		if (!(s->board & PV_SEG_SENT))
			break;
		if (!(s->board & PV_SEG_LOST))
			continue;
		s->board &= (uint8_t)~PV_SEG_LOST;
		if (s->board & PV_SEG_RETRANS)
			continue;
		if (s->tx_ns < last)
			at = c->by_time.next;
		last = s->tx_ns;
		while (at != &c->by_time && pv_list_entry(at, struct pv_tcp_seg, by_time)->tx_ns <= s->tx_ns)
			at = at->next;
		pv_list_add(at, &s->by_time);
	}
	c->lost = 0;
	c->lost_hint = NULL;
}

struct pv_tcp_seg *pv_tcp_next_lost(struct pv_tcp *c)
{
	struct pv_tcp_seg *s = c->lost_hint;

	if (!s || c->flags & PV_TF_FRTO_NEW)
		return NULL;
	for (struct pv_list *it = &s->link; it != &c->sndq; it = it->next) {
		s = pv_tcp_seg_at(it);
		if (!(s->board & PV_SEG_SENT))
			break;
		if ((s->board & (PV_SEG_LOST | PV_SEG_RETRANS)) == PV_SEG_LOST) {
			c->lost_hint = s;
			return s;
		}
	}
	c->lost_hint = NULL;
	return NULL;
}

/* ---- RACK ---------------------------------------------------------------------------------------------------------------- */

/* Step 2 (RFC 8985 6.2): the delivered segment that was sent last. */
void pv_tcp_rack_advance(struct pv_tcp *c, const struct pv_tcp_seg *s, pv_seq end, int64_t now_ns)
{
	int64_t rtt = PV_MAX(now_ns - s->tx_ns, 0);

	/* Sooner than any round trip took: what came was an earlier copy. */
	if (s->board & PV_SEG_EVER_RETRANS && rtt < c->min_rtt_ns)
		return;
	c->flags |= PV_TF_RACK_NEWS;
	c->rack_rtt_ns = rtt;
	if (pv_tcp_sent_after(s->tx_ns, end, c->rack_tx_ns, c->rack_end)) {
		c->rack_tx_ns = s->tx_ns;
		c->rack_end = end;
	}
}

/* Step 4: the window grows in each round with a D-SACK that reordering may explain, and shrinks after recoveries without (recovery.c). */
void pv_tcp_rack_update(struct pv_tcp *c, const struct pv_tcp_acking *a)
{
	if (c->flags & PV_TF_DSACK_ROUND && pv_seq_ge(c->snd_una, c->rack_dsack_round))
		c->flags &= ~PV_TF_DSACK_ROUND;
	if ((a->flags & (PV_ACK_DSACK | PV_ACK_DSACK_TLP)) == PV_ACK_DSACK && c->rack_reo_seen && !(c->flags & PV_TF_DSACK_ROUND)) {
		c->flags |= PV_TF_DSACK_ROUND;
		c->rack_dsack_round = c->snd_max;
		if (c->rack_reo_mult < UINT8_MAX)
			c->rack_reo_mult++;
		c->rack_reo_persist = REO_PERSIST;
	} else if (!c->rack_reo_persist) {
		c->rack_reo_mult = 1;
	}
}

static int64_t reo_wnd(const struct pv_tcp *c)
{
	int64_t quarter;

	if (!c->rack_reo_seen && (c->ca >= PV_CA_RECOVERY || c->sacked >= c->reordering))
		return 0;
	quarter = c->min_rtt_ns == PV_NEVER ? 0 : c->min_rtt_ns / 4;
	return PV_MIN(quarter * c->rack_reo_mult, c->srtt_ns);
}

int64_t pv_tcp_rack_left(const struct pv_tcp *c, const struct pv_tcp_seg *s, int64_t reo_wnd_ns, int64_t now_ns)
{
	int64_t left = s->tx_ns + c->rack_rtt_ns + reo_wnd_ns - now_ns;

	/* The nanoseconds that tell the segments of one batch apart are no time that passed: Linux counts in microseconds. */
	return left < PV_NS_PER_US ? 0 : left;
}

void pv_tcp_rack_disarm(struct pv_tcp *c)
{
	c->flags &= ~PV_TF_PTO;
	if (c->deadline_ns[PV_TT_RACK] != PV_NEVER)
		pv_tcp_timer_set(c, PV_TT_RACK, PV_NEVER);
}

/* Step 5. by_time holds what is neither SACKed nor lost, so that the walk ends at the first that was sent after the last delivered. */
static int64_t detect(struct pv_tcp *c, int64_t now_ns)
{
	int64_t wnd = reo_wnd(c), wait = 0;

	pv_list_for_each_safe(it, tmp, &c->by_time) {
		struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, by_time);
		int64_t left;

		if (!pv_tcp_sent_after(c->rack_tx_ns, c->rack_end, s->tx_ns, pv_seg_end(s)))
			break;
		left = pv_tcp_rack_left(c, s, wnd, now_ns);
		if (left <= 0)
			pv_tcp_mark_lost(c, s);
		else
			wait = PV_MAX(wait, left);
	}
	return wait;
}

void pv_tcp_rack_detect(struct pv_tcp *c, int64_t now_ns)
{
	int64_t wait;

	if (!(c->flags & PV_TF_RACK_NEWS))
		return;
	c->flags &= ~PV_TF_RACK_NEWS;
	wait = detect(c, now_ns);
	if (wait) {
		c->flags &= ~PV_TF_PTO;
		pv_tcp_timer_set(c, PV_TT_RACK, now_ns + wait);
	} else if (!(c->flags & PV_TF_PTO)) {
		pv_tcp_rack_disarm(c);
	}
}

/* ---- tail loss probe ------------------------------------------------------------------------------------------------------ */

/* RFC 8985 7.2; a reordering window that runs goes first. With one segment out its acknowledgement may be delayed: Linux allows for that as much as the least RTO. */
bool pv_tcp_tlp_arm(struct pv_tcp *c, int64_t now_ns)
{
	int64_t pto = PTO_INIT_NS, rto_at = c->deadline_ns[PV_TT_RTO];

	if (!c->in_flight || !pv_tcp_has_sack(c) || c->t->cfg.no_recovery_tlp || (c->ca != PV_CA_OPEN && c->ca != PV_CA_CWR) ||
	    c->flags & PV_TF_TLP || (c->deadline_ns[PV_TT_RACK] != PV_NEVER && !(c->flags & PV_TF_PTO)) ||
	    c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD)
		return false;
	if (c->srtt_ns)
		pto = 2 * c->srtt_ns + (c->in_flight == 1 ? c->t->cfg.rto_min_ns : PTO_MIN_NS);
	pto += now_ns;
	if (rto_at != PV_NEVER)
		pto = PV_MIN(pto, PV_MAX(rto_at, now_ns));
	c->flags |= PV_TF_PTO;
	pv_tcp_timer_set(c, PV_TT_RACK, pto);
	return true;
}

/* RFC 8985 7.3: new data if there is some, else the last segment again. One probe at a time. */
static void tlp_fire(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_list *last = c->unsent ? c->unsent->link.prev : c->sndq.prev;
	int rc;

	while (last != c->sndq.next && pv_tcp_seg_at(last)->board & PV_SEG_SACKED)
		last = last->prev;

	c->flags &= ~PV_TF_PTO;
	if (!c->in_flight)
		return;
	/* A peer that is silent for so long is more than behind: nobody is to wait for it to write on. */
	pv_tcp_space(c);
	c->flags = (c->flags | PV_TF_TLP) & ~PV_TF_TLP_RETRANS;
	rc = pv_tcp_output_one(c, now_ns);
	if (rc == -EAGAIN) {
		rc = pv_tcp_retransmit(c, pv_tcp_seg_at(last), now_ns);
		if (!rc)
			c->flags |= PV_TF_TLP_RETRANS;
	}
	if (rc) {
		c->flags &= ~PV_TF_TLP;
		pv_tcp_rearm_rto(c, now_ns);
		return;
	}
	c->tlp_high_seq = c->snd_max;
	c->t->c.tlp++;
	/* The timeout, if it must be, comes a whole one after the probe. */
	pv_tcp_timer_set(c, PV_TT_RTO, now_ns + pv_tcp_rto_ns(c, c->t->cfg.rto_max_ns));
}

/* RFC 8985 7.4.2: was what the probe repaired a loss? Then cwnd answers for it. */
void pv_tcp_tlp_ack(struct pv_tcp *c, struct pv_tcp_acking *a)
{
	pv_seq ack = a->in->ack;

	if (pv_seq_lt(ack, c->tlp_high_seq))
		return;
	if (c->flags & PV_TF_TLP_RETRANS && !(a->flags & PV_ACK_DSACK_TLP)) {
		if (pv_seq_gt(ack, c->tlp_high_seq)) {
			/* Without a D-SACK only one of both came. */
			pv_tcp_reduction_begin(c);
			pv_tcp_set_ca(c, PV_CA_CWR);
			pv_tcp_reduction_end(c);
			pv_tcp_keep_open(c);
		} else if (a->flags & (PV_ACK_UNA | PV_ACK_NOT_DUP | PV_ACK_SACKED)) {
			return; /* the first copy; the probe's own acknowledgement is to come */
		}
	}
	c->flags &= ~(PV_TF_TLP | PV_TF_TLP_RETRANS);
}

/* ---- from the other files ------------------------------------------------------------------------------------------------- */

/* The reordering window has passed. */
static void reo_fire(struct pv_tcp *c, int64_t now_ns)
{
	uint32_t lost = c->lost_marks, pipe = pv_tcp_pipe(c);
	int64_t wait = detect(c, now_ns);

	if (wait)
		pv_tcp_timer_set(c, PV_TT_RACK, now_ns + wait);
	if (pipe == pv_tcp_pipe(c))
		return;
	if (c->ca != PV_CA_RECOVERY) {
		pv_tcp_enter_recovery(c, false);
		pv_tcp_prr(c, 1, c->lost_marks - lost, 0);
	}
	pv_tcp_output(c, now_ns);
}

void pv_tcp_rack_fired(struct pv_tcp *c, int64_t now_ns)
{
	if (c->flags & PV_TF_PTO)
		tlp_fire(c, now_ns);
	else if (c->in_flight)
		reo_fire(c, now_ns);
}

/* RFC 7661's question, answered as Linux does: was cwnd what held us back? What was in use counts, else. */
static void cwnd_validate(struct pv_tcp *c, int64_t now_ns)
{
	bool limited = pv_tcp_pipe(c) >= c->cwnd;
	uint32_t used;

	if (limited || pv_seq_ge(c->snd_una, c->cwnd_usage_seq) ||
	    (!(c->flags & PV_TF_CWND_LIMITED) && c->in_flight > c->max_out)) {
		c->flags = (c->flags & ~PV_TF_CWND_LIMITED) | (limited ? PV_TF_CWND_LIMITED : 0);
		c->max_out = c->in_flight;
		c->cwnd_usage_seq = c->snd_max;
	}
	if (pv_tcp_cwnd_limited(c)) {
		c->cwnd_used = 0;
		c->cwnd_stamp_ns = now_ns;
		return;
	}
	c->cwnd_used = PV_MAX(c->cwnd_used, c->in_flight);
	if (now_ns - c->cwnd_stamp_ns < c->rto_ns || c->ca != PV_CA_OPEN || c->flags & PV_TF_NOSPACE || c->cc->unlimited)
		return;
	/* A timeout long less was needed: what cwnd says beyond is about a network of long ago (RFC 2861). */
	used = PV_MAX(c->cwnd_used, PV_TCP_INIT_CWND);
	if (used < c->cwnd) {
		c->ssthresh = pv_tcp_current_ssthresh(c);
		c->cwnd = (c->cwnd + used) / 2;
	}
	c->cwnd_used = 0;
	c->cwnd_stamp_ns = now_ns;
}

static enum pv_tcp_busy busy_with(const struct pv_tcp *c)
{
	if (!c->unsent)
		return c->flags & PV_TF_NOSPACE ? PV_BUSY_SNDBUF : PV_BUSY;
	return pv_seq_gt(pv_seg_end(c->unsent), pv_seq_add(c->snd_una, c->snd_wnd)) && pv_tcp_cwnd_room(c) ? PV_BUSY_RWND : PV_BUSY;
}

void pv_tcp_rack_sent(struct pv_tcp *c, int64_t now_ns)
{
	cwnd_validate(c, now_ns);
	pv_tcp_set_busy(c, busy_with(c), now_ns);
	(void)pv_tcp_tlp_arm(c, now_ns);
}

void pv_tcp_held_back(struct pv_tcp *c, int64_t now_ns)
{
	pv_tcp_set_busy(c, busy_with(c), now_ns);
}

void pv_tcp_note_sent(struct pv_tcp *c, struct pv_tcp_seg *s, bool again, int64_t now_ns)
{
	if (again) {
		if (!(s->board & PV_SEG_RETRANS))
			c->retrans++;
		s->board |= PV_SEG_RETRANS | PV_SEG_EVER_RETRANS;
		if (!c->first_rtx_ns)
			c->first_rtx_ns = now_ns;
		c->undo_retrans = PV_MAX(c->undo_retrans, 0) + 1;
		c->total_retrans++;
		c->bytes_retrans += s->len;
	} else {
		/* Nothing was out: what the last flight left behind is no measure for this one. */
		if (!c->in_flight) {
			c->fack = c->cwnd_usage_seq = c->snd_una;
			if (c->ca == PV_CA_OPEN)
				c->high_seq = c->snd_una;
		}
		s->board = PV_SEG_SENT;
		c->in_flight++;
	}
	if (s->tx_count < UINT8_MAX)
		s->tx_count++;
	/* A whole batch has one time; which of it went first matters, when it is of segments sent again. */
	c->tx_last_ns = PV_MAX(now_ns, c->tx_last_ns + 1);
	s->tx_ns = c->tx_last_ns;
	pv_list_del(&s->by_time);
	pv_list_add(&c->by_time, &s->by_time);
	if (pv_tcp_reducing(c))
		c->prr_out++;
}

void pv_tcp_note_split(struct pv_tcp *c, const struct pv_tcp_seg *s, struct pv_tcp_seg *rest)
{
	rest->board = s->board;
	rest->tx_ns = s->tx_ns;
	rest->tx_count = s->tx_count;
	if (!(s->board & PV_SEG_SENT))
		return;
	c->in_flight++;
	c->sacked += (s->board & PV_SEG_SACKED) != 0;
	c->lost += (s->board & PV_SEG_LOST) != 0;
	c->retrans += (s->board & PV_SEG_RETRANS) != 0;
	/* Where `s` stands by time, the rest stands behind it. */
	if (!pv_list_empty(&s->by_time))
		pv_list_add(s->by_time.next, &rest->by_time);
}
