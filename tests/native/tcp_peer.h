/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A scripted TCP peer: a real stack (host 0 of a world) on one side of the wire, the test on the other, which crafts every segment and
 * says what it expects back. Time is virtual and moves only in peer_run and peer_expect_in.
 *
 * Sequence numbers are relative: `seq` of what the script sends counts from its own first number, `ack` from the stack's; the other way
 * round for what it expects. SYNs are 0, the first byte is 1. Payload byte k of either direction is peer_byte(k), k being its sequence
 * number. Flags are text: S F R P U, '.' for ACK, E for ECE, W for CWR. When expecting, PSH is compared only if P is asked for.
 *
 *   peer_open(&p, &cfg)  peer_close(&p)       the world; cfg says what the script offers in its SYN (all of MSS, SACK, timestamps,
 *                                              scaling unless told otherwise) and how the stack's table is configured
 *   peer_passive(&p)                           the stack listens at PEER_STACK_PORT and the script connects: p.l, p.c, accepted
 *   peer_active(&p)                            the stack connects and the script answers: p.c
 *   peer_begin(&p, cfg)                        peer_open and peer_passive, and what the stack said so far is forgotten
 *   peer_listen(&p, backlog)                   only the listener p.l
 *   peer_connect(&p)                           only the call: -EINPROGRESS; the SYN waits to be expected
 *   peer_send(&p, "P.", seq, ack, len)         one segment, delivered at once; what the stack answers at this instant can be expected
 *   peer_send_seg(&p, &(struct peer_seg){..})  the same with window, options, ports, TOS, urgent pointer
 *   p.hold                                     while true, what is sent waits; peer_run(&p, 0) then brings it in one batch
 *   peer_ack(&p, ack)                          a pure ACK with the highest seq used so far
 *   peer_sack(&p, ack, n, (uint32_t[]){s,e..}) the same with SACK blocks
 *   peer_expect(&p, "P.", seq, ack, len)       the next segment of the stack; returns it, so that more of it can be checked
 *   peer_expect_in(&p, min, max, ...)          the same, at least `min` and at most `max` ns from now: moves time to it
 *   peer_expect_none(&p)                       nothing is there
 *   peer_next(&p)                              the next segment, NULL: none; peer_skip(&p) forgets all that have come
 *   peer_run(&p, ns)                           time passes
 *   peer_icmp(&p, type, code, mtu, seq)        an ICMP error that quotes a segment of the stack with that sequence number
 *   peer_write(&p, n)  peer_read(&p, n)        the application: send n bytes of the pattern (all are taken); read and compare n bytes
 *   peer_table(&p)                             the stack's table of connections
 *   peer_state(&p)                             p.c's state; after every step the invariants of tcp_check.h hold
 */
#ifndef TCP_PEER_H
#define TCP_PEER_H

#include "tcp_world.h"
#include "wire/eth.h"
#include "wire/icmp4.h"
#include "wire/icmp6.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"

#define PEER_STACK_PORT 80
#define PEER_PORT 4000
#define PEER_QUEUE 512
#define PEER_ISS 0x7ffffff0u /* crosses the sign soon */

struct peer_cfg {
	int family; /* 4 or 6; 0: 4 */
	uint64_t seed;
	uint32_t mtu, pool, rx_depth, tx_depth;
	uint32_t csum; /* PV_CSUM_* that the stack's ring does, both ways */
	uint32_t tso_max; /* of the stack's ring */
	uint32_t txqs, pacing_min_kbps, pacing_max_kbps; /* likewise */
	struct pv_tcp_cfg tcp;
	/* what the script says */
	uint16_t mss; /* 0: by MTU */
	uint16_t wnd; /* 0: 65535 */
	uint8_t wscale; /* 0: 7 */
	bool no_mss, no_sack, no_ts, no_wscale, ecn;
};

