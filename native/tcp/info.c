/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP_INFO: Linux's fields, filled with what they mean there. */
#include "tcp/conn.h"
#include "tcp/output.h"
#include "tcp/rcv.h"
#include "tcp/recovery.h"

#include <string.h>

/* Linux's TCPI_OPT_* */
#define OPT_TIMESTAMPS 1u
#define OPT_SACK 2u
#define OPT_WSCALE 4u
#define OPT_ECN 8u

static uint32_t us(int64_t ns)
{
	return ns <= 0 ? 0 : (uint32_t)PV_MIN(ns / 1000, (int64_t)UINT32_MAX);
}

/* Linux counts from the start of the machine's clock what never was. */
static uint32_t ms_since(int64_t then_ns, int64_t now_ns)
{
	return (uint32_t)PV_MIN(PV_MAX(now_ns - then_ns, 0) / PV_NS_PER_MS, (int64_t)UINT32_MAX);
}

/* What a listener has of it. */
static void info_listen(const struct pv_tcp *c, struct pv_tcp_info *o)
{
	o->unacked = c->listen->naccept;
	o->sacked = c->listen->backlog;
	o->snd_cwnd = PV_TCP_INIT_CWND;
	o->reordering = PV_TCP_REORDERING;
	o->pacing_rate = o->max_pacing_rate = c->opts.pacing_rate;
}

/* Nothing has been set up yet, or not again. */
static void info_unused(struct pv_tcp_info *o)
{
	o->rto_us = (uint32_t)(PV_TCP_SYN_TIMEOUT_NS / PV_NS_PER_US);
	o->rttvar_us = o->rto_us / 4;
	o->min_rtt_us = UINT32_MAX;
	o->snd_mss = o->snd_mss ? o->snd_mss : PV_TCP_MSS_DEFAULT;
	o->snd_ssthresh = PV_TCP_SSTHRESH_INF;
	o->snd_cwnd = PV_TCP_INIT_CWND;
	o->reordering = PV_TCP_REORDERING;
}

static void info_send(const struct pv_tcp *c, struct pv_tcp_info *o)
{
	bool synchronized = c->state != PV_TCP_CLOSED && c->state != PV_TCP_SYN_SENT && c->state != PV_TCP_SYN_RCVD;

	o->ca_state = c->ca;
	o->retransmits = c->retransmits;
	o->probes = c->probes_out;
	o->backoff = c->backoff;
	o->rto_us = us(pv_tcp_rto_ns(c, c->t->cfg.rto_max_ns));
	o->snd_mss = c->mss;
	o->unacked = c->in_flight;
	o->sacked = c->sacked;
	o->lost = c->lost;
	o->retrans = c->retrans;
	o->rtt_us = us(c->srtt_ns);
	o->rttvar_us = us((c->srtt_ns ? c->mdev_ns : PV_TCP_SYN_TIMEOUT_NS) / 4);
	o->min_rtt_us = c->min_rtt_ns == PV_NEVER ? UINT32_MAX : us(c->min_rtt_ns);
	o->snd_ssthresh = c->ssthresh;
	o->snd_cwnd = c->cwnd;
	o->reordering = c->reordering;
	o->reord_seen = c->reord_seen;
	o->total_retrans = c->total_retrans;
	o->notsent_bytes = pv_tcp_outq_nsd(c);
	o->snd_wnd = c->snd_wnd;
	o->dsack_dups = c->dsack_dups;
	o->pacing_rate = c->opts.pacing_rate ? PV_MAX(c->pacing_rate, c->opts.pacing_rate) : UINT64_MAX;
	o->max_pacing_rate = c->opts.pacing_rate;
	o->bytes_acked = c->bytes_acked;
	o->bytes_sent = c->bytes_sent;
	o->bytes_retrans = c->bytes_retrans;
	o->segs_out = c->segs_out;
	o->data_segs_out = c->data_segs_out;
	/* The SYN is one as well. */
	o->delivered = c->delivered + (c->delivered || synchronized);
	o->delivered_ce = c->delivered_ce;
	o->delivery_rate = pv_tcp_rate(c);
	o->rate_app_limited = c->rate_limited || !c->rate_ticks;
}

