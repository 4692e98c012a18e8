/* SPDX-License-Identifier: BSD-3-Clause */
/* Gathers runs of segments (gro.h). A flow has its slot by its ports alone: two that share one are in each other's way, no more. */
#include "tcp/gro.h"
#include "tcp/conn.h"

#define ECN_MASK 3u
#define HLEN_TS (PV_TCP_HLEN + 12u)
#define IP4_ADDRS 12u
#define IP6_ADDRS 8u

int pv_tcp_gro_open(struct pv_tcp_table *t)
{
	if (t->cfg.no_gro)
		return 0;
	t->runs = pv_tcp_alloc(t, t->cfg.gro_streams * sizeof(*t->runs));
	if (!t->runs)
		return -ENOMEM;
	memset(t->runs, 0, t->cfg.gro_streams * sizeof(*t->runs));
	t->nruns = t->cfg.gro_streams;
	return 0;
}

void pv_tcp_gro_close(struct pv_tcp_table *t)
{
	if (t->runs)
		pv_tcp_dealloc(t, t->runs, t->nruns * sizeof(*t->runs));
}

static void input(struct pv_tcp_table *t, struct pv_tcp_run *run)
{
	pv_list_del(&run->open);
	pv_tcp_run_input(t, run);
	run->segs = 0;
}

void pv_tcp_rx_flush(struct pv_tcp_table *t)
{
	while (!pv_list_empty(&t->head.runs))
		input(t, pv_list_entry(t->head.runs.next, struct pv_tcp_run, open));
}

pv_inline struct pv_tcp_run *slot_of(const struct pv_tcp_table *t, uint32_t sport, uint32_t dport)
{
	return &t->runs[(uint64_t)((sport << 16 | dport) * UINT32_C(0x9e3779b1)) * t->nruns >> 32];
}

/* Addresses, ports, service class and interface; version and the length of an IPv4 header are in its first two bytes, too. */
pv_inline bool same_flow(const struct pv_pkt *a, const struct pv_pkt *b)
{
	const uint8_t *ip_a = a->buf + a->l3_off, *ip_b = b->buf + b->l3_off;

	if (memcmp(ip_a, ip_b, 2) || memcmp(a->buf + a->l4_off, b->buf + b->l4_off, 4) || a->iface != b->iface)
		return false;
	if (pv_likely(ip_a[0] >> 4 == 4))
		return !memcmp(ip_a + IP4_ADDRS, ip_b + IP4_ADDRS, 8);
	return !memcmp(ip_a + IP6_ADDRS, ip_b + IP6_ADDRS, 32);
}

/* A window or timestamp that differs, a number that does not follow, a duplicate acknowledgement: each tells what must not be lost. */
pv_inline bool follows(const struct pv_tcp_run *run, const struct pv_pkt *pkt, const struct pv_wire_tcp *h)
{
	uint32_t len = pkt->len - h->hlen;
	const struct pv_pkt *first = run->in.pkt;
	int32_t more = pv_seq_diff(pv_seq_of(h->ack), run->in.ack);

	if (h->seq != run->end.v || (h->flags & (uint8_t)~PV_TH_PSH) != PV_TH_ACK || h->wnd != run->in.wnd ||
	    h->hlen != run->hlen || len > run->seg_len || pkt->frag)
		return false;
	if (run->seg_len ? !len || more < 0 : more <= 0)
		return false;
	if (h->hlen == HLEN_TS && memcmp(pkt->buf + pkt->l4_off + PV_TCP_HLEN, first->buf + first->l4_off + PV_TCP_HLEN, 12))
		return false;
	return same_flow(pkt, first);
}

bool pv_tcp_run_take(struct pv_tcp_table *t, struct pv_pkt *pkt, const struct pv_wire_tcp *h, int64_t now_ns)
{
	struct pv_tcp_run *run;
	uint32_t len;

	if (!t->nruns)
		return false;
	run = slot_of(t, h->src_port, h->dst_port);
	if (!run->segs)
		return false;
	if (!follows(run, pkt, h)) {
		input(t, run);
		return false;
	}
	len = pkt->len - h->hlen;
	pkt->data += h->hlen;
	pkt->len = pkt->total = len;
	pkt->next = NULL;
	PV_TCP_PKT_SEQ(pkt) = h->seq;
	PV_TCP_PKT_NS(pkt) = (uint64_t)now_ns;
	run->tail->next = pkt;
	run->tail = pkt;
	run->segs++;
	run->last_len = len;
	run->mem += pkt->size;
	run->end = pv_seq_add(run->end, len);
	run->in.len += len;
	run->in.ack = pv_seq_of(h->ack);
	run->in.flags = h->flags;
	/* The end of what somebody wrote. */
	if (h->flags & PV_TH_PSH || len < run->seg_len)
		input(t, run);
	return true;
}

bool pv_tcp_run_start(struct pv_tcp_table *t, const struct pv_tcp_in *in, uint32_t hlen)
{
	struct pv_tcp_run *run;

	if (!t->nruns || in->flags != PV_TH_ACK || in->pkt->frag || (in->tos & ECN_MASK) == ECN_MASK)
		return false;
	if (hlen != PV_TCP_HLEN && (hlen != HLEN_TS || !in->opt.has_ts))
		return false;
	run = slot_of(t, in->sport, in->dport);
	run->in = *in;
	run->tail = in->pkt;
	run->segs = 1;
	run->seg_len = run->last_len = in->len;
	run->seg_mem = run->mem = in->pkt->size;
	run->end = pv_seq_add(in->seq, in->len);
	run->hlen = (uint8_t)hlen;
	run->ack = in->ack;
	in->pkt->next = NULL;
	PV_TCP_PKT_SEQ(in->pkt) = in->seq.v;
	PV_TCP_PKT_NS(in->pkt) = (uint64_t)in->now_ns;
	pv_list_add(&t->head.runs, &run->open);
	return true;
}
