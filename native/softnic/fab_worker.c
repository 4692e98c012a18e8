/* SPDX-License-Identifier: BSD-3-Clause */
#include "softnic/fab_worker.h"

#include <signal.h>
#include <time.h>

void sn_worker_init(struct sn_worker *w)
{
	pthread_condattr_t attr;

	*w = (struct sn_worker){ .running = false };
	pthread_mutex_init(&w->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->cond, &attr);
	pthread_condattr_destroy(&attr);
}

void sn_worker_start(struct sn_worker *w, void *(*run)(void *arg), void *arg)
{
	sigset_t all, old;

	if (w->running) {
		pthread_cond_signal(&w->cond);
		return;
	}
	if (w->joinable)
		pthread_join(w->thread, NULL);
	/* Signals are the program's threads'. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	w->joinable = w->running = pthread_create(&w->thread, NULL, run, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void sn_worker_fini(struct sn_worker *w)
{
	pthread_mutex_lock(&w->mutex);
	w->stop = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->mutex);
	if (w->joinable)
		pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->mutex);
}
