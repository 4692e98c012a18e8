/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs ring's transmit features over the software NIC: the contract suite with frames sent from device memory, and over devices
 * that lack one capability each; then what only device memory has.
 */
#include "ring/verbs_priv.h"
#include "ring_verbs_rig.h"

#define DM_BYTES 8192u

/* ---- the suite, out of device memory ----------------------------------------------------------------------------------- */

static void open_dm(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .dev_mem = DM_BYTES }, "extended");
}

static void open_dm_legacy(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .dev_mem = DM_BYTES, .legacy = true }, "legacy");
}

static void open_dm_bare(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .inline_max = UINT32_MAX, .no_csum = true, .dev_mem = 2048 }, "extended");
}

#define ALL_BUT(what) ((RIG_FLOWS | RIG_TXQ | RIG_PACING | RIG_TSO | RIG_TX_CSUM | RIG_RX_CSUM | RIG_ARM) & ~(what))

static void open_stamped(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .stamps = PV_VERBS_STAMPS_RAW }, "extended");
}

VERBS(stamped, open_stamped, ALL_BUT(0));
VERBS(memory, open_dm, ALL_BUT(0));
VERBS(memory_legacy, open_dm_legacy, ALL_BUT(0));
VERBS(memory_bare, open_dm_bare, RIG_FLOWS | RIG_TXQ | RIG_PACING);

#define MEMORY(id) CONTRACT_CASE(memory, id)
CONTRACT_LIST(MEMORY)
#define MEMORY_LEGACY(id) CONTRACT_CASE(memory_legacy, id)
CONTRACT_LIST(MEMORY_LEGACY)
#define MEMORY_BARE(id) CONTRACT_CASE(memory_bare, id)
CONTRACT_LIST(MEMORY_BARE)

/* ---- devices that lack something --------------------------------------------------------------------------------------- */

static void open_lacking(struct rig *rig, const char *mode, const char *options)
{
	open_as(rig, (struct pv_verbs_cfg){ .rx_interrupts = true }, mode, options);
}

#define LACKING(id, mode, off)                                                                                                     \
	static void open_##id(struct rig *rig)                                                                                     \
	{                                                                                                                          \
		open_lacking(rig, mode, ",off=" off);                                                                              \
	}

LACKING(no_tso, "extended", "tso")
LACKING(no_pacing, "extended", "pacing")
LACKING(no_burst, "extended", "pacing-burst")
LACKING(no_csum, "extended", "csum")
LACKING(no_extended, "legacy", "extended")
LACKING(no_inline, "extended", "inline")

VERBS(no_tso, open_no_tso, ALL_BUT(RIG_TSO));
VERBS(no_pacing, open_no_pacing, ALL_BUT(RIG_PACING));
VERBS(no_burst, open_no_burst, ALL_BUT(0));
VERBS(no_csum, open_no_csum, ALL_BUT(RIG_TX_CSUM | RIG_RX_CSUM | RIG_TSO));
VERBS(no_extended, open_no_extended, ALL_BUT(0));
VERBS(no_inline, open_no_inline, ALL_BUT(0));

#define NO_TSO(id) CONTRACT_CASE(no_tso, id)
CONTRACT_LIST(NO_TSO)
#define NO_PACING(id) CONTRACT_CASE(no_pacing, id)
CONTRACT_LIST(NO_PACING)
#define NO_BURST(id) CONTRACT_CASE(no_burst, id)
CONTRACT_LIST(NO_BURST)
#define NO_CSUM(id) CONTRACT_CASE(no_csum, id)
CONTRACT_LIST(NO_CSUM)
#define NO_EXTENDED(id) CONTRACT_CASE(no_extended, id)
CONTRACT_LIST(NO_EXTENDED)
#define NO_INLINE(id) CONTRACT_CASE(no_inline, id)
CONTRACT_LIST(NO_INLINE)

