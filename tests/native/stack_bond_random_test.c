/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two stacks over bonds of two sim legs, in virtual time, by seed: legs are deleted and come back, lose their links or their devices,
 * become the active one, at random moments, in every mode and policy, the second leg sometimes without offloads. Meanwhile connections
 * carry bytes both ways and datagrams with numbers. Every byte arrives in order, no connection ends; no datagram arrives twice; counters
 * never go back; at the end all packets and memory are back.
 *
 *   stack_bond_random_test           60 seeds, 20 under ASAN
 *   stack_bond_random_test seed S    one, and says what it did
 */
#include "base/rng.h"
#include "tcp_world.h"

#define MS PV_NS_PER_MS
#define CONNS 4
#define PATTERN (1u << 16)
#define STEPS 250
#define DATAGRAMS 4096
#ifdef __SANITIZE_ADDRESS__ /* ten times slower, and the same code */
#define SEEDS 20u
#else
#define SEEDS 60u
#endif

static uint8_t pattern[PATTERN];

struct run {
	struct world w;
	struct pv_rng rng;
	struct pv_tcp *c[CONNS][2];
	uint32_t wrote[CONNS][2], got[CONNS][2]; /* by side: written by it, read by it */
	struct pv_udp *u[2];
	uint8_t came[2][DATAGRAMS]; /* datagrams that `side` got, by number */
	uint32_t sent[2], heard[2];
	struct pv_ring_counters last[2];
	uint32_t moves;
	bool down[WORLD_LEGS];
	bool verbose;
};

static struct totals {
	uint64_t bytes, sent, heard, moves, plug_outs, moved, lost;
} totals;

static uint32_t below(struct run *r, uint32_t n)
{
	return (uint32_t)pv_rng_below(&r->rng, n);
}

/* ---- traffic ----------------------------------------------------------------------------------------------------------- */

static void talk(struct run *r, uint32_t i, uint32_t side)
{
	uint32_t at = r->wrote[i][side] % PATTERN, len = 1 + below(r, 20000);
	int64_t n;

	if (below(r, 3))
		return;
	n = tcp_write(&r->w, r->c[i][side], pattern + at, PV_MIN(len, PATTERN - at));
	CHECK(n > 0 || n == -EAGAIN);
	r->wrote[i][side] += n > 0 ? (uint32_t)n : 0;
}

static void listen_to(struct run *r, uint32_t i, uint32_t side)
{
	static uint8_t in[65536];
	int64_t n;

	while ((n = tcp_read(&r->w, r->c[i][side], in, sizeof(in))) > 0) {
		for (int64_t k = 0; k < n; k++)
			CHECK_EQ(in[k], pattern[(r->got[i][side] + (uint32_t)k) % PATTERN]);
		r->got[i][side] += (uint32_t)n;
	}
	CHECK_EQ(n, -EAGAIN);
}

static void datagrams(struct run *r, uint32_t side)
{
	struct pv_endpoint to = ep(host_addr(4, (uint8_t)(2 - side)), 7);
	uint32_t n = below(r, 4), number;
	struct pv_udp_recv msg;

	for (uint32_t i = 0; i < n && r->sent[side] < DATAGRAMS; i++) {
		number = r->sent[side];
		if (sock_send(&r->w, r->u[side], &to, &number, sizeof(number)) == sizeof(number))
			r->sent[side]++;
	}
	while (sock_recv(r->u[side], &number, sizeof(number), &msg) > 0) {
		CHECK(number < r->sent[1 - side]);
		CHECK_EQ(r->came[side][number]++, 0);
		r->heard[side]++;
	}
}

static void counters(struct run *r, uint32_t side)
{
	struct pv_ring_counters now;
	const uint64_t *a = (const uint64_t *)&r->last[side], *b = (const uint64_t *)&now;

	pv_ring_counters(r->w.host[side].ring, &now);
	for (size_t i = 0; i < sizeof(now) / sizeof(*a); i++)
		CHECK(b[i] >= a[i]);
	r->last[side] = now;
}

/* ---- what happens to legs ---------------------------------------------------------------------------------------------- */

static bool works(const struct run *r, uint32_t leg)
{
	return r->w.host[0].leg[leg] && r->w.host[1].leg[leg] && !r->down[leg];
}

static void bring(struct run *r, uint32_t leg)
{
	for (uint32_t h = 0; h < 2; h++) {
		struct host *host = &r->w.host[h];

		if (!host->leg[leg])
			world_leg_add(&r->w, h, leg);
		pv_sim_set_link(host->leg[leg], true);
	}
	r->down[leg] = false;
}

/* In a mode of one sender both ends use the same leg, as two ports of one switch would make them. */
static void choose(struct run *r, uint32_t leg)
{
	for (uint32_t h = 0; h < 2; h++)
		CHECK_EQ(pv_bond_leg_set(r->w.host[h].ring, leg + 1, true), 0);
}

static void harm(struct run *r)
{
	static const char *const names[] = { "deleted", "unplugged", "vanished" };
	uint32_t leg = below(r, 2), how = below(r, 3);

	/* One that works stays, or connections would end by their timeouts. */
	if (!works(r, leg) || !works(r, 1 - leg))
		return;
	for (uint32_t h = 0; h < 2; h++) {
		struct host *host = &r->w.host[h];

		if (how == 1)
			pv_sim_set_link(host->leg[leg], false);
		if (how == 2)
			pv_sim_vanish(host->leg[leg]);
		if (how == 2)
			(void)pv_net_kick(host->net);
		if (how != 1)
			world_leg_del(&r->w, h, leg);
	}
	r->down[leg] = true;
	if (r->verbose)
		printf("%8.1f ms: leg %u %s\n", (double)r->w.now / 1e6, leg, names[how]);
}

