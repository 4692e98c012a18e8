/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that share the pool which they receive into: what all senders are promised together fits it. */
#include "tcp_world.h"

#define MS PV_NS_PER_MS
#define PORT 7000
#define TURN 65536u /* bytes that the reader takes of one before it looks at the next */
#define MAX 16u
#define PERIOD 4093u

struct flows {
	struct world w;
	struct pv_tcp *pair[MAX][2]; /* sender, on host 0; receiver */
	uint32_t n;
	uint64_t sent[MAX], got[MAX];
};

static struct flows flows;
static uint8_t data[TURN];

static struct flows *flows_open(uint32_t n, uint32_t pool)
{
	struct flows *f = &flows;
	/* The senders share one as large: none takes all of it. */
	struct world_cfg cfg = { .seed = 1, .pool = pool, .tcp = { .sndbuf_max = n > 4 ? 16384 : 0 } };

	memset(f, 0, sizeof(*f));
	f->n = n;
	tcp_world_open(&f->w, &cfg);
	for (uint32_t i = 0; i < n; i++)
		tcp_pair(&f->w, 4, (uint16_t)(PORT + i), f->pair[i]);
	pv_sim_wire_impair(f->w.wire, &(struct pv_sim_impair){ .latency_ns = MS / 20, .rate_kbps = 2000000 });
	return f;
}

static void flows_close(struct flows *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		for (uint32_t k = 0; k < 2; k++) {
			if (f->pair[i][k])
				pv_tcp_close(f->pair[i][k], f->w.now);
		}
	}
	tcp_fade(&f->w);
	CHECK_EQ(f->w.host[1].tcp->rcv_promised[f->w.host[1].iface], 0);
	world_close(&f->w);
}

static const struct pv_tcp_counters *received(const struct flows *f)
{
	return pv_tcp_table_counters(f->w.host[1].tcp);
}

/* What a stream has from `at` on. */
static const uint8_t *text(uint32_t i, uint64_t at)
{
	static uint8_t all[PERIOD + TURN];

	for (uint32_t k = 0; !all[1] && k < sizeof(all); k++)
		all[k] = (uint8_t)(k % PERIOD * 31 + (k % PERIOD >> 8) * 7);
	return all + (at + i) % PERIOD;
}

static void write_all(struct flows *f, uint64_t size)
{
	for (uint32_t i = 0; i < f->n; i++) {
		int64_t rc = 0;

		for (; rc >= 0 && f->sent[i] < size; f->sent[i] += (uint64_t)PV_MAX(rc, 0))
			rc =
			    tcp_write(&f->w, f->pair[i][0], text(i, f->sent[i]), (size_t)PV_MIN(size - f->sent[i], (uint64_t)TURN));
	}
}

/* At most `max` bytes. Returns how many. */
static uint32_t read_some(struct flows *f, uint32_t i, uint32_t max)
{
	int64_t rc = tcp_read(&f->w, f->pair[i][1], data, max);

	CHECK(rc > 0 || rc == -EAGAIN);
	if (rc < 0)
		return 0;
	CHECK(!memcmp(data, text(i, f->got[i]), (size_t)rc));
	f->got[i] += (uint64_t)rc;
	return (uint32_t)rc;
}

/* One after the other, and of none more than its turn, however much others have waiting. */
static void read_in_turn(struct flows *f, uint64_t size, int64_t limit_ns)
{
	int64_t start = f->w.now;

	for (uint64_t end = TURN; end - TURN < size; end += TURN) {
		for (uint32_t i = 0; i < f->n; i++) {
			while (f->got[i] < PV_MIN(end, size)) {
				CHECK(f->w.now - start < limit_ns);
				write_all(f, size);
				if (!read_some(f, i, (uint32_t)(PV_MIN(end, size) - f->got[i])))
					world_run(&f->w, MS / 20);
			}
		}
	}
}

TEST(four_read_in_turn)
{
	struct flows *f = flows_open(4, 1024);

	read_in_turn(f, 4 << 20, 2 * PV_NS_PER_S);
	/* Nothing that was sent by what was promised was sent for nothing. */
	CHECK_EQ(received(f)->rx_no_room, 0);
	CHECK_EQ(received(f)->rx_ooo_dropped, 0);
	CHECK_EQ(pv_tcp_table_counters(f->w.host[0].tcp)->tx_retransmits, 0);
	flows_close(f);
}

/* Nearly all of the pool is what they are promised at first. */
TEST(many_read_in_turn)
{
	struct flows *f = flows_open(MAX, 1024);

	read_in_turn(f, 16 * TURN, 2 * PV_NS_PER_S);
	CHECK_EQ(received(f)->rx_no_room, 0);
	flows_close(f);
}

/* What one has that nobody reads leaves room for the others. */
TEST(the_unread_leave_room)
{
	struct flows *f = flows_open(4, 1024);
	uint32_t total = f->w.host[1].pool->total;
	uint64_t was;

	/* They have grown. */
	for (uint32_t round = 0; round < 200; round++) {
		write_all(f, UINT64_MAX);
		for (uint32_t i = 0; i < f->n; i++)
			while (read_some(f, i, TURN))
				;
		world_run(&f->w, MS / 20);
	}
	for (uint32_t round = 0; round < 200; round++) {
		write_all(f, UINT64_MAX);
		while (read_some(f, 0, TURN))
			;
		world_run(&f->w, MS / 20);
		CHECK(f->w.host[1].pool->nfree >= total >> 4);
	}
	CHECK(f->got[0] > f->got[1] + (1 << 20));
	CHECK_EQ(received(f)->rx_no_room, 0);
	was = f->got[1];
	for (uint32_t round = 0; round < 400; round++) {
		write_all(f, UINT64_MAX);
		for (uint32_t i = 0; i < f->n; i++)
			while (read_some(f, i, TURN))
				;
		world_run(&f->w, MS / 20);
	}
	CHECK(f->got[1] > was + (1 << 18));
	flows_close(f);
}

static uint32_t window(const struct flows *f, uint32_t i)
{
	return pv_seq_dist(f->pair[i][1]->rcv_nxt, f->pair[i][1]->rcv_adv);
}

/* What was promised is there again when a connection is over, and when its sender is. */
TEST(promises_end)
{
	struct flows *f = flows_open(3, 1024);
	const int64_t *promised = &f->w.host[1].tcp->rcv_promised[f->w.host[1].iface];
	uint32_t alone;

	f->n = 1;
	read_in_turn(f, 16 << 20, 10 * PV_NS_PER_S);
	alone = window(f, 0);
	CHECK(alone > 400000); /* of a pool of two million bytes */
	CHECK(*promised >= alone);
	pv_tcp_shutdown(f->pair[0][0], 2, f->w.now);
	world_run(&f->w, 1000 * MS);
	CHECK_EQ(*promised, 0);
	f->n = 3;
	f->got[0] = f->sent[0] = 16 << 20;
	read_in_turn(f, 16 << 20, 10 * PV_NS_PER_S);
	CHECK(*promised > 0);
	CHECK(window(f, 1) + window(f, 2) < 1024 * 2048);
	pv_tcp_close(f->pair[1][1], f->w.now);
	f->pair[1][1] = NULL;
	pv_tcp_close(f->pair[2][1], f->w.now);
	f->pair[2][1] = NULL;
	CHECK_EQ(*promised, 0);
	flows_close(f);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
