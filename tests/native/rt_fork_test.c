/* SPDX-License-Identifier: BSD-3-Clause */
/* fork: the child has kernel sockets only and says so, the parent notices nothing. */
#include <stdatomic.h>

#include "rt/engine.h"
#include "sock_env.h"

/* Runs `fn` in a child; its exit status. */
static int in_child(int (*fn)(struct sk, struct any_addr), struct sk s, struct any_addr a)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(fn(s, a));
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define EXPECT(cond)                                                                                                               \
	do {                                                                                                                       \
		if (!(cond)) {                                                                                                     \
			fprintf(stderr, "in the child, line %d: %s\n", __LINE__, #cond);                                           \
			return 1;                                                                                                  \
		}                                                                                                                  \
	} while (0)

static int child_checks(struct sk s, struct any_addr a)
{
	char buf[8], text[128];
	struct any_addr name;
	pyvma_sock *h, *d;
	struct pyvma_interface ifc;
	struct pyvma_sock_stats st;

	EXPECT(pyvma_sock_offload(s.h, text, sizeof(text)) == PYVMA_KERNEL && strstr(text, "fork"));
	EXPECT(sk_recv(s, buf, sizeof(buf), 0) == -ENOTCONN);
	EXPECT(strstr(pyvma_last_error(), "fork"));
	EXPECT(sk_recv(s, buf, sizeof(buf), MSG_DONTWAIT) == -ENOTCONN);
	EXPECT(sk_send(s, "x", 1, 0) == -ENOTCONN);
	EXPECT(sk_sendto(s, "x", 1, 0, a) == -ENOTCONN);
	EXPECT(sk_connect(s, a) == -ENOTCONN);
	EXPECT(sk_poll(s, POLLIN, 0) == -ENOTCONN);
	EXPECT(pyvma_sock_stats(s.h, &st) == 0);
	EXPECT(pyvma_interface_get(1, &ifc) == -ENOENT);
	EXPECT(pyvma_sock_dup(s.h, &d) == 0 && pyvma_sock_close(d) == 0);
	EXPECT(pyvma_start() == 0);
	/* New sockets are the kernel's, and work. */
	EXPECT(pyvma_sock_open(AF_INET, SOCK_DGRAM, 0, &h) == 0);
	struct sk k = { &our_side, pyvma_sock_fd(h), h };

	EXPECT(sk_bind(k, ip("127.0.0.1", 0)) == 0 && sk_name(k, &name) == 0);
	EXPECT(pyvma_sock_offload(h, text, sizeof(text)) == PYVMA_KERNEL && strstr(text, "forked"));
	EXPECT(sk_sendto(k, "self", 4, 0, name) == 4);
	EXPECT(pyvma_sock_recv(h, buf, sizeof(buf), 0, LONG_NS) == 4);
	EXPECT(pyvma_sock_fileno(h) == k.fd);
	EXPECT(sk_close(k) == 0);
	EXPECT(pyvma_sock_fileno(s.h) == s.fd);
	EXPECT(sk_close(s) == 0);
	pyvma_stop();
	return 0;
}

TEST(the_child_has_kernel_sockets)
{
	for (int exported = 0; exported < 2; exported++) {
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa);
		char buf[8];

		if (exported)
			CHECK_EQ(pyvma_sock_fileno(a.h), a.fd);
		CHECK_EQ(sk_sendto(a, "before", 6, 0, aa), 6);
		CHECK_EQ(in_child(child_checks, a, aa), 0);
		/* What was queued is the parent's still, and it goes on. */
		CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 6);
		CHECK_EQ(sk_sendto(a, "after", 5, 0, aa), 5);
		CHECK_EQ(pyvma_sock_recv(a.h, buf, sizeof(buf), 0, LONG_NS), 5);
		CHECK(is_offloaded(a));
		sk_close(a);
	}
}

static int child_exits(struct sk s, struct any_addr a)
{
	(void)s;
	(void)a;
	exit(0); /* atexit handlers of the parent's engine run here */
}

TEST(a_child_may_exit)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);
	char buf[8];

	CHECK_EQ(in_child(child_exits, a, aa), 0);
	CHECK_EQ(sk_sendto(a, "after", 5, 0, aa), 5);
	CHECK_EQ(pyvma_sock_recv(a.h, buf, sizeof(buf), 0, LONG_NS), 5);
	sk_close(a);
}

/* A process whose engine was stopped may fork, and its child start one of its own. */
static int child_starts(struct sk s, struct any_addr a)
{
	struct any_addr aa;
	pyvma_sock *h;

	(void)s;
	(void)a;
	EXPECT(pyvma_sock_open(AF_INET, SOCK_DGRAM, 0, &h) == 0);
	struct sk k = { &our_side, pyvma_sock_fd(h), h };

	EXPECT(sk_bind(k, ip("10.9.0.1", 0)) == 0 && sk_name(k, &aa) == 0 && is_offloaded(k));
	EXPECT(sk_close(k) == 0);
	pyvma_stop();
	return 0;
}

/* Payloads that are lent: parent and child read them, each gives back its own, and neither sees what becomes of the other's. */
#define LENT 40

static struct pyvma_msg lent[LENT];

static size_t lent_size(int i)
{
	return (size_t)(i * 37 % 1400);
}

