/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion channels, asynchronous events, overruns and resizing; several threads on one QP and CQ. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "softnic_verbs.h"

static struct side a, b;
static struct ibv_flow *flow_b;
static uint8_t frame[2048];
static const struct udp4 udp = { .src = 1, .dst = 2, .sport = 3, .dport = 4 };

static void pair_open(void)
{
	side_open(&a, 0);
	side_open(&b, 1);
	flow_b = flow_mac(b.qp, b.mac);
	CHECK(flow_b);
}

static void pair_close(void)
{
	CHECK_EQ(ibv_destroy_flow(flow_b), 0);
	side_close(&a);
	side_close(&b);
}

static void send_to_b(void)
{
	uint32_t len = frame_udp4(frame, b.mac, a.mac, &udp, 20);

	CHECK_EQ(side_send(&a, 1, frame, len, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_SUCCESS);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void nonblocking(int fd)
{
	CHECK_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

static void expect_event(struct side *s, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(readable(s->chan->fd));
	CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &context), 0);
	CHECK(cq == want && context == s);
	ibv_ack_cq_events(cq, 1);
}

static void expect_no_event(struct side *s)
{
	struct ibv_cq *cq;
	void *context;

	errno = 0;
	CHECK_EQ(ibv_get_cq_event(s->chan, &cq, &context), -1);
	CHECK_EQ(errno, EAGAIN);
	CHECK(!readable(s->chan->fd));
}

TEST(an_event_for_a_frame)
{
	pair_open();
	nonblocking(b.chan->fd);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(side_post_recv(&b, 2, 1, SIDE_BUF), 0);
	expect_no_event(&b);
	/* Not armed: none. */
	send_to_b();
	expect_no_event(&b);
	poll_one(b.rcq);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	expect_no_event(&b);
	send_to_b();
	expect_event(&b, b.rcq);
	/* Once. */
	expect_no_event(&b);
	poll_one(b.rcq);
	CHECK_EQ(side_post_recv(&b, 3, 0, SIDE_BUF), 0);
	send_to_b();
	expect_no_event(&b);
	pair_close();
}

TEST(an_event_even_if_polled_before)
{
	pair_open();
	nonblocking(b.chan->fd);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	send_to_b();
	CHECK(readable(b.chan->fd));
	poll_one(b.rcq);
	expect_event(&b, b.rcq);
	expect_no_event(&b);
	pair_close();
}

TEST(armed_too_late)
{
	pair_open();
	nonblocking(b.chan->fd);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	send_to_b();
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	expect_event(&b, b.rcq);
	poll_one(b.rcq);
	/* A frame that has no buffer does not complete; posting one makes it. */
	send_to_b();
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	expect_no_event(&b);
	CHECK_EQ(side_post_recv(&b, 2, 0, SIDE_BUF), 0);
	expect_event(&b, b.rcq);
	CHECK_EQ(poll_one(b.rcq).wr_id, 2);
	pair_close();
}

/* A frame that is dropped because the QP was not ready must not leave the armed CQ deaf. */
TEST(armed_over_a_dropped_frame)
{
	pair_open();
	nonblocking(b.chan->fd);
	send_to_b();
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_RESET), 0);
	qp_rts(b.qp);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	expect_no_event(&b);
	send_to_b();
	expect_event(&b, b.rcq);
	poll_one(b.rcq);
	pair_close();
}

