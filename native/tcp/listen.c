/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listeners. A SYN becomes a record of two cache lines; the third segment of the handshake turns it into a connection on the accept
 * queue. Queues, their limits, what happens when they overflow, and TCP_DEFER_ACCEPT are Linux's (tcp_conn_request, tcp_check_req,
 * reqsk_timer_handler).
 */
#include "tcp/conn.h"

#define COOKIE_VALID_NS (120 * PV_NS_PER_S) /* after the last one sent an ACK may be an answer to it */
#define CHUNK 32u

/* ---- records ----------------------------------------------------------------------------------------------------------------- */

static struct pv_tcp_syn *syn_get(struct pv_tcp_table *t)
{
	struct pv_tcp_syn *s = t->free_syn;

	if (!s) {
		s = pv_tcp_chunk_get(t, CHUNK * sizeof(*s));
		for (uint32_t i = 0; s && i < CHUNK; i++) {
			s[i].flow.next = (struct pv_hnode *)t->free_syn;
			t->free_syn = &s[i];
		}
		s = t->free_syn;
	}
	if (s)
		t->free_syn = (struct pv_tcp_syn *)s->flow.next;
	return s;
}

void pv_tcp_syn_drop(struct pv_tcp_table *t, struct pv_tcp_syn *s)
{
	s->l->listen->nsyn--;
	s->l->listen->nyoung -= s->timeouts == 0;
	pv_wheel_del(&t->syn_wheel, &s->timer);
	pv_list_del(&s->link);
	pv_htab_del(&t->embryos, &s->flow);
	s->flow.next = (struct pv_hnode *)t->free_syn;
	t->free_syn = s;
}

struct pv_tcp_syn *pv_tcp_syn_find(const struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	pv_htab_for_each(it, &t->embryos, in->hash)
	{
		struct pv_tcp_syn *s = pv_htab_entry(it, struct pv_tcp_syn, flow);

		if (pv_tcp_same_flow(&s->laddr, &s->raddr, (uint32_t)s->lport | (uint32_t)s->rport << 16, in) &&
		    (!in->pkt || s->iface == in->pkt->iface || !pv_addr_is_linklocal6(&s->raddr)))
			return s;
	}
	return NULL;
}

static void arm(struct pv_tcp_table *t, struct pv_tcp_syn *s, int64_t now_ns)
{
	int64_t rto = PV_MIN(PV_TCP_SYN_TIMEOUT_NS << PV_MIN(s->timeouts, 20), t->cfg.rto_max_ns);

	pv_wheel_set(&t->syn_wheel, &s->timer, now_ns + rto);
	pv_tcp_wake_by(t, now_ns + rto);
}

/* What the SYN says and what we offer; the record is in no table yet. `s` is a copy on the stack for a cookie. */
static void fill(struct pv_tcp_syn *s, struct pv_tcp *l, const struct pv_tcp_in *in)
{
	const struct pv_tcp_cfg *cfg = &l->t->cfg;

	*s = (struct pv_tcp_syn){ .l = l,
				  .laddr = in->dst,
				  .raddr = in->src,
				  .lport = in->dport,
				  .rport = in->sport,
				  .irs = in->seq,
				  .ts_recent = in->opt.ts_val,
				  .mss = in->opt.mss,
				  .wnd = (uint16_t)pv_tcp_rcv_window0(cfg, &l->opts),
				  .iface = in->pkt->iface };
	pv_wtimer_init(&s->timer);
	pv_list_init(&s->link);
	if (in->opt.sack_ok && !cfg->no_sack)
		s->flags |= PV_SYN_SACK;
	if (in->opt.has_ts && !cfg->no_timestamps)
		s->flags |= PV_SYN_TS;
	if (in->opt.has_wscale && !cfg->no_window_scaling) {
		s->flags |= PV_SYN_WS;
		s->wscales = (uint8_t)(PV_MIN(in->opt.wscale, 14u) | (uint32_t)pv_tcp_rcv_wscale(cfg, &l->opts) << 4);
	}
	/* RFC 3168 6.1.1; a SYN whose IP header already says ECT or CE is no honest one. */
	if (cfg->ecn && (in->flags & (PV_TH_ECE | PV_TH_CWR)) == (PV_TH_ECE | PV_TH_CWR) && !(in->tos & 3))
		s->flags |= PV_SYN_ECN;
}