struct peer_seg {
	const char *flags; /* of what is sent; NULL: `bits` */
	uint8_t bits; /* PV_TH_* */
	uint32_t seq, ack, len; /* relative */
	uint16_t wnd; /* sending: 0 means the script's, unless zero_wnd */
	bool zero_wnd;
	uint16_t urp;
	uint8_t tos;
	uint16_t sport, dport; /* sending: 0: those of the connection */
	struct pv_addr src; /* sending: any: the script's */
	struct pv_wire_tcp_opts opt; /* sending: timestamps are added when they were agreed on, unless no_ts */
	const uint8_t *raw_opts; /* sending: these bytes instead of `opt` */
	uint8_t raw_len; /* a multiple of 4, 40 at most */
	bool no_ts, bad_csum;
	int64_t at_ns; /* received */
	uint8_t hlen;
	uint32_t off; /* received: payload in `data` */
	uint8_t *data; /* received: the whole frame */
};

struct peer {
	struct world w;
	struct peer_cfg cfg;
	struct pv_addr addr, stack_addr;
	struct pv_tcp *l, *c;
	uint16_t port, stack_port;
	uint32_t irs; /* the stack's first sequence number, once seen */
	uint32_t iss, seq_max; /* the script's; the highest relative seq + space so far */
	bool ts_on;
	uint32_t ts_recent;
	struct peer_seg q[PEER_QUEUE];
	uint32_t head, tail;
	uint32_t written, read; /* relative sequence numbers of the application's next bytes */
	uint64_t seen; /* segments of the stack in all */
	bool hold; /* no turn of the stack for what the script sends */
	bool forget; /* they are looked at, but not kept to be expected */
};

static inline uint8_t peer_byte(uint32_t seq)
{
	return (uint8_t)(seq * 31 + (seq >> 8) * 7 + (seq >> 16));
}

static inline uint8_t peer_flags(const char *text)
{
	static const char names[] = "FSRP.UEW";
	uint8_t bits = 0;

	for (; *text; text++) {
		const char *at = strchr(names, *text);

		CHECK(at);
		bits |= (uint8_t)(1u << (at - names));
	}
	return bits;
}

static inline uint32_t peer_ts_now(const struct peer *p)
{
	return (uint32_t)(p->w.now / PV_NS_PER_MS) + 5000;
}

/* ---- from the stack ---------------------------------------------------------------------------------------------------- */

static inline void peer_store(struct peer *p, const uint8_t *f, uint32_t l4, uint32_t end, uint8_t tos)
{
	struct peer_seg *s = &p->q[p->tail % PEER_QUEUE];
	struct pv_wire_tcp h;

	CHECK(pv_wire_tcp_parse(f + l4, end - l4, &h) > 0);
	if (p->forget)
		p->head = p->tail;
	CHECK(p->tail - p->head < PEER_QUEUE);
	if (h.flags & PV_TH_SYN && h.src_port == p->stack_port && h.dst_port == p->port)
		p->irs = h.seq;
	free(s->data);
	*s = (struct peer_seg){ .bits = h.flags,
				.seq = h.seq - p->irs,
				.ack = h.flags & PV_TH_ACK ? h.ack - p->iss : 0,
				.len = end - l4 - h.hlen,
				.wnd = h.wnd,
				.urp = h.urp,
				.tos = tos,
				.sport = h.src_port,
				.dport = h.dst_port,
				.hlen = h.hlen,
				.off = l4 + h.hlen,
				.at_ns = p->w.now };
	CHECK_EQ(pv_wire_tcp_opts_parse(f + l4, h.hlen, &s->opt), 0);
	for (uint32_t i = 0; i < s->opt.nsack; i++) {
		s->opt.sack[i].start -= p->iss;
		s->opt.sack[i].end -= p->iss;
	}
	if (s->opt.has_ts && h.dst_port == p->port)
		p->ts_recent = s->opt.ts_val;
	s->data = malloc(end);
	CHECK(s->data);
	memcpy(s->data, f, end);
	p->tail++;
	p->seen++;
}