/* What a ring says of such a device, not only what it does without. */
TEST(a_device_is_believed_when_it_lacks_something)
{
	const struct {
		const struct rig_kind *kind;
		bool tso, pacing, burst, csum, inlines;
	} want[] = {
		{ &no_tso, false, true, true, true, true },     { &no_pacing, true, false, false, true, true },
		{ &no_burst, true, true, false, true, true },   { &no_csum, false, true, true, false, true },
		{ &no_extended, true, true, true, true, true }, { &no_inline, true, true, true, true, false },
	};

	for (uint32_t i = 0; i < pv_array_size(want); i++) {
		const struct pv_ring_caps *c;
		struct rig rig;

		rig_open(&rig, want[i].kind);
		c = &rig.ring[0]->caps;
		CHECK_EQ(c->tso_max != 0, want[i].tso);
		CHECK_EQ(c->pacing_max_kbps != 0, want[i].pacing);
		CHECK_EQ(c->pacing_burst, want[i].burst);
		CHECK_EQ(c->tx_csum != 0, want[i].csum);
		CHECK_EQ(c->inline_size != 0, want[i].inlines);
		CHECK_EQ(c->max_sge > 4, want[i].tso);
		rig_close(&rig);
	}
}

/* ---- device memory ----------------------------------------------------------------------------------------------------- */

/* Opened without an error, and without the memory; why it is so is told. */
static void goes_without(const char *options, uint32_t bytes, const char *hint)
{
	static const struct pv_pool_cfg pool_cfg = { .buf_size = 2048, .headroom = 128, .count = 64, .max = 64 };
	char names[2][PV_RING_NAME_MAX], err[256] = "";
	struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB, .dev_mem = bytes };
	struct pv_ring_counters c;
	struct testmem m;
	struct pv_pool *pool;
	struct pv_ring *r;

	devices(names, options);
	cfg.device = names[0];
	testmem_init(&m);
	CHECK_EQ(pv_pool_open(&pool, &m.mem, &pool_cfg), 0);
	CHECK_EQ(pv_verbs_open(&r, &m.mem, pool, &cfg, err, sizeof(err)), 0);
	pv_ring_counters(r, &c);
	CHECK_EQ(c.dm_alloc, hint ? 0 : (bytes + 63) / 64 * 64);
	if (hint && !strstr(err, hint))
		fprintf(stderr, "text: %s\n", err);
	CHECK(hint ? strstr(err, hint) != NULL : !err[0]);
	pv_ring_close(r);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(m.blocks, 0);
}

TEST(a_device_with_little_memory_or_none_is_used_without)
{
	goes_without("", 16384, NULL);
	goes_without("", 100, NULL);
	goes_without("", 262144, NULL); /* all of a device of one port */
	goes_without("", 262145, "262144 bytes");
	goes_without(",dm=131072", 131072, NULL); /* of a device of two */
	goes_without(",dm=131072", 131073, "131072 bytes");
	goes_without(",dm=1000", 16384, "1000 bytes");
	goes_without(",off=dm", 16384, "has no memory");
}

/* Two rings on one port want more than there is: the second goes without, until the first has closed. */
TEST(memory_that_another_ring_has_is_not_to_be_had)
{
	static const struct pv_pool_cfg pool_cfg = { .buf_size = 2048, .headroom = 128, .count = 64, .max = 64 };
	char names[2][PV_RING_NAME_MAX], err[256];
	struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB, .dev_mem = 200000 };
	struct pv_ring_counters c;
	struct testmem m;
	struct pv_pool *pool[2];
	struct pv_ring *r[2];

	devices(names, "");
	cfg.device = names[0];
	testmem_init(&m);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_pool_open(&pool[i], &m.mem, &pool_cfg), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pv_verbs_open(&r[i], &m.mem, pool[i], &cfg, err, sizeof(err)), 0);
		pv_ring_counters(r[i], &c);
		CHECK_EQ(c.dm_alloc, i ? 0 : 200000);
		CHECK_EQ(err[0] != 0, i);
	}
	pv_ring_close(r[0]);
	pv_ring_close(r[1]);
	CHECK_EQ(pv_verbs_open(&r[1], &m.mem, pool[1], &cfg, err, sizeof(err)), 0);
	CHECK(!err[0]);
	pv_ring_close(r[1]);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_pool_close(pool[i]), 0);
	CHECK_EQ(m.blocks, 0);
}