static uint16_t advertised_mss(const struct pv_tcp *l, const struct pv_tcp_syn *s)
{
	const struct pv_iface *ifp = pv_net_iface(l->t->net, s->iface);
	uint32_t headers = pv_addr_is4(&s->laddr) ? 40u : 60u;
	uint32_t mtu = ifp ? pv_iface_config(ifp)->mtu : 576,
		 mss = PV_MIN(PV_MAX(mtu, headers + 8) - headers, UINT16_MAX - headers);

	return (uint16_t)(l->opts.maxseg ? PV_MIN(mss, l->opts.maxseg) : mss);
}

static void send_synack(struct pv_tcp_syn *s, bool cookie, int64_t now_ns)
{
	struct pv_tcp_table *t = s->l->t;
	struct pv_tcp_bare b = { .src = s->laddr,
				 .dst = s->raddr,
				 .sport = s->lport,
				 .dport = s->rport,
				 .seq = s->iss,
				 .ack = pv_seq_add(s->irs, 1),
				 .wnd = s->wnd,
				 .flags = PV_TH_SYN | PV_TH_ACK,
				 .tos = (pv_addr_is4(&s->laddr) ? s->l->opts.tos : s->l->opts.tclass) & 0xfc,
				 .iface = s->iface,
				 .prio = s->l->opts.priority };
	uint32_t clock = (uint32_t)((uint64_t)now_ns / (uint64_t)PV_NS_PER_MS);

	b.opt.mss = advertised_mss(s->l, s);
	b.opt.sack_ok = s->flags & PV_SYN_SACK;
	b.opt.has_wscale = s->flags & PV_SYN_WS;
	b.opt.wscale = s->wscales >> 4;
	b.opt.has_ts = s->flags & PV_SYN_TS;
	b.opt.ts_val = (cookie ? pv_tcp_cookie_ts(s, clock) : clock) + pv_tcp_ts_offset(t, &s->laddr, &s->raddr);
	b.opt.ts_ecr = s->ts_recent;
	if (s->flags & PV_SYN_ECN)
		b.flags |= PV_TH_ECE;
	if (!s->timeouts)
		s->sent_us = (uint32_t)((uint64_t)now_ns / (uint64_t)PV_NS_PER_US);
	(void)pv_tcp_send_bare(t, &b, now_ns);
}

/* ---- SYN --------------------------------------------------------------------------------------------------------------------- */

bool pv_tcp_accept_full(const struct pv_tcp *l)
{
	return l->listen->naccept > l->listen->backlog;
}

static void send_cookie(struct pv_tcp *l, const struct pv_tcp_in *in)
{
	struct pv_tcp_syn s;

	fill(&s, l, in);
	/* Without a timestamp there is nowhere to keep the rest. */
	if (!(s.flags & PV_SYN_TS)) {
		s.flags = 0;
		s.wscales = 0;
	}
	s.iss = pv_tcp_cookie_make(l->t, in);
	l->listen->cookie_ns = in->now_ns;
	l->t->c.cookies_sent++;
	send_synack(&s, true, in->now_ns);
}

static void syn_new(struct pv_tcp *l, const struct pv_tcp_in *in)
{
	struct pv_tcp_table *t = l->t;
	struct pv_tcp_syn *s = syn_get(t);

	if (!s) {
		pv_tcp_lost(t, l, in, &t->c.syn_overflow);
		return;
	}
	fill(s, l, in);
	s->iss = in->isn ? pv_seq_of(in->isn) : pv_tcp_isn(t, in, in->now_ns);
	pv_htab_add(&t->embryos, &s->flow, in->hash);
	pv_list_add(&l->listen->synq, &s->link);
	l->listen->nsyn++;
	l->listen->nyoung++;
	arm(t, s, in->now_ns);
	send_synack(s, false, in->now_ns);
}

static void syn_arrived(struct pv_tcp *l, const struct pv_tcp_in *in)
{
	struct pv_tcp_table *t = l->t;
	struct pv_tcp_listen *q = l->listen;

	if (pv_unlikely(l->port->gated))
		t->gate_spent = true;
	if (q->nsyn >= q->backlog && q->nsyn) {
		pv_tcp_lost(t, l, in, &t->c.syn_overflow);
		/* One that ended a TIME_WAIT has its number chosen already (Linux: it does not get a cookie either). */
		if (!t->cfg.no_syn_cookies && !in->isn && !pv_tcp_accept_full(l))
			send_cookie(l, in);
		return;
	}
	if (pv_tcp_accept_full(l)) {
		pv_tcp_lost(t, l, in, &t->c.accept_overflow);
		return;
	}
	syn_new(l, in);
}

