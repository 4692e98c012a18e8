/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What must hold of a TCP table at every instant, whatever the wire does: counts against a walk of the queues, the order of sequence
 * numbers, what is charged against what is held, timers against the wheel, states against the table's counts.
 */
#ifndef TCP_CHECK_H
#define TCP_CHECK_H

#include "tcp/conn.h"
#include "world.h"

static const char *const tcp_state_names[] = { "?",         "ESTABLISHED", "SYN_SENT",   "SYN_RCVD", "FIN_WAIT_1", "FIN_WAIT_2",
					       "TIME_WAIT", "CLOSED",      "CLOSE_WAIT", "LAST_ACK", "LISTEN",     "CLOSING" };

static inline bool tcp_is_sync(const struct pv_tcp *c)
{
	return c->state != PV_TCP_CLOSED && c->state != PV_TCP_LISTEN && c->state != PV_TCP_SYN_SENT && c->state != PV_TCP_SYN_RCVD;
}

/* For whoever looks at a failed test. */
static inline void tcp_say(const struct pv_tcp *c)
{
	fprintf(stderr,
		"  %s ports %u>%u flags %x ca %u una %u nxt %u max %u write %u cwnd %u ssthresh %u in_flight %u sacked %u lost %u "
		"retrans %u snd_wnd %u rto %" PRId64
		" backoff %u mss %u rcv_nxt %u adv %u rcvq %u ooo %u rcv_mem %u snd_mem %u err %d\n",
		tcp_state_names[c->state], c->lport, c->rport, c->flags, c->ca, c->snd_una.v, c->snd_nxt.v - c->snd_una.v,
		c->snd_max.v - c->snd_una.v, c->write_seq.v - c->snd_una.v, c->cwnd, c->ssthresh, c->in_flight, c->sacked, c->lost,
		c->retrans, c->snd_wnd, c->rto_ns, c->backoff, c->mss, c->rcv_nxt.v, c->rcv_adv.v - c->rcv_nxt.v, c->rcvq_bytes,
		c->ooo_bytes, c->rcv_mem, c->snd_mem, c->tell.err);
}

static const struct pv_tcp *tcp_checked;

/* A failed invariant shows the connection first. */
#define TCP_CHECK(cond)                                                                                                            \
	do {                                                                                                                       \
		if (!(cond) && tcp_checked)                                                                                        \
			tcp_say(tcp_checked);                                                                                      \
		CHECK(cond);                                                                                                       \
	} while (0)
#define TCP_CHECK_EQ(a, b)                                                                                                         \
	do {                                                                                                                       \
		if ((a) != (b) && tcp_checked)                                                                                     \
			tcp_say(tcp_checked);                                                                                      \
		CHECK_EQ(a, b);                                                                                                    \
	} while (0)

struct tcp_held {
	uint32_t pkts; /* in the connections' queues */
};

/* The scoreboard's counts are those of a walk; segments follow each other without a gap, the unsent ones last. */
static inline void tcp_check_sndq(const struct pv_tcp *c, struct tcp_held *held)
{
	uint32_t sent = 0, sacked = 0, lost = 0, retrans = 0, bytes = 0, timed = 0, mem = 0;
	const struct pv_tcp_seg *unsent = NULL, *last = NULL;
	int64_t tx_ns = INT64_MIN;
	/* The SYN is in front of it. */
	pv_seq at = tcp_is_sync(c) ? c->snd_una : pv_seq_add(c->snd_una, 1);

	pv_list_for_each(it, &c->sndq) {
		const struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, link);

		if (!last)
			TCP_CHECK(pv_seq_le(s->seq, at) && pv_seq_lt(at, pv_seg_end(s)));
		else
			TCP_CHECK_EQ(s->seq.v, at.v);
		at = pv_seg_end(s);
		TCP_CHECK(pv_seg_space(s) > 0);
		TCP_CHECK(s->pkt ? s->len > 0 : s->len == 0);
		bytes += s->len;
		mem += pv_seg_mem(s);
		held->pkts += s->pkt != NULL;
		if (s->board & PV_SEG_SENT) {
			TCP_CHECK(!unsent);
			TCP_CHECK(pv_seq_le(at, c->snd_max));
			sent++;
		} else {
			TCP_CHECK(!(s->board & (PV_SEG_SACKED | PV_SEG_LOST | PV_SEG_RETRANS)));
			unsent = unsent ? unsent : s;
		}
		sacked += (s->board & PV_SEG_SACKED) != 0;
		lost += (s->board & PV_SEG_LOST) != 0;
		retrans += (s->board & PV_SEG_RETRANS) != 0;
		TCP_CHECK(!(s->board & PV_SEG_SACKED) || !(s->board & (PV_SEG_LOST | PV_SEG_RETRANS)));
		last = s;
	}
	TCP_CHECK(c->unsent == unsent);
	TCP_CHECK_EQ(c->in_flight, sent);
	/* Without SACK it is what duplicate acknowledgements tell. */
	if (c->flags & PV_TF_SACK)
		TCP_CHECK_EQ(c->sacked, sacked);
	TCP_CHECK(c->sacked + c->lost <= c->in_flight);
	TCP_CHECK_EQ(c->lost, lost);
	TCP_CHECK_EQ(c->retrans, retrans);
	TCP_CHECK_EQ(c->sndq_bytes, bytes);
	TCP_CHECK_EQ(c->snd_mem, mem);
	pv_list_for_each(it, &c->by_time) {
		const struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, by_time);

		TCP_CHECK(s->board & PV_SEG_SENT);
		TCP_CHECK(s->tx_ns >= tx_ns);
		tx_ns = s->tx_ns;
		timed++;
	}
	TCP_CHECK(timed <= sent);
}

