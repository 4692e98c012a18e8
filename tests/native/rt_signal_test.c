/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals during waits: what they end, whose they are, and the thread's mask. */
#include <signal.h>

#include "wait_job.h"

static _Atomic(int) signals;
static _Atomic(pid_t) signalled; /* the thread that had the last one */

static void on_signal(int sig)
{
	(void)sig;
	atomic_store(&signalled, gettid());
	atomic_fetch_add(&signals, 1);
}

TEST(signals_interrupt)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, old;

	env_start();
	sigaction(SIGUSR1, &sa, &old);
	FOR_ALL_SPINS(i)
	{
		struct any_addr aa;
		struct sk a = sk_bound(&our_side, AF_INET, &aa);
		struct job j;
		int before = atomic_load(&signals);

		job_start(&j, a, LONG_NS);
		wait_until_waiting();
		/* One that comes in the first microseconds of a spin is the race that every blocking call has. */
		usleep(3000);
		CHECK_EQ(pthread_kill(j.thread, SIGUSR1), 0);
		pthread_join(j.thread, NULL);
		CHECK_EQ(j.result, -EINTR);
		CHECK_EQ(atomic_load(&signals), before + 1);
		sk_close(a);
	}
	sigaction(SIGUSR1, &old, NULL);
}

#define POOL 4

struct pool {
	struct sk s[POOL];
	struct job j[POOL];
};

static void pool_start(struct pool *p)
{
	for (int i = 0; i < POOL; i++) {
		struct any_addr aa;

		p->s[i] = sk_bound(&our_side, AF_INET, &aa);
		job_start(&p->j[i], p->s[i], LONG_NS);
	}
	wait_until_waiting();
	usleep(20000);
}

static void pool_end(struct pool *p)
{
	for (int i = 0; i < POOL; i++) {
		usleep(20000); /* whoever is about to lead in another's stead sleeps by then */
		(void)pthread_kill(p->j[i].thread, SIGUSR1);
		pthread_join(p->j[i].thread, NULL);
		CHECK_EQ(p->j[i].result, -EINTR);
		sk_close(p->s[i]);
	}
}

static void *signal_all(void *arg)
{
	sigset_t all;

	(void)arg;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	usleep(2000);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	return NULL;
}

static void wait_for_signals(int n)
{
	for (int i = 0; i < 10000 && atomic_load(&signals) != n; i++)
		usleep(1000);
	CHECK_EQ(atomic_load(&signals), n);
}

/* The program sleeps in its first thread until the handler wakes that, and the others wait in calls of ours. */
static void the_first_has_it(void)
{
	int before = atomic_load(&signals);
	pthread_t t;

	CHECK_EQ(pthread_create(&t, NULL, signal_all, NULL), 0);
	wait_for_signals(before + 1);
	CHECK_EQ(atomic_load(&signalled), getpid());
	pthread_join(t, NULL);
}

/* It blocks the signal: then any other thread has to have it. */
static void another_takes_it(void)
{
	int before = atomic_load(&signals);
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	wait_for_signals(before + 1);
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
}

TEST(a_signal_of_the_process_is_the_first_threads)
{
	struct sigaction sa = { .sa_handler = on_signal }, old;
	struct pool p;

	env_start();
	sigaction(SIGUSR1, &sa, &old);
	for (int exact = 0; exact < 2; exact++) {
		if (exact)
			pyvma_wait_exact();
		FOR_ALL_SPINS(i)
		{
			pool_start(&p);
			for (int n = 0; n < 5; n++)
				the_first_has_it();
			another_takes_it();
			pool_end(&p);
		}
	}
	sigaction(SIGUSR1, &old, NULL);
}

static void *check_mask(void *arg)
{
	struct sk *s = arg;
	sigset_t before, after;
	char b;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	CHECK_EQ(pyvma_sock_recv(s->h, &b, 1, 0, 5 * NS_MS), -EAGAIN);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int sig = 1; sig < 32; sig++)
		CHECK_EQ(sigismember(&before, sig), sigismember(&after, sig));
	return NULL;
}

TEST(the_signal_mask_comes_back)
{
	struct any_addr aa;
	struct sk a;
	pthread_t t;

	env_start();
	pv_engine.spin_ns = PV_NEVER;
	a = sk_bound(&our_side, AF_INET, &aa);
	CHECK_EQ(pthread_create(&t, NULL, check_mask, &a), 0);
	pthread_join(t, NULL);
	sk_close(a);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
