/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network layer on a bench: one or two rings whose far ends the test holds. What is sent is recorded at once and stays the ring's
 * until it is reaped; bench_close checks that every packet is back in its pool and every byte given back.
 */
#ifndef NET_UTIL_H
#define NET_UTIL_H

#include "base/bytes.h"
#include "base/cksum.h"
#include "net/internal.h"
#include "net/net.h"
#include "ring/frame.h"
#include "ring/own.h"
#include "test.h"
#include "testmem.h"

#define LOG_MAX 4096u
#define FLOW_LOG 256u
#define RINGS 2u
#define MS PV_NS_PER_MS
#define SEC PV_NS_PER_S

struct frame {
	uint8_t *p;
	uint32_t len;
	uint32_t flags;
	uint32_t pieces;
};

struct fake {
	struct pv_ring ring;
	struct pv_ring_stat stat;
	struct pv_pktq held;
	uint32_t depth;
	bool stuck; /* nothing is ever completed */
	struct frame log[LOG_MAX];
	uint32_t head, tail;
	struct pv_flow flow[FLOW_LOG];
	bool flow_on[FLOW_LOG];
	uint32_t nflow;
	int flow_rc; /* what flow_add says, when not 0 */
	uint32_t kicks;
	int kick_rc;
};

struct bench {
	struct testmem mem;
	struct pv_pool *pool[RINGS];
	struct fake *fake[RINGS];
	struct pv_net *net;
	uint32_t iface[RINGS];
	int64_t now;
	struct pv_pkt *pkt; /* the last one handed up */
};

static inline struct fake *fake_of(struct pv_ring *r)
{
	return pv_container_of(r, struct fake, ring);
}

static void fake_close(struct pv_ring *r)
{
	struct fake *f = fake_of(r);
	struct pv_pkt *p;

	while ((p = pv_pktq_pop(&f->held)))
		pv_ring_drop(p);
	for (uint32_t i = 0; i < f->tail; i++)
		free(f->log[i].p);
	free(f);
}

static uint32_t fake_none(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	(void)r;
	(void)pkts;
	(void)n;
	return 0;
}

static uint32_t fake_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct fake *f = fake_of(r);
	uint32_t i;

	for (i = 0; i < n && f->held.count < f->depth; i++) {
		struct frame fr = { .flags = pkts[i]->flags };

		CHECK(f->tail < LOG_MAX);
		for (struct pv_pkt *p = pkts[i]; p; p = p->frag) {
			CHECK(p->data >= p->buf && p->data + p->len <= p->buf + p->size);
			CHECK(p->pool == r->pool);
			fr.len += p->len;
			fr.pieces++;
		}
		CHECK_EQ(fr.len, pkts[i]->total);
		CHECK(fr.pieces <= r->caps.max_sge);
		fr.p = malloc(fr.len);
		fr.len = 0;
		for (struct pv_pkt *p = pkts[i]; p; p = p->frag) {
			memcpy(fr.p + fr.len, p->data, p->len);
			fr.len += p->len;
		}
		pv_frame_fill_csum(fr.p, fr.len, fr.flags);
		f->log[f->tail++] = fr;
		pv_ring_take(pkts[i]);
		pv_pktq_push(&f->held, pkts[i]);
	}
	return i;
}

static int fake_tx_kick(struct pv_ring *r)
{
	fake_of(r)->kicks++;
	return fake_of(r)->kick_rc;
}

static uint32_t fake_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct fake *f = fake_of(r);
	uint32_t i;

	for (i = 0; i < n && f->held.count && !f->stuck; i++) {
		pkts[i] = pv_pktq_pop(&f->held);
		pkts[i]->next = NULL;
		pv_ring_give(pkts[i]);
	}
	return i;
}

