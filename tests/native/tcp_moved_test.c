/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections over bonds whose traffic goes another way: what was on the old one is lost, and the gap is a round trip and no timeout.
 * In virtual time, each case with and without the stack being told.
 */
#include "base/rng.h"
#include "tcp_world.h"

#define MS PV_NS_PER_MS
#define ONE_WAY (5 * MS)
#define RTT (2 * ONE_WAY)
#define SEGMENT 1400u

static uint8_t text[1 << 20], heard[1 << 20];
static uint32_t read_so_far; /* of text, by pair[1] */

/* Two hosts in NetVSC's way, 10 ms from one another by either wire, connected, with a round trip that is known. */
static void begin(struct world *w, struct pv_tcp *pair[2], struct world_cfg cfg)
{
	const struct pv_sim_impair imp = { .latency_ns = ONE_WAY };
	struct pv_rng rng;
	uint8_t word[8];

	pv_rng_seed(&rng, 3);
	read_so_far = 0;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)pv_rng_u32(&rng);
	cfg.bond = cfg.bond ? cfg.bond : PV_BOND_NETVSC;
	cfg.seed = 1;
	tcp_world_open(w, &cfg);
	pv_sim_wire_impair(w->wire, &imp);
	pv_sim_wire_impair(w->wire2, &imp);
	tcp_pair(w, 4, 80, pair);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(tcp_write(w, pair[i & 1], "warm", 4), 4);
		world_run(w, 100 * MS);
		CHECK_EQ(tcp_read(w, pair[1 - (i & 1)], word, sizeof(word)), 4);
	}
	CHECK_EQ(world_bond_events(w), 0);
}

static void end(struct world *w, struct pv_tcp *pair[2])
{
	for (int i = 0; i < 2; i++)
		if (pair[i])
			pv_tcp_close(pair[i], w->now);
	tcp_fade(w);
	world_close(w);
}

static void cable(struct world *w, bool whole)
{
	const struct pv_sim_impair imp = { .latency_ns = ONE_WAY, .loss_ppm = whole ? 0 : 1000000 };

	pv_sim_wire_impair(w->wire, &imp);
}

/* The first legs go; whether the stacks hear of it. */
static void plug_out(struct world *w, bool told)
{
	world_leg_del(w, 0, 0);
	world_leg_del(w, 1, 0);
	if (told)
		CHECK_EQ(world_bond_events(w), 2);
}

/* How long until `c` has read `want` bytes, which are those of `text`. */
static int64_t until_read(struct world *w, struct pv_tcp *c, uint32_t want)
{
	int64_t start = w->now;
	uint32_t got = 0;

	while (got < want) {
		int64_t n = tcp_read(w, c, heard + got, want - got);

		if (n > 0) {
			got += (uint32_t)n;
			continue;
		}
		CHECK_EQ(n, -EAGAIN);
		CHECK(w->now - start < 10 * PV_NS_PER_S);
		world_run(w, MS / 2);
	}
	CHECK(!memcmp(heard, text + read_so_far, want));
	read_so_far += want;
	return w->now - start;
}

/* `len` bytes are written and lost with the leg: how long until the first of them is there. */
static int64_t gap(uint32_t len, bool told, struct world_cfg cfg)
{
	struct pv_tcp *pair[2];
	struct world w;
	int64_t ns;

	begin(&w, pair, cfg);
	cable(&w, false);
	CHECK_EQ(tcp_write(&w, pair[0], text, len), len);
	world_run(&w, 2 * MS);
	plug_out(&w, told);
	ns = until_read(&w, pair[1], 1);
	(void)until_read(&w, pair[1], len - 1);
	if (told) {
		CHECK_EQ(pair[0]->t->c.rto, 0);
		CHECK(pair[0]->t->c.tlp > 0);
	}
	end(&w, pair);
	return ns;
}

TEST(the_last_segment)
{
	int64_t told = gap(500, true, (struct world_cfg){ 0 }), not_told = gap(500, false, (struct world_cfg){ 0 });

	printf("gap %.1f ms, %.1f ms where nobody says so\n", (double)told / 1e6, (double)not_told / 1e6);
	CHECK(told <= RTT);
	CHECK(not_told >= 200 * MS);
}

