/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paced queues.
 *
 * The schedule is a bucket that drains at the rate, kept as the time at which it will be empty (GCRA): a frame may leave once what is in
 * the bucket, with the frame itself, is no more than the burst. It is computed for the frame at the head only, so a rate that changes
 * holds for everything behind it, and in whole nanoseconds plus a remainder, so that no rate drifts.
 *
 * A frame's departure is the one that the schedule says, and that is its stamp. The thread that lets frames out is a program among others and
 * comes late by microseconds or milliseconds; the receiver gets the frame then, and the time is right nevertheless.
 *
 * All paced queues of a process on a fabric share a mutex and a thread, which is there only while frames are held. Whoever sends lets out
 * what is due, too. Frames leave by the sender's own port object, always with the mutex, so that its lane has one writer. Lock order: this
 * mutex, then the impairments', then the fabric's.
 */
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "softnic/fab.h"
#include "softnic/fab_worker.h"

#define RELEASE_MAX 64u /* frames let out at a time before others get the mutex */
#define IDLE_NS PV_NS_PER_S
#define NEVER UINT64_MAX
#define LATE_MAX_NS 100000000u /* as much of a sender's own lateness is made good */

struct paced_frame {
	struct paced_frame *next;
	uint64_t arrived_ns;
	uint64_t *when;
	uint32_t len, tx_flags;
	uint8_t data[];
};

struct sn_pace {
	struct pv_list link; /* in pacer->busy while frames are held */
	struct sn_pacer *pacer;
	struct sn_port *port;
	void (*told)(void *ctx);
	void *ctx;
	struct sn_rate rate;
	uint32_t burst;
	uint64_t empty_ns, frac; /* when the bucket is empty; and frac / kbps nanoseconds more */
	uint64_t last_ns; /* departure of the last frame */
	uint64_t due_ns; /* of the head */
	_Atomic bool full; /* since the schedule was ahead of the clock: a sender that would send on, could it */
	struct paced_frame *head, **tail;
	_Atomic uint64_t held_bytes;
	_Atomic uint64_t left;
};

struct sn_pacer {
	struct sn_worker worker;
	struct pv_list busy;
	uint64_t wake_ns; /* when the thread looks again */
};

/* ---- the schedule ---------------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_ns(const struct sn_pace *q, uint64_t bytes)
{
	return bytes * 8000000u / q->rate.kbps;
}

static uint64_t due_of(const struct sn_pace *q, uint64_t arrived_ns, uint32_t len)
{
	uint64_t due = PV_MAX(arrived_ns, q->last_ns), ahead;

	if (!q->rate.kbps)
		return due;
	ahead = q->burst > len ? bytes_ns(q, q->burst - len) : 0;
	return q->empty_ns > ahead ? PV_MAX(due, q->empty_ns - ahead) : due;
}

static void charge(struct sn_pace *q, uint64_t due_ns, uint32_t len)
{
	uint64_t bits;

	q->last_ns = due_ns;
	if (!q->rate.kbps)
		return;
	if (q->empty_ns < due_ns) {
		q->empty_ns = due_ns;
		q->frac = 0;
	}
	bits = q->frac + (uint64_t)len * 8000000u;
	q->empty_ns += bits / q->rate.kbps;
	q->frac = bits % q->rate.kbps;
}

/* ---- leaving --------------------------------------------------------------------------------------------------------------------- */

static void depart(struct sn_pace *q, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags, uint64_t due_ns, uint64_t *when)
{
	sn_port_stamp_at(q->port, due_ns);
	sn_port_send(q->port, seg, nseg, tx_flags);
	sn_port_stamp_at(q->port, 0);
	if (when)
		*when = due_ns;
	/* Pairs with whoever asks to be told and then looks at the count. */
	atomic_fetch_add(&q->left, 1);
	if (when)
		q->told(q->ctx);
}

static struct paced_frame *take_head(struct sn_pace *q)
{
	struct paced_frame *x = q->head;

	q->head = x->next;
	sn_set_relaxed(&q->held_bytes, sn_get_relaxed(&q->held_bytes) - x->len);
	if (q->head) {
		q->due_ns = due_of(q, q->head->arrived_ns, q->head->len);
	} else {
		q->tail = &q->head;
		pv_list_del(&q->link);
	}
	return x;
}

