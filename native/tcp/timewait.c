/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TIME_WAIT as records (RFC 9293 3.6.1): what is needed to acknowledge a FIN that comes again, to keep old segments from a new
 * connection, and to let a new connection begin early where that is safe (RFC 6191). All last equally long, so that the list of them is
 * in order of their ends. Connections that were closed and wait for the peer's FIN (FIN_WAIT_2) are such records as well, as in Linux, on
 * a list of their own.
 *
 * Deliberately a reset does not end a TIME_WAIT (RFC 1337): Linux has that as an option.
 */
#include "tcp/conn.h"

struct pv_tcp_tw *pv_tcp_tw_find(const struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	pv_htab_for_each(it, &t->time_waits, in->hash)
	{
		struct pv_tcp_tw *w = pv_htab_entry(it, struct pv_tcp_tw, flow);

		if (pv_tcp_same_flow(&w->laddr, &w->raddr, (uint32_t)w->lport | (uint32_t)w->rport << 16, in) &&
		    (!w->bound_iface || !in->pkt || w->bound_iface == in->pkt->iface))
			return w;
	}
	return NULL;
}

/* `old` 0: the record begins. Its socket goes its own way. */
static void tell(const struct pv_tcp_table *t, const struct pv_tcp_tw *w, uint32_t old, uint32_t new)
{
	PV_PROBE5(tcp_state, w, old, new, w->lport, w->rport);
	pv_trace_note(pv_net_trace(t->net), .kind = PV_TRACE_tcp_state, .id = (uintptr_t)w, .proto = PV_PROTO_TCP,
		      .lport = w->lport, .rport = w->rport, .peer = w->raddr, .iface = w->iface, .a = old, .b = new);
}

pv_inline uint32_t state_of(const struct pv_tcp_tw *w)
{
	return w->fin_wait_2 ? PV_TCP_FIN_WAIT_2 : PV_TCP_TIME_WAIT;
}

void pv_tcp_tw_drop(struct pv_tcp_table *t, struct pv_tcp_tw *w)
{
	tell(t, w, state_of(w), PV_TCP_CLOSED);
	pv_htab_del(&t->time_waits, &w->flow);
	t->fin_waits -= w->fin_wait_2;
	pv_list_del(&w->age);
	pv_list_del(&w->on_port);
	if (pv_unlikely(w->rules != NULL))
		pv_tcp_steer_left(t, &w->rules);
	pv_tcp_port_check(t, w->port);
	w->flow.next = (struct pv_hnode *)t->free_tw;
	t->free_tw = w;
}

#define CHUNK 32u

static struct pv_tcp_tw *tw_get(struct pv_tcp_table *t)
{
	struct pv_tcp_tw *w = t->free_tw;

	if (!w) {
		w = pv_tcp_chunk_get(t, CHUNK * sizeof(*w));
		for (uint32_t i = 0; w && i < CHUNK; i++) {
			w[i].flow.next = (struct pv_hnode *)t->free_tw;
			t->free_tw = &w[i];
		}
		w = t->free_tw;
	}
	if (w)
		t->free_tw = (struct pv_tcp_tw *)w->flow.next;
	return w;
}

static void rearm(struct pv_tcp_table *t, struct pv_tcp_tw *w, int64_t now_ns)
{
	w->deadline_ns = now_ns + (w->fin_wait_2 ? t->cfg.fin_timeout_ns : t->cfg.time_wait_ns);
	pv_list_del(&w->age);
	pv_list_add(w->fin_wait_2 ? &t->fin_waits_age : &t->time_waits_age, &w->age);
	pv_tcp_wake_by(t, w->deadline_ns);
}

/* NULL: no record, for want of memory or because there are to be none. Else it is in the connection's place. */
static struct pv_tcp_tw *record(struct pv_tcp *c, bool fin_wait_2)
{
	struct pv_tcp_table *t = c->t;
	struct pv_tcp_tw *w = t->time_waits.count < PV_TCP_TW_MAX && c->port && !c->port->brief ? tw_get(t) : NULL;
	uint32_t wnd = (uint32_t)PV_MAX(pv_seq_diff(c->rcv_adv, c->rcv_nxt), 0) >> c->rcv_wscale;