/* The probe shows what else is missing a round trip later. */
TEST(a_whole_window)
{
	int64_t told = gap(10 * SEGMENT, true, (struct world_cfg){ 0 }),
		not_told = gap(10 * SEGMENT, false, (struct world_cfg){ 0 });

	printf("gap %.1f ms, %.1f ms where nobody says so\n", (double)told / 1e6, (double)not_told / 1e6);
	CHECK(told <= 2 * RTT);
	CHECK(not_told > told);
}

/* Without SACK there are no probes: the timeout comes at once, and not in its time. */
TEST(without_sack)
{
	struct pv_tcp *pair[2];
	struct world w;

	begin(&w, pair, (struct world_cfg){ .tcp = { .no_sack = true } });
	cable(&w, false);
	CHECK_EQ(tcp_write(&w, pair[0], text, SEGMENT), SEGMENT);
	/* Several timeouts long: it has backed off. */
	world_run(&w, 2 * PV_NS_PER_S);
	CHECK(pair[0]->backoff >= 2);
	plug_out(&w, true);
	CHECK_EQ(pair[0]->backoff, 0);
	CHECK(until_read(&w, pair[1], SEGMENT) <= RTT);
	end(&w, pair);
}

TEST(in_the_midst_of_a_timeout)
{
	struct pv_tcp *pair[2];
	struct world w;

	begin(&w, pair, (struct world_cfg){ 0 });
	cable(&w, false);
	CHECK_EQ(tcp_write(&w, pair[0], text, 4 * SEGMENT), 4 * SEGMENT);
	world_run(&w, 5 * PV_NS_PER_S);
	CHECK_EQ(pair[0]->ca, PV_CA_LOSS);
	CHECK(pair[0]->backoff >= 2);
	plug_out(&w, true);
	CHECK(until_read(&w, pair[1], 4 * SEGMENT) <= 4 * RTT);
	CHECK_EQ(pair[0]->backoff, 0);
	end(&w, pair);
}

TEST(a_syn)
{
	struct pv_tcp *pair[2], *l, *c, *a;
	int64_t start;
	struct world w;

	begin(&w, pair, (struct world_cfg){ 0 });
	l = tcp_listener(&w, 1, 4, 81, 4);
	cable(&w, false);
	c = tcp_dial(&w, 0, 4, 1, 81);
	world_run(&w, 2 * MS);
	plug_out(&w, true);
	start = w.now;
	while (pv_tcp_state(c) != PV_TCP_ESTABLISHED) {
		CHECK(w.now - start <= 2 * RTT);
		world_run(&w, MS / 2);
	}
	CHECK_EQ(c->retransmits, 0);
	world_run(&w, RTT);
	CHECK_EQ(pv_tcp_accept(l, &a), 0);
	pv_tcp_close(a, w.now);
	pv_tcp_close(c, w.now);
	pv_tcp_close(l, w.now);
	end(&w, pair);
}

/* The SYN came, and its answer goes with the leg of the one that listens. */
TEST(a_syn_ack)
{
	struct pv_tcp *pair[2], *l, *c, *a;
	struct world w;

	begin(&w, pair, (struct world_cfg){ 0 });
	l = tcp_listener(&w, 0, 4, 82, 4);
	c = tcp_dial(&w, 1, 4, 0, 82);
	world_run(&w, ONE_WAY - MS);
	cable(&w, false);
	world_run(&w, 2 * MS);
	CHECK_EQ(pv_tcp_state(c), PV_TCP_SYN_SENT);
	plug_out(&w, true);
	world_run(&w, 2 * RTT);
	CHECK_EQ(pv_tcp_state(c), PV_TCP_ESTABLISHED);
	CHECK_EQ(pv_tcp_accept(l, &a), 0);
	pv_tcp_close(a, w.now);
	pv_tcp_close(c, w.now);
	pv_tcp_close(l, w.now);
	end(&w, pair);
}

TEST(a_fin)
{
	struct pv_tcp *pair[2];
	uint8_t b;
	struct world w;

	begin(&w, pair, (struct world_cfg){ 0 });
	cable(&w, false);
	CHECK_EQ(pv_tcp_shutdown(pair[0], 2, w.now), 0);
	world_run(&w, 2 * MS);
	CHECK_EQ(tcp_read(&w, pair[1], &b, 1), -EAGAIN);
	plug_out(&w, true);
	world_run(&w, RTT);
	CHECK_EQ(tcp_read(&w, pair[1], &b, 1), 0);
	end(&w, pair);
}