static void leave(struct sn_pace *q)
{
	uint64_t due = q->due_ns;
	const struct sn_seg seg = { q->head->data, q->head->len };
	struct paced_frame *x;

	charge(q, due, seg.len);
	x = take_head(q);
	sn_count(&q->port->count->held_out, 1);
	depart(q, &seg, 1, x->tx_flags, due, x->when);
	free(x);
}

/* The queue whose head leaves first. */
static struct sn_pace *first(struct sn_pacer *h)
{
	struct sn_pace *found = NULL;

	pv_list_for_each(it, &h->busy) {
		struct sn_pace *q = pv_list_entry(it, struct sn_pace, link);

		if (!found || q->due_ns < found->due_ns)
			found = q;
	}
	return found;
}

/* Lets out what is due, a bounded number of frames; when the next is due, or NEVER. */
static uint64_t release(struct sn_pacer *h, uint64_t now)
{
	struct sn_pace *q = first(h);

	for (uint32_t i = 0; q && q->due_ns <= now && i < RELEASE_MAX; i++) {
		leave(q);
		q = first(h);
	}
	return q ? q->due_ns : NEVER;
}

/* The wait's clock may be slewed against the stamps': what comes out is looked at again. */
static void wait_until(struct sn_pacer *h, uint64_t next, uint64_t now)
{
	uint64_t wait = next == NEVER ? IDLE_NS : PV_MIN(next - now, (uint64_t)IDLE_NS);
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	wait += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(wait / PV_NS_PER_S);
	until.tv_nsec = (long)(wait % PV_NS_PER_S);
	h->wake_ns = next;
	pthread_cond_timedwait(&h->worker.cond, &h->worker.mutex, &until);
}

static void *pacer_run(void *arg)
{
	struct sn_pacer *h = arg;
	uint64_t idle_since = 0;

	prctl(PR_SET_NAME, "softnic-pace");
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&h->worker.mutex);
	while (!h->worker.stop) {
		uint64_t now = sn_true_ns(), next = release(h, now);

		if (next <= now) {
			pthread_mutex_unlock(&h->worker.mutex);
			pthread_mutex_lock(&h->worker.mutex);
			continue;
		}
		if (next != NEVER)
			idle_since = now;
		else if (now - idle_since >= IDLE_NS)
			break;
		wait_until(h, next, now);
	}
	h->worker.running = false;
	pthread_mutex_unlock(&h->worker.mutex);
	return NULL;
}

static void look_sooner(struct sn_pacer *h, uint64_t due_ns)
{
	if (!h->worker.running || due_ns < h->wake_ns) {
		h->wake_ns = due_ns;
		sn_worker_start(&h->worker, pacer_run, h);
	}
}

/* ---- senders --------------------------------------------------------------------------------------------------------------------- */

static struct sn_pacer *pacer_get(struct sn_fabric *f)
{
	struct sn_pacer *h, *none = NULL;

