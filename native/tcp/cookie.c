/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SYN cookies (RFC 4987 3.6), laid out as Linux does: of the 32 bits the upper 8 say in which minute, the lower 24 which MSS, both
 * under a hash of the flow; the peer's own number is added, so that retransmitted SYNs get the same answer within a minute. What the
 * MSS leaves out goes into the lowest 6 bits of the timestamp.
 */
#include "tcp/conn.h"

#define COOKIE_BITS 24u
#define COOKIE_MASK ((UINT32_C(1) << COOKIE_BITS) - 1)
#define PERIOD_NS (60 * PV_NS_PER_S)
#define MAX_AGE 2u /* periods */

#define TS_OPT_WSCALE_MASK 0xfu /* all ones: no scaling */
#define TS_OPT_SACK 0x10u
#define TS_OPT_ECN 0x20u
#define TS_BITS 6u

/* What most hosts say, largest last; each peer gets the next smaller one. */
static const uint16_t mss4[4] = { 536, 1300, 1440, 1460 };
static const uint16_t mss6[4] = { 1220, 1420, 1440, 8940 };

static uint32_t cookie_hash(const struct pv_tcp_table *t, const struct pv_tcp_in *in, uint32_t count, int which)
{
	struct {
		struct pv_addr src, dst;
		uint64_t rest;
	} key = { in->src, in->dst, (uint64_t)in->sport << 48 | (uint64_t)in->dport << 32 | count };

	return (uint32_t)pv_siphash(&t->cookie_key[which], &key, sizeof(key));
}

static uint32_t period(int64_t now_ns)
{
	return (uint32_t)((uint64_t)now_ns / (uint64_t)PERIOD_NS);
}

static const uint16_t *mss_table(const struct pv_tcp_in *in)
{
	return pv_addr_is4(&in->src) ? mss4 : mss6;
}

pv_seq pv_tcp_cookie_make(const struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	const uint16_t *table = mss_table(in);
	uint32_t count = period(in->now_ns), i = pv_array_size(mss4) - 1;

	while (i && in->opt.mss < table[i])
		i--;
	return pv_seq_of(cookie_hash(t, in, 0, 0) + in->seq.v + (count << COOKIE_BITS) +
			 ((cookie_hash(t, in, count, 1) + i) & COOKIE_MASK));
}

/* `in` is the third segment: its numbers are one beyond those of the SYNs. */
uint16_t pv_tcp_cookie_check(const struct pv_tcp_table *t, const struct pv_tcp_in *in)
{
	uint32_t cookie = in->ack.v - 1 - cookie_hash(t, in, 0, 0) - (in->seq.v - 1);
	uint32_t count = period(in->now_ns), age = (count - (cookie >> COOKIE_BITS)) & (UINT32_MAX >> COOKIE_BITS), i;

	if (age >= MAX_AGE)
		return 0;
	i = (cookie - cookie_hash(t, in, count - age, 1)) & COOKIE_MASK;
	return i < pv_array_size(mss4) ? mss_table(in)[i] : 0;
}

uint32_t pv_tcp_cookie_ts(const struct pv_tcp_syn *s, uint32_t now)
{
	uint32_t bits = s->flags & PV_SYN_WS ? s->wscales & 0xfu : TS_OPT_WSCALE_MASK, ts;

	bits |= (s->flags & PV_SYN_SACK ? TS_OPT_SACK : 0) | (s->flags & PV_SYN_ECN ? TS_OPT_ECN : 0);
	ts = (now >> TS_BITS << TS_BITS) | bits;
	/* Never ahead of the clock: the connection's own timestamps are to follow. */
	return (int32_t)(ts - now) > 0 ? ts - (1u << TS_BITS) : ts;
}

void pv_tcp_cookie_ts_read(struct pv_tcp_syn *s, uint32_t echo)
{
	if (echo & TS_OPT_SACK)
		s->flags |= PV_SYN_SACK;
	if (echo & TS_OPT_ECN)
		s->flags |= PV_SYN_ECN;
	if ((echo & TS_OPT_WSCALE_MASK) != TS_OPT_WSCALE_MASK) {
		s->flags |= PV_SYN_WS;
		s->wscales = (uint8_t)((s->wscales & 0xf0u) | (echo & TS_OPT_WSCALE_MASK));
	}
}