/* Checksums are looked at as any receiver would. Frames that are not TCP over IP are not the script's business. */
static inline void peer_frame(struct peer *p, const uint8_t *f, uint32_t len)
{
	struct pv_wire_eth eth;
	int off = pv_wire_eth_parse(f, len, &eth);
	struct pv_addr src, dst;
	uint32_t l4, end;
	uint8_t tos;

	CHECK(off > 0);
	if (eth.type == PV_ETHERTYPE_IP4) {
		struct pv_wire_ip4 ip;
		int n = pv_wire_ip4_parse(f + off, len - (uint32_t)off, &ip);

		CHECK(n > 0 && pv_wire_ip4_csum_ok(f + off, ip.hdr_len));
		if (ip.proto != PV_PROTO_TCP)
			return;
		src = pv_addr_from4(&ip.src);
		dst = pv_addr_from4(&ip.dst);
		l4 = (uint32_t)(off + n);
		end = (uint32_t)off + ip.total_len;
		tos = ip.tos;
	} else if (eth.type == PV_ETHERTYPE_IP6) {
		struct pv_wire_ip6 ip;

		CHECK(pv_wire_ip6_parse(f + off, len - (uint32_t)off, &ip) > 0);
		if (ip.next != PV_PROTO_TCP)
			return;
		src = pv_addr_from6(ip.src);
		dst = pv_addr_from6(ip.dst);
		l4 = (uint32_t)off + PV_IP6_HLEN;
		end = l4 + ip.payload_len;
		tos = ip.tclass;
	} else {
		return;
	}
	CHECK(pv_cksum_ok(pv_cksum_add(f + l4, end - l4, pv_cksum_pseudo(&src, &dst, PV_PROTO_TCP, end - l4))));
	peer_store(p, f, l4, end, tos);
}

static inline uint32_t peer_collect(struct peer *p)
{
	struct pv_ring *r = p->w.host[1].ring;
	struct pv_pkt *pkt;
	uint32_t n = 0;

	for (; pv_ring_rx_poll(r, &pkt, 1); n++) {
		peer_frame(p, pkt->data, pkt->len);
		pkt->data = pkt->buf + PV_NET_HEADROOM;
		pkt->len = pkt->total = 0;
		CHECK_EQ(pv_ring_rx_post(r, &pkt, 1), 1);
	}
	return n;
}

/* Until `end_ns`, or until the queue is longer than `queued`. */
static inline void peer_run_until(struct peer *p, int64_t end_ns, uint32_t queued)
{
	struct world *w = &p->w;
	uint32_t turns = 0;

	for (;;) {
		int64_t next;
		uint32_t busy;

		(void)pv_net_kick(w->host[0].net);
		busy = pv_stack_poll(w->host[0].stack, w->now, 64);
		tcp_check_host(&w->host[0], w->now);
		busy += peer_collect(p);
		CHECK(++turns < 10000000);
		if (busy)
			continue;
		if (p->tail - p->head > queued)
			return;
		next = PV_MIN(pv_sim_wire_deadline(w->wire), pv_stack_deadline(w->host[0].stack));
		if (next > end_ns)
			break;
		w->now = PV_MAX(w->now, next);
		pv_sim_wire_advance(w->wire, w->now);
	}
	w->now = PV_MAX(w->now, end_ns);
	pv_sim_wire_advance(w->wire, w->now);
}

static inline void peer_run(struct peer *p, int64_t ns)
{
	peer_run_until(p, p->w.now + ns, UINT32_MAX);
}

static inline const struct peer_seg *peer_next(struct peer *p)
{
	return p->head == p->tail ? NULL : &p->q[p->head++ % PEER_QUEUE];
}

static inline void peer_skip(struct peer *p)
{
	p->head = p->tail;
}

