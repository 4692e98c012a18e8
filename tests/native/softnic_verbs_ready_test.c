/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue that becomes ready while frames arrive, at a chosen place: its owner's mapping of what is looked at there is inaccessible. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "softnic/fab.h"
#include "softnic/vb.h"
#include "softnic_verbs.h"

static struct side a, b;
static struct ibv_flow *flow_b;

static struct {
	uint8_t *page;
	size_t size;
	uint32_t taken;
} stop;

static void send_to_b(void)
{
	const struct udp4 udp = { .src = 1, .dst = 2, .sport = 3, .dport = 4 };
	uint8_t frame[128];

	CHECK_EQ(side_send(&a, 1, frame, frame_udp4(frame, b.mac, a.mac, &udp, 20), IBV_SEND_INLINE), 0);
}

/* The queue was found empty and is armed, and its owner is just looking whether a frame came in between. */
static void frame_meanwhile(int sig, siginfo_t *info, void *ctx)
{
	const uint8_t *at = info->si_addr;

	(void)sig;
	(void)ctx;
	if (at < stop.page || at >= stop.page + stop.size || mprotect(stop.page, stop.size, PROT_READ | PROT_WRITE))
		_exit(3);
	stop.taken++;
	send_to_b();
}

static void stop_at_arming(void)
{
	struct sigaction sa = { .sa_sigaction = frame_meanwhile, .sa_flags = SA_SIGINFO };
	const struct sn_rxq *q = vb_qp(b.qp)->rq.rxq;
	uint8_t *claim = (uint8_t *)&q->claim[q->pos & q->mask];

	stop.size = (size_t)sysconf(_SC_PAGESIZE);
	stop.page = claim - (uintptr_t)claim % stop.size;
	CHECK_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
	CHECK_EQ(mprotect(stop.page, stop.size, PROT_NONE), 0);
}

static bool event(void)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(b.chan, &cq, &context)) {
		CHECK_EQ(errno, EAGAIN);
		return false;
	}
	CHECK(cq == b.rcq && context == &b);
	ibv_ack_cq_events(cq, 1);
	return true;
}

/*
 * A frame that comes when the QP has dropped what was there, before arming its queue is over, completes: arming is refused for it, and the CQ,
 * which was armed before, tells.
 */
static void become_ready(bool buffer)
{
	side_open(&a, 0);
	side_open(&b, 1);
	flow_b = flow_mac(b.qp, b.mac);
	CHECK(flow_b);
	CHECK_EQ(fcntl(b.chan->fd, F_SETFL, fcntl(b.chan->fd, F_GETFL) | O_NONBLOCK), 0);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_RESET), 0);
	send_to_b();
	CHECK_EQ(qp_to(b.qp, IBV_QPS_INIT), 0);
	if (buffer)
		CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	CHECK(!event());
	stop.taken = 0;
	stop_at_arming();
	CHECK_EQ(qp_to(b.qp, IBV_QPS_RTR), 0);
	CHECK_EQ(stop.taken, 1);
	if (!buffer) {
		CHECK(!event());
		CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	}
	CHECK(event());
	CHECK(!event());
	CHECK_EQ(poll_one(b.rcq).wr_id, 1);
	poll_none(b.rcq);
	CHECK_EQ(ibv_destroy_flow(flow_b), 0);
	side_close(&a);
	side_close(&b);
}

TEST(a_frame_before_arming)
{
	become_ready(true);
}

TEST(a_frame_before_arming_without_a_buffer)
{
	become_ready(false);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