/* The window opened, and who was told of that is gone: the probe asks at once. */
TEST(a_window_probe)
{
	struct pv_tcp *pair[2];
	uint32_t total = 0;
	int64_t n;
	struct world w;

	begin(&w, pair, (struct world_cfg){ .tcp = { .rcvbuf = 4096, .rcvbuf_max = 4096 } });
	while ((n = tcp_write(&w, pair[0], text + total, 4000)) > 0) {
		total += (uint32_t)n;
		world_run(&w, 50 * MS);
	}
	world_run(&w, 20 * PV_NS_PER_S);
	CHECK(pair[0]->flags & PV_TF_PERSIST);
	CHECK(pair[0]->backoff >= 3);
	cable(&w, false);
	CHECK(tcp_read(&w, pair[1], heard, 4000) > 0);
	world_run(&w, 2 * MS);
	CHECK_EQ(pair[0]->in_flight, 0);
	plug_out(&w, true);
	world_run(&w, 2 * RTT);
	CHECK(!(pair[0]->flags & PV_TF_PERSIST) || pair[0]->backoff <= 1);
	CHECK(pair[0]->snd_wnd > 0 || pair[0]->in_flight);
	end(&w, pair);
}

/* Nothing is under way: nothing is sent. */
TEST(idle_ones_stay_silent)
{
	struct pv_tcp *pair[2];
	uint64_t sent;
	struct world w;

	begin(&w, pair, (struct world_cfg){ 0 });
	sent = pair[0]->t->c.tx_segments;
	plug_out(&w, true);
	world_run(&w, 10 * PV_NS_PER_S);
	CHECK_EQ(pair[0]->t->c.tx_segments, sent);
	end(&w, pair);
}

#define MANY 2000u

/* Thousands with something in flight: a turn sends few of their probes, and all have theirs after some hundred turns. */
TEST(many)
{
	static struct pv_tcp *c[MANY], *a[MANY];
	struct pv_tcp *pair[2], *l;
	uint32_t most = 0, turns = 0;
	struct world w;

	begin(&w, pair,
	      (struct world_cfg){ .pool = 12000, .rx_depth = 4096, .tx_depth = 4096, .tcp = { .sockets_hint = 2 * MANY } });
	l = tcp_listener(&w, 1, 4, 83, 4096);
	for (uint32_t i = 0; i < MANY; i++) {
		c[i] = tcp_dial(&w, 0, 4, 1, 83);
		if (i % 100 == 99)
			world_run(&w, 3 * RTT);
	}
	world_run(&w, 10 * RTT);
	for (uint32_t i = 0; i < MANY; i++)
		CHECK_EQ(pv_tcp_accept(l, &a[i]), 0);
	cable(&w, false);
	for (uint32_t i = 0; i < MANY; i++)
		CHECK_EQ(tcp_write(&w, c[i], text, 100), 100);
	world_run(&w, 2 * MS);
	plug_out(&w, true);
	/* The wheel has ticks. */
	w.now += MS;
	while (pair[0]->t->c.tlp < MANY && turns < MANY) {
		uint64_t before = pv_net_counters(w.host[0].net)->tx_packets;

		pv_stack_poll(w.host[0].stack, w.now, 64);
		most = PV_MAX(most, (uint32_t)(pv_net_counters(w.host[0].net)->tx_packets - before));
		turns++;
	}
	printf("%u connections probed in %u turns, at most %u a turn\n", MANY, turns, most);
	CHECK_EQ(pair[0]->t->c.tlp, MANY);
	CHECK(most <= 64);
	world_run(&w, 3 * RTT);
	for (uint32_t i = 0; i < MANY; i++) {
		uint8_t in[128];

		CHECK_EQ(tcp_read(&w, a[i], in, sizeof(in)), 100);
		pv_tcp_close(c[i], w.now);
		pv_tcp_close(a[i], w.now);
	}
	pv_tcp_close(l, w.now);
	end(&w, pair);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
