/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams between two stacks: sizes, pieces, ancillary values, queue limits, shutdown, the counters. */
#include "base/bytes.h"
#include "base/cksum.h"
#include "world.h"

static uint8_t out[70000], in[70000];

static void fill(uint32_t len, uint32_t salt)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = (uint8_t)(i * 131 + i / 251 + salt);
}

static void round_trip(struct world *w, struct pv_udp *a, struct pv_udp *b, const struct pv_endpoint *to, uint32_t len)
{
	struct pv_udp_recv msg;

	fill(len, len);
	CHECK_EQ(sock_send(w, a, to, out, len), len);
	world_run(w, PV_NS_PER_MS);
	memset(in, 0xee, len + 1);
	CHECK_EQ(sock_recv(b, in, sizeof(in), &msg), len);
	CHECK_EQ(msg.full_len, len);
	CHECK(!memcmp(in, out, len));
	CHECK_EQ(in[len], len ? 0xee : in[len]);
	CHECK_EQ(msg.from.port, sock_port(a));
	CHECK_EQ(pv_udp_queued(b), 0);
}

static void sizes(int family, const struct world_cfg *cfg)
{
	static const uint32_t around[] = { 0,    1,    2,    7,    8,    17,   18,    19,    63,    64,    65,
					   512,  1231, 1232, 1233, 1452, 1453, 1471,  1472,  1473,  1474,  1480,
					   2000, 2952, 2953, 4096, 8192, 9000, 16384, 30001, 65000, 65506, 65507 };
	enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;
	struct pv_endpoint to = ep(host_addr(family, 2), 7000);
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, cfg);
	a = sock_open(&w, 0, af);
	b = sock_bound(&w, 1, af, host_addr(family, 2), 7000);
	pv_udp_options(b)->rcvbuf = 1 << 20;
	pv_udp_options_changed(b);
	for (uint32_t i = 0; i < pv_array_size(around); i++)
		round_trip(&w, a, b, &to, around[i]);
	for (uint32_t len = 0; len < 3200; len += 37)
		round_trip(&w, a, b, &to, len);
	if (family == 4) {
		CHECK_EQ(sock_send(&w, a, &to, out, 65508), -EMSGSIZE);
	} else {
		round_trip(&w, a, b, &to, 65527);
		CHECK_EQ(sock_send(&w, a, &to, out, 65528), -EMSGSIZE);
	}
	CHECK_EQ(sock_send(&w, a, &to, out, 70000), -EMSGSIZE);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(sizes_ipv4)
{
	sizes(4, &(struct world_cfg){ .seed = 1 });
}

TEST(sizes_ipv6)
{
	sizes(6, &(struct world_cfg){ .seed = 2 });
}

TEST(sizes_with_checksum_offload)
{
	struct world_cfg cfg = { .seed = 3, .rx_csum = PV_CSUM_IP4 | PV_CSUM_UDP, .tx_csum = PV_CSUM_IP4 | PV_CSUM_UDP };

	sizes(4, &cfg);
	sizes(6, &cfg);
}

TEST(sizes_with_a_jumbo_mtu)
{
	sizes(4, &(struct world_cfg){ .seed = 4, .mtu = 9000, .pool = 400 });
	sizes(6, &(struct world_cfg){ .seed = 5, .mtu = 1280 });
}

TEST(to_an_address_of_our_own)
{
	for (int family = 4; family <= 6; family += 2) {
		enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;
		struct pv_endpoint to = ep(host_addr(family, 1), 7000);
		struct pv_udp *a, *b;
		struct world w;

		world_open(&w, &(struct world_cfg){ .seed = 6 });
		a = sock_open(&w, 0, af);
		b = sock_bound(&w, 0, af, host_addr(family, 1), 7000);
		pv_udp_options(b)->rcvbuf = 1 << 20;
		pv_udp_options_changed(b);
		for (uint32_t len = 0; len <= 65507; len = len * 2 + 1)
			round_trip(&w, a, b, &to, len);
		round_trip(&w, a, b, &to, 65507);
		pv_udp_close(a);
		pv_udp_close(b);
		world_close(&w);
	}
}

