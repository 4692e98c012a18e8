/* SPDX-License-Identifier: BSD-3-Clause */
/* What output.c, join.c and quick.c share: a segment's header, and what follows once it has gone. */
#ifndef PV_TCP_OUTPUT_H
#define PV_TCP_OUTPUT_H

#include <string.h>

#include "tcp/tcp_int.h"

#define PV_TCP_TS_LEN 12u /* two NOPs and the option */
#define PV_TCP_TS_HEAD 0x0101080au

#define PV_TCP_ECT0 2u /* RFC 3168: in the traffic class */

/* Payload bytes that a segment on the wire has at most: c->mss, or more where that is the part that a buffer holds. */
uint32_t pv_tcp_path_mss(const struct pv_tcp *c, uint32_t pmtu);
/* What a post that failed with `rc` leads to; returns it. */
int pv_tcp_refused(struct pv_tcp *c, int rc);
/* join.c: the first of the `n` segments from `s`, none of which has been sent, as one packet: how many, at least two. 0: not now, one by
 * one; -errno: the packet was refused. The caller notes them as sent. */
int pv_tcp_post_joined(struct pv_tcp *c, struct pv_tcp_seg *s, uint32_t n, int64_t now_ns);
/* Options with SACK blocks, ending at `opts_end`; returns their length. The urgent pointer of a header at `h`. */
uint32_t pv_tcp_put_options(struct pv_tcp *c, uint8_t *opts_end, uint32_t payload, int64_t now_ns);
void pv_tcp_put_urgent(struct pv_tcp *c, uint8_t *h, pv_seq seq);

pv_inline pv_seq pv_tcp_wnd_end(const struct pv_tcp *c)
{
	return pv_seq_add(c->snd_una, c->snd_wnd);
}

pv_inline bool pv_tcp_has_blocks(const struct pv_tcp *c)
{
	return c->nsack || !pv_seq_eq(c->dsack.start, c->dsack.end);
}

/* In front of the payload at pkt->data, pkt->len bytes of it, where there are neither SACK blocks nor urgent data to tell of. `sum`, if any: of the
 * pseudo-header without the length and of the payload; else the checksum is somebody else's to fill. */
pv_inline void pv_tcp_put_plain(struct pv_tcp *c, struct pv_pkt *pkt, pv_seq seq, uint32_t flags, const uint64_t *sum,
				int64_t now_ns)
{
	uint32_t hlen = PV_TCP_HLEN, w[4], opt[3];
	uint16_t end[2] = { 0 };
	uint64_t all = 0;
	uint8_t *p;

	if (pv_likely(c->flags & PV_TF_TS)) {
		hlen += PV_TCP_TS_LEN;
		opt[0] = __builtin_bswap32(PV_TCP_TS_HEAD);
		opt[1] = __builtin_bswap32(pv_tcp_ts_now(c, now_ns));
		opt[2] = __builtin_bswap32(c->ts_recent);
		memcpy(pkt->data - sizeof(opt), opt, sizeof(opt));
		all = (uint64_t)opt[0] + opt[1] + opt[2];
	}
	flags |= c->flags & PV_TF_ECE ? PV_TH_ECE : 0u;
	w[0] = __builtin_bswap32((uint32_t)c->lport << 16 | c->rport);
	w[1] = __builtin_bswap32(seq.v);
	w[2] = __builtin_bswap32(c->rcv_nxt.v);
	w[3] = __builtin_bswap32(hlen << 26 | flags << 16 | (uint16_t)(pv_tcp_select_window(c) >> c->rcv_wscale));
	p = pkt->data - hlen;
	pkt->data = p;
	pkt->len += hlen;
	all += (uint64_t)w[0] + w[1] + w[2] + w[3] + __builtin_bswap32(pkt->len);
	if (sum)
		end[0] = pv_cksum_finish(pv_cksum_merge(*sum, all));
	memcpy(p, w, sizeof(w));
	memcpy(p + sizeof(w), end, sizeof(end));
}

void pv_tcp_put_any(struct pv_tcp *c, struct pv_pkt *pkt, pv_seq seq, uint32_t flags, int64_t now_ns);
pv_inline void pv_tcp_put_header(struct pv_tcp *c, struct pv_pkt *pkt, pv_seq seq, uint32_t flags, int64_t now_ns)
{
	if (pv_unlikely(((c->flags & PV_TF_SACK) && pv_tcp_has_blocks(c)) || (c->flags & PV_TF_SND_URG)))
		pv_tcp_put_any(c, pkt, seq, flags, now_ns);
	else
		pv_tcp_put_plain(c, pkt, seq, flags, NULL, now_ns);
}

/* A segment of ours has left, and with it our acknowledgement. */
pv_inline void pv_tcp_left(struct pv_tcp *c)
{
	c->segs_out++;
	c->t->c.tx_segments++;
	pv_tcp_ack_sent(c);
}

/* The segment, the first that had never been sent, has left. */
pv_inline void pv_tcp_new_sent(struct pv_tcp *c, struct pv_tcp_seg *s, int64_t now_ns)
{
	c->snd_nxt = pv_seg_end(s);
	c->snd_max = c->snd_nxt;
	if (s->len < c->mss)
		c->snd_sml = c->snd_nxt;
	pv_tcp_note_sent(c, s, false, now_ns);
	c->bytes_sent += s->len;
	c->t->c.tx_bytes += s->len;
	c->data_segs_out += s->len != 0;
}

/* After the last of those that went together. */
pv_inline void pv_tcp_run_sent(struct pv_tcp *c, int64_t now_ns)
{
	/* An answer soon after a question: acknowledgements will find data to ride on. */
	if (c->ato_us && now_ns - c->ack_data_ns < c->ato_us * PV_NS_PER_US)
		c->pingpong = 1;
	c->last_data_sent_ns = now_ns;
	if (c->deadline_ns[PV_TT_RTO] == PV_NEVER || (c->flags & PV_TF_PERSIST))
		pv_tcp_rearm_rto(c, now_ns);
}

#endif
