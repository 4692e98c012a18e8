/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that receives, for tests of what ends its wait. */
#ifndef WAIT_JOB_H
#define WAIT_JOB_H

#include "rt/engine.h"
#include "sock_env.h"

/* Modes: sleeping at once, spinning a while, spinning for ever. Set before each case; the engine reads it at each wait. */
static const int64_t spins[] = { 0, 200000, PV_NEVER };
#define FOR_ALL_SPINS(i) for (size_t i = 0; i < 3 && (pv_engine.spin_ns = spins[i], true); i++)

struct job {
	struct sk s;
	struct any_addr to;
	int64_t result, timeout;
	_Atomic(bool) started;
	pthread_t thread;
};

static inline void *recv_job(void *arg)
{
	struct job *j = arg;
	char b[8];

	atomic_store(&j->started, true);
	j->result = pyvma_sock_recv(j->s.h, b, sizeof(b), 0, j->timeout);
	return NULL;
}

static inline void job_start(struct job *j, struct sk s, int64_t timeout)
{
	*j = (struct job){ .s = s, .timeout = timeout };
	CHECK_EQ(pthread_create(&j->thread, NULL, recv_job, j), 0);
	while (!atomic_load(&j->started))
		usleep(100);
}

/* Until the thread is inside the wait; a waiter shows itself as leader or on its socket. */
static inline void wait_until_waiting(void)
{
	for (;;) {
		pv_lock_get(&pv_engine.lock);
		bool leads = pv_engine.leader != NULL;

		pv_lock_put(&pv_engine.lock);
		if (leads)
			return;
		usleep(100);
	}
}

#endif