TEST(gather_and_scatter_in_odd_pieces)
{
	static const size_t cut[] = { 0, 1, 3, 0, 5, 1400, 7, 33, 4000, 1, 0, 2049 };
	struct pv_iov iov[16], riov[16];
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 7 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	fill(sizeof(out), 1);
	for (uint32_t n = 1; n <= pv_array_size(cut); n++) {
		struct pv_udp_send send = { .iov = iov, .iovcnt = n, .to = &to, .ttl = -1, .tos = -1 };
		struct pv_udp_recv recv = { .iov = riov, .iovcnt = n };
		size_t at = 0, rat = 0;

		for (uint32_t i = 0; i < n; i++) {
			iov[i] = (struct pv_iov){ out + at, cut[i] };
			at += cut[i];
			/* Received into the same pieces in reverse. */
			riov[i] = (struct pv_iov){ in + rat, cut[n - 1 - i] };
			rat += cut[n - 1 - i];
		}
		CHECK_EQ(pv_udp_send(a, &send, w.now), at);
		world_run(&w, PV_NS_PER_MS);
		memset(in, 0, at);
		CHECK_EQ(pv_udp_next_len(b), at);
		CHECK_EQ(pv_udp_recv(b, &recv), at);
		CHECK(!memcmp(in, out, at));
	}
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(truncated_peeked_and_taken)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_udp_recv msg;
	struct pv_iov iov = { in, 4 };
	struct pv_udp *a, *b;
	struct pv_pkt *pkt;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 8 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(sock_send(&w, a, &to, "0123456789", 10), 10);
		world_run(&w, PV_NS_PER_MS);
	}
	msg = (struct pv_udp_recv){ .iov = &iov, .iovcnt = 1, .peek = true };
	CHECK_EQ(pv_udp_recv(b, &msg), 4);
	CHECK_EQ(msg.full_len, 10);
	CHECK_EQ(pv_udp_queued(b), 3);
	msg.peek = false;
	CHECK_EQ(pv_udp_recv(b, &msg), 4);
	CHECK_EQ(msg.full_len, 10);
	msg.iovcnt = 0;
	CHECK_EQ(pv_udp_recv(b, &msg), 0);
	CHECK_EQ(msg.full_len, 10);
	pkt = pv_udp_take(b, &msg);
	CHECK(pkt != NULL);
	CHECK_EQ(pkt->len, 10);
	CHECK(!memcmp(pkt->data, "0123456789", 10));
	CHECK(pv_addr_eq(&msg.from.addr, &(struct pv_addr){ .q = { ip4(10, 0, 0, 1).q[0], ip4(10, 0, 0, 1).q[1] } }));
	CHECK(msg.arrival_ns > WORLD_START_NS);
	pv_pkt_put(pkt);
	CHECK(!pv_udp_take(b, &msg));
	sock_expect_none(b);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(ttl_and_tos_of_socket_and_message)
{
	for (int family = 4; family <= 6; family += 2) {
		enum pv_family af = family == 4 ? PV_AF_INET : PV_AF_INET6;
		struct pv_endpoint to = ep(host_addr(family, 2), 7000);
		struct pv_iov iov = { "x", 1 };
		struct pv_udp_send send = { .iov = &iov, .iovcnt = 1, .to = &to, .ttl = -1, .tos = -1 };
		struct pv_addr src = host_addr(family, 1);
		struct pv_udp_recv msg;
		struct pv_udp_opts *o;
		struct pv_udp *a, *b;
		struct world w;

		world_open(&w, &(struct world_cfg){ .seed = 9 });
		a = sock_open(&w, 0, af);
		b = sock_bound(&w, 1, af, host_addr(family, 2), 7000);
		o = pv_udp_options(a);
		CHECK_EQ(pv_udp_send(a, &send, w.now), 1);
		o->ttl = o->hops = 5;
		o->tos = o->tclass = 0x48;
		pv_udp_options_changed(a);
		CHECK_EQ(pv_udp_send(a, &send, w.now), 1);
		send.ttl = 9;
		send.tos = 0xb8;
		send.src = &src;
		send.iface = w.host[0].iface;
		CHECK_EQ(pv_udp_send(a, &send, w.now), 1);
		send.ttl = send.tos = -1;
		send.src = NULL;
		send.iface = 0;
		CHECK_EQ(pv_udp_send(a, &send, w.now), 1);
		world_run(&w, PV_NS_PER_MS);
		for (uint32_t i = 0; i < 4; i++) {
			static const uint8_t ttl[] = { 64, 5, 9, 5 }, tos[] = { 0, 0x48, 0xb8, 0x48 };

			CHECK_EQ(sock_recv(b, in, 8, &msg), 1);
			CHECK_EQ(msg.ttl, ttl[i]);
			CHECK_EQ(msg.tos, tos[i]);
			CHECK_EQ(msg.iface, w.host[1].iface);
			CHECK(pv_addr_eq(&msg.dst, &to.addr));
			CHECK(pv_addr_eq(&msg.from.addr, &src));
		}
		src = host_addr(family, 77);
		send.src = &src;
		CHECK_EQ(pv_udp_send(a, &send, w.now), -EINVAL);
		send.src = NULL;
		send.iface = 9;
		CHECK_EQ(pv_udp_send(a, &send, w.now), -ENODEV);
		pv_udp_close(a);
		pv_udp_close(b);
		world_close(&w);
	}
}