static void fill_lent(struct sk a, struct any_addr aa, int n)
{
	char data[1400];

	for (int i = 0; i < n; i++) {
		for (size_t k = 0; k < sizeof(data); k++)
			data[k] = (char)(i + k);
		CHECK_EQ(sk_sendto(a, data, lent_size(i), 0, aa), (int64_t)lent_size(i));
		memset(&lent[i], 0, sizeof(lent[i]));
		CHECK_EQ(pyvma_sock_recv_lent(a.h, &lent[i], 1, 0, LONG_NS), 1);
	}
}

static bool lent_is(int i)
{
	const char *data = lent[i].base;

	for (size_t k = 0; k < lent_size(i); k++)
		if (data[k] != (char)(i + k))
			return false;
	return lent[i].len == lent_size(i);
}

static int child_reads(struct sk s, struct any_addr a)
{
	/* A child of its own has them, too. */
	pid_t pid = a.len ? fork() : 1;
	int status = 0;

	EXPECT(pid >= 0);
	for (int i = 0; i < LENT; i++)
		EXPECT(lent_is(i));
	if (!pid)
		_exit(child_reads(s, (struct any_addr){ 0 }));
	if (a.len)
		EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
	pyvma_batch_release(lent, LENT / 2);
	for (int i = LENT / 2; i < LENT; i++)
		EXPECT(lent_is(i));
	memset((void *)(uintptr_t)lent[LENT - 1].base, 'x', lent[LENT - 1].len);
	pyvma_batch_release(lent, LENT);
	EXPECT(sk_close(s) == 0);
	return 0;
}

TEST(what_is_lent_is_copied)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);

	for (int round = 0; round < 3; round++) {
		fill_lent(a, aa, LENT);
		for (int k = 0; k < 2; k++)
			CHECK_EQ(in_child(child_reads, a, aa), 0);
		for (int i = 0; i < LENT; i++)
			CHECK(lent_is(i));
		/* Given back in part: the others are still copied, and what is used anew is not. */
		pyvma_batch_release(lent, LENT / 2);
		fill_lent(a, aa, LENT / 2);
		CHECK_EQ(in_child(child_reads, a, aa), 0);
		pyvma_batch_release(lent, LENT);
		CHECK_EQ(pv_engine.stat->lent, 0);
	}
	sk_close(a);
}

static int child_of_stopped(struct sk s, struct any_addr a)
{
	int rc;

	(void)a;
	for (int i = 0; i < LENT; i++)
		EXPECT(lent_is(i));
	rc = child_starts(s, a);
	for (int i = 0; i < LENT; i++)
		EXPECT(lent_is(i));
	pyvma_batch_release(lent, LENT);
	return rc;
}

TEST(what_is_lent_outlives_the_engine)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);

	fill_lent(a, aa, LENT);
	pyvma_stop();
	CHECK_EQ(in_child(child_of_stopped, (struct sk){ 0 }, (struct any_addr){ 0 }), 0);
	for (int i = 0; i < LENT; i++)
		CHECK(lent_is(i));
	CHECK_EQ(pyvma_start(), 0);
	pyvma_batch_release(lent, LENT);
	sk_close(a);
}

/* While other threads wait, send, open and close: the child must find no lock held. */
static _Atomic(bool) stop;

static void *busy(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		struct any_addr aa;
		struct sk s = sk_bound(&our_side, AF_INET, &aa);
		char b;

		sk_sendto(s, "x", 1, 0, aa);
		CHECK_EQ(pyvma_sock_recv(s.h, &b, 1, 0, LONG_NS), 1);
		pyvma_sock_recv(s.h, &b, 1, 0, 100000);
		sk_close(s);
	}
	return NULL;
}

TEST(fork_beside_busy_threads)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);
	pthread_t t[2];

	atomic_store(&stop, false);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, busy, NULL), 0);
	for (int i = 0; i < 30; i++)
		CHECK_EQ(in_child(child_checks, a, aa), 0);
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	sk_close(a);
}

/* Threads that fork at once: each child, and the parent, find every lock free. */
#define FORKERS 3

struct forker {
	struct sk s;
	struct any_addr to;
	pthread_t thread;
};

static void *forks(void *arg)
{
	struct forker *f = arg;

	for (int i = 0; i < 60; i++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			alarm(60); /* a child that hangs ends by a signal */
			_exit(child_checks(f->s, f->to));
		}
		CHECK(pid > 0);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
	return NULL;
}

TEST(forks_at_once)
{
	struct forker f[FORKERS];
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);
	char buf[8];

	for (int i = 0; i < FORKERS; i++) {
		f[i] = (struct forker){ .s = a, .to = aa };
		CHECK_EQ(pthread_create(&f[i].thread, NULL, forks, &f[i]), 0);
	}
	for (int i = 0; i < FORKERS; i++)
		pthread_join(f[i].thread, NULL);
	CHECK_EQ(sk_sendto(a, "after", 5, 0, aa), 5);
	CHECK_EQ(pyvma_sock_recv(a.h, buf, sizeof(buf), 0, LONG_NS), 5);
	sk_close(a);
	/* Nobody keeps the engine from being stopped and started. */
	pyvma_stop();
	CHECK_EQ(pyvma_start(), 0);
}

/* The last. */
TEST(zz_child_of_a_stopped_engine)
{
	env_start();
	pyvma_stop();
	CHECK_EQ(in_child(child_starts, (struct sk){ 0 }, (struct any_addr){ 0 }), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
