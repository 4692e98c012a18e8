/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: messages of many buffers, reads that end at news, and closes that linger. The kernel's sockets are the oracle. */
#include <stdatomic.h>

#include "sock_states.h"

#define BUFS 200
#define EACH 13

static char area[BUFS * EACH];
static struct iovec iov[BUFS + 1];

static struct msghdr message(void)
{
	for (int i = 0; i < BUFS; i++)
		iov[i] = (struct iovec){ area + i * EACH, EACH };
	iov[BUFS] = (struct iovec){ NULL, 0 };
	return (struct msghdr){ .msg_iov = iov, .msg_iovlen = BUFS + 1 };
}

static void fill(void)
{
	for (size_t i = 0; i < sizeof(area); i++)
		area[i] = (char)(i * 7 + i / 251);
}

static bool intact(size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (area[i] != (char)(i * 7 + i / 251))
			return false;
	return true;
}

static void forget(void)
{
	memset(area, 0, sizeof(area));
}

ORACLE(messages_of_many_buffers)
{
	struct rig r = rig_make(side, family, OPEN);
	struct msghdr m = message();

	fill();
	T(t, sk_sendmsg(r.s, &m, 0));
	await_inq(r.peer, sizeof(area));
	forget();
	T(t, sk_recvmsg(r.peer, &m, MSG_PEEK));
	T(t, intact(sizeof(area)));
	forget();
	T(t, sk_recvmsg(r.peer, &m, MSG_PEEK | MSG_WAITALL));
	T(t, sk_recvmsg(r.peer, &m, MSG_WAITALL));
	T(t, intact(sizeof(area)));
	T(t, sk_recvmsg(r.peer, &m, MSG_DONTWAIT));
	m.msg_iovlen = 17;
	T(t, sk_sendmsg(r.s, &m, MSG_DONTWAIT));
	await_inq(r.peer, 17 * EACH);
	T(t, sk_recvmsg(r.peer, &m, MSG_TRUNC));
	rig_close(&r);
}

struct later {
	struct sk s, reader;
	bool taken; /* not before the reader has taken what there is, and waits */
	int parts;
};

static void *send_later(void *arg)
{
	struct later *l = arg;

	if (l->taken) {
		await_inq(l->reader, 0);
		usleep(50000); /* Linux says so a moment before the reader sleeps */
	}
	for (int i = 0; i < l->parts; i++) {
		usleep(2000);
		CHECK_EQ(sk_send(l->s, area + i * EACH * 20, EACH * 20, 0), EACH * 20);
	}
	return NULL;
}

ORACLE(all_of_many_buffers)
{
	static char got[sizeof(area)];
	struct rig r = rig_make(side, family, OPEN);
	struct later l = { .s = r.s, .parts = BUFS / 20 };
	struct msghdr m = message();
	pthread_t thread;

	fill();
	for (int i = 0; i < BUFS; i++)
		iov[i].iov_base = got + i * EACH;
	CHECK_EQ(pthread_create(&thread, NULL, send_later, &l), 0);
	T(t, sk_recvmsg(r.peer, &m, MSG_WAITALL));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	T(t, memcmp(got, area, sizeof(area)));
	rig_close(&r);
}