TEST(dual_stack_socket_talks_mapped_ipv4)
{
	struct pv_endpoint to4 = ep(ip4(10, 0, 0, 2), 7000), to6 = ep(ip6(2), 7000);
	struct pv_udp *a, *b;
	struct pv_udp_recv msg;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 10 });
	a = sock_open(&w, 0, PV_AF_INET6);
	b = sock_bound(&w, 1, PV_AF_INET6, any6(), 7000);
	CHECK_EQ(sock_send(&w, a, &to4, "four", 4), 4);
	CHECK_EQ(sock_send(&w, a, &to6, "six!", 4), 4);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), 2);
	CHECK_EQ(sock_recv(b, in, 16, &msg), 4);
	CHECK(pv_addr_is4(&msg.from.addr) != !memcmp(in, "six!", 4));
	CHECK_EQ(sock_recv(b, in, 16, &msg), 4);
	CHECK(pv_addr_is4(&msg.from.addr) != !memcmp(in, "six!", 4));
	/* A v6only socket has no way to IPv4, an IPv4 socket none to IPv6. */
	pv_udp_close(a);
	a = sock_open(&w, 0, PV_AF_INET6);
	pv_udp_options(a)->v6only = true;
	pv_udp_options_changed(a);
	CHECK_EQ(sock_send(&w, a, &to4, "x", 1), -ENETUNREACH);
	CHECK_EQ(pv_udp_connect(a, &to4, w.now), -ENETUNREACH);
	pv_udp_close(a);
	a = sock_open(&w, 0, PV_AF_INET);
	CHECK_EQ(sock_send(&w, a, &to6, "x", 1), -EAFNOSUPPORT);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(send_without_an_address)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000), zero = ep(ip4(10, 0, 0, 2), 0), far = ep(ip4(192, 0, 2, 1), 7000);
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 11 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	CHECK_EQ(sock_port(a), 0);
	CHECK_EQ(sock_send(&w, a, NULL, "x", 1), -EDESTADDRREQ);
	/* Linux binds before it looks at the destination. */
	CHECK(sock_port(a) != 0);
	CHECK_EQ(sock_send(&w, a, &zero, "x", 1), -EINVAL);
	CHECK_EQ(sock_send(&w, a, &far, "x", 1), -ENETUNREACH);
	CHECK_EQ(pv_udp_counters(a)->tx_errors, 3);
	CHECK_EQ(pv_udp_connect(a, &to, w.now), 0);
	CHECK_EQ(sock_send(&w, a, NULL, "one", 3), 3);
	CHECK_EQ(sock_send(&w, a, NULL, "two", 3), 3);
	CHECK_EQ(sock_send(&w, a, &to, "three", 5), 5);
	world_run(&w, PV_NS_PER_MS);
	sock_expect(b, "one");
	sock_expect(b, "two");
	sock_expect(b, "three");
	CHECK_EQ(pv_udp_counters(a)->tx_datagrams, 3);
	CHECK_EQ(pv_udp_counters(a)->tx_bytes, 11);
	CHECK_EQ(pv_udp_counters(b)->rx_datagrams, 3);
	CHECK_EQ(pv_udp_counters(b)->rx_bytes, 11);
	CHECK_EQ(pv_udp_table_counters(w.host[0].udp)->tx_datagrams, 3);
	CHECK_EQ(pv_udp_table_counters(w.host[0].udp)->tx_bytes, 11);
	CHECK_EQ(pv_udp_table_counters(w.host[1].udp)->rx_datagrams, 3);
	CHECK_EQ(pv_udp_table_counters(w.host[1].udp)->rx_bytes, 11);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(receive_buffer_counts_as_linux_does)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_udp *a, *b;
	struct pv_udp_recv msg;
	struct world w;
	uint32_t fit;

	world_open(&w, &(struct world_cfg){ .seed = 12, .pool = 2048 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	/* The smallest buffer takes one datagram whatever its size, and no second one. */
	pv_udp_options(b)->rcvbuf = 256;
	pv_udp_options_changed(b);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(sock_send(&w, a, &to, out, 1400), 1400);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), 1);
	CHECK_EQ(pv_udp_counters(b)->rx_queue_full, 1);
	CHECK_EQ(sock_recv(b, in, sizeof(in), &msg), 1400);
	/* 64 bytes cost 768: Linux takes 278 into its default of 212992. */
	pv_udp_options(b)->rcvbuf = 212992;
	pv_udp_options_changed(b);
	fit = 212992 / 768 + 1;
	for (uint32_t i = 0; i < fit + 10; i++) {
		CHECK_EQ(sock_send(&w, a, &to, out, 64), 64);
		world_run(&w, 10 * PV_NS_PER_US);
	}
	CHECK_EQ(pv_udp_queued(b), fit);
	CHECK_EQ(pv_udp_counters(b)->rx_queue_full, 11);
	CHECK_EQ(pv_udp_table_counters(w.host[1].udp)->rx_queue_full, 11);
	/* Room for one is room for one. */
	CHECK_EQ(sock_recv(b, in, sizeof(in), &msg), 64);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(sock_send(&w, a, &to, out, 64), 64);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), fit);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(shutdown_as_linux_does)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_udp *a, *b;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 13 });
	a = sock_open(&w, 0, PV_AF_INET);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	CHECK_EQ(pv_udp_shutdown(a, 0), -EINVAL);
	CHECK_EQ(pv_udp_shutdown(a, 4), -EINVAL);
	CHECK_EQ(pv_udp_connect(a, &to, w.now), 0);
	CHECK_EQ(pv_udp_shutdown(a, 2), 0);
	CHECK_EQ(pv_udp_shut(a), 2);
	CHECK_EQ(sock_send(&w, a, NULL, "x", 1), -EPIPE);
	CHECK(!pv_udp_readable(b));
	CHECK_EQ(pv_udp_shutdown(b, 1), -ENOTCONN);
	CHECK_EQ(pv_udp_shut(b), 1);
	CHECK(pv_udp_readable(b));
	/* What still comes is still delivered. */
	pv_udp_close(a);
	a = sock_open(&w, 0, PV_AF_INET);
	CHECK_EQ(sock_send(&w, a, &to, "late", 4), 4);
	world_run(&w, PV_NS_PER_MS);
	sock_expect(b, "late");
	sock_expect_none(b);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

