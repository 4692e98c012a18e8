/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames from outside into a whole stack over the sim ring: sockets of both families, groups, a connected socket, error queues, sends
 * that wait for neighbours. The input is a script: an operation, its arguments, and so on. Frames are raw bytes, or built from
 * fields with lengths and checksums put right so that the deep ends are reached. At the end every packet and byte must be back.
 */
#include "base/cksum.h"
#include "fuzz.h"
#include "wire/udp.h"
#include "world.h"

#define SOCKS 5

struct fuzz {
	struct world w;
	struct pv_udp *u[SOCKS];
	struct script s;
};

/* ---- sockets ----------------------------------------------------------------------------------------------------------- */

static struct pv_addr group(bool four)
{
	struct pv_addr six = { .b = { 0xff, 0x15, [15] = 7 } };

	return four ? ip4(239, 0, 0, 7) : six;
}

static struct pv_addr peer(struct fuzz *f, bool four)
{
	uint8_t n = script_8(&f->s);

	switch (n & 7) {
	case 0:
		return four ? ip4(10, 0, 0, 1) : ip6(1);
	case 1:
		return group(four);
	case 2:
		return four ? ip4(10, 0, 0, 255) : ll6(9);
	case 3:
		return four ? ip4(192, 0, 2, n) : (struct pv_addr){ .b = { 0x20, 1, [15] = n } };
	default:
		return four ? ip4(10, 0, 0, 9) : ip6(9);
	}
}

static void open_sock(struct fuzz *f, uint32_t i)
{
	bool four = i & 1;
	struct pv_endpoint e = ep(four ? any4() : any6(), (uint16_t)(7000 + i / 2));
	struct pv_addr g = group(four);
	struct pv_udp_opts *o;

	f->u[i] = sock_open(&f->w, 0, four ? PV_AF_INET : PV_AF_INET6);
	o = pv_udp_options(f->u[i]);
	o->reuse_addr = o->broadcast = true;
	o->recverr4 = o->recverr6 = i & 2;
	o->rcvbuf = 20000;
	pv_udp_options_changed(f->u[i]);
	CHECK_EQ(pv_udp_bind(f->u[i], &e), 0);
	if (i < 3)
		CHECK_EQ(pv_udp_join(f->u[i], 1, &g, NULL, f->w.now), 0);
}

static void sock_op(struct fuzz *f)
{
	static uint8_t buf[70000];
	uint8_t which = script_8(&f->s);
	uint32_t i = (which & 15) % SOCKS;
	struct pv_udp *u = f->u[i];
	bool four = i & 1 || (which & 0x10);
	struct pv_endpoint e = ep(peer(f, four), (uint16_t)(7000 + script_8(&f->s) % 4));
	struct pv_addr g = group(four);
	struct pv_udp_recv msg = { 0 };
	struct pv_udp_errq eq;
	struct pv_pkt *pkt;

	switch (script_8(&f->s) % 10) {
	case 0:
		(void)sock_send(&f->w, u, &e, buf, script_16(&f->s));
		break;
	case 1:
		(void)sock_send(&f->w, u, NULL, buf, script_8(&f->s));
		break;
	case 2:
		(void)sock_recv(u, buf, script_16(&f->s), &msg);
		break;
	case 3:
		pkt = pv_udp_take(u, &msg);
		if (pkt)
			pv_pkt_put(pkt);
		break;
	case 4:
		(void)pv_udp_errq_get(u, &eq);
		(void)pv_udp_error(u);
		break;
	case 5:
		(void)pv_udp_connect(u, script_8(&f->s) & 1 ? &e : NULL, f->w.now);
		break;
	case 6:
		(void)pv_udp_join(u, 1, &g, script_8(&f->s) & 1 ? &e.addr : NULL, f->w.now);
		break;
	case 7:
		(void)pv_udp_leave(u, 1, &g, script_8(&f->s) & 1 ? &e.addr : NULL, f->w.now);
		break;
	case 8:
		(void)pv_udp_block(u, 1, &g, &e.addr, f->w.now);
		break;
	default:
		pv_udp_close(u);
		open_sock(f, i);
		break;
	}
}

/* ---- frames ------------------------------------------------------------------------------------------------------------ */

static void inject(struct fuzz *f, struct pv_pkt *p)
{
	struct pv_ring *r = f->w.host[1].ring;
	struct pv_pkt *back[4];

	p->total = p->len;
	if (pv_ring_tx_post(r, &p, 1) != 1)
		pv_pkt_put(p);
	(void)pv_ring_tx_kick(r);
	while (pv_ring_tx_reap(r, back, 1))
		pv_pkt_put(back[0]);
	pv_stack_poll(f->w.host[0].stack, f->w.now, 64);
}