/* ---- the third segment ----------------------------------------------------------------------------------------------------------- */

/* A connection as the record has it, in SYN_RCVD; NULL: no memory, no path. */
static struct pv_tcp *child(const struct pv_tcp_syn *s, struct pv_tcp_in *in)
{
	struct pv_tcp *l = s->l, *c;
	struct pv_tcp_table *t = l->t;
	struct pv_tcp_in syn = { .seq = s->irs,
				 .now_ns = in->now_ns,
				 .opt = { .mss = s->mss,
					  .has_wscale = s->flags & PV_SYN_WS,
					  .wscale = s->wscales & 0xf,
					  .has_ts = s->flags & PV_SYN_TS,
					  .ts_val = s->ts_recent,
					  .sack_ok = s->flags & PV_SYN_SACK } };
	/* its first SYN-ACK */
	int64_t since = (int64_t)((uint32_t)((uint64_t)in->now_ns / 1000) - s->sent_us) * 1000;
	int rc;

	c = pv_tcp_new(t, (enum pv_family)l->family);
	if (!c)
		return NULL;
	c->opts = l->opts;
	c->incoming_cpu = l->incoming_cpu;
	pv_tcp_set_cc(c, l->cc);
	c->sock = (l->sock & (PV_SK_BIND_ADDR | PV_SK_BIND_PORT)) | PV_SK_CONNECTED;
	c->flags = PV_TF_EMBRYO;
	c->parent = l;
	c->laddr = s->laddr;
	c->raddr = s->raddr;
	c->lport = s->lport;
	c->rport = s->rport;
	c->accept = pv_addr_is4(&s->laddr) ? PV_ACCEPT4 : PV_ACCEPT6;
	if (!c->opts.bound_iface && pv_addr_is_linklocal6(&s->raddr) && !pv_addr_is4(&s->raddr))
		c->opts.bound_iface = s->iface;
	c->segs_in = 1; /* the SYN */
	pv_tcp_set_state(c, PV_TCP_SYN_RCVD);
	pv_tcp_set_iss(c, s->iss);
	rc = pv_tcp_setup(c, in->now_ns);
	if (!rc) {
		pv_tcp_negotiate(c, &syn);
		c->pingpong = l->pingpong; /* TCP_QUICKACK */
		/* What the SYN-ACK promised. */
		c->rcv_adv = pv_seq_add(c->rcv_nxt, s->wnd);
		if (s->flags & PV_SYN_WS)
			c->rcv_wscale = s->wscales >> 4;
		if (s->flags & PV_SYN_ECN)
			c->flags |= PV_TF_ECN;
		c->retransmits = s->timeouts;
		if (s->flags & PV_SYN_COOKIE) {
			c->opened_ns = 0; /* nobody knows */
		} else if (!s->timeouts) {
			c->opened_ns = in->now_ns - since;
		} else {
			c->total_rto = s->timeouts;
			c->rto_recoveries = 1;
			c->rto_time_ms = (uint32_t)(since / PV_NS_PER_MS);
		}
		rc = pv_tcp_hash(c);
	}
	if (rc) {
		pv_tcp_free(c);
		return NULL;
	}
	pv_tcp_port_join(c, l->port);
	if (pv_unlikely(l->port->gated))
		pv_tcp_steer_own(c);
	return c;
}

/* On the accept queue, and then as any segment in SYN_RCVD. Takes the packet. */
static void promote(struct pv_tcp *l, struct pv_tcp *c, struct pv_tcp_in *in)
{
	l->t->c.opened_passive++;
	l->listen->naccept++;
	pv_list_add(&l->listen->acceptq, &c->acceptq);
	pv_tcp_tell(l, PV_EV_IN);
	pv_tcp_input(c, in);
}

/* TCP_DEFER_ACCEPT in SYN-ACK time-outs: how many until that many seconds have passed (secs_to_retrans). */
static uint32_t defer_timeouts(const struct pv_tcp *l)
{
	uint32_t n = 0, timeout = 1, period = 1;

	if (!l->opts.defer_accept_s)
		return 0;
	for (n = 1; l->opts.defer_accept_s > period && n < 255; n++) {
		timeout = PV_MIN(timeout * 2, (uint32_t)(l->t->cfg.rto_max_ns / PV_NS_PER_S));
		period += timeout;
	}
	return n;
}

