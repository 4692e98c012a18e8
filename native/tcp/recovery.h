/* SPDX-License-Identifier: BSD-3-Clause */
/* What ack.c, sack.c, rack.c and recovery.c share: the sender's side of one acknowledgement. */
#ifndef PV_TCP_RECOVERY_H
#define PV_TCP_RECOVERY_H

#include "tcp/tcp_int.h"

#define PV_TCP_SSTHRESH_INF 0x7fffffffu /* of which RFC 5681 3.1 says "arbitrarily high" */
#define PV_TCP_REORDERING 3u /* DupThresh */
#define PV_TCP_REORDERING_MAX 300u
#define PV_TCP_CWND_MAX 0x100000u

/* What an acknowledgement turned out to be. */
#define PV_ACK_UNA 0x001u /* snd_una moved */
#define PV_ACK_NOT_DUP 0x002u /* carries data, or another window, or acknowledges something: no duplicate (RFC 5681 2) */
#define PV_ACK_FREED 0x004u /* segments left the queue, or the front of one */
#define PV_ACK_SACKED 0x008u /* segments were newly SACKed */
#define PV_ACK_ORIG 0x010u /* data that was never sent again, of before the timeout, was delivered (RFC 5682) */
#define PV_ACK_RETRANS 0x020u /* acknowledges what had been sent again */
#define PV_ACK_DSACK 0x040u
#define PV_ACK_DSACK_TLP 0x080u /* of the tail loss probe */
#define PV_ACK_RENEG 0x100u /* the first segment left is one that was SACKed */
#define PV_ACK_ECE 0x200u
#define PV_ACK_LOST_RETRANS 0x400u /* a retransmission was lost, too */
#define PV_ACK_TIMER 0x800u /* the timers start anew */

struct pv_tcp_acking {
	const struct pv_tcp_in *in;
	int64_t now_ns;
	uint32_t flags; /* PV_ACK_* */
	uint32_t prior_delivered, prior_lost;
	pv_seq prior_una, prior_fack;
	pv_seq reord; /* lowest hole that filled without a retransmission; prior_fack: none */
	int64_t first_ack_ns, last_ack_ns; /* when the first and last of what is acknowledged had been sent; -1: no sample */
	int64_t first_sack_ns, last_sack_ns;
	int64_t first_rtx_ns; /* when the first of what is acknowledged had been sent again; with PV_ACK_RETRANS */
	uint32_t freed; /* segments */
	uint32_t dsacked; /* segments that D-SACK told of */
	uint32_t dup; /* duplicate acknowledgement: 1 */
};

pv_inline uint32_t pv_tcp_pipe(const struct pv_tcp *c)
{
	return c->in_flight - c->sacked - c->lost + c->retrans;
}

pv_inline uint32_t pv_tcp_ms(int64_t ns)
{
	return (uint32_t)((uint64_t)ns / (uint64_t)PV_NS_PER_MS);
}

/* A timeout, counted in `retransmits` (tcp_update_rto_stats of Linux). */
pv_inline void pv_tcp_rto_count(struct pv_tcp *c, int64_t now_ns)
{
	c->total_rto++;
	if (c->retransmits > 1)
		return;
	c->rto_recoveries++;
	c->rto_since_ms = PV_MAX(pv_tcp_ms(now_ns), 1u);
}

pv_inline void pv_tcp_rto_over(struct pv_tcp *c, int64_t now_ns)
{
	if (pv_likely(!c->rto_since_ms))
		return;
	c->rto_time_ms += pv_tcp_ms(now_ns) - c->rto_since_ms;
	c->rto_since_ms = 0;
}

pv_inline bool pv_tcp_has_sack(const struct pv_tcp *c)
{
	return c->flags & PV_TF_SACK;
}

pv_inline bool pv_tcp_reducing(const struct pv_tcp *c)
{
	return c->ca == PV_CA_CWR || c->ca == PV_CA_RECOVERY;
}

/* Something was delivered, and `fack` is where it is now. */
pv_inline void pv_tcp_rate_delivered(struct pv_tcp *c, int64_t now_ns)
{
	c->delivered_tick = (uint32_t)((uint64_t)now_ns >> PV_TCP_RATE_SHIFT);
	if (c->rate_watch && pv_seq_ge(c->fack, c->rate_seq))
		pv_tcp_rate_sample(c);
}

/* May cwnd grow: was it all in use? In slow start half of it is enough, since it doubles. */
pv_inline bool pv_tcp_cwnd_limited(const struct pv_tcp *c)
{
	return c->flags & PV_TF_CWND_LIMITED || (c->cwnd < c->ssthresh && c->cwnd < 2 * c->max_out);
}

