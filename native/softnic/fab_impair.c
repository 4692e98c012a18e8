/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a port does to the frames it sends, by its shared settings: loss, corruption and duplication as the frame is sent, then the
 * queue of a link with a rate, then its delay. A link with jitter keeps the order of frames; a frame chosen to be reordered is set
 * aside until a few later ones have passed it, or until it is too late for that.
 *
 * Frames that cannot leave at once are held by the process that sends them. One thread per fabric releases them, started with the
 * first and gone when none was held for a second. Everything held leaves through a view of the port with a lane of its own, under
 * the hold's mutex, so that the sender's lane keeps one writer. Lock order: hold, then fabric.
 */
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "softnic/fab.h"
#include "softnic/fab_worker.h"

#define HOLD_MAX 16384u /* frames of a process; one more is lost, as in a full queue */
#define LATE_MIN_NS 1000000u /* how long a frame waits to be passed, at least */
#define WIRE_OVERHEAD 24u /* preamble, FCS and gap of a frame */
#define IDLE_NS PV_NS_PER_S

struct sn_held {
	uint64_t due_ns, seq;
	struct sn_impair_state *of;
	uint32_t len;
	uint32_t pass; /* frames that are still to pass it */
	uint8_t data[];
};

struct sn_impair_state {
	struct pv_list link; /* in hold->ports */
	struct sn_impairments set;
	bool seeded;
	struct pv_rng rng;
	struct sn_port *out; /* by which held frames leave */
	uint64_t seq, last_due_ns;
	uint64_t released_seq; /* the newest frame that has left */
	uint32_t held; /* in the heap or late */
	struct sn_held *late; /* the one being passed */
	uint64_t late_until_ns;
};

struct sn_hold {
	struct sn_worker worker;
	struct pv_list ports;
	struct sn_held **heap; /* earliest first */
	uint32_t n, room;
	uint64_t wake_ns; /* when the thread looks again */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the heap ---- */

static bool before(const struct sn_held *a, const struct sn_held *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->seq < b->seq;
}

static int heap_put(struct sn_hold *h, struct sn_held *x)
{
	uint32_t i = h->n;

	if (i == h->room) {
		uint32_t room = h->room ? h->room * 2 : 64;
		struct sn_held **heap = realloc(h->heap, room * sizeof(struct sn_held *));

		if (!heap)
			return -ENOMEM;
		h->heap = heap;
		h->room = room;
	}
	for (h->n++; i && before(x, h->heap[(i - 1) / 2]); i = (i - 1) / 2)
		h->heap[i] = h->heap[(i - 1) / 2];
	h->heap[i] = x;
	return 0;
}

static struct sn_held *heap_take(struct sn_hold *h)
{
	struct sn_held *top = h->heap[0], *x = h->heap[--h->n];
	uint32_t i = 0;