/* A frame in device memory is done as soon as it was posted: whoever keeps it may write to it before it leaves. */
TEST(a_frame_in_device_memory_is_done_at_once)
{
	const struct rig_kind *kinds[] = { &memory, &memory_legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		struct pv_pkt *p;
		struct rig rig;

		rig_open(&rig, kinds[k]);
		rig_fill(&rig, 1);
		for (uint32_t i = 0; i < 40; i++) {
			rig_post(&rig, 0, rig_frame(&rig, 0, 1200, i));
			CHECK_EQ(pv_ring_tx_reap(rig.ring[0], &p, 1), 1);
			memset(p->data, 0xee, p->len);
			pv_pkt_put(p);
			rig_kick(&rig, 0);
			rig_expect(&rig, 1, 1200, i);
			rig_fill(&rig, 1);
		}
		rig_close(&rig);
	}
}

struct hammer {
	struct rig rig;
	bool compare; /* every byte, not the number alone */
	uint64_t sent, longs, bytes, got, received;
};

/* A batch of all kinds, of which so many are taken. */
static uint32_t hammer_post(struct hammer *h)
{
	uint32_t n = 1 + (uint32_t)pv_rng_below(&h->rig.rng, 16), k;
	struct pv_pkt *p[16];

	for (uint32_t i = 0; i < n; i++) {
		uint32_t len = pv_rng_below(&h->rig.rng, 4) ? 60 + (uint32_t)pv_rng_below(&h->rig.rng, 700) : 1514;

		p[i] = pv_pkt_get(h->rig.pool[0]);
		CHECK(p[i] != NULL);
		rig_write(p[i]->data, h->compare ? len : 18, 0, (uint32_t)(h->sent + i));
		p[i]->len = p[i]->total = len;
	}
	k = pv_ring_tx_post(h->rig.ring[0], p, n);
	for (uint32_t i = 0; i < k; i++) {
		h->longs += p[i]->len > h->rig.ring[0]->caps.inline_size;
		h->bytes += p[i]->len;
	}
	h->sent += k;
	for (uint32_t i = k; i < n; i++)
		pv_pkt_put(p[i]);
	return k;
}

static void hammer_take(struct hammer *h, struct pv_pkt *p)
{
	CHECK_EQ(rig_number(p), (uint32_t)h->got);
	if (h->compare)
		rig_check(p, 0, p->len, (uint32_t)h->got);
	h->received += p->len;
	h->got++;
	pv_pkt_put(p);
}

static void hammer_poll(struct hammer *h)
{
	struct pv_pkt *in[PV_RING_BATCH_MAX];
	uint32_t k;

	while (rig_reap(&h->rig, 0))
		;
	while ((k = pv_ring_rx_poll(h->rig.ring[1], in, PV_RING_BATCH_MAX))) {
		for (uint32_t i = 0; i < k; i++)
			hammer_take(h, in[i]);
		rig_fill(&h->rig, 1);
	}
}

static void hammer_counts(struct hammer *h, const char *name)
{
	struct pv_ring_counters c;

	pv_ring_counters(h->rig.ring[0], &c);
	CHECK_EQ(c.tx_packets, h->sent);
	CHECK_EQ(c.tx_bytes, h->bytes);
	CHECK_EQ(h->received, h->bytes);
	CHECK_EQ(c.dm_packets + c.dm_oob, h->longs);
	CHECK(c.dm_packets > h->longs / 4 && c.dm_oob > h->longs / 1000);
	CHECK(c.dm_bytes > c.dm_packets * 200 && c.dm_bytes < h->bytes);
	CHECK_EQ(c.tx_errors, 0);
	printf("%s: %llu frames, %llu longer than %u bytes: %llu from device memory (%llu bytes), %llu from the host's\n", name,
	       (unsigned long long)h->sent, (unsigned long long)h->longs, h->rig.ring[0]->caps.inline_size,
	       (unsigned long long)c.dm_packets, (unsigned long long)c.dm_bytes, (unsigned long long)c.dm_oob);
}

/* Sends frames of all kinds in batches, some without a doorbell in between, so that the block wraps and is full at times; every frame is
 * compared when it arrives, and the counts add up: what is longer than the inline limit was sent from one memory or the other. */
