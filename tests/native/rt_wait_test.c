/* SPDX-License-Identifier: BSD-3-Clause */
/* Lock, clock, and everything that ends a wait: data, time, signals, close; with and without spinning, alone and among others. */
#include <signal.h>
#include <sys/resource.h>

#include "rt/clock.h"
#include "rt/engine.h"
#include "rt/lock.h"
#include "sock_env.h"
#include "wait_job.h"

static int64_t now_ns(void)
{
	return pv_clock_kernel_ns();
}

/* ---- lock -------------------------------------------------------------------------------------------------------------- */

#define LOCK_THREADS 4
#define LOCK_TURNS 50000

static struct pv_lock lock;
static uint64_t counter;

static void *count(void *arg)
{
	(void)arg;
	for (int i = 0; i < LOCK_TURNS; i++) {
		pv_lock_get(&lock);
		counter++;
		pv_lock_put(&lock);
	}
	return NULL;
}

TEST(lock_excludes)
{
	pthread_t t[LOCK_THREADS];

	pv_lock_setup();
	pv_lock_init(&lock);
	for (int i = 0; i < LOCK_THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, count, NULL), 0);
	for (int i = 0; i < LOCK_THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(counter, LOCK_THREADS * LOCK_TURNS);
	CHECK(!pv_lock_wanted(&lock));
	CHECK(pv_lock_try(&lock));
	CHECK(!pv_lock_try(&lock));
	pv_lock_put(&lock);
}

static _Atomic(bool) spinner_stop;

/* As a spinning receiver: holds the lock but for yields. */
static void *spin_with_lock(void *arg)
{
	(void)arg;
	pv_lock_get(&lock);
	while (!atomic_load(&spinner_stop)) {
		if (pv_lock_wanted(&lock))
			pv_lock_yield(&lock);
		pv_cpu_relax();
	}
	pv_lock_put(&lock);
	return NULL;
}

TEST(a_spinner_lets_others_in)
{
	pthread_t t;

	pv_lock_init(&lock);
	atomic_store(&spinner_stop, false);
	CHECK_EQ(pthread_create(&t, NULL, spin_with_lock, NULL), 0);
	for (int i = 0; i < 2000; i++) {
		pv_lock_get(&lock);
		pv_lock_put(&lock);
	}
	atomic_store(&spinner_stop, true);
	pthread_join(t, NULL);
}

/* ---- clock ------------------------------------------------------------------------------------------------------------- */

TEST(clock_follows_the_kernel)
{
	struct pv_clock c;
	int64_t last, start = now_ns();

	pv_clock_init(&c);
	last = pv_clock_now(&c);
	while (now_ns() - start < 300 * NS_MS) {
		int64_t before = now_ns(), t = pv_clock_now(&c), after = now_ns();
		struct timespec left = pv_clock_left(after + (t & 127)); /* often over before it is asked for */

		CHECK(left.tv_sec == 0 && left.tv_nsec >= 0 && left.tv_nsec < 128);
		CHECK(t >= last);
		/* 50 us of slack: a fit over 20 ms is good to a few microseconds in a tenth of a second. */
		CHECK(t >= before - 50000 && t <= after + 50000);
		last = t;
	}
}

/* ---- what ends a wait -------------------------------------------------------------------------------------------------- */

TEST(time_out)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa);
		int64_t start = now_ns();
		char b;

		CHECK_EQ(pyvma_sock_recv(a.h, &b, 1, 0, 30 * NS_MS), -EAGAIN);
		/* Not early, but for what the fitted clock may be ahead of the kernel's. */
		CHECK(now_ns() - start >= 30 * NS_MS - 100000);
		CHECK_EQ(pyvma_sock_recv(a.h, &b, 1, 0, 0), -EAGAIN);
		CHECK_EQ(pyvma_sock_recv(a.h, &b, 1, 0, 1), -EAGAIN);
		CHECK_EQ(pyvma_sock_poll(a.h, POLLIN, 10 * NS_MS), 0);
		sk_close(a);
	}
}