static inline void peer_say(const struct peer_seg *s)
{
	fprintf(stderr, "  %" PRId64 ".%06" PRId64 " flags %02x seq %u ack %u len %u wnd %u", s->at_ns / PV_NS_PER_S,
		s->at_ns % PV_NS_PER_S / 1000, s->bits, s->seq, s->ack, s->len, s->wnd);
	for (uint32_t i = 0; i < s->opt.nsack; i++)
		fprintf(stderr, " sack %u-%u", s->opt.sack[i].start, s->opt.sack[i].end);
	fprintf(stderr, "\n");
}

/* Where the script is, for whoever looks at a failure. */
static const char *peer_file = "";
static int peer_line;

static inline void peer_at(const char *file, int line)
{
	peer_file = file;
	peer_line = line;
}

static inline const struct peer_seg *peer_match(struct peer *p, const char *flags, uint32_t seq, uint32_t ack, uint32_t len)
{
	const struct peer_seg *s = peer_next(p);
	uint8_t want = peer_flags(flags), mask = want & PV_TH_PSH ? 0xff : 0xff & ~PV_TH_PSH;

	if (!s) {
		fprintf(stderr, "%s:%d: expected \"%s\" seq %u ack %u len %u, and nothing came\n", peer_file, peer_line, flags, seq,
			ack, len);
		CHECK(s);
	}
	if ((s->bits & mask) != want || s->seq != seq || s->ack != ack || s->len != len) {
		fprintf(stderr, "%s:%d: expected \"%s\" (%02x) seq %u ack %u len %u, got\n", peer_file, peer_line, flags, want, seq,
			ack, len);
		peer_say(s);
		CHECK_EQ(s->bits & mask, want);
		CHECK_EQ(s->seq, seq);
		CHECK_EQ(s->ack, ack);
		CHECK_EQ(s->len, len);
	}
	for (uint32_t i = 0; i < s->len; i++)
		CHECK_EQ(s->data[s->off + i], peer_byte(seq + i));
	return s;
}

#define peer_expect(p, flags, seq, ack, len) (peer_at(__FILE__, __LINE__), peer_match(p, flags, seq, ack, len))
#define peer_expect_in(p, min_ns, max_ns, flags, seq, ack, len)                                                                    \
	(peer_at(__FILE__, __LINE__), peer_wait(p, min_ns, max_ns), peer_match(p, flags, seq, ack, len))
#define peer_expect_none(p) (peer_at(__FILE__, __LINE__), peer_empty(p))

static inline void peer_wait(struct peer *p, int64_t min_ns, int64_t max_ns)
{
	int64_t start = p->w.now;

	CHECK(p->head == p->tail);
	peer_run_until(p, start + max_ns, 0);
	if (p->head == p->tail)
		fprintf(stderr, "%s:%d: nothing came within %" PRId64 " us\n", peer_file, peer_line, max_ns / 1000);
	CHECK(p->head != p->tail);
	if (p->w.now - start < min_ns)
		fprintf(stderr, "%s:%d: came after %" PRId64 " us already\n", peer_file, peer_line, (p->w.now - start) / 1000);
	CHECK(p->w.now - start >= min_ns);
}

static inline void peer_empty(struct peer *p)
{
	if (p->head != p->tail) {
		fprintf(stderr, "%s:%d: expected nothing, got\n", peer_file, peer_line);
		peer_say(&p->q[p->head % PEER_QUEUE]);
	}
	CHECK(p->head == p->tail);
}

/* ---- to the stack ------------------------------------------------------------------------------------------------------- */

static inline uint32_t peer_ip(uint8_t *ip, const struct pv_addr *src, const struct pv_addr *dst, uint8_t proto, uint8_t tos)
{
	if (pv_addr_is4(src)) {
		memset(ip, 0, PV_IP4_HLEN);
		ip[0] = 0x45;
		ip[1] = tos;
		pv_put16(ip + 6, PV_IP4_DF);
		ip[8] = 64;
		ip[9] = proto;
		memcpy(ip + 12, src->b + 12, 4);
		memcpy(ip + 16, dst->b + 12, 4);
		return PV_IP4_HLEN;
	}
	memset(ip, 0, PV_IP6_HLEN);
	ip[0] = (uint8_t)(0x60 | tos >> 4);
	ip[1] = (uint8_t)(tos << 4);
	ip[6] = proto;
	ip[7] = 64;
	memcpy(ip + 8, src->b, 16);
	memcpy(ip + 24, dst->b, 16);
	return PV_IP6_HLEN;
}

