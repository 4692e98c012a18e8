/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that leave the stack alive (export.h).
 *
 * Rings and the other TCP are not switched in one instant: a frame may be on its way to us when the rule that brought it goes. To us it is a
 * segment for nobody, and a reset in answer would end the connection that has just moved. So its flow is remembered for a moment, and
 * what comes for it is dropped. The peer sends again what was among it.
 */
#include "tcp/export.h"

#include "tcp/conn.h"

#define REMEMBERED_NS PV_NS_PER_S

struct pv_tcp_left {
	struct pv_hnode flow;
	struct pv_list age;
	struct pv_addr laddr, raddr;
	uint16_t lport, rport;
	int64_t deadline_ns;
};

/* ---- what there is to know --------------------------------------------------------------------------------------------- */

static bool urgent(const struct pv_tcp *c)
{
	return ((c->flags & PV_TF_URG_RCVD) && pv_seq_ge(c->rcv_up, c->copied_seq)) ||
	       ((c->flags & PV_TF_SND_URG) && pv_seq_gt(c->snd_up, c->snd_una));
}

static int check(const struct pv_tcp *c)
{
	switch (c->state) {
	case PV_TCP_SYN_SENT:
	case PV_TCP_SYN_RCVD:
		return -EINPROGRESS;
	case PV_TCP_ESTABLISHED:
	case PV_TCP_CLOSE_WAIT:
	case PV_TCP_FIN_WAIT_1:
	case PV_TCP_FIN_WAIT_2:
	case PV_TCP_CLOSING:
	case PV_TCP_LAST_ACK:
		return urgent(c) ? -EBUSY : 0;
	default:
		return -ENOTCONN;
	}
}

/* Payload of the send queue, and how the FIN stands that may be behind it. */
static void count_out(const struct pv_tcp *c, struct pv_tcp_export *out)
{
	pv_list_for_each(it, &c->sndq) {
		const struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, link);

		if (s->board & PV_SEG_SENT) {
			out->sent += s->len;
			out->fin_sent |= (s->flags & PV_SEG_FIN) != 0;
		} else {
			out->unsent += s->len;
		}
	}
	out->fin_queued = c->flags & PV_TF_FIN_QUEUED;
	out->fin_acked = pv_tcp_fin_acked(c);
	out->fin_sent |= out->fin_acked;
}

int pv_tcp_export(const struct pv_tcp *c, struct pv_tcp_export *out, int64_t now_ns)
{
	int rc = check(c);

	if (rc)
		return rc;
	*out = (struct pv_tcp_export){
		.state = (enum pv_tcp_state)c->state,
		.rcv_seq = c->copied_seq.v,
		.unread = c->rcvq_bytes,
		.fin_rcvd = c->flags & PV_TF_FIN_RCVD,
		.shut_rd = c->flags & PV_TF_SHUT_RD,
		.snd_wnd = c->snd_wnd,
		.snd_wl1 = c->snd_wl1.v,
		.max_window = PV_MAX(c->max_window, c->snd_wnd),
		.rcv_wnd = (uint32_t)PV_MAX(pv_seq_diff(c->rcv_adv, c->rcv_nxt), 0),
		.sack = c->flags & PV_TF_SACK,
		.timestamps = c->flags & PV_TF_TS,
		.mss = c->mss_peer,
		.ts_val = pv_tcp_ts_now(c, now_ns),
		.ts_recent = c->ts_recent,
	};
	if (c->flags & PV_TF_WS) {
		out->snd_wscale = c->snd_wscale;
		out->rcv_wscale = c->rcv_wscale;
	}
	pv_tcp_local(c, &out->local);
	if (!pv_tcp_remote(c, &out->remote))
		return -ENOTCONN;
	count_out(c, out);
	/* An acknowledged FIN's own number is behind the last byte, too. */
	out->snd_seq = c->snd_una.v - out->fin_acked;
	return 0;
}

/* ---- the queues -------------------------------------------------------------------------------------------------------- */

struct gather {
	struct pv_iov *iov;
	uint32_t n, max;
	uint32_t skip;
};

/* False: there is no room for more. */
static bool piece(struct gather *g, const uint8_t *data, uint32_t len)
{
	if (len <= g->skip) {
		g->skip -= len;
		return true;
	}
	if (g->n == g->max)
		return false;
	g->iov[g->n++] = (struct pv_iov){ data + g->skip, len - g->skip };
	g->skip = 0;
	return true;
}

static void gather_unread(const struct pv_tcp *c, struct gather *g)
{
	uint32_t read = c->rcvq_off;

	for (const struct pv_pkt *p = c->rcvq.head; p; p = p->next) {
		if (!piece(g, p->data + read, p->len - read))
			return;
		read = 0;
	}
}