/* As long as a number can say is long, by the stack and by the kernel, and not the rest of an overflow: 9463179709813 s are 20992 ns modulo 2^64. */
TEST(longest_time_outs)
{
	env_start();
	pv_engine.spin_ns = 0;
	for (int i = 0; i < 4; i++) {
		struct timeval tv = { .tv_sec = 9463179709813 };
		struct any_addr aa;
		struct sk a = sk_open(&our_side, AF_INET), out = sk_open(&our_side, AF_INET);
		struct job j;

		CHECK_EQ(sk_bind(a, ip(i & 1 ? "127.0.0.1" : "10.9.0.1", 0)), 0);
		CHECK_EQ(sk_name(a, &aa), 0);
		CHECK_EQ(sk_set(a, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
		job_start(&j, a, i < 2 ? INT64_MAX : -1);
		usleep(20000);
		CHECK_EQ(sk_sendto(out, "x", 1, 0, aa), 1);
		pthread_join(j.thread, NULL);
		CHECK_EQ(j.result, 1);
		sk_close(a);
		sk_close(out);
	}
}

TEST(close_wakes)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa);
		struct job j;

		job_start(&j, a, -1);
		wait_until_waiting();
		CHECK_EQ(sk_close(a), 0);
		/* The memory is reused at once: the sleeper must not take the new socket for its own. */
		struct sk b = sk_bound(&our_side, AF_INET, &aa);

		pthread_join(j.thread, NULL);
		CHECK_EQ(j.result, -EBADF);
		sk_close(b);
	}
}

TEST(close_of_one_handle_of_two)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa), d = a;
		struct job j;

		CHECK_EQ(pyvma_sock_dup(a.h, &d.h), 0);
		d.fd = pyvma_sock_fd(d.h);
		CHECK(d.fd != a.fd);
		job_start(&j, d, -1);
		wait_until_waiting();
		CHECK_EQ(sk_close(a), 0);
		/* The other handle's socket lives on. */
		struct sk b = sk_open(&our_side, AF_INET);

		CHECK_EQ(sk_sendto(b, "hello", 5, 0, aa), 5);
		pthread_join(j.thread, NULL);
		CHECK_EQ(j.result, 5);
		sk_close(b);
		sk_close(d);
	}
}

TEST(shutdown_wakes)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa);
		struct job j;

		CHECK_EQ(sk_connect(a, ip("10.9.0.1", 9)), 0);
		job_start(&j, a, -1);
		wait_until_waiting();
		CHECK_EQ(sk_shutdown(a, SHUT_RD), 0);
		pthread_join(j.thread, NULL);
		CHECK_EQ(j.result, 0);
		sk_close(a);
	}
}

/* Several receivers, each of its own socket: the leader's polls bring everybody's datagrams. */
#define CROWD 5

TEST(a_crowd_of_receivers)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		struct any_addr addr[CROWD];
		struct sk s[CROWD], out = sk_open(&our_side, AF_INET);
		struct job j[CROWD];

		for (int k = 0; k < CROWD; k++)
			s[k] = sk_bound(&our_side, AF_INET, &addr[k]);
		for (int round = 0; round < 20; round++) {
			for (int k = 0; k < CROWD; k++)
				job_start(&j[k], s[k], LONG_NS);
			/* In an order that makes leaders leave first, last and in between. */
			for (int k = 0; k < CROWD; k++)
				CHECK_EQ(
				    sk_sendto(out, "12345678", (size_t)(1 + (k + round) % CROWD), 0, addr[(k + round) % CROWD]),
				    1 + (k + round) % CROWD);
			for (int k = 0; k < CROWD; k++) {
				pthread_join(j[k].thread, NULL);
				CHECK_EQ(j[k].result, k + 1);
			}
		}
		for (int k = 0; k < CROWD; k++)
			sk_close(s[k]);
		sk_close(out);
	}
}

/* The progress thread looks up when an fd is exported; with a leader there it soon parks. */
static void wait_until_parked(void)
{
	struct any_addr aa;
	struct sk s = sk_bound(&our_side, AF_INET, &aa);

	CHECK_EQ(pyvma_sock_fileno(s.h), s.fd);
	sk_close(s);
	for (;;) {
		pv_lock_get(&pv_engine.lock);
		bool parked = pv_engine.progress_parked;

		pv_lock_put(&pv_engine.lock);
		if (parked)
			return;
		usleep(1000);
	}
}

static uint32_t waiting(void)
{
	pv_lock_get(&pv_engine.lock);
	uint32_t n = pv_engine.interest;

	pv_lock_put(&pv_engine.lock);
	return n;
}