static inline void peer_ip_len(uint8_t *ip, uint32_t payload)
{
	if (ip[0] >> 4 == 4) {
		pv_put16(ip + 2, (uint16_t)(PV_IP4_HLEN + payload));
		pv_wire_ip4_csum_fill(ip, PV_IP4_HLEN);
	} else {
		pv_put16(ip + 4, (uint16_t)payload);
	}
}

/* The L2 header of what the script sends; returns the packet, its IP header at data + 14. */
static inline struct pv_pkt *peer_pkt(struct peer *p)
{
	static const uint8_t stack_mac[6] = { 2, 0, 0, 0, 0, 1 }, mac[6] = { 2, 0, 0, 0, 0, 2 };
	struct pv_pkt *pkt = pv_pkt_get(p->w.host[1].pool);

	CHECK(pkt);
	pv_wire_eth_emit(pkt->data, stack_mac, mac, 0, p->cfg.family == 4 ? PV_ETHERTYPE_IP4 : PV_ETHERTYPE_IP6);
	return pkt;
}

static inline void peer_transmit(struct peer *p, struct pv_pkt *pkt)
{
	struct pv_ring *r = p->w.host[1].ring;
	struct pv_pkt *back;

	pkt->total = pkt->len;
	CHECK_EQ(pv_ring_tx_post(r, &pkt, 1), 1);
	(void)pv_ring_tx_kick(r);
	while (pv_ring_tx_reap(r, &back, 1))
		pv_pkt_put(back);
	if (!p->hold)
		peer_run(p, 0);
}

static inline struct pv_wire_tcp_opts peer_opts(const struct peer *p, const struct peer_seg *s)
{
	struct pv_wire_tcp_opts o = s->opt;

	if (!s->no_ts && !o.has_ts && p->ts_on) {
		o.has_ts = true;
		o.ts_val = peer_ts_now(p);
		o.ts_ecr = p->ts_recent;
	}
	for (uint32_t i = 0; i < o.nsack; i++) {
		o.sack[i].start += p->irs;
		o.sack[i].end += p->irs;
	}
	return o;
}

static inline void peer_send_seg(struct peer *p, const struct peer_seg *s)
{
	uint8_t bits = s->flags ? peer_flags(s->flags) : s->bits;
	struct pv_addr src = pv_addr_is_any(&s->src) ? p->addr : s->src;
	struct pv_wire_tcp_opts opt = peer_opts(p, s);
	struct pv_pkt *pkt = peer_pkt(p);
	uint8_t *ip = pkt->data + PV_ETH_HLEN, *t;
	uint32_t n, space = s->len + ((bits & PV_TH_SYN) != 0) + ((bits & PV_TH_FIN) != 0);
	struct pv_wire_tcp h = { .src_port = s->sport ? s->sport : p->port,
				 .dst_port = s->dport ? s->dport : p->stack_port,
				 .seq = p->iss + s->seq,
				 .ack = bits & PV_TH_ACK ? p->irs + s->ack : s->ack,
				 .flags = bits,
				 .urp = s->urp };

	h.wnd = s->zero_wnd ? 0 : s->wnd ? s->wnd : p->cfg.wnd;
	n = peer_ip(ip, &src, &p->stack_addr, PV_PROTO_TCP, s->tos);
	t = ip + n;
	if (s->raw_opts)
		memcpy(t + PV_TCP_HLEN, s->raw_opts, s->raw_len);
	h.hlen = (uint8_t)(PV_TCP_HLEN + (s->raw_opts ? s->raw_len : pv_wire_tcp_opts_emit(t + PV_TCP_HLEN, &opt)));
	pv_wire_tcp_emit(t, &h);
	for (uint32_t i = 0; i < s->len; i++)
		t[h.hlen + i] = peer_byte(s->seq + i);
	peer_ip_len(ip, h.hlen + s->len);
	pv_cksum_put(t + PV_TCP_CSUM_OFF,
		     pv_cksum_finish(
			 pv_cksum_add(t, h.hlen + s->len, pv_cksum_pseudo(&src, &p->stack_addr, PV_PROTO_TCP, h.hlen + s->len))) ^
			 (s->bad_csum ? 0x55 : 0));
	pkt->len = PV_ETH_HLEN + n + h.hlen + s->len;
	if (!s->bad_csum && h.src_port == p->port) {
		if ((int32_t)(s->seq + space - p->seq_max) > 0)
			p->seq_max = s->seq + space;
	}
	peer_transmit(p, pkt);
}

