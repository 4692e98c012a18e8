/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs ring over the software NIC: the contract suite over the extended interface, over the legacy one and with a pcap
 * record; then opening, its errors, and what only this ring has.
 */
#include <dirent.h>

#include "ring/pcap.h"
#include "ring_verbs_rig.h"

static void open_extended(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true }, "extended");
}

static void open_stamps(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .stamps = PV_VERBS_STAMPS_RAW }, "extended");
}

static void open_legacy(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .rx_interrupts = true, .legacy = true }, "legacy");
}

static void open_bare(struct rig *rig)
{
	open_with(rig, (struct pv_verbs_cfg){ .inline_max = UINT32_MAX, .no_csum = true, .port = 1 }, "extended");
}

static void sink(void *ctx, const void *data, size_t len)
{
	*(size_t *)ctx += len + (data == NULL);
}

static int64_t now_ns(void *ctx)
{
	(void)ctx;
	return 1;
}

static void open_pcap(struct rig *rig)
{
	static size_t bytes;
	const struct pv_pcap_cfg cfg = { .sink = sink, .now_ns = now_ns, .ctx = &bytes };

	open_extended(rig);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_pcap_add(rig->ring[i], &rig->mem.mem, &cfg), 0);
}

VERBS(extended, open_extended, RIG_FLOWS | RIG_TXQ | RIG_PACING | RIG_TSO | RIG_TX_CSUM | RIG_RX_CSUM | RIG_ARM);
VERBS(stamps, open_stamps, RIG_FLOWS | RIG_TXQ | RIG_PACING | RIG_TSO | RIG_TX_CSUM | RIG_RX_CSUM | RIG_ARM | RIG_STAMPS);
VERBS(legacy, open_legacy, RIG_FLOWS | RIG_TXQ | RIG_PACING | RIG_TSO | RIG_TX_CSUM | RIG_RX_CSUM | RIG_ARM);
VERBS(bare, open_bare, RIG_FLOWS | RIG_TXQ | RIG_PACING);
VERBS(pcap, open_pcap, RIG_FLOWS | RIG_TXQ | RIG_PACING | RIG_TSO | RIG_TX_CSUM | RIG_RX_CSUM | RIG_ARM);

static const struct rig_kind spread = {
	.name = "spread",
	.must = RIG_FLOWS | RIG_TXQ | RIG_PACING | RIG_TSO | RIG_TX_CSUM | RIG_RX_CSUM | RIG_ARM | RIG_STAMPS,
	.rx_queues = 4,
	.open = open_stamps,
	.close = close_rig,
	.settle = settle,
	.set_link = set_link,
};

#define EXTENDED(id) CONTRACT_CASE(extended, id)
CONTRACT_LIST(EXTENDED)
#define STAMPS(id) CONTRACT_CASE(stamps, id)
CONTRACT_LIST(STAMPS)
#define SPREAD(id) CONTRACT_CASE(spread, id)
CONTRACT_LIST(SPREAD)
#define LEGACY(id) CONTRACT_CASE(legacy, id)
CONTRACT_LIST(LEGACY)
#define BARE(id) CONTRACT_CASE(bare, id)
CONTRACT_LIST(BARE)
#define PCAP(id) CONTRACT_CASE(pcap, id)
CONTRACT_LIST(PCAP)

/* ---- opening ----------------------------------------------------------------------------------------------------------- */

static const struct pv_pool_cfg pool_cfg = { .buf_size = 2048, .headroom = 128, .count = 128, .max = 128 };

/* Opens and expects this error, a text that holds `hint`, and nothing left behind. */
static void refused(struct pv_verbs_cfg cfg, const struct pv_pool_cfg *pc, int rc, const char *hint)
{
	struct pv_verbs_info info;
	struct testmem m;
	struct pv_pool *pool;
	struct pv_ring *r;
	char err[256];

	testmem_init(&m);
	CHECK_EQ(pv_pool_open(&pool, &m.mem, pc), 0);
	CHECK_EQ(pv_verbs_open(&r, &m.mem, pool, &cfg, err, sizeof(err)), rc);
	if (!strstr(err, hint))
		fprintf(stderr, "text: %s\n", err);
	CHECK(strstr(err, hint) != NULL);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(m.blocks, 0);
	if (pc != &pool_cfg)
		return;
	/* A probe says the same; a text that does not fit is cut. */
	err[3] = 'x';
	CHECK_EQ(pv_verbs_probe(&cfg, &info, err, 3), rc);
	CHECK_EQ(err[3], 'x');
	CHECK(memchr(err, 0, 3) != NULL);
}