/* Nobody answered the SYN: to Linux it is a segment as any other, and what the answer would begin has not begun. */
static void info_syn(const struct pv_tcp *c, struct pv_tcp_info *o)
{
	o->unacked = c->state == PV_TCP_SYN_SENT;
	o->backoff = o->unacked ? o->backoff : 0;
	o->rcv_mss = PV_RCV_MSS_MIN;
	o->rcv_space = 0;
	if (!c->retransmits)
		return;
	o->ca_state = PV_CA_LOSS;
	o->lost = o->retrans = o->snd_cwnd = 1;
}

static void info_busy(const struct pv_tcp *c, struct pv_tcp_info *o, int64_t now_ns)
{
	int64_t ns[PV_BUSY_COUNT];

	memcpy(ns, c->busy_ns, sizeof(ns));
	ns[c->busy] += now_ns;
	o->busy_time_us = (uint64_t)((ns[PV_BUSY] + ns[PV_BUSY_RWND] + ns[PV_BUSY_SNDBUF]) / 1000);
	o->rwnd_limited_us = (uint64_t)(ns[PV_BUSY_RWND] / 1000);
	o->sndbuf_limited_us = (uint64_t)(ns[PV_BUSY_SNDBUF] / 1000);
}

void pv_tcp_get_info(const struct pv_tcp *c, struct pv_tcp_info *out, int64_t now_ns)
{
	struct pv_tcp_info *o = out;

	memset(o, 0, sizeof(*o));
	o->state = c->state;
	if (c->state == PV_TCP_LISTEN) {
		info_listen(c, o);
		return;
	}
	o->options = (uint8_t)((c->flags & PV_TF_TS ? OPT_TIMESTAMPS : 0) | (c->flags & PV_TF_SACK ? OPT_SACK : 0) |
			       (c->flags & PV_TF_WS ? OPT_WSCALE : 0) | (c->flags & PV_TF_ECN ? OPT_ECN : 0));
	if (c->flags & PV_TF_WS) {
		o->snd_wscale = c->snd_wscale;
		o->rcv_wscale = c->rcv_wscale;
	}
	info_send(c, o);
	if (!c->rto_ns)
		info_unused(o);
	info_busy(c, o, now_ns);
	o->ato_us = PV_MIN(c->ato_us, us(c->t->cfg.delack_max_ns));
	o->rcv_mss = c->rcv_mss;
	o->last_data_sent_ms = ms_since(c->last_data_sent_ns, now_ns);
	o->last_data_recv_ms = ms_since(c->last_data_rcvd_ns, now_ns);
	o->last_ack_recv_ms = ms_since(c->last_ack_rcvd_ns, now_ns);
	o->pmtu = c->pmtu;
	o->rcv_ssthresh = c->rcv_ssthresh;
	o->total_rto = c->total_rto;
	o->rto_recoveries = c->rto_recoveries;
	o->rto_time_ms = c->rto_time_ms + (c->rto_since_ms ? pv_tcp_ms(now_ns) - c->rto_since_ms : 0);
	o->advmss = c->advmss - (c->flags & PV_TF_TS ? PV_TCP_TS_LEN : 0u);
	o->rcv_rtt_us = us(c->rcv_rtt_ns);
	o->rcv_space = c->rcv_space;
	o->rcv_ooopack = c->rcv_ooopack;
	o->rcv_wnd = pv_seq_dist(c->rcv_wup, c->rcv_adv);
	o->bytes_received = c->bytes_received;
	o->segs_in = c->segs_in;
	o->data_segs_in = c->data_segs_in;
	if (c->state == PV_TCP_SYN_SENT || (c->state == PV_TCP_CLOSED && c->rto_ns && pv_seq_eq(c->snd_una, c->iss)))
		info_syn(c, o);
}