	h = __atomic_load_n(&f->pacer, __ATOMIC_ACQUIRE);
	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	sn_worker_init(&h->worker);
	pv_list_init(&h->busy);
	if (__atomic_compare_exchange_n(&f->pacer, &none, h, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return h;
	sn_worker_fini(&h->worker);
	free(h);
	return none;
}

int sn_pace_open(struct sn_port *p, void (*left)(void *ctx), void *ctx, struct sn_pace **out)
{
	struct sn_pace *q = calloc(1, sizeof(*q));

	if (!q || !(q->pacer = pacer_get(p->f))) {
		free(q);
		return sn_fail(-ENOMEM, "no memory");
	}
	q->port = p;
	q->told = left;
	q->ctx = ctx;
	q->tail = &q->head;
	pv_list_init(&q->link);
	*out = q;
	return 0;
}

uint64_t sn_pace_drop(struct sn_pace *q)
{
	uint64_t n = 0, before;

	pthread_mutex_lock(&q->pacer->worker.mutex);
	for (; q->head; n++)
		free(take_head(q));
	sn_count(&q->port->count->held_lost, n);
	before = atomic_fetch_add(&q->left, n);
	pthread_mutex_unlock(&q->pacer->worker.mutex);
	return before;
}

void sn_pace_close(struct sn_pace *q)
{
	sn_pace_drop(q);
	free(q);
}

void sn_pace_set(struct sn_pace *q, const struct sn_rate *rate)
{
	uint64_t now, ahead = 0;

	pthread_mutex_lock(&q->pacer->worker.mutex);
	now = sn_true_ns();
	/* What is in the bucket are bytes: at another rate they take another time. */
	if (q->rate.kbps && rate->kbps && q->empty_ns > now)
		ahead = (uint64_t)((unsigned __int128)(q->empty_ns - now) * q->rate.kbps / rate->kbps);
	q->rate = *rate;
	sn_set_relaxed(&q->full, false);
	q->burst = rate->burst_bytes ? rate->burst_bytes : 2 * (rate->typical_len ? rate->typical_len : q->port->max_len);
	q->empty_ns = now + ahead;
	q->frac = 0;
	if (q->head) {
		q->due_ns = due_of(q, q->head->arrived_ns, q->head->len);
		if (!rate->kbps) {
			while (q->head)
				leave(q);
		} else {
			look_sooner(q->pacer, q->due_ns);
		}
	}
	pthread_mutex_unlock(&q->pacer->worker.mutex);
}

static int hold(struct sn_pace *q, const struct sn_seg *seg, uint32_t nseg, uint32_t len, struct paced_frame *like)
{
	struct paced_frame *x = malloc(sizeof(*x) + len);
	uint8_t *to;

	if (!x)
		return sn_fail(-ENOMEM, "no memory");
	*x = *like;
	x->len = len;
	to = x->data;
	for (uint32_t i = 0; i < nseg; i++) {
		if (seg[i].len)
			memcpy(to, seg[i].base, seg[i].len);
		to += seg[i].len;
	}
	if (!q->head) {
		q->due_ns = due_of(q, x->arrived_ns, len);
		pv_list_add(&q->pacer->busy, &q->link);
		look_sooner(q->pacer, q->due_ns);
	}
	*q->tail = x;
	q->tail = &x->next;
	sn_count(&q->held_bytes, len);
	sn_count(&q->port->count->held_in, 1);
	return 0;
}

int sn_pace_send(struct sn_pace *q, const struct sn_seg *seg, uint32_t nseg, uint32_t tx_flags, uint64_t *when)
{
	struct paced_frame like = { .when = when, .tx_flags = tx_flags };
	uint64_t len = 0, now, due;
	int rc = 0;

	for (uint32_t i = 0; i < nseg; i++)
		len += seg[i].len;
	pthread_mutex_lock(&q->pacer->worker.mutex);
	now = sn_true_ns();
	/* Whoever waited for room that came late, or for a processor, is not to lose its rate by that. */
	like.arrived_ns = sn_get_relaxed(&q->full) ? PV_MAX(q->last_ns, now - LATE_MAX_NS) : now;
	release(q->pacer, now);
	if (len < 14 || len > q->port->max_len) {
		sn_count(&q->port->count->tx_too_long, 1);
		rc = -EMSGSIZE;
	} else if (q->head) {
		rc = hold(q, seg, nseg, (uint32_t)len, &like);
	} else if ((due = due_of(q, like.arrived_ns, (uint32_t)len)) <= now) {
		charge(q, due, (uint32_t)len);
		depart(q, seg, nseg, tx_flags, due, when);
	} else {
		sn_set_relaxed(&q->full, false);
		rc = hold(q, seg, nseg, (uint32_t)len, &like);
	}
	pthread_mutex_unlock(&q->pacer->worker.mutex);
	return rc;
}

bool sn_pace_tell(struct sn_pace *q, uint64_t *when)
{
	bool held;

	pthread_mutex_lock(&q->pacer->worker.mutex);
	held = q->head != NULL;
	if (held) {
		struct paced_frame *x = pv_container_of(q->tail, struct paced_frame, next);

		*when = 0;
		x->when = x->when ? x->when : when;
	}
	pthread_mutex_unlock(&q->pacer->worker.mutex);
	return held;
}

uint64_t sn_pace_left(struct sn_pace *q)
{
	return atomic_load(&q->left);
}

void sn_pace_full(struct sn_pace *q)
{
	sn_set_relaxed(&q->full, true);
}

uint64_t sn_pace_held_bytes(struct sn_pace *q)
{
	return sn_get_relaxed(&q->held_bytes);
}

void sn_pacer_close(struct sn_fabric *f)
{
	struct sn_pacer *h = f->pacer;

	if (!h)
		return;
	sn_worker_fini(&h->worker);
	free(h);
	f->pacer = NULL;
}
