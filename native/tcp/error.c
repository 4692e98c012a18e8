/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ICMP errors about our segments (RFC 5927, RFC 1122 4.2.3.9). As Linux: only a number that is in flight makes them believable; while a
 * connection is being made any of them ends the attempt; later they are kept, and told only if the connection dies of silence, or at once to who asked (IP_RECVERR). Path MTUs
 * (RFC 1191, RFC 8201) shorten the segments, and what was too long goes again at once, no loss being the network's (RFC 9293 3.7.2).
 */
#include "tcp/conn.h"
#include "tcp/recovery.h"

/* Everything in flight that is longer than it may be by now is lost for certain, and not to congestion: cwnd stays (Linux's
 * tcp_simple_retransmit). */
static void too_long(struct pv_tcp *c, int64_t now_ns)
{
	uint32_t was = c->lost;

	pv_list_for_each(it, &c->sndq) {
		struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, link);

		if (!(s->board & PV_SEG_SENT))
			break;
		if (s->len > c->mss)
			pv_tcp_mark_lost(c, s);
	}
	if (c->lost == was)
		return;
	if (c->ca != PV_CA_LOSS) {
		c->high_seq = c->snd_nxt;
		c->ssthresh = pv_tcp_current_ssthresh(c);
		c->prior_ssthresh = 0;
		c->flags &= ~PV_TF_UNDO;
		pv_tcp_set_ca(c, PV_CA_LOSS);
	}
	pv_tcp_output(c, now_ns);
	pv_tcp_kick(c->t);
}

static void narrower(struct pv_tcp *c, const struct pv_net_error *err, int64_t now_ns)
{
	uint32_t was = c->mss, mtu;

	if (c->opts.pmtudisc == PV_PMTU_INTERFACE || c->opts.pmtudisc == PV_PMTU_OMIT || c->opts.pmtudisc == PV_PMTU_PROBE)
		return;
	mtu = pv_net_error_pmtu(c->t->net, err, now_ns);
	if (mtu >= c->pmtu)
		return;
	if (c->opts.pmtudisc == PV_PMTU_DO)
		c->soft_err = EMSGSIZE;
	pv_tcp_mss_sync(c, mtu);
	if (c->mss < was)
		too_long(c, now_ns);
}

static void syn_error(struct pv_tcp_table *t, const struct pv_tcp_in *flow, const struct pv_net_error *err)
{
	struct pv_tcp_syn *s = pv_tcp_syn_find(t, flow);

	if (!s || err->tcp_seq != s->iss.v || err->err == EMSGSIZE)
		return;
	t->c.open_failed++;
	pv_tcp_syn_drop(t, s);
}

void pv_tcp_rx_error(struct pv_tcp_table *t, const struct pv_net_error *err, int64_t now_ns)
{
	struct pv_tcp_in flow = {
		.src = err->remote, .dst = err->local, .sport = err->remote_port, .dport = err->local_port, .now_ns = now_ns
	};
	pv_seq seq = pv_seq_of(err->tcp_seq);
	struct pv_tcp *c;

	t->head.now_ns = now_ns;
	if (!err->err)
		return;
	flow.hash = pv_tcp_flow_hash(t, &flow.dst, &flow.src, flow.dport, flow.sport);
	c = pv_tcp_find_conn(t, &flow);
	if (!c) {
		syn_error(t, &flow, err);
		return;
	}
	if (pv_seq_lt(seq, c->snd_una) || pv_seq_gt(seq, c->snd_max))
		return;
	if (err->err == EMSGSIZE) {
		narrower(c, err, now_ns);
	} else if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD) {
		pv_tcp_abort(c, err->err);
	} else if (pv_addr_is4(&c->raddr) ? c->opts.recverr4 : c->opts.recverr6) {
		c->tell.err = err->err;
		pv_tcp_tell(c, PV_EV_ERR | PV_EV_IN | PV_EV_OUT);
	} else {
		c->soft_err = (uint16_t)err->err;
	}
}