TEST(what_cannot_be_opened_says_why)
{
	const struct pv_pool_cfg small = { .buf_size = 1024, .headroom = 128, .count = 16, .max = 16 };
	char names[2][PV_RING_NAME_MAX];

	devices(names, "");
	refused((struct pv_verbs_cfg){ .library = "libno-such-thing.so.1", .device = "x" }, &pool_cfg, -ENOENT, "libno-such-thing");
	refused((struct pv_verbs_cfg){ .library = "libm.so.6", .device = "x" }, &pool_cfg, -ENOENT, "lacks ibv_get_device_list");
	refused((struct pv_verbs_cfg){ .library = SOFTNIC_LIB }, &pool_cfg, -EINVAL, "no device");
	refused((struct pv_verbs_cfg){ .library = SOFTNIC_LIB, .device = "" }, &pool_cfg, -EINVAL, "no device");
	refused((struct pv_verbs_cfg){ .library = SOFTNIC_LIB, .device = "no-such-nic" }, &pool_cfg, -ENOENT, "no-such-nic");
	refused((struct pv_verbs_cfg){ .library = SOFTNIC_LIB, .device = names[0], .port = 2 }, &pool_cfg, -EINVAL, "no port 2");
	refused((struct pv_verbs_cfg){ .library = SOFTNIC_LIB, .device = names[0] }, &small, -EINVAL, "MTU 1500");
}

TEST(memory_may_fail_anywhere)
{
	char names[2][PV_RING_NAME_MAX], err[256];
	struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB, .rx_interrupts = true };
	struct testmem m;
	struct pv_pool *pool;
	struct pv_ring *r;
	int rc;

	devices(names, "");
	cfg.device = names[0];
	testmem_init(&m);
	CHECK_EQ(pv_pool_open(&pool, &m.mem, &pool_cfg), 0);
	for (long i = 0;; i++) {
		m.fail_in = i;
		rc = pv_verbs_open(&r, &m.mem, pool, &cfg, err, sizeof(err));
		if (!rc)
			break;
		CHECK_EQ(rc, -ENOMEM);
		CHECK(err[0]);
		CHECK(i < 100);
	}
	m.fail_in = -1;
	pv_ring_close(r);
	CHECK_EQ(pv_pool_close(pool), 0);
	CHECK_EQ(m.blocks, 0);
}

static uint32_t open_fds(void)
{
	struct dirent *e;
	uint32_t n = 0;
	DIR *d = opendir("/proc/self/fd");

	CHECK(d != NULL);
	while ((e = readdir(d)))
		n++;
	closedir(d);
	return n;
}

/* Its buffer is the pool's again, and the owner is told to post another; those of a queue that is dead are not asked for again. */
TEST(a_failed_receive_loses_no_buffer)
{
	struct pv_pkt *p, *out[4];
	struct rig rig;

	rig_open(&rig, &legacy);
	p = pv_pkt_get(rig.pool[1]);
	p->size = 192;
	CHECK_EQ(pv_ring_rx_post(rig.ring[1], &p, 1), 1);
	p->size = rig.pool[1]->headroom + 1920;
	rig_fill(&rig, 1);
	CHECK_EQ(rig.pool[1]->total - rig.pool[1]->nfree, RIG_DEPTH);
	rig_send(&rig, 0, 1000, 1);
	CHECK_EQ(pv_ring_rx_poll(rig.ring[1], out, 4), 0);
	CHECK_EQ(rig.ring[1]->stat->c.rx_errors, 1);
	CHECK_EQ(rig.ring[1]->rx_more, 1);
	while (rig.pool[1]->nfree < rig.pool[1]->total)
		CHECK_EQ(pv_ring_rx_poll(rig.ring[1], out, 4), 0);
	CHECK_EQ(rig.ring[1]->rx_more, 1);
	CHECK_EQ(rig.ring[1]->stat->c.rx_errors, 1);
	rig_reap_all(&rig, 0, 1);
	rig_close(&rig);
}