static inline void peer_send(struct peer *p, const char *flags, uint32_t seq, uint32_t ack, uint32_t len)
{
	peer_send_seg(p, &(struct peer_seg){ .flags = flags, .seq = seq, .ack = ack, .len = len });
}

static inline void peer_ack(struct peer *p, uint32_t ack)
{
	peer_send(p, ".", p->seq_max, ack, 0);
}

static inline void peer_sack(struct peer *p, uint32_t ack, uint32_t n, const uint32_t *edges)
{
	struct peer_seg s = { .flags = ".", .seq = p->seq_max, .ack = ack };

	s.opt.nsack = (uint8_t)n;
	for (uint32_t i = 0; i < n; i++) {
		s.opt.sack[i].start = edges[2 * i];
		s.opt.sack[i].end = edges[2 * i + 1];
	}
	peer_send_seg(p, &s);
}

static inline void peer_icmp(struct peer *p, uint8_t type, uint8_t code, uint32_t mtu, uint32_t seq)
{
	struct pv_pkt *pkt = peer_pkt(p);
	uint8_t *ip = pkt->data + PV_ETH_HLEN, *icmp, *quoted;
	bool four = p->cfg.family == 4;
	uint32_t n = peer_ip(ip, &p->addr, &p->stack_addr, four ? PV_PROTO_ICMP : PV_PROTO_ICMP6, 0), q, len;
	uint64_t sum;

	icmp = ip + n;
	memset(icmp, 0, 8);
	icmp[0] = type;
	icmp[1] = code;
	pv_put32(icmp + 4, mtu);
	quoted = icmp + 8;
	q = peer_ip(quoted, &p->stack_addr, &p->addr, PV_PROTO_TCP, 0);
	/* "Too big" is believed of what was longer. */
	peer_ip_len(quoted, PV_TCP_HLEN + (mtu ? mtu : 100));
	pv_wire_tcp_emit(
	    quoted + q,
	    &(struct pv_wire_tcp){
		.src_port = p->stack_port, .dst_port = p->port, .seq = p->irs + seq, .hlen = PV_TCP_HLEN, .flags = PV_TH_ACK });
	len = 8 + q + PV_TCP_HLEN;
	peer_ip_len(ip, len);
	sum = pv_cksum_add(icmp, len, 0);
	if (!four)
		sum = pv_cksum_merge(sum, pv_cksum_pseudo(&p->addr, &p->stack_addr, PV_PROTO_ICMP6, len));
	pv_cksum_put(icmp + 2, pv_cksum_finish(sum));
	pkt->len = PV_ETH_HLEN + n + len;
	peer_transmit(p, pkt);
}

/* ---- the world ----------------------------------------------------------------------------------------------------------- */