/* One poll brings the leader's datagram and the first follower's: both leave, and the second follower must not be left alone. */
TEST(a_follower_that_leaves_too)
{
	env_start();
	for (int round = 0; round < 5; round++) {
		struct any_addr addr[3];
		struct sk s[3], out = sk_open(&our_side, AF_INET);
		struct job j[3];
		char x[] = "x";
		struct pyvma_msg m[2] = { { .base = x, .len = 1 }, { .base = x, .len = 1 } };

		pv_engine.spin_ns = 0;
		for (int k = 0; k < 3; k++)
			s[k] = sk_bound(&our_side, AF_INET, &addr[k]);
		for (int k = 0; k < 3; k++) {
			job_start(&j[k], s[k], LONG_NS);
			while (waiting() != (uint32_t)k + 1)
				usleep(100);
		}
		wait_until_parked();
		for (int k = 0; k < 2; k++) {
			m[k].addr = addr[k].ss;
			m[k].addrlen = addr[k].len;
		}
		sk_sendto(out, "", 0, 0, ip("10.9.0.1", 9)); /* decides the socket */
		CHECK_EQ(pyvma_sock_send_batch(out.h, m, 2, 0, -1), 2);
		for (int k = 0; k < 2; k++) {
			pthread_join(j[k].thread, NULL);
			CHECK_EQ(j[k].result, 1);
		}
		CHECK_EQ(sk_sendto(out, "x", 1, 0, addr[2]), 1);
		pthread_join(j[2].thread, NULL);
		CHECK_EQ(j[2].result, 1);
		for (int k = 0; k < 3; k++)
			sk_close(s[k]);
		sk_close(out);
	}
}

/* Many receivers of one socket: each datagram goes to exactly one. */
TEST(a_crowd_on_one_socket)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa), out = sk_open(&our_side, AF_INET);
		struct job j[CROWD];

		for (int k = 0; k < CROWD; k++)
			job_start(&j[k], a, LONG_NS);
		for (int k = 0; k < CROWD; k++)
			CHECK_EQ(sk_sendto(out, "x", 1, 0, aa), 1);
		for (int k = 0; k < CROWD; k++) {
			pthread_join(j[k].thread, NULL);
			CHECK_EQ(j[k].result, 1);
		}
		char b;

		CHECK_EQ(sk_recv(a, &b, 1, MSG_DONTWAIT), -EAGAIN);
		sk_close(a);
		sk_close(out);
	}
}

/* A sender and a receiver at once, over one lock. */
#define STREAM 3000

static void *stream_recv(void *arg)
{
	struct job *j = arg;
	uint32_t want = 0, got;

	while (want < STREAM) {
		int64_t n = pyvma_sock_recv(j->s.h, &got, sizeof(got), 0, LONG_NS);

		CHECK_EQ(n, sizeof(got));
		CHECK_EQ(got, want);
		want++;
		/* The answer is the sender's leave to go on: nothing overflows. */
		CHECK_EQ(sk_sendto(j->s, &got, sizeof(got), 0, j->to), sizeof(got));
	}
	return NULL;
}

TEST(sender_and_receiver)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa, ba;
		struct job j = { .s = sk_bound(&our_side, AF_INET, &aa) };
		struct sk b = sk_bound(&our_side, AF_INET, &ba);
		uint32_t in_flight = 0, got, acked = 0;

		j.to = ba;
		CHECK_EQ(pthread_create(&j.thread, NULL, stream_recv, &j), 0);
		for (uint32_t k = 0; k < STREAM; k++) {
			CHECK_EQ(sk_sendto(b, &k, sizeof(k), 0, aa), sizeof(k));
			for (in_flight++; in_flight >= 16 || (k + 1 == STREAM && in_flight); in_flight--) {
				CHECK_EQ(pyvma_sock_recv(b.h, &got, sizeof(got), 0, LONG_NS), sizeof(got));
				CHECK_EQ(got, acked++);
			}
		}
		pthread_join(j.thread, NULL);
		sk_close(j.s);
		sk_close(b);
	}
}

/* Sockets that come and go while others wait and send. */
static _Atomic(bool) churn_stop;

static void *churn(void *arg)
{
	(void)arg;
	while (!atomic_load(&churn_stop)) {
		struct any_addr aa;
		struct sk s = sk_bound(&our_side, AF_INET, &aa);
		char b;

		CHECK_EQ(sk_sendto(s, "x", 1, 0, aa), 1);
		CHECK_EQ(pyvma_sock_recv(s.h, &b, 1, 0, LONG_NS), 1);
		pyvma_sock_fileno(s.h);
		sk_close(s);
	}
	return NULL;
}

TEST(churn)
{
	pthread_t t[3];

	env_start();
	pv_engine.spin_ns = 20000;
	atomic_store(&churn_stop, false);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, churn, NULL), 0);
	usleep(500000);
	atomic_store(&churn_stop, true);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(pv_engine.exports, 0);
	CHECK_EQ(pv_engine.interest, 0);
	CHECK(!pv_engine.leader);
}

