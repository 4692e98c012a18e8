/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a connection, segment by segment. */
#include "tcp_peer.h"

static struct peer p;

#define S PV_NS_PER_S
#define MS PV_NS_PER_MS

TEST(active_open)
{
	for (int family = 4; family <= 6; family += 2) {
		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_active(&p);
		peer_write(&p, 100);
		peer_expect(&p, "P.", 1, 1, 100);
		peer_ack(&p, 101);
		peer_expect_none(&p);
		peer_send(&p, "P.", 1, 101, 50);
		peer_read(&p, 50);
		peer_close(&p);
	}
}

TEST(passive_open)
{
	for (int family = 4; family <= 6; family += 2) {
		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_passive(&p);
		peer_send(&p, "P.", 1, 1, 50);
		peer_read(&p, 50);
		peer_skip(&p);
		peer_write(&p, 100);
		peer_expect(&p, "P.", 1, 51, 100);
		peer_ack(&p, 101);
		peer_close(&p);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