static inline void peer_open(struct peer *p, const struct peer_cfg *cfg)
{
	struct world_cfg wc = { .seed = cfg->seed,
				.mtu = cfg->mtu,
				.pool = cfg->pool,
				.rx_depth = cfg->rx_depth,
				.tx_depth = cfg->tx_depth,
				.rx_csum = cfg->csum,
				.tx_csum = cfg->csum,
				.tso_max = cfg->tso_max,
				.txqs = cfg->txqs,
				.pacing_min_kbps = cfg->pacing_min_kbps,
				.pacing_max_kbps = cfg->pacing_max_kbps,
				.tcp = cfg->tcp,
				/* Small tables: opened anew for every case. */
				.udp = { .sockets_hint = 8 },
				.net = { .neigh_max = 64, .reass_max = 16 } };
	static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 2 };
	uint32_t mtu = cfg->mtu ? cfg->mtu : 1500;

	*p = (struct peer){
		.cfg = *cfg, .port = PEER_PORT, .stack_port = PEER_STACK_PORT, .iss = PEER_ISS, .written = 1, .read = 1
	};
	p->cfg.family = cfg->family ? cfg->family : 4;
	p->cfg.mss = cfg->mss ? cfg->mss : (uint16_t)(mtu - (p->cfg.family == 4 ? 40 : 60));
	p->cfg.wnd = cfg->wnd ? cfg->wnd : 65535;
	p->cfg.wscale = cfg->wscale ? cfg->wscale : 7;
	tcp_world_open(&p->w, &wc);
	p->stack_addr = host_addr(p->cfg.family, 1);
	p->addr = host_addr(p->cfg.family, 2);
	CHECK_EQ(pv_net_neigh_add(p->w.host[0].net, p->w.host[0].iface, &p->addr, mac), 0);
	/* The far end is the script: nothing answers by itself. */
	p->w.nhosts = 1;
	peer_run(p, 0);
	peer_skip(p);
}

/* Closes what is open, lets it fade away, and sees that nothing is left. */
static inline void peer_close(struct peer *p)
{
	if (p->c)
		pv_tcp_close(p->c, p->w.now);
	if (p->l)
		pv_tcp_close(p->l, p->w.now);
	p->c = p->l = NULL;
	peer_run(p, PV_NS_PER_S);
	for (uint32_t i = 0; i < PEER_QUEUE; i++)
		free(p->q[i].data);
	p->w.nhosts = 2;
	world_close(&p->w);
}

static inline struct pv_tcp_table *peer_table(const struct peer *p)
{
	return p->w.host[0].tcp;
}

static inline enum pv_family peer_family(const struct peer *p)
{
	return p->cfg.family == 4 ? PV_AF_INET : PV_AF_INET6;
}

/* The options of the script's SYN. */
static inline struct pv_wire_tcp_opts peer_syn_opts(const struct peer *p)
{
	struct pv_wire_tcp_opts o = { .mss = p->cfg.no_mss ? 0 : p->cfg.mss,
				      .has_wscale = !p->cfg.no_wscale,
				      .wscale = p->cfg.wscale,
				      .sack_ok = !p->cfg.no_sack,
				      .has_ts = !p->cfg.no_ts };

	if (o.has_ts) {
		o.ts_val = peer_ts_now(p);
		o.ts_ecr = p->ts_recent;
	}
	return o;
}

static inline void peer_listen(struct peer *p, int backlog)
{
	struct pv_endpoint e = ep(p->cfg.family == 4 ? any4() : any6(), PEER_STACK_PORT);

	CHECK_EQ(pv_tcp_open(p->w.host[0].tcp, peer_family(p), NULL, &p->l), 0);
	CHECK_EQ(pv_tcp_bind(p->l, &e), 0);
	CHECK_EQ(pv_tcp_listen(p->l, backlog), 0);
}

static inline void peer_syn(struct peer *p)
{
	peer_send_seg(p, &(struct peer_seg){ .flags = p->cfg.ecn ? "SEW" : "S", .opt = peer_syn_opts(p), .no_ts = true });
}

