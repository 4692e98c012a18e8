/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP errors about TCP segments (RFC 5927): which are believed, and what they do. */
#include "tcp_peer.h"

static struct peer p;

#define S PV_NS_PER_S

TEST(icmp_ends_an_attempt)
{
	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_connect(&p);
	peer_expect(&p, "S", 0, 0, 0);
	peer_icmp(&p, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_HOST, 0, 77); /* of no segment of ours */
	CHECK_EQ(peer_state(&p), PV_TCP_SYN_SENT);
	peer_icmp(&p, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_HOST, 0, 0);
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), EHOSTUNREACH);
	peer_close(&p);
	peer_open(&p, &(struct peer_cfg){ .family = 6 });
	peer_connect(&p);
	peer_expect(&p, "S", 0, 0, 0);
	peer_icmp(&p, PV_ICMP6_UNREACH, PV_ICMP6_UNREACH_PORT, 0, 0);
	CHECK_EQ(pv_tcp_error(p.c), ECONNREFUSED);
	peer_close(&p);
}

TEST(icmp_does_not_end_a_connection)
{
	peer_open(&p, &(struct peer_cfg){ .tcp = { .retries2 = 3 } });
	peer_active(&p);
	peer_write(&p, 100);
	peer_skip(&p);
	peer_icmp(&p, PV_ICMP4_UNREACH, PV_ICMP4_UNREACH_PORT, 0, 1);
	CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
	CHECK_EQ(pv_tcp_error(p.c), 0);
	/* But it says why, if the peer stays silent. */
	for (int i = 0; i < 100 && peer_state(&p) != PV_TCP_CLOSED; i++) {
		peer_run(&p, 1 * S);
		peer_skip(&p);
	}
	CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
	CHECK_EQ(pv_tcp_error(p.c), ECONNREFUSED);
	peer_close(&p);
}

TEST(icmp_is_told_at_once_to_who_asked)
{
	for (int family = 4; family <= 6; family += 2) {
		uint8_t type = family == 4 ? PV_ICMP4_UNREACH : PV_ICMP6_UNREACH;
		uint8_t code = family == 4 ? PV_ICMP4_UNREACH_PORT : PV_ICMP6_UNREACH_PORT;

		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_active(&p);
		pv_tcp_options(p.c)->recverr4 = family == 4;
		pv_tcp_options(p.c)->recverr6 = family == 6;
		peer_write(&p, 100);
		peer_skip(&p);
		peer_icmp(&p, type, code, 0, 200); /* never sent */
		CHECK_EQ(pv_tcp_ready_bits(p.c) & PV_EV_ERR, 0);
		peer_icmp(&p, type, code, 0, 1);
		CHECK_EQ(pv_tcp_ready_bits(p.c) & PV_EV_ERR, PV_EV_ERR);
		CHECK_EQ(pv_tcp_error(p.c), ECONNREFUSED);
		CHECK_EQ(peer_state(&p), PV_TCP_ESTABLISHED);
		peer_ack(&p, 101);
		peer_write(&p, 1);
		peer_expect(&p, "P.", 101, 1, 1);
		peer_close(&p);
	}
}

TEST(path_mtu)
{
	for (int family = 4; family <= 6; family += 2) {
		uint32_t head = family == 4 ? 52 : 72, full = 1500 - head, mtu = 1300, less = mtu - head, at = 1, cwnd;
		uint8_t type = family == 4 ? PV_ICMP4_UNREACH : PV_ICMP6_TOO_BIG;
		uint8_t code = family == 4 ? PV_ICMP4_UNREACH_FRAG : 0;

		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_active(&p);
		CHECK_EQ(p.c->mss, full);
		peer_write(&p, 3 * full);
		peer_skip(&p);
		cwnd = p.c->cwnd;
		peer_icmp(&p, type, code, mtu, 3 * full + 2); /* never sent */
		CHECK_EQ(p.c->mss, full);
		peer_expect_none(&p);
		peer_icmp(&p, type, code, mtu, 1);
		CHECK_EQ(p.c->mss, less);
		CHECK_EQ(p.c->cwnd, cwnd);
		/* All of it again in pieces that fit. */
		while (at < 1 + 3 * full) {
			const struct peer_seg *s = peer_next(&p);

			CHECK(s && s->len <= less && s->seq == at);
			at += s->len;
		}
		peer_expect_none(&p);
		peer_ack(&p, 1 + 3 * full);
		CHECK(p.c->cwnd >= cwnd);
		peer_write(&p, 2 * less);
		peer_expect(&p, ".", 1 + 3 * full, 1, less);
		peer_close(&p);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
