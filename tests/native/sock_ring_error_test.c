/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring whose device reports an error (PV_RING_EV_ERROR) on a static interface: what its sockets hear, and that others hear nothing. */
#include "ring/fault.h"
#include "rt/engine.h"
#include "sock_env.h"

/* Rings that do as they are told; sn0 and sn1, each with addresses of its own. */
static void start(int64_t spin_ns, bool progress)
{
	env_start();
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("fault", "seed=1"), 0);
	CHECK_EQ(pyvma_config_set("log_level", "none"), 0);
	CHECK_EQ(pyvma_config_set("progress", progress ? "1" : "0"), 0);
	CHECK_EQ(pyvma_start(), 0);
	pv_engine.spin_ns = spin_ns;
}

static void report_error(unsigned int port)
{
	const struct pv_fault_cfg error = { .error_ppm = 1000000 };

	pv_lock_get(&pv_engine.lock);
	pv_fault_set(pv_engine.ports[port].ring, &error);
	pv_engine_wake(&pv_engine.progress); /* a real one has the ring's fd for that */
	pv_lock_put(&pv_engine.lock);
}

static bool link_up(unsigned int number)
{
	struct pyvma_interface ifc;

	CHECK_EQ(pyvma_interface_get(number, &ifc), 0);
	return ifc.link_up;
}

static void wait_failed(void)
{
	for (int i = 0; link_up(1); i++) {
		CHECK(i < 30000);
		usleep(1000);
	}
}

static struct sk sk_at(const char *addr, struct any_addr *name)
{
	struct sk s = sk_open(&our_side, AF_INET);

	CHECK_EQ(sk_bind(s, ip(addr, 0)), 0);
	CHECK_EQ(sk_name(s, name), 0);
	return s;
}

TEST(sockets_of_it_hear_once)
{
	struct any_addr bound_name, other_name, any_name;
	struct sk bound, connected, other, any;
	char b;

	start(0, true);
	bound = sk_at("10.9.0.1", &bound_name);
	other = sk_at("10.9.1.1", &other_name);
	any = sk_at("0.0.0.0", &any_name);
	connected = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_connect(connected, ip("10.9.0.77", 9)), 0);
	CHECK_EQ(sk_sendto(any, "x", 1, 0, ip("10.9.0.77", 9)), 1);
	report_error(0);
	wait_failed();
	CHECK(link_up(2));
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pyvma_sock_poll(bound.h, POLLIN, 0), i ? 0 : POLLERR);
		CHECK_EQ(sk_recv(bound, &b, 1, MSG_DONTWAIT), i ? -EAGAIN : -ENETDOWN);
		CHECK_EQ(sk_recv(connected, &b, 1, MSG_DONTWAIT), i ? -EAGAIN : -ENETDOWN);
		/* They have another way, or none of it. */
		CHECK_EQ(sk_recv(any, &b, 1, MSG_DONTWAIT), -EAGAIN);
		CHECK_EQ(sk_recv(other, &b, 1, MSG_DONTWAIT), -EAGAIN);
	}
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(sk_send(connected, "x", 1, 0), -ENETDOWN);
		CHECK_EQ(sk_sendto(bound, "x", 1, 0, ip("10.9.0.77", 9)), -ENETDOWN);
		CHECK_EQ(sk_sendto(any, "x", 1, 0, ip("10.9.0.78", 9)), -ENETDOWN);
		CHECK_EQ(sk_sendto(any, "x", 1, 0, ip("10.9.1.77", 9)), 1);
	}
	CHECK_EQ(sk_connect(connected, ip("10.9.0.78", 9)), -ENETDOWN);
	/* The host's own addresses need no ring. */
	CHECK_EQ(sk_sendto(any, "x", 1, 0, bound_name), 1);
	CHECK_EQ(sk_recv(bound, &b, 1, 0), 1);
	CHECK_EQ(sk_sendto(any, "x", 1, 0, other_name), 1);
	CHECK_EQ(sk_recv(other, &b, 1, 0), 1);
	sk_close(bound);
	sk_close(connected);
	sk_close(other);
	sk_close(any);
}

struct job {
	struct sk s;
	int64_t result;
	pthread_t thread;
};

static void *recv_job(void *arg)
{
	struct job *j = arg;
	char b;

	j->result = pyvma_sock_recv(j->s.h, &b, 1, 0, LONG_NS);
	return NULL;
}