static bool syn_in_window(const struct pv_tcp_syn *s, const struct pv_tcp_in *in)
{
	pv_seq nxt = pv_seq_add(s->irs, 1), end = pv_seq_add(nxt, s->wnd), seq_end = pv_seq_add(in->seq, pv_tcp_in_space(in));

	if (pv_seq_eq(in->seq, nxt))
		return true;
	if (pv_seq_gt(seq_end, nxt) && pv_seq_lt(in->seq, end))
		return true;
	return pv_seq_eq(in->seq, end) && pv_seq_eq(in->seq, seq_end);
}

static void syn_ack_back(struct pv_tcp_table *t, const struct pv_tcp_syn *s, const struct pv_tcp_in *in)
{
	struct pv_tcp_bare b = { .src = s->laddr,
				 .dst = s->raddr,
				 .sport = s->lport,
				 .dport = s->rport,
				 .seq = pv_seq_add(s->iss, 1),
				 .ack = pv_seq_add(s->irs, 1),
				 .wnd = (uint16_t)(s->wnd >> (s->flags & PV_SYN_WS ? s->wscales >> 4 : 0)),
				 .flags = PV_TH_ACK,
				 .iface = s->iface };

	if (!pv_tcp_oow_allowed(&t->syn_oow_ns, in))
		return;
	if (s->flags & PV_SYN_TS) {
		b.opt.has_ts = true;
		b.opt.ts_val =
		    (uint32_t)((uint64_t)in->now_ns / (uint64_t)PV_NS_PER_MS) + pv_tcp_ts_offset(t, &s->laddr, &s->raddr);
		b.opt.ts_ecr = s->ts_recent;
	}
	t->c.tx_acks++;
	(void)pv_tcp_send_bare(t, &b, in->now_ns);
}

/* tcp_check_req, up to where the connection is made. True: make it. */
static bool syn_check(struct pv_tcp_table *t, struct pv_tcp_syn *s, struct pv_tcp_in *in)
{
	bool paws = (s->flags & PV_SYN_TS) && in->opt.has_ts && (int32_t)(s->ts_recent - in->opt.ts_val) > 0;

	/* The SYN once more: our answer got lost. */
	if (pv_seq_eq(in->seq, s->irs) && (in->flags & (PV_TH_SYN | PV_TH_RST | PV_TH_ACK)) == PV_TH_SYN && !paws) {
		arm(t, s, in->now_ns);
		send_synack(s, false, in->now_ns);
		return false;
	}
	if ((in->flags & PV_TH_ACK) && !pv_seq_eq(in->ack, pv_seq_add(s->iss, 1))) {
		t->c.rx_old_ack++;
		pv_tcp_reset_reply(t, in);
		return false;
	}
	if (paws || !syn_in_window(s, in)) {
		t->c.rx_paws += paws;
		t->c.rx_out_of_window += !paws;
		if (!(in->flags & PV_TH_RST))
			syn_ack_back(t, s, in);
		return false;
	}
	/* RFC 9293 3.10.7.4, second: in the window is not enough. */
	if ((in->flags & PV_TH_RST) && !pv_seq_eq(in->seq, pv_seq_add(s->irs, 1))) {
		t->c.rx_challenge++;
		syn_ack_back(t, s, in);
		return false;
	}
	if ((s->flags & PV_SYN_TS) && in->opt.has_ts && pv_seq_le(in->seq, pv_seq_add(s->irs, 1)))
		s->ts_recent = in->opt.ts_val;
	if (pv_seq_eq(in->seq, s->irs))
		in->flags &= (uint8_t)~PV_TH_SYN;
	if (in->flags & (PV_TH_RST | PV_TH_SYN)) {
		t->c.open_failed++;
		t->c.rx_resets += (in->flags & PV_TH_RST) != 0;
		pv_tcp_reset_reply(t, in);
		pv_tcp_syn_drop(t, s);
		return false;
	}
	if (!(in->flags & PV_TH_ACK))
		return false;
	if (s->timeouts < defer_timeouts(s->l) && !pv_tcp_in_space(in)) {
		s->flags |= PV_SYN_ACKED;
		return false;
	}
	return true;
}

