/* SPDX-License-Identifier: BSD-3-Clause */
/* The receive queues alone: random steps beside an array of bytes (tcp_reass.h), and cases by hand. `tcp_reass_test random N` runs more. */
#include "tcp_reass.h"

#include "base/rng.h"

static uint32_t runs = 500;

TEST(random)
{
	static uint8_t in[2048];

	for (uint32_t seed = 1; seed <= runs; seed++) {
		struct pv_rng rng;

		pv_rng_seed(&rng, seed);
		for (size_t i = 0; i < sizeof(in); i++)
			in[i] = (uint8_t)pv_rng_u64(&rng);
		reass_run(in, 100 + seed % 1900);
	}
}

static struct reass *open_one(uint32_t opts)
{
	struct reass *r = calloc(1, sizeof(*r));

	CHECK(r != NULL);
	r->now = PV_NS_PER_S;
	reass_open(r, opts);
	return r;
}

static void close_one(struct reass *r)
{
	reass_close(r);
	free(r);
}

/* `len` bytes of one value at offset `off`. */
static void put_bytes(struct reass *r, uint32_t off, uint32_t len, uint8_t value, uint8_t flags)
{
	struct pv_pkt *p = reass_packet(r, off, len, 0);
	struct pv_tcp_in in = { .pkt = p, .seq = pv_seq_of(REASS_ISN + 1 + off), .len = len, .flags = flags, .now_ns = r->now };

	CHECK(p != NULL);
	memset(p->data, value, len);
	pv_tcp_data(r->c, &in);
}

static void expect_bytes(struct reass *r, const char *text)
{
	char buf[64] = "";
	struct pv_iov iov = { buf, sizeof(buf) };

	CHECK_EQ(pv_tcp_recv(r->c, &iov, 1, 0, r->now), (int64_t)strlen(text));
	CHECK(!memcmp(buf, text, strlen(text)));
}

/* Of two that overlap the first to come stays; what another one covers entirely makes place for it. */
TEST(first_come_stays)
{
	struct reass *r = open_one(1 | 4);

	put_bytes(r, 4, 4, 'a', PV_TH_ACK);
	put_bytes(r, 2, 4, 'b', PV_TH_ACK); /* 2..4 is new */
	put_bytes(r, 6, 4, 'c', PV_TH_ACK); /* 8..10 is new */
	CHECK_EQ(r->c->ooo.ranges, 1);
	CHECK_EQ(r->c->ooo_bytes, 8);
	put_bytes(r, 12, 2, 'd', PV_TH_ACK);
	CHECK_EQ(r->c->ooo.ranges, 2);
	put_bytes(r, 11, 4, 'e', PV_TH_ACK); /* covers it */
	CHECK_EQ(r->c->ooo.ranges, 2);
	put_bytes(r, 9, 4, 'f', PV_TH_ACK); /* 10 is new; joins both */
	CHECK_EQ(r->c->ooo.ranges, 1);
	put_bytes(r, 0, 6, 'g', PV_TH_ACK); /* in order: wins over what waits */
	CHECK_EQ(r->c->ooo.ranges, 0);
	expect_bytes(r, "ggggggaaccfeeee");
	CHECK_EQ(r->t->c.rx_bytes, 15);
	close_one(r);
}

/* A FIN in front of data that came before is nobody's FIN; the true one is taken when its turn comes, and nothing behind it. */
TEST(fin_that_cannot_be)
{
	struct reass *r = open_one(1 | 4);

	put_bytes(r, 10, 10, 'b', PV_TH_ACK);
	put_bytes(r, 12, 3, 'x', PV_TH_ACK | PV_TH_FIN);
	CHECK(!(r->c->flags & PV_TF_FIN_SEEN));
	put_bytes(r, 18, 4, 'c', PV_TH_ACK | PV_TH_FIN);
	CHECK(r->c->flags & PV_TF_FIN_SEEN);
	CHECK(!(r->c->flags & PV_TF_FIN_RCVD));
	put_bytes(r, 30, 4, 'z', PV_TH_ACK);
	CHECK_EQ(r->c->ooo_bytes, 12);
	put_bytes(r, 0, 10, 'a', PV_TH_ACK);
	CHECK(r->c->flags & PV_TF_FIN_RCVD);
	CHECK_EQ(reass_off(r->c->rcv_nxt), 23);
	expect_bytes(r, "aaaaaaaaaabbbbbbbbbbcc");
	expect_bytes(r, "");
	put_bytes(r, 22, 5, 'z', PV_TH_ACK);
	CHECK_EQ(reass_off(r->c->rcv_nxt), 23);
	expect_bytes(r, "");
	close_one(r);
}