static int fake_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	struct fake *f = fake_of(r);
	uint32_t at = f->nflow;

	if (f->flow_rc)
		return f->flow_rc;
	/* In order, until the log is full: then where a rule was removed. */
	for (uint32_t i = 0; at == FLOW_LOG && i < FLOW_LOG; i++)
		at = f->flow_on[i] ? at : i;
	CHECK(at < FLOW_LOG);
	f->flow[at] = *flow;
	f->flow_on[at] = true;
	f->nflow = PV_MAX(f->nflow, at + 1);
	*handle = at;
	return 0;
}

static int fake_flow_del(struct pv_ring *r, uint64_t handle)
{
	struct fake *f = fake_of(r);

	CHECK(handle < f->nflow && f->flow_on[handle]);
	f->flow_on[handle] = false;
	return 0;
}

static const struct pv_ring_ops fake_ops = {
	.kind = "bench",
	.close = fake_close,
	.rx_post = fake_none,
	.rx_poll = fake_none,
	.tx_post = fake_tx_post,
	.tx_kick = fake_tx_kick,
	.tx_reap = fake_tx_reap,
	.flow_add = fake_flow_add,
	.flow_del = fake_flow_del,
};

static const struct pv_ring_ops fake_plain_ops = {
	.kind = "bench without flow rules",
	.close = fake_close,
	.rx_post = fake_none,
	.rx_poll = fake_none,
	.tx_post = fake_tx_post,
	.tx_kick = fake_tx_kick,
	.tx_reap = fake_tx_reap,
};

/* ---- addresses ---------------------------------------------------------------------------------------------------------- */

static inline struct pv_addr ip(const char *text)
{
	unsigned int a, b, c, d;
	uint16_t w[8] = { 0 };
	struct pv_addr out;
	uint8_t v4[4];

	if (sscanf(text, "%u.%u.%u.%u", &a, &b, &c, &d) == 4) {
		v4[0] = (uint8_t)a;
		v4[1] = (uint8_t)b;
		v4[2] = (uint8_t)c;
		v4[3] = (uint8_t)d;
		return pv_addr_from4(v4);
	}
	/* Groups, "::", groups. */
	for (int i = 0, tail = -1; *text || tail >= 0;) {
		if (text[0] == ':' && text[1] == ':') {
			tail = i;
			text += 2;
		}
		if (!*text) {
			int n = i - tail;

			memmove(w + 8 - n, w + tail, (size_t)n * 2);
			memset(w + tail, 0, (size_t)(8 - n - tail) * 2);
			break;
		}
		w[i++] = (uint16_t)strtoul(text, (char **)(uintptr_t)&text, 16);
		if (text[0] == ':' && text[1] != ':')
			text++;
		if (!*text && tail < 0)
			break;
	}
	for (int i = 0; i < 8; i++)
		pv_put16(out.b + (size_t)i * 2, w[i]);
	return out;
}

static const uint8_t peer_mac[6] __attribute__((unused)) = { 2, 0, 0, 0, 0, 2 };

/* ---- the bench ---------------------------------------------------------------------------------------------------------- */

struct bench_cfg {
	struct pv_net_cfg net;
	uint32_t mtu, ring_mtu; /* 0: 1500 */
	uint16_t vlan;
	uint32_t tx_csum;
	uint32_t flow_kinds;
	bool plain; /* no flow rules */
	enum pv_steer steer;
	uint32_t pool, buf; /* 0: 512 packets of 2048 */
	uint32_t max_sge; /* 0: 1 */
	bool only4;
	bool second; /* another interface: 10.1.0.1/16, fd01::1/64 */
};