bool pv_tcp_syn_input(struct pv_tcp_table *t, struct pv_tcp_in *in)
{
	struct pv_tcp_syn *s = pv_tcp_syn_find(t, in);
	struct pv_tcp *l, *c = NULL;

	if (!s)
		return false;
	if (!syn_check(t, s, in)) {
		pv_pkt_put(in->pkt);
		return true;
	}
	l = s->l;
	if (pv_tcp_accept_full(l))
		t->c.accept_overflow++;
	else
		c = child(s, in);
	/* The peer thinks that it is connected: it sends again what we drop, and we make room meanwhile. */
	if (!c) {
		s->flags |= PV_SYN_ACKED;
		pv_pkt_put(in->pkt);
		return true;
	}
	pv_tcp_syn_drop(t, s);
	promote(l, c, in);
	return true;
}

/* An ACK to a listener: nonsense, or a cookie that comes back. Takes the packet. */
static void ack_arrived(struct pv_tcp *l, struct pv_tcp_in *in)
{
	struct pv_tcp_table *t = l->t;
	struct pv_tcp_in back = *in;
	struct pv_tcp_syn s;
	struct pv_tcp *c = NULL;
	uint16_t mss = 0;

	if (l->listen->cookie_ns && in->now_ns - l->listen->cookie_ns < COOKIE_VALID_NS && !(in->flags & (PV_TH_SYN | PV_TH_FIN))) {
		mss = pv_tcp_cookie_check(t, in);
		t->c.cookies_bad += !mss;
	}
	if (!mss) {
		pv_tcp_reset_reply(t, in);
		pv_pkt_put(in->pkt);
		return;
	}
	t->c.cookies_ok++;
	back.seq = pv_seq_add(in->seq, UINT32_MAX);
	back.flags = PV_TH_SYN;
	back.opt = (struct pv_wire_tcp_opts){ .mss = mss, .has_ts = in->opt.has_ts, .ts_val = in->opt.ts_val };
	fill(&s, l, &back);
	s.iss = pv_seq_add(in->ack, UINT32_MAX);
	s.wscales = (uint8_t)(pv_tcp_rcv_wscale(&t->cfg, &l->opts) << 4);
	s.flags |= PV_SYN_COOKIE;
	if (s.flags & PV_SYN_TS)
		pv_tcp_cookie_ts_read(&s, in->opt.ts_ecr - pv_tcp_ts_offset(t, &s.laddr, &s.raddr));
	if (pv_tcp_accept_full(l))
		t->c.accept_overflow++;
	else
		c = child(&s, in);
	if (c)
		promote(l, c, in);
	else
		pv_pkt_put(in->pkt);
}

/* RFC 9293 3.10.7.2 */
void pv_tcp_listen_input(struct pv_tcp *l, struct pv_tcp_in *in)
{
	struct pv_tcp_table *t = l->t;

	if (in->flags & PV_TH_RST) {
		pv_pkt_put(in->pkt);
	} else if (in->flags & PV_TH_ACK) {
		ack_arrived(l, in);
	} else if ((in->flags & PV_TH_SYN) && !(in->flags & PV_TH_FIN)) {
		syn_arrived(l, in);
		pv_pkt_put(in->pkt);
	} else {
		t->c.rx_bad_flags++;
		pv_pkt_put(in->pkt);
	}
}

/* ---- time -------------------------------------------------------------------------------------------------------------------- */

/* A queue more than half full gives those up sooner that do not answer, for the young ones' sake. */
static uint32_t retries(const struct pv_tcp *l)
{
	const struct pv_tcp_listen *q = l->listen;
	uint32_t max = l->opts.syncnt ? l->opts.syncnt : l->t->cfg.synack_retries, young = q->nyoung * 2;

	if (q->nsyn * 2 <= PV_MAX(8u, q->backlog))
		return max;
	while (max > 2 && q->nsyn >= young) {
		max--;
		young *= 2;
		if (!young)
			return 2;
	}
	return max;
}

void pv_tcp_syn_timeout(struct pv_tcp_table *t, struct pv_wtimer *timer, int64_t now_ns)
{
	struct pv_tcp_syn *s = pv_container_of(timer, struct pv_tcp_syn, timer);
	uint32_t max = retries(s->l), defer = defer_timeouts(s->l);
	bool acked = s->flags & PV_SYN_ACKED, over, again;

	over = s->timeouts >= max && (!defer || !acked || s->timeouts >= defer);
	again = !defer || !acked || s->timeouts + 1u >= defer;
	if (over) {
		t->c.open_failed++;
		pv_tcp_syn_drop(t, s);
		return;
	}
	s->l->listen->nyoung -= s->timeouts == 0;
	s->timeouts++;
	arm(t, s, now_ns);
	if (again) {
		t->c.tx_retransmits++;
		send_synack(s, false, now_ns);
	}
}