/* Every other byte: the number of ranges has a limit, and memory too. */
TEST(holes_everywhere)
{
	struct reass *r = open_one(1 | 4 | 8);

	for (uint32_t i = 0; i < 1500; i++) {
		put_bytes(r, 2 + 2 * ((i * 7) % 1500), 1, 'x', PV_TH_ACK);
		if (i % 50 == 0)
			reass_ack(r, 0);
	}
	CHECK(r->c->ooo.ranges <= 512);
	CHECK(r->t->c.rx_ooo_dropped > 0);
	CHECK(r->c->rcv_mem <= r->c->opts.rcvbuf + 2048);
	close_one(r);
}

/* Small segments do not hold a buffer each, in order or not. */
TEST(small_ones_share_a_buffer)
{
	struct reass *r = open_one(1 | 4);

	for (uint32_t i = 0; i < 100; i++)
		put_bytes(r, i * 10, 10, 'a', PV_TH_ACK);
	CHECK_EQ(r->c->rcvq.count, 1);
	CHECK_EQ(r->c->rcv_mem, 2048);
	for (uint32_t i = 0; i < 100; i++)
		put_bytes(r, 2000 + i * 10, 10, 'a', PV_TH_ACK);
	CHECK_EQ(r->c->ooo.count, 1);
	CHECK_EQ(r->c->rcv_mem, 4096);
	close_one(r);
}

/* When the pool runs low, larger ones share too, and what is out of order gives way before the ring goes hungry. */
TEST(low_pool)
{
	struct reass *r = open_one(1 | 2 | 4);
	uint32_t off = 0;

	while (r->pool->nfree > 17)
		r->held[r->nheld++] = pv_pkt_get(r->pool);
	for (uint32_t i = 0; i < 25; i++, off += 600)
		put_bytes(r, off, 600, 'a', PV_TH_ACK);
	CHECK_EQ(r->c->rcvq_bytes, off);
	CHECK(r->c->rcvq.count <= 10);
	while (r->pool->nfree > 3)
		r->held[r->nheld++] = pv_pkt_get(r->pool);
	put_bytes(r, off + 5000, 1000, 'a', PV_TH_ACK);
	CHECK_EQ(r->c->ooo.count, 0);
	CHECK_EQ(r->t->c.rx_ooo_dropped, 1);
	close_one(r);
}

/* Over the buffer the newest out-of-order data goes, and is not reported any more; new data in order is worth more. */
TEST(prune)
{
	struct reass *r = open_one(1 | 64);
	struct pv_wire_tcp_opts opt;

	for (uint32_t i = 0; i < 4; i++)
		put_bytes(r, 1400 + i * 1000, 1000, 'b', PV_TH_ACK);
	CHECK_EQ(r->c->ooo.count, 3); /* the last was beyond the promise */
	r->c->opts.rcvbuf = 4096;
	put_bytes(r, 0, 700, 'a', PV_TH_ACK);
	CHECK(r->c->ooo.count < 3);
	CHECK_EQ(r->c->rcvq_bytes, 700);
	CHECK_EQ(pv_tcp_sack_fill(r->c, &opt, 40), 1);
	CHECK_EQ(opt.sack[0].start, REASS_ISN + 1 + 1400);
	CHECK_EQ(opt.sack[0].end, opt.sack[0].start + r->c->ooo_bytes);
	close_one(r);
}

int main(int argc, char **argv)
{
	if (argc > 2)
		runs = (uint32_t)strtoul(argv[2], NULL, 10);
	return test_main(argc, argv);
}