/* A device that is behind: takes `room` frames more and completes none. */
static uint32_t room;
static const struct pv_ring_ops *real;

static uint32_t busy_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t k = real->tx_post(r, pkts, PV_MIN(n, room));

	room -= k;
	return k;
}

static uint32_t busy_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	(void)r;
	(void)pkts;
	(void)n;
	return 0;
}

TEST(a_full_ring_blocks_until_there_is_room)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_ring_ops busy;
	struct pv_event ev[8];
	struct pv_udp *a, *b;
	struct world w;
	int me;

	world_open(&w, &(struct world_cfg){ .seed = 14, .tx_depth = 16 });
	CHECK_EQ(pv_udp_open(w.host[0].udp, PV_AF_INET, &me, &a), 0);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	/* The first one resolves the neighbour. */
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	real = w.host[0].ring->ops;
	busy = *real;
	busy.tx_post = busy_post;
	busy.tx_reap = busy_reap;
	w.host[0].ring->ops = &busy;
	room = 16;
	for (uint32_t i = 0; i < 16; i++)
		CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), -ENOBUFS);
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), -ENOBUFS);
	CHECK(!pv_udp_writable(a));
	CHECK(pv_stack_deadline(w.host[0].stack) <= w.now + PV_NS_PER_MS);
	while (pv_stack_events(w.host[0].stack, ev, 8))
		;
	pv_stack_poll(w.host[0].stack, w.now, 64);
	CHECK(!pv_udp_writable(a));
	CHECK_EQ(pv_stack_events(w.host[0].stack, ev, 8), 0);
	w.host[0].ring->ops = real;
	pv_stack_poll(w.host[0].stack, w.now, 64);
	CHECK(pv_udp_writable(a));
	CHECK_EQ(pv_stack_events(w.host[0].stack, ev, 8), 1);
	CHECK(ev[0].user == &me);
	CHECK_EQ(ev[0].bits, PV_EV_OUT);
	CHECK_EQ(w.host[0].ring->tx_pending, 0);
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_queued(b), 18);
	CHECK_EQ(pv_udp_counters(a)->tx_errors, 2);
	CHECK_EQ(pv_udp_table_counters(w.host[0].udp)->tx_errors, 2);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(an_empty_pool_blocks_until_packets_return)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	struct pv_pkt *held[64];
	struct pv_udp *a;
	struct world w;
	uint32_t n = 0;

	world_open(&w, &(struct world_cfg){ .seed = 15, .pool = 64 });
	a = sock_open(&w, 0, PV_AF_INET);
	while (n < 64 && (held[n] = pv_pkt_get(w.host[0].pool)))
		n++;
	CHECK(n > 0);
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), -ENOBUFS);
	CHECK_EQ(sock_send(&w, a, &to, out, 60000), -ENOBUFS);
	pv_stack_poll(w.host[0].stack, w.now, 64);
	CHECK(!pv_udp_writable(a));
	while (n)
		pv_pkt_put(held[--n]);
	pv_stack_poll(w.host[0].stack, w.now, 64);
	CHECK(pv_udp_writable(a));
	CHECK_EQ(sock_send(&w, a, &to, "x", 1), 1);
	pv_udp_close(a);
	world_close(&w);
}