/* An engine that nobody uses sleeps: its threads are not scheduled but for a frame or a timer. */
TEST(idle_costs_nothing)
{
	struct any_addr aa;
	struct sk a;
	struct rusage before, after;

	env_start();
	a = sk_bound(&our_side, AF_INET, &aa);
	usleep(400000); /* standing by ends within ten intervals */
	getrusage(RUSAGE_SELF, &before);
	usleep(400000);
	getrusage(RUSAGE_SELF, &after);
	CHECK(after.ru_nvcsw - before.ru_nvcsw < 20);
	sk_close(a);
}

/* The engine is stopped under a leader and a follower, and started again at once. */
TEST(stop_wakes)
{
	env_start();
	FOR_ALL_SPINS(i)
	{
		for (int round = 0; round < 10; round++) {
			struct any_addr addr[2];
			struct sk s[2];
			struct job j[2];

			pv_engine.spin_ns = spins[i];
			for (int k = 0; k < 2; k++) {
				s[k] = sk_bound(&our_side, AF_INET, &addr[k]);
				job_start(&j[k], s[k], LONG_NS);
				wait_until_waiting();
			}
			pyvma_stop();
			CHECK_EQ(pyvma_start(), 0);
			for (int k = 0; k < 2; k++) {
				pthread_join(j[k].thread, NULL);
				CHECK_EQ(j[k].result, -ENETDOWN);
				sk_close(s[k]);
			}
			CHECK_EQ(pv_engine.interest, 0);
			CHECK(!pv_engine.leader);
			CHECK(pv_list_empty(&pv_engine.followers));
		}
	}
}

/* ---- a ring that has something to say, or nothing any more ----------------------------------------------------------------- */

static const struct pv_ring_ops *ring_below;
static _Atomic(int) ring_says; /* 1: an event not yet told, -1: the device is gone */
static _Atomic(uint32_t) ring_arms;

static int troubled_arm(struct pv_ring *r)
{
	int says = atomic_load(&ring_says);

	if (!says)
		return ring_below->arm(r);
	atomic_fetch_add(&ring_arms, 1);
	return says > 0 ? 1 : -ENODEV;
}

static enum pv_ring_event troubled_event(struct pv_ring *r)
{
	int event = 1;

	return atomic_compare_exchange_strong(&ring_says, &event, 0) ? PV_RING_EV_ERROR : ring_below->event(r);
}

/* With an event untold, or with a descriptor of a dead device that is readable for ever, a waiter still sleeps until its time is up. */
TEST(troubled_rings_do_not_keep_waiters_awake)
{
	static const int says[] = { 1, -1 };
	struct pv_ring_ops ops;
	struct pv_port *port;
	struct any_addr aa;
	int hung_up[2];
	struct sk a;
	char b;

	env_start();
	pv_engine.spin_ns = 0;
	a = sk_bound(&our_side, AF_INET, &aa);
	CHECK_EQ(pipe(hung_up), 0);
	close(hung_up[1]);
	port = &pv_engine.ports[0];
	ring_below = port->ring->ops;
	ops = *ring_below;
	ops.arm = troubled_arm;
	ops.event = troubled_event;
	for (size_t i = 0; i < pv_array_size(says); i++) {
		int fd;

		pv_lock_get(&pv_engine.lock);
		fd = port->notify_fd;
		if (says[i] < 0)
			port->notify_fd = hung_up[0];
		atomic_store(&ring_arms, 0);
		atomic_store(&ring_says, says[i]);
		port->ring->ops = &ops;
		pv_lock_put(&pv_engine.lock);
		/* What the ring has to say is the socket's error, once. */
		if (says[i] > 0)
			CHECK_EQ(pyvma_sock_recv(a.h, &b, 1, 0, LONG_NS), -ENETDOWN);
		CHECK_EQ(pyvma_sock_recv(a.h, &b, 1, 0, 200 * NS_MS), -EAGAIN);
		usleep(200000); /* and so does the progress thread */
		CHECK(atomic_load(&ring_arms) < 40);
		pv_lock_get(&pv_engine.lock);
		CHECK(atomic_load(&ring_says) <= 0);
		port->ring->ops = ring_below;
		port->notify_fd = fd;
		atomic_store(&ring_says, 0);
		pv_engine_wake(&pv_engine.progress);
		pv_lock_put(&pv_engine.lock);
	}
	close(hung_up[0]);
	sk_close(a);
	/* An interface that reported an error carries nothing any more. */
	pyvma_stop();
	CHECK_EQ(pyvma_start(), 0);
}

/* Sends end when the test says so. */
static _Atomic(bool) ring_holds;

static uint32_t holding_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	return atomic_load(&ring_holds) ? 0 : ring_below->tx_reap(r, pkts, n);
}

static void *poll_out_job(void *arg)
{
	struct job *j = arg;

	j->result = pyvma_sock_poll(j->s.h, POLLOUT, LONG_NS);
	atomic_store(&j->started, true); /* it is over */
	return NULL;
}