static inline int bench_iface(struct bench *b, const struct bench_cfg *c, uint32_t i)
{
	struct pv_iface_cfg ic = { .name = "a", .vlan = c->vlan, .mtu = c->mtu, .steer = c->steer, .naddr = c->only4 ? 1 : 2 };
	struct pv_pool_cfg pc = { .buf_size = c->buf ? c->buf : 2048, .headroom = 128, .count = c->pool ? c->pool : 512 };
	struct fake *f = calloc(1, sizeof(*f));

	pc.max = pc.count;
	CHECK(f != NULL);
	CHECK_EQ(pv_pool_open(&b->pool[i], &b->mem.mem, &pc), 0);
	pv_pktq_init(&f->held);
	f->depth = 1024;
	f->ring.stat = &f->stat;
	f->ring.ops = c->plain ? &fake_plain_ops : &fake_ops;
	f->ring.pool = b->pool[i];
	f->ring.caps = (struct pv_ring_caps){ .mtu = c->ring_mtu ? c->ring_mtu : 1500,
					      .batch = 64,
					      .max_sge = c->max_sge ? c->max_sge : 1,
					      .tx_csum = c->tx_csum,
					      .flow_kinds = c->flow_kinds ? c->flow_kinds : 1u << PV_FLOW_ETHER | 1u << PV_FLOW_IP,
					      .link_up = true,
					      .mac = { 2, 0, 0, 0, (uint8_t)i, 1 } };
	b->fake[i] = f;
	ic.name[0] = (char)('a' + i);
	ic.ring = &f->ring;
	if (i == 0) {
		ic.addr[0] = (struct pv_ifaddr){ ip("10.0.0.1"), 24 };
		ic.addr[1] = (struct pv_ifaddr){ ip("fd00::1"), 64 };
		ic.gateway4 = ip("10.0.0.254");
		ic.gateway6 = ip("fd00::254");
		if (c->only4)
			memset(&ic.gateway6, 0, sizeof(ic.gateway6));
	} else {
		ic.addr[0] = (struct pv_ifaddr){ ip("10.1.0.1"), 16 };
		ic.addr[1] = (struct pv_ifaddr){ ip("fd01::1"), 64 };
	}
	return pv_net_iface_add(b->net, &ic);
}

static inline void bench_timers(struct bench *b, int64_t ns)
{
	int64_t until = b->now + ns;

	/* In steps of what is due, so that each timer sees its own time. */
	while (pv_heap_deadline(&b->net->head.timers) <= until) {
		b->now = PV_MAX(b->now, pv_heap_deadline(&b->net->head.timers));
		CHECK(pv_net_timers(b->net, b->now, 64) > 0);
	}
	b->now = until;
}

static inline void bench_forget(struct bench *b)
{
	for (uint32_t i = 0; i < RINGS; i++)
		if (b->fake[i])
			b->fake[i]->head = b->fake[i]->tail;
}

static inline struct bench *bench_open(const struct bench_cfg *cfg)
{
	static const struct bench_cfg none;
	const struct bench_cfg *c = cfg ? cfg : &none;
	struct bench *b = calloc(1, sizeof(*b));
	struct pv_net_cfg nc = c->net;

	CHECK(b != NULL);
	nc.mem = testmem_init(&b->mem);
	nc.seed = 42;
	b->now = 1000 * SEC;
	CHECK_EQ(pv_net_open(&b->net, &nc), 0);
	for (uint32_t i = 0; i < (c->second ? RINGS : 1); i++) {
		int rc = bench_iface(b, c, i);

		CHECK(rc > 0);
		b->iface[i] = (uint32_t)rc;
	}
	/* Announcements and first reports are a test of their own. */
	bench_timers(b, 10 * SEC);
	bench_forget(b);
	return b;
}

static inline void reap_all(struct fake *f)
{
	struct pv_pkt *p;

	f->stuck = false;
	while (fake_tx_reap(&f->ring, &p, 1))
		pv_pkt_put(p);
}

static inline void bench_put(struct bench *b)
{
	if (b->pkt)
		pv_pkt_put(b->pkt);
	b->pkt = NULL;
}

