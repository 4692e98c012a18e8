/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fixed amount of work over the sim ring for tools/instructions.py, which counts the instructions of the measure_* functions under
 * callgrind. What surrounds them (the wire, the peer) is not counted. Usage: instr_bench SOCKETS ROUNDS
 */
#include <stdlib.h>

#include "tcp_world.h"

#define SIZE 64u
#define BATCH 32u
#define RUN 16u
#define MSS 1448u

void measure_idle(struct pv_stack *s, int64_t now_ns);
void measure_rx1(struct pv_stack *s, struct pv_udp *u, int64_t now_ns, struct pv_udp_recv *msg);
void measure_rx32(struct pv_stack *s, struct pv_udp **u, int64_t now_ns, struct pv_udp_recv *msg);
void measure_rx6(struct pv_stack *s, struct pv_udp *u, int64_t now_ns, struct pv_udp_recv *msg);
void measure_tx(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns);
void measure_txto(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns);
void measure_tcprx(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov);
void measure_tcprr(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov);
void measure_tcpfull(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov);
void measure_tcpack(struct pv_stack *s, int64_t now_ns);
void measure_tcptx(struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov);
void measure_tcpbulk(struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov);
void measure_tcptso(struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov);
void measure_tcprun(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov);

/* A turn that finds nothing. */
pv_noinline void measure_idle(struct pv_stack *s, int64_t now_ns)
{
	CHECK_EQ(pv_stack_poll(s, now_ns, 64), 0);
}

/* One datagram, from the ring to the application's buffer. */
pv_noinline void measure_rx1(struct pv_stack *s, struct pv_udp *u, int64_t now_ns, struct pv_udp_recv *msg)
{
	pv_stack_poll(s, now_ns, 64);
	CHECK_EQ(pv_udp_recv(u, msg), SIZE);
}

/* The same by IPv6, without a flow cache. */
pv_noinline void measure_rx6(struct pv_stack *s, struct pv_udp *u, int64_t now_ns, struct pv_udp_recv *msg)
{
	pv_stack_poll(s, now_ns, 64);
	CHECK_EQ(pv_udp_recv(u, msg), SIZE);
}

/* A turn that brings 32, then each is received. */
pv_noinline void measure_rx32(struct pv_stack *s, struct pv_udp **u, int64_t now_ns, struct pv_udp_recv *msg)
{
	pv_stack_poll(s, now_ns, 64);
	for (uint32_t i = 0; i < BATCH; i++)
		CHECK_EQ(pv_udp_recv(u[i], msg), SIZE);
}

/* One datagram to the connected peer, as far as the ring. */
pv_noinline void measure_tx(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns)
{
	CHECK_EQ(pv_udp_send(u, msg, now_ns), SIZE);
}

/* The same to an address, the one of last time. */
pv_noinline void measure_txto(struct pv_udp *u, const struct pv_udp_send *msg, int64_t now_ns)
{
	CHECK_EQ(pv_udp_send(u, msg, now_ns), SIZE);
}

/* The next bytes of a stream, from the ring to the application's buffer. */
pv_noinline void measure_tcprx(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov)
{
	pv_stack_poll(s, now_ns, 64);
	CHECK_EQ(pv_tcp_recv(c, iov, 1, 0, now_ns), SIZE);
}

/* The same with the acknowledgement of what was sent: the answer to a question. */
pv_noinline void measure_tcprr(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov)
{
	pv_stack_poll(s, now_ns, 64);
	CHECK_EQ(pv_tcp_recv(c, iov, 1, 0, now_ns), SIZE);
}

/* A full segment, copied and acknowledged. */
pv_noinline void measure_tcpfull(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov)
{
	pv_stack_poll(s, now_ns, 64);
	CHECK_EQ(pv_tcp_recv(c, iov, 1, 0, now_ns), MSS);
}

/* An acknowledgement alone. */
pv_noinline void measure_tcpack(struct pv_stack *s, int64_t now_ns)
{
	CHECK_EQ(pv_stack_poll(s, now_ns, 64), 1);
}

/* A small message, as far as the doorbell. */
pv_noinline void measure_tcptx(struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov)
{
	CHECK_EQ(pv_tcp_send(c, iov, 1, 0, now_ns), SIZE);
}

/* Sixteen full segments one by one, and in one packet that the ring cuts. */
pv_noinline void measure_tcpbulk(struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov)
{
	CHECK_EQ(pv_tcp_send(c, iov, 1, 0, now_ns), RUN * MSS);
}

pv_noinline void measure_tcptso(struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov)
{
	CHECK_EQ(pv_tcp_send(c, iov, 1, 0, now_ns), RUN * MSS);
}

