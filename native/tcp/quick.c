/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small message where nothing is in its way: one packet, one segment, one header, one post. The same steps as the long way takes
 * (sndq.c, output.c), without asking again at each what is known here from the start.
 */
#include "tcp/output.h"

#include <string.h>

#define QUICK_STATES (1u << PV_TCP_ESTABLISHED | 1u << PV_TCP_CLOSE_WAIT)
#define NOT_QUICK (PV_TF_FIN_QUEUED | PV_TF_SND_URG | PV_TF_ECN | PV_TF_BLOCKED | PV_TF_NOSPACE)

/* Behind what is on its way already. */
pv_inline bool may_follow(const struct pv_tcp *c)
{
	return !c->lost && c->opts.nodelay && c->in_flight + c->retrans - c->sacked < c->cwnd;
}

pv_inline bool is_quick(const struct pv_tcp *c, size_t len)
{
	const struct pv_tcp_table *t = c->t;

	if (!(QUICK_STATES >> c->state & 1) || c->unsent || (c->flags & NOT_QUICK) || c->tell.err || (c->sock & PV_SK_SHUT_WR))
		return false;
	if (len > c->mss || pv_seq_dist(c->snd_una, c->write_seq) + len > c->snd_wnd)
		return false;
	if (c->opts.cork || c->pacing_rate != UINT64_MAX || pv_tcp_has_blocks(c) || (c->in_flight && !may_follow(c)))
		return false;
	len += PV_TCP_HLEN + (c->flags & PV_TF_TS ? PV_TCP_TS_LEN : 0u);
	return t->free_seg && pv_net_tx_plain(t->net, &c->path, &c->txo, (uint32_t)len);
}

/* Queued, the send buffer far from full, with its header in front. NULL: not by this way. */
pv_inline struct pv_tcp_seg *queue(struct pv_tcp *c, const void *buf, uint32_t len, int64_t now_ns)
{
	struct pv_pool *pool = c->path.ring->pool;
	uint64_t sum = c->pseudo;
	struct pv_tcp_seg *s;
	struct pv_pkt *pkt;
	uint32_t mem;

	if (pool->nfree <= pool->total >> 3)
		return NULL;
	mem = pool->free->size + (uint32_t)sizeof(*s);
	if (len > pool->free->size - PV_TCP_DATA_OFF || (c->snd_mem + mem) * UINT64_C(3) > c->opts.sndbuf * UINT64_C(2))
		return NULL;
	pkt = pv_pkt_get(pool);
	s = pv_tcp_seg_take(c->t);
	s->pkt = pkt;
	s->seq = c->write_seq;
	s->len = (uint16_t)len;
	s->flags = PV_SEG_PSH;
	pv_list_add(&c->sndq, &s->link);
	c->snd_mem += mem;
	c->sndq_bytes += len;
	c->write_seq = pv_seq_add(c->write_seq, len);
	pkt->flags = PV_PKT_KEPT;
	pkt->data = pkt->buf + PV_TCP_DATA_OFF;
	pkt->len = len;
	if (pv_likely(c->path.hdr_l4_soft)) {
		sum = pv_cksum_copy(pkt->data, buf, len, sum);
		pv_tcp_put_plain(c, pkt, s->seq, PV_TH_ACK | PV_TH_PSH, &sum, now_ns);
	} else {
		memcpy(pkt->data, buf, len);
		pv_tcp_put_plain(c, pkt, s->seq, PV_TH_ACK | PV_TH_PSH, NULL, now_ns);
	}
	return s;
}

bool pv_tcp_send_quick(struct pv_tcp *c, const void *buf, size_t len, int64_t now_ns)
{
	struct pv_net *net = c->t->net;
	struct pv_tcp_seg *s;

	if (!is_quick(c, len))
		return false;
	s = queue(c, buf, (uint32_t)len, now_ns);
	if (!s)
		return false;
	if (!c->in_flight)
		pv_tcp_idle_check(c, now_ns);
	if (pv_unlikely(pv_net_tx_summed(net, &c->path, s->pkt))) {
		/* It is queued: the rest is as for any other. */
		c->unsent = s;
		pv_tcp_output(c, now_ns);
		if (pv_net_dirty(net))
			(void)pv_net_kick(net);
	} else {
		/* The message is on its way before we write down that it is. */
		(void)pv_net_kick(net);
		pv_tcp_left(c);
		if (pv_unlikely(c->in_flight && !c->rate_watch)) {
			pv_tcp_rate_check(c);
			pv_tcp_rate_watch(c, s, false, now_ns);
		}
		pv_tcp_new_sent(c, s, now_ns);
		pv_tcp_run_sent(c, now_ns);
		pv_tcp_rack_sent(c, now_ns);
	}
	pv_tcp_taken(c, (uint32_t)len);
	return true;
}