static inline void bench_close(struct bench *b)
{
	bench_put(b);
	pv_net_close(b->net);
	for (uint32_t i = 0; i < RINGS; i++) {
		if (!b->fake[i])
			continue;
		reap_all(b->fake[i]);
		for (uint32_t k = 0; k < b->fake[i]->nflow; k++)
			CHECK(!b->fake[i]->flow_on[k]);
		fake_close(&b->fake[i]->ring);
		CHECK_EQ(pv_pool_close(b->pool[i]), 0);
	}
	CHECK_EQ(b->mem.blocks, 0);
	CHECK_EQ(b->mem.bytes, 0);
	free(b);
}

/* Packets that are neither in the pool nor with the ring. */
static inline uint32_t bench_out(struct bench *b, uint32_t i)
{
	struct pv_pool_stats st;

	pv_pool_get_stats(b->pool[i], &st);
	return st.total - st.free - b->fake[i]->held.count;
}

static inline const struct pv_net_counters *ctr(const struct bench *b)
{
	return pv_net_counters(b->net);
}

/* The peer and the gateway answer without being asked. */
static inline void bench_neighbours(struct bench *b)
{
	static const uint8_t gw[6] = { 2, 0, 0, 0, 0, 0xfe };
	struct pv_addr a[] = { ip("10.0.0.2"), ip("fd00::2"), ip("fe80::ff:fe00:2"), ip("10.0.0.254"), ip("fd00::254") };

	for (uint32_t i = 0; i < pv_array_size(a); i++)
		CHECK_EQ(pv_net_neigh_add(b->net, b->iface[0], &a[i], i < 3 ? peer_mac : gw), 0);
}

/* ---- frames -------------------------------------------------------------------------------------------------------------- */

static inline struct frame vec_frame(const char *name)
{
	static char line[16384];
	struct frame out = { 0 };
	FILE *f = fopen(TEST_DATA "/net.txt", "r");

	CHECK(f != NULL);
	while (!out.p && fgets(line, sizeof(line), f)) {
		char *hex = strchr(line, ' ');

		CHECK(hex != NULL);
		*hex++ = 0;
		if (strcmp(line, name))
			continue;
		out.len = (uint32_t)strspn(hex, "0123456789abcdef") / 2;
		out.p = malloc(out.len);
		for (uint32_t i = 0; i < out.len; i++) {
			unsigned int byte;

			CHECK_EQ(sscanf(hex + 2 * (size_t)i, "%2x", &byte), 1);
			out.p[i] = (uint8_t)byte;
		}
	}
	fclose(f);
	if (!out.p) {
		fprintf(stderr, "no frame %s in net.txt\n", name);
		exit(1);
	}
	return out;
}

static inline enum pv_rx_verdict rx_raw(struct bench *b, uint32_t i, const void *p, uint32_t len, uint32_t flags)
{
	struct pv_pkt *pkt = pv_pkt_get(b->pool[i]);
	enum pv_rx_verdict v;

	bench_put(b);
	CHECK(pkt != NULL);
	CHECK(len <= pv_pkt_tailroom(pkt));
	memcpy(pkt->data, p, len);
	pkt->len = pkt->total = len;
	pkt->flags = flags;
	v = pv_net_rx(b->net, b->iface[i], &pkt, b->now);
	if (v != PV_RX_CONSUMED)
		b->pkt = pkt;
	return v;
}

/* A frame of net.txt with the ring's checksum verdicts `flags`. */
static inline enum pv_rx_verdict rx_flags(struct bench *b, const char *name, uint32_t flags)
{
	struct frame f = vec_frame(name);
	enum pv_rx_verdict v = rx_raw(b, 0, f.p, f.len, flags);

	free(f.p);
	return v;
}

static inline enum pv_rx_verdict rx(struct bench *b, const char *name)
{
	return rx_flags(b, name, 0);
}

static inline uint32_t sent_count(const struct bench *b)
{
	return b->fake[0]->tail - b->fake[0]->head;
}

