/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small message where nothing is in its way: one packet, one segment, one header, one post. The same steps as the long way takes
 * (sndq.c, output.c), without asking again at each what is known here from the start.
 */
#include "tcp/output.h"

#include <string.h>

#define QUICK_STATES (1u << PV_TCP_ESTABLISHED | 1u << PV_TCP_CLOSE_WAIT)
#define NOT_QUICK (PV_TF_FIN_QUEUED | PV_TF_SND_URG | PV_TF_ECN | PV_TF_BLOCKED | PV_TF_NOSPACE)

pv_inline bool is_quick(const struct pv_tcp *c, size_t len)
{
	const struct pv_tcp_table *t = c->t;
	uint32_t pipe = c->in_flight + c->retrans - c->sacked;

	if (!(QUICK_STATES >> c->state & 1) || c->unsent || c->lost || (c->flags & NOT_QUICK) || c->tell.err ||
	    (c->sock & PV_SK_SHUT_WR))
		return false;
	if (len > c->mss || pipe >= c->cwnd || pv_seq_dist(c->snd_una, c->write_seq) + len > c->snd_wnd)
		return false;
	if (c->opts.cork || (c->in_flight && !c->opts.nodelay) || c->pacing_rate != UINT64_MAX)
		return false;
	return pv_path_valid(t->net, &c->path) && !c->path.is_local && t->free_seg;
}

/* Queued, the send buffer far from full. NULL: not by this way. */
pv_inline struct pv_tcp_seg *queue(struct pv_tcp *c, const struct pv_iov *iov)
{
	struct pv_tcp_table *t = c->t;
	struct pv_pool *pool = c->path.ring->pool;
	struct pv_tcp_seg *s;
	struct pv_pkt *pkt;
	uint32_t len = (uint32_t)iov->len;

	if (pool->nfree <= pool->total >> 3)
		return NULL;
	pkt = pool->free;
	if (len > pkt->size - PV_TCP_DATA_OFF || (c->snd_mem + pkt->size + sizeof(*s)) * UINT64_C(3) > c->opts.sndbuf * UINT64_C(2))
		return NULL;
	s = pv_tcp_seg_get(t);
	s->pkt = pv_pkt_get(pool);
	s->seq = c->write_seq;
	s->len = (uint16_t)len;
	s->flags = PV_SEG_PSH;
	pv_list_add(&c->sndq, &s->link);
	memcpy(pkt->buf + PV_TCP_DATA_OFF, iov->base, len);
	c->snd_mem += pv_seg_mem(s);
	c->sndq_bytes += len;
	c->write_seq = pv_seq_add(c->write_seq, len);
	return s;
}

bool pv_tcp_send_quick(struct pv_tcp *c, const struct pv_iov *iov, int64_t now_ns)
{
	struct pv_tcp_seg *s;
	struct pv_pkt *pkt;

	if (!is_quick(c, iov->len))
		return false;
	s = queue(c, iov);
	if (!s)
		return false;
	if (!c->in_flight)
		pv_tcp_idle_restart(c, now_ns);
	pkt = s->pkt;
	pkt->flags = PV_PKT_KEPT;
	pkt->data = pkt->buf + PV_TCP_DATA_OFF;
	pkt->len = s->len;
	pv_tcp_put_header(c, pkt, s->seq, PV_TH_ACK | PV_TH_PSH, now_ns);
	if (pv_unlikely(pv_net_tx(c->t->net, &c->path, &c->txo, pkt, now_ns))) {
		/* It is queued: the rest is as for any other. */
		c->unsent = s;
		pv_tcp_output(c, now_ns);
		if (pv_net_dirty(c->t->net))
			(void)pv_net_kick(c->t->net);
		return true;
	}
	/* The message is on its way before we write down that it is. */
	(void)pv_net_kick(c->t->net);
	pv_tcp_left(c);
	if (pv_unlikely(c->in_flight && !c->rate_watch)) {
		pv_tcp_rate_check(c);
		pv_tcp_rate_watch(c, s, false, now_ns);
	}
	pv_tcp_new_sent(c, s, now_ns);
	pv_tcp_run_sent(c, now_ns);
	pv_tcp_rack_sent(c, now_ns);
	return true;
}
