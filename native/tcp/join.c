/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several segments of the send queue as one packet: a chain of theirs with one header in front of the first. A ring that cuts
 * (PV_JOIN_TSO) makes of it what they would have been one by one; where a frame fills several buffers (PV_JOIN_PIECES) it is one segment
 * on the wire. To everything else, queue, scoreboard and timers, they stay what they were, and what is sent again goes alone. The chain
 * falls apart when the ring gives it back; a packet that is to be sent again before that is copied, as any that is still out.
 *
 * What is in the header is said of all: so nothing is joined while something is to be said of some only (urgent data, CWR, SACK blocks where
 * a short segment has room for them), a segment with PSH is the last of its packet, as is one with FIN, and one that is to be stamped goes
 * alone.
 */
#include "tcp/output.h"

#define ONE_BY_ONE (PV_TF_SND_URG | PV_TF_CWR)

/* Its packet can be posted as it is. */
pv_inline bool is_free(const struct pv_tcp *c, const struct pv_tcp_seg *s)
{
	return s->pkt && !(s->pkt->flags & PV_PKT_KEPT) && s->pkt->pool == c->path.ring->pool;
}

/* How many of the `n` segments from `s` fit into `room` bytes and one chain. All are as long as the first, but for the last. */
static uint32_t count(const struct pv_tcp *c, const struct pv_tcp_seg *s, uint32_t n, uint32_t room)
{
	const uint32_t size = s->len;
	uint32_t k = 0;

	n = PV_MIN(n, c->path.ring->caps.max_sge);
	while (k < n && s->len && s->len <= size && s->len <= room && is_free(c, s) && !(s->flags & PV_SEG_STAMP)) {
		k++;
		if (s->len < size || (s->flags & (PV_SEG_PSH | PV_SEG_FIN)))
			break;
		room -= s->len;
		s = pv_list_entry(s->link.next, struct pv_tcp_seg, link);
	}
	return k;
}

/* Returns the header flags that the last of them asks for. */
static uint32_t chain(struct pv_tcp_seg *s, uint32_t k)
{
	struct pv_pkt *head = s->pkt;
	uint32_t total = 0;

	for (;;) {
		struct pv_pkt *pkt = s->pkt;

		pkt->flags = PV_PKT_KEPT;
		pkt->data = pv_seg_data(s);
		pkt->len = s->len;
		total += s->len;
		if (!--k)
			break;
		s = pv_list_entry(s->link.next, struct pv_tcp_seg, link);
		pkt->frag = s->pkt;
	}
	head->total = total;
	return PV_TH_ACK | (s->flags & PV_SEG_PSH ? PV_TH_PSH : 0u) | (s->flags & PV_SEG_FIN ? PV_TH_FIN : 0u);
}

int pv_tcp_post_joined(struct pv_tcp *c, struct pv_tcp_seg *s, uint32_t n, int64_t now_ns)
{
	bool tso = c->path.joins & PV_JOIN_TSO;
	struct pv_tx_opts txo = c->txo;
	struct pv_pkt *pkt = s->pkt;
	uint32_t room, k, hlen;
	int rc;

	if ((c->flags & ONE_BY_ONE) || c->path.is_local || pv_tcp_has_blocks(c))
		return 0;
	/* What a device holds to a rate goes to it by the frame. */
	if (tso && pv_unlikely(c->txq))
		return 0;
	/* RFC 3168 6.1.4: new data says that it may be marked. */
	if (c->flags & PV_TF_ECN)
		txo.tos |= PV_TCP_ECT0;
	room = tso ? pv_net_tso_room(c->t->net, &c->path, &txo) : pv_tcp_path_mss(c, c->pmtu);
	if (tso)
		room -= PV_MIN(room, PV_TCP_HLEN + PV_TCP_TS_LEN);
	k = count(c, s, n, room);
	if (k < 2)
		return 0;
	pv_tcp_put_header(c, pkt, s->seq, chain(s, k), now_ns);
	hlen = pkt->len - s->len;
	pkt->total += hlen;
	if (tso) {
		pkt->gso_size = s->len;
		pkt->gso_hdr = (uint8_t)hlen;
		rc = pv_net_tx_tso(c->t->net, &c->path, &txo, pkt);
	} else {
		if (pv_unlikely(c->txq))
			pv_txq_mark(c->txq, &c->path, pkt);
		rc = pv_net_tx(c->t->net, &c->path, &txo, pkt, now_ns);
	}
	if (pv_unlikely(rc))
		return pv_tcp_refused(c, rc);
	c->segs_out += k;
	c->t->c.tx_segments += k;
	pv_tcp_ack_sent(c);
	return (int)k;
}