/* They come, are acknowledged and read. */
pv_noinline void measure_tcprun(struct pv_stack *s, struct pv_tcp *c, int64_t now_ns, const struct pv_iov *iov)
{
	CHECK_EQ(pv_stack_poll(s, now_ns, 64), RUN);
	CHECK_EQ(pv_tcp_recv(c, iov, 1, 0, now_ns), RUN * MSS);
}

/* The peer sends `n` datagrams to the sockets of `port` and following. */
static void feed(struct world *w, struct pv_udp *from, uint16_t port, uint32_t n)
{
	static const uint8_t data[SIZE];

	for (uint32_t i = 0; i < n; i++) {
		struct pv_endpoint to = ep(ip4(10, 0, 0, 2), (uint16_t)(port + i));

		CHECK_EQ(sock_send(w, from, &to, data, SIZE), SIZE);
	}
	pv_net_kick(w->host[0].net);
	pv_stack_poll(w->host[0].stack, w->now, 64);
}

static uint32_t sockets, rounds;

TEST(work)
{
	struct world_cfg cfg = {
		.seed = 1, .pool = 2048, .rx_csum = PV_CSUM_IP4 | PV_CSUM_UDP, .tx_csum = PV_CSUM_IP4 | PV_CSUM_UDP
	};
	struct pv_udp **all = calloc(sockets, sizeof(*all)), *from, *conn, *to32[BATCH], *from6, *sock6;
	static uint8_t data[SIZE], buf[SIZE];
	struct pv_iov in = { buf, sizeof(buf) }, out = { data, sizeof(data) };
	struct pv_udp_recv recv = { .iov = &in, .iovcnt = 1 };
	struct pv_endpoint to = ep(ip4(10, 0, 0, 1), 9), to6 = ep(ip6(2), 7);
	struct pv_udp_send send = { .iov = &out, .iovcnt = 1, .ttl = -1, .tos = -1 };
	struct pv_stack *s;
	struct world w;

	CHECK(all && sockets && rounds);
	world_open(&w, &cfg);
	s = w.host[1].stack;
	from = sock_bound(&w, 0, PV_AF_INET, any4(), 9);
	for (uint32_t i = 0; i < sockets; i++)
		all[i] = sock_bound(&w, 1, PV_AF_INET, ip4(10, 0, 0, 2), (uint16_t)(10000 + i));
	for (uint32_t i = 0; i < BATCH; i++)
		to32[i] = all[i % sockets];
	conn = sock_bound(&w, 1, PV_AF_INET, ip4(10, 0, 0, 2), 8);
	CHECK_EQ(pv_udp_connect(conn, &to, w.now), 0);
	from6 = sock_open(&w, 0, PV_AF_INET6);
	sock6 = sock_bound(&w, 1, PV_AF_INET6, ip6(2), 7);
	CHECK_EQ(sock_send(&w, from6, &to6, data, SIZE), SIZE);
	CHECK_EQ(pv_udp_send(conn, &send, w.now), SIZE);
	feed(&w, from, 10000, 1);
	world_run(&w, PV_NS_PER_MS);
	CHECK_EQ(pv_udp_recv(all[0], &recv), SIZE);
	CHECK_EQ(pv_udp_recv(sock6, &recv), SIZE);
	for (uint32_t r = 0; r < rounds; r++) {
		feed(&w, from, 10000, 1);
		measure_rx1(s, all[0], w.now, &recv);
		for (uint32_t i = 0; i < BATCH; i++)
			feed(&w, from, (uint16_t)(10000 + i % sockets), 1);
		measure_rx32(s, to32, w.now, &recv);
		CHECK_EQ(sock_send(&w, from6, &to6, data, SIZE), SIZE);
		pv_net_kick(w.host[0].net);
		pv_stack_poll(w.host[0].stack, w.now, 64);
		measure_rx6(s, sock6, w.now, &recv);
		send.to = NULL;
		measure_tx(conn, &send, w.now);
		send.to = &to;
		measure_txto(all[0], &send, w.now);
		/* Away with what was posted, so that the next turn has nothing to reap. */
		pv_net_kick(w.host[1].net);
		pv_stack_poll(s, w.now, 64);
		measure_idle(s, w.now);
		pv_stack_poll(w.host[0].stack, w.now, 64);
		while (pv_udp_recv(from, &recv) >= 0)
			;
	}
	for (uint32_t i = 0; i < sockets; i++)
		pv_udp_close(all[i]);
	pv_udp_close(sock6);
	pv_udp_close(from6);
	pv_udp_close(conn);
	pv_udp_close(from);
	world_close(&w);
	free(all);
}

/* Reaps what has been sent, so that the next turn finds nothing of it. */
static void settle(struct world *w, uint32_t host)
{
	pv_net_kick(w->host[host].net);
	pv_stack_poll(w->host[host].stack, w->now, 64);
}