/* A device that something of ours still uses is not closed: its fds would stay. */
TEST(close_leaves_nothing_with_the_library)
{
	uint32_t before = 0;

	for (uint32_t i = 0; i < 20; i++) {
		struct rig rig;

		rig_open(&rig, i & 1 ? &stamps : &legacy);
		rig_fill(&rig, 0);
		rig_send(&rig, 0, 1000, 1);
		CHECK_EQ(pv_pool_grow(rig.pool[1]), 0);
		rig_close(&rig);
		before = i ? before : open_fds();
		CHECK_EQ(open_fds(), before);
	}
}

TEST(probe_tells_the_port)
{
	char names[2][PV_RING_NAME_MAX], err[256];
	struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB };
	struct pv_verbs_info info;
	uint8_t mac[PV_ETH_ALEN];

	devices(names, ",mtu=4000");
	for (int i = 0; i < 2; i++) {
		cfg.device = names[i];
		rig_mac(i, mac);
		CHECK_EQ(pv_verbs_probe(&cfg, &info, err, sizeof(err)), 0);
		CHECK(!strcmp(info.device, names[i]));
		CHECK_EQ(info.port, 1);
		CHECK_EQ(info.mtu, 4000);
		CHECK(pv_mac_eq(info.mac, mac));
		CHECK(info.link_up && info.raw_packet);
	}
}

/* ---- what only this ring has ------------------------------------------------------------------------------------------- */

TEST(inline_size_is_what_was_asked)
{
	static const uint32_t asked[] = { 0, 1, 64, 128, 204, UINT32_MAX };
	static const uint32_t given[] = { 204, 1, 64, 128, 204, 0 };
	char names[2][PV_RING_NAME_MAX], err[256];
	struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB };

	devices(names, "");
	cfg.device = names[0];
	for (uint32_t i = 0; i < 2 * pv_array_size(asked); i++) {
		struct testmem m;
		struct pv_pool *pool;
		struct pv_ring *r;

		testmem_init(&m);
		cfg.inline_max = asked[i / 2];
		cfg.legacy = i & 1;
		CHECK_EQ(pv_pool_open(&pool, &m.mem, &pool_cfg), 0);
		CHECK_EQ(pv_verbs_open(&r, &m.mem, pool, &cfg, err, sizeof(err)), 0);
		CHECK_EQ(r->caps.inline_size, given[i / 2]);
		CHECK_EQ(r->caps.rx_depth, 1024);
		CHECK(strstr(r->caps.name, names[0]) != NULL);
		pv_ring_close(r);
		CHECK_EQ(pv_pool_close(pool), 0);
		CHECK_EQ(m.blocks, 0);
	}
}

/* A packet that was copied is reapable after the doorbell, without any completion; the largest that is, and the first that is not. */
TEST(inlined_packets_are_done_at_once)
{
	const struct rig_kind *kinds[] = { &extended, &stamps, &legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		struct pv_ring_counters c;
		struct rig rig;

		rig_open(&rig, kinds[k]);
		rig_fill(&rig, 1);
		CHECK_EQ(rig.ring[0]->caps.inline_size, 204);
		for (uint32_t i = 0; i < 1000; i++) {
			rig_send(&rig, 0, 204, i);
			CHECK_EQ(rig_reap(&rig, 0), 1);
			rig_expect(&rig, 1, 204, i);
			rig_fill(&rig, 1);
		}
		rig_send(&rig, 0, 205, 1);
		rig_expect(&rig, 1, 205, 1);
		rig_reap_all(&rig, 0, 1);
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.tx_packets, 1001);
		rig_close(&rig);
	}
}