TEST(send_completions_too)
{
	uint32_t len;

	pair_open();
	nonblocking(a.chan->fd);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 20);
	CHECK_EQ(ibv_req_notify_cq(a.scq, 0), 0);
	CHECK_EQ(side_send(&a, 1, frame, len, IBV_SEND_INLINE), 0);
	expect_no_event(&a);
	CHECK_EQ(side_send(&a, 2, frame, len, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
	expect_event(&a, a.scq);
	expect_no_event(&a);
	pair_close();
}

TEST(solicited_only)
{
	pair_open();
	nonblocking(b.chan->fd);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(side_post_recv(&b, 2, 1, SIDE_BUF), 0);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 1), 0);
	send_to_b();
	poll_one(b.rcq);
	expect_no_event(&b);
	/* An error counts as solicited. */
	CHECK_EQ(qp_to(b.qp, IBV_QPS_ERR), 0);
	expect_event(&b, b.rcq);
	CHECK_EQ(poll_one(b.rcq).status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 1), 0);
	CHECK_EQ(side_post_recv(&b, 3, 1, SIDE_BUF), 0);
	expect_event(&b, b.rcq);
	/* Asking for any is not undone by asking for less. */
	poll_one(b.rcq);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_RESET), 0);
	qp_rts(b.qp);
	CHECK_EQ(side_post_recv(&b, 4, 0, SIDE_BUF), 0);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 1), 0);
	send_to_b();
	expect_event(&b, b.rcq);
	pair_close();
}

TEST(events_add_up)
{
	pair_open();
	nonblocking(b.chan->fd);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(side_post_recv(&b, 2, 1, SIDE_BUF), 0);
	send_to_b();
	for (int i = 0; i < 3; i++)
		CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	for (int i = 0; i < 3; i++)
		expect_event(&b, b.rcq);
	expect_no_event(&b);
	poll_one(b.rcq);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	send_to_b();
	expect_event(&b, b.rcq);
	expect_no_event(&b);
	pair_close();
}

TEST(two_cqs_one_channel)
{
	struct ibv_cq *cq[2];
	void *context;

	pair_open();
	nonblocking(b.chan->fd);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	CHECK_EQ(ibv_req_notify_cq(b.scq, 0), 0);
	send_to_b();
	CHECK_EQ(side_send(&b, 1, frame, 60, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
	CHECK_EQ(ibv_get_cq_event(b.chan, &cq[0], &context), 0);
	CHECK(readable(b.chan->fd));
	CHECK_EQ(ibv_get_cq_event(b.chan, &cq[1], &context), 0);
	CHECK(cq[0] != cq[1] && (cq[0] == b.rcq || cq[0] == b.scq) && (cq[1] == b.rcq || cq[1] == b.scq));
	ibv_ack_cq_events(cq[0], 1);
	ibv_ack_cq_events(cq[1], 1);
	expect_no_event(&b);
	pair_close();
}

struct later {
	pthread_t thread;
	struct ibv_cq *cq;
	struct ibv_async_event ev;
	_Atomic bool acked;
};

static void nap(void)
{
	struct timespec ts = { .tv_nsec = 20000000 };

	nanosleep(&ts, NULL);
}

static void *ack_later(void *arg)
{
	struct later *l = arg;

	nap();
	atomic_store(&l->acked, true);
	if (l->cq)
		ibv_ack_cq_events(l->cq, 1);
	else
		ibv_ack_async_event(&l->ev);
	return NULL;
}

TEST(destroy_waits_for_the_acknowledgement)
{
	struct later l = { .cq = NULL };
	struct ibv_comp_channel *chan;
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 4, 0, 1, 0, 64 } };
	struct ibv_sge sge;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	void *context;

	pair_open();
	chan = ibv_create_comp_channel(a.ctx);
	cq = init.send_cq = ibv_create_cq(a.ctx, 4, &l, chan, 0);
	qp = ibv_create_qp(a.pd, &init);
	CHECK(qp);
	qp_rts(qp);
	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
	sge = (struct ibv_sge){ (uintptr_t)a.buf, 64, 0 };
	wr.sg_list = &sge;
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_get_cq_event(chan, &l.cq, &context), 0);
	CHECK(l.cq == cq && context == &l);
	CHECK_EQ(pthread_create(&l.thread, NULL, ack_later, &l), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK(atomic_load(&l.acked));
	pthread_join(l.thread, NULL);
	CHECK_EQ(ibv_destroy_comp_channel(chan), 0);
	pair_close();
}