static inline void peer_agree(struct peer *p, const struct peer_seg *syn)
{
	p->ts_on = !p->cfg.no_ts && syn->opt.has_ts;
}

static inline void peer_passive(struct peer *p)
{
	const struct peer_seg *s;

	if (!p->l)
		peer_listen(p, 16);
	peer_syn(p);
	s = peer_next(p);
	CHECK(s && (s->bits & ~PV_TH_ECE) == (PV_TH_SYN | PV_TH_ACK) && s->ack == 1);
	peer_agree(p, s);
	peer_send(p, ".", 1, 1, 0);
	CHECK_EQ(pv_tcp_accept(p->l, &p->c), 0);
	CHECK_EQ(pv_tcp_state(p->c), PV_TCP_ESTABLISHED);
}

static inline void peer_begin(struct peer *p, struct peer_cfg cfg)
{
	peer_open(p, &cfg);
	peer_passive(p);
	peer_skip(p);
}

static inline void peer_connect(struct peer *p)
{
	struct pv_endpoint e = ep(p->addr, p->port), local;

	CHECK_EQ(pv_tcp_open(p->w.host[0].tcp, peer_family(p), NULL, &p->c), 0);
	CHECK_EQ(pv_tcp_connect(p->c, &e, p->w.now), -EINPROGRESS);
	pv_tcp_local(p->c, &local);
	p->stack_port = local.port;
	peer_run(p, 0);
}

static inline void peer_syn_ack(struct peer *p)
{
	peer_send_seg(p,
		      &(struct peer_seg){ .flags = p->cfg.ecn ? "S.E" : "S.", .ack = 1, .opt = peer_syn_opts(p), .no_ts = true });
}

static inline void peer_active(struct peer *p)
{
	const struct peer_seg *s;

	peer_connect(p);
	s = peer_next(p);
	CHECK(s && (s->bits & PV_TH_SYN) && !(s->bits & PV_TH_ACK));
	peer_agree(p, s);
	peer_syn_ack(p);
	peer_expect(p, ".", 1, 1, 0);
	CHECK_EQ(pv_tcp_state(p->c), PV_TCP_ESTABLISHED);
}

/* ---- the application ------------------------------------------------------------------------------------------------------ */

static inline int64_t peer_try_write(struct peer *p, uint32_t n, uint32_t flags)
{
	static uint8_t buf[1 << 20];
	struct pv_iov iov = { buf, n };
	int64_t rc;

	CHECK(n <= sizeof(buf));
	for (uint32_t i = 0; i < n; i++)
		buf[i] = peer_byte(p->written + i);
	rc = pv_tcp_send(p->c, &iov, 1, flags, p->w.now);
	if (rc > 0)
		p->written += (uint32_t)rc;
	peer_run(p, 0);
	return rc;
}

static inline void peer_write(struct peer *p, uint32_t n)
{
	CHECK_EQ(peer_try_write(p, n, 0), n);
}

static inline int64_t peer_try_read(struct peer *p, uint32_t n, uint32_t flags)
{
	static uint8_t buf[1 << 20];
	struct pv_iov iov = { buf, n };
	int64_t rc;

	CHECK(n <= sizeof(buf));
	rc = pv_tcp_recv(p->c, &iov, 1, flags, p->w.now);
	for (int64_t i = 0; i < rc && !(flags & (PV_TCP_MSG_TRUNC | PV_TCP_MSG_OOB)); i++)
		CHECK_EQ(buf[i], peer_byte(p->read + (uint32_t)i));
	if (rc > 0 && !(flags & PV_TCP_MSG_PEEK))
		p->read += (uint32_t)rc;
	peer_run(p, 0);
	return rc;
}

static inline void peer_read(struct peer *p, uint32_t n)
{
	CHECK_EQ(peer_try_read(p, n, 0), n);
}

static inline enum pv_tcp_state peer_state(const struct peer *p)
{
	return pv_tcp_state(p->c);
}

#endif