/* Short queues: completions must be asked for often enough that the queue never locks up. */
TEST(queues_of_every_depth_flow)
{
	for (uint32_t depth = 1; depth <= 9; depth++) {
		char names[2][PV_RING_NAME_MAX], err[256];
		struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB, .rx_depth = depth, .tx_depth = depth };
		struct testmem m;
		struct pv_pool *pool;
		struct pv_ring *r;
		uint32_t sent = 0;
		double until = rig_now() + RIG_PATIENCE_S;

		devices(names, "");
		cfg.device = names[0];
		cfg.legacy = depth & 1;
		testmem_init(&m);
		CHECK_EQ(pv_pool_open(&pool, &m.mem, &pool_cfg), 0);
		CHECK_EQ(pv_verbs_open(&r, &m.mem, pool, &cfg, err, sizeof(err)), 0);
		while (sent < 500) {
			struct pv_pkt *p = pv_pkt_get(pool), *out[4];
			uint32_t n;

			rig_write(p->data, 64, 0, sent);
			p->len = p->total = sent % 3 ? 64 : 1000;
			if (pv_ring_tx_post(r, &p, 1))
				sent++;
			else
				pv_pkt_put(p);
			CHECK_EQ(pv_ring_tx_kick(r), 0);
			n = pv_ring_tx_reap(r, out, 4);
			for (uint32_t i = 0; i < n; i++)
				pv_pkt_put(out[i]);
			CHECK(rig_now() < until);
		}
		pv_ring_close(r);
		CHECK_EQ(pv_pool_close(pool), 0);
		CHECK_EQ(m.blocks, 0);
	}
}

/* Many frames in one chain, and one doorbell for them. */
TEST(a_batch_is_one_doorbell)
{
	const struct rig_kind *kinds[] = { &extended, &stamps, &legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		struct pv_pkt *p[32];
		struct pv_ring_counters c;
		struct rig rig;

		rig_open(&rig, kinds[k]);
		rig_fill(&rig, 1);
		for (uint32_t round = 0; round < 50; round++) {
			for (uint32_t i = 0; i < 32; i++)
				p[i] = rig_frame(&rig, 0, i % 5 ? 64 : 800, round * 32 + i);
			CHECK_EQ(pv_ring_tx_post(rig.ring[0], p, 32), 32);
			rig_kick(&rig, 0);
			for (uint32_t i = 0; i < 32; i++)
				rig_expect(&rig, 1, i % 5 ? 64 : 800, round * 32 + i);
			rig_reap_all(&rig, 0, 32);
			rig_fill(&rig, 1);
		}
		pv_ring_counters(rig.ring[0], &c);
		CHECK_EQ(c.doorbells, 50);
		rig_close(&rig);
	}
}

TEST(jumbo_frames)
{
	static const struct pv_pool_cfg jumbo = { .buf_size = 9344, .headroom = 128, .count = 64, .max = 64 };
	static const struct pv_flow all = { .kind = PV_FLOW_ALL };
	struct rig rig = { .kind = &extended };
	char names[2][PV_RING_NAME_MAX], err[256];

	testmem_init(&rig.mem);
	devices(names, ",mtu=9000");
	for (int i = 0; i < 2; i++) {
		const struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB, .device = names[i], .rx_depth = 16, .legacy = i };
		uint64_t handle;

		CHECK_EQ(pv_pool_open(&rig.pool[i], &rig.mem.mem, &jumbo), 0);
		CHECK_EQ(pv_verbs_open(&rig.ring[i], &rig.mem.mem, rig.pool[i], &cfg, err, sizeof(err)), 0);
		CHECK_EQ(rig.ring[i]->caps.mtu, 9000);
		CHECK_EQ(pv_ring_flow_add(rig.ring[i], &all, &handle), 0);
		rig_fill(&rig, i);
	}
	for (uint32_t len = 1400; len <= 9014; len += len > 9000 ? 1 : 211) {
		for (int from = 0; from < 2; from++) {
			rig_send(&rig, from, len, len);
			rig_expect(&rig, 1 - from, len, len);
			rig_reap_all(&rig, from, 1);
			rig_fill(&rig, 1 - from);
		}
	}
	for (int i = 0; i < 2; i++)
		rig_close_side(&rig, i);
	CHECK_EQ(rig.mem.blocks, 0);
}