static void hammer(const struct rig_kind *kind, uint64_t frames, bool compare)
{
	struct hammer h = { .compare = compare };
	uint32_t unkicked = 0;

	rig_open(&h.rig, kind);
	rig_fill(&h.rig, 1);
	while (h.sent < frames) {
		unkicked += hammer_post(&h);
		/* The fabric's queue holds as many frames as there are receive buffers. */
		if (unkicked > 24 || pv_rng_below(&h.rig.rng, 3)) {
			rig_kick(&h.rig, 0);
			unkicked = 0;
		}
		hammer_poll(&h);
	}
	rig_kick(&h.rig, 0);
	while (h.got < h.sent) {
		hammer_take(&h, rig_recv(&h.rig, 1));
		rig_fill(&h.rig, 1);
	}
	hammer_counts(&h, kind->name);
	/* Closed with frames that nobody rang for. */
	for (uint32_t i = 0; i < 40; i++) {
		struct pv_pkt *p = rig_frame(&h.rig, 0, 1000, i);

		if (!pv_ring_tx_post(h.rig.ring[0], &p, 1))
			pv_pkt_put(p);
	}
	rig_close(&h.rig);
}

TEST(counts_of_device_memory_add_up)
{
	const bool hours = getenv("PYVMA_TEST_LONG") != NULL;

	hammer(&memory, 20000, true);
	hammer(&memory_legacy, 20000, true);
	hammer(&memory, hours ? 10000000 : 50000, false);
}

/* A queue pair in error and frames in device memory: all come back, nothing is charged that is not there. */
TEST(an_error_takes_nothing_with_it)
{
	const struct rig_kind *kinds[] = { &memory, &memory_legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		struct pv_ring_counters c;
		struct pv_pkt *p;
		struct rig rig;

		rig_open(&rig, kinds[k]);
		/* The first queue: what cannot be in device memory, with a key that is wrong. */
		for (uint32_t i = 0; i < 5; i++)
			rig_post(&rig, 0, rig_frame(&rig, 0, 1000, i));
		p = contract_queued(&rig, 0, 1000, 9);
		p->len = 10;
		p->total = 1000;
		p->frag = rig_frame(&rig, 0, 990, 9);
		p->key ^= 0x55555555;
		rig_post(&rig, 0, p);
		for (uint32_t i = 0; i < 5; i++)
			rig_post(&rig, 0, rig_frame(&rig, 0, 1000, i));
		pv_ring_tx_kick(rig.ring[0]);
		p->key ^= 0x55555555;
		rig_reap_all(&rig, 0, 11);
		contract_wait_event(&rig, 0, PV_RING_EV_ERROR);
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.dm_packets + c.dm_oob, 11);
		CHECK(c.dm_oob >= 1);
		rig_close(&rig);
	}
}

/* ---- queues of their own ----------------------------------------------------------------------------------------------- */

/* An error of one queue is the ring's; its packets come back, and those that others have are sent. */
TEST(an_error_on_a_queue_is_told)
{
	const struct rig_kind *kinds[] = { &memory, &memory_legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		struct pv_pkt *p;
		struct rig rig;

		rig_open(&rig, kinds[k]);
		rig_fill(&rig, 1);
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), 1);
		p = contract_queued(&rig, 1, 1000, 1);
		p->key ^= 0x55555555;
		rig_post(&rig, 0, p);
		rig_post(&rig, 0, contract_queued(&rig, 1, 1000, 2));
		rig_post(&rig, 0, rig_frame(&rig, 0, 900, 3));
		pv_ring_tx_kick(rig.ring[0]);
		p->key ^= 0x55555555;
		rig_expect(&rig, 1, 900, 3);
		rig_reap_all(&rig, 0, 3);
		contract_wait_event(&rig, 0, PV_RING_EV_ERROR);
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 1), 0);
		rig_close(&rig);
	}
}

