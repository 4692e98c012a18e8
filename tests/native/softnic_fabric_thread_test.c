/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of one process: queues and rules change under senders. */
#include <pthread.h>
#include <stdatomic.h>

#include "softnic/fab.h"
#include "softnic_fabric_util.h"

struct worker {
	pthread_t thread;
	struct sn_port *port;
	_Atomic bool *stop;
};

static void *send_all_the_time(void *arg)
{
	struct worker *w = arg;
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 64);

	while (!atomic_load(w->stop))
		CHECK_EQ(fab_send(w->port, frame, len), 0);
	return NULL;
}

/* Queues and rules come and go under the senders; what is put into a queue after its end is nowhere seen. */
TEST(queues_change_under_senders)
{
	struct worker w[2];
	_Atomic bool stop = false;
	struct sn_port *b;
	struct fab_net net;
	uint64_t got = 0;

	fab_make(&net);
	b = fab_port(&net, 1);
	for (int i = 0; i < 2; i++) {
		w[i] = (struct worker){ .port = fab_port(&net, 2 + (uint32_t)i), .stop = &stop };
		CHECK_EQ(pthread_create(&w[i].thread, NULL, send_all_the_time, &w[i]), 0);
	}
	for (int round = 0; round < 300; round++) {
		struct sn_rule r = { .nqueues = 1 };
		struct sn_rxq *q;
		struct sn_frame f;
		uint64_t handle;

		CHECK_EQ(sn_rxq_create(b, 8u << (round % 4), &q), 0);
		CHECK(!sn_rxq_peek(q, &f));
		r.queues = &q;
		CHECK_EQ(sn_rule_add(b, &r, &handle), 0);
		for (int n = 0; n < 20; n++) {
			await(q, &f);
			CHECK_EQ(f.len, 106);
			CHECK_EQ(f.flags, SN_RX_IP4 | SN_RX_UDP | SN_RX_L3_OK | SN_RX_L4_OK);
			sn_rxq_pop(q);
			got++;
		}
		if (round % 2)
			CHECK_EQ(sn_rule_del(b, handle), 0);
		sn_rxq_destroy(q);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(w[i].thread, NULL);
	CHECK_EQ(got, 6000);
	fab_done(&net);
}

/* A queue ends while a sender is at work by a path to it: its memory is nobody else's until that sender is through. */
TEST(a_sender_at_work_keeps_the_memory)
{
	struct sn_rxq *q, *other;
	struct sn_port *a, *b;
	struct fab_net net;
	struct sn_shm *s;

	fab_make(&net);
	a = fab_port(&net, 0);
	b = fab_port(&net, 1);
	s = net.f->s;
	CHECK_EQ(sn_rxq_create(b, 64, &q), 0);
	/* As sn_port_send says it. */
	sn_set(&a->lane->busy, sn_get(&s->generation));
	sn_rxq_destroy(q);
	CHECK_EQ(sn_get(&s->rxq[0].state), SN_DYING);
	CHECK_EQ(sn_rxq_create(b, 64, &other), 0);
	CHECK_EQ(sn_get(&s->rxq[0].state), SN_DYING);
	CHECK(sn_get(&s->rxq[1].first) >= sn_get(&s->rxq[0].first) + 64);
	/* Through, and at work again: by a path that is newer. */
	sn_set(&a->lane->busy, sn_get(&s->generation));
	sn_rxq_destroy(other);
	CHECK_EQ(sn_get(&s->rxq[0].state), SN_FREE);
	CHECK_EQ(sn_get(&s->rxq[1].state), SN_DYING);
	sn_set(&a->lane->busy, 0);
	fab_queue(b, 64);
	CHECK_EQ(sn_get(&s->rxq[0].state), SN_LIVE);
	CHECK_EQ(sn_get(&s->rxq[1].state), SN_FREE);
	fab_done(&net);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