/* The peer's echo is of before `ns`: it answers what was sent then (RFC 7323 3.2, RFC 3522). */
pv_inline bool pv_tcp_echo_before(const struct pv_tcp *c, const struct pv_tcp_in *in, int64_t ns)
{
	return c->flags & PV_TF_TS && in->opt.has_ts && in->opt.ts_ecr && (int32_t)(in->opt.ts_ecr - pv_tcp_ts_now(c, ns)) < 0;
}

pv_inline uint32_t pv_tcp_initial_cwnd(const struct pv_tcp *c)
{
	return c->cc->unlimited ? PV_TCP_CWND_MAX : PV_TCP_INIT_CWND;
}

pv_inline void pv_tcp_set_busy(struct pv_tcp *c, enum pv_tcp_busy what, int64_t now_ns)
{
	if (c->busy == what)
		return;
	c->busy_ns[c->busy] += now_ns;
	c->busy_ns[what] -= now_ns;
	c->busy = (uint8_t)what;
}

pv_inline struct pv_tcp_seg *pv_tcp_seg_at(struct pv_list *link)
{
	return pv_list_entry(link, struct pv_tcp_seg, link);
}

/* The first segment in flight; there is one. */
pv_inline struct pv_tcp_seg *pv_tcp_first(struct pv_tcp *c)
{
	return pv_tcp_seg_at(c->sndq.next);
}

/* Sent later, or as late and further on (RFC 8985 6.2, RACK_sent_after). */
pv_inline bool pv_tcp_sent_after(int64_t t1, pv_seq end1, int64_t t2, pv_seq end2)
{
	return t1 > t2 || (t1 == t2 && pv_seq_gt(end1, end2));
}

/* ack.c */
/* The retransmission timer and the tail loss probe, after progress. */
void pv_tcp_timers_restart(struct pv_tcp *c, int64_t now_ns);

/* sack.c */
void pv_tcp_sack_blocks(struct pv_tcp *c, struct pv_tcp_acking *a);
/* Reordering was seen: data from `low` on came after what ends at fack (RFC 8985 6.2 step 3; Linux's metric). */
void pv_tcp_reordered(struct pv_tcp *c, pv_seq low, pv_seq fack);
/* Duplicate acknowledgements in place of SACKs (RFC 6582; the counting is Linux's). */
void pv_tcp_reno_add(struct pv_tcp *c, const struct pv_tcp_acking *a);
void pv_tcp_reno_remove(struct pv_tcp *c, const struct pv_tcp_acking *a);

/* rack.c */
void pv_tcp_rack_advance(struct pv_tcp *c, const struct pv_tcp_seg *s, pv_seq end, int64_t now_ns);
void pv_tcp_rack_update(struct pv_tcp *c, const struct pv_tcp_acking *a);
/* Marks what is lost (RFC 8985 6.2 step 5); arms the timer for what may yet be. */
void pv_tcp_rack_detect(struct pv_tcp *c, int64_t now_ns);
/* How long until `s` is lost if nothing comes; <= 0: it is. */
int64_t pv_tcp_rack_left(const struct pv_tcp *c, const struct pv_tcp_seg *s, int64_t reo_wnd_ns, int64_t now_ns);
void pv_tcp_mark_lost(struct pv_tcp *c, struct pv_tcp_seg *s);
void pv_tcp_unmark_lost(struct pv_tcp *c);
void pv_tcp_tlp_ack(struct pv_tcp *c, struct pv_tcp_acking *a);
bool pv_tcp_tlp_arm(struct pv_tcp *c, int64_t now_ns); /* false: no probe is wanted now */
void pv_tcp_rack_disarm(struct pv_tcp *c);

/* recovery.c */
void pv_tcp_recovery_ack(struct pv_tcp *c, struct pv_tcp_acking *a); /* RFC 5681 3.2 and all that came after */
void pv_tcp_enter_recovery(struct pv_tcp *c, bool ece);
void pv_tcp_reduction_begin(struct pv_tcp *c);
void pv_tcp_reduction_end(struct pv_tcp *c);
void pv_tcp_keep_open(struct pv_tcp *c); /* OPEN or DISORDER */
void pv_tcp_set_ca(struct pv_tcp *c, enum pv_tcp_ca ca);
/* PRR: how many may go now (RFC 6937, and SSRB's bound of draft-ietf-tcpm-prr-rfc6937bis). */
void pv_tcp_prr(struct pv_tcp *c, uint32_t delivered, uint32_t lost, uint32_t flags);
uint32_t pv_tcp_current_ssthresh(const struct pv_tcp *c);

#endif