	for (;;) {
		uint32_t c = 2 * i + 1;

		if (c >= h->n)
			break;
		if (c + 1 < h->n && before(h->heap[c + 1], h->heap[c]))
			c++;
		if (!before(h->heap[c], x))
			break;
		h->heap[i] = h->heap[c];
		i = c;
	}
	if (h->n)
		h->heap[i] = x;
	return top;
}

/* ---- leaving ---- */

static void leave(struct sn_held *x)
{
	struct sn_impair_state *st = x->of;
	struct sn_lane_count *c = st->out->count;

	if (st->released_seq > x->seq)
		sn_count(&c->tx_reordered, 1);
	else
		st->released_seq = x->seq;
	sn_count(&c->held_out, 1);
	st->held--;
	if (st->out->link_up)
		sn_send_now(st->out, x->data, x->len, 0);
	else
		sn_count(&c->tx_link_down, 1);
	free(x);
}

static void leave_late(struct sn_impair_state *st)
{
	struct sn_held *late = st->late;

	st->late = NULL;
	if (late)
		leave(late);
}

/* A frame whose time has come: it leaves, or is set aside to be passed. */
static void come_due(struct sn_held *x)
{
	struct sn_impair_state *st = x->of;

	if (sn_get(&st->out->s->generation) != st->out->gen)
		sn_port_refresh(st->out);
	if (x->pass && !st->late) {
		st->late = x;
		st->late_until_ns = x->due_ns + PV_MAX(st->set.jitter_ns, LATE_MIN_NS);
		return;
	}
	leave(x);
	if (st->late && --st->late->pass == 0)
		leave_late(st);
}

/* Releases what is due; when the next is, or UINT64_MAX. With the mutex. */
static uint64_t release(struct sn_hold *h, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	while (h->n && h->heap[0]->due_ns <= now)
		come_due(heap_take(h));
	pv_list_for_each(it, &h->ports) {
		struct sn_impair_state *st = pv_list_entry(it, struct sn_impair_state, link);

		if (!st->late)
			continue;
		if (st->late_until_ns <= now)
			leave_late(st);
		else
			next = PV_MIN(next, st->late_until_ns);
	}
	return h->n ? PV_MIN(next, h->heap[0]->due_ns) : next;
}

static void *hold_run(void *arg)
{
	struct sn_hold *h = arg;

	prctl(PR_SET_NAME, "softnic-hold");
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&h->worker.mutex);
	while (!h->worker.stop) {
		uint64_t now = now_ns(), next = release(h, now);
		bool idle = next == UINT64_MAX;
		struct timespec until;

		h->wake_ns = next;
		next = idle ? now + IDLE_NS : next;
		until.tv_sec = (time_t)(next / 1000000000u);
		until.tv_nsec = (long)(next % 1000000000u);
		if (pthread_cond_timedwait(&h->worker.cond, &h->worker.mutex, &until) == ETIMEDOUT && idle && !h->n)
			break;
	}
	h->worker.running = false;
	pthread_mutex_unlock(&h->worker.mutex);
	return NULL;
}

/* ---- settings ---- */

int sn_port_impair(struct sn_port *p, const struct sn_impairments *imp)
{
	struct sn_port_ent *e = &p->s->port[p->number];
	int rc;

	if (imp->loss_ppm > 1000000 || imp->duplicate_ppm > 1000000 || imp->corrupt_ppm > 1000000 || imp->reorder_ppm > 1000000)
		return sn_fail(-EINVAL, "a share is 0 to 1000000 ppm");
	if (imp->delay_ns > 60 * (uint64_t)PV_NS_PER_S || imp->jitter_ns > 60 * (uint64_t)PV_NS_PER_S)
		return sn_fail(-EINVAL, "delay and jitter are 0 to 60 s");
	rc = sn_lock(p->f);
	if (rc)
		return rc;
	sn_change_begin(p->f);
	sn_set(&e->loss_ppm, imp->loss_ppm);
	sn_set(&e->duplicate_ppm, imp->duplicate_ppm);
	sn_set(&e->corrupt_ppm, imp->corrupt_ppm);
	sn_set(&e->reorder_ppm, imp->reorder_ppm);
	sn_set(&e->delay_ns, imp->delay_ns);
	sn_set(&e->jitter_ns, imp->jitter_ns);
	sn_set(&e->rate_kbps, imp->rate_kbps);
	sn_set(&e->seed, imp->seed);
	sn_set(&e->wire_free_ns, 0);
	sn_set(&e->impaired, imp->loss_ppm || imp->duplicate_ppm || imp->corrupt_ppm || imp->reorder_ppm || imp->delay_ns ||
				 imp->jitter_ns || imp->rate_kbps);
	sn_change_end(p->f);
	sn_unlock(p->f);
	return 0;
}

static struct sn_hold *hold_get(struct sn_fabric *f)
{
	struct sn_hold *h, *none = NULL;