static inline void tcp_check_send(const struct pv_tcp *c)
{
	TCP_CHECK(pv_seq_le(c->snd_una, c->snd_nxt));
	TCP_CHECK(pv_seq_le(c->snd_nxt, c->snd_max));
	TCP_CHECK(!tcp_is_sync(c) || c->cwnd >= 1);
	TCP_CHECK(!tcp_is_sync(c) || c->mss > 0);
	TCP_CHECK(c->rto_ns >= 0);
	if (c->ca == PV_CA_OPEN)
		TCP_CHECK_EQ(c->lost, 0);
}

static inline void tcp_check_receive(const struct pv_tcp *c, struct tcp_held *held)
{
	uint32_t bytes = 0, mem = 0, ooo_mem = 0, n = 0, ranges = 0;
	bool fin = c->flags & PV_TF_FIN_RCVD;
	pv_seq at = c->rcv_nxt;

	for (const struct pv_pkt *p = c->rcvq.head; p; p = p->next, n++) {
		bytes += p->len;
		mem += p->size;
	}
	TCP_CHECK_EQ(c->rcvq.count, n);
	TCP_CHECK_EQ(c->rcvq_bytes + c->rcvq_off, bytes);
	TCP_CHECK(!c->rcvq_off || c->rcvq_off < c->rcvq.head->len);
	held->pkts += n;
	bytes = n = 0;
	/* Ranges are apart from each other and from what is in order; within one, nothing is missing or there twice. */
	for (const struct pv_pkt *r = c->ooo.head; r; r = pv_ooo_next(r), ranges++) {
		TCP_CHECK(pv_seq_gt(pv_seq_of((uint32_t)PV_TCP_PKT_SEQ(r)), at));
		at = pv_seq_of((uint32_t)PV_TCP_PKT_SEQ(r));
		for (const struct pv_pkt *p = r; p; p = p->next, n++) {
			TCP_CHECK_EQ((uint32_t)PV_TCP_PKT_SEQ(p), at.v);
			TCP_CHECK(p->len > 0);
			at = pv_seq_add(at, p->len);
			bytes += p->len;
			ooo_mem += p->size;
			TCP_CHECK(p->next || p == pv_ooo_last(r));
		}
		TCP_CHECK(pv_ooo_next(r) ? pv_ooo_prev(pv_ooo_next(r)) == r : c->ooo.tail == r);
	}
	mem += ooo_mem;
	TCP_CHECK_EQ(c->ooo.ranges, ranges);
	TCP_CHECK_EQ(c->ooo.mem, ooo_mem);
	TCP_CHECK_EQ(c->ooo.count, n);
	TCP_CHECK_EQ(c->ooo_bytes, bytes);
	TCP_CHECK_EQ(c->rcv_mem, mem);
	held->pkts += n;
	if (tcp_is_sync(c) && !(c->flags & (PV_TF_SHUT_RD | PV_TF_ORPHAN)))
		TCP_CHECK_EQ(pv_seq_dist(c->copied_seq, c->rcv_nxt), c->rcvq_bytes + (fin ? 1u : 0u));
	if (tcp_is_sync(c))
		TCP_CHECK(pv_seq_diff(c->rcv_adv, c->rcv_nxt) >= (fin ? -1 : 0));
}

/* The connection's wheel timer comes no later than the first of its logical ones. */
static inline void tcp_check_timers(const struct pv_tcp *c)
{
	int64_t first = PV_NEVER;

	for (uint32_t i = 0; i < PV_TT_COUNT; i++)
		first = PV_MIN(first, c->deadline_ns[i]);
	TCP_CHECK(first == PV_NEVER || (pv_wtimer_armed(&c->timer) && c->timer.deadline_ns <= first));
	/* The wheel fires in the tick that follows. */
	TCP_CHECK(!pv_wtimer_armed(&c->timer) || pv_tcp_deadline(c->t) < c->timer.deadline_ns + (1 << PV_WHEEL_TICK_SHIFT));
	/* Something is out, or could go and may not: something must wake us. */
	if (tcp_is_sync(c) && !pv_list_empty(&c->sndq) && pv_list_empty(&c->due) && pv_list_empty(&c->blocked))
		TCP_CHECK(first != PV_NEVER);
}