/* Of a socket with SO_RCVLOWAT a read that waits does so for as much, or for all that it has room for; one that does not takes what there is. */
ORACLE(low_water_mark)
{
	static char buf[BUFS * EACH];
	struct timeval limit = { .tv_sec = 5 }, soon = { .tv_usec = 50000 };
	struct rig r = rig_make(side, family, OPEN);
	struct later l = { .s = r.s, .reader = r.peer };
	const int part = EACH * 20;
	pthread_t thread;

	T(t, sk_set_int(r.peer, SOL_SOCKET, SO_RCVLOWAT, 2 * part));
	for (int peek = 0; peek < 2; peek++) {
		T(t, sk_set(r.peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
		T(t, sk_send(r.s, area, part, 0));
		await_inq(r.peer, part);
		/* What a read has taken does not count for what wakes it. */
		l.taken = !peek;
		l.parts = peek ? 1 : 2;
		CHECK_EQ(pthread_create(&thread, NULL, send_later, &l), 0);
		T(t, sk_recv(r.peer, buf, sizeof(buf), peek ? MSG_PEEK : 0));
		CHECK_EQ(pthread_join(thread, NULL), 0);
		T(t, sk_recv(r.peer, buf, sizeof(buf), MSG_DONTWAIT));
	}
	T(t, sk_send(r.s, area, part, 0));
	await_inq(r.peer, part);
	T(t, sk_recv(r.peer, buf, part / 2, 0));
	T(t, sk_recv(r.peer, buf, part / 4, MSG_DONTWAIT));
	T(t, sk_set(r.peer, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)));
	T(t, sk_recv(r.peer, buf, part, 0));
	T(t, sk_recv(r.peer, buf, part, 0));
	rig_close(&r);
}

/* The reset is behind what there is, and for the read after the one that takes less than the mark. */
ORACLE(reset_behind_less_than_the_mark)
{
	char buf[100];

	for (int waits = 0; waits < 2; waits++) {
		struct rig r = rig_make(side, family, OPEN);

		T(t, sk_set_int(r.s, SOL_SOCKET, SO_RCVLOWAT, 90));
		T(t, sk_send(r.peer, area, 50, 0));
		await_inq(r.s, 50);
		peer_closes(&r, true);
		T(t, sk_recv(r.s, buf, sizeof(buf), waits ? 0 : MSG_DONTWAIT));
		await_events(r.s, POLLHUP);
		T(t, sk_recv(r.s, buf, sizeof(buf), 0));
		T(t, sk_recv(r.s, buf, sizeof(buf), 0));
		rig_close(&r);
	}
}

ORACLE(urgent_byte_is_read)
{
	struct rig r = rig_make(side, family, URGENT);
	char buf[100];

	T(t, sk_poll(r.s, ALL_EVENTS, 0));
	T(t, sk_recv(r.s, buf, sizeof(buf), MSG_OOB | MSG_PEEK));
	T(t, sk_poll(r.s, ALL_EVENTS, 0));
	T(t, sk_recv(r.s, buf, sizeof(buf), MSG_OOB));
	T(t, sk_poll(r.s, ALL_EVENTS, 0));
	T(t, sk_recv(r.s, buf, sizeof(buf), MSG_OOB));
	T(t, sk_recv(r.s, buf, 1, 0));
	T(t, sk_recv(r.s, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT));
	rig_close(&r);
}

/* A read that has got something leaves an error, the end and the urgent mark to the next one. */
ORACLE(reads_end_at_news)
{
	static const enum how ends[] = { RESET_UNREAD, PEER_SHUT_UNREAD, URGENT };
	char buf[100];

	for (size_t i = 0; i < pv_array_size(ends); i++) {
		struct rig r = rig_make(side, family, ends[i]);

		T(t, sk_recv(r.s, buf, sizeof(buf), MSG_WAITALL | MSG_PEEK));
		T(t, sk_recv(r.s, buf, sizeof(buf), MSG_WAITALL));
		if (ends[i] == URGENT)
			T(t, sk_recv(r.s, buf, 2, MSG_WAITALL));
		else
			T(t, sk_recv(r.s, buf, sizeof(buf), MSG_WAITALL));
		T(t, sk_recv(r.s, buf, sizeof(buf), MSG_DONTWAIT));
		rig_close(&r);
	}
}

static int64_t stuff(struct sk s)
{
	static char block[65536];
	int64_t sent = 0, n;

	for (int idle = 0; idle < 20;) {
		n = sk_send(s, block, sizeof(block), MSG_DONTWAIT);
		sent += PV_MAX(n, INT64_C(0));
		idle = n > 0 ? 0 : idle + 1;
		if (n < 0)
			sk_poll(s, POLLOUT, 5 * NS_MS);
	}
	return sent;
}

struct reader {
	struct sk s;
	int64_t got, last;
	_Atomic(bool) began;
};

static void *read_later(void *arg)
{
	struct reader *r = arg;
	static char block[65536];

	usleep(100000);
	r->began = true;
	while ((r->last = sk_recv(r->s, block, sizeof(block), 0)) > 0)
		r->got += r->last;
	return NULL;
}

/* Whatever is still here when close returns the peer has got. */
ORACLE(close_waits_for_the_peer)
{
	struct linger l = { 1, 30 };
	struct rig r = rig_make(side, family, OPEN);
	struct reader reader = { .s = r.peer };
	int64_t sent = stuff(r.s);
	pthread_t thread;

	CHECK(sent > 0);
	T(t, sk_set(r.s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	CHECK_EQ(pthread_create(&thread, NULL, read_later, &reader), 0);
	T(t, sk_close(r.s));
	T(t, reader.began);
	r.s = (struct sk){ 0 };
	CHECK_EQ(pthread_join(thread, NULL), 0);
	T(t, reader.got - sent);
	T(t, reader.last);
	rig_close(&r);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* Nobody reads: the wait ends, and what is left still arrives. */
ORACLE(close_waits_no_longer_than_it_may)
{
	struct linger l = { 1, 1 };
	struct rig r = rig_make(side, family, OPEN);
	struct reader reader = { .s = r.peer };
	int64_t sent = stuff(r.s), began;

	T(t, sk_set(r.s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	T(t, sk_nonblock(r.s, 1));
	began = now_ns();
	T(t, sk_close(r.s));
	T(t, now_ns() - began > 900 * NS_MS);
	r.s = (struct sk){ 0 };
	read_later(&reader);
	T(t, reader.got - sent);
	T(t, reader.last);
	rig_close(&r);
}

/* Unread data makes it a reset, and one without data has nothing to wait for. */
ORACLE(close_that_need_not_wait)
{
	struct linger l = { 1, 1000 };
	struct rig r = rig_make(side, family, UNREAD);
	char c;

	T(t, sk_set(r.s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	T(t, sk_close(r.s));
	r.s = (struct sk){ 0 };
	await_events(r.peer, POLLERR);
	T(t, sk_recv(r.peer, &c, 1, 0));
	rig_close(&r);
	r = rig_make(side, family, PEER_SHUT);
	T(t, sk_set(r.s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	T(t, sk_close(r.s));
	r.s = (struct sk){ 0 };
	T(t, sk_recv(r.peer, &c, 1, 0));
	rig_close(&r);
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	return test_main(argc, argv);
}