	h = __atomic_load_n(&f->hold, __ATOMIC_ACQUIRE);
	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	sn_worker_init(&h->worker);
	pv_list_init(&h->ports);
	if (__atomic_compare_exchange_n(&f->hold, &none, h, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return h;
	sn_worker_fini(&h->worker);
	free(h);
	return none;
}

static struct sn_port *out_view(struct sn_port *p)
{
	struct sn_port *out;
	int lane;

	if (sn_lock(p->f))
		return NULL;
	lane = sn_lane_get(p->f, p->number);
	sn_unlock(p->f);
	if (lane < 0)
		return NULL;
	out = sn_port_view(p->f, p->number, (uint32_t)lane);
	if (!out) {
		if (!sn_lock(p->f)) {
			sn_lane_put(p->f, (uint32_t)lane);
			sn_unlock(p->f);
		}
		return NULL;
	}
	out->self = p->self;
	sn_port_refresh(out);
	return out;
}

/* The state, with the settings as they are now; NULL without memory or lane. */
static struct sn_impair_state *state_get(struct sn_port *p)
{
	const struct sn_port_ent *e = &p->s->port[p->number];
	struct sn_impair_state *st = p->impair;
	struct sn_impairments set;

	if (!st) {
		struct sn_hold *h = hold_get(p->f);

		st = calloc(1, sizeof(*st));
		if (!st || !h || !(st->out = out_view(p))) {
			free(st);
			return NULL;
		}
		pthread_mutex_lock(&h->worker.mutex);
		pv_list_add(&h->ports, &st->link);
		pthread_mutex_unlock(&h->worker.mutex);
		p->impair = st;
	}
	memset(&set, 0, sizeof(set));
	set.loss_ppm = (uint32_t)sn_get(&e->loss_ppm);
	set.duplicate_ppm = (uint32_t)sn_get(&e->duplicate_ppm);
	set.corrupt_ppm = (uint32_t)sn_get(&e->corrupt_ppm);
	set.reorder_ppm = (uint32_t)sn_get(&e->reorder_ppm);
	set.delay_ns = sn_get(&e->delay_ns);
	set.jitter_ns = sn_get(&e->jitter_ns);
	set.rate_kbps = sn_get(&e->rate_kbps);
	set.seed = sn_get(&e->seed);
	if (!st->seeded || memcmp(&set, &st->set, sizeof(set))) {
		struct sn_hold *h = hold_get(p->f);

		/* Senders on one port draw from streams of their own. */
		pv_rng_seed(&st->rng, set.seed + p->ordinal * UINT64_C(0x9e3779b97f4a7c15));
		pthread_mutex_lock(&h->worker.mutex);
		st->set = set;
		pthread_mutex_unlock(&h->worker.mutex);
		st->seeded = true;
	}
	return st;
}

static bool happens(struct sn_impair_state *st, uint32_t ppm)
{
	return ppm && pv_rng_below(&st->rng, 1000000) < ppm;
}

/* When a frame of `len` bytes has left the port, at the rate that all its senders share. */
static uint64_t wire_slot(struct sn_port *p, const struct sn_impair_state *st, uint32_t len, uint64_t now)
{
	_Atomic uint64_t *wire = &p->s->port[p->number].wire_free_ns;
	uint64_t took = (uint64_t)(len + WIRE_OVERHEAD) * 8000000u / st->set.rate_kbps, free_ns = sn_get(wire), done;

	do {
		/* More than an hour ahead is no honest value. */
		done = (free_ns > now && free_ns - now < 3600 * (uint64_t)PV_NS_PER_S ? free_ns : now) + took;
	} while (!atomic_compare_exchange_weak(wire, &free_ns, done));
	return done;
}

static struct sn_held *held_make(struct sn_port *p, struct sn_impair_state *st, const uint8_t *frame, uint32_t len)
{
	struct sn_held *x = malloc(sizeof(*x) + len);
	uint64_t now = now_ns(), due;

	if (!x)
		return NULL;
	due = st->set.rate_kbps ? wire_slot(p, st, len, now) : now;
	due += st->set.delay_ns;
	if (st->set.jitter_ns)
		due += pv_rng_below(&st->rng, 2 * st->set.jitter_ns + 1) - PV_MIN(st->set.jitter_ns, due - now);
	x->due_ns = due;
	x->pass = happens(st, st->set.reorder_ppm) ? 1 + (uint32_t)pv_rng_below(&st->rng, 3) : 0;
	x->of = st;
	x->len = len;
	memcpy(x->data, frame, len);
	return x;
}

/* Takes a frame in; what is due already leaves here. */
static void hold_frame(struct sn_port *p, struct sn_impair_state *st, const uint8_t *frame, uint32_t len)
{
	struct sn_hold *h = hold_get(p->f);
	struct sn_held *x = held_make(p, st, frame, len);
	uint64_t next;

	pthread_mutex_lock(&h->worker.mutex);
	if (x) {
		x->seq = st->seq + 1;
		x->due_ns = PV_MAX(x->due_ns, st->last_due_ns);
	}
	if (!x || h->n >= HOLD_MAX || heap_put(h, x)) {
		pthread_mutex_unlock(&h->worker.mutex);
		free(x);
		sn_count(&p->count->tx_loss, 1);
		return;
	}
	st->seq++;
	st->last_due_ns = x->due_ns;
	st->held++;
	sn_count(&st->out->count->held_in, 1);
	next = release(h, now_ns());
	if (next < h->wake_ns || (next != UINT64_MAX && !h->worker.running))
		sn_worker_start(&h->worker, hold_run, h);
	pthread_mutex_unlock(&h->worker.mutex);
}

void sn_impair_send(struct sn_port *p, uint8_t *frame, uint32_t len)
{
	struct sn_lane_count *c = p->count;
	struct sn_impair_state *st = state_get(p);
	bool twice;

	if (!st || happens(st, st->set.loss_ppm)) {
		sn_count(&c->tx_loss, 1);
		return;
	}
	if (happens(st, st->set.corrupt_ppm)) {
		uint64_t bit = pv_rng_below(&st->rng, (uint64_t)len * 8);

		frame[bit / 8] ^= (uint8_t)(1u << (bit & 7));
		sn_count(&c->tx_corrupted, 1);
	}
	twice = happens(st, st->set.duplicate_ppm);
	if (twice)
		sn_count(&c->tx_duplicated, 1);
	for (int i = 0; i <= twice; i++) {
		if (st->set.delay_ns || st->set.jitter_ns || st->set.rate_kbps || st->set.reorder_ppm || sn_impair_holds(p))
			hold_frame(p, st, frame, len);
		else
			sn_send_now(p, frame, len, 0);
	}
}

/* Frames of the port's past settings are still on their way: nothing may pass them. */
bool sn_impair_holds(struct sn_port *p)
{
	struct sn_hold *h = __atomic_load_n(&p->f->hold, __ATOMIC_ACQUIRE);
	bool holds;

	if (!p->impair || !h)
		return false;
	pthread_mutex_lock(&h->worker.mutex);
	holds = p->impair->held != 0;
	pthread_mutex_unlock(&h->worker.mutex);
	return holds;
}

/* The frames of a sender that goes are on the wire already: they leave, in order, though too early. */
void sn_impair_detach(struct sn_port *p)
{
	struct sn_impair_state *st = p->impair;
	struct sn_hold *h = p->f->hold;
	uint32_t keep = 0;

	if (!st)
		return;
	pthread_mutex_lock(&h->worker.mutex);
	for (uint32_t i = 0; i < h->n; i++) {
		if (h->heap[i]->of == st)
			h->heap[i]->due_ns = 0;
	}
	/* Rebuilt, with those in front. */
	for (keep = h->n, h->n = 0; h->n < keep;)
		heap_put(h, h->heap[h->n]);
	while (h->n && h->heap[0]->due_ns == 0)
		come_due(heap_take(h));
	leave_late(st);
	pv_list_del(&st->link);
	pthread_mutex_unlock(&h->worker.mutex);
	if (!sn_lock(p->f)) {
		sn_lane_put(p->f, st->out->lane_no);
		sn_unlock(p->f);
	}
	sn_port_unview(st->out);
	free(st);
	p->impair = NULL;
}

void sn_hold_close(struct sn_fabric *f)
{
	struct sn_hold *h = f->hold;

	if (!h)
		return;
	sn_worker_fini(&h->worker);
	for (uint32_t i = 0; i < h->n; i++)
		free(h->heap[i]);
	free(h->heap);
	free(h);
	f->hold = NULL;
}