static void step(struct run *r)
{
	bool one = r->w.cfg.bond == PV_BOND_ACTIVE_BACKUP || r->w.cfg.bond == PV_BOND_NETVSC;
	uint32_t leg = below(r, 2);

	for (uint32_t i = 0; i < CONNS; i++) {
		for (uint32_t side = 0; side < 2; side++) {
			talk(r, i, side);
			listen_to(r, i, side);
		}
	}
	for (uint32_t side = 0; side < 2; side++)
		datagrams(r, side);
	if (!below(r, 4))
		harm(r);
	else if (!below(r, 3) && r->down[leg])
		bring(r, leg);
	else if (!below(r, 8) && one && works(r, leg))
		choose(r, leg);
	r->moves += world_bond_events(&r->w);
	world_run(&r->w, below(r, 4) ? below(r, 3000) * PV_NS_PER_US : below(r, 60) * MS);
	r->moves += world_bond_events(&r->w);
	counters(r, 0);
	counters(r, 1);
}

/* ---- a run ------------------------------------------------------------------------------------------------------------- */

static void begin(struct run *r, uint64_t seed)
{
	static const enum pv_bond_mode modes[] = { PV_BOND_ACTIVE_BACKUP, PV_BOND_XOR, PV_BOND_8023AD, PV_BOND_NETVSC };
	const uint32_t csum = PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP;
	struct world_cfg cfg = { .seed = seed, .pool = 4096 };
	struct pv_sim_impair imp;

	memset(r, 0, sizeof(*r));
	pv_rng_seed(&r->rng, seed);
	cfg.bond = modes[below(r, 4)];
	cfg.policy = below(r, 5);
	cfg.plain_fallback = below(r, 2);
	if (below(r, 2)) {
		cfg.tx_csum = cfg.rx_csum = csum;
		cfg.tso_max = below(r, 2) ? 65535 : 0;
	}
	tcp_world_open(&r->w, &cfg);
	imp = (struct pv_sim_impair){ .latency_ns = below(r, 5000) * PV_NS_PER_US, .rate_kbps = below(r, 2) ? 1000000 : 0 };
	pv_sim_wire_impair(r->w.wire, &imp);
	pv_sim_wire_impair(r->w.wire2, &imp);
	for (uint32_t i = 0; i < CONNS; i++)
		tcp_pair(&r->w, i & 1 ? 6 : 4, (uint16_t)(80 + i), r->c[i]);
	for (uint32_t side = 0; side < 2; side++)
		r->u[side] = sock_bound(&r->w, side, PV_AF_INET, any4(), 7);
}

static bool all_arrived(const struct run *r)
{
	for (uint32_t i = 0; i < CONNS; i++)
		for (uint32_t side = 0; side < 2; side++)
			if (r->got[i][1 - side] != r->wrote[i][side])
				return false;
	return true;
}

static void finish(struct run *r)
{
	int64_t until = r->w.now + 600 * PV_NS_PER_S;

	for (uint32_t leg = 0; leg < WORLD_LEGS; leg++)
		if (r->down[leg])
			bring(r, leg);
	choose(r, 0);
	while (!all_arrived(r)) {
		r->moves += world_bond_events(&r->w);
		CHECK(r->w.now < until);
		world_run(&r->w, 10 * MS);
		for (uint32_t i = 0; i < CONNS; i++)
			for (uint32_t side = 0; side < 2; side++)
				listen_to(r, i, side);
	}
	for (uint32_t side = 0; side < 2; side++) {
		datagrams(r, side);
		counters(r, side);
		totals.plug_outs += r->last[side].plug_outs;
		totals.moved += r->last[side].tx_moved;
		totals.lost += r->last[side].tx_lost;
		totals.sent += r->sent[side];
		totals.heard += r->heard[side];
		pv_udp_close(r->u[side]);
	}
	totals.moves += r->moves;
	for (uint32_t i = 0; i < CONNS; i++) {
		for (uint32_t side = 0; side < 2; side++) {
			totals.bytes += r->got[i][side];
			CHECK_EQ(pv_tcp_state(r->c[i][side]), PV_TCP_ESTABLISHED);
			pv_tcp_close(r->c[i][side], r->w.now);
		}
	}
	tcp_fade(&r->w);
	world_close(&r->w);
}

static void one(uint64_t seed, bool verbose)
{
	static struct run r;

	begin(&r, seed);
	r.verbose = verbose;
	if (verbose)
		printf("mode %d, policy %u\n", (int)r.w.cfg.bond, r.w.cfg.policy);
	for (int i = 0; i < STEPS; i++)
		step(&r);
	finish(&r);
}

int main(int argc, char **argv)
{
	struct pv_rng rng;

	(void)test_tail;
	pv_rng_seed(&rng, 5);
	for (uint32_t i = 0; i < PATTERN; i++)
		pattern[i] = (uint8_t)pv_rng_u32(&rng);
	if (argc == 3 && !strcmp(argv[1], "seed")) {
		test_current = argv[2];
		one(strtoull(argv[2], NULL, 0), true);
		return 0;
	}
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		char name[32];

		snprintf(name, sizeof(name), "seed %u", (unsigned)seed);
		test_current = name;
		one(seed, false);
	}
	printf("%u seeds: %" PRIu64 " bytes by TCP, none lost; %" PRIu64 " datagrams, %" PRIu64 " heard, none twice; %" PRIu64
	       " changes of way, %" PRIu64 " plug-outs, %" PRIu64 " frames sent again, %" PRIu64 " lost\n",
	       SEEDS, totals.bytes, totals.sent, totals.heard, totals.moves, totals.plug_outs, totals.moved, totals.lost);
	return 0;
}