/* In a child of fork the device does not answer any more: queues give back what they hold, and close. */
TEST(a_dead_device_gives_back_what_queues_hold)
{
	const struct rig_kind *kinds[] = { &memory, &memory_legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		const struct pv_ring_rate slow = { .kbps = 8000 };
		struct rig rig;
		int status;
		pid_t pid;

		rig_open(&rig, kinds[k]);
		rig_fill(&rig, 1);
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], &slow), 1);
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), 2);
		for (uint32_t i = 0; i < 10; i++)
			rig_post(&rig, 0, contract_queued(&rig, 1 + i % 2, i & 4 ? 60 : 1200, i));
		CHECK_EQ(pv_ring_txq_close(rig.ring[0], 2), 0);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), -ENODEV);
			rig_reap_all(&rig, 0, 10);
			contract_wait_event(&rig, 0, PV_RING_EV_GONE);
			CHECK_EQ(pv_ring_txq_open(rig.ring[0], NULL), -ENODEV);
			CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, NULL), -ENODEV);
			CHECK_EQ(pv_ring_txq_pending(rig.ring[0], 1), 0);
			CHECK_EQ(pv_ring_txq_close(rig.ring[0], 1), 0);
			rig_close(&rig);
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
		rig_close(&rig);
	}
}

/* A device that is told of rates by ibv_modify_qp only, and one that is told on the way to RTS only: there a new rate is another queue pair,
 * and what the old one holds still leaves. */
TEST(rates_are_set_in_whatever_way_there_is)
{
	static const enum verbs_rate_way ways[] = { VERBS_RATE_LIMIT, VERBS_RATE_RTS, VERBS_RATE_TRANSITION };
	const struct pv_ring_rate fast = { .kbps = 400000 }, slow = { .kbps = 40000 }; /* 1000 bytes in 20 us, in 200 us */
	struct pv_ring_counters c;

	for (uint32_t w = 0; w < pv_array_size(ways); w++) {
		struct verbs_ring *v;
		uint64_t stamp[30];
		struct pv_pkt *in;
		struct rig rig;

		rig_open(&rig, &stamped);
		v = verbs_ring(rig.ring[0]);
		CHECK_EQ(v->rate_way, VERBS_RATE_LIMIT);
		v->rate_way = ways[w];
		CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
		rig_fill(&rig, 1);
		CHECK_EQ(pv_ring_txq_open(rig.ring[0], &fast), 1);
		for (uint32_t i = 0; i < 30; i++) {
			if (i == 15)
				contract_wait_left(&rig, 1);
			if (i == 15)
				CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, &slow), 0);
			rig_post(&rig, 0, contract_queued(&rig, 1, 1000, i));
			rig_kick(&rig, 0);
		}
		for (uint32_t i = 0; i < 30; i++) {
			in = rig_recv(&rig, 1);
			CHECK_EQ(rig_number(in), i);
			stamp[i] = in->tstamp * 1000000 / rig.ring[1]->caps.tstamp_khz;
			pv_pkt_put(in);
		}
		/* All but a burst of two of the longest frames, which is this device's choice. */
		CHECK(stamp[14] - stamp[0] >= 11 * UINT64_C(20000) * 98 / 100);
		CHECK(stamp[29] - stamp[15] >= 11 * UINT64_C(200000) * 98 / 100);
		/* With frames inside, and back to none. */
		for (uint32_t i = 0; i < 6; i++)
			rig_post(&rig, 0, contract_queued(&rig, 1, 1000, i));
		rig_kick(&rig, 0);
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 1, NULL), 0);
		for (uint32_t i = 0; i < 6; i++)
			rig_post(&rig, 0, contract_queued(&rig, 1, 1000, i));
		rig_kick(&rig, 0);
		for (uint32_t i = 0; i < 12; i++) {
			in = rig_recv(&rig, 1);
			/* The frames of the old queue pair go first. */
			CHECK_EQ(rig_number(in), i % 6);
			pv_pkt_put(in);
		}
		CHECK_EQ(pv_ring_set_rate(rig.ring[0], 0, &slow), ways[w] == VERBS_RATE_TRANSITION ? -EOPNOTSUPP : 0);
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.tx_errors, 0);
		rig_close(&rig);
	}
}

int main(int c, char **v)
{
	return test_main(c, v);
}