void pv_tcp_syns_moved(struct pv_tcp_table *t, uint32_t iface, int64_t now_ns)
{
	for (struct pv_hnode *n = pv_htab_next(&t->embryos, NULL); n; n = pv_htab_next(&t->embryos, n)) {
		struct pv_tcp_syn *s = pv_htab_entry(n, struct pv_tcp_syn, flow);

		if (s->iface != iface || s->flags & PV_SYN_ACKED || s->timeouts >= retries(s->l))
			continue;
		pv_wheel_set(&t->syn_wheel, &s->timer, now_ns);
		pv_tcp_wake_by(t, now_ns);
	}
}

/* ---- the application ------------------------------------------------------------------------------------------------------------ */

int pv_tcp_listen(struct pv_tcp *c, int backlog)
{
	struct pv_tcp_table *t = c->t;
	uint32_t n = PV_MIN((uint32_t)backlog, t->cfg.somaxconn);
	int rc;

	if ((c->sock & (PV_SK_CONNECTING | PV_SK_CONNECTED)) || (c->state != PV_TCP_CLOSED && c->state != PV_TCP_LISTEN))
		return -EINVAL;
	if (c->state == PV_TCP_LISTEN) {
		c->listen->backlog = n;
		return 0;
	}
	/* Bound before, and somebody may listen there by now. */
	if (c->port)
		rc = pv_tcp_port_clash(c, c->lport) ? -EADDRINUSE : 0;
	else
		rc = pv_tcp_port_get(c, 0);
	if (rc)
		return rc;
	c->listen = pv_mem_alloc_shown(t->mem, sizeof(*c->listen));
	if (!c->listen)
		return -ENOMEM;
	c->listen->shown = pv_mem_show(t->mem, &pv_tcp_listener_stat_type, c->listen);
	pv_list_init(&c->listen->acceptq);
	pv_list_init(&c->listen->synq);
	c->listen->backlog = n;
	c->pingpong = 0; /* as inet_csk_listen_start */
	pv_tcp_set_state(c, PV_TCP_LISTEN);
	rc = pv_tcp_steer(c);
	if (!rc)
		return pv_tcp_hash(c);
	pv_tcp_listen_stop(c, t->head.now_ns);
	pv_tcp_set_state(c, PV_TCP_CLOSED);
	return rc;
}

int pv_tcp_accept(struct pv_tcp *l, struct pv_tcp **out)
{
	struct pv_tcp *c;

	if (l->state != PV_TCP_LISTEN)
		return -EINVAL;
	if (pv_list_empty(&l->listen->acceptq))
		return -EAGAIN;
	c = pv_list_entry(l->listen->acceptq.next, struct pv_tcp, acceptq);
	pv_list_del(&c->acceptq);
	l->listen->naccept--;
	c->flags &= ~PV_TF_EMBRYO;
	c->parent = NULL;
	*out = c;
	return 0;
}

uint32_t pv_tcp_accept_queue(const struct pv_tcp *l)
{
	return l->listen ? l->listen->naccept : 0;
}

bool pv_tcp_listen_idle(const struct pv_tcp *l)
{
	return !l->listen->naccept && !l->listen->nyoung;
}

void pv_tcp_listen_stop(struct pv_tcp *l, int64_t now_ns)
{
	struct pv_tcp_table *t = l->t;
	struct pv_tcp_listen *q = l->listen;

	pv_tcp_unhash(l);
	while (!pv_list_empty(&q->synq))
		pv_tcp_syn_drop(t, pv_list_entry(q->synq.next, struct pv_tcp_syn, link));
	while (!pv_list_empty(&q->acceptq)) {
		struct pv_tcp *c = pv_list_entry(q->acceptq.next, struct pv_tcp, acceptq);

		if (c->state != PV_TCP_CLOSED)
			pv_tcp_reset_send(c, now_ns);
		pv_tcp_free(c);
	}
	l->listen = NULL;
	pv_mem_hide(t->mem, q->shown);
	pv_mem_free_shown(t->mem, q, sizeof(*q));
	if (l->port && l->port->gated)
		pv_tcp_gate_end(l->port);
	if (l->port && !pv_list_empty(&l->port->rules))
		pv_tcp_steer_port(t, l->port);
}