uint32_t pv_tcp_export_data(const struct pv_tcp *c, enum pv_tcp_export_queue queue, uint32_t off, struct pv_iov *iov, uint32_t n)
{
	struct gather g = { .iov = iov, .max = n, .skip = off };

	if (queue == PV_TCP_EXPORT_UNREAD) {
		gather_unread(c, &g);
		return g.n;
	}
	pv_list_for_each(it, &c->sndq) {
		const struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, link);

		if (!s->len || ((s->board & PV_SEG_SENT) != 0) != (queue == PV_TCP_EXPORT_SENT))
			continue;
		if (!piece(&g, pv_seg_data(s), s->len))
			break;
	}
	return g.n;
}

struct pv_tcp *pv_tcp_orphan_unsent(struct pv_tcp_table *t, struct pv_tcp *after)
{
	struct pv_hnode *n = after ? &after->flow : NULL;

	while ((n = pv_htab_next(&t->conns, n))) {
		struct pv_tcp *c = pv_htab_entry(n, struct pv_tcp, flow);

		if ((c->flags & PV_TF_ORPHAN) && pv_tcp_outq_nsd(c))
			return c;
	}
	return NULL;
}

/* ---- leaving ----------------------------------------------------------------------------------------------------------- */

bool pv_tcp_can_leave(const struct pv_tcp *c)
{
	return c->path.gen && pv_tcp_steer_can_leave(c);
}

static void forget(struct pv_tcp_table *t, struct pv_tcp_left *l)
{
	pv_htab_del(&t->left, &l->flow);
	pv_list_del(&l->age);
	pv_tcp_dealloc(t, l, sizeof(*l));
}

/* Without memory for it the moment is not covered. */
static void remember(const struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;
	struct pv_tcp_left *l = pv_tcp_alloc(t, sizeof(*l));

	if (!l)
		return;
	*l = (struct pv_tcp_left){
		.laddr = c->laddr, .raddr = c->raddr, .lport = c->lport, .rport = c->rport, .deadline_ns = now_ns + REMEMBERED_NS
	};
	pv_list_init(&l->age);
	pv_list_add(&t->left_age, &l->age);
	pv_htab_add(&t->left, &l->flow, pv_tcp_flow_hash(t, &l->laddr, &l->raddr, l->lport, l->rport));
	pv_tcp_wake_by(t, l->deadline_ns);
}

void pv_tcp_leave(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;
	struct pv_tcp_port *p = c->port;

	t->head.now_ns = now_ns;
	remember(c, now_ns);
	pv_tcp_unhash(c);
	pv_list_del(&c->on_port);
	/* The rule of a reserved port takes whatever comes for it. */
	if (p->reserve) {
		pv_tcp_reserve_end(t, p);
		pv_tcp_steer_unreserve(t, p);
	}
	pv_tcp_port_put(c);
	t->c.handed_back++;
}

void pv_tcp_left(struct pv_tcp *c)
{
	c->tell.user = NULL;
	pv_tcp_free(c);
}

bool pv_tcp_left_input(struct pv_tcp_table *t, struct pv_tcp_in *in)
{
	/* A new connection of the same ports is none of it. */
	if ((in->flags & (PV_TH_SYN | PV_TH_ACK)) == PV_TH_SYN)
		return false;
	pv_htab_for_each(it, &t->left, in->hash)
	{
		const struct pv_tcp_left *l = pv_htab_entry(it, struct pv_tcp_left, flow);

		if (!pv_tcp_same_flow(&l->laddr, &l->raddr, (uint32_t)l->lport | (uint32_t)l->rport << 16, in))
			continue;
		pv_tcp_lost(t, NULL, in, &t->c.rx_handed_back);
		pv_pkt_put(in->pkt);
		return true;
	}
	return false;
}

int64_t pv_tcp_left_deadline(const struct pv_tcp_table *t)
{
	return pv_list_empty(&t->left_age) ? PV_NEVER : pv_list_entry(t->left_age.next, struct pv_tcp_left, age)->deadline_ns;
}

uint32_t pv_tcp_left_timeouts(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget)
{
	uint32_t n = 0;

	for (; n < budget && pv_tcp_left_deadline(t) <= now_ns; n++)
		forget(t, pv_list_entry(t->left_age.next, struct pv_tcp_left, age));
	return n;
}

void pv_tcp_left_close(struct pv_tcp_table *t)
{
	while (!pv_list_empty(&t->left_age))
		forget(t, pv_list_entry(t->left_age.next, struct pv_tcp_left, age));
}