/* ---- frames that no honest peer sends ---------------------------------------------------------------------------------- */

/* Host 1 is a ring without a stack: what it posts is on the wire as it is. */
static void raw_udp4(struct world *w, const uint8_t *seg, uint32_t len, uint8_t last)
{
	struct pv_pkt *p = pv_pkt_get(w->host[1].pool), *back[4];
	static const uint8_t head[] = { 2, 0, 0, 0, 0, 1,  2,  0, 0, 0,  0, 2, 8, 0,  0x45, 0, 0,
					0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0,    0 };
	uint8_t *ip;

	memcpy(p->data, head, sizeof(head));
	p->data[sizeof(head)] = last;
	ip = p->data + 14;
	pv_put16(ip + 2, (uint16_t)(20 + len));
	pv_cksum_put(ip + 10, pv_cksum_finish(pv_cksum_add(ip, 20, 0)));
	memcpy(ip + 20, seg, len);
	p->len = p->total = 34 + len;
	CHECK_EQ(pv_ring_tx_post(w->host[1].ring, &p, 1), 1);
	CHECK_EQ(pv_ring_tx_kick(w->host[1].ring), 0);
	while (pv_ring_tx_reap(w->host[1].ring, back, 1))
		pv_pkt_put(back[0]);
	world_run(w, PV_NS_PER_MS);
}

