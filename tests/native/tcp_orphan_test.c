/* SPDX-License-Identifier: BSD-3-Clause */
/* What is left of a connection that was closed while the peer's FIN is to come. */
#include "tcp_peer.h"

#define S PV_NS_PER_S

static struct peer p;

static uint32_t in_state(enum pv_tcp_state s)
{
	return pv_tcp_count(p.w.host[0].tcp, s);
}

static void close_conn(void)
{
	pv_tcp_close(p.c, p.w.now);
	p.c = NULL;
	peer_run(&p, 0);
}

/* Closed, its FIN acknowledged: no connection any more, a record that waits for the peer's. */
static void wait_for_fin(void)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	peer_send(&p, "P.", 1, 1, 100);
	peer_read(&p, 100);
	peer_run(&p, 1 * S);
	peer_skip(&p);
	close_conn();
	peer_expect(&p, "F.", 1, 101, 0);
	peer_send(&p, ".", 101, 2, 0);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_expect_none(&p);
}

TEST(records_in_fin_wait_2)
{
	/* Acknowledgements change nothing; what came before, and what cannot be, is answered, without data twice a second at most. */
	wait_for_fin();
	peer_send(&p, ".", 101, 2, 0);
	peer_expect_none(&p);
	peer_send(&p, "P.", 1, 2, 100);
	peer_expect(&p, ".", 2, 101, 0);
	peer_send(&p, "S", 101, 0, 0);
	peer_expect(&p, ".", 2, 101, 0);
	peer_send(&p, "S", 101, 0, 0);
	peer_expect_none(&p);
	peer_run(&p, 1 * S);
	peer_send(&p, ".", 101 + (1u << 24), 2, 0);
	peer_expect(&p, ".", 2, 101, 0);
	/* RFC 5961 3.2 */
	peer_run(&p, 1 * S);
	peer_send(&p, "R", 102, 0, 0);
	peer_expect(&p, ".", 2, 101, 0);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	peer_send(&p, "R", 101, 0, 0);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 0);
	peer_close(&p);
	/* The FIN, behind data that came before. */
	wait_for_fin();
	peer_send(&p, "FP.", 51, 2, 50);
	peer_expect(&p, ".", 2, 102, 0);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 0);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	peer_run(&p, 59 * S);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	peer_run(&p, 2 * S);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 0);
	peer_close(&p);
	/* A FIN behind data that nobody reads, and one with a gap before it. */
	for (uint32_t gap = 0; gap < 2; gap++) {
		wait_for_fin();
		peer_send(&p, "F.", 101 + gap, 2, gap ? 0 : 10);
		peer_expect(&p, "R", 2, 0, 0);
		CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 0);
		peer_close(&p);
	}
	/* Open at the end. */
	wait_for_fin();
	peer_close(&p);
}

/* With a time of its own it stays a connection: records are in the order of their ends. */
TEST(linger2_of_an_orphan)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	pv_tcp_options(p.c)->linger2_s = 5;
	close_conn();
	peer_expect(&p, "F.", 1, 1, 0);
	peer_ack(&p, 2);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	peer_run(&p, 4 * S);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	peer_run(&p, 2 * S);
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 0);
	peer_close(&p);
}

/* Closed when the FIN had been acknowledged. */
TEST(close_after_half_close)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_active(&p);
	CHECK_EQ(pv_tcp_shutdown(p.c, 2, p.w.now), 0);
	peer_run(&p, 0);
	peer_expect(&p, "F.", 1, 1, 0);
	peer_ack(&p, 2);
	CHECK_EQ(p.w.host[0].tcp->nconns, 1);
	close_conn();
	CHECK_EQ(in_state(PV_TCP_FIN_WAIT_2), 1);
	CHECK_EQ(p.w.host[0].tcp->nconns, 0);
	peer_send(&p, "F.", 1, 2, 0);
	peer_expect(&p, ".", 2, 2, 0);
	CHECK_EQ(in_state(PV_TCP_TIME_WAIT), 1);
	peer_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
