/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connection tells of itself with each stamp (SOF_TIMESTAMPING_OPT_STATS, SCM_TIMESTAMPING_OPT_STATS): Linux's list of netlink
 * attributes, in its order and with its alignment (tcp_get_timestamping_opt_stats). The values are those of TCP_INFO at that moment.
 */
#include "tcp/tcp_int.h"

#include <string.h>

/* TCP_NLA_* */
enum {
	BUSY = 1,
	RWND_LIMITED,
	SNDBUF_LIMITED,
	DATA_SEGS_OUT,
	TOTAL_RETRANS,
	PACING_RATE,
	DELIVERY_RATE,
	SND_CWND,
	REORDERING,
	MIN_RTT,
	RECUR_RETRANS,
	DELIVERY_RATE_APP_LMT,
	SNDQ_SIZE,
	CA_STATE,
	SND_SSTHRESH,
	DELIVERED,
	DELIVERED_CE,
	BYTES_SENT,
	BYTES_RETRANS,
	DSACK_DUPS,
	REORD_SEEN,
	SRTT,
	TIMEOUT_REHASH,
	BYTES_NOTSENT,
	EDT,
	TTL,
	REHASH,
};

#define HEADER 4u

/* `size` bytes of a number, and zeroes up to the next word. */
static uint8_t *put(uint8_t *at, uint16_t type, uint64_t value, uint16_t size)
{
	uint16_t len = (uint16_t)(HEADER + size);

	memset(at, 0, HEADER + 4);
	memcpy(at, &len, sizeof(len));
	memcpy(at + 2, &type, sizeof(type));
	memcpy(at + HEADER, &value, size);
	return at + HEADER + (size < 4 ? 4 : size);
}

static uint8_t *put64(uint8_t *at, uint16_t type, uint64_t value)
{
	return put(at, type, value, sizeof(value));
}

static uint8_t *put32(uint8_t *at, uint16_t type, uint32_t value)
{
	return put(at, type, value, sizeof(value));
}

static uint8_t *put8(uint8_t *at, uint16_t type, uint8_t value)
{
	return put(at, type, value, sizeof(value));
}

/* Linux counts a segment before it goes, we when it has gone. */
static void count_leaving(const struct pv_tcp_seg *s, struct pv_tcp_info *i)
{
	i->data_segs_out++;
	i->bytes_sent += s->len;
	if (!s->tx_count)
		return;
	i->total_retrans++;
	i->bytes_retrans += s->len;
}

static uint8_t ttl_of(const struct pv_tcp *c, const struct pv_pkt *pkt)
{
	struct pv_rx_info info;

	pv_net_rx_info(c->t->net, pkt, &info);
	return info.ttl;
}

uint32_t pv_tcp_stamp_stats(void *owner, uint8_t *out)
{
	const struct pv_tcp *c = owner;
	const struct pv_tcp_stamps *st = c->stamps;
	int64_t now_ns = c->t->head.now_ns, edt_ns = c->tx_last_ns;
	struct pv_tcp_info i;
	uint8_t *at = out;

	pv_tcp_get_info(c, &i, now_ns);
	if (st->leaving) {
		count_leaving(st->leaving, &i);
		edt_ns = now_ns;
	} else if (st->acked) {
		edt_ns = st->acked->tx_ns;
	}
	at = put64(at, BUSY, i.busy_time_us);
	at = put64(at, RWND_LIMITED, i.rwnd_limited_us);
	at = put64(at, SNDBUF_LIMITED, i.sndbuf_limited_us);
	at = put64(at, DATA_SEGS_OUT, i.data_segs_out);
	at = put64(at, TOTAL_RETRANS, i.total_retrans);
	at = put64(at, PACING_RATE, i.pacing_rate);
	at = put64(at, DELIVERY_RATE, i.delivery_rate);
	at = put32(at, SND_CWND, i.snd_cwnd);
	at = put32(at, REORDERING, i.reordering);
	at = put32(at, MIN_RTT, i.min_rtt_us);
	at = put8(at, RECUR_RETRANS, i.retransmits);
	at = put8(at, DELIVERY_RATE_APP_LMT, i.rate_app_limited);
	at = put32(at, SND_SSTHRESH, i.snd_ssthresh);
	at = put32(at, DELIVERED, i.delivered);
	at = put32(at, DELIVERED_CE, i.delivered_ce);
	at = put32(at, SNDQ_SIZE, pv_seq_dist(c->snd_una, c->write_seq));
	at = put8(at, CA_STATE, i.ca_state);
	at = put64(at, BYTES_SENT, i.bytes_sent);
	at = put64(at, BYTES_RETRANS, i.bytes_retrans);
	at = put32(at, DSACK_DUPS, i.dsack_dups);
	at = put32(at, REORD_SEEN, i.reord_seen);
	at = put32(at, SRTT, i.rtt_us);
	at = put(at, TIMEOUT_REHASH, 0, sizeof(uint16_t));
	at = put32(at, BYTES_NOTSENT, i.notsent_bytes);
	at = put64(at, EDT, (uint64_t)edt_ns);
	if (st->by && st->by->pkt)
		at = put8(at, TTL, ttl_of(c, st->by->pkt));
	at = put32(at, REHASH, 0);
	return (uint32_t)(at - out);
}