/* A sleeper in another process is woken, by a frame and again and again. */
TEST(sleepers_in_another_process)
{
	enum { ROUNDS = 300 };
	struct ibv_cq *cq;
	void *context;
	int status, ready[2];
	uint8_t mac_b[6] = { 0x02, 0x53, 0x4e, 0, 0, 1 };
	uint32_t len;
	pid_t pid;

	CHECK_EQ(pipe(ready), 0);
	fabric_name();
	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct ibv_wc wc;
		int got = 0;

		side_open(&b, 1);
		flow_b = flow_mac(b.qp, b.mac);
		for (uint64_t i = 0; i < SIDE_WR; i++)
			CHECK_EQ(side_post_recv(&b, i, (uint32_t)i, SIDE_BUF), 0);
		CHECK_EQ(write(ready[1], "x", 1), 1);
		while (got < ROUNDS) {
			CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
			CHECK_EQ(ibv_get_cq_event(b.chan, &cq, &context), 0);
			ibv_ack_cq_events(cq, 1);
			while (ibv_poll_cq(b.rcq, 1, &wc)) {
				CHECK_EQ(wc.status, IBV_WC_SUCCESS);
				CHECK_EQ(side_post_recv(&b, wc.wr_id, (uint32_t)wc.wr_id, SIDE_BUF), 0);
				got++;
				/* Tells the sender that it may send the next. */
				CHECK_EQ(write(ready[1], "x", 1), 1);
			}
		}
		_exit(0);
	}
	close(ready[1]);
	side_open(&a, 0);
	len = frame_udp4(frame, mac_b, a.mac, &udp, 20);
	for (int i = 0; i <= ROUNDS; i++) {
		char c;

		CHECK_EQ(read(ready[0], &c, 1), 1);
		if (i == ROUNDS)
			break;
		CHECK_EQ(side_send(&a, 1, frame, len, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
		poll_one(a.scq);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	close(ready[0]);
	side_close(&a);
}

/* ---- asynchronous events ------------------------------------------------------------------------------------------------------------ */

TEST(overrun)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 16, 0, 1, 0, 64 } };
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED }, *bad;
	struct ibv_async_event ev;
	struct later l = { .cq = NULL };
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	pair_open();
	nonblocking(a.ctx->async_fd);
	CHECK_EQ(ibv_get_async_event(a.ctx, &ev), -1);
	CHECK_EQ(errno, EAGAIN);
	cq = init.send_cq = ibv_create_cq(a.ctx, 4, NULL, NULL, 0);
	CHECK_EQ(cq->cqe, 4);
	qp = ibv_create_qp(a.pd, &init);
	CHECK(qp);
	qp_rts(qp);
	sge = (struct ibv_sge){ (uintptr_t)a.buf, 64, 0 };
	wr.sg_list = &sge;
	for (wr.wr_id = 0; wr.wr_id < 4; wr.wr_id++)
		CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK(!readable(a.ctx->async_fd));
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK(readable(a.ctx->async_fd));
	CHECK_EQ(ibv_get_async_event(a.ctx, &l.ev), 0);
	CHECK_EQ(l.ev.event_type, IBV_EVENT_CQ_ERR);
	CHECK(l.ev.element.cq == cq);
	/* Told once; what was in is still there. */
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK_EQ(ibv_get_async_event(a.ctx, &ev), -1);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(poll_one(cq).wr_id, i);
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(pthread_create(&l.thread, NULL, ack_later, &l), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK(atomic_load(&l.acked));
	pthread_join(l.thread, NULL);
	pair_close();
}

TEST(undelivered_events_go_with_their_object)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { 16, 0, 1, 0, 64 }, .sq_sig_all = 1 };
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE }, *bad;
	struct ibv_async_event ev;
	struct ibv_sge sge;
	struct ibv_qp *qp;
	struct ibv_cq *cq;

	pair_open();
	nonblocking(a.ctx->async_fd);
	cq = init.send_cq = ibv_create_cq(a.ctx, 1, NULL, NULL, 0);
	qp = ibv_create_qp(a.pd, &init);
	CHECK(qp);
	qp_rts(qp);
	sge = (struct ibv_sge){ (uintptr_t)a.buf, 64, 0 };
	wr.sg_list = &sge;
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_get_async_event(a.ctx, &ev), -1);
	CHECK_EQ(errno, EAGAIN);
	CHECK(!readable(a.ctx->async_fd));
	pair_close();
}

