/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is sent when. With a rate, message k is due at start + k / rate whatever became of those before it: a sender that was held up
 * catches up. Its latency is told twice: from when it was sent, as sockperf, and from when it was due, which holds the time that it had to
 * wait for the sender, too, and is what a user of a service under that load would see.
 */
#include "bench/perf_client.h"

#include <pthread.h>
#include <signal.h>

static bool over(const struct perf_client *c, uint64_t now)
{
	return now >= c->stop || bench_stop;
}

static uint32_t next_size(struct perf_client *c)
{
	uint32_t low, high;

	if (!c->o->range)
		return c->o->size;
	low = c->o->size - PV_MIN(c->o->range, c->o->size - MSG_HLEN);
	high = c->o->size + c->o->range;
	/* xorshift64 */
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return low + (uint32_t)(c->random % (high - low + 1));
}

/* Until `due`: spins, taking replies if this is the thread for that. */
static int wait_until(struct perf_client *c, uint64_t due)
{
	bool takes = !c->two_threads && c->o->reply_every;

	while (bench_ticks() < due && !bench_stop) {
		int rc = takes ? perf_take(c, false) : 0;

		if (rc < 0)
			return rc;
		if (!takes)
			pv_cpu_relax();
	}
	return 0;
}

/* The time of the next burst, when that has come; *due: it, or now where there is no rate. */
static int next_burst(struct perf_client *c, uint64_t *due)
{
	if (c->cycle <= 0) {
		*due = bench_ticks();
		return 0;
	}
	*due = c->due;
	c->due_part += c->cycle;
	c->due += (uint64_t)c->due_part;
	c->due_part -= (double)(uint64_t)c->due_part;
	return wait_until(c, *due);
}

static int send_burst(struct perf_client *c, uint32_t k, uint64_t due)
{
	uint32_t size = next_size(c);
	int rc = 0;

	for (uint32_t i = 0; i < c->o->burst && !rc && !bench_stop; i++) {
		rc = perf_send(c, k, size, due);
		if (!rc && due >= c->valid_from && due <= c->valid_to)
			c->valid_sent++;
	}
	return rc;
}

/* Replies to a burst; those that do not come within BENCH_LOST_NS are given up. */
static int await(struct perf_client *c, uint32_t replies)
{
	uint64_t deadline = bench_ticks() + perf_ticks(c, BENCH_LOST_NS);
	uint32_t turn = 0;

	while (replies && !bench_stop) {
		int got = perf_take(c, true);

		if (got < 0)
			return got;
		replies -= PV_MIN((uint32_t)got, replies);
		if (!got && (c->o->block || ++turn % 64 == 0) && bench_ticks() > deadline) {
			c->timeouts++;
			return 0;
		}
	}
	return 0;
}

static int run_ping_pong(struct perf_client *c)
{
	uint64_t due = c->start;

	for (uint32_t k = 0; !over(c, bench_ticks()); k = k + 1 < c->n ? k + 1 : 0) {
		int rc = next_burst(c, &due);

		if (!rc)
			rc = send_burst(c, k, due);
		if (!rc)
			rc = await(c, c->o->burst);
		if (rc)
			return rc;
	}
	return 0;
}

static int run_rate(struct perf_client *c)
{
	bool takes = !c->two_threads && c->o->reply_every;
	uint64_t due = c->start;

	for (uint32_t k = 0; !over(c, bench_ticks()); k = k + 1 < c->n ? k + 1 : 0) {
		int rc = next_burst(c, &due);

		/* The last one's time may be after the end. */
		if (over(c, due))
			return rc;
		if (!rc)
			rc = send_burst(c, k, due);
		if (!rc && takes)
			rc = perf_take(c, false);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int run_playback(struct perf_client *c)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < c->o->n_plays && !bench_stop; i++) {
		uint64_t due = c->start + perf_ticks(c, c->o->plays[i].at_s * 1e9);
		int rc = wait_until(c, due);

		if (!rc)
			rc = perf_send(c, k, c->o->plays[i].size, due);
		if (rc)
			return rc;
		c->valid_sent++;
		k = k + 1 < c->n ? k + 1 : 0;
	}
	return 0;
}

/* Asks for a reply by every socket: what went before it has then been read, and can be counted at the other end. */
static int confirm(struct perf_client *c)
{
	for (uint32_t k = 0; k < c->n; k++) {
		int rc = perf_send_plain(c, k, ++c->seq, MSG_CLIENT | MSG_PONG);

		if (rc)
			return rc;
	}
	return await(c, c->n);
}

static int send_all(struct perf_client *c)
{
	int rc = 0;

	if (c->o->mode == PERF_PLAYBACK)
		rc = run_playback(c);
	else if (c->o->mode == PERF_PING_PONG)
		rc = run_ping_pong(c);
	else
		rc = run_rate(c);
	c->ended = bench_ticks();
	return rc;
}

static void *sender(void *arg)
{
	struct perf_client *c = arg;

	(void)bench_pin((int)c->o->sender_cpu);
	c->failed = send_all(c);
	__atomic_store_n(&c->sent_all, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Replies to what was sent last; after the end nobody sends any more. */
static int take_rest(struct perf_client *c)
{
	uint64_t deadline = bench_ticks() + perf_ticks(c, BENCH_LOST_NS);

	while (c->seen.unique < c->requested && bench_ticks() < deadline && !bench_stop) {
		int rc = perf_take(c, true);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Signals are for this thread, whose receive they end. */
static int run_both(struct perf_client *c)
{
	sigset_t all, before;
	pthread_t other;
	int rc = 0, failed;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	failed = pthread_create(&other, NULL, sender, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed)
		return -failed;
	(void)bench_pin((int)c->o->receiver_cpu);
	while (!__atomic_load_n(&c->sent_all, __ATOMIC_ACQUIRE) && rc >= 0)
		rc = perf_take(c, true);
	if (rc < 0)
		bench_stop = 1;
	pthread_join(other, NULL);
	return rc < 0 ? rc : c->failed;
}

int perf_run_mode(struct perf_client *c)
{
	const struct perf_opts *o = c->o;
	double seconds = o->mode == PERF_PLAYBACK ? 86400.0 + 1 : o->seconds;
	int rc = 0;

	/* Not over TCP: sockperf's server forgets what it has read behind a warm-up message. */
	if (!c->sock[0].tcp)
		rc = perf_send_plain(c, 0, 0, MSG_CLIENT | MSG_WARMUP);
	if (rc)
		return rc;
	c->two_threads = o->block && (o->mode == PERF_UNDER_LOAD || o->mode == PERF_PLAYBACK);
	if (!c->two_threads)
		(void)bench_pin((int)o->sender_cpu);
	c->cycle = o->mps > 0 ? 1e9 / c->tick_ns * o->burst / o->mps : 0;
	c->start = c->due = bench_ticks();
	c->stop = c->start + perf_ticks(c, seconds * 1e9);
	c->valid_from = c->start + perf_ticks(c, o->warmup_s * 1e9);
	c->valid_to = c->stop - perf_ticks(c, o->cooldown_s * 1e9);
	rc = c->two_threads ? run_both(c) : send_all(c);
	if (rc)
		return rc;
	return o->reply_every ? take_rest(c) : confirm(c);
}