TEST(bad_lengths_and_checksums_are_counted_drops)
{
	uint8_t seg[64] = { 0x1b, 0x58, 0x1b, 0x58 };
	const struct pv_udp_counters *c;
	struct pv_udp *a;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 16 });
	a = sock_bound(&w, 0, PV_AF_INET, any4(), 7000);
	c = pv_udp_table_counters(w.host[0].udp);
	pv_put16(seg + 4, 7);
	raw_udp4(&w, seg, 20, 1);
	CHECK_EQ(c->rx_short, 1);
	pv_put16(seg + 4, 21);
	raw_udp4(&w, seg, 20, 1);
	CHECK_EQ(c->rx_short, 2);
	raw_udp4(&w, seg, 7, 1);
	CHECK_EQ(c->rx_short + pv_net_counters(w.host[0].net)->rx_short, 3);
	/* Bytes behind the datagram are cut; checksum 0 is none. */
	memcpy(seg + 8, "abcd", 4);
	pv_put16(seg + 4, 12);
	raw_udp4(&w, seg, 20, 1);
	CHECK_EQ(c->rx_datagrams, 1);
	sock_expect(a, "abcd");
	seg[6] = 0x12;
	raw_udp4(&w, seg, 12, 1);
	CHECK_EQ(c->rx_bad_csum, 1);
	seg[6] = 0;
	seg[3]++;
	raw_udp4(&w, seg, 12, 1);
	CHECK_EQ(c->rx_no_port, 1);
	CHECK_EQ(c->rx_datagrams, 1);
	sock_expect_none(a);
	pv_udp_close(a);
	world_close(&w);
}

TEST(no_checksum_on_request)
{
	struct pv_endpoint to4 = ep(ip4(10, 0, 0, 2), 7000), to6 = ep(ip6(2), 7000);
	struct pv_udp *a, *b;
	struct pv_udp_recv msg;
	struct pv_pkt *pkt;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 17 });
	a = sock_open(&w, 0, PV_AF_INET6);
	b = sock_bound(&w, 1, PV_AF_INET6, any6(), 7000);
	pv_udp_options(a)->no_check = true;
	pv_udp_options_changed(a);
	CHECK_EQ(sock_send(&w, a, &to4, "abc", 3), 3);
	world_run(&w, PV_NS_PER_MS);
	pkt = pv_udp_take(b, &msg);
	CHECK(pkt != NULL);
	CHECK_EQ(pv_get16(pkt->buf + pkt->l4_off + 6), 0);
	pv_pkt_put(pkt);
	/* IPv6 knows no datagram without (RFC 8200 8.1). */
	CHECK_EQ(sock_send(&w, a, &to6, "abc", 3), 3);
	world_run(&w, PV_NS_PER_MS);
	pkt = pv_udp_take(b, &msg);
	CHECK(pkt != NULL);
	CHECK(pv_get16(pkt->buf + pkt->l4_off + 6) != 0);
	pv_pkt_put(pkt);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

TEST(a_sum_of_zero_is_sent_as_all_ones)
{
	struct pv_endpoint to = ep(ip4(10, 0, 0, 2), 7000);
	uint32_t found = 0;
	struct pv_udp *a, *b;
	struct pv_udp_recv msg;
	struct world w;

	world_open(&w, &(struct world_cfg){ .seed = 18 });
	a = sock_bound(&w, 0, PV_AF_INET, any4(), 7001);
	b = sock_bound(&w, 1, PV_AF_INET, any4(), 7000);
	for (uint32_t v = 0; v <= UINT16_MAX; v++) {
		uint8_t two[2] = { (uint8_t)(v >> 8), (uint8_t)v };
		struct pv_pkt *pkt;

		CHECK_EQ(sock_send(&w, a, &to, two, 2), 2);
		world_run(&w, PV_NS_PER_US);
		pkt = pv_udp_take(b, &msg);
		CHECK(pkt != NULL);
		CHECK(pv_get16(pkt->buf + pkt->l4_off + 6) != 0);
		found += pv_get16(pkt->buf + pkt->l4_off + 6) == UINT16_MAX;
		pv_pkt_put(pkt);
	}
	/* One word makes the sum zero; two when that is 0, which is 0xffff as well. */
	CHECK(found == 1 || found == 2);
	pv_udp_close(a);
	pv_udp_close(b);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