	if (!w)
		return NULL;
	*w = (struct pv_tcp_tw){ .port = c->port,
				 .rules = c->rules,
				 .laddr = c->laddr,
				 .raddr = c->raddr,
				 .lport = c->lport,
				 .rport = c->rport,
				 .rcv_nxt = c->rcv_nxt,
				 .snd_nxt = c->snd_nxt,
				 .ts_recent = c->ts_recent,
				 .ts_offset = c->ts_offset,
				 .ts_recent_ns = c->ts_recent_ns,
				 .bound_iface = c->opts.bound_iface,
				 .wnd = (uint16_t)PV_MIN(wnd, UINT16_MAX),
				 .tos = c->txo.tos,
				 .iface = (uint8_t)c->path.iface,
				 .rcv_wscale = c->rcv_wscale,
				 .ts = c->flags & PV_TF_TS,
				 .reuse_addr = c->opts.reuse_addr,
				 .reuse_port = c->opts.reuse_port,
				 .v4 = pv_addr_is4(&c->laddr),
				 .fin_wait_2 = fin_wait_2 };
	pv_list_init(&w->age);
	pv_list_add(&c->port->tws, &w->on_port);
	c->rules = NULL;
	/* The peer may begin anew by the same port: that is for whoever waits for connections. */
	if (pv_unlikely(c->port->gated))
		pv_tcp_steer_left(t, &w->rules);
	t->fin_waits += fin_wait_2;
	tell(t, w, 0, state_of(w));
	rearm(t, w, t->head.now_ns);
	pv_tcp_unhash(c);
	pv_htab_add(&t->time_waits, &w->flow, pv_tcp_flow_hash(t, &w->laddr, &w->raddr, w->lport, w->rport));
	return w;
}

void pv_tcp_time_wait(struct pv_tcp *c)
{
	c->t->c.time_waits++;
	(void)record(c, false);
	pv_tcp_done(c);
}

/* Other times than the usual (TCP_LINGER2) would not keep the order; a FIN that came early is remembered by the connection only. */
bool pv_tcp_fin_wait(struct pv_tcp *c)
{
	if (pv_tcp_fin_timeout(c) != c->t->cfg.fin_timeout_ns || c->flags & PV_TF_FIN_SEEN || !record(c, true))
		return false;
	pv_tcp_done(c);
	return true;
}

static void tw_answer(struct pv_tcp_table *t, const struct pv_tcp_tw *w, const struct pv_tcp_in *in)
{
	struct pv_tcp_bare b = { .src = w->laddr,
				 .dst = w->raddr,
				 .sport = w->lport,
				 .dport = w->rport,
				 .seq = w->snd_nxt,
				 .ack = w->rcv_nxt,
				 .wnd = w->wnd,
				 .flags = PV_TH_ACK,
				 .tos = w->tos,
				 .iface = in->pkt->iface };

	if (w->ts) {
		b.opt.has_ts = true;
		b.opt.ts_val = (uint32_t)((uint64_t)in->now_ns / (uint64_t)PV_NS_PER_MS) + w->ts_offset;
		b.opt.ts_ecr = w->ts_recent;
	}
	t->c.tx_acks++;
	(void)pv_tcp_send_bare(t, &b, in->now_ns);
}

static void tw_ack(struct pv_tcp_table *t, struct pv_tcp_tw *w, const struct pv_tcp_in *in)
{
	if (pv_tcp_oow_allowed(&w->oow_ns, in))
		tw_answer(t, w, in);
}

/* ---- FIN_WAIT_2 ------------------------------------------------------------------------------------------------------------ */

/* The FIN, and nothing before it that nobody would read. */
static void fin_arrived(struct pv_tcp_table *t, struct pv_tcp_tw *w, const struct pv_tcp_in *in)
{
	w->rcv_nxt = pv_seq_add(w->rcv_nxt, 1);
	if (w->ts && in->opt.has_ts) {
		w->ts_recent = in->opt.ts_val;
		w->ts_recent_ns = in->now_ns;
	}
	tell(t, w, PV_TCP_FIN_WAIT_2, PV_TCP_TIME_WAIT);
	w->fin_wait_2 = false;
	t->fin_waits--;
	t->c.time_waits++;
	rearm(t, w, in->now_ns);
	tw_answer(t, w, in);
	if (w->port->brief)
		pv_tcp_tw_drop(t, w);
}

