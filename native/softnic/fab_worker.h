/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that works by a schedule, and exists only while there is something to do. */
#ifndef SN_FAB_WORKER_H
#define SN_FAB_WORKER_H

#include <pthread.h>
#include <stdbool.h>

struct sn_worker {
	pthread_mutex_t mutex; /* of the owner's schedule, too */
	pthread_cond_t cond; /* by CLOCK_MONOTONIC */
	bool running, stop, joinable; /* the thread's function sets `running` to false when it ends, with the mutex */
	pthread_t thread;
};

void sn_worker_init(struct sn_worker *w);
/* Has the thread look at the schedule again; starts one when there is none. With the mutex. */
void sn_worker_start(struct sn_worker *w, void *(*run)(void *arg), void *arg);
/* Ends the thread. */
void sn_worker_fini(struct sn_worker *w);

#endif