TEST(link_events)
{
	struct ibv_async_event ev;
	struct ibv_port_attr port;
	uint32_t len;

	pair_open();
	nonblocking(b.ctx->async_fd);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 20);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(softnic_set_link(b.name, 0), 0);
	CHECK(readable(b.ctx->async_fd));
	CHECK_EQ(ibv_get_async_event(b.ctx, &ev), 0);
	CHECK_EQ(ev.event_type, IBV_EVENT_PORT_ERR);
	CHECK_EQ(ev.element.port_num, 1);
	ibv_ack_async_event(&ev);
	CHECK_EQ(ibv_query_port(b.ctx, 1, &port), 0);
	CHECK_EQ(port.state, IBV_PORT_DOWN);
	/* Nothing passes, in neither direction, and the senders are not told. */
	CHECK_EQ(side_send(&a, 1, frame, len, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_SUCCESS);
	CHECK_EQ(side_send(&b, 1, frame, len, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(poll_one(b.scq).status, IBV_WC_SUCCESS);
	poll_none(b.rcq);
	CHECK_EQ(softnic_set_link(b.name, 1), 0);
	CHECK_EQ(ibv_get_async_event(b.ctx, &ev), 0);
	CHECK_EQ(ev.event_type, IBV_EVENT_PORT_ACTIVE);
	ibv_ack_async_event(&ev);
	CHECK_EQ(ibv_get_async_event(b.ctx, &ev), -1);
	CHECK(!readable(b.ctx->async_fd));
	CHECK_EQ(side_send(&a, 1, frame, len, 0), 0);
	CHECK_EQ(poll_one(b.rcq).wr_id, 1);
	pair_close();
}

/* In the middle of posting: the request that met it is flushed, the next finds no device; nothing of before works again. */
TEST(taken_out_and_put_back)
{
	struct ibv_async_event ev;
	struct ibv_device **list;
	struct side again;
	uint32_t len;

	pair_open();
	nonblocking(a.ctx->async_fd);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 20);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	CHECK_EQ(softnic_plug(a.name, 0), 0);
	CHECK(readable(a.ctx->async_fd));
	CHECK_EQ(side_send(&a, 1, frame, len, 0), 0);
	CHECK_EQ(poll_one(a.scq).status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(side_send(&a, 2, frame, len, 0), ENODEV);
	CHECK_EQ(side_post_recv(&a, 1, 0, SIDE_BUF), ENODEV);
	CHECK_EQ(ibv_get_async_event(a.ctx, &ev), 0);
	CHECK_EQ(ev.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&ev);
	CHECK_EQ(ibv_get_async_event(a.ctx, &ev), -1);
	poll_none(b.rcq);
	list = ibv_get_device_list(NULL);
	for (int i = 0; list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), a.name))
			continue;
		errno = 0;
		CHECK(!ibv_open_device(list[i]));
		CHECK_EQ(errno, ENODEV);
	}
	ibv_free_device_list(list);
	CHECK_EQ(softnic_plug(a.name, 1), 0);
	side_open(&again, 0);
	CHECK_EQ(side_send(&again, 3, frame, len, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(poll_one(again.scq).status, IBV_WC_SUCCESS);
	CHECK_EQ(poll_one(b.rcq).wr_id, 1);
	CHECK_EQ(side_send(&a, 4, frame, len, 0), ENODEV);
	side_close(&again);
	pair_close();
}

TEST(resize)
{
	struct ibv_wc wc;
	uint32_t len;

	pair_open();
	len = frame_udp4(frame, b.mac, a.mac, &udp, 20);
	for (uint64_t i = 0; i < 5; i++)
		CHECK_EQ(side_send(&a, i, frame, len, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(ibv_resize_cq(a.scq, 0), EINVAL);
	CHECK_EQ(ibv_resize_cq(a.scq, 4), EINVAL);
	CHECK_EQ(ibv_resize_cq(a.scq, 1 << 30), EINVAL);
	CHECK_EQ(poll_one(a.scq).wr_id, 0);
	CHECK_EQ(ibv_resize_cq(a.scq, 6), 0);
	CHECK(a.scq->cqe >= 6);
	CHECK_EQ(ibv_resize_cq(a.scq, 100), 0);
	CHECK(a.scq->cqe >= 100);
	CHECK_EQ(side_send(&a, 5, frame, len, IBV_SEND_SIGNALED), 0);
	for (uint64_t i = 1; i < 6; i++)
		CHECK_EQ(poll_one(a.scq).wr_id, i);
	CHECK_EQ(ibv_poll_cq(a.scq, 1, &wc), 0);
	pair_close();
}

TEST(impairments)
{
	static const char *const bad[] = { "loss", "loss=2",   "loss=-1",    "delay=3",  "delay=1x",
					   "x=1",  "loss=nan", "rate=1Tbit", "delay=61s" };
	char json[1024];

	pair_open();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(softnic_impair(a.name, bad[i]), -EINVAL);
	CHECK_EQ(softnic_impair("softnic_none_9", ""), -ENODEV);
	CHECK_EQ(softnic_impair(a.name, "loss=100%,seed=1"), 0);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	send_to_b();
	poll_none(b.rcq);
	CHECK(softnic_counters(a.name, json, sizeof(json)) > 0);
	CHECK(strstr(json, "\"tx_impaired_loss\": 1,"));
	CHECK_EQ(softnic_impair(a.name, "loss=0,delay=0,corrupt=1"), 0);
	send_to_b();
	poll_one(b.rcq);
	CHECK_EQ(softnic_impair(a.name, ""), 0);
	CHECK_EQ(side_post_recv(&b, 1, 0, SIDE_BUF), 0);
	send_to_b();
	poll_one(b.rcq);
	CHECK(!memcmp(b.buf, frame, 60));
	pair_close();
}

/* ---- threads -------------------------------------------------------------------------------------------------------------------------- */

enum { THREADS = 3, EACH = 2000 };
static _Atomic uint32_t sent, received, sent_done;
static _Atomic uint8_t seen[THREADS * EACH];

static void *sender(void *arg)
{
	uint32_t id = (uint32_t)(uintptr_t)arg;
	uint8_t f[128];
	uint32_t len = frame_udp4(f, b.mac, a.mac, &udp, 30);

	for (uint32_t i = 0; i < EACH; i++) {
		uint32_t number = id * EACH + i;

		memcpy(f + 44, &number, 4);
		/* The receiver's queue is short: no further ahead than fits. */
		while (atomic_load(&sent) - atomic_load(&received) > SIDE_WR - THREADS)
			sched_yield();
		atomic_fetch_add(&sent, 1);
		while (side_send(&a, number, f, len, IBV_SEND_INLINE | IBV_SEND_SIGNALED) == ENOMEM)
			sched_yield();
	}
	return NULL;
}

static void *poller(void *arg)
{
	struct side *s = arg;
	struct ibv_wc wc[4];

	while (atomic_load(s == &a ? &sent_done : &received) < THREADS * EACH) {
		int n = ibv_poll_cq(s == &a ? s->scq : s->rcq, 4, wc);

		if (!n)
			sched_yield();
		for (int i = 0; i < n; i++) {
			CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
			if (s == &a) {
				atomic_fetch_add(&sent_done, 1);
				continue;
			}
			uint32_t number;

			memcpy(&number, s->buf + wc[i].wr_id * SIDE_BUF + 44, 4);
			CHECK(number < THREADS * EACH);
			CHECK_EQ(atomic_fetch_add(&seen[number], 1), 0);
			CHECK_EQ(side_post_recv(s, wc[i].wr_id, (uint32_t)wc[i].wr_id, SIDE_BUF), 0);
			atomic_fetch_add(&received, 1);
		}
	}
	return NULL;
}

TEST(threads_share_a_qp)
{
	pthread_t senders[THREADS], pollers[4];

	pair_open();
	for (uint64_t i = 0; i < SIDE_WR; i++)
		CHECK_EQ(side_post_recv(&b, i, (uint32_t)i, SIDE_BUF), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&pollers[i], NULL, poller, i & 1 ? &a : &b), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&senders[i], NULL, sender, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(senders[i], NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(pollers[i], NULL);
	CHECK_EQ(atomic_load(&received), THREADS * EACH);
	pair_close();
}

static void *waiter(void *arg)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int got = 0;

	(void)arg;
	while (got < 500) {
		CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
		CHECK_EQ(ibv_get_cq_event(b.chan, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		while (ibv_poll_cq(b.rcq, 1, &wc)) {
			CHECK_EQ(side_post_recv(&b, wc.wr_id, (uint32_t)wc.wr_id, SIDE_BUF), 0);
			got++;
			atomic_fetch_add(&received, 1);
		}
	}
	return NULL;
}

TEST(a_thread_sleeps_while_another_sends)
{
	uint32_t len;
	pthread_t t;

	pair_open();
	atomic_store(&received, 0);
	for (uint64_t i = 0; i < SIDE_WR; i++)
		CHECK_EQ(side_post_recv(&b, i, (uint32_t)i, SIDE_BUF), 0);
	len = frame_udp4(frame, b.mac, a.mac, &udp, 20);
	CHECK_EQ(pthread_create(&t, NULL, waiter, NULL), 0);
	for (uint32_t i = 0; i < 500; i++) {
		while (i - atomic_load(&received) >= SIDE_WR)
			sched_yield();
		CHECK_EQ(side_send(&a, i, frame, len, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
		poll_one(a.scq);
	}
	pthread_join(t, NULL);
	pair_close();
}

/* One thread arms and polls, another waits for the events. */
static void *event_loop(void *arg)
{
	struct ibv_cq *cq;
	void *context;
	uint32_t *events = arg;

	while (atomic_load(&received) < 2000) {
		CHECK_EQ(ibv_get_cq_event(b.chan, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		++*events;
		atomic_fetch_add(&sent_done, 1);
	}
	return NULL;
}

static void *feeder(void *arg)
{
	uint8_t f[128];
	uint32_t len = frame_udp4(f, b.mac, a.mac, &udp, 30);

	(void)arg;
	for (uint32_t i = 0; i < 2000; i++) {
		while (i - atomic_load(&received) >= SIDE_WR)
			sched_yield();
		CHECK_EQ(side_send(&a, i, f, len, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
		poll_one(a.scq);
	}
	return NULL;
}

TEST(arming_beside_a_waiter)
{
	pthread_t waits, feeds;
	uint32_t events = 0;
	struct ibv_wc wc;

	pair_open();
	atomic_store(&received, 0);
	atomic_store(&sent_done, 0);
	for (uint64_t i = 0; i < SIDE_WR; i++)
		CHECK_EQ(side_post_recv(&b, i, (uint32_t)i, SIDE_BUF), 0);
	CHECK_EQ(pthread_create(&waits, NULL, event_loop, &events), 0);
	CHECK_EQ(pthread_create(&feeds, NULL, feeder, NULL), 0);
	while (atomic_load(&received) < 2000) {
		uint32_t seen_events = atomic_load(&sent_done);

		CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
		/* Every arm is followed by an event: the waiter would hang here for one that is lost. */
		while (atomic_load(&sent_done) == seen_events)
			sched_yield();
		while (ibv_poll_cq(b.rcq, 1, &wc)) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(side_post_recv(&b, wc.wr_id, (uint32_t)wc.wr_id, SIDE_BUF), 0);
			atomic_fetch_add(&received, 1);
		}
	}
	/* The waiter may be asleep once more. */
	CHECK_EQ(ibv_req_notify_cq(b.rcq, 0), 0);
	CHECK_EQ(qp_to(b.qp, IBV_QPS_ERR), 0);
	pthread_join(feeds, NULL);
	pthread_join(waits, NULL);
	CHECK(events > 0);
	pair_close();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