/* A wrong key ends the queue pair, as on any device: every packet comes back once, receive buffers included, and the owner is told. */
TEST(a_queue_pair_in_error_gives_everything_back)
{
	const struct rig_kind *kinds[] = { &extended, &stamps, &legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		struct pv_pool_stats before, after;
		struct pv_ring_counters c;
		struct pv_pkt *p;
		struct rig rig;
		double until = rig_now() + RIG_PATIENCE_S;

		rig_open(&rig, kinds[k]);
		pv_pool_get_stats(rig.pool[0], &before);
		rig_fill(&rig, 0);
		rig_fill(&rig, 1);
		rig_send(&rig, 0, 1000, 1);
		rig_expect(&rig, 1, 1000, 1);
		rig_reap_all(&rig, 0, 1);
		p = rig_frame(&rig, 0, 1000, 2);
		p->key ^= 0x55555555;
		rig_post(&rig, 0, p);
		for (uint32_t i = 0; i < 5; i++)
			rig_post(&rig, 0, rig_frame(&rig, 0, i & 1 ? 64 : 1000, i));
		pv_ring_tx_kick(rig.ring[0]);
		p->key ^= 0x55555555;
		rig_reap_all(&rig, 0, 6);
		contract_wait_event(&rig, 0, PV_RING_EV_ERROR);
		pv_ring_counters(rig.ring[0], &c);
		CHECK(c.tx_errors >= 4); /* the inlined ones may have been told before */
		/* Later ones are flushed too, and never block. */
		rig_post(&rig, 0, rig_frame(&rig, 0, 1000, 3));
		pv_ring_tx_kick(rig.ring[0]);
		rig_reap_all(&rig, 0, 1);
		/* The flushed receive buffers go to the pool. */
		do {
			CHECK_EQ(pv_ring_rx_poll(rig.ring[0], &p, 1), 0);
			pv_pool_get_stats(rig.pool[0], &after);
			CHECK(rig_now() < until);
		} while (after.free < before.free);
		rig_close(&rig);
	}
}

/* In a child of fork the device does not answer any more, as if it had been pulled. */
TEST(a_dead_device_gives_everything_back)
{
	const struct rig_kind *kinds[] = { &extended, &stamps, &legacy };

	for (uint32_t k = 0; k < pv_array_size(kinds); k++) {
		struct rig rig;
		int status;
		pid_t pid;

		rig_open(&rig, kinds[k]);
		rig_fill(&rig, 0);
		rig_fill(&rig, 1);
		for (uint32_t i = 0; i < 10; i++) {
			struct pv_pkt *p = rig_frame(&rig, 0, i & 1 ? 60 : 1200, i);

			CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 1);
		}
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			struct pv_pkt *p;
			uint64_t handle;

			CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), -ENODEV);
			rig_reap_all(&rig, 0, 10);
			contract_wait_event(&rig, 0, PV_RING_EV_GONE);
			CHECK_EQ(pv_ring_event(rig.ring[0]), PV_RING_EV_NONE);
			CHECK(!rig.ring[0]->caps.link_up);
			p = rig_frame(&rig, 0, 64, 1);
			CHECK_EQ(pv_ring_tx_post(rig.ring[0], &p, 1), 0);
			CHECK_EQ(pv_ring_tx_kick(rig.ring[0]), -ENODEV);
			CHECK_EQ(pv_ring_flow_add(rig.ring[0], &(struct pv_flow){ 0 }, &handle), -ENODEV);
			CHECK_EQ(pv_ring_arm(rig.ring[0]), -ENODEV);
			CHECK_EQ(pv_ring_rx_post(rig.ring[0], &p, 1), 0);
			CHECK_EQ(pv_ring_rx_post(rig.ring[1], &p, 1), 0);
			pv_pkt_put(p);
			CHECK_EQ(pv_ring_rx_poll(rig.ring[0], &p, 1), 0);
			rig_close(&rig);
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
		rig_kick(&rig, 0);
		for (uint32_t i = 0; i < 10; i++)
			rig_expect(&rig, 1, i & 1 ? 60 : 1200, i);
		rig_close(&rig);
	}
}

int main(int c, char **v)
{
	return test_main(c, v);
}
