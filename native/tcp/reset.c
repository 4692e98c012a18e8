/* SPDX-License-Identifier: BSD-3-Clause */
/* Resets, and the acknowledgements that answer what may be an attack (RFC 5961). */
#include "tcp/conn.h"

/* A second's worth, around which the limit wanders so that nobody can count it out (RFC 5961 7, CVE-2016-5696). */
#define CHALLENGE_LIMIT 1000u

void pv_tcp_reset_reply(struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	struct pv_tcp_bare b = { .src = in->dst,
				 .dst = in->src,
				 .sport = in->dport,
				 .dport = in->sport,
				 .flags = PV_TH_RST,
				 .iface = in->pkt ? in->pkt->iface : 0 };

	if (in->flags & PV_TH_RST)
		return;
	if (in->flags & PV_TH_ACK) {
		b.seq = in->ack;
	} else {
		b.flags |= PV_TH_ACK;
		b.ack = pv_seq_add(in->seq, pv_tcp_in_space(in));
	}
	t->c.tx_resets++;
	(void)pv_tcp_send_bare(t, &b, in->now_ns);
}

void pv_tcp_reset_send(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_bare b = { .src = c->laddr,
				 .dst = c->raddr,
				 .sport = c->lport,
				 .dport = c->rport,
				 .seq = c->snd_nxt,
				 .ack = c->rcv_nxt,
				 .flags = PV_TH_RST | PV_TH_ACK,
				 .tos = c->txo.tos,
				 .lane = c->path.lane,
				 .iface = c->opts.bound_iface };

	/* RFC 7323 3.2: they should be there. */
	if (c->flags & PV_TF_TS) {
		b.opt.has_ts = true;
		b.opt.ts_val = pv_tcp_ts_now(c, now_ns);
		b.opt.ts_ecr = c->ts_recent;
	}
	c->t->c.tx_resets++;
	(void)pv_tcp_send_bare(c->t, &b, now_ns);
}

static bool challenge_allowed(struct pv_tcp_table *t, int64_t now_ns)
{
	if (now_ns - t->challenge_ns >= PV_NS_PER_S || !t->challenge_ns) {
		t->challenge_ns = now_ns;
		t->challenge_left = CHALLENGE_LIMIT / 2 + (uint32_t)pv_rng_below(&t->rng, CHALLENGE_LIMIT);
	}
	if (!t->challenge_left)
		return false;
	t->challenge_left--;
	return true;
}

void pv_tcp_challenge(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;

	if (c->oow_ns && now_ns - c->oow_ns < PV_TCP_OOW_NS)
		return;
	if (!challenge_allowed(t, now_ns))
		return;
	c->oow_ns = now_ns;
	t->c.rx_challenge++;
	pv_tcp_send_ack(c, now_ns);
}

bool pv_tcp_oow_allowed(int64_t *last_ns, const struct pv_tcp_in *in)
{
	if (in->len && !(in->flags & PV_TH_SYN))
		return true;
	if (*last_ns && in->now_ns - *last_ns < PV_TCP_OOW_NS)
		return false;
	*last_ns = in->now_ns;
	return true;
}