static uint32_t l2(struct fuzz *f, uint8_t *p, uint16_t type)
{
	uint8_t dst = script_8(&f->s);
	static const uint8_t own[6] = { 2, 0, 0, 0, 0, 1 }, from[6] = { 2, 0, 0, 0, 0, 9 };

	memcpy(p, own, 6);
	if (dst & 0x80)
		memset(p, dst & 1 ? 0xff : 0x33, 6);
	memcpy(p + 6, from, 6);
	if (dst & 0x40) {
		pv_put16(p + 12, 0x8100);
		pv_put16(p + 14, dst & 0x3f);
		pv_put16(p + 16, type);
		return 18;
	}
	pv_put16(p + 12, type);
	return 14;
}

static void put_addr(uint8_t *p, const struct pv_addr *a, bool four)
{
	memcpy(p, four ? a->b + 12 : a->b, four ? 4 : 16);
}

/* IPv4 with options, fragments, any protocol. Returns the offset of the payload. */
static uint32_t ip4_head(struct fuzz *f, uint8_t *ip, uint8_t proto, uint32_t payload)
{
	uint8_t flags = script_8(&f->s), opts = flags & 8 ? (script_8(&f->s) % 11) * 4 : 0;
	struct pv_addr src = ip4(10, 0, 0, 9), dst = peer(f, true);

	memset(ip, 0, 20);
	ip[0] = (uint8_t)(0x40 | (5 + opts / 4));
	pv_put16(ip + 2, (uint16_t)(20 + opts + payload));
	pv_put16(ip + 4, flags & 7);
	if (flags & 0x10)
		pv_put16(ip + 6, script_16(&f->s) & 0x3fff);
	ip[8] = 64;
	ip[9] = proto;
	if (flags & 0x20)
		src = peer(f, true);
	if (flags & 0x40)
		dst = ip4(10, 0, 0, 1);
	put_addr(ip + 12, &src, true);
	put_addr(ip + 16, &dst, true);
	for (uint32_t i = 0; i < opts; i++)
		ip[20 + i] = script_8(&f->s);
	pv_cksum_put(ip + 10, pv_cksum_finish(pv_cksum_add(ip, 20u + opts, 0)));
	return 20u + opts;
}

/* IPv6 with up to three extension headers. */
static uint32_t ip6_head(struct fuzz *f, uint8_t *ip, uint8_t proto, uint32_t payload)
{
	static const uint8_t kinds[] = { 0, 43, 44, 60 };
	uint8_t flags = script_8(&f->s);
	struct pv_addr src = flags & 0x20 ? peer(f, false) : ip6(9), dst = flags & 0x40 ? ip6(1) : peer(f, false);
	uint8_t *next = ip + 6;
	uint32_t off = 40;

	memset(ip, 0, 40);
	ip[0] = 0x60;
	ip[7] = flags & 0x80 ? 255 : 64;
	put_addr(ip + 8, &src, false);
	put_addr(ip + 24, &dst, false);
	for (uint32_t n = flags & 3; n; n--) {
		*next = kinds[(flags >> 2) & 3];
		next = ip + off;
		for (uint32_t i = 1; i < 8; i++)
			ip[off + i] = script_8(&f->s);
		if (kinds[(flags >> 2) & 3] != 44)
			ip[off + 1] = 0;
		off += 8;
	}
	*next = proto;
	pv_put16(ip + 4, (uint16_t)(off - 40 + payload));
	return off;
}

static void l4_csum(uint8_t *ip, uint8_t *l4, uint32_t len, uint8_t proto, uint32_t field)
{
	uint64_t sum;

	if (len < field + 2)
		return;
	pv_cksum_put(l4 + field, 0);
	sum = pv_cksum_add(l4, len, 0);
	if (ip[0] >> 4 == 6)
		sum = pv_cksum_merge(sum, pv_cksum_pseudo6(ip + 8, ip + 24, proto, len));
	else if (proto == 17)
		sum = pv_cksum_merge(sum, pv_cksum_pseudo4(pv_addr_from4(ip + 12).w[3], pv_addr_from4(ip + 16).w[3], proto, len));
	pv_cksum_put(l4 + field, pv_cksum_finish(sum));
}

/* An IP packet around bytes of the script; for UDP with a header that names one of our ports. */
static void packet(struct fuzz *f, bool four, uint8_t proto)
{
	struct pv_pkt *p = pv_pkt_get(f->w.host[1].pool);
	uint8_t l4[1400], *ip;
	uint32_t n, off;

	if (!p)
		return;
	n = proto == 17 ? PV_UDP_HLEN + script_bytes(&f->s, l4 + PV_UDP_HLEN, 1300) : script_bytes(&f->s, l4, 1300);
	if (proto == 17) {
		uint8_t port = script_8(&f->s);

		pv_wire_udp_emit(l4, (uint16_t)(7000 + (port & 3)), (uint16_t)(7000 + (port >> 4 & 3)),
				 (uint16_t)(n - (port >> 7)));
	}
	p->len = l2(f, p->data, four ? 0x800 : 0x86dd);
	ip = p->data + p->len;
	off = four ? ip4_head(f, ip, proto, n) : ip6_head(f, ip, proto, n);
	memcpy(ip + off, l4, n);
	l4_csum(ip, ip + off, n, proto, proto == 17 ? 6 : 2);
	p->len += off + n;
	inject(f, p);
}