/* Asleep, spinning a while, spinning for ever with the progress thread parked, and without a progress thread. */
TEST(who_waits_is_woken)
{
	static const struct {
		int64_t spin_ns;
		bool progress;
	} ways[] = { { 0, true }, { 200000, true }, { PV_NEVER, true }, { PV_NEVER, false }, { 200000, false } };

	for (size_t i = 0; i < pv_array_size(ways); i++) {
		struct any_addr name;
		struct job j[2];

		start(ways[i].spin_ns, ways[i].progress);
		for (int k = 0; k < 2; k++) {
			j[k] = (struct job){ .s = sk_at("10.9.0.1", &name) };
			CHECK_EQ(pthread_create(&j[k].thread, NULL, recv_job, &j[k]), 0);
		}
		for (bool parked = false; !parked; usleep(1000)) {
			pv_lock_get(&pv_engine.lock);
			parked = pv_engine.leader && (pv_engine.progress_parked || !ways[i].progress);
			pv_lock_put(&pv_engine.lock);
		}
		pv_lock_get(&pv_engine.lock);
		pv_fault_set(pv_engine.ports[0].ring, &(struct pv_fault_cfg){ .error_ppm = 1000000 });
		/* A sleeper has the ring's fd to hear by. */
		if (ways[i].spin_ns != PV_NEVER)
			pv_engine_wake(pv_engine.leader);
		pv_lock_put(&pv_engine.lock);
		for (int k = 0; k < 2; k++) {
			pthread_join(j[k].thread, NULL);
			CHECK_EQ(j[k].result, -ENETDOWN);
			sk_close(j[k].s);
		}
	}
}

/* A sender that waits for room in a ring that will never have any. */
static void *fill_job(void *arg)
{
	struct job *j = arg;
	char text[1000] = "";

	do {
		j->result = sk_send(j->s, text, sizeof(text), 0);
	} while (j->result == sizeof(text) || j->result == -ENOBUFS);
	return NULL;
}

TEST(who_waits_for_room_is_woken)
{
	const struct pv_fault_cfg full = { .tx_post_short_ppm = 1000000, .reap_none_ppm = 1000000 };
	struct job j;

	start(0, true);
	j = (struct job){ .s = sk_open(&our_side, AF_INET) };
	CHECK_EQ(sk_set_int(j.s, SOL_SOCKET, SO_BROADCAST, 1), 0);
	CHECK_EQ(sk_connect(j.s, ip("10.9.0.255", 9)), 0);
	pv_lock_get(&pv_engine.lock);
	pv_fault_set(pv_engine.ports[0].ring, &full);
	pv_lock_put(&pv_engine.lock);
	CHECK_EQ(pthread_create(&j.thread, NULL, fill_job, &j), 0);
	for (bool waits = false; !waits; usleep(1000)) {
		pv_lock_get(&pv_engine.lock);
		waits = pv_engine.leader != NULL;
		pv_lock_put(&pv_engine.lock);
	}
	report_error(0);
	pthread_join(j.thread, NULL);
	CHECK_EQ(j.result, -ENETDOWN);
	sk_close(j.s);
}

/* A real one, by the device's own event: a wrong key ends the queue pair. */
TEST(a_queue_pair_in_error)
{
	static const int64_t spins[] = { 0, 200000, PV_NEVER };

	for (size_t i = 0; i < pv_array_size(spins); i++) {
		struct any_addr name;
		struct pv_pkt *p;
		struct job j;

		start(spins[i], true);
		j = (struct job){ .s = sk_at("10.9.0.1", &name) };
		CHECK_EQ(pthread_create(&j.thread, NULL, recv_job, &j), 0);
		for (bool waits = false; !waits; usleep(1000)) {
			pv_lock_get(&pv_engine.lock);
			waits = pv_engine.leader != NULL;
			pv_lock_put(&pv_engine.lock);
		}
		pv_lock_get(&pv_engine.lock);
		p = pv_pkt_get(pv_engine.ports[0].pool);
		CHECK(p != NULL);
		p->len = p->total = 1000;
		memset(p->data, 0xff, p->len);
		p->key ^= 0x55555555;
		CHECK_EQ(pv_ring_tx_post(pv_engine.ports[0].ring, &p, 1), 1);
		(void)pv_ring_tx_kick(pv_engine.ports[0].ring);
		pv_lock_put(&pv_engine.lock);
		pthread_join(j.thread, NULL);
		CHECK_EQ(j.result, -ENETDOWN);
		wait_failed();
		CHECK_EQ(sk_sendto(j.s, "x", 1, 0, ip("10.9.0.77", 9)), -ENETDOWN);
		pv_lock_get(&pv_engine.lock);
		p->key ^= 0x55555555;
		pv_lock_put(&pv_engine.lock);
		sk_close(j.s);
	}
}

/* Stopping and starting makes it whole. */
TEST(zz_a_new_start)
{
	struct any_addr a, b_name;
	struct sk s, p;
	char b;

	start(0, true);
	report_error(0);
	wait_failed();
	start(0, true);
	CHECK(link_up(1));
	s = sk_at("10.9.0.1", &a);
	p = sk_at("10.9.0.1", &b_name);
	CHECK_EQ(sk_sendto(p, "x", 1, 0, a), 1);
	CHECK_EQ(sk_recv(s, &b, 1, 0), 1);
	CHECK_EQ(sk_sendto(s, "x", 1, 0, ip("10.9.0.77", 9)), 1);
	sk_close(s);
	sk_close(p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