/* RFC 9293 3.10.7.4 in FIN_WAIT_2 of what nobody reads; the checks of RFC 5961. */
static void fin_wait_2(struct pv_tcp_table *t, struct pv_tcp_tw *w, const struct pv_tcp_in *in, bool paws)
{
	pv_seq end = pv_seq_add(in->seq, pv_tcp_in_space(in));
	bool fits = pv_seq_ge(end, w->rcv_nxt) && pv_seq_le(in->seq, pv_seq_add(w->rcv_nxt, (uint32_t)w->wnd << w->rcv_wscale));

	if (in->flags & PV_TH_RST) {
		if (pv_seq_eq(in->seq, w->rcv_nxt)) {
			t->c.rx_resets++;
			pv_tcp_tw_drop(t, w);
		} else if (fits) {
			tw_ack(t, w, in);
		}
		return;
	}
	if (paws || !fits || in->flags & PV_TH_SYN) {
		t->c.rx_out_of_window += !fits;
		tw_ack(t, w, in);
		return;
	}
	if (!(in->flags & PV_TH_ACK) || !pv_seq_gt(end, w->rcv_nxt)) {
		/* Text that came twice: the peer has not heard of it. */
		if (in->len)
			tw_ack(t, w, in);
		return;
	}
	if (in->flags & PV_TH_FIN && pv_seq_eq(end, pv_seq_add(w->rcv_nxt, 1))) {
		fin_arrived(t, w, in);
		return;
	}
	/* Data is lost, and the peer hears of it (RFC 1122 4.2.2.13). */
	pv_tcp_reset_reply(t, in);
	pv_tcp_tw_drop(t, w);
}

/* ---- TIME_WAIT ------------------------------------------------------------------------------------------------------------- */

/* RFC 6191 2: a SYN that cannot be an old duplicate, its timestamp or its sequence number being beyond all that there was. */
static bool may_begin_again(const struct pv_tcp_tw *w, const struct pv_tcp_in *in, bool paws)
{
	if ((in->flags & (PV_TH_SYN | PV_TH_RST | PV_TH_ACK)) != PV_TH_SYN || paws)
		return false;
	return pv_seq_gt(in->seq, w->rcv_nxt) || (w->ts && in->opt.has_ts && (int32_t)(w->ts_recent - in->opt.ts_val) < 0);
}

/* Returns true when there is a listener to take the SYN: the record is gone then. */
static bool begin_again(struct pv_tcp_table *t, struct pv_tcp_tw *w, struct pv_tcp_in *in)
{
	if (!pv_tcp_find_listener(t, in))
		return false;
	/* Beyond whatever the old connection sent (RFC 1122 4.2.2.13); never 0, which means none. */
	in->isn = w->snd_nxt.v + 65535 + 2;
	in->isn += !in->isn;
	t->c.time_wait_reused++;
	pv_tcp_tw_drop(t, w);
	return true;
}

/* RFC 9293 3.10.7.4 in TIME_WAIT, with PAWS. */
bool pv_tcp_time_wait_input(struct pv_tcp_table *t, struct pv_tcp_in *in)
{
	struct pv_tcp_tw *w = pv_tcp_tw_find(t, in);
	bool paws;

	if (!w)
		return false;
	paws = w->ts && in->opt.has_ts && (int32_t)(w->ts_recent - in->opt.ts_val) > 0 &&
	       in->now_ns - w->ts_recent_ns < PV_TCP_PAWS_IDLE_NS;
	if (w->fin_wait_2) {
		t->c.rx_paws += paws;
		fin_wait_2(t, w, in, paws);
		pv_pkt_put(in->pkt);
		return true;
	}
	if (may_begin_again(w, in, paws) && begin_again(t, w, in))
		return false;
	t->c.rx_paws += paws;
	if (!(in->flags & PV_TH_RST)) {
		bool next = pv_seq_eq(in->seq, w->rcv_nxt) && !pv_tcp_in_space(in) && !paws;

		/* A SYN alone may be as old as it looks: it does not prolong anything. */
		if (in->flags & PV_TH_ACK)
			rearm(t, w, in->now_ns);
		if (next && w->ts && in->opt.has_ts) {
			w->ts_recent = in->opt.ts_val;
			w->ts_recent_ns = in->now_ns;
		}
		if (!next)
			tw_ack(t, w, in);
	}
	pv_pkt_put(in->pkt);
	return true;
}

static uint32_t end_of(struct pv_tcp_table *t, struct pv_list *records, int64_t now_ns, uint32_t budget)
{
	uint32_t n = 0;

	while (n < budget && !pv_list_empty(records)) {
		struct pv_tcp_tw *w = pv_list_entry(records->next, struct pv_tcp_tw, age);

		if (w->deadline_ns > now_ns)
			break;
		pv_tcp_tw_drop(t, w);
		n++;
	}
	return n;
}

uint32_t pv_tcp_tw_timeouts(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget)
{
	uint32_t n = end_of(t, &t->time_waits_age, now_ns, budget);

	return n + end_of(t, &t->fin_waits_age, now_ns, budget - n);
}