/* An ICMP error about a datagram that one of our sockets may have sent. */
static void icmp_error(struct fuzz *f, bool four)
{
	struct pv_pkt *p = pv_pkt_get(f->w.host[1].pool);
	struct pv_addr us = four ? ip4(10, 0, 0, 1) : ip6(1), to;
	uint8_t *ip, *icmp, *q;
	uint32_t off, n;

	if (!p)
		return;
	p->len = l2(f, p->data, four ? 0x800 : 0x86dd);
	ip = p->data + p->len;
	n = 8 + (four ? 20 : 40) + 8;
	off = four ? ip4_head(f, ip, 1, n) : ip6_head(f, ip, 58, n);
	icmp = ip + off;
	memset(icmp, 0, n);
	icmp[0] = script_8(&f->s);
	icmp[1] = script_8(&f->s);
	pv_put32(icmp + 4, script_16(&f->s));
	q = icmp + 8;
	to = peer(f, four);
	if (four) {
		q[0] = 0x45;
		pv_put16(q + 2, (uint16_t)(28 + script_8(&f->s)));
		q[9] = 17;
		put_addr(q + 12, &us, true);
		put_addr(q + 16, &to, true);
		q += 20;
	} else {
		q[0] = 0x60;
		pv_put16(q + 4, 8);
		q[6] = 17;
		put_addr(q + 8, &us, false);
		put_addr(q + 24, &to, false);
		q += 40;
	}
	pv_wire_udp_emit(q, (uint16_t)(7000 + script_8(&f->s) % 4), (uint16_t)(7000 + script_8(&f->s) % 4), 8);
	l4_csum(ip, icmp, n, four ? 1 : 58, 2);
	p->len += off + n;
	inject(f, p);
}

static void arp(struct fuzz *f)
{
	struct pv_pkt *p = pv_pkt_get(f->w.host[1].pool);
	static const uint8_t head[] = { 0, 1, 8, 0, 6, 4, 0 };
	struct pv_addr a, b;

	if (!p)
		return;
	p->len = l2(f, p->data, 0x806);
	memcpy(p->data + p->len, head, sizeof(head));
	memset(p->data + p->len + 7, 2, 21);
	p->data[p->len + 7] = script_8(&f->s) % 4;
	a = peer(f, true);
	b = peer(f, true);
	put_addr(p->data + p->len + 14, &a, true);
	put_addr(p->data + p->len + 24, &b, true);
	p->len += 28;
	inject(f, p);
}

static void raw(struct fuzz *f)
{
	struct pv_pkt *p = pv_pkt_get(f->w.host[1].pool);

	if (!p)
		return;
	p->len = script_bytes(&f->s, p->data, 1514);
	inject(f, p);
}

static void step(struct fuzz *f)
{
	switch (script_8(&f->s) % 14) {
	case 0:
		raw(f);
		break;
	case 1:
	case 2:
		packet(f, true, 17);
		break;
	case 3:
	case 4:
		packet(f, false, 17);
		break;
	case 5:
		packet(f, true, 1);
		break;
	case 6:
		packet(f, false, 58);
		break;
	case 7:
		packet(f, true, 2);
		break;
	case 8:
		packet(f, script_8(&f->s) & 1, script_8(&f->s));
		break;
	case 9:
		icmp_error(f, true);
		break;
	case 10:
		icmp_error(f, false);
		break;
	case 11:
		arp(f);
		break;
	case 12:
		world_run(&f->w, (int64_t)1 << script_8(&f->s) % 37);
		break;
	default:
		sock_op(f);
		break;
	}
}

FUZZ_TARGET(fuzz_stack_rx)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz f;
	struct world_cfg cfg = { .seed = size,
				 .hosts = 2,
				 .pool = 64,
				 .rx_depth = 32,
				 .tx_depth = 32,
				 /* Small tables: opened anew for every input. */
				 .udp = { .sockets_hint = 8 },
				 .net = { .neigh_max = 8, .neigh_queue = 4, .reass_max = 8, .reass_bytes = 40000 } };

	f.s = (struct script){ data, data + size };
	if (script_8(&f.s) & 1)
		cfg.rx_csum = cfg.tx_csum = PV_CSUM_IP4 | PV_CSUM_UDP;
	world_open(&f.w, &cfg);
	/* The far end is the script: nothing answers by itself. */
	f.w.nhosts = 1;
	for (uint32_t i = 0; i < SOCKS; i++)
		open_sock(&f, i);
	while (f.s.p < f.s.end)
		step(&f);
	world_run(&f.w, PV_NS_PER_S);
	for (uint32_t i = 0; i < SOCKS; i++)
		pv_udp_close(f.u[i]);
	f.w.nhosts = 2;
	world_close(&f.w);
	return 0;
}