/* Both ends acknowledge by what they send, but where an acknowledgement alone is asked for. */
TEST(stream)
{
	struct world_cfg cfg = { .seed = 1,
				 .pool = 2048,
				 .rx_csum = PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP,
				 .tx_csum = PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP };
	static uint8_t data[MSS], buf[2 * MSS];
	struct pv_iov in = { buf, sizeof(buf) }, small = { data, SIZE }, full = { data, MSS };
	struct pv_stack *s[2];
	struct pv_tcp *c[2];
	struct world w;

	tcp_world_open(&w, &cfg);
	tcp_pair(&w, 4, 9, c);
	for (int i = 0; i < 2; i++) {
		s[i] = w.host[i].stack;
		pv_tcp_options(c[i])->nodelay = true;
		pv_tcp_options_changed(c[i], w.now);
	}
	for (uint32_t r = 0; r < rounds; r++) {
		w.now += 10 * PV_NS_PER_US;
		pv_sim_wire_advance(w.wire, w.now);
		CHECK_EQ(pv_tcp_send(c[0], &small, 1, 0, w.now), SIZE);
		settle(&w, 0);
		measure_tcprx(s[1], c[1], w.now, &in);
		measure_tcptx(c[1], w.now, &small);
		settle(&w, 1);
		settle(&w, 0);
		CHECK_EQ(pv_tcp_recv(c[0], &in, 1, 0, w.now), SIZE);
		CHECK_EQ(pv_tcp_send(c[0], &small, 1, 0, w.now), SIZE);
		settle(&w, 0);
		measure_tcprr(s[1], c[1], w.now, &in);
		CHECK_EQ(pv_tcp_send(c[1], &small, 1, 0, w.now), SIZE);
		settle(&w, 1);
		settle(&w, 0);
		CHECK_EQ(pv_tcp_recv(c[0], &in, 1, 0, w.now), SIZE);
		pv_tcp_quickack(c[0], true, w.now);
		pv_tcp_quickack(c[0], false, w.now);
		settle(&w, 0);
		measure_tcpack(s[1], w.now);
		CHECK_EQ(pv_tcp_send(c[0], &full, 1, 0, w.now), MSS);
		settle(&w, 0);
		measure_tcpfull(s[1], c[1], w.now, &in);
		/* A fifth, so that posting receive buffers again, by the 32, does not always meet the same of the others. */
		CHECK_EQ(pv_tcp_send(c[0], &small, 1, 0, w.now), SIZE);
		settle(&w, 0);
		settle(&w, 1);
		CHECK_EQ(pv_tcp_recv(c[1], &in, 1, 0, w.now), SIZE);
		pv_tcp_quickack(c[1], true, w.now);
		pv_tcp_quickack(c[1], false, w.now);
		settle(&w, 1);
		settle(&w, 0);
	}
	for (int i = 0; i < 2; i++)
		pv_tcp_close(c[i], w.now);
	world_close(&w);
}

TEST(bulk)
{
	static uint8_t data[RUN * MSS], buf[RUN * MSS];
	struct pv_iov in = { buf, sizeof(buf) }, out = { data, sizeof(data) };

	for (uint32_t tso = 0; tso <= 65536; tso += 65536) {
		struct world_cfg cfg = { .seed = 1,
					 .pool = 2048,
					 .tso_max = tso,
					 .rx_csum = PV_CSUM_IP4 | PV_CSUM_TCP,
					 .tx_csum = PV_CSUM_IP4 | PV_CSUM_TCP };
		struct pv_ring_counters n;
		struct pv_tcp *c[2];
		struct world w;

		tcp_world_open(&w, &cfg);
		tcp_pair(&w, 4, 9, c);
		c[0]->cwnd = RUN;
		for (uint32_t r = 0; r < rounds; r++) {
			w.now += 10 * PV_NS_PER_US;
			pv_sim_wire_advance(w.wire, w.now);
			/* The doorbell is the wire here, and does not count. */
			for (int i = 0; i < 2; i++)
				pv_net_hold(w.host[i].net, true);
			if (tso)
				measure_tcptso(c[0], w.now, &out);
			else
				measure_tcpbulk(c[0], w.now, &out);
			pv_net_hold(w.host[0].net, false);
			settle(&w, 0);
			if (tso) {
				pv_stack_poll(w.host[1].stack, w.now, 64);
				CHECK_EQ(pv_tcp_recv(c[1], &in, 1, 0, w.now), RUN * MSS);
			} else {
				measure_tcprun(w.host[1].stack, c[1], w.now, &in);
			}
			pv_net_hold(w.host[1].net, false);
			pv_tcp_quickack(c[1], true, w.now);
			pv_tcp_quickack(c[1], false, w.now);
			settle(&w, 1);
			settle(&w, 0);
		}
		pv_ring_counters(w.host[0].ring, &n);
		CHECK(tso ? n.tso_packets >= rounds : !n.tso_packets);
		for (int i = 0; i < 2; i++)
			pv_tcp_close(c[i], w.now);
		world_close(&w);
	}
}

int main(int argc, char **argv)
{
	sockets = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
	rounds = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000;
	return test_main(1, argv);
}
