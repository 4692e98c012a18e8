/* SPDX-License-Identifier: BSD-3-Clause */
/* Writers and readers that share a pool which has too few packets for all: each goes on when there are some again. */
#include "tcp_peer.h"

#define MS PV_NS_PER_MS
#define MSS 1448u

TEST(an_empty_pool_is_waited_for)
{
	struct peer p;
	uint32_t acked = 1;

	peer_begin(&p, (struct peer_cfg){ .pool = 128, .rx_depth = 64, .tcp = { .sndbuf = 1 << 20 } });
	while (p.written < 400000) {
		int64_t n = peer_try_write(&p, 100000, 0);
		const struct peer_seg *s;

		CHECK(n > 0 || n == -EAGAIN);
		while ((s = peer_next(&p))) {
			CHECK_EQ(s->seq, acked);
			acked += s->len;
		}
		peer_ack(&p, acked);
		/* What is received into stays. */
		CHECK(p.w.host[0].pool->nfree > 0);
	}
	CHECK(pv_tcp_table_counters(peer_table(&p))->tx_no_buf > 0);
	for (int i = 0; i < 1000 && acked < p.written; i++) {
		const struct peer_seg *s;

		peer_run(&p, MS);
		while ((s = peer_next(&p)))
			acked += s->len;
		peer_ack(&p, acked);
	}
	CHECK_EQ(acked, p.written);
	peer_close(&p);
}

/* A greedy connection and many modest ones: whoever found no packet is told when there are some again, with nothing of its own out. */
TEST(the_starved_are_told)
{
	enum { N = 40 };
	struct world w;
	struct world_cfg cfg = { .pool = 128, .rx_depth = 64, .tcp = { .sndbuf = 1 << 20 } };
	struct pv_tcp *pair[N][2];
	struct pv_event ev[N];
	static char data[1 << 19];
	bool starved[N] = { false };
	uint32_t hungry = 0, n;

	tcp_world_open(&w, &cfg);
	for (uint32_t i = 0; i < N; i++) {
		tcp_pair(&w, 4, (uint16_t)(100 + i), pair[i]);
		pv_tcp_set_user(pair[i][0], &starved[i]);
	}
	while (pv_tcp_events(w.host[0].tcp, ev, N))
		;
	pv_sim_wire_impair(w.wire, &(struct pv_sim_impair){ .latency_ns = 50 * MS });
	/* The first one takes what bulk may have, the others one packet each until there are no more. */
	CHECK(tcp_write(&w, pair[0][0], data, sizeof(data)) > 0);
	for (uint32_t i = 1; i < N; i++)
		if (tcp_write(&w, pair[i][0], "x", 1) == -EAGAIN) {
			CHECK(!(pv_tcp_ready_bits(pair[i][0]) & PV_EV_OUT));
			starved[i] = true;
			hungry++;
		}
	CHECK(hungry >= 5);
	for (uint32_t i = 0; i < 100 && hungry; i++) {
		world_run(&w, 10 * MS);
		(void)tcp_read(&w, pair[0][1], data, sizeof(data));
		while ((n = pv_tcp_events(w.host[0].tcp, ev, N)))
			while (n--)
				if (ev[n].user && (ev[n].bits & PV_EV_OUT) && *(bool *)ev[n].user) {
					*(bool *)ev[n].user = false;
					hungry--;
				}
	}
	CHECK_EQ(hungry, 0);
	for (uint32_t i = 0; i < N; i++) {
		pv_tcp_close(pair[i][0], w.now);
		pv_tcp_close(pair[i][1], w.now);
	}
	tcp_fade(&w);
	world_close(&w);
}

/* The buffer was full, and when all of it is acknowledged others have the packets. Those, to be given back. */
static struct pv_pkt *park(struct peer *p)
{
	struct pv_pkt *pkt, *taken = NULL;
	struct pv_event ev[4];
	uint32_t got = 1;

