/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP_INFO (tcp_get_info of Linux). */
#include "sock/stream.h"

#include <errno.h>
#include <linux/tcp.h>
#include <string.h>

/* Linux 6.18's struct: headers of the build may end with tcpi_snd_wnd. What has no meaning here (rehash, accecn) stays 0. */
struct info {
	char known[232];
	uint32_t rcv_wnd, rehash;
	uint16_t total_rto, rto_recoveries;
	uint32_t rto_time, accecn[8];
};
_Static_assert(sizeof(struct info) == 280, "as Linux has it");

/* What all headers know. */
static void fill(struct tcp_info *t, const struct pv_tcp_info *i)
{
	t->tcpi_state = i->state;
	t->tcpi_ca_state = i->ca_state;
	t->tcpi_retransmits = i->retransmits;
	t->tcpi_probes = i->probes;
	t->tcpi_backoff = i->backoff;
	t->tcpi_options = i->options;
	t->tcpi_snd_wscale = i->snd_wscale & 15u;
	t->tcpi_rcv_wscale = i->rcv_wscale & 15u;
	t->tcpi_rto = i->rto_us;
	t->tcpi_ato = i->ato_us;
	t->tcpi_snd_mss = i->snd_mss;
	t->tcpi_rcv_mss = i->rcv_mss;
	t->tcpi_unacked = i->unacked;
	t->tcpi_sacked = i->sacked;
	t->tcpi_lost = i->lost;
	t->tcpi_retrans = i->retrans;
	t->tcpi_fackets = i->fackets;
	t->tcpi_last_data_sent = i->last_data_sent_ms;
	t->tcpi_last_data_recv = i->last_data_recv_ms;
	t->tcpi_last_ack_recv = i->last_ack_recv_ms;
	t->tcpi_pmtu = i->pmtu;
	t->tcpi_rcv_ssthresh = i->rcv_ssthresh;
	t->tcpi_rtt = i->rtt_us;
	t->tcpi_rttvar = i->rttvar_us;
	t->tcpi_snd_ssthresh = i->snd_ssthresh;
	t->tcpi_snd_cwnd = i->snd_cwnd;
	t->tcpi_advmss = i->advmss;
	t->tcpi_reordering = i->reordering;
	t->tcpi_rcv_rtt = i->rcv_rtt_us;
	t->tcpi_rcv_space = i->rcv_space;
	t->tcpi_total_retrans = i->total_retrans;
	t->tcpi_pacing_rate = i->pacing_rate;
	t->tcpi_max_pacing_rate = i->max_pacing_rate;
	t->tcpi_bytes_acked = i->bytes_acked;
	t->tcpi_bytes_received = i->bytes_received;
	t->tcpi_segs_out = i->segs_out;
	t->tcpi_segs_in = i->segs_in;
	t->tcpi_notsent_bytes = i->notsent_bytes;
	t->tcpi_min_rtt = i->min_rtt_us;
	t->tcpi_data_segs_in = i->data_segs_in;
	t->tcpi_data_segs_out = i->data_segs_out;
	t->tcpi_busy_time = i->busy_time_us;
	t->tcpi_rwnd_limited = i->rwnd_limited_us;
	t->tcpi_sndbuf_limited = i->sndbuf_limited_us;
	t->tcpi_delivery_rate = i->delivery_rate;
	t->tcpi_delivery_rate_app_limited = i->rate_app_limited;
	t->tcpi_delivered = i->delivered;
	t->tcpi_delivered_ce = i->delivered_ce;
	t->tcpi_bytes_sent = i->bytes_sent;
	t->tcpi_bytes_retrans = i->bytes_retrans;
	t->tcpi_dsack_dups = i->dsack_dups;
	t->tcpi_reord_seen = i->reord_seen;
	t->tcpi_rcv_ooopack = i->rcv_ooopack;
	t->tcpi_snd_wnd = i->snd_wnd;
}

int pv_stream_info(const struct pv_sock *so, void *out, socklen_t *len)
{
	struct pv_tcp_info i;
	struct tcp_info t = { 0 };
	struct info all = { 0 };

	if ((int)*len < 0)
		return -EINVAL;
	pv_tcp_get_info(so->tc, &i, pv_clock_now(&pv_engine.clock));
	fill(&t, &i);
	all.rcv_wnd = i.rcv_wnd;
	all.total_rto = i.total_rto;
	all.rto_recoveries = i.rto_recoveries;
	all.rto_time = i.rto_time_ms;
	memcpy(all.known, &t, sizeof(all.known));
	*len = PV_MIN(*len, (socklen_t)sizeof(all));
	memcpy(out, &all, *len);
	return 0;
}