static inline struct frame *sent(struct bench *b)
{
	struct fake *f = b->fake[0];

	CHECK(f->head < f->tail);
	return &f->log[f->head++];
}

/* Identifications are random: they are taken from the frame under test, and the IPv4 checksum with them must still be good. */
static inline void adopt_id(struct frame *want, const struct frame *got)
{
	uint32_t l3 = pv_get16(want->p + 12) == 0x8100 ? 18 : 14;
	uint16_t type = pv_get16(want->p + l3 - 2);

	if (type == 0x0800 && got->len >= l3 + 20) {
		CHECK(pv_wire_ip4_csum_ok(got->p + l3, (got->p[l3] & 0xfu) * 4));
		memcpy(want->p + l3 + 4, got->p + l3 + 4, 2);
		pv_wire_ip4_csum_fill(want->p + l3, (want->p[l3] & 0xfu) * 4);
	} else if (type == 0x86dd && got->len >= l3 + 48 && want->p[l3 + 6] == 44) {
		memcpy(want->p + l3 + 44, got->p + l3 + 44, 4);
	}
}

static inline void check_frame(const char *name, const struct frame *got)
{
	struct frame want = vec_frame(name);

	adopt_id(&want, got);
	if (want.len != got->len || memcmp(want.p, got->p, want.len)) {
		fprintf(stderr, "%s: %s is not what was sent\nwant ", test_current, name);
		for (uint32_t i = 0; i < want.len; i++)
			fprintf(stderr, "%02x", want.p[i]);
		fprintf(stderr, "\ngot  ");
		for (uint32_t i = 0; i < got->len; i++)
			fprintf(stderr, "%02x", got->p[i]);
		fprintf(stderr, "\n");
		exit(1);
	}
	free(want.p);
}

static inline void check_sent(struct bench *b, const char *name)
{
	check_frame(name, sent(b));
}

/* ---- sending ------------------------------------------------------------------------------------------------------------- */

static inline struct pv_path path_to(struct bench *b, const char *dst)
{
	struct pv_path_query q = { .dst = ip(dst) };
	struct pv_path p;

	CHECK_EQ(pv_net_path(b->net, &q, b->now, &p), 0);
	return p;
}

/* A UDP segment of `len` payload bytes from port 9000 to 7000, in buffers of `piece` bytes (0: as few as possible). */
static inline struct pv_pkt *segment(struct bench *b, const void *payload, uint32_t len, uint32_t piece)
{
	struct pv_pkt *first = NULL, **link = &first;
	uint32_t off = 0, total = len + 8;
	uint8_t *all = malloc(total);

	pv_put16(all, 9000);
	pv_put16(all + 2, 7000);
	pv_put16(all + 4, (uint16_t)total);
	pv_put16(all + 6, 0);
	memcpy(all + 8, payload, len);
	do {
		struct pv_pkt *p = pv_pkt_get(b->pool[0]);

		CHECK(p != NULL);
		p->data = p->buf + PV_NET_HEADROOM;
		p->len = PV_MIN(pv_pkt_tailroom(p), total - off);
		p->len = piece ? PV_MIN(p->len, piece) : p->len;
		memcpy(p->data, all + off, p->len);
		off += p->len;
		*link = p;
		link = &p->frag;
	} while (off < total);
	first->total = total;
	free(all);
	return first;
}

static const struct pv_tx_opts udp_opts __attribute__((unused)) = {
	.proto = PV_PROTO_UDP,
	.ttl = 9,
	.tos = 0x2e,
	.pmtudisc = PV_PMTU_WANT,
	.flow_label = 0xabcde,
	.l4_csum_off = 6,
};

static const char datagram[] __attribute__((unused)) = "what the datagram says";

static inline int send_text(struct bench *b, struct pv_path *path)
{
	return pv_net_tx(b->net, path, &udp_opts, segment(b, datagram, sizeof(datagram) - 1, 0), b->now);
}

#endif