static inline void tcp_check_conn(const struct pv_tcp *c, struct tcp_held *held)
{
	tcp_checked = c;
	TCP_CHECK(c->state >= PV_TCP_ESTABLISHED && c->state <= PV_TCP_CLOSING);
	/* TIME_WAIT is a record's. */
	TCP_CHECK(c->state != PV_TCP_TIME_WAIT);
	TCP_CHECK(!(c->flags & PV_TF_ORPHAN) || c->state != PV_TCP_LISTEN);
	TCP_CHECK((c->listen != NULL) == (c->state == PV_TCP_LISTEN));
	if (c->state != PV_TCP_LISTEN) {
		tcp_check_sndq(c, held);
		tcp_check_send(c);
		tcp_check_receive(c, held);
		tcp_check_timers(c);
	}
	tcp_checked = NULL;
}

/* Every timer lies in a slot whose bit is set, none is lost, none is overdue by more than a tick. */
static inline void tcp_check_wheel(const struct pv_wheel *w)
{
	uint32_t n = 0;

	for (uint32_t l = 0; l < PV_WHEEL_LEVELS; l++) {
		for (uint32_t s = 0; s < PV_WHEEL_SLOTS; s++) {
			bool used = w->used[l][s / 64] >> s % 64 & 1;

			CHECK(used == !pv_list_empty(&w->slot[l][s]));
			pv_list_for_each(it, &w->slot[l][s]) {
				CHECK(pv_wtimer_armed(pv_list_entry(it, struct pv_wtimer, link)));
				n++;
			}
		}
	}
	pv_list_for_each(it, &w->due)
		n++;
	CHECK_EQ(w->count, n);
}

static inline void tcp_check_table(const struct pv_tcp_table *t, struct tcp_held *held)
{
	uint32_t by_state[16] = { 0 }, orphans = 0, fin_waits = 0;
	int64_t promised[PV_IFACE_MAX + 1] = { 0 };

	pv_list_for_each(it, &t->all) {
		const struct pv_tcp *c = pv_list_entry(it, struct pv_tcp, all);

		tcp_check_conn(c, held);
		promised[c->promised_iface] += c->rcv_promised;
		by_state[c->state]++;
		orphans += (c->flags & PV_TF_ORPHAN) != 0;
	}
	pv_list_for_each(it, &t->fin_waits_age) {
		const struct pv_tcp_tw *w = pv_list_entry(it, struct pv_tcp_tw, age);

		CHECK(w->fin_wait_2);
		by_state[PV_TCP_FIN_WAIT_2]++;
		fin_waits++;
	}
	CHECK_EQ(t->fin_waits, fin_waits);
	CHECK(!memcmp(t->rcv_promised, promised, sizeof(promised)));
	pv_list_for_each(it, &t->time_waits_age)
		CHECK(!pv_list_entry(it, struct pv_tcp_tw, age)->fin_wait_2);
	for (uint32_t s = PV_TCP_ESTABLISHED; s <= PV_TCP_CLOSING; s++)
		if (s != PV_TCP_TIME_WAIT && s != PV_TCP_SYN_RCVD)
			CHECK_EQ(pv_tcp_count(t, (enum pv_tcp_state)s), by_state[s]);
	CHECK(pv_tcp_count(t, PV_TCP_SYN_RCVD) >= by_state[PV_TCP_SYN_RCVD]);
	CHECK_EQ(t->orphans, orphans);
}

static uint32_t tcp_check_turn;

/* After every turn of a host. The wheel is 1,280 slots: not every time. */
static inline void tcp_check_host(const struct host *h, int64_t now_ns)
{
	struct tcp_held held = { 0 };
	struct pv_pool_stats st;

	(void)now_ns;
	tcp_check_table(h->tcp, &held);
	if (++tcp_check_turn % 256 == 0) {
		tcp_check_wheel(&h->tcp->wheel);
		tcp_check_wheel(&h->tcp->syn_wheel);
	}
	/* What is not in the pool is where it should be: nothing is held twice, nothing got lost. The ring has at most its depth. */
	pv_pool_get_stats(h->pool, &st);
	CHECK(st.total - st.free >= held.pkts);
	CHECK(st.total - st.free <= held.pkts + h->ring->caps.rx_depth + h->ring->tx_pending + 64);
}

#endif