	peer_begin(p, (struct peer_cfg){ .pool = 576, .rx_depth = 512 });
	pv_tcp_set_user(p->c, p);
	pv_tcp_options(p->c)->sndbuf = 12000;
	pv_tcp_options(p->c)->sndbuf_locked = true;
	while (peer_try_write(p, 100000, 0) > 0)
		;
	CHECK(!(pv_tcp_ready_bits(p->c) & PV_EV_OUT));
	CHECK(!pv_tcp_starved(p->c));
	(void)pv_tcp_events(peer_table(p), ev, 4);
	while ((pkt = pv_pkt_get(p->w.host[0].pool))) {
		pkt->next = taken;
		taken = pkt;
	}
	while (got < p->written) {
		for (const struct peer_seg *s; (s = peer_next(p));)
			got += s->len;
		peer_ack(p, got);
	}
	peer_run(p, 100 * MS);
	CHECK_EQ(pv_tcp_events(peer_table(p), ev, 4), 0);
	CHECK(!(pv_tcp_ready_bits(p->c) & PV_EV_OUT));
	CHECK(pv_tcp_waiting(peer_table(p)));
	return taken;
}

static void give(struct pv_pkt *pkt)
{
	while (pkt) {
		struct pv_pkt *next = pkt->next;

		pkt->next = NULL;
		pv_pkt_put(pkt);
		pkt = next;
	}
}

/* Nothing of its own will bring it back. */
TEST(a_full_buffer_and_then_no_packets)
{
	struct peer p;
	struct pv_event ev[4];
	struct pv_pkt *taken = park(&p);

	give(taken);
	peer_run(&p, 100 * MS);
	CHECK(pv_tcp_ready_bits(p.c) & PV_EV_OUT);
	CHECK_EQ(pv_tcp_events(peer_table(&p), ev, 4), 1);
	CHECK(ev[0].bits & PV_EV_OUT);
	CHECK(!pv_tcp_waiting(peer_table(&p)));
	peer_skip(&p);
	peer_close(&p);
}

TEST(a_connection_that_ends_while_it_waits_for_packets)
{
	struct peer p;
	struct pv_pkt *taken = park(&p);

	peer_send(&p, "R", p.seq_max, 0, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK(!pv_tcp_waiting(peer_table(&p)));
	give(taken);
	peer_close(&p);
	taken = park(&p);
	pv_tcp_options(p.c)->linger = true;
	pv_tcp_close(p.c, p.w.now);
	p.c = NULL;
	CHECK(!pv_tcp_waiting(peer_table(&p)));
	give(taken);
	peer_skip(&p);
	peer_close(&p);
}

/* Its probes leave by the few packets that there are, and are counted. */
TEST(a_dead_peer_is_noticed_by_whoever_waits_for_packets)
{
	struct peer p;
	struct pv_pkt *taken = park(&p);
	struct pv_tcp_opts *o = pv_tcp_options(p.c);

	o->keepalive = true;
	o->keepidle_s = 2;
	o->keepintvl_s = 1;
	o->keepcnt = 3;
	pv_tcp_options_changed(p.c, p.w.now);
	for (int i = 0; i < 100 && peer_state(&p) == PV_TCP_ESTABLISHED; i++)
		peer_run(&p, 100 * MS);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ETIMEDOUT);
	CHECK_EQ(pv_tcp_table_counters(peer_table(&p))->tx_probes, 3);
	give(taken);
	peer_skip(&p);
	peer_close(&p);
}

/* Receive queues that nobody empties leave packets to whoever has an answer to send first. */
TEST(unread_data_does_not_keep_from_sending)
{
	struct world w;
	struct world_cfg cfg = { .pool = 1024, .rx_depth = 64, .tcp = { .sndbuf = 1 << 20, .rcvbuf = 4 << 20 } };
	struct pv_tcp *pair[2];
	static char data[1 << 20];
	uint32_t idle = 0;
	char in[4];

	tcp_world_open(&w, &cfg);
	tcp_pair(&w, 4, 100, pair);
	/* Until nothing more goes: what the peer wrote lies here. */
	while (idle < 20) {
		int64_t n = tcp_write(&w, pair[1], data, sizeof(data));

		idle = n > 0 ? 0 : idle + 1;
		world_run(&w, 10 * MS);
	}
	CHECK(pv_tcp_inq(pair[0]) > 800000); /* most of what there is */
	CHECK_EQ(tcp_write(&w, pair[0], "yes", 3), 3);
	world_run(&w, 100 * MS);
	CHECK_EQ(tcp_read(&w, pair[1], in, sizeof(in)), 3);
	for (int end = 0; end < 2; end++) {
		pv_tcp_options(pair[end])->linger = true;
		pv_tcp_close(pair[end], w.now);
	}
	tcp_fade(&w);
	world_close(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