/* Until the thread is inside the wait, or was not to wait at all. */
static void wait_for_follower(const struct job *j)
{
	for (bool there = false; !there && !atomic_load(&j->started); usleep(100)) {
		pv_lock_get(&pv_engine.lock);
		there = !pv_list_empty(&pv_engine.followers);
		pv_lock_put(&pv_engine.lock);
	}
	CHECK(!atomic_load(&j->started));
}

/* Sends to nobody until there is no room. */
static void fill(struct sk s, const char *broadcast)
{
	char text[1000] = "";
	int64_t n;

	do {
		n = sk_sendto(s, text, sizeof(text), MSG_DONTWAIT, ip(broadcast, 9));
	} while (n == sizeof(text));
	CHECK_EQ(n, -EAGAIN);
}

/* All rings with these operations; NULL: each with its own again, which live as long as their ring. */
static void hold_rings(const struct pv_ring_ops *ops)
{
	static const struct pv_ring_ops *own[PV_IFACE_MAX];

	pv_lock_get(&pv_engine.lock);
	for (uint32_t i = 0; i < pv_engine.nports; i++) {
		struct pv_ring *r = pv_engine.ports[i].ring;

		if (ops)
			own[i] = r->ops;
		r->ops = ops ? ops : own[i];
	}
	atomic_store(&ring_holds, ops != NULL);
	pv_lock_put(&pv_engine.lock);
}

/* Room comes without a frame or timer to count: who waits for it hears of it all the same, though another thread leads. */
TEST(a_follower_hears_of_room)
{
	struct pv_ring_ops ops;

	env_start();
	ring_below = pv_engine.ports[0].ring->ops;
	ops = *ring_below;
	ops.tx_reap = holding_reap;
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa;
		struct sk leads = sk_bound(&our_side, AF_INET, &aa), sends = sk_open(&our_side, AF_INET);
		struct job lead, room;
		int64_t start;

		hold_rings(&ops);
		CHECK_EQ(sk_set_int(sends, SOL_SOCKET, SO_BROADCAST, 1), 0);
		CHECK_EQ(sk_bind(sends, ip("0.0.0.0", 0)), 0);
		/* Room in any ring is worth another try: all must be full. */
		fill(sends, "10.9.1.255");
		fill(sends, "10.9.0.255");
		job_start(&lead, leads, -1);
		wait_until_waiting();
		room = (struct job){ .s = sends };
		CHECK_EQ(pthread_create(&room.thread, NULL, poll_out_job, &room), 0);
		wait_for_follower(&room);
		start = now_ns();
		atomic_store(&ring_holds, false);
		pthread_join(room.thread, NULL);
		CHECK_EQ(room.result, POLLOUT);
		CHECK(now_ns() - start < LONG_NS / 2); /* and not when its time was up */
		sk_close(leads);
		pthread_join(lead.thread, NULL);
		CHECK_EQ(lead.result, -EBADF);
		hold_rings(NULL);
		sk_close(sends);
	}
}

/* The same under calls that wait for room: a ring that takes nothing. */
static void *send_until_stop(void *arg)
{
	struct job *j = arg;
	char text[1000] = "";

	do {
		j->result = sk_sendto(j->s, text, sizeof(text), 0, j->to);
	} while (j->result == sizeof(text) || j->result == -ENOBUFS);
	return NULL;
}

TEST(stop_wakes_senders)
{
	env_start();
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("fault", "tx_post_short=1"), 0);
	CHECK_EQ(pyvma_start(), 0);
	for (int round = 0; round < 5; round++) {
		struct job j[2];

		for (int k = 0; k < 2; k++) {
			j[k] = (struct job){ .s = sk_open(&our_side, AF_INET), .to = ip("10.9.0.255", 9) };
			CHECK_EQ(sk_set_int(j[k].s, SOL_SOCKET, SO_BROADCAST, 1), 0);
			CHECK_EQ(sk_bind(j[k].s, ip("10.9.0.1", 0)), 0);
		}
		for (int k = 0; k < 2; k++)
			CHECK_EQ(pthread_create(&j[k].thread, NULL, send_until_stop, &j[k]), 0);
		wait_until_waiting();
		pyvma_stop();
		CHECK_EQ(pyvma_start(), 0);
		for (int k = 0; k < 2; k++) {
			pthread_join(j[k].thread, NULL);
			CHECK_EQ(j[k].result, -ENETDOWN);
			sk_close(j[k].s);
		}
	}
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("fault", ""), 0);
	CHECK_EQ(pyvma_start(), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
